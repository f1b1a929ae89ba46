"""Losses of a linear prediction p = a'y and a label b, with the bounds that make the constants of a family facts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["Huber", "Logistic", "PseudoHuber", "ScalarLoss", "Square"]

Floats = NDArray[np.float64]


class ScalarLoss(ABC):
    """A convex loss of a prediction, at least 0. Bounds are over |p| <= P and admissible labels."""

    smooth = True

    @abstractmethod
    def value(self, p: Floats, b: Floats) -> Floats: ...
    @abstractmethod
    def slope(self, p: Floats, b: Floats) -> Floats:
        """Derivative in p."""

    @abstractmethod
    def curvature(self, p: Floats, b: Floats) -> Floats:
        """Second derivative in p."""

    @abstractmethod
    def at_zero(self) -> float:
        """Largest value at p = 0."""

    @abstractmethod
    def largest_value(self, P: float) -> float:
        """Largest value."""

    def spread(self, P: float) -> float:
        """Largest difference of values at one p and two labels and features: by default the largest value."""
        return self.largest_value(P)

    @abstractmethod
    def largest_slope(self, P: float) -> float: ...

    largest_curvature: float = 1.0

    @abstractmethod
    def largest_third(self) -> float:
        """Lipschitz constant of the curvature; inf where it jumps."""

    @abstractmethod
    def labels(self, b: Floats) -> Floats:
        """Labels made admissible, one by one."""


@dataclass(frozen=True)
class _Residual(ScalarLoss):
    """A loss of the residual u = p - b, |b| <= B."""

    label_bound: float

    def labels(self, b: Floats) -> Floats:
        return np.clip(b, -self.label_bound, self.label_bound)


@dataclass(frozen=True)
class Square(_Residual):
    """u^2 / 2."""

    def value(self, p: Floats, b: Floats) -> Floats:
        return 0.5 * (p - b) ** 2

    def slope(self, p: Floats, b: Floats) -> Floats:
        return p - b

    def curvature(self, p: Floats, b: Floats) -> Floats:
        return np.ones_like(p)

    def at_zero(self) -> float:
        return 0.5 * self.label_bound**2

    def largest_value(self, P: float) -> float:
        return 0.5 * (P + self.label_bound) ** 2

    def largest_slope(self, P: float) -> float:
        return P + self.label_bound

    def largest_third(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Huber(_Residual):
    """u^2 / 2 for |u| <= c, then c |u| - c^2 / 2: its curvature jumps."""

    corner: float

    smooth = False

    def value(self, p: Floats, b: Floats) -> Floats:
        u = np.abs(p - b)
        return np.where(u <= self.corner, 0.5 * u * u, self.corner * (u - 0.5 * self.corner))

    def slope(self, p: Floats, b: Floats) -> Floats:
        return np.clip(p - b, -self.corner, self.corner)

    def curvature(self, p: Floats, b: Floats) -> Floats:
        return (np.abs(p - b) <= self.corner).astype(np.float64)

    def at_zero(self) -> float:
        return self.largest_value(0.0)

    def largest_value(self, P: float) -> float:
        return float(self.value(np.array(P), np.array(-self.label_bound)))

    def largest_slope(self, P: float) -> float:
        return min(self.corner, P + self.label_bound)

    def largest_third(self) -> float:
        return math.inf


@dataclass(frozen=True)
class PseudoHuber(_Residual):
    """c^2 (sqrt(1 + (u/c)^2) - 1): a smooth Huber loss. |third derivative| <= 48 / (25 sqrt(5) c), at u = c/2."""

    corner: float

    def _root(self, p: Floats, b: Floats) -> Floats:
        return np.hypot(1.0, (p - b) / self.corner)

    def value(self, p: Floats, b: Floats) -> Floats:
        # c^2 (s - 1) = u^2 / (s + 1), without cancellation
        return (p - b) ** 2 / (self._root(p, b) + 1.0)

    def slope(self, p: Floats, b: Floats) -> Floats:
        return (p - b) / self._root(p, b)

    def curvature(self, p: Floats, b: Floats) -> Floats:
        return self._root(p, b) ** -3.0

    def at_zero(self) -> float:
        return self.largest_value(0.0)

    def largest_value(self, P: float) -> float:
        return float(self.value(np.array(P), np.array(-self.label_bound)))

    def largest_slope(self, P: float) -> float:
        return float(self.slope(np.array(P), np.array(-self.label_bound)))

    def largest_third(self) -> float:
        return 48.0 / (25.0 * math.sqrt(5.0) * self.corner)


@dataclass(frozen=True)
class Logistic(ScalarLoss):
    """log(1 + exp(-b p)), b = -1 or 1: a label is 1 where it was positive, else -1."""

    largest_curvature = 0.25

    def value(self, p: Floats, b: Floats) -> Floats:
        return np.logaddexp(0.0, -b * p)

    def slope(self, p: Floats, b: Floats) -> Floats:
        return -b * expit(-b * p)

    def curvature(self, p: Floats, b: Floats) -> Floats:
        return expit(p) * expit(-p)

    def at_zero(self) -> float:
        return math.log(2.0)

    def largest_value(self, P: float) -> float:
        return float(np.logaddexp(0.0, P))

    def spread(self, P: float) -> float:
        return P  # log(1 + e^P) - log(1 + e^-P)

    def largest_slope(self, P: float) -> float:
        return float(expit(P))

    def largest_third(self) -> float:
        return 1.0 / (6.0 * math.sqrt(3.0))

    def labels(self, b: Floats) -> Floats:
        return np.where(b > 0, 1.0, -1.0)
