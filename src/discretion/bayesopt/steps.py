"""A finished step, and what a study does with the losses of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.planning import Plan
from discretion.privacy import PublicError

__all__ = ["Step", "check_losses", "check_means", "facts_of", "in_parts", "nearest", "reach"]

Floats = NDArray[np.float64]

ROWS = 2048
"""Of losses that are looked at together."""


@dataclass(frozen=True, eq=False)
class Step:
    """What is public of a finished step.

    Attributes:
        number: from 0 on. theta: where, (d,). evaluations: b_t.
        gradient: as released; None if the step was lost. fraction: of unclipped records, if released.
        noise: sigma_t. clip: B_t. mu: what it cost. sensitivity: of the mean.
        spread: the standard deviations of the gradient's coordinates, (d,): sigma_t, but for a metric.
        trace, largest, prior: trace and largest eigenvalue of the gradient's covariance, and the prior trace.
    """

    number: int
    theta: Floats
    evaluations: int
    gradient: Floats | None
    fraction: float | None
    noise: float
    clip: float
    mu: float
    sensitivity: float
    trace: float
    largest: float
    prior: float
    spread: Floats

    @property
    def noise_norm(self) -> float:
        """sigma sqrt(d), to be compared with the bias, R sqrt(largest) for losses of RKHS norm R."""
        return float(np.linalg.norm(self.spread))


def check_losses(losses: Any, b: int) -> None:
    """Refuse losses for their public form alone."""
    if not isinstance(losses, np.ndarray) or losses.ndim != 2 or losses.shape[1] != b:
        raise PublicError(f"Losses must be an array of shape (records, {b}), one column a location.")
    if losses.dtype != np.float64:
        raise PublicError("Losses must be float64: differences of nearby evaluations need all digits.")


def check_means(means: Any, b: int, largest_loss: float) -> Floats:
    """Refuse what cannot be means of losses clamped to [0, Lambda]: the noise is for those."""
    values = np.asarray(means, dtype=np.float64)
    if values.shape != (b,):
        raise PublicError(f"Means must be {b} numbers, one a location. Nothing was spent.")
    slack = 1e-9 * largest_loss  # for means that were added up with rounding
    if not ((values >= -slack) & (values <= largest_loss + slack)).all():
        raise PublicError(
            f"Means must be of losses clamped to [0, {largest_loss:g}] record by record, as clamped_mean makes them; "
            "these are not. Nothing was spent."
        )
    return values


def in_parts(chunks: Iterable[Any], b: int) -> Iterator[Floats]:
    """The chunks, checked, in parts that fit into a processor's cache."""
    for chunk in chunks:
        check_losses(chunk, b)
        for start in range(0, len(chunk), ROWS):
            yield chunk[start : start + ROWS]


def facts_of(plan: Plan, number: int) -> dict[str, Any]:
    estimate = plan.estimate
    return {
        "number": number,
        "theta": plan.theta,
        "evaluations": len(plan.new),
        "noise": plan.noise,
        "clip": plan.clip,
        "mu": plan.mu,
        "sensitivity": plan.sensitivity,
        "trace": estimate.trace,
        "largest": estimate.largest,
        "prior": estimate.prior,
        "spread": plan.spread,
    }


def nearest(Z: Floats, plan: Plan, count: int, kernel: GradientKernel) -> NDArray[np.intp]:
    """Places of the `count` locations nearest to theta in scaled distance, in order: a choice by locations alone."""
    distance = (((Z - plan.theta) / kernel.scales(plan.theta.size)) ** 2).sum(axis=1)
    return np.sort(np.argsort(distance, kind="stable")[:count])


def reach(plan: Plan) -> Floats:
    """How far the locations lie from theta along each axis."""
    return np.abs(plan.new - plan.theta).max(axis=0, initial=0.0) if len(plan.new) else np.full(plan.theta.size, np.inf)
