"""The Poisson law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, pdtr, xlogy

from discretion.selection.laws.base import UNIT, Array, Repetitions, by_ratios, drawable, positive
from discretion.selection.sampling import PoissonTerms, Terms

__all__ = ["Poisson"]


@dataclass(frozen=True)
class Poisson(Repetitions):
    """K is Poisson: `f(x) = e^(mean (x - 1))`, `f'(1 - t) = mean e^(-mean t)`; K = 0 has chance e^(-mean).

    Raises:
        ValueError: mean not positive, or above 2,000,000.
    """

    law: ClassVar[str] = "poisson"
    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", positive(self.mean, "The mean number of runs of a Poisson law"))
        drawable(-self.mean, f"Poisson, mean {self.mean:g}")

    @property
    def name(self) -> str:
        return "Poisson"

    @property
    def none(self) -> float:
        return math.exp(-self.mean)

    def pgf(self, x: ArrayLike) -> Array:
        return np.exp(self.mean * (np.asarray(x, dtype=np.float64) - 1))

    def derivative(self, t: ArrayLike) -> Array:
        return self.mean * np.exp(-self.mean * np.asarray(t, dtype=np.float64))

    @property
    def rounding(self) -> float:
        return (4 + self.mean) * UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "mean": self.mean}

    def pmf(self, k: ArrayLike) -> Array:
        k = np.asarray(k, dtype=np.float64)
        inside = np.maximum(k, 0)
        return np.where(k < 0, 0.0, np.exp(xlogy(inside, self.mean) - gammaln(inside + 1) - self.mean))

    def masses(self, most: int) -> Array:
        return by_ratios(self.mean / np.arange(1, most + 1))

    def cdf(self, k: ArrayLike) -> Array:
        k = np.asarray(k, dtype=np.float64)
        return np.where(k < 0, 0.0, pdtr(np.maximum(k, 0), self.mean))

    @property
    def terms(self) -> Terms:
        return PoissonTerms(self.mean)
