"""The plan of a map: every candidate release simulated on public worlds, and whether the best of them is any use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.gp import RBF, Box, ExponentialL1, Kernel, Lattice
from discretion.posterior.planner.lattices import LatticePaths
from discretion.posterior.planner.map_plan import MapPlan, Recommendation, planned_mechanism
from discretion.posterior.planner.priors import Prior, model_of, prior_notes
from discretion.posterior.planner.setting import MOST_RECORDS, checked_problem, path_kernels
from discretion.posterior.planner.simulation import Candidate, Score, Simulation, kernel_dict
from discretion.posterior.planner.usefulness import SEARCHED, useful_set

__all__ = ["plan_map"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

ADVANTAGE = 0.02
"""IoU, beside 2 standard errors, by which a decoder must beat the plain kernel sum, or a path both, to replace it."""

MOST_PATHS = 100
"""All of them are drawn in every world, at every place."""

_EPSILONS = (9.0, 3.0, 1.0, 0.3)


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
    paths: int = 1,
    coordinates: Literal["unit", "data"] = "unit",
    region: Callable[[Floats], Mask] | None = None,
    floor: float = 20.0,
    posterior: bool = True,
    lattice: bool | Callable[[float], Lattice] = True,
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
    threshold : float, optional
        The middle of the range by default.
    centre : float, optional
        Of sums the middle of the range by default, of posterior paths the threshold.
    prior : GaussianPrior or PublicTable
        ``GaussianPrior()`` by default.
    epsilons : tuple of float, optional
        Of the frontier, beside the target; 9, 3, 1, 0.3 by default.
    paths : int
        Released together where posterior paths are, at most 100: the map is where at least half of them agree.
    coordinates : {"unit", "data"}
        Of the kernels, as in `KernelSumMechanism`.
    region : callable, optional
        Whether points (m, d) in data units belong to the public map, such as ``Region.contains``.
    floor : float
        Records that must be near for a local mean to be drawn.
    posterior : bool
        Whether posterior paths are simulated too: of exponential and, up to 20,000 records, RBF kernels on a line, of
        Matern 3/2 kernels there for more records; elsewhere of RBF kernels, never for more than 20,000 records.
    lattice : bool, or callable
        Whether posterior paths on hexagons are; in the plane only. Or the public graph they are simulated on instead,
        such as districts, from its killing (``Districts.lattice``): the plan then chooses killing and ridge.
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
    frontier_epsilons = tuple(sorted({*map(float, epsilons or _EPSILONS), float(epsilon)}, reverse=True))
    setting, rare = checked_problem(
        n,
        domain,
        response_range,
        grid,
        threshold=threshold,
        centre=centre,
        coordinates=coordinates,
        region=region,
        epsilons=frontier_epsilons,
        delta=delta,
    )
    if not (math.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor must be a number >= 0; got {floor!r}.")
    if worlds < 20 or path_worlds < 8:
        raise ValueError("A plan needs at least 20 worlds, 8 of them for posterior paths.")
    if isinstance(paths, bool) or int(paths) != paths or not 1 <= paths <= MOST_PATHS:
        raise ValueError(f"paths must be a whole number from 1 to {MOST_PATHS} in the plan of a map; got {paths!r}.")
    step = progress or (lambda _: None)

    step("Public prior")
    public, model = model_of(prior, setting, seed)
    simulation = Simulation(model, rare, float(floor), int(worlds), int(path_worlds), int(seed), int(paths))
    planner = _Planner(simulation)
    rows: dict[float, list[Candidate]] = {}
    for each in frontier_epsilons:
        step(f"Kernel sums at epsilon {each:g}")
        rows[each] = planner.kernel_sums(each)
    offered = posterior and bool(path_kernels(setting.n, domain.dimension))
    if offered:
        step("Posterior paths")
        lengths = sorted({planner.length(float(epsilon), shift) for shift in (-1, 1, 3)})
        for found in simulation.posterior(lengths, frontier_epsilons):
            rows[found.epsilon].append(found)
    graph = None if isinstance(lattice, bool) else lattice
    lattices = lattice is not False and domain.dimension == 2
    if lattices:
        step("Posterior paths on a lattice")
        for found in LatticePaths(simulation, graph).candidates(frontier_epsilons, RBF(planner.length(float(epsilon)))):
            rows[found.epsilon].append(found)
    frontier = [best for each in frontier_epsilons for best in _best_of_rows(rows[each])]
    chosen = _recommended(rows[float(epsilon)])
    step("Smallest useful epsilon")
    limit = planner.smallest_useful({each: _useful(_recommended(found)) for each, found in rows.items()})

    path = chosen.mechanism != "kernel-sum"
    own: dict[str, Any] = {"paths": int(paths)} if path else {}
    made = planned_mechanism(chosen.mechanism, chosen.kernel, chosen.ridge, chosen.epsilon, rare, setting, **own)
    half = simulation.worlds // 2
    return MapPlan(
        Recommendation(
            chosen.mechanism,  # pyright: ignore[reportArgumentType]
            chosen.kernel,
            coordinates,
            chosen.ridge,
            made.scale,
            float(epsilon),
            rare,
            (setting.of_paths if path else setting).centre,
            int(paths) if path else None,
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
        (*_notes(offered, posterior, lattices, graph is not None), *prior_notes(setting, public, int(worlds))),
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
    return useful_set(candidate.iou.mean, candidate.gain.mean, candidate.gain.se)


def _notes(offered: bool, wanted: bool, lattices: bool, districts: bool) -> Iterator[str]:
    yield (
        "Scores are means over simulated worlds of the public prior, with standard errors by world; half of the worlds "
        "chose, the other half report."
    )
    if wanted and not offered:
        yield (
            f"Posterior paths of kernels are left out: in this many dimensions they need too large a matrix for more "
            f"than {MOST_RECORDS:,} records."
        )
    elif offered:
        yield "Posterior paths are simulated on fewer worlds and places than kernel sums."
    if lattices:
        yield (
            "Paths on a lattice are simulated on fewer worlds than kernel sums, "
            f"{'on the districts' if districts else 'on hexagons of one size'} and without smoothing."
        )
