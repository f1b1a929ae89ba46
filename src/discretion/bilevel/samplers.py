"""Exact draws: from a finite list, from convex densities by rejection, from tilted balls.

Every sampler here draws from the law that it is asked for, whatever the records are; none approaches it in steps whose
number somebody guessed. Proof: `docs/proofs/bilevel-samplers.md`. Sources: Applegate and Kannan (1991) for cells, Wood
(1994) for the ball.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.privacy import PublicError, Randomness

__all__ = [
    "LARGEST_SCORE",
    "ConvexDensity",
    "EnvelopeViolated",
    "Weights",
    "choose",
    "linear_on_ball",
    "probabilities",
]

Floats = NDArray[np.float64]

LARGEST_SCORE = 600.0
"""Scores are cut this far above the least, which never widens the range of log-ratios: no chance rounds to 0."""


class EnvelopeViolated(PublicError):
    """A value lies below its lower bound: the objective is not convex, or a constant is wrong. Nothing was drawn."""


# --- Finite lists -----------------------------------------------------------------------------------


def _cut(scores: Floats) -> Floats:
    """Scores above their least, cut at `LARGEST_SCORE`."""
    if not np.isfinite(scores).all():
        raise PublicError("A score is not finite: the objective or its constants are wrong. Nothing was drawn.")
    return np.minimum(scores - scores.min(), LARGEST_SCORE)


def probabilities(scores: Floats) -> Floats:
    """The chances (N,) of `choose`, which are as private as the scores."""
    weights = np.exp(-_cut(scores))
    return weights / weights.sum()


class Weights:
    """A finite law with chances proportional to exp(-score_i), to draw from: see `choose`."""

    def __init__(self, scores: Floats) -> None:
        mantissas, exponents = np.frexp(np.exp(-_cut(scores)))
        shifts = (exponents - exponents.min()).tolist()
        whole = np.ldexp(mantissas, 53).astype(np.int64).tolist()
        self._totals = list(accumulate(value << shift for value, shift in zip(whole, shifts, strict=True)))

    def draw(self, randomness: Randomness) -> int:
        """An index."""
        return bisect_right(self._totals, _below(self._totals[-1], randomness))


def choose(scores: Floats, randomness: Randomness) -> int:
    """The index i with chance proportional to exp(-score_i), scores cut at `LARGEST_SCORE` above the least.

    The weights are doubles, and their sum and the draw below it are whole numbers of any length: the chances are those
    of the weights to the last bit, and a weight's relative error is below 4e-13.

    Raises:
        PublicError: a score is NaN or infinite.
    """
    return Weights(scores).draw(randomness)


def _below(total: int, randomness: Randomness) -> int:
    """A uniform whole number of [0, total)."""
    bits = total.bit_length()
    words = -(-bits // 64)
    while True:
        number = int.from_bytes(randomness.words(words).tobytes(), "little") >> (64 * words - bits)
        if number < total:
            return number


# --- A linear density on a ball ---------------------------------------------------------------------


def linear_on_ball(slope: Floats, randomness: Randomness) -> Floats:
    """A point x of the unit ball of d dimensions with density proportional to exp(<slope, x>), exact in any d.

    The first d coordinates of a von Mises-Fisher point of the sphere in d + 2 dimensions, drawn by Wood's rejection.
    """
    d, kappa = len(slope), float(np.linalg.norm(slope))
    normal = randomness.standard_normal(d + 2)
    if kappa == 0.0:
        return (normal / np.linalg.norm(normal))[:d]
    p = d + 1  # one less than the dimension of the sphere's space
    b = p / (2.0 * kappa + math.hypot(2.0 * kappa, p))
    at = (1.0 - b) / (1.0 + b)
    c = kappa * at + p * math.log1p(-at * at)
    while True:
        one, other = np.sum(randomness.standard_normal((2, p)) ** 2, axis=1)
        z = one / (one + other)
        t = (1.0 - (1.0 + b) * z) / (1.0 - (1.0 - b) * z)
        if kappa * t + p * math.log1p(-at * t) - c >= math.log(float(randomness.uniform())):
            break
    direction = np.concatenate([slope / kappa, np.zeros(2)])
    across = normal - (normal @ direction) * direction
    return (t * direction + math.sqrt(max(1.0 - t * t, 0.0)) * across / np.linalg.norm(across))[:d]


# --- Convex densities by cells ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Cell:
    """A box with the tangent plane at a point of it: low(x) = value + <gradient, x - centre>."""

    centre: Floats
    half: Floats
    value: float
    gradient: Floats

    def low(self, x: Floats) -> float:
        return self.value + float(self.gradient @ (x - self.centre))

    def log_mass(self, k: float) -> float:
        """log of the integral of exp(-k low)."""
        z = k * np.abs(self.gradient) * self.half
        # log of the integral of exp(-k g t) over |t| <= h: log(2h) + log(sinh(z)/z)
        small = np.log1p(np.minimum(z, 1e-3) ** 2 / 6.0)
        big = z + np.log1p(-np.exp(-2.0 * np.maximum(z, 1e-3))) - np.log(2.0 * np.maximum(z, 1e-3))
        return float(np.sum(np.log(2.0 * self.half) + np.where(z < 1e-3, small, big))) - k * self.value

    def draw(self, k: float, randomness: Randomness) -> Floats:
        """From the density exp(-k low) on the cell, coordinate by coordinate."""
        u = randomness.uniform(len(self.half))
        rate = k * self.gradient
        z = 2.0 * np.abs(rate) * self.half
        # from the end where the density is largest, in units of the side
        safe = np.maximum(z, 1e-9)
        along = np.where(z < 1e-9, u, -np.log1p(u * np.expm1(-safe)) / safe)
        return self.centre + np.where(rate >= 0, -1.0, 1.0) * self.half * (1.0 - 2.0 * along)


class ConvexDensity:
    """The density proportional to exp(-k value) of a convex function on a convex set in a box, to draw from exactly.

    Tangent planes on cells lie below the function; a point drawn from exp(-k low) is kept with chance
    exp(-k (value - low)). Cells are halved where the mass is and the plane fits badly, until there are `cells`: where
    they lie decides the time alone. Neither they nor the number of trials may leave.

    Args:
        tangent: value and a subgradient at a point of the set.
        value: the function, which fixes the law.
        box: around the set.
        k: positive.
        slack: by how much a plane must be lowered to lie below `value` within this distance of where it touches, for
            their errors; public.
        nearest: the nearest point of the set, if it is not the box.
        cells: how many tangents are taken.
    """

    def __init__(
        self,
        tangent: Callable[[Floats], tuple[float, Floats]],
        value: Callable[[Floats], float],
        box: Box,
        k: float,
        slack: Callable[[float], float],
        *,
        nearest: Callable[[Floats], Floats] | None = None,
        cells: int = 256,
    ) -> None:
        def cell(centre: Floats, half: Floats) -> _Cell:
            anchor = centre if nearest is None else nearest(centre)
            at, gradient = tangent(anchor)
            away = float(np.linalg.norm(anchor - centre))
            lowered = at + float(gradient @ (centre - anchor)) - slack(float(np.linalg.norm(half)) + away)
            return _Cell(centre, half, lowered, gradient)

        low, high = np.array(box.lower), np.array(box.upper)
        self._cells = _refined(cell(0.5 * (low + high), 0.5 * (high - low)), cell, k, cells)
        scores = -np.array([each.log_mass(k) for each in self._cells])
        self._weights, self._raised = Weights(scores), scores - scores.min() - _cut(scores)
        self._value, self._k, self._nearest = value, k, nearest

    def draw(self, randomness: Randomness) -> Floats:
        """A point, (d,).

        Raises:
            EnvelopeViolated: a value below its plane.
        """
        while True:
            at = self._weights.draw(randomness)
            x = self._cells[at].draw(self._k, randomness)
            if self._nearest is not None and not np.array_equal(self._nearest(x), x):
                continue
            gap = self._k * (self._value(x) - self._cells[at].low(x))
            if not gap >= 0.0:
                raise EnvelopeViolated(
                    "The objective lies below a tangent plane: it is not convex for these records, or a constant is "
                    "too small. Nothing was drawn."
                )
            # a cell that the cut of scores made too likely gives back what it got
            if math.log(float(randomness.uniform())) <= -gap - self._raised[at]:
                return x


def _refined(first: _Cell, cell: Callable[[Floats, Floats], _Cell], k: float, most: int) -> list[_Cell]:
    """Cells by halving the longest side of the heaviest; a cell weighs its mass times how badly its plane may fit."""
    waiting: list[tuple[float, int, _Cell]] = [(0.0, 0, first)]
    number = 0
    while len(waiting) < most:
        _, _, parent = heapq.heappop(waiting)
        axis = int(np.argmax(parent.half))
        half = parent.half.copy()
        half[axis] *= 0.5
        step = np.zeros(len(half))
        step[axis] = half[axis]
        for side in (-1.0, 1.0):
            child = cell(parent.centre + side * step, half)
            # what halving gained is about what is left to gain
            gain = k * max(child.value - parent.low(child.centre), 0.0)
            number += 1
            heapq.heappush(waiting, (-child.log_mass(k) - math.log(gain + 1e-6), number, child))
    return [each for _, _, each in waiting]
