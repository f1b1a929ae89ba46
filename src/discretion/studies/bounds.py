"""Figures 1 and 5 of Maciazek 2026: what one path costs over ridge and scale, and how many paths a budget buys.

n = 100, least kernel value sqrt(0.1), responses in [-1, 1] or an RKHS norm of 1. Nothing is simulated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from discretion.posterior.account import posterior_epsilon
from discretion.posterior.assumptions import RKHS, Bounded, Exponential1D, RecordAssumption
from discretion.posterior.rules import published_epsilon
from discretion.studies.running import Report, Run

Floats = NDArray[np.float64]

N, LEAST = 100, 0.1**0.5
MODELS: dict[str, RecordAssumption] = {
    "bounded": Bounded(1.0),
    "RKHS": RKHS(1.0),
    "1-D exponential": Exponential1D(1.0),
}
DELTA, PATHS_DELTA, BUDGET, CAP = 1e-4, 1e-3, 10.0, 50_000
LISTED = (0.3, 1.0, 3.0, 10.0)
"""Ridges and scales of the table."""


def most_paths(model: str, ridge: Floats, scale: Floats) -> NDArray[np.int64]:
    """L_max: the most paths whose epsilon is at most 10 at delta = 1e-3, at most 50,000; by bisection."""
    low, high = np.zeros(ridge.shape, dtype=np.int64), np.full(ridge.shape, CAP + 1)
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, 1)
        cost = posterior_epsilon(
            n=N,
            ridge=ridge,
            scale=scale,
            delta=PATHS_DELTA,
            assumption=MODELS[model],
            least_kernel=LEAST,
            paths=middle,
        ).epsilon
        open_ = high - low > 1
        met = open_ & (cost <= BUDGET)
        low, high = np.where(met, middle, low), np.where(open_ & ~met, middle, high)
    return low


def figure_1(model: str, points: int) -> dict[str, Any]:
    """Epsilon of one path, as published and by the closed forms, and with prior noise eta = scale; grids (r, sigma)."""
    ridge, scale = (each.ravel() for each in axes(points))
    account: dict[str, Any] = {"n": N, "ridge": ridge, "scale": scale, "delta": DELTA, "assumption": MODELS[model]}
    account |= {"least_kernel": LEAST}
    own = posterior_epsilon(**account).epsilon
    noisy = posterior_epsilon(**account, prior_noise=scale).epsilon
    printed, _ = published_epsilon(**account)
    shape = (points, points)
    return {"own": own.reshape(shape), "noisy": noisy.reshape(shape), "printed": printed.reshape(shape)}


def figure_5(model: str, points: int) -> list[Any]:
    """L_max over the grid."""
    ridge, scale = axes(points)
    return most_paths(model, ridge.ravel(), scale.ravel()).reshape(points, points).tolist()


def axes(points: int) -> tuple[Floats, Floats]:
    """Ridges and scales, logarithmic from 0.1 to 10, each (points, points), first axis ridge."""
    grid = np.geomspace(0.1, 10.0, points)
    ridge, scale = np.meshgrid(grid, grid, indexing="ij")
    return ridge, scale


def reports(run: Run) -> list[Report]:
    """Figure 1 and Figure 5, each with a table of a few settings."""
    points = run.pick(25, 80)
    models = [{"model": name, "points": points} for name in MODELS]
    costs = dict(zip(MODELS, run.each("bounds", figure_1, models), strict=True))
    paths = dict(zip(MODELS, run.each("most-paths", figure_5, models), strict=True))
    pairs = [(r, s) for r in LISTED for s in LISTED]
    ridge, scale = np.array(pairs).T
    listed = {
        name: posterior_epsilon(n=N, ridge=ridge, scale=scale, delta=DELTA, assumption=held, least_kernel=LEAST).epsilon
        for name, held in MODELS.items()
    }
    most = {name: most_paths(name, ridge, scale) for name in MODELS}
    cost_rows = [(r, s, *(float(listed[name][i]) for name in MODELS)) for i, (r, s) in enumerate(pairs)]
    path_rows = [(r, s, *(int(most[name][i]) for name in MODELS)) for i, (r, s) in enumerate(pairs)]
    columns = ("ridge", "scale", *MODELS)
    return [
        Report(
            "bounds",
            "Figure 1: epsilon of one path, n = 100, delta = 1e-4",
            columns,
            cost_rows,
            ("Closed forms of this library. The figure shows them, and what prior noise eta = scale takes off.",),
            lambda figure: _draw_costs(figure, costs, points),
            (13.0, 3.4),
        ),
        Report(
            "most-paths",
            "Figure 5: paths that epsilon = 10 at delta = 1e-3 pays for, n = 100",
            columns,
            path_rows,
            ("At most 50,000 are counted.",),
            lambda figure: _draw_paths(figure, paths, points),
            (11.0, 3.4),
        ),
    ]


def _draw_costs(figure: Figure, costs: dict[str, Any], points: int) -> None:
    grid = np.geomspace(0.1, 10.0, points)
    panels = figure.subplots(1, len(MODELS) + 1, sharey=True)
    for name, panel in zip(MODELS, panels, strict=False):
        values = np.array(costs[name]["own"])
        image = panel.pcolormesh(grid, grid, values.T, norm=LogNorm(1e-2, 1e4), cmap="viridis", shading="auto")
        _level(panel, grid, values, (1.0, 10.0))
        panel.set_title(f"{name}: epsilon", fontsize="medium")
    figure.colorbar(image, ax=panels[: len(MODELS)], pad=0.01)  # pyright: ignore[reportPossiblyUnboundVariable]
    ratio = np.array(costs["bounded"]["noisy"]) / np.array(costs["bounded"]["own"])
    image = panels[-1].pcolormesh(grid, grid, ratio.T, vmin=0.0, vmax=1.0, cmap="magma", shading="auto")
    panels[-1].set_title("bounded: with prior noise / without", fontsize="medium")
    figure.colorbar(image, ax=panels[-1], pad=0.01)
    _logarithmic(panels)


def _draw_paths(figure: Figure, paths: dict[str, Any], points: int) -> None:
    grid = np.geomspace(0.1, 10.0, points)
    panels = figure.subplots(1, len(MODELS), sharey=True)
    for name, panel in zip(MODELS, panels, strict=True):
        values = np.array(paths[name], dtype=np.float64)
        shown = np.ma.masked_less(values.T, 1.0)
        image = panel.pcolormesh(grid, grid, shown, norm=LogNorm(1, CAP), cmap="viridis", shading="auto")
        panel.set_title(f"{name}: most paths", fontsize="medium")
    figure.colorbar(image, ax=panels, pad=0.01)  # pyright: ignore[reportPossiblyUnboundVariable]
    _logarithmic(panels)


def _level(panel: Any, grid: Floats, values: Floats, levels: tuple[float, ...]) -> None:
    lines = panel.contour(grid, grid, values.T, levels=levels, colors="white", linewidths=0.8)
    panel.clabel(lines, fmt="%g", fontsize="x-small")


def _logarithmic(panels: Any) -> None:
    for panel in panels:
        panel.set(xscale="log", yscale="log", xlabel="ridge r")
    panels[0].set_ylabel("scale sigma")
