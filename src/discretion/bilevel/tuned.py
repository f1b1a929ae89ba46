"""A linear model whose penalty is chosen on the private records themselves: the choice and the model as one release.

The records are parted by position into training and validation records; the penalty is chosen by the exponential
mechanism, by their loss and by what the noise of the model will cost, which is public; the model is then fitted to all
records at the chosen penalty and released with noise. One certificate holds both prices. Penalties that the noise alone
rules out are no candidates: no record need be asked, and the least penalty sets what one record can do to the choice.

The order of the records must not depend on them: in a sorted table one replaced record moves others to the other part.
Shuffle such a table first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.counts import SplitRecords, check_whole
from discretion.bilevel.domains import default_grid
from discretion.bilevel.exponential import TENTH, ExponentialMechanism
from discretion.bilevel.families import HuberPenalty, LogisticPenalty, RidgePenalty
from discretion.bilevel.forecast import not_ruled_out
from discretion.bilevel.inner import inner_noise, perturbed
from discretion.bilevel.linear import Table, check_positive
from discretion.bilevel.mechanism import BilevelMechanism
from discretion.bilevel.report import TunedReport
from discretion.bilevel.scores import Score
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.clipping import clip
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.privacy.records import numbers
from discretion.privacy.verification import Sentences

__all__ = ["TunedModel", "TunedRelease"]

Floats = NDArray[np.float64]

ONE_RECORD = "one record (its covariates and its response)"
"""The unit of privacy, if no other is named."""
Kind = Literal["ridge", "logistic", "huber"]
Family = RidgePenalty | LogisticPenalty | HuberPenalty

_FAMILIES: dict[str, type[Family]] = {"ridge": RidgePenalty, "logistic": LogisticPenalty, "huber": HuberPenalty}


@dataclass(frozen=True, eq=False, repr=False)
class TunedRelease(Release):
    """A chosen penalty and, if it was paid for, the model.

    Attributes:
        certificate: what both cost.
        penalty: lambda, on the problem scaled to the unit ball.
        coefficients: array (d,) in the units of the data, or None.
        intercept: float, or None.
        facts: public facts that the choice rests on.
    """

    penalty: float
    coefficients: Floats | None
    intercept: float | None
    facts: TunedReport

    def report(self) -> TunedReport:
        """Price, noise, and whether the choice could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedModel(BilevelMechanism):
    """Choose lambda, then fit (1/n) sum of losses + (lambda/2) |w|^2 and release w.

    Rows are scaled to the unit ball, x / feature_bound, with an intercept (x, 1)/sqrt(2), intercept penalised too;
    responses of ridge and Huber to [-1, 1] by `response_range`, labels of the logistic to -1 or 1 by their sign.

    Parameters
    ----------
    kind : {"ridge", "logistic", "huber"}
    records : int
        n, public.
    dimension : int
        Number of covariates.
    choice_epsilon : float
        Bounded range of the choice.
    mu : float, optional
        Gaussian DP of the model; None: no model is released.
    feature_bound, response_range, intercept
        Public scaling.
    penalties, candidates
        Public range and number of values of lambda; of these no candidate is one at which the noise of the model costs
        more, beyond its least, than `spread`.
    validation_share : float
        Share of the records by which lambda is chosen.
    score, head_start, spread : optional
        Of the choice: see `ExponentialMechanism`. The spread is that of the scaled loss, by default a tenth of its
        largest value for the model that knows nothing.
    corner : float
        Of the Huber loss: the scaled residual from which on it is linear.
    delta : float
        At which the certificate states epsilon.
    unit : str
    """

    kind: Kind
    records: int
    dimension: int
    choice_epsilon: float
    mu: float | None = None
    feature_bound: float = 1.0
    response_range: tuple[float, float] = (-1.0, 1.0)
    intercept: bool = True
    penalties: tuple[float, float] = (1e-3, 10.0)
    candidates: int = 41
    validation_share: float = 0.5
    score: Score | None = None
    head_start: float | None = None
    spread: float | None = None
    corner: float = 0.5
    delta: float = 1e-6
    unit: str = ONE_RECORD

    name = "private-tuned-model"

    def __post_init__(self) -> None:
        if self.kind not in _FAMILIES:
            raise ValueError(f'kind must be "ridge", "logistic" or "huber"; got {self.kind!r}.')
        for name, least in (("records", 2), ("dimension", 1), ("candidates", 2)):
            check_whole(name, getattr(self, name), least)
        low, high = self.response_range
        if not (low < high and max(abs(low), abs(high)) < 1e50):
            raise ValueError(f"response_range must be two numbers of ordinary size, low < high; got {low!r}, {high!r}.")
        check_positive("The width of response_range", high - low)
        check_positive("feature_bound", self.feature_bound)
        if self.mu is not None and not 0 < self.mu < math.inf:
            raise ValueError(f"mu must be a positive finite number, or None; got {self.mu!r}.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share must lie strictly between 0 and 1; got {self.validation_share!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if not 0 < int(self.held.sum()) < self.records:
            raise ValueError("Both parts need a record: give more records, or another validation_share.")
        _ = self.choice

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Which positions are validation records: evenly spaced, whatever the records are."""
        return np.diff(np.floor(np.arange(self.records + 1) * self.validation_share)) > 0

    @cached_property
    def asked(self) -> Family:
        """The choice among all penalties, as a bilevel problem."""
        validation = int(self.held.sum())
        own: dict[str, Any] = {"corner": self.corner} if self.kind == "huber" else {}
        return _FAMILIES[self.kind](
            training=self.records - validation,
            validation=validation,
            dimension=self.dimension + self.intercept,
            penalties=self.penalties,
            candidates=self.candidates,
            **own,
        )

    @cached_property
    def problem(self) -> Family:
        """The choice among penalties that the noise of the model leaves: one more than the largest, at least."""
        if self.mu is None:
            return self.asked
        spread = TENTH * self.asked.loss_scale if self.spread is None else self.spread
        left = not_ruled_out(self._noise_costs(self.asked, self.mu), spread)
        first = min(int(np.argmax(left)), self.candidates - 2)
        if first == 0:
            return self.asked
        low = self.asked.penalty(default_grid(self.asked.x_domain)[first])
        ends = low, self.asked.penalties[1]
        return replace(self.asked, penalties=ends, candidates=self.candidates - first)

    def _noise_costs(self, problem: Family, mu: float) -> Floats:
        """What the noise of the model adds to the loss at each penalty, on average and at most: public.

        Noise e of variance s^2 in each coordinate adds (curvature/2) s^2 |a|^2 to the loss of a row a: |a| <= 1.
        """
        whole, points = replace(problem, training=self.records), default_grid(problem.x_domain)
        noise = np.array([inner_noise(whole, x, mu)[0] for x in points])
        return 0.5 * problem.loss.largest_curvature * noise**2

    @cached_property
    def whole(self) -> Family:
        """The same with every record in the inner loss: what the model is fitted by."""
        return replace(self.problem, training=self.records)

    @cached_property
    def choice(self) -> ExponentialMechanism:
        """The choice as a mechanism of its own. It knows, in public, what the model's noise will cost."""
        return ExponentialMechanism(
            problem=self.problem,
            epsilon=self.choice_epsilon,
            offsets=None if self.mu is None else self._noise_costs(self.problem, self.mu),
            score=self.score,
            head_start=self.head_start,
            spread=self.spread,
        )

    def report(self) -> TunedReport:
        """What it costs, how noisy the model is and what the choice can be expected to be worth."""
        noise = None
        if self.mu is not None:
            low, high = self._range
            ends = [inner_noise(self.whole, np.log([penalty]), self.mu)[0] for penalty in self.problem.penalties]
            noise = 0.5 * (high - low) * ends[0], 0.5 * (high - low) * ends[1]
        return TunedReport(
            epsilon=self.loss.epsilon(self.delta),
            delta=self.delta,
            mu=self.mu,
            penalties=self.problem.penalties,
            left_out=self.candidates - len(self.choice.points),
            noise=noise,
            unit="log odds" if self.kind == "logistic" else "units of y",
            choice=self.choice.report(),
        )

    @property
    def neighbours(self) -> Neighbours:
        """One record replaced."""
        return Neighbours.REPLACE

    @property
    def total(self) -> int:
        """Number of records."""
        return self.records

    @property
    def loss(self) -> PrivacyLoss:
        """Bounded range of the choice and Gaussian DP of the model, composed."""
        loss = self.choice.loss
        if self.mu is None:
            return loss
        return loss + GaussianDP(self.mu, neighbours=self.neighbours, rule="Gaussian noise on the inner solution")

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        model = "" if self.mu is None else " and the model fitted with it"
        return {
            "released": f"A penalty{model}, chosen",
            "kind": self.kind,
            "dimension": int(self.dimension),
            "choice_epsilon": float(self.choice_epsilon),
            "mu": None if self.mu is None else float(self.mu),
            "feature_bound": float(self.feature_bound),
            "response_range": [float(end) for end in self.response_range],
            "intercept": bool(self.intercept),
            "penalties": [float(end) for end in self.problem.penalties],
            "candidates": len(self.choice.points),
            "spread": None if self.spread is None else float(self.spread),
            "validation_share": float(self.validation_share),
            "score": self.choice.plan.rule.name,
            "head_start": self.choice.plan.rule.head_start,
            **({"corner": float(self.corner)} if self.kind == "huber" else {}),
        }

    @cleared
    def check(self, records: Table) -> int:
        """Refuse records of the wrong shape or number before anything is spent."""
        self._parts(records)
        return self.records

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=(
                f"Covariates are shortened to length {self.feature_bound:g}, row by row.",
                "Responses are clipped to their range, or mapped to one of two labels, one by one.",
                "Which records choose the penalty depends on their positions alone.",
                "Every inner solution has the gradient norm that its error bound needs.",
            ),
            declared=(
                "The order of the records does not depend on them: in a sorted table one record moves all the others.",
            ),
            limits=() if self.mu is None else ("The model's last bits: the proof is for exact Gaussian noise.",),
        )

    @cleared
    @silent()
    def run(self, records: Table, randomness: Randomness) -> TunedRelease:
        """The penalty and the model. Called by the ledger after the loss is reserved."""
        split, joined = self._parts(records)
        chosen = self.choice.run(split, randomness)
        coefficients = intercept = None
        if self.mu is not None:
            w = perturbed(self.whole, chosen.x, self.whole.ingest(joined), self.mu, randomness)
            coefficients, intercept = self._unscaled(w)
        certificate = self.certificate(randomness)
        return TunedRelease(certificate, self.problem.penalty(chosen.x), coefficients, intercept, self.report())

    def _parts(self, records: Table) -> tuple[SplitRecords, SplitRecords]:
        """Training and validation records; all records, and validation records that the model ignores."""
        X, y = numbers(records.features, "X"), numbers(records.labels, "y")
        if X.ndim != 2 or X.shape != (self.records, self.dimension) or y.shape != (self.records,):
            raise PublicError(f"Records must be {self.records:,} rows of {self.dimension} covariates and one response.")
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        A = clip(X, self.feature_bound) / self.feature_bound
        if self.intercept:
            A = np.column_stack([A, np.ones(len(A))]) / math.sqrt(2.0)
        if self.kind != "logistic":
            low, high = self._range
            y = np.clip((np.clip(y, low, high) - 0.5 * (low + high)) / (0.5 * (high - low)), -1.0, 1.0)
        parts = Table(A[~self.held], y[~self.held]), Table(A[self.held], y[self.held])
        return SplitRecords(*parts), SplitRecords(Table(A, y), parts[1])

    @property
    def _range(self) -> tuple[float, float]:
        """Of responses, or of log odds as they are."""
        return (-1.0, 1.0) if self.kind == "logistic" else self.response_range

    def _unscaled(self, w: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept in the units of the data."""
        low, high = self._range
        w = 0.5 * (high - low) * w / (math.sqrt(2.0) if self.intercept else 1.0)
        own = float(w[-1]) if self.intercept else 0.0
        return w[: self.dimension] / self.feature_bound, own + 0.5 * (low + high)
