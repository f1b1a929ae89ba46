"""Worst-case records for linear models, and worst-case candidates for private selection.

What a search chose among is in its certificate by price only, so candidates are made up that cost just that: a
Gaussian, or a randomised response, that one record moves as far as the price allows. The search itself is the real one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from discretion.audit.membership import GaussianScorer
from discretion.audit.rates import area_under_curve
from discretion.audit.release_game import Pair, ReleaseGame, by_ratio, once, runs_of, visible
from discretion.gp.domain import Array
from discretion.posterior.records import Records
from discretion.privacy import (
    BoundedRange,
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    PureDP,
    Randomness,
    SeededRandomness,
    gaussian_mu,
)
from discretion.selection.disjoint import DisjointTuning
from discretion.selection.extensions import Threshold
from discretion.selection.linear import LogisticMechanism, RidgeMechanism
from discretion.selection.repetitions import Repetitions
from discretion.selection.scores import PublicScore
from discretion.selection.search import SelectionMechanism
from discretion.selection.streams import SearchKey

__all__ = ["linear_game", "selection_game"]

MOST_RECORDS = 10_000
_PILOT = 200  # releases by which pairs are compared
_UNKNOWN = 40  # records, at most, where their number is private
_ORDERS = np.geomspace(1e-3, 1e4, 200)  # Renyi orders, less 1


# --- linear models --------------------------------------------------------------------------------


def linear_game(mechanism: RidgeMechanism | LogisticMechanism, n: int | None) -> ReleaseGame:
    """One record as far out as it may be changes its label or turns; all others are 0, or have one label.

    ValueError for more records than are run here.
    """
    count = mechanism.most_records if n is None else n
    count = min(count, _UNKNOWN) if n is None else count
    if count > MOST_RECORDS:
        raise ValueError(f"Linear models of more than {MOST_RECORDS:,} records are not run here.")
    runs = runs_of(
        once(mechanism, "certificate"), lambda release: [*np.ravel(release.coefficients), *release.intercepts]
    )
    best, most = None, -1.0
    for pair in _corners(mechanism, count):
        train, test = ([runs(each, _PILOT, seed) for each in (pair.included, pair.excluded)] for seed in (0, 1))
        scorer = GaussianScorer.fit(*train)
        found = area_under_curve(*(scorer(each) for each in test))
        if found > most:
            best, most = pair, found
    assert best is not None
    return ReleaseGame(best.included, best.excluded, runs, 1, best.words)


def _corners(mechanism: RidgeMechanism | LogisticMechanism, count: int) -> list[Pair]:
    removed = mechanism.neighbours is Neighbours.ADD_REMOVE
    if isinstance(mechanism, RidgeMechanism):
        low, high = mechanism.response_range
        rest: Any = np.full(count, 0.5 * (low + high))
    else:
        low, high = 0.0, 1.0
        rest = np.arange(count) % 2.0
    d, R = mechanism.dimension, mechanism.feature_bound
    ahead, aside = R * np.eye(d)[0], R * np.eye(d)[0]
    if d > 1:
        aside = R * (0.5 * np.eye(d)[0] + math.sqrt(0.75) * np.eye(d)[1])
    turns = [(ahead, low), (aside, low), (-ahead, low), (-ahead, high)]
    crowds = [(0.0 * ahead, rest, "0"), (ahead, np.full(count, low), f"as long, with label {low:g}")]
    pairs = []
    for (others, responses, crowd), (then, label) in product(crowds, turns[: 1 if removed else 4]):
        X, y = np.tile(others, (count, 1)), responses.copy()
        X[0], y[0] = ahead, high
        other, labels = X.copy(), y.copy()
        other[0], labels[0] = then, label
        if removed:
            other, labels = other[1:], labels[1:]
        turned = f"turned by {180 if then is not aside and (then < 0).any() else 60} degrees, " * (then is not ahead)
        becomes = "left out" if removed else f"then {turned}with label {label:g}"
        words = f"one record as long as it may be with label {high:g}, {becomes}; all others {crowd}"
        pairs.append(Pair(Records(X, y), Records(other, labels), words))
    return pairs


# --- searches -------------------------------------------------------------------------------------


def selection_game(search: SelectionMechanism, losses: Sequence[PrivacyLoss]) -> ReleaseGame:
    """A search among candidates that one record moves as far as their price allows.

    A run is one number. The search looks for a large one, which the record makes likelier; smaller than a rare small
    one, which it makes rarer, it ranks nothing. A release then tells more than a run does.

    Args:
        search: the real law, weights and rules; its candidates and its score are replaced.
        losses: what one run of each candidate costs, score included.
    """
    removed = search.neighbours is Neighbours.ADD_REMOVE
    candidates = tuple(_Candidate.of(each, search, place) for place, each in enumerate(losses))
    odds = _Odds.of(search, candidates)
    level = search.law.level if isinstance(search.law, Threshold) else 1.0

    def rank(value: float) -> float:
        return level + 1.0 if value < odds.block else level if value > odds.target else level - 1.0

    own = replace(
        search,
        candidates=candidates,
        score=PublicScore(rank, "2 for what the record makes rarer, 1 for what it makes likelier"),
        limit=None,
        pad=False,
        proposals=None,
        default=math.nan,
    )
    one = np.array([1.0]) if removed else np.array([1.0, 0.0])
    two = one[:0] if removed else np.zeros(2)

    def feature(release: Any) -> float:
        if release.candidate is None:
            return odds.none
        found, shift = float(release.winner), candidates[release.candidate]
        if isinstance(search, DisjointTuning):  # which outcome was found, and a training of its own
            return odds.told(release.score - level) + shift.ratio(found)
        return odds.told(rank(found) - level, own=False) + shift.ratio(found)

    price = ", ".join(sorted({str(each) for each in candidates}))
    words = (
        f"one record moves every run by as much as its price allows ({price}); the search releases a number above "
        f"{odds.target:.3g}, unless a run found one below {odds.block:.3g}; the learners are stand-ins, and themselves "
        "not run: attack a fit of one with MechanismGame (--mechanism FILE.py:NAME)"
    )
    return ReleaseGame(one, two, runs_of(_quick(own), feature), 1, words, by_ratio)


def _quick(search: SelectionMechanism) -> SelectionMechanism:
    """The same with one certificate for all releases, without the tables that each would write anew."""
    nobody = SearchKey.draw(SeededRandomness(0))
    n = 2 if search.n_is_public else None
    short = replace(search._certificate(None, nobody, n), parameters={}, loss={})
    found = copy(search)
    object.__setattr__(found, "_certificate", lambda *_: short)
    return found


@dataclass(frozen=True)
class _Candidate:
    """A run is a number, Gaussian or Laplace around 0, which the record shifts: exactly that private."""

    shift: float
    normal: bool
    neighbours: Neighbours
    n_is_public: bool
    delta: float
    place: int

    name = "shifted-number"

    @classmethod
    def of(cls, loss: PrivacyLoss, search: SelectionMechanism, place: int) -> _Candidate:
        """The candidate that costs no more than a loss: of a curve a Gaussian below it."""
        pure = {PureDP: 1.0, BoundedRange: 0.5}.get(type(loss))  # a range of epsilon holds any epsilon / 2
        shift = _gaussian_below(loss) if pure is None else pure * loss.epsilon(0.0)
        return cls(shift, pure is None, search.neighbours, search.n_is_public, search.delta, place)

    def __str__(self) -> str:
        return f"{'Gaussian' if self.normal else 'Laplace'} noise of scale 1, shift {self.shift:.3g}"

    def parameters(self) -> dict[str, Any]:
        """Of which one is told by its place."""
        return {"place": self.place}

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What the shift costs."""
        return (GaussianDP if self.normal else PureDP)(self.shift, neighbours=self.neighbours)

    def run(self, records: Array, randomness: Randomness) -> float:
        """The number: `records` is 1 for the record that moves it, else 0."""
        noise = float(randomness.standard_normal()) if self.normal else _laplace(float(randomness.uniform()))
        return self.shift * float(records.sum()) + noise

    def below(self, value: float) -> tuple[float, float]:
        """Chances of a smaller number, with the record and without it."""
        one, two = ((ndtr(each) if self.normal else _laplace_cdf(each)) for each in (value - self.shift, value))
        return float(one), float(two)

    def quantile(self, chance: float) -> float:
        """Without the record."""
        if self.normal or not 0.0 < chance < 1.0:
            return float(ndtri(chance))
        return _laplace(chance)

    def ratio(self, value: float) -> float:
        """Log-likelihood ratio of a run."""
        return self.shift * (value - 0.5 * self.shift) if self.normal else abs(value) - abs(value - self.shift)


@dataclass(frozen=True)
class _Odds:
    """Log-likelihood ratios of what a search finds: `told(1)`, `told(0)`, `told(-1)` for block, target and the rest."""

    block: float
    target: float
    chances: Array  # (2, 3): of a run, with the record and without it: block, target, rest
    found: Array  # (2, 3): of a search
    none: float

    @classmethod
    def of(cls, search: SelectionMechanism, candidates: Sequence[_Candidate]) -> _Odds:
        """Where a search tells most, for its law."""
        best, most = None, -1.0
        middle = candidates[int(np.argmax(_weights(search)))]
        mean = max(float(search.law.mean), 1.0)
        tails = np.unique(np.minimum(np.geomspace(0.02, 5.0, 12) / mean, 0.4))
        for target in tails:
            for block in (0.0, *tails):
                found = cls._at(search, candidates, middle.quantile(block), middle.quantile(1.0 - target))
                with np.errstate(divide="ignore"):
                    logs = np.log(np.maximum(found.found, 1e-300))
                shown = visible(logs[0], logs[1], search.delta)
                if shown > most:
                    best, most = found, shown
        assert best is not None
        return best

    @classmethod
    def _at(cls, search: SelectionMechanism, candidates: Sequence[_Candidate], block: float, target: float) -> _Odds:
        weights = _weights(search)
        low = np.array([each.below(block) for each in candidates])
        high = 1.0 - np.array([each.below(target) for each in candidates])
        b, t = weights @ low, weights @ high
        chances = np.column_stack([b, t, 1.0 - b - t])
        if isinstance(search.law, Threshold):  # whatever reaches the level is taken at once
            taken = 1.0 / (b + t + (1.0 - b - t) * search.law.stop)
            found = np.column_stack([b * taken, t * taken, 1.0 - (b + t) * taken])
            return cls(block, target, chances, found, float(np.log(found[0, 2] / found[1, 2])))
        f = search.law.pgf if isinstance(search.law, Repetitions) else _geometric(float(search.law.mean))
        without, neither, nothing = np.asarray(f(1.0 - b)), np.asarray(f(chances[:, 2])), float(f(0.0))
        found = np.column_stack([1.0 - without, without - neither, neither - nothing])
        return cls(block, target, chances, found, 0.0)

    def told(self, rank: float, own: bool = True) -> float:
        """Of the outcome of a search; without what the run itself tells, if not `own`."""
        place = {1.0: 0, 0.0: 1}.get(rank, 2)
        table = np.maximum(self.found, 1e-300) / (1.0 if own else np.maximum(self.chances, 1e-300))
        return float(np.log(table[0, place] / table[1, place]))


def _weights(search: SelectionMechanism) -> Array:
    return np.array(search.weights, dtype=np.float64)


def _geometric(mean: float) -> Any:
    """The generating function of a law near that of a shared rate."""
    return lambda x: np.asarray(x) / (mean - (mean - 1.0) * np.asarray(x))


def _gaussian_below(loss: PrivacyLoss) -> float:
    """mu of a Gaussian that costs no more than a loss, as far as a grid of Renyi orders and deltas tells."""
    if isinstance(loss, GaussianDP):
        return loss.mu
    orders = 1.0 + _ORDERS[loss.order_range[1] > _ORDERS + 1.0]
    with np.errstate(all="ignore"):
        bounds = np.array([float(loss.renyi(each)) for each in orders])
        squares = (2.0 * bounds / orders)[np.isfinite(bounds)]
    deltas = [(loss.epsilon(each), each) for each in 10.0 ** -np.arange(1.0, 9.0)]
    limits = [gaussian_mu(epsilon, delta) for epsilon, delta in deltas if 0.0 < epsilon < math.inf]
    mu = min([*np.sqrt(squares), *limits], default=0.0) * (1.0 - 1e-6)
    if not 0.0 < mu < math.inf:
        raise ValueError("No candidate is known that costs what a run of this search costs.")
    return float(mu)


def _laplace(uniform: float) -> float:
    return math.copysign(-math.log1p(-2.0 * abs(uniform - 0.5)), uniform - 0.5)


def _laplace_cdf(value: float) -> float:
    return 0.5 * math.exp(value) if value < 0 else 1.0 - 0.5 * math.exp(-value)
