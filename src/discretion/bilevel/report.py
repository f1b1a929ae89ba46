"""What a private choice rests on, in public numbers, and whether it can mean anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discretion.bilevel.constants import Constants
from discretion.bilevel.sensitivity import Bound

__all__ = ["ContinuousReport", "Report"]


@dataclass(frozen=True)
class Report:
    """What a choice rests on: all public, and known before a record is read.

    Attributes:
        score: "plain" or "candidate".
        candidates: how many points.
        epsilon: bounded range.
        range: Delta, with the bounds it is the least of.
        changes: least and largest D_j, or None where they are unknown.
        k: where two points differ by 1/k in loss, their chances differ by the factor e; for the candidate score that
            of two points with the median D_j, epsilon / (4 D_j).
        value_error: a, largest over the points.
        spread: loss difference between points that can be expected beforehand, from public facts.
        nats: k times spread. Below log(20 candidates) the choice is close to a uniform one.
        resolution: least and largest r_j: with probability 1 - failure the chosen point is within r_j of point j in
            loss, for all j at once. log(N/b)/k for the plain score, 2 t D_j for the candidate score.
        within_reach: how many points have r_j < spread: among them the choice means something.
        discretisation: how much worse than the best of the domain the best point of the default grid can be; None for a
            list, or where it is unknown.
        verified: whether the constants are facts made true by clipping.
        certified: whether the draw is exact.
        constants: that were used, suprema over the domain.
    """

    score: str
    candidates: int
    epsilon: float
    range: Bound
    changes: tuple[float, float] | None
    k: float
    value_error: float
    spread: float
    nats: float
    resolution: tuple[float, float]
    within_reach: int
    discretisation: float | None
    verified: bool
    certified: bool
    constants: Constants

    def text(self) -> str:
        """For a person."""
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.range.parts.items())
        lines = [
            f"Choice among {self.candidates} points, {self.score} score, bounded range {self.epsilon:g} (pure DP).",
            f"One record moves differences of the loss by at most Delta = {self.range.value:.4g} ({parts}).",
        ]
        if self.changes is not None:
            lines += [f"It moves the loss at one point by at most {self.changes[0]:.4g} to {self.changes[1]:.4g}."]
        lines += [
            f"k = {self.k:.4g}; loss spread expected beforehand {self.spread:.4g}: {self.nats:.3g} nats, and a choice "
            f"among {self.candidates} needs about {math.log(20.0 * self.candidates):.2g}.",
            f"Within reach: {self.within_reach} of {self.candidates} points, whose loss is told to "
            f"{self.resolution[0]:.3g} at best and {self.resolution[1]:.3g} at worst.",
            *(
                []
                if self.discretisation is None
                else [f"The best point of the grid is within {self.discretisation:.3g} of the best of the domain."]
            ),
            _answer(self.verified),
            f"Values are computed to {self.value_error:.3g}. The draw is "
            f"{'exact' if self.certified else 'NOT CERTIFIED'}.",
        ]
        return "\n".join(lines)

    __str__ = text


@dataclass(frozen=True)
class ContinuousReport:
    """What a choice from a continuous domain rests on: all public, and known before a record is read.

    Attributes:
        mechanism: "plain" or "regularised".
        sensitivity: Delta, the range of differences, or 2K/n; with its break-down.
        k, m: inverse temperature and modulus.
        expected_excess: bound of E Phi(x) - min Phi.
        value_error: a.
        plain_up_to: up to this dimension the plain mechanism has the better bound for one release at this price.
        dimension: d.
        verified: whether the constants are facts.
        convex: whether convexity is a fact; otherwise somebody answers for it.
        certified: whether the draw is exact.
        constants: suprema over the domain.
    """

    mechanism: str
    sensitivity: Bound
    k: float
    m: float
    expected_excess: float
    value_error: float
    plain_up_to: float
    dimension: int
    verified: bool
    convex: bool
    certified: bool
    constants: Constants

    def text(self) -> str:
        """For a person."""
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.sensitivity.parts.items())
        what = "Delta" if self.mechanism == "plain" else "2K/n"
        better = "plain" if self.dimension <= self.plain_up_to else "regularised"
        return "\n".join(
            [
                f"The {self.mechanism} exponential mechanism in {self.dimension} dimensions.",
                f"{what} = {self.sensitivity.value:.4g} ({parts}); k = {self.k:.4g}, m = {self.m:.4g}.",
                f"The chosen point is on average at most {self.expected_excess:.4g} worse than the best.",
                f"For one release at this price the {better} mechanism has the better bound "
                f"(plain up to dimension {self.plain_up_to:.1f}).",
                "Convexity is a fact." if self.convex else "Somebody answers for convexity, for every data set.",
                _answer(self.verified),
                f"Values are computed to {self.value_error:.3g}. The draw is exact.",
            ]
        )

    __str__ = text


def _answer(verified: bool) -> str:
    return "The constants are facts: records are clipped." if verified else "Somebody answers for the constants."
