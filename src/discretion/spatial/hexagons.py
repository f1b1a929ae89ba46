"""A public lattice of hexagons, and the reduction of records to one record a hexagon.

The lattice is fixed by its size, its origin and the domain, and by no record: moving one record moves no
hexagon.  (A lattice laid over the extent of the data, as plotting libraries draw it, moves as a whole when
its outermost record moves.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp.domain import Box
from discretion.privacy.frames import cleared
from discretion.spatial.reading import Records

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]

_ROW = math.sqrt(3.0) / 2.0
_FARTHEST = 2.0**20
_MOST_CELLS = 20_000_000


@dataclass(frozen=True)
class HexagonLattice:
    """Pointy-top regular hexagons of width `size` that tile the plane.

    `size` is the distance between opposite flat sides, which is also the distance between the centres of
    neighbours, in the units of the domain.  Cell (q, r), two integers, has its centre at

        origin + size * (q + r/2, sqrt(3)/2 * r):

    r counts rows upwards and q counts along them (axial coordinates).  `origin` is the centre of cell (0,
    0), by default the lower corner of the domain.  Raises ValueError when size is not positive and finite,
    the domain does not have two axes, or the lattice would be too fine to count.
    """

    size: float
    domain: Box
    origin: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.size) and self.size > 0):
            raise ValueError(f"size must be a positive length, not {self.size}.")
        if self.domain.dimension != 2:
            raise ValueError(f"Hexagons tile the plane; the domain has {self.domain.dimension} axes, not 2.")
        x, y = self.domain.lower if self.origin is None else self.origin
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError("origin must be two finite numbers.")
        object.__setattr__(self, "origin", (float(x), float(y)))
        reach = np.abs(np.subtract([self.domain.lower, self.domain.upper], [x, y])).max()
        if not reach / self.size < _FARTHEST:
            raise ValueError("size is too small for this domain and origin: a row would have over a million hexagons.")

    @property
    def area(self) -> float:
        """Area of one hexagon, sqrt(3)/2 size^2."""
        return _ROW * self.size**2

    def _scaled(self, X: ArrayLike) -> Floats:
        """Points with the centre of cell (0, 0) at zero and hexagons of width one."""
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(f"points must have shape (n, 2), not {points.shape}.")
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (points - np.asarray(self.origin)) / self.size
        if not (np.abs(scaled) < _FARTHEST).all():
            raise ValueError("points must be finite and no more than a million hexagons from the origin.")
        return scaled

    def cell(self, X: ArrayLike) -> Cells:
        """The hexagon of each point: the one whose centre is nearest, as integers (q, r), shape (n, 2).

        The nearest centre is in one of the two rows that enclose the point (a hexagon reaches size/sqrt(3)
        up and down from its centre, and rows are sqrt(3)/2 size apart), and in each row it is the nearest
        along the row.  On a shared side the point goes to the right hexagon of a row, and to the lower of
        two rows.
        """
        u, v = self._scaled(X).T
        below = np.floor(v / _ROW)
        rows = np.stack((below, below + 1))
        columns = np.floor(u - rows / 2 + 0.5)
        distance = (u - (columns + rows / 2)) ** 2 + (v - rows * _ROW) ** 2
        upper = distance[1] < distance[0]
        return np.stack((np.where(upper, columns[1], columns[0]), below + upper), axis=1).astype(np.int64)

    def center(self, cell: ArrayLike) -> Floats:
        """Centres of the hexagons, shape (n, 2) for cells (n, 2)."""
        q, r = _as_cells(cell).T
        return np.asarray(self.origin) + self.size * np.stack((q + r / 2, _ROW * r), axis=1)

    def polygon(self, cell: ArrayLike) -> Floats:
        """Outlines, counter-clockwise and closed: shape (n, 7, 2) for cells (n, 2)."""
        angle = np.deg2rad(np.arange(-30, 331, 60))
        ring = self.size / math.sqrt(3.0) * np.stack((np.cos(angle), np.sin(angle)), axis=1)
        ring[-1] = ring[0]
        return self.center(cell)[:, None, :] + ring

    def cells(self) -> Cells:
        """Every hexagon that meets the domain, by row and then column: public, shape (count, 2).

        A hexagon and the box meet unless a line parallel to a side of one of them separates the two
        (separating axis theorem).  Touching counts as meeting, with a margin for rounding, so that no point
        of the domain belongs to a hexagon that is not listed.  Raises ValueError for over 20 million of them.
        """
        (left, bottom), (right, top) = self._scaled([self.domain.lower, self.domain.upper])
        rows = np.arange(math.floor((bottom - 0.6) / _ROW), math.ceil((top + 0.6) / _ROW) + 1)
        places = np.arange(math.floor(left) - 1, math.ceil(right) + 2)
        if rows.size * places.size > _MOST_CELLS:
            raise ValueError("The domain holds over 20 million hexagons; choose a larger size.")
        r, place = (grid.ravel() for grid in np.meshgrid(rows, places, indexing="ij"))
        q = place - r // 2
        normals = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, _ROW], [0.5, -_ROW]])
        half_hexagon = np.array([0.5, 1 / math.sqrt(3.0), 0.5, 0.5])
        half_box = np.array([right - left, top - bottom]) / 2 @ np.abs(normals.T)
        offset = np.stack((q + r / 2, _ROW * r), axis=1) - np.array([left + right, bottom + top]) / 2
        meets = (np.abs(offset @ normals.T) <= half_hexagon + half_box + 1e-9).all(axis=1)
        return np.stack((q[meets], r[meets]), axis=1).astype(np.int64)

    def count(self) -> int:
        """Number of hexagons that meet the domain: public, at least the number of occupied ones."""
        return len(self.cells())


def _as_cells(cell: ArrayLike) -> Cells:
    cells = np.asarray(cell)
    if cells.ndim != 2 or cells.shape[1] != 2 or not np.issubdtype(cells.dtype, np.integer):
        raise ValueError(f"cells must be integers of shape (n, 2), not {cells.dtype} of shape {cells.shape}.")
    return cells.astype(np.int64)


@cleared
def aggregate(
    records: Records,
    lattice: HexagonLattice,
    minimum_count: int = 3,
    statistic: Literal["median", "mean"] = "median",
    length: str = "units",
) -> Records:
    """One record for each hexagon that holds `minimum_count` records: its centre and its `statistic`, median or mean.

    The centre of a hexagon on the border of the domain may lie outside; it is clamped to the domain.
    Records come by row and column of the lattice, so their order says nothing about the order of the input.
    `Records.unit` is `unit_of_privacy(...)`, with `length` naming the unit of length of the domain; how many
    records the hexagons hold is said in the private notes only.

    Raises ValueError when minimum_count is below 1, the records do not lie in the domain of the lattice, or
    no hexagon holds enough records (that message, like every refusal after reading, is for the data owner).
    """
    if minimum_count < 1:
        raise ValueError(f"minimum_count must be at least 1, not {minimum_count}.")
    if statistic not in ("median", "mean"):
        raise ValueError(f"statistic must be 'median' or 'mean', not {statistic!r}.")
    if records.dimension != 2 or not lattice.domain.contains(records.covariates).all():
        raise ValueError("The records do not all lie in the domain of the lattice; read them with that domain.")
    q, r = lattice.cell(records.covariates).T
    order = np.lexsort((records.response, q, r))
    q, r, response = q[order], r[order], records.response[order]
    start = np.flatnonzero(np.r_[True, (np.diff(q) != 0) | (np.diff(r) != 0)])
    counts = np.diff(np.r_[start, response.size])
    if statistic == "median":
        # the two middle records of each run, the same one twice when its length is odd
        value = response[start + (counts - 1) // 2] / 2 + response[start + counts // 2] / 2
    else:
        value = np.add.reduceat(response, start) / counts
    enough = counts >= minimum_count
    if not enough.any():
        raise ValueError(f"No hexagon holds {minimum_count} records; choose larger hexagons.")
    centers = lattice.center(np.stack((q[start], r[start]), axis=1)[enough])
    clamped = lattice.domain.clamp(centers)
    held, left_out = counts[enough], counts[~enough]
    notes = [
        *records.notes,
        f"{held.size} of {lattice.count()} hexagons hold {minimum_count} records or more: "
        f"{int(np.min(held))} to {int(np.max(held))}, half of them {int(np.median(held))} or fewer",
        f"{left_out.size} hexagons with fewer were left out, and {int(np.sum(left_out))} records with them",
    ]
    moved = int(np.count_nonzero((clamped != centers).any(axis=1)))
    if moved:
        notes.append(f"{moved} hexagon centres beyond the border of the domain were clamped to it")
    return Records(
        clamped,
        value[enough],
        records.covariate_names,
        f"{statistic} of {records.response_name}",
        tuple(notes),
        unit_of_privacy(lattice, minimum_count, statistic, length),
    )


def unit_of_privacy(
    lattice: HexagonLattice, minimum_count: int = 3, statistic: str = "median", length: str = "units"
) -> str:
    """What a replace-one guarantee on `aggregate`d records protects, in words for the certificate.

    `lattice`, `minimum_count` and `statistic` as in `aggregate`; `length` names the unit of length of the domain, such
    as "m".
    """
    return (
        f"One hexagon's record: the centre and the {statistic} of a hexagon "
        f"{lattice.size:g} {length} wide. One row of the table (a sale, say) changes at most the "
        f"{statistic} of its own hexagon; moved to another place, it changes two hexagons and counts as two "
        f"units. It can also create or remove a hexagon, which needs {minimum_count} rows to exist. That "
        "changes the number of hexagons, which a replace-one guarantee takes as public and does not protect."
    )
