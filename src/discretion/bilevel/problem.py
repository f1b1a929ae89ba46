"""What a bilevel problem is: two losses, an outer domain, public record counts, and a certified inner solver.

    minimise over x in X:  Phi(x) = mean of f(x, y(x), z),      y(x) = argmin over y of R(x, y) + mean of g(x, y, z)

A problem holds public facts alone. Records are handed to its methods, and only mechanisms do that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PublicError

__all__ = [
    "Backend",
    "BilevelProblem",
    "Counts",
    "Derivatives",
    "Domain",
    "Grid",
    "InnerDomain",
    "InnerNotCertified",
    "InnerSolution",
    "InnerSolver",
    "Layout",
    "Problem",
    "SplitRecords",
    "default_grid",
]

Floats = NDArray[np.float64]


class Layout(StrEnum):
    """Which records enter which loss."""

    JOINT = "joint"
    """Every record enters both."""
    SPLIT = "split"
    """Training records enter the inner loss, validation records the outer one; who is which is public."""
    SEPARABLE = "separable"
    """Every record has an inner problem of its own (a user, a task)."""


class InnerNotCertified(PublicError):
    """The inner solver did not reach the public accuracy: the constants are wrong, or the solver is not up to it.

    That it happened is an output that no guarantee covers.
    """


@dataclass(frozen=True)
class Counts:
    """Public numbers of records.

    Attributes:
        training: records of the inner loss; in the joint layout all records.
        validation: records of the outer loss; None in the joint and separable layouts, where they are the same.
    """

    training: int
    validation: int | None = None

    def __post_init__(self) -> None:
        for value in (self.training, *(() if self.validation is None else (self.validation,))):
            if isinstance(value, bool) or int(value) != value or value < 1:
                raise ValueError("Numbers of records are public whole numbers of at least 1.")

    @property
    def outer(self) -> int:
        """Records of the outer loss."""
        return self.training if self.validation is None else self.validation

    @property
    def total(self) -> int:
        """All records."""
        return self.training + (self.validation or 0)


@dataclass(frozen=True, eq=False, repr=False)
class SplitRecords:
    """PRIVATE. Training and validation records, each as the problem takes them."""

    training: Any
    validation: Any


@dataclass(frozen=True)
class InnerSolution:
    """PRIVATE. An inner solution with its certificate.

    Attributes:
        y: array (d_y,).
        gradient_norm: length of the inner gradient there, rounding included: |y - y(x)| <= gradient_norm / mu_g.
        certified: whether that is within what was asked for.
    """

    y: Floats
    gradient_norm: float
    certified: bool

    def __repr__(self) -> str:
        return "InnerSolution(PRIVATE)"


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


class BilevelProblem(ABC):
    """The contract between problems and mechanisms. Vectors are flat float64 arrays; averages have fixed denominators.

    Attributes:
        x_domain: public outer domain.
        layout: which records enter which loss.
        counts: public numbers of records; under add/remove, public bounds of them and the fixed denominators.
        neighbours: replace, or add-remove.
        inner_domain: Y, public, on which the constants hold and which contains every inner solution; "everywhere" where
            the inner loss is strongly convex, with mu_g, at every y; None where the problem knows it or nobody said.
    """

    x_domain: Domain
    layout: Layout
    counts: Counts
    neighbours: Neighbours
    inner_domain: InnerDomain | None = None

    # --- public

    @abstractmethod
    def constants(self, x: Floats | None = None) -> Constants:
        """Constants at the outer point x (d,), or suprema over the domain; of single terms under add/remove.

        Raises:
            MissingConstant: none were declared.
        """

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Public parameters as JSON data."""

    @property
    def verified(self) -> bool:
        """Whether the constants are facts that clipping at ingestion makes true, and no declaration."""
        return False

    @property
    def declarations(self) -> tuple[str, ...]:
        """What somebody answers for, in the words of a certificate."""
        everywhere = "The inner loss is strongly convex, with mu_g, at every y."
        within = "The inner domain contains the inner solution of every data set, and the constants hold on it."
        return (
            *(() if self.verified else ("The constants hold for every record that could be held.",)),
            *(() if self.verified else (within if isinstance(self.inner_domain, Box | Ball) else everywhere,)),
            *(
                ("Which part a record is in does not depend on the records, nor does their order where it decides.",)
                if self.layout is Layout.SPLIT
                else ()
            ),
        )

    @property
    def convex(self) -> bool:
        """Whether Phi is convex for every data set, as a fact."""
        return False

    @property
    def loss_scale(self) -> float | None:
        """Size of an outer loss, such as that of a model that knows nothing: public, for reports alone."""
        return None

    def least_tolerance(self, x: Floats) -> float:
        """The gradient norm that the inner solver reaches at x whatever the records are, rounding included: public."""
        return 0.0

    # --- private

    @abstractmethod
    def ingest(self, records: Any) -> Any:
        """Records as the other methods take them: checked for shape and number, clipped one by one to the domain.

        Raises:
            PublicError: shape, number or finiteness is wrong; no value is told.
        """

    @abstractmethod
    def solve(self, x: Floats, records: Any, tolerance: float, start: Floats | None = None) -> InnerSolution:
        """An inner solution whose gradient is at most `tolerance` long, which is what `certified` says."""

    @abstractmethod
    def outer_value(self, x: Floats, y: Floats, records: Any) -> float:
        """F(x, y)."""

    @abstractmethod
    def outer_gradients(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, Floats]:
        """grad_x F (d_x,) and grad_y F (d_y,)."""

    @abstractmethod
    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats:
        """grad_y G, (d_y,), regulariser included."""

    @abstractmethod
    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        """(grad^2_yy G) v, (d_y,)."""

    @abstractmethod
    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        """(grad^2_xy G) v, (d_x,)."""

    def certified(self, x: Floats, records: Any, tolerance: float, start: Floats | None = None) -> Floats:
        """The y of `solve`, with a gradient of at most `tolerance`, in Y.

        The families of this package certify what they compute. What any other solver says is not believed but checked:
        `hypergradient.certified_inner`.

        Raises:
            InnerNotCertified: the solver did not reach the tolerance.
        """
        if not self.verified:
            from discretion.bilevel.hypergradient import certified_inner

            return certified_inner(self, x, records, tolerance, start)
        found = self.solve(x, records, tolerance, start)
        if not found.certified:
            raise InnerNotCertified(
                "The inner solver did not reach the gradient norm that the guarantee needs. Either the constants are "
                "wrong, or double precision does not suffice; raise the strong convexity."
            )
        return found.y

    def values(self, points: Floats, records: Any, tolerances: Floats) -> Floats:
        """Phi at public points (N, d), from inner solutions with gradients of at most `tolerances` (N,)."""
        found = np.empty(len(points))
        y = None
        for at, (x, tolerance) in enumerate(zip(points, tolerances, strict=True)):
            y = self.certified(x, records, float(tolerance), y)
            found[at] = self.outer_value(x, y, records)
        return found

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: Any) -> tuple[Floats, float]:
        """v with H v = b, and the length of the residual: dense, for d_y up to some thousand."""
        columns = [self.inner_hvp(x, y, each, records) for each in np.eye(len(y))]
        v = np.asarray(np.linalg.solve(np.array(columns).T, b), dtype=np.float64)
        return v, float(np.linalg.norm(self.inner_hvp(x, y, v, records) - b))

    def product_hypergradient(self, x: Floats, y: Floats, records: Any, tolerance: float) -> tuple[Floats, float]:
        """What `hypergradient` gives, by conjugate gradients. The residual is computed anew and not checked."""
        from discretion.bilevel.solvers import conjugate_gradients

        gx, gy = self.outer_gradients(x, y, records)
        v, residual = conjugate_gradients(lambda v: self.inner_hvp(x, y, v, records), gy, tolerance)
        return gx - self.inner_cross(x, y, v, records), residual

    def hypergradient(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, float]:
        """grad_x F - M v with H v = grad_y F, all at (x, y), and the residual of v: not private."""
        gx, gy = self.outer_gradients(x, y, records)
        v, residual = self.linear_solve(x, y, gy, records)
        return gx - self.inner_cross(x, y, v, records), residual


class InnerSolver(Protocol):
    """Minimises the inner objective of `problem` at x to a gradient of length `tolerance`."""

    def __call__(self, problem: Any, x: Floats, records: Any, tolerance: float, start: Floats) -> InnerSolution: ...


class Derivatives(Protocol):
    """Means of losses and of their derivatives on flat float64 vectors, made by a back end from two losses."""

    def outer_value(self, x: Floats, y: Floats, records: Any) -> float: ...
    def outer_gradients(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, Floats]: ...
    def inner_value(self, x: Floats, y: Floats, records: Any) -> float: ...
    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats: ...
    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats: ...
    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats: ...


@runtime_checkable
class Compiled(Protocol):
    """Derivatives that bring quicker ways of their own to what products with H would do."""

    def minimise(self, x: Floats, y: Floats, records: Any, tolerance: float) -> tuple[Floats, float]: ...
    def hypergradient(
        self, x: Floats, y: Floats, training: Any, validation: Any, tolerance: float
    ) -> tuple[Floats, float]: ...


class Backend(Protocol):
    """An automatic differentiator: makes `Derivatives` of losses written for it, counts and places its records."""

    name: str

    def derivatives(
        self,
        outer: Callable[..., Any],
        inner: Callable[..., Any],
        inner_reg: Callable[..., Any] | None,
        counts: Counts,
    ) -> Derivatives: ...

    def count(self, records: Any) -> int: ...
    def place(self, records: Any) -> Any: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(BilevelProblem):
    """A problem given by two losses of one record, f(x, y, z) and g(x, y, z), through a back end (jax, torch).

    Parameters
    ----------
    outer, inner : callables
        Losses of one record, written for the back end: scalars of (x, y, z).
    backend : Backend
        Differentiates them: `discretion.bilevel.backends`.
    x_domain : Box, Ball or Grid
        Public outer domain.
    counts : Counts or int
        Public numbers of records; ``Counts(n_training, n_validation)`` in the split layout.
    y_init : array (d_y,)
        Where inner solves start: public.
    inner_reg : callable, optional
        R(x, y), free of data: the usual source of strong convexity.
    layout : Layout
    declared : Constants, optional
        Suprema over the domain, which somebody answers for. Each that is needed and missing is an error.
    declared_at : callable, optional
        Constants at one x, for bounds that hold point by point.
    solver : InnerSolver, optional
        Newton's method with conjugate gradients by default. One of your own is not believed: the gradient is computed
        anew where it ends.
    inner_domain : Box, Ball or "everywhere", optional
        Y, public: contains the inner solution of every data set, and the constants hold on it. Inner solutions are
        taken from it alone. "everywhere" says that the inner loss is strongly convex, with mu_g, at EVERY y. Where it
        is not, a solver can end at another stationary point, and one record can decide at which. Without either there
        are no constants, and no mechanism that rests on them.

    Raises
    ------
    ValueError
        Counts that do not fit the layout, constants of single terms under replace, or y_init of another dimension
        than the inner domain.
    """

    outer: Callable[..., Any]
    inner: Callable[..., Any]
    backend: Backend
    x_domain: Domain
    counts: Counts
    y_init: Floats
    inner_reg: Callable[..., Any] | None = None
    layout: Layout = Layout.JOINT
    declared: Constants | None = None
    declared_at: Callable[[Floats], Constants] | None = None
    solver: InnerSolver | None = None
    neighbours: Neighbours = Neighbours.REPLACE
    inner_domain: InnerDomain | None = None

    def __post_init__(self) -> None:
        counts = self.counts if isinstance(self.counts, Counts) else Counts(self.counts)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "layout", Layout(self.layout))
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        object.__setattr__(self, "y_init", np.atleast_1d(np.asarray(self.y_init, dtype=np.float64)))
        if (self.layout is Layout.SPLIT) != (counts.validation is not None):
            raise ValueError("The split layout needs Counts(n_training, n_validation); the others one number.")
        if self.inner_domain not in (None, "everywhere") and not isinstance(self.inner_domain, Box | Ball):
            raise ValueError(f'inner_domain must be a Box, a Ball or "everywhere"; got {self.inner_domain!r}.')
        if isinstance(self.inner_domain, Box | Ball) and self.y_init.shape != (self.inner_domain.dimension,):
            raise ValueError("inner_domain must have as many dimensions as y_init.")
        if self.declared is not None:
            _ = self._of_relation(self.declared)

    @cached_property
    def derivatives(self) -> Derivatives:
        """Means of the losses and their derivatives."""
        return self.backend.derivatives(self.outer, self.inner, self.inner_reg, self.counts)

    def constants(self, x: Floats | None = None) -> Constants:
        if x is not None and self.declared_at is not None:
            found = self.declared_at(x)
        elif self.declared is not None:
            found = self.declared
        else:
            raise MissingConstant("No constants were declared for this problem: give declared=Constants(...).")
        if self.inner_domain is None:
            raise MissingConstant(
                "Say where the constants hold: inner_domain, a public Box or Ball that contains every inner solution, "
                'or "everywhere" if the inner loss is strongly convex, with mu_g, at every y.'
            )
        return self._of_relation(found)

    def _of_relation(self, found: Constants) -> Constants:
        if self.neighbours is Neighbours.ADD_REMOVE:
            return found.single_terms()
        if found.single:
            raise ValueError(
                "Constants(single=True) are for add-remove neighbours: a replaced record changes two terms."
            )
        return found

    def parameters(self) -> dict[str, Any]:
        return {
            "problem": "declared",
            "backend": self.backend.name,
            "layout": self.layout.value,
            "training": self.counts.training,
            "validation": self.counts.validation,
            "neighbours": self.neighbours.value,
            "inner_domain": None if self.inner_domain is None else str(self.inner_domain),
        }

    def ingest(self, records: Any) -> Any:
        counted: list[tuple[Any, int]] = [(records, self.counts.training)]
        if self.layout is Layout.SPLIT:
            if not isinstance(records, SplitRecords):
                raise PublicError("This problem runs on SplitRecords(training, validation).")
            counted = [(records.training, self.counts.training), (records.validation, self.counts.outer)]
        for part, expected in counted:
            check_count(self.backend.count(part), expected, self.neighbours)
        if isinstance(records, SplitRecords):
            return SplitRecords(self.backend.place(records.training), self.backend.place(records.validation))
        return self.backend.place(records)

    def solve(self, x: Floats, records: Any, tolerance: float, start: Floats | None = None) -> InnerSolution:
        begin = self.y_init if start is None else start
        if self.solver is None and isinstance(self.derivatives, Compiled):
            y, length = self.derivatives.minimise(x, begin, inner_part(records), tolerance)
            return InnerSolution(y, length, length <= tolerance)
        from discretion.bilevel.solvers import newton

        return (self.solver or newton)(self, x, records, tolerance, begin)

    def outer_value(self, x: Floats, y: Floats, records: Any) -> float:
        return self.derivatives.outer_value(x, y, outer_part(records))

    def outer_gradients(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, Floats]:
        return self.derivatives.outer_gradients(x, y, outer_part(records))

    def inner_value(self, x: Floats, y: Floats, records: Any) -> float:
        """G(x, y), regulariser included."""
        return self.derivatives.inner_value(x, y, inner_part(records))

    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats:
        return self.derivatives.inner_gradient(x, y, inner_part(records))

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        return self.derivatives.inner_hvp(x, y, v, inner_part(records))

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        return self.derivatives.inner_cross(x, y, v, inner_part(records))

    def product_hypergradient(self, x: Floats, y: Floats, records: Any, tolerance: float) -> tuple[Floats, float]:
        if isinstance(self.derivatives, Compiled):
            return self.derivatives.hypergradient(x, y, inner_part(records), outer_part(records), tolerance)
        return super().product_hypergradient(x, y, records, tolerance)


def inner_part(records: Any) -> Any:
    """The records of the inner loss."""
    return records.training if isinstance(records, SplitRecords) else records


def outer_part(records: Any) -> Any:
    """The records of the outer loss."""
    return records.validation if isinstance(records, SplitRecords) else records


def check_count(found: int, public: int, neighbours: Neighbours) -> None:
    """Refuse another number of records than the public one, or more than the public bound.

    Raises:
        PublicError: the number does not fit; it is not told.
    """
    if neighbours is Neighbours.ADD_REMOVE:
        if found > public:
            raise PublicError(f"There are more records than the declared bound of {public:,}; declare more.")
    elif found != public:
        raise PublicError(
            f"There are not {public:,} records, as was declared; the number is public: give the right one."
        )
