"""A high point of one sample path over the unit cube: many starts, then steps that shrink, all on the same path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from discretion.gp.domain import Array


@dataclass(frozen=True)
class Climb:
    """How a path over the unit cube is searched: `starts` points spread evenly (a Kronecker sequence, shifted at
    random), then `passes` rounds in each of which the `climbers` best points look one step to either side along each
    axis, and move to the best they see if it is higher, else halve their step.

    No gradient is used: a path with a nugget has none. What is found is a high point, not proved to be the highest.

    Raises ValueError when a number is not a whole number in range.
    """

    starts: int = 256
    climbers: int = 8
    passes: int = 8

    def __post_init__(self) -> None:
        for name, value, least in (
            ("starts", self.starts, 1),
            ("climbers", self.climbers, 1),
            ("passes", self.passes, 0),
        ):
            if isinstance(value, bool) or int(value) != value or not least <= value <= 100_000:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")

    def points(self, dimension: int) -> int:
        """The most points at which a path is looked at."""
        return self.starts + 2 * dimension * min(self.climbers, self.starts) * self.passes

    def highest(self, path: Callable[[Array], Array], dimension: int, seed: int | Sequence[int]) -> Array:
        """The highest point found, (d,), of `path`, which maps points (k, d) to values (k,); `seed` sets the starts."""
        at = np.arange(1, self.starts + 1)[:, None] * _spread(dimension)
        at = (at + np.random.default_rng(seed).random(dimension)) % 1.0
        values = path(at)
        best = np.argsort(-values, kind="stable")[: self.climbers]
        at, values, step = at[best], values[best], np.full(len(best), 0.5 * self.starts ** (-1.0 / dimension))
        moves = np.concatenate([np.eye(dimension), -np.eye(dimension)])
        for _ in range(self.passes):
            around = np.clip(at[:, None] + step[:, None, None] * moves, 0.0, 1.0)
            seen = path(around.reshape(-1, dimension)).reshape(around.shape[:2])
            choice = seen.argmax(axis=1)
            rows = np.arange(len(at))
            better = seen[rows, choice] > values
            at = np.where(better[:, None], around[rows, choice], at)
            values = np.maximum(values, seen[rows, choice])
            step = np.where(better, step, 0.5 * step)
        return at[int(np.argmax(values))]


def _spread(dimension: int) -> Array:
    """Multiples of these, modulo 1, fill the cube evenly: powers of 1/g, g^(d+1) = g + 1 (golden ratio for d = 1)."""
    g = 2.0
    for _ in range(64):
        g = (1.0 + g) ** (1.0 / (dimension + 1.0))
    return g ** -np.arange(1.0, dimension + 1.0)
