"""Kernels whose Gaussian process has a gradient: the derivatives that its posterior needs.

With Lambda = diag(1 / length_scale^2), D = x - z and r^2 = D' Lambda D, a stationary kernel here is

    k = phi(r),    grad_x k = -h1(r) Lambda D,    grad_x grad_z' k = h1(r) Lambda - h2(r) Lambda D D' Lambda

with closed forms of h1 and h2 that have no 0/0 at r = 0. The signal variance is the unit in which nuggets, traces and
squared RKHS norms are counted, so kernels have none.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from discretion.gp import RBF, Kernel, Matern32, Matern52, RationalQuadratic
from discretion.gp.domain import LengthScale, scales_per_axis

__all__ = ["GradientKernel", "Polynomial", "RoughKernel", "Stationary", "gradient_kernel"]

Floats = NDArray[np.float64]

_TINY = 1e-150


class RoughKernel(UserWarning):
    """The convergence theory asks for a kernel that is four times differentiable, and this one is not."""


class GradientKernel(ABC):
    """A kernel k with the derivatives of which the posterior of the gradient is made. X is (n, d), Z is (m, d)."""

    @abstractmethod
    def scales(self, dimension: int) -> Floats:
        """The length scale of each axis, shape (d,)."""

    @abstractmethod
    def value(self, X: Floats, Z: Floats) -> Floats:
        """k(x_i, z_j), shape (n, m)."""

    @abstractmethod
    def gradient(self, x: Floats, Z: Floats) -> Floats:
        """Derivative of k(x, z_j) in x, shape (m, d), for one x of shape (d,)."""

    @abstractmethod
    def cross(self, X: Floats, Z: Floats) -> Floats:
        """Second derivatives of k(x_i, z_j), one in x (third axis) and one in z (last), shape (n, m, d, d)."""

    @abstractmethod
    def cross_product(self, x: Floats, Z: Floats, W: Floats) -> Floats:
        """The derivative of sum_a W_ja dk(x, z_j)/dx_a in z_j, shape (m, d): `cross(x, Z)` against the rows of W."""

    @abstractmethod
    def gradient_sum(self, X: Floats, Z: Floats, weights: Floats) -> Floats:
        """sum_j weights_ij dk(x_i, z_j)/dx_i, shape (n, d), without an array of shape (n, m, d)."""

    def prior(self, x: Floats) -> Floats:
        """P(x), the prior covariance of the gradient at x, shape (d, d)."""
        return self.cross(x[None], x[None])[0, 0]


@lru_cache(maxsize=256)
def _scales(length_scale: LengthScale, dimension: int) -> Floats:
    """One length scale for each axis; ValueError if their number does not fit."""
    scales = scales_per_axis(length_scale, dimension) * np.ones(dimension)
    scales.flags.writeable = False
    return scales


def _lengths(E: Floats) -> Floats:
    """The lengths of the vectors along the last axis."""
    return np.sqrt(np.einsum("...d,...d->...", E, E)).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Stationary(GradientKernel):
    """A stationary kernel of `discretion.gp`: RBF, Matern 5/2, Matern 3/2 (with a warning) or rational quadratic.

        RBF                  phi = h1 = h2 = e^(-r^2/2)
        Matern 5/2, q=sqrt5 r    phi = (1 + q + q^2/3) e^-q,   h1 = (5/3)(1 + q) e^-q,   h2 = (25/3) e^-q
        Matern 3/2, q=sqrt3 r    phi = (1 + q) e^-q,           h1 = 3 e^-q,              h2 = 3 sqrt3 e^-q / r
        rational quadratic, u = 1 + r^2/(2a)    phi = u^-a,    h1 = u^(-a-1),            h2 = (1 + 1/a) u^(-a-2)

    Raises:
        ValueError: another kernel; the exponential kernel's process has no gradient.
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, RBF | Matern52 | Matern32 | RationalQuadratic):
            raise ValueError(
                f"The process of the kernel {self.kernel.name!r} has no gradient. Use RBF, Matern52, "
                "RationalQuadratic, Matern32 (rough) or Polynomial."
            )
        if isinstance(self.kernel, Matern32):
            warnings.warn(
                "Matern 3/2 is not four times differentiable, so the convergence theory does not cover it; "
                "Matern52 or RBF are safer.",
                RoughKernel,
                stacklevel=4,
            )

    def scales(self, dimension: int) -> Floats:
        return _scales(self.kernel.length_scale, dimension)

    def _radial(self, r: Floats) -> tuple[Floats, Floats]:
        """h1 and h2 at r."""
        kernel = self.kernel
        if isinstance(kernel, RBF):
            h = np.exp(-0.5 * r * r)
            return h, h
        if isinstance(kernel, Matern52):
            q = math.sqrt(5.0) * r
            decay = np.exp(-q)
            return (5.0 / 3.0) * (1.0 + q) * decay, (25.0 / 3.0) * decay
        if isinstance(kernel, Matern32):
            decay = np.exp(-math.sqrt(3.0) * r)
            near = r < _TINY  # where D D'/r is 0 to double precision
            return 3.0 * decay, np.where(near, 0.0, 3.0 * math.sqrt(3.0) * decay / np.where(near, 1.0, r))
        assert isinstance(kernel, RationalQuadratic)
        a = kernel.alpha
        u = 1.0 + r * r / (2.0 * a)
        return u ** (-a - 1.0), (1.0 + 1.0 / a) * u ** (-a - 2.0)

    def _towards(self, x: Floats, Z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Length scales l, E = (x - z_j) / l, and h1, h2 at r = |E|; x is one point."""
        l = self.scales(x.size)
        E = (x - Z) / l
        return l, E, *self._radial(_lengths(E))

    def value(self, X: Floats, Z: Floats) -> Floats:
        return self.kernel(X, Z)

    def gradient(self, x: Floats, Z: Floats) -> Floats:
        l, E, h1, _ = self._towards(x, Z)
        return -h1[:, None] * E / l

    def cross(self, X: Floats, Z: Floats) -> Floats:
        l = self.scales(X.shape[1])
        E = (X[:, None, :] - Z[None, :, :]) / l
        h1, h2 = self._radial(_lengths(E))
        scaled = h1[..., None, None] * np.eye(l.size) - h2[..., None, None] * E[..., :, None] * E[..., None, :]
        return scaled / (l[:, None] * l)

    def cross_product(self, x: Floats, Z: Floats, W: Floats) -> Floats:
        l, E, h1, h2 = self._towards(x, Z)
        V = W / l
        return (h1[:, None] * V - (h2 * np.einsum("jd,jd->j", E, V))[:, None] * E) / l

    def gradient_sum(self, X: Floats, Z: Floats, weights: Floats) -> Floats:
        l = self.scales(X.shape[1])
        origin = Z.mean(axis=0)  # differences are small against the coordinates
        X, Z = (X - origin) / l, (Z - origin) / l
        pull = weights * self._radial(np.asarray(cdist(X, Z), dtype=np.float64))[0]
        return (pull @ Z - pull.sum(axis=1)[:, None] * X) / l


@dataclass(frozen=True)
class Polynomial(GradientKernel):
    """k(x, z) = (x' Lambda z + offset)^degree: its functions are the polynomials of that degree.

    With degree 2 the gradient of any quadratic is known exactly after (d + 1)(d + 2)/2 points in general position. The
    origin matters: it is the middle of the search space. The prior covariance of the gradient grows with the distance
    from it, so compare traces with `prior` at the same point only. `length_scale`, one number or one for each axis,
    makes Lambda: 1 / length_scale^2 on its diagonal.

    Raises:
        ValueError: degree below 1 or offset negative.
    """

    degree: int = 2
    offset: float = 1.0
    length_scale: LengthScale = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or int(self.degree) != self.degree or self.degree < 1:
            raise ValueError(f"degree must be a whole number of at least 1; got {self.degree!r}.")
        if not (math.isfinite(self.offset) and self.offset >= 0):
            raise ValueError(f"offset must be a finite number of at least 0; got {self.offset!r}.")
        object.__setattr__(self, "length_scale", RBF(self.length_scale).length_scale)  # checked

    def scales(self, dimension: int) -> Floats:
        return _scales(self.length_scale, dimension)

    def _powers(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        """u^p, p u^(p-1) and p (p-1) u^(p-2)."""
        p = self.degree
        second = p * (p - 1) * u ** (p - 2) if p > 1 else np.zeros_like(u)
        return u**p, p * u ** (p - 1), second

    def _inner(self, X: Floats, Z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Scaled X and Z, the length scales, and u = x' Lambda z + offset."""
        l = self.scales(X.shape[1])
        X, Z = X / l, Z / l
        return X, Z, l, X @ Z.T + self.offset

    def value(self, X: Floats, Z: Floats) -> Floats:
        return self._powers(self._inner(X, Z)[-1])[0]

    def gradient(self, x: Floats, Z: Floats) -> Floats:
        _, Z, l, u = self._inner(x[None], Z)
        return self._powers(u[0])[1][:, None] * Z / l

    def cross(self, X: Floats, Z: Floats) -> Floats:
        X, Z, l, u = self._inner(X, Z)
        _, first, second = self._powers(u)
        scaled = first[..., None, None] * np.eye(l.size)
        scaled = scaled + second[..., None, None] * Z[None, :, :, None] * X[:, None, None, :]
        return scaled / (l[:, None] * l)

    def cross_product(self, x: Floats, Z: Floats, W: Floats) -> Floats:
        X, Z, l, u = self._inner(x[None], Z)
        _, first, second = self._powers(u[0])
        V = W / l
        return (first[:, None] * V + (second * np.einsum("jd,jd->j", Z, V))[:, None] * X) / l

    def gradient_sum(self, X: Floats, Z: Floats, weights: Floats) -> Floats:
        _, Z, l, u = self._inner(X, Z)
        return (weights * self._powers(u)[1]) @ Z / l


def gradient_kernel(kernel: Any) -> GradientKernel:
    """The kernel with its derivatives: a `Polynomial`, or a kernel of `discretion.gp` whose process has a gradient.

    Raises:
        ValueError: none of these. A kernel is public: it is not fitted to private evaluations.
    """
    if isinstance(kernel, GradientKernel):
        return kernel
    if isinstance(kernel, Kernel):
        return Stationary(kernel)
    raise ValueError(
        f"kernel must be RBF, Matern52, Matern32, RationalQuadratic or Polynomial; got {kernel!r}. It cannot be fitted "
        "to private evaluations, which would void the guarantee; learn_kernel=True fits it to what was released."
    )
