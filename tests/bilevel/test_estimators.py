"""Models that choose their own penalty."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from discretion.bilevel.estimators import LogisticRegressionCV, RidgeCV
from discretion.bilevel.families import RidgePenalty, Table
from discretion.bilevel.inner import InnerRelease, perturbed
from discretion.bilevel.problem import SplitRecords
from discretion.bilevel.sensitivity import inner_shift
from discretion.bilevel.tuned import TunedModel
from discretion.privacy import BudgetExceeded, Ledger, PublicError, SeededRandomness, SystemRandomness


def data(n=4000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.clip(X @ np.linspace(0.8, -0.8, d) + 0.1 * rng.normal(size=n), -1, 1)


@pytest.mark.slow
def test_check_estimator_ridge():
    results = check_estimator(RidgeCV(30.0, (-100.0, 100.0), epsilon=5.0, randomness=SeededRandomness(0)), on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} <= {"passed", "skipped"}


def test_one_certificate_holds_both_prices(tmp_path):
    X, y = data()
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=1.0, delta=1e-6)
    model = RidgeCV(epsilon=1.0, penalties=(0.1, 10.0), ledger=ledger)
    before = model.privacy_loss(len(X)).epsilon(1e-6)
    model.fit(X, y)
    certificate = model.release_.certificate
    assert certificate.epsilon == before
    assert 0.999 < before <= 1.0
    assert ledger.spent().epsilon == pytest.approx(before, rel=1e-9)
    assert model.penalty_ in np.exp(RidgePenalty(training=1, validation=1, dimension=1, penalties=(0.1, 10.0),
                                                 candidates=31).x_domain.array)  # fmt: skip
    with pytest.raises(BudgetExceeded):
        clone(model).fit(X, y)


def test_ridge_learns():
    X, y = data(100_000)
    model = RidgeCV(epsilon=2.0, fit_intercept=False, randomness=SeededRandomness(1)).fit(X, y)
    shrunk = X @ np.linspace(0.8, -0.8, 4)
    assert np.corrcoef(model.predict(X), shrunk)[0, 1] > 0.95
    assert model.score(X, y) > 0.3


def test_units_of_the_data():
    """Scaling features and responses scales the model, draw by draw."""
    X, y = data()
    small = RidgeCV(epsilon=2.0, randomness=SeededRandomness(2)).fit(X, y)
    large = RidgeCV(8.0, (6.0, 14.0), epsilon=2.0, randomness=SeededRandomness(2)).fit(8.0 * X, 10.0 + 4.0 * y)
    assert large.penalty_ == small.penalty_
    assert np.allclose(large.predict(8.0 * X), 10.0 + 4.0 * small.predict(X), rtol=0, atol=1e-9)


def test_logistic_learns_and_refuses_unknown_labels():
    X, y = data(60_000)
    labels = np.where(y > 0, "yes", "no")
    model = LogisticRegressionCV(("no", "yes"), epsilon=2.0, randomness=SeededRandomness(3)).fit(X, labels)
    assert model.score(X, labels) > 0.8
    assert np.allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0)
    assert set(model.predict(X[:100])) <= {"no", "yes"}
    with pytest.raises(PublicError, match="declared classes"):
        model.fit(X, np.where(y > 0, "yes", "maybe"))
    with pytest.raises(ValueError, match="Declare the two classes"):
        LogisticRegressionCV().fit(X, labels)


def test_penalty_alone():
    X, y = data()
    model = RidgeCV(epsilon=1.0, release_model=False, randomness=SeededRandomness(4)).fit(X, y)
    assert model.release_.coefficients is None
    assert 0.999 < model.privacy_loss(len(X)).epsilon(1e-6) <= 1.0
    with pytest.raises(AttributeError, match="Only the penalty"):
        model.predict(X)
    assert "Within reach" in model.report(len(X)).text()


def test_choice_counts_the_models_noise():
    """Few records: without the public cost of noise a small penalty would be drowned in it."""
    few = TunedModel(kind="ridge", records=300, dimension=3, choice_epsilon=0.5, mu=0.3, penalties=(1e-2, 10.0))
    offsets = few.choice.offsets
    assert np.all(np.diff(offsets) < 0)
    assert offsets[0] > 1.0


def test_noise_covers_the_shift_of_the_inner_solution():
    problem = RidgePenalty(training=50, validation=2, dimension=2, candidates=5, penalties=(0.1, 1.0))
    x = problem.x_domain.array[0]
    release = InnerRelease(problem=problem, x=x, mu=0.5)
    assert release.noise >= inner_shift(problem.constants(x), problem.counts) / 0.5
    X, y = data(52, 2)
    records = SplitRecords(Table(X[:50], y[:50]), Table(X[50:], y[50:]))
    ingested = problem.ingest(records)
    exact = problem.certified(x, ingested, 1e-10)
    draws = np.array([perturbed(problem, x, ingested, 0.5, SystemRandomness()) for _ in range(4000)]) - exact
    assert draws.std() == pytest.approx(release.noise, rel=0.05)
    found = release.run(records, SystemRandomness())
    assert found.y.shape == (2,)
    assert found.certificate.loss["type"] == "gaussian-dp"
    with pytest.raises(ValueError, match="outside the domain"):
        InnerRelease(problem=problem, x=np.array([9.0]), mu=0.5)


def test_wrong_parameters():
    X, y = data(50)
    for wrong in ({"epsilon": 0.0}, {"delta": 0.0}, {"choice_share": 1.0}, {"validation_share": 0.0},
                  {"penalties": (1.0, 0.1)}, {"feature_bound": -1.0}, {"response_range": (1.0, 0.0)}):  # fmt: skip
        with pytest.raises(ValueError):  # noqa: PT011
            RidgeCV(**wrong).fit(X, y)
