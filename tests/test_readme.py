"""The README's commands and Python, run as they stand there."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.datasets import london_sales

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks_in(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for word, text in fenced if word == language]


def commands() -> list[list[str]]:
    """Every `discretion ...` command in a block of its own."""
    blocks = "\n".join(blocks_in("")).replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in blocks.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("discretion ")]


@pytest.mark.slow
def test_the_commands_of_the_readme_work_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.csv.gz").write_bytes(london_sales(2018).read_bytes())
    ran = commands()
    assert len(ran) >= 4
    for words in ran:
        done = CliRunner().invoke(app, [word.replace("sales.csv", "sales.csv.gz") for word in words])
        assert done.exit_code == 0, (words, done.output)
    both = ["map.png", "excursion.geojson", "certificate.json", "certificate.txt"]
    for folder, stem in (("map", "sums"), ("paths", "paths")):
        assert all((tmp_path / folder / name).stat().st_size for name in [*both, f"{stem}.csv", f"{stem}.geojson"])


def test_the_map_of_single_rows_leads():
    first = next(words for words in commands() if words[0] == "release")
    assert first[first.index("--mechanism") + 1] == "kernel-sum"
    assert first[first.index("--unit") + 1] == "one sale"
    assert "--aggregate" not in first


def test_the_files_that_the_readme_names_are_there():
    root = Path(__file__).parents[1]
    links = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"examples/\w+\.toml", README)
    assert len(links) >= 6
    assert all((root / link).exists() for link in links)


@pytest.mark.slow
def test_the_python_of_the_readme_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, shlex.split("ledger init more.ledger --dataset x --epsilon 1 --delta 1e-5"))
    rng = np.random.default_rng(0)
    space = {"X": rng.uniform((503_000, 155_000), (562_000, 201_000), (4_000, 2)), "y": rng.uniform(12, 14, 4_000)}
    (code,) = blocks_in("python")
    exec(code, space)
    sets, mean = space["sets"], space["mean"]
    assert sets.inner.shape == sets.outer.shape == mean.shape == (236, 184)
    assert (sets.outer | ~sets.inner).all()
    assert np.isfinite(mean).any()
