"""Laws of the number K of runs of a private selection: all of them, and how one is read back.

What a law says of itself: `discretion.selection.laws.base`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from discretion.selection.laws.base import Repetitions
from discretion.selection.laws.binomial import Binomial, Fixed
from discretion.selection.laws.capped import Capped
from discretion.selection.laws.negative_binomial import NegativeBinomial, geometric, logarithmic
from discretion.selection.laws.poisson import Poisson

__all__ = [
    "Binomial",
    "Capped",
    "Fixed",
    "NegativeBinomial",
    "Poisson",
    "Repetitions",
    "geometric",
    "logarithmic",
    "repetitions_from",
]


def repetitions_from(parameters: Mapping[str, Any]) -> Repetitions:
    """The law that `Repetitions.parameters` described.

    Raises:
        ValueError: not such a description.
    """
    try:
        return _READERS[parameters["law"]](parameters)
    except (KeyError, TypeError) as error:
        raise ValueError(
            "This is not a description of a law of the number of runs as `parameters` writes it "
            f"({type(error).__name__}: {error}); the known laws are {', '.join(_READERS)}."
        ) from error


_READERS: dict[str, Callable[[Mapping[str, Any]], Repetitions]] = {
    "poisson": lambda p: Poisson(p["mean"]),
    "negative-binomial": lambda p: NegativeBinomial(p["shape"], p["gamma"]),
    "binomial": lambda p: Binomial(p["trials"], p["chance"]),
    "fixed": lambda p: Fixed(p["count"]),
    "capped": lambda p: Capped(repetitions_from(p["uncapped"]), p["most"]),
}
