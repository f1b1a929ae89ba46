"""The columns asked for, as text or numbers, before the strict rule: names, choice of rows, one spelling of a value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discretion.spatial.reading.numbers import NUMBER
from discretion.spatial.reading.problems import BadTable, Problem

__all__ = ["Table", "as_text", "check_names", "keep_where", "rows_in_words"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """The columns asked for, as lists of text or arrays of floats, and how to name a record to its owner."""

    source: str
    columns: dict[str, list[str] | Floats]
    rows: NDArray[np.int64]
    place: Literal["row", "position"]
    delimiter: str | None = None
    notes: tuple[str, ...] = ()

    def problem(self, what: str, mend: str, columns: tuple[str, ...], mask: Mask) -> Problem:
        return Problem(what, mend, columns, tuple(self.rows[mask].tolist()), self.place)


def check_names(source: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a missing or ambiguous column; quote no name if the first row may be a record."""
    header_is_text = not any(NUMBER.fullmatch(name.replace(",", ".")) for name in names)
    problems = []
    for name in wanted:
        if names.count(name) > 1:
            problems.append(Problem("the name stands more than once in the header", "Rename the others", (name,)))
        elif name not in names:
            if header_is_text:
                close = difflib.get_close_matches(name, names, n=1)
                # The found names are not listed: in a table without a header they are the first record.
                guess = f"Did you mean {close[0]!r}? " if close else ""
                mend = f"{guess}The first row has {len(names)} cells; if it is a record, put a header line above it"
            else:
                mend = "A number stands in the first row; if it is a record, put a header line above it"
            problems.append(Problem("no such column", mend, (name,)))
    if problems:
        raise BadTable(source, problems)


def keep_where(table: Table, where: Mapping[str, object]) -> Table:
    """The rows whose public columns hold the stated values, compared as text without blanks around."""
    keep = np.ones(table.rows.size, dtype=bool)
    notes = list(table.notes)
    for name, value in where.items():
        column = [as_text(cell) for cell in table.columns[name]]
        chosen = np.array([cell == as_text(value) for cell in column], dtype=bool)
        notes.append(f"{rows_in_words(chosen)} of {chosen.size} have {name} = {as_text(value)}")
        keep &= chosen
    if not keep.any():
        stated = " and ".join(f"{name} = {as_text(value)}" for name, value in where.items())
        mend = "Check the spelling of the value; it is compared as text"
        raise BadTable(table.source, [Problem(f"no row has {stated}", mend)])
    if keep.all():
        return replace(table, notes=tuple(notes))
    at = np.flatnonzero(keep)
    columns: dict[str, list[str] | Floats] = {
        name: [column[i] for i in at] if isinstance(column, list) else column[at]
        for name, column in table.columns.items()
    }
    return replace(table, columns=columns, rows=table.rows[at], notes=tuple(notes))


def as_text(value: object) -> str:
    """One spelling for a value of a public column: 0, 0.0 and "0" agree."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return ""
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value).strip()


def rows_in_words(mask: Mask) -> str:
    """How many they are."""
    count = int(np.count_nonzero(mask))
    return f"{count} row" + ("" if count == 1 else "s")
