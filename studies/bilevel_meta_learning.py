"""Private meta-learning on house prices: what the regions of London share, learned without telling about any of them.

A task is a square of 1 km with at least ten sales in 2018, two (picked by a public rule) to learn from and eight to be
judged by: predict the log price from age and place, by a ridge regression drawn towards a shared centre x,

    y_i(x) = argmin |A_i y - b_i|^2 / 4 + (lambda/2) |y - x|^2,    phi_i(x) = |V_i y_i(x) - c_i|^2 / 16

Every record is a whole square. The hypergradient of a square depends on that square alone, so that clipping it is all
there is to do. A quarter of the squares is kept back; the table shows their error with the private centre, with none
(x = 0, each square alone) and with the centre of as many steps without noise. Scales come from 2017, which counts as
public.

``python -m studies.bilevel_meta_learning [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from discretion.bilevel import AdaptiveClip, SeparableDescent
from discretion.datasets import london_sales
from discretion.gp import Ball
from discretion.privacy import SeededRandomness

Floats = NDArray[np.float64]

SIDE, LEARN, JUDGE, PENALTY = 1000.0, 2, 8, 1.0
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA, STEPS, RATE, CLIP, RADIUS = 1e-5, 60, 10.0, 0.15, 5.0
NOT_PRIVATE = 1e4
CENTRES = [(x, y) for x in np.linspace(512e3, 552e3, 3) for y in np.linspace(163e3, 195e3, 3)]
WIDTH = 12e3


@dataclass(frozen=True)
class Tasks:
    """Features (tasks, sales, d) and scaled log prices (tasks, sales): to learn from, and to be judged by."""

    A: Floats
    b: Floats
    V: Floats
    c: Floats

    def __len__(self) -> int:
        return len(self.b)

    def some(self, which: Any) -> Tasks:
        """A part of them."""
        return Tasks(self.A[which], self.b[which], self.V[which], self.c[which])


def features(place: Floats, new: Floats) -> Floats:
    """(n, d): one, age, place within London, and bumps around a public grid of points; rows of norm about 1."""
    bumps = [np.exp(-np.sum((place - centre) ** 2, axis=1) / (2.0 * WIDTH**2)) for centre in CENTRES]
    middle = (place - [532e3, 179e3]) / 20e3
    return np.column_stack([np.ones(len(place)), new, middle, *bumps]) / 2.0


@cache
def tasks(year: int = 2018) -> Tasks:
    """The squares of a year."""
    table = np.genfromtxt(london_sales(year), delimiter=",", skip_header=1, usecols=(0, 2, 3, 4))
    response = np.clip((np.log(table[:, 0]) - 13.1) / 0.55, -2.0, 2.0)  # 2017: quartiles 12.7, 13.0, 13.4
    square = (table[:, 2] // SIDE) * 10_000 + table[:, 3] // SIDE
    X = features(table[:, 2:4], table[:, 1])
    order = np.random.default_rng(year).permutation(len(table))  # the public rule
    order = order[np.argsort(square[order], kind="stable")]
    _, first, count = np.unique(square[order], return_index=True, return_counts=True)
    picked = order[first[count >= LEARN + JUDGE][:, None] + np.arange(LEARN + JUDGE)]
    learn, judge = picked[:, :LEARN], picked[:, LEARN:]
    return Tasks(X[learn], response[learn], X[judge], response[judge])


def adapted(x: Floats, held: Tasks) -> tuple[Floats, Floats]:
    """Inner solutions (tasks, d) at the centre x, and inner Hessians."""
    H = np.einsum("tmi,tmj->tij", held.A, held.A) / LEARN + PENALTY * np.eye(len(x))
    drawn = np.einsum("tmi,tm->ti", held.A, held.b) / LEARN + PENALTY * x
    return np.linalg.solve(H, drawn[..., None])[..., 0], H


def hypergradients(x: Floats, held: Tasks) -> Floats:
    """grad phi_i = lambda H_i^-1 V_i'(V_i y_i - c_i)/8, (tasks, d)."""
    y, H = adapted(x, held)
    b = np.einsum("tmi,tm->ti", held.V, np.einsum("tmi,ti->tm", held.V, y) - held.c) / JUDGE
    return PENALTY * np.linalg.solve(H, b[..., None])[..., 0]


def error(x: Floats, held: Tasks) -> float:
    """Root mean squared error of the judging sales, in units of the log price's scale."""
    y, _ = adapted(x, held)
    return float(np.sqrt(np.mean((np.einsum("tmi,ti->tm", held.V, y) - held.c) ** 2)))


def parts(year: int = 2018) -> tuple[Tasks, Tasks]:
    """Squares to learn from, and squares kept back."""
    held = tasks(year)
    kept = np.random.default_rng(1).permutation(len(held)) < len(held) // 4
    return held.some(~kept), held.some(kept)


def private_centre(held: Tasks, epsilon: float, seed: int) -> Floats:
    """The centre by private descent; settings chosen on 2017."""
    d = held.A.shape[2]
    descent = SeparableDescent(
        gradients=hypergradients,
        domain=Ball((0.0,) * d, RADIUS),
        records=len(held),
        steps=STEPS,
        clip=CLIP,
        rate=RATE,
        epsilon=epsilon,
        delta=DELTA,
        adaptive_clip=AdaptiveClip(quantile=0.8, share=0.02),
        unit="one square of 1 km with all its sales",
    )
    return descent.run(held, SeededRandomness(seed)).x


@dataclass(frozen=True)
class Result:
    """Errors on squares kept back: of each alone, of the centre that is not private, and by epsilon of runs."""

    squares: int
    alone: float
    not_private: float
    private: dict[float, Floats]


def result(runs: int = 10, epsilons: tuple[float, ...] = EPSILONS) -> Result:
    """The table."""
    held, kept = parts()
    found = {
        epsilon: np.array([error(private_centre(held, epsilon, seed), kept) for seed in range(runs)])
        for epsilon in epsilons
    }
    x = np.zeros(held.A.shape[2])
    best = error(private_centre(held, NOT_PRIVATE, 0), kept)
    return Result(len(held), error(x, kept), best, found)


def draw(found: Result, path: Path) -> None:
    """Error against epsilon."""
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    epsilons = list(found.private)
    low, middle, high = (np.array([np.quantile(v, q) for v in found.private.values()]) for q in (0.1, 0.5, 0.9))
    axes.fill_between(epsilons, low, high, color="#27607f", alpha=0.2, lw=0)
    axes.semilogx(epsilons, middle, "o-", color="#27607f", label="private centre")
    axes.axhline(found.alone, color="#b5442e", ls="--", label="each square alone")
    axes.axhline(found.not_private, color="0.4", ls=":", label="centre, not private")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set(xlabel=f"epsilon at delta = {DELTA:g}, unit: one square", ylabel="error on squares kept back")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = result()
    table = Table("centre", f"error, {found.squares} squares learned from")
    table.add_row("none: each square alone", f"{found.alone:.4f}")
    for epsilon, values in found.private.items():
        spread = float(values.std(ddof=1)) / math.sqrt(len(values))
        table.add_row(f"epsilon = {epsilon:g}", f"{values.mean():.4f} +- {spread:.4f}")
    table.add_row("not private", f"{found.not_private:.4f}")
    Console().print(table)
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
