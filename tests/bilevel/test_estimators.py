"""Models that choose their own penalty."""

import dataclasses
import traceback
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator

from discretion.bilevel.constants import Refused
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.estimators import LogisticRegressionCV, RidgeCV
from discretion.bilevel.families import QuadraticMean, RidgePenalty, Table
from discretion.bilevel.huber import HuberRidgeCV
from discretion.bilevel.inner import InnerRelease, perturbed
from discretion.bilevel.recomputation import LOSSES
from discretion.bilevel.sensitivity import inner_shift
from discretion.bilevel.tuned import TunedModel
from discretion.privacy import BudgetExceeded, Ledger, PublicError, SeededRandomness, SystemRandomness, verify


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


@pytest.mark.slow
def test_check_estimator_huber():
    model = HuberRidgeCV(30.0, (-100.0, 100.0), corner=80.0, epsilon=5.0, randomness=SeededRandomness(0))
    results = check_estimator(model, on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} <= {"passed", "skipped"}


def test_huber_learns_where_a_tenth_of_the_responses_is_wrong(tmp_path):
    X, y = data(20_000)
    good, y = y[2_000:].copy(), np.where(np.arange(20_000) < 2_000, 1.0, y)
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=2.0, delta=1e-6)
    model = HuberRidgeCV(corner=0.2, epsilon=2.0, ledger=ledger).fit(X, y)
    assert model.score(X[2_000:], good) > 0.85
    certificate = model.release_.certificate
    assert certificate.parameters["corner"] == 0.2
    assert 1.999 < certificate.epsilon <= 2.0
    assert verify(certificate, LOSSES).verified
    (entry,) = ledger.entries()
    assert entry.description["unit"] == certificate.unit
    ridge = RidgeCV(epsilon=2.0, randomness=SeededRandomness(0)).fit(X, y)
    assert ridge.score(X[2_000:], good) < 0.6


def test_huber_in_the_units_of_the_data():
    """The model without noise minimises the sum of Huber losses, its corner in units of y."""
    X, y = data(300, 3)
    options = {"epsilon": 50.0, "randomness": SeededRandomness(1), "fit_intercept": False}
    model = HuberRidgeCV(3.0, (1.0, 9.0), corner=0.5, **options).fit(2.5 * X, 5.0 + 4.0 * y)
    found, _ = exact(model, 2.5 * X, 5.0 + 4.0 * y)

    def slope(w):
        residual = 2.5 * X @ w - 4.0 * y
        # (lambda/2) |w|^2 of scaled coefficients 3 w / 4, in units of y squared
        return (2.5 * X).T @ np.clip(residual, -0.5, 0.5) / len(X) + model.penalty_ * 9.0 * w

    assert np.linalg.norm(slope(found)) < 1e-9 < 1e-3 < np.linalg.norm(slope(1.01 * found))
    assert model.mechanism(300, 3).corner == 0.125
    assert HuberRidgeCV(3.0, (1.0, 9.0)).mechanism(300, 3).corner == 0.5
    assert "units of y" in model.report(300).text()


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
    assert np.isclose(np.geomspace(0.1, 10.0, 31), model.penalty_, rtol=1e-12).any()
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
    assert "No model is released" in model.report(len(X)).text()


def test_report_begins_with_price_noise_and_verdict():
    model = RidgeCV(4.0, (0.0, 100.0), epsilon=2.0, penalties=(0.01, 10.0))
    report = model.report(200_000)
    price, noise, verdict = report.text().splitlines()[:3]
    assert "epsilon = 2.0000 at delta = 1e-06" in price
    assert "units of y" in noise
    assert verdict.startswith("Not informative")
    assert not report.informative
    whole = model.mechanism(200_000).whole
    found = InnerRelease(problem=whole, x=np.log([0.01]), mu=report.mu).noise
    assert report.noise[0] == pytest.approx(50.0 * found)
    assert report.noise[1] < report.noise[0]
    logistic = LogisticRegressionCV((0, 1), epsilon=2.0).report(10_000)
    assert "log odds" in logistic.text()
    for model in (RidgeCV, LogisticRegressionCV):
        report = model(epsilon=2.0, choice_score="candidate", choice_spread=0.01).report(10_000)
        assert report.choice.score == "candidate"
        assert report.choice.spread == 0.01


def test_no_model_of_an_earlier_fit_is_left():
    X, y = data(400)
    model = RidgeCV(epsilon=20.0, randomness=SeededRandomness(4)).fit(X, y)
    assert hasattr(model, "coef_")
    model.set_params(release_model=False).fit(X, y)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "intercept_")


def test_predictions_are_classes_of_the_fit():
    X, y = data(400)
    model = LogisticRegressionCV((0, 1), epsilon=20.0, randomness=SeededRandomness(4)).fit(X, (y > 0).astype(int))
    before = model.predict(X)
    assert np.array_equal(model.set_params(classes=("x", "y")).predict(X), before)


def test_an_unknown_kind_is_refused():
    given = {"records": 100, "dimension": 2, "choice_epsilon": 1.0, "mu": 1.0}
    with pytest.raises(ValueError, match='"ridge", "logistic" or "huber"'):
        TunedModel(kind="Ridge", **given)
    X, y = data(100, 2)
    made = TunedModel(kind="ridge", **given).run(Table(X, y), SystemRandomness()).certificate
    assert verify(made, LOSSES).verified
    assert not verify(dataclasses.replace(made, parameters=made.parameters | {"kind": "linear"}), LOSSES).verified


@pytest.mark.parametrize(
    "wrong",
    [
        {"response_range": (-1e308, 1e308)},
        {"response_range": (0.0, 5e-324)},
        {"feature_bound": 1e-320},
        {"penalties": (1.0, 1e300)},
        {"mu": 1e300},
        {"mu": 1e-300},
        {"records": 100.5},
        {"records": True},
        {"dimension": 0},
        {"dimension": 1.5},
        {"candidates": 2.5},
    ],
)
def test_absurd_public_numbers_are_refused_beforehand(wrong):
    given = {"kind": "ridge", "records": 100, "dimension": 1, "choice_epsilon": 5.0, "mu": 5.0}
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        TunedModel(**given | wrong)


def test_an_inner_release_whose_noise_would_vanish_is_refused_beforehand():
    problem = RidgePenalty(training=50, validation=2, dimension=2, penalties=(0.1, 1.0))
    with pytest.raises(Refused, match="absorb"):
        InnerRelease(problem=problem, x=np.array([0.0]), mu=1e20)
    made = InnerRelease(problem=problem, x=np.array([0.0]), mu=1.0)
    with pytest.raises(ValueError, match="52 records"):
        made.privacy_loss(53)


@pytest.mark.parametrize("family", ["linear", "mean", "tuned"])
def test_what_is_no_number_is_not_quoted(family):
    secret = [["secret-1"], ["secret-2"], ["secret-3"], ["secret-4"]]
    table = Table(np.array(secret), np.zeros(4))
    problem = RidgePenalty(training=4, validation=4, dimension=1)
    run = {
        "linear": lambda: problem.ingest(SplitRecords(table, table)),
        "mean": lambda: QuadraticMean(records=4, dimension=1).ingest(secret),
        "tuned": lambda: TunedModel(kind="ridge", records=4, dimension=1, choice_epsilon=1.0).check(table),
    }[family]
    with pytest.raises(ValueError, match="must be a string or a number") as told:
        run()
    assert "secret-" not in "".join(traceback.format_exception(told.value))


def test_a_wrong_mask_leaves_no_records_in_frames():
    with pytest.raises(IndexError) as told:
        Table.split(np.full((4, 1), 0.12345), np.full(4, 0.12345), [True, False])
    frames = [frame for frame, _ in traceback.walk_tb(told.value.__traceback__)][1:]
    assert not any("0.12345" in str(frame.f_locals) for frame in frames)


@pytest.mark.parametrize("intercept", [True, False])
def test_penalty_in_the_units_of_scikit_learn(intercept):
    X, y = data(400, 3)
    X, y, n = 2.5 * X, 5.0 + 4.0 * y, len(X)
    columns = np.column_stack([X, np.full(n, 3.0)]) if intercept else X
    options = {"fit_intercept": intercept, "epsilon": 50.0, "randomness": SeededRandomness(1)}
    ridge = RidgeCV(3.0, (1.0, 9.0), **options).fit(X, y)
    found = exact(ridge, X, y)
    theirs = Ridge(alpha=ridge.sklearn_alpha(n), fit_intercept=False).fit(columns, y - 5.0)
    assert np.allclose(found[0], theirs.coef_[:3], rtol=1e-6)
    assert found[1] - 5.0 == pytest.approx(3.0 * theirs.coef_[3] if intercept else 0.0, rel=1e-6)
    labels = np.where(y > 5.0, 1.0, -1.0)
    logistic = LogisticRegressionCV((-1.0, 1.0), 3.0, **options).fit(X, labels)
    found = exact(logistic, X, labels)
    theirs = LogisticRegression(C=logistic.sklearn_C(n), fit_intercept=False, tol=1e-10).fit(columns, labels)
    assert np.allclose(found[0], theirs.coef_[0, :3], rtol=1e-5)
    assert found[1] == pytest.approx(3.0 * theirs.coef_[0, 3] if intercept else 0.0, rel=1e-5)


def exact(model, X, y):
    """Coefficients and intercept without noise, at the chosen penalty."""
    mechanism = model.mechanism(len(X), X.shape[1])
    _, joined = mechanism._parts(Table(X, y))
    x = np.log([model.penalty_])
    return mechanism._unscaled(mechanism.whole.certified(x, mechanism.whole.ingest(joined), 1e-12))


def test_choice_counts_the_models_noise():
    """Few records: without the public cost of noise a small penalty would be drowned in it."""
    few = TunedModel(kind="ridge", records=300, dimension=3, choice_epsilon=0.5, mu=0.3, penalties=(1e-2, 10.0))
    offsets = few.choice.offsets
    assert np.all(np.diff(offsets) < 0)
    assert 0.01 < offsets[0] <= 0.05
    assert few._noise_costs(few.asked, few.mu)[0] > 1.0


def test_unit_and_ledger_of_all_estimators(tmp_path):
    X, y = data(60)
    book = Ledger.create(tmp_path / "b.ledger", dataset="made up", epsilon=9.0, delta=1e-5)
    for model, target in ((RidgeCV(), y), (HuberRidgeCV(), y), (LogisticRegressionCV((-1, 1)), np.where(y > 0, 1, -1))):
        with pytest.warns(UserWarning, match="No ledger"):
            model.fit(X, target)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.set_params(unit="one pupil", ledger=book).fit(X, target)
        assert model.release_.certificate.unit == "one pupil"
    with pytest.raises(ValueError, match="pupil"):
        RidgeCV(unit="one school", ledger=book).fit(X, y)


def test_penalties_that_noise_rules_out_are_no_candidates():
    model = RidgeCV(4.0, (-8.0, 8.0), epsilon=2.0, penalties=(0.001, 1.0))
    mechanism, report = model.mechanism(6000, 5), model.report(6000)
    penalties = np.exp(mechanism.choice.points[:, 0])
    assert np.allclose(penalties, np.geomspace(0.001, 1.0, 31)[31 - len(penalties) :])
    assert report.left_out == 31 - len(penalties) > 0
    assert f"{report.left_out} smaller penalties are left out" in report.text()
    assert not report.informative  # the noise told nothing but which penalties are absurd
    assert report.choice.forecasts[0].share > report.choice.forecasts[0].public
    given = mechanism.parameters()
    again = TunedModel(
        **{
            **{name: value for name, value in given.items() if name != "released"},
            "records": 6000,
            "response_range": (-8.0, 8.0),
            "penalties": tuple(given["penalties"]),
        }
    )
    assert again.parameters()["penalties"] == pytest.approx(given["penalties"], rel=1e-12)
    assert again.parameters() | {"penalties": None} == given | {"penalties": None}
    assert len(model.set_params(choice_spread=1e-9).mechanism(6000, 5).choice.points) == 2
    assert RidgeCV(4.0, epsilon=2.0, penalties=(0.001, 1.0), release_model=False).report(6000).left_out == 0


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
    for wrong in ({"corner": 0.0}, {"corner": np.nan}, {"corner": 1.0, "response_range": (1.0, 1.0)}):
        with pytest.raises(ValueError, match=r"corner|response_range"):
            HuberRidgeCV(**wrong).fit(X, y)
    for wrong, words in (
        ({"penalties": [0.1, 1, 10]}, "the least and the largest"),
        ({"response_range": 3}, "response_range must be two numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            RidgeCV(**wrong).fit(X, y)
    with pytest.raises(ValueError, match="Raise the least penalty"):
        RidgeCV(penalties=(1e-3, 1.0001e-3), candidates=2).report(100_000)
