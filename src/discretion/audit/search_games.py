"""Worst-case losses for private searches of parameters: functions of the record, within what the mechanism bounds.

What a record's loss is at the parameters tried is the user's own, and in no certificate. The guarantee holds for every
function, so one is made up with which a record's contribution is as long as the clipping allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from discretion.audit.release_game import Pair, ReleaseGame, by_ratio, hardest, once, runs_of, visible
from discretion.bayesopt.candidates import CandidateChoice
from discretion.bayesopt.mechanism import Evaluations, LocalSearch
from discretion.gp.domain import Array

__all__ = ["candidate_game", "local_search_game"]

MOST_RECORDS = 10_000
_STEEP = 1e6  # times the clipping norm: the slope of the one record's loss


def local_search_game(search: LocalSearch, n: int) -> ReleaseGame:
    """One record's loss is a steep plane over the parameters and turns round, all others are 0.

    Its estimate of the gradient is longer than the clipping norm at every point, and turns round with it: the worst
    case of a step. In aggregate mode losses are clamped, and the plane becomes a cliff at the start.

    Args:
        search: the public parameters.
        n: the number of records; ValueError above 10,000.
    """
    if n > MOST_RECORDS:
        raise ValueError(f"Local searches on more than {MOST_RECORDS:,} records are not run here.")
    slope, first = _STEEP * search.clip, search.space.theta(dict(search.start or {}))[0]
    count = n

    def records(sign: float) -> Evaluations:
        def losses(points: list[dict[str, Any]]) -> Array:
            along = np.array([search.space.theta(each)[0] for each in points])
            if search.aggregate:
                assert search.largest_loss is not None
                return np.where(sign * (along - first) > 0.0, search.largest_loss, 0.0) / count
            found = np.zeros((count, len(points)))
            found[0] = sign * slope * along
            return found

        return Evaluations(losses, count)

    def feature(release: Any) -> Array:
        noise = release.noise[:, None] / search.weights
        # a step's share of mu^2 is what it can tell
        return (np.sqrt(search.shares)[:, None] * release.gradients / noise).sum(axis=0)

    shape = "a cliff from 0 to the largest loss at the start" if search.aggregate else "a steep plane"
    words = f"the loss of one record is {shape} along {search.space.names[0]} and turns round, all others are 0"
    quick = once(search, "certificate")
    object.__setattr__(quick, "plan", _first_plan(search))
    return ReleaseGame(records(1.0), records(-1.0), runs_of(quick, feature), 1, words)


def _first_plan(search: LocalSearch) -> Any:
    """`plan`, which finds the locations of the first step once: they are the same in every run."""
    first: list[Any] = []

    def plan(n: int, step: int, *arguments: Any, **options: Any) -> Any:
        if step:
            return search.plan(n, step, *arguments, **options)
        if not first:
            first.append(search.plan(n, step, *arguments, **options))
        return first[0]

    return plan


def candidate_game(choice: CandidateChoice, n: int) -> ReleaseGame:
    """One record's losses are 0 for the first candidate and the largest for all others, or the other way round.

    All other records like the others better, as much as makes the chances tell most.
    """
    most, count, k = choice.largest_loss, min(n, MOST_RECORDS), len(choice.candidates)

    def pair(against: float) -> Pair:
        losses = np.zeros((count, k))
        each = min(1.0, 2.0 * against / (choice.epsilon * max(count - 1, 1)))
        losses[1:, 0] = each * most
        one, two = losses.copy(), losses
        one[0, 1:], two[0, 0] = most, most
        words = "the losses of one record are 0 for the first candidate and the largest for the others, or the other "
        return Pair(one, two, words + f"way round; those of all others are {each * most:.3g} for the first and 0 else")

    def logs(losses: Array) -> Array:
        return log_softmax(-0.5 * choice.epsilon * losses.sum(axis=0) / most)

    found = hardest(
        [(0.0, 1.0, 2.0, 3.0)], pair, lambda each: visible(logs(each.included), logs(each.excluded), choice.delta)
    )
    ratios = logs(found.included) - logs(found.excluded)
    runs = runs_of(choice, lambda release: ratios[release.place])
    return ReleaseGame(found.included, found.excluded, runs, 1, found.words, by_ratio)
