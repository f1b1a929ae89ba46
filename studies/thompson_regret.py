"""Regret of private Thompson sampling beside Thompson sampling without privacy and uniform play, on made-up objectives.

Objectives are random functions of the kernel's space on 200 candidates of a line, scaled to largest value 1; each round
one person tries one action and answers with noise of at most 0.3. Responses alone are private. Of all runs at one
epsilon the ridge makes the difference: at ridge 1 the noise that 500 rounds need drowns the responses, at about
2 sqrt(T) the same epsilon is spent on the mean of many.

``python -m studies.thompson_regret [FIGURE]`` prints the table and draws the figure.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from discretion.gp import Matern52
from discretion.posterior.thompson import ThompsonSampler
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import SeededRandomness

Floats = NDArray[np.float64]

KERNEL, ROUNDS, NOISE, DELTA = Matern52(0.2), 500, 0.3, 1e-5
CANDIDATES = np.linspace(0.0, 1.0, 200)[:, None]
EPSILONS, RIDGE = (np.inf, 10.0, 3.0, 1.0), 40.0
NOT_PRIVATE = 0.2
"""Scale at ridge 1 without regard to privacy: the noise of a response, about."""


@dataclass(frozen=True, eq=False)
class Regret:
    """Regret of each round of each run, (runs, rounds), and what a run costs."""

    name: str
    epsilon: float
    regret: Floats

    @property
    def average(self) -> float:
        """Over all rounds and runs."""
        return float(self.regret.mean())

    @property
    def last(self) -> float:
        """Over the last fifth of the rounds."""
        return float(self.regret[:, -self.regret.shape[1] // 5 :].mean())


def objective(seed: int) -> Floats:
    """Values at the candidates, of largest absolute value 1."""
    rng = np.random.default_rng(seed)
    values = KERNEL(CANDIDATES, rng.uniform(size=(6, 1))) @ rng.normal(size=6)
    return values / np.abs(values).max()


def mechanism(epsilon: float, ridge: float = RIDGE) -> ThompsonMechanism:
    """The run with the smallest constant scale at this epsilon; infinite: without regard to privacy."""
    if np.isinf(epsilon):
        return ThompsonMechanism(KERNEL, CANDIDATES, (-1.3, 1.3), ROUNDS, NOT_PRIVATE, DELTA, ridge=1.0)
    return ThompsonMechanism.calibrated(
        epsilon=epsilon,
        delta=DELTA,
        kernel=KERNEL,
        actions=CANDIDATES,
        response_range=(-1.3, 1.3),
        rounds=ROUNDS,
        ridge=ridge,
    )


def played(run: ThompsonMechanism, values: Floats, seed: int) -> Floats:
    """Regret of each round of one run."""
    rng = np.random.default_rng([seed, 1])
    sampler = ThompsonSampler(run, randomness=SeededRandomness(seed))
    places = []
    while not sampler.done:
        place = int(np.searchsorted(CANDIDATES[:, 0], sampler.ask()[0, 0]))
        sampler.tell([values[place] + rng.uniform(-NOISE, NOISE)])
        places.append(place)
    return values.max() - values[places]


def regrets(runs: int = 20, ridge: float = RIDGE, epsilons: tuple[float, ...] = EPSILONS) -> list[Regret]:
    """At each epsilon (infinite: not private), and of uniform play, on the same objectives."""
    worlds = [objective(seed) for seed in range(runs)]
    found = []
    for epsilon in epsilons:
        run = mechanism(epsilon, ridge)
        name = "not private" if np.isinf(epsilon) else f"epsilon = {epsilon:g}"
        with threadpool_limits(1):
            regret = np.array([played(run, values, seed) for seed, values in enumerate(worlds)])
        found.append(Regret(name, run.loss.epsilon(DELTA), regret))
    rng = np.random.default_rng(0)
    uniform = np.array([values.max() - rng.choice(values, ROUNDS) for values in worlds])
    return [*found, Regret("uniform", 0.0, uniform)]


def draw(found: list[Regret], path: Path) -> None:
    """Mean regret so far against the round."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colours = ("k", "#27607f", "#5f8fa8", "#a3c0cf", "#b5442e")
    for each, colour in zip(found, colours, strict=True):
        rounds = np.arange(1, ROUNDS + 1)
        so_far = each.regret.cumsum(axis=1).mean(axis=0) / rounds
        axes.plot(rounds, so_far, color=colour)
        axes.text(ROUNDS + 8, so_far[-1], each.name, color=colour, va="center")
    axes.set_xlabel("round")
    axes.set_ylabel("mean regret so far")
    axes.set_ylim(bottom=0.0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = regrets()
    table = Table("", "epsilon of the run", "mean regret", "of the last 100 rounds")
    for each in found:
        table.add_row(each.name, f"{each.epsilon:.4g}", f"{each.average:.3f}", f"{each.last:.3f}")
    Console().print(table)
    draw(found, Path(sys.argv[1] if len(sys.argv) > 1 else "thompson_regret.png"))


if __name__ == "__main__":
    main()
