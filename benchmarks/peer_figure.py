"""The figure of `benchmarks.peers`: cpu time by library, one panel for each size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.peers import number

OURS, THEIRS, GREY = "#0072B2", "#D55E00", "#444444"  # of the colours of Okabe and Ito; circles and squares besides
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
PANELS = 3  # beside each other


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw the sizes that were timed."""
    sizes = [size for size in document["sizes"] if any("seconds" in row for row in size["rows"])]
    seconds = [row["seconds"] for size in sizes for row in size["rows"] if "seconds" in row]
    rows = -(-len(sizes) // PANELS)
    heights = [max(len(size["rows"]) for size in sizes[i : i + PANELS]) for i in range(0, len(sizes), PANELS)]
    figure = Figure(figsize=(15, 1.1 * rows + 0.36 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, PANELS, squeeze=False, gridspec_kw={"height_ratios": heights}).ravel()
    for place, (axes, size) in enumerate(zip(grid, sizes, strict=False)):
        _panel(axes, size, heights[place // PANELS], min(seconds) / 2.0, max(seconds) * 30.0)
    for axes in grid[len(sizes) :]:
        axes.set_axis_off()
    machine = document["machine"]
    figure.suptitle(
        "One exact posterior sample path: cpu seconds on one thread, and times the LAPACK floor (dashed)", fontsize=14
    )
    figure.supxlabel(f"cpu seconds    ·    {machine['processor']}, {machine['date']}", fontsize=10)
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, size: dict[str, Any], height: int, left: float, right: float) -> None:
    rows, floor = size["rows"][::-1], size["floor_seconds"]
    if floor:
        axes.axvline(floor, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
    for place, row in enumerate(rows):
        seconds, failure = row.get("seconds"), row.get("failure", "")
        colour, marker = (OURS, "o") if row["peer"].startswith("discretion") else (THEIRS, "s")
        if seconds is None:
            _said(axes, failure, left, place, GREY)
            continue
        axes.plot([left, seconds], [place, place], color=colour, linewidth=2.0, alpha=0.5, zorder=2)
        axes.plot(seconds, place, marker, color=colour, markersize=9, zorder=3)
        text = number(seconds) + " s" + (f", {number(seconds / floor)} x" if floor else "")
        text += f", {failure}" if failure else ""
        _said(axes, text, seconds, place, "black")
    axes.set_ylim(len(rows) - height - 0.5, len(rows) - 0.4)
    axes.set_yticks(range(len(rows)), [_label(row["peer"]) for row in rows], fontsize=10)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_title(f"{size['title']}\n({size['n']:,}, {size['m']:,})", fontsize=11, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _said(axes: Axes, text: str, x: float, y: float, colour: str) -> None:
    axes.annotate(text, (x, y), (9, 0), textcoords="offset points", va="center", color=colour, bbox=BEHIND)


def _label(peer: str) -> str:
    return peer.replace(", nugget by hand", ",\nnugget by hand")
