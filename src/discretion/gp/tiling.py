"""Infinite lattices of hexagons and squares: neighbours, nearest cells, and the largest variance on any part."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from discretion.gp.domain import Box

__all__ = ["TILINGS", "CellIndex", "Cells", "Nearest", "Tiles", "Tiling", "cells_of_runs"]

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

_UP = 1.0 + 1e-9
_GREEN_POINTS = 2**18


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
        """Integer coordinates of the neighbours of a cell, counter-clockwise, (degree, 2)."""
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
"""Neighbours by name, counter-clockwise."""


@dataclass(frozen=True, eq=False)
class CellIndex:
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
class Nearest:
    """The number of the nearest place."""

    places: Array
    numbers: NDArray[np.int64]

    @cached_property
    def tree(self) -> KDTree:
        return KDTree(self.places)

    def __call__(self, X: Array) -> NDArray[np.int64]:
        return self.numbers[self.tree.query(X)[1]]


@dataclass(frozen=True, eq=False)
class Tiles:
    """A public choice of cells of an infinite lattice, laid over a public box at a spacing.

    Cell (q, r) has its centre at ``lower + spacing (q, r) @ frame``. Called with points it gives the number of the cell
    of each, clamped to the box first; of a cell that was not chosen, the nearest.
    """

    tiling: Tiling
    cells: Cells
    domain: Box
    spacing: float

    @cached_property
    def index(self) -> CellIndex:
        """Numbers of cells."""
        return CellIndex(self.cells)

    @cached_property
    def centres(self) -> Array:
        """Places of the cells, (N, 2)."""
        return np.asarray(self.domain.lower) + self.spacing * (self.cells @ self.tiling.frame)

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest(self.centres, np.arange(len(self.cells)))

    def __call__(self, X: Array) -> NDArray[np.int64]:
        inside = self.domain.clamp(X)
        found = self.index.number(self.tiling.cell((inside - np.asarray(self.domain.lower)) / self.spacing))
        lost = np.flatnonzero(found < 0)
        if lost.size:
            found[lost] = self._nearest(inside[lost])
        return found

    @property
    def runs(self) -> list[list[int]]:
        """The cells as [q, first r, last r]."""
        q, r = self.cells.T
        start = np.flatnonzero(np.r_[True, (np.diff(q) != 0) | (np.diff(r) != 1)])
        end = np.r_[start[1:], len(q)] - 1
        return np.stack([q[start], r[start], r[end]], axis=1).tolist()


def cells_of_runs(runs: Iterable[Iterable[int]]) -> Cells:
    """The cells of `Tiles.runs`."""
    parts = [(int(q), int(first), int(last)) for q, first, last in runs]
    if sum(max(last - first + 1, 0) for _, first, last in parts) > 50_000_000:
        raise ValueError("The runs hold over 50 million cells.")
    if not parts or any(last < first for _, first, last in parts):
        raise ValueError("Runs of cells are [q, first r, last r], first not above last.")
    return np.concatenate([[(q, r) for r in range(first, last + 1)] for q, first, last in parts]).astype(np.int64)
