"""Inner solvers that need gradients alone: L-BFGS, and gradient descent with the step count of its theory."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.solvers import InnerSolution, descend

__all__ = ["gradient_descent", "lbfgs"]

Floats = NDArray[np.float64]

_MEMORY = 20


def lbfgs(problem: Any, x: Floats, records: Any, tolerance: float, start: Floats) -> InnerSolution:
    """The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno (Nocedal and Wright 2006, Algorithm 7.4)."""
    pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=_MEMORY)
    last: list[Floats] = []

    def direction(y: Floats, downhill: Floats) -> Floats:
        if last:
            s, t = y - last[0], last[1] - downhill
            if float(s @ t) > 0.0:
                pairs.append((s, t, 1.0 / float(s @ t)))
        last[:] = [y, downhill]
        q, weights = downhill.copy(), []
        for s, t, r in reversed(pairs):
            weights.append(r * float(s @ q))
            q -= weights[-1] * t
        if pairs:
            s, t, _ = pairs[-1]
            q *= float(s @ t) / float(t @ t)
        for (s, t, r), weight in zip(pairs, reversed(weights), strict=True):
            q += (weight - r * float(t @ q)) * s
        return q

    return descend(lambda y: problem.inner_gradient(x, y, records), direction, start, tolerance, 0.0)


def gradient_descent(problem: Any, x: Floats, records: Any, tolerance: float, start: Floats) -> InnerSolution:
    """Steps 2/(mu_g + b_gyy) times the gradient: each divides the distance by (kappa + 1)/(kappa - 1).

    From distance R, N = ceil(log(kappa R / alpha) / log((kappa + 1)/(kappa - 1))) of them reach a gradient of
    mu_g alpha, alpha = tolerance / mu_g (Nesterov 2004, Theorem 2.1.15). R = L_gy / mu_g for a start in Y: N is public,
    and a gradient that is longer after N steps shows that the constants are wrong.
    """
    c = problem.constants(x)
    mu, b = c.get("mu_g"), c.get("b_gyy")
    kappa, alpha, R = max(b / mu, 1.0), tolerance / mu, c.get("L_gy") / mu
    ratio = math.log((kappa + 1.0) / (kappa - 1.0)) if kappa > 1.0 else math.inf
    steps = 1 + max(0, math.ceil(math.log(max(kappa * R / alpha, 1.0)) / ratio))
    y, length = start, math.inf
    for _ in range(steps + 1):
        gradient = problem.inner_gradient(x, y, records)
        length = float(np.linalg.norm(gradient))
        if length <= tolerance:
            break
        y = y - (2.0 / (mu + b)) * gradient
    return InnerSolution(y, length, length <= tolerance)
