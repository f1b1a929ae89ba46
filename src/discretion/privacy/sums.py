"""Sums of decimals as a person writes them, rounded up to a double."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

__all__ = ["exact", "root_sum_of_squares", "sum_up"]


def exact(x: float) -> Fraction:
    """The decimal that a person sees for x: 0.1 is one tenth, so that ten of them are 1."""
    return Fraction(Decimal(repr(x)))


def sum_up(terms: Iterable[tuple[int, float]]) -> float:
    """Sum of count * value, rounded up to a double."""
    terms = list(terms)
    if any(math.isinf(value) for _, value in terms):
        return math.inf
    total = sum((count * exact(value) for count, value in terms), Fraction(0))
    try:
        rounded = float(total)
    except OverflowError:
        return math.inf
    return rounded if exact(rounded) >= total else math.nextafter(rounded, math.inf)


def root_sum_of_squares(terms: Iterable[tuple[int, float]]) -> float:
    """Square root of the sum of count * value^2, rounded up to a double."""
    terms = list(terms)
    if any(math.isinf(value) for _, value in terms):
        return math.inf
    total = sum((count * exact(value) ** 2 for count, value in terms), Fraction(0))
    # Scaled by a power of 4, so that neither tiny nor huge squares leave the range of the doubles.
    shift = (total.numerator.bit_length() - total.denominator.bit_length()) // 2
    try:
        root = math.ldexp(math.sqrt(total / Fraction(4) ** shift), shift)
    except OverflowError:
        return math.inf
    while math.isfinite(root) and exact(root) ** 2 < total:
        root = math.nextafter(root, math.inf)
    return root
