"""The benchmark of peers: its references, its rows, and the page that shows them."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.peer_claims import judged
from benchmarks.peer_engines import PEERS, Peer
from benchmarks.peer_figure import draw
from benchmarks.peer_work import SETTINGS, data, reference
from discretion.gp import DensePosterior, kernel

DOCS = Path(__file__).parents[2] / "docs"


NAMES = ["digits-plane", "digits-line", "digits-matern"]


@cache
def small(name):
    """A setting that takes no time, and its reference in fifty digits."""
    setting = replace(SETTINGS[name], n=40, m=15, ridge=0.3)
    return setting, *reference(setting)


@pytest.mark.parametrize("name", NAMES)
def test_references_agree(name):
    """Fifty digits, double precision and, on the line, the filter: computed in different ways."""
    setting, mean, covariance = small(name)
    X, y, T, _ = data(setting)
    posterior = DensePosterior(kernel(setting.kernel, 0.2), 0.3, X, y)
    np.testing.assert_allclose(mean, posterior.mean(T), atol=1e-13)
    np.testing.assert_allclose(covariance, posterior.covariance(T), atol=1e-13)
    other = reference(replace(setting, digits=False))
    np.testing.assert_allclose(mean, other[0], atol=1e-13)
    np.testing.assert_allclose(covariance, other[1], atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("label", PEERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_peer_draws_the_posterior(label, name):
    """Mean and covariance are those of the reference, and the path is the one of the normals it tells."""
    peer, (setting, mean, covariance) = PEERS[label], small(name)
    if peers.installed(peer) is None or (peer.line and setting.dimension > 1) or setting.kernel in peer.lacks:
        pytest.skip("not installed, or no such kernel")
    drawn = peer.setup(setting, data(setting))()
    found_mean, found_covariance = map(np.asarray, drawn.moments())
    np.testing.assert_allclose(found_mean, mean, atol=1e-10)
    np.testing.assert_allclose(found_covariance, covariance[:, : found_covariance.shape[1]], atol=1e-10)
    assert drawn.path.shape == (15,)
    if drawn.normals is not None and drawn.nugget:
        C = np.linalg.cholesky(covariance + drawn.nugget * np.eye(15))
        np.testing.assert_allclose(drawn.path, mean + C @ drawn.normals, atol=1e-9)


@pytest.mark.slow
def test_rows_in_processes_of_their_own():
    """Ours is measured; a peer that is not there, one that can't, and one that breaks are rows too."""
    found = peers.compared("digits-matern", ("discretion, linear", "celerite2"))
    ours, other = found["rows"]
    assert ours["finite"]
    assert ours["mean_error"] < 1e-12
    assert other["failure"] in ("not installed", "has no such kernel")
    broken = peers.run("digits-plane", "discretion, linear", Path("nowhere"))
    assert broken["failure"].startswith("ValueError")


def test_why_not():
    setting = SETTINGS["line-100000"]
    assert peers.why_not(setting, PEERS["discretion, dense"]) == "skipped: needs 75.3 GiB or more"
    assert peers.why_not(setting, PEERS["discretion, linear"]) is None
    assert peers.why_not(setting, Peer("no-such-package", PEERS["celerite2"].setup)) == "not installed"


def test_a_process_too_large_is_ended(monkeypatch):
    monkeypatch.setattr(peers, "_resident", lambda pid: 7.0)
    assert peers.run("digits-plane", "discretion, dense", Path("nowhere"))["failure"].startswith("out of memory")


def sized(**changes):
    ours = {"peer": "discretion, dense", "seconds": 1.0, "times": [1.0], "peak_mib": 99.0, "setup_mib": 70.0}
    theirs = {"peer": "GPyTorch", "seconds": 3.0, "times": [3.0], "finite": True}
    missing = {"peer": "BoTorch", "failure": "not installed"}
    size = {"setting": "plane-1000", "title": "Matern", "n": 1000, "m": 1000, "further": 0, "floor_seconds": 0.8}
    return size | {"rows": [ours, theirs, missing]} | changes


def test_claims_name_what_is_missing():
    assert judged(sized(), 2.0) == ("ours 1.0 s; GPyTorch 3.0 x; BoTorch not installed", True)
    assert not judged(sized(), 3.5).holds
    assert not judged(sized(rows=[{"peer": "discretion, dense", "failure": "NaN"}]), 1.0).holds


def test_tables_and_figure(tmp_path):
    document = {"machine": peers.machine(), "sizes": [sized()]}
    text = peers.written(f"before\n{peers.BEGIN}\nold\n{peers.END}\nafter\n", document)
    assert "| GPyTorch | 3.0 (1) | 3.8 | 3.0 |" in text
    assert "| BoTorch | — | — | — | — | — | — | — | not installed |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert peers.written(text, document) == text
    draw(document, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 10_000


def test_numbers():
    assert [peers.number(x) for x in (None, 0.0, 0.0123, 1.234, 12.34, 1234.5)] == [
        "—",
        "0",
        "0.012",
        "1.2",
        "12",
        "1,234",
    ]
    assert peers.number(math.inf) == "inf"


def test_the_page_shows_the_newest_run():
    """The tables on the page are those of the newest file, and every file tells its machine without a path."""
    files = sorted((DOCS / "benchmarks").glob("peers-*.json"))
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert peers.written(page, json.loads(files[-1].read_text(encoding="utf-8"))) == page
    for file in files:
        assert file.name in page
        held = json.loads(file.read_text(encoding="utf-8"))["machine"]
        assert file.stem == f"peers-{held['date']}"
        assert "/" not in json.dumps({key: held[key] for key in ("processor", "system", "blas", "versions")})
