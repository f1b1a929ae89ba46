"""What the map of a report shows: released surfaces and outlines in a plane, packed small.

Values become whole numbers of 16 bits between the ends of the colour scale, places such numbers between the ends of the
frame, and both travel as base64 text: London's 236 x 184 grid takes 116 kB a surface. What the page says of a value is
so rounded by less than a 65,000th of the scale; the exact numbers are in the files beside it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ABSENT", "MOST_VALUES", "RAMP", "Layer", "Line", "Scene", "View"]

Floats = NDArray[np.float64]
Polygons = Sequence[Sequence[ArrayLike]]

RAMP = ("#f7f6cf", "#c4e1b1", "#87cca9", "#52b4ac", "#2f97ac", "#297ba6", "#305d95", "#2f437a", "#292b5e")
"""Equal steps of lightness: equal differences look equally large, in grey print and to colour-blind readers too."""

ABSENT = 65_535
"""Stands for a place without a value."""
_STEPS = 65_534
MOST_VALUES = 400_000
"""Values of all surfaces together; larger grids are thinned out, and the page says so."""
CELLS = 48_000
"""Corners of areas: beyond, places are drawn as points."""


@dataclass(frozen=True)
class View:
    """Public words and choices of a map that its files do not hold.

    Attributes:
        title: of the page.
        units: name the response.
        logarithm: whether values are logarithms; the page then says the numbers too.
        source: attribution of the data.
        plane: name of the coordinate system.
        metres: length of its unit, for the scale bar; None where it has none.
        region: public polygons, in the plane, that the map stays inside.
        threshold, below: the question that outlines answer, where no file says it.
        floor: kernel sums: weighted records that must be near for a local mean to be shown.
    """

    title: str = ""
    units: str = "response"
    logarithm: bool = False
    source: str = ""
    plane: str = ""
    metres: float | None = None
    region: tuple[Any, ...] = ()
    threshold: float | None = None
    below: bool = False
    floor: float = 20.0


@dataclass(frozen=True)
class Layer:
    """A released surface: one value for each place, NaN where there is none.

    Attributes:
        name: what the page calls it.
        values: (rows, columns) on a grid, else (places,).
        units: words beside the colour bar.
        logarithm: whether values are logarithms, shown as what they are logarithms of.
        ends: values at the ends of the colours; by default the range of the values.
    """

    name: str
    values: Floats
    units: str
    logarithm: bool = False
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """An outline, `polygons`, and what it means, `name`.

    `dashed` as on the printed map; `shown` says whether it is when the page opens.
    """

    name: str
    polygons: Polygons
    dashed: bool = False
    shown: bool = True


@dataclass(frozen=True)
class Scene:
    """A map.

    Attributes:
        box: lower left and upper right corner of the places, (x0, y0, x1, y1).
        shape: columns and rows of a grid of places, rows of constant y from below; None where there is no grid.
        layers: surfaces, at least one; on a grid of shape (rows, columns), else (places,).
        places: (places, 2), where there is no grid.
        areas: polygons of each place, where there is no grid.
        lines: outlines.
        between: whether the area inside the second outline and outside the first is undecided.
        question: that the outlines answer.
        answers: shares of the places shown where it is surely so, undecided and surely not so.
        region: polygons that the map stays inside.
        plane, metres: as in `View`.
        stretch: how much longer a unit along x is than drawn, as of longitude away from the equator.
        words: the map in words.
        notes: sentences below the map.
    """

    box: tuple[float, float, float, float]
    shape: tuple[int, int] | None
    layers: tuple[Layer, ...]
    places: Floats | None = None
    areas: tuple[Polygons, ...] = ()
    lines: tuple[Line, ...] = ()
    between: bool = False
    question: str = ""
    answers: tuple[float, float, float] | None = None
    region: Polygons = ()
    plane: str = ""
    metres: float | None = None
    stretch: float = 1.0
    words: str = ""
    notes: tuple[str, ...] = field(default=())

    def data(self) -> dict[str, Any]:
        """What the page's script reads: JSON data."""
        step = self._thinning()
        frame = self._frame()
        data: dict[str, Any] = {
            "box": list(self.box),
            "frame": list(frame),
            "ramp": list(RAMP),
            "layers": [self._layer(layer, step) for layer in self.layers],
            "lines": [
                {"name": line.name, "dashed": line.dashed, "shown": line.shown} | _rings(line.polygons, frame)
                for line in self.lines
            ],
            "between": self.between,
            "question": self.question,
            "answers": self.answers,
            "region": _rings(self.region, frame),
            "plane": self.plane,
            "metres": self.metres,
            "stretch": self.stretch,
            "notes": list(self.notes),
            "words": self.words,
        }
        if step > 1:
            data["notes"].append(f"The grid is too fine for this page: every {step}th point is shown along each axis.")
        if self.shape is not None:
            columns, rows = self.shape
            data["grid"] = [len(range(0, columns, step)), len(range(0, rows, step))]
            thinned = [(len(range(0, n, step)) - 1) * step / max(n - 1, 1) for n in self.shape]
            x0, y0, x1, y1 = self.box
            data["box"] = [x0, y0, x0 + (x1 - x0) * thinned[0], y0 + (y1 - y0) * thinned[1]]
        elif self.areas and sum(len(ring) for area in self.areas for rings in area for ring in rings) <= CELLS * 7:  # pyright: ignore[reportArgumentType]
            owner = [index for index, area in enumerate(self.areas) for rings in area for _ in rings]
            data["areas"] = _rings([rings for area in self.areas for rings in area], frame) | {"owner": owner}
        else:
            assert self.places is not None
            data["points"] = _packed(_placed(self.places, frame))
        return data

    def _thinning(self) -> int:
        if self.shape is None:
            return 1
        return max(math.ceil(math.sqrt(len(self.layers) * math.prod(self.shape) / MOST_VALUES)), 1)

    def _frame(self) -> tuple[float, float, float, float]:
        """Around everything that is drawn."""
        x0, y0, x1, y1 = self.box
        corners = [np.array([[x0, y0], [x1, y1]])]
        if self.places is not None:
            corners.append(self.places)
        for polygons in (*(line.polygons for line in self.lines), self.region, *self.areas):
            corners += [np.asarray(ring, dtype=np.float64) for rings in polygons for ring in rings]
        low, high = np.min([c.min(axis=0) for c in corners], axis=0), np.max([c.max(axis=0) for c in corners], axis=0)
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])

    @staticmethod
    def _layer(layer: Layer, step: int) -> dict[str, Any]:
        values = layer.values[::step, ::step] if layer.values.ndim == 2 else layer.values
        low, high = layer.ends or _ends(values)
        with np.errstate(invalid="ignore"):
            share = np.clip((values - low) / (high - low), 0.0, 1.0)
        whole = np.where(np.isnan(share), ABSENT, np.rint(_STEPS * share))
        return {
            "name": layer.name,
            "units": layer.units,
            "logarithm": layer.logarithm,
            "low": low,
            "high": high,
            "values": _packed(whole),
        }


def _ends(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _placed(points: ArrayLike, frame: tuple[float, float, float, float]) -> Floats:
    """Places as whole numbers: 0 at the lower or left end of the frame, `ABSENT` at the other."""
    low, high = np.array(frame[:2]), np.array(frame[2:])
    return np.rint(ABSENT * (np.asarray(points, dtype=np.float64) - low) / np.where(high > low, high - low, 1.0))


def _rings(polygons: Polygons, frame: tuple[float, float, float, float]) -> dict[str, Any]:
    rings = [np.asarray(ring, dtype=np.float64) for rings in polygons for ring in rings]
    places = _placed(np.concatenate(rings), frame) if rings else np.empty((0, 2))
    return {"lengths": [len(ring) for ring in rings], "places": _packed(places)}


def _packed(whole: ArrayLike) -> str:
    return base64.b64encode(np.asarray(whole).astype("<u2").tobytes()).decode("ascii")
