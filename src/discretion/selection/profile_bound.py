r"""The profile bound of private selection: `delta(epsilon)` of the best of K runs, from the profile of one run.

With f the generating function of K, t the trade-off curve of one run and

    psi(x) = sup over s in [0, 1] of ( f'(1 - s) - x f'(1 - t(s)) )_+

the best of K runs has, for every a >= 1,

    H_a(best || best') <= E_Q psi(a dQ'/dQ) = psi(inf) + sum over kinks b of psi of  kappa b H_(a/b)(Q || Q'),

kappa the change of slope at b: a mixture of the run's own profile at other orders, so that bounds of the latter will
do. psi is convex, does not increase, psi(0) = E K, and vanishes from e^c on, c the largest of log f'(1 - s)/f'(1 -
t(s)).
Proof: `docs/proofs/selection-profile.md`.

Where a run's candidate is proposed in view of earlier runs, within a box of densities [c, C], read C f'(1 - c s) for
f'(1 - s) and c f'(max(1 - C t, c (1 - t))) for f'(1 - t). Proof: `docs/proofs/selection-adaptive.md`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from discretion.privacy import PrivacyProfile
from discretion.privacy.loss import Neighbours
from discretion.selection.proposals import FIXED, DensityBox
from discretion.selection.repetitions import Repetitions
from discretion.selection.trade_off import Pair, TradeOff

__all__ = ["RankCurve", "profile_bound", "rank_curve", "selection_deltas"]

Array = NDArray[np.float64]

_COARSE = np.concatenate([np.arange(-38.0, -12.0, 2.0), np.linspace(-12.0, 6.0, 181)])
_CELLS = 2000
_ROUNDING = 1e-10
_LATTICE = 1600
_LOWEST = 4.0
_LARGEST = 200.0


class RankCurve(NamedTuple):
    """Corners above the curve s -> (f'(1 - s), f'(1 - t(s))): `u` not below the one, `v` not above the other.

    A function that increases with u, decreases with v and is convex in (u, v) is on the curve at most what it is at
    one of the corners.
    """

    u: Array
    v: Array

    @property
    def log_ratio(self) -> float:
        """c, the largest of log u/v; inf where v reaches 0 first."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratio = np.where(self.u > 0, self.u / self.v, 0.0)
        return float(np.log(np.max(ratio)))


def _curve(law: Repetitions, box: DensityBox, s: Array, t: Array) -> tuple[Array, Array]:
    """The curve at ranks s and t."""
    u = box.high * law.derivative(box.low * s)
    return u, box.low * law.derivative(np.minimum(box.high * t, (1 - box.low) + box.low * t))


def _ranks(law: Repetitions, trade_off: TradeOff, cells: int, box: DensityBox) -> Array:
    """Normal quantiles of s between which the curve's logarithms and the quantile itself change alike."""
    u, v = _curve(law, box, ndtr(_COARSE), np.clip(trade_off(_COARSE), 0.0, 1.0))
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log([u, v]), -700.0)
    length = np.where(_COARSE[1:] <= -12.0, 0.1, 1.0) * np.diff(_COARSE) + np.abs(np.diff(logs)).sum(axis=0)
    along = np.append(0.0, np.cumsum(length))
    inner = np.interp(np.linspace(0.0, along[-1], cells), along, _COARSE)
    return np.concatenate([[-np.inf], inner, [np.inf]])


def rank_curve(law: Repetitions, trade_off: TradeOff, cells: int = _CELLS, box: DensityBox = FIXED) -> RankCurve:
    """The curve of a law of K over a trade-off curve, enclosed from above.

    Both coordinates are convex in s. In each cell of a grid the first therefore lies below its chord, the second
    above the prolonged chords of the two neighbouring cells: the corners are the nodes and the points where those
    chords meet. The excess is of second order in the width of the cells; rounding is made up for.

    Args:
        law: the law of K.
        trade_off: concave upper bound of t.
        cells: number of cells.
        box: of adaptive proposals.
    """
    ranks = _ranks(law, trade_off, cells, box)
    s, t = ndtr(ranks) * (1 - 1e-12), np.clip(trade_off(ranks), 0.0, 1.0)
    slack = _ROUNDING + 100 * law.rounding
    u, v = _curve(law, box, s, np.maximum(t, s))
    u, v = u * (1 + slack), v * (1 - slack)
    v = np.minimum.accumulate(v)
    gap = np.diff(s)
    with np.errstate(all="ignore"):
        slope = np.diff(v) / gap
        before, after = np.append(np.nan, slope[:-1]), np.append(slope[1:], np.nan)
        # where the prolonged chords meet, as a share of the cell
        share = (np.diff(v) - after * gap) / ((before - after) * gap)
        met = v[:-1] + before * gap * share
        wide = 1 + gap / np.append(np.inf, gap[:-1]) + gap / np.append(gap[1:], np.inf)
        met = np.maximum(met - 4 * slack * v[:-1] * wide, v[1:])
        sound = (share >= 0) & (share <= 1) & np.isfinite(met) & (before <= after)
        chord = u[:-1] + np.diff(u) * share
    u_met, v_met = np.where(sound, chord, u[:-1]), np.where(sound, met, v[1:])
    return RankCurve(np.concatenate([u, u_met]), np.concatenate([v, v_met]))


def selection_deltas(pair: Pair, law: Repetitions, box: DensityBox = FIXED) -> tuple[Array, Array]:
    """Upper bounds of the profile of the best of K runs, for one order of the pair, on a lattice of epsilons from 0 on.

    The convex function psi is replaced by chords between the points of the same lattice in log x, which lie above it.

    Returns:
        epsilons, shape (n,), and deltas there.
    """
    curve = rank_curve(law, pair.trade_off, box=box)
    reach, c = pair.reach, curve.log_ratio
    top = min(c, _LARGEST)
    step = (reach + top) / _LATTICE
    steps = max(math.ceil(top / step), 1)
    if top > step:
        step = top / steps  # psi vanishes at a point of the lattice
    low = math.ceil(min(reach, _LOWEST) / step) + 1
    knots = np.exp(step * np.arange(-low, steps + 1))
    values = np.array([np.max(curve.u - x * curve.v) for x in knots.tolist()])
    values = np.maximum(values, 0.0)
    last = 0.0 if c <= _LARGEST else float(values[-1])
    values[-1] = last
    values = np.minimum.accumulate(values)
    slopes = np.diff(np.append(float(np.max(curve.u)), values)) / np.diff(np.append(0.0, knots))
    weights = np.maximum(np.diff(np.append(slopes, 0.0)), 0.0) * knots
    count = math.ceil((reach + top) / step) + 1
    lattice = step * np.arange(-steps, count + low + 1)
    base = pair.profile(lattice - 4e-16 * np.abs(lattice))
    deltas: Array = np.asarray((last + np.convolve(base, weights, "valid")) * (1 + 1e-11), dtype=np.float64)
    epsilons: Array = step * np.arange(count + 1, dtype=np.float64)
    return epsilons, np.minimum(deltas, 1.0)


def profile_bound(
    pairs: tuple[Pair, ...], law: Repetitions, neighbours: Neighbours, rule: str, box: DensityBox = FIXED
) -> PrivacyProfile:
    """The larger of the two orders of the pair, as a table of (epsilon, delta) guarantees."""
    found = [selection_deltas(pair, law, box) for pair in pairs]
    epsilons, deltas = found[0]
    for other, more in found[1:]:
        # a profile does not increase: the bound at the next smaller node of the other lattice holds
        place = np.searchsorted(other, epsilons, side="right") - 1
        deltas = np.maximum(deltas, more[place])
    return PrivacyProfile(tuple(epsilons), tuple(deltas), neighbours=neighbours, rule=rule)
