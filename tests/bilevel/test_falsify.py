"""A search that finds false constants, and says that finding none proves nothing."""

from dataclasses import replace

import numpy as np
import pytest

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.falsify import falsify
from discretion.bilevel.families import LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.hypergradient import hypergradient
from discretion.bilevel.losses import Problem
from discretion.bilevel.sensitivity import hypergradient_sensitivity
from discretion.gp import Box

RIDGE = RidgePenalty(training=6, validation=5, dimension=2, penalties=(0.1, 2.0), candidates=None)

LOGISTIC = LogisticPenalty(training=6, validation=5, dimension=2, candidates=5)


def synthetic(rng):
    def table(n):
        A = rng.normal(size=(n, 2))
        return Table(A / np.linalg.norm(A, axis=1, keepdims=True), rng.choice([-1.0, 1.0], n))

    return SplitRecords(table(6), table(5))


@pytest.mark.parametrize("problem", [RIDGE, LOGISTIC])
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


@pytest.mark.parametrize("name", ["D_g", "D_fy", "D_gyy", "B_f", "S_f", "r_yy_x", "D_y"])
def test_a_false_constant_of_differences_is_found(name):
    c = LOGISTIC.constants()
    wrong = replace(c, **{name: 0.02 * c.get(name)}) if name in ("D_g", "D_fy", "D_y") else None
    wrong = wrong or replace(c, **{name: 0.1 * c.get(name)})
    found = falsify(LOGISTIC, synthetic, constants=wrong, trials=60)
    assert name in found.violated


class Local(RidgePenalty):
    """A ridge family that says something else of points than of the domain."""

    share = 1.0
    suprema = True

    def constants(self, x=None):
        if x is None and not Local.suprema:
            raise MissingConstant("declared_at alone gives no suprema")
        found = super().constants(x)
        return found if x is None else replace(found, D_g=Local.share * found.D_g)


def test_false_constants_at_points_are_found_though_suprema_are_true(monkeypatch):
    problem = Local(training=6, validation=5, dimension=2, penalties=(0.1, 2.0), candidates=None)
    assert falsify(problem, synthetic, trials=60).violated == ()
    monkeypatch.setattr(Local, "share", 1 / 200)
    assert {"D_g", "inner shift"} <= set(falsify(problem, synthetic, trials=60).violated)


def test_without_suprema_the_range_is_not_tried(monkeypatch):
    problem = Local(training=6, validation=5, dimension=2, penalties=(0.1, 2.0), candidates=None)
    monkeypatch.setattr(Local, "suprema", False)
    found = falsify(problem, synthetic, trials=12)
    assert found.violated == ()
    assert found.untried[-1].startswith("range")
    assert {"r_yy_x", "r_xy_x"} <= set(found.untried)
    assert found.text().splitlines()[-1].startswith("NOT TRIED: ")


class Halves:
    """f = y z and G = (y - x)^2/2 + (1/1000) sum of x y: with all training records the mixed Hessian is 0."""

    def outer_value(self, x, y, Z):
        return float(y[0] * Z.sum() / 10)

    def outer_gradients(self, x, y, Z):
        return 0.0 * x, Z.sum(axis=0) / 10

    def inner_gradient(self, x, y, Z):
        return y - x + Z.sum() / 1000 * x

    def inner_hvp(self, x, y, v, Z):
        return v

    def inner_cross(self, x, y, v, Z):
        return (Z.sum() / 1000 - 1.0) * v


class Hand:
    name = "by hand"

    def derivatives(self, outer, inner, inner_reg, counts):
        return Halves()

    def count(self, records):
        return len(records)

    def place(self, records):
        return records


def test_add_remove_constants_must_hold_for_the_regulariser_alone():
    """Bounds of R + t alone claim that a validation record moves the hypergradient by a fiftieth of what it does."""
    honest = Constants(
        L_fx=0.0, L_fy=1.0, b_fxx=0.0, b_fxy=0.0, b_fyy=0.0, mu_g=1.0, b_gyy=1.0, L_gy=2.0, b_gxy=1.0, r_xy=0.0,
        r_yy=0.0, r_xy_x=0.0, r_yy_x=0.0, one_g=1.0, one_gxy=1.0, one_gyy=0.0, one_f=2.0, D_y=2.0,
    )  # fmt: skip
    problem = Problem(
        outer=abs, inner=abs, backend=Hand(), x_domain=Box((-1.0,), (1.0,)), layout="split", counts=Counts(1000, 10),
        y_init=np.zeros(1), inner_domain="everywhere", neighbours="add-remove", declared=honest,
    )  # fmt: skip

    def ones(rng):
        return SplitRecords(np.ones((1000, 1)), np.ones((10, 1)))

    assert falsify(problem, ones, trials=30).violated == ()
    declared = replace(problem, declared=replace(honest, b_gxy=0.0))
    found = falsify(declared, ones, trials=30)
    assert {"b_gxy", "hypergradient"} <= set(found.violated)
    assert found.ratios["hypergradient"] > 40
    few = SplitRecords(np.ones((500, 1)), np.ones((10, 1))), SplitRecords(np.ones((500, 1)), np.ones((9, 1)))
    one, other = (hypergradient(declared, np.array([0.5]), each) for each in few)
    assert abs(one - other)[0] == pytest.approx(0.05)
    assert hypergradient_sensitivity(declared.constants(), declared.counts).value == pytest.approx(0.001)
