"""Units of privacy in words: which of them are one, who is protected in truth, and what is declared of whose rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = [
    "TOGETHER",
    "booked_unit",
    "by_unit",
    "certifies",
    "counted_by_ids",
    "each_row",
    "mixed",
    "protected",
    "same_unit",
    "whose_rows",
]

TOGETHER = "Losses of different units don't add up: the epsilon together is for no unit."

_PICKED = re.compile(r": (one|at most [\d,]+) of its records takes? part, ")
_ONE_ROW = re.compile(
    r"(the response of )?(one|a|each) (row|record)( of the table| of those on which [^;:.(]*)?"
    r"(; a person with several rows is not covered as a whole|"
    r" \((its covariates|its place|where it was measured) and its responses?\))?"
)

_LIMITED = re.compile(r"At most [\d,]+ records? of one unit of privacy (is|are) among the records\.")
"""The sentence of those whose records were counted by their owners' ids."""
_ROWS = re.compile(
    r"(the responses? of )?(one|a|each|any [\d,]+|[\d,]+) (row|record)s?( of the table| of those on which [^;:.(]*)?"
    r"(; a person with several rows is not covered as a whole| \((its covariates|where it was measured) and its "
    r"responses?\))?|one hexagon's record(: .*)?"
)
"""Units that claim no more than rows: of these nobody can think that they are persons."""


def each_row(unit: str) -> str:
    """What is declared of rows without owners: that each is all there is of one `unit`."""
    what = _head(unit)
    if re.search(r"\b(row|record)\b", what):
        # "Each row is one row" would say nothing.
        return (
            "Each record is one unit of privacy; nothing checked whose it is, and several rows of one person are not "
            "covered together."
        )
    what = what[:1].lower() + what[1:] if what[1:2].islower() else what
    return f"Each row of the table is {what}; nothing checked this, and several rows of one are not covered together."


def whose_rows(unit: str) -> tuple[str, ...]:
    """`each_row`, but for a `unit` whose rows were picked by their owners' ids."""
    return () if _PICKED.search(unit) else (each_row(unit),)


def counted_by_ids(enforced: Iterable[str]) -> bool:
    """Whether these sentences say that records were counted by their owners' ids."""
    return any(map(_LIMITED.fullmatch, enforced))


def protected(unit: str, enforced: Iterable[str], most: int = 1, *, short: bool = False) -> str:
    """Who is protected, in words: the `unit` where its records were counted by their owners' ids, else rows.

    Args:
        unit: in words, as a certificate has it.
        enforced: what the software made true; only a sentence of these can make rows into units.
        most: records of one unit that the price is for.
        short: for a line among others.
    """
    unit = unit.strip().rstrip(".")
    if counted_by_ids(enforced) or _ROWS.fullmatch(unit.casefold()):
        return unit.split(". ")[0] if short else unit
    head = _head(unit) if short else unit
    what = head[:1].lower() + head[1:] if head[1:2].islower() else head
    if most > 1:
        return f"any {most:,} rows, declared {'' if short else 'to be all those of '}{what}" + (
            "" if short else "; nothing checked whose they are, and whoever has more is not protected as a whole"
        )
    if short:
        return f"one row, declared {what}"
    return f"one row of the table, declared to be {what}; several rows of one are not protected together"


def by_unit(booked: Iterable[tuple[int, Any]]) -> dict[str, list[int]]:
    """The units that entries of a ledger name, in words, each with its entries."""
    found: dict[str, list[int]] = {}
    for entry, unit in booked:
        if isinstance(unit, str):
            found.setdefault(unit, []).append(entry)
    return found


def mixed(units: Iterable[str]) -> bool:
    """Whether these units, in words, are more than one (`same_unit`)."""
    first, *others = [*units] or [""]
    return not all(same_unit(first, other) for other in others)


def same_unit(one: str, other: str) -> bool:
    """Whether the units `one` and `other`, in words, are one. How many records take part may differ, and so may the
    words for one row of which nobody said whose it is."""

    def owner(words: str) -> str:
        words = words.strip().rstrip(".").casefold()
        return "one row" if _ONE_ROW.fullmatch(words) else _PICKED.sub(": ", words)

    return owner(one) == owner(other)


def booked_unit(mechanism: Any) -> str | None:
    """The unit of privacy of a mechanism's certificates, as far as it says so beforehand: `unit_in_words` or `unit`."""
    words = (getattr(mechanism, name, None) for name in ("unit_in_words", "unit"))
    return next((each for each in words if isinstance(each, str) and each.strip()), None)


def certifies(booked: str | None, unit: str) -> bool:
    """Whether a certificate may name `unit` where the ledger was told `booked`: the same one, or a row if it was told
    none. A ledger can't hold apart units that it does not hear of before the loss is spent."""
    return same_unit(unit, "one record" if booked is None else booked)


def _head(unit: str) -> str:
    """Up to the first stop or bracket."""
    return re.split(r"[;:.(]", unit)[0].strip()
