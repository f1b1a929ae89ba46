"""``discretion cost|calibrate|plan selection``: what it costs to tune, and which law of the number of runs to take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from discretion.cli import options
from discretion.cli.console import note, plain_errors, show
from discretion.cli.cost import calibrate, cost
from discretion.cli.groups import grouped
from discretion.cli.plan import plan
from discretion.privacy import (
    GaussianDP,
    Guarantee,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    Unreachable,
    round_up,
    round_up_significant,
)
from discretion.selection.bounds import Rule, selection_loss
from discretion.selection.lower_bound import selection_lower_bound
from discretion.selection.planner import (
    SHAPES,
    affordable_base,
    affordable_mean,
    base_loss,
    compare_laws,
    draw_comparison,
    warnings,
)
from discretion.selection.repetitions import Binomial, Capped, Fixed, NegativeBinomial, Poisson, Repetitions

BASES = {"gaussian": "mu", "pure": "epsilon", "zcdp": "rho"}


@dataclass(frozen=True)
class OneRun:
    """What one run costs, and what is asked of the selection."""

    base: Annotated[
        str,
        typer.Option(
            help="gaussian (--mu), pure (--epsilon), zcdp (--rho) or approximate (--epsilon and --delta0): one run."
        ),
    ] = "gaussian"
    mu: Annotated[float | None, typer.Option(help="mu of Gaussian DP of one run.")] = None
    epsilon: Annotated[float | None, typer.Option(help="epsilon of one run.")] = None
    rho: Annotated[float | None, typer.Option(help="rho of zero-concentrated DP of one run.")] = None
    delta0: Annotated[float | None, typer.Option(help="delta of one run, with --base approximate.")] = None
    delta: Annotated[float, typer.Option(help="delta of the whole selection.")] = 1e-6
    rule: Annotated[str, typer.Option(help="best, renyi or profile.")] = "best"
    neighbours: Annotated[Neighbours, typer.Option(help="The neighbour relation of the base's loss.")] = (
        Neighbours.REPLACE
    )

    @property
    def given(self) -> list[str]:
        """The budgets of one run that were given, by their options."""
        values = {"--mu": self.mu, "--epsilon": self.epsilon, "--rho": self.rho, "--delta0": self.delta0}
        return [name for name, value in values.items() if value is not None]

    def check_delta(self) -> None:
        """Refuse a delta out of range."""
        if not 0 < self.delta < 1:
            raise ValueError(f"--delta must lie strictly between 0 and 1; got {self.delta!r}.")

    @property
    def account(self) -> Rule:
        """The rule of the account; `selection_loss` refuses what is none."""
        return self.rule  # pyright: ignore[reportReturnType]

    def loss(self) -> PrivacyLoss:
        """The loss of one run."""
        kind, values = self.base, {"mu": self.mu, "epsilon": self.epsilon, "rho": self.rho}
        if kind not in (*BASES, "approximate"):
            raise ValueError(f"--base is {', '.join(BASES)} or approximate; got {kind!r}.")
        name = BASES.get(kind, "epsilon")
        value = values[name]
        extra = [f"--{other}" for other, each in values.items() if each is not None and other != name]
        if kind != "approximate" and self.delta0 is not None:
            extra.append("--delta0")
        if extra:
            raise ValueError(f"--base {kind} does not take {' and '.join(extra)}.")
        if value is None or not 0 < value < float("inf"):
            raise ValueError(f"--base {kind} needs --{name}, a positive number.")
        if kind != "approximate":
            return base_loss(kind, self.neighbours)(value)
        if self.delta0 is None or not 0 < self.delta0 < 1:
            raise ValueError("--base approximate needs --delta0 between 0 and 1.")
        rule = f"({value:g}, {self.delta0:g})-DP"
        return PrivacyProfile((value,), (self.delta0,), neighbours=self.neighbours, rule=rule)


@dataclass(frozen=True)
class Runs:
    """The law of the number of runs."""

    runs: Annotated[
        str, typer.Option(help="Law of the number of runs: poisson, tnb, geometric, logarithmic, binomial, fixed.")
    ] = "geometric"
    mean: Annotated[float, typer.Option(help="Mean number of runs.")] = 10.0
    shape: Annotated[float | None, typer.Option(help="Shape of tnb, above -1 (0 logarithmic, 1 geometric).")] = None
    trials: Annotated[int | None, typer.Option(help="Trials of binomial; the most runs there can be.")] = None
    cap: Annotated[int | None, typer.Option(help="Most runs, declared beforehand: another law, never above it.")] = None

    def family(self) -> Callable[[float], Repetitions]:
        """From the mean to the law."""
        if not self.mean > 0:
            raise ValueError(f"--mean, the mean number of runs, must be positive; got {self.mean:g}.")
        return law_family(self.runs, self.shape, self.trials, self.cap)

    def law(self) -> Repetitions:
        """The law of the mean that was given."""
        return self.family()(self.mean)


@cost.command("selection")
@grouped
def cost_selection(one: OneRun, several: Runs, json_: options.Json = False) -> None:
    """Epsilon of releasing the best of a random number of private runs, beside that of one run."""
    with plain_errors():
        result = _account(one.loss(), several.law(), one)
        if math.isinf(result["epsilon"]):
            why = "" if one.delta0 is None else " --delta0 must be well below --delta over the mean number of runs."
            note(f"No epsilon is proved at delta = {one.delta:g}.{why}")
        show(result, as_json=json_, lines=_lines(result))
        _notes(result, json_)


@calibrate.command("selection")
@grouped
def calibrate_selection(
    total_epsilon: Annotated[float, typer.Option(help="Epsilon of the whole selection.")],
    one: OneRun,
    several: Runs,
    solve: Annotated[
        str, typer.Option(help="What to find: base (the budget of one run) or mean (of the runs).")
    ] = "base",
    json_: options.Json = False,
) -> None:
    """The largest budget of one run, or the largest mean number of runs, within a total epsilon.

    The epsilon printed beside it is computed anew from what was found, and never exceeds the target.
    """
    with plain_errors():
        if not total_epsilon > 0:
            raise ValueError(f"--total-epsilon must be positive; got {total_epsilon!r}.")
        one.check_delta()
        if solve == "base":
            if one.base not in BASES:
                raise ValueError(f"--solve base finds {', '.join(BASES.values())} of --base {', '.join(BASES)}.")
            if given := one.given:
                raise ValueError(
                    f"--solve base finds the budget of one run, and {' and '.join(given)} gives it. Leave that out, or "
                    "take --solve mean."
                )
            name, law, make = BASES[one.base], several.law(), base_loss(one.base, one.neighbours)
            value = affordable_base(make, law, total_epsilon, one.delta, rule=one.account)
            result = _account(make(value), law, one)
        elif solve == "mean":
            if several.runs == "fixed":
                raise ValueError("A fixed number of runs has no mean to solve for; choose another law with --runs.")
            loss, name = one.loss(), "mean"
            try:
                law = affordable_mean(loss, several.family(), total_epsilon, one.delta, rule=one.account)
            except Unreachable:
                raise ValueError(
                    f"One run alone costs epsilon {round_up_significant(loss.epsilon(one.delta), 4)} at delta = "
                    f"{one.delta:g}, and no mean number of runs of this law keeps to {total_epsilon:g}. Give one run a "
                    "smaller budget, or take --solve base."
                ) from None
            result, value = _account(loss, law, one), law.mean
        else:
            raise ValueError(f"--solve is base or mean; got {solve!r}.")
        show({name: value} | result, as_json=json_, lines=[f"{name} = {value!r}", *_lines(result)])
        _notes(result, json_)


@plan.command("selection")
@grouped
def plan_selection(
    one: OneRun,
    good: Annotated[float, typer.Option(help="Chance that one run is good: 0.1 for the best tenth of all.")] = 0.1,
    success: Annotated[float, typer.Option(help="Chance that the selection includes a good run.")] = 0.63,
    shapes: Annotated[str, typer.Option(help="Shapes of the truncated negative binomial laws.")] = ",".join(
        f"{each:g}" for each in SHAPES
    ),
    most_q99: Annotated[
        int | None, typer.Option("--most-runs", help="Leave out laws that exceed this one time in a hundred.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the comparison: a .png, .svg or .pdf file.")] = None,
    json_: options.Json = False,
) -> None:
    """Laws of the number of runs that find a good candidate equally often, the cheapest in privacy first."""
    with plain_errors():
        loss, delta = one.loss(), one.delta
        one.check_delta()
        for name, chance in (("--good", good), ("--success", success)):
            if not 0 < chance < 1:
                raise ValueError(f"{name} is a chance, strictly between 0 and 1; got {chance:g}.")
        try:
            wanted = [float(each) for each in shapes.split(",")]
        except ValueError:
            raise ValueError(f"--shapes are numbers above -1 separated by commas; got {shapes!r}.") from None
        found = compare_laws(
            loss,
            delta,
            good=good,
            success=success,
            shapes=wanted,
            most_q99=most_q99,
            rule=one.account,
        )
        single = loss.epsilon(delta)
        if out is not None:
            draw_comparison(out, found, single, good)
        table = Table("law of K", "mean", "q99", "epsilon", box=None, pad_edge=False)
        for each in found:
            table.add_row(each.law.name, f"{each.law.mean:.4g}", f"{each.q99:,}", round_up(each.guarantee.epsilon, 4))
        console = Console(width=120, color_system=None)
        with console.capture() as text:
            console.print(table)
        lines = [
            f"Chance {success:g} of a run among the best {good:g}; one run costs epsilon {round_up(single, 4)} at "
            f"delta = {round_up_significant(delta)}.",
            "",
            *(line.rstrip() for line in text.get().splitlines()),
        ]
        result = {"single_epsilon": single, "delta": delta, "good": good, "success": success}
        show(result | {"laws": [each.to_dict() for each in found]}, as_json=json_, lines=lines)
        if not json_:
            note("q99: exceeded one time in a hundred. Only the best run may ever be seen, never K.")


def law_family(runs: str, shape: float | None, trials: int | None, cap: int | None) -> Callable[[float], Repetitions]:
    """From the mean to the law."""
    if (shape is None) == (runs == "tnb"):
        raise ValueError("--shape goes with --runs tnb, and tnb needs it.")
    if (trials is None) == (runs == "binomial"):
        raise ValueError("--trials goes with --runs binomial, and binomial needs it.")
    count = trials or 1

    def fixed(mean: float) -> Repetitions:
        if mean != round(mean):
            raise ValueError(f"A fixed number of runs is a whole number; got --mean {mean:g}.")
        return Fixed(round(mean))

    families: dict[str, Callable[[float], Repetitions]] = {
        "poisson": Poisson,
        "tnb": lambda mean: NegativeBinomial.of_mean(shape or 0.0, mean),
        "geometric": lambda mean: NegativeBinomial.of_mean(1.0, mean),
        "logarithmic": lambda mean: NegativeBinomial.of_mean(0.0, mean),
        "binomial": lambda mean: Binomial(count, mean / count),
        "fixed": fixed,
    }
    if runs not in families:
        raise ValueError(f"--runs is {', '.join(families)}; got {runs!r}.")
    family = families[runs]
    return family if cap is None else lambda mean: Capped(family(mean), cap)


def _account(base: PrivacyLoss, law: Repetitions, asked: OneRun) -> dict[str, Any]:
    asked.check_delta()
    delta = asked.delta
    guarantee: Guarantee = selection_loss(base, law, rule=asked.account).guarantee(delta)
    exact = isinstance(base, GaussianDP | PureDP | PrivacyProfile)
    return {
        "single_epsilon": base.epsilon(delta),
        "epsilon": guarantee.epsilon,
        "delta": delta,
        "attained": selection_lower_bound(base, law, delta) if exact else None,
        "rule": guarantee.rule,
        "order": guarantee.order,
        "neighbours": str(guarantee.neighbours),
        "law": law.parameters(),
        "law_name": law.name,
        "mean": law.mean,
        "q99": law.quantile(0.99),
        "none": law.none,
        "warnings": warnings(base, law, guarantee),
    }


def _lines(result: dict[str, Any]) -> list[str]:
    attained = result["attained"]
    floor = "" if attained is None else f" No account can give less than {math.floor(attained * 1e4) / 1e4:.4f}."
    return [
        f"One run: epsilon <= {round_up(result['single_epsilon'], 4)}. Best of {result['law_name']} runs: epsilon <= "
        f"{round_up(result['epsilon'], 4)} at delta = {round_up_significant(result['delta'])}.{floor}",
        f"Runs: mean {result['mean']:.4g}, one time in a hundred {result['q99']:,} or more. Neighbours: "
        f"{result['neighbours']}. {result['rule']}.",
    ]


def _notes(result: dict[str, Any], json_: bool) -> None:
    for each in () if json_ else result["warnings"]:
        note(each)
