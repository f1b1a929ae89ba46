"""Processes that charge a ledger and may be killed at it, and what has to be true of the ledger afterwards."""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.postgres import Cluster
from discretion.privacy import (
    BudgetExceeded,
    Certificate,
    Entry,
    Ledger,
    LedgerError,
    Neighbours,
    PrivacyLoss,
    PureDP,
    Release,
    State,
)

Tell = Callable[[str], object]
UNIT = Fraction(1, 10)
"""Epsilon of one charge. It is pure, so that what is spent is known to the last decimal."""


@dataclass
class Drill:
    """What a drill did, in figures, and every promise it saw broken."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def expect(self, true: bool, otherwise: str) -> None:
        """Note a breach unless `true`."""
        if not true:
            self.breaches.append(otherwise)

    def __str__(self) -> str:
        figures = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        return f"{figures}; {len(self.breaches)} broken promises" + "".join(f"\n  {each}" for each in self.breaches[:5])


# --- Where ledgers are kept


class Files:
    """Ledgers as SQLite files in a folder of their own."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self.folder, self._numbers = folder, count(1)

    def free(self) -> str:
        """A place where no ledger is."""
        return str(self.folder / f"{next(self._numbers)}.ledger")

    def fresh(self, charges: int, delta: float = 0.0) -> str:
        """The place of a new ledger whose budget allows so many charges."""
        return create(self.free(), charges, delta)

    def settle(self) -> None:
        """A killed process leaves nothing running."""


class Server:
    """Ledgers in one database of a PostgreSQL server."""

    name = "PostgreSQL"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.url, self._numbers = cluster, cluster.database(), count(1)

    def free(self) -> str:
        """A place where no ledger is."""
        return f"{self.url}&ledger=book{next(self._numbers)}"

    def fresh(self, charges: int, delta: float = 0.0) -> str:
        """The place of a new ledger whose budget allows so many charges."""
        return create(self.free(), charges, delta)

    def settle(self) -> None:
        """Wait until the server has finished what killed clients had asked for."""
        busy = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle'"
        while self.cluster.sql(busy) != "1":  # this question's own connection
            time.sleep(0.005)


Site = Files | Server


@contextmanager
def site(kind: str, *, durable: bool = True) -> Iterator[Site]:
    """Somewhere to put ledgers, `sqlite` or `postgresql`, removed at the end."""
    if kind == "postgresql":
        with Cluster(durable=durable) as cluster:
            yield Server(cluster)
    else:
        folder = Path(tempfile.mkdtemp(prefix="drill-", dir=None if durable else "/dev/shm"))
        try:
            yield Files(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def create(place: str, charges: int, delta: float = 0.0) -> str:
    """A new ledger there whose budget allows so many charges."""
    Ledger.create(place, dataset="drill", epsilon=float(charges * UNIT), delta=delta)
    return place


# --- Charging


@dataclass(frozen=True)
class Counting:
    """A mechanism that costs one unit and tells when it was handed the records."""

    tell: Tell
    name: str = "drill"
    neighbours: Neighbours = Neighbours.REPLACE

    def privacy_loss(self, n: int) -> PrivacyLoss:
        return unit()

    def parameters(self) -> dict[str, Any]:
        return {}

    def run(self, records: Any, randomness: Any) -> Release:
        self.tell("handed")
        return Release(Certificate.issue(self, n=1, delta=0.0, unit="one record", randomness=randomness))


def unit() -> PureDP:
    """The loss of one charge."""
    return PureDP(float(UNIT), neighbours=Neighbours.REPLACE)


def charge(ledger: Ledger, tell: Tell) -> bool:
    """Reserve, run, book; tell how far it came. False where the budget is spent or the ledger failed."""
    try:
        ledger.run(Counting(tell), [0.0], n=1)
    except BudgetExceeded:
        tell("refused")
        return False
    except LedgerError as error:
        tell(f"failed {' '.join(str(error).split())}")
        return False
    tell("released")
    return True


class Child:
    """A forked process that does `work` and tells by a pipe how far it came.

    Whatever escapes from `work` is told as a line that starts with "broke".
    """

    def __init__(self, work: Callable[[Tell], object]) -> None:
        self._ear, mouth = os.pipe()
        self._heard = b""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._ear)

                def tell(word: str) -> object:
                    return os.write(mouth, f"{word}\n".encode())

                try:
                    work(tell)
                except BaseException as error:
                    tell(f"broke {type(error).__name__}: {' '.join(str(error).split())}")
            finally:
                os._exit(0)
        os.close(mouth)

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Sleep so long, or less where it tells something or ends."""
        if select.select([self._ear], [], [], seconds)[0]:
            self._heard += os.read(self._ear, 65536)

    def has_told(self, word: str) -> bool:
        """Whether it has told this by now."""
        self.wait(0.0)
        return word in self._heard.decode().splitlines()

    def told(self, *, reaped: bool = False) -> list[str]:
        """Everything it told, once it has ended."""
        while part := os.read(self._ear, 65536):
            self._heard += part
        os.close(self._ear)
        if not reaped:
            os.waitpid(self.pid, 0)
        return self._heard.decode().splitlines()


def told_by(work: Callable[[Tell], object]) -> list[str]:
    """What a forked process tells that does `work` undisturbed."""
    return Child(work).told()


# --- What has to be true


def seen(place: str) -> tuple[list[Entry], str]:
    """Every entry, and the digest that stands for them."""
    ledger = Ledger.open(place)
    return ledger.entries(), ledger.head()


def same(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Whether they are the same entries in the same states."""
    return [(each.id, each.state, each.created) for each in one] == [(e.id, e.state, e.created) for e in other]


def examine(drill: Drill, place: str, told: Sequence[str], before: tuple[list[Entry], str]) -> tuple[list[Entry], str]:
    """Hold the ledger against what one process told that charged it at most once.

    It opens and its chain is whole; nothing earlier has changed; records were handed over only for what is spent; at
    most one entry is new; what was released is booked; what is spent is the sum of the entries, within the budget.
    """
    try:
        ledger = Ledger.open(place)
        ledger.verify(before[1])
        entries, head = ledger.entries(), ledger.head()
        spent = ledger.spent().epsilon
    except Exception as error:
        drill.breaches.append(f"does not open: {type(error).__name__}: {error}")
        return before
    old, new = entries[: len(before[0])], entries[len(before[0]) :]
    drill.expect(same(old, before[0]), "an earlier entry changed")
    drill.expect(len(new) <= 1, f"{len(new)} entries for one charge")
    drill.expect("handed" not in told or len(new) == 1, "a refund after the records were read")
    drill.expect("released" not in told or [each.state for each in new] == [State.BOOKED], "released but not booked")
    drill.expect(spent == float(len(entries) * UNIT), f"spent {spent} with {len(entries)} entries")
    drill.expect(spent <= ledger.epsilon, f"overspent: {spent} of {ledger.epsilon}")
    for word in told:
        drill.expect(not word.startswith("broke"), word)
    return entries, head


def verify(drill: Drill, ledger: Ledger) -> None:
    """Note a breach unless the ledger's chain is whole and within its budget."""
    try:
        ledger.verify()
    except LedgerError as error:
        drill.breaches.append(f"does not verify: {error}")


def examine_all(drill: Drill, place: str, told: Sequence[str]) -> None:
    """Hold a ledger, new before them, against everything that any number of charges told."""
    ledger = Ledger.open(place)
    verify(drill, ledger)
    entries, spent = ledger.entries(), ledger.spent().epsilon
    handed, released = told.count("handed"), told.count("released")
    broken_off = sum(word.startswith("failed") for word in told)
    booked = sum(each.state is State.BOOKED for each in entries)
    drill.expect(len(entries) >= handed, f"a refund: {handed} times records were read and {len(entries)} entries")
    drill.expect(booked >= released, f"{released} released and {booked} booked")
    drill.expect(len(entries) <= released + broken_off, f"{len(entries)} entries of {released} + {broken_off} charges")
    drill.expect(spent == float(len(entries) * UNIT), f"spent {spent} with {len(entries)} entries")
    drill.expect(spent <= ledger.epsilon, f"overspent: {spent} of {ledger.epsilon}")
    drill.counts.update(
        {"charges": released, "broken off": broken_off, "spent without a release": len(entries) - booked}
    )
    for word in told:
        drill.expect(word in ("handed", "released", "refused") or word.startswith("failed"), word)
