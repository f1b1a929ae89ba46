"""Tables on the command line: the options that describe one, and how it is read by them.

`release`, `tune` and `plan map` share them. Everything here is public and fixed before a table is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from discretion.cli import options
from discretion.cli.console import note
from discretion.gp import Box
from discretion.spatial.hexagons import HexagonLattice, aggregate
from discretion.spatial.projection import suggest_crs
from discretion.spatial.reading import Records, read_table

PANEL = "The table"

HELP = {
    "covariates": "Columns that say where, separated by a comma.",
    "response": "Column that says what.",
    "domain": "Public range of each covariate, such as 503000:562000,155000:201000. Never read off the records.",
    "response_range": "Public range of the response after --transform, such as 12:14; responses are clipped to it.",
    "transform": "none or log (natural).",
    "where": "Keep rows with column=value; may be repeated.",
    "aggregate": "hexagons:SIZE makes one record of each hexagon of a public lattice: its centre and median response.",
    "minimum_count": "Rows a hexagon needs to become a record.",
    "outside": "Rows outside the domain: refuse, clamp or drop.",
    "missing": "Missing values: refuse or drop.",
    "delimiter": "Field separator; found by itself if left out.",
    "decimal": "Decimal mark: . or ,",
    "encoding": "Text encoding.",
    "crs": "Projected coordinate system, such as EPSG:27700, for GeoJSON in lon/lat.",
}


def option(name: str, panel: str = PANEL, *flags: str) -> Any:
    """The option of that name, in a panel of the help."""
    return typer.Option(*flags, help=HELP[name], rich_help_panel=panel)


Covariates = Annotated[str, option("covariates")]
Response = Annotated[str, option("response")]
Domain = Annotated[str, option("domain")]
ResponseRange = Annotated[str, option("response_range")]
Transform = Annotated[str, option("transform")]
Where = Annotated[list[str] | None, option("where")]
Aggregate = Annotated[str | None, option("aggregate", PANEL, "--aggregate")]
MinimumCount = Annotated[int, option("minimum_count")]
Outside = Annotated[str, option("outside")]
Missing = Annotated[str, option("missing")]
Delimiter = Annotated[str | None, option("delimiter")]
Decimal = Annotated[str, option("decimal")]
Encoding = Annotated[str, option("encoding")]
Crs = Annotated[str | None, option("crs")]


@dataclass(frozen=True)
class TableRules:
    """What was said of a table, and of any other that is to be read alike."""

    covariates: Sequence[str]
    response: str
    domain: Box
    response_range: tuple[float, float]
    transform: str
    where: Sequence[str]
    outside: str
    missing: str
    delimiter: str | None
    decimal: str
    encoding: str
    lattice: HexagonLattice | None = None
    minimum_count: int = 1
    length: str = "units"

    def read(self, source: Path, unit_id: str | None = None) -> Records:
        """The records of a file: one for each row, or for each hexagon of the lattice."""
        found = read_table(
            source,
            covariates=self.covariates,
            response=self.response,
            domain=self.domain,
            response_range=self.response_range,
            transform=self.transform,  # pyright: ignore[reportArgumentType]
            outside=self.outside,  # pyright: ignore[reportArgumentType]
            missing=self.missing,  # pyright: ignore[reportArgumentType]
            where=options.conditions(list(self.where)),
            unit_id=unit_id,
            delimiter=self.delimiter,
            decimal=self.decimal,  # pyright: ignore[reportArgumentType]
            encoding=self.encoding,
        )
        if self.lattice is None:
            return found
        return aggregate(found, self.lattice, self.minimum_count, length=self.length)

    @property
    def kept(self) -> str:
        """What the rules that leave rows out mean for the promise, in words for the certificate."""
        rules = [f"rows without {condition}" for condition in self.where]
        rules += ["rows with a missing value"] if self.missing == "drop" else []
        rules += ["rows outside the domain"] if self.outside == "drop" else []
        if not rules:
            return ""
        return f". Left out by rule: {', '.join(rules)}; the promise is for the rows kept, given how many were kept"


def names_of(covariates: str, domain: Box) -> list[str]:
    """The columns that --covariates names, one for each range of the domain."""
    names = [name.strip() for name in covariates.split(",")]
    if len(names) != domain.dimension:
        raise ValueError(f"--covariates names {len(names)} columns, --domain has {domain.dimension} ranges.")
    return names


def lattice_of(text: str | None, box: Box) -> HexagonLattice | None:
    """The lattice that --aggregate names, small enough for the domain."""
    if text is None:
        return None
    lattice = HexagonLattice(options.hexagon_size(text), box)
    if lattice.size > min(np.subtract(box.upper, box.lower)):
        raise ValueError(f"--aggregate: a hexagon {lattice.size:g} wide does not fit the domain; choose smaller ones.")
    return lattice


def report(path: Path | None, records: Records) -> None:
    """Write what the rules did to the records, for the data owner; without a path, nothing."""
    if path is not None:
        lines = ["PRIVATE: for the data owner only; these counts depend on the records.", *records.notes]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def warn_of_degrees(names: Sequence[str], box: Box) -> None:
    """Say so where the plane looks like longitude and latitude: a kernel would measure them as if they were metres."""
    words = [name.lower() for name in names]
    named = (
        len(names) == 2
        and any("lat" in word for word in words)
        and any("lon" in word or "lng" in word for word in words)
    )
    reach = np.abs([box.lower, box.upper]).max(axis=0)
    if not named or reach.max() > 180 or reach.min() > 90:
        return
    try:
        # The latitude, wherever it stands, is the column so named.
        order = [1, 0] if "lat" in words[0] else [0, 1]
        lonlat = Box(tuple(box.lower[i] for i in order), tuple(box.upper[i] for i in order))
        system = f", such as {suggest_crs(lonlat)}"
    except (ImportError, ValueError):
        system = ""
    note(
        "The covariates look like degrees. A degree of longitude is shorter than one of latitude, and the kernel takes "
        f"both for equal: project them to a plane in metres{system}, and name it with --crs."
    )
