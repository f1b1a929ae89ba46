"""Renyi bounds, losses that add, candidates, caps, conditioning."""

import json
import math

import numpy as np
import pytest

from benchmarks.selection_truth import Finite, best_of, divergence
from discretion.privacy import (
    GaussianDP,
    LaplaceDP,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
)
from discretion.selection import Binomial, Capped, Fixed, NegativeBinomial, Poisson, geometric, logarithmic
from discretion.selection.bounds import (
    _Rising,
    approximate_selection,
    cap_penalty,
    conditional_loss,
    fixed_lower_bound,
    heterogeneous,
    poisson_renyi,
    pure_cost,
    selection_loss,
    thinned,
    tnb_renyi,
)
from discretion.selection.lower_bound import selection_lower_bound
from discretion.selection.trade_off import pairs_of

REPLACE = Neighbours.REPLACE
SMALL = GaussianDP(math.sqrt(0.2), neighbours=REPLACE)


def zcdp(rho):
    return lambda x: rho * (1 + x)


TABLE = [
    (0.1, 1.5, 1.698133820043, 2.779115547313, 1.554385946114),
    (0.1, 4, 1.698133820043, 2.779115547313, 1.554385946114),
    (0.1, 8, 1.854446915593, 2.848351092446, 1.672149484190),
    (0.1, 16, 2.550584657910, 3.472916037742, 2.342263915257),
    (0.5, 2, 3.797142656507, 5.937898078868, 3.613909239907),
    (0.5, 8, 5.840707759445, 7.620872780149, 5.510962571133),
    (0.5, 16, 9.736845501762, 11.445437725445, 9.381077002201),
]


@pytest.mark.parametrize("row", TABLE)
def test_the_published_renyi_bound(row):
    rho, order, *expected = row
    for law, value in zip(
        (NegativeBinomial(0, 0.1), NegativeBinomial(1, 0.1), NegativeBinomial(-0.5, 0.01)), expected, strict=True
    ):
        curve = _Rising.of(tnb_renyi(zcdp(rho), math.inf, law), math.inf)
        assert float(curve(np.array([order - 1.0]))[0]) == pytest.approx(value, rel=1e-9)
        # its closed form for zero-concentrated DP
        log_mean, log_inverse = math.log(law.mean), -math.log(law.gamma)
        constant = 2 * (1 + law.shape) * math.sqrt(rho * log_inverse) - law.shape * rho
        root = math.sqrt(log_mean / rho)
        first = 2 * math.sqrt(rho * log_mean)
        closed = first if order <= 1 + root else rho * (order - 1) + log_mean / (order - 1)
        assert closed + constant == pytest.approx(value, rel=1e-9)


def test_the_bound_for_poisson_laws():
    x = np.array([0.5, 1, 3, 7, 15])
    rows = {
        10: (1.159553667777, 1.282065937117, 1.849628122735, 2.392218643659, 3.267201441663),
        1: (0.150125646401, 0.202960977008, 0.457877969243, 0.926070207947, 1.751369576878),
    }
    for mean, expected in rows.items():
        found = poisson_renyi(SMALL.renyi_excess, Poisson(mean), pairs_of(SMALL))(x)
        assert found == pytest.approx(expected, rel=1e-9)
        d = SMALL._profile(np.log1p(1 / x))
        assert np.all(found <= SMALL.renyi_excess(x) + mean * d + math.log(mean) / x + 1e-12)
    # few runs cost little, where the printed bound is negative
    assert selection_loss(SMALL, Poisson(0.001), rule="renyi").renyi(2.0) < 0.002


@pytest.mark.parametrize(
    ("law", "value"),
    [
        (Poisson(1), 2.28368529),
        (Poisson(10), 3.77546413),
        (Poisson(100), 13.44802358),
        (Binomial(20, 0.5), 4.18405),
        (NegativeBinomial.of_mean(-0.5, 10), 2.76346605),
        (logarithmic(10), 2.87512758),
        (geometric(10), 3.02428788),
        (geometric(100), 3.87413310),
    ],
    ids=str,
)
def test_epsilon_of_the_renyi_rule(law, value):
    assert selection_loss(SMALL, law, rule="renyi").epsilon(1e-6) == pytest.approx(value, rel=3e-4)


@pytest.mark.parametrize(
    ("law", "value"),
    [
        (logarithmic(10), 3.45084141),
        (geometric(10), 4.06776262),
        (logarithmic(100), 4.04773057),
        (geometric(100), 5.0528887),
    ],
    ids=str,
)
def test_epsilon_of_the_published_rule(law, value):
    curve = _Rising.of(tnb_renyi(SMALL.renyi_excess, math.inf, law), math.inf)
    assert RenyiCurve(curve, neighbours=REPLACE, rule="x").epsilon(1e-6) == pytest.approx(value, rel=3e-7)


def test_pure_costs():
    for law, value in ((logarithmic(10), 1.9392357593), (geometric(10), 2.5913440783), (Poisson(10), 5.6211715726)):
        assert pure_cost(1.0, law) == pytest.approx(value, rel=1e-10)
        assert selection_loss(PureDP(1.0, neighbours=REPLACE), law).epsilon(0.0) == pytest.approx(value, rel=1e-10)
    for shape in (-0.9, -0.5, 0.0, 1.0, 5.0):
        assert pure_cost(0.7, NegativeBinomial.of_mean(shape, 1e6)) <= (2 + shape) * 0.7 * (1 + 1e-11)
    assert pure_cost(0.7, Fixed(4)) == pytest.approx(2.8)
    assert pure_cost(0.7, Capped(Binomial(5, 0.4), 5)) == pytest.approx(pure_cost(0.7, Binomial(5, 0.4)), rel=1e-3)


@pytest.mark.parametrize("law", [Poisson(3), geometric(7), Binomial(6, 0.3), Fixed(3), logarithmic(5)], ids=str)
def test_the_pure_cost_is_attained(law):
    p = 1 / (1 + math.e)
    q, other, ranks = np.array([p, 1 - p]), np.array([1 - p, p]), np.array([1.0, 0.0])
    first, second = best_of(law, q, ranks)[:2], best_of(law, other, ranks)[:2]
    # the rare output ranks first: the other one is what gives it away
    attained = max(np.max(np.abs(np.log(first / second))), np.max(np.abs(np.log(second / first))))
    assert attained == pytest.approx(pure_cost(1.0, law), rel=0.35)
    assert attained <= pure_cost(1.0, law) * (1 + 1e-12)


def test_best_takes_the_least_and_names_it():
    for law, word in ((geometric(10), "profile bound"), (Poisson(100), "Renyi bound for Poisson laws")):
        loss = selection_loss(SMALL, law)
        ways = [selection_loss(SMALL, law, rule=rule).epsilon(1e-6) for rule in ("renyi", "profile")]
        assert loss.epsilon(1e-6) == min(ways)
        assert word in loss.guarantee(1e-6).rule
    with pytest.raises(ValueError, match="'best', 'renyi' or 'profile'"):
        selection_loss(SMALL, geometric(10), rule="published")


def test_headline_figures():
    for law, limit in ((Poisson(10), 3.655), (geometric(10), 2.893), (logarithmic(10), 2.742)):
        epsilon = selection_loss(SMALL, law).epsilon(1e-6)
        assert selection_lower_bound(SMALL, law, 1e-6) <= epsilon <= limit


@pytest.mark.parametrize("rule", ["best", "renyi", "profile"])
def test_losses_round_trip_and_add(rule):
    loss = selection_loss(SMALL, geometric(10), rule=rule)
    again = PrivacyLoss.from_dict(json.loads(json.dumps(loss.to_dict(1e-6))))
    assert loss.epsilon(1e-6) <= again.epsilon(1e-6) <= loss.epsilon(1e-6) * (1 + 1e-9)
    assert again.neighbours is REPLACE
    together = (loss + SMALL).epsilon(1e-6)
    assert loss.epsilon(1e-6) < together < loss.epsilon(5e-7) + SMALL.epsilon(5e-7)


def test_one_run_costs_one_run():
    for law in (NegativeBinomial(2.0, 1.0), Fixed(1)):
        assert selection_loss(SMALL, law) is SMALL
    assert selection_loss(SMALL, geometric(1 + 1e-9)).epsilon(1e-6) == pytest.approx(SMALL.epsilon(1e-6), rel=1e-3)
    assert selection_loss(SMALL, Poisson(1e-4)).epsilon(1e-6) < 1.3
    nothing = GaussianDP(0.0, neighbours=REPLACE)
    assert selection_loss(nothing, geometric(10)).epsilon(1e-6) == 0


def test_infinite_bases_stay_infinite():
    for base in (GaussianDP(math.inf, neighbours=REPLACE), PureDP(math.inf, neighbours=REPLACE)):
        assert selection_loss(base, geometric(10)).epsilon(1e-6) == math.inf
    curve = RenyiCurve(lambda x: np.full(x.shape, math.nan), neighbours=REPLACE, rule="nan")
    assert selection_loss(curve, geometric(10)).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("mu", [1e-3, 0.05, 5.0])
def test_small_and_large_bases(mu):
    base = GaussianDP(mu, neighbours=REPLACE)
    for law in (Poisson(3), geometric(10)):
        assert (
            selection_lower_bound(base, law, 1e-6) <= selection_loss(base, law).epsilon(1e-6) < 3.2 * base.epsilon(1e-6)
        )


def test_zero_concentrated_bases_cost_more_than_gaussian_ones():
    base = RenyiCurve(zcdp(0.1), neighbours=REPLACE, rule="zCDP")
    for law in (geometric(10), logarithmic(10), Poisson(10)):
        gaussian, curve = selection_loss(SMALL, law).epsilon(1e-6), selection_loss(base, law).epsilon(1e-6)
        assert gaussian < curve <= 1.2 * gaussian


def test_a_fixed_number_of_runs_costs_no_more_than_all_of_them():
    law = Fixed(3)
    assert selection_loss(SMALL, law).epsilon(1e-6) <= (3 * SMALL).epsilon(1e-6)
    p = 1 / (1 + math.exp(0.8))
    q, other = (
        best_of(law, np.array([1 - p, p]), np.array([1.0, 0.0])),
        best_of(law, np.array([p, 1 - p]), np.array([1.0, 0.0])),
    )
    exact = max(divergence(a[:2], b[:2], np.array([3.0]))[0] for a, b in ((q, other), (other, q)))
    assert exact >= fixed_lower_bound(0.8, 3, 3.0)
    assert np.max(np.abs(np.log(q[:2] / other[:2]))) == pytest.approx(2.4)


def test_training_by_noisy_gradient_steps():
    base = 1000 * SubsampledGaussian(0.01, 1.0, neighbours=Neighbours.ADD_REMOVE)
    single, loss = base.epsilon(1e-6), selection_loss(base, geometric(10))
    assert single < loss.epsilon(1e-6) < 1.45 * single
    pairs = pairs_of(base)
    e = np.array([0.5, 1.0, 2.0])
    for at, delta in zip(e, pairs[0].forward(e), strict=True):
        assert base.delta(at) * 0.9 <= max(delta, pairs[-1].forward(np.array([at]))[0]) <= base.delta(at) * 1.02


def test_candidates_are_averaged():
    cheap, dear = SMALL, GaussianDP(1.0, neighbours=REPLACE)
    loss = heterogeneous([cheap, dear], [0.9, 0.1])
    for epsilon in (0.5, 2.0, 4.0):
        mixed = 0.9 * cheap.delta(epsilon) + 0.1 * dear.delta(epsilon)
        assert mixed <= loss.delta(epsilon) <= mixed * 1.01
    x = np.array([0.5, 3.0])
    exact = np.log(0.9 * np.exp(x * cheap.renyi_excess(x)) + 0.1 * np.exp(x * dear.renyi_excess(x))) / x
    assert loss.renyi_excess(x) == pytest.approx(exact, rel=1e-3)
    assert cheap.epsilon(1e-6) < loss.epsilon(1e-6) < dear.epsilon(1e-6)
    assert heterogeneous([cheap, cheap], [0.5, 0.5]) is cheap
    with pytest.raises(ValueError, match="sum 1"):
        heterogeneous([cheap, dear], [0.9, 0.2])
    assert heterogeneous([cheap, dear], [1.0, 0.0]) is cheap
    for weights in ([1.5, -0.5], [0.0, 0.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="at least 0"):
            heterogeneous([cheap, dear], weights)
    with pytest.raises(NeighbourMismatch):
        heterogeneous([cheap, GaussianDP(1.0, neighbours=Neighbours.ADD_REMOVE)], [0.5, 0.5])


@pytest.mark.parametrize(
    "law", [Poisson(4), geometric(5), logarithmic(8), Binomial(9, 0.4), Fixed(3), Capped(Poisson(3), 5)]
)
def test_thinned_laws(law):
    thin, failure = thinned(law, 0.2)
    x = np.array([0.0, 0.3, 0.8, 1.0])
    assert thin.pgf(x) == pytest.approx(law.pgf(0.8 * x) / law.pgf(0.8), rel=1e-9)
    assert failure == pytest.approx(1 - float(law.pgf(0.8)), rel=1e-9)
    assert failure <= law.mean * 0.2


def test_approximate_bases():
    base = PureDP(1.0, neighbours=REPLACE)
    loss, failure = approximate_selection(base, 1e-8, geometric(10))
    table = selection_loss(PrivacyProfile((1.0,), (1e-8,), neighbours=REPLACE), geometric(10))
    assert failure == pytest.approx(1e-7, rel=1e-6)
    assert table.epsilon(1e-6) <= loss.epsilon(1e-6 - failure) * (1 + 1e-3)


def test_a_cap():
    law = geometric(10)
    for most in (15, 30, 60):
        capped = Capped(law, most)
        x = np.array([3.0, 7.0])
        plain, exact = (selection_loss(SMALL, each, rule="renyi").renyi_excess(x) for each in (law, capped))
        penalty = np.array([cap_penalty(law, most, float(each)) for each in x])
        assert np.all(exact <= plain + penalty)
        assert selection_loss(SMALL, capped).epsilon(1e-6) <= selection_loss(SMALL, Fixed(most)).epsilon(1e-6)


def test_conditioning_on_acceptance():
    random = np.random.default_rng(2)
    x = np.array([0.3, 0.5, 1.0, 2.5, 6.0])
    for _ in range(8):
        q = random.dirichlet(np.ones(4))
        other = q * np.exp(random.uniform(-0.7, 0.7, 4))
        pair = Finite(q, other / other.sum())
        limit = float(np.max(np.abs(np.log(pair.q / pair.other))))

        def renyi(x, pair=pair, limit=limit):
            each = np.maximum(pair.renyi(np.minimum(x, 1e5)), pair.turned.renyi(np.minimum(x, 1e5)))
            return np.where(x > 1e5, limit, np.minimum(each, limit))

        accepted = random.permutation(4)[: random.integers(1, 4)]
        least = min(pair.q[accepted].sum(), pair.other[accepted].sum())
        base = RenyiCurve(renyi, neighbours=REPLACE, rule="pair")
        bound = conditional_loss(base, float(least)).renyi_excess(x)
        p, r = pair.q[accepted] / pair.q[accepted].sum(), pair.other[accepted] / pair.other[accepted].sum()
        assert np.all(divergence(p, r, x) <= bound + 1e-9)
    with pytest.raises(ValueError, match="acceptance"):
        conditional_loss(SMALL, 0.0)


def test_no_lower_bound_from_an_upper_one():
    with pytest.raises(ValueError, match="known exactly"):
        selection_lower_bound(RenyiCurve(zcdp(0.1), neighbours=REPLACE, rule="x"), geometric(10), 1e-6)
    base = LaplaceDP(1.0, neighbours=REPLACE)
    assert selection_lower_bound(base, geometric(10), 1e-6) <= selection_loss(base, geometric(10)).epsilon(1e-6)


def test_a_divergence_that_underflows_at_low_orders_is_not_free():
    """Two outcomes, one next to impossible: the KL bound is 0 in double precision, and many runs find it."""
    p, q = 1e-9, 1e-12

    def curve(x):
        with np.errstate(all="ignore"):
            high = (1 + x) * np.log(p) - x * np.log(q)
            value = np.logaddexp(high, (1 + x) * np.log1p(-p) - x * np.log1p(-q)) / x
        return np.where(x < 1e-6, 0.0, np.maximum(value, 0.0))

    base, law = RenyiCurve(curve, neighbours=REPLACE, rule="two outcomes"), geometric(20.0)
    assert base.renyi_excess(0.0) == 0.0
    loss = selection_loss(base, law)
    assert loss is not base
    attained = float(law.success(p)) - np.exp(6.0) * float(law.success(q))
    assert base.delta(6.0) < attained <= loss.delta(6.0)
    free = PureDP(0.0, neighbours=REPLACE)
    assert selection_loss(free, law) is free


@pytest.mark.parametrize("last", [0.0, 1e-3])
@pytest.mark.parametrize("delta", [None, 1e-3, 1e-6])
def test_selections_over_profiles_can_be_stored(last, delta):
    base = PrivacyProfile((0.0, 0.3, 1.0), (0.4, 0.2, last), neighbours=REPLACE)
    loss = selection_loss(base, Poisson(2.0))
    again = PrivacyLoss.from_dict(loss.to_dict(delta))
    assert again.epsilon(delta or 1e-2) >= loss.epsilon(delta or 1e-2) * (1 - 1e-9)


@pytest.mark.parametrize("supremum", [np.inf, 50.0])
def test_a_lowered_curve_rises_up_to_infinity(supremum):
    rising = _Rising.of(lambda x: 1.0 + 1.0 / np.maximum(x, 1e-9) + np.where(np.isinf(x), -0.5, 0.0), supremum)
    orders = np.append(np.geomspace(1e-6, 1e12 if supremum == np.inf else 49.0, 200), np.inf)
    values = rising(orders) if supremum == np.inf else rising(orders[:-1])
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.0965, 0.31, 1.0, 3.0])
@pytest.mark.parametrize("law", [Poisson(1.5), Poisson(10), Poisson(100), geometric(10), logarithmic(100)], ids=str)
def test_renyi_bounds_rise_from_order_to_order(law, epsilon):
    loss = selection_loss(PureDP(epsilon, neighbours=REPLACE), law, rule="renyi")
    curve = next(part for part in getattr(loss, "parts", (loss,)) if isinstance(part, RenyiCurve))
    kink = 1 / math.expm1(epsilon)
    x = np.concatenate([np.geomspace(1e-8, 1e10, 3000), kink * np.geomspace(0.5, 2, 3000), [np.inf]])
    values = curve.renyi_excess(x[np.random.default_rng(0).permutation(x.size)])
    assert np.all(np.isfinite(values))
    rising = curve.renyi_excess(np.sort(x))
    assert np.all(np.diff(rising) >= 0)
    # what is asked for alone is hardly another number
    alone = np.array([curve.renyi_excess(each) for each in kink * np.linspace(0.9, 1.1, 41)])
    assert np.all(alone[:-1] <= alone[1:] * (1 + 2e-3))
