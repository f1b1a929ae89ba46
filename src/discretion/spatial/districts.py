"""A public map of districts as a graph: which share a border, and in which one a point lies.

Needs the ``geo`` extra (shapely); other formats than GeoJSON also geopandas.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, diags_array

from discretion.gp.lattice import Lattice
from discretion.spatial.outlines import Polygon
from discretion.spatial.projection import Projection

__all__ = ["Districts"]

Array = NDArray[np.float64]

_OVERLAP = 1e-6
"""Share of the smaller district that may lie in both: drawn borders cross by a little."""


def _shapely() -> Any:
    try:
        import shapely
    except ImportError:
        raise ImportError("Districts need shapely: install discretion[geo].") from None
    return shapely


@dataclass(frozen=True, eq=False)
class Districts:
    """Polygons in the plane of the covariates and their names. Public: fixed without a look at the records.

    Two districts are neighbours if they share a border of positive length, up to gaps of ``tolerance``. A point belongs
    to the nearest district (distance 0 inside), so one in a hole or outside all of them has one too; on a shared border
    to the first in the file. Districts that overlap are refused: a point would lie in two.

    ``shapes`` are shapely polygons, one for each of ``names``, which differ; ``tolerance`` >= 0 is in the unit of the
    covariates. ``digest`` is the SHA-256 of the file they were read from, ``crs`` the coordinate system it names, if
    any; ``projected`` the one that `to` has brought them to from degrees. ValueError for polygons that are broken or
    overlap, and names that repeat.
    """

    shapes: tuple[Any, ...]
    names: tuple[str, ...]
    tolerance: float = 0.0
    digest: str | None = None
    crs: str | None = None
    projected: str | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], name: str | None = None, *, tolerance: float = 0.0) -> Self:
        """The polygons of a GeoJSON file, or of what geopandas reads (GeoPackage), one district a feature.

        Parameters
        ----------
        path : path
            Coordinates are those of the covariates; `to` projects longitude and latitude.
        name : str, optional
            Property that names a district; their numbers by default.
        tolerance : float >= 0
            Width of gaps between drawn borders that still count as shared.

        Raises
        ------
        ValueError
            If the file can't be read, holds no polygon, a broken one or two that overlap, or has no such property.
        ImportError
            Without shapely, or geopandas for other formats.
        """
        shapely, path = _shapely(), Path(path)
        if path.suffix.lower() in (".geojson", ".json"):
            try:
                collection = json.loads(path.read_text(encoding="utf-8"))
                features = collection.get("features", [])
                given = [feature["geometry"] for feature in features]
                shapes = [None if each is None else shapely.from_geojson(json.dumps(each)) for each in given]
                properties = [dict(feature.get("properties") or {}) for feature in features]
                system = ((collection.get("crs") or {}).get("properties") or {}).get("name")
            except OSError as error:
                raise ValueError(f"The districts {path} can't be read: {error.strerror}.") from None
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError, shapely.errors.ShapelyError):
                raise ValueError(f"The districts {path} are not GeoJSON.") from None
        else:
            try:
                import geopandas
            except ImportError:
                raise ImportError(f"Reading {path.suffix} files needs geopandas; GeoJSON does not.") from None
            frame = geopandas.read_file(path)
            shapes, properties = list(frame.geometry), frame.drop(columns="geometry").to_dict("records")
            system = None if frame.crs is None else frame.crs.to_string()
        if name is not None and (without := [i for i, each in enumerate(properties) if each.get(name) is None]):
            raise ValueError(f"Not every district of {path} has the property {name!r}: number {without[0]} has none.")
        names = [str(number if name is None else each[name]) for number, each in enumerate(properties)]
        return cls(tuple(shapes), tuple(names), tolerance, hashlib.sha256(path.read_bytes()).hexdigest(), system)

    def __post_init__(self) -> None:
        if not self.shapes:
            raise ValueError("There are no districts.")
        twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
        if len(self.names) != len(self.shapes):
            raise ValueError(f"There are {len(self.names)} names for {len(self.shapes)} districts.")
        if twice:
            raise ValueError(f"Every district needs a name of its own; these stand twice: {', '.join(twice[:5])}.")
        if not 0.0 <= self.tolerance < np.inf:
            raise ValueError(f"tolerance must be a length, at least 0; got {self.tolerance!r}.")
        broken = [
            name
            for shape, name in zip(self.shapes, self.names, strict=True)
            if shape is None
            or shape.geom_type not in ("Polygon", "MultiPolygon")
            or shape.is_empty
            or not shape.is_valid
        ]
        if broken:
            why = [f"{name} ({self._why(name)})" for name in broken[:5]]
            raise ValueError(f"These districts are no valid polygons: {', '.join(why)}; see shapely.make_valid.")
        if self._overlaps:
            pairs = ", ".join(f"{self.names[i]} and {self.names[j]}" for i, j in self._overlaps[:5])
            raise ValueError(f"Districts must not overlap, or a point lies in two of them: {pairs}.")

    @property
    def _overlaps(self) -> list[tuple[int, int]]:
        """Pairs with more than a sliver in common: beyond the tolerance along the border, a millionth of the area."""
        shapely, shapes = _shapely(), np.array(self.shapes, dtype=object)
        first, second = self._tree.query(shapes, predicate="intersects")
        kept = first < second
        first, second = first[kept], second[kept]
        common = shapely.area(shapely.intersection(shapes[first], shapes[second]))
        area, length = shapely.area(shapes), shapely.length(shapes)
        allowed = _OVERLAP * np.minimum(area[first], area[second])
        allowed += self.tolerance * np.minimum(length[first], length[second])
        found = common > allowed
        return list(zip(first[found].tolist(), second[found].tolist(), strict=True))

    def _why(self, name: str) -> str:
        shape = self.shapes[self.names.index(name)]
        if shape is None or shape.is_empty:
            return "no geometry"
        return str(_shapely().is_valid_reason(shape)) if not shape.is_valid else str(shape.geom_type)

    @property
    def in_degrees(self) -> bool:
        """Whether all corners could be longitude and latitude, as those of GeoJSON are by RFC 7946."""
        low, high = self.bounds
        return bool((np.abs([low, high]) <= (180.0, 90.0)).all())

    def to(self, projection: Projection) -> Self:
        """The same districts, in longitude and latitude (WGS 84), in the plane of a projection; sides stay straight.

        ValueError where a corner lies outside its area of use.
        """
        placed = _shapely().transform(np.array(self.shapes, dtype=object), projection.from_lonlat)
        return replace(self, shapes=tuple(placed), crs=projection.crs, projected=projection.crs)

    def beyond(self, lower: ArrayLike, upper: ArrayLike) -> list[str]:
        """Names of the districts that lie outside the box altogether."""
        (x, y), (right, top) = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        here = _shapely().intersects(np.array(self.shapes, dtype=object), _shapely().box(x, y, right, top))
        return [name for name, inside in zip(self.names, here, strict=True) if not inside]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper corner of all districts."""
        low_x, low_y, high_x, high_y = _shapely().total_bounds(np.array(self.shapes, dtype=object))
        return np.array([low_x, low_y]), np.array([high_x, high_y])

    @property
    def islands(self) -> list[str]:
        """Names of the districts without neighbours: killing alone ties them to the prior mean."""
        alone = np.setdiff1d(np.arange(len(self.shapes)), np.concatenate(self.neighbours))
        return [self.names[number] for number in alone.tolist()]

    def outline(self, chosen: NDArray[np.bool_]) -> list[Polygon]:
        """The polygons of the union of the chosen districts, each a list of rings, the exterior first."""
        return _rings(_shapely().union_all(np.array(self.shapes, dtype=object)[chosen]))

    @property
    def polygons(self) -> list[list[Polygon]]:
        """The polygons of each district."""
        return [_rings(shape) for shape in self.shapes]

    def find(self, X: ArrayLike) -> NDArray[np.int64]:
        """The district in which each point of X (n, 2) lies, -1 in none."""
        points = _shapely().points(np.asarray(X, dtype=np.float64))
        found = np.full(len(points), -1, dtype=np.int64)
        number, district = self._tree.query(points, predicate="intersects")
        found[number] = district
        return found

    @cached_property
    def _tree(self) -> Any:
        return _shapely().STRtree(self.shapes)

    @cached_property
    def neighbours(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (i, j), i < j, of districts that share a border."""
        shapely, shapes = _shapely(), np.array(self.shapes, dtype=object)
        wide = shapely.buffer(shapes, self.tolerance) if self.tolerance > 0.0 else shapes
        first, second = shapely.STRtree(wide).query(wide, predicate="intersects")
        kept = first < second
        first, second = first[kept], second[kept]
        shared = shapely.intersection(wide[first], wide[second])
        # a corner alone has no length; with a tolerance it has an area about its square
        kept = shapely.length(shared) > 16.0 * self.tolerance
        return first[kept].astype(np.int64), second[kept].astype(np.int64)

    def locate(self, X: ArrayLike) -> NDArray[np.int64]:
        """The district of each point of X (n, 2): the nearest, which is the one it lies in."""
        points = _shapely().points(np.asarray(X, dtype=np.float64))
        number, found = self._tree.query_nearest(points, all_matches=True)
        district = np.full(len(points), len(self.shapes), dtype=np.int64)
        np.minimum.at(district, number, found)
        return district

    def lattice(self, killing: float | None = None, *, share: float | None = None) -> Lattice:
        """The prior on the districts: ``killing I + Laplacian``, or the proper CAR ``D - share W``.

        Parameters
        ----------
        killing : float > 0
            kappa^2, with unit conductance across each shared border.
        share : float in [0, 1)
            Instead; a district without neighbours has no CAR and is refused.

        Raises
        ------
        ValueError
            Unless one of the two is given, in its range.
        """
        if (killing is None) == (share is None):
            raise ValueError("Give killing (kappa^2 > 0) or share (below 1), not both.")
        size, (first, second) = len(self.shapes), self.neighbours
        row, column = np.concatenate([first, second]), np.concatenate([second, first])
        W = coo_array((np.ones(row.size), (row, column)), shape=(size, size)).tocsr()
        places = np.array([shape.representative_point().coords[0] for shape in self.shapes], dtype=np.float64)
        words = {"graph": "districts", "tolerance": float(self.tolerance), "sha256": self.digest}
        words |= {} if self.projected is None else {"projected": self.projected}
        words |= {"killing": None if killing is None else float(killing), "share": None if share is None else share}
        if share is not None:
            if self.islands:
                raise ValueError(
                    f"Districts without neighbours have no CAR: {', '.join(self.islands[:10])}. Give killing instead, "
                    "which ties them to the prior mean, or a tolerance that closes the gaps between borders."
                )
            return Lattice.car(W, share, locations=places, locate=self.locate, words=words)
        assert killing is not None
        if not 0.0 < killing < np.inf:
            raise ValueError(f"killing (kappa^2) must be a positive number; got {killing!r}.")
        degree = np.asarray(W.sum(axis=1), dtype=np.float64)
        Q = diags_array(degree + float(killing)) - W
        return Lattice.of_precision(Q, locations=places, locate=self.locate, words=words)


def _rings(shape: Any) -> list[Polygon]:
    parts = [each for each in getattr(shape, "geoms", [shape]) if each.geom_type == "Polygon" and not each.is_empty]
    return [[np.asarray(ring.coords)[:, :2] for ring in (part.exterior, *part.interiors)] for part in parts]
