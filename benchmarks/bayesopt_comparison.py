"""Private local search and per-record finite differences, task by task: equal mu, equal evaluations, paired runs.

``python -m benchmarks.bayesopt_comparison [TASK ...] [--runs R] [--first S] [--rate R] [--all] [--out FOLDER]``

prints, and with ``--out`` writes, the losses at the end. Settings of all methods, the rate of differences too, were
chosen on runs from 1000 on; the tables are of runs from 0 on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binomtest

from benchmarks.bayesopt_baselines import (
    METHODS,
    Method,
    expected_improvement,
    finite_differences,
    gradient_descent,
    local_search,
    trust_region,
)
from discretion.bayesopt import AdaGrad
from studies.bayesopt_figures import bands, write_table
from studies.bayesopt_gp_samples import gp_sample
from studies.bayesopt_group_lasso import group_lasso
from studies.bayesopt_kernel_ridge import kernel_ridge
from studies.bayesopt_lasso_scales import lasso_scales
from studies.bayesopt_run import Task
from studies.bayesopt_svr import svr_houses

Floats = NDArray[np.float64]

TASKS: dict[str, Callable[[int], Task]] = {
    "group-lasso-2": partial(group_lasso, d=2),
    "group-lasso-10": partial(group_lasso, d=10),
    "group-lasso-20": partial(group_lasso, d=20),
    "lasso-scales": lasso_scales,
    "gp-2": partial(gp_sample, d=2),
    "gp-5": partial(gp_sample, d=5),
    "gp-10": partial(gp_sample, d=10),
    "kernel-ridge": kernel_ridge,
    "svr-houses": svr_houses,
}

OURS, THEIRS, LAST = "trust region", "finite differences, forward", "finite differences, forward, last iterate"
PAIR: dict[str, Method] = {OURS: trust_region, "local search": local_search, THEIRS: finite_differences}


@dataclass(frozen=True)
class Paired:
    """The mean of paired differences and its standard error, and how many of the runs were better.

    Where two runs end in different valleys their difference is many times the usual one: the mean is then that of a
    few runs, and how often a method is better says more.
    """

    mean: float
    error: float
    better: int
    runs: int

    def __str__(self) -> str:
        return (
            f"lower in {self.better} of {self.runs} (p = {self.chance:.1g}); mean difference {self.mean:+.2g}, "
            f"standard error {self.error:.1g}"
        )

    @property
    def chance(self) -> float:
        """That a fair coin says so, or more so either way: the sign test."""
        return float(binomtest(self.better, self.runs).pvalue)

    @property
    def significant(self) -> bool:
        """Lower in more runs than a coin would say, at 5 %, and in the mean."""
        return self.mean < 0.0 and 2 * self.better > self.runs and self.chance < 0.05


def paired(ours: Floats, theirs: Floats) -> Paired:
    """Of losses of the same runs."""
    difference = ours - theirs
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return Paired(float(difference.mean()), error, int(np.count_nonzero(difference < 0.0)), len(difference))


def compared(
    name: str, runs: int, methods: Mapping[str, Method], *, first: int = 0, rate: float | None = None
) -> dict[str, Floats]:
    """Losses on fresh records of what each method releases, one of each run; `rate` is AdaGrad's if not the task's.

    Differences are also scored by their last iterate, `LAST`: the better of the two is what is to be beaten.
    """
    rows: dict[str, list[float]] = {}
    for seed in range(first, first + runs):
        task = TASKS[name](seed)
        task = task if rate is None else replace(task, update=AdaGrad(rate))
        rows.setdefault("start", []).append(task.fresh(task.start))
        for method, run in methods.items():
            found = run(task, seed)
            rows.setdefault(method, []).append(task.fresh(found.released))
            if method == THEIRS:
                rows.setdefault(LAST, []).append(task.fresh(found.thetas[-1]))
    return {method: np.array(values) for method, values in rows.items()}


def against_differences(rows: Mapping[str, Floats], method: str) -> Paired:
    """The paired differences of a method and of forward differences, by their average or last iterate, as is lower."""
    return paired(rows[method], min(rows[THEIRS], rows[LAST], key=np.mean))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bayesopt_comparison", description="Compare.")
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--rate", type=float, help="of AdaGrad, if not the task's")
    parser.add_argument("--all", action="store_true", help="every baseline, with BoTorch where it is installed")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.tasks:
        methods = dict(METHODS if given.all else PAIR)
        task = TASKS[name](given.first)
        if given.all and task.gradients is not None:
            methods["gradient descent, the ceiling"] = gradient_descent
        if given.all and task.evaluations <= 60:
            methods["BoTorch, not private"] = expected_improvement
        rows = compared(name, given.runs, methods, first=given.first, rate=given.rate)
        console, title = Console(), f"{name}: mu = {task.mu:g}, {task.evaluations} evaluations"
        if given.out is None:
            console.print(title, *(f"  {method}: {bands(values)}" for method, values in rows.items()), sep="\n")
        else:
            given.out.mkdir(parents=True, exist_ok=True)
            write_table(given.out / f"{name}.csv", {(name, method): values for method, values in rows.items()})
        for method in methods:
            if method != THEIRS:
                console.print(f"  {method}, less forward differences: {against_differences(rows, method)}")


if __name__ == "__main__":
    main()
