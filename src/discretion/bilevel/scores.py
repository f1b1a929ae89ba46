"""The two scores of the exponential mechanism on a list, and which is taken: see `exponential.py` for the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.forecast import Hypothetical

__all__ = ["DOUBT", "HEAD_STARTS", "Rule", "Score", "candidate_scores", "preferred"]

Floats = NDArray[np.float64]
Score = Literal["plain", "candidate"]

DOUBT = 3.0
"""The spread is a guess, and may be so many times smaller or larger."""
_COIN = 0.95
HEAD_STARTS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def candidate_scores(values: Floats, changes: Floats, t: float) -> Floats:
    """max_j [(Phi_i + t D_i) - (Phi_j + t D_j)] / (D_i + D_j): it moves by at most 1 between neighbours.

    Args:
        values: Phi, (..., N). changes: D, (N,), positive, public. t: at least 0, public.
    """
    raised = values + t * changes
    scores = np.empty(raised.shape)
    for at in range(0, len(changes), 512):  # blocks of rows, so that long lists do not need N^2 numbers at once
        rows = slice(at, at + 512)
        ahead = raised[..., rows, None] - raised[..., None, :]
        scores[..., rows] = np.max(ahead / (changes[rows, None] + changes), axis=-1)
    return scores


@dataclass(frozen=True, eq=False)
class Rule:
    """Public: a score, and what it measures losses in.

    Attributes:
        name: "plain" or "candidate".
        epsilon: less what the rounding of weights may add.
        sizes: Delta, or D_i, (N,), positive.
        share: a_i as a share of them.
        head_start: (epsilon/2) t of the candidate score.
    """

    name: Score
    epsilon: float
    sizes: Floats
    share: float
    head_start: float | None = None

    @property
    def errors(self) -> Floats:
        """a_i, (N,)."""
        return self.share * self.sizes

    @cached_property
    def widths(self) -> Floats:
        """Delta + 4a, or D_i + 2a_i, (N,)."""
        return self.sizes + (4.0 if self.head_start is None else 2.0) * self.errors

    @property
    def k(self) -> float:
        """epsilon / (Delta + 4a); for the candidate score epsilon / (4 (D + 2a)) at the median D."""
        return self.epsilon / ((1.0 if self.head_start is None else 4.0) * float(np.median(self.widths)))

    def scores(self, losses: Floats, places: Any = slice(None)) -> Floats:
        """Of losses (..., P) at so many places of the list: chances are ~ exp(-scores)."""
        if self.head_start is None:
            return self.epsilon / self.widths[0] * (losses - losses.min(axis=-1, keepdims=True))
        t = 2.0 * self.head_start / self.epsilon
        return 0.5 * self.epsilon * candidate_scores(losses, self.widths[places], t)


def preferred(plain: Rule, candidates: list[Rule], losses: Hypothetical, spread: float) -> tuple[Rule, Rule]:
    """The rule to take and the one not taken: the plain one, and the best of the candidate rules.

    The best is the one with the least expected excess among those that are nowhere worse than a uniform choice, even
    where the spread is a third of what is expected; if there is none, among all. The plain rule is never worse than a
    uniform choice, whatever the losses, and is taken unless it is not forecast to be informative and the best candidate
    rule is; or unless it is nearly a uniform choice itself and the best candidate rule is informative in part.
    """

    def merit(rule: Rule) -> tuple[bool, float]:
        likely, doubtful = (losses.forecast(rule.scores, each) for each in (spread, spread / DOUBT))
        return bool(likely.missed or doubtful.missed), likely.share

    best, safe = min(candidates, key=merit), losses.forecast(plain.scores, spread)
    misses, halves = merit(best)[0], losses.forecast(best.scores, spread).halves
    if halves and not safe.informative and (not misses or safe.share > _COIN):
        return best, plain
    return plain, best
