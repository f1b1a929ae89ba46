"""Random search over the parameters of a private estimator, in the manner of scikit-learn's RandomizedSearchCV."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import Tags, column_or_1d, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from discretion.privacy import Ledger, NeighbourMismatch, Neighbours, PrivacyLoss, PublicError, Randomness, Unreachable
from discretion.privacy.frames import cleared
from discretion.privacy.paid import ledger_at
from discretion.privacy.records import asked_table, keep_columns, numbers, plain_table
from discretion.selection.beforehand import check_price, check_validation, pair_of, rehearse
from discretion.selection.bounds import Rule
from discretion.selection.charged import charged
from discretion.selection.linear import LabelledRecords
from discretion.selection.outcome import FittedModel, Outcome, SelectionRelease
from discretion.selection.pricing import Law
from discretion.selection.repetitions import NegativeBinomial
from discretion.selection.scores import PublicScore, Score
from discretion.selection.sealed import found_in, sealed
from discretion.selection.search import RunLimit, SelectionMechanism
from discretion.selection.within import search_within

__all__ = ["EstimatorMechanism", "FittedModel", "NothingChosen", "PrivateSearchCV"]


_NOTHING = {
    Outcome.DEFAULT: "No fit was drawn, and there is no default",
    Outcome.BELOW: "No fit reached the threshold, and there is no default",
    Outcome.FAILED: "No fit had a score; rehearse(X, y) on made-up records shows why",
}


class NothingChosen(ValueError):
    """The search ended without a winner, which is one of its outcomes: see `is_default_` and `outcome_`."""


_SEEDS = ("random_state", "seed")
"""How names of parameters end that would give all runs the same noise."""


@dataclass(frozen=True, eq=False)
class EstimatorMechanism:
    """One fit of an estimator with a declared loss, as a candidate of a search.

    Everything in the fitted estimator may leave if it wins, so the declared loss has to cover everything in it.

    Args:
        estimator: with ``fit`` and ``privacy_loss(n)``. Where it has a parameter ``randomness``, the search provides
            it; a ``ledger``, at any depth, is left out: the search is booked, not its runs.
        choice: the parameters in which it differs from the other candidates; public.
        relation: the neighbours its loss is for.

    Raises:
        TypeError: it has no declared loss.
        ValueError: a ``random_state`` or another source of noise that somebody could replay, at any depth; or it can't
            be pickled.
    """

    estimator: Any
    choice: Mapping[str, Any]
    relation: Neighbours

    def __post_init__(self) -> None:
        check_declared(self.estimator)
        object.__setattr__(self, "estimator", _alone(self.estimator))
        try:
            found = found_in(self.estimator)
        except Exception:
            raise ValueError(
                f"{self.name} can't be pickled, so it could neither win nor run in another process. Functions among "
                "its parameters must be defined at the top of a module."
            ) from None
        seeded = [k for k, v in self.estimator.get_params().items() if k.endswith(_SEEDS) and v is not None]
        if seeded:
            raise ValueError(
                f"{', '.join(seeded)} is set: whoever knows it can take the noise away, and all runs would share it. "
                "Leave it at None."
            )
        if found:
            raise ValueError(
                f"{self.name} holds {' and '.join(found)} among its parameters, or in one of them. All runs would have "
                "the same noise, or a ledger would tell how many they were: leave it out, and give the search a ledger."
            )

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    @property
    def neighbours(self) -> Neighbours:
        return self.relation

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        return self.estimator.privacy_loss(n)

    def parameters(self) -> dict[str, Any]:
        told = {key: v for key, v in self.estimator.get_params().items() if _last(key) not in ("ledger", "randomness")}
        return {"estimator": self.name} | {key: _plain(v) for key, v in told.items()}

    @property
    def unit(self) -> str | None:
        """The unit of privacy in words that the estimator declares, at any depth; None where it says nothing."""
        told = (value for key, value in self.estimator.get_params().items() if _last(key) == "unit")
        return next((each for each in told if isinstance(each, str) and each.strip()), None)

    @property
    def contributions(self) -> int:
        """Most records of one unit of privacy that the estimator declares, at any depth; 1 where it says nothing."""
        told = [value for key, value in self.estimator.get_params().items() if _last(key) == "contributions"]
        return max((int(each) for each in told if each is not None), default=1)

    def check(self, records: LabelledRecords) -> int | None:
        """Refuse what the estimator's own `check` refuses, if it has one. Spends nothing."""
        own: Any = getattr(self.estimator, "check", lambda X, y: None)
        return own(records.covariates, records.response)

    def run(self, records: LabelledRecords, randomness: Randomness) -> Any:
        """The fitted estimator; no source of randomness stays in it."""
        fitted: Any = clone(self.estimator)
        keyed = "randomness" in fitted.get_params(deep=False)
        if keyed:
            fitted.set_params(randomness=randomness)
        fitted.fit(records.covariates, records.response)
        return fitted.set_params(randomness=None) if keyed else fitted

    def publish(self, fitted: Any) -> FittedModel:
        """The winner as bytes, so that nothing outside of it hangs on; see `discretion.selection.sealed`."""
        return FittedModel(*sealed(fitted))


def _alone(estimator: Any) -> Any:
    """The estimator without a source of noise of its own, and without ledgers at any depth."""
    alone: Any = clone(estimator)
    given = {key for key, value in alone.get_params().items() if value is not None}
    return alone.set_params(**{key: None for key in given if key == "randomness" or _last(key) == "ledger"})


def _last(key: str) -> str:
    """The name of a parameter without those of the estimators around it."""
    return key.rpartition("__")[2]


def _has(what: str) -> Callable[[Any], bool]:
    """Whether a search passes a method on to its winner: whether its estimator has it."""
    return lambda search: hasattr(search.estimator, what)


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Choose parameters on private records, and pay for the choice.

    Runs a random number of fits, each with parameters drawn at random, and keeps the best. Only the winner leaves:
    there is no ``cv_results_``, no number of fits, no log and no progress, because they tell of the losers. Validation
    is on public data, or on private records with noise; there is no cross-validation behind the name.

    Parameters
    ----------
    estimator : estimator
        With ``fit`` and a declared loss, ``privacy_loss(n)``: those of this library, or any other in `Declared`.
    param_distributions : dict or list of dict
        As in RandomizedSearchCV: lists, or distributions with ``rvs``. Public.
    law : Repetitions, SharedRate or Threshold, optional
        Law of the number of fits, or another way to draw them; negative binomial of shape 2 and mean 10 by default.
    scoring : Score, str or callable, optional
        The higher the better. A `PublicScore` or `NoisyScore` of the fitted estimator, the latter with records that
        have ``covariates`` (n, d) and ``response`` (n,); or, with ``validation``, a scorer as scikit-learn knows them,
        called with (estimator, X, y), by default the estimator's own ``score``.
    validation : (X, y), optional
        PUBLIC validation data, in the form of the private ones.
    n_candidates : int
        How many candidates are drawn from the distributions, beforehand; all of them if there are no more.
    weights : sequence of float, optional
        Public chances of the candidates, for lists whose grid is used whole; equal by default.
    epsilon : float, optional
        Of everything, tuning and release: the budget of one fit is found so that the search costs this or up to a
        thousandth less. The estimator then has one parameter ``epsilon``, which the search sets, and no other that sets
        the noise (such as ``mu``). By default a fit costs what the estimator's own parameters say.
    delta : float
        At which the certificate states epsilon.
    rule : str
        Which bound of the price, as in `selection_loss`.
    default : fitted estimator, optional
        Public: what to use where no fit was drawn.
    refit : False
        To fit the winner's parameters again is another release, and is refused here: fit a clone yourself, with the
        ledger, and it is charged.
    limit, pad, unit : optional
        As in `SelectionMechanism`.
    n_jobs : int, optional
        Workers, by joblib: its backends (loky, threading, dask, ray) are chosen with ``joblib.parallel_config``.
    ledger : Ledger or path, optional
        Where the loss of the search is reserved before a record is read.
    journal : path, optional
        Where an interrupted search is kept; `fit` again takes it up.
    random_state : int
        Draws the public candidates, and nothing else.
    randomness : Randomness, optional
        For tests only.

    Attributes
    ----------
    best_estimator_ : estimator
        The winner as it was fitted by the winning run, every certificate in it that of the search; or the default, as
        it was given. Its own ``privacy_loss`` is that of one run; what was paid is in ``release_.certificate``, and
        `privacy_loss` of the search.
    best_params_ : dict or None
    best_score_ : float or None
        The very number by which the winner was ranked.
    is_default_ : bool
        Whether no fit was drawn.
    outcome_ : Outcome
    release_ : SelectionRelease
        The winner and the certificate of tuning plus release.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from discretion.selection import NegativeBinomial, PrivateRidge, PrivateSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (500, 3)), rng.uniform(-1, 1, 500)
    >>> search = PrivateSearchCV(
    ...     PrivateRidge(2.0, mu=0.5),
    ...     {"alpha": [1.0, 10.0, 100.0]},
    ...     NegativeBinomial.of_mean(2.0, 5.0),
    ...     validation=(X[:20], y[:20]),  # public
    ... )
    >>> search.fit(X, y).best_params_["alpha"] in (1.0, 10.0, 100.0)
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        law: Law | None = None,
        *,
        scoring: Score | str | Callable[..., float] | None = None,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        n_candidates: int = 60,
        weights: Sequence[float] | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        rule: Rule = "best",
        default: Any = None,
        refit: bool = False,
        limit: RunLimit | None = None,
        pad: bool = False,
        unit: str | None = None,
        n_jobs: int | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        journal: str | os.PathLike[str] | None = None,
        random_state: int = 0,
        randomness: Randomness | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.law = law
        self.scoring = scoring
        self.validation = validation
        self.n_candidates = n_candidates
        self.weights = weights
        self.epsilon = epsilon
        self.delta = delta
        self.rule: Rule = rule
        self.default = default
        self.refit = refit
        self.limit = limit
        self.pad = pad
        self.unit = unit
        self.n_jobs = n_jobs
        self.ledger = ledger
        self.journal = journal
        self.random_state = random_state
        self.randomness = randomness

    # --- what it will cost

    def candidates(self) -> list[dict[str, Any]]:
        """The parameters that may be tried: public, and fixed before a record is read.

        Raises:
            TypeError: param_distributions is neither a dictionary nor a list of them.
            ValueError: weights for what is not a grid of at most n_candidates points.
        """
        space = self.param_distributions
        if not isinstance(space, Mapping) and not (isinstance(space, list | tuple) and space):
            raise TypeError(
                "param_distributions must be a dictionary of lists or distributions, or a list of such. Samplers that "
                "look at earlier scores are not covered by the guarantee; see discretion.selection.adapters."
            )
        parts = [space] if isinstance(space, Mapping) else list(space)
        listed = all(not hasattr(value, "rvs") for part in parts for value in part.values())
        if listed and len(grid := ParameterGrid(parts)) <= self.n_candidates:
            return list(grid)
        if self.weights is not None:
            raise ValueError("Weights need a grid of lists with at most n_candidates points.")
        return list(ParameterSampler(parts, self.n_candidates, random_state=self.random_state))

    def mechanism(self, n: int | None = None) -> SelectionMechanism:
        """The search as a mechanism; reads no record. `n` is the number of records; not used where it is private.

        Raises:
            ValueError: refit is set, the estimator declares no loss, or a parameter is out of range.
        """
        if self.refit:
            raise ValueError(
                "refit would be another release. Use best_estimator_, which the search has paid for; or fit a clone of "
                "the estimator with best_params_ yourself, with a ledger, and it is charged."
            )
        check_declared(self.estimator)
        n = None if self._n_is_private() else n
        if self.epsilon is None:
            return self._search(n, None)
        return search_within(lambda one: self._search(n, one), float(self.epsilon), n)[0]

    def _search(self, n: int | None, one: float | None) -> SelectionMechanism:
        """The search, each fit of which has an epsilon of `one` if that is given."""
        score = self._score()
        estimators = [(self._with(each, one), each) for each in self.candidates()]
        size = score.training_size(n)
        relations = [_loss_of(each, size).neighbours for each, _ in estimators]
        return SelectionMechanism(
            tuple(
                EstimatorMechanism(each, choice, relation)
                for (each, choice), relation in zip(estimators, relations, strict=True)
            ),
            score,
            NegativeBinomial.of_mean(2.0, 10.0) if self.law is None else self.law,
            self.delta,
            weights=None if self.weights is None else tuple(self.weights),
            default=None if self.default is None else FittedModel(pickle.dumps(self.default)),
            rule=self.rule,
            limit=self.limit,
            pad=self.pad,
            unit=self.unit,
            jobs=self.n_jobs,
        )

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What `fit` on n records will cost, tuning and release together."""
        return self.mechanism(n).privacy_loss(n)

    def _n_is_private(self) -> bool:
        """Whether a candidate has a price without the number of records, under add/remove."""
        estimator = self._with(self.candidates()[0], self.epsilon)
        try:
            return Neighbours(estimator.privacy_loss(None).neighbours) is Neighbours.ADD_REMOVE
        except Exception:  # it needs the number, so that it is public
            return False

    def _with(self, choice: dict[str, Any], one: float | None = None) -> Any:
        """The estimator with these parameters, and with this epsilon if it is given."""
        estimator: Any = clone(self.estimator)
        try:
            estimator.set_params(**{key: clone(value, safe=False) for key, value in choice.items()})
        except AttributeError:
            raise ValueError(
                f"Not all of {', '.join(choice)} can be set: a kernel, say, has no parts that are parameters. Give "
                "whole values, such as kernel=[RBF(0.1), RBF(0.2)]."
            ) from None
        return estimator if one is None else estimator.set_params(**{self._budget(choice): one})

    def _budget(self, choice: dict[str, Any]) -> str:
        """The parameter that is the epsilon of one fit."""
        found = [key for key in self.estimator.get_params() if _last(key) == "epsilon"]
        if len(found) != 1 or found[0] in choice:
            raise ValueError(
                "epsilon of the whole search is met by setting that of one fit: the estimator must have one parameter "
                f"epsilon, which is not searched; here there are: {', '.join(found) or 'none'}. Leave epsilon of the "
                "search out, and look at privacy_loss(n)."
            )
        return found[0]

    def _score(self) -> Score:
        if isinstance(self.scoring, Score):
            return self.scoring
        if self.validation is None:
            raise ValueError(
                "Scoring on the private records without noise is not private. Give PUBLIC data (validation=(X, y)), or "
                "a score whose noise is paid for (scoring=NoisyScore(...))."
            )
        X, y = pair_of(self.validation)
        scorer: Any = check_scoring(self.estimator, scoring=self.scoring)
        name = self.scoring if isinstance(self.scoring, str) else "score"
        return PublicScore(lambda model: scorer(model, X, y), f"{name} on public data")

    # --- scikit-learn

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Search on private records: X (n, d), y (n,).

        Raises:
            ValueError: bad shapes or values, of the validation data too, before anything is charged.
            BudgetExceeded: the ledger can't pay; nothing was read.
            NotBookable, MechanismFailed, JournalError, KeyboardInterrupt: as `select`.

        Warns:
            UserWarning: there is no ledger; every fit failed.
        """
        records = self._private(X, y)
        n = len(records.covariates)
        self._check_relation(n)
        mechanism = self.mechanism(n)
        self._check_validation(mechanism, records)
        release = charged(
            mechanism,
            records,
            n if mechanism.n_is_public else 0,
            ledger=self.ledger,
            journal=self.journal,
            randomness=deepcopy(self.randomness),  # a test seed starts anew at every fit
        )
        self.release_: SelectionRelease = release
        self.outcome_, self.is_default_ = release.outcome, release.is_default
        chosen = release.candidate
        choice = {} if chosen is None else mechanism.candidates[chosen].choice
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in choice.items()}
        self.best_params_ = None if chosen is None else plain
        self.best_index_, self.best_score_ = chosen, release.score
        self.best_estimator_: Any = None if release.winner is None else release.winner.load()
        if hasattr(self.best_estimator_, "classes_"):
            self.classes_ = self.best_estimator_.classes_
        return self

    def rehearse(self, X: ArrayLike, y: ArrayLike) -> list[float]:
        """Fit and score every candidate once on MADE-UP records, and let every error be seen; nothing is charged.

        Within a search an error of a fit or a score is a fit that failed, of which nobody is told. Nothing is promised
        of what comes back: never give this the private records.

        Returns:
            The score of each of `candidates()`.

        Raises:
            Exception: whatever a fit or a score raises, with a note which candidate it was.
        """
        records = self._private(X, y)
        mechanism = self.mechanism(len(records.covariates))
        self._check_validation(mechanism, records)
        loss = mechanism.privacy_loss(len(records.covariates))
        check_price(loss.epsilon(mechanism.delta), mechanism.delta)
        return rehearse(mechanism.candidates, mechanism.score, records)

    def predict(self, X: ArrayLike) -> Any:
        """What the winner predicts."""
        return self._asked("predict", X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: ArrayLike) -> Any:
        """The winner's probabilities."""
        return self._asked("predict_proba", X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: ArrayLike) -> Any:
        """The winner's scores."""
        return self._asked("decision_function", X)

    @available_if(_has("transform"))
    def transform(self, X: ArrayLike) -> Any:
        """What the winner makes of X."""
        return self._asked("transform", X)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The winner's own ``score``. On private data this is another release, of which nothing here takes account."""
        check_is_fitted(self, "release_")
        return self._winner().score(asked_table(self, X), y)

    def _asked(self, what: str, X: ArrayLike) -> Any:
        check_is_fitted(self, "release_")
        return getattr(self._winner(), what)(asked_table(self, X))

    def _winner(self) -> Any:
        if self.best_estimator_ is None:
            words = _NOTHING[self.outcome_]
            raise NothingChosen(f"{words}. This is an outcome of the search; another search is paid for again.")
        return self.best_estimator_

    def _check_relation(self, n: int) -> None:
        """Refuse a ledger of another relation before the noise is searched for, which takes a while."""
        if self.ledger is None or self.epsilon is None:
            return
        book = ledger_at(self.ledger)
        with suppress(Unreachable):  # the search for the noise says more
            found = _loss_of(self._with(self.candidates()[0], self.epsilon), None if self._n_is_private() else n)
            if found.neighbours is not book.neighbours:
                raise NeighbourMismatch(
                    f"The ledger is for {book.neighbours.value} neighbours and a fit for {found.neighbours.value} "
                    "neighbours; they do not add. Set neighbours of the estimator, or take another ledger."
                )

    def _check_validation(self, mechanism: SelectionMechanism, records: LabelledRecords) -> None:
        """Refuse public validation data that no fit of these records could be scored by."""
        if self.validation is None or isinstance(self.scoring, Score):
            return
        each: Any = mechanism.candidates[0]
        declared = each.estimator.get_params(deep=False).get("classes")
        classifies = is_classifier(self.estimator)
        check_validation(self.validation, records, None if declared is None or not classifies else declared)

    def _private(self, X: ArrayLike, y: ArrayLike) -> LabelledRecords:
        """X and y as arrays; the messages quote nothing of them."""
        table: Any = plain_table(X)
        check_declared(self.estimator)
        fewest: Any = 0 if self._n_is_private() else 1  # that there are none is private with n
        table = validate_data(self, table, dtype=np.float64, ensure_min_samples=fewest)
        keep_columns(self, X, table)
        if y is None:
            raise ValueError("This search requires y to be passed, but the target y is None.")
        response = np.asarray(y) if is_classifier(self.estimator) else numbers(y, "y")
        if response.ndim == 2 and response.shape[1] == 1:
            response = column_or_1d(response, warn=True)
        if response.shape[:1] != table.shape[:1]:
            raise PublicError("Found input variables with inconsistent numbers of samples: X and y must agree.")
        if response.dtype.kind == "f" and not np.isfinite(response).all():
            raise PublicError("y must be finite; it contains NaN or infinity.")
        return LabelledRecords(table, response)

    def __sklearn_tags__(self) -> Tags:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.non_deterministic = self.randomness is None
        return tags


def check_declared(estimator: Any) -> None:
    """Refuse what does not say what it costs.

    Raises:
        TypeError: no ``privacy_loss``.
    """
    if not callable(getattr(estimator, "privacy_loss", None)):
        raise TypeError(
            f"{type(estimator).__name__} does not say what a fit costs. Use an estimator of this library, or declare "
            "the loss of another: Declared(estimator, loss)."
        )


def _loss_of(estimator: Any, n: int | None) -> PrivacyLoss:
    """What a fit costs.

    Raises:
        TypeError: it is no privacy loss.
    """
    loss = estimator.privacy_loss(n)
    if not isinstance(loss, PrivacyLoss):
        raise TypeError(
            f"{type(estimator).__name__}.privacy_loss must return a PrivacyLoss, such as GaussianDP(0.3, "
            f"neighbours='replace'); got {type(loss).__name__}."
        )
    return loss


def _plain(value: Any) -> Any:
    """A parameter as JSON data, in words where it is nothing that JSON has."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and np.isfinite(value) else repr(value)
