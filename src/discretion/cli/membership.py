"""``discretion audit membership``: was this record in the data? How well an attacker can tell from what is released."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.audit import (
    PathGame,
    RepeatedAttack,
    affordable,
    certificate_game,
    draw_attack,
    own_game,
    repeated,
)
from discretion.audit.release_game import MOST
from discretion.audit.repeated import KINDS
from discretion.cli import options
from discretion.cli import prior as priors
from discretion.cli.audit import audit
from discretion.cli.certificate import read
from discretion.cli.console import REFUSED, note, plain_errors, show, steps
from discretion.gp import Box, Exponential
from discretion.posterior.assumptions import Exponential1D
from discretion.posterior.rules import posterior_price
from discretion.privacy.signing import SignedCertificate

GAME, EFFORT = "The game (without --certificate)", "Effort"
GAME_OPTIONS = ("ridge", "scale", "paths", "n", "length_scale", "label_noise", "attack")
PRICED = 5.0  # seconds to look for the claim


@audit.command("membership")
def audit_membership(
    context: typer.Context,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Attack the mechanism of this certificate.json (or its folder), on the data sets it tells apart worst."
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Attack a mechanism of your own on two data sets of your own: NAME in this file, which is run, gives "
            "(mechanism, data set, neighbouring data set), or a game.",
        ),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(help="With --certificate: the public file that a graph was made from, such as districts."),
    ] = None,
    ridge: Annotated[float, typer.Option(help="Ridge r.", rich_help_panel=GAME)] = 0.1,
    scale: Annotated[
        float, typer.Option(help="Posterior scale sigma; inf: the noise alone.", rich_help_panel=GAME)
    ] = 0.5,
    paths: Annotated[int, typer.Option(help="Paths from the same records.", rich_help_panel=GAME)] = 3,
    n: Annotated[int, typer.Option("--n", help="Records on [0, 1].", rich_help_panel=GAME)] = 10,
    length_scale: Annotated[
        float, typer.Option(help="Length scale of the exponential kernel.", rich_help_panel=GAME)
    ] = 1.0,
    label_noise: Annotated[
        float, typer.Option(help="Share of noise in the labels, 0 to 1.", rich_help_panel=GAME)
    ] = 0.0,
    attack: Annotated[
        str,
        typer.Option(
            help="online: shadows of both worlds; offline: of the world without the candidate; exact: the likelihood "
            "ratio itself.",
            rich_help_panel=GAME,
        ),
    ] = "online",
    delta: Annotated[str, typer.Option(help="A number, or n^-1.1.", rich_help_panel=GAME)] = "1e-3",
    claimed: Annotated[
        float | None,
        typer.Option(help="An epsilon to refute; if left out, what this library or the certificate claims."),
    ] = None,
    shadows: Annotated[
        int | None,
        typer.Option(
            help="Releases of each world to learn from; if left out 10,000, or with --certificate or --mechanism as "
            "many as take about a minute in all.",
            rich_help_panel=EFFORT,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Fresh releases of each world to score; if left out as many.", rich_help_panel=EFFORT),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Independent repetitions.", rich_help_panel=EFFORT)] = 1,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.", rich_help_panel=EFFORT)] = 0.95,
    jobs: Annotated[int, typer.Option(help="Repetitions at once; -1: one a core.", rich_help_panel=EFFORT)] = 1,
    seed: Annotated[
        int, typer.Option(help="To repeat an attack, with the same --shadows and --trials.", rich_help_panel=EFFORT)
    ] = 0,
    plot: Annotated[Path | None, typer.Option(help="Figure to write (.png, .svg, .pdf).")] = None,
    json_: options.Json = False,
) -> None:
    """Guess from releases whether a record was among the data; what that proves of epsilon, beside the claim.

    Reads no records. By default n labelled records lie on [0, 1], -1 left of the middle and +1 right of it,
    and the attacker asks for the one at the middle (Maciazek 2026). Exit code 4 if the claim is refuted.
    """
    with plain_errors():
        if not 0 < confidence < 1:
            raise ValueError(f"--confidence must lie strictly between 0 and 1; got {confidence:g}.")
        if attack not in KINDS:
            raise ValueError(f"--attack is one of {', '.join(KINDS)}; got {attack!r}.")
        if certificate is not None and mechanism is not None:
            raise ValueError("Give --certificate or --mechanism, not both.")
        if prior is not None and certificate is None:
            raise ValueError("--prior goes with --certificate.")
        with steps() as step:
            if certificate is not None:
                options.refuse_given(context, (*GAME_OPTIONS, "delta"), "the certificate says it")
                step("Looking for data sets that are hard to tell apart")
                made = read(certificate)
                made = made.certificate if isinstance(made, SignedCertificate) else made
                if made.delta >= 1.0:
                    raise ValueError("The certificate's delta is 1: it claims nothing that an attack could refute.")
                graph = None if prior is None else priors.graph_of(prior, made.parameters)
                game = certificate_game(made, seed=seed, prior=graph)
                trainer, rare = game.trainer, made.delta
                claimed = made.epsilon if claimed is None else claimed
                words = f"{made.mechanism}; data sets, the hardest found, not proved to be: {game.words}."
            elif mechanism is not None:
                options.refuse_given(context, GAME_OPTIONS, "the mechanism says it")
                own = own_game(mechanism)
                game, trainer, words = own.game, own.trainer, f"{own.words}."
                given = own.delta is None or "delta" in options.given(context)
                rare = options.delta_of(delta, n) if given else own.delta
                assert rare is not None
                claimed = own.epsilon(rare) if claimed is None else claimed
            else:
                trainer, rare = attack, options.delta_of(delta, n)
                game = PathGame(ridge, scale, paths, n, Exponential(length_scale), label_noise)
                claimed = _priced(game, rare) if claimed is None else claimed
                words = f"{paths} path{'s' * (paths > 1)}, ridge {ridge:g}, scale {scale:g}, n = {n}; {attack} attack."
            if shadows is None or trials is None:
                count = MOST
                if not isinstance(game, PathGame):
                    step("Timing a few releases")
                    count = affordable(game, seed=seed)
                shadows, trials = shadows or count, trials or count
            found = repeated(
                game,
                trainer,
                shadows=shadows,
                trials=trials,
                repetitions=repetitions,
                n_jobs=jobs,
                confidence=confidence,
                seed=seed,
                delta=rare,
                claimed=claimed,
                step=step,
            )
        if plot is not None:
            draw_attack(found, plot, words)
            note(f"Figure: {plot}")
        effort = f"{shadows:,} releases of each world to learn from, {trials:,} to score."
        show(_plain(found, words), as_json=json_, lines=[words, effort, *found.lines()])
    if found.refuted:
        raise typer.Exit(REFUSED)


def _priced(game: PathGame, delta: float) -> float:
    """The epsilon that this library claims for the paths of the game."""
    return posterior_price(
        n=game.n,
        ridge=game.ridge,
        scale=game.scale,
        delta=delta,
        assumption=Exponential1D(1.0),
        least_kernel=game.kernel.least_value(Box((0.0,), (1.0,))),
        paths=game.paths,
        time_limit=PRICED,
    ).epsilon


def _plain(found: RepeatedAttack, words: str) -> dict[str, Any]:
    """JSON-able: infinities as text at every depth."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return "inf" if isinstance(value, float) and math.isinf(value) else value

    return plain({"attack": words} | found.to_dict())
