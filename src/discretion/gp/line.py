"""What the exact engines on the line share: places, and paths whose values are kept by place."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import FactorisationError, checked_responses
from discretion.gp.domain import Array, finite_points, scales_per_axis
from discretion.gp.fixed import PLACE_BITS
from discretion.gp.kernels import Kernel
from discretion.gp.path import DrawnPaths


class LinePosterior(ABC):
    """`DensePosterior` on the line: of responses y (n,) at X (n, 1), for a kernel with one length scale.

    n = 0 is the prior. Repeated rows of X are ordinary data; places are told apart down to 2^-120 length scales.
    ValueError for X that is not one column, and when X or y are not finite; FactorisationError when a result is not.
    """

    def __init__(self, kernel: Kernel, ridge: float, jitter: float, X: npt.ArrayLike, y: npt.ArrayLike) -> None:
        points = finite_points(X, 1)[:, 0]
        responses = checked_responses(y, len(points))
        self.kernel = kernel
        self.ridge, self.jitter = float(ridge), float(jitter)
        self.n, self.dimension = len(points), 1
        self.effective_ridge = math.sqrt(self.ridge**2 + self.jitter)
        self._settle(self.places(points))
        self._respond(responses)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel!r}, ridge={self.ridge!r}, jitter={self.jitter!r}, n={self.n})"

    def places(self, x: Array) -> Array:
        """Coordinates in length scales, on a lattice of 2^-120; ValueError at 1e150 length scales from 0.

        They are divided as every kernel divides them: so no two are farther apart than the diameter of their domain.
        """
        scaled = x / float(scales_per_axis(self.kernel.length_scale, 1)[0])
        if not (np.abs(scaled).max(initial=0.0) < 1e150):
            raise ValueError("Coordinates divided by the length scale exceed 1e150: change the unit.")
        return np.rint(scaled * 2.0**PLACE_BITS) / 2.0**PLACE_BITS

    def with_responses(self, y: npt.ArrayLike) -> Self:
        """The posterior given other responses y (n,) at the same points; what depends on these is shared."""
        other = copy(self)
        other._respond(checked_responses(y, self.n))
        return other

    def mean(self, T: npt.ArrayLike) -> Array:
        """Posterior mean at the rows of T (m, 1): shape (m,)."""
        return self.mean_at(self.places(finite_points(T, 1, "T")[:, 0]))

    @abstractmethod
    def mean_at(self, places: Array) -> Array:
        """Posterior mean at places (m,): shape (m,)."""

    @abstractmethod
    def _settle(self, places: Array) -> None:
        """All that depends on the places of the records alone."""

    @abstractmethod
    def _respond(self, responses: Array) -> None:
        """All that depends on the responses, in the order of the records."""


L = TypeVar("L", bound=LinePosterior)


class LinePaths(DrawnPaths[L]):
    """Paths of a posterior on the line, kept by place; a subclass draws those of new places."""

    def __init__(
        self, posterior: L, scale: float, nugget: float, normal: Callable[[tuple[int, int]], Array], paths: int = 1
    ) -> None:
        super().__init__(posterior, scale, nugget, normal, paths)
        self._known = np.empty(0)  # places, ascending, and their values
        self._values = np.empty((0, self.paths))
        self._requests = 0  # those that had new places
        self._kept = self._begun()

    @property
    def size(self) -> int:
        """Number of distinct points drawn so far."""
        return len(self._known)

    def evaluate(self, T: npt.ArrayLike) -> Array:
        """Values of the paths at the rows of T (m, 1): shape (paths, m).

        Raises ValueError when T is not finite or not one column; NuggetTooSmall (a ValueError) when the nugget does not
        cover the rounding of so many points; FactorisationError when a value is not finite. After an error the paths
        are as they were.
        """
        asked = self.posterior.places(finite_points(T, 1, "T")[:, 0])
        new = np.setdiff1d(asked, self._known)
        if new.size:
            self._add(new)
        return self._values[np.searchsorted(self._known, asked)].T

    def _add(self, new: Array) -> None:
        size = self.size + len(new)
        self._check_nugget(self._floor(size, self._requests + 1), size)
        with np.errstate(over="ignore"):
            values, kept = self._draw(new)
        if not np.isfinite(values).all():
            raise FactorisationError("A sample path is not finite in double precision; nothing was returned.")
        between = np.searchsorted(self._known, new)
        self._values = np.insert(self._values, between, values, axis=0)
        self._known = np.insert(self._known, between, new)
        self._kept, self._requests = kept, self._requests + 1

    @abstractmethod
    def _floor(self, size: int, requests: int) -> float:
        """A nugget of 8 times it covers the rounding of so many points, asked for in so many requests."""

    @abstractmethod
    def _begun(self) -> Any:
        """What `_draw` keeps, before anything is drawn."""

    @abstractmethod
    def _draw(self, new: Array) -> tuple[Array, Any]:
        """Values at new places (m,), ascending: shape (m, paths); and what replaces `_kept`."""
