"""Kill -9 at every step of a charge, races for the last unit of a budget, a server that goes away in the middle."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import discretion.privacy
from discretion.privacy import BudgetExceeded, Ledger, LedgerError
from studies.ledger_children import (
    Child,
    Drill,
    Server,
    Site,
    Tell,
    charge,
    create,
    examine,
    examine_all,
    seen,
    told_by,
    unit,
    verify,
)

# --- Kill -9

BUDGET = 25
"""Charges until a ledger of the kill drills is spent and the next is begun."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
_TRACEME, _SYSCALL, _ANY_CHILD = 0, 24, 0x40000000


class Traced(Child):
    """A child that its parent leads from one entry into, or return from, the kernel to the next.

    Raises:
        OSError: this system does not allow one process to trace another.
    """

    def __init__(self, work: Callable[[Tell], object]) -> None:
        def traced(tell: Tell) -> None:
            if _libc.ptrace(_TRACEME, 0, None, None) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                work(tell)

        super().__init__(traced)
        self.alive = True
        self._look()
        if not self.alive:
            raise OSError("Processes cannot be traced here.")

    def _look(self) -> None:
        self.alive = os.WIFSTOPPED(os.waitpid(self.pid, _ANY_CHILD)[1])

    def step(self) -> bool:
        """Run to the next; False where it ended instead."""
        _libc.ptrace(_SYSCALL, self.pid, None, None)
        self._look()
        return self.alive

    def end(self) -> list[str]:
        """SIGKILL it if it lives; what it told."""
        if self.alive:
            self.kill()
            os.waitpid(self.pid, _ANY_CHILD)
        return self.told(reaped=True)


def at_system_call(work: Callable[[Tell], object], number: int) -> tuple[list[str], bool]:
    """Fork a process that does `work` and kill it at its `number`-th entry into, or return from, the kernel.

    Returns:
        What it told, and whether it was killed (it may have ended before).
    """
    child = Traced(work)
    for _ in range(number):
        if not child.step():
            break
    killed = child.alive
    return child.end(), killed


def at_line(work: Callable[[Tell], object], number: int) -> tuple[list[str], bool]:
    """Fork a process that does `work` and kills itself before the `number`-th line of discretion.privacy it runs."""
    folder = os.path.dirname(discretion.privacy.__file__)

    def traced(tell: Tell) -> None:
        lines = count()

        def line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and next(lines) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return line

        sys.settrace(lambda frame, event, _: line if frame.f_code.co_filename.startswith(folder) else None)
        work(tell)
        sys.settrace(None)
        tell("finished")

    told = told_by(traced)
    return told, "finished" not in told


def at_time(work: Callable[[Tell], object], seconds: float) -> tuple[list[str], bool]:
    """Fork a process that does `work`; its parent kills it after so many seconds."""

    def timed(tell: Tell) -> None:
        tell("ready")
        work(tell)
        tell("finished")

    child = Child(timed)
    child.wait(10.0)
    time.sleep(seconds)
    child.kill()
    told = child.told()
    return told, "finished" not in told


Kill = Callable[[Callable[[Tell], object], Any], tuple[list[str], bool]]


def _killed(drill: Drill, where: Site, kill: Kill, steps: Any, stop: Callable[[bool], bool]) -> None:
    """One charge after another, each killed at the next of `steps`, the ledger examined after each."""
    place = where.fresh(BUDGET)
    before = seen(place)
    for step in steps:
        told, killed = kill(lambda tell, place=place: charge(Ledger.open(place), tell), step)
        where.settle()
        before = examine(drill, place, told, before)
        drill.counts["kills"] += killed
        drill.counts["of them with the records read"] += killed and "handed" in told
        drill.counts["of them after the release"] += killed and "released" in told
        if "refused" in told:
            drill.counts["ledgers spent to the last unit"] += 1
            drill.expect(len(before[0]) == BUDGET, f"refused with {len(before[0])} of {BUDGET} spent")
            place = where.fresh(BUDGET)
            before = seen(place)
        elif stop(killed):
            return


def kills(where: Site, *, stride: int = 1, lines: int = 7, times: int = 100, seed: int = 0) -> Drill:
    """Kill -9 of a process that reserves, runs and books, at every system call, at lines of code, at random times.

    Args:
        where: where the ledgers are.
        stride: kill at every so-manyth entry into or return from the kernel.
        lines: kill at every so-manyth line that the library runs.
        times: how many kills at random times.
        seed: of the random times.
    """
    drill = Drill("kill -9 while reserving, running, booking")
    try:
        _killed(drill, where, at_system_call, count(0, stride), lambda killed: not killed)
    except OSError:
        drill.counts["system calls could not be traced"] = 1
    _killed(drill, where, at_line, count(0, lines), lambda killed: not killed)
    place = where.fresh(BUDGET)
    start = time.perf_counter()
    told_by(lambda tell: charge(Ledger.open(place), tell))
    usual = time.perf_counter() - start
    chance = random.Random(seed)
    _killed(drill, where, at_time, (chance.uniform(0.0, usual) for _ in range(times)), lambda killed: False)
    return drill


def creations(where: Site, *, stride: int = 1) -> Drill:
    """Kill -9 of a process that creates a ledger, at system calls: what is left opens, or is no obstacle."""
    drill = Drill("kill -9 while creating")
    for number in count(0, stride):
        place = where.free()
        _, killed = at_system_call(lambda tell, place=place: create(place, 1), number)
        where.settle()
        drill.counts["kills"] += killed
        try:
            Ledger.open(place).verify()
            drill.counts["left a whole ledger"] += 1
        except LedgerError as unopened:
            try:
                create(place, 1)
                drill.counts["left none"] += 1
            except LedgerError as error:
                drill.counts["left a file that its message says to delete"] += 1
                drill.expect("delete it" in str(unopened).lower(), f"a dead end: {unopened} {error}")
        if not killed:
            break
    return drill


# --- Races


def _runner(connection: Any, barrier: Any) -> None:
    while (place := connection.recv()) is not None:
        ledger = Ledger.open(place)
        barrier.wait(60.0)
        try:
            ledger.reserve(unit(), {"pid": os.getpid()})
            connection.send("won")
        except BudgetExceeded:
            connection.send("refused")
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")


def races(where: Site, *, rounds: int = 1_000, runners: int = 8) -> Drill:
    """Processes that reserve the last unit of a budget at once, again and again: one gets it, the rest are refused."""
    drill = Drill(f"{runners} processes race for the last unit")
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(runners)
    pipes = [context.Pipe() for _ in range(runners)]
    processes = [context.Process(target=_runner, args=(theirs, barrier), daemon=True) for _, theirs in pipes]
    for process in processes:
        process.start()
    for number in range(rounds):
        earlier = number % 3
        place = where.fresh(earlier + 1)
        ledger = Ledger.open(place)
        for _ in range(earlier):
            ledger.reserve(unit(), {})
        for ours, _ in pipes:
            ours.send(place)
        answers = [ours.recv() for ours, _ in pipes]
        won, refused = answers.count("won"), answers.count("refused")
        drill.counts["rounds"] += 1
        drill.counts["wins"] += won
        drill.counts["refusals"] += refused
        entries = len(ledger.entries())
        drill.expect(won == 1, f"round {number}: {won} winners: {answers}")
        drill.expect(won + refused == runners, f"round {number}: {answers}")
        drill.expect(entries == earlier + 1, f"round {number}: {entries} entries of {earlier + 1}")
        verify(drill, ledger)
    for ours, _ in pipes:
        ours.send(None)
    for process in processes:
        process.join()
    return drill


# --- A server that goes away


def _until_stopped(place: str, stop: Any) -> Callable[[Tell], None]:
    def work(tell: Tell) -> None:
        ledger = Ledger.open(place)
        while not stop.is_set():
            if not charge(ledger, tell):
                time.sleep(0.05)

    return work


def restarts(where: Server, *, rounds: int = 30, workers: int = 4, seed: int = 0) -> Drill:
    """PostgreSQL shut down fast, shut down at once, or killed, under processes that charge; then started again."""
    drill = Drill("the server goes away in the middle of charges")
    place, stop = where.fresh(100_000), multiprocessing.get_context("fork").Event()
    chance = random.Random(seed)
    children = [Child(_until_stopped(place, stop)) for _ in range(workers)]
    # Their pipes are read all the time, or they would fill and hold the children up.
    told: list[list[str]] = [[] for _ in children]
    readers = [
        threading.Thread(target=lambda child=child, words=words: words.extend(child.told()))
        for child, words in zip(children, told, strict=True)
    ]
    for reader in readers:
        reader.start()
    for number in range(rounds):
        time.sleep(chance.uniform(0.05, 0.4))
        way = ("fast", "immediate", "kill")[number % 3]
        if way == "kill":
            where.cluster.kill()
            where.cluster.start()
        else:
            where.cluster.restart("fast" if way == "fast" else "immediate")
        drill.counts[f"times {way}"] += 1
    time.sleep(0.3)
    stop.set()
    for reader in readers:
        reader.join()
    where.settle()
    examine_all(drill, place, [word for part in told for word in part])
    return drill
