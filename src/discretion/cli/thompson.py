"""``discretion cost thompson`` and ``discretion calibrate thompson``: runs of Gaussian-process Thompson sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import typer

from discretion.cli import options
from discretion.cli.console import plain_errors, show
from discretion.cli.cost import calibrate, cost
from discretion.posterior import Bounded
from discretion.posterior.thompson_account import Draws, record_loss, response_loss, smallest_scale
from discretion.privacy import GaussianDP, PrivacyLoss, round_up, round_up_significant

Rounds = Annotated[int, typer.Option(help="Rounds T, fixed in advance.")]
Ridge = Annotated[float | None, typer.Option(help="Ridge r; sqrt(1 + 2/T) if left out.")]
Batch = Annotated[int, typer.Option(help="Actions a round, each from a path of its own.")]
History = Annotated[int, typer.Option(help="Records told before the first round; without, the first round is free.")]
Bound = Annotated[
    float | None, typer.Option(help="Largest |response - centre|, M; responses are clipped to it. 1 if left out.")
]
Range = Annotated[str, typer.Option(help="In place of it: range low:high that responses are clipped to, M its half.")]
Private = Annotated[str, typer.Option(help="responses (actions are public), or records (covariates private as well).")]
Rule = Annotated[str, typer.Option(help="For records: closed-form, or renyi (certified; takes seconds).")]
Delta = Annotated[float, typer.Option(help="A number in (0, 1).")]


@cost.command("thompson")
def cost_thompson(
    rounds: Rounds,
    scale: Annotated[float, typer.Option(help="Posterior scale sigma, the same in every round.")],
    ridge: Ridge = None,
    batch: Batch = 1,
    history: History = 0,
    response_bound: Bound = None,
    response_range: Range = "",
    private: Private = "responses",
    rule: Rule = "closed-form",
    delta: Delta = 1e-5,
    json_: options.Json = False,
) -> None:
    """Epsilon of a run of Thompson sampling, however records react to actions.

    Exact Gaussian DP where only responses are private. A run adds a little for the rounding of its means.
    """
    with plain_errors():
        bound = _bound(response_bound, response_range)
        _show(_price(rounds, ridge, batch, history, bound, private, rule), scale, delta, as_json=json_)


@calibrate.command("thompson")
def calibrate_thompson(
    rounds: Rounds,
    epsilon: Annotated[float, typer.Option(help="Target epsilon of the whole run.")],
    ridge: Ridge = None,
    batch: Batch = 1,
    history: History = 0,
    response_bound: Bound = None,
    response_range: Range = "",
    private: Private = "responses",
    rule: Rule = "closed-form",
    delta: Delta = 1e-5,
    json_: options.Json = False,
) -> None:
    """The smallest constant scale with which the whole run costs at most (epsilon, delta)."""
    with plain_errors():
        _checked(delta)
        price = _price(rounds, ridge, batch, history, _bound(response_bound, response_range), private, rule)
        _show(price, smallest_scale(price, epsilon, delta), delta, as_json=json_)


def _bound(bound: float | None, response_range: str) -> float:
    """M, as it was given, or of a range about its middle."""
    if not response_range:
        return 1.0 if bound is None else bound
    if bound is not None:
        raise ValueError("--response-bound and --response-range both say M; give one of them.")
    low, high = options.interval(response_range, "--response-range")
    return 0.5 * (high - low)


def _price(
    rounds: int, ridge: float | None, batch: int, history: int, bound: float, private: str, rule: str
) -> Callable[[float], PrivacyLoss]:
    """The loss of the run as a function of its scale."""
    for name, count, least in (("rounds", rounds, 1), ("batch", batch, 1), ("history", history, 0)):
        if count < least:
            raise ValueError(f"--{name} is a whole number >= {least}; got {count}.")
    r = math.sqrt(1.0 + 2.0 / rounds) if ridge is None else ridge
    for name, value in (("ridge", r), ("response-bound", bound)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"--{name} must be a positive finite number; got {value!r}.")
    if private not in ("responses", "records"):
        raise ValueError(f"--private is responses or records; got {private!r}.")

    def loss(scale: float) -> PrivacyLoss:
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"--scale must be a positive finite number; got {scale!r}.")
        draws = Draws.constant(rounds, scale, ridge=r, response_bound=bound, batch=batch, history=history)
        return response_loss(draws) if private == "responses" else record_loss(draws, Bounded(bound), rule)

    return loss


def _checked(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"--delta must lie strictly between 0 and 1; got {delta!r}.")


def _show(price: Callable[[float], PrivacyLoss], scale: float, delta: float, *, as_json: bool) -> None:
    _checked(delta)
    loss = price(scale)
    found = loss.guarantee(delta)
    result = {
        "epsilon": found.epsilon,
        "delta": found.delta,
        "scale": scale,
        "mu": loss.mu if isinstance(loss, GaussianDP) else None,
        "neighbours": str(found.neighbours),
        "rule": found.rule,
    }
    mu = f", mu = {round_up_significant(loss.mu, 6)}" if isinstance(loss, GaussianDP) else ""
    lines = [
        f"scale = {scale!r}{mu}",
        f"epsilon <= {round_up(found.epsilon, 4)} at delta = {round_up_significant(delta)} (neighbours: "
        f"{found.neighbours}; {found.rule}).",
    ]
    show(result, as_json=as_json, lines=lines)
