"""Other ways to choose privately than the best of K runs: a shared random rate, a threshold, tuning on a part.

What each of them costs, and how its runs are drawn; `discretion.selection.search` makes them. (Proposals that learn
from earlier runs are in `discretion.selection.proposals`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from discretion.privacy import Neighbours, PrivacyLoss, PrivacyProfile, PureDP, RenyiCurve
from discretion.privacy.profiles import BestOf
from discretion.selection.bounds import Rule, conditional_loss, selection_loss
from discretion.selection.laws.base import count, drawable, positive
from discretion.selection.repetitions import NegativeBinomial
from discretion.selection.sampling import BetaBinomialTerms
from discretion.selection.scores import either
from discretion.selection.streams import KeyedRandomness, SearchKey
from discretion.selection.trade_off import pairs_of

__all__ = ["SharedRate", "Threshold", "dearest", "disjoint_tuning_loss", "threshold_loss"]

Array = NDArray[np.float64]

_ORDERS = np.unique(np.rint(np.concatenate([np.arange(1, 65), np.geomspace(64, 2048, 64)])))
"""Excess orders of which a disjoint part is accounted."""
_MOST_CELLS = 100_000
_EPSILONS = 400
_NEGLIGIBLE = 1e-18


# --- A shared random rate ---------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedRate:
    """Every candidate in every round runs with one secret random probability; the best of all runs is released.

    Draw p in (0, 1) with `P[p <= v] = v^exponent`. In each of `rounds` rounds run each candidate with probability p,
    independently. Release the best of all runs, or a public default where there was none. Candidates are covered
    evenly, and need not have anything in common (Cohen, Lyu, Nelson, Sarlos and Stemmer 2023).

    Args:
        candidates: how many, at least 1.
        rounds: at least 1.
        exponent: g, positive. Small: cheap, and often no run at all unless there are many rounds.

    Raises:
        ValueError: not such numbers, over 100,000 runs that there could be, or an exponent at which none is too rare
            to be drawn.
    """

    law: ClassVar[str] = "shared-rate"

    candidates: int
    rounds: int
    exponent: float

    def __post_init__(self) -> None:
        count(self.candidates, "The number of candidates that share a rate")
        count(self.rounds, "The number of rounds at a shared rate")
        positive(self.exponent, "The exponent of a shared rate")
        if self.most > _MOST_CELLS:
            raise ValueError(f"{self.most:,} runs there could be are more than the {_MOST_CELLS:,} that can be drawn.")
        drawable(self._log_none, f"{self.name}, of {self.most} runs there could be")

    @property
    def name(self) -> str:
        """The way in words."""
        return f"shared random rate, exponent {self.exponent:g}, {self.rounds} rounds"

    @property
    def most(self) -> int:
        """The greatest number of runs."""
        return self.candidates * self.rounds

    @property
    def mean(self) -> float:
        """Expected number of runs."""
        return self.most * self.exponent / (1 + self.exponent)

    def parameters(self) -> dict[str, Any]:
        """Public description, JSON-able."""
        return {
            "law": self.law,
            "candidates": int(self.candidates),
            "rounds": int(self.rounds),
            "exponent": float(self.exponent),
        }

    def draw(self, key: SearchKey) -> list[int]:
        """The candidates of the runs, drawn exactly.

        Their number is beta-binomial, and given it every set of so many (candidate, round) is equally likely, since all
        have the same chance whatever p is: p itself, a real number, need not be drawn.
        """
        drawn = BetaBinomialTerms(self.most, float(self.exponent)).draw(key.stream("number of runs"))
        stream, cells = key.stream("candidates"), list(range(self.most))
        for i in range(drawn):
            j = i + _below(stream, self.most - i)
            cells[i], cells[j] = cells[j], cells[i]
        return [cell % self.candidates for cell in cells[:drawn]]

    @property
    def none(self) -> float:
        """Chance of no run, E (1 - p)^(candidates rounds); no record changes it."""
        return math.exp(self._log_none)

    @property
    def _log_none(self) -> float:
        runs = np.arange(1, self.most + 1)
        return -float(np.sum(np.log1p(self.exponent / runs)))

    def loss(self, epsilon: float, *, neighbours: Neighbours, deltas: Sequence[float] | None = None) -> PrivacyLoss:
        """What the release costs: `(2 + g) epsilon`, with delta `rounds g / (1 + g) sum of deltas`.

        Proof: `docs/proofs/selection-stratified.md`.

        Args:
            epsilon: the largest of the candidates'.
            deltas: of the candidates, where they are (epsilon, delta)-DP; shape (candidates,).
            neighbours: of the candidates.

        Raises:
            ValueError: an epsilon below 0, or deltas that are not one probability for each candidate.
        """
        if not epsilon >= 0:
            raise ValueError(f"epsilon must not be negative, got {epsilon!r}.")
        failing = [0.0] * self.candidates if deltas is None else [float(each) for each in deltas]
        if len(failing) != self.candidates or not all(0 <= each <= 1 for each in failing):
            raise ValueError("Give one delta in [0, 1] for each candidate.")
        total = (2 + self.exponent) * epsilon * (1 + 2.0**-50)
        delta = self.rounds * self.exponent / (1 + self.exponent) * math.fsum(failing) * (1 + 2.0**-50)
        rule = f"best of runs at a {self.name}"
        if delta == 0 or math.isinf(total):
            return PureDP(total, neighbours=neighbours, rule=rule)
        return PrivacyProfile((total,), (min(delta, 1.0),), neighbours=neighbours, rule=rule)

    def price(self, losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
        """What the release costs, candidates of any losses: all of their statements (epsilon, delta_j) at once.

            delta((2 + g) epsilon) = rounds g / (1 + g) sum of delta_j(epsilon)

        at each epsilon, and `(2 + g) epsilon` where all are pure. Proof: `docs/proofs/selection-stratified.md`.

        Args:
            losses: of one run of each candidate, shape (candidates,).

        Raises:
            ValueError: not one loss for each candidate.
        """
        if len(losses) != self.candidates:
            raise ValueError(f"The rate is shared by {self.candidates} candidates, and there are {len(losses)}.")
        neighbours, rule = losses[0].neighbours, f"best of runs at a {self.name} ({losses[0].rule})"
        limit, parts = max(loss.renyi_excess(math.inf) for loss in losses), []
        if math.isfinite(limit):
            parts.append(self.loss(limit, neighbours=neighbours))
        if not all(type(loss) is PureDP for loss in losses):
            distinct: dict[int, list[Any]] = {}
            for loss in losses:
                same = next((i for i, (known, _) in distinct.items() if known == loss), len(distinct))
                distinct.setdefault(same, [loss, 0])[1] += 1
            pairs = [(count, pairs_of(loss)) for loss, count in distinct.values()]
            reach = max(pair.reach for _, found in pairs for pair in found)
            nodes = np.unique(np.append(np.geomspace(1e-4 * reach, reach, 60), np.linspace(0, reach, _EPSILONS)))
            failing = np.zeros(nodes.shape)
            for count, found in pairs:
                failing += count * np.max([side(nodes) for pair in found for side in (pair.forward, pair.backward)], 0)
            deltas = np.minimum(self.rounds * self.exponent / (1 + self.exponent) * failing * (1 + 1e-12), 1.0)
            last = int(np.argmax(deltas <= max(_NEGLIGIBLE, float(deltas[-1])))) + 1
            total = (2 + self.exponent) * nodes[:last] * (1 + 2.0**-50)
            parts.append(PrivacyProfile(tuple(total), tuple(deltas[:last]), neighbours=neighbours, rule=rule))
        return parts[0] if len(parts) == 1 else BestOf(tuple(parts))


def _below(stream: KeyedRandomness, count: int) -> int:
    """A whole number of 0 to count - 1, each equally likely: words that would make some likelier are drawn again."""
    most = (1 << 64) - (1 << 64) % count
    while (word := int(stream.words(1)[0])) >= most:
        pass
    return word % count


# --- Tuning on a part of the records ----------------------------------------------------------------


def disjoint_tuning_loss(tuning: PrivacyLoss, training: PrivacyLoss, probability: float) -> RenyiCurve:
    """Tune on a random part of the records, train the model that is released on all others.

    Each record goes to the tuning part with probability q, by a fresh secret coin of its own. The hyperparameters and
    the final model are released, the part is not. With P(l) and Q(l) bounds of the Renyi divergences of order l of
    tuning and training,

        (l - 1) D_l(with || without) <= log sum over j of C(l, j) q^(l-j) (1 - q)^j e^((l-j-1) P(l-j) + (j-1) Q(j))
        (l - 1) D_l(without || with) <= log(q e^((l-1) P(l)) + (1 - q) e^((l-1) Q(l)))

    the first for integers l, terms of order 0 and 1 being 0; between integers the line, and at most the larger of P(l)
    and Q(l) throughout (after Koskela and Kulkarni 2023). Proof: `docs/proofs/selection-subsample.md`.

    Args:
        tuning: of choosing the hyperparameters, as `selection_loss` gives it; add-remove neighbours.
        training: of the final run, at any hyperparameters the tuning may choose; add-remove neighbours.
        probability: q, in (0, 1).

    Raises:
        ValueError: q outside (0, 1), or other neighbours than add-remove.
    """
    if not 0 < probability < 1:
        raise ValueError(f"The probability of a record to be tuned with lies in (0, 1), not {probability!r}.")
    if not tuning.neighbours is training.neighbours is Neighbours.ADD_REMOVE:
        raise ValueError(
            "Tuning on a random part is accounted for add-remove neighbours alone: a record that is replaced would be "
            "in both losses."
        )
    orders = 1 + _ORDERS
    P, Q = (np.append([0.0, 0.0], loss.renyi_excess(np.arange(1.0, orders[-1]))) for loss in (tuning, training))
    index = np.arange(orders[-1] + 1)
    with np.errstate(all="ignore"):
        # at index l: (l - 1) times the bound of order l
        scaled_P, scaled_Q = (np.where(index >= 2, (index - 1) * each, 0.0) for each in (P, Q))
        l, j = orders[:, None], index[None, :]
        rest = np.maximum(l - j, 0).astype(np.int64)
        choose = gammaln(l + 1) - gammaln(j + 1) - gammaln(rest + 1)
        coins = choose + xlogy(rest, probability) + xlog1py(j, -probability)
        terms = np.where(j <= l, coins + scaled_P[rest] + scaled_Q, -np.inf)
        present = np.logaddexp.reduce(terms, axis=1)
        whole = orders.astype(np.int64)
        absent = np.logaddexp(math.log(probability) + scaled_P[whole], math.log1p(-probability) + scaled_Q[whole])
        # rounding of the binomials, and a bound at an order holds at all smaller ones
        bound = np.maximum(present, absent) * (1 + 1e-10) + 1e-10
    bound = np.minimum.accumulate((np.where(np.isnan(bound), np.inf, bound) / _ORDERS)[::-1])[::-1]
    nodes, values = np.append(0.0, _ORDERS), np.append(0.0, bound * _ORDERS)

    def curve(x: Array) -> Array:
        with np.errstate(all="ignore"):
            plain = np.maximum(tuning.renyi_excess(x), training.renyi_excess(x))
            right = np.clip(np.searchsorted(nodes, x), 1, nodes.size - 1)
            share = np.clip((x - nodes[right - 1]) / (nodes[right] - nodes[right - 1]), 0.0, 1.0)
            line = ((1 - share) * values[right - 1] + share * values[right]) / x
        return np.minimum(plain, np.where((x > nodes[-1]) | np.isnan(line), np.inf, line))

    name = f"tuning on a disjoint part of chance {probability:g} ({tuning._renyi_rule(1.0)}), "
    name += f"then {training._renyi_rule(1.0)}"
    supremum = min(tuning.supremum, training.supremum)
    return RenyiCurve(curve, supremum, neighbours=Neighbours.ADD_REMOVE, rule=name)


def dearest(losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
    """A loss that bounds each of these: of a training whose parameters may be any of the candidates'."""
    distinct = [loss for i, loss in enumerate(losses) if loss not in losses[:i]]
    largest = distinct[0]
    for each in distinct[1:]:
        largest = either(largest, each, rule=f"the dearest of {len(distinct)} trainings")
    return largest


# --- A threshold ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold:
    """Run until a score reaches a public threshold, or a coin ends it; release that run, or the word that none did.

    Loop: draw a candidate, make a run; release it if its score is at least `level`; else end with probability `stop`
    (Liu and Talwar 2019). What it costs: `threshold_loss`. How many coins it takes is drawn first, a geometric number,
    so that the draws do not depend on the records. How many runs are made does, and with it how long the search takes.

    Args:
        level: finite, public: chosen without the records.
        stop: p_0, in (0, 1]. There are at most 1 / stop runs in the mean.

    Raises:
        ValueError: not such numbers.
    """

    law: ClassVar[str] = "threshold"

    level: float
    stop: float

    def __post_init__(self) -> None:
        level, stop = float(self.level), float(self.stop)
        if not (math.isfinite(level) and 0 < stop <= 1):
            raise ValueError(
                f"A threshold needs a finite level, and a chance of ending after a run in (0, 1], without which it may "
                f"never end; got {level!r} and {stop!r}."
            )
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "stop", stop)

    @property
    def name(self) -> str:
        """The way in words."""
        return f"first run of a score of {self.level:g} or more, each the last with chance {self.stop:g}"

    @property
    def mean(self) -> float:
        """Expected number of runs if none is released."""
        return 1 / self.stop

    def parameters(self) -> dict[str, Any]:
        """Public description, JSON-able."""
        return {"law": self.law, "level": self.level, "stop": self.stop}

    def draw(self, key: SearchKey) -> int:
        """After how many runs the coin ends the loop."""
        return NegativeBinomial(1.0, self.stop).sample(key.stream("number of runs"))


def threshold_loss(base: PrivacyLoss, stop: float, *, rule: Rule = "best") -> PrivacyLoss:
    """Run until a score reaches a public threshold: release that run, or nothing.

    Loop: make a run of loss `base`; release it if its score is at least the threshold; else end with probability `stop`
    and release "none". For epsilon-DP runs it costs 2 epsilon (Liu and Talwar 2019). For others it is the least of the
    account of a run that is accepted with probability at least `stop`, and of the best of a geometric number of runs of
    mean 1 / stop. That "none" is released depends on the records; it is paid for, not free. A threshold that was chosen
    on the records voids the guarantee. Proof: `docs/proofs/selection-threshold.md`.

    Args:
        base: of one run, score included.
        stop: p_0, in [0, 1]; 0 for pure DP alone, where the loop may never end.
        rule: of the account as the best of runs, as in `selection_loss`.

    Raises:
        ValueError: stop outside [0, 1], or 0 for runs that are not pure DP.
    """
    if not 0 <= stop <= 1:
        raise ValueError(f"The probability of ending after a run lies in [0, 1], not {stop!r}.")
    limit = base.renyi_excess(math.inf)
    parts: list[PrivacyLoss] = []
    if math.isfinite(limit):
        twice = f"first run above a threshold, twice pure ({base.rule})"
        parts.append(PureDP(2 * limit, neighbours=base.neighbours, rule=twice))
    if stop > 0:
        parts += [conditional_loss(base, stop), selection_loss(base, NegativeBinomial(1.0, stop), rule=rule)]
    if not parts:
        raise ValueError("Without a chance of ending, a threshold needs runs that are pure DP: give stop > 0.")
    return parts[0] if len(parts) == 1 else BestOf(tuple(parts))
