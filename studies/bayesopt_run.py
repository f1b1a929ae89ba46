"""Runs of private local search on made-up records, with noise that repeats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from discretion.bayesopt import LocalSearch, Study
from discretion.privacy import SeededRandomness

Floats = NDArray[np.float64]

NO_NOISE = 1e6
"""A mu at which the noise is negligible: the search that is not private."""


def searched(search: LocalSearch, n: int, losses: Callable[[Floats], Floats], seed: int) -> Study:
    """The finished study; `losses` gives the losses of all records at a scaled theta, shape (n,)."""
    study = Study(search, n=n, randomness=SeededRandomness(seed))
    while not study.done:
        Z = study.asked
        study.tell(np.column_stack([losses(z) for z in Z]) if len(Z) else np.empty((n, 0)))
    return study


def band(values: Floats) -> str:
    """Mean and range."""
    return f"{np.mean(values):.4g} ({np.min(values):.4g} to {np.max(values):.4g})"


def expected_norm(d: int) -> float:
    """E ||g|| / sqrt(d) of a standard normal vector: what a mean distance is of its root mean square."""
    return float(np.exp(gammaln((d + 1) / 2) - gammaln(d / 2)) * np.sqrt(2 / d))
