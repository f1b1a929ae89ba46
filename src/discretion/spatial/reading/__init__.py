"""Read private records from a file or a data frame, strictly, against a public domain.

Nothing is guessed and nothing is read off the records: columns, domain, response range and transform are
declared beforehand.  A table that does not fit the declaration is refused as a whole, naming the rows that
need attention, before any privacy budget is spent.

Refusing after looking at the records is itself an output to whoever sees the refusal.  `BadTable` and
`Records.notes` are therefore for the owner of the data and must not be published; they name columns and rows
and never quote a value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.gp.domain import Box
from discretion.privacy.frames import cleared
from discretion.spatial.reading.files import DELIMITERS, read_csv
from discretion.spatial.reading.frames import read_frame, read_parquet
from discretion.spatial.reading.numbers import MISSING, to_numbers
from discretion.spatial.reading.outside import outside_problems
from discretion.spatial.reading.problems import BadTable, Problem
from discretion.spatial.reading.records import Records
from discretion.spatial.reading.table import Table, as_text, keep_where, rows_in_words

__all__ = ["BadTable", "Problem", "Records", "read_table"]

Floats = NDArray[np.float64]


@cleared
def read_table(
    source: Any,
    *,
    covariates: Sequence[str],
    response: str,
    domain: Box,
    response_range: tuple[float, float],
    transform: Literal["none", "log"] = "none",
    outside: Literal["refuse", "clamp", "drop"] = "refuse",
    missing: Literal["refuse", "drop"] = "refuse",
    where: Mapping[str, object] | None = None,
    unit_id: str | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] = ".",
    encoding: str = "utf-8-sig",
) -> Records:
    """Read records from `source`, a path to CSV (also .gz) or Parquet, or a pandas, polars or pyarrow frame.

    covariates, response
        Column names.  Text becomes numbers by one rule: an optional sign, ASCII digits with at most one
        decimal sign, an optional exponent; blanks around are ignored.  Thousands separators, currency, units,
        hexadecimal, underscores and words are refused, as are infinite values.
    domain, response_range
        Public: where covariates may lie, and the bounds of the response after `transform`.  Responses outside
        the range are clipped to it; that is the rule the guarantee rests on, not a repair.
    transform
        "log" takes the natural logarithm of the response, and refuses zero and negative numbers.
    outside
        A record outside the domain is refused, clamped to the nearest point of the domain, or dropped.
    missing
        An empty cell, NA, N/A, NULL, None, nan, ? or - is refused, or its row dropped.
    where
        Keep only rows whose column equals the value (compared as text), for instance {"new_build": "0"}.
    unit_id
        Column that says whose each record is, compared as text without blanks around, whole numbers as their digits.
        A missing id is refused whatever `missing` says.  `Records.bounded` then cuts what one unit contributes.
    delimiter
        Comma, semicolon or tab is found from the header line when None, and `Records.notes` say which.
    decimal, encoding
        Decimal sign and text encoding of a CSV file.

    `outside="drop"`, `missing="drop"` and `where` let the records decide how many there are.  A replace-one
    guarantee with public n then protects the records kept, given how many were kept; clamping leaves n alone.

    Refusal is all or nothing and comes before any budget is spent.  A refusal tells whoever sees it something
    about the records, so `BadTable` is for the data owner.

    Raises BadTable for the table, a plain ValueError for the declaration, and ImportError for Parquet without
    pyarrow.
    """
    _check_declaration(covariates, response, domain, response_range, transform, outside, missing, delimiter, decimal)
    where = dict(where or {})
    if unit_id in (*covariates, response):
        raise ValueError("unit_id must be another column than covariates and response.")
    others = [*where, *([] if unit_id is None else [unit_id])]
    wanted = list(dict.fromkeys([*covariates, response, *others]))
    if isinstance(source, (str, os.PathLike)):
        table = _read_path(Path(source), wanted, delimiter, encoding, unit_id)
    else:
        table = read_frame(source, wanted, unit_id)
    table = keep_where(table, where)

    problems: list[Problem] = []
    units = None if unit_id is None else _units(table, unit_id, problems)
    columns = [to_numbers(table, name, decimal, missing, problems) for name in (*covariates, response)]
    X, y = np.column_stack(columns[:-1]), columns[-1]
    lacking = np.isnan(X).any(axis=1) | np.isnan(y)
    if transform == "log":
        bad = y <= 0
        if bad.any():
            mend = 'Correct these rows or take them out; transform="log" is for positive numbers'
            problems.append(table.problem("zero or negative, which has no logarithm", mend, (response,), bad))
        y = np.log(np.where(y > 0, y, np.nan))
    out = ~(domain.contains(X) | np.isnan(X).any(axis=1))
    if outside == "refuse" and out.any():
        problems.extend(outside_problems(table, X, out, domain, tuple(covariates)))
    if problems:
        raise BadTable(table.source, problems)

    notes = list(table.notes)
    keep = ~lacking
    if lacking.any():
        notes.append(f"{rows_in_words(lacking)} with a missing value dropped")
    if outside == "drop" and (out & keep).any():
        notes.append(f"{rows_in_words(out & keep)} outside the domain dropped")
        keep &= ~out
    if not keep.any():
        raise BadTable(table.source, [Problem("no record is left", "Check the domain and the rules for dropping rows")])
    X, y, out = X[keep], y[keep], out[keep]
    if out.any():
        X = np.asarray(domain.clamp(X), dtype=np.float64)
        notes.append(f"{rows_in_words(out)} outside the domain clamped to its border")
    low, high = response_range
    for beyond, side in ((y < low, "below"), (y > high, "above")):
        if beyond.any():
            notes.append(f"{rows_in_words(beyond)} with a response {side} the declared range clipped to it")
    notes.extend(_repetition_notes(X, y) if units is None else ())
    units = None if units is None else units[keep]
    return Records(X, np.clip(y, low, high), tuple(covariates), response, tuple(notes), units=units)


def _units(table: Table, name: str, problems: list[Problem]) -> NDArray[np.intp]:
    """Whose each row is, as whole numbers from 0; a missing id is appended to `problems`."""
    texts = [as_text(cell) for cell in table.columns[name]]
    lacking = np.array([text.lower() in MISSING for text in texts])
    if lacking.any():
        mend = "Fill it in, or take the row out by a rule (where) that is public: every record needs an owner"
        problems.append(table.problem("no id", mend, (name,), lacking))
    return np.unique(np.array(texts, dtype=str), return_inverse=True)[1]


def _read_path(
    path: Path, wanted: Sequence[str], delimiter: str | None, encoding: str, exact: str | None = None
) -> Table:
    if path.suffix.lower() in {".parquet", ".pq"}:
        return read_parquet(path, wanted, exact)
    return read_csv(path, wanted, delimiter, encoding)


def _check_declaration(
    covariates: Sequence[str],
    response: str,
    domain: Box,
    response_range: tuple[float, float],
    transform: str,
    outside: str,
    missing: str,
    delimiter: str | None,
    decimal: str,
) -> None:
    if isinstance(covariates, str) or not covariates:
        raise ValueError("covariates must be a list of column names, such as ['easting_m', 'northing_m'].")
    if len({*covariates, response}) != len(covariates) + 1:
        raise ValueError("covariates and response must be different columns, each named once.")
    if domain.dimension != len(covariates):
        raise ValueError(f"The domain has {domain.dimension} axes, but {len(covariates)} covariates are named.")
    low, high = response_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"response_range must be two finite numbers, lower first, not {response_range}.")
    for name, value, choices in (
        ("transform", transform, ("none", "log")),
        ("outside", outside, ("refuse", "clamp", "drop")),
        ("missing", missing, ("refuse", "drop")),
        ("decimal", decimal, (".", ",")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
    if delimiter is not None and delimiter not in DELIMITERS:
        raise ValueError(f"delimiter must be one of {', '.join(map(repr, DELIMITERS))}, not {delimiter!r}.")


def _repetition_notes(X: Floats, y: Floats) -> list[str]:
    """How often places and whole records repeat: a hint that one person may own several rows."""
    n = y.size
    order = np.lexsort((y, *X.T))
    same_place = (np.diff(X[order], axis=0) == 0).all(axis=1)
    places = n - int(np.count_nonzero(same_place))
    repeats = int(np.count_nonzero(same_place & (np.diff(y[order]) == 0)))
    if places == n:
        return []
    return [
        f"{n} rows stand at {places} distinct places; {repeats} repeat another row entirely; all are kept. "
        "Where one person owns several rows, a guarantee for one row does not cover the person"
    ]
