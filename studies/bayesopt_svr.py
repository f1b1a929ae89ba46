"""Support vector regression of house prices: eleven hyperparameters tuned by private local search.

In the manner of the main experiment of Sopa et al. 2025, whose table (the position of CT slices, from the UCI
repository) is not available offline; this one is 25,357 house sales of Lucas County, Ohio, CC0, in `studies/data`.
Eight features and the log price, standardised by the 250 public training records; 5,000 private records are scored.
theta are the logarithms of eight length scales in [-3, 3], and of epsilon in [0.01, 1], gamma in [0.1, 3] and C in
[0.01, 5]; a record's loss is half its squared residual, at most 8. A search begins at a random point of the middle half
of the box: farther out, at short length scales, every house is alone and nothing slopes.

``python -m studies.bayesopt_svr --out FOLDER`` draws losses against evaluations and writes the table.
"""

from __future__ import annotations

import csv
import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.svm import SVR

from discretion.bayesopt import AdaGrad, Log, Space
from studies.bayesopt_figures import arguments, study
from studies.bayesopt_run import Task

Floats = NDArray[np.float64]

TABLE = Path(__file__).parent / "data" / "lucas_houses.csv.gz"
TRAIN, N = 250, 5000


@lru_cache(maxsize=1)
def houses() -> tuple[Floats, Floats]:
    """Eight features and the log price of every house."""
    with gzip.open(TABLE, "rt", encoding="utf-8", newline="") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=np.float64)
    X = rows[:, 1:]
    X[:, [2, 3]] = np.log(X[:, [2, 3]])  # living area and lot
    return X, np.log(rows[:, 0])


def svr_houses(seed: int) -> Task:
    """The task of one random split."""
    rng = np.random.default_rng([73, seed])
    X, y = houses()
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    X = (X - X[:TRAIN].mean(axis=0)) / X[:TRAIN].std(axis=0)
    y = (y - y[:TRAIN].mean()) / y[:TRAIN].std()
    d = X.shape[1]
    space = Space(
        {f"length_{j}": Log(np.exp(-3.0), np.exp(3.0), unit=1.0) for j in range(d)}
        | {"epsilon": Log(0.01, 1.0, unit=1.0), "gamma": Log(0.1, 3.0, unit=1.0), "C": Log(0.01, 5.0, unit=1.0)}
    )

    def losses(theta: Floats, there: slice = slice(TRAIN, TRAIN + N)) -> Floats:
        *lengths, epsilon, gamma, C = space.parameters(theta).values()
        Z = X[:TRAIN] / lengths
        K = np.exp(-gamma * cdist(Z, Z, "sqeuclidean"))
        model = SVR(kernel="precomputed", epsilon=epsilon, C=C, tol=1e-6).fit(K, y[:TRAIN])
        K = np.exp(-gamma * cdist(X[there] / lengths, Z[model.support_], "sqeuclidean"))
        fitted = K @ model.dual_coef_[0] + model.intercept_[0]
        return np.minimum(0.5 * (y[there] - fitted) ** 2, 8.0)

    return Task(
        space,
        N,
        losses,
        lambda theta: float(losses(theta, slice(TRAIN + N, TRAIN + 2 * N)).mean()),
        0.5 * rng.uniform(*space.bounds),
        mu=0.2,
        clip=0.5,
        steps=15,
        batch=space.size + 1,
        few=6,
        update=AdaGrad(1.0),
    )


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 5)
    study("svr_houses", {"support vector regression, 11 parameters": svr_houses}, folder, runs)


if __name__ == "__main__":
    main()
