"""Input that is refused, and what may be said of it: both estimators, and the mechanisms below them."""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from discretion import Box, PosteriorSampler
from discretion.posterior import KernelSum
from discretion.privacy import PublicError

UNIT = Box((0.0, 0.0), (1.0, 1.0))


def records(n=60):
    rng = np.random.default_rng(0)
    return rng.uniform(size=(n, 2)), rng.uniform(-1.0, 1.0, size=n)


ESTIMATORS = {
    "paths": lambda: PosteriorSampler(UNIT, (-1, 1), ridge=10.0, scale=1.0, delta=1e-3, grid=4),
    "kernel sums": lambda: KernelSum(UNIT, (-1, 1), scale=1.0, delta=1e-3, grid=4),
    "columns of kernel sums": lambda: KernelSum(UNIT, [(-1, 1)], scale=1.0, delta=1e-3, grid=4),
}
SPOILT = {
    "text in y": lambda X, y: (X, np.where(np.arange(len(y)) == 3, "SECRET-0.1234x", y.astype(object))),
    "text in X": lambda X, y: (np.where(np.indices(X.shape)[0] == 2, "SECRET-0.1234x", X.astype(object)), y),
    "complex": lambda X, y: (X + 0.1234j, y),
    "huge": lambda X, y: (X, [*y[:-1], 12345678901234 * 10**400]),
    "1-D": lambda X, y: (X[:, 0], y),
    "NaN": lambda X, y: (X, np.where(np.arange(len(y)) == 3, np.nan, y)),
    "short": lambda X, y: (X, y[1:]),
}
estimators = pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)


def quotes_nothing(caught):
    error: BaseException | None = caught.value
    while error is not None:
        assert not re.findall(r"0\.\d{4,}|12345678|SECRET", str(error))
        error = error.__cause__ or error.__context__


def fit(estimator, X, y):
    return estimator.fit(X, [[value] for value in y] if isinstance(estimator.response_range, list) else y)


@estimators
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_errors_of_fit_quote_no_value(make, spoil):
    X, y = spoil(*records())
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(make(), X, y)
    quotes_nothing(caught)


@estimators
@pytest.mark.parametrize("spoil", [SPOILT[name] for name in ("text in X", "complex", "1-D")])
def test_errors_of_predict_quote_no_value(make, spoil):
    X, y = records()
    fitted = fit(make(), X, y)
    bad, _ = spoil(X, y)
    with pytest.raises((ValueError, TypeError)) as caught:
        fitted.predict(bad)
    quotes_nothing(caught)


@pytest.mark.parametrize("make", [ESTIMATORS["paths"], ESTIMATORS["kernel sums"]])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_errors_of_the_mechanism_quote_no_value(make, spoil):
    X, y = spoil(*records())
    with pytest.raises((PublicError, TypeError)) as caught:
        make().mechanism(60, 2).check(SimpleNamespace(covariates=X, response=y))
    quotes_nothing(caught)


@pytest.mark.parametrize("make", [ESTIMATORS["paths"], ESTIMATORS["kernel sums"]])
def test_a_frame_without_a_header_leaves_no_names(make):
    frame = pandas.DataFrame(records()[0])
    frame.columns = ["0.7712345", "0.5512345"]
    fitted = make().fit(frame, records()[1])
    assert b"0.7712345" not in pickle.dumps(fitted)
    assert not hasattr(fitted, "feature_names_in_")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X, y: (X, np.append(y, 0.0)),
        lambda X, y: (X, np.column_stack([y, y])),
        lambda X, y: (X[:, :1], y),
        lambda X, y: (X, y, np.arange(36)),
    ],
    ids=["longer y", "two columns", "one covariate", "units"],
)
@pytest.mark.parametrize("kind", [PosteriorSampler, KernelSum])
def test_a_private_number_of_records_is_in_no_error(kind, spoil):
    given = spoil(*records(37))
    if len(given) == 3 and kind is PosteriorSampler:
        pytest.skip("paths have no units")
    estimator = kind(UNIT, (-1, 1), scale=1.0, delta=1e-3, grid=4, neighbours="add-remove")
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator.fit(*given)
    error: BaseException | None = caught.value
    while error is not None:
        assert not re.findall(r"3[678]", str(error))
        error = error.__cause__ or error.__context__
