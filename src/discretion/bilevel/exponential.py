"""The exponential mechanism on a public finite list of outer points: pure differential privacy, no convexity needed.

    plain       chance of x_i ~ exp(-k Phi(x_i)),  k = epsilon / (Delta + 4a)
    candidate   chance of x_i ~ exp(-(epsilon/2) s_i),
                s_i = max_j [(Phi(x_i) + t D_i) - (Phi(x_j) + t D_j)] / (D_i + D_j)

Delta bounds the range over x of Phi_Z - Phi_Z', D_j its size at x_j, a the error of a computed value. Both have bounded
range epsilon. Lowy and Liu (2025) sample from exp(-(epsilon / (2 Delta)) Phi); their Delta already bounds the range, so
that half the error is had at the same price. The candidate score is the generalised exponential mechanism of
Raskhodnikova and Smith (2016). Proof: `docs/proofs/bilevel-exponential.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.problem import BilevelProblem, Grid, Layout, default_grid
from discretion.bilevel.report import Report
from discretion.bilevel.samplers import choose
from discretion.bilevel.sensitivity import Bound, lipschitz, range_bound, value_change
from discretion.gp import Box
from discretion.privacy import (
    BoundedRange,
    Certificate,
    Ledger,
    Neighbours,
    PublicError,
    Randomness,
    Release,
    SystemRandomness,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent

__all__ = [
    "Choice",
    "ExponentialMechanism",
    "NotCertified",
    "Report",
    "candidate_scores",
    "exponential",
]

Floats = NDArray[np.float64]
Score = Literal["plain", "candidate"]

_ROUNDING = 2e-12  # of epsilon: covers the relative errors of the weights, below 4e-13 each
_UNEVEN, _FINE = 2.0, 0.2


class NotCertified(ValueError):
    """The law of the output is not proved, so that it has no privacy loss and no ledger takes it."""


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Release):
    """The chosen outer point.

    Attributes:
        certificate: what it cost.
        x: the point, (d,).
        place: its index in the list.
        facts: public facts that the choice rests on.
    """

    x: Floats
    place: int
    facts: Report

    def report(self) -> Report:
        """Delta, k, break-down, constants, and whether the choice could be informative."""
        return self.facts


def candidate_scores(values: Floats, changes: Floats, t: float) -> Floats:
    """max_j [(Phi_i + t D_i) - (Phi_j + t D_j)] / (D_i + D_j), (N,): it moves by at most 1 between neighbours.

    Args:
        values: Phi, (N,). changes: D, (N,), positive, public. t: at least 0, public.
    """
    raised = values + t * changes
    scores = np.empty(len(values))
    for at in range(0, len(values), 512):  # blocks of rows, so that long lists do not need N^2 numbers at once
        rows = slice(at, at + 512)
        scores[rows] = np.max((raised[rows, None] - raised) / (changes[rows, None] + changes), axis=1)
    return scores


@dataclass(frozen=True, eq=False, kw_only=True)
class ExponentialMechanism:
    """A private choice of the outer variable among public points: bounded range epsilon.

    Parameters
    ----------
    problem : BilevelProblem
    epsilon : float
        Above 1e-9.
    grid : Grid, optional
        The points; by default those of the problem's domain: a list as it is, 201, 61^2 or 31^3 points of a box or
        ball in one to three dimensions.
    score : {"plain", "candidate"}, optional
        By default "plain" where one sensitivity for all points is small enough: where log(N/b)/k is at most a fifth
        of the loss spread expected beforehand, or the D_j differ by less than a factor 2. Else "candidate", which
        reaches the points of small D_j that a worst-case sensitivity drowns, and pays for it at those of large D_j.
    failure : float
        b in t = 2 log(N/b) / epsilon of the candidate score.
    value_share : float
        Error allowed in a value, as a share of its sensitivity.
    spread : float, optional
        Loss difference between points expected beforehand, from public knowledge, for the report; by default what the
        constants bound.
    offsets : array (N,), optional
        Public amounts added to the loss of each point, such as what the noise of a later release will cost there;
        refused where double precision could not hold value and offset together.
    delta : float
        At which the certificate states epsilon.
    sampler : callable, optional
        Of (scores, randomness): draws in place of the exact one. It is NOT CERTIFIED: the mechanism then has no privacy
        loss, and no ledger takes it.
    unit : str
        The unit of privacy in words.

    Raises
    ------
    ValueError
        A parameter out of range, or one point only.
    MissingConstant
        A constant is needed that nobody declared.
    Refused
        No record can change anything: choose without records.
    """

    problem: BilevelProblem
    epsilon: float
    grid: Grid | None = None
    score: Score | None = None
    failure: float = 0.05
    value_share: float = 0.0025
    spread: float | None = None
    offsets: Floats | None = None
    delta: float = 0.0
    sampler: Callable[[Floats, Randomness], int] | None = None
    unit: str = "one record"

    name = "private-bilevel-choice"

    def __post_init__(self) -> None:
        if self.problem.layout is Layout.SEPARABLE:
            raise Refused("Every record has an inner problem of its own here: clip its hypergradient and add noise.")
        if not 1e-9 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a finite number above 1e-9; got {self.epsilon!r}.")
        for label in ("failure", "value_share"):
            if not 0 < getattr(self, label) < 1:
                raise ValueError(f"{label} must lie strictly between 0 and 1; got {getattr(self, label)!r}.")
        if self.score not in (None, "plain", "candidate"):
            raise ValueError(f'score must be "plain" or "candidate"; got {self.score!r}.')
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1); got {self.delta!r}.")
        if self.offsets is not None:
            offsets = np.asarray(self.offsets, dtype=np.float64)
            if offsets.shape != (len(self.points),) or not np.isfinite(offsets).all():
                raise ValueError("offsets must be one finite public number for each point.")
            object.__setattr__(self, "offsets", offsets)
        if len(self.points) < 2:
            raise ValueError("There is one point only: nothing is to be chosen, and nothing need be spent.")
        errors = self.plan.errors
        if self.offsets is not None and np.spacing(np.abs(self.offsets).max()) > 1e-3 * errors.min():
            raise Refused(
                "The offsets are so large that adding them would round the values by more than their accuracy: "
                "subtract a constant from all, or keep points out that cost that much."
            )

    # --- public

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the problem."""
        return self.problem.neighbours

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    @cached_property
    def points(self) -> Floats:
        """The candidates, (N, d)."""
        if self.grid is None:
            return default_grid(self.problem.x_domain)
        if not self.problem.x_domain.contains(self.grid.array).all():
            raise ValueError("Some points of the grid lie outside the domain, where the constants need not hold.")
        return self.grid.array

    @cached_property
    def plan(self) -> _Plan:
        """Sensitivities, errors and accuracies, from public facts."""
        problem, N = self.problem, len(self.points)
        everywhere = problem.constants()
        local = [problem.constants(x) for x in self.points]
        try:
            changes = np.array([value_change(c, problem.counts).value for c in local])
        except MissingConstant:
            changes = None
        spread = range_bound(everywhere, problem.counts, float(problem.x_domain.diameter()))
        if changes is not None:
            parts = spread.parts | {"twice the largest change at a point": 2.0 * float(changes.max())}
            spread = Bound(min(parts.values()), parts, "least")
        if not 0.0 < spread.value < math.inf:
            if spread.value == 0.0 or (changes is not None and not changes.any()):
                raise Refused("No record can change which point is best: minimise on any public data, for free.")
            raise Refused("No finite sensitivity follows from these constants: bound the domain or the outer loss.")
        score = self.score
        if score is None:
            uneven = changes is not None and changes.max() > _UNEVEN * changes.min()
            coarse = spread.value * math.log(N / self.failure) / self.epsilon > _FINE * self._spread(everywhere)
            score = "candidate" if uneven and coarse else "plain"
        if score == "candidate":
            if changes is None:
                _ = value_change(everywhere, problem.counts)  # says what is missing
                raise MissingConstant("The candidate score needs B_f: a bound of the outer loss's spread.")
            sizes = np.maximum(changes, 1e-9 * changes.max())
        else:
            sizes = np.full(N, spread.value)
        errors = self.value_share * sizes
        slopes = np.array([c.get("L_fy") for c in local])
        curvatures = np.array([c.get("mu_g") for c in local])
        with np.errstate(divide="ignore"):
            # half of the error is for the inner solution, half for the rounding of a value
            tolerances = 0.5 * curvatures * errors / slopes
        reachable = np.array([problem.least_tolerance(x) for x in self.points])
        if np.any(tolerances < reachable):
            raise Refused(
                "Double precision does not reach the accuracy of the inner solutions that these numbers of records and "
                "penalties need. Raise the least penalty or value_share."
            )
        return _Plan(score, spread, changes, sizes, errors, tolerances, everywhere)

    @property
    def _used(self) -> float:
        """epsilon less what the rounding of weights may add."""
        return self.epsilon - _ROUNDING

    @property
    def t(self) -> float:
        """2 log(N/b) / epsilon."""
        return 2.0 * math.log(len(self.points) / self.failure) / self.epsilon

    @property
    def k(self) -> float:
        """epsilon / (Delta + 4a); for the candidate score epsilon / (4 (D + 2a)) at the median D."""
        plan = self.plan
        if plan.score == "plain":
            return self._used / (plan.range.value + 4.0 * float(plan.errors[0]))
        return self._used / (4.0 * float(np.median(plan.sizes + 2.0 * plan.errors)))

    def scores(self, values: Floats) -> Floats:
        """PRIVATE values (N,) in, PRIVATE scores (N,) out: point i is drawn with chance ~ exp(-score_i)."""
        plan = self.plan
        if plan.score == "plain":
            return self.k * (values - values.min())
        return 0.5 * self._used * candidate_scores(values, plan.sizes + 2.0 * plan.errors, self.t)

    def privacy_loss(self, n: int) -> BoundedRange:
        """Bounded range epsilon: pure epsilon-DP, and better than that in composition.

        Raises:
            NotCertified: the sampler is not the exact one.
            ValueError: n is not the public number of records.
        """
        if self.sampler is not None:
            raise NotCertified(
                "The draw comes from a sampler whose law is not proved: it has no privacy loss, and no ledger takes "
                "it. Leave out sampler to draw exactly."
            )
        if self.n_is_public and n != self.problem.counts.total:
            raise ValueError(f"The problem is for {self.problem.counts.total:,} records in all; give that number as n.")
        return BoundedRange(self.epsilon, neighbours=self.neighbours, rule="exponential mechanism, bounded range")

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        plan = self.plan
        return {
            "problem": self.problem.parameters(),
            "epsilon": self.epsilon,
            "score": plan.score,
            "points": len(self.points),
            "first_point": self.points[0].tolist(),
            "last_point": self.points[-1].tolist(),
            "range": plan.range.value,
            "failure": self.failure,
            "value_share": self.value_share,
            "offsets": None if self.offsets is None else self.offsets.tolist(),
        }

    def report(self) -> Report:
        """What the choice rests on, before any record is read."""
        plan, problem = self.plan, self.problem
        spread = self._spread(plan.constants)
        changes = None if plan.changes is None else (float(plan.changes.min()), float(plan.changes.max()))
        if plan.score == "plain":
            told = np.full(len(self.points), math.log(len(self.points) / self.failure) / self.k)
        else:
            told = 2.0 * self.t * (plan.sizes + 2.0 * plan.errors)
        return Report(
            score=plan.score,
            candidates=len(self.points),
            epsilon=self.epsilon,
            range=plan.range,
            changes=changes,
            k=self.k,
            value_error=float(plan.errors.max()),
            spread=spread,
            nats=self.k * spread,
            resolution=(float(told.min()), float(told.max())),
            within_reach=int(np.sum(told < spread)),
            discretisation=self._discretisation(),
            verified=problem.verified,
            certified=self.sampler is None,
            constants=plan.constants,
        )

    def _discretisation(self) -> float | None:
        """L_Phi times half the diagonal of a cell of the default grid (of a ball: its whole diagonal)."""
        domain = self.problem.x_domain
        if self.grid is not None or isinstance(domain, Grid):
            return None
        steps = [float(np.diff(np.unique(axis)).min()) for axis in self.points.T]
        try:
            return lipschitz(self.plan.constants) * math.hypot(*steps) * (0.5 if isinstance(domain, Box) else 1.0)
        except MissingConstant:
            return None

    def _spread(self, c: Constants) -> float:
        """As given; else the loss of the model that knows nothing, or what the constants bound."""
        if self.spread is not None:
            return self.spread
        if self.problem.loss_scale is not None:
            return self.problem.loss_scale
        bounds = [math.inf if c.one_f is None else c.one_f]
        with suppress(MissingConstant):
            bounds.append(lipschitz(c) * float(self.problem.x_domain.diameter()))
        return min(bounds)

    # --- with records

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records of the wrong shape or number before anything is spent."""
        self.problem.ingest(records)
        return self.problem.counts.total if self.n_is_public else None

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> Choice:
        """The choice. Called by the ledger after the loss is reserved.

        Raises:
            InnerNotCertified: an inner solution is not as accurate as the guarantee needs.
            NotCertified: the sampler is not the exact one; use `sample_uncertified`.
        """
        total = self.problem.counts.total
        loss = self.privacy_loss(total)
        place = choose(self._scored(records), randomness)
        facts = ("Features are shortened and labels clipped or mapped record by record, to the declared domain.",)
        certificate = Certificate.issue(
            self,
            n=total if self.n_is_public else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=loss,
            enforced=(
                *(facts if self.problem.verified else ()),
                "Every inner solution has the gradient norm that its error bound needs.",
            ),
            declared=(
                "The points, the domain and the numbers of records were not chosen by looking at these records.",
                *self.problem.declarations,
            ),
        )
        return Choice(certificate, self.points[place], place, self.report())

    def _scored(self, records: Any) -> Floats:
        values = self.problem.values(self.points, self.problem.ingest(records), self.plan.tolerances)
        if not np.isfinite(values).all():
            raise PublicError("A value of the outer loss is not finite: the problem or its constants are wrong.")
        return self.scores(values if self.offsets is None else values + self.offsets)

    @cleared
    @silent()
    def sample_uncertified(self, records: Any, randomness: Randomness) -> Floats:
        """NOT PRIVATE as far as anybody has proved: a draw by `sampler`, for research. No release, no certificate."""
        sampler = choose if self.sampler is None else self.sampler
        return self.points[int(sampler(self._scored(records), randomness))]


@dataclass(frozen=True, eq=False)
class _Plan:
    """Public: the score; Delta; D_j; what values are measured in; a_j; gradient norms; constants of the domain."""

    score: str
    range: Bound
    changes: Floats | None
    sizes: Floats
    errors: Floats
    tolerances: Floats
    constants: Constants


@cleared
def exponential(
    problem: BilevelProblem,
    records: Any,
    *,
    epsilon: float,
    ledger: Ledger | None = None,
    randomness: Randomness | None = None,
    **options: Any,
) -> Choice:
    """Choose the outer variable privately among public points: see `ExponentialMechanism` for the options."""
    mechanism = ExponentialMechanism(problem=problem, epsilon=epsilon, **options)
    if ledger is not None:
        total = problem.counts.total
        return ledger.run(mechanism, records, n=total, randomness=randomness)  # pyright: ignore[reportReturnType]
    return mechanism.run(records, SystemRandomness() if randomness is None else randomness)
