"""The chain of a ledger: every event bears a digest of itself and of all before it.

    d_0 = H([the ledger's row])        d_k = H([d_(k-1), the event's fields])        H = SHA-256 of canonical JSON

So whoever changes, inserts, removes or reorders anything changes every digest from there on, and a digest kept
elsewhere (a head) tells. Without one, a ledger that was cut short, and one that was rewritten from some event on with
all digests made anew, are flawless: SHA-256 has no secret.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import Any

from discretion.privacy.certificate import Certificate, canonical
from discretion.privacy.loss import PrivacyLoss, UnknownLoss

__all__ = [
    "STEP",
    "Event",
    "Intact",
    "LedgerError",
    "NewerVersion",
    "Opening",
    "Overtaken",
    "State",
    "Tampered",
    "check_layout",
    "export",
    "key",
    "parting",
    "read_export",
    "readable",
]

LAYOUT = 2
"""Version of the tables and of the chain."""


class LedgerError(ValueError):
    """The ledger could not do what was asked; the message says what to do. Nothing was released."""


class Tampered(LedgerError):
    """The ledger is not what this library wrote there: somebody edited it, cut it short, or put in an older copy."""


class NewerVersion(LedgerError):
    """A newer version of this library wrote to the ledger, in a way that this one can't judge."""


class Overtaken(LedgerError):
    """The entry went on, or ended, without the run that asks: from another copy of its file. It stays so."""


@contextmanager
def readable(place: str) -> Iterator[None]:
    """Whatever stands where a stored value should and can't be read is damage."""
    try:
        yield
    except LedgerError:
        raise
    except UnknownLoss as error:
        # An edited loss is found by its digest before it is read.
        raise NewerVersion(f"{place} was written by a newer version of discretion. {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        kind = type(error).__name__
    else:
        return
    raise Tampered(f"{place}: something in the ledger can't be read ({kind}), so it was damaged or edited. {_MEND}")


class State(StrEnum):
    """Where an entry stands. In each of them its loss is spent."""

    RESERVED = "reserved"
    BOOKED = "booked"
    FAILED = "failed"


STEP = "step"
"""The state of an event with which an entry that stays reserved goes on: a step of a run that is in a file."""


@dataclass(frozen=True)
class Opening:
    """The ledger's row: what was laid down when it was created, every field as text but the layout's number."""

    id: str
    name: str
    layout: int
    dataset: str
    epsilon: str
    delta: str
    neighbours: str
    composition: str
    renyi_order: str | None
    fingerprint: str | None
    created: str
    library: str

    @property
    def digest(self) -> str:
        """d_0."""
        return _digest(["discretion ledger", *astuple(self)])


@dataclass(frozen=True)
class Event:
    """One step of one entry.

    Attributes:
        number: 1, 2, 3, ... through the ledger.
        entry: 1, 2, 3, ... in the order of reservation.
        state: what the entry came to by this event, or `STEP`.
        who, created: by whom and when, as the machine had it; informative.
        description: what was reserved, canonical JSON; None when an entry ends.
        loss: the `key` of what it costs; None when an entry ends.
        reason: why it failed; of a step the checksum of the run's file so far; otherwise None.
        noise: the name of the noise that this was written for (`noise_id`), if it has one; no two events have the same.
    """

    number: int
    entry: int
    state: str
    who: str
    created: str
    description: str | None
    loss: str | None
    reason: str | None
    noise: str | None

    def digest(self, previous: str) -> str:
        """d_k, from d_(k-1)."""
        return _digest([previous, *(getattr(self, name) for name in _EVENT)])


_EVENT = [item.name for item in fields(Event)]


def _digest(values: list[Any]) -> str:
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def key(text: str) -> str:
    """The name of a loss, given as canonical JSON: its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()


# --- Checking ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intact:
    """What a check of the whole chain found in order.

    Attributes:
        events, entries: how many there are.
        head: "number:digest" of the newest event; keep it outside the ledger, and a later check can find what this
            one cannot.
    """

    events: int
    entries: int
    head: str


def follow(
    opening: Opening,
    opened: str,
    events: Iterable[tuple[Event, str, str | None]],
    *,
    head: str | None = None,
    certificates: Sequence[Certificate] = (),
) -> Intact:
    """Go through a whole ledger.

    Args:
        opening, opened: its row, and the digest written there.
        events: every event in order, the digest written there, and the text of its loss.
        head: a head kept from an earlier check, which the ledger must still contain.
        certificates: of releases booked in it.

    Raises:
        Tampered: at the first event that is not as it was written.
        ValueError: `head` is none.
    """
    if opening.digest != opened:
        raise Tampered(f"The ledger's own row was edited: its digest is not that of its contents. {_MEND}")
    number, digest = 0, opened
    states: list[str] = []
    reserved: list[tuple[str, str]] = []
    wanted, found = (None, "") if head is None else (head_number(head), opened)
    for event, written, loss in events:
        number += 1
        if event.number != number:
            raise Tampered(f"Event {number} of the ledger is missing or out of order. {_MEND}")
        digest = event.digest(digest)
        if digest != written:
            raise Tampered(f"Event {number} of the ledger was edited, or something before it. {_MEND}")
        if number == wanted:
            found = digest
        begins = event.state == State.RESERVED and event.entry == len(states) + 1
        ends = event.state in (State.BOOKED, State.FAILED) and 1 <= event.entry <= len(states)
        steps = event.state == STEP and 1 <= event.entry <= len(states)
        if not begins and not ((ends or steps) and states[event.entry - 1] == State.RESERVED):
            raise Tampered(f"Event {number} of the ledger cannot follow what is before it. {_MEND}")
        if begins:
            if loss is None or event.description is None or key(loss) != event.loss:
                raise Tampered(f"The loss of event {number} of the ledger was edited. {_MEND}")
            states.append(event.state)
            reserved.append((event.description, loss))
        elif ends:
            states[event.entry - 1] = event.state
    if wanted is not None and (wanted > number or f"{wanted}:{found}" != head):
        raise Tampered(
            f"The ledger does not contain the head that was kept, of event {wanted}; it holds {number} events. It was "
            f"cut short, rewritten, or is an older copy or another ledger. {_MEND}"
        )
    for certificate in certificates:
        _check_certificate(opening.id, certificate, states, reserved)
    return Intact(number, len(states), f"{number}:{digest}")


def check_layout(place: str, layout: int) -> None:
    """Refuse a ledger of another layout, with the way out.

    Raises:
        NewerVersion: of a later one.
        LedgerError: of an earlier one.
    """
    if layout > LAYOUT:
        raise NewerVersion(
            f"{place} was written by a newer version of discretion: its layout is {layout}, and this "
            f"version reads {LAYOUT}. Upgrade discretion."
        )
    if layout < LAYOUT:
        raise LedgerError(
            f"{place} is a ledger of layout {layout}, from before ledgers were chained; this version reads {LAYOUT}. "
            "Make a new ledger with the same budget and reserve in it what the old one spent: docs/ledger.md, "
            "'Ledgers of layout 1', has the lines for it."
        )


_MEND = (
    "Release nothing more on it. Bring back the latest copy that verifies, and reserve again whatever was released "
    "since then."
)


def head_number(head: str) -> int:
    """Of which event a head is.

    Raises:
        ValueError: it is none.
    """
    number, colon, digest = head.partition(":")
    if not (colon and number.isascii() and number.isdigit() and len(digest) == 64):
        raise ValueError('A head is an event\'s number and digest, as verify prints it: "12:9f86d0...".')
    return int(number)


def _check_certificate(
    identity: str, certificate: Certificate, states: list[str], reserved: list[tuple[str, str]]
) -> None:
    """Whether the entry that a certificate names is booked, for the same mechanism, parameters and n, at its price."""
    ledger, _, entry = (certificate.ledger_entry or "").partition("#")
    if ledger != identity:
        raise LedgerError(
            f"That certificate names {certificate.ledger_entry or 'no ledger'}, and this is ledger {identity}. "
            "Verify it against the ledger that it names."
        )
    at = int(entry) if entry.isascii() and entry.isdigit() else 0
    state = states[at - 1] if 1 <= at <= len(states) else None
    about, loss = ({}, {}) if state is None else (json.loads(text) for text in reserved[at - 1])
    # Only a run that is driven step by step gives certificates before it is booked.
    if state == State.RESERVED and "run" in about:
        raise LedgerError(
            f"A certificate names entry {entry}, whose run is not finished yet. Verify it when it is. If it was "
            "finished before, the ledger is an older copy, or was cut short."
        )
    if state != State.BOOKED:
        raise Tampered(f"A certificate names entry {entry}, and the ledger has not booked it. {_MEND}")
    # What a mechanism leaves to itself, and so to its run, reads None beforehand.
    chosen = {name: value for name, value in (about.get("parameters") or {}).items() if value is not None}
    claimed = {name: certificate.parameters.get(name) for name in chosen}
    if certificate.mechanism != about.get("mechanism") or canonical(claimed) != canonical(chosen):
        raise Tampered(f"A certificate names entry {entry}, which the ledger has for another release. {_MEND}")
    if "n" in about and certificate.n not in (about["n"], None):
        raise Tampered(
            f"A certificate names entry {entry}, which the ledger has for another number of records. {_MEND}"
        )
    price = PrivacyLoss.from_dict(loss).epsilon(certificate.delta)
    stored = PrivacyLoss.from_dict(certificate.loss).epsilon(certificate.delta)
    # What a ledger stores of a curve is a table, which is at most a little larger than the curve.
    if not min(certificate.epsilon, stored) >= price * (1.0 - 2e-3):
        raise Tampered(f"A certificate names entry {entry} and states less than was reserved for it. {_MEND}")


# --- JSON lines -------------------------------------------------------------------------------------


def export(opening: Opening, opened: str, events: Iterable[tuple[Event, str, str | None]]) -> Iterator[str]:
    """The whole ledger as lines of JSON: its row, each event, and the head."""
    yield canonical({"ledger": {item.name: getattr(opening, item.name) for item in fields(opening)}, "digest": opened})
    number, digest = 0, opened
    for event, digest, loss in events:
        number = event.number
        line = {name: getattr(event, name) for name in _EVENT}
        for name, text in (("description", event.description), ("loss", loss)):
            line[name] = None if text is None else json.loads(text)
        yield canonical({"event": line, "digest": digest})
    yield canonical({"head": f"{number}:{digest}"})


def read_export(lines: Iterable[str], *, head: str | None = None, certificates: Sequence[Certificate] = ()) -> Intact:
    """Check lines that `export` wrote, as `follow` does.

    Raises:
        Tampered: the chain is broken, or the lines end before their last.
        LedgerError: they are no export of a ledger.
    """
    parsed = _parsed(lines)
    try:
        first = next(parsed)
        check_layout("The export", first["ledger"]["layout"])
        opening, opened = Opening(**first["ledger"]), str(first["digest"])
    except (KeyError, TypeError, StopIteration):
        raise LedgerError("This is neither a ledger nor the export of one: its first line is no ledger's.") from None
    ends: list[str] = []
    try:
        found = follow(opening, opened, _exported(parsed, ends), head=head, certificates=certificates)
    except UnicodeEncodeError:
        raise LedgerError("This is no export of a ledger: it holds half a surrogate pair, which is no text.") from None
    if ends != [found.head]:
        raise Tampered("The export was cut short: its last line, the head, is missing or another's. Export it again.")
    return found


def parting(one: Iterable[str], other: Iterable[str]) -> tuple[int, int, int]:
    """How many events two exports that `read_export` checked begin with in common, and how many more each of them has.

    Raises:
        LedgerError: they are of different ledgers.
    """
    # The last line is the head, which repeats a digest.
    digests = ([line["digest"] for line in _parsed(each) if "digest" in line] for each in (one, other))
    first, second = digests
    if first[:1] != second[:1]:
        raise LedgerError("These are two ledgers, not copies of one: they were created apart. Nothing to compare.")
    same = zip(first, second, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], same))
    return shared - 1, len(first) - shared, len(second) - shared


def _parsed(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise LedgerError(f"This is no ledger, nor the export of one: line {number} is no JSON object.")
        yield value


def _exported(lines: Iterator[dict[str, Any]], ends: list[str]) -> Iterator[tuple[Event, str, str | None]]:
    """The events of an export; heads are put into `ends`."""
    for number, line in enumerate(lines, 2):
        if "head" in line or ends:
            ends.append(str(line.get("head")))
            continue
        try:
            event = dict(line["event"])
            texts = [None if event[name] is None else canonical(event[name]) for name in ("description", "loss")]
            event |= {"description": texts[0], "loss": None if texts[1] is None else key(texts[1])}
            if not (isinstance(event["number"], int) and isinstance(event["entry"], int)):
                raise TypeError
            yield Event(**event), str(line["digest"]), texts[1]
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"Line {number} of the export is no event of a ledger.") from None
