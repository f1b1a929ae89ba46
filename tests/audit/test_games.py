"""A game for each mechanism that a certificate describes: the claim holds, and one with half the noise is refuted.

Half the noise is a mechanism of twice the budget under the claim of the honest one.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.attacked import (
    DELTA,
    FAMILIES,
    LEFT_OUT,
    MEAN,
    PENALTY,
    REMOVED,
    RIDGE,
    linear,
    local,
    search,
    separable,
    thompson,
)
from discretion.audit import attack, certificate_game, mechanism_game
from discretion.audit.release_game import LEAST, affordable, once, ratio_of_steps, remembering
from discretion.bayesopt import CandidateChoice
from discretion.bilevel.continuous import ConvexExponential
from discretion.bilevel.counts import Counts
from discretion.bilevel.descent import Descent
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.tuned import TunedModel
from discretion.posterior.records import Records
from discretion.privacy import GaussianDP, PureDP, SeededRandomness
from discretion.selection import Poisson
from discretion.selection.disjoint import DisjointTuning
from discretion.selection.extensions import SharedRate, Threshold
from discretion.selection.linear import RidgeMechanism

LONG = ("logistic", "thompson", "selection")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in FAMILIES])
def test_half_the_noise_is_caught_and_the_whole_is_not(name):
    make, n, trials = FAMILIES[name]
    honest = make(1.0)
    delta = getattr(honest, "delta", 0.0)
    claimed = honest.privacy_loss(n).epsilon(delta)
    found = []
    for mechanism in (honest, make(2.0)):
        game = mechanism_game(mechanism, n)
        shadows = 50 if game.scored else 300
        found.append(attack(game, game.trainer, shadows=shadows, trials=trials, delta=delta, claimed=claimed))
    assert [each.refuted for each in found] == [False, True], [claimed, *(each.epsilon_lower for each in found)]


HOLDS = {
    "continuous": (lambda: ConvexExponential(problem=MEAN, epsilon=2.0, delta=1e-6), 8),
    "penalty": (lambda: ExponentialMechanism(problem=PENALTY, epsilon=2.0), 16),
    "left out": (lambda: ExponentialMechanism(problem=REMOVED, epsilon=2.0), None),
    "penalty alone": (lambda: TunedModel(kind="logistic", records=8, dimension=1, choice_epsilon=2.0, candidates=5), 8),
    "batch": (lambda: Descent(problem=RIDGE, mu=1.0, steps=2, batch=Counts(4, 4), delta=DELTA), 16),
    "task left out": (lambda: separable(2.0, neighbours="add-remove"), None),
    "means alone": (lambda: local(1.5, largest_loss=1.0), 8),
    "first action": (lambda: thompson(1.0, rounds=2, batch=2), None),
    "whole records": (lambda: thompson(1.0, rounds=2, private="records"), None),
    "row left out": (
        lambda: linear(RidgeMechanism, response_range=(0.0, 9.0), mu=1.5, **LEFT_OUT),
        None,
    ),
    "curve": (
        lambda: search(GaussianDP(1.0, neighbours="replace") + PureDP(0.5, neighbours="replace"), Poisson(2.0)),
        2,
    ),
    "threshold": (lambda: search(PureDP(1.0, neighbours="replace"), Threshold(0.5, 0.3)), 2),
    "shared rate": (lambda: search(PureDP(1.0, neighbours="replace"), SharedRate(2, 3, 1.0), count=2), 2),
    "parts": (lambda: search(GaussianDP(1.0, neighbours="add-remove"), Poisson(2.0), DisjointTuning, share=0.4), None),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_claim_holds(name):
    make, n = HOLDS[name]
    mechanism = make()
    delta = getattr(mechanism, "delta", 0.0)
    game = mechanism_game(mechanism, n)
    shadows = 50 if game.scored else 150
    found = attack(
        game, game.trainer, shadows=shadows, trials=150, delta=delta, claimed=mechanism.privacy_loss(n).epsilon(delta)
    )
    assert not found.refuted
    assert game.words
    assert found.auc > 0.45


ANY = SeededRandomness(0)
MODEL = linear(RidgeMechanism, response_range=(-1.0, 1.0), mu=1.0)
CERTIFICATES = {
    "choice": lambda: ExponentialMechanism(problem=PENALTY, epsilon=2.0).certificate(ANY),
    "separable": lambda: separable(1.0).certificate(ANY),
    "local search": lambda: local(1.0).certificate(8, ANY),
    "thompson": lambda: thompson(1.0, rounds=1, batch=2, history=4).certificate(ANY),
    "candidates": lambda: CandidateChoice(({"a": 1}, {"a": 2}), 3.0, 1.0).run(np.zeros((3, 2)), ANY).certificate,
    "selection": lambda: search(PureDP(0.5, neighbours="replace"), Poisson(1.0)).run(np.zeros(2), ANY).certificate,
    "linear": lambda: MODEL.run(Records(np.zeros((5, 1)), np.zeros(5)), ANY).certificate,
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_from_a_certificate(name):
    game = certificate_game(CERTIFICATES[name]())
    seen = game.features(True, 3, np.random.default_rng(0))
    assert seen.shape[0] == 3
    assert np.isfinite(seen).all()


def test_what_cannot_be_run_says_what_to_do():
    made = replace(separable(1.0).certificate(SeededRandomness(0)), mechanism="Laplace")
    with pytest.raises(ValueError, match=r"--mechanism FILE\.py:NAME"):
        certificate_game(made)
    with pytest.raises(ValueError, match="No neighbouring data sets are known for int"):
        mechanism_game(1, 3)
    with pytest.raises(ValueError, match="number of records"):
        mechanism_game(local(1.0), None)


def test_steps_of_a_sample_are_mixtures():
    seen, to, noise = np.array([0.3, -1.0]), np.array([1.0, 2.0]), np.array([1.0, 0.5])

    def density(shift):
        each = [math.exp(-((s - m) ** 2) / (2 * v * v)) / v for s, m, v in zip(seen, shift, noise, strict=True)]
        rest = [math.exp(-(s**2) / (2 * v * v)) / v for s, v in zip(seen, noise, strict=True)]
        return math.prod(0.3 * a + 0.7 * b for a, b in zip(each, rest, strict=True))

    assert ratio_of_steps(seen, to, -to, noise, 0.3) == pytest.approx(math.log(density(to) / density(-to)))
    assert ratio_of_steps(seen, to, -to, noise) == pytest.approx(float(np.sum(2 * to * seen / noise**2)))


def test_what_is_kept_is_kept_for_its_arguments_alone():
    class Slow:
        calls = 0

        def double(self, value):
            Slow.calls += 1
            return [2 * each for each in value]

    first, second = [1], [2]
    quick = remembering(Slow(), "double")
    assert [quick.double(first), quick.double(second), quick.double(first)] == [[2], [4], [2]]
    assert Slow.calls == 2
    fixed = once(Slow(), "double")
    assert fixed.double(second) == fixed.double(first) == [4]


def test_slow_releases_are_few():
    class Slow:
        def features(self, member, count, rng):
            import time

            time.sleep(0.01 * count)
            return np.zeros((count, 1))

    assert affordable(Slow(), seconds=0.1) == LEAST
    assert affordable(Slow(), seconds=4 * 300 * 0.01) <= 500
