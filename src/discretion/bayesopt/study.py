"""A private search as people drive one: ask where to evaluate, tell the losses, take it up again after a crash.

The order of a step is the guarantee. The step is charged, on disk; then noise is drawn and added; the noisy gradient is
on disk before anybody sees it. A step that was charged and not finished is lost: it counts as spent, theta stays.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt import journal
from discretion.bayesopt.accounting import BudgetSpent, GaussianFilter
from discretion.bayesopt.descent import LEARN_FROM
from discretion.bayesopt.descent import State as UpdateState
from discretion.bayesopt.diagnostics import Diagnostics
from discretion.bayesopt.journal import StudyError
from discretion.bayesopt.kept import KeptLosses
from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.losses import as_table, check_losses, check_means, in_chunks
from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.planning import Plan
from discretion.bayesopt.release import NO_BEST, LocalSearchRelease, release_of
from discretion.bayesopt.released import ReleasedGradients
from discretion.bayesopt.sampling import scattered
from discretion.bayesopt.steps import Step, facts_of, nearest
from discretion.privacy import Ledger, Neighbours, NotBookable, PublicError, Randomness
from discretion.privacy.delta import at_delta_of
from discretion.privacy.frames import cleared
from discretion.privacy.noise import noise_id, source_of
from discretion.privacy.once import Alone, alone
from discretion.privacy.paid import Paid, give_back, ledger_at
from discretion.privacy.sampling import secret_sample
from discretion.privacy.transcript import Transcript

__all__ = ["Study"]

Floats = NDArray[np.float64]


class Study:
    """Ask where to evaluate, tell the losses of every record there, and repeat.

    ```python
    study = Study(LocalSearch(space, mu=1.0, steps=30, clip=0.5), n=len(records), path="tuning.study")
    while not study.done:
        study.tell(np.column_stack([losses(records, **point) for point in study.ask()]))
    study.result().parameters
    ```

    Threads may share one: a call waits for the one before it, but for an `ask` whose answer is there. A forked process
    may not use its parent's.

    Args:
        search: the public parameters. With a ledger, and no delta of its own, it states its epsilon at the ledger's.
        n: how many records there are; public.
        path: a file for the public state; if it exists, the study is taken up again from there. Others may read it;
            without a ledger nothing notices that an older copy of it is taken up.
        private: a file for the losses that are used again, readable by its owner alone; goes with `path`. Without it a
            study that is taken up again does so without them.
        ledger: the budget of the records, or its path or URL. The loss of the whole run is reserved there at once, and
            stays spent whether or not the run is finished.
        randomness: by default the operating system's.
        unsafe_diagnostics: for SYNTHETIC data: the result carries true losses, clip fractions and exact gradients, and
            no guarantee, for good. Never with a ledger.

    Raises:
        StudyError: a file belongs to another study, search, n or ledger, or is older than the ledger knows.
        NotBookable: a ledger, and noise that can be replayed or unsafe diagnostics. Refused before anything is spent.
        BudgetExceeded: the ledger does not allow it.
        ValueError: n is no number of records; `private` without `path`.
        TypeError: `randomness` is no source of noise.
    """

    def __init__(
        self,
        search: LocalSearch,
        *,
        n: int,
        path: str | os.PathLike[str] | None = None,
        private: str | os.PathLike[str] | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        randomness: Randomness | None = None,
        unsafe_diagnostics: bool = False,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError("n, the public number of records, must be a whole number of at least 1.")
        if private is not None and path is None:
            raise ValueError("A private file is for taking a study up again: give path, for the public state, too.")
        self.n, self.randomness = int(n), source_of(randomness)
        if ledger is not None and self.randomness.bookable is not True:
            raise NotBookable("This source of noise can be replayed, so the study cannot be booked. Leave it out.")
        book = ledger_at(ledger)
        self.search = search = at_delta_of(search, book)
        self._diagnostics = Diagnostics.begun(search, book) if unsafe_diagnostics else None
        self._alone, self._process = Alone("study"), os.getpid()
        self._filter = GaussianFilter(search.mu)
        self._theta = search.space.clip(search._start())
        self._thetas, self._steps = [self._theta], []
        self._state: UpdateState = ()
        self._clip = search.clip
        self._plan: Plan | None = None
        self._sample: NDArray[np.intp] | None = None
        self._stopped = False
        self._kept = KeptLosses(self.n, search.space.size, private)
        self._file = None if path is None else Transcript(path)
        self._paid: Paid | None = None
        try:
            self._paid = self._open(book)
        except BaseException as error:
            give_back(error, self._file)
            raise

    # --- public facts

    @property
    def done(self) -> bool:
        """Whether all steps are spent, or the study was stopped, or went on from another copy of its file."""
        overtaken = self._paid is not None and self._paid.overtaken
        return overtaken or self._stopped or len(self._steps) >= self.search.steps

    @property
    def steps(self) -> tuple[Step, ...]:
        """The finished steps, all public."""
        return tuple(self._steps)

    @property
    def theta(self) -> Floats:
        """The current scaled parameters."""
        return self._theta.copy()

    @property
    def parameters(self) -> dict[str, Any]:
        """The current parameters, by name."""
        return self.search.space.parameters(self._theta)

    @property
    def evaluations(self) -> int:
        """How many evaluations were made."""
        return sum(step.evaluations for step in self._steps)

    @property
    def spent(self) -> float:
        """mu of the finished steps. What may be stated is the budget, `search.mu`."""
        return self._filter.spent

    @property
    def best_parameters(self) -> dict[str, Any]:
        """Refused: which point is best would be read off private losses."""
        raise AttributeError(NO_BEST)

    best_params = best_value = best_trial = best_parameters

    def surrogate(self) -> ReleasedGradients:
        """A Gaussian process of the released gradients: free to fit, to minimise, to plot.

        Raises:
            StudyError: nothing has been released yet.
        """
        known = [step for step in self._steps if step.gradient is not None]
        if not known:
            raise StudyError("No gradient has been released yet.")
        return ReleasedGradients(
            np.array([step.theta for step in known]),
            np.array([step.gradient for step in known]),
            np.array([step.spread for step in known]),
            self.search.gradient_kernel,
        )

    @alone(nested=True)
    def result(self) -> LocalSearchRelease:
        """The release: parameters, the public path and the certificate; also of a run that is not finished."""
        if self._paid is not None:
            self._paid.go_on()
        certificate = self.search.certificate(self.n, self.randomness)
        release = release_of(self.search, certificate, self._thetas, self._steps)
        if self._diagnostics is not None:
            return self._diagnostics.marked(release)
        return release if self._paid is None else release.booked(self._paid.name)

    # --- ask and tell

    def ask(self) -> list[dict[str, Any]]:
        """The parameters to evaluate next: the same until losses are told. Public; possibly none, if old ones suffice.

        Raises:
            BudgetSpent: all steps were used.
            StudyError: another copy of the study went on; or this is a forked process.
        """
        return [self.search.space.parameters(each) for each in self._next().new]

    def _next(self) -> Plan:
        """A plan that is there is handed out without waiting: threads that make the chunks of a `tell` ask for it."""
        plan = self._plan
        if plan is not None and os.getpid() == self._process:
            self._check_open()
            return plan
        with self._alone(nested=True):
            self._check_open()
            if self._plan is None:
                self._plan = self.search.plan(
                    self.n, len(self._steps), self._theta, self._kept.old, self._clip, kernel=self._learned_kernel()
                )
                if not self._steps:
                    space = self.search.space
                    space.warn_of_coarse_integers(self.search.gradient_kernel.scales(space.size))
            return self._plan

    @property
    def asked(self) -> Floats:
        """The scaled locations that `ask` gave, (b, d)."""
        return self._next().new.copy()

    @cleared
    @alone(nested=True)
    def sample(self) -> NDArray[np.intp]:
        """PRIVATE. Which records take part in this step, in order; all of them without `sample_rate`.

        Drawn once a step. Who takes part, and how many, must stay where the records are: the guarantee rests on it.
        """
        self._asked()
        rate = self.search.sample_rate
        if rate is None:
            return np.arange(self.n)
        if self._sample is None:
            self._sample = np.flatnonzero(secret_sample(self.n, rate, self.randomness))
        return self._sample.copy()

    @alone
    def drop(self, failed: Sequence[int]) -> None:
        """Leave out locations, by their place in `ask`, whose evaluation failed for everyone for a public reason.

        Never use it where a record can decide whether an evaluation fails: give NaN as the loss of that record.

        Raises:
            StudyError: nothing was asked, or the study has ended.
        """
        self._check_open()
        if self._plan is None:
            raise StudyError("Ask first: there is nothing to leave out.")
        kept = np.delete(self._plan.new, list(failed), axis=0)
        old, clip, kernel = self._plan.old, self._plan.clip, self._learned_kernel()
        self._plan = self.search.plan(self.n, len(self._steps), self._theta, old, clip, kernel=kernel, new=kept)

    @cleared
    @alone
    def tell(self, losses: Floats | Iterable[Floats]) -> Step:
        """Release one noisy gradient from the losses at the locations asked for, and move.

        Args:
            losses: PRIVATE. float64, (n, b): row i is record i in every step, column j the j-th location; also as rows
                in lists, or as an iterator or list of chunks, each an array of such rows. A loss that is not finite
                makes that record count as 0. With `sample_rate` the rows of the records in `sample()`, in that order.

        Raises:
            StudyError: nothing was asked for, or an aggregate study.
            PublicError: losses of another shape, number or precision. Refused before anything is charged, except for
                what an iterator gives after its first chunk.
            LedgerError: another copy of the study went on, and nothing is left to do here; or the ledger could not be
                written. The step is lost.
        """
        if self.search.aggregate:
            raise StudyError("This study sees means only: use tell_mean, or leave out largest_loss.")
        plan = self._asked()
        losses = as_table(losses)
        if self.search.sample_rate is not None:
            losses = self._scattered(losses, plan)
        chunks = in_chunks(losses, len(plan.new), self.n)
        kept = nearest(np.vstack([plan.old, plan.new]), plan, self.search.most_cached, self.search.gradient_kernel)
        with self._spending(plan):
            if self._diagnostics is not None:
                chunks = list(chunks)
                new, old, taking_part = np.vstack(chunks), self._kept.losses, self.sample()
                self._diagnostics.add(len(self._steps), plan, np.hstack([old, new])[taking_part], self.n)
            total, columns = self._kept.summed(plan, chunks, kept, centre=self.search.offset != "none")
            if total.seen != self.n:
                raise PublicError(f"Losses are of {self.n} records, as n says; these are not. The step is lost.")
            gradient, fraction = self.search.released(plan, self.n, total.sum, total.unclipped, self.randomness)
            self._kept.keep(np.vstack([plan.old, plan.new])[kept], columns)
            self._release(plan, gradient, fraction)
        self._kept.write(len(self._steps))
        self._book()
        return self._steps[-1]

    def _scattered(self, losses: Any, plan: Plan) -> Floats:
        """PRIVATE. The losses of a sample at their places among those of all records."""
        if not isinstance(losses, np.ndarray):
            raise PublicError("With sample_rate the losses of a step are one array. The step was not charged.")
        check_losses(losses, len(plan.new))
        sample = self.sample()
        if len(losses) != len(sample):
            raise PublicError(
                "Losses are of the records in sample(), in that order; these are not. The step was not charged."
            )
        return scattered(losses, sample, self.n)

    @cleared
    @alone
    def tell_mean(self, means: Floats) -> Step:
        """The same from the means over records of losses clamped to [0, largest_loss], shape (b,): see `clamped_mean`.

        Raises:
            StudyError: not an aggregate study. Noise for 2B/n covers clipped records, not a clipped mean, which one
                record can move by 2B.
            PublicError: another shape, not finite, or outside that range. The step was not charged.
        """
        if self.search.largest_loss is None:
            raise StudyError(
                "The mean of the losses is not enough here: one record may move its clipped gradient by 2B, not 2B/n. "
                "Tell the losses of each record, or declare their range with largest_loss, which needs more noise."
            )
        plan = self._asked()
        values = check_means(means, len(plan.new), self.search.largest_loss)
        with self._spending(plan):
            gradient = self.search.released_aggregate(plan, values, self.randomness)
            self._release(plan, gradient, None)
        self._book()
        return self._steps[-1]

    @alone
    def move_to(self, parameters: Mapping[str, Any]) -> None:
        """Go on from other parameters, such as `surrogate().fitted().minimum(...)`: a restart that shares the budget.

        They must be public: chosen from releases, not from losses. The path has them in place of the last iterate.
        """
        self._check_open()
        theta = self.search.space.theta(parameters)
        if self._file is not None:
            self._file.append({"event": "moved", "step": len(self._steps), "theta": theta.tolist()})
        self._moved(theta)

    @alone
    def stop(self) -> None:
        """End the study before its steps are spent, for a public reason: a rule of `stopping`, a deadline.

        What may be stated stays the whole budget: when to stop was read off releases.

        Raises:
            BudgetSpent: it has ended.
            LedgerError: another copy of the study went on, or the ledger could not be written.
        """
        self._check_open()
        self._stopped = True
        if self._file is not None:
            self._file.append({"event": "stopped", "step": len(self._steps)})
        self._book()

    def close(self) -> None:
        """Let other processes have the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Study: step {len(self._steps)} of {self.search.steps}, mu = {self.search.mu:g}>"

    def __reduce__(self) -> Any:
        raise TypeError("A study holds private losses and an open file. Give it a path instead, and open that again.")

    # --- inside

    def _failed(self, reason: str) -> str:
        """Say, in public words, how a run stands in which an evaluation failed; and in the ledger, if it ends there.

        Without a file nothing can take it up again: its entry then ends as failed, for this reason, which is public.
        """
        if self._file is not None:
            paid = "" if self._paid is None else f", and entry {self._paid.entry} of the ledger is for all of it"
            return (
                f"{self._file.path} has {len(self._steps)} of {self.search.steps} steps{paid}: mend the loss, and the "
                "same call goes on from there."
            )
        self._stopped = True
        if self._paid is None:
            return ""
        self._paid.fail(reason)
        return (
            f"The whole run was reserved as entry {self._paid.entry} of the ledger, which stays spent: without path "
            "nothing can take it up again."
        )

    def _check_open(self) -> None:
        if self._paid is not None:
            self._paid.go_on()
        if self._stopped:
            raise BudgetSpent("The study was stopped; what was left of its budget is not used.")
        if self.done:
            raise BudgetSpent(f"All {self.search.steps} steps are spent; their number was fixed in advance.")

    def _asked(self) -> Plan:
        self._check_open()
        if self._plan is None:
            raise StudyError("Nothing was asked for: a step's losses are told once, after ask().")
        return self._plan

    def _learned_kernel(self) -> GradientKernel | None:
        if not self.search.learn_kernel or sum(s.gradient is not None for s in self._steps) < LEARN_FROM:
            return None
        return self.surrogate().fitted().kernel

    @contextmanager
    def _spending(self, plan: Plan) -> Iterator[None]:
        """The step is charged, on disk, before what happens within; if that fails, the step is lost."""
        number, written = len(self._steps), self._file is None
        try:
            noise = noise_id(self.randomness)
            self._filter.charge(plan.mu)
            if self._file is not None:
                self._file.append(journal.charged(plan, number, noise))
            written = True
            if self._paid is not None:
                self._paid.step(noise)
            yield
        except BaseException:
            self._kept.forget()
            if len(self._steps) == number:
                self._advance(Step(gradient=None, fraction=None, **facts_of(plan, number)))
            if written:  # otherwise the step is still to come for whoever opens the file
                self._book()
            raise

    def _release(self, plan: Plan, gradient: Floats, fraction: float | None) -> None:
        """On disk, before anybody sees it; then move."""
        number = len(self._steps)
        if self._file is not None:
            self._file.append(journal.released(number, gradient, fraction))
        self._advance(Step(gradient=gradient, fraction=fraction, **facts_of(plan, number)))

    def _book(self) -> None:
        """Tell the ledger that the run is finished, once."""
        if self.done and self._paid is not None:
            self._paid.finish()

    def _advance(self, step: Step) -> None:
        """The next theta: a function of what was released."""
        self._steps.append(step)
        self._plan = self._sample = None
        try:
            if step.gradient is not None:
                self._move(step, step.gradient)
        finally:
            self._thetas.append(self._theta)

    def _move(self, step: Step, gradient: Floats) -> None:
        if self.search.smooth and len(self._steps) >= LEARN_FROM:
            gradient = self.surrogate().fitted().gradient(step.theta)
        update, bounds = self.search.update, self.search.space.bounds
        self._theta, self._state = update.moved(self._theta, gradient, self._state, bounds, self.surrogate)
        if self.search.adaptive_clip is not None and step.fraction is not None:
            self._clip = self.search.adaptive_clip.moved(self._clip, step.fraction)

    def _moved(self, theta: Floats) -> None:
        self._theta, self._plan, self._sample, self._state = theta, None, None, ()
        self._thetas[-1] = theta

    # --- on disk

    def _open(self, ledger: Ledger | None) -> Paid | None:
        """Read what is there, and find or reserve the entry that pays for it."""
        name, parameters = str(uuid.uuid4()), dict(self.search.parameters())
        if self._file is not None:
            header = {
                "event": "study",
                "schema": journal.SCHEMA,
                "parameters": parameters,
                "delta": self.search.delta,
                "unit": self.search.unit,
                "n": self.n,
                "ledger": None if ledger is None else ledger.id,
                "bookable": self.randomness.bookable is True,
            }
            if self._diagnostics is not None:
                header["unsafe_diagnostics"] = True
            name = self._file.opened(header)
            self._kept.claim(name, self._file.path)
            self._replay(self._file.lines[1:])
        if ledger is None:
            return None
        if ledger.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                "A local search is accounted under 'replace' neighbours, and the ledger is for "
                f'{ledger.neighbours.value!r}: give it one made with neighbours="replace".'
            )
        about = {"mechanism": self.search.name, "parameters": parameters, "n": self.n, "unit": self.search.unit}
        loss = self.search.privacy_loss(self.n)
        paid = Paid(ledger, name, loss, about, randomness=self.randomness, file=self._file)
        paid.check(self.done)
        if self.done:
            paid.finish()
        return paid

    def _replay(self, lines: list[dict[str, Any]]) -> None:
        for what in journal.told(lines):
            if what is None:
                self._stopped = True
            elif isinstance(what, Step):
                self._filter.charge(what.mu)
                self._advance(what)
            else:
                self._moved(what)
        if lines:
            self._kept.take_up(len(self._steps))
