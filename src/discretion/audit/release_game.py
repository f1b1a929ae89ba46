"""What is played when a release is attacked: a mechanism's `run`, on two neighbouring data sets that are made up.

The attacker knows both data sets, so of many mechanisms he knows the likelihood ratio itself: nothing he could look at
tells him more. Elsewhere he fits densities to shadow releases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from discretion.audit.membership import Game, GaussianScorer, Scorer, Trainer
from discretion.gp.domain import Array
from discretion.privacy import SeededRandomness

__all__ = [
    "IndependentScorer",
    "Pair",
    "ReleaseGame",
    "affordable",
    "by_ratio",
    "hardest",
    "once",
    "ratio_of_steps",
    "remembering",
    "runs_of",
    "visible",
]

MOST, LEAST = 10_000, 100
"""Releases of each world to learn from, and to score, if nobody says how many."""
_TIMED = 4
_SEEN = 0.01


@dataclass(frozen=True)
class ReleaseGame:
    """Releases of a mechanism on two neighbouring data sets, `included` and `excluded`.

    `runs(records, count, seed)` gives what the attacker sees of `count` independent releases, (count, k), with test
    randomness; `parts` is the number of independent parts of equal law in the k numbers, `words` the two data sets.
    `scored` turns shadows into a scorer where that is no Gaussian fitted to a part.
    """

    included: Any
    excluded: Any
    runs: Callable[[Any, int, int], Array]
    parts: int
    words: str
    scored: Trainer | None = None

    def features(self, member: bool, count: int, rng: np.random.Generator) -> Array:
        """What the attacker sees of `count` runs on `included` for a member, else on `excluded`, (count, k)."""
        return self.runs(self.included if member else self.excluded, count, int(rng.integers(2**63 - 1)))

    @property
    def trainer(self) -> Trainer:
        """The attack: `scored`, or the likelihood ratio of Gaussians fitted to a part, summed over parts."""
        return self.scored or (lambda members, others: IndependentScorer.fit(members, others, self.parts))


@dataclass(frozen=True)
class IndependentScorer:
    """The log-likelihood ratio of `GaussianScorer` for one part of a release, summed over its independent parts."""

    one: GaussianScorer
    parts: int

    @classmethod
    def fit(cls, members: Array, others: Array, parts: int) -> IndependentScorer:
        """Features (count, parts k): all parts of all releases teach one scorer."""
        width = members.shape[1] // parts
        return cls(GaussianScorer.fit(members.reshape(-1, width), others.reshape(-1, width)), parts)

    def __call__(self, features: Array) -> Array:
        each = self.one(features.reshape(len(features) * self.parts, -1))
        return each.reshape(len(features), self.parts).sum(axis=1)


@dataclass(frozen=True)
class Pair:
    """Neighbouring data sets, and what they are in words."""

    included: Any
    excluded: Any
    words: str


def by_ratio(members: Array, others: Array) -> Scorer:
    """The scorer of a game whose one feature is the log-likelihood ratio: nothing is learned."""
    return _first


def _first(features: Array) -> Array:
    return features[:, 0]


def runs_of(mechanism: Any, feature: Callable[[Any], Any]) -> Callable[[Any, int, int], Array]:
    """`ReleaseGame.runs`: the mechanism's `run` so many times, one after the other, and what is seen of each.

    Data sets that keep count of their use come as functions without arguments that make them anew.
    """

    def runs(records: Any, count: int, seed: int) -> Array:
        randomness, seen = SeededRandomness(seed), []
        for _ in range(count):
            release = mechanism.run(records() if callable(records) else records, randomness)
            seen.append(np.ravel(feature(release)))
        return np.array(seen, dtype=np.float64)

    return runs


def once(value: Any, *names: str) -> Any:
    """A copy whose methods of these names say the same for ever: papers that every run would write anew."""
    return _with(value, {name: _Once(getattr(value, name)) for name in names})


def remembering(value: Any, *names: str) -> Any:
    """A copy whose methods of these names compute once for the same arguments: functions of made-up records alone."""
    return _with(value, {name: _Remembered(getattr(value, name)) for name in names})


def _with(value: Any, methods: dict[str, Any]) -> Any:
    found = copy(value)
    for name, method in methods.items():
        object.__setattr__(found, name, method)  # frozen, and nobody else's
    return found


class _Once:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self._answer = method, None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._answer is None:
            self._answer = self._method(*arguments, **options)
        return self._answer


class _Remembered:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self._answers = method, {}

    def __call__(self, *arguments: Any) -> Any:
        about = tuple(map(id, arguments))
        if about not in self._answers:
            # the arguments are kept, so that nothing else ever has their identity
            self._answers[about] = (arguments, self._method(*arguments))
        return self._answers[about][1]


def ratio_of_steps(seen: Array, one: Array, two: Array, noise: Array, share: float | None = None) -> float:
    """log p / q of noisy steps `seen`, summed: N(one, noise^2) against N(two, noise^2), (T,) each.

    With a `share` each of them is that Gaussian with this chance only, else N(0, noise^2).
    """
    logs = [(shift * seen - 0.5 * shift**2) / noise**2 for shift in (one, two)]
    if share is not None and share < 1.0:
        logs = [np.logaddexp(np.log1p(-share), np.log(share) + each) for each in logs]
    return float(np.sum(logs[0] - logs[1]))


def hardest(options: Sequence[Sequence[Any]], pair: Callable[..., Pair], telling: Callable[[Pair], float]) -> Pair:
    """The pair of which a run tells most, as far as one choice after the other finds it: no proof that it is the worst.

    `options` are those of each argument of `pair`; each value of the first is a start, with the first or the last of
    the others.

    ValueError where no pair tells anything.
    """
    best, most = None, 0.0
    for start, end in product(options[0], (0, -1)):
        at = [start, *(each[end] for each in options[1:])]
        found, moved = telling(pair(*at)), True
        while moved:
            moved = False
            for index, values in enumerate(options[1:], 1):
                for value in values:
                    if value == at[index]:
                        continue
                    trial = [*at[:index], value, *at[index + 1 :]]
                    score = telling(pair(*trial))
                    if score > found * (1.0 + 1e-9):
                        at, found, moved = trial, score, True
        if found > most:
            best, most = at, found
    if best is None:
        raise ValueError("No made-up records make a difference to this mechanism: there is nothing to attack.")
    return pair(*best)


def visible(one: Array, two: Array, delta: float) -> float:
    """The epsilon that a set of outcomes shows which has a chance of 1 % or more: from logarithms of chances, (N,)."""
    most = 0.0
    for p, q in ((one, two), (two, one)):
        order = np.argsort(q - p)
        often, seldom = np.cumsum(np.exp(p[order])), np.cumsum(np.exp(q[order]))
        shown = often - delta > _SEEN
        most = max(most, float(np.log((often[shown] - delta) / seldom[shown]).max(initial=0.0)))
    return most


def affordable(game: Game, seconds: float = 60.0, seed: int = 0) -> int:
    """How many releases of each world of a `game` can be learned from, and as many scored, in about so many `seconds`.

    1, 2 or 5 times a power of 10, from 100 to 10,000. A few, by `seed`, are made to see how long one takes.
    """
    rng = np.random.default_rng(seed)
    game.features(True, 1, rng)  # what is computed once is not counted
    start = perf_counter()
    game.features(False, _TIMED, rng)
    count = seconds * _TIMED / max(perf_counter() - start, 1e-9) / 4.0
    return max((each for each in _ROUND if each <= count), default=LEAST)


_ROUND = (LEAST, 200, 500, 1_000, 2_000, 5_000, MOST)
