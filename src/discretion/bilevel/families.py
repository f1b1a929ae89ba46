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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants
from discretion.bilevel.counts import Counts, Layout, SplitRecords, check_count, check_whole, relation
from discretion.bilevel.domains import Domain, Grid, described, farthest
from discretion.bilevel.linear import LinearFamily, SquareFamily, Table, check_positive
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.scalar import Huber, Logistic, PseudoHuber, ScalarLoss, Square
from discretion.bilevel.solvers import InnerSolution
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PublicError
from discretion.privacy.clipping import clip
from discretion.privacy.records import numbers

__all__ = ["BiasedRidge", "HuberPenalty", "LogisticPenalty", "QuadraticMean", "RidgePenalty", "Table"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class _PenaltyFamily(LinearFamily):
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
        low, high = penalty_range(self.penalties)
        object.__setattr__(self, "penalties", (low, high))
        if self.candidates is None:
            domain: Domain = Box((math.log(low),), (math.log(high),))
        else:
            check_whole("candidates, if it is not None for the whole interval,", self.candidates, 2)
            domain = Grid.of(np.linspace(math.log(low), math.log(high), self.candidates))
        object.__setattr__(self, "x_domain", domain)

    def penalty(self, x: Floats) -> float:
        return math.exp(float(x[0]))

    def penalty_at(self, x: Floats) -> float:
        return self.penalty(x)

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
class RidgePenalty(_PenaltyFamily, SquareFamily):
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
        check_positive("label_bound", self.label_bound)

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
        check_positive("label_bound", self.label_bound)
        check_positive("corner", self.corner)

    @property
    def loss(self) -> ScalarLoss:
        return (PseudoHuber if self.smooth else Huber)(self.label_bound, self.corner)

    def parameters(self) -> dict[str, Any]:
        own = {"label_bound": float(self.label_bound), "corner": float(self.corner), "smooth": bool(self.smooth)}
        return super().parameters() | own


@dataclass(frozen=True, eq=False, kw_only=True)
class BiasedRidge(SquareFamily):
    """The centre x of a biased ridge regression, (a'y - b)^2 / 2 + (lambda/2) |y - x|^2: Phi is convex in x, always.

    Parameters
    ----------
    domain : Box, Ball or Grid
        Of x, in as many dimensions as there are features.
    strength : float
        lambda, fixed and public.
    label_bound : float
        B.

    Raises
    ------
    ValueError
        A number that is not positive, or a domain of another dimension than the features.
    """

    domain: Domain
    strength: float = 1.0
    label_bound: float = 1.0

    family: ClassVar[str] = "biased ridge"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("strength", self.strength)
        check_positive("label_bound", self.label_bound)
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
        apart = reach + (farthest(self.domain) if x is None else float(np.linalg.norm(x)))
        found: dict[str, Any] = self._data_constants(reach, self.strength) | {
            "L_gy": R * (R * reach + self.label_bound) + self.strength * apart,
            "D_y": self.domain.diameter(),  # y(x) - y(x') = lambda (S + lambda)^-1 (x - x')
            "b_gxy": self.strength,
            "r_xy": 0.0,
            "r_xy_x": 0.0,
            "r_yy_x": 0.0,
        }
        return self._neighbourly(Constants(**found))

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: SplitRecords) -> Floats:
        return -self.strength * v

    def parameters(self) -> dict[str, Any]:
        own = {"strength": float(self.strength), "label_bound": float(self.label_bound)}
        return super().parameters() | own | {"domain": described(self.domain)}


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
        object.__setattr__(self, "neighbours", relation(self.neighbours))
        check_whole("dimension", self.dimension)
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
        twice: dict[str, Any] = dict.fromkeys(("L_gy", "D_y", "B_f", "S_f"), 2.0)
        found = Constants(**nought, **single, **twice, L_fy=1.0, mu_g=1.0, b_gxy=1.0, b_gyy=1.0)
        return found.single_terms() if self.neighbours is Neighbours.ADD_REMOVE else found

    def ingest(self, records: Any) -> Floats:
        Z = numbers(records, "The records")
        if Z.ndim != 2 or Z.shape[1] != self.dimension:
            raise PublicError(f"Records must be an array of shape (n, {self.dimension}).")
        check_count(len(Z), self.records, self.neighbours)
        if not np.isfinite(Z).all():
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        return clip(Z, 1.0)

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

    def linear_solve(self, x: Floats, y: Floats, b: Floats, records: Floats) -> Floats:
        return b


def penalty_range(penalties: Any) -> tuple[float, float]:
    """The least and the largest penalty.

    Raises:
        ValueError: not two positive numbers between 1e-50 and 1e50, the least first.
    """
    ends = np.asarray(penalties, dtype=np.float64)
    if ends.shape != (2,) or not 1e-50 < ends[0] < ends[1] < 1e50:
        raise ValueError(
            "penalties must be two positive numbers of ordinary size, the least and the largest (`candidates` says how "
            f"many are tried); got {penalties!r}."
        )
    return float(ends[0]), float(ends[1])


def ridge_reach(R: float, B: float, penalty: float) -> float:
    """Most that a ridge solution is long: B max over s <= R of s / (s^2 + lambda). Attained."""
    return B / (2.0 * math.sqrt(penalty)) if penalty <= R * R else R * B / (R * R + penalty)
