"""The Gaussian budget of a run of steps: mu of the run from (epsilon, delta), and mu_t of each step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import GaussianDP, Neighbours, gaussian_mu

__all__ = ["RULE", "gaussian_budget", "step_budgets"]

Floats = NDArray[np.float64]

RULE = "adaptive composition of Gaussian mechanisms, exact (Dong, Roth and Su 2022)"

_HAIR = 1e-13


def gaussian_budget(mu: float | None, epsilon: float | None, delta: float) -> float:
    """mu as given, or the largest, to a hair, whose epsilon at delta is at most `epsilon`.

    Raises:
        ValueError: both or neither given, or a number out of range.
    """
    if (mu is None) == (epsilon is None):
        raise ValueError("Give either mu, or epsilon to have the mu that meets it at delta.")
    given = mu if epsilon is None else epsilon
    assert given is not None
    if not (math.isfinite(given) and given > 0):
        raise ValueError(f"{'mu' if epsilon is None else 'epsilon'} must be a positive finite number; got {given!r}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta!r}.")
    if epsilon is None:
        return float(given)
    found = float(gaussian_mu(epsilon, delta))
    while GaussianDP(found, neighbours=Neighbours.REPLACE).epsilon(delta) > epsilon * (1.0 - _HAIR):
        found *= 1.0 - _HAIR
    return found


def step_budgets(mu: float, steps: int, contraction: float = 0.0) -> Floats:
    """mu_t of T steps, sum of squares mu^2, fixed in advance: mu_t^2 ~ (1 - contraction)^((T - 1 - t)/2).

    Equal at contraction 0, the best for the mean squared gradient. For an objective of strong convexity m and step size
    eta, contraction = eta m minimises the noise left at the end: sum_t (1 - c)^(T-1-t) / mu_t^2 at a given sum of
    mu_t^2.
    """
    weights = (1.0 - contraction) ** ((steps - 1.0 - np.arange(steps)) / 2.0)
    return mu * (1.0 - _HAIR) * np.sqrt(weights / weights.sum())
