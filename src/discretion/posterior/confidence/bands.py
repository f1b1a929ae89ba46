"""Bands of the local mean without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from discretion.posterior.confidence.sums import Mask, density_of, released_sums
from discretion.posterior.confidence.suprema import pointwise_quantile, simulated_suprema, supremum_quantile
from discretion.posterior.layout import Floats, Normals


@dataclass(frozen=True, eq=False)
class Bands:
    """Lower and upper bounds of the non-private local mean (clipped response), with the stated confidence.

    Where the density is too small for the noise the band is the whole range [c - M, c + M].

    Attributes
    ----------
    lower, upper : arrays of the map's shape
        In the unit of the response.
    level : float
    quantile : float
        q: the width of the noise that was allowed for, in its standard deviations.
    simultaneous : bool
        Whether the level is that of all places together.
    """

    lower: Floats
    upper: Floats
    level: float
    quantile: float
    simultaneous: bool


def mean_bands(
    release: Any,
    level: float = 0.95,
    *,
    simultaneous: bool = True,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Bands:
    """Confidence bands for the non-private local mean, from the sets of all thresholds at once (Fieller 1954).

    A place's band is {t : |h + (c - t) d / M| <= q s sqrt(1 + ((c - t) / M)^2)}, an interval where |d| > q s; q is the
    quantile of the largest sqrt(g_1^2 + g_2^2), so that the bands hold at all places together, or pointwise the normal
    quantile. With simultaneous bands, {lower >= t} and {upper >= t} are inner and outer sets for *every* threshold t
    together. Proof: ``docs/proofs/confidence-sets.md``, Theorem 2.

    Parameters
    ----------
    release, level, simultaneous, simulations, randomness, column, kernel
        As in `excursion_sets`.
    region : boolean array, optional
        Public part of the map, chosen before the release is seen. Outside, the band is the whole range.

    Raises
    ------
    ValueError
        For a level out of range, too few simulations, or no released density.
    """
    sums = released_sums(release, column, kernel)
    density = density_of(sums)
    if simultaneous:
        suprema = simulated_suprema(sums.noise, simulations, randomness, ratios=None, region=region)
        q = supremum_quantile(suprema, level)
    else:
        q = pointwise_quantile(sums.noise, level)
    lower, upper = fieller(sums.values, density, q * sums.scale)
    M, c = sums.response_bound, sums.centre
    if region is not None:
        outside = ~np.asarray(region).ravel()
        lower[outside], upper[outside] = -1.0, 1.0
    lower, upper = (c + M * part.reshape(sums.shape) for part in (lower, upper))
    return Bands(lower, upper, float(level), q, simultaneous)


def fieller(h: Floats, d: Floats, r: float | Floats) -> tuple[Floats, Floats]:
    """Ends of {u in [-1, 1] : |h - u d| <= r sqrt(1 + u^2)}, the range of u = (t - c) / M; [-1, 1] unless d > r.

    The roots of (d^2 - r^2) u^2 - 2 h d u + h^2 - r^2 are (h d -+ r sqrt(h^2 + d^2 - r^2)) / (d^2 - r^2).
    """
    lower, upper = np.full(h.shape, -1.0), np.full(h.shape, 1.0)
    r = np.broadcast_to(np.asarray(r, dtype=np.float64), h.shape)
    ok = d > r
    h, d, r = h[ok], d[ok], r[ok]
    half = r * np.sqrt(h * h + (d - r) * (d + r))
    lead = (d - r) * (d + r)
    lower[ok] = np.clip((h * d - half) / lead, -1.0, 1.0)
    upper[ok] = np.clip((h * d + half) / lead, -1.0, 1.0)
    return lower, upper


# --- regions ----------------------------------------------------------------------------------------------------------
