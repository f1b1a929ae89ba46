"""``discretion release --unit-id``: sensors are protected, not readings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion import Certificate, Ledger
from discretion.cli import app
from discretion.cli.console import BAD_INPUT, REFUSED
from discretion.privacy.units import protected


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout if code == 0 else result.stderr

    return call


@pytest.fixture
def table(tmp_path) -> Path:
    """Case 71: 300 readings of 30 sensors."""
    rng = np.random.default_rng(0)
    path = tmp_path / "readings.csv"
    rows = [f"{rng.uniform():.4f},{rng.uniform():.4f},{rng.uniform(-1, 1):.4f},s{i % 30}" for i in range(300)]
    path.write_text("\n".join(["x,y,z,sensor", *rows]))
    return path


def words(table: Path, out: Path, **changes: object) -> list[object]:
    given = {
        "covariates": "x,y",
        "response": "z",
        "domain": "0:1,0:1",
        "response-range": "-1:1",
        "grid": "6",
        "epsilon": "3",
        "unit-id": "sensor",
        "out": out,
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    return ["release", table, *(f"--{key}={value}" for key, value in given.items() if value is not None)]


def made(out: Path) -> Certificate:
    return Certificate.from_json((out / "certificate.json").read_text())


@pytest.mark.parametrize("mechanism", ["kernel-sum", "posterior"])
def test_one_reading_of_each_sensor(run, table, tmp_path, mechanism):
    out, report = tmp_path / "out", tmp_path / "report"
    run(*words(table, out, mechanism=mechanism, private_report=report, unit="One sensor"))
    certificate = made(out)
    assert certificate.n == 30
    assert certificate.unit.startswith("One sensor: one of its records takes part, picked at random without looking")
    assert any("At most 1 record of one unit of privacy is among" in text for text in certificate.enforced)
    # how many were left out is for the custodian alone
    assert "270 rows left out, so that each of 30 units has at most 1" in report.read_text()
    assert not [path for path in out.iterdir() if b"270 " in path.read_bytes() and path.suffix in (".json", ".txt")]


def test_ten_readings_of_each_sensor_as_sums(run, table, tmp_path):
    out, book = tmp_path / "out", tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 9, "--delta", "1e-4")
    more = {"max_per_unit": 10, "delta": "1e-4", "most_records": 1000}
    said = json.loads(run(*words(table, out, ledger=book, **more), "--json"))
    certificate = made(out)
    assert said["n"] is None is certificate.n
    assert "at most 10 of its records take part" in certificate.unit
    assert certificate.parameters["contributions"] == 10
    assert [entry.description["n"] for entry in Ledger.open(book).entries()] == [None]
    single = tmp_path / "single"
    run(*words(table, single, delta="1e-4"))
    assert certificate.parameters["scale"] == pytest.approx(10 * made(single).parameters["scale"], rel=1e-3)
    run("certificate", "verify", out / "certificate.json", "--ledger", book)


def test_several_readings_of_each_sensor_as_paths(run, table, tmp_path):
    out = tmp_path / "out"
    run(*words(table, out, mechanism="posterior", max_per_unit=3, delta="1e-4"))
    certificate = made(out)
    assert certificate.n == 90
    assert 2.9 < certificate.epsilon <= 3.0
    assert "group of 3" in certificate.rule
    assert any("replaced by as many others" in text for text in certificate.limits)
    run("certificate", "verify", out / "certificate.json")


def test_without_an_id_the_report_says_one_row(run, table, tmp_path):
    out = tmp_path / "out"
    run(*words(table, out, unit_id=None))
    assert made(out).unit == "one row of the table; a person with several rows is not covered as a whole"
    assert made(out).n == 300
    assert any("several rows of one person are not covered together" in text for text in made(out).declared)


@pytest.mark.parametrize("mechanism", ["kernel-sum", "posterior"])
def test_a_unit_in_words_alone_is_declared_not_checked(run, table, tmp_path, mechanism):
    out = tmp_path / "out"
    run(*words(table, out, unit_id=None, unit="One patient", mechanism=mechanism))
    said = (
        "Each row of the table is one patient; nothing checked this, and several rows of one are not covered together."
    )
    assert said in made(out).declared
    run(*words(table, out, unit="One patient", mechanism=mechanism), "--force")
    assert said not in made(out).declared
    assert any("One value of the column of ids is one unit" in text for text in made(out).declared)


@pytest.mark.parametrize("mechanism", ["kernel-sum", "posterior"])
def test_only_ids_make_a_headline_about_persons(run, table, tmp_path, mechanism):
    def headlines(out: Path) -> tuple[str, str, str]:
        page = " ".join((out / "report.html").read_text().split())
        return " ".join((out / "certificate.txt").read_text().split()), page, run("certificate", "verify", out)

    declared, owned = tmp_path / "declared", tmp_path / "owned"
    run(*words(table, declared, unit_id=None, unit="one patient", mechanism=mechanism))
    run(*words(table, owned, unit="one patient", mechanism=mechanism))
    honest = "one row of the table, declared to be one patient; several rows of one are not protected together."
    text, page, said = headlines(declared)
    assert f"The unit of privacy: {honest}" in text
    assert page.count(f"The unit of privacy: {honest}") == 2
    assert "unit: one row, declared one patient" in page
    assert "Everything that one row says is protected" in page
    assert "a unit's record says" not in page
    assert f"Unit of privacy: {honest[:-1]}\n" in said
    text, page, said = headlines(owned)
    confident = "one patient: one of its records takes part, picked at random"
    assert f"The unit of privacy: {confident}" in text
    assert f"unit: {confident}" in page
    assert "a unit&#x27;s record says is protected" in page
    assert f"Unit of privacy: {confident}" in said


def test_deleting_or_adding_a_sentence_is_found_and_changes_no_headline(run, table, tmp_path):
    out = tmp_path / "out"
    run(*words(table, out, unit_id=None, unit="one patient"))
    file, whole = out / "certificate.json", json.loads((out / "certificate.json").read_text())
    row = "Unit of privacy: one row of the table, declared to be one patient"
    assert row in run("certificate", "verify", out)

    def refused(**changes: object) -> str:
        file.write_text(json.dumps(whole | changes))
        result = CliRunner().invoke(app, ["certificate", "verify", str(out)])
        assert result.exit_code == REFUSED, result.output
        return result.stdout

    said = refused(declared=[line for line in whole["declared"] if "patient" not in line])
    assert "is not stated as declared, which follows from the parameters" in said
    assert row in said
    assert "is stated as enforced, which does not follow" in refused(enforced=[*whole["enforced"], "Nobody has two."])
    file.write_text(json.dumps(whole | {"library_version": "0.0.1", "declared": whole["declared"][:-1]}))
    older = run("certificate", "verify", out)
    assert older.startswith("VERIFIED, not signed:")
    assert "Differs: " in older


@pytest.mark.parametrize(
    ("unit", "most", "full", "short"),
    [
        ("one row of the table; a person with several rows is not covered as a whole", 1, None, None),
        ("one record (its covariates and its response)", 1, None, None),
        ("any 3 records", 3, None, None),
        ("one record: a patient with all visits", 1, "one row of the table, declared to be", "one row, declared"),
        ("The whole record of a patient", 1, "declared to be the whole record of a patient", "declared the whole"),
        ("one patient.", 4, "any 4 rows, declared to be all those of one patient", "any 4 rows, declared one patient"),
    ],
)
def test_who_is_protected_without_ids(unit, most, full, short):
    found, brief = protected(unit, (), most), protected(unit, (), most, short=True)
    assert (full or unit) in found
    assert (short or unit) in brief
    counted = ("At most 1 record of one unit of privacy is among the records.",)
    assert protected(unit, counted, most) == unit.rstrip(".")


def test_a_ledger_is_for_one_unit(run, table, tmp_path):
    book = tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 20, "--delta", "1e-3")
    run(*words(table, tmp_path / "a", ledger=book, unit="one sensor"))
    run(*words(table, tmp_path / "b", ledger=book, unit="One sensor", max_per_unit=2, delta=1e-4, most_records=99))
    other = words(table, tmp_path / "c", ledger=book, unit_id=None, unit="one reading")
    refused = run(*other, code=BAD_INPUT)
    assert "protects another unit (one sensor: one of its records" in refused
    assert len(Ledger.open(book).entries()) == 2
    report = run("ledger", "spend-report", book)
    assert "Unit of entry 1: one sensor: one of its" in report
    assert "don't add up" not in report
    run(*other, "--other-unit")
    for command in ("spend-report", "show"):
        assert "different units don't add up" in run("ledger", command, book)
    page = (tmp_path / "c" / "report.html").read_text()
    assert "of no unit: see below, as of entry 3" in page
    assert "all entries together" not in page
    assert "all entries together, as of entry 1" in (tmp_path / "a" / "report.html").read_text()
    rows = json.loads(run("ledger", "spend-report", book, "--json"))["entries"]
    assert [row["unit"] for row in rows] == [made(tmp_path / name).unit for name in "abc"]
    run("certificate", "verify", tmp_path / "c", "--ledger", book)


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_rows_left_out_by_rule_are_named_as_not_covered(run, table, tmp_path, relation):
    table.write_text(table.read_text() + "\n,0.5,0.1,s3\n7,0.5,0.1,s3\n")
    changes = {"neighbours": relation, "missing": "drop", "outside": "drop", "where": "sensor=s3", "unit_id": None}
    changes |= {"delta": 1e-4, "most_records": 99} if relation == "add-remove" else {}
    run(*words(table, tmp_path / "out", **changes))
    certificate = made(tmp_path / "out")
    given = ", given how many were kept" if relation == "replace" else ""
    assert certificate.limits[-1] == (
        "Left out by rule: rows without sensor=s3, rows with a missing value, rows outside the domain. "
        f"The guarantee protects the records kept{given}."
    )
    assert "Left out" not in certificate.unit
    run("certificate", "verify", tmp_path / "out")


def test_a_delta_of_one_over_n_is_told(run, table, tmp_path):
    def said(**changes: object) -> str:
        result = CliRunner().invoke(app, [*map(str, words(table, tmp_path / "out", **changes)), "--force"])
        assert result.exit_code == 0, result.output
        return result.stderr

    words_of_promise = "At a delta of 1/n or more a release could publish whole records"
    assert "1/n or more" in said(unit_id=None, delta="0.0034")
    assert words_of_promise in made(tmp_path / "out").promise
    assert "1/n or more" not in said(unit_id=None)
    assert words_of_promise not in made(tmp_path / "out").promise


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit_id": None, "max_per_unit": 2}, "--max-per-unit needs --unit-id"),
        ({"max_per_unit": 0}, "at least 1"),
        ({"max_per_unit": 2}, "--most-records"),
        ({"max_per_unit": 2, "most_records": 1000}, "--delta must be a number"),
        ({"most_records": 1000}, "go together"),
        ({"aggregate": "hexagons:0.1"}, "mixed"),
        ({"mechanism": "auto", "threshold": 0, "max_per_unit": 2}, "auto"),
        ({"unit_id": "x"}, "another column"),
        ({"unit_id": "owner"}, "no such column"),
    ],
)
def test_mistakes_are_found_before_anything_is_spent(run, table, tmp_path, changes, message):
    book = tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 9, "--delta", "1e-3")
    assert message in run(*words(table, tmp_path / "out", ledger=book, **changes), code=BAD_INPUT)
    assert not Ledger.open(book).entries()
