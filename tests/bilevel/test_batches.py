"""Descent on secret batches of fixed size: exact laws of small problems, cost, and what a step may know."""

import itertools
import math

import numpy as np
import pytest

from discretion.bilevel import BiasedRidge, Counts, Descent, RidgePenalty, SplitRecords, Table, noisy_hypergradient
from discretion.bilevel.constants import Refused
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.sensitivity import batch_shift
from discretion.gp import Box
from discretion.privacy import GaussianDP, SeededRandomness

NONE = SeededRandomness(0)


def table(rng, n, d=1):
    return Table(rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n))


def ridge(training=5, validation=4, d=1, **options):
    return RidgePenalty(
        training=training, validation=validation, dimension=d, penalties=(0.3, 3.0), candidates=None, **options
    )


def gradients(descent, x, records):
    """The hypergradient of every batch, all equally likely."""
    problem, scope = descent.problem, descent.scope
    held = problem.ingest(records)
    sizes = zip(problem.counts.parts, descent.batches.size.parts, strict=True)
    places = itertools.product(*(itertools.combinations(range(n), m) for n, m in sizes))
    found = []
    for rows in places:
        some = problem.take(held, tuple(np.array(each) for each in rows))
        found.append(scope.hypergradient(x, scope.certified(x, some, 1e-12), some)[0][0])
    return np.array(found)


def law(values, sigma, grid):
    return np.mean(np.exp(-0.5 * ((grid - values[:, None]) / sigma) ** 2), axis=0) / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("part", ["training", "validation"])
def test_no_neighbour_exceeds_the_account_of_a_step(part):
    """All subsets of small data sets, records replaced by extreme ones: hockey-stick divergences by quadrature."""
    rng, x, largest = np.random.default_rng(1), np.array([-0.4]), 0.0
    descent = Descent(problem=ridge(), mu=1.5, steps=1, rate=0.1, batch=Counts(2, 2), start=x)
    sigma, loss = descent.step(x).sensitivity / 1.5, descent.loss
    for trial in range(40):
        one = {"training": table(rng, 5), "validation": table(rng, 4)}
        if trial % 2:  # all alike, so that one record stands out
            one = {name: Table(np.sign(t.features), np.sign(t.labels)) for name, t in one.items()}
        features, labels = one[part].features.copy(), one[part].labels.copy()
        features[0], labels[0] = (-features[0], labels[0]) if trial % 4 else rng.uniform(-1, 1, 2)
        other = one | {part: Table(features, labels)}
        values = [gradients(descent, x, SplitRecords(**each)) for each in (one, other)]
        assert max(np.abs(v - values[0].mean()).max() for v in values) < 20 * sigma
        grid = np.linspace(values[0].mean() - 30 * sigma, values[0].mean() + 30 * sigma, 6001)
        laws = [law(v, sigma, grid) for v in values]
        for epsilon in (0.01, 0.1, 0.5):
            truth = max(
                np.maximum(a - math.exp(epsilon) * b, 0).sum() * (grid[1] - grid[0]) for a, b in (laws, laws[::-1])
            )
            bound = loss.delta(epsilon)
            assert truth <= bound * (1 + 1e-6) + 1e-12
            largest = max(largest, truth / bound)
    assert largest > 0.005  # of validation records the sensitivity is a third of what is paid for


def test_inner_solutions_of_batches_are_near_those_of_all():
    rng = np.random.default_rng(2)
    for trial in range(20):
        problem = ridge(training=6, d=2)
        records = SplitRecords(table(rng, 6, 2), table(rng, 4, 2))
        if trial % 2:
            records.training.labels[:] = np.sign(records.training.labels)
        held, x = problem.ingest(records), np.array([0.1 * trial - 1.0])
        y, small = problem.certified(x, held, 1e-12), problem.batched(Counts(2, 4))
        picks = [np.array(rows) for rows in itertools.combinations(range(6), 2)]
        apart = [small.certified(x, problem.take(held, (rows, np.arange(4))), 1e-12) - y for rows in picks]
        found = math.sqrt(np.mean(np.sum(np.square(apart), axis=1)))
        assert found <= batch_shift(problem.constants(x), Counts(2, 4))


def test_a_run_costs_what_it_should():
    problem = BiasedRidge(training=400, validation=200, dimension=2, domain=Box((-1.0,) * 2, (1.0,) * 2))
    rng = np.random.default_rng(0)
    records = SplitRecords(table(rng, 400, 2), table(rng, 200, 2))
    some = Descent(problem=problem, epsilon=1.0, steps=20, batch=Counts(40, 10), rate=0.1)
    assert some.batches.share == pytest.approx(0.1)
    assert 0.99 < some.loss.epsilon(1e-6) <= 1.0
    every = Descent(problem=problem, epsilon=1.0, steps=20, rate=0.1)
    assert some.price > 3 * every.price  # before sampling
    run = some.run(records, SeededRandomness(3))
    expected = some.step(some.first).sensitivity * math.sqrt(20) / some.price
    assert run.noise[0] == pytest.approx(expected)
    assert run.sensitivities[0] > 9 * every.step(every.first).sensitivity
    assert run.certificate.epsilon <= 1.0
    assert any("drawn anew, in secret" in each for each in run.certificate.enforced)
    assert "50 records" in some.report().text()
    assert some.report().expected is None
    whole = Descent(problem=problem, mu=0.7, steps=20, batch=Counts(400, 200), rate=0.1)
    assert whole.loss.epsilon(1e-6) == pytest.approx(GaussianDP(0.7, neighbours="replace").epsilon(1e-6), rel=0.02)


def test_every_step_starts_from_public_values():
    """A solution of the last batch would carry who was in it into the next step."""
    starts = []

    def solver(problem, x, records, tolerance, start):
        starts.append(start.copy())
        return problem.solve(x, records, tolerance, start)

    problem = BiasedRidge(training=9, validation=9, dimension=1, domain=Box((-1.0,), (1.0,)))
    rng = np.random.default_rng(0)
    options = {"mu": 1.0, "steps": 4, "rate": 1e-9, "solver": solver}
    records = SplitRecords(table(rng, 9), table(rng, 9))
    made = Descent(problem=problem, batch=Counts(3, 3), **options).run(records, NONE).certificate
    assert any("keeps nothing from one step" in each for each in made.declared)
    del starts[:]
    jnp = pytest.importorskip("jax.numpy")
    from discretion.bilevel import Constants, Problem
    from discretion.bilevel.backends import JaxBackend

    facts = dict.fromkeys(("L_fx", "b_fxy", "b_fyy", "r_xy", "r_yy", "D_fx", "D_gxy", "D_gyy"), 0.0)
    facts |= {"L_fy": 2.0, "mu_g": 1.0, "b_gxy": 1.0, "b_gyy": 1.0, "D_g": 2.0}
    own = Problem(outer=lambda x, y, z: jnp.sum(jnp.abs(y - z)), inner=lambda x, y, z: 0.5 * jnp.sum((y - x - z) ** 2),
                  backend=JaxBackend(), x_domain=Box((-1.0,), (1.0,)), counts=12, y_init=np.array([0.25]),
                  declared=Constants(**facts), inner_domain="everywhere")  # fmt: skip
    Descent(problem=own, batch=4, **options).run(rng.uniform(-1, 1, (12, 1)), NONE)
    assert starts
    assert all(start.tolist() == [0.25] for start in starts)
    del starts[:]
    Descent(problem=own, **options).run(rng.uniform(-1, 1, (12, 1)), NONE)
    assert any(start.tolist() != [0.25] for start in starts)


@pytest.mark.parametrize("name", ["jax.numpy", "torch"])
def test_back_ends_take_batches(name):
    np_ = pytest.importorskip(name)
    from discretion.bilevel import Problem
    from discretion.bilevel.backends import JaxBackend, TorchBackend

    backend = JaxBackend() if name == "jax.numpy" else TorchBackend()
    own = Problem(outer=lambda x, y, z: np_.sum((y - z["a"]) ** 2),
                  inner=lambda x, y, z: np_.sum((y - x - z["a"]) ** 2),
                  backend=backend, x_domain=Box((-1.0,), (1.0,)), counts=7, y_init=np.zeros(1))  # fmt: skip
    Z, rows = {"a": np.arange(7.0)[:, None]}, np.array([1, 4, 6])
    some = own.take(own.ingest(Z), (rows,))
    small = own.batched(Counts(3))
    assert small.certified(np.zeros(1), some, 1e-12)[0] == pytest.approx(11 / 3)


def test_batches_without_an_account_are_refused():
    mean = QuadraticMean(records=9, dimension=2)
    options = {"mu": 1.0, "steps": 2, "rate": 0.1}
    with pytest.raises(Refused, match="how to take"):
        Descent(problem=mean, batch=3, **options)
    with pytest.raises(Refused, match="fixed size"):
        Descent(problem=ridge(neighbours="add-remove"), batch=Counts(2, 2), **options)
    for wrong, words in (
        ({"batch": Counts(6, 2)}, "more records"),
        ({"batch": 3}, "split layout"),
        ({"batch": Counts(2, 2), "steps": None}, "steps"),
        ({"batch": Counts(2, 2), "contraction": 0.1}, "contraction"),
        ({"batch": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=words):
            Descent(problem=ridge(), **options | wrong)
    rng = np.random.default_rng(0)
    run = noisy_hypergradient(
        ridge(), SplitRecords(table(rng, 5), table(rng, 4)), batch=Counts(2, 2), randomness=NONE, **options
    )
    assert run.gradients.shape == (2, 1)
