"""What a map shows and which files it leaves: options that `release` and `tune` share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from discretion.cli import options
from discretion.cli.sheet import Floats, Page
from discretion.cli.tables import Columns, Reading
from discretion.spatial.raster import suffix
from discretion.spatial.region import Region

__all__ = ["Drawing", "Files"]

MAP, OUTPUT = "The map", "Output"


@dataclass(frozen=True)
class Drawing:
    """The question a map answers, and the words on it."""

    threshold: Annotated[
        float | None,
        typer.Option(help="Map where the response is at least this (after --transform).", rich_help_panel=MAP),
    ] = None
    below: Annotated[bool, typer.Option(help="Map where it is at most the threshold.", rich_help_panel=MAP)] = False
    fraction: Annotated[float, typer.Option(help="Share of the paths that must agree.", rich_help_panel=MAP)] = 0.5
    smooth_: Annotated[
        float,
        typer.Option(
            "--smooth",
            help="Smoothing of the paths: Gaussian, sd in grid cells; on a lattice how often each node becomes its "
            "mean with its neighbours.",
            rich_help_panel=MAP,
        ),
    ] = 0.0
    floor: Annotated[
        float,
        typer.Option(help="kernel-sum: rows that must be near for a local mean to be drawn.", rich_help_panel=MAP),
    ] = 20.0
    level: Annotated[
        float, typer.Option(help="kernel-sum: confidence of the inner and outer set.", rich_help_panel=MAP)
    ] = 0.95
    region: Annotated[
        Path | None,
        typer.Option(
            help="Public GeoJSON outline in the table's coordinates; the map stays inside.", rich_help_panel=MAP
        ),
    ] = None
    grid: options.GridPoints = "60"
    title: Annotated[
        str | None, typer.Option(help="Title of the map; if left out what is drawn, in words.", rich_help_panel=MAP)
    ] = None
    units: Annotated[str | None, typer.Option(help="Units of the response on the legend.", rich_help_panel=MAP)] = None
    source: Annotated[str, typer.Option(help="Attribution of the data, printed on the map.", rich_help_panel=MAP)] = ""

    def mistakes(self, columns: Columns) -> Iterator[tuple[bool, str]]:
        """What may be wrong with these, and whether it is."""
        t, (low, high) = self.threshold, columns.range
        axes = columns.box.dimension
        yield (
            t is not None and axes > 2,
            f"--threshold draws a line of one covariate or a map of two, and --domain has {axes} ranges. In Python "
            "posterior.confidence.excursion_sets(release, threshold) takes any number.",
        )
        yield (
            self.region is not None and axes != 2,
            "--region is an outline in the plane and needs two covariates.",
        )
        yield (
            t is not None and not low <= t <= high,
            f"--threshold {t} lies outside --response-range {columns.response_range}.",
        )
        yield not 0 < self.fraction <= 1, f"--fraction must lie above 0 and at most at 1; got {self.fraction:g}."
        yield not 0 < self.level < 1, f"--level must lie strictly between 0 and 1; got {self.level:g}."
        yield not 0 <= self.smooth_ < math.inf, f"--smooth must be a number >= 0; got {self.smooth_:g}."
        yield not 0 <= self.floor < math.inf, f"--floor must be a number >= 0; got {self.floor:g}."

    @cached_property
    def outline(self) -> Region | None:
        """The public region, if one was named."""
        return None if self.region is None else Region.read(self.region)

    def check_region(self, places: Floats) -> None:
        """Refuse a region that holds none of the places."""
        if self.outline is not None and not self.outline.contains(places).any():
            raise ValueError(f"--region {self.region} holds no point of the grid; is it in the table's coordinates?")

    def page(self, columns: Columns, reading: Reading, formats: tuple[str, ...], mechanism: str) -> Page:
        """The words and choices that all pictures and files of a release share."""
        logarithm = reading.transform == "log"
        units = self.units or (f"log {columns.response}" if logarithm else columns.response)
        return Page(
            columns.names,
            self.threshold,
            self.below,
            self.outline,
            columns.projection,
            self.title,
            units,
            logarithm,
            self.source,
            formats,
            mechanism == "kernel-sum",
        )


@dataclass(frozen=True)
class Files:
    """Where results go."""

    out: Annotated[Path, typer.Option(help="Folder for the results; made if missing.", rich_help_panel=OUTPUT)]
    formats: Annotated[
        str,
        typer.Option(
            help="Further files: geotiff, geoparquet, or both with a comma; need --crs.", rich_help_panel=OUTPUT
        ),
    ] = ""
    force: Annotated[bool, typer.Option(help="Replace earlier results in --out.", rich_help_panel=OUTPUT)] = False
    private_report: Annotated[
        Path | None,
        typer.Option(
            help="PRIVATE file for the data owner: how many rows were dropped, clamped, clipped.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html, a page to look at.", rich_help_panel=OUTPUT)
    ] = True

    def wanted(self, columns: Columns) -> tuple[str, ...]:
        """The further formats, once the packages that write them are there."""
        found = tuple(name for name in self.formats.replace(" ", "").split(",") if name and suffix(name))
        if found and columns.projection is None:
            raise ValueError("--formats needs --crs: the files say where they are.")
        return found
