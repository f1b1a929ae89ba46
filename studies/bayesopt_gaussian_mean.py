"""Mean of a Gaussian sample by private local search with a quadratic kernel (Sopa et al. 2025, Example 4.1).

Records x_i ~ N(1, I_5), losses |x_i - theta|^2 / 2, whose mean is least at the sample mean. Stationary theory: the root
mean square distance to it is sqrt(d rate / (2 - rate)) sigma.

``python -m studies.bayesopt_gaussian_mean --out FOLDER`` draws distances against steps and writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt import SGD, Linear, LocalSearch, Polynomial
from studies.bayesopt_figures import arguments, draw_bands, figure, save, write_table
from studies.bayesopt_run import NO_NOISE, searched

Floats = NDArray[np.float64]

N, D, STEPS, RATE = 1000, 5, 40, 0.3


@dataclass(frozen=True, eq=False)
class MeanRow:
    """One mu: distances to the sample mean over the second half of each run, and gradient biases of a run, by step.

    `paths` are the distances after each step of each run, (runs, STEPS).
    """

    mu: float
    noise: float
    distances: Floats
    averages: Floats
    biases: Floats
    paths: Floats

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
    paths, averages, biases = [], [], np.empty(0)
    for seed in range(runs):
        X = np.random.default_rng(seed).normal(1.0, 1.0, (N, D))
        centre = X.mean(axis=0)
        study = searched(search, N, lambda z, X=X: 0.5 * ((X - z) ** 2).sum(axis=1), seed)
        thetas = study.result().thetas[1:]
        paths.append(np.linalg.norm(thetas - centre, axis=1))
        averages.append(np.linalg.norm(thetas[STEPS // 2 :].mean(axis=0) - centre))
        steps = [(step.theta, step.gradient) for step in study.steps if step.gradient is not None]
        biases = np.array([float(np.linalg.norm(gradient - (theta - centre))) for theta, gradient in steps])
    distances = np.array(paths)[:, STEPS // 2 :].mean(axis=1)
    return MeanRow(mu, search.noise(N), distances, np.array(averages), biases, np.array(paths))


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 20)
    drawn, (axes,) = figure(1)
    rows = {("none" if mu == NO_NOISE else f"{mu:g}"): mean_row(mu, runs) for mu in (NO_NOISE, 2.0, 0.5)}
    draw_bands(axes, {f"mu = {mu}": (np.arange(1, STEPS + 1), row.paths) for mu, row in rows.items()})
    for row in rows.values():
        axes.axhline(row.theory, color="#7d8491", linewidth=0.8, linestyle=":")
    axes.set(xlabel="step", ylabel="distance to the sample mean", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    ends = {(f"mu = {mu}", "second half of the path"): row.distances for mu, row in rows.items()}
    ends |= {(f"mu = {mu}", "their average"): row.averages for mu, row in rows.items()}
    ends |= {(f"mu = {mu}", "theory, root mean square"): np.array([row.theory]) for mu, row in rows.items()}
    write_table(folder / "gaussian_mean.csv", ends)
    save(drawn, folder / "gaussian_mean.png")


if __name__ == "__main__":
    main()
