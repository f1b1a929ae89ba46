import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.gp import RBF, Box, Diagonal, Exponential, ExponentialL1, Matern32, Matern52, RationalQuadratic, fields
from discretion.gp.fields import (
    CirculantField,
    DenseField,
    Grid,
    NoEmbedding,
    ProductField,
    cell_centres,
    kernel_sums,
    reach,
    rows_at_once,
    stationary_field,
    sum_rounding,
)
from discretion.gp.path import MARGIN

UNEVEN = Grid((np.array([0.0, 0.1, 0.5, 0.55]), np.array([2.0, 1.0, 0.4])))
EVEN = Grid((np.linspace(0, 1, 7), np.linspace(0, 0.5, 5)))
CUBE = Grid((np.linspace(0, 1, 4), np.linspace(0, 1, 3), np.linspace(-1, 1, 5)))
LINE = Grid((np.linspace(0, 1, 9),))


def covariance(field, nugget):
    """C C^T, the columns of C drawn one by one with unit vectors for normals."""
    shapes = []

    def look(shape):
        shapes.append(shape)
        return np.zeros(shape)

    field._draw(look, nugget, 1)
    ((_, *shape),) = shapes
    count = math.prod(shape)
    C = field.draw(lambda _: np.eye(count).reshape(count, *shape), nugget, count).T
    return C @ C.T


def test_grids():
    points = Box((0, 10), (2, 16)).grid((3, 4))
    grid = Grid.of(points, (3, 4))
    assert grid.shape == (3, 4)
    np.testing.assert_array_equal(grid.points, points)
    np.testing.assert_array_equal(grid.axes[1], [10, 12, 14, 16])
    with pytest.raises(ValueError, match="first axis slowest"):
        Grid.of(points[::-1] @ np.array([[1, 0.1], [0, 1]]), (3, 4))
    with pytest.raises(ValueError, match="has 9 points, 12 were given"):
        Grid.of(points, (3, 3))
    centres = Grid.of(cell_centres(Box((0, 10), (2, 16)), (2, 3)), (2, 3))
    np.testing.assert_allclose(centres.axes[0], [0.5, 1.5])
    np.testing.assert_allclose(centres.axes[1], [11, 13, 15])


@pytest.mark.parametrize("grid", [UNEVEN, EVEN, CUBE, LINE])
@pytest.mark.parametrize("k", [RBF(0.3), ExponentialL1(0.7), Diagonal(), Matern32(0.4)])
def test_sums_on_grids_are_those_at_their_points(grid, k):
    rng = np.random.default_rng(0)
    X, w = rng.uniform(-0.5, 1.5, (40, len(grid.axes))), rng.normal(size=(40, 3))
    X[0] = grid.points[1]
    expected = w.T @ k(X, grid.points)
    np.testing.assert_allclose(kernel_sums(k, grid, X, w), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(kernel_sums(k, grid.points, X, w), expected, rtol=1e-14)


def test_factors_multiply_to_the_kernel():
    X, Z = np.random.default_rng(0).normal(size=(2, 5, 3))
    scales = (0.5, 1.0, 2.0)
    for k in (RBF(scales), RBF(0.7), ExponentialL1(scales), ExponentialL1(0.7)):
        factors = k.factors(3)
        product = math.prod(f(X[:, i : i + 1], Z[:, i : i + 1]) for i, f in enumerate(factors))
        np.testing.assert_allclose(product, k(X, Z), rtol=1e-13)
    assert Matern32(1.0).factors(2) is None
    assert Matern32(1.0).factors(1) == (Matern32(1.0),)


def test_l1_exponential():
    k = ExponentialL1((0.5, 2.0))
    assert k([[0.0, 1.0]], [[1.0, -2.0]])[0, 0] == pytest.approx(math.exp(-3.5), rel=1e-15)
    np.testing.assert_array_equal(ExponentialL1(0.3)([[0.0], [0.4]]), Exponential(0.3)([[0.0], [0.4]]))
    box = Box((0.0, -1.0), (1.0, 2.0))
    assert k.least_value(box) == pytest.approx(math.exp(-3.5), rel=1e-12)
    assert k.least_value(box) <= k([box.lower], [box.upper])[0, 0]
    x, z, h = np.array([[0.3, 0.2]]), np.array([[0.9, -0.4]]), 1e-6
    slopes = [(k(x + h * e, z) - k(x - h * e, z))[0, 0] / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(k.input_gradient(x, z)[0, 0], slopes, rtol=1e-7)
    assert (k.input_gradient(x, x) == 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([RBF, ExponentialL1, Exponential, Matern52, RationalQuadratic]))
def test_reach_bounds_the_norm_of_a_kernel_over_the_points(seed, kind):
    rng = np.random.default_rng(seed)
    k = kind(float(rng.uniform(0.03, 0.5)))
    for grid in (EVEN, UNEVEN, Grid((np.linspace(0, 1, 40), np.linspace(1, 0, 30)))):
        bound = reach(k, grid)
        assert bound <= math.sqrt(len(grid.points))
        X = np.vstack([rng.uniform(-0.2, 2.2, (50, 2)), grid.points[rng.integers(len(grid.points), size=20)]])
        assert np.linalg.norm(k(X, grid.points), axis=1).max() <= bound
    assert reach(RBF(0.02), Grid((np.linspace(0, 1, 40),) * 2)) < 4.0  # not the square root of 1600


@pytest.mark.parametrize(("k", "places"), [(RBF(0.3), EVEN), (Matern32(0.3), EVEN), (RBF(0.3), EVEN.points)])
def test_sum_rounding_bounds_the_error(k, places):
    rng = np.random.default_rng(0)
    n = rows_at_once(k, places)
    X, w = rng.uniform(0, 1, (n, 2)), rng.choice([-1.0, 1.0], (n, 1))
    s = np.sqrt((((X[:, None] - EVEN.points[None]).astype(np.longdouble) / np.longdouble(0.3)) ** 2).sum(-1))
    t = np.sqrt(np.longdouble(3)) * s
    exact = w[:, 0].astype(np.longdouble) @ (np.exp(-(s**2) / 2) if isinstance(k, RBF) else (1 + t) * np.exp(-t))
    error = float(np.linalg.norm(kernel_sums(k, places, X, w)[0] - exact))
    assert 0 < error <= sum_rounding(k, places, n, 1.0) <= 1e6 * error


@pytest.mark.parametrize("nugget", [1e-6, 0.3])
@pytest.mark.parametrize(
    ("k", "places", "kind"),
    [
        (RBF(0.5), EVEN, ProductField),
        (RBF((0.5, 0.1)), UNEVEN, ProductField),
        (ExponentialL1(0.5), CUBE, ProductField),
        (Diagonal(), EVEN, ProductField),
        (Matern52(0.2), LINE, ProductField),
        (Exponential(0.2), EVEN, CirculantField),
        (Matern32((0.1, 0.2)), EVEN, CirculantField),
        (Matern52(0.3), EVEN, CirculantField),
        (Matern32(0.4), CUBE, CirculantField),
        (Matern32(0.5), UNEVEN, DenseField),
        (RBF(0.5), EVEN.points, DenseField),
    ],
)
def test_the_covariance_of_a_field(k, places, kind, nugget):
    field = stationary_field(k, places)
    assert type(field) is kind
    points = places.points if isinstance(places, Grid) else places
    error = np.linalg.norm(covariance(field, nugget) - k(points) - nugget * np.eye(len(points)), 2)
    assert error <= field.rounding
    assert MARGIN * field.rounding < 1e-8


def test_a_torus_grows_until_its_eigenvalues_are_not_negative():
    small, large = (CirculantField(Matern52(l), EVEN) for l in (0.05, 0.5))
    assert small.torus == (12, 8)
    assert math.prod(large.torus) > math.prod(small.torus)
    with pytest.raises(NoEmbedding, match="evenly spaced"):
        CirculantField(Matern52(0.1), UNEVEN)


def test_without_an_embedding_a_dense_factor_or_a_plain_refusal(monkeypatch):
    k = RationalQuadratic(2.0, 0.1)
    monkeypatch.setattr(fields, "_LARGEST_EMBEDDING", 1000)
    with pytest.raises(NoEmbedding, match="non-negative definite"):
        CirculantField(k, EVEN)
    assert type(stationary_field(k, EVEN)) is DenseField
    monkeypatch.setattr(fields, "_LARGEST_FACTOR", 34)
    with pytest.raises(ValueError, match="No exact field of the kernel rational-quadratic at these 35 points"):
        stationary_field(k, EVEN)


def test_far_from_the_origin_evenly_spaced_is_still_within_rounding():
    grid = Grid((5e5 + 250.0 * np.arange(6), 1.8e5 + 0.1 * np.arange(5)))
    k = Matern32((600.0, 0.3))
    field = stationary_field(k, grid)
    assert type(field) is CirculantField
    assert np.linalg.norm(covariance(field, 1e-6) - k(grid.points) - 1e-6 * np.eye(30), 2) <= field.rounding < 1e-7


def test_draws():
    rng = np.random.default_rng(0)
    for k in (RBF(0.5), Matern32(0.3)):
        for places in (EVEN, EVEN.points):
            field = stationary_field(k, places)
            draws = field.draw(rng.standard_normal, 1e-6, 4000)
            assert draws.shape == (4000, 35)
            assert np.abs(draws.T @ draws / 4000 - k(EVEN.points)).max() < 5 * math.sqrt(2 / 4000)
            for nugget in (0.0, 1e-16, math.inf, math.nan):
                with pytest.raises(ValueError, match=r"nugget .* is too small"):
                    field.draw(rng.standard_normal, nugget)
            with pytest.raises(FloatingPointError, match="not finite"):
                field.draw(lambda shape: np.full(shape, np.nan), 1e-6)
