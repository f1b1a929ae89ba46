"""Silence around private runs: what they print, warn or log would tell how many there were."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from types import FrameType

__all__ = ["Overrun", "alarm", "quiet"]

_lock = threading.Lock()
_depth = 0
_outer = contextlib.ExitStack()


class _Nowhere(io.TextIOBase):
    """A stream that forgets what is written to it."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that Python code prints, warns or logs inside is seen. Threads share one silence, the last one ends it.

    What compiled code writes to the terminal by itself, and what a run writes to files, is out of its reach.
    """
    global _depth, _outer
    with _lock:
        if _depth == 0:
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.redirect_stdout(_Nowhere()))
                stack.enter_context(contextlib.redirect_stderr(_Nowhere()))
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.callback(logging.disable, logging.root.manager.disable)
                logging.disable(logging.CRITICAL)
                _outer = stack.pop_all()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _outer.close()


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
