"""Group privacy: what is promised for several records holds along every chain, and is exact where it is said to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

from discretion.privacy import (
    BestOf,
    BoundedRange,
    Composition,
    GaussianDP,
    LaplaceDP,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
)
from discretion.privacy.group import _profile, group_loss, group_renyi

REPLACE = Neighbours.REPLACE


def curve(function, supremum=math.inf) -> RenyiCurve:
    return RenyiCurve(function, supremum, neighbours=REPLACE, rule="a curve")


def renyi(p, q, order):
    order = np.asarray(order)
    return logsumexp(order[..., None] * np.log(p / q) + np.log(q), axis=-1) / (order - 1.0)


def hockey_stick(p, q, epsilon):
    return np.maximum(p - np.exp(epsilon) * q, 0.0).sum()


def chain(seed: int, size: int, spread: float) -> np.ndarray:
    """Distributions on a few points, each a step away from the one before."""
    rng = np.random.default_rng(seed)
    logs = np.cumsum(rng.normal(size=(size + 1, 4)) * spread, axis=0)
    weights = np.exp(logs)
    return weights / weights.sum(axis=1, keepdims=True)


chains = st.tuples(st.integers(0, 2**32), st.integers(2, 6), st.floats(0.01, 1.5))


# --- What holds


@settings(deadline=None, max_examples=40)
@given(chains)
def test_renyi_divergence_along_any_chain_is_bounded(drawn):
    laws = chain(*drawn)
    size = len(laws) - 1
    steps = [pair for i in range(size) for pair in ((laws[i], laws[i + 1]), (laws[i + 1], laws[i]))]

    def single(excess):
        return np.max([renyi(p, q, 1.0 + excess) for p, q in steps], axis=0)

    excess = np.array([0.1, 1.0, 5.0])
    bound = group_renyi(single, excess, size)
    for p, q in ((laws[0], laws[-1]), (laws[-1], laws[0])):
        assert (renyi(p, q, 1.0 + excess) <= bound * (1 + 1e-9) + 1e-12).all()


@settings(deadline=None, max_examples=60)
@given(chains)
def test_profile_along_any_chain_is_bounded(drawn):
    laws = chain(*drawn)
    size = len(laws) - 1
    nodes = np.linspace(0.0, 8.0, 60)
    steps = [pair for i in range(size) for pair in ((laws[i], laws[i + 1]), (laws[i + 1], laws[i]))]
    deltas = np.array([max(hockey_stick(p, q, e) for p, q in steps) for e in nodes])
    found = _profile(PrivacyProfile(tuple(nodes), tuple(deltas), neighbours=REPLACE), size)
    for e in (0.0, 0.3, 1.0, 3.0):
        true = max(hockey_stick(laws[0], laws[-1], e), hockey_stick(laws[-1], laws[0], e))
        assert true <= found.delta(e) + 1e-12


@settings(deadline=None, max_examples=100)
@given(chains)
def test_pure_and_bounded_range_along_any_chain(drawn):
    laws = chain(*drawn)
    size = len(laws) - 1
    ratios = np.log(laws[:-1] / laws[1:])
    pure, span = np.abs(ratios).max(), np.ptp(ratios, axis=1).max()
    whole = np.log(laws[0] / laws[-1])
    assert np.abs(whole).max() <= group_loss(PureDP(pure, neighbours=REPLACE), size).epsilon(0.0)
    grouped = group_loss(BoundedRange(span, neighbours=REPLACE), size)
    assert isinstance(grouped, BoundedRange)
    assert np.ptp(whole) <= grouped.epsilon_value
    for e in (0.1, 1.0):
        assert hockey_stick(laws[0], laws[-1], e) <= grouped.delta(e) + 1e-12


def test_gaussians_of_changing_width_are_bounded():
    """P_i = N(0, s^(2i)): each step has one and the same divergence, with a pole."""
    ratio, size = 1.3, 4

    def divergence(var_p, var_q, order):
        mixed = order * var_q + (1.0 - order) * var_p
        if mixed <= 0.0:
            return math.inf
        log = (1.0 - order) * 0.5 * math.log(var_p) + order * 0.5 * math.log(var_q) - 0.5 * math.log(mixed)
        return log / (order - 1.0)

    single = np.vectorize(lambda x: max(divergence(1.0, ratio, 1.0 + x), divergence(ratio, 1.0, 1.0 + x)))
    loss = group_loss(curve(single, 1.0 / (ratio - 1.0)), size)
    assert loss.supremum <= 1.0 / (ratio**size - 1.0) * (1 + 1e-9)
    for x in np.geomspace(1e-3, 0.999 * loss.supremum, 20):
        true = max(divergence(1.0, ratio**size, 1.0 + x), divergence(ratio**size, 1.0, 1.0 + x))
        assert true <= loss.renyi_excess(float(x))
    # the end of the orders is exact: the widths multiply
    assert loss.supremum >= 0.999 / (ratio**size - 1.0)


# --- How tight it is


@pytest.mark.parametrize("size", [2, 3, 10, 100])
def test_the_chain_is_exact_for_gaussian_curves(size):
    excess = np.geomspace(1e-4, 1e4, 9)
    found = group_renyi(lambda x: 0.005 * (1.0 + x), excess, size)
    np.testing.assert_allclose(found, 0.005 * size**2 * (1.0 + excess), rtol=1e-9)
    assert (found >= 0.005 * size**2 * (1.0 + excess) * (1 - 1e-14)).all()
    table = group_loss(curve(lambda x: 0.005 * (1.0 + x)), size)
    exact = curve(lambda x: 0.005 * size**2 * (1.0 + x))
    assert 1.0 <= table.epsilon(1e-5) / exact.epsilon(1e-5) < 1.0002


@pytest.mark.parametrize("size", [2, 3, 10])
def test_tangents_are_exact_for_the_gaussian_profile(size):
    exact = GaussianDP(0.2 * size, neighbours=REPLACE)
    found = _profile(GaussianDP(0.2, neighbours=REPLACE), size)
    assert 1.0 - 1e-9 <= found.epsilon(1e-4) / exact.epsilon(1e-4) < 1.02


def test_orders_in_equal_steps_come_close_to_the_best_orders():
    """Any orders allowed, by a general optimiser: two changes to 1 in 10,000, three and four to 1 per cent."""

    def pole(x):
        return np.where(x < 20.0, 0.2 * (1.0 + x) / np.maximum(1.0 - x / 20.0, 1e-300), np.inf)

    for size, slack in ((2, 1e-4), (3, 1e-2), (4, 1e-2)):
        for excess in (0.1, 1.0):
            total = math.log1p(1.0 / excess)

            def free(z, total=total):
                shares = np.exp(z - z.max())
                logs = total * shares / shares.sum()
                weights = np.exp(np.cumsum(logs[::-1])[::-1] - logs)
                return min(float(weights @ pole(1.0 / np.expm1(logs))), 1e9)

            start = -np.log(np.arange(1.0, size + 1.0))
            best = minimize(free, start, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12}).fun
            found = float(group_renyi(pole, np.array([excess]), size)[0])
            assert best * (1 - 1e-9) <= found * (1 + 1e-9)
            assert found <= best * (1 + slack)


def test_a_chain_is_better_than_halving_orders():
    """Mironov 2017, Proposition 2: D_alpha of 2^c changes is at most 3^c D at 2^c alpha."""
    single = curve(lambda x: 0.01 * (1.0 + x) / (1.0 - x / 50.0), 50.0)
    four = group_loss(single, 4)
    for order in (2.0, 3.0, 5.0):
        assert four.renyi(order) < 9.0 * single.renyi(4.0 * order)


# --- Kinds of losses


def test_parametric_losses_multiply():
    for loss, name in (
        (GaussianDP(0.3, neighbours=REPLACE), "mu"),
        (PureDP(0.3, neighbours=REPLACE), "epsilon_value"),
        (BoundedRange(0.3, neighbours=REPLACE), "epsilon_value"),
        (LaplaceDP(0.3, neighbours=REPLACE), "epsilon_value"),
    ):
        found = group_loss(loss, 7)
        assert type(found) is type(loss)
        assert 2.1 <= getattr(found, name) <= 2.1 * (1 + 1e-14)
        assert found.rule.startswith("group of 7: ")
        assert found.neighbours is REPLACE
        assert group_loss(loss, 1) is loss


def test_laplace_noise_is_exact():
    """Noise on a line: K changes shift the location K times as far, which is one change of K times the size."""
    found = group_loss(LaplaceDP(0.5, neighbours=REPLACE), 3)
    for e in (0.0, 0.4, 1.2):
        assert found.delta(e) == pytest.approx(LaplaceDP(1.5, neighbours=REPLACE).delta(e), rel=1e-12)


def test_compositions_part_by_part_and_bounds_of_one_mechanism():
    single = curve(lambda x: 0.01 * (1.0 + x) / (1.0 - x / 50.0), 50.0)
    gaussian = GaussianDP(0.1, neighbours=REPLACE)
    both = group_loss(2 * single + gaussian, 3)
    assert isinstance(both, Composition)
    expected = 2 * group_loss(single, 3) + group_loss(gaussian, 3)
    assert both.epsilon(1e-5) == expected.epsilon(1e-5)
    best = group_loss(BestOf((single, gaussian)), 3)
    assert isinstance(best, BestOf)
    assert best.epsilon(1e-5) == min(group_loss(single, 3).epsilon(1e-5), group_loss(gaussian, 3).epsilon(1e-5))


def test_losses_known_by_their_profile_take_the_best_route():
    sampled = SubsampledGaussian(0.1, 2.0, neighbours=Neighbours.ADD_REMOVE)
    found = group_loss(sampled, 3)
    assert isinstance(found, BestOf)
    assert found.epsilon(1e-5) > sampled.epsilon(1e-5)
    # a certified statement at one delta alone: (e, d) becomes (K e, d (1 + e^e + ...)) at least
    single = PrivacyProfile((0.5,), (1e-7,), neighbours=REPLACE)
    found = group_loss(single, 3)
    assert found.delta(1.5) <= 1e-7 * (1 + math.exp(0.5) + math.exp(1.0)) * 1.05
    assert found.delta(1.5) >= 1e-7


def test_it_is_stored_and_read_back():
    for loss in (
        curve(lambda x: 0.01 * (1.0 + x) / (1.0 - x / 50.0), 50.0) + GaussianDP(0.1, neighbours=REPLACE),
        curve(lambda x: np.minimum(0.1 * (1.0 + x), 0.7)),
        SubsampledGaussian(0.1, 2.0, neighbours=REPLACE),
    ):
        found = group_loss(loss, 4)
        again = PrivacyLoss.from_dict(found.to_dict(1e-5))
        assert again.epsilon(1e-5) == pytest.approx(found.epsilon(1e-5), rel=1e-9)


def test_a_bounded_curve_stays_bounded():
    found = group_loss(curve(lambda x: np.minimum(0.1 * (1.0 + x), 0.7)), 4)
    assert found.epsilon(0.0) == pytest.approx(2.8)
    assert found.renyi(math.inf) == pytest.approx(2.8)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, 10_001, "2"])
def test_sizes_are_whole_and_not_too_large(size):
    with pytest.raises(ValueError, match="size of a group"):
        group_loss(GaussianDP(0.1, neighbours=REPLACE), size)


def test_a_loss_that_promises_nothing_promises_nothing_to_groups():
    for loss in (curve(lambda x: np.full(x.shape, np.inf)), GaussianDP(math.inf, neighbours=REPLACE)):
        assert group_loss(loss, 2).epsilon(1e-5) == math.inf
