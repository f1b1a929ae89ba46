"""The chain: whatever is edited, removed, put in or reordered is found, and what cannot be found is said."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.privacy.certificate import Certificate, library_version
from discretion.privacy.chain import (
    Event,
    LedgerError,
    NewerVersion,
    Opening,
    State,
    Tampered,
    follow,
    key,
    read_export,
)
from discretion.privacy.ledger import BudgetExceeded, Ledger
from discretion.privacy.loss import GaussianDP, Neighbours, PureDP, RenyiCurve

REPLACE = Neighbours.REPLACE
LOSSES = [
    PureDP(0.25, neighbours=REPLACE),
    GaussianDP(0.5, neighbours=REPLACE),
    RenyiCurve(lambda x: (1 + x) / 50, neighbours=REPLACE, rule="toy"),
]
GUARDS = "SELECT name FROM sqlite_master WHERE type = 'trigger'"


def filled(where) -> Ledger:
    ledger = Ledger.create(where, dataset="Sales, N°1", epsilon=9.0, delta=1e-5)
    for k in range(6):
        entry = ledger.reserve(LOSSES[k % 3], {"mechanism": "m", "parameters": {"k": k, "x": 0.1 * k}, "n": 3})
        if k % 2 == 0:
            ledger.book(entry)
        elif k == 3:
            ledger.fail(entry, "MechanismFailed: it was late")
    return ledger


@pytest.fixture(scope="module")
def ledger(tmp_path_factory) -> Ledger:
    return filled(tmp_path_factory.mktemp("chain") / "ledger")


@pytest.fixture(scope="module")
def lines(ledger) -> list[str]:
    return list(ledger.export())


def tampered(ledger: Ledger, tmp_path, *statements: str) -> Ledger:
    """A copy of the file after somebody has switched off its guards and edited it."""
    copy = tmp_path / "copy"
    shutil.copy(ledger.path, copy)
    with sqlite3.connect(copy) as connection:
        for (name,) in connection.execute(GUARDS).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return Ledger.open(copy)


def test_what_was_written_verifies_and_so_does_its_export(place):
    ledger = filled(place())
    found = ledger.verify()
    assert (found.events, found.entries) == (10, 6)
    assert found.head == ledger.head()
    assert found == read_export(ledger.export()) == Ledger.verify(ledger, head=found.head)


def test_both_databases_write_the_same_chain(ledger, lines):
    """The digests follow from the exported lines alone, by the formula of the documentation."""

    def digest(values):
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    first, *events, last = map(json.loads, lines)
    names = ["id", "name", "layout", "dataset", "epsilon", "delta", "neighbours", "composition"]
    names += ["renyi_order", "fingerprint", "created", "library"]
    current = digest(["discretion ledger", *(first["ledger"][name] for name in names)])
    assert current == first["digest"]
    for line in events:
        event = line["event"]
        if event["loss"] is not None:
            event["loss"] = hashlib.sha256(compact(event["loss"]).encode()).hexdigest()
            event["description"] = compact(event["description"])
        names = ["number", "entry", "state", "who", "created", "description", "loss", "reason", "noise"]
        current = digest([current, *(event[name] for name in names)])
        assert current == line["digest"]
    assert last == {"head": f"10:{current}"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET description = replace(description, '\"k\":1', '\"k\":9') WHERE entry = 2",
        "UPDATE event SET created = '2020-01-01T00:00:00Z' WHERE number = 1",
        "UPDATE event SET who = 'somebody' WHERE number = 4",
        "UPDATE event SET reason = 'no reason' WHERE state = 'failed'",
        "UPDATE event SET state = 'booked', reason = NULL WHERE state = 'failed'",
        "UPDATE event SET loss = (SELECT loss FROM event WHERE number = 1) WHERE number = 3",
        "UPDATE loss SET text = replace(text, '0.25', '0.20')",
        "DELETE FROM event WHERE number = 2",
        "DELETE FROM event WHERE number = 9",
        "UPDATE event SET number = 100 WHERE number = 4",
        "UPDATE event SET number = number + 100 WHERE number > 3",
        "DELETE FROM event WHERE number = 1",
        "UPDATE event SET digest = 'x' WHERE number = 10",
        "UPDATE event SET entry = 7 WHERE number = 10",
    ],
)
def test_an_edit_is_found_in_the_file(ledger, tmp_path, statement):
    with pytest.raises(Tampered, match=r"Bring back the latest copy|Release nothing more"):
        tampered(ledger, tmp_path, statement).verify()


def test_an_edited_budget_is_found_before_anything_else(ledger, tmp_path):
    for column, value in (("epsilon", "90.0"), ("id", "another"), ("neighbours", "add-remove"), ("dataset", "another")):
        with pytest.raises(Tampered, match="budget of this ledger was edited"):
            tampered(ledger, tmp_path, f"UPDATE ledger SET {column} = '{value}'")


def test_an_edit_is_found_in_the_database(cluster):
    url = cluster.database()
    ledger = filled(url)
    kept, database = ledger.head(), url.partition("@/")[2].partition("?")[0]
    off = "".join(f"ALTER TABLE discretion.{name} DISABLE TRIGGER ALL; " for name in ("event", "loss"))
    for statement, undo in (
        ("UPDATE discretion.event SET who = 'x' WHERE number = 2", "UPDATE discretion.event SET who = 'postgres'"),
        ("UPDATE discretion.loss SET text = text || ' '", "UPDATE discretion.loss SET text = trim(text)"),
    ):
        cluster.sql(f"{off} {statement}", database)
        with pytest.raises(Tampered):
            Ledger.open(url).verify()
        cluster.sql(undo, database)
        assert ledger.verify(kept).head == kept
    cluster.sql("DELETE FROM discretion.event WHERE number > 8", database)
    Ledger.open(url).verify()
    with pytest.raises(Tampered, match="kept"):
        Ledger.open(url).verify(kept)


def test_the_next_writer_finds_an_edit_of_the_last_event_and_writes_nothing(ledger, tmp_path):
    broken = tampered(ledger, tmp_path, "UPDATE event SET who = 'x' WHERE number = 10")
    before = broken.path.read_bytes()
    for act in (lambda: broken.reserve(LOSSES[0], {}), lambda: broken.book(2), broken.spent):
        with pytest.raises(Tampered, match="last event"):
            act()
    assert broken.path.read_bytes() == before


def test_an_entry_written_past_the_library_is_found_even_with_a_right_digest(tmp_path):
    ledger = Ledger.create(tmp_path / "x", dataset="x", epsilon=1.0, delta=0.0)
    for _ in range(4):
        ledger.reserve(LOSSES[0], {})
    ledger.verify()
    with ledger.journal.transaction(write=True) as (session, known):
        ledger.journal.append(session, known, 5, State.RESERVED, description="{}", loss=next(iter(known.counts)))
    with pytest.raises(Tampered, match="more is reserved than the budget allows"):
        ledger.verify()
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PureDP(0.0, neighbours=REPLACE), {})


def reserved_by(ledger, description, loss):
    """An entry as another version of the library would write it: every digest is right."""
    text = json.dumps(loss, sort_keys=True, separators=(",", ":"))
    with ledger.journal.transaction(write=True) as (session, known):
        ledger.journal.keep_loss(session, known, key(text), text)
        about = json.dumps(description, sort_keys=True, separators=(",", ":"))
        ledger.journal.append(session, known, known.entries + 1, State.RESERVED, description=about, loss=key(text))


@pytest.mark.parametrize(("version", "error"), [(None, Tampered), ("0.0.1", Tampered), ("9999.1", NewerVersion)])
def test_a_ledger_filled_under_a_newer_rule_is_not_called_tampered_with(place, version, error):
    where = place()
    ledger = Ledger.create(where, dataset="x", epsilon=0.6, delta=0.0)
    ledger.reserve(LOSSES[0], {})
    assert ledger.entries()[0].library == library_version()
    assert ledger.entries()[0].description == {}
    for _ in range(2):
        reserved_by(ledger, {} if version is None else {"library": version}, LOSSES[0].to_dict())
    with pytest.raises(LedgerError) as caught:
        Ledger.open(where).verify()
    assert type(caught.value) is error
    assert ("newer version of discretion, 9999.1" in str(caught.value)) is (error is NewerVersion)


def test_a_newer_versions_losses_are_not_called_damage(place):
    where = place()
    ledger = Ledger.create(where, dataset="x", epsilon=1.0, delta=0.0)
    reserved_by(ledger, {}, {"type": "a later kind", "neighbours": "replace", "value": 0.1})
    for ask in (Ledger.verify, Ledger.spent, Ledger.entries, lambda book: book.reserve(LOSSES[0], {})):
        with pytest.raises(NewerVersion, match=r"newer version of discretion.*'a later kind'"):
            ask(Ledger.open(where))


@pytest.mark.parametrize(
    ("laid", "words"),
    [({"composition": "later"}, "rule of composition is 'later'"), ({"neighbours": "later"}, "relation is 'later'"),
     ({"layout": 3}, "layout is 3")],
)  # fmt: skip
def test_a_newer_versions_rules_are_not_called_tampering(ledger, lines, tmp_path, laid, words):
    row = json.loads(lines[0])["ledger"] | laid
    statements = [f"UPDATE ledger SET {name} = '{value}'" for name, value in laid.items()]
    statements += [f"UPDATE ledger SET digest = '{Opening(**row).digest}'"]
    with pytest.raises(NewerVersion, match=f"newer version of discretion.*{words}"):
        tampered(ledger, tmp_path, *statements)
    if "layout" in laid:
        # a later layout may have other fields
        line = json.dumps({"ledger": row | {"more": 1}, "digest": "?"})
        with pytest.raises(NewerVersion, match="export was written by a newer version"):
            read_export([line])


def test_a_cut_is_found_with_a_kept_head_only(ledger, tmp_path):
    kept = ledger.head()
    cut = tampered(ledger, tmp_path, "DELETE FROM event WHERE number > 8")
    cut.verify()  # nothing in it tells
    with pytest.raises(Tampered, match="of event 10; it holds 8 events"):
        cut.verify(kept)
    cut.reserve(LOSSES[1], {})
    cut.reserve(LOSSES[1], {})
    cut.verify()
    with pytest.raises(Tampered, match="of event 10; it holds 10 events"):
        cut.verify(kept)
    # An older head is a part of a longer ledger.
    early = f"8:{json.loads(list(ledger.export())[8])['digest']}"
    assert ledger.verify(early).head == kept
    assert cut.verify(early).events == 10


def test_a_process_notices_that_what_it_saw_is_gone(tmp_path):
    ledger = Ledger.create(tmp_path / "x", dataset="x", epsilon=1.0, delta=0.0)
    ledger.reserve(LOSSES[0], {})
    older = ledger.path.read_bytes()
    ledger.reserve(LOSSES[0], {})
    ledger.spent()
    ledger.path.write_bytes(older)
    Ledger.open(ledger.path).verify()  # a process that starts now has seen nothing else
    for act in (lambda: ledger.reserve(LOSSES[0], {}), ledger.spent):
        with pytest.raises(Tampered, match="older copy"):
            act()
    assert ledger.path.read_bytes() == older


@pytest.mark.parametrize("head", ["", "10", "10:", "x:" + 64 * "0", "-1:" + 64 * "0", "10:abc", "²:" + 64 * "0"])
def test_a_head_that_is_none_is_refused(ledger, head):
    with pytest.raises(ValueError, match="A head is an event's number"):
        ledger.verify(head)


def test_heads_of_the_beginning(ledger, lines, tmp_path):
    opening = json.loads(lines[0])["digest"]
    assert ledger.verify(f"0:{opening}").events == 10
    with pytest.raises(Tampered, match="another ledger"):
        ledger.verify(f"0:{64 * '0'}")
    assert Ledger.create(tmp_path / "new", dataset="x", epsilon=1.0, delta=0.0).verify().head[:2] == "0:"


def certificate(ledger: Ledger, entry: int, **changes) -> Certificate:
    loss = LOSSES[(entry - 1) % len(LOSSES)]
    return Certificate(
        mechanism="m",
        parameters=changes.get("parameters", {"k": entry - 1, "x": 0.1 * (entry - 1)}),
        n=3,
        neighbours=REPLACE,
        unit="a sale",
        epsilon=loss.epsilon(1e-5),
        delta=1e-5,
        order=None,
        rule="r",
        loss=loss.to_dict(1e-5),
        enforced=(),
        declared=(),
        limits=(),
        bookable=True,
        randomness="SystemRandomness",
        ledger_entry=changes.get("at", f"{ledger.id}#{entry}"),
    )


def test_certificates_pin_the_entries_that_they_name(ledger, tmp_path):
    booked = [certificate(ledger, entry) for entry in (1, 3, 5)]
    ledger.verify(certificates=booked)
    cut = tampered(ledger, tmp_path, "DELETE FROM event WHERE number > 7")
    with pytest.raises(Tampered, match="entry 5, and the ledger has not booked it"):
        cut.verify(certificates=booked)
    for wrong in (2, 4, 7, 0):
        with pytest.raises(Tampered, match="has not booked it"):
            ledger.verify(certificates=[certificate(ledger, wrong)])
    with pytest.raises(Tampered, match="for another release"):
        ledger.verify(certificates=[replace(booked[0], ledger_entry=f"{ledger.id}#3")])
    for at in (None, "elsewhere#1"):
        with pytest.raises(LedgerError, match="this is ledger"):
            ledger.verify(certificates=[certificate(ledger, 1, at=at)])


@pytest.mark.parametrize("entry", [-1, 0, 3, 99])
@pytest.mark.parametrize("state", ["step", "booked", "reserved"])
def test_an_event_moved_to_an_entry_that_is_not_there_is_found_by_whoever_lists_them(tmp_path, entry, state):
    book = Ledger.create(tmp_path / "ledger", dataset="x", epsilon=9.0, delta=1e-5)
    first, _ = (book.reserve(LOSSES[0], {}) for _ in range(2))
    book.step(first, "a", after=[], noise="n1")
    book.book(first)
    number = {"reserved": 2, "step": 3, "booked": 4}[state]
    moved = tampered(
        book,
        tmp_path,
        "PRAGMA ignore_check_constraints = ON",
        f"UPDATE event SET entry = {entry} WHERE number = {number}",
    )
    with pytest.raises(Tampered):
        moved.entries()
    with pytest.raises(Tampered):
        moved.verify()


# --- Exports


def test_an_export_that_was_cut_or_reordered_is_found(lines):
    read_export(lines)
    for wrong in (lines[:-1], lines[:5], lines[:3] + lines[4:], lines[:-2] + lines[-1:], [*lines, lines[-1]]):
        with pytest.raises(Tampered):
            read_export(wrong)
    swapped = [*lines[:2], lines[3], lines[2], *lines[4:]]
    with pytest.raises(Tampered, match=r"Event 2 .* out of order"):
        read_export(swapped)


@pytest.mark.parametrize(
    "wrong", [[], [""], ["nothing"], ["[]"], ["{}"], ['{"ledger": {}}'], ["[" * 100_000], ['{"ledger": {"id": 1}}']]
)
def test_what_is_no_export_is_refused_in_words(wrong):
    with pytest.raises(LedgerError, match=r"[Tt]his is n"):
        read_export(wrong)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_changed_character_of_an_export_is_found(lines, data):
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    letter = data.draw(st.characters(codec="utf-8"))
    changed = lines[at][:place] + letter + lines[at][place + 1 :]
    if changed == lines[at]:
        return
    try:
        same = json.loads(changed) == json.loads(lines[at])
    except ValueError:
        same = False
    wrong = [*lines[:at], changed, *lines[at + 1 :]]
    if same:  # 0.5 and 0.50: other characters, the same numbers
        read_export(wrong)
    else:
        with pytest.raises(LedgerError):
            read_export(wrong)


def test_an_order_of_events_that_cannot_be_is_found(lines):
    """Also where every digest was made anew."""
    opening = Opening(**json.loads(lines[0])["ledger"])

    def chained(*steps):
        digest, found = opening.digest, []
        for number, (entry, state) in enumerate(steps, 1):
            begins = state == "reserved"
            loss = json.dumps({"k": 1}) if begins else None
            event = Event(number, entry, state, "w", "", "{}" if begins else None, loss and key(loss), None, None)
            digest = event.digest(digest)
            found.append((event, digest, loss))
        return found

    follow(opening, opening.digest, chained((1, "reserved"), (2, "reserved"), (1, "booked"), (2, "failed")))
    for steps in (
        [(2, "reserved")],
        [(0, "booked")],
        [(1, "booked")],
        [(1, "reserved"), (1, "reserved")],
        [(1, "reserved"), (2, "booked")],
        [(1, "reserved"), (0, "booked")],
        [(1, "reserved"), (1, "booked"), (1, "failed")],
        [(1, "reserved"), (1, "returned")],
    ):
        with pytest.raises(Tampered, match="cannot follow"):
            follow(opening, opening.digest, chained(*steps))
