"""Small releases of planted records, once for all tests of their pages."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import planted
from discretion.cli import app

PUBLIC = (
    "--covariates easting_m,northing_m --response price_gbp --transform log --outside drop "
    "--domain 503000:562000,155000:201000 --response-range 12:14 --delta 1e-3 --epsilon 8 --threshold 13.28 "
    "--crs EPSG:27700 --unit sale"
)


def command(words: str) -> str:
    """What a command prints; it has to succeed."""
    ran = CliRunner().invoke(app, words.split())
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the releases `sums`, `paths`, `lattice` and `tuned`, a ledger and a report for the owner alone."""
    pytest.importorskip("pyproj")
    home = tmp_path_factory.mktemp("released")
    planted.table(home / "sales.csv")
    table, book = home / "sales.csv", home / "book.ledger"
    command(f"ledger init {book} --dataset planted --epsilon 40 --delta 1e-2")
    sums = f"release {table} {PUBLIC} --kernel rbf --length-scale 0.2 --grid 31,25 --floor 2 --ledger {book}"
    sums += " --source Attribution-of-the-data"
    command(f"{sums} --private-report {home / 'private.txt'} --out {home / 'sums'}")
    paths = f"release {table} {PUBLIC} --mechanism posterior --ridge 30 --length-scale 0.2 --grid 12,10 --paths 3"
    command(f"{paths} --threshold 13 --ledger {book} --out {home / 'paths'}")
    lattice = f"release {table} {PUBLIC} --prior lattice:6000 --ridge 6 --rule closed-form --paths 2"
    command(f"{lattice} --out {home / 'lattice'}")
    tuned = f"tune {table} {PUBLIC} --kernel rbf --length-scale 0.2,0.4 --runs geometric --mean 2 --grid 9 --floor 1"
    command(f"{tuned} --out {home / 'tuned'}")
    return home
