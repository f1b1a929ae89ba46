"""Certificates of private choices, computed again from their parameters alone."""

from dataclasses import replace

import numpy as np
import pytest

from discretion.bilevel import (
    ExponentialMechanism,
    HuberPenalty,
    InnerRelease,
    RidgePenalty,
    SplitRecords,
    Table,
    TunedModel,
)
from discretion.bilevel.recomputation import LOSSES
from discretion.privacy import SystemRandomness, verify


def table(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return Table(rng.normal(size=(n, d)), rng.uniform(-1, 1, n))


def certificates():
    split = SplitRecords(table(9), table(7, seed=1))
    for kind, neighbours in ((RidgePenalty, "replace"), (HuberPenalty, "add-remove")):
        problem = kind(training=9, validation=7, dimension=2, candidates=6, neighbours=neighbours)
        yield ExponentialMechanism(problem=problem, epsilon=0.7).run(split, SystemRandomness()).certificate
        x = problem.x_domain.array[3]
        yield InnerRelease(problem=problem, x=x, mu=0.4).run(split, SystemRandomness()).certificate
    for mu in (None, 0.5):
        model = TunedModel(kind="ridge", records=40, dimension=2, choice_epsilon=0.5, mu=mu)
        yield model.run(table(40), SystemRandomness()).certificate


@pytest.mark.parametrize("made", list(certificates()), ids=lambda made: made.mechanism)
def test_certificates_verify(made):
    assert verify(made, LOSSES).verified, verify(made, LOSSES).lines()


def test_false_certificates_are_refused():
    made = next(certificates())
    for wrong in (
        replace(made, epsilon=0.5 * made.epsilon),
        replace(made, parameters=made.parameters | {"range": 0.001}),
        replace(made, parameters=made.parameters | {"epsilon": 0.9}),
        replace(made, parameters=made.parameters | {"problem": made.parameters["problem"] | {"problem": "declared"}}),
        replace(made, n=99),
    ):
        assert not verify(wrong, LOSSES).verified
