import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from discretion.gp.domain import Box
from discretion.posterior.excursion import excursion_polygons
from discretion.spatial.geojson import feature_collection, multipolygon, points, write_geojson
from discretion.spatial.projection import Projection

shapely = pytest.importorskip("shapely")
pytest.importorskip("pyproj")

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
GRID = Projection("EPSG:27700", LONDON)
SQUARE = np.array([[530_000.0, 180_000.0], [531_000.0, 180_000.0], [531_000.0, 181_000.0], [530_000.0, 181_000.0]])
HOLE = np.add(SQUARE[0], [[300.0, 300.0], [600.0, 300.0], [600.0, 600.0]])


def excursion(seed, nx=60, ny=50, box=LONDON):
    field = gaussian_filter(np.random.default_rng(seed).standard_normal((ny, nx)), 2.5)
    x, y = np.linspace(box.lower[0], box.upper[0], nx), np.linspace(box.lower[1], box.upper[1], ny)
    return excursion_polygons(field, x, y, 0.0)


def check_rfc7946(feature):
    """Closed rings, exteriors counter-clockwise, holes clockwise, on the globe, seven decimals, valid."""
    assert feature["type"] == "Feature"
    assert set(feature) == {"type", "properties", "geometry"}
    for polygon in feature["geometry"]["coordinates"]:
        for position, ring in enumerate(polygon):
            assert ring[0] == ring[-1]
            assert len(ring) >= 4
            assert all(-180 <= lon <= 180 and -90 <= lat <= 90 for lon, lat in ring)
            assert shapely.LinearRing(ring).is_ccw == (position == 0)
            assert all(round(number, 7) == number for pair in ring for number in pair)
    shape = shapely.geometry.shape(feature["geometry"])
    assert shape.is_valid
    return shape


@pytest.mark.parametrize("seed", range(5))
def test_excursion_polygons_are_valid_and_come_back_within_1e_7_degrees(tmp_path, seed):
    polygons = excursion(seed)
    feature = multipolygon(polygons, projection=GRID, properties={"threshold": 13.0})
    path = write_geojson(tmp_path / "map.geojson", [feature], projection=GRID)
    (read,) = json.loads(path.read_text(encoding="utf-8"))["features"]
    check_rfc7946(read)
    assert len(read["geometry"]["coordinates"]) == len(polygons)
    for rings, written in zip(polygons, read["geometry"]["coordinates"], strict=True):
        for ring, back in zip(rings, written, strict=True):
            assert np.abs(GRID.to_lonlat(ring) - back).max() < 1e-7
            # and in the plane, within two centimetres
            assert np.abs(GRID.from_lonlat(np.array(back)) - ring).max() < 0.02


def test_rings_are_closed_and_turned_whatever_way_they_come():
    for exterior in (SQUARE, SQUARE[::-1], np.vstack((SQUARE, SQUARE[:1]))):
        for hole in (HOLE, HOLE[::-1]):
            shape = check_rfc7946(multipolygon([[exterior, hole]], projection=GRID))
            assert len(shape.geoms[0].interiors) == 1


def test_cells_of_a_metre_keep_their_corners_apart():
    """Seven decimals are a centimetre; an outline on a fine grid asks for more of them."""
    box = Box((530_000.0, 180_000.0), (530_003.0, 180_002.0))
    feature = multipolygon(excursion(2, 40, 30, box), projection=GRID)
    assert shapely.geometry.shape(feature["geometry"]).is_valid
    digits = [len(repr(n).split(".")[-1]) for p in feature["geometry"]["coordinates"] for r in p for q in r for n in q]
    assert max(digits) > 7


def test_properties_and_collection_members(tmp_path):
    feature = multipolygon([[SQUARE]], projection=GRID, properties={"paths": np.int64(3), "epsilon": np.float64(4.5)})
    extra = {"unit_of_privacy": "one hexagon’s record"}
    path = write_geojson(tmp_path / "map.geojson", [feature], projection=GRID, properties=extra)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["type"] == "FeatureCollection"
    assert document["unit_of_privacy"] == "one hexagon’s record"
    assert "planar_coordinates" not in document
    assert document["features"][0]["properties"] == {"paths": 3, "epsilon": 4.5}
    with pytest.raises(ValueError, match="meaning of its own"):
        feature_collection([feature], properties={"coordinates": 1})
    for bad in (float("nan"), float("inf"), object()):
        with pytest.raises(ValueError, match="JSON"):
            write_geojson(path, [multipolygon([[SQUARE]], projection=GRID, properties={"epsilon": bad})])


def test_without_a_projection_the_file_says_that_it_is_planar():
    feature = multipolygon([[SQUARE, HOLE]])
    assert feature["geometry"]["coordinates"][0][0][0] == [530_000.0, 180_000.0]
    assert shapely.geometry.shape(feature["geometry"]).area == pytest.approx(1e6 - 45_000)
    collection = feature_collection([feature])
    assert "not longitude and latitude" in collection["planar_coordinates"]


def test_points():
    features = points(SQUARE, projection=GRID, properties=[{"value": i} for i in range(4)])
    assert [feature["properties"]["value"] for feature in features] == [0, 1, 2, 3]
    lonlat = np.array([feature["geometry"]["coordinates"] for feature in features])
    assert np.abs(lonlat - GRID.to_lonlat(SQUARE)).max() < 1e-7
    assert points(SQUARE)[0]["geometry"]["coordinates"] == [530_000.0, 180_000.0]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        points(SQUARE, properties=[{}])
    with pytest.raises(ValueError, match="finite"):
        points([[np.nan, 0.0]])


def test_a_polygon_across_the_antimeridian_is_cut_there():
    fiji = Projection("EPSG:3460")
    corners = fiji.from_lonlat([[179.0, -18.0], [-179.5, -18.0], [-179.5, -16.0], [179.0, -16.0]])
    center = corners.mean(axis=0)
    hole = center + (corners - center) / 4
    shape = check_rfc7946(multipolygon([[corners, hole]], projection=fiji))
    assert len(shape.geoms) >= 2
    west, east = (shape.intersection(shapely.box(*bounds)) for bounds in ((170, -90, 180, 90), (-180, -90, -170, 90)))
    assert west.area + east.area == pytest.approx(shape.area)
    assert shape.area == pytest.approx(1.5 * 2.0 * 15 / 16, rel=0.01)
    assert min(west.bounds[0], 179.0) == pytest.approx(179.0, abs=1e-6)
    assert east.bounds[2] == pytest.approx(-179.5, abs=0.01)


def test_a_polygon_around_a_pole_is_refused():
    arctic = Projection("EPSG:3995")
    angle = np.linspace(0, 2 * np.pi, 60)[:-1]
    ring = 1e6 * np.stack((np.cos(angle), np.sin(angle)), axis=1)
    with pytest.raises(ValueError, match="pole"):
        multipolygon([[ring]], projection=arctic)


@pytest.mark.parametrize(
    ("polygons", "said"),
    [
        ([[]], "exterior"),
        ([[SQUARE[:2]]], "three different corners"),
        ([[SQUARE[:, :1]]], "shape"),
        ([[np.full((4, 2), np.nan)]], "finite"),
    ],
)
def test_what_is_no_polygon_is_refused(polygons, said):
    with pytest.raises(ValueError, match=said):
        multipolygon(polygons, projection=GRID)


def test_points_outside_the_area_of_use_are_refused():
    with pytest.raises(ValueError, match="area of use"):
        multipolygon([[SQUARE + 5e6]], projection=GRID)


def test_no_polygon_is_an_empty_multipolygon():
    feature = multipolygon([], projection=GRID)
    assert shapely.geometry.shape(feature["geometry"]).is_empty
