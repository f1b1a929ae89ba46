"""A search that finds false constants, and says that finding none proves nothing."""

from dataclasses import replace

import numpy as np
import pytest

from discretion.bilevel.falsify import falsify
from discretion.bilevel.families import LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.problem import SplitRecords

RIDGE = RidgePenalty(training=6, validation=5, dimension=2, penalties=(0.1, 2.0), candidates=None)


def synthetic(rng):
    def table(n):
        A = rng.normal(size=(n, 2))
        return Table(A / np.linalg.norm(A, axis=1, keepdims=True), rng.choice([-1.0, 1.0], n))

    return SplitRecords(table(6), table(5))


@pytest.mark.parametrize("problem", [RIDGE, LogisticPenalty(training=6, validation=5, dimension=2, candidates=5)])
def test_verified_families_stand(problem):
    found = falsify(problem, synthetic, trials=120)
    assert found.violated == ()
    assert max(found.ratios.values()) > 0.5
    assert "not a proof" in found.text()


def test_add_remove_takes_records_out():
    problem = replace(RIDGE, neighbours="add-remove")
    found = falsify(problem, synthetic, trials=60)
    assert found.violated == ()
    assert (
        "inner shift"
        in falsify(problem, synthetic, constants=replace(problem.constants(), D_g=0.05), trials=60).violated
    )


def test_reference_instance_stands():
    problem = QuadraticMean(records=5, dimension=3)
    found = falsify(problem, lambda rng: rng.normal(size=(5, 3)), trials=60)
    assert found.violated == ()
    assert found.ratios["range"] > 0.3


@pytest.mark.parametrize("name", ["L_fy", "mu_g", "b_gxy", "b_gyy", "b_fyy"])
def test_a_false_constant_is_found(name):
    c = RIDGE.constants()
    wrong = replace(c, **{name: c.get(name) * (3.0 if name == "mu_g" else 0.2)})
    found = falsify(RIDGE, synthetic, constants=wrong, trials=60)
    assert name in found.violated
    assert "FALSE" in found.text()


def test_a_false_difference_constant_is_found_by_what_it_bounds():
    wrong = replace(RIDGE.constants(), D_g=0.1)
    assert "inner shift" in falsify(RIDGE, synthetic, constants=wrong, trials=60).violated


def test_what_was_not_tried_is_said():
    found = falsify(RIDGE, synthetic, trials=6)
    assert "r_yy_x" in found.untried
    assert "Not tried" in found.text()
