"""Names of columns, in every estimator: public, kept and compared as scikit-learn does, and never a record."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

from discretion.bilevel import HuberRidgeCV, LogisticRegressionCV, RidgeCV
from discretion.posterior import KernelSum, PosteriorSampler
from discretion.privacy import SeededRandomness
from discretion.selection import NegativeBinomial, PrivateLogisticRegression, PrivateRidge, PrivateSearchCV

pandas = pytest.importorskip("pandas")

SEED = {"randomness": SeededRandomness(0)}
ESTIMATORS = {
    "sampler": PosteriorSampler(domain=(-9, 9), response_range=(-1, 1), scale=1.0, locations=np.zeros((2, 8)), **SEED),
    "kernel sum": KernelSum(domain=(-9, 9), response_range=(-1, 1), scale=1.0, locations=np.zeros((2, 8)), **SEED),
    "ridge": PrivateRidge(4.0, mu=1.0, **SEED),
    "logistic": PrivateLogisticRegression((0, 1), noise=50.0, **SEED),
    "ridge cv": RidgeCV(4.0, epsilon=50.0, penalties=(1.0, 10.0), **SEED),
    "huber cv": HuberRidgeCV(4.0, corner=1.0, epsilon=50.0, penalties=(1.0, 10.0), **SEED),
    "logistic cv": LogisticRegressionCV((0, 1), epsilon=50.0, penalties=(1.0, 10.0), **SEED),
}  # fmt: skip


def search(**options):
    X = np.zeros((2, 3))
    return PrivateSearchCV(
        PrivateRidge(4.0, mu=1.0), {"alpha": [1.0, 10.0]}, NegativeBinomial.of_mean(2.0, 3.0), validation=(X, X[:, 0]),
        default=PrivateRidge(4.0, mu=1.0, **SEED).fit(X, X[:, 0]), **options | SEED,
    )  # fmt: skip


def records(names=("a", "b", "c"), n=60):
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.uniform(-1, 1, (n, 3)), columns=list(names))
    return X, (X.iloc[:, 0].to_numpy() > 0).astype(int)


def made(name):
    if name == "search":
        return search()
    found = clone(ESTIMATORS[name])
    return found.set_params(locations=np.zeros((2, 3))) if "locations" in found.get_params() else found


@pytest.mark.parametrize("name", ESTIMATORS)
def test_as_scikit_learn_checks_them(name):
    check_dataframe_column_names_consistency(name, ESTIMATORS[name])


@pytest.mark.parametrize("name", [*ESTIMATORS, "search"])
def test_columns_in_another_order_are_refused(name):
    X, y = records()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = made(name).fit(X, y)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        assert model.n_features_in_ == 3
        model.predict(X)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(X[["c", "b", "a"]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(X.rename(columns={"a": "z"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X.to_numpy())
    with pytest.raises(ValueError, match="features"):
        model.predict(np.zeros((2, 4)))
    model.fit(X.to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("name", [*ESTIMATORS, "search"])
def test_a_record_in_place_of_names_is_not_kept(name):
    headers = [("0.25", "0.25.1", "-1e-3"), ("7", "Unnamed: 1", "nan"), ("0,34", "61,5", "2"), ("a", "b", "n/a")]
    headers += [("0", "1", "2"), ("1", "1_duplicated_0", "NA"), ("True", "x", "y"), ("12%", "-", "b")]
    for header in headers:
        X, y = records(header)
        with pytest.warns(UserWarning, match="without its header line") as told:
            model = made(name).fit(X, y)
        assert not hasattr(model, "feature_names_in_")
        assert not any("0.25" in str(each.message) for each in told)
    X, y = records(("Income", "house age", "x_2.1"))
    assert list(made(name).fit(X, y).feature_names_in_) == ["Income", "house age", "x_2.1"]


def test_who_is_not_fitted_says_so():
    for name in ESTIMATORS:
        with pytest.raises(NotFittedError):
            made(name).predict(np.zeros((2, 3)))


def test_polars_too():
    polars = pytest.importorskip("polars")
    X, y = records()
    model = made("ridge cv").fit(polars.DataFrame({name: X[name].to_numpy() for name in X}), y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
