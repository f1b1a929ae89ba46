"""What every command shares: where words go, and what an error looks like. Results to stdout, all else to stderr."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from discretion.privacy import BudgetExceeded, LedgerError, NotBookable, PublicError, Unreachable

BAD_INPUT, OVER_BUDGET, REFUSED, NO_MAP, NOT_CHECKED = 2, 3, 4, 5, 6
"""Exit codes; NO_MAP: a search ended, and was paid for, without a map. NOT_CHECKED: nothing here computes it again."""

_OPTION = re.compile(
    r"^(transform|missing|outside|encoding|decimal|delimiter|epsilon|delta|length_scale|alpha|ridge|scale|paths|rule|"
    r"prior_noise|jitter|nugget|threshold|response_range|most_records|worlds|kernels|clusters)"
    r"(?= (must|is|needs|takes|are|'))"
)
"""Parameters that start a sentence of an error, and are options of the same name."""

stdout = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the errors people meet into one plain message and an exit code; nothing else is caught."""
    try:
        yield
    except BudgetExceeded as error:
        _say(error, OVER_BUDGET)
    except (Unreachable, NotBookable, LedgerError, PublicError, FloatingPointError) as error:
        _say(error, REFUSED)
    except (ValueError, ImportError, OSError) as error:
        _say(error, BAD_INPUT)


def _for_the_command_line(text: str) -> str:
    """Advice written for Python, such as missing="drop", as options: --missing drop; and what is wrong by its option.

    Libraries call a parameter by its name, `epsilon must be positive`, and whoever typed it knows it as --epsilon.
    """
    text = _OPTION.sub(lambda found: "--" + found[0].replace("_", "-"), text)
    return re.sub(r'\b(transform|missing|outside|encoding|decimal|delimiter)="([^"]*)"', r"--\1 \2", text)


def _say(error: Exception, code: int) -> None:
    text = str(error)
    text += "." if text[-1:].isalnum() and "\n" not in text else ""
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}."
    stderr.print(f"[bold red]error:[/] {_escaped(_for_the_command_line(text))}")
    raise typer.Exit(code) from None


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def note(text: str) -> None:
    """A line for the person at the terminal."""
    stderr.print(_escaped(text), style="dim")


def show(result: dict[str, Any], *, as_json: bool, lines: list[str]) -> None:
    """The result: one JSON object, or lines for a person."""
    if as_json:
        stdout.print_json(json.dumps({key: _plain(value) for key, value in result.items()}, allow_nan=False))
        return
    for line in lines:
        stdout.print(_escaped(line))


def _plain(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Steps of a release on stderr, with the time each takes. Names steps only, never anything about the records.

    Where stderr is no terminal, nothing.
    """
    if not stderr.is_terminal:
        yield lambda _: None
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=stderr, transient=True) as bar:

        def step(name: str) -> None:
            for task in bar.task_ids:
                bar.stop_task(task)
            bar.add_task(name, total=None)

        yield step


@contextmanager
def searching(text: str) -> Iterator[None]:
    """What a search is about, with its time, on a terminal; where stderr is a file one line of it."""
    if not stderr.is_terminal:
        note(f"{text} ...")
        yield
        return
    with steps() as step:
        step(text)
        yield
