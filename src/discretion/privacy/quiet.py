"""Nothing that is remarked about private arrays, or printed by a private run, reaches a terminal or a log."""

from __future__ import annotations

import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout

import numpy as np

__all__ = ["quiet", "silent"]


class _Shared:
    """What Python keeps for the whole process: set when the first thread enters, set back when the last one leaves."""

    def __init__(self, setting: Callable[[ExitStack], object]) -> None:
        self._setting, self._lock, self._inside, self._held = setting, threading.Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                with ExitStack() as stack:
                    self._setting(stack)
                    self._held = stack.pop_all()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._held.close()


def _no_warnings(stack: ExitStack) -> None:
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")


def _no_words(stack: ExitStack) -> None:
    stack.enter_context(redirect_stdout(_Nowhere()))
    stack.enter_context(redirect_stderr(_Nowhere()))
    stack.callback(logging.disable, logging.root.manager.disable)
    logging.disable(sys.maxsize)  # levels above CRITICAL, too


class _Nowhere(io.TextIOBase):
    """A stream that forgets what is written to it."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


_warnings, _words = _Shared(_no_warnings), _Shared(_no_words)


@contextmanager
def quiet() -> Iterator[None]:
    """Within it no warning is shown, logged or turned into an error, and NumPy reports no floating-point event.

    A warning is an output: that one was raised, and its text, may depend on a record ("overflow encountered in ...").
    What overflows still becomes inf or NaN, and those are refused where they would leave.

    Python keeps the filters of warnings for the whole process, so all threads are quiet until the last one has left.
    Also serves as a decorator, ``@quiet()``.
    """
    with _warnings(), np.errstate(all="ignore"):
        yield


@contextmanager
def silent() -> Iterator[None]:
    """`quiet`, and nothing that Python code prints or logs is seen either, in any thread, until the last one has left.

    What compiled code writes to the terminal by itself, and what a run writes to files, is out of its reach.
    """
    with quiet(), _words():
        yield
