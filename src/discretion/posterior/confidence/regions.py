"""Sums and means over public regions, with the exact law of their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from discretion.posterior.confidence.bands import fieller
from discretion.posterior.confidence.sums import ReleasedSums, density_of, released_sums, threshold_field
from discretion.posterior.layout import Floats


@dataclass(frozen=True, eq=False)
class RegionSums:
    """Weighted sums of the threshold field over regions, with the exact covariance of their noise.

    Attributes
    ----------
    values : array (regions,)
    covariance : array (regions, regions)
        s^2 (1 + ((c - t) / M)^2) W (K + tau I) W^T.
    """

    values: Floats
    covariance: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviation of the noise in each sum, shape (regions,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of the interval that covers each non-private sum with this confidence, in (0, 1) or a ValueError."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
        half = float(ndtri(0.5 * (1.0 + level))) * self.sd
        return self.values - half, self.values + half


def region_sum(
    release: Any, regions: ArrayLike, threshold: float | None = None, *, column: int = 0, kernel: int = 0
) -> RegionSums:
    """Sums of the released field over public regions, and the law of their noise.

    Parameters
    ----------
    release : KernelSumRelease or ReleasedSums
    regions : boolean or float array
        Masks or weights over the places, shape (regions, *map) or that of one map.
    threshold : float, optional
        The field is sum_i (y_i - t) k(x_i, .); the centre by default, that is the value sum h itself.
    column, kernel : int
        Which response and which kernel of the release.

    Raises
    ------
    ValueError
        For regions of another shape or not finite, or a threshold other than the centre when no density was released.

    Notes
    -----
    The noise is s sqrt(1 + ((c - t) / M)^2) w^T g with variance w^T (K + tau I) w known exactly from public numbers.
    """
    sums = released_sums(release, column, kernel)
    W = _weights(regions, sums)
    field, sigma = threshold_field(sums, sums.centre if threshold is None else threshold)
    return RegionSums(W @ field.ravel(), sigma**2 * sums.noise.covariance(W))


@dataclass(frozen=True, eq=False)
class RegionMeans:
    """Means of the clipped response over regions, with intervals for what they are without noise.

    Attributes
    ----------
    values, lower, upper : arrays (regions,)
        NaN for a value whose density sum is not positive; the interval is then the whole range.
    level : float
        Confidence of each interval on its own.
    """

    values: Floats
    lower: Floats
    upper: Floats
    level: float


def region_mean(
    release: Any, regions: ArrayLike, level: float = 0.95, *, column: int = 0, kernel: int = 0
) -> RegionMeans:
    """The kernel-weighted mean response of each region, c + M (w^T h) / (w^T d), with its exact interval (Fieller).

    w^T h and w^T d carry independent noise of the same known variance s^2 w^T (K + tau I) w, so that each threshold t
    is rejected at an exact level and the thresholds not rejected form the interval (``docs/proofs/confidence-sets.md``,
    Theorem 2). Weights must not be negative. ``release``, ``regions``, ``column`` and ``kernel`` as in `region_sum`.

    Raises
    ------
    ValueError
        For a negative weight, a level out of range, or no released density.
    """
    sums = released_sums(release, column, kernel)
    W = _weights(regions, sums)
    if (W < 0).any():
        raise ValueError("The weights of a mean must not be negative.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    h, d = W @ sums.values, W @ density_of(sums)
    sd = sums.scale * np.sqrt(np.diagonal(sums.noise.covariance(W)))
    lower, upper = fieller(h, d, float(ndtri(0.5 * (1.0 + level))) * sd)
    share = np.divide(h, d, out=np.full(h.shape, np.nan), where=d > 0)
    c, M = sums.centre, sums.response_bound
    return RegionMeans(c + M * np.clip(share, -1.0, 1.0), c + M * lower, c + M * upper, float(level))


def _weights(regions: ArrayLike, sums: ReleasedSums) -> Floats:
    W = np.asarray(regions, dtype=np.float64)
    if W.shape == sums.shape:
        W = W[None]
    if W.shape[1:] not in (sums.shape, (sums.noise.size,)) or not np.isfinite(W).all():
        raise ValueError(f"regions must be finite and of shape (regions, *{sums.shape}); got {W.shape}.")
    return W.reshape(len(W), -1)


# --- where the largest value is ---------------------------------------------------------------------------------------
