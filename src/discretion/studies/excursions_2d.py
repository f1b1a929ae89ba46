"""Table 3 of Maciazek 2026: excursion sets of one posterior path on the unit square.

n = 400, delta = n^-1.1, budget epsilon < 9 (account of the table: `TablesOnTheSquare`), exponential kernel. The
generator of the paper's fields is not public; `BlobWorlds` stands in for it and says what it draws. Maps are 40 x 40
(the paper searches on 80 x 80); a path is smoothed by a Gaussian of 2 nodes before it is cut at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.ndimage import gaussian_filter
from scipy.special import log_ndtr

from discretion.gp import Exponential
from discretion.posterior.rules import published_epsilon
from discretion.posterior.worlds import BlobWorlds, Worlds
from discretion.studies.path_sampler import PathSampler
from discretion.studies.published import TablesOnTheSquare, beside
from discretion.studies.running import Report, Run, quartiles, spread

Floats = NDArray[np.float64]

N, BUDGET, SIDE, CLIP, NUGGET = 400, 9.0, 40, 1e-8, 1e-8
NOISES = (0.1, 0.3, 0.5)
FREE = (
    (0.10, 0.14, 0.18, 0.24, 0.35, 0.45, 0.5),
    (0.27, 0.4, 0.6, 0.9, 1.3, 1.5, 1.7, 2.0, 2.5),
    (0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.6),
)
PRIVATE = (
    (0.05, 0.10, 0.14, 0.18, 0.24, 0.35, 0.45),
    tuple(np.arange(2.5, 8.5, 0.5).tolist()),
    (0.01, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4),
)
FINER = (0.75, 0.85, 0.925, 1.0, 1.075, 1.15, 1.25)
ENDS = ((0.025, 1.0), (0.25, 10.0), (0.02, 1.2))
BEST = 3
CUTS = np.linspace(0.001, 0.999, 999)
NODES = BlobWorlds(N).domain.grid((SIDE, SIDE))
COLUMNS = (
    "d_eff unconstrained",
    "d_eff private",
    "BCE increase %",
    "IoU unconstrained",
    "IoU of one path",
    "IoU deviation of one path",
    "IoU gap %",
)


@dataclass(frozen=True)
class Choice:
    """Hyperparameters, mean BCE in the search, epsilon."""

    length_scale: float
    ridge: float
    scale: float
    bce: float
    epsilon: float


def epsilons(length_scale: Any, ridge: Any, scale: Any) -> Floats:
    """Under the account of the table, arrays."""
    return published_epsilon(
        n=N,
        ridge=ridge,
        scale=scale,
        delta=N**-1.1,
        assumption=TablesOnTheSquare(1.0),
        least_kernel=np.exp(-math.sqrt(2.0) / np.asarray(length_scale)),
    )[0]


def marginals(X: Floats, y: Floats, length_scale: float, ridges: Iterable[float]) -> list[tuple[Floats, Floats, float]]:
    """Posterior mean and deviation at the nodes and tr K (K + r^2)^-1, for each ridge: one eigendecomposition."""
    kernel = Exponential(length_scale)
    values, vectors = eigh(kernel(X))
    cross, projected = kernel(NODES, X) @ vectors, vectors.T @ y
    squares, found = cross**2, []
    for ridge in ridges:
        shrunk = 1.0 / (np.maximum(values, 0.0) + ridge**2)
        variance = np.maximum(1.0 - squares @ shrunk, 1e-12)
        found.append((cross @ (shrunk * projected), np.sqrt(variance), float(np.sum(np.maximum(values, 0.0) * shrunk))))
    return found


def cross_entropy(
    mean: Floats, deviation: Floats, inside: NDArray[np.bool_], scale: float, clip: float = CLIP
) -> float:
    """Mean BCE over the nodes, probabilities clipped to [clip, 1 - clip]."""
    logs = log_ndtr(np.where(inside, mean, -mean) / (scale * deviation))
    return -float(np.clip(logs, math.log(clip), math.log1p(-clip)).mean())


def searched(worlds: Worlds, candidates: set[tuple[float, float, float]]) -> list[Choice]:
    """Mean BCE over public worlds and epsilon of each (length scale, ridge, scale)."""
    inside, rows = worlds.targets >= 0.0, dict.fromkeys(sorted(candidates), 0.0)
    for length_scale in sorted({l for l, *_ in rows}):
        ridges = sorted({r for l, r, _ in rows if l == length_scale})
        for w in range(len(worlds)):
            fits = marginals(worlds.covariates[w], worlds.responses[w], length_scale, ridges)
            for ridge, (mean, deviation, _) in zip(ridges, fits, strict=True):
                for key in ((l, r, s) for l, r, s in rows if l == length_scale and r == ridge):
                    rows[key] += cross_entropy(mean, deviation, inside[w], key[2]) / len(worlds)
    costs = epsilons(*np.array(list(rows)).T)
    return [Choice(*key, bce, float(cost)) for (key, bce), cost in zip(rows.items(), costs, strict=True)]


def selected(worlds: Worlds, grid: tuple[tuple[float, ...], ...], budget: float) -> Choice:
    """Least mean BCE within the budget; the three best of a coarse grid are refined once where there is a budget."""

    def best(rows: list[Choice]) -> list[Choice]:
        return sorted((row for row in rows if row.epsilon < budget), key=lambda row: row.bce)[:BEST]

    lengths, ridges, scales = (np.array(axis) for axis in grid)
    everything = np.array(list(product(lengths, ridges, scales)))
    kept = everything[epsilons(*everything.T) < budget] if budget < math.inf else everything
    rows = best(searched(worlds, set(map(tuple, kept.tolist()))))
    if budget == math.inf:
        return rows[0]
    around = np.array(
        [
            [
                np.clip(value * f, *ends)
                for value, f, ends in zip((row.length_scale, row.ridge, row.scale), factors, ENDS, strict=True)
            ]
            for row in rows
            for factors in product(FINER, FINER, FINER)
        ]
    ).round(9)
    around = around[epsilons(*around.T) < budget]
    return best(rows + searched(worlds, set(map(tuple, around.tolist()))))[0]


def iou(found: NDArray[np.bool_], inside: NDArray[np.bool_]) -> Floats:
    """IoU over the last axis, 1 where both sets are empty."""
    union = np.count_nonzero(found | inside, axis=-1)
    return np.where(union == 0, 1.0, np.count_nonzero(found & inside, axis=-1) / np.maximum(union, 1))


def excursion_row(noise: float, *, worlds: int, search: int, paths: int, seed: int) -> dict[str, Any]:
    """One column of the table: what was chosen on public worlds, and quartiles over other worlds."""
    simulator = BlobWorlds(N, noise, (SIDE, SIDE))
    public, held, test = (
        simulator.simulate(count, np.random.default_rng([seed, N, k]))
        for k, count in enumerate((search, search, worlds))
    )
    rng = np.random.default_rng([seed, N, 9])
    free, private = selected(public, FREE, math.inf), selected(public, PRIVATE, BUDGET)

    def fitted(choice: Choice, some: Worlds) -> list[tuple[Floats, Floats, float]]:
        pairs = zip(some.covariates, some.responses, strict=True)
        return [marginals(X, y, choice.length_scale, [choice.ridge])[0] for X, y in pairs]

    def probabilities(fits: list[tuple[Floats, Floats, float]]) -> Floats:
        return np.exp(log_ndtr(np.array([mean / (free.scale * deviation) for mean, deviation, _ in fits])))

    on_held, truth = probabilities(fitted(free, held)), held.targets >= 0.0
    cut = float(CUTS[np.argmax([iou(on_held >= c, truth).mean() for c in CUTS])])

    inside = test.targets >= 0.0
    without, within = fitted(free, test), fitted(private, test)
    bce = [
        np.array([cross_entropy(m, d, s, choice.scale) for (m, d, _), s in zip(fits, inside, strict=True)])
        for choice, fits in ((free, without), (private, within))
    ]
    sampler, each = PathSampler(Exponential(private.length_scale), NODES, NUGGET), []
    for X, y, s in zip(test.covariates, test.responses, inside, strict=True):
        ((mean, centred),) = sampler.paths(X, y[:, None], (private.ridge,), paths, rng)
        drawn = (mean + private.scale * centred).reshape(paths, SIDE, SIDE)
        smooth = gaussian_filter(drawn, (0.0, 2.0, 2.0), mode="nearest", truncate=3.0)
        each.append(iou(smooth.reshape(paths, -1) >= 0.0, s))
    path = np.mean(each, axis=1)
    sets = iou(probabilities(without) >= cut, inside)
    return {
        "free": asdict(free),
        "private": asdict(private),
        "cut": cut,
        "all_places": quartiles(inside.mean(axis=1)),
        "d_eff unconstrained": quartiles([d for *_, d in without]),
        "d_eff private": quartiles([d for *_, d in within]),
        "BCE increase %": quartiles(100.0 * (bce[1] / bce[0] - 1.0)),
        "IoU unconstrained": quartiles(sets),
        "IoU of one path": quartiles(path),
        "IoU deviation of one path": quartiles(np.std(each, axis=1, ddof=1)),
        "IoU gap %": quartiles(100.0 * (1.0 - path / sets)),
    }


def reports(run: Run) -> list[Report]:
    """Table 3, measured beside published."""
    sizes = run.pick({"worlds": 20, "search": 6, "paths": 10}, {"worlds": 1_000, "search": 30, "paths": 50}) | {
        "seed": run.seed
    }
    found = run.each("excursions-2d", excursion_row, [{"noise": noise, **sizes} for noise in NOISES])
    rows: list[tuple[Any, ...]] = []
    for noise, row in zip(NOISES, found, strict=True):
        key = f"noise {noise:g}"
        told = spread(beside("excursions-2d", key, "epsilon unconstrained"))
        rows.append((key, "epsilon unconstrained", f"{row['free']['epsilon']:.3g}", told))
        rows.append((key, "epsilon private", f"{row['private']['epsilon']:.3g}", "< 9"))
        for name in ("free", "private"):
            words = ", ".join(f"{row[name][field]:.3g}" for field in ("length_scale", "ridge", "scale"))
            rows.append((key, f"length, ridge, scale; {name}", words, ""))
        rows.append((key, "IoU of all places", spread(row["all_places"]), ""))
        rows += [(key, name, spread(row[name]), spread(beside("excursions-2d", key, name))) for name in COLUMNS]
    return [
        Report(
            "excursions-2d",
            "Table 3: excursion sets on the square, n = 400",
            ("setting", "quantity", "measured: median [quartiles]", "published"),
            rows,
            ("The paper's field generator is not public: fields here are two bumps of a declared law (BlobWorlds).",),
            lambda figure: _draw(figure, found),
            (6.0, 4.0),
        )
    ]


def _draw(figure: Figure, found: list[dict[str, Any]]) -> None:
    axes = figure.subplots()
    for shift, (name, colour) in enumerate((("IoU unconstrained", "#7a7a7a"), ("IoU of one path", "#27607f"))):
        for index, (noise, row) in enumerate(zip(NOISES, found, strict=True)):
            told = beside("excursions-2d", f"noise {noise:g}", name)
            assert told is not None
            for offset, values, marker, words in ((0.0, row[name], "o", name), (0.3, told, "s", f"{name}, published")):
                middle, low, high = values
                place, label = index + 0.12 * shift - 0.2 + offset, words if index == 0 else None
                error = [[middle - low], [high - middle]]
                axes.errorbar(
                    place, middle, error, fmt=marker, color=colour, alpha=1.0 - offset, capsize=2, label=label
                )
    axes.set_xticks(range(len(NOISES)), [f"{noise:g}" for noise in NOISES])
    axes.set(xlabel="M_xi", ylabel="IoU, median and quartiles of worlds", ylim=(0.5, 1.0))
    axes.legend(frameon=False, fontsize="x-small", loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
