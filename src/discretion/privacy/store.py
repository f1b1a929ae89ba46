"""Where a ledger is kept: one SQLite file, or a PostgreSQL database that several ledgers share.

A store knows transactions and tables, and nothing of privacy. Both kinds take the same statements; what differs is how
they begin, how one writer keeps out the others, and what their errors mean.
"""

from __future__ import annotations

import getpass
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from discretion.privacy.chain import LAYOUT, LedgerError, Tampered, check_layout

__all__ = ["Session", "SqliteStore", "Store", "store_at"]

APPLICATION_ID = int.from_bytes(b"Dscr")
"""In the header of a file: what tells a ledger from other SQLite databases."""

PATIENCE = 60.0
"""Seconds that one process waits for another to finish writing."""


class Session(Protocol):
    """An open transaction."""

    @property
    def who(self) -> str:
        """The user in whose name it runs; informative."""
        ...

    def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement with `:name` parameters gives."""
        ...


class Store(Protocol):
    """A place for ledgers.

    Attributes:
        place: how messages name it; never a password.
        name: which ledger of it is meant; None for the only one.
        path: the file, None for a database.
    """

    @property
    def place(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def path(self) -> Path | None: ...

    def creation(self) -> AbstractContextManager[Session]:
        """A transaction in which the tables are there, for the row of a new ledger."""
        ...

    def check(self, session: Session) -> None:
        """Let the store look through its own pages.

        Raises:
            LedgerError: they do not fit together.
        """
        ...

    def transaction(self, *, write: str | None = None, undone: str = "") -> AbstractContextManager[Session]:
        """One transaction; on any exception nothing of it is kept.

        Args:
            write: the id of the ledger that is written, of which this is then the only writer; None to read, from one
                state of the store.
            undone: what an error before the commit means for the caller, such as "Nothing was spent.".

        Raises:
            LedgerError: the store failed; the message says what to do.
        """
        ...


def store_at(place: str | os.PathLike[str]) -> Store:
    """The store at a path or a `postgresql://` URL.

    Raises:
        ValueError: a URL of another kind, or one that is malformed.
        LedgerError: PostgreSQL's client is not installed.
    """
    scheme, separator, _ = place.partition("://") if isinstance(place, str) else ("", "", "")
    if not separator:
        return SqliteStore(Path(place).absolute())
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise ValueError(f"A ledger is a file, or in a database at postgresql://..., not at {scheme}://.")
    from discretion.privacy.postgres import postgres_store

    return postgres_store(str(place))


TABLES = (
    """
    CREATE TABLE ledger (
        id          TEXT NOT NULL PRIMARY KEY,
        name        TEXT NOT NULL UNIQUE,
        layout      INTEGER NOT NULL,
        dataset     TEXT NOT NULL,
        epsilon     TEXT NOT NULL,
        delta       TEXT NOT NULL,
        neighbours  TEXT NOT NULL,
        composition TEXT NOT NULL,
        renyi_order TEXT,
        fingerprint TEXT,
        created     TEXT NOT NULL,
        library     TEXT NOT NULL,
        digest      TEXT NOT NULL
    )
    """,
    # Each distinct loss once, by its SHA-256: a thousand releases at one price need one table of its curve.
    """
    CREATE TABLE loss (
        ledger TEXT NOT NULL REFERENCES ledger (id),
        key    TEXT NOT NULL,
        text   TEXT NOT NULL,
        PRIMARY KEY (ledger, key)
    )
    """,
    """
    CREATE TABLE event (
        ledger      TEXT NOT NULL REFERENCES ledger (id),
        number      INTEGER NOT NULL,
        entry       INTEGER NOT NULL,
        state       TEXT NOT NULL CHECK (state IN ('reserved', 'step', 'booked', 'failed')),
        who         TEXT NOT NULL,
        created     TEXT NOT NULL,
        description TEXT,
        loss        TEXT,
        reason      TEXT,
        noise       TEXT,
        digest      TEXT NOT NULL,
        PRIMARY KEY (ledger, number),
        FOREIGN KEY (ledger, loss) REFERENCES loss (ledger, key),
        CHECK ((state = 'reserved') = (description IS NOT NULL)),
        CHECK ((state = 'reserved') = (loss IS NOT NULL)),
        CHECK ((state IN ('step', 'failed')) = (reason IS NOT NULL))
    )
    """,
    "CREATE UNIQUE INDEX event_begins_once ON event (ledger, entry) WHERE state = 'reserved'",
    "CREATE UNIQUE INDEX event_ends_once ON event (ledger, entry) WHERE state IN ('booked', 'failed')",
    # Over all ledgers of the place: two releases never share their noise.
    "CREATE UNIQUE INDEX event_noise_once ON event (noise) WHERE noise IS NOT NULL",
)

_REFUSE = "BEGIN SELECT RAISE (ABORT, 'a ledger is append-only'); END"
TRIGGERS = (
    *(
        f"CREATE TRIGGER {table}_{action} BEFORE {action} ON {table} {_REFUSE}"
        for table in ("ledger", "loss", "event")
        for action in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE deletes without asking the triggers on DELETE: these stop it. One file, one ledger.
    f"CREATE TRIGGER ledger_once BEFORE INSERT ON ledger WHEN EXISTS (SELECT 1 FROM ledger) {_REFUSE}",
    f"""
    CREATE TRIGGER loss_once BEFORE INSERT ON loss
    WHEN EXISTS (SELECT 1 FROM loss WHERE ledger = NEW.ledger AND key = NEW.key) {_REFUSE}
    """,
    f"""
    CREATE TRIGGER event_next BEFORE INSERT ON event
    WHEN NEW.number <> 1 + (SELECT coalesce(max(number), 0) FROM event WHERE ledger = NEW.ledger) {_REFUSE}
    """,
)


@dataclass(frozen=True)
class SqliteStore:
    """One ledger in one file. No connection is kept between transactions."""

    path: Path
    name: None = None

    @property
    def place(self) -> str:
        return str(self.path)

    @contextmanager
    def creation(self) -> Iterator[Session]:
        path = self.path
        try:
            # O_EXCL: of two processes that create the same ledger one succeeds.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        except FileExistsError:
            raise LedgerError(f"{path} exists and is left as it is. Open it, or choose another path.") from None
        except OSError as error:
            raise LedgerError(f"Cannot create a ledger at {path}: {error.strerror}.") from None
        try:
            with self._begun("BEGIN IMMEDIATE", "No ledger was made.") as connection:
                for statement in (*TABLES, *TRIGGERS):
                    # Without a rowid the primary key is the table: no index to it can be damaged by itself.
                    rowid = " WITHOUT ROWID" if "CREATE TABLE" in statement else ""
                    connection.execute(statement + rowid)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
                yield _SqliteSession(connection)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def check(self, session: Session) -> None:
        found = session("PRAGMA integrity_check(1)")
        if found != [("ok",)]:
            raise Tampered(f"{self.path}: the file is damaged. Go back to its latest copy that verifies.")

    @contextmanager
    def transaction(self, *, write: str | None = None, undone: str = "") -> Iterator[Session]:
        with self._begun("BEGIN" if write is None else "BEGIN IMMEDIATE", undone) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                if not self.path.stat().st_size:
                    raise LedgerError(
                        f"{self.path} is not a ledger but an empty file: its creation was interrupted, and nothing was "
                        "ever spent on it. Delete it and create the ledger again."
                    )
                raise LedgerError(f"{self.path} is not a ledger of discretion. Give the path of one, or create one.")
            check_layout(self.place, layout)
            yield _SqliteSession(connection)

    @contextmanager
    def _begun(self, begin: str, undone: str) -> Iterator[sqlite3.Connection]:
        """One transaction on one connection.

        BEGIN IMMEDIATE takes the write lock before anything is read, so that no two processes decide on the
        same state. synchronous = EXTRA also synchronises the folder once the rollback journal is gone: with
        FULL, a power cut just after the commit can bring the journal back, and with it the state before the
        reservation.
        """
        uri = f"{self.path.as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=PATIENCE)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {_meaning(error, undone)}") from error
        except UnicodeDecodeError:
            # The text of SQLite's own complaint about a damaged schema.
            raise LedgerError(f"{self.path}: {_meaning(sqlite3.DatabaseError(), undone, damaged=True)}") from None


@dataclass(frozen=True)
class _SqliteSession:
    connection: sqlite3.Connection

    @property
    def who(self) -> str:
        try:
            return getpass.getuser()
        except (OSError, KeyError, ImportError):
            return "unknown"

    def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, values).fetchall()


def _meaning(error: sqlite3.Error, undone: str, *, damaged: bool = False) -> str:
    """What a database error means for a person, and what to do about it."""
    # The low byte is the primary code; SQLite refines it in the others.
    match sqlite3.SQLITE_CORRUPT if damaged else getattr(error, "sqlite_errorcode", -1) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            parts = "another process keeps the ledger locked.", undone, "Try again when it has finished."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            parts = "the ledger cannot be written.", undone, "Make the file and its folder writable."
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            parts = (
                "the disk is full or failing. Make room or mend it, then look at entries():",
                "what is listed is spent, what is not listed was not.",
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            parts = (
                "this is not a ledger of discretion, or it is damaged.",
                undone,
                "If it was one, go back to its latest copy and reserve again whatever was released since.",
            )
        case sqlite3.SQLITE_CANTOPEN:
            parts = (
                "the ledger cannot be opened.",
                undone,
                "Check that it is there and that its folder can be written.",
            )
        case _:
            parts = f"the database refused ({error}).", undone
    return " ".join(part for part in parts if part)
