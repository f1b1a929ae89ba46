"""GeoJSON (RFC 7946) of released polygons and points: longitude and latitude, exteriors counter-clockwise.

Without a projection there is no longitude and latitude to write.  The coordinates of the model's plane are
then written as they are, and the collection carries the member "planar_coordinates" that says so: such a
file is for programs that know the plane, and a web map would put it in the wrong place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.spatial.projection import Projection

Floats = NDArray[np.float64]
Rings = Sequence[ArrayLike]

DECIMALS = 7
_MOST_DECIMALS = 13
PLANAR = "x and y of the plane the model works in, not longitude and latitude; not RFC 7946 GeoJSON"


def multipolygon(
    polygons: Sequence[Rings],
    *,
    projection: Projection | None = None,
    properties: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One Feature with a MultiPolygon; `polygons` as `posterior.excursion.excursion_polygons` returns them.

    Each polygon is a sequence of rings (k, 2), first the exterior, then the holes.  Rings are closed,
    exteriors are written counter-clockwise and holes clockwise, in degrees with 7 decimals (1 cm); where
    that would let vertices of one ring coincide, with as many as keep them apart.  A polygon across the
    antimeridian is cut there, as RFC 7946 asks.  `properties` are JSON data about the whole.

    Raises ValueError for rings of another shape, points outside the area of use of the projection, or a
    polygon around a pole; ImportError when a polygon must be cut and shapely is not installed.
    """
    coordinates: list[list[list[list[float]]]] = []
    for rings in polygons:
        if not rings:
            raise ValueError("A polygon needs at least its exterior ring.")
        placed = [_closed(ring) for ring in rings]
        if projection is None:
            coordinates.append(_oriented(placed))
            continue
        placed = [projection.to_lonlat(ring) for ring in placed]
        for part in _cut_at_antimeridian(placed):
            rounded = _rounded(part)
            if rounded:
                coordinates.append(_oriented(rounded))
    return _feature({"type": "MultiPolygon", "coordinates": coordinates}, properties)


def points(
    XY: ArrayLike,
    *,
    projection: Projection | None = None,
    properties: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """One Feature with a Point for each row of XY (n, 2): public places, such as grid points or centres.

    `projection` takes them to degrees; without one they are written as they are.  `properties` holds one mapping for
    each point.  Raises ValueError when their numbers differ, or for points of another shape or not finite.
    """
    place = np.asarray(XY, dtype=np.float64)
    if place.ndim != 2 or place.shape[1] != 2 or not np.isfinite(place).all():
        raise ValueError(f"points must be finite and of shape (n, 2), not {place.shape}.")
    if projection is not None:
        place = np.round(projection.to_lonlat(place), DECIMALS) + 0.0
    if properties is None:
        properties = [{}] * len(place)
    return [
        _feature({"type": "Point", "coordinates": position}, own)
        for position, own in zip(place.tolist(), properties, strict=True)
    ]


def feature_collection(
    features: Iterable[Mapping[str, Any]],
    *,
    projection: Projection | None = None,
    properties: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A FeatureCollection of features made with the same `projection`.

    `properties` become further members of the collection (what was released, its epsilon, its unit of
    privacy). Raises ValueError when one of them has a name that RFC 7946 gives a meaning of its own.
    """
    collection: dict[str, Any] = {"type": "FeatureCollection"}
    if projection is None:
        collection["planar_coordinates"] = PLANAR
    taken = {"type", "features", "coordinates", "geometry", "geometries", "properties", "bbox", "crs", "id"}
    for name, value in (properties or {}).items():
        if name in taken or name in collection:
            raise ValueError(f"The name {name!r} has a meaning of its own in GeoJSON; choose another.")
        collection[name] = value
    collection["features"] = [dict(feature) for feature in features]
    return collection


def write_geojson(
    path: str | os.PathLike[str],
    features: Iterable[Mapping[str, Any]],
    *,
    projection: Projection | None = None,
    properties: Mapping[str, Any] | None = None,
) -> Path:
    """Write a `feature_collection` of `features` as UTF-8 text to `path`, and return it.

    `projection` and `properties` as in `feature_collection`.

    Raises ValueError when a property is NaN, infinite or not expressible in JSON.
    """
    collection = feature_collection(features, projection=projection, properties=properties)
    try:
        text = json.dumps(collection, allow_nan=False, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(f"A property cannot be written as JSON: {str(error).rstrip('.')}.") from None
    target = Path(path)
    target.write_text(text + "\n", encoding="utf-8")
    return target


def _plain(value: object) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"A {type(value).__name__} is neither a number, text, list nor mapping.")


def _feature(geometry: dict[str, Any], properties: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"type": "Feature", "properties": dict(properties or {}), "geometry": geometry}


def _closed(ring: ArrayLike) -> Floats:
    array = np.asarray(ring, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all():
        raise ValueError(f"A ring must be finite and of shape (k, 2), not {array.shape}.")
    if len(array) and (array[0] != array[-1]).any():
        array = np.vstack((array, array[:1]))
    if len(array) < 4:
        raise ValueError("A ring needs at least three different corners.")
    return array


def _oriented(rings: Sequence[Floats]) -> list[list[list[float]]]:
    """Exterior counter-clockwise, holes clockwise, as nested lists."""
    result = []
    for position, ring in enumerate(rings):
        x, y = (ring - ring[0]).T
        counter_clockwise = np.dot(x[:-1], y[1:]) > np.dot(x[1:], y[:-1])
        result.append((ring if counter_clockwise == (position == 0) else ring[::-1]).tolist())
    return result


def _rounded(rings: Sequence[Floats]) -> list[Floats]:
    """Rings rounded to as few decimals, from `DECIMALS` up, as keep the corners of each ring distinct.

    A ring that has no three distinct corners even so is left out; the polygon with it when it is the
    exterior.
    """
    result = []
    for position, ring in enumerate(rings):
        corners = _distinct(ring[:-1])
        if len(corners) >= 3:
            result.append(np.vstack((corners, corners[:1])))
        elif position == 0:
            return []
    return result


def _distinct(corners: Floats) -> Floats:
    rounded = corners
    for decimals in range(DECIMALS, _MOST_DECIMALS + 1):
        rounded = np.round(corners, decimals) + 0.0  # no negative zero
        if len(np.unique(rounded, axis=0)) == len(rounded):
            return rounded
    repeated = (rounded == np.roll(rounded, 1, axis=0)).all(axis=1)
    return rounded[~repeated]


def _cut_at_antimeridian(rings: Sequence[Floats]) -> list[list[Floats]]:
    """The polygon itself, or its parts west and east of 180 degrees when an edge jumps across."""
    if not any((np.abs(np.diff(ring[:, 0])) > 180).any() for ring in rings):
        return [list(rings)]
    try:
        import shapely
    except ImportError:
        raise ImportError(
            'A polygon crosses the antimeridian and is cut with shapely: pip install "discretion[geo]".'
        ) from None
    start = rings[0][0, 0]
    unrolled = []
    for ring in rings:
        lon = np.unwrap(ring[:, 0], period=360)
        if abs(lon[-1] - lon[0]) > 180:
            raise ValueError("A polygon encloses a pole, which GeoJSON cannot hold; cut the domain in two.")
        lon += 360 * np.round((start - lon[0]) / 360)
        unrolled.append(np.stack((lon, ring[:, 1]), axis=1))
    whole = shapely.Polygon(unrolled[0], unrolled[1:])
    parts = []
    for turn in (-360, 0, 360):
        inside = whole.intersection(shapely.box(-180 + turn, -90, 180 + turn, 90))
        for piece in getattr(inside, "geoms", [inside]):
            if isinstance(piece, shapely.Polygon) and not piece.is_empty:
                shift = np.array([turn, 0.0])
                parts.append([np.asarray(r.coords) - shift for r in (piece.exterior, *piece.interiors)])
    return parts
