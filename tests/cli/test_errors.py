"""Errors at the command line as prose: what, where, how to mend; before anything is spent, and of no record."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.privacy import Ledger

WORDS = {
    "covariates": "x,y",
    "domain": "503000:562000,155000:201000",
    "response": "v",
    "response-range": "12:14",
    "epsilon": "1",
    "grid": "8",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "sales.csv"
    rows = np.random.default_rng(0).uniform((503000, 155000, 12), (562000, 201000, 14), (50, 3))
    np.savetxt(path, rows, delimiter=",", header="x,y,v", comments="", fmt="%.3f")
    return path


def said(table, tmp_path, **changes: str) -> str:
    """What a release says that is refused; nothing was reserved."""
    book = tmp_path / "book.ledger"
    if not book.exists():
        Ledger.create(book, dataset="sales", epsilon=9.0, delta=0.1)
    words = {**WORDS, "out": str(tmp_path / "out"), "ledger": str(book)}
    words |= {name.replace("_", "-"): value for name, value in changes.items()}
    done = CliRunner().invoke(
        app, ["release", str(table), *(f"--{name}={value}" for name, value in words.items() if value)]
    )
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert not Ledger.open(book).entries()
    return done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": "0"}, "--epsilon must be a positive number; got 0"),
        ({"epsilon": "nan"}, "--epsilon must be a positive number; got nan"),
        ({"delta": "0"}, "--delta 0 is no probability: it must lie strictly between 0 and 1"),
        ({"delta": "many"}, "--delta: 'many' is not a number"),
        ({"delta": "n^2"}, "--delta n^2 is 4 for n = 2"),
        ({"covariates": "x"}, "--covariates names 1 column, --domain has 2 ranges: give low:high for each column"),
        ({"length-scale": "0"}, "--length-scale must be positive"),
        ({"transform": "sqrt"}, "--transform must be one of"),
        ({"encoding": "klingon"}, "--encoding 'klingon' is not known"),
        ({"delimiter": ";;"}, "--delimiter must be one of"),
        (
            {"crs": "BNG"},
            "'BNG' is not a coordinate reference system that PROJ knows: give a code, such as EPSG:27700.",
        ),
        ({"crs": "EPSG:4326"}, "Name the projected system that the domain is in, such as EPSG:27700"),
        ({"crs": "EPSG:27700", "domain": "0:1,0:2"}, "looks like degrees"),
        ({"response": "price"}, "no such column"),
        ({"prior": "districts:none.geojson", "grid": ""}, "none.geojson can't be read: No such file"),
    ],
)
def test_an_error_names_the_option_and_ends_in_a_full_stop(table, tmp_path, changes, message):
    told = " ".join(said(table, tmp_path, **changes).split())
    assert message in told
    assert told.startswith("error: ")
    assert "\n  - " in told or told.endswith(".")
    assert not re.search(r"\b(response_range|length_scale|unit_id)\b", told)


def test_no_blank_line_stands_before_an_error(table, tmp_path):
    assert said(table, tmp_path, response="price").startswith("error: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cost kernel-sum --epsilon 0", "--epsilon must be a positive finite number; got 0.0"),
        ("cost kernel-sum --scale 0", "--scale must be a positive finite number; got 0.0"),
        ("cost posterior --n 9 --ridge -3 --scale 1 --rule renyi", "--ridge must be a finite number > 0"),
        ("calibrate posterior --n 9 --ridge 3 --epsilon 0 --rule renyi", "--epsilon must be a finite number > 0"),
        (
            "audit pair --n 9 --ridge 1 --scale 1 --kernel rbf --length-scale 1 --domain 0:1 --seconds -1",
            "--seconds must",
        ),
        ("plan posterior --n 99 --domain 0:1 --response-range 0:1 --kernels gauss", "--kernels are names among"),
    ],
)
def test_a_number_out_of_range_is_named_by_its_option(words, message):
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")


def test_one_row_says_why_it_has_no_delta(tmp_path):
    table = tmp_path / "one.csv"
    table.write_text("x,y,v\n530000,180000,13\n")
    told = " ".join(said(table, tmp_path).split())
    assert "--delta n^-1.1 is 1 for n = 1; it must lie strictly between 0 and 1" in told
    assert "13" not in told.replace("n^-1.1", "")
