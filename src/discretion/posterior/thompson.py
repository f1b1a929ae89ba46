"""Thompson sampling as people drive one: ask for actions, tell the responses, take the run up again after a crash.

The order of a round is the guarantee. The loss of the whole run is reserved before the first; a round is written down,
on disk, before its path is drawn; its actions are on disk before anybody sees them. A round that was written down and
not finished is lost: it counts as played, and is not drawn again.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp import Box, SamplePaths
from discretion.gp.candidates import CandidatePaths
from discretion.gp.growing import GrowingPosterior
from discretion.posterior.records import numbers
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.posterior.thompson_release import NO_BEST, ThompsonRelease
from discretion.privacy import Ledger, NotBookable, PublicError, Randomness
from discretion.privacy.delta import at_delta_of
from discretion.privacy.frames import cleared
from discretion.privacy.noise import noise_id, source_of
from discretion.privacy.once import Alone, RunError, alone
from discretion.privacy.paid import Paid, give_back, ledger_at
from discretion.privacy.quiet import quiet
from discretion.privacy.transcript import Transcript

__all__ = ["HorizonReached", "ThompsonSampler"]

Floats = NDArray[np.float64]

SCHEMA = 2


class HorizonReached(RunError):
    """All rounds were played; their number was fixed in advance, and paid for."""


class ThompsonSampler:
    """Ask for the actions of a round, tell their responses, and repeat.

    ```python
    sampler = ThompsonSampler(ThompsonMechanism(Matern52(0.2), candidates, (-1, 1), rounds=50, schedule=5.0))
    while not sampler.done:
        sampler.tell(measure(sampler.ask()))  # (batch, d) -> (batch,)
    sampler.result().recommended()
    ```

    Threads may share one: a call waits for the one before it. A forked process may not use its parent's.

    Args:
        mechanism: the public parameters. With a ledger, and no delta of its own, it states its epsilon at the ledger's.
        path: a file for the public state, the actions; if it exists, the run is taken up again from there. Others may
            read it; without a ledger nothing notices that an older copy of it is taken up.
        private: a file for the responses, readable by its owner alone; needed with `path`.
        ledger: the budget of the records, or its path or URL. The loss of the whole run is reserved there at once, and
            stays spent whether or not the run is finished.
        randomness: by default the operating system's.

    Raises:
        RunError: the files belong to another run, or to each other not, or are older than the ledger knows.
        NotBookable: a ledger, and noise that can be replayed.
        BudgetExceeded, NeighbourMismatch: the ledger does not allow it.
        ValueError: one of `path` and `private` without the other.
        TypeError: `randomness` is no source of noise.
    """

    def __init__(
        self,
        mechanism: ThompsonMechanism,
        *,
        path: str | os.PathLike[str] | None = None,
        private: str | os.PathLike[str] | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        if (path is None) != (private is None):
            raise ValueError("A run on disk needs both files: path for the actions, private for the responses.")
        self.randomness = source_of(randomness)
        if ledger is not None and self.randomness.bookable is not True:
            raise NotBookable("This source of noise can be replayed, so the run cannot be booked. Leave it out.")
        book = ledger_at(ledger)
        self.mechanism = at_delta_of(mechanism, book)
        self._alone = Alone("sampler")
        self._played: list[Floats | None] = []  # the actions of each round; None for one that was lost
        self._told: set[int] = set()  # rounds whose responses are known; 0 is the history
        self._model = self._prior()
        rows = self._model.points if isinstance(self._model, CandidatePaths) else ()
        self._place = {row.tobytes(): place for place, row in enumerate(rows)}
        self._public = self._private = None
        self._paid: Paid | None = None
        try:
            if path is not None and private is not None:
                self._public = Transcript(path)
                if Path(private).exists() and Path(private).samefile(path):
                    raise RunError("path and private are one file: one of them is public. Give two.")
                self._private = Transcript(private, private=True)
            self._paid = self._open(book)
        except BaseException as error:
            give_back(error, self._public, self._private)
            raise

    # --- public facts

    @property
    def done(self) -> bool:
        """Whether all rounds were played and told, or the run went on from another copy of its files."""
        if self._paid is not None and self._paid.overtaken:
            return True
        return len(self._played) >= self.mechanism.rounds and self._pending is None

    @property
    def rounds(self) -> int:
        """How many rounds were played, lost ones included."""
        return len(self._played)

    @property
    def actions(self) -> Floats:
        """The actions so far, (rounds, batch, d); NaN for a round that was lost."""
        shape = (int(self.mechanism.batch), self.mechanism.dimension)
        lost = np.full(shape, np.nan)
        return np.array([lost if each is None else each for each in self._played]).reshape(-1, *shape)

    @property
    def best_action(self) -> Floats:
        """Refused: which action is best would be read off private responses."""
        raise AttributeError(NO_BEST)

    @alone(nested=True)
    def result(self) -> ThompsonRelease:
        """The release: the actions and the certificate; also of a run that is not finished."""
        self._check_newest()
        actions = np.full((self.mechanism.rounds, int(self.mechanism.batch), self.mechanism.dimension), np.nan)
        actions[: self.rounds] = self.actions
        release = ThompsonRelease(certificate=self.mechanism.certificate(self.randomness), actions=actions)
        return release if self._paid is None else release.booked(self._paid.name)

    # --- ask and tell

    @cleared
    @alone
    def start(self, X: ArrayLike, y: ArrayLike) -> None:
        """Tell the history, before the first round: covariates X (history, d) and responses y (history,).

        Where only responses are private X is public, and among the candidates if there are any.

        Raises:
            RunError: no history was declared, or it was told.
            PublicError: another shape or number, or not finite.
        """
        if not self.mechanism.history:
            raise RunError("No history was declared; give its number of records as history.")
        if 0 in self._told or self._played:
            raise RunError("The history was told already.")
        self._tell(0, self._checked(X, self.mechanism.history, "History"), y)

    @cleared
    @alone
    def ask(self) -> Floats:
        """The actions to play next, (batch, d): the same until their responses are told. Public.

        Raises:
            HorizonReached: all rounds were played.
            RunError: the history is to be told first; or this is a forked process.
            LedgerError: another copy of the run went on, and nothing is left to do here; or the ledger could not be
                written. The round is lost.
        """
        self._check_newest()
        if self._pending is not None:
            return self._pending.copy()
        if len(self._played) >= self.mechanism.rounds:
            raise HorizonReached(
                f"All {self.mechanism.rounds} rounds were played; their number was fixed in advance. A new run has a "
                "loss of its own."
            )
        if self.mechanism.history and 0 not in self._told:
            raise RunError("Tell the history first: start(X, y).")
        number, name = len(self._played) + 1, noise_id(self.randomness)
        self._played.append(None)  # lost, until its actions are on disk: wherever an interrupt comes
        written = self._public is None
        try:
            if self._public is not None:
                self._public.append({"event": "begun", "round": number, "noise": name})
            written = True
            if self._paid is not None:
                self._paid.step(name)
            actions = self._drawn(number)
            if self._public is not None:
                self._public.append({"event": "played", "round": number, "actions": actions.tolist()})
        except BaseException:
            if written:  # otherwise the round is still to come for whoever opens the file
                self._book()
            raise
        self._played[-1] = actions
        return actions.copy()

    @cleared
    @alone
    def tell(self, y: ArrayLike, X: ArrayLike | None = None) -> None:
        """Tell the responses of the round that was asked for, and nothing else of it.

        Args:
            y: PRIVATE. One response for each action, (batch,); clipped to the range.
            X: PRIVATE, where covariates are: where the responses were measured, (batch, d), clamped to
                `mechanism.covariate_range`; at the actions if left out.

        Raises:
            RunError: nothing was asked for; or covariates where they are public.
            PublicError: another shape or number, or not finite. Nothing was told then.
        """
        self._check_newest()
        actions = self._pending
        if actions is None:
            raise RunError("Nothing was asked for: a round's responses are told once, after ask().")
        if X is not None and self.mechanism.private == "responses":
            raise RunError("Covariates are public here: records are measured at their actions. Leave out X.")
        here = actions if X is None else self._checked(X, len(actions), "Covariates")
        self._tell(len(self._played), here, y)
        self._book()

    def close(self) -> None:
        """Let other processes have the files."""
        for each in (self._public, self._private):
            if each is not None:
                each.close()

    def __enter__(self) -> ThompsonSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ThompsonSampler: round {self.rounds} of {self.mechanism.rounds}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A sampler holds private responses and open files. Give it paths instead, and open those again."
        )

    # --- inside

    @property
    def _pending(self) -> Floats | None:
        """The actions of the last round, if their responses are not known yet."""
        return None if not self._played or len(self._played) in self._told else self._played[-1]

    def _prior(self) -> CandidatePaths | GrowingPosterior:
        m = self.mechanism
        assert m.ridge is not None
        if m.shares_factor:
            assert m.candidates is not None
            return CandidatePaths(m.kernel, m.candidates, m.ridge, m.effective_nugget, m.records)
        return GrowingPosterior(m.kernel, m.ridge, m.dimension, m.records)

    @quiet()
    def _drawn(self, number: int) -> Floats:
        """PRIVATE paths in, PUBLIC actions out: where each path is highest, of the points looked at."""
        m, model = self.mechanism, self._model
        scale, batch, normal = float(m.scales[number - 1]), int(m.batch), self.randomness.standard_normal
        if isinstance(model, CandidatePaths):
            return model.points[model.draw(scale, normal, batch).argmax(axis=1)]
        if m.candidates is not None:
            paths = SamplePaths(model, scale, m.effective_nugget, normal, paths=batch)
            return m.candidates[paths.evaluate(m.candidates).argmax(axis=1)]
        assert isinstance(m.actions, Box)
        found = []
        for place in range(batch):
            path = SamplePaths(model, scale, m.effective_nugget, normal)
            seed = (int(m.seed), number, place)
            found.append(m.climb.highest(lambda points, path=path: path.evaluate(points)[0], m.dimension, seed))
        return m.actions.from_unit(np.array(found))

    def _checked(self, X: ArrayLike, count: int, what: str) -> Floats:
        points = numbers(X, what)
        if points.shape != (count, self.mechanism.dimension) or not np.isfinite(points).all():
            raise PublicError(f"{what} must be finite, of shape ({count}, {self.mechanism.dimension}).")
        return points if self.mechanism.private == "responses" else np.clip(points, *self.mechanism.covariate_range)

    @quiet()
    def _tell(self, number: int, X: Floats, y: ArrayLike) -> None:
        """Check, write down, learn: in this order."""
        responses = numbers(y, "responses")
        if responses.shape != (len(X),):
            raise PublicError(f"Tell {len(X)} response(s), shape ({len(X)},), one for each action. Nothing was told.")
        rows = np.flatnonzero(~np.isfinite(responses))
        if rows.size:
            raise PublicError(f"Responses are not finite at {rows.tolist()} (from 0); mend them by a public rule.")
        places = self._places(X)
        if self._private is not None:
            self._private.append({"round": number, "X": X.tolist(), "y": responses.tolist()})
        self._learn(number, places, responses)

    def _places(self, X: Floats) -> Any:
        """Where the model has these covariates: the numbers of candidates, or kernel coordinates."""
        m = self.mechanism
        if isinstance(self._model, CandidatePaths):
            found = [self._place.get(row.tobytes(), -1) for row in np.ascontiguousarray(X) + 0.0]
            if -1 in found:
                raise PublicError("Where only responses are private, records are measured at candidates.")
            return np.array(found, dtype=np.intp)
        return m.actions.unit(X) if isinstance(m.actions, Box) else X

    def _learn(self, number: int, places: Any, responses: Floats) -> None:
        low, high = self.mechanism.response_range
        self._model.append(places, np.clip(responses, low, high) - float(self.mechanism.centre or 0.0))
        self._told.add(number)

    def _check_newest(self) -> None:
        if self._paid is not None:
            self._paid.go_on()

    def _book(self) -> None:
        """Tell the ledger that the run is finished, once."""
        if self.done and self._paid is not None:
            self._paid.finish()

    # --- on disk

    @cleared
    def _open(self, ledger: Ledger | None) -> Paid | None:
        """Read what is there, and find or reserve the entry that pays for it."""
        m, name = self.mechanism, str(uuid.uuid4())
        if self._public is not None and self._private is not None:
            if self._private.lines and not self._public.lines:
                raise RunError(f"{self._private.path} belongs to another run: give a new file.")
            name = self._public.opened(
                {
                    "event": "run",
                    "schema": SCHEMA,
                    "parameters": m.parameters(),
                    "delta": m.delta,
                    "unit": m.unit,
                    "ledger": None if ledger is None else ledger.id,
                    "bookable": self.randomness.bookable is True,
                }
            )
            if not self._private.lines:
                self._private.append({"event": "private", "id": name})
            if self._private.lines[0] != {"event": "private", "id": name}:
                raise RunError(f"{self._private.path} belongs to another run than {self._public.path}.")
        self._replay()
        if ledger is None:
            return None
        about = {"mechanism": m.name, "parameters": m.parameters(), "n": m.records, "unit": m.unit_in_words}
        paid = Paid(ledger, name, m.loss, about, randomness=self.randomness, file=self._public)
        paid.check(self.rounds >= m.rounds)  # with responses of the last round to come or not: nothing is drawn
        if self.done:
            paid.finish()
        return paid

    @quiet()
    def _replay(self) -> None:
        if self._public is None or self._private is None:
            return
        for line in self._public.lines[1:]:
            # a round whose first line could not be written is in no line, and lost
            self._played += [None] * (int(line["round"]) - len(self._played))
            if line["event"] == "played":
                self._played[-1] = np.array(line["actions"], dtype=np.float64)
        told = {line["round"]: line for line in self._private.lines[1:]}
        needed = [t for t, actions in enumerate(self._played[:-1], start=1) if actions is not None]
        needed += [0] if self.mechanism.history and self._played else []
        missing = sorted(set(needed) - set(told))
        if missing or any(t > len(self._played) for t in told):
            where = f"lacks the responses of round {missing[0]}" if missing else "is ahead of the actions"
            raise RunError(f"{self._private.path} {where}: the two files are not of one time. Bring back the latest.")
        for number, line in told.items():
            self._learn(number, self._places(np.array(line["X"], dtype=np.float64)), np.array(line["y"]))
