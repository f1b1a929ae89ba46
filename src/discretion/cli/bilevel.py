"""``discretion cost exponential`` and ``discretion cost hypergradient``: prices of private bilevel problems."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Annotated, Any

import numpy as np
import typer

from discretion.bilevel import (
    Constants,
    Counts,
    ExponentialMechanism,
    HuberPenalty,
    LogisticPenalty,
    RidgePenalty,
    hypergradient_sensitivity,
    range_bound,
)
from discretion.bilevel.sensitivity import Bound
from discretion.cli import options
from discretion.cli.console import plain_errors, show
from discretion.cli.cost import cost
from discretion.privacy import BoundedRange, GaussianDP, Neighbours, gaussian_mu, round_up, round_up_significant

Training = Annotated[int, typer.Option(help="Records of the inner loss (public; add-remove: a bound).")]
Validation = Annotated[
    int | None,
    typer.Option(
        help="Other records, of the outer loss: a --family needs them. Without, with --constant: both losses are of "
        "the same records."
    ),
]
Family = Annotated[str | None, typer.Option(help="ridge, logistic or huber: the penalty of such a regression.")]
Penalties = Annotated[
    str, typer.Option(help="Least and largest penalty lambda, such as 0.1,10.", metavar="LEAST,LARGEST")
]
Candidates = Annotated[int, typer.Option(help="How many penalties, evenly spaced in log.")]
Features = Annotated[float, typer.Option(help="Bound R of the length of a feature vector; longer ones are shortened.")]
Labels = Annotated[float, typer.Option(help="Bound B of a response; others are clipped.")]
Given = Annotated[
    list[str] | None, typer.Option("--constant", help="Instead of a family: NAME=VALUE, such as L_fy=1; repeat it.")
]
Relation = Annotated[Neighbours, options.relation("replace, or add-remove with numbers of records as bounds.")]

_MOST = 1e6  # of epsilon and mu: no protection at all
_FAMILIES = {"ridge": RidgePenalty, "logistic": LogisticPenalty, "huber": HuberPenalty}


@cost.command("exponential")
def cost_exponential(
    training: Training,
    epsilon: Annotated[float, typer.Option(help="Bounded range of the choice, which is pure epsilon-DP.")],
    validation: Validation = None,
    family: Family = None,
    penalties: Penalties = "0.001,10",
    candidates: Candidates = 41,
    feature_bound: Features = 1.0,
    label_bound: Labels = 1.0,
    spread: Annotated[
        float | None, typer.Option(help="How much the loss differs over the points: a public guess.")
    ] = None,
    score: Annotated[str | None, typer.Option(help="plain or candidate; by default what suits the penalties.")] = None,
    constant: Given = None,
    diameter: Annotated[float | None, typer.Option(help="With constants: diameter of the outer domain.")] = None,
    delta: Annotated[float, typer.Option(help="A number in (0, 1) at which epsilon is stated too.")] = 1e-6,
    neighbours: Relation = Neighbours.REPLACE,
    json_: options.Json = False,
) -> None:
    """What choosing an outer variable by the exponential mechanism costs, and whether the choice can mean anything.

    Delta bounds how far one record moves differences of the outer loss; where two points differ by 1/k their chances
    differ by the factor e.
    """
    with plain_errors():
        _within("--epsilon", epsilon, 1e-9, _MOST)
        _within("--delta", delta, 0.0, 1.0)
        loss = BoundedRange(epsilon, neighbours=neighbours)
        result: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "epsilon_at_delta": loss.epsilon(delta)}
        if family is None:
            bound = range_bound(_declared(constant, neighbours), Counts(training, validation), _wanted(diameter))
            _usable(bound)
            result |= {"range": bound.value, "parts": bound.parts, "k": epsilon / bound.value}
            lines = [f"Delta = {bound.value:.4g} ({_listed(bound)}); k = epsilon / Delta = {result['k']:.4g}."]
        else:
            _no(constant, "--constant", family)
            _no(diameter, "--diameter", family)
            ends = _ends(penalties)
            problem = _problem(family, training, validation, ends, candidates, feature_bound, label_bound, neighbours)
            chosen: Any = score
            report = ExponentialMechanism(problem=problem, epsilon=epsilon, score=chosen, spread=spread).report()
            result |= {"range": report.range.value, "parts": report.range.parts, "k": report.k, "score": report.score}
            result |= {"head_start": report.head_start, "candidates": report.candidates}
            result |= {"informative": report.informative, "missed": list(report.missed)}
            result |= {"forecasts": [{"spread": each.spread, "share": each.share} for each in report.forecasts]}
            lines = report.text().splitlines()
        stated = f"epsilon <= {round_up(result['epsilon_at_delta'], 4)} at delta = {round_up_significant(delta)}."
        lines += [f"Pure epsilon = {epsilon:g} (neighbours: {neighbours}); {stated}"]
        show(result, as_json=json_, lines=lines)


@cost.command("hypergradient")
def cost_hypergradient(
    training: Training,
    steps: Annotated[int, typer.Option(help="Steps T, fixed in advance.")],
    validation: Validation = None,
    mu: Annotated[float | None, typer.Option(help="Gaussian DP of the whole run; or --epsilon.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of the whole run, at --delta.")] = None,
    family: Family = None,
    penalty: Annotated[float, typer.Option(help="With a family: the penalty lambda at which a step is made.")] = 1.0,
    feature_bound: Features = 1.0,
    label_bound: Labels = 1.0,
    constant: Given = None,
    delta: Annotated[float, typer.Option(help="A number in (0, 1).")] = 1e-6,
    neighbours: Relation = Neighbours.REPLACE,
    json_: options.Json = False,
) -> None:
    """The sensitivity 2K/n of a hypergradient, what it is made of, and the noise of T steps.

    sigma = 1.01 (2K/n) sqrt(T) / mu: a hundredth is for inexact solutions.
    """
    with plain_errors():
        if (mu is None) == (epsilon is None):
            raise ValueError("Give --mu, or --epsilon to have the mu that it pays for at --delta; not both.")
        for option, given in (("--mu", mu), ("--epsilon", epsilon)):
            if given is not None:
                _within(option, given, 0.0, _MOST)
        _within("--delta", delta, 0.0, 1.0)
        if steps < 1:
            raise ValueError("--steps must be at least 1.")
        if family is None:
            c, counts = _declared(constant, neighbours), Counts(training, validation)
        else:
            _no(constant, "--constant", family)
            ends = penalty, penalty * math.e
            problem = _problem(family, training, validation, ends, 2, feature_bound, label_bound, neighbours)
            c, counts = problem.constants(np.array([math.log(penalty)])), problem.counts
        bound = hypergradient_sensitivity(c, counts)
        _usable(bound)
        spent = gaussian_mu(epsilon, delta) if mu is None and epsilon is not None else float(mu or 0.0)
        loss = GaussianDP(spent, neighbours=neighbours)
        noise = 1.01 * bound.value * math.sqrt(steps) / spent
        result = {"sensitivity": bound.value, "parts": bound.parts, "mu": spent, "noise": noise, "steps": steps}
        result |= {"epsilon": loss.epsilon(delta), "delta": delta}
        lines = [
            f"One record moves the hypergradient by at most 2K/n = {bound.value:.4g} ({bound.rule}: {_listed(bound)}).",
            f"noise = {noise:.6g} in each of {steps} steps, mu = {round_up_significant(spent, 6)}",
            f"epsilon <= {round_up(loss.epsilon(delta), 4)} at delta = {round_up_significant(delta)} "
            f"(neighbours: {neighbours}).",
        ]
        show(result, as_json=json_, lines=lines)


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise ValueError(f"{option} must lie strictly between {low:g} and {high:g}; got {value:g}.")


def _no(given: Any, option: str, family: str) -> None:
    """Refuse what a family leaves no room for."""
    if given:
        raise ValueError(
            f"The constants and the domain of --family {family} follow from the other options: leave out {option}."
        )


def _ends(penalties: str) -> tuple[float, float]:
    """LEAST,LARGEST as two numbers."""
    try:
        low, high = (float(each) for each in penalties.split(","))
    except ValueError:
        raise ValueError(f"--penalties takes the least and the largest, such as 0.1,10; got {penalties!r}.") from None
    return low, high


def _problem(
    family: str,
    training: int,
    validation: int | None,
    penalties: tuple[float, float],
    candidates: int,
    feature_bound: float,
    label_bound: float,
    neighbours: Neighbours,
) -> RidgePenalty | LogisticPenalty | HuberPenalty:
    if family not in _FAMILIES:
        raise ValueError(f"--family must be one of {', '.join(_FAMILIES)}; got {family!r}.")
    if validation is None:
        raise ValueError(
            f"--family {family} needs --validation: penalties are chosen by records that the model was not fitted to."
        )
    labels = {} if family == "logistic" else {"label_bound": label_bound}
    return _FAMILIES[family](
        training=training,
        validation=validation,
        dimension=1,
        penalties=penalties,
        candidates=candidates,
        feature_bound=feature_bound,
        neighbours=neighbours,
        **labels,
    )


def _declared(given: list[str] | None, neighbours: Neighbours) -> Constants:
    """Constants from NAME=VALUE."""
    if not given:
        raise ValueError("Give --family, or the constants, such as --constant L_fy=1 --constant mu_g=0.5.")
    numbers: dict[str, Any] = {}
    known = [item.name for item in fields(Constants)]
    for each in given:
        name, _, value = each.partition("=")
        if name not in known or not value:
            raise ValueError(f"{each!r} is not NAME=VALUE of a constant; there are {', '.join(known)}.")
        if name in numbers:
            raise ValueError(f"--constant {name}=... is given twice.")
        numbers[name] = value.lower() == "true" if value.lower() in ("true", "false") else float(value)
    found = Constants(**numbers)
    if found.single and neighbours is not Neighbours.ADD_REMOVE:
        raise ValueError("single=true is for add-remove neighbours: a replaced record changes two terms.")
    return found.single_terms() if neighbours is Neighbours.ADD_REMOVE else found


def _wanted(diameter: float | None) -> float:
    if diameter is None:
        raise ValueError("Give --diameter of the outer domain with constants.")
    if not 0 < diameter < math.inf:
        raise ValueError(f"--diameter must be a positive finite number; got {diameter:g}.")
    return diameter


def _usable(bound: Bound) -> None:
    if bound.value == 0.0:
        raise ValueError("By these constants no record can change anything: there is nothing to pay for.")
    if not math.isfinite(bound.value):
        raise ValueError("No finite sensitivity follows from these constants.")


def _listed(bound: Bound) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in bound.parts.items())
