"""The exact posterior of a Gaussian process by Cholesky factorisation."""

from __future__ import annotations

import math
from copy import copy
from typing import Self

import numpy as np
import numpy.typing as npt

from discretion.gp.domain import Array, as_points, finite_points
from discretion.gp.factor import (
    BLAS,
    LAPACK,
    Block,
    FactorisationError,
    cholesky,
    eliminate,
    factored,
    mirror,
    solve,
    solve_right,
    solve_transposed,
    subtract_gram,
    subtract_product,
    tiles,
)
from discretion.gp.kernels import Kernel

__all__ = [
    "BLAS",
    "LAPACK",
    "UNIT_ROUNDOFF",
    "DensePosterior",
    "FactorisationError",
    "checked_responses",
    "cholesky",
    "mirror",
    "ridge_floor",
    "solve_right",
    "subtract_gram",
    "subtract_product",
]

UNIT_ROUNDOFF = 2.0**-53
_TILE = 1 << 20  # entries of one tile of the test kernel, 8 MB


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

    Cost: n^3/3 flops, n^2/2 evaluations of the kernel and 4 n (n + 1024) bytes; `covariance` adds n^2 m + n m^2 flops,
    an m x n and an m x m array. `with_responses` costs 2 n^2 flops.
    Source: Rasmussen and Williams 2006, Algorithm 2.1; Maciazek 2026, Section 2.
    """

    def __init__(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> None:
        if not (0 < ridge < 1e100):
            raise ValueError("ridge must be a positive finite number (below 1e100).")
        if not (0 <= jitter < 1e100):
            raise ValueError("jitter must be a finite number, 0 or more (below 1e100).")
        points = as_points(X)
        n = len(points)
        diagonal = float(ridge) ** 2 + float(jitter)
        if diagonal < ridge_floor(n):
            raise ValueError(
                f"ridge^2 + jitter = {diagonal:.3g} is too small for {n} points in double precision: "
                f"give at least {ridge_floor(n):.3g}."
            )
        points = finite_points(points)
        responses = checked_responses(y, n)

        self.kernel = kernel
        self.n, self.dimension = points.shape
        self.ridge, self.jitter = float(ridge), float(jitter)
        self.effective_ridge = math.sqrt(diagonal)
        self.points = points.copy()
        blocks: list[Block] = []  # of L, A = L L^T
        for start, stop in tiles(n):
            rows = np.empty((stop - start, stop), order="F")
            kernel.fill(rows.T, self.points[:stop], self.points[start:stop])
            np.einsum("ii->i", rows[:, start:])[...] += diagonal
            blocks.append(factored(rows, blocks))
        self.blocks = tuple(blocks)
        self._respond(responses)

    def _respond(self, responses: Array) -> None:
        """L^{-1} y and A^{-1} y."""
        self.whitened: Array = solve(self.blocks, responses)
        if not np.isfinite(self.whitened).all():
            raise FactorisationError("The responses are too large for double precision; nothing was computed.")
        self.weights: Array = solve_transposed(self.blocks, self.whitened)

    def with_responses(self, y: npt.ArrayLike) -> Self:
        """The posterior given other responses y (n,) at the same points; the factor is shared, not copied."""
        other = copy(self)
        other._respond(checked_responses(y, self.n))
        return other

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
        eliminate(out, self.blocks)
        return out


def checked_responses(y: npt.ArrayLike, n: int) -> Array:
    """y as n finite numbers; ValueError, without a value, where it is not."""
    responses = as_points(np.reshape(y, (-1, 1)), what="y")[:, 0]
    if len(responses) != n or np.ndim(y) != 1:
        raise ValueError(f"y must have shape ({n},), one response for each row of X.")
    if not np.isfinite(responses).all():
        raise ValueError("y holds NaN or infinite responses; remove or clip them by a fixed rule first.")
    return responses


def _all_finite(result: Array) -> Array:
    if not np.isfinite(result).all():
        raise FactorisationError("The posterior is not finite in double precision; nothing was returned.")
    return result
