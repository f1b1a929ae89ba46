"""How a claim is written down and re-measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

AREAS = (
    "posterior",
    "map",
    "tight",
    "ledger",
    "selection",
    "bayesopt",
    "bilevel",
    "audit",
    "speed",
    "report",
    "package",
    "lattice",
)


class Measured(NamedTuple):
    """What was found, in words and figures, and whether the claim holds."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """One figure the project states, what it promises, and how it is measured anew."""

    name: str
    area: str
    claim: str
    target: str
    measure: Callable[[], Measured]
    slow: bool


CLAIMS: dict[str, Claim] = {}


def claim(area: str, statement: str, target: str, *, slow: bool = False) -> Callable[..., Callable[[], Measured]]:
    """Register a function as the measurement of a claim; its name is the claim's."""

    def register(measure: Callable[[], Measured]) -> Callable[[], Measured]:
        if area not in AREAS:
            raise ValueError(f"{area} is not an area; the areas are {', '.join(AREAS)}.")
        name = measure.__name__
        if name in CLAIMS:
            raise ValueError(f"Two claims are called {name}.")
        CLAIMS[name] = Claim(name, area, statement, target, measure, slow)
        return measure

    return register
