"""``discretion cost gradient`` and ``discretion calibrate gradient``: steps of clipped and noisy mean gradients."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from discretion.bayesopt.accounting import gradient_loss, gradient_noise, mu_within
from discretion.cli import options
from discretion.cli.console import plain_errors, show
from discretion.cli.cost import calibrate, cost
from discretion.privacy import GaussianDP, Neighbours, round_up, round_up_significant, smallest

N = Annotated[int, typer.Option("--n", help="Number of records (public).")]
Steps = Annotated[int, typer.Option(help="Steps T, fixed in advance.")]
Clip = Annotated[float, typer.Option(help="Norm B to which each record's gradient is clipped.")]
Delta = Annotated[float, typer.Option(help="A number in (0, 1).")]
Relation = Annotated[Neighbours, options.relation("replace, or add-remove with n a public normaliser.")]


@cost.command("gradient")
def cost_gradient(
    n: N,
    steps: Steps,
    noise: Annotated[float | None, typer.Option(help="Noise sigma of each mean gradient.")] = None,
    mu: Annotated[float | None, typer.Option(help="Or the mu of the whole run; prints the noise it needs.")] = None,
    clip: Clip = 1.0,
    delta: Delta = 1e-5,
    neighbours: Relation = Neighbours.REPLACE,
    json_: options.Json = False,
) -> None:
    """Epsilon of releasing T noisy means of gradients that were clipped record by record: exact.

    mu = 2 B sqrt(T) / (n sigma) under replace, whatever the losses are.
    """
    with plain_errors():
        if (noise is None) == (mu is None):
            raise ValueError("Give --noise, or --mu to have the noise it needs; not both.")
        run: dict[str, Any] = {"clip": clip, "n": n, "steps": steps, "neighbours": neighbours}
        if noise is None:
            assert mu is not None
            noise = gradient_noise(mu=mu, **run)
        _show(gradient_loss(noise=noise, **run), noise, run, delta, as_json=json_)


@calibrate.command("gradient")
def calibrate_gradient(
    n: N,
    steps: Steps,
    epsilon: Annotated[float, typer.Option(help="Target epsilon of the whole run.")],
    clip: Clip = 1.0,
    delta: Delta = 1e-5,
    neighbours: Relation = Neighbours.REPLACE,
    json_: options.Json = False,
) -> None:
    """The smallest noise with which T steps together cost at most (epsilon, delta)."""
    with plain_errors():
        run: dict[str, Any] = {"clip": clip, "n": n, "steps": steps, "neighbours": neighbours}
        start = gradient_noise(mu=mu_within(epsilon, delta), **run)

        def meets(noise: float) -> bool:
            return gradient_loss(noise=noise, **run).epsilon(delta) <= epsilon

        noise = smallest(meets, start * (1.0 - 1e-9), start * (1.0 + 1e-9))
        _show(gradient_loss(noise=noise, **run), noise, run, delta, as_json=json_)


def _show(loss: GaussianDP, noise: float, run: dict[str, Any], delta: float, *, as_json: bool) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"--delta must lie strictly between 0 and 1; got {delta!r}.")
    guarantee = loss.guarantee(delta)
    result = {
        "noise": noise,
        "mu": loss.mu,
        "steps": run["steps"],
        "epsilon": guarantee.epsilon,
        "delta": delta,
        "rule": guarantee.rule,
        "neighbours": str(guarantee.neighbours),
    }
    lines = [
        f"noise = {noise!r} for each of {run['steps']} mean gradients, mu = {round_up_significant(loss.mu, 6)}",
        f"epsilon <= {round_up(guarantee.epsilon, 4)} at delta = {round_up_significant(delta)} "
        f"(neighbours: {guarantee.neighbours}; {guarantee.rule}).",
    ]
    show(result, as_json=as_json, lines=lines)
