"""Which law of K: laws compared at equal chance of finding a good candidate, and parameters solved for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discretion.privacy import GaussianDP, Guarantee, Neighbours, PrivacyLoss, PureDP, RenyiCurve, Unreachable, largest
from discretion.selection.bounds import Rule, selection_loss
from discretion.selection.repetitions import NegativeBinomial, Poisson, Repetitions

__all__ = [
    "Choice",
    "affordable_base",
    "affordable_mean",
    "compare_laws",
    "draw_comparison",
    "law_for_success",
    "warnings",
]

SHAPES = (-0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_LARGEST_MEAN = 1e6
_HEAVY = 10.0


def law_for_success(family: Callable[[float], Repetitions], good: float, success: float) -> Repetitions:
    """The law of the least mean in a family whose K runs include a good one with probability `success`.

    Args:
        family: from a mean to a law; at least mean 1 is asked for.
        good: probability that one run is good.
        success: target, in (0, 1).

    Raises:
        Unreachable: no mean up to a million reaches it. A heavy-tailed law may never: for shape eta < 0 the limit is
            `good^|eta|`.
        ValueError: a probability out of range.
    """
    if not (0 < good < 1 and 0 < success < 1):
        raise ValueError(f"The chance of one run and the target lie in (0, 1), not {good!r} and {success!r}.")

    def meets(log_mean: float) -> bool:
        return float(family(math.exp(log_mean)).success(good)) >= success

    if meets(0.0):
        return family(1.0)
    low, high = 0.0, 1.0
    try:
        while not meets(high):
            low, high = high, 2 * high
            if high > math.log(_LARGEST_MEAN):
                raise Unreachable(f"No mean up to {_LARGEST_MEAN:,.0f} finds a good run with probability {success:g}.")
    except Unreachable:
        raise
    except ValueError as error:
        raise Unreachable(str(error)) from None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return family(math.exp(high))


@dataclass(frozen=True)
class Choice:
    """One law in a comparison.

    Attributes:
        law: the law.
        success: probability of at least one good run.
        q99: 99% quantile of K: what one must be ready to run.
        guarantee: of the whole selection.
    """

    law: Repetitions
    success: float
    q99: int
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "law": self.law.parameters(),
            "name": self.law.name,
            "mean": self.law.mean,
            "q99": self.q99,
            "success": self.success,
            "epsilon": self.guarantee.epsilon,
            "rule": self.guarantee.rule,
        }


def compare_laws(
    base: PrivacyLoss,
    delta: float,
    *,
    good: float,
    success: float,
    shapes: Sequence[float] = SHAPES,
    most_q99: int | None = None,
    rule: Rule = "best",
) -> list[Choice]:
    """Poisson and truncated negative binomial laws that find a good candidate equally often, cheapest first.

    Args:
        base: loss of one run.
        delta: of the guarantee.
        good: probability that one run is good, such as 1/10 for the best tenth of the candidates.
        success: probability that the selection includes a good run.
        shapes: of the negative binomial laws; those that cannot reach `success` are left out.
        most_q99: laws whose 99% quantile of K exceeds this are left out.
        rule: of the account.

    Raises:
        Unreachable: no law is left.
    """
    families: list[Callable[[float], Repetitions]] = [Poisson]
    families += [lambda mean, shape=shape: NegativeBinomial.of_mean(shape, mean) for shape in shapes]
    found = []
    for family in families:
        try:
            law = law_for_success(family, good, success)
            q99 = law.quantile(0.99)
        except ValueError:
            continue
        if most_q99 is None or q99 <= most_q99:
            guarantee = selection_loss(base, law, rule=rule).guarantee(delta)
            found.append(Choice(law, float(law.success(good)), q99, guarantee))
    if not found:
        raise Unreachable("No law reaches that chance of success within the limits: lower it, or allow more runs.")
    return sorted(found, key=lambda each: each.guarantee.epsilon)


def affordable_mean(
    base: PrivacyLoss, family: Callable[[float], Repetitions], epsilon: float, delta: float, *, rule: Rule = "best"
) -> Repetitions:
    """The law of the largest mean (from 1, or from 0.01 where it may be less, to a million) within a total epsilon.

    Args:
        base: what one run costs.
        family: from a mean number of runs to its law.
        epsilon: of the whole selection, at `delta`.
        delta: strictly between 0 and 1.
        rule: as in `selection_loss`.

    Raises:
        Unreachable: not even the smallest mean is within it.
    """

    def meets(mean: float) -> bool:
        try:
            law = family(mean)
        except ValueError:
            return False
        return selection_loss(base, law, rule=rule).epsilon(delta) <= epsilon

    least = 1.0 if isinstance(family(1.0), NegativeBinomial) else 0.01
    high = 2.0
    while high < _LARGEST_MEAN and meets(high):
        high = min(10 * high, _LARGEST_MEAN)
    return family(largest(meets, least, high, relative_tolerance=1e-6))


def affordable_base(
    make: Callable[[float], PrivacyLoss], law: Repetitions, epsilon: float, delta: float, *, rule: Rule = "best"
) -> float:
    """The largest parameter of a base run (mu, epsilon or rho) with which the selection stays within a total epsilon.

    Args:
        make: from the parameter to what one run costs.
        law: of the number of runs.
        epsilon: of the whole selection, at `delta`.
        delta: strictly between 0 and 1.
        rule: as in `selection_loss`.

    Raises:
        Unreachable: not even 1e-10 does.
    """

    def meets(parameter: float) -> bool:
        return selection_loss(make(parameter), law, rule=rule).epsilon(delta) <= epsilon

    return largest(meets, 1e-10, max(2 * epsilon, 1.0), relative_tolerance=1e-7)


def warnings(base: PrivacyLoss, law: Repetitions, guarantee: Guarantee) -> list[str]:
    """What a person should know about a plan before paying for it.

    Args:
        base: what one run costs.
        law: of the number of runs.
        guarantee: of the whole selection.
    """
    found, q99 = [], law.quantile(0.99)
    if q99 > _HEAVY * law.mean:
        found.append(
            f"Heavy tail: one time in a hundred there are {q99:,} runs or more, {q99 / law.mean:.0f} times the mean."
        )
    runs = max(round(law.mean), 1)
    together = (runs * base).epsilon(guarantee.delta) if runs <= 10_000 else math.inf
    if runs > 1 and guarantee.epsilon > together:
        found.append(
            f"Releasing all of {runs} runs, a number fixed beforehand, would cost epsilon {together:.4g}: less than "
            "this selection."
        )
    if law.none > 0.01:
        found.append(f"With probability {law.none:.2g} there is no run at all, and the default is released.")
    return found


def base_loss(kind: str, neighbours: Neighbours) -> Callable[[float], PrivacyLoss]:
    """From the one parameter of a kind of base (gaussian: mu, pure: epsilon, zcdp: rho) to its loss."""
    makers: dict[str, Callable[[float], PrivacyLoss]] = {
        "gaussian": lambda mu: GaussianDP(mu, neighbours=neighbours),
        "pure": lambda epsilon: PureDP(epsilon, neighbours=neighbours),
        "zcdp": lambda rho: RenyiCurve(lambda x: rho * (1 + x), neighbours=neighbours, rule=f"{rho:g}-zCDP"),
    }
    return makers[kind]


def draw_comparison(path: Path, choices: Sequence[Choice], single: float, good: float) -> None:
    """A picture of total epsilon against the 99% quantile of K, one point a law, beside one run's epsilon.

    Args:
        path: the picture; its ending sets the format.
        choices: from `compare`.
        single: one run's epsilon.
        good: as in `compare`, the share of good candidates.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhline(single, color="0.6", linewidth=1)
    axes.annotate("one run", (1.0, single), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4")
    for each in choices:
        plain = isinstance(each.law, Poisson)
        axes.plot(each.q99, each.guarantee.epsilon, "s" if plain else "o", color="#b5442e" if plain else "#27607f")
        label = (
            "Poisson"
            if plain
            else f"shape {each.law.shape:g}"
            if isinstance(each.law, NegativeBinomial)
            else each.law.name
        )
        axes.annotate(f"{label}\nmean {each.law.mean:.3g}", (each.q99, each.guarantee.epsilon), xytext=(5, 4),
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.2, y=0.15)
    axes.set_xlabel("number of runs exceeded one time in a hundred")
    axes.set_ylabel(f"total epsilon at delta = {choices[0].guarantee.delta:g}")
    success = min(each.success for each in choices)
    axes.set_title(f"Equal chance {success:.3g} of a run among the best {good:.3g} of all", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
