"""Group lasso with a penalty for each group, tuned by private local search (Sopa et al. 2025, their second example).

d groups of five features, correlated by 0.9 within a group; the first group matters. 50 public records train, 150
private ones are scored; theta are the logarithms of the d penalties in [log 1e-6, 0]; the model is that of 200 steps of
proximal gradient descent, and a record's loss half its squared residual. A search begins at a random point.

``python -m studies.bayesopt_group_lasso --out FOLDER`` draws losses against evaluations and writes the table.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt import AdaGrad, Log, Space
from studies.bayesopt_figures import arguments, study
from studies.bayesopt_run import Task

Floats = NDArray[np.float64]

TRAIN, N, FRESH, GROUP, ISTA = 50, 150, 5000, 5, 200


def group_lasso(seed: int, d: int) -> Task:
    """The task of one sample."""
    rng = np.random.default_rng([74, d, seed])
    shared = rng.normal(size=(TRAIN + N + FRESH, d, 1))
    X = (0.9**0.5 * shared + 0.1**0.5 * rng.normal(size=(len(shared), d, GROUP))).reshape(len(shared), d * GROUP)
    w = np.zeros(d * GROUP)
    w[:GROUP] = rng.normal(size=GROUP)
    y = X @ w + rng.normal(size=len(X))
    X = (X - X[:TRAIN].mean(axis=0)) / X[:TRAIN].std(axis=0)
    y = (y - y[:TRAIN].mean()) / y[:TRAIN].std()
    space = Space({f"penalty_{k}": Log(1e-6, 1.0, unit=1.0) for k in range(d)})
    gram, moment = X[:TRAIN].T @ X[:TRAIN] / TRAIN, X[:TRAIN].T @ y[:TRAIN] / TRAIN
    rate = 1.0 / float(np.linalg.eigvalsh(gram)[-1])

    def weights(theta: Floats) -> Floats:
        penalty = rate * np.array(list(space.parameters(theta).values()))
        b = np.zeros(d * GROUP)
        for _ in range(ISTA):
            b = b - rate * (gram @ b - moment)
            groups = b.reshape(d, GROUP)
            length = np.sqrt((groups**2).sum(axis=1))
            b = (groups * np.maximum(1.0 - penalty / np.maximum(length, 1e-300), 0.0)[:, None]).ravel()
        return b

    def losses(theta: Floats, there: slice = slice(TRAIN, TRAIN + N)) -> Floats:
        return 0.5 * (y[there] - X[there] @ weights(theta)) ** 2

    middle = 0.5 * np.log(1e-6)
    return Task(
        space,
        N,
        losses,
        lambda theta: float(losses(theta, slice(TRAIN + N, None)).mean()),
        rng.uniform(-6.0, 0.0, d) - middle,
        mu=1.0,
        clip=0.05,
        steps=20,
        batch=d + 1,
        few=d // 2 + 1,
        update=AdaGrad(1.0),
    )


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 5)
    study("group_lasso", {f"{d} penalties": partial(group_lasso, d=d) for d in (2, 10, 20)}, folder, runs)


if __name__ == "__main__":
    main()
