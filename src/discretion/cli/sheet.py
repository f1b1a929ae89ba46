"""The files of a release: certificate, tables, GeoJSON, pictures. Sees released values and public parameters only."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.posterior import KernelSumRelease, PathRelease
from discretion.posterior.confidence import excursion_sets, local_mean, threshold_field
from discretion.posterior.excursion import Polygon, agreed, excursion_polygons, smooth
from discretion.privacy import Certificate, round_up, round_up_significant
from discretion.spatial.geojson import multipolygon, points, write_geojson
from discretion.spatial.maps import draw_map, draw_paths
from discretion.spatial.projection import Projection
from discretion.spatial.raster import write_geoparquet, write_geotiff
from discretion.spatial.region import Region

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Page:
    """What the pictures and files of any release share: public words and choices."""

    names: list[str]
    threshold: float | None
    below: bool
    region: Region | None
    projection: Projection | None
    title: str | None
    units: str
    source: str
    extra: dict[str, str]

    def axes(self, box: Box, grid: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Coordinates of the grid's columns and rows."""
        x, y = (np.linspace(low, high, count) for low, high, count in zip(box.lower, box.upper, grid, strict=True))
        return x, y

    def absent(self, locations: Floats, grid: tuple[int, ...]) -> NDArray[np.bool_] | None:
        """Grid points outside the public region, as rows of constant y."""
        return None if self.region is None else ~self.region.contains(locations).reshape(grid).T

    def common(self, certificate: Certificate) -> dict[str, Any]:
        """Arguments that every picture of this release takes."""
        return {
            "above": not self.below,
            "plane": "" if self.projection is None else self.projection.label,
            "metres_per_unit": None if self.projection is None else self.projection.metres_per_unit,
            "outline_label": f"{self.units} {'at most' if self.below else 'at least'} {self.threshold:g}".capitalize()
            if self.threshold is not None
            else "",
            "source": self.source,
            "epsilon_text": f"epsilon {round_up(certificate.epsilon, 2)}, delta "
            f"{round_up_significant(certificate.delta, 2)}; neighbours: {certificate.neighbours}. "
            f"Unit: {certificate.unit.split('. ')[0].rstrip('.')}.",
        }

    def certificate(self, out: Path, certificate: Certificate) -> list[str]:
        """The certificate for programs and for people."""
        certificate.save(out / "certificate.json")
        (out / "certificate.txt").write_text(certificate.text() + "\n", encoding="utf-8")
        return ["certificate.json", "certificate.txt"]

    def tables(
        self,
        out: Path,
        stem: str,
        box: Any,
        grid: tuple[int, ...] | None,
        locations: Floats,
        columns: dict[str, Floats],
        certificate: Certificate,
    ) -> list[str]:
        """The released numbers: CSV always, GeoJSON in the plane, GeoTIFF and GeoParquet where asked."""
        with (out / f"{stem}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*self.names, *columns])
            writer.writerows(np.column_stack([locations, *columns.values()]).tolist())
        files = [f"{stem}.csv"]
        if locations.shape[1] != 2:
            return files
        cost = {"epsilon": float(round_up(certificate.epsilon, 3)), "delta": certificate.delta}
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        write_geojson(
            out / f"{stem}.geojson",
            points(
                locations,
                projection=self.projection,
                properties=[dict(zip(columns, row, strict=True)) for row in rows],
            ),
            projection=self.projection,
            properties=cost,
        )
        if self.projection is not None and grid is not None:
            tags = {**cost, "unit": certificate.unit, "certificate": certificate.ledger_entry or certificate.created}
            if "geotiff" in self.extra:
                bands = {name: values.reshape(grid).T for name, values in columns.items()}
                write_geotiff(out / self.extra["geotiff"], bands, box, projection=self.projection, tags=tags)
            if "geoparquet" in self.extra:
                write_geoparquet(
                    out / self.extra["geoparquet"], locations, columns, projection=self.projection, tags=tags
                )
        return [*files, f"{stem}.geojson", *self.extra.values()]


@dataclass(frozen=True)
class PathSheet:
    """The files of released sample paths."""

    page: Page
    release: PathRelease
    fraction: float
    smoothing: float

    def write(self, out: Path) -> list[str]:
        """Write them; returns their names."""
        release, page, mechanism = self.release, self.page, self.release.mechanism
        columns = {f"path_{i + 1}": values for i, values in enumerate(release.values)}
        files = page.certificate(out, release.certificate)
        files += page.tables(
            out, "paths", mechanism.domain, mechanism.grid, release.locations, columns, release.certificate
        )
        return files + self._maps(out) if release.locations.shape[1] == 2 else files

    def _maps(self, out: Path) -> list[str]:
        release, page, certificate = self.release, self.page, self.release.certificate
        box, grid = release.mechanism.domain, release.mechanism.grid
        assert isinstance(box, Box)
        assert grid is not None
        x, y = page.axes(box, grid)
        # Released arrays run along x first; pictures and contours want rows of constant y.
        fields = smooth(release.on_grid().transpose(0, 2, 1), self.smoothing)
        mask = page.absent(release.locations, grid)
        files = ["map.png"]
        outline: list[Polygon] = []
        if page.threshold is not None:
            outline = self._excursion(agreed(fields, self.fraction, above=not page.below), x, y, mask)
            about = {
                "threshold": page.threshold,
                "side": "<=" if page.below else ">=",
                "paths": len(fields),
                "fraction": self.fraction,
                "smoothing_cells": self.smoothing,
                "epsilon": float(round_up(certificate.epsilon, 3)),
                "delta": certificate.delta,
            }
            write_geojson(
                out / "excursion.geojson",
                [multipolygon(outline, projection=page.projection, properties=about)],
                projection=page.projection,
            )
            files.insert(0, "excursion.geojson")
        shown, words = self._shown(fields)
        common = page.common(certificate) | {"x": x, "y": y, "threshold": self._level(), "mask": mask}
        mean = shown.mean(axis=0)
        title = page.title or "Released map"
        draw_map(out / "map.png", values=mean, polygons=outline, title=title, units=words, **common)
        if len(fields) > 1:
            outlines = [[] if page.threshold is None else self._excursion(field, x, y, mask) for field in fields]
            draw_paths(out / "paths.png", values=shown, polygons=outlines, title=title, units=words, **common)
            files.append("paths.png")
        return files

    def _excursion(self, field: Floats, x: Floats, y: Floats, mask: NDArray[np.bool_] | None) -> list[Polygon]:
        assert self.page.threshold is not None
        return excursion_polygons(field, x, y, self.page.threshold, above=not self.page.below, mask=mask)

    def _level(self) -> float | None:
        """The threshold on the picture's scale."""
        return None if self.page.threshold is None else float(self._shown(np.float64(self.page.threshold))[0])

    def _shown(self, fields: Any) -> tuple[Any, str]:
        """What the colours say: the response where the ridge leaves its size alone, else its size in noise."""
        mechanism, units = self.release.mechanism, self.page.units
        if mechanism.ridge**2 <= (self.release.certificate.n or 0):
            return fields, units
        # A large ridge shrinks the path towards the centre: its values are a contrast, not the response.
        spread = np.hypot(mechanism.scale, mechanism.prior_noise)
        return (
            fields - mechanism.centre
        ) / spread, f"{units}: above (+) or below (-) {mechanism.centre:g}, in noise sd"


@dataclass(frozen=True)
class SumSheet:
    """The files of released kernel sums: local means, and the sets between which the non-private one lies."""

    page: Page
    release: KernelSumRelease
    floor: float
    level: float

    def write(self, out: Path) -> list[str]:
        """Write them; returns their names."""
        release, page, mechanism = self.release, self.page, self.release.mechanism
        assert release.density is not None
        columns = {"value_sum": release.value_sums[0, 0], "density": release.density[0]}
        files = page.certificate(out, release.certificate)
        files += page.tables(
            out, "sums", mechanism.domain, mechanism.grid, release.locations, columns, release.certificate
        )
        return files + self._maps(out) if release.locations.shape[1] == 2 else files

    def _maps(self, out: Path) -> list[str]:
        release, page, certificate = self.release, self.page, self.release.certificate
        grid = release.mechanism.grid
        assert grid is not None
        x, y = page.axes(release.mechanism.domain, grid)
        outside = page.absent(release.locations, grid)
        means = local_mean(release, self.floor)
        mask = ~means.support.T if outside is None else ~means.support.T | outside
        files = ["map.png"]
        outline: list[Polygon] = []
        if page.threshold is not None:
            side = "<" if page.below else ">"
            field, noise = threshold_field(release, page.threshold)
            sets = excursion_sets(release, page.threshold, side, self.level)
            cuts = {"estimate": 0.0, "inner": sets.quantile * noise, "outer": -sets.quantile * noise}
            signed = -field.T if page.below else field.T
            features = []
            for name, cut in cuts.items():
                polygons = excursion_polygons(signed, x, y, cut, mask=outside)
                outline = polygons if name == "estimate" else outline
                about = {
                    "set": name,
                    "threshold": page.threshold,
                    "side": side + "=",
                    "confidence": None if name == "estimate" else self.level,
                    "epsilon": float(round_up(certificate.epsilon, 3)),
                    "delta": certificate.delta,
                }
                features.append(multipolygon(polygons, projection=page.projection, properties=about))
            write_geojson(out / "excursion.geojson", features, projection=page.projection)
            files.insert(0, "excursion.geojson")
        if mask.all():
            # Nothing to draw is public knowledge: it follows from the released density.
            return [name for name in files if name != "map.png"]
        draw_map(
            out / "map.png",
            values=means.values.T,
            x=x,
            y=y,
            mask=mask,
            threshold=page.threshold,
            polygons=outline,
            title=page.title or "Released map",
            units=f"{page.units}: local mean, clipped",
            **page.common(certificate),
        )
        return files
