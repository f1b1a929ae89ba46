"""Learners and search spaces of other libraries: by declaration, and without adaptive samplers.

None of these libraries is imported; what is given is asked for what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from discretion.privacy import Neighbours, PrivacyLoss, PureDP, SubsampledGaussian

__all__ = ["AdaptiveSampler", "Declared", "diffprivlib_loss", "dp_sgd_loss", "opacus_loss", "optuna_candidates"]


class AdaptiveSampler(ValueError):
    """A sampler that looks at earlier scores was given; the guarantee does not cover it. The message lists what is."""


def _has(what: str) -> Callable[[Any], bool]:
    return lambda declared: hasattr(declared.estimator, what)


class Declared(MetaEstimatorMixin, BaseEstimator):
    """Any estimator, with the loss that its author declares for it.

    The declaration is the user's to answer for: it must cover everything in the fitted estimator, failing included, and
    hold for the parameters that the estimator then has. What the estimator takes its noise from is its own matter, and
    has to be fresh in every run: NumPy's global generator is not, where workers are forked or a program has seeded it.
    A search of it that is interrupted before its release was kept can't be taken up, and stays spent.

    Parameters
    ----------
    estimator : estimator
        As scikit-learn knows them; its parameters are searched as ``estimator__name``.
    loss : PrivacyLoss, or callable (estimator, n) -> PrivacyLoss
        What one ``fit`` on n records costs; n is None where it is private.

    Attributes
    ----------
    estimator_ : estimator
        The fitted one.

    Examples
    --------
    >>> from sklearn.dummy import DummyRegressor
    >>> from discretion.privacy import PureDP
    >>> Declared(DummyRegressor(strategy="constant", constant=0.0), PureDP(0.0, neighbours="replace")).privacy_loss(9)
    PureDP(0.0, neighbours='replace')
    """

    def __init__(self, estimator: Any, loss: PrivacyLoss | Callable[[Any, int | None], PrivacyLoss]) -> None:
        self.estimator = estimator
        self.loss = loss

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """The declared loss of one fit.

        Raises:
            TypeError: the declaration is no PrivacyLoss.
        """
        loss = self.loss if isinstance(self.loss, PrivacyLoss) else self.loss(self.estimator, n)
        if not isinstance(loss, PrivacyLoss):
            raise TypeError("The declared loss must be a PrivacyLoss, such as PureDP(1.0, neighbours='replace').")
        return loss

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator."""
        unfitted: Any = clone(self.estimator)
        self.estimator_ = unfitted.fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """What the fitted estimator predicts."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """The fitted estimator's probabilities."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """The fitted estimator's scores."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    @available_if(_has("transform"))
    def transform(self, X: Any) -> Any:
        """What the fitted estimator makes of X."""
        check_is_fitted(self)
        return self.estimator_.transform(X)

    def score(self, X: Any, y: Any) -> float:
        """The fitted estimator's own score."""
        check_is_fitted(self)
        return self.estimator_.score(X, y)

    @property
    def classes_(self) -> Any:
        """Labels of the fitted estimator."""
        return self.estimator_.classes_

    def __sklearn_tags__(self) -> Tags:
        return get_tags(self.estimator)


def diffprivlib_loss(neighbours: Neighbours | str) -> Callable[[Any, int | None], PureDP]:
    """The declaration of estimators with a parameter ``epsilon`` that stands for pure DP, as diffprivlib's do.

    Such estimators read bounds, and trees their classes, off the records where none are given; here that is refused.

    Args:
        neighbours: the relation their documentation states.

    Raises:
        ValueError: on use, an estimator without ``epsilon``, or with bounds left out.
    """
    return _EpsilonParameter(Neighbours(neighbours))


@dataclass(frozen=True)
class _EpsilonParameter:
    """PureDP(estimator.epsilon), for an estimator whose bounds are given."""

    neighbours: Neighbours

    def __call__(self, estimator: Any, n: int | None) -> PureDP:
        parameters, name = estimator.get_params(deep=False), type(estimator).__name__
        if "epsilon" not in parameters:
            raise ValueError(f"{name} has no parameter epsilon; declare its loss another way.")
        missing = [each for each in _BOUNDS if each in parameters and parameters[each] is None]
        if missing:
            raise ValueError(f"{name} would read {', '.join(missing)} off the private records: give public bounds.")
        return PureDP(float(parameters["epsilon"]), neighbours=self.neighbours, rule="declared")


_BOUNDS = ("bounds", "bounds_X", "bounds_y", "data_norm", "classes")


def dp_sgd_loss(
    *, noise_multiplier: float, sample_rate: float, steps: int, neighbours: Neighbours | str = "add-remove"
) -> PrivacyLoss:
    """What DP-SGD costs: so many Poisson-sampled steps, gradients clipped record by record.

    Args:
        noise_multiplier: noise over clipping norm.
        sample_rate: chance of a record to be in a step, independently of the others. A shuffled pass over the records
            is not that.
        steps: how many, fixed beforehand.
        neighbours: the relation.

    Raises:
        ValueError: steps that are no positive whole number, or a rate or noise out of range.
    """
    if isinstance(steps, bool) or int(steps) != steps or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, not {steps!r}.")
    return int(steps) * SubsampledGaussian(sample_rate, noise_multiplier, neighbours=Neighbours(neighbours))


def opacus_loss(history: Iterable[tuple[float, float, int]]) -> PrivacyLoss:
    """The loss of an accountant's history as Opacus keeps it: (noise multiplier, sample rate, steps) in a row.

    Declare with it what a training of these settings costs, read off a rehearsal on made-up records; a history that
    depends on private records is known too late to reserve it.

    Raises:
        ValueError: an empty history.
    """
    parts = [dp_sgd_loss(noise_multiplier=s, sample_rate=q, steps=k) for s, q, k in history]
    if not parts:
        raise ValueError("The history is empty: nothing was trained with it.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def optuna_candidates(distributions: Mapping[str, Any], sampler: Any, count: int) -> list[dict[str, Any]]:
    """Candidates drawn beforehand from a search space as Optuna describes it.

    Args:
        distributions: name to distribution (``FloatDistribution``, ``IntDistribution``, ``CategoricalDistribution``).
        sampler: a ``RandomSampler``; its seed is public and draws the candidates, nothing else.
        count: how many.

    Raises:
        AdaptiveSampler: any other sampler.
    """
    if type(sampler).__name__ != "RandomSampler":
        raise AdaptiveSampler(
            f"{type(sampler).__name__} is refused: candidates that depend on the scores of earlier runs are not draws "
            "from a fixed law, and the price of private selection does not hold for them. What is legal: random "
            "search (RandomSampler, or lists and distributions in PrivateSearchCV); or an adaptive search each of "
            "whose trials is charged to the ledger by itself, the sum of all being the price."
        )
    draw = {
        name: lambda name=name, law=law: sampler.sample_independent(None, None, name, law)
        for name, law in distributions.items()
    }
    return [{name: _plain(each()) for name, each in draw.items()} for _ in range(count)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
