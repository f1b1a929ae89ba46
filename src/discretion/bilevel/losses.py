"""Problems given by two losses of one record, through an automatic differentiator.

Derivatives are a back end's affair; what it says of its own solutions is checked, not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.counts import Counts, Layout, SplitRecords, check_count, inner_part, outer_part, relation
from discretion.bilevel.domains import Domain, InnerDomain, described
from discretion.bilevel.problem import BilevelProblem, Rows
from discretion.bilevel.solvers import InnerSolution, InnerSolver, newton
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PublicError

__all__ = ["Backend", "Compiled", "Derivatives", "Problem"]

Floats = NDArray[np.float64]


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
    """Derivatives that bring quicker ways of their own to what products with H would do. Their answers are checked."""

    def minimise(self, x: Floats, y: Floats, records: Any, tolerance: float) -> Floats: ...
    def solve(self, x: Floats, y: Floats, b: Floats, records: Any, tolerance: float) -> tuple[Floats, Floats]: ...


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
    def some(self, records: Any, rows: Any) -> Any: ...


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
    y_init: Floats  # pyright: ignore[reportIncompatibleVariableOverride]
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
        object.__setattr__(self, "neighbours", relation(self.neighbours))
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
            raise MissingConstant(
                "No constants were declared for this problem: give declared=Constants(...)."
                if self.declared_at is None
                else "declared_at alone gives constants at one point and no suprema over the domain: give "
                "declared=Constants(...) too."
            )
        self.need_inner_domain()
        return self._of_relation(found)

    @property
    def listed(self) -> str:
        at = ", at every x that is reached" if self.declared_at is not None else ""
        known = {} if self.declared is None else self.declared.known()
        return at + ("" if not known else ": " + ", ".join(f"{name} = {value:.6g}" for name, value in known.items()))

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
            "inner_dimension": len(self.y_init),
            "domain": described(self.x_domain),
            "inner_domain": described(self.inner_domain),
            "constants": None if self.declared is None else self.declared.described(),
            "constants_at": self.declared_at is not None,
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

    def batched(self, counts: Counts) -> Problem:
        return replace(self, counts=counts)

    def take(self, held: Any, rows: tuple[Rows, ...]) -> Any:
        parts = (held.training, held.validation) if isinstance(held, SplitRecords) else (held,)
        taken = [self.backend.some(part, some) for part, some in zip(parts, rows, strict=True)]
        return SplitRecords(*taken) if isinstance(held, SplitRecords) else taken[0]

    def solve(self, x: Floats, records: Any, tolerance: float, start: Floats | None = None) -> InnerSolution:
        begin = self.y_init if start is None else start
        if self.solver is None and isinstance(self.derivatives, Compiled):
            # the gradient is computed where solutions are checked, in `certified_inner`
            return InnerSolution(self.derivatives.minimise(x, begin, inner_part(records), tolerance))
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

    def product_solve(self, x: Floats, y: Floats, b: Floats, records: Any, tolerance: float) -> tuple[Floats, Floats]:
        if isinstance(self.derivatives, Compiled):
            return self.derivatives.solve(x, y, b, inner_part(records), tolerance)
        return super().product_solve(x, y, b, records, tolerance)
