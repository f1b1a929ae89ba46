"""The files of a release: certificate, tables, GeoJSON, pictures. Sees released values and public parameters only."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.posterior import KernelSumRelease, PathRelease
from discretion.posterior.confidence import ExcursionSets, LocalMean, excursion_sets, local_mean, threshold_field
from discretion.posterior.decoder import Decoder
from discretion.posterior.excursion import Polygon, agreed, excursion_polygons, smooth
from discretion.privacy import round_up, round_up_significant
from discretion.report.folder import PAGE
from discretion.report.reading import contrast
from discretion.spatial.geojson import multipolygon, points, write_geojson
from discretion.spatial.maps import Key, draw_map, draw_paths
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

    ``units`` name the response as it was released, after a transform; ``logarithm`` says that it is one.
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
        """The title given, or one made of the question."""
        return self.title or (self.units if self.threshold is None else f"Where {self.units} is {self.condition}")

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
        return files + self._maps(out) if len(self.page.names) == 2 else files

    @abstractmethod
    def columns(self) -> dict[str, NDArray[Any]]:
        """The released numbers, a column for each array; NaN where there is none."""

    @abstractmethod
    def _maps(self, out: Path) -> list[str]: ...

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
        return {**self.cost, "unit": made.unit, "certificate": made.ledger_entry or made.created}

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
        mechanism, tags = self.release.mechanism, self.tags
        for form in page.formats:
            target = out / f"{self.STEM}{suffix(form)}"
            if form == "geotiff":
                bands = {name: values.reshape(mechanism.grid).T for name, values in columns.items()}
                write_geotiff(target, bands, mechanism.domain, projection=page.projection, tags=tags)
            else:
                write_geoparquet(target, places, columns, projection=page.projection, tags=tags)
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
    def axes(self) -> tuple[Floats, Floats]:
        """Coordinates of the grid's columns and rows."""
        box, grid = self.release.mechanism.domain, self.release.mechanism.grid
        x, y = (np.linspace(low, high, count) for low, high, count in zip(box.lower, box.upper, grid, strict=True))
        return x, y

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
        asked = {"threshold": page.threshold, "side": "<=" if page.below else ">="}
        features = [
            multipolygon(polygons, projection=page.projection, properties=asked | about | self.cost)
            for polygons, about in sets
        ]
        return write_geojson(out / "excursion.geojson", features, projection=page.projection).name

    def _grid(self) -> dict[str, Any]:
        x, y = self.axes
        return {"x": x, "y": y}

    def _picture(self) -> dict[str, Any]:
        """Arguments that every picture of this release takes."""
        page, certificate = self.page, self.release.certificate
        return {
            "region": page.region,
            "title": page.heading,
            "threshold": page.threshold,
            "plane": "" if page.projection is None else page.projection.label,
            "metres_per_unit": None if page.projection is None else page.projection.metres_per_unit,
            "source": page.source,
            "epsilon_text": f"epsilon {round_up(certificate.epsilon, 2)}, delta "
            f"{round_up_significant(certificate.delta, 2)}; neighbours: {certificate.neighbours}. "
            f"Unit: {certificate.unit.split('. ')[0].rstrip('.')}.",
        }


@dataclass(frozen=True)
class PathSheet(Sheet):
    """The files of released sample paths."""

    release: PathRelease
    fraction: float
    smoothing: float

    STEM = "paths"

    def columns(self) -> dict[str, NDArray[Any]]:
        return {f"path_{i + 1}": values for i, values in enumerate(self.release.values)}

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
        return excursion_polygons(field, *self.axes, self.page.threshold, above=not self.page.below, mask=mask)

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


@dataclass(frozen=True)
class SumSheet(Sheet):
    """The files of released kernel sums: local means, and the sets between which the non-private one lies."""

    release: KernelSumRelease
    floor: float
    level: float
    decoder: Decoder | None = None

    STEM = "sums"

    @classmethod
    def names(cls) -> list[str]:
        return [*super().names(), "decoded.csv", "decoder.npz"]

    def write(self, out: Path) -> list[str]:
        return super().write(out) + self._decoded(out)

    def _decoded(self, out: Path) -> list[str]:
        """The map as the plan's public prior completes it: an estimate with knowledge that the plain map lacks."""
        if self.decoder is None:
            return []
        estimate = self.decoder.decode(self.release).ravel()
        assert self.decoder.cut is not None
        inside = (estimate >= self.decoder.cut).astype(int)
        places = self.release.mechanism.domain.grid(self.decoder.target_shape)
        with (out / "decoded.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*self.page.names, "estimate", "at_least_threshold"])
            writer.writerows(zip(*places.T.tolist(), estimate.tolist(), inside.tolist(), strict=True))
        self.decoder.save(out / "decoder.npz")
        return ["decoded.csv", "decoder.npz"]

    @cached_property
    def means(self) -> LocalMean:
        """Local means where enough records are near."""
        return local_mean(self.release, self.floor)

    @cached_property
    def sets(self) -> ExcursionSets | None:
        """The sets of the threshold; once, for every file: their quantile is simulated."""
        if self.page.threshold is None:
            return None
        kind = "<" if self.page.below else ">"
        # The region was named before the release was made, so the sets need to hold inside it alone.
        return excursion_sets(self.release, self.page.threshold, kind, self.level, region=self.inside.T)

    def columns(self) -> dict[str, NDArray[Any]]:
        assert self.release.density is not None
        columns = {
            "value_sum": self.release.value_sums[0, 0],
            "density": self.release.density[0],
            "local_mean": self.means.values.ravel(),
        }
        if self.sets is None:
            return columns
        return columns | {name: getattr(self.sets, name).ravel().astype(int) for name in ("inner", "outer")}

    def _maps(self, out: Path) -> list[str]:
        page, files = self.page, ["map.png"]
        absent, inside = ~self.means.support.T, self.inside
        inner: list[Polygon] = []
        outer: list[Polygon] = []
        key = Key(absent="Too few rows near for a mean" if (inside & absent).any() else "")
        if self.sets is not None:
            cuts = self._cuts(self.sets)
            files.insert(0, self._outlines(out, [(self._excursion(cut, ~inside), about) for cut, about in cuts]))
            inner, outer = (self._excursion(cut, absent) for cut, _ in cuts[1:])
            key = Key(
                question=f"Is the clipped local mean {page.condition}?",
                inner="Yes on its unhatched side (inner set)",
                outer="No on its unhatched side (outside the outer set)",
                between="Undecided: the noise allows either answer",
                absent=key.absent,
                note=f"Both answers hold at all {inside.sum():,} grid points together with {100 * self.level:g} % "
                "confidence: sure against the noise of privacy, not against sampling error.",
            )
        if not (inside & ~absent).any():
            # Nothing to draw is public knowledge: it follows from the released density.
            return [name for name in files if name != "map.png"]
        draw_map(
            out / "map.png",
            values=self.means.values.T,
            mask=absent,
            polygons=inner,
            outer=outer,
            units=f"Clipped local mean of {page.units}"
            + (f", with {page.units.removeprefix('log ')} below" if page.logarithm else ""),
            value_label=page.tick,
            subtitle=f"Local mean{self.release.certificate.of_records}, released at epsilon "
            f"{round_up(self.release.certificate.epsilon, 2)}",
            key=key,
            **self._grid(),
            **self._picture(),
        )
        return files

    def _cuts(self, sets: ExcursionSets) -> list[tuple[float, dict[str, Any]]]:
        """Where to cut the field of the threshold for the estimate, the inner and the outer set."""
        cut = sets.quantile * sets.scale
        sure = {"confidence": self.level, "simultaneous": True}
        meaning = "the non-private smoothed set, at the grid points; privacy noise alone is accounted for"
        return [
            (0.0, {"set": "estimate", "confidence": None}),
            (cut, {"set": "inner", "meaning": f"inside {meaning}", **sure}),
            (-cut, {"set": "outer", "meaning": f"around {meaning}", **sure}),
        ]

    def _excursion(self, cut: float, mask: Mask) -> list[Polygon]:
        assert self.page.threshold is not None
        field = threshold_field(self.release, self.page.threshold)[0].T
        return excursion_polygons(-field if self.page.below else field, *self.axes, cut, mask=mask)
