"""Audit of the exponential mechanism on a grid: exact laws and samples, and a control that must fail.

f = -<y, z>, g = |y - x|^2/2 on [-1, 1], five points, epsilon = 2; one record of 40 is replaced by its opposite. The
control believes in a quarter of the sensitivity. Samples give Clopper-Pearson bounds of the most telling event, which
is chosen on other samples.

``python -m studies.bilevel_audit [FIGURE]`` prints the table, and draws the figure if it has a name.
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
from scipy.stats import beta

from discretion.bilevel import ExponentialMechanism, Grid, QuadraticMean
from discretion.bilevel.samplers import Weights, probabilities
from discretion.privacy import Randomness, SystemRandomness

Floats = NDArray[np.float64]

N, EPSILON, DRAWS, CONFIDENCE = 40, 2.0, 40_000, 0.99
POINTS = np.linspace(-1.0, 1.0, 5)


@dataclass(frozen=True)
class Audit:
    """One pair of neighbours under one mechanism.

    Attributes:
        name: of the pair.
        strength: 1, or what the sensitivity was divided by.
        largest, range: of the exact log-ratio, over points.
        sampled: lower bound of the largest log-ratio from samples, at CONFIDENCE over both directions.
        ratios: exact log-ratios, by point.
    """

    name: str
    strength: float
    largest: float
    range: float
    sampled: float
    ratios: Floats


def pairs() -> dict[str, tuple[Floats, Floats]]:
    """Neighbours: about 0, where neither side is likelier, and far from it."""
    found = {}
    for name, base in (("skewed", np.ones((N, 1))), ("half skewed", np.full((N, 1), 0.1))):
        one, other = base.copy(), base.copy()
        one[0], other[0] = 1.0, -1.0
        found[name] = one, other
    # the other records cancel: what one side gains on the left, the other gains on the right
    rest = np.append(np.where(np.arange(N - 2) % 2 == 0, 1.0, -1.0), 0.0)[:, None]
    found["balanced"] = np.append(rest, [[1.0]], axis=0), np.append(rest, [[-1.0]], axis=0)
    return found


def sampled(one: Floats, other: Floats, randomness: Randomness, draws: int = DRAWS) -> float:
    """Lower bound of the largest log-ratio of an event, from samples of both laws."""
    best = 0.0
    laws = Weights(one), Weights(other)
    halves, rest = (
        [np.bincount([law.draw(randomness) for _ in range(draws)], minlength=len(one)) for law in laws] for _ in "ab"
    )
    for p, q, chosen_p, chosen_q in ((0, 1, halves[0], halves[1]), (1, 0, halves[1], halves[0])):
        event = np.argmax(np.log((chosen_p + 1.0) / (chosen_q + 1.0)))
        hits = int(rest[p][event]), int(rest[q][event])
        level = (1.0 - CONFIDENCE) / 4.0
        low = beta.ppf(level, hits[0], draws - hits[0] + 1) if hits[0] else 0.0
        high = beta.ppf(1.0 - level, hits[1] + 1, draws - hits[1]) if hits[1] < draws else 1.0
        best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


def measure(randomness: Randomness | None = None) -> list[Audit]:
    """Every pair, as it is and with a quarter of the sensitivity."""
    source = SystemRandomness() if randomness is None else randomness
    mechanism = ExponentialMechanism(
        problem=QuadraticMean(records=N, dimension=1), epsilon=EPSILON, grid=Grid.of(POINTS), score="plain"
    )
    found = []
    for strength in (1.0, 4.0):
        for name, (base, other) in pairs().items():
            values = [mechanism.problem.values(mechanism.points, each, np.ones(len(POINTS))) for each in (base, other)]
            scores = [strength * mechanism.k * each for each in values]
            ratios = np.log(probabilities(scores[0]) / probabilities(scores[1]))
            largest, spread = float(np.abs(ratios).max()), float(np.ptp(ratios))
            found.append(Audit(name, strength, largest, spread, sampled(scores[0], scores[1], source), ratios))
    return found


def draw(found: list[Audit], path: Path) -> None:
    """Exact log-ratios by point, with the promise."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, strength, title in zip(figure.subplots(1, 2), (1.0, 4.0), ("as proved", "control"), strict=True):
        for each in found:
            if each.strength == strength:
                axes.plot(POINTS, each.ratios, "o-", label=f"{each.name}: at least {each.sampled:.2f} by samples")
        for end in (-EPSILON, EPSILON):
            axes.axhline(end, color="k", ls="--", lw=0.8)
        axes.set_title(title)
        axes.margins(y=0.3)
        axes.set_xlabel("x")
        axes.set_ylabel("log-ratio of chances")
        axes.legend(frameon=False, loc="lower right", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = measure()
    table = Table("sensitivity", "pair", "largest log-ratio", "range", f"at least, by {2 * DRAWS:,} samples")
    for each in found:
        strength = "as proved" if each.strength == 1 else "a quarter (control)"
        table.add_row(strength, each.name, f"{each.largest:.3f}", f"{each.range:.3f}", f"{each.sampled:.3f}")
    console = Console()
    console.print(table)
    console.print(f"Promised: {EPSILON:g}.")
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
