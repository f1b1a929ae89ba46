"""The table and the picture of one survey of the study of London."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from discretion.studies.published import beside
from discretion.studies.running import Report, quartiles, shown, spread
from discretion.studies.surveys import Survey

Mask = NDArray[np.bool_]

ACCOUNTS = {
    "published": "published account",
    "coupled": "account with the coupled bound",
    "renyi": "certified Rényi account",
    "best": "best account",
}
COLUMNS = (
    "release",
    "unit, n",
    "epsilon",
    "choice",
    "IoU with the map without privacy: median [quartiles]",
    "IoU with the labels",
    "published",
)
# Blues are the set without privacy, dark where the release has it; distinct in lightness and to colour-blind eyes.
COLOURS = {
    "neither": "#e4e4e4",
    "in the map without privacy only": "#8cc6ec",
    "in the release only": "#d55e00",
    "in both": "#00527f",
}


def london_report(survey: Survey, found: dict[str, Any], absent: list[str]) -> Report:
    """Releases beside the map without privacy, as `discretion.studies.london.mapped` found them."""
    table = (*_without(survey, found), *_paths(survey, found), *_sums(survey, found))
    notes = (
        "Chosen on the public part alone; IoU of fresh releases of the private part with its map without privacy, over "
        "places near a public record. Labels: {median >= threshold} of the private hexagons.",
        "Smallest scale of one path at epsilon 9 by ridge, published / coupled / certified Rényi / best account: "
        + "; ".join(
            f"{ridge:g}: " + " / ".join(f"{scale:.3g}" for scale in scales) for ridge, scales in found["scales"]
        ),
    )
    if absent:
        notes += (f"Skipped, as their tables were not found (--data DIR): {', '.join(absent)}.",)
    return Report(
        f"london-{survey.name}",
        survey.title,
        COLUMNS,
        list(table),
        notes,
        lambda figure: _draw(figure, survey, found),
        _size(survey, found),
    )


def _without(survey: Survey, found: dict[str, Any]) -> list[tuple[Any, ...]]:
    free, without = found["numbers"]["free"], found["without"]
    choice = f"exponential {_km(survey, free)}, ridge {free['ridge']:g}, scale {free['scale']:g}, cut {free['cut']:.3g}"
    rows = [("map without privacy", "nothing", "inf", choice), ("map of the public part", "earlier", 0, choice)]
    rows.append(("all places", "all", 0, ""))
    return [(name, "", epsilon, words, *without[key], "") for name, key, epsilon, words in rows]


def _paths(survey: Survey, found: dict[str, Any]) -> list[tuple[Any, ...]]:
    n, rows = found["numbers"]["hexagons"], []
    told = [beside("london", survey.name, name) for name in ("n", "epsilon")]
    published = "; ".join(f"{name} {each[0]:g}" for name, each in zip(("n", "epsilon"), told, strict=True) if each)
    for (rule, words), each in zip(ACCOUNTS.items(), found["paths"], strict=True):
        c = each["choice"]
        choice = f"{c['kernel']} {_km(survey, c)}, ridge {c['ridge']:g}, scale {c['scale']:.3g}, filter {c['width']:g}"
        row = f"one path, {words}", f"{_place(survey)}, {n:,}", 9.0, choice, *_scores(each)
        rows.append((*row, published if rule == "published" else ""))
    return rows


def _sums(survey: Survey, found: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = []
    for each in found["sums"]:
        of, c = each["of"], each["choice"]
        choice = f"rbf {_km(survey, c)}, level {c['level']:g}, noise {c['scale']:.3g}"
        unit = f"{survey.unit if of == 'records' else 'hexagon'}, {found['numbers'][of]:,}"
        rows.append(("kernel sum", unit, each["epsilon"], choice, *_scores(each), ""))
    return rows


def _scores(each: dict[str, Any]) -> tuple[str, str]:
    return spread(quartiles(each["iou"])), spread(quartiles(each["labels"]))


def _place(survey: Survey) -> str:
    return survey.unit if survey.hexagon is None else "hexagon"


def _km(survey: Survey, choice: dict[str, Any]) -> str:
    return f"{choice['length'] * survey.longest / 1000.0:.3g} km"


# --- the picture: which places a typical release gets right -----------------------------------------------------------


def _panels(survey: Survey, found: dict[str, Any]) -> list[tuple[str, str]]:
    """Title and set of each panel."""
    n = found["numbers"]["hexagons"]
    panels = [(f"without privacy\nfrom {n:,} {_place(survey)}s", found["without"]["inside"])]
    for words, each in zip(ACCOUNTS.values(), found["paths"], strict=True):
        panels.append((f"one path, {words}\nε 9 a {_place(survey)}, IoU {_median(each)}", each["typical"]))
    for each in found["sums"]:
        unit = survey.unit if each["of"] == "records" else "hexagon"
        panels.append((f"kernel sum of {unit}s\nε {each['epsilon']:g} a {unit}, IoU {_median(each)}", each["typical"]))
    return panels


def _median(each: dict[str, Any]) -> str:
    return f"{quartiles(each['iou'])[0]:.2f}"


def _size(survey: Survey, found: dict[str, Any]) -> tuple[float, float]:
    rows = -(-len(_panels(survey, found)) // 4)
    width, height = survey.counts
    return 11.0, rows * (2.6 * (height / width + 0.08) + 0.5) + 0.8


def _draw(figure: Figure, survey: Survey, found: dict[str, Any]) -> None:
    panels = _panels(survey, found)
    rows = -(-len(panels) // 4)
    every = figure.subplots(rows, 4, squeeze=False).ravel()
    inside, near = (unpacked(found["without"][name], survey.counts) for name in ("inside", "near"))
    for axes, (title, text) in zip(every, panels, strict=False):
        mine = unpacked(text, survey.counts)
        axes.set_title(title, fontsize=9.0)
        _draw_sets(axes, survey, np.ma.masked_array(inside + 2 * mine, near == 0))
    for axes in every:
        axes.axis("off")
    _draw_bar(every[0], survey)
    handles = [Patch(color=colour, label=words) for words, colour in COLOURS.items()]
    words = {"title": survey.source, "title_fontsize": 7.0, "fontsize": 9.0}
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, **words)
    figure.suptitle(survey.title, fontsize=11.0)


def _draw_sets(axes: Axes, survey: Survey, kinds: np.ma.MaskedArray) -> None:
    (left, bottom), (right, top) = survey.domain.lower, survey.domain.upper
    half = np.subtract((right, top), (left, bottom)) / (np.array(survey.counts) - 1.0) / 2.0
    extent = (left - half[0], right + half[0], bottom - half[1], top + half[1])
    axes.imshow(
        kinds.T,
        cmap=ListedColormap(list(COLOURS.values())),
        vmin=-0.5,
        vmax=3.5,
        extent=extent,
        origin="lower",
        interpolation="nearest",
    )
    axes.set_ylim(bottom - 0.08 * survey.longest)  # room for a scale bar


def _draw_bar(axes: Axes, survey: Survey) -> None:
    """A scale bar of about a fifth of the longer side, below the map."""
    (left, bottom), longest = survey.domain.lower, survey.longest
    power = 10.0 ** np.floor(np.log10(longest / 5.0))
    bar = power * max(m for m in (1, 2, 5) if m * power <= longest / 5.0 * 1.01)
    height = bottom - 0.07 * longest
    axes.plot([left, left + bar], [height, height], color="#303030", linewidth=2.0, solid_capstyle="butt")
    axes.text(left + bar / 2.0, height + 0.012 * longest, f"{shown(bar / 1000.0)} km", fontsize=8.0, ha="center")


def unpacked(text: str, counts: tuple[int, int]) -> NDArray[np.intp]:
    """A set of places as `discretion.studies.london.packed` wrote it, on the grid: 0 or 1."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=counts[0] * counts[1])
    return bits.reshape(counts).astype(np.intp)
