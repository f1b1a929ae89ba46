"""Exact posterior sample paths by this library and its peers, side by side in one run on the same work.

    python -m benchmarks.peers [--sizes NAME ...] [--json FILE] [--plot FILE] [--page FILE]

Cpu time with one BLAS thread, medians over repetitions, each peer in a process of its own; peak resident memory; times
the LAPACK floor (`benchmarks/floor.py`), which is measured before the first peer and after each; largest differences
from a reference. What fails is a row that says how. ``--json`` keeps the run after every size, and if the file is there
from the same day and machine, replaces the sizes that are measured; ``--sizes`` without a name measures nothing, so
that a kept run can be drawn (``--plot``) or written into a page between its markers (``--page``).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info

from benchmarks.peer_engines import PEERS, Peer
from benchmarks.peer_work import SETTINGS, Setting

Row = dict[str, Any]

MOST_GIB, ENDED_GIB = 4.0, 6.0
"""Who needs more than the first by the sizes of his matrices is not started; a process over the second is ended."""
MOST_SECONDS = 1200
"""Wall time of a process, its reference included."""
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"


# --- measuring


def installed(peer: Peer) -> str | None:
    """The version of its package, None where there is none."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(peer.package)
    return None


def machine() -> dict[str, Any]:
    """What a figure depends on: day, processor, versions."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError, AttributeError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        processor = re.search(r"model name\s*: (.*)", text).group(1)  # pyright: ignore[reportOptionalMemberAccess]
    packages = {each.package for each in PEERS.values()} | {"numpy", "scipy", "torch", "jax"}
    versions: dict[str, str] = {}
    for package in sorted(packages):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    blas = sorted({f"{each['internal_api']} {each.get('version')}" for each in threadpool_info()
                   if each["user_api"] == "blas"})  # fmt: skip
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor,
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "blas": blas,
        "versions": versions,
    }


def run(name: str, peer: str, reference: Path) -> Row:
    """What a process of its own tells of one peer; a failure is told too."""
    command = [sys.executable, "-m", "benchmarks.peer_run", name, peer, str(reference)]
    row: Row = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=told, stderr=errors, env=os.environ | ONE_THREAD)
        begun = time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            if _resident(process.pid) > ENDED_GIB and peer != "reference":
                row["failure"] = f"out of memory: more than {ENDED_GIB:g} GiB"
            elif time.monotonic() - begun > MOST_SECONDS:
                row["failure"] = f"more than {MOST_SECONDS} s"
            if row:
                process.kill()
                process.wait()
        told.seek(0)
        for line in told:
            with suppress(json.JSONDecodeError):
                row |= json.loads(line)
        if process.returncode == -signal.SIGXCPU:
            row["failure"] = "more than 120 s of cpu"
        elif process.returncode and "failure" not in row:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or [""])[-1]
            row["failure"] = f"ended with code {process.returncode}" + (f": {last}"[:160] if last else "")
    return row


def _resident(pid: int) -> float:
    """Resident memory in GiB, where the system says so."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**30
    return 0.0


def why_not(setting: Setting, peer: Peer) -> str | None:
    """Why a peer is not started."""
    if installed(peer) is None:
        return "not installed"
    if setting.kernel in peer.lacks:
        return "has no such kernel"
    need = peer.bytes(setting) / 2**30
    return f"skipped: needs {need:,.1f} GiB or more" if need > MOST_GIB else None


def compared(name: str, peers: tuple[str, ...] = tuple(PEERS), *, reference: bool = True) -> dict[str, Any]:
    """All peers on one piece of work; those for the line only are left out in the plane."""
    setting = SETTINGS[name]
    rows: list[Row] = []
    floors: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "reference.npz"
        if reference:
            run(name, "reference", at)
        load = os.getloadavg()[0]
        for label in peers:
            peer = PEERS[label]
            if peer.line and setting.dimension > 1:
                continue
            row: Row = {"peer": label, "version": installed(peer)}
            reason = why_not(setting, peer)
            if reason is None:
                if setting.floor and not floors:
                    floors.append(run(name, "floor", at)["seconds"])
                row |= run(name, label, at)
                if setting.floor:
                    floors.append(run(name, "floor", at)["seconds"])
                if row.get("finite") is False and "failure" not in row:
                    row["failure"] = "NaN"
            else:
                row["failure"] = reason
            rows.append(row)
    return {
        "setting": name,
        **{key: getattr(setting, key) for key in ("title", "n", "m", "dimension", "kernel", "ridge", "further")},
        "load": round(load, 1),
        "floor_seconds": statistics.median(floors) if floors else None,
        "rows": rows,
    }


def kept(path: Path | None) -> dict[str, Any]:
    """The run in a file, or one that holds nothing yet.

    Raises SystemExit where the file holds a run of another day or machine.
    """
    if path is None or not path.is_file():
        return {"machine": machine(), "sizes": []}
    return json.loads(path.read_text(encoding="utf-8"))


# --- showing


def number(value: float | None, digits: int = 2) -> str:
    """A few digits; a dash for nothing."""
    if value is None:
        return "—"
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def cells(size: dict[str, Any], row: Row) -> tuple[str, ...]:
    """Peer, seconds, times the floor, times the fastest here, peak MiB, errors, remark."""
    seconds, floor = row.get("seconds"), size["floor_seconds"]
    ours = [each["seconds"] for each in size["rows"] if each["peer"].startswith("discretion") and "seconds" in each]
    further = row.get("further_seconds")
    remark = row.get("failure", "")
    if further is not None and seconds:
        remark = f"{size['further']:,} further points: {number(further / seconds)} of the first"
    peak = row.get("peak_mib")
    errors = (row.get(key) for key in ("mean_error", "covariance_error", "path_error"))
    return (
        row["peer"],
        f"{number(seconds)} ({len(row['times'])})" if seconds else "—",
        number(seconds / floor) if seconds and floor else "—",
        number(seconds / min(ours)) if seconds and ours else "—",
        f"{peak:,.0f} ({row.get('setup_mib', 0.0):,.0f})" if peak else "—",
        *(f"{each:.0e}" if each is not None else "—" for each in errors),
        remark,
    )


HEADINGS = ("", "cpu s (calls)", "x floor", "x ours", "peak MiB (set up)", "mean", "cov.", "path", "")
SHORT = (0, 5, 6, 7, 8)  # of work that is not timed


def heading(size: dict[str, Any]) -> str:
    """What was done, in a line."""
    floor = f", floor {number(size['floor_seconds'], 3)} s" if size["floor_seconds"] else ""
    return f"{size['title']}, (n, m) = ({size['n']:,}, {size['m']:,}){floor}"


def columns(size: dict[str, Any]) -> tuple[int, ...]:
    """Which headings are shown."""
    return SHORT if SETTINGS[size["setting"]].digits else tuple(range(len(HEADINGS)))


def shown(size: dict[str, Any]) -> Table:
    """For a terminal."""
    which = columns(size)
    table = Table(*(HEADINGS[i] for i in which), title=heading(size), title_justify="left")
    for row in size["rows"]:
        values = cells(size, row)
        table.add_row(*(values[i].replace("[", "\\[") for i in which))
    return table


def markdown(document: dict[str, Any]) -> str:
    """All tables of a run, for a page."""
    its = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in its["versions"].items() if name != "discretion")
    text = [f"{its['date']}, {its['processor']}, Python {its['python']}, {versions}."]
    for size in document["sizes"]:
        which = columns(size)
        lines = [[HEADINGS[i] for i in which], ["---", *["--:"] * (len(which) - 2), "---"]]
        for row in size["rows"]:
            values = cells(size, row)
            lines.append([values[i] for i in which])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        text.append(f"**{heading(size)}**\n\n{table}")
    return "\n\n".join(text)


def written(page: str, document: dict[str, Any]) -> str:
    """A page with the tables between its markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{markdown(document)}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Measure, print, keep, draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", nargs="*", default=list(SETTINGS), choices=list(SETTINGS), help="all if left out")
    parser.add_argument("--json", type=Path, help="keep the run here")
    parser.add_argument("--plot", type=Path, help="draw the run")
    parser.add_argument("--page", type=Path, help="write the tables into a page, between its markers")
    given = parser.parse_args()
    document, console = kept(given.json), Console()
    console = console if console.is_terminal else Console(width=160)
    if given.sizes and document["machine"] != machine():
        raise SystemExit(f"{given.json} holds a run of another day, machine or set of versions: name another file.")
    for name in given.sizes:
        found = compared(name)
        console.print(shown(found), "")
        by_name = {each["setting"]: each for each in document["sizes"]} | {name: found}
        document["sizes"] = [by_name[each] for each in SETTINGS if each in by_name]
        if given.json:
            given.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if given.plot:
        from benchmarks.peer_figure import draw

        draw(document, given.plot)
    if given.page:
        given.page.write_text(written(given.page.read_text(encoding="utf-8"), document), encoding="utf-8")


if __name__ == "__main__":
    main()
