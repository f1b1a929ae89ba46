import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from discretion.privacy import noise
from discretion.privacy.noise import Randomness, RepeatedNoise, SeededRandomness, SystemRandomness, noise_id

SOURCES = [SystemRandomness(), SeededRandomness(20260101)]
# The system source has no seed: with --by-chance each of its comparisons fails once in a million runs.
LEAST_P = {SystemRandomness: 1e-6, SeededRandomness: 1e-4}


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_normal_numbers_follow_the_normal_law(source):
    z, least = source.standard_normal(200_000), LEAST_P[type(source)]
    assert stats.kstest(z, "norm").pvalue > least
    assert stats.kstest(np.abs(z[np.abs(z) > 2]), lambda t: 1 - stats.norm.sf(t) / stats.norm.sf(2)).pvalue > least
    size = np.sqrt(z.size)
    for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(z**power) - mean) < 5 * np.sqrt(variance) / size
    assert abs(np.mean(z[1:] * z[:-1])) < 5 / size


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_uniform_numbers_follow_the_uniform_law(source):
    u, least = source.uniform(200_000), LEAST_P[type(source)]
    assert stats.kstest(u, "uniform").pvalue > least
    assert u.min() > 0
    assert u.max() < 1
    assert stats.chisquare(np.bincount((u * 64).astype(int), minlength=64)).pvalue > least


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_words_are_uniform_in_every_byte(source):
    octets = source.words(100_000).view(np.uint8).reshape(-1, 8)
    for place in range(8):
        assert stats.chisquare(np.bincount(octets[:, place], minlength=256)).pvalue > LEAST_P[type(source)] / 8


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_as_many_normal_numbers_lie_beyond_five_sigma_as_should(source):
    count = sum(int(np.count_nonzero(np.abs(source.standard_normal(10**6)) > 5)) for _ in range(40))
    assert stats.binomtest(count, 40 * 10**6, 2 * stats.norm.sf(5)).pvalue > LEAST_P[type(source)]


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

    def words(self, count):
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
    twin, other = pickle.loads(pickle.dumps(source)), copy.deepcopy(source)
    draws = [each.standard_normal(8) for each in (source, source, twin, other)]
    assert len(np.unique(np.concatenate(draws))) == 32
    assert len({each.fresh_id() for each in (source, source, twin, other)}) == 4
    assert source == twin
    assert hash(source) == hash(twin)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_draws_other_numbers():
    source = SystemRandomness()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.fresh_id().encode() + source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    found = os.read(reader, 64)
    assert len(found) == 64
    assert found[:32].decode() != source.fresh_id()
    assert found[32:] != source.words(4).tobytes()


class _Copied:
    """A bookable source with a state, which a copy of it repeats."""

    bookable = True

    def __init__(self):
        self.generator = np.random.default_rng(os.getpid())

    def fresh_id(self):
        return self.generator.bytes(16).hex()


def test_a_source_that_repeats_itself_is_found_out_at_the_second_release():
    stuck = _Fixed(0x0123456789ABCDEF)
    assert stuck.bookable
    assert len(noise_id(stuck)) == 32
    with pytest.raises(RepeatedNoise, match="same random bits twice"):
        noise_id(stuck)
    # Another object in the same state, as in a machine resumed from a snapshot.
    with pytest.raises(RepeatedNoise):
        noise_id(_Fixed(0x0123456789ABCDEF))
    source = _Copied()
    twin = copy.deepcopy(source)
    noise_id(source)
    with pytest.raises(RepeatedNoise):
        noise_id(twin)
    assert len({noise_id(SystemRandomness()) for _ in range(1000)}) == 1000


def test_of_many_threads_with_one_state_one_gets_the_id():
    def ask(_):
        try:
            return noise_id(_Fixed(0xFEDCBA9876543210))
        except RepeatedNoise:
            return None

    with ThreadPoolExecutor(8) as pool:
        assert sum(name is not None for name in pool.map(ask, range(64))) == 1


def test_the_memory_of_ids_is_bounded(monkeypatch):
    monkeypatch.setattr(noise, "_REMEMBERED", 10)
    for _ in range(100):
        noise_id(SystemRandomness())
    before = len(noise._seen)
    noise_id(SystemRandomness())
    assert len(noise._seen) <= before


def test_ids_of_a_seed_repeat_with_it_and_leave_its_numbers_alone():
    first, second = SeededRandomness(5), SeededRandomness(5)
    names = [first.fresh_id(), first.fresh_id()]
    assert names[0] != names[1]
    assert names == [noise_id(second), noise_id(second)]
    assert noise_id(SeededRandomness(5)) == names[0]
    np.testing.assert_array_equal(first.words(6), SeededRandomness(5).words(6))


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
