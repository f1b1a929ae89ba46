"""What a private choice or descent rests on, in public numbers, and whether it can mean anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discretion.bilevel.constants import Constants
from discretion.bilevel.forecast import HALF, Forecast
from discretion.bilevel.sensitivity import Bound
from discretion.privacy import round_up

__all__ = ["ClippedPart", "ClippedReport", "ContinuousReport", "Report", "TunedReport"]


@dataclass(frozen=True)
class Report:
    """What a choice can be expected to be worth and what it rests on: all public, and known before a record is read.

    Attributes:
        score: "plain" or "candidate".
        head_start: of the candidate score, in nats. favoured: the point of least D_j, which has it.
        candidates: how many points.
        epsilon: bounded range.
        forecasts: at the spread expected beforehand, at a third of it and at three times it.
        other: at the same spread, of the score that was not taken; None where the D_j are alike or unknown.
        hardest: in words, the best point with which the choice is worst.
        fixed: in words, the point that does best on average without records.
        ruled_out: how many points public offsets rule out by themselves; the uniform choice is among the others.
        missed, missed_otherwise: in words, points that a uniform choice finds better where they are the best, with this
            score and with the other.
        spread_is_given: whether somebody gave the spread.
        range: Delta, with the bounds it is the least of.
        changes: least and largest D_j, or None where they are unknown.
        k: where two points differ by 1/k in loss, their chances differ by the factor e; for the candidate score that
            of two points with the median D_j, epsilon / (4 D_j).
        value_error: a, largest over the points.
        discretisation: how much worse than the best of the domain the best point of the default grid can be; None for a
            list, or where it is unknown.
        verified: whether the constants are facts made true by clipping.
        certified: whether the draw is exact.
        constants: that were used, suprema over the domain.
    """

    score: str
    head_start: float | None
    favoured: str | None
    candidates: int
    epsilon: float
    forecasts: tuple[Forecast, ...]
    other: Forecast | None
    hardest: str
    fixed: str
    ruled_out: int
    missed: tuple[str, ...]
    missed_otherwise: tuple[str, ...]
    spread_is_given: bool
    range: Bound
    changes: tuple[float, float] | None
    k: float
    value_error: float
    discretisation: float | None
    verified: bool
    certified: bool
    constants: Constants

    @property
    def informative(self) -> bool:
        """Whether the choice is forecast to halve the excess of a uniform one, and to be nowhere worse than it.

        And to do better on average than any point that is taken without records.
        """
        return self.forecasts[0].informative

    @property
    def spread(self) -> float:
        """Difference of the loss between the best and the worst point that is expected beforehand."""
        return self.forecasts[0].spread

    @property
    def verdict(self) -> str:
        """In one sentence."""
        likely = self.forecasts[0]
        guess = "" if self.spread_is_given else f" if losses differ by {likely.spread:.2g}, a guess"
        return (
            f"{likely.verdict.capitalize()}{guess}: the chosen point is expected to be {_percent(likely.share)} as far "
            f"from the best one, in loss, as a uniform draw; {_percent(likely.worst)} if the best is {self.hardest}."
        )

    def text(self) -> str:
        """For a person."""
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.range.parts.items())
        likely, *doubtful = self.forecasts
        whence = "given" if self.spread_is_given else "a guess: give a spread from public knowledge"
        otherwise = "; ".join(f"if by {each.spread:.2g}, {each.verdict} ({_percent(each.share)})" for each in doubtful)
        lines = [
            self.verdict,
            f"Without records, {self.fixed} is expected to be {_percent(likely.public)} as far.",
            f"This is for losses that differ by {likely.spread:.2g} over the points ({whence}); {otherwise}.",
            f"Choice among {self.candidates} points, {self.score} score, at most epsilon = {self.epsilon:g} by itself "
            "(pure; of bounded range).",
        ]
        if self.ruled_out:
            lines += [
                f"Public offsets rule out {self.ruled_out} of them by themselves: the uniform draw is among the others."
            ]
        if self.missed:
            lines += [f"A uniform draw does better if the best one is {' or '.join(self.missed)}."]
        if self.head_start is not None:
            lines += [
                f"Where losses are alike, {self.favoured} is favoured, by up to the factor e^{self.head_start:g}: one "
                "record moves the loss least there."
            ]
        if self.other is not None:
            name = "candidate" if self.score == "plain" else "plain"
            lines += [f"With the {name} score: {_percent(self.other.share)}{_missed(self.missed_otherwise)}."]
        lines += [f"One record moves differences of the loss by at most Delta = {self.range.value:.4g} ({parts})."]
        if self.changes is not None:
            lines += [f"It moves the loss at one point by at most {self.changes[0]:.4g} to {self.changes[1]:.4g}."]
        lines += [
            f"A point is e times likelier than one whose loss is larger by {1.0 / self.k:.3g} (k = {self.k:.4g})."
            if self.score == "plain"
            else f"At the median of these bounds a point is up to e times likelier than one whose loss is larger by "
            f"{1.0 / self.k:.3g} (k = {self.k:.4g}).",
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
class TunedReport:
    """What a tuned model costs and can be expected to be worth: all public, and known before a record is read.

    Attributes:
        epsilon, delta: of penalty and model together.
        mu: Gaussian DP of the model; None where no model is released.
        penalties: least and largest to choose among, on the problem scaled to the unit ball.
        left_out: how many smaller ones were asked for, at which the noise of the model alone costs more than losses are
            expected to differ by.
        noise: standard deviation of the noise of a prediction with the model of the least and of the largest penalty,
            at most (for the longest rows), in `unit`; None without a model.
        unit: "units of y" or "log odds".
        choice: of the penalty.
    """

    epsilon: float
    delta: float
    mu: float | None
    penalties: tuple[float, float]
    left_out: int
    noise: tuple[float, float] | None
    unit: str
    choice: Report

    @property
    def informative(self) -> bool:
        """Whether the choice of the penalty can be expected to be."""
        return self.choice.informative

    def text(self) -> str:
        """For a person."""
        whole = f"epsilon = {round_up(self.epsilon, 4)} at delta = {self.delta:g}"
        if self.noise is None:
            lines = [f"The penalty alone is released, for {whole}.", "No model is released."]
        else:
            lines = [
                f"Penalty and model together cost {whole}: the model mu = {self.mu:.4g} of it, in Gaussian DP.",
                f"Its noise in a prediction has a standard deviation of at most {self.noise[0]:.3g} {self.unit} with "
                f"the least penalty, {self.penalties[0]:.3g}, and {self.noise[1]:.3g} with the largest, "
                f"{self.penalties[1]:.3g}.",
            ]
        if self.left_out:
            lines += [
                f"{self.left_out} smaller penalties are left out in public: the noise alone costs more there than "
                "losses are expected to differ by."
            ]
        return "\n".join([*lines, self.choice.text()])

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


@dataclass(frozen=True)
class ClippedPart:
    """One kind of mean that a descent of clipped steps releases.

    Attributes:
        name: what it is the mean of.
        dimension: number of coordinates. releases: how many such means leave.
        clip: length to which the vectors of a record are shortened: no mean is longer.
        change: most that one record moves the mean, if it takes part.
        noise: standard deviation in each coordinate.
    """

    name: str
    dimension: int
    releases: int
    clip: float
    change: float
    noise: float

    @property
    def share(self) -> float:
        """Length of the noise that is left in the mean of all releases, over the clipping norm."""
        return self.noise * math.sqrt(self.dimension / self.releases) / self.clip


@dataclass(frozen=True)
class ClippedReport:
    """What a descent of clipped steps rests on: all public, and known before a record is read.

    Attributes:
        steps: T. mu: of the run, before sampling. epsilon, delta: what it costs.
        parts: what is released, and its noise: the break-down. Of an adaptive clipping norm those of the first step.
        sample_rate: chance that a record takes part in a step, if not all do.
        constants: suprema over the domain, if somebody declared any; the price does not use them.
        bias: most by which the expected gradient of the penalty method is wrong where nothing is clipped; None for
            the other methods or where it is unknown.
        unknown: why there is no such bound, in words.
        certified: whether the price is proved, whatever the losses are.
    """

    steps: int
    mu: float
    epsilon: float
    delta: float
    parts: tuple[ClippedPart, ...]
    sample_rate: float | None = None
    constants: Constants | None = None
    bias: float | None = None
    unknown: str | None = None
    certified: bool = True

    @property
    def informative(self) -> bool:
        """Whether of no mean the noise, averaged over the run, is half the clipping norm or more.

        Necessary and not sufficient: means are shorter than that where records disagree.
        """
        return self._worst.share < HALF

    @property
    def _worst(self) -> ClippedPart:
        return max(self.parts, key=lambda part: part.share)

    @property
    def verdict(self) -> str:
        """In one sentence."""
        worst = self._worst
        noise = f"averaged over the run, the noise of the {worst.name} is {_percent(worst.share)} of the clipping norm"
        if self.informative:
            return f"Can be informative: {noise}. Means are shorter than that where records disagree."
        return f"Not informative: {noise}, and no mean is longer. More records or a larger epsilon are needed."

    def text(self) -> str:
        """For a person."""
        some = "" if self.sample_rate is None else f" before sampling, {_percent(self.sample_rate)} in each step"
        lines = [
            self.verdict,
            f"{self.steps} steps, mu = {self.mu:.4g}{some}: epsilon {self.epsilon:.4g} at delta {self.delta:g}.",
        ]
        for part in self.parts:
            lines += [
                f"Of the {part.name} {part.releases:,} mean{'s leave' if part.releases > 1 else ' leaves'}: clipped to "
                f"{part.clip:.4g}, so that one record moves it by at most {part.change:.4g}; noise {part.noise:.4g} in "
                f"each of {part.dimension:,} coordinate{'s' if part.dimension > 1 else ''}."
            ]
        if self.bias is not None:
            lines += [f"Without clipping the gradient is off by at most {self.bias:.3g}. {_answer(verified=False)}"]
        if self.unknown is not None:
            lines += [f"No bound of how far the gradient is off. {self.unknown}"]
        lines += ["The price needs no constants: records are clipped. Convergence is not claimed."]
        lines += ["The price is certified." if self.certified else "NOT CERTIFIED."]
        return "\n".join(lines)

    __str__ = text


def _answer(verified: bool) -> str:
    return "The constants are facts: records are clipped." if verified else "Somebody answers for the constants."


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %" if share < 0.995 else f"{100.0 * share:.3g} %"


def _missed(points: tuple[str, ...]) -> str:
    return f", but worse than a uniform draw if the best one is {' or '.join(points)}" if points else ""
