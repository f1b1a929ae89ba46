"""Gaussian noise on subsets of fixed size: exact laws of small cases against the account."""

import math

import numpy as np
import pytest

from discretion.privacy import FixedSizeGaussian, GaussianDP, Neighbours, PrivacyLoss, SubsampledGaussian


def normal(t, at):
    return np.exp(-0.5 * (t - at) ** 2) / math.sqrt(2 * math.pi)


def apart(one, other, epsilon, spacing):
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum()) * spacing


def account(q, s):
    return FixedSizeGaussian(q, s, neighbours="replace")


@pytest.mark.parametrize(("q", "u"), [(0.1, 1.5), (0.5, 0.7), (0.02, 2.5)])
def test_attained_by_one_record_among_equal_ones(q, u):
    """All other records alike, and its replacement too: the law moves only where the record is in the subset."""
    t = np.linspace(-14.0, 14.0, 400_001)
    there, gone = (1 - q) * normal(t, 0.0) + q * normal(t, u), normal(t, 0.0)
    for epsilon in (0.02, 0.1, 0.5):
        truth = apart(there, gone, epsilon, t[1] - t[0])
        assert account(q, 1 / u).delta(epsilon) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("q", [0.05, 0.3, 0.9])
def test_no_three_values_do_worse(q):
    """The record absent (another in its place), old and new, at distances of at most u in the plane."""
    rng, u, largest = np.random.default_rng(0), 1.2, 0.0
    axis = np.linspace(-6.0, 7.0, 131)
    X, Y = np.meshgrid(axis, axis)
    for trial in range(60):
        old = u * np.array([1.0, 0.0])
        angle = rng.uniform(-np.pi / 3, np.pi / 3) if trial % 3 else np.pi / 3 * (trial % 2)
        new = u * (1.0 if trial % 2 else rng.uniform()) * np.array([math.cos(angle), math.sin(angle)])
        absent, present, other = (
            np.exp(-0.5 * ((X - a) ** 2 + (Y - b) ** 2)) / (2 * math.pi) for a, b in ((0.0, 0.0), old, new)
        )
        for epsilon in (0.02, 0.2, 1.0):
            bound = account(q, 1 / u).delta(epsilon)
            one, two = (1 - q) * absent + q * present, (1 - q) * absent + q * other
            truth = max(apart(a, b, epsilon, (axis[1] - axis[0]) ** 2) for a, b in ((one, two), (two, one)))
            assert truth <= bound * (1 + 1e-4) + 1e-9
            largest = max(largest, truth / max(bound, 1e-12))
    assert largest > 0.5


def test_steps_need_one_pair_for_both_orders():
    """Absent, old and new at mutual distance 1, T steps: more than add/remove says, in either of its orders."""
    q, s, steps, epsilon, trials = 0.1, 0.7, 20, 0.1, 100_000
    rng = np.random.default_rng(0)
    old, new = np.array([1.0, 0.0]), np.array([0.5, math.sqrt(0.75)])
    drawn = old * (rng.uniform(size=(trials, steps, 1)) < q) + s * rng.normal(size=(trials, steps, 2))

    def likelihood(at):
        return (1 - q) + q * np.exp((drawn @ at - 0.5) / s**2)

    losses = np.log(likelihood(old) / likelihood(new)).sum(axis=1)
    truth = -np.expm1(np.minimum(epsilon - losses, 0.0))
    error = truth.std() / math.sqrt(trials)
    usual = SubsampledGaussian(q, s, neighbours="add-remove")
    assert truth.mean() - 6 * error > (steps * usual).delta(epsilon)
    assert truth.mean() + 6 * error < (steps * account(q, s)).delta(epsilon)


@pytest.mark.parametrize(("q", "u"), [(0.1, 1.5), (0.5, 0.7), (0.003, 1.2)])
def test_renyi_divergences_of_the_pair(q, u):
    """(w^a - 1)(1 - w^(1 - a)) integrated over the half-line where w > 1; never below, and next to it."""
    for alpha in (1.001, 1.5, 2.0, 6.0, 20.0):
        t = np.linspace(0.0, alpha * u + 12.0, 1_000_001)[1:]
        log_w = np.log1p(q * np.expm1(u * t))
        value = np.exp(alpha * log_w - 0.5 * (t + u / 2) ** 2) / math.sqrt(2 * math.pi)
        value *= np.expm1((1 - alpha) * log_w) * np.expm1(-alpha * log_w)
        truth = math.log1p(value.sum() * t[0]) / (alpha - 1)
        found = account(q, 1 / u).renyi(alpha)
        assert truth * (1 - 1e-9) <= found <= min(truth * (1 + 4e-3), alpha * u * u / 2 * (1 + 1e-12))


@pytest.mark.parametrize("q", [0.05, 0.4])
def test_no_three_values_have_a_larger_renyi_divergence(q):
    rng, u, largest = np.random.default_rng(1), 1.1, 0.0
    axis = np.linspace(-9.0, 12.0, 141)
    X, Y = np.meshgrid(axis, axis)
    for _ in range(40):
        angle = rng.uniform(-np.pi / 3, np.pi / 3)
        new = u * rng.choice([0.0, rng.uniform(), 1.0]) * np.array([math.cos(angle), math.sin(angle)])
        absent, present, other = (
            np.exp(-0.5 * ((X - a) ** 2 + (Y - b) ** 2)) / (2 * math.pi) for a, b in ((0.0, 0.0), (u, 0.0), new)
        )
        one, two = (1 - q) * absent + q * present, (1 - q) * absent + q * other
        for alpha in (1.2, 2.0, 5.0):
            bound = account(q, 1 / u).renyi(alpha)
            for a, b in ((one, two), (two, one)):
                truth = math.log(float((a**alpha * b ** (1 - alpha)).sum()) * (axis[1] - axis[0]) ** 2) / (alpha - 1)
                assert truth <= bound * (1 + 1e-6)
                largest = max(largest, truth / bound)
    assert largest > 0.7


def test_renyi_divergences_hold_up_at_extremes():
    orders = np.array([1.0, 1 + 1e-9, 1.5, 30.0, 1e4, 1e12, np.inf])
    for q in (1e-12, 0.3, 1 - 1e-12):
        for s in (1e-160, 1e-3, 1.0, 1e9):
            found, plain = account(q, s).renyi(orders), account(1.0, s).renyi(orders)
            assert np.all(found <= plain)
            assert np.all(found[:-1] <= found[1:] * (1 + 1e-6))
            # at least q of it is there at order 1: the pair's own is at least 2 (total variation)^2
            assert found[0] >= 2 * account(q, s).delta(0.0) ** 2 * (1 - 1e-9)


def test_steps_cost_less_by_renyi_divergences_too():
    steps = 1000 * account(0.01, 1.0)
    assert steps.epsilon(1e-5) < steps.guarantee(1e-5, numerical=False).epsilon < 2.5
    assert 1000 * account(1.0, 1.0).renyi(2.0) > 1000 * 1.0 > 3000 * account(0.01, 1.0).renyi(2.0)


def test_known_values():
    for q, s, steps, epsilon, delta in ((0.01, 1.0, 200, 0.1, 0.0546), (0.1, 0.7, 20, 0.1, 0.3679)):
        assert (steps * account(q, s)).delta(epsilon) == pytest.approx(delta, abs=1e-4)


def test_without_sampling_it_is_the_gaussian():
    whole, plain = account(1.0, 2.0), GaussianDP(0.5, neighbours="replace")
    assert whole.epsilon(1e-6) == pytest.approx(plain.epsilon(1e-6), rel=1e-9)
    assert whole.renyi(3.0) == pytest.approx(plain.renyi(3.0), rel=1e-12)
    assert account(0.3, 2.0).epsilon(1e-6) < plain.epsilon(1e-6)


def test_stored_and_refused():
    loss = 7 * account(0.25, 1.3)
    assert PrivacyLoss.from_dict(loss.to_dict(1e-6)).epsilon(1e-6) == loss.epsilon(1e-6)
    assert "FixedSizeGaussian(0.25, 1.3" in repr(account(0.25, 1.3))
    for neighbours in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_RESPONSE):
        with pytest.raises(ValueError, match="'replace' neighbours"):
            FixedSizeGaussian(0.1, 1.0, neighbours=neighbours)
    with pytest.raises(ValueError, match="probability"):
        account(0.0, 1.0)
