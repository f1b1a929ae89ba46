"""Rules of composition: what a ledger adds up, and when it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.privacy.budget import Budget, BudgetExceeded, Composing, round_down
from discretion.privacy.conversion import gaussian_mu
from discretion.privacy.ledger import Ledger
from discretion.privacy.loss import BoundedRange, Composition, GaussianDP, Neighbours, PureDP, RenyiCurve

REPLACE = Neighbours.REPLACE
DELTA = 1e-5
CURVE = RenyiCurve(lambda x: (1 + x) / (1 - x / 9) / 50, 9.0, neighbours=REPLACE, rule="toy")


def gaussian(mu: float) -> GaussianDP:
    return GaussianDP(mu, neighbours=REPLACE)


def filtering(epsilon: float, order: float, delta: float = DELTA) -> Budget:
    return Budget(epsilon, delta, REPLACE, Composing.RENYI_FILTER, order)


def converted(rho: float, order: float, delta: float = DELTA) -> float:
    """rho-Renyi DP at one order as epsilon (Balle et al. 2020), written out anew."""
    x = order - 1
    return rho + math.log(x / order) - (math.log(delta) + math.log(order)) / x


def test_numerical_composition_spends_less_and_both_are_what_composition_says():
    parts = [(CURVE, 1), (gaussian(1.5), 1)]
    spent = [Budget(9.0, DELTA, REPLACE, rule).spent(parts).epsilon for rule in ("renyi", "numerical")]
    whole = Composition(tuple(parts))
    assert spent == [whole.guarantee(DELTA).epsilon, whole.guarantee(DELTA, numerical=True).epsilon]
    assert spent[1] < 0.96 * spent[0]


def test_what_a_pure_and_a_gaussian_release_cost_together_is_what_a_ledger_charges():
    """By either rule, and also where the quick rules would refuse it."""
    parts = [(PureDP(0.1, neighbours=REPLACE), 1), (gaussian(0.27), 1)]
    whole = Composition(tuple(parts))
    for rule in ("renyi", "numerical"):
        budget = Budget(1.067, DELTA, REPLACE, rule)
        budget.check(parts[:1], gaussian(0.27), parts)
        assert budget.spent(parts).epsilon == whole.epsilon(DELTA) <= 1.067
        assert not Budget(1.066, DELTA, REPLACE, rule).allows(parts)
    assert whole.guarantee(DELTA, numerical=False).epsilon > 1.1


def test_the_rule_is_kept_by_the_ledger(place):
    losses = [CURVE, gaussian(1.5)]
    spent = {}
    for rule in ("renyi", "numerical"):
        where = place()
        made = Ledger.create(where, dataset="d", epsilon=9.0, delta=DELTA, composition=rule)
        for loss in losses:
            made.reserve(loss, {})
        assert Ledger.open(where).budget == made.budget == Budget(9.0, DELTA, REPLACE, Composing(rule))
        spent[rule] = Ledger.open(where).spent().epsilon
    assert spent["numerical"] < 0.96 * spent["renyi"]
    where = place()
    made = Ledger.create(where, dataset="d", epsilon=9.0, delta=DELTA, composition="renyi-filter", order=11.25)
    assert Ledger.open(where).budget == made.budget == filtering(9.0, 11.25)


@pytest.mark.parametrize("order", [1.5, 4.0, 9.0])
def test_the_filter_adds_divergences_at_its_order_and_converts_there(order):
    parts = [
        (CURVE, 3),
        (gaussian(0.2), 5),
        (PureDP(0.1, neighbours=REPLACE), 7),
        (BoundedRange(0.2, neighbours=REPLACE), 2),
    ]
    rho = sum(count * loss.renyi(order) for loss, count in parts)
    found = filtering(9.0, order).spent(parts)
    assert found.epsilon == pytest.approx(max(converted(rho, order), 0.0), rel=1e-6)
    assert found.epsilon >= converted(rho, order)
    assert f"order {order!r}" in found.rule


def test_the_filter_gives_no_better_bound_than_its_order(tmp_path):
    """Also where another order, or the exact Gaussian curve, would say less."""
    parts = [(gaussian(1.0), 1)]
    best = Budget(9.0, DELTA, REPLACE).spent(parts).epsilon
    for order in (2.0, 5.0, 30.0):
        assert filtering(9.0, order).spent(parts).epsilon > best
    assert filtering(9.0, 11.0).spent([(CURVE, 1)]).epsilon == math.inf
    with pytest.raises(BudgetExceeded):
        filtering(9.0, 11.0).check([], CURVE, [(CURVE, 1)])


@settings(max_examples=50, deadline=None)
@given(st.floats(1.1, 60.0), st.lists(st.floats(0.01, 1.0), max_size=6), st.floats(0.01, 1.0), st.floats(0.1, 6.0))
def test_the_filter_refuses_just_what_does_not_fit(order, spent, asked, epsilon):
    budget, parts = filtering(epsilon, order), [(gaussian(mu), 1) for mu in spent]
    together = converted(order / 2 * (sum(mu * mu for mu in spent) + asked * asked), order)
    if together > epsilon * (1 + 1e-6):
        with pytest.raises(BudgetExceeded) as caught:
            budget.check(parts, gaussian(asked), [*parts, (gaussian(asked), 1)])
        assert caught.value.together >= together
    elif together < epsilon * (1 - 1e-6) - 1e-6:
        budget.check(parts, gaussian(asked), [*parts, (gaussian(asked), 1)])


def test_adaptive_losses_stay_within_the_filter_in_an_exact_example():
    """Noise chosen by what was seen: the loss of the whole, summed up exactly, is at most what the filter promises.

    One bit x with neighbours 0 and 1. Each round answers by randomised response, at epsilon 0.2 after a 0 and at 0.8
    after a 1, as long as the filter lets it.
    """
    order, delta = 6.0, 1e-3
    rates = {0: 0.2, 1: 0.8}
    budget = filtering(2.0, order, delta)

    def outcomes(parts, last, p, q, rounds):
        loss = PureDP(rates[last], neighbours=REPLACE)
        try:
            if rounds == 12:
                raise BudgetExceeded(0, 0, 0, 0, 0)
            budget.check(parts, loss, [*parts, (loss, 1)])
        except BudgetExceeded:
            yield p, q
            return
        true = 1 / (1 + math.exp(-rates[last]))
        for answer in (0, 1):
            there, back = (true, 1 - true) if answer == 0 else (1 - true, true)
            yield from outcomes([*parts, (loss, 1)], answer, p * there, q * back, rounds + 1)

    p, q = np.array(list(outcomes([], 0, 1.0, 1.0, 0))).T
    assert p.sum() == pytest.approx(1.0)
    assert len(p) > 8  # it does branch
    for one, other in ((p, q), (q, p)):
        renyi = math.log(np.sum(one**order * other ** (1 - order))) / (order - 1)
        assert converted(renyi, order, delta) <= budget.epsilon
        assert np.maximum(one - math.exp(budget.epsilon) * other, 0.0).sum() <= delta


def test_the_stored_curve_holds_the_order_of_the_filter():
    described = filtering(9.0, 3.7).describe(CURVE)
    assert 2.7 in described["excess"]


def test_rounding_down():
    assert [round_down(x, 4) for x in (0.0, 0.99999, 1.23456, 1e-300, 1e20)] == [
        "0.0000",
        "0.9999",
        "1.2345",
        "0.0000",
        "100000000000000000000.0000",
    ]


@pytest.mark.parametrize("rule", ["renyi", "renyi-filter"])
def test_the_next_release_that_fits_in_is_found_and_the_next_larger_one_is_refused(tmp_path, rule):
    order = None if rule == "renyi" else 12.0
    book = Ledger.create(
        tmp_path / "book", dataset="d", epsilon=3.0, delta=DELTA, composition=Composing(rule), order=order
    )
    for _ in range(3):
        book.reserve(gaussian(0.27), {})
    room = book.next_epsilon()
    if rule == "renyi":
        # Losses compose: more fits in than the difference of the epsilons.
        assert room > 1.5 * book.remaining()
    with pytest.raises(BudgetExceeded):
        book.reserve(gaussian(float(gaussian_mu(1.01 * room, DELTA))), {})
    book.reserve(gaussian(float(gaussian_mu(room, DELTA))), {})
    assert book.next_epsilon() < 0.1 * room


def test_the_next_release_of_budgets_that_are_spent_pure_or_nothing():
    assert Budget(1.0, DELTA).room([(gaussian(5.0), 1)]) == 0.0
    assert Budget(1.0, DELTA).room([]) == 1.0
    assert Budget(0.0, DELTA).room([]) == 0.0
    assert Budget(1.0, 0.0).room([(PureDP(0.3, neighbours=REPLACE), 2)]) == 0.4
