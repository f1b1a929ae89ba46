"""A study: the budget, crashes, what is public, refusals, and the ways of telling losses."""

import json
import os
import pickle
import warnings

import numpy as np
import pytest

from discretion.bayesopt import (
    SGD,
    AdaptiveClip,
    BudgetSpent,
    CoarseInteger,
    Evaluations,
    Integer,
    Late,
    Linear,
    LocalSearch,
    Log,
    Polynomial,
    Study,
    StudyError,
    clamped_mean,
    minimize,
)
from discretion.gp import RBF
from discretion.privacy import (
    BudgetExceeded,
    Ledger,
    MechanismFailed,
    Neighbours,
    NotBookable,
    PublicError,
    SeededRandomness,
)
from discretion.privacy.transcript import Transcript

N = 37
SPACE = {"x": Linear(-1, 1, unit=1.0), "rate": Log(0.1, 10.0, unit=1.0)}
CENTRES = np.random.default_rng(5).normal(size=(N, 2)) * 0.4


def search(**changes):
    fields = {"mu": 1.0, "steps": 4, "clip": 1.0, "kernel": RBF(0.7), "update": SGD(0.3)}
    return LocalSearch(SPACE, **(fields | changes))


def losses(Z, centres=CENTRES):
    return ((Z[None] - centres[:, None]) ** 2).sum(axis=-1)


def finished(study, centres=CENTRES):
    while not study.done:
        study.tell(losses(study.asked, centres))
    return study


def started(steps=4, seed=0, **changes):
    return Study(search(steps=steps, **changes), n=N, randomness=SeededRandomness(seed))


# --- the budget


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("schedule", [None, Late(0.2)])
def test_steps_cost_the_budget_and_no_more(steps, schedule):
    study = finished(started(steps, **({} if schedule is None else {"schedule": schedule})))
    assert study.spent == pytest.approx(1.0, rel=1e-12)
    assert study.spent <= 1.0
    for step in study.steps:
        assert step.sensitivity / step.noise <= step.mu * (1 + 1e-12)
        if schedule is None:
            assert step.noise == pytest.approx(2 * 1.0 * np.sqrt(steps) / (N * 1.0), rel=1e-12)
    with pytest.raises(BudgetSpent):
        study.ask()
    with pytest.raises(BudgetSpent):
        study.tell(np.zeros((N, 3)))


def test_a_released_gradient_is_the_mean_with_the_noise_it_states():
    search_ = search(steps=1, mu=0.5)
    first = Study(search_, n=N, randomness=SeededRandomness(0))
    Z = first.asked
    exact = 2 * (first.theta - CENTRES)
    exact *= np.minimum(1, 1.0 / np.linalg.norm(exact, axis=1))[:, None]
    found = []
    plan = first._plan
    for seed in range(3000):
        study = Study(search_, n=N, randomness=SeededRandomness(seed))
        study._plan = plan
        found.append(study.tell(losses(Z)).gradient)
    noise = 2 * 1.0 / (N * 0.5)
    np.testing.assert_allclose(np.mean(found, axis=0), exact.mean(axis=0), atol=4 * noise / np.sqrt(3000) + 1e-2)
    np.testing.assert_allclose(np.std(found, axis=0), noise, rtol=4 / np.sqrt(6000))
    assert abs(np.corrcoef(np.array(found).T)[0, 1]) < 4 / np.sqrt(3000)


def test_the_path_follows_the_released_gradients():
    study = finished(started(steps=3))
    thetas = study.result().thetas
    for t, step in enumerate(study.steps):
        np.testing.assert_allclose(thetas[t + 1], study.search.space.clip(thetas[t] - 0.3 * step.gradient))


def test_adaptive_clipping_is_paid_for():
    study = finished(started(steps=6, adaptive_clip=AdaptiveClip(quantile=0.5, share=0.05), clip=1e-3))
    assert study.spent == pytest.approx(1.0, rel=1e-12)
    for step in study.steps:
        gradient, fraction = step.sensitivity / step.noise, np.sqrt(0.05 / 6)
        assert np.hypot(gradient, fraction) == pytest.approx(np.sqrt(1 / 6), rel=1e-9)
    assert study.steps[-1].clip > study.steps[0].clip  # all records were clipped


def test_scopes_in_words():
    assert "Records that models were trained on are not protected" in search().scope()
    text = search(training_mu=0.1, steps=4, batch=3).scope()
    assert f"mu <= {0.1 * np.sqrt(12):g} for at most 12 runs" in text
    assert f"both sets mu <= {np.hypot(0.1 * np.sqrt(12), 1.0):g}" in text


# --- crashes


def counted(path):
    """Charges and releases of each step in the public file."""
    events = [json.loads(line.split(b" ", 1)[1]) for line in path.read_bytes().splitlines()[1:]]
    charged = [e["number"] for e in events if e["event"] == "charged"]
    released = [e["step"] for e in events if e["event"] == "released"]
    return charged, released


class Crash(BaseException):
    pass


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(9))
def test_a_crash_at_any_write_never_releases_twice(tmp_path, monkeypatch, at, after):
    path, private = tmp_path / "a.study", tmp_path / "a.private"
    writes = 0
    append = Transcript.append

    def crashing(self, event):
        nonlocal writes
        writes += 1
        if writes == at + 1:
            if after:
                append(self, event)
            raise Crash
        append(self, event)

    def run():
        with Study(search(), n=N, path=path, private=private, randomness=SeededRandomness(1)) as study:
            return finished(study).result()

    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "append", crashing)
        with pytest.raises(Crash):
            run()
    release = run()
    charged, released = counted(path)
    assert charged == [0, 1, 2, 3]
    assert len(set(released)) == len(released) >= 3
    assert np.isnan(release.gradients).any(axis=1).sum() == 4 - len(released)
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as again:
        assert again.done
        np.testing.assert_array_equal(again.result().thetas, release.thetas)
        assert again.spent <= 1.0


def test_a_release_that_cannot_be_written_is_lost(tmp_path, monkeypatch):
    path, append = tmp_path / "a.study", Transcript.append

    def full(self, event):
        if event["event"] == "released" and event["step"] == 1:
            raise OSError("no space left")
        append(self, event)

    monkeypatch.setattr(Transcript, "append", full)
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        study.tell(losses(study.asked))
        theta = study.theta
        with pytest.raises(OSError, match="no space"):
            study.tell(losses(study.asked))
        assert study.steps[1].gradient is None
        np.testing.assert_array_equal(study.theta, theta)
        finished(study)
        assert study.spent <= 1.0
    assert counted(path) == ([0, 1, 2, 3], [0, 2, 3])


def test_half_a_line_is_taken_back(tmp_path, monkeypatch):
    path, write = tmp_path / "a.study", os.write
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        study.tell(losses(study.asked))
        size = path.stat().st_size
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda file, line: write(file, line[:9]) if len(line) > 9 else 1 / 0)
            patch.setattr(os, "fsync", lambda file: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                study.tell(losses(study.asked))
        assert path.stat().st_size == size
        finished(study)
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        assert len(study.steps) == 3  # the charge of the failed step is not on disk, and nothing of it was seen


def test_a_torn_last_line_did_not_happen(tmp_path):
    path = tmp_path / "a.study"
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        study.tell(losses(study.asked))
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    for cut in (1, 30, len(lines[-1]) - 1):
        path.write_bytes(text[:-cut])
        with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
            assert len(study.steps) == 1
            assert study.steps[0].gradient is None
            assert study.spent > 0
    path.write_bytes(text.replace(b"charged", b"Charged"))
    with pytest.raises(StudyError, match="damaged"):
        Study(search(), n=N, path=path, randomness=SeededRandomness(1))


def test_an_interrupted_study_goes_on_as_it_would_have(tmp_path):
    whole = finished(Study(search(cache=4), n=N, randomness=SeededRandomness(3))).result()
    path, private, noise = tmp_path / "a.study", tmp_path / "a.private", SeededRandomness(3)
    for _ in range(4):
        with Study(search(cache=4), n=N, path=path, private=private, randomness=noise) as study:
            study.tell(losses(study.asked))
    with Study(search(cache=4), n=N, path=path, randomness=noise) as study:
        np.testing.assert_allclose(study.result().thetas, whole.thetas, rtol=1e-12)
    assert private.stat().st_mode & 0o077 == 0


def test_a_study_is_for_one_search_and_one_process(tmp_path):
    path = tmp_path / "a.study"
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        study.tell(losses(study.asked))
        with pytest.raises(StudyError, match=r"still open in this process: call close\(\)"):
            Study(search(), n=N, path=path)
    for other, n in ((search(steps=5), N), (search(mu=2.0), N), (search(), N + 1)):
        with pytest.raises(StudyError, match="fixed with its first line"):
            Study(other, n=n, path=path, randomness=SeededRandomness(1))
    with pytest.raises(StudyError, match=r"other parameters: steps \(4 there, 5 here\)\. All"):
        Study(search(steps=5), n=N, path=path, randomness=SeededRandomness(1))
    with pytest.raises(StudyError, match=r"source of noise \(false there, true here\)"):
        Study(search(), n=N, path=path)


def test_losses_are_told_once():
    study = started()
    with pytest.raises(StudyError, match="Nothing was asked"):
        study.tell(np.zeros((N, 3)))
    Z = study.asked
    assert study.ask() == study.ask()
    study.tell(losses(Z))
    with pytest.raises(StudyError, match="Nothing was asked"):
        study.tell(losses(Z))


# --- public state


class Scripted(LocalSearch):
    """Releases that are the same whatever the records are."""

    def released(self, plan, n, total, unclipped, randomness):
        return np.cos(plan.theta + plan.clip), None if plan.fraction_noise is None else 0.4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tolerance": 0.05, "cache": 5},
        {"learn_kernel": True, "smooth": True},
        {"adaptive_clip": AdaptiveClip()},
        {"kernel": Polynomial(2), "offset": "mean"},
    ],
    ids=str,
)
def test_under_one_history_two_data_sets_look_the_same(changes):
    fields = {"mu": 1.0, "steps": 6, "clip": 1.0, "kernel": RBF(0.7), "update": SGD(0.2)} | changes
    seen = []
    for centres in (CENTRES, CENTRES * 1e6):
        study, rows = Study(Scripted(SPACE, **fields), n=N, randomness=SeededRandomness(0)), []
        while not study.done:
            Z = study.asked
            step = study.tell(losses(Z, centres))
            rows.append((Z.tobytes(), step.evaluations, step.trace, step.largest, step.noise, step.clip))
        seen.append((rows, study.theta.tobytes()))
    assert seen[0] == seen[1]


def test_nothing_private_is_in_the_public_state(tmp_path):
    path, private = tmp_path / "a.study", tmp_path / "a.private"
    planted = 0.123456789012345
    centres = CENTRES.copy()
    centres[3] = planted
    study, secrets = Study(search(), n=N, path=path, private=private, randomness=SeededRandomness(2)), [planted]
    while not study.done:
        Z = study.asked
        values = losses(Z, centres)
        plan = study._plan
        both = np.hstack([study._kept.losses, values])
        U = both @ plan.estimate.map.T
        clipped = U * np.minimum(1, 1.0 / np.linalg.norm(U, axis=1))[:, None]
        secrets += [*values[3], *values.mean(axis=0), *U.mean(axis=0), *clipped.mean(axis=0), *clipped.sum(axis=0)]
        secrets += [np.linalg.norm(clipped.mean(axis=0)), (np.linalg.norm(U, axis=1) <= 1).mean()]
        study.tell(values)
    release = study.result()
    study.close()
    text = path.read_text() + release.certificate.to_json() + repr(study) + repr(release) + repr(study.steps)
    blob = pickle.dumps(release)
    for secret in secrets:
        assert f"{secret:.6g}" not in text.replace("-", "") or abs(secret) in (0.0, 1.0)
        assert np.float64(secret).tobytes() not in blob

    def lengths(value):
        if isinstance(value, list | dict):
            yield len(value)
            for each in value.values() if isinstance(value, dict) else value:
                yield from lengths(each)

    for line in path.read_bytes().splitlines():
        assert N not in set(lengths(json.loads(line.split(b" ", 1)[1])))
    assert all(N not in np.shape(value) for value in vars(release).values())
    with pytest.raises(TypeError, match="private losses"):
        pickle.dumps(study)
    for name in ("best_params", "best_value", "best_trial", "best_parameters"):
        with pytest.raises(AttributeError, match="no best trial"):
            getattr(study, name)
    with pytest.raises(AttributeError, match="no best trial"):
        _ = release.best_parameters
    assert not hasattr(release, "values")


def test_certificates():
    release = finished(started()).result()
    assert not release.certificate.bookable
    assert repr(release).find("TEST ONLY") >= 0
    certificate = finished(Study(search(), n=N)).result().certificate
    assert certificate.bookable
    assert certificate.epsilon == pytest.approx(search().privacy_loss(N).epsilon(1e-5))
    assert any("not protected" in limit for limit in certificate.limits)
    assert any("nothing checked whose it is" in line for line in certificate.declared)


# --- ledgers


def test_a_ledger_is_charged_once_for_the_whole_run(tmp_path):
    ledger = Ledger.create(tmp_path / "l", dataset="made up", epsilon=5.0, delta=1e-5, composition="renyi")
    path = tmp_path / "a.study"
    for _ in range(4):
        with Study(search(), n=N, path=path, ledger=ledger) as study:
            assert len(ledger.entries()) == 1
            study.tell(losses(study.asked))
            release = study.result()
    assert [entry.state.value for entry in ledger.entries()] == ["booked"]
    assert ledger.spent().epsilon == pytest.approx(4.377, abs=1e-3)
    assert release.certificate.ledger_entry == f"{ledger.id}#1"
    with pytest.raises(BudgetExceeded):
        Study(search(), n=N, ledger=ledger)
    with pytest.raises(NotBookable):
        Study(search(mu=0.1), n=N, ledger=ledger, randomness=SeededRandomness(0))
    other = Ledger.create(tmp_path / "m", dataset="made up", epsilon=5.0, delta=1e-5, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(StudyError, match="'replace' neighbours"):
        Study(search(), n=N, ledger=other)


def test_a_search_is_a_mechanism(tmp_path):
    ledger = Ledger.create(tmp_path / "l", dataset="made up", epsilon=5.0, delta=1e-5)
    space = search().space
    evaluations = Evaluations(lambda points: losses(np.array([space.theta(point) for point in points])), N)
    release = ledger.run(search(), evaluations, n=N)
    assert release.thetas.shape == (5, 2)
    assert ledger.entries()[0].loss.mu == 1.0
    assert repr(evaluations) == "Evaluations(PRIVATE)"


# --- telling


def loss(x, rate):
    return (x - CENTRES[:, 0]) ** 2 + (np.log(rate) - CENTRES[:, 1]) ** 2


def chunk_loss(rows, x, rate):
    return (x - CENTRES[rows, 0]) ** 2 + (np.log(rate) - CENTRES[rows, 1]) ** 2


def test_minimize_finds_the_minimum():
    fields = {"n": N, "steps": 30, "clip": 3.0, "kernel": RBF(0.7), "update": SGD(0.3)}
    release = minimize(loss, SPACE, mu=1e5, randomness=SeededRandomness(0), **fields)
    minimum = CENTRES.mean(axis=0)
    assert release.parameters["x"] == pytest.approx(minimum[0], abs=0.01)
    assert np.log(release.parameters["rate"]) == pytest.approx(minimum[1], abs=0.01)
    by_epsilon = minimize(loss, SPACE, epsilon=3.0, delta=1e-6, randomness=SeededRandomness(0), **fields)
    assert 2.999 < by_epsilon.certificate.epsilon <= 3.0
    with pytest.raises(ValueError, match="one of the two"):
        minimize(loss, SPACE, n=N, steps=2, clip=1.0)


@pytest.mark.parametrize("cache", [0, 4])
def test_chunks_and_processes_change_nothing(cache):
    fields = {"n": N, "steps": 4, "clip": 1.0, "mu": 1.0, "kernel": RBF(0.7), "cache": cache}
    whole = minimize(loss, SPACE, randomness=SeededRandomness(0), **fields)
    parts = minimize(
        chunk_loss, SPACE, chunks=np.array_split(np.arange(N), 5), randomness=SeededRandomness(0), n_jobs=2, **fields
    )
    np.testing.assert_allclose(parts.thetas, whole.thetas, rtol=1e-9, atol=1e-12)
    anew = minimize(
        chunk_loss,
        SPACE,
        chunks=lambda: iter(np.array_split(np.arange(N), 3)),
        randomness=SeededRandomness(0),
        **fields,
    )
    np.testing.assert_allclose(anew.thetas, whole.thetas, rtol=1e-9, atol=1e-12)


def test_steps_without_evaluations():
    """Where old evaluations suffice a step asks for none, also in chunks."""
    fields = {"n": N, "steps": 6, "clip": 1.0, "mu": 1e4, "kernel": RBF(2.0), "update": SGD(0.01), "tolerance": 0.1}
    release = minimize(loss, SPACE, randomness=SeededRandomness(0), **fields)
    assert release.evaluations.min() == 0
    assert release.evaluations[0] == 3
    chunks = np.array_split(np.arange(N), 4)
    parts = minimize(chunk_loss, SPACE, chunks=chunks, randomness=SeededRandomness(0), **fields)
    np.testing.assert_array_equal(parts.evaluations, release.evaluations)
    np.testing.assert_allclose(parts.thetas, release.thetas, rtol=1e-8, atol=1e-10)


def test_losses_of_the_wrong_form_are_refused():
    study = started(steps=2)
    Z = study.asked
    for wrong in (np.zeros((N, 7)), np.zeros(N), losses(Z).astype(np.float32), losses(Z)[:-1]):
        with pytest.raises(PublicError):
            study.tell(wrong)
    assert study.spent == 0.0
    with pytest.raises(PublicError, match="The step is lost"):
        study.tell(iter([losses(Z)[:10]]))
    assert len(study.steps) == 1
    assert study.steps[0].gradient is None
    with pytest.raises(PublicError, match="The step is lost"):
        study.ask() and study.tell(iter([losses(study.asked)] * 2))
    assert study.done
    np.testing.assert_allclose(study.theta, 0.0, atol=1e-15)


def test_records_without_a_loss_count_as_zero():
    found = []
    for strange in (np.nan, np.inf, 1e300):
        study = started(steps=1)
        values = losses(study.asked)
        values[4, 1] = strange
        found.append(study.tell(values).gradient)
    study = started(steps=1)
    values = losses(study.asked)
    values[4] = 0.0  # a constant has no gradient
    expected = study.tell(values).gradient
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_allclose(found[1], expected, rtol=1e-12)
    assert np.isfinite(found[2]).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            lambda x: x,
            r"\(x\) cannot be called as per_record_loss\(x=..., rate=...\).*unexpected keyword .*'rate'",
        ),
        (lambda x, rate, width: x, "missing a required argument: 'width'"),
        (lambda theta: theta, "missing a required argument: 'theta'"),
        (lambda x, rate, /: x, "'x'"),
        (lambda x, records=CENTRES: x, r"\(x, records\) cannot"),
    ],
)
def test_a_loss_that_does_not_take_the_names_costs_nothing(tmp_path, wrong, says):
    ledger = Ledger.create(tmp_path / "ledger", dataset="d", epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=says) as caught:
        minimize(wrong, SPACE, n=N, steps=2, clip=1.0, mu=1.0, ledger=ledger)
    assert repr(CENTRES) not in str(caught.value)
    assert not ledger.entries()


def test_a_loss_of_chunks_takes_the_chunk_first():
    with pytest.raises(ValueError, match=r"\(chunk, x=..., rate=...\): multiple values for argument 'x'"):
        minimize(loss, SPACE, n=N, steps=2, clip=1.0, mu=1.0, chunks=[CENTRES])


def test_a_mean_is_told_what_to_declare():
    with pytest.raises(PublicError, match=r"one a record.*a mean declare .* largest_loss="):
        minimize(lambda x, rate: loss(x, rate).mean(), SPACE, n=N, steps=2, clip=1.0, mu=1.0)


def test_an_evaluation_that_raises_says_nothing():
    def failing(x, rate):
        raise RuntimeError(f"record {CENTRES[0]}")

    with pytest.raises(MechanismFailed) as caught:
        minimize(failing, SPACE, n=N, steps=2, clip=1.0, mu=1.0)
    assert "record [" not in str(caught.value)
    assert caught.value.__context__ is None


def test_places_that_failed_for_everyone_are_dropped():
    study = started(steps=1, batch=5)
    Z = study.asked
    study.drop([1])
    np.testing.assert_array_equal(study.asked, np.delete(Z, 1, axis=0))
    assert study.tell(losses(study.asked)).evaluations == 4

    calls = []

    def sometimes(x, rate):
        calls.append(x)
        return None if len(calls) % 3 == 0 else loss(x, rate)

    release = minimize(sometimes, SPACE, n=N, steps=3, clip=1.0, mu=1.0, randomness=SeededRandomness(0))
    assert (release.evaluations < 3).all()


def test_means_alone():
    study = Study(search(largest_loss=8.0, steps=5), n=1000, randomness=SeededRandomness(0))
    with pytest.raises(StudyError, match="means only"):
        study.tell(np.zeros((1000, 3)))
    while not study.done:
        step = study.tell_mean(clamped_mean(losses(study.asked), 8.0))
    assert study.spent == pytest.approx(1.0, rel=1e-12)
    assert step.sensitivity > 3 * 2.0 / 1000  # the price of not seeing records
    assert step.noise == pytest.approx(step.sensitivity * np.sqrt(5), rel=1e-9)
    per_record = started()
    per_record.ask()
    with pytest.raises(StudyError, match="2B, not 2B/n"):
        per_record.tell_mean(np.zeros(3))
    release = minimize(lambda x, rate: loss(x, rate).mean(), SPACE, n=N, steps=2, clip=1.0, mu=1.0, largest_loss=8.0)
    assert "clamped to [0, 8]" in " ".join(release.certificate.declared)


def test_moving_on_is_free_and_remembered(tmp_path):
    path = tmp_path / "a.study"
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        study.tell(losses(study.asked))
        spent = study.spent
        target = study.search.space.parameters(study.surrogate().fitted().minimum(study.search.space.bounds))
        study.move_to(target)
        assert study.spent == spent
        theta = study.theta
    with Study(search(), n=N, path=path, randomness=SeededRandomness(1)) as study:
        np.testing.assert_allclose(study.theta, theta)
        np.testing.assert_allclose(study.steps[0].gradient, study.surrogate().gradients[0])


def test_a_coarse_integer_is_warned_of():
    space = {"depth": Integer(1, 4), "x": Linear(0, 1)}
    with pytest.warns(CoarseInteger, match=r"depth.*length_scale=\(1.67, 0.2\)") as found:
        Study(LocalSearch(space, mu=1.0, steps=1, clip=1.0, kernel=RBF(0.2)), n=5).ask()
    assert found[0].filename == __file__  # where it was asked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (None, RBF((1.67, 0.2)), Polynomial(2)):
            Study(LocalSearch(space, mu=1.0, steps=1, clip=1.0, kernel=kernel), n=5).ask()
        Study(LocalSearch({"depth": Integer(1, 1000)}, mu=1.0, steps=1, clip=1.0, kernel=RBF(0.2)), n=5).ask()


@pytest.mark.parametrize("start", [{"depth": 1, "leaves": 2, "x": 0.5}, {"depth": 8, "leaves": 64, "x": 1.0}, None])
def test_every_step_sees_the_gradient_along_whole_numbers(start):
    """The map is told of the whole numbers at which losses are evaluated: of a linear loss it knows the slope."""
    space = {"depth": Integer(1, 8), "leaves": Integer(2, 64, log=True), "x": Linear(0, 1)}
    study = Study(LocalSearch(space, mu=1e9, steps=6, clip=100.0, start=start), n=3, randomness=SeededRandomness(0))
    while not study.done:
        points, locations = study.ask(), study.asked
        np.testing.assert_allclose([study.search.space.theta(point) for point in points], locations, atol=1e-12)
        assert (np.ptp(locations, axis=0) > 0).all()
        for point in points:
            assert isinstance(point["depth"], int)
            assert 1 <= point["depth"] <= 8
        step = study.tell(np.tile(locations @ [3.0, -2.0, 1.0], (3, 1)))
        np.testing.assert_allclose(step.gradient, [3.0, -2.0, 1.0], rtol=0.25)


def test_a_search_over_few_whole_numbers_arrives():
    records = np.random.default_rng(0).normal(0.0, 0.05, 2000)

    def loss(depth, x):
        return ((depth - 6) / 7 + records) ** 2 + (x - 0.7) ** 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = minimize(
            loss, {"depth": Integer(1, 8), "x": Linear(0, 1)}, n=2000, steps=25, clip=1.5, epsilon=2.0, delta=1e-6
        )
    assert release.parameters["depth"] == 6
    assert release.parameters["x"] == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"mu": 0.0},
        {"mu": -1.0},
        {"mu": np.nan},
        {"steps": 0},
        {"steps": 2.5},
        {"clip": 0.0},
        {"clip": np.inf},
        {"delta": 1.0},
        {"kernel": "fit"},
        {"offset": "median"},
        {"tolerance": -1.0},
        {"largest_loss": 0.0},
        {"largest_loss": 1.0, "adaptive_clip": AdaptiveClip()},
        {"largest_loss": 1.0, "tolerance": 0.1},
        {"start": {"x": 0.0}},
        {"start": {"x": 5.0, "rate": 1.0}},
        {"kernel": RBF((1.0, 1.0, 1.0))},
    ],
    ids=str,
)
def test_public_parameters_out_of_range_are_refused(changes):
    with pytest.raises(ValueError, match=r"\w"):
        search(**changes)


def test_n_is_a_number_of_records():
    for n in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="n, the public number"):
            Study(search(), n=n)
