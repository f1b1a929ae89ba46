"""The documentation site: built as `make docs` builds it, and every reference in it followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from benchmarks.documents import ROOT

__all__ = ["Built", "References", "build", "follow"]

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
"""What a browser fetches by itself; a link is followed by a reader."""


class Built(NamedTuple):
    """How a build went: what it had to say, and seconds of processor and of the clock."""

    warnings: list[str]
    cpu: float
    clock: float


def build(folder: Path) -> Built:
    """Build the site into a folder, strictly.

    Raises RuntimeError with what was said where that fails.
    """
    before, clock = os.times(), time.monotonic()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stdout + ran.stderr)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Built(re.findall(r"^(?:WARNING|ERROR).*", ran.stderr, re.MULTILINE), cpu, time.monotonic() - clock)


class _Page(HTMLParser):
    """Ids of a page, and what it refers to: (tag, attribute, address)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[tuple[str, str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {name for name in (given.get("id"), given.get("name") if tag == "a" else None) if name}
        self.references += [(tag, key, address) for key in ("href", "src") if (address := given.get(key)) is not None]


@dataclass
class References:
    """What was found in a site.

    Attributes:
        pages: how many.
        inside, anchors: links and files within the site, and those of them that lead to a place in a page.
        outside: addresses elsewhere, which only a reader follows.
        broken: those that lead nowhere, each after the page it is in.
        remote: what a browser would fetch from elsewhere.
    """

    pages: int
    inside: int
    anchors: int
    outside: set[str]
    broken: list[str]
    remote: list[str]


def follow(folder: Path) -> References:
    """Follow every reference of every page in a folder."""
    pages = {path.resolve(): _Page(path) for path in sorted(folder.rglob("*.html"))}
    found = References(len(pages), 0, 0, set(), [], [])
    for path, page in pages.items():
        for tag, key, address in page.references:
            parts = urlsplit(address)
            if parts.scheme in {"http", "https"} or parts.netloc:
                fetched = (tag, key) in LOADED and not (tag == "link" and "canonical" in address)
                (found.remote.append(f"{path.name}: {address}") if fetched else found.outside.add(address))
            elif not parts.scheme:
                found.inside += 1
                found.anchors += bool(parts.fragment)
                if not _leads(path, unquote(parts.path), unquote(parts.fragment), pages, folder.resolve()):
                    found.broken.append(f"{path.relative_to(folder.resolve())}: {address}")
    found.remote += _styles(folder)
    return found


def _leads(path: Path, target: str, fragment: str, pages: dict[Path, _Page], folder: Path) -> bool:
    place = folder / target.lstrip("/") if target.startswith("/") else path.parent / target if target else path
    place = place.resolve()
    if place.is_dir():
        place = place / "index.html"
    return place.exists() and (not fragment or place not in pages or fragment in pages[place].ids)


def _styles(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s+)[\"']?(https?:[^\"')]+)", path.read_text(encoding="utf-8")):
            yield f"{path.name}: {address}"
