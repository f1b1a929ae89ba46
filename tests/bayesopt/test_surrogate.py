"""The posterior of the gradient: its definition, the growing factor, and the bound of its bias."""

import numpy as np
import pytest

from discretion.bayesopt import Polynomial
from discretion.bayesopt.kernels import gradient_kernel
from discretion.bayesopt.surrogate import GradientPosterior
from discretion.gp import RBF, Matern52

RNG = np.random.default_rng(1)
KERNELS = [gradient_kernel(RBF((0.8, 1.2, 1.5))), gradient_kernel(Matern52(1.1)), Polynomial(2)]


def posterior(kernel, Z, nugget=1e-6, offset="none"):
    return GradientPosterior(kernel, Z.shape[1], nugget=nugget, offset=offset).append(Z)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_definition(kernel):
    Z, theta = RNG.normal(size=(7, 3)), RNG.normal(size=3)
    K, G, P = kernel.value(Z, Z) + 1e-2 * np.eye(7), kernel.gradient(theta, Z).T, kernel.prior(theta)
    found = posterior(kernel, Z, 1e-2).at(theta)
    np.testing.assert_allclose(found.map, G @ np.linalg.inv(K), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.covariance, P - G @ np.linalg.inv(K) @ G.T, rtol=1e-8, atol=1e-9)
    assert found.largest <= found.trace <= found.prior


@pytest.mark.parametrize("offset", ["trend", "mean", "none"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_appending_is_factoring_anew(kernel, offset):
    Z, theta = RNG.normal(size=(9, 3)), RNG.normal(size=3)
    whole = posterior(kernel, Z, 1e-4, offset).at(theta)
    grown = posterior(kernel, Z[:2], 1e-4, offset).append(Z[2:3]).append(Z[3:3]).append(Z[3:]).at(theta)
    np.testing.assert_allclose(grown.map, whole.map, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(grown.covariance, whole.covariance, rtol=1e-6, atol=1e-8)


def test_trend_is_the_limit_of_a_large_constant_variance():
    kernel, Z, theta = KERNELS[0], RNG.normal(size=(6, 3)), np.zeros(3)
    found = posterior(kernel, Z, 1e-3, "trend").at(theta)
    K = kernel.value(Z, Z) + 1e-3 * np.eye(6) + 1e7
    G = kernel.gradient(theta, Z).T
    np.testing.assert_allclose(found.map, G @ np.linalg.inv(K), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.covariance, kernel.prior(theta) - found.map @ G.T, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.map.sum(axis=1), 0.0, atol=1e-12)
    none, A1 = posterior(kernel, Z, 1e-3).at(theta), posterior(kernel, Z, 1e-3).at(theta).map.sum(axis=1)
    inverse = 1.0 / np.linalg.inv(kernel.value(Z, Z) + 1e-3 * np.eye(6)).sum()
    np.testing.assert_allclose(found.covariance - none.covariance, inverse * np.outer(A1, A1), rtol=1e-6, atol=1e-9)


def test_centred_losses_have_no_constant():
    found = posterior(KERNELS[0], RNG.normal(size=(6, 3)), 1e-3, "mean").at(np.zeros(3))
    np.testing.assert_allclose(found.map.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("offset", ["trend", "mean", "none"])
def test_bias_is_bounded_by_the_norm(offset):
    """||grad g - A g|| <= R sqrt(largest eigenvalue of C) for 300 functions, random and made to attain it."""
    worst = 0.0
    for trial in range(300):
        d = 1 + trial % 4
        kernel = gradient_kernel(RBF(1.0) if trial % 2 else Matern52(1.0))
        Z, theta = RNG.normal(size=(1 + trial % 9, d)) * 0.8, RNG.normal(size=d) * 0.3
        found = posterior(kernel, Z, 1e-9, offset).at(theta)
        centres, c = RNG.normal(size=(6, d)), RNG.normal(size=6)
        if trial % 3 == 0:  # a function made for this map: the worst direction
            v = np.linalg.eigh(found.covariance)[1][:, -1]
            centres, c = np.vstack([theta + 1e-4 * v, theta - 1e-4 * v, Z]), np.r_[5e3, -5e3, -found.map.T @ v]
        R = np.sqrt(max(c @ kernel.value(centres, centres) @ c, 0.0))
        bias = kernel.gradient(theta, centres).T @ c - found.map @ (kernel.value(Z, centres) @ c)
        worst = max(worst, np.linalg.norm(bias) / (R * np.sqrt(found.largest) + 1e-7 * R))
    assert 0.99 < worst <= 1.0 + 1e-6


def test_quadratics_are_known_exactly_after_enough_points():
    d = 3
    Z = RNG.normal(size=((d + 1) * (d + 2) // 2, d))
    M, b, theta = RNG.normal(size=(d, d)), RNG.normal(size=d), RNG.normal(size=d)
    values = np.einsum("ij,jk,ik->i", Z, M, Z) + Z @ b + 2.0
    found = posterior(Polynomial(2), Z, 1e-9).at(theta)
    np.testing.assert_allclose(found.map @ values, (M + M.T) @ theta + b, rtol=1e-5)
    assert found.trace < 1e-5 * found.prior


def test_singular_covariances_raise_the_nugget_by_rule():
    Z = np.zeros((4, 2))
    found = GradientPosterior(KERNELS[1], 2, nugget=1e-18, offset="none").append(Z)
    assert 1e-18 < found.nugget < 1e-2
    assert np.isfinite(found.at(np.ones(2)).map).all()


def test_no_locations_know_nothing():
    found = GradientPosterior(KERNELS[1], 2, nugget=1e-6).at(np.zeros(2))
    assert found.map.shape == (2, 0)
    assert found.trace == found.prior
