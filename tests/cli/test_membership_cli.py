import json

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.gp import Box, Exponential
from discretion.posterior import PosteriorMechanism
from discretion.privacy import SeededRandomness

FEW = ("--shadows", "500", "--trials", "1000")


@pytest.fixture
def run():
    def call(*words, code=0):
        result = CliRunner().invoke(app, ["audit", "membership", *map(str, words)])
        assert result.exit_code == code, result.output
        return result.output

    return call


@pytest.mark.parametrize("kind", ["online", "offline", "exact"])
def test_the_game_of_two_halves(run, tmp_path, kind):
    figure = tmp_path / "roc.png"
    said = run(*FEW, "--attack", kind, "--ridge", 0.5, "--plot", figure)
    assert "AUC 0.8" in said or kind == "offline"
    assert "claimed: epsilon <=" in said
    assert figure.exists()


def test_json_infinite_scale_and_a_refuted_claim(run):
    words = (*FEW, "--scale", "inf", "--repetitions", 2, "--json", "--claimed", 0.1)
    found = json.loads(run(*words, code=4))
    assert found["refuted"]
    assert found["repetitions"] == len(found["each"]) == 2
    assert found["epsilon_lower"] > 0.1


def test_mistakes(run):
    assert "--attack" in run("--attack", "psychic", code=2)
    assert "ridge" in run("--ridge", 0, code=2)
    assert "shadows" in run("--shadows", 2, code=2)
    assert "--confidence" in run("--confidence", 1, code=2)


def test_a_release_of_ones_own(run, tmp_path):
    mechanism = PosteriorMechanism(
        Exponential(0.3), Box((0.0,), (1.0,)), (0.0, 10.0), 3.0, 2.0, np.linspace(0, 1, 5)[:, None], 1e-3, paths=2
    )
    file = tmp_path / "certificate.json"
    mechanism.certificate(40, SeededRandomness(0)).save(file)
    said = run("--certificate", file, *FEW)
    assert run("--certificate", tmp_path, *FEW) == said  # the folder of a release
    assert "one record +5" in said
    assert "becomes" in said
    assert "REFUTED" not in said
    assert "REFUTED" in run("--certificate", file, *FEW, "--claimed", 0.01, code=4)
    assert "the certificate says it" in run("--certificate", file, "--ridge", 2, code=2)
    file.write_text("{}")
    assert "not a certificate" in run("--certificate", file, code=2)
