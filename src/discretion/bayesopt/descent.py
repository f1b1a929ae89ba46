"""What becomes of a released gradient: update rules, schedules of the budget, averages. All of it is free of charge."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.design import Bounds
from discretion.bayesopt.released import ReleasedGradients

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "Constant",
    "Late",
    "Momentum",
    "Rule",
    "Schedule",
    "TrustRegion",
    "Update",
    "default_steps",
    "tail_average",
]

Floats = NDArray[np.float64]
State = tuple[Floats, ...]

LEARN_FROM = 3
"""Releases before a kernel is fitted to them."""


@dataclass(frozen=True)
class Update(ABC):
    """How theta moves after a release.

    Args:
        rate: step size, positive.
    """

    rate: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be positive and finite; got {self.rate!r}.")
        for name in ("beta", "beta2"):
            value = getattr(self, name, 0.0)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1); got {value!r}.")

    @abstractmethod
    def moved(
        self,
        theta: Floats,
        gradient: Floats,
        state: State,
        bounds: Bounds,
        surrogate: Callable[[], ReleasedGradients],
    ) -> tuple[Floats, State]:
        """The next theta, inside the box, and the next state; the state is () at first.

        `surrogate` gives the process of all releases so far, that of `gradient` included.
        """

    def output(self, iterates: Sequence[Floats]) -> Floats:
        """What is released of theta_1, ..., theta_T."""
        return tail_average(iterates)

    def describe(self) -> dict[str, Any]:
        """The rule as JSON data."""
        return {"rule": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Rule(Update):
    """A rule that turns the gradients, one after the other, into steps."""

    @abstractmethod
    def step(self, gradient: Floats, state: State) -> tuple[Floats, State]:
        """What is added to theta, and the next state."""

    def moved(
        self,
        theta: Floats,
        gradient: Floats,
        state: State,
        bounds: Bounds,
        surrogate: Callable[[], ReleasedGradients],
    ) -> tuple[Floats, State]:
        move, state = self.step(gradient, state)
        return np.clip(theta + move, *bounds), state


@dataclass(frozen=True)
class SGD(Rule):
    """-rate g. With rate 1/L where the smoothness L is known; on a curvature h the noise sigma of the gradient leaves a
    spread of variance rate sigma^2 / (h (2 - rate h)) in each coordinate."""

    def step(self, gradient: Floats, state: State) -> tuple[Floats, State]:
        return -self.rate * gradient, ()


@dataclass(frozen=True)
class Momentum(Rule):
    """Heavy ball: v <- beta v + g, step -rate v."""

    beta: float = 0.9

    def step(self, gradient: Floats, state: State) -> tuple[Floats, State]:
        v = gradient if not state else self.beta * state[0] + gradient
        return -self.rate * v, (v,)


@dataclass(frozen=True)
class AdaGrad(Rule):
    """-rate g / sqrt(sum of g^2), coordinate by coordinate (Duchi, Hazan and Singer 2011)."""

    def step(self, gradient: Floats, state: State) -> tuple[Floats, State]:
        total = gradient**2 + (state[0] if state else 0.0)
        return -self.rate * gradient / (np.sqrt(total) + 1e-12), (total,)


@dataclass(frozen=True)
class Adam(Rule):
    """Adam (Kingma and Ba 2015): means m of g and v of g^2, corrected for their start; step -rate m / sqrt(v).

    `beta` and `beta2`, in [0, 1), are the shares that the means keep of their last value.
    """

    beta: float = 0.9
    beta2: float = 0.999

    def step(self, gradient: Floats, state: State) -> tuple[Floats, State]:
        m, v, t = state or (np.zeros_like(gradient), np.zeros_like(gradient), np.zeros(()))
        t = t + 1.0
        m = self.beta * m + (1.0 - self.beta) * gradient
        v = self.beta2 * v + (1.0 - self.beta2) * gradient**2
        unbiased = m / (1.0 - self.beta**t), v / (1.0 - self.beta2**t)
        return -self.rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-12), (m, v, t)


@dataclass(frozen=True)
class TrustRegion(Update):
    """To where the surrogate's mean loss is least within `rate` of theta along each axis: no step size to tune.

    The surrogate is the Gaussian process of all releases, so that curvature seen earlier shortens or lengthens the step
    and noise is averaged over neighbouring steps. Its kernel is that of the search; from the third release on its
    length scale and variance are fitted to the releases, anew whenever there are half as many again. About one length
    scale is a good rate.
    """

    def moved(
        self,
        theta: Floats,
        gradient: Floats,
        state: State,
        bounds: Bounds,
        surrogate: Callable[[], ReleasedGradients],
    ) -> tuple[Floats, State]:
        known = surrogate()
        seen = len(known.thetas)
        if seen >= LEARN_FROM and (not state or seen >= 1.5 * state[0][0]):
            fitted = known.fitted()
            longer = fitted.kernel.scales(theta.size)[0] / known.kernel.scales(theta.size)[0]
            state = (np.array([seen, longer, fitted.variance]),)
        else:
            fitted = known.scaled(float(state[0][1]), float(state[0][2])) if state else known.matched()
        near = np.maximum(bounds[0], theta - self.rate), np.minimum(bounds[1], theta + self.rate)
        return fitted.minimum(near, theta), state

    def output(self, iterates: Sequence[Floats]) -> Floats:
        """The last: it rests on all releases already."""
        return iterates[-1]


class Schedule(ABC):
    """How mu^2 is divided among the steps, fixed in advance."""

    @abstractmethod
    def shares(self, steps: int) -> Floats:
        """Positive shares of mu^2, one for each step, that sum to 1."""

    def describe(self) -> dict[str, Any]:
        """The schedule as JSON data."""
        return {"schedule": type(self).__name__.lower(), **vars(self)}


@dataclass(frozen=True)
class Constant(Schedule):
    """The same noise in every step, mu / sqrt(T) each: the best for the average of squared gradients."""

    def shares(self, steps: int) -> Floats:
        return np.full(steps, 1.0 / steps)


@dataclass(frozen=True)
class Late(Schedule):
    """More of the budget later, mu_t^2 ~ (1 - contraction)^((T - 1 - t)/2), for strongly convex objectives.

    It minimises the discounted noise sum_t (1 - c)^(T-1-t) sigma_t^2 at fixed sum of mu_t^2 (Lagrange); c is rate times
    the strong convexity, at most 1/L times it. ValueError for a contraction outside [0, 1).
    """

    contraction: float

    def __post_init__(self) -> None:
        if not 0 <= self.contraction < 1:
            raise ValueError(f"contraction must lie in [0, 1); got {self.contraction!r}.")

    def shares(self, steps: int) -> Floats:
        weights = (1.0 - self.contraction) ** ((steps - 1.0 - np.arange(steps)) / 2.0)
        return weights / weights.sum()


def tail_average(iterates: Sequence[Floats]) -> Floats:
    """The mean of the last half of theta_1, ..., theta_T: less noise than the last iterate, and as free."""
    T = len(iterates)
    return np.mean(iterates[T // 2 :], axis=0)


def default_steps(n: int, mu: float, clip: float, dimension: int, smoothness: float, gap: float, most: int) -> int:
    """T* = n mu sqrt(L F_0 / (2 d)) / B, at least 1 and at most `most`, from public guesses of L and F_0 = f - min f.

    `clip` is B, `dimension` d, `smoothness` L, the Lipschitz constant of the gradient, and `gap` F_0.

    It minimises the bound 2 L F_0 / T + 4 d B^2 T / (n mu)^2 of the mean squared gradient at rate 1/L. Proof:
    `docs/proofs/gradient-bias.md`, Theorem 3.
    """
    best = n * mu * math.sqrt(smoothness * gap / (2.0 * dimension)) / clip
    return max(1, min(most, math.floor(best + 0.5)))
