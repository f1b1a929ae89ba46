"""The delta at which a certificate states its epsilon, where nobody chose one: that of the ledger that pays."""

from __future__ import annotations

import copy
import warnings
from typing import Protocol, TypeVar

from discretion.privacy.ledger import Ledger

__all__ = ["UNSTATED", "Unstated", "at_delta_of", "delta_of"]


class Unstated(float):
    """A delta that is a default: nobody said it. It counts as any other number."""


UNSTATED = Unstated(1e-5)
"""Of a certificate without a ledger."""


class _Stating(Protocol):
    @property
    def delta(self) -> float: ...


M = TypeVar("M", bound=_Stating)


def delta_of(ledger: Ledger | None) -> float:
    """The ledger's, if there is one that has one; else the default."""
    return (ledger.delta if ledger is not None else 0.0) or UNSTATED


def at_delta_of(mechanism: M, ledger: Ledger | None) -> M:
    """The mechanism, stating its epsilon at the ledger's delta unless it was given one. Its loss is the same.

    Warns where it was given another: then certificate and budget speak of different deltas.
    """
    wanted = delta_of(ledger)
    if isinstance(mechanism.delta, Unstated):
        mechanism = copy.copy(mechanism)
        object.__setattr__(mechanism, "delta", wanted)
    elif ledger is not None and ledger.delta and mechanism.delta != wanted:
        warnings.warn(
            f"delta = {float(mechanism.delta)!r} is not the ledger's, {wanted!r}: the certificate states epsilon at "
            "the first, the budget is counted at the second. Leave delta out for the ledger's.",
            stacklevel=3,
        )
    return mechanism
