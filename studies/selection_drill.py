"""Kill private searches again and again, and see that each ends as it would have ended, paid for once.

``python -m studies.selection_drill [KILLS]``
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from discretion.privacy import Certificate, GaussianDP, Ledger, Neighbours, Randomness, Release, State
from discretion.selection import NegativeBinomial, PublicScore, select
from discretion.selection.streams import KeyedRandomness

RECORDS = np.linspace(0.0, 1.0, 100)
LAW = NegativeBinomial.of_mean(2.0, 12.0)


@dataclass(frozen=True, eq=False, repr=False)
class Number(Release):
    """A released mean."""

    value: float


class Drilled:
    """A noisy mean whose run takes a while."""

    name = "drilled-mean"
    neighbours = Neighbours.REPLACE
    delta = 1e-6
    unit = "one number"

    def __init__(self, shift: float, pause: float) -> None:
        self.shift, self.pause = shift, pause

    def privacy_loss(self, n: int | None) -> GaussianDP:
        return GaussianDP(0.3, neighbours=self.neighbours)

    def parameters(self) -> dict[str, Any]:
        return {"shift": self.shift}

    def check(self, records: Any) -> int:
        return len(records)

    def run(self, records: Any, randomness: Randomness) -> Number:
        time.sleep(self.pause)
        value = float(np.mean(records)) + self.shift + float(randomness.standard_normal()) / (0.3 * len(records))
        certificate = Certificate.issue(self, n=len(records), delta=1e-6, unit=self.unit, randomness=randomness)
        return Number(certificate, value)


def value(release: Number) -> float:
    """The score: the released number."""
    return release.value


def search(folder: Path, seed: int, *, ledger: bool, pause: float) -> float | None:
    """One search with a test key, which a ledger takes for a fresh one; the winner's score, kept in a file too."""
    release = select(
        [Drilled(shift, pause) for shift in (0.0, 0.01, 0.02)],
        PublicScore(value, "the released number"),
        LAW,
        RECORDS,
        100,
        ledger=Ledger.open(folder / "ledger") if ledger else None,
        journal=folder / "journal" if ledger else None,
        rule="renyi",
        save=lambda release: (folder / "score").write_text(repr(release.score)),
        randomness=KeyedRandomness(seed.to_bytes(32, "big"), "drill", bookable=True),
    )
    return release.score


class Drill(NamedTuple):
    """What a drill found; `during` counts the kills after the draws were fixed and before the search had ended."""

    kills: int
    during: int
    searches: int
    same: int
    once: int


def fixed(folder: Path) -> bool:
    """Whether the search has begun its runs, its draws fixed on disk, and has not ended."""
    journal = folder / "journal"
    return journal.exists() and len(journal.read_bytes().splitlines()) >= 2


def drill(folder: Path, kills: int) -> Drill:
    """Kill searches at random moments, `kills` times in all, each until it comes through.

    Of five kills one comes at any time from the start on, four once the runs have begun.
    """
    moments, killed, during, searches, same, once = random.Random(0), 0, 0, 0, 0, 0
    while killed < kills:
        here = folder / str(searches)
        here.mkdir()
        Ledger.create(here / "ledger", dataset="drill", epsilon=20.0, delta=1e-6)
        whole = search(here, searches, ledger=False, pause=0.0)
        command = [sys.executable, "-m", "studies.selection_drill", "--search", str(here), str(searches)]
        attempts = 0
        while attempts == 0 or (here / "journal").exists() or not (here / "score").exists():
            attempts += 1
            (here / "score").unlink(missing_ok=True)
            process = subprocess.Popen(command)
            late, end = moments.random() < 0.8, time.monotonic() + 60.0
            while late and process.poll() is None and not fixed(here) and time.monotonic() < end:
                time.sleep(0.005)
            wait = 300.0 if killed >= kills or attempts > 8 else moments.uniform(0.0, 1.2 if late else 3.0)
            try:
                process.wait(timeout=wait)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
                during += fixed(here)
        (entry,) = Ledger.open(here / "ledger").entries()
        searches += 1
        same += (here / "score").read_text() == repr(whole)
        once += entry.state is State.BOOKED and not (here / "journal").exists()
    return Drill(killed, during, searches, same, once)


def main() -> None:
    """Run one search, or a drill."""
    if sys.argv[1:2] == ["--search"]:
        search(Path(sys.argv[2]), int(sys.argv[3]), ledger=True, pause=0.1)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(drill(Path(folder), kills=int(sys.argv[1]) if len(sys.argv) > 1 else 100))


if __name__ == "__main__":
    main()
