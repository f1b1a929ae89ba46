import itertools
import math

import mpmath
import numpy as np
import pytest
from tests.gp.line_makers import law, made

from discretion.gp import (
    DensePosterior,
    Exponential,
    ExponentialPaths,
    ExponentialPosterior,
)
from discretion.gp.dense import UNIT_ROUNDOFF
from discretion.gp.exponential import (
    _eliminated,
    _network,
    _rounds,
    line_mean_rounding,
    line_nugget_floor,
)


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 20.0])
def test_the_law_of_many_close_records_is_that_of_the_dense_posterior(ridge):
    X, y = made(300)
    requests = [np.random.default_rng(1).uniform(-0.5, 1.5, (25, 1)), X[:150:2], np.array([[50.0], [-3.0], [2000.0]])]
    T = np.concatenate(requests)
    dense = DensePosterior(Exponential(0.01), ridge, X, y)
    mean, C = law(ExponentialPaths, ExponentialPosterior(Exponential(0.01), ridge, X, y), requests)
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=1e-8)
    same = (np.abs(T - T.T) < 1e-40).astype(float)  # 0 and 1e-300 are one place
    np.testing.assert_allclose(C @ C.T, 0.49 * (dense.covariance(T) + 1e-3 * same), rtol=0, atol=1e-8)


NASTY = {
    "grid": (np.linspace(0, 1, 14), np.linspace(0, 1, 17)),
    "one place": (np.zeros(14), np.linspace(-1e-9, 1e-9, 17)),
    "at records": (np.repeat(np.linspace(0, 1, 7), 2), np.linspace(0, 1, 7)),
    "ever closer": (2.0 ** -np.arange(0.0, 112.0, 8.0), 2.0 ** -np.arange(1.0, 113.0, 8.0)),
    "far away": (1e3 + 1e-4 * np.arange(14.0), np.concatenate([1e3 + 1e-4 * np.arange(9.0) / 1.7, [0.0, 1e5]])),
}


def exact(X, y, T, ridge):
    """Mean and covariance with 120 digits."""
    P = [mpmath.mpf(float(x)) for x in np.concatenate([X, T])]
    n = len(X)
    K = mpmath.matrix([[mpmath.exp(-abs(a - b)) for b in P] for a in P])
    L = mpmath.cholesky(K[:n, :n] + mpmath.mpf(ridge) ** 2 * mpmath.eye(n))
    W = L**-1 * K[:n, n:]
    return W.T * (L**-1 * mpmath.matrix(y)), K[n:, n:] - W.T * W


@pytest.mark.parametrize("ridge", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize("case", NASTY)
def test_the_bounds_hold_against_a_hundred_and_twenty_digits(case, ridge):
    X, T = NASTY[case]
    T = np.unique(T)
    y, n, m = np.where(np.arange(len(X)) % 2, 1.0, -1.0), len(X), len(T)
    nugget = 1e-6
    with mpmath.workdps(120):
        mean, S = exact(X, y, T, ridge)
        posterior = ExponentialPosterior(Exponential(1.0), ridge, X[:, None], y)
        centred = posterior.with_responses(np.zeros(n))
        for requests in ([T], np.array_split(T, 3), np.array_split(T, m)):
            requests = [part[:, None] for part in requests]
            zero, C = law(ExponentialPaths, centred, requests, nugget, 1.0)
            assert (zero == 0).all()
            C = mpmath.matrix(C.tolist())
            off = C * C.T - S - mpmath.mpf(nugget) * mpmath.eye(m)
            error = np.linalg.norm(np.array(off.tolist(), float), 2)
            rounds, R = _rounds(n, m), len(requests)
            moved = math.sqrt(m) * 10.0 * R * rounds * UNIT_ROUNDOFF
            law_moved = 2.2 * R * (28.0 + 6.0 * rounds) * UNIT_ROUNDOFF  # relative, in the sense of forms
            largest = float(mpmath.mnorm(S, "f"))
            assert error <= 2.0 * moved + moved**2 + law_moved * largest + 4e-16 * nugget
            computed, _ = law(ExponentialPaths, posterior, requests, nugget, 1.0)
            difference = [float(mpmath.mpf(float(c)) - mean[i]) for i, c in enumerate(computed)]
            assert np.linalg.norm(difference) <= line_mean_rounding(n, m, ridge, 1.0)


def form(network):
    """The matrix of a network's quadratic form."""
    a, k = network.conductance, network.killing
    total = k + np.concatenate([a, [0.0]]) + np.concatenate([[0.0], a])
    return np.diag(total) - np.diag(a, 1) - np.diag(a, -1)


def test_the_network_is_the_precision_of_the_process():
    places = np.array([0.0, 0.1, 0.1 + 1e-3, 2.0, 7.0])
    network = _network(np.concatenate([[-math.inf], places, [math.inf]]), np.zeros(7))
    inverse = np.linalg.inv(form(network)[1:-1, 1:-1])
    np.testing.assert_allclose(inverse, Exponential(1.0)(places[:, None]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_elimination_is_the_schur_complement_and_its_rounds_the_factor(share):
    rng = np.random.default_rng(3)
    places = np.concatenate([[-math.inf], np.sort(rng.uniform(0, 3, 60)), [math.inf]])
    network = _network(places, rng.uniform(0.0, 2.0, 62))
    network.current[:] = rng.normal(size=62)
    gone = rng.random(62) < share
    gone[[0, -1]] = False
    rounds, left = _eliminated(network, gone)
    assert len(rounds) <= int(gone.sum()).bit_length()
    A, e, stay = form(network), np.flatnonzero(gone), np.flatnonzero(~gone)
    solved = np.linalg.solve(A[np.ix_(e, e)], np.column_stack([A[np.ix_(e, stay)], network.current[e]]))
    schur = A[np.ix_(stay, stay)] - A[np.ix_(stay, e)] @ solved[:, :-1]
    np.testing.assert_allclose(form(left), schur, rtol=0, atol=1e-12 * abs(A).max())
    current = network.current[stay] - A[np.ix_(stay, e)] @ solved[:, -1]
    np.testing.assert_allclose(left.current, current, rtol=0, atol=1e-10)
    log_determinant = sum(np.log(each.total).sum() for each in rounds)
    assert log_determinant == pytest.approx(np.linalg.slogdet(A[np.ix_(e, e)])[1], rel=1e-12)
    x = rng.normal(size=62)
    drawn = sum(
        (each.total * (x[each.node] - each.to_left * x[each.left] - each.to_right * x[each.right]) ** 2).sum()
        for each in rounds
    )
    np.testing.assert_allclose(drawn + x[stay] @ form(left) @ x[stay], x @ A @ x, rtol=1e-12)


def test_a_reduced_network_keeps_its_relative_accuracy_however_close_the_sites_are():
    # 4,000 sites 2^-100 to 2^-4 apart, between two points: the exact conductance in 120 digits
    rng = np.random.default_rng(0)
    gaps = 2.0 ** -rng.integers(4, 100, 4001).astype(float)
    with mpmath.workdps(120):
        a, k = mpmath.mpf(1) / (2 * mpmath.sinh(mpmath.mpf(gaps[0]))), mpmath.mpf(0)
        for left, right in itertools.pairwise(gaps):
            k = k + (mpmath.tanh(mpmath.mpf(left) / 2) + mpmath.tanh(mpmath.mpf(right) / 2)) / 2 + mpmath.mpf(0.01)
            b = 1 / (2 * mpmath.sinh(mpmath.mpf(right)))
            total = a + b + k
            a, k = a * b / total, b * k / total
    # the gaps themselves, as sums of them would round
    conductance, killing = 1.0 / (2.0 * np.sinh(gaps)), np.tanh(gaps / 2.0) / 2.0
    network = _network(np.arange(4002.0), np.full(4002, 0.0))
    network.conductance[:] = conductance
    network.killing[1:-1] = killing[:-1] + killing[1:] + 0.01
    gone = np.ones(4002, dtype=bool)
    gone[[0, -1]] = False
    rounds, left = _eliminated(network, gone)
    assert len(rounds) == 12
    assert left.conductance[0] == pytest.approx(float(a), rel=100 * UNIT_ROUNDOFF)
    assert left.killing[-1] - network.killing[-1] == pytest.approx(float(k), rel=100 * UNIT_ROUNDOFF)


def test_bounds_are_public_and_stop_where_double_precision_does():
    assert line_mean_rounding(10**6, 10**4, 10.0, 1.0) == pytest.approx(6.3e-10, rel=0.1)
    assert 64 * 10**4 * UNIT_ROUNDOFF < line_nugget_floor(10**6, 10**4) < 1e-10
    assert line_nugget_floor(10**6, 10, 10**6) > 2 * line_nugget_floor(10**6, 10, 1)
    assert line_mean_rounding(100, 9, 3.0, 2.0) == pytest.approx(2.0 * line_mean_rounding(100, 9, 3.0, 1.0))
    assert line_mean_rounding(100, 9, 2.0, 1.0) > line_mean_rounding(100, 9, 3.0, 1.0)
    assert line_nugget_floor(10**6, 5, 10**12) == math.inf
    assert line_nugget_floor(10, 0) == line_mean_rounding(10, 0, 1.0, 1.0) == line_mean_rounding(0, 9, 1.0, 1.0) == 0.0
