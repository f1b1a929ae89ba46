"""Update rules, schedules, averages."""

import numpy as np
import pytest

from discretion.bayesopt import (
    SGD,
    AdaGrad,
    Adam,
    Late,
    Linear,
    LocalSearch,
    Momentum,
    ReleasedGradients,
    Study,
    TrustRegion,
)
from discretion.bayesopt.descent import Constant, default_steps, tail_average
from discretion.bayesopt.kernels import gradient_kernel
from discretion.gp import RBF
from discretion.privacy import SeededRandomness

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
    "make",
    [
        lambda: SGD(0.0),
        lambda: TrustRegion(0.0),
        lambda: Momentum(0.1, 1.0),
        lambda: Adam(0.1, 0.9, -1),
        lambda: Late(1.0),
    ],
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


SCALES = np.array([0.2, 1.0, 3.0])
LEAST = np.array([0.7, -0.9, 0.4])


def in_a_bowl(rule, steps, noise=0.0, box=2.0):
    """The path of a rule on f = sum of scale (x - least)^2 / 2, from the origin."""
    rng, theta, state, path, gradients = np.random.default_rng(0), np.zeros(3), (), [], []
    bounds = (-box * np.ones(3), box * np.ones(3))
    for _ in range(steps):
        path.append(theta)
        gradients.append(SCALES * (theta - LEAST) + noise * rng.normal(size=3))

        def surrogate():
            known = np.array(path), np.array(gradients), np.full(len(path), max(noise, 1e-9))
            return ReleasedGradients(*known, gradient_kernel(RBF(1.0)))

        theta, state = rule.moved(theta, gradients[-1], state, bounds, surrogate)
    return np.array([*path[1:], theta])


def test_a_trust_region_is_never_left():
    path = np.vstack([np.zeros(3), in_a_bowl(TrustRegion(0.3), 6)])
    steps = np.abs(np.diff(path, axis=0))
    assert steps.max() <= 0.3 + 1e-12
    assert steps[0].max() == pytest.approx(0.3)
    assert np.abs(in_a_bowl(TrustRegion(1.0), 6, box=0.5)).max() <= 0.5


def test_a_trust_region_uses_curvature():
    """Where curvatures differ fifteenfold, earlier gradients tell of them, and no one rate suits them."""
    ours = np.linalg.norm(in_a_bowl(TrustRegion(1.0), 12)[-1] - LEAST)
    assert ours < 0.01
    for rate in (0.1, 0.3, 0.5):
        assert ours < 0.2 * np.linalg.norm(in_a_bowl(SGD(rate), 12)[-1] - LEAST)


def test_a_trust_region_averages_noise():
    """The end is nearer than a gradient's own noise would put it: the last step rests on all releases."""
    path = in_a_bowl(TrustRegion(1.0), 40, noise=0.3)
    assert np.linalg.norm((path[-1] - LEAST)[1:]) < 0.3
    assert TrustRegion(1.0).output(list(path)) is not None
    np.testing.assert_array_equal(TrustRegion(1.0).output(list(path)), path[-1])
    np.testing.assert_array_equal(SGD(1.0).output(list(path)), path[20:].mean(axis=0))


def test_a_trust_region_goes_on_where_it_stopped(tmp_path):
    """Its fitted kernel is a function of the releases, so a study taken up again is where it would have been."""
    X = np.random.default_rng(1).normal(0.5, 1.0, (200, 2))
    space = {"x": Linear(-2.0, 2.0, unit=1.0), "y": Linear(-2.0, 2.0, unit=1.0)}
    search = LocalSearch(space, mu=1.0, steps=7, clip=2.0, cache=0, kernel=RBF(1.0), update=TrustRegion(0.5))  # pyright: ignore

    def told(study, steps):
        for _ in range(steps):
            study.tell(np.column_stack([0.5 * ((X - z) ** 2).sum(axis=1) for z in study.asked]))
        return study.theta

    with Study(search, n=200, randomness=SeededRandomness(3), path=tmp_path / "a.study") as study:
        whole = told(study, 6)
    with Study(search, n=200, randomness=SeededRandomness(4), path=tmp_path / "a.study") as again:
        np.testing.assert_array_equal(again.theta, whole)
        told(again, 1)
        release = again.result()
        assert release.parameters == release.last
