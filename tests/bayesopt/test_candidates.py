"""The paid choice among candidates."""

import numpy as np
import pytest

from discretion.bayesopt import CandidateChoice, select_candidate
from discretion.privacy import Ledger, PublicError, SeededRandomness

CANDIDATES = [{"x": 0}, {"x": 1}, {"x": 2}]
RNG = np.random.default_rng(6)


def chances(losses, epsilon):
    means = np.clip(losses, 0, 1).mean(axis=0)
    weights = np.exp(-0.5 * epsilon * len(losses) * means)
    return weights / weights.sum()


def test_candidates_are_drawn_by_the_exponential_mechanism():
    losses = RNG.uniform(-0.2, 1.4, (8, 3))
    choice, randomness = CandidateChoice(tuple(CANDIDATES), 1.0, 1.5), SeededRandomness(0)
    places = [choice.run(losses, randomness).place for _ in range(3000)]
    counts = np.bincount(places, minlength=3)
    expected = 3000 * chances(losses, 1.5)
    assert ((counts - expected) ** 2 / expected).sum() < 16  # chi^2 with 2 degrees of freedom, 3e-4


def test_the_range_of_the_log_ratio_is_epsilon():
    epsilon, worst = 0.9, 0.0
    for _ in range(500):
        losses = RNG.choice([0.0, 1.0, np.nan, 7.0], (5, 3))
        other = losses.copy()
        other[0] = RNG.choice([0.0, 1.0], 3)
        ratio = np.log(
            chances(np.nan_to_num(losses, nan=1.0), epsilon) / chances(np.nan_to_num(other, nan=1.0), epsilon)
        )
        worst = max(worst, np.ptp(ratio))
    assert worst == pytest.approx(epsilon, rel=1e-9)


def test_it_is_booked(tmp_path):
    ledger = Ledger.create(tmp_path / "l", dataset="made up", epsilon=1.0, delta=1e-5)
    release = select_candidate(RNG.uniform(size=(50, 3)), CANDIDATES, largest_loss=1.0, epsilon=0.4, ledger=ledger)
    assert release.candidate in CANDIDATES
    assert any("nothing checked whose it is" in line for line in release.certificate.declared)
    assert ledger.entries()[0].description["unit"] == release.certificate.unit
    assert ledger.entries()[0].loss.epsilon(0.0) == pytest.approx(0.4)
    with pytest.raises(PublicError):
        select_candidate(np.zeros((4, 2)), CANDIDATES, largest_loss=1.0, epsilon=0.4)


@pytest.mark.parametrize("wrong", [(CANDIDATES[:1], 1.0, 1.0), (CANDIDATES, 0.0, 1.0), (CANDIDATES, 1.0, np.inf)])
def test_refusals(wrong):
    with pytest.raises(ValueError, match=r"\w"):
        CandidateChoice(tuple(wrong[0]), *wrong[1:])
