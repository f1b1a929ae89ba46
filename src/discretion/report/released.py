"""Releases as pages: what each kind of release has to show, by its class."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.release import LocalSearchRelease
from discretion.gp import KERNELS
from discretion.posterior import KernelSumRelease, LatticeRelease, PathRelease, ThompsonRelease
from discretion.posterior.confidence import excursion_sets, local_mean, threshold_field
from discretion.posterior.excursion import excursion_polygons
from discretion.privacy import Certificate, Ledger, Release, html, round_up
from discretion.report.document import document
from discretion.report.folder import (
    PAGE,
    STATED,
    earlier,
    read_certificate_file,
    read_line,
    read_scene,
    read_tuning,
)
from discretion.report.page import Contents, audit_piece, page, tuning_piece
from discretion.report.reading import amount, asks, contrast, in_words, path_layer, read_as, shares
from discretion.report.scene import Layer, Line, Scene, View
from discretion.selection.outcome import SelectionRelease

__all__ = ["audit_page", "report", "report_folder", "write_folder_report", "write_report"]

Floats = NDArray[np.float64]
MOST_ROWS = 200


def report(
    release: Release | Certificate, *, view: View | None = None, ledger: Ledger | None = None, audit: Any = None
) -> str:
    """The page of a release, one self-contained HTML file.

    Args:
        release: what was released, or its certificate alone.
        view: title, units and the question of a map (`threshold`), all public.
        ledger: that paid; the page says what is spent and left.
        audit: what an attack found: an object with `to_dict`, or that dictionary.
    """
    view = view or View()
    made = release if isinstance(release, Certificate) else release.certificate
    scene, findings = (None, []) if isinstance(release, Certificate) else _shown(release, view)
    contents = Contents(
        made,
        view,
        None if scene is None else scene.data(),
        tuple(findings),
        ledger,
        _dictionary(audit),
    )
    return page(contents)


def write_report(release: Release | Certificate, path: str | os.PathLike[str] = PAGE, **more: Any) -> Path:
    """Write the page of a release to `path`, and return it; other arguments as in `report`."""
    target = Path(path)
    target.write_text(report(release, **more), encoding="utf-8")
    return target


def report_folder(
    source: str | os.PathLike[str], *, view: View | None = None, ledger: Ledger | None = None, audit: Any = None
) -> str:
    """The page of a finished release, from the folder of its files or from a certificate alone.

    Without a `view` the map of an earlier page in the folder is taken over, title and all, if it was made for this
    certificate; without one the files have to do. `ledger` and `audit` as in `report`.

    The JSON of an audit (`discretion audit ... --json`) as `source` has a page of its own.

    Raises:
        ValueError: there is no certificate, or a file is not what a release leaves.
    """
    source = Path(source)
    if (alone := _audit_in(source)) is not None:
        return audit_page(alone)
    folder = source if source.is_dir() else source.parent
    file = next((each for each in _certificates(source) if each.is_file()), None)
    if file is None:
        raise ValueError(f"{source}: no certificate.json; name the folder of a release, or its certificate.")
    made, signed = read_certificate_file(file)
    signed = signed or (folder / "certificate.signed.json").is_file()
    known = earlier(folder, made) if view is None and source.is_dir() else None
    if known is not None:
        view, scene = View(title=str(known.get("title", "")), source=str(known.get("source", ""))), known
    else:
        view = view or View()
        found = read_scene(folder, made, view) if source.is_dir() else None
        scene = None if found is None else found.data()
    findings = []
    if source.is_dir() and (tuning := read_tuning(folder)) is not None:
        findings.append(("What was chosen", tuning_piece(tuning)))
    if source.is_dir() and (line := read_line(folder, made, view)):
        findings.insert(0, ("What was released", line))
    names = tuple(sorted(p.name for p in folder.iterdir() if p.name in _FILES)) if source.is_dir() else ()
    return page(Contents(made, view, scene, tuple(findings), ledger, _dictionary(audit), signed, names))


_FILES = {
    "certificate.json",
    "certificate.txt",
    "certificate.signed.json",
    "excursion.geojson",
    "map.png",
    "tuning.json",
    *(f"{stem}{end}" for stem in ("sums", "paths") for end in (".csv", ".geojson", ".tif", ".parquet", ".png")),
}
"""What the page may name: files that a release leaves, and nothing else that lies in the folder."""


def write_folder_report(
    source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None, **more: Any
) -> Path:
    """Write the page of a finished release to `path`, by default report.html in its folder, and return it.

    Other arguments as in `report_folder`.
    """
    source = Path(source)
    target = (source if source.is_dir() else source.parent) / PAGE if path is None else Path(path)
    target.write_text(report_folder(source, **more), encoding="utf-8")
    return target


_SHOWN = ("rates", "epsilon_lower", "claimed", "delta", "confidence", "auc", "refuted", "each")


def audit_page(audit: Any) -> str:
    """The page of an audit on its own: what an attack proves, beside what is claimed."""
    found = _dictionary(audit) or {}
    words = html.paragraphs(
        "An attack on made-up data sets, with all public parameters as they are: no record was read. No epsilon below "
        "what it proves can be true of such a release."
    )
    rows = [(key, _text(value)) for key, value in found.items() if key not in _SHOWN]
    body = (
        '<section aria-labelledby="attack-title"><h2 id="attack-title">What an attack found</h2>'
        f'<div class="dis">{words}{audit_piece(found)}{html.table(("Detail", "Value"), rows, "All details")}</div>'
        "</section>"
    )
    head = "<div><h1>Audit of a private release</h1></div>"
    foot = "<p>This page asks nothing of the network, and may be passed on.</p>"
    return document(title="Audit of a private release", head=head, body=body, foot=foot, scripts=["theme.js"])


def _audit_in(source: Path) -> Mapping[str, Any] | None:
    """What a file says that an audit wrote; None where it is something else."""
    if not source.is_file():
        return None
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, dict) and "epsilon_lower" in found and "delta" in found else None


def _certificates(source: Path) -> list[Path]:
    return [source / "certificate.json", source / "certificate.signed.json"] if source.is_dir() else [source]


def _dictionary(audit: Any) -> Mapping[str, Any] | None:
    if audit is None or isinstance(audit, Mapping):
        return audit
    return json.loads(json.dumps(audit.to_dict(), default=str))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


# --- what each kind shows


def _shown(release: Any, view: View) -> tuple[Scene | None, list[tuple[str, str]]]:
    """The map, and further findings as headings with HTML."""
    if isinstance(release, SelectionRelease):
        told = {"outcome": str(release.outcome), "choice": release.choice, "score": release.score}
        told |= {
            "one_run_epsilon": round_up(release.one_run, 3),
            "score_is": "the noisy score the winner was ranked by",
        }
        own = [("What was chosen", tuning_piece(told))]
        scene, more = _shown(release.winner, view) if isinstance(release.winner, Release) else (None, [])
        return scene, own + more
    if isinstance(release, KernelSumRelease) and (scene := _sums(release, view)) is not None:
        return scene, []
    if isinstance(release, PathRelease) and (scene := _paths(release, view)) is not None:
        return scene, []
    if isinstance(release, PathRelease) and release.mechanism.domain.dimension == 1:
        return None, [("What was released", _on_a_line(release, view))]
    if isinstance(release, LatticeRelease) and release.locations is not None and release.locations.shape[1] == 2:
        low, high = release.locations.min(axis=0), release.locations.max(axis=0)
        layers = tuple(Layer(name, each, view.units, view.logarithm) for name, each in _named(release.values))
        box = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        return Scene(box, None, layers, places=release.locations, plane=view.plane, metres=view.metres), []
    if isinstance(release, LocalSearchRelease):
        return None, [("Where the search went", _search(release))]
    if isinstance(release, ThompsonRelease):
        return None, [("What was played", _played(release))]
    return None, [("What was released", _fields(release))]


def _named(values: Floats) -> list[tuple[str, Floats]]:
    """The mean of several paths, and each."""
    each = [(f"Path {i + 1}", path) for i, path in enumerate(values[:12])]
    return [("Mean of the paths", values.mean(axis=0)), *each] if len(values) > 1 else each


def _grid(release: Any) -> tuple[tuple[float, float, float, float], tuple[int, int], tuple[Floats, Floats]] | None:
    """Box, shape and axes of a release on a grid in the plane."""
    mechanism = release.mechanism
    if mechanism.grid is None or len(mechanism.grid) != 2 or mechanism.domain.dimension != 2:
        return None
    places = release.locations
    x, y = np.unique(places[:, 0]), np.unique(places[:, 1])
    if (x.size, y.size) != tuple(mechanism.grid):
        return None
    return (float(x[0]), float(y[0]), float(x[-1]), float(y[-1])), (x.size, y.size), (x, y)


def _sums(release: KernelSumRelease, view: View) -> Scene | None:
    found = _grid(release)
    if found is None or release.density is None:
        return None
    box, shape, (x, y) = found
    mean = local_mean(release, view.floor).values.T
    name, lines, answers, asked = f"Clipped local mean of {view.units}", (), None, ""
    if view.threshold is not None:
        kind = "<" if view.below else ">"
        sets = excursion_sets(release, view.threshold, kind, 0.95)
        field = threshold_field(release, view.threshold)[0].T * (-1.0 if view.below else 1.0)
        cut, absent = sets.quantile * sets.scale, np.isnan(mean)
        question = f"{'at most' if view.below else 'at least'} {amount(view.threshold, view)}, 95 % confidence"
        lines = (
            Line(f"{STATED['inner']}: {question}", excursion_polygons(field, x, y, cut, mask=absent)),
            Line(f"{STATED['outer']}: {question}", excursion_polygons(field, x, y, -cut, mask=absent), True),
        )
        answers = shares(field[~absent] >= cut, field[~absent] >= -cut)
        asked = asks(view.threshold, view.below, view)
    return Scene(
        box,
        shape,
        (Layer(name, mean, view.units, view.logarithm),),
        lines=lines,
        between=bool(lines),
        question=asked,
        answers=answers,
        plane=view.plane,
        metres=view.metres,
        words=in_words(name, mean, view.threshold, view.below, view, answers),
    )


def _on_a_line(release: PathRelease, view: View) -> str:
    order = np.argsort(release.locations[:, 0])
    x = release.locations[order, 0].tolist()
    read = contrast(release.mechanism.parameters(), release.certificate.n)
    lines = [(name, x, read_as(each[order], read).tolist()) for name, each in _named(release.values)[:3]]
    words = f"{len(release.values)} released paths along the covariate."
    label = view.units if read is None else read.units(view.units, amount(read.centre, view))
    return html.line_chart(lines, x_label="covariate", y_label=label, words=words)


def _paths(release: PathRelease, view: View) -> Scene | None:
    found = _grid(release)
    if found is None:
        return None
    box, shape, (x, y) = found
    named = [(name, each.reshape(shape).T) for name, each in _named(release.values)]
    read = contrast(release.mechanism.parameters(), release.certificate.n)
    all_ = read_as(release.values, read)
    ends = float(all_.min()), float(all_.max())
    ends = ends if ends[0] < ends[1] else None
    layers = tuple(path_layer(name, each, view, ends, read) for name, each in named)
    lines: tuple[Line, ...] = ()
    if view.threshold is not None:
        lines = tuple(
            Line(name, excursion_polygons(each, x, y, view.threshold, above=not view.below), i > 0, i == 0)
            for i, (name, each) in enumerate(named)
        )
    words = in_words(layers[0].name, layers[0].values, view.threshold, view.below, view, read=read)
    return Scene(box, shape, layers, lines=lines, plane=view.plane, metres=view.metres, words=words)


def _search(release: LocalSearchRelease) -> str:
    steps = np.arange(len(release.thetas))
    coordinates = release.thetas.T[:3].tolist()
    lines = [(f"coordinate {j + 1}", steps.tolist(), each) for j, each in enumerate(coordinates)]
    words = f"The path of {len(steps) - 1} noisy steps, in scaled coordinates."
    chart = html.line_chart(lines, x_label="step", y_label="scaled parameter", words=words)
    rows = [(name, _number(value), _number(release.last[name])) for name, value in release.parameters.items()]
    return html.table(("Parameter", "To use", "Last iterate"), rows, "Parameters found") + chart


def _played(release: ThompsonRelease) -> str:
    actions = release.actions
    rounds, batch, width = actions.shape
    lost = int(np.isnan(actions).any(axis=(1, 2)).sum())
    steps = (1 + np.arange(rounds)).tolist()
    lines = [(f"coordinate {j + 1}", steps, actions[:, 0, j].tolist()) for j in range(min(width, 3))]
    chart = html.line_chart(
        lines, x_label="round", y_label="first action of the round", words=f"Actions of {rounds} rounds."
    )
    pairs = [("Rounds", f"{rounds}, of which {lost} were lost or not begun"), ("Actions a round", str(batch))]
    if lost < rounds:
        found = {"Played most often": release.most_played}
        if release.certificate.parameters["kernel"] in KERNELS:  # another one is not in the certificate
            found = {"Recommended": release.recommended()} | found
        pairs += [(label, ", ".join(f"{x:.6g}" for x in action.tolist())) for label, action in found.items()]
    rows = [
        (str(i + 1), "; ".join(", ".join(f"{x:.5g}" for x in action) for action in each))
        for i, each in enumerate(actions[:MOST_ROWS].tolist())
    ]
    table = html.table(("Round", "Actions"), rows, f"The first {len(rows)} rounds")
    return html.facts(pairs) + chart + f"<details><summary>All actions</summary>{table}</details>"


def _fields(release: Release) -> str:
    """Any other release: its public fields, arrays by shape and first values."""
    rows = [
        (item.name, _summary(getattr(release, item.name)))
        for item in dataclasses.fields(release)
        if item.name not in ("certificate", "mechanism")
    ]
    return html.table(("Field", "Released value"), rows, "What was released")


def _summary(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 12:
        first = ", ".join(_number(each) for each in value.ravel()[:6].tolist())
        return f"array of shape {' x '.join(map(str, value.shape))}: {first}, ..."
    if isinstance(value, np.ndarray):
        value = value.tolist()
    text = _number(value)
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
