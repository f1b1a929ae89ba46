"""No two releases share their noise: a source that repeats itself is found in the process and by the ledger."""

import os

import numpy as np
import pytest

from discretion.privacy import Certificate, GaussianDP, Ledger, Neighbours, Release, SystemRandomness
from discretion.privacy import noise as noises
from discretion.privacy.noise import RepeatedNoise


class Noise:
    """Noise alone, under mu = 0.1."""

    name, neighbours = "noise", Neighbours.REPLACE

    def privacy_loss(self, n):
        return GaussianDP(0.1, neighbours=self.neighbours)

    def parameters(self):
        return {}

    def run(self, records, randomness):
        randomness.standard_normal(3)
        return Release(Certificate.issue(self, n=len(records), delta=1e-5, unit="one record", randomness=randomness))


class SetBack(SystemRandomness):
    """A source that a snapshot set back: the same bits from its start each time."""

    def __init__(self, seed):
        self.seed, self.at = seed, 0

    def words(self, count):
        found = np.random.default_rng(self.seed).integers(0, 2**64, size=self.at + count, dtype=np.uint64)[self.at :]
        self.at += count
        return found


@pytest.fixture
def seed():
    """Another one in each test: those in PostgreSQL share a database."""
    return int.from_bytes(os.urandom(8))


@pytest.fixture
def book(place):
    return Ledger.create(place(), dataset="numbers", epsilon=5.0, delta=1e-5)


def test_a_source_set_back_is_refused_by_the_process(book, seed):
    noises._seen.clear()
    book.run(Noise(), [1.0], n=1, randomness=SetBack(seed))
    with pytest.raises(RepeatedNoise, match="same random bits twice"):
        book.run(Noise(), [1.0], n=1, randomness=SetBack(seed))
    assert len(book.entries()) == 1


def test_a_source_set_back_with_its_process_is_refused_by_the_ledger(book, seed):
    noises._seen.clear()
    book.run(Noise(), [1.0], n=1, randomness=SetBack(seed))
    noises._seen.clear()  # a machine that was set back does not know either
    with pytest.raises(RepeatedNoise, match="Nothing was drawn"):
        book.run(Noise(), [1.0], n=1, randomness=SetBack(seed))
    assert [str(entry.state) for entry in book.entries()] == ["booked"]
    book.verify()


def test_further_numbers_of_one_source_and_the_systems_are_fine(book, seed):
    noises._seen.clear()
    source = SetBack(seed)
    for randomness in (source, source, None, None):
        book.run(Noise(), [1.0], n=1, randomness=randomness)
    assert len(book.entries()) == 4


def test_a_name_of_noise_is_taken_once_in_the_whole_database(book, place, seed):
    loss = GaussianDP(0.1, neighbours=Neighbours.REPLACE)
    book.reserve(loss, {}, noise=f"{seed:032x}")
    with pytest.raises(RepeatedNoise):
        book.reserve(loss, {}, noise=f"{seed:032x}")
    if book.path is None:
        other = Ledger.create(place(), dataset="others", epsilon=1.0, delta=0.1)
        with pytest.raises(RepeatedNoise):
            other.reserve(loss, {}, noise=f"{seed:032x}")
