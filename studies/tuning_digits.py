"""Handwritten digits: how good a privately tuned private classifier is, by the law of the number of runs and its price.

The learner is the library's logistic regression with objective perturbation, ten classes, on scikit-learn's digits
(pictures averaged to 4 x 4). Each candidate, a penalty and a bound of the length of a picture, is trained a number of
times; then each law's selection is played out many times by drawing from these runs. 1,100 pictures
are private; of the others half are public, for the score, and half measure the winner.

``python -m studies.tuning_digits [FIGURE]``
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from discretion.privacy import Neighbours, PrivacyLoss, SeededRandomness
from discretion.selection import (
    LabelledRecords,
    LogisticMechanism,
    NegativeBinomial,
    Poisson,
    Repetitions,
    heterogeneous,
    selection_loss,
)

Array = NDArray[np.float64]

DELTA, NOISE = 1e-5, 10 / 3
PENALTIES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BOUNDS = (0.5, 1.0, 2.0, 4.0)
MEANS = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
FAMILIES = {
    "Poisson": Poisson,
    "shape 2": lambda mean: NegativeBinomial.of_mean(2.0, mean),
    "geometric": lambda mean: NegativeBinomial.of_mean(1.0, mean),
    "logarithmic": lambda mean: NegativeBinomial.of_mean(0.0, mean),
    "shape -0.5": lambda mean: NegativeBinomial.of_mean(-0.5, mean),
}


def digits() -> list[LabelledRecords]:
    """Private, public and test pictures."""
    loaded: Any = load_digits(return_X_y=True)
    X, y = loaded
    small = X.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16.0
    order = np.random.default_rng(0).permutation(len(y))
    return [LabelledRecords(small[part], y[part].astype(np.float64)) for part in np.split(order, [1100, 1450])]


def candidates() -> list[LogisticMechanism]:
    """Every penalty with every bound of the length of a picture."""
    return [
        LogisticMechanism(
            classes=10,
            dimension=16,
            feature_bound=bound,
            alpha=alpha,
            noise=NOISE,
            delta=DELTA,
            intercept=True,
            neighbours=Neighbours.ADD_REMOVE,
            most_records=10_000,
        )
        for alpha, bound in itertools.product(PENALTIES, BOUNDS)
    ]


def pool(repeats: int) -> Array:
    """Public and test accuracy of independent runs, shape (candidates, repeats, 2)."""
    private, *others = digits()
    found = []
    for number, each in enumerate(candidates()):
        for repeat in range(repeats):
            model = each.run(private, SeededRandomness(1000 * number + repeat))
            decisions = [part.covariates @ model.coefficients.T + model.intercepts for part in others]
            pairs = zip(decisions, others, strict=True)
            found.append([np.mean(scores.argmax(axis=1) == part.response) for scores, part in pairs])
    return np.array(found).reshape(len(candidates()), repeats, 2)


def played(runs: Array, law: Repetitions, selections: int, random: np.random.Generator) -> float:
    """Mean test accuracy of the winner of a selection; a default guesses one digit in ten."""
    flat, randomness = runs.reshape(-1, 2), SeededRandomness(int(random.integers(2**31)))
    total = 0.0
    for _ in range(selections):
        drawn = flat[random.integers(0, len(flat), law.sample(randomness))]
        total += drawn[np.argmax(drawn[:, 0]), 1] if len(drawn) else 0.1
    return total / selections


class Row(NamedTuple):
    """One law in the study."""

    family: str
    law: Repetitions
    epsilon: float
    accuracy: float


class Study(NamedTuple):
    """What was measured.

    Attributes:
        one: epsilon of one run.
        single: mean test accuracy of one run, its candidate drawn at random.
        best: mean test accuracy of the candidate that is best on the average. A selection can do better, since it also
            picks the run with the luckiest noise.
        rows: of all laws.
    """

    one: float
    single: float
    best: float
    rows: list[Row]


def price() -> PrivacyLoss:
    """Of one run, its candidate drawn at random."""
    losses = [each.privacy_loss(None) for each in candidates()]
    # the length bound has no part in it
    return heterogeneous(losses[:: len(BOUNDS)], [1 / len(PENALTIES)] * len(PENALTIES))


def measure(repeats: int = 20, selections: int = 1000, means: tuple[float, ...] = MEANS) -> Study:
    """Train the pool and play every law's selections."""
    runs, base, random = pool(repeats), price(), np.random.default_rng(1)
    rows = []
    for family, make in FAMILIES.items():
        for mean in means:
            law = make(mean)
            epsilon = selection_loss(base, law).epsilon(DELTA)
            rows.append(Row(family, law, epsilon, played(runs, law, selections, random)))
    by_candidate = runs.mean(axis=1)
    best = by_candidate[np.argmax(by_candidate[:, 0]), 1]
    return Study(base.epsilon(DELTA), float(runs[..., 1].mean()), float(best), rows)


def draw(found: Study, path: Path) -> None:
    """Accuracy of the winner against the total epsilon."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhline(found.best, color="0.7", linewidth=1)
    axes.annotate("mean run of the best candidate", (0.99, found.best), xycoords=("axes fraction", "data"),
                  ha="right", va="bottom", color="0.4", fontsize=8)  # fmt: skip
    axes.plot(found.one, found.single, "k*", markersize=9, label="one run")
    for family in FAMILIES:
        rows = [row for row in found.rows if row.family == family]
        axes.plot([row.epsilon for row in rows], [row.accuracy for row in rows], "o-", markersize=4, label=family)
    axes.set_xscale("log")
    ticks = (5, 6, 8, 10, 15, 20, 30, 50, 80)
    axes.set_xticks(ticks, labels=[str(each) for each in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"epsilon of tuning and release, at delta = {DELTA:g}")
    axes.set_ylabel("test accuracy of the winner")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = measure()
    console = Console()
    console.print(
        f"One run: epsilon {found.one:.3f}, test accuracy {found.single:.3f}; best candidate {found.best:.3f}."
    )
    table = Table("law of K", "mean", "q99", "epsilon", "test accuracy")
    for row in found.rows:
        values = (f"{row.law.mean:g}", str(row.law.quantile(0.99)), f"{row.epsilon:.3f}", f"{row.accuracy:.3f}")
        table.add_row(row.family, *values)
    console.print(table)
    draw(found, Path(sys.argv[1] if len(sys.argv) > 1 else "tuning_digits.png"))


if __name__ == "__main__":
    main()
