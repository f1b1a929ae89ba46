"""The unit of privacy: whose each record is, and how many records of one owner take part.

A guarantee for one record does not cover somebody who has several. Either each owner's records are cut to one, or the
guarantee is made for a group of K (`docs/proofs/group-privacy.md`, `docs/unit-of-privacy.md`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.posterior.records import Floats, Records
from discretion.privacy import PublicError, Randomness
from discretion.privacy.frames import cleared
from discretion.privacy.noise import source_of
from discretion.privacy.quiet import quiet
from discretion.privacy.units import each_row, same_unit

__all__ = [
    "ONE_ROW",
    "OWNER",
    "bounded_contributions",
    "check_owners",
    "checked_ids",
    "each_row",
    "limit_contributions",
    "owned_records",
    "same_unit",
    "unit_assumptions",
    "unit_in_words",
]

OWNER = "one owner of records, with all of them"
"""Who is protected, where ids say whose each record is and nothing else was said."""

ONE_ROW = "one row of the table; a person with several rows is not covered as a whole"
"""Who is protected in a table, where nothing says whose each row is and nothing else was said."""

ONE_ID = "One value of the column of ids is one unit: whoever has two values counts as two."


@cleared
def bounded_contributions(ids: Any, most: int, randomness: Randomness | None = None) -> NDArray[np.bool_]:
    """Which records to keep so that each unit has at most `most`: a uniform random pick among its own records.

    The pick does not look at the records, and that of one unit does not depend on the others. So when one unit comes,
    goes or changes, the picks of all others stay as likely as they were, and no more than `most` records differ
    (`docs/proofs/group-privacy.md`, Theorem 1).

    Parameters
    ----------
    ids : array (n,)
        PRIVATE. Whose record it is; see `checked_ids`.
    most : int
        Records that a unit may keep, at least 1. Public, chosen without looking at the records.
    randomness : Randomness, optional
        By default the operating system's.

    Returns
    -------
    array (n,) of bool
        True for the records to keep, in the order of `ids`. Private.

    Raises
    ------
    PublicError
        If an id is missing or neither text nor a whole number; names rows, never values.
    ValueError
        If `most` is not a whole number of at least 1.
    """
    if isinstance(most, bool) or int(most) != most or most < 1:
        raise ValueError(f"Records that a unit may keep are a whole number of at least 1; got {most!r}.")
    owners = checked_ids(ids)
    source = source_of(randomness)
    return limit_contributions(owners, int(most), source.uniform(len(owners)))


@quiet()
def checked_ids(ids: Any) -> NDArray[np.intp]:
    """Ids as whole numbers from 0, equal where the ids are.

    Ids are compared as text without blanks around, a whole number being its decimal digits: 7, 7.0 and "7" are one id,
    "007" and "7" two. Who has two ids counts as two units.

    Raises
    ------
    PublicError
        If an id is missing (None, NaN, empty text), or neither text nor a whole number; names rows, never values.
    """
    table = np.asarray(ids, dtype=object) if not isinstance(ids, np.ndarray) else ids
    if table.ndim != 1:
        raise PublicError("units must name the owner of each record: one for one, in one dimension.")
    if table.dtype.kind in "iu":
        return np.unique(table, return_inverse=True)[1]
    texts = [_text(value) for value in table.tolist()]
    for missing, what in (("", "missing"), (None, "neither text nor a whole number")):
        rows = [row for row, text in enumerate(texts) if text == missing]
        if rows:
            listed = ", ".join(map(str, rows[:10])) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
            raise PublicError(f"The unit is {what} at rows {listed} (from 0); every record needs an owner.")
    numbers: dict[str | None, int] = {}  # numpy's texts drop NULs at their ends
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.intp)


def check_owners(units: Any, count: int, most: int) -> None:
    """Whether ``units``, if given, name the owners of `count` records, none of whom has more than `most`.

    Raises
    ------
    PublicError
        They don't; in words that hold no id.
    """
    if units is None:
        return
    if np.shape(units) != (count,):
        raise PublicError("units must name the owner of each record: one for one, in one dimension.")
    if np.bincount(checked_ids(units)).max(initial=0) > most:
        raise PublicError(f"A unit has more than {most:,} records; cut them first (bounded_contributions).")


def _text(value: Any) -> str | None:
    """The id as it is compared: "" where it is missing, None where it is none."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else "" if value != value else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def limit_contributions(units: ArrayLike, most: int, keys: ArrayLike) -> NDArray[np.bool_]:
    """Which records to keep so that each unit has at most `most`: those with its smallest keys.

    The rule looks at the records of that unit only, as the account of several contributions requires.

    Parameters
    ----------
    units : array (n,)
        Whose record it is.
    most : int
        Records a unit may contribute.
    keys : array (n,) or (n, q)
        What orders the records of a unit; of equal rows any may be kept.
    """
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    table = np.asarray(keys).reshape(len(unit), -1)
    order = np.lexsort((*table.T[::-1], unit))
    starts = np.flatnonzero(np.diff(unit[order], prepend=-1))
    rank = np.arange(len(unit)) - np.repeat(starts, np.diff(starts, append=len(unit)))
    kept = np.zeros(len(unit), dtype=bool)
    kept[order] = rank < most
    return kept


def owned_records(X: Floats, y: Floats, units: Any, most: int, randomness: Randomness | None = None) -> Records:
    """PRIVATE. Records X (n, d) and y (n,), cut to `most` for each of the ``units`` (n,), if given, by a random pick.

    The pick is by ``randomness``, by default the operating system's. A test seed is copied, so that it starts anew each
    time.

    Raises
    ------
    PublicError, ValueError
        As `bounded_contributions`; or the ids are not one for one.
    """
    if units is None:
        return Records(X, y)
    owners = checked_ids(units)
    if len(owners) != len(X):
        raise PublicError("units must name the owner of each record: one for one, in one dimension.")
    source = randomness if randomness is None or randomness.bookable else deepcopy(randomness)
    kept = bounded_contributions(owners, most, source)
    return Records(X[kept], y[kept], owners[kept])


def unit_in_words(unit: str, most: int) -> str:
    """The unit of privacy for the certificate: who is protected, ``unit``, and how many records take part, ``most``."""
    kept = "one of its records takes part" if most == 1 else f"at most {most:,} of its records take part"
    return f"{unit.strip().rstrip('.')}: {kept}, picked at random without looking at them"


def unit_assumptions(unit: str, most: int, *, limited: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a guarantee for ``unit`` assumes of whose the records are: sentences enforced, and sentences declared.

    ``most``: records of one unit that are paid for. ``limited``: owners were given, and no unit has more.
    """
    few = f"At most {most:,} record{' of one unit of privacy is' if most == 1 else 's of one unit of privacy are'}"
    few += " among the records."
    if limited:
        return (few,), (ONE_ID,)
    return (), (few if most > 1 else each_row(unit),)
