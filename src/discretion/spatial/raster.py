"""Released grids and points as files that geographic information systems open: GeoTIFF and GeoParquet.

Both keep the coordinates of the model's plane and say which coordinate reference system they are in.  Give them
released values and public places only: whatever is passed in stands in the file.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp.domain import Box
from discretion.spatial.projection import Projection

__all__ = ["Raster", "read_geotiff", "suffix", "write_geoparquet", "write_geotiff"]

Floats = NDArray[np.float64]
Tag = str | float

SUFFIXES = {"geotiff": ".tif", "geoparquet": ".parquet"}
"""The formats of this module and how their file names end."""

_NEEDS = {
    "geotiff": (("rasterio", "pyproj"), "raster"),
    "geoparquet": (("pyarrow", "shapely", "pyproj"), "geo,parquet"),
}
_APART_DEGREES = 1e-7


def suffix(format: str) -> str:
    """How files of `format` ("geotiff" or "geoparquet") are named, once the packages that write it are there.

    Ask before a release is paid for: it raises ValueError for another format, and ImportError, naming the extra to
    install, when a package is missing.
    """
    if format not in SUFFIXES:
        raise ValueError(f"{format!r} is not a format; choose from {', '.join(SUFFIXES)}.")
    packages, extra = _NEEDS[format]
    try:
        for package in packages:
            importlib.import_module(package)
    except ImportError:
        raise ImportError(f'{format} needs {" and ".join(packages)}: pip install "discretion[{extra}]".') from None
    return SUFFIXES[format]


@dataclass(frozen=True, eq=False)
class Raster:
    """What `read_geotiff` finds: named grids over a box.

    Attributes:
        bands: one (gy, gx) float64 array for each name, southernmost row first, NaN where there is no value.
        box: the box that the grid spans, its outermost points on the edges.
        projection: the coordinate reference system of the box, its domain the box.
        tags: the tags of the file, as text.
        about: the tags of each band, as text.
    """

    bands: dict[str, Floats]
    box: Box
    projection: Projection
    tags: dict[str, str]
    about: dict[str, dict[str, str]]


def write_geotiff(
    path: str | os.PathLike[str],
    bands: Mapping[str, ArrayLike],
    box: Box,
    *,
    projection: Projection,
    nodata: float = math.nan,
    tags: Mapping[str, Tag] | None = None,
    about: Mapping[str, Mapping[str, Tag]] | None = None,
) -> Path:
    """Write released grids as the bands of one GeoTIFF, north up, in float64, and return the path.

    A grid with counts (gx, gy) is `box.grid((gx, gy))`: it spans the box, its outermost points on the edges.  Each
    point becomes the centre of a pixel with sides (upper - lower) / (count - 1), so the raster reaches half a pixel
    beyond the box on every side.  A count of 1 is one pixel, as wide as the box, around the midpoint.

    Args:
        path: the file, replaced if it is there.
        bands: one (gy, gx) array for each name, rows of constant y with the southernmost first, as in
            `draw_map` (a release's `on_grid()` runs along x first: transpose it).  NaN, or masked, means no value.
        box: the public box that the grid spans, in the units of the projection.
        projection: the coordinate reference system, written into the file.
        nodata: the number that stands for no value in the file.
        tags: facts to keep beside the numbers, such as epsilon (rounded up), delta, the unit of privacy and the
            certificate's entry in the ledger.  Text and numbers; read back as text.
        about: the same for single bands, by name, such as the threshold of a set.

    The file is read back from memory before it is put in place: what cannot be kept is refused, not lost.  Equal
    arguments give equal bytes.

    Raises:
        ValueError: bands of different shapes, an infinite value, a value equal to `nodata`, a box outside the area of
            use of the projection, a coordinate system or a tag that a GeoTIFF cannot hold.
        ImportError: rasterio is not installed.
    """
    suffix("geotiff")
    grids = _grids(bands)
    nodata = float(nodata)
    missing = np.isnan(grids)
    if (grids[~missing] == nodata).any():
        raise ValueError(f"A band holds {nodata:g}, which nodata would turn into no value; choose another nodata.")
    plane = Projection(projection.crs, box)
    texts, own = _texts(tags), {name: _texts((about or {}).get(name)) for name in bands}
    try:
        content = _encoded(np.where(missing, nodata, grids), own, plane, nodata, texts)
        back = _decoded(content, "the new file")
        _check_place(plane, back.projection, box)
    except ValueError:
        hint = "use a system with a code, such as EPSG:27700"
        raise ValueError(f"A GeoTIFF does not keep {projection.label}; {hint}.") from None
    if list(back.bands) != list(bands) or not np.array_equal(np.stack([*back.bands.values()]), grids, equal_nan=True):
        raise ValueError("A GeoTIFF does not keep these bands; name them with plain, distinct text.")
    kept = [(texts, back.tags), *((own[name], back.about[name]) for name in own)]
    lost = sorted(name for said, read in kept for name in said if read.get(name) != said[name])
    if lost:
        raise ValueError(f"A GeoTIFF does not keep the tags {', '.join(lost)}; use plain text and names of letters.")
    target = Path(path)
    target.write_bytes(content)
    return target


def read_geotiff(path: str | os.PathLike[str]) -> Raster:
    """Read the GeoTIFF at `path`, as `write_geotiff` writes it: pixel centres are grid points, numbers come back exact.

    The box comes back to rounding (a few units in the last place of its coordinates).  Bands without a name, or with
    one that repeats, are called "band_1", "band_2" and so on.

    Raises:
        ValueError: not a GeoTIFF, no coordinate reference system or one in degrees, a raster that is rotated or not
            north up.
        ImportError: rasterio is not installed.
    """
    suffix("geotiff")
    return _decoded(Path(path).read_bytes(), str(path))


def write_geoparquet(
    path: str | os.PathLike[str],
    locations: ArrayLike,
    columns: Mapping[str, ArrayLike],
    *,
    projection: Projection,
    tags: Mapping[str, Tag] | None = None,
    about: Mapping[str, Mapping[str, Tag]] | None = None,
    polygons: Sequence[Sequence[Sequence[ArrayLike]]] | None = None,
) -> Path:
    """Write released values at public points, or of public areas, as GeoParquet 1.1 and return the path.

    The column "geometry" holds the points or areas in well-known binary, and the file's metadata the coordinate
    reference system as PROJJSON, so coordinates stay as they are: (easting, northing), exact.

    Args:
        path: the file, replaced if it is there.
        locations: (m, 2) public points in the plane of the projection.
        columns: for each name an array (m,) of numbers, truth values or text.  NaN, or masked, is written as null.
        projection: the coordinate reference system of the locations.
        tags: as for `write_geotiff`; kept in the file's metadata as JSON under "discretion".
        about: the same for single columns, by name; kept there under "columns".
        polygons: for each location the polygons of its area, each a list of rings, written instead of the points.

    Equal arguments give equal bytes.

    Raises:
        ValueError: points that are not finite or outside the area of use of the projection, a column of another
            length or kind or with an infinite value, a column called "geometry".
        ImportError: pyarrow or shapely is not installed.
    """
    suffix("geoparquet")
    import pyarrow
    import pyarrow.parquet as parquet
    import shapely

    places = np.asarray(locations, dtype=np.float64)
    projection.to_lonlat(places)  # refuses other shapes, NaN, and points that the system is not meant for
    if "geometry" in columns:
        raise ValueError('The name "geometry" is taken by the points; call the column something else.')
    arrays = {name: _column(name, values, len(places)) for name, values in columns.items()}
    shapes = shapely.points(places) if polygons is None else _areas(polygons, len(places))
    geometry: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": ["Point" if polygons is None else "MultiPolygon"],
        "crs": _system(projection).to_json_dict(),
        "edges": "planar",
    }
    if len(places):
        geometry["bbox"] = shapely.total_bounds(shapes).tolist()
    where = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
    facts: dict[str, Any] = dict(_texts(tags))
    if own := {name: _texts(said) for name, said in (about or {}).items() if name in arrays}:
        facts["columns"] = own
    # Plain bytes: with an Arrow extension type on the column some readers overlook the system in the metadata.
    points = pyarrow.array(shapely.to_wkb(shapes, byte_order=1), type=pyarrow.binary())
    table = pyarrow.table(
        {**{name: pyarrow.array(values, from_pandas=True) for name, values in arrays.items()}, "geometry": points},
        metadata={"geo": json.dumps(where), "discretion": json.dumps(facts, ensure_ascii=False)},
    )
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    target = Path(path)
    target.write_bytes(sink.getvalue())
    return target


def _areas(polygons: Sequence[Sequence[Sequence[ArrayLike]]], count: int) -> Any:
    import shapely

    if len(polygons) != count:
        raise ValueError(f"{count} locations need as many areas; got {len(polygons)}.")
    parts: Any = [[(rings[0], list(rings[1:])) for rings in area] for area in polygons]
    return np.array([shapely.MultiPolygon(each) for each in parts], dtype=object)


def _grids(bands: Mapping[str, ArrayLike]) -> Floats:
    """The bands as one array (bands, gy, gx), masked values NaN."""
    if not bands:
        raise ValueError("A raster needs at least one band.")
    grids = [_numbers(values, f"band {name!r}") for name, values in bands.items()]
    shapes = {grid.shape for grid in grids}
    if len(shapes) > 1 or grids[0].ndim != 2 or not grids[0].size:
        raise ValueError(f"Bands must share one shape (gy, gx), not {', '.join(map(str, sorted(shapes)))}.")
    return np.stack(grids)


def _numbers(values: ArrayLike, what: str) -> Floats:
    """`values` as float64, masked ones NaN; a mask forgotten here would publish what it hides."""
    array = np.ma.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold real numbers.")
    numbers = np.ma.filled(array.astype(np.float64), math.nan)
    if np.isinf(numbers).any():
        raise ValueError(f"{what} holds infinite values; write NaN where there is no value.")
    return numbers


def _column(name: str, values: ArrayLike, length: int) -> np.ma.MaskedArray:
    array = np.ma.asarray(values)
    what = f"column {name!r}"
    if array.shape != (length,):
        raise ValueError(f"{what} has shape {array.shape}; {length} locations need ({length},).")
    if array.dtype.kind == "f":
        return np.ma.asarray(_numbers(array, what))
    if array.dtype.kind not in "biuU":
        raise ValueError(f"{what} must hold numbers, truth values or text.")
    return array


def _texts(tags: Mapping[str, Tag] | None) -> dict[str, str]:
    return {name: _text(name, value) for name, value in (tags or {}).items()}


def _text(name: str, value: Tag) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, float, np.integer, np.floating)) and not math.isnan(value):
        return repr(value.item() if isinstance(value, np.generic) else value)
    raise ValueError(f"The tag {name!r} must be a text or a number.")


def _system(projection: Projection) -> Any:
    import pyproj

    return pyproj.CRS.from_user_input(projection.crs)


def _encoded(
    grids: Floats, about: dict[str, dict[str, str]], plane: Projection, nodata: float, tags: dict[str, str]
) -> bytes:
    rasterio = importlib.import_module("rasterio")
    box = plane.domain
    assert box is not None
    count, height, width = grids.shape
    dx, dy = (np.subtract(box.upper, box.lower) / np.maximum(np.subtract((width, height), 1), 1)).tolist()
    # Half a pixel beyond the outermost points; a single point lies in the middle of the box instead.
    west = box.lower[0] - (dx / 2 if width > 1 else 0.0)
    north = box.upper[1] + (dy / 2 if height > 1 else 0.0)
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "dtype": "float64",
        "count": count,
        "height": height,
        "width": width,
        "crs": rasterio.CRS.from_wkt(_system(plane).to_wkt()),
        "transform": rasterio.Affine(dx, 0.0, west, 0.0, -dy, north),
        "nodata": nodata,
        "compress": "deflate",
        "interleave": "band",
        "bigtiff": "if_safer",
    }
    with rasterio.MemoryFile() as memory:
        with memory.open(**profile) as file:
            file.write(grids[:, ::-1])
            file.descriptions = list(about)
            file.update_tags(**tags)
            for band, facts in enumerate(about.values(), 1):
                file.update_tags(band, **facts)
        return memory.read()


def _decoded(content: bytes, source: str) -> Raster:
    rasterio = importlib.import_module("rasterio")
    try:
        with rasterio.MemoryFile(content) as memory, memory.open(driver="GTiff") as file:
            grids = file.read(masked=True, out_dtype="float64").filled(math.nan)[:, ::-1]
            names, transform, system = file.descriptions, file.transform, file.crs
            tags = {name: text for name, text in file.tags().items() if name != "AREA_OR_POINT"}
            about = [dict(file.tags(band)) for band in range(1, file.count + 1)]
    except rasterio.errors.RasterioError:
        raise ValueError(f"{source} is not a GeoTIFF that can be read.") from None
    if system is None:
        raise ValueError(f"{source} names no coordinate reference system.")
    if transform.b or transform.d or transform.a <= 0 or transform.e >= 0:
        raise ValueError(f"{source} is rotated or not north up; warp it to a north-up raster first.")
    _, height, width = grids.shape
    x = _edges(transform.c, transform.a, width)
    y = _edges(transform.f, transform.e, height)[::-1]
    box = Box((x[0], y[0]), (x[1], y[1]))
    if None in names or len(set(names)) < len(names):
        names = [f"band_{i + 1}" for i in range(len(names))]
    plane = Projection(_named(system.to_wkt(version="WKT2_2019")), box)
    return Raster(dict(zip(names, grids, strict=True)), box, plane, tags, dict(zip(names, about, strict=True)))


def _edges(start: float, step: float, count: int) -> tuple[float, float]:
    """First and last pixel centre along an axis; both sides of the pixel where there is one only."""
    half = step / 2 if count > 1 else 0.0
    return start + half, start + count * step - half


def _named(wkt: str) -> str:
    """The code of a coordinate reference system, such as "EPSG:27700", or its WKT where it has none."""
    import pyproj

    authority = pyproj.CRS.from_wkt(wkt).to_authority()
    return ":".join(authority) if authority else wkt


def _check_place(ours: Projection, theirs: Projection, box: Box) -> None:
    """Refuse when the two do not put the box in the same place on Earth, to 1e-7 degrees (a centimetre)."""
    places = box.grid((3, 3))
    lon, lat = ours.to_lonlat(places).T
    east, north = theirs.to_lonlat(places).T
    turned = (np.remainder(east - lon + 180.0, 360.0) - 180.0) * np.cos(np.radians(lat))
    if max(np.abs(turned).max(), np.abs(north - lat).max()) > _APART_DEGREES:
        raise ValueError("The coordinate reference systems differ.")
