"""How the price of Thompson sampling grows with the number of rounds (Maciazek 2026, Appendix B.4).

With scales sigma_t^2 = 2 R^2 gamma_{t-1}, and an information gain gamma_n = n^(d/(2 nu + d)) as for Matern kernels up
to logarithms, rho_T = mu_T^2 / 2 grows like T^(2 nu/(2 nu + d)) and epsilon no faster: a run of twice the length costs
less than twice as much. Beside it the same with the gain of greedy play on candidates, computed, not assumed: its
growth tends to the exponent from below, as early rounds all gain alike.

``discretion study thompson-growth`` prints the table and draws the figure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from discretion.gp import Exponential, Kernel, Matern32, Matern52
from discretion.posterior.divergence import thompson_rho
from discretion.posterior.thompson_account import greedy_information_gain
from discretion.privacy import gaussian_epsilon
from discretion.studies.running import Report, Run

Floats = NDArray[np.float64]

DELTA, RIDGE, BOUND, NOISE = 1e-5, 1.0, 1.0, 0.5
SMOOTHNESS = (0.5, 1.5, 2.5)
DIMENSIONS = (1, 2, 3)
LENGTHS = np.unique(np.geomspace(10, 10**7, 37).astype(int))


def exponent(smoothness: float, dimension: int) -> float:
    """2 nu / (2 nu + d), of the bound."""
    return 2.0 * smoothness / (2.0 * smoothness + dimension)


def rho(gains: Floats, lengths: NDArray[np.int64]) -> Floats:
    """rho_T for runs of these lengths at sigma_t^2 = 2 R^2 gamma_{t-1}; `gains` are gamma_1, gamma_2, ..."""
    one = thompson_rho([1.0, NOISE * np.sqrt(2.0)], RIDGE, BOUND)
    return one * np.cumsum(1.0 / gains)[lengths - 2]


@dataclass(frozen=True, eq=False)
class Growth:
    """One Matern kernel: rho and epsilon of runs of each length, and the slopes of their logarithms at the end."""

    smoothness: float
    dimension: int
    lengths: NDArray[np.int64]
    rho: Floats

    @property
    def epsilon(self) -> Floats:
        """Exact, of Gaussian DP."""
        return np.asarray(gaussian_epsilon(np.sqrt(2.0 * self.rho), DELTA))

    @property
    def exponent(self) -> float:
        """Of the bound."""
        return exponent(self.smoothness, self.dimension)

    def slope(self, values: Floats) -> float:
        """d log(values) / d log(T) over the last tenfold."""
        last = self.lengths >= self.lengths[-1] / 10
        return float(np.polyfit(np.log(self.lengths[last]), np.log(values[last]), 1)[0])


def growths() -> list[Growth]:
    """Every smoothness and dimension, with gamma_n = n^(d/(2 nu + d))."""
    n = np.arange(1.0, LENGTHS[-1])
    found = []
    for smoothness in SMOOTHNESS:
        for dimension in DIMENSIONS:
            gains = n ** (dimension / (2.0 * smoothness + dimension))
            found.append(Growth(smoothness, dimension, LENGTHS, rho(gains, LENGTHS)))
    return found


def measured_growth(kernel: Kernel, smoothness: float, rounds: int = 1500, candidates: int = 500) -> Growth:
    """The same with the computed bound of the gain on candidates of a line."""
    points = np.linspace(0.0, 1.0, candidates)[:, None]
    lengths = np.unique(np.geomspace(10, rounds, 20).astype(int))
    gains = greedy_information_gain(kernel, points, RIDGE, rounds)[1:]
    return Growth(smoothness, 1, lengths, rho(gains, lengths))


def on_a_line() -> list[Growth]:
    """Computed gains for the three Matern kernels, at a length scale that 1500 rounds resolve many times over."""
    kernels = ((Exponential(2.0), 0.5), (Matern32(2.0), 1.5), (Matern52(2.0), 2.5))
    return [measured_growth(kernel, smoothness) for kernel, smoothness in kernels]


def draw(figure: Figure, found: list[Growth]) -> None:
    """Epsilon against the number of rounds, one panel a dimension."""
    panels = figure.subplots(1, len(DIMENSIONS), sharey=True)
    colours = dict(zip(SMOOTHNESS, ("#a3c0cf", "#5f8fa8", "#27607f"), strict=True))
    for axes, dimension in zip(panels, DIMENSIONS, strict=True):
        for each in found:
            if each.dimension == dimension:
                words = f"nu = {each.smoothness:g}: T^{each.exponent:.3g}"
                axes.loglog(each.lengths, each.epsilon, color=colours[each.smoothness], label=words)
        constant = np.asarray(gaussian_epsilon(np.sqrt(2.0 * found[0].rho[0] * LENGTHS / LENGTHS[0]), DELTA))
        axes.loglog(LENGTHS, constant, "k:", label="constant scale: T")
        axes.set_title(f"d = {dimension}")
        axes.set_xlabel("rounds T")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    panels[0].set_ylabel(f"epsilon, delta = {DELTA:g}")


def reports(run: Run) -> list[Report]:
    """Table and figure; the same at both scales."""
    found = growths()
    rows = [_cells(each, str(each.dimension)) for each in found]
    rows += [_cells(each, "1, computed gain") for each in on_a_line()]
    columns = (
        "nu",
        "d",
        "exponent 2 nu/(2 nu + d)",
        "slope of rho",
        "slope of epsilon",
        "longest run T",
        "its epsilon",
    )
    title = "GP Thompson sampling: how rho and epsilon grow with the number of rounds"
    return [Report("thompson-growth", title, columns, rows, (), lambda figure: draw(figure, found), (9.6, 3.6))]


def _cells(each: Growth, dimension: str) -> tuple[object, ...]:
    slopes = each.slope(each.rho), each.slope(each.epsilon)
    return each.smoothness, dimension, each.exponent, *slopes, int(each.lengths[-1]), float(each.epsilon[-1])
