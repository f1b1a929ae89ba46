"""The nodes of a public graph as areas of a map: cells of a lattice, or districts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from discretion.gp.domain import Box
from discretion.gp.lattice import Lattice
from discretion.spatial.districts import Districts
from discretion.spatial.outlines import Polygon, cell_corners, cell_outline

__all__ = ["Areas"]

Mask = NDArray[np.bool_]

_COLUMNS = 600


@dataclass(frozen=True, eq=False)
class Areas:
    """A public graph, and where its nodes are.

    Attributes
    ----------
    lattice : Lattice
    kind : str
        What a node is called, in the plural.
    names : tuple of str, optional
    polygons : list
        For each node its polygons, each a list of rings.
    box : Box
        Around all of them.
    outline : callable
        The polygons of the union of chosen nodes, from their mask (N,).
    find : callable
        The node in whose area each point (m, 2) lies, -1 in none.
    """

    lattice: Lattice
    kind: str
    names: tuple[str, ...] | None
    polygons: list[list[Polygon]]
    box: Box
    outline: Callable[[Mask], list[Polygon]]
    find: Callable[[NDArray[np.float64]], NDArray[np.int64]]

    @classmethod
    def of_tiles(cls, lattice: Lattice) -> Self:
        """Hexagons or squares."""
        tiles = lattice.tiles
        if tiles is None:
            raise ValueError("This lattice has no tiles; those of Lattice.hexagon and Lattice.square have.")
        corners = cell_corners(tiles)
        rings = [[[np.vstack((each, each[:1]))]] for each in corners]
        low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))

        def find(X: NDArray[np.float64]) -> NDArray[np.int64]:
            return tiles.index.number(tiles.tiling.cell((X - np.asarray(tiles.domain.lower)) / tiles.spacing))

        box = Box(tuple(low.tolist()), tuple(high.tolist()))
        kind = f"{tiles.tiling.name}s"
        return cls(lattice, kind, None, rings, box, lambda chosen: cell_outline(tiles, chosen), find)

    @classmethod
    def of_districts(cls, districts: Districts, lattice: Lattice) -> Self:
        """Districts, and the prior on them."""
        low, high = districts.bounds
        box = Box(tuple(low.tolist()), tuple(high.tolist()))
        return cls(lattice, "districts", districts.names, districts.polygons, box, districts.outline, districts.find)

    def raster(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], Mask]:
        """x, y, the number of the node at each place (y, x), and which places lie in none."""
        low, high = np.asarray(self.box.lower), np.asarray(self.box.upper)
        width, height = high - low
        rows = int(np.clip(round(_COLUMNS * height / width), 2, 4 * _COLUMNS))
        x = low[0] + width * (np.arange(_COLUMNS) + 0.5) / _COLUMNS
        y = low[1] + height * (np.arange(rows) + 0.5) / rows
        places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        number = self.find(places).reshape(rows, _COLUMNS)
        return x, y, np.maximum(number, 0), number < 0
