import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.gp.domain import Box
from discretion.spatial.hexagons import HexagonLattice, aggregate, unit_of_privacy
from discretion.spatial.reading import Records

BOX = Box((10.0, -5.0), (31.0, 9.0))


def records(X, y):
    return Records(np.asarray(X, dtype=float), np.asarray(y, dtype=float), ("x", "y"), "price")


def uniform(box, n, seed):
    return np.random.default_rng(seed).uniform(box.lower, box.upper, (n, 2))


def brute_force_cells(lattice, X):
    """Nearest centre among all of those around the box, by comparing every distance."""
    cells = lattice.cells()
    distance = np.linalg.norm(X[:, None, :] - lattice.center(cells)[None], axis=2)
    return cells[distance.argmin(axis=1)], distance.min(axis=1)


@pytest.mark.parametrize("size", [0.7, 1.0, 3.3, 40.0])
@pytest.mark.parametrize("origin", [None, (17.3, 2.2), (-40.0, 80.0)])
def test_every_point_belongs_to_the_nearest_centre(size, origin):
    lattice = HexagonLattice(size, BOX, origin)
    X = uniform(BOX, 2000, 1)
    nearest, _ = brute_force_cells(lattice, X)
    assert (lattice.cell(X) == nearest).all()


def test_ties_go_to_one_of_the_nearest_centres_right_along_a_row_and_down_between_rows():
    lattice = HexagonLattice(2.0, Box((0.0, 0.0), (20.0, 20.0)))
    assert lattice.cell([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0]]).tolist() == [[1, 0], [2, 0], [0, 0]]
    centers = lattice.center(lattice.cells())
    between = (centers[:, None] + centers[None]).reshape(-1, 2) / 2
    corners = lattice.polygon(lattice.cells()).reshape(-1, 2)
    for X in (between, corners):
        X = X[lattice.domain.contains(X)]
        _, least = brute_force_cells(lattice, X)
        chosen = np.linalg.norm(X - lattice.center(lattice.cell(X)), axis=1)
        assert chosen == pytest.approx(least, rel=1e-12, abs=1e-12)
    # half-way up between (0, 0) and the row above, off both axes: the lower hexagon
    halfway = lattice.center(np.array([[0, 0], [0, 1]])).mean(axis=0) - [0.0, 1e-9]
    assert lattice.cell([halfway]).tolist() == [[0, 0]]


def test_neighbouring_centres_are_one_size_apart_and_hexagons_tile():
    lattice = HexagonLattice(1.5, BOX)
    around = np.array([[1, 0], [0, 1], [-1, 1], [-1, 0], [0, -1], [1, -1]])
    distance = np.linalg.norm(lattice.center(around) - lattice.center(np.zeros((1, 2), dtype=int)), axis=1)
    assert distance == pytest.approx(np.full(6, 1.5), rel=1e-12)
    ring = lattice.polygon(np.array([[2, 3]]))[0]
    assert ring.shape == (7, 2)
    assert (ring[0] == ring[-1]).all()
    x, y = (ring - ring.mean(axis=0)).T
    area = (np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1])) / 2
    assert area == pytest.approx(lattice.area, rel=1e-12)
    # pointy top: two vertical sides, `size` apart
    assert np.ptp(ring[:, 0]) == pytest.approx(1.5, rel=1e-12)
    assert np.ptp(ring[:, 1]) == pytest.approx(2 * 1.5 / np.sqrt(3), rel=1e-12)


@given(st.floats(0.05, 30.0), st.integers(0, 2**32 - 1))
def test_no_point_of_the_domain_falls_outside_the_listed_hexagons(size, seed):
    box = Box((10.0, -5.0), (13.0, -3.0))
    lattice = HexagonLattice(size, box)
    X = uniform(box, 60, seed)
    X[:20, 0] = np.where(X[:20, 0] > 11.5, box.upper[0], box.lower[0])
    X[20:40, 1] = np.where(X[20:40, 1] > -4, box.upper[1], box.lower[1])
    X[40:44] = [[10, -5], [13, -5], [10, -3], [13, -3]]
    listed = set(map(tuple, lattice.cells().tolist()))
    assert set(map(tuple, lattice.cell(X).tolist())) <= listed
    assert lattice.count() == len(listed)


def test_the_listed_hexagons_are_those_that_meet_the_domain():
    shapely = pytest.importorskip("shapely")
    for size in (0.9, 4.0, 50.0):
        lattice = HexagonLattice(size, BOX, (12.34, 0.77))
        listed = set(map(tuple, lattice.cells().tolist()))
        box = shapely.box(*BOX.lower, *BOX.upper)
        q, r = (grid.ravel() for grid in np.mgrid[-60:61, -60:61])
        everything = np.stack((q, r), axis=1)
        meets = shapely.intersects(shapely.polygons(lattice.polygon(everything)), box)
        assert listed == set(map(tuple, everything[meets].tolist()))


def test_moving_one_record_moves_no_hexagon():
    """A grid over the extent of the data would move as a whole; this one does not know the data."""
    lattice = HexagonLattice(2.0, BOX)
    X = uniform(BOX, 200, 3)
    moved = X.copy()
    moved[0] = BOX.upper
    assert (lattice.cell(X)[1:] == lattice.cell(moved)[1:]).all()
    y = np.random.default_rng(4).normal(size=200)
    before, after = aggregate(records(X, y), lattice, 1), aggregate(records(moved, y), lattice, 1)
    rows = [set(map(tuple, np.c_[r.covariates, r.response].tolist())) for r in (before, after)]
    assert len(rows[0] - rows[1]) <= 2
    assert len(rows[1] - rows[0]) <= 2


@pytest.mark.parametrize("statistic", ["median", "mean"])
@pytest.mark.parametrize("minimum", [1, 3, 6])
def test_aggregates_agree_with_a_loop_over_hexagons(statistic, minimum):
    lattice = HexagonLattice(2.5, BOX)
    X = uniform(BOX, 500, 5)
    y = np.random.default_rng(6).normal(size=500)
    result = aggregate(records(X, y), lattice, minimum, statistic)
    cells = lattice.cell(X)
    expected = {}
    for cell in {tuple(cell) for cell in cells.tolist()}:
        inside = y[(cells == cell).all(axis=1)]
        if inside.size >= minimum:
            center = lattice.domain.clamp(lattice.center(np.array([cell])))[0]
            expected[tuple(center)] = getattr(np, statistic)(inside)
    assert result.n == len(expected)
    for place, value in zip(result.covariates.tolist(), result.response, strict=True):
        assert value == pytest.approx(expected[tuple(place)], rel=1e-12, abs=1e-14)


def test_the_order_of_the_input_leaves_no_trace():
    lattice = HexagonLattice(2.5, BOX)
    X = uniform(BOX, 300, 7)
    y = np.random.default_rng(8).normal(size=300)
    shuffle = np.random.default_rng(9).permutation(300)
    for statistic in ("median", "mean"):
        first = aggregate(records(X, y), lattice, 2, statistic)
        second = aggregate(records(X[shuffle], y[shuffle]), lattice, 2, statistic)
        assert (first.covariates == second.covariates).all()
        assert (first.response == second.response).all()


def test_border_centres_are_clamped_and_counts_stay_in_the_notes():
    lattice = HexagonLattice(4.0, BOX)
    X = uniform(BOX, 400, 10)
    result = aggregate(records(X, np.zeros(400)), lattice, 1)
    assert BOX.contains(result.covariates).all()
    assert len(np.unique(result.covariates, axis=0)) == result.n
    assert any("clamped" in note for note in result.notes)
    assert any(f"of {lattice.count()} hexagons" in note for note in result.notes)
    assert result.response_name == "median of price"
    assert result.covariate_names == ("x", "y")


def test_hexagons_below_the_minimum_are_left_out_and_counted():
    lattice = HexagonLattice(2.0, Box((0.0, 0.0), (10.0, 10.0)))
    X = [[0.1, 0.1], [0.2, 0.1], [0.1, 0.2], [6.0, 6.0], [6.0, 6.1]]
    result = aggregate(records(X, [1.0, 5.0, 2.0, 9.0, 9.0]), lattice, 3)
    assert result.covariates.tolist() == [[0.0, 0.0]]
    assert result.response.tolist() == [2.0]
    assert "1 hexagons with fewer were left out, and 2 records with them" in result.notes
    with pytest.raises(ValueError, match="No hexagon holds 4"):
        aggregate(records(X, np.zeros(5)), lattice, 4)


def test_the_unit_of_privacy_is_said_in_words():
    lattice = HexagonLattice(600.0, Box((0.0, 0.0), (9000.0, 9000.0)))
    result = aggregate(records([[1.0, 1.0]] * 3, [1.0, 2.0, 3.0]), lattice, 3, length="m")
    assert result.unit == unit_of_privacy(lattice, 3, "median", "m")
    for words in (
        "One hexagon's record",
        "600 m wide",
        "two hexagons",
        "create or remove",
        "does not protect",
    ):
        assert words in result.unit


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, BOX), "positive"),
        ((float("nan"), BOX), "positive"),
        ((float("inf"), BOX), "positive"),
        ((1.0, Box((0.0,), (1.0,))), "axes"),
        ((1.0, BOX, (float("nan"), 0.0)), "finite"),
        ((1e-9, BOX), "too small"),
        ((1.0, BOX, (1e12, 0.0)), "too small"),
    ],
)
def test_bad_lattices_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        HexagonLattice(*arguments)


def test_bad_points_cells_and_requests_are_refused():
    lattice = HexagonLattice(1.0, BOX)
    for X in ([[np.nan, 0.0]], [[1e300, 0.0]], [[np.inf, 0.0]]):
        with pytest.raises(ValueError, match="finite"):
            lattice.cell(X)
    with pytest.raises(ValueError, match="shape"):
        lattice.cell([1.0, 2.0])
    with pytest.raises(ValueError, match="integers"):
        lattice.center([[0.5, 1.0]])
    with pytest.raises(ValueError, match="20 million"):
        HexagonLattice(0.003, BOX).count()
    outside = records([[0.0, 0.0]], [1.0])
    with pytest.raises(ValueError, match="domain of the lattice"):
        aggregate(outside, lattice)
    inside = records([[11.0, 0.0]], [1.0])
    with pytest.raises(ValueError, match="at least 1"):
        aggregate(inside, lattice, 0)
    with pytest.raises(ValueError, match="statistic"):
        aggregate(inside, lattice, 1, "mode")  # type: ignore[arg-type]
