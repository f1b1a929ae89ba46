"""A paid choice among a few candidates, such as the ends of several runs or the choices of a categorical parameter."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.clipping import clamped_mean
from discretion.privacy import (
    BoundedRange,
    Certificate,
    Ledger,
    Neighbours,
    PublicError,
    Randomness,
    Release,
)
from discretion.privacy.frames import cleared
from discretion.privacy.noise import source_of
from discretion.privacy.paid import ledger_at
from discretion.privacy.quiet import quiet
from discretion.privacy.units import whose_rows

__all__ = ["CandidateChoice", "CandidateRelease", "select_candidate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CandidateRelease(Release):
    """The candidate chosen, and its place."""

    candidate: dict[str, Any]
    place: int


@dataclass(frozen=True, eq=False)
class CandidateChoice:
    """The exponential mechanism: candidate j with chance ~ exp(-epsilon n mean_j / (2 Lambda)).

    Losses are clamped to [0, Lambda] record by record, so replacing one moves each mean by Lambda/n at most, and the
    log-ratio of the chances has range epsilon. Proof: `docs/proofs/gradient-descent.md`, Theorem 3.

    Args:
        candidates: public parameter dictionaries.
        largest_loss: Lambda.
        epsilon: of the choice.
        delta: at which the certificate states epsilon.
        unit: the unit of privacy in words.

    Raises:
        ValueError: fewer than two candidates, a parameter out of range.
    """

    candidates: tuple[dict[str, Any], ...]
    largest_loss: float
    epsilon: float
    delta: float = 0.0
    unit: str = "one record of those on which losses are evaluated"

    name = "candidate-choice"
    neighbours = Neighbours.REPLACE

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(map(dict, self.candidates)))
        if len(self.candidates) < 2:
            raise ValueError("Give at least two candidates.")
        for label, value in (("largest_loss", self.largest_loss), ("epsilon", self.epsilon)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{label} must be a positive finite number; got {value!r}.")

    def privacy_loss(self, n: int) -> BoundedRange:
        """Bounded range epsilon: pure epsilon-DP, and better than that in composition."""
        return BoundedRange(self.epsilon, neighbours=self.neighbours)

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {"candidates": list(self.candidates), "largest_loss": self.largest_loss, "epsilon": self.epsilon}

    def certificate(self, n: int, randomness: Randomness) -> Certificate:
        """The certificate of a choice by the losses of n records."""
        return Certificate.issue(
            self,
            n=n,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            enforced=(f"Losses are clamped to [0, {self.largest_loss:g}], record by record.",),
            declared=("The candidates are public, or releases that were paid for.", *whose_rows(self.unit)),
        )

    @cleared
    def check(self, records: Any) -> int:
        """The number of records of losses (n, k); PublicError for another shape."""
        if not isinstance(records, np.ndarray) or records.ndim != 2 or records.shape[1] != len(self.candidates):
            raise PublicError(f"Losses must be of shape (records, {len(self.candidates)}), one column a candidate.")
        return len(records)

    @cleared
    @quiet()
    def run(self, records: Floats, randomness: Randomness) -> CandidateRelease:
        """The choice, from the losses of every record for every candidate: (n, k)."""
        n = self.check(records)
        scores = -0.5 * self.epsilon * n * clamped_mean(records, self.largest_loss) / self.largest_loss
        # the largest of scores plus Gumbel noise has just these chances
        place = int(np.argmax(scores - np.log(-np.log(randomness.uniform(scores.shape)))))
        certificate = self.certificate(n, randomness)
        return CandidateRelease(certificate=certificate, candidate=dict(self.candidates[place]), place=place)


@cleared
def select_candidate(
    losses: Floats,
    candidates: Sequence[dict[str, Any]],
    *,
    largest_loss: float,
    epsilon: float,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    randomness: Randomness | None = None,
) -> CandidateRelease:
    """Choose among candidates by the losses of every record, shape (n, k), for epsilon: see `CandidateChoice`.

    With a `ledger`, or the path or URL of one, the choice is paid for and booked; without one nothing is kept of it.
    `randomness` is the operating system's by default.
    """
    choice = CandidateChoice(tuple(candidates), largest_loss, epsilon)
    source, book = source_of(randomness), ledger_at(ledger)
    if book is not None:
        return book.run(choice, losses, n=len(losses), randomness=source)  # pyright: ignore[reportReturnType]
    return choice.run(losses, source)
