"""Prices of private bilevel choices on the command line."""

import json
import math

import pytest
from typer.testing import CliRunner

from discretion.bilevel import ExponentialMechanism, RidgePenalty
from discretion.cli import app
from discretion.privacy import gaussian_mu

SPLIT = ["--training", "221", "--validation", "221"]


def run(*words):
    return CliRunner().invoke(app, ["cost", *words])


def test_exponential_of_a_family_is_the_mechanisms():
    options = ["--family", "ridge", "--penalties", "0.1,10", "--candidates", "21", "--epsilon", "1"]
    found = json.loads(run("exponential", *SPLIT, *options, "--json").stdout)
    problem = RidgePenalty(training=221, validation=221, dimension=1, penalties=(0.1, 10.0), candidates=21)
    report = ExponentialMechanism(problem=problem, epsilon=1.0).report()
    assert found["range"] == report.range.value == pytest.approx(1.2, abs=0.01)
    assert found["k"] == report.k
    text = run("exponential", *SPLIT, *options).stdout
    assert text.startswith("Not informative")
    assert found["informative"] is False
    assert run("exponential", *SPLIT, *options, "--penalties", "3").exit_code == 2
    assert "Pure epsilon = 1" in text


def test_exponential_of_declared_constants():
    given = [f"--constant={each}" for each in ("L_fx=0", "L_fy=1", "mu_g=1", "b_gxy=1", "D_g=0", "D_y=2")]
    found = json.loads(
        run("exponential", "--training", "50", *given, "--diameter", "2", "--epsilon", "1", "--json").stdout
    )
    assert found["range"] == pytest.approx(4 / 50)
    assert run("exponential", "--training", "50", *given, "--epsilon", "1").exit_code == 2
    assert run("exponential", "--training", "50", "--constant=nonsense=1", "--epsilon", "1").exit_code == 2
    assert "D_g" in run("exponential", "--training", "5", "--constant=L_fy=1", "--constant=mu_g=1", "--diameter", "1",
                        "--epsilon", "1").stderr  # fmt: skip


def test_hypergradient_of_a_family():
    options = ["--family", "logistic", "--penalty", "0.1", "--steps", "9"]
    found = json.loads(run("hypergradient", *SPLIT, *options, "--mu", "0.5", "--json").stdout)
    assert found["noise"] == pytest.approx(1.01 * found["sensitivity"] * 3 / 0.5)
    assert found["sensitivity"] * 221 == pytest.approx(119.6, rel=0.06)  # 114.5: slopes at |p| <= R R_y, not at inf
    other = json.loads(run("hypergradient", *SPLIT, *options, "--epsilon", "1", "--json").stdout)
    assert other["mu"] == pytest.approx(gaussian_mu(1.0, 1e-6))
    assert "inner curvature" in run("hypergradient", *SPLIT, *options, "--mu", "0.5").stdout


def test_hypergradient_is_refused_at_a_kink():
    found = run("hypergradient", *SPLIT, "--family", "huber", "--steps", "3", "--mu", "1")
    assert found.exit_code == 2
    assert "kink" in found.stderr


def test_add_remove_pays_for_single_terms():
    options = ["--family", "ridge", "--penalties", "0.1,10", "--epsilon", "1", "--json"]
    one, two = (
        json.loads(run("exponential", *SPLIT, *options, "--neighbours", each).stdout)["range"]
        for each in ("add-remove", "replace")
    )
    assert two == pytest.approx(2 * one)
    assert not math.isnan(one)


def test_numbers_out_of_range_are_plain_errors():
    given = [f"--constant={each}" for each in ("L_fx=0", "L_fy=1", "mu_g=1", "b_gxy=1", "D_g=0", "D_y=2")]
    base = ["exponential", "--training", "50", "--epsilon", "1"]
    hyper = ["hypergradient", *SPLIT, "--family", "ridge", "--steps", "3"]
    nothing = [f"--constant={each}" for each in ("L_fx=0", "L_fy=0", "mu_g=1", "b_gxy=1", "D_g=0", "D_y=0", "B_f=0")]
    cases = [
        ([*base, *given, "--diameter", "-1"], "--diameter"),
        ([*base, *given, "--diameter", "nan"], "--diameter"),
        ([*base, *nothing, "--diameter", "2"], "nothing"),
        ([*base, *given, "--constant=single=true", "--diameter", "2"], "add-remove"),
        ([*hyper, "--mu", "0"], "--mu"),
        ([*hyper, "--epsilon", "0"], "--epsilon"),
        ([*base, "--epsilon", "inf", *given, "--diameter", "2"], "--epsilon"),
        ([*hyper, "--mu", "nan"], "--mu"),
        ([*hyper, "--mu", "-1"], "--mu"),
        ([*hyper, "--epsilon", "1", "--delta", "0"], "--delta"),
        ([*hyper, "--epsilon", "1", "--delta", "1"], "--delta"),
        ([*base, *given, "--diameter", "2", "--delta", "0"], "--delta"),
        ([*base, "--epsilon", "1e300", *given, "--diameter", "2"], "--epsilon"),
        ([*hyper, "--mu", "1", "--constant=L_fy=1"], "leave out --constant"),
        ([*base, "--family", "ridge", "--validation", "50", "--constant=L_fy=1"], "leave out --constant"),
        ([*base, "--family", "ridge", "--validation", "50", "--diameter", "2"], "leave out --diameter"),
        ([*base, *given, "--constant=L_fy=9", "--diameter", "2"], "twice"),
    ]
    for words, told in cases:
        found = run(*words)
        assert found.exit_code == 2, words
        assert told in found.stderr
        assert "Traceback" not in found.stderr


def test_a_family_needs_other_records_for_its_outer_loss():
    found = run("hypergradient", "--training", "9", "--family", "ridge", "--steps", "3", "--mu", "1")
    assert found.exit_code == 2
    assert "--family ridge needs --validation" in " ".join(found.stderr.split())
    assert "a --family needs them" in " ".join(run("hypergradient", "--help").stdout.replace("│", " ").split())
