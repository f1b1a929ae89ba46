"""Baselines of private local search: what they spend, and what they find."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bayesopt_baselines import METHODS, finite_differences, gradient_descent, local_search, not_private
from benchmarks.bayesopt_comparison import TASKS, against_differences, compared, paired
from discretion.bayesopt import SGD
from studies.bayesopt_gp_samples import gp_sample


def counted(task):
    """The task, and a list that grows with each evaluation of all its records."""
    seen = []

    def losses(theta):
        seen.append(theta.copy())
        return task.losses(theta)

    return replace(task, losses=losses), seen


@pytest.mark.parametrize("name", METHODS)
def test_equal_evaluations(name):
    """No method makes more evaluations than the task allows, all lie in the box, and none is idle."""
    task, seen = counted(gp_sample(1000, 3))
    run = METHODS[name](task, 0)
    assert 0.8 * task.evaluations <= len(seen) <= task.evaluations
    assert run.evaluations[-1] == len(seen)
    low, high = task.space.bounds
    for points in (np.array(seen), run.thetas, run.released[None]):
        assert (points >= low - 1e-12).all()
        assert (points <= high + 1e-12).all()
    curve = run.curve(task, np.array([0, task.evaluations]))
    assert curve[0] == task.fresh(task.start)
    assert curve[1] == task.fresh(run.released)


@pytest.mark.parametrize("method", [finite_differences, gradient_descent, local_search])
def test_equal_noise(method):
    """At a small mu the noise is felt: ten runs on the same losses spread by it, and not without."""
    task = replace(gp_sample(1000, 2), update=SGD(0.05), steps=2)
    private, exact = (
        np.std([method(replace(task, mu=mu), seed).thetas[0] for seed in range(10)], axis=0) for mu in (0.01, 1e6)
    )
    steps = task.evaluations // (task.few if method is local_search else 3)
    expected = 0.05 * 2 * task.clip * np.sqrt(steps) / (task.n * 0.01)
    assert (np.abs(np.log(private / expected)) < np.log(2.5)).all()
    assert (exact < 0.2 * private).all()


def test_gradients_of_a_draw():
    """They are those of the losses, and differences estimate them."""
    task = gp_sample(0, 3)
    gradients, theta = task.gradients, np.array([0.3, -0.4, 1.2])
    assert gradients is not None
    for j, e in enumerate(1e-5 * np.eye(3)):
        difference = (task.losses(theta + e) - task.losses(theta - e)) / 2e-5
        np.testing.assert_allclose(gradients(theta)[:, j], difference, atol=1e-6)


def test_a_draw_of_a_gaussian_process_has_its_variances():
    theta = np.array([0.5, -0.2])
    values = np.array([gp_sample(seed, 2).fresh(theta) for seed in range(60)])
    assert values.var() == pytest.approx(1.0, rel=0.5)
    task = gp_sample(0, 2)
    assert (task.losses(theta) - task.fresh(theta)).std() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("name", [each for each in TASKS if each != "kernel-ridge"])
def test_tasks(name):
    """Losses are finite, one a record, the same for the same seed and others for another; fresh records are others."""
    task, again, other = TASKS[name](0), TASKS[name](0), TASKS[name](1)
    losses = task.losses(task.start)
    assert losses.shape == (task.n,)
    assert np.isfinite(losses).all()
    np.testing.assert_array_equal(losses, again.losses(task.start))
    assert not np.array_equal(losses, other.losses(task.start))
    error = losses.std() / task.n**0.5
    assert task.fresh(task.start) != losses.mean()
    assert abs(task.fresh(task.start) - losses.mean()) < 6 * error + 1e-3
    low, high = task.space.bounds
    assert ((task.start > low) & (task.start < high)).all()


def test_pairs():
    found = paired(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5, 5.0]))
    assert (found.mean, found.better, found.runs) == (pytest.approx(-3.5 / 3), 3, 3)
    assert found.error == pytest.approx(np.std([1.0, 0.5, 2.0], ddof=1) / 3**0.5)
    assert found.chance == pytest.approx(2 * 0.5**3)
    assert not found.significant
    ones = np.ones(10)
    assert paired(ones, 2 * ones).significant
    assert not paired(2 * ones, ones).significant
    assert not paired(ones - np.array([-100.0, *[1.0] * 9]), ones).significant


def test_a_comparison():
    """Rows of equal length, differences by average and last iterate, the lower of which is to be beaten."""
    rows = compared("gp-2", 3, {"finite differences, forward": finite_differences, "not private": not_private})
    assert {len(values) for values in rows.values()} == {3}
    assert rows["not private"].mean() < rows["start"].mean()
    lower = min(
        ("finite differences, forward", "finite differences, forward, last iterate"), key=lambda n: rows[n].mean()
    )
    assert against_differences(rows, "not private") == paired(rows["not private"], rows[lower])
