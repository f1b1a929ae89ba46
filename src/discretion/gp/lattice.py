r"""Gaussian Markov random fields on a public graph: a prior, node-level records and exact sparse posteriors.

The prior is ``f ~ N(0, sigma^2 Sigma)`` with ``Sigma = Q^{-1}``, and Q satisfies condition (Q) of
``docs/proofs/lattice-maximum-principle.md``: symmetric, ``Q_ij <= 0`` off the diagonal, row sums ``k = Q 1 >= 0`` (the
*killing*), and some ``k_i > 0`` in every connected component. A record observes one node with noise variance
``r^2 sigma^2``; with counts m and sums t of the records of each node

.. math::

    A = Q + \operatorname{diag}(m) / r^2, \qquad \mu = A^{-1} t / r^2, \qquad f_D \sim N(\mu, \sigma^2 A^{-1})

whatever the number of records. Q is scaled once, by a public number, so that ``Sigma_xx <= 1`` where records may lie.
Source: H. Rue, L. Held, *Gaussian Markov Random Fields* (2005).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, issparse, triu
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from scipy.spatial import KDTree

from discretion.gp.dense import FactorisationError
from discretion.gp.domain import Box

__all__ = ["DENSE", "TILINGS", "Factor", "Lattice", "NotAPrior", "Statistics", "Tiling", "node_statistics"]

Array = NDArray[np.float64]
Sparse = Any  # csr_array: SciPy has no types
Cells = NDArray[np.int64]

DENSE = 4_000
"""Graphs of at most so many nodes have their dense covariance computed where an account needs it."""

_LEAST_ROW_SUM = 1e-14
_LEAST_KILLING = 1e-10
_RAISE = 2e-14
_LONG_ROW = 60
_UP = 1.0 + 1e-9
_GREEN_POINTS = 2**18
_BLOCK = 512


class NotAPrior(ValueError):
    """The precision is not one for which the maximum principle holds, so there is no account; says why."""


# --- condition (Q) --------------------------------------------------------------------------------


def _checked_precision(Q: Any) -> tuple[Sparse, Array]:
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


def _raised(matrix: Sparse) -> Sparse:
    """``Q_ii + 2e-14 sum_j |Q_ij|``: a public change of the model, after which exact row sums exceed computed ones."""
    return csr_array(matrix + diags_array(_RAISE * np.abs(matrix).sum(axis=1)))


def _row_sum_bound(matrix: Sparse, factor: Factor) -> Array:
    """``h >= Sigma 1``, checked by ``Q h >= 1``."""
    h = factor.solve(np.ones(matrix.shape[0])) * (1.0 + 1e-6)
    slack = 1e-14 * (np.abs(matrix) @ np.abs(h)).max()
    if not float((matrix @ h).min()) - slack >= 1.0:
        raise NotAPrior("The precision is too near to a singular one for double precision; raise its killing.")
    return h


# --- infinite lattices ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """The infinite lattice ``killing I + Laplacian`` of hexagons (6 neighbours) or squares (4), unit conductances.

    A node set restricts it: the diagonal stays ``killing + degree``, so border nodes are killed more.
    """

    name: str
    killing: float

    def __post_init__(self) -> None:
        if self.name not in TILINGS:
            raise ValueError(f"A tiling is one of {', '.join(TILINGS)}; got {self.name!r}.")
        if not (math.isfinite(self.killing) and 1e-6 <= self.killing <= 1e6):
            raise ValueError(
                f"killing (kappa^2) must lie in [1e-6, 1e6]: without it the prior is improper; got {self.killing!r}."
            )

    @property
    def steps(self) -> Cells:
        """Integer coordinates of the neighbours of a cell, (degree, 2)."""
        return np.array(TILINGS[self.name], dtype=np.int64)

    @property
    def degree(self) -> int:
        """Number of neighbours of a cell."""
        return len(TILINGS[self.name])

    @property
    def frame(self) -> Array:
        """Rows: positions of cells (1, 0) and (0, 1) at spacing 1."""
        return np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)] if self.name == "hexagon" else [0.0, 1.0]])

    def green(self) -> float:
        r"""Variance ``G(0, 0)`` of the infinite lattice, rounded up: no node set has a larger one.

        Along one axis the inverse of ``a - b cos`` is ``1 / sqrt(a^2 - b^2)``; along the other the trapezoid sum is
        that of a cylinder, whose images add positive terms. With ``t = |cos(theta / 2)|``

        .. math:: (a - b)(a + b) = (\kappa^2 + 4 (1-t)(2+t)) (\kappa^2 + 4 (1+t)(2-t)) \quad\text{(hexagons)}

        and ``(kappa^2 + 4 (1-t)(1+t)) (kappa^2 + 4 (1-t)(1+t) + 4)`` (squares).
        """
        half = math.pi * np.arange(-_GREEN_POINTS // 2, _GREEN_POINTS // 2) / _GREEN_POINTS
        t, less = np.cos(half), 2.0 * np.sin(0.5 * half) ** 2
        if self.name == "hexagon":
            product = (self.killing + 4.0 * less * (2.0 + t)) * (self.killing + 4.0 * (1.0 + t) * (2.0 - t))
        else:
            gap = self.killing + 4.0 * less * (1.0 + t)
            product = gap * (gap + 4.0)
        return float(np.mean(1.0 / np.sqrt(product))) * _UP

    def cell(self, points: Array) -> Cells:
        """The cell whose centre is nearest to each point, at spacing 1."""
        if self.name == "square":
            return np.floor(points + 0.5).astype(np.int64)
        x, y = points[:, 0], points[:, 1] / math.sqrt(0.75)
        below = np.floor(y)
        rows = np.stack((below, below + 1.0))
        columns = np.floor(x - 0.5 * rows + 0.5)
        distance = (x - columns - 0.5 * rows) ** 2 + 0.75 * (y - rows) ** 2
        upper = distance[1] < distance[0]
        return np.stack((np.where(upper, columns[1], columns[0]), below + upper), axis=1).astype(np.int64)

    def within(self, lower: Array, upper: Array) -> Cells:
        """Cells whose centre is in a box grown by 0.58: the nearest centre of each point of the box is among them."""
        low, high = lower - 0.58, upper + 0.58
        rows = np.arange(math.floor(low[1] / self.frame[1, 1]), math.ceil(high[1] / self.frame[1, 1]) + 1)
        reach = float(np.abs(rows * self.frame[1, 0]).max())
        columns = np.arange(math.floor(low[0] - reach), math.ceil(high[0] + reach) + 1)
        if rows.size * columns.size > 50_000_000:
            raise ValueError("The domain holds over 50 million cells; choose a larger spacing.")
        cells = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
        centres = cells @ self.frame
        return cells[((centres >= low) & (centres <= high)).all(axis=1)].astype(np.int64)


TILINGS = {
    "hexagon": ((1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)),
    "square": ((1, 0), (0, 1), (-1, 0), (0, -1)),
}
"""Neighbours by name."""


@dataclass(frozen=True, eq=False)
class _Index:
    """Numbers of cells, by a table over their bounding box; -1 for cells that are not there."""

    cells: Cells

    @cached_property
    def low(self) -> Cells:
        return self.cells.min(axis=0)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        table = np.full(self.cells.max(axis=0) - self.low + 1, -1, dtype=np.int64)
        table[tuple((self.cells - self.low).T)] = np.arange(len(self.cells))
        return table

    def number(self, cells: Cells) -> NDArray[np.int64]:
        at = cells - self.low
        inside = ((at >= 0) & (at < self.table.shape)).all(axis=1)
        found = np.full(len(cells), -1, dtype=np.int64)
        found[inside] = self.table[tuple(at[inside].T)]
        return found


@dataclass(frozen=True, eq=False)
class _Nearest:
    """The number of the nearest place."""

    places: Array
    numbers: NDArray[np.int64]

    @cached_property
    def tree(self) -> KDTree:
        return KDTree(self.places)

    def __call__(self, X: Array) -> NDArray[np.int64]:
        return self.numbers[self.tree.query(X)[1]]


@dataclass(frozen=True, eq=False)
class _Cells:
    """The number of the cell of a point, clamped to the domain first; of a cell that was not chosen, the nearest."""

    tiling: Tiling
    index: _Index
    domain: Box
    spacing: float
    nearest: _Nearest

    def __call__(self, X: Array) -> NDArray[np.int64]:
        inside = self.domain.clamp(X)
        found = self.index.number(self.tiling.cell((inside - np.asarray(self.domain.lower)) / self.spacing))
        lost = np.flatnonzero(found < 0)
        if lost.size:
            found[lost] = self.nearest(inside[lost])
        return found


# --- the prior ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lattice:
    """A public graph and the Gaussian Markov random field on it.

    Use `hexagon`, `square`, `car` or `of_precision`; nodes, precision and places are public and are fixed without a
    look at the records.

    Attributes
    ----------
    precision : sparse array (N, N)
        P: the given Q times ``unit``, its diagonal raised by a relative 2e-14. Its inverse is the prior covariance.
    killing : array (N,)
        Lower bounds, at least 0, of the row sums of P.
    unit : float
        The public number ``s^2``, at least every variance of ``Q^{-1}`` at an admissible node.
    admissible : array of bool (N,)
        Nodes at which records may lie; the others are hidden.
    locations : array (N, d), optional
        Places of the nodes. Without them covariates are node numbers, in one column.
    tiling : Tiling, optional
        The infinite lattice of which this is a part.
    words : dict
        How the graph was made, as JSON-able values.
    """

    precision: Sparse
    killing: Array
    unit: float
    admissible: NDArray[np.bool_]
    locations: Array | None
    tiling: Tiling | None
    words: dict[str, Any]
    _locate: Callable[[Array], NDArray[np.int64]]

    # Constructors

    @classmethod
    def hexagon(cls, spacing: float, domain: Box, killing: float, *, cells: ArrayLike | None = None) -> Self:
        """Hexagons of width `spacing` over a public box; `killing` is kappa^2, about ``1.5 / length^2`` in spacings.

        Cell (q, r) has its centre at ``lower + spacing (q + r/2, sqrt(3)/2 r)``. Points outside the box are
        clamped to it.

        Parameters
        ----------
        spacing : float > 0
            Distance of neighbouring centres, in the units of the domain.
        domain : Box
            Public, two axes.
        killing : float > 0
            kappa^2: the field forgets over ``sqrt(1.5 / killing)`` spacings (``1 / sqrt(killing)`` for squares).
        cells : array (N, 2) of int, optional
            A public choice of cells (q, r); by default all that the box needs. Points elsewhere go to the nearest.
        """
        return cls._tiled("hexagon", spacing, domain, killing, cells)

    @classmethod
    def square(cls, spacing: float, domain: Box, killing: float, *, cells: ArrayLike | None = None) -> Self:
        """Squares of side `spacing` over a public box; as `hexagon`, with centres at ``lower + spacing (q, r)``."""
        return cls._tiled("square", spacing, domain, killing, cells)

    @classmethod
    def _tiled(cls, name: str, spacing: float, domain: Box, killing: float, cells: ArrayLike | None) -> Self:
        tiling = Tiling(name, float(killing))
        if not (math.isfinite(spacing) and spacing > 0.0):
            raise ValueError(f"spacing must be a positive length; got {spacing!r}.")
        if domain.dimension != 2:
            raise ValueError(f"{name} lattices tile the plane; the domain has {domain.dimension} axes.")
        lower = np.asarray(domain.lower)
        size = (np.asarray(domain.upper) - lower) / spacing
        chosen = tiling.within(np.zeros(2), size) if cells is None else np.unique(np.asarray(cells, np.int64), axis=0)
        if chosen.ndim != 2 or chosen.shape[1:] != (2,) or not len(chosen):
            raise ValueError(f"cells must be whole numbers of shape (N, 2); got {chosen.shape}.")
        index = _Index(chosen)
        pairs = [(np.arange(len(chosen)), index.number(chosen + step)) for step in tiling.steps]
        row, column = (np.concatenate(part) for part in zip(*pairs, strict=True))
        row, column = row[column >= 0], column[column >= 0]
        W = coo_array((np.ones(row.size), (row, column)), shape=(len(chosen),) * 2)
        Q = diags_array(np.full(len(chosen), tiling.killing + tiling.degree)) - W
        places = lower + spacing * (chosen @ tiling.frame)
        locate = _Cells(tiling, index, domain, float(spacing), _Nearest(places, np.arange(len(places))))
        words = {"graph": name, "spacing": float(spacing), "killing": tiling.killing}
        words |= {"domain": {"lower": list(domain.lower), "upper": list(domain.upper)}}
        return cls._scaled(Q, tiling.green(), None, places, tiling, words, locate)

    @classmethod
    def car(cls, weights: Any, share: float, **places: Any) -> Self:
        """Proper CAR ``D - share W``, ``0 <= share < 1``: D has the row sums of the symmetric weights ``W >= 0``.

        Other parameters as in `of_precision`.

        Raises
        ------
        NotAPrior
            For ``share >= 1``, the intrinsic CAR, or weights that are not symmetric and positive.
        """
        if not 0.0 <= share < 1.0:
            raise NotAPrior(
                f"share must lie in [0, 1): at 1 the CAR is intrinsic, its level has infinite variance and no account "
                f"exists; got {share!r}."
            )
        W: Sparse = csr_array(weights, dtype=np.float64)
        if W.ndim != 2 or W.shape[0] != W.shape[1] or np.any(W.data < 0.0) or np.any(W.diagonal() != 0.0):
            raise NotAPrior("weights must be a square matrix of numbers >= 0 with zeros on the diagonal.")
        degree = np.asarray(W.sum(axis=1), dtype=np.float64)
        if np.any(degree <= 0.0):
            raise NotAPrior("A node without neighbours has no CAR; join it to one, or use of_precision.")
        return cls.of_precision(diags_array(degree) - share * W, graph=f"CAR, share {share:g}", **places)

    @classmethod
    def of_precision(
        cls,
        precision: Any,
        *,
        admissible: ArrayLike | None = None,
        locations: ArrayLike | None = None,
        locate: Callable[[Array], NDArray[np.int64]] | None = None,
        graph: str = "precision given",
    ) -> Self:
        """A prior from its public precision Q.

        Parameters
        ----------
        precision : array or sparse array (N, N)
            Condition (Q) of the module; anything else is refused with the reason.
        admissible : array of bool (N,), optional
            Nodes at which records may lie; all by default. Others (padding, a hub for the common level) are hidden.
        locations : array (N, d), optional
            Places of the nodes; a record belongs to the nearest admissible one.
        locate : callable, optional
            Instead: maps covariates (n, d) to node numbers (n,), record by record.
        graph : str
            What the certificate calls the graph.

        Raises
        ------
        NotAPrior
            With the reason: not symmetric, a positive entry off the diagonal, a negative row sum, no killing.
        """
        matrix, _ = _checked_precision(precision if issparse(precision) else np.asarray(precision, dtype=np.float64))
        size = matrix.shape[0]
        allowed = np.ones(size, dtype=bool) if admissible is None else np.array(admissible, dtype=bool)
        if allowed.shape != (size,) or not allowed.any():
            raise ValueError(
                f"admissible must have one truth value for each of the {size} nodes, and one that is true."
            )
        places = None if locations is None else np.array(locations, dtype=np.float64)
        if places is not None and (places.ndim != 2 or len(places) != size or not np.isfinite(places).all()):
            raise ValueError(f"locations must be finite and of shape ({size}, d); got {places.shape}.")
        if locate is None:
            numbers = np.flatnonzero(allowed)
            locate = _Nearest(numbers[:, None].astype(np.float64) if places is None else places[allowed], numbers)
        raised = _raised(matrix)
        variance = _largest_variance(raised, np.flatnonzero(allowed))
        return cls._scaled(matrix, variance, allowed, places, None, {"graph": graph}, locate)

    @classmethod
    def _scaled(
        cls,
        Q: Any,
        unit: float,
        admissible: NDArray[np.bool_] | None,
        places: Array | None,
        tiling: Tiling | None,
        words: dict[str, Any],
        locate: Callable[[Array], NDArray[np.int64]],
    ) -> Self:
        matrix, killing = _checked_precision(Q)
        allowed = np.ones(len(killing), dtype=bool) if admissible is None else admissible
        # Raised after scaling: what is added outweighs the rounding of the product, so P >= unit Q.
        precision = _raised(_raised(csr_array(unit * matrix)))
        digest = hashlib.sha256()
        for part in (precision.indptr, precision.indices, precision.data, allowed):
            digest.update(np.ascontiguousarray(part).tobytes())
        words = words | {"nodes": len(killing), "digest": digest.hexdigest()[:16]}
        return cls(precision, unit * killing, unit, allowed, places, tiling, words, locate)

    # What others need

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was computed from them is computed again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def size(self) -> int:
        """Number of nodes N."""
        return len(self.killing)

    @property
    def dimension(self) -> int:
        """Columns of the covariates: those of the places, or 1 (node numbers)."""
        return 1 if self.locations is None else self.locations.shape[1]

    def node(self, X: Array) -> NDArray[np.int64]:
        """Node numbers (n,) of covariates (n, d), record by record, by the public rule of the lattice."""
        return self._locate(np.asarray(X, dtype=np.float64))

    @property
    def links(self) -> tuple[NDArray[np.int64], Array]:
        """Pairs (E, 2) of nodes that are joined, the first the smaller, and their conductances (E,) before scaling."""
        upper: Sparse = triu(self.precision, 1).tocoo()
        return np.stack([upper.row, upper.col], axis=1).astype(np.int64), -upper.data / self.unit

    @cached_property
    def factor(self) -> Factor:
        """Factor of P, the posterior of no records."""
        return Factor(self.precision)

    @cached_property
    def row_sums(self) -> Array:
        """Upper bounds of the row sums of the covariance, ``Sigma 1``."""
        if self.killing.min() > 0.0:
            return np.full(self.size, _UP / self.killing.min())
        return _row_sum_bound(self.precision, self.factor)

    @cached_property
    def covariance(self) -> tuple[Array, float]:
        """Dense ``Sigma = P^{-1}`` (N, N), and a bound of the error of its entries.

        Raises
        ------
        ValueError
            For more than `DENSE` nodes.
        """
        if self.size > DENSE:
            raise ValueError(f"The covariance of {self.size:,} nodes is not computed; at most {DENSE:,}.")
        return _columns(self.precision, self.factor, np.arange(self.size), self.row_sums)


def _columns(matrix: Sparse, factor: Factor, columns: NDArray[Any], row_sums: Array) -> tuple[Array, float]:
    """Columns of the inverse, and their error: ``|X - Sigma E| <= Sigma |P X - E| <= max|residual| Sigma 1``."""
    E = np.zeros((matrix.shape[0], columns.size))
    E[columns, np.arange(columns.size)] = 1.0
    X = factor.solve(E)
    largest = float(np.abs(X).max()) * float(np.abs(matrix).sum(axis=1).max()) + 1.0
    longest = int(np.diff(matrix.indptr).max())
    residual = float(np.abs(matrix @ X - E).max()) + 1.2e-16 * (longest + 2) * largest
    return X, residual * float(row_sums.max())


def _largest_variance(matrix: Sparse, columns: NDArray[Any]) -> float:
    """The largest diagonal entry of the inverse at these nodes, rounded up."""
    factor = Factor(matrix)
    row_sums, most = _row_sum_bound(matrix, factor), 0.0
    for start in range(0, columns.size, _BLOCK):
        part = columns[start : start + _BLOCK]
        X, error = _columns(matrix, factor, part, row_sums)
        most = max(most, float(X[part, np.arange(part.size)].max()) + error)
    return most * _UP


# --- exact sparse posterior -----------------------------------------------------------------------


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
