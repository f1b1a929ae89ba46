"""``discretion plan``: the best release, forecast from public knowledge before anything private is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from discretion.cli import options, tables
from discretion.cli.console import note, plain_errors, show, stderr
from discretion.cli.groups import grouped
from discretion.cli.planning import (
    FLOOR,
    MAP,
    OF_TABLES,
    OUTPUT,
    PRIVACY,
    PUBLIC,
    Grid,
    Knowledge,
    Problem,
    Release,
    prior_lines,
)
from discretion.cli.prior import districts_on
from discretion.gp import Lattice
from discretion.posterior.planner import MapPlan, PosteriorPlan, plan_map, plan_posterior
from discretion.posterior.planner.lattices import Graph
from discretion.posterior.planner.scales import PLANNED_RULES
from discretion.privacy import round_up_significant

plan = typer.Typer(no_args_is_help=True, help="Which release is best, from public knowledge alone.")


@plan.callback()
def _plan() -> None:
    """Which release is best, from public knowledge alone."""


@plan.command("map")
@grouped
def plan_map_(
    context: typer.Context,
    problem: Problem,
    grid: Grid,
    known: Knowledge,
    reading: Annotated[tables.Reading, OF_TABLES],
    *,
    threshold: Annotated[
        float | None,
        typer.Option(help="Map where the response is at least this; the middle of its range.", rich_help_panel=PUBLIC),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Target epsilon.", rich_help_panel=PRIVACY)] = 1.0,
    epsilons: Annotated[
        str, typer.Option(help="Epsilons of the frontier, beside the target.", rich_help_panel=PRIVACY)
    ] = "9,3,1,0.3",
    paths: Annotated[
        int,
        typer.Option(help="Number of sample paths to release, where paths are best.", rich_help_panel=PRIVACY),
    ] = 1,
    floor: Annotated[
        float,
        typer.Option(help="kernel-sum: rows that must be near for a local mean to be drawn.", rich_help_panel=MAP),
    ] = FLOOR,
    posterior: Annotated[
        bool,
        typer.Option(
            help="Simulate posterior paths of kernels too; above 20,000 records on a line only.",
            rich_help_panel=OUTPUT,
        ),
    ] = True,
    lattice: Annotated[
        bool, typer.Option(help="Simulate posterior paths on hexagons too, in the plane.", rich_help_panel=OUTPUT)
    ] = True,
    districts: Annotated[
        Path | None,
        typer.Option(
            help="Public GeoJSON of districts: simulate those paths on them instead, which finds killing and ridge for "
            "release --prior districts:FILE.",
            rich_help_panel=MAP,
        ),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(help="--districts: width of gaps between borders that count as shared.", rich_help_panel=MAP),
    ] = 0.0,
    worlds: Annotated[int, typer.Option(help="Number of simulated worlds.", rich_help_panel=OUTPUT)] = 200,
    seed: Annotated[int, typer.Option(help="Of the public simulation.", rich_help_panel=OUTPUT)] = 0,
    out: Annotated[Path | None, typer.Option(help="Picture of the frontier (PNG).", rich_help_panel=OUTPUT)] = None,
    json_: options.OutputJson = False,
    config: options.Config = None,
) -> None:
    """The best release of a map, whether it would be useful, and the smallest epsilon at which anything is.

    Everything is simulated from public knowledge: a declared Gaussian process, or an earlier table that is public.
    No private table is opened, so a plan costs no privacy.
    """
    with plain_errors():
        prior = known.prior(context, problem, reading)
        place = grid.parameters(problem.box)
        graph: bool | Callable[[float], Lattice] = lattice
        if districts is None:
            options.refuse_given(context, ("gap",), "only --districts has it")
        elif not lattice or grid.region is not None or problem.box.dimension != 2:
            raise ValueError(
                "--districts are planned in the plane and inside their own outlines: no --region, no --no-lattice."
            )
        else:
            areas = districts_on(problem.box, districts, gap=gap, projection=problem.projection)
            graph, place = areas.lattice, place | {"region": lambda X: areas.find(X) >= 0}
        with stderr.status("Planning") as status:
            found = plan_map(
                **problem.parameters(),
                **place,
                prior=prior,
                threshold=threshold,
                epsilon=epsilon,
                epsilons=options.numbers(epsilons, "--epsilons"),
                paths=paths,
                floor=floor,
                posterior=posterior,
                lattice=graph,
                worlds=worlds,
                seed=seed,
                progress=lambda step: status.update(f"{step} ..."),
            )
        if out is not None:
            _draw(out, found)
        release = Release(problem, grid, known, reading, found.setting.threshold)
        command = release.of_map(found, floor, districts, gap)
        lines = [*_lines(found), "", *_how(found, release.automatic), command]
        show(found.to_dict() | {"command": command}, as_json=json_, lines=lines)
        if not json_:
            for each in found.notes:
                note(each)


def _how(found: MapPlan, automatic: bool) -> list[str]:
    """What the command below makes."""
    best = found.recommended
    if not best.decoder:
        return [f"The release, with your own table and columns.{_remember(best.epsilon, best.delta)}"]
    if automatic:
        return [
            "The release, which plans again, for the rows of your table, and decodes."
            f"{_remember(best.epsilon, best.delta)}"
        ]
    return ["The release, with your own table and columns. The decoder of this prior is in Python: plan.decoder(...)."]


def _lines(found: MapPlan) -> list[str]:
    r, setting = found.recommended, found.setting
    forecast, score = found.forecast, found.trivial
    water = found.water_filling
    lines = [
        found.verdict,
        *([found.cause] if found.cause else []),
        f"({found.rule})",
        "",
        f"Recommended: {found.words}",
        f"  scale {r.scale:.6g}, epsilon {r.epsilon:g}, delta {round_up_significant(r.delta)}, n = {setting.n:,}",
        f"  IoU with the true set {forecast.iou}; agreement with the map without privacy {forecast.agreement}",
        f"  RMSE of the local mean {forecast.rmse}; without privacy this map would have IoU {forecast.ceiling}",
        f"Trivial: all places {score['all places']}, no places {score['no places']}; best constant RMSE "
        f"{score['best constant (RMSE)']}",
        f"First guess by water-filling: {water['kernel']['name']} {water['kernel']['length_scale']:.3g}, decoded error "
        f"{water['error']:.3g} of the prior variance; no stationary kernel is below {water['least_error']:.3g}",
        *prior_lines(found.prior),
        "",
    ]
    for each in found.candidates:
        if isinstance(each.kernel, Graph):
            lines += [
                f"On the districts: --killing {each.kernel.killing:g} --ridge {each.ridge:g}, scale {each.scale:.4g}: "
                f"IoU {each.iou}, of one path",
                "",
            ]
    lines += ["Best map, by epsilon (= means not clearly below):"]
    lines += [f"  {epsilon:g}: {label}" for epsilon, label in found.best.items()]
    return [*lines, "", "Undecided: the share between the inner and the outer set of 95 % confidence", *_table(found)]


def _table(found: MapPlan) -> list[str]:
    table = Table("epsilon", "release", "kernel", "IoU", "agreement", "RMSE", "undecided", box=None, pad_edge=False)
    for each in found.frontier:
        kernel = f"{each.kernel.name} {each.kernel.length_scale:.3g}"
        kernel += "" if each.ridge is None else f", ridge {each.ridge:.3g}"
        open_ = found.undecided(each)
        scores = (str(each.iou), str(each.agreement), str(each.rmse), "" if open_ is None else str(open_))
        table.add_row(f"{each.epsilon:g}", each.label, kernel, *scores)
    console = Console(width=140, color_system=None)
    with console.capture() as text:
        console.print(table)
    return [line.rstrip() for line in text.get().splitlines()]


def _draw(out: Path, found: MapPlan) -> None:
    # matplotlib is loaded only for a picture
    from discretion.posterior.planner.usefulness import LEAST_GAIN, LEAST_OVERLAP
    from discretion.spatial.frontier import Point, draw_frontier

    s, r = found.setting, found.recommended
    best = max(found.trivial[name].mean for name in ("all places", "no places"))
    prior = found.prior["kind"] + (f" ({found.prior['name']})" if "name" in found.prior else "")
    draw_frontier(
        out,
        [Point(each.label, each.epsilon, each.iou.mean, each.iou.se) for each in found.frontier],
        trivial=best,
        floor=max(LEAST_OVERLAP, best + LEAST_GAIN),
        target=r.epsilon,
        not_useful_below=found.not_useful_below,
        subtitle=f"Map of response >= {s.threshold:g} from {s.n:,} records. {found.verdict}",
        note=f"Simulated worlds, no private data. Prior: {prior}. Bands: two standard errors by world; shaded: not "
        f"useful.\nRecommended at epsilon {r.epsilon:g}: {found.words}.",
    )


@plan.command("posterior")
@grouped
def plan_posterior_(
    context: typer.Context,
    problem: Problem,
    grid: Grid,
    known: Knowledge,
    reading: Annotated[tables.Reading, OF_TABLES],
    *,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Score paths by the set where the response is at least this; by correlation if left out.",
            rich_help_panel=PUBLIC,
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Target epsilon of all paths.", rich_help_panel=PRIVACY)] = 3.0,
    paths: Annotated[int, typer.Option(help="Number of sample paths to release.", rich_help_panel=PRIVACY)] = 1,
    rule: Annotated[
        str, typer.Option(help=f"What prices them: {', '.join(PLANNED_RULES)}.", rich_help_panel=PRIVACY)
    ] = "closed-form",
    kernels: Annotated[
        str,
        typer.Option(
            help="Kernels to try, with commas: exponential, matern32, matern52, rbf. If left out exponential,rbf on a "
            "line (above 20,000 records exponential,matern32) and rbf elsewhere.",
            rich_help_panel=PUBLIC,
        ),
    ] = "",
    worlds: Annotated[int, typer.Option(help="Number of simulated worlds.", rich_help_panel=OUTPUT)] = 120,
    seed: Annotated[int, typer.Option(help="Of the public simulation.", rich_help_panel=OUTPUT)] = 0,
    jobs: Annotated[int, typer.Option(help="Kernels at once; -1: one a core.", rich_help_panel=OUTPUT)] = 1,
    json_: options.OutputJson = False,
    config: options.Config = None,
) -> None:
    """Kernel, ridge and scale of the best posterior path at an epsilon, how good it would be, and the release command.

    Everything is simulated from public knowledge: a declared Gaussian process, or an earlier table that is public.
    No private table is opened, so a plan costs no privacy. A plan that was stopped goes on where it was.
    """
    with plain_errors():
        prior = known.prior(context, problem, reading, unused=())
        if known.covariates:
            tables.names_of(known.covariates, problem.box)
        with stderr.status("Planning") as status:
            found = plan_posterior(
                **problem.parameters(),
                **grid.parameters(problem.box),
                prior=prior,
                threshold=threshold,
                epsilon=epsilon,
                paths=paths,
                rule=rule,
                kernels=tuple(name.strip() for name in kernels.split(",")) if kernels else None,
                worlds=worlds,
                seed=seed,
                jobs=jobs,
                progress=lambda step: status.update(f"{step} ..."),
            )
        command = Release(problem, grid, known, reading, threshold).of_paths(found)
        show(found.to_dict() | {"command": command}, as_json=json_, lines=[*_posterior_lines(found), "", command])
        if not json_:
            for each in found.notes:
                note(each)


def _posterior_lines(found: PosteriorPlan) -> list[str]:
    best, free = found.recommended, found.without_privacy
    many = f"{found.paths} path{'s' if found.paths > 1 else ''}"
    trivial = ", ".join(f"{name} {score}" for name, score in found.trivial.items())
    return [
        found.verdict,
        *([found.cause] if found.cause else []),
        f"({found.rule_of_use})",
        "",
        f"Recommended: {many}, {best.words}, scale {best.choice.scale:.6g} ({found.setting.coordinates} coordinates)",
        f"  epsilon {found.epsilon:g}, delta {round_up_significant(found.delta)}, n = {found.setting.n:,}, rule "
        f"{found.rule}",
        f"  {best.quality.measure} of one path {best.quality.one}"
        + (f", of all together {best.quality.together}" if found.paths > 1 else ""),
        f"Without privacy: {free.quality.measure} {free.quality.together} ({free.words})",
        f"Trivial: {trivial}",
        *prior_lines(found.prior),
        f"{found.worlds} worlds, seed {found.seed}, {found.seconds:.0f} s",
        "",
        "Medians [quartiles]; runners-up are the best paths of other kernels:",
        *(f"  {line}" for line in found.table()),
        "",
        f"The release, with your own table and columns.{_remember(found.epsilon, found.delta)}",
    ]


def _remember(epsilon: float, delta: float) -> str:
    """How to have the release booked, and what of, before the command is told."""
    return (
        " To remember what was spent, first\n"
        f"  discretion ledger init spent.ledger --dataset NAME --epsilon {epsilon:g} --delta "
        f"{round_up_significant(delta)}\n"
        "and then --ledger=spent.ledger, a --delta no larger, and the --unit that your rows are of, in"
    )
