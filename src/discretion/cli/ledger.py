"""``discretion ledger``: make the book of a data set's budget, read it, and check that nobody edited it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options
from discretion.cli.certificate import DIGEST, digest_of, examined, read, recorded
from discretion.cli.console import REFUSED, note, plain_errors, show
from discretion.privacy import (
    Composing,
    Ledger,
    Neighbours,
    PrivacyLoss,
    PureDP,
    fingerprint,
    ledgers,
    round_up,
)
from discretion.privacy.budget import OVERDRAWN, round_down
from discretion.privacy.chain import parting, read_export
from discretion.privacy.ledger import Entry
from discretion.privacy.loss import Guarantee
from discretion.privacy.profiles import PrivacyProfile
from discretion.privacy.signing import SignedCertificate
from discretion.privacy.units import TOGETHER, by_unit, mixed

ledger = typer.Typer(
    no_args_is_help=True,
    help="The book that keeps a data set's privacy budget: a file, or one of several in a PostgreSQL database.",
)

Place = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="The ledger: a file, or postgresql://user@host/database?ledger=NAME (passwords: PGPASSWORD, ~/.pgpass).",
        show_default=False,
    ),
]
LARGEST_DELTA = 1e-3
"""Above it `init` says that a budget's delta promises little."""
WIDTH, INDENT = 80, " " * 7
"""Of the words below an entry's figures."""

Table_ = Annotated[
    Path | None, typer.Option("--records", help="File of the private records, for their keyed fingerprint.")
]
Key = Annotated[Path | None, typer.Option(help="File with the steward's key, at least 16 random bytes.")]


@ledger.command()
def init(
    place: Place,
    dataset: Annotated[str, typer.Option(help="Name of the data set, such as 'London sales 2018'.")],
    epsilon: Annotated[float, typer.Option(help="Budget: total epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget: total delta.")],
    neighbours: Annotated[Neighbours, typer.Option(help="Neighbour relation of everything booked here.")] = (
        Neighbours.REPLACE
    ),
    composition: Annotated[Composing, typer.Option(help="Rule by which losses are added up.")] = Composing.RENYI,
    order: Annotated[float | None, typer.Option(help="Renyi order of the rule renyi-filter.")] = None,
    records: Table_ = None,
    key_file: Key = None,
) -> None:
    """Open a new book with a budget. An existing ledger is never overwritten."""
    with plain_errors():
        made = Ledger.create(
            place,
            dataset=dataset,
            epsilon=epsilon,
            delta=delta,
            neighbours=neighbours,
            composition=composition,
            order=order,
            fingerprint=None if records is None else fingerprint(records, _key(key_file)),
        )
        line = f"{made.place}: {made.dataset}, budget epsilon {epsilon:g} at delta {delta:g}."
        show({}, as_json=False, lines=[line, f"head {made.head()}"])
        if delta > LARGEST_DELTA:
            note(
                f"delta {delta:g} is large: with one record in {1.0 / delta:,.0f} published whole the promise would "
                "be kept. Well below one over the number of records is usual. A budget is never changed: begin anew."
            )


@ledger.command("list")
def list_(place: Place, json_: options.Json = False) -> None:
    """The ledgers of a database, by name."""
    with plain_errors():
        found = ledgers(place)
        rows = [
            {
                "name": each.name,
                "dataset": each.dataset,
                "epsilon": float(each.epsilon),
                "delta": float(each.delta),
                "neighbours": each.neighbours,
                "composition": each.composition,
                "created": each.created,
            }
            for each in found
        ]
        lines = [
            f"{row['name']}: {row['dataset']}, epsilon {row['epsilon']:g} at delta {row['delta']:g} "
            f"({row['neighbours']} neighbours, {row['composition']}), since {row['created']}"
            for row in rows
        ]
        show({"ledgers": rows}, as_json=json_, lines=lines or ["No ledger here."])


@ledger.command("show")
def show_(place: Place, json_: options.Json = False) -> None:
    """What was spent and what is left."""
    with plain_errors():
        book = Ledger.open(place)
        spent, entries = book.spent(), book.entries()
        result = {
            "dataset": book.dataset,
            "budget_epsilon": book.epsilon,
            "delta": book.delta,
            "neighbours": str(book.neighbours),
            "composition": str(book.budget.composition),
            "spent_epsilon": spent.epsilon,
            "remaining_epsilon": book.remaining(),
            "next_epsilon": book.next_epsilon(),
            "overdrawn": book.overdrawn(),
            "entries": [
                {"id": entry.id, "state": str(entry.state), "created": entry.created, **entry.description}
                for entry in entries
            ],
        }
        lines = [_sum(book, spent), *_overdrawn(result["overdrawn"])]
        lines += [f"{entry.id:>5}  {entry.state:<9} {entry.created}  {_what(entry)}" for entry in entries]
        lines += [*_room(result["next_epsilon"], book), *_units(entries)]
        show(result, as_json=json_, lines=lines)


@ledger.command("spend-report")
def spend_report(
    place: Place,
    last: Annotated[int, typer.Option(min=1, help="How many of the latest entries to list.")] = 100,
    json_: options.Json = False,
) -> None:
    """Who spent what, when; the epsilon of all entries together after each, and what was left then."""
    with plain_errors():
        book = Ledger.open(place)
        entries, after = book.entries(), book.odometer(last)
        # Entries reserved between the two questions are in the one only.
        shown = entries[max(len(entries) - last, 0) :][: len(after)]
        rows = [_row(book, entry, total) for entry, total in zip(shown, after, strict=False)]
        spent = book.spent()
        result = {
            "dataset": book.dataset,
            "budget_epsilon": book.epsilon,
            "delta": book.delta,
            "neighbours": str(book.neighbours),
            "composition": str(book.budget.composition),
            "rule": spent.rule,
            "spent_epsilon": spent.epsilon,
            "remaining_epsilon": book.remaining(),
            "next_epsilon": book.next_epsilon(),
            "overdrawn": book.overdrawn(),
            "entries_in_all": len(entries),
            "entries": rows,
        }
        show(
            result,
            as_json=json_,
            lines=[
                _sum(book, spent),
                *_overdrawn(result["overdrawn"]),
                *_table(rows),
                *_room(result["next_epsilon"], book),
                *_units(entries),
            ],
        )
        if len(shown) < len(entries) and not json_:
            note(f"The last {len(shown)} of {len(entries)} entries; --last {len(entries)} lists all.")


@ledger.command("record-past")
def record_past(
    place: Place,
    what: Annotated[str, typer.Option(help="What was released, in words.")],
    certificate: Annotated[Path | None, typer.Option(help="Its certificate, or its folder.")] = None,
    epsilon: Annotated[float | None, typer.Option(min=0.0, help="Without a certificate: its epsilon.")] = None,
    delta: Annotated[float, typer.Option(min=0.0, max=1.0, help="And its delta; 0 for a pure one.")] = 0.0,
    overdraw: Annotated[
        bool, typer.Option("--overdraw", help="Record it even if the budget does not allow it.")
    ] = False,
    other_unit: Annotated[
        bool, typer.Option("--other-unit", help="Record it beside entries that protect another unit.")
    ] = False,
    prior: Annotated[
        Path | None, typer.Option(help="Public file that the certificate's graph was made from, as for verify.")
    ] = None,
) -> None:
    """Record a release that was made without this ledger: what has happened counts, whether or not it fits.

    With --overdraw a budget can be exceeded. The ledger says so from then on and refuses every further release. A
    certificate is verified first; one that states less than its release costs is not taken for its word.
    """
    with plain_errors():
        book = Ledger.open(place, other_unit=other_unit)
        about: dict[str, Any] = {"what": what}
        if (certificate is None) == (epsilon is None):
            raise ValueError("Give --certificate, or --epsilon and --delta; one of the two.")
        if certificate is not None:
            opened = read(certificate)
            found = opened.certificate if isinstance(opened, SignedCertificate) else opened
            if (found.ledger_entry or "").partition("#")[0] == book.id:
                raise ValueError(f"That release is in this ledger already: entry {found.ledger_entry}.")
            before = recorded(found, book)
            if before is not None:
                raise ValueError(f"That release was recorded already, as entry {before.id}. Nothing was written.")
            checked = examined(found, prior)
            if checked.refused:
                raise ValueError(
                    f"{certificate}: the certificate is refused: {' '.join(checked.refused)} Nothing was written. Find "
                    "out what the release cost, and record it by --epsilon and --delta."
                )
            if checked.unchecked:
                note("The certificate's price was NOT CHECKED: this version can't compute it again. It was believed.")
            loss = PrivacyLoss.from_dict(found.loss)
            about |= {
                DIGEST: digest_of(found),
            } | {"mechanism": found.mechanism, "parameters": found.parameters, "n": found.n, "unit": found.unit}
        else:
            assert epsilon is not None
            loss = (
                PrivacyProfile((epsilon,), (delta,), neighbours=book.neighbours)
                if delta
                else PureDP(epsilon, neighbours=book.neighbours)
            )
        entry = book.record_past(loss, about, overdraw=overdraw)
        lines = [f"Recorded as entry {entry}.", _sum(book, book.spent()), *_overdrawn(book.overdrawn())]
        show({}, as_json=False, lines=lines)


@ledger.command()
def verify(
    place: Place,
    head: Annotated[str | None, typer.Option(help="A head kept from before; the ledger must still contain it.")] = None,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="Certificate of a release booked here, or its folder (may be repeated).")
    ] = None,
    records: Table_ = None,
    key_file: Key = None,
    json_: options.Json = False,
) -> None:
    """Check that nothing was edited, removed or put in since it was written. Takes an export, too.

    Without a kept head nothing can tell that the latest entries are gone, or that all of it is an older copy.
    """
    with plain_errors():
        opened = [read(path) for path in certificate or []]
        certificates = [each.certificate if isinstance(each, SignedCertificate) else each for each in opened]
        if _is_export(place):
            if records is not None:
                raise ValueError("--records is checked against a ledger, not against an export.")
            found, overdrawn = read_export(_lines(place), head=head, certificates=certificates), None
        else:
            book = Ledger.open(place)
            found = book.verify(head, certificates)
            overdrawn = book.overdrawn()  # of an export nobody asks what it adds up to
            if records is not None:
                book.check_fingerprint(records, _key(key_file))
        result = {"events": found.events, "entries": found.entries, "head": found.head, "overdrawn": overdrawn}
        checked = [f"certificate is entry {(each.ledger_entry or '').partition('#')[2]}" for each in certificates]
        checked += [] if head is None else [f"the kept head is event {head.partition(':')[0]}"]
        words = "; ".join(checked)
        lines = [
            f"In order: {_counted(found.entries, 'entry', 'entries')} in {_counted(found.events, 'event', 'events')}.",
            *([f"{words[0].upper()}{words[1:]}."] if words else []),
            *_overdrawn(overdrawn or False),
            f"head {found.head}",
        ]
        show(result, as_json=json_, lines=lines)
        if head is None:
            note("Keep the head outside the ledger; verify --head finds if what was written until now is ever gone.")


@ledger.command()
def compare(
    place: Place,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another copy of it, or an export.")],
    json_: options.Json = False,
) -> None:
    """Two copies of a ledger, or exports: are they the same, does one go on from the other, or did they part?

    The chain of each is checked first. Exit code 4 if they parted: what was spent in either counts.
    """
    with plain_errors():
        for each in (place, other):
            read_export(_lines(each))
        shared, here, there = parting(_lines(place), _lines(other))
        if here and there:
            said = (
                f"They parted after event {shared}: {_counted(here, 'event', 'events')} more in {place}, {there} in "
                f"{other}. Losses of both are spent. Go on with one, and reserve in it what only the other has."
            )
        elif here or there:
            newer, older = (place, other) if here else (other, place)
            said = f"{newer} goes on from {older}: {_counted(here or there, 'event', 'events')} more. Keep the first."
        else:
            said = f"They are the same, of {_counted(shared, 'event', 'events')}."
        result = {"shared_events": shared, "only_in_first": here, "only_in_second": there}
        show(result, as_json=json_, lines=[said])
        if here and there:
            raise typer.Exit(REFUSED)


@ledger.command()
def export(
    place: Place,
    out: Annotated[Path | None, typer.Option(help="File to write, which does not exist; otherwise stdout.")] = None,
) -> None:
    """The whole ledger as lines of JSON, with the chain; `verify` checks such a file."""
    with plain_errors():
        lines = Ledger.open(place).export()
        if out is None:
            for line in lines:
                typer.echo(line)
            return
        with out.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _key(path: Path | None) -> bytes:
    if path is None:
        raise ValueError("--records needs --key-file: a fingerprint without a key could be guessed.")
    return path.read_bytes()


def _lines(place: str) -> Iterator[str]:
    """The export of a ledger, or the lines of the file that is one."""
    if not _is_export(place):
        yield from Ledger.open(place).export()
        return
    with Path(place).open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def _is_export(place: str) -> bool:
    if "://" in place or not Path(place).is_file():
        return False
    with Path(place).open("rb") as file:
        return file.read(1) == b"{"


def _sum(book: Ledger, spent: Guarantee) -> str:
    return (
        f"{book.dataset}: spent epsilon {round_up(spent.epsilon, 4)} of {book.epsilon:g} at delta {book.delta:g} "
        f"({book.neighbours} neighbours, {book.budget.composition} composition)."
    )


def _overdrawn(overdrawn: bool) -> Iterator[str]:
    if overdrawn:
        yield from textwrap.wrap(OVERDRAWN, WIDTH)


def _what(entry: Entry) -> str:
    """What an entry was for, in few words."""
    about = entry.description
    what = str(about.get("mechanism") or about.get("what") or next(iter(about.values()), ""))
    if not entry.past:
        return what
    words = str(about.get("what") or what)
    return f"{words} (recorded afterwards)" if words == what else f"{what}: {words} (recorded afterwards)"


def _row(book: Ledger, entry: Entry, total: Guarantee) -> dict[str, Any]:
    return {
        "id": entry.id,
        "state": str(entry.state),
        "created": entry.created,
        "who": entry.who,
        "what": _what(entry),
        "n": entry.description.get("n"),
        "unit": entry.description.get("unit"),
        "epsilon_alone": book.budget.spent([(entry.loss, 1)]).epsilon,
        "epsilon_after": total.epsilon,
        "epsilon_left": book.budget.left(total.epsilon),
        "reason": entry.reason,
        "description": entry.description,
    }


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line of figures for each entry, and below it the words, however long they are."""
    yield ""
    yield f"{'':>5}  {'when (UTC)':<16}  {'state':<8}  {'epsilon: alone':>16}  {'so far':>10}  {'left':>10}"
    for row in rows:
        when = row["created"][:16].replace("T", " ")
        figures = f"{round_up(row['epsilon_alone'], 4):>16}  {round_up(row['epsilon_after'], 4):>10}"
        yield f"{row['id']:>5}  {when:<16}  {row['state']:<8}  {figures}  {round_down(row['epsilon_left'], 4):>10}"
        what = row["what"] if row["n"] is None else f"{row['what']}, n = {row['n']:,}"
        for words in (f"{what}; by {row['who']}", row["reason"] or ""):
            yield from textwrap.wrap(words, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    yield ""


def _room(epsilon: float, book: Ledger) -> Iterator[str]:
    """What would be accepted next, where "left" is a difference of epsilons."""
    kind = "Gaussian release" if book.delta else "pure release"
    said = f"A next {kind} of epsilon up to about {round_down(epsilon, 4)} would be accepted: losses compose, and "
    said += "what is left of the epsilon is not what decides."
    yield from textwrap.wrap(said if epsilon else f"No further {kind} would be accepted.", WIDTH)


def _units(entries: list[Entry]) -> Iterator[str]:
    """Who is protected by which of the entries, of those that say so; a word of warning where they differ."""
    units = by_unit((entry.id, entry.description.get("unit")) for entry in entries)
    for unit, found in units.items():
        yield f"Unit of {'entry' if len(found) == 1 else 'entries'} {', '.join(map(str, found))}: {unit}"
    if mixed(units):
        yield TOGETHER
