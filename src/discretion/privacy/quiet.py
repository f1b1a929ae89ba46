"""Nothing that NumPy or SciPy remark about private arrays reaches a terminal or a log."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

__all__ = ["quiet"]

_lock = threading.Lock()
_inside = 0
_filters = ExitStack()


@contextmanager
def quiet() -> Iterator[None]:
    """Within it no warning is shown, logged or turned into an error, and NumPy reports no floating-point event.

    A warning is an output: that one was raised, and its text, may depend on a record ("overflow encountered in ...").
    What overflows still becomes inf or NaN, and those are refused where they would leave.

    Python keeps the filters of warnings for the whole process, so all threads are quiet until the last one has left.
    Also serves as a decorator, ``@quiet()``.
    """
    global _inside
    with _lock:
        if not _inside:
            _filters.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        _inside += 1
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _filters.close()
