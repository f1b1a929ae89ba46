"""From the scores of an attack to error rates, and to an epsilon that the release cannot be below."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, rankdata

from discretion.gp.domain import Array


@dataclass(frozen=True)
class Rate:
    """A true positive rate at a false positive rate, each with a Clopper-Pearson interval of the same confidence."""

    false_positive: float
    true_positive: float
    false_positive_interval: tuple[float, float]
    true_positive_interval: tuple[float, float]
    confidence: float

    @property
    def excess(self) -> float:
        """max(TPR - FPR, 0): what the attack gains over guessing."""
        return max(self.true_positive - self.false_positive, 0.0)


def clopper_pearson(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Interval that holds the probability of a hit with at least this confidence, whatever it is.

    ValueError unless 0 <= hits <= trials, trials >= 1 and 0 < confidence < 1.
    Source: Clopper and Pearson 1934.
    """
    if not (0 <= hits <= trials and trials >= 1 and 0 < confidence < 1):
        raise ValueError("hits must lie between 0 and trials >= 1, confidence between 0 and 1.")
    tail = 0.5 * (1.0 - confidence)
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.isf(tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def area_under_curve(members: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Probability that a member's score exceeds another's, ties counted half (mid-ranks)."""
    members, others = _scores(members), _scores(others)
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - 0.5 * len(members) * (len(members) + 1)) / (len(members) * len(others)))


def rate_at(members: npt.ArrayLike, others: npt.ArrayLike, target: float, confidence: float = 0.95) -> Rate:
    """Rates where the threshold is the (1 - target) quantile of the others' scores; `target` in (0, 1)."""
    members, others = _scores(members), _scores(others)
    if not 0 < target < 1:
        raise ValueError(f"A false positive rate must lie strictly between 0 and 1; got {target!r}.")
    threshold = np.quantile(others, 1.0 - target)
    hits, alarms = int((members >= threshold).sum()), int((others >= threshold).sum())
    return Rate(
        target,
        hits / len(members),
        clopper_pearson(alarms, len(others), confidence),
        clopper_pearson(hits, len(members), confidence),
        confidence,
    )


def curve(members: npt.ArrayLike, others: npt.ArrayLike) -> tuple[Array, Array]:
    """The receiver operating characteristic: false and true positive rates at all thresholds, from (0, 0) to (1, 1)."""
    members, others = _scores(members), _scores(others)
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    true = 1.0 - np.searchsorted(np.sort(members), thresholds) / len(members)
    false = 1.0 - np.searchsorted(np.sort(others), thresholds) / len(others)
    return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])


def epsilon_lower_bound(
    members: npt.ArrayLike,
    others: npt.ArrayLike,
    delta: float,
    *,
    confidence: float = 0.95,
    thresholds: int = 16,
    chosen_on: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> float:
    """An epsilon that an (epsilon, delta)-DP release can't be below, with the given confidence; 0 if nothing is shown.

    Any test obeys TPR <= e^epsilon FPR + delta, and the same for "not a member" and with the roles exchanged: four
    inequalities a threshold. Thresholds are quantiles of `chosen_on`, scores (of members, of others) that play no other
    part; without it the scores must not have been used to train the attack, and their first halves choose. Rates are
    bounded by Clopper-Pearson with a Bonferroni correction over thresholds, directions and the two rates.

    ValueError for delta outside [0, 1), fewer than 8 scores, or scores that are NaN.
    Source: Jagielski, Ullman and Oprea 2020, Theorem 1; Nasr et al. 2021.
    """
    members, others = _scores(members), _scores(others)
    if not (0 <= delta < 1 and 0 < confidence < 1 and thresholds >= 1):
        raise ValueError("delta must lie in [0, 1), confidence in (0, 1), thresholds be 1 or more.")
    if chosen_on is None:
        if min(len(members), len(others)) < 8:
            raise ValueError("An audit needs at least 8 scores of each kind.")
        chosen_on = members[: len(members) // 2], others[: len(others) // 2]
        members, others = members[len(members) // 2 :], others[len(others) // 2 :]
    cuts = _cuts(_scores(chosen_on[0]), _scores(chosen_on[1]), thresholds)
    each = 1.0 - (1.0 - confidence) / (2.0 * len(cuts))  # both rates of a cut; the four inequalities share them
    best = 0.0
    for cut in cuts:
        true = clopper_pearson(int((members >= cut).sum()), len(members), each)
        false = clopper_pearson(int((others >= cut).sum()), len(others), each)
        for p, q in ((true, false), (false, true)):
            best = max(best, _log_ratio(p[0] - delta, q[1]), _log_ratio(1.0 - q[1] - delta, 1.0 - p[0]))
    return best


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0.0 and below > 0.0 else 0.0


def _cuts(members: Array, others: Array, count: int) -> Array:
    """Thresholds: half of them quantiles of each kind, denser towards the ends, where a small delta needs them."""
    ends = np.geomspace(2e-3, 0.5, (count + 3) // 4)
    spread = np.concatenate([ends, 1.0 - ends])
    return np.unique(np.concatenate([np.quantile(members, spread), np.quantile(others, spread)]))


def _scores(scores: npt.ArrayLike) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not len(values) or np.isnan(values).any():
        raise ValueError("Scores must be a sequence of numbers without NaN.")
    return values
