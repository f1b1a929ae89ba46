"""The plan of a posterior path, forecast by simulation from public knowledge only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box, Kernel, engine, kernel
from discretion.gp.engine import DenseEngine
from discretion.posterior.calibration import calibrated
from discretion.posterior.mechanism import PosteriorMechanism
from discretion.posterior.planner.paths import PathWorlds
from discretion.posterior.planner.population import Population, Question, Tried
from discretion.posterior.planner.posterior_plan import PathChoice, PlannedPath, PosteriorPlan
from discretion.posterior.planner.priors import Prior, model_of, prior_notes
from discretion.posterior.planner.quality import CORRELATION, IOU, Quality, Spread
from discretion.posterior.planner.scales import PLANNED_RULES, ScaleAccount
from discretion.posterior.planner.setting import MOST_RECORDS, Setting, checked_problem, path_kernels
from discretion.posterior.planner.simulation import overlap
from discretion.posterior.planner.usefulness import LEAST_CORRELATION, useful_set
from discretion.privacy import Unreachable

__all__ = ["plan_posterior"]

Floats = NDArray[np.float64]
Values = NDArray[np.floating]
Mask = NDArray[np.bool_]

PLANNED_KERNELS = ("exponential", "matern32", "matern52", "rbf")
RUNNERS_UP = 5
TIE = 0.005
"""Mean scores that differ by no more are as good."""
MOST_PATHS = 1_000


def plan_posterior(
    *,
    n: int,
    domain: Box,
    response_range: tuple[float, float],
    grid: tuple[int, ...],
    epsilon: float,
    delta: float | None = None,
    paths: int = 1,
    threshold: float | None = None,
    centre: float | None = None,
    prior: Prior | None = None,
    kernels: tuple[str, ...] | None = None,
    rule: str = "closed-form",
    coordinates: Literal["unit", "data"] = "unit",
    region: Callable[[Floats], Mask] | None = None,
    worlds: int = 120,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> PosteriorPlan:
    """Kernel, ridge and scale of the best posterior path at an epsilon, from public knowledge only.

    Length scale and ridge are searched on simulated worlds of the public prior; the scale of each is the smallest that
    meets the epsilon. Half of the worlds choose, the other half report. Deterministic given the seed.

    Parameters
    ----------
    n : int
        Expected number of records: at most 20,000 where the release needs a matrix of the records squared, as all
        kernels do but exponential, matern32 and matern52 on a line.
    domain : Box
    response_range : (low, high)
    grid : tuple of int
        Of the release; simulated at about 300 to 650 places.
    epsilon : float
        Target of all paths together.
    delta : float, optional
        n^-1.1 by default.
    paths : int
        Released together.
    threshold : float, optional
        Paths are scored by the overlap (IoU) with the true set {f >= threshold}; without one by their correlation with
        the true field.
    centre : float, optional
        Public prior mean of the release. The threshold by default, as a large ridge shrinks paths to the centre and
        leaves their sign; without one the middle of the range.
    prior : GaussianPrior or PublicTable
        ``GaussianPrior()`` by default.
    kernels : tuple of str, optional
        Names among exponential, matern32, matern52 and rbf; exponential and rbf on a line (above 20,000 records
        exponential and matern32), rbf elsewhere.
    rule : {"published", "closed-form", "renyi", "best"}
        What prices the paths (`discretion.posterior.rules`). ``renyi`` and ``best`` search with a coarser certified
        table and take half a minute more; ``published`` takes the larger scale of the published account.
    coordinates : {"unit", "data"}
        Of the kernels, as in `PosteriorMechanism`.
    region : callable, optional
        Whether points (m, d) in data units belong to the public map.
    worlds : int
        Number of simulated worlds.
    seed : int
    jobs : int, optional
        Kernels at once, as joblib has it (``joblib.parallel_config`` is heeded).
    progress : callable, optional
        Called with what is being done.

    Raises
    ------
    ValueError
        For a parameter out of range.
    Unreachable
        If no path meets the target.

    Notes
    -----
    Maciazek 2026, Section 5 (population search). What was searched is kept in the user's cache folder: a plan that was
    stopped goes on where it was.
    """
    start = time.perf_counter()
    target = float(epsilon)
    setting, rare = checked_problem(
        n,
        domain,
        response_range,
        grid,
        threshold=threshold,
        centre=centre,
        coordinates=coordinates,
        region=region,
        epsilons=(target,),
        delta=delta,
    )
    setting = setting.of_paths
    names = kernels or path_kernels(setting.n, domain.dimension) or ("rbf",)
    _check(setting.n, domain.dimension, paths, names, rule, worlds)
    step = progress or (lambda _: None)

    step("Public prior")
    public, model = model_of(prior, setting, seed)
    data = model.simulate(int(worlds), np.random.default_rng([seed, 1]))
    simulated = PathWorlds.of(model, data, np.arange(int(worlds)), setting.few[1], int(seed))
    question = Question(simulated, int(paths), setting.centre, threshold)
    account = ScaleAccount(setting.n, setting.bound, rare, int(paths), rule)
    population = Population(setting, question, account, target, jobs, step)
    found = population.search(names)
    if not found[target]:
        raise Unreachable(
            f"No posterior path meets epsilon {target:g} at delta {rare:g} with n = {setting.n:,}. Raise epsilon, "
            "release fewer paths, or publish a kernel sum."
        )

    step("Price of the best")
    best = _nearest_to_the_field(found[target])
    best = replace(best, scale=_exact_scale(setting, best, target, rare, int(paths), rule))
    rivals = [each for each in _best_of_kernels(found[target]) if each.kernel != best.kernel][:RUNNERS_UP]
    free = _nearest_to_the_field(found[math.inf])
    frontier = {each: _nearest_to_the_field(tried) for each, tried in found.items() if tried and math.isfinite(each)}
    frontier[target] = best

    step("Forecast")
    scores = population.report([best, *rivals, free, *frontier.values()])
    report = _Report(population, threshold, scores)
    return PosteriorPlan(
        setting,
        threshold,
        target,
        rare,
        int(paths),
        rule,
        report.told(best),
        tuple(map(report.told, rivals)),
        report.told(free),
        {name: Spread.of(values) for name, values in report.trivial.items()},
        report.useful(best),
        report.not_useful_below(frontier),
        tuple((epsilon, report.told(path)) for epsilon, path in frontier.items()),
        public.describe(model),
        (
            "Scores are medians and quartiles over simulated worlds of the public prior; half of the worlds chose, the "
            "other half report.",
            *prior_notes(setting, public, int(worlds)),
            f"Paths are scored at {' x '.join(map(str, setting.few[0]))} places, to which records are moved.",
        ),
        int(worlds),
        int(seed),
        time.perf_counter() - start,
    )


def _exact_scale(setting: Setting, best: Tried, epsilon: float, delta: float, paths: int, rule: str) -> float:
    """The smallest scale with which the mechanism's own loss meets the target, under the rule that prices releases.

    For the account as published no smaller than that account asks for, either.
    """
    released = PosteriorMechanism.calibrated(
        n=setting.n,
        epsilon=epsilon,
        delta=delta,
        kernel=best.kernel,
        domain=setting.domain,
        response_range=setting.response_range,
        centre=setting.centre,
        coordinates=setting.coordinates,
        ridge=best.ridge,
        paths=paths,
        locations=setting.domain.grid(setting.grid),
        rule="closed-form" if rule == "published" else rule,
    )
    if rule != "published":
        return released.scale
    account: dict[str, Any] = {"n": setting.n, "ridge": best.ridge, "assumption": released.assumption, "paths": paths}
    account["least_kernel"] = released.least_kernel()
    return max(calibrated("scale", rule, epsilon=epsilon, delta=delta, **account)[0], released.scale)


def _nearest_to_the_field(tried: list[Tried]) -> Tried:
    """Of the best and what is as good, the smallest ridge: the larger, the more a path shrinks to a mere contrast."""
    return min((each for each in tried if each.merit >= tried[0].merit - TIE), key=lambda each: each.ridge)


def _best_of_kernels(tried: list[Tried]) -> list[Tried]:
    """One path of every kernel, best kernels first."""
    by_kernel: dict[Kernel, list[Tried]] = {}
    for each in tried:
        by_kernel.setdefault(each.kernel, []).append(each)
    return [_nearest_to_the_field(paths) for paths in by_kernel.values()]


@dataclass(frozen=True, eq=False)
class _Report:
    """What the worlds that did not choose say."""

    population: Population
    threshold: float | None
    scores: dict[Tried, dict[str, Values]]

    @cached_property
    def trivial(self) -> dict[str, Floats]:
        """Scores of the answers that need no data, world by world."""
        worlds = self.population.reporting.worlds
        fields = worlds.fields[:, worlds.mask]
        constant = {"best constant (RMSE)": np.sqrt(np.mean((fields - fields.mean()) ** 2, axis=1))}
        if self.threshold is None:
            return {"a constant": np.zeros(len(fields))} | constant
        truth = fields >= self.threshold
        everything = np.ones(truth.shape[1:], dtype=bool)
        return {"all places": overlap(everything, truth), "no places": overlap(~everything, truth)} | constant

    def told(self, path: Tried) -> PlannedPath:
        """The path with its scores."""
        choice = PathChoice(path.kernel, path.ridge, path.scale or None)
        measure = CORRELATION if self.threshold is None else IOU
        return PlannedPath(choice, path.merit, Quality.of(measure, self.scores[path]))

    def useful(self, path: Tried) -> bool:
        """By the printed rule."""
        values = self.scores[path]["together"].mean(axis=1)
        if self.threshold is None:
            return float(values.mean()) >= LEAST_CORRELATION
        best = max(("all places", "no places"), key=lambda name: float(self.trivial[name].mean()))
        gain = Spread.of(values - self.trivial[best])
        return useful_set(float(values.mean()), gain.mean, gain.se)

    def not_useful_below(self, frontier: dict[float, Tried]) -> float | None:
        """The epsilon from which on the best path of every epsilon is useful, refined with one path."""
        least, below = math.inf, 0.0
        for epsilon in sorted(frontier, reverse=True):
            if not self.useful(frontier[epsilon]):
                below = epsilon
                break
            least = epsilon
        rungs = self.population.epsilons
        if math.isinf(least):
            return math.inf
        if least == rungs[0]:
            return None
        # where no path meets the next epsilon down, that one is of no use either
        below = below or float(rungs[np.searchsorted(rungs, least) - 1])
        finer = np.geomspace(least, below, 6)[1:-1]
        tried = self.population.at(frontier[least], finer)
        self.scores.update(self.population.report(tried))
        for epsilon, path in zip(finer.tolist(), tried, strict=False):
            if not self.useful(path):
                break
            least = epsilon
        return least


def _check(n: int, dimension: int, paths: int, kernels: tuple[str, ...], rule: str, worlds: int) -> None:
    if isinstance(paths, bool) or int(paths) != paths or not 1 <= paths <= MOST_PATHS:
        raise ValueError(f"paths must be a whole number from 1 to {MOST_PATHS:,}; got {paths!r}.")
    if not kernels or set(kernels) - set(PLANNED_KERNELS):
        raise ValueError(f"kernels are names among {', '.join(PLANNED_KERNELS)}; got {', '.join(kernels) or 'none'}.")
    dense = [name for name in kernels if engine(kernel(name, 1.0), dimension).name == DenseEngine.name]
    if n > MOST_RECORDS and dense:
        other = (
            "On a line exponential, matern32 and matern52 do without one"
            if dimension == 1
            else "plan_map plans kernel sums and lattices for more"
        )
        raise ValueError(
            f"A posterior path of the kernel {dense[0]} needs a matrix of the records squared: n is at most "
            f"{MOST_RECORDS:,}; got {n:,}. {other}."
        )
    if rule not in PLANNED_RULES:
        raise ValueError(f"rule must be one of {', '.join(PLANNED_RULES)}; got {rule!r}.")
    if worlds < 20:
        raise ValueError(f"A plan needs at least 20 worlds; got {worlds!r}.")
