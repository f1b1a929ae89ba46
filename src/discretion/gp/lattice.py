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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array, diags_array, issparse, triu

from discretion.gp.domain import Box
from discretion.gp.precision import (
    DENSE,
    NotAPrior,
    checked_precision,
    inverse_columns,
    largest_variance,
    raised,
    row_sum_bound,
)
from discretion.gp.sparse import Factor
from discretion.gp.tiling import TILINGS, Nearest, Tiles, Tiling, cells_of_runs

__all__ = ["DENSE", "Lattice"]

Array = NDArray[np.float64]
Sparse = Any  # csr_array: SciPy has no types

_UP = 1.0 + 1e-9


_FARTHEST = 1e150


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
    tiles : Tiles, optional
        The cells of an infinite lattice that are the nodes, where they are.
    words : dict
        How the graph was made, as JSON-able values: enough to make a tiled one again. ``digest`` is that of the given
        precision and the admissible nodes, before scaling.
    """

    precision: Sparse
    killing: Array
    unit: float
    admissible: NDArray[np.bool_]
    locations: Array | None
    tiles: Tiles | None
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
        tiles = Tiles(tiling, chosen, domain, float(spacing))
        pairs = [(np.arange(len(chosen)), tiles.index.number(chosen + step)) for step in tiling.steps]
        row, column = (np.concatenate(part) for part in zip(*pairs, strict=True))
        row, column = row[column >= 0], column[column >= 0]
        W = coo_array((np.ones(row.size), (row, column)), shape=(len(chosen),) * 2)
        Q = diags_array(np.full(len(chosen), tiling.killing + tiling.degree)) - W
        words = {"graph": name, "spacing": float(spacing), "killing": tiling.killing}
        words |= {"domain": {"lower": list(domain.lower), "upper": list(domain.upper)}}
        words |= {"cells": None if cells is None else tiles.runs}
        return cls._scaled(Q, tiling.green(), None, tiles.centres, tiles, words, tiles)

    @classmethod
    def car(cls, weights: Any, share: float, *, words: Mapping[str, Any] | None = None, **places: Any) -> Self:
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
        about = {"graph": "CAR", "share": float(share), **(words or {})}
        return cls.of_precision(diags_array(degree) - share * W, words=about, **places)

    @classmethod
    def of_precision(
        cls,
        precision: Any,
        *,
        admissible: ArrayLike | None = None,
        locations: ArrayLike | None = None,
        locate: Callable[[Array], NDArray[np.int64]] | None = None,
        words: Mapping[str, Any] | None = None,
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
        words : mapping, optional
            What the certificate says of the graph, JSON-able.

        Raises
        ------
        NotAPrior
            With the reason: not symmetric, a positive entry off the diagonal, a negative row sum, no killing.
        ValueError
            If another argument does not fit the number of nodes.
        """
        matrix, _ = checked_precision(precision if issparse(precision) else np.asarray(precision, dtype=np.float64))
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
            locate = Nearest(numbers[:, None].astype(np.float64) if places is None else places[allowed], numbers)
        variance = largest_variance(raised(matrix), np.flatnonzero(allowed))
        return cls._scaled(matrix, variance, allowed, places, None, {"graph": "precision", **(words or {})}, locate)

    @classmethod
    def _scaled(
        cls,
        Q: Any,
        unit: float,
        admissible: NDArray[np.bool_] | None,
        places: Array | None,
        tiles: Tiles | None,
        words: dict[str, Any],
        locate: Callable[[Array], NDArray[np.int64]],
    ) -> Self:
        matrix, killing = checked_precision(Q)
        allowed = np.ones(len(killing), dtype=bool) if admissible is None else admissible
        # Raised after scaling: what is added outweighs the rounding of the product, so P >= unit Q.
        precision = raised(raised(csr_array(unit * matrix)))
        digest = hashlib.sha256()
        for part, kind in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f8"), (allowed, "?")):
            digest.update(part.astype(kind).tobytes())
        words = words | {"nodes": len(killing), "digest": digest.hexdigest()}
        return cls(precision, unit * killing, unit, allowed, places, tiles, words, locate)

    @classmethod
    def of_words(cls, words: Mapping[str, Any]) -> Self:
        """A tiled lattice again, from its `words` in a certificate.

        Raises
        ------
        ValueError, KeyError, TypeError
            If they are not those of hexagons or squares.
        """
        if words["graph"] not in TILINGS:
            raise ValueError(f"A graph {words['graph']!r} does not follow from words; it has to be supplied.")
        domain = Box(tuple(words["domain"]["lower"]), tuple(words["domain"]["upper"]))
        cells = None if words["cells"] is None else cells_of_runs(words["cells"])
        return cls._tiled(words["graph"], words["spacing"], domain, words["killing"], cells)

    # What others need

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was computed from them is computed again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def size(self) -> int:
        """Number of nodes N."""
        return len(self.killing)

    @property
    def tiling(self) -> Tiling | None:
        """The infinite lattice of which this is a part, if it is one."""
        return None if self.tiles is None else self.tiles.tiling

    @property
    def dimension(self) -> int:
        """Columns of the covariates: those of the places, or 1 (node numbers)."""
        return 1 if self.locations is None else self.locations.shape[1]

    def node(self, X: Array) -> NDArray[np.int64]:
        """Node numbers (n,) of covariates (n, d), record by record, by the public rule of the lattice.

        Coordinates beyond 1e150 count as 1e150, so that no distance overflows.

        Raises
        ------
        ValueError
            If a rule of somebody's own fails, or gives other than numbers of admissible nodes; no value is named.
        """
        X = np.clip(np.asarray(X, dtype=np.float64), -_FARTHEST, _FARTHEST)
        try:
            found = np.asarray(self._locate(X))
        except Exception:
            raise ValueError("The rule that gives each record its node (locate) failed.") from None
        if found.shape != (len(X),) or found.dtype.kind not in "iu":
            raise ValueError("The rule that gives each record its node (locate) must give one whole number a record.")
        if len(found) and not (found.min() >= 0 and found.max() < self.size and self.admissible[found].all()):
            raise ValueError("The rule that gives each record its node (locate) must give admissible nodes only.")
        return found.astype(np.int64, copy=False)

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
        return row_sum_bound(self.precision, self.factor)

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
        return inverse_columns(self.precision, self.factor, np.arange(self.size), self.row_sums)
