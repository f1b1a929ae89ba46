"""What a mechanism is: public parameters, a price known in advance, and one door to the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from discretion.privacy.loss import Neighbours, PrivacyLoss
from discretion.privacy.noise import Randomness
from discretion.privacy.release import Release


class PublicError(ValueError):
    """A refusal whose message is public: it holds no value taken from, or computed from, a record.

    The ledger drops the message of every other exception that comes out of a mechanism, because it may
    quote a record. Raising this class, or a subclass, is the author's promise that the message may be
    shown and stored.
    """


@runtime_checkable
class Mechanism(Protocol):
    """A randomised computation on private records, as a value that holds public parameters only.

    The privacy loss is a function of the public parameters and of n alone, so that the ledger can
    reserve it before any record is read. A mechanism never asks for more noise, another attempt or
    another setting because of what it found in the records.

    A run that fails is an observable event, like any other output. Either failing has the same probability on
    every set of records in the mechanism's domain, or the mechanism's proof counts it.
    """

    @property
    def name(self) -> str:
        """A short name for people and for the ledger, such as "Gaussian sum"."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """The relation between data sets that differ in one unit of privacy."""
        ...

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """What one run on n records costs, from public parameters alone."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """The public parameters, as values that JSON can write."""
        ...

    def run(self, records: Any, randomness: Randomness) -> Release:
        """The release, all of whose noise comes from `randomness`.

        Called by the ledger, after the loss has been reserved.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """A mechanism that can refuse malformed records before anything is spent."""

    def check(self, records: Any) -> int | None:
        """How many records there are, or None where it does not count them.

        The domain is public, and the privacy loss speaks of data sets inside it. The check may therefore
        refuse records for their shape, type or finiteness, but for nothing that depends on how they are
        distributed inside the domain.

        Raises:
            PublicError: the records lie outside the domain; the message reaches the user, so it holds no
                value of a record. The message of any other exception is dropped.
        """
        ...
