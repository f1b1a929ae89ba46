"""What a bilevel problem is, whoever makes it: constants, certified inner solutions, derivatives.

    minimise over x in X:  Phi(x) = mean of f(x, y(x), z),      y(x) = argmin over y of R(x, y) + mean of g(x, y, z)

A problem holds public facts alone. Records are handed to its methods, and only mechanisms do that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.certified import certified_inner
from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import Counts, Layout
from discretion.bilevel.domains import Domain, InnerDomain
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution, conjugate_gradients
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PublicError

__all__ = ["BilevelProblem", "Rows"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_UNIT = 2.0**-52
_OF_ROUNDING = 1e-3  # of the error allowed in a value, for one rounding of it


class BilevelProblem(ABC):
    """The contract between problems and mechanisms. Vectors are flat float64 arrays; averages have fixed denominators.

    Attributes:
        x_domain: public outer domain.
        layout: which records enter which loss.
        counts: public numbers of records; under add/remove, public bounds of them and the fixed denominators.
        neighbours: replace, or add-remove.
        inner_domain: Y, public, on which the constants hold and which contains every inner solution; "everywhere" where
            the inner loss is strongly convex, with mu_g, at every y. None: nobody said, and mechanisms that rest on the
            constants refuse the problem, unless it is `verified`.
        y_init: where inner solves start, (d_y,), public; None where the problem's own solver knows.
    """

    x_domain: Domain
    layout: Layout
    counts: Counts
    neighbours: Neighbours
    inner_domain: InnerDomain | None = None
    y_init: Floats | None = None

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

    def need_inner_domain(self) -> None:
        """Refuse where nobody said on which inner variables the constants hold.

        Raises:
            MissingConstant: names the attribute.
        """
        if self.inner_domain is None and not self.verified:
            raise MissingConstant(
                "Say where the constants hold: inner_domain, a public Box or Ball that contains every inner solution, "
                'or "everywhere" if the inner loss is strongly convex, with mu_g, at every y.'
            )

    @property
    def enforcements(self) -> tuple[str, ...]:
        """What the problem itself makes true, in the words of a certificate."""
        return ("Records are shortened or clipped one by one to the declared domain.",) if self.verified else ()

    @property
    def declarations(self) -> tuple[str, ...]:
        """What somebody answers for where constants are relied on, in the words of a certificate."""
        if self.verified:
            return self.partition
        within = "The inner domain contains the inner solution of every data set, and the constants hold on it."
        everywhere = "The inner loss is strongly convex, with mu_g, at every y."
        return (
            f"The constants hold for every record that could be held{self.listed}.",
            within if isinstance(self.inner_domain, Box | Ball) else everywhere,
            "Losses are computed to double precision: no large terms cancel in them, or in their sums.",
            *self.partition,
        )

    @property
    def listed(self) -> str:
        """The declared constants, as the end of a sentence."""
        return ""

    @property
    def partition(self) -> tuple[str, ...]:
        """What somebody answers for in the split layout."""
        split = "Which part a record is in does not depend on the records, nor does their order where it decides."
        return (split,) if self.layout is Layout.SPLIT else ()

    @property
    def convex(self) -> bool:
        """Whether Phi is convex for every data set, as a fact."""
        return False

    @property
    def loss_scale(self) -> float | None:
        """Size of an outer loss, such as that of a model that knows nothing: public, for reports alone."""
        return None

    def penalty_at(self, x: Floats) -> float | None:
        """lambda, where the outer variable is the logarithm of a penalty; else None."""
        return None

    def least_tolerance(self, x: Floats) -> float:
        """The gradient norm that the inner solver reaches at x whatever the records are, rounding included: public."""
        return 0.0

    def check_rounding(self, values: float | Floats, error: float) -> None:
        """PRIVATE values of the outer loss in. Refuse those that double precision rounds by more than `error` allows.

        The families bound their rounding beforehand.

        Raises:
            PublicError: a value is too large, or not finite.
        """
        if not self.verified and not np.max(np.abs(values)) * _UNIT <= _OF_ROUNDING * error:
            raise PublicError(
                "A value of the outer loss is so large, or not finite, that double precision rounds it by more than "
                "the guarantee allows: subtract a public constant from the loss. Nothing is released; that this "
                "happened is an output that no guarantee covers."
            )

    def batched(self, counts: Counts) -> BilevelProblem:
        """The problem of data sets of so many records: the same losses and constants.

        Raises:
            Refused: the problem does not say how to take some of its records.
        """
        raise Refused("This problem does not say how to take some of its records (`batched`, `take`): leave out batch.")

    # --- private

    @abstractmethod
    def ingest(self, records: Any) -> Any:
        """Records as the other methods take them: checked for shape and number, clipped one by one to the domain.

        Raises:
            PublicError: shape, number or finiteness is wrong; no value is told.
        """

    def take(self, held: Any, rows: tuple[Rows, ...]) -> Any:
        """Some of the ingested records, by their places: of all, or in the split layout of each part."""
        raise NotImplementedError

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

        The families of this package certify what they compute. What any other solver says is not believed but checked.

        Raises:
            InnerNotCertified: the solver did not reach the tolerance.
        """
        if not self.verified:
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

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: Any) -> Floats:
        """v with H v = b, by factorising H: for d_y up to some thousand. Its residual is checked elsewhere."""
        columns = [self.inner_hvp(x, y, each, records) for each in np.eye(len(y))]
        return np.asarray(np.linalg.solve(np.array(columns).T, b), dtype=np.float64)

    def product_solve(self, x: Floats, y: Floats, b: Floats, records: Any, tolerance: float) -> tuple[Floats, Floats]:
        """v with |H v - b| about `tolerance`, by conjugate gradients, and H v. The residual is checked elsewhere."""
        v = conjugate_gradients(lambda v: self.inner_hvp(x, y, v, records), b, tolerance)
        return v, self.inner_hvp(x, y, v, records)

    def hypergradient(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, float]:
        """grad_x F - M v with H v = grad_y F, all at (x, y), and the residual of v: not private."""
        gx, b = self.outer_gradients(x, y, records)
        v = self.linear_solve(x, y, b, records)
        residual = float(np.linalg.norm(self.inner_hvp(x, y, v, records) - b))
        return gx - self.inner_cross(x, y, v, records), residual
