"""`discretion tune`: settings chosen on a private table, and the map they make."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT, OVER_BUDGET, REFUSED
from discretion.cli.tune import NO_MAP
from discretion.privacy import Ledger, State
from discretion.privacy.signing import read_certificate

WORDS = {
    "covariates": "x,y",
    "response": "z",
    "domain": "0:1,0:1",
    "response-range": "0:1",
    "kernel": "rbf",
    "length-scale": "0.02,0.2",
    "epsilon": "6",
    "delta": "1e-4",
    "runs": "geometric",
    "mean": "3",
    "grid": "9",
    "threshold": "0.5",
    "floor": "1",
}
PATHS = {"mechanism": "posterior", "length-scale": "0.2", "ridge": "3,30", "floor": None}
NO_RUN = {"runs": "poisson", "mean": "1e-6"}
"""A law under which no run is drawn, but for one search in a million."""


def words(**changes):
    merged = WORDS | {key.replace("_", "-"): value for key, value in changes.items()}
    given = [(f"--{key}", str(value)) for key, value in merged.items() if value is not None]
    return [word for pair in given for word in pair if word != "True"]


def tuned(table, out, code=0, **changes):
    done = CliRunner().invoke(app, ["tune", str(table), "--out", str(out), *words(**changes)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "z"])
        writer.writerows(rows.tolist())
    return path


def points(seed, n=300):
    """High in the east, low in the west; sorted by place, as a table may be."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=(n, 2))
    rows = np.column_stack([places, np.clip((places[:, 0] > 0.5) + rng.normal(0, 0.1, n), 0, 1)])
    return rows[np.argsort(rows[:, 0])]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "private.csv", points(0))


@pytest.fixture
def book(tmp_path):
    place = tmp_path / "book.sqlite"
    Ledger.create(place, dataset="points", epsilon=6.0, delta=1e-4)
    return place


# --- one command, one map, one certificate


def test_one_command_makes_a_map_under_one_certificate_for_tuning_and_release(table, tmp_path, book):
    out = tmp_path / "out"
    told = json.loads(tuned(table, out, json=True, ledger=book, **PATHS).stdout)
    assert told["outcome"] == "chosen"
    assert told["candidates"] == 2
    assert told["choice"]["ridge"] in (3.0, 30.0)
    assert {"certificate.json", "paths.csv", "excursion.geojson", "map.png", "tuning.json"} <= set(told["files"])
    assert sorted(told["files"]) == sorted(each.name for each in out.iterdir())
    certificate = read_certificate((out / "certificate.json").read_text())
    assert 0.99 * 6.0 <= certificate.epsilon <= 6.0
    assert told["one_run_epsilon"] < certificate.epsilon
    assert certificate.mechanism == "private-selection"
    assert certificate.ledger_entry == told["ledger_entry"]
    (entry,) = Ledger.open(book).entries()
    assert entry.state is State.BOOKED
    assert not Path(f"{book}.search").exists()
    saved = json.loads((out / "tuning.json").read_text())
    assert saved["choice"] == told["choice"]
    assert set(saved["choice"]) == {"kernel", "length_scale", "ridge", "scale"}
    # neither file says how many runs there were
    assert not {"runs", "k", "count"} & set(saved)


def test_a_second_search_is_beyond_the_budget_and_leaves_nothing(table, tmp_path, book):
    tuned(table, tmp_path / "one", ledger=book)
    done = tuned(table, tmp_path / "two", code=OVER_BUDGET, ledger=book)
    assert not list((tmp_path / "two").iterdir())
    assert not Path(f"{book}.search").exists(), done.output


def test_kernel_sums_are_tuned_too_and_their_price_is_that_of_equal_gaussian_runs(table, tmp_path):
    told = json.loads(tuned(table, tmp_path / "out", json=True).stdout)
    assert told["choice"]["length_scale"] in (0.02, 0.2)
    assert "sums.csv" in told["files"]
    assert "candidates averaged" not in told["rule"]
    assert 0.99 * 6.0 <= told["epsilon"] <= 6.0


@pytest.mark.parametrize("mechanism", ["posterior", "kernel-sum"])
def test_where_one_candidate_is_useless_the_other_is_chosen(table, tmp_path, mechanism):
    """At epsilon 60 the noise is small; a length scale of 0.0001 knows nothing of the places between the records."""
    changes = {"mechanism": mechanism, "length_scale": "0.0001,0.15", "epsilon": 60, "runs": "poisson", "mean": 15}
    changes |= {"ridge": "3", "floor": None} if mechanism == "posterior" else {}
    told = json.loads(tuned(table, tmp_path / mechanism, json=True, **changes).stdout)
    assert told["choice"]["length_scale"] == 0.15
    assert told["score"] > 0.75


# --- scores


def test_a_public_table_scores_for_nothing(table, tmp_path):
    public = write(tmp_path / "public.csv", points(1))
    held = json.loads(tuned(table, tmp_path / "held", json=True).stdout)
    told = json.loads(tuned(table, tmp_path / "out", json=True, public_table=public).stdout)
    assert "public.csv, declared public" in told["score_name"]
    assert "public" not in held["score_name"]
    assert 0.0 <= told["score"] <= 1.0


def test_without_a_threshold_the_score_is_the_squared_error_of_the_values(table, tmp_path):
    told = json.loads(tuned(table, tmp_path / "out", json=True, threshold=None).stdout)
    assert "squared error" in told["score_name"]
    assert told["score"] < 0.1
    assert "excursion.geojson" not in told["files"]


# --- outcomes


def test_no_run_at_all_is_said_plainly_paid_for_and_has_an_exit_code(table, tmp_path, book):
    out = tmp_path / "out"
    done = tuned(table, out, code=NO_MAP, ledger=book, **NO_RUN)
    assert "No run was drawn" in done.stdout
    assert "price is paid" in done.stdout
    assert {each.name for each in out.iterdir()} == {
        "certificate.json",
        "certificate.txt",
        "report.html",
        "tuning.json",
    }
    assert json.loads((out / "tuning.json").read_text())["outcome"] == "no run drawn"
    assert [entry.state for entry in Ledger.open(book).entries()] == [State.BOOKED]
    assert not Path(f"{book}.search").exists()


def test_the_exit_code_stands_in_the_help():
    assert f"Exit code {NO_MAP}" in CliRunner().invoke(app, ["tune", "--help"], env={"COLUMNS": "200"}).output
    assert f"{NO_MAP} paid but" in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output


# --- interrupted


STALLED = """
import sys, time
from discretion.cli import app
from discretion.cli.tune import SelectionMechanism
SelectionMechanism.replay = lambda *_: time.sleep(600)
app(sys.argv[1:])
"""
"""The command line, but for its searches, which never end."""


@pytest.mark.slow
def test_a_search_killed_is_taken_up_with_the_same_draws_and_paid_once(table, tmp_path, book):
    out, journal = tmp_path / "out", Path(f"{book}.search")
    command = [sys.executable, "-c", STALLED, "tune", str(table), "--out", str(out), *words(ledger=book)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (journal.exists() and journal.read_bytes().count(b"\n") == 2):  # the runs have begun
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (entry,) = Ledger.open(book).entries()
    assert entry.state is State.RESERVED
    assert journal.stat().st_mode & 0o077 == 0
    kept = journal.read_bytes()

    assert "--resume takes it up" in " ".join(tuned(table, out, code=BAD_INPUT, ledger=book).stderr.split())
    other = tuned(table, out, code=REFUSED, ledger=book, resume=True, length_scale="0.02,0.3")
    assert "another search" in other.stderr
    tuned(table, out, ledger=book, resume=True)
    (after,) = Ledger.open(book).entries()
    assert (after.id, after.state) == (entry.id, State.BOOKED)
    assert not journal.exists()

    # an older copy of the journal, without the map that was booked: nothing is run again
    journal.write_bytes(kept)
    journal.chmod(0o600)
    assert "is not run again" in " ".join(
        tuned(table, tmp_path / "again", code=REFUSED, ledger=book, resume=True).stderr.split()
    )
    assert len(list(Ledger.open(book).entries())) == 1


# --- other promises


def test_the_number_of_rows_may_be_private(table, tmp_path):
    changes = {"neighbours": "add-remove", "most_records": 400, "mechanism": "kernel-sum"}
    told = json.loads(tuned(table, tmp_path / "out", json=True, ridge=None, floor=1, **changes).stdout)
    assert told["n"] is None
    assert told["neighbours"] == "add-remove"


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("mechanism", ["kernel-sum", "posterior"])
def test_what_was_tuned_is_verified_from_its_certificate_and_its_ledger(mechanism, neighbours, table, tmp_path):
    """At another delta than the ledger's, where a curve has another table."""
    book, out = tmp_path / "other.sqlite", tmp_path / "out"
    Ledger.create(book, dataset="points", epsilon=9.0, delta=2e-4, neighbours=neighbours)
    private = {} if neighbours == "replace" else {"neighbours": neighbours, "most-records": 1000}
    tuned(table, out, ledger=book, **(PATHS if mechanism == "posterior" else {}) | private)
    words_of_it = ["certificate", "verify", str(out / "certificate.json"), "--ledger", str(book)]
    done = CliRunner().invoke(app, words_of_it)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("VERIFIED")
    assert "Differs" not in done.output


def test_noise_beyond_the_range_of_scores_is_said_beforehand(table, tmp_path):
    done = tuned(table, tmp_path / "out", epsilon="0.001")
    assert "by chance" in done.output
    assert "its noise has standard deviation" in done.output
    assert "epsilon <= 0.00" in done.output
    told = json.loads((tmp_path / "out" / "tuning.json").read_text())
    assert told["score_noise"] > 1
    assert 0 < told["epsilon"] <= 0.001


@pytest.mark.parametrize(("option", "value"), [("epsilon", "-1"), ("mean", "-3")])
def test_values_are_looked_at_before_the_folder(option, value, table, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "certificate.json").write_text("{}")
    done = tuned(table, tmp_path / "out", BAD_INPUT, **{option: value})
    assert f"--{option}" in done.output
    assert "already" not in done.output


def test_one_row_of_each_person_takes_part(tmp_path):
    rows = points(0)
    path = tmp_path / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "z", "who"])
        writer.writerows([*row, number // 3] for number, row in enumerate(rows.tolist()))
    told = json.loads(tuned(path, tmp_path / "out", json=True, unit_id="who", unit="one person").stdout)
    assert told["n"] == 100
    assert read_certificate((tmp_path / "out" / "certificate.json").read_text()).unit.startswith("one person")


# --- refusals


@pytest.mark.parametrize(
    ("changes", "words_of_it"),
    [
        ({"runs": "fixed"}, "--runs is poisson"),
        ({"runs": "tnb"}, "--shape goes with"),
        ({"score": "training"}, "--score is held-out or public"),
        ({"score": "public"}, "needs --public-table"),
        ({"validation_share": 1}, "--validation-share"),
        ({"length_scale": "0.1:0.2"}, "LOW:HIGH:COUNT"),
        ({"length_scale": "0.1,0.1"}, "twice"),
        ({"mechanism": "posterior", "ridge": "0,1"}, "positive"),
        ({"mechanism": "auto"}, "--mechanism"),
        ({"ridge": "30"}, "--ridge: only --mechanism posterior"),
        ({"resume": True}, "--resume needs --journal"),
        ({"neighbours": "add-remove"}, "--most-records"),
        ({"epsilon": 0}, "epsilon"),
        ({"threshold": 2}, "--threshold"),
    ],
)
def test_what_makes_no_search_is_refused_before_anything_is_spent(table, tmp_path, book, changes, words_of_it):
    given = changes if "resume" in changes else changes | {"ledger": book}
    done = tuned(table, tmp_path / "out", code=BAD_INPUT, **given)
    assert words_of_it in " ".join(done.stderr.split())
    assert not list(Ledger.open(book).entries())
    assert not Path(f"{book}.search").exists()


def test_the_private_table_is_no_public_table(table, tmp_path):
    assert "itself" in tuned(table, tmp_path / "out", code=BAD_INPUT, public_table=table).stderr


def test_a_journal_does_not_lie_among_what_is_published(table, tmp_path):
    out = tmp_path / "out"
    assert "must not lie in --out" in tuned(table, out, code=BAD_INPUT, journal=out / "search").stderr


def test_a_configuration_file_may_hold_it_all(table, tmp_path):
    lines = [f'{key} = "{value}"' for key, value in WORDS.items()]
    (tmp_path / "tune.toml").write_text("\n".join([f'table = "{table}"', *lines]))
    done = CliRunner().invoke(app, ["tune", "--config", str(tmp_path / "tune.toml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "Chosen among 2 candidates" in done.stdout
