"""A run that is taken up again is paid for by the entry it has, if that is the entry of this very run and its newest
state.

The entry is found by the name in the run's public file. It must say the same mechanism, parameters and n, at the same
loss, word for word. Each step is an event of the ledger before its noise is drawn, with the checksum of the public file
so far: of two copies of a file one goes on, and a file that was set back does not. A copy that was refused once is
refused from then on, and neither loses steps nor ends the entry of the one that goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, overload

from discretion.privacy.budget import Budget, BudgetExceeded
from discretion.privacy.certificate import canonical, public_json
from discretion.privacy.chain import Overtaken
from discretion.privacy.ledger import Entry, Ledger, State, UnitMismatch
from discretion.privacy.loss import NeighbourMismatch, PrivacyLoss
from discretion.privacy.noise import Randomness, RepeatedNoise, noise_id
from discretion.privacy.once import RunError
from discretion.privacy.transcript import Transcript

__all__ = ["Paid", "describes", "give_back", "ledger_at", "pays_for"]

_NOTHING_RESERVED = (BudgetExceeded, NeighbourMismatch, UnitMismatch, RepeatedNoise, RunError)
"""Refusals after which it is certain that no entry has the run's name; after an interrupt one may."""


@overload
def ledger_at(ledger: None) -> None: ...
@overload
def ledger_at(ledger: Ledger | str | os.PathLike[str]) -> Ledger: ...
@overload
def ledger_at(ledger: Ledger | str | os.PathLike[str] | None) -> Ledger | None: ...
def ledger_at(ledger: Ledger | str | os.PathLike[str] | None) -> Ledger | None:
    """The ledger, or the one at this path or URL: see `Ledger.open`."""
    return Ledger.open(ledger) if isinstance(ledger, str | os.PathLike) else ledger


def give_back(error: BaseException, *files: Transcript | None) -> None:
    """Let go of the files of a run that `error` kept from opening, as they were found if nothing was reserved."""
    for each in files:
        if each is not None:
            each.close(as_found=isinstance(error, _NOTHING_RESERVED))


def pays_for(entry: Entry, budget: Budget, loss: PrivacyLoss, description: Mapping[str, Any]) -> bool:
    """Whether an entry of a ledger with this budget was reserved for just that, at just that price."""
    stored = PrivacyLoss.from_dict(json.loads(_text(budget.describe(loss))))
    same_price = _text(budget.describe(stored)) == _text(budget.describe(entry.loss))
    return same_price and describes(entry, description)


def describes(entry: Entry, description: Mapping[str, Any]) -> bool:
    """Whether an entry is for just that. Entries of earlier versions may name no unit."""
    if "unit" not in entry.description:
        description = {name: value for name, value in description.items() if name != "unit"}
    return _text(entry.description) == _text(description)


class Paid:
    """The ledger's entry of one run.

    Args:
        ledger: the budget of the records.
        run: the name of the run.
        loss: what the whole run costs.
        about: what it is, public: mechanism, parameters, n.
        randomness: from which it draws; a new entry bears its noise id.
        file: the public file of the run, if there is one.

    Attributes:
        entry: its number.
        overtaken: whether the ledger refused this copy of the run, for another one.

    Raises:
        RunError: the entry is of another run or price, or the run failed.
        BudgetExceeded, NeighbourMismatch: the ledger does not allow it.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: str,
        loss: PrivacyLoss,
        about: Mapping[str, Any],
        *,
        randomness: Randomness,
        file: Transcript | None,
    ) -> None:
        self._ledger, self._file = ledger, file
        self._step: str | None = None  # the newest, when the run was opened
        self.overtaken = False
        description = dict(about) | {"run": run}
        known = next((each for each in ledger.entries() if each.description.get("run") == run), None)
        if known is None:
            self.entry = ledger.reserve(loss, description, noise=noise_id(randomness))
            self._state = State.RESERVED
            return
        if not pays_for(known, ledger.budget, loss, description):
            raise RunError(
                f"Entry {known.id} of the ledger has this run's name and is for another plan or another price. Begin "
                "anew, with another path."
            )
        if known.state is State.FAILED:
            raise RunError(f"The ledger says that this run failed (entry {known.id}). Begin anew, with another path.")
        self.entry, self._state, self._step = known.id, known.state, known.step

    @property
    def name(self) -> str:
        """The entry as certificates name it."""
        return f"{self._ledger.id}#{self.entry}"

    def check(self, finished: bool) -> None:
        """Refuse a file that is not the newest state of the run. `finished`: no step is left to take.

        Raises:
            RunError: the run was finished, or went further, from another copy of the file.
        """
        assert self._file is not None or self._step is None
        behind = self._step is not None and self._file is not None and self._step not in self._file.digests
        if behind or (self._state is State.BOOKED and not finished):
            where = "a run" if self._file is None else str(self._file.path)
            raise RunError(
                f"{where} is an older copy: by its ledger the run went further than that. To go on from here would "
                "draw again what was drawn. Bring back the latest file; or begin anew, with another path."
            )

    def go_on(self) -> None:
        """Refuse whatever comes after a refusal by the ledger.

        Raises:
            RunError: this copy was overtaken.
        """
        if self.overtaken:
            raise RunError(
                "By its ledger the run went on, or ended, from another copy of its file, so nothing more is drawn, "
                "booked or released here. Go on from that one; or begin anew, with another path."
            )

    def step(self, noise: str) -> None:
        """Tell the ledger of a step, before its noise is drawn and after the file says so; on disk when this returns.

        Of a run without a file nothing is written, as nothing can take it up again.

        Args:
            noise: the step's noise id.

        Raises:
            RepeatedNoise: an entry or a step of the ledger had it.
            Overtaken: another copy of the run went on, or the run has ended.
            LedgerError: the ledger could not be written.
        """
        if self._file is not None:
            # All lines, not the last step that returned: an interrupt may come when the ledger has the step already.
            *before, here = self._file.digests
            with self._refused():
                self._ledger.step(self.entry, here, after=before, noise=noise)

    def finish(self) -> None:
        """Tell the ledger that the run is finished, once; nothing of a copy that was overtaken.

        Raises:
            Overtaken: another copy of the run went on, or the run has ended.
            LedgerError: the ledger could not be written.
        """
        if self._state is State.RESERVED and not self.overtaken:
            with self._refused():
                self._ledger.book(self.entry, after=None if self._file is None else self._file.digests)
            self._state = State.BOOKED

    def fail(self, reason: str) -> None:
        """Tell the ledger that the run ended without a release, for a public reason. Its loss stays spent."""
        if self._state is State.RESERVED:
            self._ledger.fail(self.entry, reason)
            self._state = State.FAILED

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except Overtaken:
            self.overtaken = True
            raise


def _text(public: Any) -> str:
    return canonical(public_json(public))
