"""The files of a release: certificate, tables, GeoJSON, pictures. Sees released values and public parameters only."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.posterior import PathRelease
from discretion.posterior.excursion import Polygon, agreed, excursion_polygons, smooth, smooth_paths
from discretion.privacy import round_up, round_up_significant
from discretion.report.folder import PAGE
from discretion.report.reading import contrast
from discretion.spatial.geojson import multipolygon, points, write_geojson
from discretion.spatial.maps import Key, draw_line, draw_map, draw_paths
from discretion.spatial.maps.line import spans
from discretion.spatial.projection import Projection
from discretion.spatial.raster import suffix, write_geoparquet, write_geotiff
from discretion.spatial.region import Region

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

PROBE = ".discretion"


def claim_folder(out: Path, names: set[str], force: bool) -> None:
    """Make the folder and make sure that results can be written, before anything is spent."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder for the results.")
    out.mkdir(parents=True, exist_ok=True)
    there = sorted(name for name in names if (out / name).exists())
    if there and not force:
        raise ValueError(f"{out} already holds {', '.join(there)}; choose another --out, or --force to replace them.")
    (out / PROBE).touch()
    (out / PROBE).unlink()


def check_geotiff(out: Path, box: Box, projection: Projection, unit: str) -> None:
    """Refuse a system, or a unit in words, that the format cannot hold, before anything is spent."""
    write_geotiff(out / PROBE, {"a": [[0.0]]}, box, projection=projection, tags={"unit": unit})
    (out / PROBE).unlink()


@dataclass(frozen=True)
class Page:
    """Public words and choices that the pictures and files of any release share.

    ``units`` name the response as it was released, after a transform; ``logarithm`` says that it is one, and ``means``
    that local means of it are drawn.
    """

    names: list[str]
    threshold: float | None
    below: bool
    region: Region | None
    projection: Projection | None
    title: str | None
    units: str
    logarithm: bool
    source: str
    formats: tuple[str, ...]
    means: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """The question inside files."""
        return {"threshold": self.threshold, "side": "<=" if self.below else ">="}

    @property
    def condition(self) -> str:
        """What the threshold asks, such as "at least 13 (442,000)"."""
        return f"{'at most' if self.below else 'at least'} {self.amount(self.threshold or 0.0)}"

    def outlined(self, paths: int, fraction: float) -> str:
        """What an outline on which paths agree says."""
        share = {0.5: "at least half of the", 1.0: "all"}.get(fraction, f"at least {100 * fraction:g} % of the")
        return f"{self.units} {self.condition}" + (f" in {share} paths" if paths > 1 else "")

    @property
    def heading(self) -> str:
        """The title given, or one that says what is drawn."""
        drawn = f"the clipped local mean of {self.units}" if self.means else self.units
        alone = drawn[0].upper() + drawn[1:] if self.means else drawn
        return self.title or (alone if self.threshold is None else f"Where {drawn} is {self.condition}")

    def amount(self, value: float, line: str = " ({})") -> str:
        """A value in words; of a logarithm also the number that it is the logarithm of."""
        if not self.logarithm or abs(value) > 300:
            return f"{value:g}"
        number = float(f"{math.exp(value):.3g}")
        return f"{value:g}" + line.format(f"{number:,.0f}" if number >= 1000 else f"{number:g}")

    def tick(self, value: float) -> str:
        """The same below one another, for a colour bar."""
        return self.amount(value, "\n{}")


@dataclass(frozen=True)
class Sheet(ABC):
    """The files of one release."""

    page: Page
    release: Any

    STEM: ClassVar[str]

    @classmethod
    def names(cls) -> list[str]:
        """Every file that such a release may leave."""
        tables = [f"{cls.STEM}{end}" for end in (".csv", ".geojson", ".tif", ".parquet")]
        return ["certificate.json", "certificate.txt", *tables, "excursion.geojson", "map.png", "paths.png", PAGE]

    def write(self, out: Path) -> list[str]:
        """Write them into the folder; returns their names."""
        self.release.certificate.save(out / "certificate.json")
        (out / "certificate.txt").write_text(self.release.certificate.text() + "\n", encoding="utf-8")
        files = ["certificate.json", "certificate.txt", *self._tables(out)]
        pictures = {1: self._line, 2: self._maps}.get(len(self.page.names))
        return files if pictures is None else files + pictures(out)

    @abstractmethod
    def columns(self) -> dict[str, NDArray[Any]]:
        """The released numbers, a column for each array; NaN where there is none."""

    @abstractmethod
    def _maps(self, out: Path) -> list[str]: ...

    def _line(self, out: Path) -> list[str]:
        """The picture along one covariate; areas have none."""
        return []

    # --- numbers

    @property
    def cost(self) -> dict[str, float]:
        """What is written beside the numbers."""
        certificate = self.release.certificate
        return {"epsilon": float(round_up(certificate.epsilon, 3)), "delta": certificate.delta}

    @property
    def tags(self) -> dict[str, Any]:
        """What is kept inside files of geographic information systems."""
        made = self.release.certificate
        asked = {} if self.page.threshold is None else self.page.asked
        told = {"unit": made.protects(), "certificate": made.ledger_entry or made.created, "response": self.page.units}
        return self.cost | told | asked

    def about(self) -> dict[str, dict[str, Any]]:
        """What single columns are, inside those files."""
        return {}

    def _tables(self, out: Path) -> list[str]:
        """The released numbers: CSV always, GeoJSON in the plane, GeoTIFF and GeoParquet where asked."""
        page, places, columns = self.page, self.release.locations, self.columns()
        self._csv(out / f"{self.STEM}.csv", places, columns)
        files = [f"{self.STEM}.csv"]
        if len(page.names) != 2:
            return files
        rows = [dict(zip(columns, row, strict=True)) for row in self._rows([*columns.values()], None)]
        features = points(places, projection=page.projection, properties=rows)
        write_geojson(out / f"{self.STEM}.geojson", features, projection=page.projection, properties=self.cost)
        files.append(f"{self.STEM}.geojson")
        if page.projection is None:
            return files
        mechanism, facts = self.release.mechanism, {"tags": self.tags, "about": self.about()}
        for form in page.formats:
            target = out / f"{self.STEM}{suffix(form)}"
            if form == "geotiff":
                bands = {name: values.reshape(mechanism.grid).T for name, values in columns.items()}
                write_geotiff(target, bands, mechanism.domain, projection=page.projection, **facts)
            else:
                write_geoparquet(target, places, columns, projection=page.projection, **facts)
            files.append(target.name)
        return files

    def _csv(self, path: Path, places: Floats, columns: dict[str, Any]) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*self.page.names, *columns])
            writer.writerows(self._rows([*places.T, *columns.values()], ""))

    @staticmethod
    def _rows(columns: list[NDArray[Any]], absent: Any) -> Iterator[tuple[Any, ...]]:
        """Row after row of columns, with `absent` instead of NaN."""
        whole = (np.where(np.isnan(c), absent, c.astype(object)) if c.dtype.kind == "f" else c for c in columns)
        return zip(*(each.tolist() for each in whole), strict=True)

    # --- outlines and pictures

    @property
    def axes(self) -> tuple[Floats, ...]:
        """Coordinates of the grid's columns and rows; of its places along one covariate."""
        box, grid = self.release.mechanism.domain, self.release.mechanism.grid
        return tuple(np.linspace(*ends) for ends in zip(box.lower, box.upper, grid, strict=True))

    @property
    def inside(self) -> Mask:
        """Grid points inside the public region, all of them without one, as rows of constant y."""
        shape = self.release.mechanism.grid
        if self.page.region is None:
            return np.ones(shape[::-1], dtype=bool)
        return self.page.region.contains(self.release.locations).reshape(shape).T

    def _outlines(self, out: Path, sets: list[tuple[list[Polygon], dict[str, Any]]]) -> str:
        """Write the outlines of sets, with what each is; the file's name."""
        page = self.page
        features = [
            multipolygon(polygons, projection=page.projection, properties=page.asked | about | self.cost)
            for polygons, about in sets
        ]
        return write_geojson(out / "excursion.geojson", features, projection=page.projection).name

    def _grid(self) -> dict[str, Any]:
        x, y = self.axes
        return {"x": x, "y": y}

    def _picture(self) -> dict[str, Any]:
        """Arguments that every map of this release takes."""
        page = self.page
        return self._words() | {
            "region": page.region,
            "plane": "" if page.projection is None else page.projection.label,
            "metres_per_unit": None if page.projection is None else page.projection.metres_per_unit,
        }

    def _words(self) -> dict[str, Any]:
        """Arguments that every picture of this release takes."""
        page, certificate = self.page, self.release.certificate
        return {
            "title": page.heading,
            "threshold": page.threshold,
            "source": page.source,
            "epsilon_text": f"epsilon {round_up(certificate.epsilon, 2)}, delta "
            f"{round_up_significant(certificate.delta, 2)}; neighbours: {certificate.neighbours}. "
            f"Unit: {certificate.protects(short=True)}.",
        }


def shares(release: Any, threshold: float, below: bool) -> dict[str, Floats]:
    """Columns of the share of paths on the side that is asked for, with its interval."""
    share, low, high = release.exceedance(threshold)
    if below:
        share, low, high = 1.0 - share, 1.0 - high, 1.0 - low
    return {"share": share, "share_low": low, "share_high": high}


@dataclass(frozen=True)
class PathSheet(Sheet):
    """The files of released sample paths."""

    release: PathRelease
    fraction: float
    smoothing: float

    STEM = "paths"

    def columns(self) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {f"path_{i + 1}": values for i, values in enumerate(self.release.values)}
        page, release = self.page, self.release
        if page.threshold is None or len(page.names) != 1:
            return columns
        # In the plane the set is in excursion.geojson; a line has its answer beside the paths.
        together = agreed(self._on_line, self.fraction, above=not page.below)
        inside = together <= page.threshold if page.below else together >= page.threshold
        columns["excursion"] = inside.astype(int)
        if len(release.values) > 1:
            columns |= shares(release, page.threshold, page.below)
        return columns

    @property
    def _on_line(self) -> Floats:
        """The smoothed paths along one covariate."""
        return smooth_paths(self.release.on_grid(), self.smoothing)

    def _line(self, out: Path) -> list[str]:
        page, (x,) = self.page, self.axes
        fields = self._on_line
        shown, read = self._shown(fields)
        several = len(fields) > 1
        stretches: list[tuple[float, float]] = []
        if page.threshold is not None:
            together = agreed(fields, self.fraction, above=not page.below)
            stretches = spans(x, together, page.threshold, above=not page.below)
        look: dict[str, Any] = self._words() | {"value_label": page.tick} | read
        look["units"] = f"Mean of the {len(fields)} paths: {look['units']}" if several else look["units"]
        key = Key(inner=f"Ends of: {page.outlined(len(fields), self.fraction)}" if stretches else "")
        best = shown.mean(axis=0) if several else None
        draw_line(
            out / "map.png", x=x, curves=list(shown), best=best, label=page.names[0], inner=stretches, key=key, **look
        )
        return ["map.png"]

    def _maps(self, out: Path) -> list[str]:
        page, files = self.page, ["map.png"]
        # Released arrays run along x first; pictures and contours want rows of constant y.
        fields = smooth(self.release.on_grid().transpose(0, 2, 1), self.smoothing)
        outlines: list[list[Polygon]] = [[]] * (1 + len(fields))
        if page.threshold is not None:
            together = agreed(fields, self.fraction, above=not page.below)
            about = {"paths": len(fields), "fraction": self.fraction, "smoothing_cells": self.smoothing}
            files.insert(0, self._outlines(out, [(self._excursion(together, ~self.inside), about)]))
            outlines = [self._excursion(field) for field in (together, *fields)]
        shown, look = self._shown(fields)
        look = self._grid() | self._picture() | look
        asked = any(outlines)
        key = Key(inner=page.outlined(len(fields), self.fraction) if asked else "")
        draw_map(out / "map.png", values=shown.mean(axis=0), polygons=outlines[0], key=key, **look)
        if len(fields) > 1:
            look["key"] = Key(inner=page.outlined(1, 1.0) if asked else "")
            draw_paths(out / "paths.png", values=shown, polygons=outlines[1:], **look)
            files.append("paths.png")
        return files

    def _excursion(self, field: Floats, mask: Mask | None = None) -> list[Polygon]:
        assert self.page.threshold is not None
        return excursion_polygons(
            field, threshold=self.page.threshold, above=not self.page.below, mask=mask, **self._grid()
        )

    def _shown(self, fields: Floats) -> tuple[Floats, dict[str, Any]]:
        """What the colours say: the response where the ridge leaves its size alone, else its size in noise."""
        page, release = self.page, self.release
        read = contrast(release.mechanism.parameters(), release.certificate.n)
        if read is None:
            return fields, {"units": page.units, "value_label": page.tick}
        return read(fields), {
            "units": read.units(page.units, page.amount(read.centre)),
            "threshold": None if page.threshold is None else float(read(page.threshold)),
        }
