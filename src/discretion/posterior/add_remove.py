r"""What posterior sample paths cost where one record more or fewer is the change, so that their number is private.

Given the core, the n - 1 records that both data sets hold, a record (x, y) acts on a path through f(x) alone, so the
pair of releases is one-dimensional. With ``v = C(x, x)`` and ``s = y - m(x)`` (C, m the core's posterior kernel and
mean), in units of the standard deviation without the record,

.. math::

    \text{without: } N(0, 1), \qquad \text{with: } N(\delta, 1 - a), \qquad
    a = \frac{v}{r^2+v}, \quad \delta = \frac{|s|\sqrt{a(1-a)}}{r\sigma}

The Renyi divergence of the law without from the law with the record is the larger of the two and convex in
``(a, delta)``; under every assumption the admissible ``(a, delta)`` lie below a concave curve. So its supremum is at
most the largest value at the vertices of a polygon around that curve, one polygon for every order and scale.

Nothing here depends on the number of records, the domain or the least kernel: a core may be empty (v = 1). Bounded
responses need a public bound of that number, ``most_records``.

Proofs in ``docs/proofs/add-remove.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Diagonal,
    Exponential1D,
    RecordAssumption,
    Separated,
)
from discretion.posterior.divergence import variance_pair_divergence
from discretion.posterior.sensitivity import ROUND_UP, Array, checked, checked_count, checked_ridge
from discretion.privacy.calibration import Unreachable, smallest
from discretion.privacy.loss import Neighbours, PrivacyLoss, RenyiCurve

__all__ = [
    "add_remove_delta",
    "add_remove_epsilon",
    "add_remove_loss",
    "calibrate_add_remove",
    "record_divergence",
    "record_profile",
]

RULE = "add/remove: exact pair of one record, worst case over all cores"

_NODES = 2048
_CELLS = 8192
_POLE = 1e-13
_ROUNDING = 2.0**-46


# --- one pair -------------------------------------------------------------------------------------


def record_divergence(excess: ArrayLike, ratio: ArrayLike, distance: ArrayLike) -> Array:
    r"""Renyi divergence of order ``1 + excess`` of the law without a record from the law with it.

    .. math::

        D_\alpha = -\tfrac12\log(1+\tau) - \frac{\log(1-(\alpha-1)\tau)}{2(\alpha-1)}
                   + \frac{\alpha\,\delta^2\,(1+\tau)}{2(1-(\alpha-1)\tau)}

    The other direction is never larger.

    Parameters
    ----------
    excess : array >= 0
        ``alpha - 1``; infinite at and above ``1 / ratio``.
    ratio : array > 0
        ``tau = v / r^2``: the variance without the record is ``1 + tau`` times that with it.
    distance : array >= 0
        Distance delta of the means in standard deviations of the law without the record.

    Notes
    -----
    Rounded up by a relative ``2^-46 / (1 - excess ratio)``. Proof in ``docs/proofs/add-remove.md``.
    """
    e, tau = np.asarray(excess, dtype=np.float64), np.asarray(ratio, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gap = 1.0 - e * tau
        inside = gap > _POLE
        gap = np.where(inside, gap, 1.0)
        mean = 0.5 * (1.0 + e) * np.square(distance) * (1.0 + tau) / gap
        value = variance_pair_divergence(np.where(inside, e, 0.0), 1.0 + tau) + mean
        value += _ROUNDING * value / gap
    return np.where(inside & ~np.isnan(value), value, np.inf)


def record_profile(epsilon: ArrayLike, ratio: ArrayLike, distance: ArrayLike) -> tuple[Array, Array]:
    r"""Exact ``delta(epsilon)`` of one path: of the law without the record against that with it, and the reverse.

    The law without the record is the likelier by ``e^eps`` outside an interval, the law with it inside one; the ends
    are the roots of ``a t^2 - 2 delta t + delta^2 - (1-a)(log(1+tau) +- 2 eps)``. Parameters as in
    :func:`record_divergence`, ``epsilon >= 0``. Rounded up; not a number counts as 1. Proof in
    ``docs/proofs/add-remove.md``.
    """
    eps, tau, d = (np.asarray(each, dtype=np.float64) for each in (epsilon, ratio, distance))
    rest, log_ratio = 1.0 / (1.0 + tau), np.log1p(tau)
    a, root = tau * rest, np.sqrt(rest)

    def ends(shift: Array) -> tuple[Array, Array, Array, Array]:
        """Both roots in standard deviations of the law without the record, and of the law with it."""
        rho = np.sqrt(rest * (np.square(d) + a * shift))
        low, high = (np.square(d) - rest * shift) / (d + rho), (d + rho) / a
        near = -root * (np.square(d) + shift) / (d * rest + rho)
        return low, high, near, (d * rest + rho) / (a * root)

    with np.errstate(all="ignore"):
        likelier = np.exp(eps)
        low, high, near, far = ends(log_ratio + 2.0 * eps)
        without = _raised(ndtr(low) + ndtr(-high), likelier * (ndtr(near) + ndtr(-far)))
        low, high, near, far = ends(log_ratio - 2.0 * eps)
        inside = _raised(ndtr(-near) - ndtr(-far), likelier * (ndtr(-low) - ndtr(-high)))
        real = np.square(d) + a * (log_ratio - 2.0 * eps) > 0.0
    return without, np.where(real, inside, 0.0)


def _raised(first: Array, second: Array) -> Array:
    """``first - second`` and an allowance for the rounding of both, in [0, 1]."""
    value = first - second + 1e-12 * (first + second)
    return np.where(np.isnan(value), 1.0, np.clip(value, 0.0, 1.0))


# --- what a record can do -------------------------------------------------------------------------


@dataclass(frozen=True)
class Polygon:
    """Vertices of a polygon around all ``(a, |s| sqrt(a (1-a)))`` that an assumption allows; arrays (K,).

    ``x = (1 + r^2) a`` ascends to 1, which is ``v = 1``; ``ratio`` is ``tau = v / r^2``; ``height``, in units of the
    response, bounds ``|s| sqrt(a (1-a))`` by the chord of the two nodes before.
    """

    x: Array
    ratio: Array
    height: Array

    @classmethod
    def around(cls, assumption: RecordAssumption, ridge: float, most_records: float, nodes: int) -> Polygon:
        """The polygon with ``nodes`` vertices. A concave curve lies below each of its chords, prolonged."""
        q = ridge * ridge
        # 1 / (r^2 + N) <= a; nodes gather at both ends, where the curve is steep
        least = min((1.0 + q) / (most_records + q), 0.5)
        t = np.linspace(0.0, 1.0, nodes)
        up, down = t**4, t[::-1] ** 4
        x, y = least + (1.0 - least) * (up / (up + down)), (1.0 - least) * (down / (up + down))
        h = _curve(assumption, ridge, most_records, x, y)
        step = np.where(t[1:] < 0.5, np.diff(x), -np.diff(y))
        slope = np.diff(h) / step
        height = np.concatenate([h[1:2] - slope[1] * step[0], h[1:2], h[1:-1] + slope[:-1] * step[1:]])
        return cls(x, x / (q + y), np.maximum(height, h) * ROUND_UP)

    def largest(self) -> Polygon:
        """The vertices that are not below another one in both coordinates."""
        part = slice(int(np.argmax(self.height)), None)
        return Polygon(self.x[part], self.ratio[part], self.height[part])


def _curve(assumption: RecordAssumption, ridge: float, most_records: float, x: Array, y: Array) -> Array:
    r"""Largest ``|s| sqrt(a (1-a))`` at ``a = x / (1+r^2)``, ``y = 1 - x``: a concave function of x.

    With ``v = r^2 x / (r^2 + y)`` and N = ``most_records``, ``|s| <= M + b`` where b bounds the core's mean, by the
    smaller of what holds:

    ======================  =================================================
    any kernel              ``M sqrt((N-1) v (1-v)) / r``
    exponential on a line   ``M sqrt(1 - v^2)``
    diagonal                ``M (1 - v)``
    separated, sum R        ``M R / (1 + r^2 - R)``
    ======================  =================================================

    Responses of a function of RKHS norm B and noise M: ``|s| <= B sqrt(v) + M + b``.
    """
    q, M = ridge * ridge, assumption.largest_response
    graph = np.zeros_like(x)
    if isinstance(assumption, RKHS):
        M, graph = assumption.noise, assumption.norm * ridge * x / (1.0 + q)
    own = np.sqrt(x * (q + y)) / (1.0 + q)
    core = x * np.sqrt((most_records - 1.0) * y / ((1.0 + q) * (q + y)))
    if isinstance(assumption, Exponential1D):
        core = np.minimum(core, np.sqrt(x * y * (q + y + q * x) / ((1.0 + q) * (q + y))))
    elif isinstance(assumption, Diagonal):
        core = np.minimum(core, y * np.sqrt(x / (q + y)))
    elif isinstance(assumption, Separated) and assumption.packing < 1.0 + q:
        core = np.minimum(core, assumption.packing / (1.0 + q - assumption.packing) * own)
    return graph + M * (own + core)


def _checked(ridge: ArrayLike, scale: ArrayLike, assumption: Assumption, most_records: ArrayLike) -> RecordAssumption:
    checked_ridge(float(np.asarray(ridge)))
    checked("scale", float(np.asarray(scale)), finite=False)
    checked_count("most_records", float(np.asarray(most_records)))
    if not isinstance(assumption, RecordAssumption):
        raise ValueError(
            f"{type(assumption).__name__} has no account under add/remove neighbours: with public covariates the "
            "number of records is public too."
        )
    return assumption


# --- the worst case -------------------------------------------------------------------------------


def add_remove_loss(
    *, ridge: float, scale: float, assumption: Assumption, most_records: int, paths: int = 1
) -> PrivacyLoss:
    """The privacy loss of releasing ``paths`` posterior sample paths, under add/remove neighbours.

    Parameters
    ----------
    ridge : float > 0
        r, with the jitter of the Gram matrix in it.
    scale : float > 0
        Posterior scale sigma; infinite: the centred path alone.
    assumption : Assumption
        What is assumed of the records of every data set.
    most_records : int >= 1
        Public bound N of the number of records: the account is for data sets of at most so many. Bounded responses
        under a general kernel cost about ``sqrt(N)``; the other assumptions hardly depend on it.
    paths : int >= 1
        Number of independent paths L from the same records.

    Returns
    -------
    PrivacyLoss
        A Renyi curve, L times that of one path; orders up to ``1 + ridge^2``. It is within 0.2 per cent of the
        supremum over what the bounds of the mean allow. Noise added to a path is post-processing and changes nothing.

    Raises
    ------
    ValueError
        If a parameter is out of range, or under ``ResponseOnly``.

    Notes
    -----
    Proof in ``docs/proofs/add-remove.md``.
    """
    held = _checked(ridge, scale, assumption, most_records)
    count = int(checked_count("paths", paths))
    around = Polygon.around(held, float(ridge), float(most_records), _NODES).largest()
    curve = _RecordCurve(around.ratio, _distance(around.height, float(ridge), float(scale)))
    return count * RenyiCurve(curve, float(ridge) ** 2, neighbours=Neighbours.ADD_REMOVE, rule=RULE)


@dataclass(frozen=True, eq=False)
class _RecordCurve:
    """Largest divergence at the vertices, at each excess order."""

    ratio: Array
    distance: Array

    def __call__(self, excess: Array) -> Array:
        return record_divergence(excess[:, None], self.ratio, self.distance).max(axis=1)


def add_remove_delta(epsilon: float, *, ridge: float, scale: float, assumption: Assumption, most_records: int) -> float:
    """Certified ``delta(epsilon)`` of one path from the exact privacy profile; parameters as in `add_remove_loss`.

    The pair ``(a, delta)`` is made from ``(a', delta sqrt(a'/a))``, ``a' > a``, by noise. So the pairs of a cell of a
    are no easier to tell apart than one pair at its upper end. Both directions.
    """
    held = _checked(ridge, scale, assumption, most_records)
    eps = float(checked("epsilon", epsilon, strict=False))
    return float(np.max(record_profile(eps, *_cells(held, float(ridge), float(scale), float(most_records)))))


def _cells(assumption: RecordAssumption, ridge: float, scale: float, most_records: float) -> tuple[Array, Array]:
    """``(ratio, distance)`` of one pair for each cell, which dominates all pairs of the cell."""
    edge = Polygon.around(assumption, ridge, most_records, _CELLS)
    height = np.maximum(edge.height[:-1] * np.sqrt(edge.x[1:] / edge.x[:-1]), edge.height[1:])
    return edge.ratio[1:], _distance(height, ridge, scale)


def _distance(height: Array, ridge: float, scale: float) -> Array:
    """Distance of the means in standard deviations of the law without the record."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return height * ROUND_UP / ridge / scale


def add_remove_epsilon(
    *, ridge: float, scale: float, delta: float, assumption: Assumption, most_records: int, paths: int = 1
) -> float:
    """Epsilon of ``paths`` posterior sample paths at ``delta`` in (0, 1), under add/remove neighbours.

    Of several paths that of :func:`add_remove_loss`; of one path the smaller of it and of the exact profile
    (:func:`add_remove_delta`), checked at the epsilon returned. Other parameters as in :func:`add_remove_loss`.
    """
    rare = float(checked("delta", delta))
    if rare >= 1.0:
        raise ValueError("delta must lie strictly between 0 and 1: a posterior path has no pure guarantee.")
    loss = add_remove_loss(ridge=ridge, scale=scale, assumption=assumption, most_records=most_records, paths=paths)
    most = loss.epsilon(rare)
    if paths > 1 or not math.isfinite(most):
        return most
    cells = _cells(_checked(ridge, scale, assumption, most_records), float(ridge), float(scale), float(most_records))

    def meets(epsilon: float) -> bool:
        return bool(np.max(record_profile(epsilon, *cells)) <= rare)

    return smallest(meets, 0.0, most, relative_tolerance=1e-9) if meets(most) else most


def calibrate_add_remove(
    *, epsilon: float, delta: float, ridge: float, assumption: Assumption, most_records: int, paths: int = 1
) -> float:
    """The smallest scale at which :func:`add_remove_loss` meets ``(epsilon, delta)``, itself checked.

    Raises
    ------
    ValueError
        If a parameter is out of range, or no scale meets the target because the covariance alone costs more.
    """
    target = float(checked("epsilon", epsilon))

    def cost(scale: float) -> float:
        loss = add_remove_loss(ridge=ridge, scale=scale, assumption=assumption, most_records=most_records, paths=paths)
        return loss.epsilon(delta)

    least = cost(math.inf)
    if not least < target:
        raise Unreachable(
            f"epsilon {target:g} at delta {delta:g} cannot be reached by any scale: at ridge {ridge:g} the covariance "
            f"alone (an infinite scale) costs {least:.6g}. Raise the ridge, or release fewer paths."
        )
    held = _checked(ridge, math.inf, assumption, most_records)
    unit = float(Polygon.around(held, float(ridge), float(most_records), _NODES).height.max()) / ridge or 1.0
    return smallest(lambda scale: cost(scale) <= target, 1e-9 * unit, 1e15 * unit, relative_tolerance=1e-10)
