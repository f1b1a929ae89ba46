"""What a plan of a map says: the release to make, its forecast, and whether it is any use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.decoder import Decoder, best_linear_decoder
from discretion.posterior.kernel_sum import KernelSumMechanism
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.layout import SumLayout
from discretion.posterior.mechanism import PosteriorMechanism
from discretion.posterior.planner.lattices import Graph, Hexagons
from discretion.posterior.planner.setting import Setting
from discretion.posterior.planner.simulation import FEATURES, Candidate, Score, Simulation, kernel_dict
from discretion.posterior.planner.usefulness import RULE_OF_SETS, trivial_cause, verdict

__all__ = ["MapPlan", "Recommendation", "planned_mechanism"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Recommendation:
    """The release to make.

    Attributes
    ----------
    mechanism : {"kernel-sum", "posterior", "lattice"}
    kernel : Kernel, Hexagons or Graph
        In the coordinates below; hexagons and graphs in data units.
    coordinates : {"unit", "data"}
    ridge : float or None
        Of a posterior; None for a kernel sum.
    scale : float
        The mechanism's calibrated scale for n records.
    epsilon, delta : float
    centre : float
        Of the sums, or of the path.
    paths : int or None
        Of a posterior, released together; None for a kernel sum.
    decoder : bool
        Whether to decode the release with the plan's public prior (`MapPlan.decoder`).
    """

    mechanism: Literal["kernel-sum", "posterior", "lattice"]
    kernel: Any
    coordinates: str
    ridge: float | None
    scale: float
    epsilon: float
    delta: float
    centre: float
    paths: int | None
    decoder: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return dict(vars(self)) | {"kernel": kernel_dict(self.kernel)}


@dataclass(frozen=True, eq=False)
class MapPlan:
    """What `plan_map` found. Made from public numbers only.

    Attributes
    ----------
    recommended : Recommendation
        The best release at the target epsilon, useful or not.
    forecast : Candidate
        Its scores on simulated worlds.
    useful : bool
        By the printed rule.
    not_useful_below : float or None
        The smallest epsilon at which some release is useful, found by bisection to 10 per cent; infinity if none is up
        to 1,000, None if one still is at 0.001.
    frontier : tuple of Candidate
        The best of each row at each epsilon.
    candidates : tuple of Candidate
        All that were tried at the target epsilon, best first.
    trivial : dict
        IoU of all places and of none, RMSE of the best constant.
    water_filling : dict
        First guess of the kernel, and the least error of any stationary kernel, at the target epsilon.
    prior : dict
        The prior that was simulated, in public numbers and words.
    notes : tuple of str
        What the forecast rests on, in words.
    simulation : Simulation
        The worlds that scored it.
    """

    recommended: Recommendation
    forecast: Candidate
    useful: bool
    not_useful_below: float | None
    frontier: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    trivial: dict[str, Score]
    water_filling: dict[str, Any]
    prior: dict[str, Any]
    notes: tuple[str, ...]
    simulation: Simulation

    @property
    def setting(self) -> Setting:
        """The public problem."""
        return self.simulation.setting

    @property
    def scored(self) -> tuple[Floats, Mask]:
        """Places of the simulation in data units, (m, d), and which of them are scored."""
        return self.setting.domain.grid(self.setting.counts), self.simulation.model.mask

    def decoder(self, mechanism: KernelSumMechanism) -> Decoder:
        """The closed-form decoder of a kernel-sum mechanism under the plan's public prior, cut included.

        Its target is the field on the plan's own grid (``setting.counts`` along the sides of the domain).

        Raises
        ------
        ValueError
            For a mechanism that releases on another domain.
        """
        setting, law = self.setting, self.simulation.model.gaussian
        if setting.coordinates == "unit":
            sides = np.subtract(setting.domain.upper, setting.domain.lower)
            law = replace(
                law,
                kernel=replace(law.kernel, length_scale=tuple(sides * np.asarray(law.kernel.length_scale))),
                domain=setting.domain,
            )
        layout = SumLayout.of(mechanism, n=setting.n)
        decoder = best_linear_decoder(layout, law, features=FEATURES)
        kernel = mechanism.kernels[0] if isinstance(mechanism.kernels, tuple) else mechanism.kernels
        tuned = self.simulation.decoder(kernel, self.recommended.epsilon)
        return replace(decoder, threshold=tuned.threshold, cut=tuned.cut, facts=decoder.facts | tuned.facts)

    def mechanism(self, **changes: Any) -> KernelSumMechanism | PosteriorMechanism | LatticeMechanism:
        """The recommended mechanism, calibrated for the expected n on the grid of the release, or on its lattice."""
        r, s = self.recommended, self.setting
        own = {} if r.paths is None else {"paths": r.paths}
        return planned_mechanism(r.mechanism, r.kernel, r.ridge, r.epsilon, r.delta, s, **(own | changes))

    def undecided(self, found: Candidate) -> Score | None:
        """Of a kernel sum the share of the map that its confidence sets at 95 % leave undecided; None of paths."""
        if found.mechanism != "kernel-sum":
            return None
        return self.simulation.undecided(found.kernel, found.epsilon)

    @property
    def verdict(self) -> str:
        """Whether anything useful can be published, in one sentence."""
        return verdict(self.recommended.epsilon, self.useful, self.not_useful_below)

    @property
    def cause(self) -> str:
        """Why nothing is useful at any epsilon, where the prior alone is the reason; otherwise empty."""
        return "" if self.useful else trivial_cause(self.trivial)

    @property
    def best(self) -> dict[float, str]:
        """For each epsilon of the frontier the row with the largest overlap, and those not clearly below it."""
        found: dict[float, str] = {}
        for epsilon in sorted({each.epsilon for each in self.frontier}, reverse=True):
            rows = sorted((each for each in self.frontier if each.epsilon == epsilon), key=lambda each: -each.merit)
            tied = [each for each in rows if each.iou.mean >= rows[0].iou.mean - 2.0 * rows[0].iou.se]
            found[epsilon] = " = ".join(each.label for each in sorted(tied, key=lambda each: -each.merit))
        return found

    @property
    def words(self) -> str:
        """The recommended release in words."""
        r = self.recommended
        paths = "posterior path" if r.paths in (None, 1) else f"{r.paths} posterior paths"
        if isinstance(r.kernel, Hexagons | Graph):
            graph = f"lattice:{r.kernel.spacing:g}" if isinstance(r.kernel, Hexagons) else "districts:FILE"
            return (
                f"{paths} on {r.kernel.name} (release --prior {graph}), killing "
                f"{r.kernel.killing:g}, ridge {r.ridge:.4g}, centre {r.centre:.10g}"
            )
        length = f"{r.kernel.name} kernel, length scale {r.kernel.length_scale:.4g} ({r.coordinates} coordinates)"
        if r.mechanism == "posterior":
            return f"{paths}, {length}, ridge {r.ridge:.4g}, centre {r.centre:.10g}"
        return f"kernel sum, {length}, {'with' if r.decoder else 'without'} decoder"

    @property
    def rule(self) -> str:
        """What useful means here."""
        return RULE_OF_SETS

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; an infinite ``not_useful_below`` is the word "inf"."""
        s, X = self.setting, self.not_useful_below
        return {
            "recommended": self.recommended.to_dict(),
            "forecast": self.forecast.to_dict() | {"undecided": _plain(self.undecided(self.forecast))},
            "useful": self.useful,
            "not_useful_below": "inf" if X is not None and math.isinf(X) else X,
            "verdict": self.verdict,
            "rule": self.rule,
            "trivial": {name: vars(score) for name, score in self.trivial.items()},
            "frontier": [each.to_dict() | {"undecided": _plain(self.undecided(each))} for each in self.frontier],
            "best": {f"{epsilon:g}": label for epsilon, label in self.best.items()},
            "candidates": [each.to_dict() for each in self.candidates],
            "water_filling": self.water_filling,
            "prior": self.prior,
            "n": s.n,
            "delta": self.recommended.delta,
            "threshold": s.threshold,
            "centre": s.centre,
            "path_centre": s.of_paths.centre,
            "response_range": list(s.response_range),
            "domain": {"lower": list(s.domain.lower), "upper": list(s.domain.upper)},
            "grid": list(s.grid),
            "simulated_grid": list(s.counts),
            "worlds": self.simulation.worlds,
            "seed": self.simulation.seed,
            "notes": list(self.notes),
        }


def _plain(score: Score | None) -> dict[str, float] | None:
    return None if score is None else vars(score)


def planned_mechanism(
    name: str, kernel: Any, ridge: float | None, epsilon: float, delta: float, setting: Setting, **changes: Any
) -> KernelSumMechanism | PosteriorMechanism | LatticeMechanism:
    """The mechanism of a recommendation, calibrated."""
    of_paths: dict[str, Any] = {"response_range": setting.response_range, "centre": setting.of_paths.centre}
    if name == "lattice":
        own = {"lattice": kernel.lattice(setting)} | of_paths
        priced: dict[str, Any] = {"n": setting.n, "epsilon": epsilon, "delta": delta, "ridge": ridge}
        return LatticeMechanism.calibrated(**(priced | own | changes))
    common: dict[str, Any] = {
        "n": setting.n,
        "epsilon": epsilon,
        "delta": delta,
        "domain": setting.domain,
        "grid": setting.grid,
        "locations": setting.domain.grid(setting.grid),
        "coordinates": setting.coordinates,
    }
    if name == "kernel-sum":
        own = {
            "kernels": kernel,
            "response_ranges": setting.response_range,
            "centres": (setting.centre,),
        }
        return KernelSumMechanism.calibrated(**(common | own | changes))
    own = {"kernel": kernel, "ridge": ridge} | of_paths
    return PosteriorMechanism.calibrated(**(common | own | changes))
