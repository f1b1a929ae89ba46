"""Which point of a public path to use: post-processing, and free of charge."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import Randomness

__all__ = ["Output", "check_output", "public_output"]

Floats = NDArray[np.float64]
Output = Literal["tail", "window", "uniform"]


def check_output(rule: str) -> None:
    """Refuse a rule that is none.

    Raises:
        ValueError: names those that there are.
    """
    if rule not in get_args(Output):
        raise ValueError(f'output must be "tail", "window" or "uniform"; got {rule!r}.')


def public_output(rule: Output, path: Floats, gradients: Floats, randomness: Randomness) -> Floats:
    """The point to use of a public path x_0, ..., x_T with noisy gradients at x_0, ..., x_{T-1}: free of charge.

    "tail": mean of the last half of x_1, ..., x_T. "window": the centre of the window of ceil(sqrt(T)) steps whose mean
    noisy gradient is shortest. "uniform": one of x_0, ..., x_{T-1} at random, what the analysis is about.
    """
    T = len(gradients)
    if rule == "tail":
        return path[1 + T // 2 :].mean(axis=0)
    if rule == "uniform":
        return path[int(float(randomness.uniform()) * T)]
    width = math.isqrt(T - 1) + 1
    sums = np.concatenate([np.zeros((1, gradients.shape[1])), np.cumsum(gradients, axis=0)])
    lengths = np.linalg.norm(sums[width:] - sums[:-width], axis=1)
    return path[int(np.argmin(lengths)) + width // 2]
