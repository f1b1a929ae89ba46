"""Unsafe diagnostics: what they show is true, and nothing of such a study can pass for private."""

import json
import math
import pickle

import numpy as np
import pytest

from discretion.bayesopt import (
    SGD,
    Linear,
    LocalSearch,
    NotPrivate,
    Polynomial,
    Study,
    StudyError,
    UnsafeRelease,
    minimize,
)
from discretion.privacy import Certificate, Ledger, NotBookable, SeededRandomness

N = 50
SPACE = {"x": Linear(-2, 2, unit=1.0), "y": Linear(-2, 2, unit=1.0)}
CENTRES = np.random.default_rng(3).normal(size=(N, 2)) * 0.5
MARK = "UNSAFE DIAGNOSTICS"


def loss(x, y):
    return 0.5 * ((np.array([x, y]) - CENTRES) ** 2).sum(axis=1)


def search(**changes):
    fields = {"mu": 1.0, "steps": 4, "clip": 0.7, "kernel": Polynomial(2), "offset": "none", "update": SGD(0.3)}
    fields["batch"] = 6
    return LocalSearch(SPACE, **(fields | changes))


def unsafe(**changes):
    with pytest.warns(NotPrivate):
        return Study(search(**changes), n=N, randomness=SeededRandomness(1), unsafe_diagnostics=True)


def finished(study):
    while not study.done:
        study.tell(np.column_stack([loss(**point) for point in study.ask()]))
    return study.result()


def test_what_is_shown_is_true():
    release = finished(unsafe())
    assert isinstance(release, UnsafeRelease)
    for t, theta in enumerate(release.thetas[:-1]):
        np.testing.assert_allclose(release.losses[t], [loss(*z).mean() for z in release.locations[t]], rtol=1e-9)
        gradients = theta - CENTRES
        lengths = np.linalg.norm(gradients, axis=1)
        assert release.clip_fractions[t] == pytest.approx(np.mean(lengths > 0.7))
        np.testing.assert_allclose(release.unclipped[t], gradients.mean(axis=0), atol=1e-5)
        clipped = gradients * np.minimum(1, 0.7 / lengths)[:, None]
        np.testing.assert_allclose(release.exact[t], clipped.mean(axis=0), atol=1e-5)
    truth = release.thetas[:-1] - CENTRES.mean(axis=0)
    np.testing.assert_allclose(release.biases(truth), release.clipping_bias, atol=1e-5)
    assert (release.clip_fractions > 0).any()


def test_they_change_nothing_that_is_released():
    safe = finished(Study(search(), n=N, randomness=SeededRandomness(1)))
    release = finished(unsafe())
    np.testing.assert_array_equal(release.gradients, safe.gradients)
    assert safe.parameters == release.parameters


def test_a_metric_weighs_what_is_clipped():
    release = finished(unsafe(metric={"x": 4.0}))
    gradients = release.thetas[0] - CENTRES
    weights = np.array([2.0, 1.0])
    lengths = np.linalg.norm(gradients * weights, axis=1)
    assert release.clip_fractions[0] == pytest.approx(np.mean(lengths > 0.7))
    np.testing.assert_allclose(
        release.exact[0], (gradients * np.minimum(1, 0.7 / lengths)[:, None]).mean(axis=0), atol=1e-5
    )


def test_records_that_fail_are_counted_as_clipped():
    study = unsafe(steps=1)
    losses = np.column_stack([loss(**point) for point in study.ask()])
    losses[:5, 0] = np.nan
    losses[5] = np.nan
    study.tell(losses)
    release = study.result()
    assert release.clip_fractions[0] >= 6 / N
    assert np.isfinite(release.exact).all()
    assert release.losses[0][0] == pytest.approx(np.nanmean(losses[:, 0]))


def test_of_a_sample_only_those_who_take_part_are_looked_at():
    study = unsafe(sample_rate=0.5, mu=1e6, steps=1)
    study.ask()
    rows = study.sample()
    study.tell(np.column_stack([loss(**point)[rows] for point in study.ask()]))
    release = study.result()
    lengths = np.linalg.norm(CENTRES[rows], axis=1)
    assert release.clip_fractions[0] == pytest.approx(np.mean(lengths > 0.7))
    np.testing.assert_allclose(release.unclipped[0], -CENTRES[rows].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(release.exact[0], release.gradients[0], atol=1e-4)


def test_a_study_that_never_stepped_has_a_result():
    release = unsafe().result()
    assert release.exact.shape == (0, 2)
    assert release.losses == ()


# --- nothing of it passes for private


def test_a_ledger_refuses_before_anything_is_spent(tmp_path):
    ledger = Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=20, delta=1e-4)
    path = tmp_path / "a.study"
    with pytest.raises(NotBookable, match="Nothing was spent"):
        Study(search(), n=N, ledger=ledger, path=path, unsafe_diagnostics=True)
    with pytest.raises(NotBookable):
        minimize(loss, SPACE, n=N, steps=2, clip=1.0, mu=1.0, ledger=ledger, unsafe_diagnostics=True)
    assert list(ledger.entries()) == []
    assert not path.exists()


def test_the_release_is_marked_for_good():
    with pytest.warns(NotPrivate, match="synthetic"):
        release = minimize(loss, SPACE, n=N, steps=2, clip=1.0, mu=1.0, unsafe_diagnostics=True)  # the system's noise
    assert release.certificate.epsilon == math.inf
    assert not release.certificate.bookable
    for each in (release, pickle.loads(pickle.dumps(release))):
        assert MARK in each.text()
        assert "NOTHING" in each.text()
        with pytest.raises(NotBookable, match="UNSAFE"):
            each.booked("ledger#1")
    read = Certificate.from_json(release.certificate.to_json())
    assert read == release.certificate
    page = read.text()
    assert "TEST ONLY" in page
    assert MARK in page
    assert "known seed" not in page


def test_the_file_is_marked_for_good(tmp_path):
    path = tmp_path / "a.study"
    with pytest.warns(NotPrivate):
        study = Study(search(), n=N, path=path, unsafe_diagnostics=True)
    study.tell(np.column_stack([loss(**point) for point in study.ask()]))
    study.close()
    assert json.loads(path.read_text().splitlines()[0].split(" ", 1)[1])["unsafe_diagnostics"] is True
    with pytest.raises(StudyError):
        Study(search(), n=N, path=path)
    with pytest.warns(NotPrivate):
        again = Study(search(), n=N, path=path, unsafe_diagnostics=True)
    release = finished(again)
    assert np.isnan(release.clip_fractions[0])  # what an earlier session saw was not kept
    assert np.isfinite(release.clip_fractions[1:]).all()
    Study(search(), n=N, path=tmp_path / "b.study").close()
    with pytest.raises(StudyError), pytest.warns(NotPrivate):
        Study(search(), n=N, path=tmp_path / "b.study", unsafe_diagnostics=True)


def test_an_aggregate_study_has_none():
    with pytest.raises(ValueError, match="aggregate"):
        Study(search(largest_loss=4.0), n=N, unsafe_diagnostics=True)
    assert not hasattr(finished(Study(search(), n=N)), "exact")
