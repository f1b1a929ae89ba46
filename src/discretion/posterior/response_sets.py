r"""What a record that differs may do to a posterior path: a parameter space of three numbers and its response sets.

A neighbouring pair is the two-dimensional pair of :mod:`discretion.posterior.exact_pair`. Its covariances are fixed by
``v = C(x, x)``, ``v' = C(x', x')`` and ``rho = C(x, x') / sqrt(v v')``, its means by the residuals ``(s, s')``. Here
``a = v / (r^2 + v)``, ``u = 1 - rho^2``, ``e = alpha - 1``. With the pulls ``g = sqrt(v) / (r^2 + v)``, ``X = g s``
and ``Y = -g' s'``

.. math::

    D_\alpha = \frac{\alpha}{2\sigma^2}\,\frac{N}{d}
               - \frac{\log d + (\alpha-1)\log(1-a) - \alpha\log(1-a')}{2(\alpha-1)},\qquad
    N = X^2 (1 - \alpha u a') + Y^2 (1 + e u a) + 2\rho X Y,\quad
    d = 1 + e a - \alpha a' - \alpha e\, u\, a a'

Every function bounds its quantity over boxes of ``(v, v', rho)``, and equals it on a box of one point. ``rho >= 0``
suffices: the pair is unchanged by ``(rho, s') -> (-rho, -s')``. Proofs: ``docs/proofs/two-dimensional-reduction.md``,
``docs/proofs/response-sets.md``, ``docs/proofs/certified-renyi.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.core_mean import Range, largest_mean, parabola
from discretion.posterior.sensitivity import Array

SLACK = 1e-12
"""Boxes that miss a constraint by less are kept, so that the ridge ``rho = 1, v = v'`` is never lost to rounding."""


@dataclass(frozen=True)
class Space:
    """Admissible ``(v, v', rho)``: ``v, v'`` in ``[least_variance, variance]`` and ``C(x, x')`` not too small.

    ``w + sqrt((1-v)(1-v'))`` is at least ``least_kernel``. With ``ordered`` also ``w <= min(v, v')``, which holds
    for kernels that are Markov on the line.
    """

    ridge: float
    variance: float
    least_variance: float
    least_kernel: float
    ordered: bool

    @property
    def corner(self) -> tuple[Array, Array]:
        """Lowest and highest ``(v, v', rho)``."""
        return np.array([self.least_variance] * 2 + [0.0]), np.array([self.variance] * 2 + [1.0])

    def admits(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """False for boxes (3, N) without an admissible point."""
        v, v_other, rho = high
        far = np.sqrt((1.0 - low[0]) * (1.0 - low[1]))
        inside = rho * np.sqrt(v * v_other) >= self.least_kernel - far - SLACK
        if self.ordered:
            inside &= low[2] ** 2 <= np.minimum(v / low[1], v_other / low[0]) + SLACK
        return inside

    def correlations(self, v: Array, v_other: Array) -> Range:
        """Admissible range of rho; empty where its low end exceeds its high end."""
        root = np.sqrt(v * v_other)
        least = (self.least_kernel - np.sqrt((1.0 - v) * (1.0 - v_other))) / root
        most = np.minimum(v, v_other) / root if self.ordered else np.ones_like(root)
        return Range(np.maximum(least, 0.0), np.minimum(most, 1.0))


class Cells:
    """Boxes ``low <= (v, v', rho) <= high``, arrays (3, N), each at an order ``1 + excess`` of its own, (N,)."""

    def __init__(self, ridge: float, low: Array, high: Array, excess: Array) -> None:
        self.ridge, self.excess, self.order = ridge, excess, 1.0 + excess
        q = ridge * ridge
        self.v, self.v_other = Range(low[0], high[0]), Range(low[1], high[1])
        self.rho = Range(low[2], high[2])
        self.u = Range(1.0 - self.rho.high**2, 1.0 - self.rho.low**2)
        self.a = Range(*(v / (q + v) for v in self.v))
        self.a_other = Range(*(v / (q + v) for v in self.v_other))
        self.pull, self.pull_other = self._pull(self.v), self._pull(self.v_other)
        self.least_determinant = 1.0 + self._determinant_less_1(self.a.low, self.a_other.high, self.u.high)

    def _pull(self, v: Range) -> Range:
        """Range of ``sqrt(v) / (r^2 + v)``, which has one peak, ``1 / (2r)`` at ``v = r^2``."""
        q = self.ridge * self.ridge
        ends = [np.sqrt(x) / (q + x) for x in v]
        peak = (v.low < q) & (q < v.high)
        return Range(np.minimum(*ends), np.where(peak, 0.5 / self.ridge, np.maximum(*ends)))

    def _determinant_less_1(self, a: Array, a_other: Array, u: Array) -> Array:
        return self.excess * a - self.order * a_other * (1.0 + self.excess * u * a)

    @property
    def mixed(self) -> tuple[Range, Range]:
        """Ranges of p and q at the least a and the largest a'."""
        p = Range(1.0 - self.order * self.u.high * self.a_other.high, 1.0 - self.order * self.u.low * self.a_other.high)
        q = Range(1.0 + self.excess * self.u.low * self.a.low, 1.0 + self.excess * self.u.high * self.a.low)
        return p, q

    @property
    def mixed_determinant(self) -> Array:
        """Largest d at the least a and the largest a'."""
        return 1.0 + self._determinant_less_1(self.a.low, self.a_other.high, self.u.low)

    def spreads(self) -> Array:
        """How much log d varies along each edge (3, N)."""
        a, b, u = self.a, self.a_other, self.u
        ends = [(a.high, b.high, u.high), (a.low, b.low, u.high), (a.low, b.high, u.low)]
        return np.log(np.stack([1.0 + self._determinant_less_1(*end) for end in ends]) / self.least_determinant)

    def covariance(self) -> Array:
        """Largest covariance term: quasi-convex in a and in a', increasing in u, so it sits at a corner."""
        logs = [self.excess * np.log1p(-a) for a in self.a]
        logs_other = [self.order * np.log1p(-a) for a in self.a_other]
        least = [
            np.log1p(self._determinant_less_1(a, a_other, self.u.high)) + log - log_other
            for a, log in zip(self.a, logs, strict=True)
            for a_other, log_other in zip(self.a_other, logs_other, strict=True)
        ]
        return np.minimum.reduce(least) / (-2.0 * self.excess)

    def opposed(self, X: Array, Y: Array) -> Array:
        """Largest N / d for shifts at most X and Y of one sign: residuals of opposite signs.

        At fixed shifts N / d decreases in a and increases in a'; it increases in rho where
        ``(1 - alpha a') X >= e a rho Y``.
        """
        a, a_other, order, excess = self.a.low, self.a_other.high, self.order, self.excess
        rising = (1.0 - order * a_other) * X >= excess * a * self.rho.high * Y
        least_u, most_u = self.u.low, np.where(rising, self.u.low, self.u.high)
        N = (
            X * X * (1.0 - order * least_u * a_other)
            + Y * Y * (1.0 + excess * most_u * a)
            + 2.0 * self.rho.high * X * Y
        )
        return N / (1.0 + self._determinant_less_1(a, a_other, most_u))

    def alike(self, X: Range, Y: Range) -> Array:
        """Largest N / d for shifts in the ranges ``X`` and ``-Y``, both at least 0: residuals of one sign."""
        N = (
            X.high**2 * (1.0 - self.order * self.u.low * self.a_other.high)
            + Y.high**2 * (1.0 + self.excess * self.u.high * self.a.low)
            - 2.0 * self.rho.low * X.low * Y.low
        )
        return N / self.least_determinant


class ResponseSet(ABC):
    """Which residuals ``(s, s')`` are possible at ``(v, v', rho)``."""

    ordered: ClassVar[bool] = False
    """Whether the records also obey ``w <= min(v, v')``."""

    @abstractmethod
    def mean(self, cells: Cells) -> Array:
        """Largest N / d of each box."""


@dataclass(frozen=True)
class BoxSet(ResponseSet):
    """``|s|, |s'| <= bound``, nothing else."""

    bound: float

    def mean(self, cells: Cells) -> Array:
        return self.bound**2 * cells.opposed(cells.pull.high, cells.pull_other.high)


@dataclass(frozen=True)
class LineSet(ResponseSet):
    r"""Exponential kernel on the line, responses in ``[-M, M]``, ``n`` records.

    ``|s| <= S(v) = M (1 + min( sqrt(1-v^2), sqrt((n-1) v (1-v)) / r ))``, the same for ``s'``; with ``beta = w / v'``
    and ``gamma = w / v``, both at most 1, ``|s - beta s'| <= 2M`` and ``|s' - gamma s| <= 2M``. A polygon: its vertices
    with ``A = s >= 0``, ``B = -s' >= 0`` lie on ``A = S``, on ``B = S'`` and where ``A + beta B = gamma A + B = 2M``;
    there ``A + B <= 4M / (1 + rho)``. One more is ``(s, s') = (S, S')``; the rest are the negatives of these. Proof in
    ``docs/proofs/response-sets.md``.
    """

    bound: float
    n: float
    ordered: ClassVar[bool] = True

    def mean(self, cells: Cells) -> Array:
        S, S_other = self._reach(cells, cells.v), self._reach(cells, cells.v_other)
        beta, gamma = _slope(cells, cells.v, cells.v_other), _slope(cells, cells.v_other, cells.v)
        A, B = np.minimum(S.high, _crossing(beta, gamma)), np.minimum(S_other.high, _crossing(gamma, beta))
        apart = 4.0 / (1.0 + cells.rho.low)
        vertices = (
            (S.high, np.minimum(S_other.high, _left(S, beta, gamma))),
            (np.minimum(S.high, _left(S_other, gamma, beta)), S_other.high),
            (A, np.minimum(B, apart - A)),
            (np.minimum(A, apart - B), B),
        )
        g, g_other = cells.pull, cells.pull_other
        opposed = [cells.opposed(g.high * s, g_other.high * s_other) for s, s_other in vertices]
        X, Y = (Range(p.low * s.low, p.high * s.high) for p, s in ((g, S), (g_other, S_other)))
        return self.bound**2 * np.maximum.reduce([*opposed, cells.alike(X, Y)])

    def _reach(self, cells: Cells, v: Range) -> Range:
        """Range of S / M."""
        slope = np.sqrt(self.n - 1.0) / cells.ridge
        ends = [slope * np.sqrt(x * (1.0 - x)) for x in v]
        peak = np.where((v.low < 0.5) & (v.high > 0.5), 0.5 * slope, np.maximum(*ends))
        low, high = np.sqrt(1.0 - v.high**2), np.sqrt(1.0 - v.low**2)
        return Range(1.0 + np.minimum(low, np.minimum(*ends)), 1.0 + np.minimum(high, peak))


def _slope(cells: Cells, v: Range, v_other: Range) -> Range:
    """Range of ``rho sqrt(v / v')``, at most 1."""
    low, high = cells.rho.low * np.sqrt(v.low / v_other.high), cells.rho.high * np.sqrt(v.high / v_other.low)
    return Range(np.minimum(low, 1.0), np.minimum(high, 1.0))


def _left(S: Range, beta: Range, gamma: Range) -> Array:
    """Largest B on ``A = S`` with ``A + beta B <= 2`` and ``gamma A + B <= 2``."""
    # 0 / 0 is no limit: at beta = 0 the first side does not end before A = 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(2.0 - gamma.low * S.low, (2.0 - S.low) / beta.low)


def _crossing(beta: Range, gamma: Range) -> Array:
    """Largest ``A = 2 (1 - beta) / (1 - beta gamma)``, which decreases in beta and increases in gamma."""
    gap = 1.0 - beta.low * gamma.high
    return 2.0 * np.where(gap > 0.0, (1.0 - beta.low) / np.where(gap > 0.0, gap, 1.0), 1.0)


@dataclass(frozen=True)
class PolygonSet(ResponseSet):
    r"""Any kernel of at least ``least_kernel`` on the domain, responses in ``[-M, M]``, ``n`` records.

    ``|s| <= S = M (1 + L(v))``, the same for ``s'``, and ``|s - s'| <= T = M (2 + L_D)`` (:func:`core_mean_bound`,
    :func:`core_difference_bound`). A hexagon: with ``A = s >= 0``, ``B = -s' >= 0`` its vertices are ``(S, T - S)`` and
    ``(T - S', S')``, cut to ``[0, S] x [0, S']``; where both residuals have one sign it is ``(S, S')``. Proof in
    ``docs/proofs/core-mean.md``.
    """

    bound: float
    n: float
    least_kernel: float = 0.0

    def sides(self, cells: Cells) -> tuple[Array, Array, Array]:
        """Largest ``(S, S', T) / M`` of each box."""
        kappa = max(self.least_kernel, 0.0)
        S, S_other = (1.0 + largest_mean(v, self.n, cells.ridge, kappa) for v in (cells.v, cells.v_other))
        T = 2.0 + np.sqrt((self.n - 1.0) * parabola(_spread(cells), _width(cells, kappa))) / cells.ridge
        return S, S_other, T

    def mean(self, cells: Cells) -> Array:
        S, S_other, T = self.sides(cells)
        vertices = ((S, np.clip(T - S, 0.0, S_other)), (np.clip(T - S_other, 0.0, S), S_other))
        g, g_other = cells.pull, cells.pull_other
        opposed = [cells.opposed(g.high * A, g_other.high * B) for A, B in vertices]
        X, Y = Range(g.low * S, g.high * S), Range(g_other.low * S_other, g_other.high * S_other)
        return self.bound**2 * np.maximum.reduce([*opposed, cells.alike(X, Y)])


def _spread(cells: Cells) -> Range:
    """Range of ``v + v' - 2 rho sqrt(v v')``, convex in ``(sqrt(v), sqrt(v'))``; written without cancellation."""
    a, b = Range(*(np.sqrt(v) for v in cells.v)), Range(*(np.sqrt(v) for v in cells.v_other))
    high = np.maximum.reduce([np.square(x - y) + 2.0 * (1.0 - cells.rho.low) * x * y for x in a for y in b])
    gap = np.maximum(np.maximum(a.low - b.high, b.low - a.high), 0.0)
    return Range(np.square(gap) + 2.0 * (1.0 - cells.rho.high) * a.low * b.low, high)


def _width(cells: Cells, kappa: float) -> Array:
    """Largest ``||phi_x - phi_x'||^2``, or ``||phi_x + phi_x'||^2`` where ``C(x, x')`` can be ``-rho sqrt(v v')``."""
    v, v_other = cells.v.low, cells.v_other.low
    least = cells.rho.low * np.sqrt(v * v_other) - np.sqrt((1.0 - v) * (1.0 - v_other)) - SLACK
    return 2.0 * (1.0 - np.where(least > -kappa, np.maximum(least, kappa), least))


@dataclass(frozen=True)
class GraphSet(ResponseSet):
    """Responses of one function of RKHS norm at most ``norm``, plus noise in ``[-noise, noise]``; ``n`` records.

    The function's part of the residuals lies in the ellipse ``norm B^(1/2)``; the noise adds a :class:`PolygonSet`.
    """

    norm: float
    noise: float
    n: float
    least_kernel: float = 0.0

    def mean(self, cells: Cells) -> Array:
        graph = self.norm * np.sqrt(_graph_energy(cells))
        if self.noise:
            graph = graph + np.sqrt(PolygonSet(self.noise, self.n, self.least_kernel).mean(cells))
        return np.square(graph)


def _graph_energy(cells: Cells) -> Array:
    """Largest eigenvalue of R in the basis of u and its normal, where its entries times d are

    ``a^2 p + a'^2 rho^2 q - 2 rho^2 a a'``, ``a'^2 u q`` and ``rho sqrt(u) a' (a' q - a)``.
    """
    a, b, rho, u = cells.a, cells.a_other, cells.rho, cells.u
    p, q = cells.mixed
    square, square_other = Range(a.low**2 * p.low, a.high**2 * p.high), Range(b.low**2 * q.low, b.high**2 * q.high)
    shared = Range(2.0 * a.low * b.low * rho.low**2, 2.0 * a.high * b.high * rho.high**2)
    trace = square.high + square_other.high - shared.low
    turn = Range(2.0 * rho.low**2 - 1.0, 2.0 * rho.high**2 - 1.0)
    turned = Range(
        np.minimum(square_other.low * turn.low, square_other.high * turn.low),
        np.maximum(square_other.low * turn.high, square_other.high * turn.high),
    )
    difference = np.maximum(square.high - shared.low + turned.high, shared.high - square.low - turned.low)
    lean = np.maximum(b.high * q.high - a.low, a.high - b.low * q.low)
    middle = (rho.low**2 < 0.5) & (rho.high**2 > 0.5)
    sine = np.where(middle, 1.0, 2.0 * np.sqrt(np.maximum(rho.low**2 * u.high, rho.high**2 * u.low)))
    return np.maximum(0.5 * (trace + np.hypot(difference, sine * b.high * lean)) / cells.least_determinant, 0.0)
