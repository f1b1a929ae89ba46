"""``discretion release``: a table of sensitive points in, a map with a certificate out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options, tables
from discretion.cli.console import note, plain_errors, show, steps
from discretion.cli.sheet import Page, PathSheet, SumSheet, check_geotiff, claim_folder
from discretion.posterior import KernelSumMechanism, KernelSumRelease, PathRelease, PosteriorMechanism
from discretion.posterior.planner import MapPlan, PublicTable, plan_map
from discretion.posterior.units import unit_in_words
from discretion.privacy import Ledger, Neighbours, PublicError, SystemRandomness, round_up, round_up_significant
from discretion.spatial.hexagons import unit_of_privacy
from discretion.spatial.projection import Projection
from discretion.spatial.raster import suffix
from discretion.spatial.region import Region

FILES = {*PathSheet.names(), *SumSheet.names()}
MECHANISMS = ("kernel-sum", "posterior", "auto")
MOST_POINTS = 20_000
POSTERIOR_ONLY = ("ridge", "paths", "prior_noise", "jitter", "assumption", "rule", "fraction", "smooth_")
CHOSEN = ("kernel", "length_scale", "alpha", "ridge", "paths", "scale", "prior_noise", "jitter", "assumption", "rule")

ONE_ROW = "one row of the table; a person with several rows is not covered as a whole"

KERNEL, PRIVACY, MAP, OUTPUT = "The model", "Privacy", "The map", "Output"


def release(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV (also .gz) or Parquet: one row per record.")],
    covariates: tables.Covariates,
    response: tables.Response,
    domain: tables.Domain,
    response_range: tables.ResponseRange,
    out: Annotated[Path, typer.Option(help="Folder for the results; made if missing.", rich_help_panel=OUTPUT)],
    transform: tables.Transform = "none",
    where: tables.Where = None,
    aggregate_: tables.Aggregate = None,
    minimum_count: tables.MinimumCount = 3,
    outside: tables.Outside = "refuse",
    missing: tables.Missing = "refuse",
    delimiter: tables.Delimiter = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = "utf-8-sig",
    crs: tables.Crs = None,
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
            help="exponential, matern32, matern52, rbf, rational-quadratic or diagonal.",
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
        float,
        typer.Option(
            help="Ridge r: the observation noise variance is r^2 scale^2. Large ridges cost little.",
            rich_help_panel=KERNEL,
        ),
    ] = 300.0,
    scale: Annotated[
        float | None, typer.Option(help="Posterior scale; or give --epsilon.", rich_help_panel=KERNEL)
    ] = None,
    centre: Annotated[
        float | None,
        typer.Option(help="Public prior mean; the middle of --response-range if left out.", rich_help_panel=KERNEL),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="What prices the paths: closed-form, renyi (certified, seconds) or best (of one path its certified "
            "privacy profile, up to half a minute).",
            rich_help_panel=KERNEL,
        ),
    ] = "closed-form",
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
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Target epsilon of the whole release: the smallest scale that meets it is used.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    delta: Annotated[
        str,
        typer.Option(help="Target delta: a number, or n^-1.1 of the number of records.", rich_help_panel=PRIVACY),
    ] = "n^-1.1",
    neighbours: Annotated[
        Neighbours,
        typer.Option(
            help="replace: the number of rows is public. add-remove: it is private; needs --delta as a number.",
            rich_help_panel=PRIVACY,
        ),
    ] = Neighbours.REPLACE,
    most_records: Annotated[
        int | None,
        typer.Option(
            help="Public bound of the number of rows, where that is private: under add-remove, and for kernel sums of "
            "several rows a unit.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    paths: Annotated[int, typer.Option(help="Number of sample paths to release.", rich_help_panel=PRIVACY)] = 1,
    assumption: Annotated[str | None, typer.Option(help=f"{options.ASSUMPTIONS}.", rich_help_panel=PRIVACY)] = None,
    unit: Annotated[
        str,
        typer.Option(
            help="What one row is, or with --unit-id one unit, in words, for the certificate.", rich_help_panel=PRIVACY
        ),
    ] = ONE_ROW,
    unit_id: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose each row is: the promise is then for all rows of one unit, not for one row.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    max_per_unit: Annotated[
        int | None,
        typer.Option(
            help="Rows of one unit that take part, picked at random; 1 if left out. More cost about as many times "
            "the epsilon.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger that pays: a file or a postgresql:// URL (discretion ledger init makes one).",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    grid: Annotated[
        str, typer.Option(help="Grid points along each axis, such as 60 or 60,40.", rich_help_panel=MAP)
    ] = "60",
    threshold: Annotated[
        float | None,
        typer.Option(help="Map where the response is at least this (after --transform).", rich_help_panel=MAP),
    ] = None,
    below: Annotated[bool, typer.Option(help="Map where it is at most the threshold.", rich_help_panel=MAP)] = False,
    fraction: Annotated[float, typer.Option(help="Share of the paths that must agree.", rich_help_panel=MAP)] = 0.5,
    smooth_: Annotated[
        float,
        typer.Option("--smooth", help="Gaussian smoothing of the paths, sd in grid cells.", rich_help_panel=MAP),
    ] = 0.0,
    floor: Annotated[
        float,
        typer.Option(help="kernel-sum: rows that must be near for a local mean to be drawn.", rich_help_panel=MAP),
    ] = 20.0,
    public_table: Annotated[
        Path | None,
        typer.Option(
            help="auto: an earlier table, with the same columns, that YOU DECLARE to be public; the plan rests on it.",
            rich_help_panel=KERNEL,
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(help="kernel-sum: confidence of the inner and outer set.", rich_help_panel=MAP)
    ] = 0.95,
    region: Annotated[
        Path | None,
        typer.Option(
            help="Public GeoJSON outline in the table's coordinates; the map stays inside.",
            rich_help_panel=MAP,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the map.", rich_help_panel=MAP)] = None,
    units: Annotated[str | None, typer.Option(help="Units of the response on the legend.", rich_help_panel=MAP)] = None,
    source: Annotated[str, typer.Option(help="Attribution of the data, printed on the map.", rich_help_panel=MAP)] = "",
    formats: Annotated[
        str,
        typer.Option(
            help="Further files: geotiff, geoparquet, or both with a comma; need --crs.", rich_help_panel=OUTPUT
        ),
    ] = "",
    force: Annotated[bool, typer.Option(help="Replace earlier results in --out.", rich_help_panel=OUTPUT)] = False,
    private_report: Annotated[
        Path | None,
        typer.Option(
            help="PRIVATE file for the data owner: how many rows were dropped, clamped, clipped.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=OUTPUT)] = False,
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
    """Publish a map of a private table, with a certificate of what it costs.

    The table's places and values are both private. Everything given here is public and must not be chosen by looking at
    the table. A neighbouring table differs in one whole row, or has one row more or fewer (--neighbours).
    """
    with plain_errors():
        box = options.box(domain)
        names = tables.names_of(covariates, box)
        shape = options.counts(grid, box.dimension)
        low, high = options.interval(response_range, "--response-range")
        middle = 0.5 * (low + high) if centre is None else centre
        points = math.prod(shape)
        most_of_one = 1 if max_per_unit is None else max_per_unit
        several_sums = mechanism == "kernel-sum" and unit_id is not None and most_of_one > 1
        n_is_private = neighbours is Neighbours.ADD_REMOVE or several_sums
        memory = f"--grid {grid} has {points:,} points; posterior paths need memory in its square, so at most"
        mistakes = (
            (threshold is not None and box.dimension != 2, "--threshold draws a map and needs two covariates."),
            (
                threshold is not None and not low <= threshold <= high,
                f"--threshold {threshold} lies outside --response-range {response_range}.",
            ),
            (not 0 < fraction <= 1, f"--fraction must lie above 0 and at most at 1; got {fraction:g}."),
            (not 0 < level < 1, f"--level must lie strictly between 0 and 1; got {level:g}."),
            (not 0 <= smooth_ < math.inf, f"--smooth must be a number >= 0; got {smooth_:g}."),
            (not 0 <= floor < math.inf, f"--floor must be a number >= 0; got {floor:g}."),
            (minimum_count < 1, f"--minimum-count must be at least 1; got {minimum_count}."),
            (length_unit not in ("domain", "data"), f"--length-unit is domain or data; got {length_unit!r}."),
            (mechanism not in MECHANISMS, f"--mechanism is {' or '.join(MECHANISMS)}; got {mechanism!r}."),
            (
                mechanism == "posterior" and points > MOST_POINTS,
                f"{memory} {MOST_POINTS:,}. --mechanism kernel-sum takes larger grids.",
            ),
            (
                mechanism == "auto" and (threshold is None or epsilon is None or neighbours is not Neighbours.REPLACE),
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
            (
                (most_records is None) == (neighbours is Neighbours.ADD_REMOVE) and not several_sums,
                "--neighbours add-remove and --most-records, a public bound of the number of rows, go together.",
            ),
            (
                several_sums and most_records is None,
                "--max-per-unit above 1: a unit may have more or fewer rows, so their number is private; give "
                "--most-records, a public bound of it.",
            ),
            (
                n_is_private and delta.startswith("n"),
                f"--{'max-per-unit' if several_sums else 'neighbours add-remove'}: the number of rows is private, so "
                "--delta must be a number.",
            ),
            (most_of_one < 1, f"--max-per-unit must be at least 1; got {most_of_one}."),
            (
                max_per_unit is not None and unit_id is None,
                "--max-per-unit needs --unit-id, the column that says whose each row is.",
            ),
            (
                unit_id is not None and aggregate_ is not None,
                "--aggregate makes one record of each hexagon, in which the rows of many units are mixed; there is no "
                "account of units for that. Leave --unit-id out, or release the rows themselves.",
            ),
            (
                mechanism == "auto" and most_of_one > 1,
                "--mechanism auto plans with one row a unit; name the mechanism for --max-per-unit above 1.",
            ),
            (
                (scale is None) == (epsilon is None),
                "Give --scale, or --epsilon to have the smallest scale that meets it; not both.",
            ),
            (
                private_report is not None and private_report.resolve().is_relative_to(out.resolve()),
                "--private-report must not lie in --out, which is for publishing.",
            ),
        )
        for made, mistake in mistakes:
            if made:
                raise ValueError(mistake)
        covariance = options.covariance(kernel, length_scale, alpha)
        projection = None if crs is None else Projection(crs, box)
        wanted = tuple(name for name in formats.replace(" ", "").split(",") if name and suffix(name))
        if wanted and projection is None:
            raise ValueError("--formats needs --crs: the files say where they are.")
        length = "units" if projection is None else projection.unit
        rules = tables.TableRules(
            names,
            response,
            box,
            (low, high),
            transform,
            where or [],
            outside,
            missing,
            delimiter,
            decimal,
            encoding,
            tables.lattice_of(aggregate_, box),
            minimum_count,
            length,
        )
        who = unit_of(unit, unit_id, most_of_one)
        if rules.lattice is not None:
            who = unit_of_privacy(rules.lattice, minimum_count, length=length)
        common: dict[str, Any] = {
            "domain": box,
            "locations": box.grid(shape),
            "grid": shape,
            "coordinates": "unit" if length_unit == "domain" else "data",
            "nugget": nugget,
            "neighbours": neighbours,
            "unit": who.rstrip(".") + rules.kept,
            "contributions": most_of_one,
        } | ({} if most_records is None else {"most_records": most_records})
        bound = max(high - middle, middle - low)
        own: dict[str, dict[str, Any]] = {
            "posterior": {
                "kernel": covariance,
                "response_range": (low, high),
                "centre": middle,
                "ridge": ridge,
                "paths": paths,
                "jitter": jitter,
                "prior_noise": prior_noise,
                "rule": rule,
                "assumption": None if assumption is None else options.assumption_of(assumption, bound, covariance),
            },
            "kernel-sum": {"kernels": covariance, "response_ranges": (low, high), "centres": (middle,)},
        }
        if mechanism == "auto":
            options.refuse_given(context, CHOSEN, "--mechanism auto chooses it")
        elif mechanism == "kernel-sum":
            options.refuse_given(context, POSTERIOR_ONLY, "only --mechanism posterior has it")
        # Everything public is checked on a stand-in before the table is opened.
        standing = "kernel-sum" if mechanism == "auto" else mechanism
        KINDS[standing](scale=1.0 if scale is None else scale, delta=0.5, **common, **own[standing])
        outline = None if region is None else Region.read(region)
        if outline is not None and box.dimension == 2 and not outline.contains(common["locations"]).any():
            raise ValueError(f"--region {region} holds no point of the grid; is it in the table's coordinates?")
        if ledger is not None and "://" not in ledger and not Path(ledger).exists():
            raise ValueError(f"{ledger}: no such ledger; discretion ledger init {ledger} ... makes one.")
        book = None if ledger is None else Ledger.open(ledger)
        claim_folder(out, FILES, force)
        if projection is None:
            tables.warn_of_degrees(names, box)
        elif "geotiff" in wanted:
            check_geotiff(out, box, projection, common["unit"])

        with steps() as step:
            step("Reading the table")
            prior = None
            if public_table is not None:
                earlier = rules.read(public_table)
                prior = PublicTable(earlier.covariates, earlier.response, public_table.name)
            records = rules.read(table, unit_id)
            if unit_id is not None:
                records = records.bounded(most_of_one)
            tables.report(private_report, records)
            # Under add/remove the true number enters nothing.
            n = records.n if most_records is None else most_records
            common["delta"] = options.delta_of(delta, n)
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
                    threshold=threshold,
                    centre=middle,
                    prior=prior,
                    coordinates=common["coordinates"],
                    region=None if outline is None else outline.contains,
                    floor=floor,
                    posterior=points <= MOST_POINTS,
                )
                mechanism = _planned(plan, own)
            step("Finding the price")
            kind, parameters = KINDS[mechanism], common | own[mechanism]
            ready = (
                kind.calibrated(n=n, epsilon=epsilon, **parameters)
                if epsilon is not None
                else kind(scale=scale or 0.0, **parameters)
            )
            step("Making the release")
            result = ready.run(records, SystemRandomness()) if book is None else book.run(ready, records, n=n)
            step("Writing")
            for name in FILES:
                # With --force: no file of an earlier release may stand beside this certificate.
                (out / name).unlink(missing_ok=True)
            logarithm = transform == "log"
            named = units or (f"log {response}" if logarithm else response)
            page = Page(names, threshold, below, outline, projection, title, named, logarithm, source, wanted)
            if isinstance(result, KernelSumRelease):
                decoder = plan.decoder(result.mechanism) if plan is not None and plan.recommended.decoder else None
                what, files = "value sum and density", SumSheet(page, result, floor, level, decoder).write(out)
            else:
                assert isinstance(result, PathRelease)
                what = f"{paths} path{'s' if paths > 1 else ''}"
                files = PathSheet(page, result, fraction, smooth_).write(out)
        certificate = result.certificate
        if book is None:
            note("No --ledger: nothing remembers this release, so nothing stops the budget being spent twice.")
        if private_report is None:
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
                **({key: parameters[key] for key in ("ridge", "paths")} if mechanism == "posterior" else {}),
                **({} if plan is None else {"plan": plan.recommended.to_dict(), "verdict": plan.verdict}),
                "ledger_entry": certificate.ledger_entry,
                "out": str(out),
                "files": files,
            },
            as_json=json_,
            lines=[
                *([] if plan is None else [f"Planned: {plan.words}. {plan.verdict}"]),
                f"Released {what}{certificate.of_records} on a grid of {' x '.join(map(str, shape))}.",
                f"epsilon <= {round_up(certificate.epsilon, 3)} at delta = {round_up_significant(certificate.delta)} "
                f"(neighbours: {certificate.neighbours}; {certificate.rule}).",
                f"{out}: {', '.join(files)}",
            ],
        )


KINDS: dict[str, type[PosteriorMechanism] | type[KernelSumMechanism]] = {
    "posterior": PosteriorMechanism,
    "kernel-sum": KernelSumMechanism,
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
            f"{plan.verdict} Nothing was spent. The best trivial map has IoU {trivial:.2f} and the best release "
            f"{plan.forecast.iou.mean:.2f}, if the field is as the prior has it ({plan.prior['kind']}). "
            "discretion plan map shows more and takes other priors; --mechanism kernel-sum releases a map all the same."
        )
    found = plan.recommended
    if found.mechanism == "posterior":
        own["posterior"] |= {"kernel": found.kernel, "ridge": found.ridge, "paths": found.paths}
    else:
        own["kernel-sum"] |= {"kernels": found.kernel}
    return found.mechanism


def unit_of(words: str, unit_id: str | None, most: int) -> str:
    """Who is protected, in words."""
    if unit_id is None:
        return words
    owner = f"one value of the column {unit_id!r}, with all its rows" if words == ONE_ROW else words
    return unit_in_words(owner, most)
