"""Clipped steps: what one record can move whatever it is, and what that costs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid

from discretion.bilevel.backends import JaxBackend, separable_gradients
from discretion.bilevel.clipped import ClippedBilevel
from discretion.bilevel.clipping import ClippedSteps
from discretion.bilevel.constants import Constants
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.hypergradient import hypergradient
from discretion.bilevel.losses import Problem
from discretion.bilevel.penalty import PenaltyDescent
from discretion.bilevel.recomputation import LOSSES
from discretion.bilevel.separable import SeparableDescent
from discretion.gp import Ball, Box
from discretion.privacy import GaussianDP, Neighbours, PublicError, SeededRandomness, SubsampledGaussian, verify
from discretion.privacy.clipping import AdaptiveClip

jnp = pytest.importorskip("jax.numpy")

HUGE = (1e12, -1e12, np.nan, np.inf, -np.inf, 1.79e308, 0.0, 1.0)
NONE = SeededRandomness(0)


def f(x, y, z):
    return jnp.log(jnp.cosh(z[:3] @ y - z[3])) + 0.1 * (x @ x)


def g(x, y, z):
    return jnp.log(jnp.cosh(z[:3] @ y - z[:2] @ x))


def reg(x, y):
    return 0.25 * y @ y


def problem(counts, layout="joint", **options):
    return Problem(outer=f, inner=g, inner_reg=reg, backend=JaxBackend(), x_domain=Box((-4.0, -4.0), (4.0, 4.0)),
                   counts=counts, layout=layout, y_init=np.zeros(3), **options)  # fmt: skip


def table(rng, n):
    return np.hstack([rng.normal(size=(n, 3)) / 2, rng.uniform(-1, 1, (n, 1))])


# --- Cost ---


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_cost_of_all_records(neighbours):
    relation = Neighbours(neighbours)
    steps = ClippedSteps.within(steps=50, mu=0.7, epsilon=None, delta=1e-6, neighbours=relation)
    change = 2.0 if neighbours == "replace" else 1.0
    assert steps.loss.mu <= 0.7
    assert steps.loss.mu == pytest.approx(0.7, rel=1e-12)
    assert steps.multiplier == pytest.approx(change * math.sqrt(50) / 0.7)
    met = ClippedSteps.within(steps=50, mu=None, epsilon=1.0, delta=1e-5, neighbours=relation)
    assert 0.999 < met.loss.epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_cost_of_a_sample_is_that_of_its_own_relation(neighbours):
    relation = Neighbours(neighbours)
    some = ClippedSteps.within(steps=20, mu=None, epsilon=2.0, delta=1e-6, neighbours=relation, sample_rate=0.05)
    every = ClippedSteps.within(steps=20, mu=None, epsilon=2.0, delta=1e-6, neighbours=relation)
    assert some.loss.neighbours is relation
    assert 1.9 < some.loss.epsilon(1e-6) <= 2.0
    assert some.multiplier < 0.3 * every.multiplier
    one = ClippedSteps(1, 1.3, relation, 0.25).loss
    assert one.epsilon(1e-3) == SubsampledGaussian(0.25, 1.3, neighbours=relation).epsilon(1e-3)


def test_the_pair_of_add_remove_would_be_too_cheap_under_replacement():
    """Three values at mutual distance 1, z = 0.7, q = 0.1: one step at small epsilon, by quadrature."""
    q, z, epsilon = 0.1, 0.7, 0.05
    t = np.linspace(-12, 12, 200_001)
    normal = [np.exp(-0.5 * ((t - m) / z) ** 2) / (z * math.sqrt(2 * math.pi)) for m in (0.0, 1.0, -1.0)]
    first, second = ((1 - q) * normal[0] + q * normal[k] for k in (1, 2))
    truth = trapezoid(np.maximum(first - math.exp(epsilon) * second, 0.0), t)
    ours = SubsampledGaussian(q, z, neighbours=Neighbours.REPLACE).delta(epsilon)
    usual = SubsampledGaussian(q, z, neighbours=Neighbours.ADD_REMOVE).delta(epsilon)
    assert usual < truth <= ours * (1 + 1e-9)
    with pytest.raises(ValueError, match=r"relation|neighbours"):
        _ = ClippedSteps(3, 1.0, Neighbours.ADD_REMOVE, 0.1).loss + GaussianDP(1.0, neighbours=Neighbours.REPLACE)


def test_sample_rates_out_of_range():
    for wrong in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="sample_rate"):
            ClippedSteps.within(
                steps=2, mu=1.0, epsilon=None, delta=1e-6, neighbours=Neighbours.REPLACE, sample_rate=wrong
            )


# --- The assumption-free mode ---


@pytest.mark.parametrize("layout", ["joint", "split"])
def test_no_record_moves_a_clipped_mean_by_more(layout):
    rng, n, m = np.random.default_rng(2), 40, 25
    given = problem(Counts(n, m if layout == "split" else None), layout)
    mechanism = ClippedBilevel(problem=given, clips=(0.3, 0.5, 0.2), rates=(0.5, 0.5, 0.5), steps=2, mu=1.0)
    least, largest = (m if layout == "split" else n), 0.0
    for trial in range(60):
        x, y, v = rng.normal(size=2), rng.normal(size=3), rng.normal(size=3) * 3
        one = [table(rng, n), table(rng, m)]
        other = [each.copy() for each in one]
        who = trial % 2 if layout == "split" else 0
        other[who][0] = rng.choice(HUGE, 4) if trial % 3 else -one[who][0]
        means = [
            mechanism.mean(x, y, v, given.ingest(SplitRecords(*each) if layout == "split" else each[0]), NONE)
            for each in (one, other)
        ]
        largest = max(largest, float(np.linalg.norm(means[0] - means[1])) * least / 2.0)
    assert largest <= 1 + 1e-12
    assert largest > 0.3


def test_an_adversarial_record_counts_for_little():
    rng, n = np.random.default_rng(3), 500
    given = problem(n)
    Z = table(rng, n)
    Z[0] = 1e12, np.nan, 1e12, -1e12
    runs = [
        ClippedBilevel(problem=given, clips=(1.0, 1.0, 1.0), rates=(0.5,) * 3, steps=30, mu=1e6).run(each, NONE)
        for each in (Z, np.vstack([np.zeros(4), Z[1:]]))
    ]
    assert np.isfinite(runs[0].path).all()
    assert np.linalg.norm(runs[0].x - runs[1].x) < 0.1


def test_clipped_mode_is_the_implicit_method_where_nothing_is_clipped():
    rng, n = np.random.default_rng(4), 400
    given, Z = problem(n), table(rng, n)
    mechanism = ClippedBilevel(
        problem=given, clips=(20.0, 20.0, 20.0), rates=(0.7, 0.7, 0.7), steps=250, mu=1e7, output="window"
    )
    run = mechanism.run(Z, SeededRandomness(0))
    start = np.linalg.norm(hypergradient(given, np.ones(2), Z))
    assert np.linalg.norm(hypergradient(given, run.path[-1], Z)) < 0.02 * start
    np.testing.assert_allclose(run.y, given.certified(run.path[-1], given.ingest(Z), 1e-10), atol=1e-2)


def test_clipped_mode_noise_and_certificate():
    given = problem(50)
    mechanism = ClippedBilevel(problem=given, clips=(1.0, 2.0, 4.0), rates=(1e-9,) * 3, steps=200, mu=1.0)
    run = mechanism.run(table(np.random.default_rng(0), 50), SeededRandomness(1))
    expected = 2.0 * math.sqrt(200) / 50
    np.testing.assert_allclose(run.noise, [expected, 2 * expected, 4 * expected], rtol=1e-12)
    assert run.gradients.std(axis=0) == pytest.approx(4 * expected, rel=0.2)
    assert verify(run.certificate, LOSSES).verified
    assert run.certificate.parameters["noise_multiplier"] == mechanism.account.multiplier
    with pytest.raises(ValueError, match="three positive"):
        ClippedBilevel(problem=given, clips=(1.0, 2.0), rates=(1.0,) * 3, steps=2, mu=1.0)


# --- Separable problems ---


def ridge_tasks(x, records):
    """y_i = argmin |A_i y - b_i|^2/(2 m) + |y - x|^2/2; phi_i = half the mean square of the same residuals."""
    rows = []
    for A, b in records:
        H = A.T @ A / len(A) + np.eye(2)
        y = np.linalg.solve(H, A.T @ b / len(A) + x)
        rows.append(np.linalg.solve(H, A.T @ (A @ y - b) / len(A)))
    return np.array(rows)


def tasks(rng, n):
    return [(A := rng.normal(size=(5, 2)), A @ np.array([1.0, -0.5]) + 0.1 * rng.normal(size=5)) for _ in range(n)]


DISC = Ball((0.0, 0.0), 3.0)


def test_separable_descent_finds_the_shared_centre():
    data = tasks(np.random.default_rng(0), 300)
    run = SeparableDescent(
        gradients=ridge_tasks, domain=DISC, records=300, steps=40, clip=1.0, rate=2.0, epsilon=4.0
    ).run(data, SeededRandomness(0))
    assert np.linalg.norm(run.x - [1.0, -0.5]) < 0.3
    assert run.noise[0] == pytest.approx(2.0 * math.sqrt(40) / (300 * run.certificate.loss["mu"]), rel=1e-9)


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_task_moves_a_mean_by_more(neighbours):
    rng, n, largest = np.random.default_rng(1), 20, 0.0
    change = 1.0 if neighbours == "add-remove" else 2.0
    mechanism = SeparableDescent(
        gradients=lambda x, records: np.asarray(records), domain=DISC, records=n, steps=1, clip=0.5, rate=1e-9,
        mu=1e9, neighbours=neighbours, start=np.zeros(2),
    )  # fmt: skip
    for trial in range(60):
        one = rng.normal(size=(n, 2))
        other = one.copy() if neighbours == "replace" else one[1:]
        if neighbours == "replace":
            other[0] = rng.choice(HUGE, 2) if trial % 2 else -one[0]
        means = [mechanism.run(each, NONE).gradients[0] for each in (one, other)]
        largest = max(largest, float(np.linalg.norm(means[0] - means[1])) / (change * 0.5 / n))
    assert 0.9 < largest <= 1 + 1e-6
    with pytest.raises(PublicError):
        mechanism.check(np.zeros((n + 1, 2)))


def test_adaptive_clip_follows_the_quantile_and_shares_the_budget():
    rng = np.random.default_rng(2)
    norms = rng.uniform(0.5, 1.5, 2000)
    rows = norms[:, None] * np.array([[1.0, 0.0]])
    run = SeparableDescent(
        gradients=lambda x, records: rows, domain=DISC, records=2000, steps=60, clip=20.0, rate=1e-6, mu=5.0,
        adaptive_clip=AdaptiveClip(quantile=0.5, share=0.1),
    ).run(rows, SeededRandomness(0))  # fmt: skip
    assert run.clips[0] == 20.0
    assert run.clips[-1] == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(run.noise / run.clips, 2 * math.sqrt(60 / 0.9) / (2000 * 5.0), rtol=1e-9)
    with pytest.raises(ValueError, match="no common account"):
        SeparableDescent(gradients=ridge_tasks, domain=DISC, records=9, steps=2, clip=1.0, rate=1.0, mu=1.0,
                         adaptive_clip=AdaptiveClip(), sample_rate=0.1)  # fmt: skip


def test_separable_with_a_back_end_and_a_sample():
    rng, n = np.random.default_rng(5), 64
    data = tasks(rng, n)
    placed = tuple(np.array(each) for each in zip(*data, strict=True))
    rows = separable_gradients(
        JaxBackend(),
        lambda x, y, z: 0.5 * jnp.mean((z[0] @ y - z[1]) ** 2),
        lambda x, y, z: 0.5 * jnp.mean((z[0] @ y - z[1]) ** 2),
        inner_reg=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
        y_init=np.zeros(2),
        steps=2,
    )
    x = np.array([0.2, 0.1])
    np.testing.assert_allclose(rows(x, placed), ridge_tasks(x, data), rtol=1e-9, atol=1e-12)
    run = SeparableDescent(
        gradients=rows, domain=DISC, records=n, steps=10, clip=1.0, rate=1.0, epsilon=3.0, sample_rate=0.25,
        neighbours="add-remove", count=lambda records: len(records[0]),
    ).run(placed, SeededRandomness(1))  # fmt: skip
    assert run.certificate.epsilon <= 3.0
    assert run.certificate.n is None


# --- The penalty method ---


def test_penalty_method_costs_and_finds():
    rng, n = np.random.default_rng(6), 300
    given, Z = problem(n), table(rng, n)
    wide = {"weight": 20.0, "clip": 50.0, "inner_clip": 50.0, "rate": 1.0, "inner_rate": 0.8}
    mechanism = PenaltyDescent(problem=given, steps=25, inner_steps=12, mu=1e7, **wide)
    outer, inner = mechanism.noise
    spent = 25 * ((2 * 50 / n / outer) ** 2 + 2 * 12 * (2 * 50 / n / inner) ** 2)
    assert math.sqrt(spent) == pytest.approx(1e7, rel=1e-9)
    run = mechanism.run(Z, SeededRandomness(0))
    start = np.linalg.norm(hypergradient(given, np.ones(2), Z))
    assert np.linalg.norm(hypergradient(given, run.x, Z)) < 0.1 * start
    split = problem(Counts(200, 100), "split")
    brief = PenaltyDescent(problem=split, steps=3, inner_steps=5, epsilon=1.0, **wide)
    run = brief.run(SplitRecords(Z[:200], Z[200:]), SeededRandomness(0))
    assert run.certificate.epsilon <= 1.0


# --- Reports ---


def test_the_report_of_the_clipped_mode_is_its_noise():
    mechanism = ClippedBilevel(problem=problem(50), clips=(1.0, 2.0, 4.0), rates=(1e-9,) * 3, steps=200, mu=1.0)
    report = mechanism.report()
    run = mechanism.run(table(np.random.default_rng(0), 50), SeededRandomness(1))
    assert run.report() == report
    np.testing.assert_allclose([part.noise for part in report.parts], run.noise)
    assert [(part.dimension, part.clip) for part in report.parts] == [(3, 1.0), (3, 2.0), (2, 4.0)]
    assert [part.change for part in report.parts] == pytest.approx([2 / 50, 4 / 50, 8 / 50])
    assert (report.epsilon, report.mu) == (run.certificate.epsilon, pytest.approx(1.0))
    assert report.certified
    assert report.constants is None
    # noise 2 sqrt(T)/n sqrt(d/T) = 2 sqrt(3)/50 of the clipping norm in the mean of all steps
    assert report.parts[0].share == pytest.approx(2 * math.sqrt(3) / 50)
    assert report.informative
    assert report.verdict.startswith("Can be informative: averaged over the run, the noise of the inner gradients is 6")
    text = str(report)
    assert "200 steps, mu = 1: epsilon" in text
    assert "Of the linear system 200 means leave: clipped to 2, so that one record moves it by at most 0.08" in text
    few = ClippedBilevel(problem=problem(5), clips=(1.0,) * 3, rates=(1.0,) * 3, steps=2, mu=1.0).report()
    assert not few.informative
    assert str(few).startswith("Not informative: averaged over the run, the noise of the inner gradients is 69 %")


def test_what_a_report_calls_uninformative_is_noise():
    """A quadratic problem whose hypergradient is as long as it may be: where the report says no, runs go astray."""
    far, shares = [], []
    for n in (8, 2000):
        descent = SeparableDescent(
            gradients=lambda x, _, n=n: np.tile(np.sign(x - 1.0) / math.sqrt(2), (n, 1)), domain=DISC, records=n,
            steps=100, clip=1.0, rate=0.05, epsilon=1.0, start=np.array([-1.0, -1.0]),
        )  # fmt: skip
        report = descent.report()
        runs = [descent.run([None] * n, SeededRandomness(seed)).x for seed in range(20)]
        far.append(float(np.mean(np.linalg.norm(np.array(runs) - 1.0, axis=1))))
        shares.append(report.parts[0].share)
        assert report.informative is (n == 2000)
    assert far[0] > 1.5 > 0.3 > far[1]
    assert shares[0] > 0.5 > shares[1]


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_the_report_of_separable_descent(relation):
    plain = {"gradients": ridge_tasks, "domain": DISC, "records": 400, "steps": 60, "clip": 0.5, "rate": 1.0, "mu": 2.0}
    twice = 2.0 if relation == "replace" else 1.0
    adaptive = AdaptiveClip(share=0.1)
    own, both, some = (
        SeparableDescent(**plain, neighbours=relation, **more).report()
        for more in ({}, {"adaptive_clip": adaptive}, {"sample_rate": 0.25})
    )
    (part,) = own.parts
    assert part.change == twice * 0.5 / 400
    assert part.noise == pytest.approx(part.change * math.sqrt(60) / 2.0)
    assert both.parts[0].noise == pytest.approx(part.noise / math.sqrt(0.9))
    assert both.parts[1].change == 1 / 400  # of a fraction, under both relations
    spent = sum(60 * (each.change / each.noise) ** 2 for each in both.parts)
    assert math.sqrt(spent) == pytest.approx(both.mu) == pytest.approx(2.0)
    # a record moves a mean of a quarter of the records by four times as much
    assert some.parts[0].change == pytest.approx(4 * part.change)
    assert some.epsilon < own.epsilon
    assert "before sampling, 25 % in each step" in str(some)
    run = SeparableDescent(**plain, neighbours=relation).run(tasks(np.random.default_rng(0), 400), SeededRandomness(0))
    assert run.report() == own
    assert run.report().parts[0].noise == run.noise[0]


def test_the_report_of_the_penalty_method_has_its_bias_if_constants_are_declared():
    settings = {"weight": 20.0, "clip": 5.0, "inner_clip": 4.0, "rate": 1.0, "inner_rate": 0.8, "epsilon": 1.0}
    mechanism = PenaltyDescent(problem=problem(300), steps=25, inner_steps=12, **settings)
    report = mechanism.report()
    assert report.bias is None
    assert "No bound of how far the gradient is off. No constants were declared" in str(report)
    assert [part.noise for part in report.parts] == [mechanism.noise[0], mechanism.noise[1], mechanism.noise[1]]
    spent = sum(part.releases * (part.change / part.noise) ** 2 for part in report.parts)
    assert math.sqrt(spent) == pytest.approx(report.mu)
    declared = Constants(L_fy=1.0, mu_g=2.0, b_fxy=0.5, b_fyy=0.0, b_gxy=1.0, r_xy=0.0, r_yy=4.0)
    given = replace(problem(300), declared=declared, inner_domain="everywhere")
    known = replace(mechanism, problem=given).report()
    assert known.bias == pytest.approx(1 / 2 / 20 * (0.5 + 0.25 * 0.5 * 4))
    assert known.constants == declared
    assert known.parts == report.parts


# --- Rounding, where the number of records is private ---


@pytest.mark.parametrize("name", ["jax.numpy", "torch"])
def test_a_record_less_changes_no_bit_of_the_others(name):
    """Back ends round differently in arrays of other shapes: blocks are of a public one."""
    library = pytest.importorskip(name)
    from discretion.bilevel.backends import TorchBackend
    from discretion.bilevel.counts import in_blocks

    def outer(x, y, z):
        return library.log(library.cosh(z[:3] @ y - z[3])) + 0.1 * (x @ x)

    def inner(x, y, z):
        return library.log(library.cosh(z[:3] @ y - z[:2] @ x))

    backend = JaxBackend() if name == "jax.numpy" else TorchBackend()
    given = Problem(outer=outer, inner=inner, backend=backend, x_domain=Box((-4.0, -4.0), (4.0, 4.0)), counts=4500,
                    y_init=np.zeros(3), neighbours="add-remove")  # fmt: skip
    rng = np.random.default_rng(0)
    Z, x, y, v = table(rng, 4201), rng.normal(size=2), *rng.normal(size=(2, 3))

    def rows(records):
        placed = in_blocks(backend, given.ingest(records), 4500)
        return np.concatenate([given.derivatives.inner_rows(x, y, v, some)[:real] for some, real in placed])

    every = rows(Z)
    assert every.shape == (4201, 8)
    np.testing.assert_array_equal(rows(Z[:-1]), every[:-1])
    np.testing.assert_allclose(rows(Z[1:]), every[1:], rtol=1e-13, atol=1e-15)  # at another place: not to the last bit
    alone = separable_gradients(backend, outer, inner, inner_reg=reg, y_init=np.zeros(3), steps=2)
    every = alone(x, Z[:131])
    np.testing.assert_array_equal(alone(x, Z[:130]), every[:130])
    np.testing.assert_allclose(alone(x, Z[1:131]), every[1:], rtol=1e-12, atol=1e-15)
