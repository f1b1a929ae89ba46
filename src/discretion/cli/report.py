"""``discretion report``: the page a person reads, of any finished release; `release` and `tune` write it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options
from discretion.cli.console import note, plain_errors, show
from discretion.cli.sheet import Page
from discretion.privacy import Ledger
from discretion.report import View, write_folder_report
from discretion.report.folder import PAGE

__all__ = ["add_page", "report"]


def add_page(out: Path, page: Page, floor: float, book: Ledger | None) -> list[str]:
    """Write the page of the release in a folder; its name, or nothing where that fails: the release stands anyway."""
    projection = page.projection
    view = View(
        title=page.heading,
        units=page.units,
        logarithm=page.logarithm,
        source=page.source,
        plane="" if projection is None else projection.label,
        metres=None if projection is None else projection.metres_per_unit,
        region=() if page.region is None else page.region.polygons,
        threshold=page.threshold,
        below=page.below,
        floor=floor,
    )
    try:
        write_folder_report(out, view=view, ledger=book)
    except Exception:
        # It is paid for and written; whatever is wrong with a page must not hide it.
        note(f"The release is made, but not its page; discretion report {out} tries again.")
        return []
    return [PAGE]


def report(
    source: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of a release, its certificate.json, or the JSON of an audit."),
    ],
    ledger: Annotated[
        str | None,
        typer.Option(help="Ledger, a file or a postgresql:// URL: the page says what is spent and left. Not by whom."),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="What discretion audit found (its --json output): set beside the claim.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the page goes; by default report.html in the folder.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of a page that is made anew from the files.")] = None,
    units: Annotated[str | None, typer.Option(help="Units of the response, likewise.")] = None,
    json_: options.Json = False,
) -> None:
    """Write the page of a finished release: map, privacy in words, price, budget, how to check it. One file.

    Reads released files, a certificate and a ledger; never a table. The map and title of an earlier page are kept
    unless --title or --units is given.
    """
    with plain_errors():
        found: dict[str, Any] | None = None
        if audit is not None:
            try:
                found = json.loads(audit.read_text(encoding="utf-8"))
            except ValueError:
                raise ValueError(f"{audit} is not JSON; discretion audit ... --json writes it.") from None
            if not isinstance(found, dict) or "epsilon_lower" not in found or "delta" not in found:
                raise ValueError(f"{audit} is not what discretion audit ... --json prints.")
        view = None if title is None and units is None else View(title=title or "", units=units or "response")
        book = None if ledger is None else Ledger.open(ledger)
        target = write_folder_report(source, out, view=view, ledger=book, audit=found)
        size = target.stat().st_size
        show({"page": str(target), "bytes": size}, as_json=json_, lines=[f"{target}: {size / 1e6:.2f} MB"])
