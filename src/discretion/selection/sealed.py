"""Fitted estimators as bytes that hold no source of noise, no ledger, and no certificate of a single run, at any depth.

Pickle walks through all that an object holds, so what must not be in it is found and left out there, wherever it hangs.
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from discretion.privacy import Certificate, Ledger

__all__ = ["found_in", "opened", "sealed"]

_CERTIFICATE, _NOTHING = "certificate", "nothing"
_GENERATORS = (
    np.random.Generator,
    np.random.BitGenerator,
    np.random.SeedSequence,
    np.random.RandomState,
    random.Random,
)


def sealed(value: Any) -> tuple[bytes, bool]:
    """The value as bytes: None in place of sources of noise and ledgers, gaps in place of certificates.

    And whether all of those certificates were bookable.
    """
    bookable = True

    def kept_out(part: Any) -> str | None:
        nonlocal bookable
        if isinstance(part, Certificate):
            bookable = bookable and part.bookable
            return _CERTIFICATE
        return _NOTHING if _is_source(part) or isinstance(part, Ledger) else None

    return _dumps(value, kept_out), bookable


def opened(data: bytes, certificate: Certificate | None) -> Any:
    """The value that was sealed, with this certificate in every gap. As with any pickle, of your own releases only."""
    reader = _Reader(io.BytesIO(data))
    reader.certificate = certificate
    return reader.load()


def found_in(value: Any) -> list[str]:
    """What would make the runs of an estimator share their noise, or be told of one by one: in words, each once.

    Sources of noise that can be replayed, and ledgers, in whatever the estimator holds.

    Raises:
        Exception: it can't be pickled.
    """
    found: dict[str, None] = {}

    def look(part: Any) -> str | None:
        if _is_source(part):
            if getattr(part, "bookable", False) is not True:
                found[f"a source of noise ({type(part).__name__})"] = None
            return _NOTHING
        if isinstance(part, Ledger) or (not isinstance(part, type) and _attribute(part, "ledger") is not None):
            found["a ledger"] = None
        return _NOTHING if isinstance(part, Ledger) else None

    _dumps(value, look)
    return list(found)


def _is_source(part: Any) -> bool:
    kind = type(part)
    if isinstance(part, _GENERATORS) or (kind.__module__.partition(".")[0], kind.__name__) == ("torch", "Generator"):
        return True
    own = getattr(part, "__dict__", None)
    held = own if isinstance(own, dict) else {}
    return all(name in held or hasattr(kind, name) for name in ("bookable", "words", "fresh_id"))


def _attribute(part: Any, name: str) -> Any:
    held = getattr(part, "__dict__", None)
    return held.get(name) if isinstance(held, dict) else None


def _dumps(value: Any, visit: Callable[[Any], str | None]) -> bytes:
    class Writer(pickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            return visit(obj)

    buffer = io.BytesIO()
    Writer(buffer).dump(value)
    return buffer.getvalue()


class _Reader(pickle.Unpickler):
    certificate: Certificate | None

    def persistent_load(self, pid: str) -> Any:
        return self.certificate if pid == _CERTIFICATE else None
