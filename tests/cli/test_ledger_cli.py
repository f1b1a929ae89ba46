"""`discretion ledger`, run as a user runs it, on a file and on a database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.postgres import Cluster, find
from discretion.cli import app
from discretion.cli.console import BAD_INPUT, OVER_BUDGET, REFUSED
from discretion.posterior import KernelSum
from discretion.privacy import GaussianDP, Ledger, Neighbours, PureDP

REPLACE = Neighbours.REPLACE
NUMBERS = count(1)


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["ledger", *(str(word) for word in words)])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else " ".join(result.stderr.split())

    return call


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if find() is None:
        pytest.skip("no PostgreSQL here (Debian: apt-get install postgresql)")
    with Cluster(durable=False) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"{next(NUMBERS)}.ledger")
    url = request.getfixturevalue("cluster").url
    return lambda: f"{url}&ledger=number-{next(NUMBERS)}"


BUDGET = ("--dataset", "Sales [2018]", "--epsilon", "3", "--delta", "1e-5")


def filled(where: str) -> Ledger:
    ledger = Ledger.open(where)
    for k in range(3):
        ledger.reserve(GaussianDP(0.2 + k / 10, neighbours=REPLACE), {"mechanism": f"kernel-sum [{k}]", "n": 4000})
    ledger.book(1)
    ledger.fail(2, "it rained")
    return ledger


def test_a_ledger_from_beginning_to_end(run, place, tmp_path):
    where = place()
    assert "Sales [2018], budget epsilon 3 at delta 1e-05." in run("init", where, *BUDGET)
    assert "left as it is" in run("init", where, *BUDGET, code=REFUSED)
    book = filled(where)

    shown = run("show", where)
    assert "spent epsilon 2.1656 of 3 at delta 1e-05 (replace neighbours, renyi composition)" in shown
    assert "kernel-sum [2]" in shown
    assert json.loads(run("show", where, "--json"))["spent_epsilon"] == book.spent().epsilon

    report = run("spend-report", where)
    for words in ("kernel-sum [1]", "4,000", "booked", "failed", "reserved", "0.7256", "1.3862", "2.1656", "0.8344"):
        assert words in report, report
    told = json.loads(run("spend-report", where, "--last", "2", "--json"))
    assert (told["entries_in_all"], told["neighbours"], told["composition"]) == (3, "replace", "renyi")
    assert (told["spent_epsilon"], told["remaining_epsilon"]) == (book.spent().epsilon, book.remaining())
    rows = told["entries"]
    assert rows[0]["description"] == {"mechanism": "kernel-sum [1]", "n": 4000}
    assert [row["id"] for row in rows] == [2, 3]
    assert [row["epsilon_after"] for row in rows] == [each.epsilon for each in book.odometer()][1:]
    assert rows[-1]["epsilon_after"] == book.spent().epsilon
    assert rows[0]["reason"] == "it rained"
    assert rows[0]["who"] == book.entries()[1].who
    assert "    2  20" not in run("spend-report", where, "--last", "1")

    found = json.loads(run("verify", where, "--json"))
    assert found == {"events": 5, "entries": 3, "head": book.head(), "overdrawn": False}
    assert f"head {book.head()}" in run("verify", where, "--head", book.head())
    assert "does not contain the head" in run("verify", where, "--head", "9" + book.head(), code=REFUSED)
    assert "A head is" in run("verify", where, "--head", "nonsense", code=BAD_INPUT)

    out = tmp_path / "export.jsonl"
    run("export", where, "--out", out)
    assert out.read_text() == run("export", where)
    assert "exists" in run("export", where, "--out", out, code=BAD_INPUT)
    assert json.loads(run("verify", out, "--json")) == found | {"overdrawn": None}
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines).replace("it rained", "it poured"))
    assert "was edited" in run("verify", out, code=REFUSED)
    out.write_text("".join(lines[:-1]))
    assert "cut short" in run("verify", out, code=REFUSED)

    assert ": Sales [2018], epsilon 3 at delta 1e-05 (replace neighbours, renyi)" in run("list", where)


def test_a_report_is_readable_on_a_terminal(run, tmp_path):
    where = tmp_path / "book"
    run("init", where, *BUDGET)
    book = Ledger.open(where)
    name = "posterior-paths-of-a-process-that-somebody-named-at-great-length-indeed"
    for _ in range(2):
        book.reserve(PureDP(0.5, neighbours=REPLACE), {"mechanism": name, "n": 1234567})
    book.fail(2, "MechanismFailed: " + 40 * "many words ")
    lines = run("spend-report", where).splitlines()[1:]
    assert max(map(len, lines)) <= 80, lines
    assert sum(line.split()[:1] == ["2"] and line.split()[-3:] == ["0.5000", "1.0000", "2.0000"] for line in lines) == 1
    assert "n = 1,234,567" in " ".join(lines)


def test_what_happened_without_the_ledger_is_recorded_and_overdraws_it(run, place, tmp_path):
    where = place()
    run("init", where, *BUDGET)
    past = ("record-past", where, "--what", "DP-SGD on a laptop")
    assert "one of the two" in run(*past, code=BAD_INPUT)
    assert "spent epsilon 1.0000 of 3" in run(*past, "--epsilon", "1")
    assert "--overdraw" in run(*past, "--epsilon", "2.5", "--delta", "1e-6", code=OVER_BUDGET)
    recorded = " ".join(run(*past, "--epsilon", "2.5", "--delta", "1e-6", "--overdraw").split())
    assert "entry 2" in recorded
    for words in ("show", "spend-report", "verify"):
        said = " ".join(run(words, where).split())
        assert "The budget is overdrawn" in said, said
        assert json.loads(run(words, where, "--json"))["overdrawn"] is True
    report = run("spend-report", where)
    assert report.count("DP-SGD on a laptop (recorded afterwards)") == 2
    assert "No further Gaussian release would be accepted" in report

    saved, rng = tmp_path / "certificate.json", np.random.default_rng(0)
    elsewhere = Ledger.create(tmp_path / "elsewhere", dataset="d", epsilon=9, delta=1e-3)
    sums = KernelSum((0.0, 1.0), (0.0, 1.0), epsilon=1.0, delta=1e-5, grid=4, ledger=elsewhere)
    sums.fit(rng.uniform(size=(50, 1)), rng.uniform(size=50))
    sums.release_.certificate.save(saved)
    run(*past, "--certificate", saved, "--overdraw")
    last = Ledger.open(where).entries()[-1]
    assert (last.description["mechanism"], last.description["n"]) == ("kernel-sum", 50)
    assert last.loss.epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    twice = ("record-past", tmp_path / "elsewhere", "--what", "again", "--certificate", saved)
    assert "in this ledger already" in run(*twice, code=BAD_INPUT)
    again = (*past, "--certificate", saved, "--overdraw")
    assert "recorded already, as entry 3" in run(*again, code=BAD_INPUT)
    run_verify = CliRunner().invoke(app, ["certificate", "verify", str(saved), "--ledger", str(where)])
    assert run_verify.exit_code == 0, run_verify.output

    made = json.loads(saved.read_text())
    made["loss"]["mu"] /= 10
    saved.write_text(json.dumps(made))
    assert "certificate is refused" in " ".join(run(*again, code=BAD_INPUT).split())
    assert len(Ledger.open(where).entries()) == 3


def test_a_past_release_of_another_unit_is_recorded_when_asked_to(run, place, tmp_path):
    where = place()
    run("init", where, *BUDGET)
    Ledger.open(where).record_past(PureDP(0.1, neighbours=REPLACE), {"unit": "one street"})
    saved, rng = tmp_path / "certificate.json", np.random.default_rng(0)
    sums = KernelSum((0.0, 1.0), (0.0, 1.0), epsilon=1.0, delta=1e-5, grid=4)
    sums.fit(rng.uniform(size=(50, 1)), rng.uniform(size=50)).release_.certificate.save(saved)
    past = ("record-past", where, "--what", "a map", "--certificate", saved)
    assert "--other-unit" in run(*past, code=BAD_INPUT)
    assert "entry 2" in run(*past, "--other-unit")


def test_two_copies_are_compared(run, tmp_path):
    where, copy, elsewhere = (tmp_path / name for name in ("book", "copy", "elsewhere"))
    for each in (where, elsewhere):
        run("init", each, *BUDGET)
    book = filled(str(where))
    copy.write_bytes(where.read_bytes())
    assert "the same, of 5 events" in run("compare", where, copy)
    book.book(3)
    out = tmp_path / "export.jsonl"
    run("export", where, "--out", out)
    assert f"{where} goes on from {copy}: 1 event more" in " ".join(run("compare", copy, where).split())
    told = json.loads(run("compare", out, copy, "--json"))
    assert told == {"shared_events": 5, "only_in_first": 1, "only_in_second": 0}
    Ledger.open(copy).fail(3, "it snowed")
    parted = CliRunner().invoke(app, ["ledger", "compare", str(where), str(copy)])
    assert parted.exit_code == REFUSED
    assert "parted after event 5" in parted.stdout
    assert "two ledgers" in run("compare", where, elsewhere, code=REFUSED)
    out.write_text(out.read_text().replace("it rained", "it poured"))
    assert "was edited" in run("compare", copy, out, code=REFUSED)


def test_a_large_delta_is_told_when_the_budget_is_made(tmp_path):
    for name, delta, told in (("a", "0.01", True), ("b", "1e-3", False)):
        words = ["ledger", "init", str(tmp_path / name), "--dataset", "d", "--epsilon", "1", "--delta", delta]
        assert ("delta 0.01 is large" in CliRunner().invoke(app, words).stderr) is told


def test_rules_and_fingerprints(run, place, tmp_path):
    key, table, other = tmp_path / "key", tmp_path / "sales.csv", tmp_path / "other.csv"
    key.write_bytes(bytes(range(32)))
    table.write_text("x,y\n1,2\n")
    other.write_text("x,y\n1,3\n")
    where = place()
    assert "--key-file" in run("init", where, *BUDGET, "--records", table, code=BAD_INPUT)
    rule = ("--composition", "renyi-filter", "--order", "8", "--records", table, "--key-file", key)
    run("init", where, *BUDGET, *rule)
    assert "renyi-filter composition" in run("show", where)
    assert Ledger.open(where).budget.order == 8.0
    run("verify", where, "--records", table, "--key-file", key)
    assert "not the records" in run("verify", where, "--records", other, "--key-file", key, code=REFUSED)
    assert "needs an order" in run("init", place(), *BUDGET, "--composition", "renyi-filter", code=BAD_INPUT)


def test_a_certificate_of_a_release_that_is_gone_is_noticed(run, tmp_path):
    where, saved = tmp_path / "book", tmp_path / "certificate.json"
    run("init", where, *BUDGET)
    book = Ledger.open(where)
    sums = KernelSum((0.0, 1.0), (0.0, 1.0), epsilon=1.0, delta=1e-6, grid=4, ledger=book)
    rng = np.random.default_rng(1)
    sums.fit(rng.uniform(size=(50, 1)), rng.uniform(size=50))
    sums.release_.certificate.save(saved)
    said = run("verify", where, "--certificate", saved, "--head", Ledger.open(where).head())
    assert "In order: 1 entry in 2 events." in said
    assert "Certificate is entry 1; the kept head is event 2." in said
    assert "Certificate is entry 1." in run("verify", where, "--certificate", saved)
    other = tmp_path / "other.json"
    other.write_text(saved.read_text().replace('"scale": ', '"scale": 1'))
    assert "for another release" in run("verify", where, "--certificate", other, code=REFUSED)
    emptied = tmp_path / "emptied"
    emptied.write_text("".join(f"{line}\n" for line in [*list(book.export())[:2]]))
    assert "has not booked it" in run("verify", emptied, "--certificate", saved, code=REFUSED)


def test_several_ledgers_of_a_database(run, cluster):
    url = cluster.database()
    assert "no ledger in this database" in run("list", url, code=REFUSED)
    for name in ("trees", "sales"):
        run("init", f"{url}&ledger={name}", *BUDGET)
    Ledger.open(f"{url}&ledger=trees").reserve(PureDP(1.0, neighbours=REPLACE), {})
    assert [line.split(":")[0] for line in run("list", url).splitlines()] == ["sales", "trees"]
    assert "with ?ledger=NAME. The database has: 'sales', 'trees'" in run("show", url, code=REFUSED)
    assert json.loads(run("show", f"{url}&ledger=trees", "--json"))["spent_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert json.loads(run("show", f"{url}&ledger=sales", "--json"))["spent_epsilon"] == 0.0


def test_mistakes_are_told_in_plain_words(run, tmp_path):
    assert "There is no ledger" in run("show", tmp_path / "absent", code=REFUSED)
    assert "There is no ledger" in run("verify", tmp_path / "absent", code=REFUSED)
    (tmp_path / "json").write_text("{}\n")
    assert "neither a ledger nor the export of one" in run("verify", tmp_path / "json", code=REFUSED)
    assert "not at mysql://" in run("show", "mysql://u:secret@h/d", code=BAD_INPUT)
    said = run("show", "postgresql://u:secret@localhost:1/d", code=REFUSED)
    assert "cannot be reached" in said
    assert "secret" not in said
