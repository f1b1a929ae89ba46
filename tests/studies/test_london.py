"""The study of London: choices that never see what is released, laws of releases, tables from a folder."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.gp import RBF, Box
from discretion.gp.dense import DensePosterior
from discretion.posterior.rules import published_epsilon
from discretion.spatial import Records
from discretion.studies import Run, london, surveys
from discretion.studies.excursions_2d import iou
from discretion.studies.london import allowed, mapped, marginals, packed, path_law, without_budget, world
from discretion.studies.london_report import london_report, unpacked
from discretion.studies.surveys import SURVEYS, Part, Survey, aggregated, records, resampled

TOWN = Box((0.0, 0.0), (12_000.0, 9_000.0))


def write(path, rng, shift=0.0):
    """Sales about a hill: dear where it is high."""
    X = rng.uniform(TOWN.lower, TOWN.upper, (900, 2)).round()
    y = np.exp(13.0 + np.cos(X[:, 0] / 2_500.0 + shift) + rng.normal(0.0, 0.3, len(X)))
    lines = [
        f"{int(price)},{year},{x:g},{north:g}" for (x, north), price, year in zip(X, y, year_of(len(X)), strict=True)
    ]
    path.write_text("\n".join(["price,year,x,y", *lines]) + "\n")


def year_of(rows):
    return np.where(np.arange(rows) < rows // 2, 1, 2)


@pytest.fixture
def town(tmp_path, monkeypatch):
    """A small survey, its folder, and small grids."""
    survey = Survey(
        name="town",
        title="A town",
        public=Part("town.csv", ((("year", "1"),),)),
        private=Part("town.csv", ((("year", "2"),),)),
        covariates=("x", "y"),
        response="price",
        transform="log",
        domain=TOWN,
        threshold=13.0,
        bound=1.0,
        unit="sale",
        source="Made up",
        hexagon=900.0,
    )
    folder = tmp_path / "data" / "below"
    folder.mkdir(parents=True)
    write(folder / "town.csv", np.random.default_rng(0))
    monkeypatch.setattr(surveys, "LONGEST", 16)
    monkeypatch.setitem(SURVEYS, "town", survey)
    for name, value in (
        ("FREE_LENGTHS", (0.1, 0.3)),
        ("FREE_RIDGES", (0.3, 0.9)),
        ("FREE_SCALES", (0.2, 0.6)),
        ("LENGTHS", (0.05, 0.1, 0.2, 0.3, 0.4)),
        ("SUM_LENGTHS", (0.05, 0.1, 0.2)),
    ):
        monkeypatch.setattr(london, name, value)
    # Stands for the accounts, which take seconds: noise as large as theirs at thousands of records.
    noise = {"published": 30.0, "coupled": 2.0, "renyi": 1.3, "best": 1.2}
    monkeypatch.setattr(london, "allowed", lambda n, ridge, rule: noise[rule] / ridge**2)
    forget()
    yield survey
    forget()


def forget():
    records.cache_clear()
    world.cache_clear()


def test_choices_never_see_what_is_released(town, tmp_path):
    data = tmp_path / "data"

    def chosen(out):
        forget()
        found = mapped(Run("quick", tmp_path / out, data=data), town)
        return found, {"free": found["numbers"]["free"], "rest": [e["choice"] for e in found["paths"] + found["sums"]]}

    found, before = chosen("one")
    table = data / "below" / "town.csv"
    rows = [line.split(",") for line in table.read_text().split()]
    # Other prices of the private part, at the same places: other maps, the same choices.
    private = [row if row[1] != "2" else ["600000" if int(row[0]) < 442_413 else "300000", *row[1:]] for row in rows]
    table.write_text("\n".join(map(",".join, private)) + "\n")
    other, after = chosen("two")
    assert before == after
    assert found["without"]["inside"] != other["without"]["inside"]
    assert found["paths"][2]["iou"] != other["paths"][2]["iou"]


def test_the_report_tells_what_each_account_buys(town, tmp_path):
    found = mapped(Run("quick", tmp_path, data=tmp_path / "data"), town)
    assert [each["of"] for each in found["sums"]] == ["hexagons", "records", "records", "records"]
    medians = [float(np.median(each["iou"])) for each in (*found["paths"], *found["sums"])]
    assert medians[2] > medians[0]  # the certified account over the published one
    assert medians[5] > medians[7]  # epsilon 9 over epsilon 1
    report = london_report(town, found, ["elsewhere"])
    text = report.markdown()
    assert "Skipped, as their tables were not found (--data DIR): elsewhere." in text
    assert len(report.rows) == 11
    assert f"hexagon, {found['numbers']['hexagons']}" in text
    assert "sale, 450" in text
    files = report.write(tmp_path)
    assert files[2].stat().st_size > 10_000
    drawn = unpacked(found["paths"][0]["typical"], town.counts)
    inside, near = (unpacked(found["without"][name], town.counts) == 1 for name in ("inside", "near"))
    shown = iou(drawn[near] == 1, inside[near])
    assert float(shown) in found["paths"][0]["iou"]


def test_one_path_has_the_law_of_the_posterior():
    rng = np.random.default_rng(1)
    X, y, places = rng.uniform(size=(30, 2)), rng.uniform(-1.0, 1.0, 30), rng.uniform(size=(5, 2))
    held = Records(X, y, ("x", "y"), "z")
    mean, root = path_law(RBF(0.3), 2.0, held, places)
    dense = DensePosterior(RBF(0.3), 2.0, X, y)
    np.testing.assert_allclose(mean, dense.mean(places))
    np.testing.assert_allclose(root @ root.T, dense.covariance(places) + london.NUGGET * np.eye(5), atol=1e-12)
    mean, deviation = marginals(dense, places)
    np.testing.assert_allclose(deviation**2, np.diag(dense.covariance(places)), rtol=1e-9)


def test_the_map_without_privacy_is_chosen_by_cross_entropy(monkeypatch):
    """Labels that change every 0.25: a length scale that can follow them wins over one that cannot."""
    monkeypatch.setattr(london, "FREE_LENGTHS", (0.2, 5.0))
    monkeypatch.setattr(london, "FREE_RIDGES", (0.3,))
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(400, 2))
    held = Records(X, np.sign(np.sin(4.0 * np.pi * X[:, 0])), ("x", "y"), "z")
    found = without_budget(held, 1.0, rng)
    assert found["length"] == 0.2
    assert found["bce"] < 0.5
    assert 0.1 <= found["cut"] <= 0.9


@pytest.mark.slow
def test_scales_are_those_that_the_accounts_allow():
    scales = [allowed(4_000, 100.0, rule) for rule in london.RULES]
    assert scales[0] > scales[1] > scales[2] >= scales[3] > 0.0
    least = {"n": 4_000, "ridge": 100.0, "delta": 4_000**-1.1, "assumption": london.Bounded(1.0)}
    assert published_epsilon(scale=scales[0], **least)[0] <= 9.0 < published_epsilon(scale=0.99 * scales[0], **least)[0]


def test_places_and_what_is_near(town):
    rng = np.random.default_rng(3)
    X = rng.uniform(TOWN.lower, TOWN.upper, (50, 2))
    apart = np.linalg.norm(X[:, None] - town.places[None], axis=-1)
    np.testing.assert_array_equal(town.node(X), apart.argmin(axis=1))
    among = np.linalg.norm(X[:, None] - X[None], axis=-1)
    np.fill_diagonal(among, np.inf)
    np.testing.assert_array_equal(town.near(X), apart.min(axis=0) <= town.reach * np.median(among.min(axis=1)))
    sets = rng.random(town.places.shape[0]) < 0.5
    np.testing.assert_array_equal(unpacked(packed(sets), town.counts).ravel(), sets)


def test_records_of_a_survey(town, tmp_path):
    assert town.where(None) is None
    held = records("town", True, str(tmp_path))
    assert held.n == 450
    assert -1.0 <= held.response.min() < 0.0 < held.response.max() <= 1.0
    hexagons = [aggregated("town", held, coarse).n for coarse in (False, True)]
    assert hexagons[0] > 2 * hexagons[1]
    some = resampled(held, 300, np.random.default_rng(0))
    assert some.n == len(np.unique(some.covariates, axis=0)) == 300
    assert resampled(held, 800, np.random.default_rng(0)).n == 800
    with pytest.raises(ValueError, match="--data"):
        records("flats", True, None)


def test_london_is_bundled_and_public_and_private_are_different_years():
    homes = SURVEYS["homes"]
    public, private = homes.where(None)
    assert "2017" in public.name
    assert "2018" in private.name
    assert aggregated("homes", records("homes", True, None)).n == 4_399
    for survey in SURVEYS.values():
        assert survey.public != survey.private


def test_the_command_reads_tables_from_a_folder(town, tmp_path, monkeypatch):
    monkeypatch.setattr(london, "SURVEYS", {"town": town, "flats": SURVEYS["flats"]})
    words = [
        "study",
        "london",
        "--out",
        str(tmp_path / "out"),
        "--data",
        str(tmp_path / "data"),
        "--backend",
        "threading",
    ]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert "Skipped, as their tables were not found (--data DIR): flats." in said.output
    assert (tmp_path / "out" / "london-town.png").exists()
    parts = [json.loads(file.read_text()) for file in (tmp_path / "out" / "parts").glob("london-released-paths-*.json")]
    assert {len(part["result"]["iou"]) for part in parts} == {40}
