"""The plan of a map: every candidate release simulated on public worlds, and whether the best of them is any use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.gp import RBF, Box, ExponentialL1, Kernel
from discretion.posterior.confidence import SumLayout
from discretion.posterior.decoder import Decoder, best_linear_decoder
from discretion.posterior.kernel_sum import KernelSumMechanism
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.mechanism import PosteriorMechanism
from discretion.posterior.planner.lattices import Hexagons, LatticePaths
from discretion.posterior.planner.priors import MOST_DRAWN, PLACES, GaussianPrior, Prior, Setting
from discretion.posterior.planner.simulation import FEATURES, MOST_RECORDS, Candidate, Score, Simulation, kernel_dict
from discretion.privacy import round_up_significant

__all__ = ["MapPlan", "Recommendation", "plan_map"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_OVERLAP = 0.6
LEAST_GAIN = 0.1
"""A map is useful if its IoU is at least 0.6 and exceeds the best trivial one by 0.1 and by 2 standard errors."""
ADVANTAGE = 0.02
"""IoU, beside 2 standard errors, by which a decoder must beat the plain kernel sum, or a path both, to replace it."""
SEARCHED = (1e-3, 1e3)
"""Epsilons between which the smallest useful one is looked for."""

_EPSILONS = (9.0, 3.0, 1.0, 0.3)


@dataclass(frozen=True)
class Recommendation:
    """The release to make.

    Attributes
    ----------
    mechanism : {"kernel-sum", "posterior", "lattice"}
    kernel : Kernel or Hexagons
        In the coordinates below; hexagons in data units.
    coordinates : {"unit", "data"}
    ridge : float or None
        Of a posterior; None for a kernel sum.
    scale : float
        The mechanism's calibrated scale for n records.
    epsilon, delta : float
    paths : int or None
        1 for a posterior; None for a kernel sum.
    decoder : bool
        Whether to decode the release with the plan's public prior (`MapPlan.decoder`).
    """

    mechanism: Literal["kernel-sum", "posterior", "lattice"]
    kernel: Any
    coordinates: str
    ridge: float | None
    scale: float
    epsilon: float
    delta: float
    paths: int | None
    decoder: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return dict(vars(self)) | {"kernel": kernel_dict(self.kernel)}


@dataclass(frozen=True, eq=False)
class MapPlan:
    """What `plan_map` found. Made from public numbers only.

    Attributes
    ----------
    recommended : Recommendation
        The best release at the target epsilon, useful or not.
    forecast : Candidate
        Its scores on simulated worlds.
    useful : bool
        By the printed rule.
    not_useful_below : float or None
        The smallest epsilon at which some release is useful, found by bisection to 10 per cent; infinity if none is up
        to 1,000, None if one still is at 0.001.
    frontier : tuple of Candidate
        The best of each row at each epsilon.
    candidates : tuple of Candidate
        All that were tried at the target epsilon, best first.
    trivial : dict
        IoU of all places and of none, RMSE of the best constant.
    water_filling : dict
        First guess of the kernel, and the least error of any stationary kernel, at the target epsilon.
    notes : tuple of str
        What the forecast rests on, in words.
    """

    recommended: Recommendation
    forecast: Candidate
    useful: bool
    not_useful_below: float | None
    frontier: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    trivial: dict[str, Score]
    water_filling: dict[str, Any]
    prior: dict[str, Any]
    notes: tuple[str, ...]
    simulation: Simulation

    @property
    def setting(self) -> Setting:
        """The public problem."""
        return self.simulation.setting

    @property
    def scored(self) -> tuple[Floats, Mask]:
        """Places of the simulation in data units, (m, d), and which of them are scored."""
        return self.setting.domain.grid(self.setting.counts), self.simulation.model.mask

    def decoder(self, mechanism: KernelSumMechanism) -> Decoder:
        """The closed-form decoder of a kernel-sum mechanism under the plan's public prior, cut included.

        Its target is the field on the plan's own grid (``setting.counts`` along the sides of the domain).

        Raises
        ------
        ValueError
            For a mechanism that releases on another domain.
        """
        setting, law = self.setting, self.simulation.model.gaussian
        if setting.coordinates == "unit":
            sides = np.subtract(setting.domain.upper, setting.domain.lower)
            law = replace(
                law,
                kernel=replace(law.kernel, length_scale=tuple(sides * np.asarray(law.kernel.length_scale))),
                domain=setting.domain,
            )
        layout = SumLayout.of(mechanism, n=setting.n)
        decoder = best_linear_decoder(layout, law, features=FEATURES)
        kernel = mechanism.kernels[0] if isinstance(mechanism.kernels, tuple) else mechanism.kernels
        tuned = self.simulation.decoder(kernel, self.recommended.epsilon)
        return replace(decoder, threshold=tuned.threshold, cut=tuned.cut, facts=decoder.facts | tuned.facts)

    def mechanism(self, **changes: Any) -> KernelSumMechanism | PosteriorMechanism | LatticeMechanism:
        """The recommended mechanism, calibrated for the expected n on the grid of the release, or on its lattice."""
        r, s = self.recommended, self.setting
        return _mechanism(r.mechanism, r.kernel, r.ridge, r.epsilon, r.delta, s, **changes)

    @property
    def verdict(self) -> str:
        """Whether anything useful can be published, in one sentence."""
        epsilon, X = self.recommended.epsilon, self.not_useful_below
        if X is None:
            limit = f" It still is at epsilon {SEARCHED[0]:g}."
        elif math.isinf(X):
            limit = f" Nothing useful at any epsilon up to {SEARCHED[1]:g}."
        else:
            limit = f" Not useful below epsilon {round_up_significant(X, 2)}."
        if self.useful:
            return f"Useful at epsilon {epsilon:g}.{limit}"
        return f"NOTHING USEFUL can be published at epsilon {epsilon:g}.{limit}"

    @property
    def best(self) -> dict[float, str]:
        """For each epsilon of the frontier the row with the largest overlap, and those not clearly below it."""
        found: dict[float, str] = {}
        for epsilon in sorted({each.epsilon for each in self.frontier}, reverse=True):
            rows = sorted((each for each in self.frontier if each.epsilon == epsilon), key=lambda each: -each.merit)
            tied = [each for each in rows if each.iou.mean >= rows[0].iou.mean - 2.0 * rows[0].iou.se]
            found[epsilon] = " = ".join(each.label for each in sorted(tied, key=lambda each: -each.merit))
        return found

    @property
    def words(self) -> str:
        """The recommended release in words."""
        r = self.recommended
        if isinstance(r.kernel, Hexagons):
            return (
                f"posterior path on hexagons (release --prior lattice:{r.kernel.spacing:g}), killing "
                f"{r.kernel.killing:g}, ridge {r.ridge:.4g}"
            )
        length = f"{r.kernel.name} kernel, length scale {r.kernel.length_scale:.4g} ({r.coordinates} coordinates)"
        if r.mechanism == "posterior":
            return f"posterior path, {length}, ridge {r.ridge:.4g}"
        return f"kernel sum, {length}, {'with' if r.decoder else 'without'} decoder"

    @property
    def rule(self) -> str:
        """What useful means here."""
        return (
            f"useful: IoU >= {LEAST_OVERLAP:g} and better than the best trivial answer by {LEAST_GAIN:g} and by 2 "
            "standard errors"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; an infinite ``not_useful_below`` is the word "inf"."""
        s, X = self.setting, self.not_useful_below
        return {
            "recommended": self.recommended.to_dict(),
            "forecast": self.forecast.to_dict(),
            "useful": self.useful,
            "not_useful_below": "inf" if X is not None and math.isinf(X) else X,
            "verdict": self.verdict,
            "rule": self.rule,
            "trivial": {name: vars(score) for name, score in self.trivial.items()},
            "frontier": [each.to_dict() for each in self.frontier],
            "best": {f"{epsilon:g}": label for epsilon, label in self.best.items()},
            "candidates": [each.to_dict() for each in self.candidates],
            "water_filling": self.water_filling,
            "prior": self.prior,
            "n": s.n,
            "delta": self.recommended.delta,
            "threshold": s.threshold,
            "centre": s.centre,
            "response_range": list(s.response_range),
            "domain": {"lower": list(s.domain.lower), "upper": list(s.domain.upper)},
            "grid": list(s.grid),
            "simulated_grid": list(s.counts),
            "worlds": self.simulation.worlds,
            "seed": self.simulation.seed,
            "notes": list(self.notes),
        }


def plan_map(
    *,
    n: int,
    domain: Box,
    response_range: tuple[float, float],
    grid: tuple[int, ...],
    epsilon: float,
    delta: float | None = None,
    threshold: float | None = None,
    centre: float | None = None,
    prior: Prior | None = None,
    epsilons: tuple[float, ...] | None = None,
    coordinates: Literal["unit", "data"] = "unit",
    region: Callable[[Floats], Mask] | None = None,
    floor: float = 20.0,
    posterior: bool = True,
    lattice: bool = True,
    worlds: int = 200,
    path_worlds: int = 24,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> MapPlan:
    """The best release of a map of {f >= threshold}, forecast from public knowledge only.

    Every candidate (kernel sum of several kernels and length scales, the same with a decoder, posterior path under the
    published and the certified account, posterior path on hexagons) is made on simulated worlds of the public prior and
    scored against each world's true field. Half of the worlds choose, the other half report. Deterministic given the
    seed.

    Parameters
    ----------
    n : int
        Expected number of records.
    domain : Box
    response_range : (low, high)
    grid : tuple of int
        Of the release; simulated at 400 to 2,400 places.
    epsilon : float
        Target.
    delta : float, optional
        n^-1.1 by default.
    threshold, centre : float, optional
        The middle of the range by default.
    prior : GaussianPrior or PublicTable
        ``GaussianPrior()`` by default.
    epsilons : tuple of float, optional
        Of the frontier, beside the target; 9, 3, 1, 0.3 by default.
    coordinates : {"unit", "data"}
        Of the kernels, as in `KernelSumMechanism`.
    region : callable, optional
        Whether points (m, d) in data units belong to the public map, such as ``Region.contains``.
    floor : float
        Records that must be near for a local mean to be drawn.
    posterior : bool
        Whether posterior paths are simulated too; never for more than 20,000 records.
    lattice : bool
        Whether posterior paths on a lattice are; in the plane only.
    worlds, path_worlds : int
        Number of simulated worlds for kernel sums and for paths.
    seed : int
    progress : callable, optional
        Called with the name of each step.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    First guess of the length scale: water-filling, ``docs/proofs/kernel-spectrum.md``. Accounts:
    ``docs/proofs/kernel-sum.md``, ``docs/proofs/renyi-covariance-and-mean.md``, ``docs/proofs/certified-renyi.md``.
    """
    low, high = map(float, response_range)
    setting = Setting(
        int(n),
        domain,
        (low, high),
        0.5 * (low + high) if centre is None else float(centre),
        0.5 * (low + high) if threshold is None else float(threshold),
        tuple(map(int, grid)),
        coordinates,
        region,
    )
    rare = float(n) ** -1.1 if delta is None else float(delta)
    frontier_epsilons = tuple(sorted({*map(float, epsilons or _EPSILONS), float(epsilon)}, reverse=True))
    _check(setting, n, frontier_epsilons, rare, floor, worlds, path_worlds)
    step = progress or (lambda _: None)

    step("Public prior")
    public = GaussianPrior() if prior is None else prior
    model = public.on(setting, np.random.default_rng([seed, 0]))
    simulation = Simulation(model, rare, float(floor), int(worlds), int(path_worlds), int(seed))
    planner = _Planner(simulation)
    rows: dict[float, list[Candidate]] = {}
    for each in frontier_epsilons:
        step(f"Kernel sums at epsilon {each:g}")
        rows[each] = planner.kernel_sums(each)
    offered = posterior and n <= MOST_RECORDS
    if offered:
        step("Posterior paths")
        lengths = sorted({planner.length(float(epsilon), shift) for shift in (-1, 1, 3)})
        for found in simulation.posterior(lengths, frontier_epsilons):
            rows[found.epsilon].append(found)
    lattices = lattice and domain.dimension == 2
    if lattices:
        step("Posterior paths on a lattice")
        for found in LatticePaths(simulation).candidates(frontier_epsilons, RBF(planner.length(float(epsilon)))):
            rows[found.epsilon].append(found)
    frontier = [best for each in frontier_epsilons for best in _best_of_rows(rows[each])]
    chosen = _recommended(rows[float(epsilon)])
    step("Smallest useful epsilon")
    limit = planner.smallest_useful({each: _useful(_recommended(found)) for each, found in rows.items()})

    scale = _mechanism(chosen.mechanism, chosen.kernel, chosen.ridge, chosen.epsilon, rare, setting).scale
    path = chosen.mechanism != "kernel-sum"
    half = simulation.worlds // 2
    return MapPlan(
        Recommendation(
            chosen.mechanism,  # pyright: ignore[reportArgumentType]
            chosen.kernel,
            coordinates,
            chosen.ridge,
            scale,
            float(epsilon),
            rare,
            1 if path else None,
            chosen.decoder,
        ),
        chosen,
        _useful(chosen),
        limit,
        tuple(frontier),
        tuple(sorted(rows[float(epsilon)], key=lambda c: -c.merit)),
        {name: Score.of(values[half:]) for name, values in simulation.trivial.items()}
        | {"best constant (RMSE)": Score.of(simulation.constant[half:])},
        planner.water_filling(float(epsilon)),
        public.describe(model),
        _notes(setting, public, int(worlds), offered, posterior, lattices),
        simulation,
    )


@dataclass(frozen=True, eq=False)
class _Planner:
    """Which kernel sums are tried, and where they stop being useful."""

    simulation: Simulation

    def length(self, epsilon: float, shift: int = 0) -> float:
        """The water-filling length scale of an RBF kernel at this epsilon, times 2^(shift / 2).

        Moved to the lattice side 2^(k / 2), so that epsilons share their kernels.
        """
        setting = self.simulation.setting
        first = float(self.simulation.water_filling(epsilon).compared[RBF.name]["length_scale"])
        least = math.ceil(-2.0 * math.log2(max(setting.counts) - 1.0))  # no narrower than a cell
        k = round(2.0 * math.log2(first / setting.side)) + shift
        return setting.side * 2.0 ** (0.5 * min(max(k, least), 1))

    def kernel_sums(self, epsilon: float) -> list[Candidate]:
        """Plain and decoded kernel sums of several kernels about the first guess."""
        plain: list[Kernel] = [RBF(self.length(epsilon, shift)) for shift in range(-3, 4)]
        plain += [ExponentialL1(self.length(epsilon, shift)) for shift in (-1, 1)]
        decoded = [RBF(self.length(epsilon, shift)) for shift in (0, 2)]
        made = [self.simulation.kernel_sum(kernel, epsilon) for kernel in dict.fromkeys(plain)]
        return made + [self.simulation.decoded(kernel, epsilon) for kernel in dict.fromkeys(decoded)]

    def smallest_useful(self, known: dict[float, bool]) -> float | None:
        """By doubling and bisection in log epsilon, from what is known of the frontier."""
        known = dict(known)

        def useful(epsilon: float) -> bool:
            if epsilon not in known:
                known[epsilon] = _useful(_recommended(self.kernel_sums(epsilon)))
            return known[epsilon]

        least = min((each for each, good in known.items() if good), default=None)
        while least is None:
            top = 3.0 * max(known)
            if top > SEARCHED[1]:
                return math.inf
            least = top if useful(top) else None
        good = least
        bad = max((each for each, fine in known.items() if not fine and each < good), default=None)
        while bad is None:
            down = good / 3.0
            if down < SEARCHED[0]:
                return None
            good, bad = (down, None) if useful(down) else (good, down)
        while good > 1.1 * bad:
            middle = math.sqrt(good * bad)
            good, bad = (middle, bad) if useful(middle) else (good, middle)
        return good

    def water_filling(self, epsilon: float) -> dict[str, Any]:
        """The first guess as JSON data."""
        choice = self.simulation.water_filling(epsilon)
        return {
            "kernel": kernel_dict(choice.kernel),
            "error": choice.error,
            "least_error": choice.least_error,
            "compared": choice.compared,
        }


def _best_of_rows(candidates: list[Candidate]) -> list[Candidate]:
    """The best of each row, chosen on the worlds that do not report."""
    rows: dict[str, Candidate] = {}
    for each in candidates:
        if each.label not in rows or each.merit > rows[each.label].merit:
            rows[each.label] = each
    return list(rows.values())


def _recommended(candidates: list[Candidate]) -> Candidate:
    """The simplest release that is not clearly beaten; a certified account is not one that a release can use yet."""
    rows = {each.label: each for each in _best_of_rows(candidates) if each.account != "certified"}
    best = rows.pop("kernel sum")
    for rival in sorted(rows.values(), key=lambda each: not each.decoder):
        if rival.merit >= best.merit + max(ADVANTAGE, 2.0 * rival.iou.se):
            best = rival
    return best


def _useful(candidate: Candidate) -> bool:
    gain = candidate.gain
    return candidate.iou.mean >= LEAST_OVERLAP and gain.mean >= max(LEAST_GAIN, 2.0 * gain.se)


def _mechanism(
    name: str, kernel: Any, ridge: float | None, epsilon: float, delta: float, setting: Setting, **changes: Any
) -> KernelSumMechanism | PosteriorMechanism | LatticeMechanism:
    if name == "lattice":
        own = {"lattice": kernel.lattice(setting), "response_range": setting.response_range, "centre": setting.centre}
        priced: dict[str, Any] = {"n": setting.n, "epsilon": epsilon, "delta": delta, "ridge": ridge}
        return LatticeMechanism.calibrated(**(priced | own | changes))
    common: dict[str, Any] = {
        "n": setting.n,
        "epsilon": epsilon,
        "delta": delta,
        "domain": setting.domain,
        "grid": setting.grid,
        "locations": setting.domain.grid(setting.grid),
        "coordinates": setting.coordinates,
    }
    if name == "kernel-sum":
        own = {
            "kernels": kernel,
            "response_ranges": setting.response_range,
            "centres": (setting.centre,),
        }
        return KernelSumMechanism.calibrated(**(common | own | changes))
    own = {"kernel": kernel, "response_range": setting.response_range, "centre": setting.centre, "ridge": ridge}
    return PosteriorMechanism.calibrated(**(common | own | changes))


def _notes(setting: Setting, prior: Prior, worlds: int, offered: bool, wanted: bool, lattices: bool) -> tuple[str, ...]:
    notes = [
        "Scores are means over simulated worlds of the public prior, with standard errors by world; half of the worlds "
        "chose, the other half report.",
        "They are as good as the prior: where the private records differ from it, so will the scores.",
    ]
    if setting.counts != setting.grid:
        notes.append(
            f"Simulated on a grid of {' x '.join(map(str, setting.counts))} (about {PLACES[0]} to {PLACES[1]} "
            "places); the noise there has its exact law."
        )
    if isinstance(prior, GaussianPrior):
        notes.append("Records stand at the places of the simulated grid; no kernel narrower than its cell is tried.")
    else:
        notes.append(
            "The public table is declared public by its user; nothing else is known of it. What it shows already needs "
            "no release: the plan is for what may have changed."
        )
    if setting.n * worlds > MOST_DRAWN:
        notes.append(
            "So many records are not drawn one by one: their sums at each node come from the normal law with the exact "
            "mean and variance."
        )
    if wanted and not offered:
        notes.append(f"Posterior paths are left out: more than {MOST_RECORDS:,} records need too large a matrix.")
    elif offered:
        notes.append("Posterior paths are simulated on fewer worlds and places than kernel sums.")
    if lattices:
        notes.append(
            "Paths on a lattice are simulated on fewer worlds than kernel sums, on hexagons of one size and without "
            "smoothing."
        )
    return tuple(notes)


def _check(
    setting: Setting,
    n: int,
    epsilons: tuple[float, ...],
    delta: float,
    floor: float,
    worlds: int,
    path_worlds: int,
) -> None:
    low, high = setting.response_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}")
    for name, value in (("threshold", setting.threshold), ("centre", setting.centre)):
        if not low <= value <= high:
            raise ValueError(f"{name} must lie in the response range {low:g} to {high:g}; got {value!r}")
    if isinstance(n, bool) or int(n) != n or n < 2:
        raise ValueError(f"n must be a whole number of at least 2; got {n!r}")
    if len(setting.grid) != setting.domain.dimension or min(setting.grid) < 2:
        raise ValueError(f"grid needs {setting.domain.dimension} counts of at least 2; got {setting.grid}")
    if not all(math.isfinite(each) and each > 0 for each in epsilons):
        raise ValueError("every epsilon must be a positive finite number")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta!r}")
    if not (math.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor must be a number >= 0; got {floor!r}")
    if worlds < 20 or path_worlds < 8:
        raise ValueError("a plan needs at least 20 worlds, 8 of them for posterior paths")
    if setting.coordinates not in ("unit", "data"):
        raise ValueError(f"coordinates must be 'unit' or 'data'; got {setting.coordinates!r}")
