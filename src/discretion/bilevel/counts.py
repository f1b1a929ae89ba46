"""Who is in which loss, and how many they are: public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from typing import Any

import numpy as np

from discretion.privacy import Neighbours, PublicError

__all__ = [
    "Counts",
    "Layout",
    "SplitRecords",
    "check_count",
    "check_whole",
    "in_blocks",
    "inner_part",
    "outer_part",
    "relation",
]

_BLOCK = 4096


class Layout(StrEnum):
    """Which records enter which loss."""

    JOINT = "joint"
    """Every record enters both."""
    SPLIT = "split"
    """Training records enter the inner loss, validation records the outer one; who is which is public."""
    SEPARABLE = "separable"
    """Every record has an inner problem of its own (a user, a task)."""


@dataclass(frozen=True)
class Counts:
    """Public numbers of records.

    Attributes:
        training: records of the inner loss; in the joint layout all records.
        validation: records of the outer loss; None in the joint and separable layouts, where they are the same.
    """

    training: int
    validation: int | None = None

    def __post_init__(self) -> None:
        for value in self.parts:
            check_whole("The number of records, which is public,", value)

    @property
    def outer(self) -> int:
        """Records of the outer loss."""
        return self.training if self.validation is None else self.validation

    @property
    def parts(self) -> tuple[int, ...]:
        """Of each part."""
        return (self.training,) if self.validation is None else (self.training, self.validation)

    @property
    def total(self) -> int:
        """All records."""
        return sum(self.parts)


@dataclass(frozen=True, eq=False, repr=False)
class SplitRecords:
    """PRIVATE. Records of the inner loss, ``training``, and of the outer, ``validation``, as the problem takes them."""

    training: Any
    validation: Any


def inner_part(records: Any) -> Any:
    """The records of the inner loss."""
    return records.training if isinstance(records, SplitRecords) else records


def outer_part(records: Any) -> Any:
    """The records of the outer loss."""
    return records.validation if isinstance(records, SplitRecords) else records


def in_blocks(to: Any, records: Any, most: int) -> Iterator[tuple[Any, int]]:
    """PRIVATE. Placed records in blocks of one public shape, and how many rows at the head of each count.

    The last block is filled up with copies of the last record, to be left out. So no row is computed in an array whose
    shape tells how many records there are: back ends round differently in arrays of other shapes.

    Args:
        to: the back end. most: the public number of records, or its bound.
    """
    count, size = to.count(records), min(_BLOCK, most)
    for at in range(0, count, size):
        whole = at + size <= count
        rows = slice(at, at + size) if whole else np.minimum(np.arange(at, at + size), count - 1)
        yield to.some(records, rows), min(size, count - at)


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")


def relation(neighbours: Any) -> Neighbours:
    """The relation between data sets.

    Raises:
        ValueError: one without an account here.
    """
    found = Neighbours(neighbours)
    if found is Neighbours.REPLACE_RESPONSE:
        raise ValueError("Bilevel problems have an account under 'replace' and 'add-remove' neighbours only.")
    return found


def check_count(found: int, public: int, neighbours: Neighbours) -> None:
    """Refuse another number of records than the public one, or more than the public bound.

    Raises:
        PublicError: the number does not fit; it is not told.
    """
    if neighbours is Neighbours.ADD_REMOVE:
        if found > public:
            raise PublicError(f"There are more records than the declared bound of {public:,}; declare more.")
    elif found != public:
        raise PublicError(
            f"There are not {public:,} records, as was declared; the number is public: give the right one."
        )
