"""What a Gaussian process says of the gradient: a linear map of the evaluations, and a covariance of their locations.

With K = k(Z, Z) + s I, G the derivative of k(theta, Z) in theta and P its prior covariance,

    A = G Q,    C = P - G Q G',    Q = K^-1,  or with an unknown constant  K^-1 - K^-1 1 1' K^-1 / (1' K^-1 1).

A and C depend on locations alone, and the estimate A y is linear in the values y, so that the estimate of a mean of
losses is the mean of the estimates of each record's losses. `docs/proofs/gradient-bias.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from discretion.bayesopt.kernels import GradientKernel

__all__ = ["MEAN_NUGGET", "POINT_NUGGET", "Estimate", "GradientPosterior", "Offset"]

Floats = NDArray[np.float64]
Offset = Literal["trend", "mean", "none"]
"""What becomes of a record's constant: "trend", an unknown constant in the model; "mean", each record's losses less
their own mean; "none", the constant is part of the function."""

POINT_NUGGET = 5e-6
"""Nugget where locations are chosen: it sets the radius of the stencil."""
MEAN_NUGGET = 1e-9
"""Nugget of the map where evaluations are exact."""
_LARGEST_NUGGET = 1e-2


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimate of a gradient, as a linear map of the losses at m locations, public.

    Attributes:
        map: A, shape (d, m), what is applied to a record's losses, centring included.
        covariance: C, shape (d, d): the squared bias of A g in direction v is at most R^2 v' C v for every g of RKHS
            norm at most R, up to a constant where constants are removed.
        prior: trace of the prior covariance P, for comparison.
    """

    map: Floats
    covariance: Floats
    prior: float

    @property
    def trace(self) -> float:
        """Trace of C."""
        return float(np.trace(self.covariance))

    @property
    def largest(self) -> float:
        """Largest eigenvalue of C, the sharper certificate of bias."""
        return float(max(np.linalg.eigvalsh(self.covariance)[-1], 0.0))


class GradientPosterior:
    """The posterior of the gradient given evaluations at locations that may grow.

    Args:
        kernel: with derivatives.
        dimension: d.
        nugget: s, the variance of noise in units of the signal variance. If the factorisation fails it is raised
            tenfold, by rule; `nugget` tells.
        offset: what becomes of constants.
    """

    def __init__(self, kernel: GradientKernel, dimension: int, *, nugget: float, offset: Offset = "trend") -> None:
        self.kernel, self.nugget, self.offset = kernel, nugget, offset
        self.locations: Floats = np.empty((0, dimension))
        self._factor: Floats = np.empty((0, 0))  # lower Cholesky factor of K

    def append(self, new: Floats) -> GradientPosterior:
        """This posterior with b more locations, shape (b, d); the factor grows by b rows. Returns itself."""
        if not len(new):
            return self
        old, m = self.locations, len(self.locations)
        self.locations = np.vstack([old, new])
        corner = self.kernel.value(new, new) + self.nugget * np.eye(len(new))
        rows = (
            solve_triangular(self._factor, self.kernel.value(old, new), lower=True).T if m else np.empty((len(new), 0))
        )
        try:
            block = cholesky(corner - rows @ rows.T, lower=True)
        except LinAlgError:
            self._refactor()
            return self
        factor = np.zeros((m + len(new), m + len(new)))
        factor[:m, :m], factor[m:, :m], factor[m:, m:] = self._factor, rows, block
        self._factor = factor
        return self

    def _refactor(self) -> None:
        K = self.kernel.value(self.locations, self.locations)
        while self.nugget < _LARGEST_NUGGET * max(1.0, float(np.trace(K)) / len(K)):
            self.nugget *= 10.0
            try:
                self._factor = cholesky(K + self.nugget * np.eye(len(K)), lower=True)
                return
            except LinAlgError:
                continue
        raise FloatingPointError("The covariance of the locations is singular in double precision; move them apart.")

    def solve(self, B: Floats) -> Floats:
        """Q B, for B of shape (m, k)."""
        return precision(self._factor, B, trend=self.offset == "trend")

    def at(self, theta: Floats) -> Estimate:
        """The estimate of the gradient at theta, shape (d,)."""
        P = self.kernel.prior(theta)
        if not len(self.locations):
            return Estimate(np.zeros((theta.size, 0)), P, float(np.trace(P)))
        G = self.kernel.gradient(theta, self.locations).T
        A = self.solve(G.T).T
        if self.offset == "mean":
            A = A - A.mean(axis=1, keepdims=True)
        # For any linear map; it is P - G Q G' for the optimal one. The nugget in K only makes it larger.
        half = A @ self._factor
        C = P - A @ G.T - G @ A.T + half @ half.T
        values, vectors = np.linalg.eigh(0.5 * (C + C.T))
        return Estimate(A, (vectors * np.maximum(values, 0.0)) @ vectors.T, float(np.trace(P)))


def precision(factor: Floats, B: Floats, *, trend: bool) -> Floats:
    """Q B from the lower Cholesky factor of K; with a trend Q annihilates constants."""
    X = cho_solve((factor, True), B)
    if not trend:
        return X
    ones = cho_solve((factor, True), np.ones(len(factor)))
    X -= np.outer(ones, X.sum(axis=0)) / ones.sum()
    return X
