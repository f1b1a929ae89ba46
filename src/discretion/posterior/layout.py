"""What is public of a kernel sum before it is made: places, kernels and the law of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from discretion.gp import Box, Kernel
from discretion.gp import kernel as make_kernel
from discretion.gp.fields import Field, Grid, Places, stationary_field

__all__ = ["NoiseField", "SumLayout"]

Floats = NDArray[np.float64]
_TILE = 1 << 22  # float64 entries of one tile of a covariance, 32 MB


class Normals(Protocol):
    """Anything with ``standard_normal(shape)``: a `Randomness` or a NumPy generator."""

    def standard_normal(self, shape: Any = ..., /) -> Any: ...


@dataclass(frozen=True, eq=False)
class NoiseField:
    """The public law N(0, K + nugget I) of the noise at the released places, in units of the scale s.

    Parameters
    ----------
    kernel : Kernel
    places : Grid or array (m, d)
        In the kernel's coordinates.
    nugget : float
    """

    kernel: Kernel
    places: Places
    nugget: float

    @cached_property
    def field(self) -> Field:
        """How it is drawn."""
        return stationary_field(self.kernel, self.places)

    @property
    def size(self) -> int:
        """Number of places m."""
        return math.prod(self.places.shape) if isinstance(self.places, Grid) else len(self.places)

    @property
    def sd(self) -> float:
        """Standard deviation at one place: sqrt(1 + nugget)."""
        return math.sqrt(1.0 + self.nugget)

    def draw(self, count: int, randomness: Normals) -> Floats:
        """Independent draws, shape (count, m)."""
        return self.field.draw(randomness.standard_normal, self.nugget, count)

    def covariance(self, weights: Floats) -> Floats:
        """Covariance of the sums weights @ g, shape (k, k), for weights (k, m): w_i^T (K + nugget I) w_j.

        On an evenly spaced grid K w is a convolution, computed by zero-padded Fourier transforms; otherwise in tiles.
        """
        return weights @ self._smeared(weights).T + self.nugget * weights @ weights.T

    def _smeared(self, weights: Floats) -> Floats:
        """K w for each row w of weights."""
        if not isinstance(self.places, Grid):
            return self._tiled(self.places, weights)
        axes = self.places.axes
        if (kernels := self.kernel.factors(len(axes))) is not None:
            values = weights.reshape(-1, *self.places.shape)
            for axis, (k, nodes) in enumerate(zip(kernels, axes, strict=True), 1):
                values = np.moveaxis(np.tensordot(values, k(nodes[:, None]), (axis, 0)), -1, axis)
            return values.reshape(weights.shape)
        if not all(_even(nodes) for nodes in axes):
            return self._tiled(self.places.points, weights)
        shape = self.places.shape
        padded = [fft.next_fast_len(2 * g - 1, real=True) or 2 * g - 1 for g in shape]
        lags = tuple(
            np.where(np.arange(p) < g, np.arange(p), np.arange(p) - p) * _step(nodes)
            for g, p, nodes in zip(shape, padded, axes, strict=True)
        )
        # lags that no two nodes have meet only the zeros of the padding
        base = self.kernel(Grid(lags).points, np.zeros((1, len(axes)))).reshape(padded)
        over = tuple(range(1, 1 + len(axes)))
        spectrum = np.asarray(fft.rfftn(weights.reshape(-1, *shape), padded, axes=over)) * np.asarray(fft.rfftn(base))
        values = np.asarray(fft.irfftn(spectrum, padded, axes=over))
        return values[(slice(None), *map(slice, shape))].reshape(weights.shape)

    def _tiled(self, points: Floats, weights: Floats) -> Floats:
        rows = max(1, _TILE // len(points))
        parts = [weights @ self.kernel(points, points[i : i + rows]) for i in range(0, len(points), rows)]
        return np.concatenate(parts, axis=1)


def _step(nodes: Floats) -> float:
    return float(nodes[-1] - nodes[0]) / max(1, len(nodes) - 1)


def _even(nodes: Floats) -> bool:
    straight = np.linspace(nodes[0], nodes[-1], len(nodes))
    return bool(np.abs(nodes - straight).max() <= 1e-9 * max(abs(_step(nodes)), np.finfo(float).tiny))


@dataclass(frozen=True, eq=False)
class SumLayout:
    """The public parameters of one released pair (h, d): what is known of it before it is made.

    Attributes
    ----------
    kernels : tuple of Kernel
        One value sum (and one density) for each.
    domain : Box
        Domain of the covariates, in data units.
    places : Grid or array (m, d)
        Where the sums are released, in data units.
    scale : float
        Noise scale s > 0.
    response_bound : float
        M > 0: responses are clipped to [centre - M, centre + M], and the density is multiplied by it.
    centre : float
    nugget : float
        tau >= 0, in units of s^2.
    coordinates : {"unit", "data"}
        Whether the kernel sees the domain scaled to the unit cube.
    density : bool
        Whether densities are released.

    Raises
    ------
    ValueError
        For a parameter out of range.
    """

    kernels: tuple[Kernel, ...]
    domain: Box
    places: Places
    scale: float
    response_bound: float = 1.0
    centre: float = 0.0
    nugget: float = 1e-6
    coordinates: str = "unit"
    density: bool = True

    def __post_init__(self) -> None:
        if not self.kernels or not all(isinstance(k, Kernel) for k in self.kernels):
            raise ValueError("A layout needs at least one kernel.")
        if not all(math.isfinite(v) and v > 0 for v in (self.scale, self.response_bound)):
            raise ValueError("scale and response_bound must be positive and finite.")
        if not (math.isfinite(self.centre) and math.isfinite(self.nugget) and self.nugget >= 0):
            raise ValueError("centre and nugget must be finite, the nugget not negative.")
        if self.coordinates not in ("unit", "data"):
            raise ValueError(f"coordinates must be 'unit' or 'data'; got {self.coordinates!r}.")

    @classmethod
    def on_grid(cls, kernel: Kernel, domain: Box, counts: Sequence[int], scale: float, **options: Any) -> Self:
        """The layout of one kernel on the regular grid that spans the box with its edges (`Box.grid`)."""
        return cls((kernel,), domain, Grid.of(domain.grid(tuple(counts)), tuple(counts)), scale, **options)

    @classmethod
    def of(cls, source: Any, column: int = 0, n: int | None = None) -> Self:
        """The layout of a kernel-sum release, or of a mechanism before it runs (on n records, where n is public).

        A density with another column's bound M is rescaled: d M_j / M has bound M_j and noise s_j (`released_sums`).
        """
        mechanism = getattr(source, "mechanism", source)
        n = source.certificate.n if hasattr(source, "mechanism") else n
        counts = mechanism.grid
        return cls(
            kernels=tuple(mechanism.kernels),
            domain=mechanism.domain,
            places=mechanism.locations if counts is None else Grid.of(mechanism.locations, counts),
            scale=mechanism.scales[column],
            response_bound=mechanism.response_bounds[column],
            centre=mechanism.centres[column],
            nugget=mechanism.effective_nugget(n),
            coordinates=mechanism.coordinates,
            density=mechanism.density,
        )

    @property
    def size(self) -> int:
        """Number of places m."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one map: that of the grid, or (m,)."""
        return self.places.shape if isinstance(self.places, Grid) else (len(self.places),)

    def kernel_coordinates(self, X: Floats) -> Floats:
        """Points (n, d) in data units as the kernel sees them."""
        return X if self.coordinates == "data" else self.domain.unit(X)

    @cached_property
    def kernel_places(self) -> Places:
        """The places in the kernel's coordinates."""
        if not isinstance(self.places, Grid):
            return self.kernel_coordinates(self.places)
        return Grid.of(self.kernel_coordinates(self.places.points), self.places.shape)

    def noise(self, kernel: int = 0) -> NoiseField:
        """The law of the noise of one of the kernels."""
        return NoiseField(self.kernels[kernel], self.kernel_places, self.nugget)

    def check(self, other: SumLayout) -> None:
        """Raise ValueError unless the other layout is the same, the scale up to rounding."""
        mine, theirs = self.to_dict(), other.to_dict()
        near = math.isclose(mine.pop("scale"), theirs.pop("scale"), rel_tol=1e-9)
        differ = [name for name in mine if mine[name] != theirs[name]] + ([] if near else ["scale"])
        if differ:
            raise ValueError(f"The release has another layout: {', '.join(differ)} differ; make a decoder for it.")

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON data."""
        if isinstance(self.places, Grid):
            places = {"grid": [axis.tolist() for axis in self.places.axes]}
        else:
            places = {"points": self.places.tolist()}
        return places | {
            "kernels": [{"name": k.name} | _plain(vars(k)) for k in self.kernels],
            "domain": _plain(vars(self.domain)),
            "scale": self.scale,
            "response_bound": self.response_bound,
            "centre": self.centre,
            "nugget": self.nugget,
            "coordinates": self.coordinates,
            "density": self.density,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The layout that `to_dict` wrote; KeyError or TypeError for anything else."""
        data = dict(data)
        kernels = tuple(_kernel(**_hashable(item)) for item in data.pop("kernels"))
        domain = Box(**_hashable(data.pop("domain")))
        if "grid" in data:
            return cls(kernels, domain, Grid(tuple(np.array(axis, np.float64) for axis in data.pop("grid"))), **data)
        return cls(kernels, domain, np.array(data.pop("points"), np.float64), **data)


def _kernel(name: str, **options: Any) -> Kernel:
    return make_kernel(name, **options)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _hashable(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
