r"""The privacy profile of one pair of Gaussians: ``delta(eps) = sup_E P(E) - e^eps Q(E)``, also for L paths.

Whitened by P and turned to the axes of Q, a pair on the plane reads ``P = N(0, I)``, ``Q = N(d, diag(l))``; its privacy
loss is a sum of one term an axis. Two routes, both on batches of pairs:

* one path: :func:`profile_range` brackets the profile between a sum of chords and a Jensen sum of one convex function.
  Its ends are bounds for any number of nodes; only rounding is not tracked;
* any number of paths: :func:`profile_contour` integrates the moment generating function along a contour. Its error is
  estimated, not bounded: for a guarantee a value must pass the rule of :func:`accepted_profile`.

Proofs in ``docs/proofs/privacy-profile.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from discretion.posterior.exact_pair import ExactPair
from discretion.posterior.sensitivity import Array

ROUNDING = 1e-9
UNIT = 1e-14
"""Bounds are widened by this share and by this much: rounding is not tracked."""

_ELEMENTS = 1 << 17
_LARGEST = 690.0
_FARTHEST = 1e6
_POLE = 1e-7
_SETTLED = 1e-10
_ROUNDS = 60
_PLACING = 10
_SLOPES = (0.0, 0.25, 0.6)
_COARSE = 30
_REACH = 12.0
_TRIALS = ((48, 1e-6), (200, 1e-3), (800, 1e-3))
_FAR = np.array([0.4, 0.9, 1.6, 2.6, 4.0, 6.0])


class ProfileRange(NamedTuple):
    """Bounds of a profile, arrays of the batch shape."""

    low: Array
    high: Array


@dataclass(frozen=True)
class WhitenedPair:
    r"""``P = N(0, I)`` against ``Q = N(d, diag(l))``: ``shift`` is d and ``excess`` is ``l - 1 > -1``, (axes, *batch).

    The cumulant of the privacy loss, with ``D_i = l_i + z (l_i - 1)``,

    .. math::

        K(z) = \log E_P e^{z \log(dP/dQ)}
             = \sum_i \frac{z(1+z)d_i^2}{2D_i} - \tfrac12\bigl[\log D_i - (1+z)\log l_i\bigr]

    is finite for ``0 <= z < pole``.
    """

    shift: Array
    excess: Array

    @classmethod
    def of(cls, pair: ExactPair) -> WhitenedPair:
        """The exact pair of a neighbouring change."""
        a, other = np.asarray(pair.a), np.asarray(pair.a_other)
        cosine = np.clip(pair.c / np.sqrt(a * other), -1.0, 1.0)
        sine = np.sqrt(np.minimum(pair.gap / (a * other), 1.0))
        far, far_other = pair.b * np.sqrt(a), pair.b_other * np.sqrt(other)
        return cls.of_directions(a, other, cosine, sine, far_other * cosine - far, far_other * sine)

    @classmethod
    def of_directions(cls, a: Array, a_other: Array, cosine: Array, sine: Array, x: Array, y: Array) -> WhitenedPair:
        """``N(0, I - a u u^T)`` against ``N((x, y), I - a' u' u'^T)`` with ``u = (1, 0)``, ``u' = (cosine, sine)``."""
        rest = 1.0 - a
        # S_P^{-1/2} S_Q S_P^{-1/2} - I; its determinant is known without cancellation
        first, second = (a - a_other * cosine**2) / rest, -a_other * sine**2
        cross = -a_other * cosine * sine / np.sqrt(rest)
        half = 0.5 * (first + second)
        far = half + np.copysign(np.hypot(0.5 * (first - second), cross), half)
        near = np.where(far != 0.0, -a * a_other * sine**2 / (rest * np.where(far != 0.0, far, 1.0)), 0.0)
        turn = 0.5 * np.arctan2(2.0 * cross, first - second)
        c, s, x = np.cos(turn), np.sin(turn), x / np.sqrt(rest)
        along, across, larger, smaller = np.broadcast_arrays(
            c * x + s * y, c * y - s * x, np.maximum(near, far), np.minimum(near, far)
        )
        return cls(np.stack([along, across]), np.stack([larger, smaller]))

    def take(self, *index: Any) -> WhitenedPair:
        """The pairs at an index of the batch axes."""
        return WhitenedPair(self.shift[:, *index], self.excess[:, *index])

    def widened(self, wider: Array, narrower: Array) -> WhitenedPair:
        """The pair with P's covariance multiplied by ``wider`` and Q's divided by ``narrower``."""
        factor = wider * narrower
        return WhitenedPair(self.shift / np.sqrt(wider), (self.excess - (factor - 1.0)) / factor)

    @property
    def pole(self) -> Array:
        """Supremum of the z at which the cumulant is finite."""
        below = self.excess < 0.0
        with np.errstate(over="ignore"):
            return np.min(np.where(below, -1.0 - 1.0 / np.where(below, self.excess, -1.0), np.inf), axis=0)

    def cumulant(self, z: Any) -> Any:
        """K(z) where it is finite, real or complex; z broadcasts against the batch."""
        l, m = 1.0 + self.excess, self.excess
        D = l + z * m
        return np.sum(z * (1.0 + z) * self.shift**2 / (2.0 * D) - 0.5 * (np.log(D) - (1.0 + z) * np.log1p(m)), axis=0)

    def slope(self, z: Array) -> Array:
        """First derivative of the cumulant at real z."""
        l, m = 1.0 + self.excess, self.excess
        D = l + z * m
        turn = ((1.0 + 2.0 * z) * D - z * (1.0 + z) * m) / (2.0 * D * D)
        return np.sum(self.shift**2 * turn - 0.5 * (m / D - np.log1p(m)), axis=0)

    def curvature(self, z: Array) -> Array:
        """Second derivative of the cumulant at real z."""
        l, m = 1.0 + self.excess, self.excess
        D = l + z * m
        return np.sum(self.shift**2 * l / D**3 + 0.5 * np.square(m / D), axis=0)


def envelope(moment: Any, z: Any) -> Any:
    r"""Logarithm of ``e^m z^z / (1+z)^{1+z}``, which bounds the profile for every z > 0; ``m = L K(z) - z eps``."""
    return moment + z * np.log(z) - (1.0 + z) * np.log1p(z)


def saddle(pair: WhitenedPair, epsilon: ArrayLike, paths: float = 1.0, rounds: int = _ROUNDS) -> Array:
    """The z in (0, pole) that minimises ``f(z) = L K(z) - z eps - log z - log(1+z)``, convex; at most 1e6.

    Newton steps on ``z (pole - z)^2 f'(z)``, which has no poles; where one leaves the bracket, the bracket is divided.
    """
    epsilon = np.asarray(epsilon, dtype=np.float64)
    pole = np.minimum(pair.pole, _FARTHEST) + np.zeros_like(epsilon)
    low, high = np.zeros_like(pole), pole * (1.0 - _POLE)
    z = np.minimum(1.0, 0.5 * high)
    for _ in range(rounds):
        slope = paths * pair.slope(z) - epsilon - 1.0 / z - 1.0 / (1.0 + z)
        bend = paths * pair.curvature(z) + 1.0 / z**2 + 1.0 / (1.0 + z) ** 2
        low, high = np.where(slope < 0.0, z, low), np.where(slope < 0.0, high, z)
        bend = bend + slope * (1.0 / z - 2.0 / (pole - z))
        newton = z - slope / np.where(bend > 0.0, bend, np.nan)
        middle = np.where(high > 8.0 * low, np.where(low > 0.0, 3.0 * low, high / 3.0), 0.5 * (low + high))
        after = np.where((newton >= low) & (newton <= high), newton, middle)
        settled = np.abs(after - z) <= _SETTLED * z
        z = after
        if np.all(settled):
            break
    return z


# --- one path: chords and Jensen ------------------------------------------------------------------


def profile_range(pair: WhitenedPair, epsilon: ArrayLike, nodes: int = 64, z: Array | None = None) -> ProfileRange:
    r"""Bounds of ``delta(eps)`` of one path for pairs on the plane.

    With x the axis along which the loss varies less and h the profile of the other axis,

    .. math:: \delta(\varepsilon) = \int h(G(x))\,\varphi(x)\,dx,\qquad G(x) = e^\varepsilon q(x)/p(x)

    h is convex and G monotone between neighbouring nodes. There h lies below its chord, and on average above its value
    at the mean of G; both sums need only the masses of the intervals under two normal laws. The gap is of second order
    in the width.

    Parameters
    ----------
    pair : WhitenedPair
        Batch of shape (B,).
    epsilon : number or array (B,)
        Any sign.
    nodes : int
        More nodes give a smaller gap.
    z : array (B,), optional
        Where the nodes lie: about the mean of the law tilted by ``p^{1+z} q^{-z}``; by default at the saddle point.
    """
    low, high = _sums(pair, epsilon, nodes, z, (_Nodes.jensen, _Nodes.chords))
    return ProfileRange(_lowered(low), _raised(high))


def profile_bound(pair: WhitenedPair, epsilon: ArrayLike, nodes: int = 64, z: Array | None = None) -> Array:
    """The upper end of :func:`profile_range`, at half its cost."""
    return _raised(_sums(pair, epsilon, nodes, z, (_Nodes.chords,))[0])


def _raised(value: Array) -> Array:
    return np.where(np.isnan(value), 1.0, np.minimum(value * (1.0 + ROUNDING) + UNIT, 1.0))


def _lowered(value: Array) -> Array:
    return np.where(np.isnan(value), 0.0, np.maximum(value * (1.0 - ROUNDING) - UNIT, 0.0))


def _sums(
    pair: WhitenedPair,
    epsilon: ArrayLike,
    nodes: int,
    z: Array | None,
    rules: tuple[Callable[[_Nodes], Array], ...],
) -> list[Array]:
    """Sums by each rule, in blocks that fit the cache."""
    target = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), pair.shift.shape[1:])
    place = saddle(pair, target, rounds=_PLACING) if z is None else z
    sums = [np.empty(target.shape) for _ in rules]
    step = max(1, _ELEMENTS // nodes)
    for start in range(0, target.size, step):
        part = slice(start, start + step)
        with np.errstate(all="ignore"):
            block = _Nodes(pair.take(part), target[part], place[part], nodes)
            for rule, values in zip(rules, sums, strict=True):
                values[part] = rule(block)
    return sums


class _Nodes:
    """Nodes on the axis along which the loss varies less: ``log G`` there, and the masses of the intervals between."""

    def __init__(self, pair: WhitenedPair, epsilon: Array, z: Array, nodes: int) -> None:
        ratio, column = 1.0 + pair.excess, np.arange(epsilon.size)
        spread = 0.5 * np.square(pair.excess / ratio) + np.square(pair.shift / ratio)
        outer = np.where(spread[0] <= spread[1], 0, 1)
        d, m = pair.shift[outer, column][:, None], pair.excess[outer, column][:, None]
        self.inner = pair.shift[1 - outer, column][:, None], pair.excess[1 - outer, column][:, None]
        self.epsilon = epsilon[:, None]
        l = 1.0 + m
        a, b, D = 0.0 - m / l, d / l, l + z[:, None] * m
        # log q/p = -(log l + a x^2 - 2 b x + b d) / 2 turns at b / a
        turn = np.where(a != 0.0, b / a, np.inf)
        x = np.sort(np.concatenate([_places(nodes) * np.sqrt(l / D) - z[:, None] * d / D, turn], axis=1), axis=1)
        ends = np.full_like(d, np.inf)
        x = np.concatenate([-ends, x, ends], axis=1)
        limit = np.where(a != 0.0, -np.sign(a), np.sign(b) * np.sign(x)) * np.inf
        limit = np.where(np.isnan(limit), self.epsilon, limit)
        inside = self.epsilon - 0.5 * (np.log1p(m) + a * x * x - 2.0 * b * x + d * b)
        self.log_G = np.where(np.isinf(x), limit, inside)
        self.p, self.q = _masses(x), _masses((x - d) / np.sqrt(l))

    def chords(self) -> Array:
        """Sum of the integrals of the chords, an upper bound.

        The weight t of the end with the larger G keeps the means of 1 and of G; too small a t is still a bound.
        """
        h = hockey_stick(*self.inner, self.log_G)
        h = np.where(np.isnan(h), 1.0, h)
        left, right = self.log_G[:, :-1], self.log_G[:, 1:]
        far, gap = np.maximum(left, right), np.abs(right - left)
        t = (np.exp(self.epsilon - far) * self.q - np.exp(-gap) * self.p) / -np.expm1(-gap)
        t = np.where((gap > 1e-12) & (t > 0.0), np.minimum(t, self.p), 0.0)
        rising = right > left
        near, away = np.where(rising, h[:, :-1], h[:, 1:]), np.where(rising, h[:, 1:], h[:, :-1])
        return np.sum(t * away + (self.p - t) * near, axis=1)

    def jensen(self) -> Array:
        """Sum of the masses times h at the mean of G, a lower bound."""
        log_G = self.epsilon + np.log(self.q) - np.log(self.p)
        h = np.where(log_G <= _LARGEST, hockey_stick(*self.inner, log_G), 0.0)
        return np.nansum(self.p * h, axis=1)


def _places(nodes: int) -> Array:
    """Points of density ``N(0, 3)``, best for a law ``N(0, 1)`` since a chord's error is cubic, and a tail."""
    body = np.sqrt(3.0) * ndtri((np.arange(nodes) + 0.5) / nodes)
    far = body[-1] + _FAR
    return np.concatenate([-far[::-1], body, far])


def _masses(x: Array) -> Array:
    """Standard normal masses between neighbouring entries of sorted rows."""
    return _between(x[:, :-1], x[:, 1:], *(lambda tail: (tail[:, :-1], tail[:, 1:]))(ndtr(-np.abs(x))))


def _between(low: Array, high: Array, left: Array, right: Array) -> Array:
    """Standard normal mass between low and high from their tails, without cancellation in the tails."""
    return np.where((low < 0.0) & (high > 0.0), 1.0 - left - right, np.abs(right - left))


def hockey_stick(shift: Array, excess: Array, log_G: Array) -> Array:
    """``sup_E P(E) - G Q(E)`` of ``P = N(0, 1)`` and ``Q = N(shift, 1 + excess)``; arrays broadcast.

    Where ``p > G q`` a quadratic is positive: between its roots if Q is the wider law, else outside them. Beyond
    ``G = e^690`` an upper bound.
    """
    l, c = 1.0 + excess, log_G
    with np.errstate(all="ignore"):
        a, b, root = 0.0 - excess / l, shift / l, np.sqrt(l)
        rest = shift * b + np.log1p(excess) - 2.0 * c
        discriminant = b * b - a * rest
        q = b + np.copysign(np.sqrt(np.maximum(discriminant, 0.0)), b)
        one, two = q / a, rest / q
        low, high = np.minimum(one, two), np.maximum(one, two)
        low_Q, high_Q = (low - shift) / root, (high - shift) / root
        outside = a >= 0.0
        P = _between(low, high, ndtr(-np.abs(low)), ndtr(-np.abs(high)))
        Q = _between(low_Q, high_Q, ndtr(-np.abs(low_Q)), ndtr(-np.abs(high_Q)))
        if np.any(outside):
            P = np.where(outside, ndtr(low) + ndtr(-high), P)
            Q = np.where(outside, ndtr(low_Q) + ndtr(-high_Q), Q)
        G = np.exp(np.minimum(c, _LARGEST))
        value = np.where(discriminant > 0.0, P - G * Q, np.where(outside, 1.0 - G, 0.0))
        return np.where(np.isinf(c), c < 0.0, np.clip(value, 0.0, 1.0))


# --- any number of paths: a contour ---------------------------------------------------------------


def profile_contour(pair: WhitenedPair, epsilon: ArrayLike, paths: float = 1.0, nodes: int = 200) -> Array:
    r"""``delta_L(eps)`` by a contour integral: a number, not a bound.

    .. math:: \delta_L(\varepsilon) = \frac1{2\pi i}\int_{\Re z = q} \frac{e^{L K(z) - z\varepsilon}}{z(1+z)}\,dz

    The contour leaves the real axis at the saddle point q and may bend to one side, where the integrand stays bounded.

    Parameters
    ----------
    pair : WhitenedPair
        Batch of shape (B,), any number of axes.
    epsilon : number or array (B,)
        Any sign.
    paths : float
        L.
    nodes : int
        Of the midpoint rule.
    """
    return _Contour.of(pair, epsilon, paths).integral(nodes)


def accepted_profile(pair: WhitenedPair, epsilon: ArrayLike, paths: float = 1.0) -> Array:
    """``delta_L(eps)`` by contours with N and 2N nodes: the larger plus twice their difference; 1 if rejected.

    A value is accepted if it is finite, in [0, 1], not above its :func:`envelope`, and the two agree to 1e-3 at N = 200
    or 800. N = 48 is tried first, but there the two must agree to 1e-6: so few nodes can agree by chance.
    """
    contour = _Contour.of(pair, epsilon, paths)
    value, left = np.ones(contour.start.shape), np.arange(contour.start.size)
    for nodes, agreement in _TRIALS:
        part = contour.take(left)
        first, second = part.integral(nodes), part.integral(2 * nodes)
        with np.errstate(invalid="ignore"):
            larger, gap = np.maximum(first, second), np.abs(first - second)
            cap = np.exp(np.minimum(part.envelope, 0.0)) * (1.0 + ROUNDING) + UNIT
            fine = (np.minimum(first, second) >= 0.0) & (larger <= cap) & (gap <= agreement * larger)
        value[left[fine]] = np.minimum(larger + 2.0 * gap, 1.0)[fine]
        left = left[~fine]
        if not left.size:
            break
    return value


@dataclass(frozen=True)
class _Contour:
    """``z(u) = q + w (i sinh u + t (cosh u - 1))``, u >= 0, one for every pair of a batch; t is ``slope``."""

    pair: WhitenedPair
    epsilon: Array
    paths: float
    start: Array
    width: Array
    slope: Array

    @classmethod
    def of(cls, pair: WhitenedPair, epsilon: ArrayLike, paths: float) -> _Contour:
        """Through the saddle point, with the admissible slope of least absolute mass."""
        target = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), pair.shift.shape[1:])
        q = saddle(pair, target, paths)
        width = (paths * pair.curvature(q) + 1.0 / q**2 + 1.0 / (1.0 + q) ** 2) ** -0.5
        straight = cls(pair, target, paths, q, width, np.zeros_like(q))
        tried = np.stack([straight.side * t for t in _SLOPES])
        mass = np.stack([replace(straight, slope=slope).mass(_COARSE) for slope in tried])
        best = np.argmin(np.where(np.isnan(mass), np.inf, mass), axis=0)
        return replace(straight, slope=tried[best, np.arange(best.size)])

    def take(self, index: Any) -> _Contour:
        """The contours at an index of the batch."""
        arrays = (self.epsilon[index], self.paths, self.start[index], self.width[index], self.slope[index])
        return _Contour(self.pair.take(index), *arrays)

    @property
    def side(self) -> Array:
        """1 or -1: the side on which the exponent, which grows like ``kinf z``, does not grow; 0 where it is straight.

        ``kinf = L sum_i [ d_i^2 / (2 (l_i - 1)) + log(l_i) / 2 ] - eps``. An axis with ``l = 1`` and a shift makes the
        integrand decay like a Gaussian, on either side.
        """
        d, m = self.pair.shift, self.pair.excess
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            growth = self.paths * np.sum(np.where(m != 0.0, d**2 / (2.0 * m) + 0.5 * np.log1p(m), 0.0), axis=0)
        gaussian = np.any((m == 0.0) & (d != 0.0), axis=0)
        return np.where(gaussian, -1.0, np.nan_to_num(-np.sign(growth - self.epsilon)))

    @property
    def envelope(self) -> Array:
        """Log of the bound of the profile at q."""
        return envelope(self.paths * self.pair.cumulant(self.start) - self.start * self.epsilon, self.start)

    def integrand(self, nodes: int) -> Array:
        """Values (B, nodes) at the middles of equal steps of u, times the step."""
        u = (np.arange(nodes) + 0.5) * (_REACH / nodes)
        start, width, t, epsilon = (each[:, None] for each in (self.start, self.width, self.slope, self.epsilon))
        z = start + width * (1j * np.sinh(u) + t * (np.cosh(u) - 1.0))
        dz = width * (1j * np.cosh(u) + t * np.sinh(u)) * (_REACH / nodes)
        return np.exp(self.paths * self.pair.take(..., None).cumulant(z) - z * epsilon) * dz / (z * (1.0 + z))

    def mass(self, nodes: int) -> Array:
        """Integral of the absolute value."""
        return self._sum(nodes, np.abs)

    def integral(self, nodes: int) -> Array:
        """The profile."""
        return self._sum(nodes, np.imag) / np.pi

    def _sum(self, nodes: int, part: Callable[[Array], Array]) -> Array:
        step = max(1, _ELEMENTS // nodes)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [
                np.sum(part(self.take(slice(start, start + step)).integrand(nodes)), axis=1)
                for start in range(0, self.start.size, step)
            ]
        return np.concatenate([np.empty(0), *sums])
