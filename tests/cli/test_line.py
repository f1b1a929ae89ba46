"""Releases along one covariate: answers in the table, and a picture."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT
from discretion.posterior.excursion import smooth_paths
from discretion.spatial.maps.line import draw_line, spans

WORDS = "--covariates day --response load --domain 0:365 --response-range 0:20 --grid 41 --epsilon 3 --threshold 12"
PATHS = "--mechanism posterior --kernel exponential --length-scale 0.2 --ridge 30"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Loads about a yearly wave, highest near day 91."""
    rng = np.random.default_rng(0)
    day = rng.uniform(0.0, 365.0, 2_000)
    load = 10.0 + 5.0 * np.sin(day / 58.0) + rng.normal(0.0, 2.0, day.size)
    path = tmp_path_factory.mktemp("table") / "loads.csv"
    path.write_text("day,load\n" + "".join(f"{x:.3f},{y:.3f}\n" for x, y in zip(day, load, strict=True)))
    return path


def released(table, out, words, code=0):
    done = CliRunner().invoke(app, ["release", str(table), "--out", str(out), *words.split()])
    assert done.exit_code == code, done.output
    return done.output


def columns(path):
    names, *rows = csv.reader(path.open())
    return dict(zip(names, np.array([[cell or "nan" for cell in row] for row in rows], dtype=float).T, strict=True))


def test_sums_on_a_line_answer_the_threshold(table, tmp_path):
    out = tmp_path / "sums"
    said = released(table, out, f"{WORDS} --kernel rbf --length-scale 0.06")
    found = columns(out / "sums.csv")
    assert list(found) == ["day", "value_sum", "density", "local_mean", "inner", "outer"]
    assert np.all(found["inner"] <= found["outer"])
    assert found["inner"][10] == 1.0
    assert found["outer"][30] == 0.0
    assert np.all(found["local_mean"][found["inner"] == 1.0] >= 12.0)
    assert "map.png" in said
    assert (out / "map.png").stat().st_size > 10_000
    assert "excursion.geojson" not in said
    page = (out / "report.html").read_text()
    assert "clipped local mean of load" in page
    assert "threshold 12" in page
    below = tmp_path / "below"
    released(table, below, f"{WORDS} --below --kernel rbf --length-scale 0.06 --no-report")
    assert columns(below / "sums.csv")["inner"][30] == 1.0


def test_paths_on_a_line_answer_the_threshold(table, tmp_path):
    out = tmp_path / "paths"
    released(table, out, f"{WORDS} {PATHS} --paths 5 --fraction 1 --smooth 1.5")
    found = columns(out / "paths.csv")
    paths = np.stack([found[f"path_{i}"] for i in range(1, 6)])
    np.testing.assert_array_equal(found["excursion"], (smooth_paths(paths, 1.5) >= 12.0).all(axis=0))
    np.testing.assert_array_equal(found["share"], (paths >= 12.0).mean(axis=0))
    assert np.all((found["share_low"] <= found["share"]) & (found["share"] <= found["share_high"]))
    assert (out / "map.png").exists()
    assert "path 1" in (out / "report.html").read_text()
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["parameters"]["paths"] == 5


def test_one_path_on_a_line_has_an_excursion_and_no_share(table, tmp_path):
    released(table, tmp_path, f"{WORDS} {PATHS} --no-report")
    assert list(columns(tmp_path / "paths.csv")) == ["day", "path_1", "excursion"]


def test_a_region_on_a_line_and_a_threshold_in_three_dimensions_are_refused(table, tmp_path):
    said = released(table, tmp_path / "a", f"{WORDS} --region {table}", BAD_INPUT)
    assert "two covariates" in " ".join(said.split())
    cube = WORDS.replace("day", "day,b,c").replace("0:365", "0:365,0:1,0:1").replace("41", "4")
    assert "excursion_sets" in " ".join(released(table, tmp_path / "b", cube, BAD_INPUT).split())


def test_stretches_end_where_the_straight_line_between_places_crosses():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert spans(x, [0.0, 2.0, 2.0, 0.0], 1.0) == [(0.5, 2.5)]
    assert spans(x, [0.0, 2.0, 2.0, 0.0], 1.0, above=False) == [(0.0, 0.5), (2.5, 3.0)]
    assert spans(x, [np.nan, np.nan, 2.0, 2.0], 1.0) == [(2.0, 3.0)]
    assert spans(x, np.zeros(4), 1.0) == []


def test_a_line_without_a_value_is_not_drawn(tmp_path):
    words = {"title": "t", "label": "x", "units": "u", "epsilon_text": "e"}
    with pytest.raises(ValueError, match="no finite value"):
        draw_line(tmp_path / "a.png", x=[0.0, 1.0], curves=[[np.nan, np.nan]], **words)
