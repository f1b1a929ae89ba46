"""Secret samples of the records, drawn with exactly the chances that the account assumes.

A Poisson sample has every record with probability q, independently; a subset has a fixed size, and is one of all
subsets of that size with equal chances. Who takes part must stay where the records are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discretion.privacy.noise import Randomness

__all__ = ["sampling_rate", "secret_sample", "secret_subset"]

_WORD = 2.0**64


def sampling_rate(rate: float) -> float:
    """q as it is both used and accounted: `rate` rounded down to a multiple of 2^-64.

    Raises:
        ValueError: not in (0, 1).
    """
    if not (math.isfinite(rate) and 2.0**-40 <= rate < 1):
        raise ValueError(f"sample_rate must lie between 0 and 1, or be left out to use all records; got {rate!r}.")
    return math.floor(rate * _WORD) / _WORD


def secret_sample(n: int, rate: float, randomness: Randomness) -> NDArray[np.bool_]:
    """PRIVATE. Which of n records take part in a step, (n,): each with probability exactly `rate`, independently."""
    return randomness.words(n) < np.uint64(int(rate * _WORD))


def secret_subset(n: int, size: int, randomness: Randomness) -> NDArray[np.intp]:
    """PRIVATE. `size` of n records, in order: every subset of that size with the same probability.

    Those with the smallest of n independent words; where that is not decided all words are drawn anew, which favours
    nobody.
    """
    while True:
        words = randomness.words(n)
        if size == n:
            return np.arange(n)
        ranked = np.partition(words, (size - 1, size))
        if ranked[size - 1] < ranked[size]:
            return np.flatnonzero(words < ranked[size])
