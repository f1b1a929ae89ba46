"""A law with a cap that is declared beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from discretion.privacy import Randomness
from discretion.selection.laws.base import UNIT, Array, Repetitions, count
from discretion.selection.sampling import Terms

__all__ = ["Capped"]


_MOST_CAP = 100_000
_LEAST_KEPT = 0.01


@dataclass(frozen=True)
class Capped(Repetitions):
    """A law given that K is at most `most`, a cap that is declared beforehand and is part of the law.

        f(x) = sum over k <= most of p_k x^k / P[K <= most]

    Its guarantee uses this polynomial. A cap that a person imposes on K after it was drawn is another thing, and voids
    every bound.

    Args:
        uncapped: the law without the cap.
        most: at least 1.

    Raises:
        ValueError: a cap that keeps less than 1% of the law.
    """

    law: ClassVar[str] = "capped"
    uncapped: Repetitions
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", count(self.most, "The cap of the number of runs"))
        if self.most > _MOST_CAP:
            raise ValueError(f"A cap of {self.most:,} runs is beyond the {_MOST_CAP:,} the account can sum up.")
        if not self._kept >= _LEAST_KEPT:
            raise ValueError(
                f"At most {self.most} runs have chance {self._kept:.2g} under the law without the cap "
                f"({self.uncapped.name}, mean {self.uncapped.mean:g}): choose a law with a smaller mean."
            )

    @cached_property
    def _masses(self) -> Array:
        masses = self.uncapped.masses(self.most)
        return masses / np.sum(masses)

    @cached_property
    def _kept(self) -> float:
        return float(np.sum(self.uncapped.pmf(np.arange(self.most + 1))))

    def masses(self, most: int) -> Array:
        return np.pad(self._masses, (0, max(most - self.most, 0)))[: most + 1]

    @property
    def single(self) -> bool:
        return bool(self._masses[1] == 1)

    @property
    def name(self) -> str:
        return f"{self.uncapped.name} capped at {self.most}"

    @cached_property
    def mean(self) -> float:
        """E[K] under the cap."""
        return float(self._masses @ np.arange(self.most + 1))

    @property
    def none(self) -> float:
        return float(self._masses[0])

    def pgf(self, x: ArrayLike) -> Array:
        return _horner(self._masses, np.asarray(x, dtype=np.float64))

    def derivative(self, t: ArrayLike) -> Array:
        weights = self._masses * np.arange(self.most + 1)
        return _horner(weights[1:], 1 - np.asarray(t, dtype=np.float64))

    @property
    def rounding(self) -> float:
        # of Horner's rule, and of the masses, a product of so many ratios
        return (64 + 8 * self.most) * UNIT + 1e-12

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "uncapped": self.uncapped.parameters(), "most": self.most}

    def pmf(self, k: ArrayLike) -> Array:
        k = np.asarray(k)
        inside = (k >= 0) & (k <= self.most)
        return np.where(inside, self._masses[np.clip(k, 0, self.most).astype(np.int64)], 0.0)

    def cdf(self, k: ArrayLike) -> Array:
        k = np.floor(np.asarray(k, dtype=np.float64))
        sums = np.minimum(np.cumsum(self._masses), 1.0)
        value = np.where(k >= self.most, 1.0, sums[np.clip(k, 0, self.most).astype(np.int64)])
        return np.where(k < 0, 0.0, value)

    @property
    def terms(self) -> Terms:
        return self.uncapped.terms

    def sample(self, randomness: Randomness) -> int:
        return self.terms.draw(randomness, self._cap)

    @property
    def _cap(self) -> int:
        """The least of nested caps."""
        return min(self.most, self.uncapped._cap) if isinstance(self.uncapped, Capped) else self.most


def _horner(coefficients: Array, x: Array) -> Array:
    """Polynomial with these coefficients, the constant first."""
    value = np.zeros(x.shape)
    for each in coefficients[::-1].tolist():
        value = value * x + each
    return value
