"""Draws of a Gaussian process as losses, minimised by private local search.

A record's loss is g + h_i: g a draw of a process with RBF covariance, length scale 1 and variance 1, by random Fourier
features; h_i a draw of variance 1/4 for each of 1000 records; the box is [-3, 3]^d. The mean of g + h_i over fresh
records is g. A search begins at a random point.

``python -m studies.bayesopt_gp_samples --out FOLDER`` draws losses against evaluations and writes the table.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt import AdaGrad, Linear, Space
from studies.bayesopt_figures import arguments, study
from studies.bayesopt_run import Task

Floats = NDArray[np.float64]

N, FEATURES = 1000, 1000


def gp_sample(seed: int, d: int) -> Task:
    """The task of one draw."""
    rng = np.random.default_rng([76, d, seed])
    W, phase = rng.normal(size=(FEATURES, d)), rng.uniform(0.0, 2.0 * np.pi, FEATURES)
    common = (2.0 / FEATURES) ** 0.5 * rng.normal(size=FEATURES)
    each = (2.0 / FEATURES) ** 0.5 * 0.5 * rng.normal(size=(N, FEATURES)) + common

    def gradients(theta: Floats) -> Floats:
        return -(each * np.sin(W @ theta + phase)) @ W

    space = Space({f"x{j}": Linear(-3.0, 3.0, unit=1.0) for j in range(d)})
    return Task(
        space,
        N,
        lambda theta: each @ np.cos(W @ theta + phase),
        lambda theta: float(common @ np.cos(W @ theta + phase)),
        rng.uniform(*space.bounds),
        mu=1.0,
        clip=2.0,
        steps=10,
        batch=d + 1,
        few=(d + 4) // 3,
        update=AdaGrad(1.0),
        loss_range=(-6.0, 6.0),
        gradients=gradients,
    )


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 20)
    study("gp_samples", {f"{d} dimensions": partial(gp_sample, d=d) for d in (2, 5, 10)}, folder, runs, log=False)


if __name__ == "__main__":
    main()
