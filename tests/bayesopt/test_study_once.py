"""Nothing of a study is drawn twice, and nothing private is where it does not belong."""

import os
import shutil
import threading
import time
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest

from discretion.bayesopt import Linear, LocalSearch, Study, StudyError, clamped_mean, minimize
from discretion.privacy import (
    Ledger,
    LedgerError,
    MechanismFailed,
    Neighbours,
    PublicError,
    RepeatedNoise,
    SeededRandomness,
    State,
    Tampered,
)
from discretion.privacy.transcript import Transcript

N = 30
SPACE = {"x": Linear(-1, 1)}
RECORDS = np.linspace(-1, 1, N)


def search(**changes):
    return LocalSearch(SPACE, **({"mu": 1.0, "steps": 3, "clip": 1.0} | changes))


def losses(study, records=RECORDS):
    points = study.ask()
    return np.column_stack([(p["x"] - records) ** 2 for p in points]) if points else np.empty((len(records), 0))


def finished(study):
    while not study.done:
        study.tell(losses(study))
    return study


@pytest.fixture
def book(tmp_path):
    return Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=500.0, delta=1e-5)


# --- threads, forks, interrupts


class Slow(SeededRandomness):
    def standard_normal(self, shape=()):
        time.sleep(0.02)
        return super().standard_normal(shape)

    def words(self, count):
        time.sleep(0.02)
        return super().words(count)


@pytest.mark.parametrize("rate", [None, 0.5])
def test_threads_release_a_step_once(rate):
    study = Study(search(steps=2, cache=0, sample_rate=rate), n=N, randomness=Slow(0))
    for number in (1, 2):
        told, found = losses(study)[study.sample()], []

        def go(told=told, found=found):
            try:
                found.append(study.tell(told))
            except PublicError as error:
                found.append(error)
            except ValueError as error:  # the budget is spent
                found.append(error)

        threads = [threading.Thread(target=go) for _ in range(5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sum(not isinstance(each, Exception) for each in found) == 1
        assert len(study.steps) == number
    assert study.spent <= 1.0


def test_threads_draw_one_sample():
    study = Study(search(sample_rate=0.5), n=2000, randomness=Slow(0))
    study.ask()
    found = []
    threads = [threading.Thread(target=lambda: found.append(study.sample().tobytes())) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 1


def test_threads_that_make_the_chunks_may_ask():
    study = Study(search(), n=N, randomness=SeededRandomness(0))
    study.ask()

    def tell():
        with ThreadPool(2) as pool:
            chunks = np.array_split(RECORDS, 3)
            study.tell(pool.imap(lambda chunk: losses(study, chunk) + 0.0 * study.asked[0, 0], chunks))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    teller.join(120)
    assert not teller.is_alive()
    assert [step.gradient is not None for step in study.steps] == [True]


def test_a_step_may_ask_but_not_tell_from_inside():
    study = Study(search(), n=N, randomness=SeededRandomness(0))
    study.ask()

    def chunks(inside):
        yield losses(study)
        inside()

    step = study.tell(chunks(study.ask))
    assert step.gradient is not None
    study.ask()
    with pytest.raises(StudyError, match="middle of a call"):
        study.tell(chunks(lambda: study.tell(losses(study))))
    assert len(study.steps) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("disk", [False, True])
def test_a_fork_releases_nothing(tmp_path, disk):
    study = Study(search(), n=N, path=tmp_path / "s" if disk else None)
    told = losses(study)
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in (study.ask, lambda: study.tell(told)):
            try:
                call()
            except StudyError:
                refused += 1
        os._exit(7 if refused == 2 else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert study.tell(told).number == 0


class Interrupt(BaseException):
    pass


def test_an_interrupt_after_the_release_is_on_disk_spends_once(tmp_path, monkeypatch):
    append = Transcript.append

    def interrupted(self, line):
        append(self, line)
        if line["event"] == "released" and line["step"] == 1:
            raise Interrupt

    study = Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "p")
    study.tell(losses(study))
    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "append", interrupted)
        with pytest.raises(Interrupt):
            study.tell(losses(study))
    assert len(study.steps) == 2
    finished(study)
    numbers = [line["number"] for line in study._file.lines if line["event"] == "charged"]
    assert numbers == [0, 1, 2]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 6))
def test_killed_at_any_write_on_a_ledger(tmp_path, monkeypatch, book, at, after):
    """Each step is charged once, on one entry, which is booked in the end."""
    append, writes = Transcript.append, 0

    def killed(self, line):
        nonlocal writes
        writes += 1
        if writes == at and not after:
            raise Interrupt
        append(self, line)
        if writes == at:
            raise Interrupt

    def run():
        with Study(search(steps=2), n=N, path=tmp_path / "s", ledger=book) as study:
            finished(study)
            return [line["number"] for line in study._file.lines if line["event"] == "charged"]

    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "append", killed)
        with pytest.raises(Interrupt):
            run()
    assert run() == [0, 1]
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    book.verify()


# --- copies, and the ledger


def test_an_older_copy_is_refused(tmp_path, book):
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        study.tell(losses(study))
    for name in ("before", "again"):
        shutil.copy(tmp_path / "s", tmp_path / name)
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        study.tell(losses(study))
    with pytest.raises(StudyError, match="older copy"):
        Study(search(), n=N, path=tmp_path / "before", ledger=book)
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        release = finished(study).result()
    with pytest.raises(StudyError, match="older copy"):
        Study(search(), n=N, path=tmp_path / "again", ledger=book)
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    book.verify(certificates=[release.certificate])
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        np.testing.assert_array_equal(study.result().thetas, release.thetas)


def test_of_two_copies_that_are_open_one_releases(tmp_path, book):
    Study(search(), n=N, path=tmp_path / "s", ledger=book).close()
    shutil.copy(tmp_path / "s", tmp_path / "t")
    first, second = (Study(search(), n=N, path=tmp_path / name, ledger=book) for name in "st")
    assert first.tell(losses(first)).gradient is not None
    with pytest.raises(ValueError, match="another copy"):
        second.tell(losses(second))
    assert second.steps[0].gradient is None


@pytest.mark.parametrize("how", ["refused", "last", "stopped"])
def test_a_copy_that_was_overtaken_does_not_end_the_run(tmp_path, book, how):
    steps = 2 if how == "last" else 3
    Study(search(steps=steps), n=N, path=tmp_path / "s", ledger=book).close()
    if how == "last":
        with Study(search(steps=steps), n=N, path=tmp_path / "s", ledger=book) as study:
            study.tell(losses(study))
    shutil.copy(tmp_path / "s", tmp_path / "t")
    first, second = (Study(search(steps=steps), n=N, path=tmp_path / name, ledger=book) for name in "st")
    told = losses(second)
    if how != "last":
        first.tell(losses(first))
    else:
        first.ask()
        first._file.append({"event": "moved", "step": 1, "theta": [0.0]})
        book.step(1, first._file.digests[-1], after=first._file.digests, noise="elsewhere")
    with pytest.raises(LedgerError, match="another copy"):
        second.stop() if how == "stopped" else second.tell(told)
    assert second.done
    lost, lines = len(second.steps), len(second._file.lines)
    calls = [second.ask, lambda: second.tell(told), second.stop, second.result, lambda: second.move_to({"x": 0.0})]
    for call in [*calls, lambda: second.drop([0])]:
        with pytest.raises(StudyError, match="another copy"):
            call()
    assert (len(second.steps), len(second._file.lines)) == (lost, lines)
    assert [entry.state for entry in book.entries()] == [State.RESERVED]
    release = finished(first).result()
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    book.verify(certificates=[release.certificate])


def test_a_run_that_is_not_finished_is_no_tampering(tmp_path, book):
    study = Study(search(), n=N, path=tmp_path / "s", ledger=book)
    study.tell(losses(study))
    with pytest.raises(LedgerError, match="not finished yet") as caught:
        book.verify(certificates=[study.result().certificate])
    assert not isinstance(caught.value, Tampered)
    book.verify(certificates=[finished(study).result().certificate])


def test_an_interrupt_while_the_ledger_commits_loses_one_step(tmp_path, book, monkeypatch):
    step = Ledger.step

    def interrupted(*arguments, **options):
        step(*arguments, **options)
        raise Interrupt

    study = Study(search(), n=N, path=tmp_path / "s", ledger=book)
    study.tell(losses(study))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "step", interrupted)
        with pytest.raises(Interrupt):
            study.tell(losses(study))
    finished(study)
    assert [each.gradient is not None for each in study.steps] == [True, False, True]
    assert [entry.state for entry in book.entries()] == [State.BOOKED]


def test_one_stopped_is_not_gone_on_with_from_a_copy(tmp_path, book):
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        study.tell(losses(study))
        shutil.copy(tmp_path / "s", tmp_path / "t")
        study.stop()
    with pytest.raises(StudyError, match="older copy"):
        Study(search(), n=N, path=tmp_path / "t", ledger=book)
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        assert study.done


def test_a_failed_entry_pays_for_nothing(tmp_path, book):
    Study(search(), n=N, path=tmp_path / "s", ledger=book).close()
    book.fail(1, "given up")
    with pytest.raises(StudyError, match="failed"):
        Study(search(), n=N, path=tmp_path / "s", ledger=book)


@pytest.mark.parametrize("composition", ["renyi", "numerical"])
def test_a_sampled_study_finds_its_entry_again(tmp_path, composition):
    book = Ledger.create(tmp_path / "l", dataset="tests", epsilon=50.0, delta=1e-5, composition=composition)
    for _ in range(3):
        with Study(search(sample_rate=0.5), n=N, path=tmp_path / "s", ledger=book) as study:
            study.tell(losses(study)[study.sample()])
    assert [entry.state for entry in book.entries()] == [State.BOOKED]


def test_a_cheap_entry_pays_for_no_dear_search(tmp_path, book):
    with Study(search(mu=0.1), n=N, path=tmp_path / "cheap", ledger=book) as cheap:
        name = cheap._file.lines[0]["id"]
    with Study(search(mu=5.0), n=N, path=tmp_path / "dear", ledger=book) as dear:
        header = dear._file.lines[0]
    forged = Transcript(tmp_path / "forged")
    forged.append(header | {"id": name})
    forged.close()
    with pytest.raises(StudyError, match="another plan or another price"):
        Study(search(mu=5.0), n=N, path=tmp_path / "forged", ledger=book)


class Replayable(SeededRandomness):
    @property
    def bookable(self):
        return True


def test_noise_that_comes_again_is_refused(tmp_path, book):
    finished(Study(search(), n=N, ledger=book, randomness=Replayable(987654321)))
    with pytest.raises(RepeatedNoise):
        Study(search(), n=N, ledger=book, randomness=Replayable(987654321))
    assert len(book.entries()) == 1


def test_each_step_names_its_noise(tmp_path, book):
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        finished(study)
        named = [line["noise_id"] for line in study._file.lines if line["event"] == "charged"]
    assert len(set(named)) == 3
    for name in named:
        with pytest.raises(RepeatedNoise):
            book.reserve(search(mu=0.1).privacy_loss(N), {}, noise=name)


def test_delta_and_unit_are_fixed_with_the_first_line(tmp_path):
    Study(search(), n=N, path=tmp_path / "s").close()
    for other in ({"delta": 1e-3}, {"unit": "one household"}):
        with pytest.raises(StudyError, match="fixed with its first line"):
            Study(search(**other), n=N, path=tmp_path / "s")


# --- the private file


def test_losses_are_never_in_the_public_file(tmp_path):
    path = tmp_path / "s"
    os.symlink(path, tmp_path / "link")
    for given, private in ((path, path), (path, tmp_path / "link"), (tmp_path / "a.part", tmp_path / "a")):
        with pytest.raises(StudyError, match="public file"):
            Study(search(), n=N, path=given, private=private)
    with pytest.raises(ValueError, match="give path"):
        Study(search(), n=N, private=tmp_path / "p")


@pytest.mark.parametrize("content", [b"", b"my thesis", b"PK\x03\x04 no archive"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(StudyError, match="left as it is"):
        Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == content


def test_losses_of_another_study_are_not_used(tmp_path):
    for name, records in (("a", RECORDS), ("b", RECORDS + 5.0)):
        with Study(search(), n=N, path=tmp_path / name, private=tmp_path / f"{name}-private") as study:
            study.tell(losses(study, records))
            assert study._kept.losses.shape[1]
    with pytest.raises(StudyError, match="no losses of this study"):
        Study(search(), n=N, path=tmp_path / "b", private=tmp_path / "a-private")
    with Study(search(), n=N, path=tmp_path / "b", private=tmp_path / "b-private") as study:
        assert study._kept.losses.shape[1]


# --- what evaluations say


SECRET = "Smith;income=123456"


def raising(*_, **__):
    raise KeyError(SECRET)


def breaking_off():
    yield np.zeros(10)
    raise ValueError(SECRET)


class Odd:
    def __array__(self, *_, **__):
        raise ValueError(SECRET)


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": breaking_off},
        {"chunks": raising},
        {"chunks": [iter([SECRET])]},
        {"chunks": [np.zeros(5)], "per_record_loss": raising},
        {"per_record_loss": raising},
        {"per_record_loss": lambda x: Odd()},
        {"per_record_loss": lambda x: SECRET, "largest_loss": 1.0},
        {"per_record_loss": lambda x: Odd(), "largest_loss": 1.0},
    ],
)
def test_no_message_of_an_evaluation_leaves(options):
    given = {"per_record_loss": lambda chunk, x: (x - chunk) ** 2} | options
    with pytest.raises(MechanismFailed) as caught:
        minimize(space=SPACE, n=20, mu=1.0, steps=2, clip=1.0, **given)
    error = caught.value
    while error is not None:
        assert "Smith" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("means", [[np.nan, 0.5], [np.inf, 0.0], [-5.0, 0.5], [0.5, 1.0 + 1e-6]])
def test_means_that_are_of_no_clamped_losses_cost_nothing(means):
    study = Study(search(largest_loss=1.0), n=N, randomness=SeededRandomness(0))
    study.ask()
    with pytest.raises(PublicError, match="clamped_mean") as caught:
        study.tell_mean(np.array(means))
    assert not any(str(each) in str(caught.value) for each in means[:1])
    assert study.spent == 0.0
    assert not study.steps
    study.tell_mean(clamped_mean(np.full((N, 2), 7.0), 1.0))  # all at the end of the range, rounded
    assert study.spent > 0.0


def test_an_empty_sample_is_not_evaluated():
    sizes = []

    def fails_on_nothing(rows, x):
        sizes.append(len(rows))
        return np.max((x - RECORDS[rows]) ** 2) * np.ones(len(rows))

    given = {"n": 4, "mu": 1.0, "steps": 8, "clip": 1.0, "sample_rate": 0.02}
    release = minimize(fails_on_nothing, SPACE, randomness=SeededRandomness(0), **given)
    assert np.isfinite(release.gradients).all()
    assert len(sizes) < 8 * 2
    assert 0 not in sizes


def mapped(chunk, x):
    if isinstance(chunk, np.memmap):
        raise ValueError("records are in a file")
    return (x - np.asarray(chunk)) ** 2


def test_records_go_to_other_processes_through_no_file():
    records = np.zeros(150_000)  # 1.2 MB, beyond what joblib sends by itself
    release = minimize(mapped, SPACE, n=len(records), mu=1.0, steps=1, clip=1.0, chunks=[records], n_jobs=2, cache=0)
    assert np.isfinite(release.gradients).all()


# --- what a refusal leaves


def test_a_refused_reservation_leaves_no_file(tmp_path):
    small = Ledger.create(tmp_path / "small", dataset="tests", epsilon=0.1, delta=1e-5)
    other = Ledger.create(
        tmp_path / "other", dataset="tests", epsilon=9.0, delta=1e-5, neighbours=Neighbours.ADD_REMOVE
    )
    for book, says in ((small, "budget"), (other, "neighbours")):
        with pytest.raises(ValueError, match=says):
            Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "p", ledger=book)
        assert not (tmp_path / "s").exists()
        (tmp_path / "empty").touch()
        with pytest.raises(ValueError, match=says):
            Study(search(), n=N, path=tmp_path / "empty", ledger=book)
        assert (tmp_path / "empty").read_bytes() == b""
    with pytest.raises(StudyError, match="public file"):
        Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_study_that_was_there_stays_when_it_is_refused(tmp_path, book):
    Study(search(), n=N, path=tmp_path / "s", ledger=book).close()
    found = (tmp_path / "s").read_bytes()
    for changes, options in (({"steps": 2}, {}), ({}, {"ledger": None}), ({}, {"n": N + 1})):
        with pytest.raises(StudyError, match="fixed with its first line"):
            Study(search(**changes), **({"n": N, "path": tmp_path / "s", "ledger": book} | options))
        assert (tmp_path / "s").read_bytes() == found


def test_an_interrupt_in_the_reservation_keeps_the_file(tmp_path, book, monkeypatch):
    """The entry may be there already: the file is its name."""
    reserve = Ledger.reserve

    def interrupted(*arguments, **options):
        reserve(*arguments, **options)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "reserve", interrupted)
        with pytest.raises(Interrupt):
            Study(search(), n=N, path=tmp_path / "s", ledger=book)
    with Study(search(), n=N, path=tmp_path / "s", ledger=book) as study:
        finished(study)
    assert [entry.state for entry in book.entries()] == [State.BOOKED]


def test_a_study_that_nobody_has_any_more_lets_go_of_its_file(tmp_path):
    def forgotten():
        study = Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "p")
        study.tell(losses(study))

    forgotten()
    with Study(search(), n=N, path=tmp_path / "s", private=tmp_path / "p") as study:
        assert len(study.steps) == 1
