"""How candidates are ranked: by public data, by what a run releases, or by private records with noise that is paid for.

A score is part of what one run reveals, so it must be as private as the rest of it. A score computed on private
validation records without noise is not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, PublicError, PureDP, Randomness, RenyiCurve
from discretion.selection.beforehand import check_call

__all__ = ["NoisyScore", "PublicScore", "Score", "correct", "either", "rows", "subset"]

Mask = NDArray[np.bool_]


class Score(ABC):
    """A number for each run's artefact, the higher the better; what it costs comes with it."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Public description, JSON-able."""

    @abstractmethod
    def __call__(self, artefact: Any, validation: Any, neighbours: Neighbours, randomness: Randomness) -> float:
        """The score. `validation` is the second value of `split`. NaN ranks below everything."""

    @property
    def declared(self) -> tuple[str, ...]:
        """What its author answers for, in sentences."""
        return ()

    @property
    def for_one_record(self) -> bool:
        """Whether its price holds where one record differs, and no more."""
        return False

    def training_size(self, n: int | None) -> int | None:
        """How many of n records a run learns from, where n is public."""
        return n

    def parts_by_coin(self, neighbours: Neighbours) -> bool:
        """Whether `split` tosses a coin for each record, so that one of the parts may be empty."""
        return False

    def parts_by_position(self, neighbours: Neighbours) -> bool:
        """Whether `split` parts the records by their positions; a search then puts them in an order drawn by lot."""
        return False

    def split(self, records: Any, neighbours: Neighbours, randomness: Randomness) -> tuple[Any, Any]:
        """Records to learn from and records to score by; the second is None for scores that read none.

        How they are parted depends on the relation of `neighbours` alone, and on `randomness`.
        """
        return records, None

    def run_loss(self, training: PrivacyLoss, n: int | None) -> PrivacyLoss:
        """What one run on n records costs, score included, given what its artefact costs those it learns from."""
        return training


@dataclass(frozen=True)
class PublicScore(Score):
    """A function of the artefact and of public data alone. Free: it is post-processing.

    Args:
        function: from what a run made (in `PrivateSearchCV` the fitted estimator) to a number, the higher the better.
            It must read nothing private.
        name: what it is, in words, such as "accuracy on the 2017 sales, which are public".
    """

    function: Callable[[Any], float]
    name: str = "public score"

    def __post_init__(self) -> None:
        check_call(self.function, ("artefact",), "The function of a public score")

    @property
    def declared(self) -> tuple[str, ...]:
        return (f"What the score reads besides what a run made is public: {self.name}.",)

    def parameters(self) -> dict[str, Any]:
        return {"score": "public", "name": self.name}

    def __call__(self, artefact: Any, validation: Any, neighbours: Neighbours, randomness: Randomness) -> float:
        return float(self.function(artefact))


@dataclass(frozen=True)
class NoisyScore(Score):
    """Mean of bounded scores of private records, plus Gaussian noise: mu-GDP.

        score = mean of clip(values_i, low, high) + N(0, s^2),    s = (high - low) / (m mu),     m records, n public
        score = sum of (clip(values_i, low, high) - middle) + N(0, s^2),   s = (high - low) / (2 mu),      n private

    With `fraction`, the records to score by are kept apart from those a run learns from, and one run costs the larger
    of the two prices; without, they are the same and the prices add up. Records are parted by their position in an
    order drawn by lot where n is public (so that a replaced record stays in its part), and by an independent coin each
    where it is not; never by anything they hold. A part to score by that is empty has the sum 0, and noise as ever; a
    part to learn from that is empty is a set of records like any other, which candidates must take (a search tries
    them on it). The price is that of one record that differs: candidates with more `contributions` are refused.
    Proof: `docs/proofs/selection-scores.md`.

    Args:
        values: from (artefact, records) to one number for each record, from that record and the artefact alone. It
            must not fail on any record of the domain: a failure is an outcome that the noise does not hide. NaN counts
            as `low`.
        low, high: public bounds; values are clipped to them.
        mu: price of the score in Gaussian DP, positive.
        fraction: share of the records to score by, in (0, 1), or None for all of them.
        name: what it is, in words.

    Raises:
        ValueError: a parameter out of range.
    """

    values: Callable[[Any, Any], ArrayLike]
    low: float
    high: float
    mu: float
    fraction: float | None = None
    name: str = "noisy score"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError("A noisy score needs finite public bounds, low < high.")
        if not 0 < self.mu < math.inf:
            raise ValueError(f"mu, the price of a noisy score, must be positive and finite, not {self.mu!r}.")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise ValueError(f"The fraction of records to score by must lie in (0, 1), not {self.fraction!r}.")
        check_call(self.values, ("artefact", "records"), "The values of a noisy score")

    def parameters(self) -> dict[str, Any]:
        return {
            "score": "noisy",
            "name": self.name,
            "low": self.low,
            "high": self.high,
            "mu": self.mu,
            "fraction": self.fraction,
        }

    @property
    def declared(self) -> tuple[str, ...]:
        return (f"The score of a record follows from that record and from what a run made alone: {self.name}.",)

    @property
    def for_one_record(self) -> bool:
        return True

    def parts_by_coin(self, neighbours: Neighbours) -> bool:
        return self.fraction is not None and neighbours is Neighbours.ADD_REMOVE

    def training_size(self, n: int | None) -> int | None:
        return n if n is None or self.fraction is None else n - int(self._by_position(n).sum())

    def parts_by_position(self, neighbours: Neighbours) -> bool:
        return self.fraction is not None and neighbours is not Neighbours.ADD_REMOVE

    def split(self, records: Any, neighbours: Neighbours, randomness: Randomness) -> tuple[Any, Any]:
        if self.fraction is None:
            return records, records
        n = rows(records)
        held = self._by_position(n) if self.parts_by_position(neighbours) else randomness.uniform(n) < self.fraction
        return subset(records, ~held), subset(records, held)

    def run_loss(self, training: PrivacyLoss, n: int | None) -> PrivacyLoss:
        own = GaussianDP(self.mu, neighbours=training.neighbours, rule="noisy score")
        return training + own if self.fraction is None else either(training, own)

    def sensitivity(self, records: int | None) -> float:
        """Most that one record changes the score without noise, by the number of records if that is public."""
        return (self.high - self.low) / (2 if records is None else records)

    def deviation(self, records: int | None) -> float:
        """Standard deviation of the noise, by the number of records to score by if that is public."""
        return self.sensitivity(records) / self.mu

    def __call__(self, artefact: Any, validation: Any, neighbours: Neighbours, randomness: Randomness) -> float:
        m = rows(validation)
        # many models can't be asked about no records at all
        values = np.asarray(self.values(artefact, validation) if m else (), dtype=np.float64)
        if values.shape != (m,):
            raise ValueError(
                f"A noisy score needs one value for each record, an array of shape (m,); got one of {values.ndim} "
                "dimensions."
            )
        middle = 0.5 * (self.low + self.high)
        deviations = np.clip(np.where(np.isnan(values), self.low, values), self.low, self.high) - middle
        public = neighbours is not Neighbours.ADD_REMOVE
        exact = float(np.mean(deviations)) + middle if public else float(np.sum(deviations))
        return exact + self.deviation(m if public else None) * float(randomness.standard_normal())

    def _by_position(self, n: int) -> Mask:
        """Evenly spaced positions, floor(fraction n) of them."""
        assert self.fraction is not None
        held = np.diff(np.floor(np.arange(n + 1) * self.fraction)) > 0
        if not 0 < held.sum() < n:
            raise ValueError(
                f"A share of {self.fraction:g} of {n} records leaves no record to learn from or to score by."
            )
        return held


def correct(model: Any, records: Any) -> ArrayLike:
    """1 for each of the `records` whose label the `model` predicts, else 0, (n,): the `values` of a noisy accuracy."""
    return (np.asarray(model.predict(records.covariates)) == records.response).astype(np.float64)


def either(
    training: PrivacyLoss,
    validation: PrivacyLoss,
    *,
    rule: str = "the larger of training and validation, on disjoint records",
) -> PrivacyLoss:
    """The loss of a run whose neighbours differ in its training part or in its validation part, and never in both."""
    if training.neighbours is not validation.neighbours:
        raise ValueError("The score and the runs must be private under the same neighbours.")
    # A subclass may know more than its one parameter, as LaplaceDP does: then a larger epsilon is not a larger loss.
    alike = type(training) is type(validation)
    if alike and type(training) is GaussianDP and isinstance(validation, GaussianDP):
        return max(training, validation, key=lambda loss: loss.mu)
    if alike and type(training) is PureDP:
        return max(training, validation, key=lambda loss: loss.epsilon(0.0))
    return RenyiCurve(
        lambda excess: np.maximum(training.renyi_excess(excess), validation.renyi_excess(excess)),
        min(training.supremum, validation.supremum),
        neighbours=training.neighbours,
        rule=rule,
    )


def rows(records: Any) -> int:
    """The number of records: of an array, a tuple of arrays, or a dataclass of arrays."""
    return len(_columns(records)[0])


def subset(records: Any, keep: Mask) -> Any:
    """The records at which `keep` is true, in the same form."""
    if named := _fields(records):
        return replace(records, **{name: value[keep] for name, value in named.items()})
    return tuple(each[keep] for each in records) if isinstance(records, tuple) else records[keep]


def _fields(records: Any) -> dict[str, Any]:
    """The arrays of a dataclass by name; those that are None are left out."""
    named = {name: getattr(records, name) for name in getattr(records, "__dataclass_fields__", {})}
    return {name: value for name, value in named.items() if value is not None}


def _columns(records: Any) -> list[Any]:
    alone = list(records) if isinstance(records, tuple) else [records]
    columns = list(_fields(records).values()) or alone
    if not all(isinstance(each, np.ndarray) and each.ndim for each in columns):
        raise PublicError(
            "Records to be parted or counted must be arrays, a tuple of arrays or a dataclass of arrays; take "
            ".to_numpy() of a data frame."
        )
    if len({len(each) for each in columns}) > 1:
        raise PublicError("The arrays of the records differ in length.")
    return columns
