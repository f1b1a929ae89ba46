import hashlib
import inspect
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from tests.selection.makers import MeanMechanism
from tests.selection.test_search import RECORDS

from discretion.privacy import (
    GaussianDP,
    Ledger,
    LedgerError,
    MechanismFailed,
    Neighbours,
    PublicError,
    SeededRandomness,
    State,
)
from discretion.selection import Declared, Fixed, JournalError, NegativeBinomial, PublicScore, select
from discretion.selection.binding import code_of
from discretion.selection.charged import _Journalled, charged
from discretion.selection.journal import Journal, plan_hash
from discretion.selection.linear import LabelledRecords
from discretion.selection.model_selection import EstimatorMechanism
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
        with Journal(path, plan_hash({}), SeededRandomness(seed)) as journal:
            keys.add(journal.key.key)
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert repr(journal) == "Journal(PRIVATE)"
            journal.begin()
            journal.keep(run(tmp_path, candidates=CANDIDATES[: 1 + seed % 2], randomness=SeededRandomness(seed)))
        sizes.add(path.stat().st_size)
        journal.delete()
        assert not path.exists()
    assert (len(sizes), len(keys)) == (1, 5)


def test_the_key_survives(tmp_path):
    with Journal(tmp_path / "j", "plan", SeededRandomness(0)) as one:
        assert one.fresh
    with Journal(tmp_path / "j", "plan", SeededRandomness(99)) as two:
        assert two.key.key == one.key.key
        assert two.key.commitment == one.key.commitment
        assert two.key.bookable is two.fresh is two.begun is two.finished is False


def test_the_ledger_names_a_search_by_a_commitment_to_its_key(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(Journal, "delete", lambda self: kept.append(self.key.key))
    ledger = book(tmp_path)
    release = run(tmp_path, ledger)
    name = hashlib.sha256(b"discretion search key 1" + kept[0]).hexdigest()
    assert ledger.entries()[0].description["parameters"]["search"] == name
    assert ledger.verify(certificates=[release.certificate])


def test_key_and_payment_come_before_the_first_run_and_the_release_before_booking(tmp_path, monkeypatch):
    found = []

    def lines(*_):
        found.append(len((tmp_path / "j").read_bytes().splitlines()))

    class Looking(MeanMechanism):
        def run(self, records, randomness):
            lines()
            return super().run(records, randomness)

    for name in ("reserve", "book"):
        before = getattr(Ledger, name)
        monkeypatch.setattr(Ledger, name, lambda *a, before=before, **b: (lines(), before(*a, **b))[1])
    run(tmp_path, book(tmp_path), [Looking()])
    assert (found[0], set(found[1:-1]), found[-1]) == (1, {2}, 3)


def test_what_is_not_paid_leaves_no_journal(tmp_path):
    ledger = Ledger.create(tmp_path / "l", dataset="numbers", epsilon=0.1, delta=1e-6)
    with pytest.raises(LedgerError):
        run(tmp_path, ledger)
    assert not (tmp_path / "j").exists()


def test_two_processes_do_not_share_a_search(tmp_path):
    with (
        Journal(tmp_path / "j", "plan", SeededRandomness(0)),
        pytest.raises(JournalError, match="Another process"),
    ):
        Journal(tmp_path / "j", "plan", SeededRandomness(0))


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
    with Journal(path, "plan", SeededRandomness(0)) as journal:
        journal.begin()
    change(path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=message):
        Journal(path, "plan", SeededRandomness(0))
    assert path.read_bytes() == before


def test_a_torn_line_is_as_if_it_were_not_there(tmp_path):
    path, release = tmp_path / "j", run(tmp_path, randomness=SeededRandomness(0))
    with Journal(path, "plan", SeededRandomness(0)) as journal:
        journal.begin()
        journal.keep(release)
    head, begun, kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + begun + kept[:-20])
    with Journal(path, "plan", SeededRandomness(0)) as journal:
        assert (journal.begun, journal.finished) == (True, False)
        journal.keep(release)
    assert path.read_bytes() == head + begun + kept
    path.write_bytes(head + begun[:-1])
    with Journal(path, "plan", SeededRandomness(0)) as journal:
        assert not journal.begun
    assert path.read_bytes() == head
    path.write_bytes(head[:-1])
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path, "plan", SeededRandomness(0))


def test_another_plan_is_refused(tmp_path):
    with (
        Journal(tmp_path / "j", "plan", SeededRandomness(0)),
        pytest.raises(JournalError, match="Another process"),
    ):
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


def test_the_release_is_saved_before_the_journal_goes_and_is_always_the_same(tmp_path):
    ledger, saved = book(tmp_path), []

    def broken(release):
        saved.append(release)
        assert (tmp_path / "j").exists()
        raise OSError

    for _ in range(3):
        with pytest.raises(OSError):  # noqa: PT011
            run(tmp_path, ledger, save=broken)
    saved.append(run(tmp_path, ledger))
    assert len({pickle.dumps(release) for release in saved}) == 1
    assert len(ledger.entries()) == 1
    assert not (tmp_path / "j").exists()


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


@pytest.mark.parametrize("where", [(Journal, "delete"), (Ledger, "book")])
def test_killed_around_booking(tmp_path, monkeypatch, where):
    ledger, whole = book(tmp_path), run(tmp_path)
    monkeypatch.setattr(*where, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ledger)
    monkeypatch.undo()
    first = ledger.entries()
    # what is on the disk is handed over; nothing is run again
    monkeypatch.setattr(SelectionMechanism, "replay", lambda *_: 1 / 0)
    release = run(tmp_path, ledger)
    assert [entry.id for entry in ledger.entries()] == [entry.id for entry in first]
    assert ledger.entries()[0].state is State.BOOKED
    assert release.score == whole.score


def restore(tmp_path, head):
    (tmp_path / "j").write_bytes(head)
    (tmp_path / "j").chmod(0o600)


def test_an_early_copy_of_the_journal_of_a_booked_search_draws_nothing(tmp_path, monkeypatch):
    ledger, heads = book(tmp_path), []
    run(tmp_path, ledger, save=lambda _: heads.append((tmp_path / "j").read_bytes().splitlines(keepends=True)[0]))
    (head,) = heads
    monkeypatch.setattr(SelectionMechanism, "replay", lambda *_: pytest.fail("it was run again"))
    for _ in range(3):
        restore(tmp_path, head)
        with pytest.raises(LedgerError, match="not run again"):
            run(tmp_path, ledger, randomness=None)
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]


def test_no_other_search_rides_on_an_entry(tmp_path, monkeypatch):
    """A journal forged for a dearer plan, with the key of a search that is paid for and was interrupted."""
    ledger = book(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ledger, [MeanMechanism(fails="interrupt")])
    dearer, original = [MeanMechanism(mu=1.0)], Journal._read_head
    with pytest.raises(JournalError, match="another search"):
        run(tmp_path, ledger, dearer)

    def forged(self, entry, plan, begun_with):
        return original(self, entry | {"plan": plan}, plan, begun_with)

    monkeypatch.setattr(Journal, "_read_head", forged)
    with pytest.raises(LedgerError, match="another plan or another price"):
        run(tmp_path, ledger, dearer)
    assert [entry.state for entry in ledger.entries()] == [State.RESERVED]


def test_a_source_that_gives_a_key_twice_is_refused(tmp_path):
    ledger = book(tmp_path)
    run(tmp_path, ledger)
    with pytest.raises(LedgerError, match="this very key"):
        run(tmp_path, ledger)
    assert len(ledger.entries()) == 1
    assert not (tmp_path / "j").exists()


def test_of_two_copies_run_at_once_one_is_released(tmp_path, monkeypatch):
    ledger, other = book(tmp_path), tmp_path / "other"
    other.mkdir()
    original = Journal.keep

    def slower(self, release):
        original(self, release)
        if self.path.parent == tmp_path:  # meanwhile the copy ends
            head = (tmp_path / "j").read_bytes().splitlines(keepends=True)[0]
            restore(other, head)
            run(other, ledger)

    monkeypatch.setattr(Journal, "keep", slower)
    with pytest.raises(LedgerError, match="Another process has booked"):
        run(tmp_path, ledger)
    with pytest.raises(LedgerError, match="not run again"):
        run(tmp_path, ledger)
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]


class Elsewhere(RegressorMixin, BaseEstimator):
    """An estimator of another library: its noise is its own matter."""

    stops = 0

    def fit(self, X, y):
        self.mean_ = float(np.mean(y) + np.random.default_rng().normal())
        if Elsewhere.stops:
            Elsewhere.stops -= 1
            raise KeyboardInterrupt
        return self


def declared(tmp_path, ledger, **more):
    candidate = EstimatorMechanism(Declared(Elsewhere(), GaussianDP(0.5, neighbours="replace")), {}, Neighbours.REPLACE)
    records = LabelledRecords(np.zeros((50, 1)), np.zeros(50))
    score = PublicScore(float_of, "nothing")
    more = {"delta": 1e-6, "ledger": ledger, "journal": tmp_path / "j"} | more
    return select([candidate], score, Fixed(2), records, 50, **more)


def float_of(model):
    return 0.0


@pytest.mark.parametrize("paid", [True, False])
def test_noise_from_elsewhere_is_not_drawn_twice(tmp_path, monkeypatch, paid):
    ledger = book(tmp_path) if paid else None
    monkeypatch.setattr(Elsewhere, "stops", 1)
    with pytest.raises(KeyboardInterrupt):
        declared(tmp_path, ledger)
    with pytest.raises((LedgerError, JournalError)):
        declared(tmp_path, ledger)
    if ledger is not None:
        (entry,) = ledger.entries()
        assert entry.state is State.FAILED
        assert ledger.spent().epsilon > 0


def test_killed_noise_from_elsewhere_fails_when_it_is_taken_up(tmp_path, monkeypatch):
    """A kill leaves the entry reserved, even where only the first line of the journal is left."""
    ledger = book(tmp_path)
    monkeypatch.setattr(Elsewhere, "stops", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "fail", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            declared(tmp_path, ledger)
    assert ledger.entries()[0].state is State.RESERVED
    restore(tmp_path, (tmp_path / "j").read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(PublicError, match="a second search"):
        declared(tmp_path, ledger)
    assert [entry.state for entry in ledger.entries()] == [State.FAILED]


def test_noise_from_elsewhere_is_handed_over_once_it_is_kept(tmp_path):
    ledger, saved = book(tmp_path), []

    def stop(release):
        saved.append(release.winner.load().estimator_.mean_)
        raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            declared(tmp_path, ledger, save=stop)
    saved.append(declared(tmp_path, ledger).winner.load().estimator_.mean_)
    assert len(set(saved)) == 1
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]


@pytest.mark.parametrize("after", ["saving", "beginning"])
@pytest.mark.parametrize("what", ["records", "default", "score"])
def test_a_search_is_taken_up_with_what_it_was_begun_with(tmp_path, what, after):
    ledger, corrected = book(tmp_path), RECORDS.copy()
    corrected[7] += 0.25

    def stop(_):
        raise KeyboardInterrupt

    stopped = {"save": stop} if after == "saving" else {"candidates": [MeanMechanism(fails="interrupt")] * 2}
    plan = {"candidates": [MeanMechanism()] * 2, "law": Fixed(3), "records": RECORDS}
    plan |= {"score": PublicScore(lambda release: float(release.value), "it"), "default": 0.5}

    def go(candidates, score, law, records, **more):
        more = {"ledger": ledger, "journal": tmp_path / "j", "randomness": replayable()} | more
        return select(candidates, score, law, records, 50, **more)

    with pytest.raises(KeyboardInterrupt):
        go(**plan | stopped)
    other = {"records": corrected, "default": 0.25}
    other |= {"score": PublicScore(lambda release: -float(release.value), "it")}
    with pytest.raises(JournalError, match=f"not the same {what}"):
        go(**plan | {what: other[what]})
    same = PublicScore(lambda release: float(release.value), "it")
    assert go(**plan | {"records": RECORDS.copy(), "score": same}).score is not None
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]


def test_records_picked_by_lot_are_picked_again(tmp_path):
    picks = []

    def pick(records, randomness):
        picks.append(tuple(np.argsort(randomness.uniform(100))[:50]))
        return records[list(picks[-1])]

    def stop(_):
        raise KeyboardInterrupt

    mechanism = SelectionMechanism((MeanMechanism(),), VALUE, Fixed(1), 1e-6)
    plan = {"ledger": book(tmp_path), "journal": tmp_path / "j", "randomness": None, "pick": pick}
    with pytest.raises(KeyboardInterrupt):
        charged(mechanism, np.linspace(0, 1, 100), 50, save=stop, **plan)
    charged(mechanism, np.linspace(0, 1, 100), 50, **plan)
    assert len(picks) == 2
    assert len(set(picks)) == 1


def test_codes_tell_values_apart():
    key = bytes(32)

    def of(value, **more):
        return code_of(value, key, **more)

    shift = 1.0
    alike = [
        (np.arange(3.0), np.arange(3.0)),
        ({"a": [1, "x"]}, {"a": [1, "x"]}),
        (np.array(["x", 1, None], dtype=object), np.array(["x", 1, None], dtype=object)),
        (LabelledRecords(np.zeros((2, 1)), np.ones(2)), LabelledRecords(np.zeros((2, 1)), np.ones(2))),
    ]
    assert all(of(one, whole=True) == of(two, whole=True) for one, two in alike)
    assert len({of(one) for one, _ in alike}) == len(alike)
    assert of(lambda x: x + shift) == of(lambda x: x + shift)
    first = of(lambda x: x + shift)
    shift = 2.0
    assert len({first, of(lambda x: x + shift), of(lambda x: x - shift), of(lambda x: x + 2.5)}) == 4
    assert code_of(1.0, bytes(32)) != code_of(1.0, b"1" * 32)
    with pytest.raises(ValueError, match="arrays of numbers or text"):
        of([object()], whole=True)


def test_a_search_that_failed_can_be_taken_up(tmp_path, monkeypatch):
    ledger = book(tmp_path)
    monkeypatch.setattr(SelectionMechanism, "replay", lambda *_: 1 / 0)
    with pytest.raises(MechanismFailed):
        run(tmp_path, ledger)
    monkeypatch.undo()
    assert run(tmp_path, ledger).score == run(tmp_path).score
    assert len(ledger.entries()) == 1


def test_a_test_seed_stays_a_test_seed(tmp_path):
    with Journal(tmp_path / "j", "plan", SeededRandomness(0)) as journal:
        assert not journal.key.bookable
    (tmp_path / "j").unlink()
    assert not run(tmp_path, randomness=SeededRandomness(3)).certificate.bookable


def test_the_release_holds_no_key(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(Journal, "delete", lambda self: kept.append(self.path.read_text()))
    release = run(tmp_path, book(tmp_path))
    key = kept[0].splitlines()[0].split('"key": "')[1][:64]
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


def test_a_journalled_search_is_a_mechanism_by_its_class():
    # From Python 3.12 on isinstance(search, Mechanism) sees nothing that __getattr__ would find.
    for member in ("name", "neighbours", "privacy_loss", "parameters", "run", "check"):
        inspect.getattr_static(_Journalled, member)
