"""Exact sparse factors of M-matrices, and the counts and sums that a posterior on a graph needs of its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from discretion.gp.dense import FactorisationError
from discretion.gp.selected import inverse_diagonal

if TYPE_CHECKING:
    from discretion.gp.lattice import Lattice

__all__ = ["Factor", "Statistics", "node_statistics"]

Array = NDArray[np.float64]
Sparse = Any  # csr_array: SciPy has no types


@dataclass(frozen=True, eq=False)
class Factor:
    r"""Exact sparse factorisation ``A = Pi^T L D L^T Pi`` of a positive definite A, one for any number of paths.

    SuperLU in symmetric mode: minimum degree on the pattern of A, pivots on the diagonal. The permutations of rows and
    columns are checked to be one, and the pivots to be positive. The order depends on the pattern alone.

    Raises
    ------
    FactorisationError
        If they are not: A is not positive definite in double precision.
    """

    matrix: Any
    _lu: Any = field(init=False, repr=False)
    _root: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lu: Any = splu(
            csc_array(self.matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        pivots = lu.U.diagonal()
        if not (np.array_equal(lu.perm_r, lu.perm_c) and np.all(pivots > 0.0) and np.isfinite(pivots).all()):
            raise FactorisationError("The sparse factorisation pivoted off the diagonal: A is not positive definite.")
        object.__setattr__(self, "_lu", lu)
        object.__setattr__(self, "_root", np.sqrt(pivots))

    @property
    def width(self) -> int:
        """The most entries that a row or a column of L has."""
        lower: Sparse = csc_array(self._lu.L)
        return int(max(np.diff(lower.indptr).max(), np.bincount(lower.indices).max()))

    def variances(self) -> Array:
        """Upper bounds of the diagonal of ``(U^T D^{-1} U)^{-1}``, (N,), of the computed factor: see `gp.selected`.

        ValueError unless A is an M-matrix.
        """
        return inverse_diagonal(self._lu.U)[self._lu.perm_c]

    def solve(self, b: Array) -> Array:
        """``A^{-1} b`` for b (N,) or (N, k)."""
        return self._lu.solve(b)

    def colour(self, z: Array) -> Array:
        r"""``T z`` with ``T T^T = A^{-1}``, z (N,) or (N, k): ``T = Pi^T L^{-T} D^{-1/2} = A^{-1} Pi^T L D^{1/2}``."""
        root = self._root.reshape(-1, *[1] * (z.ndim - 1))
        return self._lu.solve((self._lu.L @ (root * z))[self._lu.perm_r])


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """PRIVATE. What the posterior needs of the records: how many lie at each node, and the sums of their responses."""

    counts: Array
    sums: Array

    def posterior(self, lattice: Lattice, ridge: float) -> tuple[Array, Factor]:
        """Mean ``A^{-1} t / r^2`` (N,) and the factor of ``A = P + diag(m) / r^2``."""
        factor = Factor(csr_array(lattice.precision + diags_array(self.counts / ridge**2)))
        return factor.solve(self.sums / ridge**2), factor


def node_statistics(node: NDArray[np.int64], response: Array, size: int) -> Statistics:
    """Counts and sums over `size` nodes. Sums of responses that are multiples of 2^-30 up to 1 are exact up to 2^23."""
    counts = np.bincount(node, minlength=size).astype(np.float64)
    return Statistics(counts, np.bincount(node, response, minlength=size).astype(np.float64))
