from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from discretion.cli.groups import grouped


@dataclass(frozen=True)
class Place:
    """A group."""

    east: Annotated[float, typer.Option(help="Needed.", rich_help_panel="Where")]
    north: Annotated[float, typer.Option("--north", "-n", help="With a default.", rich_help_panel="Where")] = 2.0


@grouped
def command(
    context: typer.Context,
    place: Annotated[Place, "Elsewhere"],
    *,
    times: Annotated[int, typer.Option(help="Own.")] = 1,
) -> None:
    """A command."""
    typer.echo(f"{place} {times} {context.get_parameter_source('north').name}")


def test_the_fields_of_a_group_are_options_of_the_command():
    app = typer.Typer()
    app.command()(command)
    run = CliRunner()
    said = run.invoke(app, ["--east", "1", "--times", "3"])
    assert said.stdout.strip() == "Place(east=1.0, north=2.0) 3 DEFAULT"
    assert "north=5.0) 1 COMMANDLINE" in run.invoke(app, ["--east", "1", "-n", "5"]).stdout
    assert run.invoke(app, []).exit_code == 2
    shown = run.invoke(app, ["--help"]).stdout
    assert "Elsewhere" in shown
    assert "Where" not in shown.replace("Elsewhere", "")


def test_options_keep_their_order_and_their_documentation():
    assert command.__doc__ == "A command."
    assert list(command.__annotations__) == ["context", "east", "north", "times"]
