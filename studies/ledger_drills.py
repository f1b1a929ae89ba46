"""Drills of the budget ledger: killed, raced for, short of disk, torn, restarted; and how fast it is.

    python -m studies.ledger_drills [--database sqlite | postgresql] [--quick]

PostgreSQL is a throw-away server of the drill's own. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.postgres import find
from discretion.privacy import GaussianDP, Ledger, Neighbours, PrivacyLoss, PureDP
from discretion.privacy.budget import Budget
from studies.ledger_children import Child, Drill, Files, Server, Site, Tell, charge, site, told_by
from studies.ledger_disks import backward_clock, full_disk, read_only, torn_log, torn_writes
from studies.ledger_kills import creations, kills, races, restarts

DATABASES = ("sqlite", "postgresql")


def drills(where: Site, *, quick: bool = False) -> Iterator[Callable[[], Drill]]:
    """Every drill that makes sense there, in full or a tenth of it."""
    tenth = 10 if quick else 1
    yield lambda: kills(where, stride=tenth, lines=7 * tenth, times=100 // tenth)
    yield lambda: creations(where, stride=tenth)
    yield lambda: races(where, rounds=1_000 // tenth)
    yield lambda: full_disk(where, most_pages=12 // (3 if quick else 1))
    yield lambda: read_only(where)
    yield lambda: backward_clock(where)
    if isinstance(where, Files):
        yield lambda: torn_writes(where, tears=300 // tenth, rot=1_000 // tenth)
    if isinstance(where, Server):
        yield lambda: torn_log(where, trials=20 // tenth)
        yield lambda: restarts(where, rounds=30 // tenth)


# --- How fast


def throughput(where: Site, *, processes: int, seconds: float = 3.0) -> float:
    """Charges per second, each reserved, run and booked, of so many processes that share one new ledger."""
    place = where.fresh(1_000_000)

    def until(tell: Tell) -> None:
        ledger, number, end = Ledger.open(place), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            number += charge(ledger, str)
        tell(str(number))

    children = [Child(until) for _ in range(processes)]
    return sum(int(child.told()[-1]) for child in children) / seconds


def sync_seconds(tries: int = 200) -> float:
    """Median time of writing a page at the end of a file and synchronising it to the disk, in seconds."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(tries):
            start = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times)


class Large(NamedTuple):
    """Seconds that a long ledger takes, in a process that has just started."""

    opening: float
    composing: float
    listing: float
    verifying: float


def mixed_losses(number: int, kinds: int = 20) -> list[PrivacyLoss]:
    """So many losses: each tenth a Gaussian one that occurs once, the others of a few kinds, pure and Gaussian."""
    relation = Neighbours.REPLACE
    few = [(PureDP, GaussianDP)[k % 2](1e-4 * (1 + k / kinds), neighbours=relation) for k in range(kinds)]
    return [
        few[k % kinds] if k % 10 else GaussianDP(1e-4 * (1 + k / number), neighbours=relation) for k in range(number)
    ]


def large(where: Site, losses: Sequence[PrivacyLoss]) -> Large:
    """A ledger in which all these losses are reserved: opened, composed, listed and verified by a new process."""
    place = where.fresh(1_000, delta=1e-6)
    writer = Ledger.open(place)
    # Composing anew at each of so many reservations would take its time, and they are known to fit.
    with patch.object(Budget, "check"):
        for loss in losses:
            writer.reserve(loss, {"mechanism": "Gaussian sum", "parameters": {"scale": 4.0}, "n": 100})

    def timed(tell: Tell) -> None:
        clock = [time.perf_counter()]
        ledger = Ledger.open(place)
        for ask in (lambda: None, ledger.spent, ledger.entries, ledger.verify):
            ask()
            clock.append(time.perf_counter())
        tell(" ".join(str(later - earlier) for earlier, later in pairwise(clock)))

    return Large(*(float(each) for each in told_by(timed)[-1].split()))


def main() -> None:
    """Run the drills and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m studies.ledger_drills", description="Drills of the ledger.")
    parser.add_argument("--database", choices=DATABASES, help="one of the two; both if left out")
    parser.add_argument("--quick", action="store_true", help="a tenth of each drill")
    arguments = parser.parse_args()
    broken = 0
    for kind in [arguments.database] if arguments.database else DATABASES:
        if kind == "postgresql" and find() is None:
            print("PostgreSQL: its programs are not here. On Debian: apt-get install postgresql.")
            continue
        with site(kind) as where:
            for drill in drills(where, quick=arguments.quick):
                start = time.perf_counter()
                found = drill()
                broken += len(found.breaches)
                print(f"{where.name}, {found.name} ({time.perf_counter() - start:.0f} s): {found}", flush=True)
            for processes in (1, 8):
                speed = throughput(where, processes=processes)
                print(f"{where.name}: {speed:.0f} charges per second with {processes} processes", flush=True)
    print(f"Writing a page and synchronising it takes {1e3 * sync_seconds():.2f} ms here.")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
