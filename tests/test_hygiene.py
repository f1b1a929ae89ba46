"""Nothing of a record is left lying about, and the search for it would find it."""

import io
import os
import pickle
import sqlite3
import sys
import traceback

import numpy as np
import pandas
import pytest
from rich.console import Console
from rich.traceback import Traceback

from benchmarks import hygiene, planted
from discretion.privacy.frames import cleared

# --- the search finds what is there


@pytest.mark.parametrize("value", [planted.EASTING, planted.PRICE, float(np.log(planted.PRICE)), planted.values()[3]])
def test_a_value_is_found_however_it_is_spelled(value):
    texts = [
        repr(value),
        f"{value:.6g}",
        f"{value:.9f}",
        f"{value:.8e}",
        f"{value:,.7f}",
        f"[1,{value},2]",
        f"x={value}",
    ]
    texts += [str(np.array([value, 1.0])), f"{value:.10f}".replace(".", ","), f"{value:_.7f}", f"1.0,{value:.7g}"]
    for text in texts:
        assert planted.traces(text.encode()), text
    for kind in ("<f8", ">f8", "<f4", ">f4"):
        assert planted.traces(b"..." + np.array([1.0, value], dtype=kind).tobytes())
    for artefact in (np.full((3, 2), value), {"a": [value]}, [np.float32(value)]):
        assert planted.traces(pickle.dumps(artefact))
    assert not planted.traces(f"{value * 1.0001!r} {3 * value:.17g} 1{value!r}".encode())


def test_an_owner_is_found():
    for leak in (planted.OWNER, np.array([planted.OWNER]), {planted.OWNER}):
        assert planted.traces(pickle.dumps(leak))


def test_files_are_opened(tmp_path):
    frame = pandas.DataFrame({"a": [planted.PRICE], "b": [planted.OWNER]})
    names = {
        "x.csv": frame.to_csv,
        "y.csv.gz": frame.to_csv,
        "z.parquet": frame.to_parquet,
        "p.pickle": frame.to_pickle,
    }
    np.savez_compressed(tmp_path / "w.npz", np.full(1000, planted.PRICE))
    for name, write in names.items():
        write(tmp_path / name)
    with sqlite3.connect(tmp_path / "v.sqlite") as connection:
        connection.execute("CREATE TABLE a (b)")
        connection.execute("INSERT INTO a VALUES (?)", (str(planted.PRICE),))
    search = hygiene.Search()
    search.folder(tmp_path, without=set())
    assert {leak.partition(" ")[0].partition(":")[0] for leak in search.leaks} == {*names, "w.npz", "v.sqlite"}


def test_counts_are_found():
    assert planted.counts(f"{planted.CLIPPED} rows; {planted.DROPPED} rows") == ["263", "241"]
    assert not planted.counts("1.263 0.2412 1263")


def test_what_is_printed_or_warned_of_is_heard():
    search = hygiene.Search()
    with hygiene.overheard(search, "it"), pytest.raises(RuntimeError):
        hygiene.Quoting(None).run(hygiene.records(), None)
    assert {leak.partition(":")[0] for leak in search.leaks} == {
        "stdout and stderr of it",
        "log of it",
        "warnings of it",
    }


# --- errors without locals


def leaky(X, units=None):
    scaled = X * 2.0
    try:
        raise KeyError("a cause")
    except KeyError as error:
        raise ValueError(f"bad shape {scaled.shape}") from error


def failed(call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        return error
    raise AssertionError("it did not fail")


def test_without_clearing_locals_would_be_told():
    assert planted.traces(hygiene.told(failed(lambda: leaky(planted.arrays()[0]))).encode())


def test_a_cleared_function_keeps_lines_and_loses_locals():
    error = failed(lambda: cleared(leaky)(planted.arrays()[0]))
    assert not planted.traces(hygiene.told(error).encode())
    text = "".join(traceback.format_exception(error))
    assert "a cause" in text
    assert "in leaky" in text
    shown = io.StringIO()
    rich = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
    Console(file=shown, width=200).print(rich)
    assert "bad shape" in shown.getvalue()
    assert not planted.traces(shown.getvalue().encode())


def test_errors_handled_outside_are_left_alone():
    def outer():
        kept = [1, 2, 3]  # noqa: F841
        raise LookupError("outside")

    try:
        outer()
    except LookupError as error:
        before, inner = error, failed(cleared(leaky), np.zeros(2))
    assert inner.__cause__.__context__ is before
    assert before.__traceback__.tb_next.tb_frame.f_locals["kept"] == [1, 2, 3]


def test_a_cleared_generator():
    @cleared
    def parts(X):
        for row in X:
            yield len(row)
        raise ValueError("no more")

    assert next(parts([[1.0]])) == 1
    stopped = parts([[1.0], [2.0]])
    next(stopped)
    stopped.close()
    error = failed(lambda: list(parts(planted.arrays()[0])))
    assert not planted.traces(hygiene.told(error).encode())
    assert parts.__name__ == "parts"


def test_an_interrupt_is_cleared_too():
    @cleared
    def interrupted(X):
        raise KeyboardInterrupt

    try:
        interrupted(planted.arrays()[0])
    except KeyboardInterrupt as error:
        text = hygiene.told(error)
    assert not planted.traces(text.encode())


# --- the library


def test_errors_of_every_way_in_tell_nothing(tmp_path):
    search = hygiene.Search()
    hygiene.errors(search, tmp_path)
    assert len(search.places) >= 200
    assert search.leaks == []


def test_without_clearing_the_library_would_leak(tmp_path, monkeypatch):
    monkeypatch.setattr("discretion.privacy.frames._clear", lambda error, outside: None)
    search = hygiene.Search()
    model = hygiene.estimators()["KernelSum"]
    assert search.error("control", lambda: model.fit(*hygiene.bad("NaN")))
    assert search.leaks


def test_nothing_fitted_holds_a_record():
    search = hygiene.Search()
    hygiene.fitted(search)
    assert len(search.places) >= 30
    assert search.leaks == []


@pytest.mark.parametrize("part", [hygiene.searches, hygiene.studies])
def test_searches_and_studies_leave_nothing(part, tmp_path):
    search = hygiene.Search()
    part(search, tmp_path)
    assert len(search.places) >= 6
    assert search.leaks == []


@pytest.mark.slow
@pytest.mark.parametrize(("part", "least"), [(hygiene.command_line, 100), (hygiene.ledgers, 12)])
def test_commands_and_ledgers_leave_nothing(part, least, tmp_path, monkeypatch):
    # Of the released means, one agrees with the planted price to six digits in one run of thirty. The commands run in a
    # process of their own, which has the same random bits each time.
    (tmp_path / "bits").mkdir()
    (tmp_path / "bits" / "sitecustomize.py").write_text("import os, random\nos.urandom = random.Random(0).randbytes\n")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "bits"), os.environ.get("PYTHONPATH")]))
    )
    (tmp_path / "home").mkdir()
    search = hygiene.Search()
    part(search, tmp_path / "home")
    assert len(search.places) >= least
    assert search.leaks == []


def test_standard_streams_are_as_before():
    before = sys.stdout, sys.stderr
    with hygiene.overheard(hygiene.Search(), "nothing"):
        pass
    assert (sys.stdout, sys.stderr) == before
