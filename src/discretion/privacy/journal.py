"""The events of one ledger in a store: read up to the newest, and one more appended, each in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Self

from discretion.privacy import chain
from discretion.privacy.certificate import utc_now
from discretion.privacy.chain import STEP, Event, LedgerError, Opening, State, Tampered, readable
from discretion.privacy.loss import PrivacyLoss
from discretion.privacy.store import Session, Store

__all__ = ["Journal", "Known", "openings", "read_loss"]


@dataclass(frozen=True)
class Known:
    """What this process has seen of a ledger: its newest event, and how often each loss was reserved until then."""

    number: int
    digest: str
    counts: Mapping[str, tuple[PrivacyLoss, int]]

    @property
    def parts(self) -> list[tuple[PrivacyLoss, int]]:
        """In an order that does not depend on that of the entries, and so neither does the rounding of a sum."""
        return [self.counts[name] for name in sorted(self.counts)]

    @property
    def entries(self) -> int:
        return sum(count for _, count in self.counts.values())

    def together_with(self, name: str, loss: PrivacyLoss) -> list[tuple[PrivacyLoss, int]]:
        """`parts` once one more loss is reserved."""
        more = dict(self.counts) | {name: (loss, self.counts.get(name, (loss, 0))[1] + 1)}
        return replace(self, counts=more).parts


@dataclass(frozen=True)
class Journal:
    """One ledger's events.

    Attributes:
        store: where they are kept.
        opening: the ledger's row.
    """

    store: Store
    opening: Opening
    _known: Known = field(repr=False, compare=False)
    _units: tuple[int, Mapping[str, int]] = field(default=(0, {}), repr=False, compare=False)

    @classmethod
    def of(cls, store: Store, opening: Opening) -> Self:
        """The journal of a ledger that is there."""
        return cls(store, opening, Known(0, opening.digest, {}))

    @classmethod
    def create(cls, store: Store, opening: Opening) -> Self:
        """That of a new ledger.

        Raises:
            LedgerError: there is one of that name.
        """
        with store.creation() as session:
            if session("SELECT 1 FROM ledger WHERE name = :name", name=opening.name):
                raise LedgerError(f"{store.place} has a ledger {opening.name!r}, which is left as it is. Open it.")
            _insert(session, "ledger", **_values(opening), digest=opening.digest)
        return cls.of(store, opening)

    @contextmanager
    def transaction(self, *, write: bool = False, undone: str = "") -> Iterator[tuple[Session, Known]]:
        """One transaction on a ledger whose last link holds, and what is known of it by then."""
        with self.store.transaction(write=self.opening.id if write else None, undone=undone) as session:
            with readable(self.store.place):
                found = _openings(session, self.opening.id)
                if found != [(self.opening, self.opening.digest)]:
                    raise LedgerError(f"{self.store.place} is no longer the ledger that was opened. Open it again.")
                known = self._caught_up(session)
            yield session, known
        object.__setattr__(self, "_known", known)

    def _caught_up(self, session: Session) -> Known:
        """Check the last link and that what this process saw is still there; count the losses reserved since then."""
        old = self._known
        rows = session(
            f"SELECT {_EVENT}, digest FROM event WHERE ledger = :id ORDER BY number DESC LIMIT 2", id=self.opening.id
        )
        previous, number, digest = self.opening.digest, 0, self.opening.digest
        if rows:
            *values, digest = rows[0]
            event = Event(*values)
            number = event.number
            if len(rows) == 2:
                previous = rows[1][-1]
            if event.digest(previous) != digest or (number == 1) != (len(rows) == 1):
                raise Tampered(f"{self.store.place}: the last event of the ledger was edited. {_STOP}")
        at = session("SELECT digest FROM event WHERE ledger = :id AND number = :n", id=self.opening.id, n=old.number)
        if old.number and at != [(old.digest,)]:
            raise Tampered(
                f"{self.store.place}: what was written here is gone; this is an older copy, or rewritten. {_STOP}"
            )
        if number == old.number:
            return old
        since = "ledger = :id AND number > :n"
        # All states, so that the rows themselves are read and counted and no index stands in for them.
        rows = session(
            f"SELECT state, loss, count(*) FROM event WHERE {since} GROUP BY state, loss",
            id=self.opening.id,
            n=old.number,
        )
        if sum(count for *_, count in rows) != number - old.number:
            raise Tampered(f"{self.store.place}: events are missing from the ledger. {_STOP}")
        new = {loss: count for state, loss, count in rows if state == State.RESERVED}
        counts = dict(old.counts)
        if new.keys() - counts.keys():
            losses = f"SELECT key, text FROM loss WHERE ledger = :id AND key IN (SELECT loss FROM event WHERE {since})"
            for name, text in session(losses, id=self.opening.id, n=old.number):
                if chain.key(text) != name:
                    raise Tampered(f"{self.store.place}: a loss of the ledger was edited. {_STOP}")
                counts.setdefault(name, (read_loss(text), 0))
        for name, count in new.items():
            counts[name] = (counts[name][0], counts[name][1] + count)
        return Known(number, digest, counts)

    def keep_loss(self, session: Session, known: Known, name: str, text: str) -> None:
        """Write a loss down, unless it is there."""
        if name not in known.counts:
            _insert(session, "loss", ledger=self.opening.id, key=name, text=text)

    def append(
        self,
        session: Session,
        known: Known,
        entry: int,
        state: str,
        *,
        description: str | None = None,
        loss: str | None = None,
        reason: str | None = None,
        noise: str | None = None,
    ) -> str:
        """Write the next event of an entry; its digest."""
        event = Event(known.number + 1, entry, str(state), session.who, utc_now(), description, loss, reason, noise)
        digest = event.digest(known.digest)
        _insert(session, "event", ledger=self.opening.id, **_values(event), digest=digest)
        return digest

    def units(self, session: Session, known: Known) -> Mapping[str, int]:
        """The units of privacy that entries name, in words, each with the first entry that does."""
        seen, units = self._units
        if seen < known.number:
            where = f"ledger = :id AND number > :seen AND state = '{State.RESERVED}' AND description LIKE :naming"
            rows = session(
                f"SELECT entry, description FROM event WHERE {where} ORDER BY number",
                id=self.opening.id,
                seen=seen,
                naming='%"unit":%',
            )
            found = dict(units)
            with readable(self.store.place):
                for entry, description in rows:
                    if isinstance(unit := json.loads(description).get("unit"), str):
                        found.setdefault(unit, entry)
            units = found
            object.__setattr__(self, "_units", (known.number, units))
        return units

    def states(self, session: Session, entry: int) -> list[str]:
        """The states that an entry went through."""
        where = f"ledger = :id AND entry = :entry AND state <> '{STEP}' ORDER BY number"
        return [
            state for (state,) in session(f"SELECT state FROM event WHERE {where}", id=self.opening.id, entry=entry)
        ]

    def last_step(self, session: Session, entry: int) -> str | None:
        """The checksum of an entry's newest step, if it has one."""
        where = f"ledger = :id AND entry = :entry AND state = '{STEP}' ORDER BY number DESC LIMIT 1"
        rows = session(f"SELECT reason FROM event WHERE {where}", id=self.opening.id, entry=entry)
        return rows[0][0] if rows else None

    def knows_noise(self, session: Session, noise: str) -> bool:
        """Whether some release of any ledger here was reserved for the noise of this name."""
        return bool(session("SELECT 1 FROM event WHERE noise = :noise", noise=noise))

    def events(self, session: Session) -> Iterator[tuple[Event, str, str | None]]:
        """Every event with its digest and the text of its loss, a thousand at a time."""
        losses = dict(session("SELECT key, text FROM loss WHERE ledger = :id", id=self.opening.id))
        after = 0
        while rows := session(
            f"SELECT {_EVENT}, digest FROM event WHERE ledger = :id AND number > :after ORDER BY number LIMIT 1000",
            id=self.opening.id,
            after=after,
        ):
            for *values, digest in rows:
                event = Event(*values)
                yield event, digest, losses.get(event.loss or "")
            after = rows[-1][0]


_STOP = "Release nothing more; discretion ledger verify says where the fault is."
_OPENING = ", ".join(item.name for item in fields(Opening))
_EVENT = ", ".join(item.name for item in fields(Event))


def openings(store: Store) -> list[tuple[Opening, str]]:
    """The rows of all ledgers in a store, by name, with the digests written there."""
    with store.transaction() as session, readable(store.place):
        return _openings(session)


def _openings(session: Session, identity: str | None = None) -> list[tuple[Opening, str]]:
    """The rows of all ledgers, or of one, with the digests written there."""
    where, values = ("", {}) if identity is None else ("WHERE id = :id", {"id": identity})
    rows = session(f"SELECT {_OPENING}, digest FROM ledger {where} ORDER BY name", **values)
    return [(Opening(*values), digest) for *values, digest in rows]


def _values(row: Opening | Event) -> dict[str, Any]:
    return {item.name: getattr(row, item.name) for item in fields(row)}


def _insert(session: Session, table: str, **values: Any) -> None:
    session(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)})", **values)


@lru_cache(maxsize=4096)
def read_loss(loss: str) -> PrivacyLoss:
    """The loss that canonical JSON describes."""
    return PrivacyLoss.from_dict(json.loads(loss))
