"""The public problem that a plan is made for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.gp.fields import Grid

__all__ = ["MOST_RECORDS", "PLACES", "Setting", "checked_problem", "path_kernels"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

PLACES = (400, 2_400)
"""About the fewest and the most places of the grid on which worlds are simulated; at most 800 on a line."""
MOST_RECORDS = 20_000
"""A posterior path of a dense engine needs a matrix of the records squared; for more records it is not offered."""
MOST_OF_PATHS = 650
"""Places up to which posterior paths are planned at all of them: their covariance is factorised in every world."""


@dataclass(frozen=True, eq=False)
class Setting:
    """The public problem, in the kernel's coordinates: unit cube, or data units.

    Attributes
    ----------
    n : int
        Expected number of records.
    domain : Box
        In data units.
    response_range : (low, high)
        Responses are clipped to it.
    centre : float
        Of sums.
    threshold : float
    grid : tuple of int
        The grid of the release.
    coordinates : {"unit", "data"}
    region : callable or None
        Whether points (m, d) in data units belong to the public map.
    path_centre : float, optional
        Of posterior paths; that of sums unless given.
    """

    n: int
    domain: Box
    response_range: tuple[float, float]
    centre: float
    threshold: float
    grid: tuple[int, ...]
    coordinates: str
    region: Callable[[Floats], Mask] | None = None
    path_centre: float | None = None

    @cached_property
    def of_paths(self) -> Setting:
        """The problem as posterior paths have it, about their own centre."""
        return self if self.path_centre is None else replace(self, centre=self.path_centre, path_centre=None)

    @property
    def bound(self) -> float:
        """M, the largest distance of the ends of the range from the centre."""
        low, high = self.response_range
        return max(high - self.centre, self.centre - low)

    @property
    def box(self) -> Box:
        """The domain as the kernel sees it."""
        return self.domain if self.coordinates == "data" else self.domain.unit_domain

    @property
    def side(self) -> float:
        """The shortest side of the box."""
        return float(np.subtract(self.box.upper, self.box.lower).min())

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The grid of the simulation: that of the release, made coarser or finer, with an odd count along each axis."""
        total, most = math.prod(self.grid), 800 if len(self.grid) == 1 else PLACES[1]
        ratio = (min(max(total, PLACES[0]), most) / total) ** (1.0 / len(self.grid))
        return tuple(max(3, 2 * math.ceil(count * ratio / 2.0 - 1e-9) - 1) for count in self.grid)

    @cached_property
    def half(self) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Shape of every second place along each axis, both ends included, and which places they are."""
        every = np.arange(math.prod(self.counts)).reshape(self.counts)[(slice(None, None, 2),) * len(self.counts)]
        return every.shape, every.ravel()

    @cached_property
    def few(self) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Shape and numbers of all places, or of every second along each axis above `MOST_OF_PATHS`."""
        total = math.prod(self.counts)
        return self.half if total > MOST_OF_PATHS else (self.counts, np.arange(total))

    @cached_property
    def places(self) -> Grid:
        """The places of the simulation."""
        return Grid.of(self.box.grid(self.counts), self.counts)

    @cached_property
    def inside(self) -> Mask:
        """Which places belong to the public region; all without one. ValueError if none does."""
        if self.region is None:
            return np.ones(math.prod(self.counts), dtype=bool)
        inside = np.asarray(self.region(self.domain.grid(self.counts)), dtype=bool)
        if not inside.any():
            raise ValueError("The region holds no point of the grid; is it in the coordinates of the domain?")
        return inside

    def coordinates_of(self, X: Floats) -> Floats:
        """Points in data units as the kernel sees them, clamped to the domain as the mechanisms do."""
        X = self.domain.clamp(X)
        return X if self.coordinates == "data" else self.domain.unit(X)

    def clipped(self, y: Floats) -> Floats:
        """Responses as the mechanisms see them: clipped, less the centre."""
        return np.clip(y, *self.response_range) - self.centre


def path_kernels(n: int, dimension: int) -> tuple[str, ...]:
    """Kernels of posterior paths that a plan tries unless told: none that a release of n records could not compute."""
    if dimension == 1:
        return "exponential", "matern32" if n > MOST_RECORDS else "rbf"
    return () if n > MOST_RECORDS else ("rbf",)


def checked_problem(
    n: int,
    domain: Box,
    response_range: tuple[float, float],
    grid: tuple[int, ...],
    *,
    threshold: float | None,
    centre: float | None,
    coordinates: Literal["unit", "data"],
    region: Callable[[Floats], Mask] | None,
    epsilons: Iterable[float],
    delta: float | None,
) -> tuple[Setting, float]:
    """The setting of a plan, and its delta: n^-1.1 unless given; threshold and centre are in the middle of the range.

    Paths are centred at the threshold unless a centre is given: a ridge shrinks them to their centre and leaves their
    sign. A map from kernel sums compares h with a multiple of d, wherever they are centred, and they have the least
    noise in the middle.

    Raises
    ------
    ValueError
        For a number out of range.
    """
    low, high = map(float, response_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
    middle = 0.5 * (low + high)
    cut, zero = (middle if each is None else float(each) for each in (threshold, centre))
    for name, value in (("threshold", cut), ("centre", zero)):
        if not low <= value <= high:
            raise ValueError(f"{name} must lie in the response range {low:g} to {high:g}; got {value!r}.")
    if isinstance(n, bool) or int(n) != n or n < 2:
        raise ValueError(f"n must be a whole number of at least 2; got {n!r}.")
    counts = tuple(map(int, grid))
    if len(counts) != domain.dimension or min(counts) < 2:
        raise ValueError(f"grid needs {domain.dimension} counts of at least 2; got {counts}.")
    if coordinates not in ("unit", "data"):
        raise ValueError(f"coordinates must be 'unit' or 'data'; got {coordinates!r}.")
    rare = float(n) ** -1.1 if delta is None else float(delta)
    if not all(math.isfinite(each) and each > 0 for each in epsilons):
        raise ValueError("Every epsilon must be a positive finite number.")
    if not 0 < rare < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {rare!r}.")
    of_paths = cut if centre is None else zero
    return Setting(int(n), domain, (low, high), zero, cut, counts, coordinates, region, of_paths), rare
