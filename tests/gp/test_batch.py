import numpy as np
import pytest

from discretion.gp import RBF, DensePosterior, Exponential, Matern52
from discretion.gp.batch import posteriors_at


@pytest.mark.parametrize("kernel", [Exponential(0.7), RBF(0.4), Matern52(0.4)])
@pytest.mark.parametrize("ridge", [0.05, 1.0])
def test_each_data_set_has_the_dense_posterior(kernel, ridge):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (40, 8)), rng.normal(size=(40, 8))
    X[:5, 0], X[5:9, :3] = 0.5, 0.5  # records at the point itself, once or more
    X[9], X[10], X[11] = X[9] * 0.4, 0.6 + X[10] * 0.4, 0.25  # all left, all right, all equal
    mean, variance = posteriors_at(kernel, ridge, X, y, 0.5)
    for b in range(40):
        dense = DensePosterior(kernel, ridge, X[b][:, None], y[b])
        assert mean[b] == pytest.approx(dense.mean([[0.5]])[0], abs=1e-10)
        assert variance[b] == pytest.approx(dense.covariance([[0.5]])[0, 0], rel=1e-9)


def test_the_plane_and_no_records():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (6, 5, 2)), rng.normal(size=(6, 5))
    kernel = Exponential((0.5, 2.0))
    mean, variance = posteriors_at(kernel, 0.3, X, y, (0.2, 0.7))
    dense = DensePosterior(kernel, 0.3, X[3], y[3])
    assert mean[3] == pytest.approx(dense.mean([[0.2, 0.7]])[0], abs=1e-12)
    assert variance[3] == pytest.approx(dense.covariance([[0.2, 0.7]])[0, 0], rel=1e-10)
    mean, variance = posteriors_at(Exponential(1.0), 0.3, np.empty((3, 0)), np.empty((3, 0)), 0.5)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(variance, 1.0)


@pytest.mark.parametrize(
    "change", [{"y": np.zeros((2, 4))}, {"X": np.full((2, 3), np.nan)}, {"point": (0.1, 0.2)}, {"ridge": 0.0}]
)
def test_bad_shapes_are_refused(change):
    arguments = {"X": np.zeros((2, 3)), "y": np.zeros((2, 3)), "point": 0.5, "ridge": 1.0} | change
    with pytest.raises(ValueError, match=r"shape|finite"):
        posteriors_at(Exponential(1.0), **arguments)
