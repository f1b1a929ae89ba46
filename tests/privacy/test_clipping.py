"""Clipped contributions of records: no row is too long in exact arithmetic, and sums are exact."""

from fractions import Fraction

import numpy as np
import pytest

from discretion.privacy import SeededRandomness
from discretion.privacy.clipping import AdaptiveClip, clip, clipped_sum, grid, lengths
from discretion.privacy.lattice import lattice_spacing

RNG = np.random.default_rng(7)
LARGEST = np.finfo(np.float64).max
STRANGE = (1e12, -1e12, np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 1e200, 5e-324, 0.0, 1.0)


def exact_square(row):
    return sum(Fraction(x) ** 2 for x in row.tolist())


@pytest.mark.parametrize("bound", [0.31, 1.0, 1e-40])
def test_rows_are_no_longer_than_the_bound_in_exact_arithmetic(bound):
    rows = RNG.normal(size=(300, 7)) * 10.0 ** RNG.integers(-3, 3, (300, 1)) * bound
    rows[:20] *= bound / np.linalg.norm(rows[:20], axis=1, keepdims=True)
    for row in clip(np.vstack([rows, RNG.choice(STRANGE, (300, 7))]), bound):
        assert exact_square(row) <= Fraction(bound) ** 2


def test_the_largest_doubles_in_many_dimensions():
    """The length of such a row overflows, and neither it nor a row of ordinary size may slip through."""
    for d in (2, 50, 1000):
        row = clip(np.full((1, d), LARGEST), 1.0)[0]
        assert 0.999 < exact_square(row) <= 1
        assert lengths(np.full((1, d), LARGEST))[0] == np.inf


def test_what_is_clipped_and_what_is_not():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0], [1e200, 1e200], [5e-324, 0.0], [0.0, 0.0]])
    found = clip(rows, 1.0)
    np.testing.assert_allclose(found[0], [0.6, 0.8], rtol=1e-14)
    np.testing.assert_array_equal(found[[1, 5, 6]], rows[[1, 5, 6]])
    assert not found[2:4].any()
    np.testing.assert_allclose(found[4], np.sqrt(0.5), rtol=1e-14)
    np.testing.assert_allclose(lengths(rows), [5, 0.5, np.nan, np.nan, np.sqrt(2) * 1e200, 5e-324, 0])
    assert clip(np.zeros((3, 0)), 1.0).shape == (3, 0)


def test_sums_are_exact_in_any_order():
    rows = RNG.normal(size=(999, 3))
    total = clipped_sum(rows, 1.0, 999)
    np.testing.assert_array_equal(total, clipped_sum(rows[RNG.permutation(999)], 1.0, 999))
    one_by_one = [[Fraction(x) for x in clipped_sum(row[None], 1.0, 999)] for row in rows]
    assert [sum(column) for column in zip(*one_by_one, strict=True)] == [Fraction(x) for x in total.tolist()]
    np.testing.assert_allclose(total, clip(rows, 1.0).sum(axis=0), rtol=0, atol=999 * grid(1.0, 999))
    some = RNG.uniform(size=999) < 0.3
    np.testing.assert_array_equal(clipped_sum(rows, 1.0, 999, some), clipped_sum(rows[some], 1.0, 999))


def test_released_fractions_lie_on_a_lattice():
    noise, n, adaptive = 3.0, 500, AdaptiveClip()
    spacing = lattice_spacing(noise)
    found = [adaptive.fraction(200, n, noise, SeededRandomness(seed)) for seed in range(2000)]
    assert all((value * n / spacing).is_integer() for value in found)
    assert np.mean(found) * n == pytest.approx(200, abs=0.3)
    assert np.std(found) * n == pytest.approx(noise, rel=0.1)
    assert adaptive.moved(2.0, 0.7) == 2.0
    assert adaptive.moved(2.0, 9.0) == adaptive.moved(2.0, 1.0) < 2.0 < adaptive.moved(2.0, -5.0)
    for wrong in ({"quantile": 1.0}, {"share": 0.0}, {"rate": np.inf}):
        with pytest.raises(ValueError, match="AdaptiveClip"):
            AdaptiveClip(**wrong)
