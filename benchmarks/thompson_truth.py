"""Exact laws of the actions of small Thompson-sampling runs, against which prices are held.

With two candidates the chance of each action given the past is a normal probability, so the law of all sequences of
actions is known to the last digit, in every world of responses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from discretion.gp import RBF
from discretion.posterior import Bounded
from discretion.posterior.thompson_account import Draws, record_loss, response_loss

Floats = NDArray[np.float64]

PLACES = np.array([[0.0], [0.6]])
KERNEL, RIDGE, SCALE = RBF(0.7), 0.8, 1.1
FUNCTIONS = tuple(itertools.product((-1.0, 1.0), repeat=2))
"""How a record may respond to either action."""
WHERE = tuple(itertools.product((0, 1), repeat=2))
"""Where a record may be measured when asked for either action."""


def transcripts(
    functions: Sequence[Sequence[float]], rounds: int, where: Sequence[Sequence[int]] | None = None
) -> Floats:
    """Probability of each sequence of actions. Record i responds functions[i][a] to action a, measured at
    where[i][a] (or at the action)."""
    law: dict[Any, float] = {(): 1.0}
    for t in range(rounds):
        after = {}
        for past, chance in law.items():
            x = np.array([a if where is None else where[i][a] for i, a in enumerate(past)], dtype=int)
            y = np.array([functions[i][a] for i, a in enumerate(past)])
            K = KERNEL(PLACES)
            A = K[np.ix_(x, x)] + RIDGE**2 * np.eye(t)
            weights = np.linalg.solve(A, K[x]) if t else np.zeros((0, 2))
            mean, covariance = weights.T @ y, K - K[x].T @ weights
            spread = SCALE * math.sqrt(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1])
            first = float(ndtr((mean[0] - mean[1]) / spread))
            after[*past, 0], after[*past, 1] = chance * first, chance * (1.0 - first)
        law = after
    return np.array([law[key] for key in sorted(law)])


def worst_response(rounds: int = 4, worlds: int = 12, seed: int = 0) -> float:
    """Largest exact delta over the stated one, over all response functions of the first record, and random others."""
    loss = response_loss(Draws.constant(rounds, SCALE, ridge=RIDGE))
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(worlds):
        others = [FUNCTIONS[k] for k in rng.integers(0, 4, rounds - 1)]
        laws = [transcripts((own, *others), rounds) for own in FUNCTIONS]
        for p, q in itertools.permutations(laws, 2):
            for epsilon in (0.0, 0.5, 1.5, 3.0):
                exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
                worst = max(worst, exact / float(loss.delta(epsilon)))
    return worst


def worst_record(rounds: int = 3) -> float:
    """Largest exact Renyi divergence over the stated one, over all whole records in the first place."""
    loss = record_loss(Draws.constant(rounds, SCALE, ridge=RIDGE), Bounded(1.0))
    records, worst = list(itertools.product(FUNCTIONS, WHERE)), 0.0
    for respond, place in records[::3]:
        laws = [transcripts((own, respond, respond), rounds, (at, place, place)) for own, at in records]
        for p, q in itertools.permutations(laws, 2):
            for order in (1.2, 1.5):
                exact = math.log(float((p**order * q ** (1.0 - order)).sum())) / (order - 1.0)
                worst = max(worst, exact / float(loss.renyi(order)))
    return worst
