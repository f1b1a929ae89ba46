"""Figures stated about the documents, and in them."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from typer.testing import CliRunner

from benchmarks.browser import WIDTHS, axe, browser, find
from benchmarks.documents import PAGES, Page, page
from benchmarks.given import given
from benchmarks.harness import Measured, claim
from benchmarks.site import build, follow
from discretion.cli import app
from discretion.datasets import london_sales

SHOWN = ("docs/choosing-epsilon.md", "docs/guarantees.md", "docs/migration.md")
"""Pages that show what Python prints."""


@contextmanager
def _elsewhere() -> Iterator[Path]:
    """A new working folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


@claim("report", f"What {', '.join(SHOWN)} show is what Python prints", "all of it")
def documents_show() -> Measured:
    sessions = 0
    for name in SHOWN:
        with _elsewhere():
            try:
                page(name).run({"__name__": "document"} | given(name))
            except AssertionError as error:
                return Measured(f"{name}: {error}", False)
        sessions += len(page(name).blocks("pycon"))
    return Measured(f"{sessions} sessions", True)


@claim("report", "Blocks of Python in the documents that tests run, and sketches among them", "<= 3 sketches")
def documents_run() -> Measured:
    blocks = [block for path in PAGES for block in Page(path).blocks("python", "pycon")]
    commands = sum(1 for path in PAGES for _ in Page(path).commands())
    sketches = sum(block.language == "python" and block.sketch for block in blocks)
    return Measured(f"{len(blocks)} blocks, {sketches} sketches; {commands} commands", sketches <= 3)


@claim(
    "report",
    "docs/tutorial.md from its first line to its last, every command and the Python: cpu time",
    "< 120 s",
    slow=True,
)
def tutorial_minutes() -> Measured:
    tutorial, start = page("docs/tutorial.md"), time.process_time()
    with _elsewhere() as folder:
        for year, name in ((2018, "sales.csv.gz"), (2017, "earlier.csv.gz")):
            (folder / name).write_bytes(london_sales(year).read_bytes())
        for each in tutorial.commands():
            done = CliRunner().invoke(app, each.words)
            if bool(done.exit_code) != any(line.startswith("error:") for line in each.shown):
                return Measured(f"{each.words}: {done.output}", False)
        with redirect_stdout(io.StringIO()):
            tutorial.run({"__name__": "document"})
    seconds = time.process_time() - start
    return Measured(f"{seconds:.0f} s", seconds < 120)


@claim(
    "report",
    "The documentation site: pages, links followed with their anchors, warnings of a strict build, what a browser "
    "would fetch from elsewhere, cpu time",
    "no warning, none broken, nothing fetched, < 60 s",
    slow=True,
)
def site_builds() -> Measured:
    with tempfile.TemporaryDirectory() as name:
        built, found = build(Path(name)), follow(Path(name))
    text = (
        f"{found.pages} pages, {found.inside:,} links ({found.anchors:,} to anchors), {len(found.broken)} broken, "
        f"{len(built.warnings)} warnings, {len(found.remote)} fetched, {built.cpu:.0f} s"
    )
    return Measured(text, not (found.broken or built.warnings or found.remote) and built.cpu < 60)


@claim(
    "report",
    f"Every page of the site in Chromium, in turn at {', '.join(map(str, WIDTHS))} pixels, light and dark: messages on "
    "the console, pages wider than their window, requests beyond the files; rules of axe-core broken by the first ten",
    "0, 0, 0; 0",
    slow=True,
)
def site_in_a_browser() -> Measured:
    if find() is None:
        return Measured("no browser here", False)
    said, wide, far, seen, broken = 0, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as name, browser() as window:
        build(Path(name))
        pages = [path for path in sorted(Path(name).rglob("*.html")) if path.name != "404.html"]
        for number, path in enumerate(pages):
            # All widths on the first pages, then one after the other: layouts are those of a few templates.
            widths = WIDTHS if number < 10 else (WIDTHS[number % len(WIDTHS)],)
            for width in widths:
                window.visit(path.as_uri(), width=width, dark=bool(number % 2))
                said, wide = said + len(window.errors()), wide + (window.overflow() > 0)
                far += sum(not each.startswith("file:") for each in window.requests())
                seen += 1
        for path in pages[:10] if axe() else ():
            window.visit(path.as_uri(), width=WIDTHS[0])
            broken += len(window.accessibility())
    text = f"{said}, {wide}, {far} in {seen} views of {len(pages)} pages; {broken if axe() else 'no axe-core here'}"
    return Measured(text, said == wide == far == broken == 0)
