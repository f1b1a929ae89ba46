"""Zero-mean Gaussian fields with a stationary kernel at fixed points, drawn again and again, and kernel sums there.

The points are a grid (the product of its axes) or any array of points.  A field is

    g  ~  N(0, K_TT + nugget I),

exact up to a stated bound on the error of the computed factor of K_TT, which the nugget has to cover 8 times
(`docs/proofs/kernel-sum-rounding.md`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import fft

from discretion.gp.dense import BLAS, UNIT_ROUNDOFF, FactorisationError, cholesky
from discretion.gp.domain import Array, Box, finite_points
from discretion.gp.kernels import Kernel
from discretion.gp.path import KERNEL_ROUNDING, MARGIN, nugget_floor

Normal = Callable[[tuple[int, ...]], Array]

_LONGEST_AXIS = 2048  # a factor of this many nodes takes seconds
_LARGEST_EMBEDDING = 1 << 23  # nodes
_LARGEST_FACTOR = 16_384  # points; 2 GiB
_AXIS_ROUNDING = 24.0 * UNIT_ROUNDOFF  # largest error of one computed kernel value of a single coordinate
_GROWTH = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_ROWS = 512
_TILE = 1 << 22  # entries of one tile of kernel values, 32 MB


class NoEmbedding(ValueError):
    """No circulant embedding of this kernel and grid is non-negative definite and fits."""


@dataclass(frozen=True, eq=False)
class Grid:
    """All points whose i-th coordinate is one of `axes[i]`, the first axis slowest."""

    axes: tuple[Array, ...]

    @classmethod
    def of(cls, points: npt.ArrayLike, shape: tuple[int, ...]) -> Self:
        """The grid whose points, in order, are the rows of `points` (m, d).

        Raises ValueError when they are not the points of such a grid.
        """
        points = finite_points(points, len(shape), "points")
        if math.prod(shape) != len(points):
            raise ValueError(f"A grid {shape} has {math.prod(shape)} points, {len(points)} were given.")
        table = points.reshape(*shape, len(shape))
        firsts = np.eye(len(shape), dtype=int)
        axes = tuple(
            table[tuple(slice(None) if on else 0 for on in first)][:, i].copy() for i, first in enumerate(firsts)
        )
        grid = cls(axes)
        if not np.array_equal(grid.points, points):
            raise ValueError(f"The points do not form a grid {shape} with the first axis slowest.")
        return grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes along each axis."""
        return tuple(map(len, self.axes))

    @property
    def points(self) -> Array:
        """The points, shape (m, d)."""
        return np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1).reshape(-1, len(self.axes))


Places = Grid | Array


def cell_centres(domain: Box, counts: tuple[int, ...]) -> Array:
    """Centres of the equal cells into which `counts` divide the box: (prod(counts), d), first coordinate slowest."""
    half = np.subtract(domain.upper, domain.lower) / (2.0 * np.asarray(counts))
    return Box(tuple(domain.lower + half), tuple(domain.upper - half)).grid(counts)


def size(places: Places) -> int:
    """Number of points m."""
    return math.prod(places.shape) if isinstance(places, Grid) else len(places)


def _factors(kernel: Kernel, places: Places) -> tuple[Kernel, ...] | None:
    return kernel.factors(len(places.axes)) if isinstance(places, Grid) else None


def _column(axis: Array) -> Array:
    return axis[:, None]


# -- kernel sums -------------------------------------------------------------------------------------------


def rows_at_once(kernel: Kernel, places: Places) -> int:
    """How many terms `kernel_sums` is to be given at once: bounds its memory and the longest chain of additions."""
    if _factors(kernel, places) is not None:
        return _ROWS
    return max(16, min(_ROWS, _TILE // max(1, size(places))))


def kernel_sums(kernel: Kernel, places: Places, X: Array, weights: Array) -> Array:
    """sum_i weights[i, j] k(x_i, t) at all points t: shape (q, m), for X (n, d) and weights (n, q).

    On a grid a product kernel takes two small factors: with A (n, g_1) and B (n, g_2) the kernel matrices of the
    axes, the sums are (A * w)^T B, n (g_1 + g_2) kernel values instead of n m.  The axes of a grid in more
    dimensions are split into two groups, whose factors are multiplied row by row.
    """
    factors = _factors(kernel, places)
    if factors is None:
        points = places.points if isinstance(places, Grid) else places
        return weights.T @ kernel(X, points)
    assert isinstance(places, Grid)
    values = [k(X[:, i : i + 1], _column(axis)) for i, (k, axis) in enumerate(zip(factors, places.axes, strict=True))]
    cut = min(range(len(values)), key=lambda c: max(math.prod(places.shape[:c]), math.prod(places.shape[c:])))
    left, right = (reduce(_row_products, part, np.ones((len(X), 1))) for part in (values[:cut], values[cut:]))
    return (_row_products(weights, left).T @ right).reshape(weights.shape[1], -1)


def _row_products(A: Array, B: Array) -> Array:
    """All products of an entry of A with one of B in the same row: (n, a b) for A (n, a) and B (n, b)."""
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)


def reach(kernel: Kernel, places: Places) -> float:
    """Upper bound of ||k(x, T)||_2 = sqrt(sum_t k(x, t)^2) over all x; sqrt(m) at most.

    Seen from x the grid falls into 2^d quadrants, and in each the kernel is largest at the corner next to x
    (`docs/proofs/kernel-sum-rounding.md`, Lemma 1).
    """
    m = size(places)
    squares = float(m)
    factors = _factors(kernel, places)
    if factors is not None and isinstance(places, Grid):
        grams = (k(_column(axis)) for k, axis in zip(factors, places.axes, strict=True))
        squares = math.prod(2.0 * float(np.square(gram).sum(axis=1).max()) for gram in grams)
    elif isinstance(places, Grid) and _steps(places) is not None:
        offsets = np.abs(places.points - places.points[0])
        squares = 2.0 ** len(places.axes) * float(np.square(kernel(offsets, offsets[:1])).sum())
    return math.sqrt(min(float(m), 1.001 * squares))


def sum_rounding(kernel: Kernel, places: Places, n: int, bound: float) -> float:
    """Bound on the Euclidean norm over the m points of the rounding error of a kernel sum of n terms.

    For weights of size at most `bound`, taken `rows_at_once` by `kernel_sums` and added with compensation.

    Statement and proof: `docs/proofs/kernel-sum-rounding.md`, Theorem 1.
    """
    factors = _factors(kernel, places) or ()
    chain = _gamma(rows_at_once(kernel, places) + 2 * len(factors) + 16)
    value = (_AXIS_ROUNDING * len(factors) or KERNEL_ROUNDING) * math.sqrt(size(places))
    return n * bound * (chain * (reach(kernel, places) + value) + value)


def _gamma(count: float) -> float:
    return count * UNIT_ROUNDOFF / (1.0 - count * UNIT_ROUNDOFF)


# -- fields ------------------------------------------------------------------------------------------------


class Field(ABC):
    """Draws of N(0, K_TT + nugget I) at m fixed points.

    Attributes: `size`, m; `rounding`, a bound on the error of the computed covariance in the spectral norm, in units
    of max(1, nugget).
    """

    size: int
    rounding: float

    def draw(self, normal: Normal, nugget: float, count: int = 1) -> Array:
        """`count` independent fields, shape (count, m), from independent standard normals `normal(shape)`.

        Raises ValueError when the nugget does not cover the rounding 8 times.
        """
        least = MARGIN * self.rounding
        if not (least <= nugget < math.inf and self.rounding <= 1.0 / MARGIN):
            raise ValueError(
                f"nugget {nugget:.3g} is too small for this field of {self.size} points: give {least:.3g}."
            )
        values = self._draw(normal, nugget, count)
        if values.shape != (count, self.size) or not np.isfinite(values).all():
            raise FactorisationError("A field is not finite in double precision; nothing was returned.")
        return values

    @abstractmethod
    def _draw(self, normal: Normal, nugget: float, count: int) -> Array:
        """The draw, without asking whether the nugget is enough."""


class ProductField(Field):
    """Product kernel on a grid: g = (V_1 x ... x V_d) sqrt(l_1 x ... x l_d + nugget) z.

    V_i and l_i are the eigenvectors and eigenvalues of the kernel matrix of axis i, negative ones set to 0.  A draw
    costs m (g_1 + ... + g_d) multiplications.
    """

    def __init__(self, kernel: Kernel, grid: Grid) -> None:
        factors = kernel.factors(len(grid.axes))
        if factors is None:
            raise ValueError(f"{kernel.name} is not a product of kernels of the axes.")
        self.shape, self.size = grid.shape, size(grid)
        self._bases: list[Array] = []
        spectra, norms, errors, skews = [], [], [], []
        for k, axis in zip(factors, grid.axes, strict=True):
            gram = k(_column(axis))
            eigenvalues, basis = np.linalg.eigh(gram)
            spectra.append(np.maximum(eigenvalues, 0.0))
            self._bases.append(basis)
            # what was lost is found by multiplying out
            norms.append(float(np.abs(gram).sum(axis=1).max()))
            errors.append(_distance(basis * np.sqrt(spectra[-1]), gram) + len(axis) * _AXIS_ROUNDING)
            skews.append(_distance(basis, np.eye(len(axis))))
        self._spectrum = reduce(np.multiply.outer, spectra)
        exact = math.prod(norms)
        lost = math.prod(norm + error for norm, error in zip(norms, errors, strict=True)) - exact
        lost = max(lost, 2.0 * UNIT_ROUNDOFF * sum(self.shape) * exact)
        self.rounding = lost + math.prod(1.0 + skew for skew in skews) - 1.0

    def _draw(self, normal: Normal, nugget: float, count: int) -> Array:
        values = normal((count, *self.shape)) * np.sqrt(self._spectrum + nugget)
        for basis in reversed(self._bases):
            values = np.moveaxis(values @ basis.T, -1, 1)
        return values.reshape(count, -1)


def _distance(root: Array, gram: Array) -> float:
    """Bound on ||root root^T - gram||_2, the rounding of its own computation included."""
    g = len(gram)
    found = float(np.linalg.norm(root @ root.T - gram)) * (1.0 + _gamma(g * g + 16))
    return found + _gamma(g + 16) * float(np.square(root).sum())


class CirculantField(Field):
    """Stationary kernel on an evenly spaced grid: the grid is part of a torus whose covariance is circulant.

        g = F^{-1} sqrt(lambda + nugget) F z  on the torus,   lambda = F c >= 0,

    exact when the eigenvalues lambda of the embedding are not negative; the torus is enlarged until they are
    (Dietrich and Newsam 1997; Wood and Chan 1994).  Raises NoEmbedding when no torus that fits does.
    """

    def __init__(self, kernel: Kernel, grid: Grid) -> None:
        steps = _steps(grid)
        if steps is None:
            raise NoEmbedding("the axes are not evenly spaced")
        self.shape, self.size = grid.shape, size(grid)
        for growth in _GROWTH:
            self.torus = tuple(_fast_length(math.ceil(growth * (2 * g - 2))) for g in self.shape)
            nodes = math.prod(self.torus)
            if nodes > _LARGEST_EMBEDDING:
                break
            turns = [np.minimum(np.arange(t), t - np.arange(t)) * h for t, h in zip(self.torus, steps, strict=True)]
            base = kernel(Grid(tuple(turns)).points, np.zeros((1, len(turns)))).reshape(self.torus)
            eigenvalues = np.real(np.asarray(fft.rfftn(base)))
            transform = 16.0 * UNIT_ROUNDOFF * math.log2(2 * nodes) * math.sqrt(nodes) * float(np.linalg.norm(base))
            if eigenvalues.min() >= -transform:
                self._spectrum = np.maximum(eigenvalues, 0.0)
                self.rounding = transform + nodes * KERNEL_ROUNDING + self.size * _unevenness(kernel, grid, steps)
                return
        raise NoEmbedding("no torus that fits makes the embedding of this kernel and grid non-negative definite")

    def _draw(self, normal: Normal, nugget: float, count: int) -> Array:
        axes = tuple(range(1, 1 + len(self.torus)))
        waves = np.asarray(fft.rfftn(normal((count, *self.torus)), axes=axes)) * np.sqrt(self._spectrum + nugget)
        values = np.asarray(fft.irfftn(waves, self.torus, axes=axes))
        return values[(slice(None), *map(slice, self.shape))].reshape(count, -1)


def _fast_length(least: int) -> int:
    return int(fft.next_fast_len(max(1, least), real=True) or least)


def _steps(grid: Grid) -> list[float] | None:
    """The spacing of each axis; None where an axis is not evenly spaced up to rounding of its coordinates."""
    steps = []
    for axis in grid.axes:
        step = abs(float(axis[-1] - axis[0])) / max(1, len(axis) - 1)
        largest = float(np.abs(axis).max())
        if len(axis) > 1 and not float(np.abs(_drift(axis)).max()) <= min(1e-6 * step, 1e-13 * (largest + step)):
            return None
        steps.append(step)
    return steps


def _drift(axis: Array) -> Array:
    """How far the nodes lie from even spacing."""
    return axis - np.linspace(axis[0], axis[-1], len(axis))


def _unevenness(kernel: Kernel, grid: Grid, steps: list[float]) -> float:
    """Bound on the error of a kernel value when the nodes are taken as evenly spaced: no profile is steeper than 1."""
    scales = np.broadcast_to(kernel.length_scale, len(grid.axes))
    moved = [
        2.0 * float(np.abs(_drift(axis)).max()) + 8.0 * UNIT_ROUNDOFF * (float(np.abs(axis).max()) + step * len(axis))
        for axis, step in zip(grid.axes, steps, strict=True)
    ]
    return float(np.sum(np.asarray(moved) / scales))


class DenseField(Field):
    """Any kernel at any points: the Cholesky factor of K_TT + nugget I, in place, 8 m^2 bytes, kept for the next draw.

    The nugget is never increased: a factorisation that breaks down is an error.
    """

    def __init__(self, kernel: Kernel, points: Array) -> None:
        self.kernel, self.points, self.size = kernel, points, len(points)
        self.rounding = nugget_floor(0, self.size, 1.0)
        self._factor: tuple[float, Array] | None = None

    def _draw(self, normal: Normal, nugget: float, count: int) -> Array:
        if self._factor is None or self._factor[0] != nugget:
            factor = np.empty((self.size, self.size), order="F")
            self.kernel.fill(factor.T, self.points, self.points)
            np.einsum("ii->i", factor)[...] += nugget
            cholesky(factor)
            self._factor = nugget, factor
        return BLAS.dtrmm(1.0, self._factor[1], normal((count, self.size)).T, lower=1).T


def stationary_field(kernel: Kernel, places: Places) -> Field:
    """The field of the kernel at the places, by the cheapest exact method.

    Factors of the axes for a product kernel on a grid; else a circulant embedding on an evenly spaced grid; else, up
    to 16,384 points, a Cholesky factor.

    Raises ValueError when none of them can be had.
    """
    if isinstance(places, Grid):
        if kernel.factors(len(places.axes)) is not None and max(places.shape) <= _LONGEST_AXIS:
            return ProductField(kernel, places)
        try:
            return CirculantField(kernel, places)
        except NoEmbedding:
            places = places.points
    if len(places) > _LARGEST_FACTOR:
        raise ValueError(
            f"No exact field of the kernel {kernel.name} at these {len(places)} points: they are more than the "
            f"{_LARGEST_FACTOR} of a dense factor, and no torus around them is non-negative definite. Give fewer "
            "points, an evenly spaced grid with shorter length scales, or on a grid the kernel rbf or exponential-l1."
        )
    return DenseField(kernel, places)
