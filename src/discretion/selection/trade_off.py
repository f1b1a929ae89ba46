"""Trade-off curves: how likely an event can be under a neighbour.

For a pair of output laws (Q, Q'), the data and a neighbour of it, `t(s)` is the largest Q'(S) over (randomised)
events S with Q(S) = s; that is, one minus the trade-off function of Dong, Roth and Su (2022). It is concave, t(1)
is 1, and t(0) is the mass of Q' where Q has none. Every bound of private selection increases with t, so that any
concave upper bound of it may take its place. The argument is always w, the normal quantile of s = Phi(w), which
resolves masses down to 1e-315.

With `H_a(P || R) = sup over S of P(S) - a R(S)`, the profile at `a = e^epsilon`,

    t(s) = inf over a >= 0 of  a s + H_a(Q' || Q),      H_a(Q' || Q) = 1 - a + a H_{1/a}(Q || Q'),

so that profiles at `a >= 1` in both orders give all a, and any set of a gives an upper bound. Proofs:
`docs/proofs/selection-trade-off.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from discretion.privacy import Composition, GaussianDP, PrivacyLoss, PureDP
from discretion.privacy.composition import Profile, compose, discretise, dominating_pair, renyi_envelope
from discretion.privacy.profiles import BestOf

__all__ = [
    "Pair",
    "TradeOff",
    "below",
    "gaussian_trade_off",
    "pairs_of",
    "profile_trade_off",
    "pure_trade_off",
    "renyi_trade_off",
]

Array = NDArray[np.float64]
TradeOff = Callable[[Array], Array]
"""Upper bounds of t(Phi(w)) at a 1-D array of w, infinite ones included."""

_UNIT = 2.0**-52
_ROUNDING = 1e-13
_TAIL = 1e-45
_NODES = 3000
_LARGEST_ORDER = 1e5


@dataclass(frozen=True)
class Pair:
    """What is known of the laws (Q, Q') of one run, in one order of the neighbours.

    Attributes:
        forward: upper bounds of H_(e^epsilon)(Q || Q') at epsilons of at least 0.
        backward: the same of (Q' || Q).
        trade_off: upper bound of t(Phi(w)), the largest Q'-mass at Q-mass Phi(w).
    """

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    trade_off: TradeOff

    def profile(self, log_a: Array) -> Array:
        """Upper bounds of H_a(Q || Q') at any log a; below 0 by the identity H_a = 1 - a + a H'_(1/a)."""
        up, down = self.forward(np.maximum(log_a, 0.0)), self.backward(np.maximum(-log_a, 0.0))
        reflected = -np.expm1(np.minimum(log_a, 0.0)) + np.exp(np.minimum(log_a, 0.0)) * down + 4 * _UNIT
        return np.minimum(np.where(log_a >= 0, up, reflected), 1.0)

    @property
    def reach(self) -> float:
        """Epsilon from which on both profiles are next to nothing, or constant."""
        coarse = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 481)])
        found = np.maximum(self.forward(coarse), self.backward(coarse))
        return float(coarse[max(int(np.argmax(found <= max(_TAIL, float(found[-1]) * (1 + 1e-9)))), 1)])


def pairs_of(loss: PrivacyLoss) -> tuple[Pair, ...]:
    """The pair of a loss in each order of the neighbours; one where both orders have the same bounds.

    Gaussian and pure losses have exact curves; Renyi curves that of two outcomes; where several bounds hold the least
    of their curves; sums of losses the curve of their numerical composition; all other losses that of their profile.
    """
    if isinstance(loss, Composition) and (only := loss._only) is not None:
        return pairs_of(only)
    if isinstance(loss, BestOf):
        return _best_of([pairs_of(part) for part in loss.parts])
    if type(loss) is GaussianDP:
        curve = gaussian_trade_off(loss.mu)
    elif type(loss) is PureDP:
        curve = pure_trade_off(loss.epsilon_value)
    elif not loss._exact_profile and not (isinstance(loss, Composition) and loss._composes(True)):
        curve = renyi_trade_off(loss.renyi_excess, loss.supremum)
    else:
        return _of_profiles(_composed(loss) if isinstance(loss, Composition) else loss._profiles)
    # both orders alike; a Renyi curve builds its profile once
    profile = _one_way(loss)
    return (Pair(profile, profile, curve),)


def _one_way(loss: PrivacyLoss) -> Callable[[Array], Array]:
    if loss._exact_profile:
        return lambda epsilon: loss._profiles(epsilon)[0]
    envelope = renyi_envelope(loss.renyi_excess, loss.supremum)
    return lambda epsilon: envelope(epsilon)[0]


def _of_profiles(profiles: Profile) -> tuple[Pair, ...]:
    # Alike in both orders only where the loss says so itself, by one and the same array: values that agree at some
    # epsilons, or that underflow there, prove nothing.
    there, back = profiles(np.array([0.0, 1.0]))

    def forward(epsilon: Array) -> Array:
        return profiles(epsilon)[0]

    def backward(epsilon: Array) -> Array:
        return profiles(epsilon)[1]

    first = Pair(forward, backward, profile_trade_off(profiles))
    if there is back:
        return (first,)
    turned = profile_trade_off(lambda epsilon: (backward(epsilon), forward(epsilon)))
    return first, Pair(backward, forward, turned)


def _best_of(parts: list[tuple[Pair, ...]]) -> tuple[Pair, ...]:
    """The least of several bounds of one pair, in each order."""

    def least(pairs: list[Pair]) -> Pair:
        return Pair(
            lambda epsilon: np.min([pair.forward(epsilon) for pair in pairs], axis=0),
            lambda epsilon: np.min([pair.backward(epsilon) for pair in pairs], axis=0),
            lambda w: np.min([pair.trade_off(w) for pair in pairs], axis=0),
        )

    first = least([pairs[0] for pairs in parts])
    return (first,) if all(len(pairs) == 1 for pairs in parts) else (first, least([pairs[-1] for pairs in parts]))


# --- Closed forms -----------------------------------------------------------------------------------


def gaussian_trade_off(mu: float) -> TradeOff:
    """Of N(0, 1) and N(mu, 1): t(Phi(w)) = Phi(mu + w) (Dong, Roth and Su 2022)."""
    return lambda w: np.minimum(ndtr(w + mu) * (1 + _ROUNDING * (1 + np.minimum(np.square(w + mu), 1500.0))), 1.0)


def pure_trade_off(epsilon: float) -> TradeOff:
    """Of randomised response: t(s) = min(e^epsilon s, 1 - e^(-epsilon) (1 - s)), the largest under pure DP."""

    def curve(w: Array) -> Array:
        s, rest = ndtr(w), ndtr(-w)
        with np.errstate(over="ignore", invalid="ignore"):
            steep = np.exp(min(epsilon, 700.0)) * s * (1 + 16 * _ROUNDING * (1 + np.minimum(np.square(w), 1500.0)))
        return np.minimum(np.minimum(steep, 1 - math.exp(-epsilon) * rest * (1 - _ROUNDING)), 1.0)

    return curve


# --- From a profile ---------------------------------------------------------------------------------


def profile_trade_off(profiles: Profile) -> TradeOff:
    """From upper bounds of the profile of (Q, Q') and of (Q', Q): the least of the lines `a s + H_a(Q' || Q)`.

    The bounds are first lowered to the profile of one dominating pair (`docs/proofs/dominating-pair.md`), whose curve
    this is. A distribution of losses must not be used in its place: rounded upwards, it has lost mass of Q' and gives
    too small a t.
    """
    pair = Pair(lambda e: profiles(e)[0], lambda e: profiles(e)[1], lambda w: w)
    reach = min(pair.reach, 700.0)
    nodes = np.concatenate([[0.0], np.geomspace(1e-5 * reach, reach, 64), np.linspace(0, reach, _NODES)[1:]])
    nodes = np.unique(nodes)
    with np.errstate(all="ignore"):
        there, back = dominating_pair(nodes, *profiles(nodes * (1 - 4 * _UNIT)))
    # all a: e^-epsilon by reflection, then e^epsilon
    small, large = np.exp(-there.nodes[:0:-1]), np.exp(back.nodes)
    a = np.concatenate([[0.0], small, large])
    h = np.concatenate([[1.0], (1 - small) + small * there.values[:0:-1], back.values])
    slopes = np.maximum.accumulate(np.diff(h) / np.diff(a))

    def curve(w: Array) -> Array:
        s = ndtr(w) * (1 + 1e-12)
        best = np.searchsorted(slopes, -s)
        near = np.clip(best + np.arange(-1, 2)[:, None], 0, a.size - 1)
        return np.minimum(np.min(a[near] * s + h[near], axis=0) * (1 + 8 * _UNIT), 1.0)

    return curve


def _composed(loss: Composition) -> Profile:
    """The profile of a sum of losses, composed numerically: the least over several tilts, each of which is valid."""
    discretised = discretise(loss._profiled())
    ways = [[(each.there, each.times) for each in discretised]]
    if any(each.there is not each.back for each in discretised):
        ways.append([(each.back, each.times) for each in discretised])
    tables = []
    for parts in ways:
        count = sum(times for _, times in parts)
        unit = 1.0 / (100 * parts[0][0].step * math.sqrt(count))
        tables.append([compose(parts, tilt, 0.0) for tilt in unit * np.array([0.0, 0.5, 1, 2, 3, 5, 7, 10, 14])])

    def one(sums: list[Any], epsilon: Array) -> Array:
        found = np.ones(epsilon.shape)
        for each in sums:
            place = np.clip(np.floor(epsilon / each.step).astype(np.int64) - each.bottom, 0, each.profile.size - 1)
            # the value at the node to the left, and the chord to the node on the right
            right = np.minimum(place + 1, each.profile.size - 1)
            part = np.clip(epsilon / each.step - each.bottom - place, 0.0, 1.0)
            part = np.maximum(np.expm1(part * each.step) / math.expm1(each.step) - 1e-8, 0.0)
            value = each.profile[place] + (each.profile[right] - each.profile[place]) * part
            found = np.minimum(found, np.maximum(value * (1 + 8 * _UNIT), 0.0))
        return found

    def profiles(epsilon: Array) -> tuple[Array, Array]:
        there = one(tables[0], epsilon)
        return there, there if len(tables) == 1 else one(tables[1], epsilon)

    return profiles


# --- From a Renyi curve -----------------------------------------------------------------------------


_PLACES = np.concatenate([np.arange(-38.0, -14.0, 1.0), np.arange(-14.0, -6.0, 0.16), np.arange(-6.0, 8.0, 0.05)])


def renyi_trade_off(renyi: Callable[[Array], Array], supremum: float, orders: int = 241) -> TradeOff:
    """From bounds R(x) of the Renyi divergences of order 1 + x in both orders of the pair: the largest t with

        t^p s^(1-p) + (1 - t)^p (1 - s)^(1-p) <= e^(x R(x))      for p = 1 + x  and for  p = -x

    for every order looked at, the latter being the former with s and t exchanged: what the curve says about two
    outcomes, and at one s no less follows from it. The admissible (s, t) are convex sets: the bound is the least of
    their tangents at a grid of s.
    """
    x = below(np.geomspace(1e-3, _LARGEST_ORDER, orders), supremum)
    r = np.asarray(renyi(x)) * (1 + 1e-12)
    # orders that matter: those whose exponent is neither next to nothing nor beyond all tails
    finite = np.isfinite(r)
    inside = finite & (x * r > 1e-4) & (x * r < 2000.0)
    inside = inside if np.any(inside) else finite
    x, r = x[inside], r[inside]
    limit = float(renyi(np.array([np.inf]))[0]) if math.isinf(supremum) else math.inf
    slopes, heights, meet = np.zeros(1), np.ones(1), np.zeros(0)
    if x.size:
        # from the order that binds at the least s to that at the largest
        conditions = _Conditions(np.append(1 + x[::-1], -x), np.append((x * r)[::-1], x * r))
        slopes, heights, meet = _envelope(*conditions.tangents(_PLACES))

    def curve(w: Array) -> Array:
        s = ndtr(w) * (1 + 1e-12)
        line = np.searchsorted(meet, s)
        bound = slopes[line] * s + heights[line]
        if math.isfinite(limit):
            bound = np.minimum(bound, pure_trade_off(limit)(w))
        return np.where(w == np.inf, 1.0, np.clip(bound, s, 1.0))

    return curve


def below(x: Array, supremum: float) -> Array:
    """Positive numbers as excess orders below the supremum: as they are far below it, and closer and closer to it."""
    unit = min(supremum, 1.0)
    return x if math.isinf(supremum) else unit * x / (1 + x * (unit / supremum))


class _Conditions(NamedTuple):
    """Conditions `F = t^p s^(1-p) + (1 - t)^p (1 - s)^(1-p) e^(-exponent) <= 1` on t, one for each p.

    F is convex in (s, t) and grows with t right of s. Newton's steps from the right of a root stay there, so that the
    longest of several conditions' steps stays right of the least of their roots; and a tangent of any of the curves
    F = c, c at least 1, lies above all admissible t.
    """

    p: Array
    exponent: Array

    def tangents(self, w: Array) -> tuple[Array, Array]:
        """Slopes and heights of lines above the largest t, close to it at s = Phi(w), w increasing.

        The condition that binds changes little from one s to the next: it is looked for at every eighth, then nearby.
        """
        log_s, log_rest = log_ndtr(w), log_ndtr(-w)
        some = np.append(np.arange(0, w.size - 1, 8), w.size - 1)
        sparse = np.broadcast_to(np.arange(0, self.p.size, 8)[:, None], (-(-self.p.size // 8), some.size))
        near = self._newton(sparse, log_s[some], log_rest[some], 3)[2]
        between = np.interp(np.arange(w.size), some, near)
        t, q, best = self._newton(np.rint(between + 4.0 * np.arange(-2, 3)[:, None]), log_s, log_rest, 4)
        t, q, best = self._newton(best + np.arange(-2, 3)[:, None], log_s, log_rest, 4, (t, q))
        p, exponent = self.p[best], self.exponent[best]
        with np.errstate(all="ignore"):
            first = np.exp(p * np.log(t) - p * log_s - exponent)
            second = np.exp(p * np.log(q) - p * log_rest - exponent)
            # dt/ds = - F_s / F_t
            slope = (p - 1) / p * (first - second) / (first * np.exp(log_s) / t - second * np.exp(log_rest) / q)
            height = t * (1 + 1e-11) - slope * np.exp(log_s)
        sound = np.isfinite(slope) & (slope >= 0)
        return np.where(sound, slope, 0.0), np.where(sound, np.maximum(height, 0.0), 1.0)

    def _newton(
        self, which: NDArray[Any], log_s: Array, log_rest: Array, steps: int, start: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array, NDArray[np.int64]]:
        """t and 1 - t at each s, and the one that binds among the conditions `which`, of shape (k, n)."""
        which = np.clip(which, 0, self.p.size - 1).astype(np.int64)
        p, exponent, every = self.p[which], self.exponent[which], np.arange(log_s.size)
        with np.errstate(all="ignore"):
            one, other = (1 - p) * log_s - exponent, (1 - p) * log_rest - exponent
            # right of the roots: one of the two terms alone
            log_t = np.where(p > 1, np.minimum(-one / p, 0.0), 0.0)
            best = np.argmin(log_t, axis=0)
            if start is None:
                log_t = log_t.min(axis=0)
                log_q = np.where(p < 0, np.minimum(-other / p, 0.0), -np.inf).max(axis=0)
                t, q = np.minimum(np.exp(log_t), -np.expm1(log_q)), np.maximum(np.exp(log_q), -np.expm1(log_t))
            else:
                t, q = start
                best[:] = len(which) // 2
            for _ in range(steps):
                first, second = np.exp(p * np.log(t) + one), np.exp(p * np.log(q) + other)
                step = (first + second - 1) / (p * (first / t - second / q))
                step = np.where((first + second > 1) & (step > 0), step, 0.0)
                longest = np.argmax(step, axis=0)
                most = np.minimum(step[longest, every], t / 2)
                moved = most > 1e-7 * np.minimum(t, q)
                best = np.where(moved, longest, best)
                t, q = t - most, q + most
                if not np.any(moved):
                    break
        return t, q, which[best, every]


def _envelope(slopes: Array, heights: Array) -> tuple[Array, Array, Array]:
    """Those of the lines `slope s + height` that are the least somewhere, by falling slope, and where they meet."""
    order = np.argsort(-slopes, kind="stable")
    slopes, heights = slopes[order], heights[order]
    while True:
        with np.errstate(all="ignore"):
            meet = -np.diff(heights) / np.diff(slopes)
        kept = np.ones(slopes.shape, dtype=bool)
        kept[1:-1] = meet[:-1] < meet[1:]
        if np.all(kept):
            return slopes, heights, meet
        slopes, heights = slopes[kept], heights[kept]
