"""One run of a candidate, in which failing is an outcome like any other, and the limit of its time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from discretion.privacy import Neighbours, SystemRandomness
from discretion.privacy.quiet import silent
from discretion.selection.alarm import alarm
from discretion.selection.scores import Score
from discretion.selection.streams import SearchKey

__all__ = ["Run", "RunLimit", "can_run", "make_run", "train"]


@dataclass(frozen=True)
class RunLimit:
    """A public limit of the time one run may take; a run beyond it ranks last.

    Whether a run is too slow is something it reveals. The base guarantee must cover it, and it does not do so by
    itself: say why it does here.

    Args:
        seconds: positive.
        because: why no record decides which runs are too slow, in words; it goes into the certificate. For example
            "a run takes a number of steps fixed by public parameters; the limit is ten times what they take".

    Raises:
        ValueError: no such limit, or no reason.
    """

    seconds: float
    because: str

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"A limit must be a positive finite number of seconds, not {self.seconds!r}.")
        if not isinstance(self.because, str) or not self.because.strip():
            raise ValueError("Say why no record decides which runs are too slow (because=...).")


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """PRIVATE. One run: the order is failed below ranked, then the score, then a lot."""

    candidate: int
    ranked: bool
    score: float
    lot: bytes
    artefact: Any

    @property
    def rank(self) -> tuple[bool, float, bytes]:
        """What runs are compared by."""
        return self.ranked, self.score, self.lot


def make_run(
    candidate: Any,
    index: int,
    score: Score,
    neighbours: Neighbours,
    seconds: float | None,
    key: SearchKey,
    number: int,
    records: Any,
) -> Run:
    """One run, where failing is an outcome like any other. An interrupt is not: it ends the search, with nothing."""
    lot = key.stream(f"lot {number}").bytes(16)
    publish = getattr(candidate, "publish", lambda artefact: artefact)
    try:
        with silent(), alarm(seconds):
            training, validation = score.split(records, neighbours, key.stream(f"split {number}"))
            artefact = candidate.run(training, key.stream(f"run {number}"))
            value = float(score(artefact, validation, neighbours, key.stream(f"score {number}")))
            artefact = publish(artefact)
    except Exception:
        return Run(index, False, 0.0, lot, None)
    return Run(index, True, value, lot, artefact) if not math.isnan(value) else Run(index, False, 0.0, lot, None)


def train(candidate: Any, chosen: Run, seconds: float | None, key: SearchKey, records: Any) -> Run:
    """The run that was chosen, with the artefact of another training of its candidate in place of its own."""
    publish = getattr(candidate, "publish", lambda artefact: artefact)
    try:
        with silent(), alarm(seconds):
            artefact = publish(candidate.run(records, key.stream("final training")))
    except Exception:
        return Run(chosen.candidate, False, 0.0, chosen.lot, None)
    return Run(chosen.candidate, True, chosen.score, chosen.lot, artefact)


def can_run(candidate: Any, records: Any) -> bool:
    """Whether a run does not fail."""
    try:
        with silent():
            candidate.run(records, SystemRandomness())
    except Exception:
        return False
    return True
