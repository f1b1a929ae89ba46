"""A finished release as a map again, from the files that it left: certificate, table, outlines. No record is there.

Outlines lie in longitude and latitude where the release was projected. They are brought back to the plane by the
released places themselves, which stand in both: a polynomial through them is exact to less than a hundredth of a cell.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.excursion import Polygon, excursion_polygons, smooth
from discretion.privacy.certificate import Certificate
from discretion.privacy.html import line_chart
from discretion.privacy.signing import SignedCertificate, read_certificate
from discretion.report.reading import Contrast, amount, asks, contrast, in_words, path_layer, read_as, shares
from discretion.report.scene import Layer, Line, Scene, View

__all__ = [
    "PAGE",
    "STATED",
    "digest",
    "earlier",
    "read_certificate_file",
    "read_line",
    "read_scene",
    "read_tuning",
]

PAGE = "report.html"
"""Name of the page in the folder of a release."""
MOST_PATHS = 12
STATED = {"estimate": "Estimate", "inner": "Surely yes inside (inner set)", "outer": "Surely no outside (outer set)"}
"""What the outlines of a kernel sum mean."""

Floats = NDArray[np.float64]


def read_certificate_file(path: Path) -> tuple[Certificate, bool]:
    """The certificate in a file, and whether it is signed.

    Raises:
        ValueError: it is none.
    """
    found = read_certificate(path.read_text(encoding="utf-8"))
    return (found.certificate, True) if isinstance(found, SignedCertificate) else (found, False)


def digest(made: Certificate) -> str:
    """SHA-256 of the file that `Certificate.save` writes."""
    return hashlib.sha256((made.to_json() + "\n").encode()).hexdigest()


def earlier(folder: Path, made: Certificate) -> dict[str, Any] | None:
    """The map of an earlier page in the folder, if it was made for this very certificate."""
    page = folder / PAGE
    if not page.is_file():
        return None
    found = re.search(r'<script type="application/json" id="map-data">(.*?)</script>', page.read_text("utf-8"), re.S)
    try:
        data = json.loads(found[1]) if found else None
    except ValueError:
        return None
    return data if isinstance(data, dict) and data.get("certificate") == digest(made) else None


def read_tuning(folder: Path) -> dict[str, Any] | None:
    """What a search left: the choice and its score."""
    file = folder / "tuning.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def read_scene(folder: Path, made: Certificate, view: View) -> Scene | None:
    """The map of a release in the plane, from its files; None where it has none.

    Raises:
        ValueError: a file is not what a release leaves.
    """
    table = _table_of(folder)
    if table is None:
        return None
    names, columns = _table(table)
    axes = [name for name in names if name not in _VALUES and not name.startswith("path_")]
    outlines = _features(folder / "excursion.geojson")
    asked = outlines[0]["properties"] if outlines else {}
    threshold = asked.get("threshold", view.threshold)
    below = asked.get("side", "<=" if view.below else ">=") == "<="
    if "name" in names or "value" in names:
        return _areas(folder, columns, outlines, view, threshold, below)
    if len(axes) != 2:
        return None
    places = np.stack([columns[axis] for axis in axes], axis=1)
    x, y = np.unique(places[:, 0]), np.unique(places[:, 1])
    if x.size * y.size != len(places) or min(x.size, y.size) < 2:
        return None
    inside = _inside(view.region, places).reshape(x.size, y.size).T if view.region else np.ones((y.size, x.size), bool)

    def surface(values: Floats) -> Floats:
        return values.reshape(x.size, y.size).T

    read = None
    if "value_sum" in columns:
        layers = _sums(columns, _settings(folder, made), view, surface, inside)
        lines = _stated(folder, outlines, places, view, threshold, below)
    else:
        read = contrast(_settings(folder, made), made.n)
        layers, lines = _paths(columns, view, surface, inside, asked, (x, y), threshold, below, read)
        lines = (*_stated(folder, outlines, places, view, threshold, below), *lines)
    between = len(lines) >= 2 and lines[0].name.startswith("Surely yes") and lines[1].name.startswith("Surely no")
    shown = inside & np.isfinite(layers[0].values)
    answers = question = None
    if between and threshold is not None:
        yes, maybe = (_inside(line.polygons, places).reshape(x.size, y.size).T for line in lines[:2])
        answers = shares(yes[shown], maybe[shown])
        question = asks(threshold, below, view)
    return Scene(
        (float(x[0]), float(y[0]), float(x[-1]), float(y[-1])),
        (x.size, y.size),
        layers,
        lines=lines,
        between=between,
        question=question or "",
        answers=answers,
        region=view.region,
        plane=view.plane,
        metres=view.metres,
        words=in_words(layers[0].name, layers[0].values[inside], threshold, below, view, answers, read),
    )


def _settings(folder: Path, made: Certificate) -> dict[str, Any]:
    """The parameters of the mechanism; for a search what all candidates share, and what won."""
    if "common" not in made.parameters:
        return made.parameters
    return made.parameters["common"] | json.loads((folder / "tuning.json").read_text(encoding="utf-8"))["choice"]


def read_line(folder: Path, made: Certificate, view: View) -> str:
    """What was released along one covariate, as a chart of at most three lines; empty where there is no such thing."""
    table = _table_of(folder)
    if table is None:
        return ""
    names, columns = _table(table)
    axes = [name for name in names if name not in _VALUES and not name.startswith("path_")]
    values = [name for name in names if name in columns and name not in (*axes, *_ANSWERS)][:3]
    if len(axes) != 1 or not values:
        return ""
    order = np.argsort(columns[axes[0]])
    read = None if "value_sum" in columns else contrast(_settings(folder, made), made.n)
    label = view.units if "value_sum" not in columns else "released sums"
    if "local_mean" in columns and np.isfinite(columns["local_mean"]).any():
        values, label = ["local_mean"], f"clipped local mean of {view.units}"
    lines = [(name.replace("_", " "), columns[axes[0]][order], read_as(columns[name][order], read)) for name in values]
    if view.threshold is not None and len(lines) < 3 and "value_sum" not in values:
        ends = columns[axes[0]][order[[0, -1]]]
        lines.append((f"threshold {amount(view.threshold, view)}", ends, read_as(np.full(2, view.threshold), read)))
    label = label if read is None else read.units(label, amount(read.centre, view))
    return line_chart(lines, x_label=axes[0], y_label=label, words=f"What was released along {axes[0]}.")  # pyright: ignore[reportArgumentType]


def _table_of(folder: Path) -> Path | None:
    return next((folder / name for name in ("sums.csv", "paths.csv") if (folder / name).is_file()), None)


_ANSWERS = {"local_mean", "inner", "outer", "excursion", "share", "share_low", "share_high"}
_VALUES = {"value_sum", "density", "value", "name", *_ANSWERS}


# --- surfaces


def _sums(
    columns: dict[str, Floats], told: dict[str, Any], view: View, surface: Any, inside: NDArray[np.bool_]
) -> tuple[Layer, ...]:
    """The local mean c + M h / d where enough records are near, and their weighted number d / M."""
    centre, (low, high) = float(told["centres"][0]), told["response_ranges"][0]
    bound = max(high - centre, centre - low)
    records = surface(columns["density"]) / bound
    enough = records >= view.floor + 2.0 * float(told["scale"]) / bound
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(surface(columns["value_sum"]) / (records * bound), -1.0, 1.0)
    mean = np.where(enough, centre + bound * share, np.nan)
    near = np.maximum(records, 0.0)
    return (
        Layer(f"Clipped local mean of {view.units}", mean, view.units, view.logarithm, _ends(mean, inside)),
        Layer("Records near, weighted, with noise", near, "records", False, _ends(near, inside)),
    )


def _paths(
    columns: dict[str, Floats],
    view: View,
    surface: Any,
    inside: NDArray[np.bool_],
    asked: dict[str, Any],
    axes: tuple[Floats, Floats],
    threshold: float | None,
    below: bool,
    read: Contrast | None,
) -> tuple[tuple[Layer, ...], tuple[Line, ...]]:
    """The mean of the paths and each of them, on one scale, read as they can be; and the outline of each."""
    paths = [surface(values) for name, values in columns.items() if name.startswith("path_")]
    sd = float(asked.get("smoothing_cells") or 0.0)
    fields = [smooth(each, sd) if sd else each for each in paths]
    shown = fields[:MOST_PATHS]
    named = [(f"Path {i + 1}", each) for i, each in enumerate(shown)]
    mean = [("Mean of the paths", np.mean(fields, axis=0))] if len(fields) > 1 else []
    ends = _ends(read_as(np.stack(fields), read), np.broadcast_to(inside, (len(fields), *inside.shape)))
    layers = tuple(path_layer(name, each, view, ends, read) for name, each in mean + named)
    if threshold is None or len(fields) == 1:
        return layers, ()
    lines = tuple(
        Line(f"{name} alone", excursion_polygons(each, *axes, threshold, above=not below, mask=~inside), True, False)
        for name, each in named
    )
    return layers, lines


def _ends(values: Floats, inside: NDArray[np.bool_]) -> tuple[float, float] | None:
    """Ends of the colours: what lies outside the region sets none."""
    shown = values[inside & np.isfinite(values)]
    if not shown.size or shown.min() == shown.max():
        return None
    return float(shown.min()), float(shown.max())


# --- outlines


def _stated(
    folder: Path,
    outlines: list[dict[str, Any]],
    places: Floats,
    view: View,
    threshold: float | None,
    below: bool,
) -> tuple[Line, ...]:
    """The outlines of the file, in the plane: of kernel sums the inner, the outer and the estimate."""
    if not outlines or threshold is None:
        return ()
    planar = bool(outlines[0].get("planar"))
    to_plane = None if planar else _plane_of(folder, places)
    if not planar and to_plane is None:
        return ()
    question = f"{'at most' if below else 'at least'} {amount(threshold, view)}"
    found = []
    for feature in outlines:
        about = feature["properties"]
        kind = about.get("set")
        name = f"{STATED[kind]}: {question}" if kind in STATED else f"{view.units} {question}"
        if kind in ("inner", "outer"):
            name += f", {100 * about['confidence']:g} % confidence"
        polygons = _polygons(feature["geometry"], to_plane)
        found.append((kind, Line(name, polygons, kind == "outer", kind != "estimate")))
    order = {"inner": 0, "outer": 1, "estimate": 2}
    return tuple(line for _, line in sorted(found, key=lambda each: order.get(each[0], 3)))


def _plane_of(folder: Path, places: Floats) -> Any:
    """From longitude and latitude to the plane, fitted to places that are known in both; None where it fits badly."""
    file = next((folder / name for name in ("sums.geojson", "paths.geojson") if (folder / name).is_file()), None)
    if file is None:
        return None
    features = json.loads(file.read_text(encoding="utf-8"))["features"]
    if len(features) != len(places) or features[0]["geometry"]["type"] != "Point":
        return None
    some = np.unique(np.linspace(0, len(places) - 1, 3_000).astype(int))
    lonlat = np.array([features[i]["geometry"]["coordinates"] for i in some.tolist()], dtype=np.float64)
    low, high = lonlat.min(axis=0), lonlat.max(axis=0)
    if np.any(high <= low):
        return None
    degree = 5 if len(some) > 200 else 3 if len(some) > 40 else 1

    def powers(points: Floats) -> Floats:
        u, v = (2.0 * (points - low) / (high - low) - 1.0).T
        return np.stack([u**i * v**j for i in range(degree + 1) for j in range(degree + 1 - i)], axis=1)

    fit = np.linalg.lstsq(powers(lonlat), places[some], rcond=None)[0]
    wrong = np.abs(powers(lonlat) @ fit - places[some]).max(axis=0)
    cell = (places.max(axis=0) - places.min(axis=0)) / math.sqrt(len(places))
    return (lambda points: powers(points) @ fit) if np.all(wrong < 0.05 * cell) else None


def _polygons(geometry: dict[str, Any], to_plane: Any) -> list[Polygon]:
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    found = [[np.asarray(ring, dtype=np.float64)[:, :2] for ring in rings] for rings in parts]
    return found if to_plane is None else [[to_plane(ring) for ring in rings] for rings in found]


# --- areas


def _areas(
    folder: Path,
    columns: dict[str, Floats],
    outlines: list[dict[str, Any]],
    view: View,
    threshold: float | None,
    below: bool,
) -> Scene | None:
    """Cells or districts, as their GeoJSON has them; longitude is shortened as at the middle latitude."""
    features = _features(folder / "paths.geojson")
    if not features:
        return None
    planar = bool(features[0].get("planar"))
    areas = [_polygons(each["geometry"], None) for each in features]
    every = np.concatenate([ring for area in areas for rings in area for ring in rings])
    shrink = 1.0 if planar else math.cos(math.radians(0.5 * float(every[:, 1].min() + every[:, 1].max())))
    factor = np.array([shrink, 1.0])

    def seen(polygons: list[Polygon]) -> list[Polygon]:
        return [[ring * factor for ring in rings] for rings in polygons]

    shown = ["value", *(name for name in columns if name.startswith("path_")), "share"]
    names = {
        "value": "Mean of the paths, pulled to the centre by the ridge, rescaled as declared",
        "share": "Share of the paths that say yes",
    }
    chosen = [name for name in (*shown[: MOST_PATHS + 1], "share") if name in columns]
    layers = tuple(
        Layer(
            names.get(name, name.replace("path_", "Path ")),
            columns[name],
            "share" if name == "share" else view.units,
            view.logarithm and name != "share",
            (0.0, 1.0) if name == "share" else None,
        )
        for name in dict.fromkeys(chosen)
    )
    low, high = (every * factor).min(axis=0), (every * factor).max(axis=0)
    lines = ()
    if outlines and threshold is not None:
        name = f"{view.units} {'at most' if below else 'at least'} {amount(threshold, view)}"
        lines = tuple(Line(name, seen(_polygons(each["geometry"], None))) for each in outlines)
    drawn = tuple(seen(area) for area in areas)
    centres = np.stack([np.mean(np.concatenate([ring for rings in area for ring in rings]), axis=0) for area in drawn])
    return Scene(
        (float(low[0]), float(low[1]), float(high[0]), float(high[1])),
        None,
        layers,
        places=centres,
        areas=drawn,
        lines=lines,
        plane=view.plane if planar else "degrees",
        metres=view.metres if planar else 111_320.0,
        stretch=1.0 / shrink,
        words=in_words(layers[0].name, layers[0].values, threshold, below, view),
    )


# --- files


def _table(path: Path) -> tuple[list[str], dict[str, Floats]]:
    """The columns of a released table, NaN where a cell is empty; names become no numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file))
        rows = list(csv.reader(file))
    found = {}
    for i, name in enumerate(names):
        if name != "name":
            found[name] = np.array([row[i] or "nan" for row in rows], dtype=np.float64)
    return names, found


def _features(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    collection = json.loads(path.read_text(encoding="utf-8"))
    planar = "planar_coordinates" in collection
    return [feature | {"planar": planar} for feature in collection["features"]]


def _inside(region: Sequence[Any], points: Floats) -> NDArray[np.bool_]:
    """Which points lie inside polygons with holes: the even-odd rule."""
    x, y = points.T
    inside = np.zeros(len(points), dtype=bool)
    for rings in region:
        for ring in rings:
            corner = np.asarray(ring, dtype=np.float64)
            for (x0, y0), (x1, y1) in zip(corner[:-1].tolist(), corner[1:].tolist(), strict=True):
                if y0 != y1:
                    crosses = (y0 > y) != (y1 > y)
                    inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside
