"""The profile bound, against reference values and exact enumeration."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.selection_truth import LAWS, Finite, best_of, hold
from discretion.privacy import GaussianDP, Neighbours, PrivacyProfile, PureDP, SubsampledGaussian
from discretion.selection import Binomial, Fixed, NegativeBinomial, Poisson, geometric, logarithmic
from discretion.selection.linear import objective_perturbation_loss
from discretion.selection.lower_bound import selection_lower_bound
from discretion.selection.profile_bound import RankCurve, profile_bound, rank_curve, selection_deltas
from discretion.selection.trade_off import gaussian_trade_off, pairs_of

REPLACE = Neighbours.REPLACE
SMALL, UNIT = GaussianDP(math.sqrt(0.2), neighbours=REPLACE), GaussianDP(1.0, neighbours=REPLACE)


def tnb(shape, mean):
    return NegativeBinomial.of_mean(shape, mean)


REFERENCE = [
    (SMALL, Poisson(1), 2.13861774, 2.13535951),
    (SMALL, Poisson(10), 3.64976312, 3.62508764),
    (SMALL, Binomial(20, 0.5), 4.06402975, 4.02941963),
    (SMALL, tnb(-0.5, 10), 2.62521362, 2.62028141),
    (SMALL, logarithmic(10), 2.73830384, 2.73127689),
    (SMALL, geometric(10), 2.88935416, 2.87955224),
    (SMALL, tnb(-0.5, 100), 3.08990312, 3.08351567),
    (SMALL, logarithmic(100), 3.31769938, 3.30886602),
    (SMALL, geometric(100), 3.74668525, 3.73282820),
    (UNIT, Poisson(10), 8.66612, 8.62146),
    (UNIT, logarithmic(10), 6.55313, 6.53983),
    (UNIT, geometric(10), 6.90072, 6.88232),
    (UNIT, logarithmic(100), 7.83464, 7.81770),
    (UNIT, geometric(100), 8.80947, 8.78322),
]


@pytest.mark.parametrize(("base", "law", "fine", "lower"), REFERENCE, ids=lambda each: str(each)[:40])
def test_reference_values(base, law, fine, lower):
    found = profile_bound(pairs_of(base), law, REPLACE, "x").epsilon(1e-6)
    assert fine * (1 - 1e-6) <= found <= fine * 1.0002
    attained = selection_lower_bound(base, law, 1e-6)
    assert lower * (1 - 1e-5) <= attained <= min(found, lower * 1.002)


def test_the_mean_of_a_hundred_by_quadrature():
    # the discretisation of psi is upward: finer than published figures, which were coarse here
    law, mu = Poisson(100), math.sqrt(0.2)
    w = np.linspace(-12, 8, 20001)
    u, v = law.derivative(ndtr(w)), law.derivative(ndtr(w + mu))
    x = np.exp(np.linspace(-12, 19, 4001))
    psi = np.array([max(0.0, np.max(u - each * v)) for each in x])
    z = np.linspace(-14, 14, 20001)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    epsilons, deltas = selection_deltas(pairs_of(SMALL)[0], law)
    for at in (int(np.argmax(deltas <= target)) for target in (1e-2, 1e-6, 1e-10)):
        ratio = np.exp(epsilons[at] + mu * z - mu * mu / 2)
        integral = float(weight @ np.interp(ratio, np.append(0, x), np.append(100, psi)))
        assert integral * 0.995 <= deltas[at] <= integral * 1.03


def test_reference_deltas():
    rows = [
        (Poisson(10), (8.93091e-1, 6.28520643886e-2, 2.77391039400e-4, 2.22975630332e-8)),
        (logarithmic(10), (2.82757e-1, 9.96474359772e-4, 4.74809269e-8, 2.0948e-14)),
        (geometric(10), (4.00373e-1, 2.71101251e-3, 2.91251817e-7, 3.0771e-13)),
    ]
    for law, expected in rows:
        epsilons, deltas = selection_deltas(pairs_of(SMALL)[0], law)
        found = np.exp(np.interp([1, 2, 3, 4], epsilons, np.log(deltas)))
        assert np.all(found >= np.array(expected) * (1 - 1e-4))
        assert np.all(found <= np.array(expected) * 1.003)


def test_pure_bases():
    base = PureDP(1.0, neighbours=REPLACE)
    rows = [
        (logarithmic(10), 1.9, 0.02623386894),
        (geometric(10), 2.0, 0.4167423481),
        (geometric(10), 2.5, 0.05454766381),
    ]
    for law, epsilon, delta in rows:
        epsilons, deltas = selection_deltas(pairs_of(base)[0], law)
        found = float(np.interp(epsilon, epsilons, deltas))
        assert delta * (1 - 1e-4) <= found <= delta * 1.002
        assert deltas[-1] == 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name} {law.mean:g}")
def test_the_corners_enclose_the_curve(law):
    trade_off = gaussian_trade_off(0.7)
    curve = rank_curve(law, trade_off, 50)
    w = np.linspace(-9, 6, 4001)
    u, v = law.derivative(ndtr(w)), law.derivative(ndtr(w + 0.7))
    for x in np.exp(np.linspace(-3, 4, 15)):
        assert np.max(curve.u - x * curve.v) >= np.max(u - x * v)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert curve.log_ratio >= np.max(np.log(u[v > 0] / v[v > 0]))


def test_brute_force():
    tally = hold(np.random.default_rng(5), 6, LAWS[1::4])
    assert tally.checks > 4_000
    assert tally.violations == 0
    assert tally.tightest["profile"] > 0.8


def test_the_brute_force_would_find_a_bound_that_is_too_small():
    law, exceeded = geometric(10), False
    pair = Finite(np.array([0.5, 0.5]), np.array([0.8, 0.2]))
    for side in (pair, pair.turned):
        epsilons, deltas = selection_deltas(side.pair, law)
        # with s in the place of t(s), as if a run revealed nothing about ranks
        blind = selection_deltas(type(side.pair)(side.pair.forward, side.pair.backward, ndtr), law)
        for ranks in (np.array([0.0, 1.0]), np.array([1.0, 0.0])):
            p, r = best_of(law, side.q, ranks), best_of(law, side.other, ranks)
            exact = [np.maximum(p - np.exp(each[:, None]) * r, 0).sum(axis=1) for each in (epsilons, blind[0])]
            assert np.all(exact[0] <= deltas + 1e-12)
            exceeded |= bool(np.any(exact[1] > blind[1] + 1e-3))
    assert exceeded


def test_both_orders_of_an_asymmetric_pair():
    base = SubsampledGaussian(0.2, 1.0, neighbours=Neighbours.ADD_REMOVE)
    pairs = pairs_of(base)
    assert len(pairs) == 2
    both = [selection_deltas(pair, geometric(10)) for pair in pairs]
    table = profile_bound(pairs, geometric(10), Neighbours.ADD_REMOVE, "x")
    for epsilon in (2.0, 3.0, 4.0):  # below, the table is lowered by its own reflection
        ways = [float(np.interp(epsilon, e, d)) for e, d in both]
        assert min(ways) < max(ways)
        assert table.delta(epsilon) >= 0.99 * max(ways)


def test_a_fixed_number_of_runs_and_an_approximate_base():
    base = PrivacyProfile((1.0,), (1e-8,), neighbours=REPLACE)
    law = geometric(10)
    found = profile_bound(pairs_of(base), law, REPLACE, "x")
    assert found.delta(3.0) == pytest.approx(1e-7, rel=0.01)  # mean times delta, and no less
    fixed = profile_bound(pairs_of(PureDP(0.5, neighbours=REPLACE)), Fixed(3), REPLACE, "x")
    assert fixed.epsilon(1e-9) == pytest.approx(1.5, rel=2e-3)


def test_a_curve_that_ends_in_zeros_has_a_ratio_without_a_warning():
    # a RuntimeWarning is an error here
    assert RankCurve(np.array([2.0, 1.0, 0.0]), np.array([1.0, 0.25, 0.0])).log_ratio == pytest.approx(math.log(4))
    assert RankCurve(np.array([2.0, 1.0]), np.array([1.0, 0.0])).log_ratio == math.inf


@pytest.mark.parametrize("tau", [0.15, 1.0, 8.0])
def test_logistic_candidates_under_many_poisson_runs(tau):
    base = 3 * objective_perturbation_loss(tau, 1.0, REPLACE)
    for mean in (10.0, 2000.0):
        assert base.epsilon(1e-6) < profile_bound(pairs_of(base), Poisson(mean), REPLACE, "x").epsilon(1e-6)
