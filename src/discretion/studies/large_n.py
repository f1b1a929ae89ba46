"""Privacy for free (Maciazek 2026, Appendix D.3): as n grows epsilon falls and one path finds the set.

The worlds of the excursion study, noise-to-signal 1; ridge n^0.4, scale and length scale fixed, delta = n^-1.1.
Nothing is tuned. Rates are not claimed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from discretion.posterior.account import posterior_epsilon
from discretion.posterior.assumptions import Bounded, Exponential1D
from discretion.posterior.worlds import OUExcursionWorlds
from discretion.studies.excursions_1d import BLOCK, NODES, Choice, scored
from discretion.studies.running import Report, Run, quartiles, spread

SIZES = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
POWER, NOISE, LENGTH, SCALE = 0.4, 0.5, 0.2, 0.05


def grown(n: int, *, worlds: int, paths: int, seed: int) -> dict[str, Any]:
    """Epsilon on the line and for any kernel, and quartiles of the IoU of one path."""
    ridge, rng = n**POWER, np.random.default_rng([seed, n])
    account: dict[str, Any] = {"n": n, "ridge": ridge, "scale": SCALE, "delta": n**-1.1}
    account |= {"least_kernel": math.exp(-1.0 / LENGTH)}
    found = []
    size = max(1, min(BLOCK, 200_000 // (n + NODES)))  # bounds the memory of the paths
    for start in range(0, worlds, size):
        batch = OUExcursionWorlds(n, NOISE, nodes=NODES).simulate(min(size, worlds - start), rng)
        found.append(scored(Choice(LENGTH, ridge, SCALE, math.nan, math.nan), batch, paths, rng)["path"])
    return {
        "ridge": ridge,
        "line": float(posterior_epsilon(**account, assumption=Exponential1D(1.0)).epsilon),
        "general": float(posterior_epsilon(**account, assumption=Bounded(1.0)).epsilon),
        "iou": quartiles(np.concatenate(found)),
    }


def reports(run: Run) -> list[Report]:
    """Table and figure."""
    sizes = run.pick(SIZES[::2], SIZES)
    effort = run.pick({"worlds": 40, "paths": 5}, {"worlds": 300, "paths": 20}) | {"seed": run.seed}
    found = run.each("large-n", grown, [{"n": n, **effort} for n in sizes])
    rows = [
        (n, each["ridge"], n**-1.1, each["line"], each["general"], spread(each["iou"]))
        for n, each in zip(sizes, found, strict=True)
    ]
    return [
        Report(
            "large-n",
            "Privacy for free: epsilon and IoU of one path as n grows",
            ("n", "ridge", "delta", "epsilon, line", "epsilon, any kernel", "IoU of one path: median [quartiles]"),
            rows,
            (f"Exponential kernel of length {LENGTH:g} on [0, 1], scale {SCALE:g}, ridge n^{POWER:g}.",),
            lambda figure: _draw(figure, sizes, found),
        )
    ]


def _draw(figure: Figure, sizes: tuple[int, ...], found: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    left.loglog(sizes, [each["line"] for each in found], "o-", color="#27607f", label="1-D exponential kernel")
    left.loglog(sizes, [each["general"] for each in found], "s-", color="#a3c0cf", label="any kernel")
    middle, low, high = np.array([each["iou"] for each in found]).T
    right.semilogx(sizes, middle, "o-", color="#27607f")
    right.fill_between(sizes, low, high, color="#27607f", alpha=0.2, linewidth=0)
    left.set(xlabel="n", ylabel="epsilon of one path, delta = n^-1.1")
    right.set(xlabel="n", ylabel="IoU of one path, median and quartiles")
    left.legend(frameon=False, fontsize="small")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
