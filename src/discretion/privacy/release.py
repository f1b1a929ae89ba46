"""What leaves: public values with their certificate, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Self

import numpy as np

from discretion.privacy.certificate import (
    LIMITS,
    SCHEMA,
    TEST_ONLY,
    Certificate,
    canonical,
    left_out,
    library_version,
    public_json,
    utc_now,
)

__all__ = [
    "LIMITS",
    "SCHEMA",
    "TEST_ONLY",
    "Certificate",
    "NotBookable",
    "Release",
    "canonical",
    "library_version",
    "public_json",
    "utc_now",
]


class NotBookable(ValueError):
    """Noise from a known seed was to be booked. Whoever knows the seed can take the noise away again."""


@dataclass(frozen=True, eq=False)
class Release:
    """Public values with their certificate. Subclasses are frozen dataclasses that add fields of public data.

    Fields may hold numbers, texts, NumPy arrays of them, tuples, lists, dictionaries and frozen dataclasses
    of those. Arrays are copied and made read-only, so that no larger array (a Gram matrix, a posterior mean)
    hangs on behind a view. Pickling and copying carry the declared fields and nothing else that was put on
    the object. A subclass that has its own `__post_init__` calls this one first.

    Raises:
        ValueError: a field holds something else, such as a function, a fitted model or an array of objects.
    """

    certificate: Certificate

    def __post_init__(self) -> None:
        if not isinstance(self.certificate, Certificate):
            raise ValueError("A release needs a Certificate as its field 'certificate'.")
        self.__setstate__({item.name: getattr(self, item.name) for item in fields(self)})

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _public(value, name))

    def booked(self, ledger_entry: str) -> Self:
        """A copy of this release whose certificate names the ledger entry.

        Raises:
            NotBookable: this release is TEST ONLY.
        """
        if not self.certificate.bookable:
            raise NotBookable(
                "This release is TEST ONLY: its noise came from a known seed, so it cannot be booked. "
                "Run the mechanism with SystemRandomness()."
            )
        return self._certified(replace(self.certificate, ledger_entry=ledger_entry))

    def leaving_out(self, rules: Iterable[str]) -> Self:
        """A copy of this release whose certificate says which rows public rules left out, if any did."""
        told = tuple(rules)
        if not told:
            return self
        limit = left_out(told, self.certificate.n)
        return self._certified(replace(self.certificate, limits=(*self.certificate.limits, limit)))

    def _certified(self, certificate: Certificate) -> Self:
        copy = object.__new__(type(self))
        copy.__setstate__(self.__getstate__() | {"certificate": certificate})
        return copy

    def text(self) -> str:
        """The certificate's page for a person who answers for the data."""
        return self.certificate.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.certificate!r}>"

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()


def _public(value: Any, where: str) -> Any:
    """`value` detached from whatever it was computed from; ValueError for what can hide private data."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufcSUmM":
            raise ValueError(
                f"A release's field {where} has dtype {value.dtype.kind!r}; only numbers and text may leave."
            )
        if isinstance(value, np.generic):
            return value
        owned = np.array(value, order="C", copy=True, subok=False)
        owned.flags.writeable = False
        return owned
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | Enum):
        return value
    if isinstance(value, tuple | list | frozenset):
        items = (_public(item, where) for item in value)
        if hasattr(value, "_fields"):  # a named tuple
            return type(value)(*items)
        return next(kind for kind in (tuple, list, frozenset) if isinstance(value, kind))(items)
    if isinstance(value, Mapping):
        return {_public(key, where): _public(item, where) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type) and type(value).__dataclass_params__.frozen:  # type: ignore
        # Rebuilt from its declared fields, so that nothing else that was put on it travels along.
        copy = object.__new__(type(value))
        for item in fields(value):
            object.__setattr__(copy, item.name, _public(getattr(value, item.name), f"{where}.{item.name}"))
        return copy
    raise ValueError(
        f"A release's field {where} is of type {type(value).__name__}, which may hold private data; "
        "only numbers, text, arrays of them and frozen dataclasses of those may leave."
    )
