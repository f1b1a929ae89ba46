"""Truncated negative binomial laws, the geometric and the logarithmic one among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln

from discretion.privacy import Unreachable, largest
from discretion.selection.laws.base import LEAST_LOG, MOST_TERMS, UNIT, Array, Repetitions, by_ratios, drawable
from discretion.selection.sampling import NegativeBinomialTerms, Terms

__all__ = ["NegativeBinomial", "geometric", "logarithmic"]


_BLOCK = 2**14
_LEAST_SHAPE = 1e-200


@dataclass(frozen=True)
class NegativeBinomial(Repetitions):
    """K is negative binomial, given that it is at least 1: shape eta > -1, gamma in (0, 1].

        f(x) = ((1 - (1 - gamma) x)^(-eta) - 1) / (gamma^(-eta) - 1),
        f'(1 - t) = mean (gamma / (gamma + (1 - gamma) t))^(1 + eta),
        mean = eta (1 - gamma) / (gamma (1 - gamma^eta)),    P[K = 1] = eta (1 - gamma) / (gamma^(-eta) - 1)

    (Papernot and Steinke 2022). Shape 1 is the geometric law; shape 0, the limit, the logarithmic one; shapes below 0
    are heavy-tailed: mostly K = 1 and rarely very many. At gamma = 1 there is one run surely. A shape within 1e-200
    of 0 is 0.

    Raises:
        ValueError: a shape of at most -1, gamma outside (0, 1], or so large a mean that K can't be drawn.
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
        object.__setattr__(self, "shape", shape if abs(shape) >= _LEAST_SHAPE else 0.0)
        object.__setattr__(self, "gamma", gamma)
        drawable(self.shape * math.log(gamma), f"{self.name}, gamma {gamma:g}")

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
        least = max(1e-300, math.exp(0.999 * LEAST_LOG / shape)) if shape > 0 else 1e-300
        try:
            return cls(shape, largest(lambda gamma: cls(shape, gamma).mean >= mean, least, 1.0, relative_tolerance=0))
        except Unreachable:
            raise ValueError(
                f"Shape {shape!r} with mean {mean!r} is too heavy-tailed for double precision, or can't be drawn "
                "exactly: take another shape or a smaller mean."
            ) from None

    @property
    def name(self) -> str:
        if self.shape in (0.0, 1.0):
            return "geometric" if self.shape else "logarithmic"
        return f"truncated negative binomial of shape {self.shape:g}"

    @cached_property
    def mean(self) -> float:
        """E[K], from `shape` and `gamma`; 1 at gamma = 1."""
        if self.gamma == 1:
            return 1.0
        log = math.log(self.gamma)
        over = -log if abs(self.shape * log) < 1e-20 else -math.expm1(self.shape * log) / self.shape
        return (1 - self.gamma) / over / self.gamma

    @property
    def none(self) -> float:
        return 0.0

    @property
    def single(self) -> bool:
        return self.gamma == 1

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
        return (32 + 8 * abs(self.shape) * (1 - math.log(self.gamma))) * UNIT

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

    def masses(self, most: int) -> Array:
        k = np.arange(1, most)
        return by_ratios((1 - self.gamma) * (k + self.shape) / (k + 1), first=1)

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


def _summed(pmf: Callable[[ArrayLike], Array], k: Array) -> Array:
    """Sums of a probability mass function up to each k, by blocks."""
    last = float(np.max(k, initial=0.0))
    if last > MOST_TERMS:
        raise ValueError(f"The distribution function of this law is summed up to {MOST_TERMS:,} at most.")
    found = np.zeros(k.shape)
    before = 0.0
    for start in range(0, int(last) + 1, _BLOCK):
        sums = before + np.cumsum(pmf(np.arange(start, start + _BLOCK)))
        here = (k >= start) & (k < start + _BLOCK)
        found[here] = sums[(k[here] - start).astype(np.int64)]
        before = float(sums[-1])
    return np.minimum(found, 1.0)
