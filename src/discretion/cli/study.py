"""``discretion study``: the tables and figures of the papers, measured anew beside the published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discretion.cli import options
from discretion.cli.console import note, plain_errors, show
from discretion.studies import BACKENDS, SCALES, STUDIES, Run, backend, reports

_NAMES = "  \n".join(f"**{name}**: {words}" for name, (_, words) in STUDIES.items())


def study(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(STUDIES)}.")],
    out: Annotated[Path, typer.Option(help="Folder for tables (.csv, .md), figures (.png) and parts.")],
    scale: Annotated[str, typer.Option(help=f"{' or '.join(SCALES)} (as published).")] = "quick",
    jobs: Annotated[int, typer.Option(help="Configurations at once; -1: one a core.")] = 1,
    seed: Annotated[int, typer.Option(help="To repeat a study.")] = 0,
    data: Annotated[Path | None, typer.Option(help="Folder of data sets that are not bundled (london).")] = None,
    run_on: Annotated[str, typer.Option("--backend", help=f"{', '.join(BACKENDS)}.")] = "loky",
    address: Annotated[str | None, typer.Option(help="Of a dask or ray cluster; a local one if left out.")] = None,
    json_: options.Json = False,
) -> None:
    """A table or figure of Maciazek 2026 from simulated worlds, beside the published figures.

    A study that was stopped goes on where it was: finished configurations are kept in OUT/parts.
    """
    with plain_errors():
        run = Run(scale, out, jobs, seed, data)
        with backend(run_on, address):
            found = reports(name, run)
        files = [file for report in found for file in report.write(out)]
        for file in files:
            note(f"{file}")
        lines = [line for report in found for line in (*report.markdown().splitlines(), "")]
        show({"files": [str(file) for file in files]}, as_json=json_, lines=lines)


study.__doc__ = f"{study.__doc__}\n\n    {_NAMES}"
