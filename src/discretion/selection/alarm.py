"""A declared limit of the time that a run may take."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

__all__ = ["Overrun", "alarm"]


class Overrun(Exception):
    """A run took longer than its declared limit."""


@contextlib.contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    """Raise Overrun if what is inside takes longer than `seconds`: at once where a timer can interrupt it, else after.

    A timer interrupts Python code in the main thread of a POSIX process; a long call of compiled code ends first.
    """
    if seconds is None:
        yield
        return
    start = time.monotonic()
    timer = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def ring(_: int, __: FrameType | None) -> None:
        raise Overrun

    before = signal.signal(signal.SIGALRM, ring) if timer else None
    try:
        if timer:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        if timer:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
    if time.monotonic() - start > seconds:
        raise Overrun
