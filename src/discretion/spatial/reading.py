"""Read private records from a file or a data frame, strictly, against a public domain.

Nothing is guessed and nothing is read off the records: columns, domain, response range and transform are
declared beforehand.  A table that does not fit the declaration is refused as a whole, naming the rows that
need attention, before any privacy budget is spent.

Refusing after looking at the records is itself an output to whoever sees the refusal.  `BadTable` and
`Records.notes` are therefore for the owner of the data and must not be published; they name columns and rows
and never quote a value.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from discretion.gp.domain import Box
from discretion.posterior.units import bounded_contributions
from discretion.privacy import Randomness
from discretion.privacy.frames import cleared

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROWS_LISTED = 10
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SNIFFED = (",", ";", "\t")
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
INFINITE = frozenset({sign + word for sign in ("", "+", "-") for word in ("inf", "infinity")})
ONE_ROW = "one row of the table"


# -- what is wrong with a table ----------------------------------------------------------------------------


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


# -- records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """Private records: `covariates` (n, d) and `response` (n,), float64 and read-only.

    `covariate_names` (d of them) and `response_name` are public: the table's columns, or words for them.  `notes` tell
    the custodian what the stated rules did (how many rows were dropped, clamped, clipped); they depend on private
    values and are not for publication.  `unit` says in words what one record is, and `units` (n,), whole numbers, whose
    each record is, where the table says so.  Printing shows n and the column names, never a value.

    Raises ValueError when shapes disagree, there is no record, or a value is not finite.
    """

    covariates: Floats
    response: Floats
    covariate_names: tuple[str, ...]
    response_name: str
    notes: tuple[str, ...] = ()
    unit: str = ONE_ROW
    units: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        covariates = np.array(self.covariates, dtype=np.float64)
        response = np.array(self.response, dtype=np.float64)
        if covariates.ndim != 2 or response.shape != covariates.shape[:1]:
            raise ValueError(
                f"covariates must be (n, d) and response (n,), not {covariates.shape} and {response.shape}."
            )
        if len(self.covariate_names) != covariates.shape[1]:
            raise ValueError(f"{covariates.shape[1]} covariate columns have {len(self.covariate_names)} names.")
        if not response.size:
            raise ValueError("There is no record; at least one is needed.")
        if not (np.isfinite(covariates).all() and np.isfinite(response).all()):
            raise ValueError("records hold a value that is not finite; read them with read_table, which says where.")
        arrays: dict[str, NDArray[Any]] = {"covariates": covariates, "response": response}
        if self.units is not None:
            arrays["units"] = np.array(self.units, dtype=np.intp)
            if arrays["units"].shape != response.shape:
                raise ValueError("units must name the owner of each record: one for one.")
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def n(self) -> int:
        """Number of records; public under the replace-one relation."""
        return self.response.size

    @property
    def dimension(self) -> int:
        """Number of covariates."""
        return self.covariates.shape[1]

    @cleared
    def bounded(self, most: int, randomness: Randomness | None = None) -> Records:
        """These records, of each unit at most `most`: a random pick that looks at no value (`bounded_contributions`).

        Raises ValueError when it is not known whose each record is, or `most` is not a whole number of at least 1.
        """
        if self.units is None:
            raise ValueError("whose each record is was not read: name the column, unit_id=...")
        kept = bounded_contributions(self.units, most, randomness)
        left = f"{_rows(~kept)} left out, so that each of {len(np.unique(self.units))} units has at most {most}"
        return replace(
            self,
            covariates=self.covariates[kept],
            response=self.response[kept],
            units=self.units[kept],
            notes=(*self.notes, left),
        )

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        names = ", ".join(self.covariate_names)
        return f"Records(n={self.n}, covariates=({names}), response={self.response_name})"


# -- the one door ------------------------------------------------------------------------------------------


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
        table = _read_frame(source, wanted, unit_id)
    table = _keep_where(table, where)

    problems: list[Problem] = []
    units = None if unit_id is None else _units(table, unit_id, problems)
    columns = [_to_numbers(table, name, decimal, missing, problems) for name in (*covariates, response)]
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
        problems.extend(_outside_problems(table, X, out, domain, tuple(covariates)))
    if problems:
        raise BadTable(table.source, problems)

    notes = list(table.notes)
    keep = ~lacking
    if lacking.any():
        notes.append(f"{_rows(lacking)} with a missing value dropped")
    if outside == "drop" and (out & keep).any():
        notes.append(f"{_rows(out & keep)} outside the domain dropped")
        keep &= ~out
    if not keep.any():
        raise BadTable(table.source, [Problem("no record is left", "Check the domain and the rules for dropping rows")])
    X, y, out = X[keep], y[keep], out[keep]
    if out.any():
        X = np.asarray(domain.clamp(X), dtype=np.float64)
        notes.append(f"{_rows(out)} outside the domain clamped to its border")
    low, high = response_range
    for beyond, side in ((y < low, "below"), (y > high, "above")):
        if beyond.any():
            notes.append(f"{_rows(beyond)} with a response {side} the declared range clipped to it")
    notes.extend(_repetition_notes(X, y) if units is None else ())
    units = None if units is None else units[keep]
    return Records(X, np.clip(y, low, high), tuple(covariates), response, tuple(notes), units=units)


def _units(table: _Table, name: str, problems: list[Problem]) -> NDArray[np.intp]:
    """Whose each row is, as whole numbers from 0; a missing id is appended to `problems`."""
    texts = [_as_text(cell) for cell in table.columns[name]]
    lacking = np.array([text.lower() in MISSING for text in texts])
    if lacking.any():
        mend = "Fill it in, or take the row out by a rule (where) that is public: every record needs an owner"
        problems.append(table.problem("no id", mend, (name,), lacking))
    return np.unique(np.array(texts, dtype=str), return_inverse=True)[1]


def _rows(mask: Mask) -> str:
    count = int(np.count_nonzero(mask))
    return f"{count} row" + ("" if count == 1 else "s")


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


# -- tables of text or numbers, before conversion ----------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """The columns asked for, as lists of text or arrays of floats, and how to name a record to its owner."""

    source: str
    columns: dict[str, list[str] | Floats]
    rows: NDArray[np.int64]
    place: Literal["row", "position"]
    delimiter: str | None = None
    notes: tuple[str, ...] = ()

    def problem(self, what: str, mend: str, columns: tuple[str, ...], mask: Mask) -> Problem:
        return Problem(what, mend, columns, tuple(self.rows[mask].tolist()), self.place)


def _check_names(source: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a missing or ambiguous column; quote no name if the first row may be a record."""
    header_is_text = not any(_NUMBER.fullmatch(name.replace(",", ".")) for name in names)
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


def _keep_where(table: _Table, where: Mapping[str, object]) -> _Table:
    """The rows whose public columns hold the stated values, compared as text without blanks around."""
    keep = np.ones(table.rows.size, dtype=bool)
    notes = list(table.notes)
    for name, value in where.items():
        column = [_as_text(cell) for cell in table.columns[name]]
        chosen = np.array([cell == _as_text(value) for cell in column], dtype=bool)
        notes.append(f"{_rows(chosen)} of {chosen.size} have {name} = {_as_text(value)}")
        keep &= chosen
    if not keep.any():
        stated = " and ".join(f"{name} = {_as_text(value)}" for name, value in where.items())
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


def _as_text(value: object) -> str:
    """One spelling for a value of a public column: 0, 0.0 and "0" agree."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return ""
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value).strip()


# -- files -------------------------------------------------------------------------------------------------


def _read_path(
    path: Path, wanted: Sequence[str], delimiter: str | None, encoding: str, exact: str | None = None
) -> _Table:
    if path.suffix.lower() in {".parquet", ".pq"}:
        return _read_parquet(path, wanted, exact)
    return _read_csv(path, wanted, delimiter, encoding)


def _refuse(source: str, what: str, mend: str) -> BadTable:
    return BadTable(source, [Problem(what, mend)])


def _read_bytes(path: Path) -> bytes:
    source = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _refuse(source, "no such file", "Check the path") from None
    except IsADirectoryError:
        raise _refuse(source, "a folder, not a file", "Name the file inside it") from None
    except OSError as error:
        raise _refuse(source, f"cannot be opened ({error.strerror})", "Check the path and permissions") from None
    if not data.startswith(b"\x1f\x8b"):
        if path.suffix.lower() == ".gz":
            raise _refuse(source, "named .gz but not compressed with gzip", "Rename it or compress it")
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise _refuse(source, "damaged or cut-off gzip file", "Copy or compress it again") from None


def _decode(source: str, data: bytes, encoding: str) -> str:
    """Text of the file.  No exception that carries the file's bytes survives this function."""
    if data.startswith(b"PK\x03\x04"):
        raise _refuse(source, "a spreadsheet or zip archive, not CSV text", "Export the sheet as CSV")
    if data.startswith(b"PAR1"):
        raise _refuse(source, "a Parquet file", "Give it a name that ends in .parquet")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not encoding.lower().startswith("utf-16"):
        raise _refuse(source, f"not {encoding} text", 'Its first bytes are those of UTF-16: pass encoding="utf-16"')
    text, bad_byte = "", -1
    try:
        text = data.decode(encoding)
    except LookupError:
        raise ValueError(f"encoding {encoding!r} is not known to Python; 'utf-8' and 'cp1252' are.") from None
    except UnicodeDecodeError as error:
        bad_byte = error.start
    except UnicodeError:
        # What some codecs say (punycode, idna) quotes the text, and not where it stands.
        bad_byte = 0
    if "\x00" in text or (bad_byte >= 0 and b"\x00" in data):
        raise _refuse(source, "binary data, not CSV text", "Export the table as CSV or Parquet")
    if bad_byte >= 0:
        line = data.count(b"\n", 0, bad_byte) + 1
        mend = "Find out the encoding it was saved in and pass it as encoding=..."
        if _decodes(data, "cp1252"):
            mend = 'Files saved on Windows are often Windows-1252: pass encoding="cp1252"'
        raise _refuse(source, f"not {encoding} text, first on line {line}", mend)
    return text.removeprefix("\ufeff")


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _read_csv(path: Path, wanted: Sequence[str], delimiter: str | None, encoding: str) -> _Table:
    source = str(path)
    text = _decode(source, _read_bytes(path), encoding)
    if not text.strip():
        raise _refuse(source, "the file is empty", "Give a file with a header line and records")
    notes: list[str] = []
    if delimiter is None:
        delimiter = _sniff(text, wanted)
        notes.append(f"fields are separated by the {DELIMITERS[delimiter]}, as found in the header line")
    records, line, broken = [], 0, False
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        records = list(reader)
    except csv.Error:
        line, broken = reader.line_num, True
    if broken:
        what = f"quotation marks that do not close, or close within a field, or too long a field, by line {line}"
        raise _refuse(source, what, 'A field with a quote in it is written "like ""this"""')

    rows = np.arange(1, len(records) + 1)
    lengths = np.fromiter(map(len, records), dtype=np.int64, count=len(records))
    blank = lengths == 0
    if (lengths == 1).any():
        blank |= np.array([len(record) == 1 and not record[0].strip() for record in records])
    if blank.any():
        records = [record for record, empty in zip(records, blank, strict=True) if not empty]
        rows, lengths = rows[~blank], lengths[~blank]
        notes.append(f"{_rows(blank)} without any text skipped")
    header = [name.strip() for name in records[0]]
    _check_names(source, header, wanted)
    if len(records) == 1:
        raise _refuse(source, "a header line and no record", "Give a file with records")
    ragged = lengths != len(header)
    if ragged.any():
        what = f"more or fewer fields than the {len(header)} of the header"
        mend = f"A field that holds a {DELIMITERS[delimiter]} needs quotation marks around it"
        raise BadTable(source, [Problem(what, mend, rows=tuple(rows[ragged].tolist()))])
    del records[0]
    columns: dict[str, list[str] | Floats] = {}
    for name in wanted:
        at = header.index(name)
        columns[name] = [record[at] for record in records]
    return _Table(source, columns, rows[1:], "row", delimiter, tuple(notes))


def _sniff(text: str, wanted: Sequence[str]) -> str:
    """The delimiter under which the header shows most of the columns asked for, then most columns at all."""
    line = text.lstrip().splitlines()[0]

    def merit(delimiter: str) -> tuple[int, int]:
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
        except csv.Error:  # a field longer than any: the table will be refused
            names = []
        return len(set(wanted) & set(names)), len(names)

    return max(SNIFFED, key=merit)


@contextmanager
def _open_parquet(path: Path, wanted: Sequence[str], **options: Any) -> Iterator[Any]:
    """A pyarrow ParquetFile that has the columns; what goes wrong with it is BadTable."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError('reading Parquet needs pyarrow: pip install "discretion[parquet]"') from None
    source, damaged = str(path), False
    if not path.is_file():
        raise _refuse(source, "no such file", "Check the path")
    try:
        with parquet.ParquetFile(path, **options) as file:
            _check_names(source, file.schema_arrow.names, wanted)
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        damaged = True
    if damaged:
        # Outside the handler, so that the original, which can hold values, does not hang on as __context__.
        raise _refuse(source, "not a readable Parquet file", "Write it again, or rename it if it is CSV")


def _read_parquet(path: Path, wanted: Sequence[str], exact: str | None = None) -> _Table:
    with _open_parquet(path, wanted) as file:
        return replace(_read_frame(file.read(columns=list(wanted)), wanted, exact), source=str(path))


def _read_frame(source: Any, wanted: Sequence[str], exact: str | None = None) -> _Table:
    """The wanted columns of a frame; `exact` is one whose whole numbers stay text, with all their digits."""
    frame = nw.from_native(source, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        mend = "Give a path, or a pandas, polars or pyarrow table (a lazy one collected first)"
        raise _refuse(f"a {type(source).__name__}", "not a table that can be read", mend)
    _check_names("data frame", [str(name) for name in frame.columns], wanted)
    if not len(frame):
        raise _refuse("data frame", "no record", "Give a table with records")
    columns: dict[str, list[str] | Floats] = {
        name: [_as_text(cell) for cell in frame[name].to_list()] if name == exact else _frame_column(frame[name])
        for name in wanted
    }
    return _Table("data frame", columns, np.arange(len(frame)), "position")


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


# -- text to numbers ---------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = frozenset("0123456789+-.eE ")
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "_"})  # a point is then no part of any number
_GROUPED = re.compile(r"[+-]?[\d.,]*\d[\d.,]*", re.ASCII)


def _to_numbers(table: _Table, name: str, decimal: str, missing: str, problems: list[Problem]) -> Floats:
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
        if _NUMBER.fullmatch(number):
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


# -- outside the domain ------------------------------------------------------------------------------------


def _outside_problems(table: _Table, X: Floats, out: Mask, domain: Box, names: tuple[str, ...]) -> list[Problem]:
    """Rows outside the domain, sorted by what most likely happened to them; each row is listed once."""
    rest = out.copy()
    problems: list[Problem] = []

    def report(mask: Any, why: str, mend: str, share: float = 0.0) -> None:
        mask = np.asarray(mask) & rest
        if mask.any() and np.count_nonzero(mask) >= share * np.count_nonzero(rest):
            rest[mask] = False
            problems.append(table.problem(f"outside the domain{why}", mend, names, mask))

    lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
    beyond = np.less(X, lower) | np.greater(X, upper)
    rule = 'or state a rule: outside="drop" or outside="clamp"'
    report(
        (beyond & (X == 0)).any(axis=1),
        ", at 0, which is often how 'unknown' is written",
        f"Find the right place, {rule}",
    )
    nines = np.isin(np.abs(X), 10.0 ** np.arange(2, 16) - 1)
    report(
        (beyond & nines).any(axis=1),
        ", at a number all of nines, often a filler",
        f"Find the right place, {rule}",
    )
    for i, j in combinations(range(X.shape[1]), 2):
        swapped = X.copy()
        swapped[:, [i, j]] = X[:, [j, i]]
        report(
            domain.contains(swapped),
            f", but inside with {names[i]!r} and {names[j]!r} swapped",
            "Name the columns in the other order, or swap them in these rows",
            share=0.5,
        )
    if X.shape[1] == 2:
        size = np.sort(np.abs(X), axis=1)
        degrees = (size[:, 0] <= 90) & (size[:, 1] <= 180)
        if max(np.abs(lower).max(), np.abs(upper).max()) > 1000:
            report(
                degrees,
                ", and like degrees where the domain is in metres: two coordinate systems",
                "Convert these rows to the coordinate system of the domain",
            )
        elif np.abs(lower).max() <= 360 and np.abs(upper).max() <= 360:
            report(
                size[:, 1] > 1000,
                ", and like metres where the domain is in degrees: two coordinate systems",
                "Convert these rows to the coordinate system of the domain",
            )
    with np.errstate(over="ignore"):
        thousandfold = domain.contains(X / 1000) | domain.contains(X * 1000)
    scaled = ", and inside when scaled by 1000: another unit of length, or too small a domain"
    report(thousandfold, scaled, f"Convert these rows, {rule}")
    report(rest, "", f"Correct these rows, {rule}")
    return problems
