r"""How far from 0 the posterior mean at a node can be, given the variance that the records leave there.

For the core's posterior mean m and variance v at a node x of a public graph (:mod:`discretion.gp.lattice`)

.. math::

    |m(x)| \le M (1 - g_x(v)), \qquad g_x(v) = \min\{k^T u : u \ge 0,\; Q u \le e_x,\; u_x = v\}

a linear program in public data: as much as possible of a unit charge at x is swept onto other nodes (balayage) so that
its potential drops to v at x. g is convex; every ``lambda >= 0`` with ``Q lambda >= theta e_x - k`` gives a tangent
``g_x(v) >= theta v - lambda_x``, and the least such lambda, the odometer of a divisible sandpile with capacity k, the
best. Tangents are repaired by their residual at every node, so rounding makes g smaller, never larger.

Proofs: ``docs/proofs/lattice-maximum-principle.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.linalg import splu

from discretion.gp.lattice import DENSE, Lattice
from discretion.gp.tiling import Cells, Tiling
from discretion.posterior.cache import kept

__all__ = ["MOST_NODES", "MeanCap", "Tangents", "mean_cap", "node_tangents", "tiling_tangents"]

Array = NDArray[np.float64]

MOST_NODES = 1_000
"""Graphs that are no part of a tiling and have more admissible nodes get ``g(v) >= min k v`` only."""

_FINE = 1.015
_STEEPEST = 1e6
_FLAT = 2e-3
_LARGEST_DISC = 360
_MOST_LINES = 2_000
_ROUNDING = 1e-15


class Tangents(NamedTuple):
    """Lines ``theta v - intercept`` below g; arrays (K,), theta increasing."""

    theta: Array
    intercept: Array


@dataclass(frozen=True)
class MeanCap:
    """Largest of the lines ``slope v - intercept`` and 0: a lower bound of g, convex and not decreasing.

    Arrays (K,), slopes increasing, in the unit in which the prior variance is at most 1.
    """

    slope: tuple[float, ...]
    intercept: tuple[float, ...]

    @classmethod
    def of(cls, tangents: Tangents, unit: float = 1.0) -> Self:
        """Of tangents for ``v unit``: those on the envelope, rounded down."""
        slope, intercept = tangents.theta * unit, tangents.intercept + _ROUNDING * (tangents.theta * unit + 1.0)
        line, stack = np.lexsort((intercept, slope)), [(0.0, 0.0)]
        for s, c in zip(slope[line].tolist(), intercept[line].tolist(), strict=True):
            while len(stack) > 1 and (s > stack[-1][0]) and _meet(stack[-1], (s, c)) <= _meet(stack[-2], stack[-1]):
                stack.pop()
            if s > stack[-1][0] and _meet(stack[-1], (s, c)) < 1.0:
                stack.append((s, c))
        return cls(tuple(s for s, _ in stack), tuple(c for _, c in stack))

    @cached_property
    def _lines(self) -> tuple[Array, Array, Array]:
        s, c = np.array(self.slope), np.array(self.intercept)
        return s, c, np.diff(c) / np.diff(s)

    def __call__(self, v: Array) -> Array:
        """g at v in [0, 1]; any line is below g, so the choice of the line may be rounded."""
        slope, intercept, meet = self._lines
        line = np.searchsorted(meet, v)
        return np.clip(slope[line] * v - intercept[line], 0.0, 1.0)


def _meet(line: tuple[float, float], steeper: tuple[float, float]) -> float:
    return (steeper[1] - line[1]) / (steeper[0] - line[0])


# --- the obstacle problem -------------------------------------------------------------------------


def _odometer(Q: Any, killing: Array, source: int, theta: float, support: NDArray[np.bool_]) -> tuple[Array, float]:
    """The least ``lambda >= 0`` with ``Q lambda >= theta e_source - killing``, and the theta at which it reaches on.

    ``support``, part of its support, grows to it: on a part the solution is at most the least one, so nodes with a
    residual belong to the support too. On one support lambda is linear in theta, so all its lines meet in one point.
    """
    size = len(killing)
    lines = np.zeros((size, 2))
    while True:
        inside = np.flatnonzero(support)
        if inside.size:
            charges = np.stack([inside == source, -killing[inside]], axis=1).astype(np.float64)
            lines[inside] = splu(csc_array(Q[:, inside][inside])).solve(charges)
        short = Q @ lines
        short[source, 0] -= 1.0
        short[:, 1] += killing
        found = (short @ [theta, 1.0] < -1e-13 * (theta + killing)) & ~support
        if not found.any():
            falling = ~support & (short[:, 0] < 0.0)
            event = float(np.min(-short[falling, 1] / short[falling, 0], initial=math.inf))
            return np.maximum(lines @ [theta, 1.0], 0.0), event
        support |= found


def _repaired(Q: Any, killing: Array, source: int, theta: float, values: Array, repair: float, degree: int) -> float:
    """The intercept of the tangent at theta: ``lambda_x`` and the residual at every node times ``repair``."""
    short = -(Q @ values + killing)
    short[source] += theta
    scale = theta + float(killing.max()) + 2.0 * float(Q.diagonal().max()) * float(values.max())
    residual = max(float(short.max()), 0.0) + _ROUNDING * scale * (1 + degree)
    return float(values[source]) + residual * repair


@dataclass(frozen=True)
class _Disc:
    """A disc of an infinite lattice, cells that are mirror images merged; the first cell is its centre."""

    tiling: Tiling
    radius: int

    @cached_property
    def cells(self) -> Cells:
        """One of each class of cells within the radius: hexagons ``q >= r >= 0``, squares ``q >= r >= 0``."""
        q, r = np.meshgrid(np.arange(self.radius + 1), np.arange(self.radius + 1), indexing="ij")
        within = (r <= q) & (q + (r if self.tiling.name == "hexagon" else 0) <= self.radius)
        return np.stack([q[within], r[within]], axis=1).astype(np.int64)

    def merged(self, cells: Cells) -> Cells:
        """The representatives of cells."""
        q, r = cells.T
        if self.tiling.name == "square":
            q, r = np.abs(q), np.abs(r)
            return np.stack([np.maximum(q, r), np.minimum(q, r)], axis=1)
        # cube coordinates (q, r, -q-r): two of one sign, which are kept, and their opposed sum
        cube = np.sort(np.abs(np.stack([q, r, q + r], axis=1)), axis=1)
        return cube[:, [1, 0]]

    @cached_property
    def matrix(self) -> Any:
        """``killing I + Laplacian`` on the disc; neighbours outside count as 0."""
        size, side = len(self.cells), self.radius + 2
        table = np.full((side, side), -1)
        table[tuple(self.cells.T)] = np.arange(size)
        rows, columns = [], []
        for step in self.tiling.steps:
            number = table[tuple(self.merged(self.cells + step).T)]
            rows.append(np.flatnonzero(number >= 0))
            columns.append(number[number >= 0])
        row, column = np.concatenate(rows), np.concatenate(columns)
        neighbours = coo_array((np.ones(row.size), (row, column)), shape=(size, size))
        return csc_array(diags_array(np.full(size, self.tiling.killing + self.tiling.degree)) - neighbours)

    @cached_property
    def rim(self) -> NDArray[np.bool_]:
        """Cells within two steps of the outside."""
        far = self.cells.sum(axis=1) if self.tiling.name == "hexagon" else self.cells.max(axis=1)
        return far >= self.radius - 1


def tiling_tangents(tiling: Tiling, *, radius: int | None = None, ratio: float = _FINE) -> Tangents:
    """Tangents of g for every node of every part of an infinite lattice, in its own unit.

    The obstacle is the killing at every cell of a disc, its rim included; a lambda whose support keeps off the rim is
    feasible on the infinite lattice, and so, cut down, on every node set. The repair is the residual over the killing.

    Parameters
    ----------
    tiling : Tiling
    radius : int, optional
        Of the disc, in cells; by default ten lengths of the field, at most 360.
    ratio : float > 1
        Least ratio of one theta to the one before.
    """
    length = math.sqrt((1.5 if tiling.name == "hexagon" else 1.0) / tiling.killing)
    disc = _Disc(tiling, min(math.ceil(10.0 * length) + 8, _LARGEST_DISC) if radius is None else radius)
    killing = np.full(len(disc.cells), tiling.killing)
    return _swept(disc.matrix, killing, 0, 1.0 / tiling.killing, tiling.green(), ratio, disc.rim)


def node_tangents(lattice: Lattice, node: int, *, ratio: float = _FINE) -> Tangents:
    """Tangents of ``g_x`` at one node of any graph of at most `DENSE` nodes, in the unit of ``lattice.precision``."""
    Sigma, error = lattice.covariance
    variance, repair = float(Sigma[node, node]) + error, float(lattice.row_sums[node])
    nowhere = np.zeros(lattice.size, dtype=bool)
    return _swept(csc_array(lattice.precision), lattice.killing, node, repair, variance, ratio, nowhere)


def _swept(
    Q: Any, killing: Array, source: int, repair: float, variance: float, ratio: float, rim: NDArray[np.bool_]
) -> Tangents:
    """Tangents at increasing theta: at every change of the support, or ``ratio`` further if the next is nearer.

    The last is where the support meets the rim, or all but `_FLAT` of the charge is swept.
    """
    support, degree = np.zeros(len(killing), dtype=bool), int(np.diff(Q.indptr).max())
    theta, found = float(killing[source]), [(float(killing[source]), 0.0)]
    if theta == 0.0:
        theta = 1e-3 * float(Q.diagonal()[source])
    while True:
        values, event = _odometer(Q, killing, source, theta, support)
        if np.any(values[rim] > 0.0):
            break
        found.append((theta, _repaired(Q, killing, source, theta, values, repair, degree)))
        if theta * variance - found[-1][1] > 1.0 - _FLAT or theta > _STEEPEST or not math.isfinite(event):
            break
        theta = max(event, theta * ratio) * (1.0 + 1e-12)
    return Tangents(*np.array(found).T)


def _graph_tangents(lattice: Lattice) -> Tangents:
    """For each theta the largest intercept of all nodes: the convex hull of the least ``g_x``.

    The least intercept is convex in theta, grows no faster than ``Sigma_xx`` and is 0 up to ``k_x``: chords between
    tangents, prolonged with that slope, are valid. Where the search is too long, ``g(v) >= min k v``.
    """
    nodes = np.flatnonzero(lattice.admissible)
    if nodes.size > MOST_NODES or lattice.size > DENSE:
        return Tangents(lattice.killing[nodes].min(keepdims=True), np.zeros(1))
    Sigma, error = lattice.covariance
    ratio = 1.02 + nodes.size / 5000.0
    lines = [(node_tangents(lattice, node, ratio=ratio), float(Sigma[node, node]) + error) for node in nodes.tolist()]
    theta = np.unique(np.concatenate([each.theta for each, _ in lines]))
    if theta.size > _MOST_LINES:
        theta = np.geomspace(max(float(theta[0]), 1e-3), float(theta[-1]), _MOST_LINES)
    worst = np.zeros(theta.size)
    for (own, intercept), variance in lines:
        beyond = np.maximum(theta - own[-1], 0.0) * variance
        worst = np.maximum(worst, np.interp(theta, own, intercept) + beyond)
    return Tangents(theta, worst)


def mean_cap(lattice: Lattice) -> MeanCap:
    """``g`` for all admissible nodes of a public graph; computed once, and kept on disk.

    Parts of a tiling share the g of the infinite lattice; on other graphs it is the convex hull of the least ``g_x``.
    """
    tiling = lattice.tiling
    if tiling is not None:
        named: dict[str, Any] = {"tiling": tiling.name, "killing": tiling.killing}
        found = kept("tiling-mean-cap", named, lambda: _listed(MeanCap.of(tiling_tangents(tiling), lattice.unit)))
    else:
        named = {"graph": lattice.words["digest"], "unit": lattice.unit}
        found = kept("graph-mean-cap", named, lambda: _listed(MeanCap.of(_graph_tangents(lattice))))
    return MeanCap(tuple(found["slope"]), tuple(found["intercept"]))


def _listed(cap: MeanCap) -> dict[str, Any]:
    return {"slope": list(cap.slope), "intercept": list(cap.intercept)}
