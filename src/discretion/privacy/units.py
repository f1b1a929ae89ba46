"""Units of privacy in words: which of them are one, and what is declared where nobody said whose each row is."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["booked_unit", "each_row", "same_unit", "whose_rows"]

_PICKED = re.compile(r": (one|at most [\d,]+) of its records takes? part, ")
_ONE_ROW = re.compile(r"(the response of )?(one|a|each) (row|record)( of the table| of those on which .*)?")


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


def same_unit(one: str, other: str) -> bool:
    """Whether the units `one` and `other`, in words, are one. How many records take part may differ, and so may the
    words for one row of which nobody said whose it is."""

    def owner(words: str) -> str:
        row = _ONE_ROW.fullmatch(_head(words).casefold())
        return "one row" if row else _PICKED.sub(": ", words.strip().rstrip(".")).casefold()

    return owner(one) == owner(other)


def booked_unit(mechanism: Any) -> str | None:
    """The unit of privacy of a mechanism's certificates, as far as it says so beforehand: `unit_in_words` or `unit`."""
    words = (getattr(mechanism, name, None) for name in ("unit_in_words", "unit"))
    return next((each for each in words if isinstance(each, str) and each.strip()), None)


def _head(unit: str) -> str:
    """Up to the first stop or bracket."""
    return re.split(r"[;:.(]", unit)[0].strip()
