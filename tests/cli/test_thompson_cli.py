"""``discretion cost thompson`` and ``discretion calibrate thompson``."""

import json

import pytest
from typer.testing import CliRunner

from discretion.cli import app


def run(*words):
    return CliRunner().invoke(app, list(words))


def result(*words):
    found = run(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_cost():
    found = result("cost", "thompson", "--rounds", "1000", "--ridge", "1", "--scale", "20", "--history", "1")
    assert found["epsilon"] == pytest.approx(11.480023, abs=5e-7)
    assert found["mu"] == pytest.approx(5**0.5)
    assert found["neighbours"] == "replace-response"
    cold = run("cost", "thompson", "--rounds", "1000", "--ridge", "1", "--scale", "20")
    assert "epsilon <= 11.4729 at delta = 1e-05" in cold.stdout
    records = result("cost", "thompson", "--rounds", "20", "--ridge", "8", "--scale", "1", "--private", "records")
    assert records["neighbours"] == "replace"
    assert records["mu"] is None
    assert records["epsilon"] > result("cost", "thompson", "--rounds", "20", "--ridge", "8", "--scale", "1")["epsilon"]


def test_calibrate():
    found = result("calibrate", "thompson", "--rounds", "100", "--epsilon", "3", "--batch", "2")
    assert 2.9999 < found["epsilon"] <= 3.0
    again = result("cost", "thompson", "--rounds", "100", "--batch", "2", "--scale", repr(found["scale"]))
    assert again["epsilon"] == found["epsilon"]


def test_a_range_of_responses_stands_for_their_bound():
    words = ("calibrate", "thompson", "--rounds", "100", "--epsilon", "3")
    of_range = result(*words, "--response-range=-3:5")
    assert of_range == result(*words, "--response-bound", "4")
    assert of_range["scale"] == pytest.approx(4.0 * result(*words)["scale"], rel=1e-6)
    cost = ("cost", "thompson", "--rounds", "100", "--scale", "9")
    assert result(*cost, "--response-range", "12:14") == result(*cost)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cost", "--rounds", "0", "--scale", "1"), "--rounds"),
        (("cost", "--rounds", "5", "--scale", "0"), "--scale"),
        (("cost", "--rounds", "5", "--scale", "1", "--ridge", "-1"), "--ridge"),
        (("cost", "--rounds", "5", "--scale", "1", "--delta", "1"), "--delta"),
        (("cost", "--rounds", "5", "--scale", "1", "--response-range", "2:1"), "--response-range"),
        (("cost", "--rounds", "5", "--scale", "1", "--response-range", "1:2", "--response-bound", "1"), "give one"),
        (("cost", "--rounds", "5", "--scale", "1", "--private", "all"), "--private"),
        (("cost", "--rounds", "5", "--scale", "1", "--private", "records", "--rule", "best"), "rule"),
        (("calibrate", "--rounds", "5", "--epsilon", "0"), "epsilon"),
        (("calibrate", "--rounds", "500", "--epsilon", "1", "--private", "records"), "Raise the ridge"),
    ],
)
def test_refusals(words, message):
    command, *rest = words
    found = run(command, "thompson", *rest)
    assert found.exit_code in (2, 4)
    assert message in " ".join(found.output.split())
