"""Private local search beside what else minimises a mean over private records: equal mu, equal evaluations.

    finite differences    each record's forward (d + 1) or central (2 d) differences, clipped; the same updates
    two points            each record's difference along one random direction (as in DPZero, Zhang et al. 2024), clipped
    random search         random points, and a choice among them by the exponential mechanism at the same mu

``python -m benchmarks.bayesopt_baselines`` prints the table for kernel ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

from discretion.bayesopt import AdaGrad, CandidateChoice, LocalSearch, gradient_noise, mu_of_pure
from discretion.bayesopt.clipping import clip
from discretion.bayesopt.descent import Update, tail_average
from discretion.gp import RBF
from discretion.privacy import Neighbours, SeededRandomness
from studies.bayesopt_kernel_ridge import BATCH, CLIP, MU, RATE, SPACE, STEPS, N, RidgeRecords
from studies.bayesopt_run import band, searched

Floats = NDArray[np.float64]
Losses = Callable[[Floats], Floats]

WIDTH = 0.1  # of the differences, in scaled units


@dataclass(frozen=True, eq=False)
class Task:
    """Losses of n records at a scaled theta, in a box."""

    losses: Losses
    n: int
    bounds: tuple[Floats, Floats]
    start: Floats
    mu: float
    evaluations: int
    largest_loss: float


def descended(task: Task, steps: int, update: Update, gradient: Callable[[Floats, int], Floats]) -> Floats:
    """The average of the last half of a path along noisy gradients."""
    theta, state, path = task.start, (), []
    for step in range(steps):
        move, state = update.step(gradient(theta, step), state)
        theta = np.clip(theta + move, *task.bounds)
        path.append(theta)
    return tail_average(path)


def finite_differences(task: Task, bound: float, update: Update, seed: int, *, central: bool) -> Floats:
    """Per-record differences along the axes, away from the nearer wall if forward."""
    d, randomness = task.start.size, SeededRandomness(seed)
    steps = task.evaluations // (2 * d if central else d + 1)
    noise = gradient_noise(mu=task.mu, clip=bound, n=task.n, steps=steps)
    low, high = task.bounds

    def gradient(theta: Floats, step: int) -> Floats:
        inward = np.where(high - theta >= theta - low, WIDTH, -WIDTH)
        ahead = np.minimum(theta + WIDTH, high) if central else theta + inward
        behind = np.maximum(theta - WIDTH, low) if central else theta
        shared = None if central else task.losses(theta)
        columns = []
        for j in range(d):
            one, two = theta.copy(), theta.copy()
            one[j], two[j] = ahead[j], behind[j]
            back = task.losses(two) if shared is None else shared
            columns.append((task.losses(one) - back) / (ahead[j] - behind[j]))
        mean = clip(np.column_stack(columns), bound).mean(axis=0)
        return mean + noise * randomness.standard_normal(d)

    return descended(task, steps, update, gradient)


def two_points(task: Task, bound: float, update: Update, seed: int) -> Floats:
    """Per-record differences along one random direction a step."""
    d, randomness, rng = task.start.size, SeededRandomness(seed), np.random.default_rng(seed)
    steps = task.evaluations // 2
    noise = gradient_noise(mu=task.mu, clip=bound, n=task.n, steps=steps)

    def gradient(theta: Floats, step: int) -> Floats:
        v = rng.standard_normal(d)
        v /= np.linalg.norm(v)
        ahead, behind = (np.clip(theta + sign * WIDTH * v, *task.bounds) for sign in (1.0, -1.0))
        slopes = (task.losses(ahead) - task.losses(behind)) / (2.0 * WIDTH)
        mean = clip(slopes[:, None], bound).mean() + noise * float(randomness.standard_normal(()))
        return d * mean * v

    return descended(task, steps, update, gradient)


def random_search(task: Task, seed: int) -> Floats:
    """A paid choice among random points, at an epsilon whose mu is that of the task."""
    rng = np.random.default_rng([7, seed])
    points = rng.uniform(*task.bounds, (task.evaluations, task.start.size))
    epsilon = float(brentq(lambda e: mu_of_pure(e) - task.mu, 1e-6, 50.0))  # pyright: ignore[reportArgumentType]
    choice = CandidateChoice(tuple({"place": j} for j in range(len(points))), task.largest_loss, epsilon)
    assert choice.neighbours is Neighbours.REPLACE
    losses = np.column_stack([task.losses(point) for point in points])
    return points[choice.run(losses, SeededRandomness(seed)).place]


def ridge_table(runs: int = 10) -> dict[str, Floats]:
    """Losses on fresh records of kernel ridge regression, by method, one of each run."""
    rows: dict[str, list[float]] = {}
    for seed in range(runs):
        records = RidgeRecords(seed)
        task = Task(records.losses, N, SPACE.bounds, np.zeros(SPACE.size), MU, STEPS * BATCH, 8.0)
        search = LocalSearch(SPACE, mu=MU, steps=STEPS, clip=CLIP, cache=0, kernel=RBF(1.0), update=AdaGrad(RATE))
        path = searched(search, N, records.losses, seed).result()
        rule = AdaGrad(RATE)
        found = {
            "local search": SPACE.theta(path.parameters),
            "finite differences, forward": finite_differences(task, CLIP, rule, seed, central=False),
            "finite differences, central": finite_differences(task, CLIP, rule, seed, central=True),
            "two points": two_points(task, CLIP / SPACE.size**0.5, rule, seed),
            "random search, choice paid": random_search(task, seed),
        }
        for name, theta in found.items():
            rows.setdefault(name, []).append(records.fresh(theta))
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    """Print the table."""
    table = Table("method", f"loss on fresh records, mu = {MU:g}, {STEPS * BATCH} evaluations")
    for name, values in ridge_table().items():
        table.add_row(name, band(values))
    Console().print(table)


if __name__ == "__main__":
    main()
