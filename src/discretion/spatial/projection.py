"""From the plane that a model works in to longitude and latitude, and back.

Distances in a Gaussian process are straight lines in a plane.  Degrees are not: at 51.5 N one degree of
longitude is 0.62 of a degree of latitude.  Coordinates are therefore modelled in a projected coordinate
reference system (CRS), and turned into longitude and latitude (WGS 84) only when a map is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp.domain import Box

Floats = NDArray[np.float64]

WGS84 = "EPSG:4326"
_SLACK_DEGREES = 1e-6


def _pyproj() -> Any:
    try:
        import pyproj
    except ImportError:
        raise ImportError('Coordinate systems need pyproj: pip install "discretion[geo]".') from None
    return pyproj


@dataclass(frozen=True)
class Projection:
    """A projected coordinate reference system: `crs` is anything PROJ knows, such as "EPSG:27700".

    `domain`, when given, is the public domain of the model in these coordinates; it must lie in the area
    the CRS is meant for.  Coordinates are always (x, y) = (easting, northing) and (longitude, latitude),
    whatever order the authority prescribes.

    Raises ValueError for an unknown CRS, for one in degrees (naming a projected one that suits the domain),
    and for a domain outside the area of use; ImportError when pyproj is not installed.
    """

    crs: str
    domain: Box | None = None
    _to: Any = field(init=False, repr=False, compare=False)
    _from: Any = field(init=False, repr=False, compare=False)
    _system: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pyproj = _pyproj()
        try:
            system = pyproj.CRS.from_user_input(self.crs)
        except pyproj.exceptions.CRSError:
            raise ValueError(
                f"{self.crs!r} is not a coordinate reference system that PROJ knows: give a code, such as EPSG:27700."
            ) from None
        if system.is_geographic:
            raise ValueError(f"{self.crs} is in degrees, which are not a plane. {self._advice(system)}")
        if not system.is_projected:
            raise ValueError(f"{self.crs} ({system.type_name}) is not a projected coordinate system.")
        object.__setattr__(self, "_system", system)
        object.__setattr__(self, "_to", pyproj.Transformer.from_crs(system, WGS84, always_xy=True))
        object.__setattr__(self, "_from", pyproj.Transformer.from_crs(WGS84, system, always_xy=True))
        if self.domain is not None:
            self._check_domain(self.domain)

    def same(self, other: str) -> bool:
        """Whether `other`, anything PROJ knows, names this system; False for what it does not know."""
        pyproj = _pyproj()
        try:
            return bool(pyproj.CRS.from_user_input(other).equals(self._system, ignore_axis_order=True))
        except pyproj.exceptions.CRSError:
            return False

    def _advice(self, system: Any) -> str:
        area = self.domain
        if area is None and system.area_of_use is not None:
            west, south, east, north = system.area_of_use.bounds
            area = Box((west, south), (east, north)) if 0 < east - west < 12 else None
        if area is None:
            return "Convert to a projected system first; suggest_crs(box in degrees) names one."
        try:
            return f"Convert to a projected system first, for instance {suggest_crs(area)}."
        except ValueError:
            return "Name the projected system that the domain is in, such as EPSG:27700, or convert to one first."

    def _check_domain(self, domain: Box) -> None:
        if domain.dimension != 2:
            raise ValueError(f"A map needs a domain with two axes, not {domain.dimension}.")
        corners = _corners(domain)
        if self.metres_per_unit < 1000 and (np.abs(corners) <= 360).all():
            raise ValueError(f"The domain looks like degrees, but {self.crs} is in {self.unit}; give it in that unit.")
        self.to_lonlat(corners)

    @property
    def unit(self) -> str:
        """Unit of the plane coordinates: "m", or its name where it is not the metre."""
        name = self._system.axis_info[0].unit_name
        return "m" if name == "metre" else name

    @property
    def metres_per_unit(self) -> float:
        """Length of that unit in metres."""
        return float(self._system.axis_info[0].unit_conversion_factor)

    @property
    def label(self) -> str:
        """Name and code for a caption, such as "OSGB36 / British National Grid (EPSG:27700)"."""
        authority = self._system.to_authority()
        code = ":".join(authority) if authority else ""
        return f"{self._system.name} ({code})" if code else str(self._system.name)

    def to_lonlat(self, XY: ArrayLike) -> Floats:
        """Longitude and latitude in degrees (WGS 84) of plane points (n, 2).

        Raises ValueError when a point is not finite or lies outside the area of use of the CRS.
        """
        lonlat = self._transform(self._to, XY)
        self._check_area(lonlat, XY, "to_lonlat")
        return lonlat

    def from_lonlat(self, lonlat: ArrayLike) -> Floats:
        """Plane coordinates of points (n, 2) given as longitude and latitude in degrees (WGS 84).

        Raises ValueError when a point is not finite or lies outside the area of use of the CRS, with a hint
        when longitude and latitude look swapped.
        """
        points = _points(lonlat)
        self._check_area(points, points, "from_lonlat")
        return self._transform(self._from, points)

    def _transform(self, transformer: Any, XY: ArrayLike) -> Floats:
        points = _points(XY)
        first, second = transformer.transform(points[:, 0], points[:, 1])
        result = np.stack((np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)), axis=1)
        bad = ~np.isfinite(result).all(axis=1)
        if bad.any():
            raise ValueError(f"{_count(bad)} cannot be projected with {self.crs}; check units and axis order.")
        return result

    def _check_area(self, lonlat: Floats, given: ArrayLike, verb: str) -> None:
        outside = ~self._in_area(lonlat)
        if not outside.any():
            return
        points = _points(given)[outside][:, ::-1]
        hint = "check the coordinate system and the units"
        if verb == "from_lonlat":
            swapped_inside = self._in_area(points).mean() > 0.5
            other = "longitude comes first, then latitude"
        else:
            first, second = self._to.transform(points[:, 0], points[:, 1])
            swapped_inside = self._in_area(np.stack((first, second), axis=1)).mean() > 0.5
            other = "easting comes first, then northing"
        if swapped_inside:
            hint = f"the two columns look swapped: {other}"
        raise ValueError(f"{_count(outside)} lie outside the area of use of {self.label}; {hint}.")

    def _in_area(self, lonlat: Floats) -> NDArray[np.bool_]:
        lon, lat = lonlat.T
        inside = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
        if self._system.area_of_use is None:
            return inside
        west, south, east, north = self._system.area_of_use.bounds
        inside &= (lat >= south - _SLACK_DEGREES) & (lat <= north + _SLACK_DEGREES)
        after, before = lon >= west - _SLACK_DEGREES, lon <= east + _SLACK_DEGREES
        # an area that crosses the antimeridian has its western limit east of its eastern one
        return inside & ((after & before) if west <= east else (after | before))


def suggest_crs(lonlat: Box) -> str:
    """A projected CRS for the box `lonlat`, in degrees (longitude, latitude): the UTM zone of its centre, with code and
    name.

    Suits areas a few hundred kilometres wide; many countries have a better one of their own.
    Raises ValueError when the box is not in degrees or lies beyond the UTM zones (84 N, 80 S).
    """
    pyproj = _pyproj()
    if lonlat.dimension != 2 or (np.abs(_corners(lonlat)) > (180, 90)).any():
        raise ValueError("The box must hold longitude (-180 to 180) and latitude (-90 to 90), in this order.")
    lon, lat = np.mean([lonlat.lower, lonlat.upper], axis=0)
    point = pyproj.aoi.AreaOfInterest(lon, lat, lon, lat)
    found = pyproj.database.query_utm_crs_info(datum_name="WGS 84", area_of_interest=point, contains=True)
    if not found:
        raise ValueError("No UTM zone covers this latitude; use a polar stereographic system.")
    return f"{found[0].auth_name}:{found[0].code} ({found[0].name})"


def _points(XY: ArrayLike) -> Floats:
    points = np.asarray(XY, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points must have shape (n, 2), not {points.shape}.")
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        raise ValueError(f"{_count(bad)} are not finite.")
    return points


def _corners(box: Box) -> Floats:
    (left, bottom), (right, top) = box.lower, box.upper
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top]])


def _count(mask: ArrayLike) -> str:
    return f"{np.count_nonzero(mask)} of {np.size(mask)} points"
