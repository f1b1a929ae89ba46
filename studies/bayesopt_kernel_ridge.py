"""Tuning of kernel ridge regression: eleven hyperparameters by private local search, beside random search.

Ten features, of which two matter; public training records, private validation records; kernel exp(-|x - z|^2) with a
length scale for each feature; theta are their ten logarithms and the log ridge; a record's loss is half its squared
residual, at most 8. A search begins in the middle of the box, or at a random point. Random search is given the best of
as many evaluations without paying for the choice.

``python -m studies.bayesopt_kernel_ridge --out FOLDER`` draws losses against evaluations and writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from discretion.bayesopt import AdaGrad, LocalSearch, Log, Space
from discretion.gp import RBF
from studies.bayesopt_figures import arguments, study
from studies.bayesopt_run import NO_NOISE, Task, searched

Floats = NDArray[np.float64]

TRAIN, N, FEATURES = 150, 5000, 10
STEPS, BATCH, MU, CLIP, RATE = 12, 12, 0.5, 0.5, 0.7
SPACE = Space(
    {f"length_{j}": Log(np.exp(-1.5), np.exp(3.0), unit=1.0) for j in range(FEATURES)}
    | {"ridge": Log(1e-3, 1.0, unit=1.0)}
)


class RidgeRecords:
    """Training and validation records, and fresh ones on which what was released is scored."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.7, 1.7, (TRAIN + 2 * N, FEATURES))
        y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * rng.normal(size=len(X))
        self.X, self.y = X, (y - y[:TRAIN].mean()) / y[:TRAIN].std()

    def losses(self, theta: Floats, first: int = TRAIN) -> Floats:
        """Of the N records from `first` on, by the model trained at theta."""
        parameters = SPACE.parameters(theta)
        X = self.X / np.array([parameters[f"length_{j}"] for j in range(FEATURES)])
        K = np.exp(-cdist(X[:TRAIN], X[:TRAIN], "sqeuclidean"))
        K[np.diag_indices(TRAIN)] += parameters["ridge"]
        weights = cho_solve(cho_factor(K, lower=True), self.y[:TRAIN])
        there = slice(first, first + N)
        fitted = np.exp(-cdist(X[there], X[:TRAIN], "sqeuclidean")) @ weights
        return np.minimum(0.5 * (self.y[there] - fitted) ** 2, 8.0)

    def fresh(self, theta: Floats) -> float:
        """The mean loss on records that no method saw."""
        return float(self.losses(theta, TRAIN + N).mean())


def kernel_ridge(seed: int) -> Task:
    """The task of one sample, from the middle of the box, at the rate that suits differences best on other samples."""
    records = RidgeRecords(seed)
    start = np.zeros(SPACE.size)
    return Task(
        SPACE, N, records.losses, records.fresh, start, MU, CLIP, STEPS, BATCH, 6, AdaGrad(4.0 * RATE), length=2.0
    )


@dataclass(frozen=True, eq=False)
class RidgeRows:
    """Mean losses on fresh records, one of each run."""

    start: Floats
    private: Floats
    last: Floats
    not_private: Floats
    random: Floats


def ridge_rows(runs: int = 10, *, start: str = "middle") -> RidgeRows:
    """Runs on as many samples, from the "middle" of the box or a "random" point of it."""
    rows = []
    low, high = SPACE.bounds
    for seed in range(runs):
        records, rng = RidgeRecords(seed), np.random.default_rng([7, seed])
        theta = rng.uniform(low, high) if start == "random" else np.zeros(SPACE.size)

        def search(mu: float, theta: Floats = theta, seed: int = seed) -> LocalSearch:
            return LocalSearch(
                SPACE,
                mu=mu,
                steps=STEPS,
                clip=CLIP,
                batch=BATCH,
                cache=0,
                kernel=RBF(1.0),
                update=AdaGrad(RATE),
                start=SPACE.parameters(theta),
                seed=seed,
            )

        private = searched(search(MU), N, records.losses, seed).result()
        released = SPACE.theta(private.parameters)
        exact = SPACE.theta(searched(search(NO_NOISE), N, records.losses, seed).result().parameters)
        points = rng.uniform(low, high, (STEPS * BATCH, SPACE.size))
        best = min(points, key=lambda point, records=records: records.losses(point).mean())
        rows.append([records.fresh(each) for each in (theta, released, private.thetas[-1], exact, best)])
    return RidgeRows(*np.array(rows).T)


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 5)
    study("kernel_ridge", {"kernel ridge regression, 11 parameters": kernel_ridge}, folder, runs)


if __name__ == "__main__":
    main()
