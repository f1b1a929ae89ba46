"""The files of a kernel-sum release, opened again by the programs they are for."""

import csv
import json
import math
import re

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT, REFUSED
from discretion.gp import Box
from discretion.posterior.decoder import Decoder
from discretion.posterior.excursion import excursion_polygons
from discretion.spatial import Projection, multipolygon

LOWER, UPPER, GRID = (503_000.0, 155_000.0), (562_000.0, 201_000.0), (60, 47)  # cells of 1 km
ROWS = 6_000
COLUMNS = ["value_sum", "density", "local_mean", "inner", "outer"]
WORDS = {
    "mechanism": "kernel-sum",
    "unit": "one sale",
    "covariates": "easting_m,northing_m",
    "response": "price_gbp",
    "transform": "log",
    "domain": "503000:562000,155000:201000",
    "response-range": "12:14",
    "kernel": "rbf",
    "length-scale": "3000",
    "length-unit": "data",
    "epsilon": "3",
    "delta": "1e-5",
    "grid": "60,47",
    "threshold": "13.1",
    "floor": "5",
}


def release(table, out, code=0, **changes):
    words = WORDS | {key.replace("_", "-"): value for key, value in changes.items()}
    flat = [word for key, value in words.items() if value is not None for word in (f"--{key}", str(value))]
    flat = [word for word in flat if word != "True"]
    done = CliRunner().invoke(app, ["release", str(table), "--out", str(out), *flat])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Made-up sales around two centres, dear in the west."""
    rng = np.random.default_rng(0)
    centre = np.array([[520_000.0, 180_000.0], [545_000.0, 175_000.0]])[rng.integers(2, size=ROWS)]
    places = np.clip(rng.normal(centre, 7_000.0), LOWER, UPPER).round()
    price = np.exp(13.1 + 0.6 * np.tanh((533_000.0 - places[:, 0]) / 9_000.0) + rng.normal(0.0, 0.3, ROWS))
    path = tmp_path_factory.mktemp("table") / "sales.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["easting_m", "northing_m", "price_gbp"])
        writer.writerows(np.column_stack([places, price.round()]).tolist())
    return path


@pytest.fixture(scope="module")
def out(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    release(table, folder, crs="EPSG:27700", formats="geotiff,geoparquet")
    return folder


def numbers(folder):
    """The rows of sums.csv: places and released numbers, NaN where a cell is empty."""
    rows = list(csv.reader((folder / "sums.csv").open()))
    assert rows[0] == ["easting_m", "northing_m", *COLUMNS]
    assert {row[-1] for row in rows[1:]} == {row[-2] for row in rows[1:]} == {"0", "1"}
    return np.array([[cell or "nan" for cell in row] for row in rows[1:]], dtype=np.float64)


# --- the same numbers and the same system


def test_the_raster_reopened_by_rasterio_has_the_same_numbers_and_system(out):
    rasterio = pytest.importorskip("rasterio")
    released = numbers(out)
    with rasterio.open(out / "sums.tif") as file:
        assert file.crs.to_epsg() == 27700
        assert file.descriptions == tuple(COLUMNS)
        assert file.tags()["unit"].startswith("one row of the table, declared to be one sale")
        assert float(file.tags()["epsilon"]) == 3.0
        assert (file.tags()["threshold"], file.tags()["side"], file.tags()["response"]) == (
            "13.1",
            ">=",
            "log price_gbp",
        )
        for band, side in ((4, "inside"), (5, "around")):
            about = file.tags(band)
            assert (about["threshold"], about["side"], about["confidence"]) == ("13.1", ">=", "0.95")
            assert about["meaning"].startswith(f"1 {side} the non-private smoothed set")
        bands = file.read()
        rows, columns = rasterio.transform.rowcol(file.transform, released[:, 0], released[:, 1])
    assert bands.dtype == np.float64
    assert bands.size == 5 * len(released)
    assert len(set(zip(rows, columns, strict=True))) == len(released)
    np.testing.assert_array_equal(bands[:, np.asarray(rows), np.asarray(columns)], released[:, 2:].T)


def test_the_table_reopened_by_geopandas_has_the_same_numbers_and_system(out):
    geopandas = pytest.importorskip("geopandas")
    released = numbers(out)
    frame = geopandas.read_parquet(out / "sums.parquet")
    assert frame.crs.to_epsg() == 27700
    found = np.column_stack([frame.geometry.x, frame.geometry.y, frame[COLUMNS]])
    np.testing.assert_array_equal(found, released)
    parquet = pytest.importorskip("pyarrow.parquet")
    told = json.loads(parquet.ParquetFile(out / "sums.parquet").metadata.metadata[b"discretion"])
    assert (told["threshold"], told["side"]) == ("13.1", ">=")
    assert told["columns"]["inner"]["confidence"] == told["columns"]["outer"]["confidence"] == "0.95"
    assert told["columns"]["local_mean"]["response"] == "log price_gbp"


def test_geojson_reopened_by_geopandas_lies_at_the_same_places_in_longitude_and_latitude(out):
    geopandas = pytest.importorskip("geopandas")
    released = numbers(out)
    frame = geopandas.read_file(out / "sums.geojson")
    assert frame.crs.to_epsg() == 4326
    np.testing.assert_array_equal(frame[COLUMNS].to_numpy(dtype=np.float64), released[:, 2:])
    lonlat = Projection("EPSG:27700", Box(LOWER, UPPER)).to_lonlat(released[:, :2])
    # Seven decimals of a degree, a centimetre.
    np.testing.assert_allclose(np.column_stack([frame.geometry.x, frame.geometry.y]), lonlat, atol=1e-7)
    parquet = geopandas.read_parquet(out / "sums.parquet").to_crs(4326)
    apart = np.abs(np.column_stack([frame.geometry.x - parquet.geometry.x, frame.geometry.y - parquet.geometry.y]))
    assert apart.max() <= 1e-7


def test_local_means_and_sets_are_those_of_the_released_sums(out):
    """And the outlines enclose the points that the columns name: both are of one simulated quantile."""
    shapely = pytest.importorskip("shapely")
    geopandas = pytest.importorskip("geopandas")
    x, y, value, density, mean, inner, outer = numbers(out).T
    scale = json.loads((out / "certificate.json").read_text())["parameters"]["scale"]
    enough = density >= 5.0 + 2.0 * scale  # the response lies within 1 of its centre, 13
    assert 0 < enough.sum() < len(enough)
    np.testing.assert_array_equal(np.isnan(mean), ~enough)
    np.testing.assert_allclose(mean[enough], 13.0 + np.clip(value / density, -1, 1)[enough], rtol=1e-12)
    assert 0 < inner.sum() < outer.sum() < len(outer)
    assert (outer >= inner).all()
    assert (mean[(inner == 1) & enough] >= 13.1).all()
    assert (mean[(outer == 0) & enough] < 13.1).all()
    sets = geopandas.read_file(out / "excursion.geojson").to_crs(27700).set_index("set").geometry
    within = (LOWER[0] < x) & (x < UPPER[0]) & (LOWER[1] < y) & (y < UPPER[1])  # an outline may run along the border
    for name, column in (("inner", inner), ("outer", outer)):
        np.testing.assert_array_equal(shapely.contains_xy(sets[name], x, y)[within], column[within] == 1)


def test_without_a_threshold_there_are_local_means_and_no_sets(table, tmp_path):
    release(table, tmp_path, threshold=None)
    with (tmp_path / "sums.csv").open() as file:
        assert next(csv.reader(file)) == ["easting_m", "northing_m", *COLUMNS[:3]]


# --- outlines


def sets_of(folder):
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.read_file(folder / "excursion.geojson")
    return frame.set_index("set")


def test_outlines_are_valid_polygons_in_longitude_and_latitude(out):
    frame = sets_of(out)
    assert list(frame.index) == ["estimate", "inner", "outer"]
    assert frame.crs.to_epsg() == 4326
    assert set(frame.geom_type) == {"MultiPolygon"}
    assert frame.is_valid.all()
    west, south, east, north = frame.total_bounds
    assert -0.6 < west < east < 0.4
    assert 51.2 < south < north < 51.8
    assert (frame["threshold"] == 13.1).all()
    assert frame.loc["inner", "confidence"] == frame.loc["outer", "confidence"] == 0.95
    assert np.isnan(frame.loc["estimate", "confidence"])


def test_exteriors_run_counter_clockwise_and_holes_clockwise(out):
    shapely = pytest.importorskip("shapely")
    for feature in json.loads((out / "excursion.geojson").read_text())["features"]:
        for rings in feature["geometry"]["coordinates"]:
            turns = [shapely.LinearRing(ring).is_ccw for ring in rings]
            assert turns == [True] + [False] * (len(rings) - 1)
            assert all(ring[0] == ring[-1] for ring in rings)


@pytest.mark.parametrize("name", ["estimate", "inner", "outer"])
def test_each_outline_has_the_area_of_its_grid_points_within_a_cell_of_its_length(out, name):
    shapely = pytest.importorskip("shapely")
    geometry = sets_of(out).to_crs(27700).geometry.loc[name]
    x, y, value_sum, density = numbers(out).T[:4]
    field = value_sum + (13.0 - 13.1) * density
    # The grid's own border is the outline's border too; inside, the outline goes around the points of the set.
    border = (x == LOWER[0]) | (x == UPPER[0]) | (y == LOWER[1]) | (y == UPPER[1])
    inside = shapely.contains_xy(geometry, x, y)
    level = 0.0 if name == "estimate" else field[inside].min()
    np.testing.assert_array_equal(inside[~border], field[~border] >= level)
    assert np.sign(level) == {"estimate": 0, "inner": 1, "outer": -1}[name]
    assert 0 < inside[~border].sum() < (~border).sum()
    width, height = np.subtract(UPPER, LOWER) / np.subtract(GRID, 1)
    cells = width * height * np.where((x == LOWER[0]) | (x == UPPER[0]), 0.5, 1.0)
    cells *= np.where((y == LOWER[1]) | (y == UPPER[1]), 0.5, 1.0)
    assert abs(geometry.area - cells[field >= level].sum()) <= 0.5 * max(width, height) * geometry.length


def test_the_inner_set_lies_in_the_estimate_and_that_in_the_outer_set(out):
    sets = sets_of(out).to_crs(27700).geometry
    for within, around in (("inner", "estimate"), ("estimate", "outer")):
        # Seven decimals of a degree are a centimetre along the frame that they share.
        assert sets[within].difference(sets[around]).area <= 0.02 * sets[within].length
        assert sets[within].area < sets[around].area


@pytest.mark.parametrize("seed", range(3))
def test_outlines_of_rough_fields_keep_area_validity_and_winding(seed):
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(seed)
    field = gaussian_filter(rng.standard_normal((47, 60)), 1.5).round(2)  # rounding makes plateaus and saddles
    x, y = (np.linspace(low, high, count) for low, high, count in zip(LOWER, UPPER, GRID, strict=True))
    polygons = excursion_polygons(field, x, y, 0.0)
    feature = multipolygon(polygons, projection=Projection("EPSG:27700", Box(LOWER, UPPER)))
    assert shapely.geometry.shape(feature["geometry"]).is_valid
    assert any(len(rings) > 1 for rings in polygons)
    plane = shapely.MultiPolygon([(rings[0], rings[1:]) for rings in polygons])
    assert abs(plane.area - 1e6 * (field >= 0.0).sum()) <= 1e3 * plane.length


# --- the certificate


def test_the_certificate_says_what_was_released_and_what_was_clipped(out):
    said = " ".join((out / "certificate.txt").read_text().split())
    assert "Each has noise that varies from place to place as smoothly as the sum. It is not a draw from the" in said
    assert "sum_i" not in said
    assert "Responses are clipped to [12, 14], record by record." in said
    assert "Covariates outside the public domain are clamped to it, record by record." in said
    assert "The unit of privacy: one row of the table, declared to be one sale" in said
    assert "The number of records, which is treated as public." in said
    certificate = json.loads((out / "certificate.json").read_text())
    assert any("not a draw from the posterior" in limit for limit in certificate["limits"])
    assert any("[12, 14]" in rule for rule in certificate["enforced"])


# --- words


def words_of(picture):
    return [text.get_text() for text in picture.findobj() if hasattr(text, "get_text") and text.get_text()]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that a release draws."""
    from discretion.spatial import maps

    kept = []
    monkeypatch.setattr(maps, "save", lambda figure, path: kept.append(figure) or path)
    return kept


def test_the_legend_names_the_logarithm_and_the_clipped_local_mean(table, tmp_path, drawn):
    release(table, tmp_path / "a", crs="EPSG:27700")
    said = " ".join(words_of(drawn[0]))
    assert "Clipped local mean of log price_gbp, with price_gbp below" in said
    assert "Is the clipped local mean at least 13.1 (489,000)?" in said
    assert "inner set" in said
    assert "outer set" in said
    assert "Undecided" in said
    assert "Too few rows" in said
    assert "all 2,820 grid points together with 95 % confidence" in said
    assert "Where the clipped local mean of log price_gbp is at least 13.1 (489,000)" in said


def test_paths_are_named_in_the_same_way(table, tmp_path, drawn):
    changes = {"mechanism": "posterior", "ridge": "2", "paths": "2", "floor": None, "grid": "8", "length_scale": "9000"}
    release(table, tmp_path / "a", aggregate="hexagons:6000", epsilon="9", **changes)
    assert len(drawn) == 2
    assert all("log price_gbp" in words_of(figure) for figure in drawn)
    together, apart = (" ".join(" ".join(words_of(figure)).split()) for figure in drawn)
    assert "log price_gbp at least 13.1 (489,000) in at least half of the paths" in together
    assert "log price_gbp at least 13.1 (489,000)" in apart
    assert "half of" not in apart


@pytest.mark.parametrize(
    ("covariates", "domain", "said"),
    [
        ("lon,lat", "-0.5:0.3,51.3:51.7", "EPSG:32630"),
        ("latitude,longitude", "51.3:51.7,2:4", "EPSG:32631"),
        ("east,north", "-0.5:0.3,51.3:51.7", None),
        ("lon,lat", "503000:562000,155000:201000", None),
    ],
)
def test_degrees_without_a_plane_are_warned_of(tmp_path, covariates, domain, said):
    missing = tmp_path / "no.csv"
    warned = release(missing, tmp_path / "out", code=BAD_INPUT, covariates=covariates, domain=domain).stderr
    assert ("look like degrees" in warned) == (said is not None)
    assert said is None or said in warned


def test_out_must_be_a_folder(table, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in release(table, tmp_path / "file", code=BAD_INPUT).stderr
    below = release(table, tmp_path / "file" / "out", code=BAD_INPUT).stderr
    assert "Errno" not in below
    assert "ot a directory" in below


# --- a private number of rows


@pytest.mark.parametrize("mechanism", ["kernel-sum", "posterior"])
def test_under_add_remove_the_number_of_rows_leaves_no_trace(table, tmp_path, mechanism):
    book = tmp_path / "book"
    words = ["--dataset", "d", "--epsilon", "9", "--delta", "1e-3", "--neighbours", "add-remove"]
    assert CliRunner().invoke(app, ["ledger", "init", str(book), *words]).exit_code == 0
    few = tmp_path / "few.csv"
    few.write_text("".join(table.open().readlines()[:788]))
    private = {"neighbours": "add-remove", "most_records": 5000, "ledger": book, "grid": "8", "mechanism": mechanism}
    said = release(few, tmp_path / "out", **private).output
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["n"] is None
    assert certificate["neighbours"] == "add-remove"
    assert "787" not in said.replace(",", "")
    assert b'"n":null' in book.read_bytes()
    for name in ("certificate.txt", "certificate.json"):
        assert not re.search(r"\b787\b", (tmp_path / "out" / name).read_text())


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"neighbours": "add-remove"}, BAD_INPUT, "go together"),
        ({"most_records": 10}, BAD_INPUT, "go together"),
        ({"neighbours": "add-remove", "most_records": 5000, "delta": "n^-1.1"}, BAD_INPUT, "must be a number"),
        ({"neighbours": "add-remove", "most_records": 10}, REFUSED, "declare more"),
    ],
)
def test_what_a_private_number_of_rows_rules_out(table, tmp_path, changes, code, message):
    assert message in release(table, tmp_path / "out", code, **changes).output


# --- auto


@pytest.mark.slow
def test_auto_makes_the_release_that_the_plan_recommends(table, tmp_path):
    auto = {"mechanism": "auto", "kernel": None, "length_scale": None, "grid": "24,20"}
    said = json.loads(release(table, tmp_path / "out", json=True, **auto).stdout)
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    plan = said["plan"]
    assert certificate["parameters"]["kernels"][0]["length_scale"] == plan["kernel"]["length_scale"]
    assert said["epsilon"] <= 3.0
    assert ("decoded.csv" in said["files"]) == plan["decoder"]
    if plan["decoder"]:
        rows = list(csv.reader((tmp_path / "out" / "decoded.csv").open()))
        assert len(rows) == 1 + math.prod(Decoder.load(tmp_path / "out" / "decoder.npz").target_shape)
    refused = release(table, tmp_path / "none", REFUSED, **auto | {"epsilon": "0.01"})
    assert "NOTHING USEFUL" in refused.output
    assert not list((tmp_path / "none").glob("*.csv"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length_scale": "0.2"}, "auto chooses it"),
        ({"threshold": None}, "--threshold"),
        ({"neighbours": "add-remove", "most_records": 5000}, "neighbours replace"),
    ],
)
def test_what_auto_asks_for(table, tmp_path, changes, message):
    auto = {"mechanism": "auto", "kernel": None, "length_scale": None}
    assert message in release(table, tmp_path / "out", BAD_INPUT, **auto | changes).output
