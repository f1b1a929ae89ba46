r"""What a posterior path on a public graph costs: the maximum principle of M-matrices instead of a generic bound.

On a graph whose precision satisfies condition (Q) (:mod:`discretion.gp.lattice`) ``0 <= w <= min(v, v')`` and, with
``beta = w / v'``, ``gamma = w / v``, the residuals of two neighbours obey

.. math::

    |s| \le S(v) = M \Bigl(1 + \min\bigl\{1 - g(v),\;
    \tfrac{\sqrt{n-1}}{r}\sqrt{v(1-v)},\; \tfrac{n-1}{r^2} v\bigr\}\Bigr),
    \qquad |s - \beta s'| \le 2M, \qquad |s' - \gamma s| \le 2M

as on a line, but with the ``g`` of :mod:`~discretion.posterior.mean_cap`: the cap ``sqrt(1 - v^2)`` of the line is
false in the plane. The search of :mod:`~discretion.posterior.certified` and the covering of
:mod:`~discretion.posterior.covering` take this set as they take that of the line.

Proofs: ``docs/proofs/lattice-maximum-principle.md``, ``docs/proofs/lattice-account.md``.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from discretion.gp.lattice import DENSE, Lattice
from discretion.posterior.add_remove import record_divergence, record_profile
from discretion.posterior.cache import kept
from discretion.posterior.calibration import least_on_grid
from discretion.posterior.certified import (
    Certified,
    Problem,
    best_order,
    problem_at,
    problem_guarantee,
    problem_loss,
    problem_renyi,
)
from discretion.posterior.core_mean import Range
from discretion.posterior.covering import CertifiedProfile, ProfileProblem
from discretion.posterior.divergence import Route, joint_route, two_norm_route
from discretion.posterior.mean_cap import MeanCap, mean_cap
from discretion.posterior.response_sets import Cells, LineSet, Space
from discretion.posterior.sensitivity import ROUND_UP, checked, checked_count, checked_ridge, phi
from discretion.privacy.calibration import Unreachable, smallest
from discretion.privacy.loss import Guarantee, Neighbours, PrivacyLoss, RenyiCurve
from discretion.privacy.profiles import BestOf

__all__ = ["LatticeAccount", "LatticeAddRemove", "LatticeSet", "reach", "shaken", "variance_range"]

Array = NDArray[np.float64]

CLOSED = "lattice: maximum principle, closed form"
ADD_REMOVE = "lattice, add/remove: exact pair of one record, worst case over all cores"

_UP = 1.0 + 1e-9
_CELLS = 8192
_TIGHT, _ROUGH = 1e-3, 1e-2


@dataclass(frozen=True)
class LatticeSet(LineSet):
    """Residuals that ``n`` records in ``[-M, M]`` allow on a public graph with mean cap ``cap``."""

    cap: MeanCap

    def _reach(self, cells: Cells, v: Range) -> Range:
        return reach(v, self.n, cells.ridge, self.cap)


def reach(v: Range, n: float, ridge: float, cap: MeanCap) -> Range:
    """Range of ``S / M`` over boxes of v. A cap has its ends at those of the box, or its peak at 1/2."""
    core, q = n - 1.0, ridge * ridge
    ends = [core * x * (1.0 - x) / q for x in v]
    peak = np.where((v.low < 0.5) & (v.high > 0.5), 0.25 * core / q, np.maximum(*ends))
    low = np.minimum(1.0 - cap(v.high), np.minimum(np.sqrt(np.minimum(*ends)), core * v.low / q))
    high = np.minimum(1.0 - cap(v.low), np.minimum(np.sqrt(peak), core * v.high / q))
    return Range(1.0 + low, 1.0 + high)


def variance_range(lattice: Lattice, n: int, ridge: float) -> tuple[float, float, float]:
    r"""Least and largest variance ``(z, V)`` that ``n - 1`` records leave at a node, and the least prior covariance.

    .. math::

        V_n = \max_{x, z} \Sigma_{xx} - \frac{(n-1)\Sigma_{xz}^2}{r^2 + (n-1)\Sigma_{zz}}, \qquad
        v \ge \frac{1}{\max Q_{xx} + (n-1)/r^2}

    V is exact (the variance is convex in the counts, so the worst core has all records at one node) and rounded up, on
    graphs of at most `DENSE` nodes; beyond, V = 1. Proof in ``docs/proofs/lattice-maximum-principle.md``. Computed once
    for each lattice, n and ridge: a search for a scale asks for it at every one.
    """
    count, r = float(checked_count("n", n)), float(checked_ridge(ridge)[0])
    known = _RANGES.setdefault(lattice, {})
    if (count, r) not in known:
        known[count, r] = _variance_range(lattice, count, r)
    return known[count, r]


_RANGES: WeakKeyDictionary[Lattice, dict[tuple[float, float], tuple[float, float, float]]] = WeakKeyDictionary()


def _variance_range(lattice: Lattice, count: float, r: float) -> tuple[float, float, float]:
    allowed = np.flatnonzero(lattice.admissible)
    core, q = count - 1.0, r * r
    least = 1.0 / (float(lattice.precision.diagonal()[allowed].max()) * ROUND_UP + core / q) / ROUND_UP
    if lattice.size > DENSE:
        return least, 1.0, 0.0
    Sigma, error = lattice.covariance
    Sigma = Sigma[np.ix_(allowed, allowed)]
    variance = Sigma.diagonal()
    # errors up to ``error`` of each entry move the fraction by at most five times as much
    taken = core * np.square(np.maximum(Sigma, 0.0)) / (q + core * variance)
    most = float(np.max(variance - taken.min(axis=1))) + 6.0 * error
    return least, min(most * _UP, 1.0), max(float(Sigma.min()) - error, 0.0) / _UP


def shaken(bound: Array, excess: Array, supremum: float, rounding: float) -> Array:
    r"""Renyi bounds of a path whose computed mean is off by at most ``rounding`` standard deviations of its own noise.

    .. math::

        \hat R(\alpha) = \Bigl(\sqrt{R(\alpha)} + 2 \rho \sqrt{\tfrac{\alpha}{2 (1 - \alpha\bar a)}}\Bigr)^2, \qquad
        1 - \alpha \bar a = \frac{1 - e / e_{\sup}}{1 + 1 / e_{\sup}}

    with ``rounding`` rho and excess orders e. Proof in ``docs/proofs/lattice-account.md``, section 5.
    """
    if rounding == 0.0:
        return bound
    gap = np.maximum(1.0 - excess / supremum, 0.0) / (1.0 + 1.0 / supremum)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.square(np.sqrt(bound) + 2.0 * rounding * np.sqrt(0.5 * (1.0 + excess) / gap))
    return np.where(np.isnan(value), np.inf, value)


@dataclass(frozen=True)
class LatticeAccount:
    """What paths cost where one whole record is replaced and their number n is public.

    Parameters
    ----------
    lattice : Lattice
    n : int
        Number of records.
    ridge : float > 0
        r, in the unit in which the prior variance is at most 1: the noise variance of a record is ``ridge^2 scale^2``.
    response_bound : float >= 0
        M: responses lie in ``[-M, M]`` about the public centre.
    cap : MeanCap, optional
        Another bound than :func:`~discretion.posterior.mean_cap.mean_cap`; ``MeanCap((0,), (0,))`` is none.

    Scales are those of the posterior, sigma > 0, in units of the response. Everything is proved up to floating-point
    arithmetic, as in :mod:`~discretion.posterior.certified`.
    """

    lattice: Lattice
    n: int
    ridge: float
    response_bound: float = 1.0
    cap: MeanCap | None = None

    neighbours = Neighbours.REPLACE

    def __post_init__(self) -> None:
        checked_count("n", self.n)
        checked_ridge(self.ridge)
        checked("response_bound", self.response_bound, strict=False)

    @cached_property
    def space(self) -> Space:
        """The admissible ``(v, v', rho)``."""
        least, variance, kappa = variance_range(self.lattice, self.n, self.ridge)
        return Space(float(self.ridge), variance, min(least, variance), kappa, ordered=True)

    @cached_property
    def responses(self) -> LatticeSet:
        """The residuals they allow."""
        cap = mean_cap(self.lattice) if self.cap is None else self.cap
        return LatticeSet(float(self.response_bound), float(self.n), cap)

    def problem(self, scale: float) -> Problem:
        """The search for the largest Renyi divergence."""
        return problem_at(self.space, self.responses, scale)

    @property
    def supremum(self) -> float:
        """End of the excess orders, ``r^2 / V``."""
        return float(self.ridge) ** 2 / self.space.variance

    def closed_form(self, scale: float, rounding: float = 0.0) -> PrivacyLoss:
        """One path at once: the closed forms at ``Delta = 2 sqrt(2) M sqrt(Phi(V, r))``, the means at most 2M apart."""
        V, r, M = self.space.variance, float(self.ridge), float(self.response_bound)
        sensitivity = math.sqrt(8.0) * M * math.sqrt(float(phi(V, r))) * ROUND_UP
        routes = two_norm_route(V, r, sensitivity, scale, 2.0 * M), joint_route(V, r, M, M, scale, 2.0 * M)
        curve = _Closed(routes, self.supremum, rounding)
        return RenyiCurve(curve, self.supremum, neighbours=Neighbours.REPLACE, rule=CLOSED)

    def renyi(
        self, scale: float, excess: Any, *, tolerance: float = 2e-3, time_limit: float | None = None
    ) -> Certified:
        """Certified Renyi divergences of one path at orders ``1 + excess``."""
        return problem_renyi(self.problem(scale), excess, tolerance, time_limit)

    def guarantee(self, scale: float, delta: float, paths: int = 1, *, tolerance: float = _TIGHT) -> Guarantee:
        """Certified epsilon of ``paths`` paths at ``delta``: the smaller of search and closed form."""
        closed = (paths * self.closed_form(scale)).guarantee(delta)
        found, _ = problem_guarantee(self.problem(scale), paths, delta, tolerance)
        return min(found, closed, key=lambda each: each.epsilon)

    def profile(
        self, scale: float, delta: float, *, tolerance: float = 2e-2, time_limit: float | None = None
    ) -> CertifiedProfile:
        """Certified epsilon of one path at ``delta`` from the exact privacy profile, by covering."""
        problem = ProfileProblem(self.space, self.responses, scale)
        return problem.search(delta, tolerance=tolerance, time_limit=time_limit)

    def loss(self, scale: float, delta: float, paths: int = 1, rounding: float = 0.0) -> PrivacyLoss:
        """The loss of one path: certified at the best order for ``paths`` paths at ``delta``, and elsewhere roughly.

        Kept on disk. Take it ``paths`` times. ``rounding`` as in :func:`shaken`.
        """
        named = {**self._named(delta, paths), "scale": float(scale)}

        def search() -> dict[str, Any]:
            problem = self.problem(scale)
            best = replace(problem, excess=np.array([best_order(problem, paths, delta)]))
            every, one = problem_loss(problem, paths, None, _ROUGH), problem_loss(best, paths, None, _TIGHT)
            return {"every": every.to_dict(), "best": one.to_dict()}

        found = kept("lattice-loss", named, search)
        tables = [self._table(found[each], rounding) for each in ("best", "every")]
        return BestOf((*tables, self.closed_form(scale, rounding)))

    def _table(self, described: dict[str, Any], rounding: float) -> PrivacyLoss:
        excess, bound = (np.array(described[each], dtype=np.float64) for each in ("excess", "renyi"))
        return PrivacyLoss.from_dict(described | {"renyi": shaken(bound, excess, self.supremum, rounding).tolist()})

    def calibrate(self, epsilon: float, delta: float, paths: int = 1) -> float:
        """The smallest scale, on a grid of 0.1 per cent, whose `guarantee` meets the target. Kept on disk.

        Raises
        ------
        Unreachable
            If the covariance alone costs more.
        """
        named = {**self._named(delta, paths), "epsilon": float(epsilon)}

        def search() -> dict[str, Any]:
            covariance = self.guarantee(math.inf, delta, paths).epsilon
            if not covariance < epsilon:
                return {"covariance": covariance}
            start = unit = self.response_bound or 1.0
            with suppress(Unreachable):
                start = smallest(
                    lambda scale: (paths * self.closed_form(scale)).epsilon(delta) <= epsilon, 1e-9 * unit, 1e9 * unit
                )
            return {"scale": least_on_grid(lambda s: self.guarantee(s, delta, paths).epsilon, epsilon, start)}

        found = kept("lattice-scale", named, search)
        if "scale" not in found:
            raise Unreachable(
                f"epsilon {epsilon:g} at delta {delta:g} cannot be reached by any scale: at ridge {self.ridge:g} the "
                f"covariance alone costs {found['covariance']:.6g}. Raise the ridge, or release fewer paths."
            )
        return float(found["scale"])

    def _named(self, delta: float, paths: int) -> dict[str, Any]:
        """Everything that a price rests on, but the scale: what it is kept under."""
        return {
            "graph": self.lattice.words["digest"],
            "unit": self.lattice.unit,
            "n": int(self.n),
            "ridge": float(self.ridge),
            "bound": float(self.response_bound),
            "cap": [self.responses.cap.slope, self.responses.cap.intercept],
            "delta": float(delta),
            "paths": int(paths),
        }


@dataclass(frozen=True, eq=False)
class _Closed:
    """The smaller of two routes at each excess order."""

    routes: tuple[Route, Route]
    supremum: float
    rounding: float

    def __call__(self, excess: Array) -> Array:
        least = np.minimum(*(route.renyi(excess) for route in self.routes))
        return shaken(least, excess, self.supremum, self.rounding)


# --- add/remove -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LatticeAddRemove:
    """What paths cost where one record more or fewer is the change, for data sets of at most ``most_records``.

    The pair is one-dimensional (``docs/proofs/add-remove.md``): variance ratio ``tau = v / r^2`` and distance
    ``|s| sqrt(v) / ((r^2 + v) sigma)``, ``|s| <= S(v)``. Both only make the laws easier to tell apart, so the pairs
    with v in a cell are covered by one. Other parameters as in `LatticeAccount`.
    """

    lattice: Lattice
    most_records: int
    ridge: float
    response_bound: float = 1.0
    cap: MeanCap | None = None

    neighbours = Neighbours.ADD_REMOVE

    def __post_init__(self) -> None:
        checked_count("most_records", self.most_records)
        checked_ridge(self.ridge)
        checked("response_bound", self.response_bound, strict=False)

    @cached_property
    def _cells(self) -> tuple[Array, Array, Array, Array]:
        """Of each cell the ends of v, the largest ``S sqrt(v) / (r^2 + v)``, and that of its upper end's pair."""
        r, q = float(self.ridge), float(self.ridge) ** 2
        least, *_ = variance_range(self.lattice, self.most_records, r)
        most = variance_range(self.lattice, 1, r)[1]
        t = np.linspace(0.0, 1.0, _CELLS + 1)
        up, down = t**4, t[::-1] ** 4
        x = least + (most - least) * (up / (up + down))
        v = Range(x[:-1], x[1:])
        cap = mean_cap(self.lattice) if self.cap is None else self.cap
        S = self.response_bound * reach(v, float(self.most_records), r, cap).high
        pulls = [np.sqrt(end) / (q + end) for end in v]
        pull = np.where((v.low < q) & (q < v.high), 0.5 / r, np.maximum(*pulls))
        height = S * pull * ROUND_UP
        wider = np.sqrt(v.high / v.low * (q + v.low) / (q + v.high))
        return v.low, v.high, height, height * wider * ROUND_UP

    def loss(self, scale: float, rounding: float = 0.0) -> PrivacyLoss:
        """The loss of one path, both directions, certified; ``rounding`` as in :func:`shaken`."""
        sigma = float(checked("scale", scale, finite=False))
        _, high, height, _ = self._cells
        later = np.append(np.maximum.accumulate(height[::-1])[::-1][1:], -1.0)
        top = height > later
        supremum = float(self.ridge) ** 2 / float(high[-1])
        curve = _RecordCurve(high[top] / self.ridge**2 * ROUND_UP, height[top] / sigma, supremum, rounding)
        return RenyiCurve(curve, supremum, neighbours=Neighbours.ADD_REMOVE, rule=ADD_REMOVE)

    def delta(self, epsilon: float, scale: float) -> float:
        """Certified ``delta(epsilon)`` of one path from the exact privacy profile."""
        _, high, _, height = self._cells
        eps = float(checked("epsilon", epsilon, strict=False))
        return float(np.max(record_profile(eps, high / self.ridge**2 * ROUND_UP, height / scale)))

    def epsilon(self, scale: float, delta: float, paths: int = 1) -> float:
        """Certified epsilon of ``paths`` paths at ``delta``; of one path also from the exact profile."""
        most = (int(paths) * self.loss(scale)).epsilon(delta)
        if paths > 1 or not math.isfinite(most) or self.delta(most, scale) > delta:
            return most
        return smallest(lambda eps: self.delta(eps, scale) <= delta, 0.0, most, relative_tolerance=1e-9)


@dataclass(frozen=True, eq=False)
class _RecordCurve:
    """Largest divergence of the covering pairs at each excess order."""

    ratio: Array
    distance: Array
    supremum: float
    rounding: float

    def __call__(self, excess: Array) -> Array:
        most = record_divergence(excess[:, None], self.ratio, self.distance).max(axis=1)
        return shaken(most, excess, self.supremum, self.rounding)
