"""Read private records from a Parquet file in chunks, for sums that add: no more than one chunk is in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from discretion.gp.domain import Box
from discretion.privacy.frames import cleared
from discretion.spatial.reading import BadTable, Records, read_table
from discretion.spatial.reading.frames import open_parquet
from discretion.spatial.reading.problems import refuse

__all__ = ["records_in_chunks"]


@cleared
def records_in_chunks(
    path: str | os.PathLike[str],
    *,
    covariates: Sequence[str],
    response: str,
    domain: Box,
    response_range: tuple[float, float],
    transform: Literal["none", "log"] = "none",
    outside: Literal["refuse", "clamp", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    where: Mapping[str, object] | None = None,
    rows: int = 1 << 18,
) -> Iterator[Records]:
    """The records of a Parquet file, at most `rows` at a time, each chunk read by the rules of `read_table`.

    The arguments are those of `read_table`.  Chunks that the stated rules leave empty are passed over; rows in an
    error count from the start of the file.  A later chunk may still be refused when earlier ones have been used: check
    a file that matters by reading it through once before any budget is spent.

    Raises BadTable for the table, a plain ValueError for the declaration, and ImportError without pyarrow.
    """
    if isinstance(rows, bool) or int(rows) != rows or rows < 1:
        raise ValueError(f"rows must be a whole number, 1 or more, not {rows!r}.")
    rules: dict[str, Any] = {
        "covariates": covariates,
        "response": response,
        "domain": domain,
        "response_range": response_range,
        "transform": transform,
        "outside": outside,
        "missing": missing,
        "where": where,
    }
    start = found = 0
    for chunk in _batches(Path(path), list(dict.fromkeys([*covariates, response, *(where or {})])), int(rows)):
        try:
            records = read_table(chunk, **rules)
        except BadTable as error:
            # the columns are there: without rows, what is wrong is that no record of this chunk is left
            if problems := [problem for problem in error.problems if problem.rows]:
                raise _in_file(path, problems, start) from None
        else:
            found += records.n
            yield records
        start += len(chunk)
    if not found:
        raise refuse(str(path), "no record is left", "Check the domain and the rules for dropping rows")


def _in_file(path: str | os.PathLike[str], problems: Sequence[Any], start: int) -> BadTable:
    moved = [replace(each, rows=tuple(row + start for row in each.rows)) for each in problems]
    return BadTable(str(path), moved)


def _batches(path: Path, wanted: list[str], rows: int) -> Iterator[Any]:
    """The columns asked for as pyarrow tables of at most `rows` rows."""
    with open_parquet(path, wanted, memory_map=True) as file:
        import pyarrow

        for batch in file.iter_batches(rows, columns=wanted, use_threads=False):
            if batch.num_rows:
                yield pyarrow.Table.from_batches([batch])
