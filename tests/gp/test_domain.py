import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.gp.domain import Ball, Box, finite_points

PLANTED = 0.7231859


def test_box_contains_its_faces_and_never_nan():
    box = Box((0, -1), (2, 1))
    X = [[0, -1], [2, 1], [1, 0], [2.0000001, 0], [math.nan, 0], [1, math.inf], [1, -math.inf]]
    assert box.contains(X).tolist() == [True, True, True, False, False, False, False]
    assert box.dimension == 2


def test_ball_contains_its_sphere_and_never_nan():
    ball = Ball((1.0, 1.0), 5.0)
    X = [[4, 5], [6, 1], [4.0000001, 5], [math.nan, 1], [1, math.inf], [1e308, -1e308]]
    assert ball.contains(X).tolist() == [True, True, False, False, False, False]


@given(
    st.lists(st.floats(allow_nan=False), min_size=3, max_size=3),
    st.floats(-1e6, 1e6),
    st.floats(1e-2, 1e6),
)
def test_clamped_points_are_contained_and_contained_points_unchanged(row, origin, size):
    X = np.array([row])
    box = Box((origin,) * 3, (origin + size,) * 3)
    ball = Ball((origin,) * 3, size)
    assert box.contains(box.clamp(X)).all()
    if np.isfinite(X).all():
        assert ball.contains(ball.clamp(X)).all()
        with np.errstate(over="ignore"):
            distance = np.linalg.norm(X - origin)
        if size < distance < 1e100:  # the foot point of the projection
            expected = origin + (X - origin) * size / distance
            np.testing.assert_allclose(ball.clamp(X), expected, atol=1e-9 * (size + abs(origin)))
    else:
        assert np.isnan(ball.clamp(X)).all()
    for domain in (box, ball):
        if domain.contains(X).all():
            assert np.array_equal(domain.clamp(X), X)


def test_clamp_keeps_nan_so_that_it_is_refused_later():
    X = [[math.nan, 0.5]]
    assert not Box((0, 0), (1, 1)).contains(Box((0, 0), (1, 1)).clamp(X)).any()
    assert not Ball((0, 0), 1).contains(Ball((0, 0), 1).clamp(X)).any()
    with pytest.raises(ValueError, match="NaN"):
        finite_points(X)


def test_diameters():
    box = Box((0, 0), (3, 4))
    assert box.diameter() == pytest.approx(5, rel=1e-14)
    assert box.diameter(2.0) == pytest.approx(2.5, rel=1e-14)
    assert box.diameter((3.0, 0.5)) == pytest.approx(math.hypot(1, 8), rel=1e-14)
    assert Ball((7.0, 1.0), 2.0).diameter((3.0, 0.5)) == pytest.approx(8, rel=1e-13)
    with pytest.raises(ValueError, match="length scales"):
        box.diameter((1.0,))
    with pytest.raises(ValueError, match="length scales"):
        Ball((0.0,), 1.0).diameter((1.0, 1.0))


@given(st.integers(0, 2**32 - 1), st.floats(-1e7, 1e7), st.floats(0.01, 100))
def test_no_two_contained_points_are_farther_apart_than_the_diameter(seed, origin, scale):
    rng = np.random.default_rng(seed)
    scales = tuple(scale * rng.uniform(0.1, 3, 2))
    box = Box((origin, -1.0), (origin + 1, 3.0))
    ball = Ball((origin, 0.0), 1.0)
    axis = np.zeros(2)
    axis[np.argmin(scales)] = 1.0
    ends = ball.clamp(np.array([ball.center + axis * 1.1, ball.center - axis * 1.1, *rng.normal(size=(20, 2))]))
    corners = np.array([box.lower, box.upper, *rng.uniform(box.lower, box.upper, (20, 2))])
    for domain, X in ((box, corners), (ball, ends)):
        assert domain.contains(X).all()
        Z = X / scales
        far = np.sqrt(((Z[:, None] - Z[None]) ** 2).sum(-1)).max()
        assert far <= domain.diameter(scales)
        assert far >= domain.diameter(scales) * (1 - 1e-7)


def test_unit_cube_and_back():
    box = Box((531000.0, -3.0), (532000.0, 5.0))
    U = np.array([[0, 0], [1, 1], [0.25, 0.5]])
    X = box.from_unit(U)
    assert X.tolist() == [[531000, -3], [532000, 5], [531250, 1]]
    np.testing.assert_allclose(box.unit(X), U, atol=1e-15)
    assert box.from_unit([[2.0, -1.0]]).tolist() == [[533000, -11]]


def test_grid_spans_the_box_first_coordinate_slowest():
    box = Box((0, 10), (2, 20))
    assert box.grid((3, 2)).tolist() == [[0, 10], [0, 20], [1, 10], [1, 20], [2, 10], [2, 20]]
    assert box.grid((1, 3)).tolist() == [[1, 10], [1, 15], [1, 20]]
    assert box.contains(box.grid((17, 13))).all()
    for bad in [(3,), (0, 2), (2.5, 2), (3, 2, 1)]:
        with pytest.raises(ValueError, match="counts"):
            box.grid(bad)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ((0,), (0,)),
        ((1,), (0,)),
        ((0, 0), (1,)),
        ((), ()),
        ((math.nan,), (1,)),
        ((0,), (math.inf,)),
        ((-1e308,), (1e308,)),
    ],
)
def test_bad_boxes_are_refused(lower, upper):
    with pytest.raises(ValueError):  # noqa: PT011
        Box(lower, upper)


@pytest.mark.parametrize("ball", [((0,), 0), ((0,), -1), ((0,), math.nan), ((math.inf,), 1), ((), 1), ((1e12,), 1)])
def test_bad_balls_are_refused(ball):
    with pytest.raises(ValueError):  # noqa: PT011
        Ball(*ball)


@pytest.mark.parametrize(
    "X",
    [
        [PLANTED],
        PLANTED,
        [[PLANTED, 1, 2]],
        [[str(PLANTED), "x"]],
        [[PLANTED, None]],
        [[PLANTED], [1, 2]],
        [[1j, 2]],
    ],
)
def test_messages_name_shapes_and_never_an_entry(X):
    with pytest.raises(ValueError, match=r".") as error:
        finite_points(X, 2)
    assert "7231" not in str(error.value)


def test_domains_are_values():
    assert Box([0], np.array([1])) == Box((0.0,), (1.0,))
    assert len({Ball([0], 1), Ball((0.0,), 1.0)}) == 1
