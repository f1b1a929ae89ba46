"""The privacy budget of one data set: reserve the loss, durably; let the mechanism run; book the release.

A ledger holds public data only: the budget, and a journal of events. Every reservation counts as spent from the moment
it is written, whatever happens afterwards, so that a crash can waste budget but never make any. Nothing in the journal
is ever changed or deleted; an entry's state is its latest event.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from discretion.privacy import chain
from discretion.privacy.budget import Budget, BudgetExceeded, Composing
from discretion.privacy.certificate import Certificate, canonical, is_later, library_version, public_json, utc_now
from discretion.privacy.chain import (
    LAYOUT,
    STEP,
    Intact,
    LedgerError,
    NewerVersion,
    Opening,
    Overtaken,
    State,
    Tampered,
    check_layout,
    readable,
)
from discretion.privacy.failure import Failure, MechanismFailed, attempt
from discretion.privacy.fingerprint import fingerprint
from discretion.privacy.frames import cleared
from discretion.privacy.journal import Journal, Known, openings, read_loss
from discretion.privacy.loss import Guarantee, Neighbours, PrivacyLoss
from discretion.privacy.mechanism import Checked, Mechanism, PublicError
from discretion.privacy.noise import Randomness, RepeatedNoise, SeededRandomness, noise_id, source_of
from discretion.privacy.release import NotBookable, Release
from discretion.privacy.store import Session, store_at
from discretion.privacy.units import booked_unit, certifies, same_unit

__all__ = [
    "BudgetExceeded",
    "Composing",
    "Entry",
    "Ledger",
    "LedgerError",
    "MechanismFailed",
    "NewerVersion",
    "State",
    "Tampered",
    "UnitMismatch",
    "ledgers",
]


PAST = "past"
"""Marks, in its description, an entry that was recorded afterwards."""
_AFTERWARDS = (
    "What has happened counts all the same: overdraw=True (--overdraw) records it; from then on the ledger says that "
    "its budget is overdrawn, and refuses further releases."
)


class UnitMismatch(ValueError):
    """A release would protect another unit of privacy than earlier entries: together they would be about nobody."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Attributes:
        id: its number, from 1 on in the order of reservation.
        state: what became of it.
        who, created: who reserved it, and when, in UTC; informative.
        description: what it was reserved for, public.
        loss: what it cost.
        reason: why it failed, if it did.
        step: the checksum of the public file of its run at the newest step, if there was one.
        library: the version of this library that wrote it; None of versions that did not say.
    """

    id: int
    state: State
    who: str
    created: str
    description: dict[str, Any] = field(hash=False)
    loss: PrivacyLoss
    reason: str | None = None
    step: str | None = None
    library: str | None = None

    @property
    def past(self) -> bool:
        """Whether it was recorded afterwards, for a release that was made without the ledger."""
        return self.description.get(PAST) is True


@dataclass(frozen=True)
class Ledger:
    """The budget of one data set and the only door between a mechanism and its records.

    Make one with `create`, once per data set; open it with `open`. It is a SQLite file, or one of several ledgers in a
    PostgreSQL database. Any number of processes may use it at once: each reservation is one transaction of the only
    writer, on disk before it returns. A ledger may be shared between threads and carried across a fork.

    What the budget bounds: a mechanism may always depend on earlier releases. Where its parameters, and so
    its loss, were chosen by looking at them, the budget is proved to hold if the losses are all pure and
    their epsilons add up to it (Rogers, Roth, Ullman and Vadhan 2016), or all Gaussian (Smith and Thakurta
    2022; Koskela, Tobaben and Honkela 2022). For Renyi curves it is proved for one order fixed beforehand
    (Feldman and Zrnic 2021), which is the composition "renyi-filter"; under the others a ledger takes the best order
    of the sum: fix such losses before the first release. What is then guaranteed is the budget, not the smaller
    `spent()`.

    Events are chained by digests (`verify`), each writer checks the last link, and a process notices if what it saw is
    gone. What a ledger cannot see: an older copy put in its place, or a whole new chain, where nobody kept a head or a
    certificate; another ledger for the same records.

    Attributes:
        journal: its events, and where they are kept.
        budget: (epsilon, delta), the neighbour relation and the rule of composition.
        other_unit: whether releases are booked that protect another unit of privacy than earlier entries. Their
            epsilons then add up for nobody.
    """

    journal: Journal
    budget: Budget
    other_unit: bool = False

    @property
    def id(self) -> str:
        """Drawn at random when the ledger was made: what certificates and signatures name it by."""
        return self.journal.opening.id

    @property
    def dataset(self) -> str:
        """What the steward called the data set: public."""
        return self.journal.opening.dataset

    @property
    def epsilon(self) -> float:
        """Of the whole budget, at `delta`."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """At which the budget is stated, in [0, 1)."""
        return self.budget.delta

    @property
    def neighbours(self) -> Neighbours:
        """The relation that every booked loss must be for."""
        return self.budget.neighbours

    @property
    def place(self) -> str:
        """The file or the URL, without a password."""
        return self.journal.store.place

    @property
    def path(self) -> Path | None:
        """The file; None where the ledger is in a database."""
        return self.journal.store.path

    # --- Making and opening

    @classmethod
    def create(
        cls,
        place: str | os.PathLike[str],
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        neighbours: Neighbours | str = Neighbours.REPLACE,
        composition: Composing | str = Composing.RENYI,
        order: float | None = None,
        fingerprint: str | None = None,
    ) -> Self:
        """A new ledger. Its budget is for ever: it is never raised.

        Args:
            place: a file that does not exist, or `postgresql://user@host/database`, with `?ledger=NAME` to name it
                among several (by default as its data set). Passwords belong in `~/.pgpass` or PGPASSWORD.
            dataset: whose budget it is, in words, such as "London sales 2018".
            epsilon, delta: the budget: all releases together are to be (epsilon, delta)-DP.
            neighbours: the relation under which losses are counted.
            composition: the rule, see `Composing`.
            order: the Renyi order of the rule "renyi-filter".
            fingerprint: of the records, see `fingerprint`; a run can then be made to check that it has those.

        Raises:
            LedgerError: there is one already, or it cannot be written.
            ValueError: epsilon infinite, NaN or negative; delta outside [0, 1); no name; no such rule.
        """
        if not isinstance(dataset, str) or not dataset.strip():
            raise ValueError("Name the data set whose budget this is.")
        budget = Budget(epsilon, delta, Neighbours(neighbours), Composing(composition), order)
        store = store_at(place)
        opening = Opening(
            id=str(uuid.uuid4()),
            name=_text(store.name or dataset),
            layout=LAYOUT,
            dataset=_text(dataset),
            epsilon=repr(budget.epsilon),
            delta=repr(budget.delta),
            neighbours=budget.neighbours.value,
            composition=budget.composition.value,
            renyi_order=None if budget.order is None else repr(budget.order),
            fingerprint=fingerprint,
            created=utc_now(),
            library=library_version(),
        )
        return cls._of(Journal.create(store, opening))

    @classmethod
    def open(cls, place: str | os.PathLike[str], *, other_unit: bool = False) -> Self:
        """The ledger at a path or URL; without `?ledger=NAME`, the only one of the database.

        Args:
            place: as for `create`.
            other_unit: book releases as well that protect another unit of privacy than earlier entries.

        Raises:
            LedgerError: there is none, or none that this version reads; the message says what to do.
        """
        store = store_at(place)
        if store.path is not None and not store.path.exists():
            raise LedgerError(
                f"There is no ledger at {store.place}. Make one, once per data set: "
                f'discretion ledger init {store.path.name} --dataset "..." --epsilon ... --delta ... (Ledger.create).'
            )
        found = openings(store)
        names = [opening.name for opening, _ in found]
        if store.name is not None:
            found = [each for each in found if each[0].name == store.name]
        if not found and store.path is not None:
            raise LedgerError(f"{store.place} is a ledger without a budget. Somebody damaged it: go back to a copy.")
        if not found and store.name is not None:
            raise LedgerError(
                f"{store.place}: no ledger has that name. The database has: {', '.join(names) or 'none'}."
            )
        if len(found) != 1:
            known = ", ".join(repr(name) for name in names) or "none"
            raise LedgerError(f"Say which ledger of {store.place} with ?ledger=NAME. The database has: {known}.")
        ((opening, digest),) = found
        check_layout(store.place, opening.layout)
        if opening.digest != digest:
            raise Tampered(
                f"{store.place}: the budget of this ledger was edited. Bring back the latest copy that verifies."
            )
        return cls._of(Journal.of(store, opening), other_unit)

    @classmethod
    def _of(cls, journal: Journal, other_unit: bool = False) -> Self:
        laid = journal.opening
        order = None if laid.renyi_order is None else float(laid.renyi_order)
        for what, word, known in (
            ("rule of composition", laid.composition, Composing),
            ("neighbour relation", laid.neighbours, Neighbours),
        ):
            if word not in set(known):
                # The digest of the row has been checked: nobody edited it.
                raise NewerVersion(
                    f"{journal.store.place} was written by a newer version of discretion: its {what} is {word!r}, and "
                    f"this version knows {', '.join(known)}. Upgrade discretion."
                )
        rules = Neighbours(laid.neighbours), Composing(laid.composition), order
        return cls(journal, Budget(float(laid.epsilon), float(laid.delta), *rules), other_unit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close: every call is a transaction of its own."""

    # --- Spending

    @cleared
    def run(
        self,
        mechanism: Mechanism,
        records: Any,
        *,
        n: int,
        randomness: Randomness | None = None,
        key: bytes | None = None,
    ) -> Release:
        """Reserve the loss of `mechanism` on `n` records, run it, book it, and hand over the release.

        The order is the guarantee. Whatever can be refused from public facts, or because the records lie
        outside the mechanism's domain, is refused first and for free. Then the loss is reserved on disk, and
        only then does the mechanism see the records. From there on the loss stays spent whatever happens, and
        a release whose certificate promises more than was reserved is withheld.

        Args:
            mechanism: public parameters only.
            records: what it runs on.
            n: the number of records, from which the loss is computed. Where it is private (add/remove neighbours, or
                a unit that may own several records) it is not written down.
            randomness: a bookable source; by default the operating system's.
            key: the steward's key; the records must then have the fingerprint that the ledger was created with. Whether
                they do is a fact about them, and comes as an error that only the steward should see.

        Returns:
            The release, its certificate naming the entry.

        Raises:
            NotBookable: the noise could be replayed.
            BudgetExceeded, NeighbourMismatch, UnitMismatch: the loss does not fit into the budget, not under its
                relation, or not beside those of earlier entries.
            PublicError: the mechanism refused the records in public words.
            MechanismFailed: the mechanism failed in any other way; nothing of its message is kept.
            LedgerError: the ledger could not be written.
            ValueError: `mechanism` is none, or n is no positive whole number.
            TypeError: `randomness` is no source of noise.
        """
        randomness = source_of(randomness)
        if randomness.bookable is not True or isinstance(randomness, SeededRandomness):
            raise NotBookable(
                f"{type(randomness).__name__} can be replayed, so a release made with it cannot be booked. "
                "Leave out `randomness` to use the operating system's; without a ledger it can be tried out."
            )
        if not isinstance(mechanism, Mechanism):
            raise ValueError(f"{type(mechanism).__name__} is not a mechanism: see discretion.privacy.Mechanism.")
        n = _count(n)
        loss = mechanism.privacy_loss(n)
        public = getattr(mechanism, "n_is_public", self.neighbours is not Neighbours.ADD_REMOVE)
        description = {
            "mechanism": mechanism.name,
            "parameters": mechanism.parameters(),
            "n": n if public else None,
        }
        if (unit := booked_unit(mechanism)) is not None:
            # Losses of different units don't add up: whoever reads the ledger must be able to tell.
            description["unit"] = unit
        if key is not None:
            self.check_fingerprint(records, key)
        if isinstance(mechanism, Checked):
            found = attempt(lambda: mechanism.check(records))
            if isinstance(found, Failure):
                raise found.error("before anything was spent")
            # Under add/remove the true number of records is private: nothing may depend on it.
            if self.neighbours is not Neighbours.ADD_REMOVE and found not in (n, None):
                raise PublicError("The records are not n in number. Give their number as n. Nothing was spent.")

        # Drawn before the noise and from the same source: a source that was copied or set back gives it again.
        entry = self.reserve(loss, description, noise=noise_id(randomness))
        release = attempt(lambda: self._kept(mechanism.run(records, randomness), mechanism, loss, n))
        # Raised here, outside every `except`, so that no original error hangs on as __context__.
        if isinstance(release, Failure):
            error = release.error(f"after its loss was reserved as entry {entry}, which stays spent")
            self.fail(entry, f"{type(error).__name__}: {error}")
            if not isinstance(error, MechanismFailed):  # whose own words say so
                error.add_note(f"The loss was reserved as entry {entry} of the ledger, which stays spent.")
            raise error
        self.book(entry)
        return release.booked(f"{self.id}#{entry}")

    def reserve(self, loss: PrivacyLoss, description: Mapping[str, Any], *, noise: str | None = None) -> int:
        """Spend `loss`: on disk before this returns.

        The composition of all entries, whatever became of them, and the new one must have an epsilon of at
        most the budget's, at the budget's delta. It is computed from the distinct losses on disk and how often each was
        reserved, so rounding never accumulates; epsilons that are pure throughout (or of bounded range) are added as
        exact decimals.

        Args:
            loss: what is judged and kept is what `Budget.describe` writes.
            description: what it is for: public facts that JSON can write. Under "unit" the unit of privacy in words,
                which must be that of the earlier entries that name one.
            noise: the name of the noise it is for (`noise_id`); each is taken once.

        Returns:
            The number of the new entry.

        Raises:
            BudgetExceeded: the budget does not allow it; nothing was written.
            NeighbourMismatch: the loss is for other neighbours than the budget.
            UnitMismatch: it protects another unit, and the ledger was not opened with `other_unit`.
            RepeatedNoise: an entry has that noise.
            LedgerError: the ledger could not be written.
        """
        if PAST in description:
            raise ValueError(f"{PAST!r} marks what record_past wrote: give that part of the description another name.")
        with self.journal.transaction(write=True, undone="Nothing was spent.") as (session, known):
            if noise is not None:
                self._check_noise(session, noise)
            return self._reserved(session, known, loss, description, noise=noise)[0]

    def record_past(self, loss: PrivacyLoss, description: Mapping[str, Any], *, overdraw: bool = False) -> int:
        """Write down a release that was made without this ledger, as booked: its loss counts, whether or not it fits.

        For the steward, who finds that records were used elsewhere. It pays for nothing new, and undoes nothing.

        Args:
            loss: what was spent: that of the release's certificate, or what another tool stated (`PrivacyProfile`).
            description: what it was, as in `reserve`; it is marked as recorded afterwards.
            overdraw: record it even where the budget does not allow it. The ledger says so from then on, for good, and
                refuses every further reservation.

        Returns:
            The number of the new entry.

        Raises:
            BudgetExceeded: the budget does not allow it, and `overdraw` was not given; nothing was written.
            NeighbourMismatch, UnitMismatch, LedgerError: as for `reserve`.
        """
        about = dict(description) | {PAST: True}
        with self.journal.transaction(write=True, undone="Nothing was written.") as (session, known):
            entry, digest = self._reserved(session, known, loss, about, fits=not overdraw, mend=_AFTERWARDS)
            after = replace(known, number=known.number + 1, digest=digest)
            self.journal.append(session, after, entry, State.BOOKED)
        return entry

    def step(self, entry: int, checksum: str, *, after: list[str], noise: str) -> None:
        """Write down that the run of `entry` takes a step, before its noise is drawn; on disk before this returns.

        Args:
            checksum: of the run's public file so far.
            after: those of its lines before; the newest step must be one of them, if there is any. So of two copies
                of a run one goes on.
            noise: the name of the noise of the step (`noise_id`).

        Raises:
            RepeatedNoise: an entry or a step has that noise.
            Overtaken: another copy of the run went on, or ended it.
            LedgerError: no such entry, or the ledger could not be written.
        """
        with self.journal.transaction(write=True, undone="The step was not taken.") as (session, known):
            self._check_noise(session, noise)
            self._check_reserved(session, entry)
            self._check_newest(session, entry, after)
            self.journal.append(session, known, entry, STEP, reason=checksum, noise=noise)

    def book(self, entry: int, *, after: list[str] | None = None) -> None:
        """Write down that the release for which `entry` was reserved has been made.

        Args:
            after: of a run in a file the checksums of its lines; the newest step must be one of them, as for `step`.

        Raises:
            Overtaken: it has ended already, or another copy of the run went on.
            LedgerError: no such entry, or the ledger could not be written.
        """
        self._end(entry, State.BOOKED, None, after)

    def fail(self, entry: int, reason: str) -> None:
        """Write down that nothing came of `entry`, and the reason, which is public. Its loss stays spent.

        Raises:
            LedgerError: no such entry, or one that has ended already.
        """
        self._end(entry, State.FAILED, _text(str(reason)))

    # --- Asking: none of these writes

    def overdrawn(self) -> bool:
        """Whether more is spent than the budget allows, by what was recorded afterwards: nothing more may be."""
        with self.journal.transaction() as (_, known):
            pass
        return not self.budget.allows(known.parts)

    def check_unit(self, unit: str) -> None:
        """Refuse a release for `unit`, in words, where earlier entries protect another; `reserve` does so as well.

        Raises:
            UnitMismatch: one does, and the ledger was not opened with `other_unit`.
        """
        with self.journal.transaction() as (session, known):
            self._check_unit(session, known, unit)

    def spent(self) -> Guarantee:
        """What all entries together guarantee at the budget's delta: reserved, booked and failed alike."""
        with self.journal.transaction() as (_, known):
            pass
        return self.budget.spent(known.parts)

    def remaining(self) -> float:
        """The budget's epsilon less that of `spent()`, rounded down; at least 0.

        A figure to plan with, not a promise, because composition is not addition: small losses often fit in
        more often than it says (`next_epsilon`), and a loss for which only a coarse rule holds may not fit in at all.
        """
        return self.budget.left(self.spent().epsilon)

    def next_epsilon(self) -> float:
        """The largest epsilon, at the budget's delta, of a next Gaussian release that fits in (`Budget.room`).

        Above `remaining()` where losses compose to less than the sum of their epsilons.
        """
        with self.journal.transaction() as (_, known):
            pass
        return self.budget.room(known.parts)

    def entries(self) -> list[Entry]:
        """Every entry, in the order of reservation.

        Raises:
            LedgerError: the file can't be read, or its entries are out of order.
        """
        with self.journal.transaction() as (session, known), readable(self.place):
            return self._entries(session, known)

    def _repr_html_(self) -> str:
        from discretion.privacy import html

        return html.in_notebook(html.ledger_card(self))

    def odometer(self, last: int | None = None) -> list[Guarantee]:
        """What had been spent after each entry, for the `last` entries or all: the last one is `spent()`."""
        losses = [entry.loss for entry in self.entries()]
        first = 0 if last is None else max(len(losses) - last, 0)
        counts: dict[PrivacyLoss, int] = {}
        found = []
        for number, loss in enumerate(losses):
            counts[loss] = counts.get(loss, 0) + 1
            if number >= first:
                found.append(self.budget.spent(list(counts.items())))
        return found

    # --- Proof against tampering

    def head(self) -> str:
        """ "number:digest" of the newest event. Kept elsewhere, it lets `verify` find that events after it are gone."""
        with self.journal.transaction() as (_, known):
            return f"{known.number}:{known.digest}"

    def verify(self, head: str | None = None, certificates: Sequence[Certificate] = ()) -> Intact:
        """Check every link of the chain, every loss, the order of events, and that the budget was kept to.

        What was recorded afterwards may exceed it (`overdrawn`); nothing may have been reserved since then.

        Args:
            head: one that was kept; the ledger must still contain it.
            certificates: of releases booked here; each must be booked, for the same mechanism and parameters.

        Raises:
            Tampered: the ledger is not what was written.
            LedgerError: a certificate of another ledger.
            ValueError: `head` is none.
        """
        opening = self.journal.opening
        if head is not None:
            chain.head_number(head)
        with self.journal.transaction() as (session, known), readable(self.place):
            self.journal.store.check(session)
            events = self.journal.events(session)
            found = chain.follow(opening, opening.digest, events, head=head, certificates=certificates)
            if not self.budget.allows(known.parts) and not self._kept_to(entries := self._entries(session, known)):
                raise self._overspent(entries)
        return found

    def export(self) -> Iterator[str]:
        """The whole ledger as lines of JSON, with the chain; `chain.read_export` checks them without this library's
        tables."""
        with self.journal.transaction() as (session, _), readable(self.place):
            yield from chain.export(self.journal.opening, self.journal.opening.digest, self.journal.events(session))

    @cleared
    def check_fingerprint(self, records: Any, key: bytes) -> None:
        """Check that the records are those that the ledger was created for. Whether they are is private.

        Args:
            records: as `fingerprint` takes them.
            key: the steward's.

        Raises:
            PublicError: they are not, or the key is another.
            LedgerError: the ledger has no fingerprint.
        """
        if self.journal.opening.fingerprint is None:
            raise LedgerError("This ledger was created without a fingerprint of its records; leave out the key.")
        if fingerprint(records, key) != self.journal.opening.fingerprint:
            raise PublicError(
                "These are not the records that the ledger was created for, or not in that order, or the key is "
                "another. Nothing was spent."
            )

    # --- Inside

    def _overspent(self, entries: list[Entry]) -> LedgerError:
        """Why more is reserved than the budget allows by the rules of this version."""
        writers = [self.journal.opening.library, *(entry.library for entry in entries)]
        newer = next((each for each in writers if isinstance(each, str) and is_later(each)), None)
        if newer is None:
            return Tampered(f"{self.place}: more is reserved than the budget allows. Somebody wrote past this library.")
        return NewerVersion(
            f"{self.place} was written by a newer version of discretion, {newer[:40]}: by the rules of this one more "
            "is reserved than the budget allows, and newer rules may add up to less. The chain is intact. Upgrade "
            "discretion, and verify again."
        )

    def _reserved(
        self,
        session: Session,
        known: Known,
        loss: PrivacyLoss,
        description: Mapping[str, Any],
        *,
        noise: str | None = None,
        fits: bool = True,
        mend: str | None = None,
    ) -> tuple[int, str]:
        """Write a new entry, which must fit into the budget or need not; its number, and the digest of its event."""
        text = canonical(public_json(self.budget.describe(loss), "loss"))
        name, judged = chain.key(text), read_loss(text)
        # With what wrote it, so that an older version can tell a tighter rule from an entry past the budget.
        about = canonical(public_json(dict(description) | {_WRITER: library_version()}, "description"))
        self._check_unit(session, known, description.get("unit"))
        if fits:
            self.budget.check(known.parts, judged, known.together_with(name, judged), mend=mend)
        entry = known.entries + 1
        self.journal.keep_loss(session, known, name, text)
        return entry, self.journal.append(
            session, known, entry, State.RESERVED, description=about, loss=name, noise=noise
        )

    def _entries(self, session: Session, known: Known) -> list[Entry]:
        found: dict[int, Entry] = {}
        # In one pass over the events in order, which no index can stand in for.
        for event, _, _ in self.journal.events(session):
            if event.state == STEP:
                found[event.entry] = replace(found[event.entry], step=event.reason)
                continue
            state = State(event.state)
            if state is State.RESERVED:
                about, (loss, _) = json.loads(event.description or ""), known.counts[event.loss or ""]
                library = about.pop(_WRITER, None)
                if event.entry != len(found) + 1:
                    raise ValueError("Entries are out of order.")
                found[event.entry] = Entry(event.entry, state, event.who, event.created, about, loss, library=library)
            else:
                found[event.entry] = replace(found[event.entry], state=state, reason=event.reason)
        return list(found.values())

    def _kept_to(self, entries: list[Entry]) -> bool:
        """Whether the last entry that had to fit in did: what was recorded afterwards may follow it, not go before."""
        had_to = [place for place, entry in enumerate(entries, 1) if not entry.past]
        parts = [(entry.loss, 1) for entry in entries[: max(had_to, default=0)]]
        return self.budget.allows(parts)

    def _end(self, entry: int, state: State, reason: str | None, after: list[str] | None = None) -> None:
        with self.journal.transaction(write=True, undone="The entry stays as it was, and its loss stays spent.") as (
            session,
            known,
        ):
            self._check_reserved(session, entry)
            if after is not None:
                self._check_newest(session, entry, after)
            self.journal.append(session, known, entry, state, reason=reason)

    def _check_reserved(self, session: Session, entry: int) -> None:
        states = self.journal.states(session, entry)
        if not states:
            raise LedgerError(f"The ledger has no entry {entry}. Its entries are listed by entries().")
        if len(states) > 1:
            raise Overtaken(f"Entry {entry} is {states[-1]} already; an entry ends once.")

    def _check_newest(self, session: Session, entry: int, lines: list[str]) -> None:
        """Whether a file with these lines is the newest state of its run."""
        last = self.journal.last_step(session, entry)
        if last is not None and last not in lines:
            raise Overtaken(
                f"The run of entry {entry} went on from another copy of its file. Nothing was drawn here. Go on "
                "from that one; or begin anew."
            )

    def _check_unit(self, session: Session, known: Known, unit: Any) -> None:
        if unit is not None and not isinstance(unit, str):
            raise ValueError(f"A release's unit must be a text that says what is protected; got {type(unit).__name__}.")
        if self.other_unit or unit is None:
            return
        for booked, entry in self.journal.units(session, known).items():
            if not same_unit(booked, unit):
                raise UnitMismatch(
                    f"Entry {entry} of the ledger protects another unit ({booked}) than this release ({unit}), and "
                    "losses of different units don't add up. Nothing was spent. Give each unit a ledger of its own; "
                    "--other-unit, or Ledger.open(..., other_unit=True), books here all the same."
                )

    def _check_noise(self, session: Session, noise: str) -> None:
        if self.journal.knows_noise(session, noise):
            raise RepeatedNoise(
                "A release was reserved with this very noise: its source was copied, or set back as by a virtual "
                "machine's snapshot. Nothing was drawn with it. Start the process and the machine afresh."
            )

    def _kept(self, release: Any, mechanism: Mechanism, loss: PrivacyLoss, n: int) -> Release | Failure:
        """The release, if it promises no more than what was reserved for it."""
        if not isinstance(release, Release):
            return Failure("a result that is not a Release")
        certificate = release.certificate
        if not certificate.bookable:
            return Failure("a TEST ONLY release", NotBookable)
        if not certifies(booked_unit(mechanism), certificate.unit):
            # The mechanism's `unit` is what the ledger compared with earlier entries, before anything was spent.
            return Failure("a certificate of a unit that the mechanism does not name as its `unit`")
        claimed = PrivacyLoss.from_dict(certificate.loss)
        least = (1.0 - 1e-9) * loss.epsilon(certificate.delta)
        kept = (
            certificate.mechanism == mechanism.name
            and certificate.n in (n, None)
            and certificate.neighbours is claimed.neighbours is self.neighbours
            and certificate.epsilon >= least
            and claimed.epsilon(certificate.delta) >= least
        )
        return release if kept else Failure("a certificate that is not the run's")


def ledgers(place: str | os.PathLike[str]) -> list[Opening]:
    """What the ledgers of a database were created with, by name; of a file, that of the only one.

    Args:
        place: a file, or a `postgresql://` address.

    Raises:
        LedgerError: there is none there that this version reads.
    """
    return [opening for opening, _ in openings(store_at(place))]


_WRITER = "library"
"""Under which a reservation's description keeps the version that wrote it."""


def _text(words: str) -> str:
    """Words as every database can hold them."""
    return words.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _count(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError("n, the number of records, must be a whole number, 0 or more.")
    return int(n)
