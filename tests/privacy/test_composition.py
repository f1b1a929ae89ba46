"""Numerical composition: exact cases, other tools, brute force over finite pairs, and failing closed."""

import inspect
import itertools
import json
import math
import pickle
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import gammaln

from discretion.privacy import (
    BoundedRange,
    GaussianDP,
    LaplaceDP,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
    gaussian_delta,
    gaussian_epsilon,
)
from discretion.privacy.composition import (
    compose,
    connect_the_dots,
    discretise,
    dominating_pair,
    numerical_delta,
    numerical_epsilon,
    renyi_envelope,
)
from discretion.privacy.conversion import renyi_to_delta
from discretion.privacy.loss.composition import Composition, _fewer

AR, R = Neighbours.ADD_REMOVE, Neighbours.REPLACE


def both(profile):
    def ways(epsilon):
        bounds = profile(epsilon)
        return bounds, bounds

    return ways


def gaussian(mu):
    return both(lambda epsilon: gaussian_delta(mu, epsilon))


def randomised_response_delta(e, count, epsilon):
    """Exact delta of `count` randomised responses (Kairouz, Oh and Viswanath 2015)."""
    i = np.arange(count + 1)
    log = gammaln(count + 1) - gammaln(i + 1) - gammaln(count - i + 1) - count * np.log1p(np.exp(e)) + i * e
    return float(np.sum(np.exp(log) * -np.expm1(np.minimum(epsilon - (2 * i - count) * e, 0))))


# --- Exact cases


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-3, 1).map(lambda t: 10**t),
    st.integers(1, 2000),
    st.floats(-40, -0.5).map(lambda t: 10**t),
)
def test_gaussians_compose_to_the_exact_curve(mu, count, delta):
    exact = gaussian_epsilon(mu * math.sqrt(count), delta)
    found = numerical_epsilon([(gaussian(mu), count)], delta)
    assert exact <= found <= exact * (1 + 2e-4) + 1e-5 * mu * math.sqrt(count)
    assert gaussian_delta(mu * math.sqrt(count), found) <= delta


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 1).map(lambda t: 10**t), st.integers(2, 300), st.floats(0.01, 0.95))
def test_randomised_responses_compose_exactly(e, count, part):
    loss = count * PureDP(e, neighbours=R)
    epsilon = part * count * e
    exact = randomised_response_delta(e, count, epsilon)
    found = loss.delta(epsilon, numerical=True)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-4) + 1e-280


def test_heterogeneous_gaussians_and_tiny_deltas():
    mus = (0.3, 1.0, 0.02)
    parts = [(gaussian(mu), count) for mu, count in zip(mus, (10, 1, 500), strict=True)]
    total = math.sqrt(sum(count * mu**2 for mu, count in zip(mus, (10, 1, 500), strict=True)))
    for delta in (0.1, 1e-5, 1e-30, 1e-50):
        exact = gaussian_epsilon(total, delta)
        assert exact <= numerical_epsilon(parts, delta) <= exact * (1 + 1e-3)
        assert delta <= numerical_delta(parts, exact) <= delta * 1.05


@pytest.mark.parametrize(("e", "count", "delta"), [(0.1, 100, 1e-5), (1.0, 5, 1e-4), (3.0, 2, 1e-2)])
def test_laplace_agrees_with_dp_accounting(e, count, delta):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    other = pld.from_laplace_mechanism(1 / e).self_compose(count).get_epsilon_for_delta(delta)
    assert (count * LaplaceDP(e, neighbours=AR)).epsilon(delta) == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
    ("q", "s", "count", "delta"), [(0.01, 1.0, 1000, 1e-5), (0.1, 3.0, 100, 1e-8), (0.5, 1.0, 10, 1e-3)]
)
def test_subsampled_gaussian_agrees_with_dp_accounting(q, s, count, delta):
    dp_accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    if "neighboring_relation" not in inspect.signature(pld.from_gaussian_mechanism).parameters:
        pytest.skip("dp-accounting before 0.5 knows one relation")
    relations = {
        AR: dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        R: dp_accounting.NeighboringRelation.REPLACE_ONE,
    }
    for neighbours, relation in relations.items():
        other = pld.from_gaussian_mechanism(s, sampling_prob=q, neighboring_relation=relation)
        other = other.self_compose(count).get_epsilon_for_delta(delta)
        loss = count * SubsampledGaussian(q, s, neighbours=neighbours)
        guarantee = loss.guarantee(delta)
        assert guarantee.epsilon == pytest.approx(other, rel=1e-4)
        assert guarantee.rule.startswith("privacy-loss distributions composed numerically")
        assert loss._renyi_guarantee(delta).epsilon > guarantee.epsilon


def test_a_mixture_of_everything_agrees_with_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    loss = (
        GaussianDP(0.5, neighbours=AR)
        + 20 * PureDP(0.1, neighbours=AR)
        + LaplaceDP(0.3, neighbours=AR)
        + 100 * SubsampledGaussian(0.01, 1.0, neighbours=AR)
    )
    response = pld.from_randomized_response(2 / (1 + math.exp(0.1)), 2).self_compose(20)
    other = pld.from_gaussian_mechanism(2.0).compose(response).compose(pld.from_laplace_mechanism(1 / 0.3))
    other = other.compose(pld.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(100))
    start = time.process_time()
    found = loss.epsilon(1e-6)
    assert time.process_time() - start < 2
    assert found == pytest.approx(other.get_epsilon_for_delta(1e-6), rel=1e-3)
    assert loss.delta(found) <= 1e-6 * (1 + 1e-3)


# --- Brute force


def profile_of(p, q, epsilon):
    return np.maximum(p - np.exp(np.asarray(epsilon))[..., None] * q, 0).sum(axis=-1)


laws = st.lists(st.floats(0.01, 1), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(laws, laws, st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0.1, 6))
def test_no_product_of_pairs_exceeds_the_composition_of_tables_above_their_profiles(a, b, seed, count, epsilon):
    rng = np.random.default_rng(seed)
    size = min(len(a), len(b))
    p, q = np.array(a[:size]) / sum(a[:size]), np.array(b[:size]) / sum(b[:size])
    nodes = np.unique(rng.uniform(0, 5, 12))
    true = np.maximum(profile_of(p, q, nodes), profile_of(q, p, nodes))
    noisy = np.minimum(true * (1 + 0.3 * rng.random(nodes.size)) + 1e-4 * rng.random(nodes.size), 1)
    table = PrivacyProfile(tuple(nodes), tuple(noisy), neighbours=R)
    there = np.linspace(0, 8, 50)
    assert np.all(table._profile(there) >= np.maximum(profile_of(p, q, there), profile_of(q, p, there)) * (1 - 1e-12))
    assert np.all(table._profile(nodes) <= noisy * (1 + 1e-12))
    product_p, product_q = p, q
    for _ in range(count - 1):
        product_p, product_q = np.outer(product_p, p).ravel(), np.outer(product_q, q).ravel()
    exact = max(profile_of(product_p, product_q, epsilon), profile_of(product_q, product_p, epsilon))
    assert (count * table).delta(epsilon) >= exact * (1 - 1e-12)
    # with a Gaussian step after
    z = np.linspace(-9, 10, 4001)
    one, other = np.exp(-((z - 0.7) ** 2) / 2), np.exp(-(z**2) / 2)
    p2, q2 = np.outer(product_p, one / one.sum()).ravel(), np.outer(product_q, other / other.sum()).ravel()
    both_ways = max(profile_of(p2, q2, epsilon), profile_of(q2, p2, epsilon))
    mixed = count * table + GaussianDP(0.7 * (1 + 1e-6), neighbours=R)
    assert mixed.delta(epsilon) >= both_ways * (1 - 1e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_masses_have_the_profile_of_the_hull(seed, symmetric):
    rng = np.random.default_rng(seed)
    step, size = 10 ** rng.uniform(-4, 0), int(rng.integers(1, 200))
    nodes = step * np.arange(size + 1)
    forward = np.sort(rng.random(size + 1) ** 3)[::-1] * rng.random()
    backward = forward if symmetric else np.sort(rng.random(size + 1) ** 3)[::-1] * rng.random()
    there, back = dominating_pair(nodes, forward, backward)
    pair = connect_the_dots(step, there, back)
    assert pair.total >= 1
    assert pair.total <= 1 + 1e-6
    losses = step * pair.atoms
    for hull, sign in ((there, 1), (back, -1)):
        e = np.linspace(0, nodes[-1] * 1.2, 77)
        # delta = mass at infinity + sum over losses beyond epsilon, at either sign of epsilon
        direct = pair.infinity + np.maximum(pair.mass * -np.expm1(np.minimum(sign * e[:, None] - losses, 0)), 0).sum(
            axis=1
        )
        target = hull(e) if sign > 0 else -np.expm1(-e) + np.exp(-e) * hull(e)
        assert np.all(direct >= target * (1 - 1e-12))
        assert np.all(direct <= target * (1 + 1e-6) + 1e-12)


def test_noise_in_the_bounds_is_hulled_away():
    # convex bounds with 2 % noise: without the hull composition is useless
    e = np.linspace(0, 12, 1201)
    rng = np.random.default_rng(1)
    noisy = PrivacyProfile(
        tuple(e), tuple(np.minimum(gaussian_delta(0.2, e) * (1 + 0.02 * rng.random(e.size)), 1)), neighbours=R
    )
    exact = gaussian_epsilon(0.2 * math.sqrt(50), 1e-3)
    assert exact <= (50 * noisy).epsilon(1e-3) <= 1.02 * exact


def test_any_tilt_is_valid():
    parts = [(part.there, 30) for part in discretise([(gaussian(0.4), 30)])]
    exact = gaussian_delta(0.4 * math.sqrt(30), 5.0)
    for tilt in (0.0, 0.1, 1.0, 3.0, 20.0, 200.0):
        assert compose(parts, tilt, 5.0).delta(5.0) >= exact


# --- Losses known by their profile


@pytest.mark.parametrize(("q", "s"), [(0.01, 1.0), (0.3, 2.0), (1e-4, 0.7), (0.5, 0.4), (1.0, 1.3)])
def test_subsampled_renyi_is_that_of_the_pair_at_any_order(q, s):
    loss = SubsampledGaussian(q, s, neighbours=AR)
    for alpha in (1.01, 1.5, 2.0, 7.3, 20.0):
        with mp.workdps(40):
            u, qq = 1 / mp.mpf(s), mp.mpf(q)
            peak = alpha * u
            moment = mp.quad(
                lambda z, u=u, qq=qq, alpha=alpha: (
                    mp.npdf(z) * (1 - qq + qq * mp.exp(u * z - u * u / 2)) ** mp.mpf(alpha)
                ),
                [-14, -5, 0, peak / 2, peak, peak + 5, peak + 14],
            )
            exact = float(mp.log(moment) / (mp.mpf(alpha) - 1))
        assert exact * (1 - 1e-13) <= loss.renyi(alpha) <= exact * (1 + 1e-7)
    curve = loss.renyi_excess(np.geomspace(1e-9, 1e9, 300))
    assert np.all(np.diff(curve) >= -1e-6 * curve[1:])
    assert np.all(curve <= (1 + np.geomspace(1e-9, 1e9, 300)) / (2 * s * s) * (1 + 1e-12) + 1e-4 / s**2)


def test_subsampled_profiles_are_those_of_the_pairs():
    z = np.linspace(-12, 14, 400_001)
    for q, s in ((0.2, 1.0), (0.01, 0.5), (1.0, 2.0)):
        law = lambda m: np.exp(-((z - m) ** 2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])  # noqa: E731
        u = 1 / s
        absent, present, moved = law(0), (1 - q) * law(0) + q * law(u), (1 - q) * law(0) + q * law(-u)
        e = np.array([0.0, 0.01, 0.3, 1.0, 1.5, 3.0])
        there, back = SubsampledGaussian(q, s, neighbours=AR)._profiles(e)
        replaced = SubsampledGaussian(q, s, neighbours=R)._profile(e)
        for found, p, w in ((there, present, absent), (back, absent, present), (replaced, present, moved)):
            exact = profile_of(p, w, e)
            assert np.all(found >= exact - 1e-10)
            assert np.all(found <= exact + 1e-8)


def test_replacing_in_a_sample_is_worst_opposite():
    rng = np.random.default_rng(3)
    q, u, e = 0.3, 1.4, 0.8
    bound = SubsampledGaussian(q, 1 / u, neighbours=R).delta(e)
    grid = np.stack(np.meshgrid(*[np.linspace(-7, 7, 281)] * 2), axis=-1).reshape(-1, 2)
    law = lambda m: np.exp(-((grid - m) ** 2).sum(axis=1) / 2) / (2 * math.pi) * 0.05**2  # noqa: E731
    worst = 0.0
    for _ in range(60):
        b, c = (u * rng.uniform(0.7, 1) * x / np.linalg.norm(x) for x in rng.normal(size=(2, 2)))
        worst = max(worst, float(profile_of((1 - q) * law(0) + q * law(b), (1 - q) * law(0) + q * law(c), e)))
    assert 0.5 * bound < worst <= bound + 1e-6


@pytest.mark.parametrize("e", [1e-6, 0.1, 1.0, 8.0])
def test_laplace_is_the_closed_form(e):
    loss = LaplaceDP(e, neighbours=R)
    for alpha in (1.0000001, 1.5, 3.0, 50.0, 1e6):
        with mp.workdps(40):
            a, ee = mp.mpf(alpha), mp.mpf(e)
            exact = mp.log(a / (2 * a - 1) * mp.exp((a - 1) * ee) + (a - 1) / (2 * a - 1) * mp.exp(-a * ee)) / (a - 1)
            exact = float(exact)
        assert exact * (1 - 1e-15) <= loss.renyi(alpha) <= exact * (1 + 1e-14) + 1e-14 * e
    assert loss.delta(e / 2) == pytest.approx(-math.expm1(-e / 4), rel=1e-12)
    assert loss.delta(loss.epsilon(1e-3)) <= 1e-3 * (1 + 1e-12)
    assert (loss.epsilon(0.0), loss.delta(e)) == (e, 0)
    # two coordinates are no easier to tell apart than one that moves as far
    pair = LaplaceDP(e / 3, neighbours=R) + LaplaceDP(2 * e / 3, neighbours=R)
    for epsilon in (0.2 * e, 0.5 * e, 0.9 * e):
        assert pair.delta(epsilon) <= loss.delta(epsilon) * (1 + 1e-9)


def test_tables():
    plain = PrivacyProfile((1.0,), (1e-6,), neighbours=R)
    assert plain.epsilon(1e-6) == pytest.approx(1.0, rel=1e-12)
    assert plain.epsilon(1e-7) == math.inf
    # the pair of Kairouz, Oh and Viswanath
    assert plain.delta(0.5) == pytest.approx(1e-6 + (1 - 1e-6) * (math.e - math.exp(0.5)) / (1 + math.e), rel=1e-12)
    assert plain.renyi(2.0) == math.inf
    assert (10 * plain).epsilon(1e-4) < 10.0
    assert (10 * plain).epsilon(1e-5) == math.inf
    pure = PrivacyProfile((0.5, 1.0), (1.0, 0.0), neighbours=R)
    for alpha in (1.0, 1.5, 10.0, math.inf):
        exact = PureDP(1.0, neighbours=R).renyi(alpha)
        assert exact * (1 - 1e-12) <= pure.renyi(alpha) <= exact * (1 + 1e-4)
    for bad in (
        ((), ()),
        ((1.0,), (1.5,)),
        ((1.0, 0.5), (0.1, 0.2)),
        ((-1.0,), (0.1,)),
        ((1.0,), (0.1, 0.2)),
        ((1.0,), (math.nan,)),
    ):
        with pytest.raises(ValueError, match="privacy profile"):
            PrivacyProfile(*bad, neighbours=R)


NEW = [
    PrivacyProfile((0.0, 0.5, 2.0), (0.3, 0.1, 1e-5), neighbours=R, rule="mine"),
    LaplaceDP(0.3, neighbours=AR),
    SubsampledGaussian(0.01, 1.1, neighbours=AR),
    SubsampledGaussian(0.01, 1.1, neighbours=R),
    3 * LaplaceDP(0.3, neighbours=AR) + GaussianDP(0.2, neighbours=AR),
]


@pytest.mark.parametrize("loss", NEW, ids=repr)
def test_stored_losses_are_the_same(loss):
    again = PrivacyLoss.from_dict(json.loads(json.dumps(loss.to_dict(1e-4))))
    assert again == loss
    assert hash(again) == hash(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert again.epsilon(1e-4) == loss.epsilon(1e-4)


@pytest.mark.parametrize("loss", [*NEW, 2 * NEW[0]], ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-12, 1e-4, 0.3, 1 - 1e-12])
def test_every_delta_is_answered_consistently(loss, delta):
    start = time.process_time()
    epsilon = loss.epsilon(delta)
    assert time.process_time() - start < 2
    assert epsilon >= 0
    if math.isfinite(epsilon):
        assert loss.delta(epsilon) <= delta * (1 + 1e-3)


def test_subsampling_is_refused_out_of_range():
    for q, s in ((0.0, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, math.inf), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="subsampled Gaussian"):
            SubsampledGaussian(q, s, neighbours=AR)


# --- Composition of losses


@pytest.mark.parametrize("kind", [PureDP, BoundedRange])
def test_one_different_loss_more_than_are_composed_is_no_cliff(kind):
    """Beyond 256 kinds losses are rounded up: never below what all of them give, and hardly above."""

    def spent(count):
        return Composition(tuple((kind(float(e), neighbours=R), 1) for e in np.linspace(0.01, 0.05, count)))

    few, more, many = spent(256).epsilon(1e-6), spent(257), spent(400)
    assert few < more.guarantee(1e-6, numerical=True).epsilon <= more.epsilon(1e-6) <= few * 1.005
    exact = many.guarantee(1e-6, numerical=True).epsilon
    assert exact <= many.epsilon(1e-6) <= exact * 1.005
    assert more.delta(few, numerical=True) <= more.delta(few) <= more.delta(few, numerical=True) * 1.05


def test_losses_are_put_together_at_the_largest_of_their_group():
    mixed = [(kind(e, neighbours=R), count) for count, e in enumerate((0.1, 0.1001, 0.3, math.inf), 1)
             for kind in (PureDP, LaplaceDP)]  # fmt: skip
    parts = (*mixed, (GaussianDP(1.0, neighbours=R), 1))
    fewer = _fewer(parts, 7)
    assert fewer is not None
    assert len(fewer) == 7
    assert {(type(loss), loss.epsilon_value, count) for loss, count in fewer if not isinstance(loss, GaussianDP)} == {
        (kind, e, count) for kind in (PureDP, LaplaceDP) for e, count in ((0.1001, 3), (0.3, 3), (math.inf, 4))
    }
    assert _fewer(parts, 2) is None
    others = tuple((SubsampledGaussian(0.1, s, neighbours=R), 1) for s in (1.0, 2.0, 3.0))
    assert _fewer(others, 2) is None


def test_numerical_composition_is_on_request_except_for_profiles():
    curve = RenyiCurve(lambda x: (1 + x) / (1 - x / 3) / 10, 3.0, neighbours=R, rule="a curve")
    beside = GaussianDP(0.5, neighbours=R) + 5 * curve
    assert "numerically" not in beside.guarantee(1e-6).rule
    loss = beside + 20 * PureDP(0.1, neighbours=R)
    default, asked = loss.guarantee(1e-6, numerical=False), loss.guarantee(1e-6, numerical=True)
    assert asked == loss.guarantee(1e-6)
    assert "numerically" not in default.rule
    assert asked.rule.startswith("privacy-loss distributions composed numerically (Gaussian DP")
    assert asked.epsilon < default.epsilon
    assert asked.order is None
    assert loss.delta(asked.epsilon, numerical=True) == pytest.approx(1e-6, rel=1e-3)
    # curves alone: their sum is all that is known
    assert (5 * curve).guarantee(1e-6, numerical=True) == (5 * curve).guarantee(1e-6)
    assert (loss + LaplaceDP(0.01, neighbours=R)).guarantee(1e-6).rule.startswith("privacy-loss distributions")
    assert loss.guarantee(0.0, numerical=True).epsilon == math.inf


def test_the_best_route_wins_and_none_is_worse():
    losses = [
        GaussianDP(0.4, neighbours=R),
        BoundedRange(0.3, neighbours=R),
        PureDP(0.2, neighbours=R),
        LaplaceDP(0.2, neighbours=R),
        RenyiCurve(lambda x: 0.02 * (1 + x), neighbours=R, rule="c"),
    ]
    for a, b in itertools.combinations(losses, 2):
        for counts in ((1, 1), (7, 3)):
            total = counts[0] * a + counts[1] * b
            for delta in (1e-2, 1e-9):
                best = total.guarantee(delta, numerical=True).epsilon
                assert best <= total.guarantee(delta, numerical=False).epsilon
                # not below one part alone
                assert best >= max(a.guarantee(delta).epsilon if a._exact_profile else 0, 0) * (1 - 1e-9)


def test_pure_and_bounded_range_losses_gain():
    ranges = 50 * BoundedRange(0.2, neighbours=R)
    assert ranges.epsilon(1e-6) <= ranges.guarantee(1e-6, numerical=False).epsilon
    pure = 100 * PureDP(0.1, neighbours=R)
    assert pure.epsilon(1e-5) == pytest.approx(4.30679, rel=1e-4)
    assert pure.guarantee(1e-5, numerical=False).epsilon > 4.6


def mirrored(delta):
    """A profile on the whole line from one at epsilon >= 0 that serves both orders."""
    return lambda e: delta(e) if e >= 0 else -math.expm1(e) + math.exp(e) * delta(-e)


def least(delta_at, delta, most=60.0):
    return brentq(lambda e: math.log(delta_at(e) / delta), 0.0, most, xtol=1e-13)


@pytest.mark.parametrize(("mu", "e"), [(0.27, 0.1), (1.0, 2.0), (0.01, 0.3), (3.0, 0.05)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_a_pure_loss_beside_a_gaussian_one_costs_what_randomised_response_does(mu, e, delta):
    """By mixing the Gaussian profile over the two losses of randomised response."""
    curve, p = mirrored(lambda epsilon: gaussian_delta(mu, epsilon)), 1 / (1 + math.exp(-e))
    exact = least(lambda epsilon: p * curve(epsilon - e) + (1 - p) * curve(epsilon + e), delta)
    found = (GaussianDP(mu, neighbours=R) + PureDP(e, neighbours=R)).epsilon(delta)
    # the lattice is as fine as the sum needs, not as its smallest part would
    assert exact <= found <= exact + 1e-4 * exact + 0.05 * mu
    if (mu, delta) == (0.27, 1e-5):
        assert found == pytest.approx(1.06692, rel=1e-5)


def test_two_pure_losses_of_different_size_cost_what_randomised_responses_do():
    delta = 1e-3
    laws = [[(s * e, 1 / (1 + math.exp(-s * e))) for s in (1, -1)] for e in (0.7, 0.31, 0.31)]
    outcomes = [(sum(l for l, _ in each), math.prod(p for _, p in each)) for each in itertools.product(*laws)]
    exact = least(lambda epsilon: sum(p * -math.expm1(epsilon - l) for l, p in outcomes if l > epsilon), delta, 1.3199)
    found = (PureDP(0.7, neighbours=R) + 2 * PureDP(0.31, neighbours=R)).epsilon(delta)
    assert exact <= found <= exact * (1 + 1e-3)
    assert found < 1.32  # their sum


@pytest.mark.parametrize(("mu", "eta"), [(0.2, 0.5), (1.0, 2.0)])
def test_bounded_range_beside_a_gaussian_loss_is_never_undercut(mu, eta):
    """By all two-point laws, and by two of them of which the second is chosen after the first was seen."""
    curve = mirrored(lambda epsilon: gaussian_delta(mu, epsilon))
    t = np.linspace(0.0, eta, 101)
    q = np.expm1(eta - t) / math.expm1(eta)  # of Q at t
    there, back = q * np.exp(t), (1 - q) * np.exp(t - eta)

    def worst(inner, epsilon):
        laws = zip(t, there, back, strict=True)
        return max(p * inner(epsilon - a) + r * inner(epsilon - a + eta) for a, p, r in laws)

    one = GaussianDP(mu, neighbours=R) + BoundedRange(eta, neighbours=R)
    two = 2 * BoundedRange(eta, neighbours=R)
    exactly = mirrored(BoundedRange(eta, neighbours=R).delta)
    for epsilon in (0.3 * eta, eta, 1.5 * eta):
        exact = worst(curve, epsilon)
        assert exact * (1 - 1e-12) <= one.delta(epsilon) <= 1.4 * exact  # by one pair, for all t
        assert worst(exactly, epsilon) * (1 - 1e-12) <= two.delta(epsilon)
    assert one.epsilon(1e-6) < one.guarantee(1e-6, numerical=False).epsilon


def test_dp_accounting_composes_pure_and_gaussian_losses_alike():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    response = pld.from_randomized_response(2 / (1 + math.exp(0.4)), 2, value_discretization_interval=1e-4)
    noise = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-4)
    theirs = response.self_compose(5).compose(noise).get_epsilon_for_delta(1e-6)
    ours = (5 * PureDP(0.4, neighbours=R) + GaussianDP(0.5, neighbours=R)).epsilon(1e-6)
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_more_than_256_different_losses_that_are_not_pure_are_composed_numerically_on_request_alone():
    few = sum((PureDP(0.01 + 1e-5 * k, neighbours=R) for k in range(255)), GaussianDP(0.1, neighbours=R))
    assert "numerically" in few.guarantee(1e-6).rule
    assert "numerically" in (few + PureDP(0.2, neighbours=R)).guarantee(1e-6).rule
    table = [PrivacyProfile((0.0, 0.01 + 1e-5 * k), (0.01, 0.0), neighbours=R) for k in range(257)]
    assert "numerically" not in sum(table).guarantee(1e-6).rule


@pytest.mark.parametrize("e", [0.0, 5e-324, 1e-200, 700.0, 1e300, math.inf])
@pytest.mark.parametrize("count", [1, 10**18])
@pytest.mark.parametrize("kind", [PureDP, BoundedRange, LaplaceDP])
def test_extreme_pure_losses_fail_closed(kind, e, count):
    gaussian, total = GaussianDP(0.5, neighbours=R), GaussianDP(0.5, neighbours=R) + count * kind(e, neighbours=R)
    for delta in (1e-300, 1e-6, 0.5):
        found = total.epsilon(delta)
        # at least the Gaussian part, at most the sum
        assert gaussian.epsilon(delta) * (1 - 1e-4) <= found <= (count * e + gaussian.epsilon(delta)) * (1 + 1e-12)
    for epsilon in (0.0, 1.0, 50.0):
        assert gaussian.delta(epsilon) * (1 - 1e-4) <= total.delta(epsilon) <= 1.0


def test_relations_are_never_mixed():
    with pytest.raises(NeighbourMismatch):
        LaplaceDP(0.1, neighbours=AR) + SubsampledGaussian(0.1, 1.0, neighbours=R)


def test_it_fails_closed():
    assert numerical_epsilon([(both(lambda e: np.full(e.shape, math.nan)), 1)], 1e-5) == math.inf
    assert numerical_delta([(both(lambda e: np.full(e.shape, math.nan)), 1)], 3.0) == 1.0
    half = PrivacyProfile((1.0,), (0.5,), neighbours=R)
    assert (3 * half).epsilon(0.1) == math.inf
    assert (3 * half).delta(5.0) == 1.0
    hopeless = GaussianDP(math.inf, neighbours=R) + LaplaceDP(0.1, neighbours=R)
    assert hopeless.epsilon(1e-5) == math.inf
    assert hopeless.delta(1.0) == 1.0
    assert (LaplaceDP(math.inf, neighbours=R) * 2).epsilon(1e-5) == math.inf
    free = LaplaceDP(0.0, neighbours=R) + LaplaceDP(1e-9, neighbours=R)
    assert 0 <= free.epsilon(1e-5) <= 1e-9
    # far below the resolution of the lattice, and far beyond it
    assert numerical_delta([(gaussian(1.0), 4)], 1e9) < 1e-50
    assert numerical_epsilon([(gaussian(1e-9), 3)], 1e-5) <= 1e-8
    wide = [(gaussian(300.0), 2), (gaussian(1e-4), 1)]
    assert numerical_epsilon(wide, 1e-5) >= gaussian_epsilon(300.0 * math.sqrt(2), 1e-5)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 3), st.floats(0.3, 40), st.floats(0, 20))
def test_the_envelope_is_the_conversion(scale, supremum, epsilon):
    def renyi(x):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x < supremum, scale * (1 + x) / (1 - x / supremum), np.inf)

    exact = float(renyi_to_delta(renyi, supremum, epsilon)[0])
    found = renyi_envelope(renyi, supremum)(np.array([epsilon]))[0][0]
    # a grid of orders: its distance from the best order counts for more, the smaller delta is
    near = 1.02 if exact > 1e-30 else 1.2
    assert exact * (1 - 1e-9) <= found <= exact * near + 1e-300
