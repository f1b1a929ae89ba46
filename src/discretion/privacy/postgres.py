"""Ledgers in a PostgreSQL database, in a schema of their own named `discretion`. Needs the extra `postgres`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from discretion.privacy import store
from discretion.privacy.chain import LedgerError

try:
    import psycopg  # noqa: F401  (the driver; SQLAlchemy would import it as late as the first connection)
    import sqlalchemy
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError
except ImportError:
    raise LedgerError(
        "A ledger in PostgreSQL needs SQLAlchemy and psycopg: pip install 'discretion[postgres]'."
    ) from None

__all__ = ["PostgresStore", "postgres_store"]

_GUARDS = (
    """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$
    """,
    """
    CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.number <> 1 + (SELECT coalesce(max(number), 0) FROM discretion.event WHERE ledger = NEW.ledger)
        OR NEW.who <> session_user
        THEN RAISE EXCEPTION 'a ledger is append-only';
        END IF;
        RETURN NEW;
    END $$
    """,
    "CREATE TRIGGER event_next BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION follow()",
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_next",
    *(
        statement
        for table in ("ledger", "loss", "event")
        for statement in (
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_fixed",
        )
    ),
)

# One round trip; for this transaction only, so that a pool between here and the server does no harm.
_SETTINGS = """
    SELECT CAST(session_user AS text), set_config('search_path', 'discretion', true),
           set_config('synchronous_commit', 'on', true), set_config('lock_timeout', :patience, true)
"""
_READY = "SELECT to_regclass('discretion.ledger') IS NOT NULL"
_LOCK = "SELECT pg_advisory_xact_lock(:number)"


def postgres_store(url: str) -> PostgresStore:
    """The store at `postgresql://[user[:password]@][host][:port]/database[?ledger=NAME][&host=FOLDER]`.

    Raises:
        ValueError: no such URL. The message does not quote it, because it may hold a password.
    """
    try:
        parsed: Any = sqlalchemy.make_url(url)
    except (SQLAlchemyError, ValueError):
        parsed = None
    name = None if parsed is None else parsed.query.get("ledger")
    if parsed is None or not parsed.database or isinstance(name, tuple):
        raise ValueError("A ledger's URL is postgresql://user@host:port/database, with ?ledger=NAME after it.")
    if {"password", "passfile", "sslpassword"} & parsed.query.keys():
        raise ValueError("Put no password after the ? of a ledger's URL; keep it in PGPASSWORD or in ~/.pgpass.")
    who = f"{parsed.username}@" if parsed.username else ""
    where = f"{parsed.host or parsed.query.get('host') or ''}{f':{parsed.port}' if parsed.port else ''}"
    shown = f"postgresql://{who}{where}/{parsed.database}{f'?ledger={name}' if name else ''}"
    target = parsed.set(drivername="postgresql+psycopg").difference_update_query(["ledger"])
    return PostgresStore(shown, name, target.render_as_string(hide_password=False))


@dataclass(frozen=True)
class PostgresStore:
    """Ledgers in a database. A few connections are kept for the next transaction; a forked process makes its own.

    A pickle of it holds no password: where it is read, PGPASSWORD or `~/.pgpass` has to give it.
    """

    place: str
    name: str | None
    url: str = field(repr=False, compare=False)

    path: None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        bare = sqlalchemy.make_url(self.url)._replace(password=None).render_as_string(hide_password=False)
        return {item.name: getattr(self, item.name) for item in fields(self)} | {"url": bare}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> PostgresStore:
        return self

    @contextmanager
    def creation(self) -> Iterator[store.Session]:
        with self._begun("READ COMMITTED", "No ledger was made.") as session:
            session(_LOCK, number=_number("discretion"))
            if session(_READY) != [(True,)]:
                for statement in ("CREATE SCHEMA IF NOT EXISTS discretion", *store.TABLES, *_GUARDS):
                    session.connection.exec_driver_sql(statement)
            yield session

    def check(self, session: store.Session) -> None:
        """Pages are the server's own business (its data checksums)."""

    @contextmanager
    def transaction(self, *, write: str | None = None, undone: str = "") -> Iterator[store.Session]:
        # A writer takes the ledger's lock first, and at READ COMMITTED every later statement sees what was committed
        # until then. An advisory lock, so that an analyst's role needs no right but to read and to insert.
        with self._begun("REPEATABLE READ" if write is None else "READ COMMITTED", undone) as session:
            if write is not None:
                session(_LOCK, number=_number(write))
            yield session

    @contextmanager
    def _begun(self, level: Any, undone: str) -> Iterator[_PostgresSession]:
        committing, problem = False, ""
        try:
            with _engine(self.url, os.getpid()).connect().execution_options(isolation_level=level) as connection:
                patience = f"{1000 * store.PATIENCE:.0f}"
                who = connection.execute(_text(_SETTINGS), {"patience": patience}).one()[0]
                yield _PostgresSession(connection, who)
                committing = True
                connection.commit()
        except SQLAlchemyError as error:
            password = sqlalchemy.make_url(self.url).password
            problem = _meaning(error, undone, committing).replace(str(password or "\0"), "***")
        # Raised out here: the original error holds the connection's parameters.
        if problem:
            raise LedgerError(f"{self.place}: {problem}")


def _number(lock: str) -> int:
    """The number of an advisory lock; two ledgers with one number would only wait for each other."""
    return int.from_bytes(hashlib.sha256(lock.encode()).digest()[:8], signed=True)


@lru_cache(maxsize=16)
def _engine(url: str, process: int) -> sqlalchemy.Engine:
    """The connections of one process: those of its parent are the parent's."""
    return sqlalchemy.create_engine(
        url,
        pool_size=2,
        max_overflow=2,
        pool_timeout=store.PATIENCE,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": 10, "application_name": "discretion"},
    )


@dataclass(frozen=True)
class _PostgresSession:
    connection: sqlalchemy.Connection
    who: str

    def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        result = self.connection.execute(_text(statement), values)
        return [tuple(row) for row in result] if result.returns_rows else []


_text = lru_cache(maxsize=256)(sqlalchemy.text)


def _meaning(error: SQLAlchemyError, undone: str, committing: bool) -> str:
    """What a database error means for a person, and what to do about it."""
    original = error.orig if isinstance(error, DBAPIError) else None
    code = getattr(original, "sqlstate", None) or ""
    if committing:
        undone = "Look at entries() before anything else: what is listed is spent, what is not listed was not."
    match code[:2], code:
        case _, "42P01":
            parts = (
                "there is no ledger in this database, or none that this role may use.",
                undone,
                'Make one, once per data set: discretion ledger init URL --dataset "..." --epsilon ... --delta ...',
            )
        case _, "55P03":
            parts = "another process keeps the ledger locked.", undone, "Try again when it has finished."
        case _, "42501" | "25006":
            parts = "this role, or this server, may not write the ledger.", undone, "Grant it SELECT and INSERT."
        case "53" | "58", _:
            parts = f"the server's disk or memory is full or failing ({code}).", undone, "Mend that and try again."
        case "57" | "08" | "", _:
            parts = (
                f"the server cannot be reached, or went away ({' '.join(str(original or 'timeout').split())}).",
                undone,
                "Check that it runs and that name, port and password are right, and try again.",
            )
        case "28" | "3D", _:
            parts = f"the server refused the connection ({code}).", undone, "Check user, password and database."
        case _:
            diagnosis = getattr(getattr(original, "diag", None), "message_primary", None)
            parts = f"the database refused ({diagnosis or code}).", undone
    return " ".join(part for part in parts if part)
