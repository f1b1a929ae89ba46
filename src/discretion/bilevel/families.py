"""Families of bilevel problems whose constants are facts: records are clipped to a public domain at ingestion.

Linear models of records (a, b), |a| <= R, with training records in the inner loss and validation records in the outer
one:

    y(x) = argmin  mean of rho(a'y, b) over the training records + (lambda/2) |y - centre|^2
    Phi(x) = mean of rho(a'y(x), b) over the validation records

`RidgePenalty`, `LogisticPenalty`, `HuberPenalty` choose x = log lambda (centre 0); `BiasedRidge` chooses the centre x.
`QuadraticMean` is the instance of the lower bound of Lowy and Liu (2025). Constants, with proofs:
`docs/proofs/bilevel-families.md`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants
from discretion.bilevel.problem import (
    BilevelProblem,
    Counts,
    Domain,
    Grid,
    InnerNotCertified,
    InnerSolution,
    Layout,
    SplitRecords,
    check_count,
)
from discretion.bilevel.scalar import Huber, Logistic, PseudoHuber, ScalarLoss, Square
from discretion.bilevel.solvers import descend
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PublicError

__all__ = ["BiasedRidge", "HuberPenalty", "LogisticPenalty", "QuadraticMean", "RidgePenalty", "Table"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_BLOCK = 8192


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """PRIVATE. Features (n, d) and one label (n,) each."""

    features: Floats
    labels: Floats

    @classmethod
    def split(cls, features: Any, labels: Any, training: Any) -> SplitRecords:
        """Training records where the public mask (n,) is true, validation records elsewhere."""
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
class _LinearFamily(BilevelProblem):
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
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        if self.neighbours is Neighbours.REPLACE_RESPONSE:
            raise ValueError("Bilevel problems have an account under 'replace' and 'add-remove' neighbours only.")
        if self.dimension < 1:
            raise ValueError("dimension must be at least 1.")
        _positive("feature_bound", self.feature_bound)
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
        A, b = np.asarray(table.features, dtype=np.float64), np.asarray(table.labels, dtype=np.float64)
        if A.ndim != 2 or A.shape[1] != self.dimension or b.shape != (len(A),):
            raise PublicError(f"Records must have features of shape (n, {self.dimension}) and labels of shape (n,).")
        check_count(len(A), count, self.neighbours)
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        return _Part(shortened(A, self.feature_bound), self.loss.labels(b), count)

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

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: SplitRecords) -> tuple[Floats, float]:
        H = self.inner_hessian(x, y, records)
        v = np.asarray(np.linalg.solve(H, b), dtype=np.float64)
        return v, float(np.linalg.norm(H @ v - b))


class _SquareFamily(_LinearFamily):
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


@dataclass(frozen=True, eq=False, kw_only=True)
class _PenaltyFamily(_LinearFamily):
    """x = log lambda, one coordinate.

    Parameters
    ----------
    penalties : (least, largest)
        Public range of lambda, positive.
    candidates : int, optional
        How many values, evenly spaced in log lambda; None for the whole interval.
    """

    penalties: tuple[float, float] = (1e-3, 10.0)
    candidates: int | None = 41

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.penalties
        _positive("penalties", low)
        if not low < high < math.inf:
            raise ValueError("penalties must be two finite numbers, least < largest.")
        object.__setattr__(self, "penalties", (float(low), float(high)))
        if self.candidates is None:
            domain: Domain = Box((math.log(low),), (math.log(high),))
        elif self.candidates < 2:
            raise ValueError("Give at least two candidates, or None for the whole interval.")
        else:
            domain = Grid.of(np.linspace(math.log(low), math.log(high), self.candidates))
        object.__setattr__(self, "x_domain", domain)

    def penalty(self, x: Floats) -> float:
        return math.exp(float(x[0]))

    def centre(self, x: Floats) -> Floats:
        return np.zeros(self.dimension)

    def reach(self, x: Floats | None) -> float:
        return self._reach(self.penalties[0] if x is None else self.penalty(x))

    def _reach(self, penalty: float) -> float:
        """Of the gradient, lambda |y| <= R max rho'; of the value, (lambda/2) |y|^2 <= max rho(0)."""
        R, loss = self.feature_bound, self.loss
        value = math.sqrt(2.0 * loss.at_zero() / penalty)
        return min(R * loss.largest_slope(R * value) / penalty, value)

    def constants(self, x: Floats | None = None) -> Constants:
        """At log lambda = x; or what makes every bound of `sensitivity` a supremum over the domain.

        The bounds fall with lambda, so that the second are the constants at the least lambda, with derivatives in x at
        the largest. Of these b_gxy and r_xy alone are not suprema.
        """
        penalty = self.penalties[0] if x is None else self.penalty(x)
        largest = self.penalties[1] if x is None else penalty
        reach = self._reach(penalty)
        found: dict[str, Any] = self._data_constants(reach, penalty) | {
            "L_gy": self.feature_bound * self.loss.largest_slope(self.feature_bound * reach) + penalty * reach,
            "b_gxy": penalty * reach,
            "b_gyy": largest + self.feature_bound**2 * self.loss.largest_curvature,
            "r_xy": penalty,
            "r_xy_x": largest * reach,
            "r_yy_x": largest,
            "D_y": reach,
        }
        return self._neighbourly(Constants(**found))

    def values(self, points: Floats, records: SplitRecords, tolerances: Floats) -> Floats:
        """From the largest penalty down, each solution the start of the next."""
        order = np.argsort(-points[:, 0], kind="stable")
        found = np.empty(len(points))
        found[order] = super().values(points[order], records, tolerances[order])
        return found

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: SplitRecords) -> Floats:
        return np.array([self.penalty(x) * float(y @ v)])

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"penalties": list(self.penalties), "candidates": self.candidates}


@dataclass(frozen=True, eq=False, kw_only=True)
class RidgePenalty(_PenaltyFamily, _SquareFamily):
    """The penalty of a ridge regression: (a'y - b)^2 / 2 + (lambda/2) |y|^2, labels clipped to [-B, B].

    Parameters
    ----------
    label_bound : float
        B.
    training, validation, dimension, feature_bound, neighbours, penalties, candidates
        Public: numbers of records, features and their bound R, the relation, the range of lambda and how many values.

    Raises
    ------
    ValueError
        A parameter out of range.
    """

    label_bound: float = 1.0

    family: ClassVar[str] = "ridge penalty"

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("label_bound", self.label_bound)

    @property
    def loss(self) -> ScalarLoss:
        return Square(self.label_bound)

    def _reach(self, penalty: float) -> float:
        return ridge_reach(self.feature_bound, self.label_bound, penalty)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"label_bound": float(self.label_bound)}


@dataclass(frozen=True, eq=False, kw_only=True)
class LogisticPenalty(_PenaltyFamily):
    """The penalty of a logistic regression: log(1 + exp(-b a'y)) + (lambda/2) |y|^2; b is 1 where positive, else -1.

    Parameters as for `RidgePenalty`, without a bound of the labels.
    """

    family: ClassVar[str] = "logistic penalty"

    @property
    def loss(self) -> ScalarLoss:
        return Logistic()


@dataclass(frozen=True, eq=False, kw_only=True)
class HuberPenalty(_PenaltyFamily):
    """The penalty of a Huber regression, for both losses: u^2/2 up to |u| = corner, linear beyond, u = a'y - b.

    Its curvature jumps, so that it goes on finite lists only; with ``smooth=True`` the pseudo-Huber loss
    c^2 (sqrt(1 + (u/c)^2) - 1) takes its place, which has a hypergradient.

    Parameters
    ----------
    label_bound, corner : float
        B and c.
    smooth : bool
    """

    label_bound: float = 1.0
    corner: float = 0.5
    smooth: bool = False

    family: ClassVar[str] = "Huber penalty"

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("label_bound", self.label_bound)
        _positive("corner", self.corner)

    @property
    def loss(self) -> ScalarLoss:
        return (PseudoHuber if self.smooth else Huber)(self.label_bound, self.corner)

    def parameters(self) -> dict[str, Any]:
        own = {"label_bound": float(self.label_bound), "corner": float(self.corner), "smooth": bool(self.smooth)}
        return super().parameters() | own


@dataclass(frozen=True, eq=False, kw_only=True)
class BiasedRidge(_SquareFamily):
    """The centre x of a biased ridge regression, (a'y - b)^2 / 2 + (lambda/2) |y - x|^2: Phi is convex in x, always.

    Parameters
    ----------
    domain : Box, Ball or Grid
        Of x, in as many dimensions as there are features.
    strength : float
        lambda, fixed and public.
    label_bound : float
        B.
    """

    domain: Domain
    strength: float = 1.0
    label_bound: float = 1.0

    family: ClassVar[str] = "biased ridge"

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("strength", self.strength)
        _positive("label_bound", self.label_bound)
        if self.domain.dimension != self.dimension:
            raise ValueError("The centre has one coordinate for each feature: domain and dimension must agree.")
        object.__setattr__(self, "x_domain", self.domain)

    @property
    def loss(self) -> ScalarLoss:
        return Square(self.label_bound)

    @property
    def convex(self) -> bool:
        return True

    def penalty(self, x: Floats) -> float:
        return self.strength

    def centre(self, x: Floats) -> Floats:
        return x

    def reach(self, x: Floats | None) -> float:
        length = farthest(self.domain) if x is None else float(np.linalg.norm(x))
        return ridge_reach(self.feature_bound, self.label_bound, self.strength) + length

    def constants(self, x: Floats | None = None) -> Constants:
        """At x, or over the domain."""
        reach, R = self.reach(x), self.feature_bound
        found: dict[str, Any] = self._data_constants(reach, self.strength) | {
            "L_gy": 2.0 * R * (R * reach + self.label_bound),
            "b_gxy": self.strength,
            "r_xy": 0.0,
            "r_xy_x": 0.0,
            "r_yy_x": 0.0,
        }
        return self._neighbourly(Constants(**found))

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: SplitRecords) -> Floats:
        return -self.strength * v

    def parameters(self) -> dict[str, Any]:
        own = {"strength": float(self.strength), "label_bound": float(self.label_bound), "domain": repr(self.domain)}
        return super().parameters() | own


@dataclass(frozen=True, eq=False, kw_only=True)
class QuadraticMean(BilevelProblem):
    """f = -<y, z>, g = |y - x|^2 / 2 over the unit ball, |z| <= 1: Phi(x) = -<x, mean of z>.

    The instance of the lower bound: the inner solution is x itself and depends on no record.

    Parameters
    ----------
    records : int
        n.
    dimension : int
        d.
    """

    records: int
    dimension: int
    neighbours: Neighbours = Neighbours.REPLACE

    layout: ClassVar[Layout] = Layout.JOINT  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        object.__setattr__(self, "counts", Counts(self.records))
        object.__setattr__(self, "x_domain", Ball((0.0,) * self.dimension, 1.0))

    @property
    def verified(self) -> bool:
        return True

    @property
    def convex(self) -> bool:
        return True

    def parameters(self) -> dict[str, Any]:
        return {
            "problem": "quadratic mean",
            "records": int(self.records),
            "dimension": int(self.dimension),
            "neighbours": self.neighbours.value,
        }

    def constants(self, x: Floats | None = None) -> Constants:
        nought: dict[str, Any] = dict.fromkeys(
            ("L_fx", "b_fxx", "b_fxy", "b_fyy", "r_xy", "r_yy", "r_xy_x", "r_yy_x", "D_g", "D_gxy", "D_gyy"), 0.0
        )
        single: dict[str, Any] = dict.fromkeys(("one_g", "one_gxy", "one_gyy"), 0.0) | {"one_f": 1.0}
        found = Constants(**nought, **single, L_fy=1.0, mu_g=1.0, L_gy=2.0, b_gxy=1.0, b_gyy=1.0, D_y=2.0, B_f=2.0)
        return found.single_terms() if self.neighbours is Neighbours.ADD_REMOVE else found

    def ingest(self, records: Any) -> Floats:
        Z = np.asarray(records, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != self.dimension:
            raise PublicError(f"Records must be an array of shape (n, {self.dimension}).")
        check_count(len(Z), self.records, self.neighbours)
        if not np.isfinite(Z).all():
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        return shortened(Z, 1.0)

    def solve(self, x: Floats, records: Floats, tolerance: float, start: Floats | None = None) -> InnerSolution:
        return InnerSolution(np.asarray(x, dtype=np.float64), 0.0, True)

    def mean(self, records: Floats) -> Floats:
        """The mean of the records: PRIVATE."""
        return records.sum(axis=0) / self.records

    def outer_value(self, x: Floats, y: Floats, records: Floats) -> float:
        return -float(y @ self.mean(records))

    def values(self, points: Floats, records: Floats, tolerances: Floats) -> Floats:
        return -points @ self.mean(records)

    def outer_gradients(self, x: Floats, y: Floats, records: Floats) -> tuple[Floats, Floats]:
        return np.zeros(self.dimension), -self.mean(records)

    def inner_gradient(self, x: Floats, y: Floats, records: Floats) -> Floats:
        return y - x

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Floats) -> Floats:
        return v

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Floats) -> Floats:
        return -v

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: Floats) -> tuple[Floats, float]:
        return b, 0.0


def ridge_reach(R: float, B: float, penalty: float) -> float:
    """Most that a ridge solution is long: B max over s <= R of s / (s^2 + lambda). Attained."""
    return B / (2.0 * math.sqrt(penalty)) if penalty <= R * R else R * B / (R * R + penalty)


def farthest(domain: Domain) -> float:
    """Largest |x| on a domain."""
    if isinstance(domain, Box):
        return math.hypot(*(max(abs(a), abs(b)) for a, b in zip(domain.lower, domain.upper, strict=True)))
    if isinstance(domain, Ball):
        return math.hypot(*domain.center) + domain.radius
    return float(np.max(np.linalg.norm(domain.array, axis=1)))


def shortened(A: Floats, bound: float) -> Floats:
    """Rows of A shortened to length `bound`, a little inside so that rounding does not lead out of it."""
    largest = np.max(np.abs(A), axis=1, keepdims=True)
    directions = A / np.where(largest > 0, largest, 1.0)  # no finite row overflows
    length = np.linalg.norm(directions, axis=1, keepdims=True) * (1.0 + (A.shape[1] + 16) * _UNIT)
    return directions * np.minimum(largest, bound / np.maximum(length, 1e-300))


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}.")
