"""A linear model whose penalty is chosen on the private records themselves: the choice and the model as one release.

The records are parted by position into training and validation records; the penalty is chosen by the exponential
mechanism, by their loss and by what the noise of the model will cost, which is public; the model is then fitted to all
records at the chosen penalty and released with noise. One certificate holds both prices.

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

from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import LogisticPenalty, RidgePenalty
from discretion.bilevel.inner import inner_noise, perturbed
from discretion.bilevel.linear import Table, shortened
from discretion.bilevel.problem import SplitRecords, default_grid
from discretion.bilevel.report import Report
from discretion.privacy import Certificate, GaussianDP, Neighbours, PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent

__all__ = ["TunedModel", "TunedRelease"]

Floats = NDArray[np.float64]


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
    facts: Report

    def report(self) -> Report:
        """Delta, k, break-down, constants, and whether the choice could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedModel:
    """Choose lambda, then fit (1/n) sum of losses + (lambda/2) |w|^2 and release w.

    Rows are scaled to the unit ball, x / feature_bound, with an intercept (x, 1)/sqrt(2), intercept penalised too;
    responses of the ridge to [-1, 1] by `response_range`, labels of the logistic to -1 or 1 by their sign.

    Parameters
    ----------
    kind : {"ridge", "logistic"}
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
        Public range and number of values of lambda.
    validation_share : float
        Share of the records by which lambda is chosen.
    delta : float
        At which the certificate states epsilon.
    unit : str
    """

    kind: Literal["ridge", "logistic"]
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
    delta: float = 1e-6
    unit: str = "one record (its covariates and its response)"

    name = "private-tuned-model"
    neighbours = Neighbours.REPLACE

    def __post_init__(self) -> None:
        low, high = self.response_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
        if not (math.isfinite(self.feature_bound) and self.feature_bound > 0):
            raise ValueError(f"feature_bound must be a positive finite number; got {self.feature_bound!r}.")
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
    def problem(self) -> RidgePenalty | LogisticPenalty:
        """The choice of lambda as a bilevel problem."""
        validation = int(self.held.sum())
        return (RidgePenalty if self.kind == "ridge" else LogisticPenalty)(
            training=self.records - validation,
            validation=validation,
            dimension=self.dimension + self.intercept,
            penalties=self.penalties,
            candidates=self.candidates,
        )

    @cached_property
    def whole(self) -> RidgePenalty | LogisticPenalty:
        """The same with every record in the inner loss: what the model is fitted by."""
        return replace(self.problem, training=self.records)

    @cached_property
    def choice(self) -> ExponentialMechanism:
        """The choice as a mechanism of its own. It knows, in public, what the model's noise will cost.

        Noise e of variance s^2 in each coordinate adds (curvature/2) s^2 |a|^2 to the loss of a row a on average, at
        most: |a| <= 1.
        """
        offsets = None
        if self.mu is not None:
            points = default_grid(self.problem.x_domain)
            noise = np.array([inner_noise(self.whole, x, self.mu)[0] for x in points])
            offsets = 0.5 * self.problem.loss.largest_curvature * noise**2
        return ExponentialMechanism(problem=self.problem, epsilon=self.choice_epsilon, offsets=offsets)

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """Bounded range of the choice and Gaussian DP of the model, composed."""
        loss = self.choice.privacy_loss(n)
        if self.mu is None:
            return loss
        return loss + GaussianDP(self.mu, neighbours=self.neighbours, rule="Gaussian noise on the inner solution")

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {
            "kind": self.kind,
            "dimension": int(self.dimension),
            "choice_epsilon": float(self.choice_epsilon),
            "mu": None if self.mu is None else float(self.mu),
            "feature_bound": float(self.feature_bound),
            "response_range": [float(end) for end in self.response_range],
            "intercept": bool(self.intercept),
            "penalties": [float(end) for end in self.penalties],
            "candidates": int(self.candidates),
            "validation_share": float(self.validation_share),
        }

    @cleared
    def check(self, records: Table) -> int:
        """Refuse records of the wrong shape or number before anything is spent."""
        self._parts(records)
        return self.records

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
        certificate = Certificate.issue(
            self,
            n=self.records,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
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
        return TunedRelease(certificate, self.problem.penalty(chosen.x), coefficients, intercept, chosen.facts)

    def _parts(self, records: Table) -> tuple[SplitRecords, SplitRecords]:
        """Training and validation records; all records, and validation records that the model ignores."""
        X, y = np.asarray(records.features, dtype=np.float64), np.asarray(records.labels, dtype=np.float64)
        if X.ndim != 2 or X.shape != (self.records, self.dimension) or y.shape != (self.records,):
            raise PublicError(f"Records must be {self.records:,} rows of {self.dimension} covariates and one response.")
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        A = shortened(X, self.feature_bound) / self.feature_bound
        if self.intercept:
            A = np.column_stack([A, np.ones(len(A))]) / math.sqrt(2.0)
        if self.kind == "ridge":
            low, high = self.response_range
            y = np.clip((np.clip(y, low, high) - 0.5 * (low + high)) / (0.5 * (high - low)), -1.0, 1.0)
        parts = Table(A[~self.held], y[~self.held]), Table(A[self.held], y[self.held])
        return SplitRecords(*parts), SplitRecords(Table(A, y), parts[1])

    def _unscaled(self, w: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept in the units of the data."""
        low, high = self.response_range if self.kind == "ridge" else (-1.0, 1.0)
        w = 0.5 * (high - low) * w / (math.sqrt(2.0) if self.intercept else 1.0)
        own = float(w[-1]) if self.intercept else 0.0
        return w[: self.dimension] / self.feature_bound, own + 0.5 * (low + high)
