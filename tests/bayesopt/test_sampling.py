"""A secret sample of the records in each step: who is in it, what is released, and what it costs."""

import json

import numpy as np
import pytest
from scipy.stats import kstest, norm

from discretion.bayesopt import SGD, AdaptiveClip, Evaluations, Late, Linear, LocalSearch, Polynomial, Study, minimize
from discretion.bayesopt.sampling import sampled_loss, scattered
from discretion.privacy import (
    GaussianDP,
    Ledger,
    Neighbours,
    PublicError,
    SeededRandomness,
    SubsampledGaussian,
)

N, RATE = 60, 0.25
SPACE = {"x": Linear(-2, 2, unit=1.0), "y": Linear(-2, 2, unit=1.0)}
CENTRES = np.random.default_rng(3).normal(size=(N, 2)) * 0.5


def loss(x, y, rows=slice(None)):
    return 0.5 * ((np.array([x, y]) - CENTRES[rows]) ** 2).sum(axis=1)


def sampled(rows, **point):
    return loss(**point, rows=rows)


def search(**changes):
    fields = {"mu": 1.0, "steps": 4, "clip": 0.7, "kernel": Polynomial(2), "offset": "none", "update": SGD(0.3)}
    return LocalSearch(SPACE, **(fields | {"batch": 6, "sample_rate": RATE} | changes))


def told(study):
    return study.tell(np.column_stack([loss(**point, rows=study.sample()) for point in study.ask()]))


# --- the sample


def test_a_sample_lasts_a_step():
    study = Study(search(), n=N)
    study.ask()
    first = study.sample()
    np.testing.assert_array_equal(first, study.sample())
    first[:] = 0  # a copy
    seen = []
    while not study.done:
        study.ask()
        seen.append(tuple(study.sample()))
        told(study)
    assert len(set(seen)) == 4


# --- the release


def test_the_sum_is_over_the_sample_and_divided_by_what_was_expected():
    study = Study(search(mu=1e9, steps=1), n=N, randomness=SeededRandomness(2))
    study.ask()
    rows = study.sample()
    step = told(study)
    gradients = step.theta - CENTRES[rows]
    lengths = np.linalg.norm(gradients, axis=1)
    clipped = gradients * np.minimum(1, 0.7 / lengths)[:, None]
    assert 0 < len(rows) < N
    np.testing.assert_allclose(step.gradient, clipped.sum(axis=0) / (RATE * N), atol=1e-4)
    assert step.sensitivity == pytest.approx(2 * 0.7 / (RATE * N))


def test_released_numbers_follow_the_pair_of_the_account():
    # one record with a gradient of +B, all others 0: (1 - q) N(0, 1) + q N(u, 1) in units of the noise, u = mu_t/2
    n, mu, times = 20, 4.0, 3000
    one = LocalSearch(
        {"x": Linear(-1, 1, unit=1.0)}, mu=mu, steps=1, clip=1.0, kernel=Polynomial(2), batch=3, sample_rate=RATE
    )
    plan = one.plan(n, 0, np.zeros(1), np.empty((0, 1)), 1.0)
    losses = np.zeros((n, 3))
    losses[0] = 1e3 * plan.new[:, 0]
    found = np.empty(times)
    for i in range(times):
        study = Study(one, n=n, randomness=SeededRandomness(i))
        study._plan = plan
        found[i] = study.tell(losses[study.sample()]).gradient[0] / plan.noise
    u = mu / 2
    assert kstest(found, lambda z: (1 - RATE) * norm.cdf(z) + RATE * norm.cdf(z - u)).pvalue > 1e-4
    assert kstest(found, norm(u * RATE, 1).cdf).pvalue < 1e-4


def test_places_of_other_rows_do_not_depend_on_the_sample():
    losses = np.arange(6.0).reshape(3, 2)
    table = scattered(losses, np.array([1, 4, 5]), 7)
    np.testing.assert_array_equal(table[[1, 4, 5]], losses)
    assert np.isnan(np.delete(table, [1, 4, 5], axis=0)).all()


def test_an_empty_sample_is_noise():
    study = Study(search(sample_rate=1e-9, steps=1), n=N)
    assert np.isfinite(told(study).gradient).all()


def test_minimize_evaluates_the_sample_alone():
    counts = []

    def counted(rows, **point):
        counts.append(len(rows))
        return sampled(rows, **point)

    release = minimize(counted, SPACE, n=N, steps=20, clip=2.0, epsilon=200.0, sample_rate=RATE, update=SGD(0.3))
    assert np.mean(counts) == pytest.approx(RATE * N, rel=0.3)
    assert release.certificate.epsilon <= 200
    assert release.evaluations.sum() == 60


def test_a_ledger_runs_it(tmp_path):
    ledger = Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=3, delta=1e-5, composition="numerical")
    mechanism = search(mu=0.8)
    losses = Evaluations(lambda points: np.column_stack([loss(**point) for point in points]), N)
    release = ledger.run(mechanism, losses, n=N)
    assert release.certificate.epsilon == mechanism.privacy_loss(N).epsilon(1e-5)
    assert "before sampling" in " ".join(release.certificate.limits)
    (entry,) = ledger.entries()
    assert entry.loss.epsilon(1e-5) == pytest.approx(release.certificate.epsilon, rel=1e-6)
    with Study(mechanism, n=N, ledger=ledger) as study:
        while not study.done:
            told(study)
        assert study.result().certificate.ledger_entry == f"{ledger.id}#2"


def test_the_public_file_does_not_tell_who_took_part(tmp_path):
    path = tmp_path / "a.study"
    with Study(search(sample_rate=0.5), n=N, path=path) as study:
        told(study)
        study.ask()
        sample = study.sample()
    text = path.read_text()
    assert str(sample.tolist())[1:-1] not in text
    released = json.loads(text.splitlines()[-1].split(" ", 1)[1])
    assert released.keys() == {"event", "step", "gradient", "fraction"}
    assert len(sample) not in (released["step"], *released["gradient"], released["fraction"])


# --- the cost


def test_the_cost_is_that_of_sampled_steps():
    found = search(mu=1.2, steps=7).privacy_loss(N)
    exact = 7 * SubsampledGaussian(RATE, 2 * np.sqrt(7) / 1.2, neighbours=Neighbours.REPLACE)
    assert found.epsilon(1e-6) == pytest.approx(exact.epsilon(1e-6), rel=1e-9)
    assert found.epsilon(1e-6) < GaussianDP(1.2, neighbours=Neighbours.REPLACE).epsilon(1e-6)
    late = search(mu=1.2, steps=7, schedule=Late(0.3)).privacy_loss(N).epsilon(1e-6)
    assert late == pytest.approx(found.epsilon(1e-6), rel=0.05)


def test_nobody_left_out_costs_what_it_did():
    almost = sampled_loss([0.5] * 4, 1 - 2.0**-30).epsilon(1e-6)
    assert almost == pytest.approx(GaussianDP(1.0, neighbours=Neighbours.REPLACE).epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_calibration_meets_its_target(epsilon):
    found = LocalSearch.calibrated(SPACE, epsilon=epsilon, delta=1e-6, steps=10, clip=1.0, sample_rate=0.1)
    cost = found.privacy_loss(N).epsilon(1e-6)
    assert 0.999 * epsilon < cost <= epsilon
    assert found.mu > LocalSearch.calibrated(SPACE, epsilon=epsilon, delta=1e-6, steps=10, clip=1.0).mu


# --- refusals


@pytest.mark.parametrize(
    "changes",
    [
        {"cache": 3},
        {"largest_loss": 1.0},
        {"adaptive_clip": AdaptiveClip()},
        {"training_mu": 0.1},
        {"sample_rate": 0.0},
        {"sample_rate": 1.0},
        {"sample_rate": float("nan")},
    ],
)
def test_what_has_no_account_is_refused(changes):
    with pytest.raises(ValueError, match="sample_rate"):
        search(**changes)


def test_losses_of_others_than_the_sample_are_refused_without_its_size():
    study = Study(search(), n=N)
    with pytest.raises(Exception, match="ask"):
        study.sample()
    points = study.ask()
    for wrong in (np.zeros((N, len(points))), iter([np.zeros((3, len(points)))])):
        with pytest.raises(PublicError) as caught:
            study.tell(wrong)
        assert str(len(study.sample())) not in str(caught.value)
    assert study.spent == 0
    with pytest.raises(ValueError, match="not both"):
        minimize(sampled, SPACE, n=N, steps=2, clip=1.0, mu=1.0, sample_rate=RATE, chunks=[1])
    with pytest.raises(PublicError, match="one a record"):
        minimize(lambda rows, **point: loss(**point), SPACE, n=N, steps=2, clip=1.0, mu=1.0, sample_rate=RATE)
