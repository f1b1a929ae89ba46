"""Mean of a Gaussian sample by private local search with a quadratic kernel (Sopa et al. 2025, Example 4.1).

Records x_i ~ N(1, I_5), losses |x_i - theta|^2 / 2, whose mean is least at the sample mean. Stationary theory: the root
mean square distance to it is sqrt(d rate / (2 - rate)) sigma.

``python -m studies.bayesopt_gaussian_mean`` prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from discretion.bayesopt import SGD, Linear, LocalSearch, Polynomial
from studies.bayesopt_run import NO_NOISE, band, searched

Floats = NDArray[np.float64]

N, D, STEPS, RATE = 1000, 5, 40, 0.3


@dataclass(frozen=True, eq=False)
class MeanRow:
    """One mu: distances to the sample mean over the second half of each run, and gradient biases of a run, by step."""

    mu: float
    noise: float
    distances: Floats
    averages: Floats
    biases: Floats

    @property
    def theory(self) -> float:
        """sqrt(d rate / (2 - rate)) sigma."""
        return float(np.sqrt(D * RATE / (2.0 - RATE))) * self.noise


def mean_row(mu: float, runs: int = 20) -> MeanRow:
    """Runs on as many samples."""
    space = {f"x{j}": Linear(-5.0, 5.0, unit=1.0) for j in range(D)}
    search = LocalSearch(
        space,  # pyright: ignore[reportArgumentType]
        mu=mu,
        steps=STEPS,
        clip=5.0,
        batch=D + 1,
        cache=21,
        kernel=Polynomial(2),
        offset="none",
        point_nugget=1e-4,
        mean_nugget=1e-8,
        update=SGD(RATE),
    )
    distances, averages, biases = [], [], np.empty(0)
    for seed in range(runs):
        X = np.random.default_rng(seed).normal(1.0, 1.0, (N, D))
        centre = X.mean(axis=0)
        study = searched(search, N, lambda z, X=X: 0.5 * ((X - z) ** 2).sum(axis=1), seed)
        half = study.result().thetas[1:][STEPS // 2 :]
        distances.append(np.linalg.norm(half - centre, axis=1).mean())
        averages.append(np.linalg.norm(half.mean(axis=0) - centre))
        steps = [(step.theta, step.gradient) for step in study.steps if step.gradient is not None]
        biases = np.array([float(np.linalg.norm(gradient - (theta - centre))) for theta, gradient in steps])
    return MeanRow(mu, search.noise(N), np.array(distances), np.array(averages), biases)


def main() -> None:
    """Print the table."""
    table = Table("mu", "sigma", "mean distance", "theory (root mean square)", "of the average", "bias at 0, from 5 on")
    for mu in (NO_NOISE, 2.0, 0.5):
        row = mean_row(mu)
        bias = f"{row.biases[0]:.2g}, {row.biases[5:].max():.2g}" if mu == NO_NOISE else ""
        cells = (f"{row.noise:.4g}", band(row.distances), f"{row.theory:.4g}", band(row.averages), bias)
        table.add_row("none" if mu == NO_NOISE else f"{mu:g}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
