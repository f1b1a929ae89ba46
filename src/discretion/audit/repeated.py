"""One attack several times over, each with shadows and trials of its own, and its figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from discretion.audit.membership import (
    FALSE_POSITIVE_RATES,
    ExactScorer,
    Game,
    MembershipAttack,
    OfflineScorer,
    PathGame,
    Trainer,
    attack,
)
from discretion.gp.domain import Array
from discretion.privacy.conversion import round_up

KINDS = ("online", "offline", "exact")
"""Shadows of both worlds; shadows without the candidate only; the likelihood ratio itself."""


@dataclass(frozen=True)
class RepeatedAttack:
    """Independent repetitions of one attack: means of the rates, and the largest lower bound of epsilon.

    Each of the `attacks` is held to a confidence of ``1 - (1 - confidence) / repetitions``, so that the largest bound
    has `confidence` (Bonferroni).
    """

    attacks: tuple[MembershipAttack, ...]
    confidence: float

    @property
    def claimed(self) -> float | None:
        """The epsilon that the release promises at `delta`, if told."""
        return self.attacks[0].claimed

    @property
    def delta(self) -> float:
        """At which the bounds of epsilon hold."""
        return self.attacks[0].delta

    @property
    def epsilon_lower(self) -> float:
        """What epsilon can't be below."""
        return max(each.epsilon_lower for each in self.attacks)

    @property
    def refuted(self) -> bool:
        """Whether the claim is below what one of the attacks proves."""
        return any(each.refuted for each in self.attacks)

    @property
    def auc(self) -> float:
        """Mean area under the curves: 1/2 is guessing."""
        return float(np.mean([each.auc for each in self.attacks]))

    @property
    def excess(self) -> Array:
        """Mean of max(TPR - FPR, 0) at `FALSE_POSITIVE_RATES`."""
        return np.mean([[rate.excess for rate in each.rates] for each in self.attacks], axis=0)

    @property
    def true_positive(self) -> Array:
        """Mean true positive rates at `FALSE_POSITIVE_RATES`."""
        return np.mean([[rate.true_positive for rate in each.rates] for each in self.attacks], axis=0)

    def lines(self) -> list[str]:
        """For a person: what the attack reached, and what that proves."""
        lines = []
        for index, (rate, hits, gain) in enumerate(
            zip(FALSE_POSITIVE_RATES, self.true_positive, self.excess, strict=True)
        ):
            line = f"At {rate:.0%} false positives {hits:.1%} of members are found: {gain:+.3f} over guessing"
            if len(self.attacks) == 1:
                low, high = self.attacks[0].rates[index].true_positive_interval
                line += f" ({self.confidence:.0%} interval of the share found: {low:.3f} to {high:.3f})"
            lines.append(line + ".")
        lines.append(f"AUC {self.auc:.3f} (guessing: 0.500).")
        lower = f"{math.floor(self.epsilon_lower * 1e3) / 1e3:.3f}"
        bound = f"epsilon >= {lower} at delta = {self.delta:g}, with confidence {self.confidence:.0%}"
        if self.claimed is not None:
            bound += f"; claimed: epsilon <= {round_up(self.claimed, 3)}"
        lines.append(bound[0].upper() + bound[1:] + ".")
        if self.refuted:
            lines.append("The claim is REFUTED.")
        elif self.epsilon_lower == 0.0:
            lines.append("Nothing is shown: this attack may be too weak or its trials too few.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "repetitions": len(self.attacks),
            "rates": [
                {"false_positive": rate, "true_positive": float(hits), "excess": float(gain)}
                for rate, hits, gain in zip(FALSE_POSITIVE_RATES, self.true_positive, self.excess, strict=True)
            ],
            "auc": self.auc,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "confidence": self.confidence,
            "claimed": self.claimed,
            "refuted": self.refuted,
            "each": [each.to_dict() for each in self.attacks],
        }


def repeated(
    game: Game,
    trainer: Trainer | str = "online",
    *,
    repetitions: int = 1,
    confidence: float = 0.95,
    seed: int = 0,
    n_jobs: int | None = None,
    step: Callable[[str], None] = lambda name: None,
    **options: Any,
) -> RepeatedAttack:
    """`attack` so many times (`repetitions`), with seeds from `seed` on, through joblib (`n_jobs`).

    `confidence` is that of all bounds together. `trainer` is one of `KINDS`, of which all but "online" need a
    `PathGame`, or a function as `attack` takes it; `options` are those of `attack`. `step` is told what begins.

    ValueError for an unknown kind, or one that the game does not have.
    """
    if repetitions < 1:
        raise ValueError(f"repetitions must be 1 or more; got {repetitions}.")
    if isinstance(trainer, str) and trainer not in KINDS:
        raise ValueError(f"The attack is one of {', '.join(KINDS)}; got {trainer!r}.")
    if trainer in ("offline", "exact") and not isinstance(game, PathGame):
        raise ValueError(f"The {trainer} attack knows posterior paths at one place only; use online.")
    each = 1.0 - (1.0 - confidence) / repetitions

    def one(index: int) -> MembershipAttack:
        made: Trainer | None = None if isinstance(trainer, str) else trainer
        if trainer == "offline":
            made = OfflineScorer.fit
        elif trainer == "exact":
            assert isinstance(game, PathGame)
            scorer = ExactScorer.of(game, np.random.default_rng([seed, index, 1]))
            made = lambda *_: scorer  # noqa: E731
        if alone:
            options["step"] = lambda name: step(name if repetitions == 1 else f"{index + 1} of {repetitions}: {name}")
        return attack(game, made, confidence=each, seed=seed + index, **options)

    alone = n_jobs in (None, 1)
    if not alone:
        step(f"{repetitions:,} attacks, several at once")
    found: Any = Parallel(n_jobs=n_jobs)(delayed(one)(index) for index in range(repetitions))
    return RepeatedAttack(tuple(found), confidence)


def draw_attack(found: RepeatedAttack, path: str | Path, title: str = "") -> None:
    """Write a figure of what was `found`: the curves with what the claim allows, and both bounds of epsilon.

    The ending of `path` sets the format; `title` stands above.
    """
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
    false = np.geomspace(1e-4, 1.0, 400)
    for each in found.attacks:
        left.plot(*each.curve, color="#27607f", linewidth=1.2, alpha=1.0 if len(found.attacks) == 1 else 0.4)
    left.plot(false, false, "k:", linewidth=1.0, label="guessing")
    if found.claimed is not None:
        left.plot(
            false, allowed(false, found.claimed, found.delta), color="#b5482a", label="most that the claim allows"
        )
    left.set(xscale="log", xlim=(1e-3, 1.0), ylim=(0.0, 1.02))
    left.set(xlabel="false positive rate", ylabel="true positive rate")
    left.legend(frameon=False, fontsize="small", loc="upper left")

    bounds = [("shown by attack\n(at least)", found.epsilon_lower, "#27607f")]
    if found.claimed is not None and math.isfinite(found.claimed):
        bounds.append(("claimed\n(at most)", found.claimed, "#b5482a"))
    for index, (_, value, colour) in enumerate(bounds):
        right.bar(index, value, 0.6, color=colour)
        right.annotate(f"{value:.3g}", (index, value), ha="center", va="bottom")
    right.set_xticks(range(len(bounds)), [words for words, *_ in bounds])
    right.set(ylabel=f"epsilon at delta = {found.delta:g}", xlim=(-0.6, 1.6))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title + (" REFUTED" if found.refuted else ""), fontsize="medium")
    figure.savefig(path, dpi=150)


def allowed(false: Array, epsilon: float, delta: float) -> Array:
    """The largest true positive rate of any test of an (epsilon, delta)-DP release.

    min(1, e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR)). Source: Kairouz, Oh and Viswanath 2015.
    """
    with np.errstate(over="ignore"):
        steep = np.exp(np.minimum(epsilon, 700.0)) * false + delta
    return np.clip(np.minimum(steep, 1.0 - np.exp(-epsilon) * np.maximum(1.0 - delta - false, 0.0)), 0.0, 1.0)
