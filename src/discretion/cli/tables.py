"""Tables on the command line: the options that describe one, and how it is read by them.

`release`, `tune` and `plan map` share them. Everything here is public and fixed before a table is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer

from discretion.cli import options
from discretion.cli.console import note
from discretion.gp import Box
from discretion.privacy import Release
from discretion.spatial.hexagons import HexagonLattice, aggregate
from discretion.spatial.projection import Projection, suggest_crs
from discretion.spatial.reading import Records, read_table

PANEL = "The table"

SomeRelease = TypeVar("SomeRelease", bound=Release)


@dataclass(frozen=True)
class Reading:
    """How a table is read: options of every command that reads one."""

    transform: Annotated[str, typer.Option(help="none or log (natural).", rich_help_panel=PANEL)] = "none"
    where: Annotated[
        list[str] | None, typer.Option(help="Keep rows with column=value; may be repeated.", rich_help_panel=PANEL)
    ] = None
    outside: Annotated[
        str, typer.Option(help="Rows outside the domain: refuse, clamp or drop.", rich_help_panel=PANEL)
    ] = "refuse"
    missing: Annotated[str, typer.Option(help="Missing values: refuse or drop.", rich_help_panel=PANEL)] = "refuse"
    delimiter: Annotated[
        str | None, typer.Option(help="Field separator; found by itself if left out.", rich_help_panel=PANEL)
    ] = None
    decimal: Annotated[str, typer.Option(help="Decimal mark: . or ,", rich_help_panel=PANEL)] = "."
    encoding: Annotated[str, typer.Option(help="Text encoding.", rich_help_panel=PANEL)] = "utf-8-sig"

    def rules(
        self, covariates: Sequence[str], response: str, domain: Box, response_range: tuple[float, float], **more: Any
    ) -> TableRules:
        """The rules for tables with these columns and public ranges; ``more`` as in `TableRules`."""
        return TableRules(covariates, response, domain, response_range, self, **more)


@dataclass(frozen=True)
class Columns:
    """What a private table holds, and its public ranges."""

    covariates: Annotated[
        str, typer.Option(help="Columns that say where, separated by a comma.", rich_help_panel=PANEL)
    ]
    response: Annotated[str, typer.Option(help="Column that says what.", rich_help_panel=PANEL)]
    domain: Annotated[
        str,
        typer.Option(
            help="Public range of each covariate, such as 503000:562000,155000:201000. Never read off the records.",
            rich_help_panel=PANEL,
        ),
    ]
    response_range: Annotated[
        str,
        typer.Option(
            help="Public range of the response after --transform, such as 12:14; responses are clipped to it.",
            rich_help_panel=PANEL,
        ),
    ]
    aggregate_: Annotated[
        str | None,
        typer.Option(
            "--aggregate",
            help="hexagons:SIZE makes one record of each hexagon of a public lattice: its centre and median response.",
            rich_help_panel=PANEL,
        ),
    ] = None
    minimum_count: Annotated[
        int, typer.Option(help="Rows a hexagon needs to become a record.", rich_help_panel=PANEL)
    ] = 3
    crs: Annotated[
        str | None,
        typer.Option(
            help="Projected coordinate system, such as EPSG:27700, for GeoJSON in lon/lat.", rich_help_panel=PANEL
        ),
    ] = None

    @cached_property
    def box(self) -> Box:
        """The public domain."""
        return options.box(self.domain)

    @cached_property
    def names(self) -> list[str]:
        """Names of the covariates, one for each range of the domain."""
        return names_of(self.covariates, self.box)

    @cached_property
    def range(self) -> tuple[float, float]:
        """The public range of the response."""
        return options.interval(self.response_range, "--response-range")

    @cached_property
    def projection(self) -> Projection | None:
        """The coordinate system, if one was named."""
        return None if self.crs is None else Projection(self.crs, self.box)

    def rules(self, reading: Reading) -> TableRules:
        """How this table, and any other that is like it, is read."""
        if self.minimum_count < 1:
            raise ValueError(f"--minimum-count must be at least 1; got {self.minimum_count}.")
        return reading.rules(
            self.names,
            self.response,
            self.box,
            self.range,
            lattice=lattice_of(self.aggregate_, self.box),
            minimum_count=self.minimum_count,
            length="units" if self.projection is None else self.projection.unit,
        )


@dataclass(frozen=True)
class TableRules:
    """What was said of a table, and of any other that is to be read alike."""

    covariates: Sequence[str]
    response: str
    domain: Box
    response_range: tuple[float, float]
    reading: Reading
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
            transform=self.reading.transform,  # pyright: ignore[reportArgumentType]
            outside=self.reading.outside,  # pyright: ignore[reportArgumentType]
            missing=self.reading.missing,  # pyright: ignore[reportArgumentType]
            where=options.conditions(self.reading.where or []),
            unit_id=unit_id,
            delimiter=self.reading.delimiter,
            decimal=self.reading.decimal,  # pyright: ignore[reportArgumentType]
            encoding=self.reading.encoding,
        )
        if self.lattice is None:
            return found
        return aggregate(found, self.lattice, self.minimum_count, length=self.length)

    def noted(self, release: SomeRelease) -> SomeRelease:
        """The release, its certificate naming the rows that rules left out among what is not covered."""
        rules = [f"rows without {condition}" for condition in self.reading.where or []]
        rules += ["rows with a missing value"] if self.reading.missing == "drop" else []
        rules += ["rows outside the domain"] if self.reading.outside == "drop" else []
        return release.leaving_out(rules)


def names_of(covariates: str, domain: Box) -> list[str]:
    """The columns that --covariates names, one for each range of the domain."""
    names = [name.strip() for name in covariates.split(",")]
    if len(names) != domain.dimension:
        columns, ranges = (
            f"{k} {word}{'s' if k > 1 else ''}" for k, word in ((len(names), "column"), (domain.dimension, "range"))
        )
        raise ValueError(
            f"--covariates names {columns}, --domain has {ranges}: give low:high for each column, separated by commas."
        )
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
