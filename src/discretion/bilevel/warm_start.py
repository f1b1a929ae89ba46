"""A private choice on a grid, then noisy hypergradient descent from there (Lowy and Liu 2025, Algorithm 2).

Both are paid for: a bounded range and a Gaussian mu, which the accountant composes. It helps where a grid can be
afforded, d_x <= 3, and the outer objective has several valleys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discretion.bilevel.descent import LIMITS, Descent, DescentRelease
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.problem import BilevelProblem
from discretion.privacy import (
    Certificate,
    GaussianDP,
    Ledger,
    Neighbours,
    PrivacyLoss,
    Randomness,
    SystemRandomness,
    largest,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent

__all__ = ["WarmStart", "warm_start"]


@dataclass(frozen=True, eq=False, kw_only=True)
class WarmStart:
    """`choice`, then `descent` from the chosen point; its own start is not used.

    Raises
    ------
    ValueError
        The two are about different problems.
    """

    choice: ExponentialMechanism
    descent: Descent
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-bilevel-warm-start"

    def __post_init__(self) -> None:
        if self.choice.problem is not self.descent.problem:
            raise ValueError("The choice and the descent must be about one problem.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the problem."""
        return self.choice.neighbours

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.choice.n_is_public

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """Bounded range and mu-GDP, composed: Renyi alpha epsilon^2/8 + alpha mu^2/2 at most."""
        return self.choice.privacy_loss(n) + self.descent.privacy_loss(n)

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {"choice": self.choice.parameters(), "descent": self.descent.parameters()}

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records of the wrong shape or number before anything is spent."""
        return self.choice.check(records)

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> DescentRelease:
        """The path, which begins at the chosen point. Called by the ledger after the loss is reserved."""
        first = self.choice.run(records, randomness)
        found = replace(self.descent, start=np.array(first.x)).run(records, randomness)
        inside = found.certificate
        n = self.choice.problem.counts.total
        certificate = Certificate.issue(
            self,
            n=n if self.n_is_public else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.privacy_loss(n),
            enforced=tuple(inside.enforced),
            declared=tuple(inside.declared),
            limits=LIMITS,
        )
        return replace(found, certificate=certificate)


@cleared
def warm_start(
    problem: BilevelProblem,
    records: Any,
    *,
    epsilon: float,
    delta: float = 1e-6,
    choice_share: float = 0.5,
    ledger: Ledger | None = None,
    randomness: Randomness | None = None,
    choice: dict[str, Any] | None = None,
    **options: Any,
) -> DescentRelease:
    """Choose on a grid, then descend, for (epsilon, delta) in all.

    Args:
        choice_share: of the zCDP (eta^2/8 against mu^2/2) for the choice.
        choice: options of `ExponentialMechanism`. Others are those of `Descent`.

    Raises:
        ValueError: a number out of range.
    """
    mechanism = _shared(problem, epsilon, delta, choice_share, choice or {}, options)
    if ledger is not None:
        total = problem.counts.total
        return ledger.run(mechanism, records, n=total, randomness=randomness)  # pyright: ignore[reportReturnType]
    return mechanism.run(records, SystemRandomness() if randomness is None else randomness)


def _shared(
    problem: BilevelProblem, epsilon: float, delta: float, share: float, choice: dict[str, Any], options: dict[str, Any]
) -> WarmStart:
    """With the largest budget whose exact sum is within (epsilon, delta)."""
    if not (0 < share < 1 and 0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError("choice_share and delta must lie strictly between 0 and 1, epsilon be positive and finite.")
    probe = ExponentialMechanism(problem=problem, epsilon=1.0, **choice)
    relation = problem.neighbours

    def parts(mu: float) -> tuple[float, float]:
        return 2.0 * mu * math.sqrt(share), mu * math.sqrt(1.0 - share)

    def meets(mu: float) -> bool:
        eta, rest = parts(mu)
        return (probe_loss(eta) + GaussianDP(rest, neighbours=relation)).epsilon(delta) <= epsilon

    def probe_loss(eta: float) -> PrivacyLoss:
        return replace(probe, epsilon=eta).privacy_loss(problem.counts.total)

    eta, rest = parts(
        largest(meets, 1e-3 * epsilon / math.sqrt(-math.log(delta) + 1.0), epsilon + 1.0, relative_tolerance=1e-4)
    )
    return WarmStart(
        choice=replace(probe, epsilon=eta),
        descent=Descent(problem=problem, mu=rest, delta=delta, **options),
        delta=delta,
    )
