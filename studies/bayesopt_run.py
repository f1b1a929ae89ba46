"""Tasks for private local search, and runs of it on made-up records, with noise that repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from discretion.bayesopt import LocalSearch, Space, Study
from discretion.bayesopt.descent import Rule
from discretion.gp import RBF
from discretion.privacy import SeededRandomness

Floats = NDArray[np.float64]
Losses = Callable[[Floats], Floats]

NO_NOISE = 1e6
"""A mu at which the noise is negligible: the search that is not private."""


@dataclass(frozen=True, eq=False)
class Task:
    """Losses of n records at a scaled theta in a box, and what a private search of it may spend.

    Attributes:
        losses: theta of shape (d,) -> the losses of the n records.
        fresh: theta -> the mean loss on records that no method saw.
        start: scaled. mu, steps, batch, clip: of the search; steps * batch evaluations are everyone's.
        few, length: evaluations a step where old ones are used again, and the length scale there; both were chosen on
            other samples.
        update: the rule of every method that follows gradients, of the rate that suits forward differences best on
            other samples.
        loss_range: to which losses are clamped where a choice among candidates is paid for.
        gradients: theta -> the gradients of the n losses, (n, d), where there are any.
    """

    space: Space
    n: int
    losses: Losses
    fresh: Callable[[Floats], float]
    start: Floats
    mu: float
    clip: float
    steps: int
    batch: int
    few: int
    update: Rule
    length: float = 1.0
    loss_range: tuple[float, float] = (0.0, 8.0)
    gradients: Losses | None = None

    @property
    def evaluations(self) -> int:
        """How many each method may make."""
        return self.steps * self.batch

    def search(self, **changes: Any) -> LocalSearch:
        """The search as the paper runs it: d + 1 points a step, none used again, a unit RBF."""
        given = {"mu": self.mu, "steps": self.steps, "clip": self.clip, "batch": self.batch, "update": self.update}
        given |= {"kernel": RBF(1.0), "cache": 0, "start": self.space.parameters(self.start)}
        return LocalSearch(self.space, **(given | changes))


def searched(search: LocalSearch, n: int, losses: Losses, seed: int) -> Study:
    """The finished study; `losses` gives the losses of all records at a scaled theta, shape (n,)."""
    study = Study(search, n=n, randomness=SeededRandomness(seed))
    while not study.done:
        Z = study.asked
        study.tell(np.column_stack([losses(z) for z in Z]) if len(Z) else np.empty((n, 0)))
    return study


def band(values: Floats) -> str:
    """Mean and range."""
    return f"{np.mean(values):.4g} ({np.min(values):.4g} to {np.max(values):.4g})"


def expected_norm(d: int) -> float:
    """E ||g|| / sqrt(d) of a standard normal vector: what a mean distance is of its root mean square."""
    return float(np.exp(gammaln((d + 1) / 2) - gammaln(d / 2)) * np.sqrt(2 / d))
