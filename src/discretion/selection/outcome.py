"""What leaves a search: the winner, or the word that there is none, under the certificate of the whole search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Self

from discretion.privacy import Certificate, Release
from discretion.selection.sealed import opened

__all__ = ["FittedModel", "Outcome", "SelectionRelease", "bookable", "under"]


class Outcome(StrEnum):
    """How a search ended. All of them are outcomes the guarantee counts."""

    CHOSEN = "chosen"
    """A winner."""
    DEFAULT = "default"
    """No run was drawn (K = 0), whose chance is that of the law and has nothing to do with the records."""
    FAILED = "failed"
    """Every run failed or had no score. It says no more: how many there were is not told."""
    BELOW = "below"
    """No run reached the threshold before a coin ended the search. How likely that is depends on the records."""


@dataclass(frozen=True)
class FittedModel:
    """A fitted estimator as it left the winning run, as bytes; certificates in it are that of the search.

    Attributes:
        model: the bytes, without certificates.
        bookable: whether those that its run issued were.
        certificate: of the search.
    """

    model: bytes = field(repr=False)
    bookable: bool = field(default=True, repr=False)
    certificate: Certificate | None = field(default=None, repr=False)

    def load(self) -> Any:
        """The estimator. As with any pickle, load only what you released yourself."""
        return opened(self.model, self.certificate)


@dataclass(frozen=True, eq=False, repr=False)
class SelectionRelease(Release):
    """The winner of a private selection and the certificate of tuning plus release.

    Attributes:
        certificate: of the whole search. Its epsilon is what the records paid.
        one_run: the epsilon of a single run at the same delta: what the winner would have cost had it been the only
            candidate, run once. Never the price of what is released here.
        outcome: how the search ended.
        winner: what the winning run released, its own certificate replaced by that of the search; the default where
            no run was drawn or none reached the threshold; None where every run failed, or there is no default.
        candidate: position of the winner among the candidates, or None.
        choice: the public parameters in which the candidates differ, as the winner has them; empty without a winner.
        score: the very number by which the winner was ranked, its noise included; None without a winner.
    """

    outcome: Outcome
    winner: Any
    candidate: int | None
    choice: dict[str, Any]
    score: float | None
    one_run: float

    @property
    def is_default(self) -> bool:
        """Whether no run was drawn, so that the default is all there is."""
        return self.outcome is Outcome.DEFAULT

    def booked(self, ledger_entry: str) -> Self:
        """A copy whose certificate, the winner's too, names the ledger entry."""
        copy = super().booked(ledger_entry)
        return replace(copy, winner=under(copy.certificate, copy.winner))


def under(certificate: Certificate, winner: Any) -> Any:
    """The winner with this certificate in place of its own, at every depth of what a release may hold.

    Its own speak of one run and would promise too much, and the second at which they were made tells of the other runs.
    """
    return _with_each(winner, lambda part: _held(part, certificate))


def bookable(winner: Any) -> bool:
    """Whether no certificate that the winning run issued is TEST ONLY, at any depth."""
    found: list[bool] = []
    _with_each(winner, lambda part: found.append(part.bookable) or part)
    return all(found)


def _held(part: Certificate | FittedModel, certificate: Certificate) -> Certificate | FittedModel:
    return replace(part, certificate=certificate) if isinstance(part, FittedModel) else certificate


def _with_each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with every certificate and fitted model in it changed; what holds none is left as it is."""
    match value:
        case Certificate() | FittedModel():
            return change(value)
        case dict():
            return {key: _with_each(each, change) for key, each in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*(_with_each(each, change) for each in value))
        case tuple() | list() | frozenset():
            kind = next(kind for kind in (tuple, list, frozenset) if isinstance(value, kind))
            return kind(_with_each(each, change) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {item.name: getattr(value, item.name) for item in fields(value)}
    inside = {name: _with_each(each, change) for name, each in parts.items()}
    if all(inside[name] is each for name, each in parts.items()):
        return value
    copy = object.__new__(type(value))
    for name, each in inside.items():
        object.__setattr__(copy, name, each)
    return copy
