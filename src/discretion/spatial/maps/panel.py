"""One map: its surface, outlines, hexagons, and scale bar or marked axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from discretion.spatial.hexagons import HexagonLattice
from discretion.spatial.maps.layout import Layout
from discretion.spatial.maps.style import COLOURS, DASHES, HATCH, INK, OUTLINE, PAPER, QUIET
from discretion.spatial.maps.surface import Grid
from discretion.spatial.region import Region

__all__ = ["Polygons", "draw_lattice", "draw_panel", "draw_scale_bar", "hatch", "mark_axes", "outline"]

Floats = NDArray[np.float64]
Polygons = Sequence[Sequence[ArrayLike]]


def draw_panel(
    axes: Axes,
    grid: Grid,
    scale: Normalize,
    inner: Polygons,
    outer: Polygons,
    hatched: Polygons,
    region: Region | None,
    weight: float,
) -> None:
    axes.imshow(grid.picture(), extent=grid.extent, origin="lower", cmap=COLOURS, norm=scale, aspect="equal", zorder=1)
    axes.set_xlim(grid.extent[:2])
    axes.set_ylim(grid.extent[2:])
    if outer:
        # Inside an outer ring the inner ones turn the other way, so that the filling leaves them out.
        hatch(axes, _closed([*_rings(outer), *(ring[::-1] for ring in _rings(inner))]))
    if hatched:
        hatch(axes, _closed(_rings(hatched)))
    for dashed, polygons in ((True, outer), (False, inner)):
        if rings := _rings(polygons):
            path = Path.make_compound_path(*(_level_line(grid, ring) for ring in rings))
            axes.add_patch(PathPatch(path, **outline(dashed, weight)))
    if region is not None:
        edge = [_turned(ring, hole > 0) for polygon in region.polygons for hole, ring in enumerate(polygon)]
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        frame = np.array([(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)])
        axes.add_patch(PathPatch(_closed(edge), fill=False, edgecolor=QUIET, linewidth=0.8 * weight, zorder=4))
        # Paper over whatever lies outside.
        axes.add_patch(PathPatch(_closed([frame, *edge]), facecolor=PAPER, edgecolor=PAPER, zorder=3.5))
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    axes.spines[:].set(color=QUIET, linewidth=0.6, visible=region is None)


def _rings(polygons: Polygons) -> list[Floats]:
    return [np.asarray(ring, dtype=np.float64) for polygon in polygons for ring in polygon]


def _closed(rings: Sequence[Floats]) -> Path:
    return Path.make_compound_path(*(Path(ring, closed=True) for ring in rings))


def _turned(ring: Floats, counter_clockwise: bool) -> Floats:
    x, y = (ring - ring[0]).T
    return ring if (np.dot(x[:-1], y[1:]) > np.dot(x[1:], y[:-1])) == counter_clockwise else ring[::-1]


def outline(dashed: bool, weight: float = 1.0) -> dict[str, Any]:
    """How a line is drawn, on the map and in the legend: told apart by dashes, whatever colours the reader sees."""
    width = (1.2 if dashed else 1.6) * weight
    halo = [Stroke(linewidth=width + 1.6 * weight, foreground=PAPER), Normal()]
    style = (0, DASHES) if dashed else "solid"
    look = {"fill": False, "edgecolor": OUTLINE, "linewidth": width, "linestyle": style, "joinstyle": "round"}
    return look | {"path_effects": halo, "zorder": 3}


def hatch(axes: Axes, area: Path) -> None:
    """Thin white diagonals over an area, as far apart at every size of the map."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    inches = axes.get_position().width * cast("Figure", axes.figure).get_figwidth()
    rise, step = top - bottom, (right - left) * HATCH / 72 / inches
    starts = np.arange(left - rise, right, step)
    lines = [((start, bottom), (start + rise, top)) for start in starts]
    hatch = LineCollection(lines, colors=PAPER, linewidths=0.6, alpha=0.8, zorder=2)
    axes.add_collection(hatch, autolim=False)
    hatch.set_clip_path(area, axes.transData)


def _level_line(grid: Grid, ring: Floats) -> Path:
    """The part of a ring that follows the level; where the map ends, an outline would trace the edge."""
    edge = grid.on_edge(ring)
    codes = np.where(np.r_[True, edge[1:] & edge[:-1]], Path.MOVETO, Path.LINETO)
    return Path(ring, codes.astype(Path.code_type))


def draw_lattice(axes: Axes, lattice: HexagonLattice) -> None:
    lines = LineCollection(list(lattice.polygon(lattice.cells())), colors=INK, linewidths=0.25, alpha=0.3)
    axes.add_collection(lines, autolim=False)


def mark_axes(axes: Axes, layout: Layout, left: bool, bottom: bool) -> None:
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
    axes.tick_params(labelsize=7, colors=QUIET, length=3, width=0.6)
    axes.tick_params(axis="y", labelrotation=90)
    for label in axes.get_yticklabels():
        label.set_verticalalignment("center")


def draw_scale_bar(axes: Axes, metres_per_unit: float) -> None:
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
    halo = [Stroke(linewidth=3.6, foreground=PAPER), Stroke(linewidth=1.3, foreground=INK)]
    corners = [(end - length, base + tick), (end - length, base), (end, base), (end, base + tick)]
    axes.add_line(Line2D(*zip(*corners, strict=True), color=INK, path_effects=halo, zorder=5))
    label = axes.text(end - length / 2, base + tick, text, ha="center", va="bottom", fontsize=8.5, color=INK, zorder=6)
    label.set_path_effects([Stroke(linewidth=2.6, foreground=PAPER), Normal()])
