"""All documents, run as they stand: the Python of each page in one namespace, commands, and what they show."""

import re

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from benchmarks.documents import PAGES, ROOT, Page, page
from benchmarks.given import given
from discretion.cli import app
from discretion.datasets import london_sales
from discretion.privacy import Ledger
from discretion.selection import Outcome

README = page("README.md")
FILES = [file for file in map(Page, PAGES) if file.blocks("python", "pycon")]

# --- Python


def after_readme(space):
    sets, mean = space["sets"], space["mean"]
    assert sets.inner.shape == sets.outer.shape == mean.shape == (236, 184)
    assert (sets.outer | ~sets.inner).all()
    assert np.isfinite(mean).any()


def after_tutorial(space):
    assert 0.1 < space["undecided"] < 0.6
    assert 0.2 < np.isfinite(space["mean"]).mean() < 0.9


def after_tuning(space):
    search, release = space["search"], space["release"]
    assert 0.999 * 3.0 <= search.privacy_loss(400).epsilon(1e-5) <= 3.0
    assert search.outcome_ is Outcome.CHOSEN
    assert search.release_.certificate.ledger_entry
    assert 0.999 * 2.0 <= release.certificate.epsilon <= 2.0
    assert release.choice["top"] in (50.0, 100.0, 200.0)


def after_selection(space):
    assert len(space["book"].entries()) == 3


def after_adapters(space):
    assert len(space["study"].trials) == 5
    if "chosen" in space:
        assert space["chosen"].shape == (3, 2)
        assert len(space["ledger"].entries()) == 1
        assert space["best"].shape == (1, 2)
    if "client" in space:
        table = space["client"].summarize()
        assert len(table) == 5
        np.testing.assert_allclose(table["gradient_x"], space["result"].gradients[:, 0])
        with pytest.raises(Exception, match=r"objective|[Oo]ptimization"):
            space["client"].get_best_parameterization()
        with pytest.raises(ValueError, match="no gradient"):
            space["dimension"](
                space["RangeParameterConfig"](name="k", parameter_type="int", bounds=(0, 8), step_size=2)
            )


def after_migration(space):
    # The two Renyi accounts agree, and so do the numerical ones: 0.1 % is their discretisation.
    here = space["training_here"]
    assert here.guarantee(1e-5, numerical=False).epsilon == pytest.approx(space["by_renyi"], rel=1e-3)
    assert here.epsilon(1e-5) == pytest.approx(space["by_distributions"], rel=1e-3)
    assert space["paths_here"].shape == space["paths_there"].T.shape


def after_clusters(space):
    assert space["on_dask"].auc == space["alone"].auc
    assert space["release"].values.shape == (1, 144)
    assert space["release"].certificate.ledger_entry


def before_clusters(monkeypatch):
    pytest.importorskip("distributed")


def before_planner(monkeypatch):
    from discretion.posterior.planner import plan_map

    fewer = {"worlds": 20, "posterior": False, "lattice": False}
    monkeypatch.setattr(plan_map, "__kwdefaults__", plan_map.__kwdefaults__ | fewer)


BEFORE = {"docs/clusters.md": before_clusters, "docs/planner.md": before_planner}
AFTER = {
    "docs/clusters.md": after_clusters,
    "README.md": after_readme,
    "docs/tutorial.md": after_tutorial,
    "docs/tuning.md": after_tuning,
    "docs/selection.md": after_selection,
    "docs/adapters.md": after_adapters,
    "docs/migration.md": after_migration,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_python_of_a_page_works(file, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if any("import ray" in block.text for block in file.blocks("python")):
        request.getfixturevalue("alone_with_ray")
    BEFORE.get(file.name, lambda monkeypatch: None)(monkeypatch)
    space = {"__name__": "document"} | given(file.name)
    try:
        assert file.run(space) or all(block.sketch or block.missing() for block in file.blocks("python"))
        AFTER.get(file.name, lambda space: None)(space)
    finally:
        if "ray" in space:
            space["ray"].shutdown()


def test_few_blocks_are_sketches():
    sketches = [(file.name, block.line) for file in FILES for block in file.blocks("python") if block.sketch]
    assert len(sketches) <= 3, sketches


# --- commands


def parsed(words):
    """The command that words name, and how many of them name it."""
    command, used = typer.main.get_command(app), 0
    while used < len(words) and words[used] in getattr(command, "commands", {}):
        command = command.commands[words[used]]
        used += 1
    return command, used


@pytest.mark.parametrize("file", [Page(path) for path in PAGES], ids=lambda file: file.name)
def test_the_commands_of_a_page_and_their_options_exist(file):
    for command in file.commands():
        found, used = parsed(command.words)
        options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
        assert used or command.words[0] in options, command.words
        given = {word.partition("=")[0] for word in command.words[used:] if word.startswith("--")}
        assert given <= options, (command.words, given - options)


def run(file, tmp_path, monkeypatch, *, only=lambda words: True):
    """Run the commands of a page in their order, and compare what they print with what the page shows."""
    monkeypatch.chdir(tmp_path)
    for command in file.commands():
        if not only(command.words):
            continue
        done = CliRunner().invoke(app, command.words)
        refused = any(line.startswith("error:") for line in command.shown)
        assert bool(done.exit_code) == refused, (command.words, done.output)
        assert command.absent(done.output) == [], (command.words, done.output)


@pytest.mark.slow
def test_the_tutorial_leads_where_it_says(tmp_path, monkeypatch):
    for year, name in ((2018, "sales.csv.gz"), (2017, "earlier.csv.gz")):
        (tmp_path / name).write_bytes(london_sales(year).read_bytes())
    run(page("docs/tutorial.md"), tmp_path, monkeypatch)
    made = {path.name for path in (tmp_path / "map").iterdir()}
    assert {"map.png", "report.html", "certificate.json", "sums.csv", "excursion.geojson"} <= made
    assert list((tmp_path / "again").glob("*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["docs/selection.md", "docs/bilevel.md"])
def test_prices_are_as_shown(name, tmp_path, monkeypatch):
    run(page(name), tmp_path, monkeypatch, only=lambda words: words[0] in {"cost", "calibrate"})


@pytest.mark.slow
def test_the_commands_of_the_readme_work_in_their_order(tmp_path, monkeypatch):
    (tmp_path / "sales.csv.gz").write_bytes(london_sales(2018).read_bytes())
    ran = [command.words for command in README.commands()]
    assert len(ran) >= 4
    monkeypatch.chdir(tmp_path)
    for words in ran:
        done = CliRunner().invoke(app, [word.replace("sales.csv", "sales.csv.gz") for word in words])
        assert done.exit_code == 0, (words, done.output)
    both = ["map.png", "excursion.geojson", "certificate.json", "certificate.txt"]
    for folder, stem in (("map", "sums"), ("paths", "paths")):
        assert all((tmp_path / folder / name).stat().st_size for name in [*both, f"{stem}.csv", f"{stem}.geojson"])


def test_the_map_of_single_rows_leads():
    first = next(command.words for command in README.commands() if command.words[0] == "release")
    assert first[first.index("--mechanism") + 1] == "kernel-sum"
    assert first[first.index("--unit") + 1] == "one sale"
    assert "--aggregate" not in first


# --- what they name


def test_the_files_that_the_readme_names_are_there():
    text = README.path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)[)#]", text) + re.findall(r"examples/\w+\.toml", text)
    assert len(links) >= 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_proof_notes_that_docstrings_name_are_there():
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")))
    assert len(named) >= 60
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


@pytest.mark.slow
def test_the_example_tunes_a_classifier(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from examples import tuning

    tuned = tuning.main(tmp_path)
    said = capsys.readouterr().out
    assert tuned.outcome_ is Outcome.CHOSEN
    assert tuned.best_score_ > 0.8
    assert "PRIVACY CERTIFICATE" in said
    assert "PrivateLogisticRegression with alpha" in said
    (entry,) = Ledger.open(tmp_path / "tumours.ledger").entries()
    assert tuned.release_.certificate.ledger_entry.endswith(f"#{entry.id}")
    assert not (tmp_path / "tumours.journal").exists()
