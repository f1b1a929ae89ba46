"""What else minimises a mean over private records: methods at equal mu and equal evaluations.

    local search          fewer than d + 1 points a step and 3 d old ones used again; the rule of the task, as below
    trust region          the same with steps to the minimiser of the surrogate nearby
    as in the paper       d + 1 points a step, none used again
    finite differences    each record's forward (d + 1) or central (2 d) differences, clipped
    two points            each record's difference along one random direction (as in DPZero, Zhang et al. 2024), clipped
    random search         random points, and a choice among them by the exponential mechanism at the same mu
    gradient descent      each record's exact gradient, clipped, for as many steps as forward differences: the ceiling
    not private           the local search without noise; Gaussian-process expected improvement of BoTorch

Every run is scored by the mean loss of what it releases on records that no method saw.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from discretion.bayesopt import CandidateChoice, Study, TrustRegion, gradient_noise, mu_of_pure
from discretion.bayesopt.descent import Rule, tail_average
from discretion.gp import RBF
from discretion.privacy import Neighbours, SeededRandomness
from discretion.privacy.clipping import clip
from studies.bayesopt_run import NO_NOISE, Task, searched

Floats = NDArray[np.float64]

WIDTH = 0.1  # of the differences, in scaled units


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        evaluations: made when each iterate was reached, (k,).
        thetas: the iterates, (k, d).
        released: what is given out at the end, (d,).
    """

    evaluations: NDArray[np.int64]
    thetas: Floats
    released: Floats

    def curve(self, task: Task, at: NDArray[np.int64]) -> Floats:
        """Losses on fresh records after so many evaluations; at the end, of what is released."""
        thetas = np.vstack([task.start, self.thetas])
        which = np.searchsorted(self.evaluations, at, side="right")
        losses = {place: task.fresh(thetas[place]) for place in np.unique(which)}
        found = np.array([losses[place] for place in which])
        found[-1] = task.fresh(self.released)
        return found


Method = Callable[[Task, int], Run]


def local_search(task: Task, seed: int, **changes: Any) -> Run:
    """Of few points a step, with 3 d old ones used again."""
    d = task.space.size
    batch = changes.pop("batch", task.few)
    settings = {"batch": batch, "steps": max(1, task.evaluations // batch), "cache": 3 * d, "kernel": RBF(task.length)}
    study = searched(task.search(**(settings | changes), seed=seed), task.n, task.losses, seed)
    found = study.result()
    return Run(np.cumsum(found.evaluations), found.thetas[1:], task.space.theta(found.parameters))


def trust_region(task: Task, seed: int) -> Run:
    """The same within a trust region of one length scale."""
    return local_search(task, seed, update=TrustRegion(1.0))


def adaptive(task: Task, seed: int, tolerance: float, steps: int) -> Run:
    """A trust region on as few points as bring the trace to `tolerance` of its prior value, till evaluations end."""
    settings = {"batch": task.space.size + 1, "tolerance": tolerance, "steps": steps, "cache": 3 * task.space.size}
    search = task.search(**settings, update=TrustRegion(1.0), seed=seed)
    study = Study(search, n=task.n, randomness=SeededRandomness(seed))
    while not study.done:
        Z = study.asked
        if study.evaluations + len(Z) > task.evaluations:
            study.stop()
        else:
            study.tell(np.column_stack([task.losses(z) for z in Z]) if len(Z) else np.empty((task.n, 0)))
    found = study.result()
    return Run(np.cumsum(found.evaluations), found.thetas[1:], task.space.theta(found.parameters))


def as_in_the_paper(task: Task, seed: int) -> Run:
    """d + 1 points a step, none used again."""
    return local_search(task, seed, batch=task.space.size + 1, cache=0, kernel=RBF(1.0))


def not_private(task: Task, seed: int) -> Run:
    """The local search without noise."""
    return local_search(task, seed, mu=NO_NOISE)


def descended(task: Task, cost: int, update: Rule, gradient: Callable[[Floats, int], Floats], steps: int) -> Run:
    """The average of the last half of a path along noisy gradients, each of `cost` evaluations."""
    theta, state, path = task.start, (), []
    for step in range(steps):
        move, state = update.step(gradient(theta, step), state)
        theta = np.clip(theta + move, *task.space.bounds)
        path.append(theta)
    return Run(cost * np.arange(1, steps + 1), np.array(path), tail_average(path))


def finite_differences(task: Task, seed: int, *, central: bool = False, update: Rule | None = None) -> Run:
    """Per-record differences along the axes, away from the nearer wall if forward."""
    d, randomness = task.start.size, SeededRandomness(seed)
    cost = 2 * d if central else d + 1
    steps = max(1, task.evaluations // cost)
    noise = gradient_noise(mu=task.mu, clip=task.clip, n=task.n, steps=steps)
    low, high = task.space.bounds

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
        mean = clip(np.column_stack(columns), task.clip).mean(axis=0)
        return mean + noise * randomness.standard_normal(d)

    return descended(task, cost, task.update if update is None else update, gradient, steps)


def central_differences(task: Task, seed: int) -> Run:
    """Per-record central differences."""
    return finite_differences(task, seed, central=True)


def two_points(task: Task, seed: int) -> Run:
    """Per-record differences along one random direction a step, clipped to the norm of a coordinate."""
    d, randomness, rng = task.start.size, SeededRandomness(seed), np.random.default_rng(seed)
    steps, bound = max(1, task.evaluations // 2), task.clip / math.sqrt(d)
    noise = gradient_noise(mu=task.mu, clip=bound, n=task.n, steps=steps)

    def gradient(theta: Floats, step: int) -> Floats:
        v = rng.standard_normal(d)
        v /= np.linalg.norm(v)
        ahead, behind = (np.clip(theta + sign * WIDTH * v, *task.space.bounds) for sign in (1.0, -1.0))
        slopes = (task.losses(ahead) - task.losses(behind)) / (2.0 * WIDTH)
        mean = clip(slopes[:, None], bound).mean() + noise * float(randomness.standard_normal(()))
        return d * mean * v

    return descended(task, 2, task.update, gradient, steps)


def gradient_descent(task: Task, seed: int) -> Run:
    """Per-record exact gradients, where there are any, in as many steps as forward differences make."""
    gradients = task.gradients
    if gradients is None:
        raise ValueError("The losses of this task have no gradients at hand.")
    d, randomness = task.start.size, SeededRandomness(seed)
    steps = max(1, task.evaluations // (d + 1))
    noise = gradient_noise(mu=task.mu, clip=task.clip, n=task.n, steps=steps)

    def gradient(theta: Floats, step: int) -> Floats:
        return clip(gradients(theta), task.clip).mean(axis=0) + noise * randomness.standard_normal(d)

    return descended(task, d + 1, task.update, gradient, steps)


def random_search(task: Task, seed: int) -> Run:
    """A paid choice among random points, at an epsilon whose mu is that of the task."""
    rng = np.random.default_rng([7, seed])
    points = rng.uniform(*task.space.bounds, (task.evaluations, task.start.size))
    epsilon = float(brentq(lambda e: mu_of_pure(e) - task.mu, 1e-6, 50.0))  # pyright: ignore[reportArgumentType]
    places = tuple({"place": j} for j in range(len(points)))
    low, high = task.loss_range
    choice = CandidateChoice(places, high - low, epsilon)
    assert choice.neighbours is Neighbours.REPLACE
    losses = np.column_stack([task.losses(point) for point in points]) - low
    chosen = points[choice.run(losses, SeededRandomness(seed)).place]
    return Run(np.array([task.evaluations]), chosen[None], chosen)


def expected_improvement(task: Task, seed: int) -> Run:
    """Not private. Gaussian-process expected improvement (BoTorch) on the mean losses, from the start and 2 d points.

    Raises:
        ImportError: BoTorch is not installed.
    """
    import torch  # pyright: ignore[reportMissingImports]
    from botorch.acquisition import LogExpectedImprovement  # pyright: ignore[reportMissingImports]
    from botorch.fit import fit_gpytorch_mll  # pyright: ignore[reportMissingImports]
    from botorch.models import SingleTaskGP  # pyright: ignore[reportMissingImports]
    from botorch.models.transforms import Standardize  # pyright: ignore[reportMissingImports]
    from botorch.optim import optimize_acqf  # pyright: ignore[reportMissingImports]
    from gpytorch.mlls import ExactMarginalLogLikelihood  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    low, high = task.space.bounds
    d, rng = low.size, np.random.default_rng([8, seed])
    first = min(2 * d, task.evaluations - 1)
    X = np.vstack([task.start, rng.uniform(low, high, (first, d))])
    y = np.array([task.losses(x).mean() for x in X])
    unit = torch.stack([torch.zeros(d), torch.ones(d)]).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(X) < task.evaluations:
            Y = torch.tensor(-y[:, None])
            model = SingleTaskGP(torch.tensor((X - low) / (high - low)), Y, outcome_transform=Standardize(1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            better = LogExpectedImprovement(model, best_f=float(-y.min()))
            found, _ = optimize_acqf(better, unit, q=1, num_restarts=2, raw_samples=32, options={"maxiter": 30})
            X = np.vstack([X, low + (high - low) * found.numpy()])
            y = np.append(y, task.losses(X[-1]).mean())
    best = np.minimum.accumulate(y)
    places = np.array([int(np.argmax(y == each)) for each in best])
    return Run(np.arange(1, len(X) + 1), X[places], X[places[-1]])


METHODS: dict[str, Method] = {
    "local search": local_search,
    "trust region": trust_region,
    "as in the paper": as_in_the_paper,
    "finite differences, forward": finite_differences,
    "finite differences, central": central_differences,
    "two points": two_points,
    "random search, choice paid": random_search,
    "not private": not_private,
}
