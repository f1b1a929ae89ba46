"""``discretion plan``: the best release, forecast from public knowledge before anything private is opened."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from discretion.cli import options, tables
from discretion.cli.console import note, plain_errors, show, stderr
from discretion.cli.groups import grouped
from discretion.posterior.planner import GaussianPrior, MapPlan, Prior, PublicTable, plan_map
from discretion.privacy import round_up_significant
from discretion.spatial.region import Region

plan = typer.Typer(no_args_is_help=True, help="Which release is best, from public knowledge alone.")

PUBLIC, PRIVACY, MAP, PRIOR, TABLE, OUTPUT = (
    "The problem",
    "Privacy",
    "The map",
    "Prior: a Gaussian process",
    "Prior: an earlier PUBLIC table",
    "Output",
)
OF_THE_PRIOR = ("prior_kernel", "prior_length_scale", "prior_amplitude", "prior_noise_sd", "prior_mean")
OF_THE_TABLE = ("covariates", "response", *(each.name for each in fields(tables.Reading)))


@plan.callback()
def _plan() -> None:
    """Which release is best, from public knowledge alone."""


@plan.command("map")
@grouped
def plan_map_(
    context: typer.Context,
    reading: Annotated[tables.Reading, TABLE],
    *,
    n: Annotated[int, typer.Option("--n", help="Expected number of records.", rich_help_panel=PUBLIC)],
    domain: Annotated[
        str, typer.Option(help="Public range of each covariate, low:high with commas.", rich_help_panel=PUBLIC)
    ],
    response_range: Annotated[
        str, typer.Option(help="Public range of the response after --transform.", rich_help_panel=PUBLIC)
    ],
    threshold: Annotated[
        float | None,
        typer.Option(help="Map where the response is at least this; the middle of its range.", rich_help_panel=PUBLIC),
    ] = None,
    centre: Annotated[
        float | None, typer.Option(help="Centre of the sums; the middle of the range.", rich_help_panel=PUBLIC)
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Target epsilon.", rich_help_panel=PRIVACY)] = 1.0,
    delta: Annotated[
        str, typer.Option(help="A number, or n^-1.1 of the number of records.", rich_help_panel=PRIVACY)
    ] = "n^-1.1",
    epsilons: Annotated[
        str, typer.Option(help="Epsilons of the frontier, beside the target.", rich_help_panel=PRIVACY)
    ] = "9,3,1,0.3",
    grid: Annotated[
        str, typer.Option(help="Grid points along each axis, such as 60 or 60,40.", rich_help_panel=MAP)
    ] = "60",
    floor: Annotated[
        float, typer.Option(help="Rows that must be near for a local mean to be drawn.", rich_help_panel=MAP)
    ] = 20.0,
    length_unit: Annotated[
        str, typer.Option(help="domain or data: what the recommended length scale is in.", rich_help_panel=MAP)
    ] = "domain",
    region: Annotated[
        Path | None, typer.Option(help="Public GeoJSON outline; the map is scored inside.", rich_help_panel=MAP)
    ] = None,
    prior_kernel: Annotated[
        str, typer.Option(help="exponential, matern32, matern52 or rbf.", rich_help_panel=PRIOR)
    ] = "matern32",
    prior_length_scale: Annotated[
        float, typer.Option(help="As a share of the domain's shortest side.", rich_help_panel=PRIOR)
    ] = 0.2,
    prior_amplitude: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the field; a sixth of the response range.", rich_help_panel=PRIOR),
    ] = None,
    prior_noise_sd: Annotated[
        float | None,
        typer.Option(help="Standard deviation of responses about it; that of the field.", rich_help_panel=PRIOR),
    ] = None,
    prior_mean: Annotated[
        float | None, typer.Option(help="Mean of the field; the middle of the range.", rich_help_panel=PRIOR)
    ] = None,
    public_table: Annotated[
        Path | None,
        typer.Option(
            help="An earlier table that YOU DECLARE to be public: it is read, and the plan shows what it shows.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    covariates: Annotated[
        str, typer.Option(help="Its columns that say where, separated by a comma.", rich_help_panel=TABLE)
    ] = "",
    response: Annotated[str, typer.Option(help="Its column that says what.", rich_help_panel=TABLE)] = "",
    posterior: Annotated[
        bool, typer.Option(help="Simulate posterior paths too (at most 20,000 records).", rich_help_panel=OUTPUT)
    ] = True,
    lattice: Annotated[
        bool, typer.Option(help="Simulate posterior paths on hexagons too, in the plane.", rich_help_panel=OUTPUT)
    ] = True,
    worlds: Annotated[int, typer.Option(help="Number of simulated worlds.", rich_help_panel=OUTPUT)] = 200,
    seed: Annotated[int, typer.Option(help="Of the public simulation.", rich_help_panel=OUTPUT)] = 0,
    out: Annotated[Path | None, typer.Option(help="Picture of the frontier (PNG).", rich_help_panel=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.", rich_help_panel=OUTPUT)] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of these options; the command line wins.",
            callback=options.read_config,
            is_eager=True,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """The best release of a map, whether it would be useful, and the smallest epsilon at which anything is.

    Everything is simulated from public knowledge: a declared Gaussian process, or an earlier table that is public.
    No private table is opened, so a plan costs no privacy.
    """
    with plain_errors():
        box = options.box(domain)
        low, high = options.interval(response_range, "--response-range")
        if length_unit not in ("domain", "data"):
            raise ValueError(f"--length-unit is domain or data; got {length_unit!r}.")
        if region is not None and box.dimension != 2:
            raise ValueError("--region needs two covariates.")
        prior: Prior
        if public_table is None:
            options.refuse_given(context, OF_THE_TABLE, "only --public-table has it")
            prior = GaussianPrior(prior_length_scale, prior_amplitude, prior_noise_sd, prior_mean, prior_kernel)
        else:
            options.refuse_given(context, OF_THE_PRIOR, "--public-table takes its place")
            if not covariates or not response:
                raise ValueError("--public-table needs --covariates and --response.")
            names = tables.names_of(covariates, box)
            rules = reading.rules(names, response, box, (low, high))
            records = rules.read(public_table)
            prior = PublicTable(records.covariates, records.response, public_table.name)
        outline = None if region is None else Region.read(region)
        with stderr.status("Planning") as status:
            found = plan_map(
                n=n,
                domain=box,
                response_range=(low, high),
                grid=options.counts(grid, box.dimension),
                epsilon=epsilon,
                delta=options.delta_of(delta, n),
                threshold=threshold,
                centre=centre,
                prior=prior,
                epsilons=options.numbers(epsilons, "--epsilons"),
                coordinates="unit" if length_unit == "domain" else "data",
                region=None if outline is None else outline.contains,
                floor=floor,
                posterior=posterior,
                lattice=lattice,
                worlds=worlds,
                seed=seed,
                progress=lambda step: status.update(f"{step} ..."),
            )
        if out is not None:
            _draw(out, found)
        show(found.to_dict(), as_json=json_, lines=_lines(found))
        if not json_:
            for each in found.notes:
                note(each)


def _lines(found: MapPlan) -> list[str]:
    r, prior, setting = found.recommended, found.prior, found.setting
    forecast, score = found.forecast, found.trivial
    law = prior.get("fitted", prior)
    what = f"length scale {law['length_scale']:.3g}, amplitude {law['amplitude']:.3g}, noise sd {law['noise_sd']:.3g}"
    water = found.water_filling
    lines = [
        found.verdict,
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
        f"Prior: {prior['kind']}" + (f", {prior['name']}, {prior['rows']:,} rows" if "rows" in prior else ""),
        f"  {law['kernel']}, {what}, mean {law['mean']:.4g}",
        "",
    ]
    lines += ["Best map, by epsilon (= means not clearly below):"]
    lines += [f"  {epsilon:g}: {label}" for epsilon, label in found.best.items()]
    return [*lines, "", *_table(found)]


def _table(found: MapPlan) -> list[str]:
    table = Table("epsilon", "release", "kernel", "IoU", "agreement", "RMSE", box=None, pad_edge=False)
    for each in found.frontier:
        kernel = f"{each.kernel.name} {each.kernel.length_scale:.3g}"
        kernel += "" if each.ridge is None else f", ridge {each.ridge:.3g}"
        scores = (str(each.iou), str(each.agreement), str(each.rmse))
        table.add_row(f"{each.epsilon:g}", each.label, kernel, *scores)
    console = Console(width=140, color_system=None)
    with console.capture() as text:
        console.print(table)
    return [line.rstrip() for line in text.get().splitlines()]


def _draw(out: Path, found: MapPlan) -> None:
    # matplotlib is loaded only for a picture
    from discretion.posterior.planner.plan import LEAST_GAIN, LEAST_OVERLAP
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
