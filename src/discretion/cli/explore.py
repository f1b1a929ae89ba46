"""``discretion explore``: a local page to choose a budget by looking. It has no way to take a record."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from discretion.cli.console import note, plain_errors, stdout
from discretion.report.explorer import Explorer

__all__ = ["explore"]


def explore(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the local server; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Move sliders and see what a release would cost, and what a map of it would look like: simulated, no records.

    The page is served on this machine alone, under an address with a random token. Ctrl-C ends it.
    """
    with plain_errors():
        explorer = Explorer(port)
    stdout.print(explorer.address)
    note("Whoever has this address and is on this machine may ask for prices. Ctrl-C ends it.")
    if browser:
        webbrowser.open(explorer.address)
    try:
        explorer.serve()
    except KeyboardInterrupt:
        note("Ended.")
