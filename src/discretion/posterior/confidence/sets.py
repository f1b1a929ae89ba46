"""Inner and outer sets of the map without noise, and the places where its maximum lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from discretion.posterior.confidence.bands import mean_bands
from discretion.posterior.confidence.sums import Mask, local_mean, released_sums, threshold_field
from discretion.posterior.confidence.suprema import (
    BLOCK,
    blocks,
    fresh,
    pointwise_quantile,
    simulated_suprema,
    supremum_quantile,
)
from discretion.posterior.layout import Floats, Normals

Kind = Literal[">", "<", "=", "!="]

KINDS: tuple[Kind, ...] = (">", "<", "=", "!=")


@dataclass(frozen=True, eq=False)
class ExcursionSets:
    """Two sets with the non-private one between them: inner within it, outer around it, with the stated confidence.

    Attributes
    ----------
    inner, outer : boolean arrays
        In the shape of the map.
    kind : str
        One of ">", "<", "=", "!="; see `excursion_sets`.
    threshold : float
    level : float
        Confidence that both statements hold, at all places together (or at each place, if not ``simultaneous``).
    quantile : float
        q, in units of ``scale``.
    scale : float
        Noise scale of the field: s sqrt(1 + ((c - t) / M)^2).
    simultaneous : bool
    """

    inner: Mask
    outer: Mask
    kind: Kind
    threshold: float
    level: float
    quantile: float
    scale: float
    simultaneous: bool

    @property
    def undecided(self) -> Mask:
        """Places in the outer and not in the inner set."""
        return self.outer & ~self.inner


def excursion_sets(
    release: Any,
    threshold: float | Sequence[float],
    kind: Kind = ">",
    level: float = 0.95,
    *,
    simultaneous: bool = True,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Any:
    """Inner and outer sets of the non-private smoothed map F_t = sum_i (y_i - t) k(x_i, .), with known confidence.

    With H the released field of `threshold_field`, sigma its noise scale and q the quantile of the largest standardised
    noise, the kinds are those of R's ``excursions``:

    * ``">"``  positive excursions {F_t >= 0}: inner {H >= q sigma}, outer {H >= -q sigma};
    * ``"<"``  negative excursions {F_t <= 0}: inner {H <= -q sigma}, outer {H <= q sigma};
    * ``"!="`` contour avoiding set, where F_t has a certain sign: inner {|H| >= q sigma}; nothing can be left out of
      {F_t != 0}, so outer is everything;
    * ``"="``  contour credible set: outer {|H| < q sigma}, outside of which F_t is not 0; no place is certainly on the
      contour, so inner is empty.

    Where there are records nearby, F_t >= 0 says that the local mean of the clipped response is at least t. All four
    statements hold together when the standardised noise stays within q everywhere: with probability at least ``level``
    at all places at once (``simultaneous``), or at each place on its own (q the normal quantile, no simulation).
    Given several thresholds, one q covers all of them together, and a tuple of `ExcursionSets` is returned.
    Proof: ``docs/proofs/confidence-sets.md``, Theorem 1.

    Parameters
    ----------
    release : KernelSumRelease or ReleasedSums
    threshold : float or sequence of float
        In units of the response.
    kind : {">", "<", "=", "!="}
    level : float
    simultaneous : bool
    simulations : int
        Number B of simulated fields. The level is exact for every B; more of them make q vary less.
    randomness : Randomness or numpy Generator, optional
        Fresh numbers for the simulation; by default seeded by the system.
    region : boolean array, optional
        Public part of the map, chosen before the release is seen, to which the statements are confined. Outside, inner
        is False and outer is True.
    column, kernel : int
        Which response and which kernel of the release.

    Raises
    ------
    ValueError
        For an unknown kind, a level out of range, too few simulations, or a threshold other than the centre when no
        density was released.
    """
    sums = released_sums(release, column, kernel)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    several = np.ndim(threshold) > 0
    thresholds = [float(t) for t in np.atleast_1d(np.asarray(threshold, dtype=np.float64))]
    if not thresholds:
        raise ValueError("Give at least one threshold.")
    if simultaneous:
        ratios = [sums.ratio(t) for t in thresholds]
        suprema = simulated_suprema(sums.noise, simulations, randomness, ratios=ratios, region=region)
        q = supremum_quantile(suprema, level)
    else:
        q = pointwise_quantile(sums.noise, level)
    sets = []
    for t in thresholds:
        field, sigma = threshold_field(sums, t)
        inner, outer = _between(field / sigma, kind, q)
        if region is not None:
            inside = np.asarray(region).reshape(sums.shape)
            inner, outer = inner & inside, outer | ~inside
        sets.append(ExcursionSets(inner, outer, kind, t, float(level), q, sigma, simultaneous))
    return tuple(sets) if several else sets[0]


def _between(standard: Floats, kind: Kind, q: float) -> tuple[Mask, Mask]:
    if kind == ">":
        return standard >= q, standard >= -q
    if kind == "<":
        return standard <= -q, standard <= q
    sure = np.abs(standard) >= q
    if kind == "!=":
        return sure, np.ones_like(sure)
    return np.zeros_like(sure), ~sure


def excursion_function(
    release: Any,
    threshold: float,
    kind: Kind = ">",
    *,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Floats:
    """The largest simultaneous level at which each place lies in the inner set (for "=", outside of the outer set).

    The excursion function of Bolin and Lindgren 2015: {excursion_function >= level} is the inner set at that level, for
    every level at once from the same simulations. With B suprema S_b it is #{S_b <= x} / (B + 1), x the standardised
    field in the direction of the kind. Values lie in [0, B / (B + 1)], 0 outside of the region.

    Parameters as in `excursion_sets`, with one threshold.

    Raises
    ------
    ValueError
        As there.
    """
    sums = released_sums(release, column, kernel)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    field, sigma = threshold_field(sums, threshold)
    standard = field / sigma
    standard = {">": standard, "<": -standard}.get(kind, np.abs(standard))
    suprema = np.sort(simulated_suprema(sums.noise, simulations, randomness, region=region))
    levels = np.searchsorted(suprema, standard, side="right") / (simulations + 1)
    return levels if region is None else np.where(np.asarray(region).reshape(sums.shape), levels, 0.0)


# --- bands of the local mean ------------------------------------------------------------------------------------------


def argmax_set(
    release: Any,
    threshold: float | None = None,
    level: float = 0.95,
    *,
    of: Literal["sum", "mean"] = "sum",
    floor: float = 0.0,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Mask:
    """Places among which the maximum of the non-private map lies, with the stated confidence.

    ``of="sum"``: the maximum of F_t (t the centre by default). With R = max g - min g and r its simulated quantile, the
    set is {H >= max H - r sigma}.
    ``of="mean"``: the maximum of the local mean over the places of the support (`local_mean` with this floor); the set
    is that of the places whose simultaneous band reaches the largest lower end.
    Proof: ``docs/proofs/confidence-sets.md``, Theorem 3. Other parameters as in `excursion_sets`.

    Raises
    ------
    ValueError
        For a level out of range, too few simulations, or an empty support.
    """
    sums = released_sums(release, column, kernel)
    use = np.ones(sums.shape, dtype=bool) if region is None else np.asarray(region).reshape(sums.shape)
    if of == "mean":
        bands = mean_bands(sums, level, simulations=simulations, randomness=randomness, region=region)
        use = use & local_mean(sums, floor).support
        if not use.any():
            raise ValueError("No place has the density asked for: lower the floor, or use a wider kernel.")
        return use & (bands.upper >= bands.lower[use].max())
    if of != "sum":
        raise ValueError(f"of must be 'sum' or 'mean'; got {of!r}.")
    field, sigma = threshold_field(sums, sums.centre if threshold is None else threshold)
    source, ranges = fresh(randomness), np.empty(simulations)
    for start, stop in blocks(simulations, max(1, BLOCK // sums.noise.size)):
        ranges[start:stop] = np.ptp(sums.noise.draw(stop - start, source)[:, use.ravel()], axis=1)
    return use & (field >= field[use].max() - supremum_quantile(ranges, level) * sigma)
