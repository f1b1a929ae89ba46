"""Some of the records in each step: a Poisson sample, drawn afresh and in secret, saves evaluations and costs less.

Each record takes part in a step with probability q, independently. With noise s B on the sum of the clipped estimates
of the sample, s = 2/mu_t, the two laws of a step under neighbours that differ in one *replaced* record are no easier to
tell apart than

    (1 - q) N(0, 1) + q N(1/s, 1)    and    (1 - q) N(0, 1) + q N(-1/s, 1),

whatever was released before, and steps compose as their privacy-loss distributions do: q and s are fixed in advance.
`docs/proofs/subsampled-gaussian.md`, statement (3); `docs/proofs/gradient-descent.md`, Theorem 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.accounting import mu_within
from discretion.privacy import Neighbours, PrivacyLoss, SubsampledGaussian, largest

__all__ = ["sampled_loss", "sampled_mu", "scattered"]

Floats = NDArray[np.float64]

_MOST_MU = 64.0  # before sampling: noise of a 32nd of the clipping norm on the sum


def sampled_loss(mus: Iterable[float], rate: float) -> PrivacyLoss:
    """What steps cost whose noise alone, without sampling, would make them mu_t-GDP: about q times as much each.

    Args:
        mus: one a step, positive.
        rate: q, as `discretion.privacy.sampling.sampling_rate` gives it.
    """
    parts = Counter(mus)
    first, *others = (
        count * SubsampledGaussian(rate, 2.0 / mu, neighbours=Neighbours.REPLACE) for mu, count in parts.items()
    )
    return sum(others, start=first)


def sampled_mu(shares: Floats, rate: float, epsilon: float, delta: float) -> float:
    """The largest mu, before sampling, with which the run costs (epsilon, delta) after it.

    Raises:
        ValueError: a target out of range.
    """
    roots = np.sqrt(shares)

    def meets(mu: float) -> bool:
        return sampled_loss((mu * roots).tolist(), rate).epsilon(delta) <= epsilon

    # What all records could afford, less a tenth for the numerical composition, a sample can.
    low = 0.9 * mu_within(epsilon, delta)
    return largest(meets, low, max(_MOST_MU, 2.0 * low), relative_tolerance=1e-6)


def scattered(losses: Floats, sample: NDArray[np.intp], n: int) -> Floats:
    """PRIVATE. The losses of a sample at their records' places among n rows; NaN, which counts as 0, elsewhere.

    So every record's estimate is computed at the same place of an array of the same shape whoever else is in the
    sample, and comes out the same to the last bit.
    """
    table = np.full((n, losses.shape[1]), np.nan)
    table[sample] = losses
    return table
