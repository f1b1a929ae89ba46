"""Private selection: many runs, one of them released, and one price for tuning and release together.

1. Draw the number of runs K from a public law, and K candidates by public weights, apart from the records.
2. Run them, each with noise of its own, and score them.
3. Release the best. The other runs, their scores and K never leave (Liu and Talwar 2019; Papernot and Steinke 2022).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

from discretion.privacy import (
    Certificate,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    Release,
    SystemRandomness,
)
from discretion.privacy.certificate import LIMITS as EVERY_LIMIT
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.selection.alarm import alarm
from discretion.selection.bounds import Rule, heterogeneous, selection_loss
from discretion.selection.outcome import Outcome, SelectionRelease, under
from discretion.selection.proposals import FIXED, Proposals
from discretion.selection.repetitions import Repetitions
from discretion.selection.scores import Score, rows, subset
from discretion.selection.streams import SearchKey

__all__ = ["RunLimit", "SelectionMechanism", "dyadic"]

LIMITS = (
    "How long the search took, how busy the machine was, what the runs wrote to files or trackers, and bills for it: "
    "each of them tells of the number of runs.",
)
PADDED = (
    "How busy the machine was, what the runs wrote to files or trackers, and bills for it: each of them tells of the "
    "number of runs.",
)
OPEN_END = 1.0
"""Seconds added to a padded deadline for what is not a run."""


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


@dataclass(frozen=True, eq=False)
class SelectionMechanism:
    """Release the best of a random number of runs of the candidates.

    Parameters
    ----------
    candidates : sequence of mechanisms
        Each with ``name``, ``neighbours``, ``privacy_loss(n)``, ``parameters()`` and ``run(records, randomness)``. They
        are fixed before a record is read. Where one has a method ``publish``, what leaves is ``publish(artefact)``.
    score : Score
        The order among runs; see `discretion.selection.scores`.
    law : Repetitions
        The law of the number of runs. A cap on it is part of the law: ``Capped(law, most)``.
    delta : float
        The delta at which the certificate states epsilon, 0 < delta < 1.
    weights : sequence of float, optional
        Chances of the candidates, public; equal by default. Rounded to multiples of 2^-52, which is what both the
        draws and the account use.
    default : optional
        What is released where no run was drawn: a public value, chosen without the records.
    rule : str
        Which bound of the price, as in `selection_loss`.
    limit : RunLimit, optional
        Time that one run may take.
    pad : bool
        Hold the result back until a deadline that is public: the greatest number of runs, over the workers, times the
        limit. Needs a limit and a law with a greatest number of runs.
    unit : str, optional
        The unit of privacy in words.
    jobs : int, optional
        Workers, as joblib's ``n_jobs``. The outcome does not depend on it.
    proposals : Proposals, optional
        Draw each run's candidate in view of the scores so far, within a box around the weights, one run after the
        other. It costs more; proposals that are not held in such a box void every guarantee.

    Raises
    ------
    ValueError
        Candidates that differ in neighbours, candidates that protect units of several records under a score whose noise
        hides one, weights that are no distribution, padding without a limit, proposals
        with several workers or padding.

    Notes
    -----
    A run that fails, or whose score is NaN, ranks last and is not told of; equal scores are decided by lot. Runs are
    silent. Where a score parts the records by their positions, they are first put in an order drawn by lot, one for all
    runs: positions may follow from what records hold, as in a sorted table, and a part drawn by lot does not
    (``docs/proofs/selection-shuffle.md``).
    Nothing in the release depends on the number of runs other than through which candidate won. What the price
    is: `discretion.selection.bounds`; what is proved of the runner: ``docs/proofs/selection-runner.md``.
    """

    candidates: tuple[Any, ...]
    score: Score
    law: Repetitions
    delta: float
    weights: tuple[float, ...] | None = None
    default: Any = None
    rule: Rule = "best"
    limit: RunLimit | None = None
    pad: bool = False
    unit: str | None = None
    jobs: int | None = None
    proposals: Proposals | None = None
    _losses: dict[int | None, tuple[PrivacyLoss, PrivacyLoss]] = field(default_factory=dict, init=False, repr=False)
    _able: set[str] = field(default_factory=set, init=False, repr=False)

    name = "private-selection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError("Give at least one candidate.")
        if len({Neighbours(each.neighbours) for each in self.candidates}) > 1:
            raise ValueError("All candidates must be private under the same neighbours.")
        if not isinstance(self.law, Repetitions):
            raise ValueError("Give the law of the number of runs as a Repetitions, such as Poisson(10).")
        if not isinstance(self.score, Score):
            raise ValueError("Give the score as a PublicScore or a NoisyScore: an order needs a price.")
        most = max(int(getattr(each, "contributions", 1)) for each in self.candidates)
        if self.score.for_one_record and most > 1:
            raise ValueError(
                f"A candidate protects units of up to {most} records, and the noise of this score hides one record. "
                "Cut the records to one of each unit (contributions=1), or score by public data (PublicScore)."
            )
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        object.__setattr__(self, "weights", dyadic(self.weights, len(self.candidates)))
        if self.pad and (self.limit is None or self.most_runs is None):
            raise ValueError(
                "A padded release needs a limit per run and a law with a greatest number of runs (Capped)."
            )
        if self.proposals is not None and (self.pad or self.jobs not in (None, 1)):
            raise ValueError(
                "With proposals each run waits for the one before it, and proposing takes time of its own: leave jobs "
                "and pad as they are."
            )

    # --- what it costs, from public parameters alone

    @property
    def neighbours(self) -> Neighbours:
        """The relation of every candidate."""
        return Neighbours(self.candidates[0].neighbours)

    @property
    def n_is_public(self) -> bool:
        """Whether every candidate treats the number of records as public."""
        public = self.neighbours is not Neighbours.ADD_REMOVE
        return all(getattr(each, "n_is_public", public) for each in self.candidates)

    @property
    def most_runs(self) -> int | None:
        """The greatest number of runs the law can draw, or None."""
        for name in ("most", "trials", "count"):
            if hasattr(self.law, name):
                return int(getattr(self.law, name))
        return None

    def run_loss(self, n: int | None) -> PrivacyLoss:
        """What one run costs: candidates averaged by their weights, score included."""
        return self._priced(n)[0]

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        """What the whole search costs on n records, release included."""
        return self._priced(n)[1]

    def _priced(self, n: int | None) -> tuple[PrivacyLoss, PrivacyLoss]:
        n = n if self.n_is_public else None
        if n not in self._losses:
            size = self.score.training_size(n)
            weighted: list[tuple[PrivacyLoss, float]] = []
            for each, weight in zip(self.candidates, self._weights, strict=True):
                loss = self.score.run_loss(each.privacy_loss(size), n)
                same = next((i for i, (known, _) in enumerate(weighted) if known == loss), None)
                if same is None:
                    weighted.append((loss, weight))
                else:
                    weighted[same] = (loss, weighted[same][1] + weight)
            losses, weights = zip(*weighted, strict=True)
            one = losses[0] if len(losses) == 1 else heterogeneous(losses, weights)
            box = FIXED if self.proposals is None else self.proposals.box
            self._losses[n] = one, selection_loss(one, self.law, rule=self.rule, box=box)
        return self._losses[n]

    def parameters(self) -> dict[str, Any]:
        """The public parameters: what the candidates share, and in what each differs."""
        each = [dict(candidate.parameters()) for candidate in self.candidates]
        common = {key: value for key, value in each[0].items() if all(key in p and p[key] == value for p in each)}
        adaptive = self.proposals
        adapted = {} if adaptive is None else {"proposals": adaptive.name, "box": [adaptive.box.low, adaptive.box.high]}
        parted = {"order": "by lot"} if self.score.parts_by_position(self.neighbours) else {}
        return (
            adapted
            | parted
            | {
                "law": self.law.parameters(),
                "mean_runs": float(self.law.mean),
                "score": self.score.parameters(),
                "rule": self.rule,
                "mechanisms": sorted({candidate.name for candidate in self.candidates}),
                "common": common,
                "candidates": [{key: p[key] for key in p if key not in common} for p in each],
                "weights": list(self._weights),
                "seconds_per_run": None if self.limit is None else self.limit.seconds,
                "padded": self.pad,
            }
        )

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records outside any candidate's domain; their number where it is public. Spends nothing.

        Where a score parts the records by coins, the part to learn from may be empty, and a candidate that failed on it
        would tell so: each kind of candidate is tried on no records once, which reads none.
        """
        found = {each.check(records) for each in self.candidates if hasattr(each, "check")} - {None}
        if self.score.parts_by_coin(self.neighbours):
            nobody = subset(records, np.zeros(rows(records), dtype=bool))
            for each in {each.name: each for each in self.candidates}.values():
                if each.name not in self._able and not _runs(each, nobody):
                    raise PublicError(
                        f"{each.name} can't be run on no records. A score that keeps a share of the records apart, by "
                        "coins, may leave none to learn from, and failing would tell so: score on public data, or on "
                        "all records (fraction=None)."
                    )
                self._able.add(each.name)
        return found.pop() if len(found) == 1 else None

    # --- the search

    @cleared
    def run(self, records: Any, randomness: Randomness) -> SelectionRelease:
        """Draw, run, release the best. Called by the ledger after the loss is reserved."""
        return self.replay(SearchKey.draw(randomness), records)

    @cleared
    def replay(self, key: SearchKey, records: Any) -> SelectionRelease:
        """The search of a key: the same key gives the same draws and noise, in whatever order the runs are made."""
        self.check(records)
        start = time.monotonic()
        if self.score.parts_by_position(self.neighbours):
            order = np.argsort(key.stream("order of the records").uniform(rows(records)), kind="stable")
            records = subset(records, order)  # pyright: ignore[reportArgumentType]  (positions index as a mask does)
        drawn = self.law.sample(key.stream("number of runs"))
        uniform = key.stream("candidates").uniform(drawn)
        if self.proposals is None:
            chosen = np.searchsorted(np.cumsum(self._weights), uniform, side="right").tolist()
            runs = self._all(records, key, chosen)
        else:
            runs = self._one_by_one(records, key, uniform.tolist(), self.proposals)
        best = None
        with silent():
            for each in runs:
                best = each if best is None or each.rank > best.rank else best
        release = self._release(best, key, self._count(records))
        if self.pad:
            self._wait(start)
        return release

    def _all(self, records: Any, key: SearchKey, chosen: list[int]) -> Iterable[_Run]:
        """Every run, in the order in which they end."""
        # Nothing is kept of a run that lost, where the backend can hand runs over one by one.
        lazy = getattr(get_active_backend()[0], "supports_return_generator", False)
        # Without memory maps, so that joblib writes no copy of the records to a file.
        workers = Parallel(
            n_jobs=self.jobs, verbose=0, max_nbytes=None, return_as="generator_unordered" if lazy else "list"
        )
        seconds = None if self.limit is None else self.limit.seconds
        return workers(  # pyright: ignore[reportReturnType]
            delayed(_run)(self.candidates[j], j, self.score, self.neighbours, seconds, key, k, records)
            for k, j in enumerate(chosen)
        )

    def _one_by_one(self, records: Any, key: SearchKey, uniform: list[float], proposals: Proposals) -> Iterable[_Run]:
        """Every run, each candidate drawn in view of the scores before it."""
        seconds = None if self.limit is None else self.limit.seconds
        history: list[tuple[int, float]] = []
        for k, each in enumerate(uniform):
            chances = proposals.weights(tuple(history), self._weights)
            j = int(np.searchsorted(np.cumsum(chances), each, side="right"))
            run = _run(self.candidates[j], j, self.score, self.neighbours, seconds, key, k, records)
            history.append((j, run.score if run.ranked else math.nan))
            yield run

    def _release(self, best: _Run | None, key: SearchKey, n: int | None) -> SelectionRelease:
        outcome = Outcome.DEFAULT if best is None else Outcome.CHOSEN if best.ranked else Outcome.FAILED
        winner = self.default if best is None else best.artefact
        certificate = self._certificate(winner, key, n)
        chosen = best.candidate if best is not None and best.ranked else None
        return SelectionRelease(
            certificate=certificate,
            outcome=outcome,
            winner=under(certificate, winner),
            candidate=chosen,
            choice={} if chosen is None else self.parameters()["candidates"][chosen],
            score=best.score if best is not None and best.ranked else None,
            one_run=self.run_loss(n).epsilon(self.delta),
        )

    def _certificate(self, winner: Any, key: SearchKey, n: int | None) -> Certificate:
        """The certificate of the search; what a run promises besides its price holds on."""
        own = winner.certificate if isinstance(winner, Release) else None
        # What a run declares of its settings is true of the candidates, and not of the one that was chosen.
        declared = [f"Of every candidate, before the search: {line}" for line in (own.declared if own else ())]
        limits = (*(own.limits if own else ()), *(PADDED if self.pad else LIMITS))
        limit = () if self.limit is None else (f"Which runs take over {self.limit.seconds:g} s: {self.limit.because}",)
        unit = self.unit or next((each.unit for each in self.candidates if getattr(each, "unit", None)), None)
        certificate = Certificate.issue(
            self,  # pyright: ignore[reportArgumentType]
            n=n if self.n_is_public else None,
            delta=self.delta,
            unit=unit or ("one record" if own is None else own.unit),
            randomness=key.stream("certificate"),
            loss=self.privacy_loss(n),
            enforced=(
                *(own.enforced if own else ()),
                "The candidates, their weights and the law were fixed beforehand."
                if self.proposals is None
                else "The candidates, their weights, the law and the box of proposals were fixed beforehand.",
            ),
            declared=(*declared, *limit),
            limits=tuple(line for line in dict.fromkeys(limits) if line not in EVERY_LIMIT),
        )
        return replace(certificate, bookable=certificate.bookable and (own is None or own.bookable))

    def _wait(self, start: float) -> None:
        """Sleep until the next multiple of the deadline; one, unless a run could not be stopped at its limit."""
        assert self.limit is not None
        assert self.most_runs is not None
        workers: Any = self.jobs or get_active_backend()[1] or 1
        rounds = math.ceil(self.most_runs / effective_n_jobs(workers))
        deadline = rounds * self.limit.seconds + OPEN_END
        passed = time.monotonic() - start
        time.sleep(math.ceil(passed / deadline) * deadline - passed)

    # --- helpers

    @property
    def _weights(self) -> tuple[float, ...]:
        assert self.weights is not None
        return self.weights

    def _count(self, records: Any) -> int | None:
        """The number of records, where the price depends on it."""
        if not self.n_is_public:
            return None
        found = self.check(records)
        return rows(records) if found is None else found


@dataclass(frozen=True, eq=False, repr=False)
class _Run:
    """PRIVATE. One run: the order is failed below ranked, then the score, then a lot."""

    candidate: int
    ranked: bool
    score: float
    lot: bytes
    artefact: Any

    @property
    def rank(self) -> tuple[bool, float, bytes]:
        return self.ranked, self.score, self.lot


def _run(
    candidate: Any,
    index: int,
    score: Score,
    neighbours: Neighbours,
    seconds: float | None,
    key: SearchKey,
    number: int,
    records: Any,
) -> _Run:
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
        return _Run(index, False, 0.0, lot, None)
    return _Run(index, True, value, lot, artefact) if not math.isnan(value) else _Run(index, False, 0.0, lot, None)


def _runs(candidate: Any, records: Any) -> bool:
    """Whether a run does not fail."""
    try:
        with silent():
            candidate.run(records, SystemRandomness())
    except Exception:
        return False
    return True


def dyadic(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """The distribution on multiples of 2^-52 next to these weights.

    A uniform number of the runner is the midpoint of one of 2^52 equal cells, so that these are the very chances with
    which candidates are drawn.

    Raises:
        ValueError: not as many weights as candidates, or weights that are negative, not finite or all zero.
    """
    raw = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if raw.shape != (count,):
        raise ValueError(f"There are {count} candidates: give as many weights.")
    if not (np.isfinite(raw).all() and (raw >= 0).all() and raw.sum() > 0):
        raise ValueError("Weights must be finite, not negative and not all zero.")
    ends: NDArray[np.float64] = np.rint(np.cumsum(raw) / raw.sum() * 2.0**52)
    ends[np.flatnonzero(raw)[-1] :] = 2.0**52
    return tuple((np.diff(ends, prepend=0.0) * 2.0**-52).tolist())
