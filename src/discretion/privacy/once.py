"""What must happen once happens in one process and one call at a time.

Two threads that ask at the same moment, or the two sides of a fork, would each draw for the same price. So whoever
draws holds an `Alone`, and the methods that lead there are marked with `alone`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from discretion.privacy.mechanism import PublicError

__all__ = ["Alone", "RunError", "alone"]

P = ParamSpec("P")
T = TypeVar("T")


class RunError(PublicError):
    """The run cannot go on like this; the message says why and holds nothing private."""


class Alone:
    """The leave to act on one object: in the process that made it, one call after the other.

    Args:
        what: how messages name the object.
    """

    def __init__(self, what: str) -> None:
        self._what, self._process, self._lock, self._acting = what, os.getpid(), RLock(), False

    @contextmanager
    def __call__(self, *, nested: bool = False) -> Iterator[None]:
        """Wait for other threads, then act.

        Raises:
            RunError: another process; or, unless `nested`, a call from inside a call.
        """
        # Before the lock, which after a fork may be held by a thread that is not there.
        if os.getpid() != self._process:
            raise RunError(
                f"This {self._what} was made before a fork and goes on in the other process; here it would draw the "
                "same step a second time. Nothing was drawn. Make it where it is used."
            )
        with self._lock:
            if self._acting and not nested:
                raise RunError(f"This {self._what} is in the middle of a call, from inside which it was called again.")
            before, self._acting = self._acting, True
            try:
                yield
            finally:
                self._acting = before


class _HasAlone(Protocol):
    _alone: Alone


S = TypeVar("S", bound=_HasAlone)


@overload
def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]: ...
@overload
def alone(*, nested: bool) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]: ...
def alone(method: Any = None, *, nested: bool = False) -> Any:
    """A method that runs under its object's `_alone`; with `nested` also from inside another such method."""

    def marked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def calling(self: Any, *arguments: Any, **options: Any) -> Any:
            with self._alone(nested=nested):
                return method(self, *arguments, **options)

        return calling

    return marked if method is None else marked(method)
