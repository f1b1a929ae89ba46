"""Public domains: of the outer variable, a box, a ball or a finite list; of inner solutions, or everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp import Ball, Box

__all__ = ["Domain", "Grid", "InnerDomain", "default_grid", "described", "domain_of", "farthest"]

Floats = NDArray[np.float64]

_MOST_LISTED = 4096  # numbers of a list that a certificate states


@dataclass(frozen=True)
class Grid:
    """A public finite set of outer points, one tuple of coordinates each.

    Raises:
        ValueError: no point, points of different dimension or not finite, or the same point twice.
    """

    points: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        points = tuple(tuple(map(float, point)) for point in self.points)
        if not points or not points[0] or len({len(point) for point in points}) != 1:
            raise ValueError("A grid needs at least one point, and points of one dimension.")
        if not np.isfinite(points).all() or len(set(points)) != len(points):
            raise ValueError("The points of a grid must be finite and different.")
        object.__setattr__(self, "points", points)

    @classmethod
    def of(cls, points: ArrayLike) -> Grid:
        """From an array (N, d), or (N,) for one coordinate."""
        array = np.asarray(points, dtype=np.float64)
        return cls(tuple(map(tuple, array[:, None] if array.ndim == 1 else array)))

    @cached_property
    def array(self) -> Floats:
        """The points, (N, d)."""
        return np.array(self.points, dtype=np.float64)

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return len(self.points[0])

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Mask (n,): which rows of X (n, d) are points of the grid."""
        known = set(self.points)
        return np.array([tuple(row) in known for row in np.asarray(X, dtype=np.float64).tolist()], dtype=bool)

    def clamp(self, X: ArrayLike) -> Floats:
        """The nearest point for each row of X (n, d)."""
        rows = np.asarray(X, dtype=np.float64)
        return self.array[np.argmin(np.sum((rows[:, None] - self.array) ** 2, axis=2), axis=1)]

    def diameter(self) -> float:
        """Of the convex hull: the largest distance of two points, at most the diagonal of the box around them."""
        if len(self.points) > 2000:
            return float(np.linalg.norm(np.ptp(self.array, axis=0)))
        apart = self.array[:, None] - self.array
        return math.sqrt(float(np.max(np.sum(apart * apart, axis=2)))) * (1.0 + 1e-12)


Domain = Box | Ball | Grid
InnerDomain = Box | Ball | Literal["everywhere"]


def default_grid(domain: Domain) -> Floats:
    """Points (N, d) of an exponential mechanism on a domain: a grid's own; else 201, 61^2 or 31^3 of the box.

    Raises:
        ValueError: four or more dimensions: every point costs an inner solve, so a grid there is for you to give.
    """
    if isinstance(domain, Grid):
        return domain.array
    if domain.dimension > 3:
        raise ValueError(
            f"There is no default grid in {domain.dimension} dimensions: give a Grid of your own (every point costs an "
            "inner solve), or use noisy hypergradient descent."
        )
    if isinstance(domain, Box):
        low, high = np.array(domain.lower), np.array(domain.upper)
    else:
        low, high = np.array(domain.center) - domain.radius, np.array(domain.center) + domain.radius
    axes = [np.linspace(a, b, (201, 61, 31)[domain.dimension - 1]) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, domain.dimension)
    return points[domain.contains(points)]


def described(domain: Domain | InnerDomain | None) -> Any:
    """A domain as JSON data, for certificates. Of a long list only the number of points and both ends."""
    if isinstance(domain, Box):
        return {"box": [list(domain.lower), list(domain.upper)]}
    if isinstance(domain, Ball):
        return {"ball": [list(domain.center), domain.radius]}
    if isinstance(domain, Grid):
        if domain.array.size <= _MOST_LISTED:
            return {"points": [list(point) for point in domain.points]}
        return {"points": len(domain.points), "first": list(domain.points[0]), "last": list(domain.points[-1])}
    return domain


def domain_of(description: Any) -> Any:
    """The domain that `described` described.

    Raises:
        ValueError: not such a description, or a list too long to be in it.
    """
    if description is None or description == "everywhere":
        return description
    match description:
        case {"box": [lower, upper]}:
            return Box(tuple(lower), tuple(upper))
        case {"ball": [center, radius]}:
            return Ball(tuple(center), radius)
        case {"points": [*points]}:
            return Grid.of(points)
        case {"points": int()}:
            raise ValueError("the points of a list so long are not in the certificate.")
    raise ValueError("a domain is not described as this version of the library does it.")


def farthest(domain: Domain) -> float:
    """Largest |x| on a domain."""
    if isinstance(domain, Box):
        return math.hypot(*(max(abs(a), abs(b)) for a, b in zip(domain.lower, domain.upper, strict=True)))
    if isinstance(domain, Ball):
        return math.hypot(*domain.center) + domain.radius
    return float(np.max(np.linalg.norm(domain.array, axis=1)))
