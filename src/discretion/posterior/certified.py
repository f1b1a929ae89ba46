r"""Certified cost of posterior sample paths: the exact worst case over all pairs of neighbours, by branch and bound.

For one order the largest Renyi divergence over all neighbouring data sets is a maximum over the box of
:mod:`discretion.posterior.response_sets`. Boxes are split, bounded and dropped until none can exceed the largest
value found by more than a tolerance. What is returned is an upper bound whenever the search stops: at the end, or
at a time limit. It holds in both directions of a pair and for every set of test points, hence for the whole path and
all that is computed from it. Noise added to a path is post-processing and changes nothing here.

Proved up to floating-point arithmetic, whose error is covered by a margin, not tracked: a relative 1e-6 and an absolute
``2^-50 alpha abar / (alpha-1)``, ``abar = V / (r^2 + V)``, at orders with ``alpha - 1 >= 1e-3`` and
``1 - alpha abar >= 1e-4`` only (:func:`certified_orders`); other orders cost infinity. Everything is computed from
public parameters and is the same in every run, unless a time limit stops it.

Proofs: ``docs/proofs/two-dimensional-reduction.md``, ``docs/proofs/vertices.md``, ``docs/proofs/response-sets.md``,
``docs/proofs/certified-renyi.md``.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Bounded,
    Diagonal,
    Exponential1D,
    RecordAssumption,
    ResponseOnly,
    Separated,
)
from discretion.posterior.response_sets import SLACK, Cells, GraphSet, LineSet, PolygonSet, ResponseSet, Space
from discretion.posterior.sensitivity import Array, checked, checked_count, checked_ridge
from discretion.privacy.conversion import renyi_to_epsilon
from discretion.privacy.loss import Guarantee, Neighbours, PrivacyLoss

Indices = NDArray[np.intp]

LEAST_EXCESS = 1e-3
LEAST_GAP = 1e-4
"""Orders have ``alpha - 1 >= LEAST_EXCESS`` and ``1 - alpha abar >= LEAST_GAP``: nearer, logarithms cancel."""

RULE = "certified worst case over all neighbours (branch and bound)"

_MARGIN = 1e-6
_UNIT = 2.0**-50
_LEAST = 1e-300
_CHUNK = 8192
_BLOCK = 2048
_MOST_OPEN = 4_000_000
_MOST_ROUNDS = 200
_GRID = 9
_ENERGIES = np.concatenate([[0.0, 1e-3], np.geomspace(1e-2, 40.0, 21), [400.0, 1e4]])
_ZOOMS = 8
_AROUND = np.stack(np.meshgrid(*[np.array([-1.0, 0.0, 1.0])] * 3, indexing="ij")).reshape(3, -1)


@dataclass(frozen=True)
class Certified:
    """Upper bounds of the Renyi divergence of one path, for every pair of neighbours.

    Attributes
    ----------
    excess : array
        Excess orders ``alpha - 1``.
    bound : array
        Upper bounds; infinite at orders that are not admissible.
    found : array
        Values at some admissible parameters of the pair: what the bounds cannot go below.
    complete : bool
        Whether every bound is within the tolerance of ``found``. If not, a limit stopped the search.
    cells, seconds
        Boxes bounded, wall time.
    certified : bool
        True: the bounds are proved up to floating-point arithmetic, complete or not.
    """

    excess: Array
    bound: Array
    found: Array
    complete: bool
    cells: int
    seconds: float
    certified: bool = True


# --- branch and bound -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Largest ``covariance + energy * mean`` over the space, for each order and each energy ``1 / sigma^2``."""

    space: Space
    responses: ResponseSet
    excess: Array
    energy: Array

    def terms(self, low: Array, high: Array, order: Indices) -> tuple[Array, Array]:
        """Bounds of the two terms over boxes (3, N); ``order`` (N,) indexes ``excess``."""
        covariance, mean = np.empty(order.size), np.empty(order.size)
        for start in range(0, order.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            cells = Cells(self.space.ridge, low[:, part], high[:, part], self.excess[order[part]])
            covariance[part] = cells.covariance()
            mean[part] = 0.5 * cells.order * self.responses.mean(cells)
        return covariance, mean

    def values(self, points: Array, order: Indices) -> Array:
        """Values (N, T) at points (3, N); rho is moved into its admissible range, -inf where that is empty."""
        rho = self.space.correlations(points[0], points[1])
        points = np.stack([points[0], points[1], np.clip(points[2], rho.low, rho.high)])
        covariance, mean = self.terms(points, points, order)
        total = covariance[:, None] + self.energy * mean[:, None]
        inside = rho.low <= rho.high + SLACK
        return np.where(inside[:, None] & ~np.isnan(total), total, -np.inf)

    def explore(self) -> Array:
        """Large values (K, T): the best of a grid, then of ever finer grids about the best point."""
        low, high = self.space.corner
        steps = np.linspace(0.0, 1.0, _GRID)
        grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij")).reshape(3, -1)
        orders, energies, size = self.excess.size, self.energy.size, grid.shape[1]
        points = low[:, None] + (high - low)[:, None] * grid
        values = self.values(np.tile(points, orders), np.repeat(np.arange(orders), size))
        values = values.reshape(orders, size, energies)
        best, at = values.max(axis=1), grid[:, values.argmax(axis=1)]
        size, step = energies * _AROUND.shape[1], steps[1]
        order = np.repeat(np.arange(orders), size)
        for _ in range(_ZOOMS):
            around = np.clip(at[..., None] + step * _AROUND[:, None, None, :], 0.0, 1.0).reshape(3, orders, size)
            points = low[:, None] + (high - low)[:, None] * around.reshape(3, -1)
            values = self.values(points, order).reshape(orders, size, energies)
            top, index = values.max(axis=1), values.argmax(axis=1)
            chosen = np.take_along_axis(around, index[None], axis=2)
            at, best = np.where(top > best, chosen, at), np.maximum(best, top)
            step /= 2.0
        return best

    def solve(self, tolerance: float, deadline: float) -> tuple[Array, Array, bool, int]:
        """Upper bounds (K, T), values found (K, T), whether all is within the tolerance, boxes bounded."""
        best = np.maximum(self.explore(), _LEAST)
        corner = self.space.corner
        order = np.arange(self.excess.size)
        low, high = (np.repeat(end[:, None], order.size, axis=1) for end in corner)
        unit = np.where(corner[1] > corner[0], corner[1] - corner[0], 1.0)[:, None]
        bound = np.full(best.shape, -np.inf)
        count = 0
        for done in range(_MOST_ROUNDS):
            kept = self.space.admits(low, high)
            low, high, order = low[:, kept], high[:, kept], order[kept]
            count += order.size
            covariance, mean = self.terms(low, high, order)
            over = np.empty(order.size)
            for k, part in _runs(order):
                over[part] = np.max(_lines(1.0 / best[k], self.energy / best[k], covariance[part], mean[part]), axis=0)
            kept = ~(over <= 1.0 + tolerance)
            low, high, order, over = low[:, kept], high[:, kept], order[kept], over[kept]
            if not order.size:
                break
            if time.perf_counter() > deadline or order.size > _MOST_OPEN or done == _MOST_ROUNDS - 1:
                covariance, mean = covariance[kept], mean[kept]
                one = np.ones_like(self.energy)
                for k, part in _runs(order):
                    bound[k] = np.max(_lines(one, self.energy, covariance[part], mean[part]), axis=1)
                bound[np.isnan(bound)] = np.inf
                break
            self._improve(best, low, high, order, over)
            spread = Cells(self.space.ridge, low, high, self.excess[order]).spreads() + (high - low) / unit
            edge, cell = np.argmax(spread, axis=0), np.arange(order.size)
            middle = 0.5 * (low[edge, cell] + high[edge, cell])
            low, high, order = np.repeat(low, 2, axis=1), np.repeat(high, 2, axis=1), np.repeat(order, 2)
            high[edge, 2 * cell] = low[edge, 2 * cell + 1] = middle
        return np.maximum(bound, best * (1.0 + tolerance)), best, not order.size, count

    def _improve(self, best: Array, low: Array, high: Array, order: Indices, over: Array) -> None:
        """Raise ``best`` by values in the box of each order whose bound exceeds it most."""
        worst = np.array([part.start + np.argmax(over[part]) for _, part in _runs(order)])
        points = low[:, worst, None] + (high - low)[:, worst, None] * (0.5 + 0.5 * _AROUND[:, None, :])
        owner = np.repeat(order[worst], _AROUND.shape[1])
        values = self.values(points.reshape(3, -1), owner).reshape(worst.size, -1, self.energy.size)
        best[order[worst]] = np.maximum(best[order[worst]], values.max(axis=1))


def _runs(order: Indices) -> list[tuple[int, slice]]:
    """Runs of equal entries of a sorted array: entry and slice."""
    edges = [*np.flatnonzero(np.diff(order, prepend=-1)).tolist(), order.size]
    return [(int(order[start]), slice(start, end)) for start, end in pairwise(edges)]


def _lines(weight: Array, slope: Array, covariance: Array, mean: Array) -> Array:
    """``weight * covariance + slope * mean``, (T, N)."""
    return np.stack([weight, slope], axis=1) @ np.stack([covariance, mean])


# --- from assumptions to problems -----------------------------------------------------------------


def response_set(assumption: Assumption, n: int, least_kernel: float) -> ResponseSet:
    """The residuals that an assumption allows for ``n`` records and a kernel of at least ``least_kernel``.

    ``Exponential1D`` and ``Diagonal`` (whose kernel is the exponential one at length scale 0, points in general
    position): :class:`~discretion.posterior.response_sets.LineSet`; ``RKHS``: ``GraphSet``; ``Bounded`` and
    ``Separated``: ``PolygonSet``.

    Raises
    ------
    ValueError
        For ``ResponseOnly``, whose account is exact without a search.
    """
    match assumption:
        case Exponential1D() | Diagonal():
            return LineSet(assumption.largest_response, n)
        case RKHS():
            return GraphSet(assumption.norm, assumption.noise, n, least_kernel)
        case Bounded() | Separated():
            return PolygonSet(assumption.largest_response, n, least_kernel)
        case ResponseOnly():
            raise ValueError("ResponseOnly needs no search: its Gaussian-DP account is exact. Use posterior_loss.")
    raise ValueError(f"There is no certified account under {type(assumption).__name__}; use posterior_loss.")


def search_space(assumption: Assumption, n: int, ridge: float, least_kernel: float) -> Space:
    """The admissible ``(v, v', rho)`` under an assumption, for ``n`` records."""
    ordered = response_set(assumption, n, least_kernel).ordered
    kappa = 0.0 if isinstance(assumption, Diagonal) else max(float(least_kernel), 0.0)
    variance = float(assumption.variance_bound(n, ridge, least_kernel))
    q = ridge * ridge
    return Space(ridge, variance, min(q / (n - 1.0 + q), variance), kappa, ordered)


def _problem(n: int, ridge: float, assumption: Assumption, least_kernel: float, scale: ArrayLike = np.inf) -> Problem:
    """The problem at one scale and at the orders that serve all purposes."""
    count, r = int(checked_count("n", n)), float(checked_ridge(ridge)[0])
    space = search_space(assumption, count, r, least_kernel)
    return problem_at(space, response_set(assumption, count, least_kernel), scale)


def certified_orders(*, n: int, ridge: float, assumption: Assumption, least_kernel: float = 0.0) -> Array:
    """Excess orders ``alpha - 1`` that serve every scale, number of paths and delta.

    Geometric with ratio at most 1.25 from 0.03 (less, where the orders end early), then geometric in the distance to
    their end, ``1 - alpha abar = 1e-4``. A table at these orders costs at most one per cent of epsilon.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the ridge so small that no order is admissible.
    """
    return _problem(n, ridge, assumption, least_kernel).excess


def _orders(space: Space) -> Array:
    """The orders of :func:`certified_orders`."""
    top = _largest_excess(space)
    if not top > LEAST_EXCESS:
        raise ValueError(
            f"At ridge {space.ridge:g} Renyi orders end at {1.0 + top:.6g}, too near to 1 for a certified account. "
            "Raise the ridge, or use posterior_loss."
        )
    least, middle = max(LEAST_EXCESS, min(0.03, top / 30.0)), top / 2.0
    rising = np.geomspace(least, middle, max(2, 2 + math.floor(math.log(middle / least) / math.log(1.25))))
    return np.unique(np.concatenate([rising, top * (1.0 - np.geomspace(0.5, 0.003, 24)), [top]]))


def _largest_excess(space: Space) -> float:
    """Excess order at which ``1 - alpha abar = LEAST_GAP``."""
    pole = space.ridge**2 / space.variance
    return pole - LEAST_GAP * (1.0 + pole)


def _energy(scale: ArrayLike) -> Array:
    """``1 / sigma^2``; 0 at an infinite scale."""
    with np.errstate(over="ignore"):
        energy = np.square(1.0 / checked("scale", scale, finite=False))
    if not np.all(np.isfinite(energy)):
        raise ValueError("scale is too small: 1 / scale^2 leaves the range of double precision.")
    return energy


def _certify(problem: Problem, tolerance: float, time_limit: float | None) -> tuple[Array, Array, bool, int]:
    """As :meth:`Problem.solve`, with the margin for rounding."""
    if not 0.0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be positive and finite; got {tolerance}.")
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit
    bound, found, complete, cells = problem.solve(tolerance, deadline)
    share = problem.space.variance / (problem.space.ridge**2 + problem.space.variance)
    rounding = _UNIT * (1.0 + problem.excess) * share / problem.excess
    return bound * (1.0 + _MARGIN) + rounding[:, None], found, complete, cells


# --- one scale ------------------------------------------------------------------------------------


def certified_renyi(
    *,
    n: int,
    ridge: float,
    scale: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    excess: ArrayLike,
    tolerance: float = 2e-3,
    time_limit: float | None = None,
) -> Certified:
    """Certified Renyi divergences of one path, by branch and bound.

    Parameters
    ----------
    n, ridge, scale, assumption, least_kernel
        As in :func:`~discretion.posterior.account.posterior_epsilon`, scalars.
    excess : array > 0
        Excess orders ``alpha - 1``.
    tolerance : float > 0
        Relative distance from the worst value found at which the search stops.
    time_limit : float, optional
        Seconds after which it stops with the bounds it has.

    Returns
    -------
    Certified

    Raises
    ------
    ValueError
        If a parameter is out of range, or under ``ResponseOnly``, whose account is exact without a search.
    """
    return problem_renyi(_problem(n, ridge, assumption, least_kernel, scale), excess, tolerance, time_limit)


def problem_renyi(
    problem: Problem, excess: ArrayLike, tolerance: float = 2e-3, time_limit: float | None = None
) -> Certified:
    """:func:`certified_renyi` of any space and response set, at the first energy of ``problem``."""
    start = time.perf_counter()
    orders = np.atleast_1d(checked("excess", excess))
    inside = (orders >= LEAST_EXCESS) & (orders <= _largest_excess(problem.space))
    problem = replace(problem, excess=orders[inside], energy=problem.energy[:1])
    bound, found = np.full(orders.shape, np.inf), np.full(orders.shape, -np.inf)
    solved, values, complete, cells = _certify(problem, tolerance, time_limit)
    bound[inside], found[inside] = solved[:, 0], values[:, 0]
    return Certified(orders, bound, found, complete and bool(inside.all()), cells, time.perf_counter() - start)


def certified_loss(
    *,
    n: int,
    ridge: float,
    scale: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    delta: float | None = None,
    tolerance: float = 2e-3,
    time_limit: float | None = None,
) -> PrivacyLoss:
    """Certified privacy loss of ``paths`` posterior sample paths: :func:`certified_renyi` at a set of orders.

    Bounds at these orders bound every order between (``docs/proofs/renyi-table.md``). The orders are those of
    :func:`certified_orders` and, if ``delta`` is given, the one that is best for it and this number of paths. Other
    parameters as in :func:`certified_renyi`.
    """
    count = int(checked_count("paths", paths))
    problem = _problem(n, ridge, assumption, least_kernel, scale)
    return count * problem_loss(problem, count, delta, tolerance, time_limit)


def problem_loss(
    problem: Problem, paths: int, delta: float | None, tolerance: float = 2e-3, time_limit: float | None = None
) -> PrivacyLoss:
    """The loss of one path over any space and response set, at orders that suit ``paths`` of them at ``delta``."""
    if delta is not None:
        problem = replace(problem, excess=np.union1d(problem.excess, best_order(problem, paths, delta)))
    bound, *_ = _certify(problem, tolerance, time_limit)
    return _curve(problem.excess, bound[:, 0])


def certified_guarantee(
    *,
    n: int,
    ridge: float,
    scale: float,
    delta: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    tolerance: float = 1e-3,
    time_limit: float | None = None,
) -> tuple[Guarantee, bool]:
    """Certified epsilon of ``paths`` posterior sample paths at ``delta``, and whether the search was complete.

    The best order is looked for with uncertified values; the bound is then certified at that order alone, which is
    sound at any order. Parameters as in :func:`certified_loss`.
    """
    count = int(checked_count("paths", paths))
    return problem_guarantee(_problem(n, ridge, assumption, least_kernel, scale), count, delta, tolerance, time_limit)


def problem_guarantee(
    problem: Problem, paths: int, delta: float, tolerance: float = 1e-3, time_limit: float | None = None
) -> tuple[Guarantee, bool]:
    """:func:`certified_guarantee` of any space and response set, at the first energy of ``problem``."""
    problem = replace(problem, excess=np.array([best_order(problem, paths, delta)]))
    bound, _, complete, _ = _certify(problem, tolerance, time_limit)
    return (paths * _curve(problem.excess, bound[:, 0])).guarantee(delta), complete


def certified_epsilon(**parameters: Any) -> float:
    """The epsilon of :func:`certified_guarantee`, which has the same parameters."""
    return certified_guarantee(**parameters)[0].epsilon


def problem_at(space: Space, responses: ResponseSet, scale: ArrayLike = np.inf) -> Problem:
    """The problem of a space and a response set at one scale, at the orders that serve all purposes."""
    return Problem(space, responses, _orders(space), np.atleast_1d(_energy(scale)))


def best_order(problem: Problem, paths: int, delta: float) -> float:
    """Excess order at which the values found give the least epsilon: the best of the grid, of finer grids about it."""
    excess, best = problem.excess, float(problem.excess[-1])
    for _ in range(3):
        found = replace(problem, excess=excess).explore()[:, 0]
        order = (paths * _curve(excess, found)).guarantee(delta).order
        if order is None:
            break
        # between two nodes the curve is a chord, so the best order is at a node up to rounding
        node = int(np.argmin(np.abs(excess - (order - 1.0))))
        best = float(excess[node])
        excess = np.linspace(excess[max(node - 1, 0)], excess[min(node + 1, excess.size - 1)], 11)
    return best


def _curve(excess: Array, bound: Array) -> PrivacyLoss:
    """The loss with these bounds at these orders; a bound at an order is one at every smaller order."""
    least = np.minimum.accumulate(bound[::-1])[::-1]
    kept = np.isfinite(least)
    table = {"type": "renyi-table", "excess": excess[kept].tolist(), "renyi": least[kept].tolist(), "limit": None}
    return PrivacyLoss.from_dict(table | {"neighbours": str(Neighbours.REPLACE), "rule": RULE})


# --- every scale ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CertifiedTable:
    """Certified Renyi divergences at one ridge for every scale, number of paths and delta.

    At one order the largest divergence is a supremum of lines in the energy ``t = 1 / sigma^2``: it is convex in t,
    does not decrease, and divided by t does not increase. Chords between certified values therefore bound it, and
    beyond the last energy it grows at most in proportion. With ``least_kernel`` 0 the table serves every domain and
    length scale. Proof in ``docs/proofs/certified-renyi.md``.

    Parameters
    ----------
    n, ridge, assumption, least_kernel, tolerance, time_limit
        As in :func:`certified_renyi`.

    Attributes
    ----------
    excess, energy : arrays (K,), (T,)
        Excess orders (:func:`certified_orders`) and energies; the first energy is 0.
    bound : array (K, T)
        Upper bounds, not decreasing in either direction.
    complete : bool
        Whether they are within the tolerance.

    Raises
    ------
    ValueError
        As :func:`certified_renyi` and :func:`certified_orders`.
    """

    n: int
    ridge: float
    assumption: Assumption
    least_kernel: float = 0.0
    tolerance: float = 1e-2
    time_limit: float | None = None
    excess: Array = field(init=False, repr=False, compare=False)
    energy: Array = field(init=False, repr=False, compare=False)
    bound: Array = field(init=False, repr=False, compare=False)
    complete: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problem = _problem(self.n, self.ridge, self.assumption, self.least_kernel)
        problem = replace(problem, energy=self._natural_energy(problem.space) * _ENERGIES)
        bound, _, complete, _ = _certify(problem, self.tolerance, self.time_limit)
        for axis in (0, 1):
            bound = np.flip(np.minimum.accumulate(np.flip(bound, axis), axis), axis)
        values = {"excess": problem.excess, "energy": problem.energy, "bound": bound, "complete": complete}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _natural_energy(self, space: Space) -> float:
        """Energy at which mean and covariance cost about the same."""
        tau = np.asarray(space.variance / space.ridge**2)
        bounds = cast(RecordAssumption, self.assumption).sensitivities(
            np.asarray(float(self.n)), np.asarray(space.ridge), np.asarray(space.variance)
        )
        shift = min(float(value) for value in bounds.values())
        return float(tau**2 / (1.0 + tau)) / shift**2 if shift > 0.0 else 1.0

    def at(self, scale: ArrayLike) -> Array:
        """Upper bounds at the orders ``excess`` for scales of any shape: array (K, *shape)."""
        t = _energy(scale)
        node = np.clip(np.searchsorted(self.energy, t), 1, self.energy.size - 1)
        left, right = self.energy[node - 1], self.energy[node]
        share = np.minimum((t - left) / (right - left), 1.0)
        with np.errstate(invalid="ignore"):
            chord = (1.0 - share) * self.bound[:, node - 1] + share * self.bound[:, node]
        return np.where(np.isnan(chord), np.inf, chord) * np.maximum(t / right, 1.0) * (1.0 + 8.0 * _UNIT)

    def renyi(self, excess: ArrayLike, scale: ArrayLike) -> Array:
        """Upper bound of the divergence of one path at order ``1 + excess``; arrays broadcast."""
        x, sigma = np.broadcast_arrays(checked("excess", excess), np.asarray(scale, dtype=np.float64))
        return self._between(x.ravel(), self.at(sigma.ravel())).reshape(x.shape)

    def loss(self, scale: float, paths: int = 1) -> PrivacyLoss:
        """Privacy loss of ``paths`` paths at one scale."""
        return int(checked_count("paths", paths)) * _curve(self.excess, self.at(scale))

    def epsilon(self, scale: ArrayLike, delta: ArrayLike, paths: ArrayLike = 1) -> Array:
        """Certified epsilon for arrays of scales, deltas in (0, 1) and numbers of paths, which broadcast."""
        scales, rare, counts = np.broadcast_arrays(
            np.asarray(scale, dtype=np.float64), np.asarray(delta, dtype=np.float64), checked_count("paths", paths)
        )
        columns = [np.ravel(column) for column in (scales, rare, counts)]
        parts = [
            self._solve(*(column[start : start + _BLOCK] for column in columns))
            for start in range(0, scales.size, _BLOCK)
        ]
        return np.concatenate([np.empty(0), *parts]).reshape(scales.shape)

    def _solve(self, scale: Array, delta: Array, paths: Array) -> Array:
        nodes = self.at(scale) * paths
        end = math.nextafter(self.excess[-1], math.inf)
        return cast(Array, renyi_to_epsilon(lambda x: self._between(x, nodes), end, delta)[0])

    def _between(self, x: Array, nodes: Array) -> Array:
        """Chords in the order: bounds at excess orders (..., B) from bounds (K, B) at those of the table; else inf."""
        column = np.arange(nodes.shape[1])
        node = np.clip(np.searchsorted(self.excess, x), 1, self.excess.size - 1)
        left, right = self.excess[node - 1], self.excess[node]
        share = (x - left) / (right - left)
        with np.errstate(invalid="ignore"):
            chord = (1.0 - share) * left * nodes[node - 1, column] + share * right * nodes[node, column]
        chord = np.where(np.isnan(chord), np.inf, chord)
        value = np.where(x < self.excess[0], nodes[0], chord / x * (1.0 + 8.0 * _UNIT))
        return np.where(x > self.excess[-1], np.inf, value)
