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
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.budget import RULE, gaussian_budget
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, Randomness, SubsampledGaussian, smallest
from discretion.privacy.sums import root_sum_of_squares

__all__ = ["ClippedSteps", "clipped", "clipped_sum", "secret_sample"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_WORD = 2.0**64


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
            if not 2.0**-40 <= sample_rate < 1:
                raise ValueError(f"sample_rate must lie between 0 and 1; got {sample_rate!r}.")
            sample_rate = math.floor(sample_rate * _WORD) / _WORD
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

    def sample(self, n: int, randomness: Randomness) -> Floats:
        """PRIVATE. 1 for those of n records that take part in a step, else 0, (n,)."""
        return np.ones(n) if self.sample_rate is None else secret_sample(n, self.sample_rate, randomness)


def _change(neighbours: Neighbours) -> float:
    """Most that one record moves a sum of contributions of norm at most 1."""
    return 1.0 if neighbours is Neighbours.ADD_REMOVE else 2.0


def secret_sample(n: int, rate: float, randomness: Randomness) -> Floats:
    """PRIVATE. 1 for records that take part, each with probability exactly `rate` (a multiple of 2^-64)."""
    return (randomness.words(n) < np.uint64(int(rate * _WORD))).astype(np.float64)


def clipped(rows: Floats, bound: float) -> Floats:
    """Each row shortened to length `bound` where it is longer, and zero where it is not finite.

    Rows come out no longer than `bound` in exact arithmetic: the computed length of d numbers is off by a factor of at
    most 1 + (d + 3) 2^-53.
    """
    margin = 1.0 - (rows.shape[1] + 8) * _UNIT
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(rows), axis=1, initial=0.0)
        scaled = rows / np.where((largest > 0) & np.isfinite(largest), largest, 1.0)[:, None]  # squares do not overflow
        length = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        length = np.where(np.isfinite(largest), np.fmin(length, np.finfo(np.float64).max), np.nan)
        factor = np.where(length <= bound * margin, 1.0, bound * margin / np.maximum(length, 1e-300))
        finite = np.isfinite(length)
        return np.where(finite[:, None], rows, 0.0) * np.where(finite, factor, 0.0)[:, None]


def clipped_sum(rows: Floats, bound: float, part: Floats, n: int) -> Floats:
    """PRIVATE. Sum of the clipped rows (k, d) of those that take `part` (k,), exact in any order.

    Contributions are cut to multiples of a power of two at which n of them add up without rounding.
    """
    spacing = math.ldexp(1.0, math.frexp(bound)[1] + int(n).bit_length() - 52)
    return (np.trunc(clipped(rows, bound) / spacing) * spacing * part[:, None]).sum(axis=0)
