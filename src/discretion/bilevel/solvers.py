"""Inner solvers that certify what they found by the length of the inner gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import PublicError

__all__ = ["InnerNotCertified", "InnerSolution", "InnerSolver", "conjugate_gradients", "descend", "newton"]

Floats = NDArray[np.float64]

_STEPS = 200


class InnerNotCertified(PublicError):
    """The inner solver did not reach the public accuracy: the constants are wrong, or the solver is not up to it.

    That it happened is an output that no guarantee covers.
    """


@dataclass(frozen=True)
class InnerSolution:
    """PRIVATE. An inner solution, with the certificate of a solver that is believed (those of the verified families).

    Attributes:
        y: array (d_y,).
        gradient_norm: length of the inner gradient there, rounding included: |y - y(x)| <= gradient_norm / mu_g.
        certified: whether that is within what was asked for.
    """

    y: Floats
    gradient_norm: float = math.inf
    certified: bool = False

    def __repr__(self) -> str:
        return "InnerSolution(PRIVATE)"


class InnerSolver(Protocol):
    """Minimises the inner objective of `problem` at x to a gradient of length `tolerance`."""

    def __call__(self, problem: Any, x: Floats, records: Any, tolerance: float, start: Floats) -> InnerSolution: ...


def conjugate_gradients(
    multiply: Callable[[Floats], Floats], b: Floats, tolerance: float, most: int | None = None
) -> Floats:
    """v with |A v - b| <= tolerance for a positive definite A given by its products.

    Whether it got there is for the caller to see: at most `most` products (10 d + 50) are made.
    """
    v, r = np.zeros(len(b)), b.copy()
    p, square = r.copy(), float(r @ r)
    for _ in range(10 * len(b) + 50 if most is None else most):
        if math.sqrt(square) <= 0.5 * tolerance:
            break
        Ap = multiply(p)
        step = square / float(p @ Ap)
        v, r = v + step * p, r - step * Ap
        last, square = square, float(r @ r)
        p = r + (square / last) * p
    return v


def newton(problem: Any, x: Floats, records: Any, tolerance: float, start: Floats) -> InnerSolution:
    """Newton's method with conjugate gradients, for a strongly convex inner objective."""

    def gradient(y: Floats) -> Floats:
        return problem.inner_gradient(x, y, records)

    def direction(y: Floats, downhill: Floats) -> Floats:
        length = float(np.linalg.norm(downhill))
        accuracy = min(0.1, math.sqrt(length)) * length
        return conjugate_gradients(lambda v: problem.inner_hvp(x, y, v, records), downhill, accuracy)

    return descend(gradient, direction, start, tolerance, 0.0)


def descend(
    gradient: Callable[[Floats], Floats],
    direction: Callable[[Floats, Floats], Floats],
    start: Floats,
    tolerance: float,
    rounding: float,
) -> InnerSolution:
    """Steps along `direction(y, -gradient)` until the gradient, `rounding` added, is at most `tolerance` long.

    The whole step is taken if it halves the gradient; else a shorter or longer one, at which the slope is still
    downhill and at most half as steep: told by gradients alone, which rounding spoils far later than it does values.
    """
    y, here = start, gradient(start)
    for _ in range(_STEPS):
        length = float(np.linalg.norm(here))
        if not length + rounding > tolerance:
            break
        p = direction(y, -here)
        slope, low, high, t = float(here @ p), 0.0, math.inf, 1.0
        ahead = gradient(y + p)
        for _ in range(60):
            along = float(ahead @ p)
            if 0.5 * slope <= along <= 0.0 or (t == 1.0 and np.linalg.norm(ahead) <= 0.5 * length):
                break
            low, high = (t, high) if along < 0 else (low, t)
            t = 2.0 * t if high == math.inf else 0.5 * (low + high)
            ahead = gradient(y + t * p)
        y, here = y + t * p, ahead
    length = float(np.linalg.norm(here)) + rounding
    return InnerSolution(y, length, length <= tolerance)
