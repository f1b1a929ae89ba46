"""A search through the ledger, paid for once, and taken up again where it was interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from discretion.privacy import Ledger, LedgerError, PrivacyLoss, Randomness, State, SystemRandomness
from discretion.privacy.release import library_version
from discretion.selection.bounds import Rule
from discretion.selection.journal import Journal, plan_hash
from discretion.selection.outcome import SelectionRelease
from discretion.selection.repetitions import Repetitions
from discretion.selection.scores import Score
from discretion.selection.search import RunLimit, SelectionMechanism

__all__ = ["charged", "select"]


def select(
    candidates: Sequence[Any],
    score: Score,
    law: Repetitions,
    records: Any,
    n: int,
    *,
    delta: float | None = None,
    weights: Sequence[float] | None = None,
    default: Any = None,
    rule: Rule = "best",
    limit: RunLimit | None = None,
    pad: bool = False,
    unit: str | None = None,
    jobs: int | None = None,
    ledger: Any = None,
    journal: str | os.PathLike[str] | None = None,
    save: Callable[[SelectionRelease], object] = lambda release: None,
    randomness: Randomness | None = None,
) -> SelectionRelease:
    """Tune and release in one: run the candidates on private records, and let the best one leave.

    Args:
        candidates, score, law, weights, default, rule, limit, pad, unit, jobs: as in `SelectionMechanism`.
        records: private.
        n: the number of records; where it is private, a public bound of it.
        delta: at which the certificate states epsilon; by default the candidates' own.
        ledger: where the loss of the whole search is reserved before a record is read, and booked after. Without one
            nothing is remembered.
        journal: where an interrupted search is kept, a private file that is gone when the search has ended. Call again
            with the same arguments to take it up: the same draws, the same noise, no second price.
        save: called with the release before the journal goes, to write it to a file, say; so that a kill at any moment
            loses nothing. It may be called again, with the same winner, when the search is taken up.
        randomness: for tests only; by default the operating system's.

    Returns:
        The winner under the certificate of tuning plus release.

    Raises:
        ValueError: parameters out of range.
        JournalError: the journal can't be used as it is.
        BudgetExceeded: the ledger's budget can't pay; nothing was read.
        MechanismFailed: the search failed; what was reserved stays spent.
        KeyboardInterrupt: it was interrupted. Nothing leaves, and what was reserved stays spent.
    """
    if delta is None:
        deltas = {getattr(each, "delta", None) for each in candidates}
        if len(deltas) != 1 or None in deltas:
            raise ValueError("Give the delta at which the certificate is to state epsilon.")
        delta = deltas.pop()
    mechanism = SelectionMechanism(
        tuple(candidates),
        score,
        law,
        float(delta),  # pyright: ignore[reportArgumentType]
        weights=None if weights is None else tuple(weights),
        default=default,
        rule=rule,
        limit=limit,
        pad=pad,
        unit=unit,
        jobs=jobs,
    )
    return charged(mechanism, records, n, ledger=ledger, journal=journal, randomness=randomness, save=save)


def charged(
    mechanism: SelectionMechanism,
    records: Any,
    n: int,
    *,
    ledger: Any,
    journal: str | os.PathLike[str] | None,
    randomness: Randomness | None,
    save: Callable[[SelectionRelease], object] = lambda release: None,
) -> SelectionRelease:
    """Run a search through the ledger, if there is one, and from the journal, if there is one."""
    randomness = SystemRandomness() if randomness is None else randomness
    book: Any = Ledger.open(ledger) if isinstance(ledger, str | os.PathLike) else ledger
    if journal is None:
        if book is None:
            release: Any = mechanism.run(records, randomness)
        else:
            release = book.run(mechanism, records, n=n, randomness=randomness)
        save(release)
        return release
    plan = {"parameters": mechanism.parameters(), "n": n if mechanism.n_is_public else None}
    plan |= {"library": library_version(), "ledger": getattr(book, "id", None)}
    with Journal(journal, plan_hash(plan)) as opened:
        search: Any = _Journalled(mechanism, opened)
        if book is None:
            mechanism.check(records)
            release = search.run(records, randomness)
        else:
            # The ledger's own order of things, on a view of it that reserves this search once.
            release = type(book).run(_Once(book, opened.name), search, records, n=n, randomness=randomness)
        save(release)
        opened.delete()
    return release


class _Journalled:
    """The mechanism whose key is fixed on disk before the first run."""

    def __init__(self, mechanism: SelectionMechanism, journal: Journal) -> None:
        self._mechanism, self._journal = mechanism, journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        return self._mechanism.privacy_loss(n)

    def check(self, records: Any) -> int | None:
        return self._mechanism.check(records)

    def parameters(self) -> dict[str, Any]:
        return self._mechanism.parameters() | {"search": self._journal.name}

    def run(self, records: Any, randomness: Randomness) -> SelectionRelease:
        return self._mechanism.replay(self._journal.key(randomness), records)


class _Once:
    """A ledger that reserves and books a search once, whichever process asks, by the name in its journal.

    A search that was interrupted stays reserved, as after a crash, and is taken up under its old entry.
    """

    def __init__(self, ledger: Any, name: str) -> None:
        self._ledger, self._name = ledger, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def reserve(self, *what: Any, **more: Any) -> int:
        known = self._known()
        return self._ledger.reserve(*what, **more) if known is None else known.id

    def book(self, *what: Any, **more: Any) -> None:
        known = self._known()
        if known is None or known.state is not State.BOOKED:
            self._ledger.book(*what, **more)

    def fail(self, *what: Any, **more: Any) -> None:
        """Nothing: the journal can still be taken up."""

    def _known(self) -> Any:
        mine = [e for e in self._ledger.entries() if e.description.get("parameters", {}).get("search") == self._name]
        if mine and mine[0].state is State.FAILED:
            raise LedgerError("The ledger says that this search failed. Move its journal away and begin anew.")
        return mine[0] if mine else None
