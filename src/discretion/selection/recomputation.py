"""The loss of a search from the parameters in its certificate, for `discretion.privacy.verification.verify`.

The search is built again with candidates that do nothing but cost what they cost: by the rule for their mechanism where
there is one, else what the certificate states. A loss that is stated and follows from parameters as well has to be the
same. It then writes its parameters again, and is asked for its loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from discretion.privacy import Certificate, GaussianDP, Neighbours, PrivacyLoss, SystemRandomness
from discretion.privacy.certificate import LIMITS
from discretion.privacy.units import each_row
from discretion.privacy.verification import LossOf, NotRecomputable, Sentences, SentencesOf, check_parameters
from discretion.selection.disjoint import DisjointTuning
from discretion.selection.extensions import SharedRate, Threshold
from discretion.selection.learners import PrivateLogisticRegression, PrivateRidge
from discretion.selection.linear import LogisticMechanism, RidgeMechanism
from discretion.selection.outcome import Outcome
from discretion.selection.pricing import Law, Stated
from discretion.selection.proposals import DensityBox, Proposals
from discretion.selection.repetitions import repetitions_from
from discretion.selection.runs import RunLimit
from discretion.selection.scores import NoisyScore, PublicScore, Score
from discretion.selection.search import AS_DECLARED, OF_EVERY, RELEASED, TAKES_OVER, SelectionMechanism

__all__ = ["linear_of", "search_of", "selection_losses", "selection_sentences"]

MOST_CANDIDATES = 10_000
"""Of which a certificate may tell for its loss to be computed again."""


def selection_losses(others: Mapping[str, LossOf]) -> dict[str, LossOf]:
    """What `verify` needs for searches and for the linear models of this library.

    Args:
        others: the rules for other mechanisms, which may be candidates of a search too, such as
            `discretion.posterior.LOSSES`.

    Returns:
        These rules, and not the others: ``verify(certificate, LOSSES | selection_losses(LOSSES))``.
    """

    def search(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
        try:
            found, stated = search_of(parameters, n, delta, others)
        except NotRecomputable as error:
            raise NotRecomputable(str(error), partial(_least, parameters, n, delta, others)) from None
        return found.as_stored(found.prices(stated, n)[1])

    return {name: _linear(name) for name in _LINEAR} | {SelectionMechanism.name: search}


def selection_sentences(losses: Mapping[str, LossOf], others: Mapping[str, SentencesOf]) -> dict[str, SentencesOf]:
    """What `verify` compares the sentences of searches and linear models with.

    Args:
        losses: as in `selection_losses`.
        others: the sentences of other mechanisms, which may be candidates of a search.
    """
    linear = dict.fromkeys(_LINEAR, _linear_sentences)
    return linear | {SelectionMechanism.name: partial(_search_sentences, losses=losses, others={**others, **linear})}


# --- Linear models ----------------------------------------------------------------------------------


_ESTIMATORS = (PrivateRidge, PrivateLogisticRegression)


_LINEAR: dict[str, Any] = {each.name: each for each in (RidgeMechanism, LogisticMechanism)}


def linear_of(name: str, parameters: Mapping[str, Any], delta: float) -> RidgeMechanism | LogisticMechanism:
    """The linear model of this name with these parameters and this delta.

    Raises:
        ValueError, KeyError, TypeError: they are not the parameters of such a model, or contradict each other.
    """
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in parameters.items() if v is not None}
    mechanism = _LINEAR[name](delta=delta, **given)
    check_parameters(parameters, mechanism.parameters())
    return mechanism


def _linear_sentences(made: Certificate) -> Sentences:
    mechanism: Any = replace(linear_of(made.mechanism, made.parameters, made.delta), unit=made.unit)
    return Sentences.of(mechanism.certificate(made.n, SystemRandomness()))


def _linear(name: str) -> LossOf:
    return lambda parameters, n, delta: linear_of(name, parameters, delta).privacy_loss(n)


def _estimator(kind: Any) -> LossOf:
    """The rule for an estimator of this library as a candidate; it states its parameters as they were given."""

    def loss(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
        given = {name: value for name, value in parameters.items() if name != "estimator"}
        return kind(**given).privacy_loss(n)

    return loss


# --- Searches ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _StandIn:
    """A candidate that costs what it costs, and never runs."""

    name: str
    neighbours: Neighbours
    n_is_public: bool
    delta: float | None
    told: dict[str, Any]

    @property
    def contributions(self) -> int:
        found = [value for key, value in self.told.items() if key.rpartition("__")[2] == "contributions"]
        return max((int(each) for each in found if each is not None), default=1)

    def parameters(self) -> dict[str, Any]:
        return self.told

    def privacy_loss(self, n: int | None) -> PrivacyLoss:
        raise ValueError("what a run costs is given to the search apart.")

    def run(self, records: Any, randomness: Any) -> Any:
        raise ValueError("a stand-in is never run.")


def search_of(
    told: Mapping[str, Any], n: int | None, delta: float, others: Mapping[str, LossOf]
) -> tuple[SelectionMechanism, list[Stated]]:
    """The search with these parameters and this delta, and what one run of each candidate costs.

    Its candidates cost what they cost, and never run; `others` as in `selection_losses`.

    Raises:
        NotRecomputable: what a candidate or the score costs is neither stated nor known here.
        ValueError, KeyError, TypeError: they are not the parameters of a search, or contradict each other.
    """
    rules = {
        **others,
        **{name: _linear(name) for name in _LINEAR},
        **{each.__name__: _estimator(each) for each in _ESTIMATORS},
    }
    score, each, of = _score(told["score"]), told["candidates"], told["run_losses"]["of"]
    if not (isinstance(each, list) and 0 < len(each) <= MOST_CANDIDATES and len(of) == len(each)):
        raise ValueError("a search has at least one candidate, and says for each whether its loss is stated.")
    texts = told["run_losses"]["losses"]
    losses = [PrivacyLoss.from_dict(text) for text in texts]
    size, candidates, stated = score.training_size(n), [], []
    for own, place in zip(each, of, strict=True):
        about = dict(told["common"]) | own
        name, estimator = about.pop("mechanism"), "estimator" in about
        made_for = about.get("delta") if estimator else about.pop("delta", None)
        loss = None if place is None else losses[place]
        if (rule := rules.get(name)) is not None:
            found = rule(about, size, delta if made_for is None else float(made_for))
            if place is not None:
                check_parameters({"run_losses": texts[place]}, {"run_losses": found.to_dict()})
            loss = found if loss is None else loss
        if loss is None:
            raise NotRecomputable(f"what a run of {name!r} costs is not stated, and no rule for it is at hand.")
        candidates += [_StandIn(name, loss.neighbours, n is not None, None if estimator else made_for, about)]
        stated += [Stated(loss, None if place is None else texts[place])]
    box, seconds = told.get("box"), told["seconds_per_run"]
    options: dict[str, Any] = {
        "weights": tuple(told["weights"]),
        "rule": told["rule"],
        "limit": None if seconds is None else RunLimit(seconds, "stated"),
        "pad": told["padded"],
        "proposals": None if box is None else Proposals(DensityBox(*box), lambda history: (), told["proposals"]),
    }
    kind = SelectionMechanism
    if "tuned_on" in told:
        kind, options = DisjointTuning, options | {"share": told["tuned_on"]}
    search = kind(tuple(candidates), score, _law(told["law"]), delta, **options)
    plan = {key: value for key, value in told.items() if key not in ("run_losses", "search", "released")}
    check_parameters(plan, search.parameters())
    return search, stated


def _least(
    told: Mapping[str, Any], n: int | None, delta: float, others: Mapping[str, LossOf], neighbours: Neighbours
) -> PrivacyLoss:
    """What a search costs at least whatever its score does: what its runs cost, where they are stated."""
    score, of = told["score"], told["run_losses"]["of"]
    if (isinstance(score, Mapping) and score.get("score") in ("public", "noisy")) or None in of:
        return GaussianDP(0.0, neighbours=neighbours)
    free = {key: value for key, value in told.items() if key != "order"} | {"score": PublicScore(abs, "").parameters()}
    found, stated = search_of(free, n, delta, others)
    return found.as_stored(found.prices(stated, n)[1])


def _search_sentences(
    made: Certificate, *, losses: Mapping[str, LossOf], others: Mapping[str, SentencesOf]
) -> Sentences:
    """What the search states; of a winner whose mechanism is not known, others may stand beside it."""
    told, n = made.parameters, made.n
    search, _ = search_of(told, n, made.delta, losses)
    winners = [place for place in range(len(search.candidates)) if _is_released(told, search, place)]
    if not winners and told["released"] not in RELEASED.values():
        raise ValueError(f"{told['released']!r} is nothing that this search releases.")
    own = Sentences(complete=told["released"] in (RELEASED[Outcome.DEFAULT], RELEASED[Outcome.BELOW]))
    if winners:
        own = replace(own, complete=False)
        about = dict(told["common"]) | told["candidates"][winners[0]]
        delta = about.pop("delta", None)
        if (of := others.get(name := about.pop("mechanism"))) is not None and "estimator" not in about:
            size = search.score.training_size(n)
            one = replace(made, mechanism=name, parameters=about, n=size, delta=made.delta if delta is None else delta)
            own = of(one)
    said = search.sentences(own, made.unit)
    free = tuple(
        text for text in made.declared if text.startswith((AS_DECLARED, TAKES_OVER, OF_EVERY + each_row("one")[:8]))
    )
    return replace(said, declared=(*said.declared, *free), limits=(*LIMITS, *said.limits))


def _is_released(told: Mapping[str, Any], search: SelectionMechanism, place: int) -> bool:
    return told["released"] == search.released(Outcome.CHOSEN, place)


def _score(told: Mapping[str, Any]) -> Score:
    """A score that costs what the one described does, and can't be asked."""
    match told["score"]:
        case "public":
            return PublicScore(lambda artefact: math.nan, told["name"])
        case "noisy":
            return NoisyScore(
                lambda artefact, records: (), *(told[key] for key in ("low", "high", "mu", "fraction", "name"))
            )
    raise NotRecomputable(f"the score {told['score']!r} is none of this library's, and what it costs is not known.")


def _law(told: Mapping[str, Any]) -> Law:
    match told["law"]:
        case SharedRate.law:
            return SharedRate(told["candidates"], told["rounds"], told["exponent"])
        case Threshold.law:
            return Threshold(told["level"], told["stop"])
    return repetitions_from(told)
