"""``discretion audit membership``: was this record in the data? How well an attacker can tell from what is released."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.audit import PathGame, RepeatedAttack, certificate_game, draw_attack, repeated
from discretion.audit.repeated import KINDS
from discretion.cli import options
from discretion.cli.audit import audit
from discretion.cli.certificate import read
from discretion.cli.console import REFUSED, note, plain_errors, show
from discretion.cli.cost import Json
from discretion.gp import Box, Exponential
from discretion.posterior.assumptions import Exponential1D
from discretion.posterior.rules import posterior_price
from discretion.privacy.signing import SignedCertificate

GAME, EFFORT = "The game (without --certificate)", "Effort"
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
        int, typer.Option(help="Releases of each world to learn from.", rich_help_panel=EFFORT)
    ] = 10_000,
    trials: Annotated[
        int, typer.Option(help="Fresh releases of each world to score.", rich_help_panel=EFFORT)
    ] = 10_000,
    repetitions: Annotated[int, typer.Option(help="Independent repetitions.", rich_help_panel=EFFORT)] = 1,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.", rich_help_panel=EFFORT)] = 0.95,
    jobs: Annotated[int, typer.Option(help="Repetitions at once; -1: one a core.", rich_help_panel=EFFORT)] = 1,
    seed: Annotated[int, typer.Option(help="To repeat an attack.", rich_help_panel=EFFORT)] = 0,
    plot: Annotated[Path | None, typer.Option(help="Figure to write (.png, .svg, .pdf).")] = None,
    json_: Json = False,
) -> None:
    """Guess from releases whether a record was among the data; what that proves of epsilon, beside the claim.

    Reads no records. Without --certificate n labelled records lie on [0, 1], -1 left of the middle and +1 right of it,
    and the attacker asks for the one at the middle (Maciazek 2026). Exit code 4 if the claim is refuted.
    """
    with plain_errors():
        if not 0 < confidence < 1:
            raise ValueError(f"--confidence must lie strictly between 0 and 1; got {confidence:g}.")
        if attack not in KINDS:
            raise ValueError(f"--attack is one of {', '.join(KINDS)}; got {attack!r}.")
        effort: dict[str, Any] = {"shadows": shadows, "trials": trials, "repetitions": repetitions, "n_jobs": jobs}
        effort |= {"confidence": confidence, "seed": seed}
        if certificate is None:
            rare = options.delta_of(delta, n)
            game = PathGame(ridge, scale, paths, n, Exponential(length_scale), label_noise)
            if claimed is None:
                claimed = _priced(game, rare)
            found = repeated(game, attack, delta=rare, claimed=claimed, **effort)
            words = f"{paths} path{'s' * (paths > 1)}, ridge {ridge:g}, scale {scale:g}, n = {n}; {attack} attack."
        else:
            useless = ("ridge", "scale", "paths", "n", "length_scale", "label_noise", "attack", "delta")
            options.refuse_given(context, useless, "the certificate says it")
            made = read(certificate)
            made = made.certificate if isinstance(made, SignedCertificate) else made
            against = certificate_game(made, seed=seed)
            claimed = made.epsilon if claimed is None else claimed
            if made.delta >= 1.0:
                raise ValueError("The certificate's delta is 1: it claims nothing that an attack could refute.")
            found = repeated(against, against.trainer, delta=made.delta, claimed=claimed, **effort)
            words = f"{made.mechanism}; data sets: {against.words}."
        if plot is not None:
            draw_attack(found, plot, words)
            note(f"Figure: {plot}")
        show(_plain(found, words), as_json=json_, lines=[words, *found.lines()])
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
