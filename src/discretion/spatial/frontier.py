"""The frontier of a plan: what each kind of release is worth at each epsilon."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

__all__ = ["Point", "draw_frontier"]

DPI = 200
_INK, _QUIET, _RULE, _BAND = "#1d2935", "#5b6772", "#cdd4da", "#eef0f2"
_COLOURS = {
    "kernel sum with decoder": "#d1335b",
    "kernel sum": "#297ba6",
    "posterior path, certified account": "#52a08f",
    "posterior path, published account": "#9a8f5c",
}


class Point(NamedTuple):
    """One release of the frontier: epsilon, mean score and its standard error, and the row it belongs to."""

    label: str
    epsilon: float
    score: float
    se: float


def draw_frontier(
    path: str | os.PathLike[str],
    points: Sequence[Point],
    *,
    trivial: float,
    floor: float,
    target: float,
    not_useful_below: float | None = None,
    title: str = "What a map would be worth",
    subtitle: str = "",
    note: str = "",
) -> Path:
    """Draw score against epsilon, a line for each row, and return the path of the picture (PNG by its name).

    points
        Of any number of rows and epsilons; bars are two standard errors.
    trivial, floor
        Score of the best trivial answer, and the least that is called useful: below it the ground is shaded.
    target
        The epsilon that was asked for.
    not_useful_below
        Marked where it lies inside the picture.
    title, subtitle, note
        Words above and below.

    Raises ValueError when there is no point, or an epsilon is not positive.
    """
    if not points or min(p.epsilon for p in points) <= 0:
        raise ValueError("A frontier needs at least one point, and positive epsilons.")
    figure = Figure(figsize=(8.6, 5.4), dpi=DPI)
    FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0.08, 0.17, 0.645, 0.62))
    epsilons = sorted({p.epsilon for p in points})
    left, right = epsilons[0] / 1.35, epsilons[-1] * 1.35
    low = max(0.0, math.floor(10.0 * (min(trivial, *(p.score - 2.0 * p.se for p in points)) - 0.05)) / 10.0)
    axes.axhspan(low, floor, color=_BAND, zorder=0, linewidth=0)
    axes.axhline(trivial, color=_QUIET, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    axes.axvline(target, color=_RULE, linewidth=1.0, zorder=1)

    ends = []
    for label in dict.fromkeys(p.label for p in sorted(points, key=lambda p: -p.score)):
        row = sorted((p for p in points if p.label == label), key=lambda p: p.epsilon)
        x, y, se = (np.array([getattr(p, name) for p in row]) for name in ("epsilon", "score", "se"))
        colour = _COLOURS.get(label, _INK)
        axes.fill_between(x, y - 2.0 * se, y + 2.0 * se, color=colour, alpha=0.13, linewidth=0, zorder=2)
        # two accounts often give the same path: the second is dashed, so that both are seen
        second = label.endswith("published account")
        axes.plot(
            x,
            y,
            color=colour,
            linewidth=2.0,
            linestyle=(0, (2, 2)) if second else "solid",
            marker="o",
            markersize=3.0 if second else 4.5,
            zorder=4 if second else 3,
            clip_on=False,
        )
        ends.append((float(y[-1]), label, colour))
    if not_useful_below is not None and left < not_useful_below < right:
        axes.axvline(not_useful_below, color=_INK, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(
            "not useful\nto the left",
            (not_useful_below, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4, -6),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=7.5,
            color=_INK,
        )
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(low, 1.0)
    axes.xaxis.set_major_locator(FixedLocator(epsilons))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{each:g}" for each in epsilons])
    axes.set_xlabel("epsilon (log scale)", color=_QUIET, fontsize=9)
    axes.tick_params(colors=_QUIET, labelsize=8.5, length=3)
    axes.grid(axis="y", color=_RULE, linewidth=0.5, alpha=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_RULE)
    span = 1.0 - low
    ends.append((trivial, "best trivial answer", _QUIET))
    for place, (_, label, colour) in zip(_apart([e[0] for e in ends], 0.055 * span), ends, strict=True):
        axes.text(1.02, (place - low) / span, label, transform=axes.transAxes, color=colour, fontsize=8.5, va="center")
    axes.text(target, 1.01, "asked for", transform=axes.get_xaxis_transform(), color=_QUIET, fontsize=7.5, ha="center")
    figure.text(0.08, 0.925, title, color=_INK, fontsize=14, fontweight="bold")
    figure.text(0.08, 0.885, subtitle, color=_INK, fontsize=9.5)
    figure.text(0.08, 0.815, "IoU with the true set", color=_QUIET, fontsize=8.5)
    figure.text(0.08, 0.035, note, color=_QUIET, fontsize=7.5, linespacing=1.5)
    figure.savefig(path, dpi=DPI)
    return Path(path)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """The same values moved as little as needed to lie a gap apart, in order (pooling of neighbours)."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    pools: list[tuple[float, int]] = []  # mean of (value - rank gap), members
    for rank, i in enumerate(order):
        mean, size = values[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    base = [mean for mean, size in pools for _ in range(size)]
    placed = [0.0] * len(values)
    for rank, i in enumerate(order):
        placed[i] = base[rank] + rank * gap
    return placed
