"""Errors keep the lines of their traceback, and lose the local variables of its frames, which may be records."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

__all__ = ["cleared"]

P = ParamSpec("P")
T = TypeVar("T")


def cleared(call: Callable[P, T]) -> Callable[P, T]:
    """`call`, a function or generator function, but so that through its errors nobody reaches its arguments.

    An error holds every frame it passed through, and a frame its local variables. Tools show them (`rich` with
    show_locals, `traceback` with capture_locals, pytest, error trackers), and pickle or log them. From this function on
    down all are emptied, also those of the errors it was chained to; files, lines and messages stay. The caller's own
    frame is the caller's.
    """
    if isgeneratorfunction(call):

        @wraps(call)
        def generating(*arguments: P.args, **options: P.kwargs) -> Iterator[Any]:
            parts: Any = call(*arguments, **options)
            del arguments, options
            outside = sys.exception()
            try:
                yield from parts
            except BaseException as error:
                del parts
                _clear(error, outside)
                raise

        return generating  # pyright: ignore[reportReturnType]

    @wraps(call)
    def calling(*arguments: P.args, **options: P.kwargs) -> T:
        outside = sys.exception()
        try:
            return call(*arguments, **options)
        except BaseException as error:
            del arguments, options
            _clear(error, outside)
            raise

    return calling


def _clear(error: BaseException | None, outside: BaseException | None) -> None:
    """Empty the frames of an error and of what it is chained to, up to the one that was being handled before."""
    waiting, seen = [error], {id(outside)}
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            waiting += [each.__cause__, each.__context__]
