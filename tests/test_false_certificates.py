"""Whatever is changed in a certificate of any kind of this library, a price below the true one never verifies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.bilevel import test_recomputation as bilevel
from tests.posterior import test_recomputation as posterior
from tests.selection import test_recomputation as selection

from discretion.bayesopt import Integer, LocalSearch, Log
from discretion.bayesopt.candidates import CandidateChoice
from discretion.cli.certificate import LOSSES, SENTENCES
from discretion.gp import RBF, Lattice
from discretion.posterior import LatticeMechanism
from discretion.posterior.recomputation import lattice_loss_of, lattice_sentences
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import Certificate, GaussianDP, PureDP, SystemRandomness, Verification, verify
from discretion.selection import (
    PrivateLogisticRegression,
    PrivateRidge,
    PublicScore,
    SelectionMechanism,
    geometric,
    selection_losses,
    selection_sentences,
)

DISTRICTS = Lattice.of_precision(np.eye(3) * 2.0 - np.ones((3, 3)) / 3)
RANDOM = SystemRandomness()


def checked(made: Certificate, prior: Lattice | None = None) -> Verification:
    losses, sentences = LOSSES, SENTENCES
    if prior is not None:
        name = LatticeMechanism.name
        losses = losses | {name: lambda *given: lattice_loss_of(*given, prior=prior)}
        sentences = sentences | {name: lattice_sentences(prior)}
    return verify(made, losses | selection_losses(losses), sentences | selection_sentences(losses, sentences))


def linear(model) -> Certificate:
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(60, 2)), rng.integers(0, 2, 60).astype(float)
    return model.set_params(randomness=RANDOM).fit(X, y).release_.certificate


def searched(kind: str) -> Certificate:
    rng = np.random.default_rng(0)
    records = selection.Records(rng.uniform(size=(40, 2)), rng.uniform(-1, 1, size=40))
    search = SelectionMechanism(
        tuple(selection.maps()[kind]), PublicScore(lambda release: 0.0, "none"), geometric(3), 1e-3
    )
    return search.run(records, RANDOM).certificate


def thompson() -> ThompsonMechanism:
    places = np.linspace(0.0, 1.0, 5)[:, None]
    return ThompsonMechanism(RBF(0.3), places, (-1.0, 1.0), rounds=3, batch=1, schedule=4.0, delta=1e-5)


MADE = {
    "posterior path": lambda: posterior.issued(posterior.MECHANISMS["grid"]),
    "posterior path, add-remove": lambda: posterior.issued(posterior.MECHANISMS["add-remove"]),
    "sums": lambda: posterior.issued(posterior.MECHANISMS["sums of columns"]),
    "lattice": lambda: posterior.on_lattice().certificate(50, RANDOM),
    "districts": lambda: posterior.on_lattice(DISTRICTS).certificate(50, RANDOM),
    "Thompson": lambda: thompson().certificate(RANDOM),
    "tuned path": lambda: searched("paths"),
    "tuned sums": lambda: searched("sums"),
    "selection": lambda: selection.SEARCHES["held out"].run(selection.RECORDS, RANDOM).certificate,
    "local search": lambda: LocalSearch(
        {"rate": Log(1e-4, 1.0), "depth": Integer(2, 64)}, mu=0.7, steps=9, clip=0.5, delta=1e-5
    ).certificate(400, RANDOM),
    "candidates": lambda: CandidateChoice(({"a": 1}, {"a": 2}), 1.0, 0.8, delta=1e-6).certificate(50, RANDOM),
    "ridge": lambda: linear(PrivateRidge(2.0, mu=0.5)),
    "logistic": lambda: linear(PrivateLogisticRegression([0, 1], 2.0, noise=2.0)),
} | {
    name: lambda name=name: bilevel.certificates()[name]
    for name in ("choice replace", "inner add-remove", "tuned 0.5", "descent replace", "declared descent",
                 "regularised", "declared convex", "warm start family", "penalty", "clipped", "separable")
}  # fmt: skip


@cache
def made(name: str) -> Certificate:
    return Certificate.from_json(MADE[name]().to_json())


def prior_of(name: str) -> Lattice | None:
    return DISTRICTS if name == "districts" else None


def places(value, path=()):
    """Every number, of a long list some."""
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(0, len(value), max(1, len(value) // 2)):
            yield from places(value[index], (*path, index))
    elif isinstance(value, int | float) and not isinstance(value, bool) and value:
        yield path, value


def changed(certificate: Certificate, path, value) -> Certificate:
    data = json.loads(certificate.to_json())
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return Certificate.from_data(data)


TAKES_LONG = {
    "posterior path", "posterior path, add-remove", "lattice", "districts", "tuned path", "tuned sums", "selection",
    "tuned 0.5", "regularised", "warm start family", "clipped", "logistic",
}  # fmt: skip
PRICES = ("mu", "epsilon", "scale", "noise_multiplier", "choice_epsilon", "steps", "noise", "contributions")


def looked_at(name: str):
    """Numbers of the parameters: all, or where one verification takes long those that name a price and some others."""
    found = list(places(made(name).data()["parameters"]))
    if name not in TAKES_LONG:
        return found
    stride = max(1, len(found) // 5)
    return [each for place, each in enumerate(found) if place % stride == 0 or each[0][-1] in PRICES][:9]


def low_loss(honest: Certificate):
    kind = GaussianDP if honest.delta else PureDP
    return kind(0.01, neighbours=honest.neighbours)


@pytest.mark.parametrize("name", MADE)
def test_as_issued_they_verify(name):
    found = checked(made(name), prior_of(name))
    assert (found.verdict, found.differences) == ("VERIFIED", ()), found.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_no_false_smaller_price_verifies_whatever_parameter_is_changed(name):
    honest = made(name)
    for path, value in looked_at(name):
        for factor in (0.5, 2.0):
            other = math.floor(value * factor) if isinstance(value, int) else value * factor
            found = checked(changed(honest, ("parameters", *path), other), prior_of(name))
            if found.verified:
                assert found.computed is not None
                assert found.computed.epsilon <= honest.epsilon * (1 + 1e-9), (path, other)
                # where less would do, this is said
                assert found.differences or found.computed.epsilon >= honest.epsilon * (1 - 1e-6), (path, other)


@pytest.mark.parametrize("name", MADE)
def test_no_smaller_price_verifies(name):
    honest, small = made(name), low_loss(made(name))
    lower = [
        replace(honest, epsilon=0.5 * honest.epsilon),
        replace(honest, loss=small.to_dict()),
        replace(honest, epsilon=small.epsilon(honest.delta), loss=small.to_dict(), order=None, rule=small.rule),
    ]
    lower += [changed(honest, ("loss", *path), 0.5 * value) for path, value in places(honest.loss)
              if path[-1] in ("mu", "epsilon", "limit") and value > 1e-6]  # fmt: skip
    assert {checked(each, prior_of(name)).verdict for each in lower} == {"REFUSED"}
    more = checked(replace(honest, epsilon=2 * honest.epsilon), prior_of(name))
    assert not more.refused
    assert "true, and less than could be" in str(more.differences)


@pytest.mark.parametrize("name", MADE)
def test_no_other_sentence_verifies(name):
    """In which one is left out, changed or more, nothing else being changed."""
    honest, wrong = made(name), []
    for kind in ("enforced", "declared", "limits"):
        stated = getattr(honest, kind)
        places_ = range(len(stated)) if name not in TAKES_LONG else {0, len(stated) - 1} - {-1}
        if name == "selection":
            # what the winner by a mechanism of somebody's own says, nobody can know here
            places_ = [k for k in places_ if "Numbers lie in" not in stated[k] and "as declared" not in stated[k]]
        else:
            wrong += [{kind: (*stated, "Every record of one hospital is protected together.")}]
        wrong += [{kind: stated[:k] + stated[k + 1 :]} for k in places_]
        wrong += [{kind: (*stated[:k], stated[k][:-1] + "!", *stated[k + 1 :])} for k in places_]
    if any("ach row" in each or "ach record" in each for each in honest.declared):
        wrong += [{"unit": "one hospital"}]
    if "released" in honest.parameters:
        wrong += [{"parameters": honest.parameters | {"released": "Nothing at all"}}]
    for each in wrong:
        assert checked(replace(honest, **each), prior_of(name)).verdict == "REFUSED", each
    other = checked(replace(honest, **wrong[0], library_version="0.0.1"), prior_of(name))
    assert other.refused or other.differences


@pytest.mark.parametrize(
    "name",
    ["choice replace", "inner add-remove", "descent replace", "regularised", "declared convex", "warm start family",
     "penalty", "clipped"],
)  # fmt: skip
def test_a_problem_that_is_not_known_hides_no_false_price(name):
    data = json.loads(made(name).to_json())
    for place in (data["parameters"], *(data["parameters"].get(part, {}) for part in ("choice", "descent"))):
        if "problem" in place:
            place["problem"]["problem"] = "of somebody's own"
    unknown = Certificate.from_data(data)
    found = checked(unknown)
    assert (found.verdict, found.refused) == ("NOT CHECKED", ())
    small = low_loss(unknown)
    low = replace(unknown, epsilon=small.epsilon(unknown.delta), loss=small.to_dict(), order=None, rule=small.rule)
    found = checked(low)
    assert found.verdict == "REFUSED"
    assert any("what of the parameters can be read" in each for each in found.refused)
    assert checked(replace(unknown, loss=small.to_dict())).verdict == "REFUSED"


def test_a_score_that_is_not_known_hides_no_false_price():
    honest = made("selection")
    unknown = changed(honest, ("parameters", "score"), {"score": "of somebody's own", "name": "value"})
    assert checked(unknown).verdict == "NOT CHECKED"
    small = low_loss(unknown)
    low = replace(unknown, epsilon=small.epsilon(unknown.delta), loss=small.to_dict(), order=None, rule=small.rule)
    assert checked(low).verdict == "REFUSED"


@pytest.mark.parametrize("name", ["candidates", "ridge", "inner add-remove"])
def test_one_that_claims_more_than_it_needs_is_true_and_says_so(name):
    """Where half the price does not contradict another parameter, or a sentence, as that of a local search does."""
    honest = made(name)
    key = "mu" if "mu" in honest.parameters else "epsilon"
    parameters = honest.parameters | {key: 0.5 * honest.parameters[key]}
    if "noise" in parameters:
        parameters |= {"noise": 2.0 * parameters["noise"]}
    found = checked(replace(honest, parameters=parameters), prior_of(name))
    assert found.verdict == "VERIFIED"
    assert len([each for each in found.differences if "more than the parameters need" in each]) == 2
