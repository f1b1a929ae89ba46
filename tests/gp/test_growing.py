"""A posterior that grows is the posterior of all its responses."""

import numpy as np
import pytest

from discretion.gp import RBF, DensePosterior, Exponential, SamplePaths
from discretion.gp.growing import GrowingPosterior

X = np.random.default_rng(0).uniform(size=(20, 2))
X[7] = X[3]
Y = np.random.default_rng(1).normal(size=20)
T = np.concatenate([np.random.default_rng(2).uniform(size=(6, 2)), X[:2]])


@pytest.mark.parametrize("kernel", [RBF(0.6), Exponential((0.3, 0.7))])
@pytest.mark.parametrize("portion", [1, 3, 20])
def test_it_is_the_dense_posterior(kernel, portion):
    growing, dense = GrowingPosterior(kernel, 0.4, 2, 20), DensePosterior(kernel, 0.4, X, Y)
    for start in range(0, 20, portion):
        growing.append(X[start : start + portion], Y[start : start + portion])
    np.testing.assert_allclose(growing.mean(T), dense.mean(T), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(growing.covariance(T), dense.covariance(T), rtol=1e-9, atol=1e-12)
    normal = np.random.default_rng(4).standard_normal((1, 8))
    paths = [SamplePaths(each, 1.0, 1e-6, lambda shape: normal).evaluate(T) for each in (growing, dense)]
    np.testing.assert_allclose(*paths, rtol=1e-6, atol=1e-8)


def test_it_begins_as_the_prior_and_refuses_what_does_not_fit():
    growing = GrowingPosterior(RBF(1.0), 0.5, 2, 3)
    np.testing.assert_allclose(growing.covariance(T), RBF(1.0)(T))
    growing.append(X[:2], Y[:2])
    before = growing.mean(T)
    for points, y in ((X[:1], [np.nan]), (X[:2], Y[:2]), (X[:1], Y[:2]), (X[:1, :1], Y[:1])):
        with pytest.raises(ValueError, match=r"finite|responses|coordinate"):
            growing.append(points, y)
    np.testing.assert_array_equal(growing.mean(T), before)
    with pytest.raises(ValueError, match="too small"):
        GrowingPosterior(RBF(1.0), 1e-9, 2, 1000)
