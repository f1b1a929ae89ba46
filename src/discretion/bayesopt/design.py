"""Where to evaluate: b locations chosen together so that the gradient at theta is known best.

The criterion is the trace of the gradient's posterior covariance (Mueller, von Rohr and Trimpe 2021, as used by Sopa,
Marusic, Avella-Medina and Cunningham 2025). It depends on locations alone, never on a loss, so the choice costs no
privacy. The nugget sets the radius of the stencil: for one dimension, unit RBF and the pair theta +- h,

    Var(h) = 1 - 4 h^2 e^(-h^2) / (2 (1 - e^(-2 h^2)) + 2 s)  ~  h^4/6 + s/(2 h^2),    h* ~ (1.5 s)^(1/6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.optimize import minimize, minimize_scalar

from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.surrogate import POINT_NUGGET, precision

__all__ = [
    "Bounds",
    "Criterion",
    "Design",
    "adaptive_design",
    "aggregate_design",
    "design",
    "optimal_stencil",
    "stencil_variance",
]

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]
"""Lower and upper corner of the box, each of shape (d,)."""

_RADII = np.geomspace(0.02, 1.0, 18)  # of the start, in length scales
_WIDE = np.geomspace(0.05, 3.0, 40)
_HOPELESS = 1e300


def stencil_variance(h: float, nugget: float) -> float:
    """Posterior variance of the derivative of a unit RBF process from evaluations at theta + h and theta - h."""
    return 1.0 + 4.0 * h * h * math.exp(-h * h) / (2.0 * math.expm1(-2.0 * h * h) - 2.0 * nugget)


def optimal_stencil(nugget: float) -> tuple[float, float]:
    """(h*, Var*): the best half-width of a pair of evaluations of a unit RBF process, and its variance."""
    guess = math.log((1.5 * nugget) ** (1 / 6))
    found = minimize_scalar(
        lambda t: stencil_variance(math.exp(t), nugget), bounds=(guess - 2, guess + 2), method="bounded"
    )
    h = math.exp(float(found.x))
    return h, stencil_variance(h, nugget)


@dataclass(frozen=True, eq=False)
class Design:
    """Locations and the criterion there.

    Attributes:
        locations: (b, d).
        trace: of the gradient's covariance, old locations included.
        fraction: the trace as a fraction of its prior value at theta.
    """

    locations: Floats
    trace: float
    fraction: float


@dataclass(frozen=True, eq=False)
class Criterion:
    """The trace of the gradient's posterior covariance at theta, and its derivative in new locations.

        d trace / d z_j = -2 [grad_x grad_z' k(theta, z_j)]' W_j + 2 sum_k (W W')_jk dk(z_j, z_k)/dz_j,    W = Q G'

    Args:
        kernel: with derivatives.
        theta: (d,).
        old: locations evaluated before, (m, d).
        nugget: s, in units of the signal variance.
        trend: whether constants are unknown.
    """

    kernel: GradientKernel
    theta: Floats
    old: Floats
    nugget: float = POINT_NUGGET
    trend: bool = True

    @cached_property
    def prior(self) -> float:
        """The trace without any evaluation."""
        return float(np.trace(self.kernel.prior(self.theta)))

    def trace(self, new: Floats) -> float:
        """The trace for new locations (b, d); infinite where K is singular."""
        return self._solved(new)[0]

    def __call__(self, new: Floats) -> tuple[float, Floats]:
        """The trace and its derivative, shape (b, d), for new locations (b, d); infinite and 0 where K is singular."""
        trace, Z, W = self._solved(new)
        if not (len(new) and math.isfinite(trace)):
            return trace, np.zeros_like(new)
        b = len(self.old)
        slope = self.kernel.gradient_sum(new, Z, W[b:] @ W.T)
        slope -= self.kernel.cross_product(self.theta, new, W[b:])
        return trace, 2.0 * slope

    def _solved(self, new: Floats) -> tuple[float, Floats, Floats]:
        """The trace, all locations, and W."""
        Z = np.vstack([self.old, new])
        if not len(Z):
            return self.prior, Z, Z
        K = self.kernel.value(Z, Z)
        K[np.diag_indices(len(Z))] += self.nugget
        try:
            factor = cholesky(K, lower=True, check_finite=False)
        except LinAlgError:
            return math.inf, Z, Z
        Gt = self.kernel.gradient(self.theta, Z)
        W = precision(factor, Gt, trend=self.trend)
        return self.prior - float(np.sum(Gt * W)), Z, W


def design(
    criterion: Criterion,
    b: int,
    bounds: Bounds,
    rng: np.random.Generator,
    *,
    iterations: int = 200,
) -> Design:
    """b locations inside the box that minimise the criterion together, by L-BFGS-B from the best of a few stencils.

    Args:
        criterion: of the step.
        b: how many; 0 is allowed.
        bounds: of the box; theta lies inside.
        rng: public: it turns the stencil, and must not depend on a record.
        iterations: at most so many of the optimiser.

    One location at a time would settle into a poor geometry: the best single location lies a length scale away.
    """
    theta = criterion.theta
    if b == 0:
        trace = criterion.trace(np.empty((0, theta.size)))
        return Design(np.empty((0, theta.size)), trace, trace / criterion.prior)
    l = criterion.kernel.scales(theta.size)
    start = min(_starts(criterion, b, bounds, rng), key=criterion.trace)

    def objective(u: Floats) -> tuple[float, Floats]:
        trace, slope = criterion(theta + u.reshape(start.shape) * l)
        return (trace, (slope * l).ravel()) if math.isfinite(trace) else (_HOPELESS, np.zeros(u.size))

    low, high = (np.tile((edge - theta) / l, b) for edge in bounds)
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-9, "gtol": 1e-9 * criterion.prior}
    u = np.clip(((start - theta) / l).ravel(), low, high)
    found = minimize(objective, u, jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1), options=options)
    Z = np.clip(theta + np.asarray(found.x).reshape(start.shape) * l, *bounds)
    Z, trace = min(((each, criterion.trace(each)) for each in (Z, start)), key=lambda pair: pair[1])
    return Design(Z, trace, trace / criterion.prior)


def adaptive_design(
    criterion: Criterion,
    tolerance: float,
    bounds: Bounds,
    rng: np.random.Generator,
    *,
    most: int | None = None,
    iterations: int = 200,
) -> Design:
    """The smallest b whose design brings the trace to `tolerance` times its prior value, or that with b = `most`.

    Algorithm 2 of Sopa et al. 2025, with bisection over b in 0..most (by default d + 1), as the best trace does not
    increase with b. b depends on locations alone and may be published.
    """
    most = criterion.theta.size + 1 if most is None else most
    turn = rng.integers(2**32)

    def at(b: int) -> Design:
        return design(criterion, b, bounds, np.random.default_rng(turn), iterations=iterations)

    found = at(0)
    if found.fraction <= tolerance:
        return found
    low, high, best = 0, most, at(most)
    if best.fraction > tolerance:
        return best
    while high - low > 1:
        middle = (low + high) // 2
        found = at(middle)
        low, high, best = (low, middle, found) if found.fraction <= tolerance else (middle, high, best)
    return best


def aggregate_design(
    criterion: Criterion, b: int, bounds: Bounds, rng: np.random.Generator, error: Callable[[Floats], float]
) -> Design:
    """The stencil around theta of the smallest error, a public function of locations.

    Where only means are seen the noise grows as evaluations draw together, so that the trace alone must not choose.
    """
    Z = min(_starts(criterion, b, bounds, rng, radii=_WIDE), key=error)
    trace = criterion.trace(Z)
    return Design(Z, trace, trace / criterion.prior)


def stencil(d: int, b: int, rng: np.random.Generator) -> Floats:
    """b directions of length 1 in d dimensions: +- the axes and more for b >= 2d; else of a turned regular simplex."""
    if b >= 2 * d:
        more = rng.standard_normal((b - 2 * d, d))
        return np.vstack([np.eye(d), -np.eye(d), more / np.linalg.norm(more, axis=1, keepdims=True)])
    # the regular simplex: centred unit vectors of R^(d+1), seen in the hyperplane that they span
    corners = np.eye(d + 1) - 1.0 / (d + 1)
    basis = np.linalg.svd(corners)[2][:d]
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    simplex = corners @ basis.T @ turn
    simplex /= np.linalg.norm(simplex, axis=1, keepdims=True)
    more = rng.standard_normal((max(b - d - 1, 0), d))
    more /= np.linalg.norm(more, axis=1, keepdims=True)
    return np.vstack([simplex[: min(b, d + 1)], more])


def _starts(
    criterion: Criterion, b: int, bounds: Bounds, rng: np.random.Generator, radii: Floats = _RADII
) -> list[Floats]:
    """Stencils of several radii around theta, reflected into the box; near a wall also one-sided ones."""
    theta, (low, high) = criterion.theta, bounds
    l = criterion.kernel.scales(theta.size)
    shape = stencil(theta.size, b, rng)
    starts = []
    for radius in radii:
        step = radius * l * shape
        outside = (theta + step < low) | (theta + step > high)
        starts.append(np.clip(theta + np.where(outside, -step, step), low, high))
        if outside.any() and b >= theta.size:
            inward = np.where(high - theta >= theta - low, 1.0, -1.0)
            one_sided = starts[-1].copy()
            one_sided[: theta.size] = theta + radius * np.diag(l * inward)
            one_sided[theta.size : theta.size + 1] = theta
            starts.append(np.clip(one_sided, low, high))
    return starts
