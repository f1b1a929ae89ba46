"""The page around the maps: heading, colour bar, legend, guarantee."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from discretion.spatial.maps.layout import Layout
from discretion.spatial.maps.panel import hatch, outline
from discretion.spatial.maps.style import ABSENT, COLOURS, INK, MARGIN, OUTLINE, PAPER, QUIET, RULE, WIDTH

__all__ = ["Label", "draw_colour_bar", "draw_key", "write_heading", "write_notes"]

Label = Callable[[float], str]


def write_heading(figure: Figure, layout: Layout) -> None:
    words = layout.words
    top = layout.write(
        figure, MARGIN, layout.TOP, words.title, words.TITLE, layout.TITLE_LINE, color=INK, fontweight="bold"
    )
    layout.write(figure, MARGIN, top, words.subtitle, words.SUBTITLE, layout.SUBTITLE_LINE, color=QUIET)


def write_notes(figure: Figure, layout: Layout) -> None:
    top, words = layout.foot + layout.legend, layout.words
    (left, rule), (right, _) = layout.point(MARGIN, top), layout.point(MARGIN + WIDTH, top)
    figure.add_artist(Line2D([left, right], [rule, rule], color=RULE, linewidth=0.8))
    top = layout.write(figure, MARGIN, top + 0.1, words.guarantee, words.NOTE, layout.NOTE_LINE, color=INK)
    layout.write(figure, MARGIN, top, words.closing, words.NOTE, layout.NOTE_LINE, color=QUIET)


def draw_colour_bar(
    figure: Figure,
    layout: Layout,
    scale: Normalize,
    write: Label,
    ticks: Sequence[float] | None,
    threshold: float | None,
) -> None:
    words = layout.words
    top = layout.foot + 0.22
    top = layout.write(figure, MARGIN, top, words.units, words.KEY, layout.KEY_LINE, color=INK) + 0.04
    axes = figure.add_axes(layout.box(MARGIN, top, layout.BAR_WIDTH, layout.BAR_HEIGHT))
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=axes, orientation="horizontal")
    cast("Patch", bar.outline).set(edgecolor=QUIET, linewidth=0.5)
    low, high = scale.vmin or 0.0, scale.vmax or 0.0
    if ticks is None:
        bar.locator = MaxNLocator(6)
    else:
        bar.locator = FixedLocator([tick for tick in ticks if low <= tick <= high])
    bar.formatter = FuncFormatter(lambda value, _: write(value).replace("$", r"\$"))
    bar.update_ticks()
    axes.tick_params(labelsize=8, labelcolor=INK, color=QUIET, length=2.5, width=0.5)
    if threshold is not None and low < threshold < high:
        axes.axvline(threshold, color=PAPER, linewidth=3.0)
        axes.axvline(threshold, color=OUTLINE, linewidth=1.4)


def draw_key(figure: Figure, layout: Layout) -> None:
    words, left = layout.words, MARGIN + WIDTH - layout.KEY_WIDTH
    top = layout.foot + 0.22
    top = layout.write(figure, left, top, words.question, words.KEY, layout.KEY_LINE, color=INK, fontweight="bold")
    top += 0.03
    for sign, lines in words.entries:
        axes = figure.add_axes(layout.box(left, top - 0.01, 0.32, layout.BAR_HEIGHT), facecolor=ABSENT)
        axes.set(xlim=(0, 0.32), ylim=(0, layout.BAR_HEIGHT), xticks=[], yticks=[])
        axes.spines[:].set(color=QUIET, linewidth=0.5)
        if sign in ("inner", "outer"):
            axes.set_axis_off()
            middle = Path([(0, layout.BAR_HEIGHT / 2), (0.32, layout.BAR_HEIGHT / 2)])
            axes.add_patch(PathPatch(middle, **outline(sign == "outer")))
        elif sign == "between":
            axes.set_facecolor(COLOURS(0.45))
            hatch(axes, Path.unit_rectangle())
        top = layout.write(figure, left + layout.KEY_INDENT, top, lines, words.KEY, layout.KEY_LINE, color=INK) + 0.05
    layout.write(figure, left, top + 0.02, words.note, words.NOTE, layout.NOTE_LINE, color=QUIET)
