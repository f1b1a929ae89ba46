"""Prices of noisy gradients on the command line."""

import json
import math

import pytest
from typer.testing import CliRunner

import discretion.cli.gradient  # noqa: F401  (adds the commands)
from discretion.cli import app

RUN = ["--n", "1000", "--steps", "40", "--clip", "5"]


def run(*words):
    return CliRunner().invoke(app, list(words))


def test_noise_of_the_specified_mu():
    found = run("cost", "gradient", *RUN, "--mu", "2", "--json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["noise"] == pytest.approx(2 * 5 * math.sqrt(40) / (1000 * 2), rel=1e-12)
    assert result["epsilon"] == pytest.approx(9.997, abs=1e-3)
    again = json.loads(run("cost", "gradient", *RUN, "--noise", repr(result["noise"]), "--json").stdout)
    assert again["mu"] == pytest.approx(2.0, rel=1e-12)


def test_calibrated_noise_meets_its_target():
    found = json.loads(run("calibrate", "gradient", *RUN, "--epsilon", "3", "--json").stdout)
    assert 3.0 * (1 - 1e-9) < found["epsilon"] <= 3.0
    assert "noise = " in run("calibrate", "gradient", *RUN, "--epsilon", "3").stdout


def test_add_remove_is_half():
    one, two = (
        json.loads(run("cost", "gradient", *RUN, "--noise", "0.1", "--neighbours", each, "--json").stdout)["mu"]
        for each in ("add-remove", "replace")
    )
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize(
    "words",
    [
        ["cost", "gradient", *RUN],
        ["cost", "gradient", *RUN, "--mu", "1", "--noise", "1"],
        ["cost", "gradient", *RUN, "--mu", "-1"],
        ["cost", "gradient", "--n", "0", "--steps", "4", "--mu", "1"],
        ["cost", "gradient", "--n", "10", "--steps", "0", "--mu", "1"],
        ["cost", "gradient", *RUN, "--mu", "1", "--delta", "2"],
        ["calibrate", "gradient", *RUN, "--epsilon", "0"],
        ["cost", "gradient", *RUN, "--mu", "1", "--neighbours", "replace-response"],
    ],
)
def test_bad_input(words):
    found = run(*words)
    assert found.exit_code == 2
    assert "error" in found.output.lower()
