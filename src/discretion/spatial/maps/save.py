"""A new page, and its file."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from discretion.spatial.maps.layout import Layout
from discretion.spatial.maps.style import PAPER

__all__ = ["DPI", "new_figure", "save"]

DPI = 200


def new_figure(layout: Layout) -> Figure:
    """An empty page, outside matplotlib's global state."""
    figure = Figure(figsize=(layout.width, layout.height), facecolor=PAPER, dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write it; the kind of file is by the name."""
    target = Path(path)
    # no date and no version in the file: the same release gives the same bytes
    metadata = {"Software": None} if target.suffix.lower() == ".png" else None
    figure.savefig(target, dpi=DPI, metadata=metadata)
    return target
