import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from discretion.privacy.noise import Randomness, SeededRandomness, SystemRandomness

SOURCES = [SystemRandomness(), SeededRandomness(20260101)]
# The system source cannot be seeded: its tests fail once in a million runs.
LEAST_P = 1e-6


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_normal_numbers_follow_the_normal_law(source):
    z = source.standard_normal(200_000)
    assert stats.kstest(z, "norm").pvalue > LEAST_P
    assert stats.kstest(np.abs(z[np.abs(z) > 2]), lambda t: 1 - stats.norm.sf(t) / stats.norm.sf(2)).pvalue > LEAST_P
    size = np.sqrt(z.size)
    for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(z**power) - mean) < 5 * np.sqrt(variance) / size
    assert abs(np.mean(z[1:] * z[:-1])) < 5 / size


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_uniform_numbers_follow_the_uniform_law(source):
    u = source.uniform(200_000)
    assert stats.kstest(u, "uniform").pvalue > LEAST_P
    assert u.min() > 0
    assert u.max() < 1
    assert stats.chisquare(np.bincount((u * 64).astype(int), minlength=64)).pvalue > LEAST_P


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_shapes(source):
    for draw in (source.standard_normal, source.uniform):
        assert draw((3, 4)).shape == (3, 4)
        assert draw(5).shape == (5,)
        assert draw(()).shape == ()
        assert draw((0, 3)).shape == (0, 3)
        assert draw((2, 2)).dtype == np.float64
    assert isinstance(source, Randomness)


class _Fixed(SystemRandomness):
    """A source whose bits are all zeros but for the given word."""

    __slots__ = ("word",)

    def __init__(self, word):
        self.word = word

    def _bits(self, count):
        return np.full(count, self.word, dtype=np.uint64)


def test_ends_of_the_bit_patterns():
    # The far tail: p = 2^-65, resolved and finite on both sides.
    tail = _Fixed(0).standard_normal(1)[0]
    assert tail == ndtri(2.0**-65)
    assert tail < -9.1
    assert _Fixed(1).standard_normal(1)[0] == -tail
    # The middle, where the tail probability is 1/2.
    assert _Fixed(2**64 - 1).standard_normal(1)[0] == 0.0
    # Neither 0 nor 1 from the extreme patterns.
    assert _Fixed(0).uniform(1)[0] == 2.0**-53
    assert _Fixed(2**64 - 1).uniform(1)[0] == 1 - 2.0**-53


def test_inverse_distribution_function_is_accurate_in_the_tails():
    words = np.uint64(1) << np.arange(2, 64, dtype=np.uint64)
    z = np.array([_Fixed(int(word)).standard_normal(1)[0] for word in words])
    p = ((words >> np.uint64(1)).astype(float) + 0.5) * 2.0**-64
    np.testing.assert_allclose(stats.norm.cdf(z), p, rtol=1e-12)


def test_the_system_source_never_repeats_itself():
    source = SystemRandomness()
    copy = pickle.loads(pickle.dumps(source))
    draws = [source.standard_normal(8), source.standard_normal(8), copy.standard_normal(8)]
    assert len(np.unique(np.concatenate(draws))) == 24
    assert source == copy
    assert hash(source) == hash(copy)


def test_only_the_system_source_is_bookable_and_it_takes_no_seed():
    assert SystemRandomness().bookable is True
    with pytest.raises(TypeError):
        SystemRandomness(3)  # pyright: ignore[reportCallIssue]
    seeded = SeededRandomness(3)
    assert seeded.bookable is False
    for source in (SystemRandomness(), seeded):
        with pytest.raises(AttributeError):
            source.bookable = True  # pyright: ignore[reportAttributeAccessIssue]
    assert "tests only" in repr(seeded)


def test_a_seed_repeats_and_is_required():
    first, second, other = SeededRandomness(7), SeededRandomness(7), SeededRandomness(8)
    a, b, c = (source.standard_normal((2, 3)) for source in (first, second, other))
    np.testing.assert_array_equal(a, b)
    assert not np.any(a == c)
    np.testing.assert_array_equal(first.uniform(4), second.uniform(4))
    assert not np.any(first.standard_normal((2, 3)) == a)
    with pytest.raises(TypeError):
        SeededRandomness()  # pyright: ignore[reportCallIssue]
    for seed in (None, 1.5, True, -1, "3"):
        with pytest.raises(ValueError, match="seed"):
            SeededRandomness(seed)  # pyright: ignore[reportArgumentType]
