"""Records with unmistakable values, and a search that finds them however they are spelled."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

from discretion.gp import Box

EASTING, NORTHING, PRICE, OWNER = 530161.7283, 180769.4387, 765487.193, "owner-7Q3XKD"
DOMAIN = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
CENTRE = 13.0
"""Middle of the range of logarithms of prices that releases are made with."""

DIGITS = 6
"""Significant digits by which a value is known; in a thousand numbers one agrees by accident one time in a thousand."""

CLIPPED, DROPPED = 263, 241
"""How many rows of `table` lie outside the response range and outside the domain: only its owner may see these."""


def values() -> list[float]:
    """The planted record as numbers: as in the table, and as mechanisms compute with them."""
    unit = DOMAIN.unit(np.array([[EASTING, NORTHING]]))[0]
    return [EASTING, NORTHING, PRICE, *unit.tolist(), float(np.log(PRICE)), float(np.log(PRICE) - CENTRE)]


@cache
def _spellings() -> tuple[re.Pattern[bytes], tuple[bytes, ...]]:
    """Decimals of any length, mark, exponent and grouping; floats of 8 and 4 bytes in both orders; text in Unicode."""
    decimals, raw = [], [OWNER.encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le")]
    for value in values():
        cut, rounded = f"{abs(value):.17e}".replace(".", ""), f"{abs(value):.{DIGITS - 1}e}".replace(".", "")
        decimals += [r"[.,_']?".join(digits[:DIGITS]) for digits in (cut, rounded)]
        raw += [np.array(value, dtype=order + size).tobytes() for order in "<>" for size in ("f8", "f4")]
    return re.compile(rf"(?<![\d.])[0.,]*(?:{'|'.join(dict.fromkeys(decimals))})".encode()), tuple(raw)


def traces(data: bytes) -> list[bytes]:
    """What of the planted record stands in these bytes."""
    decimals, raw = _spellings()
    return [found[0] for found in decimals.finditer(data)] + [each for each in raw if each in data]


def counts(text: str) -> list[str]:
    """Which of the counts that only the owner of the table may see stand in a text."""
    # as words: among the letters of a digest or of packed noise three digits mean nothing
    return re.findall(rf"(?<![\w.,])(?:{CLIPPED}|{DROPPED})(?![\w.,])", text)


def unpacked(name: str, data: bytes) -> Iterable[tuple[str, bytes]]:
    """A file, and what is compressed in it."""
    yield name, data
    if data.startswith(b"\x1f\x8b"):
        yield f"{name} unzipped", gzip.decompress(data)
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield f"{name}: {member}", archive.read(member)
    if data.startswith(b"PAR1"):
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(io.BytesIO(data))
        yield f"{name}: columns", table.to_pandas().to_csv().encode() + str(table.schema.metadata).encode()
    if name.endswith((".tif", ".tiff")):
        import rasterio

        with rasterio.open(io.BytesIO(data)) as raster:
            yield f"{name}: bands and tags", raster.read().tobytes() + repr(raster.tags()).encode()


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """The planted record and 19 others as covariates (20, 2) and logarithms of prices (20,)."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(DOMAIN.lower, DOMAIN.upper, (20, 2)), rng.normal(CENTRE, 0.3, 20)
    X[7], y[7] = (EASTING, NORTHING), np.log(PRICE)
    return X, y


def owners() -> list[str]:
    """Whose each record of `arrays` is: of the planted one it is the planted owner."""
    return [OWNER if i == 7 else f"o{i}" for i in range(20)]


def table(path: Path, rows: int = 1_000, *, strays: bool = True, broken: bool = False) -> None:
    """A table with the planted record among made-up ones: ``strays`` are out of range, ``broken`` ones no numbers.

    Its columns are easting_m, northing_m, price_gbp and owner.
    """
    rng = np.random.default_rng(0)
    places, prices = rng.uniform((505_000, 157_000), (560_000, 199_000), (rows, 2)), rng.lognormal(13, 0.3, rows)
    prices = np.clip(prices, 1.7e5, 1.1e6)
    if strays:
        prices[:CLIPPED], places[-DROPPED:, 0] = 3e6, 600_000.0
    lines = [f"{e:.1f},{n:.1f},{p:.0f},o{i}" for i, ((e, n), p) in enumerate(zip(places, prices, strict=True))]
    lines.insert(rows // 2, f"{EASTING},{NORTHING},{PRICE},{OWNER}")
    if broken:
        lines.insert(rows // 3, f"{EASTING},{NORTHING},inf,{OWNER}")
        lines.insert(rows // 4, f"{PRICE},{EASTING},{PRICE}x,{OWNER}")
    path.write_text("\n".join(["easting_m,northing_m,price_gbp,owner", *lines]) + "\n")
