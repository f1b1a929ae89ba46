"""Disks and servers that fail: nothing is spent unseen, the ledger opens again, and the error says what to do."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy

import pytest
import sqlalchemy
from sklearn.base import clone

from discretion.posterior import PosteriorSampler
from discretion.privacy import certificate, journal, store
from discretion.privacy.ledger import Ledger, LedgerError, ledgers
from discretion.privacy.loss import Neighbours, PureDP
from discretion.privacy.store import store_at

LOSS = PureDP(0.125, neighbours=Neighbours.REPLACE)


def opened(where) -> Ledger:
    ledger = Ledger.create(where, dataset="numbers", epsilon=9.0, delta=0.0)
    ledger.book(ledger.reserve(LOSS, {}))
    return ledger


@pytest.fixture
def ledger(place) -> Ledger:
    return opened(place())


@pytest.fixture
def file(tmp_path) -> Ledger:
    (tmp_path / "file").mkdir()
    return opened(tmp_path / "file" / "ledger")


@contextmanager
def another_writer(ledger: Ledger):
    """Somebody who has begun to write and does not finish."""
    begun, over = threading.Event(), threading.Event()

    def write():
        with ledger.journal.store.transaction(write=ledger.id):
            begun.set()
            over.wait(600)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(120)
        yield
    finally:
        over.set()
        thread.join(120)


def test_a_locked_ledger_says_so_and_can_still_be_read(ledger, monkeypatch):
    with another_writer(ledger):
        monkeypatch.setattr(store, "PATIENCE", 0.05)
        with pytest.raises(LedgerError, match=r"keeps the ledger locked\. Nothing was spent\. Try again"):
            ledger.reserve(LOSS, {})
        with pytest.raises(LedgerError, match=r"locked\. The entry stays as it was, and its loss stays spent\."):
            ledger.book(1)
        assert ledger.spent().epsilon == 0.125
    ledger.reserve(LOSS, {})
    assert ledger.verify().entries == 2


def test_a_clock_that_goes_backwards_changes_nothing_but_what_people_read(ledger, monkeypatch):
    for time_ in ("2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00Z"):
        monkeypatch.setattr(journal, "utc_now", lambda time_=time_: time_)
        ledger.book(ledger.reserve(LOSS, {}))
    assert [entry.id for entry in ledger.entries()] == [1, 2, 3, 4, 5]
    assert [entry.created[:4] for entry in ledger.entries()][1:] == ["2026", "1970", "9999", "2026"]
    assert ledger.spent().epsilon == 5 * 0.125
    assert ledger.verify().events == 10
    assert certificate.utc_now() > "2026"


def test_text_that_a_database_cannot_hold_is_kept_as_near_as_can_be(ledger):
    entry = ledger.reserve(LOSS, {"why": "zero \0 and quote ' and \U0001f5fa"})
    ledger.fail(entry, "zero \0, half \ud800")
    found = ledger.entries()[-1]
    assert found.description == {"why": "zero \0 and quote ' and \U0001f5fa"}
    assert found.reason == "zero \ufffd, half ?"
    with pytest.raises(ValueError, match="surrogate"):
        ledger.reserve(LOSS, {"why": "\ud800"})
    assert ledger.verify().entries == 2


# --- Files


def test_a_ledger_that_cannot_be_written_can_be_read(file, monkeypatch):
    connect = sqlite3.connect
    read_only = lambda path, **options: connect(path.replace("=rw", "=ro"), **options)  # noqa: E731
    monkeypatch.setattr(store.sqlite3, "connect", read_only)
    with pytest.raises(LedgerError, match=r"cannot be written\. Nothing was spent\. Make the file and its folder"):
        file.reserve(LOSS, {})
    assert len(Ledger.open(file.path).entries()) == 1
    assert file.verify().events == 2


def in_a_child(act) -> str:
    """What `act` returns in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_file_without_the_right_to_write(file):
    for folder in [file.path.parent, *file.path.parents][:-2]:  # so that another user gets there
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)

    def act():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        else:
            file.path.chmod(0o444)
        with pytest.raises(LedgerError, match=r"Nothing was spent\. Make the file and its folder writable"):
            file.reserve(LOSS, {})
        return Ledger.open(file.path).spent().epsilon

    assert in_a_child(act) == "0.125"


def test_a_full_disk_leaves_the_ledger_whole(file):
    def act():
        size = file.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for k in range(1000):
            try:
                file.reserve(PureDP(0.001, neighbours=Neighbours.REPLACE), {"k": k, "fill": "x" * 500})
            except LedgerError as error:
                return k if "disk is full or failing" in str(error) else error
        return "never full"

    written = int(in_a_child(act))
    assert len(file.entries()) == 1 + written
    file.reserve(LOSS, {})
    assert file.verify().entries == 2 + written
    with sqlite3.connect(file.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_torn_write_is_rolled_back_from_the_journal(file, tmp_path):
    """The disk as it is in the middle of a commit: some pages written, the journal not yet gone."""
    before = list(file.export())
    connection = sqlite3.connect(file.path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("PRAGMA cache_spill = 1")
    connection.execute("BEGIN IMMEDIATE")
    key = connection.execute("SELECT key FROM loss").fetchone()[0]
    for k in range(2, 200):
        row = (file.id, k + 1, k, "reserved", "", "", "x" * 3000, key, None, None, "")
        connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("SELECT sum(length(description)), max(text) FROM event, loss").fetchall()  # spills the cache
    torn = tmp_path / "torn"
    shutil.copy(file.path, torn)
    shutil.copy(f"{file.path}-journal", f"{torn}-journal")
    connection.execute("ROLLBACK")
    connection.close()
    whole, content = file.path.read_bytes(), bytearray(torn.read_bytes())
    changed = [at for at in range(0, len(whole), 4096) if whole[at : at + 4096] != content[at : at + 4096]]
    assert changed
    for at in changed:  # half written, and the rest is nonsense
        content[at + 2048 : at + 4096] = bytes(2048)
    torn.write_bytes(content)
    ledger = Ledger.open(torn)
    assert list(ledger.export()) == before
    assert not (tmp_path / "torn-journal").exists()
    ledger.reserve(LOSS, {})
    assert ledger.verify().entries == 2


def test_a_file_cut_short_is_damaged_and_says_so(file):
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) - 4096])
    with pytest.raises(LedgerError, match=r"damaged.*latest copy"):
        Ledger.open(file.path).verify()


# --- A database


def test_several_ledgers_in_one_database_keep_apart(cluster):
    url = cluster.database()
    with pytest.raises(LedgerError, match="no ledger in this database"):
        Ledger.open(url)
    sales = Ledger.create(f"{url}&ledger=sales", dataset="Sales", epsilon=1.0, delta=0.0)
    assert Ledger.open(url).id == sales.id
    trees = Ledger.create(url, dataset="Trees & shrubs", epsilon=2.0, delta=0.0)
    with pytest.raises(LedgerError, match=r"Say which.*'Trees & shrubs', 'sales'"):
        Ledger.open(url)
    with pytest.raises(LedgerError, match="The database has"):
        Ledger.open(f"{url}&ledger=houses")
    assert Ledger.open(f"{url}&ledger=Trees%20%26%20shrubs").id == trees.id
    with pytest.raises(LedgerError, match="a ledger 'sales', which is left"):
        Ledger.create(f"{url}&ledger=sales", dataset="Others", epsilon=1.0, delta=0.0)
    for k in range(3):
        assert sales.reserve(LOSS, {}) == trees.reserve(LOSS, {}) == k + 1
    trees.book(2)
    assert [entry.state for entry in sales.entries()] == ["reserved"] * 3
    assert (sales.verify().events, trees.verify().events) == (3, 4)
    assert [(each.name, each.epsilon) for each in ledgers(url)] == [
        ("Trees & shrubs", "2.0"),
        ("sales", "1.0"),
    ]


def test_creating_at_once_makes_one(cluster):
    url = cluster.database()

    def create(_):
        try:
            return Ledger.create(f"{url}&ledger=one", dataset="x", epsilon=1.0, delta=0.0).id
        except LedgerError as error:
            return "left as it is" in str(error)

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(map(str, pool.map(create, range(4))))
    assert outcomes == sorted([Ledger.open(url).id, "True", "True", "True"])


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_restarted_in_the_middle_of_a_charge_loses_and_invents_nothing(cluster, mode):
    ledger = opened(cluster.database())

    def charge():
        try:
            return ledger.reserve(LOSS, {})
        except LedgerError as error:
            return str(error)

    def holding():
        with ThreadPoolExecutor(1) as pool, ledger.journal.store.transaction(write=ledger.id):
            waiting = pool.submit(charge)
            while cluster.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0":
                time.sleep(0.01)
            cluster.restart(mode)
            said.append(waiting.result(120))

    said: list[object] = []
    with pytest.raises(LedgerError, match="went away"):
        holding()
    assert "Nothing was spent" in str(said[0])
    assert [entry.id for entry in ledger.entries()] == [1]
    assert ledger.reserve(LOSS, {}) == 2
    assert ledger.verify().entries == 2


def test_a_commit_of_unknown_outcome_says_so(cluster, monkeypatch):
    ledger = opened(cluster.database())
    commit = sqlalchemy.Connection.commit

    def lost(connection):
        commit(connection)
        raise sqlalchemy.exc.OperationalError("COMMIT", {}, Exception("connection lost"))

    with monkeypatch.context() as patch:
        patch.setattr(sqlalchemy.Connection, "commit", lost)
        with pytest.raises(LedgerError, match=r"Look at entries\(\) before anything else"):
            ledger.reserve(LOSS, {})
    assert ledger.spent().epsilon == 0.25


def test_a_server_that_is_not_there(tmp_path):
    secret = "-".join(["s3cret", "word"])
    with pytest.raises(LedgerError, match=r"cannot be reached.*Check that it runs") as caught:
        Ledger.open(f"postgresql://u:{secret}@/db?host={tmp_path}")
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_an_analyst_needs_no_right_but_to_read_and_to_insert(cluster):
    url = cluster.database()
    steward = opened(url)
    database = url.partition("@/")[2].partition("?")[0]
    cluster.sql(f"CREATE ROLE analyst_{database} LOGIN", database)
    theirs = url.replace("postgres@", f"analyst_{database}@")
    with pytest.raises(LedgerError, match="none that this role may use"):
        Ledger.open(theirs)
    cluster.sql(
        f"GRANT USAGE ON SCHEMA discretion TO analyst_{database};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA discretion TO analyst_{database}",
        database,
    )
    ledger = Ledger.open(theirs)
    assert ledger == Ledger.open(theirs)
    with pytest.raises(LedgerError, match="Grant it SELECT and INSERT"):
        ledger.reserve(LOSS, {})
    cluster.sql(f"GRANT INSERT ON discretion.event, discretion.loss TO analyst_{database}", database)
    assert ledger.reserve(LOSS, {}) == 2
    assert [entry.who for entry in steward.entries()] == ["postgres", f"analyst_{database}"]
    assert steward.verify().entries == 2


def test_a_password_is_in_nothing_that_is_shown_or_kept(cluster):
    secret = "-".join(["s3cret", "word"])
    url = cluster.database().replace("postgres@", f"postgres:{secret}@", 1)
    ledger = opened(url)
    shown = [repr(ledger), str(ledger), ledger.place, repr(vars(ledger)), *ledger.export(), repr(ledger.verify())]
    assert secret not in "".join(shown)
    kept = pickle.dumps(ledger)
    assert secret.encode() not in kept
    assert pickle.loads(kept).spent() == ledger.spent()
    # In this process a copy still knows it.
    sampler = clone(PosteriorSampler((0, 1), (0, 1), ledger=ledger))
    assert secret in sampler.ledger.journal.store.url
    assert deepcopy(ledger) == ledger
    assert secret.encode() not in pickle.dumps(sampler)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://h/d",
        "postgresql://u:s3cret@h:port/d",
        "postgresql://u:s3cret@h",
        "postgresql://h/d?password=s3cret",
        "postgresql://h/d?ledger=a&ledger=b",
        "postgresql+asyncpg://u:s3cret@h/d",
    ],
)
def test_a_url_that_is_none_is_refused_without_quoting_it(url):
    with pytest.raises(ValueError, match=r"ledger|Ledger") as caught:
        store_at(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "discretion.privacy.postgres")
    with pytest.raises(LedgerError, match=r"pip install 'discretion\[postgres\]'"):
        Ledger.open("postgresql://h/d")


def test_a_forked_process_makes_its_own_connections(cluster):
    ledger = opened(cluster.database())
    assert in_a_child(lambda: ledger.reserve(LOSS, {})) == "2"
    assert ledger.reserve(LOSS, {}) == 3
    assert ledger.verify().entries == 3
