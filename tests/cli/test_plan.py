"""`discretion plan map`, run as a user runs it."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT
from discretion.spatial.frontier import Point, _apart, draw_frontier

PLAN = ["plan", "map", "--n", "1500", "--domain", "0:60,0:40", "--response-range", "12:14", "--grid", "16"]
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
    for words in ("Useful at epsilon 3", "Recommended: kernel sum", "all places", "Prior: Gaussian process, declared"):
        assert words in said
    assert imread(picture).shape[:2] == (1080, 1720)


def test_a_plan_as_json(run):
    said = json.loads(run(*PLAN, *QUICK, "--json", "--delta", "1e-4", "--prior-length-scale", "0.3"))
    assert said["useful"] is True
    assert said["delta"] == 1e-4
    assert said["prior"]["length_scale"] == pytest.approx(0.3)
    assert said["recommended"]["mechanism"] == "kernel-sum"
    assert said["recommended"]["kernel"]["name"] in ("rbf", "exponential-l1")
    assert said["forecast"]["iou"]["mean"] > said["trivial"]["all places"]["mean"]


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
