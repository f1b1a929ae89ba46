"""A search through the ledger, paid for once, and taken up again where it was interrupted."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from discretion.privacy import LedgerError, Neighbours, PrivacyLoss, Randomness, State
from discretion.privacy.certificate import canonical, public_json
from discretion.privacy.fits import UNREMEMBERED
from discretion.privacy.frames import cleared
from discretion.privacy.noise import source_of
from discretion.privacy.paid import describes, ledger_at
from discretion.privacy.release import library_version
from discretion.selection.beforehand import check_number, check_price, check_proposals
from discretion.selection.bounds import Rule
from discretion.selection.disjoint import DisjointTuning
from discretion.selection.journal import Journal, JournalError, plan_hash
from discretion.selection.outcome import Outcome, SelectionRelease, under
from discretion.selection.pricing import Law
from discretion.selection.proposals import Proposals
from discretion.selection.scores import Score
from discretion.selection.search import RunLimit, SelectionMechanism
from discretion.selection.within import search_within

__all__ = ["charged", "select"]


FAILED = (
    "Every run failed, and the search is paid for all the same. Before another one, rehearse it on made-up records: "
    "there every error is shown, and nothing is charged (rehearse, PrivateSearchCV.rehearse)."
)


@cleared
def select(
    candidates: Sequence[Any] | Callable[[float], Sequence[Any]],
    score: Score,
    law: Law,
    records: Any,
    n: int,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    weights: Sequence[float] | None = None,
    default: Any = None,
    rule: Rule = "best",
    limit: RunLimit | None = None,
    pad: bool = False,
    unit: str | None = None,
    jobs: int | None = None,
    proposals: Proposals | None = None,
    share: float | None = None,
    ledger: Any = None,
    journal: str | os.PathLike[str] | None = None,
    save: Callable[[SelectionRelease], object] = lambda release: None,
    randomness: Randomness | None = None,
) -> SelectionRelease:
    """Tune and release in one: run the candidates on private records, and let the best one leave.

    Args:
        candidates, score, law, weights, default, rule, limit, pad, unit, jobs, proposals: as in `SelectionMechanism`.
        records: private.
        n: the number of records; where it is private, a public bound of it.
        epsilon: of everything, tuning and release: the budget of one run is found so that the search costs this or up
            to a thousandth less. `candidates` is then a function: from epsilon of one run to the candidates, each with
            the noise that meets it at its own delta. By default the candidates are as they are.
        delta: at which the certificate states epsilon; by default the candidates' own.
        share: tune on a random part of the records, each with this chance, and train what is released on all the
            others (`DisjointTuning`); by default all records are tuned on, and the winner is the run that was scored.
        ledger: where the loss of the whole search is reserved before a record is read, and booked after. Without one
            nothing is remembered.
        journal: where an interrupted search is kept, a private file that is gone when the search has ended. Call again
            with the same arguments and records to take it up: the same draws, the same noise, no second price. Once the
            release is made the journal holds it, and nothing is computed again. Candidates whose noise comes from
            elsewhere than from the source a run gives them (declared estimators) can be taken up from then on only.
        save: called with the release before the journal goes, to write it to a file, say; so that a kill at any moment
            loses nothing. It may be called again, with the very same release, when the search is taken up.
        randomness: for tests only; by default the operating system's.

    Returns:
        The winner under the certificate of tuning plus release.

    Raises:
        ValueError: parameters out of range; a price that is infinite; n that is not the number of the records.
        Unreachable: no run so private makes the search cost `epsilon` or less.
        JournalError: the journal can't be used as it is, or not with these records.
        LedgerError: the ledger does not let the search be taken up, or could not be written.
        BudgetExceeded: the ledger's budget can't pay; nothing was read.
        MechanismFailed: the search failed; what was reserved stays spent.
        KeyboardInterrupt: it was interrupted. Nothing leaves, and what was reserved stays spent.

    Warns:
        UserWarning: there is no ledger; every run failed.
    """
    kind, part = (SelectionMechanism, {}) if share is None else (DisjointTuning, {"share": share})

    def search_of(candidates: Sequence[Any]) -> SelectionMechanism:
        return kind(
            tuple(candidates),
            score,
            law,
            _delta_of(candidates) if delta is None else float(delta),
            weights=None if weights is None else tuple(weights),
            default=default,
            rule=rule,
            limit=limit,
            pad=pad,
            unit=unit,
            jobs=jobs,
            proposals=proposals,
            **part,
        )

    if callable(candidates) == (epsilon is None):
        raise ValueError(
            "With epsilon, of the whole search, candidates is a function from epsilon of one run to a list of "
            "mechanisms; without it, that list."
        )
    if callable(candidates):
        make = candidates
        mechanism, _ = search_within(lambda one: search_of(make(one)), float(epsilon or 0.0), n)
    else:
        mechanism = search_of(candidates)
    return charged(mechanism, records, n, ledger=ledger, journal=journal, randomness=randomness, save=save)


def _delta_of(candidates: Sequence[Any]) -> float:
    """The delta that all candidates have."""
    deltas = {getattr(each, "delta", None) for each in candidates}
    if len(deltas) != 1 or None in deltas:
        raise ValueError("Give the delta at which the certificate is to state epsilon.")
    return float(deltas.pop())  # pyright: ignore[reportArgumentType]


def charged(
    mechanism: SelectionMechanism,
    records: Any,
    n: int,
    *,
    ledger: Any,
    journal: str | os.PathLike[str] | None,
    randomness: Randomness | None,
    save: Callable[[SelectionRelease], object] = lambda release: None,
    pick: Callable[[Any, Randomness], Any] = lambda records, randomness: records,
    warn: Callable[[str], object] = lambda text: warnings.warn(text, stacklevel=5),
) -> SelectionRelease:
    """Run a search through the ledger, if there is one, and from the journal, if there is one.

    What public facts decide is looked at first. What `pick` draws from the records is what the search runs on: the same
    again when it is taken up. `warn` is told, in public words, what a person should know.
    """
    told = n if mechanism.n_is_public else None
    check_price(mechanism.privacy_loss(n).epsilon(mechanism.delta), mechanism.delta)
    if mechanism.proposals is not None:
        check_proposals(mechanism.proposals.propose, len(mechanism.candidates))
    if ledger is None and (randomness is None or randomness.bookable):
        warn(UNREMEMBERED)

    def picked(records: Any, randomness: Randomness) -> Any:
        found = pick(records, randomness)
        check_number(found, told)
        return found

    try:
        release = _charged(mechanism, records, n, ledger, journal, randomness, save, picked)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(ledger is not None, journal)) from None
    if release.outcome is Outcome.FAILED:
        warn(FAILED)
    return release


def _interrupted(booked: bool, journal: str | os.PathLike[str] | None) -> str:
    paid = "What it reserved stays paid for" if booked else "Without a ledger nothing remembers it"
    if journal is None:
        return f"Interrupted; nothing was released. {paid}, and without a journal it can't be taken up again."
    return (
        f"Interrupted; nothing was released. {paid}. The same call takes the search up from {os.fspath(journal)}, "
        "which is private: same draws, no second price."
    )


def _charged(
    mechanism: SelectionMechanism,
    records: Any,
    n: int,
    ledger: Any,
    journal: str | os.PathLike[str] | None,
    randomness: Randomness | None,
    save: Callable[[SelectionRelease], object],
    pick: Callable[[Any, Randomness], Any],
) -> SelectionRelease:
    randomness = source_of(randomness)
    book: Any = ledger_at(ledger)
    if journal is None:
        picked = pick(records, randomness)
        if book is None:
            release: Any = mechanism.run(picked, randomness)
        else:
            release = book.run(mechanism, picked, n=n, randomness=randomness)
        save(release)
        return release
    plan = {"parameters": mechanism.parameters(), "n": n if mechanism.n_is_public else None}
    plan |= {"delta": mechanism.delta, "unit": mechanism.unit}
    plan |= {"library": library_version(), "ledger": getattr(book, "id", None)}
    begun_with = {"records": records, "default": mechanism.default, "score": mechanism.score}
    with Journal(journal, plan_hash(plan), randomness, begun_with | {"proposals": mechanism.proposals}) as opened:
        search: Any = _Journalled(mechanism, opened)
        try:
            picked = pick(records, opened.key.stream("picked records"))
            if book is None:
                mechanism.check(picked)
                release = search.run(picked, randomness)
            else:
                # The ledger's own order of things, on a view of it that reserves this search once.
                release = type(book).run(_Once(book, search), search, picked, n=n, randomness=randomness)
        except Exception:
            if opened.fresh and not opened.begun:
                opened.delete()  # refused, and nothing was paid
            raise
        save(release)
        opened.delete()
    return release


class _Journalled:
    """The mechanism whose key is on disk before it is paid, and whose release is before it is booked."""

    def __init__(self, mechanism: SelectionMechanism, journal: Journal) -> None:
        self._mechanism, self.journal = mechanism, journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

    # What makes a mechanism stands in the class: from Python 3.12 on nothing else counts.
    @property
    def name(self) -> str:
        return self._mechanism.name

    @property
    def neighbours(self) -> Neighbours:
        return self._mechanism.neighbours

    @property
    def repeatable(self) -> bool:
        """Whether all noise of every candidate follows from the key, as far as can be seen."""
        return all(map(_keyed, self._mechanism.candidates))

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        return self._mechanism.privacy_loss(n)

    def check(self, records: Any) -> int | None:
        return self._mechanism.check(records)

    def parameters(self) -> dict[str, Any]:
        return self._mechanism.parameters() | {"search": self.journal.key.commitment}

    def run(self, records: Any, randomness: Randomness) -> SelectionRelease:
        if not self.journal.finished:
            if self.journal.begun and not self.repeatable:
                raise JournalError(
                    f"The runs of {self.journal.path} were interrupted, and their noise comes from elsewhere than the "
                    "search's key: to run them again would be a second search. What it reserved stays spent. Move the "
                    "file away and begin anew."
                )
            self.journal.begin()
            found = self._mechanism.replay(self.journal.key, records)
            # as the ledger's entry has them
            told = found.certificate.parameters | {"search": self.journal.key.commitment}
            certificate = replace(found.certificate, parameters=told)
            self.journal.keep(replace(found, certificate=certificate, winner=under(certificate, found.winner)))
        return self.journal.release()


class _Once:
    """A ledger that reserves and books a search once, whichever process asks, by the commitment to its key.

    A search that was interrupted stays reserved, as after a crash, and is taken up under its old entry.
    """

    def __init__(self, ledger: Any, search: _Journalled) -> None:
        self._ledger, self._search, self._journal = ledger, search, search.journal
        self._made_before = self._journal.finished

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def reserve(self, loss: PrivacyLoss, description: Mapping[str, Any], **more: Any) -> int:
        known = self._known()
        if known is None:
            return self._ledger.reserve(loss, description, **more)
        if self._journal.fresh:
            raise LedgerError(
                "The ledger has a search with this very key: the source of randomness was copied, or set back as by a "
                "virtual machine's snapshot. Nothing was spent. Start the process and the machine afresh."
            )
        if known.state is State.FAILED:
            raise LedgerError("The ledger says that this search failed. Move its journal away and begin anew.")
        if not describes(known, description) or self._stored(loss) != self._stored(known.loss, read=True):
            raise LedgerError("The ledger's entry of this search is for another plan or another price.")
        if known.state is State.BOOKED and not self._journal.finished:
            raise LedgerError(
                "This search is booked, so its release was made, and the journal, an older copy, does not hold it. A "
                "booked search is not run again. Move the journal away and begin anew."
            )
        self._journal.begin()
        return known.id

    def book(self, entry: int) -> None:
        known = self._known()
        if known is None or known.state is not State.BOOKED:
            self._ledger.book(entry)
        elif not self._made_before:
            self._journal.forget()
            raise LedgerError("Another process has booked this search, from a copy of its journal; use its release.")

    def fail(self, entry: int, reason: str) -> None:
        """Nothing where the journal can still be taken up."""
        if not (self._search.repeatable or self._journal.finished):
            self._ledger.fail(entry, reason)

    def _known(self) -> Any:
        name = self._journal.key.commitment
        mine = [e for e in self._ledger.entries() if e.description.get("parameters", {}).get("search") == name]
        return mine[0] if mine else None

    def _stored(self, loss: PrivacyLoss, *, read: bool = False) -> str:
        """A loss as the ledger reads it back."""
        stored = loss if read else PrivacyLoss.from_dict(json.loads(_text(self._ledger.budget.describe(loss))))
        return _text(self._ledger.budget.describe(stored))


def _keyed(candidate: Any) -> bool:
    """Whether a candidate takes its noise from the source a run gives it: all mechanisms do.

    Of estimators those do that have a parameter for it; a source elsewhere can't be repeated.
    """
    estimator = getattr(candidate, "estimator", None)
    return estimator is None or "randomness" in estimator.get_params(deep=False)


def _text(public: Any) -> str:
    return canonical(public_json(public))
