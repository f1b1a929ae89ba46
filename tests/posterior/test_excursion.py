import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.ndimage import gaussian_filter

from discretion.posterior.excursion import (
    agreed,
    excursion_fraction,
    excursion_polygons,
    frequency_set,
    intersection_over_union,
    polygon_area,
    smooth,
)

shapely = pytest.importorskip("shapely")


def as_shapely(polygons):
    """A MultiPolygon, after checking what the docstring promises of its rings."""
    shapes = []
    for rings in polygons:
        assert all((ring[0] == ring[-1]).all() and len(ring) >= 4 for ring in rings)
        shape = shapely.Polygon(rings[0], rings[1:])
        assert shape.exterior.is_ccw
        assert not any(hole.is_ccw for hole in shape.interiors)
        assert polygon_area(rings) == pytest.approx(shape.area, rel=1e-9, abs=1e-12)
        shapes.append(shape)
    whole = shapely.MultiPolygon(shapes)
    assert whole.is_valid
    for shape in shapes:
        # rings keep apart: not even a hole touches its exterior
        rings = [shape.exterior, *shape.interiors]
        assert not any(rings[i].intersects(rings[j]) for i in range(len(rings)) for j in range(i))
    return whole


def polygons_on_grid(values, threshold=0.0, **options):
    values = np.asarray(values, dtype=float)
    return excursion_polygons(values, np.arange(values.shape[1]), np.arange(values.shape[0]), threshold, **options)


def area_within_one_cell_perimeter(values, threshold, area, above=True, absent=None):
    """Grid cells wholly inside <= area <= grid cells not wholly outside, on a grid of unit cells."""
    inside = values >= threshold if above else values <= threshold
    if absent is not None:
        inside = inside & ~absent
    corners = np.stack((inside[:-1, :-1], inside[1:, :-1], inside[:-1, 1:], inside[1:, 1:]))
    return corners.all(axis=0).sum() - 1e-9 <= area <= corners.any(axis=0).sum() + 1e-9


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("above", [True, False])
def test_smooth_fields_give_valid_polygons_of_the_right_area(seed, above):
    field = gaussian_filter(np.random.default_rng(seed).standard_normal((60, 45)), 3)
    polygons = polygons_on_grid(field, 0.02, above=above)
    whole = as_shapely(polygons)
    assert area_within_one_cell_perimeter(field, 0.02, whole.area, above)
    grid = np.stack(np.meshgrid(np.arange(45.0), np.arange(60.0)), axis=-1).reshape(-1, 2)
    inside = (field >= 0.02 if above else field <= 0.02).ravel()
    # a hair's breadth of the border belongs to the polygon, which runs along it
    assert (shapely.covers(whole.buffer(1e-9), shapely.points(grid)) == inside).all()


@settings(max_examples=150, deadline=None)
@given(
    npst.arrays(
        np.float64,
        npst.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=8),
        elements=st.one_of(st.sampled_from([-1.0, 0.0, 1.0, np.nan]), st.floats(-2, 2), st.floats(-1e300, 1e300)),
    ),
    st.booleans(),
    st.data(),
)
def test_any_values_give_valid_polygons(values, above, data):
    """Plateaus exactly at the threshold, saddles, checkerboards, holes and absent points included."""
    mask = data.draw(npst.arrays(np.bool_, values.shape))
    whole = as_shapely(polygons_on_grid(values, 0.0, above=above, mask=mask))
    assert area_within_one_cell_perimeter(values, 0.0, whole.area, above, mask | np.isnan(values))


def test_a_disc_and_an_annulus():
    x = np.linspace(-2, 2, 401)
    radius = np.hypot(x[:, None], x[None, :])
    (disc,) = excursion_polygons(radius, x, x, 1.0, above=False)
    assert len(disc) == 1
    assert polygon_area(disc) == pytest.approx(np.pi, rel=1e-4)
    (ring,) = excursion_polygons(-np.abs(radius - 1.25), x, x, -0.25)
    assert len(ring) == 2
    assert polygon_area(ring) == pytest.approx(np.pi * (1.5**2 - 1.0), rel=1e-3)


def test_an_island_in_a_lake_is_a_polygon_of_its_own():
    x = np.linspace(-3, 3, 121)
    radius = np.hypot(x[:, None], x[None, :])
    polygons = excursion_polygons(np.cos(2 * radius), x, x, 0.0)
    whole = as_shapely(polygons)
    assert sorted(len(rings) for rings in polygons)[-1] >= 2
    assert whole.area == pytest.approx(np.mean(np.cos(2 * radius) >= 0) * 36, rel=0.03)


def test_everything_and_nothing():
    everything = polygons_on_grid(np.ones((3, 4)))
    assert as_shapely(everything).area == pytest.approx(6.0)
    assert polygons_on_grid(np.zeros((3, 4))) != []  # at the threshold counts as inside
    assert polygons_on_grid(-np.ones((3, 4))) == []
    assert polygons_on_grid(np.ones((3, 4)), above=False) == []
    assert polygons_on_grid(np.full((3, 4), np.nan)) == []


def test_saddles_do_not_touch():
    for values in (
        [[1, -1], [-1, 1]],
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]],
        np.indices((9, 9)).sum(axis=0) % 2 - 0.5,
    ):
        for sign in (1, -1):
            as_shapely(polygons_on_grid(sign * np.asarray(values, dtype=float)))


def test_vertices_keep_clear_of_the_grid_points_between_which_they_lie():
    """So that rounding to centimetres lets no two of them meet."""
    values = np.where(np.indices((9, 9)).sum(axis=0) % 3 == 0, 1e-12, -1.0)
    for rings in polygons_on_grid(values, 0.0):
        for ring in rings:
            off = np.abs(ring - np.rint(ring)).max(axis=1)
            between = off > 0
            assert off[between].min() == pytest.approx(1e-3, rel=1e-6)
    zero = np.where(values > 0, 0.0, -1.0)
    assert len(polygons_on_grid(zero)) == len(polygons_on_grid(values))


def test_the_outline_ends_half_way_to_absent_points():
    mask = np.zeros((5, 5), dtype=bool)
    mask[2, 2] = True
    values = np.ones((5, 5))
    values[0, 0] = 7.0  # so that the level is not half-way by accident
    (rings,) = polygons_on_grid(values, mask=mask)
    assert polygon_area(rings) == pytest.approx(16 - 0.5)
    assert sorted(map(tuple, np.unique(rings[1], axis=0))) == [(1.5, 2.0), (2.0, 1.5), (2.0, 2.5), (2.5, 2.0)]
    values[2, 2] = np.nan
    (same,) = polygons_on_grid(values)
    assert all((a == b).all() for a, b in zip(rings, same, strict=True))
    values[2, 2] = np.inf
    with pytest.raises(ValueError, match="infinite"):
        polygons_on_grid(values)
    assert polygons_on_grid(values, mask=mask) != []


def test_uneven_and_descending_axes():
    field = gaussian_filter(np.random.default_rng(3).standard_normal((30, 40)), 3)
    x = np.cumsum(np.random.default_rng(4).uniform(0.5, 2, 40))
    y = np.cumsum(np.random.default_rng(5).uniform(0.5, 2, 30))
    whole = as_shapely(excursion_polygons(field, x, y, 0.0))
    for flip_x, flip_y in ((-1, 1), (1, -1), (-1, -1)):
        turned = excursion_polygons(field[::flip_y, ::flip_x], x[::flip_x], y[::flip_y], 0.0)
        assert as_shapely(turned).symmetric_difference(whole).area < 1e-9 * whole.area


def test_huge_and_tiny_values_keep_their_sign():
    tiny = np.array([[5e-324, -5e-324], [-5e-324, 5e-324]])
    assert len(polygons_on_grid(tiny)) == len(polygons_on_grid(np.sign(tiny)))
    huge = np.array([[1.7e308, -1.7e308], [-1.7e308, -1.7e308]])
    assert as_shapely(polygons_on_grid(huge, 1.0)).area > 0


@pytest.mark.parametrize(
    ("values", "x", "y", "threshold", "said"),
    [
        (np.ones((2, 3)), [0, 1], [0, 1], 0.0, "shape"),
        (np.ones(3), [0, 1, 2], [0], 0.0, "shape"),
        (np.ones((1, 3)), [0, 1, 2], [0], 0.0, "two rows"),
        (np.ones((2, 2)), [0, 0], [0, 1], 0.0, "increase"),
        (np.ones((2, 2)), [0, 1], [0, np.nan], 0.0, "increase"),
        (np.ones((2, 2)), [0, 1], [0, 1], np.nan, "threshold"),
    ],
)
def test_bad_grids_are_refused(values, x, y, threshold, said):
    with pytest.raises(ValueError, match=said):
        excursion_polygons(values, x, y, threshold)


def test_a_mask_must_be_boolean_and_fit():
    with pytest.raises(ValueError, match="boolean"):
        polygons_on_grid(np.ones((2, 2)), mask=np.ones((2, 2)))
    with pytest.raises(ValueError, match="boolean"):
        polygons_on_grid(np.ones((2, 2)), mask=np.ones((3, 2), dtype=bool))


def test_fraction_and_frequency_set():
    paths = np.array([[[0.0, 1.0]], [[1.0, 1.0]], [[2.0, -1.0]]])
    assert excursion_fraction(paths, 1.0) == pytest.approx(np.array([[2 / 3, 2 / 3]]))
    assert excursion_fraction(paths, 0.0, above=False) == pytest.approx(np.array([[1 / 3, 1 / 3]]))
    assert frequency_set(paths, 0.0, 1.0).tolist() == [[True, False]]
    assert frequency_set(paths, 1.0, 2 / 3).tolist() == [[True, True]]
    for count in range(1, 11):
        ten = np.repeat([1.0, -1.0], [count, 10 - count])[:, None]
        assert frequency_set(ten, 0.0, count / 10).all()
        assert not frequency_set(ten, 0.0, count / 10 + 1e-9 if count < 10 else 1.0)[0] or count == 10
    paths[0, 0, 0] = np.nan
    assert np.isnan(excursion_fraction(paths, 1.0)[0, 0])
    assert not frequency_set(paths, 1.0, 0.1)[0, 0]
    for fraction in (0.0, 1.1, np.nan):
        with pytest.raises(ValueError, match="fraction"):
            frequency_set(paths, 0.0, fraction)
    with pytest.raises(ValueError, match="path"):
        excursion_fraction(np.zeros((0, 2)), 0.0)


@pytest.mark.parametrize("above", [True, False])
def test_the_agreed_field_has_the_frequency_sets_as_its_excursion_sets(above):
    for count in (1, 2, 3, 10):
        paths = np.random.default_rng(count).standard_normal((count, 6, 5)).round(1)
        paths[0, 0, 0] = np.nan
        for fraction in (0.1, 1 / 3, 0.5, 2 / 3, 1.0):
            field = agreed(paths, fraction, above)
            for threshold in (-0.5, 0.0, 0.3):
                inside = field >= threshold if above else field <= threshold
                assert (inside == frequency_set(paths, threshold, fraction, above)).all()


def test_intersection_over_union():
    A = np.array([[True, True], [False, False]])
    B = np.array([[True, False], [True, False]])
    assert intersection_over_union(A, B) == pytest.approx(1 / 3)
    assert intersection_over_union(A, A) == 1.0
    assert intersection_over_union(A, ~A) == 0.0
    assert intersection_over_union(A & ~A, A & ~A) == 1.0
    assert intersection_over_union(A, B, mask=np.array([[False, True], [True, False]])) == 1.0
    with pytest.raises(ValueError, match="boolean"):
        intersection_over_union(A.astype(int), B)
    with pytest.raises(ValueError, match="shape"):
        intersection_over_union(A, B[:1])


def test_smoothing_averages_each_path_by_itself():
    paths = np.random.default_rng(1).standard_normal((3, 30, 20))
    blurred = smooth(paths, 2.0)
    for path, result in zip(paths, blurred, strict=True):
        assert (result == smooth(path, 2.0)).all()
        assert result.std() < path.std() / 3
    assert (smooth(paths, 0.0) == paths).all()
    assert smooth(np.full((5, 5), 7.0), 2.0) == pytest.approx(np.full((5, 5), 7.0), rel=1e-12)
    spike = np.zeros((31, 31))
    spike[15, 15] = 1.0
    assert np.count_nonzero(smooth(spike, 2.0)[15]) == 13  # three standard deviations to either side
    for bad in (np.full((2, 2), np.nan), np.zeros(3)):
        with pytest.raises(ValueError, match="values"):
            smooth(bad, 1.0)
    with pytest.raises(ValueError, match="sd_cells"):
        smooth(spike, -1.0)
