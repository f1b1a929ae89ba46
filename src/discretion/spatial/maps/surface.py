"""A surface on a grid, as a map shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import distance_transform_edt

from discretion.spatial.region import Region

__all__ = ["Grid", "span"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PIXELS = 1200


@dataclass(frozen=True)
class Grid:
    """A surface on a grid, both axes increasing, with the places that have no value, and those that are on the map."""

    values: Floats
    x: Floats
    y: Floats
    absent: Mask
    shown: Mask

    @classmethod
    def of(cls, values: Floats, x: Floats, y: Floats, mask: ArrayLike | None, region: Region | None) -> Grid:
        if values.shape != (y.size, x.size) or x.ndim != 1 or y.ndim != 1 or min(values.shape) < 2:
            raise ValueError(f"values must have shape (len(y), len(x)), at least 2 by 2, not {values.shape}.")
        for axis in (x, y):
            step = np.diff(axis)
            if not (np.isfinite(axis).all() and ((step > 0).all() or (step < 0).all())):
                raise ValueError("x and y must be finite and increase (or decrease) from entry to entry.")
        absent = ~np.isfinite(values)
        if mask is not None:
            excluded = np.asarray(mask)
            if excluded.dtype != bool or excluded.shape != values.shape:
                raise ValueError(f"mask must be boolean and of shape {values.shape}.")
            absent = absent | excluded
        shown = ~absent
        if region is not None:
            shown &= region.contains(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)).reshape(values.shape)
        if not shown.any():
            raise ValueError("There is no finite value to draw: values are all NaN, or masked.")
        right, up = (1 if x[0] < x[-1] else -1), (1 if y[0] < y[-1] else -1)
        turned = np.s_[::up, ::right]
        return cls(values[turned], x[::right], y[::up], absent[turned], shown[turned])

    @property
    def aspect(self) -> float:
        return float((self.y[-1] - self.y[0]) / (self.x[-1] - self.x[0]))

    @property
    def extent(self) -> tuple[float, float, float, float]:
        return float(self.x[0]), float(self.x[-1]), float(self.y[0]), float(self.y[-1])

    def picture(self) -> np.ma.MaskedArray:
        """Linear interpolation on a regular raster; the map ends half-way to the absent grid points."""
        width = _PIXELS
        height = int(np.clip(round(width * self.aspect), 2, 4 * width))
        u, v = np.linspace(self.x[0], self.x[-1], width), np.linspace(self.y[0], self.y[-1], height)
        filled = self.values
        if self.absent.any():
            nearest = distance_transform_edt(self.absent, return_distances=False, return_indices=True)
            filled = self.values[tuple(np.asarray(nearest))]
        surface = self._interpolate(filled, u, v)
        hidden = self._interpolate(self.absent.astype(np.float64), u, v) > 0.5
        return np.ma.array(surface, mask=hidden)

    def _interpolate(self, surface: Floats, u: Floats, v: Floats) -> Floats:
        """Bilinear interpolation at every (u, v): first between the columns, then between the rows."""
        for axis, at in ((self.x, u), (self.y, v)):
            before = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, axis.size - 2)
            share = (at - axis[before]) / (axis[before + 1] - axis[before])
            # each pass works along the last axis and leaves the other one last for the next
            surface = (surface[:, before] * (1 - share) + surface[:, before + 1] * share).T
        return surface

    def on_edge(self, points: Floats) -> Mask:
        """Which vertices of an outline stand on the frame or beside an absent grid point, off the level."""
        u = np.interp(points[:, 0], self.x, np.arange(self.x.size))
        v = np.interp(points[:, 1], self.y, np.arange(self.y.size))
        near = 1e-6
        frame = (np.minimum(u, self.x.size - 1 - u) < near) | (np.minimum(v, self.y.size - 1 - v) < near)
        before = self.absent[np.floor(v + near).astype(int), np.floor(u + near).astype(int)]
        after = self.absent[np.ceil(v - near).astype(int), np.ceil(u - near).astype(int)]
        return frame | before | after


def span(grids: Sequence[Grid]) -> tuple[float, float]:
    """Lowest and highest value that is shown."""
    shown = np.concatenate([grid.values[grid.shown] for grid in grids])
    low, high = float(shown.min()), float(shown.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)
