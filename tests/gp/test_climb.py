"""The search of a path over a box."""

import numpy as np
import pytest

from discretion.gp import Matern52, SamplePaths
from discretion.gp.climb import Climb
from discretion.gp.growing import GrowingPosterior


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_it_finds_the_top_of_a_smooth_hill(dimension):
    top = np.linspace(0.2, 0.9, dimension)
    found = Climb(passes=20).highest(lambda X: -((X - top) ** 2).sum(axis=1), dimension, 0)
    assert np.abs(found - top).max() < 0.02


def test_it_looks_at_no_more_points_than_it_says_all_in_the_cube():
    seen = []

    def path(X):
        seen.append(X)
        return X.sum(axis=1)

    climb = Climb(starts=5, climbers=8, passes=3)
    np.testing.assert_allclose(climb.highest(path, 2, 1), 1.0, atol=0.3)
    points = np.concatenate(seen)
    assert len(points) <= climb.points(2) == 5 + 4 * 5 * 3
    assert ((points >= 0) & (points <= 1)).all()


def test_starts_are_public_and_spread():
    starts = []
    for _ in range(2):
        Climb(starts=400, climbers=1, passes=0).highest(lambda X: (starts.append(X), X[:, 0])[1], 2, (0, 3))
    np.testing.assert_array_equal(*starts)
    counts, *_ = np.histogram2d(*starts[0].T, bins=5, range=[[0, 1]] * 2)
    assert counts.min() >= 10


def test_it_climbs_one_path():
    """The value found is that of the path, asked again, and near the highest on a fine grid."""
    path = SamplePaths(GrowingPosterior(Matern52(0.3), 1.0, 1, 1), 1.0, 1e-6, np.random.default_rng(0).standard_normal)
    found = Climb().highest(lambda X: path.evaluate(X)[0], 1, 0)
    grid = np.linspace(0, 1, 300)[:, None]
    assert path.evaluate(found[None])[0, 0] > path.evaluate(grid).max() - 0.02


@pytest.mark.parametrize("wrong", [{"starts": 0}, {"climbers": 0.5}, {"passes": -1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Climb(**wrong)
