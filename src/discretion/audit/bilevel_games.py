"""Two data sets that bilevel mechanisms have most trouble telling apart, among a few extremes.

Records sit at the corners of their domain: features 0 or as long as they may be, labels at the ends or in the middle.
Of all pairs in which few or all records sit at a corner and one moves, the one is taken of which a run is expected to
tell most (`hardest`: the divergence of its two laws). The attacker then looks at the likelihood ratio of a run.

A mechanism that clips each record's contribution is attacked by a contribution as long as the clipping allows, which
turns round: the worst case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from discretion.audit.release_game import (
    Pair,
    ReleaseGame,
    by_ratio,
    hardest,
    once,
    ratio_of_steps,
    remembering,
    runs_of,
    visible,
)
from discretion.bilevel.continuous import ContinuousMechanism
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.descent import Descent
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.inner import InnerRelease, inner_noise
from discretion.bilevel.linear import LinearFamily, Table
from discretion.bilevel.mechanism import BilevelMechanism
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.tuned import TunedModel
from discretion.bilevel.warm_start import WarmStart
from discretion.gp import Ball, Box
from discretion.gp.domain import Array
from discretion.privacy import Neighbours

__all__ = ["bilevel_game"]

MOST_RECORDS = 100_000
_LONG = 1e6  # times the clipping norm
_PLACES = 64  # at which the divergence of two densities is estimated


def bilevel_game(mechanism: BilevelMechanism) -> ReleaseGame:
    """The game of a bilevel mechanism on a verified family, or of one that clips.

    ValueError where the losses are somebody's own, or there are too many records.
    """
    if isinstance(mechanism, SeparableDescent):
        return _separable(mechanism)
    made = next((law for kind, law in _LAWS.items() if isinstance(mechanism, kind)), None)
    if made is None or not _family(mechanism).verified:
        raise ValueError(
            f"The losses of this {mechanism.name} are your own, and no certificate holds them: attack it with two data "
            "sets that you choose (--mechanism FILE.py:NAME)."
        )
    if mechanism.total > MOST_RECORDS:
        raise ValueError(f"Bilevel problems of more than {MOST_RECORDS:,} records are not attacked.")
    law = made(mechanism)
    pair = hardest(*_options(mechanism), lambda each: law.telling(each.included, each.excluded))

    def ratio(release: Any) -> float:
        return law.ratio(release, pair.included, pair.excluded)

    return ReleaseGame(pair.included, pair.excluded, runs_of(law.mechanism, ratio), 1, pair.words, by_ratio)


def _family(mechanism: Any) -> Any:
    return mechanism.problem


# --- pairs ----------------------------------------------------------------------------------------


def _options(mechanism: Any) -> tuple[list[list[Any]], Callable[..., Pair]]:
    """What there is to choose of a pair, and the pair of such choices."""
    problem = _family(mechanism)
    removed = mechanism.neighbours is Neighbours.ADD_REMOVE
    if isinstance(problem, QuadraticMean):
        return [[1, -1], [0, *_few(problem.records - 1)]], lambda sign, along: _vectors(problem, sign, along, removed)
    tables = _tuned_tables(mechanism) if isinstance(mechanism, TunedModel) else _split_tables(problem)
    sizes = problem.training, problem.validation
    after: list[_Letter] = [_GONE] if removed else [(1.0, -1), (1.0, 1), (0.0, 0), (0.0, 1), (0.0, -1)]

    def pair(part: int, then: _Letter, first: _Letter, *crowds: Any) -> Pair:
        counts, lengths, labels = crowds[:2], crowds[2:4], (1, crowds[4])
        rows = [[(length, label)] * n for n, length, label in zip(counts, lengths, labels, strict=True)]
        one, two = ([[each, *row[1:]] if i == part else row for i, row in enumerate(rows)] for each in (first, then))
        names, where = ("training", "validation"), zip(counts, sizes, ("training", "validation"), rows, strict=True)
        crowd = " and ".join(f"{n:,} of {size:,} {name} records are {_corner(row[0])}" for n, size, name, row in where)
        words = f"{crowd} (feature and label as shares of the largest), the others 0; one of the "
        words += f"{names[part]} records is {_corner(first)} and {_becomes(then)}"
        return Pair(tables(*one), tables(*two), words)

    firsts = [(length, label) for length in (1.0, 0.0) for label in (1, -1)]
    options = [[0, 1], after, firsts, *map(_few, sizes), _lengths(problem), [1.0, 0.25, 0.0625], [1, -1]]
    return options, pair


def _vectors(problem: QuadraticMean, sign: int, along: int, removed: bool) -> Pair:
    rows = np.zeros((problem.records, problem.dimension))
    rows[0, 0], rows[1 : 1 + along, 0] = sign, 1.0
    other = rows[1:] if removed else np.concatenate([-rows[:1], rows[1:]])
    words = f"{along:,} of {problem.records:,} records are 1 along one axis, one is {sign}"
    words += f" and {'left out' if removed else f'then {-sign}'}, the others 0"
    return Pair(rows, other, words)


_Letter = tuple[float, int]
"""A feature as a share of the longest, and -1, 0 or 1: the label."""
_GONE: _Letter = (9.0, 9)


def _few(size: int) -> list[int]:
    """How many records sit at the corner, the moving one among them: from one to all."""
    return sorted({*(4**k for k in range(10) if 4**k < size), size} - {0})


def _lengths(problem: LinearFamily) -> list[float]:
    """Features of training records: the longest, and, if shorter, those with the longest solution at some penalty."""
    low, high = getattr(problem, "penalties", (getattr(problem, "strength", 1.0),) * 2)
    shares = (np.sqrt(low), (low * high) ** 0.25)
    return sorted({1.0, *(min(1.0, float(each) / problem.feature_bound) for each in shares)}, reverse=True)


def _corner(letter: _Letter) -> str:
    return f"({letter[0]:.3g}, {letter[1]:+d})"


def _becomes(letter: _Letter) -> str:
    return "left out" if letter == _GONE else f"then {_corner(letter)}"


def _table(letters: list[_Letter], count: int, dimension: int, length: float, label: float) -> Table:
    """Letters in units of the largest length and label, then zeros up to `count`."""
    rows = np.zeros((count, 2))
    rows[: len(letters)] = letters
    rows = rows[rows[:, 1] != _GONE[1]]
    features = np.zeros((len(rows), dimension))
    features[:, 0] = length * rows[:, 0]
    return Table(features, label * rows[:, 1])


def _split_tables(problem: LinearFamily) -> Callable[[Any, Any], SplitRecords]:
    label = float(getattr(problem, "label_bound", 1.0))

    def tables(training: Any, validation: Any) -> SplitRecords:
        one, two = (
            _table(each, n, problem.dimension, problem.feature_bound, label)
            for each, n in ((training, problem.training), (validation, problem.validation))
        )
        return SplitRecords(one, two)

    return tables


def _tuned_tables(mechanism: TunedModel) -> Callable[[Any, Any], Table]:
    low, high = mechanism.response_range if mechanism.kind == "ridge" else (-1.0, 1.0)

    def tables(training: Any, validation: Any) -> Table:
        sizes = mechanism.problem.training, mechanism.problem.validation
        parts = [
            _table(each, n, mechanism.dimension, mechanism.feature_bound, 0.5 * (high - low))
            for each, n in zip((training, validation), sizes, strict=True)
        ]
        features, labels = np.zeros((mechanism.records, mechanism.dimension)), np.zeros(mechanism.records)
        for held, part in zip((~mechanism.held, mechanism.held), parts, strict=True):
            features[held], labels[held] = part.features, part.labels + 0.5 * (low + high)
        return Table(features, labels)

    return tables


# --- laws -----------------------------------------------------------------------------------------


class _Law:
    """What a mechanism does to data sets, known exactly: `mechanism`, quick to run again and again, and its laws."""

    mechanism: Any

    def telling(self, one: Any, two: Any) -> float:
        """What the search for a pair makes as large as it can: the divergence, or a better figure."""
        return self.divergence(one, two)

    def divergence(self, one: Any, two: Any) -> float:
        """How much a run on `one` is expected to tell against `two`, roughly: Kullback and Leibler's divergence."""
        raise NotImplementedError

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        """The log-likelihood ratio of a release, up to a constant."""
        raise NotImplementedError


class _Choice(_Law):
    """Chances ~ exp(-score)."""

    def __init__(self, mechanism: ExponentialMechanism) -> None:
        problem = remembering(mechanism.problem, "ingest", "values")
        self.plain, self.mechanism = mechanism, once(replace(mechanism, problem=problem), "certificate", "report")
        self._held = remembering(self, "logs").logs

    def logs(self, records: Any) -> Array:
        """Logarithms of the chances, (N,)."""
        plain = self.plain
        values = plain.problem.values(plain.points, plain.problem.ingest(records), plain.plan.tolerances)
        scores = plain.scores(values if plain.offsets is None else values + plain.offsets)
        return -scores - logsumexp(-scores)

    def telling(self, one: Any, two: Any) -> float:
        return visible(self.logs(one), self.logs(two), self.plain.delta)

    def divergence(self, one: Any, two: Any) -> float:
        p, q = self.logs(one), self.logs(two)
        return float(np.exp(p) @ (p - q))

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        return self.at(release.place, one, two)

    def at(self, place: int, one: Any, two: Any) -> float:
        """Of the point at this place."""
        return float(self._held(one)[place] - self._held(two)[place])

    def likeliest(self, records: Any) -> int:
        """The place of the likeliest point."""
        return int(np.argmax(self.logs(records)))


class _Density(_Law):
    """Density ~ exp(-k (Phi + (m/2) |x - c|^2)): what it tells is estimated from some points."""

    def __init__(self, mechanism: ContinuousMechanism) -> None:
        problem = remembering(mechanism.problem, "ingest")
        found = once(replace(mechanism, problem=problem), "certificate", "report")
        self.plain, self.mechanism = mechanism, remembering(found, "density")
        domain, rng = mechanism.problem.x_domain, np.random.default_rng(0)
        centre, half = np.zeros(domain.dimension), 0.5 * domain.diameter()
        if isinstance(domain, Box):
            centre, half = 0.5 * np.add(domain.lower, domain.upper), 0.5 * np.subtract(domain.upper, domain.lower)
        elif isinstance(domain, Ball):
            centre = np.array(domain.center)
        places = centre + half * rng.uniform(-1.0, 1.0, (_PLACES, domain.dimension))
        self.places, self.tilt = domain.clamp(places), 0.5 * mechanism.modulus * ((places - centre) ** 2).sum(axis=1)

    def losses(self, x: Array, records: Any) -> Array:
        """Phi at points (N, d)."""
        problem, tolerances = self.plain.problem, np.full(len(x), self.plain.tolerance)
        return problem.values(x, problem.ingest(records), tolerances)

    def divergence(self, one: Any, two: Any) -> float:
        p, q = (-self.plain.k * (self.losses(self.places, each) + self.tilt) for each in (one, two))
        return visible(p - logsumexp(p), q - logsumexp(q), 0.0)

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        here = release.x[None]
        return float(self.plain.k * (self.losses(here, two) - self.losses(here, one))[0])


class _Inner(_Law):
    """A Gaussian around the inner solution."""

    def __init__(self, mechanism: InnerRelease) -> None:
        problem = remembering(mechanism.problem, "ingest")
        self.plain, self.mechanism = mechanism, once(replace(mechanism, problem=problem), "certificate")
        self._held = remembering(self, "solution").solution

    def solution(self, records: Any) -> Array:
        """y(x), (d_y,)."""
        return _solution(self.plain.problem, self.plain.x, records, self.plain.mu)[0]

    def divergence(self, one: Any, two: Any) -> float:
        return float(((self.solution(one) - self.solution(two)) ** 2).sum()) / (2.0 * self.plain.noise**2)

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        return _gaussian(release.y, self._held(one), self._held(two), release.noise)


class _Descent(_Law):
    """Gaussians around the hypergradients, from step to step. Of a batch: as if every step saw all records."""

    def __init__(self, mechanism: Descent) -> None:
        problem = remembering(mechanism.problem, "ingest")
        self.plain, self.mechanism = mechanism, once(replace(mechanism, problem=problem), "certificate", "report")
        self._ingest = remembering(mechanism.problem, "ingest").ingest

    def gradient(self, x: Array, held: Any) -> Array:
        """grad Phi of ingested records, (d,)."""
        problem = self.plain.problem
        y = problem.certified(x, held, self.plain.step(x).tolerance)
        return problem.hypergradient(x, y, held)[0]

    def divergence(self, one: Any, two: Any) -> float:
        return self.at(self.plain.first, one, two)

    def at(self, x: Array, one: Any, two: Any) -> float:
        """Of the first step at x, times the steps."""
        held = [self.plain.problem.ingest(each) for each in (one, two)]
        apart = self.gradient(x, held[0]) - self.gradient(x, held[1])
        spread = self.plain.step(x).sensitivity / self.plain.price
        return float((apart**2).sum()) / (2.0 * spread**2)

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        held = [self._ingest(each) for each in (one, two)]
        steps = zip(release.path[:-1], release.gradients, release.noise, strict=True)
        return sum(
            _gaussian(seen, self.gradient(x, held[0]), self.gradient(x, held[1]), noise) for x, seen, noise in steps
        )


class _WarmStart(_Law):
    """A chance, then Gaussians."""

    def __init__(self, mechanism: WarmStart) -> None:
        problem = remembering(mechanism.problem, "ingest", "values")
        descent = replace(mechanism.descent, problem=problem)
        choice = once(replace(mechanism.choice, problem=problem), "certificate", "report")
        self.mechanism = once(replace(mechanism, choice=choice, descent=descent), "certificate")
        self.choice, self.descent = _Choice(mechanism.choice), _Descent(mechanism.descent)

    def divergence(self, one: Any, two: Any) -> float:
        x = self.choice.plain.points[self.choice.likeliest(one)]
        return self.choice.divergence(one, two) + self.descent.at(x, one, two)

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        place = int(np.argmin(((self.choice.plain.points - release.path[0]) ** 2).sum(axis=1)))
        return self.choice.at(place, one, two) + self.descent.ratio(release, one, two)


class _Tuned(_Law):
    """A chance, then a Gaussian around the model at the penalty that was chosen."""

    def __init__(self, mechanism: TunedModel) -> None:
        found = remembering(once(mechanism, "certificate", "report"), "_parts")
        self.choice = _Choice(mechanism.choice)
        object.__setattr__(found, "choice", self.choice.mechanism)
        object.__setattr__(found, "whole", remembering(mechanism.whole, "ingest"))
        self.plain, self.mechanism, self._parts = mechanism, found, found._parts

    def models(self, place: int, *parts: Any) -> tuple[Array, Array, float]:
        """The models of two data sets at a penalty, in scaled units, and the noise."""
        x, whole, mu = self.choice.plain.points[place], self.plain.whole, self.plain.mu
        (one, noise), (two, _) = (_solution(whole, x, joined, mu) for _, joined in parts)
        return one, two, noise

    def divergence(self, one: Any, two: Any) -> float:
        parts = [self.plain._parts(each) for each in (one, two)]
        found = self.choice.divergence(*(split for split, _ in parts))
        if self.plain.mu is None:
            return found
        first, second, noise = self.models(self.choice.likeliest(parts[0][0]), *parts)
        return found + float(((first - second) ** 2).sum()) / (2.0 * noise**2)

    def ratio(self, release: Any, one: Any, two: Any) -> float:
        parts = [self._parts(each) for each in (one, two)]
        penalties = np.exp(self.choice.plain.points[:, 0])
        place = int(np.argmin(np.abs(penalties - release.penalty)))
        found = self.choice.at(place, *(split for split, _ in parts))
        if self.plain.mu is None:
            return found
        first, second, noise = self.models(place, *parts)
        return found + _gaussian(self._scaled(release), first, second, noise)

    def _scaled(self, release: Any) -> Array:
        """The model in scaled units again."""
        plain = self.plain
        low, high = plain.response_range if plain.kind == "ridge" else (-1.0, 1.0)
        w = release.coefficients * plain.feature_bound
        if plain.intercept:
            w = np.append(w, release.intercept - 0.5 * (low + high)) * np.sqrt(2.0)
        return w / (0.5 * (high - low))


def _solution(problem: Any, x: Array, records: Any, mu: float | None) -> tuple[Array, float]:
    assert mu is not None
    noise, tolerance = inner_noise(problem, x, mu)
    return problem.certified(x, problem.ingest(records), tolerance), noise


def _gaussian(seen: Array, one: Array, two: Array, noise: float) -> float:
    return float(((seen - two) ** 2).sum() - ((seen - one) ** 2).sum()) / (2.0 * noise**2)


_LAWS: dict[type, Callable[[Any], _Law]] = {
    ExponentialMechanism: _Choice,
    ContinuousMechanism: _Density,
    InnerRelease: _Inner,
    Descent: _Descent,
    WarmStart: _WarmStart,
    TunedModel: _Tuned,
}


# --- contributions that are clipped ---------------------------------------------------------------


def _separable(mechanism: SeparableDescent) -> ReleaseGame:
    """One record's hypergradient is as long as the clipping allows and turns round, all others are 0."""
    removed = mechanism.neighbours is Neighbours.ADD_REMOVE
    d = mechanism.domain.dimension
    count = 1 if removed else mechanism.records
    rows = np.zeros((count, d))
    rows[0, 0] = _LONG * mechanism.clip
    other = rows[1:] if removed else np.concatenate([-rows[:1], rows[1:]])
    share = mechanism.account.sample_rate
    made = replace(mechanism, gradients=lambda x, records: records)

    def ratio(release: Any) -> float:
        to = release.clips / (mechanism.records * (share or 1.0))
        return ratio_of_steps(release.gradients[:, 0], to, 0.0 * to if removed else -to, release.noise, share)

    words = (
        "every hypergradient of one record is as long as the clipping allows, and "
        f"{'the record is left out' if removed else 'turns round'}; those of all others are 0"
    )
    return ReleaseGame(rows, other, runs_of(once(made, "certificate"), ratio), 1, words, by_ratio)
