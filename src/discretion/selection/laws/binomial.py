"""The binomial law, and a number of runs that is fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaln, xlog1py, xlogy

from discretion.selection.laws.base import UNIT, Array, Repetitions, by_ratios, count, drawable
from discretion.selection.sampling import BinomialTerms, FixedTerms, Terms

__all__ = ["Binomial", "Fixed"]


@dataclass(frozen=True)
class Binomial(Repetitions):
    """K is binomial: `f(x) = (1 - chance + chance x)^trials`, `f'(1 - t) = n p (1 - p t)^(n - 1)`.

    Raises:
        ValueError: trials not a positive integer, chance outside (0, 1), or so large a mean that K can't be drawn.
    """

    law: ClassVar[str] = "binomial"
    trials: int
    chance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", count(self.trials, "The number of trials of a binomial law"))
        chance = float(self.chance)
        if not 0 < chance < 1:
            raise ValueError(f"The chance of a binomial law must lie in (0, 1), not {chance!r}.")
        object.__setattr__(self, "chance", chance)
        drawable(self.trials * math.log1p(-chance), f"binomial, mean {self.mean:g}")

    @property
    def name(self) -> str:
        return f"binomial of {self.trials} trials"

    @property
    def mean(self) -> float:
        """E[K] = trials * chance."""
        return self.trials * self.chance

    @property
    def none(self) -> float:
        return math.exp(self.trials * math.log1p(-self.chance))

    def pgf(self, x: ArrayLike) -> Array:
        return ((1 - self.chance) + self.chance * np.asarray(x, dtype=np.float64)) ** self.trials

    def derivative(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        # 1 - p t as a sum of positive terms
        return self.mean * ((1 - t) + t * (1 - self.chance)) ** (self.trials - 1)

    @property
    def rounding(self) -> float:
        return (4 + 4 * self.trials) * UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "trials": self.trials, "chance": self.chance}

    def pmf(self, k: ArrayLike) -> Array:
        k, n = np.asarray(k, dtype=np.float64), self.trials
        inside = np.clip(k, 0, n)
        choose = -np.log(n + 1.0) - betaln(n - inside + 1, inside + 1)
        log = choose + xlogy(inside, self.chance) + xlog1py(n - inside, -self.chance)
        return np.where((k < 0) | (k > n), 0.0, np.exp(log))

    def masses(self, most: int) -> Array:
        k = np.arange(most)
        return by_ratios(self.chance * np.maximum(self.trials - k, 0) / ((1 - self.chance) * (k + 1)))

    def cdf(self, k: ArrayLike) -> Array:
        k = np.floor(np.asarray(k, dtype=np.float64))
        value = bdtr(np.clip(k, 0, self.trials), self.trials, self.chance)
        return np.where(k < 0, 0.0, np.where(k >= self.trials, 1.0, value))

    @property
    def terms(self) -> Terms:
        return BinomialTerms(self.trials, self.chance)


@dataclass(frozen=True)
class Fixed(Repetitions):
    """Always the same number of runs. Never private for less than `count` times the cost in the worst case.

    Raises:
        ValueError: count not a positive integer.
    """

    law: ClassVar[str] = "fixed"
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", count(self.count, "A fixed number of runs"))

    @property
    def name(self) -> str:
        return "fixed"

    @property
    def single(self) -> bool:
        return self.count == 1

    @property
    def mean(self) -> float:
        """E[K], the count."""
        return float(self.count)

    @property
    def none(self) -> float:
        return 0.0

    def pgf(self, x: ArrayLike) -> Array:
        return np.asarray(x, dtype=np.float64) ** self.count

    def derivative(self, t: ArrayLike) -> Array:
        return self.count * (1 - np.asarray(t, dtype=np.float64)) ** (self.count - 1)

    @property
    def rounding(self) -> float:
        return (4 + self.count) * UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "count": self.count}

    def pmf(self, k: ArrayLike) -> Array:
        return np.where(np.asarray(k) == self.count, 1.0, 0.0)

    def cdf(self, k: ArrayLike) -> Array:
        return np.where(np.asarray(k) >= self.count, 1.0, 0.0)

    @property
    def terms(self) -> Terms:
        return FixedTerms(self.count)
