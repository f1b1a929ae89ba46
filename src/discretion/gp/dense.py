"""The exact posterior of a Gaussian process by Cholesky factorisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from discretion.gp.domain import Array, as_points, finite_points
from discretion.gp.kernels import Kernel

UNIT_ROUNDOFF = 2.0**-53
BLAS: Any = linalg.blas  # in place on F-contiguous arrays, hence the layout below
LAPACK: Any = linalg.lapack
_TILE = 1 << 20  # entries of one tile of the test kernel, 8 MB


class FactorisationError(FloatingPointError):
    """A Cholesky factorisation broke down, or a result is not finite; nothing was returned.

    It is never repeated with other constants: those belong to the caller and are fixed beforehand.
    """


def ridge_floor(n: int) -> float:
    """Smallest ridge^2 + jitter accepted for n points: 16 u n (n + 64), u = 2^-53.

    Above it the Cholesky factorisation of K + (ridge^2 + jitter) I succeeds in float64 for every X and every
    kernel here (`docs/proofs/floor-of-noise.md`, Lemma 1; after Higham 2002, Theorems 10.3 and 10.7).
    """
    return 16.0 * UNIT_ROUNDOFF * n * (n + 64.0)


class DensePosterior:
    """Posterior of a Gaussian process with kernel k given responses y at X, A = K + (ridge^2 + jitter) I:

        mean(t)          = k_X(t)^T A^{-1} y
        covariance(t, s) = k(t, s) - k_X(t)^T A^{-1} k_X(s)

    Parameters: `kernel`; `ridge` > 0, in units of the prior standard deviation; X (n, d); y (n,);
    `jitter` >= 0, a constant chosen by the caller that simply adds to ridge^2 (never enlarged, no second
    attempt).  n = 0 is the prior.  Repeated rows of X are ordinary data.

    Raises ValueError when ridge^2 + jitter is below `ridge_floor(n)` (before any entry of X is looked at), or
    when X or y are not finite numbers of fitting shape; FactorisationError when LAPACK fails all the same.

    Cost: n^3/3 flops and one n x n array; `covariance` adds n^2 m + n m^2 flops and an m x n array.
    Source: Rasmussen and Williams 2006, Algorithm 2.1; Maciazek 2026, Section 2.
    """

    def __init__(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> None:
        if not (0 < ridge < 1e100):
            raise ValueError("ridge must be a positive finite number (below 1e100)")
        if not (0 <= jitter < 1e100):
            raise ValueError("jitter must be a finite number, 0 or more (below 1e100)")
        points = as_points(X)
        n = len(points)
        diagonal = float(ridge) ** 2 + float(jitter)
        if diagonal < ridge_floor(n):
            raise ValueError(
                f"ridge^2 + jitter = {diagonal:.3g} is too small for {n} points in double precision: "
                f"give at least {ridge_floor(n):.3g}"
            )
        points = finite_points(points)
        responses = as_points(np.reshape(y, (-1, 1)), what="y")[:, 0]
        if len(responses) != n or np.ndim(y) != 1:
            raise ValueError(f"y must have shape ({n},), one response for each row of X")
        if not np.isfinite(responses).all():
            raise ValueError("y holds NaN or infinite responses; remove or clip them by a fixed rule first")

        self.kernel = kernel
        self.n, self.dimension = points.shape
        self.ridge, self.jitter = float(ridge), float(jitter)
        self.effective_ridge = math.sqrt(diagonal)
        self.points = points.copy()
        self.factor: Array = np.empty((n, n), order="F")  # L, lower triangle; A = L L^T
        kernel.fill(self.factor.T, self.points, self.points)
        np.einsum("ii->i", self.factor)[...] += diagonal
        cholesky(self.factor)
        # L^{-1} y and A^{-1} y
        self.whitened: Array = responses.copy()
        if n:
            self.whitened = BLAS.dtrsv(self.factor, self.whitened, lower=1, overwrite_x=1)
        if not np.isfinite(self.whitened).all():
            raise FactorisationError("the responses are too large for double precision; nothing was computed")
        self.weights: Array = BLAS.dtrsv(self.factor, self.whitened, lower=1, trans=1) if n else np.empty(0)

    def __repr__(self) -> str:
        return f"DensePosterior({self.kernel!r}, ridge={self.ridge!r}, jitter={self.jitter!r}, n={self.n})"

    def mean(self, T: npt.ArrayLike) -> Array:
        """Posterior mean at the rows of T (m, d): shape (m,)."""
        T = finite_points(T, self.dimension, "T")
        mean = np.zeros(len(T))
        rows = max(1, _TILE // max(1, self.n))
        for start in range(0, len(T) if self.n else 0, rows):
            mean[start : start + rows] = self.kernel(T[start : start + rows], self.points) @ self.weights
        return _all_finite(mean)

    def covariance(self, T: npt.ArrayLike) -> Array:
        """Posterior covariance matrix at the rows of T (m, d): shape (m, m), symmetric, without nugget."""
        T = finite_points(T, self.dimension, "T")
        covariance = np.empty((len(T), len(T)), order="F")
        self.kernel.fill(covariance.T, T, T)
        subtract_gram(covariance, self.whiten(np.empty((len(T), self.n), order="F"), T))
        return _all_finite(mirror(covariance))

    def whiten(self, out: Array, T: Array) -> Array:
        """Write k(T, X) L^{-T} into `out`, an F-contiguous array of shape (m, n), and return it."""
        self.kernel.fill(out.T, self.points, T)
        solve_right(out, self.factor)
        return out


def _all_finite(result: Array) -> Array:
    if not np.isfinite(result).all():
        raise FactorisationError("the posterior is not finite in double precision; nothing was returned")
    return result


def _written(target: Array, result: Array) -> None:
    # f2py hands back the array itself unless it had to copy
    if result is not target:
        target[...] = result


def cholesky(A: Array) -> None:
    """Overwrite the lower triangle of the F-contiguous A by its Cholesky factor; the upper stays as it is."""
    if len(A):
        factor, info = LAPACK.dpotrf(A, lower=1, clean=0, overwrite_a=1)
        if info != 0 or not np.isfinite(np.einsum("ii->i", factor)).all():
            raise FactorisationError("a Cholesky factorisation broke down; nothing was returned")
        _written(A, factor)


def solve_right(B: Array, L: Array) -> None:
    """B <- B L^{-T} for a lower triangular L, both F-contiguous, in place."""
    if B.size:
        _written(B, BLAS.dtrsm(1.0, L, B, side=1, lower=1, trans_a=1, overwrite_b=1))


def subtract_gram(S: Array, B: Array) -> None:
    """Lower triangle of S <- S - B B^T, both F-contiguous, in place."""
    if B.size:
        _written(S, BLAS.dsyrk(-1.0, B, beta=1.0, c=S, lower=1, overwrite_c=1))


def subtract_product(C: Array, A: Array, B: Array) -> None:
    """C <- C - A B^T, all F-contiguous, in place."""
    if C.size and A.size:
        _written(C, BLAS.dgemm(-1.0, A, B, beta=1.0, c=C, trans_b=1, overwrite_c=1))


def mirror(S: Array, tile: int = 256) -> Array:
    """Copy the lower triangle of S onto the upper one, in place, and return S."""
    for start in range(0, len(S), tile):
        stop = start + tile
        S[:start, start:stop] = S[start:stop, :start].T
        corner = S[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return S
