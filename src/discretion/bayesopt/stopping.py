"""When to stop, read off what was released: free of charge, and the guarantee stays that of the whole budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ncx2

from discretion.bayesopt.steps import Step

__all__ = ["Flat"]


@dataclass(frozen=True)
class Flat:
    """Stop once the last gradients, averaged, cannot be told from noise.

    With s_t the last w gradients that were released and tau_t,j their noise, in each coordinate j

        sum_j (sum_t s_t,j)^2 / sum_t tau_t,j^2

    is chi-squared with d degrees of freedom where the gradients are 0. The rule holds while this is below the quantile
    1 - level. A bias of at most R sqrt(largest eigenvalue of C_t) in each step (`docs/proofs/gradient-bias.md`) makes
    it non-central, by (sum_t R sqrt(largest_t))^2 / min_j sum_t tau_t,j^2 at most.

    Args:
        window: w, at least 1.
        level: chance that gradients which are all 0 do not end the run at a given step, in (0, 1).
        norm: R, a public guess of the losses' RKHS norm; 0 leaves bias out.

    It is a rule about noise, not a proof of a minimum: with little budget everything is flat.

    Raises:
        ValueError: a number out of its range.
    """

    window: int = 5
    level: float = 0.05
    norm: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or int(self.window) != self.window or self.window < 1:
            raise ValueError(f"window must be a whole number of at least 1; got {self.window!r}.")
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {self.level!r}.")
        if not 0 <= self.norm < math.inf:
            raise ValueError(f"norm must be finite and not negative; got {self.norm!r}.")

    def __call__(self, steps: Sequence[Step]) -> bool:
        """Whether to stop after these steps, all public."""
        known = [(step, step.gradient) for step in steps if step.gradient is not None]
        if len(known) < self.window:
            return False
        last, gradients = zip(*known[-int(self.window) :], strict=True)
        total = np.sum(gradients, axis=0)
        noise = np.sum([step.spread**2 for step in last], axis=0)
        bias = self.norm * sum(math.sqrt(step.largest) for step in last)
        statistic = float((total**2 / noise).sum())
        return statistic <= float(ncx2.ppf(1.0 - self.level, total.size, bias**2 / float(noise.min())))
