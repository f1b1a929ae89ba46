import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.posterior import divergence as dv
from discretion.posterior import sensitivity as sn


def exact_51(alpha, tau, shift):
    """(5.1) with 60 digits."""
    with mpmath.workdps(60):
        a, t, d = mpmath.mpf(alpha), mpmath.mpf(tau), mpmath.mpf(shift)
        covariance = -mpmath.log(1 - a * (a - 1) * t**2 / (1 + t)) / (2 * (a - 1))
        return covariance + a / 2 * (1 + t) / (1 - (a - 1) * t) * d**2


@pytest.mark.parametrize("tau", [1e-8, 1e-3, 0.5, 20.0, 1e6])
@pytest.mark.parametrize("closeness", [1e-9, 1e-3, 0.5, 1 - 1e-6])
def test_path_divergence_against_many_digits(tau, closeness):
    excess = closeness / tau
    with mpmath.workdps(60):
        wanted = exact_51(1 + mpmath.mpf(excess), tau, 0.3)
    r = 1.0 / math.sqrt(tau) if tau > 1e-7 else 1e4
    v = tau * r**2
    found = float(dv.two_norm_route(v, r, 0.3, 1.0).renyi(excess))
    assert found >= float(wanted) * (1 - 1e-15)
    assert found == pytest.approx(float(wanted), rel=1e-12 + 1e-13 / (1 - closeness))


def test_order_one_is_the_limit():
    v, r = 0.7, 0.8
    tau = v / r**2
    assert dv.covariance_term(0.0, v, r) == pytest.approx(tau**2 / (2 * (1 + tau)), rel=1e-12)
    assert dv.mean_term(0.0, v, r, 0.4, 2.0) == pytest.approx(0.5 * (1 + tau) * 0.04, rel=1e-12)
    assert dv.covariance_term(1e-12, v, r) == pytest.approx(float(dv.covariance_term(0.0, v, r)), rel=1e-10)


def test_orders_outside_the_range():
    v, r = 0.7, 0.8
    edge = r**2 / v
    for excess in (edge, edge * (1 + 1e-15), edge * (1 - 1e-15), 2 * edge, math.inf):
        assert dv.covariance_term(excess, v, r) == math.inf
        assert dv.mean_term(excess, v, r, 1.0, 1.0) == math.inf
        assert dv.prior_noise_route(v, r, 1.0, 1.0, 0.0).renyi(excess) == math.inf
    with pytest.raises(ValueError, match="excess"):
        dv.covariance_term(-0.1, v, r)
    with pytest.raises(ValueError, match="excess"):
        dv.covariance_term(math.nan, v, r)


def test_overflow_is_infinite_never_zero():
    assert dv.mean_term(0.1, 1.0, 1.0, 1e200, 1e-200) == math.inf
    assert dv.mean_term(0.1, 1.0, 1.0, math.inf, math.inf) == math.inf
    assert dv.joint_route(1.0, 1.0, 1.0, math.inf, 1.0).renyi(0.1) == math.inf
    assert dv.prior_noise_route(1.0, 1.0, math.inf, 1.0, 1.0).renyi(0.1) == math.inf
    assert dv.covariance_term(0.1, 1.0, 1.0) > 0.0


@given(
    v=st.floats(1e-3, 1.0),
    r=st.floats(0.03, 100.0),
    closeness=st.floats(1e-6, 1 - 1e-6),
    delta=st.floats(1e-4, 10.0),
    spread=st.floats(1e-4, 10.0),
    scale=st.floats(0.01, 100.0),
    eta=st.floats(0.0, 100.0),
)
def test_refinements_never_exceed_the_theorem(v, r, closeness, delta, spread, scale, eta):
    excess = closeness * r**2 / v
    theorem = dv.two_norm_route(v, r, delta, scale)
    plain = float(theorem.renyi(excess))
    assert dv.two_norm_route(v, r, delta, scale, spread).renyi(excess) <= plain * (1 + 1e-12)
    assert dv.prior_noise_route(v, r, delta, scale, 0.0).renyi(excess) == pytest.approx(plain, rel=1e-12)
    noisy = dv.prior_noise_route(v, r, delta, scale, eta)
    assert noisy.renyi(excess) <= plain * (1 + 1e-9)
    assert noisy.supremum >= theorem.supremum * (1 - 1e-12)
    # the published form of the mean term with prior noise
    q = r * r
    mean = 0.5 * (1 + excess) * (v + q) / (scale**2 * (q - excess * v) + eta**2 * (v + q)) * delta**2
    assert dv.mean_part(excess, noisy) == pytest.approx(mean, rel=1e-6)


def test_limits_of_the_scale():
    v, r, excess = 0.9, 1.0, 0.4
    covariance = float(dv.covariance_term(excess, v, r))
    assert dv.two_norm_route(v, r, 3.0, math.inf).renyi(excess) == pytest.approx(covariance, rel=1e-13)
    assert dv.prior_noise_route(v, r, 3.0, math.inf, 2.0).renyi(excess) == pytest.approx(covariance, rel=1e-13)
    quiet = dv.prior_noise_route(v, r, 3.0, 1.0, 1e9)
    assert quiet.tau < 1e-17
    assert quiet.renyi(excess) < 1e-16


def test_joint_term_is_the_two_norm_term_where_the_ridge_is_small():
    """For V >= 4 r^2 on the line it equals the sharper form 4M^2 [Phi + alpha min(V Phi, 1)/(r^2 -
    (alpha-1) V)].
    """
    v, r, scale = 1.0, 0.4, 0.7
    excess = np.array([0.01, 0.05, 0.1])
    order = 1 + excess
    sharp = 4 * order / (2 * scale**2) * (1 / (4 * r**2) + order / (r**2 - excess * v))
    assert dv.joint_mean_term(excess, v, r, 1.0, 1.0, scale) == pytest.approx(sharp, rel=1e-9)


@given(
    n=st.integers(1, 10_000),
    r=st.floats(0.03, 1000.0),
    kappa=st.floats(0.0, 0.999),
    closeness=st.floats(1e-4, 0.999),
)
def test_lower_bound_is_below_the_upper(n, r, kappa, closeness):
    v = float(sn.posterior_variance_bound(n, r, kappa))
    excess = closeness * r**2 / v
    low, high = dv.covariance_lower_bound(excess, n, r, kappa), dv.covariance_term(excess, v, r)
    assert 0.0 <= low <= high * (1 + 1e-9)


def test_variance_pair_divergence_keeps_its_digits():
    for more in (1e-9, 1e-5, 0.3, 5.0):
        for excess in (1e-6, 0.1, 3.0):
            if excess * more >= 1:
                continue
            with mpmath.workdps(60):
                x, e = 1 + mpmath.mpf(more), mpmath.mpf(excess)
                wanted = float(-mpmath.log(x) / 2 - mpmath.log(1 + e - e * x) / (2 * e))
            assert dv.variance_pair_divergence(excess, 1 + more) == pytest.approx(wanted, rel=1e-6)
    assert dv.variance_pair_divergence(1.0, 2.0) == math.inf
    assert dv.variance_pair_divergence(2.0, 1.0) == 0.0
    r = 300.0
    assert dv.covariance_lower_bound(0.5, 10, r, 0.0) == pytest.approx(1.5 / (4 * r**4), rel=1e-4)


def test_public_covariates():
    assert dv.response_only_mu(1.0, 2.0, 3.0, 1.5) == pytest.approx(3.0 * math.sqrt(0.2) / 6.0)
    assert dv.response_only_mu(1.0, 2.0, 3.0, 1.5, 4.0) == pytest.approx(3.0 * math.sqrt(0.2) / 10.0)
    assert dv.response_only_mu(1.0, 2.0, math.inf) == 0.0
    assert dv.thompson_rho([0.1], 1.0, 1.0) == 0.0  # the first round reads no record
    assert dv.thompson_rho([1.0, 2.0, 4.0], 2.0, 3.0) == pytest.approx(2 * 9 / 5 / 4 * (1 / 4 + 1 / 16))
    assert dv.thompson_rho([1.0, 2.0], 2.0, 3.0, leverage=0.1) == pytest.approx(2 * 9 * 0.1 / 4 / 4)
    epsilon, order = dv.concentrated_epsilon(0.0, 1e-5)
    assert (epsilon, order) == (0.0, math.inf)
    with pytest.raises(ValueError, match="delta"):
        dv.concentrated_epsilon(1.0, 1.0)
    with pytest.raises(ValueError, match="confidence"):
        dv.chowdhury_gopalan_scale(1.0, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="one-dimensional"):
        dv.thompson_rho(np.ones((2, 2)), 1.0, 1.0)
