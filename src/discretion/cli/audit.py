"""``discretion audit``: what a release leaks at least, beside what it is claimed to leak at most."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from discretion.audit import audit_pair
from discretion.cli import options
from discretion.cli.console import REFUSED, plain_errors, show
from discretion.cli.cost import Alpha, Bound, Delta, Json, Paths
from discretion.gp import Box, Kernel
from discretion.posterior.add_remove import add_remove_epsilon
from discretion.posterior.assumptions import Assumption, Bounded, Diagonal, Exponential1D
from discretion.posterior.rules import posterior_price
from discretion.privacy import Neighbours

audit = typer.Typer(no_args_is_help=True, help="Attack a release: lower bounds beside the claimed upper bound.")


@audit.callback()
def _audit() -> None:
    pass


@audit.command("pair")
def audit_pair_(
    n: Annotated[int, typer.Option("--n", help="Number of records (public); with add-remove the largest number.")],
    ridge: Annotated[float, typer.Option(help="Ridge r: observation noise variance is r^2 scale^2.")],
    scale: Annotated[float, typer.Option(help="Posterior scale sigma.")],
    kernel: Annotated[str, typer.Option(help="Name of the kernel.")],
    domain: Annotated[str, typer.Option(help="low:high of each covariate, separated by commas, in its units.")],
    length_scale: Annotated[str | None, typer.Option(help="Length scale, or one for each covariate.")] = None,
    alpha: Alpha = None,
    delta: Delta = "n^-1.1",
    response_bound: Bound = 1.0,
    paths: Paths = 1,
    neighbours: Annotated[Neighbours, typer.Option(help="Neighbour relation.")] = Neighbours.REPLACE,
    claimed: Annotated[
        float | None, typer.Option(help="An epsilon to refute; if left out, the one this library claims.")
    ] = None,
    clusters: Annotated[int, typer.Option(help="Most places at which the shared records lie.")] = 4,
    seconds: Annotated[float, typer.Option(help="Longest search.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    json_: Json = False,
) -> None:
    """Search made-up neighbouring data sets for the pair that leaks most: no epsilon below theirs can be true.

    Reads no records. Exit code 4 if the claim is refuted.
    """
    with plain_errors():
        shape, box, rare = (
            options.covariance(kernel, length_scale, alpha),
            options.box(domain),
            options.delta_of(delta, n),
        )
        account: dict[str, Any] = {"ridge": ridge, "scale": scale, "paths": paths}
        if claimed is None:
            assumption = _assumption(shape, box, response_bound)
            claimed = _claimed(n, rare, assumption, shape.least_value(box), neighbours, account)
        found = audit_pair(
            shape,
            box,
            n=n,
            delta=rare,
            response_bound=response_bound,
            neighbours=neighbours,
            claimed=claimed,
            clusters=clusters,
            seed=seed,
            time_limit=seconds,
            **account,
        )
        lines = [
            f"{found} (neighbours: {neighbours}).",
            f"Witness: {found.witness}. D has {n if neighbours is Neighbours.REPLACE else found.witness.size} records; "
            f"the larger profile is that of {found.direction}.",
        ]
        if not found.complete:
            lines.append(f"The search stopped after {seconds:g} seconds: a longer one may find more.")
        show(found.to_dict(), as_json=json_, lines=lines)
    if found.refuted:
        raise typer.Exit(REFUSED)


def _assumption(kernel: Kernel, box: Box, bound: float) -> Assumption:
    """The strongest assumption under which every data set of the search falls."""
    for kind in (Exponential1D, Diagonal):
        try:
            kind(bound).check(kernel, box.dimension)
        except ValueError:
            continue
        return kind(bound)
    return Bounded(bound)


def _claimed(
    n: int,
    delta: float,
    assumption: Assumption,
    least_kernel: float,
    neighbours: Neighbours,
    account: dict[str, Any],
) -> float:
    """The epsilon that this library would certify."""
    if neighbours is Neighbours.ADD_REMOVE:
        return add_remove_epsilon(delta=delta, assumption=assumption, most_records=n, **account)
    account = account | {"n": n, "assumption": assumption, "least_kernel": least_kernel}
    return posterior_price(delta=delta, **account).epsilon
