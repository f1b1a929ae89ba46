"""``--prior``: a public lattice or a map of districts in words, and the files of a release on one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.sparse import load_npz

from discretion.cli import options
from discretion.cli.console import note
from discretion.cli.sheet import Sheet, shares
from discretion.gp import Box
from discretion.gp.lattice import Lattice
from discretion.posterior import LatticeRelease
from discretion.posterior.excursion import agreed
from discretion.spatial.areas import Areas
from discretion.spatial.districts import Districts
from discretion.spatial.geojson import multipolygon, write_geojson
from discretion.spatial.maps import Key, draw_map, draw_paths
from discretion.spatial.outlines import Polygon
from discretion.spatial.projection import Projection
from discretion.spatial.raster import suffix, write_geoparquet
from discretion.spatial.region import Region

__all__ = ["AreaSheet", "PriorOptions", "districts_on", "graph_of"]

PANEL = "The model: a public lattice or districts"
MOST_CELLS = 200_000
"""Cells of the largest lattice: each has a row in every file."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PriorOptions:
    """A Gaussian Markov random field on a public graph, instead of a kernel on a grid."""

    prior: Annotated[
        str | None,
        typer.Option(
            help="lattice:SPACING (hexagons), squares:SPACING, or districts:FILE with public polygons in the table's "
            "coordinates, or in degrees with --crs: posterior paths on that graph. With --region only cells whose "
            "centre lies inside.",
            rich_help_panel=PANEL,
        ),
    ] = None
    killing: Annotated[
        float | None,
        typer.Option(
            help="kappa^2 of kappa^2 I + Laplacian: hexagons forget over sqrt(1.5 / killing) cells; 0.3 if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None
    share: Annotated[
        float | None,
        typer.Option(help="districts: proper CAR D - share W, below 1, instead of --killing.", rich_help_panel=PANEL),
    ] = None
    name_column: Annotated[
        str | None, typer.Option(help="districts: the property that names one.", rich_help_panel=PANEL)
    ] = None
    gap: Annotated[
        float,
        typer.Option(help="districts: width of gaps between borders that count as shared.", rich_help_panel=PANEL),
    ] = 0.0
    rescale: Annotated[
        float,
        typer.Option(
            help="Public constant by which deviations from --centre are multiplied in the map of values.",
            rich_help_panel=PANEL,
        ),
    ] = 1.0

    def areas(self, box: Box, outline: Region | None, projection: Projection | None = None) -> Areas:
        """The graph and its areas; every refusal comes before a record is read."""
        kind, _, what = (self.prior or "").partition(":")
        if kind not in ("lattice", "squares", "districts") or not what:
            raise ValueError(
                "--prior is written lattice:SPACING, squares:SPACING or districts:FILE, such as lattice:585; got "
                f"{self.prior!r}."
            )
        if box.dimension != 2:
            raise ValueError(f"--prior needs two covariates; --domain has {box.dimension} ranges.")
        if not (math.isfinite(self.rescale) and self.rescale > 0.0):
            raise ValueError(f"--rescale must be a positive number; got {self.rescale:g}.")
        if kind == "districts":
            if outline is not None:
                raise ValueError(
                    "--region: districts have outlines of their own; leave out of FILE what is not wanted."
                )
            return self._districts(Path(what), box, projection)
        given = {"--share": self.share, "--name-column": self.name_column, "--gap": self.gap or None}
        for option, value in given.items():
            if value is not None:
                raise ValueError(f"{option}: only --prior districts:FILE has it.")
        spacing = options.number(what, "--prior")
        width, height = np.subtract(box.upper, box.lower)
        if not 0.0 < spacing <= min(width, height):
            raise ValueError(f"--prior: a spacing of {spacing:g} does not fit the domain; choose a smaller one.")
        if width * height / spacing**2 > MOST_CELLS:
            raise ValueError(f"--prior {self.prior}: more than {MOST_CELLS:,} cells; choose a larger spacing.")
        make = Lattice.hexagon if kind == "lattice" else Lattice.square
        killing = 0.3 if self.killing is None else self.killing
        lattice = make(spacing, box, killing)
        if outline is not None:
            assert lattice.tiles is not None
            chosen = outline.contains(lattice.tiles.centres)
            if not chosen.any():
                raise ValueError("--region holds no cell of the lattice; is it in the table's coordinates?")
            lattice = make(spacing, box, killing, cells=lattice.tiles.cells[chosen])
        return Areas.of_tiles(lattice)

    def _districts(self, file: Path, box: Box, projection: Projection | None) -> Areas:
        districts = districts_on(box, file, self.name_column, self.gap, projection)
        killing = 0.3 if self.killing is None and self.share is None else self.killing
        return Areas.of_districts(districts, districts.lattice(killing, share=self.share))

    def formats(self, wanted: tuple[str, ...]) -> None:
        """Refuse what areas can't be written as."""
        if "geotiff" in wanted:
            raise ValueError("--formats geotiff: a lattice or districts are no grid of points; use geoparquet.")


def districts_on(
    box: Box, file: Path, name: str | None = None, gap: float = 0.0, projection: Projection | None = None
) -> Districts:
    """Public districts that lie on the domain; every refusal comes before a record is read."""
    districts = Districts.read(file, name, tolerance=gap)
    system = "EPSG:CODE" if projection is None else projection.crs
    convert = f"ogr2ogr -t_srs {system} projected.geojson {file}"
    if projection is not None and _degrees(districts, box):
        districts = districts.to(projection)
    elif districts.crs is not None and projection is not None and not projection.same(districts.crs):
        raise ValueError(
            f"{file} says that its coordinates are {districts.crs}, and --crs is {projection.crs}: convert the "
            f"districts to the system of the table first, such as by {convert}"
        )
    beyond = districts.beyond(box.lower, box.upper)
    if len(beyond) == len(districts.names):
        hint = f" It looks like degrees: {convert}" if _degrees(districts, box) else ""
        raise ValueError(f"{file}: no district lies in --domain; is it in the table's coordinates?{hint}")
    if beyond:
        raise ValueError(
            f"{file}: districts outside --domain: {_few(beyond)}. Widen --domain, or leave them out of FILE."
        )
    if len(districts.names) > 1 and districts.islands:
        islands, names = districts.islands, districts.names
        alone = f"{len(islands)} of {len(names)} districts share no border ({_few(islands)})"
        if len(islands) == len(names):
            raise ValueError(f"{file}: {alone}. If their borders leave gaps, --gap WIDTH closes them.")
        note(f"{alone}: they learn nothing of one another. If borders leave gaps, --gap WIDTH closes them.")
    return districts


def _degrees(districts: Districts, box: Box) -> bool:
    """Whether the districts are in longitude and latitude, WGS 84, and the domain is not."""
    planar = bool((np.abs([box.lower, box.upper]) > (180.0, 90.0)).any())
    named = districts.crs is None or any(each in districts.crs for each in ("CRS84", "EPSG:4326", "EPSG::4326"))
    return planar and named and districts.in_degrees


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def graph_of(file: Path, words: Mapping[str, Any]) -> Lattice:
    """The graph of a certificate again, from the public file it was made of and what the certificate says of it."""
    if file.suffix == ".npz":
        try:
            return Lattice.of_precision(load_npz(file))
        except (OSError, KeyError) as error:
            raise ValueError(f"--prior {file} is no sparse matrix of SciPy: {str(error).rstrip('.')}.") from None
    if words.get("graph") != "districts":
        raise ValueError(f"--prior {file}: the certificate's graph is {words.get('graph')!r}, not districts.")
    killing, share = words.get("killing"), words.get("share")
    districts = Districts.read(file, tolerance=float(words.get("tolerance") or 0.0))
    if words.get("projected"):
        districts = districts.to(Projection(words["projected"]))
    return districts.lattice(killing, share=share)


@dataclass(frozen=True)
class AreaSheet(Sheet):
    """The files of paths on a lattice or districts: a row and a polygon for each area."""

    release: LatticeRelease
    areas: Areas
    fraction: float
    rounds: int
    rescale: float

    STEM = "paths"

    def columns(self) -> dict[str, Any]:
        page, release = self.page, self.release
        columns: dict[str, Any] = {} if self.areas.names is None else {"name": np.array(self.areas.names)}
        columns |= {f"path_{i + 1}": values for i, values in enumerate(release.values)}
        columns["value"] = self._shown().mean(axis=0)
        if page.threshold is not None and len(release.values) > 1:
            columns |= shares(release, page.threshold, page.below)
        return columns

    @property
    def _paths(self) -> Array:
        return self.release.smoothed(self.rounds)

    def _shown(self) -> Array:
        """The map of values: deviations from the centre times the public constant, (paths, N)."""
        return self.release.centre + self.rescale * (self._paths - self.release.centre)

    @property
    def _open(self) -> list[Polygon]:
        """Districts or cells of which the number of paths leaves open whether --fraction of the posterior agrees."""
        page, release = self.page, self.release
        if page.threshold is None or len(release.values) == 1:
            return []
        interval = shares(release, page.threshold, page.below)
        return self.areas.outline((interval["share_low"] < self.fraction) & (self.fraction < interval["share_high"]))

    @property
    def _units(self) -> str:
        """What the colours say: the prior pulls every area towards the centre."""
        page, centre = self.page, self.page.amount(self.release.centre)
        if self.rescale != 1.0:
            return f"{page.units}: differences from {centre} times {self.rescale:g}, as declared"
        return f"{page.units}, pulled towards {centre} by the ridge: read on which side an area is, not how far"

    def _inside(self, paths: Array) -> NDArray[np.bool_]:
        threshold, below = self.page.threshold, self.page.below
        assert threshold is not None
        field = agreed(paths, self.fraction, above=not below)
        return field <= threshold if below else field >= threshold

    def _tables(self, out: Path) -> list[str]:
        page, places, columns = self.page, self.release.locations, self.columns()
        assert places is not None
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows = [dict(zip(columns, row, strict=True)) for row in values]
        self._csv(out / f"{self.STEM}.csv", places, columns)
        features = [
            multipolygon(polygons, projection=page.projection, properties=row)
            for polygons, row in zip(self.areas.polygons, rows, strict=True)
        ]
        write_geojson(out / f"{self.STEM}.geojson", features, projection=page.projection, properties=self.cost)
        files = [f"{self.STEM}.csv", f"{self.STEM}.geojson"]
        for form in page.formats:
            assert page.projection is not None
            target, polygons = out / f"{self.STEM}{suffix(form)}", self.areas.polygons
            write_geoparquet(target, places, columns, projection=page.projection, tags=self.tags, polygons=polygons)
            files.append(target.name)
        return files

    def _maps(self, out: Path) -> list[str]:
        page, files, paths = self.page, ["map.png"], self._paths
        outlines: list[list[Polygon]] = [[] for _ in range(1 + len(paths))]
        if page.threshold is not None:
            outlines = [self.areas.outline(self._inside(each)) for each in (paths, *(p[None] for p in paths))]
            about = {"paths": len(paths), "fraction": self.fraction, "smoothing_rounds": self.rounds}
            files.insert(0, self._outlines(out, [(outlines[0], about)]))
        x, y, number, absent = self.areas.raster()
        look = self._picture() | {"x": x, "y": y, "mask": absent, "units": self._units, "value_label": page.tick}
        shown, asked = self._shown(), any(outlines)
        hatched = self._open
        key = Key(
            inner=page.outlined(len(paths), self.fraction) if asked else "",
            between=f"Open: the 95 % interval of its share of the {len(paths)} paths holds {self.fraction:g}"
            if hatched
            else "",
        )
        mean = shown.mean(axis=0)[number]
        draw_map(out / "map.png", values=mean, polygons=outlines[0], hatched=hatched, key=key, **look)
        if 1 < len(shown) <= 12:
            look["key"] = Key(inner=page.outlined(1, 1.0) if asked else "")
            draw_paths(out / "paths.png", values=shown[:, number], polygons=outlines[1:], **look)
            files.append("paths.png")
        return files
