"""The ledger's drills, each in a small version, and that they would find a ledger that breaks its promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.postgres import Cluster, find
from discretion.privacy import Ledger, SystemRandomness
from discretion.privacy.budget import Budget
from studies.ledger_children import Drill, Server, Site, charge, examine, examine_all, seen, site
from studies.ledger_disks import backward_clock, full_disk, read_only, torn_log, torn_writes
from studies.ledger_drills import large, mixed_losses, sync_seconds, throughput
from studies.ledger_kills import at_line, at_system_call, at_time, creations, kills, races, restarts


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if find() is None:
        pytest.skip("PostgreSQL's programs are not installed")
    pytest.importorskip("psycopg")
    with Cluster(durable=False) as cluster:
        yield Server(cluster)


@pytest.fixture
def files() -> Iterator[Site]:
    # Not below a folder of pytest's, which an unprivileged account cannot enter.
    with site("sqlite") as where:
        yield where


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest) -> Site:
    return request.getfixturevalue("files" if request.param == "sqlite" else "server")


@pytest.fixture
def traced() -> None:
    try:
        at_system_call(lambda tell: None, 1)
    except OSError as error:
        pytest.skip(str(error))


# --- the drills ---------------------------------------------------------------------------------------------------


def test_killed(where):
    found = kills(where, stride=40, lines=150, times=3)
    assert found.breaches == []
    assert found.counts["kills"] >= 10
    assert 0 < found.counts["of them with the records read"] < found.counts["kills"]


def test_killed_while_creating(where, traced):
    found = creations(where, stride=20)
    assert found.breaches == []
    assert found.counts["kills"] >= 5


def test_raced_for(where):
    found = races(where, rounds=6, runners=8)
    assert found.breaches == []
    assert (found.counts["wins"], found.counts["refusals"]) == (6, 42)


@pytest.mark.slow
def test_full_disk(where):
    found = full_disk(where, most_pages=8)
    assert found.breaches == []
    assert found.counts["broken off"] >= 2 or "no mount allowed" in found.counts


def test_read_only(where):
    found = read_only(where)
    assert found.breaches == []
    assert found.counts["refused for want of permission"] >= 1


def test_backward_clock(where):
    found = backward_clock(where)
    assert found.breaches == []
    assert found.counts["charges"] == 10


def test_torn_writes(files, traced):
    found = torn_writes(files, tears=40, rot=40)
    assert found.breaches == []
    assert found.counts["old copies put back: found by verify with a kept head"] == 1


@pytest.mark.slow
def test_torn_log(server):
    found = torn_log(server, trials=2)
    assert found.breaches == []
    assert found.counts["tears: whole"] == 1


@pytest.mark.slow
def test_restarts(server):
    found = restarts(server, rounds=3, workers=2)
    assert found.breaches == []
    assert found.counts["charges"] > 0
    assert found.counts["broken off"] > 0


def test_speed(where):
    assert throughput(where, processes=2, seconds=0.5) > 0.0
    assert sync_seconds(5) > 0.0
    took = large(where, mixed_losses(30, kinds=4))
    assert 0.0 < took.opening + took.composing < 60.0


# --- what they would find -----------------------------------------------------------------------------------------


def test_a_kill_hits_the_step_it_aims_at(traced):
    def work(tell):
        for number in range(50):
            tell(str(number))

    told, killed = at_system_call(work, 20)
    assert killed
    assert 5 <= len(told) < 20  # each word is written by one call, which is entered and returned from
    assert at_system_call(work, 10_000) == ([str(number) for number in range(50)], False)
    assert at_time(lambda tell: tell("done"), 2.0) == (["ready", "done", "finished"], False)
    assert at_line(work, 0)[1] is False  # none of the library's lines ran


def test_a_ledger_that_reserves_after_the_run_is_found(files, monkeypatch):
    def run_first(ledger, mechanism, records, *, n):
        release = mechanism.run(records, SystemRandomness())
        ledger.book(ledger.reserve(mechanism.privacy_loss(n), {}))
        return release

    monkeypatch.setattr(Ledger, "run", run_first)
    found = kills(files, stride=10_000, lines=100, times=0)
    assert "a refund after the records were read" in found.breaches


def test_a_ledger_that_does_not_check_is_found(files, monkeypatch):
    monkeypatch.setattr(Budget, "check", lambda *_, **__: None)
    found = races(files, rounds=1, runners=3)
    assert found.counts["wins"] == 3
    assert found.breaches


def test_a_refund_is_found(files):
    place = files.fresh(10)
    before = seen(place)
    for told, words in [
        (["handed"], "a refund after the records were read"),
        (["handed", "released"], "released but not booked"),
        (["broke TypeError: x"], "broke TypeError: x"),
    ]:
        found = Drill("made up")
        examine(found, place, told, before)
        assert words in found.breaches
    found = Drill("made up")
    examine_all(found, place, ["handed", "released"])
    assert len(found.breaches) == 2


def test_a_forgotten_entry_is_found(files):
    place = Path(files.fresh(10))
    charge(Ledger.open(place), str)
    copy = place.read_bytes()
    charge(Ledger.open(place), str)
    before = seen(str(place))
    place.write_bytes(copy)
    found = Drill("made up")
    examine(found, str(place), [], before)
    assert found.breaches
