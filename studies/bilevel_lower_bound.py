"""The instance of the lower bound of private bilevel optimisation, by quadrature: excess against n and d.

f = -<y, z>, g = |y - x|^2/2, |x| <= 1, z in {-1/sqrt(d), 1/sqrt(d)}^d, with hard data: a mean as short as privacy can
still hide, min(n, d/epsilon)/n (pure) or sqrt(d log(1/delta))/(n epsilon) (approximate).

``python -m studies.bilevel_lower_bound [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import gammainc

from discretion.bilevel import ConvexExponential, QuadraticMean, RegularisedExponential

Floats = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-6
COUNTS = np.array([1000, 2000, 4000, 8000, 16000])
DIMENSIONS = np.array([1, 2, 4, 8, 16, 32, 64])


@dataclass(frozen=True)
class Excess:
    """Expected excess |mean| (1 - E t) of both mechanisms, t the cosine along the mean, and what their bounds say.

    mirrored: |mean| (1 + E t) of both, which is the excess of the worst point, -x.
    """

    pure: float
    pure_bound: float
    approximate: float
    approximate_bound: float
    mirrored: tuple[float, float]


def expected(log_density: Floats, t: Floats) -> float:
    """Mean of t under a density on a fine grid of [-1, 1]."""
    weights = np.exp(log_density - log_density.max())
    return float(weights @ t / weights.sum())


def excess(n: int, d: int) -> Excess:
    """At (EPSILON, DELTA)."""
    # dense near t = 1, where the mass is; midpoints carry the widths of their cells
    edges = 1.0 - 2.0 * np.linspace(1.0, 0.0, 200_001) ** 2
    t, widths = 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)
    across = np.log1p(-t * t)
    problem = QuadraticMean(records=n, dimension=d)
    pure = ConvexExponential(problem=problem, epsilon=EPSILON, value_share=1e-9)
    mean = min(n, d / EPSILON) / n
    along, one = expected(pure.k * mean * t + 0.5 * (d - 1) * across + np.log(widths), t), mean
    # d > 4 has no certified sampler for the second; its law is what matters here
    line = RegularisedExponential(problem=QuadraticMean(records=n, dimension=1), epsilon=EPSILON, delta=DELTA)
    m = line.modulus * math.sqrt(d)
    k = line.price**2 * m / line.lipschitz.value**2
    mean = math.sqrt(d * math.log(1.0 / DELTA)) / (n * EPSILON)
    log_density = k * mean * t - 0.5 * k * m * t * t + np.log(widths)
    if d > 1:
        with np.errstate(divide="ignore"):
            # what is left for the other coordinates, a Gaussian on a ball of radius sqrt(1 - t^2)
            log_density += np.log(gammainc(0.5 * (d - 1), 0.5 * k * m * (1.0 - t * t)))
    other = expected(log_density, t)
    bound = math.sqrt(2.0 * d) * line.lipschitz.value / line.price
    mirrored = one * (1.0 + along), mean * (1.0 + other)
    return Excess(one * (1.0 - along), pure.expected_excess, mean * (1.0 - other), bound, mirrored)


def slope(x: NDArray[np.int64], y: Floats) -> float:
    """Of log y on log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@dataclass(frozen=True)
class Found:
    """Excess by n (d = 16) and by d (n = 4000), and the slopes: pure and approximate in n, then in d, also mirrored."""

    by_count: tuple[Excess, ...]
    by_dimension: tuple[Excess, ...]
    slopes: tuple[float, ...]
    mirrored: tuple[float, ...]


def measure() -> Found:
    """Both series."""
    counts = tuple(excess(int(n), 16) for n in COUNTS)
    dimensions = tuple(excess(4000, int(d)) for d in DIMENSIONS)
    series = [
        slope(x, np.array([getattr(each, name) for each in rows]))
        for x, rows in ((COUNTS, counts), (DIMENSIONS, dimensions))
        for name in ("pure", "approximate")
    ]
    mirrored = tuple(slope(DIMENSIONS, np.array([each.mirrored[at] for each in dimensions])) for at in (0, 1))
    return Found(counts, dimensions, tuple(series), mirrored)


def draw(found: Found, path: Path) -> None:
    """Excess against n and d, both axes logarithmic."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = zip(
        figure.subplots(1, 2), (COUNTS, DIMENSIONS), (found.by_count, found.by_dimension), ("n", "d"), strict=True
    )
    for axes, x, rows, label in panels:
        for name, colour in (("pure", "#27607f"), ("approximate", "#b5442e")):
            axes.loglog(x, [getattr(each, name) for each in rows], "o-", color=colour, label=name)
            axes.loglog(x, [getattr(each, f"{name}_bound") for each in rows], "--", color=colour, lw=0.8)
        axes.set_xlabel(label)
        axes.set_ylabel("expected excess (dashed: bound)")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = measure()
    table = Table("n", "d", "pure", "bound", "approximate", "bound", title=f"epsilon = {EPSILON:g}, delta = {DELTA:g}")
    pairs = [(int(n), 16) for n in COUNTS] + [(4000, int(d)) for d in DIMENSIONS]
    for (n, d), row in zip(pairs, found.by_count + found.by_dimension, strict=True):
        values = row.pure, row.pure_bound, row.approximate, row.approximate_bound
        table.add_row(str(n), str(d), *(f"{each:.4f}" for each in values))
    console = Console()
    console.print(table)
    console.print("Slopes in n: {:.2f}, {:.2f}; in d: {:.2f}, {:.2f}".format(*found.slopes))
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
