"""The harness of claims, and the fast claims about privacy as tests."""

import json

import numpy as np
import pytest

from benchmarks import attack, claims, sampler_law
from benchmarks.harness import AREAS, CLAIMS, Measured, claim


def test_every_claim_is_named_and_filed():
    assert {each.area for each in CLAIMS.values()} <= set(AREAS)
    with pytest.raises(ValueError, match="not an area"):
        claim("nowhere", "x", "y")(lambda: Measured("", True))
    with pytest.raises(ValueError, match="Two claims"):
        claim("map", "x", "y")(CLAIMS["demo_epsilon"].measure)


def test_choosing_claims():
    assert [each.name for each in claims.chosen("brute_force_sound", slow=False)] == ["brute_force_sound"]
    assert all(each.area == "map" and not each.slow for each in claims.chosen("map", slow=False))
    assert len(claims.chosen(None, slow=True)) == len(CLAIMS)
    with pytest.raises(SystemExit, match="neither an area"):
        claims.chosen("nonsense", slow=False)


def test_a_claim_that_crashes_or_fails_does_not_hold(monkeypatch, capsys):
    broken = claims.Claim("broken", "map", "a claim", "a target", lambda: 1 / 0, False)
    monkeypatch.setattr(claims, "CLAIMS", {"broken": broken})
    monkeypatch.setattr("sys.argv", ["claims", "--json"])
    with pytest.raises(SystemExit) as ended:
        claims.main()
    assert ended.value.code == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["holds"] is False
    assert {"claim", "target", "measured", "holds"} <= set(row)


def test_rows_of_numpy_figures_are_json(monkeypatch, capsys):
    row = claims.Claim("row", "map", "a claim", "a target", lambda: Measured("1", np.bool_(True)), False)
    monkeypatch.setattr(claims, "CLAIMS", {"row": row})
    monkeypatch.setattr("sys.argv", ["claims", "--json"])
    with pytest.raises(SystemExit) as ended:
        claims.main()
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)[0]["holds"] is True


@pytest.mark.parametrize("n", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_the_attack_along_emptied_directions(n):
    found = attack.smallest_eigenvectors(n)
    assert found.without > 0.95  # it wins where rounding leaves no noise
    assert abs(found.with_nugget - 0.5) < 4 * 0.0204  # and learns nothing there with the nugget
    assert found.distance <= found.claimed


def test_paths_have_the_posterior_law():
    assert sampler_law.largest_deviation(paths=4_000) < 5.0
