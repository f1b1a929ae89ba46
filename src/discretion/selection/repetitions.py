"""Laws of the number K of runs of a private selection.

All that a guarantee needs of a law is its generating function `f(x) = E x^K`: the derivative `f'(1 - t)` for t in
[0, 1], without cancellation, and `f(0)`, the chance of no run at all. The parameters of a law are its definition: the
sampler and the account use the same numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betainc, betaln, gammaln, pdtr, xlog1py, xlogy

from discretion.privacy import Randomness, Unreachable, largest
from discretion.selection.sampling import BinomialTerms, FixedTerms, NegativeBinomialTerms, PoissonTerms, Terms

__all__ = [
    "Binomial",
    "Capped",
    "Fixed",
    "NegativeBinomial",
    "Poisson",
    "Repetitions",
    "geometric",
    "logarithmic",
    "repetitions_from",
]

Array = NDArray[np.float64]

_UNIT = 2.0**-52
_BLOCK = 2**14
_MOST_TERMS = 2**26
_LEAST_KEPT = 0.01


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
            if good > _MOST_TERMS:
                raise ValueError(f"The {q!r} quantile of the number of runs ({self.name}) exceeds {_MOST_TERMS:,}.")
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


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_GAUSS = ((_NODES + 1) / 2, _WEIGHTS / 2)


# --- The laws ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Poisson(Repetitions):
    """K is Poisson: `f(x) = e^(mean (x - 1))`, `f'(1 - t) = mean e^(-mean t)`; K = 0 has chance e^(-mean).

    Raises:
        ValueError: mean not positive and finite.
    """

    law: ClassVar[str] = "poisson"
    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _positive(self.mean, "The mean number of runs of a Poisson law"))

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
        return (4 + self.mean) * _UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "mean": self.mean}

    def pmf(self, k: ArrayLike) -> Array:
        k = np.asarray(k, dtype=np.float64)
        inside = np.maximum(k, 0)
        return np.where(k < 0, 0.0, np.exp(xlogy(inside, self.mean) - gammaln(inside + 1) - self.mean))

    def cdf(self, k: ArrayLike) -> Array:
        k = np.asarray(k, dtype=np.float64)
        return np.where(k < 0, 0.0, pdtr(np.maximum(k, 0), self.mean))

    @property
    def terms(self) -> Terms:
        return PoissonTerms(self.mean)


@dataclass(frozen=True)
class NegativeBinomial(Repetitions):
    """K is negative binomial, given that it is at least 1: shape eta > -1, gamma in (0, 1].

        f(x) = ((1 - (1 - gamma) x)^(-eta) - 1) / (gamma^(-eta) - 1),
        f'(1 - t) = mean (gamma / (gamma + (1 - gamma) t))^(1 + eta),
        mean = eta (1 - gamma) / (gamma (1 - gamma^eta)),    P[K = 1] = eta (1 - gamma) / (gamma^(-eta) - 1)

    (Papernot and Steinke 2022). Shape 1 is the geometric law; shape 0, the limit, the logarithmic one; shapes below 0
    are heavy-tailed: mostly K = 1 and rarely very many. At gamma = 1 there is one run surely.

    Raises:
        ValueError: a shape of at most -1, or gamma outside (0, 1].
    """

    law: ClassVar[str] = "negative-binomial"
    shape: float
    gamma: float

    def __post_init__(self) -> None:
        shape, gamma = float(self.shape), float(self.gamma)
        if not -1 < shape < math.inf:
            raise ValueError(f"The shape of a truncated negative binomial law must be above -1, not {shape!r}.")
        if not 0 < gamma <= 1:
            raise ValueError(f"gamma of a truncated negative binomial law must lie in (0, 1], not {gamma!r}.")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", gamma)

    @classmethod
    def of_mean(cls, shape: float, mean: float) -> NegativeBinomial:
        """The law of this shape and mean; gamma is rounded so that the mean is never below the one asked for.

        Raises:
            ValueError: mean below 1, shape of at most -1, or a gamma too small for a double.
        """
        mean = float(mean)
        if not 1 <= mean < math.inf:
            raise ValueError(
                f"The mean number of runs of a truncated negative binomial law is at least 1, not {mean!r}: it always "
                "runs once. For fewer runs take the Poisson or the binomial law."
            )
        try:
            return cls(shape, largest(lambda gamma: cls(shape, gamma).mean >= mean, 1e-300, 1.0, relative_tolerance=0))
        except Unreachable:
            raise ValueError(
                f"Shape {shape!r} with mean {mean!r} is too heavy-tailed for double precision: take a larger shape or "
                "a smaller mean."
            ) from None

    @property
    def name(self) -> str:
        if self.shape in (0.0, 1.0):
            return "geometric" if self.shape else "logarithmic"
        return f"truncated negative binomial of shape {self.shape:g}"

    @cached_property
    def mean(self) -> float:
        if self.gamma == 1:
            return 1.0
        log = math.log(self.gamma)
        over = -log if self.shape * log == 0 else -math.expm1(self.shape * log) / self.shape
        return (1 - self.gamma) / over / self.gamma

    @property
    def none(self) -> float:
        return 0.0

    def pgf(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=np.float64)
        if self.gamma == 1:
            return x.copy()
        log, log_gamma = np.log(self.gamma + (1 - self.gamma) * (1 - x)), math.log(self.gamma)
        if self.shape == 0:
            return log / log_gamma
        # through 1 - f where f is close to 1, and through f elsewhere
        return np.expm1(-self.shape * np.log1p(-(1 - self.gamma) * x)) / math.expm1(-self.shape * log_gamma)

    def success(self, chance: ArrayLike) -> Array:
        c = np.asarray(chance, dtype=np.float64)
        if self.gamma == 1:
            return c.copy()
        # (gamma^(-eta) - (gamma + (1 - gamma) c)^(-eta)) / (gamma^(-eta) - 1)
        log = np.log1p((1 / self.gamma - 1) * c)
        if self.shape == 0:
            return log / -math.log(self.gamma)
        return np.expm1(-self.shape * log) / math.expm1(self.shape * math.log(self.gamma))

    def derivative(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        return self.mean * (self.gamma / (self.gamma + (1 - self.gamma) * t)) ** (1 + self.shape)

    @property
    def rounding(self) -> float:
        return (32 + 8 * abs(self.shape) * (1 - math.log(self.gamma))) * _UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "shape": self.shape, "gamma": self.gamma}

    def pmf(self, k: ArrayLike) -> Array:
        k = np.asarray(k, dtype=np.float64)
        if self.gamma == 1:
            return np.where(k == 1, 1.0, 0.0)
        n, eta, log_rest = np.maximum(k, 1.0), self.shape, math.log1p(-self.gamma)
        log_gamma = math.log(self.gamma)
        if eta >= 1:
            log = n * log_rest + eta * log_gamma - np.log(n) - betaln(n, eta) - math.log(-math.expm1(eta * log_gamma))
        else:
            # Gamma(k + eta) / (Gamma(1 + eta) k!) as a Beta function of positive arguments
            first = log_rest - (math.log(-log_gamma) if eta == 0 else math.log(math.expm1(-eta * log_gamma) / eta))
            log = first + (n - 1) * log_rest + betaln(n + eta, 1 - eta) - betaln(1 + eta, 1 - eta)
        return np.where(k < 1, 0.0, np.exp(log))

    def cdf(self, k: ArrayLike) -> Array:
        k = np.floor(np.asarray(k, dtype=np.float64))
        if self.gamma == 1:
            return np.where(k >= 1, 1.0, 0.0)
        if self.shape >= 1:
            tail = betainc(np.maximum(k, 0) + 1, self.shape, 1 - self.gamma)
            return np.where(k < 1, 0.0, 1 - tail / -math.expm1(self.shape * math.log(self.gamma)))
        return _summed(self.pmf, k)

    @property
    def terms(self) -> Terms:
        return NegativeBinomialTerms(self.shape, self.gamma)


def geometric(mean: float) -> NegativeBinomial:
    """The geometric law on 1, 2, ... of this mean, at least 1."""
    return NegativeBinomial.of_mean(1.0, mean)


def logarithmic(mean: float) -> NegativeBinomial:
    """The logarithmic law of this mean, at least 1."""
    return NegativeBinomial.of_mean(0.0, mean)


@dataclass(frozen=True)
class Binomial(Repetitions):
    """K is binomial: `f(x) = (1 - chance + chance x)^trials`, `f'(1 - t) = n p (1 - p t)^(n - 1)`.

    Raises:
        ValueError: trials not a positive integer, or chance outside (0, 1).
    """

    law: ClassVar[str] = "binomial"
    trials: int
    chance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", _count(self.trials, "The number of trials of a binomial law"))
        chance = float(self.chance)
        if not 0 < chance < 1:
            raise ValueError(f"The chance of a binomial law must lie in (0, 1), not {chance!r}.")
        object.__setattr__(self, "chance", chance)

    @property
    def name(self) -> str:
        return f"binomial of {self.trials} trials"

    @property
    def mean(self) -> float:
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
        return (4 + 4 * self.trials) * _UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "trials": self.trials, "chance": self.chance}

    def pmf(self, k: ArrayLike) -> Array:
        k, n = np.asarray(k, dtype=np.float64), self.trials
        inside = np.clip(k, 0, n)
        choose = -np.log(n + 1.0) - betaln(n - inside + 1, inside + 1)
        log = choose + xlogy(inside, self.chance) + xlog1py(n - inside, -self.chance)
        return np.where((k < 0) | (k > n), 0.0, np.exp(log))

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
        object.__setattr__(self, "count", _count(self.count, "A fixed number of runs"))

    @property
    def name(self) -> str:
        return "fixed"

    @property
    def mean(self) -> float:
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
        return (4 + self.count) * _UNIT

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law, "count": self.count}

    def pmf(self, k: ArrayLike) -> Array:
        return np.where(np.asarray(k) == self.count, 1.0, 0.0)

    def cdf(self, k: ArrayLike) -> Array:
        return np.where(np.asarray(k) >= self.count, 1.0, 0.0)

    @property
    def terms(self) -> Terms:
        return FixedTerms(self.count)


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
        object.__setattr__(self, "most", _count(self.most, "The cap of the number of runs"))
        if self.most > _MOST_CAP:
            raise ValueError(f"A cap of {self.most:,} runs is beyond the {_MOST_CAP:,} the account can sum up.")
        if not self._kept >= _LEAST_KEPT:
            raise ValueError(
                f"At most {self.most} runs have chance {self._kept:.2g} under the law without the cap "
                f"({self.uncapped.name}, mean {self.uncapped.mean:g}): choose a law with a smaller mean."
            )

    @cached_property
    def _masses(self) -> Array:
        return self.uncapped.pmf(np.arange(self.most + 1)) / self._kept

    @cached_property
    def _kept(self) -> float:
        return float(np.sum(self.uncapped.pmf(np.arange(self.most + 1))))

    @property
    def name(self) -> str:
        return f"{self.uncapped.name} capped at {self.most}"

    @cached_property
    def mean(self) -> float:
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
        # of Horner's rule, and of the masses through gammaln
        return (64 + 8 * self.most) * _UNIT + 1e-12

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


_MOST_CAP = 100_000


def repetitions_from(parameters: Mapping[str, Any]) -> Repetitions:
    """The law that `Repetitions.parameters` described.

    Raises:
        ValueError: not such a description.
    """
    try:
        return _READERS[parameters["law"]](parameters)
    except (KeyError, TypeError) as error:
        raise ValueError(
            "This is not a description of a law of the number of runs as `parameters` writes it "
            f"({type(error).__name__}: {error}); the known laws are {', '.join(_READERS)}."
        ) from error


_READERS: dict[str, Callable[[Mapping[str, Any]], Repetitions]] = {
    "poisson": lambda p: Poisson(p["mean"]),
    "negative-binomial": lambda p: NegativeBinomial(p["shape"], p["gamma"]),
    "binomial": lambda p: Binomial(p["trials"], p["chance"]),
    "fixed": lambda p: Fixed(p["count"]),
    "capped": lambda p: Capped(repetitions_from(p["uncapped"]), p["most"]),
}


# --- Pieces -----------------------------------------------------------------------------------------


def _summed(pmf: Callable[[ArrayLike], Array], k: Array) -> Array:
    """Sums of a probability mass function up to each k, by blocks."""
    last = float(np.max(k, initial=0.0))
    if last > _MOST_TERMS:
        raise ValueError(f"The distribution function of this law is summed up to {_MOST_TERMS:,} at most.")
    found = np.zeros(k.shape)
    before = 0.0
    for start in range(0, int(last) + 1, _BLOCK):
        sums = before + np.cumsum(pmf(np.arange(start, start + _BLOCK)))
        here = (k >= start) & (k < start + _BLOCK)
        found[here] = sums[(k[here] - start).astype(np.int64)]
        before = float(sums[-1])
    return np.minimum(found, 1.0)


def _horner(coefficients: Array, x: Array) -> Array:
    """Polynomial with these coefficients, the constant first."""
    value = np.zeros(x.shape)
    for each in coefficients[::-1].tolist():
        value = value * x + each
    return value


def _positive(value: float, what: str) -> float:
    value = float(value)
    if not 0 < value < math.inf:
        raise ValueError(f"{what} must be positive and finite, not {value!r}.")
    return value


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{what} must be an integer of at least 1, not {value!r}.")
    return int(value)
