"""A step of a local search before any loss is known: where to evaluate, the map from losses to gradients, the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.clipping import aggregate_sensitivity, per_record_sensitivity
from discretion.bayesopt.design import Criterion, Design, adaptive_design, aggregate_design, design
from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.surrogate import Estimate, GradientPosterior

if TYPE_CHECKING:
    from discretion.bayesopt.mechanism import LocalSearch

__all__ = ["INFLATED", "Plan", "planned"]

Floats = NDArray[np.float64]

INFLATED = 1.0 + 1e-13
"""So that rounding never makes a step cost more than its share."""
_ITERATIONS = 200  # of the optimiser of locations, for few parameters


@dataclass(frozen=True, eq=False)
class Plan:
    """A step before any loss is known: all public.

    Attributes:
        theta: (d,). new: locations to evaluate, (b, d). old: locations evaluated before that are used again, (c, d).
        estimate: the map A over old and new locations, and the covariance.
        weights: of the coordinates, (d,): estimates times these are clipped.
        clip: B_t. sensitivity: of the mean. noise: sigma_t, of the weighted mean.
        fraction_noise: that of the fraction of unclipped records, or None.
        mu: what the step costs.
    """

    theta: Floats
    new: Floats
    old: Floats
    estimate: Estimate
    weights: Floats
    clip: float
    sensitivity: float
    noise: float
    fraction_noise: float | None
    mu: float

    @property
    def map(self) -> Floats:
        """From a record's losses to what is clipped: A, weighted."""
        return self.weights[:, None] * self.estimate.map

    @property
    def spread(self) -> Floats:
        """The standard deviations of the released gradient's coordinates, (d,)."""
        return self.noise / self.weights


def planned(
    search: LocalSearch,
    n: int,
    step: int,
    theta: Floats,
    old: Floats,
    clip_norm: float,
    *,
    kernel: GradientKernel | None = None,
    new: Floats | None = None,
) -> Plan:
    """Where to evaluate at theta, the map and the noise: from public values alone.

    Args:
        search: the public parameters.
        n: the public number of records.
        step: 0 to steps - 1.
        theta: (d,), in the box. old: (c, d), locations whose losses are at hand.
        clip_norm: B_t. kernel: if not the given one, one learned from releases.
        new: where to evaluate, (b, d), if it is decided already.
    """
    kernel = search.gradient_kernel if kernel is None else kernel
    mu, mu_fraction = search.costs(step)
    criterion = Criterion(kernel, theta, old, search.point_nugget, search.offset == "trend")
    rng = np.random.default_rng([search.seed, step])

    def posterior(new: Floats) -> Estimate:
        found = GradientPosterior(kernel, theta.size, nugget=search.mean_nugget, offset=search.offset)
        return found.append(old).append(new).at(theta)

    def sensitivity(estimate: Estimate) -> float:
        if search.largest_loss is None:
            return per_record_sensitivity(clip_norm, n) / (search.sample_rate or 1.0)
        return aggregate_sensitivity(search.weights[:, None] * estimate.map, search.largest_loss, n, clip_norm)

    def error(Z: Floats) -> float:
        """Squared bias and noise of an aggregate step: R^2 Tr C + sum_j (Delta/mu_t)^2 / m_j."""
        estimate = posterior(Z)
        noise = float((search.weights**-2.0).sum()) * (sensitivity(estimate) / mu) ** 2
        return search.norm**2 * estimate.trace + noise

    if new is None:
        # The map is told of the whole numbers at which losses are evaluated.
        new = search.space.evaluated(_design(search, criterion, rng, error).locations, theta)
    estimate = posterior(new)
    change = sensitivity(estimate)
    return Plan(
        theta=theta,
        new=new,
        old=old,
        estimate=estimate,
        weights=search.weights,
        clip=clip_norm,
        sensitivity=change,
        noise=max(change, 1e-12 * clip_norm) / mu * INFLATED,
        fraction_noise=None if mu_fraction is None else 1.0 / (n * mu_fraction) * INFLATED,
        mu=math.hypot(mu, mu_fraction or 0.0) / INFLATED,
    )


def _design(
    search: LocalSearch, criterion: Criterion, rng: np.random.Generator, error: Callable[[Floats], float]
) -> Design:
    bounds, most = search.space.bounds, search.most_batch
    if search.aggregate:
        return aggregate_design(criterion, most, bounds, rng, error)
    iterations = max(20, min(_ITERATIONS, 40_000 // (most * search.space.size)))
    if search.tolerance is None:
        return design(criterion, most, bounds, rng, iterations=iterations)
    return adaptive_design(criterion, search.tolerance, bounds, rng, most=most, iterations=iterations)
