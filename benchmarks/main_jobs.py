"""What users do, with an installed package alone: release, check, look, tune, optimise, choose by gradient, audit.

    python -P main_jobs.py     # in an empty folder, with the Python that `discretion` was installed for

It leaves its files there, and fails at the first thing that is wrong. A warning that the package's own code will stop
working, with a later Python or dependency, is one.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path

# Before the package is imported: what warns at import is heard too.
AGEING = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, SyntaxWarning)
for kind in AGEING:
    warnings.filterwarnings("error", category=kind, module=r"discretion(\.|$)")
os.environ |= {"PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1"}

import numpy as np  # noqa: E402

import discretion  # noqa: E402
from discretion import RBF, Box, PosteriorSampler  # noqa: E402
from discretion.audit import PathGame, repeated  # noqa: E402
from discretion.bayesopt import Linear, minimize  # noqa: E402
from discretion.bilevel import RidgeCV  # noqa: E402
from discretion.datasets import london_sales  # noqa: E402

OURS = str(Path(discretion.__file__).parent)
COMMAND = (sys.executable, "-m", "discretion")


def run(*words: object) -> str:
    """What the command prints."""
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    ageing = [line for line in done.stderr.splitlines() for kind in AGEING if OURS in line and kind.__name__ in line]
    assert not ageing, (words, ageing)
    return done.stdout


def release() -> None:
    """A map from the command line, its certificate, its page, its ledger."""
    cost = json.loads(run("cost", "kernel-sum", "--epsilon", 1, "--delta", 1e-5, "--json"))
    assert cost["epsilon"] <= 1, cost
    run("ledger", "init", "sales.ledger", "--dataset", "sales", "--epsilon", 1, "--delta", 1e-5)
    run(
        *("release", london_sales(2018), "--mechanism", "kernel-sum", "--unit", "one sale", "--out", "map"),
        *("--covariates", "easting_m,northing_m", "--domain", "503000:562000,155000:201000"),
        *("--response", "price_gbp", "--transform", "log", "--response-range", "12:14", "--threshold", 13),
        *("--kernel", "rbf", "--length-scale", 1200, "--length-unit", "data", "--epsilon", 1, "--delta", 1e-5),
        *("--grid", "24,18", "--ledger", "sales.ledger"),
    )
    left = {each.name for each in Path("map").iterdir()}
    assert {"map.png", "sums.csv", "certificate.json", "report.html"} <= left, left
    run("certificate", "verify", "map/certificate.json", "--ledger", "sales.ledger")
    run("ledger", "verify", "sales.ledger")
    assert json.loads(run("ledger", "spend-report", "sales.ledger", "--json"))
    run("report", "map", "--ledger", "sales.ledger", "--out", "page.html")
    assert Path("page.html").stat().st_size > 10_000


def tune() -> None:
    """A length scale chosen on private records, and the map it makes."""
    rng = np.random.default_rng(0)
    places = rng.uniform(size=(300, 2))
    with Path("table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x", "y", "z"), *np.column_stack([places, places[:, 0] > 0.5]).tolist()])
    run("ledger", "init", "table.ledger", "--dataset", "table", "--epsilon", 6, "--delta", 1e-4)
    run(
        *("tune", "table.csv", "--covariates", "x,y", "--response", "z", "--domain", "0:1,0:1"),
        *("--response-range", "0:1", "--kernel", "rbf", "--length-scale", "0.02,0.2", "--epsilon", 6, "--delta", 1e-4),
        # Of a Poisson law of mean 40 no run is drawn once in 10^17 searches: it always leaves a map.
        *("--runs", "poisson", "--mean", 40, "--grid", 9, "--threshold", 0.5, "--floor", 1, "--out", "tuned"),
        *("--ledger", "table.ledger"),
    )
    run("certificate", "verify", "tuned/certificate.json", "--ledger", "table.ledger")


def explore() -> None:
    """The page to choose a budget with is served, and ends when told to."""
    with subprocess.Popen([*COMMAND, "explore", "--no-browser"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert b"<html" in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0


def python() -> None:
    """The same wings from Python: paths, an optimisation, a penalty, an attack."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    sampler = PosteriorSampler(Box((0, 0), (1, 1)), (-1, 1), kernel=RBF(0.3), ridge=20.0, scale=0.1, delta=1e-3, grid=4)
    fitted = sampler.fit(X, X[:, 0])
    assert fitted.predict(X).shape == (60,)
    assert json.loads(fitted.release_.certificate.to_json())["epsilon"] > 0

    found = minimize(lambda x: np.full(50, x**2), {"x": Linear(-2, 2)}, n=50, steps=2, clip=4.0, mu=1.0)
    assert -2 <= found.parameters["x"] <= 2

    model = RidgeCV(feature_bound=2.0, response_range=(0, 1), epsilon=2.0, delta=1e-6).fit(X, X[:, 0])
    assert model.predict(X).shape == (60,)

    attack = repeated(PathGame(ridge=3.0, scale=0.5), repetitions=2, shadows=50, trials=50, delta=1e-3)
    assert 0 <= attack.auc <= 1
    said = run(
        *("audit", "pair", "--n", 50, "--ridge", 3, "--scale", 0.5, "--delta", 1e-3, "--seconds", 1, "--json"),
        *("--kernel", "exponential", "--length-scale", 0.5, "--domain", "0:1"),
    )
    assert json.loads(said), said


def main() -> None:
    """All of them."""
    assert "site-packages" in OURS, OURS
    for job in (release, tune, explore, python):
        job()


if __name__ == "__main__":
    main()
