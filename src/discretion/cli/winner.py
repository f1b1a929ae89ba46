"""How a search on the command line ended: the winner's files, or the certificate alone, and words for a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discretion.cli.sheet import Page, PathSheet, Sheet
from discretion.cli.sums import SumSheet
from discretion.posterior import KernelSumRelease
from discretion.posterior.agreement import Agreement
from discretion.privacy import round_up_significant
from discretion.selection import NoisyScore, Outcome, Repetitions, Score, SelectionRelease

SEARCH_FILE = "tuning.json"


def sheet(winner: Any, page: Page, agreement: Agreement, floor: float, level: float) -> Sheet:
    """The files of a winner."""
    if isinstance(winner, KernelSumRelease):
        return SumSheet(page, winner, floor, level)
    return PathSheet(page, winner, agreement.fraction, agreement.smoothing)


def score_noise(score: Score, n: int | None) -> float | None:
    """Standard deviation of the score's noise, on n records where that is public; None where it has none."""
    if not isinstance(score, NoisyScore):
        return None
    return score.deviation(None if n is None else n - (score.training_size(n) or 0))


def write(
    found: SelectionRelease, goal: Score, noise: float | None, out: Path, sheet: Callable[[Any], Sheet]
) -> list[str]:
    """The map's files, or the certificate alone, and what was chosen."""
    if found.outcome is Outcome.CHOSEN:
        files = sheet(found.winner).write(out)
    else:
        found.certificate.save(out / "certificate.json")
        (out / "certificate.txt").write_text(found.certificate.text() + "\n", encoding="utf-8")
        files = ["certificate.json", "certificate.txt"]
    told = {
        "outcome": "no run drawn" if found.outcome is Outcome.DEFAULT else str(found.outcome),
        "choice": choice(found),
        "score": found.score,
        "score_noise": noise,
        "score_is": goal.parameters()["name"],
        "epsilon": float(round_up_significant(found.certificate.epsilon, 4)),
        "one_run_epsilon": float(round_up_significant(found.one_run, 4)),
        "delta": found.certificate.delta,
    }
    (out / SEARCH_FILE).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return [*files, SEARCH_FILE]


def words(found: SelectionRelease, law: Repetitions, candidates: int, name: str, noise: float | None) -> list[str]:
    """How the search ended."""
    if found.outcome is Outcome.DEFAULT:
        return [
            f"No run was drawn, which has probability {law.none:.2g} under this law whatever the records are. There is "
            "no map, and the price is paid all the same."
        ]
    if found.outcome is Outcome.FAILED:
        return [
            "Every run failed. There is no map, and the price is paid all the same. Before another search try these "
            "options on a made-up table with the same columns and number of rows, without --ledger."
        ]
    deviation = "" if noise is None else f" (its noise has standard deviation {noise:.3g})"
    chosen = ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in choice(found).items())
    return [
        f"Chosen among {candidates} candidates, best of a random number of runs ({law.name}, mean {law.mean:g}):",
        f"{chosen}.",
        f"Score {found.score:.4g}{deviation}: {name}.",
    ]


def choice(found: SelectionRelease) -> dict[str, Any]:
    """The winner's settings, all of them public now."""
    if found.outcome is not Outcome.CHOSEN:
        return {}
    mechanism = found.winner.mechanism
    shape = mechanism.kernels[0] if isinstance(found.winner, KernelSumRelease) else mechanism.kernel
    own = {} if isinstance(found.winner, KernelSumRelease) else {"ridge": mechanism.ridge}
    return {"kernel": shape.name} | dict(vars(shape)) | own | {"scale": mechanism.scale}


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
