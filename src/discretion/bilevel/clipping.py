"""Steps whose records are clipped one by one at public points: what they cost, whatever the losses are.

A step adds contributions of norm at most 1, those of a secret Poisson sample if `sample_rate` is given, plus s times
standard normal noise:

    all records      mu_t = 2/s (replace), 1/s (add/remove); T steps have mu = sqrt(T) mu_t
    a sample         T times `SubsampledGaussian(q, s)`, the pair of the relation at hand

Nothing is assumed of the losses. The pair of add/remove is not valid where a record is replaced, and is not used there.
Proofs: `docs/proofs/bilevel-clipped.md`, `docs/proofs/subsampled-gaussian.md`.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.budget import RULE, gaussian_budget
from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.report import ClippedPart, ClippedReport
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, Randomness, SubsampledGaussian, smallest
from discretion.privacy.sampling import sampling_rate, secret_sample
from discretion.privacy.sums import root_sum_of_squares

__all__ = ["CLIPPED", "OWN", "ClippedSteps", "mu_of", "not_covered", "suprema"]

CLIPPED = "The vectors of each record are clipped before records are added; those not finite are 0."
OWN = "The losses of a record depend on that record, the released iterates and public material alone."
_PLACES = "The last bits of the other records' vectors, which can change as a record less moves them to other places."
_SAMPLED = "Who takes part in a step is drawn anew, in secret."


@dataclass(frozen=True)
class ClippedSteps:
    """T noisy sums of clipped contributions.

    Attributes:
        steps: T.
        multiplier: s, the noise over the clipping norm.
        neighbours: replace or add-remove.
        sample_rate: q, a multiple of 2^-64, or None for all records in every step.
    """

    steps: int
    multiplier: float
    neighbours: Neighbours
    sample_rate: float | None = None

    @classmethod
    def within(
        cls,
        *,
        steps: int,
        mu: float | None,
        epsilon: float | None,
        delta: float,
        neighbours: Neighbours,
        sample_rate: float | None = None,
    ) -> Self:
        """With the least noise that costs at most mu (before sampling), or epsilon at delta.

        Raises:
            ValueError: a number out of range.
        """
        if isinstance(steps, bool) or int(steps) != steps or steps < 1:
            raise ValueError(f"steps must be a whole number of at least 1; got {steps!r}.")
        if neighbours is Neighbours.REPLACE_RESPONSE:
            raise ValueError("Clipped steps have an account under 'replace' and 'add-remove' neighbours only.")
        if sample_rate is not None:
            sample_rate = sampling_rate(sample_rate)
        full = gaussian_budget(mu, epsilon, delta)
        most = _change(neighbours) * math.sqrt(steps) / full * (1.0 + 1e-13)
        if sample_rate is None or epsilon is None:
            return cls(int(steps), most, neighbours, sample_rate)

        def meets(multiplier: float) -> bool:
            return cls(int(steps), multiplier, neighbours, sample_rate).loss.epsilon(delta) <= epsilon

        # Sampling never costs: what meets the target with all records meets it with some of them.
        multiplier = smallest(meets, min(0.3, most), 1.01 * most, relative_tolerance=1e-3)
        return cls(int(steps), multiplier, neighbours, sample_rate)

    @property
    def loss(self) -> PrivacyLoss:
        """Of all steps."""
        if self.sample_rate is None:
            total = root_sum_of_squares([(self.steps, _change(self.neighbours) / self.multiplier)])
            return GaussianDP(total, neighbours=self.neighbours, rule=RULE)
        return self.steps * SubsampledGaussian(self.sample_rate, self.multiplier, neighbours=self.neighbours)

    def noise(self, n: int) -> float:
        """Standard deviation of the noise in a mean over n records, clipped to length 1."""
        return self.multiplier / (n * (self.sample_rate or 1.0))

    def change(self, n: int) -> float:
        """Most that one record moves that mean, if it takes part."""
        return _change(self.neighbours) / (n * (self.sample_rate or 1.0))

    def report(self, parts: tuple[ClippedPart, ...], delta: float, **found: Any) -> ClippedReport:
        """What the steps rest on; `found` are further attributes of the report."""
        return ClippedReport(
            steps=self.steps,
            mu=mu_of(self.steps, self.multiplier, self.neighbours),
            epsilon=self.loss.epsilon(delta),
            delta=delta,
            parts=parts,
            sample_rate=self.sample_rate,
            **found,
        )

    @property
    def enforced(self) -> tuple[str, ...]:
        """What the software makes true, in the words of a certificate."""
        return (CLIPPED,) if self.sample_rate is None else (CLIPPED, _SAMPLED)

    def sample(self, n: int, randomness: Randomness) -> NDArray[np.bool_]:
        """PRIVATE. Which of n records take part in a step, (n,)."""
        return np.ones(n, dtype=bool) if self.sample_rate is None else secret_sample(n, self.sample_rate, randomness)


def not_covered(neighbours: Neighbours) -> tuple[str, ...]:
    """By clipped steps, in the words of a certificate."""
    return ("That the iterates converge is not claimed.", *((_PLACES,) if neighbours is Neighbours.ADD_REMOVE else ()))


def suprema(problem: BilevelProblem) -> Constants | None:
    """Constants over the domain, if somebody declared any: for reports alone."""
    with suppress(MissingConstant):
        return problem.constants()
    return None


def mu_of(steps: int, multiplier: float, neighbours: Neighbours) -> float:
    """mu of T steps before sampling, from their noise over the clipping norm."""
    return _change(neighbours) * math.sqrt(steps) / multiplier


def _change(neighbours: Neighbours) -> float:
    """Most that one record moves a sum of contributions of norm at most 1."""
    return 1.0 if neighbours is Neighbours.ADD_REMOVE else 2.0
