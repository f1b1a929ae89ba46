"""Posterior sample paths on many fixed candidates, where responses arrive one after the other at candidates.

One factorisation serves the whole run; a path then costs what a few products of matrix and vector cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import BLAS, UNIT_ROUNDOFF, FactorisationError, cholesky, ridge_floor
from discretion.gp.domain import Array, finite_points
from discretion.gp.kernels import Kernel
from discretion.gp.path import KERNEL_ROUNDING, NuggetTooSmall, mean_rounding, nugget_floor

Places = npt.NDArray[np.intp]

MARGIN = 16.0
"""The nugget is at least this multiple of the rounding of the factor."""


class CandidatePaths:
    """Independent posterior paths at all m candidates C, given responses y at some of them, with a nugget:

        f  ~  N( mean, scale^2 (k_D + nugget I) )

        mean = k_XC^T A^{-1} y,   k_D = k_CC - k_XC^T A^{-1} k_XC,   A = k_XX + ridge^2 I,
        k(x, x') = ( kernel(x, x') + nugget 1[x = x'] ) / (1 + nugget).

    The nugget comes twice: in k, whose diagonal stays 1, so that the prior has a Cholesky factor; and by itself, so
    that no value is without noise whatever was observed.

    Method (Matheron's rule): with a path g of the prior, k_CC = L L^T, g = L z, and e, xi standard normal,

        f = k_XC^T A^{-1} y + scale ( g - k_XC^T A^{-1} (g_X + ridge e) + sqrt(nugget) xi ),

    which has exactly that law (`docs/proofs/thompson.md`, Theorem 1). L is made once.

    Parameters: `kernel`; `candidates` (m, d), different from one another; `ridge` > 0; `nugget` > 0, in units of the
    prior variance, at least 16 `nugget_floor(0, m, ridge)`; `most`, the largest number of responses ever.

    Raises ValueError when a parameter is out of range (NuggetTooSmall says how large it must be); FactorisationError
    when LAPACK fails all the same.

    Cost: m^3/3 flops and 8 m^2 bytes once; a response 2 n m flops and 8 m bytes; a path m^2 + 4 n m flops.
    """

    def __init__(self, kernel: Kernel, candidates: npt.ArrayLike, ridge: float, nugget: float, most: int) -> None:
        points = finite_points(candidates, what="candidates") + 0.0  # -0.0 becomes 0.0
        m = len(points)
        if m == 0 or len(np.unique(points, axis=0)) != m:
            raise ValueError("candidates must be at least one point, and different from one another.")
        if not (0 < ridge < 1e100 and float(ridge) ** 2 >= ridge_floor(most)):
            raise ValueError(
                f"ridge must be finite, and at least {math.sqrt(ridge_floor(most)):.3g} for {most} responses."
            )
        least = MARGIN * nugget_floor(0, m, ridge)
        if not least <= nugget < 1.0:
            raise NuggetTooSmall(nugget, least, 0, m, ridge)
        self.kernel, self.points = kernel, points
        self.ridge, self.nugget, self.most = float(ridge), float(nugget), int(most)
        self.n = 0
        self._prior = np.empty((m, m), order="F")
        self._fill(self._prior.T, np.arange(m))
        cholesky(self._prior)
        self._places: Places = np.empty(most, dtype=np.intp)
        # rows of L_A, of W = L_A^{-1} k_XC, and L_A^{-1} y
        self._factor, self._cross, self._whitened = np.zeros((most, most)), np.empty((most, m)), np.empty(most)

    def __repr__(self) -> str:
        return f"CandidatePaths({self.kernel!r}, {self.size} candidates, ridge={self.ridge!r}, nugget={self.nugget!r})"

    @property
    def size(self) -> int:
        """Number of candidates m."""
        return len(self.points)

    def append(self, places: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """Add responses y (q,) at the candidates of these places (q,), which may repeat.

        Raises ValueError when they do not fit, are not finite or are more than `most` in all.
        """
        new, responses = np.asarray(places), np.asarray(y, dtype=np.float64)
        if new.ndim != 1 or new.dtype.kind not in "iu" or not ((new >= 0) & (new < self.size)).all():
            raise ValueError(f"places must be whole numbers from 0 to {self.size - 1}, one for each response.")
        n, total = self.n, self.n + len(new)
        if responses.shape != new.shape or not np.isfinite(responses).all():
            raise ValueError(f"y must hold {len(new)} finite number(s), one for each place.")
        if total > self.most:
            raise ValueError(f"These paths hold at most {self.most} responses, not {total}; make them anew for more.")
        rows = np.empty((len(new), self.size))
        self._fill(rows, new)
        # rows [B, C] of the factor of A, then W_new = C^{-1} (k_new,C - B W) and b_new = C^{-1} (y_new - B b)
        known = _solved(self._factor[:n, :n], rows[:, self._places[:n]].T).T
        own = np.asfortranarray(rows[:, new])
        np.einsum("ii->i", own)[...] += self.ridge**2
        own -= known @ known.T
        cholesky(own)
        rows -= known @ self._cross[:n]
        whitened = responses - known @ self._whitened[:n]
        self._places[n:total] = new
        self._factor[n:total, :n], self._factor[n:total, n:total] = known, np.tril(own)
        self._cross[n:total] = _solved(own, rows)
        self._whitened[n:total] = _solved(own, whitened[:, None])[:, 0]
        self.n = total

    def mean(self) -> Array:
        """The posterior mean at the candidates, (m,)."""
        return self._cross[: self.n].T @ self._whitened[: self.n]

    def draw(self, scale: float, normal: Callable[[tuple[int, int]], Array], paths: int = 1) -> Array:
        """Values of independent paths, (paths, m); `normal(shape)` gives independent standard normals.

        Raises ValueError for a scale that is not positive and finite; FactorisationError when a value is not finite.
        """
        if not 0 < scale < math.inf:
            raise ValueError("scale must be a positive finite number.")
        n = self.n
        g = np.column_stack([BLAS.dtrmv(self._prior, z, lower=1) for z in normal((paths, self.size))])
        observed = g[self._places[:n]] + self.ridge * normal((paths, n)).T
        both = np.column_stack([self._whitened[:n], _solved(self._factor[:n, :n], observed)])
        weighed = self._cross[:n].T @ both  # the mean, and what the rule takes from g
        noise = g - weighed[:, 1:] + math.sqrt(self.nugget) * normal((paths, self.size)).T
        values = weighed[:, 0] + scale * noise.T
        if not np.isfinite(values).all():
            raise FactorisationError("A sample path is not finite in double precision; nothing was returned.")
        return values

    def _fill(self, out: Array, places: Places) -> None:
        """k between the candidates of these places and all, into a C-contiguous array (q, m)."""
        self.kernel.fill(out, self.points[places], self.points)
        out /= 1.0 + self.nugget
        out[np.arange(len(places)), places] = 1.0


def _solved(L: Array, B: Array) -> Array:
    """L^{-1} B for a lower triangular L."""
    return BLAS.dtrsm(1.0, L, B, lower=1) if B.size else B


def candidate_rounding(n: int, m: int, ridge: float, nugget: float, response_bound: float) -> float:
    """Bound on how far rounding moves the means of two response vectors apart that differ in one response.

    The computed means at the m candidates differ by W^T (y - y') + rho, W = A^{-1} k_XC for the kernel L L^T of the
    factor as computed, for n responses with |y_i| <= `response_bound`. This bounds ||rho||, and what the diagonal of
    L L^T, which is not quite 1, adds to the first term, both seen under noise of variance `nugget`. inf when the sizes
    are beyond double precision.

    Statement and proof: `docs/proofs/thompson.md`, Theorem 3.
    """
    count = (m + 16) * UNIT_ROUNDOFF
    if count > 1.0 / 64.0:
        return math.inf
    entry = count / (1.0 - 2.0 * count) + 2.0 * KERNEL_ROUNDING  # of L L^T and of a kernel value computed again
    mismatch = entry / ridge**2 * (math.sqrt(n * m) + n * math.sqrt(m) / (2.0 * ridge))
    moved = 2.0 * mean_rounding(n, m, ridge, response_bound) + 2.0 * response_bound * mismatch
    return math.hypot(moved, 2.0 * response_bound * math.sqrt(entry * nugget))
