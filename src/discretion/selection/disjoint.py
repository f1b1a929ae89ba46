"""Tune on a random part of the records, train what is released on all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from discretion.privacy import Neighbours, PrivacyLoss
from discretion.selection.extensions import dearest, disjoint_tuning_loss
from discretion.selection.pricing import Stated
from discretion.selection.runs import Run, train
from discretion.selection.scores import rows, subset
from discretion.selection.search import SelectionMechanism
from discretion.selection.streams import SearchKey

__all__ = ["DisjointTuning"]

_UNITS = 2.0**52


@dataclass(frozen=True, eq=False)
class DisjointTuning(SelectionMechanism):
    """A search on a random part of the records, and one training of the candidate it chooses on all the others.

    Each record is in the part to tune on with probability `share`, by a secret coin of its own. What leaves: which
    candidate was chosen, its score on the part, and the artefact of the final training, which is scored no more. Where
    the search chooses none, nothing is trained. What it costs: `disjoint_tuning_loss` of the search and of the dearest
    candidate's training. Add-remove neighbours; proof: ``docs/proofs/selection-subsample.md``.

    Parameters
    ----------
    share : float
        Chance of a record to be tuned on, in (0, 1), rounded to a multiple of 2^-52.
    candidates, score, law, delta, weights, default, rule, limit, unit, jobs, proposals
        As in `SelectionMechanism`.

    Raises
    ------
    ValueError
        As `SelectionMechanism`; a share out of range, neighbours that replace a record, candidates that protect units
        of several records, or padding.
    """

    share: float = math.nan

    def __post_init__(self) -> None:
        share = round(float(self.share) * _UNITS) / _UNITS if 0 < self.share < 1 else 0.0
        if not 0 < share < 1:
            raise ValueError(f"The share of the records to tune on lies in (0, 1), not {self.share!r}.")
        object.__setattr__(self, "share", share)
        super().__post_init__()
        if self.neighbours is not Neighbours.ADD_REMOVE:
            raise ValueError(
                "Tuning on a random part has an account for add-remove neighbours alone: a record that is replaced "
                "could be in both parts' losses."
            )
        if max(int(getattr(each, "contributions", 1)) for each in self.candidates) > 1:
            raise ValueError(
                "Tuning on a random part has an account for one record of each unit: several could be in both parts. "
                "Cut the records to one of each unit (contributions=1), or tune on all of them."
            )
        if self.pad:
            raise ValueError("A search on a random part is not padded: how long the final training takes is its own.")

    def prices(self, stated: Sequence[Stated], n: int | None) -> tuple[PrivacyLoss, PrivacyLoss]:
        """What one run costs, and what tuning and the final training cost together."""
        one, tuning = super().prices(stated, n)
        return one, disjoint_tuning_loss(tuning, dearest([each.loss for each in stated]), self.share)

    def parameters(self) -> dict[str, Any]:
        """The public parameters of the search, and the share of the records it runs on."""
        return super().parameters() | {"tuned_on": self.share}

    def _best(self, records: Any, key: SearchKey) -> Run | None:
        tuned_on = key.stream("part to tune on").uniform(rows(records)) < self.share
        chosen = super()._best(subset(records, tuned_on), key)
        if chosen is None or not chosen.ranked:
            return chosen
        return train(self.candidates[chosen.candidate], chosen, self._seconds, key, subset(records, ~tuned_on))

    @property
    def _parts_by_coin(self) -> bool:
        return True
