"""Runs on their ledger entries: which entry pays for what, and how far a run has come."""

import pytest

from discretion.privacy import (
    BudgetExceeded,
    GaussianDP,
    Ledger,
    LedgerError,
    Neighbours,
    PureDP,
    RepeatedNoise,
    State,
    SystemRandomness,
    UnitMismatch,
)
from discretion.privacy.chain import read_export
from discretion.privacy.once import RunError
from discretion.privacy.paid import Paid
from discretion.privacy.transcript import Transcript

ABOUT = {"mechanism": "made-up", "parameters": {"rounds": 3}, "n": 5}


def gauss(mu):
    return GaussianDP(mu, neighbours=Neighbours.REPLACE)


@pytest.fixture
def book(tmp_path):
    return Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=5.0, delta=1e-5)


def paid(book, *, run="r", loss=None, about=ABOUT, file=None):
    return Paid(book, run, loss or gauss(0.5), about, randomness=SystemRandomness(), file=file)


def test_a_run_is_reserved_once(book):
    first, second, other = paid(book), paid(book), paid(book, run="s")
    assert (first.entry, second.entry, other.entry) == (1, 1, 2)
    assert first.name == f"{book.id}#1"
    first.finish()
    first.finish()
    assert [entry.state for entry in book.entries()] == [State.BOOKED, State.RESERVED]
    with pytest.raises(BudgetExceeded):
        paid(book, run="dear", loss=gauss(4.0))


@pytest.mark.parametrize(
    "other",
    [
        {"loss": gauss(0.6)},
        {"loss": gauss(0.5 + 1e-12)},
        {"loss": PureDP(0.5, neighbours=Neighbours.REPLACE)},
        {"about": ABOUT | {"n": 6}},
        {"about": ABOUT | {"mechanism": "another"}},
        {"about": ABOUT | {"parameters": {"rounds": 4}}},
    ],
    ids=str,
)
def test_an_entry_pays_for_nothing_else(book, other):
    paid(book)
    with pytest.raises(RunError, match="another plan or another price"):
        paid(book, **other)
    assert len(book.entries()) == 1


def test_a_failed_run_is_not_taken_up(book):
    book.fail(paid(book).entry, "given up")
    with pytest.raises(RunError, match="failed"):
        paid(book)


def test_steps_are_events(book):
    one, two = book.reserve(gauss(0.1), {}, noise="n0"), book.reserve(gauss(0.1), {})
    spent = book.spent()
    book.step(one, "a", after=[], noise="n1")
    book.step(two, "b", after=["header"], noise="n2")
    book.step(one, "c", after=["header", "a", "lost"], noise="n3")
    assert [entry.step for entry in book.entries()] == ["c", "b"]
    assert [entry.state for entry in book.entries()] == [State.RESERVED] * 2
    assert book.spent() == spent
    for after in ([], ["a"], ["b", "d"]):
        with pytest.raises(LedgerError, match="another copy"):
            book.step(one, "d", after=after, noise="n4")
        with pytest.raises(LedgerError, match="another copy"):
            book.book(one, after=after)
    for noise in ("n0", "n2"):
        with pytest.raises(RepeatedNoise):
            book.step(one, "d", after=["c"], noise=noise)
    with pytest.raises(RepeatedNoise):
        book.reserve(gauss(0.1), {}, noise="n3")
    with pytest.raises(LedgerError, match="no entry 3"):
        book.step(3, "d", after=[], noise="n4")
    book.book(one, after=["a", "c"])
    book.fail(two, "")
    for entry, after in ((one, ["c"]), (two, ["b"])):
        with pytest.raises(LedgerError, match="already"):
            book.step(entry, "d", after=after, noise="n4")
    assert book.verify().events == 7
    assert read_export(book.export()).head == book.head()
    assert [entry.step for entry in Ledger.open(book.path).entries()] == ["c", "b"]


def test_of_two_copies_one_goes_on(book, tmp_path):
    files = [Transcript(tmp_path / name) for name in "ab"]
    for file in files:
        file.append({"begun": 0})
    first, second = (paid(book, file=file) for file in files)
    files[0].append({"begun": 1})
    files[1].append({"begun": 1, "other": True})
    first.step("n1")
    with pytest.raises(LedgerError, match="another copy"):
        second.step("n2")
    assert (first.overtaken, second.overtaken) == (False, True)
    with pytest.raises(RunError, match="another copy"):
        second.go_on()
    second.finish()
    assert book.entries()[0].state is State.RESERVED
    first.go_on()
    paid(book, file=files[0]).check(finished=False)
    with pytest.raises(RunError, match="older copy"):
        paid(book, file=files[1]).check(finished=False)
    first.finish()
    paid(book, file=files[0]).check(finished=True)
    with pytest.raises(RunError, match="older copy"):
        paid(book, file=files[0]).check(finished=False)


def test_an_older_copy_does_not_end_the_run(book, tmp_path):
    files = [Transcript(tmp_path / name) for name in "ab"]
    for file in files:
        file.append({"begun": 0})
    first, second = (paid(book, file=file) for file in files)
    files[0].append({"begun": 1})
    first.step("n1")
    with pytest.raises(LedgerError, match="another copy"):
        second.finish()
    assert second.overtaken
    assert book.entries()[0].state is State.RESERVED
    first.finish()
    assert book.entries()[0].state is State.BOOKED


def test_a_step_that_the_ledger_has_may_be_interrupted(book, tmp_path, monkeypatch):
    file = Transcript(tmp_path / "a")
    file.append({"begun": 0})
    run, step = paid(book, file=file), Ledger.step

    def interrupted(*arguments, **options):
        step(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "step", interrupted)
        file.append({"begun": 1})
        with pytest.raises(KeyboardInterrupt):
            run.step("n1")
    file.append({"begun": 2})
    run.step("n2")
    run.finish()
    assert [(entry.step, entry.state) for entry in book.entries()] == [(file.digests[-1], State.BOOKED)]


def test_an_entry_of_before_units_were_booked_still_pays(book):
    old = paid(book)
    assert paid(book, about=ABOUT | {"unit": "one record"}).entry == old.entry
    named = paid(book, run="s", about=ABOUT | {"unit": "one record"})
    assert paid(book, run="s", about=ABOUT | {"unit": "one record"}).entry == named.entry
    with pytest.raises(RunError, match="another plan"):
        paid(book, run="s", about=ABOUT | {"unit": "one patient"})
    with pytest.raises(RunError, match="another plan"):
        paid(book, run="s")
    with pytest.raises(UnitMismatch):
        paid(book, run="t", about=ABOUT | {"unit": "one patient"})
