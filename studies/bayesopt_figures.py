"""Figures and tables of studies of private local search: losses against evaluations, and the losses at the end."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.bayesopt_baselines import (
    Method,
    finite_differences,
    local_search,
    not_private,
    random_search,
    trust_region,
)
from studies.bayesopt_run import Task

Floats = NDArray[np.float64]

COLOURS = ("#0b6e75", "#d1495b", "#e7a33e", "#6b4c9a", "#7d8491", "#2e4057", "#a0c1b8", "#b56576")
QUANTILES = (0.025, 0.5, 0.975)
SHOWN: dict[str, Method] = {
    "local search": local_search,
    "trust region": trust_region,
    "finite differences": finite_differences,
    "random search, choice paid": random_search,
    "not private": not_private,
}
"""The methods of a study's figure."""


def arguments(description: str | None, runs: int) -> tuple[Path, int]:
    """The folder of ``--out``, made if there is none, and the number of ``--runs``."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("studies/output"), help="folder for the figure and the table")
    parser.add_argument("--runs", type=int, default=runs, help="how many samples")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    return given.out, given.runs


def summary(values: Floats) -> tuple[float, float, float]:
    """2.5 %, median and 97.5 %."""
    low, median, high = np.quantile(values, QUANTILES)
    return float(low), float(median), float(high)


def bands(values: Floats) -> str:
    """Median (2.5 % to 97.5 %)."""
    low, median, high = summary(values)
    return f"{median:.4g} ({low:.4g} to {high:.4g})"


def write_table(path: Path, rows: Mapping[tuple[str, str], Floats]) -> None:
    """A CSV table of what each run came to, also printed: (task, method) -> one figure a run."""
    header = ["task", "method", "median", "low", "high", "mean", "runs"]
    shown = Table(*header)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        for (task, method), values in rows.items():
            low, median, high = summary(values)
            cells = [f"{each:.4g}" for each in (median, low, high, float(np.mean(values)))]
            table.writerow([task, method, *cells, len(values)])
            shown.add_row(task, method, *cells, str(len(values)))
    Console().print(shown)


def figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A row of panels, apart from matplotlib's global state."""
    drawn = Figure(figsize=(1.0 + 4.6 * panels, 3.8), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(1, panels, squeeze=False)
    return drawn, list(axes[0])


def draw_bands(axes: Axes, curves: Mapping[str, tuple[ArrayLike, Floats]]) -> None:
    """Medians with 2.5-97.5 % bands: name -> (x, values of shape (runs, len(x))); one x alone gives a bar."""
    for (name, (x, values)), colour in zip(curves.items(), COLOURS * 2, strict=False):
        low, median, high = np.quantile(values, QUANTILES, axis=0)
        if np.size(x) == 1:
            axes.errorbar(x, median, [median - low, high - median], color=colour, label=name, fmt="o", capsize=3)
            continue
        axes.plot(np.asarray(x), median, color=colour, label=name, linewidth=1.6)
        axes.fill_between(np.asarray(x), low, high, color=colour, alpha=0.13, linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def save(drawn: Figure, path: Path) -> None:
    """As PNG."""
    drawn.savefig(path, dpi=130, metadata={"Software": None})
    Console().print(f"written: {path}")


def study(
    name: str,
    tasks: Mapping[str, Callable[[int], Task]],
    folder: Path,
    runs: int,
    *,
    methods: Mapping[str, Method] = SHOWN,
    points: int = 10,
    log: bool = True,
) -> None:
    """Draw losses on fresh records against evaluations, a panel a task, and write what each method came to.

    Args:
        name: of the files. tasks: title -> the task of a seed; runs are of the seeds from 0 on.
        points: of a curve, from the start on; at the last the loss is that of what is released.
        log: whether losses are drawn on a logarithmic scale.
    """
    drawn, panels = figure(len(tasks))
    ends: dict[tuple[str, str], Floats] = {}
    for axes, (title, make) in zip(panels, tasks.items(), strict=True):
        samples = [make(seed) for seed in range(runs)]
        at = np.unique(np.linspace(0, samples[0].evaluations, points).astype(np.int64))
        curves: dict[str, tuple[ArrayLike, Floats]] = {}
        for method, run in methods.items():
            found = [run(task, seed) for seed, task in enumerate(samples)]
            reached = at if len(found[0].thetas) > 1 else at[-1:]  # of a choice at the end there is no path
            losses = [each.curve(task, reached) for each, task in zip(found, samples, strict=True)]
            curves[method] = reached, np.array(losses)
        draw_bands(axes, curves)
        ends |= {(title, method): values[:, -1] for method, (_, values) in curves.items()}
        axes.set(title=title, xlabel="evaluations", yscale="log" if log else "linear")
    panels[0].set_ylabel("loss on fresh records: median, 2.5 to 97.5 %")
    handles, labels = panels[-1].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    write_table(folder / f"{name}.csv", ends)
    save(drawn, folder / f"{name}.png")
