r"""Certified (epsilon, delta) of posterior sample paths from the exact privacy profile, by covering.

A cell of parameters ``(v, v', theta)``, ``rho = cos theta``, is covered by one pair of Gaussians for each vertex of its
response set: P's covariance is taken at least as large as any in the cell, Q's at most as large, and the differences of
the means lie in the hull of the vertices. With ``k_P`` the largest and ``k_Q`` the least ratio of the roots of the
determinants, for every pair of the cell

.. math:: \delta_L(\varepsilon) \le k_P^L\; \tilde\delta_L\bigl(\varepsilon + L\log(k_Q/k_P)\bigr)

Cells that do not meet the target are split until none is left. The parameters are closed under exchanging the two
records, so both directions of a pair are covered; and so is every set of test points.

One path: proved up to rounding, since :func:`~discretion.posterior.profile.profile_bound` is an upper bound for any
number of nodes; values are raised by a relative 1e-6. Several paths: numerical integration under the rule of
:func:`~discretion.posterior.profile.accepted_profile`, raised by 3e-3. Everything is computed from public parameters
and is the same in every run, unless a time limit stops it. Proofs: ``docs/proofs/covering.md``,
``docs/proofs/privacy-profile.md``, ``docs/proofs/vertices.md``, ``docs/proofs/two-dimensional-reduction.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.assumptions import Assumption
from discretion.posterior.certified import response_set, search_space
from discretion.posterior.profile import (
    WhitenedPair,
    accepted_profile,
    envelope,
    profile_bound,
    profile_range,
    saddle,
)
from discretion.posterior.response_sets import (
    BoxSet,
    Cells,
    LineSet,
    PolygonSet,
    ResponseSet,
    Space,
)
from discretion.posterior.sensitivity import Array, checked, checked_count, checked_ridge

Progress = Callable[[float, int, float], None]
"""Called after each round with the upper bound of epsilon so far, the number of open cells and the seconds."""

LEAST_DELTA = 1e-11
"""Smaller deltas drown in the absolute rounding margin of the profile."""

_MARGIN = 1e-6
_CONTOUR_MARGIN = 3e-3
_OBLIQUE = 1e-8
_WINDOW = 0.1
_LEAST = 1e-6
_LARGEST = 500.0
_NODES = 64
_EXACT_NODES = 384
_ROUNDS = 10
_CHUNK = 2048
_MOST_OPEN = 2_000_000
_MOST_ROUNDS = 200
_GRID = 13
_ZOOMS = 12
_BEST = 96
_PROBES = 8
_ORDERS = np.array([0.5, 0.8, 1.2, 2.0, 4.0])


@dataclass(frozen=True)
class CertifiedProfile:
    """An upper bound of epsilon at ``delta``, for every pair of neighbours.

    Attributes
    ----------
    epsilon, delta, paths
        The statement: ``paths`` paths are (epsilon, delta)-private.
    found : float
        Epsilon at some admissible parameters of the pair, a numerical value: what the bound cannot go below.
    complete : bool
        Whether no cell is left open, so that ``epsilon`` is the target. If not, a limit stopped the search.
    route : str
        ``"quadrature"`` (one path): proved up to rounding. ``"contour"``: numerical integration, accepted by rule.
    cells, seconds
        Cells bounded, wall time.
    certified : bool
        True: the bound is for all pairs, complete or not.
    """

    epsilon: float
    delta: float
    paths: int
    found: float
    complete: bool
    route: str
    cells: int
    seconds: float
    certified: bool = True


# --- covers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cover:
    """For each vertex (V,) and cell (N,) a pair of laws: ``delta(eps) <= e^raised tilde_delta(eps - lowered)``."""

    pair: WhitenedPair
    raised: Array
    lowered: Array

    def moment(self, z: Array, paths: int) -> Array:
        """``raised + z lowered + L K(z)``: less ``z eps``, what the envelope takes. ``z`` is (N,) or (V, N)."""
        return self.raised + z * self.lowered + paths * self.pair.cumulant(z)


def _turned(a: Array, turn: Array) -> Array:
    r"""Largest eigenvalue of ``S^{-1} S'`` with ``S = I - a u u^T`` and S' the same turned by at most ``turn``.

    The product of the eigenvalues is 1, their sum ``2 + k``, ``k = a^2 sin^2(turn) / (1-a)``.
    """
    k = np.square(a * np.sin(turn)) / (1.0 - a)
    return 1.0 + 0.5 * k + np.sqrt(k + 0.25 * k * k)


def polygon(responses: ResponseSet, cells: Cells) -> tuple[Array, Array]:
    """Residuals ``(s, s')``, (V, N), whose symmetric hull contains the response sets of all points of each cell.

    The hull also contains ``(t s, t' s')`` with every ``(s, s')`` of a set, ``0 <= t, t' <= 1``.
    """
    match responses:
        case BoxSet():
            S = np.full(cells.rho.low.shape, responses.bound)
            return np.stack([S, S]), np.stack([-S, S])
        case LineSet():
            S, S_other = (responses._reach(cells, v).high for v in (cells.v, cells.v_other))
            # smaller slopes are larger sets; strictly below 1 the oblique sides meet in one point
            rho = (1.0 - _OBLIQUE) * cells.rho.low
            beta = np.minimum(rho * np.sqrt(cells.v.low / cells.v_other.high), 1.0 - _OBLIQUE)
            gamma = np.minimum(rho * np.sqrt(cells.v_other.low / cells.v.high), 1.0 - _OBLIQUE)
            A, B = (2.0 * (1.0 - slope) / (1.0 - beta * gamma) for slope in (beta, gamma))
            s = [S, np.minimum(S, _opposite(S_other, gamma, beta)), np.minimum(S, A), S]
            s_other = [np.minimum(S_other, _opposite(S, beta, gamma)), S_other, np.minimum(S_other, B), -S_other]
        case PolygonSet():
            S, S_other, T = responses.sides(cells)
            s = [S, np.clip(T - S_other, 0.0, S), S]
            s_other = [np.clip(T - S, 0.0, S_other), S_other, -S_other]
        case _:
            raise ValueError(f"The covering is not proved for {type(responses).__name__}. Use certified_epsilon.")
    return responses.bound * np.stack(s), -responses.bound * np.stack(s_other)


def _opposite(A: Array, beta: Array, gamma: Array) -> Array:
    """Largest B with ``A + beta B <= 2`` and ``gamma A + B <= 2``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(2.0 - gamma * A, (2.0 - A) / beta)


def _correlated(low: Array, high: Array) -> tuple[Array, Array]:
    """Boxes of ``(v, v', rho)`` from cells of ``(v, v', theta)``."""
    return np.stack([low[0], low[1], np.cos(high[2])]), np.stack([high[0], high[1], np.cos(low[2])])


def _lattice(steps: Array) -> Array:
    return np.stack(np.meshgrid(steps, steps, steps, indexing="ij")).reshape(3, -1)


# --- the search -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfileProblem:
    """Largest ``delta_L(eps)`` over a space of parameters and its response sets, ``paths`` paths of scale ``scale``.

    ``responses`` is a ``BoxSet``, ``LineSet`` or ``PolygonSet`` of :mod:`~discretion.posterior.response_sets`.
    """

    space: Space
    responses: ResponseSet
    scale: float
    paths: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.responses, BoxSet | LineSet | PolygonSet):
            raise ValueError(
                f"There is no certified profile for {type(self.responses).__name__}: the covering is not proved there. "
                "Use certified_epsilon, the Renyi bound."
            )

    @property
    def corner(self) -> tuple[Array, Array]:
        """Lowest and highest ``(v, v', theta)``, columns (3, 1)."""
        v, V = self.space.least_variance, self.space.variance
        return np.array([[v], [v], [0.0]]), np.array([[V], [V], [0.5 * math.pi]])

    def admissible(self, points: Array) -> Array:
        """Points (3, N) with theta moved into its admissible range, those without one left out."""
        rho = self.space.correlations(points[0], points[1])
        least, most = (np.arccos(np.minimum(end, 1.0)) for end in (rho.high, rho.low))
        return np.stack([points[0], points[1], np.clip(points[2], least, most)])[:, rho.low <= rho.high]

    def cover(self, low: Array, high: Array) -> Cover:
        """The covering pairs of cells ``low <= (v, v', theta) <= high``, (3, N)."""
        cells = Cells(self.space.ridge, *_correlated(low, high), np.zeros(low.shape[1]))
        # u and u' lie at half the angle on either side of a fixed axis
        half, turn = 0.25 * (low[2] + high[2]), 0.25 * (high[2] - low[2])
        a, a_other = cells.a, cells.a_other
        wider, narrower = _turned(a.low, turn), _turned(a_other.high, turn)
        log_P = np.log(wider) + 0.5 * (np.log1p(-a.low) - np.log1p(-a.high))
        log_Q = 0.5 * (np.log1p(-a_other.high) - np.log1p(-a_other.low)) - np.log(narrower)
        s, s_other = polygon(self.responses, cells)
        X, Y = cells.pull.high * s / self.scale, cells.pull_other.high * s_other / self.scale
        # the arc of half angles lies under its tangent at the middle
        x, y = (
            np.concatenate([part * turned(0.5 * end) / np.cos(turn) for end in (low[2], high[2])])
            for part, turned in ((Y - X, np.cos), (Y + X, np.sin))
        )
        c, d = np.cos(half), np.sin(half)
        centre = a.low, a_other.high, np.cos(2.0 * half), np.sin(2.0 * half)
        pair = WhitenedPair.of_directions(*centre, c * x - d * y, d * x + c * y).widened(wider, narrower)
        return Cover(pair, self.paths * log_P, self.paths * (log_P - log_Q))

    def bound(self, pair: WhitenedPair, epsilon: Array, z: Array) -> Array:
        """Upper bound of ``delta_L(eps)`` for pairs (B,); at least 1 where there is none."""
        if self.paths == 1:
            return profile_bound(pair, epsilon, _NODES, z) * (1.0 + _MARGIN)
        return accepted_profile(pair, epsilon, self.paths) * (1.0 + _CONTOUR_MARGIN)

    def attained(self, pair: WhitenedPair, epsilon: Array, nodes: int) -> Array:
        """Lower bound of ``delta_L(eps)`` for pairs (B,); 0 where there is none."""
        if self.paths == 1:
            return profile_range(pair, epsilon, nodes).low
        value = accepted_profile(pair, epsilon, self.paths)
        return np.where(value < 1.0, value * (1.0 - _CONTOUR_MARGIN), 0.0)

    def estimates(self, cover: Cover, epsilon: float) -> tuple[Array, Array, Array]:
        """Log of the envelope, saddle-point estimate of log delta, and saddle points, all (V, N)."""
        z = saddle(cover.pair, epsilon - cover.lowered, self.paths, _ROUNDS)
        m = cover.moment(z, self.paths) - z * epsilon
        bend = self.paths * cover.pair.curvature(z) + 1.0 / z**2 + 1.0 / (1.0 + z) ** 2
        estimate = np.minimum(m - np.log(z * (1.0 + z)) - 0.5 * np.log(2.0 * math.pi * bend), cover.raised)
        return envelope(m, z), np.where(np.isnan(estimate), np.inf, estimate), z

    # Points

    def values(self, points: Array, epsilon: float) -> tuple[Array, Array]:
        """The points (3, B) of largest estimates among admissible ones, and the ``delta_L(eps)`` attained there."""
        cover = self.cover(points, points)
        estimate = np.max(self.estimates(cover, epsilon)[1], axis=0)
        chosen = np.argsort(-estimate, kind="stable")[:_BEST]
        pair = _once(cover.pair).take(slice(None), chosen)
        flat = WhitenedPair(pair.shift.reshape(2, -1), pair.excess.reshape(2, -1))
        value = self.attained(flat, np.full(flat.shift.shape[1], epsilon), _NODES)
        return points[:, chosen], np.max(value.reshape(pair.shift.shape[1:]), axis=0)

    def epsilon_at(self, point: Array, delta: float, nodes: int = _EXACT_NODES, precision: float = 1e-6) -> float:
        """Epsilon at which the profile attained at one point (3,) falls to ``delta``, at least 0."""
        pair = _once(self.cover(point[:, None], point[:, None]).pair).take(slice(None), 0)
        steps, vertices = 17, pair.shift.shape[1]
        repeated = WhitenedPair(np.repeat(pair.shift, steps, axis=1), np.repeat(pair.excess, steps, axis=1))
        low, high = 0.0, 1.0
        while high - low > precision * high:
            grid = np.linspace(low, high, steps)
            value = self.attained(repeated, np.tile(grid, vertices), nodes)
            under = np.max(value.reshape(vertices, steps), axis=0) <= delta
            first = int(np.argmax(under))
            if first:
                low, high = float(grid[first - 1]), float(grid[first])
            elif under[0] or low > _LARGEST:
                break
            else:
                low, high = high, 4.0 * high
        return low

    def explore(self, delta: float) -> tuple[float, Array]:
        """A large epsilon and its point (3,): the best of a grid, then of ever finer grids about the best point."""
        low, high = self.corner
        at, size = _lattice(np.linspace(0.0, 1.0, _GRID)), 1.0 / (_GRID - 1)
        best, point, epsilon = 0.0, self.admissible(high)[:, 0], 1.0
        for _ in range(_ZOOMS):
            points = self.admissible(low + (high - low) * np.clip(at, 0.0, 1.0))
            for _ in range(_PROBES):
                chosen, value = self.values(points, epsilon)
                candidate = chosen[:, int(np.argmax(value))]
                reached = self.epsilon_at(candidate, delta, _NODES, 1e-4)
                if reached > best:
                    best, point = reached, candidate
                settled = abs(reached - epsilon) <= 1e-3 * epsilon
                epsilon = max(reached, _LEAST)
                if settled:
                    break
            epsilon, size = max(best, _LEAST), 0.5 * size
            at = (point[:, None] - low) / self._unit + size * _lattice(np.arange(-2.0, 3.0))
        return self.epsilon_at(point, delta), point

    @property
    def _unit(self) -> Array:
        low, high = self.corner
        return np.where(high > low, high - low, 1.0)

    # Cells

    def judge(
        self, low: Array, high: Array, epsilon: float, delta: float, window: float
    ) -> tuple[NDArray[np.bool_], Array, NDArray[np.intp]]:
        """Of cells (3, N): whether each meets the target, an epsilon that it meets at ``delta``, the edge to split.

        Cells whose estimate of log delta exceeds its target by more than ``window`` are not tried.
        """
        log_delta = math.log(delta)
        cover = self.cover(low, high)
        with np.errstate(all="ignore"):
            top, estimate, z = self.estimates(cover, epsilon)
            over = top + _MARGIN * (1.0 + 1e-3 * z * epsilon) - log_delta
            unmet, reach = ~(over <= 0.0), epsilon + np.max(over / z, axis=0)
        worst, column = np.argmax(estimate, axis=0), np.arange(low.shape[1])
        # the worst vertex first, the others only where it meets the target
        tried = np.zeros_like(unmet)
        tried[worst, column] = True
        near = estimate[worst, column] <= log_delta + window
        for part in (tried, ~tried):
            vertex, cell = np.nonzero(unmet & part & near)
            value = self.bound(cover.pair.take(vertex, cell), epsilon - cover.lowered[cell], z[vertex, cell])
            unmet[vertex, cell] = ~(np.exp(cover.raised[cell]) * value <= delta)
            near &= ~unmet[worst, column]
        met = np.logical_not(np.any(unmet, axis=0))
        edge, left = np.zeros(met.size, dtype=np.intp), ~met
        edge[left] = self._edge(low[:, left], high[:, left], z[worst, column][left])
        return met, np.where(np.isnan(reach), np.inf, reach), edge

    def _edge(self, low: Array, high: Array, z: Array) -> NDArray[np.intp]:
        """The edge whose collapse to its middle lowers the moment at z most; the longest where moments overflow."""
        moments = []
        for k in range(3):
            inner, outer = low.copy(), high.copy()
            inner[k] = outer[k] = 0.5 * (low[k] + high[k])
            with np.errstate(all="ignore"):
                moments.append(np.max(self.cover(inner, outer).moment(z, self.paths), axis=0))
        length = (high - low) / self._unit
        moment = np.where((length > 0.0) & np.isfinite(moments), moments, np.inf)
        return np.where(np.isfinite(moment).any(axis=0), np.argmin(moment, axis=0), np.argmax(length, axis=0))

    def renyi_epsilon(self, low: Array, high: Array, delta: float, z: float) -> Array:
        """An epsilon that each cell meets at ``delta``, from its Renyi bounds at orders about ``1 + z``."""
        pole = self.space.ridge**2 / self.space.variance
        best = np.full(low.shape[1], np.inf)
        for excess in np.minimum(z * _ORDERS, 0.97 * pole):
            cells = Cells(self.space.ridge, *_correlated(low, high), np.full(low.shape[1], excess))
            divergence = cells.covariance() + 0.5 * cells.order * self.responses.mean(cells) / self.scale**2
            moment = self.paths * excess * divergence * (1.0 + _MARGIN)
            best = np.fmin(best, (envelope(moment, excess) - math.log(delta) + _MARGIN) / excess)
        return best

    def search(
        self,
        delta: float,
        *,
        tolerance: float = 0.0,
        epsilon: float | None = None,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> CertifiedProfile:
        """Split cells until all meet the target: ``epsilon``, or ``1 + tolerance`` times the largest one found.

        A target that proves too small is raised; if it was given, the search stops there, incomplete.
        """
        start = time.perf_counter()
        deadline = math.inf if time_limit is None else start + time_limit
        found, point = self.explore(delta)
        target = max(found * (1.0 + tolerance), _LEAST) if epsilon is None else epsilon
        one = point[:, None]
        _, estimate, z = self.estimates(self.cover(one, one), max(found, _LEAST))
        window = _WINDOW + max(float(np.max(estimate)) - math.log(delta), 0.0)
        low, high = self.corner
        reach, count = np.array([np.inf]), 0
        for done in range(_MOST_ROUNDS):
            kept = self.space.admits(*_correlated(low, high))
            low, high, reach = low[:, kept], high[:, kept], reach[kept]
            met, edge = np.zeros(reach.size, dtype=bool), np.zeros(reach.size, dtype=np.intp)
            for first in range(0, reach.size, _CHUNK):
                part = slice(first, first + _CHUNK)
                met[part], own, edge[part] = self.judge(low[:, part], high[:, part], target, delta, window)
                reach[part] = np.minimum(reach[part], own)
                count += own.size
                if time.perf_counter() > deadline:
                    break
            low, high, reach, edge = low[:, ~met], high[:, ~met], reach[~met], edge[~met]
            if progress is not None:
                progress(max(target, float(np.max(reach, initial=0.0))), reach.size, time.perf_counter() - start)
            refuted = epsilon is not None and found > epsilon
            endless = found > _LARGEST or reach.size > _MOST_OPEN or done == _MOST_ROUNDS - 1
            if not reach.size or refuted or endless or time.perf_counter() > deadline:
                break
            found, point = self._improved(low, high, reach, target, delta, found, point)
            if epsilon is None:
                target = max(target, found * (1.0 + tolerance))
            cell = np.arange(reach.size)
            middle = 0.5 * (low[edge, cell] + high[edge, cell])
            low, high, reach = np.repeat(low, 2, axis=1), np.repeat(high, 2, axis=1), np.repeat(reach, 2)
            high[edge, 2 * cell] = low[edge, 2 * cell + 1] = middle
        if reach.size:
            reach = np.fmin(reach, self.renyi_epsilon(low, high, delta, float(np.max(z))))
        return CertifiedProfile(
            epsilon=max(target, float(np.max(reach, initial=0.0))),
            delta=delta,
            paths=self.paths,
            found=found,
            complete=not reach.size,
            route="quadrature" if self.paths == 1 else "contour",
            cells=count,
            seconds=time.perf_counter() - start,
        )

    def _improved(
        self, low: Array, high: Array, reach: Array, target: float, delta: float, found: float, point: Array
    ) -> tuple[float, Array]:
        """The largest epsilon found and its point, after a look at the middles of the cells of largest bounds."""
        worst = np.argsort(-reach, kind="stable")[:_PROBES]
        points = self.admissible(0.5 * (low[:, worst] + high[:, worst]))
        if points.shape[1]:
            chosen, value = self.values(points, target)
            best = chosen[:, int(np.argmax(value))]
            if np.max(value) > delta and (reached := self.epsilon_at(best, delta)) > found:
                return reached, best
        return found, point


def _once(pair: WhitenedPair) -> WhitenedPair:
    """One pair a vertex: at a point the two ends of the arc are one."""
    return pair.take(slice(pair.shift.shape[1] // 2))


# --- from assumptions -----------------------------------------------------------------------------


def profile_problem(
    *, n: int, ridge: float, scale: float, assumption: Assumption, least_kernel: float = 0.0, paths: int = 1
) -> ProfileProblem:
    """The problem under an assumption; ValueError under ``RKHS`` and ``ResponseOnly``."""
    count, r = int(checked_count("n", n)), float(checked_ridge(ridge)[0])
    space, responses = search_space(assumption, count, r, least_kernel), response_set(assumption, count, least_kernel)
    sigma = float(checked("scale", scale, finite=False))
    return ProfileProblem(space, responses, sigma, int(checked_count("paths", paths)))


def certified_profile_epsilon(
    *,
    n: int,
    ridge: float,
    scale: float,
    delta: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    tolerance: float = 5e-3,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> CertifiedProfile:
    """The smallest certified epsilon of ``paths`` posterior sample paths at ``delta``, from the exact profile.

    The bound is ``1 + tolerance`` times the largest epsilon found, certified by the covering. A search that stops
    early returns what its open cells allow: an upper bound at any time.

    Parameters
    ----------
    n, ridge, scale, assumption, least_kernel, paths
        As in :func:`~discretion.posterior.certified.certified_epsilon`. ``assumption`` is ``Exponential1D``,
        ``Diagonal``, ``Bounded`` or ``Separated``.
    delta : float
        In [1e-11, 1).
    tolerance : float > 0
        Time grows like its power -3/2.
    time_limit : float, optional
        Seconds after which the search stops.
    progress : callable, optional
        Called with the bound so far, the number of open cells and the seconds.

    Returns
    -------
    CertifiedProfile

    Raises
    ------
    ValueError
        If a parameter is out of range, or under another assumption.
    """
    if not 0.0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be positive and finite; got {tolerance}.")
    problem = profile_problem(
        n=n, ridge=ridge, scale=scale, assumption=assumption, least_kernel=least_kernel, paths=paths
    )
    return problem.search(_checked_delta(delta), tolerance=tolerance, time_limit=time_limit, progress=progress)


def certify_profile(
    *,
    n: int,
    ridge: float,
    scale: float,
    epsilon: float,
    delta: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> bool:
    """Whether the covering proves ``paths`` posterior sample paths (epsilon, delta)-private.

    False if some admissible parameters of the pair refute it, or a limit comes first. Parameters as in
    :func:`certified_profile_epsilon`; ``epsilon`` is finite and positive.
    """
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite; got {epsilon}.")
    problem = profile_problem(
        n=n, ridge=ridge, scale=scale, assumption=assumption, least_kernel=least_kernel, paths=paths
    )
    return problem.search(_checked_delta(delta), epsilon=epsilon, time_limit=time_limit, progress=progress).complete


def _checked_delta(delta: float) -> float:
    if not LEAST_DELTA <= delta < 1.0:
        raise ValueError(
            f"delta must be in [{LEAST_DELTA:g}, 1) for the certified profile; got {delta}. For a smaller one use "
            "certified_epsilon, the Renyi bound."
        )
    return float(delta)
