"""Figures stated about the budget ledger: killed, raced for, short of disk, torn, restarted; and its speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Measured, claim
from studies.ledger_children import Drill, site
from studies.ledger_disks import backward_clock, full_disk, read_only, torn_log, torn_writes
from studies.ledger_drills import DATABASES, large, mixed_losses, sync_seconds, throughput
from studies.ledger_kills import creations, kills, races, restarts

KEPT = "no overspend, no refund after records were read, no entry lost; opens and verifies"


def _both(drill: Callable[..., Drill], enough: Callable[[Drill], bool], kinds: tuple[str, ...] = DATABASES) -> Measured:
    """The same drill on each database; it holds if no promise was broken anywhere and enough was tried."""
    texts, holds = [], True
    for kind in kinds:
        with site(kind) as where:
            start = time.perf_counter()
            found = drill(where)
            texts.append(f"{where.name}: {found} ({time.perf_counter() - start:.0f} s)")
            holds = holds and not found.breaches and enough(found)
    return Measured("; ".join(texts), holds)


@claim(
    "ledger", "kill -9 at every system call, line and moment of reserve, run, book", f"200+ kills: {KEPT}", slow=True
)
def ledger_kills() -> Measured:
    return _both(kills, lambda found: found.counts["kills"] >= 200)


@claim(
    "ledger", "kill -9 at every system call of creating a ledger", "what is left opens, or is no obstacle", slow=True
)
def ledger_creations() -> Measured:
    return _both(creations, lambda found: found.counts["kills"] >= 100)


@claim("ledger", "8 processes race for the last unit of budget, 1,000 rounds", "one wins each round", slow=True)
def ledger_races() -> Measured:
    return _both(races, lambda found: found.counts["rounds"] == found.counts["wins"] == 1_000)


@claim("ledger", "The disk is full, with room for ever fewer pages", f"says so; {KEPT}; goes on with room", slow=True)
def ledger_full_disk() -> Measured:
    return _both(full_disk, lambda found: found.counts["broken off"] >= 6)


@claim(
    "ledger",
    "File, folder, disk or database are read-only",
    "can be read and verified; a charge is refused before records are read, in words that help",
)
def ledger_read_only() -> Measured:
    return _both(read_only, lambda found: found.counts["refused for want of permission"] >= 1)


@claim("ledger", "The clock runs backwards by years between charges", "ten of ten charges, then refused, in order")
def ledger_clock() -> Measured:
    return _both(backward_clock, lambda found: found.counts["charges"] == 10)


@claim(
    "ledger",
    "Writes torn by a crash, and 1,000 files damaged at random, SQLite",
    "opens with every reservation; damage is refused, found by verify, or harmless",
    slow=True,
)
def ledger_torn_writes() -> Measured:
    full: dict[str, Any] = {"tears": 300, "rot": 1_000}
    return _both(lambda where: torn_writes(where, **full), lambda found: found.counts["tears"] == 300, ("sqlite",))


@claim(
    "ledger",
    "PostgreSQL's log torn behind its synchronised end, and cut short before it",
    "whole in the first case; found by verify with a kept head in the second",
    slow=True,
)
def ledger_torn_log() -> Measured:
    return _both(lambda where: torn_log(where, trials=20), lambda found: True, ("postgresql",))


@claim("ledger", "PostgreSQL shut down, crashed or killed 30 times under 4 processes that charge", KEPT, slow=True)
def ledger_restarts() -> Measured:
    return _both(restarts, lambda found: found.counts["broken off"] > 0, ("postgresql",))


@claim("ledger", "Charges per second (reserved, run and booked), one and eight processes", "over 10 each", slow=True)
def ledger_throughput() -> Measured:
    texts, least = [], float("inf")
    for kind in DATABASES:
        for durable in (True, False):
            with site(kind, durable=durable) as where:
                speeds = [throughput(where, processes=processes) for processes in (1, 8)]
            waiting = "" if durable else " without waiting for the disk"
            texts.append(f"{where.name}{waiting}: {speeds[0]:.0f} and {speeds[1]:.0f}")
            least = min(least, *speeds)
    texts.append(f"one page synchronised in {1e3 * sync_seconds():.2f} ms")
    return Measured("; ".join(texts), least > 10.0)


@claim(
    "ledger",
    "A ledger of 10,000 entries, 1,000 of them with losses of their own and the others of 18 kinds, opens and composes",
    "< 1 s",
    slow=True,
)
def ledger_large() -> Measured:
    texts, worst = [], 0.0
    for kind in DATABASES:
        with site(kind, durable=False) as where:
            took = large(where, mixed_losses(10_000))
        worst = max(worst, took.opening + took.composing)
        texts.append(
            f"{where.name}: opens in {took.opening:.3f} s, composes in {took.composing:.3f} s "
            f"(lists its entries in {took.listing:.2f} s, verifies in {took.verifying:.2f} s)"
        )
    return Measured("; ".join(texts), worst < 1.0)
