"""The exact posterior of a Gaussian process that is given its responses a few at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import DensePosterior, FactorisationError, ridge_floor
from discretion.gp.domain import as_points, finite_points
from discretion.gp.factor import BLAS, appended, factored, solve_transposed
from discretion.gp.kernels import Kernel


class GrowingPosterior(DensePosterior):
    """`DensePosterior` to which responses are appended: rows are added to the Cholesky factor of A = K + ridge^2 I.

    Parameters: `kernel`; `ridge` > 0; `dimension` of a point; `most`, the largest number of responses ever.

    It begins as the prior, and after `append` is what `DensePosterior` would be for all responses so far, with the same
    bounds of rounding (`docs/proofs/floor-of-noise.md` allows rows to be added in any number of batches).

    Raises ValueError when ridge^2 is below `ridge_floor(most)`.

    Cost of appending q responses to n: q (n + q)^2 flops.
    """

    def __init__(self, kernel: Kernel, ridge: float, dimension: int, most: int) -> None:
        if float(ridge) ** 2 < ridge_floor(most):
            raise ValueError(
                f"ridge^2 = {ridge**2:.3g} is too small for {most} points in double precision: give at least "
                f"{ridge_floor(most):.3g}."
            )
        super().__init__(kernel, ridge, np.empty((0, dimension)), np.empty(0))
        self.most = int(most)

    def append(self, X: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """Add responses y (q,) at the rows of X (q, d).

        Raises ValueError when they do not fit, are not finite or are more than `most` in all; FactorisationError when
        LAPACK fails. After an error the posterior is as it was.
        """
        points = finite_points(X, self.dimension)
        n, q = self.n, len(points)
        responses = as_points(np.reshape(y, (-1, 1)), what="y")[:, 0]
        if responses.shape != (q,) or not np.isfinite(responses).all():
            raise ValueError(f"y must hold {q} finite number(s), one response for each row of X.")
        if n + q > self.most:
            raise ValueError(f"This posterior holds at most {self.most} responses, not {n + q}; make it anew for more.")
        if not q:
            return
        rows = np.empty((q, n + q), order="F")
        everywhere = np.concatenate([self.points, points])
        self.kernel.fill(rows.T, everywhere, points)
        np.einsum("ii->i", rows[:, n:])[...] += self.effective_ridge**2
        block = factored(rows, self.blocks)
        own = BLAS.dtrsv(block.own, responses - block.before @ self.whitened, lower=1)
        blocks, whitened = appended(self.blocks, block), np.concatenate([self.whitened, own])
        weights = solve_transposed(blocks, whitened)
        if not np.isfinite(weights).all():
            raise FactorisationError("The responses are too large for double precision; nothing was computed.")
        self.points, self.n = everywhere, n + q
        self.blocks, self.whitened, self.weights = blocks, whitened, weights
