"""What a private choice from a list can be expected to be worth, from public numbers alone.

Hypothetical losses: a few points in turn are the best one, and the loss rises from there with the distance u, as a
share of the largest, to a spread assumed beforehand:

    spread u^p,    p = 1/2 (steep at the best point), 1, 2 (flat there)

For each of them the expected excess of a choice over the best point is exact, since its chances follow from losses and
public numbers. It is compared with two choices that need no records: a uniform one, a coin with as many sides as there
are points, and the one point that does best on average. Public offsets, such as the cost of noise, rule out points
where they exceed the least by more than the spread: to avoid those is no merit, and the coin has no side for them.

Where none is ruled out the plain score never does worse than the coin, whatever the losses: E Phi under chances
~ exp(-k Phi) falls with k, at the rate Var Phi. The candidate score does, where the best point is one that a record can
move much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["HALF", "Forecast", "Hypothetical", "not_ruled_out"]

Floats = NDArray[np.float64]

_POWERS = np.array([0.5, 1.0, 2.0])
_BESTS, _POINTS = 21, 101
HALF = 0.5
"""A choice that means something has at most so much of the excess of a uniform one."""


@dataclass(frozen=True)
class Forecast:
    """What a choice is worth if losses differ by `spread` over the points.

    Attributes:
        spread: assumed difference of the loss between the best and the farthest point.
        share: expected excess as a share of that of a uniform choice: mean over the hypothetical losses.
        worst: the same, largest over them. hardest: place in the list of the best point there.
        missed: runs (first, last) of places in the list such that, if the best point is there, a uniform choice does
            better.
        fixed: place in the list of the point that does best on average, and that anybody can take without records.
        public: its excess as a share of that of a uniform choice: mean over the hypothetical losses.
    """

    spread: float
    share: float
    worst: float
    hardest: int
    missed: tuple[tuple[int, int], ...]
    fixed: int
    public: float

    @property
    def halves(self) -> bool:
        """Whether the choice halves the excess of a uniform one, and does better than any fixed point, on average."""
        return self.share < min(HALF, self.public)

    @property
    def informative(self) -> bool:
        """Whether it does, and is nowhere worse than a uniform one."""
        return self.halves and not self.missed

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.informative:
            return "informative"
        return "informative in part" if self.halves else "not informative"


class Hypothetical:
    """Losses that could be, on at most 101 of the points, with at most 21 of them in turn the best.

    Args:
        points: (N, d). offsets: (N,), public, added to every loss.
    """

    def __init__(self, points: Floats, offsets: Floats | None) -> None:
        self.places = _spaced(len(points), _POINTS)
        thinned = points[self.places]
        self.offsets = None if offsets is None else offsets[self.places]
        self.bests = _spaced(len(thinned), _BESTS)
        apart = np.linalg.norm(thinned[self.bests, None] - thinned, axis=2)
        farthest = apart.max(axis=1, keepdims=True)
        self.shapes = (apart / np.where(farthest > 0, farthest, 1.0))[:, None] ** _POWERS[:, None]

    def forecast(self, scores: Callable[[Floats, NDArray[np.int64]], Floats], spread: float) -> Forecast:
        """Of the choice whose chances are ~ exp(-scores(losses (..., P), places (P,)))."""
        losses = spread * self.shapes + (0.0 if self.offsets is None else self.offsets)
        over = losses - losses.min(axis=-1, keepdims=True)
        left = np.ones(len(self.places), dtype=bool) if self.offsets is None else not_ruled_out(self.offsets, spread)
        uniform = over[..., left].mean(axis=-1, keepdims=True)
        over = np.divide(over, uniform, out=np.ones_like(over), where=uniform > 0)  # one point left: nothing to choose
        found = scores(losses, self.places)
        weights = np.exp(found.min(axis=-1, keepdims=True) - found)
        ratios, fixed = np.sum(over * weights, axis=-1) / weights.sum(axis=-1), over.mean(axis=(0, 1))
        worst, bests = ratios.max(axis=1), self.places[self.bests]
        missed = _runs(bests, worst > 1.0 + 1e-9)
        return Forecast(
            spread,
            float(ratios.mean()),
            float(worst.max()),
            int(bests[np.argmax(worst)]),
            missed,
            int(self.places[np.argmin(fixed)]),
            float(fixed.min()),
        )


def not_ruled_out(offsets: Floats, spread: float) -> NDArray[np.bool_]:
    """Points that can be the best if losses differ by at most `spread` and public `offsets` (N,) are added to them."""
    return offsets - offsets.min() <= spread


def _runs(places: NDArray[np.int64], marked: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """First and last place of each run of marked ones."""
    steps = np.diff(np.concatenate([[0], marked.astype(int), [0]]))
    ends = zip(places[np.flatnonzero(steps == 1)], places[np.flatnonzero(steps == -1) - 1], strict=True)
    return tuple((int(first), int(last)) for first, last in ends)


def _spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most so many places among `count`, evenly spaced, both ends among them."""
    return np.unique(np.round(np.linspace(0, count - 1, min(count, most))).astype(np.int64))
