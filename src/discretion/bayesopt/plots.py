"""Plots of what a search released, from a study or its release: nothing private is drawn, so there is no loss curve.

Each function draws into the axes it is given, or makes a figure of its own, and returns the axes
(`axes.figure.savefig(...)`). matplotlib's global state is not touched. `source` is a study, finished or not, its
release or its public path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from discretion.bayesopt.public_path import PublicPath, public_path
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.space import Dimension, Integer, Log, Logit
from discretion.bayesopt.study import Study

__all__ = ["contour", "gradients", "importance", "overview", "path", "traces", "trials"]

Source = Study | LocalSearchRelease | PublicPath

_LINE, _NOISE, _LOST = "#1f5a8a", "#c25b2b", "#9aa4ad"
_CELLS = 41
_NAMED = 12  # curves up to which there is a legend


def trials(source: Source) -> list[dict[str, Any]]:
    """The steps of `source` as a table, one dictionary a row, as pandas takes them; no loss, as none was released."""
    return public_path(source).trials()


def path(source: Source, axes: Axes | None = None) -> Axes:
    """Each parameter along the path of `source`, as a fraction of its range on its own scale; drawn into `axes`."""
    found, axes = public_path(source), _axes(axes)
    low, high = found.space.bounds
    shown = (np.vstack([found.thetas, found.last]) - low) / (high - low)
    for name, each in zip(found.space.names, shown.T, strict=True):
        axes.plot(np.arange(len(each)), each, label=name, linewidth=1.5)
    axes.set_ylim(-0.03, 1.03)
    if found.space.size <= _NAMED:
        axes.legend(frameon=False, fontsize="small")
    return _of_steps(axes, "place in the range", "Path of the parameters")


def gradients(source: Source, axes: Axes | None = None) -> Axes:
    """Norms of the gradients that `source` released, beside those of noise alone, in `axes`; a lost step is marked."""
    found, axes = public_path(source), _axes(axes)
    steps = np.arange(len(found))
    axes.plot(steps, found.norms, "o", color=_LINE, markersize=4, label="released")
    axes.plot(steps, found.noise_norms, color=_NOISE, label="noise alone, root mean square")
    for step in steps[~found.known]:
        axes.axvline(float(step), color=_LOST, linestyle=":")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False, fontsize="small")
    return _of_steps(axes, "gradient norm", "Released gradients")


def traces(source: Source, axes: Axes | None = None) -> Axes:
    """What the locations leave unknown of each step's gradient: the trace of its covariance over that of the prior.

    `source` and `axes` as in `contour`.
    """
    found, axes = public_path(source), _axes(axes)
    axes.semilogy(np.arange(len(found)), np.maximum(found.traces, 1e-16), "o-", color=_LINE, markersize=4)
    return _of_steps(axes, "trace / prior trace", "What is unknown of the gradient")


def importance(source: Source, axes: Axes | None = None) -> Axes:
    """Shares of the parameters in the squared gradient along the path, noise taken out (`PublicPath.importance`).

    `source` and `axes` as in `contour`.
    """
    found, axes = public_path(source).importance(), _axes(axes)
    names = sorted(found, key=lambda name: -np.nan_to_num(found[name]))
    axes.barh(names[::-1], [float(np.nan_to_num(found[name])) for name in names[::-1]], color=_LINE)
    axes.set(xlabel="share of the squared gradient", xlim=(0, 1), title="Importance along the path")
    if all(np.isnan(share) for share in found.values()):
        axes.text(0.5, 0.5, "nothing rises above the noise", transform=axes.transAxes, ha="center", va="center")
    return axes


def contour(source: Source, x: str, y: str, axes: Axes | None = None, *, kernel: Any = None) -> Axes:
    """The surrogate of the mean loss, up to a constant, over two parameters; the others stay where the path ended.

    It is the posterior mean given released gradients and no loss: far from the path it says nothing.

    Args:
        source: what was released.
        x, y: names of parameters.
        axes: where to draw.
        kernel: as in `PublicPath.surrogate`.

    Raises:
        ValueError: no such parameter, or the same twice.
        StudyError: nothing has been released.
    """
    found = public_path(source)
    names = found.space.names
    if x == y or x not in names or y not in names:
        raise ValueError(f"Give two different parameters out of {', '.join(names)}.")
    surrogate, axes = found.surrogate(kernel), _axes(axes)
    places = [names.index(x), names.index(y)]
    dimensions = [found.space.dimensions[name] for name in (x, y)]
    theta = [np.linspace(-each.half, each.half, _CELLS) for each in dimensions]

    def value(first: float, second: float) -> float:
        point = found.last.copy()
        point[places] = first, second
        return surrogate.value(point)

    values = np.array([[value(first, second) for first in theta[0]] for second in theta[1]])
    grid = [_values(each, at) for each, at in zip(dimensions, theta, strict=True)]
    axes.contourf(*grid, values - values.min(), levels=14, cmap="viridis")
    visited = np.vstack([found.thetas, found.last])[:, places]
    shown = [_values(each, at) for each, at in zip(dimensions, visited.T, strict=True)]
    axes.plot(*shown, "o-", color="white", markersize=3, linewidth=1)
    axes.set_xscale(_scale(dimensions[0]))
    axes.set_yscale(_scale(dimensions[1]))
    axes.set(xlabel=x, ylabel=y, title="Surrogate of released gradients")
    return axes


def overview(source: Source) -> Figure:
    """Path, gradients, traces and importance of `source` on one page."""
    found, figure = public_path(source), _figure((10.0, 7.0))
    for draw, axes in zip((path, gradients, traces, importance), figure.subplots(2, 2).flat, strict=True):
        draw(found, axes)
    return figure


def _figure(size: tuple[float, float]) -> Figure:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _of_steps(axes: Axes, ylabel: str, title: str) -> Axes:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="step", ylabel=ylabel, title=title)
    return axes


def _axes(axes: Axes | None) -> Axes:
    return _figure((5.5, 4.0)).subplots() if axes is None else axes


def _values(dimension: Dimension, theta: Any) -> Any:
    """Parameters at scaled values, not rounded."""
    return np.array([dimension.inverse(dimension.middle + float(t) * dimension.step) for t in theta])


def _scale(dimension: Dimension) -> str:
    if isinstance(dimension, Logit):
        return "logit"
    return "log" if isinstance(dimension, Log) or (isinstance(dimension, Integer) and dimension.log) else "linear"
