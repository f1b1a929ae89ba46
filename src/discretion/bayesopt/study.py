"""A private search as people drive one: ask where to evaluate, tell the losses, take it up again after a crash.

The order of a step is the guarantee. The step is charged, on disk; then noise is drawn and added; the noisy gradient is
on disk before anybody sees it. A step that was charged and not finished is lost: it counts as spent, theta stays.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.accounting import BudgetSpent, GaussianFilter
from discretion.bayesopt.clipping import ClippedSum
from discretion.bayesopt.descent import LEARN_FROM
from discretion.bayesopt.descent import State as UpdateState
from discretion.bayesopt.diagnostics import Diagnostics
from discretion.bayesopt.journal import StudyError, StudyJournal
from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.mechanism import LocalSearch, Plan
from discretion.bayesopt.release import NO_BEST, LocalSearchRelease
from discretion.bayesopt.released import ReleasedGradients
from discretion.bayesopt.sampling import scattered, secret_sample
from discretion.bayesopt.steps import (
    Step,
    check_losses,
    facts_of,
    in_parts,
    nearest,
    reach,
    read_losses,
    write_losses,
)
from discretion.privacy import (
    Ledger,
    Neighbours,
    NotBookable,
    PublicError,
    Randomness,
    State,
    SystemRandomness,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import quiet

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

    Args:
        search: the public parameters.
        n: how many records there are; public.
        path: a file for the public state; if it exists, the study is taken up again from there. It may be shared.
        private: a file for the losses that are used again, readable by its owner alone. Without it a study that is
            taken up again does so without them.
        ledger: the budget of the records. The loss of the whole run is reserved there at once, and stays spent whether
            or not the run is finished.
        randomness: by default the operating system's.
        unsafe_diagnostics: for SYNTHETIC data: the result carries true losses, clip fractions and exact gradients, and
            no guarantee, for good. Never with a ledger.

    Raises:
        StudyError: the file belongs to another search, n or ledger.
        NotBookable: a ledger, and noise that can be replayed or unsafe diagnostics. Refused before anything is spent.
        BudgetExceeded: the ledger does not allow it.
        ValueError: n is no number of records.
    """

    def __init__(
        self,
        search: LocalSearch,
        *,
        n: int,
        path: str | os.PathLike[str] | None = None,
        private: str | os.PathLike[str] | None = None,
        ledger: Ledger | None = None,
        randomness: Randomness | None = None,
        unsafe_diagnostics: bool = False,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError("n, the public number of records, must be a whole number of at least 1.")
        self.search, self.n = search, int(n)
        self.randomness = SystemRandomness() if randomness is None else randomness
        if ledger is not None and self.randomness.bookable is not True:
            raise NotBookable("This source of noise can be replayed, so the study cannot be booked. Leave it out.")
        self._diagnostics = Diagnostics.begun(search, ledger) if unsafe_diagnostics else None
        self._ledger, self._entry = ledger, None
        self._filter = GaussianFilter(search.mu)
        self._theta = search.space.clip(search._start())
        self._thetas, self._steps = [self._theta], []
        self._state: UpdateState = ()
        self._clip = search.clip
        self._plan: Plan | None = None
        self._sample: NDArray[np.intp] | None = None
        self._stopped = False
        self._forget()
        self._private = None if private is None else Path(private)
        self._journal = None if path is None else StudyJournal(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    # --- public facts

    @property
    def done(self) -> bool:
        """Whether all steps are spent, or the study was stopped."""
        return self._stopped or len(self._steps) >= self.search.steps

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

    def result(self) -> LocalSearchRelease:
        """The release: parameters, the public path and the certificate; also of a run that is not finished."""
        space, thetas = self.search.space, self._thetas
        d = space.size
        release = LocalSearchRelease(
            certificate=self.search.certificate(self.n, self.randomness),
            parameters=space.parameters(self.search.update.output(thetas[1:] or thetas)),
            last=space.parameters(thetas[-1]),
            thetas=np.array(thetas),
            gradients=np.array([np.full(d, np.nan) if s.gradient is None else s.gradient for s in self._steps]).reshape(
                -1, d
            ),
            noise=np.array([step.noise for step in self._steps]),
            evaluations=np.array([step.evaluations for step in self._steps], dtype=np.int64),
            traces=np.array([step.trace / step.prior for step in self._steps]),
        )
        if self._diagnostics is not None:
            return self._diagnostics.marked(release)
        if self._ledger is None:
            return release
        return release.booked(f"{self._ledger.id}#{self._entry}")

    # --- ask and tell

    def ask(self) -> list[dict[str, Any]]:
        """The parameters to evaluate next: the same until losses are told. Public; possibly none, if old ones suffice.

        Raises:
            BudgetSpent: all steps were used.
        """
        self._check_open()
        if self._plan is None:
            self._plan = self.search.plan(
                self.n, len(self._steps), self._theta, self._old, self._clip, kernel=self._learned_kernel()
            )
            if not self._steps:
                self.search.space.warn_of_coarse_integers(reach(self._plan))
        return [self.search.space.parameters(each) for each in self._plan.new]

    @property
    def asked(self) -> Floats:
        """The scaled locations that `ask` gave, (b, d)."""
        self.ask()
        assert self._plan is not None
        return self._plan.new.copy()

    @cleared
    def sample(self) -> NDArray[np.intp]:
        """PRIVATE. Which records take part in this step, in order; all of them without `sample_rate`.

        Drawn once a step. Who takes part, and how many, must stay where the records are: the guarantee rests on it.
        """
        self._asked()
        rate = self.search.sample_rate
        if rate is None:
            return np.arange(self.n)
        if self._sample is None:
            self._sample = secret_sample(self.n, rate, self.randomness)
        return self._sample.copy()

    def drop(self, failed: Sequence[int]) -> None:
        """Leave out locations, by their place in `ask`, whose evaluation failed for everyone for a public reason.

        Never use it where a record can decide whether an evaluation fails: give NaN as the loss of that record.
        """
        if self._plan is None:
            raise StudyError("Ask first: there is nothing to leave out.")
        kept = np.delete(self._plan.new, list(failed), axis=0)
        old, clip, kernel = self._plan.old, self._plan.clip, self._learned_kernel()
        self._plan = self.search.plan(self.n, len(self._steps), self._theta, old, clip, kernel=kernel, new=kept)

    @cleared
    def tell(self, losses: Floats | Iterable[Floats]) -> Step:
        """Release one noisy gradient from the losses at the locations asked for, and move.

        Args:
            losses: PRIVATE. float64, (n, b): row i is record i in every step, column j the j-th location; or an
                iterable of chunks of such rows. A loss that is not finite makes that record count as 0. With
                `sample_rate` the rows of the records in `sample()`, in that order.

        Raises:
            StudyError: nothing was asked for, or an aggregate study.
            PublicError: losses of another shape, number or precision. Refused before anything is charged, except for
                chunks, whose number is known only at their end.
        """
        if self.search.aggregate:
            raise StudyError("This study sees means only: use tell_mean, or leave out largest_loss.")
        plan = self._asked()
        chunks = [losses] if isinstance(losses, np.ndarray) else losses
        if self.search.sample_rate is not None:
            chunks = [losses := self._scattered(losses, plan)]
        if isinstance(losses, np.ndarray):
            check_losses(losses, len(plan.new))
            if len(losses) != self.n:
                raise PublicError(f"Losses are of {self.n} records, as n says; these are not. Nothing was spent.")
        kept = nearest(np.vstack([plan.old, plan.new]), plan, self.search.most_cached, self.search.gradient_kernel)
        with self._spending(plan):
            if self._diagnostics is not None:
                chunks = list(chunks)
                new, old, taking_part = np.vstack(chunks), self._losses, self.sample()
                self._diagnostics.add(len(self._steps), plan, np.hstack([old, new])[taking_part], self.n)
            total, columns = self._summed(plan, chunks, kept)
            if total.seen != self.n:
                raise PublicError(f"Losses are of {self.n} records, as n says; these are not. The step is lost.")
            gradient, fraction = self.search.released(plan, self.n, total.sum, total.unclipped, self.randomness)
            self._write_release(gradient, fraction)
        self._old, self._losses = np.vstack([plan.old, plan.new])[kept], columns
        self._advance(Step(gradient=gradient, fraction=fraction, **facts_of(plan, len(self._steps))))
        if self._private is not None:
            write_losses(self._private, len(self._steps), self._old, self._losses)
        self._book()
        return self._steps[-1]

    @quiet()
    def _summed(self, plan: Plan, chunks: Iterable[Any], kept: NDArray[np.intp]) -> tuple[ClippedSum, Floats]:
        """PRIVATE. The sum over all records, and the columns of their losses that are kept."""
        total = ClippedSum(plan.map, plan.clip, self.n, centre=self.search.offset != "none")
        # In place where possible: rows are read before they are written, and a step that fails forgets them all.
        columns = self._losses if self._losses.shape[1] == len(kept) else np.empty((self.n, len(kept)))
        for chunk in in_parts(chunks, len(plan.new)):
            rows = slice(total.seen, total.seen + len(chunk))
            if rows.stop > self.n:
                total.seen = rows.stop
                break
            both = np.hstack([self._losses[rows], chunk]) if len(plan.old) else chunk
            total.add(both)
            columns[rows] = both[:, kept]
        return total, columns

    def _scattered(self, losses: Any, plan: Plan) -> Floats:
        """PRIVATE. The losses of a sample at their places among those of all records."""
        if not isinstance(losses, np.ndarray):
            raise PublicError("With sample_rate the losses of a step are one array. Nothing was spent.")
        check_losses(losses, len(plan.new))
        sample = self.sample()
        if len(losses) != len(sample):
            raise PublicError("Losses are of the records in sample(), in that order; these are not. Nothing was spent.")
        return scattered(losses, sample, self.n)

    @cleared
    def tell_mean(self, means: Floats) -> Step:
        """The same from the means over records of losses clamped to [0, largest_loss], shape (b,): see `clamped_mean`.

        Raises:
            StudyError: not an aggregate study. Noise for 2B/n covers clipped records, not a clipped mean, which one
                record can move by 2B.
            PublicError: another shape.
        """
        if not self.search.aggregate:
            raise StudyError(
                "The mean of the losses is not enough here: one record may move its clipped gradient by 2B, not 2B/n. "
                "Tell the losses of each record, or declare their range with largest_loss, which needs more noise."
            )
        plan = self._asked()
        values = np.asarray(means, dtype=np.float64)
        if values.shape != (len(plan.new),):
            raise PublicError(f"Means must be {len(plan.new)} numbers, one a location. Nothing was spent.")
        with self._spending(plan):
            gradient = self.search.released_aggregate(plan, values, self.randomness)
            self._write_release(gradient, None)
        self._advance(Step(gradient=gradient, fraction=None, **facts_of(plan, len(self._steps))))
        self._book()
        return self._steps[-1]

    def move_to(self, parameters: Mapping[str, Any]) -> None:
        """Go on from other parameters, such as `surrogate().fitted().minimum(...)`: a restart that shares the budget.

        They must be public: chosen from releases, not from losses. The path has them in place of the last iterate.
        """
        self._check_open()
        theta = self.search.space.theta(parameters)
        if self._journal is not None:
            self._journal.append({"event": "moved", "step": len(self._steps), "theta": theta.tolist()})
        self._moved(theta)

    def stop(self) -> None:
        """End the study before its steps are spent, for a public reason: a rule of `stopping`, a deadline.

        What may be stated stays the whole budget: when to stop was read off releases.
        """
        self._check_open()
        if self._journal is not None:
            self._journal.append({"event": "stopped", "step": len(self._steps)})
        self._stopped = True
        self._book()

    def close(self) -> None:
        """Let other processes have the file."""
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Study: step {len(self._steps)} of {self.search.steps}, mu = {self.search.mu:g}>"

    def __reduce__(self) -> Any:
        raise TypeError("A study holds private losses and an open file. Give it a path instead, and open that again.")

    # --- inside

    def _check_open(self) -> None:
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
        try:
            self._filter.charge(plan.mu)
            if self._journal is not None:
                arrays = {"theta": plan.theta, "spread": plan.spread, "locations": plan.new}
                lists = {name: array.tolist() for name, array in arrays.items()}
                self._journal.append({"event": "charged"} | facts_of(plan, len(self._steps)) | lists)
            yield
        except BaseException:
            self._advance(Step(gradient=None, fraction=None, **facts_of(plan, len(self._steps))))
            self._forget()
            self._book()
            raise

    def _write_release(self, gradient: Floats, fraction: float | None) -> None:
        """On disk, before anybody sees it."""
        if self._journal is not None:
            event = {"event": "released", "step": len(self._steps), "gradient": gradient.tolist(), "fraction": fraction}
            self._journal.append(event)

    def _book(self) -> None:
        """Tell the ledger that the run is finished, once."""
        if self.done and self._ledger is not None and self._entry is not None:
            state = next(entry.state for entry in self._ledger.entries() if entry.id == self._entry)
            if state is State.RESERVED:
                self._ledger.book(self._entry)

    def _advance(self, step: Step) -> None:
        """The next theta: a function of what was released."""
        self._steps.append(step)
        self._plan = self._sample = None
        if step.gradient is not None:
            gradient = step.gradient
            if self.search.smooth and len(self._steps) >= LEARN_FROM:
                gradient = self.surrogate().fitted().gradient(step.theta)
            update, bounds = self.search.update, self.search.space.bounds
            self._theta, self._state = update.moved(self._theta, gradient, self._state, bounds, self.surrogate)
            if self.search.adaptive_clip is not None and step.fraction is not None:
                self._clip = self.search.adaptive_clip.moved(self._clip, step.fraction)
        self._thetas.append(self._theta)

    def _moved(self, theta: Floats) -> None:
        self._theta, self._plan, self._sample, self._state = theta, None, None, ()
        self._thetas[-1] = theta

    def _forget(self) -> None:
        """No losses to use again."""
        self._old, self._losses = np.empty((0, self.search.space.size)), np.empty((self.n, 0))

    # --- on disk

    def _open(self) -> None:
        header = {
            "parameters": dict(self.search.parameters()),
            "n": self.n,
            "ledger": None if self._ledger is None else self._ledger.id,
            "bookable": self.randomness.bookable is True,
        }
        if self._diagnostics is not None:
            header["unsafe_diagnostics"] = True
        name = str(uuid.uuid4()) if self._journal is None else self._journal.opened(header)
        if self._ledger is not None:
            self._entry = self._reserved(self._ledger, name)
        self._replay()
        self._book()

    def _reserved(self, ledger: Ledger, name: str) -> int:
        """The ledger's entry of this study: the one it has, or a new one."""
        for entry in ledger.entries():
            if entry.description.get("study") == name:
                return entry.id
        if ledger.neighbours is not Neighbours.REPLACE:
            raise StudyError("A local search is accounted under replace-one neighbours; the ledger is not.")
        about = {"mechanism": self.search.name, "parameters": self.search.parameters(), "n": self.n, "study": name}
        return ledger.reserve(self.search.privacy_loss(self.n), about)

    def _replay(self) -> None:
        events = [] if self._journal is None else self._journal.events[1:]
        for place, event in enumerate(events):
            if event["event"] == "moved":
                self._moved(np.array(event["theta"]))
            elif event["event"] == "stopped":
                self._stopped = True
            elif event["event"] == "charged":
                facts = {k: v for k, v in event.items() if k not in ("event", "locations")}
                facts |= {name: np.array(facts[name]) for name in ("theta", "spread")}
                self._filter.charge(facts["mu"])
                following = events[place + 1] if place + 1 < len(events) else {}
                done = following.get("event") == "released"
                gradient = np.array(following["gradient"]) if done else None
                self._advance(Step(gradient=gradient, fraction=following.get("fraction") if done else None, **facts))
        if events and self._private is not None:
            kept = read_losses(self._private, len(self._steps), self.n)
            self._old, self._losses = (self._old, self._losses) if kept is None else kept
