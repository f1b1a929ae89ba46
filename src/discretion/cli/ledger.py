"""``discretion ledger``: make the book of a data set's budget, and read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discretion.cli.console import plain_errors, show
from discretion.privacy import Ledger, Neighbours, round_up

ledger = typer.Typer(no_args_is_help=True, help="The book that keeps a data set's privacy budget.")

File = Annotated[Path, typer.Argument(help="The ledger, one SQLite file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@ledger.command()
def init(
    file: File,
    dataset: Annotated[str, typer.Option(help="Name of the data set, such as 'London sales 2018'.")],
    epsilon: Annotated[float, typer.Option(help="Budget: total epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget: total delta.")],
    neighbours: Annotated[Neighbours, typer.Option(help="Neighbour relation of everything booked here.")] = (
        Neighbours.REPLACE
    ),
) -> None:
    """Open a new book with a budget. An existing file is never overwritten."""
    with plain_errors():
        made = Ledger.create(file, dataset=dataset, epsilon=epsilon, delta=delta, neighbours=neighbours)
        show(
            {},
            as_json=False,
            lines=[f"{file}: {made.dataset}, budget epsilon {epsilon:g} at delta {delta:g}."],
        )


@ledger.command("show")
def show_(file: File, json_: Json = False) -> None:
    """What was spent and what is left."""
    with plain_errors():
        book = Ledger.open(file)
        spent, entries = book.spent(), book.entries()
        result = {
            "dataset": book.dataset,
            "budget_epsilon": book.epsilon,
            "delta": book.delta,
            "neighbours": str(book.neighbours),
            "spent_epsilon": spent.epsilon,
            "remaining_epsilon": book.remaining(),
            "entries": [
                {"id": entry.id, "state": str(entry.state), "created": entry.created, **entry.description}
                for entry in entries
            ],
        }
        lines = [
            f"{book.dataset}: spent epsilon {round_up(spent.epsilon, 4)} of {book.epsilon:g} at delta {book.delta:g} "
            f"({book.neighbours} neighbours)."
        ]
        lines += [
            f"{entry.id:>5}  {entry.state:<9} {entry.created}  {entry.description.get('mechanism', '')}"
            for entry in entries
        ]
        show(result, as_json=json_, lines=lines)
