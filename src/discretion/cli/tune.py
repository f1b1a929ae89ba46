"""``discretion tune``: settings chosen on the private table itself, one map out, one certificate for both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from discretion.cli import options, tables, winner
from discretion.cli.console import note, plain_errors, show, steps
from discretion.cli.release import FILES, KINDS, MOST_POINTS, ONE_ROW, unit_of
from discretion.cli.selection import law_family
from discretion.cli.sheet import Page, check_geotiff, claim_folder
from discretion.gp import kernel
from discretion.posterior.agreement import Agreement, MeanAgreement
from discretion.posterior.records import Records
from discretion.privacy import (
    GaussianDP,
    Ledger,
    Neighbours,
    PrivacyLoss,
    Randomness,
    SystemRandomness,
    round_up,
    round_up_significant,
)
from discretion.selection import NoisyScore, Outcome, PublicScore, Score, SelectionRelease
from discretion.selection.charged import charged
from discretion.selection.search import SelectionMechanism
from discretion.selection.within import search_within
from discretion.spatial.hexagons import unit_of_privacy
from discretion.spatial.projection import Projection
from discretion.spatial.raster import suffix
from discretion.spatial.region import Region

NO_MAP = 5
"""Exit code of a search that ended, and was paid for, without a map."""
LAWS = ("poisson", "geometric", "logarithmic", "tnb")
POSTERIOR_ONLY = ("ridge", "paths", "rule", "fraction", "smooth_")

CANDIDATES, SEARCH, PRIVACY, MAP, OUTPUT = "The candidates", "The search", "Privacy", "The map", "Output"
LIST = "numbers with commas, or LOW:HIGH:COUNT by equal factors"


def tune(
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV (also .gz) or Parquet: one row per record. PRIVATE.")
    ],
    covariates: tables.Covariates,
    response: tables.Response,
    domain: tables.Domain,
    response_range: tables.ResponseRange,
    length_scale: Annotated[str, typer.Option(help=f"Length scales to try: {LIST}.", rich_help_panel=CANDIDATES)],
    epsilon: Annotated[
        float, typer.Option(help="Epsilon of everything: all runs, their scores, and the map.", rich_help_panel=PRIVACY)
    ],
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
        str, typer.Option(help="kernel-sum or posterior, as in release.", rich_help_panel=CANDIDATES)
    ] = "kernel-sum",
    kernel_: Annotated[
        str, typer.Option("--kernel", help="Kernels to try, with commas.", rich_help_panel=CANDIDATES)
    ] = "matern32",
    length_unit: Annotated[
        str, typer.Option(help="domain (fractions of its sides) or data.", rich_help_panel=CANDIDATES)
    ] = "domain",
    ridge: Annotated[str, typer.Option(help=f"Ridges to try: {LIST}.", rich_help_panel=CANDIDATES)] = "300",
    centre: Annotated[
        float | None,
        typer.Option(help="Public prior mean; the middle of --response-range.", rich_help_panel=CANDIDATES),
    ] = None,
    paths: Annotated[int, typer.Option(help="Sample paths of one map.", rich_help_panel=CANDIDATES)] = 1,
    rule: Annotated[
        str, typer.Option(help="What prices one run's paths, as in release.", rich_help_panel=CANDIDATES)
    ] = "closed-form",
    runs: Annotated[
        str, typer.Option(help=f"Law of the number of runs: {', '.join(LAWS)}.", rich_help_panel=SEARCH)
    ] = "geometric",
    mean: Annotated[float, typer.Option(help="Mean number of runs.", rich_help_panel=SEARCH)] = 10.0,
    shape: Annotated[float | None, typer.Option(help="Shape of tnb, above -1.", rich_help_panel=SEARCH)] = None,
    cap: Annotated[
        int | None, typer.Option(help="Most runs, declared beforehand: another law.", rich_help_panel=SEARCH)
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="held-out: agreement with private records kept apart, with noise. public: with --public-table.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    validation_share: Annotated[
        float, typer.Option(help="held-out: share of the records that are kept apart.", rich_help_panel=SEARCH)
    ] = 0.2,
    public_table: Annotated[
        Path | None,
        typer.Option(
            help="An earlier table, with the same columns, that YOU DECLARE to be public.", rich_help_panel=SEARCH
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at the same time.", rich_help_panel=SEARCH)] = 1,
    delta: Annotated[
        str, typer.Option(help="A number, or n^-1.1 of the number of records.", rich_help_panel=PRIVACY)
    ] = "n^-1.1",
    neighbours: Annotated[
        Neighbours,
        typer.Option(
            help="replace: the number of rows is public. add-remove: it is private; needs --delta as a number.",
            rich_help_panel=PRIVACY,
        ),
    ] = Neighbours.REPLACE,
    most_records: Annotated[
        int | None, typer.Option(help="add-remove: public bound of the number of rows.", rich_help_panel=PRIVACY)
    ] = None,
    unit: Annotated[
        str,
        typer.Option(help="What one row, or with --unit-id one unit, is, in words.", rich_help_panel=PRIVACY),
    ] = ONE_ROW,
    unit_id: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose each row is; one row of each takes part, picked at random.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger that pays: a file or a postgresql:// URL.", rich_help_panel=PRIVACY)
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="PRIVATE file that keeps an interrupted search; by default beside the ledger's file.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Take an interrupted search up: same draws, no second price.", rich_help_panel=PRIVACY)
    ] = False,
    grid: Annotated[
        str, typer.Option(help="Grid points along each axis, such as 60 or 60,40.", rich_help_panel=MAP)
    ] = "60",
    threshold: Annotated[
        float | None, typer.Option(help="Map where the response is at least this.", rich_help_panel=MAP)
    ] = None,
    below: Annotated[bool, typer.Option(help="Map where it is at most the threshold.", rich_help_panel=MAP)] = False,
    fraction: Annotated[float, typer.Option(help="Share of the paths that must agree.", rich_help_panel=MAP)] = 0.5,
    smooth_: Annotated[
        float, typer.Option("--smooth", help="Smoothing of the paths, sd in grid cells.", rich_help_panel=MAP)
    ] = 0.0,
    floor: Annotated[
        float, typer.Option(help="kernel-sum: rows that must be near for a local mean.", rich_help_panel=MAP)
    ] = 20.0,
    level: Annotated[
        float, typer.Option(help="kernel-sum: confidence of the inner and outer set.", rich_help_panel=MAP)
    ] = 0.95,
    region: Annotated[
        Path | None, typer.Option(help="Public GeoJSON outline; the map stays inside.", rich_help_panel=MAP)
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the map.", rich_help_panel=MAP)] = None,
    units: Annotated[str | None, typer.Option(help="Units of the response on the legend.", rich_help_panel=MAP)] = None,
    source: Annotated[str, typer.Option(help="Attribution of the data, printed on the map.", rich_help_panel=MAP)] = "",
    formats: Annotated[
        str, typer.Option(help="Further files: geotiff, geoparquet, or both; need --crs.", rich_help_panel=OUTPUT)
    ] = "",
    force: Annotated[bool, typer.Option(help="Replace earlier results in --out.", rich_help_panel=OUTPUT)] = False,
    private_report: Annotated[
        Path | None,
        typer.Option(help="PRIVATE file for the data owner: what the rules left out.", rich_help_panel=OUTPUT),
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
    """Choose kernel, length scale and ridge on a private table, and publish the map they make: one price for both.

    A random number of maps is made with settings drawn from the candidates. The best by a private score is the only one
    that leaves. Exit code 5: the search ended without a map (no run was drawn, or all failed); it is paid for.
    """
    with plain_errors():
        box = options.box(domain)
        names = tables.names_of(covariates, box)
        grid_shape = options.counts(grid, box.dimension)
        low, high = options.interval(response_range, "--response-range")
        middle = 0.5 * (low + high) if centre is None else centre
        scored = score or ("held-out" if public_table is None else "public")
        n_is_private = neighbours is Neighbours.ADD_REMOVE
        keep = _journal(journal, ledger)
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
            (mechanism not in KINDS, f"--mechanism is {' or '.join(KINDS)}; got {mechanism!r}."),
            (
                mechanism == "posterior" and math.prod(grid_shape) > MOST_POINTS,
                f"--grid {grid} has more than {MOST_POINTS:,} points, too many for posterior paths.",
            ),
            (runs not in LAWS, f"--runs is {', '.join(LAWS)}; got {runs!r}."),
            (scored not in ("held-out", "public"), f"--score is held-out or public; got {scored!r}."),
            (scored == "public" and public_table is None, "--score public needs --public-table."),
            (
                scored == "held-out" and public_table is not None,
                "--public-table is what --score public goes by; leave one of the two out.",
            ),
            (
                public_table is not None and public_table.exists() and table.exists() and public_table.samefile(table),
                "--public-table is the private table itself: a score of it would be paid by nobody.",
            ),
            (not 0 < validation_share < 1, f"--validation-share must lie in (0, 1); got {validation_share:g}."),
            (
                (most_records is None) == n_is_private,
                "--neighbours add-remove and --most-records, a public bound of the number of rows, go together.",
            ),
            (
                n_is_private and delta.startswith("n"),
                "--neighbours add-remove: the number of rows is private, so --delta must be a number.",
            ),
            (
                unit_id is not None and aggregate_ is not None,
                "--aggregate makes one record of each hexagon, in which the rows of many units are mixed; there is no "
                "account of units for that. Leave --unit-id out, or tune on the rows themselves.",
            ),
            *(
                (each is not None and each.resolve().is_relative_to(out.resolve()), f"{name} must not lie in --out.")
                for name, each in (("--private-report", private_report), ("The journal", keep))
            ),
        )
        for made, mistake in mistakes:
            if made:
                raise ValueError(mistake)
        if mechanism == "kernel-sum":
            options.refuse_given(context, POSTERIOR_ONLY, "only --mechanism posterior has it")
        if scored == "public":
            options.refuse_given(context, ("validation_share",), "only --score held-out has it")
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
        who = unit_of(unit, unit_id, 1)
        if rules.lattice is not None:
            who = unit_of_privacy(rules.lattice, minimum_count, length=length)
        common: dict[str, Any] = {
            "domain": box,
            "locations": box.grid(grid_shape),
            "grid": grid_shape,
            "coordinates": "unit" if length_unit == "domain" else "data",
            "neighbours": neighbours,
            "unit": who.rstrip(".") + rules.kept,
        } | ({} if most_records is None else {"most_records": most_records})
        scales = options.choices(length_scale, "--length-scale")
        kernels = [kernel(name.strip(), scale) for name in kernel_.split(",") for scale in scales]
        tried: list[dict[str, Any]] = [{"kernels": each} for each in kernels]
        if mechanism == "kernel-sum":
            common |= {"response_ranges": (low, high), "centres": (middle,)}
        else:
            common |= {"response_range": (low, high), "centre": middle, "paths": paths, "rule": rule}
            pairs = itertools.product(kernels, options.choices(ridge, "--ridge"))
            tried = [{"kernel": each, "ridge": value} for each, value in pairs]
        kind = KINDS[mechanism]
        # Everything public is checked on stand-ins before the table is opened.
        for each in tried:
            kind(scale=1.0, delta=0.5, **common, **each)
        law = law_family(runs, shape, None, cap)(mean)
        agreement = Agreement((low, high), threshold, below, fraction, smooth_)
        outline = None if region is None else Region.read(region)
        if outline is not None and box.dimension == 2 and not outline.contains(common["locations"]).any():
            raise ValueError(f"--region {region} holds no point of the grid; is it in the table's coordinates?")
        if ledger is not None and "://" not in ledger and not Path(ledger).exists():
            raise ValueError(f"{ledger}: no such ledger; discretion ledger init {ledger} ... makes one.")
        _check_journal(keep, resume)
        book = None if ledger is None else Ledger.open(ledger)
        claim_folder(out, {*FILES, winner.SEARCH_FILE}, force or resume)
        if projection is None:
            tables.warn_of_degrees(names, box)
        elif "geotiff" in wanted:
            check_geotiff(out, box, projection, common["unit"])

        with steps() as step:
            step("Reading the table")
            kept_apart = f"{agreement.name}, of private records kept apart, with noise"
            goal: Score = NoisyScore(agreement, *agreement.bounds, 1.0, validation_share, kept_apart)
            if public_table is not None:
                earlier = rules.read(public_table)
                with_it = MeanAgreement(agreement, Records(earlier.covariates, earlier.response))
                goal = PublicScore(with_it, f"{agreement.name}, in {public_table.name}, declared public")
            read = rules.read(table, unit_id)
            whole = read

            def picked(records: Records, randomness: Randomness) -> Records:
                """One row of each unit; the same again where a search is taken up."""
                if unit_id is None:
                    return records
                one = whole.bounded(1, randomness)
                return Records(one.covariates, one.response, one.units)

            read = read if unit_id is None else read.bounded(1)
            tables.report(private_report, read)
            records = Records(whole.covariates, whole.response, whole.units)
            # Under add/remove the true number enters nothing.
            n = read.n if most_records is None else most_records
            common["delta"] = options.delta_of(delta, n)
            step("Finding the price of a run")

            def search_of(one: float) -> SelectionMechanism:
                size = goal.training_size(None if n_is_private else n)
                each = tuple(kind.calibrated(n=size, epsilon=one, **common, **own) for own in tried)
                losses = [candidate.privacy_loss(size) for candidate in each]
                return SelectionMechanism(each, _free(goal, losses), law, common["delta"], jobs=jobs)

            search, _ = search_within(search_of, epsilon, None if n_is_private else n)
            search.check(picked(records, SystemRandomness()))
            step("Searching")
            page = Page(
                names,
                threshold,
                below,
                outline,
                projection,
                title,
                units or (f"log {response}" if transform == "log" else response),
                transform == "log",
                source,
                wanted,
            )
            files: list[str] = []

            def save(found: SelectionRelease) -> None:
                for name in {*FILES, winner.SEARCH_FILE}:
                    # No file of an earlier release may stand beside this certificate.
                    (out / name).unlink(missing_ok=True)
                files[:] = winner.write(
                    found, goal, out, lambda best: winner.sheet(best, page, agreement, floor, level)
                )

            try:
                result = charged(search, records, n, ledger=book, journal=keep, randomness=None, save=save, pick=picked)
            except KeyboardInterrupt:
                if keep is not None:
                    note(f"Interrupted; it stays paid for. --resume takes the search up from {keep}, which is private.")
                raise
        certificate = result.certificate
        if book is None:
            note("No --ledger: nothing remembers this release, so nothing stops the budget being spent twice.")
        note("How long this took tells roughly how many runs there were, which is private: do not publish it.")
        show(
            {
                "outcome": str(result.outcome),
                "choice": winner.choice(result),
                "score": result.score,
                "score_name": goal.parameters()["name"],
                "epsilon": certificate.epsilon,
                "one_run_epsilon": result.one_run,
                "delta": certificate.delta,
                "rule": certificate.rule,
                "neighbours": str(certificate.neighbours),
                "n": certificate.n,
                "mechanism": mechanism,
                "candidates": len(tried),
                "law": law.parameters(),
                "ledger_entry": certificate.ledger_entry,
                "out": str(out),
                "files": files,
            },
            as_json=json_,
            lines=[
                *winner.words(result, law, len(tried), goal.parameters()["name"]),
                f"epsilon <= {round_up(certificate.epsilon, 3)} at delta = {round_up_significant(certificate.delta)} "
                f"for tuning and release together, {round_up(result.one_run, 3)} for one run (neighbours: "
                f"{certificate.neighbours}; {certificate.rule}).",
                f"{out}: {', '.join(files)}",
            ],
        )
        if result.outcome is not Outcome.CHOSEN:
            raise typer.Exit(NO_MAP)


def _free(goal: Score, losses: Sequence[PrivacyLoss]) -> Score:
    """The score, its noise so small that it costs what the maps cost anyway, as no record is in both."""
    if not isinstance(goal, NoisyScore):
        return goal
    if all(isinstance(loss, GaussianDP) for loss in losses):
        # A hair more than any of them, so that all runs cost the same and the account is that of one Gaussian.
        return replace(goal, mu=max(loss.mu for loss in losses if isinstance(loss, GaussianDP)) * (1.0 + 1e-9))
    excess = np.geomspace(1e-3, 1e2, 60)
    # mu^2 (1 + x) / 2 <= R(x)
    square = min(float((2.0 * loss.renyi_excess(excess) / (1.0 + excess)).min()) for loss in losses)
    return replace(goal, mu=math.sqrt(square))


def _journal(given: Path | None, ledger: str | None) -> Path | None:
    """Where an interrupted search is kept: beside the ledger's file, unless said otherwise."""
    return Path(f"{ledger}.search") if given is None and ledger is not None and "://" not in ledger else given


def _check_journal(path: Path | None, resume: bool) -> None:
    if resume and path is None:
        raise ValueError("--resume needs --journal, or the --ledger beside whose file the search was kept.")
    if resume and path is not None and not path.exists():
        raise ValueError(f"{path}: no search was interrupted there; leave --resume out to begin one.")
    if not resume and path is not None and path.exists():
        raise ValueError(
            f"{path} keeps a search that was interrupted. --resume takes it up at no further cost; to begin another, "
            "move it away: what the first reserved stays spent."
        )
