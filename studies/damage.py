"""Damage to inputs: bytes and JSON changed at random, with what readers stumble over."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["NUMBERS", "Charge", "Quote", "damaged", "damaged_json"]

MOST = 200_000
"""Bytes of the longest input."""

NUMBERS = [
    *("0", "-0", "1", "-1", "2", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e309", "-1e309", "1e308", "1e-320"),
    *("5e-324", "0.1", "1e16", "2147483648", "-2147483649", "9223372036854775808", "18446744073709551616", "1e-400"),
    *("1e+", "e5", ".5", "5.", "+3", "0x1F", "1_000", "1,5", "1.2.3", "--1", "٣", "１２", ""),
    *("9" * 400, "0." + "0" * 400 + "1"),
]
TOKENS = [
    *(b'"', b"'", b'""', b",", b";", b"\t", b"|", b"\n", b"\r\n", b"\r", b"\0", b"\\", b"{", b"}", b"[", b"]", b":"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xed\xa0\x80", b"\xc3", b"\xe9", b"PK\x03\x04", b"PAR1"),
    *(b"\x1f\x8b\x08", b"SQLite format 3\0", b"null", b"true", b"#", b"=", b"%s%n", b"\\u0000", b"\\ud800", b"NA"),
    *(b"[" * 100_000, b'{"a":' * 50_000, b"\xf4\x8f\xbf\xbf", b"\xe2\x80\xae", b"__proto__", b"[bold]", b"[/]"),
]
HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1e308, -1e308, 1e-320, 10**30, -(10**30), 10**400, 0.5, "", "inf", "nan", "x"),
    *([], {}, [[]], [None], {"a": 1}, "\x00", "\ud800", "9" * 5000, [0] * 1000, [1.0, 0.5], "[/red]", "renyi", "pure"),
]


def damaged(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The bytes after a few changes, each of a random kind."""
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        data = rng.choice(KINDS)(rng, data, others)[:MOST]
    return data


def _places(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** rng.uniform(0, 9)))


def _bits(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _times in range(rng.choice((1, 1, 4, 32)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _without(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _places(rng, data)
    return data[:start] + data[end:]


def _twice(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _places(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 50)) + data[end:]


def _spliced(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    start, end = _places(rng, other)
    here, there = _places(rng, data)
    return data[:here] + other[start:end] + data[there:]


def _noise(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _places(rng, data)
    return data[:start] + rng.randbytes(rng.choice((1, 2, 8, 64))) + data[end:]


def _token(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _places(rng, data)
    return data[:start] + rng.choice(TOKENS) + data[rng.choice((start, end)) :]


def _number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return data
    at = rng.choice(found)
    return data[: at.start()] + rng.choice(NUMBERS).encode() + data[at.end() :]


def _lines(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


KINDS = (_bits, _cut, _without, _twice, _spliced, _noise, _token, _number, _number, _lines)


def damaged_json(rng: random.Random, value: Any) -> Any:
    """A copy of JSON data in which one value is another, is gone, or stands twice."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
        way = rng.random()
        if way < 0.1:
            del copy[key]
        elif way < 0.2 and isinstance(copy, list):
            copy.insert(key, copy[key])
        elif way < 0.2:
            copy[f"{key}2"] = copy[key]
        else:
            copy[key] = damaged_json(rng, copy[key])
        return copy
    if isinstance(value, float) and rng.random() < 0.3:
        return value * rng.choice((-1, 0, 0.5, 2, 1e6, 1e300))
    return rng.choice(HOSTILE)


class Quote(Exception):
    """An error that says something of a record."""


class Charge(Exception):
    """Budget was spent, and no release made."""
