"""A public outline that a map stays inside, such as a city's boundary."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.path import Path as Outline
from numpy.typing import ArrayLike, NDArray

__all__ = ["Region"]


@dataclass(frozen=True)
class Region:
    """Polygons with holes in the plane of the covariates. Public: never drawn around the private records.

    ``polygons``: each a tuple of closed rings (k, 2), the exterior first, then its holes.
    """

    polygons: tuple[tuple[NDArray[np.float64], ...], ...]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The polygons of a GeoJSON file whose coordinates are those of the covariates (not longitude and latitude).

        Raises
        ------
        ValueError
            If the file can't be read, is not GeoJSON, or holds no polygon.
        """
        path = Path(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"The region {path} can't be read: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise ValueError(f"The region {path} is not JSON.") from None
        polygons = tuple(_polygons(document))
        if not polygons:
            raise ValueError(f"The region {path} holds no Polygon or MultiPolygon.")
        return cls(polygons)

    def contains(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Which points of X (n, 2) lie inside, shape (n,)."""
        points = np.asarray(X, dtype=np.float64)
        inside = np.zeros(len(points), dtype=bool)
        for exterior, *holes in self.polygons:
            here = Outline(exterior).contains_points(points)
            for hole in holes:
                here &= ~Outline(hole).contains_points(points)
            inside |= here
        return inside


def _polygons(node: Any) -> list[tuple[NDArray[np.float64], ...]]:
    kind = node.get("type") if isinstance(node, dict) else None
    try:
        if kind == "FeatureCollection":
            return [polygon for feature in node["features"] for polygon in _polygons(feature)]
        if kind == "GeometryCollection":
            return [polygon for part in node["geometries"] for polygon in _polygons(part)]
        if kind == "Feature":
            return _polygons(node["geometry"])
        if kind == "Polygon":
            return [_rings(node["coordinates"])]
        if kind == "MultiPolygon":
            return [_rings(rings) for rings in node["coordinates"]]
    except (KeyError, TypeError):
        raise ValueError(f"The region holds a {kind} that is not valid GeoJSON.") from None
    return []


def _rings(coordinates: Any) -> tuple[NDArray[np.float64], ...]:
    try:
        rings = tuple(np.asarray(ring, dtype=np.float64) for ring in coordinates)
    except (TypeError, ValueError, OverflowError):
        rings = ()
    if not rings or any(
        ring.ndim != 2 or len(ring) < 4 or ring.shape[1] < 2 or not np.isfinite(ring).all() for ring in rings
    ):
        raise ValueError("The region holds a polygon whose rings are not lists of at least four points.")
    return tuple(ring[:, :2] for ring in rings)
