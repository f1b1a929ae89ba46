"""Text to numbers by one strict rule: what is not a plain finite number is named, not guessed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from discretion.spatial.reading.problems import Problem
    from discretion.spatial.reading.table import Table

__all__ = ["MISSING", "NUMBER", "to_numbers"]

Floats = NDArray[np.float64]

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
INFINITE = frozenset({sign + word for sign in ("", "+", "-") for word in ("inf", "infinity")})

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = frozenset("0123456789+-.eE ")
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "_"})  # a point is then no part of any number
_GROUPED = re.compile(r"[+-]?[\d.,]*\d[\d.,]*", re.ASCII)


def to_numbers(table: Table, name: str, decimal: str, missing: str, problems: list[Problem]) -> Floats:
    """Column as float64, NaN where missing or unreadable; what must be mended is appended to `problems`."""
    column = table.columns[name]
    if isinstance(column, list):
        fast = _plain_numbers(column, decimal)
        if fast is not None:
            return fast
        values, kinds = _diagnose(column, decimal)
    else:
        values = np.where(np.isinf(column), np.nan, column)
        kinds = np.select([np.isnan(column), np.isinf(column)], [_LACKING, _INFINITE], _FINE)
    separator = (
        "Take the thousands separators out"
        if table.delimiter == "," or decimal == ","
        else 'If the comma is the decimal sign, pass decimal=","; if it marks thousands, take it out'
    )
    explained = (
        (_LACKING, "missing value", 'Fill it in, or pass missing="drop" to leave out rows that lack a value'),
        (
            _INFINITE,
            "not a finite number",
            "Correct it; infinity and numbers too large for a computer are never read",
        ),
        (_SEPARATED, f"a comma or point that is not the decimal sign {decimal!r}", separator),
        (
            _TEXT,
            "not a plain number",
            "Write digits alone: no currency, unit, word, blank or quotation mark within",
        ),
    )
    for kind, what, mend in explained:
        mask = kinds == kind
        if mask.any() and not (kind == _LACKING and missing == "drop"):
            problems.append(table.problem(what, mend, (name,), mask))
    return values


_FINE, _LACKING, _INFINITE, _SEPARATED, _TEXT = range(5)


def _plain_numbers(column: list[str], decimal: str) -> Floats | None:
    """The whole column at once, or None as soon as one cell is not a plain finite number."""
    characters = set("".join(column))
    if decimal == ",":
        if "." in characters:
            return None
        characters.discard(",")
    if not characters <= _PLAIN:
        return None
    try:
        values = np.array([cell.replace(",", ".") for cell in column] if decimal == "," else column, dtype=np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def _diagnose(column: list[str], decimal: str) -> tuple[Floats, NDArray[np.int64]]:
    """Cell by cell: its value (NaN unless fine) and what is wrong with it."""
    values = np.full(len(column), np.nan)
    kinds = np.empty(len(column), dtype=np.int64)
    for i, raw in enumerate(column):
        cell = raw.strip()
        number = cell.translate(_COMMA_TO_POINT) if decimal == "," else cell
        if NUMBER.fullmatch(number):
            value = float(number)
            kinds[i] = _FINE if np.isfinite(value) else _INFINITE
            values[i] = value if np.isfinite(value) else np.nan
        elif cell.lower() in MISSING:
            kinds[i] = _LACKING
        elif cell.lower() in INFINITE:
            kinds[i] = _INFINITE
        else:
            kinds[i] = _SEPARATED if _GROUPED.fullmatch(cell) else _TEXT
    return values, kinds
