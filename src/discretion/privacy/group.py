"""Group privacy: what a release tells about several records at once.

A loss bounds what a release tells when one record changes. Between data sets that differ in up to K records lies a
chain of K such changes, with laws P_0, ..., P_K. Proofs: `docs/proofs/group-privacy.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .loss import BoundedRange, Composition, GaussianDP, PrivacyLoss, PureDP, RenyiCurve
from .loss.curve import RenyiTable
from .profiles import BestOf, LaplaceDP, PrivacyProfile

__all__ = ["MOST_IN_A_GROUP", "group_loss", "group_renyi"]

Array = NDArray[np.float64]

MOST_IN_A_GROUP = 10_000
"""Largest group. Beyond, nothing of use is promised and the chains get long."""

_UP = 1.0 + 2.0**-50
_SPACING = 0.03  # of the orders of a table, in logarithms: chords lie within 1 in 10,000 of the curve
_LEAST, _GREATEST = 1e-5, 1e7
_SLOPES = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 13)])
_ZOOM = np.linspace(-1.0, 1.0, 9)
_HALVINGS = 36
_STEPS = np.concatenate([[0.0], np.geomspace(1e-4, 10.0, 47)])


def group_loss(loss: PrivacyLoss, size: int) -> PrivacyLoss:
    """The loss for data sets that differ in up to `size` records, each change of one record of the loss's own kind.

    Every data set on the way must be one of those that the loss speaks of.

    =========================  ======================================================================================
    mu-Gaussian DP             K mu, exact (Dong, Roth and Su 2022, Theorem 2.14)
    pure DP, bounded range     K epsilon
    Laplace noise              K epsilon, exact
    Renyi curves               Mironov 2017, Proposition 11, chained with the best orders: `group_renyi`
    privacy profiles           the trade-off function K times over itself, by tangents; and the Renyi bound
    compositions, several      part by part
    bounds of one mechanism
    =========================  ======================================================================================

    Args:
        loss: of the replacement, addition or removal of one record.
        size: K, a whole number from 1 to 10,000.

    Returns:
        A loss with the same `neighbours`, to be read as: up to K such changes at once.

    Raises:
        ValueError: size out of range.

    Proof: `docs/proofs/group-privacy.md`.
    """
    if isinstance(size, bool | np.bool_) or not isinstance(size, Integral) or not 1 <= size <= MOST_IN_A_GROUP:
        raise ValueError(f"The size of a group is a whole number from 1 to {MOST_IN_A_GROUP:,}, not {size!r}.")
    return loss if size == 1 else _grouped(loss, int(size))


@singledispatch
def _grouped(loss: PrivacyLoss, size: int) -> PrivacyLoss:
    curve = _curve(loss, size)
    return BestOf((curve, _profile(loss, size))) if loss._exact_profile else curve


@_grouped.register
def _(loss: GaussianDP, size: int) -> PrivacyLoss:
    return replace(loss, mu=size * loss.mu * _UP, rule=_named(loss, size))


@_grouped.register(PureDP)
@_grouped.register(BoundedRange)
@_grouped.register(LaplaceDP)
def _(loss: Any, size: int) -> PrivacyLoss:
    return replace(loss, epsilon_value=size * loss.epsilon_value * _UP, rule=_named(loss, size))


@_grouped.register
def _(loss: Composition, size: int) -> PrivacyLoss:
    return Composition(tuple((_grouped(part, size), count) for part, count in loss.parts))


@_grouped.register
def _(loss: BestOf, size: int) -> PrivacyLoss:
    return BestOf(tuple(_grouped(part, size) for part in loss.parts))


def _named(loss: PrivacyLoss, size: int) -> str:
    return f"group of {size}: {loss._renyi_rule(1.0)}"


# --- Renyi curves -----------------------------------------------------------------------------------


def group_renyi(renyi: Callable[[Array], Array], excess: Array, size: int) -> Array:
    r"""Bound of the Renyi divergence over a chain of `size` changes, at each excess order.

    Hoelder's inequality along the chain (Mironov 2017, Proposition 11, applied `size - 1` times) gives, for every
    choice of orders a_1, ..., a_K,

    .. math::

        D_\alpha(P_0 \| P_K) \le \sum_i D_{a_i}(P_{i-1} \| P_i) \prod_{j>i} \frac{a_j}{a_j - 1},
        \qquad \prod_i \Bigl(1 - \frac1{a_i}\Bigr) = 1 - \frac1\alpha

    Here a_i = a_1 + (i-1) s, and the best s >= 0. Two changes: nothing is lost by that. Gaussian curves: the best is
    s = 1, and exact.

    Args:
        renyi: bounds at an array of positive excess orders, of any shape; infinite where there is none.
        excess: positive and finite, shape (k,).
        size: K >= 1.
    """
    log_w = -np.log1p(1.0 / excess)[:, None]

    def bound(slope: Array) -> Array:
        """At slopes (k, q): the chain's first excess order by bisection, rounded up; then the sum."""
        steps = np.arange(size, dtype=np.float64)

        def miss(first: Array) -> Array:
            return -np.log1p(1.0 / (first[..., None] + slope[..., None] * steps)).sum(axis=-1) - log_w

        # All orders equal, or all but the first infinite: the first lies between.
        low = np.broadcast_to(np.log(excess)[:, None], slope.shape)
        high = np.broadcast_to(np.log(1.0 / np.expm1(-log_w / size)) + 1e-9, slope.shape)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = miss(np.exp(middle)) >= 0.0
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        orders = np.exp(high)[..., None] + slope[..., None] * steps
        logs = np.log1p(1.0 / orders)
        # product over j > i of a_j / (a_j - 1)
        weights = np.exp(logs.sum(axis=-1, keepdims=True) - np.cumsum(logs, axis=-1))
        found = (weights * renyi(orders)).sum(axis=-1) * (1.0 + (size + 8) * 2.0**-52)
        return np.where(np.isnan(found) | (miss(np.exp(high)) < 0.0), np.inf, found)

    slopes = np.broadcast_to(_SLOPES, (len(excess), len(_SLOPES)))
    width = math.log(_SLOPES[2] / _SLOPES[1])
    values = bound(slopes)
    for _ in range(2):
        best = np.take_along_axis(slopes, np.argmin(values, axis=1)[:, None], axis=1)
        around = best * np.exp(width * _ZOOM)
        width *= _ZOOM[1] - _ZOOM[0]
        near = bound(around)
        slopes, values = np.concatenate([slopes, around], axis=1), np.concatenate([values, near], axis=1)
    return values.min(axis=1)


def _curve(loss: PrivacyLoss, size: int) -> RenyiCurve:
    """The bounds of `group_renyi` as a table; between its orders the chords of `docs/proofs/renyi-table.md` hold.

    K single changes at orders below S + 1 reach those whose excess is below 1 / ((1 + 1/S)^K - 1).
    """
    # A loss may be slow to ask, and is asked a hundred thousand times.
    excess = _orders(loss.supremum)
    single = _tabled(excess, np.maximum.accumulate(loss.renyi_excess(excess)), loss.renyi_excess(math.inf))
    supremum = single.supremum
    if math.isfinite(supremum):
        supremum = 1.0 / math.expm1(min(size * math.log1p(1.0 / supremum), 700.0))
    excess = _orders(supremum)

    def bounds(orders: Array) -> Array:
        return np.where(orders < single.supremum, single(orders), np.inf)

    # A bound at one order is a bound at every smaller one.
    values = np.minimum.accumulate(group_renyi(bounds, excess, size)[::-1])[::-1]
    limit = math.inf if single.limit is None else size * single.limit
    table = _tabled(excess, np.minimum(values, limit), limit)
    return RenyiCurve(table, table.supremum, neighbours=loss.neighbours, rule=_named(loss, size))


def _orders(supremum: float) -> Array:
    """Excess orders from 1e-5 to 1e7, or as near to the supremum, in steps of 3 per cent."""
    if math.isinf(supremum):
        return np.geomspace(_LEAST, _GREATEST, math.ceil(math.log(_GREATEST / _LEAST) / _SPACING))
    low, high = math.log(_LEAST) - max(math.log(supremum), 0.0), -math.log(_LEAST)
    return supremum / (1.0 + np.exp(-np.linspace(low, high, math.ceil((high - low) / _SPACING))))


def _tabled(excess: Array, values: Array, limit: float) -> RenyiTable:
    kept = np.isfinite(values)
    raised = values[kept] * (1.0 + 1e-12)
    last = limit * (1.0 + 2e-12)
    return RenyiTable(tuple(excess[kept].tolist()), tuple(raised.tolist()), last if math.isfinite(last) else None)


# --- Privacy profiles -------------------------------------------------------------------------------


def _profile(loss: PrivacyLoss, size: int) -> PrivacyProfile:
    """The profile over a chain of `size` changes, from that of one.

        delta_K(e_1 + ... + e_K) <= sum_i exp(e_1 + ... + e_(i-1)) delta(e_i),   e_i any real numbers,

    with delta(-e) = 1 - exp(-e) (1 - delta(e)). Here e_i rises by equal steps, and the best step; for Gaussian noise
    that is exact.
    """
    own = size * np.asarray(loss.epsilons) if isinstance(loss, PrivacyProfile) else np.empty(0)
    total = np.unique(np.concatenate([[0.0], np.geomspace(1e-3, 300.0, 160), own]))
    places = np.arange(size) - 0.5 * (size - 1)
    best = np.ones(total.shape)
    for step in _STEPS:
        each = total[:, None] / size + step * places
        likelier = np.exp(np.minimum(np.cumsum(each, axis=1) - each, 700.0))
        away = np.abs(each)
        deltas = loss._profile(away.ravel()).reshape(each.shape)
        signed = np.where(each < 0.0, -np.expm1(-away) + np.exp(-away) * deltas, deltas)
        found = (likelier * signed).sum(axis=1) * (1.0 + (size + 8) * 2.0**-52)
        best = np.minimum(best, np.where(np.isnan(found), 1.0, found))
    best = np.minimum.accumulate(best)
    return PrivacyProfile(
        tuple(total.tolist()), tuple(best.tolist()), neighbours=loss.neighbours, rule=_named(loss, size)
    )
