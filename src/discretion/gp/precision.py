r"""Condition (Q) of ``docs/proofs/lattice-maximum-principle.md``: which precisions have a maximum principle, checked.

Symmetric, ``Q_ij <= 0`` off the diagonal, row sums ``k = Q 1 >= 0`` (the *killing*), and some ``k_i > 0`` in every
connected component. Everything is bounded so that rounding errs on the safe side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

from discretion.gp.sparse import Factor

__all__ = [
    "DENSE",
    "NotAPrior",
    "checked_precision",
    "factor_rounding",
    "inverse_columns",
    "largest_variance",
    "raised",
    "row_sum_bound",
]

Array = NDArray[np.float64]
Sparse = Any  # csr_array: SciPy has no types

DENSE = 4_000
"""Graphs of at most so many nodes have columns of their dense covariance computed where an account needs them."""

_LEAST_ROW_SUM = 1e-14
_LEAST_KILLING = 1e-10
_RAISE = 2e-14
_LONG_ROW = 60
_UP = 1.0 + 1e-9
_UNIT = 2.0**-53
_BLOCK = 512


class NotAPrior(ValueError):
    """The precision is not one for which the maximum principle holds, so there is no account; says why."""


# --- condition (Q) --------------------------------------------------------------------------------


def checked_precision(Q: Any) -> tuple[Sparse, Array]:
    """Q as a sparse array, and its row sums where they are not below 0, by the rules of the proof note."""
    matrix: Sparse = csr_array(Q, dtype=np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    size = matrix.shape[0]
    if matrix.ndim != 2 or matrix.shape[1] != size or size == 0:
        raise NotAPrior(f"The precision must be a square matrix, one row for each node; got {matrix.shape}.")
    if not np.isfinite(matrix.data).all():
        raise NotAPrior("The precision must be finite.")
    if (matrix != matrix.T).nnz:
        raise NotAPrior("The precision must be symmetric, exactly: take (Q + Q.T) / 2.")
    entries = matrix.tocoo()
    if np.any(entries.data[entries.row != entries.col] > 0.0):
        raise NotAPrior(
            "The precision has positive entries off the diagonal, so the posterior mean may exceed the responses and "
            "there is no account. First-order models (CAR, screened Laplacian) qualify; Matern fields of smoothness "
            "1 and more, thin plates and the planar exponential kernel do not."
        )
    size_of_row = np.abs(matrix).sum(axis=1)
    sums = np.asarray(matrix.sum(axis=1), dtype=np.float64)
    for row in np.flatnonzero(np.diff(matrix.indptr) >= _LONG_ROW):
        sums[row] = math.fsum(matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]])
    low = np.flatnonzero(sums < -_LEAST_ROW_SUM * size_of_row)
    if low.size:
        raise NotAPrior(
            f"The precision has negative row sums at {low.size} nodes (first node {low[0]}), so a node may be pulled "
            "beyond its neighbours and the maximum principle is false. Constant-variance trees and rescaled "
            "precisions fail here; kappa2 I + Laplacian does not."
        )
    killing = np.maximum(sums, 0.0)
    count, component = connected_components(matrix, directed=False)
    killed = np.bincount(component, killing, minlength=count)
    if np.any(killed < _LEAST_KILLING * float(matrix.diagonal().max())):
        raise NotAPrior(
            "A connected component has no killing: its row sums are all 0 (an intrinsic CAR), its level has infinite "
            "prior variance, and no proper prior exists without records. Add kappa2 > 0 to the diagonal, or use a "
            "proper CAR, D - a W with a < 1."
        )
    return matrix, killing


def raised(matrix: Sparse) -> Sparse:
    """``Q_ii + 2e-14 sum_j |Q_ij|``: a public change of the model, after which exact row sums exceed computed ones."""
    return csr_array(matrix + diags_array(_RAISE * np.abs(matrix).sum(axis=1)))


def row_sum_bound(matrix: Sparse, factor: Factor) -> Array:
    """``h >= Sigma 1``, checked by ``Q h >= 1``."""
    h = factor.solve(np.ones(matrix.shape[0])) * (1.0 + 1e-6)
    longest = int(np.diff(matrix.indptr).max())
    slack = 1.2e-16 * (longest + 2) * (np.abs(matrix) @ np.abs(h)).max()
    if not float((matrix @ h).min()) - slack >= 1.0:
        raise NotAPrior("The precision is too near to a singular one for double precision; raise its killing.")
    return h


def inverse_columns(matrix: Sparse, factor: Factor, columns: NDArray[Any], row_sums: Array) -> tuple[Array, float]:
    """Columns of the inverse, and their error: ``|X - Sigma E| <= Sigma |P X - E| <= max|residual| Sigma 1``."""
    E = np.zeros((matrix.shape[0], columns.size))
    E[columns, np.arange(columns.size)] = 1.0
    X = factor.solve(E)
    largest = float(np.abs(X).max()) * float(np.abs(matrix).sum(axis=1).max()) + 1.0
    longest = int(np.diff(matrix.indptr).max())
    residual = float(np.abs(matrix @ X - E).max()) + 1.2e-16 * (longest + 2) * largest
    return X, residual * float(row_sums.max())


def factor_rounding(matrix: Sparse, factor: Factor, row_sums: Array) -> tuple[float, float]:
    r"""``(q, s)`` of a precision P and of all ``A = P + diag(m) / r^2``, m >= 0, whatever the m.

    .. math::

        q = \gamma_{w+16} N s, \qquad s = \max_i P_{ii} (\Sigma 1)_i, \qquad
        (1 - 4q) \tilde A \le A \le (1 + 4q) \tilde A \quad\text{if}\quad q s \le 1/200

    w: the most entries of a row or column of the factor, which depends on the graph alone; A~ is the precision that the
    computed factors have. Proof in ``docs/proofs/lattice-floor.md``.
    """
    work = (factor.width + 16) * _UNIT
    s = float((matrix.diagonal() * row_sums).max())
    return work / (1.0 - work) * matrix.shape[0] * s, s


def largest_variance(matrix: Sparse, columns: NDArray[Any]) -> float:
    """The largest diagonal entry of the inverse at these nodes, rounded up.

    From columns of the inverse on graphs of at most `DENSE` nodes; beyond, from its entries on the pattern of the
    factor, unless the precision is too near to a singular one for that.
    """
    factor = Factor(matrix)
    row_sums, most = row_sum_bound(matrix, factor), 0.0
    q, s = factor_rounding(matrix, factor, row_sums)
    if matrix.shape[0] > DENSE and q * s <= 1.0 / 200.0:
        return float(factor.variances()[columns].max()) / (1.0 - 4.0 * q) * _UP
    for start in range(0, columns.size, _BLOCK):
        part = columns[start : start + _BLOCK]
        X, error = inverse_columns(matrix, factor, part, row_sums)
        most = max(most, float(X[part, np.arange(part.size)].max()) + error)
    return most * _UP
