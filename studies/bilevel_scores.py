"""Choosing a penalty with one sensitivity for all candidates, or with each candidate's own.

41 values of lambda in [1e-3, 10], outer loss 0.2 + (log10 lambda)^2/30, of which one record moves 0.002/lambda.

``python -m studies.bilevel_scores [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from discretion.bilevel.samplers import probabilities
from discretion.bilevel.scores import candidate_scores

Floats = NDArray[np.float64]

PENALTIES = np.geomspace(1e-3, 10.0, 41)
LOSSES = 0.2 + np.log10(PENALTIES) ** 2 / 30
CHANGES = 0.002 / PENALTIES
EPSILONS = np.array([0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0])


def excess(epsilon: float) -> tuple[float, float]:
    """Expected excess of the plain and of the candidate-dependent score."""
    over = LOSSES - LOSSES.min()
    plain = probabilities(epsilon / (2.0 * CHANGES.max()) * LOSSES)
    t = 2.0 * math.log(len(LOSSES) / 0.05) / epsilon
    candidate = probabilities(0.5 * epsilon * candidate_scores(LOSSES, CHANGES, t))
    return float(over @ plain), float(over @ candidate)


def draw(rows: Floats, path: Path) -> None:
    """Excess against epsilon."""
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.loglog(EPSILONS, rows[:, 0], "s-", color="#b5442e", label="one sensitivity for all")
    axes.loglog(EPSILONS, rows[:, 1], "o-", color="#27607f", label="each candidate's own")
    axes.axhline(float(np.mean(LOSSES - LOSSES.min())), color="0.6", ls="--", label="uniform choice")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("expected excess")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    rows = np.array([excess(float(epsilon)) for epsilon in EPSILONS])
    table = Table("epsilon", "one sensitivity for all", "each candidate's own", title="Expected excess")
    for epsilon, row in zip(EPSILONS, rows, strict=True):
        table.add_row(f"{epsilon:g}", *(f"{each:.4f}" for each in row))
    Console().print(table)
    if len(sys.argv) > 1:
        draw(rows, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
