"""What a search was begun with, as codes under its key: so that it is taken up with the same, or not at all."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from discretion.privacy.fingerprint import fingerprint

__all__ = ["code_of"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 12


def code_of(value: Any, key: bytes, *, whole: bool = False) -> str:
    """HMAC-SHA256 of a value under the key of a search, 64 hexadecimal digits.

    Arrays, numbers, text and structures of them count with all they hold (`fingerprint`). Functions count with their
    code, and with the arrays, numbers and texts they close over or take by default; other objects with their type.

    Args:
        value: what to bind.
        key: 32 secret bytes.
        whole: whether a value that does not count with all it holds is refused, as records must be.

    Raises:
        ValueError: such a value; none of it is quoted.
    """
    described = json.dumps(_described(value, key, whole, 0), sort_keys=True)
    return hmac.new(key, b"discretion search 1" + described.encode(), "sha256").hexdigest()


def _described(value: Any, key: bytes, whole: bool, depth: int) -> Any:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, np.ma.MaskedArray):
        parts = np.asarray(value.data), np.ma.getmaskarray(value)
        return [kind, [_described(part, key, whole, depth + 1) for part in parts]]
    try:
        return [kind, fingerprint(value, key)]
    except Exception:  # not of arrays throughout, or an object that makes no array
        pass

    def inner(part: Any) -> Any:
        return _described(part, key, whole, depth + 1)

    if depth < _DEEPEST:
        if is_dataclass(value) and not isinstance(value, type):
            return [kind, [[item.name, inner(getattr(value, item.name))] for item in fields(value)]]
        if isinstance(value, Mapping):
            return [kind, sorted([str(name), inner(part)] for name, part in value.items())]
        if isinstance(value, tuple | list):
            return [kind, [inner(part) for part in value]]
        if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
            array = np.asarray(value)
            return [kind, list(array.shape), [inner(part) for part in array.ravel().tolist()]]
        if not whole and isinstance(value, FunctionType):
            cells = [_content(cell) for cell in value.__closure__ or ()]
            closed = [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            # A list or an object may change while a search runs: of these only the type.
            held = [
                inner(each) if isinstance(each, (np.ndarray, *_PLAIN)) else type(each).__qualname__ for each in closed
            ]
            return [kind, _code(value.__code__), held]
    if whole:
        raise ValueError(
            "A search that keeps a journal must know its records again: give arrays of numbers or text, or tuples, "
            "dictionaries or dataclasses of them; or leave the journal out."
        )
    return [kind]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _code(code: CodeType) -> list[Any]:
    """What a function does, but not where it stands."""
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts if _fixed(each)]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _fixed(constant: Any) -> bool:
    """Whether it is written alike in every process, as sets are not."""
    return isinstance(constant, (*_PLAIN, CodeType)) or (
        isinstance(constant, tuple) and all(isinstance(each, _PLAIN) for each in constant)
    )
