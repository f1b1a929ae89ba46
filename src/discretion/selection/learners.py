"""Learners to tune, as scikit-learn estimators whose fitted state is a release and whose price is known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from discretion.privacy import (
    Ledger,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    Unreachable,
    largest,
    round_up,
    smallest,
)
from discretion.privacy.fits import run_fit
from discretion.privacy.frames import cleared
from discretion.privacy.records import asked_table, keep_columns, numbers, plain_table, regression_table
from discretion.selection.linear import (
    ONE_RECORD,
    LabelledRecords,
    LogisticMechanism,
    ModelRelease,
    RidgeMechanism,
    logistic_loss,
)

__all__ = ["PrivateLogisticRegression", "PrivateRidge"]

Floats = NDArray[np.float64]

_MOST_MU, _MOST_NOISE = 1e4, 1e6


class _PrivateLinear(BaseEstimator):
    """Parameters and fitting of both linear models."""

    epsilon: float | None
    delta: float
    neighbours: Neighbours | str
    unit: str
    ledger: Ledger | str | Path | None
    randomness: Randomness | None
    _strength: ClassVar[str]
    """The parameter that sets the noise."""

    def mechanism(self, n: int | None = None, dimension: int | None = None) -> RidgeMechanism | LogisticMechanism:
        """The mechanism these parameters describe; reads no record.

        Args:
            n: the number of records, where it is public.
            dimension: the number of covariates; the price does not depend on it.

        Raises:
            ValueError: a parameter out of range or missing, or no noise that meets epsilon.
        """
        n = n if Neighbours(self.neighbours) is not Neighbours.ADD_REMOVE else None
        given = getattr(self, self._strength)
        if (given is None) == (self.epsilon is None):
            raise ValueError(
                f"Give either {self._strength}, or epsilon to have the least noise that meets it; not both."
            )
        return self._mechanism(dimension or 1, self._calibrated(n) if given is None else float(given))

    def _mechanism(self, dimension: int, strength: float) -> RidgeMechanism | LogisticMechanism:
        raise NotImplementedError

    def _calibrated(self, n: int | None) -> float:
        """The strength of the least noise that meets epsilon at delta."""
        raise NotImplementedError

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What fitting n records will cost, before any record is seen."""
        return self.mechanism(n).privacy_loss(n)

    @cleared
    def check(self, X: ArrayLike, y: ArrayLike) -> int | None:
        """Refuse what `fit` would refuse, before anything is spent; the number of records where it is public."""
        table: Any = plain_table(X)
        return self._checking(*table.shape[:2]).check(LabelledRecords(table, self._response(y)))

    def _checking(self, n: int, dimension: int) -> RidgeMechanism | LogisticMechanism:
        """The mechanism that checks records; what noise there is may matter to it."""
        return self.mechanism(n, dimension)

    def _response(self, y: Any) -> Floats:
        raise NotImplementedError

    @property
    def _fewest(self) -> Any:
        """Least number of records: that there are none is private where their number is."""
        return 0 if Neighbours(self.neighbours) is Neighbours.ADD_REMOVE else 1

    def _fit(self, X: Floats, y: Floats) -> ModelRelease:
        mechanism: Any = self.mechanism(len(X), X.shape[1])
        records = LabelledRecords(X, y)
        told = len(X) if mechanism.n_is_public else mechanism.most_records
        self.release_ = run_fit(mechanism, records, told, ledger=self.ledger, randomness=self.randomness)
        return self.release_

    def _decision(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return self.release_.decision(asked_table(self, X))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.randomness is None
        return tags


class PrivateRidge(RegressorMixin, _PrivateLinear):
    """Ridge regression with Gaussian differential privacy.

    All parameters are public and must not be chosen by looking at the records given to ``fit``; to choose them by the
    records, search with `PrivateSearchCV` and pay for it.

    Parameters
    ----------
    feature_bound : float
        Public bound of the Euclidean length of a row of X; longer rows are shortened to it.
    response_range : (low, high)
        Public range of y; responses are clipped to it.
    alpha : float
        Penalty on the problem scaled to the unit ball (`RidgeMechanism`), intercept included.
    mu : float, optional
        Price in Gaussian DP. Give either ``mu``, or ``epsilon`` to have the least noise that meets it at ``delta``.
    epsilon, delta : float, optional
        Target.
    fit_intercept : bool
        Whether the model has an intercept.
    neighbours : Neighbours
        ``"replace"`` (n is public) or ``"add-remove"`` (n is private).
    most_records : int
        Public bound of the number of records where it is private.
    unit : str
        The unit of privacy in words, as the ledger has it.
    ledger : Ledger or path, optional
        Where the loss is reserved before a record is read.
    randomness : Randomness, optional
        For tests only.

    Attributes
    ----------
    release_ : ModelRelease
        The model and its certificate.
    coef_, intercept_ : array (d,), float
        The model in the units of the data.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    Proof: ``docs/proofs/private-ridge.md``.
    """

    def __init__(
        self,
        feature_bound: float = 1.0,
        response_range: tuple[float, float] = (-1.0, 1.0),
        *,
        alpha: float = 1.0,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        fit_intercept: bool = True,
        neighbours: Neighbours | str = "replace",
        most_records: int = 1_000_000,
        unit: str = ONE_RECORD,
        ledger: Ledger | str | Path | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.feature_bound = feature_bound
        self.response_range = response_range
        self.alpha = alpha
        self.mu = mu
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.neighbours = neighbours
        self.most_records = most_records
        self.unit = unit
        self.ledger = ledger
        self.randomness = randomness

    _strength = "mu"

    def _calibrated(self, n: int | None) -> float:
        return largest(
            lambda mu: self._mechanism(1, mu).privacy_loss(n).epsilon(self.delta) <= float(self.epsilon or 0.0),
            1e-6,
            _MOST_MU,
            relative_tolerance=1e-6,
        )

    def _checking(self, n: int, dimension: int) -> RidgeMechanism:
        # How much noise there is does not matter here, and need not be solved for.
        return self._mechanism(dimension, 1.0)

    def _mechanism(self, dimension: int, strength: float) -> RidgeMechanism:
        return RidgeMechanism(
            dimension=dimension,
            feature_bound=self.feature_bound,
            response_range=(float(self.response_range[0]), float(self.response_range[1])),
            alpha=self.alpha,
            mu=strength,
            delta=self.delta,
            intercept=self.fit_intercept,
            neighbours=Neighbours(self.neighbours),
            most_records=self.most_records,
            unit=self.unit,
        )

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge the ledger, release a model, forget the records: X (n, d) and y (n,) are private.

        Raises:
            ValueError: bad shapes or values, before anything is charged.
            BudgetExceeded: the ledger can't pay; nothing was read.
        """
        release = self._fit(*regression_table(self, X, y, fewest=self._fewest))
        self.coef_, self.intercept_ = release.coefficients[0], float(release.intercepts[0])
        return self

    def _response(self, y: Any) -> Floats:
        return numbers(y, "y").reshape(-1)

    def predict(self, X: ArrayLike) -> Floats:
        """Predictions at X (m, d), shape (m,). Post-processing: free."""
        return self._decision(X)[:, 0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the noise that protects the records
        return tags


class PrivateLogisticRegression(ClassifierMixin, _PrivateLinear):
    """Logistic regression by objective perturbation, under differential privacy.

    All parameters are public, the classes too: a class that is found in the records would name the only record that
    has it. To choose parameters by the records, search with `PrivateSearchCV` and pay for it.

    Parameters
    ----------
    classes : sequence
        The labels there may be, public. Records with others are refused.
    feature_bound : float
        Public bound of the Euclidean length of a row of X; longer rows are shortened to it.
    alpha : float
        Penalty on the problem scaled to the unit ball (`LogisticMechanism`), intercept included. Small penalties cost
        more: log(1 + 1/(4 alpha)) for each problem.
    noise : float, optional
        Standard deviation of the Gaussian noise on the gradient, of which one record makes up 1 at most. Give either
        ``noise``, or ``epsilon`` to have the least noise that meets it at ``delta``. The price is not that of Gaussian
        DP with mu = 1 / noise: ask ``privacy_loss(n)``.
    epsilon, delta, fit_intercept, neighbours, most_records, unit, ledger, randomness
        As in `PrivateRidge`.

    Attributes
    ----------
    release_ : ModelRelease
        The model and its certificate.
    classes_ : array
        The declared classes, sorted.
    coef_, intercept_ : array (problems, d), array (problems,)
        The model in the units of the data.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    With more than two classes each is separated from the rest, and each of these problems is paid for. Proof:
    ``docs/proofs/objective-perturbation.md``.
    """

    def __init__(
        self,
        classes: Sequence[Any] | None = None,
        feature_bound: float = 1.0,
        *,
        alpha: float = 1.0,
        noise: float | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        fit_intercept: bool = True,
        neighbours: Neighbours | str = "replace",
        most_records: int = 1_000_000,
        unit: str = ONE_RECORD,
        ledger: Ledger | str | Path | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.classes = classes
        self.feature_bound = feature_bound
        self.alpha = alpha
        self.noise = noise
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.neighbours = neighbours
        self.most_records = most_records
        self.unit = unit
        self.ledger = ledger
        self.randomness = randomness

    def _declared(self) -> NDArray[Any]:
        if self.classes is None:
            raise ValueError("Declare the classes (classes=...): to read them off the records would name rare ones.")
        return np.unique(np.asarray(self.classes))

    _strength = "noise"

    def _calibrated(self, n: int | None) -> float:
        problems = self._mechanism(1, 1.0).problems
        epsilon = float(self.epsilon or 0.0)
        return _least_noise(float(self.alpha), Neighbours(self.neighbours), problems, epsilon, float(self.delta))

    def _mechanism(self, dimension: int, strength: float) -> LogisticMechanism:
        return LogisticMechanism(
            classes=len(self._declared()),
            dimension=dimension,
            feature_bound=self.feature_bound,
            alpha=self.alpha,
            noise=strength,
            delta=self.delta,
            intercept=self.fit_intercept,
            neighbours=Neighbours(self.neighbours),
            most_records=self.most_records,
            unit=self.unit,
        )

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Charge the ledger, release a model, forget the records: X (n, d) and y (n,) are private.

        Raises:
            ValueError: bad shapes or values, before anything is charged.
            BudgetExceeded: the ledger can't pay; nothing was read.
        """
        table: Any = plain_table(X)
        checked: Any = validate_data(self, table, dtype=np.float64, ensure_min_samples=self._fewest)
        keep_columns(self, X, table)
        number = self._response(y)
        if number.shape != (len(checked),):
            raise PublicError("X and y must agree: one label for each row.")
        release = self._fit(checked, number)
        self.classes_ = self._declared()
        self.coef_, self.intercept_ = release.coefficients, release.intercepts
        return self

    def _response(self, y: Any) -> Floats:
        """The number of each label among the declared classes; -1 where it is not."""
        classes, labels = self._declared(), np.asarray(y)
        if not labels.size:
            return np.zeros(labels.shape)
        number = np.searchsorted(classes, labels) if labels.dtype.kind in "biufUS" else np.full(labels.shape, -1)
        number = np.minimum(number, len(classes) - 1)
        return np.where(classes[number] == labels, number, -1).astype(np.float64)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores at X (m, d): (m,) for two classes, else (m, classes)."""
        decision = self._decision(X)
        return decision[:, 0] if len(self.classes_) == 2 else decision

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of the classes at X, shape (m, classes). Post-processing: free."""
        chance = expit(self._decision(X))
        if len(self.classes_) == 2:
            return np.column_stack([1.0 - chance, chance])
        total = chance.sum(axis=1, keepdims=True)
        return np.where(total > 0, chance / np.where(total > 0, total, 1.0), 1.0 / chance.shape[1])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest of the declared classes at X, shape (m,). Post-processing: free."""
        decision = self._decision(X)
        best = (decision[:, 0] > 0).astype(int) if len(self.classes_) == 2 else decision.argmax(axis=1)
        return self.classes_[best]


@lru_cache(maxsize=4096)
def _least_noise(alpha: float, neighbours: Neighbours, problems: int, epsilon: float, delta: float) -> float:
    """The least noise of a logistic regression that meets epsilon at delta; kept, as each search asks again and again.

    Raises:
        Unreachable: no noise does.
    """

    def price(noise: float, alpha: float) -> float:
        return logistic_loss(noise, alpha, neighbours, problems).epsilon(delta)

    if (floor := price(_MOST_NOISE, alpha)) > epsilon:
        need = "no alpha makes it so"
        with suppress(Unreachable):
            least = smallest(lambda each: price(_MOST_NOISE, each) <= epsilon, alpha, 1e9, relative_tolerance=1e-3)
            need = f"alpha must be at least {round_up(least, 3)}"
        raise Unreachable(
            f"A logistic regression of alpha = {alpha:g} costs epsilon {floor:.3g} at delta = {delta:g} however much "
            f"noise there is, log(1 + 1/(4 alpha)) of it for each problem; to cost {epsilon:.3g} or less, {need}."
        )
    return smallest(lambda noise: price(noise, alpha) <= epsilon, 1.0 / _MOST_MU, _MOST_NOISE, relative_tolerance=1e-6)
