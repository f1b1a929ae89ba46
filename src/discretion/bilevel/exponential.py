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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import Layout
from discretion.bilevel.domains import Grid, default_grid, described
from discretion.bilevel.forecast import Forecast, Hypothetical, not_ruled_out
from discretion.bilevel.mechanism import ProblemMechanism, run_on
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.report import Report
from discretion.bilevel.samplers import choose
from discretion.bilevel.scores import DOUBT, HEAD_STARTS, Rule, Score, preferred
from discretion.bilevel.sensitivity import Bound, lipschitz, range_bound, value_change
from discretion.gp import Box
from discretion.privacy import (
    BoundedRange,
    Ledger,
    PublicError,
    Randomness,
    Release,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = [
    "TENTH",
    "Choice",
    "ExponentialMechanism",
    "NotCertified",
    "Report",
    "exponential",
]

Floats = NDArray[np.float64]

_ROUNDING = 2e-12  # of epsilon: covers the relative errors of the weights, below 4e-13 each
_UNEVEN = 2.0
TENTH = 0.1  # of the loss that the constants bound: on tables we know the spread over penalties was 0.08 to 0.44 of it


class NotCertified(ValueError):
    """The law of the output is not proved, so that it has no privacy loss and no ledger takes it."""


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Release):
    """The chosen outer point.

    Attributes:
        certificate: what it cost.
        x: the point, (d,). Of a penalty it is the logarithm.
        place: its index in the list.
        penalty: lambda, where x is the logarithm of one; else None.
        facts: public facts that the choice rests on.
    """

    x: Floats
    place: int
    penalty: float | None
    facts: Report

    def report(self) -> Report:
        """Whether the choice could be informative, and what it rests on."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class ExponentialMechanism(ProblemMechanism):
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
        By default "plain", which never does worse than a uniform choice. If `spread` is given, "candidate" where the
        plain score is not forecast to be informative (`Forecast`) and the candidate score is: nowhere worse than a
        uniform choice, even where losses differ by a third of `spread` only; or, if the plain score is itself nearly a
        uniform choice, in part. Where losses differ by much less than was thought it leans to points of small D_i
        whatever the records say, so no guess decides for it.
    head_start : float, optional
        Of the candidate score, in nats: how much likelier a point of small D_i is than one of large D_i where losses
        are alike, t = 2 head_start / epsilon. By default what is forecast to do best. log(20 N) is that of
        Raskhodnikova and Smith (2016), which finds a best point of small D_i and misses one of large D_i.
    value_share : float
        Error allowed in a value, as a share of its sensitivity.
    spread : float, optional
        Difference of the loss between the best and the worst point, from public knowledge: for the forecast alone. By
        default a tenth of what the constants bound, such as the loss of the model that knows nothing.
    offsets : array (N,), optional
        Public amounts added to the loss of each point, such as what the noise of a later release will cost there. The
        report compares with a uniform choice among points that they do not rule out: at most `spread` above the least;
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
    head_start: float | None = None
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
        self.problem.need_inner_domain()
        if not 1e-9 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a finite number above 1e-9; got {self.epsilon!r}.")
        if not 0 < self.value_share < 1:
            raise ValueError(f"value_share must lie strictly between 0 and 1; got {self.value_share!r}.")
        if self.spread is not None and not 0 < self.spread < math.inf:
            raise ValueError(f"spread must be a positive finite number; got {self.spread!r}.")
        if self.head_start is not None and not (self.score == "candidate" and 0 <= self.head_start < 600):
            raise ValueError('head_start is for score="candidate": a number of [0, 600).')
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
        errors = self.plan.rule.errors
        if self.offsets is not None and np.spacing(np.abs(self.offsets).max()) > 1e-3 * errors.min():
            raise Refused(
                "The offsets are so large that adding them would round the values by more than their accuracy: leave "
                "out points that cost that much, such as the smallest penalties."
            )

    # --- public

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
        problem = self.problem
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
        if self.score == "candidate" and changes is None:
            _ = value_change(everywhere, problem.counts)  # says what is missing
            raise MissingConstant("The candidate score needs B_f: a bound of the outer loss's spread.")
        rule, other = self._rules(spread.value, changes)
        slopes = np.array([c.get("L_fy") for c in local])
        curvatures = np.array([c.get("mu_g") for c in local])
        with np.errstate(divide="ignore"):
            # half of the error is for the inner solution, half for the rounding of a value
            tolerances = 0.5 * curvatures * rule.errors / slopes
        reachable = np.array([problem.least_tolerance(x) for x in self.points])
        if np.any(tolerances < reachable):
            raise Refused(
                "Double precision does not reach the accuracy of the inner solutions that these numbers of records and "
                "penalties need. Raise the least penalty, or spread the points further apart."
            )
        return _Plan(rule, other, spread, changes, tolerances, everywhere)

    def _rules(self, range_: float, changes: Floats | None) -> tuple[Rule, Rule | None]:
        """The rule to take; the one not taken, if there was a choice."""
        used = self.epsilon - _ROUNDING
        plain = Rule("plain", used, np.full(len(self.points), range_), self.value_share)
        if (
            changes is None
            or self.score == "plain"
            or (self.score is None and changes.max() <= _UNEVEN * changes.min())
        ):
            return plain, None
        sizes = np.maximum(changes, 1e-9 * changes.max())  # none is 0
        starts = HEAD_STARTS if self.head_start is None else (self.head_start,)
        candidates = [Rule("candidate", used, sizes, self.value_share, start) for start in starts]
        if len(candidates) == 1:
            return candidates[0], None
        rule, other = preferred(plain, candidates, self._hypothetical, self._spread(range_))
        best = other if rule is plain else rule
        if self.score == "candidate":
            return best, None
        return (plain, best) if self.spread is None else (rule, other)  # a guess may be wrong by more than DOUBT

    @cached_property
    def _hypothetical(self) -> Hypothetical:
        return Hypothetical(self.points, self.offsets)

    @property
    def k(self) -> float:
        """epsilon / (Delta + 4a); for the candidate score epsilon / (4 (D + 2a)) at the median D."""
        return self.plan.rule.k

    def scores(self, values: Floats) -> Floats:
        """PRIVATE values (N,) in, PRIVATE scores (N,) out: point i is drawn with chance ~ exp(-score_i)."""
        return self.plan.rule.scores(values)

    @property
    def loss(self) -> BoundedRange:
        """Bounded range epsilon: pure epsilon-DP, and better than that in composition.

        Raises:
            NotCertified: the sampler is not the exact one.
        """
        if self.sampler is not None:
            raise NotCertified(
                "The draw comes from a sampler whose law is not proved: it has no privacy loss, and no ledger takes "
                "it. Leave out sampler to draw exactly."
            )
        return BoundedRange(
            self.epsilon, neighbours=self.neighbours, rule=self.given("exponential mechanism, bounded range")
        )

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        plan = self.plan
        return {
            "released": "One point of a public list, chosen",
            "problem": self.problem.parameters(),
            "epsilon": self.epsilon,
            "score": plan.rule.name,
            "points": len(self.points),
            "grid": described(self.grid),
            "range": plan.range.value,
            "head_start": plan.rule.head_start,
            "value_share": self.value_share,
            "offsets": None if self.offsets is None else self.offsets.tolist(),
        }

    def report(self) -> Report:
        """What the choice rests on and what it can be expected to be worth, before any record is read."""
        plan, problem = self.plan, self.problem
        spread = self._spread(plan.range.value)
        rule, changes = plan.rule, plan.changes
        likely, smaller, larger = (
            self._hypothetical.forecast(rule.scores, spread * by) for by in (1.0, 1.0 / DOUBT, DOUBT)
        )
        other = None if plan.other is None else self._hypothetical.forecast(plan.other.scores, spread)
        return Report(
            score=rule.name,
            head_start=rule.head_start,
            favoured=None if rule.head_start is None else self._told(int(np.argmin(rule.sizes))),
            candidates=len(self.points),
            epsilon=self.epsilon,
            forecasts=(likely, smaller, larger),
            other=other,
            hardest=self._told(likely.hardest),
            fixed=self._told(likely.fixed),
            ruled_out=0 if self.offsets is None else int(np.sum(~not_ruled_out(self.offsets, spread))),
            missed=self._runs(likely),
            missed_otherwise=() if other is None else self._runs(other),
            spread_is_given=self.spread is not None,
            range=plan.range,
            changes=None if changes is None else (float(changes.min()), float(changes.max())),
            k=rule.k,
            value_error=float(rule.errors.max()),
            discretisation=self._discretisation(),
            verified=problem.verified,
            certified=self.sampler is None,
            constants=plan.constants,
        )

    def _told(self, place: int) -> str:
        """A point in words."""
        x = self.points[place]
        penalty = self.problem.penalty_at(x)
        return f"x = {np.array2string(x, precision=3)}" if penalty is None else f"penalty {penalty:.3g}"

    def _runs(self, forecast: Forecast) -> tuple[str, ...]:
        """Best points that would be missed, in words."""
        return tuple(
            self._told(first) + ("" if first == last else f" to {self._told(last).removeprefix('penalty ')}")
            for first, last in forecast.missed
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

    def _spread(self, range_: float) -> float:
        """As given; else a tenth of the loss of the model that knows nothing, or of the least bound of differences."""
        if self.spread is not None:
            return self.spread
        if self.problem.loss_scale is not None:
            return TENTH * self.problem.loss_scale
        c = self.problem.constants()
        bounds = [range_ * self.problem.counts.outer, *(each for each in (c.one_f, c.B_f) if each)]
        with suppress(MissingConstant):
            bounds.append(lipschitz(c) * float(self.problem.x_domain.diameter()))
        return TENTH * min(each for each in bounds if each > 0)

    # --- with records

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=(
                *self.problem.enforcements,
                "Every inner solution has the gradient norm that its error bound needs.",
                "The draw is exact.",
            ),
            declared=self.problem.declarations,
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> Choice:
        """The choice. Called by the ledger after the loss is reserved.

        Raises:
            InnerNotCertified: an inner solution is not as accurate as the guarantee needs.
            NotCertified: the sampler is not the exact one; use `sample_uncertified`.
        """
        _ = self.loss
        place = choose(self._scored(records), randomness)
        certificate = self.certificate(randomness)
        x = self.points[place]
        return Choice(certificate, x, place, self.problem.penalty_at(x), self.report())

    def _scored(self, records: Any) -> Floats:
        values = self.problem.values(self.points, self.problem.ingest(records), self.plan.tolerances)
        if not np.isfinite(values).all():
            raise PublicError("A value of the outer loss is not finite: the problem or its constants are wrong.")
        self.problem.check_rounding(values, float(self.plan.rule.errors.min()))
        return self.scores(values if self.offsets is None else values + self.offsets)

    @cleared
    @silent()
    def sample_uncertified(self, records: Any, randomness: Randomness) -> Floats:
        """NOT PRIVATE as far as anybody has proved: a draw by `sampler`, for research. No release, no certificate."""
        sampler = choose if self.sampler is None else self.sampler
        return self.points[int(sampler(self._scored(records), randomness))]


@dataclass(frozen=True, eq=False)
class _Plan:
    """Public: the rule, and the one not taken; Delta; D_j; gradient norms; constants of the domain."""

    rule: Rule
    other: Rule | None
    range: Bound
    changes: Floats | None
    tolerances: Floats
    constants: Constants


@cleared
def exponential(
    problem: BilevelProblem,
    records: Any,
    *,
    epsilon: float,
    ledger: Ledger | str | Path | None = None,
    randomness: Randomness | None = None,
    **options: Any,
) -> Choice:
    """Choose the outer variable privately among public points: see `ExponentialMechanism` for the options.

    `ledger` pays and books, one that exists or its path; `randomness` is the operating system's by default.
    """
    return run_on(ExponentialMechanism(problem=problem, epsilon=epsilon, **options), records, ledger, randomness)
