import importlib.util
import pickle
import time

import numpy as np
import pytest
from joblib import parallel_config
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge
from sklearn.model_selection import RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from tests.selection.makers import MeanMechanism, forced

from discretion.gp import Box
from discretion.posterior import KernelSum, PosteriorMechanism, PosteriorSampler
from discretion.privacy import Ledger, Neighbours, PublicError, PureDP, SeededRandomness
from discretion.selection import (
    Declared,
    NegativeBinomial,
    NoisyScore,
    NothingChosen,
    Outcome,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    PublicScore,
    correct,
    select,
)
from discretion.selection.bounds import selection_loss

LAW = NegativeBinomial.of_mean(2.0, 5.0)
SPACE = {"alpha": [1.0, 30.0, 1000.0]}


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, 3))
    return X, X @ [0.9, -0.4, 0.2]


def same(model):
    return 1.0


def ridge_search(**more):
    plan = {"param_distributions": SPACE, "law": LAW, "validation": data(40, 9)}
    return PrivateSearchCV(PrivateRidge(1.0, mu=1.0), **plan | more)


def test_the_price_is_known_before_the_records():
    search = ridge_search()
    assert search.privacy_loss(300).epsilon(1e-6) == pytest.approx(
        selection_loss(PrivateRidge(1.0, mu=1.0).privacy_loss(300), LAW).epsilon(1e-6), rel=1e-12
    )


def test_the_winner_and_its_certificate():
    X, y = data()
    search = ridge_search(law=forced(30), randomness=SeededRandomness(0)).fit(X, y)
    assert search.best_params_ == {"alpha": 1.0}
    assert search.best_index_ == 0
    assert search.best_estimator_.alpha == 1.0
    assert search.best_score_ == search.best_estimator_.score(*data(40, 9))
    assert search.best_estimator_.release_.certificate == search.release_.certificate
    assert search.release_.certificate.epsilon > search.release_.one_run
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    for name in ("cv_results_", "n_splits_", "refit_time_", "predict_proba"):
        assert not hasattr(search, name)


def test_nothing_secret_stays_in_the_winner():
    X, y = data()
    X[5] = 0.123456789
    search = ridge_search(law=forced(6)).fit(X, y)
    text = pickle.dumps(search)
    assert np.float64(0.123456789).tobytes() not in text
    assert b"KeyedRandomness" not in pickle.dumps(search.best_estimator_.get_params())
    assert search.best_estimator_.randomness is None
    assert b"SearchKey" not in text


def test_the_fitted_search_does_not_tell_the_number_of_runs(monkeypatch):
    monkeypatch.setattr("discretion.privacy.certificate.utc_now", lambda: "2026-01-01T00:00:00Z")
    X, y = data()
    constant = Declared(DummyClassifier(strategy="constant", constant=1), PureDP(0.5, neighbours="replace"))
    seen = set()
    for drawn in (5, 6, 40):
        search = PrivateSearchCV(
            constant,
            {"estimator__constant": [1]},
            forced(drawn),
            scoring=PublicScore(same),
            random_state=3,
        ).fit(X, y > 9)
        fitted = {name: value for name, value in vars(search).items() if name.endswith("_")}
        seen.add((repr(search), pickle.dumps(fitted)))
    assert len(seen) == 1


def test_no_fit_gives_the_default():
    X, y = data()
    search = ridge_search(law=forced(0)).fit(X, y)
    assert search.is_default_
    assert search.outcome_ is Outcome.DEFAULT
    assert (search.best_params_, search.best_score_, search.best_estimator_) == (None, None, None)
    with pytest.raises(NothingChosen, match="No fit was drawn"):
        search.predict(X)
    public = Ridge().fit(*data(20, 8))
    np.testing.assert_array_equal(ridge_search(law=forced(0), default=public).fit(X, y).predict(X), public.predict(X))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"refit": True}, ValueError, "another release"),
        ({"validation": None}, ValueError, "without noise is not private"),
        ({"estimator": Ridge()}, TypeError, "does not say what a fit costs"),
        ({"param_distributions": object()}, TypeError, "look at earlier scores"),
        ({"param_distributions": {"alpha": loguniform(1, 9)}, "weights": [1.0]}, ValueError, "Weights need"),
    ],
)
def test_refusals(change, error, message):
    with pytest.raises(error, match=message):
        ridge_search().set_params(**change).fit(*data())


def test_a_known_random_state_is_refused():
    search = PrivateSearchCV(
        Declared(DummyClassifier(random_state=3), PureDP(1.0, neighbours="replace")),
        {"estimator__strategy": ["prior"]},
        LAW,
        scoring=PublicScore(lambda model: 0.0),
    )
    with pytest.raises(ValueError, match="can take the noise away"):
        search.fit(*data())


def test_candidates_are_public_and_fixed():
    space = {"alpha": loguniform(0.1, 100.0), "fit_intercept": [True, False]}
    search = ridge_search(param_distributions=space, n_candidates=7)
    assert search.candidates() == search.candidates()
    assert len(search.candidates()) == 7
    assert ridge_search().candidates() == [{"alpha": alpha} for alpha in SPACE["alpha"]]


def test_noisy_accuracy_on_disjoint_records():
    X, y = data(2000)
    labels = (y > 0).astype(int)
    score = NoisyScore(correct, 0.0, 1.0, mu=0.5, fraction=0.2, name="accuracy")
    search = PrivateSearchCV(
        PrivateLogisticRegression((0, 1), 1.0, noise=10 / 3), {"alpha": [1.0, 1e4]}, forced(8), scoring=score
    ).fit(X, labels)
    assert search.score(X, labels) > 0.8
    assert abs(search.best_score_ - search.score(X, labels)) < 0.1
    assert list(search.classes_) == [0, 1]
    assert search.predict_proba(X).shape == (2000, 2)


@pytest.mark.parametrize(
    ("records", "message"), [((30, 2), "declared classes"), ((31, 1), "more than the declared 30")]
)
def test_what_a_mechanism_refuses_is_refused_before_anything_is_spent(tmp_path, records, message):
    n, label = records
    ledger = Ledger.create(tmp_path / "l", dataset="people", epsilon=30.0, delta=1e-6)
    labels = np.zeros(n, dtype=int)
    labels[0] = label
    model = PrivateLogisticRegression((0, 1), noise=10.0, neighbours="add-remove", most_records=30)
    search = PrivateSearchCV(model, SPACE, forced(3), scoring=PublicScore(same))
    for book in (ledger, None):
        with pytest.raises(PublicError, match=message):
            search.set_params(ledger=book).fit(np.zeros((n, 2)), labels)
    assert ledger.entries() == []


@pytest.mark.parametrize("learner", ["ridge", "logistic"])
@pytest.mark.parametrize("n", [0, 1, 2, 19, 20])
def test_a_private_number_of_records_makes_no_difference(learner, n):
    """Neither few records nor none, nor an empty part of them, make a search fail."""
    X, labels = np.full((n, 1), 0.5), np.zeros(n, dtype=int)
    private = "add-remove"
    model = (
        PrivateRidge(mu=0.01, neighbours=private)
        if learner == "ridge"
        else PrivateLogisticRegression((0, 1), noise=100.0, neighbours=private)
    )
    for fraction in (0.05, 0.5, None):
        score = NoisyScore(correct, 0.0, 1.0, 0.01, fraction=fraction)
        search = PrivateSearchCV(model, SPACE, forced(4), scoring=score).fit(X, labels)
        assert search.outcome_ is Outcome.CHOSEN
        assert search.release_.certificate.n is None
        assert search.privacy_loss(n).epsilon(1e-6) == search.privacy_loss().epsilon(1e-6)


class Owners(PrivateRidge):
    """An estimator that protects units of several records."""

    def __init__(self, contributions=1):
        super().__init__(mu=1.0)
        self.contributions = contributions


@pytest.mark.parametrize("wrapped", [False, True])
def test_contributions_of_an_estimator_are_seen(wrapped):
    owners = Owners(10)
    model = Declared(owners, PureDP(1.0, neighbours="replace")) if wrapped else owners
    name = "estimator__contributions" if wrapped else "contributions"
    search = PrivateSearchCV(model, {name: [1, 10]}, LAW, scoring=NoisyScore(correct, 0.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="up to 10 records"):
        search.mechanism(50)
    search.set_params(param_distributions={name: [1]}).mechanism(50)


@pytest.mark.parametrize(("of_the_search", "named"), [(None, "one patient"), ("one ward", "one ward")])
def test_the_unit_is_that_of_the_candidates_unless_the_search_names_one(of_the_search, named):
    learner = PrivateRidge(1.0, mu=1.0, unit="one patient")
    search = PrivateSearchCV(learner, SPACE, LAW, validation=data(40, 9), delta=1e-5, unit=of_the_search)
    with pytest.warns(UserWarning, match="No ledger"):
        search.fit(*data())
    assert search.release_.certificate.unit == named


def test_maps_are_tuned_by_the_same_class(tmp_path):
    X = np.random.default_rng(0).uniform(size=(200, 2))
    y = np.sign(X[:, 0] - 0.5)
    ledger = Ledger.create(tmp_path / "l", dataset="sales", epsilon=60.0, delta=1e-3)
    sampler = PosteriorSampler(Box((0, 0), (1, 1)), (-1, 1), scale=0.5, delta=1e-3, grid=5)
    search = PrivateSearchCV(
        sampler,
        {"ridge": [10.0, 20.0]},
        forced(3),
        scoring=PublicScore(lambda model: model.ridge),
        delta=1e-3,
        ledger=ledger,
    ).fit(X, y)
    assert search.best_params_ == {"ridge": 20.0} or search.best_params_ == {"ridge": 10.0}
    assert search.best_estimator_.release_.certificate.ledger_entry == f"{ledger.id}#{ledger.entries()[0].id}"
    assert search.best_estimator_.sample().shape == (1, 25)
    assert search.best_estimator_.ledger is None


def test_a_pipeline_without_a_declared_loss_is_refused():
    with pytest.raises(TypeError, match="Declared"):
        PrivateSearchCV(
            make_pipeline(FunctionTransformer(), PrivateRidge()), SPACE, LAW, scoring=PublicScore(lambda model: 0.0)
        ).fit(*data())


def test_clone_and_repr():
    search = ridge_search()
    assert clone(search).get_params()["law"] == LAW
    assert "PrivateSearchCV" in repr(search)


def least_alpha(model):
    return -model.alpha


@pytest.mark.slow
def test_check_estimator():
    # The scores of the checks' data sets don't matter, so that each check pays no validation.
    search = PrivateSearchCV(
        PrivateRidge(30.0, (-100.0, 100.0), mu=5.0),
        {"alpha": [1.0, 2.0]},
        forced(2),
        scoring=PublicScore(least_alpha),
        rule="renyi",
        randomness=SeededRandomness(0),
    )
    expected = {}
    results = check_estimator(search, expected_failed_checks=expected, on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} <= {"passed", "skipped", "xfail"}


@pytest.mark.parametrize("backend", ["threading", pytest.param("dask", marks=pytest.mark.slow)])
def test_backends_agree(backend):
    X, y = data()
    search = ridge_search(law=forced(6), rule="renyi", randomness=SeededRandomness(4))
    alone = clone(search).fit(X, y)
    if backend == "dask":
        if importlib.util.find_spec("distributed") is None:
            pytest.skip("dask is not installed")
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
            Client(cluster),
            parallel_config("dask"),
        ):
            together = clone(search).fit(X, y)
    else:
        with parallel_config(backend, n_jobs=2):
            together = clone(search).fit(X, y)
    np.testing.assert_array_equal(alone.best_estimator_.coef_, together.best_estimator_.coef_)
    assert alone.best_score_ == together.best_score_


@pytest.mark.slow
def test_overhead_is_that_of_randomized_search():
    """See benchmarks/selection_runner_claims.py for the figure."""
    X, y = data(50)
    dummy = DummyClassifier(strategy="constant", constant=1)
    start = time.process_time()
    RandomizedSearchCV(dummy, {"constant": [1] * 200}, n_iter=100, cv=[(np.arange(50), np.arange(50))]).fit(X, y > -9)
    theirs = time.process_time() - start
    search = PrivateSearchCV(
        Declared(dummy, PureDP(0.1, neighbours="replace")),
        {"estimator__constant": [1]},
        forced(100),
        scoring=PublicScore(lambda model: 0.0),
    )
    mechanism = search.mechanism(50)
    mechanism.privacy_loss(50)
    start = time.process_time()
    search.fit(X, y > -9)
    assert time.process_time() - start < 3 * theirs + 1.0


SQUARE = {"domain": Box((-1.0,) * 3, (1.0,) * 3), "grid": 3, "delta": 1e-3}
LEARNERS = {
    "sampler": (PosteriorSampler, SQUARE | {"scale": 1.0}, {"ridge": [10.0, 20.0]}),
    "kernel sum": (KernelSum, SQUARE, {"scale": [5.0, 6.0]}),
    "ridge": (PrivateRidge, {"mu": 0.5}, {"alpha": [1.0, 2.0]}),
    "logistic": (PrivateLogisticRegression, {"noise": 2.0, "classes": (-1, 1)}, {"alpha": [1.0, 2.0]}),
}


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("kind", LEARNERS)
def test_records_that_no_fit_would_take_are_refused_before_anything_is_spent(kind, neighbours, tmp_path):
    learner, options, space = LEARNERS[kind]
    (X, y), private = data(80), neighbours == "add-remove"
    y = np.sign(y)
    estimator = learner(**options, neighbours=neighbours, most_records=60)
    # asked by itself, it keeps nothing, and says the number where it is public
    before = dict(vars(estimator))
    assert estimator.check(X[:50], y[:50]) == (None if private else 50)
    assert vars(estimator) == before
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=90, delta=1e-2, neighbours=Neighbours(neighbours))
    score = PublicScore(same, "constant")
    search = PrivateSearchCV(estimator, space, LAW, delta=1e-3, ledger=book, scoring=score)
    if private:
        with pytest.raises(PublicError, match="more than the declared 60 records"):
            search.fit(X, y)
    elif "domain" in options:
        with pytest.raises(ValueError, match="before anything was spent"):
            search.fit(X[:, :2], y)
    assert book.entries() == []
    search.fit(X[:50], y[:50])
    assert len(book.entries()) == 1
    assert search.outcome_ is Outcome.CHOSEN


def test_checking_does_not_solve_for_the_noise(monkeypatch):
    X, y = data(50)
    monkeypatch.setattr(PosteriorMechanism, "calibrated", lambda **_: pytest.fail("calibrated"))
    monkeypatch.setattr("discretion.selection.learners.largest", lambda *_, **__: pytest.fail("calibrated"))
    assert PosteriorSampler(Box((-1.0,) * 3, (1.0,) * 3), epsilon=1.0, grid=3).check(X, y) == 50
    assert PrivateRidge(1.0, epsilon=1.0).check(X, y) == 50


@pytest.mark.slow
@pytest.mark.usefixtures("alone_with_ray")
def test_ray_workers_find_the_same_winner():
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    X, y = data()
    alone = ridge_search(randomness=SeededRandomness(5)).fit(X, y)
    records = np.linspace(0.0, 1.0, 30)
    candidates = [MeanMechanism(shift=shift) for shift in (0.0, 0.1)]
    score = PublicScore(value, "value")
    first = select(candidates, score, LAW, records, 30, randomness=SeededRandomness(3))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with parallel_config(backend="ray", n_jobs=2):
            together = ridge_search(randomness=SeededRandomness(5)).fit(X, y)
            second = select(candidates, score, LAW, records, 30, randomness=SeededRandomness(3))
    finally:
        ray.shutdown()
    assert together.best_params_ == alone.best_params_
    np.testing.assert_array_equal(together.best_estimator_.coef_, alone.best_estimator_.coef_)
    assert (first.candidate, first.score) == (second.candidate, second.score)
    assert float(first.winner.value) == float(second.winner.value)


def value(release):
    return float(release.value)
