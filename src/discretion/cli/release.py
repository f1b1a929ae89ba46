"""``discretion release``: a table of sensitive points in, a map with a certificate out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options, prior, tables
from discretion.cli.console import note, plain_errors, show, steps
from discretion.cli.drawing import Drawing, Files
from discretion.cli.groups import grouped
from discretion.cli.protection import Protection
from discretion.cli.report import add_page
from discretion.cli.sheet import PathSheet, Sheet, check_geotiff, claim_folder
from discretion.cli.sums import SumSheet
from discretion.gp.cluster import Dask, connected
from discretion.posterior import (
    KernelSumMechanism,
    KernelSumRelease,
    LatticeMechanism,
    LatticeRelease,
    PathRelease,
    PosteriorMechanism,
)
from discretion.posterior.planner import MapPlan, PublicTable, plan_map
from discretion.privacy import Neighbours, PublicError, SystemRandomness, round_up, round_up_significant
from discretion.spatial.areas import Areas
from discretion.spatial.hexagons import unit_of_privacy

FILES = {*PathSheet.names(), *SumSheet.names()}
MECHANISMS = ("kernel-sum", "posterior", "auto")
MOST_POINTS = 20_000
POSTERIOR_ONLY = ("ridge", "paths", "prior_noise", "jitter", "assumption", "rule", "fraction", "smooth_")
CHOSEN = ("kernel", "length_scale", "alpha", "ridge", "paths", "scale", "prior_noise", "jitter", "assumption", "rule")
OF_GRIDS = ("kernel", "length_scale", "length_unit", "alpha", "prior_noise", "jitter", "nugget", "assumption", "grid")
OF_GRIDS += ("floor", "level", "public_table", "aggregate_")
OF_GRAPHS = ("killing", "share", "name_column", "gap", "rescale")

KERNEL, PRIVACY, MAP, OUTPUT = "The model", "Privacy", "The map", "Output"


@grouped
def release(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV (also .gz) or Parquet: one row per record.")],
    columns: tables.Columns,
    reading: tables.Reading,
    graph: prior.PriorOptions,
    protection: Protection,
    drawing: Drawing,
    files: Files,
    *,
    mechanism: Annotated[
        str,
        typer.Option(
            help="kernel-sum: smoothed sums of individual rows. posterior: Gaussian-process sample paths. "
            "auto: the one, with its kernel, that a plan recommends (discretion plan map).",
            rich_help_panel=KERNEL,
        ),
    ] = "kernel-sum",
    kernel: Annotated[
        str,
        typer.Option(
            help="exponential, exponential-l1, matern32, matern52, rbf, rational-quadratic or diagonal.",
            rich_help_panel=KERNEL,
        ),
    ] = "matern32",
    length_scale: Annotated[
        str,
        typer.Option(
            help="Length scale of the kernel; one, or one per covariate separated by commas.",
            rich_help_panel=KERNEL,
        ),
    ] = "0.03",
    length_unit: Annotated[
        str,
        typer.Option(
            help="domain: the domain is scaled to a unit box and length scales are fractions of its sides. "
            "data: length scales are in the units of the covariates.",
            rich_help_panel=KERNEL,
        ),
    ] = "domain",
    alpha: Annotated[
        float | None, typer.Option(help="Shape of the rational quadratic kernel.", rich_help_panel=KERNEL)
    ] = None,
    ridge: Annotated[
        float | None,
        typer.Option(
            help="Ridge r: the observation noise variance is r^2 scale^2; 300, or 6 on a lattice, if left out. Large "
            "ridges cost little; discretion plan map finds one, also for districts.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="Posterior scale; or give --epsilon.", rich_help_panel=KERNEL)
    ] = None,
    centre: Annotated[
        float | None,
        typer.Option(help="Public prior mean; the middle of --response-range if left out.", rich_help_panel=KERNEL),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="What prices the paths: closed-form, renyi (certified, seconds) or best (of one path its certified "
            "privacy profile, up to half a minute; not on a lattice). closed-form if left out, renyi on a lattice.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    prior_noise: Annotated[
        float, typer.Option(help="Scale of extra independent prior noise.", rich_help_panel=KERNEL)
    ] = 0.0,
    jitter: Annotated[
        float,
        typer.Option(help="Public constant on the Gram diagonal, accounted as ridge.", rich_help_panel=KERNEL),
    ] = 0.0,
    nugget: Annotated[
        float | None,
        typer.Option(
            help="Public nugget on released values, in units of scale^2; by rule if left out.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="posterior: compute the paths on the dask cluster of this scheduler, such as tls://scheduler:8786, "
            "whose workers see the private records.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    public_table: Annotated[
        Path | None,
        typer.Option(
            help="auto: an earlier table, with the same columns, that YOU DECLARE to be public; the plan rests on it.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Target epsilon of the whole release: the smallest scale that meets it is used.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    neighbours: Annotated[
        Neighbours,
        typer.Option(
            help="replace: the number of rows is public. add-remove: it is private; needs --delta as a number. "
            "replace-response: for --assumption response-only.",
            rich_help_panel=PRIVACY,
        ),
    ] = Neighbours.REPLACE,
    paths: Annotated[int, typer.Option(help="Number of sample paths to release.", rich_help_panel=PRIVACY)] = 1,
    assumption: Annotated[str | None, typer.Option(help=f"{options.ASSUMPTIONS}.", rich_help_panel=PRIVACY)] = None,
    max_per_unit: Annotated[
        int | None,
        typer.Option(
            help="Rows of one unit that take part, picked at random; 1 if left out. More cost about as many times "
            "the epsilon.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    json_: options.OutputJson = False,
    config: options.Config = None,
) -> None:
    """Publish a map of a private table, with a certificate of what it costs.

    The table's places and values are both private. Everything given here is public and must not be chosen by looking at
    the table. A neighbouring table differs in one whole row, or has one row more or fewer (--neighbours).
    """
    with plain_errors():
        on_graph = graph.prior is not None
        if on_graph:
            options.refuse_given(context, OF_GRIDS, "--prior has no use for it")
            if "mechanism" in options.given(context) and mechanism != "posterior":
                raise ValueError(f"--prior is for posterior paths; leave --mechanism {mechanism} out.")
            mechanism = "lattice"
        else:
            options.refuse_given(context, OF_GRAPHS, "only --prior has it")
        box, names, (low, high) = columns.box, columns.names, columns.range
        shape = options.counts(drawing.grid, box.dimension)
        middle = 0.5 * (low + high) if centre is None else centre
        points = math.prod(shape)
        most_of_one = 1 if max_per_unit is None else max_per_unit
        several_sums = mechanism == "kernel-sum" and protection.unit_id is not None and most_of_one > 1
        n_is_private = neighbours is Neighbours.ADD_REMOVE or several_sums
        memory = f"--grid {drawing.grid} has {points:,} points; posterior paths need memory in its square, so at most"
        options.check_delta(protection.delta)
        mistakes = (
            *drawing.mistakes(columns),
            *protection.mistakes(columns, neighbours, most_of_one if several_sums else 1),
            (length_unit not in ("domain", "data"), f"--length-unit is domain or data; got {length_unit!r}."),
            (
                mechanism not in MECHANISMS and not on_graph,
                f"--mechanism is {' or '.join(MECHANISMS)}; got {mechanism!r}.",
            ),
            (
                mechanism == "posterior" and points > MOST_POINTS,
                f"{memory} {MOST_POINTS:,}. --mechanism kernel-sum takes larger grids.",
            ),
            (
                cluster is not None and mechanism != "posterior",
                "--cluster computes posterior paths; give --mechanism posterior with it.",
            ),
            (
                mechanism == "auto"
                and (drawing.threshold is None or epsilon is None or neighbours is not Neighbours.REPLACE),
                "--mechanism auto plans the map of a --threshold at an --epsilon, for --neighbours replace.",
            ),
            (
                public_table is not None and mechanism != "auto",
                "--public-table is what --mechanism auto plans with; discretion plan map takes it too.",
            ),
            (
                public_table is not None and public_table.exists() and table.exists() and public_table.samefile(table),
                "--public-table is the private table itself: a plan made from it is a release that nobody paid for.",
            ),
            (most_of_one < 1, f"--max-per-unit must be at least 1; got {most_of_one}."),
            (
                max_per_unit is not None and protection.unit_id is None,
                "--max-per-unit needs --unit-id, the column that says whose each row is.",
            ),
            (
                mechanism == "auto" and most_of_one > 1,
                "--mechanism auto plans with one row a unit; name the mechanism for --max-per-unit above 1.",
            ),
            (
                on_graph and drawing.smooth_ != int(drawing.smooth_),
                f"--smooth on a lattice is a whole number of means with the neighbours; got {drawing.smooth_:g}.",
            ),
            (
                epsilon is not None and not 0 < epsilon < math.inf,
                f"--epsilon must be a positive number; got {epsilon}.",
            ),
            (
                (scale is None) == (epsilon is None),
                "Give --scale, or --epsilon to have the smallest scale that meets it; not both.",
            ),
            (
                files.private_report is not None and files.private_report.resolve().is_relative_to(files.out.resolve()),
                "--private-report must not lie in --out, which is for publishing.",
            ),
        )
        for made, mistake in mistakes:
            if made:
                raise ValueError(mistake)
        wanted = files.wanted(columns)
        rules = columns.rules(reading)
        who = protection.who(most_of_one)
        if rules.lattice is not None:
            who = unit_of_privacy(rules.lattice, columns.minimum_count, length=rules.length)
        common: dict[str, Any] = {
            "neighbours": neighbours,
            "unit": who.rstrip("."),
            "contributions": most_of_one,
        } | protection.bound()
        of_paths: dict[str, Any] = {"response_range": (low, high), "centre": middle, "paths": paths}
        of_paths |= {} if rule is None else {"rule": rule}
        own: dict[str, dict[str, Any]] = {}
        outline, areas = drawing.outline, None
        if on_graph:
            graph.formats(wanted)
            areas = graph.areas(box, outline, columns.projection)
            if drawing.threshold is not None and graph.rescale != 1.0:
                raise ValueError(
                    "--rescale changes the map of values alone, not outlines and shares: leave it or --threshold out."
                )
            own["lattice"] = {"lattice": areas.lattice, "ridge": 6.0 if ridge is None else ridge} | of_paths
        else:
            if "kernel" not in options.given(context):
                kernel = options.KERNEL_OF.get(assumption or "", kernel)
            covariance = options.covariance(kernel, length_scale, alpha)
            bound = max(high - middle, middle - low)
            common |= {
                "domain": box,
                "locations": box.grid(shape),
                "grid": shape,
                "coordinates": "unit" if length_unit == "domain" else "data",
                "nugget": nugget,
            }
            own["posterior"] = of_paths | {
                "kernel": covariance,
                "ridge": 300.0 if ridge is None else ridge,
                "jitter": jitter,
                "prior_noise": prior_noise,
                "assumption": None if assumption is None else options.assumption_of(assumption, bound, covariance),
                "engine": None if cluster is None else Dask(),
            }
            own["kernel-sum"] = {"kernels": covariance, "response_ranges": (low, high), "centres": (middle,)}
        if mechanism == "auto":
            options.refuse_given(context, CHOSEN, "--mechanism auto chooses it")
        elif mechanism == "kernel-sum":
            options.refuse_given(context, POSTERIOR_ONLY, "only --mechanism posterior has it")
        # Everything public is checked on a stand-in before the table is opened.
        standing = "kernel-sum" if mechanism == "auto" else mechanism
        standing_in = KINDS[standing](scale=1.0 if scale is None else scale, delta=0.5, **common, **own[standing])
        if isinstance(standing_in, LatticeMechanism):
            _ = standing_in.factor_error  # refuses a prior too near to a singular one
        if outline is not None and box.dimension == 2 and not on_graph:
            drawing.check_region(common["locations"])
        book = protection.book()
        if book is not None:
            book.check_unit(common["unit"])
        claim_folder(files.out, FILES, files.force)
        if columns.projection is None:
            tables.warn_of_degrees(names, box)
        elif "geotiff" in wanted:
            check_geotiff(files.out, box, columns.projection, common["unit"])

        with connected(cluster), steps() as step:
            step("Reading the table")
            public = None
            if public_table is not None:
                earlier = rules.read(public_table)
                public = PublicTable(earlier.covariates, earlier.response, public_table.name)
            protection.check_table(book, table)
            records = rules.read(table, protection.unit_id)
            if protection.unit_id is not None:
                records = records.bounded(most_of_one)
            tables.report(files.private_report, records)
            # Under add/remove the true number enters nothing.
            n = records.n if protection.most_records is None else protection.most_records
            common["delta"] = protection.delta_at(n)
            if not n_is_private and common["delta"] * n >= 1.0:
                note(
                    f"delta = {common['delta']:g} is 1/n or more: a release could publish whole records and keep the "
                    "promise. Well below 1/n is usual; --delta n^-1.1, the default, is."
                )
            plan = None
            if mechanism == "auto":
                step("Planning")
                plan = plan_map(
                    n=n,
                    domain=box,
                    response_range=(low, high),
                    grid=shape,
                    epsilon=epsilon or 0.0,
                    delta=common["delta"],
                    threshold=drawing.threshold,
                    centre=centre,
                    prior=public,
                    coordinates=common["coordinates"],
                    region=None if outline is None else outline.contains,
                    floor=drawing.floor,
                    posterior=points <= MOST_POINTS,
                    lattice=False,
                )
                mechanism = _planned(plan, own)
            step("Finding the price")
            kind, parameters = KINDS[mechanism], common | own[mechanism]
            ready = (
                kind.calibrated(n=n, epsilon=epsilon, **parameters)
                if epsilon is not None
                else kind(scale=scale or 0.0, **parameters)
            )
            if mechanism == "posterior" and drawing.threshold is not None:
                middle = 0.5 * (low + high) if centre is None else centre
                if middle != drawing.threshold:
                    note(
                        f"Paths of a large ridge keep near the centre, {middle:g}: a set of one side of "
                        f"{drawing.threshold:g} may then be nothing or all. --centre {drawing.threshold:g} asks there."
                    )
            step("Making the release")
            result = ready.run(records, SystemRandomness()) if book is None else book.run(ready, records, n=n)
            result = rules.noted(result)
            step("Writing")
            for name in FILES:
                # With --force: no file of an earlier release may stand beside this certificate.
                (files.out / name).unlink(missing_ok=True)
            page = drawing.page(columns, reading, wanted, mechanism)
            sheet: Sheet
            if isinstance(result, KernelSumRelease):
                decoder = plan.decoder(result.mechanism) if plan is not None and plan.recommended.decoder else None
                sheet = SumSheet(page, result, drawing.floor, drawing.level, decoder)
            elif isinstance(result, LatticeRelease):
                assert areas is not None
                sheet = prior.AreaSheet(page, result, areas, drawing.fraction, int(drawing.smooth_), graph.rescale)
            else:
                assert isinstance(result, PathRelease)
                sheet = PathSheet(page, result, drawing.fraction, drawing.smooth_)
            written = sheet.write(files.out)
            if files.report:
                written += add_page(files.out, page, drawing.floor, book)
        certificate = result.certificate
        if book is None:
            note("No --ledger: nothing remembers this release, so nothing stops the budget being spent twice.")
        if files.private_report is None:
            # Said whatever the records hold: whether any row was changed is itself private.
            note("How many rows the stated rules changed or left out is private; --private-report FILE writes it down.")
        show(
            {
                "epsilon": certificate.epsilon,
                "delta": certificate.delta,
                "order": certificate.order,
                "rule": certificate.rule,
                "neighbours": str(certificate.neighbours),
                "n": certificate.n,
                "mechanism": mechanism,
                "scale": ready.scale,
                **({} if mechanism == "kernel-sum" else {key: parameters[key] for key in ("ridge", "paths")}),
                **({} if plan is None else {"plan": plan.recommended.to_dict(), "verdict": plan.verdict}),
                "ledger_entry": certificate.ledger_entry,
                "out": str(files.out),
                "files": written,
            },
            as_json=json_,
            lines=[
                *([] if plan is None else [f"Planned: {plan.words}. {plan.verdict}"]),
                f"Released {_what(mechanism, paths)}{certificate.of_records} on {_where(areas, shape)}.",
                f"epsilon <= {round_up(certificate.epsilon, 3)} at delta = {round_up_significant(certificate.delta)} "
                f"(neighbours: {certificate.neighbours}; {certificate.rule}).",
                f"{files.out}: {', '.join(written)}",
            ],
        )


def _what(mechanism: str, paths: int) -> str:
    if mechanism == "kernel-sum":
        return "value sum and density"
    return f"{paths} path{'s' if paths > 1 else ''}"


def _where(areas: Areas | None, shape: tuple[int, ...]) -> str:
    if areas is None:
        return f"a grid of {' x '.join(map(str, shape))}"
    return f"{areas.lattice.size:,} {areas.kind}"


KINDS: dict[str, type[PosteriorMechanism] | type[KernelSumMechanism] | type[LatticeMechanism]] = {
    "posterior": PosteriorMechanism,
    "kernel-sum": KernelSumMechanism,
    "lattice": LatticeMechanism,
}


def _planned(plan: MapPlan, own: dict[str, dict[str, Any]]) -> str:
    """The mechanism that the plan recommends, its choices put among the mechanism's own parameters.

    Raises
    ------
    PublicError
        If nothing useful can be published.
    """
    if not plan.useful:
        trivial = max(plan.trivial[name].mean for name in ("all places", "no places"))
        raise PublicError(
            f"{plan.verdict} {plan.cause and f'{plan.cause} '}Nothing was spent. The best trivial map has IoU "
            f"{trivial:.2f} and the best release {plan.forecast.iou.mean:.2f}, if the field is as the prior has it "
            f"({plan.prior['kind']}). "
            "discretion plan map shows more and takes other priors; --mechanism kernel-sum releases a map all the same."
        )
    found = plan.recommended
    if found.mechanism == "posterior":
        own["posterior"] |= {"kernel": found.kernel, "ridge": found.ridge, "paths": found.paths}
        own["posterior"] |= {"centre": found.centre}
    else:
        own["kernel-sum"] |= {"kernels": found.kernel}
    return found.mechanism
