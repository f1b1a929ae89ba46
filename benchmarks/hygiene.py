"""Everything the library leaves behind when it has seen a planted record, searched for that record.

    python -m benchmarks.hygiene

Command line, estimators, mechanisms, ledgers, searches and studies are run on records with one planted value each, well
and badly; then files, pickles, texts, logs, warnings, temporary files, caches, databases and errors are searched.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.traceback import Traceback
from typer.testing import CliRunner

from benchmarks import planted
from benchmarks.postgres import Cluster, find
from discretion import Ledger, Matern32, PosteriorSampler
from discretion.bayesopt import SGD, Linear, LocalSearch, Study, minimize
from discretion.cli import app
from discretion.gp import Box
from discretion.gp.lattice import Lattice
from discretion.posterior import KernelSum, KernelSumMechanism, PosteriorMechanism
from discretion.posterior.records import Records
from discretion.posterior.units import bounded_contributions
from discretion.privacy import SystemRandomness, fingerprint
from discretion.selection import (
    NegativeBinomial,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    PublicScore,
    select,
)
from discretion.spatial import read_table
from discretion.spatial.hexagons import HexagonLattice, aggregate
from discretion.spatial.streaming import records_in_chunks

LAW = NegativeBinomial.of_mean(2.0, 5.0)


@dataclass(repr=False)
class Search:
    """The places searched so far, and those where something of the planted record was found."""

    places: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    def look(self, name: str, data: bytes | str | object) -> None:
        """Search bytes, a text, or the pickle, repr and str of an object."""
        if not isinstance(data, bytes | str):
            data = pickle.dumps(data) + repr(data).encode() + str(data).encode()
        for place, part in planted.unpacked(name, data.encode() if isinstance(data, str) else data):
            self.places.append(place)
            self.leaks += [f"{place}: {found!r}" for found in planted.traces(part)[:3]]

    def words(self, name: str, text: str) -> None:
        """Search a text also for what only the owner of the table may know of it."""
        self.look(name, text)
        self.leaks += [f"{name}: the count {found}" for found in planted.counts(text)]

    def folder(self, home: Path, *, without: set[Path]) -> None:
        """Search every file of a folder, except those that are private by their purpose."""
        for path in sorted(home.rglob("*")):
            if path.is_file() and path not in without:
                self.look(str(path.relative_to(home)), path.read_bytes())
                if path.suffix in (".json", ".txt", ".csv", ".geojson", ".jsonl"):
                    self.words(f"{path.relative_to(home)} as text", path.read_text())

    def error(self, name: str, call: Callable[[], object]) -> bool:
        """Search the error that a call ends with; whether it ended with one."""
        try:
            call()
        except Exception as error:
            self.look(name, told(error))
            return True
        return False


def told(error: BaseException) -> str:
    """Whatever tools tell of an error: message, contents, causes, and the locals of all frames."""
    shown = io.StringIO()
    limits: dict[str, Any] = dict.fromkeys(("locals_max_length", "locals_max_string"))
    trace = Traceback.extract(type(error), error, error.__traceback__, show_locals=True, **limits)
    for frame in (frame for stack in trace.stacks for frame in stack.frames):
        shown.writelines(
            f"{frame.filename}:{frame.lineno} {name} = {each}\n" for name, each in (frame.locals or {}).items()
        )
    shown.writelines(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    each: BaseException | None = error
    while each is not None:  # also where the chain is not shown (raise ... from None)
        shown.write(f"{each!r} {each.args!r} {vars(each)!r} {getattr(each, '__notes__', ())!r}\n")
        shown.writelines(traceback.TracebackException.from_exception(each, capture_locals=True).format())
        each = each.__cause__ or each.__context__
    return shown.getvalue()


# --- the command line


def command_line(search: Search, home: Path) -> None:
    """Releases by both mechanisms in every format, well and badly; all that is left, with what was printed."""
    places = {name: home / name for name in ("tmp", "cache", "config")}
    for path in places.values():
        path.mkdir()
    environment = os.environ | {
        "HOME": str(home),
        "TMPDIR": str(places["tmp"]),
        "DISCRETION_CACHE": str(places["cache"]),
        "XDG_CACHE_HOME": str(places["cache"]),
        "MPLCONFIGDIR": str(places["config"]),
        "PYTHONWARNINGS": "always",
    }
    sales, broken, book, report = (home / name for name in ("sales.csv", "broken.csv", "book.ledger", "report.txt"))
    planted.table(sales)
    planted.table(broken, broken=True)
    columns = "--covariates easting_m,northing_m --response price_gbp --transform log --outside drop"
    ranges = f"{columns} --domain 503000:562000,155000:201000 --response-range 12:14 --delta 1e-3"
    public = f"{ranges} --length-scale 0.1"
    files = "--grid 12 --threshold 13 --crs EPSG:27700 --formats geotiff,geoparquet --floor 2"
    release = f"release {public} {files} --ledger {book} --other-unit --epsilon 3"
    runs = {
        "a ledger": f"ledger init {book} --dataset planted --epsilon 8 --delta 3e-3",
        "paths": f"{release} {sales} --mechanism posterior --rule renyi --paths 2 --out {home / 'paths'}",
        "sums": f"{release} {sales} --unit-id owner --private-report {report} --out {home / 'sums'} --json",
        "hexagons": f"release {public} --grid 6 --epsilon 3 --aggregate hexagons:5000 {sales} --out {home / 'hex'}",
        "a lattice": f"release {ranges} --prior lattice:5000 --epsilon 3 {sales} --out {home / 'lattice'}",
        "over budget": f"{release} {sales} --epsilon 9 --out {home / 'more'}",
        "a broken table": f"{release} {broken} --out {home / 'other'}",
        "a broken table for paths": f"{release} {broken} --mechanism posterior --out {home / 'another'}",
        "no such column": f"{release} {sales} --covariates easting_m,owner --out {home / 'third'}",
        "a key": f"certificate keygen {home / 'key'}",
        "signing": f"certificate sign {home / 'sums' / 'certificate.json'} --key {home / 'key'}",
        "a certificate": f"certificate verify {home / 'sums' / 'certificate.json'} --ledger {book}",
        "the ledger": f"ledger show {book}",
        "the spending": f"ledger spend-report {book}",
        "the export": f"ledger export {book} --out {home / 'export.jsonl'}",
        "the chain": f"ledger verify {home / 'export.jsonl'}",
    }
    refused = {"over budget", "a broken table", "a broken table for paths", "no such column"}
    commands = json.dumps([words.split() for words in runs.values()])
    command = [sys.executable, "-m", "benchmarks.hygiene", "--commands"]
    ran = subprocess.run(command, input=commands, capture_output=True, check=True, env=environment, text=True)
    *printed, answers = ran.stdout.rstrip().split("\n")
    search.words("stdout of the process", "\n".join(printed))
    search.words("stderr of the process", ran.stderr)
    for name, answer in zip(runs, json.loads(answers), strict=True):
        if (answer["code"] == 0) == (name in refused):
            raise RuntimeError(f"{name} ended with exit code {answer['code']}: {answer['stderr'][-500:]}")
        for stream in ("stdout", "stderr", "error"):
            # Where the files lie is no count, though a temporary folder may have its number.
            search.words(f"{stream} of {name}", answer[stream].replace(str(home), "home"))
    if set(planted.counts(report.read_text())) != {str(planted.CLIPPED), str(planted.DROPPED)}:
        raise RuntimeError("The private report does not say how many rows were clipped and dropped.")
    if left := list(places["tmp"].rglob("*")):
        raise RuntimeError(f"Temporary files were left: {left}.")
    search.places.append("temporary files")
    search.folder(home, without={sales, broken, report})


def _commands() -> None:
    """Run the commands of stdin, a JSON list of lists of words; what became of each goes to the last line of stdout."""
    answers = []
    for words in json.load(sys.stdin):
        ran = CliRunner().invoke(app, words)
        error = "" if ran.exception is None or isinstance(ran.exception, SystemExit) else told(ran.exception)
        answers.append({"code": ran.exit_code, "stdout": ran.stdout, "stderr": ran.stderr, "error": error})
    print(f"\n{json.dumps(answers)}")


# --- in one process


@contextmanager
def overheard(search: Search, what: str) -> Iterator[None]:
    """Search whatever is printed, warned of or logged, at any level, meanwhile."""
    out, log = io.StringIO(), io.StringIO()
    handler, root = logging.StreamHandler(log), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.NOTSET)
    try:
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(out), redirect_stderr(out):
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    search.look(f"stdout and stderr of {what}", out.getvalue())
    search.look(f"log of {what}", log.getvalue())
    search.look(f"warnings of {what}", "\n".join(f"{each.message} {each.source!r}" for each in warned))


def estimators() -> dict[str, Any]:
    """One of each estimator, not fitted."""
    lattice = Lattice.hexagon(5_000.0, planted.DOMAIN, killing=0.3)
    rows: dict[str, Any] = {"feature_bound": 1e6}
    space = {"alpha": [1.0, 100.0]}
    return {
        "PosteriorSampler": PosteriorSampler(planted.DOMAIN, (12, 14), ridge=5.0, scale=0.1, delta=1e-3, grid=4),
        "KernelSum": KernelSum(planted.DOMAIN, (12, 14), scale=1.0, delta=1e-3, grid=4),
        "PosteriorSampler on a lattice": PosteriorSampler(
            prior=lattice, response_range=(12, 14), scale=1.0, delta=1e-3, rule="closed-form"
        ),
        "PrivateRidge": PrivateRidge(response_range=(12, 14), mu=1.0, **rows),
        "PrivateLogisticRegression": PrivateLogisticRegression(classes=[0, 1], noise=1.0, **rows),
        "PrivateSearchCV": PrivateSearchCV(
            PrivateRidge(response_range=(12, 14), mu=1.0, **rows), space, LAW, validation=(np.ones((5, 2)), np.ones(5))
        ),
    }


def fitted(search: Search) -> None:
    """Pickle, repr and variables of fitted estimators and their releases; a custodian stays where it is."""
    X, y = planted.arrays()
    for name, estimator in estimators().items():
        with overheard(search, name):
            model = estimator.fit(X, y > planted.CENTRE if "Logistic" in name else y)
        search.look(f"{name}, fitted", model)
        search.look(f"variables of {name}", repr(vars(model)))
        search.look(f"release of {name}", model.release_)
        search.look(f"certificate of {name}", model.release_.certificate.to_json() + model.release_.text())
    custodian = estimators()["PosteriorSampler"].fit_custodian(X, y)
    search.look("repr of a custodian", repr(custodian) + str(custodian))
    if not search.error("refusal to pickle a custodian", lambda: pickle.dumps(custodian)):
        search.leaks.append("a custodian was pickled")


def mechanisms() -> dict[str, Any]:
    """Mechanisms of two covariates."""
    shared: dict[str, Any] = {"domain": planted.DOMAIN, "locations": planted.DOMAIN.grid((3, 3)), "grid": (3, 3)}
    return {
        "posterior": PosteriorMechanism(Matern32(0.1), response_range=(12, 14), ridge=5, scale=1, delta=1e-3, **shared),
        "kernel-sum": KernelSumMechanism(Matern32(0.1), response_ranges=(12, 14), scale=1, delta=1e-3, **shared),
    }


class Quoting:
    """A mechanism that fails and says at which record."""

    def __init__(self, mechanism: Any) -> None:
        self._mechanism = mechanism

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

    def run(self, records: Any, randomness: Any) -> Any:
        print(records.response, file=sys.stderr)
        warnings.warn(f"{records.response!r}", stacklevel=1)
        logging.getLogger("quoting").error("%r", records.covariates)
        try:
            raise ValueError(f"cannot use {records.response!r}")
        except ValueError as error:
            error.add_note(repr(records.covariates))
            raise RuntimeError(f"at {records.covariates!r}", records.response.copy()) from error


def book_of(search: Search, place: str, name: str) -> None:
    """Releases booked in a ledger, runs that fail and quote records, and what the ledger says then."""
    book = Ledger.create(place, dataset="planted", epsilon=1e4, delta=1e-3, fingerprint=fingerprint(records(), KEY))
    for kind, mechanism in mechanisms().items():
        search.look(f"release of {kind} booked in {name}", book.run(mechanism, records(), n=20, key=KEY))
        quoting: Any = Quoting(mechanism)
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():  # what such code prints is its own doing
            warnings.simplefilter("ignore")
            if not search.error(f"failure of {kind} in {name}", lambda run=quoting: book.run(run, records(), n=20)):
                raise RuntimeError("A mechanism that fails was booked.")
        search.error(f"other records for {name}", lambda run=mechanism: book.run(run, others(), n=20, key=KEY))
    search.look(
        f"entries, export and repr of {name}", "\n".join([*map(repr, book.entries()), *book.export(), repr(book)])
    )


KEY = b"a key of the steward's own"


def records() -> Records:
    """The planted records."""
    return Records(*planted.arrays())


def others() -> Records:
    """The planted records in another order."""
    X, y = planted.arrays()
    return Records(X[::-1].copy(), y[::-1].copy())


def ledgers(search: Search, home: Path) -> None:
    """A ledger in a file, and one in a database if there is a server."""
    book_of(search, str(home / "x.ledger"), "SQLite")
    search.folder(home, without=set())
    if find() is not None:
        with Cluster(durable=False) as cluster:
            book_of(search, f"{cluster.url}&ledger=planted", "PostgreSQL")
            for name in ("ledger", "loss", "event"):
                search.look(f"rows of {name} in PostgreSQL", cluster.sql(f"SELECT * FROM discretion.{name}"))
            search.look("log of PostgreSQL", cluster.log())


def searches(search: Search, home: Path) -> None:
    """A search that is interrupted, taken up and ended: its journal, its release, what was printed."""
    score = PublicScore(lambda release: -float(np.mean(release.values)), "made up")
    candidate = mechanisms()["posterior"]
    book = Ledger.create(home / "x.ledger", dataset="planted", epsilon=1e4, delta=1e-3)
    journal = home / "search.journal"
    plan: dict[str, Any] = {"delta": 1e-3, "ledger": book, "journal": journal}

    def sought(each: Any) -> Any:
        return select([each], score, LAW, records(), 20, **plan)

    def killed(mechanism: Any, records: Any, randomness: Any) -> Any:
        """As by Ctrl-C."""
        raise KeyboardInterrupt(repr(records.response))

    with overheard(search, "a search"):
        while not journal.exists():  # a search without a run has nothing to interrupt
            try:
                with patch.object(type(candidate), "run", killed):
                    sought(candidate)
            except KeyboardInterrupt as error:
                search.look("an interrupted search", told(error))
        search.look("journal of an interrupted search", journal.read_bytes())
        search.error("a search by another plan", lambda: sought(mechanisms()["kernel-sum"]))
        release = sought(candidate)
    search.look("release of a search", release)
    if journal.exists():
        search.leaks.append("the journal of a search that has ended is still there")
    search.folder(home, without=set())


def studies(search: Search, home: Path) -> None:
    """A local search by the losses of the planted records: its public file and its release."""
    space: Any = {"x": Linear(-1, 1, unit=1.0), "y": Linear(-1, 1, unit=1.0)}
    X = planted.arrays()[0] / 1e5
    local = LocalSearch(space, mu=1.0, steps=2, clip=1.0, update=SGD(0.3), delta=1e-3)
    with overheard(search, "a study"), Study(local, n=20, path=home / "x.study") as study:
        while not study.done:
            study.tell(((study.asked[None] - X[:, None]) ** 2).sum(axis=-1))
        search.look("a study", repr(study) + repr(study.steps))
        search.look("release of a study", study.result())
    search.folder(home, without=set())


# --- errors


def spoiled() -> dict[str, Callable[[Any, Any], tuple[Any, Any]]]:
    """Ways to spoil covariates and responses."""

    def put(array: Any, value: Any) -> Any:
        changed = array.astype(object)
        changed.flat[3] = value
        return changed

    return {
        "NaN": lambda X, y: (put(X, np.nan).astype(float), y),
        "infinity": lambda X, y: (X, put(y, np.inf).astype(float)),
        "text": lambda X, y: (X, put(y, f"{planted.PRICE}x")),
        "text place": lambda X, y: (put(X, f"{planted.EASTING}E"), y),
        "None": lambda X, y: (put(X, None), y),
        "complex": lambda X, y: (X, y + 0j),
        "huge": lambda X, y: (put(X, int(planted.PRICE) ** 80), y),
        "lists": lambda X, y: ([[planted.EASTING], [planted.NORTHING, planted.PRICE]], y),
        "one row": lambda X, y: (X[7], y),
        "one number": lambda X, y: (X[7, 0], y),
        "short": lambda X, y: (X, y[:-1]),
        "two columns": lambda X, y: (X, np.column_stack([y, y])),
        "three covariates": lambda X, y: (np.column_stack([X, y]), y),
        "no response": lambda X, y: (X, None),
        "empty": lambda X, y: (X[:0], y[:0]),
        "objects": lambda X, y: ([object(), planted.OWNER], y),
        "dictionary": lambda X, y: ({planted.EASTING: planted.NORTHING}, y),
    }


def bad(kind: str, *, classes: bool = False) -> tuple[Any, Any]:
    """The planted records, spoiled."""
    X, y = planted.arrays()
    return spoiled()[kind](X, (y > planted.CENTRE).astype(int) if classes else y)


def errors(search: Search, home: Path) -> None:
    """Each way in, given records that are spoiled in each way; the least that must fail is named beside it."""

    def tried(name: str, calls: dict[str, Callable[[], object]], least: int) -> None:
        with overheard(search, f"errors of {name}"):
            failed = sum(search.error(f"{name} on {kind}", call) for kind, call in calls.items())
        if failed < least:
            raise RuntimeError(f"{name} took {len(calls) - failed} of {len(calls)} kinds of spoiled records.")

    kinds, models = list(spoiled()), estimators()
    for name, model in models.items():
        classes = "Logistic" in name
        tried(name, {k: lambda k=k, m=model, c=classes: m.fit(*bad(k, classes=c)) for k in kinds}, 12)
    for name in ("PosteriorSampler", "KernelSum", "PosteriorSampler on a lattice"):
        kinds_of_units = ("missing", "no id", "fewer", "nested")
        calls = {k: lambda k=k, m=models[name]: m.fit(*planted.arrays(), units=_units(k)) for k in kinds_of_units}
        tried(f"units of {name}", calls, 4)
    tried("fit_custodian", {k: lambda k=k: models["PosteriorSampler"].fit_custodian(*bad(k)) for k in kinds}, 12)

    book = Ledger.create(home / "errors.ledger", dataset="planted", epsilon=1e4, delta=1e-3)
    tiny = Ledger.create(home / "tiny.ledger", dataset="planted", epsilon=1e-4, delta=1e-3)
    noise = SystemRandomness()
    for name, each in mechanisms().items():
        ways: dict[str, Callable[[Any], object]] = {
            "run": lambda r, m=each: m.run(r, noise),
            "check": lambda r, m=each: m.check(r),
            "ledger": lambda r, m=each: book.run(m, r, n=20),
        }
        for way, call in ways.items():
            tried(f"{way} of {name}", {k: lambda k=k, c=call: c(Records(*bad(k))) for k in kinds}, 9)
        tried(f"no budget for {name}", {"": lambda m=each: tiny.run(m, records(), n=20)}, 1)
        tried(f"another n for {name}", {"": lambda m=each: book.run(m, records(), n=19)}, 1)
    tried("partial", {k: lambda k=k: mechanisms()["kernel-sum"].partial(Records(*bad(k))) for k in kinds}, 9)
    if book.entries() or tiny.entries():
        raise RuntimeError("Records that were refused were paid for.")
    tried("bounded_contributions", {"": lambda: bounded_contributions([planted.OWNER, 1.5], 1)}, 1)
    tried("fingerprint", {"": lambda: fingerprint([object(), planted.OWNER], KEY)}, 1)
    line: Any = {"x": Linear(-1, 1, unit=1.0)}
    study = Study(LocalSearch(line, mu=1.0, steps=2, clip=1.0, delta=1e-3), n=20)
    study.ask()
    tried("tell", {k: lambda k=k: study.tell(_losses(k)) for k in ("shape", "more", "text", "chunks")}, 4)

    def failing(x: float) -> Any:
        raise ValueError(repr(planted.arrays()))

    tried("minimize", {"": lambda: minimize(failing, line, n=20, steps=1, clip=1, mu=1)}, 1)
    _tables(tried, home)


def _units(kind: str) -> Any:
    """Owners that cannot be read."""
    owners: list[Any] = planted.owners()
    wrong = {
        "missing": [*owners[:-1], None],
        "no id": [*owners[:-1], 1.5],
        "fewer": owners[:8],
        "nested": [owners] * 20,
    }
    return wrong[kind]


def _losses(kind: str) -> Any:
    """Losses that cannot be told."""
    losses = np.full((20, 3), planted.PRICE)
    return {
        "shape": losses[0],
        "more": np.tile(losses, (2, 9)),
        "text": [planted.OWNER],
        "chunks": iter([losses, planted.OWNER]),
    }[kind]


def _tables(tried: Callable[[str, dict[str, Callable[[], object]], int], None], home: Path) -> None:
    """Readers of files and frames."""
    import pandas

    where: dict[str, Any] = {"covariates": ["easting_m", "northing_m"], "response": "price_gbp"}
    where |= {"domain": planted.DOMAIN, "response_range": (0.0, 1e6)}

    def written(kind: str) -> Path:
        path = home / f"{kind}.csv"
        planted.table(path, broken=kind == "broken")
        text = path.read_text()
        ways = {
            "headless": text.partition("\n")[2],
            "ragged": text + f"{planted.EASTING},{planted.NORTHING}\n",
            "quotes": text + f'"{planted.EASTING},{planted.NORTHING}\n',
            "binary": text + "\0",
            "latin": text + "\udce9",
            "outside": text + f"{planted.PRICE},{planted.PRICE},{planted.PRICE},{planted.OWNER}\n",
        }
        path.write_bytes(ways.get(kind, text).encode("utf-8", "surrogateescape"))
        return path

    files = ("broken", "headless", "ragged", "quotes", "binary", "latin", "outside", "plain")
    # One kind is in order; but for its rows outside the domain, which are refused.
    tried("read_table", {k: lambda k=k: read_table(written(k), **where) for k in files}, len(files))
    tried("read_table with owners", {k: lambda k=k: read_table(written(k), unit_id="owner", **where) for k in files}, 8)

    def frame(kind: str) -> Any:
        X, y = bad(kind)
        return pandas.DataFrame({"easting_m": X[:, 0], "northing_m": X[:, 1], "price_gbp": y})

    kinds = ("NaN", "infinity", "text", "text place", "None", "huge")
    tried("frames", {k: lambda k=k: read_table(frame(k), **where) for k in kinds}, 6)

    def parquet(kind: str) -> Path:
        path = home / "x.parquet"
        frame(kind).astype(str).to_parquet(path)
        return path

    tried("read_table of Parquet", {k: lambda k=k: read_table(parquet(k), **where) for k in kinds}, 5)
    tried("chunks", {k: lambda k=k: list(records_in_chunks(parquet(k), rows=8, **where)) for k in kinds}, 5)

    def hexagons() -> object:
        table = read_table(written("plain"), **where | {"outside": "drop", "response_range": (0.0, 1e7)})
        return aggregate(table, HexagonLattice(5_000.0, Box((0.0, 0.0), (1e4, 1e4))))

    tried("aggregate", {"": hexagons}, 1)


def scan() -> Search:
    """Search everything."""
    search = Search()
    with tempfile.TemporaryDirectory() as folder:
        for part in (command_line, ledgers, searches, studies, errors):
            home = Path(folder) / part.__name__
            home.mkdir()
            part(search, home)
        fitted(search)
    return search


def main() -> None:
    """Search, and print what was found."""
    if sys.argv[1:] == ["--commands"]:
        _commands()
        return
    found = scan()
    print(json.dumps({"searched": len(found.places), "leaks": found.leaks}, indent=2))
    sys.exit(1 if found.leaks else 0)


if __name__ == "__main__":
    main()
