"""`discretion release --prior`: lattices and districts from the command line to the files, and back by `verify`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT, NOT_CHECKED, REFUSED
from discretion.cli.prior import districts_on
from discretion.gp import Box
from discretion.posterior.excursion import polygon_area
from discretion.privacy import Certificate, Ledger
from discretion.spatial import Projection

PUBLIC = {
    "covariates": "x,y",
    "response": "price",
    "domain": "0:6,0:4",
    "response-range": "0:1",
    "epsilon": "3",
    "delta": "1e-3",
    "rule": "closed-form",
    "threshold": "0.5",
    "unit": "sale",
}


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "sales.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "price"])
        for _ in range(400):
            x, y = rng.uniform(0, 6), rng.uniform(0, 4)
            writer.writerow([x, y, min(max(x / 6 + rng.normal(0, 0.1), 0), 1)])
    return path


def square(x: float, y: float, side: float = 2.0) -> dict:
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return {"type": "Polygon", "coordinates": [ring]}


def districts(path: Path, shapes: list[dict]) -> Path:
    features = [
        {"type": "Feature", "properties": {"code": f"D{i}"}, "geometry": shape} for i, shape in enumerate(shapes)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


SIX = [square(x, y) for y in (0, 2) for x in (0, 2, 4)]


def words(table: Path, out: Path, prior: str, **changes: object) -> list[object]:
    said = PUBLIC | {"prior": prior, "out": out} | changes
    return ["release", table, *(part for key, value in said.items() for part in (f"--{key}", value))]


@pytest.mark.parametrize(
    ("paths", "changes", "agreed"),
    [
        (4, {}, " in at least half of the paths"),
        (4, {"fraction": 0.75}, " in at least 75 % of the paths"),
        (13, {"fraction": 1}, " in all paths"),
        (1, {}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["cells", "grid"])
def test_the_legend_says_how_many_paths_agree(run, table, tmp_path, monkeypatch, paths, changes, agreed, kind):
    """On the map; beside one another each path has its own outline, where there are 2 to 12 of cells."""
    said = {}
    module = {"cells": "discretion.cli.prior", "grid": "discretion.cli.sheet"}[kind]
    for name in ("draw_map", "draw_paths"):
        monkeypatch.setattr(f"{module}.{name}", lambda _, name=name, **look: said.update({name: look["key"].inner}))
    given = words(table, tmp_path / "out", "squares:1", paths=paths, **changes)
    if kind == "grid":
        at = given.index("--prior")
        more = "--mechanism posterior --kernel exponential --length-scale 0.3 --grid 6,5 --ridge 20"
        given = given[:at] + given[at + 2 :] + more.split()
    run(*given, "--no-report")
    assert said["draw_map"] == f"price at least 0.5{agreed}"
    assert said.get("draw_paths") == ("price at least 0.5" if 1 < paths <= (12 if kind == "cells" else 99) else None)


def test_the_map_of_areas_says_that_values_are_pulled_to_the_centre_and_hatches_what_is_open(
    run, table, tmp_path, monkeypatch
):
    said = {}
    for name in ("draw_map", "draw_paths"):
        monkeypatch.setattr(f"discretion.cli.prior.{name}", lambda _, **look: said.update(look))
    out = tmp_path / "out"
    run(*words(table, out, "squares:1", paths=8), "--no-report")
    assert "pulled towards 0.5 by the ridge" in said["units"]
    rows = list(csv.DictReader((out / "paths.csv").open()))
    number = sum(float(row["share_low"]) < 0.5 < float(row["share_high"]) for row in rows)
    assert 0 < number < len(rows)
    # unit squares: the area is their number
    assert sum(map(polygon_area, said["hatched"])) == pytest.approx(number)
    given = words(table, out, "squares:1", rescale=2)
    at = given.index("--threshold")
    run(*given[:at], *given[at + 2 :], "--no-report", "--force")
    assert "differences from 0.5 times 2" in said["units"]
    assert said["hatched"] == []


@pytest.mark.parametrize(("prior", "cells", "sides"), [("lattice:0.8", 50, 7), ("squares:1", 35, 5)])
def test_a_lattice_is_released_and_its_certificate_recomputed(run, table, tmp_path, prior, cells, sides):
    out, book = tmp_path / "out", tmp_path / "book"
    Ledger.create(book, dataset="sales", epsilon=10.0, delta=1e-3)
    said = run(*words(table, out, prior, paths=5, ledger=book))
    assert "5 paths of 400 private records on" in said
    rows = list(csv.DictReader((out / "paths.csv").open()))
    assert len(rows) >= cells
    assert all(float(row["share_low"]) <= float(row["share"]) <= float(row["share_high"]) for row in rows)
    features = json.loads((out / "paths.geojson").read_text())["features"]
    assert len(features) == len(rows)
    assert len(features[0]["geometry"]["coordinates"][0][0]) == sides
    excursion = json.loads((out / "excursion.geojson").read_text())["features"][0]
    assert excursion["properties"]["threshold"] == 0.5
    assert excursion["geometry"]["coordinates"]
    assert (out / "map.png").stat().st_size > 10_000
    assert (out / "paths.png").exists()
    assert "VERIFIED" in run("certificate", "verify", out / "certificate.json", "--ledger", book)


def test_a_smaller_scale_in_a_certificate_is_found(run, table, tmp_path):
    run(*words(table, tmp_path / "out", "lattice:1"))
    text = (tmp_path / "out" / "certificate.json").read_text()
    made = json.loads(text)
    made["parameters"]["ridge"] /= 2
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(made))
    run("certificate", "verify", forged, code=REFUSED)
    made = json.loads(text)
    made["parameters"]["killing"] *= 2
    forged.write_text(json.dumps(made))
    run("certificate", "verify", forged, code=REFUSED)
    assert not Certificate.from_json(text).parameters["cells"]


def test_a_region_chooses_the_cells(run, table, tmp_path):
    outline = tmp_path / "region.geojson"
    outline.write_text(json.dumps(square(1, 1, 2.5)))
    run(*words(table, tmp_path / "out", "lattice:0.5", region=outline))
    rows = list(csv.DictReader((tmp_path / "out" / "paths.csv").open()))
    places = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    assert ((places >= 1) & (places <= 3.5)).all()
    assert "VERIFIED" in run("certificate", "verify", tmp_path / "out" / "certificate.json")
    cells = Certificate.from_json((tmp_path / "out" / "certificate.json").read_text()).parameters["cells"]
    assert sum(last - first + 1 for _, first, last in cells) == len(rows)


def test_districts_are_released_and_verified_with_their_public_file(run, table, tmp_path):
    pytest.importorskip("shapely")
    file, out = districts(tmp_path / "d.geojson", SIX), tmp_path / "out"
    said = run(*words(table, out, f"districts:{file}", **{"name-column": "code", "paths": 3}))
    assert "on 6 districts" in said
    rows = list(csv.DictReader((out / "paths.csv").open()))
    assert [row["name"] for row in rows] == [f"D{i}" for i in range(6)]
    assert float(rows[0]["value"]) < float(rows[2]["value"])
    certificate = out / "certificate.json"
    assert "supply the public file" in CliRunner().invoke(app, ["certificate", "verify", str(certificate)]).stdout
    run("certificate", "verify", certificate, code=NOT_CHECKED)
    assert "VERIFIED" in run("certificate", "verify", certificate, "--prior", file)
    other = districts(tmp_path / "other.geojson", SIX[:5])
    run("certificate", "verify", certificate, "--prior", other, code=REFUSED)


def test_add_remove_neighbours_on_a_lattice(run, table, tmp_path):
    many = {"neighbours": "add-remove", "most-records": 1000}
    said = words(table, tmp_path / "out", "lattice:1", **many)
    said = [each for each in said if each not in ("--rule", "closed-form")]
    run(*said)
    made = Certificate.from_json((tmp_path / "out" / "certificate.json").read_text())
    assert made.n is None
    assert "VERIFIED" in run("certificate", "verify", tmp_path / "out" / "certificate.json")


@pytest.mark.parametrize(
    ("prior", "changes", "reason"),
    [
        ("hexes:1", {}, "lattice:SPACING"),
        ("lattice:", {}, "lattice:SPACING"),
        ("lattice:9", {}, "does not fit"),
        ("lattice:0.001", {}, "more than 200,000"),
        ("lattice:1", {"killing": 0}, "killing"),
        ("lattice:1", {"share": 0.9}, "only --prior districts"),
        ("lattice:1", {"grid": 20}, "no use"),
        ("lattice:1", {"mechanism": "kernel-sum"}, "posterior paths"),
        ("lattice:1", {"rescale": 0}, "rescale"),
        ("lattice:1", {"rescale": 2}, "leave it or --threshold out"),
        ("lattice:0.2", {"killing": 3e-6}, "near to a singular one"),
        ("lattice:1", {"smooth": 0.5}, "whole number"),
        ("lattice:1", {"rule": "best"}, "rule"),
        ("lattice:1", {"unit-id": "x", "max-per-unit": 0}, "max-per-unit"),
        ("districts:missing.geojson", {}, "can't be read"),
    ],
)
def test_what_is_wrong_is_said_before_the_table_is_opened(run, tmp_path, prior, changes, reason):
    # the table does not exist: nothing private can have been read
    said = run(*words(tmp_path / "none.csv", tmp_path / "out", prior, **changes), code=BAD_INPUT)
    assert reason in said
    assert not (tmp_path / "out").exists()


def test_options_of_a_prior_need_one(run, tmp_path):
    said = words(tmp_path / "none.csv", tmp_path / "out", "lattice:1")
    del said[said.index("--prior") : said.index("--prior") + 2]
    assert "only --prior has it" in run(*said, "--killing", "1", code=BAD_INPUT)


def test_districts_that_overlap_lie_elsewhere_or_stand_alone_are_refused(run, tmp_path):
    pytest.importorskip("shapely")
    said = [tmp_path / "none.csv", tmp_path / "out"]
    overlapping = districts(tmp_path / "o.geojson", [square(0, 0), square(1, 0)])
    assert "must not overlap" in run(*words(*said, f"districts:{overlapping}"), code=BAD_INPUT)
    far = districts(tmp_path / "f.geojson", [square(100, 0), square(102, 0)])
    assert "table's coordinates" in run(*words(*said, f"districts:{far}"), code=BAD_INPUT)
    island = districts(tmp_path / "i.geojson", [square(0, 0), square(2, 0), square(5, 3, 0.5)])
    alone = run(*words(*said, f"districts:{island}", share=0.9), code=BAD_INPUT)
    assert "without neighbours have no CAR: 2" in alone
    beyond = districts(tmp_path / "b.geojson", [*SIX, square(9, 9)])
    assert "outside --domain: 6" in run(*words(*said, f"districts:{beyond}"), code=BAD_INPUT)
    gaps = districts(tmp_path / "g.geojson", [square(x, y, 1.9) for x in (0, 2, 4) for y in (0, 2)])
    assert "6 of 6 districts share no border" in run(*words(*said, f"districts:{gaps}"), code=BAD_INPUT)


def test_districts_say_in_which_coordinates_they_are(run, tmp_path):
    pytest.importorskip("shapely")
    pytest.importorskip("pyproj")
    said = [tmp_path / "none.csv", tmp_path / "out"]
    shapes = [square(500_000 + x, 200_000, 1_000) for x in (0, 1_000)]
    file = districts(tmp_path / "d.geojson", shapes)
    here = {"domain": "500000:502000,200000:201000", "crs": "EPSG:27700"}
    text = json.loads(file.read_text())
    for system, word in (("EPSG:3857", "convert the districts"), ("urn:ogc:def:crs:EPSG::27700", "none.csv")):
        file.write_text(json.dumps(text | {"crs": {"type": "name", "properties": {"name": system}}}))
        assert word in run(*words(*said, f"districts:{file}", **here), code=BAD_INPUT)


def test_districts_in_degrees_are_projected(run, tmp_path):
    pytest.importorskip("shapely")
    pytest.importorskip("pyproj")
    rng, table, out = np.random.default_rng(0), tmp_path / "sales.csv", tmp_path / "out"
    places = rng.uniform((500_000, 200_000), (506_000, 204_000), (200, 2))
    table.write_text("x,y,price\n" + "".join(f"{x},{y},0.5\n" for x, y in places.tolist()))
    here = {"domain": "499000:507000,199000:205000", "crs": "EPSG:27700", "formats": "geoparquet", "gap": 1.0}
    plane = Projection("EPSG:27700")
    rings = [
        np.array(square(500_000 + x, 200_000 + y, 2_000)["coordinates"][0]) for y in (0, 2_000) for x in (0, 2_000)
    ]
    shapes = [{"type": "Polygon", "coordinates": [plane.to_lonlat(ring).tolist()]} for ring in rings]
    file = districts(tmp_path / "d.geojson", shapes)
    run(*words(table, out, f"districts:{file}", **here))
    rows = list(csv.DictReader((out / "paths.csv").open()))
    centres = [[float(row["x"]), float(row["y"])] for row in rows]
    np.testing.assert_allclose(centres, [ring[:4].mean(axis=0) for ring in rings], atol=1.0)
    certificate = out / "certificate.json"
    assert json.loads(certificate.read_text())["parameters"]["projected"] == "EPSG:27700"
    assert "VERIFIED" in run("certificate", "verify", certificate, "--prior", file)
    # without --crs the way is named
    del here["crs"], here["formats"]
    said = " ".join(run(*words(table, out, f"districts:{file}", **here), "--force", code=BAD_INPUT).split())
    assert f"ogr2ogr -t_srs EPSG:CODE projected.geojson {file}" in said
    named = {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}}
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    box = Box((499_000.0, 199_000.0), (507_000.0, 205_000.0))
    assert districts_on(box, file, projection=plane).projected == "EPSG:27700"


def test_an_island_and_a_hole_have_a_value(run, table, tmp_path):
    pytest.importorskip("shapely")
    # a lake, whose points go to the nearest district, and an island that killing alone ties to the prior mean
    island = districts(tmp_path / "i.geojson", [*SIX[:1], *SIX[2:4], *SIX[5:], square(2.5, 0.5, 0.8)])
    run(*words(table, tmp_path / "out", f"districts:{island}"))
    values = [float(row["value"]) for row in csv.DictReader((tmp_path / "out" / "paths.csv").open())]
    assert len(values) == 5
    assert np.isfinite(values).all()
