"""The excursion study: accounts, exact paths, worlds that all columns share."""

import math

import numpy as np
import pytest

from discretion.gp import RBF, Box, Exponential, Matern32
from discretion.gp.dense import DensePosterior
from discretion.posterior import Exponential1D
from discretion.posterior.certified import CertifiedTable
from discretion.posterior.rules import published_epsilon
from discretion.studies.path_sampler import PathSampler
from studies import excursions, posterior_excursions
from studies.excursion_settings import NUGGET, test_worlds
from studies.excursions import LADDER, Gain, excursion_rows, tables
from studies.posterior_excursions import (
    equal_epsilon_scales,
    least_scales,
    operator_epsilon,
    posterior_rows,
)

test_worlds.__test__ = False  # not a test, in spite of its name

# --- accounts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ridge", "scale", "epsilon"),
    [(1.5, 1.061180203, 9.0), (3.0, 2.533656095, 1.0), (3.0, 0.604712297, 3.0), (6.0, 0.05287656382, 9.0)],
)
def test_the_rule_of_the_line(ridge, scale, epsilon):
    account = {"assumption": Exponential1D(1.0), "least_kernel": math.exp(-2), "delta": 1e-3}
    found = published_epsilon(n=100, ridge=ridge, scale=scale, **account)[0]
    assert epsilon * (1.0 - 2e-5) <= found <= epsilon * (1.0 + 1e-9)  # the reference looked at fewer orders


def test_the_rule_of_the_line_at_another_reference():
    account = {"assumption": Exponential1D(1.0), "least_kernel": math.exp(-1), "delta": 1e-3}
    found = published_epsilon(n=10, ridge=1.0, scale=np.array([2.0]), **account)[0]
    assert found[0] == pytest.approx(12.8271074035156, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "ridge", "scale", "epsilon"),
    [(100, 5.0, 1.426580028, 0.421), (400, 3.0, 0.7868492458, 4.784), (400, 8.0, 0.1360777894, 1.603)],
)
def test_the_operator_bound(n, ridge, scale, epsilon):
    found = operator_epsilon(n, ridge, math.exp(-math.sqrt(2)), np.array([scale]), 1e-3)
    assert found[0] == pytest.approx(epsilon, abs=6e-4)


def test_least_scales_meet_epsilon_and_no_smaller_one_does():
    def cost(scale):
        return operator_epsilon(400, 3.0, 0.0, scale, 1e-3)

    target = np.array([9.0, 3.0, 1e-4])
    found = least_scales(cost, target, 3.0)
    assert np.all(np.isinf(found) == [False, False, True])  # the covariance alone costs more than the last
    assert np.all(cost(found[None, :2])[0] <= target[:2])
    assert np.all(cost(found[None, :2] * (1.0 - 2e-6))[0] > target[:2])


def test_scales_of_the_accounts():
    epsilons = (1.0, 9.0)
    line = equal_epsilon_scales(Exponential(0.2), 1, 100, 6.0, epsilons)
    assert np.all(line["certified"] < line["published_free"])
    assert np.all(line["published_free"] <= line["published"])
    spent = CertifiedTable(100, 6.0, Exponential1D(1.0)).epsilon(line["certified"], 1e-3)
    np.testing.assert_allclose(spent, epsilons, rtol=1e-4)
    assert np.all(spent <= epsilons)
    smooth = equal_epsilon_scales(RBF(0.2), 1, 100, 6.0, epsilons)
    assert np.isinf(smooth["published"]).all()
    assert np.all(smooth["certified"] < smooth["published_free"])
    far = equal_epsilon_scales(Exponential(0.2), 1, 100, 16.0, epsilons)
    assert np.isinf(far["published"]).all()
    assert np.isfinite(far["published_free"]).all()


# --- exact paths --------------------------------------------------------------------------------------------------


class Unit:
    """In place of random numbers the rows of an identity, so that paths show the linear map they are."""

    def __init__(self, size):
        self.rows = iter(np.eye(size))

    def standard_normal(self, shape):
        return np.stack([next(self.rows) for _ in range(shape[0])])


@pytest.mark.parametrize("kernel", [RBF(0.3), Exponential(0.3), Matern32(0.2)])
def test_paths_have_exactly_the_posterior_law(kernel):
    rng = np.random.default_rng(0)
    nodes = Box((0.0, 0.0), (1.0, 1.0)).grid((5, 4))
    X = rng.uniform(size=(12, 2))
    X[0], X[1] = nodes[7], X[2]
    Y = rng.uniform(-1, 1, (12, 2))
    size = len(nodes) + 2 * len(X)
    ridges = (0.5, 2.0, 100.0)
    for ridge, (means, centred) in zip(
        ridges, PathSampler(kernel, nodes, NUGGET).paths(X, Y, ridges, size, Unit(size)), strict=True
    ):
        for y, mean in zip(Y.T, means, strict=True):
            exact = DensePosterior(kernel, ridge, X, y)
            np.testing.assert_allclose(mean, exact.mean(nodes), atol=1e-12)
        covariance = exact.covariance(nodes) + NUGGET * np.eye(len(nodes))
        np.testing.assert_allclose(centred.T @ centred, covariance, atol=1e-10)


# --- worlds and rows ----------------------------------------------------------------------------------------------


def test_noises_share_covariates_and_fields():
    for dimension, n in ((1, 20), (2, 30)):
        first, second = (test_worlds(dimension, n, noise, 3, 0) for noise in (0.5, 0.3))
        assert np.array_equal(first.covariates, second.covariates)
        assert np.array_equal(first.targets, second.targets)
        assert not np.array_equal(first.responses, second.responses)


def test_gain_is_paired():
    row = excursions.ExcursionRow(
        2, 400, 0.5, 9.0, 1e-3, {"a": np.array([0.1, 0.5, 0.9]), "b": np.array([0.2, 0.6, 0.97])}, {}
    )
    gain = row.gain("a", "b")
    assert gain.mean == pytest.approx(0.09)
    assert gain.error == pytest.approx(0.01)
    assert gain.clear
    assert not Gain(0.01, 0.006).clear
    assert row.summary() == pytest.approx({"a": 0.5, "b": 0.6})


def test_small_rows(monkeypatch):
    monkeypatch.setattr(posterior_excursions, "RIDGES", {1: (6.0,)})
    monkeypatch.setattr(posterior_excursions, "LENGTHS", {1: (0.1, 0.25)})
    monkeypatch.setattr(excursions, "LENGTHS", {1: (0.1, 0.25)})
    sizes = {"worlds": {1: 5}, "releases": 3, "training": 200, "search": 3}
    rows = excursion_rows(((1, 20, (0.5, 0.3)),), (3.0,), **sizes)
    assert [(row.noise, row.epsilon) for row in rows] == [(0.5, 3.0), (0.3, 3.0)]
    for row in rows:
        assert set(row.columns) == {"published", "published_free", "certified", "kernel_sum", "decoder", "trivial"}
        assert all(values.shape == (5,) and np.all((values >= 0) & (values <= 1)) for values in row.columns.values())
        assert row.chosen["certified"].scale < row.chosen["published"].scale
        assert len(row.steps()) == len(LADDER) - 1
        target = test_worlds(1, 20, row.noise, 5, 0).targets
        np.testing.assert_allclose(row.columns["trivial"], (target >= 0).mean(axis=1))
    assert [table.row_count for table in tables(rows)] == [2, 2]
    again = posterior_rows(1, 20, (0.5, 0.3), (3.0,), **sizes | {"worlds": 5})
    for row in rows:
        for account, values in again[row.noise, row.epsilon].scores.items():
            assert np.array_equal(values, row.columns[account])


@pytest.mark.slow
def test_the_order_of_the_columns_at_epsilon_1(monkeypatch):
    monkeypatch.setattr(posterior_excursions, "RIDGES", {2: (7.0, 64.0)})
    for study in (posterior_excursions, excursions):
        monkeypatch.setattr(study, "LENGTHS", {2: (0.18, 0.24)})
    sizes = {"worlds": {2: 25}, "releases": 20, "search": 20}
    (row,) = excursion_rows(((2, 400, (0.5,)),), (1.0,), **sizes)
    assert all(step.clear for step in row.steps())
    assert row.summary()["decoder"] >= 0.76
