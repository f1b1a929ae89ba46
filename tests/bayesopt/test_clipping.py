"""What one record can change: brute force against the bounds, and pairs that attain them."""

import itertools

import numpy as np
import pytest

from discretion.bayesopt.clipping import (
    ClippedSum,
    aggregate_sensitivity,
    clamped_mean,
    clipped_mean_sensitivity,
    per_record_sensitivity,
)
from discretion.privacy import Neighbours
from discretion.privacy.clipping import clip, grid

RNG = np.random.default_rng(3)
STRANGE = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 5e-324, 0.0])


def mean(A, bound, losses, centre=False, chunk=None):
    total = ClippedSum(A, bound, len(losses), centre=centre)
    for part in np.array_split(losses, chunk or 1):
        total.add(part)
    assert total.seen == len(losses)
    return total.sum / len(losses)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sensitivity_of_random_and_adversarial_pairs():
    for trial in range(400):
        d, m, n = 1 + trial % 5, 1 + trial % 7, 2 + trial % 30
        A, bound = RNG.normal(size=(d, m)) * 10.0 ** RNG.integers(-3, 4), 10.0 ** RNG.integers(-2, 3)
        losses = RNG.normal(size=(n, m)) * 10.0 ** RNG.integers(-3, 6)
        other = losses.copy()
        other[trial % n] = RNG.normal(size=m) * 1e5 if trial % 2 else RNG.choice(STRANGE, m)
        apart = np.linalg.norm(mean(A, bound, losses, trial % 3 == 0) - mean(A, bound, other, trial % 3 == 0))
        assert apart <= per_record_sensitivity(bound, n) * (1 + 1e-12)


def test_the_bound_is_attained():
    for n in (1, 2, 50, 1000):
        A, bound = RNG.normal(size=(4, 6)), 0.7
        v = RNG.normal(size=4)
        losses = RNG.normal(size=(n, 6))
        plus, minus = losses.copy(), losses.copy()
        plus[0] = np.linalg.pinv(A) @ v * 1e3
        minus[0] = -plus[0]
        apart = np.linalg.norm(mean(A, bound, plus) - mean(A, bound, minus))
        assert 0.999 <= apart / per_record_sensitivity(bound, n) <= 1 + 1e-12


def test_every_pair_of_a_small_alphabet():
    """All data sets of 3 records out of 16, and all their neighbours: the largest change is 2B/3."""
    A, bound = RNG.normal(size=(2, 3)), 1.0
    letters = RNG.normal(size=(16, 3)) * 3.0
    letters[0], letters[1], letters[2] = np.linalg.pinv(A) @ [9.0, 0.0], -np.linalg.pinv(A) @ [9.0, 0.0], np.nan
    means = {word: mean(A, bound, letters[list(word)]) for word in itertools.product(range(16), repeat=3)}
    largest = max(
        np.linalg.norm(here - means[(*word[:i], letter, *word[i + 1 :])])
        for word, here in means.items()
        for i in range(3)
        for letter in range(word[i])
    )
    assert largest == pytest.approx(2 / 3, rel=1e-9)
    assert largest <= per_record_sensitivity(bound, 3) * (1 + 1e-12)


def test_sums_do_not_depend_on_chunks():
    A, losses = RNG.normal(size=(3, 5)), RNG.normal(size=(1000, 5))
    whole = mean(A, 0.3, losses)
    U = np.array([A @ each for each in losses])
    length = np.linalg.norm(U, axis=1)
    expected = (U * np.minimum(1.0, 0.3 / length)[:, None]).mean(axis=0)
    np.testing.assert_allclose(whole, expected, rtol=1e-9)
    backwards = ClippedSum(A, 0.3, 1000, centre=False)
    for row in losses[::-1].copy():
        backwards.add(row[None])
    # rows computed alone may differ in their last bit, which the grid keeps from adding up
    np.testing.assert_allclose(backwards.sum / 1000, whole, rtol=0, atol=2 * grid(0.3, 1000))


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_any_bound_holds(scale):
    """A norm that is 1000 times too small or too large protects as well."""
    losses = RNG.normal(size=(10, 3)) * 100
    other = losses.copy()
    other[4] = np.inf
    A, bound = RNG.normal(size=(2, 3)), 1e-3 * scale**2
    assert np.linalg.norm(mean(A, bound, losses) - mean(A, bound, other)) <= 2 * bound / 10 * (1 + 1e-12)


def test_a_clipped_mean_moves_by_twice_the_norm():
    n, bound = 50, 0.5
    A = RNG.normal(size=(3, 4))
    losses = RNG.normal(size=(n, 4))
    means = []
    for sign in (1.0, -1.0):
        losses[0] = sign * 1e9 * np.linalg.pinv(A)[:, 0]
        means.append(clip((A @ losses.mean(axis=0))[None], bound)[0])
    apart = np.linalg.norm(means[0] - means[1])
    assert apart == pytest.approx(clipped_mean_sensitivity(bound), rel=1e-6)
    assert apart > 0.99 * n * per_record_sensitivity(bound, n)


@pytest.mark.parametrize("neighbours", [Neighbours.REPLACE, Neighbours.ADD_REMOVE])
@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_aggregate_sensitivity_is_attained_at_a_corner(m, neighbours):
    A, n, largest = RNG.normal(size=(3, m)), 20, 2.5
    values = (-1.0, 1.0) if neighbours is Neighbours.REPLACE else (0.0, 1.0)
    reach = max(np.linalg.norm(A @ e) for e in itertools.product(values, repeat=m))
    found = aggregate_sensitivity(A, largest, n, 100.0, neighbours)
    assert found == pytest.approx(largest * reach / n, rel=1e-9)
    assert found >= largest * reach / n


def test_aggregate_sensitivity_bounds_clipped_means():
    for trial in range(200):
        d, m, n = 1 + trial % 4, 1 + trial % 6, 1 + trial % 9
        A, bound = RNG.normal(size=(d, m)) * 5, 10.0 ** RNG.integers(-2, 2)
        losses = RNG.uniform(-1, 4, (n, m))
        other = losses.copy()
        other[0] = RNG.choice([-9.0, 9.0, np.nan, np.inf], m)
        released = [clip((A @ clamped_mean(each, 3.0))[None], bound)[0] for each in (losses, other)]
        assert np.linalg.norm(released[0] - released[1]) <= aggregate_sensitivity(A, 3.0, n, bound) * (1 + 1e-12)


def test_aggregate_sensitivity_of_many_columns_is_a_bound():
    A = RNG.normal(size=(3, 30))
    random = max(np.linalg.norm(A @ RNG.choice([-1.0, 1.0], 30)) for _ in range(3000))
    assert random < aggregate_sensitivity(A, 1.0, 1, 1e6) < 6 * random


def test_a_centred_map_needs_its_own_sensitivity():
    """The bound of A itself can be too small for A with each record's mean taken out."""
    ratios = []
    for _ in range(300):
        A = RNG.normal(size=(2, 4))
        centred = A - A.mean(axis=1, keepdims=True)
        ratios.append(aggregate_sensitivity(centred, 1.0, 1, 1e6) / aggregate_sensitivity(A, 1.0, 1, 1e6))
    assert max(ratios) > 1.05


def test_refusals():
    with pytest.raises(ValueError, match="clipping norm"):
        per_record_sensitivity(0.0, 5)
    with pytest.raises(ValueError, match="n must"):
        per_record_sensitivity(1.0, 0)
    with pytest.raises(ValueError, match="largest loss"):
        aggregate_sensitivity(np.eye(2), np.inf, 5, 1.0)
    with pytest.raises(ValueError, match="neighbours"):
        per_record_sensitivity(1.0, 5, Neighbours.REPLACE_RESPONSE)
