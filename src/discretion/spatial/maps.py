"""Maps of a release: a PNG that carries its privacy guarantee and says in words what its lines mean.

Only released values and public geometry are drawn.  Nothing here takes records, and none of matplotlib's
global state is touched, so maps may be drawn from several threads and inside other programs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, cast

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
from discretion.spatial.region import Region

__all__ = ["COLOURS", "DPI", "Key", "draw_map", "draw_paths", "map_figure"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Polygons = Sequence[Sequence[ArrayLike]]
Label = Callable[[float], str]

DPI = 200
_INK, _QUIET, _RULE, _PAPER, _ABSENT = "#1d2935", "#5b6772", "#cdd4da", "#ffffff", "#e6e9ec"
_OUTLINE = "#d1335b"
_DASHES = (3.0, 1.6)  # in widths of the line
_HATCH = 5.0  # points between the lines
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


@dataclass(frozen=True)
class Key:
    """What the lines and areas of a map mean, in words; what has no words is left out of the legend.

    question
        Stands above the entries, such as "Is the local mean at least 13?".
    inner, outer
        The solid and the dashed line.
    between
        The hatched area inside the dashed and outside the solid line.
    absent
        Grey places, where there is no value.
    note
        Stands below the entries, such as the confidence of the lines.
    """

    question: str = ""
    inner: str = ""
    outer: str = ""
    between: str = ""
    absent: str = ""
    note: str = ""


def draw_map(
    path: str | os.PathLike[str], *, values: ArrayLike, polygons: Polygons = (), outer: Polygons = (), **page: Any
) -> FilePath:
    """Draw one released surface and its outlines; return the path of the picture (PNG by its name).

    `values[i, j]` lies at (x[j], y[i]): a local mean, a released path, or the mean of several, on a grid of at least 2
    by 2. `polygons` are drawn with a solid line and `outer` with a dashed one, as `excursion_polygons` returns them.
    The other arguments are those of `map_figure`. Raises ValueError when shapes disagree or no value is finite.
    """
    return _save(map_figure([values], polygons=[polygons], outer=[outer], **page), path)


def draw_paths(
    path: str | os.PathLike[str], *, values: ArrayLike, polygons: Sequence[Polygons] = (), **page: Any
) -> FilePath:
    """Draw several released paths side by side on one colour scale; return the path of the picture.

    `values` has shape (paths, len(y), len(x)) with at most 12 paths, `polygons` one list of outlines for
    each.  The other arguments are those of `map_figure`; epsilon_text should speak of all paths together.
    Raises ValueError when shapes disagree, no value is finite, or there are more than 12 paths.
    """
    panels = np.asarray(values, dtype=np.float64)
    if panels.ndim != 3 or not 1 <= len(panels) <= 12:
        raise ValueError(f"values must have shape (1 to 12 paths, len(y), len(x)), not {panels.shape}.")
    page.setdefault("panel_titles", [f"Path {i + 1} of {len(panels)}" for i in range(len(panels))])
    return _save(map_figure(list(panels), polygons=polygons, **page), path)


def map_figure(
    panels: Sequence[ArrayLike],
    x: ArrayLike,
    y: ArrayLike,
    *,
    title: str,
    units: str,
    epsilon_text: str,
    polygons: Sequence[Polygons] = (),
    outer: Sequence[Polygons] = (),
    threshold: float | None = None,
    above: bool = True,
    mask: ArrayLike | None = None,
    region: Region | None = None,
    hexagons: HexagonLattice | None = None,
    subtitle: str = "",
    plane: str = "",
    source: str = "",
    metres_per_unit: float | None = 1.0,
    value_label: Label | None = None,
    value_range: tuple[float, float] | None = None,
    value_ticks: Sequence[float] | None = None,
    key: Key | None = None,
    panel_titles: Sequence[str] = (),
) -> Figure:
    """The figure behind `draw_map` (one panel) and `draw_paths` (several), for further work in matplotlib.

    panels, x, y
        Surfaces of shape (len(y), len(x)).
    title, subtitle, panel_titles, units, source
        Words on the map, `panel_titles` one for each surface; `units` name the values beside the colour bar.
    epsilon_text
        The guarantee in words: epsilon, delta, neighbour relation, unit of privacy.  Printed under the map.
    polygons, outer
        For each panel its outlines: solid, and dashed around them.  What lies between the two is hatched.
    threshold, above
        The level and the side that the outlines belong to; the colour bar marks it.
    mask
        True at grid points that are not part of the map; so are NaN values.  They stay grey.
    region
        A public outline: nothing is drawn outside, and what lies outside sets no colour.
    hexagons
        A public lattice, drawn in full as faint lines: never the occupied hexagons alone.
    plane, metres_per_unit
        Name of the coordinate system, and the length of its unit for the scale bar; None leaves the bar out
        and marks the axes instead.
    value_label, value_range, value_ticks
        How a value is written beside the colour bar (for instance `lambda v: f"{math.exp(v):,.0f}"`), the
        values at its ends (by default the range of the released values), and the values it marks.
    key
        What lines and areas mean; by default the solid line is "At least" (or "At most") the threshold.

    Raises ValueError when shapes disagree or no value is finite.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    grids = [_Grid.of(np.asarray(values, dtype=np.float64), x, y, mask, region) for values in panels]
    polygons, outer = (list(lines) or [()] * len(grids) for lines in (polygons, outer))
    if not len(grids) == len(polygons) == len(outer) or (panel_titles and len(panel_titles) != len(grids)):
        raise ValueError(f"{len(grids)} surfaces need as many lists of polygons, and as many panel titles, if any.")
    low, high = value_range or _span(grids)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"value_range must be two finite numbers, lower first, not {(low, high)}.")
    scale = Normalize(low, high, clip=True)
    write = value_label or (lambda value: f"{value:g}")
    if key is None:
        drawn = threshold is not None and any(map(len, polygons))
        key = Key(inner=f"{'At least' if above else 'At most'} {write(threshold or 0.0)}" if drawn else "")

    columns = 1 if len(grids) == 1 else 2 if len(grids) in (2, 4) else 3
    rows = math.ceil(len(grids) / columns)
    marked = metres_per_unit is None
    words = _Words.of(title, subtitle, units, key, epsilon_text, plane, source)
    layout = _Layout.of(grids[0].aspect, rows, columns, bool(panel_titles), 0.3 if marked else 0.0, words)
    figure = Figure(figsize=(layout.width, layout.height), facecolor=_PAPER, dpi=DPI)
    FigureCanvasAgg(figure)
    _write_heading(figure, layout)
    for index, (grid, inside, around) in enumerate(zip(grids, polygons, outer, strict=True)):
        axes = figure.add_axes(layout.panel(index), facecolor=_ABSENT)
        _draw_panel(axes, grid, scale, inside, around, region, weight=1.0 if columns == 1 else 0.7)
        if hexagons is not None:
            _draw_lattice(axes, hexagons)
        if panel_titles:
            axes.set_title(panel_titles[index], loc="left", fontsize=9.5, color=_INK, pad=4, parse_math=False)
        if marked:
            _mark_axes(axes, layout, left=index % columns == 0, bottom=index + columns >= len(grids))
        elif index == len(grids) - 1:
            _draw_scale_bar(axes, metres_per_unit)
    _draw_key(figure, layout)
    _draw_colour_bar(figure, layout, scale, write, value_ticks, threshold)
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
    """A surface on a grid, both axes increasing, with the places that have no value, and those that are on the map."""

    values: Floats
    x: Floats
    y: Floats
    absent: Mask
    shown: Mask

    @classmethod
    def of(cls, values: Floats, x: Floats, y: Floats, mask: ArrayLike | None, region: Region | None) -> _Grid:
        if values.shape != (y.size, x.size) or x.ndim != 1 or y.ndim != 1 or min(values.shape) < 2:
            raise ValueError(f"values must have shape (len(y), len(x)), at least 2 by 2, not {values.shape}.")
        for axis in (x, y):
            step = np.diff(axis)
            if not (np.isfinite(axis).all() and ((step > 0).all() or (step < 0).all())):
                raise ValueError("x and y must be finite and increase (or decrease) from entry to entry.")
        absent = ~np.isfinite(values)
        if mask is not None:
            excluded = np.asarray(mask)
            if excluded.dtype != bool or excluded.shape != values.shape:
                raise ValueError(f"mask must be boolean and of shape {values.shape}.")
            absent = absent | excluded
        shown = ~absent
        if region is not None:
            shown &= region.contains(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)).reshape(values.shape)
        if not shown.any():
            raise ValueError("There is no finite value to draw: values are all NaN, or masked.")
        right, up = (1 if x[0] < x[-1] else -1), (1 if y[0] < y[-1] else -1)
        turned = np.s_[::up, ::right]
        return cls(values[turned], x[::right], y[::up], absent[turned], shown[turned])

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
    shown = np.concatenate([grid.values[grid.shown] for grid in grids])
    low, high = float(shown.min()), float(shown.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _draw_panel(
    axes: Axes, grid: _Grid, scale: Normalize, inner: Polygons, outer: Polygons, region: Region | None, weight: float
) -> None:
    axes.imshow(grid.picture(), extent=grid.extent, origin="lower", cmap=COLOURS, norm=scale, aspect="equal", zorder=1)
    axes.set_xlim(grid.extent[:2])
    axes.set_ylim(grid.extent[2:])
    if outer:
        # Inside an outer ring the inner ones turn the other way, so that the filling leaves them out.
        _hatch(axes, _closed([*_rings(outer), *(ring[::-1] for ring in _rings(inner))]))
    for dashed, polygons in ((True, outer), (False, inner)):
        if rings := _rings(polygons):
            path = Path.make_compound_path(*(_level_line(grid, ring) for ring in rings))
            axes.add_patch(PathPatch(path, **_outline(dashed, weight)))
    if region is not None:
        edge = [_turned(ring, hole > 0) for polygon in region.polygons for hole, ring in enumerate(polygon)]
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        frame = np.array([(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)])
        axes.add_patch(PathPatch(_closed(edge), fill=False, edgecolor=_QUIET, linewidth=0.8 * weight, zorder=4))
        # Paper over whatever lies outside.
        axes.add_patch(PathPatch(_closed([frame, *edge]), facecolor=_PAPER, edgecolor=_PAPER, zorder=3.5))
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    axes.spines[:].set(color=_QUIET, linewidth=0.6, visible=region is None)


def _rings(polygons: Polygons) -> list[Floats]:
    return [np.asarray(ring, dtype=np.float64) for polygon in polygons for ring in polygon]


def _closed(rings: Sequence[Floats]) -> Path:
    return Path.make_compound_path(*(Path(ring, closed=True) for ring in rings))


def _turned(ring: Floats, counter_clockwise: bool) -> Floats:
    x, y = (ring - ring[0]).T
    return ring if (np.dot(x[:-1], y[1:]) > np.dot(x[1:], y[:-1])) == counter_clockwise else ring[::-1]


def _outline(dashed: bool, weight: float = 1.0) -> dict[str, Any]:
    """How a line is drawn, on the map and in the legend: told apart by dashes, whatever colours the reader sees."""
    width = (1.2 if dashed else 1.6) * weight
    halo = [Stroke(linewidth=width + 1.6 * weight, foreground=_PAPER), Normal()]
    style = (0, _DASHES) if dashed else "solid"
    look = {"fill": False, "edgecolor": _OUTLINE, "linewidth": width, "linestyle": style, "joinstyle": "round"}
    return look | {"path_effects": halo, "zorder": 3}


def _hatch(axes: Axes, area: Path) -> None:
    """Thin white diagonals over an area, as far apart at every size of the map."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    inches = axes.get_position().width * cast("Figure", axes.figure).get_figwidth()
    rise, step = top - bottom, (right - left) * _HATCH / 72 / inches
    starts = np.arange(left - rise, right, step)
    lines = [((start, bottom), (start + rise, top)) for start in starts]
    hatch = LineCollection(lines, colors=_PAPER, linewidths=0.6, alpha=0.8, zorder=2)
    axes.add_collection(hatch, autolim=False)
    hatch.set_clip_path(area, axes.transData)


def _level_line(grid: _Grid, ring: Floats) -> Path:
    """The part of a ring that follows the level; where the map ends, an outline would trace the edge."""
    edge = grid.on_edge(ring)
    codes = np.where(np.r_[True, edge[1:] & edge[:-1]], Path.MOVETO, Path.LINETO)
    return Path(ring, codes.astype(Path.code_type))


def _draw_lattice(axes: Axes, lattice: HexagonLattice) -> None:
    lines = LineCollection(list(lattice.polygon(lattice.cells())), colors=_INK, linewidths=0.25, alpha=0.3)
    axes.add_collection(lines, autolim=False)


def _mark_axes(axes: Axes, layout: _Layout, left: bool, bottom: bool) -> None:
    """Coordinates along the outer sides; northings are turned, so that long ones fit."""

    def write(value: float, _: int | None = None) -> str:
        return f"{value:,.10g}"

    for axis, length, limits in (
        (axes.xaxis, layout.panel_width, axes.get_xlim()),
        (axes.yaxis, layout.panel_height, axes.get_ylim()),
    ):
        widest = max(len(write(round(limit))) for limit in limits) + 2
        axis.set_major_locator(MaxNLocator(int(np.clip(length / (0.065 * widest), 2, 6)), prune="both"))
        axis.set_major_formatter(FuncFormatter(write))
    axes.spines[:].set_visible(True)
    axes.tick_params(left=left, bottom=bottom, labelleft=left, labelbottom=bottom)
    axes.tick_params(labelsize=7, colors=_QUIET, length=3, width=0.6)
    axes.tick_params(axis="y", labelrotation=90)
    for label in axes.get_yticklabels():
        label.set_verticalalignment("center")


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


def _wrap(text: str, size: float, weight: str = "normal", width: float = _WIDTH) -> list[str]:
    """Lines no wider than so many inches, by the measured width of the words."""
    font = FontProperties(size=size, weight=weight)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        wide, _, _ = text_to_path.get_text_width_height_descent(longer, font, False)
        if lines and wide <= 0.98 * width * 72:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class _Words:
    """The lines above and below the maps."""

    title: list[str]
    subtitle: list[str]
    units: list[str]
    question: list[str]
    entries: list[tuple[str, list[str]]]
    note: list[str]
    guarantee: list[str]
    closing: list[str]

    TITLE, SUBTITLE, KEY, NOTE = 16.0, 10.0, 8.5, 7.8

    @classmethod
    def of(cls, title: str, subtitle: str, units: str, key: Key, epsilon_text: str, plane: str, source: str) -> _Words:
        parts = (_PROMISE, plane and f"Coordinates: {plane}", source)
        closing = " ".join(part.rstrip(". ") + "." for part in parts if part)
        room = _Layout.KEY_WIDTH - _Layout.KEY_INDENT
        signs = {"inner": key.inner, "outer": key.outer, "between": key.between, "absent": key.absent}
        return cls(
            _wrap(title, cls.TITLE, "bold"),
            _wrap(subtitle, cls.SUBTITLE),
            _wrap(units, cls.KEY, width=_Layout.BAR_WIDTH),
            _wrap(key.question, cls.KEY, "bold", _Layout.KEY_WIDTH),
            [(sign, _wrap(text, cls.KEY, width=room)) for sign, text in signs.items() if text],
            _wrap(key.note, cls.NOTE, width=_Layout.KEY_WIDTH),
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

    TOP, GAP = 0.32, 0.2
    TITLE_LINE, SUBTITLE_LINE, KEY_LINE, NOTE_LINE = 0.29, 0.2, 0.17, 0.16
    BAR_WIDTH, BAR_HEIGHT = 0.47 * _WIDTH, 0.14
    KEY_WIDTH, KEY_INDENT = 0.48 * _WIDTH, 0.44

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
        return self.foot + self.legend + 0.1 + self.NOTE_LINE * notes + 0.25

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

    @property
    def legend(self) -> float:
        """Height of the colour bar and the key, whichever is higher, with the space around them."""
        words = self.words
        bar = len(words.units) * self.KEY_LINE + self.BAR_HEIGHT + 0.42
        lines = len(words.question) + sum(len(text) for _, text in words.entries)
        key = lines * self.KEY_LINE + len(words.entries) * 0.05 + len(words.note) * self.NOTE_LINE + 0.1
        return 0.22 + max(bar, key) + 0.1

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

    def write(
        self, figure: Figure, left: float, top: float, lines: list[str], size: float, step: float, **look: Any
    ) -> float:
        """Set lines of text one below the other; where the next one would stand."""
        for line in lines:
            figure.text(*self.point(left, top), line, fontsize=size, va="top", parse_math=False, **look)
            top += step
        return top


def _write_heading(figure: Figure, layout: _Layout) -> None:
    words = layout.words
    top = layout.write(
        figure, _MARGIN, layout.TOP, words.title, words.TITLE, layout.TITLE_LINE, color=_INK, fontweight="bold"
    )
    layout.write(figure, _MARGIN, top, words.subtitle, words.SUBTITLE, layout.SUBTITLE_LINE, color=_QUIET)


def _write_notes(figure: Figure, layout: _Layout) -> None:
    top, words = layout.foot + layout.legend, layout.words
    (left, rule), (right, _) = layout.point(_MARGIN, top), layout.point(_MARGIN + _WIDTH, top)
    figure.add_artist(Line2D([left, right], [rule, rule], color=_RULE, linewidth=0.8))
    top = layout.write(figure, _MARGIN, top + 0.1, words.guarantee, words.NOTE, layout.NOTE_LINE, color=_INK)
    layout.write(figure, _MARGIN, top, words.closing, words.NOTE, layout.NOTE_LINE, color=_QUIET)


def _draw_colour_bar(
    figure: Figure,
    layout: _Layout,
    scale: Normalize,
    write: Label,
    ticks: Sequence[float] | None,
    threshold: float | None,
) -> None:
    words = layout.words
    top = layout.foot + 0.22
    top = layout.write(figure, _MARGIN, top, words.units, words.KEY, layout.KEY_LINE, color=_INK) + 0.04
    axes = figure.add_axes(layout.box(_MARGIN, top, layout.BAR_WIDTH, layout.BAR_HEIGHT))
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
    if threshold is not None and low < threshold < high:
        axes.axvline(threshold, color=_PAPER, linewidth=3.0)
        axes.axvline(threshold, color=_OUTLINE, linewidth=1.4)


def _draw_key(figure: Figure, layout: _Layout) -> None:
    words, left = layout.words, _MARGIN + _WIDTH - layout.KEY_WIDTH
    top = layout.foot + 0.22
    top = layout.write(figure, left, top, words.question, words.KEY, layout.KEY_LINE, color=_INK, fontweight="bold")
    top += 0.03
    for sign, lines in words.entries:
        axes = figure.add_axes(layout.box(left, top - 0.01, 0.32, layout.BAR_HEIGHT), facecolor=_ABSENT)
        axes.set(xlim=(0, 0.32), ylim=(0, layout.BAR_HEIGHT), xticks=[], yticks=[])
        axes.spines[:].set(color=_QUIET, linewidth=0.5)
        if sign in ("inner", "outer"):
            axes.set_axis_off()
            middle = Path([(0, layout.BAR_HEIGHT / 2), (0.32, layout.BAR_HEIGHT / 2)])
            axes.add_patch(PathPatch(middle, **_outline(sign == "outer")))
        elif sign == "between":
            axes.set_facecolor(COLOURS(0.45))
            _hatch(axes, Path.unit_rectangle())
        top = layout.write(figure, left + layout.KEY_INDENT, top, lines, words.KEY, layout.KEY_LINE, color=_INK) + 0.05
    layout.write(figure, left, top + 0.02, words.note, words.NOTE, layout.NOTE_LINE, color=_QUIET)
