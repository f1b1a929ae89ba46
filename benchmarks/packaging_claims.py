"""Figures stated about the package: its size, what importing it costs, and what installs beside it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Measured, claim
from benchmarks.packaging import ROOT, SMOKE, build, extras, oldest, pythons, tried

_LOADED = """
import sys
from discretion import *
print(*(name for name in sys.modules if name.split(".")[0] in ("numpy", "scipy")))
"""
_IMPORT = """
import importlib, sys, time
for name in sys.argv[2:]:
    importlib.import_module(name)
start = time.process_time()
exec(sys.argv[1])
print(time.process_time() - start)
"""
_BESIDE = ("botorch", "geo")
_COMPANY = """
import botorch, geopandas, opacus, sklearn
import discretion
from discretion.posterior.botorch import PathModel
"""


def _python(code: str, *words: str) -> str:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@claim("package", "`import discretion` beyond the modules of NumPy and SciPy that it uses, cpu time", "<= 0.5 s")
def import_time() -> Measured:
    theirs = [name for name in _python(_LOADED).split() if not name.rpartition(".")[2].startswith("_")]
    alone, names = (
        statistics.median(float(_python(_IMPORT, line, *theirs)) for _ in range(5))
        for line in ("import discretion", "from discretion import *")
    )
    return Measured(f"{alone:.2f} s, with all its names fetched {names:.2f} s", alone <= 0.5)


@claim("package", "Size of the wheel, with the bundled sales of London", "<= 3 MB", slow=True)
def wheel_size() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        wheel, source = build(Path(name))
        size, whole = wheel.stat().st_size / 1e6, source.stat().st_size / 1e6
    return Measured(f"{size:.2f} MB (source distribution {whole:.2f} MB)", size <= 3.0)


@claim(
    "package",
    "Installed from the wheel alone in a new environment, without and with each extra: `pip check` and a smoke test",
    f"{len(SMOKE)} of {len(SMOKE)} pass",
    slow=True,
)
def wheel_installs() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        wheel, _ = build(Path(name))
        trials = [tried(wheel, extra, Path(name)) for extra in ("core", *extras())]
    failed = [f"{trial.extra}: {trial.said.splitlines()[-1]}" for trial in trials if not trial.passed]
    good = len(trials) - len(failed)
    return Measured("; ".join([f"{good} of {len(trials)} pass", *failed]), good == len(trials) == len(SMOKE))


@claim(
    "package",
    "Installed from the wheel alone under each Python that pyproject.toml names: `pip check`, and on the command line "
    "and in Python release, tune, minimise, choose a penalty, audit, ledger, report, explore",
    "all of them",
    slow=True,
)
def every_python() -> Measured:
    found = pythons()
    said = []
    with tempfile.TemporaryDirectory() as name:
        wheel, _ = build(Path(name))
        for version, path in found.items():
            if path is None:
                said.append(f"{version}: not on this machine")
            elif not (trial := tried(wheel, "core", Path(name), interpreter=path)).passed:
                said.append(f"{version}: {trial.said.splitlines()[-1]}")
    return Measured("; ".join([f"{len(found) - len(said)} of {len(found)} ({', '.join(found)})", *said]), not said)


@claim(
    "package",
    "`pip check` in one environment with scikit-learn, BoTorch, Opacus and GeoPandas, and all imported together",
    "clean",
    slow=True,
)
def good_company() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        wheel, _ = build(Path(name))
        also = ("opacus", "geopandas", "scikit-learn")
        trial = tried(wheel, ",".join(_BESIDE), Path(name), also=also, code=_COMPANY)
    return Measured("clean" if trial.passed else trial.said[-200:], trial.passed)


@claim(
    "package",
    "Fast tests of privacy, gp, posterior, selection and bilevel with the oldest versions that pyproject.toml admits",
    "pass",
    slow=True,
)
def oldest_versions() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        passed, said = oldest(Path(name), "privacy", "gp", "posterior", "selection", "bilevel")
    return Measured(said, passed)
