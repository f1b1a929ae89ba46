"""The files of a release: certificate, tables, GeoJSON, pictures. Sees released values and public parameters only."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.posterior import PathRelease
from discretion.posterior.excursion import agreed, excursion_polygons, smooth
from discretion.privacy import round_up, round_up_significant
from discretion.spatial.geojson import multipolygon, points, write_geojson
from discretion.spatial.maps import draw_map, draw_paths
from discretion.spatial.projection import Projection
from discretion.spatial.raster import write_geoparquet, write_geotiff
from discretion.spatial.region import Region


@dataclass(frozen=True)
class PathSheet:
    """The files of released sample paths."""

    release: PathRelease
    names: list[str]
    threshold: float | None
    below: bool
    fraction: float
    smoothing: float
    region: Region | None
    projection: Projection | None
    title: str | None
    units: str
    source: str
    extra: dict[str, str]

    def write(self, out: Path) -> list[str]:
        certificate = self.release.certificate
        certificate.save(out / "certificate.json")
        (out / "certificate.txt").write_text(certificate.text() + "\n", encoding="utf-8")
        self._table(out / "paths.csv")
        files = ["certificate.json", "certificate.txt", "paths.csv"]
        if self.release.locations.shape[1] == 2:
            files += self._maps(out)
        return files

    def _table(self, path: Path) -> None:
        header = [*self.names, *(f"path_{i + 1}" for i in range(len(self.release.values)))]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(np.column_stack([self.release.locations, self.release.values.T]).tolist())

    def _maps(self, out: Path) -> list[str]:
        release, certificate = self.release, self.release.certificate
        box, grid = release.mechanism.domain, release.mechanism.grid
        assert isinstance(box, Box)
        assert grid is not None
        x, y = (np.linspace(low, high, count) for low, high, count in zip(box.lower, box.upper, grid, strict=True))
        # Released arrays run along x first; pictures and contours want rows of constant y.
        fields = smooth(release.on_grid().transpose(0, 2, 1), self.smoothing)
        mask = None if self.region is None else ~self.region.contains(release.locations).reshape(grid).T
        properties = [{f"path_{i + 1}": value for i, value in enumerate(here)} for here in release.values.T.tolist()]
        cost = {"epsilon": float(round_up(certificate.epsilon, 3)), "delta": certificate.delta}
        write_geojson(
            out / "paths.geojson",
            points(release.locations, projection=self.projection, properties=properties),
            projection=self.projection,
            properties=cost,
        )
        files = ["paths.geojson", *self.extra.values(), "map.png"]
        if self.projection is not None and self.extra:
            bands = {f"path_{i + 1}": field for i, field in enumerate(release.on_grid().transpose(0, 2, 1))}
            tags = {**cost, "unit": certificate.unit, "certificate": certificate.ledger_entry or certificate.created}
            if "geotiff" in self.extra:
                write_geotiff(out / self.extra["geotiff"], bands, box, projection=self.projection, tags=tags)
            if "geoparquet" in self.extra:
                columns = dict(zip(bands, release.values, strict=True))
                write_geoparquet(
                    out / self.extra["geoparquet"], release.locations, columns, projection=self.projection, tags=tags
                )
        outline: list[list[NDArray[np.float64]]] = []
        if self.threshold is not None:
            outline = self._excursion(agreed(fields, self.fraction, above=not self.below), x, y, mask)
            about = {
                "threshold": self.threshold,
                "side": "<=" if self.below else ">=",
                "paths": len(fields),
                "fraction": self.fraction,
                "smoothing_cells": self.smoothing,
                **cost,
            }
            write_geojson(
                out / "excursion.geojson",
                [multipolygon(outline, projection=self.projection, properties=about)],
                projection=self.projection,
            )
            files.insert(1, "excursion.geojson")
        shown, words = self._shown(fields)
        common: dict[str, Any] = {
            "x": x,
            "y": y,
            "threshold": self._level(),
            "above": not self.below,
            "mask": mask,
            "plane": "" if self.projection is None else self.projection.label,
            "metres_per_unit": None if self.projection is None else self.projection.metres_per_unit,
            "outline_label": f"{self.units} {'at most' if self.below else 'at least'} {self.threshold:g}".capitalize()
            if self.threshold is not None
            else "",
            "source": self.source,
            "epsilon_text": f"epsilon {round_up(certificate.epsilon, 2)}, delta "
            f"{round_up_significant(certificate.delta, 2)} for all paths together; neighbours: "
            f"{certificate.neighbours}. Unit: {certificate.unit.split('. ')[0].rstrip('.')}.",
        }
        title = self.title or "Released map"
        mean = shown.mean(axis=0)
        draw_map(out / "map.png", values=mean, polygons=outline, title=title, units=words, **common)
        if len(fields) > 1:
            outlines = [[] if self.threshold is None else self._excursion(field, x, y, mask) for field in fields]
            draw_paths(out / "paths.png", values=shown, polygons=outlines, title=title, units=words, **common)
            files.append("paths.png")
        return files

    def _excursion(
        self,
        field: NDArray[np.float64],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        mask: NDArray[np.bool_] | None,
    ) -> list[list[NDArray[np.float64]]]:
        assert self.threshold is not None
        return excursion_polygons(field, x, y, self.threshold, above=not self.below, mask=mask)

    def _level(self) -> float | None:
        """The threshold on the picture's scale."""
        return None if self.threshold is None else float(self._shown(np.float64(self.threshold))[0])

    def _shown(self, fields: Any) -> tuple[Any, str]:
        """What the colours say: the response where the ridge leaves its size alone, else its size in noise."""
        mechanism = self.release.mechanism
        if mechanism.ridge**2 <= self.release.certificate.n:  # pyright: ignore[reportOperatorIssue]
            return fields, self.units
        # A large ridge shrinks the path towards the centre: its values are a contrast, not the response.
        spread = np.hypot(mechanism.scale, mechanism.prior_noise)
        return (
            fields - mechanism.centre
        ) / spread, f"{self.units}: above (+) or below (-) {mechanism.centre:g}, in noise sd"
