"""Maps of a release: a PNG that carries its privacy guarantee and says in words what its lines mean.

Only released values and public geometry are drawn.  Nothing here takes records, and none of matplotlib's
global state is touched, so maps may be drawn from several threads and inside other programs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from discretion.spatial.hexagons import HexagonLattice
from discretion.spatial.maps.layout import Key, Layout, Words
from discretion.spatial.maps.line import draw_line
from discretion.spatial.maps.page import Label, draw_colour_bar, draw_key, write_heading, write_notes
from discretion.spatial.maps.panel import Polygons, draw_lattice, draw_panel, draw_scale_bar, mark_axes
from discretion.spatial.maps.save import DPI, new_figure, save
from discretion.spatial.maps.style import ABSENT, COLOURS, INK
from discretion.spatial.maps.surface import Grid, span
from discretion.spatial.region import Region

__all__ = ["COLOURS", "DPI", "Key", "draw_line", "draw_map", "draw_paths", "map_figure"]


def draw_map(
    path: str | os.PathLike[str], *, values: ArrayLike, polygons: Polygons = (), outer: Polygons = (), **page: Any
) -> Path:
    """Draw one released surface and its outlines; return the path of the picture (PNG by its name).

    `values[i, j]` lies at (x[j], y[i]): a local mean, a released path, or the mean of several, on a grid of at least 2
    by 2. `polygons` are drawn with a solid line and `outer` with a dashed one, as `excursion_polygons` returns them.
    The other arguments are those of `map_figure`. Raises ValueError when shapes disagree or no value is finite.
    """
    return save(map_figure([values], polygons=[polygons], outer=[outer], **page), path)


def draw_paths(
    path: str | os.PathLike[str], *, values: ArrayLike, polygons: Sequence[Polygons] = (), **page: Any
) -> Path:
    """Draw several released paths side by side on one colour scale; return the path of the picture.

    `values` has shape (paths, len(y), len(x)) with at most 12 paths, `polygons` one list of outlines for
    each.  The other arguments are those of `map_figure`; epsilon_text should speak of all paths together.
    Raises ValueError when shapes disagree, no value is finite, or there are more than 12 paths.
    """
    panels = np.asarray(values, dtype=np.float64)
    if panels.ndim != 3 or not 1 <= len(panels) <= 12:
        raise ValueError(f"values must have shape (1 to 12 paths, len(y), len(x)), not {panels.shape}.")
    page.setdefault("panel_titles", [f"Path {i + 1} of {len(panels)}" for i in range(len(panels))])
    return save(map_figure(list(panels), polygons=polygons, **page), path)


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
    hatched: Polygons = (),
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
    hatched
        Areas that are hatched without a line, in every panel.
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
    grids = [Grid.of(np.asarray(values, dtype=np.float64), x, y, mask, region) for values in panels]
    polygons, outer = (list(lines) or [()] * len(grids) for lines in (polygons, outer))
    if not len(grids) == len(polygons) == len(outer) or (panel_titles and len(panel_titles) != len(grids)):
        raise ValueError(f"{len(grids)} surfaces need as many lists of polygons, and as many panel titles, if any.")
    low, high = value_range or span(grids)
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
    words = Words.of(title, subtitle, units, key, epsilon_text, plane, source)
    layout = Layout.of(grids[0].aspect, rows, columns, bool(panel_titles), 0.3 if marked else 0.0, words)
    figure = new_figure(layout)
    write_heading(figure, layout)
    for index, (grid, inside, around) in enumerate(zip(grids, polygons, outer, strict=True)):
        axes = figure.add_axes(layout.panel(index), facecolor=ABSENT)
        draw_panel(axes, grid, scale, inside, around, hatched, region, weight=1.0 if columns == 1 else 0.7)
        if hexagons is not None:
            draw_lattice(axes, hexagons)
        if panel_titles:
            axes.set_title(panel_titles[index], loc="left", fontsize=9.5, color=INK, pad=4, parse_math=False)
        if marked:
            mark_axes(axes, layout, left=index % columns == 0, bottom=index + columns >= len(grids))
        elif index == len(grids) - 1:
            draw_scale_bar(axes, metres_per_unit)
    draw_key(figure, layout)
    draw_colour_bar(figure, layout, scale, write, value_ticks, threshold)
    write_notes(figure, layout)
    return figure
