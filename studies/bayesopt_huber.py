"""Robust regression by private local search, beside noisy gradient descent with exact gradients and the same noise.

Records (x, y), x ~ N(0, I_4), y = x'theta + N(0, 1); Huber losses with weights min(1, 2/|x|^2), whose gradients have
norm sqrt 2 at most. Noisy gradient descent is the ceiling: it has the gradients that local search estimates.

``python -m studies.bayesopt_huber --out FOLDER`` draws distances against steps and writes the table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from discretion.bayesopt import SGD, Linear, LocalSearch, gradient_noise
from discretion.gp import RBF
from discretion.privacy import SeededRandomness
from studies.bayesopt_figures import arguments, draw_bands, figure, save, write_table
from studies.bayesopt_run import NO_NOISE, searched

Floats = NDArray[np.float64]

N, STEPS, RATE, CLIP, MU = 1000, 40, 1.0, 2.0**0.5, 1.0
TRUTH = np.array([1.0, -1.0, 0.5, 2.0])


class HuberRecords:
    """A sample and its losses."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(N, TRUTH.size))
        self.y = self.X @ TRUTH + rng.normal(size=N)
        self.weights = np.minimum(1.0, 2.0 / np.sum(self.X**2, axis=1))

    def losses(self, theta: Floats) -> Floats:
        """Of each record."""
        r = np.abs(self.y - self.X @ theta)
        return self.weights * np.where(r <= 1.0, 0.5 * r * r, r - 0.5)

    def gradient(self, theta: Floats) -> Floats:
        """Of the mean."""
        return np.asarray(-(self.weights * np.clip(self.y - self.X @ theta, -1.0, 1.0)) @ self.X / N)

    def estimate(self) -> Floats:
        """The minimiser of the mean, not private."""
        found = minimize(lambda t: self.losses(t).mean(), TRUTH, jac=self.gradient, options={"gtol": 1e-10})
        return np.asarray(found.x)


def huber_rows(runs: int = 10) -> dict[str, Floats]:
    """Mean distances to the estimate over the second half of each run, by method."""
    return {name: path[:, STEPS // 2 :].mean(axis=1) for name, path in huber_paths(runs).items()}


def huber_paths(runs: int = 10) -> dict[str, Floats]:
    """Distances to the estimate after each step, (runs, STEPS), by method."""
    space = {f"x{j}": Linear(-5.0, 5.0, unit=1.0) for j in range(TRUTH.size)}
    rows: dict[str, list[Floats]] = {"local search": [], "noisy gradient descent": [], "local search, not private": []}
    for seed in range(runs):
        records = HuberRecords(seed)
        estimate = records.estimate()

        def distance(path: Floats, estimate: Floats = estimate) -> Floats:
            return np.asarray(np.linalg.norm(path - estimate, axis=1))

        for name, mu in (("local search", MU), ("local search, not private", NO_NOISE)):
            search = LocalSearch(
                space,  # pyright: ignore[reportArgumentType]
                mu=mu,
                steps=STEPS,
                clip=CLIP,
                kernel=RBF(1.5),
                cache=0,
                update=SGD(RATE),
            )
            rows[name].append(distance(searched(search, N, records.losses, seed).result().thetas[1:]))
        noise, randomness = gradient_noise(mu=MU, clip=CLIP, n=N, steps=STEPS), SeededRandomness(1000 + seed)
        path, theta = [], np.zeros(TRUTH.size)
        for _ in range(STEPS):
            theta = theta - RATE * (records.gradient(theta) + noise * randomness.standard_normal(TRUTH.size))
            path.append(theta)
        rows["noisy gradient descent"].append(distance(np.array(path)))
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 10)
    drawn, (axes,) = figure(1)
    paths = huber_paths(runs)
    draw_bands(axes, {name: (np.arange(1, STEPS + 1), path) for name, path in paths.items()})
    axes.set(xlabel="step", ylabel="distance to the estimate", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    ends = {("second half of the path", name): path[:, STEPS // 2 :].mean(axis=1) for name, path in paths.items()}
    write_table(folder / "huber.csv", ends)
    save(drawn, folder / "huber.png")


if __name__ == "__main__":
    main()
