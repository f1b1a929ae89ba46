"""The event that dp-accounting lacks; importing this module needs the extra `accounting`."""

from __future__ import annotations

import attr
from dp_accounting import DpEvent

from .loss import Neighbours

__all__ = ["EpsilonDeltaDpEvent"]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaDpEvent(DpEvent):
    """Application of some mechanism of which only (epsilon, delta)-DP is stated.

    The accountants of dp-accounting do not know this event and refuse it, which is safe: its guarantee can be read,
    stored with `to_named_tuple`, and imported again with `discretion.privacy.from_dp_event`, under its own neighbour
    relation only.
    """

    epsilon: float
    delta: float
    relation: int
    """Index of the neighbour relation in `Neighbours`: dp-accounting stores numbers, not words."""

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the statement is about."""
        return tuple(Neighbours)[self.relation]
