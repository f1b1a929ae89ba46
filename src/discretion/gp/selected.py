r"""Variances of a sparse model without its covariance: the entries of the inverse on the pattern of its factor.

With ``A~ = N D N^T``, N unit lower, and ``Z = A~^{-1}``

.. math::

    Z_{ij} = -\sum_{k > i} N_{ki} Z_{kj} \quad (j > i), \qquad Z_{ii} = \frac1{D_{ii}} - \sum_{k > i} N_{ki} Z_{ki}

and what row i needs of Z lies among the nodes of column i of N. Of an M-matrix ``-N >= 0`` off the diagonal, so that no
sum cancels. Source: K. Takahashi, J. Fagan, M.-S. Chin (1973); proof of the bound: ``docs/proofs/lattice-floor.md``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["inverse_diagonal"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]

_UNIT = 2.0**-53


def inverse_diagonal(U: Any) -> Array:
    """Upper bounds of the diagonal of ``(U^T D^{-1} U)^{-1}``, D the diagonal of U; to a relative 4 (w + 4) N 2^-53.

    Args:
        U: sparse (N, N), upper triangular, positive on the diagonal, which is in every row, and at most 0 elsewhere.

    Raises:
        ValueError: it is not.
    """
    upper: Any = csr_array(U, dtype=np.float64, copy=True)
    upper.sum_duplicates()  # and sorts
    size, pivots = upper.shape[0], upper.diagonal()
    start, column, value = upper.indptr, upper.indices, upper.data
    if not (np.isfinite(value).all() and np.all(pivots > 0.0) and np.array_equal(column[start[:-1]], np.arange(size))):
        raise ValueError("A factor is upper triangular and finite, with positive pivots.")
    if np.any(np.delete(value, start[:-1]) > 0.0):
        raise ValueError("The factor of an M-matrix has no positive entries off the diagonal.")

    later = _later(start, column)
    found, widest = np.full(size, np.nan), 1
    # Of each node the inverse on itself and what its column reaches; a node's own waits until its children had it.
    waiting: list[tuple[int, Places, Array]] = []
    children: list[list[int]] = [[] for _ in range(size)]
    for i, reached in enumerate(later):
        if reached.size:
            children[int(reached[0])].append(i)
        else:
            waiting.append((i, reached, np.empty((0, 0))))
    while waiting:
        i, nodes, known = waiting.pop()
        reached = later[i]
        places = np.searchsorted(nodes, reached)
        block = np.zeros((reached.size + 1, reached.size + 1))
        block[1:, 1:] = known[places[:, None], places]
        row = slice(start[i] + 1, start[i + 1])
        weights = np.zeros(reached.size)
        weights[np.searchsorted(reached, column[row])] = value[row] / -pivots[i]
        block[0, 1:] = block[1:, 0] = weights @ block[1:, 1:]
        block[0, 0] = 1.0 / pivots[i] + weights @ block[1:, 0]
        found[i], widest = block[0, 0], max(widest, reached.size + 1)
        own = np.append(i, reached)
        waiting.extend((child, own, block) for child in children[i])
    return found * (1.0 + 4.0 * (widest + 4) * size * _UNIT)


def _later(start: NDArray[Any], column: NDArray[Any]) -> list[Places]:
    """Of each node the later ones that its column of N may reach, sorted: its own, and those of the nodes before it.

    So what a node reaches beyond the first, that first one reaches too, also where entries of U are 0.
    """
    later = [column[low + 1 : high].astype(np.intp) for low, high in pairwise(start)]
    for reached in later:
        if reached.size > 1:
            first = int(reached[0])
            later[first] = np.union1d(later[first], reached[1:])
    return later
