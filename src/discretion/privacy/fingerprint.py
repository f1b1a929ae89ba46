"""Telling whether records are the same as before, without keeping anything from which they could be found out."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discretion.privacy.frames import cleared

__all__ = ["fingerprint"]

LEAST_KEY = 16
"""Bytes of the shortest key."""


@cleared
def fingerprint(records: Any, key: bytes) -> str:
    """HMAC-SHA256 of records under a key: 64 hexadecimal digits.

    Without the key it tells nothing, and whoever has the key can try out guesses: the steward keeps it outside the
    ledger, and to himself. Records in another order, or of another type, have another fingerprint.

    Args:
        records: a `Path`, of which the bytes of the file count; an array of numbers or text; or a tuple, list,
            dictionary or dataclass of these.
        key: random, at least 16 bytes, such as `secrets.token_bytes(32)`.

    Raises:
        ValueError: a short key, or records of another kind; no value is quoted.
        OSError: the file cannot be read.
    """
    if not isinstance(key, bytes) or len(key) < LEAST_KEY:
        raise ValueError(f"The key of a fingerprint is at least {LEAST_KEY} random bytes: secrets.token_bytes(32).")
    code = hmac.new(key, b"discretion fingerprint 1", "sha256")
    _feed(code, records)
    return code.hexdigest()


def _feed(code: hmac.HMAC, records: Any) -> None:
    """Every piece is preceded by its kind and size, so that no two structures give the same bytes."""
    if isinstance(records, Path):
        code.update(b"file %d:" % records.stat().st_size)
        with records.open("rb") as file:
            while block := file.read(1 << 20):
                code.update(block)
    elif records is None:
        code.update(b"none:")
    elif isinstance(records, tuple | list):
        code.update(b"list %d:" % len(records))
        for item in records:
            _feed(code, item)
    elif isinstance(records, Mapping):
        code.update(b"map %d:" % len(records))
        for name in sorted(records, key=str):
            _feed(code, (np.array(str(name)), records[name]))
    elif is_dataclass(records) and not isinstance(records, type):
        _feed(code, {item.name: getattr(records, item.name) for item in fields(records)})
    else:
        array = np.asarray(records)
        if array.dtype.kind not in "biufUSM":
            raise ValueError("A fingerprint is of arrays of numbers or text, or of structures of them.")
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        code.update(f"array {array.dtype.str} {array.shape}:".encode())
        code.update(array.tobytes())
