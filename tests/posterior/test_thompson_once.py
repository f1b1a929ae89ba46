"""Nothing of a run is drawn twice: threads, forks, interrupts, copies of its files, entries of other runs."""

import copy
import os
import pickle
import shutil
import stat
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from discretion.gp import RBF, Box, Exponential, Matern52
from discretion.posterior.divergence import thompson_mu, thompson_rho
from discretion.posterior.thompson import ThompsonSampler
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import Ledger, LedgerError, Neighbours, SeededRandomness, State
from discretion.privacy.once import RunError
from discretion.privacy.transcript import Transcript

C = np.linspace(0, 1, 9)[:, None]


def mechanism(**changes):
    fields = {"kernel": Matern52(0.3), "actions": C, "response_range": (-1, 1), "rounds": 4, "schedule": 0.5}
    return ThompsonMechanism(**(fields | {"ridge": 1.0} | changes))


def answer(actions):
    return np.sin(5 * actions[:, 0])


def opened(folder, run=None, name="a", **changes):
    return ThompsonSampler(run or mechanism(), path=folder / name, private=folder / f"{name}-private", **changes)


def copied(folder, source, target):
    for end in ("", "-private"):
        shutil.copy(folder / f"{source}{end}", folder / f"{target}{end}")


@pytest.fixture
def book(tmp_path):
    neighbours = Neighbours.REPLACE_RESPONSE
    return Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=500.0, delta=1e-5, neighbours=neighbours)


class Slow(SeededRandomness):
    """Long enough for other threads to come in."""

    def standard_normal(self, shape=()):
        time.sleep(0.02)
        return super().standard_normal(shape)


def at_once(call, threads=5):
    found = []

    def go():
        try:
            found.append(call())
        except RunError as error:
            found.append(error)

    started = [threading.Thread(target=go) for _ in range(threads)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    return found


@pytest.mark.parametrize("disk", [False, True])
def test_threads_get_one_draw(tmp_path, disk):
    files = {"path": tmp_path / "a", "private": tmp_path / "b"} if disk else {}
    run = ThompsonSampler(mechanism(rounds=2, batch=4), randomness=Slow(0), **files)
    for number in (1, 2):
        shown = at_once(run.ask)
        assert len({each.tobytes() for each in shown}) == 1
        assert run.rounds == number
        run.tell(answer(shown[0]))
    assert run.done


def test_threads_tell_a_response_once(tmp_path, monkeypatch):
    append = Transcript.append

    def slow(self, line):
        append(self, line)
        time.sleep(0.02)

    monkeypatch.setattr(Transcript, "append", slow)
    run = opened(tmp_path)
    run.ask()
    told = at_once(lambda: run.tell([1.0]))
    assert sum(each is None for each in told) == 1
    assert run._model.n == 1
    assert sum(line.get("round") == 1 for line in run._private.lines) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_draws_nothing(tmp_path):
    run = opened(tmp_path)
    run.tell(answer(run.ask()))
    pid = os.fork()
    if pid == 0:
        try:
            run.ask()
        except RunError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    run.ask()
    begun = [line["round"] for line in run._public.lines if line["event"] == "begun"]
    assert begun == [1, 2]


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("event", ["begun", "played"])
def test_an_interrupt_right_after_a_write_draws_nothing_twice(tmp_path, monkeypatch, event):
    append = Transcript.append

    def interrupted(self, line):
        append(self, line)
        if line.get("event") == event and line["round"] == 2:
            raise Interrupt

    run = opened(tmp_path)
    run.tell(answer(run.ask()))
    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "append", interrupted)
        with pytest.raises(Interrupt):
            run.ask()
    while not run.done:
        run.tell(answer(run.ask()))
    begun = [line["round"] for line in run._public.lines if line["event"] == "begun"]
    assert begun == [1, 2, 3, 4]


def test_a_round_whose_first_line_was_not_written_is_lost(tmp_path, monkeypatch):
    append = Transcript.append

    def full(self, line):
        if line.get("round") == 2 and line.get("event") == "begun":
            raise OSError("no space left")
        append(self, line)

    monkeypatch.setattr(Transcript, "append", full)
    run = opened(tmp_path)
    run.tell(answer(run.ask()))
    with pytest.raises(OSError, match="no space"):
        run.ask()
    run.tell(answer(run.ask()))
    before = run.actions
    run.close()
    again = opened(tmp_path)
    np.testing.assert_array_equal(again.actions, before)
    assert np.isnan(again.actions[1]).all()


# --- copies, and the ledger


def test_a_copy_is_not_run_a_second_time(tmp_path, book):
    with opened(tmp_path, ledger=book) as run:
        run.tell(answer(run.ask()))
    copied(tmp_path, "a", "c")
    with opened(tmp_path, ledger=book) as run:
        actions = run.ask()
    with pytest.raises(RunError, match="older copy"):  # while the run is under way
        opened(tmp_path, name="c", ledger=book)
    with opened(tmp_path, ledger=book) as run:
        np.testing.assert_array_equal(run.ask(), actions)
        while not run.done:
            run.tell(answer(run.ask()))
    with pytest.raises(RunError, match="older copy"):  # and once it is booked
        opened(tmp_path, name="c", ledger=book)
    with opened(tmp_path, ledger=book) as run:
        assert run.result().certificate.ledger_entry == f"{book.id}#1"
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    assert book.verify(certificates=[run.result().certificate]).entries == 1


def test_of_two_copies_that_are_open_one_draws(tmp_path, book):
    opened(tmp_path, ledger=book).close()
    copied(tmp_path, "a", "c")
    first, second = opened(tmp_path, ledger=book), opened(tmp_path, name="c", ledger=book)
    first.ask()
    drawn = []
    second.randomness = type("Watched", (), {"standard_normal": drawn.append, "fresh_id": lambda self: "f" * 32})()
    second.randomness.bookable = True
    with pytest.raises(ValueError, match="another copy"):
        second.ask()
    assert not drawn


def test_a_copy_that_was_overtaken_does_not_end_the_run(tmp_path, book):
    opened(tmp_path, ledger=book).close()
    copied(tmp_path, "a", "c")
    first, second = opened(tmp_path, ledger=book), opened(tmp_path, name="c", ledger=book)
    first.tell(answer(first.ask()))
    with pytest.raises(LedgerError, match="another copy"):
        second.ask()
    assert second.done
    rounds, lines = second.rounds, len(second._public.lines)
    for call in (second.ask, lambda: second.tell([0.0]), second.result) * 4:
        with pytest.raises(RunError, match="another copy"):
            call()
    assert (second.rounds, len(second._public.lines)) == (rounds, lines)
    assert [entry.state for entry in book.entries()] == [State.RESERVED]
    while not first.done:
        first.tell(answer(first.ask()))
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    assert np.isfinite(first.result().actions).all()


def test_an_interrupt_while_the_ledger_commits_loses_one_round(tmp_path, book, monkeypatch):
    """Ctrl-C arrives when the ledger has the step already."""
    step = Ledger.step

    def interrupted(*arguments, **options):
        step(*arguments, **options)
        raise Interrupt

    run = opened(tmp_path, ledger=book)
    run.tell(answer(run.ask()))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "step", interrupted)
        with pytest.raises(Interrupt):
            run.ask()
    while not run.done:
        run.tell(answer(run.ask()))
    assert np.isnan(run.actions[:, 0, 0]).tolist() == [False, True, False, False]
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    run.close()
    assert opened(tmp_path, ledger=book).done


def test_a_last_round_that_was_interrupted_may_still_be_told(tmp_path, monkeypatch, book):
    append = Transcript.append

    def interrupted(self, line):
        append(self, line)
        if line.get("event") == "played":
            raise Interrupt

    run = mechanism(rounds=1)
    with opened(tmp_path, run, ledger=book) as sampler, monkeypatch.context() as patch:
        patch.setattr(Transcript, "append", interrupted)
        with pytest.raises(Interrupt):
            sampler.ask()
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    with opened(tmp_path, run, ledger=book) as sampler:
        sampler.tell(answer(sampler.ask()))
        assert sampler.done


def test_a_failed_run_goes_no_further(tmp_path, book):
    opened(tmp_path, ledger=book).close()
    book.fail(1, "given up")
    with pytest.raises(RunError, match="failed"):
        opened(tmp_path, ledger=book)


@pytest.mark.parametrize("composition", ["renyi", "numerical"])
def test_a_run_of_whole_records_finds_its_entry_again(tmp_path, composition):
    """Also where the loss is a curve, of which the ledger keeps a table."""
    book = Ledger.create(tmp_path / "l", dataset="tests", epsilon=1e6, delta=1e-5, composition=composition)
    run = mechanism(private="records", ridge=3.0)
    for _ in range(4):
        with opened(tmp_path, run, ledger=book) as sampler:
            sampler.tell(answer(sampler.ask()))
    assert [entry.state for entry in book.entries()] == [State.BOOKED]


def test_a_cheap_entry_pays_for_no_dear_run(tmp_path, book):
    with opened(tmp_path, mechanism(schedule=20.0), ledger=book) as cheap:
        name = cheap._public.lines[0]["id"]
    with opened(tmp_path, mechanism(schedule=0.4), name="c", ledger=book) as dear:
        header = dear._public.lines[0]
    forged = Transcript(tmp_path / "d")
    forged.append(header | {"id": name})
    forged.close()
    with pytest.raises(RunError, match="another plan or another price"):
        opened(tmp_path, mechanism(schedule=0.4), name="d", ledger=book)


def test_delta_and_unit_are_fixed_with_the_first_line(tmp_path):
    opened(tmp_path).close()
    for other in ({"delta": 1e-3}, {"unit": "one household"}):
        with pytest.raises(RunError, match="fixed with its first line"):
            opened(tmp_path, mechanism(**other))


def test_the_two_files_are_two(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(RunError, match="one file"):
        ThompsonSampler(mechanism(), path=path, private=path)
    os.symlink(path, tmp_path / "b")
    with pytest.raises(RunError, match="one file"):
        ThompsonSampler(mechanism(), path=path, private=tmp_path / "b")


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_private_file_is_for_its_owner(tmp_path):
    (tmp_path / "a-private").touch(0o644)
    opened(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "a-private").stat().st_mode) == 0o600


# --- private covariates


@pytest.mark.parametrize("actions", [C, Box((0.0,), (1.0,)), Box((-5.0,), (-4.999,))], ids=["C", "box", "narrow"])
@pytest.mark.parametrize("far", [1e100, 1e149, 1e160, -1.7e308])
def test_no_covariate_ends_a_run(tmp_path, actions, far):
    run = mechanism(actions=actions, private="records", history=1)
    first = opened(tmp_path, run)
    first.start([[far]], [0.5])
    while not first.done:
        first.ask()
        first.tell([0.1], [[-far]])
    first.close()
    again = opened(tmp_path, run)
    np.testing.assert_array_equal(again.actions, first.actions)


@pytest.mark.parametrize("kernel", [RBF((0.1, 0.4)), Exponential(0.3)])
@pytest.mark.parametrize("actions", [Box((0.0, -10.0), (1.0, 10.0)), np.random.default_rng(1).normal(size=(6, 2))])
def test_covariates_are_clamped_record_by_record(kernel, actions):
    run = mechanism(kernel=kernel, actions=actions, private="records", batch=3)
    low, high = run.covariate_range
    sampler = ThompsonSampler(run, randomness=SeededRandomness(0))
    sampler.ask()
    X = np.array([low - 1.0, high * 1.5 + 1.0, (low + high) / 2])
    sampler.tell(np.zeros(3), X)
    seen = sampler._model.X[:3] if hasattr(sampler._model, "X") else sampler._model.points[:3]
    to_kernel = actions.unit if isinstance(actions, Box) else (lambda points: points)
    np.testing.assert_allclose(seen, to_kernel(np.array([low, high, (low + high) / 2])))
    near = actions.grid((4, 4)) if isinstance(actions, Box) else actions
    assert kernel(to_kernel(near), seen[:2]).max() < 4e-4
    assert any("clamped" in words for words in run.certificate(SeededRandomness(0)).enforced)
    assert not any("clamped" in words for words in mechanism().certificate(SeededRandomness(0)).enforced)


# --- parameters


@dataclass(frozen=True)
class Loud(Matern52):
    name = "loud"

    def _apply(self, s):
        super()._apply(s)
        s *= 9.0


@pytest.mark.parametrize("actions", [C, Box((0.0,), (1.0,))], ids=["C", "box"])
def test_a_kernel_has_a_unit_diagonal(actions):
    with pytest.raises(ValueError, match=r"k\(x, x\) = 1"):
        mechanism(kernel=Loud(0.3), actions=actions)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_as_fixed_as_what_they_copy(again):
    run = mechanism(private="records")
    _ = run.covariate_range
    other = again(run)
    for array in (other.scales, other.candidates, other.covariate_range):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1e-9
    assert other.parameters() == run.parameters()
    assert other.loss.epsilon(1e-5) == run.loss.epsilon(1e-5)


@pytest.mark.parametrize("unit", [1e-200, 1e-100, 1.0, 1e130])
def test_the_price_does_not_depend_on_the_unit_of_responses(unit):
    scales = unit * np.array([1.0, 2.0, 3.0])
    assert thompson_rho(scales, 2.0, unit) == pytest.approx(thompson_rho(scales / unit, 2.0, 1.0), rel=1e-12)
    tiny = thompson_mu(1e170 * scales, 2.0, unit)  # its square is no double
    assert tiny == pytest.approx(1e-170 * thompson_mu(scales / unit, 2.0, 1.0), rel=1e-12)
    assert thompson_mu([1.0, 1e-300], 2.0, 1e300) == thompson_rho([1.0, 1e-300], 2.0, 1e300) == np.inf
    assert thompson_mu([1.0, 1e300], 2.0, 0.0) == 0.0


def test_a_refused_reservation_leaves_no_file(tmp_path):
    neighbours = Neighbours.REPLACE_RESPONSE
    small = Ledger.create(tmp_path / "small", dataset="tests", epsilon=0.1, delta=1e-5, neighbours=neighbours)
    other = Ledger.create(tmp_path / "other", dataset="tests", epsilon=9.0, delta=1e-5)
    before = sorted(tmp_path.iterdir())
    for book, says in ((small, "budget"), (other, "replace-response")):
        with pytest.raises(ValueError, match=says):
            opened(tmp_path, ledger=book)
        assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(RunError, match="one file"):
        ThompsonSampler(mechanism(), path=tmp_path / "a", private=tmp_path / "a")
    (tmp_path / "nobody").write_text("no run")
    with pytest.raises(RunError, match="no file of a run"):
        ThompsonSampler(mechanism(), path=tmp_path / "a", private=tmp_path / "nobody")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "nobody"])
    for end in ("", "-private"):
        (tmp_path / f"a{end}").touch()
    with pytest.raises(ValueError, match="budget"):
        opened(tmp_path, ledger=small)
    assert [(tmp_path / f"a{end}").read_bytes() for end in ("", "-private")] == [b"", b""]


def test_a_ledger_by_its_path(tmp_path, book):
    for kind in (str, lambda path: path):
        with opened(tmp_path, ledger=kind(tmp_path / "ledger")) as sampler:
            sampler.ask()
            assert sampler.result().certificate.ledger_entry == f"{book.id}#1"
            sampler.tell([0.5])
    assert len(book.entries()) == 1


@pytest.mark.parametrize("told", [[[0.5]], [[0.5, 0.1]], [0.5, 0.1], 0.5, "secret", [[0.5], [0.1]]])
def test_answers_of_another_shape_are_told_to_nobody(tmp_path, told):
    with opened(tmp_path) as sampler:
        actions = sampler.ask()
        with pytest.raises(ValueError, match=r"response") as caught:
            sampler.tell(told)
        assert "secret" not in str(caught.value)
        np.testing.assert_array_equal(sampler.ask(), actions)
        sampler.tell([0.5])
        assert sampler.rounds == 1
