"""What may be kept of a mechanism's failure: an original error can quote a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from discretion.privacy.chain import LedgerError
from discretion.privacy.mechanism import PublicError
from discretion.privacy.quiet import quiet
from discretion.privacy.release import NotBookable

__all__ = ["Failure", "MechanismFailed", "attempt"]

T = TypeVar("T")


class MechanismFailed(LedgerError):
    """A mechanism failed on the records; nothing was released. If its loss was reserved, it stays spent.

    The original error is dropped, because it may quote a record; only the name of its type is kept. To look
    for the cause, run the mechanism on made-up records.
    """


@dataclass(frozen=True)
class Failure:
    """What may be kept of a failure: what it was in public words, and its message if that is public."""

    what: str
    type: type[BaseException] = MechanismFailed
    message: str | None = None

    def error(self, when: str) -> BaseException:
        """The exception to raise in its place."""
        if self.type is MechanismFailed:
            return MechanismFailed(
                f"The mechanism failed with {self.what} {when}. Details are withheld, because they may quote "
                "a record. To find the cause, run the mechanism on made-up records."
            )
        if self.type is NotBookable:
            return NotBookable(f"The mechanism came back with {self.what} {when}; its noise can be replayed.")
        return self.type(*([self.message] if self.message is not None else []))


def attempt(call: Callable[[], T]) -> T | Failure:
    """The result of `call`, or what may be kept of its exception, which ends here with its traceback."""
    try:
        with quiet():
            return call()
    except PublicError as error:
        return Failure(type(error).__name__, PublicError, str(error))
    except KeyboardInterrupt:
        return Failure("an interrupt", KeyboardInterrupt)
    except BaseException as error:
        return Failure(type(error).__name__)
