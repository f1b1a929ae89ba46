"""Mechanisms that are attacked by the games made for them: one of each kind by its budget, and random ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from discretion.bayesopt import CandidateChoice, LocalSearch, Space
from discretion.bayesopt import Linear as Line
from discretion.bilevel.descent import Descent
from discretion.bilevel.domains import Grid
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import BiasedRidge, HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.regularised import RegularisedExponential
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.tuned import TunedModel
from discretion.bilevel.warm_start import WarmStart
from discretion.gp import RBF, Box
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, PureDP
from discretion.selection import NegativeBinomial, Poisson, PublicScore, SelectionMechanism
from discretion.selection.extensions import Threshold
from discretion.selection.linear import LogisticMechanism, RidgeMechanism

DELTA = 0.05
LEFT_OUT: dict[str, Any] = {"neighbours": Neighbours.ADD_REMOVE, "most_records": 30}
LINE, SIDES = Box((-0.5,), (0.5,)), Box((-1.0,) * 2, (1.0,) * 2)
ENDS = Grid.of([-1.0, 1.0])
PLANE = QuadraticMean(records=8, dimension=2)
MEAN = QuadraticMean(records=8, dimension=1)
RIDGE = BiasedRidge(training=8, validation=8, dimension=1, domain=LINE, strength=10.0, feature_bound=0.5)
PENALTY = RidgePenalty(training=8, validation=8, dimension=1, penalties=(1.0, 10.0), candidates=5)
REMOVED = HuberPenalty(
    training=8, validation=8, dimension=1, penalties=(1.0, 10.0), candidates=5, neighbours=Neighbours.ADD_REMOVE
)


def _none(x: Any, records: Any) -> Any:
    raise NotImplementedError("the game brings its own")


class Costs:
    """A candidate of which nothing is known but its price."""

    name, n_is_public, delta = "costs", True, DELTA

    def __init__(self, loss):
        self.loss, self.neighbours = loss, loss.neighbours
        self.n_is_public = loss.neighbours == "replace"

    def parameters(self):
        return {}

    def privacy_loss(self, n):
        return self.loss

    def run(self, records, randomness):
        return 0.0


def search(loss, law, kind=SelectionMechanism, count=1, **options):
    return kind((Costs(loss),) * count, PublicScore(float, "itself"), law, DELTA, **options)


def descent(problem, by, **options):
    return Descent(problem=problem, mu=by, steps=1, delta=DELTA, **options)


def separable(by, **options):
    return SeparableDescent(
        gradients=_none, domain=SIDES, records=8, steps=2, clip=1.0, rate=0.1, mu=by, delta=DELTA, **options
    )


def linear(kind, **options):
    return kind(dimension=1, feature_bound=2.0, alpha=2.0, delta=DELTA, intercept=False, **options)


def local(by, **options):
    return LocalSearch(Space({"a": Line(0, 1)}), mu=by, steps=1, clip=1.0, delta=DELTA, **options)


def thompson(by, **options):
    return ThompsonMechanism(
        RBF(0.1), np.array([[0.0], [1.0]]), (-1.0, 1.0), schedule=3.0 / by, delta=DELTA, ridge=2.0, **options
    )


FAMILIES: dict[str, tuple[Callable[[float], Any], int | None, int]] = {  # of a budget: mechanism; n, trials
    "choice": (lambda by: ExponentialMechanism(problem=MEAN, epsilon=by, grid=ENDS), 8, 2_000),
    "regularised": (lambda by: RegularisedExponential(problem=PLANE, mu=by, delta=DELTA), 8, 1_000),
    "inner": (lambda by: InnerRelease(problem=RIDGE, x=np.zeros(1), mu=by, delta=DELTA), 16, 1_000),
    "descent": (lambda by: descent(RIDGE, by), 16, 1_000),
    "tuned": (
        lambda by: TunedModel(
            kind="ridge", records=16, dimension=1, choice_epsilon=0.1, mu=by, penalties=(5.0, 10.0), delta=DELTA
        ),
        16,
        500,
    ),
    "warm": (
        lambda by: WarmStart(
            choice=ExponentialMechanism(problem=MEAN, epsilon=0.1 * by),
            descent=descent(MEAN, by, rate=0.1),
            delta=DELTA,
        ),
        8,
        200,
    ),
    "separable": (separable, 8, 500),
    "candidates": (lambda by: CandidateChoice(({"a": 1}, {"a": 2}), 3.0, by), 8, 1_000),
    "local search": (local, 8, 500),
    "thompson": (lambda by: thompson(by, rounds=1, batch=30, history=20), None, 1_000),
    "ridge": (lambda by: linear(RidgeMechanism, response_range=(-1.0, 1.0), mu=by), 8, 1_000),
    "logistic": (lambda by: linear(LogisticMechanism, noise=1.0 / by, **LEFT_OUT), None, 1_000),
    "selection": (
        lambda by: search(PureDP(0.5 * by, neighbours=Neighbours.REPLACE), NegativeBinomial.of_mean(1.0, 1.2)),
        2,
        2_000,
    ),
}


def random_mechanism(index: int, rng: np.random.Generator) -> tuple[str, Any, int | None]:
    """The kind, a mechanism of random public parameters, and its public number of records."""
    budget, n, low = math.exp(rng.uniform(-1.0, 1.2)), int(rng.integers(2, 30)), math.exp(rng.uniform(-4.0, 0.0))
    strength, bound = math.exp(rng.uniform(-1.0, 3.0)), math.exp(rng.uniform(-1.0, 1.0))
    neighbours = Neighbours.ADD_REMOVE if rng.random() < 0.3 else Neighbours.REPLACE
    removed = neighbours is Neighbours.ADD_REMOVE
    sizes: dict[str, Any] = {
        "training": n,
        "validation": int(rng.integers(2, 30)),
        "dimension": int(rng.integers(1, 4)),
    }
    sizes |= {"feature_bound": bound, "neighbours": neighbours}
    kind = (RidgePenalty, LogisticPenalty, HuberPenalty)[int(rng.integers(3))]
    biased = {"domain": Box((-0.5,) * sizes["dimension"], (0.5,) * sizes["dimension"]), "strength": strength}
    total = n + sizes["validation"]
    match KINDS[index % len(KINDS)]:
        case "choice":
            problem = kind(**sizes, penalties=(low, 10.0), candidates=int(rng.integers(2, 20)))
            score = (None, "plain", "candidate")[int(rng.integers(3))]
            return "choice", ExponentialMechanism(problem=problem, epsilon=budget, score=score), total
        case "model":
            own = TunedModel(
                kind=("ridge", "logistic")[int(rng.integers(2))],
                records=total,
                dimension=sizes["dimension"],
                choice_epsilon=budget,
                mu=math.exp(rng.uniform(-1.0, 1.0)),
                penalties=(low, 10.0),
                candidates=5,
                delta=DELTA,
            )
            return "model", own, total
        case "inner":
            problem = BiasedRidge(**sizes, **biased)
            return "inner", InnerRelease(problem=problem, x=np.zeros(sizes["dimension"]), mu=budget, delta=DELTA), total
        case "descent":
            problem = BiasedRidge(**sizes, **biased)
            made = Descent(problem=problem, mu=budget, steps=int(rng.integers(1, 4)), delta=DELTA)
            return "descent", made, total
        case "separable":
            return "separable", separable(budget, neighbours=neighbours), 8
        case "candidates":
            made = CandidateChoice(tuple({"a": k} for k in range(int(rng.integers(2, 6)))), bound, budget)
            return "candidates", made, n
        case "local search":
            return "local search", local(budget, largest_loss=None if rng.random() < 0.7 else bound), n
        case "thompson":
            told = {"rounds": 1, "history": n} if rng.random() < 0.7 else {"rounds": 3}
            return "thompson", thompson(budget, batch=int(rng.integers(1, 20)), **told), None
        case "linear":
            apart = {"neighbours": neighbours, "most_records": n}
            if rng.random() < 0.5:
                return "linear", linear(RidgeMechanism, response_range=(-1.0, 1.0), mu=budget, **apart), n
            return "linear", linear(LogisticMechanism, noise=1.0 / budget, **apart), n
    loss: PrivacyLoss = (GaussianDP if rng.random() < 0.5 else PureDP)(0.5 * budget, neighbours=neighbours)
    mean = float(rng.uniform(1.1, 10.0))
    law = (NegativeBinomial.of_mean(1.0, mean), Poisson(mean), Threshold(0.5, 1.0 / mean))[int(rng.integers(3))]
    return "selection", search(loss, law), None if removed else 2


KINDS = (
    "choice",
    "model",
    "inner",
    "descent",
    "separable",
    "candidates",
    "local search",
    "thompson",
    "linear",
    "selection",
)
