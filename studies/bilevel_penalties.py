"""Choosing the penalty of a regression privately, on real tables and on synthetic ones of many sizes.

Half of the records fit the model, half choose among 21 penalties; expected excess of the validation loss, exactly, from
the chances of each penalty. The score that is used if none is asked for has an asterisk, and two where the report says
beforehand that the choice is informative. Rows are divided by a length that their makers' scaling suggests, and
shortened to 1.

``python -m studies.bilevel_penalties [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Printed
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from discretion.bilevel import ExponentialMechanism, LogisticPenalty, RidgePenalty, Table
from discretion.bilevel.samplers import probabilities

Floats = NDArray[np.float64]

EPSILONS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
SIZES = (1_000, 10_000, 100_000, 200_000, 1_000_000)
DIMENSION = 10


@dataclass(frozen=True)
class Row:
    """One table.

    Attributes:
        name: of the table. n: its records.
        range: Delta of the plain score. spread: of the outer loss over penalties (known to studies, not to users).
        uniform: excess of a uniform choice.
        plain, candidate: expected excess at EPSILONS.
        default: the score that is taken if none is asked for, at each epsilon.
        forecast: excess over that of a uniform choice that the report then expects, before any record is read.
        informative: what it says of the choice.
        seconds: of processor time, the grid included.
    """

    name: str
    n: int
    range: float
    spread: float
    uniform: float
    plain: Floats
    candidate: Floats
    default: tuple[str, ...]
    forecast: Floats
    informative: tuple[bool, ...]
    seconds: float

    @property
    def chosen(self) -> Floats:
        """Expected excess of the default score at EPSILONS."""
        return np.where(np.array(self.default) == "plain", self.plain, self.candidate)


def synthetic(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Rows on the unit sphere, responses linear with noise, inside [-1, 1]."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, DIMENSION))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return A, np.clip(A @ np.linspace(1.0, -1.0, DIMENSION) * 0.8 + 0.3 * rng.normal(size=n), -1.0, 1.0)


def choice(name: str, kind: type[RidgePenalty] | type[LogisticPenalty], A: Floats, b: Floats, least: float) -> Row:
    """Expected excess of both scores."""
    start = time.process_time()
    n, held = len(A), np.arange(len(A)) % 2 == 1
    options: dict[str, Any] = {"dimension": A.shape[1], "penalties": (least, 10.0), "candidates": 21}
    problem = kind(training=int((~held).sum()), validation=int(held.sum()), **options)
    first = ExponentialMechanism(problem=problem, epsilon=1.0, score="candidate")
    values = problem.values(first.points, problem.ingest(Table.split(A, b, ~held)), first.plan.tolerances)
    over = values - values.min()
    found: dict[str, list[float]] = {"plain": [], "candidate": []}
    default, forecast, informative = [], [], []
    for epsilon in EPSILONS:
        for score, column in found.items():
            chosen: Any = score
            mechanism = ExponentialMechanism(problem=problem, epsilon=float(epsilon), score=chosen)
            column.append(float(over @ probabilities(mechanism.scores(values))))
        report = ExponentialMechanism(problem=problem, epsilon=float(epsilon)).report()
        default.append(report.score)
        forecast.append(report.forecasts[0].share)
        informative.append(report.informative)
    return Row(
        name,
        n,
        first.plan.range.value,
        float(over.max()),
        float(over.mean()),
        np.array(found["plain"]),
        np.array(found["candidate"]),
        tuple(default),
        np.array(forecast),
        tuple(informative),
        time.process_time() - start,
    )


def real() -> list[Row]:
    """Diabetes (ridge), breast cancer and digits, odd or even (logistic)."""
    tables: list[Any] = [load_diabetes(), load_breast_cancer(), load_digits()]
    diabetes, cancer, digits = tables
    # columns of diabetes come with mean 0 and norm 1; responses run from 25 to 346
    A = diabetes.data * np.sqrt(len(diabetes.data) / 10.0)
    rows = [choice("diabetes, ridge", RidgePenalty, A, (diabetes.target - 185.0) / 161.0, 0.1)]
    # about the largest of each kind of measurement: mean, error and worst of ten
    means = np.array([30.0, 40, 190, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1])
    errors = np.array([3.0, 5, 22, 550, 0.04, 0.2, 0.4, 0.06, 0.08, 0.03])
    worst = np.array([40.0, 50, 260, 4300, 0.3, 1.1, 1.3, 0.3, 0.7, 0.3])
    scales = np.concatenate([means, errors, worst])
    rows += [
        choice("breast cancer, logistic", LogisticPenalty, 2 * (cancer.data / scales) - 0.8, cancer.target - 0.5, 0.03)
    ]
    pixels = (digits.data - 5.0) / 16.0 / 3.0
    return [*rows, choice("digits, logistic", LogisticPenalty, pixels, digits.target % 2 - 0.5, 0.03)]


def made_up(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Synthetic ridge at several n."""
    return [choice(f"synthetic, n = {n:,}", RidgePenalty, *synthetic(n), 0.1) for n in sizes]


def draw(rows: list[Row], path: Path) -> None:
    """Excess against epsilon, and Delta/epsilon against n with the spread."""
    figure = Figure(figsize=(10.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for row, colour in zip(rows, ("#b5442e", "#c98a3b", "#7a9a52", *[f"C{i}" for i in range(9)]), strict=False):
        left.loglog(EPSILONS, np.maximum(row.chosen, 1e-7), "o-", color=colour, label=row.name)
        left.axhline(row.uniform, color=colour, ls=":", lw=0.8)
    left.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS], minor=False)
    left.set_xticks([], minor=True)
    left.set_xlabel("epsilon")
    left.set_ylabel("expected excess (dotted: uniform choice)")
    left.set_ylim(1e-6, None)
    left.legend(frameon=False, fontsize=7)
    made = [row for row in rows if row.name.startswith("synthetic")]
    counts = np.array([row.n for row in made])
    for epsilon in (0.5, 2.0, 8.0):
        right.loglog(counts, [row.range / epsilon for row in made], "o-", label=f"Delta / {epsilon:g}")
    right.loglog(counts, [row.spread for row in made], "k--", label="spread of the loss")
    right.set_xlabel("n")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    rows = real() + made_up()
    columns = [f"eps {epsilon:g}" for epsilon in EPSILONS]
    title = "Expected excess of the validation loss (* default score, ** informative by its report)"
    table = Printed("table", "n", "Delta", "spread", "uniform", "score", *columns, "cpu s", title=title)
    for row in rows:
        facts = row.name, f"{row.n:,}", f"{row.range:.3g}", f"{row.spread:.4f}", f"{row.uniform:.4f}"
        for score, values, last in (("plain", row.plain, ""), ("candidate", row.candidate, f"{row.seconds:.1f}")):
            marked = (
                f"{value:.4f}{('**' if informs else '*') if used == score else ''}"
                for value, used, informs in zip(values, row.default, row.informative, strict=True)
            )
            table.add_row(*facts, score, *marked, last)
            facts = ("",) * len(facts)
    Console(width=160).print(table)
    if len(sys.argv) > 1:
        draw(rows, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
