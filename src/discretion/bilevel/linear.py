"""Bilevel problems of linear models: clipped records, sums over them, certified inner solutions.

Records (a, b), |a| <= R, with training records in the inner loss and validation records in the outer one:

    y(x) = argmin  mean of rho(a'y, b) over the training records + (lambda/2) |y - centre|^2
    Phi(x) = mean of rho(a'y(x), b) over the validation records

What x is, lambda or the centre, is said in `families.py`. Constants, with proofs: `docs/proofs/bilevel-families.md`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants
from discretion.bilevel.counts import Counts, Layout, SplitRecords, check_count, check_whole, relation
from discretion.bilevel.problem import BilevelProblem, Rows
from discretion.bilevel.scalar import ScalarLoss
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution, descend
from discretion.privacy import Neighbours, PublicError
from discretion.privacy.clipping import clip
from discretion.privacy.frames import cleared
from discretion.privacy.records import numbers

__all__ = ["LinearFamily", "SquareFamily", "Table", "check_positive"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_BLOCK = 8192


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """PRIVATE. ``features`` (n, d) and one of ``labels`` (n,) each."""

    features: Floats
    labels: Floats

    @classmethod
    @cleared
    def split(cls, features: Any, labels: Any, training: Any) -> SplitRecords:
        """Training records where the public mask (n,) is true, validation records elsewhere.

        The mask goes by position, so the order of the records must not depend on them: in a table kept sorted by a
        private column one replaced record moves others to the other part. Shuffle such a table first.
        """
        X, b, mask = np.asarray(features), np.asarray(labels), np.asarray(training, dtype=bool)
        return SplitRecords(cls(X[mask], b[mask]), cls(X[~mask], b[~mask]))


class _Part:
    """PRIVATE. Clipped records of one loss, with the fixed denominator of its mean."""

    def __init__(self, A: Floats, b: Floats, count: int) -> None:
        self.A, self.b, self.count = A, b, count

    def mean(self, weights: Floats) -> Floats:
        """A' weights / count, summed in blocks."""
        blocks = (self.A[at : at + _BLOCK].T @ weights[at : at + _BLOCK] for at in range(0, len(self.A), _BLOCK))
        return sum(blocks, np.zeros(self.A.shape[1])) / self.count

    def gram_of(self, weights: Floats) -> Floats:
        """A' diag(weights) A / count."""
        total = np.zeros((self.A.shape[1],) * 2)
        for at in range(0, len(self.A), _BLOCK):
            rows = self.A[at : at + _BLOCK]
            total += (rows * weights[at : at + _BLOCK, None]).T @ rows
        return total / self.count

    @cached_property
    def gram(self) -> Floats:
        """A'A / count."""
        return self.gram_of(np.ones(len(self.A)))

    @cached_property
    def moment(self) -> Floats:
        """A'b / count."""
        return self.mean(self.b)

    @cached_property
    def square(self) -> float:
        """b'b / count."""
        return float(self.b @ self.b) / self.count

    @cached_property
    def eigen(self) -> tuple[Floats, Floats]:
        """Eigenvalues (d,), at least 0, and vectors of `gram`: once for all penalties."""
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearFamily(BilevelProblem):
    """What the families of linear models share.

    Parameters
    ----------
    training, validation : int
        Public numbers of records; under add/remove public bounds of them, which are also the denominators.
    dimension : int
        Number of features d.
    feature_bound : float
        R: longer feature vectors are shortened to it.
    neighbours : Neighbours
        ``"replace"`` or ``"add-remove"``.
    """

    training: int
    validation: int
    dimension: int
    feature_bound: float = 1.0
    neighbours: Neighbours = Neighbours.REPLACE

    layout: ClassVar[Layout] = Layout.SPLIT  # pyright: ignore[reportIncompatibleVariableOverride]
    family: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", relation(self.neighbours))
        check_whole("dimension", self.dimension)
        check_positive("feature_bound", self.feature_bound)
        object.__setattr__(self, "counts", Counts(self.training, self.validation))

    # --- what a family says

    @property
    @abstractmethod
    def loss(self) -> ScalarLoss:
        """rho."""

    @abstractmethod
    def penalty(self, x: Floats) -> float:
        """lambda at x."""

    @abstractmethod
    def centre(self, x: Floats) -> Floats:
        """What y is drawn to at x, (d,)."""

    @abstractmethod
    def reach(self, x: Floats | None) -> float:
        """R_y: most that y(x) can be long, at x or over the domain."""

    # --- public

    @property
    def verified(self) -> bool:
        return True

    def parameters(self) -> dict[str, Any]:
        return {
            "problem": self.family,
            "training": int(self.training),
            "validation": int(self.validation),
            "dimension": int(self.dimension),
            "feature_bound": float(self.feature_bound),
            "neighbours": self.neighbours.value,
        }

    def _data_constants(self, reach: float, penalty: float) -> dict[str, Any]:
        """Those that the loss and the domain give, for |y| <= reach."""
        R, loss = self.feature_bound, self.loss
        slope, curvature = R * loss.largest_slope(R * reach), R * R * loss.largest_curvature
        return {
            "L_fx": 0.0,
            "L_fy": slope,
            "b_fxx": 0.0,
            "b_fxy": 0.0,
            "b_fyy": curvature,
            "mu_g": penalty,
            "b_gyy": penalty + curvature,
            "r_yy": R**3 * loss.largest_third(),
            "D_g": 2.0 * slope,
            "D_gxy": 0.0,
            "D_gyy": curvature,
            "B_f": loss.spread(R * reach),
            "S_f": loss.largest_value(R * reach),  # no value is negative
            "one_g": slope,
            "one_gxy": 0.0,
            "one_gyy": curvature,
            "one_f": loss.largest_value(R * reach),
            "smooth": loss.smooth,
        }

    def _neighbourly(self, constants: Constants) -> Constants:
        return constants.single_terms() if self.neighbours is Neighbours.ADD_REMOVE else constants

    @property
    def loss_scale(self) -> float:
        """The largest loss of y = 0."""
        return self.loss.at_zero()

    def least_tolerance(self, x: Floats) -> float:
        return 4.0 * self._rounding(x)

    def _rounding(self, x: Floats) -> float:
        """Most that rounding does to a computed gradient: sums of blocks, and products of numbers bounded by R_y."""
        R, reach = self.feature_bound, 2.0 * self.reach(x)
        summed = (min(_BLOCK, self.training) + self.training / _BLOCK + self.dimension + 64) * _UNIT
        drawn = self.penalty(x) * (reach + float(np.linalg.norm(self.centre(x))))
        return summed * R * (R * reach + self.loss.largest_slope(R * reach)) + 8 * _UNIT * self.dimension * drawn

    # --- private

    def ingest(self, records: Any) -> SplitRecords:
        if not (
            isinstance(records, SplitRecords)
            and isinstance(records.training, Table)
            and isinstance(records.validation, Table)
        ):
            raise PublicError("This problem runs on SplitRecords of two Tables: see Table.split.")
        return SplitRecords(
            self._part(records.training, self.training), self._part(records.validation, self.validation)
        )

    def _part(self, table: Table, count: int) -> _Part:
        A, b = numbers(table.features, "The features"), numbers(table.labels, "The labels")
        if A.ndim != 2 or A.shape[1] != self.dimension or b.shape != (len(A),):
            raise PublicError(f"Records must have features of shape (n, {self.dimension}) and labels of shape (n,).")
        check_count(len(A), count, self.neighbours)
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        return _Part(clip(A, self.feature_bound), self.loss.labels(b), count)

    def batched(self, counts: Counts) -> Self:
        return replace(self, training=counts.training, validation=counts.outer)

    def take(self, held: SplitRecords, rows: tuple[Rows, ...]) -> SplitRecords:
        parts = zip((held.training, held.validation), rows, strict=True)
        return SplitRecords(*(_Part(part.A[some], part.b[some], len(some)) for part, some in parts))

    def solve(self, x: Floats, records: SplitRecords, tolerance: float, start: Floats | None = None) -> InnerSolution:
        part, penalty, centre = records.training, self.penalty(x), self.centre(x)

        def gradient(y: Floats) -> Floats:
            return part.mean(self.loss.slope(part.A @ y, part.b)) + penalty * (y - centre)

        def direction(y: Floats, downhill: Floats) -> Floats:
            H = part.gram_of(self.loss.curvature(part.A @ y, part.b)) + penalty * np.eye(len(y))
            return np.asarray(np.linalg.solve(H, downhill), dtype=np.float64)

        return descend(gradient, direction, centre if start is None else start, tolerance, self._rounding(x))

    def outer_value(self, x: Floats, y: Floats, records: SplitRecords) -> float:
        part = records.validation
        return float(np.sum(self.loss.value(part.A @ y, part.b))) / part.count

    def outer_gradients(self, x: Floats, y: Floats, records: SplitRecords) -> tuple[Floats, Floats]:
        part = records.validation
        return np.zeros(self.x_domain.dimension), part.mean(self.loss.slope(part.A @ y, part.b))

    def inner_gradient(self, x: Floats, y: Floats, records: SplitRecords) -> Floats:
        part = records.training
        return part.mean(self.loss.slope(part.A @ y, part.b)) + self.penalty(x) * (y - self.centre(x))

    def inner_hessian(self, x: Floats, y: Floats, records: SplitRecords) -> Floats:
        """grad^2_yy G, (d, d)."""
        part = records.training
        return part.gram_of(self.loss.curvature(part.A @ y, part.b)) + self.penalty(x) * np.eye(self.dimension)

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: SplitRecords) -> Floats:
        part = records.training
        return part.mean(self.loss.curvature(part.A @ y, part.b) * (part.A @ v)) + self.penalty(x) * v

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: SplitRecords) -> Floats:
        return np.asarray(np.linalg.solve(self.inner_hessian(x, y, records), b), dtype=np.float64)


class SquareFamily(LinearFamily):
    """The square loss: everything from sums of products, and one eigendecomposition for every x."""

    def solve(self, x: Floats, records: SplitRecords, tolerance: float, start: Floats | None = None) -> InnerSolution:
        part, penalty = records.training, self.penalty(x)
        values, vectors = part.eigen
        y = vectors @ ((vectors.T @ (part.moment + penalty * self.centre(x))) / (values + penalty))
        length = float(np.linalg.norm(self.inner_gradient(x, y, records))) + self._rounding(x)
        return InnerSolution(y, length, length <= tolerance)

    def inner_gradient(self, x: Floats, y: Floats, records: SplitRecords) -> Floats:
        part = records.training
        return part.gram @ y - part.moment + self.penalty(x) * (y - self.centre(x))

    def inner_hessian(self, x: Floats, y: Floats, records: SplitRecords) -> Floats:
        return records.training.gram + self.penalty(x) * np.eye(self.dimension)

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: SplitRecords) -> Floats:
        return records.training.gram @ v + self.penalty(x) * v

    def outer_value(self, x: Floats, y: Floats, records: SplitRecords) -> float:
        part = records.validation
        return 0.5 * (float(y @ part.gram @ y) - 2.0 * float(part.moment @ y) + part.square)

    def outer_gradients(self, x: Floats, y: Floats, records: SplitRecords) -> tuple[Floats, Floats]:
        return np.zeros(self.x_domain.dimension), records.validation.gram @ y - records.validation.moment

    def values(self, points: Floats, records: SplitRecords, tolerances: Floats) -> Floats:
        """All points in one go, (N,)."""
        part, held = records.training, records.validation
        penalties = np.array([self.penalty(x) for x in points])
        centres = np.array([self.centre(x) for x in points])
        values, vectors = part.eigen
        drawn = part.moment + penalties[:, None] * centres
        Y = ((drawn @ vectors) / (values + penalties[:, None])) @ vectors.T
        gradients = Y @ part.gram - part.moment + penalties[:, None] * (Y - centres)
        rounding = np.array([self._rounding(x) for x in points])
        if np.any(~(np.linalg.norm(gradients, axis=1) + rounding <= tolerances)):
            raise InnerNotCertified("Double precision does not reach the accuracy that is needed; raise the penalty.")
        return 0.5 * (np.einsum("nd,nd->n", Y @ held.gram, Y) - 2.0 * (Y @ held.moment) + held.square)


def check_positive(name: str, value: float) -> None:
    """Refuse what is not positive, or so large or small that powers and quotients of it leave double precision."""
    if not 1e-50 < value < 1e50:
        raise ValueError(f"{name} must be a positive number of ordinary size, between 1e-50 and 1e50; got {value!r}.")
