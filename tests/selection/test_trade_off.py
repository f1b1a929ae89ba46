"""Upper bounds of trade-off curves."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.selection_truth import random_pair
from discretion.privacy import GaussianDP, LaplaceDP, Neighbours, PureDP, RenyiCurve, SubsampledGaussian
from discretion.privacy.profiles import BestOf
from discretion.selection.trade_off import (
    gaussian_trade_off,
    pairs_of,
    profile_trade_off,
    pure_trade_off,
    renyi_trade_off,
)

REPLACE = Neighbours.REPLACE
W = np.concatenate([[-np.inf], np.linspace(-8, 6, 141), [np.inf]])


@pytest.mark.parametrize("loss", [GaussianDP(0.7, neighbours=REPLACE), PureDP(0.9, neighbours=REPLACE)], ids=repr)
def test_profiles_and_closed_forms_agree(loss):
    exact = pairs_of(loss)[0].trade_off(W)
    table = profile_trade_off(loss._profiles)(W)
    assert np.all(table >= exact * (1 - 1e-9))
    assert table == pytest.approx(exact, rel=2e-3)
    assert exact[-1] == table[-1] == 1


def test_a_renyi_curve_gives_what_two_outcomes_allow():
    mu = 0.5
    curve = renyi_trade_off(lambda x: (1 + x) * mu**2 / 2, math.inf)(W)
    exact = gaussian_trade_off(mu)(W)
    assert np.all(curve >= exact - 1e-12)
    assert np.all(np.diff(curve) >= -1e-12)
    inner = np.abs(W) < 2
    assert np.all(curve[inner] <= 1.25 * exact[inner])
    # and no more: at one order the two outcomes attain it
    s = np.array([0.2])
    x, r = 3.0, 0.4
    t = renyi_trade_off(lambda at: np.where(at == x, r, np.where(at < x, r, np.inf)), math.inf, 400)(
        np.array([-0.8416212])
    )
    moment = t ** (1 + x) * s**-x + (1 - t) ** (1 + x) * (1 - s) ** -x
    assert moment[0] >= math.exp(x * r) * (1 - 1e-3)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0, 10.0])
def test_renyi_trade_offs_against_roots_order_by_order(rho):
    w = np.linspace(-5, 4, 23)
    s, found = ndtr(w), renyi_trade_off(lambda x: rho * (1 + x), math.inf)(w)
    log_s, log_rest = np.log(s), np.log(ndtr(-w))
    least = np.ones(w.shape)
    for x in np.geomspace(1e-3, 1e4, 700):
        for p in (1 + x, -x):
            low, high = s.copy(), np.ones(w.shape)
            for _ in range(45):  # the left side grows right of s
                t = (low + high) / 2
                with np.errstate(divide="ignore", over="ignore"):
                    one = p * np.log(t) + (1 - p) * log_s
                    other = p * np.log1p(-t) + (1 - p) * log_rest
                within = np.logaddexp(one, other) <= x * rho * (1 + x)
                low, high = np.where(within, t, low), np.where(within, high, t)
            least = np.minimum(least, low)
    assert np.all(found >= least * (1 - 1e-5))
    assert np.all(found <= least * 1.004)
    assert np.all(np.diff(found) >= 0)


def test_renyi_trade_offs_are_concave():
    w = np.linspace(-4, 3, 300)
    s, t = ndtr(w), renyi_trade_off(lambda x: np.minimum(0.1 * (1 + x), 0.02 * (1 + x) + 0.5), math.inf)(w)
    slopes = np.diff(t) / np.diff(s)
    assert np.all(np.diff(slopes) <= 1e-9 * slopes[:-1])


def test_pure_limits_of_renyi_curves_are_used():
    loss = PureDP(0.3, neighbours=REPLACE)
    assert np.all(renyi_trade_off(loss.renyi_excess, math.inf)(W) <= pure_trade_off(0.3)(W) * (1 + 1e-9))


def test_random_pairs_lie_below():
    random = np.random.default_rng(8)
    for number in range(24):
        pair = random_pair(random, number % 6)
        exact = pair.trade_off(W)
        table = profile_trade_off(lambda e, pair=pair: (pair.profile(e), pair.turned.profile(e)))(W)
        assert np.all(table >= exact * (1 - 1e-9) - 1e-13)
        if np.all(pair.q * pair.other > 0):
            limit = float(np.max(np.abs(np.log(pair.q / pair.other))))

            def renyi(x, pair=pair, limit=limit):
                each = np.maximum(pair.renyi(np.minimum(x, 1e5)), pair.turned.renyi(np.minimum(x, 1e5)))
                return np.where(x > 1e5, limit, np.minimum(each, limit))

            assert np.all(renyi_trade_off(renyi, math.inf)(W) >= exact - 1e-9)


def test_the_orders_of_a_pair_are_kept_apart():
    there, back = pairs_of(SubsampledGaussian(0.2, 1.0, neighbours=Neighbours.ADD_REMOVE))
    # with the record against without it, and the other way
    q = 0.2
    z = np.linspace(-8, 9, 20001)
    threshold = ndtr(-z)
    mixture = (1 - q) * threshold + q * ndtr(1 - z)
    w_of = np.array([-3.0, -1.0, 0.0, 1.5])
    s = ndtr(w_of)
    assert np.all(back.trade_off(w_of) >= np.interp(s, threshold[::-1], mixture[::-1]) - 1e-6)
    falling = np.interp(s, (1 - mixture), (1 - threshold))
    assert np.all(there.trade_off(w_of) >= falling - 1e-6)
    assert np.any(there.trade_off(w_of) != back.trade_off(w_of))


def test_several_bounds_give_the_least():
    parts = (LaplaceDP(1.0, neighbours=REPLACE), GaussianDP(0.5, neighbours=REPLACE))
    both = pairs_of(BestOf(parts))[0].trade_off(W)
    assert np.all(both == np.minimum(*(pairs_of(part)[0].trade_off(W) for part in parts)))


def test_a_curve_without_any_order_says_nothing():
    loss = RenyiCurve(lambda x: np.full(x.shape, np.inf), neighbours=REPLACE, rule="none")
    assert np.all(pairs_of(loss)[0].trade_off(W) == 1)


@pytest.mark.parametrize(("rate", "noise"), [(1e-4, 7.0), (1e-2, 9.0), (0.3, 30.0)])
def test_a_pair_is_alike_in_both_orders_only_where_the_loss_says_so(rate, noise):
    """Profiles that underflow, or agree, at a few epsilons prove nothing: both orders are looked at."""
    assert len(pairs_of(SubsampledGaussian(rate, noise, neighbours=Neighbours.ADD_REMOVE))) == 2
    assert len(pairs_of(SubsampledGaussian(rate, noise, neighbours=REPLACE))) == 1
    assert len(pairs_of(LaplaceDP(1.0, neighbours=REPLACE))) == 1
