"""`discretion plan map` and `discretion plan posterior`, run as a user runs them."""

import csv
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.image import imread
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT
from discretion.cli.planning import Grid, Knowledge, Problem, Release
from discretion.cli.release import _planned
from discretion.cli.tables import Reading
from discretion.gp import RBF, Box, Exponential, ExponentialL1
from discretion.posterior.planner import plan_map
from discretion.posterior.planner.lattices import Graph, Hexagons
from discretion.spatial.frontier import Point, _apart, draw_frontier

PLAN = ["plan", "map", "--n", "1500", "--domain", "0:60,0:40", "--response-range", "12:14", "--grid", "16"]
PATHS = ["plan", "posterior", *PLAN[2:], "--n", "300", "--epsilon", "9", "--worlds", "20", "--kernels", "rbf"]
QUICK = ["--epsilons", "3", "--epsilon", "3", "--worlds", "30", "--no-posterior", "--no-lattice"]


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return call


def test_a_plan_says_what_to_release_and_draws_the_frontier(run, tmp_path: Path):
    picture = tmp_path / "frontier.png"
    said = run(*PLAN, *QUICK, "--threshold", "13.1", "--out", picture)
    for words in (
        "Useful at epsilon 3",
        "Recommended: kernel sum",
        "all places",
        "Prior: Gaussian process, declared",
        "undecided",
    ):
        assert words in said
    assert "matern32, length scale 12 by 8 in data units" in said
    assert imread(picture).shape[:2] == (1080, 1720)


def test_a_plan_as_json(run):
    said = json.loads(run(*PLAN, *QUICK, "--json", "--delta", "1e-4", "--prior-length-scale", "0.3"))
    assert said["useful"] is True
    assert said["delta"] == 1e-4
    assert said["prior"]["length_scale"] == pytest.approx(0.3)
    assert said["recommended"]["mechanism"] == "kernel-sum"
    assert said["recommended"]["kernel"]["name"] in ("rbf", "exponential-l1")
    assert said["forecast"]["iou"]["mean"] > said["trivial"]["all places"]["mean"]
    assert 0.0 < said["forecast"]["undecided"]["mean"] < 1.0


def test_the_length_of_the_prior_in_the_units_of_the_covariates(run):
    words = [*PLAN, *QUICK, "--prior-length-unit", "data", "--prior-length-scale"]
    assert "matern32, length scale 10 by 6 in data units" in run(*words, "10,6")
    assert "--prior-length-unit is domain or data" in run(*words, "10", "--prior-length-unit", "km", code=BAD_INPUT)
    assert "2 covariates; got 3." in run(*words, "1,2,3", code=BAD_INPUT)


@pytest.mark.slow
def test_a_plan_for_districts_finds_their_ridge(run, tmp_path: Path, monkeypatch):
    pytest.importorskip("shapely")
    corners = [(x, y) for x in range(0, 60, 10) for y in range(0, 40, 10)]
    rings = [[[x, y], [x + 10, y], [x + 10, y + 10], [x, y + 10], [x, y]] for x, y in corners]
    shapes = [{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}} for ring in rings[:-4]]
    file = tmp_path / "districts.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": shapes}))
    words = [*PLAN, *(word for word in QUICK if word != "--no-lattice"), "--districts", file]
    plans = []
    module = sys.modules["discretion.cli.plan"]  # whose name is taken by the group of commands
    monkeypatch.setattr(module, "plan_map", lambda **given: plans.append(plan_map(**given)) or plans[0])
    said = run(*words)
    found = json.loads(json.dumps(plans[0].to_dict()))
    (row,) = [each for each in found["candidates"] if each["mechanism"] == "lattice"]
    assert row["kernel"]["name"] == "districts"
    assert row["kernel"]["spacing"] == pytest.approx(10.0, rel=0.1)  # scored inside the districts alone
    assert row["iou"]["mean"] > 0.3
    assert f"--killing {row['kernel']['killing']:g} --ridge {row['ridge']:g}" in said
    assert "on the districts and without smoothing" in " ".join(found["notes"])
    assert "no --region" in run(*words, "--no-lattice", code=BAD_INPUT)
    assert "only --districts has it" in run(*PLAN, *QUICK, "--gap", "1", code=BAD_INPUT)
    assert "no district lies in --domain" in run(*words, "--domain", "100:160,100:140", code=BAD_INPUT)


@pytest.mark.slow
def test_a_plan_from_an_earlier_table_says_that_it_is_public(run, tmp_path: Path):
    rng = np.random.default_rng(0)
    path = tmp_path / "sales_2017.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "price"])
        for x, y in rng.uniform((0, 0), (60, 40), (2_000, 2)):
            writer.writerow([x, y, np.exp(12.5 + x / 60 + 0.2 * rng.standard_normal())])
    words = [*PLAN, *QUICK, "--public-table", path, "--covariates", "x,y", "--response", "price"]
    said = run(*words, "--transform", "log")
    assert "earlier table, declared public by its user, sales_2017.csv, 2,000 rows" in said
    assert "takes its place" in run(*words, "--prior-mean", "13", code=BAD_INPUT)
    assert "--covariates and --response" in run(*PLAN, *QUICK, "--public-table", path, code=BAD_INPUT)


def test_options_without_effect_or_out_of_range_are_refused(run):
    assert "--transform" in run(*PLAN, *QUICK, "--transform", "log", code=BAD_INPUT)
    assert "--length-unit" in run(*PLAN, *QUICK, "--length-unit", "miles", code=BAD_INPUT)
    assert "threshold" in run(*PLAN, *QUICK, "--threshold", "15", code=BAD_INPUT)
    assert "--epsilons" in run(*PLAN, "--epsilons", "many", code=BAD_INPUT)


def as_a_shell(command: str) -> list[str]:
    """The words of a command: a backslash at the end of a line joins it to the next."""
    return shlex.split(command.replace("\\\n", " "))


def test_the_command_that_a_plan_prints_makes_the_release(run, tmp_path: Path, monkeypatch):
    lines = run(*PATHS, "--threshold", "13.1", "--paths", "2").splitlines()
    assert "Useful at epsilon 9" in lines[0] or "NOTHING USEFUL" in lines[0]
    for words in ("Recommended: 2 paths, rbf", "Without privacy: IoU", "20 worlds, seed 0", "runner-up"):
        assert any(words in line for line in lines), words
    command = "\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("discretion release")) :])
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    with open("TABLE.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x1", "x2", "y"])
        writer.writerows([*rng.uniform((0, 0), (60, 40)), rng.uniform(12, 14)] for _ in range(300))
    words = as_a_shell(command)
    assert words[:3] == ["discretion", "release", "TABLE.csv"]
    said = json.loads(run(*words[1:], "--json", "--no-report"))
    assert 8.9 < said["epsilon"] <= 9.0
    assert (said["paths"], said["n"]) == (2, 300)
    planned = json.loads(run(*PATHS, "--threshold", "13.1", "--paths", "2", "--json"))
    assert said["ridge"] == planned["recommended"]["ridge"]
    assert said["scale"] == pytest.approx(planned["recommended"]["scale"], rel=1e-9)
    assert as_a_shell(planned["command"]) == words
    assert Path("release/map.png").exists()


def test_a_command_carries_what_was_said_of_the_problem(run):
    words = ["plan", "posterior", "--n", "80", "--domain=-1:1", "--response-range=-1:1", "--worlds", "20"]
    words += ["--covariates", "depth", "--response", "ph", "--delta", "1e-4", "--rule", "published", "--kernels", "rbf"]
    said = json.loads(run(*words, "--length-unit", "data", "--centre", "0.25", "--json"))
    parts = as_a_shell(said["command"])
    for wanted in ("--covariates=depth", "--response=ph", "--domain=-1:1", "--length-unit=data", "--centre=0.25"):
        assert wanted in parts
    assert f"--scale={said['recommended']['scale']!r}" in parts
    assert not [part for part in parts if part.startswith(("--epsilon", "--rule", "--threshold"))]
    assert said["recommended"]["measure"] == "correlation"
    told = run(*words, "--threshold", "0.1", "--centre", "0.25")
    assert "discretion ledger init spent.ledger --dataset NAME --epsilon 3 --delta 0.0001" in told
    assert {"--grid=60", "--threshold=0.1"} <= set(as_a_shell(told[told.index("discretion release") :]))


OWN = {
    "n", "prior_kernel", "prior_length_scale", "prior_length_unit", "prior_amplitude", "prior_noise_sd", "prior_mean",
    "epsilons", "posterior", "lattice", "districts", "kernels", "worlds", "seed", "jobs",
}  # fmt: skip
"""What plans alone ask for: `--prior districts:FILE` and a number of records are another thing in a release."""
DEFAULTS = {"epsilon", "rule", "out", "covariates", "response"}
"""Left out of a release they have no value, are required, or (rule) mean the same."""


@pytest.mark.parametrize("kind", ["map", "posterior"])
def test_every_option_of_a_plan_is_one_of_a_release_with_the_same_default(kind):
    root: Any = typer.main.get_command(app)
    commands = root.commands
    release = {each.name: each for each in commands["release"].params}
    for each in commands["plan"].commands[kind].params:
        if each.name in OWN:
            assert each.name not in release
            continue
        same = release[each.name]
        assert (each.opts, each.secondary_opts) == (same.opts, same.secondary_opts)
        if each.name not in DEFAULTS and not same.required:
            assert each.default == same.default, each.name
    assert {"paths", "crs"} <= {each.name for each in commands["plan"].commands[kind].params}


@pytest.fixture(scope="module")
def planned():
    words: dict[str, Any] = {"epsilon": 3.0, "epsilons": (3.0,), "worlds": 20, "posterior": False, "lattice": False}
    square = {"domain": Box((0.0, 0.0), (60.0, 40.0)), "grid": (8, 8)}
    return plan_map(n=300, response_range=(12.0, 14.0), threshold=13.4, **words, **square)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"mechanism": "kernel-sum", "kernel": RBF(0.2)}, "--mechanism=kernel-sum --kernel=rbf"),
        ({"mechanism": "kernel-sum", "kernel": ExponentialL1(0.2)}, "--kernel=exponential-l1"),
        ({"mechanism": "posterior", "kernel": Exponential(0.3), "ridge": 20.0, "paths": 3}, "--ridge=20.0 --paths=3"),
        ({"mechanism": "lattice", "kernel": Hexagons(19.0, 0.3), "ridge": 9.0, "paths": 1}, "--prior=lattice:19.0"),
    ],
)
def test_the_command_of_a_map_makes_what_was_planned(run, planned, changes, wanted, tmp_path, monkeypatch):
    changes = {"decoder": False, "paths": None, "ridge": None, "centre": 13.4, **changes}
    plan = replace(planned, recommended=replace(planned.recommended, **changes))
    problem = Problem(n=300, domain="0:60,0:40", response_range="12:14")
    command = Release(problem, Grid(grid="8"), Knowledge(), Reading(), 13.4).of_map(plan, 20.0, None, 0.0)
    words = as_a_shell(command)
    assert wanted in " ".join(words)
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    rows = np.column_stack([rng.uniform((0, 0), (60, 40), (300, 2)), rng.uniform(12, 14, 300)])
    np.savetxt("TABLE.csv", rows, delimiter=",", header="x1,x2,y", comments="")
    said = json.loads(run(*words[1:], "--json", "--no-report"))
    assert said["mechanism"] == changes["mechanism"]
    assert 2.9 < said["epsilon"] <= 3.0
    assert said["scale"] == pytest.approx(plan.mechanism(centre=13.4).scale, rel=1e-6) if changes["ridge"] else True
    assert json.loads(Path("release/certificate.json").read_text())["parameters"].get("paths") == changes["paths"]


def test_the_command_of_a_map_carries_what_the_plan_was_told(planned):
    problem = Problem(n=300, domain="0:60,0:40", response_range="12:14", delta="1e-4", crs="EPSG:3857")
    known = Knowledge(public_table=Path("old.csv"), covariates="x,y", response="price")
    reading = Reading(where=["new=0", "leasehold=1"], decimal=",", missing="drop")
    found = replace(planned.recommended, decoder=True)
    told = Release(problem, Grid(length_unit="data"), known, reading, 13.0)
    words = as_a_shell(told.of_map(replace(planned, recommended=found), 9.0, None, 0.0))
    for wanted in ("--mechanism=auto", "--public-table=old.csv", "--where=new=0", "--where=leasehold=1", "--decimal=,"):
        assert wanted in words
    assert {"--crs=EPSG:3857", "--length-unit=data", "--floor=9.0", "--delta=1e-4", "--missing=drop"} <= set(words)
    guess = replace(told, known=Knowledge(prior_mean=13.5), reading=Reading())
    assert "--mechanism=kernel-sum" in guess.of_map(replace(planned, recommended=found), 20.0, None, 0.0)
    graph = replace(found, mechanism="lattice", kernel=Graph(9.0, 0.3, lambda _: None), ridge=9.0, paths=1)  # pyright: ignore[reportArgumentType]
    words = as_a_shell(told.of_map(replace(planned, recommended=graph), 20.0, Path("d.geojson"), 2.0))
    assert {"--prior=districts:d.geojson", "--gap=2.0", "--killing=0.3"} <= set(words)


def test_a_coordinate_system_that_does_not_fit_is_refused_before_a_plan(run):
    pytest.importorskip("pyproj")
    assert "looks like degrees" in run(*PLAN, *QUICK, "--crs", "EPSG:27700", code=BAD_INPUT)
    assert "paths must be a whole number" in run(*PLAN, *QUICK, "--paths", "0", code=BAD_INPUT)


def test_an_automatic_release_has_the_centre_that_was_planned():
    words: dict[str, Any] = {"epsilon": 3.0, "epsilons": (3.0,), "worlds": 20, "posterior": False, "lattice": False}
    plan = plan_map(n=500, domain=Box((0.0,), (1.0,)), response_range=(12.0, 14.0), grid=(20,), threshold=13.4, **words)
    path = replace(plan.recommended, mechanism="posterior", kernel=RBF(0.2), ridge=20.0, centre=13.4, paths=1)
    own: dict[str, dict[str, Any]] = {"posterior": {"centre": 13.0}, "kernel-sum": {"centres": (13.0,)}}
    assert _planned(replace(plan, recommended=path, useful=True), own) == "posterior"
    assert own["posterior"] == {"centre": 13.4, "kernel": RBF(0.2), "ridge": 20.0, "paths": 1}
    assert own["kernel-sum"]["centres"] == (13.0,)
    assert "ridge 20, centre 13.4" in replace(plan, recommended=path).words


def test_bad_words_for_a_plan_of_paths_get_a_plain_error(run):
    assert "kernels are names among" in run(*PATHS, "--kernels", "gauss", code=BAD_INPUT)
    assert "rule must be one of" in run(*PATHS, "--rule", "profile", code=BAD_INPUT)
    assert "--transform" in run(*PATHS, "--transform", "log", code=BAD_INPUT)
    assert "columns" in run(*PATHS, "--covariates", "a,b,c", code=BAD_INPUT)
    assert "paths must be" in run(*PATHS, "--paths", "0", code=BAD_INPUT)


def test_labels_of_the_frontier_are_kept_apart_in_order():
    values = [0.8, 0.81, 0.3, 0.8]
    placed = _apart(values, 0.05)
    assert np.diff(sorted(placed)).min() >= 0.05 - 1e-12
    assert placed[2] == 0.3
    assert placed[1] == max(placed)
    assert np.mean(placed) == pytest.approx(np.mean(values))


def test_a_frontier_needs_points(tmp_path: Path):
    words: dict[str, Any] = {"trivial": 0.4, "floor": 0.6, "target": 1.0}
    with pytest.raises(ValueError, match="at least one point"):
        draw_frontier(tmp_path / "a.png", [], **words)
    one = draw_frontier(tmp_path / "a.png", [Point("kernel sum", 1.0, 0.8, 0.01)], not_useful_below=1.1, **words)
    assert one.stat().st_size > 10_000
