"""``discretion cost|calibrate|plan selection``."""

import json

import pytest
from typer.testing import CliRunner

from discretion.cli import app

runner = CliRunner()


def run(*words):
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in words else result.stdout


def refused(*words):
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == 2
    return result.stderr


def test_the_cost_of_one_run_and_of_the_selection():
    found = run("cost", "selection", "--mu", 0.2**0.5, "--runs", "geometric", "--mean", 10, "--json")
    assert found["single_epsilon"] == pytest.approx(1.9945269, rel=1e-6)
    assert 2.8795 < found["attained"] < found["epsilon"] <= 2.893
    assert (found["mean"], found["q99"]) == (10, 44)
    text = run("cost", "selection", "--mu", 0.2**0.5)
    assert "One run: epsilon <= 1.9946" in text
    assert "44 or more" in text


@pytest.mark.parametrize(
    ("words", "epsilon"),
    [
        (("--base", "pure", "--epsilon", 1, "--runs", "logarithmic"), 1.9392),
        (("--base", "zcdp", "--rho", 0.1, "--runs", "geometric", "--rule", "renyi"), 3.2010),
        (("--mu", 1, "--runs", "tnb", "--shape", 2, "--mean", 4), None),
        (("--mu", 1, "--runs", "binomial", "--trials", 20, "--mean", 5), None),
        (("--mu", 1, "--runs", "poisson", "--mean", 4, "--cap", 9), None),
        (("--base", "approximate", "--epsilon", 1, "--delta0", 1e-8), None),
    ],
)
def test_bases_and_laws(words, epsilon):
    found = run("cost", "selection", *words, "--json")
    assert found["single_epsilon"] < found["epsilon"] < 4 * found["single_epsilon"]
    if epsilon is not None:
        assert found["epsilon"] == pytest.approx(epsilon, rel=1e-3)


def test_warnings_go_to_people_and_to_json():
    found = run("cost", "selection", "--mu", 0.4, "--runs", "tnb", "--shape", -0.5, "--json")
    assert "Heavy tail" in found["warnings"][0]
    result = runner.invoke(app, ["cost", "selection", "--mu", "0.4", "--runs", "poisson", "--mean", "0.5"])
    assert "no run at all" in result.stderr


def test_an_infinite_cost_says_why():
    words = ["cost", "selection", "--base", "approximate", "--epsilon", "1", "--delta0"]
    assert "--delta0 must be well below --delta" in runner.invoke(app, [*words, "1e-6"]).stderr
    assert not runner.invoke(app, [*words, "1e-9"]).stderr


def test_calibration_meets_the_target():
    found = run("calibrate", "selection", "--total-epsilon", 3, "--json")
    assert 2.999 < found["epsilon"] <= 3
    again = run("cost", "selection", "--mu", found["mu"], "--json")
    assert again["epsilon"] == found["epsilon"]
    words = ("--solve", "mean", "--mu", 0.4, "--runs", "logarithmic")
    found = run("calibrate", "selection", "--total-epsilon", 2.5, *words, "--json")
    assert 2.499 < found["epsilon"] <= 2.5
    assert found["mean"] > 5


def test_a_plan_compares_laws(tmp_path):
    picture = tmp_path / "laws.png"
    found = run(
        "plan", "selection", "--mu", 0.2**0.5, "--success", 0.632, "--shapes", "1,5", "--out", picture, "--json"
    )
    names = [each["name"] for each in found["laws"]]
    assert names[0] == "geometric"
    assert names[-1] == "Poisson"
    assert all(each["success"] >= 0.632 for each in found["laws"])
    assert picture.stat().st_size > 5_000
    text = run("plan", "selection", "--mu", 0.4, "--shapes", "-0.5,2", "--most-runs", 30)
    assert "shape -0.5" not in text
    assert "Poisson" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cost", "selection"), "needs --mu"),
        (("cost", "selection", "--base", "pure", "--epsilon", 1, "--mu", 1), "does not take --mu"),
        (("cost", "selection", "--mu", 1, "--runs", "tnb"), "--shape"),
        (("cost", "selection", "--mu", 1, "--mean", 0.5), "at least 1"),
        (("cost", "selection", "--mu", 1, "--runs", "zipf"), "--runs is"),
        (("cost", "selection", "--mu", 1, "--delta", 2), "--delta"),
        (("cost", "selection", "--mu", 1, "--rule", "published"), "'best', 'renyi' or 'profile'"),
        (("cost", "selection", "--mu", 1, "--runs", "fixed", "--mean", 2.5), "whole number"),
        (("cost", "selection", "--mu", 1, "--mean", -3), "must be positive"),
        (("calibrate", "selection", "--total-epsilon", 3, "--delta", 0), "strictly between 0 and 1"),
        (("calibrate", "selection", "--total-epsilon", 3, "--mu", 0.3), "--mu gives it"),
        (
            ("calibrate", "selection", "--total-epsilon", 0.3, "--mu", 0.3, "--solve", "mean"),
            "One run alone costs epsilon 1.292",
        ),
        (("plan", "selection", "--mu", 0.3, "--good", 1.5), "--good is a chance"),
        (("calibrate", "selection", "--total-epsilon", 3, "--solve", "luck"), "base or mean"),
        (("calibrate", "selection", "--total-epsilon", 3, "--solve", "base", "--base", "approximate"), "--solve base"),
    ],
)
def test_bad_input_is_explained(words, message):
    assert message in " ".join(refused(*words).split())
