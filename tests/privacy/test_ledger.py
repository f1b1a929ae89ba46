"""The ledger: no budget is ever made, none is spent unseen, and nothing private reaches it or its errors."""

from __future__ import annotations

import gc
import math
import multiprocessing
import pickle
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.privacy import store
from discretion.privacy.chain import Event, Tampered, key, read_export
from discretion.privacy.ledger import BudgetExceeded, Ledger, LedgerError, MechanismFailed, State, UnitMismatch
from discretion.privacy.loss import (
    BoundedRange,
    GaussianDP,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PureDP,
    RenyiCurve,
)
from discretion.privacy.mechanism import Checked, Mechanism, PublicError
from discretion.privacy.noise import SeededRandomness
from discretion.privacy.release import Certificate, NotBookable, Release, canonical
from discretion.privacy.units import booked_unit, same_unit

REPLACE = Neighbours.REPLACE
PLANTED = 0.7312498650219173
RECORDS = np.array([0.25, PLANTED, -0.5])


@dataclass(frozen=True)
class SumRelease(Release):
    value: float


@dataclass(frozen=True)
class GaussianSum:
    """Sum of clipped numbers with Gaussian noise: 2 bound / scale Gaussian DP under replacement."""

    bound: float = 1.0
    scale: float = 4.0
    neighbours: Neighbours = REPLACE
    name: str = "Gaussian sum"

    def privacy_loss(self, n: int) -> PrivacyLoss:
        return GaussianDP(2 * self.bound / self.scale, neighbours=self.neighbours)

    def parameters(self) -> dict[str, Any]:
        return {"bound": self.bound, "scale": self.scale}

    def run(self, records, randomness) -> Release:
        value = np.clip(records, -self.bound, self.bound).sum() + self.scale * randomness.standard_normal(())
        unit = booked_unit(self) or "one record"
        certificate = Certificate.issue(self, n=len(records), delta=1e-5, unit=unit, randomness=randomness)
        return SumRelease(certificate, float(value))


@dataclass(frozen=True)
class Faulty(GaussianSum):
    """Does what `fault` does, to its records, in place of a release."""

    fault: Any = None

    def run(self, records, randomness) -> Release:
        return self.fault(super().run(records, randomness), records)


@dataclass(frozen=True)
class CheckedSum(GaussianSum):
    def check(self, records) -> int:
        if not np.isfinite(records).all():
            raise PublicError("A record is not a finite number.") from ValueError(repr(records))
        if records.ndim != 1:
            raise KeyError(repr(records.tolist()))
        return len(records)


def pure(epsilon: float) -> PureDP:
    return PureDP(epsilon, neighbours=REPLACE)


@pytest.fixture
def ledger(place) -> Ledger:
    return Ledger.create(place(), dataset="London sales 2018", epsilon=9.0, delta=1e-4)


def state(ledger: Ledger) -> list[str]:
    """All that the ledger holds."""
    return list(ledger.export())


def reopened(ledger: Ledger) -> Ledger:
    return pickle.loads(pickle.dumps(ledger))


def small(where: Path | str, epsilon: float = 1.0, delta: float = 0.0, **rules: Any) -> Ledger:
    return Ledger.create(where, dataset="numbers", epsilon=epsilon, delta=delta, **rules)


# --- Making and opening


def test_open_gives_back_what_was_created(place):
    where = place()
    ledger = Ledger.create(where, dataset="London sales 2018", epsilon=9.0, delta=1e-4)
    with Ledger.open(where) as again:
        assert again == ledger == reopened(ledger)
    assert (again.dataset, again.epsilon, again.delta, again.neighbours) == (
        "London sales 2018",
        9.0,
        1e-4,
        REPLACE,
    )
    assert (again.spent().epsilon, again.remaining(), again.entries()) == (0.0, 9.0, [])
    assert again.path == (None if "://" in where else Path(where))


def test_create_overwrites_nothing(place):
    where = place()
    ledger = small(where)
    ledger.reserve(pure(0.5), {})
    before = state(ledger)
    with pytest.raises(LedgerError, match="is left as it is"):
        small(where, epsilon=9.0)
    assert state(ledger) == before


@pytest.mark.parametrize(
    "budget",
    [
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"dataset": ""},
        {"order": 3.0},
        {"composition": "renyi-filter"},
        {"composition": "renyi-filter", "order": 3.0},
        {"composition": "renyi-filter", "order": 1.0, "delta": 1e-5},
        {"composition": "renyi-filter", "order": math.inf, "delta": 1e-5},
        {"composition": "sum"},
    ],
)
def test_a_budget_that_is_none_is_refused_and_leaves_no_file(tmp_path, budget):
    with pytest.raises(ValueError, match=r"budget|Composing"):
        Ledger.create(tmp_path / "x", **{"dataset": "x", "epsilon": 1.0, "delta": 0.0, **budget})
    assert list(tmp_path.iterdir()) == []


def test_creation_that_fails_halfway_leaves_nothing(cluster, tmp_path, monkeypatch):
    for where in (tmp_path / "x", cluster.database()):
        with monkeypatch.context() as patch:
            patch.setattr(store, "TABLES", (*store.TABLES, "CREATE NONSENSE"))
            with pytest.raises(LedgerError, match="database refused"):
                small(where)
            with pytest.raises(LedgerError, match=r"[Tt]here is no ledger"):
                Ledger.open(where)
        assert list(tmp_path.iterdir()) == []
        Ledger.open(small(where).path or where)
        (tmp_path / "x").unlink(missing_ok=True)


def test_a_file_that_is_no_ledger_says_what_is_wrong_and_what_to_do(tmp_path):
    ledger = small(tmp_path / "good")
    with pytest.raises(LedgerError, match=r"There is no ledger.*ledger init absent"):
        Ledger.open(tmp_path / "absent")
    with pytest.raises(LedgerError, match="No such file"):
        small(tmp_path / "nowhere" / "x")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("price,date\n" * 500)
    (tmp_path / "half").write_bytes(ledger.path.read_bytes()[:5000])
    (tmp_path / "folder").mkdir()
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE entry (id)")
    for name, words in [
        ("empty", "not a ledger but an empty file.*Delete it"),
        ("text", "not a ledger"),
        ("half", "damaged"),
        ("folder", "cannot be opened"),
        ("other", "not a ledger"),
    ]:
        with pytest.raises(LedgerError, match=words):
            Ledger.open(tmp_path / name)
    for layout, words in [(3, "newer version"), (1, "Ledgers of layout 1")]:
        with sqlite3.connect(ledger.path) as connection:
            connection.execute(f"PRAGMA user_version = {layout}")
        with pytest.raises(LedgerError, match=words):
            Ledger.open(ledger.path)


def test_another_ledger_in_the_same_place_is_noticed(tmp_path):
    ledger = small(tmp_path / "x")
    ledger.path.rename(tmp_path / "old")
    with pytest.raises(LedgerError, match="cannot be opened"):
        ledger.reserve(pure(0.1), {})
    small(ledger.path)
    with pytest.raises(LedgerError, match="no longer the ledger"):
        ledger.reserve(pure(0.1), {})
    assert Ledger.open(ledger.path).entries() == []


# --- The arithmetic of the budget


def test_exactly_ten_tenths_fit_into_one(place):
    ledger = small(place(), epsilon=1.0, delta=0.0)
    for _ in range(10):
        ledger.reserve(pure(0.1), {})
    assert ledger.spent().epsilon == 1.0
    assert ledger.remaining() == 0.0
    for tiny in (5e-324, 1e-17, 0.1):
        with pytest.raises(BudgetExceeded):
            ledger.reserve(pure(tiny), {})
        with pytest.raises(BudgetExceeded):
            ledger.reserve(BoundedRange(tiny, neighbours=REPLACE), {})
    ledger.reserve(pure(0.0), {})
    assert len(ledger.entries()) == 11


def test_a_tiny_delta_does_not_open_the_door_to_a_tiny_loss(tmp_path):
    ledger = small(tmp_path / "x", epsilon=1.0, delta=1e-300)
    for _ in range(5):
        ledger.reserve(2 * pure(0.1), {})
    with pytest.raises(BudgetExceeded):
        ledger.reserve(pure(5e-324), {})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=8), st.integers(1, 1000))
def test_pure_losses_fit_just_when_their_decimals_do(tmp_path_factory, thousandths, budget):
    ledger = small(tmp_path_factory.mktemp("l") / "x", epsilon=budget / 1000)
    spent = 0
    for value in thousandths:
        fits = spent + value <= budget
        if fits:
            ledger.reserve(pure(value / 1000), {})
            spent += value
        else:
            with pytest.raises(BudgetExceeded):
                ledger.reserve(pure(value / 1000), {})
    assert Decimal(repr(ledger.spent().epsilon)) >= Decimal(spent) / 1000
    assert ledger.spent().epsilon == pytest.approx(spent / 1000, abs=1e-15)
    assert Decimal(repr(ledger.remaining())) <= Decimal(budget - spent) / 1000
    assert ledger.remaining() == pytest.approx((budget - spent) / 1000, abs=1e-15)


def test_gaussian_losses_compose_exactly_and_the_next_is_refused(place):
    # 50 steps of mu = 1/10: mu = sqrt(50)/10 and epsilon(1e-5) = 2.94323.
    ledger = small(place(), epsilon=2.9433, delta=1e-5)
    for step in range(50):
        ledger.reserve(GaussianDP(0.1, neighbours=REPLACE), {"step": step})
    whole = GaussianDP(math.sqrt(50) / 10, neighbours=REPLACE).guarantee(1e-5)
    assert ledger.spent().epsilon == pytest.approx(whole.epsilon, rel=1e-12)
    assert ledger.spent().epsilon == pytest.approx(2.94323, abs=1e-5)
    assert ledger.spent().delta == 1e-5
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve(GaussianDP(0.1, neighbours=REPLACE), {"step": 50})
    assert caught.value.asked == GaussianDP(0.1, neighbours=REPLACE).epsilon(1e-5)
    # 50 and 1 compose to far less than their sum.
    assert 2.9433 < caught.value.together < 2.98 < caught.value.spent + caught.value.asked


def test_composition_is_that_of_the_losses_whatever_their_kind_and_order(place):
    curve = RenyiCurve(lambda x: (1 + x) / (1 - x / 5) / 50, 5.0, neighbours=REPLACE, rule="toy")
    losses = [
        curve,
        pure(0.2),
        GaussianDP(0.3, neighbours=REPLACE),
        BoundedRange(0.1, neighbours=REPLACE),
        curve,
    ]
    spent = []
    for order in (losses, losses[::-1]):
        ledger = small(place(), epsilon=50.0, delta=1e-6)
        for loss in order:
            ledger.reserve(loss, {})
        spent.append(ledger.spent())
    live = sum(losses[1:], losses[0]).epsilon(1e-6)
    assert spent[0] == spent[1]
    assert live <= spent[0].epsilon <= live * (1 + 1e-3)  # the stored table is an upper bound of the curve
    assert spent[0].rule.startswith("privacy-loss distributions composed numerically")


def test_refusal_names_four_public_numbers_and_writes_nothing(ledger):
    ledger.reserve(GaussianDP(1.0, neighbours=REPLACE), {"why": "first map"})
    before = state(ledger)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve(pure(8.0), {"why": "secret reason"})
    assert state(ledger) == before
    error = caught.value
    assert (error.budget, error.delta) == (9.0, 1e-4)
    assert error.spent == GaussianDP(1.0, neighbours=REPLACE).epsilon(1e-4)
    assert error.asked == pytest.approx(8.0, rel=1e-4)
    assert error.remaining == pytest.approx(9.0 - error.spent, rel=1e-12)
    assert error.together > 9.0
    # epsilon(mu = 1, delta = 1e-4) = 3.8117...: what is spent is rounded up, what remains down.
    spent = f"{math.ceil(error.spent * 1e4) / 1e4:.4f}"
    remaining = f"{math.floor(error.remaining * 1e4) / 1e4:.4f}"
    assert f"budget epsilon 9.0, spent {spent}, remaining {remaining}, asked " in str(error)
    assert "secret" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("loss", [pure(math.inf), GaussianDP(math.inf, neighbours=REPLACE)])
def test_an_infinite_loss_never_fits(ledger, loss):
    with pytest.raises(BudgetExceeded, match="asked inf, together inf"):
        ledger.reserve(loss, {})
    assert ledger.entries() == []


def test_a_loss_for_other_neighbours_is_refused(ledger):
    with pytest.raises(NeighbourMismatch, match="add-remove"):
        ledger.reserve(PureDP(0.1, neighbours=Neighbours.ADD_REMOVE), {})
    with pytest.raises(NeighbourMismatch):
        ledger.run(GaussianSum(neighbours=Neighbours.ADD_REMOVE), RECORDS, n=3)
    assert ledger.entries() == []


def test_a_description_that_is_not_json_is_refused_before_anything_is_spent(ledger):
    for description in ({"x": math.nan}, {"x": np.zeros(2)}, {1: 2}):
        with pytest.raises(ValueError, match="description"):
            ledger.reserve(pure(0.1), description)
    assert ledger.entries() == []


# --- The journal


def test_asking_changes_no_byte(tmp_path):
    ledger = small(tmp_path / "x", epsilon=9.0, delta=1e-4)
    entry = ledger.reserve(GaussianDP(0.5, neighbours=REPLACE), {"n": 3})
    ledger.book(entry)
    before, stamp = ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns

    def asked(ledger):
        return ledger.spent(), ledger.remaining(), ledger.entries(), ledger.odometer(), ledger.head(), ledger.verify()

    assert asked(ledger) == asked(ledger) == asked(Ledger.open(ledger.path))
    assert (ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns) == (before, stamp)
    assert [path.name for path in tmp_path.iterdir()] == [ledger.path.name]


def test_an_entry_ends_once_and_stays_spent(ledger):
    one = ledger.reserve(pure(1.0), {"what": "one"})
    two = ledger.reserve(pure(2.0), {"what": "two"})
    three = ledger.reserve(pure(0.5), {"what": "three"})
    ledger.book(one)
    ledger.fail(two, "the power went")
    states = [(entry.id, entry.state, entry.description["what"], entry.reason) for entry in ledger.entries()]
    assert states == [
        (one, State.BOOKED, "one", None),
        (two, State.FAILED, "two", "the power went"),
        (three, State.RESERVED, "three", None),
    ]
    assert [entry.loss for entry in ledger.entries()] == [pure(1.0), pure(2.0), pure(0.5)]
    for entry in (one, two):
        with pytest.raises(LedgerError, match="already"):
            ledger.book(entry)
        with pytest.raises(LedgerError, match="already"):
            ledger.fail(entry, "again")
    assert (one, two, three) == (1, 2, 3)
    for entry in (0, 4, 5, 99):  # the events go to 5
        with pytest.raises(LedgerError, match="no entry"):
            ledger.book(entry)
    assert ledger.spent().epsilon == pytest.approx(3.5, rel=1e-4)


EVENT = "(ledger, number, entry, state, who, created, description, loss, reason, digest)"


def statements(ledger: Ledger, who: str) -> list[str]:
    """Ways to get at what was written; `who` is whom the database takes us for."""
    row = f"INSERT INTO event {EVENT} VALUES ('{ledger.id}', %s, '{who}', '', '{{}}', '{key('{}')}', NULL, '')"
    end = f"INSERT INTO event {EVENT} VALUES ('{ledger.id}', %s, '{who}', '', NULL, NULL, '', '')"
    return [
        "DELETE FROM event",
        "UPDATE event SET loss = NULL",
        "UPDATE event SET state = 'failed', reason = '' WHERE state = 'booked'",
        "DELETE FROM loss",
        "UPDATE loss SET text = '{}'",
        "DELETE FROM ledger",
        "UPDATE ledger SET epsilon = '90.0'",
        row % "17, 17, 'reserved'",
        row % "3, 1, 'reserved'",
        row % "3, 2, 'returned'",
        row % "2, 2, 'reserved'",
        end % "3, 1, 'failed'",
    ]


def test_nothing_in_the_file_can_be_changed_or_deleted(tmp_path):
    ledger = small(tmp_path / "x")
    ledger.book(ledger.reserve(pure(1.0), {}))
    before = ledger.path.read_bytes()
    replaced = ["INSERT OR REPLACE INTO ledger SELECT * FROM ledger", "INSERT OR REPLACE INTO loss SELECT * FROM loss"]
    replaced += ["INSERT OR REPLACE INTO event SELECT * FROM event"]
    with sqlite3.connect(ledger.path) as connection:
        for statement in statements(ledger, "x") + replaced:
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(statement)
    assert ledger.path.read_bytes() == before


def test_nothing_in_the_database_can_be_changed_or_deleted(cluster):
    url = cluster.database()
    ledger = small(url)
    ledger.book(ledger.reserve(pure(1.0), {}))
    before = state(ledger)
    database = url.partition("@/")[2].partition("?")[0]
    further = [f"TRUNCATE {table} CASCADE" for table in ("ledger", "loss", "event")]
    further += [
        "INSERT INTO event SELECT * FROM event ON CONFLICT (ledger, number) DO UPDATE SET loss = NULL",
        "SET session_replication_role = replica; DELETE FROM event",
        statements(ledger, "somebody else")[7].replace("17, 17", "3, 2"),
    ]
    for statement in statements(ledger, "postgres") + further:
        with pytest.raises(RuntimeError, match=r"append-only|constraint"):
            cluster.sql(f"SET search_path = discretion; {statement}", database)
    assert state(ledger) == before


def test_every_write_is_synchronised_to_the_disk(tmp_path, cluster):
    ledger = small(tmp_path / "x")
    with ledger.journal.store.transaction(write=ledger.id) as session:
        assert session("PRAGMA synchronous") == [(3,)]  # EXTRA
        assert session("PRAGMA journal_mode") == [("delete",)]
    url = cluster.database()
    ledger = small(url)
    cluster.sql(f"ALTER DATABASE {url.partition('@/')[2].partition('?')[0]} SET synchronous_commit = off")
    with ledger.journal.store.transaction(write=ledger.id) as session:
        assert session("SELECT current_setting('synchronous_commit')") == [("on",)]


@pytest.mark.slow
def test_ten_thousand_entries_open_and_compose_in_a_second(place):
    where = place()
    ledger = small(where, epsilon=1000.0, delta=1e-6)
    curve = RenyiCurve(lambda x: (1 + x) / (1 - x / 5) / 1e4, 5.0, neighbours=REPLACE, rule="toy")
    kinds = [
        curve,
        pure(0.001),
        GaussianDP(0.01, neighbours=REPLACE),
        BoundedRange(0.001, neighbours=REPLACE),
    ]
    texts = [canonical(loss.to_dict()) for loss in kinds]
    texts += [canonical(GaussianDP(1e-3 + k * 1e-6, neighbours=REPLACE).to_dict()) for k in range(96)]
    with ledger.journal.transaction(write=True) as (session, known):
        digest, rows = known.digest, []
        for k in range(10_000):
            event = Event(k + 1, k + 1, "reserved", session.who, "", "{}", key(texts[k % 100]), None, None)
            digest = event.digest(digest)
            rows.append({"ledger": ledger.id, **asdict(event), "digest": digest})
        for text in texts:
            ledger.journal.keep_loss(session, known, key(text), text)
        insert = f"INSERT INTO event ({', '.join(rows[0])}) VALUES ({', '.join(f':{name}' for name in rows[0])})"
        if ledger.path is not None:
            session.connection.executemany(insert, rows)
        else:
            session.connection.execute(sqlalchemy.text(insert), rows)
    took = []
    for _ in range(3):
        start = time.process_time()
        spent = Ledger.open(where).spent()
        took.append(time.process_time() - start)
    assert min(took) < 1.0
    assert spent.epsilon > 0
    assert ledger.verify().entries == 10_000


# --- Running a mechanism


def test_run_reserves_runs_books_and_signs(ledger):
    assert isinstance(GaussianSum(), Mechanism)
    assert not isinstance(GaussianSum(), Checked)
    assert isinstance(CheckedSum(), Checked)
    release = ledger.run(GaussianSum(), RECORDS, n=3)
    assert isinstance(release, SumRelease)
    assert abs(release.value) < 50
    (entry,) = ledger.entries()
    assert entry.state is State.BOOKED
    assert entry.description == {
        "mechanism": "Gaussian sum",
        "parameters": {"bound": 1.0, "scale": 4.0},
        "n": 3,
    }
    assert release.certificate.ledger_entry == f"{ledger.id}#{entry.id}"
    assert release.certificate.bookable
    assert f"booked as {ledger.id}#{entry.id}" in release.text()
    assert np.float64(PLANTED).tobytes() not in pickle.dumps(release)
    other = ledger.run(GaussianSum(), RECORDS, n=3)
    assert other.value != release.value
    whole = GaussianDP(math.sqrt(0.5), neighbours=REPLACE).epsilon(1e-4)
    assert ledger.spent().epsilon == pytest.approx(whole, rel=1e-12)


def test_the_loss_is_on_disk_when_the_mechanism_sees_the_records(ledger):
    seen = []

    def look(release, records):
        seen.extend(reopened(ledger).entries())
        return release

    ledger.run(Faulty(fault=look), RECORDS, n=3)
    assert [entry.state for entry in seen] == [State.RESERVED]


def test_what_can_be_refused_in_advance_costs_nothing(ledger):
    before = state(ledger)

    def never(release, records):
        raise AssertionError("the mechanism ran")

    with pytest.raises(NotBookable, match="SeededRandomness"):
        ledger.run(Faulty(fault=never), RECORDS, n=3, randomness=SeededRandomness(1))
    with pytest.raises(BudgetExceeded):
        ledger.run(Faulty(scale=0.1, fault=never), RECORDS, n=3)
    with pytest.raises(PublicError, match="not n in number"):
        ledger.run(CheckedSum(), RECORDS, n=4)
    with pytest.raises(PublicError, match=r"^A record is not a finite number\.$") as caught:
        ledger.run(CheckedSum(), np.array([PLANTED, math.nan]), n=2)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(MechanismFailed, match="KeyError before anything was spent") as failed:
        ledger.run(CheckedSum(), RECORDS[:, None], n=3)
    assert str(PLANTED) not in str(failed.value)
    for n in (-1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="n, the number of records"):
            ledger.run(GaussianSum(), RECORDS, n=n)
    with pytest.raises(ValueError, match="not a mechanism"):
        ledger.run(lambda records: 0, RECORDS, n=3)
    assert state(ledger) == before


def test_a_number_that_is_private_is_not_compared(tmp_path):
    ledger = Ledger.create(tmp_path / "x", dataset="x", epsilon=9.0, delta=1e-4, neighbours=Neighbours.ADD_REMOVE)

    @dataclass(frozen=True)
    class Private(CheckedSum):
        def run(self, records, randomness):
            release = super().run(records, randomness)
            return SumRelease(replace(release.certificate, n=None), release.value)

    ledger.run(Private(neighbours=Neighbours.ADD_REMOVE), RECORDS, n=5)
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED]


def quotes(release, records):
    try:
        raise ValueError(f"cannot use {records.max()!r}")
    except ValueError as error:
        error.add_note(repr(records.max()))
        raise RuntimeError(f"record {records.max()!r} is singular", records) from error


def quotes_in_the_context(release, records):
    return {}[float(records.max())]


def exits(release, records):
    sys.exit(f"{records.max()!r}")


@pytest.mark.parametrize(
    ("fault", "kind"), [(quotes, "RuntimeError"), (quotes_in_the_context, "KeyError"), (exits, "SystemExit")]
)
def test_an_error_that_quotes_a_record_reaches_neither_the_ledger_nor_the_caller(ledger, fault, kind):
    with pytest.raises(MechanismFailed, match=kind) as caught:
        ledger.run(Faulty(fault=fault), RECORDS, n=3)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not hasattr(error, "__notes__")
    assert str(PLANTED) not in repr(error) + str(error.args)
    (entry,) = ledger.entries()
    assert entry.state is State.FAILED
    assert kind in entry.reason
    assert ledger.spent().epsilon == GaussianDP(0.5, neighbours=REPLACE).epsilon(1e-4)
    written = "".join(state(ledger)).encode()
    if ledger.path is not None:
        written += b"".join(path.read_bytes() for path in ledger.path.parent.iterdir())
    for planted in (repr(PLANTED).encode(), np.float64(PLANTED).tobytes(), np.float64(PLANTED).tobytes()[::-1]):
        assert planted not in written
    del caught, error
    gc.collect()
    errors = [item for item in gc.get_objects() if isinstance(item, RuntimeError | LookupError | SystemExit)]
    kept = [item for item in errors if repr(PLANTED) in repr(item.args)]
    assert not kept


def test_an_error_declared_public_keeps_its_words_only(ledger):
    class TooFew(PublicError):
        pass

    def refuse(release, records):
        raise TooFew("Too few records for this grid.") from ValueError(repr(records))

    with pytest.raises(PublicError, match=r"^Too few records for this grid\.") as caught:
        ledger.run(Faulty(fault=refuse), RECORDS, n=3)
    assert str(caught.value) == "Too few records for this grid."
    assert caught.value.__notes__ == ["The loss was reserved as entry 1 of the ledger, which stays spent."]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    (entry,) = ledger.entries()
    assert (entry.state, entry.reason) == (State.FAILED, "PublicError: Too few records for this grid.")


def test_an_interrupt_is_passed_on_and_costs(ledger):
    def interrupt(release, records):
        raise KeyboardInterrupt(repr(records))

    with pytest.raises(KeyboardInterrupt) as caught:
        ledger.run(Faulty(fault=interrupt), RECORDS, n=3)
    assert caught.value.args == ()
    assert [entry.state for entry in ledger.entries()] == [State.FAILED]


def changed(**changes):
    return lambda release, _: SumRelease(replace(release.certificate, **changes), release.value)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (lambda release, _: release.value, MechanismFailed, "not a Release"),
        (lambda release, _: None, MechanismFailed, "not a Release"),
        (changed(epsilon=0.1), MechanismFailed, "certificate"),
        (changed(n=4), MechanismFailed, "certificate"),
        (changed(mechanism="another"), MechanismFailed, "certificate"),
        (changed(neighbours=Neighbours.ADD_REMOVE), MechanismFailed, "certificate"),
        (changed(loss=GaussianDP(0.4, neighbours=REPLACE).to_dict()), MechanismFailed, "certificate"),
        (changed(loss={"type": "nonsense", "value": PLANTED}), MechanismFailed, "UnknownLoss"),
        (changed(unit="one patient"), MechanismFailed, "a unit that the mechanism does not name"),
        (changed(bookable=False), NotBookable, "TEST ONLY"),
        (
            lambda release, records: GaussianSum().run(records, SeededRandomness(1)),
            NotBookable,
            "TEST ONLY",
        ),
    ],
)
def test_a_release_that_promises_more_than_was_reserved_is_withheld(ledger, fault, error, words):
    with pytest.raises(error, match=words) as caught:
        ledger.run(Faulty(fault=fault), RECORDS, n=3)
    assert str(PLANTED) not in str(caught.value)
    assert caught.value.__context__ is None
    assert [entry.state for entry in ledger.entries()] == [State.FAILED]
    assert ledger.spent().epsilon > 0


def test_a_release_that_promises_less_is_handed_over(ledger):
    release = ledger.run(Faulty(fault=changed(epsilon=math.inf, n=None)), RECORDS, n=3)
    assert release.certificate.epsilon == math.inf


# --- Crashes, races, disks


CRASH = """
import os, sys
import numpy as np
from discretion.privacy.ledger import Ledger
from discretion.privacy.loss import GaussianDP, Neighbours

class Crashing:
    name, neighbours = "crashing", Neighbours.REPLACE
    def privacy_loss(self, n): return GaussianDP(0.5, neighbours=self.neighbours)
    def parameters(self): return {}
    def run(self, records, randomness): os._exit(9)

Ledger.open(sys.argv[1]).run(Crashing(), np.zeros(3), n=3)
"""


def test_a_crash_after_the_reservation_is_money_spent(place):
    where = place()
    ledger = small(where, epsilon=9.0, delta=1e-4)
    done = subprocess.run([sys.executable, "-c", CRASH, where], check=False)
    assert done.returncode == 9
    (entry,) = ledger.entries()
    assert entry.state is State.RESERVED
    assert ledger.spent().epsilon == GaussianDP(0.5, neighbours=REPLACE).epsilon(1e-4)


def test_eight_processes_race_for_the_last_unit(place):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(8), context.Queue()

    def spend(where):
        barrier.wait(120)
        try:
            Ledger.open(where).reserve(pure(0.1), {})
            answers.put("got")
        except BudgetExceeded:
            answers.put("refused")

    for _ in range(4):
        where = place()
        ledger = small(where, epsilon=0.3)
        ledger.reserve(pure(0.2), {})
        racers = [context.Process(target=spend, args=(where,)) for _ in range(8)]
        for racer in racers:
            racer.start()
        found = sorted(answers.get(timeout=300) for _ in racers)
        for racer in racers:
            racer.join(120)
        assert found == ["got", *["refused"] * 7]
        assert ledger.spent().epsilon == 0.3
        assert len(ledger.entries()) == 2


def test_threads_share_a_ledger(place):
    ledger = small(place(), epsilon=1.0)

    def spend(_):
        try:
            return ledger.book(ledger.reserve(pure(0.1), {})) is None
        except BudgetExceeded:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(24))) == 10
    assert [entry.state for entry in ledger.entries()] == [State.BOOKED] * 10


# --- Units


@dataclass(frozen=True)
class Owned(GaussianSum):
    unit: str | None = None


@dataclass(frozen=True)
class Named(Owned):
    @property
    def unit_in_words(self) -> str:
        return self.unit or "one record (its covariates and its response)"


def booked(ledger: Ledger) -> list[str | None]:
    return [entry.description.get("unit") for entry in ledger.entries()]


def test_an_entry_has_the_unit_in_the_words_of_the_certificate(ledger):
    records = np.zeros(3)
    for mechanism in (GaussianSum(), Owned(), Owned(unit="one row"), Named()):
        ledger.run(mechanism, records, n=3)
    assert booked(ledger) == [None, None, "one row", "one record (its covariates and its response)"]


def test_a_ledger_is_for_one_unit_unless_another_is_stated(place):
    where = place()
    ledger = Ledger.create(where, dataset="d", epsilon=90.0, delta=1e-4)
    records = np.zeros(3)
    for unit in (None, "One patient", "one patient."):
        ledger.run(Named(unit=unit) if unit else GaussianSum(), records, n=3)
    before = state(ledger)
    other = Named(unit="one visit")
    for refuse in (lambda: ledger.run(other, records, n=3), lambda: ledger.check_unit("one visit")):
        with pytest.raises(UnitMismatch, match=r"Entry 2 of the ledger protects another unit \(One patient\)"):
            refuse()
    with pytest.raises(UnitMismatch):
        reopened(ledger).run(Named(), records, n=3)  # "one record" is no patient
    with pytest.raises(UnitMismatch):
        Ledger.open(where).reserve(pure(0.1), {"unit": "one visit"})
    assert state(ledger) == before
    stated = Ledger.open(where, other_unit=True)
    stated.check_unit("one visit")
    stated.run(other, records, n=3)
    # from now on each unit has to be stated
    for unit in ("one patient", "one visit"):
        with pytest.raises(UnitMismatch):
            ledger.reserve(pure(0.1), {"unit": unit})
    ledger.reserve(pure(0.1), {"what": "of nobody in particular"})
    assert booked(ledger) == [None, "One patient", "one patient.", "one visit", None]
    ledger.verify()


def test_a_release_for_another_unit_than_was_booked_is_withheld(place):
    where = place()
    ledger = Ledger.create(where, dataset="d", epsilon=90.0, delta=1e-4)

    @dataclass(frozen=True)
    class Turncoat(Owned):
        def run(self, records, randomness):
            release = super().run(records, randomness)
            return replace(release, certificate=replace(release.certificate, unit="one hospital"))

    # a ledger that was told of no unit can't tell hospitals from rows afterwards
    for unit in (None, "one patient", "one record"):
        with pytest.raises(MechanismFailed, match="a unit that the mechanism does not name"):
            ledger.run(Turncoat(unit=unit), np.zeros(3), n=3)
        ledger = Ledger.open(where, other_unit=True)
    ledger.run(Turncoat(unit="one hospital"), np.zeros(3), n=3)
    assert [entry.state for entry in ledger.entries()] == [State.FAILED] * 3 + [State.BOOKED]


def test_another_process_books_another_unit_in_between(place):
    """What was read of units before is added to, not relied on."""
    where = place()
    Ledger.create(where, dataset="d", epsilon=9.0, delta=1e-4)
    one, other = Ledger.open(where), Ledger.open(where)
    one.check_unit("one patient")
    other.reserve(pure(0.1), {"unit": "one visit", "parameters": {"unit": "one patient"}})
    with pytest.raises(UnitMismatch, match="Entry 1"):
        one.reserve(pure(0.1), {"unit": "one patient"})
    assert len(one.entries()) == 1


@pytest.mark.parametrize("unit", [5, ["one person"]])
def test_a_unit_is_a_text(ledger, unit):
    with pytest.raises(ValueError, match="unit must be a text"):
        ledger.reserve(pure(0.1), {"unit": unit})
    assert booked(ledger) == []


def test_ledgers_whose_entries_name_no_unit_take_any(ledger):
    """Such as those of earlier versions."""
    ledger.reserve(pure(0.1), {"mechanism": "old", "parameters": {"unit": "data"}, "n": 3})
    ledger.reserve(pure(0.1), {"mechanism": "old", "unit": None})
    ledger.reserve(pure(0.1), {"unit": "one patient"})
    assert booked(ledger) == [None, None, "one patient"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("one record (its covariates and its response)", "one record (its covariates and its responses)", True),
        ("one row of the table; a person with several rows is not covered as a whole", "one record", True),
        ("one record of those on which losses are evaluated", "one row", True),
        ("One hexagon's record: the centre", "one record", False),
        ("any 10 records", "one record", False),
        ("one patient", "one record", False),
        ("one record (one visit)", "one record (one patient, all visits)", False),
        ("one row: one hospital", "one row of the table", False),
        ("one patient: one of its records takes part, picked at random", "one patient", False),
        ("one patient: one of its records takes part, x", "One patient: at most 9 of its records take part, x", True),
    ],
)
def test_which_units_are_one(one, other, same):
    assert same_unit(one, other) is same_unit(other, one) is same


# --- What happened without the ledger


def test_what_has_happened_is_recorded_though_it_exceeds_the_budget(place):
    where = place()
    book = small(where)
    book.book(book.reserve(pure(0.75), {"mechanism": "first"}))
    before = state(book)
    with pytest.raises(BudgetExceeded, match="overdraw=True"):
        book.record_past(pure(0.5), {"what": "a run on a laptop"})
    assert state(book) == before
    assert not book.overdrawn()

    assert book.record_past(pure(0.5), {"what": "a run on a laptop"}, overdraw=True) == 2
    last = Ledger.open(where).entries()[-1]
    assert (last.state, last.past, last.description["what"]) == (State.BOOKED, True, "a run on a laptop")
    assert not book.entries()[0].past
    assert book.overdrawn()
    assert (book.spent().epsilon, book.remaining(), book.next_epsilon()) == (1.25, 0.0, 0.0)
    assert [each.epsilon for each in book.odometer()] == [0.75, 1.25]
    with pytest.raises(BudgetExceeded, match="overdrawn"):
        Ledger.open(where).reserve(pure(0.0), {})
    with pytest.raises(BudgetExceeded, match="overdrawn"):
        book.run(GaussianSum(), RECORDS, n=3)
    # More of the past goes in all the same, such as a table that was published as it is.
    assert book.record_past(pure(math.inf), {"what": "the table itself"}, overdraw=True) == 3
    assert book.spent().epsilon == math.inf
    assert book.verify().entries == 3
    assert read_export(state(book)).entries == 3
    assert "overdrawn" in book._repr_html_()


def test_what_has_happened_and_fits_leaves_the_budget_in_order(place):
    book = small(place())
    assert book.record_past(pure(0.25), {"what": "a run on a laptop"}) == 1
    assert book.reserve(pure(0.75), {}) == 2
    assert not book.overdrawn()
    book.verify()
    with pytest.raises(BudgetExceeded, match="fewer releases"):
        book.reserve(pure(0.25), {})


def test_what_has_happened_must_add_up(place):
    book = small(place())
    book.reserve(pure(0.25), {"unit": "one sale"})
    with pytest.raises(NeighbourMismatch, match='neighbours="add-remove"'):
        book.record_past(PureDP(0.1, neighbours=Neighbours.ADD_REMOVE), {}, overdraw=True)
    with pytest.raises(UnitMismatch):
        book.record_past(pure(0.1), {"unit": "one person"}, overdraw=True)
    with pytest.raises(ValueError, match="record_past"):
        book.reserve(pure(0.1), {"past": True})
    assert len(book.entries()) == 1


def test_an_entry_written_past_the_library_is_found_in_an_overdrawn_ledger(place):
    """Only what was recorded afterwards may exceed a budget: an entry after it, that says it fitted in, did not."""
    book = small(place())
    book.record_past(pure(2.0), {"what": "a run on a laptop"}, overdraw=True)
    book.verify()
    with book.journal.transaction(write=True) as (session, known):
        book.journal.append(session, known, 2, State.RESERVED, description="{}", loss=next(iter(known.counts)))
    with pytest.raises(Tampered, match="more is reserved than the budget allows"):
        book.verify()
