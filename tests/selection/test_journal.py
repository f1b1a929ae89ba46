import os
import pickle
import subprocess
import sys
import textwrap

import pytest
from tests.selection.makers import MeanMechanism
from tests.selection.test_search import RECORDS

from discretion.privacy import Ledger, LedgerError, MechanismFailed, SeededRandomness, State
from discretion.selection import JournalError, NegativeBinomial, PublicScore, select
from discretion.selection.journal import Journal, plan_hash
from discretion.selection.search import SelectionMechanism
from discretion.selection.streams import KeyedRandomness

LAW = NegativeBinomial.of_mean(2.0, 5.0)
VALUE = PublicScore(lambda release: float(release.value), "the value")
CANDIDATES = [MeanMechanism(), MeanMechanism(shift=0.01)]


def replayable(key=b"test key of thirty-two bytes....."[:32]):
    """A source that a ledger takes for cryptographic, with a key that the test knows."""
    return KeyedRandomness(key, "test", bookable=True)


def book(tmp_path):
    return Ledger.create(tmp_path / "l.ledger", dataset="numbers", epsilon=20.0, delta=1e-6)


def run(tmp_path, ledger=None, candidates=CANDIDATES, score=VALUE, **more):
    more = {"randomness": replayable()} | more
    return select(candidates, score, LAW, RECORDS, 50, ledger=ledger, journal=tmp_path / "j", **more)


def test_the_file_is_private_and_of_one_size(tmp_path):
    sizes, keys = set(), set()
    for seed in range(5):
        path = tmp_path / f"j{seed}"
        with Journal(path, plan_hash({})) as journal:
            keys.add(journal.key(SeededRandomness(seed)).key)
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert repr(journal) == "Journal(PRIVATE)"
        sizes.add(path.stat().st_size)
        journal.delete()
        assert not path.exists()
    assert (len(sizes), len(keys)) == (1, 5)


def test_the_key_survives(tmp_path):
    with Journal(tmp_path / "j", "plan") as one:
        key = one.key(SeededRandomness(0))
    with Journal(tmp_path / "j", "plan") as two:
        assert two.key(SeededRandomness(99)).key == key.key
        assert two.name == one.name
        assert two.key(SeededRandomness(99)).bookable is False


def test_the_key_is_on_disk_before_the_first_run(tmp_path):
    found = []

    class Looking(MeanMechanism):
        def run(self, records, randomness):
            found.append(len((tmp_path / "j").read_bytes().splitlines()))
            return super().run(records, randomness)

    run(tmp_path, book(tmp_path), [Looking()])
    assert set(found) == {2}


def test_no_key_before_it_is_paid(tmp_path):
    ledger = Ledger.create(tmp_path / "l", dataset="numbers", epsilon=0.1, delta=1e-6)
    with pytest.raises(LedgerError):
        run(tmp_path, ledger)
    assert len((tmp_path / "j").read_bytes().splitlines()) == 1


def test_two_processes_do_not_share_a_search(tmp_path):
    with Journal(tmp_path / "j", "plan"), pytest.raises(JournalError, match="Another process"):
        Journal(tmp_path / "j", "plan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.chmod(0o640), "others may read"),
        (lambda path: path.write_bytes(b"a letter to my mother\n"), "not a journal"),
        (lambda path: path.write_bytes(b"a letter to my mother"), "not a journal"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"key", b"kez")), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes() * 2), "damaged"),
    ],
)
def test_what_is_no_journal_is_left_as_it_is(tmp_path, change, message):
    path = tmp_path / "j"
    with Journal(path, "plan") as journal:
        journal.key(SeededRandomness(0))
    change(path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=message):
        Journal(path, "plan")
    assert path.read_bytes() == before


def test_a_torn_line_is_drawn_again(tmp_path):
    path = tmp_path / "j"
    with Journal(path, "plan") as journal:
        journal.key(SeededRandomness(0))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with Journal(path, "plan") as journal:
        journal.key(SeededRandomness(0))
    assert path.read_bytes() == whole


def test_another_plan_is_refused(tmp_path):
    with Journal(tmp_path / "j", "plan"), pytest.raises(JournalError, match="Another process"):
        run(tmp_path)
    with pytest.raises(JournalError, match="another search"):
        run(tmp_path)


def test_a_search_without_accident_leaves_no_journal(tmp_path):
    ledger = book(tmp_path)
    release = run(tmp_path, ledger)
    assert not (tmp_path / "j").exists()
    (entry,) = ledger.entries()
    assert entry.state is State.BOOKED
    assert release.certificate.ledger_entry.endswith(f"#{entry.id}")


def test_the_release_is_saved_before_the_journal_goes(tmp_path):
    ledger, saved = book(tmp_path), []
    release = run(tmp_path, ledger, save=lambda release: saved.append((release.score, (tmp_path / "j").exists())))
    assert saved == [(release.score, True)]

    def broken(_):
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        run(tmp_path, ledger, save=broken)
    assert (tmp_path / "j").exists()
    assert run(tmp_path, ledger).score == release.score
    assert len(ledger.entries()) == 2


def test_an_interrupted_search_is_taken_up_and_paid_once(tmp_path):
    whole = run(tmp_path)
    ledger = book(tmp_path)

    class Stopped(MeanMechanism):
        def run(self, records, randomness):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ledger, [Stopped(), Stopped(shift=0.01)])
    (entry,) = ledger.entries()
    assert entry.state is State.RESERVED
    # whatever the source says now, the journal's key holds
    release = run(tmp_path, ledger, randomness=None)
    assert (release.candidate, release.score) == (whole.candidate, whole.score)
    (entry,) = ledger.entries()
    assert entry.state is State.BOOKED
    assert not (tmp_path / "j").exists()


def test_killed_between_booking_and_the_end(tmp_path, monkeypatch):
    ledger = book(tmp_path)
    monkeypatch.setattr(Journal, "delete", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ledger)
    monkeypatch.undo()
    first = ledger.entries()
    release = run(tmp_path, ledger)
    assert [entry.id for entry in ledger.entries()] == [entry.id for entry in first]
    assert release.score == run(tmp_path).score


def test_a_search_that_failed_can_be_taken_up(tmp_path, monkeypatch):
    ledger = book(tmp_path)
    monkeypatch.setattr(SelectionMechanism, "replay", lambda *_: 1 / 0)
    with pytest.raises(MechanismFailed):
        run(tmp_path, ledger)
    monkeypatch.undo()
    assert run(tmp_path, ledger).score == run(tmp_path).score
    assert len(ledger.entries()) == 1


def test_a_test_seed_stays_a_test_seed(tmp_path):
    with Journal(tmp_path / "j", "plan") as journal:
        assert not journal.key(SeededRandomness(0)).bookable
    (tmp_path / "j").unlink()
    assert not run(tmp_path, randomness=SeededRandomness(3)).certificate.bookable


def test_the_release_holds_no_key(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(Journal, "delete", lambda self: kept.append(self.path.read_text()))
    release = run(tmp_path, book(tmp_path))
    key = kept[0].splitlines()[1].split('"key": "')[1][:64]
    text = pickle.dumps(release) + release.certificate.to_json().encode()
    assert key.encode() not in text
    assert bytes.fromhex(key) not in text


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from dataclasses import dataclass
    from tests.selection.makers import MeanMechanism
    from tests.selection.test_journal import run, book, Ledger
    from pathlib import Path
    folder, runs = Path(sys.argv[1]), int(sys.argv[2])
    left = [runs]
    class Killed(MeanMechanism):
        def run(self, records, randomness):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().run(records, randomness)
    print(run(folder, Ledger.open(folder / "l.ledger"), [Killed(), Killed(shift=0.01)]).score)
    """
)


@pytest.mark.slow
def test_kill_and_resume(tmp_path):
    whole, ledger = run(tmp_path), book(tmp_path)
    for runs in (0, 1, 0):
        process = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(runs)], capture_output=True, text=True, check=False
        )
        assert process.returncode == -9, process.stderr
        assert (process.stdout, process.stderr) == ("", "")
    release = run(tmp_path, ledger)
    assert (release.score, release.candidate) == (whole.score, whole.candidate)
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]
