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

from discretion.privacy.conversion import gaussian_epsilon, renyi_to_epsilon
from discretion.privacy.loss import (
    BoundedRange,
    Composition,
    GaussianDP,
    Guarantee,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PureDP,
    RenyiCurve,
)

DELTAS = [10.0**-k for k in range(2, 11)]


def gaussian(mu):
    return GaussianDP(mu, neighbours=Neighbours.REPLACE)


def pure(epsilon):
    return PureDP(epsilon, neighbours=Neighbours.REPLACE)


def ranged(eta):
    return BoundedRange(eta, neighbours=Neighbours.REPLACE)


def curve(function, supremum=math.inf, rule="a curve"):
    return RenyiCurve(function, supremum, neighbours=Neighbours.REPLACE, rule=rule)


def posterior_path(tau, distance):
    def function(x):
        a = 1 + x
        covariance = -np.log1p(-a * x * tau**2 / (1 + tau)) / (2 * x)
        return covariance + a / 2 * (1 + tau) / (1 - x * tau) * distance**2

    return curve(function, 1 / tau, "posterior path")


def shift(x):
    return (1 + x) * 0.18


LOSSES = [
    gaussian(0.7),
    pure(0.4),
    ranged(1.3),
    posterior_path(0.9, 1.0),
    posterior_path(9.0, 0.3),
    curve(shift),
    gaussian(0.7) + 3 * posterior_path(0.9, 1.0) + pure(0.2),
    5 * ranged(0.3) + pure(0.1),
    2 * curve(shift) + ranged(0.5),
]


# --- Orders


def test_order_range_and_orders_outside_it():
    path = posterior_path(0.5, 1.0)
    assert path.order_range == (1.0, 3.0)
    assert path.renyi(3.0) == math.inf
    assert path.renyi(50.0) == math.inf
    assert 0 < path.renyi(2.999) < math.inf
    assert gaussian(1.0).order_range == (1.0, math.inf)
    for order in (0.999, 0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"at least 1.*\(1\.0, 3\.0\)"):
            path.renyi(order)
    with pytest.raises(ValueError, match="at least 0"):
        path.renyi_excess(-1e-12)


def test_order_one_is_the_kullback_leibler_divergence():
    assert gaussian(0.7).renyi(1) == pytest.approx(0.245, rel=1e-14)
    assert pure(0.4).renyi(1) == pytest.approx(0.4 * math.tanh(0.2), rel=1e-14)
    eta = 1.3
    kl = math.log(math.sinh(eta / 2) / (eta / 2)) + eta / 2 / math.tanh(eta / 2) - 1
    assert ranged(eta).renyi(1) == pytest.approx(kl, rel=1e-13)
    # From above where the curve itself is not defined at order 1.
    tau = 0.9
    limit = tau**2 / (2 * (1 + tau)) + (1 + tau) / 2
    assert limit <= posterior_path(tau, 1.0).renyi(1) <= limit * (1 + 1e-6)


def test_shapes_and_scalars():
    for loss in LOSSES:
        assert isinstance(loss.renyi(1.5), float)
        assert loss.renyi(np.array([[1.0, 1.01], [1.05, 900.0]])).shape == (2, 2)
        assert loss.renyi_excess(np.zeros((0, 2))).shape == (0, 2)
        for x in (1e-9, 0.03, 0.1):
            assert loss.renyi(1 + x) == pytest.approx(loss.renyi_excess(x), rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_curves_do_not_decrease(loss):
    x = np.concatenate([[0], np.geomspace(1e-9, 1e9, 400)])
    values = loss.renyi_excess(x)
    assert np.all(values[1:] >= values[:-1] * (1 - 1e-7))
    assert values[0] > 0


# --- Renyi curves: validation


def test_inconsistent_curves_are_refused():
    with pytest.raises(ValueError, match="never negative"):
        curve(lambda x: x - 1e-6).epsilon(1e-5)
    with pytest.raises(ValueError, match="never decreases"):
        curve(lambda x: 5 / (1 + x)).epsilon(1e-5)
    with pytest.raises(ValueError, match="never decreases"):
        curve(lambda x: np.where(np.isinf(x), 0.0, 1 + x)).epsilon(1e-5)
    with pytest.raises(ValueError, match="one bound for each"):
        curve(lambda x: 1.0).epsilon(1e-5)
    for supremum in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="supremum"):
            curve(shift, supremum)
    with pytest.raises(ValueError, match="neighbours must be 'replace' or 'replace-response' or 'add-remove'"):
        RenyiCurve(shift, neighbours="swap", rule="r")  # pyright: ignore[reportArgumentType]


def test_rounding_is_forgiven():
    tiny = curve(lambda x: np.where(x < 1e-3, -1e-12, (1 + x) / 2))
    assert tiny.renyi_excess(1e-4) == 0
    assert tiny.epsilon(1e-5) == pytest.approx(curve(lambda x: (1 + x) / 2).epsilon(1e-5), rel=1e-12)
    # Rounding of a cumulant, divided by a small excess order.
    noisy = curve(lambda x: (1 + x) * 1e-3 + 1e-16 * np.sin(1e3 * np.log(x)) / x)
    assert 0 < noisy.epsilon(1e-5) < 1


def test_negative_noise_does_not_hide_a_loss():
    # A tiny negative value at one order and a large one elsewhere is not "no loss".
    assert curve(lambda x: np.where(x < 1, -1e-12, 50.0)).epsilon(1e-5) > 5


def test_nan_and_infinity_are_infinite():
    for function in (lambda x: x * math.nan, lambda x: x * math.inf):
        nothing = curve(function)
        assert nothing.epsilon(1e-5) == math.inf
        assert nothing.epsilon(0.999) == math.inf
        assert nothing.delta(100.0) == 1
        assert nothing.guarantee(1e-5).order is None
        assert (nothing + gaussian(1.0)).epsilon(1e-5) == math.inf
        assert (nothing + pure(1.0)).delta(50.0) == 1
    assert curve(lambda x: np.where(x > 2, math.nan, 0.1)).epsilon(1e-5) > 0.1


def test_the_infinite_order_is_ignored_where_infinite_and_used_where_finite():
    finite = curve(lambda x: np.where(np.isinf(x), math.inf, (1 + x) * 50.0)).epsilon(1e-5)
    assert 0 < finite < math.inf
    assert curve(lambda x: (1 + x) * 50.0).epsilon(1e-5) == finite
    assert curve(lambda x: np.full(x.shape, 1.5)).epsilon(0.0) == pytest.approx(1.5, rel=1e-13)

    def no_infinite_order(x):
        return np.array([float(int(1 + each)) for each in x])  # int(inf) raises

    assert 0 < curve(no_infinite_order).epsilon(1e-5) < math.inf
    assert curve(no_infinite_order).epsilon(0.0) == math.inf


def test_short_ranges_of_orders_give_finite_epsilons():
    for ridge, expected in [
        (0.2, 2569.4),
        (0.3, 713.13),
        (0.5, 165.55),
        (1, 31.046),
        (2, 8.2130),
        (5, 2.09495),
    ]:
        assert posterior_path(0.9 / ridge**2, 2 / ridge).epsilon(1e-5) == pytest.approx(expected, rel=1e-3)


# --- Guarantees


def test_the_rule_and_order_are_reported():
    guarantee = posterior_path(0.9, 1.0).guarantee(1e-5)
    assert guarantee.rule == "posterior path, Renyi to DP (Balle et al. 2020)"
    assert guarantee.order is not None
    assert 1 < guarantee.order < 1 + 1 / 0.9
    assert guarantee.neighbours is Neighbours.REPLACE
    by_order = curve(shift, rule=lambda x: "small" if x < 5 else "large")
    assert by_order.guarantee(0.5).rule.startswith("small")
    assert by_order.guarantee(1e-9).rule.startswith("large")
    assert gaussian(1.0).guarantee(1e-5).order is None


def test_printed_epsilons_are_rounded_up():
    text = str(Guarantee(1.00001, 1e-5, None, "a rule", Neighbours.REPLACE))
    assert text == "epsilon <= 1.0001 at delta = 1e-05 (replace neighbours; a rule)"
    assert "epsilon <= inf" in str(Guarantee(math.inf, 1e-5, None, "a rule", Neighbours.ADD_REMOVE))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_queries_do_not_change_anything(loss):
    before = loss.to_dict()
    first = [(loss.epsilon(d), loss.delta(1.0), loss.guarantee(d)) for d in (1e-3, 1e-9)]
    second = [(loss.epsilon(d), loss.delta(1.0), loss.guarantee(d)) for d in (1e-3, 1e-9)]
    assert first == second
    assert loss.to_dict() == before


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-12, 1e-5, 0.3, 1 - 1e-12])
def test_every_delta_is_answered_at_once_and_consistently(loss, delta):
    start = time.process_time()
    epsilon = loss.epsilon(delta)
    assert time.process_time() - start < 1
    assert epsilon >= 0
    if math.isfinite(epsilon):
        assert loss.delta(epsilon) <= delta * (1 + 1e-9)
    else:
        assert delta == 0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_epsilon_falls_with_delta_and_delta_with_epsilon(loss):
    epsilons = [loss.epsilon(delta) for delta in DELTAS]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(epsilons))
    deltas = [loss.delta(epsilon) for epsilon in np.linspace(0, 10, 20)]
    assert all(a >= b * (1 - 1e-12) for a, b in itertools.pairwise(deltas))
    assert all(0 <= delta <= 1 for delta in deltas)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_bad_targets_are_refused(loss):
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            loss.epsilon(delta)
    for epsilon in (-1e-9, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            loss.delta(epsilon)


# --- Gaussian DP


def test_full_batch_composition_is_exact():
    total = 50 * gaussian(0.1)
    assert total.mu == pytest.approx(math.sqrt(50) / 10, rel=1e-15)
    assert total.epsilon(1e-5) == pytest.approx(2.94323, rel=1e-4)
    assert gaussian(0.2).epsilon(1e-5) == pytest.approx(0.72552, rel=1e-4)
    assert gaussian(1.0).epsilon(1e-5) == pytest.approx(4.37718, rel=1e-4)


def test_gaussian_sums_are_gaussian_exact_and_never_below():
    assert gaussian(3.0) + gaussian(4.0) == gaussian(5.0)
    assert 100 * gaussian(0.1) == gaussian(1.0)
    assert 4 * gaussian(1.0) == Composition(((gaussian(1.0), 3), (gaussian(1.0), 1))).parts[0][0] == gaussian(2.0)
    assert sum([gaussian(1.0)] * 4).mu == pytest.approx(2.0, rel=1e-15)
    rng = np.random.default_rng(0)
    for mu in rng.uniform(0, 3, (50, 5)).tolist():
        total = sum(gaussian(each) for each in mu)
        with mp.workdps(50):
            exact = mp.sqrt(mp.fsum(mp.mpf(repr(each)) ** 2 for each in mu))
            assert exact <= mp.mpf(repr(total.mu)) <= exact * (1 + mp.mpf("1e-15"))
    assert (gaussian(1e-300) + gaussian(1e-300)).mu == pytest.approx(math.sqrt(2) * 1e-300, rel=1e-12)
    assert (gaussian(1e200) + gaussian(1e200)).mu == pytest.approx(math.sqrt(2) * 1e200, rel=1e-12)
    assert (gaussian(math.inf) + gaussian(1.0)).epsilon(0.5) == math.inf


def test_the_neighbour_relation_decides_the_loss_and_is_required():
    # A sum of values clipped to [-1, 1] with noise 4 moves by 1 when one is added, by 2 when one is replaced.
    added = GaussianDP(1 / 4, neighbours=Neighbours.ADD_REMOVE)
    replaced = GaussianDP(2 / 4, neighbours=Neighbours.REPLACE)
    assert replaced.epsilon(1e-5) == pytest.approx(gaussian_epsilon(0.5, 1e-5))
    assert added.epsilon(1e-5) < replaced.epsilon(1e-5)
    assert "add-remove" in str(added.guarantee(1e-5))
    with pytest.raises(TypeError):
        GaussianDP(1.0)  # pyright: ignore[reportCallIssue]
    for combine in (
        lambda: added + replaced,
        lambda: Composition(((added, 1), (replaced, 2))),
        lambda: Composition(((added, 0), (replaced, 1))),
        lambda: sum([added, curve(shift)]),
    ):
        with pytest.raises(NeighbourMismatch, match="neighbour relations"):
            combine()
    assert issubclass(NeighbourMismatch, ValueError)


# --- Pure DP and bounded range against the worst mechanisms


def two_point(t, eta):
    """Law of the loss under Q on {t, t - eta} with mean of its exponential 1."""
    top = (mp.exp(-t) - mp.exp(-eta)) / (1 - mp.exp(-eta))
    return [(top, t), (1 - top, t - eta)]


def renyi_of(law, alpha):
    return mp.log(mp.fsum(q * mp.exp(alpha * loss) for q, loss in law)) / (alpha - 1)


def delta_of(law, epsilon):
    return mp.fsum(q * max(mp.exp(loss) - mp.exp(epsilon), 0) for q, loss in law)


@settings(max_examples=150)
@given(log_e=st.floats(-8, 2.5), log_x=st.floats(-8, 10))
def test_pure_renyi_is_that_of_randomised_response(log_e, log_x):
    e, x = 10**log_e, min(10**log_x, 1e5 * 10**-log_e)
    with mp.workdps(300):
        top = 1 / (1 + mp.exp(mp.mpf(e)))
        law = [(top, mp.mpf(e)), (1 - top, -mp.mpf(e))]
        exact, found = renyi_of(law, 1 + mp.mpf(x)), pure(e).renyi_excess(x)
        assert exact <= found <= exact * (1 + mp.mpf("1e-13"))
    assert found <= e


@settings(max_examples=100)
@given(log_e=st.floats(-6, 2.5), delta=st.floats(1e-12, 1 - 1e-12), fraction=st.floats(0, 1))
def test_pure_profile_is_that_of_randomised_response(log_e, delta, fraction):
    e = 10**log_e
    with mp.workdps(300):
        top = 1 / (1 + mp.exp(mp.mpf(e)))
        law = [(top, mp.mpf(e)), (1 - top, -mp.mpf(e))]
        exact, found = delta_of(law, mp.mpf(fraction * e)), pure(e).delta(fraction * e)
        assert exact <= found <= exact * (1 + mp.mpf("1e-12"))
        epsilon = pure(e).epsilon(delta)
        assert delta_of(law, mp.mpf(epsilon)) <= delta
        if epsilon > 0:
            assert delta_of(law, mp.mpf(epsilon) - mp.mpf(e) * mp.mpf("1e-12")) > delta


@pytest.mark.parametrize("eta", [1e-3, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("x", [1e-4, 0.2, 1.0, 7.0, 300.0])
def test_bounded_range_renyi_is_the_worst_of_all_two_point_laws(eta, x):
    found = ranged(eta).renyi_excess(x)
    with mp.workdps(60):
        # All t in (0, eta), in equal steps and in steps that close in on eta.
        places = [*np.linspace(0, 1, 400)[1:-1], *(1 - np.geomspace(1e-5, 1, 400)[:-1])]
        exact = max(renyi_of(two_point(mp.mpf(eta * t), mp.mpf(eta)), 1 + mp.mpf(x)) for t in places)
        assert exact <= found <= exact * (1 + mp.mpf("1e-3"))
    assert found <= min(eta, (1 + x) * eta**2 / 8 * (1 + 1e-14))


@settings(max_examples=150)
@given(log_eta=st.floats(-8, 2.5), log_x=st.floats(-8, 10))
def test_bounded_range_renyi_against_many_digits(log_eta, log_x):
    eta, x = 10**log_eta, min(10**log_x, 1e5 * 10**-log_eta)
    found = ranged(eta).renyi_excess(x)
    with mp.workdps(120):
        # Largest over t at e^t = -(alpha - 1) D / (alpha C).
        e, a = mp.mpf(eta), 1 + mp.mpf(x)
        d = (1 - mp.exp(-a * e)) / (1 - mp.exp(-e))
        c = mp.exp(-a * e) - d * mp.exp(-e)
        t = mp.log(-(a - 1) * d / (a * c))
        assert 0 < t < e
        exact = mp.log(c * mp.exp(a * t) + d * mp.exp((a - 1) * t)) / (a - 1)
        assert exact <= found <= exact * (1 + mp.mpf("1e-13"))


@settings(max_examples=100)
@given(log_eta=st.floats(-5, 2.5), delta=st.floats(1e-12, 1 - 1e-12), fraction=st.floats(0, 1))
def test_bounded_range_profile_is_the_worst_of_all_two_point_laws(log_eta, delta, fraction):
    eta = 10**log_eta
    with mp.workdps(60):
        e, epsilon = mp.mpf(eta), mp.mpf(fraction * eta)
        worst = max(delta_of(two_point(e * k / 60, e), epsilon) for k in range(1, 60))
        exact, found = delta_of(two_point((epsilon + e) / 2, e), epsilon), ranged(eta).delta(fraction * eta)
        assert worst <= exact * (1 + mp.mpf("1e-40")) + mp.mpf("1e-50")
        assert exact <= found <= exact * (1 + mp.mpf("1e-9")) + mp.mpf("1e-300")
        epsilon = mp.mpf(ranged(eta).epsilon(delta))
        assert delta_of(two_point((epsilon + e) / 2, e), epsilon) <= delta
        if epsilon > 0:
            lower = epsilon - e * mp.mpf("1e-12")
            assert delta_of(two_point((lower + e) / 2, e), lower) > delta


def test_an_exponential_mechanism_is_within_its_range():
    rng = np.random.default_rng(3)
    for _ in range(100):
        eta = 10 ** rng.uniform(-2, 1)
        scores = rng.normal(size=6) * 3
        p = np.exp(scores)
        q = np.exp(scores + rng.uniform(0, eta, 6))
        p, q = p / p.sum(), q / q.sum()
        for order in (1.01, 2.0, 20.0):
            exact = np.log(np.sum(q * (p / q) ** order)) / (order - 1)
            assert exact <= ranged(eta).renyi(order) * (1 + 1e-9) + 1e-12
        for epsilon in (0.0, eta / 3):
            assert np.maximum(p - np.exp(epsilon) * q, 0).sum() <= ranged(eta).delta(epsilon) + 1e-15


def test_ends_of_the_parametric_losses():
    orders = np.array([0.0, 1e-8, 1.0, 1e5, 1e12, math.inf])
    for kind in (gaussian, pure, ranged):
        assert np.all(kind(0.0).renyi_excess(orders) == 0)
        assert kind(0.0).epsilon(0.0) == 0
        assert kind(0.0).delta(0.0) == 0
        assert np.all(kind(math.inf).renyi_excess(orders) == math.inf)
        assert kind(math.inf).epsilon(0.5) == math.inf
        assert kind(math.inf).delta(1e6) == 1
        for size in (1e-300, 1e-12, 1e3, 1e8, 1e300):
            values = kind(size).renyi_excess(orders)
            assert np.all(values > 0)
            assert np.all(values[1:] >= values[:-1])
            assert 0 <= kind(size).delta(size / 2) <= 1
        for size in (-1.0, math.nan):
            with pytest.raises(ValueError, match="at least 0"):
                kind(size)
    for kind in (pure, ranged):
        assert kind(2.0).epsilon(0.0) == 2.0
        assert kind(2.0).renyi_excess(math.inf) == 2.0
        assert kind(2.0).delta(2.0) == 0


# --- Composition


def test_any_callable_composes_with_everything():
    own = curve(lambda x: np.log1p(x) + 0.1, 5.0, rule="my mechanism")
    others = [gaussian(0.5), pure(0.3), ranged(0.3), posterior_path(0.4, 0.5)]
    total = sum([own, *others])
    assert total.order_range == (1.0, 1 + 1 / 0.4)
    x = np.array([0.01, 0.5, 2.0])
    np.testing.assert_allclose(total.renyi_excess(x), sum(loss.renyi_excess(x) for loss in [own, *others]), rtol=1e-14)
    assert total.renyi(4.0) == math.inf
    assert "my mechanism" in total.guarantee(1e-5).rule
    assert total.epsilon(1e-5) <= sum(loss.epsilon(1e-5 / 5) for loss in [own, *others])
    assert total.epsilon(1e-5) > own.epsilon(1e-5)


def test_parts_are_opened_merged_and_dropped():
    a, b = curve(shift), pure(0.2)
    total = 2 * (a + b) + a + 3 * b + gaussian(3) + gaussian(4) + gaussian(0) + pure(0) + ranged(0)
    assert isinstance(total, Composition)
    assert dict(total.parts) == {gaussian(5.0): 1, a: 3, b: 5}
    assert total == gaussian(5.0) + 5 * b + 3 * a
    assert hash(total) == hash(gaussian(5.0) + 5 * b + 3 * a)
    assert 1 * a is a
    assert 0 * a == gaussian(0.0)
    assert 0 * a + b == b
    assert a * 2 == 2 * a == a + a
    assert np.int64(2) * a == 2 * a  # pyright: ignore[reportOperatorIssue]
    assert Composition(((a, 1),)).guarantee(1e-5) == a.guarantee(1e-5)


def test_counts_are_integers():
    for count in (True, 2.0, -1, 1.5, "2", None, np.bool_(True)):
        with pytest.raises(ValueError, match="spent"):
            gaussian(1.0) * count
    with pytest.raises(ValueError, match="at least one part"):
        Composition(())
    with pytest.raises(ValueError, match="privacy losses"):
        Composition(((0.3, 1),))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        gaussian(1.0) + 0.1  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(TypeError):
        1 + gaussian(1.0)  # pyright: ignore[reportOperatorIssue]


def test_pure_losses_add_exactly():
    ten = 10 * pure(0.1)
    assert ten.epsilon(0.0) == 1.0
    assert ten.guarantee(0.0).rule == "pure DP, basic composition"
    assert (3 * ranged(0.1) + 7 * pure(0.1)).epsilon(0.0) == 1.0
    assert ten.delta(1.0) == 0
    # The profile of a pure mechanism at the sum is used too, and the Renyi sum where it is better.
    assert (2 * pure(0.5)).epsilon(0.1) <= pure(1.0).epsilon(0.1)
    many = 1000 * pure(0.01)
    assert "Renyi" in many.guarantee(1e-6, numerical=False).rule
    assert many.epsilon(1e-6) < many.guarantee(1e-6, numerical=False).epsilon < 2


def test_the_winning_route_is_named_and_is_the_least():
    # A large pure loss beside a Gaussian one: basic composition wins over the sum of curves.
    total = gaussian(0.5) + pure(20.0)
    guarantee = total.guarantee(1e-6)
    assert guarantee.rule.startswith("pure parts added by basic composition to: Gaussian DP")
    assert guarantee.epsilon == pytest.approx(20.0 + gaussian(0.5).epsilon(1e-6), rel=1e-12)
    renyi, _ = renyi_to_epsilon(total.renyi_excess, math.inf, 1e-6)
    assert guarantee.epsilon < renyi
    # Many small pure losses beside it: the sum of curves wins.
    total = gaussian(0.5) + 400 * pure(0.02)
    guarantee = total.guarantee(1e-6, numerical=False)
    assert guarantee.rule.startswith("sum of Renyi curves (Gaussian DP")
    assert "400 x pure DP" in guarantee.rule
    assert guarantee.order is not None
    assert guarantee.epsilon < 8.0 + gaussian(0.5).epsilon(1e-6)
    # delta(epsilon) takes the same routes.
    big = gaussian(0.5) + pure(20.0)
    assert big.delta(22.0) == pytest.approx(gaussian(0.5).delta(2.0), rel=1e-9)
    assert big.delta(19.0) <= 1


def test_composition_of_finite_laws_is_never_undercut():
    rng = np.random.default_rng(5)
    for _ in range(20):
        e, eta, mu_like = rng.uniform(0.05, 1), rng.uniform(0.05, 1), rng.uniform(0.1, 1)
        keep = 1 / (1 + math.exp(-e))
        p1, q1 = np.array([keep, 1 - keep]), np.array([1 - keep, keep])
        t = eta * rng.uniform(0.1, 0.9)
        top = (math.exp(-t) - math.exp(-eta)) / (1 - math.exp(-eta))
        q2 = np.array([top, 1 - top])
        p2 = q2 * np.exp([t, t - eta])
        q3 = rng.dirichlet(np.ones(3)) + 0.05
        p3 = q3 * np.exp(mu_like * rng.normal(size=3))
        p3, q3 = p3 / p3.sum(), q3 / q3.sum()

        def third(x, p3=p3, q3=q3):
            forward = np.log(np.sum(q3 * (p3 / q3) ** (1 + x)[:, None], axis=1)) / x
            backward = np.log(np.sum(p3 * (q3 / p3) ** (1 + x)[:, None], axis=1)) / x
            return np.maximum(np.maximum(forward, backward), 0)

        p = np.einsum("i,j,k,l->ijkl", p1, p1, p2, p3).ravel()
        q = np.einsum("i,j,k,l->ijkl", q1, q1, q2, q3).ravel()
        total = 2 * pure(e) + ranged(eta) + curve(third, 60.0)
        for epsilon in (0.0, 0.5, 2.0):
            exact = max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())
            assert exact <= total.delta(epsilon) + 1e-15


# --- Values


def test_losses_are_values():
    assert gaussian(1.0) == gaussian(1.0) != gaussian(2.0)
    assert len({gaussian(1.0), gaussian(1.0), pure(1.0), ranged(1.0)}) == 3
    assert GaussianDP(1.0, neighbours="add-remove") != gaussian(1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        gaussian(1.0).mu = 2.0  # pyright: ignore[reportAttributeAccessIssue]
    for loss in LOSSES:
        assert len({loss, loss}) == 1
        assert len(repr(loss)) < 250
    assert repr(gaussian(0.5)) == "GaussianDP(0.5, neighbours='replace')"
    for loss in (gaussian(1.0), pure(1.0) + ranged(2.0), curve(shift)):
        assert pickle.loads(pickle.dumps(loss)) == loss


def test_gaussian_rules_do_not_grow():
    a = GaussianDP(0.1, neighbours=Neighbours.REPLACE, rule="a")
    b = GaussianDP(0.1, neighbours=Neighbours.REPLACE, rule="b")
    total = a
    for _ in range(20):
        total = total + b + a
    assert total.rule == "a + b"


# --- Storage


@pytest.mark.parametrize(
    "loss",
    [
        gaussian(0.1),
        gaussian(math.inf),
        pure(1 / 3),
        ranged(math.pi),
        GaussianDP(0.2, neighbours=Neighbours.ADD_REMOVE, rule="my rule"),
        2 * pure(0.1) + gaussian(0.3) + 7 * ranged(0.2),
    ],
    ids=repr,
)
def test_parametric_losses_are_stored_exactly(loss):
    text = json.dumps(loss.to_dict(), allow_nan=False)
    assert PrivacyLoss.from_dict(json.loads(text)) == loss


CURVES = {
    "shift": curve(shift),
    "small shift": curve(lambda x: (1 + x) * 5e-7),
    "large shift": curve(lambda x: (1 + x) * 50),
    "pure": curve(pure(0.8).renyi_excess),
    "range": curve(ranged(2.0).renyi_excess),
    **{f"path {tau} {d}": posterior_path(tau, d) for tau in (1e-3, 0.1, 0.9, 20.0) for d in (0.05, 1.0, 5.0)},
    "covariance only": posterior_path(0.9, 0.0),
    "finite at its end": curve(shift, 3.0),
    "infinite": curve(lambda x: x * math.inf),
    "infinite beyond": curve(lambda x: np.where(x > 4, math.inf, 0.1 + x)),
}


@pytest.mark.parametrize("name", CURVES)
def test_stored_curves_never_undercut_and_lose_little(name):
    loss = CURVES[name]
    description = json.loads(json.dumps(loss.to_dict(), allow_nan=False))
    table = PrivacyLoss.from_dict(description)
    rng = np.random.default_rng(0)
    bounded = math.isfinite(loss.supremum)
    t = rng.uniform(-30, 30, 5000)
    x = loss.supremum / (1 + np.exp(-t)) if bounded else np.exp(t)
    x = np.concatenate([x, np.asarray(description["excess"]), [0.0, 1e-12]])
    assert np.all(table.renyi_excess(x) >= loss.renyi_excess(x) * (1 - 1e-7 / (1 + 1e9 * x)))
    assert table.renyi_excess(math.inf) >= loss.renyi_excess(math.inf)
    for repeats in (1, 30, 300):
        for delta in DELTAS:
            exact, stored = (repeats * loss).epsilon(delta), (repeats * table).epsilon(delta)
            # Multiples have other optimal orders than the nodes; an epsilon close to 0 is a difference.
            slack = 1e-9 if repeats == 1 else 2e-5
            assert exact * (1 - 1e-9) <= stored <= exact * 1.005 + slack
    assert table.to_dict() == description
    assert PrivacyLoss.from_dict(table.to_dict()) == table
    assert table.rule == loss.rule if math.isfinite(loss.epsilon(1e-3)) else table.rule == "infinite"
    assert len(json.dumps(description)) < 40_000


def test_a_stored_minimum_of_bounds_still_bounds_the_divergence():
    # The least of two bounds need not be convex times x: chords may undercut it, but not the divergence.
    truth = ranged(2.0).renyi_excess
    loss = curve(lambda x: np.minimum(truth(x) * 1.3, truth(x) + 0.05 + 0.002 * x), 1e6)
    table = PrivacyLoss.from_dict(loss.to_dict())
    x = np.geomspace(1e-9, 9e5, 20_000)
    assert np.all(table.renyi_excess(x) >= truth(x))
    assert np.any(table.renyi_excess(x) < loss.renyi_excess(x))
    for delta in DELTAS:
        assert ranged(2.0).epsilon(delta) <= table.epsilon(delta) <= loss.epsilon(delta) * 1.005


def test_stored_curves_keep_their_rules():
    by_order = curve(shift, rule=lambda x: "small" if x < 5 else "large")
    assert by_order.to_dict()["rule"] == "small / large"


def test_descriptions_that_are_none_are_refused():
    table = curve(shift, 3.0).to_dict()
    broken = [
        {},
        {"type": "unknown"},
        {"type": "gaussian-dp", "neighbours": "replace", "rule": "r"},
        {"type": "gaussian-dp", "mu": -1.0, "neighbours": "replace", "rule": "r"},
        {"type": "gaussian-dp", "mu": math.nan, "neighbours": "replace", "rule": "r"},
        {"type": "gaussian-dp", "mu": None, "neighbours": "replace", "rule": "r"},
        {"type": "pure-dp", "epsilon": 1.0, "neighbours": "swap", "rule": "r"},
        {"type": "composition", "parts": []},
        {"type": "composition", "parts": [{"count": 1.5, "loss": gaussian(1.0).to_dict()}]},
        {**table, "renyi": table["renyi"][::-1]},
        {**table, "excess": table["excess"][::-1]},
        {**table, "renyi": table["renyi"][1:]},
        {**table, "renyi": [math.nan, *table["renyi"][1:]]},
        {**table, "limit": 0.0},
        None,
        [],
    ]
    for description in broken:
        with pytest.raises(ValueError, match=r"\w"):
            PrivacyLoss.from_dict(description)  # pyright: ignore[reportArgumentType]
