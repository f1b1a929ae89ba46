"""Domains of a covariate: a box or a ball, fixed before any point is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LengthScale = float | tuple[float, ...]

EPS = float(np.finfo(np.float64).eps)


def as_points(X: npt.ArrayLike, dimension: int | None = None, what: str = "X") -> Array:
    """Return X as a float64 array of shape (n, d); NaN and infinities pass.

    Raises ValueError when X does not hold real numbers, is not two-dimensional, or has the wrong number of
    columns.  The message names the argument and its shape, never an entry.
    """
    try:
        points = np.asarray(X)
        if points.dtype.kind not in "fiubO":
            raise TypeError
        points = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must hold real numbers; convert text and missing entries first.") from None
    if points.ndim != 2:
        raise ValueError(
            f"{what} must have shape (points, coordinates), it has {points.ndim} dimension(s); "
            "for one coordinate use reshape(-1, 1)."
        )
    if points.shape[1] == 0 or (dimension is not None and points.shape[1] != dimension):
        expected = dimension or "at least 1"
        raise ValueError(f"{what} has {points.shape[1]} coordinate(s) a point, {expected} expected.")
    return points


def finite_points(X: npt.ArrayLike, dimension: int | None = None, what: str = "X") -> Array:
    """`as_points`, refusing NaN and infinities with a ValueError."""
    points = as_points(X, dimension, what)
    if not np.isfinite(points).all():
        raise ValueError(f"{what} holds NaN or infinite coordinates; remove them by a fixed rule first.")
    return points


def _finite_tuple(values: Sequence[float] | Array, what: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a sequence of numbers, one for each coordinate.") from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{what} must hold at least one number, all finite.")
    return numbers


def scales_per_axis(length_scale: LengthScale, dimension: int) -> Array:
    """The length scales as an array of shape (dimension,); ValueError when their number does not fit."""
    scales = np.atleast_1d(np.asarray(length_scale, dtype=np.float64))
    if scales.size not in (1, dimension) or (isinstance(length_scale, tuple) and scales.size != dimension):
        raise ValueError(f"{scales.size} length scales for {dimension} coordinate(s): give one each or one.")
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ValueError("Length scales must be positive and finite.")
    return np.broadcast_to(scales, (dimension,))


@dataclass(frozen=True)
class Box:
    """The box {x : lower_i <= x_i <= upper_i}, its faces included.

    `lower` and `upper` hold one finite number for each coordinate, lower_i < upper_i; ValueError otherwise.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        lower, upper = _finite_tuple(self.lower, "lower"), _finite_tuple(self.upper, "upper")
        if len(lower) != len(upper):
            raise ValueError(f"lower has {len(lower)} coordinate(s), upper {len(upper)}: they must agree.")
        for axis, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if not (low < high and math.isfinite(high - low)):
                raise ValueError(f"Coordinate {axis}: lower must be below upper, by a finite amount.")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return len(self.lower)

    @property
    def _sides(self) -> Array:
        return np.subtract(self.upper, self.lower)

    def contains(self, X: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Mask of shape (n,): which rows of X (n, d) lie in the box.  NaN is never contained."""
        points = as_points(X, self.dimension)
        return np.all((points >= self.lower) & (points <= self.upper), axis=1)

    def clamp(self, X: npt.ArrayLike) -> Array:
        """Nearest point of the box for each row of X (n, d); infinities go to a face, NaN stays NaN."""
        return np.clip(as_points(X, self.dimension), self.lower, self.upper)

    def diameter(self, length_scale: LengthScale = 1.0) -> float:
        """Largest distance between two points of the box, each coordinate divided by its length scale.

        sqrt(sum_i ((upper_i - lower_i) / l_i)^2), the scaled diagonal, rounded up by a few units in the last
        place so that no computed distance of two contained points exceeds it.
        """
        scales = scales_per_axis(length_scale, self.dimension)
        # kernels divide coordinates first; division is monotone, so this is the longest computed side
        divided = np.divide(self.upper, scales) - np.divide(self.lower, scales)
        longest = np.maximum(self._sides / scales, divided)
        return float(math.hypot(*longest) * (1.0 + (self.dimension + 4) * EPS))

    def unit(self, X: npt.ArrayLike) -> Array:
        """(X - lower) / (upper - lower): the affine map of the box to the unit cube, shape (n, d)."""
        return (as_points(X, self.dimension) - self.lower) / self._sides

    @property
    def unit_domain(self) -> Box:
        """The unit cube: what `unit` maps the box to."""
        return Box((0.0,) * self.dimension, (1.0,) * self.dimension)

    def from_unit(self, U: npt.ArrayLike) -> Array:
        """lower (1 - U) + upper U: the inverse of `unit`, exact at 0 and at 1, shape (n, d)."""
        points = as_points(U, self.dimension, "U")
        return np.asarray(self.lower) * (1.0 - points) + np.asarray(self.upper) * points

    def grid(self, counts: Sequence[int]) -> Array:
        """Regular grid spanning the box with its edges: shape (prod(counts), d), first coordinate slowest.

        `counts` gives the number of nodes along each coordinate; a count of 1 stands for the midpoint.
        ValueError unless they are positive whole numbers, one a coordinate.
        """
        if len(counts) != self.dimension or any(int(c) != c or c < 1 for c in counts):
            raise ValueError(f"counts must be {self.dimension} positive whole number(s), one a coordinate.")
        axes = [
            np.linspace(low, high, int(c)) if c > 1 else np.array([low + (high - low) / 2])
            for low, high, c in zip(self.lower, self.upper, counts, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dimension)


@dataclass(frozen=True)
class Ball:
    """The closed Euclidean ball {x : ||x - center|| <= radius}.

    `radius` is positive, finite and at least 1e-9 times the largest coordinate of `center` (a smaller ball
    drowns in rounding: shift the origin); ValueError otherwise.
    """

    center: tuple[float, ...]
    radius: float

    def __post_init__(self) -> None:
        center = _finite_tuple(self.center, "center")
        radius = float(self.radius)
        if not (0.0 < radius < 1e150):
            raise ValueError("radius must be positive and finite (below 1e150).")
        if radius < 1e-9 * max(map(abs, center)):
            raise ValueError("radius is below 1e-9 of the center's coordinates: move the origin nearer.")
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "radius", radius)

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return len(self.center)

    @property
    def _reach(self) -> float:
        """Largest coordinate, in absolute value, of a point of the ball."""
        return max(map(abs, self.center)) + self.radius

    def _polar(self, points: Array) -> tuple[Array, Array]:
        """Unit vector along x - center and the norm; scaled by the largest coordinate before squaring."""
        with np.errstate(over="ignore", invalid="ignore"):
            offsets = points - self.center
            largest = np.abs(offsets).max(axis=1, initial=0.0, keepdims=True)
            directions = offsets / np.where(largest > 0, largest, 1.0)
            lengths = np.linalg.norm(directions, axis=1, keepdims=True)
            return directions / np.where(lengths > 0, lengths, 1.0), largest * lengths

    def contains(self, X: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Mask of shape (n,): which rows of X (n, d) lie in the ball.  NaN is never contained."""
        return self._polar(as_points(X, self.dimension))[1][:, 0] <= self.radius

    def clamp(self, X: npt.ArrayLike) -> Array:
        """Nearest point of the ball for each row of X (n, d), up to rounding towards the center.

        Contained points are returned unchanged; a row with a NaN or infinite coordinate has no nearest point
        and becomes NaN.
        """
        points = as_points(X, self.dimension)
        directions, norms = self._polar(points)
        # a little short of the sphere: the sum below is rounded and the result must be contained
        target = self.radius - 8 * EPS * (self.dimension + 2) * self._reach
        clamped = np.asarray(self.center) + directions * target
        clamped[~np.isfinite(points).all(axis=1)] = np.nan
        return np.where(norms <= self.radius, points, clamped)

    def diameter(self, length_scale: LengthScale = 1.0) -> float:
        """Largest distance between two points of the ball, each coordinate divided by its length scale.

        2 radius / min_i l_i (attained along the axis of the smallest length scale), rounded up so that no
        computed distance of two contained points exceeds it.
        """
        smallest = float(scales_per_axis(length_scale, self.dimension).min())
        slack = 4 * EPS * (self.dimension + 4) * self._reach
        return (2.0 * self.radius + slack) / smallest

    def unit(self, X: npt.ArrayLike) -> Array:
        """1/2 + (X - center) / (2 radius): maps the ball to that of diameter 1 in the unit cube, shape (n, d)."""
        return 0.5 + (as_points(X, self.dimension) - np.asarray(self.center)) / (2.0 * self.radius)

    @property
    def unit_domain(self) -> Ball:
        """The ball of diameter 1 in the unit cube: what `unit` maps the ball to."""
        return Ball((0.5,) * self.dimension, 0.5)


Domain = Box | Ball
