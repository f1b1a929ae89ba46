"""The least scale of a path that meets an epsilon, for many ridges and epsilons at once: near enough to search with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.account import posterior_epsilon
from discretion.posterior.assumptions import RecordAssumption
from discretion.posterior.cache import kept
from discretion.posterior.certified import CertifiedTable
from discretion.posterior.rules import published_epsilon

__all__ = ["PLANNED_RULES", "ScaleAccount"]

Floats = NDArray[np.float64]

PLANNED_RULES = ("published", "closed-form", "renyi", "best")
"""What may price planned paths: the rules of a release, and the account as published."""

# Multiples of M / ridge^2, the scale at which a path's noise is about that of a kernel sum.
_SCALES = np.geomspace(1e-3, 1e5, 121)
_CERTIFIED_FROM = 1.0  # ridges below are too dear for any budget: the closed form will do


@dataclass(frozen=True)
class ScaleAccount:
    """Epsilon by scale under a rule, for n records with responses at most ``bound`` from the centre.

    For ``renyi`` and ``best`` it is the smaller of the closed form and of a certified table with tolerance 0.03, which
    serves every length scale; the price under ``best`` is a little smaller still.
    """

    n: int
    bound: float
    delta: float
    paths: int
    rule: str

    def least(
        self,
        assumption: RecordAssumption,
        least_kernel: float,
        ridges: Floats,
        epsilons: Floats,
        certified: Mapping[float, Floats],
    ) -> Floats:
        """Least scales (R, E); infinity where none meets the epsilon. ``certified`` holds `certify` by ridge."""
        scales = _SCALES * (self.bound / ridges**2)[:, None]
        account: dict[str, Any] = {"n": self.n, "ridge": ridges[:, None], "scale": scales, "delta": self.delta}
        account |= {"assumption": assumption, "least_kernel": least_kernel, "paths": self.paths}
        if self.rule == "published":
            costs = published_epsilon(**account)[0]
        else:
            costs = np.array(posterior_epsilon(**account).epsilon)
        for cost, ridge in zip(costs, ridges, strict=True):
            if ridge in certified:
                np.minimum(cost, certified[ridge], out=cost)
        found = [_met(cost, scale, epsilons) for cost, scale in zip(costs, scales, strict=True)]
        return np.array(found).reshape(len(ridges), len(epsilons))

    def certifies(self, ridge: float) -> bool:
        """Whether the rule has a certified bound here, and it is worth the time."""
        return self.rule in ("renyi", "best") and ridge >= _CERTIFIED_FROM

    def certify(self, assumption: RecordAssumption, ridge: float) -> Floats:
        """Certified epsilon at the scales of one ridge, kept on disk; infinity where the search finds none."""

        def compute() -> dict[str, Any]:
            try:
                # a search that the clock stops would not be the same in each run
                table = CertifiedTable(self.n, ridge, assumption, tolerance=0.03)
            except ValueError:
                return {"epsilon": [math.inf] * len(_SCALES)}
            return {"epsilon": table.epsilon(_SCALES * self.bound / ridge**2, self.delta, self.paths).tolist()}

        key = {name: value for name, value in vars(self).items() if name != "rule"}
        key |= {"ridge": ridge, "assumption": [assumption.name, vars(assumption)]}
        return np.array(kept("plan-posterior-scales", key, compute)["epsilon"])


def _met(costs: Floats, scales: Floats, epsilons: Floats) -> Floats:
    """Where costs (S,), which fall with the scale, meet each epsilon: on the chord of the logarithms."""
    met = costs[:, None] <= epsilons
    first = np.argmax(met, axis=0)
    before = np.maximum(first - 1, 0)
    high, low = costs[first], costs[before]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(low / epsilons) / np.log(low / high)
    share = np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), 1.0)
    found = scales[before] * (scales[first] / scales[before]) ** share
    return np.where(met.any(axis=0), found, math.inf)
