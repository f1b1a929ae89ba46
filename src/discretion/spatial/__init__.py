"""Geography around a release: reading records, public hexagons, coordinate systems, GeoJSON and maps.

Drawing is imported by its own name, `from discretion.spatial.maps import draw_map`: it loads most of
matplotlib.
"""

from discretion.spatial.geojson import feature_collection, multipolygon, points, write_geojson
from discretion.spatial.hexagons import HexagonLattice, aggregate, unit_of_privacy
from discretion.spatial.projection import Projection, suggest_crs
from discretion.spatial.reading import BadTable, Problem, Records, read_table
from discretion.spatial.region import Region

__all__ = [
    "BadTable",
    "HexagonLattice",
    "Problem",
    "Projection",
    "Records",
    "Region",
    "aggregate",
    "feature_collection",
    "multipolygon",
    "points",
    "read_table",
    "suggest_crs",
    "unit_of_privacy",
    "write_geojson",
]
