"""Sample paths of a posterior, evaluated where asked: asked again later, it is still the same path."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import (
    BLAS,
    UNIT_ROUNDOFF,
    DensePosterior,
    FactorisationError,
    cholesky,
    solve_right,
    subtract_gram,
    subtract_product,
)
from discretion.gp.domain import Array, finite_points
from discretion.gp.factor import MERGED, Block

KERNEL_ROUNDING = 64.0 * UNIT_ROUNDOFF  # largest error of one computed kernel value, up to 64 coordinates
MARGIN = 8.0  # the nugget is at least this multiple of `nugget_floor`


class NuggetTooSmall(ValueError):
    """The nugget is below the rounding level of the factorisation; `smallest` is the least one allowed.

    It depends on sizes alone: n data points, m path points and the ridge.
    """

    def __init__(self, nugget: float, smallest: float, n: int, m: int, ridge: float) -> None:
        self.smallest = smallest
        super().__init__(
            f"nugget {nugget:.3g} is too small for {m} path points, {n} data points and ridge {ridge:.6g}: "
            f"give at least {_up(smallest)}, or a larger ridge, or fewer points."
        )


@dataclass(frozen=True)
class _Rounding:
    """Constants of `docs/proofs/floor-of-noise.md` for given n, m, r; they bound nothing unless `valid`."""

    n: int
    m: int
    ridge: float

    def __post_init__(self) -> None:
        if self.n < 0 or self.m < 0 or not (0 < self.ridge < 1e100):
            raise ValueError("n and m must be 0 or more, ridge positive and finite.")

    @property
    def gamma(self) -> float:
        """gamma_{n+16}, gamma_c = c u / (1 - c u): sums over the n data points."""
        return _gamma(self.n + 16)

    @property
    def crude(self) -> float:
        """Entrywise bound of ||L L^T - A||_2."""
        n, g = self.n, self.gamma
        return n * (g * (1.0 + self.ridge**2) / (1.0 - g) + KERNEL_ROUNDING)

    @property
    def width(self) -> float:
        """Lambda >= || |L| ||_2: the diagonal of L plus the rest, whose rows have norm about 1 at most."""
        diagonal = math.sqrt((1.0 + self.ridge**2) / (1.0 - self.gamma))
        return diagonal + math.sqrt(self.n * (1.0 + 2.0 * self.crude))

    @property
    def data(self) -> float:
        """a >= ||L L^T - A||_2, the better of the two bounds."""
        return min(self.crude, self.gamma * self.width**2 + self.n * KERNEL_ROUNDING)

    @property
    def rho(self) -> float:
        """a / r^2."""
        return self.data / self.ridge**2

    @property
    def shrunk(self) -> float:
        """r' = r sqrt(1 - rho), so that ||L^{-1}|| <= 1/r'."""
        return self.ridge * math.sqrt(1.0 - self.rho)

    @property
    def solve(self) -> float:
        """gamma Lambda / r': relative error of one triangular solve."""
        return self.gamma * self.width / self.shrunk

    @property
    def column(self) -> float:
        """omega >= ||w_j||, the columns of the computed L^{-1} K_XT."""
        kernel = KERNEL_ROUNDING * math.sqrt(self.n) / self.shrunk
        return (1.0 / math.sqrt(1.0 - self.rho) + kernel) / (1.0 - self.solve)

    @property
    def cross(self) -> float:
        """b >= ||L W - K_XT||_F."""
        columns = self.gamma * self.width * self.column + KERNEL_ROUNDING * math.sqrt(self.n)
        return math.sqrt(self.m) * columns

    @property
    def valid(self) -> bool:
        if (self.n + self.m + 16) * UNIT_ROUNDOFF > 1.0 / 64.0 or self.crude > self.ridge**2 / 8.0:
            return False
        return self.solve <= 1.0 / 8.0


def _up(x: float) -> str:
    """x to six digits, rounded up, so that the number printed is itself enough."""
    return f"{x:.6g}" if float(f"{x:.6g}") >= x else f"{x * (1.0 + 1e-5):.6g}"


def _gamma(count: int) -> float:
    return count * UNIT_ROUNDOFF / (1.0 - count * UNIT_ROUNDOFF)


def nugget_floor(n: int, m: int, ridge: float) -> float:
    """Bound on the factorisation error of a path at m points given n data points, in units of k(x, x) = 1.

    The computed factor C of the noise at m points, asked at once or in batches, with a nugget tau, has

        || C C^T - (k_D(T, T) + tau I) ||_2  <=  nugget_floor(n, m, ridge) max(1, tau)

    for every X, y, T with at most 64 coordinates and every kernel of this package: the backward error of the
    factorisation of A, its effect on the Schur complement (||A^{-1} K_XT||^2 <= m / (4 ridge^2)), that of the
    triangular solves, and that of the m x m factor.  It depends on nothing but the sizes and the ridge
    (`DensePosterior.effective_ridge`).  inf when the sizes are beyond double precision.

    Statement and proof: `docs/proofs/floor-of-noise.md`, Theorem 1 (after Higham 2002, Lemma 8.4 and
    Theorem 10.3).
    """
    e = _Rounding(n, m, ridge)
    if not e.valid:
        return math.inf
    g = _gamma(n + m + 16)
    own = m * (2.0 * g / (1.0 - g) + KERNEL_ROUNDING)
    schur = m * e.data / (4.0 * ridge**2) + math.sqrt(m) * e.cross / ridge + (e.cross / ridge) ** 2
    total = own + (schur / (1.0 - e.rho) if n else 0.0)
    return total if total <= 1.0 / 8.0 else math.inf


def mean_rounding(n: int, m: int, ridge: float, response_bound: float) -> float:
    """Bound on the Euclidean norm over m points of the rounding error of the mean that a path carries.

    n is the number of responses; `response_bound` bounds |y_i|.  ValueError unless it is finite and not negative.

    The mean is computed as W^T b, W = L^{-1} K_XT, b = L^{-1} y, with short factors (||w_j|| <= 1, ||b|| <= ||y|| /
    ridge); it differs from k_X(T)^T A^{-1} y by at most this bound for every X, T and y.  inf when the sizes are beyond
    double precision.

    Statement and proof: `docs/proofs/floor-of-noise.md`, Theorem 2.
    """
    if not (0 <= response_bound < math.inf):
        raise ValueError("response_bound must be a finite number, 0 or more.")
    e = _Rounding(n, m, ridge)
    if not e.valid:
        return math.inf
    norm = math.sqrt(n) * response_bound
    whitened = norm / e.shrunk / (1.0 - e.solve)
    data = math.sqrt(m) * e.data / (2.0 * ridge) * norm / e.shrunk**2
    cross = e.cross * norm / e.shrunk**2
    products = math.sqrt(m) * e.column * whitened * (e.solve + e.gamma)
    return data + cross + products


class _Known(Protocol):
    """What paths ask of their posterior, whatever it is of."""

    n: int
    effective_ridge: float


P = TypeVar("P", bound=_Known)


class DrawnPaths(ABC, Generic[P]):
    """Independent sample paths f_1, ..., f_paths of a posterior, with a nugget, evaluated where asked:

        f_l(T)  ~  N( mean(T), scale^2 (k_D(T, T) + nugget I) )      for all points ever asked together.

    Parameters: `posterior`; `scale` > 0, multiplies the posterior standard deviation; `nugget` > 0, in units of the
    prior variance; `normal(shape)`, a callable that returns independent standard normals; `paths` >= 1. ValueError
    otherwise.
    """

    def __init__(
        self, posterior: P, scale: float, nugget: float, normal: Callable[[tuple[int, int]], Array], paths: int = 1
    ) -> None:
        if not (0 < scale < math.inf):
            raise ValueError("scale must be a positive finite number.")
        if not (0 < nugget < 1e100):
            raise ValueError("nugget must be a positive finite number (below 1e100).")
        if int(paths) != paths or paths < 1:
            raise ValueError("paths must be a whole number, 1 or more.")
        self.posterior = posterior
        self.scale, self.nugget, self.paths = float(scale), float(nugget), int(paths)
        self._normal = normal

    def __repr__(self) -> str:
        constants = f"scale={self.scale!r}, nugget={self.nugget!r}, paths={self.paths}"
        return f"{type(self).__name__}({self.posterior!r}, {constants})"

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of distinct points drawn so far."""

    @abstractmethod
    def evaluate(self, T: npt.ArrayLike) -> Array:
        """Values of the paths at the rows of T (m, d): shape (paths, m)."""

    def _check_nugget(self, floor: float, size: int) -> None:
        """NuggetTooSmall unless the nugget is `MARGIN` times what rounding at so many points needs."""
        smallest = MARGIN * floor
        if not self.nugget >= smallest:
            raise NuggetTooSmall(self.nugget, smallest, self.posterior.n, size, self.posterior.effective_ridge)

    def _normals(self, count: int) -> Array:
        """So many normals for each path: (paths, count)."""
        return drawn_normals(self._normal, (self.paths, count))


def drawn_normals(normal: Callable[[tuple[int, int]], Array], shape: tuple[int, int]) -> Array:
    """What `normal` returns, float64; ValueError for another shape or numbers that are not finite."""
    normals: Array = np.asarray(normal(shape), dtype=np.float64)
    if normals.shape != shape or not np.isfinite(normals).all():
        raise ValueError(f"normal(shape) must return finite numbers of shape {shape}.")
    return normals


@dataclass(frozen=True)
class _Batch:
    """Points of one request with their rows (F-contiguous) of the joint factor, normals and values."""

    points: Array
    rows: Array
    normals: Array
    values: Array

    @property
    def start(self) -> int:
        """Column of the joint factor at which the batch's own triangle begins."""
        return self.rows.shape[1] - len(self.points)

    def joined(self, later: _Batch) -> _Batch:
        """This batch and the one drawn directly after it as one."""
        return _Batch(
            np.concatenate([self.points, later.points]),
            Block(self.rows).joined(Block(later.rows)).rows,
            np.concatenate([self.normals, later.normals], axis=1),
            np.concatenate([self.values, later.values], axis=1),
        )


class SamplePaths(DrawnPaths[DensePosterior]):
    """`DrawnPaths` by Cholesky factorisation, at points of at most 64 coordinates.

    The nugget is at least 8 `nugget_floor(n, m, effective_ridge)` for m distinct points in all.

    A point keeps its value, nugget included: asked again, in the same request or later, it gets the stored
    number (equal coordinates, -0.0 being 0.0).  New points are drawn given everything drawn before.  Smooth
    kernels need the nugget: their covariances are singular to working precision, and a path without one has
    no noise at all along the directions that rounding removes.

    Method: rows of the Cholesky factor of [[A, K_XT], [K_TX, K_TT + nugget I]] are appended to the factor L
    of A, in blocks, in place, nothing moved.  A first request for m points costs n^2 m + n m^2 + m^3/3 flops
    and 2 n m + m^2 a path; m more points after q others cost (n + q)^2 m + (n + q) m^2 + m^3/3.
    Memory: 8 (n + q + m) m bytes for each request.
    """

    def __init__(
        self,
        posterior: DensePosterior,
        scale: float,
        nugget: float,
        normal: Callable[[tuple[int, int]], Array],
        paths: int = 1,
    ) -> None:
        if posterior.dimension > 64:
            raise ValueError("Sample paths are made for at most 64 coordinates a point.")
        super().__init__(posterior, scale, nugget, normal, paths)
        self._batches: list[_Batch] = []
        self._column: dict[bytes, int] = {}  # coordinates of a point -> its place among all points asked

    @property
    def size(self) -> int:
        """Number of distinct points drawn so far."""
        return len(self._column)

    def evaluate(self, T: npt.ArrayLike) -> Array:
        """Values of the paths at the rows of T (m, d): shape (paths, m).

        Raises ValueError when T is not finite or does not fit; NuggetTooSmall (a ValueError) when the nugget
        does not cover the rounding of so many points; FactorisationError when a factorisation breaks down or
        a value is not finite.  After an error the paths are as they were.
        """
        points = finite_points(T, self.posterior.dimension, "T") + 0.0  # -0.0 becomes 0.0, for the keys below
        keys = [row.tobytes() for row in points]
        new: dict[bytes, int] = {}  # first row of each point not met before
        for row, key in enumerate(keys):
            if key not in self._column:
                new.setdefault(key, row)
        if new:
            self._append(self._draw(points[list(new.values())]))
            self._column.update({key: self.size + place for place, key in enumerate(new)})
        if not keys:
            return np.empty((self.paths, 0))
        values = np.concatenate([batch.values for batch in self._batches], axis=1)
        return values[:, [self._column[key] for key in keys]]

    def _append(self, batch: _Batch) -> None:
        # small blocks of like size are merged: many requests of one point each make few blocks
        while self._batches:
            last = self._batches[-1]
            if len(last.points) > len(batch.points) or len(last.points) + len(batch.points) > MERGED:
                break
            batch = last.joined(batch)
            self._batches.pop()
        self._batches.append(batch)

    def _draw(self, points: Array) -> _Batch:
        posterior, m = self.posterior, len(points)
        n, total = posterior.n, posterior.n + self.size + m
        self._check_nugget(nugget_floor(n, self.size + m, posterior.effective_ridge), self.size + m)

        # rows [W^T, C_1, ..., C_own] with W = L^{-1} K_XT and C C^T = K_TT + nugget I - W^T W
        rows = np.empty((m, total), order="F")
        posterior.whiten(rows[:, :n], points)
        for batch in self._batches:
            start, stop = batch.start, batch.rows.shape[1]
            block = rows[:, start:stop]
            posterior.kernel.fill(block.T, batch.points, points)
            subtract_product(block, rows[:, :start], batch.rows[:, :start])
            solve_right(block, batch.rows[:, start:])
        own = rows[:, total - m :]
        posterior.kernel.fill(own.T, points, points)
        np.einsum("ii->i", own)[...] += self.nugget
        subtract_gram(own, rows[:, : total - m])
        cholesky(own)

        normals = self._normals(m)
        noise = BLAS.dtrmm(1.0, own, normals.T, lower=1)  # does not read the upper triangle
        for batch in self._batches:
            noise += rows[:, batch.start : batch.rows.shape[1]] @ batch.normals.T
        values = rows[:, :n] @ posterior.whitened + self.scale * noise.T
        if not np.isfinite(values).all():
            raise FactorisationError("A sample path is not finite in double precision; nothing was returned.")
        return _Batch(points, rows, normals, values)
