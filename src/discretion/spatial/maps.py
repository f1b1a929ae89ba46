"""Maps of released paths: a PNG that carries its privacy guarantee.

Only released values and public geometry are drawn.  Nothing here takes records, and none of matplotlib's
global state is touched, so maps may be drawn from several threads and inside other programs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import Normal, Stroke
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import distance_transform_edt

from discretion.spatial.hexagons import HexagonLattice

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Polygons = Sequence[Sequence[ArrayLike]]
Label = Callable[[float], str]

DPI = 200
_INK, _QUIET, _RULE, _PAPER, _ABSENT = "#1d2935", "#5b6772", "#cdd4da", "#ffffff", "#eef0f2"
_OUTLINE = "#d1335b"
_PIXELS = 1200
_MARGIN, _WIDTH = 0.45, 8.6
_PROMISE = "Drawn from a differentially private release and public geometry only. No record is shown."

# Equal steps of CIE lightness L*, from 96 down to 20, so that equal differences of value look equally large
# in colour, in grey print and to colour-blind readers; hue only helps to tell places apart.
_RAMP = (
    "#f7f6cf",
    "#c4e1b1",
    "#87cca9",
    "#52b4ac",
    "#2f97ac",
    "#297ba6",
    "#305d95",
    "#2f437a",
    "#292b5e",
)
COLOURS: Colormap = LinearSegmentedColormap.from_list("discretion", _RAMP, N=512)


def draw_map(
    path: str | os.PathLike[str],
    *,
    values: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    title: str,
    units: str,
    epsilon_text: str,
    polygons: Polygons = (),
    threshold: float | None = None,
    mask: ArrayLike | None = None,
    hexagons: HexagonLattice | None = None,
    subtitle: str = "",
    plane: str = "",
    source: str = "",
    metres_per_unit: float | None = 1.0,
    above: bool = True,
    value_label: Label | None = None,
    value_range: tuple[float, float] | None = None,
    value_ticks: Sequence[float] | None = None,
    outline_label: str = "",
) -> FilePath:
    """Draw one released surface and its excursion outline; return the path of the picture (PNG by its name).

    values, x, y
        `values[i, j]` at (x[j], y[i]): a released path, or the mean of several, on a grid of at least 2 by 2.
    title, subtitle, units, source
        Words on the map; `units` name the values beside the colour bar.
    epsilon_text
        The guarantee in words: epsilon, delta, neighbour relation, unit of privacy.  Printed under the map.
    polygons, threshold, above
        Outlines as `excursion_polygons` returns them, and the threshold and side they belong to.
    mask
        True at grid points that are not part of the map; so are NaN values.
    hexagons
        A public lattice, drawn in full as faint lines: never the occupied hexagons alone.
    plane, metres_per_unit
        Name of the coordinate system, and the length of its unit for the scale bar; None leaves the bar out
        and marks the axes instead.
    value_label, value_range, value_ticks
        How a value is written beside the colour bar (for instance `lambda v: f"{math.exp(v):,.0f}"`), the
        values at its ends (by default the range of the released values), and the values it marks.
    outline_label
        What the outline is, in words; by default "At least" (or "At most") the threshold.

    Raises ValueError when shapes disagree or no value is finite.
    """
    figure = map_figure(
        [values],
        x,
        y,
        title=title,
        units=units,
        epsilon_text=epsilon_text,
        polygons=[polygons],
        threshold=threshold,
        mask=mask,
        hexagons=hexagons,
        subtitle=subtitle,
        plane=plane,
        source=source,
        metres_per_unit=metres_per_unit,
        above=above,
        value_label=value_label,
        value_range=value_range,
        value_ticks=value_ticks,
        outline_label=outline_label,
    )
    return _save(figure, path)


def draw_paths(
    path: str | os.PathLike[str],
    *,
    values: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    title: str,
    units: str,
    epsilon_text: str,
    polygons: Sequence[Polygons] = (),
    threshold: float | None = None,
    mask: ArrayLike | None = None,
    subtitle: str = "",
    plane: str = "",
    source: str = "",
    metres_per_unit: float | None = 1.0,
    above: bool = True,
    value_label: Label | None = None,
    value_range: tuple[float, float] | None = None,
    value_ticks: Sequence[float] | None = None,
    outline_label: str = "",
    panel_titles: Sequence[str] = (),
) -> FilePath:
    """Draw several released paths side by side on one colour scale; return the path of the picture.

    `values` has shape (paths, len(y), len(x)) with at most 12 paths, `polygons` one list of outlines for
    each.  The other arguments are those of `draw_map`; epsilon_text should speak of all paths together.
    Raises ValueError when shapes disagree, no value is finite, or there are more than 12 paths.
    """
    panels = np.asarray(values, dtype=np.float64)
    if panels.ndim != 3 or not 1 <= len(panels) <= 12:
        raise ValueError(f"values must have shape (1 to 12 paths, len(y), len(x)), not {panels.shape}")
    titles = panel_titles or [f"Path {i + 1} of {len(panels)}" for i in range(len(panels))]
    figure = map_figure(
        list(panels),
        x,
        y,
        title=title,
        units=units,
        epsilon_text=epsilon_text,
        polygons=polygons or [()] * len(panels),
        threshold=threshold,
        mask=mask,
        subtitle=subtitle,
        plane=plane,
        source=source,
        metres_per_unit=metres_per_unit,
        above=above,
        value_label=value_label,
        value_range=value_range,
        value_ticks=value_ticks,
        outline_label=outline_label,
        panel_titles=titles,
    )
    return _save(figure, path)


def map_figure(
    panels: Sequence[ArrayLike],
    x: ArrayLike,
    y: ArrayLike,
    *,
    title: str,
    units: str,
    epsilon_text: str,
    polygons: Sequence[Polygons],
    threshold: float | None = None,
    mask: ArrayLike | None = None,
    hexagons: HexagonLattice | None = None,
    subtitle: str = "",
    plane: str = "",
    source: str = "",
    metres_per_unit: float | None = 1.0,
    above: bool = True,
    value_label: Label | None = None,
    value_range: tuple[float, float] | None = None,
    value_ticks: Sequence[float] | None = None,
    outline_label: str = "",
    panel_titles: Sequence[str] = (),
) -> Figure:
    """The figure behind `draw_map` (one panel) and `draw_paths` (several), for further work in matplotlib."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    grids = [_Grid.of(np.asarray(values, dtype=np.float64), x, y, mask) for values in panels]
    if len(polygons) != len(grids) or (panel_titles and len(panel_titles) != len(grids)):
        raise ValueError(f"{len(grids)} surfaces need as many lists of polygons and panel titles")
    low, high = value_range or _span(grids)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"value_range must be two finite numbers, lower first, not {(low, high)}")
    scale = Normalize(low, high, clip=True)

    columns = 1 if len(grids) == 1 else 2 if len(grids) in (2, 4) else 3
    rows = math.ceil(len(grids) / columns)
    margin = 0.3 if metres_per_unit is None else 0.0
    words = _Words.of(title, subtitle, epsilon_text, plane, source)
    layout = _Layout.of(grids[0].aspect, rows, columns, bool(panel_titles), margin, words)
    figure = Figure(figsize=(layout.width, layout.height), facecolor=_PAPER, dpi=DPI)
    FigureCanvasAgg(figure)
    _write_heading(figure, layout)
    for index, (grid, outline) in enumerate(zip(grids, polygons, strict=True)):
        axes = figure.add_axes(layout.panel(index), facecolor=_ABSENT)
        _draw_panel(axes, grid, scale, outline, weight=1.0 if columns == 1 else 0.7)
        if hexagons is not None:
            _draw_lattice(axes, hexagons)
        if panel_titles:
            axes.set_title(panel_titles[index], loc="left", fontsize=9.5, color=_INK, pad=4, parse_math=False)
        if metres_per_unit is None:
            _mark_axes(axes)
        elif index == len(grids) - 1:
            _draw_scale_bar(axes, metres_per_unit)
    write = value_label or (lambda value: f"{value:g}")
    _draw_colour_bar(figure, layout, scale, units, write, value_ticks, threshold)
    if threshold is not None and any(map(len, polygons)):
        words = outline_label or f"{'At least' if above else 'At most'} {write(threshold)}"
        _explain_outline(figure, layout, words)
    _write_notes(figure, layout)
    return figure


def _save(figure: Figure, path: str | os.PathLike[str]) -> FilePath:
    target = FilePath(path)
    # no date and no version in the file: the same release gives the same bytes
    metadata = {"Software": None} if target.suffix.lower() == ".png" else None
    figure.savefig(target, dpi=DPI, metadata=metadata)
    return target


# -- surfaces ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """A surface on a grid, both axes increasing, with the places that are not part of the map."""

    values: Floats
    x: Floats
    y: Floats
    absent: Mask

    @classmethod
    def of(cls, values: Floats, x: Floats, y: Floats, mask: ArrayLike | None) -> _Grid:
        if values.shape != (y.size, x.size) or x.ndim != 1 or y.ndim != 1 or min(values.shape) < 2:
            raise ValueError(f"values must have shape (len(y), len(x)), at least 2 by 2, not {values.shape}")
        for axis in (x, y):
            step = np.diff(axis)
            if not (np.isfinite(axis).all() and ((step > 0).all() or (step < 0).all())):
                raise ValueError("x and y must be finite and increase (or decrease) from entry to entry")
        absent = ~np.isfinite(values)
        if mask is not None:
            excluded = np.asarray(mask)
            if excluded.dtype != bool or excluded.shape != values.shape:
                raise ValueError(f"mask must be boolean and of shape {values.shape}")
            absent = absent | excluded
        if absent.all():
            raise ValueError("no finite value to draw")
        right, up = (1 if x[0] < x[-1] else -1), (1 if y[0] < y[-1] else -1)
        return cls(values[::up, ::right], x[::right], y[::up], absent[::up, ::right])

    @property
    def aspect(self) -> float:
        return float((self.y[-1] - self.y[0]) / (self.x[-1] - self.x[0]))

    @property
    def extent(self) -> tuple[float, float, float, float]:
        return float(self.x[0]), float(self.x[-1]), float(self.y[0]), float(self.y[-1])

    def picture(self) -> np.ma.MaskedArray:
        """Linear interpolation on a regular raster; the map ends half-way to the absent grid points."""
        width = _PIXELS
        height = int(np.clip(round(width * self.aspect), 2, 4 * width))
        u, v = np.linspace(self.x[0], self.x[-1], width), np.linspace(self.y[0], self.y[-1], height)
        filled = self.values
        if self.absent.any():
            nearest = distance_transform_edt(self.absent, return_distances=False, return_indices=True)
            filled = self.values[tuple(np.asarray(nearest))]
        surface = self._interpolate(filled, u, v)
        hidden = self._interpolate(self.absent.astype(np.float64), u, v) > 0.5
        return np.ma.array(surface, mask=hidden)

    def _interpolate(self, surface: Floats, u: Floats, v: Floats) -> Floats:
        """Bilinear interpolation at every (u, v): first between the columns, then between the rows."""
        for axis, at in ((self.x, u), (self.y, v)):
            before = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, axis.size - 2)
            share = (at - axis[before]) / (axis[before + 1] - axis[before])
            # each pass works along the last axis and leaves the other one last for the next
            surface = (surface[:, before] * (1 - share) + surface[:, before + 1] * share).T
        return surface

    def on_edge(self, points: Floats) -> Mask:
        """Which vertices of an outline stand on the frame or beside an absent grid point, off the level."""
        u = np.interp(points[:, 0], self.x, np.arange(self.x.size))
        v = np.interp(points[:, 1], self.y, np.arange(self.y.size))
        near = 1e-6
        frame = (np.minimum(u, self.x.size - 1 - u) < near) | (np.minimum(v, self.y.size - 1 - v) < near)
        before = self.absent[np.floor(v + near).astype(int), np.floor(u + near).astype(int)]
        after = self.absent[np.ceil(v - near).astype(int), np.ceil(u - near).astype(int)]
        return frame | before | after


def _span(grids: Sequence[_Grid]) -> tuple[float, float]:
    shown = np.concatenate([grid.values[~grid.absent] for grid in grids])
    low, high = float(shown.min()), float(shown.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _draw_panel(axes: Axes, grid: _Grid, scale: Normalize, polygons: Polygons, weight: float) -> None:
    axes.imshow(grid.picture(), extent=grid.extent, origin="lower", cmap=COLOURS, norm=scale, aspect="equal")
    lines = [_level_line(grid, np.asarray(ring, dtype=np.float64)) for polygon in polygons for ring in polygon]
    if lines:
        halo = [
            Stroke(linewidth=3.0 * weight, foreground=_PAPER),
            Stroke(linewidth=1.4 * weight, foreground=_OUTLINE),
        ]
        outline = Path.make_compound_path(*lines)
        axes.add_patch(PathPatch(outline, fill=False, joinstyle="round", path_effects=halo, zorder=3))
    axes.set_xlim(grid.extent[:2])
    axes.set_ylim(grid.extent[2:])
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set(color=_QUIET, linewidth=0.6)


def _level_line(grid: _Grid, ring: Floats) -> Path:
    """The part of a ring that follows the level; where the map ends, an outline would trace the edge."""
    edge = grid.on_edge(ring)
    codes = np.where(np.r_[True, edge[1:] & edge[:-1]], Path.MOVETO, Path.LINETO)
    return Path(ring, codes.astype(Path.code_type))


def _draw_lattice(axes: Axes, lattice: HexagonLattice) -> None:
    lines = LineCollection(list(lattice.polygon(lattice.cells())), colors=_INK, linewidths=0.25, alpha=0.3)
    axes.add_collection(lines, autolim=False)


def _mark_axes(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    axes.tick_params(
        left=True,
        bottom=True,
        labelleft=True,
        labelbottom=True,
        labelsize=7,
        colors=_QUIET,
        length=3,
        width=0.6,
    )


def _draw_scale_bar(axes: Axes, metres_per_unit: float) -> None:
    """A bar of 1, 2 or 5 times a power of ten, near a fifth of the width of the map."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    width, height = right - left, top - bottom
    room = width * metres_per_unit * 0.22
    power = 10.0 ** math.floor(math.log10(room))
    metres = max(step * power for step in (1, 2, 5) if step * power <= room)
    text = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    length = metres / metres_per_unit
    end, base = right - 0.03 * width, bottom + 0.035 * height
    tick = 0.012 * height
    halo = [Stroke(linewidth=3.6, foreground=_PAPER), Stroke(linewidth=1.3, foreground=_INK)]
    corners = [(end - length, base + tick), (end - length, base), (end, base), (end, base + tick)]
    axes.add_line(Line2D(*zip(*corners, strict=True), color=_INK, path_effects=halo, zorder=5))
    label = axes.text(end - length / 2, base + tick, text, ha="center", va="bottom", fontsize=8.5, color=_INK, zorder=6)
    label.set_path_effects([Stroke(linewidth=2.6, foreground=_PAPER), Normal()])


# -- page ----------------------------------------------------------------------------------------------------


def _wrap(text: str, size: float, weight: str = "normal") -> list[str]:
    """Lines no wider than the map, by the measured width of the words."""
    font = FontProperties(size=size, weight=weight)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        width, _, _ = text_to_path.get_text_width_height_descent(longer, font, False)
        if lines and width <= 0.98 * _WIDTH * 72:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class _Words:
    """The lines above and below the maps."""

    title: list[str]
    subtitle: list[str]
    guarantee: list[str]
    closing: list[str]

    TITLE, SUBTITLE, NOTE = 16.0, 10.0, 7.8

    @classmethod
    def of(cls, title: str, subtitle: str, epsilon_text: str, plane: str, source: str) -> _Words:
        parts = (_PROMISE, plane and f"Coordinates: {plane}", source)
        closing = " ".join(part.rstrip(". ") + "." for part in parts if part)
        return cls(
            _wrap(title, cls.TITLE, "bold"),
            _wrap(subtitle, cls.SUBTITLE),
            _wrap(f"Privacy: {epsilon_text}", cls.NOTE),
            _wrap(closing, cls.NOTE),
        )


@dataclass(frozen=True)
class _Layout:
    """Where things stand on the page, in inches from its upper left corner."""

    rows: int
    columns: int
    panel_width: float
    panel_height: float
    panel_head: float
    panel_foot: float
    words: _Words

    TOP, GAP, LEGEND = 0.32, 0.2, 0.98
    TITLE_LINE, SUBTITLE_LINE, NOTE_LINE = 0.29, 0.2, 0.16

    @classmethod
    def of(cls, aspect: float, rows: int, columns: int, titled: bool, panel_foot: float, words: _Words) -> _Layout:
        width = (_WIDTH - cls.GAP * (columns - 1)) / columns
        # a tall map is made narrower rather than longer than a page
        width = min(width, 8.2 / rows / aspect)
        return cls(rows, columns, width, width * aspect, 0.26 if titled else 0.0, panel_foot, words)

    @property
    def width(self) -> float:
        return _WIDTH + 2 * _MARGIN

    @property
    def height(self) -> float:
        notes = len(self.words.guarantee) + len(self.words.closing)
        return self.foot + self.LEGEND + 0.1 + self.NOTE_LINE * notes + 0.25

    @property
    def head(self) -> float:
        """Where the panels begin."""
        lines = len(self.words.title) * self.TITLE_LINE + len(self.words.subtitle) * self.SUBTITLE_LINE
        return self.TOP + lines + 0.18

    @property
    def foot(self) -> float:
        """Where the panels end."""
        each = self.panel_head + self.panel_height + self.panel_foot
        return self.head + self.rows * each + (self.rows - 1) * self.GAP

    def box(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        """A box as matplotlib wants it: fractions of the page from its lower left corner."""
        return left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height

    def point(self, left: float, top: float) -> tuple[float, float]:
        return self.box(left, top, 0, 0)[:2]

    def panel(self, index: int) -> tuple[float, float, float, float]:
        row, column = divmod(index, self.columns)
        left = _MARGIN + column * (self.panel_width + self.GAP)
        top = self.head + row * (self.panel_head + self.panel_height + self.panel_foot + self.GAP)
        return self.box(left, top + self.panel_head, self.panel_width, self.panel_height)


def _write_heading(figure: Figure, layout: _Layout) -> None:
    words, top = layout.words, layout.TOP
    for line in words.title:
        figure.text(
            *layout.point(_MARGIN, top),
            line,
            fontsize=words.TITLE,
            fontweight="bold",
            color=_INK,
            va="top",
            parse_math=False,
        )
        top += layout.TITLE_LINE
    for line in words.subtitle:
        figure.text(
            *layout.point(_MARGIN, top),
            line,
            fontsize=words.SUBTITLE,
            color=_QUIET,
            va="top",
            parse_math=False,
        )
        top += layout.SUBTITLE_LINE


def _write_notes(figure: Figure, layout: _Layout) -> None:
    top = layout.foot + layout.LEGEND
    (left, rule), (right, _) = layout.point(_MARGIN, top), layout.point(_MARGIN + _WIDTH, top)
    figure.add_artist(Line2D([left, right], [rule, rule], color=_RULE, linewidth=0.8))
    top += 0.1
    for lines, colour in ((layout.words.guarantee, _INK), (layout.words.closing, _QUIET)):
        for line in lines:
            figure.text(
                *layout.point(_MARGIN, top),
                line,
                fontsize=layout.words.NOTE,
                color=colour,
                va="top",
                parse_math=False,
            )
            top += layout.NOTE_LINE


def _draw_colour_bar(
    figure: Figure,
    layout: _Layout,
    scale: Normalize,
    units: str,
    write: Label,
    ticks: Sequence[float] | None,
    threshold: float | None,
) -> None:
    top = layout.foot + 0.42
    axes = figure.add_axes(layout.box(_MARGIN, top, _WIDTH / 2, 0.14))
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=axes, orientation="horizontal")
    cast("Patch", bar.outline).set(edgecolor=_QUIET, linewidth=0.5)
    low, high = scale.vmin or 0.0, scale.vmax or 0.0
    if ticks is None:
        bar.locator = MaxNLocator(6)
    else:
        bar.locator = FixedLocator([tick for tick in ticks if low <= tick <= high])
    bar.formatter = FuncFormatter(lambda value, _: write(value).replace("$", r"\$"))
    bar.update_ticks()
    axes.tick_params(labelsize=8, labelcolor=_INK, color=_QUIET, length=2.5, width=0.5)
    figure.text(*layout.point(_MARGIN, top - 0.06), units, fontsize=8.5, color=_INK, va="bottom", parse_math=False)
    if threshold is not None and low < threshold < high:
        axes.axvline(threshold, color=_PAPER, linewidth=3.0)
        axes.axvline(threshold, color=_OUTLINE, linewidth=1.4)


def _explain_outline(figure: Figure, layout: _Layout, text: str) -> None:
    start, top = _MARGIN + _WIDTH / 2 + 0.4, layout.foot + 0.49
    (left, y), (right, _) = layout.point(start, top), layout.point(start + 0.34, top)
    figure.add_artist(Line2D([left, right], [y, y], color=_OUTLINE, linewidth=1.8))
    figure.text(*layout.point(start + 0.44, top), text, fontsize=8.5, color=_INK, va="center", parse_math=False)
