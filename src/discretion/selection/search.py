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

from discretion.privacy import Certificate, Neighbours, PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.certificate import LIMITS as EVERY_LIMIT
from discretion.privacy.certificate import canonical, public_json
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.privacy.units import booked_unit, same_unit, whose_rows
from discretion.privacy.verification import Sentences
from discretion.selection.beforehand import check_candidate
from discretion.selection.bounds import Rule
from discretion.selection.extensions import SharedRate, Threshold
from discretion.selection.outcome import Outcome, SelectionRelease, bookable, under
from discretion.selection.pricing import Law, Stated, declared, price
from discretion.selection.proposals import FIXED, Proposals
from discretion.selection.repetitions import Repetitions
from discretion.selection.runs import Run, RunLimit, can_run, make_run
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
CHOSEN_BLINDLY = "The candidates, their weights and the law were chosen without looking at these records."
OF_EVERY = "Of every candidate, before the search: "
AS_DECLARED = "What one run costs is as declared: "
TAKES_OVER = "Which runs take over "
RELEASED = {
    Outcome.DEFAULT: "That no run was drawn",
    Outcome.FAILED: "That every run failed",
    Outcome.BELOW: "That no run reached the threshold",
}
OPEN_END = 1.0
"""Seconds added to a padded deadline for what is not a run."""


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
    law : Repetitions, SharedRate or Threshold
        The law of the number of runs. A cap on it is part of the law: ``Capped(law, most)``. Or another way to draw
        them: every candidate at a secret rate they share, or until a score reaches a public threshold.
    delta : float
        The delta at which the certificate states epsilon, 0 < delta < 1.
    weights : sequence of float, optional
        Chances of the candidates, public; equal by default. Rounded to multiples of 2^-52, which is what both the
        draws and the account use. Not with a shared rate, at which every candidate runs equally often.
    default : optional
        What is released where no run was drawn, or none reached the threshold: a public value, chosen without the
        records.
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
    law: Law
    delta: float
    weights: tuple[float, ...] | None = None
    default: Any = None
    rule: Rule = "best"
    limit: RunLimit | None = None
    pad: bool = False
    unit: str | None = None
    jobs: int | None = None
    proposals: Proposals | None = None
    _losses: dict[int | None, _Price] = field(default_factory=dict, init=False, repr=False)
    _able: set[int] = field(default_factory=set, init=False, repr=False)

    name = "private-selection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError("Give at least one candidate.")
        for each in self.candidates:
            check_candidate(each)
        if len({Neighbours(each.neighbours) for each in self.candidates}) > 1:
            raise ValueError("All candidates must be private under the same neighbours.")
        units = [each for each in map(booked_unit, self.candidates) if each]
        if self.unit is None and not all(same_unit(units[0], each) for each in units):
            raise ValueError("The candidates protect different units: say with unit which one the search is for.")
        if not isinstance(self.law, Law):
            raise ValueError(
                "Give the law of the number of runs (Repetitions, such as Poisson(10)); or a SharedRate, or Threshold."
            )
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
        equal = dyadic(None, len(self.candidates))
        object.__setattr__(self, "weights", dyadic(self.weights, len(self.candidates)))
        if isinstance(self.law, SharedRate) and (self.law.candidates != len(equal) or self.weights != equal):
            raise ValueError(
                f"The rate is shared by {self.law.candidates} candidates, each in every round: give so many, and no "
                "weights."
            )
        if self.pad and (self.limit is None or self.most_runs is None):
            raise ValueError(
                "A padded release needs a limit per run and a law with a greatest number of runs (Capped)."
            )
        if self.proposals is not None and not isinstance(self.law, Repetitions):
            raise ValueError("Proposals have an account for the best of a number of runs only: give its law.")
        if (self.proposals is not None or isinstance(self.law, Threshold)) and (self.pad or self.jobs not in (None, 1)):
            raise ValueError(
                "With proposals or a threshold each run waits for the one before it, and proposing takes time of its "
                "own: leave jobs and pad as they are."
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
        return self._priced(n).one

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        """What the whole search costs on n records, release included."""
        return self._priced(n).whole

    def _priced(self, n: int | None) -> _Price:
        n = n if self.n_is_public else None
        if n not in self._losses:
            size = self.score.training_size(n)
            stated = tuple(Stated.of(each, each.privacy_loss(size)) for each in self.candidates)
            one, whole = self.prices(stated, n)
            self._losses[n] = _Price(stated, one, self.as_stored(whole))
        return self._losses[n]

    def as_stored(self, loss: PrivacyLoss) -> PrivacyLoss:
        """A loss as certificate and ledger write it, tables for curves: what is stated is what is booked."""
        return PrivacyLoss.from_dict(loss.to_dict(self.delta))

    def prices(self, stated: Sequence[Stated], n: int | None) -> tuple[PrivacyLoss, PrivacyLoss]:
        """What one run and what the whole costs, given what each candidate's training does."""
        losses = [self.score.run_loss(each.loss, n) for each in stated]
        box = FIXED if self.proposals is None else self.proposals.box
        return price(losses, self._weights, self.law, self.rule, box)

    def parameters(self) -> dict[str, Any]:
        """The public parameters: what the candidates share, and in what each differs."""
        each = [_described(candidate) for candidate in self.candidates]
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
                "common": common,
                "candidates": [{key: p[key] for key in p if key not in common} for p in each],
                "weights": list(self._weights),
                "seconds_per_run": None if self.limit is None else self.limit.seconds,
                "padded": self.pad,
            }
        )

    def stated_losses(self, n: int | None) -> dict[str, Any]:
        """For the certificate, what one training of a candidate costs where that is declared: each loss once.

        ``{"losses": [...], "of": [...]}``, ``of`` the position of each candidate's loss, or None where the loss follows
        from the candidate's parameters.
        """
        losses: list[dict[str, Any]] = []
        of: list[int | None] = []
        for each in self._priced(n).stated:
            if each.text is not None and each.text not in losses:
                losses.append(each.text)
            of.append(None if each.text is None else losses.index(each.text))
        return {"losses": losses, "of": of}

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records outside any candidate's domain; their number where it is public. Spends nothing.

        Where a score parts the records by coins, the part to learn from may be empty, and a candidate that failed on it
        would tell so: each candidate is tried on no records once, which reads none.

        Raises:
            PublicError: a candidate refuses the records, or can't be run on none.
        """
        found = {each.check(records) for each in self.candidates if hasattr(each, "check")} - {None}
        if self._parts_by_coin:
            nobody = subset(records, np.zeros(rows(records), dtype=bool))
            for place, each in enumerate(self.candidates):
                if place not in self._able and not can_run(each, nobody):
                    raise PublicError(
                        f"{each.name} can't be run on no records. Where a share of the records is kept apart, by "
                        "coins, none may be left to learn from, and failing would tell so: score on public data, or on "
                        "all records (fraction=None), and tune on all of them."
                    )
                self._able.add(place)
        return found.pop() if len(found) == 1 else None

    # --- the search

    @cleared
    def run(self, records: Any, randomness: Randomness) -> SelectionRelease:
        """Draw, run, release the best. Called by the ledger after the loss is reserved."""
        return self.replay(SearchKey.draw(randomness), records)

    @cleared
    def replay(self, key: SearchKey, records: Any) -> SelectionRelease:
        """The search of a key: the same key gives the same draws and noise, in whatever order the runs are made."""
        n = self._count(records)
        start = time.monotonic()
        if self.score.parts_by_position(self.neighbours):
            order = np.argsort(key.stream("order of the records").uniform(rows(records)), kind="stable")
            records = subset(records, order)  # pyright: ignore[reportArgumentType]  (positions index as a mask does)
        with silent():
            best = self._best(records, key)
        release = self._release(best, key, n)
        if self.pad:
            self._wait(start)
        return release

    def _best(self, records: Any, key: SearchKey) -> Run | None:
        """The run that is released; None if none was drawn, or none reached the threshold."""
        best = None
        for each in self._runs(records, key):
            if isinstance(self.law, Threshold):
                if each.ranked and each.score >= self.law.level:
                    return each
            elif best is None or each.rank > best.rank:
                best = each
        return best

    def _runs(self, records: Any, key: SearchKey) -> Iterable[Run]:
        """Every run that is drawn."""
        match self.law:
            case SharedRate():
                return self._all(records, key, self.law.draw(key))
            case Threshold():
                drawn = self.law.draw(key)
            case _:
                drawn = self.law.sample(key.stream("number of runs"))
        uniform = key.stream("candidates").uniform(drawn)
        if self.proposals is not None:
            return self._one_by_one(records, key, uniform.tolist(), self.proposals)
        chosen = np.searchsorted(np.cumsum(self._weights), uniform, side="right").tolist()
        return (
            self._in_turn(records, key, chosen) if isinstance(self.law, Threshold) else self._all(records, key, chosen)
        )

    def _all(self, records: Any, key: SearchKey, chosen: list[int]) -> Iterable[Run]:
        """Every run, in the order in which they end."""
        # Nothing is kept of a run that lost, where the backend can hand runs over one by one.
        lazy = getattr(get_active_backend()[0], "supports_return_generator", False)
        # Without memory maps, so that joblib writes no copy of the records to a file.
        workers = Parallel(
            n_jobs=self.jobs, verbose=0, max_nbytes=None, return_as="generator_unordered" if lazy else "list"
        )
        seconds = self._seconds
        return workers(  # pyright: ignore[reportReturnType]
            delayed(make_run)(self.candidates[j], j, self.score, self.neighbours, seconds, key, k, records)
            for k, j in enumerate(chosen)
        )

    def _in_turn(self, records: Any, key: SearchKey, chosen: list[int]) -> Iterable[Run]:
        """Every run one after the other, as long as they are asked for."""
        for k, j in enumerate(chosen):
            yield make_run(self.candidates[j], j, self.score, self.neighbours, self._seconds, key, k, records)

    def _one_by_one(self, records: Any, key: SearchKey, uniform: list[float], proposals: Proposals) -> Iterable[Run]:
        """Every run, each candidate drawn in view of the scores before it."""
        history: list[tuple[int, float]] = []
        for k, each in enumerate(uniform):
            chances = proposals.weights(tuple(history), self._weights)
            j = int(np.searchsorted(np.cumsum(chances), each, side="right"))
            run = make_run(self.candidates[j], j, self.score, self.neighbours, self._seconds, key, k, records)
            history.append((j, run.score if run.ranked else math.nan))
            yield run

    def _release(self, best: Run | None, key: SearchKey, n: int | None) -> SelectionRelease:
        without = Outcome.BELOW if isinstance(self.law, Threshold) else Outcome.DEFAULT
        outcome = without if best is None else Outcome.CHOSEN if best.ranked else Outcome.FAILED
        winner = self.default if best is None else best.artefact
        chosen = best.candidate if best is not None and best.ranked else None
        certificate = self._certificate(winner, key, n)
        told = certificate.parameters | {"released": self.released(outcome, chosen)}
        certificate = replace(certificate, parameters=told)
        return SelectionRelease(
            certificate=certificate,
            outcome=outcome,
            winner=under(certificate, winner),
            candidate=chosen,
            choice={} if chosen is None else self.parameters()["candidates"][chosen],
            score=best.score if best is not None and best.ranked else None,
            one_run=self.run_loss(n).epsilon(self.delta),
        )

    def released(self, outcome: Outcome, chosen: int | None) -> str:
        """What was released, in words that end before "on n records"."""
        if chosen is None:
            return RELEASED[outcome]
        winner, choice = self.candidates[chosen], self.parameters()["candidates"][chosen]
        # sorted, as a certificate's JSON is: whoever reads it can write the same words
        settings = ", ".join(f"{name} = {canonical(value)}" for name, value in sorted(choice.items()))
        among = f"the best of a random number of runs of {len(self.candidates):,} candidates"
        return f"{winner.name}{' with ' if settings else ''}{settings}: {among}"

    def _certificate(self, winner: Any, key: SearchKey, n: int | None) -> Certificate:
        """The certificate of the search; what a run promises besides its price holds on."""
        own = winner.certificate if isinstance(winner, Release) else None
        unit = self.unit_in_words or ("one record" if own is None else own.unit)
        names = sorted({each.name for each in self.candidates if declared(each)})
        costs = (f"{AS_DECLARED}{', '.join(names)}.",) if names else ()
        limit = () if self.limit is None else (f"{TAKES_OVER}{self.limit.seconds:g} s: {self.limit.because}",)
        said = self.sentences(Sentences() if own is None else Sentences.of(own), unit, costs, limit)
        certificate = Certificate.issue(
            self,  # pyright: ignore[reportArgumentType]
            n=n if self.n_is_public else None,
            delta=self.delta,
            unit=unit,
            randomness=key.stream("certificate"),
            loss=self.privacy_loss(n),
            enforced=said.enforced,
            declared=said.declared,
            limits=said.limits,
            created=key.drawn,
        )
        parameters = certificate.parameters | {"run_losses": self.stated_losses(n)}
        return replace(certificate, parameters=parameters, bookable=certificate.bookable and bookable(winner))

    def sentences(
        self, own: Sentences, unit: str, costs: tuple[str, ...] = (), limit: tuple[str, ...] = ()
    ) -> Sentences:
        """What the certificate states in words, besides what that of every mechanism does.

        Args:
            own: what the winner's certificate states.
            unit: of privacy.
            costs, limit: what is declared of the price of a run, and of how long it takes.
        """
        # the winner may say how many records a unit has
        counted = any("of one unit of privacy" in line for line in (*own.enforced, *own.declared))
        whose = () if counted else whose_rows(unit)
        # What a run declares of its settings is true of the candidates, and not of the one that was chosen.
        said = [f"{OF_EVERY}{line}" for line in own.declared if line not in whose]
        limits = (*own.limits, *(PADDED if self.pad else LIMITS))
        fixed = "the law" if self.proposals is None else "the law and the box of proposals"
        joint = " and" if self.proposals is None else ","
        return Sentences(
            enforced=(*own.enforced, f"The candidates, their weights{joint} {fixed} were fixed beforehand."),
            declared=(*said, *costs, *whose, *self.score.declared, CHOSEN_BLINDLY, *limit),
            limits=tuple(line for line in dict.fromkeys(limits) if line not in EVERY_LIMIT),
            complete=own.complete,
        )

    @property
    def unit_in_words(self) -> str | None:
        """The unit of privacy, as ledgers have it: by default that of the candidates, if they name it."""
        return self.unit or next(filter(None, map(booked_unit, self.candidates)), None)

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
    def _parts_by_coin(self) -> bool:
        """Whether the part to learn from may be empty."""
        return self.score.parts_by_coin(self.neighbours)

    @property
    def _seconds(self) -> float | None:
        return None if self.limit is None else self.limit.seconds

    @property
    def _weights(self) -> tuple[float, ...]:
        assert self.weights is not None
        return self.weights

    def _count(self, records: Any) -> int | None:
        """The records, checked, and their number where the price depends on it."""
        found = self.check(records)
        if not self.n_is_public:
            return None
        return rows(records) if found is None else found


@dataclass(frozen=True, eq=False)
class _Price:
    """What each candidate's training costs, one run by the weights, and the whole search."""

    stated: tuple[Stated, ...]
    one: PrivacyLoss
    whole: PrivacyLoss


def _described(candidate: Any) -> dict[str, Any]:
    """What a candidate is, its parameters, and the delta for which it was made, if it has one."""
    delta = getattr(candidate, "delta", None)
    about = {"mechanism": candidate.name} | ({} if delta is None else {"delta": float(delta)})
    return about | public_json(dict(candidate.parameters()), f"parameters of {candidate.name}")


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
