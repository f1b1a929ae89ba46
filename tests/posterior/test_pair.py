import math

import mpmath
import numpy as np
import pytest

from benchmarks.reference.posterior import published_generic_sensitivity
from discretion.gp.kernels import RBF, Diagonal, Exponential, Matern52
from discretion.posterior import divergence as dv
from discretion.posterior import sensitivity as sn
from discretion.posterior.pair import exact_divergence, gaussian_renyi, gram, pair_from_gram, release_law


def test_gaussian_renyi_in_one_dimension():
    """Against the integral of p^alpha q^(1-alpha)."""
    m1, s1, m2, s2, alpha = 0.3, 1.2, -0.4, 1.7, 1.8

    def density(x, m, s):
        return mpmath.exp(-((x - m) ** 2) / (2 * s**2)) / (s * mpmath.sqrt(2 * mpmath.pi))

    integral = mpmath.quad(lambda x: density(x, m1, s1) ** alpha * density(x, m2, s2) ** (1 - alpha), [-20, 0, 20])
    found = gaussian_renyi(
        np.array([m1]), np.array([[s1**2]]), np.array([m2]), np.array([[s2**2]]), np.float64(alpha - 1)
    )
    assert found == pytest.approx(float(mpmath.log(integral) / (alpha - 1)), rel=1e-10)
    wide = gaussian_renyi(np.zeros(1), np.array([[4.0]]), np.zeros(1), np.array([[1.0]]), np.float64(0.5))
    assert wide == math.inf


@pytest.mark.parametrize("kernel", [Exponential(0.4), Matern52(0.3), RBF((0.2, 0.5)), Diagonal(1.0)])
@pytest.mark.parametrize("order", [1.0001, 1.4, 2.5])
def test_closed_form_equals_the_textbook(kernel, order):
    rng = np.random.default_rng(3)
    for n in (1, 2, 6):
        X, y = rng.uniform(size=(n - 1, 2)), rng.uniform(-1, 1, n - 1)
        record, other = (rng.uniform(size=2), 0.9), (rng.uniform(size=2), -0.6)
        found = exact_divergence(kernel, X, y, record, other, ridge=1.5, scale=0.4, order=order)
        test = np.vstack([record[0], other[0], rng.uniform(size=(3, 2))])
        laws = [
            release_law(kernel, np.vstack([X, x]), np.append(y, response), test, ridge=1.5, scale=0.4)
            for x, response in (record, other)
        ]
        assert gaussian_renyi(*laws[0], *laws[1], np.float64(order - 1)) == pytest.approx(found, rel=1e-9)
        fewer = [(mean[1:], covariance[1:, 1:]) for mean, covariance in laws]
        assert gaussian_renyi(*fewer[0], *fewer[1], np.float64(order - 1)) <= found * (1 + 1e-9)


def test_equal_covariates():
    """x = x': no covariance part, and alpha (y - y')^2 v / (2 sigma^2 r^2 (r^2 + v))."""
    r, sigma, order = 0.8, 0.5, 1.3
    X, x = np.array([[0.1], [0.5]]), np.array([0.3])
    pair = pair_from_gram(
        gram(Exponential(0.4), np.vstack([X, x, x])), np.array([0.3, -0.2]), np.array(0.7), np.array(-1.0), r
    )
    v = float(pair.v)
    assert pair.covariance_divergence(order - 1) == pytest.approx(0.0, abs=1e-14)
    wanted = order * 1.7**2 * v / (2 * sigma**2 * r**2 * (r**2 + v))
    assert pair.mean_divergence(order - 1, sigma) == pytest.approx(wanted, rel=1e-12)


def test_beyond_the_pole_of_a_pair():
    far = ([0.0], 1.0), ([50.0], -1.0)
    pole = 1 + 0.25  # n = 1: v = 1, tau = 4
    args = (Exponential(1.0), np.empty((0, 1)), [], *far)
    assert exact_divergence(*args, ridge=0.5, scale=1.0, order=pole - 1e-3) < math.inf
    assert exact_divergence(*args, ridge=0.5, scale=1.0, order=pole + 1e-3) == math.inf


def test_batches_equal_single_pairs():
    rng = np.random.default_rng(5)
    X, y = rng.uniform(size=(4, 6, 2)), rng.uniform(-1, 1, (4, 6))
    r = np.array([0.3, 0.7, 1.5, 9.0])
    pairs = pair_from_gram(gram(Matern52(0.3), X), y[:, :4], y[:, 4], y[:, 5], r)
    together = pairs.divergence(0.05, np.full(4, 0.3))
    for i in range(4):
        alone = exact_divergence(
            Matern52(0.3),
            X[i, :4],
            y[i, :4],
            (X[i, 4], y[i, 4]),
            (X[i, 5], y[i, 5]),
            ridge=r[i],
            scale=0.3,
            order=1.05,
        )
        assert together[i] == pytest.approx(alone, rel=1e-12)


def test_published_generic_sensitivity_is_unsound():
    """Two records at one corner, opposite responses, a third at the other corner: the published figure is
    exceeded.
    """
    r, sigma = 10.0, 0.02
    kernel = Exponential(0.2)
    points = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    pair = pair_from_gram(gram(kernel, points), np.array([1.0]), np.array(1.0), np.array(-1.0), r)
    v = float(sn.posterior_variance_bound(2, r, math.exp(-math.sqrt(2.0) / 0.2)))
    published = published_generic_sensitivity(2, v, r)
    assert pair.mean_distance == pytest.approx(0.0198019801287, rel=1e-10)
    assert published == pytest.approx(0.0154023258729, rel=1e-10)
    assert pair.mean_distance > published
    exact = exact_divergence(
        kernel, points[:1], [1.0], (points[1], 1.0), (points[2], -1.0), ridge=r, scale=sigma, order=2.0
    )
    assert exact == pytest.approx(0.9900990029, rel=1e-9)
    assert dv.two_norm_route(v, r, published, sigma).renyi(1.0) < 0.61 < exact
    ours = float(dv.two_norm_route(v, r, sn.mean_sensitivity_operator(2, v, r), sigma).renyi(1.0))
    assert ours == pytest.approx(1.10270927248, rel=1e-10)
    assert pair.mean_distance <= sn.mean_sensitivity_generic(2, v, r)
    assert exact <= ours


def test_published_line_sensitivity_is_not_a_bound():
    """On the line 2 M sqrt(Phi) is exceeded by a factor near sqrt(2); 2 sqrt(2) M sqrt(Phi) is not."""
    points = np.array([[0.0], [1.0], [0.0], [1.0]])
    pair = pair_from_gram(gram(Exponential(0.1), points), np.array([-1.0, 1.0]), np.array(1.0), np.array(-1.0), 0.1)
    v = float(sn.posterior_variance_bound(3, 0.1, math.exp(-10.0)))
    assert pair.mean_distance == pytest.approx(14.0719509102, rel=1e-11)
    assert 2.0 * math.sqrt(float(sn.phi(v, 0.1))) == pytest.approx(10.0)
    ours = float(sn.mean_sensitivity_exponential_1d(v, 0.1))
    assert ours == pytest.approx(14.1421356237, rel=1e-11)
    assert 0.99 * ours < pair.mean_distance <= ours


def test_diagonal_kernel_closed_form():
    r = 0.2
    for copies in (1, 3):
        points = np.repeat([[0.0], [1.0]], copies, axis=0)
        y = np.repeat([-1.0, 1.0], copies)
        pair = pair_from_gram(
            gram(Diagonal(1.0), np.vstack([points, [[0.0], [1.0]]])), y, np.array(1.0), np.array(-1.0), r
        )
        wanted = math.sqrt(2) * (2 * copies + r**2) / (r * math.sqrt(copies + r**2) * (copies + r**2 + 1))
        assert pair.mean_distance == pytest.approx(wanted, rel=1e-12)
        assert pair.mean_distance <= sn.mean_sensitivity_diagonal(r)


def test_refuses_orders_and_parameters_out_of_range():
    for order, ridge, scale in ((1.0, 1.0, 1.0), (2.0, 0.0, 1.0), (2.0, 1.0, math.nan)):
        with pytest.raises(ValueError, match="order must exceed 1"):
            exact_divergence(
                RBF(1.0),
                np.empty((0, 1)),
                [],
                ([0.0], 1.0),
                ([1.0], 1.0),
                ridge=ridge,
                scale=scale,
                order=order,
            )
