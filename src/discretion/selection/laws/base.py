"""What a law of the number K of runs says of itself.

All that a guarantee needs of a law is its generating function `f(x) = E x^K`: the derivative `f'(1 - t)` for t in
[0, 1], without cancellation, and `f(0)`, the chance of no run at all. The parameters of a law are its definition: the
sampler and the account use the same numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.privacy import Randomness
from discretion.selection.sampling import Terms

__all__ = ["LEAST_LOG", "MOST_TERMS", "UNIT", "Array", "Repetitions", "by_ratios", "count", "drawable", "positive"]

Array = NDArray[np.float64]

UNIT = 2.0**-52
MOST_TERMS = 2**26
"""So many probabilities are summed up at most."""
LEAST_LOG = -2e6
"""Logarithm of the least first probability with which the sampler can begin: its decimal numbers end at 10^-999999."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_GAUSS = ((_NODES + 1) / 2, _WEIGHTS / 2)


class Repetitions(ABC):
    """The law of K, a non-negative integer drawn before and apart from the runs.

    Subclasses are frozen dataclasses.
    """

    law: ClassVar[str]
    """The law's name in `parameters()`."""

    # --- What the account uses

    @property
    @abstractmethod
    def name(self) -> str:
        """The law in words."""

    mean: Any
    """E K = f'(1), a positive number."""

    @property
    @abstractmethod
    def none(self) -> float:
        """P[K = 0] = f(0): the chance of the default outcome."""

    @property
    def single(self) -> bool:
        """Whether K = 1 surely."""
        return False

    @abstractmethod
    def pgf(self, x: ArrayLike) -> Array:
        """f(x) = E x^K at x in [0, 1]."""

    @abstractmethod
    def derivative(self, t: ArrayLike) -> Array:
        """f'(1 - t) = E K (1 - t)^(K - 1) at t in [0, 1], to relative precision `rounding`; decreasing in t."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Bound of the relative rounding error of `derivative`."""

    def success(self, chance: ArrayLike) -> Array:
        """Probability that at least one of the K runs is good, if each is with `chance`: 1 - f(1 - chance)."""
        return 1.0 - self.pgf(1.0 - np.asarray(chance, dtype=np.float64))

    def masses(self, most: int) -> Array:
        """P[K = k] for k = 0, ..., most, up to a factor they share, each to a few units of rounding a step."""
        return self.pmf(np.arange(most + 1))

    # --- What people read

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Public description, JSON-able, from which `repetitions_from` makes an equal law."""

    @abstractmethod
    def pmf(self, k: ArrayLike) -> Array:
        """P[K = k] at integers k; 0 where k is negative."""

    @abstractmethod
    def cdf(self, k: ArrayLike) -> Array:
        """P[K <= k] at integers k."""

    def quantile(self, q: float) -> int:
        """Least k with P[K <= k] >= q.

        Raises:
            ValueError: q outside [0, 1), or the quantile exceeds 2^26.
        """
        if not 0 <= q < 1:
            raise ValueError(f"A quantile of the number of runs is asked for at q in [0, 1), not {q!r}.")
        bad, good = -1, 1
        while float(self.cdf(good)) < q:
            bad, good = good, 2 * good
            if good > MOST_TERMS:
                raise ValueError(f"The {q!r} quantile of the number of runs ({self.name}) exceeds {MOST_TERMS:,}.")
        while good - bad > 1:
            middle = (good + bad) // 2
            bad, good = (bad, middle) if float(self.cdf(middle)) >= q else (middle, good)
        return good

    @property
    def best_quantile(self) -> float:
        """E[K / (K + 1)] = 1 - integral of f over [0, 1]: expected quantile of the best of K runs (0 if K = 0)."""
        # x = 1 - y^4 spreads the end x = 1, where f may rise steeply
        y, weight = _GAUSS
        return 1.0 - float(np.sum(weight * 4 * y**3 * self.pgf(1.0 - y**4)))

    # --- What the runner uses

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """The probabilities P[K = k] as the sampler reads them, exactly; those of the law without its cap."""

    def sample(self, randomness: Randomness) -> int:
        """Draw K, exactly; see `discretion.selection.sampling`."""
        return self.terms.draw(randomness)


def positive(value: float, what: str) -> float:
    """The value, a positive finite number; or ValueError naming `what`."""
    value = float(value)
    if not 0 < value < math.inf:
        raise ValueError(f"{what} must be positive and finite, not {value!r}.")
    return value


def count(value: Any, what: str) -> int:
    """The value, an integer of at least 1; or ValueError naming `what`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{what} must be an integer of at least 1, not {value!r}.")
    return int(value)


def by_ratios(ratio: Array, first: int = 0) -> Array:
    """Masses of 0, 1, ... up to a factor: none below `first`, then by the ratios of one to the one before.

    By products from the largest on, both ways, so that nothing overflows.
    """
    with np.errstate(divide="ignore"):
        top = int(np.argmax(np.append(0.0, np.cumsum(np.log(ratio)))))
    down = np.cumprod(1 / ratio[:top][::-1])[::-1]
    return np.concatenate([np.zeros(first), down, [1.0], np.cumprod(ratio[top:])])


def drawable(log_first: float, name: str) -> None:
    """Refuse a law whose first probability, with which draws begin, is beyond the sampler's decimal numbers."""
    if not log_first >= LEAST_LOG:
        raise ValueError(f"So many runs can't be drawn exactly ({name}): choose a law with a smaller mean.")
