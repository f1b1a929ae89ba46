"""Stopping by what was released, and clipping in a metric."""

import numpy as np
import pytest
from scipy.stats import binomtest

from discretion.bayesopt import SGD, BudgetSpent, Flat, Linear, LocalSearch, Polynomial, Step, Study, minimize
from discretion.privacy import Ledger, SeededRandomness, State

N = 40
SPACE = {"x": Linear(-2, 2, unit=1.0), "y": Linear(-2, 2, unit=1.0)}
CENTRES = np.random.default_rng(3).normal(size=(N, 2)) * 0.3
RNG = np.random.default_rng(8)


def loss(x, y):
    return 0.5 * ((np.array([x, y]) - CENTRES) ** 2).sum(axis=1)


def search(**changes):
    fields = {"mu": 1.0, "steps": 6, "clip": 1.0, "kernel": Polynomial(2), "offset": "none", "update": SGD(0.3)}
    fields["batch"] = 6
    return LocalSearch(SPACE, **(fields | changes))


def told(study):
    return study.tell(np.column_stack([loss(**point) for point in study.ask()]))


def steps(gradients, spread=(0.5, 0.5), largest=0.0):
    """Finished steps with these released gradients."""
    spread = np.array(spread)
    facts = {"evaluations": 3, "fraction": None, "noise": 0.5, "clip": 1.0, "mu": 0.1, "sensitivity": 0.1}
    return [
        Step(number=t, theta=np.zeros(2), gradient=g, trace=0.0, largest=largest, prior=1.0, spread=spread, **facts)
        for t, g in enumerate(gradients)
    ]


# --- the rule


def test_flat_gradients_end_a_run_with_the_stated_probability():
    rule, times = Flat(window=4, level=0.1), 4000
    noise = np.array([0.5, 2.0])
    stopped = sum(rule(steps(noise * RNG.normal(size=(4, 2)), noise)) for _ in range(times))
    assert binomtest(stopped, times, 0.9).pvalue > 1e-4


def test_a_slope_that_is_seen_goes_on():
    rule = Flat(window=4)
    assert not rule(steps(np.full((4, 2), 2.0)))
    assert not rule(steps(np.zeros((3, 2))))  # too few to tell
    assert rule(steps(np.zeros((4, 2))))
    assert rule(steps([*np.full((9, 2), 5.0), *np.zeros((4, 2))]))  # the last ones count


def test_steps_that_were_lost_do_not_count():
    lost = [None] * 4
    assert not Flat(window=2)(steps([np.zeros(2), *lost]))
    assert Flat(window=2)(steps([np.zeros(2), *lost, np.zeros(2)]))


def test_what_may_be_bias_counts_as_flat():
    slope = np.full((4, 2), 1.0)
    assert not Flat(window=4)(steps(slope, largest=0.04))
    assert Flat(window=4, norm=10.0)(steps(slope, largest=0.04))  # a bias of up to 2 in each step


@pytest.mark.parametrize("fields", [{"window": 0}, {"window": 1.5}, {"level": 0.0}, {"level": 1.0}, {"norm": -1.0}])
def test_a_rule_out_of_range(fields):
    with pytest.raises(ValueError, match="must"):
        Flat(**fields)


# --- a study that stops


def test_a_stopped_study_is_booked_and_stays_stopped(tmp_path):
    ledger = Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=6, delta=1e-5)
    path = tmp_path / "a.study"
    study = Study(search(), n=N, ledger=ledger, path=path)
    told(study)
    study.stop()
    assert study.done
    for late in (study.ask, study.stop, lambda: study.move_to({"x": 0.0, "y": 0.0})):
        with pytest.raises(BudgetSpent, match="stopped"):
            late()
    study.close()
    again = Study(search(), n=N, ledger=ledger, path=path)
    assert again.done
    release = again.result()
    assert len(release.gradients) == 1
    assert release.certificate.epsilon == search().privacy_loss(N).epsilon(1e-5)  # the whole budget
    (entry,) = ledger.entries()
    assert entry.state is State.BOOKED


def test_minimize_stops_by_its_rule():
    seen = []

    def rule(finished):
        seen.append(len(finished))
        return len(finished) == 3

    release = minimize(loss, SPACE, n=N, steps=6, clip=1.0, mu=1.0, stop=rule)
    assert seen == [1, 2, 3]
    assert len(release.gradients) == 3
    assert len(minimize(loss, SPACE, n=N, steps=3, clip=1.0, mu=1e-3, stop=Flat(window=2, level=1e-6)).gradients) == 2


def test_a_restart_stands_in_the_path():
    study = Study(search(), n=N)
    told(study)
    study.move_to({"x": 1.0, "y": -1.0})
    told(study)
    np.testing.assert_allclose(study.result().thetas[1], [1.0, -1.0])
    for theta, step in zip(study.result().thetas, study.steps, strict=False):
        np.testing.assert_array_equal(theta, step.theta)


# --- a metric


def test_noise_and_clipping_follow_the_metric():
    one = search(steps=1, metric={"x": 100.0}, mu=2.0)
    plan = one.plan(N, 0, np.zeros(2), np.empty((0, 2)), 1.0)
    found, n = [], 2000
    losses = np.column_stack([loss(*z) for z in plan.new])
    for seed in range(n):
        study = Study(one, n=N, randomness=SeededRandomness(seed))
        study._plan = plan
        found.append(study.tell(losses).gradient)
    sigma = 2 * 1.0 / (N * 2.0)
    np.testing.assert_allclose(plan.spread, [sigma / 10, sigma], rtol=1e-9)
    np.testing.assert_allclose(np.std(found, axis=0), plan.spread, rtol=4 / np.sqrt(2 * n))
    lengths = np.linalg.norm(-CENTRES * [10.0, 1.0], axis=1)
    clipped = -CENTRES * np.minimum(1, 1 / lengths)[:, None]
    np.testing.assert_allclose(np.mean(found, axis=0), clipped.mean(axis=0), atol=5 * sigma / np.sqrt(n))
    step = study.steps[0]
    assert step.noise_norm == pytest.approx(np.hypot(sigma / 10, sigma))
    np.testing.assert_allclose(study.surrogate().noise[0], plan.spread)


def test_one_record_moves_a_weighted_sum_by_no_more_than_the_noise_pays_for():
    quiet = search(metric={"x": 9.0, "y": 0.25}, mu=1e12, steps=1)  # noise of 1e-12
    plan = quiet.plan(N, 0, np.array([0.3, -0.2]), np.empty((0, 2)), 1.0)

    def released(losses):
        study = Study(quiet, n=N)
        study._plan = plan
        return study.tell(losses).gradient

    base = RNG.normal(size=(N, 6)) * 3
    most = 0.0
    for first in np.vstack([np.eye(6), -np.eye(6), RNG.normal(size=(20, 6))]):
        a, b = base.copy(), base.copy()
        a[0], b[0] = 1e4 * first, -1e4 * first
        most = max(most, np.linalg.norm((released(a) - released(b)) * [3.0, 0.5]))
    assert most <= 2 / N * (1 + 1e-9)
    assert most > 0.99 * 2 / N


def test_a_metric_of_ones_changes_nothing():
    runs = []
    for metric in (None, {"x": 1.0}):
        study = Study(search(metric=metric), n=N, randomness=SeededRandomness(3))
        while not study.done:
            told(study)
        runs.append(study.result().thetas)
    np.testing.assert_array_equal(*runs)


def test_the_aggregate_mode_has_a_metric_too():
    one = search(metric={"x": 4.0}, largest_loss=2.0, steps=1)
    plan = one.plan(N, 0, np.zeros(2), np.empty((0, 2)), 1.0)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1)
    change = 2.0 / N * np.linalg.norm(np.diag([2.0, 1.0]) @ plan.estimate.map @ signs, axis=0).max()
    assert plan.sensitivity == pytest.approx(min(2.0, change), rel=1e-6)


@pytest.mark.parametrize("metric", [{"z": 1.0}, {"x": 0.0}, {"x": -1.0}, {"x": float("nan")}, {"x": float("inf")}])
def test_a_metric_out_of_range(metric):
    with pytest.raises(ValueError, match="metric"):
        search(metric=metric)
