"""``discretion audit``: what a release leaks at least, beside what it is claimed to leak at most."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from discretion.audit import audit_pair
from discretion.cli import options
from discretion.cli.console import REFUSED, plain_errors, searching, show
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
    context: typer.Context,
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
    neighbours: Annotated[Neighbours, options.relation("replace (n public) or add-remove.")] = Neighbours.REPLACE,
    assumption: Annotated[
        str | None,
        typer.Option(
            help="Under which this library's claim is made: bounded, exponential-1d or diagonal; if left out, the "
            "strongest that every data set of the search meets."
        ),
    ] = None,
    claimed: Annotated[
        float | None, typer.Option(help="An epsilon to refute; if left out, the one this library claims.")
    ] = None,
    clusters: Annotated[int, typer.Option(help="Most places at which the shared records lie.")] = 4,
    seconds: Annotated[
        float, typer.Option(help="Longest search for the pair; the price of the claim comes on top.")
    ] = 20.0,
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
        if not 0 < seconds < math.inf:
            raise ValueError(f"--seconds must be a positive number; got {seconds:g}.")
        account: dict[str, Any] = {"ridge": ridge, "scale": scale, "paths": paths}
        under = None
        if claimed is None:
            under = _assumption(assumption, shape, box, response_bound)
            claimed = _claimed(n, rare, under, shape.least_value(box), neighbours, account)
        else:
            options.refuse_given(context, ("assumption",), "it is for this library's claim; leave out --claimed")
        with searching(f"Searching for the pair that leaks most, for {seconds:g} s at most (--seconds)"):
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
        if under is not None:
            lines.append(f"The claim is this library's, under the assumption {under.name} (--assumption).")
        show(found.to_dict() | {"assumption": None if under is None else under.name}, as_json=json_, lines=lines)
    if found.refuted:
        raise typer.Exit(REFUSED)


def _assumption(named: str | None, kernel: Kernel, box: Box, bound: float) -> Assumption:
    """What was named; else the strongest assumption that every data set of the search meets.

    ValueError for one that they do not meet: what they leak then says nothing about a claim.
    """
    if named is not None:
        found = options.assumption_of(named, bound, kernel)
        if not isinstance(found, Bounded | Exponential1D | Diagonal):
            raise ValueError(
                f"--assumption {named} excludes data sets of this search, so that what they leak says nothing about a "
                "claim under it: bounded, exponential-1d or diagonal."
            )
        found.check(kernel, box.dimension)
        return found
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
