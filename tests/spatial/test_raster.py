import contextlib
import json
import math
import sys

import numpy as np
import pytest

from discretion.gp.domain import Box
from discretion.spatial.projection import Projection
from discretion.spatial.raster import read_geotiff, suffix, write_geoparquet, write_geotiff

pyproj = pytest.importorskip("pyproj")

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
GRID = Projection("EPSG:27700", LONDON)
COUNTS = (13, 7)
TAGS = {"epsilon": 0.983, "delta": 1e-5, "unit": "one sale <of a flat & a house>", "certificate": "city#7"}

# feet; northing before easting in the registry; no code at all; a datum shift without a grid
SYSTEMS = [
    ("EPSG:27700", LONDON),
    ("EPSG:2263", Box((950_000.0, 150_000.0), (1_050_000.0, 250_000.0))),
    ("EPSG:2193", Box((1_700_000.0, 5_900_000.0), (1_800_000.0, 6_000_000.0))),
    ("+proj=laea +lat_0=51.5 +lon_0=-0.1 +datum=WGS84 +units=m", Box((-20_000.0, -20_000.0), (20_000.0, 20_000.0))),
    (
        "+proj=tmerc +lat_0=49 +lon_0=-2 +k=0.9996012717 +x_0=400000 +y_0=-100000 +ellps=airy "
        "+towgs84=446.448,-125.157,542.06,0.15,0.247,0.842,-20.489 +units=m",
        LONDON,
    ),
]


def bands(counts=COUNTS, seed=0):
    rng = np.random.default_rng(seed)
    return {"path 1": rng.standard_normal(counts[::-1]), "density, café": rng.standard_normal(counts[::-1])}


@pytest.fixture
def rasterio():
    return pytest.importorskip("rasterio")


@pytest.fixture
def parquet():
    pytest.importorskip("shapely")
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pyarrow.parquet")


# GeoTIFF


@pytest.mark.parametrize(("crs", "box"), SYSTEMS)
def test_geotiff_comes_back_with_numbers_place_and_tags(rasterio, tmp_path, crs, box):
    written, projection = bands(), Projection(crs, box)
    written["path 1"][2, 3] = np.nan
    raster = read_geotiff(write_geotiff(tmp_path / "a.tif", written, box, projection=projection, tags=TAGS))
    assert list(raster.bands) == list(written)
    for name, values in written.items():
        assert raster.bands[name].dtype == np.float64
        np.testing.assert_array_equal(raster.bands[name], values)
    np.testing.assert_allclose((raster.box.lower, raster.box.upper), (box.lower, box.upper), rtol=1e-14)
    places = box.grid((5, 5))
    assert np.abs(raster.projection.to_lonlat(places) - projection.to_lonlat(places)).max() < 1e-7
    assert raster.tags == {**TAGS, "epsilon": "0.983", "delta": "1e-05"}
    assert list(tmp_path.iterdir()) == [tmp_path / "a.tif"]  # everything is in the one file


def test_a_code_stays_a_code(rasterio, tmp_path):
    path = write_geotiff(tmp_path / "a.tif", bands(), LONDON, projection=GRID)
    assert read_geotiff(path).projection.crs == "EPSG:27700"
    with rasterio.open(path) as file:
        assert file.crs.to_epsg() == 27700


def test_grid_points_are_pixel_centres_north_up(rasterio, tmp_path):
    field = LONDON.grid(COUNTS) @ [1.0, 1000.0]  # as a release holds it: x first
    path = write_geotiff(tmp_path / "a.tif", {"plane": field.reshape(COUNTS).T}, LONDON, projection=GRID)
    with rasterio.open(path) as file:
        assert (file.width, file.height) == COUNTS
        assert file.dtypes == ("float64",)
        assert math.isnan(file.nodata)
        assert file.transform.a > 0 > file.transform.e
        # half a pixel beyond the box on every side
        dx, dy = 59_000 / 12, 46_000 / 6
        expected = (503_000 - dx / 2, 155_000 - dy / 2, 562_000 + dx / 2, 201_000 + dy / 2)
        np.testing.assert_allclose(file.bounds, expected, rtol=1e-14)
        np.testing.assert_array_equal([value[0] for value in file.sample(LONDON.grid(COUNTS))], field)
        centres = np.stack(file.xy(*np.indices((7, 13)).reshape(2, -1)), axis=-1)
        np.testing.assert_allclose(centres @ [1.0, 1000.0], file.read(1).ravel(), rtol=1e-14)
        assert file.read(1)[0].min() > file.read(1)[-1].max()  # the first row of the file is the north


@pytest.mark.parametrize("counts", [(1, 1), (1, 5), (5, 1), (2, 2)])
def test_a_single_row_or_column_is_a_pixel_as_wide_as_the_box(rasterio, tmp_path, counts):
    path = write_geotiff(tmp_path / "a.tif", bands(counts), LONDON, projection=GRID)
    raster = read_geotiff(path)
    np.testing.assert_allclose((raster.box.lower, raster.box.upper), (LONDON.lower, LONDON.upper), rtol=1e-14)
    with rasterio.open(path) as file:
        values = [value[0] for value in file.sample(LONDON.grid(counts))]
        np.testing.assert_array_equal(values, raster.bands["path 1"].T.ravel())
        if counts == (1, 1):
            assert tuple(file.bounds) == (*LONDON.lower, *LONDON.upper)


def test_nodata_stands_for_what_is_missing_or_masked(rasterio, tmp_path):
    values = np.ma.array(bands()["path 1"], mask=np.arange(91).reshape(7, 13) % 5 == 0)
    path = write_geotiff(tmp_path / "a.tif", {"a": values}, LONDON, projection=GRID, nodata=-9999.0)
    with rasterio.open(path) as file:
        assert file.nodata == -9999.0
        stored = file.read(1)[::-1]
    np.testing.assert_array_equal(stored, values.filled(-9999.0))
    np.testing.assert_array_equal(read_geotiff(path).bands["a"], values.filled(np.nan))
    with pytest.raises(ValueError, match="choose another nodata"):
        write_geotiff(tmp_path / "b.tif", {"a": np.full((7, 13), 3.0)}, LONDON, projection=GRID, nodata=3.0)


def test_equal_releases_give_equal_bytes(rasterio, tmp_path):
    one, two = (
        write_geotiff(tmp_path / name, bands(), LONDON, projection=GRID, tags=TAGS) for name in ("a.tif", "b.tif")
    )
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        ({}, "at least one band"),
        ({"a": np.zeros(5)}, "one shape"),
        ({"a": np.zeros((2, 0))}, "one shape"),
        ({"a": np.zeros((2, 3)), "b": np.zeros((3, 2))}, "one shape"),
        ({"a": np.array([[np.inf, 0.0]])}, "infinite"),
        ({"a": np.zeros((2, 2), complex)}, "real numbers"),
        ({"": np.zeros((2, 2))}, "name them"),
        ({"a\x01": np.zeros((2, 2))}, "name them"),
    ],
)
def test_bands_that_cannot_be_kept_are_refused(rasterio, tmp_path, grids, message):
    with pytest.raises(ValueError, match=message):
        write_geotiff(tmp_path / "a.tif", grids, LONDON, projection=GRID)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "tags",
    [
        {"unit": ""},
        {"unit": "a\x00b"},
        {"unit": " sale"},
        {"a=b": "x"},
        {"Unit": "sale", "unit": "buyer"},
        {"AREA_OR_POINT": "Point"},
        {"ns": "x"},
        {"epsilon": math.nan},
        {"order": None},
    ],
)
def test_tags_that_would_be_lost_are_refused(rasterio, tmp_path, tags):
    with pytest.raises(ValueError, match="tag"):
        write_geotiff(tmp_path / "a.tif", bands(), LONDON, projection=GRID, tags=tags)
    assert not list(tmp_path.iterdir())


def test_an_infinite_epsilon_is_said(rasterio, tmp_path):
    tags = {"epsilon": np.float64(math.inf), "bookable": False}
    path = write_geotiff(tmp_path / "a.tif", bands(), LONDON, projection=GRID, tags=tags)
    assert read_geotiff(path).tags == {"epsilon": "inf", "bookable": "false"}


def test_a_system_that_would_be_lost_is_refused(rasterio, tmp_path):
    # an oblique Mollweide: PROJ knows it, GeoTIFF has no keys for it
    box = Box((-20_000.0, -20_000.0), (20_000.0, 20_000.0))
    projection = Projection("+proj=ob_tran +o_proj=moll +o_lon_p=0 +o_lat_p=45 +lon_0=0", box)
    with pytest.raises(ValueError, match="does not keep"):
        write_geotiff(tmp_path / "a.tif", bands(), box, projection=projection)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_a_system_that_would_come_back_elsewhere_is_refused(rasterio, tmp_path, monkeypatch, shift):
    # what some versions of GDAL do to a rare projection, here by a tenth of a metre
    moved = f"+proj=tmerc +lat_0=51.5 +lon_0=-0.1 +x_0={500_000 + shift} +ellps=WGS84"
    box = Box((480_000.0, -20_000.0), (520_000.0, 20_000.0))
    projection = Projection("+proj=tmerc +lat_0=51.5 +lon_0=-0.1 +x_0=500000 +ellps=WGS84", box)
    monkeypatch.setattr("discretion.spatial.raster._named", lambda wkt: moved)
    expected = pytest.raises(ValueError, match="does not keep") if shift else contextlib.nullcontext()
    with expected:
        write_geotiff(tmp_path / "a.tif", bands(), box, projection=projection)
    assert bool(list(tmp_path.iterdir())) == (not shift)


def test_a_box_in_degrees_or_elsewhere_is_refused(rasterio, tmp_path):
    for box, message in [
        (Box((-0.5, 51.3), (0.3, 51.7)), "degrees"),
        (Box((155_000.0, 5_003_000.0), (201_000.0, 5_062_000.0)), "outside the area of use"),
    ]:
        with pytest.raises(ValueError, match=message):
            write_geotiff(tmp_path / "a.tif", bands(), box, projection=Projection("EPSG:27700"))


def test_rasters_of_another_convention_are_refused(rasterio, tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(b"easting,northing\n1,2\n")
    with pytest.raises(ValueError, match="not a GeoTIFF"):
        read_geotiff(path)
    north_up = rasterio.Affine(1000.0, 0.0, 503_000.0, 0.0, -1000.0, 201_000.0)
    for crs, transform, message in [
        (None, north_up, "no coordinate reference system"),
        ("EPSG:4326", rasterio.Affine(0.01, 0.0, -0.5, 0.0, -0.01, 51.7), "degrees"),
        ("EPSG:27700", rasterio.Affine(800.0, 300.0, 503_000.0, 300.0, -800.0, 201_000.0), "north up"),
        ("EPSG:27700", rasterio.Affine(1000.0, 0.0, 503_000.0, 0.0, 1000.0, 155_000.0), "north up"),
    ]:
        profile = {"driver": "GTiff", "width": 4, "height": 3, "count": 1, "dtype": "float32"}
        with rasterio.open(path, "w", crs=crs, transform=transform, **profile) as file:
            file.write(np.zeros((1, 3, 4), np.float32))
        with pytest.raises(ValueError, match=message):
            read_geotiff(path)


def test_bands_without_names_are_numbered(rasterio, tmp_path):
    path = tmp_path / "a.tif"
    transform = rasterio.Affine(1000.0, 0.0, 503_000.0, 0.0, -1000.0, 201_000.0)
    profile = {"driver": "GTiff", "width": 4, "height": 3, "count": 2, "dtype": "int16", "nodata": -1}
    with rasterio.open(path, "w", crs="EPSG:27700", transform=transform, **profile) as file:
        file.write(np.arange(-1, 23, dtype=np.int16).reshape(2, 3, 4))
    raster = read_geotiff(path)
    np.testing.assert_array_equal(raster.bands["band_1"], [[7, 8, 9, 10], [3, 4, 5, 6], [np.nan, 0, 1, 2]])
    assert raster.bands["band_2"][0, 3] == 22
    assert raster.box == Box((503_500.0, 198_500.0), (506_500.0, 200_500.0))


# GeoParquet


def columns(places):
    values = np.random.default_rng(1).standard_normal(len(places))
    values[3] = np.nan
    return {
        "path_1": values,
        "count": np.arange(len(places)),
        "above": values > 0,
        "side": np.where(values > 0, "a", "é"),
    }


@pytest.mark.parametrize(("crs", "box"), SYSTEMS)
def test_geoparquet_opens_in_geopandas_with_the_same_numbers_and_system(parquet, tmp_path, crs, box):
    geopandas = pytest.importorskip("geopandas")
    projection, places = Projection(crs, box), box.grid(COUNTS)
    written = columns(places)
    frame = geopandas.read_parquet(write_geoparquet(tmp_path / "a.parquet", places, written, projection=projection))
    assert list(frame.columns) == [*written, "geometry"]
    for name, values in written.items():
        np.testing.assert_array_equal(frame[name].to_numpy(), values)
    np.testing.assert_array_equal(np.stack((frame.geometry.x, frame.geometry.y), axis=1), places)
    assert frame.crs == pyproj.CRS(crs)
    degrees = frame.geometry.to_crs("EPSG:4326")
    assert np.abs(np.stack((degrees.x, degrees.y), axis=1) - projection.to_lonlat(places)).max() < 1e-7


def test_geoparquet_metadata_is_version_1_1(parquet, tmp_path):
    shapely = pytest.importorskip("shapely")
    places = LONDON.grid(COUNTS)
    path = write_geoparquet(tmp_path / "a.parquet", places, columns(places), projection=GRID, tags=TAGS)
    file = parquet.ParquetFile(path)
    about = json.loads(file.metadata.metadata[b"geo"])
    assert about["version"] == "1.1.0"
    assert about["primary_column"] == "geometry"
    geometry = about["columns"]["geometry"]
    assert (geometry["encoding"], geometry["geometry_types"], geometry["edges"]) == ("WKB", ["Point"], "planar")
    assert geometry["bbox"] == [*LONDON.lower, *LONDON.upper]
    assert isinstance(geometry["crs"], dict)  # an object, not text in text
    assert geometry["crs"]["id"] == {"authority": "EPSG", "code": 27700}
    assert pyproj.CRS.from_json_dict(geometry["crs"]) == pyproj.CRS("EPSG:27700")
    assert json.loads(file.metadata.metadata[b"discretion"])["epsilon"] == "0.983"
    # plain bytes: an Arrow extension or a logical type makes some readers pass over the system above
    column = file.schema.column(file.schema_arrow.get_field_index("geometry"))
    assert (column.physical_type, column.logical_type.type) == ("BYTE_ARRAY", "NONE")
    assert not file.schema_arrow.field("geometry").metadata
    points = shapely.from_wkb(file.read(["geometry"])["geometry"].to_numpy())
    np.testing.assert_array_equal(shapely.get_coordinates(points), places)


def test_missing_and_masked_become_null(parquet, tmp_path):
    places = LONDON.grid((3, 2))
    mask = np.arange(6) < 2
    values = {
        "float": np.ma.array([0.1, 0.2, np.nan, 4.0, 5.0, 6.0], mask=mask),
        "whole": np.ma.array(np.arange(6), mask=mask),
        "text": np.ma.array(list("abcdef"), mask=mask),
    }
    table = parquet.read_table(write_geoparquet(tmp_path / "a.parquet", places, values, projection=GRID))
    assert table["float"].to_pylist() == [None, None, None, 4.0, 5.0, 6.0]
    assert table["whole"].to_pylist() == [None, None, 2, 3, 4, 5]
    assert table["text"].to_pylist() == [None, None, "c", "d", "e", "f"]


def test_no_points_and_equal_bytes(parquet, tmp_path):
    empty = write_geoparquet(tmp_path / "e.parquet", np.empty((0, 2)), {"a": np.empty(0)}, projection=GRID)
    about = json.loads(parquet.ParquetFile(empty).metadata.metadata[b"geo"])
    assert "bbox" not in about["columns"]["geometry"]
    places = LONDON.grid(COUNTS)
    one, two = (
        write_geoparquet(tmp_path / name, places, columns(places), projection=GRID) for name in ("a.pq", "b.pq")
    )
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("places", "values", "message"),
    [
        (LONDON.grid((2, 2)), {"a": np.zeros(3)}, "4 locations"),
        (LONDON.grid((2, 2)), {"a": np.zeros((4, 1))}, "4 locations"),
        (LONDON.grid((2, 2)), {"a": np.full(4, np.inf)}, "infinite"),
        (LONDON.grid((2, 2)), {"a": np.array([None, 1, 2, 3])}, "numbers, truth values or text"),
        (LONDON.grid((2, 2)), {"geometry": np.zeros(4)}, "taken by the points"),
        (np.zeros((4, 3)), {"a": np.zeros(4)}, "shape"),
        (np.full((4, 2), np.nan), {"a": np.zeros(4)}, "not finite"),
        (np.array([[180_000.0, 1_530_000.0]]), {"a": np.zeros(1)}, "outside the area of use"),
    ],
)
def test_tables_that_make_no_sense_are_refused(parquet, tmp_path, places, values, message):
    with pytest.raises(ValueError, match=message):
        write_geoparquet(tmp_path / "a.parquet", places, values, projection=Projection("EPSG:27700"))
    assert not list(tmp_path.iterdir())


# Packages


@pytest.mark.parametrize(
    ("format", "package", "extra"), [("geotiff", "rasterio", "raster"), ("geoparquet", "pyarrow", "geo,parquet")]
)
def test_a_missing_package_is_named_before_anything_is_written(monkeypatch, tmp_path, format, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*discretion\[{extra}\]"):
        suffix(format)
    places = LONDON.grid((2, 2))
    write = {
        "geotiff": lambda: write_geotiff(tmp_path / "a.tif", bands(), LONDON, projection=GRID),
        "geoparquet": lambda: write_geoparquet(tmp_path / "a.parquet", places, {}, projection=GRID),
    }
    with pytest.raises(ImportError, match=package):
        write[format]()
    assert not list(tmp_path.iterdir())


def test_formats_have_suffixes(rasterio, parquet):
    assert (suffix("geotiff"), suffix("geoparquet")) == (".tif", ".parquet")
    with pytest.raises(ValueError, match="choose from geotiff, geoparquet"):
        suffix("shapefile")
