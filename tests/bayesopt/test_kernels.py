"""Derivatives of the kernels against finite differences, also where two points meet."""

import warnings

import numpy as np
import pytest

from discretion.bayesopt import Polynomial, RoughKernel
from discretion.bayesopt.kernels import Stationary, gradient_kernel
from discretion.gp import RBF, Exponential, Matern32, Matern52, RationalQuadratic

SCALES = (0.7, 1.3, 2.1)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", RoughKernel)
    KERNELS = [
        Stationary(RBF(SCALES)),
        Stationary(Matern52(SCALES)),
        Stationary(Matern32(SCALES)),
        Stationary(RationalQuadratic(SCALES, 1.7)),
        Polynomial(1, 0.5, SCALES),
        Polynomial(2, 1.0, SCALES),
        Polynomial(3, 0.8, SCALES),
    ]
NAMES = [repr(each) for each in KERNELS]
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
STEP = 1e-5


def difference(function, x):
    """Central differences of a function of a point, the derivative on the first axis; error of order STEP^4."""
    found = []
    for j in range(x.size):
        e = STEP * 50 * np.eye(x.size)[j]
        near, far = function(x + e) - function(x - e), function(x + 2 * e) - function(x - 2 * e)
        found.append((8 * near - far) / (12 * STEP * 50))
    return np.array(found)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_gradient(kernel):
    for x in X:
        found = difference(lambda p: kernel.value(p[None], Z)[0], x).T
        np.testing.assert_allclose(kernel.gradient(x, Z), found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_second_derivative_is_that_of_the_gradient(kernel):
    cross = kernel.cross(X, Z)
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            found = difference(lambda p, x=x: kernel.gradient(x, p[None])[0], z).T
            np.testing.assert_allclose(cross[i, j], found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_at_the_same_point_and_near_it(kernel):
    x = X[0]
    prior = kernel.prior(x)
    np.testing.assert_allclose(prior, prior.T, rtol=1e-14)
    assert np.linalg.eigvalsh(prior).min() > 0 or isinstance(kernel, Polynomial)
    for small in (1e-3, 1e-8, 1e-160, 5e-324, 0.0):
        near = kernel.cross(x[None], x[None] + small)[0, 0]
        assert np.isfinite(near).all()
        np.testing.assert_allclose(near, prior, rtol=20 * small + 1e-12, atol=20 * small * np.abs(prior).max())
        assert np.isfinite(kernel.gradient(x, x[None] + small)).all()
    # the variance of a difference quotient tends to the prior variance of the derivative
    e = 1e-4 * np.eye(3)
    for j in range(3):
        pair = np.vstack([x + e[j], x - e[j]])
        K = kernel.value(pair, pair)
        assert (K[0, 0] + K[1, 1] - 2 * K[0, 1]) / 4e-8 == pytest.approx(prior[j, j], rel=1e-3)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_contractions(kernel):
    W, weights = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 5))
    slow = np.einsum("ja,jab->jb", W, kernel.cross(X[:1], Z)[0])
    np.testing.assert_allclose(kernel.cross_product(X[0], Z, W), slow, rtol=1e-10, atol=1e-12)
    slow = np.array([weights[i] @ kernel.gradient(x, Z) for i, x in enumerate(X)])
    np.testing.assert_allclose(kernel.gradient_sum(X, Z, weights), slow, rtol=1e-9, atol=1e-11)


def test_polynomial_kernel_is_that_of_its_features():
    l, c = np.array(SCALES), 1.0
    x = Z / l
    cross = [np.sqrt(2) * x[:, i] * x[:, j] for i in range(3) for j in range(i + 1, 3)]
    features = np.column_stack([np.full(5, c), np.sqrt(2 * c) * x, x**2, *cross])
    np.testing.assert_allclose(features @ features.T, Polynomial(2, c, SCALES).value(Z, Z), rtol=1e-12)


def test_kernels_without_a_gradient_are_refused():
    with pytest.raises(ValueError, match="no gradient"):
        gradient_kernel(Exponential(1.0))
    with pytest.raises(ValueError, match="cannot be fitted"):
        gradient_kernel("fit")
    with pytest.warns(RoughKernel):
        gradient_kernel(Matern32(1.0))
    with pytest.raises(ValueError, match="degree"):
        Polynomial(0)
