"""Tables that have columns already: data frames, and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from discretion.spatial.reading.problems import refuse
from discretion.spatial.reading.table import Table, as_text, check_names

__all__ = ["open_parquet", "read_frame", "read_parquet"]

Floats = NDArray[np.float64]


def read_frame(source: Any, wanted: Sequence[str], exact: str | None = None) -> Table:
    """The wanted columns of a frame; `exact` is one whose whole numbers stay text, with all their digits."""
    frame = nw.from_native(source, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        mend = "Give a path, or a pandas, polars or pyarrow table (a lazy one collected first)"
        raise refuse(f"a {type(source).__name__}", "not a table that can be read", mend)
    check_names("data frame", [str(name) for name in frame.columns], wanted)
    if not len(frame):
        raise refuse("data frame", "no record", "Give a table with records")
    columns: dict[str, list[str] | Floats] = {
        name: [as_text(cell) for cell in frame[name].to_list()] if name == exact else _frame_column(frame[name])
        for name in wanted
    }
    return Table("data frame", columns, np.arange(len(frame)), "position")


def _frame_column(column: nw.Series[Any]) -> list[str] | Floats:
    """Numbers as float64 with NaN for null; anything else as text, for the strict rule to read or refuse."""
    if column.dtype.is_numeric():
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return [_cell_text(cell) for cell in column.to_list()]


def _cell_text(cell: object) -> str:
    if cell is None or type(cell).__name__ in {"NAType", "NaTType"}:
        return ""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return repr(float(cell))
    return str(cell)


def read_parquet(path: Path, wanted: Sequence[str], exact: str | None = None) -> Table:
    """The wanted columns of a file; `exact` as in `read_frame`."""
    with open_parquet(path, wanted) as file:
        return replace(read_frame(file.read(columns=list(wanted)), wanted, exact), source=str(path))


@contextmanager
def open_parquet(path: Path, wanted: Sequence[str], **options: Any) -> Iterator[Any]:
    """A pyarrow ParquetFile that has the columns; what goes wrong with it is BadTable."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError('Reading Parquet needs pyarrow: pip install "discretion[parquet]".') from None
    source, damaged = str(path), False
    if not path.is_file():
        raise refuse(source, "no such file", "Check the path")
    try:
        with parquet.ParquetFile(path, **options) as file:
            check_names(source, file.schema_arrow.names, wanted)
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        damaged = True
    if damaged:
        # Outside the handler, so that the original, which can hold values, does not hang on as __context__.
        raise refuse(source, "not a readable Parquet file", "Write it again, or rename it if it is CSV")
