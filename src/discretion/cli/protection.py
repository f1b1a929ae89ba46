"""Who is protected, and which ledger pays: options that `release` and `tune` share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options
from discretion.cli.console import note
from discretion.cli.tables import Columns
from discretion.posterior.units import ONE_ROW, unit_in_words
from discretion.privacy import Ledger, Neighbours

__all__ = ["Protection"]

PRIVACY = "Privacy"


@dataclass(frozen=True)
class Protection:
    """What one unit is, and who keeps account of it."""

    delta: options.Delta = "n^-1.1"
    most_records: Annotated[
        int | None,
        typer.Option(help="Public bound of the number of rows, where that is private.", rich_help_panel=PRIVACY),
    ] = None
    unit: Annotated[
        str,
        typer.Option(
            help="What one row is, or with --unit-id one unit, in words, for the certificate.", rich_help_panel=PRIVACY
        ),
    ] = ONE_ROW
    unit_id: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose each row is: the promise is then for all rows of one unit, not for one row.",
            rich_help_panel=PRIVACY,
        ),
    ] = None
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger that pays: a file or a postgresql:// URL (discretion ledger init makes one).",
            rich_help_panel=PRIVACY,
        ),
    ] = None
    other_unit: Annotated[
        bool,
        typer.Option(
            "--other-unit",
            help="Book in a ledger whose earlier entries protect another unit: their epsilons then add up for nobody.",
            rich_help_panel=PRIVACY,
        ),
    ] = False
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="The steward's key: nothing is spent unless TABLE is the file that the ledger was made for.",
            rich_help_panel=PRIVACY,
        ),
    ] = None

    def mistakes(self, columns: Columns, neighbours: Neighbours, most: int = 1) -> Iterator[tuple[bool, str]]:
        """What may be wrong with these, and whether it is; `most` rows of a unit may take part in kernel sums."""
        adding = neighbours is Neighbours.ADD_REMOVE
        yield (
            (self.most_records is None) == adding and most == 1,
            "--neighbours add-remove and --most-records, a public bound of the number of rows, go together.",
        )
        yield (
            most > 1 and self.most_records is None,
            "--max-per-unit above 1: a unit may have more or fewer rows, so their number is private; give "
            "--most-records, a public bound of it.",
        )
        yield (
            (adding or most > 1) and self.delta.startswith("n"),
            f"--{'max-per-unit' if most > 1 else 'neighbours add-remove'}: the number of rows is private, so "
            "--delta must be a number.",
        )
        yield (
            self.unit_id is not None and columns.aggregate_ is not None,
            "--aggregate makes one record of each hexagon, in which the rows of many units are mixed; there is no "
            "account of units for that. Leave --unit-id out, or --aggregate.",
        )
        yield (
            self.key_file is not None and self.ledger is None,
            "--key-file is for a --ledger that was made with the fingerprint of its records.",
        )

    def who(self, most: int = 1) -> str:
        """Who is protected, in words."""
        if self.unit_id is None:
            return self.unit
        owner = f"one value of the column {self.unit_id!r}, with all its rows" if self.unit == ONE_ROW else self.unit
        return unit_in_words(owner, most)

    def bound(self) -> dict[str, Any]:
        """The public bound of the number of rows, for a mechanism."""
        return {} if self.most_records is None else {"most_records": self.most_records}

    def delta_at(self, n: int) -> float:
        """Delta, a number."""
        return options.delta_of(self.delta, n)

    def book(self) -> Ledger | None:
        """The ledger that pays."""
        if self.ledger is None:
            return None
        if "://" not in self.ledger and not Path(self.ledger).exists():
            raise ValueError(f"{self.ledger}: no such ledger; discretion ledger init {self.ledger} ... makes one.")
        return Ledger.open(self.ledger, other_unit=self.other_unit)

    def check_table(self, book: Ledger | None, table: Path) -> None:
        """Refuse a table that the ledger was not made for; only who has the key can ask."""
        if book is not None and self.key_file is not None:
            book.check_fingerprint(table, self.key_file.read_bytes())
        elif book is not None and book.journal.opening.fingerprint is not None:
            note("The ledger knows its records by a fingerprint, which was not checked: --key-file checks it.")
