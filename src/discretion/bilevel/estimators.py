"""Linear models that choose their own penalty privately, as scikit-learn estimators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from discretion.bilevel.families import penalty_range
from discretion.bilevel.linear import Table
from discretion.bilevel.report import TunedReport
from discretion.bilevel.scores import Score
from discretion.bilevel.tuned import ONE_RECORD, Kind, TunedModel, TunedRelease
from discretion.privacy import (
    BoundedRange,
    GaussianDP,
    Ledger,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    largest,
)
from discretion.privacy.fits import run_fit
from discretion.privacy.frames import cleared
from discretion.privacy.records import asked_table, keep_columns, plain_table, regression_table

__all__ = ["LogisticRegressionCV", "RidgeCV", "TunedRegressor"]

Floats = NDArray[np.float64]


def _whole_choice(epsilon: float, delta: float) -> float:
    """Bounded range of a choice that has all of (epsilon, delta)."""

    def meets(eta: float) -> bool:
        return BoundedRange(eta, neighbours=Neighbours.REPLACE).epsilon(delta) <= epsilon

    return largest(meets, epsilon, 2 * epsilon + 50)


@lru_cache(maxsize=64)  # a fit, its price and its report ask for the same
def _rest(choice: float, epsilon: float, delta: float) -> float:
    """mu of a model that (epsilon, delta) pays for beside a choice of this bounded range."""
    relation = Neighbours.REPLACE
    spent = BoundedRange(choice, neighbours=relation)

    def meets(mu: float) -> bool:
        return (spent + GaussianDP(mu, neighbours=relation)).epsilon(delta) <= epsilon

    return largest(meets, 1e-6, 1e4, relative_tolerance=1e-6)


class _Tuned(BaseEstimator):
    """Parameters and fitting of all models."""

    _kind: Kind

    feature_bound: float
    epsilon: float
    delta: float
    penalties: tuple[float, float]
    candidates: int
    choice_share: float
    release_model: bool
    validation_share: float
    fit_intercept: bool
    choice_score: Score | None
    choice_spread: float | None
    unit: str
    ledger: Ledger | str | Path | None
    randomness: Randomness | None

    def mechanism(self, n: int, dimension: int = 1) -> TunedModel:
        """The mechanism these parameters describe, for n records of `dimension` covariates; reads no record.

        Raises:
            ValueError: a parameter out of range, or a budget that pays for nothing.
        """
        choice, mu = self._shares()
        return TunedModel(
            kind=self._kind,
            records=n,
            dimension=dimension,
            choice_epsilon=choice,
            mu=mu,
            feature_bound=self.feature_bound,
            response_range=self._range(),
            intercept=self.fit_intercept,
            penalties=penalty_range(self.penalties),
            candidates=self.candidates,
            validation_share=self.validation_share,
            score=self.choice_score,
            spread=self.choice_spread,
            delta=self.delta,
            unit=self.unit,
            **self._loss(),
        )

    def _loss(self) -> dict[str, Any]:
        """Parameters of the loss itself."""
        return {}

    def _shares(self) -> tuple[float, float | None]:
        """Bounded range of the choice and mu of the model: together (epsilon, delta)."""
        epsilon, delta = float(self.epsilon), self.delta
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon must be a positive finite number; got {self.epsilon!r}.")
        if not 0 < delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {delta!r}.")
        if not self.release_model:
            return _whole_choice(epsilon, delta), None
        if not 0 < self.choice_share < 1:
            raise ValueError(f"choice_share must lie strictly between 0 and 1; got {self.choice_share!r}.")
        choice = self.choice_share * epsilon
        return choice, _rest(choice, epsilon, delta)

    def _range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """What fitting n records will cost, before any record is seen: `.guarantee(delta)` says it in epsilon."""
        return self.mechanism(n).privacy_loss(n)

    def report(self, n: int) -> TunedReport:
        """What fitting n records will cost, how noisy the model is, and whether the choice can be informative."""
        return self.mechanism(n).report()

    def _scale(self, n: int) -> float:
        """n penalty_ |w|^2 on the scaled problem is this many |coefficients|^2 in the units of X."""
        check_is_fitted(self)
        return n * self.penalty_ * self.feature_bound**2 * (2.0 if self.fit_intercept else 1.0)

    def _fit(self, X: Floats, y: Floats) -> TunedRelease:
        mechanism, records = self.mechanism(len(X), X.shape[1]), Table(X, y)
        release = run_fit(mechanism, records, len(X), ledger=self.ledger, randomness=self.randomness)
        for name in ("coef_", "intercept_"):  # of an earlier fit, if no model is released now
            vars(self).pop(name, None)
        self.release_, self.penalty_ = release, release.penalty
        return release

    def _decision(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        if self.release_.coefficients is None:
            raise AttributeError(
                "Only the penalty was released (release_model=False), so there is nothing to predict with."
            )
        return asked_table(self, X) @ self.release_.coefficients + self.release_.intercept

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.randomness is None
        return tags


class TunedRegressor(RegressorMixin, _Tuned):
    """Fitting and predictions of both regressions, of responses in a public range."""

    response_range: tuple[float, float]

    def _range(self) -> tuple[float, float]:
        ends: Any = self.response_range
        if np.shape(ends) != (2,):
            raise ValueError(f"response_range must be two numbers, the least and the largest response; got {ends!r}.")
        return float(ends[0]), float(ends[1])

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge the ledger, release penalty and model, forget the records: X (n, d) and y (n,) are private.

        Raises:
            ValueError: bad shapes or values, before anything is charged.
            BudgetExceeded: the ledger can't pay; nothing was read.
        """
        release = self._fit(*regression_table(self, X, y, fewest=2))
        if release.coefficients is not None:
            self.coef_, self.intercept_ = release.coefficients, release.intercept
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Predictions at X (m, d), shape (m,). Post-processing: free."""
        return self._decision(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the noise that protects the records
        return tags


class RidgeCV(TunedRegressor):
    """Ridge regression whose penalty is chosen on the private records, at a price that includes the choice.

    (1/n) sum (x'w - y)^2 / 2 + (lambda/2) |w|^2 on rows scaled to the unit ball. Lambda is chosen by the loss of
    validation records with the exponential mechanism; then the model is fitted to all records and released with
    Gaussian noise of standard deviation about 4 (max residual) / (lambda n mu). All parameters are public and must not
    be chosen by looking at the records given to ``fit``; n is public.

    Parameters
    ----------
    feature_bound : float
        Public bound of the Euclidean length of a row of X; longer rows are shortened to it.
    response_range : (low, high)
        Public range of y; responses are clipped to it.
    epsilon, delta : float
        Total price of penalty and model.
    penalties : (least, largest)
        Range of lambda. The least decides how much one record can matter: a floor too low makes the noise large.
    candidates : int
        How many values of lambda, evenly spaced in log.
    choice_share : float
        Share of epsilon for the choice, where the model is released.
    release_model : bool
        Whether the model is released; without it all of epsilon pays for the penalty.
    validation_share : float
        Share of the records by which lambda is chosen, told by position: the order of the records must not depend on
        them (a table kept sorted is to be shuffled first).
    fit_intercept : bool
    choice_score : {"plain", "candidate"}, optional
        By which lambda is chosen; by default by a forecast from public numbers: see `ExponentialMechanism`.
    choice_spread : float, optional
        Public guess of how much the loss differs between the best and the worst lambda, for that forecast: of half the
        squared error, responses scaled to [-1, 1].
    unit : str
        The unit of privacy in words, as the ledger has it.
    ledger : Ledger or path, optional
        Where the loss is reserved before a record is read.
    randomness : Randomness, optional
        For tests only.

    Attributes
    ----------
    release_ : TunedRelease
        Penalty, model and their one certificate; ``release_.report()`` says what the choice rests on.
    penalty_ : float
        lambda, on the problem scaled to the unit ball; `sklearn_alpha` converts it.
    coef_, intercept_ : array (d,), float
        The model in the units of the data, if it was released.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    Proof: ``docs/proofs/bilevel-exponential.md``, ``docs/proofs/bilevel-families.md``.
    """

    _kind = "ridge"

    def __init__(
        self,
        feature_bound: float = 1.0,
        response_range: tuple[float, float] = (-1.0, 1.0),
        *,
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

    def sklearn_alpha(self, n: int) -> float:
        """alpha of `sklearn.linear_model.Ridge` with the same penalty on n records: 2 n feature_bound^2 penalty_.

        Half of that without an intercept. Here the intercept is penalised too, as the coefficient of a column of the
        value feature_bound.
        """
        return self._scale(n)


class LogisticRegressionCV(ClassifierMixin, _Tuned):
    """Logistic regression of two classes whose penalty is chosen on the private records, at a price that includes it.

    (1/n) sum log(1 + exp(-y x'w)) + (lambda/2) |w|^2 on rows scaled to the unit ball. As `RidgeCV`, with the model
    released by output perturbation.

    Parameters
    ----------
    classes : sequence of two
        The labels there may be, public. Records with others are refused.
    feature_bound, epsilon, delta, penalties, candidates, choice_share, release_model, validation_share, fit_intercept
        As in `RidgeCV`.
    choice_score, choice_spread, unit, ledger, randomness
        As in `RidgeCV`; the spread is of the logistic loss, which is log 2 for the model that knows nothing.

    Attributes
    ----------
    release_ : TunedRelease
    penalty_ : float
        lambda, on the problem scaled to the unit ball; `sklearn_C` converts it.
    classes_ : array (2,)
    coef_, intercept_ : array (1, d), array (1,)
        The model in the units of the data, if it was released.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.
    """

    _kind = "logistic"

    def __init__(
        self,
        classes: Sequence[Any] | None = None,
        feature_bound: float = 1.0,
        *,
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
        self.classes = classes
        self.feature_bound = feature_bound
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

    def sklearn_C(self, n: int) -> float:
        """C of `sklearn.linear_model.LogisticRegression` with the same penalty on n records.

        1 / (2 n feature_bound^2 penalty_), twice that without an intercept. Here the intercept is penalised too, as the
        coefficient of a column of the value feature_bound.
        """
        return 1.0 / self._scale(n)

    def _declared(self) -> NDArray[Any]:
        classes = np.unique(np.asarray([] if self.classes is None else self.classes))
        if len(classes) != 2:
            raise ValueError("Declare the two classes (classes=...): to read them off the records would tell on them.")
        return classes

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge the ledger, release penalty and model, forget the records: X (n, d) and y (n,) are private.

        Raises:
            ValueError: bad shapes or values, before anything is charged.
            BudgetExceeded: the ledger can't pay; nothing was read.
        """
        classes = self._declared()
        table: Any = plain_table(X)
        checked: Any = validate_data(self, table, dtype=np.float64, ensure_min_samples=2)
        keep_columns(self, X, table)
        labels = np.asarray(y)
        if labels.shape != (len(checked),):
            raise PublicError("X and y must agree: one label for each row.")
        if not np.isin(labels, classes).all():
            raise PublicError("Some records have a label that is not among the declared classes.")
        release = self._fit(checked, np.where(labels == classes[1], 1.0, -1.0))
        self.classes_ = classes
        if release.coefficients is not None:
            self.coef_, self.intercept_ = release.coefficients[None], np.array([release.intercept])
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores at X (m, d), shape (m,); positive for the second class."""
        return self._decision(X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of the classes at X, shape (m, 2). Post-processing: free."""
        chance = expit(self._decision(X))
        return np.column_stack([1.0 - chance, chance])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier of the declared classes at X, shape (m,). Post-processing: free."""
        second = self._decision(X) > 0
        return self.classes_[second.astype(int)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # the noise that protects the records
        tags.classifier_tags.multi_class = False
        return tags
