"""What the mechanisms of this package share: relation, public numbers of records, price and certificate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from discretion.bilevel.constants import Constants
from discretion.bilevel.problem import BilevelProblem
from discretion.privacy import Certificate, Ledger, Neighbours, PrivacyLoss, Randomness, Release
from discretion.privacy.frames import cleared
from discretion.privacy.noise import source_of
from discretion.privacy.paid import ledger_at
from discretion.privacy.units import whose_rows
from discretion.privacy.verification import Sentences

__all__ = ["PUBLIC", "BilevelMechanism", "ProblemMechanism", "run_on"]

PUBLIC = "The public parameters, numbers of records among them, were not chosen by looking at these records."


class BilevelMechanism(ABC):
    """A mechanism whose price and certificate follow from public parameters.

    Attributes:
        name: of the mechanism, in certificates and ledgers.
        delta: at which the certificate states epsilon.
        unit: the unit of privacy in words.
    """

    name: str
    delta: float
    unit: str

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """The relation between data sets."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of all records, public; under add/remove a public bound of it."""

    @property
    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """What one run costs."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data; "released" says in words what leaves."""

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """What one run on n records costs.

        Raises:
            ValueError: n is not the public number of records.
        """
        if self.n_is_public and n != self.total:
            raise ValueError(f"This is for {self.total:,} records in all; give that number as n.")
        return self.loss

    @property
    @abstractmethod
    def sentences(self) -> Sentences:
        """What its certificates state in words, besides what those of every mechanism do."""

    def certificate(self, randomness: Randomness) -> Certificate:
        """The certificate of a run."""
        said = self.sentences
        return Certificate.issue(
            self,
            n=self.total if self.n_is_public else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.loss,
            enforced=said.enforced,
            declared=(PUBLIC, *whose_rows(self.unit), *said.declared),
            limits=said.limits,
        )

    @abstractmethod
    def run(self, records: Any, randomness: Randomness) -> Release:
        """The release. Called by the ledger after the loss is reserved."""


class ProblemMechanism(BilevelMechanism):
    """A mechanism on the records of a bilevel problem."""

    problem: BilevelProblem

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the problem."""
        return self.problem.neighbours

    @property
    def total(self) -> int:
        """Number of all records of the problem."""
        return self.problem.counts.total

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records of the wrong shape or number before anything is spent."""
        self.problem.ingest(records)
        return self.total if self.n_is_public else None

    def stated(self, constants: Constants) -> dict[str, Any] | None:
        """Declared constants as a parameter; those of verified families follow from the problem's parameters."""
        return None if self.problem.verified else constants.described()

    def given(self, rule: str) -> str:
        """The rule of a loss that rests on the problem's constants."""
        return rule if self.problem.verified else f"{rule}, given the declared constants"


def run_on(mechanism: Any, records: Any, ledger: Ledger | str | Path | None, randomness: Randomness | None) -> Any:
    """A run, booked in the ledger, or in the one at that path, if there is one."""
    if ledger is not None:
        return ledger_at(ledger).run(mechanism, records, n=mechanism.total, randomness=randomness)
    return mechanism.run(records, source_of(randomness))
