"""Figures stated about the pages: size, room, requests, accessibility, and what their controls do."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.browser import AXE, WIDTHS, axe, browser, find
from benchmarks.harness import Measured, claim
from benchmarks.markup import Markup
from discretion.gp import RBF, Box
from discretion.posterior import KernelSumMechanism
from discretion.posterior.records import Records
from discretion.privacy import SeededRandomness
from discretion.report import View, report
from discretion.report.explorer import Explorer, Setting, prices

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))


def _page() -> str:
    """A page of the size of London's: 236 x 184 places, made-up records."""
    rng = np.random.default_rng(0)
    X = rng.uniform(LONDON.lower, LONDON.upper, (5_000, 2))
    y = 13.0 + np.sin(X[:, 0] / 9_000) + 0.3 * rng.standard_normal(5_000)
    mechanism = KernelSumMechanism(
        RBF(1_200.0),
        domain=LONDON,
        response_ranges=(12.0, 14.0),
        scale=2.0,
        delta=1e-5,
        grid=(236, 184),
        coordinates="data",
    )
    release = mechanism.run(Records(X, y), SeededRandomness(1))
    return report(release, view=View(title="Made-up sales", logarithm=True, threshold=13.0, metres=1.0, floor=2.0))


@claim("report", "Size of the page of a kernel-sum map of 236 x 184 places with its outlines, in one file", "< 2 MB")
def page_size() -> Measured:
    page = _page()
    found = Markup(page)
    size = len(page.encode()) / 1e6
    good = not found.mistakes and not found.remote
    return Measured(f"{size:.2f} MB, {'valid, nothing remote' if good else found.mistakes}", size < 2.0 and good)


@claim(
    "report",
    f"Pages of a map and of the explorer in Chromium at {', '.join(map(str, WIDTHS))} pixels: messages on the console, "
    "requests beyond the page's own server, pages wider than their window",
    "0, 0, 0",
    slow=True,
)
def browser_quiet() -> Measured:
    if find() is None:
        return Measured("no Chromium here", False)
    errors, requests, wide = 0, 0, 0
    with tempfile.TemporaryDirectory() as home, Explorer() as explorer, browser() as window:
        file = Path(home) / "report.html"
        file.write_text(_page(), encoding="utf-8")
        for address in (file.as_uri(), explorer.address):
            for width in WIDTHS:
                window.visit(address, width=width)
                errors += len(window.errors())
                requests += sum(not each.startswith(explorer.address) for each in window.requests())
                wide += window.overflow() > 0
    return Measured(f"{errors}, {requests}, {wide}", errors == requests == wide == 0)


@claim(
    "report",
    f"Violations that {AXE} finds on the page of a map and on the explorer, light and dark, 360 and 1280 pixels wide",
    "0",
    slow=True,
)
def accessibility() -> Measured:
    if find() is None or axe() is None:
        return Measured("no Chromium or no axe-core here", False)
    found, runs = [], 0
    with tempfile.TemporaryDirectory() as home, Explorer() as explorer, browser() as window:
        file = Path(home) / "report.html"
        file.write_text(_page(), encoding="utf-8")
        for address in (file.as_uri(), explorer.address):
            for dark in (False, True):
                for width in (360, 1280):
                    window.visit(address, width=width, dark=dark)
                    found += window.accessibility()
                    runs += 1
    return Measured(f"{len(found)} in {runs} runs{'' if not found else ': ' + found[0]}", not found)


@claim("report", "Tests of the pages in a real browser: run and passed", "all of at least 40, none skipped", slow=True)
def browser_tests() -> Measured:
    words = [sys.executable, "-m", "pytest", "tests/report", "-q", "--slow", "-m", "slow"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    last = ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ran.stderr[-200:]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    good = ran.returncode == 0 and counts.get("passed", 0) >= 40 and not counts.get("skipped")
    return Measured(", ".join(f"{count} {name}" for name, count in counts.items()) or last, good)


@claim("report", "Seconds until the explorer has the prices of 20 settings of posterior paths", "< 0.2 s each")
def explorer_speed() -> Measured:
    prices(Setting())
    settings = [
        Setting(n=n, scale=scale) for n in (100, 1_000, 4_000, 100_000) for scale in np.geomspace(1e-5, 1e-2, 5)
    ]
    start = time.process_time()
    for setting in settings:
        prices(setting)
    each = (time.process_time() - start) / len(settings)
    return Measured(f"{each:.3f} s of processor time each", each < 0.2)
