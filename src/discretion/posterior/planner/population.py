"""The search over populations of simulated worlds: which kernel and ridge make the best posterior path at an epsilon.

Length scale and ridge are searched, the scale follows from the account (Maciazek 2026, Section 5, searches all three
and keeps what meets the budget). Half of the worlds choose, the other half report.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Exponential, Kernel
from discretion.gp import kernel as make_kernel
from discretion.posterior.assumptions import Bounded, Exponential1D, RecordAssumption
from discretion.posterior.cache import kept
from discretion.posterior.planner.parallel import as_they_come
from discretion.posterior.planner.paths import PathWorlds
from discretion.posterior.planner.quality import compared, measured
from discretion.posterior.planner.scales import ScaleAccount
from discretion.posterior.planner.setting import Setting
from discretion.posterior.planner.simulation import kernel_dict
from discretion.posterior.planner.usefulness import SEARCHED

__all__ = ["Population", "Tried"]

Floats = NDArray[np.float64]
Values = NDArray[np.floating]

LENGTHS = np.geomspace(0.03, 1.2, 9)
"""Length scales first tried, as shares of the shortest side."""
HALF_STEP = float(np.sqrt(LENGTHS[1] / LENGTHS[0]))
LEAST_RIDGE, MOST_RIDGE = 1.0 / 8.0, 10.0
"""The largest is a multiple of the root of n; a factor of sqrt(2) lies between two ridges."""
BEST = 2
"""Kernels around which the search is refined."""
LADDER = np.geomspace(*SEARCHED, 25)
"""Epsilons at which the best path is looked for, beside the target: four for each power of ten."""
DRAWS = 8
"""Paths drawn in each world, or more where more are released together."""

Releases = tuple[int, Values, Values]


@dataclass(frozen=True)
class Tried:
    """A path that was tried, and its mean score on the worlds that choose.

    Its scale is 0 for the posterior mean, without privacy.
    """

    kernel: Kernel
    ridge: float
    scale: float
    merit: float


@dataclass(frozen=True, eq=False)
class Question:
    """What paths are scored by: worlds, how many are released together, the centre and the threshold, if any."""

    worlds: PathWorlds
    paths: int
    centre: float
    threshold: float | None

    @property
    def repeats(self) -> int:
        """Releases simulated in each world."""
        return max(1, DRAWS // self.paths)

    def releases(self, kernel: Kernel, ridges: Sequence[float], scales: Sequence[Floats]) -> Iterator[Releases]:
        """World by world and ridge by ridge: number of the ridge, releases (E, k, L, m) at its scales, true field."""
        worlds = self.worlds
        shape = (len(ridges), self.repeats, self.paths, -1)
        drawn = worlds.posteriors(kernel, ridges, self.repeats * self.paths)
        for field, (means, noises) in zip(worlds.fields, drawn, strict=True):
            scored = noises[:, :, worlds.mask].reshape(shape)
            target = field[worlds.mask].astype(np.float32)
            for row, (mean, noise) in enumerate(zip(means[:, worlds.mask], scored, strict=True)):
                if len(scales[row]):
                    shown = (self.centre + mean).astype(np.float32)
                    yield row, shown + scales[row].astype(np.float32)[:, None, None, None] * noise, target

    def scores(self, kernel: Kernel, ridges: Sequence[float], scales: Sequence[Floats]) -> list[dict[str, Values]]:
        """For each ridge the scores of `measured` at its scales (E,), each of shape (E, W, ...)."""
        found: list[list[dict[str, Values]]] = [[] for _ in ridges]
        for row, releases, field in self.releases(kernel, ridges, scales):
            found[row].append(measured(releases, field, self.threshold))
        return [{name: np.stack([each[name] for each in row], axis=1) for name in row[0]} for row in found]

    def merits(self, kernel: Kernel, ridges: Sequence[float], scales: Floats) -> dict[str, Any]:
        """Mean scores (R, E) of all paths together at scales (R, E), kept on disk; -1 where the scale is infinite."""

        def compute() -> dict[str, Any]:
            met = np.isfinite(scales)
            totals = np.zeros(scales.shape)
            wanted = [row[finite] for row, finite in zip(scales, met, strict=True)]
            for row, releases, field in self.releases(kernel, ridges, wanted):
                totals[row, met[row]] += compared(releases, field, self.threshold)[1].mean(axis=1)
            return {"merits": np.where(met, totals / len(self.worlds), -1.0).tolist()}

        key = {"kernel": kernel_dict(kernel), "ridges": list(ridges), "scales": scales.tolist(), "on": self._digest}
        return kept("plan-posterior", key, compute)

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(repr((self.paths, self.centre, self.threshold, self.worlds.seed)).encode())
        for each in vars(self.worlds).values():
            if isinstance(each, np.ndarray):
                digest.update(np.ascontiguousarray(each).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Population:
    """What every path would score at every epsilon.

    Parameters
    ----------
    setting : Setting
    question : Question
        The first half of its worlds chooses, the second reports.
    account : ScaleAccount
    target : float
        Epsilon of the release.
    jobs : int or None
        Kernels at once, as joblib has it.
    step : callable
        Told what is done.
    """

    setting: Setting
    question: Question
    account: ScaleAccount
    target: float
    jobs: int | None
    step: Callable[[str], None]

    @cached_property
    def epsilons(self) -> Floats:
        """The ladder and the target, ascending."""
        return np.unique(np.append(LADDER, self.target))

    @cached_property
    def choosing(self) -> Question:
        """The question on the worlds that choose."""
        return replace(self.question, worlds=self.question.worlds.part(slice(len(self.question.worlds) // 2)))

    @cached_property
    def reporting(self) -> Question:
        """The question on the worlds that report."""
        return replace(self.question, worlds=self.question.worlds.part(slice(len(self.question.worlds) // 2, None)))

    # --- the search ---------------------------------------------------------------------------------------------------

    def search(self, names: tuple[str, ...]) -> dict[float, list[Tried]]:
        """For each epsilon the paths that meet it, best first; under infinity the posterior means without privacy."""
        sides, shape = np.subtract(self.setting.box.upper, self.setting.box.lower), np.array(self.setting.few[0])
        cell = float((sides / (shape - 1)).max())
        last = 2.0 * math.log2(MOST_RIDGE * math.sqrt(self.setting.n))
        ridges = [_rounded(2.0 ** (0.5 * k)) for k in range(round(2.0 * math.log2(LEAST_RIDGE)), math.ceil(last) + 1)]

        steps: dict[Kernel, tuple[str, int]] = {}
        found: dict[float, list[Tried]] = {epsilon: [] for epsilon in (*self.epsilons.tolist(), math.inf)}

        def explore(what: str, wanted: Iterable[tuple[str, int]]) -> None:
            made = {}
            for name, k in wanted:
                length = _rounded(self.setting.side * LENGTHS[0] * HALF_STEP**k)
                if length >= cell and (name, k) not in steps.values():
                    made[make_kernel(name, length)] = name, k
            steps.update(made)
            self._try(found, what, list(made), ridges)

        explore("First kernels", ((name, 2 * k) for name in names for k in range(len(LENGTHS))))
        leading = [*_kernels(found[self.target]), *_kernels(found[math.inf])[:1]]
        explore("Kernels around the best", ((steps[k][0], steps[k][1] + j) for k in leading for j in (-1, 1)))
        if best := found[self.target]:
            near = [_rounded(best[0].ridge * factor) for factor in (2.0**-0.25, 2.0**0.25)]
            self._try(found, "Ridges around the best", _kernels(best), near)
        return found

    def _try(self, found: dict[float, list[Tried]], what: str, kernels: list[Kernel], ridges: list[float]) -> None:
        settings = []
        for kernel in kernels:
            least = self._least(kernel, np.array(ridges), self.epsilons)
            settings.append({"kernel": kernel, "ridges": ridges, "scales": np.pad(least, ((0, 0), (0, 1)))})
        self.step(f"{what}: 0 of {len(kernels)}")
        for done, (number, result) in enumerate(as_they_come(self.choosing.merits, settings, self.jobs), 1):
            self.step(f"{what}: {done} of {len(kernels)}")
            scales = settings[number]["scales"]
            for ridge, row, merits in zip(ridges, scales, result["merits"], strict=True):
                for epsilon, scale, merit in zip(found, row.tolist(), merits, strict=True):
                    if math.isfinite(scale):
                        found[epsilon].append(Tried(kernels[number], ridge, scale, merit))
        for tried in found.values():
            # ties in an order that does not depend on which task was done first
            tried.sort(key=lambda each: (-each.merit, each.kernel.name, each.kernel.length_scale, each.ridge))

    def _least(self, kernel: Kernel, ridges: Floats, epsilons: Floats) -> Floats:
        assumption = self.assumption(kernel)
        known = self._certified.setdefault(assumption.name, {})
        wanted = [each for each in ridges.tolist() if each not in known and self.account.certifies(each)]
        if wanted:
            self.step(f"Certified prices: 0 of {len(wanted)}")
            settings = [{"assumption": assumption, "ridge": ridge} for ridge in wanted]
            for done, (number, costs) in enumerate(as_they_come(self.account.certify, settings, self.jobs), 1):
                known[wanted[number]] = costs
                self.step(f"Certified prices: {done} of {len(wanted)}")
        least = kernel.least_value(self.setting.box)
        return self.account.least(assumption, least, ridges, epsilons, known)

    @cached_property
    def _certified(self) -> dict[str, dict[float, Floats]]:
        return {}

    def assumption(self, kernel: Kernel) -> RecordAssumption:
        """What a release assumes of responses unless told otherwise."""
        line = isinstance(kernel, Exponential) and self.setting.box.dimension == 1
        return Exponential1D(self.setting.bound) if line else Bounded(self.setting.bound)

    # --- the report ---------------------------------------------------------------------------------------------------

    def report(self, tried: Iterable[Tried]) -> dict[Tried, dict[str, Values]]:
        """Scores (W, ...) of some paths on the worlds that report."""
        by_kernel: dict[Kernel, dict[float, list[Tried]]] = {}
        for each in dict.fromkeys(tried):
            by_kernel.setdefault(each.kernel, {}).setdefault(each.ridge, []).append(each)
        settings = [
            {
                "kernel": kernel,
                "ridges": list(rows),
                "scales": [np.array([each.scale for each in row]) for row in rows.values()],
            }
            for kernel, rows in by_kernel.items()
        ]
        found: dict[Tried, dict[str, Values]] = {}
        for number, result in as_they_come(self.reporting.scores, settings, self.jobs):
            rows = list(by_kernel.values())[number].values()
            for row, scores in zip(rows, result, strict=True):
                found |= {
                    each: {name: values[place] for name, values in scores.items()} for place, each in enumerate(row)
                }
        return found

    def at(self, path: Tried, epsilons: Floats) -> list[Tried]:
        """The same path at other epsilons, as far as some scale meets them."""
        scales = self._least(path.kernel, np.array([path.ridge]), epsilons)[0].tolist()
        return [replace(path, scale=scale) for scale in scales if math.isfinite(scale)]


def _rounded(value: float) -> float:
    """To three digits, so that what is printed is what was meant."""
    return float(f"{value:.3g}")


def _kernels(tried: list[Tried]) -> list[Kernel]:
    """The kernels of the best paths."""
    return list(dict.fromkeys(each.kernel for each in tried))[:BEST]
