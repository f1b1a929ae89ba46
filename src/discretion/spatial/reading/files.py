"""CSV files as they are written: compressed, in some encoding, with some delimiter."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discretion.spatial.reading.problems import BadTable, Problem, refuse
from discretion.spatial.reading.table import Table, check_names, rows_in_words

__all__ = ["DELIMITERS", "read_csv"]

Floats = NDArray[np.float64]

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SNIFFED = (",", ";", "\t")


def read_csv(path: Path, wanted: Sequence[str], delimiter: str | None, encoding: str) -> Table:
    """The columns of a CSV file; without a delimiter the one that its header line shows."""
    source = str(path)
    text = _decode(source, _read_bytes(path), encoding)
    if not text.strip():
        raise refuse(source, "the file is empty", "Give a file with a header line and records")
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
        raise refuse(source, what, 'A field with a quote in it is written "like ""this"""')

    rows = np.arange(1, len(records) + 1)
    lengths = np.fromiter(map(len, records), dtype=np.int64, count=len(records))
    blank = lengths == 0
    if (lengths == 1).any():
        blank |= np.array([len(record) == 1 and not record[0].strip() for record in records])
    if blank.any():
        records = [record for record, empty in zip(records, blank, strict=True) if not empty]
        rows, lengths = rows[~blank], lengths[~blank]
        notes.append(f"{rows_in_words(blank)} without any text skipped")
    header = [name.strip() for name in records[0]]
    check_names(source, header, wanted)
    if len(records) == 1:
        raise refuse(source, "a header line and no record", "Give a file with records")
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
    return Table(source, columns, rows[1:], "row", delimiter, tuple(notes))


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


def _read_bytes(path: Path) -> bytes:
    source = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise refuse(source, "no such file", "Check the path") from None
    except IsADirectoryError:
        raise refuse(source, "a folder, not a file", "Name the file inside it") from None
    except OSError as error:
        raise refuse(source, f"cannot be opened ({error.strerror})", "Check the path and permissions") from None
    if not data.startswith(b"\x1f\x8b"):
        if path.suffix.lower() == ".gz":
            raise refuse(source, "named .gz but not compressed with gzip", "Rename it or compress it")
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise refuse(source, "damaged or cut-off gzip file", "Copy or compress it again") from None


def _decode(source: str, data: bytes, encoding: str) -> str:
    """Text of the file.  No exception that carries the file's bytes survives this function."""
    if data.startswith(b"PK\x03\x04"):
        raise refuse(source, "a spreadsheet or zip archive, not CSV text", "Export the sheet as CSV")
    if data.startswith(b"PAR1"):
        raise refuse(source, "a Parquet file", "Give it a name that ends in .parquet")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not encoding.lower().startswith("utf-16"):
        raise refuse(source, f"not {encoding} text", 'Its first bytes are those of UTF-16: pass encoding="utf-16"')
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
        raise refuse(source, "binary data, not CSV text", "Export the table as CSV or Parquet")
    if bad_byte >= 0:
        line = data.count(b"\n", 0, bad_byte) + 1
        mend = "Find out the encoding it was saved in and pass it as encoding=..."
        if _decodes(data, "cp1252"):
            mend = 'Files saved on Windows are often Windows-1252: pass encoding="cp1252"'
        raise refuse(source, f"not {encoding} text, first on line {line}", mend)
    return text.removeprefix("\ufeff")


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
