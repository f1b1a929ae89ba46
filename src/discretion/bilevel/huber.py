"""Huber regression that chooses its own penalty privately, as a scikit-learn estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discretion.bilevel.estimators import TunedRegressor
from discretion.bilevel.scores import Score
from discretion.bilevel.tuned import ONE_RECORD
from discretion.privacy import Ledger, Randomness

__all__ = ["HuberRidgeCV"]


class HuberRidgeCV(TunedRegressor):
    """Huber regression with a ridge penalty that is chosen on the private records, at a price that includes the choice.

    (1/n) sum h(x'w - y) + (lambda/2) |w|^2 on rows scaled to the unit ball, h(u) = u^2/2 up to |u| = corner and linear
    beyond: no residual pulls harder than the corner, and so no record, which is why one can matter less than in
    `RidgeCV`. Lambda is chosen by the Huber loss of validation records; the model is released by output perturbation.

    Parameters
    ----------
    feature_bound, response_range
        As in `RidgeCV`.
    corner : float, optional
        Public: the residual, in units of y, from which on the loss is linear; by default a quarter of the width of
        `response_range`.
    epsilon, delta, penalties, candidates, choice_share, release_model, validation_share, fit_intercept
        As in `RidgeCV`.
    choice_score, choice_spread, unit, ledger, randomness
        As in `RidgeCV`; the spread is of the Huber loss, responses scaled to [-1, 1].

    Attributes
    ----------
    release_ : TunedRelease
        Penalty, model and their one certificate; ``release_.report()`` says what the choice rests on.
    penalty_ : float
        lambda, on the problem scaled to the unit ball.
    coef_, intercept_ : array (d,), float
        The model in the units of the data, if it was released.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    Proof: ``docs/proofs/bilevel-exponential.md``, ``docs/proofs/bilevel-families.md``.
    """

    _kind = "huber"

    def __init__(
        self,
        feature_bound: float = 1.0,
        response_range: tuple[float, float] = (-1.0, 1.0),
        *,
        corner: float | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        penalties: tuple[float, float] = (1e-2, 10.0),
        candidates: int = 31,
        choice_share: float = 0.3,
        release_model: bool = True,
        validation_share: float = 0.5,
        fit_intercept: bool = True,
        choice_score: Score | None = None,
        choice_spread: float | None = None,
        unit: str = ONE_RECORD,
        ledger: Ledger | str | Path | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.feature_bound = feature_bound
        self.response_range = response_range
        self.corner = corner
        self.epsilon = epsilon
        self.delta = delta
        self.penalties = penalties
        self.candidates = candidates
        self.choice_share = choice_share
        self.release_model = release_model
        self.validation_share = validation_share
        self.fit_intercept = fit_intercept
        self.choice_score = choice_score
        self.choice_spread = choice_spread
        self.unit = unit
        self.ledger = ledger
        self.randomness = randomness

    def _loss(self) -> dict[str, Any]:
        low, high = self._range()
        # a range of no width is refused with the rest
        return {} if self.corner is None or not low < high else {"corner": 2.0 * float(self.corner) / (high - low)}
