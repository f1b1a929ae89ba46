"""Figures stated about private local search beside per-record finite differences and other baselines."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.bayesopt_baselines import (
    METHODS,
    Method,
    Run,
    adaptive,
    as_in_the_paper,
    expected_improvement,
    finite_differences,
    gradient_descent,
    local_search,
    not_private,
    random_search,
    trust_region,
)
from benchmarks.bayesopt_comparison import LAST, THEIRS, against_differences, compared
from benchmarks.harness import Measured, claim
from discretion.bayesopt import TrustRegion
from studies.bayesopt_figures import bands
from studies.bayesopt_run import NO_NOISE, Task

Floats = NDArray[np.float64]


def beats_differences(task: str, runs: int, rate: float | None = None) -> Measured:
    """The losses of a trust region and of forward differences, and whether it is lower: see `Paired.significant`."""
    rows = compared(task, runs, {"trust region": trust_region, THEIRS: finite_differences}, rate=rate)
    found = against_differences(rows, "trust region")
    return Measured(f"{found}: {_listed(rows)}", found.significant)


def as_good(task: str, method: str, runs: int) -> Measured:
    """The same, and whether neither is lower in three runs of four."""
    rows = compared(task, runs, {method: METHODS[method], THEIRS: finite_differences})
    found = against_differences(rows, method)
    return Measured(f"{found}: {_listed(rows)}", runs <= 4 * found.better <= 3 * runs)


def _listed(rows: Mapping[str, Floats]) -> str:
    return "; ".join(f"{name} {bands(values)}, mean {values.mean():.4g}" for name, values in rows.items())


@claim(
    "bayesopt",
    "Draws, d = 10, mu = 1, 110 evaluations, 40 runs: trust region less differences at their best rate elsewhere",
    "lower in the mean, and in more runs than chance (5 %)",
    slow=True,
)
def gp_10_beats_differences() -> Measured:
    return beats_differences("gp-10", 40)


@claim(
    "bayesopt",
    "Draws, d = 2, mu = 1, 30 evaluations, 20 runs: trust region less differences at half that rate",
    "lower in the mean, and in more runs than chance (5 %)",
    slow=True,
)
def gp_2_beats_half_the_rate() -> Measured:
    return beats_differences("gp-2", 20, 0.5)


@claim(
    "bayesopt",
    "Draws, d = 5, mu = 1, 60 evaluations, 40 runs: trust region less differences at half that rate",
    "lower in the mean, and in more runs than chance (5 %)",
    slow=True,
)
def gp_5_beats_half_the_rate() -> Measured:
    return beats_differences("gp-5", 40, 0.5)


@claim(
    "bayesopt",
    "Draws, d = 10, mu = 1, 110 evaluations, 20 runs: trust region less differences at half that rate",
    "lower in the mean, and in more runs than chance (5 %)",
    slow=True,
)
def gp_10_beats_half_the_rate() -> Measured:
    return beats_differences("gp-10", 20, 0.5)


@claim(
    "bayesopt",
    "Kernel ridge, mu = 0.5, 144 evaluations, 20 runs: trust region less differences at a quarter of their best rate",
    "lower in the mean, and in more runs than chance (5 %)",
    slow=True,
)
def kernel_ridge_beats_a_quarter_of_the_rate() -> Measured:
    return beats_differences("kernel-ridge", 20, 0.7)


@claim(
    "bayesopt",
    "Draws with d = 5 (40 runs) and kernel ridge (20 runs): trust region less differences at their best rate",
    "no better: draws equal within two standard errors, differences lower on kernel ridge",
    slow=True,
)
def differences_at_their_best_rate() -> Measured:
    methods = {"trust region": trust_region, THEIRS: finite_differences}
    draws, ridge = (
        against_differences(compared(task, runs, methods), "trust region")
        for task, runs in (("gp-5", 40), ("kernel-ridge", 20))
    )
    return Measured(f"draws: {draws}; kernel ridge: {ridge}", abs(draws.mean) <= 2.0 * draws.error and ridge.mean > 0.0)


@claim(
    "bayesopt",
    "Lasso with ten scales, mu = 1, 24 evaluations, 40 runs: local search with 3 points a step and forward differences",
    "as good: neither lower in three runs of four",
    slow=True,
)
def lasso_scales_beside_differences() -> Measured:
    return as_good("lasso-scales", "local search", 40)


@claim(
    "bayesopt",
    "Group lasso, d = 10, mu = 1, 220 evaluations, 10 runs: 6 and 11 points a step and differences, without noise too",
    "with 6 no better than forward differences (5 %), with or without noise; with 11 within 5 % of them",
    slow=True,
)
def group_lasso_beside_differences() -> Measured:
    methods = {
        "6 points": local_search,
        "11 points": as_in_the_paper,
        "6 points, no noise": not_private,
        THEIRS: finite_differences,
        "differences, no noise": lambda task, seed: finite_differences(replace(task, mu=NO_NOISE), seed),
    }
    rows = compared("group-lasso-10", 10, methods)
    means = {name: float(values.mean()) for name, values in rows.items()}
    better = min(means[THEIRS], means[LAST])
    holds = means["6 points"] >= 0.95 * better
    holds = holds and means["6 points, no noise"] >= 0.95 * means["differences, no noise"]
    return Measured(_listed(rows), holds and abs(means["11 points"] / means[THEIRS] - 1.0) <= 0.05)


@claim(
    "bayesopt",
    "Support vector regression on house sales, d = 11, mu = 0.2, 180 evaluations, 5 runs: as in the paper, with 6 "
    "points a step, forward differences, paid random search",
    "as in the paper within 5 % of differences and half of the start's loss or less",
    slow=True,
)
def svr_houses_beside_differences() -> Measured:
    methods = {
        "as in the paper": as_in_the_paper,
        "6 points, trust region": trust_region,
        THEIRS: finite_differences,
        "random search, choice paid": random_search,
    }
    rows = compared("svr-houses", 5, methods)
    ours = float(rows["as in the paper"].mean())
    holds = abs(ours / rows[THEIRS].mean() - 1.0) <= 0.05 and ours <= 0.5 * rows["start"].mean()
    return Measured(_listed(rows), bool(holds))


@claim(
    "bayesopt",
    "Kernel ridge at equal mu = 0.5 and 144 evaluations, 10 runs: all baselines at rate 0.7",
    "as in the paper as good as forward differences (5 %), better than central, two-point and paid random search",
    slow=True,
)
def kernel_ridge_baselines() -> Measured:
    rows = compared("kernel-ridge", 10, METHODS, rate=0.7)
    means = {name: float(values.mean()) for name, values in rows.items()}
    ours = means["as in the paper"]
    worse = ("finite differences, central", "two points", "random search, choice paid")
    holds = ours <= 1.05 * means[THEIRS] and all(ours < means[name] for name in worse)
    return Measured(_listed(rows), holds)


@claim(
    "bayesopt",
    "Draws, d = 5, mu = 1, 60 evaluations, 10 runs, rate 0.5: all baselines, exact gradients, BoTorch if there",
    "local search within 0.2 of itself without noise; trust region below differences, two points and random search",
    slow=True,
)
def gp_5_baselines() -> Measured:
    methods = dict(METHODS) | {"gradient descent, the ceiling": gradient_descent}
    if importlib.util.find_spec("botorch") is not None:
        methods["BoTorch, not private"] = expected_improvement
    rows = compared("gp-5", 10, methods, rate=0.5)
    medians = {name: float(np.median(values)) for name, values in rows.items()}
    worse = (THEIRS, "finite differences, central", "two points", "random search, choice paid")
    holds = abs(medians["local search"] - medians["not private"]) <= 0.2
    holds = holds and all(medians["trust region"] < medians[name] for name in worse)
    return Measured(_listed(rows), holds)


@claim(
    "bayesopt",
    "Random search that pays for its choice beside local search: draws with d = 2, lasso with scales, 20 runs each",
    "lower median than the trust region on draws; lower mean than local search on the lasso: local search is local",
    slow=True,
)
def random_search_where_it_is_better() -> Measured:
    draws = compared("gp-2", 20, {"trust region": trust_region, "random search, choice paid": random_search})
    lasso = compared("lasso-scales", 20, {"local search": local_search, "random search, choice paid": random_search})
    holds = np.median(draws["random search, choice paid"]) < np.median(draws["trust region"])
    holds = holds and lasso["random search, choice paid"].mean() < lasso["local search"].mean()
    return Measured(f"draws: {_listed(draws)}; lasso: {_listed(lasso)}", bool(holds))


@claim(
    "bayesopt",
    "Trust region on draws, d = 10, 8 other samples: 11 fresh points a step, 4 with old ones used again, 4 without",
    "4 with old ones lowest, then 11 fresh ones, then differences, then 4 without old ones, in the mean",
    slow=True,
)
def what_the_trust_region_needs() -> Measured:
    methods = {
        "4 points, cache": trust_region,
        "11 points": lambda task, seed: local_search(task, seed, batch=11, cache=0, update=TrustRegion(1.0)),
        THEIRS: finite_differences,
        "4 points, no cache": lambda task, seed: local_search(task, seed, cache=0, update=TrustRegion(1.0)),
    }
    rows = compared("gp-10", 8, methods, first=1000)
    means = [float(rows[name].mean()) for name in methods]
    return Measured(_listed(rows), means == sorted(means))


@claim(
    "bayesopt",
    "Trust region on draws, d = 10, 8 other samples, as many points as tolerance 0.3, 0.1, 0.03 asks for: evaluations "
    "of 110, and loss",
    "at 0.03 at most 75 evaluations for a loss within 0.1 of that of differences after 110",
    slow=True,
)
def adaptive_batches() -> Measured:
    methods: dict[str, Method] = {THEIRS: finite_differences}
    used: dict[str, list[int]] = {}
    for tolerance, steps in ((0.3, 27), (0.1, 20), (0.03, 14)):

        def run(task: Task, seed: int, tolerance: float = tolerance, steps: int = steps) -> Run:
            found = adaptive(task, seed, tolerance, steps)
            used.setdefault(f"{tolerance:g}", []).append(int(found.evaluations[-1]))
            return found

        methods[f"{tolerance:g}"] = run
    rows = compared("gp-10", 8, methods, first=1000)
    evaluations = {name: float(np.mean(counts)) for name, counts in used.items()}
    better = min(rows[THEIRS].mean(), rows[LAST].mean())
    text = "; ".join(f"{name}: {count:.0f} evaluations" for name, count in evaluations.items())
    holds = evaluations["0.03"] <= 75 and rows["0.03"].mean() <= better + 0.1
    return Measured(f"{text}; {_listed(rows)}", bool(holds))


@claim(
    "bayesopt",
    "Group lasso, d = 20, mu = 1, 420 evaluations, 10 runs: as in the paper, 11 points a step, forward differences",
    "as in the paper within 5 % of differences; 11 points lower in at most half of the runs",
    slow=True,
)
def group_lasso_20_beside_differences() -> Measured:
    methods = {"as in the paper": as_in_the_paper, "local search": local_search, THEIRS: finite_differences}
    rows = compared("group-lasso-20", 10, methods)
    holds = abs(rows["as in the paper"].mean() / rows[THEIRS].mean() - 1.0) <= 0.05
    holds = holds and 2 * against_differences(rows, "local search").better <= 10
    return Measured(_listed(rows), bool(holds))
