"""What a plan of a posterior path says: kernel, ridge and scale for an epsilon, and how good the path would be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from discretion.gp import Kernel
from discretion.posterior.mechanism import PosteriorMechanism
from discretion.posterior.planner.quality import Quality, Spread
from discretion.posterior.planner.setting import Setting
from discretion.posterior.planner.simulation import kernel_dict
from discretion.posterior.planner.usefulness import RULE_OF_FIELDS, RULE_OF_SETS, trivial_cause, verdict
from discretion.privacy import round_up_significant

__all__ = ["PathChoice", "PlannedPath", "PosteriorPlan"]


@dataclass(frozen=True)
class PathChoice:
    """Parameters of a posterior path.

    Attributes
    ----------
    kernel : Kernel
        In the coordinates of the plan.
    ridge : float
    scale : float or None
        None without privacy.
    """

    kernel: Kernel
    ridge: float
    scale: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return vars(self) | {"kernel": kernel_dict(self.kernel)}


@dataclass(frozen=True)
class PlannedPath:
    """A posterior path and what it would score.

    Attributes
    ----------
    choice : PathChoice
    merit : float
        Mean score, of all paths together, on the worlds that chose.
    quality : Quality
        On the worlds that report.
    """

    choice: PathChoice
    merit: float
    quality: Quality

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return self.choice.to_dict() | {"merit": self.merit} | self.quality.to_dict()

    @property
    def words(self) -> str:
        """Kernel, length scale and ridge."""
        return f"{self.choice.kernel.name} {self.choice.kernel.length_scale:.4g}, ridge {self.choice.ridge:.4g}"


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorPlan:
    """What `plan_posterior` found. Made from public numbers only; its repr is a table.

    Attributes
    ----------
    setting : Setting
        The public problem.
    threshold : float or None
    epsilon, delta : float
        The target of the whole release.
    paths : int
        Released together.
    rule : {"published", "closed-form", "renyi", "best"}
    recommended : PlannedPath
        Its scale is that of `mechanism`, priced by the rule.
    runners_up : tuple of PlannedPath
        The best ridge of the next best kernels; their scales are those of the search.
    without_privacy : PlannedPath
        The best posterior mean, with a kernel and a ridge of its own.
    trivial : dict
        IoU of all places and of none, or correlation 0; RMSE of the best constant.
    useful : bool
        By the printed rule.
    not_useful_below : float or None
        The smallest epsilon, to about 12 per cent, from which on some path is useful; infinity if none is up to 1,000,
        None if one still is at 0.001.
    frontier : tuple of (float, PlannedPath)
        The best path at each epsilon of the search.
    prior : dict
    notes : tuple of str
        What the forecast rests on, in words.
    worlds, seed : int
    seconds : float
        Spent by the plan.
    """

    setting: Setting
    threshold: float | None
    epsilon: float
    delta: float
    paths: int
    rule: str
    recommended: PlannedPath
    runners_up: tuple[PlannedPath, ...]
    without_privacy: PlannedPath
    trivial: dict[str, Spread]
    useful: bool
    not_useful_below: float | None
    frontier: tuple[tuple[float, PlannedPath], ...]
    prior: dict[str, Any]
    notes: tuple[str, ...]
    worlds: int
    seed: int
    seconds: float

    @property
    def verdict(self) -> str:
        """Whether anything useful can be published, in one sentence."""
        return verdict(self.epsilon, self.useful, self.not_useful_below)

    @property
    def cause(self) -> str:
        """Why nothing is useful at any epsilon, where the prior alone is the reason; otherwise empty."""
        return "" if self.useful else trivial_cause(self.trivial)

    @property
    def rule_of_use(self) -> str:
        """What useful means here."""
        return RULE_OF_FIELDS if self.threshold is None else RULE_OF_SETS

    @property
    def release_rule(self) -> str:
        """The rule that prices the release: a published account is no rule of a release, whose own is smaller."""
        return "closed-form" if self.rule == "published" else self.rule

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of `PosteriorSampler` for the recommended release."""
        setting, choice = self.setting, self.recommended.choice
        return {
            "domain": setting.domain,
            "response_range": setting.response_range,
            "centre": setting.centre,
            "coordinates": setting.coordinates,
            "grid": setting.grid,
            "kernel": choice.kernel,
            "ridge": choice.ridge,
            "scale": choice.scale,
            "delta": self.delta,
            "paths": self.paths,
            "rule": self.release_rule,
        }

    def mechanism(self, **changes: Any) -> PosteriorMechanism:
        """The recommended release on its grid; ``changes`` are other fields of `PosteriorMechanism`."""
        own = self.parameters()
        own["locations"] = self.setting.domain.grid(self.setting.grid)
        own.update(changes)
        return PosteriorMechanism(**own)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; an infinite ``not_useful_below`` is the word "inf"."""
        s, X = self.setting, self.not_useful_below
        return {
            "recommended": self.recommended.to_dict() | {"coordinates": s.coordinates},
            "epsilon": self.epsilon,
            "delta": self.delta,
            "paths": self.paths,
            "rule": self.rule,
            "useful": self.useful,
            "not_useful_below": "inf" if X is not None and math.isinf(X) else X,
            "verdict": self.verdict,
            "rule_of_use": self.rule_of_use,
            "runners_up": [each.to_dict() for each in self.runners_up],
            "without_privacy": self.without_privacy.to_dict(),
            "trivial": {name: vars(score) for name, score in self.trivial.items()},
            "frontier": [{"epsilon": epsilon} | each.to_dict() for epsilon, each in self.frontier],
            "prior": self.prior,
            "n": s.n,
            "threshold": self.threshold,
            "centre": s.centre,
            "response_range": list(s.response_range),
            "domain": {"lower": list(s.domain.lower), "upper": list(s.domain.upper)},
            "grid": list(s.grid),
            "simulated_grid": list(s.few[0]),
            "worlds": self.worlds,
            "seed": self.seed,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, str]]:
        """The recommended path, the runners-up and the best without privacy, in words, for a table."""
        every = [("recommended", self.recommended), *(("runner-up", each) for each in self.runners_up)]
        return [self._row(*each) for each in (*every, ("without privacy", self.without_privacy))]

    def _row(self, name: str, path: PlannedPath) -> dict[str, str]:
        choice, quality = path.choice, path.quality
        together = "majority" if self.threshold is not None else "mean"
        return {
            "path": name,
            "kernel": f"{choice.kernel.name} {choice.kernel.length_scale:.3g}",
            "ridge": f"{choice.ridge:.3g}",
            "scale": "" if choice.scale is None else f"{choice.scale:.4g}",
            f"{quality.measure} of one": str(quality.one),
            **({f"of the {together} of {self.paths}": str(quality.together)} if self.paths > 1 else {}),
            "RMSE of one": str(quality.rmse),
        }

    def __repr__(self) -> str:
        many = f"{self.paths} path{'s' if self.paths > 1 else ''}"
        target = f"epsilon {self.epsilon:g}, delta {round_up_significant(self.delta)}, n = {self.setting.n:,}"
        return "\n".join([f"PosteriorPlan: {many}, {target}, rule {self.rule}", *self.table()])

    def table(self) -> list[str]:
        """`rows` in lines, under their heads."""
        rows = self.rows()
        lines = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
