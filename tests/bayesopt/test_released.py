"""The Gaussian process of released gradients."""

import numpy as np
import pytest

from discretion.bayesopt import Polynomial, ReleasedGradients
from discretion.bayesopt.kernels import gradient_kernel
from discretion.gp import RBF, Matern52

RNG = np.random.default_rng(4)
BOX = (-3 * np.ones(2), 3 * np.ones(2))


def sample(length, T=60, noise=0.05, d=2):
    """Gradients of a draw of an RBF process (random Fourier features), with noise."""
    W, phase, a = RNG.normal(size=(4000, d)) / length, RNG.uniform(0, 2 * np.pi, 4000), RNG.normal(size=4000)
    thetas = RNG.uniform(-1.5, 1.5, (T, d))

    def value(X):
        return np.cos(X @ W.T + phase) @ a * np.sqrt(2 / 4000)

    def gradient(X):
        return -(np.sin(X @ W.T + phase) * a) @ W * np.sqrt(2 / 4000)

    gradients = gradient(thetas) + noise * RNG.normal(size=(T, d))
    return ReleasedGradients(thetas, gradients, np.full(T, noise), gradient_kernel(RBF(1.0))), value, gradient


@pytest.mark.parametrize(
    "kernel", [gradient_kernel(RBF((0.8, 1.3))), gradient_kernel(Matern52(1.1)), Polynomial(2)], ids=repr
)
def test_the_gradient_is_that_of_the_value(kernel):
    found = ReleasedGradients(RNG.normal(size=(4, 2)), RNG.normal(size=(4, 2)), np.full(4, 0.1), kernel, 1.7)
    x = RNG.normal(size=2)
    for j in range(2):
        e = 1e-5 * np.eye(2)[j]
        assert (found.value(x + e) - found.value(x - e)) / 2e-5 == pytest.approx(
            found.gradient(x)[j], rel=1e-5, abs=1e-8
        )


def test_the_posterior_mean_by_definition():
    found, _, _ = sample(1.0, T=5)
    K = np.block([[found.kernel.cross(a[None], b[None])[0, 0] for b in found.thetas] for a in found.thetas])
    K = K + 0.05**2 * np.eye(10)
    np.testing.assert_allclose(
        found.gradient(found.thetas[2]),
        (K - 0.05**2 * np.eye(10))[4:6] @ np.linalg.solve(K, found.gradients.ravel()),
        rtol=1e-6,
    )
    s = found.gradients.ravel()
    expected = -0.5 * (s @ np.linalg.solve(K, s) + np.linalg.slogdet(K)[1])
    assert found.log_likelihood == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0])
def test_the_length_scale_is_learned(length):
    given = sample(length)[0]
    found = given.fitted()
    assert found.kernel.kernel.length_scale == pytest.approx(length, rel=0.25)
    assert found.log_likelihood >= given.scaled(length, 1.0).log_likelihood - 0.5
    np.testing.assert_array_equal(found.fitted().gradient(np.zeros(2)), found.fitted().gradient(np.zeros(2)))


def test_smoothing_lowers_the_error():
    found, _, gradient = sample(1.5, T=80, noise=0.5)
    fitted = found.fitted()
    smooth = np.array([fitted.gradient(x) for x in found.thetas])
    exact = gradient(found.thetas)
    assert np.linalg.norm(smooth - exact) < 0.6 * np.linalg.norm(found.gradients - exact)


def test_jumps_go_where_the_function_is_low():
    found, value, _ = sample(1.0, T=80, noise=0.02)
    x = found.fitted().minimum((-1.5 * np.ones(2), 1.5 * np.ones(2)))
    assert value(x[None])[0] < np.quantile(value(RNG.uniform(-1.5, 1.5, (2000, 2))), 0.02)
