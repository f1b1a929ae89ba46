import json

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

from benchmarks.documents import page
from discretion.audit import PathGame, repeated
from discretion.audit.own import numbers_of
from discretion.audit.releases import certificate_game
from discretion.bilevel.domains import Grid
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import QuadraticMean
from discretion.cli import app
from discretion.gp import Box, Exponential, Lattice
from discretion.posterior import LatticeMechanism, PosteriorMechanism
from discretion.posterior.records import Records
from discretion.privacy import SeededRandomness
from discretion.selection.linear import RidgeMechanism

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


def test_a_release_of_ones_own(run, tmp_path, monkeypatch):
    # the search ends, on a busy machine too
    monkeypatch.setitem(certificate_game.__kwdefaults__, "seconds", 600.0)
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


def test_a_mechanism_of_ones_own(run, tmp_path, monkeypatch):
    """The example of the page, as it stands there."""
    guide = page("docs/audit.md")
    own = next(block.text for block in guide.blocks("python") if "def attacked" in block.text)
    command = next(each for each in guide.commands() if "--mechanism" in each.words)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(own)
    said = run(*command.words[2:])
    assert not command.absent(said)
    assert "REFUTED" not in said
    (tmp_path / "half.py").write_text(own.replace("randomness.", "0.25 * randomness."))
    assert "REFUTED" in run("--mechanism", "half.py:attacked", *FEW, code=4)
    (tmp_path / "game.py").write_text(
        "from discretion.audit import PathGame\ngame = PathGame(1.0, 1.0, paths=1)\nnothing = 3\nraise_ = 1 / 0"
    )
    assert "ZeroDivisionError" in run("--mechanism", "game.py:game", code=2)
    (tmp_path / "game.py").write_text("from discretion.audit import PathGame\ngame = PathGame(1.0, 1.0)\nnothing = 3")
    assert "claimed" not in run("--mechanism", "game.py:game", *FEW)
    assert "return a MechanismGame" in run("--mechanism", "game.py:nothing", code=2)
    assert "has no other" in run("--mechanism", "game.py:other", code=2)
    assert "no file" in run("--mechanism", "absent.py:game", code=2)
    assert "FILE.py:NAME" in run("--mechanism", "game.py", code=2)
    assert "--ridge" in run("--mechanism", "game.py:game", "--ridge", 2, code=2)
    assert "not both" in run("--mechanism", "game.py:game", "--certificate", "x.json", code=2)


def test_what_a_release_shows_if_nobody_says():
    assert len(numbers_of(3.0)) == 1
    model = RidgeMechanism(dimension=2, feature_bound=1.0, alpha=1.0, delta=0.01, response_range=(-1, 1), mu=1.0)
    release = model.run(Records(np.zeros((3, 2)), np.zeros(3)), SeededRandomness(0))
    assert len(numbers_of(release)) == 3  # coefficients and intercept
    with pytest.raises(ValueError, match="no numbers"):
        numbers_of(object())


def test_a_certificate_of_another_wing_and_how_far_it_is(run, tmp_path):
    problem = QuadraticMean(records=6, dimension=1)
    file = tmp_path / "certificate.json"
    ExponentialMechanism(problem=problem, epsilon=1.0, grid=Grid.of([-1.0, 1.0])).certificate(SeededRandomness(0)).save(
        file
    )
    said = run("--certificate", file, *FEW)
    assert "one is 1 and then -1" in said
    assert "1,000 to score" in said
    assert "REFUTED" in run("--certificate", file, *FEW, "--claimed", 0.01, code=4)
    assert "--prior" in run("--prior", file, code=2)


def test_districts_need_the_file_that_they_were_made_of(run, tmp_path):
    precision = sparse.csr_matrix(np.array([[2.0, -1.0, 0.0], [-1.0, 3.0, -1.0], [0.0, -1.0, 2.0]]))
    sparse.save_npz(tmp_path / "graph.npz", precision)
    lattice = LatticeMechanism(Lattice.of_precision(precision), (-1.0, 1.0), 2.0, 2.0, 0.01, rule="closed-form")
    file = tmp_path / "certificate.json"
    lattice.certificate(10, SeededRandomness(0)).save(file)
    assert "--prior FILE" in run("--certificate", file, *FEW, code=2)
    assert "becomes the lowest" in run("--certificate", file, *FEW, "--prior", tmp_path / "graph.npz")


def test_steps_are_told(tmp_path):
    told = []
    repeated(PathGame(1.0, 1.0), shadows=50, trials=50, repetitions=2, step=told.append)
    assert told[0] == "1 of 2: 50 releases with the record, to learn from"
    assert told[-1] == "2 of 2: Bounding epsilon"


PAIR = ["audit", "pair", "--n", "5", "--ridge", "3", "--scale", "2", "--delta", "1e-3", "--kernel", "exponential"]
PAIR += ["--length-scale", "0.5", "--domain", "0:1", "--seconds", "1"]


def pair(*more):
    return CliRunner().invoke(app, [*PAIR, *more])


@pytest.mark.slow
def test_the_assumption_of_a_claim_is_said():
    own, bounded = (json.loads(pair("--json", *more).stdout) for more in ((), ("--assumption", "bounded")))
    assert (own["assumption"], bounded["assumption"]) == ("exponential-1d", "bounded")
    assert own["claimed"] != bounded["claimed"]
    assert "under the assumption diagonal" in pair("--kernel", "diagonal", "--assumption", "diagonal").output.replace(
        "\n", " "
    )


def test_assumptions_and_relations_that_the_search_does_not_meet():
    assert json.loads(pair("--claimed", "9", "--json").stdout)["assumption"] is None
    assert "says nothing about" in " ".join(pair("--assumption", "rkhs:2").output.split())
    assert "leave out --claimed" in pair("--assumption", "bounded", "--claimed", "9").output
    assert "one of bounded" in pair("--assumption", "strong").output
    assert "add-remove" in pair("--neighbours", "replace-response").output
    assert "replace-response" not in CliRunner().invoke(app, ["audit", "pair", "--help"]).output
