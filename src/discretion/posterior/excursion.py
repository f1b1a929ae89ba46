"""Excursion sets {f >= t} of released paths: frequencies, outlines, comparison.

Everything here takes a path that has been released and computes from it and from public numbers alone; it is
post-processing and costs no privacy.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import contourpy
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter

__all__ = [
    "Polygon",
    "agreed",
    "excursion_fraction",
    "excursion_polygons",
    "frequency_set",
    "intersection_over_union",
    "polygon_area",
    "smooth",
    "smooth_paths",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Polygon = list[Floats]
"""Rings of shape (k, 2), closed: the exterior, counter-clockwise, then the holes, clockwise."""

# Vertices keep this share of a grid edge away from its ends, so that rounding cannot make two of them meet.
_CLEARANCE = 1e-3
_LEAST_LEVEL = 1e-6


def excursion_fraction(values: ArrayLike, threshold: float, above: bool = True) -> Floats:
    """Share of the paths at or above the threshold (at or below, with above=False), place by place.

    `values` has shape (paths, ...); the result has the shape of one path.  NaN where any path is NaN.
    Raises ValueError when there is no path or the threshold is not finite.
    """
    paths = np.asarray(values, dtype=np.float64)
    _check_threshold(threshold)
    if paths.ndim < 1 or paths.shape[0] == 0:
        raise ValueError("values must hold at least one path along the first axis.")
    share = np.mean(paths >= threshold if above else paths <= threshold, axis=0)
    return np.where(np.isnan(paths).any(axis=0), np.nan, share)


def frequency_set(values: ArrayLike, threshold: float, fraction: float, above: bool = True) -> Mask:
    """Places where at least `fraction` of the paths are at or above the threshold; True inside.

    `values` has shape (paths, ...); `fraction` lies in (0, 1], or it is a ValueError.  A place where a path is NaN is
    outside.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie above 0 and not above 1, not {fraction}.")
    share = excursion_fraction(values, threshold, above)
    # the share is a count over the number of paths: forgive the rounding of that quotient and of `fraction`
    return share >= fraction * (1 - 1e-12)


def agreed(values: ArrayLike, fraction: float, above: bool = True) -> Floats:
    """The field whose excursion set at any threshold is where at least `fraction` of the paths agree.

    `values` has shape (paths, ...).  At each place it is the k-th largest path value (k-th smallest, with
    above=False), k = ceil(fraction * paths): {share of paths >= t is at least `fraction`} = {k-th largest
    >= t}.  Its outline runs between grid points as that of one path does, where a share has steps.  NaN
    where any path is NaN.  Raises ValueError without a path, or for a fraction outside (0, 1].
    """
    paths = np.asarray(values, dtype=np.float64)
    if paths.ndim < 1 or paths.shape[0] == 0:
        raise ValueError("values must hold at least one path along the first axis.")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie above 0 and not above 1, not {fraction}.")
    k = int(np.ceil(fraction * len(paths) * (1 - 1e-12)))
    ranked = np.sort(paths, axis=0)[len(paths) - k if above else k - 1]
    return np.where(np.isnan(paths).any(axis=0), np.nan, ranked)


def intersection_over_union(A: ArrayLike, B: ArrayLike, mask: ArrayLike | None = None) -> float:
    """|A and B| / |A or B| of two sets given as True/False arrays of one shape; 1 when both are empty.

    `mask` is True at places to leave out.  Raises ValueError for arrays that are not boolean or differ in
    shape.
    """
    first, second = np.asarray(A), np.asarray(B)
    if first.dtype != bool or second.dtype != bool or first.shape != second.shape:
        raise ValueError(
            f"The two sets must be boolean arrays of one shape, not {first.dtype} {first.shape} and "
            f"{second.dtype} {second.shape}."
        )
    use = np.ones(first.shape, dtype=bool) if mask is None else ~_as_mask(mask, first.shape)
    union = np.count_nonzero((first | second) & use)
    return 1.0 if union == 0 else np.count_nonzero(first & second & use) / union


def smooth(values: ArrayLike, sd_cells: float) -> Floats:
    """Gaussian filter over the last two axes, `sd_cells` grid cells wide (one standard deviation).

    Values beyond the border repeat the nearest one; the filter ends at three standard deviations.  0 leaves
    the values as they are.  Post-processing of a release: it makes outlines calmer and costs no privacy.
    Raises ValueError for a negative width, NaN or infinite values.
    """
    field = np.asarray(values, dtype=np.float64)
    if field.ndim < 2:
        raise ValueError(f"values must have shape (..., rows, columns), not {field.shape}.")
    if not (np.isfinite(sd_cells) and sd_cells >= 0):
        raise ValueError(f"sd_cells must be zero or positive, not {sd_cells}.")
    if not np.isfinite(field).all():
        raise ValueError("values must be finite: smooth first, then mask.")
    sigma = (0.0,) * (field.ndim - 2) + (sd_cells, sd_cells)
    return gaussian_filter(field, sigma, mode="nearest", truncate=3.0)


def smooth_paths(paths: ArrayLike, sd_cells: float) -> Floats:
    """`smooth` by `sd_cells` for paths on a grid along a line, (paths, gx), or in the plane, (paths, gx, gy)."""
    fields = np.asarray(paths, dtype=np.float64)
    # a second axis of one cell, which the filter leaves alone
    return smooth(fields[:, None], sd_cells)[:, 0] if fields.ndim == 2 else smooth(fields, sd_cells)


def excursion_polygons(
    values: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    threshold: float,
    above: bool = True,
    mask: ArrayLike | None = None,
) -> list[Polygon]:
    """Outlines of {f >= threshold} (of {f <= threshold}, with above=False), f linear along the edges of a
    grid.

    `values[i, j]` is f at (x[j], y[i]); x and y increase or decrease strictly.  Each polygon is a list of
    closed rings (k, 2): its exterior counter-clockwise, then its holes clockwise.  Polygons do not overlap,
    rings do not touch, and the area differs from that of the grid cells inside by at most the cells along
    the outline.

    Grid points with mask True, or NaN, are not part of the map; the outline runs half-way to the next grid
    point.  Raises ValueError when shapes disagree, the grid has fewer than two rows or columns, or a value
    is infinite.
    """
    f = np.array(values, dtype=np.float64)
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    _check_threshold(threshold)
    _check_grid(f, x, y)
    absent = np.isnan(f) if mask is None else np.isnan(f) | _as_mask(mask, f.shape)
    if np.isinf(f[~absent]).any():
        raise ValueError("values must not be infinite.")
    level = _levels(f, threshold, above, absent)
    generator = contourpy.contour_generator(z=level, fill_type=contourpy.FillType.OuterOffset)
    points, offsets = cast("tuple[list[Floats], list[NDArray[np.uint32]]]", generator.filled(0.0, 2.0))
    polygons = []
    for vertices, offset in zip(points, offsets, strict=True):
        vertices = _settle(np.asarray(vertices, dtype=np.float64), absent)
        placed = np.stack((_along(x, vertices[:, 0]), _along(y, vertices[:, 1])), axis=1)
        rings = [placed[start:end] for start, end in pairwise(offset)]
        if (x[0] < x[-1]) != (y[0] < y[-1]):
            rings = [ring[::-1] for ring in rings]
        polygons.append(rings)
    return polygons


def polygon_area(rings: Polygon) -> float:
    """Area of a polygon, its exterior less its holes, in the squared unit of the `rings` (shoelace formula)."""
    return float(sum(_signed_area(ring) for ring in rings))


def _signed_area(ring: Floats) -> float:
    x, y = (ring - ring[0]).T
    return float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1])) / 2


def _check_threshold(threshold: float) -> None:
    if not np.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number, not {threshold}.")


def _check_grid(f: Floats, x: Floats, y: Floats) -> None:
    if f.ndim != 2 or f.shape != (y.size, x.size) or x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"values must have shape (len(y), len(x)) = {(y.size, x.size)}, not {f.shape}.")
    if min(f.shape) < 2:
        raise ValueError("The grid needs at least two rows and two columns.")
    for axis, name in ((x, "x"), (y, "y")):
        step = np.diff(axis)
        if not (np.isfinite(axis).all() and ((step > 0).all() or (step < 0).all())):
            raise ValueError(f"{name} must be finite and increase (or decrease) from each entry to the next.")


def _as_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Mask:
    array = np.asarray(mask)
    if array.dtype != bool or array.shape != shape:
        raise ValueError(f"mask must be a boolean array of shape {shape}, not {array.dtype} {array.shape}.")
    return array


def _levels(f: Floats, threshold: float, above: bool, absent: Mask) -> Floats:
    """f as a number in [-1, 1], positive inside, negative outside, and never so near 0 that an edge has no
    interior.

    Which grid points are inside fixes how the outline runs; keeping all of them off the level itself means
    that it never passes through a grid point, where it could touch itself.
    """
    excess = f / 2 - threshold / 2 if above else threshold / 2 - f / 2
    size = np.where(absent, 0.0, np.abs(excess))
    largest = size[~absent].max(initial=0.0)
    relative = size / largest if largest > 0 else np.ones_like(size)
    inside = f >= threshold if above else f <= threshold
    return np.where(absent, -1.0, np.where(inside, 1.0, -1.0) * np.clip(relative, _LEAST_LEVEL, 1.0))


def _settle(vertices: Floats, absent: Mask) -> Floats:
    """Put each vertex (in grid steps) well inside its grid edge; half-way where the edge leads to an absent
    point.

    A vertex is a grid point on the border of the grid, or lies on the edge between two neighbouring grid
    points, at least about 1e-6 of a step from both by the floor in `_levels`; rounding errors are far
    smaller.
    """
    nearest = np.rint(vertices)
    on_line = np.abs(vertices - nearest) < _LEAST_LEVEL / 10
    lower = np.where(on_line, nearest, np.floor(vertices)).astype(np.int64)
    upper = np.where(on_line, nearest, np.ceil(vertices)).astype(np.int64)
    to_absent = absent[lower[:, 1], lower[:, 0]] | absent[upper[:, 1], upper[:, 0]]
    share = np.clip(vertices - lower, _CLEARANCE, 1 - _CLEARANCE)
    share = np.where(to_absent[:, None], 0.5, share)
    return np.where(on_line, nearest, lower + share)


def _along(axis: Floats, position: Floats) -> Floats:
    """Coordinate at a fractional index of an axis."""
    return np.interp(position, np.arange(axis.size, dtype=np.float64), axis)
