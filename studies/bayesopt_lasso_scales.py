"""The lasso with a scale for each feature, tuned by private local search (Sopa et al. 2025): 24 evaluations, two steps.

Ten features of which five matter, noise of 15; 50 public records train, 500 private ones are scored; theta are ten log
scales in [-2, 2] and the log penalty in [log 1e-4, log 10]; a record's loss is half its squared residual. A search
begins at a random point; its rate is 2, half of a scale's range, as 0.5, the paper's, leads nowhere in two steps.

``python -m studies.bayesopt_lasso_scales --out FOLDER`` draws losses against evaluations and writes the table.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from discretion.bayesopt import AdaGrad, Log, Space
from studies.bayesopt_figures import arguments, study
from studies.bayesopt_run import Task

Floats = NDArray[np.float64]

TRAIN, N, FRESH, FEATURES = 50, 500, 5000, 10


def lasso_scales(seed: int) -> Task:
    """The task of one sample."""
    made = make_regression(TRAIN + N + FRESH, FEATURES, n_informative=5, noise=15.0, random_state=7500 + seed)
    X, y = np.asarray(made[0]), np.asarray(made[1])
    X = (X - X[:TRAIN].mean(axis=0)) / X[:TRAIN].std(axis=0)
    y = (y - y[:TRAIN].mean()) / y[:TRAIN].std()
    space = Space(
        {f"scale_{j}": Log(np.exp(-2.0), np.exp(2.0), unit=1.0) for j in range(FEATURES)}
        | {"penalty": Log(1e-4, 10.0, unit=1.0)}
    )

    def losses(theta: Floats, there: slice = slice(TRAIN, TRAIN + N)) -> Floats:
        *scales, penalty = space.parameters(theta).values()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = Lasso(penalty, fit_intercept=False, tol=1e-7, max_iter=5000).fit(X[:TRAIN] * scales, y[:TRAIN])
        return 0.5 * (y[there] - X[there] @ (scales * model.coef_)) ** 2

    rng = np.random.default_rng([75, seed])
    return Task(
        space,
        N,
        losses,
        lambda theta: float(losses(theta, slice(TRAIN + N, None)).mean()),
        rng.uniform(*space.bounds),
        mu=1.0,
        clip=0.5,
        steps=2,
        batch=FEATURES + 2,
        few=3,
        update=AdaGrad(2.0),
    )


def main() -> None:
    """Draw the figure and write the table."""
    folder, runs = arguments(__doc__, 40)
    study("lasso_scales", {"lasso, ten scales and a penalty": lasso_scales}, folder, runs)


if __name__ == "__main__":
    main()
