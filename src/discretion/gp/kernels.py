"""Stationary kernels with unit diagonal: values, derivative in the first input, least value on a domain.

Every kernel is k(x, z) = phi(s) with s = ||(x - z) / length_scale||, a Euclidean norm (L1 for one kernel), and a
non-increasing profile phi, phi(0) = 1.  Distances come from direct differences of the coordinates, never from
x.x - 2 x.z + z.z, which cancels for nearby points far from the origin.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from discretion.gp.domain import EPS, Array, Box, Domain, LengthScale, finite_points, scales_per_axis

_TILE = 1 << 15  # entries of one tile, 256 kB: distance and profile meet in cache
_FARTHEST = 1e150  # scaled coordinates beyond this would overflow when squared


@dataclass(frozen=True)
class Kernel(ABC):
    """A stationary kernel k(x, z) = phi(s), s = ||(x - z) / length_scale||, k(x, x) = 1.

    `length_scale`: positive and finite, in the unit of the coordinates; one number, or a tuple with one for
    each coordinate.  ValueError otherwise.
    """

    length_scale: LengthScale = 1.0

    name: ClassVar[str]

    def __post_init__(self) -> None:
        given: Any = self.length_scale
        try:
            scales = float(given) if np.ndim(given) == 0 else tuple(float(l) for l in given)
        except (TypeError, ValueError):
            raise ValueError("length_scale must be a number, or a tuple with one a coordinate.") from None
        if not all(math.isfinite(l) and l > 0 for l in np.atleast_1d(scales)) or scales == ():
            raise ValueError("length_scale must be positive and finite.")
        object.__setattr__(self, "length_scale", scales)

    def __call__(self, X: npt.ArrayLike, Z: npt.ArrayLike | None = None) -> Array:
        """The matrix k(x_i, z_j), shape (n, m), for X (n, d) and Z (m, d); Z = X when omitted.

        Raises ValueError for NaN or infinite coordinates and for a dimension the length scales do not fit.
        """
        X = finite_points(X)
        Z = X if Z is None else finite_points(Z, X.shape[1], "Z")
        out = np.empty((len(X), len(Z)))
        self.fill(out, X, Z)
        return out

    def fill(self, out: Array, X: Array, Z: Array) -> None:
        """Write k(x_i, z_j) into `out`, C-contiguous float64 of shape (n, m), without a copy of it."""
        X, Z = self._scaled(X), self._scaled(Z)
        rows = max(1, _TILE // max(1, len(Z)))
        for start in range(0, len(X) if len(Z) else 0, rows):
            tile = out[start : start + rows]
            self._distances(X[start : start + rows], Z, tile)
            self._apply(tile)

    def profile(self, s: npt.ArrayLike) -> Any:
        """phi(s), s >= 0 the scaled distance: a number, or an array of the shape of s.

        Raises ValueError when a distance is negative, NaN or infinite.
        """
        values = np.array(s, dtype=np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError("Scaled distances must be finite and not negative.")
        np.minimum(values, _FARTHEST, out=values)
        self._apply(values)
        return values[()]

    def input_gradient(self, X: npt.ArrayLike, Z: npt.ArrayLike) -> Array:
        """Derivative of k(x_i, z_j) in x_i: shape (n, m, d) for X (n, d) and Z (m, d).

        (phi'(s) / s) (x - z) / length_scale^2; 0 where x = z (the limit for differentiable kernels).
        """
        X = finite_points(X)
        Z = finite_points(Z, X.shape[1], "Z")
        scales = scales_per_axis(self.length_scale, X.shape[1])
        s = np.empty((len(X), len(Z)))
        X, Z = self._scaled(X), self._scaled(Z)
        if s.size:
            self._distances(X, Z, s)
        return self._slope(s)[..., None] * (X[:, None, :] - Z[None, :, :]) / scales

    def least_value(self, domain: Domain) -> float:
        """Lower bound of k on domain x domain: phi at the scaled diameter, rounded down, in [0, 1].

        phi does not increase, so the least value is attained by the two points farthest apart in the scaled
        metric: opposite corners of a box, the ends of a ball's diameter along its shortest length scale.  The
        relative rounding error of every profile here is below 16 EPS (2 + |log phi|), which is subtracted.
        Maciazek 2026, Proposition 3, uses it as kappa.
        """
        value = float(self.profile(min(self._diameter(domain), _FARTHEST)))
        if value < 1e-290:
            return 0.0
        rounding = 16 * EPS * (2.0 - math.log(value))
        return min(1.0, max(0.0, math.nextafter(value * (1.0 - rounding), 0.0)))

    def factors(self, dimension: int) -> tuple[Kernel, ...] | None:
        """Kernels k_i on the line with k(x, z) = k_1(x_1, z_1) ... k_d(x_d, z_d); None where there are none."""
        return (self,) if dimension == 1 else None

    def _diameter(self, domain: Domain) -> float:
        """No smaller than any computed scaled distance of two points of the domain."""
        return domain.diameter(self.length_scale)

    def _scaled(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            X = X / scales_per_axis(self.length_scale, X.shape[1])
        if not (np.abs(X).max(initial=0.0) < _FARTHEST):
            raise ValueError("Coordinates divided by the length scale exceed 1e150: change the unit.")
        return X

    @staticmethod
    def _distances(X: Array, Z: Array, out: Array) -> None:
        cdist(X, Z, "euclidean", out=out)

    @abstractmethod
    def _apply(self, s: Array) -> None:
        """Replace the scaled distances s >= 0 by phi(s), in place."""

    @abstractmethod
    def _slope(self, s: Array) -> Array:
        """phi'(s) / s, with its limit (or 0 where there is none) at s = 0."""


@dataclass(frozen=True)
class Exponential(Kernel):
    """Exponential kernel (Matern 1/2): phi(s) = exp(-s).

    It has no derivative in x at x = z; `input_gradient` returns 0 there, the mean of its one-sided limits.
    """

    name: ClassVar[str] = "exponential"

    def _apply(self, s: Array) -> None:
        np.negative(s, out=s)
        np.exp(s, out=s)

    def _slope(self, s: Array) -> Array:
        return np.divide(-np.exp(-s), s, out=np.zeros_like(s), where=s > 0)


@dataclass(frozen=True)
class ExponentialL1(Kernel):
    """Exponential of the L1 distance: k(x, z) = exp(-s), s = sum_i |x_i - z_i| / l_i.

    The product over the axes of one-dimensional exponential kernels; on the line it is `Exponential`.  It has no
    derivative in x_i where x_i = z_i; `input_gradient` returns 0 there, the mean of its one-sided limits.
    """

    name: ClassVar[str] = "exponential-l1"

    def factors(self, dimension: int) -> tuple[Kernel, ...] | None:
        """The exponential kernel on each axis."""
        return tuple(Exponential(float(l)) for l in scales_per_axis(self.length_scale, dimension))

    def input_gradient(self, X: npt.ArrayLike, Z: npt.ArrayLike) -> Array:
        """Derivative of k(x_i, z_j) in x_i, -k sign(x - z) / length_scale: (n, m, d) for X (n, d) and Z (m, d)."""
        X = finite_points(X)
        Z = finite_points(Z, X.shape[1], "Z")
        signs = np.sign(X[:, None, :] - Z[None, :, :]) / scales_per_axis(self.length_scale, X.shape[1])
        return -self(X, Z)[..., None] * signs

    def _diameter(self, domain: Domain) -> float:
        if isinstance(domain, Box):
            scales = scales_per_axis(self.length_scale, domain.dimension)
            sides = zip(domain.lower, domain.upper, scales, strict=True)
            longest = [Box((low,), (high,)).diameter(float(scale)) for low, high, scale in sides]
            return math.fsum(longest) * (1.0 + (domain.dimension + 4) * EPS)
        # sup of sum_i |u_i| / l_i over unit vectors u is the norm of 1 / l
        inverse = math.hypot(*(1.0 / scales_per_axis(self.length_scale, domain.dimension)))
        return domain.diameter() * inverse * (1.0 + (domain.dimension + 4) * EPS)

    @staticmethod
    def _distances(X: Array, Z: Array, out: Array) -> None:
        cdist(X, Z, "cityblock", out=out)

    def _apply(self, s: Array) -> None:
        np.negative(s, out=s)
        np.exp(s, out=s)

    def _slope(self, s: Array) -> Array:
        return np.divide(-np.exp(-s), s, out=np.zeros_like(s), where=s > 0)


@dataclass(frozen=True)
class Matern32(Kernel):
    """Matern 3/2: phi(s) = (1 + t) exp(-t), t = sqrt(3) s; phi'(s) / s = -3 exp(-t)."""

    name: ClassVar[str] = "matern32"

    def _apply(self, s: Array) -> None:
        s *= math.sqrt(3)
        decay = np.exp(-s)
        s += 1.0
        s *= decay

    def _slope(self, s: Array) -> Array:
        return -3.0 * np.exp(-math.sqrt(3) * s)


@dataclass(frozen=True)
class Matern52(Kernel):
    """Matern 5/2: phi(s) = (1 + t + t^2/3) exp(-t), t = sqrt(5) s; phi'(s) / s = -(5/3) (1 + t) exp(-t)."""

    name: ClassVar[str] = "matern52"

    def _apply(self, s: Array) -> None:
        s *= math.sqrt(5)
        decay = np.exp(-s)
        polynomial = s / 3.0
        polynomial += 1.0
        s *= polynomial
        s += 1.0
        s *= decay

    def _slope(self, s: Array) -> Array:
        t = math.sqrt(5) * s
        return (-5.0 / 3.0) * (1.0 + t) * np.exp(-t)


@dataclass(frozen=True)
class RBF(Kernel):
    """Squared exponential: phi(s) = exp(-s^2/2); phi'(s) / s = -phi(s)."""

    name: ClassVar[str] = "rbf"

    def factors(self, dimension: int) -> tuple[Kernel, ...] | None:
        """The same kernel on each axis: squares add."""
        return tuple(RBF(float(l)) for l in scales_per_axis(self.length_scale, dimension))

    def _apply(self, s: Array) -> None:
        np.multiply(s, s, out=s)
        s *= -0.5
        np.exp(s, out=s)

    def _slope(self, s: Array) -> Array:
        return -np.exp(-0.5 * s * s)


@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """Rational quadratic: phi(s) = (1 + s^2/(2a))^(-a), a = alpha > 0; phi'(s) / s = -(1 + s^2/(2a))^(-a-1).

    Evaluated as exp(-a log1p(s^2/(2a))), accurate also for large a, where it tends to the RBF.
    """

    alpha: float = 1.0

    name: ClassVar[str] = "rational-quadratic"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            alpha = float(self.alpha)
        except (TypeError, ValueError):
            alpha = math.nan
        if not 1e-6 <= alpha <= 1e12:
            raise ValueError("alpha must be a number between 1e-6 and 1e12; above, use the rbf kernel.")
        object.__setattr__(self, "alpha", alpha)

    def _apply(self, s: Array) -> None:
        np.multiply(s, s, out=s)
        s /= 2.0 * self.alpha
        np.log1p(s, out=s)
        s *= -self.alpha
        np.exp(s, out=s)

    def _slope(self, s: Array) -> Array:
        return -np.exp(-(self.alpha + 1.0) * np.log1p(s * s / (2.0 * self.alpha)))


@dataclass(frozen=True)
class Diagonal(Kernel):
    """Diagonal kernel: k(x, z) = 1 if x = z, else 0.  The length scale plays no part.

    It has no derivative in x at x = z; `input_gradient` is 0 everywhere.
    """

    name: ClassVar[str] = "diagonal"

    def factors(self, dimension: int) -> tuple[Kernel, ...] | None:
        """Points are equal where all their coordinates are."""
        return tuple(Diagonal(float(l)) for l in scales_per_axis(self.length_scale, dimension))

    def least_value(self, domain: Domain) -> float:
        """0: every domain has two different points."""
        return 0.0

    def _scaled(self, X: Array) -> Array:
        scales_per_axis(self.length_scale, X.shape[1])
        return X

    @staticmethod
    def _distances(X: Array, Z: Array, out: Array) -> None:
        # the largest coordinate difference is 0 exactly when the points are equal; squares may underflow
        cdist(X, Z, "chebyshev", out=out)

    def _apply(self, s: Array) -> None:
        s[...] = s == 0.0

    def _slope(self, s: Array) -> Array:
        return np.zeros_like(s)


KERNELS: dict[str, type[Kernel]] = {
    cls.name: cls for cls in (Exponential, ExponentialL1, Matern32, Matern52, RBF, RationalQuadratic, Diagonal)
}


def kernel(name: str, length_scale: Any = 1.0, **options: Any) -> Kernel:
    """The kernel called `name` (a key of KERNELS) with its options (such as `alpha`).

    `length_scale` > 0 is one number or one for each axis, in the unit of the covariates.

    Raises ValueError for an unknown name, listing the known ones, and for an option the kernel does not have.
    """
    if name not in KERNELS:
        raise ValueError(f"Unknown kernel {name!r}; known kernels: {', '.join(KERNELS)}.")
    make: Callable[..., Kernel] = KERNELS[name]
    known = {field.name for field in fields(KERNELS[name])} - {"length_scale"}
    if extra := sorted(set(options) - known):
        options_known = ", ".join(sorted(known)) or "none"
        raise ValueError(f"kernel {name!r} has no option {extra[0]!r}; its options: {options_known}.")
    return make(length_scale, **options)
