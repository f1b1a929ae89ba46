"""Which exact engine draws the paths of a posterior: a choice made by kernel and dimension, which are public."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy.typing as npt

from discretion.gp import memory
from discretion.gp.dense import DensePosterior, ridge_floor
from discretion.gp.domain import Array
from discretion.gp.exponential import (
    ExponentialPaths,
    ExponentialPosterior,
    line_mean_rounding,
    line_nugget_floor,
    on_the_line,
)
from discretion.gp.factor import storage
from discretion.gp.kernels import Kernel
from discretion.gp.matern_line import (
    MaternLinePaths,
    MaternLinePosterior,
    matern_mean_rounding,
    matern_nugget_floor,
    matern_on_the_line,
)
from discretion.gp.path import SamplePaths, mean_rounding, nugget_floor


class Posterior(Protocol):
    """A posterior given data."""

    n: int

    def mean(self, T: npt.ArrayLike) -> Array: ...

    def with_responses(self, y: npt.ArrayLike) -> Any: ...


class Paths(Protocol):
    """Sample paths that are asked where and as often as wanted, and stay the same."""

    def evaluate(self, T: npt.ArrayLike) -> Array: ...


class Engine(Protocol):
    """What a release needs of an exact engine: the law, bounds of its rounding, and its memory, from sizes alone.

    A release keeps it with its mechanism: a frozen dataclass of public numbers and texts. In what follows n counts data
    points, m distinct points asked for, over all requests, and paths independent ones. `ridge` > 0 is the square root
    of what is added to the diagonal, `normal(shape)` returns independent standard normals.
    """

    name: ClassVar[str]
    rounding: ClassVar[str]
    """Of "dense", "line" and "matern-line", the engine whose bounds of rounding hold; certificates name it."""

    def supports(self, kernel: Kernel, dimension: int) -> bool:
        """Whether it computes the posterior of this kernel in this many dimensions."""
        ...

    def posterior(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> Posterior:
        """The posterior given responses y (n,) at X (n, d), ridge^2 + jitter on the diagonal."""
        ...

    def paths(
        self, posterior: Any, scale: float, nugget: float, normal: Callable[[tuple[int, int]], Array], paths: int
    ) -> Paths:
        """Independent paths of law N(mean, scale^2 (covariance + nugget I))."""
        ...

    def nugget_floor(self, n: int, m: int, ridge: float, requests: int = 1) -> float:
        """A nugget of 8 times it covers the rounding of the covariance at m points; inf where none does."""
        ...

    def mean_rounding(self, n: int, m: int, ridge: float, response_bound: float) -> float:
        """Bound of the rounding of the mean, in Euclidean norm over m points, for |y_i| <= `response_bound`."""
        ...

    def memory(self, n: int, m: int, paths: int) -> int:
        """Bytes of all arrays for n records and m points."""
        ...

    def check(self, n: int, m: int, paths: int) -> None:
        """Raise `NotEnoughMemory` (or what the engine has instead) where it can't be done; looks at no data."""
        ...


@dataclass(frozen=True)
class DenseEngine:
    """Every kernel and dimension: Cholesky factorisation, n^3/3 flops."""

    name: ClassVar[str] = "dense"
    rounding: ClassVar[str] = "dense"
    posterior, paths = staticmethod(DensePosterior), staticmethod(SamplePaths)

    def supports(self, kernel: Kernel, dimension: int) -> bool:
        return True

    def nugget_floor(self, n: int, m: int, ridge: float, requests: int = 1) -> float:
        return nugget_floor(n, m, ridge) if ridge**2 >= ridge_floor(n) else math.inf

    def mean_rounding(self, n: int, m: int, ridge: float, response_bound: float) -> float:
        return mean_rounding(n, m, ridge, response_bound)

    def memory(self, n: int, m: int, paths: int) -> int:
        return 8 * (storage(n) + m * (n + m) + 4 * m * paths)

    def check(self, n: int, m: int, paths: int) -> None:
        memory.check(self.memory(n, m, paths), f"Exact paths at {m:,} points given {n:,} records")


@dataclass(frozen=True)
class LineEngine:
    """The exponential kernel on the line: a network of conductances, O(n log n)."""

    name: ClassVar[str] = "line"
    rounding: ClassVar[str] = "line"
    posterior, paths = staticmethod(ExponentialPosterior), staticmethod(ExponentialPaths)

    def supports(self, kernel: Kernel, dimension: int) -> bool:
        return on_the_line(kernel, dimension)

    def nugget_floor(self, n: int, m: int, ridge: float, requests: int = 1) -> float:
        return line_nugget_floor(n, m, requests)

    def mean_rounding(self, n: int, m: int, ridge: float, response_bound: float) -> float:
        return line_mean_rounding(n, m, ridge, response_bound)

    def memory(self, n: int, m: int, paths: int) -> int:
        return 8 * (30 * (n + m) + 8 * m * paths)

    def check(self, n: int, m: int, paths: int) -> None:
        memory.check(self.memory(n, m, paths), f"Exact paths at {m:,} points given {n:,} records")


@dataclass(frozen=True)
class MaternLineEngine:
    """Matern 3/2 and 5/2 on the line: a filter in whole numbers, O(n + m) a path."""

    name: ClassVar[str] = "matern-line"
    rounding: ClassVar[str] = "matern-line"
    posterior, paths = staticmethod(MaternLinePosterior), staticmethod(MaternLinePaths)

    def supports(self, kernel: Kernel, dimension: int) -> bool:
        return matern_on_the_line(kernel, dimension)

    def nugget_floor(self, n: int, m: int, ridge: float, requests: int = 1) -> float:
        return matern_nugget_floor(m, ridge)

    def mean_rounding(self, n: int, m: int, ridge: float, response_bound: float) -> float:
        return matern_mean_rounding(n, m, ridge, response_bound)

    def memory(self, n: int, m: int, paths: int) -> int:
        return 6144 * (n + m) + paths * (32 * n + 160 * m)

    def check(self, n: int, m: int, paths: int) -> None:
        memory.check(self.memory(n, m, paths), f"Exact paths at {m:,} points given {n:,} records")


# the first that supports a kernel computes it
_ENGINES: tuple[Engine, ...] = (LineEngine(), MaternLineEngine(), DenseEngine())


def engine(kernel: Kernel, dimension: int) -> Engine:
    """The engine of a kernel in a dimension: linear time on the line for exponential and Matern kernels, else dense."""
    return next(each for each in _ENGINES if each.supports(kernel, dimension))
