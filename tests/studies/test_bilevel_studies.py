"""The audit of private choices cries no wolf, and sees one."""

import numpy as np

from discretion.privacy import SeededRandomness
from studies.bilevel_audit import sampled


def test_equal_laws_give_nothing():
    scores = np.array([0.0, 0.5, 1.0, 3.0])
    randomness = SeededRandomness(1)
    found = [sampled(scores, scores, randomness, draws=150) for _ in range(200)]
    assert np.mean(np.array(found) == 0.0) >= 0.95


def test_reversed_laws_are_seen():
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    found = sampled(scores, scores[::-1], SeededRandomness(2), draws=4000)
    assert 2.0 < found <= 3.0
