import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from tests.selection.makers import forced

from discretion.privacy import GaussianDP, PureDP, SubsampledGaussian
from discretion.selection import (
    AdaptiveSampler,
    Declared,
    PrivateSearchCV,
    PublicScore,
    diffprivlib_loss,
    dp_sgd_loss,
    opacus_loss,
    optuna_candidates,
)


class LikeDiffprivlib(ClassifierMixin, BaseEstimator):
    def __init__(self, epsilon=1.0, data_norm=None, fails=False):
        self.epsilon, self.data_norm, self.fails = epsilon, data_norm, fails

    def fit(self, X, y):
        warnings.warn("PrivacyLeakWarning", stacklevel=1)
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


def test_a_declared_estimator_is_searched():
    declared = Declared(LikeDiffprivlib(data_norm=1.0), diffprivlib_loss("replace"))
    search = PrivateSearchCV(
        declared,
        {"estimator__epsilon": [0.25, 0.5]},
        forced(6),
        scoring=PublicScore(lambda model: model.estimator.epsilon),
    )
    one = search.mechanism(9).run_loss(9)
    assert 0.25 < one.epsilon(1e-9) < 0.5  # candidates averaged
    X = np.zeros((9, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "No ledger")
        search.fit(X, np.zeros(9))
    assert search.best_params_["estimator__epsilon"] in (0.25, 0.5)
    assert search.predict(X).shape == (9,)
    assert is_classifier(search)
    assert is_classifier(declared)
    assert search.release_.certificate.neighbours == "replace"


def test_bounds_read_off_the_records_are_refused():
    with pytest.raises(ValueError, match="data_norm off the private records"):
        Declared(LikeDiffprivlib(), diffprivlib_loss("replace")).privacy_loss(5)
    with pytest.raises(ValueError, match="no parameter epsilon"):
        Declared(DummyClassifier(), diffprivlib_loss("replace")).privacy_loss(5)


def test_declarations():
    assert Declared(DummyRegressor(), PureDP(1.0, neighbours="replace")).privacy_loss(3).epsilon(0.0) == 1.0
    by_n = Declared(DummyRegressor(), lambda _, n: GaussianDP(1.0 / n, neighbours="replace"))
    assert by_n.privacy_loss(4).mu == 0.25
    with pytest.raises(TypeError, match="must be a PrivacyLoss"):
        Declared(DummyRegressor(), lambda _, n: 1.0).privacy_loss(4)
    assert not hasattr(Declared(DummyRegressor(), PureDP(1.0, neighbours="replace")), "predict_proba")


def test_dp_sgd_and_the_history_of_an_accountant():
    loss = dp_sgd_loss(noise_multiplier=1.1, sample_rate=0.01, steps=100)
    step = SubsampledGaussian(0.01, 1.1, neighbours="add-remove")
    assert loss.epsilon(1e-6) == (100 * step).epsilon(1e-6)
    two = opacus_loss([(1.1, 0.01, 60), (1.1, 0.01, 40)])
    assert two.epsilon(1e-6) == pytest.approx(loss.epsilon(1e-6), rel=1e-3)
    with pytest.raises(ValueError, match="empty"):
        opacus_loss([])
    with pytest.raises(ValueError, match="steps"):
        dp_sgd_loss(noise_multiplier=1.0, sample_rate=0.1, steps=0)


class RandomSampler:
    def __init__(self, seed):
        self._rng = np.random.RandomState(seed)

    def sample_independent(self, study, trial, name, distribution):
        return self._rng.uniform(*distribution)


class TPESampler(RandomSampler):
    pass


def test_random_candidates_only():
    drawn = optuna_candidates({"a": (0.0, 1.0), "b": (5.0, 6.0)}, RandomSampler(1), 4)
    assert len(drawn) == 4
    assert all(0 < each["a"] < 1 and 5 < each["b"] < 6 for each in drawn)
    with pytest.raises(AdaptiveSampler, match=r"TPESampler is refused.*RandomSampler.*charged to the ledger"):
        optuna_candidates({"a": (0.0, 1.0)}, TPESampler(1), 4)


def test_with_optuna_itself():
    optuna = pytest.importorskip("optuna")
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "depth": optuna.distributions.IntDistribution(2, 5),
        "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }
    drawn = optuna_candidates(space, optuna.samplers.RandomSampler(seed=0), 20)
    assert all(1e-4 <= each["lr"] <= 1e-1 and each["depth"] in range(2, 6) and each["kind"] in "ab" for each in drawn)
    assert len({each["lr"] for each in drawn}) == 20
    for sampler in (optuna.samplers.TPESampler(), optuna.samplers.NSGAIISampler()):
        with pytest.raises(AdaptiveSampler):
            optuna_candidates(space, sampler, 2)
