"""Choosing a law, a mean and a budget."""

import json
import math

import pytest

from discretion.privacy import GaussianDP, Neighbours, PureDP, Unreachable
from discretion.selection import Binomial, Fixed, NegativeBinomial, Poisson, geometric, selection_loss
from discretion.selection.planner import (
    affordable_base,
    affordable_mean,
    base_loss,
    compare_laws,
    draw_comparison,
    law_for_success,
    warnings,
)

REPLACE = Neighbours.REPLACE
BASE = GaussianDP(math.sqrt(0.2), neighbours=REPLACE)
DELTA = 1e-6


def tnb(shape):
    return lambda mean: NegativeBinomial.of_mean(shape, mean)


@pytest.mark.parametrize(
    ("shape", "mean", "q99", "epsilon"),
    [
        (20, 10.2522, 21, 3.475128),
        (5, 11.0408, 29, 3.244988),
        (2, 12.6876, 44, 3.107024),
        (1, 15.4645, 69, 3.056500),
        (0, 80.0095, 910, 3.266040),
    ],
)
def test_laws_of_equal_success(shape, mean, q99, epsilon):
    law = law_for_success(tnb(shape), 0.1, 1 - math.exp(-1))
    assert law.mean == pytest.approx(mean, abs=6e-5)
    assert law.quantile(0.99) == q99
    assert float(law.success(0.1)) == pytest.approx(1 - math.exp(-1), rel=1e-9)
    assert selection_loss(BASE, law).epsilon(DELTA) == pytest.approx(epsilon, rel=3e-4)


def test_the_least_mean_that_succeeds_is_found():
    law = law_for_success(Poisson, 0.1, 1 - math.exp(-1))
    assert law.mean == pytest.approx(10.0, rel=1e-9)
    assert float(law.success(0.1)) >= 1 - math.exp(-1)
    assert law_for_success(geometric, 0.5, 0.3).mean == 1.0  # one run is enough
    assert law_for_success(tnb(-0.5), 0.1, 0.31).mean > 50


def test_what_no_law_reaches():
    with pytest.raises(Unreachable):
        law_for_success(tnb(-0.5), 0.1, 0.33)  # at most 0.1^0.5 = 0.316
    with pytest.raises(Unreachable, match="1,000,000"):
        law_for_success(Poisson, 1e-7, 0.5)
    for good, success in ((0.0, 0.5), (0.1, 1.0), (1.2, 0.5)):
        with pytest.raises(ValueError, match="lie in"):
            law_for_success(Poisson, good, success)


def test_laws_are_compared_cheapest_first():
    found = compare_laws(BASE, DELTA, good=0.1, success=0.6, shapes=(-0.5, 0.0, 2.0, 20.0))
    epsilons = [each.guarantee.epsilon for each in found]
    assert epsilons == sorted(epsilons)
    shapes = [each.law.shape for each in found if isinstance(each.law, NegativeBinomial)]
    assert shapes[0] == 2.0
    assert -0.5 not in shapes  # it never succeeds so often
    assert all(each.success >= 0.6 for each in found)
    row = found[0].to_dict()
    assert json.loads(json.dumps(row))["epsilon"] == epsilons[0]
    assert row["law"] == {"law": "negative-binomial", "shape": 2.0, "gamma": found[0].law.gamma}
    short = compare_laws(BASE, DELTA, good=0.1, success=0.6, shapes=(0.0, 2.0), most_q99=40)
    assert all(each.q99 <= 40 for each in short)
    assert len(short) < 3
    with pytest.raises(Unreachable, match="No law"):
        compare_laws(BASE, DELTA, good=0.1, success=0.6, shapes=(2.0,), most_q99=3)


@pytest.mark.parametrize("family", [Poisson, geometric, tnb(2.0)], ids=["Poisson", "geometric", "shape 2"])
def test_the_largest_mean_within_a_budget(family):
    law = affordable_mean(BASE, family, 3.0, DELTA, rule="renyi")
    assert selection_loss(BASE, law, rule="renyi").epsilon(DELTA) <= 3.0
    assert selection_loss(BASE, family(law.mean * 1.001), rule="renyi").epsilon(DELTA) > 3.0


def test_a_budget_that_pays_for_no_search():
    with pytest.raises(Unreachable):
        affordable_mean(BASE, geometric, 1.0, DELTA, rule="renyi")
    # fewer runs than one are possible under a Poisson law
    assert affordable_mean(BASE, Poisson, 1.9, DELTA, rule="renyi").mean < 1


def test_the_largest_base_within_a_budget():
    for kind in ("gaussian", "zcdp", "pure"):
        make, law = base_loss(kind, REPLACE), geometric(10)
        parameter = affordable_base(make, law, 3.0, DELTA, rule="renyi")
        assert selection_loss(make(parameter), law, rule="renyi").epsilon(DELTA) <= 3.0
        assert selection_loss(make(parameter * 1.001), law, rule="renyi").epsilon(DELTA) > 3.0
    with pytest.raises(Unreachable):
        affordable_base(base_loss("pure", REPLACE), geometric(10), 1e-11, 0.0)


FAMILIES = {"poisson": Poisson, "logarithmic": tnb(0.0), "geometric": geometric, "shape 5": tnb(5.0)}


@pytest.mark.parametrize(
    ("total", "delta"), [(0.1, 1e-3), (1.0, 1e-9), *(pytest.param(8.0, d, marks=pytest.mark.slow) for d in (1e-3, 0.0))]
)
@pytest.mark.parametrize("mean", [1.5, 10.0, 100.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_pure_base_is_found_by_the_renyi_bounds_whatever_the_plan(family, mean, total, delta):
    # the curves have kinks where a pure loss ends, and a loss that falls with the order is refused
    make, law = base_loss("pure", REPLACE), FAMILIES[family](mean)
    found = affordable_base(make, law, total, delta, rule="renyi")
    assert selection_loss(make(found), law, rule="renyi").epsilon(delta) <= total
    assert selection_loss(make(found * 1.001), law, rule="renyi").epsilon(delta) > total


@pytest.mark.parametrize("rho", [2e-6, 1e-10])
def test_very_private_bases_are_found_too(rho):
    make, law = base_loss("zcdp", REPLACE), geometric(10)
    total = selection_loss(make(rho), law, rule="renyi").epsilon(1e-9)
    assert affordable_base(make, law, total, 1e-9, rule="renyi") == pytest.approx(rho, rel=1e-5)


def test_warnings_name_heavy_tails_dear_plans_and_no_run():
    def of(base, law):
        return " ".join(warnings(base, law, selection_loss(base, law).guarantee(DELTA)))

    assert of(BASE, tnb(2.0)(10.0)) == ""
    assert "Heavy tail" in of(BASE, tnb(-0.5)(10.0))
    assert "no run at all" in of(BASE, Poisson(1.0))
    assert "Releasing all of 2 runs" in of(PureDP(0.001, neighbours=REPLACE), Binomial(200, 0.01))
    assert "Releasing all" not in of(BASE, Fixed(1))


def test_bases_by_their_one_parameter():
    assert base_loss("gaussian", REPLACE)(0.3) == GaussianDP(0.3, neighbours=REPLACE)
    assert base_loss("pure", REPLACE)(0.3).epsilon(0.0) == 0.3
    assert base_loss("zcdp", REPLACE)(0.3).renyi(3.0) == pytest.approx(0.9)
    with pytest.raises(KeyError):
        base_loss("other", REPLACE)


def test_the_picture_is_drawn(tmp_path):
    found = compare_laws(BASE, DELTA, good=0.1, success=0.6, shapes=(0.0, 2.0), rule="renyi")
    draw_comparison(tmp_path / "laws.png", found, BASE.epsilon(DELTA), 0.1)
    assert (tmp_path / "laws.png").read_bytes()[:4] == b"\x89PNG"
