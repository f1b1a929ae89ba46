"""Fixed-point arithmetic: whole numbers k that stand for k 2^-bits, and exp(-u) among them.

Products and quotients are rounded down, so each is off by less than 2^-bits, on every machine and in every version.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from discretion.gp.domain import Array

PLACE_BITS = 120
"""Places are whole numbers of 2^-120."""

_RATE_BITS = 704  # of the root that places are multiplied by: places are below 2^619

_GUARD = 64  # further bits in which exponentials are computed
_INDEX = 24  # leading bits of an argument that are looked up, 8 in each of three tables


def whole(x: Array, bits: int) -> list[int]:
    """Finite float64 numbers (n,) as whole numbers of 2^-bits, rounded down; exact down to 2^(52 - bits)."""
    mantissa, exponent = np.frexp(x)
    digits, shifts = (mantissa * 2.0**53).astype(np.int64).tolist(), (exponent - 53 + bits).tolist()
    return [d << s if s >= 0 else d >> -s for d, s in zip(digits, shifts, strict=True)]


def real(numbers: Iterable[int], bits: int) -> Array:
    """The nearest float64 of each number of 2^-bits."""
    one = 1 << bits
    return np.array([each / one for each in numbers], dtype=np.float64)  # division of whole numbers rounds correctly


def times(places: Array, order: int) -> list[int]:
    """Places (n,) below 1e150 as times of a Matern chain, in whole numbers of 2^-120: sqrt(2 order - 1) of each.

    Rounded down, and off by less than 1.001 of them (``docs/proofs/matern-line.md``, Setting).
    """
    rate = math.isqrt((2 * order - 1) << 2 * _RATE_BITS)
    return [each * rate >> _RATE_BITS for each in whole(places, PLACE_BITS)]


@lru_cache(maxsize=8)
def _tables(bits: int) -> tuple[int, list[list[int]], list[int]]:
    """log 2, e^-(i 2^-8), e^-(i 2^-16), e^-(i 2^-24) for i < 256, and (-1)^j / j! from the last, in 2^-bits."""
    one, wide = 1 << bits, bits + 64
    log2 = sum((1 << (wide - k)) // k for k in range(1, wide)) >> 64  # sum of 2^-k / k
    rows = []
    for shift in (8, 16, _INDEX):
        step = term = one
        for j in range(1, bits):
            term = (term >> shift) // j
            step += -term if j % 2 else term
        row = [one]
        while len(row) < 256:
            row.append(row[-1] * step >> bits)
        rows.append(row)
    terms = next(j for j in range(2, bits) if _INDEX * j + math.lgamma(j + 1) / math.log(2.0) > bits)
    return log2, rows, [(-1) ** j * (one // math.factorial(j)) for j in reversed(range(terms))]


def transitions(gaps: Iterable[int], bits: int) -> list[tuple[int, int, int]]:
    """(e^-u, u e^-u, u^2 e^-u / 2) for gaps u >= 0 in whole numbers of 2^-120.

    Each is off by less than (1 + 2^-20) 2^-bits, for 99 <= bits <= 2048 (``docs/proofs/matern-line.md``, Lemma 1).
    """
    wide = bits + _GUARD
    log2, (first, second, third), (leading, *coefficients) = _tables(wide)
    scale, rest, low = wide - PLACE_BITS, wide - _INDEX, (1 << (wide - _INDEX)) - 1
    found = []
    for gap in gaps:
        if gap >> PLACE_BITS >= bits:
            found.append((0, 0, 0))
            continue
        u = gap << scale
        halvings, x = divmod(u, log2)
        index, x = x >> rest, x & low
        e = leading
        for each in coefficients:
            e = (e * x >> wide) + each
        e = e * first[index >> 16] >> wide
        e = e * second[index >> 8 & 255] >> wide
        e = (e * third[index & 255] >> wide) >> halvings
        ue = e * u >> wide
        found.append((e >> _GUARD, ue >> _GUARD, ue * u >> (wide + 1 + _GUARD)))
    return found
