"""Noisy hypergradient descent: what a step's noise covers, what it costs, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.descent import Descent, default_steps, noisy_hypergradient
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import BiasedRidge, HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.hypergradient import hypergradient
from discretion.bilevel.losses import Problem
from discretion.bilevel.outputs import public_output
from discretion.bilevel.recomputation import LOSSES
from discretion.bilevel.sensitivity import hypergradient_sensitivity, smoothness
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution
from discretion.bilevel.warm_start import WarmStart, warm_start
from discretion.gp import Ball, Box
from discretion.privacy import (
    BoundedRange,
    GaussianDP,
    Ledger,
    Neighbours,
    NotBookable,
    SeededRandomness,
    SystemRandomness,
    verify,
)

SIZES = {"training": 60, "validation": 50, "dimension": 3}


def table(rng, n, extreme=False):
    A = rng.normal(size=(n, 3))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = rng.uniform(-1, 1, n)
    if extreme:
        A, b = np.tile(A[:1], (n, 1)), np.ones(n)
    return Table(A, b)


def records(seed=0, extreme=False):
    rng = np.random.default_rng(seed)
    return SplitRecords(table(rng, 60, extreme), table(rng, 50, extreme))


RIDGE = RidgePenalty(**SIZES, penalties=(0.1, 10.0), candidates=None)
BIASED = BiasedRidge(**SIZES, domain=Ball((0.0, 0.0, 0.0), 2.0), strength=0.5)


# --- What the noise covers ---


@pytest.mark.parametrize("problem", [RIDGE, BIASED, LogisticPenalty(**SIZES, penalties=(0.1, 10.0), candidates=None)])
def test_no_neighbour_moves_a_computed_gradient_by_more_than_its_sensitivity(problem):
    """With inner solutions and linear solves as inexact as they may be: pushed to the edge of their certificates."""
    descent = Descent(problem=problem, mu=1.0, steps=2, rate=0.1, accuracy=0.1, linear="cg")
    rng, largest = np.random.default_rng(1), 0.0
    for trial in range(150):
        base = records(trial, extreme=trial % 2 == 0)
        other = SplitRecords(*(Table(t.features.copy(), t.labels.copy()) for t in (base.training, base.validation)))
        changed = (other.training, other.validation)[trial % 3 == 0]
        changed.features[0] *= -1.0 if trial % 4 < 2 else 1.0
        changed.labels[0] = -1.0
        x = np.asarray(problem.x_domain.clamp(rng.normal(size=(1, problem.x_domain.dimension)) * 2)[0])
        step = descent.step(x)
        gradients = []
        for each, sign in ((base, 1.0), (other, -1.0)):
            held = problem.ingest(each)
            exact = problem.certified(x, held, 1e-11)
            _, gy = problem.outer_gradients(x, exact, held)
            push = gy / max(float(np.linalg.norm(gy)), 1e-300)
            y = exact + sign * 0.9 * step.alpha * push
            q = problem.hypergradient(x, y, held)[0]
            off = sign * 0.9 * step.tau * push
            q = q - problem.inner_cross(x, y, problem.linear_solve(x, y, off, held), held)
            gradients.append(q)
        largest = max(largest, float(np.linalg.norm(gradients[0] - gradients[1])) / step.sensitivity)
    assert largest <= 1 + 1e-9
    assert largest > 0.02


def test_default_accuracy_costs_one_percent():
    step = Descent(problem=RIDGE, mu=1.0, steps=1, rate=0.1).step(np.zeros(1))
    c = RIDGE.constants(np.zeros(1))
    assert step.exact.value == hypergradient_sensitivity(c, RIDGE.counts).value
    assert step.sensitivity == pytest.approx(1.01 * step.exact.value, rel=2e-6)
    assert step.tolerance == pytest.approx(c.get("mu_g") * step.alpha)


def test_noise_is_gaussian_around_the_exact_hypergradient():
    held, pulls = records(3), []
    for seed in range(150):
        run = noisy_hypergradient(BIASED, held, mu=2.0, steps=3, randomness=SeededRandomness(seed))
        for x, noisy, sigma in zip(run.path, run.gradients, run.noise, strict=False):
            pulls.append((noisy - hypergradient(BIASED, x, held, linear="dense")) / sigma)
    pulls = np.array(pulls)
    assert len(pulls) == 450
    for column in (*pulls.T, pulls @ np.ones(3) / math.sqrt(3)):
        assert kstest(column, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(pulls[:-1, 0], pulls[1:, 0])[0, 1]) < 0.15


def test_constants_are_those_of_the_current_point():
    run = noisy_hypergradient(RIDGE, records(), mu=5.0, steps=6, rate=0.5, randomness=SeededRandomness(2))
    assert len(set(run.sensitivities)) > 3
    for x, moved, sigma in zip(run.path, run.sensitivities, run.noise, strict=False):
        exact = hypergradient_sensitivity(RIDGE.constants(x), RIDGE.counts).value
        assert moved == pytest.approx(1.01 * exact, rel=2e-6)
        assert moved / sigma == pytest.approx(5.0 / math.sqrt(6), rel=1e-12)


@pytest.mark.parametrize("contraction", [0.0, 0.3])
def test_steps_compose_to_the_price(contraction):
    descent = Descent(problem=BIASED, mu=0.7, steps=13, contraction=contraction)
    run = descent.run(records(), SeededRandomness(0))
    spent = run.sensitivities / run.noise
    assert math.sqrt(np.sum(spent**2)) == pytest.approx(0.7, rel=1e-12)
    assert math.sqrt(np.sum(spent**2)) <= 0.7
    assert descent.privacy_loss(110) == GaussianDP(0.7, neighbours="replace", rule=descent.privacy_loss(110).rule)
    assert (np.diff(descent.budgets) > 0).all() == (contraction > 0)


def test_epsilon_is_met():
    descent = Descent(problem=BIASED, epsilon=1.0, delta=1e-5, steps=4)
    assert descent.privacy_loss(110).epsilon(1e-5) <= 1.0
    assert descent.price == pytest.approx(0.2681, abs=1e-4)


# --- Runs ---


def test_all_solvers_find_the_same_path():
    runs = [
        noisy_hypergradient(
            RIDGE, records(), mu=3.0, steps=5, rate=0.5, randomness=SeededRandomness(1), solver=solver, linear=linear
        )
        for solver, linear in ((None, None), ("newton", "cg"), ("lbfgs", "neumann"), ("gd", "cg"))
    ]
    for run in runs[1:]:
        near = 4 * 0.0025 * runs[0].sensitivities.max()
        np.testing.assert_allclose(run.path, runs[0].path, atol=5 * near)


def test_descends_where_records_suffice():
    n = 200_000
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2 * n, 3))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    data = Table.split(A, np.clip(A @ np.array([0.5, -0.4, 0.2]), -1, 1), np.arange(2 * n) < n)
    problem = BiasedRidge(training=n, validation=n, dimension=3, domain=Ball((0.0,) * 3, 2.0))
    run = noisy_hypergradient(problem, data, epsilon=2.0, steps=60, randomness=SeededRandomness(4))
    before, after = (np.linalg.norm(hypergradient(problem, x, data)) for x in (run.path[0], run.x))
    assert after < 0.02 * before
    facts = run.report()
    assert facts.certified
    assert facts.verified
    assert facts.informative
    assert after < facts.expected
    for words in ("mu =", "One record moves", "inner curvature", "facts", "certified"):
        assert words in str(facts)


def test_one_record_one_step_one_coordinate():
    problem = RidgePenalty(training=1, validation=1, dimension=1, penalties=(0.5, 2.0), candidates=None)
    data = SplitRecords(Table(np.ones((1, 1)), np.ones(1)), Table(np.ones((1, 1)), np.ones(1)))
    run = noisy_hypergradient(problem, data, mu=1.0, steps=1, randomness=SeededRandomness(0))
    assert run.path.shape == (2, 1)
    assert np.isfinite(run.x).all()


def test_outputs_are_functions_of_public_arrays():
    T = 30
    path = np.arange(T + 1.0)[:, None]
    gradients = np.abs(np.arange(T) - 20.0)[:, None]
    randomness = SeededRandomness(0)
    assert public_output("tail", path, gradients, randomness)[0] == path[16:].mean()
    assert abs(public_output("window", path, gradients, randomness)[0] - 20) <= 1
    drawn = {float(public_output("uniform", path, gradients, randomness)[0]) for _ in range(600)}
    assert min(drawn) == 0.0
    assert max(drawn) == T - 1
    for T in (1, 2, 3):
        for rule in ("tail", "window", "uniform"):
            assert public_output(rule, path[: T + 1], gradients[:T], randomness).shape == (1,)


def test_path_stays_in_the_domain():
    run = noisy_hypergradient(BIASED, records(), mu=0.01, steps=10, rate=5.0, randomness=SeededRandomness(0))
    assert BIASED.x_domain.contains(run.path).all()
    assert np.linalg.norm(run.path, axis=1).max() > 1.9


def test_releases_hold_no_record():
    run = noisy_hypergradient(BIASED, records(), mu=1.0, steps=2, randomness=SystemRandomness())
    assert set(vars(run)) == {"certificate", "x", "path", "gradients", "noise", "sensitivities", "facts"}
    assert run.certificate.n == 110
    assert run.certificate.parameters["steps"] == 2


def test_certificates_are_verified():
    for mechanism in (
        Descent(problem=RIDGE, mu=0.5, steps=3, rate=0.1, solver="newton", linear="cg", contraction=0.1),
        Descent(problem=RIDGE, epsilon=1.0, steps=2, start=np.array([1.0])),
    ):
        certificate = mechanism.run(records(), SystemRandomness()).certificate
        assert verify(certificate, LOSSES).verified
    wrong = replace(certificate, parameters={**certificate.parameters, "mu": 2.0})
    assert not verify(wrong, LOSSES).verified


# --- The ledger ---


def test_ledger_books_certified_runs_and_refuses_others(tmp_path):
    ledger = Ledger.create(tmp_path / "l.sqlite", epsilon=3.0, delta=1e-5, neighbours="replace", dataset="made up")
    run = noisy_hypergradient(BIASED, records(), epsilon=1.0, delta=1e-6, steps=3, ledger=ledger)
    assert run.certificate.ledger_entry
    with pytest.raises(NotBookable):
        noisy_hypergradient(
            BIASED, records(), epsilon=1.0, delta=1e-6, steps=3, ledger=ledger, randomness=SeededRandomness(0)
        )

    def lazy(problem, x, records, tolerance, start):
        return InnerSolution(start, 0.0, True)

    with pytest.raises(InnerNotCertified, match="solver"):
        Descent(problem=BIASED, mu=0.1, steps=3, solver=lazy).run(records(), SystemRandomness())
    with pytest.raises(Exception, match="solver"):
        noisy_hypergradient(BIASED, records(), epsilon=0.1, steps=3, solver=lazy, ledger=ledger)


# --- Warm start ---


def test_warm_start_costs_the_sum():
    problem = RIDGE
    run = warm_start(problem, records(), epsilon=4.0, delta=1e-6, steps=3, rate=0.1, randomness=SeededRandomness(1))
    assert run.certificate.epsilon <= 4.0
    assert run.certificate.epsilon > 3.95
    parts = run.certificate.parameters
    eta, mu = parts["choice"]["epsilon"], parts["descent"]["mu"]
    assert eta**2 / 8 == pytest.approx(mu**2 / 2, rel=1e-9)
    choice = ExponentialMechanism(problem=problem, epsilon=eta)
    mechanism = WarmStart(choice=choice, descent=Descent(problem=problem, mu=mu, steps=3, rate=0.1))
    loss = mechanism.privacy_loss(110)
    for order in (1.5, 2.0, 3.0):
        parts = BoundedRange(eta, neighbours="replace").renyi(order), GaussianDP(mu, neighbours="replace").renyi(order)
        assert loss.renyi(order) == pytest.approx(sum(parts), rel=1e-12)
        assert loss.renyi(order) <= min(eta, order * eta**2 / 8) + order * mu**2 / 2
    assert run.path[0] in choice.points


def test_warm_start_is_about_one_problem():
    twin = RidgePenalty(**SIZES, penalties=(0.1, 10.0), candidates=None)
    with pytest.raises(ValueError, match="one problem"):
        WarmStart(choice=ExponentialMechanism(problem=twin, epsilon=1.0), descent=Descent(problem=RIDGE, mu=1.0))


# --- Refusals ---


def test_refusals():
    with pytest.raises(Refused, match="kink"):
        Descent(problem=HuberPenalty(**SIZES, penalties=(0.1, 1.0), candidates=None), mu=1.0, steps=1, rate=0.1)
    with pytest.raises(ValueError, match="finite list"):
        Descent(problem=RidgePenalty(**SIZES), mu=1.0)
    for wrong in ({"mu": 1.0, "epsilon": 1.0}, {}, {"mu": -1.0}, {"mu": 1.0, "steps": 0}, {"mu": 1.0, "rate": 0.0},
                  {"mu": 1.0, "solver": "sgd"}, {"mu": 1.0, "linear": "lu"}, {"mu": 1.0, "start": np.array([9.0])},
                  {"mu": 1.0, "output": "best"}, {"mu": 1.0, "accuracy": 0.0}):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            Descent(problem=RIDGE, **wrong)
    with pytest.raises(Refused, match="precision"):
        Descent(problem=RIDGE, mu=1.0, steps=1, rate=0.1, accuracy=1e-12)
    with pytest.raises(ValueError, match="110"):
        Descent(problem=RIDGE, mu=1.0, steps=1).privacy_loss(5)


def test_nothing_to_protect_is_refused():
    class Constant(QuadraticMean):
        def constants(self, x=None):
            return Constants(
                **dict.fromkeys(
                    ("L_fx", "L_fy", "b_fxx", "b_fxy", "b_fyy", "r_xy", "r_yy", "D_g", "D_gxy", "D_gyy"), 0.0
                ),
                mu_g=1.0, b_gxy=1.0, b_gyy=1.0,
            )  # fmt: skip

    with pytest.raises(Refused, match="No record can move"):
        Descent(problem=Constant(records=5, dimension=2), mu=1.0, steps=1, rate=0.1)


def declared(**constants):
    jnp = pytest.importorskip("jax.numpy")
    from discretion.bilevel.backends import JaxBackend

    facts = {"L_fx": 0.0, "L_fy": 1.0, "b_fxy": 0.0, "b_fyy": 0.0, "D_fx": 0.0, "D_fy": 0.0, "mu_g": 1.0, "b_gxy": 1.0}
    facts |= {"b_gyy": 1.0, "r_xy": 0.0, "r_yy": 0.0, "D_g": 2.0, "D_gxy": 0.0, "D_gyy": 0.0}
    return Problem(outer=lambda x, y, z: y[0], inner=lambda x, y, z: 0.5 * jnp.sum((y - x - z) ** 2), counts=Counts(20),
                   backend=JaxBackend(), x_domain=Box((-1.0,), (1.0,)), y_init=0.0,
                   declared=Constants(**facts | constants), inner_domain="everywhere")  # fmt: skip


def test_constrained_and_clipped_problems_are_refused():
    """f = y, g = (y - x - c)^2/2: K = 0 while the wall Y = [-1, 1], or the clip of f, gives h a range of |c - c'|/n."""
    with pytest.raises(Refused, match="constrained"):
        Descent(problem=declared(inner_unconstrained=False), mu=1.0, steps=1, rate=0.1)
    with pytest.raises(Refused, match="kink"):
        Descent(problem=declared(smooth=False), mu=1.0, steps=1, rate=0.1)


def test_missing_constants_are_named():
    with pytest.raises(MissingConstant, match="b_fxx"):
        Descent(problem=declared(D_fx=1.0), mu=1.0, steps=1)
    with pytest.raises(MissingConstant, match=r"D_g|L_gy"):
        Descent(problem=declared(D_fx=1.0, D_g=None), mu=1.0, steps=1, rate=0.1)
    with pytest.raises(MissingConstant, match="steps"):
        Descent(problem=declared(D_fx=1.0), mu=1.0, rate=0.1)
    report = Descent(problem=declared(D_fx=1.0), mu=1.0, steps=2, rate=0.1).report()
    assert report.expected is None
    assert "You answer for the constants" in str(report)


class AtPoints(RidgePenalty):
    """A family that says nothing of the domain as a whole."""

    def constants(self, x=None):
        if x is None:
            raise MissingConstant("give declared=Constants(...) too.")
        return super().constants(x)


def test_report_says_why_there_is_no_bound():
    local = AtPoints(**SIZES, penalties=(0.1, 10.0), candidates=None)
    with pytest.raises(MissingConstant, match=r"Give rate; .* declared="):
        Descent(problem=local, mu=1.0, steps=3)
    text = Descent(problem=local, mu=1.0, steps=3, rate=0.1).report().text()
    assert "No bound of the hypergradient. give declared=" in text
    report = Descent(problem=RIDGE, mu=1.0, steps=3, rate=1.0).report()
    assert report.expected == math.inf
    assert f"above 1/b_Phi = {1 / smoothness(RIDGE.constants()):.3g}" in report.text()
    assert report.longest < report.steepest


def test_add_remove_uses_single_terms():
    other = BiasedRidge(**SIZES, domain=Ball((0.0, 0.0, 0.0), 2.0), strength=0.5, neighbours="add-remove")
    one, two = (Descent(problem=p, mu=1.0, steps=1).step(np.zeros(3)).sensitivity for p in (other, BIASED))
    assert one < 0.8 * two
    rng = np.random.default_rng(0)
    fewer = SplitRecords(table(rng, 55), table(rng, 50))
    run = noisy_hypergradient(other, fewer, mu=1.0, steps=2, randomness=SeededRandomness(0))
    assert run.certificate.n is None
    assert Descent(problem=other, mu=1.0, steps=1).privacy_loss(3).neighbours is Neighbours.ADD_REMOVE
    with pytest.raises(ValueError, match="more records"):
        noisy_hypergradient(other, SplitRecords(table(rng, 61), table(rng, 50)), mu=1.0, steps=1)


def test_default_steps_balance_the_bound():
    n = 10**6
    problem = BiasedRidge(training=n, validation=n, dimension=3, domain=Ball((0.0,) * 3, 2.0))
    best = Descent(problem=problem, mu=0.5)
    T = len(best.budgets)
    assert default_steps(problem, 0.5, best.step(np.zeros(3)).sensitivity) == T
    if T < 1000:
        others = [Descent(problem=problem, mu=0.5, steps=t).report().expected for t in (T // 3, 3 * T)]
        assert best.report().expected < min(others)
    assert best.eta == pytest.approx(0.5 / smoothness(problem.constants()))


def test_a_warm_start_is_what_its_certificate_says():
    """Number of steps and price do not hang on the point that is chosen."""
    run = warm_start(RIDGE, records(), epsilon=2.0, delta=1e-6, rate=0.1, randomness=SeededRandomness(1))
    stated = run.certificate.parameters["descent"]
    assert stated["steps"] == len(run.gradients)
    assert stated["start"] == "the choice"
    assert not {"constants", "sensitivity", "noise"} & set(stated)
    assert run.report().epsilon == run.certificate.epsilon
    assert "the choice of the start included" in run.report().text()
    with pytest.raises(ValueError, match="batch"):
        warm_start(RIDGE, records(), epsilon=2.0, steps=2, rate=0.1, batch=Counts(3, 3))
