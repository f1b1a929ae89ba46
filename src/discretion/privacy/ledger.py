"""The privacy budget of one data set: reserve the loss, durably; let the mechanism run; book the release.

A ledger is one SQLite file. It holds public data only: the budget, and a journal of events. Every reservation
counts as spent from the moment it is written, whatever happens afterwards, so that a crash can waste budget
but never make any. Nothing in the journal is ever changed or deleted; an entry's state is its latest event.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from discretion.privacy.conversion import round_up
from discretion.privacy.loss import (
    BoundedRange,
    Composition,
    Guarantee,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PureDP,
)
from discretion.privacy.mechanism import Checked, Mechanism, PublicError
from discretion.privacy.noise import Randomness, SeededRandomness, SystemRandomness
from discretion.privacy.release import (
    NotBookable,
    Release,
    canonical,
    library_version,
    public_json,
    utc_now,
)

SCHEMA = 1
"""Version of the tables, in the header of the file."""

APPLICATION_ID = int.from_bytes(b"Dscr")
"""In the header of the file: what tells a ledger from other SQLite databases."""

PATIENCE = 60.0
"""Seconds that one process waits for another to finish writing."""

T = TypeVar("T")

_APPEND_ONLY = "BEGIN SELECT RAISE (ABORT, 'a ledger is append-only'); END"
_LAYOUT = (
    """
    CREATE TABLE ledger (
        id          TEXT NOT NULL PRIMARY KEY,
        dataset     TEXT NOT NULL,
        epsilon     TEXT NOT NULL,
        delta       TEXT NOT NULL,
        neighbours  TEXT NOT NULL,
        created     TEXT NOT NULL,
        library     TEXT NOT NULL
    )
    """,
    # One journal. An entry bears the number of the event that reserved it.
    """
    CREATE TABLE event (
        number      INTEGER NOT NULL PRIMARY KEY,
        entry       INTEGER NOT NULL REFERENCES event (number),
        state       TEXT NOT NULL CHECK (state IN ('reserved', 'booked', 'failed')),
        created     TEXT NOT NULL,
        description TEXT,
        loss        TEXT,
        reason      TEXT,
        CHECK ((state = 'reserved') = (entry = number)),
        CHECK ((state = 'reserved') = (description IS NOT NULL)),
        CHECK ((state = 'reserved') = (loss IS NOT NULL)),
        CHECK ((state = 'failed') = (reason IS NOT NULL))
    )
    """,
    "CREATE UNIQUE INDEX event_ends_once ON event (entry) WHERE state <> 'reserved'",
    f"CREATE TRIGGER ledger_fixed BEFORE UPDATE ON ledger {_APPEND_ONLY}",
    f"CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger {_APPEND_ONLY}",
    f"CREATE TRIGGER event_fixed BEFORE UPDATE ON event {_APPEND_ONLY}",
    f"CREATE TRIGGER event_kept BEFORE DELETE ON event {_APPEND_ONLY}",
    # INSERT OR REPLACE deletes without asking the triggers on DELETE: these two stop it.
    f"CREATE TRIGGER ledger_once BEFORE INSERT ON ledger WHEN EXISTS (SELECT 1 FROM ledger) {_APPEND_ONLY}",
    "CREATE TRIGGER event_next BEFORE INSERT ON event "
    f"WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM event) {_APPEND_ONLY}",
)


class LedgerError(ValueError):
    """The ledger could not do what was asked; the message says what to do. Nothing was released."""


class BudgetExceeded(LedgerError):
    """The loss asked for does not fit into what is left of the budget. Nothing was written.

    All epsilons are at the ledger's delta: `budget`, `spent` (so far), `asked` (the loss by itself) and
    `together` (spent and asked composed, which is what must not exceed the budget; composition is not
    addition).
    """

    def __init__(self, budget: float, spent: float, asked: float, together: float, delta: float) -> None:
        self.budget, self.spent, self.asked, self.together, self.delta = budget, spent, asked, together, delta
        self.remaining = _difference(budget, spent)
        super().__init__(
            f"The privacy budget does not allow this: budget epsilon {budget!r}, spent {round_up(spent, 4)}, "
            f"remaining {_down(self.remaining)}, asked {round_up(asked, 4)}, "
            f"together {round_up(together, 4)} (at delta {delta!r}). Nothing was spent. "
            "Ask for less, by more noise or fewer releases."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.budget, self.spent, self.asked, self.together, self.delta)


class MechanismFailed(LedgerError):
    """A mechanism failed on the records; nothing was released. If its loss was reserved, it stays spent.

    The original error is dropped, because it may quote a record; only the name of its type is kept. To look
    for the cause, run the mechanism on made-up records.
    """


class State(StrEnum):
    """Where an entry stands. In each of them its loss is spent."""

    RESERVED = "reserved"
    BOOKED = "booked"
    FAILED = "failed"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Attributes:
        id: its number in the journal.
        state: what became of it.
        created: when it was reserved, in UTC; informative.
        description: what it was reserved for, public.
        loss: what it cost.
        reason: why it failed, if it did.
    """

    id: int
    state: State
    created: str
    description: dict[str, Any] = field(hash=False)
    loss: PrivacyLoss
    reason: str | None = None


@dataclass(frozen=True)
class Ledger:
    """The budget of one data set and the only door between a mechanism and its records.

    Make one with `create`, once per data set; open it with `open`. Several processes may use one file at
    once: each reservation is one exclusive transaction, synchronised to the disk before it returns. No
    connection is kept between calls, so a ledger may be shared between threads and carried across a fork.

    What the budget bounds: a mechanism may always depend on earlier releases. Where its parameters, and so
    its loss, were chosen by looking at them, the budget is proved to hold if the losses are all pure and
    their epsilons add up to it (Rogers, Roth, Ullman and Vadhan 2016), or all Gaussian (Smith and Thakurta
    2022; Koskela, Tobaben and Honkela 2022). For Renyi curves it is proved for one order fixed beforehand
    (Feldman and Zrnic 2021), while a ledger takes the best order of the sum: fix such losses before the first
    release. What is then guaranteed is the budget, not the smaller `spent()`.

    What a ledger cannot see: an older copy of its file put in its place (what was spent since is forgotten),
    another ledger for the same records, and somebody with write access who edits the file.

    Attributes:
        path: the file.
        id: a random name, written into the certificates of its releases.
        dataset: whose budget it is, in words.
        epsilon, delta: the budget.
        neighbours: the relation under which losses are counted.
    """

    path: Path
    id: str
    dataset: str
    epsilon: float
    delta: float
    neighbours: Neighbours

    # --- Making and opening

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        neighbours: Neighbours = Neighbours.REPLACE,
    ) -> Self:
        """A new ledger. Its budget is for ever: it is never raised.

        Args:
            path: a file that does not exist.
            dataset: whose budget it is, in words, such as "London sales 2018".
            epsilon, delta: the budget: all releases together are to be (epsilon, delta)-DP.
            neighbours: the relation under which losses are counted.

        Raises:
            LedgerError: the path exists or cannot be written.
            ValueError: epsilon infinite, NaN or negative; delta outside [0, 1); no name.
        """
        path = Path(path).absolute()
        neighbours = Neighbours(neighbours)
        if not isinstance(dataset, str) or not dataset.strip():
            raise ValueError("Name the data set whose budget this is.")
        epsilon, delta = float(epsilon), float(delta)
        if not (math.isfinite(epsilon) and epsilon >= 0.0):
            raise ValueError("A budget's epsilon must be finite and not negative.")
        if not 0.0 <= delta < 1.0:
            raise ValueError("A budget's delta must lie in [0, 1).")
        try:
            # O_EXCL: of two processes that create the same ledger one succeeds.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        except FileExistsError:
            raise LedgerError(f"{path} exists and is left as it is. Open it, or choose another path.") from None
        except OSError as error:
            raise LedgerError(f"Cannot create a ledger at {path}: {error.strerror}.") from None
        row = (
            str(uuid.uuid4()),
            dataset,
            repr(epsilon),
            repr(delta),
            neighbours.value,
            utc_now(),
            library_version(),
        )
        try:
            with _transaction(path, write=True) as connection:
                for statement in _LAYOUT:
                    connection.execute(statement)
                connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The ledger at `path`.

        Raises:
            LedgerError: there is none, or none that this version reads; the message says what to do.
        """
        path = Path(path).absolute()
        if not path.exists():
            raise LedgerError(
                f"There is no ledger at {path}. Make one, once per data set: "
                f'Ledger.create("{path.name}", dataset="...", epsilon=..., delta=...).'
            )
        with _transaction(path) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise LedgerError(f"{path} is not a ledger of discretion. Give the path of one, or create one.")
            if schema > SCHEMA:
                raise LedgerError(
                    f"{path} was written by a newer version of discretion: its layout is {schema}, and this "
                    f"version reads {SCHEMA}. Upgrade discretion."
                )
            row = connection.execute("SELECT id, dataset, epsilon, delta, neighbours FROM ledger").fetchone()
        if row is None:
            raise LedgerError(f"{path} is a ledger without a budget. Somebody damaged it: go back to a copy.")
        identity, dataset, epsilon, delta, neighbours = row
        return cls(path, identity, dataset, float(epsilon), float(delta), Neighbours(neighbours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close: every call opens the file and closes it again."""

    # --- Spending

    def run(self, mechanism: Mechanism, records: Any, *, n: int, randomness: Randomness | None = None) -> Release:
        """Reserve the loss of `mechanism` on `n` records, run it, book it, and hand over the release.

        The order is the guarantee. Whatever can be refused from public facts, or because the records lie
        outside the mechanism's domain, is refused first and for free. Then the loss is reserved on disk, and
        only then does the mechanism see the records. From there on the loss stays spent whatever happens, and
        a release whose certificate promises more than was reserved is withheld.

        Args:
            mechanism: public parameters only.
            records: what it runs on.
            n: the number of records, from which the loss is computed. Where it is private (add/remove neighbours, or
                a unit that may own several records) it is not written down.
            randomness: a bookable source; by default the operating system's.

        Returns:
            The release, its certificate naming the entry.

        Raises:
            NotBookable: the noise could be replayed.
            BudgetExceeded, NeighbourMismatch: the loss does not fit into the budget, or not under its
                relation.
            PublicError: the mechanism refused the records in public words.
            MechanismFailed: the mechanism failed in any other way; nothing of its message is kept.
            LedgerError: the ledger could not be written.
        """
        randomness = SystemRandomness() if randomness is None else randomness
        if randomness.bookable is not True or isinstance(randomness, SeededRandomness):
            raise NotBookable(
                f"{type(randomness).__name__} can be replayed, so a release made with it cannot be booked. "
                "Leave out `randomness` to use the operating system's; without a ledger it can be tried out."
            )
        if not isinstance(mechanism, Mechanism):
            raise ValueError(f"{type(mechanism).__name__} is not a mechanism: see discretion.privacy.Mechanism.")
        n = _count(n)
        loss = mechanism.privacy_loss(n)
        public = getattr(mechanism, "n_is_public", self.neighbours is not Neighbours.ADD_REMOVE)
        description = {
            "mechanism": mechanism.name,
            "parameters": mechanism.parameters(),
            "n": n if public else None,
        }
        if isinstance(mechanism, Checked):
            found = _attempt(lambda: mechanism.check(records))
            if isinstance(found, _Failure):
                raise found.error("before anything was spent")
            # Under add/remove the true number of records is private: nothing may depend on it.
            if self.neighbours is not Neighbours.ADD_REMOVE and found not in (n, None):
                raise PublicError("The records are not n in number. Give their number as n. Nothing was spent.")

        entry = self.reserve(loss, description)
        release = _attempt(lambda: self._kept(mechanism.run(records, randomness), mechanism, loss, n))
        # Raised here, outside every `except`, so that no original error hangs on as __context__.
        if isinstance(release, _Failure):
            error = release.error(f"after its loss was reserved as entry {entry}, which stays spent")
            self.fail(entry, f"{type(error).__name__}: {error}")
            raise error
        self.book(entry)
        return release.booked(f"{self.id}#{entry}")

    def reserve(self, loss: PrivacyLoss, description: Mapping[str, Any]) -> int:
        """Spend `loss`: on disk before this returns.

        The composition of all entries, whatever became of them, and the new one must have an epsilon of at
        most the budget's, at the budget's delta. It is computed anew from the losses on disk each time, so
        rounding never accumulates; epsilons that are pure throughout (or of bounded range) are added as exact
        decimals.

        Args:
            loss: what is judged and kept is what `loss.to_dict(delta)` writes.
            description: what it is for: public facts that JSON can write.

        Returns:
            The number of the new entry.

        Raises:
            BudgetExceeded: the budget does not allow it; nothing was written.
            NeighbourMismatch: the loss is for other neighbours than the budget.
            LedgerError: the ledger could not be written.
        """
        if loss.neighbours is not self.neighbours:
            raise NeighbourMismatch(
                f"This budget is for {self.neighbours.value} neighbours and the loss for "
                f"{loss.neighbours.value} neighbours; they do not add. Use a mechanism for the former."
            )
        text = canonical(public_json(loss.to_dict(self.delta or None), "loss"))
        about = canonical(public_json(description, "description"))
        with self._transaction(write=True) as connection:
            counts = _losses(connection)
            together, value = self._compose({**counts, text: counts.get(text, 0) + 1})
            budget = _exact(self.epsilon) if isinstance(value, Fraction) else self.epsilon
            if not value <= budget:
                spent, asked = self._compose(counts)[0], self._compose({text: 1})[0]
                raise BudgetExceeded(self.epsilon, spent.epsilon, asked.epsilon, together.epsilon, self.delta)
            number = _next(connection)
            connection.execute(
                "INSERT INTO event (number, entry, state, created, description, loss) "
                "VALUES (?, ?, 'reserved', ?, ?, ?)",
                (number, number, utc_now(), about, text),
            )
        return number

    def book(self, entry: int) -> None:
        """Write down that the release for which `entry` was reserved has been made.

        Raises:
            LedgerError: no such entry, or one that has ended already.
        """
        self._end(entry, State.BOOKED, None)

    def fail(self, entry: int, reason: str) -> None:
        """Write down that nothing came of `entry`, and the reason, which is public. Its loss stays spent.

        Raises:
            LedgerError: no such entry, or one that has ended already.
        """
        self._end(entry, State.FAILED, str(reason))

    # --- Asking: none of these writes

    def spent(self) -> Guarantee:
        """What all entries together guarantee at the budget's delta: reserved, booked and failed alike."""
        with self._transaction() as connection:
            counts = _losses(connection)
        return self._compose(counts)[0]

    def remaining(self) -> float:
        """The budget's epsilon less that of `spent()`, rounded down; at least 0.

        A figure to plan with, not a promise, because composition is not addition: small losses often fit in
        more often than it says, and a loss for which only a coarse rule holds may not fit in at all.
        """
        return _difference(self.epsilon, self.spent().epsilon)

    def entries(self) -> list[Entry]:
        """Every entry, in the order of reservation."""
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT start.number, coalesce(last.state, start.state), start.created, start.description, "
                "start.loss, last.reason FROM event AS start LEFT JOIN event AS last "
                "ON last.entry = start.number AND last.state <> 'reserved' "
                "WHERE start.state = 'reserved' ORDER BY start.number"
            ).fetchall()
        return [
            Entry(number, State(state), created, json.loads(description), _read(loss), reason)
            for number, state, created, description, loss, reason in rows
        ]

    # --- Inside

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with _transaction(self.path, write=write) as connection:
            row = connection.execute("SELECT id, epsilon, delta, neighbours FROM ledger").fetchone()
            if row != (self.id, repr(self.epsilon), repr(self.delta), self.neighbours.value):
                raise LedgerError(f"{self.path} is no longer the ledger that was opened. Open it again.")
            yield connection

    def _end(self, entry: int, state: State, reason: str | None) -> None:
        with self._transaction(write=True) as connection:
            states = connection.execute("SELECT state FROM event WHERE entry = ? ORDER BY number", (entry,)).fetchall()
            if not states:
                raise LedgerError(f"The ledger has no entry {entry}. Its entries are listed by entries().")
            if len(states) > 1:
                raise LedgerError(f"Entry {entry} is {states[-1][0]} already; an entry ends once.")
            connection.execute(
                "INSERT INTO event (number, entry, state, created, reason) VALUES (?, ?, ?, ?, ?)",
                (_next(connection), entry, state.value, utc_now(), reason),
            )

    def _compose(self, counts: Mapping[str, int]) -> tuple[Guarantee, Fraction | float]:
        """The guarantee of so many of each loss, and its epsilon once more as the number to be judged."""
        if not counts:
            return Guarantee(0.0, self.delta, None, "nothing spent", self.neighbours), Fraction(0)
        parts = tuple((_read(text), count) for text, count in counts.items())
        guarantee = Composition(parts).guarantee(self.delta)
        if not guarantee.epsilon >= 0.0:
            raise LedgerError("The losses of this ledger do not add up to a number; nothing more may be spent.")
        pure = _pure_sum(parts)
        # Within rounding of the plain sum the composed value is that sum; below it, another rule did better.
        if pure is None or guarantee.epsilon < pure * (1 - Fraction(1, 10**12)):
            return guarantee, guarantee.epsilon
        rule = "sum of pure epsilons"
        return Guarantee(_float(pure, up=True), self.delta, None, rule, self.neighbours), pure

    def _kept(self, release: Any, mechanism: Mechanism, loss: PrivacyLoss, n: int) -> Release | _Failure:
        """The release, if it promises no more than what was reserved for it."""
        if not isinstance(release, Release):
            return _Failure("a result that is not a Release")
        certificate = release.certificate
        if not certificate.bookable:
            return _Failure("a TEST ONLY release", NotBookable)
        claimed = PrivacyLoss.from_dict(certificate.loss)
        least = (1.0 - 1e-9) * loss.epsilon(certificate.delta)
        kept = (
            certificate.mechanism == mechanism.name
            and certificate.n in (n, None)
            and certificate.neighbours is claimed.neighbours is self.neighbours
            and certificate.epsilon >= least
            and claimed.epsilon(certificate.delta) >= least
        )
        return release if kept else _Failure("a certificate that is not the run's")


@dataclass(frozen=True)
class _Failure:
    """What may be kept of a failure: what it was in public words, and its message if that is public."""

    what: str
    type: type[BaseException] = MechanismFailed
    message: str | None = None

    def error(self, when: str) -> BaseException:
        """The exception to raise in its place."""
        if self.type is MechanismFailed:
            return MechanismFailed(
                f"The mechanism failed with {self.what} {when}. Details are withheld, because they may quote "
                "a record. To find the cause, run the mechanism on made-up records."
            )
        if self.type is NotBookable:
            return NotBookable(f"The mechanism came back with {self.what} {when}; its noise can be replayed.")
        return self.type(*([self.message] if self.message is not None else []))


def _attempt(call: Callable[[], T]) -> T | _Failure:
    """The result of `call`, or what may be kept of its exception, which ends here with its traceback."""
    try:
        return call()
    except PublicError as error:
        return _Failure(type(error).__name__, PublicError, str(error))
    except KeyboardInterrupt:
        return _Failure("an interrupt", KeyboardInterrupt)
    except BaseException as error:
        return _Failure(type(error).__name__)


@contextmanager
def _transaction(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """One transaction on one connection; on any exception nothing of it is kept.

    BEGIN IMMEDIATE takes the write lock before anything is read, so that no two processes decide on the
    same state. synchronous = EXTRA also synchronises the folder once the rollback journal is gone: with
    FULL, a power cut just after the commit can bring the journal back, and with it the state before the
    reservation.
    """
    try:
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=PATIENCE)
        ) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: {_advice(error)}") from error


def _advice(error: sqlite3.Error) -> str:
    """What a database error means for a person, and what to do about it."""
    # The low byte is the primary code; SQLite refines it in the others.
    match getattr(error, "sqlite_errorcode", -1) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another process keeps the ledger locked. Nothing was spent. Try again when it has finished."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return "the ledger cannot be written. Nothing was spent. Make the file and its folder writable."
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                "the disk is full or failing. Make room or mend it, then look at entries(): "
                "what is listed is spent, what is not listed was not."
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return (
                "this is not a ledger of discretion, or it is damaged. If it was one, go back to its latest "
                "copy and reserve again whatever was released since."
            )
        case sqlite3.SQLITE_CANTOPEN:
            return "the ledger cannot be opened. Check that it is there and that its folder can be written."
        case _:
            return f"the database refused ({error}). Nothing was spent."


def _read(loss: str) -> PrivacyLoss:
    return PrivacyLoss.from_dict(json.loads(loss))


def _losses(connection: sqlite3.Connection) -> dict[str, int]:
    """How often each loss, as JSON text, was reserved."""
    return dict(
        connection.execute("SELECT loss, count(*) FROM event WHERE state = 'reserved' GROUP BY loss ORDER BY loss")
    )


def _next(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT coalesce(max(number), 0) + 1 FROM event").fetchone()[0]


def _count(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError("n, the number of records, must be a whole number, 0 or more.")
    return int(n)


def _exact(x: float) -> Fraction:
    """The decimal that a person sees for x: 0.1 is one tenth, so that ten of them are one."""
    return Fraction(Decimal(repr(float(x))))


def _pure_sum(parts: Iterable[tuple[PrivacyLoss, int]]) -> Fraction | None:
    """The exact sum of the epsilons if all parts are pure or of bounded range (eta is eta-DP), else None."""
    total = Fraction(0)
    for loss, count in parts:
        if isinstance(loss, Composition):
            value = _pure_sum(loss.parts)
        elif isinstance(loss, PureDP | BoundedRange) and math.isfinite(epsilon := loss.epsilon(0.0)):
            value = _exact(epsilon)
        else:
            return None
        if value is None:
            return None
        total += count * value
    return total


def _float(x: Fraction, *, up: bool) -> float:
    """The float nearest to x, which is not negative, whose decimal is on the side asked for."""
    try:
        y = float(x)
    except OverflowError:
        return math.inf if up else sys.float_info.max
    if up and _exact(y) < x:
        return math.nextafter(y, math.inf)
    if not up and _exact(y) > x:
        return math.nextafter(y, -math.inf)
    return y


def _difference(budget: float, spent: float) -> float:
    """budget - spent in decimals, rounded down, at least 0."""
    if not spent < budget:
        return 0.0
    return _float(_exact(budget) - _exact(spent), up=False)


def _down(x: float) -> str:
    """x with 4 decimals, rounded down."""
    return f"{Decimal(repr(x)).quantize(Decimal('0.0001'), ROUND_FLOOR, Context(prec=400)):f}"
