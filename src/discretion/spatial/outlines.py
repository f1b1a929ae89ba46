"""Outlines of sets of cells of a public lattice, traced exactly along their sides.

Corners are whole numbers: with the neighbours of a cell counter-clockwise ``s_0, s_1, ...``, corner i of cell c is
``(p c + s_i + s_(i+1)) / p``, p = 3 for hexagons and 2 for squares, so two cells agree on the corners they share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from discretion.gp.tiling import Tiles

__all__ = ["Polygon", "cell_corners", "cell_outline"]

Polygon = list[NDArray[np.float64]]
"""Rings (k, 2), closed; the exterior first, then holes."""

_PARTS = {"hexagon": 3, "square": 2}


def _corners(tiles: Tiles, cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Corners of cells (N, degree, 2), counter-clockwise; corner i ends the side that faces neighbour i."""
    steps = tiles.tiling.steps
    return _PARTS[tiles.tiling.name] * cells[:, None] + steps + np.roll(steps, -1, axis=0)


def _placed(tiles: Tiles, corners: NDArray[np.int64]) -> NDArray[np.float64]:
    frame = tiles.spacing * tiles.tiling.frame / _PARTS[tiles.tiling.name]
    return np.asarray(tiles.domain.lower) + corners @ frame


def cell_corners(tiles: Tiles) -> NDArray[np.float64]:
    """Corners of every cell, (N, degree, 2), counter-clockwise."""
    return _placed(tiles, _corners(tiles, tiles.cells))


def cell_outline(tiles: Tiles, chosen: NDArray[np.bool_]) -> list[Polygon]:
    """The polygons of the union of the chosen cells: one for each part that hangs together by sides.

    Sides towards cells that were not chosen, each with the cell on its left, make closed rings: counter-clockwise
    outside, clockwise around holes. Where two chosen cells meet at a corner only, a ring stays with its own cell.
    """
    cells = tiles.cells[chosen]
    if not len(cells):
        return []
    number = np.full(len(tiles.cells), -1)
    number[chosen] = np.arange(len(cells))
    degree = tiles.tiling.degree
    near = np.stack([tiles.index.number(cells + step) for step in tiles.tiling.steps], axis=1)
    near = np.where(near >= 0, number[near], -1)
    row, side = np.nonzero(near >= 0)
    links = coo_array((np.ones(row.size), (row, near[row, side])), shape=(len(cells),) * 2)
    part = connected_components(links, directed=False)[1]
    corners = _corners(tiles, cells)
    start, end = np.roll(corners, 1, axis=1), corners
    outer = np.argwhere(near < 0)
    begins: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for cell, i in outer.tolist():
        begins.setdefault(tuple(start[cell, i].tolist()), []).append((cell, i))
    left = {(cell, i) for cell, i in outer.tolist()}
    rings: list[list[tuple[float, NDArray[np.float64]]]] = [[] for _ in range(int(part.max()) + 1)]
    while left:
        here = first = min(left)
        corner: list[tuple[int, ...]] = []
        while True:
            left.discard(here)
            corner.append(tuple(start[here].tolist()))
            # the next side of the same cell, else the one that some cell has there
            cell, i = here[0], (here[1] + 1) % degree
            here = (cell, i) if near[cell, i] < 0 else begins[tuple(end[here].tolist())][0]
            if here == first:
                break
        for ring in _simple(corner):
            placed = _placed(tiles, np.array([*ring, ring[0]]))
            x, y = (placed - placed[0]).T
            area = float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1]))
            rings[part[first[0]]].append((area, placed))
    return [[ring for _, ring in sorted(each, key=lambda ring: -ring[0])] for each in rings]


def _simple(corners: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """A ring cut where it comes back to a corner, as squares let it: an exterior, and holes that touch it there."""
    rings, stack, at = [], [], {}
    for corner in corners:
        if corner in at:
            rings.append(stack[at[corner] :])
            for gone in rings[-1]:
                del at[gone]
            del stack[len(stack) - len(rings[-1]) :]
        at[corner] = len(stack)
        stack.append(corner)
    return [*rings, stack]
