"""What choosing a hyperparameter without privacy gives away, and what private selection leaves of it.

Two classes of 20 points each; the neighbour has eight copies of one outlier more. A linear support vector machine,
minimising |w|^2 + alpha times the mean hinge loss exactly, is tuned for training accuracy (after Papernot and Steinke
2022, who motivate private selection with it). Whoever sees nothing but the chosen alpha knows which data it was.

``python -m studies.tuning_leak [FIGURE]``
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import norm
from sklearn.svm import SVC

from discretion.privacy import GaussianDP, Neighbours
from discretion.selection import Repetitions, geometric, selection_loss

Array = NDArray[np.float64]

ALPHAS = np.array([0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
TURN = 8.0
OUTLIER, OUTLIERS = (7.9, -8.0), 8
LAW = geometric(10.0)
MUS = np.array([0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.0])


def points(random: np.random.Generator) -> tuple[Array, Array]:
    """40 points and their labels."""
    X = np.concatenate([random.normal((7.86, -3.36), 1.0, (20, 2)), random.normal((6.42, -9.17), 1.0, (20, 2))])
    return X, np.repeat([-1.0, 1.0], 20)


def accuracies(X: Array, y: Array) -> Array:
    """Training accuracy at each alpha."""
    found = []
    for alpha in ALPHAS:
        # |w|^2 + alpha mean hinge, in the solver's units
        machine = SVC(kernel="linear", C=alpha / (2 * len(y)), tol=1e-6).fit(X, y)
        found.append(float(np.mean(machine.predict(X) == y)))
    return np.array(found)


def chosen(scores: Array, law: Repetitions, mu: float) -> Array:
    """Exact chances that each candidate is the best of K runs, each of accuracy plus N(0, 1/mu^2).

    Accuracy lies in [0, 1] whatever the data, so that one run is mu-Gaussian DP for any two data sets. Candidate j wins
    with chance w_j E f'(F(Y_j)), F the distribution function of a run and f the generating function of K.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    y = scores[:, None] + nodes / mu
    below = norm.cdf(mu * (y[..., None] - scores)).mean(axis=-1)
    wins = law.derivative(1 - below) @ (weights / weights.sum()) / len(scores)
    return wins / (1 - law.none)


class Leak(NamedTuple):
    """What was measured.

    Attributes:
        without, with_outliers: mean training accuracy at each alpha.
        advantage: of guessing the data from whether alpha >= 8, the choice made without privacy.
        private: the same for private selection at each mu; and of the best guess there is from the chosen alpha.
        best_guess: the latter.
        bound: what the account says of any guess, at each mu.
    """

    without: Array
    with_outliers: Array
    advantage: float
    private: Array
    best_guess: Array
    bound: Array


def measure(draws: int = 200, seed: int = 0) -> Leak:
    """Draw data sets, tune on each with and without its outliers."""
    random = np.random.default_rng(seed)
    pairs = []
    for _ in range(draws):
        X, y = points(random)
        more = np.concatenate([X, np.tile(OUTLIER, (OUTLIERS, 1))]), np.append(y, np.full(OUTLIERS, -1.0))
        pairs.append((accuracies(X, y), accuracies(*more)))
    scores = np.array(pairs)  # (draws, 2, alphas)
    # ties go to the smallest alpha
    late = ALPHAS[np.argmax(scores, axis=-1)] >= TURN
    private, best = [], []
    for mu in MUS:
        laws = np.array([[chosen(each, LAW, mu) for each in pair] for pair in scores])
        private.append(abs(np.diff(laws[..., ALPHAS >= TURN].sum(axis=-1).mean(axis=0))[0]))
        best.append(np.max(np.maximum(laws[:, 0] - laws[:, 1], 0.0).sum(axis=-1)))
    losses = [selection_loss(GaussianDP(float(mu), neighbours=Neighbours.REPLACE), LAW) for mu in MUS]
    without, with_outliers = scores.mean(axis=0)
    return Leak(
        without,
        with_outliers,
        abs(float(np.diff(late.mean(axis=0))[0])),
        np.array(private),
        np.array(best),
        np.array([loss.delta(0.0) for loss in losses]),
    )


def draw(found: Leak, path: Path) -> None:
    """Accuracy against alpha, and advantage against the noise."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(ALPHAS, found.without, "o-", color="#27607f", label="40 points")
    left.plot(ALPHAS, found.with_outliers, "s-", color="#b5442e", label="and 8 outliers")
    left.axvline(TURN, color="0.8", zorder=0)
    left.set_xscale("log")
    left.set_xlabel("alpha")
    left.set_ylabel("training accuracy")
    left.legend(frameon=False)
    right.axhline(found.advantage, color="#b5442e", label="chosen without privacy")
    right.plot(MUS, found.bound, "k--", label="bound for any guess")
    right.plot(MUS, found.best_guess, "o-", color="#7fa3b5", label="best guess, worst data set")
    right.plot(MUS, found.private, "o-", color="#27607f", label="private selection")
    right.set_xlabel("mu of one run")
    right.set_ylabel("advantage of an observer")
    right.set_ylim(-0.02, 1.05)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the tables and draw the figure."""
    found = measure()
    console = Console()
    table = Table("alpha", "40 points", "and 8 outliers", title="Mean training accuracy")
    for row in zip(ALPHAS, found.without, found.with_outliers, strict=True):
        table.add_row(*(f"{each:.3g}" for each in row))
    console.print(table)
    console.print(f"Advantage of seeing whether alpha >= {TURN:g}, chosen without privacy: {found.advantage:.3f}")
    table = Table(
        "mu", "private selection", "best guess, worst data", "bound", title=f"Best of {LAW.name} runs, mean 10"
    )
    for row in zip(MUS, found.private, found.best_guess, found.bound, strict=True):
        table.add_row(*(f"{math.ceil(each * 1e4) / 1e4:.4f}" for each in row))
    console.print(table)
    draw(found, Path(sys.argv[1] if len(sys.argv) > 1 else "tuning_leak.png"))


if __name__ == "__main__":
    main()
