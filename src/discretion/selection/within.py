"""The search that costs what it may cost: the budget of one run, found from that of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from discretion.privacy import Unreachable, largest
from discretion.selection.search import SelectionMechanism

__all__ = ["search_within"]

Search = TypeVar("Search", bound=SelectionMechanism)

_SHARE = 0.999
"""Of the budget, what a search need not exceed to be taken."""
_LEAST, _MOST = 1e-3, 4.0
"""Epsilon of one run that is tried, as a share of the whole: more than 1 where often there is no run."""


def search_within(make: Callable[[float], Search], epsilon: float, n: int | None) -> tuple[Search, float]:
    """The search whose price at its delta is `epsilon`, or up to a thousandth less, and the epsilon of one run.

    Any candidates can be calibrated to one epsilon a run; the price of the whole is found with their own losses, and
    that of the search returned was computed. It grows about in proportion to epsilon a run, so that a few steps

        one run <- one run * epsilon / price

    arrive; where they don't, bisection does.

    Args:
        make: from epsilon of one run to the search, all of whose candidates cost about that at its delta.
        epsilon: of the whole search, tuning and release.
        n: the number of records, where it is public.

    Raises:
        Unreachable: not even a thousandth of epsilon a run is within it.
        ValueError: epsilon not positive and finite, or no candidate can be made so private.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon of a search must be a positive finite number; got {epsilon!r}.")
    tried: dict[float, Search] = {}

    def price(one: float) -> float:
        try:
            search = tried[one] = make(one)
        except Unreachable as error:
            raise Unreachable(f"{error} One run has {one:.3g} of the {epsilon:g} of the search.") from None
        return search.privacy_loss(n).epsilon(search.delta)

    one, most = 0.6 * epsilon, _MOST * epsilon
    for _ in range(8):
        found = price(one)
        if _SHARE * epsilon <= found <= epsilon or (one == most and found <= epsilon):
            return tried[one], one
        step = 0.5 * (1.0 + _SHARE) * epsilon / found if found > 0 else _MOST
        one = min(one * max(step, 0.25), most)
    try:
        one = largest(lambda one: price(one) <= epsilon, _LEAST * epsilon, most, relative_tolerance=1e-3)
    except Unreachable:
        raise Unreachable(
            f"No run so private makes the search cost epsilon {epsilon:g} or less: take a smaller mean number of runs, "
            "a law with a lighter tail, a score with more noise, or a larger epsilon."
        ) from None
    return tried[one], one
