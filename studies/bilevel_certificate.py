"""How accurate inner solutions should be: noise against inner steps.

An inner error alpha adds 2 C alpha to the sensitivity 2K/n. Lowy and Liu (2025) take alpha = K/(C n), which doubles it;
a hundredth of that costs 1 %, and solvers converge linearly: gradient descent needs log(100)/log((kappa + 1)/(kappa -
1)) more steps, about 2.3 kappa. Logistic regression with a smooth penalty, 2,000 records, of which some features are
shorter than others to vary kappa.

``python -m studies.bilevel_certificate [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Sheet

from discretion.bilevel.certified import certified_inner
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.families import LogisticPenalty, Table
from discretion.bilevel.first_order import gradient_descent, lbfgs
from discretion.bilevel.sensitivity import hypergradient_error, hypergradient_sensitivity, inexactness
from discretion.bilevel.solvers import newton

Floats = NDArray[np.float64]

N, D = 1000, 20
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
PENALTIES = (0.1, 0.03, 0.01)
SOLVERS: dict[str, Any] = {"gradient descent": gradient_descent, "L-BFGS": lbfgs, "Newton": newton}


@dataclass(frozen=True)
class Row:
    """At alpha = share K/(C n): kappa, noise over that of exact solutions, and inner gradients of each solver."""

    share: float
    kappa: float
    noise: float
    gradients: dict[str, int]


class _Counting(LogisticPenalty):
    """Counts inner gradients."""

    calls = 0

    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats:
        type(self).calls += 1
        return super().inner_gradient(x, y, records)


def rows(shares: tuple[float, ...] = SHARES, penalties: tuple[float, ...] = PENALTIES) -> list[Row]:
    """One row for each penalty and share."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2 * N, D)) / np.sqrt(1.0 + np.arange(D))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = np.where(A @ rng.normal(size=D) + 0.2 * rng.normal(size=2 * N) > 0, 1.0, -1.0)
    problem = _Counting(training=N, validation=N, dimension=D, penalties=(0.005, 10.0), candidates=None)
    held = problem.ingest(SplitRecords(Table(A[:N], b[:N]), Table(A[N:], b[N:])))
    found = []
    for penalty in penalties:
        x = np.array([math.log(penalty)])
        c = problem.constants(x)
        exact = hypergradient_sensitivity(c, problem.counts).value
        for share in shares:
            alpha = share * 0.5 * exact / inexactness(c)

            def gradients(solver: Callable[..., Any], x: Floats = x, alpha: float = alpha, c: Any = c) -> int:
                _Counting.calls = 0
                certified_inner(problem, x, held, c.get("mu_g") * alpha, np.zeros(D), solver)
                return _Counting.calls

            noise = 1.0 + 2.0 * hypergradient_error(c, alpha, 0.0) / exact
            counts = {name: gradients(solver) for name, solver in SOLVERS.items()}
            found.append(Row(share, c.get("b_gyy") / c.get("mu_g"), noise, counts))
    return found


def draw(found: list[Row], path: Path) -> None:
    """Noise and inner gradients against the share."""
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    hardest = [row for row in found if row.kappa == max(each.kappa for each in found)]
    shares = [row.share for row in hardest]
    left.semilogx(shares, [row.noise for row in hardest], "o-", color="#27607f")
    left.set(xlabel="inner error over K/(Cn)", ylabel="noise over that of exact solutions", ylim=(0.95, 2.05))
    looks = (("o-", "#27607f"), ("s-", "#b5442e"), ("^-", "#7d8491"))
    for name, (style, colour) in zip(SOLVERS, looks, strict=True):
        right.loglog(shares, [row.gradients[name] for row in hardest], style, color=colour, label=name)
    right.set(xlabel="inner error over K/(Cn)", ylabel=f"inner gradients, kappa = {hardest[0].kappa:.0f}")
    right.set_ylim(3, 400)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = rows()
    table = Sheet("kappa", "inner error over K/(Cn)", "noise", *(f"gradients, {name}" for name in SOLVERS))
    for row in found:
        counts = [str(count) for count in row.gradients.values()]
        table.add_row(f"{row.kappa:.0f}", f"{row.share:g}", f"{row.noise:.3f}", *counts)
    Console().print(table)
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
