"""What is wrong with a table, in words for its owner: columns and rows, never a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["BadTable", "Problem", "refuse"]

ROWS_LISTED = 10


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: `what`, in which `columns` and `rows`, and how to `mend` it.

    `rows` counts as the owner sees the file: the header is row 1.  In a data frame or Parquet file, which
    have no header row, it holds positions counted from 0 and `place` is "position".  It is empty where the
    whole column or file is meant.
    """

    what: str
    mend: str
    columns: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    place: Literal["row", "position"] = "row"

    def __str__(self) -> str:
        where = []
        if self.columns:
            plural = "s" if len(self.columns) > 1 else ""
            where.append(f"column{plural} {' and '.join(map(repr, self.columns))}")
        if self.rows:
            listed = ", ".join(map(str, self.rows[:ROWS_LISTED]))
            more = len(self.rows) - ROWS_LISTED
            plural = "s" if len(self.rows) > 1 else ""
            where.append(f"{self.place}{plural} {listed}" + (f" and {more} more" if more > 0 else ""))
        return (f"{', '.join(where)}: " if where else "") + f"{self.what}. {self.mend}"


class BadTable(ValueError):
    """A table that was refused.  For the data owner: names columns and rows, never a value.

    Attributes: `source` (the file, or "data frame") and `problems`, everything found wrong in one pass.
    """

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        super().__init__(source, tuple(problems))
        self.source = source
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}"
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        return f"{self.source}: {len(self.problems)} problems{lines}"


def refuse(source: str, what: str, mend: str) -> BadTable:
    """The error for a file or table as a whole."""
    return BadTable(source, [Problem(what, mend)])
