"""The command line: parse, call, print."""

from __future__ import annotations

import typer

from discretion.cli import bilevel, gradient, membership, selection, thompson  # noqa: F401  (they register their commands)
from discretion.cli.audit import audit
from discretion.cli.certificate import certificate
from discretion.cli.cost import calibrate, cost
from discretion.cli.explore import explore
from discretion.cli.ledger import ledger
from discretion.cli.plan import plan
from discretion.cli.release import release
from discretion.cli.report import report
from discretion.cli.study import study
from discretion.cli.tune import tune

app = typer.Typer(
    name="discretion",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Publish what private records teach, and know exactly what it costs (differential privacy).",
    epilog="Exit codes: 0 done, 2 bad input, 3 over budget, 4 refused, 5 paid but no map (tune), 6 not checked "
    "(certificate verify). Results go to stdout, all else to stderr.",
)
app.command()(release)
app.command()(tune)
app.command()(study)
app.command()(report)
app.command()(explore)
app.add_typer(cost, name="cost")
app.add_typer(calibrate, name="calibrate")
app.add_typer(audit, name="audit")
app.add_typer(ledger, name="ledger")
app.add_typer(certificate, name="certificate")
app.add_typer(plan, name="plan")


@app.callback(invoke_without_command=True)
def _main(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from discretion import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of ``discretion``."""
    app()
