"""What is checked rather than believed: solvers, domains of constants, shapes, ranges, and what a run may say."""

import math

import numpy as np
import pytest

from discretion.bilevel.clipped import ClippedBilevel
from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.continuous import ConvexExponential
from discretion.bilevel.descent import Descent
from discretion.bilevel.domains import Grid
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import BiasedRidge, QuadraticMean, RidgePenalty
from discretion.bilevel.first_order import lbfgs
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.linear import Table
from discretion.bilevel.losses import Problem
from discretion.bilevel.penalty import PenaltyDescent
from discretion.bilevel.regularised import RegularisedExponential
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution
from discretion.bilevel.tuned import TunedModel
from discretion.bilevel.warm_start import warm_start
from discretion.gp import Ball, Box
from discretion.privacy import PublicError, SeededRandomness

FACTS = {"L_fx": 1.0, "L_fy": 1.0, "b_fxx": 0.0, "b_fxy": 1.0, "b_fyy": 0.0, "mu_g": 1.0, "L_gy": 2.0, "b_gxy": 0.0,
         "b_gyy": 1.0, "r_xy": 0.0, "r_yy": 0.0, "r_xy_x": 0.0, "r_yy_x": 0.0, "D_g": 2.0, "D_fx": 0.0, "D_y": 2.0,
         "B_f": 0.0}  # fmt: skip
BOX = Box((-1.0,), (1.0,))
NONE = SeededRandomness(0)


class Means:
    """Means by hand of scalar losses: f = scale x y, and g with its first two derivatives."""

    def __init__(self, slope, curvature, scale=1.0):
        self.slope, self.curvature, self.scale = slope, curvature, scale

    def outer_value(self, x, y, Z):
        return float(self.scale * x @ y)

    def outer_gradients(self, x, y, Z):
        return self.scale * y, self.scale * x

    def inner_gradient(self, x, y, Z):
        return np.array([float(np.mean(self.slope(y - Z)))])

    def inner_hvp(self, x, y, v, Z):
        return float(np.mean(self.curvature(y - Z))) * v

    def inner_cross(self, x, y, v, Z):
        return 0.0 * x


class Hand:
    name = "by hand"

    def __init__(self, *parts):
        self.parts = parts

    def derivatives(self, outer, inner, inner_reg, counts):
        return Means(*self.parts)

    def count(self, records):
        return len(records)

    def place(self, records):
        return records


SQUARE = (lambda u: u, np.ones_like)


def problem(parts=SQUARE, facts=None, **options):
    defaults = {"x_domain": BOX, "counts": 20, "y_init": np.zeros(1), "inner_domain": "everywhere"}
    declared = Constants(**FACTS | (facts or {}))
    return Problem(outer=abs, inner=abs, backend=Hand(*parts), declared=declared, **defaults | options)


def records(n=20):
    return np.zeros((n, 1))


@pytest.mark.parametrize("answer", [[5.0], [math.nan], [math.inf], [0.0, 0.0], 0.0])
def test_a_solver_that_says_it_got_there_is_not_believed(answer):
    def liar(problem, x, records, tolerance, start):
        return InnerSolution(np.array(answer), 0.0, True)

    grid = problem(solver=liar, x_domain=Grid.of([-1.0, 1.0]))
    with pytest.raises(InnerNotCertified):
        grid.certified(np.array([1.0]), records(), 1e-9)
    with pytest.raises(InnerNotCertified):
        ExponentialMechanism(problem=grid, epsilon=1.0).run(records(), NONE)
    with pytest.raises(InnerNotCertified):
        InnerRelease(problem=problem(solver=liar), x=np.array([1.0]), mu=0.5).run(records(), NONE)
    with pytest.raises(InnerNotCertified):
        Descent(problem=problem(solver=liar), mu=0.5, steps=1, rate=0.1).run(records(), NONE)


class Quick(Means):
    """A back end with a minimiser and a linear solver of its own, both wrong."""

    def minimise(self, x, y, Z, tolerance):
        return y + 5.0

    def solve(self, x, y, b, Z, tolerance):
        return b + 5.0, self.inner_hvp(x, y, b + 5.0, Z)


def test_a_back_end_is_not_believed_either(monkeypatch):
    one = problem(facts={"D_fx": 1.0})
    object.__setattr__(one, "derivatives", Quick(*SQUARE))
    with pytest.raises(InnerNotCertified, match="inner solver"):
        one.certified(np.array([1.0]), records(), 1e-9)
    with pytest.raises(InnerNotCertified, match="inner solver"):
        InnerRelease(problem=one, x=np.array([1.0]), mu=0.5).run(records(), NONE)
    monkeypatch.setattr(Quick, "minimise", lambda self, x, y, Z, tolerance: np.zeros(1))
    with pytest.raises(InnerNotCertified, match="linear solve"):
        Descent(problem=one, mu=0.5, steps=1, rate=0.1).run(records(), NONE)


# g = 1 - exp(-u^2/2): on Y = [-0.8, 0.8], with |z| <= 0.1, its curvature is at least 0.126; elsewhere it is not convex
HILL = (lambda u: u * np.exp(-u * u / 2), lambda u: (1 - u * u) * np.exp(-u * u / 2))
HILL_FACTS = {"mu_g": 0.126, "L_gy": 0.607, "D_g": 0.2, "D_y": 0.2}
WITHIN = Box((-0.8,), (0.8,))


def test_inner_solutions_stay_where_the_constants_hold():
    """Newton from 0.799 leaves for -6.8 at one data set and finds the solution at its neighbour."""
    Z = records()
    other = Z.copy()
    other[0] = 0.1
    escaping = [np.array([0.7999]), np.array([0.799]), np.array([0.75]), np.array([-0.8])]
    for start in escaping:
        for domain in (WITHIN, Ball((0.0,), 0.8)):
            one = problem(HILL, HILL_FACTS, y_init=start, inner_domain=domain)
            for held, solution in ((Z, 0.0), (other, 0.005)):
                y = one.certified(np.array([1.0]), held, 1e-9)
                assert np.abs(y - solution).max() < 1e-3
                assert np.linalg.norm(one.inner_gradient(np.array([1.0]), y, held)) <= 1e-9

    def away(problem, x, held, tolerance, start):
        return InnerSolution(np.array([-6.84]), 0.0, True)

    runaway = problem(HILL, HILL_FACTS, y_init=np.array([0.799]), inner_domain=WITHIN, solver=away)
    assert abs(runaway.certified(np.array([1.0]), Z, 1e-9)[0]) < 1e-8


def test_somebody_says_where_the_constants_hold():
    silent = problem(inner_domain=None)
    for make in (
        lambda: ExponentialMechanism(problem=silent, epsilon=1.0),
        lambda: InnerRelease(problem=silent, x=np.zeros(1), mu=1.0),
        lambda: Descent(problem=silent, mu=1.0, steps=1, rate=0.1),
    ):
        with pytest.raises(MissingConstant, match="where the constants hold"):
            make()
    said = InnerRelease(problem=problem(), x=np.zeros(1), mu=1.0).run(records(), NONE).certificate
    assert any("at every y" in each for each in said.declared)
    kept = Descent(problem=problem(inner_domain=WITHIN), mu=1.0, steps=1, rate=0.1).run(records(), NONE).certificate
    assert any("inner domain contains" in each for each in kept.declared)
    for wrong in ("somewhere", Box((0.0, 0.0), (1.0, 1.0))):
        with pytest.raises(ValueError, match="inner_domain"):
            problem(inner_domain=wrong)


class Foreign(QuadraticMean):
    """A problem of somebody's own, with constants and nothing about where they hold."""

    verified = False
    inner_domain = None


def test_a_problem_of_your_own_says_so_too():
    foreign = Foreign(records=20, dimension=1)
    for make in (
        lambda: ExponentialMechanism(problem=foreign, epsilon=1.0),
        lambda: InnerRelease(problem=foreign, x=np.zeros(1), mu=1.0),
        lambda: Descent(problem=foreign, mu=1.0, steps=1, rate=0.1),
        lambda: ConvexExponential(problem=foreign, epsilon=1.0),
        lambda: RegularisedExponential(problem=foreign, epsilon=1.0),
        lambda: warm_start(foreign, records(), epsilon=1.0, steps=1, rate=0.1),
    ):
        with pytest.raises(MissingConstant, match="inner_domain"):
            make()
    object.__setattr__(foreign, "inner_domain", "everywhere")
    made = ConvexExponential(problem=foreign, epsilon=1.0).run(records(), NONE).certificate
    assert any("at every y" in each for each in made.declared)


def test_contradictory_constants_are_refused():
    for wrong in ({"mu_g": math.inf}, {"mu_g": 2.0, "b_gyy": 1.0}):
        with pytest.raises(ValueError, match="mu_g"):
            Constants(**wrong)
    assert Constants(mu_g=1.0, b_gyy=1.0).mu_g == 1.0
    with pytest.raises(ValueError, match="add-remove"):
        problem(facts={"single": True})
    at = problem(declared_at=lambda x: Constants(**FACTS, single=True))
    with pytest.raises(ValueError, match="add-remove"):
        at.constants(np.zeros(1))


@pytest.mark.parametrize("D_g", [0.0, math.inf])
def test_no_noise_follows_from_no_sensitivity(D_g):
    with pytest.raises(Refused, match="D_g"):
        InnerRelease(problem=problem(facts={"D_g": D_g}), x=np.zeros(1), mu=1.0)


def test_the_rule_of_the_output_is_checked():
    silent, wide = problem(), {"mu": 1.0, "steps": 2, "rate": 0.1, "output": "nonsense"}
    for make in (
        lambda: Descent(problem=silent, **wide),
        lambda: SeparableDescent(gradients=abs, domain=BOX, records=20, clip=1.0, **wide),
        lambda: ClippedBilevel(problem=silent, clips=(1.0,) * 3, rates=(1.0,) * 3, steps=2, mu=1.0, output="nonsense"),
        lambda: PenaltyDescent(
            problem=silent, weight=1.0, clip=1.0, inner_clip=1.0, inner_steps=1, inner_rate=1.0, **wide
        ),
    ):
        with pytest.raises(ValueError, match="output must be"):
            make()
    with pytest.raises(ValueError, match="whole number"):
        SeparableDescent(gradients=abs, domain=BOX, records=20.5, clip=1.0, mu=1.0, steps=2, rate=0.1)


def test_a_step_needs_a_budget():
    ridge = BiasedRidge(training=20, validation=20, dimension=1, domain=BOX, strength=1.0)
    with pytest.raises(ValueError, match="budget"):
        Descent(problem=ridge, mu=1e-200, steps=1, rate=0.1)
    with pytest.raises(ValueError, match="budget"):
        Descent(problem=ridge, mu=1.0, steps=5000, rate=0.1, contraction=0.5)


def test_a_gradient_that_would_absorb_its_noise_stops_the_run():
    def scaled(scale):  # q = scale y, y = 0.5: the constants are those of a small f, which is false
        return problem((*SQUARE, scale), facts={"D_fx": 1.0})

    half = np.full((20, 1), 0.5)
    assert Descent(problem=scaled(1.0), mu=1.0, steps=1, rate=0.1).run(half, NONE).gradients.shape == (1, 1)
    with pytest.raises(PublicError, match="absorb") as caught:
        Descent(problem=scaled(2.0**45), mu=1.0, steps=1, rate=0.1).run(half, NONE)
    assert "5" not in str(caught.value)
    with pytest.raises(PublicError, match="absorb"):
        InnerRelease(problem=problem(), x=np.zeros(1), mu=1.0).run(np.full((20, 1), 2.0**45), NONE)


def test_the_name_of_a_solver_from_outside_is_not_told():
    def by_the_records_of_alice(problem, x, records, tolerance, start):
        return InnerSolution(start, 0.0, True)

    ridge = BiasedRidge(training=20, validation=20, dimension=1, domain=BOX, strength=1.0)
    cases = {None: "own", "gd": "gd", lbfgs: "lbfgs", by_the_records_of_alice: "user"}
    for solver, told in cases.items():
        assert Descent(problem=ridge, mu=1.0, steps=1, solver=solver).parameters()["solver"] == told


def test_offsets_that_drown_the_values_are_refused():
    ridge = RidgePenalty(training=20, validation=20, dimension=1, penalties=(0.1, 1.0), candidates=3)
    ExponentialMechanism(problem=ridge, epsilon=1.0, offsets=np.array([0.0, 1.0, 1e6]))
    with pytest.raises(Refused, match="offsets"):
        ExponentialMechanism(problem=ridge, epsilon=1.0, offsets=np.array([0.0, 1.0, 1e14]))


def test_a_loss_whose_rounding_exceeds_what_is_allowed_stops_the_run(monkeypatch):
    """y moves with a record by 2/n, and rounding of a loss of 1e12 by more than a thousandth of that."""
    own = Means.outer_value
    choice = ExponentialMechanism(problem=problem(), epsilon=1.0, grid=Grid.of([-1.0, 0.5, 1.0]))
    convex = ConvexExponential(problem=problem(), epsilon=1.0, convex=True)
    for size, stops in ((1e6, False), (-1e12, True), (math.inf, True)):
        monkeypatch.setattr(Means, "outer_value", lambda *parts, size=size: size + own(*parts))
        for mechanism in (choice, convex):
            if not stops:
                made = mechanism.run(records(), NONE).certificate
                assert any("2^-53" in each for each in made.limits) == (mechanism is convex)
                continue
            with pytest.raises(PublicError, match="finite") as told:
                mechanism.run(records(), NONE)
            assert "e+" not in str(told.value)
    assert any("no large terms cancel" in each for each in problem().declarations)
    assert not any("no large terms cancel" in each for each in QuadraticMean(records=4, dimension=1).declarations)


def test_the_order_of_records_is_declared():
    model = TunedModel(kind="ridge", records=20, dimension=1, choice_epsilon=1.0)
    rng = np.random.default_rng(0)
    release = model.run(Table(rng.uniform(-1, 1, (20, 1)), rng.uniform(-1, 1, 20)), NONE)
    assert any("order of the records" in each for each in release.certificate.declared)
    ridge = RidgePenalty(training=10, validation=10, dimension=1)
    assert any("order" in each for each in ridge.declarations)
    assert not any("order" in each for each in problem().declarations)


def test_what_losses_print_is_not_seen(capsys):
    def gradients(x, held):
        print("a record:", held[0])
        return np.zeros((len(held), 1))

    SeparableDescent(gradients=gradients, domain=BOX, records=20, steps=1, clip=1.0, rate=0.1, mu=1.0).run(
        records(), NONE
    )

    def talking(problem, x, held, tolerance, start):
        print("a record:", held[0])
        return InnerSolution(np.zeros(1), 0.0, True)

    one = problem(solver=talking, x_domain=Grid.of([-1.0, 1.0]))
    mechanism = ExponentialMechanism(problem=one, epsilon=1.0)
    mechanism.run(records(), NONE)
    mechanism.sample_uncertified(records(), NONE)
    assert capsys.readouterr() == ("", "")


# --- what a differentiator would say of one record ---


@pytest.fixture
def searching_for_nan():
    """Modes in which a differentiator raises an error where a number is NaN."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    jax.config.update("jax_debug_nans", True)
    jax.config.update("jax_debug_infs", True)
    torch.autograd.set_detect_anomaly(True)
    yield jax, torch
    jax.config.update("jax_debug_nans", False)
    jax.config.update("jax_debug_infs", False)
    torch.autograd.set_detect_anomaly(False)


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_record_without_a_number_is_no_error(name, searching_for_nan):
    from discretion.bilevel.backends import separable_gradients

    jax, torch = searching_for_nan
    sqrt, backend = (jax.numpy.sqrt, "jax.numpy") if name == "jax" else (torch.sqrt, "torch")
    rows = separable_gradients(
        backends()[backend](),
        lambda x, y, z: (0.5 * (y * z[0] - z[1]) ** 2).sum() + sqrt(z[2]) * y[0],
        lambda x, y, z: (0.5 * (y * z[0] - z[1]) ** 2).sum(),
        inner_reg=lambda x, y: (0.5 * (y - x) ** 2).sum(),
        y_init=np.zeros(1),
    )
    Z = np.array([[1.0, 2.0, 1.0], [np.nan, 1.0, 1.0], [1.0, 1.0, -1.0], [np.inf, 0.0, 0.0], [2.0, 1.0, 4.0]])
    found = rows(np.array([0.3]), Z)[:, 0]
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, True, False])
    np.testing.assert_allclose(found[[0, 4]], rows(np.array([0.3]), Z[[0, 4]])[:, 0], rtol=1e-12)
    if name == "jax":
        with pytest.raises(FloatingPointError):
            jax.numpy.sqrt(-1.0)
    else:
        assert torch.is_anomaly_enabled()


# --- empty data sets, under add/remove ---


def backends():
    from discretion.bilevel.backends import JaxBackend, TorchBackend

    return {"jax.numpy": JaxBackend, "torch": TorchBackend}


def f(x, y, z):
    return 0.5 * ((y - z) ** 2).sum()


def g(x, y, z):
    return 0.5 * ((y - z - x) ** 2).sum()


def reg(x, y):
    return 0.5 * (y**2).sum()


@pytest.mark.parametrize("name", ["jax.numpy", "torch"])
def test_no_records_at_all(name):
    pytest.importorskip(name)
    from discretion.bilevel.backends import separable_gradients

    backend = backends()[name]()
    one = Problem(outer=f, inner=g, inner_reg=reg, backend=backend, x_domain=Box((-1.0,) * 3, (1.0,) * 3), counts=5,
                  y_init=np.zeros(3), neighbours="add-remove")  # fmt: skip
    Z, x, y = one.ingest(np.zeros((0, 3))), np.full(3, 0.5), np.arange(3.0)
    assert one.outer_value(x, y, Z) == 0.0
    assert not np.any(one.outer_gradients(x, y, Z))
    np.testing.assert_array_equal(one.inner_gradient(x, y, Z), y)
    np.testing.assert_array_equal(one.inner_hvp(x, y, y, Z), y)
    assert not one.inner_cross(x, y, y, Z).any()
    assert not one.certified(x, Z, 1e-12, y).any()
    rows = separable_gradients(backend, f, g, y_init=np.zeros(3))
    assert rows(x, np.zeros((0, 3))).shape == (0, 3)
    method = PenaltyDescent(problem=one, weight=5.0, clip=1.0, inner_clip=1.0, steps=2, inner_steps=2, rate=0.1,
                            inner_rate=0.1, mu=1.0)  # fmt: skip
    release = method.run(np.zeros((0, 3)), SeededRandomness(1))
    for noise in (release.y, release.y_penalty, release.gradients[0]):
        assert len(set(noise.tolist())) == 3  # each coordinate has noise of its own
