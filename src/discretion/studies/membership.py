"""Figures 2 and 3 of Maciazek 2026: what a membership attack gains, against what the paths cost.

The game of two labelled halves (`discretion.audit.PathGame`): n = 10, length scale 1, no label noise, delta = 1e-3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from discretion.audit import PathGame, repeated
from discretion.posterior.account import posterior_epsilon
from discretion.posterior.assumptions import Exponential1D
from discretion.posterior.rules import published_epsilon
from discretion.studies.published import published
from discretion.studies.running import Report, Run

DELTA, RECORDS = 1e-3, 10
SCALES = ("0.5", "1", "2.5", "inf")
PATHS = (1, 2, 5, 10, 22, 46, 100, 215, 464, 1000)
GRID_SCALES = ("0.5", "1", "5", "inf")
WITHOUT_PRIVACY = 0.5039
"""Published TPR at 10 % of the same attack on the posterior mean itself."""


def attacked(
    ridge: float, scale: str, paths: int, *, shadows: int, trials: int, repetitions: int, seed: int
) -> dict[str, Any]:
    """Mean excess TPR at 1, 5 and 10 %, AUC, lower bound of epsilon, and epsilon under both accounts."""
    sigma = float(scale)
    found = repeated(
        PathGame(ridge, sigma, paths, RECORDS),
        shadows=shadows,
        trials=trials,
        repetitions=repetitions,
        delta=DELTA,
        seed=seed,
    )
    account: dict[str, Any] = {"n": RECORDS, "ridge": ridge, "scale": sigma, "paths": paths, "delta": DELTA}
    account |= {"assumption": Exponential1D(1.0), "least_kernel": math.exp(-1.0)}
    return {
        "excess": found.excess.tolist(),
        "auc": found.auc,
        "lower": found.epsilon_lower,
        "epsilon": float(posterior_epsilon(**account).epsilon),
        "printed": float(published_epsilon(**account)[0]),
    }


def reports(run: Run) -> list[Report]:
    """The grid of three paths, Figure 2 and Figure 3."""
    effort = run.pick(
        {"shadows": 3_000, "trials": 3_000, "repetitions": 1}, {"shadows": 10_000, "trials": 10_000, "repetitions": 10}
    ) | {"seed": run.seed}
    told: dict[str, Any] = published()["membership"]["excess TPR at 10 %"]
    grid = [(r, s) for r in told["ridge"] for s in GRID_SCALES]
    ridges = [float(f"{r:.4g}") for r in np.geomspace(0.065, 4.0, run.pick(8, 30))]
    curves = [(r, s) for s in SCALES for r in ridges]
    settings = [{"ridge": r, "scale": s, "paths": 3, **effort} for r, s in grid]
    settings += [{"ridge": r, "scale": s, "paths": 1, **effort} for r, s in curves]
    settings += [{"ridge": 1.0, "scale": "2", "paths": paths, **effort} for paths in PATHS]
    found = run.each("membership", attacked, settings)
    table, second, third = found[: len(grid)], found[len(grid) : -len(PATHS)], found[-len(PATHS) :]

    rows = [
        (r, s, float(each["excess"][2]), told[f"scale {s}"][told["ridge"].index(r)], *_cells(each))
        for (r, s), each in zip(grid, table, strict=True)
    ]
    columns = ("AUC", "epsilon shown", "epsilon claimed", "as printed")
    return [
        Report(
            "membership",
            "Membership attack on three paths: TPR - FPR at FPR 10 %",
            ("ridge", "scale", "excess", "published", *columns),
            rows,
        ),
        Report(
            "membership-epsilon",
            "Figure 2: membership attack on one path, by ridge and scale",
            ("ridge", "scale", "excess at 1 %", "at 5 %", "at 10 %", *columns),
            [(r, s, *each["excess"], *_cells(each)) for (r, s), each in zip(curves, second, strict=True)],
            (f"Published without privacy: TPR {WITHOUT_PRIVACY} at 10 %.",),
            lambda figure: _draw_second(figure, ridges, second),
        ),
        Report(
            "membership-paths",
            "Figure 3: membership attack by number of paths, ridge 1, scale 2",
            ("paths", "excess at 1 %", "at 5 %", "at 10 %", *columns),
            [(paths, *each["excess"], *_cells(each)) for paths, each in zip(PATHS, third, strict=True)],
            draw=lambda figure: _draw_third(figure, third),
        ),
    ]


def _cells(each: dict[str, Any]) -> tuple[float, ...]:
    return each["auc"], each["lower"], each["epsilon"], each["printed"]


def _draw_second(figure: Figure, ridges: list[float], found: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    colours = ("#a3c0cf", "#5f8fa8", "#27607f", "#b5482a")
    for index, (scale, colour) in enumerate(zip(SCALES, colours, strict=True)):
        here = found[index * len(ridges) : (index + 1) * len(ridges)]
        excess, epsilon = ([row["excess"][2] for row in here], [row["epsilon"] for row in here])
        left.semilogx(ridges, excess, color=colour, label=f"scale {scale}")
        right.semilogx(epsilon, excess, color=colour)
    left.set(xlabel="ridge r", ylabel="TPR - FPR at FPR 10 %")
    right.set(xlabel="epsilon claimed, delta = 1e-3")
    right.axvspan(1.0, 10.0, color="#dddddd", zorder=0)
    left.legend(frameon=False, fontsize="small")
    for axes in (left, right):
        axes.axhline(WITHOUT_PRIVACY - 0.1, color="k", linestyle=":", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)


def _draw_third(figure: Figure, found: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    for index, rate in enumerate(("1 %", "5 %", "10 %")):
        left.semilogx(PATHS, [row["excess"][index] for row in found], marker="o", label=f"FPR {rate}")
    right.loglog(PATHS, [row["epsilon"] for row in found], color="#b5482a", marker="s", label="claimed (at most)")
    shown = [row["lower"] for row in found]
    positive = [(paths, value) for paths, value in zip(PATHS, shown, strict=True) if value > 0.0]
    if positive:
        right.loglog(*zip(*positive, strict=True), color="#27607f", marker="o", label="shown by attack (at least)")
    left.set(xlabel="paths L", ylabel="TPR - FPR")
    right.set(xlabel="paths L", ylabel="epsilon, delta = 1e-3")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
