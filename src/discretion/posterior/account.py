"""What a release of posterior sample paths costs, in (epsilon, delta), and which parameters meet a target.

Everything here is computed from public parameters. Neighbouring data sets have the same number of records
``n``, which is public, and differ in one whole record (in one response under ``ResponseOnly``). ``L``
independent paths from the same records cost L times one path at every Renyi order. A public nugget or
jitter added to released values is post-processing and free; a jitter added to the Gram matrix is part of
the ridge, ``sqrt(ridge^2 + jitter)``.

At every order the cost is the smallest over the routes whose assumptions hold
(:mod:`~discretion.posterior.assumptions`, :mod:`~discretion.posterior.divergence`); the route that gave the
figure is reported as its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.posterior.assumptions import Assumption, RecordAssumption, ResponseOnly
from discretion.posterior.divergence import (
    Route,
    joint_route,
    path_divergence,
    prior_noise_route,
    response_only_mu,
    two_norm_route,
)
from discretion.posterior.sensitivity import Array, checked, checked_count, checked_ridge
from discretion.privacy.calibration import Unreachable
from discretion.privacy.conversion import gaussian_epsilon, gaussian_mu, renyi_to_epsilon
from discretion.privacy.loss import GaussianDP, PrivacyLoss, RenyiCurve

MOST_PATHS = 10**12
"""Largest number of paths :func:`calibrate_posterior` returns."""

_BLOCK = 2048
_GAUSSIAN = "(7) response-only, exact Gaussian DP"
_JOINT = "(5.2a) joint mean term"


@dataclass(frozen=True)
class EpsilonTable:
    """Arrays of one shape: ``epsilon``, the Renyi ``order`` that gave it and the ``rule`` that won.

    ``order`` is NaN where the figure is exact (Gaussian DP) rather than the conversion of a Renyi bound.
    """

    epsilon: Array
    order: Array
    rule: NDArray[np.str_]


@dataclass(frozen=True)
class NamedRoute:
    """A route, the names its cases can have and, for each problem, which of them applies."""

    route: Route
    names: tuple[str, ...]
    case: NDArray[np.intp]


def posterior_epsilon(
    *,
    n: ArrayLike,
    ridge: ArrayLike,
    scale: ArrayLike,
    delta: ArrayLike,
    assumption: Assumption,
    least_kernel: ArrayLike = 0.0,
    paths: ArrayLike = 1,
    prior_noise: ArrayLike = 0.0,
) -> EpsilonTable:
    """Epsilon of releasing ``paths`` posterior sample paths, for arrays of parameters at once.

    Parameters
    ----------
    n : array of whole numbers >= 1
        Number of records; public, and the same in both neighbours.
    ridge : array > 0
        r; the observation noise variance of the model is ``ridge^2 scale^2``.
    scale : array > 0
        Posterior scale sigma. Infinite: the centred path alone is released.
    delta : array in (0, 1)
    assumption : Assumption
        What is assumed of the records.
    least_kernel : array <= 1
        Public lower bound of the kernel over the domain, ``kernel.least_value(domain)``.
    paths : array of whole numbers >= 1
        Number of independent paths L from the same records.
    prior_noise : array >= 0
        Scale eta of independent noise ``GP(0, eta^2 k)`` drawn afresh for every path and added to it.

    Returns
    -------
    EpsilonTable

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    Source: Maciazek 2026, Theorem 3.1 and Corollary 1, with the refinements of ``docs/proofs``;
    conversion of Balle et al. 2020. ``L`` paths: ``docs/proofs/many-paths.md``.
    """
    arguments = np.broadcast_arrays(
        checked_count("n", n),
        checked_ridge(ridge)[0],
        checked("scale", scale, finite=False),
        _checked_delta(delta),
        np.asarray(least_kernel, dtype=np.float64),
        checked_count("paths", paths),
        checked("prior_noise", prior_noise, strict=False),
    )
    shape = arguments[0].shape
    columns = [np.ravel(argument) for argument in arguments]
    if isinstance(assumption, ResponseOnly):
        epsilon = _gaussian_table(assumption, *columns)
        return EpsilonTable(epsilon.reshape(shape), np.full(shape, np.nan), np.broadcast_to(np.array(_GAUSSIAN), shape))
    held = _record_assumption(assumption)
    blocks = [
        _solve_block(held, *(column[start : start + _BLOCK] for column in columns))
        for start in range(0, columns[0].size, _BLOCK)
    ] or [(np.empty(0), np.empty(0), np.empty(0, dtype="U1"))]
    epsilon, order, rule = (np.concatenate(parts).reshape(shape) for parts in zip(*blocks, strict=True))
    return EpsilonTable(epsilon, order, rule)


def _record_assumption(assumption: Assumption) -> RecordAssumption:
    if not isinstance(assumption, RecordAssumption):
        raise ValueError(f"assumption must be an Assumption of discretion.posterior, not {type(assumption).__name__}.")
    return assumption


def _checked_delta(delta: ArrayLike) -> Array:
    rare = checked("delta", delta)
    if np.any(rare >= 1.0):
        raise ValueError("delta must lie strictly between 0 and 1: a posterior path has no pure guarantee.")
    return rare


def path_routes(
    assumption: RecordAssumption,
    n: Array,
    ridge: Array,
    scale: Array,
    least_kernel: Array,
    prior_noise: Array,
) -> list[NamedRoute]:
    """Every valid bound of one path under an assumption, for flat arrays of parameters of one shape.

    The covariance term belongs with its mean term, so routes are compared as totals: the cost of a path at
    an order is the smallest of their ``route.renyi(excess)``.
    """
    variance = assumption.variance_bound(n, ridge, least_kernel)
    bounds = assumption.sensitivities(n, ridge, variance)
    stacked = np.stack([np.broadcast_to(bound, n.shape) for bound in bounds.values()])
    best = np.argmin(stacked, axis=0)
    delta = np.take_along_axis(stacked, best[None], axis=0)[0]
    b = np.broadcast_to(assumption.mean_bound(n, ridge, variance), n.shape)
    theorem = two_norm_route(variance, ridge, delta, scale, 2.0 * b)
    two_norm = theorem.coupled < two_norm_route(variance, ridge, delta, scale).coupled
    names = tuple(f"{name} with {rule}" for name in bounds for rule in ("Theorem 3.1 (5.1)", "Corollary 1 (5.2)"))
    routes = [
        NamedRoute(theorem, names, 2 * best + two_norm),
        NamedRoute(
            joint_route(variance, ridge, assumption.largest_response, b, scale),
            (_JOINT,),
            np.zeros_like(best),
        ),
    ]
    if np.any(prior_noise > 0.0):
        noisy = prior_noise_route(variance, ridge, delta, scale, prior_noise)
        routes.append(NamedRoute(noisy, tuple(f"{name} with prior noise (5.4)" for name in bounds), best))
    return routes


def _solve_block(
    assumption: RecordAssumption,
    n: Array,
    ridge: Array,
    scale: Array,
    delta: Array,
    least_kernel: Array,
    paths: Array,
    prior_noise: Array,
) -> tuple[Array, Array, NDArray[np.str_]]:
    """Epsilon, order and rule for flat arrays of parameters: each route on its own, then the smallest."""
    routes = path_routes(assumption, n, ridge, scale, least_kernel, prior_noise)
    epsilon, order = np.full(n.shape, np.inf), np.full(n.shape, np.nan)
    rule = np.asarray(routes[0].names)[routes[0].case]
    first = routes[0].route
    for index, named in enumerate(routes):
        route = named.route
        # a route whose three parameters are nowhere below the first one's cannot improve on it
        useful = (
            (route.tau < first.tau) | (route.direct < first.direct) | (route.coupled < first.coupled)
            if index
            else np.ones(n.shape, dtype=bool)
        )
        if not useful.any():
            continue
        part = Route(route.tau[useful], route.direct[useful], route.coupled[useful])
        count = paths[useful]
        found, excess = renyi_to_epsilon(_times(part, count), part.supremum, delta[useful])
        better = found < epsilon[useful]
        chosen = np.flatnonzero(useful)[better]
        epsilon[chosen], order[chosen] = found[better], 1.0 + excess[better]
        if index:
            names = np.asarray(named.names)
            rule = rule.astype(np.promote_types(rule.dtype, names.dtype))
            rule[chosen] = names[named.case[chosen]]
    return epsilon, order, rule


def _times(route: Route, count: Array) -> Callable[[Array], Array]:
    return lambda excess: count * route.renyi(excess)


def _gaussian_table(
    assumption: ResponseOnly,
    n: Array,
    ridge: Array,
    scale: Array,
    delta: Array,
    least_kernel: Array,
    paths: Array,
    prior_noise: Array,
) -> Array:
    """Epsilon under public covariates, for flat arrays of parameters."""
    variance = assumption.variance_bound(n, ridge, least_kernel)
    mu = _rounded_up(response_only_mu(variance, ridge, scale, assumption.response_bound, prior_noise))
    return np.asarray(gaussian_epsilon(_rounded_up(mu * np.sqrt(paths)), delta), dtype=np.float64)


def _rounded_up(mu: Array) -> Array:
    return mu * (1.0 + 2.0**-48)


# --- one release as a privacy loss ----------------------------------------------------------------


def posterior_loss(
    *,
    n: int,
    ridge: float,
    scale: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    prior_noise: float = 0.0,
) -> PrivacyLoss:
    """The privacy loss of releasing ``paths`` posterior sample paths.

    Parameters as in :func:`posterior_epsilon`, scalars.

    A Renyi curve (the smallest of all routes at every order) for the replacement of one record, with ``n`` public;
    under ``ResponseOnly`` Gaussian DP, for the replacement of one response at public covariates.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """
    count = int(checked_count("paths", paths))
    checked("scale", scale, finite=False)
    checked("prior_noise", prior_noise, strict=False)
    columns = [
        np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in (n, ridge, scale, least_kernel, prior_noise)
    ]
    if any(column.shape != (1,) for column in columns):
        raise ValueError("posterior_loss takes scalars; posterior_epsilon takes arrays.")
    if isinstance(assumption, ResponseOnly):
        variance = assumption.variance_bound(n, ridge, least_kernel)
        mu = _rounded_up(response_only_mu(variance, ridge, scale, assumption.response_bound, prior_noise))
        loss: PrivacyLoss = GaussianDP(float(mu), neighbours=assumption.neighbours, rule=_GAUSSIAN)
        return count * loss
    routes = path_routes(_record_assumption(assumption), *columns)
    curve = _PathCurve(
        tuple((float(r.route.tau[0]), float(r.route.direct[0]), float(r.route.coupled[0])) for r in routes),
        tuple(r.names[int(r.case[0])] for r in routes),
    )
    supremum = max(float(r.route.supremum[0]) for r in routes)
    return count * RenyiCurve(curve, supremum, neighbours=assumption.neighbours, rule=_PathRule(curve))


@dataclass(frozen=True)
class _PathCurve:
    """Cost of one path at each excess order: the smallest over routes ``(tau, direct, coupled)``."""

    routes: tuple[tuple[float, float, float], ...]
    names: tuple[str, ...]

    def costs(self, excess: ArrayLike) -> Array:
        """One row a route."""
        return np.stack([path_divergence(excess, *route) for route in self.routes])

    def __call__(self, excess: Array) -> Array:
        return self.costs(excess).min(axis=0)


@dataclass(frozen=True)
class _PathRule:
    """Name of the route that is smallest at an excess order."""

    curve: _PathCurve

    def __call__(self, excess: float) -> str:
        return self.curve.names[int(np.argmin(self.curve.costs(excess)))]


# --- parameters that meet a target ----------------------------------------------------------------


def calibrate_posterior(
    solve: Literal["scale", "ridge", "prior_noise", "eta", "paths"],
    *,
    epsilon: float,
    delta: float,
    n: int,
    assumption: Assumption,
    ridge: float | None = None,
    scale: float | None = None,
    least_kernel: float = 0.0,
    paths: int = 1,
    prior_noise: float = 0.0,
) -> float:
    """The parameter that just meets ``(epsilon, delta)``, the others given.

    Parameters
    ----------
    solve : {"scale", "ridge", "prior_noise" (or "eta"), "paths"}
        ``scale`` and ``prior_noise``: the smallest that meets the target. ``ridge``: the smallest on a scan
        of ``[1e-4, 1e6]`` that is then refined, without assuming that epsilon is monotone in it. ``paths``:
        the largest (at most ``MOST_PATHS``), from formula (8), checked at L and L + 1.
    epsilon, delta : float
        The target; ``epsilon > 0``, ``0 < delta < 1``.
    n, assumption, ridge, scale, least_kernel, paths, prior_noise
        As in :func:`posterior_epsilon`; the one solved for is ignored.

    Returns
    -------
    float (a whole number for ``paths``)
        A value that was itself checked: the epsilon recomputed at it does not exceed the target.

    Raises
    ------
    ValueError
        If a parameter is missing or out of range, or if the target cannot be met; the message says what
        stands in the way.

    Notes
    -----
    ``docs/proofs/many-paths.md`` proves (8).
    """
    name = "prior_noise" if solve == "eta" else solve
    if name not in ("scale", "ridge", "prior_noise", "paths"):
        raise ValueError(f"solve must be 'scale', 'ridge', 'prior_noise' (or 'eta') or 'paths'; got {solve!r}.")
    target = float(checked("epsilon", epsilon))
    _checked_delta(delta)
    fixed: dict[str, Any] = {
        "n": n,
        "ridge": ridge,
        "scale": scale,
        "assumption": assumption,
        "least_kernel": least_kernel,
        "paths": paths,
        "prior_noise": prior_noise,
    }
    del fixed[name]
    missing = [label for label, value in fixed.items() if value is None]
    if missing:
        raise ValueError(f"{missing[0]} is needed to solve for {name}.")
    target_problem = _Target(name, target, delta, fixed)
    if name == "paths":
        return target_problem.most_paths()
    return target_problem.smallest()


@dataclass(frozen=True)
class _Target:
    """One parameter to be found, the target and the other parameters."""

    name: str
    epsilon: float
    delta: float
    fixed: dict[str, Any]

    def cost(self, values: ArrayLike) -> Array:
        """Epsilon at an array of values of the parameter."""
        return posterior_epsilon(delta=self.delta, **{self.name: values}, **self.fixed).epsilon

    def meets(self, value: float) -> bool:
        """Whether the value meets the target in the table and as a privacy loss, which round differently."""
        loss = posterior_loss(**{self.name: value}, **self.fixed)
        return bool(self.cost(value) <= self.epsilon and loss.epsilon(self.delta) <= self.epsilon)

    def smallest(self) -> float:
        """Smallest value that meets the target: a scan, then ever finer scans of one of its steps."""
        if self.name == "prior_noise" and self.meets(0.0):
            return 0.0
        grid = self.grid()
        good = bad = 0.0
        while True:
            met = self.cost(grid) <= self.epsilon
            if not met.any():
                if not good:
                    raise Unreachable(self._why_not(grid))
                bad = float(grid[-1])
            else:
                first = int(np.argmax(met))
                good, bad = float(grid[first]), float(grid[first - 1]) if first else bad
            if good <= bad * (1.0 + 1e-12) or not bad:
                break
            grid = np.geomspace(bad, good, 34)[1:-1]
        step = 1e-15
        while not self.meets(good):
            good, step = good * (1.0 + step), 2.0 * step
            if step > 1e-6:
                raise Unreachable(self._why_not(grid))
        return good

    def grid(self) -> Array:
        """Values scanned, ascending; wide enough that a target missed at its end is missed everywhere."""
        if self.name == "ridge":
            return np.geomspace(1e-4, 1e6, 481)
        shift = self._shift()
        if self.name == "scale":
            return shift * np.geomspace(1e-9, 1e12, 505)
        sigma = float(self.fixed["scale"])
        if math.isinf(sigma):
            raise Unreachable(
                "Prior noise cannot help at an infinite scale; the covariance alone costs "
                f"{float(self.cost(0.0)):.6g}: raise the ridge."
            )
        return max(shift, sigma, sigma / float(self.fixed["ridge"])) * np.geomspace(1e-9, 1e9, 433)

    def _shift(self) -> float:
        """Size of the mean's shift, the natural unit of a noise scale."""
        n, ridge = checked_count("n", self.fixed["n"]), checked_ridge(self.fixed["ridge"])[0]
        assumption = self.fixed["assumption"]
        variance = assumption.variance_bound(n, ridge, self.fixed["least_kernel"])
        if isinstance(assumption, ResponseOnly):
            shift = response_only_mu(variance, ridge, 1.0, assumption.response_bound)
        else:
            shift = min(float(bound) for bound in assumption.sensitivities(n, ridge, variance).values())
        return float(shift) or 1.0

    def _why_not(self, grid: Array) -> str:
        goal = f"epsilon {self.epsilon:g} at delta {self.delta:g} cannot be reached"
        if self.name == "scale":
            covariance = float(self.cost(np.inf))
            return (
                f"{goal} by any scale: at ridge {self.fixed['ridge']:g} the covariance alone "
                f"(an infinite scale) costs {covariance:.6g}. Raise the ridge, or release fewer paths."
            )
        least = float(np.min(self.cost(grid)))
        other = "scale or ridge" if self.name == "prior_noise" else "scale"
        return (
            f"{goal}: the cheapest {self.name} between {grid[0]:.3g} and {grid[-1]:.3g} costs {least:.6g}. "
            f"Raise the {other}, or release fewer paths."
        )

    def most_paths(self) -> int:
        """Largest L by (8), then checked at L and L + 1."""
        if not self.meets(1):
            cost = float(self.cost(1))
            raise Unreachable(
                f"epsilon {self.epsilon:g} at delta {self.delta:g} does not pay for one path, which costs "
                f"{cost:.6g} at ridge {self.fixed['ridge']:g} and scale {self.fixed['scale']:g}. "
                "Raise the ridge or the scale."
            )
        count = math.floor(min(path_budget(epsilon=self.epsilon, delta=self.delta, **self.fixed), MOST_PATHS))
        count = max(1, count)
        while not self.meets(count):
            count -= 1 + count // 10**9
        while count < MOST_PATHS and self.meets(count + 1):
            count += 1
        return count


def path_budget(
    *,
    epsilon: float,
    delta: float,
    n: int,
    ridge: float,
    scale: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    prior_noise: float = 0.0,
) -> float:
    r"""Real-valued number of paths that ``(epsilon, delta)`` pays for, (8) before rounding down.

    Parameters as in :func:`posterior_epsilon`, scalars; ValueError if one is out of range.

    .. math::

        \sup_\alpha \frac{1}{\varepsilon_\alpha} \Bigl[\varepsilon - \log\frac{\alpha-1}\alpha
        + \frac{\log\delta+\log\alpha}{\alpha-1}\Bigr]

    Solved by Dinkelbach's iteration: the order that is optimal for L paths gives the next L, which can only
    be larger. 0 if no positive number is paid for, infinite if a path is free. Under ``ResponseOnly`` it is
    ``(mu_0 / mu)^2`` where ``mu_0`` is the largest Gaussian-DP parameter within the budget. Proof in
    ``docs/proofs/many-paths.md``.
    """
    target = float(checked("epsilon", epsilon))
    rare = float(_checked_delta(delta))
    loss = posterior_loss(
        n=n,
        ridge=ridge,
        scale=scale,
        assumption=assumption,
        least_kernel=least_kernel,
        prior_noise=prior_noise,
    )
    if isinstance(loss, GaussianDP):
        mu = float(loss.mu)
        return float(np.square(gaussian_mu(target, rare) / mu)) if mu > 0.0 else math.inf
    supremum = loss.supremum

    def curve(excess: Array) -> Array:
        return np.asarray(loss.renyi_excess(excess.ravel()), dtype=np.float64).reshape(excess.shape)

    count = found = 1.0
    for _ in range(100):
        best = cast(Array, renyi_to_epsilon(lambda e, L=count: L * curve(e), supremum, rare)[1])
        e = float(best)
        left = target - math.log(e / (1.0 + e)) + (math.log(rare) + math.log1p(e)) / e
        cost = float(curve(np.array([e]))[0])
        if left <= 0.0:
            # the order that is best for this many paths leaves nothing: try fewer
            count, found = count / 16.0, 0.0
            if count < 1e-15:
                break
            continue
        if cost == 0.0:
            return math.inf
        found = left / cost
        if abs(found - count) <= 1e-13 * count:
            break
        count = found
    return found
