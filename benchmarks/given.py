"""What the documents take for granted: records of the reader's own, mechanisms, files in the working folder."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from discretion.cli import app
from discretion.datasets import london_sales
from discretion.gp import RBF, Ball, Box
from discretion.posterior import (
    KernelSum,
    KernelSumMechanism,
    PosteriorMechanism,
    PosteriorSampler,
    Records,
    ThompsonMechanism,
    ThompsonSampler,
)
from discretion.privacy import GaussianDP, Ledger, Neighbours, SeededRandomness

__all__ = ["GIVEN", "command", "given"]

UNIT = Box((0.0, 0.0), (1.0, 1.0))
LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))


def command(*words: str) -> str:
    """What a command prints.

    Raises RuntimeError where it fails.
    """
    done = CliRunner().invoke(app, list(words))
    if done.exit_code:
        raise RuntimeError(f"{words}: {done.output}")
    return done.output


def given(page: str) -> dict[str, Any]:
    """Names for a page by its path; files are made in the working folder."""
    return GIVEN[page]() if page in GIVEN else {}


def _records(count: int = 200, domain: Box = UNIT, low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"X": rng.uniform(domain.lower, domain.upper, (count, 2)), "y": rng.uniform(low, high, count)}


def _readme() -> dict[str, Any]:
    command("ledger", "init", "more.ledger", "--dataset", "x", "--epsilon", "1", "--delta", "1e-5")
    return _records(4_000, LONDON, 12, 14)


def _bayesopt() -> dict[str, Any]:
    def losses(rows: Any, rate: float, momentum: float) -> Any:
        return np.minimum((rows - 3 * momentum) ** 2, 4.0) + np.log10(rate / 0.01) ** 2

    return {"losses": losses, "n": 5_000}


def _bilevel() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200_000, 10))
    # A task: ten sales, two to learn from and eight to be judged by; the last column is the response.
    tasks = rng.normal(size=(990, 10, 21)) / 5
    return {
        "np": np,
        "Ball": Ball,
        "X": X,
        "y": X @ rng.uniform(-0.3, 0.3, 10),
        "mask": np.arange(200_000) < 100_000,
        "ledger": Ledger.create("bilevel.ledger", dataset="x", epsilon=9, delta=1e-5),
        "tasks": tasks,
        "f": lambda x, y, z: ((z[2:, :20] @ y - z[2:, 20]) ** 2).mean(),
        "g": lambda x, y, z: ((z[:2, :20] @ y - z[:2, 20]) ** 2).mean(),
        "R": lambda x, y: 0.5 * ((y - x) ** 2).sum(),
    }


def _certificates() -> dict[str, Any]:
    command("certificate", "keygen", "steward.pem")
    model = KernelSum(UNIT, (0, 1), kernel=RBF(0.2), epsilon=1.0, delta=1e-5, grid=(9, 9)).fit(*_records().values())
    return {"release": model.release_}


def _lattice() -> dict[str, Any]:
    square = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
    features = [
        {
            "type": "Feature",
            "properties": {"code": name},
            "geometry": {"type": "Polygon", "coordinates": [[[a + x, b] for a, b in square]]},
        }
        for x, name in enumerate("ABC")
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    Path("districts.geojson").write_text(text, encoding="utf-8")
    return _records(400, LONDON, 12, 14)


class _Counted(Records):
    def __len__(self) -> int:
        return len(self.response)


def _ledger() -> dict[str, Any]:
    """And a file of the first layout, which the page brings over."""
    with sqlite3.connect("old.ledger") as old:
        old.execute("CREATE TABLE ledger (dataset, epsilon, delta, neighbours)")
        old.execute("INSERT INTO ledger VALUES ('x', '1.0', '1e-5', 'replace')")
        old.execute("CREATE TABLE event (number, description, loss, state)")
        loss = json.dumps(GaussianDP(0.1, neighbours=Neighbours.REPLACE).to_dict())
        old.execute("INSERT INTO event VALUES (1, '{}', ?, 'reserved')", (loss,))
    mechanism = KernelSumMechanism(
        RBF(0.2), domain=UNIT, response_ranges=(0.0, 1.0), scale=9.0, delta=1e-5, grid=(9, 9), coordinates="data"
    )
    return {"mechanism": mechanism, "records": _Counted(*_records().values())}


def _report() -> dict[str, Any]:
    model = KernelSum(UNIT, (0, 1), kernel=RBF(0.2), epsilon=1.0, delta=1e-5, grid=(9, 9)).fit(*_records().values())
    run = ThompsonMechanism(
        RBF(0.2), actions=np.linspace(0, 1, 5)[:, None], response_range=(0, 1), rounds=2, schedule=9.0, ridge=1.0
    )
    with ThompsonSampler(run) as sampler:
        while not sampler.done:
            sampler.tell(np.zeros(len(sampler.ask())))
    return {"sampler": sampler, "model": model}


def _spatial() -> dict[str, Any]:
    Path("sales_2018.csv.gz").write_bytes(london_sales(2018).read_bytes())
    mechanism = PosteriorMechanism(
        RBF(0.2),
        LONDON,
        (12.0, 14.0),
        ridge=30.0,
        scale=0.5,
        locations=LONDON.grid((20, 16)),
        delta=1e-5,
        grid=(20, 16),
    )
    release = mechanism.run(Records(*_records(400, LONDON, 12, 14).values()), SeededRandomness(0))
    return {
        "x": np.linspace(LONDON.lower[0], LONDON.upper[0], 20),
        "y": np.linspace(LONDON.lower[1], LONDON.upper[1], 16),
        "release": release,
        "path": release.on_grid()[0].T,
        "guarantee": mechanism.privacy_loss(400).guarantee(1e-5),
    }


def _unit_of_privacy() -> dict[str, Any]:
    common = {"kernel": RBF(0.2), "grid": (9, 9)}
    return {
        "PosteriorSampler": partial(PosteriorSampler, ridge=30.0, **common),
        "KernelSum": partial(KernelSum, most_records=500, **common),
        "domain": UNIT,
        "response_range": (0, 1),
        "sensor": np.arange(200) // 4,
        **_records(),
    }


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": _readme,
    "docs/bayesopt.md": _bayesopt,
    "docs/bilevel.md": _bilevel,
    "docs/certificates.md": _certificates,
    "docs/lattice.md": _lattice,
    "docs/ledger.md": _ledger,
    "docs/report.md": _report,
    "docs/spatial.md": _spatial,
    "docs/unit-of-privacy.md": _unit_of_privacy,
}
