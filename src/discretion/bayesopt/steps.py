"""A finished step, and what is public of where it evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.kernels import GradientKernel
from discretion.bayesopt.planning import Plan

__all__ = ["Step", "facts_of", "nearest"]

Floats = NDArray[np.float64]


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
