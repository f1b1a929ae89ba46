"""Steps that see a secret batch of the records, of fixed size: what they cost, and who is in one.

A query of m of n records, noise z times its sensitivity, costs `FixedSizeGaussian(m/n, z)`; in the split layout with
the larger share of the two parts. Nothing that depends on an earlier batch may enter a step, so that inner solves start
from public values. Proofs: `docs/proofs/fixed-size-sample.md`, `docs/proofs/bilevel-descent.md`, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from discretion.bilevel.constants import Refused
from discretion.bilevel.counts import Counts
from discretion.bilevel.problem import BilevelProblem, Rows
from discretion.privacy import FixedSizeGaussian, Neighbours, PrivacyLoss, Randomness, largest
from discretion.privacy.sampling import secret_subset

__all__ = ["SUBSETS", "Batches"]

SUBSETS = "Gaussian noise on a subset of fixed size"


@dataclass(frozen=True)
class Batches:
    """T steps on batches of `size` of all records `of`.

    Raises:
        ValueError: batches that are none, or do not fit the layout.
    """

    size: Counts
    of: Counts
    steps: int
    rule: str = SUBSETS

    def __post_init__(self) -> None:
        if len(self.size.parts) != len(self.of.parts):
            raise ValueError(
                "batch must be Counts(n_training, n_validation) in the split layout, in the joint one a number."
            )
        if any(m > n for m, n in zip(self.size.parts, self.of.parts, strict=True)):
            raise ValueError("A batch cannot have more records than there are.")

    @classmethod
    def for_steps(
        cls, size: Counts | int, problem: BilevelProblem, steps: int | None, contraction: float, rule: str
    ) -> Batches:
        """Of a descent.

        Raises:
            Refused: add/remove neighbours.
            ValueError: steps unknown or unequal, or a batch that is none.
        """
        if problem.neighbours is not Neighbours.REPLACE:
            raise Refused(
                "A batch has a fixed size, and its price a public share of the records: under add-remove neighbours "
                "their number is not public, and batches of random size would break the constants."
            )
        if steps is None or contraction:
            raise ValueError("A batch needs steps to be given, and contraction 0: all steps cost the same.")
        return cls(size if isinstance(size, Counts) else Counts(size), problem.counts, int(steps), rule)

    @property
    def share(self) -> float:
        """q: the largest share of the records of one part that a step sees."""
        q = max(m / n for m, n in zip(self.size.parts, self.of.parts, strict=True))
        return min(math.nextafter(q, math.inf), 1.0)

    def loss(self, mu: float) -> PrivacyLoss:
        """Of all steps, which without sampling would be mu-GDP together."""
        multiplier = math.sqrt(self.steps) / mu
        return self.steps * FixedSizeGaussian(self.share, multiplier, neighbours=Neighbours.REPLACE, rule=self.rule)

    def mu_within(self, epsilon: float, delta: float, full: float) -> float:
        """The largest mu, before sampling, with which the run costs (epsilon, delta); `full` is it without sampling."""

        def meets(mu: float) -> bool:
            return self.loss(mu).epsilon(delta) <= epsilon

        # Sampling never costs, but the numerical account of it may say a little more than the exact one.
        most = max(64.0 * full, 8.0 * math.sqrt(self.steps))
        return largest(meets, 0.9 * full, most, relative_tolerance=1e-4)

    def draw(self, randomness: Randomness) -> tuple[Rows, ...]:
        """PRIVATE. The places of a batch's records in each part."""
        pairs = zip(self.of.parts, self.size.parts, strict=True)
        return tuple(secret_subset(n, m, randomness) for n, m in pairs)
