"""A release along one covariate: its curves, the threshold, and the set that the release answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from discretion.spatial.maps.layout import Key, Layout, Words
from discretion.spatial.maps.page import Label, draw_key, write_heading, write_notes
from discretion.spatial.maps.panel import mark_axes, outline
from discretion.spatial.maps.save import new_figure, save
from discretion.spatial.maps.style import ABSENT, COLOURS, DASHES, INK, MARGIN, OUTLINE, PAPER

__all__ = ["draw_line", "spans"]

Floats = NDArray[np.float64]
Spans = Sequence[tuple[float, float]]

_ASPECT = 0.5
_FINE = 20
"""Places between two grid points at which a side of a level is looked up: values run straight between them."""


def spans(x: ArrayLike, field: ArrayLike, level: float = 0.0, *, above: bool = True) -> list[tuple[float, float]]:
    """Stretches of the line on which a field is at least the level (at most, with above=False), ends included.

    The field runs straight between the increasing places `x`; NaN is in no stretch, and ends are exact to a twentieth
    of a cell.
    """
    places, values = np.asarray(x, dtype=np.float64), np.asarray(field, dtype=np.float64)
    step = np.arange((places.size - 1) * _FINE + 1) / _FINE
    fine = np.interp(step, np.arange(places.size), places)
    found = np.interp(step, np.arange(places.size), values)
    with np.errstate(invalid="ignore"):
        inside = found >= level if above else found <= level
    edges = np.flatnonzero(np.diff(np.r_[False, inside, False].astype(int)))
    return [(float(fine[a]), float(fine[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def draw_line(
    path: str | os.PathLike[str],
    *,
    x: ArrayLike,
    curves: Sequence[ArrayLike],
    title: str,
    label: str,
    units: str,
    epsilon_text: str,
    best: ArrayLike | None = None,
    threshold: float | None = None,
    inner: Spans = (),
    outer: Spans = (),
    absent: Spans = (),
    subtitle: str = "",
    source: str = "",
    value_label: Label | None = None,
    key: Key | None = None,
) -> Path:
    """Draw what was released along one covariate; return the path of the picture (PNG by its name).

    `curves` are values at the places `x`, all drawn thin where there is a `best` one, drawn strong. The ends of the
    `inner` stretches are solid lines and those of the `outer` ones dashed, as on a map; between the two it is hatched.
    `absent` stretches, without a value, are grey. `label` names the covariate and `units` the values; `threshold` is
    marked. `title`, `subtitle`, `source`, `epsilon_text`, `value_label` and `key` are those of `map_figure`. Raises
    ValueError when no value is finite.
    """
    places = np.asarray(x, dtype=np.float64)
    drawn = [np.asarray(values, dtype=np.float64) for values in curves]
    strong = drawn[0] if best is None else np.asarray(best, dtype=np.float64)
    if not np.isfinite(strong).any():
        raise ValueError("There is no finite value to draw: values are all NaN.")
    words = Words.of(title, subtitle, units, key or Key(), epsilon_text, "", source)
    layout = Layout.of(_ASPECT, 1, 1, False, 0.5, words)
    figure = new_figure(layout)
    write_heading(figure, layout)
    axes = figure.add_axes(layout.panel(0), facecolor=PAPER)
    axes.set_xlim(places[0], places[-1])
    for start, end in absent:
        axes.axvspan(start, end, facecolor=ABSENT, zorder=0)
    for start, end in _without(outer, inner):
        axes.axvspan(start, end, facecolor=COLOURS(0.45), edgecolor=PAPER, hatch="////", linewidth=0.0, zorder=0.5)
    if best is not None:
        for values in drawn:
            axes.add_line(Line2D(places, values, color=COLOURS(0.45), linewidth=0.7, zorder=2))
    axes.add_line(Line2D(places, strong, color=INK, linewidth=1.5, zorder=2.5))
    low, high = _limits([strong, *(drawn if best is not None else ())], threshold)
    axes.set_ylim(low, high)
    if threshold is not None:
        axes.axhline(threshold, color=OUTLINE, linewidth=1.0, linestyle=":", zorder=2.2)
    _ends(axes, outer, dashed=True)
    _ends(axes, inner, dashed=False)
    mark_axes(axes, layout, left=True, bottom=True)
    if value_label is not None:
        axes.yaxis.set_major_formatter(lambda value, _: value_label(value).replace("\n", " ").replace("$", r"\$"))
    axes.set_xlabel(label, fontsize=8.5, color=INK, parse_math=False)
    _draw_signs(figure, layout, threshold, value_label or (lambda value: f"{value:g}"), several=best is not None)
    draw_key(figure, layout)
    write_notes(figure, layout)
    return save(figure, path)


def _without(outer: Spans, inner: Spans) -> list[tuple[float, float]]:
    """The stretches of the outer set that the inner one leaves."""
    left = []
    for start, end in outer:
        for a, b in sorted(inner):
            if start <= b and a <= end:
                if a > start:
                    left.append((start, a))
                start = max(start, b)
        if start < end:
            left.append((start, end))
    return left


def _limits(curves: Sequence[Floats], threshold: float | None) -> tuple[float, float]:
    values = np.concatenate(curves)
    shown = np.r_[values[np.isfinite(values)], [] if threshold is None else [threshold]]
    low, high = float(shown.min()), float(shown.max())
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def _ends(axes: Axes, stretches: Spans, *, dashed: bool) -> None:
    """A line at each end, but none where the covariate itself ends."""
    look = outline(dashed)
    left, right = axes.get_xlim()
    for end in {end for stretch in stretches for end in stretch if left < end < right}:
        line = axes.axvline(end, color=OUTLINE, linewidth=look["linewidth"], zorder=3)
        line.set_linestyle((0, DASHES) if dashed else "solid")
        line.set_path_effects(look["path_effects"])


def _draw_signs(figure: Figure, layout: Layout, threshold: float | None, write: Label, *, several: bool) -> None:
    """What the curves are, where a map has its colour bar."""
    words = layout.words
    top = layout.foot + 0.22
    entries: list[tuple[Any, float, Any, list[str]]] = [(INK, 1.5, "solid", words.units)]
    if several:
        entries += [(COLOURS(0.45), 0.7, "solid", ["Each path"])]
    if threshold is not None:
        entries += [(OUTLINE, 1.0, ":", [f"Threshold {write(threshold)}".replace("\n", " ")])]
    for colour, width, style, lines in entries:
        (left, y), (right, _) = layout.point(MARGIN, top + 0.07), layout.point(MARGIN + 0.32, top)
        figure.add_artist(Line2D([left, right], [y, y], color=colour, linewidth=width, linestyle=style))
        top = layout.write(figure, MARGIN + layout.KEY_INDENT, top, lines, words.KEY, layout.KEY_LINE, color=INK) + 0.05
