"""Posterior paths on a public graph, hexagons or districts, simulated on the worlds of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Kernel, Lattice
from discretion.gp.sparse import Statistics
from discretion.posterior.calibration import least_on_grid
from discretion.posterior.lattice_account import LatticeAccount
from discretion.posterior.planner.setting import Setting
from discretion.posterior.planner.simulation import Candidate, Simulation, candidate
from discretion.privacy.calibration import Unreachable, smallest

__all__ = ["Graph", "Hexagons", "LatticePaths"]

Floats = NDArray[np.float64]

_KILLINGS = (0.1, 0.3, 1.0)
_RIDGES = (0.4, 0.8, 1.6)  # times the root of the records within one length of the field


@dataclass(frozen=True)
class Hexagons:
    """The prior of a candidate: hexagons over the domain, in data units. Stands where others have a kernel."""

    spacing: float
    killing: float

    name = "hexagons"

    @property
    def length_scale(self) -> float:
        """Over which the field forgets, in data units."""
        return self.spacing * math.sqrt(1.5 / self.killing)

    def lattice(self, setting: Setting) -> Lattice:
        """The public graph and its prior."""
        return Lattice.hexagon(self.spacing, setting.domain, self.killing)


@dataclass(frozen=True)
class Graph:
    """The same, of districts or another public graph; ``spacing`` is that of squares of their average area."""

    spacing: float
    killing: float
    made: Callable[[float], Lattice]

    name = "districts"
    length_scale = Hexagons.length_scale

    def lattice(self, setting: Setting) -> Lattice:
        """The public graph and its prior."""
        return self.made(self.killing)


@dataclass(frozen=True, eq=False)
class LatticePaths:
    """Candidates on hexagons, about as many as the simulation has places, or on a graph, from its killing."""

    simulation: Simulation
    graph: Callable[[float], Lattice] | None = None

    @cached_property
    def spacing(self) -> float:
        """Of the hexagons, two digits."""
        setting = self.simulation.setting
        area = float(np.prod(np.subtract(setting.domain.upper, setting.domain.lower)))
        wide = math.sqrt(area / (math.sqrt(0.75) * math.prod(setting.counts)))
        return float(f"{wide:.2g}")

    def candidates(self, epsilons: tuple[float, ...], control: Kernel) -> Iterator[Candidate]:
        """For each epsilon every setting at the scale of the closed form, and the best of them at the certified one."""
        simulation = self.simulation
        worlds = simulation.path_numbers
        prepared = {}
        for killing in _KILLINGS:
            prior = self._prior(killing)
            lattice = prior.lattice(simulation.setting)
            for share in _RIDGES:
                ridge = float(f"{share * math.sqrt(simulation.setting.n * 1.5 / killing / lattice.size):.2g}")
                prepared[prior, ridge] = lattice, *self.posteriors(lattice, ridge, worlds)
        for epsilon in epsilons:
            tried: list[tuple[float, Hexagons | Graph, float]] = []
            for (prior, ridge), (lattice, means, noises) in prepared.items():
                scale = self._closed_form(lattice, ridge, epsilon)
                if scale is not None:
                    found = self._scored(prior, ridge, epsilon, scale, means, noises, control)
                    tried.append((found.merit, prior, ridge))
            if not tried:
                continue
            _, prior, ridge = max(tried, key=lambda each: each[0])
            lattice, means, noises = prepared[prior, ridge]
            account = self._account(lattice, ridge)
            scale = account.calibrate(epsilon, simulation.delta, simulation.paths)
            yield self._scored(prior, ridge, epsilon, scale, means, noises, control)

    def _prior(self, killing: float) -> Hexagons | Graph:
        if self.graph is None:
            return Hexagons(self.spacing, killing)
        setting = self.simulation.setting
        sides = np.subtract(setting.domain.upper, setting.domain.lower)
        area = float(np.prod(sides)) * float(setting.inside.mean())
        return Graph(math.sqrt(area / self.graph(killing).size), killing, self.graph)

    def _account(self, lattice: Lattice, ridge: float) -> LatticeAccount:
        return LatticeAccount(lattice, self.simulation.setting.n, ridge, self.simulation.setting.of_paths.bound)

    def _closed_form(self, lattice: Lattice, ridge: float, epsilon: float) -> float | None:
        account, delta = self._account(lattice, ridge), self.simulation.delta
        bound = self.simulation.setting.of_paths.bound

        def cost(scale: float) -> float:
            return (self.simulation.paths * account.closed_form(scale)).epsilon(delta)

        try:
            first = smallest(lambda scale: cost(scale) <= epsilon, 1e-6 * bound, 1e3 * bound, relative_tolerance=1e-2)
            return least_on_grid(cost, epsilon, first)
        except Unreachable:
            return None

    def _scored(
        self,
        prior: Hexagons | Graph,
        ridge: float,
        epsilon: float,
        scale: float,
        means: Floats,
        noises: Floats,
        control: Kernel,
    ) -> Candidate:
        simulation = self.simulation
        places = np.arange(means.shape[1])
        return candidate(
            simulation.scored_paths(means, scale, noises, places),
            simulation.controls(control, epsilon, places),
            mechanism="lattice",
            account="certified on a lattice",
            kernel=prior,
            epsilon=epsilon,
            scale=scale,
            ridge=ridge,
        )

    def posteriors(self, lattice: Lattice, ridge: float, worlds: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Posterior means (W, m) less the centre, and draws of the noise at scale 1, (W, paths, m), at every place."""
        model, setting = self.simulation.model, self.simulation.setting
        node, place = lattice.node(_in_data(setting, model.nodes)), lattice.node(setting.domain.grid(setting.counts))
        rng = np.random.default_rng([self.simulation.seed, 6])
        paths = self.simulation.paths
        means, noises = np.empty((len(worlds), len(place))), np.empty((len(worlds), paths, len(place)))
        for i, world in enumerate(worlds):
            data = self.simulation.data
            counts, sums = (
                np.bincount(node, each[world], lattice.size).astype(np.float64) for each in (data.counts, data.sums)
            )
            sums += (setting.centre - setting.of_paths.centre) * counts
            mean, factor = Statistics(counts, sums).posterior(lattice, ridge)
            means[i] = mean[place]
            for row in noises[i]:
                row[:] = factor.colour(rng.standard_normal(lattice.size))[place]
        return means, noises


def _in_data(setting: Setting, X: Floats) -> Floats:
    """Points in the kernel's coordinates, in data units."""
    low, high = np.asarray(setting.box.lower), np.asarray(setting.box.upper)
    start, end = np.asarray(setting.domain.lower), np.asarray(setting.domain.upper)
    return start + (X - low) / (high - low) * (end - start)
