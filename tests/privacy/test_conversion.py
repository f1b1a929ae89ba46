import math
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from discretion.privacy.conversion import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    renyi_to_delta,
    renyi_to_epsilon,
    round_up,
)


def improved(r, alpha, delta):
    return r + math.log((alpha - 1) / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)


def posterior_curve(tau, distance):
    """Renyi bound of one posterior sample path; `distance` is the mean sensitivity over the scale."""

    def curve(x):
        a = 1 + x
        covariance = -np.log1p(-a * x * tau**2 / (1 + tau)) / (2 * x)
        return covariance + a / 2 * (1 + tau) / (1 - x * tau) * distance**2

    return curve


def exact_gaussian_delta(mu, epsilon):
    with mp.workdps(120):
        mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
        low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        return (mp.erfc(low / mp.sqrt(2)) - mp.exp(epsilon) * mp.erfc(high / mp.sqrt(2))) / 2


# --- Renyi to epsilon


def test_reference_values_of_the_formula():
    # A constant bound up to an order is best used at that order.
    for bound, order, delta, expected in [
        (0.5, 8, 1e-5, 1.714109167845533),
        (10 * 0.05, 20, 1e-6, 1.018168720581412),
        (0.01, 2, 0.4, -0.4600036292457356),
    ]:
        assert improved(bound, order, delta) == pytest.approx(expected, rel=1e-12)
        epsilon, excess = renyi_to_epsilon(lambda x, bound=bound: np.full(x.shape, bound), order - 1, delta)
        assert epsilon == pytest.approx(max(expected, 0), rel=1e-7)
        assert epsilon >= expected
        assert excess < order - 1
    classical, _ = renyi_to_epsilon(lambda x: np.full(x.shape, 0.5), 19.0, 1e-6, formula="mironov2017")
    assert classical == pytest.approx(1.227132134629699, rel=1e-7)


@pytest.mark.parametrize(
    ("ridge", "expected"),
    [(0.2, 2569.4), (0.3, 713.13), (0.5, 165.55), (1, 31.046), (2, 8.2130), (5, 2.09495)],
)
def test_orders_are_continuous_however_short_their_range(ridge, expected):
    tau = 0.9 / ridge**2
    epsilon, excess = renyi_to_epsilon(posterior_curve(tau, 2 / ridge), 1 / tau, 1e-5)
    assert epsilon == pytest.approx(expected, rel=1e-3)
    assert 0 < excess < 1 / tau


def test_improved_and_classical_conversion_by_name():
    n, delta = 10, 10**-1.1
    tau = 1 - math.exp(-2 * math.sqrt(2)) * (n - 1) / n
    distance = 1 + math.sqrt(n - 1) / 2

    def script(x):
        a = 1 + x
        first = (a * np.log1p(tau) - np.log1p(a * tau)) / (2 * x)
        second = -(np.log1p(-x * tau) + x * np.log1p(tau)) / (2 * x)
        return 2 * np.maximum(first, second) + a / 2 * (1 + tau) / (1 - x * tau) * distance**2

    best, _ = renyi_to_epsilon(posterior_curve(tau, distance), 1 / tau, delta)
    old, _ = renyi_to_epsilon(script, 1 / tau, delta, formula="mironov2017")
    assert best == pytest.approx(17.472, abs=1e-3)
    assert old == pytest.approx(19.898, abs=1e-3)
    with pytest.raises(ValueError, match="formula"):
        renyi_to_epsilon(script, 1 / tau, delta, formula="else")  # pyright: ignore[reportArgumentType]


def test_reference_values_of_posterior_paths():
    # n = 10, least kernel value 1/e, ridge 1, scale 2; one-dimensional exponential kernel.
    tau = 0.8781982450870486
    phi = 0.2489486090387572

    def covariance(x):
        return -np.log1p(-(1 + x) * x * tau**2 / (1 + tau)) / (2 * x)

    def one(x):
        return covariance(x) + 8 * (1 + x) / 8 * (phi + (1 + x) * min(tau * phi, 0.5) / (1 - x * tau))

    epsilon, excess = renyi_to_epsilon(one, 1 / tau, 1e-3)
    assert epsilon == pytest.approx(10.47218366479518, rel=1e-9)
    assert 1 + excess == pytest.approx(1.788403800, rel=1e-6)
    assert renyi_to_epsilon(lambda x: 10 * one(x), 1 / tau, 1e-3)[0] == pytest.approx(27.99114114543415, rel=1e-9)
    epsilon, excess = renyi_to_epsilon(covariance, 1 / tau, 1e-3)
    assert epsilon == pytest.approx(6.238344900007118, rel=1e-9)
    assert 1 + excess == pytest.approx(2.067824848, rel=1e-6)
    # n = 100, least kernel value sqrt(0.1), ridge 5, scale 1.
    tau = 0.03680645161290323
    for distance, expected, order in [
        (0.398997487421324, 1.418856447639296, 6.940139407),
        (0.144659539912147, 0.5417216112774956, 12.35434109),
        (0.0354998288790019, 0.2157285799714554, 20.46923553),
    ]:
        epsilon, excess = renyi_to_epsilon(posterior_curve(tau, distance), 1 / tau, 1e-3)
        assert epsilon == pytest.approx(expected, rel=1e-9)
        assert 1 + excess == pytest.approx(order, rel=1e-5)


@given(
    log_mu=st.floats(-6, 3),
    log_supremum=st.floats(-6, 6),
    log_delta=st.floats(-30, -0.05),
    pole=st.floats(0, 3),
)
def test_the_search_finds_the_minimum(log_mu, log_supremum, log_delta, pole):
    mu, supremum, delta = 10**log_mu, 10**log_supremum, 10**log_delta

    def curve(x):
        return (1 + x) * mu**2 / 2 / (1 - x / supremum) ** pole

    epsilon, _ = renyi_to_epsilon(curve, supremum, delta)
    t = np.linspace(-20 - max(math.log(supremum), 0), 18, 4000)
    x = supremum / (1 + np.exp(-t))
    brute = curve(x) - np.log1p(1 / x) - (math.log(delta) + np.log1p(x)) / x
    assert epsilon <= max(brute.min(), 0) * (1 + 1e-9) + 1e-12


def test_accuracy_of_the_optimum_against_many_digits():
    for mu, delta in [(1.0, 1e-5), (0.01, 1e-10), (30.0, 0.3)]:
        with mp.workdps(40):
            # Stationary point of mu^2/2 (1+x) - log(1+1/x) - (log delta + log(1+x))/x.
            def cost(x, mu=mu, delta=delta):
                return mp.mpf(mu) ** 2 / 2 * (1 + x) - mp.log1p(1 / x) - (mp.log(delta) + mp.log1p(x)) / x

            start = math.sqrt(2 * math.log(1 / delta)) / mu
            slope = lambda x, cost=cost: mp.diff(cost, x)  # noqa: E731
            best = cost(mp.findroot(slope, (start / 4, start * 4), solver="anderson"))
        epsilon, _ = renyi_to_epsilon(lambda x, mu=mu: (1 + x) * mu**2 / 2, np.inf, delta)
        assert 0 <= (mp.mpf(float(epsilon)) - best) / best < 1e-10


def test_kinks_and_steps():
    # A minimum and a maximum of curves, a curve with a finite value at its end, a staircase.
    cases = [
        (lambda x: np.minimum(3.0, (1 + x) * 2), np.inf, 1e-6),
        (lambda x: np.maximum(0.3 * (1 + x), 1 + 0.01 * (1 + x)), np.inf, 1e-6),
        (lambda x: 0.1 * (1 + x), 2.0, 1e-6),
        (lambda x: np.floor(1 + x) / 4, 1e3, 0.02),
    ]
    x = np.geomspace(1e-3, 1e6, 400_000)
    for curve, supremum, loss in cases:
        epsilon, _ = renyi_to_epsilon(curve, supremum, 1e-6)
        brute = np.min((curve(x) - np.log1p(1 / x) - (math.log(1e-6) + np.log1p(x)) / x)[x < supremum])
        assert brute * (1 - 1e-3) <= epsilon <= brute * (1 + loss)


def test_a_batch_equals_its_parts_and_mixes_bounded_with_unbounded():
    mu = np.array([[0.3, 1.0, 4.0], [0.1, 2.0, 9.0]])
    supremum = np.array([[np.inf, 2.0, 0.1], [50.0, np.inf, np.inf]])
    delta = np.array([1e-3, 1e-5, 1e-9])

    def curve(x):
        return (1 + x) * mu**2 / 2 / (1 - x / supremum)

    epsilon, excess = renyi_to_epsilon(curve, supremum, delta)
    assert epsilon.shape == excess.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        alone = renyi_to_epsilon(
            lambda x, i=i, j=j: (1 + x) * mu[i, j] ** 2 / 2 / (1 - x / supremum[i, j]),
            supremum[i, j],
            delta[j],
        )
        assert epsilon[i, j] == pytest.approx(float(alone[0]), rel=1e-12)
    back, _ = renyi_to_delta(curve, supremum, epsilon)
    np.testing.assert_allclose(back, np.broadcast_to(delta, (2, 3)), rtol=1e-9)
    assert np.all(back <= delta * (1 + 1e-9))


def test_ten_thousand_problems_in_a_second_and_a_bounded_number_of_evaluations():
    rng = np.random.default_rng(1)
    tau, distance = 10 ** rng.uniform(-2, 1, 10_000), 10 ** rng.uniform(-2, 1, 10_000)
    curve, evaluations = posterior_curve(tau, distance), 0

    def counted(x):
        nonlocal evaluations
        evaluations += len(x)
        return curve(x)

    start = time.process_time()
    epsilon, _ = renyi_to_epsilon(counted, 1 / tau, 1e-5)
    assert time.process_time() - start < 4  # measured: 0.15
    assert evaluations <= 150
    assert np.all(np.isfinite(epsilon))


# --- Failing closed


def test_nan_is_infinite_never_zero():
    assert renyi_to_epsilon(lambda x: x * np.nan, 1.0, 1e-5)[0] == np.inf
    assert renyi_to_epsilon(lambda x: x * np.nan, np.inf, 1e-5)[0] == np.inf
    assert renyi_to_delta(lambda x: x * np.nan, np.inf, 1.0)[0] == 1
    some = renyi_to_epsilon(lambda x: np.where((x > 3) & (x < 4), np.nan, (1 + x) / 2), np.inf, 1e-5)[0]
    whole = renyi_to_epsilon(lambda x: (1 + x) / 2, np.inf, 1e-5)[0]
    assert some >= whole * (1 - 1e-14)  # the two searches meet at the same order up to its last bits
    assert whole > 4
    batch = renyi_to_epsilon(lambda x: (1 + x) * np.array([np.nan, 0.5]), np.array([1.0, np.inf]), 1e-5)[0]
    assert batch[0] == np.inf
    assert batch[1] == pytest.approx(4.728, abs=1e-3)


def test_an_infinite_order_is_used_only_where_its_value_is_finite():
    gaussian = lambda x: (1 + x) * 50.0  # noqa: E731
    with_limit = renyi_to_epsilon(gaussian, np.inf, 1e-5)[0]
    assert 0 < with_limit < np.inf
    assert renyi_to_epsilon(lambda x: np.where(np.isinf(x), np.inf, np.inf), np.inf, 1e-5)[0] == np.inf
    bounded = lambda x: 0.7 * np.ones_like(x)  # noqa: E731
    epsilon, excess = renyi_to_epsilon(bounded, np.inf, 0.0)
    assert 0.7 <= epsilon <= 0.7 * (1 + 1e-14)
    assert excess == np.inf
    assert renyi_to_delta(bounded, np.inf, 0.7)[0] == 0
    assert renyi_to_delta(bounded, np.inf, 0.69)[0] > 0


@pytest.mark.parametrize("delta", [0.0, 1e-300, 1 - 1e-12])
def test_extreme_deltas_return_at_once(delta):
    start = time.process_time()
    for curve, supremum in [(lambda x: (1 + x) / 2, np.inf), (posterior_curve(0.5, 1.0), 2.0)]:
        epsilon, _ = renyi_to_epsilon(curve, supremum, delta)
        assert epsilon == np.inf if delta == 0 else 0 <= epsilon < 2000
        assert (epsilon == 0) == (delta > 0.5)
    gaussian = gaussian_epsilon(1.0, delta)
    assert gaussian == np.inf if delta == 0 else 0 <= gaussian < 50
    assert time.process_time() - start < 1


def test_bad_arguments_are_refused_in_words():
    flat = np.ones_like
    for delta in (-1e-9, 1.0, 2.0, np.nan):
        with pytest.raises(ValueError, match="delta"):
            renyi_to_epsilon(flat, 1.0, delta)
        with pytest.raises(ValueError, match="delta"):
            gaussian_epsilon(1.0, delta)
        with pytest.raises(ValueError, match="delta"):
            gaussian_mu(1.0, delta)
    for supremum in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="supremum"):
            renyi_to_epsilon(flat, supremum, 1e-5)
    for epsilon in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="epsilon"):
            renyi_to_delta(flat, 1.0, epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            gaussian_delta(1.0, epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            gaussian_mu(epsilon, 1e-5)
    for mu in (-1.0, np.nan):
        with pytest.raises(ValueError, match="mu"):
            gaussian_delta(mu, 1.0)
    with pytest.raises(ValueError, match="never negative"):
        renyi_to_epsilon(lambda x: x - 1e-3, 1.0, 1e-5)
    with pytest.raises(ValueError, match="shape"):
        renyi_to_epsilon(lambda x: 1.0, 1.0, 1e-5)


# --- The bounds bound


@settings(max_examples=60)
@given(
    p=st.lists(st.floats(0.01, 1), min_size=2, max_size=5),
    q=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
    epsilon=st.floats(0, 5),
)
def test_delta_of_finite_laws_is_never_undercut(p, q, epsilon):
    p, q = np.array(p), np.array(q[: len(p)])
    p, q = p / p.sum(), q / q.sum()

    def curve(x):
        forward = logsumexp(np.log(p) + x[:, None] * np.log(p / q), axis=1) / x
        backward = logsumexp(np.log(q) + x[:, None] * np.log(q / p), axis=1) / x
        return np.maximum(np.maximum(forward, backward), 0)

    exact = max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())
    bound, _ = renyi_to_delta(curve, 50.0, epsilon)
    assert exact <= bound * (1 + 1e-9) + 1e-15
    if 0 < bound < 1:
        assert renyi_to_epsilon(curve, 50.0, bound)[0] == pytest.approx(epsilon, rel=1e-6, abs=1e-6)


@given(log_mu=st.floats(-3, 1.5), log_delta=st.floats(-20, -0.1))
def test_renyi_conversion_of_a_gaussian_is_above_the_exact_curve(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    curve = lambda x: (1 + x) * mu**2 / 2  # noqa: E731
    assert renyi_to_epsilon(curve, np.inf, delta)[0] >= gaussian_epsilon(mu, delta) * (1 - 1e-9)
    epsilon = mu * 2
    assert renyi_to_delta(curve, np.inf, epsilon)[0] >= gaussian_delta(mu, epsilon) * (1 - 1e-9)


# --- Gaussian DP


def test_gaussian_references():
    for mu, delta, expected in [
        (1, 1e-5, 4.377178095681),
        (0.5, 1e-3, 1.352276244802),
        (3, 1e-6, 18.163445759078),
        (0.5, 1e-5, 1.99309140441512),
        (4.949747468305833, 1e-5, 32.64128249800949),
    ]:
        assert gaussian_epsilon(mu, delta) == pytest.approx(expected, rel=1e-11)
    for mu, epsilon, expected in [
        (1, 1, 0.1269367375066439),
        (0.3, 0, 0.11923538474049),
        (2, 5, 0.032281984750073),
    ]:
        assert gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-11)
    for epsilon, delta, expected in [
        (1, 1e-5, 0.268051123211),
        (3, 1e-5, 0.719117435222),
        (9, 1e-5, 1.835718639222),
    ]:
        assert gaussian_mu(epsilon, delta) == pytest.approx(expected, rel=1e-11)
    for epsilon, delta, scale in [
        (1, 1e-3, 5.149314037274),
        (3, 1e-3, 2.074503436975),
        (9, 1e-3, 0.878520492156),
        (0.1, 1e-6, 72.609380852392),
    ]:
        assert 2 / gaussian_mu(epsilon, delta) == pytest.approx(scale, rel=1e-11)


@given(log_mu=st.floats(-6, 3), z=st.floats(-3, 37), direct=st.booleans(), epsilon=st.floats(0, 1e6))
@settings(max_examples=300)
def test_gaussian_delta_is_exact_and_never_below(log_mu, z, direct, epsilon):
    mu = 10**log_mu
    if not direct:
        epsilon = min(max(mu * (z + mu / 2), 0.0), 1e6)
    exact, found = exact_gaussian_delta(mu, epsilon), gaussian_delta(mu, epsilon)
    assert mp.mpf(found) >= exact
    assert found > 0
    if exact > mp.mpf("1e-300"):
        assert mp.mpf(found) <= exact * (1 + mp.mpf("1e-9"))


@given(log_mu=st.floats(-6, 3), log_delta=st.floats(-300, -0.001) | st.floats(-12, -0.001))
@settings(max_examples=300)
def test_gaussian_epsilon_is_exact_and_never_below(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_gaussian_delta(mu, epsilon) <= mp.mpf(delta)
    if epsilon > 0:
        lower = epsilon * (1 - 1e-9)
        assert exact_gaussian_delta(mu, lower) > mp.mpf(delta)


@given(log_epsilon=st.floats(-8, 6), log_delta=st.floats(-300, -0.001) | st.floats(-12, -0.001))
@settings(max_examples=200)
def test_gaussian_mu_is_exact_and_never_above(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = gaussian_mu(epsilon, delta)
    assert exact_gaussian_delta(mu, epsilon) <= mp.mpf(delta)
    assert exact_gaussian_delta(mu * (1 + 1e-8), epsilon) > mp.mpf(delta)


def test_ends_of_the_gaussian_curve():
    assert gaussian_epsilon(0, 0) == 0
    assert gaussian_epsilon(0, 1e-5) == 0
    assert gaussian_epsilon(1e-9, 0) == np.inf
    assert gaussian_epsilon(np.inf, 0.5) == np.inf
    assert gaussian_delta(0, 0) == 0
    assert gaussian_delta(np.inf, 1e6) == 1
    assert gaussian_delta(1e200, 1.0) == 1
    assert 0 < gaussian_delta(1e-200, 1.0) < 1e-300
    assert 0 < gaussian_delta(1e3, 1e6) < 1e-300
    assert gaussian_delta(1e-300, 0.0) == pytest.approx(1e-300 / math.sqrt(2 * math.pi), rel=1e-12)
    assert gaussian_mu(5.0, 0.0) == 0
    assert gaussian_mu(0.0, 0.5) == pytest.approx(1.3489795003921634, rel=1e-12)
    assert gaussian_mu(0.0, 0.0) == 0


def test_gaussian_functions_broadcast():
    mu = np.array([[0.0], [1.0], [np.inf]])
    delta = np.array([0.0, 1e-5])
    epsilon = gaussian_epsilon(mu, delta)
    np.testing.assert_array_equal(epsilon == np.inf, [[False, False], [True, False], [True, True]])
    assert epsilon[1, 1] == gaussian_epsilon(1.0, 1e-5)
    assert gaussian_delta(mu, 1.0).shape == (3, 1)
    assert gaussian_mu(np.array([1.0, 3.0, 9.0]), 1e-5).shape == (3,)
    assert isinstance(gaussian_delta(1.0, 1.0), float)


# --- Printing


def test_round_up_examples():
    assert round_up(1.004, 2) == "1.01"
    assert round_up(1.0, 2) == "1.00"
    assert round_up(1.01, 2) == "1.01"
    assert round_up(1e-12, 3) == "0.001"
    assert round_up(0.0, 1) == "0.0"
    assert round_up(9.999, 1) == "10.0"
    assert round_up(2.5, 0) == "3"
    assert round_up(1e300, 2).startswith("1000000")
    assert round_up(math.inf, 2) == "inf"
    assert round_up(np.float64(1.004), 2) == "1.01"
    with pytest.raises(ValueError, match="NaN"):
        round_up(math.nan, 2)
    with pytest.raises(ValueError, match="decimals"):
        round_up(1.0, -1)


@given(x=st.floats(0, allow_nan=False, allow_infinity=False), digits=st.integers(0, 12))
def test_round_up_is_never_below_and_at_most_one_unit_above(x, digits):
    printed = float(round_up(x, digits))
    assert printed >= x
    assert printed <= x + 10.0**-digits * (1 + 1e-9) + math.ulp(x)
