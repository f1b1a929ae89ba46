"""Update rules, schedules, averages."""

import numpy as np
import pytest

from discretion.bayesopt import SGD, AdaGrad, Adam, Late, Momentum
from discretion.bayesopt.descent import Constant, default_steps, tail_average

G = [np.array([1.0, -2.0]), np.array([0.5, 1.0]), np.array([-1.0, 3.0])]


def moves(rule):
    state, found = (), []
    for g in G:
        move, state = rule.step(g, state)
        found.append(move)
    return np.array(found)


def test_rules():
    np.testing.assert_allclose(moves(SGD(0.1)), -0.1 * np.array(G))
    v = [G[0], 0.9 * G[0] + G[1], 0.9 * (0.9 * G[0] + G[1]) + G[2]]
    np.testing.assert_allclose(moves(Momentum(0.1, 0.9)), -0.1 * np.array(v))
    squares = np.cumsum(np.array(G) ** 2, axis=0)
    np.testing.assert_allclose(moves(AdaGrad(0.1)), -0.1 * np.array(G) / np.sqrt(squares))
    m, s, found = 0.0, 0.0, []
    for t, g in enumerate(G, 1):
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
        found.append(-0.1 * (m / (1 - 0.9**t)) / np.sqrt(s / (1 - 0.999**t)))
    np.testing.assert_allclose(moves(Adam(0.1)), found)
    np.testing.assert_array_equal(AdaGrad(0.1).step(np.zeros(2), ())[0], 0.0)


@pytest.mark.parametrize(
    "make", [lambda: SGD(0.0), lambda: Momentum(0.1, 1.0), lambda: Adam(0.1, 0.9, -1), lambda: Late(1.0)]
)
def test_refusals(make):
    with pytest.raises(ValueError, match=r"\w"):
        make()


@pytest.mark.parametrize("contraction", [0.0, 0.1, 0.5])
def test_late_shares_minimise_the_discounted_noise(contraction):
    T, rng = 12, np.random.default_rng(0)
    shares = Late(contraction).shares(T)
    assert shares.sum() == pytest.approx(1.0)
    discount = (1 - contraction) ** (T - 1 - np.arange(T))
    least = (discount / shares).sum()
    for _ in range(300):
        other = shares * np.exp(0.2 * rng.normal(size=T))
        assert (discount / (other / other.sum())).sum() >= least * (1 - 1e-12)
    if contraction == 0:
        np.testing.assert_allclose(shares, Constant().shares(T))


def test_tail_average_is_that_of_the_last_half():
    path = [np.array([float(t)]) for t in range(10)]
    assert tail_average(path) == pytest.approx(7.0)
    assert tail_average(path[:1]) == pytest.approx(0.0)


def test_default_steps_minimise_their_bound():
    n, mu, clip, d, L, F = 1000, 1.0, 2.0, 5, 3.0, 2.0
    best = default_steps(n, mu, clip, d, L, F, 10**6)

    def bound(T):
        return 2 * L * F / T + 4 * d * clip**2 * T / (n * mu) ** 2

    assert all(bound(best) <= bound(T) * (1 + 1e-12) for T in range(1, 4 * best))
    assert default_steps(n, mu, clip, d, L, F, 7) == 7
    assert default_steps(2, mu, 100.0, d, L, F, 7) == 1


def test_stationary_spread_of_noisy_descent():
    """rate sigma^2 / (h (2 - rate h)) in each coordinate on a quadratic of curvature h."""
    h, rate, sigma, rng, x, seen = 1.5, 0.4, 0.7, np.random.default_rng(1), 0.0, []
    for _ in range(60_000):
        x += SGD(rate).step(np.array([h * x + sigma * rng.normal()]), ())[0][0]
        seen.append(x)
    assert np.var(seen[100:]) == pytest.approx(rate * sigma**2 / (h * (2 - rate * h)), rel=0.05)
