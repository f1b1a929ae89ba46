"""``discretion cost`` and ``discretion calibrate``: prices from public parameters, no table needed."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import typer

from discretion.cli import options
from discretion.cli.console import plain_errors, searching, show
from discretion.gp import Ball
from discretion.posterior import Separated
from discretion.posterior.add_remove import add_remove_epsilon, add_remove_loss, calibrate_add_remove
from discretion.posterior.calibration import calibrated
from discretion.posterior.kernel_sum import sensitivity
from discretion.posterior.rules import TIME_LIMIT, Price, posterior_price
from discretion.privacy import GaussianDP, Guarantee, Neighbours, gaussian_mu, round_up, round_up_significant, smallest

_LONG = ("best", "profile")
"""Rules whose search takes seconds."""

cost = typer.Typer(no_args_is_help=True, help="What a release would cost, from public parameters alone.")
calibrate = typer.Typer(no_args_is_help=True, help="The parameter that just meets a privacy target.")

N = Annotated[int, typer.Option("--n", help="Number of records (public).")]
Bound = Annotated[float, typer.Option(help="Largest |response - centre|, M; responses are clipped to it.")]
Delta = Annotated[str, typer.Option(help="A number, or n^-1.1 of the number of records.")]
Ridge = Annotated[float | None, typer.Option(help="Ridge r: observation noise variance is r^2 scale^2.")]
Scale = Annotated[float | None, typer.Option(help="Posterior scale sigma.")]
Paths = Annotated[int, typer.Option(help="Number of sample paths from the same records.")]
Eta = Annotated[float, typer.Option("--prior-noise", "--eta", help="replace: scale of extra prior noise.")]
Least = Annotated[
    float | None,
    typer.Option(help="A lower bound of the kernel on the domain; 0, which holds for any, if no kernel is named."),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        help="Or its name, with --length-scale and --diameter; exponential-1d and diagonal name it themselves. Only "
        "--assumption separated needs one.",
    ),
]
Length = Annotated[str | None, typer.Option(help="Length scale of the kernel.")]
Diameter = Annotated[float | None, typer.Option(help="Diameter of the domain, in the units of the length scale.")]
Alpha = Annotated[float | None, typer.Option(help="Shape of the rational quadratic kernel.")]
Assumed = Annotated[str, typer.Option("--assumption", help=f"{options.ASSUMPTIONS}.")]
Relation = Annotated[
    Neighbours,
    typer.Option(
        help="replace: n is public. add-remove: --n is a public bound of it. replace-response: for --assumption "
        "response-only."
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        help="replace: published (the paper's figure), renyi, profile (certified; of several paths numerical), or "
        "best: the smallest that is proved. best and profile may take all of --time-limit, renyi a second. "
        "add-remove has one rule."
    ),
]
Seconds = Annotated[
    float,
    typer.Option(
        "--time-limit",
        help="replace: seconds to look for it, about. Less may find a larger epsilon or scale, which holds all the "
        "same. add-remove needs none.",
    ),
]
Json = options.Json


@cost.command("posterior")
def cost_posterior(
    context: typer.Context,
    n: N,
    delta: Delta = "n^-1.1",
    ridge: Ridge = None,
    scale: Scale = None,
    response_bound: Bound = 1.0,
    paths: Paths = 1,
    prior_noise: Eta = 0.0,
    least_kernel: Least = None,
    kernel: KernelName = None,
    length_scale: Length = None,
    diameter: Diameter = None,
    alpha: Alpha = None,
    assumption: Assumed = "bounded",
    neighbours: Relation = Neighbours.REPLACE,
    rule: Rule = "best",
    time_limit: Seconds = TIME_LIMIT,
    json_: Json = False,
) -> None:
    """Epsilon of releasing posterior sample paths.

    For coordinates scaled to a unit box in d dimensions (as `discretion release` does) the diameter is sqrt(d).
    """
    with plain_errors():
        if ridge is None or scale is None:
            raise ValueError("Give --ridge and --scale.")
        account = _account(
            n,
            response_bound,
            paths,
            prior_noise,
            least_kernel,
            kernel,
            length_scale,
            diameter,
            alpha,
            assumption,
            neighbours,
        )
        target = options.delta_of(delta, n)
        if neighbours is Neighbours.ADD_REMOVE:
            account = _private(context, account)
            epsilon = add_remove_epsilon(ridge=ridge, scale=scale, delta=target, **account)
            how = "pair of one record, " + ("its profile, worst case" if account["paths"] == 1 else "its Renyi curve")
            guarantee = Guarantee(epsilon, target, None, how, neighbours)
            result = _result(guarantee, assumption)
            show(result, as_json=json_, lines=[_sentence(result)])
            return
        with _searching(rule, time_limit):
            price = posterior_price(rule, ridge=ridge, scale=scale, delta=target, time_limit=time_limit, **account)
        result = _result(price.guarantee, assumption) | _compared(price)
        unnamed = _unnamed(account, least_kernel, kernel)
        show(result, as_json=json_, lines=[_sentence(result), *_others(price), *unnamed])


@calibrate.command("posterior")
def calibrate_posterior_(
    context: typer.Context,
    n: N,
    epsilon: Annotated[float, typer.Option(help="Target epsilon.")],
    solve: Annotated[str, typer.Option(help="What to find: scale, ridge, eta (extra prior noise) or paths.")] = "scale",
    delta: Delta = "n^-1.1",
    ridge: Ridge = None,
    scale: Scale = None,
    response_bound: Bound = 1.0,
    paths: Paths = 1,
    prior_noise: Eta = 0.0,
    least_kernel: Least = None,
    kernel: KernelName = None,
    length_scale: Length = None,
    diameter: Diameter = None,
    alpha: Alpha = None,
    assumption: Assumed = "bounded",
    neighbours: Relation = Neighbours.REPLACE,
    rule: Rule = "best",
    time_limit: Seconds = TIME_LIMIT,
    json_: Json = False,
) -> None:
    """The smallest scale, ridge or extra noise, or the largest number of paths, that meets (epsilon, delta).

    The epsilon printed beside it is that of the parameter found, and never exceeds the target. --rule best, the
    default, searches for up to --time-limit seconds; --rule renyi takes a second or two, and --time-limit 5 less time.
    """
    with plain_errors():
        if solve not in ("scale", "ridge", "eta", "paths"):
            raise ValueError(f"--solve is scale, ridge, eta or paths; got {solve!r}.")
        given: dict[str, Any] = {"ridge": ridge, "scale": scale}
        lacking = [name for name, value in given.items() if value is None and name != solve]
        if lacking:
            raise ValueError(f"To solve for {solve}, give --{' and --'.join(lacking)}.")
        account = _account(
            n,
            response_bound,
            paths,
            prior_noise,
            least_kernel,
            kernel,
            length_scale,
            diameter,
            alpha,
            assumption,
            neighbours,
        )
        target = options.delta_of(delta, n)
        if neighbours is Neighbours.ADD_REMOVE:
            if solve != "scale" or ridge is None:
                raise ValueError("--neighbours add-remove solves for scale, at a --ridge.")
            account = _private(context, account)
            value = calibrate_add_remove(epsilon=epsilon, delta=target, ridge=ridge, **account)
            loss = add_remove_loss(ridge=ridge, scale=value, **account)
            result = {"scale": value, **_result(loss.guarantee(target), assumption)}
            show(result, as_json=json_, lines=[f"scale = {value!r}", _sentence(result)])
            return
        everything = account | {name: value for name, value in given.items() if value is not None}
        with _searching(rule, time_limit):
            value, price = calibrated(solve, rule, epsilon=epsilon, delta=target, time_limit=time_limit, **everything)
        result = {solve: value, **_result(price.guarantee, assumption), **_compared(price)}
        lines = [f"{solve} = {value!r}", _sentence(result), *_others(price)]
        if rule != "published" and price.epsilon < price.compared.get("closed form", 0.0):
            lines += [f"A release is priced so with --rule {'renyi' if rule == 'renyi' else 'best'}."]
        lines += _unnamed(account, least_kernel, kernel)
        show(result, as_json=json_, lines=lines)


def _account(
    n: int,
    response_bound: float,
    paths: int,
    prior_noise: float,
    least_kernel: float | None,
    name: str | None,
    length_scale: str | None,
    diameter: float | None,
    alpha: float | None,
    assumption: str,
    neighbours: Neighbours,
) -> dict[str, Any]:
    if neighbours is Neighbours.REPLACE_RESPONSE and assumption != "response-only":
        raise ValueError("--neighbours replace-response protects responses alone: give --assumption response-only.")
    if n < 1:
        raise ValueError(f"--n is a whole number >= 1; got {n}.")
    of_kernels = {"length-scale": length_scale, "diameter": diameter, "alpha": alpha}
    given = [f"--{option}" for option, value in of_kernels.items() if value is not None]
    if name is None and least_kernel is None and given:
        name = options.KERNEL_OF.get(assumption)
    if least_kernel is not None and name is not None:
        raise ValueError("Give --least-kernel, or --kernel with --length-scale and --diameter; not both.")
    if name is None and given:
        raise ValueError(f"{', '.join(given)}: only a kernel has it; name one with --kernel.")
    shape = None if name is None else options.covariance(name, length_scale, alpha)
    # No kernel of unit diagonal is priced above one whose least value is 0.
    least = 0.0 if least_kernel is None else least_kernel
    if shape is not None:
        if diameter is None or not (math.isfinite(diameter) and diameter > 0):
            raise ValueError(
                f"--kernel {name} needs --diameter, that of the domain: a positive number in the units of the length "
                "scale."
            )
        least = shape.least_value(Ball((0.0,) * _axes(shape), 0.5 * diameter))
    assumed = options.assumption_of(assumption, response_bound, shape)
    if shape is not None:
        # With --least-kernel alone the kernel is the user's word; a kernel that is named must fit what is assumed.
        assumed.check(shape, assumed.dimension if isinstance(assumed, Separated) else _axes(shape))
    return {
        "n": n,
        "assumption": assumed,
        "least_kernel": least,
        "paths": paths,
        "prior_noise": prior_noise,
    }


def _unnamed(account: dict[str, Any], least_kernel: float | None, name: str | None) -> list[str]:
    """What was taken for the kernel where nothing was said of it."""
    if least_kernel is not None or name is not None or account["least_kernel"] != 0.0:
        return []
    return ["For any kernel: none was named. One with its --length-scale and --diameter may cost less."]


def _searching(rule: str, time_limit: float) -> AbstractContextManager[None]:
    """A word on stderr before a search that takes seconds."""
    if rule not in _LONG:
        return nullcontext()
    return searching(
        f"Searching, for {time_limit:g} s or so at most (--time-limit; --rule renyi takes a second or two)"
    )


def _private(context: typer.Context, account: dict[str, Any]) -> dict[str, Any]:
    """The account under add/remove, where n is a public bound of the number of records."""
    why = "--neighbours add-remove has one rule, computed at once and without prior noise; leave it out"
    options.refuse_given(context, ("rule", "time_limit", "prior_noise"), why)
    if "delta" not in options.given(context) or context.params["delta"].startswith("n"):
        raise ValueError("--neighbours add-remove: the number of records is private, so --delta must be a number.")
    return {"assumption": account["assumption"], "most_records": account["n"], "paths": account["paths"]}


def _compared(price: Price) -> dict[str, Any]:
    return {"compared": price.compared, "complete": price.complete}


def _others(price: Price) -> list[str]:
    """What every rule gave, and whether a search was cut short."""
    each = ", ".join(f"{name} {round_up(epsilon, 4)}" for name, epsilon in price.compared.items())
    cut = [] if price.complete else ["The time limit cut a search short; more time may give less (--time-limit)."]
    return ([f"By rule: {each}."] if len(price.compared) > 1 else []) + cut


def _axes(shape: Any) -> int:
    scale = getattr(shape, "length_scale", 1.0)
    return len(scale) if isinstance(scale, tuple) else 1


def _result(guarantee: Guarantee, assumption: str) -> dict[str, Any]:
    return {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "order": guarantee.order,
        "rule": guarantee.rule,
        "neighbours": str(guarantee.neighbours),
        "assumption": assumption,
    }


def _sentence(result: dict[str, Any]) -> str:
    return (
        f"epsilon <= {round_up(result['epsilon'], 4)} at delta = {round_up_significant(result['delta'])} "
        f"(neighbours: {result['neighbours']}; {result['rule']})."
    )


# `release` calls it --max-per-unit. Both names in one line of help are too wide for a terminal.
@cost.command(
    "kernel-sum",
    context_settings={"token_normalize_func": lambda name: "contributions" if name == "max-per-unit" else name},
)
def cost_kernel_sum(
    response_bound: Bound = 1.0,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon: prints the smallest scale.")] = None,
    scale: Annotated[float | None, typer.Option(help="Noise s, in units of the response.")] = None,
    delta: Annotated[float, typer.Option(help="A number in (0, 1).")] = 1e-5,
    density: Annotated[bool, typer.Option(help="Release the density beside the value sum.")] = True,
    columns: Annotated[int, typer.Option(help="Response columns.")] = 1,
    kernels: Annotated[int, typer.Option(help="Kernels, such as one for each length scale.")] = 1,
    contributions: Annotated[int, typer.Option(help="Records that one unit may own; also --max-per-unit.")] = 1,
    least_kernel: Annotated[float, typer.Option(help="A lower bound of the kernel on the domain.")] = 0.0,
    neighbours: Annotated[Neighbours, options.relation("replace (n public) or add-remove.")] = Neighbours.REPLACE,
    json_: Json = False,
) -> None:
    """Epsilon of releasing a kernel sum, or the noise that just meets an epsilon: exact, and free of n and the kernel.

    A release adds a little for the rounding of its sums, which depends on n and the grid.
    """
    with plain_errors():
        if (scale is None) == (epsilon is None):
            raise ValueError("Give --scale, or --epsilon to have the smallest scale that meets it; not both.")
        for name, value in (("response-bound", response_bound), ("scale", scale), ("epsilon", epsilon)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"--{name} must be a positive finite number; got {value!r}.")
        for name, count in (("columns", columns), ("kernels", kernels), ("contributions", contributions)):
            if count < 1:
                raise ValueError(f"--{name} must be at least 1; got {count}.")
        if not 0 < delta < 1:
            raise ValueError(f"--delta must lie strictly between 0 and 1; got {delta!r}.")
        unit = response_bound * math.sqrt(kernels)
        unit *= sensitivity(
            neighbours,
            columns=columns,
            density=density,
            negative=min(1.0, max(0.0, -least_kernel)),
            contributions=contributions,
        )

        def loss(noise: float) -> GaussianDP:
            return GaussianDP(unit / noise, neighbours=neighbours, rule="kernel sum, exact Gaussian DP")

        if scale is None:
            assert epsilon is not None
            start = unit / float(gaussian_mu(epsilon, delta))
            scale = smallest(lambda noise: loss(noise).epsilon(delta) <= epsilon, start * (1.0 - 1e-12), 2.0 * start)
        result = {"scale": scale, "mu": unit / scale, **_result(loss(scale).guarantee(delta), "bounded")}
        show(result, as_json=json_, lines=[f"scale = {scale!r}, mu = {unit / scale:.6g}", _sentence(result)])
