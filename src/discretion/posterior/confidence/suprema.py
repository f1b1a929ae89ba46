"""The largest noise of a map: simulated from its public law, and quantiles that hold at an exact level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtri

from discretion.posterior.confidence.sums import Mask
from discretion.posterior.layout import Floats, NoiseField, Normals

BLOCK = 1 << 22  # float64 entries of one block of simulated fields, 32 MB


def fresh(randomness: Normals | None) -> Normals:
    # no secret hangs on these numbers, they only have to be fresh: a fast generator seeded by the system will do
    return np.random.default_rng() if randomness is None else randomness


# --- the public law ---------------------------------------------------------------------------------------------------


def simulated_suprema(
    noise: NoiseField,
    simulations: int,
    randomness: Normals | None = None,
    *,
    ratios: Sequence[float] | None = (0.0,),
    region: Mask | None = None,
) -> Floats:
    """Independent draws of the largest standardised noise over the places, shape (simulations,).

        max over places and a in ratios of |g_1 + a g_2| / sqrt(1 + a^2),

    g_1, g_2 independent fields with the nugget. With ``ratios=None``, over all real a: max sqrt(g_1^2 + g_2^2).
    ``region`` restricts the places; it must be public and chosen before the release is seen. ``randomness`` as in
    `excursion_sets`. ValueError for a region of another shape or without a place, or no simulation.
    """
    source = fresh(randomness)
    use = np.ones(noise.size, dtype=bool) if region is None else np.asarray(region).ravel()
    if use.dtype != bool or use.size != noise.size or not use.any():
        raise ValueError(f"region must be a boolean array of {noise.size} places, not all False.")
    if simulations < 1:
        raise ValueError(f"simulations must be at least 1; got {simulations!r}.")
    single = ratios is not None and len(ratios) == 1
    found = np.empty(simulations)
    for start, stop in blocks(simulations, max(1, BLOCK // noise.size)):
        first = noise.draw(stop - start, source)[:, use]
        if single:  # (g_1 + a g_2) / sqrt(1 + a^2) has the law of g_1
            found[start:stop] = np.abs(first).max(axis=1)
            continue
        second = noise.draw(stop - start, source)[:, use]
        if ratios is None:
            found[start:stop] = np.hypot(first, second).max(axis=1)
            continue
        sup = [np.abs(first + float(a) * second).max(axis=1) / math.hypot(1.0, float(a)) for a in ratios]
        found[start:stop] = np.max(sup, axis=0)
    return found


def blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)


def supremum_quantile(suprema: Floats, level: float) -> float:
    """The ceil(level (B + 1))-th smallest of B simulated suprema.

    A further draw of the same law is at most this with probability ceil(level (B + 1)) / (B + 1) >= level, whatever B
    (exchangeability; ``docs/proofs/confidence-sets.md``, Lemma 1).

    Raises
    ------
    ValueError
        If B is too small for the level: it takes B >= level / (1 - level).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    rank = math.ceil(level * (len(suprema) + 1) * (1.0 - 1e-15))
    if rank > len(suprema):
        least = math.ceil(level / (1.0 - level))
        raise ValueError(f"{len(suprema)} simulations are too few for level {level}: use {least} or more.")
    return float(np.partition(suprema, rank - 1)[rank - 1])


# --- excursion sets ---------------------------------------------------------------------------------------------------


def pointwise_quantile(noise: NoiseField, level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    return noise.sd * float(ndtri(0.5 * (1.0 + level)))
