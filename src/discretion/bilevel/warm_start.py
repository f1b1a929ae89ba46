"""A private choice on a grid, then noisy hypergradient descent from there (Lowy and Liu 2025, Algorithm 2).

Both are paid for: a bounded range and a Gaussian mu, which the accountant composes. It helps where a grid can be
afforded, d_x <= 3, and the outer objective has several valleys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from discretion.bilevel.descent import Descent, DescentRelease
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.mechanism import ProblemMechanism, run_on
from discretion.bilevel.problem import BilevelProblem
from discretion.privacy import BoundedRange, GaussianDP, Ledger, PrivacyLoss, Randomness, largest
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["WarmStart", "warm_start"]

_RELEASED = "A start chosen from a public list, then all iterates and all noisy hypergradients from it on, run"
_OF_START = ("start", "constants", "sensitivity", "noise")


@dataclass(frozen=True, eq=False, kw_only=True)
class WarmStart(ProblemMechanism):
    """`choice`, then `descent` from the chosen point; its own start is not used.

    Raises
    ------
    ValueError
        The two are about different problems, or the descent has a start of its own.
    """

    choice: ExponentialMechanism
    descent: Descent
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-bilevel-warm-start"

    def __post_init__(self) -> None:
        if self.choice.problem is not self.descent.problem:
            raise ValueError("The choice and the descent must be about one problem.")
        if self.descent.start is not None:
            raise ValueError("The descent starts at the chosen point: leave out its start.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        # by default their number depends on the start; here it is that of the middle of the domain, said beforehand
        object.__setattr__(self, "descent", replace(self.descent, steps=len(self.descent.budgets)))
        for x in self.choice.points:
            _ = self.descent.step(x)  # refuses now what it would refuse after the choice was paid for

    @property
    def problem(self) -> BilevelProblem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That both are about."""
        return self.choice.problem

    @property
    def loss(self) -> PrivacyLoss:
        """Bounded range and mu-GDP, composed: Renyi alpha epsilon^2/8 + alpha mu^2/2 at most."""
        return self.choice.loss + self.descent.loss

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data. Those of the descent that follow from its start are not known yet."""
        descent = {name: value for name, value in self.descent.parameters().items() if name not in _OF_START}
        descent["start"] = "the choice"
        return {"released": _RELEASED, "choice": self.choice.parameters(), "descent": descent}

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        said = self.descent.sentences
        own = "The start is drawn exactly from a public list, by inner solutions as accurate as that needs."
        return replace(said, enforced=(*said.enforced, own))

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> DescentRelease:
        """The path, which begins at the chosen point. Called by the ledger after the loss is reserved."""
        first = self.choice.run(records, randomness)
        found = replace(self.descent, start=np.array(first.x)).run(records, randomness)
        certificate = self.certificate(randomness)
        facts = replace(found.facts, epsilon=certificate.epsilon, delta=self.delta, start_is_chosen=True)
        return replace(found, certificate=certificate, facts=facts)


@cleared
def warm_start(
    problem: BilevelProblem,
    records: Any,
    *,
    epsilon: float,
    delta: float = 1e-6,
    choice_share: float = 0.5,
    ledger: Ledger | str | Path | None = None,
    randomness: Randomness | None = None,
    choice: dict[str, Any] | None = None,
    **options: Any,
) -> DescentRelease:
    """Choose on a grid, then descend, for (epsilon, delta) in all.

    Args:
        choice_share: of the zCDP (eta^2/8 against mu^2/2) for the choice.
        choice: options of `ExponentialMechanism`. Others are those of `Descent`.
        ledger, randomness: as in `noisy_hypergradient`.

    Raises:
        ValueError: a number out of range.
    """
    mechanism = _shared(problem, epsilon, delta, choice_share, choice or {}, options)
    return run_on(mechanism, records, ledger, randomness)


def _shared(
    problem: BilevelProblem, epsilon: float, delta: float, share: float, choice: dict[str, Any], options: dict[str, Any]
) -> WarmStart:
    """With the largest budget whose exact sum is within (epsilon, delta)."""
    if "batch" in options:
        raise ValueError("A batch costs less than is counted on here: make a WarmStart of your own.")
    if not (0 < share < 1 and 0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError("choice_share and delta must lie strictly between 0 and 1, epsilon be positive and finite.")
    relation = problem.neighbours

    def parts(mu: float) -> tuple[float, float]:
        return 2.0 * mu * math.sqrt(share), mu * math.sqrt(1.0 - share)

    def meets(mu: float) -> bool:
        eta, rest = parts(mu)
        both = BoundedRange(eta, neighbours=relation) + GaussianDP(rest, neighbours=relation)
        return both.epsilon(delta) <= epsilon

    eta, rest = parts(
        largest(meets, 1e-3 * epsilon / math.sqrt(-math.log(delta) + 1.0), epsilon + 1.0, relative_tolerance=1e-4)
    )
    return WarmStart(
        choice=ExponentialMechanism(problem=problem, epsilon=eta, **choice),
        descent=Descent(problem=problem, mu=rest, delta=delta, **options),
        delta=delta,
    )
