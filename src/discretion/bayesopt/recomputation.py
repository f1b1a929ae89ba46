"""The privacy losses of this package's certificates from their parameters, for `discretion.privacy.verify`.

The mechanism is built anew from what its certificate says; its other parameters must then follow. Kernel and update
rule play no part in a loss, and are taken as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from discretion.bayesopt.candidates import CandidateChoice
from discretion.bayesopt.descent import Constant, Late, Schedule
from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.space import Space
from discretion.privacy import Certificate, PrivacyLoss, SystemRandomness
from discretion.privacy.clipping import AdaptiveClip
from discretion.privacy.verification import LossOf, Sentences, SentencesOf, check_parameters

__all__ = ["LOSSES", "SENTENCES", "choice_of", "search_of"]

_NO_PART = ("kernel", "update")
_SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "late": Late}
_REBUILT = ("space", "schedule", "adaptive_clip", *_NO_PART)


def search_of(parameters: Mapping[str, Any], delta: float) -> LocalSearch:
    """The `LocalSearch` with these parameters and this delta, but for kernel and update rule: those are the defaults.

    Raises:
        ValueError, KeyError, TypeError: they are not the parameters of such a search, or contradict each other.
    """
    schedule, adaptive = dict(parameters["schedule"]), parameters["adaptive_clip"]
    search = LocalSearch(
        Space.described(parameters["space"]),
        schedule=_SCHEDULES[schedule.pop("schedule")](**schedule),
        adaptive_clip=None if adaptive is None else AdaptiveClip(**adaptive),
        delta=delta,
        **{name: value for name, value in parameters.items() if name not in _REBUILT},
    )
    check_parameters(parameters, search.parameters() | {name: parameters[name] for name in _NO_PART})
    return search


def _search(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    if n is None:
        raise ValueError("the certificate of a local search states n.")
    return search_of(parameters, delta).privacy_loss(n)


def choice_of(parameters: Mapping[str, Any], delta: float) -> CandidateChoice:
    """The `CandidateChoice` with these parameters and this delta; raises as `search_of`."""
    choice = CandidateChoice(
        tuple(parameters["candidates"]), parameters["largest_loss"], parameters["epsilon"], delta=delta
    )
    check_parameters(parameters, choice.parameters())
    return choice


def _choice(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    return choice_of(parameters, delta).privacy_loss(n or 1)


LOSSES: dict[str, LossOf] = {LocalSearch.name: _search, CandidateChoice.name: _choice}
"""A `LossOf` for local searches and for paid choices among candidates."""


def _sentences(made: Certificate) -> Sentences:
    of = search_of if made.mechanism == LocalSearch.name else choice_of
    mechanism = replace(of(made.parameters, made.delta), unit=made.unit)
    return Sentences.of(mechanism.certificate(made.n or 1, SystemRandomness()))


SENTENCES: dict[str, SentencesOf] = dict.fromkeys(LOSSES, _sentences)
"""What `verify` compares the sentences of these mechanisms with."""
