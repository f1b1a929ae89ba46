"""Prices at the ends: delta = 0, laws that hardly ever run, tiny and huge parameters, curves with kinks."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discretion.privacy import GaussianDP, Neighbours, PrivacyProfile, PureDP, RenyiCurve, SystemRandomness
from discretion.selection import (
    Binomial,
    Capped,
    Fixed,
    NegativeBinomial,
    Poisson,
    SharedRate,
    geometric,
    heterogeneous,
    selection_loss,
)
from discretion.selection.bounds import pure_cost
from discretion.selection.planner import affordable_base, base_loss
from discretion.selection.scores import either

REPLACE = Neighbours.REPLACE


def pure(epsilon):
    return PureDP(epsilon, neighbours=REPLACE)


@pytest.mark.parametrize("rule", ["renyi", "best", "profile"])
@pytest.mark.parametrize(
    ("epsilon", "law"),
    [
        (1.3558654926890674e-08, Capped(Poisson(0.0115), 1064)),
        (1e-9, Capped(Poisson(1e-9), 5)),
        (1e-8, Poisson(1e-9)),
        (1e-8, Binomial(2, 1e-9)),
        (0.1, Binomial(2, 1e-300)),
        (0.1, Poisson(1e-300)),
        (1e-3, Poisson(0.5)),
    ],
)
def test_at_delta_zero_a_search_costs_no_less_than_a_run(epsilon, law, rule):
    # given that there is one run, an outcome of it is e^epsilon times likelier; given the default, nothing is
    loss = selection_loss(pure(epsilon), law, rule=rule)
    assert loss.epsilon(0.0) >= epsilon * (1 - 1e-15)
    # delta(e) of one run alone, at least P[K = 1]
    at = 0.9 * epsilon
    one = float(law.pmf(1)) * (math.expm1(epsilon) - math.expm1(at)) / (1 + math.exp(epsilon))
    assert loss.delta(at) >= one * (1 - 1e-6)


@pytest.mark.parametrize("law", [Poisson(3.0), Binomial(5, 0.3), geometric(4), Capped(Poisson(3.0), 6)])
def test_the_limit_of_the_curve_is_attained_by_two_outcomes(law):
    for epsilon in (1e-6, 0.1, 2.0):
        s = 1 / (1 + math.exp(epsilon))
        attained = epsilon + math.log(float(law.derivative(s)) / float(law.derivative(1 - s)))
        curve = selection_loss(pure(epsilon), law, rule="renyi")
        assert curve.renyi_excess(math.inf) >= attained * (1 - 1e-9)
        large = curve.renyi_excess(np.geomspace(1e6, 1e10, 9))
        assert np.all(np.diff(large) >= 0)
        assert large[-1] <= curve.renyi_excess(math.inf)


# --- Laws


@pytest.mark.parametrize("gamma", [0.5, 0.1])
@pytest.mark.parametrize("shape", [5e-324, -5e-324, 1e-320, 1e-201])
def test_a_shape_next_to_zero_is_the_logarithmic_law(shape, gamma):
    law, zero = NegativeBinomial(shape, gamma), NegativeBinomial(0.0, gamma)
    assert law == zero
    assert law.mean == pytest.approx((1 - gamma) / (gamma * -math.log(gamma)), rel=1e-12)
    assert NegativeBinomial(1e-199, gamma).mean == pytest.approx(zero.mean, rel=1e-14)


def test_one_run_surely_is_a_matter_of_the_law_and_not_of_rounding():
    base = pure(0.1)
    for law in (NegativeBinomial(1.0, 1.0), Fixed(1), Capped(geometric(5), 1)):
        assert law.single
        assert selection_loss(base, law) is base
    nearly = NegativeBinomial(1.0, 1 - 2.0**-53)
    assert not nearly.single
    assert selection_loss(base, nearly).epsilon(0.0) >= 0.1
    assert not Poisson(1.0).single
    assert not Binomial(1, 0.5).single


@pytest.mark.parametrize("shape", [0.5, 1e5, 1e7, 85030787.83])
def test_masses_under_a_cap_are_those_of_the_recursion(shape):
    uncapped, most = NegativeBinomial.of_mean(shape, 10.0), 30
    law = Capped(uncapped, most)
    masses = [Fraction(0), Fraction(1)]
    for k in range(1, most):
        ratio = (1 - Fraction(uncapped.gamma)) * (k + Fraction(uncapped.shape)) / (k + 1)
        masses.append(masses[-1] * ratio)
    total = sum(masses)
    np.testing.assert_allclose(law.pmf(np.arange(most + 1)), [float(each / total) for each in masses], rtol=1e-14)
    half = sum(k * masses[k] / Fraction(2) ** (k - 1) for k in range(1, most + 1)) / total
    assert abs(float(law.derivative(0.5)) / float(half) - 1) <= law.rounding


@pytest.mark.parametrize(
    ("law", "cap"), [(Poisson(700.0), 900), (Binomial(50, 0.3), 60), (Fixed(4), 9), (Capped(Poisson(4.0), 5), 9)]
)
def test_masses_by_ratios_are_the_probabilities(law, cap):
    k = np.arange(cap + 1)
    np.testing.assert_allclose(Capped(law, cap).pmf(k), law.pmf(k) / law.pmf(k).sum(), rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(3e6),
        lambda: Binomial(10**7, 0.5),
        lambda: NegativeBinomial(1e12, 0.99),
        lambda: NegativeBinomial.of_mean(1e7, 1e7),
        lambda: SharedRate(1000, 100, 1e20),
        lambda: SharedRate(2.5, 2, 1.0),  # pyright: ignore[reportArgumentType]
    ],
)
def test_laws_that_can_not_be_drawn_are_refused_beforehand(make):
    with pytest.raises(ValueError, match=r"can't be drawn|an integer"):
        make()


def test_laws_that_can_be_drawn_are_not_refused():
    for law in (NegativeBinomial.of_mean(1e15, 10.0), NegativeBinomial.of_mean(1e5, 3.0), Binomial(10**6, 1e-5)):
        assert 0 < law.sample(SystemRandomness()) < 60


# --- Costs of pure runs


@pytest.mark.parametrize("law", [NegativeBinomial(16.27, 0.0289), geometric(100), Binomial(40, 0.9)])
def test_tiny_costs_do_not_cancel(law):
    epsilon = 1e-15
    if isinstance(law, Binomial):
        slope = (law.trials - 1) * law.chance / (1 - law.chance / 2)
    else:
        odds = 1 / law.gamma - 1
        slope = (1 + law.shape) * odds / (1 + odds / 2)
    exact = epsilon * (1 + slope / 2)
    assert exact <= pure_cost(epsilon, law) <= exact * (1 + 1e-11)


def test_the_cost_of_no_epsilon_is_refused():
    for epsilon in (math.nan, -1.0):
        with pytest.raises(ValueError, match="at least 0"):
            pure_cost(epsilon, geometric(10))
    assert pure_cost(0.0, geometric(10)) == 0.0
    assert pure_cost(math.inf, geometric(10)) == math.inf
    # beyond e^709: (2 + eta) epsilon less than log(1 / gamma)
    assert 1000.0 < pure_cost(1000.0, NegativeBinomial(1.0, 1e-300)) <= 3000.0


# --- What was refused for no reason


def profiles():
    first = PrivacyProfile((0.0, 0.5, 1.0, 2.0), (0.3, 0.1, 0.01, 0.0), neighbours=REPLACE)
    return [first, PrivacyProfile((0.0, 0.5, 1.0, 3.0), (0.3, 0.1, 0.01, 0.0), neighbours=REPLACE)]


@pytest.mark.parametrize("law", [geometric(10), Poisson(0.5), Binomial(3, 1e-9), Poisson(1e-9)])
@pytest.mark.parametrize("others", [[pure(0.5)], profiles()[1:]])
def test_candidates_with_profiles_are_taken(law, others):
    orders = np.geomspace(1e-8, 1e9, 50)
    for loss in (heterogeneous([profiles()[0], *others], [0.5, 0.5]), either(profiles()[0], others[0])):
        search = selection_loss(loss, law)
        assert 0 <= search.epsilon(1e-6) < math.inf
        assert np.all(np.diff(search.renyi_excess(orders)) >= -1e-9)
        search.to_dict(1e-6)


def test_the_curve_of_a_profile_does_not_fall():
    curve = profiles()[0].renyi_excess(np.geomspace(1e-8, 1e6, 400))
    assert np.all(np.diff(curve) >= -1e-12)


@pytest.mark.parametrize("law", [Binomial(3, 1e-9), Poisson(1e-9), Capped(Poisson(1e-6), 3)])
def test_laws_that_hardly_ever_run_are_taken(law):
    for base in (pure(0.5), profiles()[0], heterogeneous([pure(0.5), pure(1.0)], [0.5, 0.5])):
        loss = selection_loss(base, law, rule="renyi")
        assert np.all(loss.renyi_excess(np.geomspace(1e-8, 1e9, 50)) >= 0)
        assert loss.epsilon(1e-6) <= base.epsilon(1e-6) * 10


@pytest.mark.parametrize("law", [Fixed(10), Binomial(20, 0.5), Capped(geometric(5), 9)])
def test_at_most_so_many_runs_cost_no_more_than_all_of_them(law):
    most = {"fixed": 10, "binomial": 20, "capped": 9}[law.law]
    zcdp = RenyiCurve(lambda x: 0.01 * (1 + x), neighbours=REPLACE, rule="zCDP")
    for base in (GaussianDP(0.1, neighbours=REPLACE), zcdp):
        found = selection_loss(base, law, rule="renyi")
        orders = np.array([0.1, 1.0, 10.0, 100.0])
        assert np.all(found.renyi_excess(orders) <= most * base.renyi_excess(orders) * (1 + 1e-9))
    for kind in ("zcdp", "gaussian", "pure"):
        assert affordable_base(base_loss(kind, REPLACE), law, 0.001, 1e-12, rule="renyi") > 0


def test_a_kink_between_nodes_is_no_reason_to_refuse():
    for epsilon in np.geomspace(1e-6, 1.0, 9):
        loss = selection_loss(pure(float(epsilon)), Poisson(10.0), rule="renyi")
        kink = 1 / math.expm1(epsilon)
        loss.renyi_excess(kink * np.geomspace(0.9, 1.1, 101))
        assert 0 < loss.epsilon(1e-6) <= pure_cost(float(epsilon), Poisson(10.0)) * (1 + 1e-9)
        loss.to_dict(1e-6)


def test_runs_that_are_hardly_private_give_no_warning():
    mixed = heterogeneous([GaussianDP(30.0, neighbours=REPLACE), GaussianDP(20.0, neighbours=REPLACE)], [0.5, 0.5])
    assert 450 < selection_loss(mixed, geometric(10)).epsilon(1e-6) < 700
