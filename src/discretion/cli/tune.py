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
from discretion.cli.console import NO_MAP, note, plain_errors, show, steps
from discretion.cli.drawing import Drawing, Files
from discretion.cli.groups import grouped
from discretion.cli.protection import Protection
from discretion.cli.release import FILES, KINDS, MOST_POINTS
from discretion.cli.report import add_page
from discretion.cli.selection import law_family
from discretion.cli.sheet import check_geotiff, claim_folder
from discretion.gp import kernel
from discretion.posterior.agreement import Agreement, MeanAgreement
from discretion.posterior.records import Records
from discretion.privacy import (
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    Randomness,
    SystemRandomness,
    round_up_significant,
)
from discretion.selection import NoisyScore, Outcome, PublicScore, Score, SelectionRelease
from discretion.selection.charged import FAILED, charged
from discretion.selection.search import SelectionMechanism
from discretion.selection.within import search_within
from discretion.spatial.hexagons import unit_of_privacy

LAWS = ("poisson", "geometric", "logarithmic", "tnb")
TUNED = ("kernel-sum", "posterior")
POSTERIOR_ONLY = ("ridge", "paths", "rule", "fraction", "smooth_")

CANDIDATES, SEARCH, PRIVACY, MAP, OUTPUT = "The candidates", "The search", "Privacy", "The map", "Output"
LIST = "numbers with commas, or LOW:HIGH:COUNT by equal factors"


@grouped
def tune(
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV (also .gz) or Parquet: one row per record. PRIVATE.")
    ],
    columns: tables.Columns,
    reading: tables.Reading,
    protection: Protection,
    drawing: Drawing,
    files: Files,
    *,
    length_scale: Annotated[str, typer.Option(help=f"Length scales to try: {LIST}.", rich_help_panel=CANDIDATES)],
    epsilon: Annotated[
        float,
        typer.Option(
            help="Epsilon of everything: all runs, their scores, and the map.",
            rich_help_panel=PRIVACY,
        ),
    ],
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
    neighbours: Annotated[
        Neighbours,
        options.relation(
            "replace: the number of rows is public. add-remove: it is private; needs --delta as a number.", PRIVACY
        ),
    ] = Neighbours.REPLACE,
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
    json_: options.OutputJson = False,
    config: options.Config = None,
) -> None:
    """Choose kernel, length scale and ridge on a private table, and publish the map they make: one price for both.

    A random number of maps is made with settings drawn from the candidates. The best by a private score is the only one
    that leaves. Exit code 5: the search ended without a map (no run was drawn, or all failed); it is paid for.
    """
    with plain_errors():
        box, names, (low, high) = columns.box, columns.names, columns.range
        grid_shape = options.counts(drawing.grid, box.dimension)
        middle = 0.5 * (low + high) if centre is None else centre
        scored = score or ("held-out" if public_table is None else "public")
        n_is_private = neighbours is Neighbours.ADD_REMOVE
        keep = _journal(journal, protection.ledger)
        mistakes = (
            *drawing.mistakes(columns),
            *protection.mistakes(columns, neighbours),
            (length_unit not in ("domain", "data"), f"--length-unit is domain or data; got {length_unit!r}."),
            (mechanism not in TUNED, f"--mechanism is {' or '.join(TUNED)}; got {mechanism!r}."),
            (
                mechanism == "posterior" and math.prod(grid_shape) > MOST_POINTS,
                f"--grid {drawing.grid} has more than {MOST_POINTS:,} points, too many for posterior paths.",
            ),
            (not 0 < epsilon < math.inf, f"--epsilon, of everything, must be positive; got {epsilon:g}."),
            (not mean > 0, f"--mean, the mean number of runs, must be positive; got {mean:g}."),
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
            *(
                (
                    each is not None and each.resolve().is_relative_to(files.out.resolve()),
                    f"{name} must not lie in --out.",
                )
                for name, each in (("--private-report", files.private_report), ("The journal", keep))
            ),
        )
        for made, mistake in mistakes:
            if made:
                raise ValueError(mistake)
        if mechanism == "kernel-sum":
            options.refuse_given(context, POSTERIOR_ONLY, "only --mechanism posterior has it")
        if scored == "public":
            options.refuse_given(context, ("validation_share",), "only --score held-out has it")
        wanted, rules = files.wanted(columns), columns.rules(reading)
        who = protection.who()
        if rules.lattice is not None:
            who = unit_of_privacy(rules.lattice, columns.minimum_count, length=rules.length)
        common: dict[str, Any] = {
            "domain": box,
            "locations": box.grid(grid_shape),
            "grid": grid_shape,
            "coordinates": "unit" if length_unit == "domain" else "data",
            "neighbours": neighbours,
            "unit": who.rstrip("."),
        } | protection.bound()
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
        agreement = Agreement((low, high), drawing.threshold, drawing.below, drawing.fraction, drawing.smooth_)
        if box.dimension == 2:
            drawing.check_region(common["locations"])
        _check_journal(keep, resume)
        book = protection.book()
        if book is not None:
            book.check_unit(common["unit"])
        claim_folder(files.out, {*FILES, winner.SEARCH_FILE}, files.force or resume)
        if columns.projection is None:
            tables.warn_of_degrees(names, box)
        elif "geotiff" in wanted:
            check_geotiff(files.out, box, columns.projection, common["unit"])

        with steps() as step:
            step("Reading the table")
            kept_apart = f"{agreement.name}, of private records kept apart, with noise"
            if n_is_private:
                less = f"less {0.5 * sum(agreement.bounds):g}, times the number of private records kept apart"
                kept_apart = f"({agreement.name}) {less}, with noise"
            goal: Score = NoisyScore(agreement, *agreement.bounds, 1.0, validation_share, kept_apart)
            if public_table is not None:
                earlier = rules.read(public_table)
                with_it = MeanAgreement(agreement, Records(earlier.covariates, earlier.response))
                goal = PublicScore(with_it, f"{agreement.name}, in {public_table.name}, declared public")
            protection.check_table(book, table)
            read = rules.read(table, protection.unit_id)
            whole = read

            def picked(records: Records, randomness: Randomness) -> Records:
                """One row of each unit; the same again where a search is taken up."""
                if protection.unit_id is None:
                    return records
                one = whole.bounded(1, randomness)
                return Records(one.covariates, one.response, one.units)

            read = read if protection.unit_id is None else read.bounded(1)
            tables.report(files.private_report, read)
            records = Records(whole.covariates, whole.response, whole.units)
            # Under add/remove the true number enters nothing.
            n = read.n if protection.most_records is None else protection.most_records
            common["delta"] = protection.delta_at(n)
            step("Finding the price of a run")

            def search_of(one: float) -> SelectionMechanism:
                size = goal.training_size(None if n_is_private else n)
                each = tuple(kind.calibrated(n=size, epsilon=one, **common, **own) for own in tried)
                losses = [candidate.privacy_loss(size) for candidate in each]
                return SelectionMechanism(each, _free(goal, losses), law, common["delta"], jobs=jobs)

            search, _ = search_within(search_of, epsilon, None if n_is_private else n)
            search.check(picked(records, SystemRandomness()))
            noise = winner.score_noise(search.score, None if n_is_private else n)
            held = 1.0 if not n_is_private else validation_share * n
            reach = held * (agreement.bounds[1] - agreement.bounds[0])
            if noise is not None and noise > reach:
                note(
                    f"The noise of the score, standard deviation {noise:.3g}, exceeds the whole range of scores, "
                    f"{reach:.3g}: what is chosen is chosen by chance. More records or a larger epsilon help; or a "
                    "public table to score by (--public-table), or public settings (discretion release)."
                )
            step("Searching")
            page = drawing.page(columns, reading, wanted, mechanism)
            written: list[str] = []

            def save(found: SelectionRelease) -> None:
                found = rules.noted(found)
                for name in {*FILES, winner.SEARCH_FILE}:
                    # No file of an earlier release may stand beside this certificate.
                    (files.out / name).unlink(missing_ok=True)
                written[:] = winner.write(
                    found,
                    goal,
                    noise,
                    files.out,
                    lambda best: winner.sheet(best, page, agreement, drawing.floor, drawing.level),
                )
                if files.report:
                    written.extend(add_page(files.out, page, drawing.floor, book))

            try:
                result = charged(
                    search, records, n, ledger=book, journal=keep, randomness=None, save=save, pick=picked, warn=_told
                )
            except KeyboardInterrupt:
                if keep is not None:
                    note(f"Interrupted; it stays paid for. --resume takes the search up from {keep}, which is private.")
                raise
        certificate = result.certificate
        note("How long this took tells roughly how many runs there were, which is private: do not publish it.")
        show(
            {
                "outcome": str(result.outcome),
                "choice": winner.choice(result),
                "score": result.score,
                "score_noise": noise,
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
                "out": str(files.out),
                "files": written,
            },
            as_json=json_,
            lines=[
                *winner.words(result, law, len(tried), goal.parameters()["name"], noise),
                f"epsilon <= {round_up_significant(certificate.epsilon, 4)} at delta = "
                f"{round_up_significant(certificate.delta)} for tuning and release together (neighbours: "
                f"{certificate.neighbours}; {certificate.rule}). This is the price paid, and to quote: the "
                f"winning run alone would have cost {round_up_significant(result.one_run, 4)}, had nobody chosen it.",
                f"{files.out}: {', '.join(written)}",
            ],
        )
        if result.outcome is not Outcome.CHOSEN:
            raise typer.Exit(NO_MAP)


def _told(text: str) -> None:
    """What a search says of itself; how it ended is said with the result."""
    if text != FAILED:
        note(text)


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
