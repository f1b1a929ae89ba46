from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.spatial import Delaunay

from discretion.gp import Box, precision
from discretion.gp.dense import FactorisationError
from discretion.gp.lattice import Lattice
from discretion.gp.precision import NotAPrior, factor_rounding, raised, row_sum_bound
from discretion.gp.selected import inverse_diagonal
from discretion.gp.sparse import Factor, node_statistics
from discretion.gp.tiling import Tiling

SQUARE = Box((0.0, 0.0), (10.0, 8.0))


def neumann(side: int, killing: float, hexagon: bool = False) -> np.ndarray:
    """killing I + Laplacian of a square patch, node side * j + i; hexagons in offset rows."""
    j, i = np.divmod(np.arange(side * side), side)
    at = np.stack([i - (j // 2 if hexagon else 0), j], axis=1)
    step = at[:, None] - at[None]
    W = np.abs(step).sum(axis=-1) == 1
    if hexagon:
        W |= (step.prod(axis=-1) == -1) & (np.abs(step).max(axis=-1) == 1)
    W = W.astype(float)
    return np.diag(W.sum(axis=1) + killing) - W


@pytest.mark.parametrize(
    ("name", "killing", "value"),
    [
        ("hexagon", 0.001, 0.5138182641),
        ("hexagon", 0.01, 0.4077598864),
        ("hexagon", 0.03, 0.3567969732),
        ("hexagon", 0.1, 0.3000976772),
        ("hexagon", 1.0, 0.1843638306),
        ("square", 0.01, 0.6415599787),
        ("square", 0.1, 0.4543520495),
        ("square", 1.0, 0.2540498400),
    ],
)
def test_the_green_function_of_infinite_lattices(name, killing, value):
    found = Tiling(name, killing).green()
    assert 1.0 <= found / value <= 1.0 + 2e-9


def test_reference_numbers_of_the_three_by_three_square():
    lattice = Lattice.of_precision(neumann(3, 0.5))
    assert lattice.unit == pytest.approx(0.6175010175010176, rel=2e-9)
    assert lattice.unit > 0.6175010175010176
    Sigma, error = lattice.covariance
    assert error < 1e-13
    assert Sigma[4, 4] == pytest.approx(0.6762457157922488, rel=3e-9)
    assert Sigma.min() == pytest.approx(0.1602952807803849, rel=3e-9)
    np.testing.assert_allclose(lattice.killing, 0.3087505087505087, rtol=2e-9)


def test_reference_posterior_of_the_hexagonal_patch():
    lattice = Lattice.of_precision(neumann(5, 0.2, hexagon=True))
    assert lattice.unit == pytest.approx(0.7997645745859209, rel=2e-9)
    node = np.repeat([0, 7, 12, 13, 24], [3, 1, 2, 5, 4])
    response = np.repeat([-1.0, 0.5, 1.0, -0.25, -1.0], [3, 1, 2, 5, 4])
    mean, factor = node_statistics(node, response, lattice.size).posterior(lattice, 1.5)
    C = factor.solve(np.eye(25))
    reference = [0.39587394509797774, 0.3730035783866919, 0.1761034666461187]
    np.testing.assert_allclose([C[11, 11], C[6, 6], C[11, 6]], reference, rtol=3e-9)
    np.testing.assert_allclose([mean[11], mean[6]], [-0.06814378491197225, -0.08014679138469394], rtol=1e-8)


@pytest.mark.parametrize(
    ("Q", "reason"),
    [
        ([[1.0, 0.2], [0.2, 1.0]], "positive entries"),
        ([[1.0, -0.5], [-0.4, 1.0]], "symmetric"),
        ([[1.0, -2.0], [-2.0, 3.0]], "negative row sums"),
        ([[1.0, -1.0], [-1.0, 1.0]], "intrinsic"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, -1.0, 1.0]], "no killing"),
        ([[1.0, np.nan], [np.nan, 1.0]], "finite"),
        ([[1.0, -0.5]], "square"),
    ],
)
def test_precisions_without_the_maximum_principle_are_refused_with_the_reason(Q, reason):
    with pytest.raises(NotAPrior, match=reason):
        Lattice.of_precision(np.array(Q))


def test_a_constant_variance_star_is_refused():
    a = 0.7  # correlations of the three edges: the row sum of the centre is 3 / (1 + a) - 2 < 0
    Q = np.diag([1.0 + 3 * a * a / (1 - a * a), *[1.0 / (1 - a * a)] * 3])
    Q[0, 1:] = Q[1:, 0] = -a / (1 - a * a)
    assert np.linalg.inv(Q).diagonal() == pytest.approx(1.0)
    with pytest.raises(NotAPrior, match="negative row sums"):
        Lattice.of_precision(Q)


def test_the_planar_exponential_kernel_is_refused():
    x = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
    Q = np.linalg.inv(np.exp(-np.linalg.norm(x[:, None] - x[None], axis=-1) / 4.0))
    with pytest.raises(NotAPrior, match="positive entries"):
        Lattice.of_precision((Q + Q.T) / 2)


def test_car_needs_a_share_below_one_and_neighbours():
    W = csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    lattice = Lattice.car(W, 0.9)
    np.testing.assert_allclose(lattice.killing / lattice.unit, [0.1, 0.3, 0.2])
    with pytest.raises(NotAPrior, match="intrinsic"):
        Lattice.car(W, 1.0)
    with pytest.raises(NotAPrior, match="without neighbours"):
        Lattice.car(np.zeros((2, 2)), 0.5)


def test_a_hidden_hub_adds_a_common_level():
    Q = np.zeros((4, 4))
    Q[:3, :3] = neumann(2, 0.5)[:3, :3]
    k = Q[:3, :3].sum(axis=1)
    level = 2.0
    Q[:3, 3] = Q[3, :3] = -k
    Q[3, 3] = k.sum() + 1.0 / level
    lattice = Lattice.of_precision(Q, admissible=[True, True, True, False])
    Sigma = np.linalg.inv(Q)
    np.testing.assert_allclose(Sigma[:3, :3], np.linalg.inv(Q[:3, :3]) + level, rtol=1e-12)
    assert lattice.unit == pytest.approx(Sigma.diagonal()[:3].max(), rel=2e-9)
    assert set(lattice.node(np.arange(4.0)[:, None]).tolist()) == {0, 1, 2}


def test_every_variance_of_a_part_of_a_tiling_is_at_most_that_of_the_whole():
    for make in (Lattice.hexagon, Lattice.square):
        Sigma, error = make(1.0, SQUARE, 0.05).covariance
        assert 0.9 < Sigma.diagonal().max() + error <= 1.0


@pytest.mark.parametrize("name", ["hexagon", "square"])
def test_points_belong_to_the_nearest_node_and_outside_the_box_to_the_border(name):
    lattice = getattr(Lattice, name)(0.7, SQUARE, 0.1)
    X = np.random.default_rng(0).uniform(-2.0, 12.0, (3000, 2))
    places, inside = lattice.locations, SQUARE.clamp(X)
    distance = np.linalg.norm(inside[:, None] - places[None], axis=-1)
    found = distance[np.arange(len(X)), lattice.node(X)]
    np.testing.assert_allclose(found, distance.min(axis=1), atol=1e-12)


def test_a_chosen_part_takes_points_of_other_cells_to_its_nearest_node():
    cells = np.array([[0, 0], [1, 0], [3, 1]])
    lattice = Lattice.hexagon(1.0, SQUARE, 0.1, cells=cells)
    assert lattice.size == 3
    assert lattice.node(np.array([[9.0, 7.0], [0.1, 0.1]])).tolist() == [2, 0]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 60))
def test_the_sampler_map_is_a_root_of_the_covariance(seed, size):
    rng = np.random.default_rng(seed)
    W = csr_array(rng.random((size, size)) * (rng.random((size, size)) < 0.2))
    W = W + W.T
    W = W - diags_array(W.diagonal())
    A = csr_array(diags_array(W.sum(axis=1) + rng.uniform(0.1, 5.0, size)) - W)
    factor = Factor(A)
    T = factor.colour(np.eye(size))
    np.testing.assert_allclose(T @ T.T, np.linalg.inv(A.toarray()), atol=1e-12)
    z = rng.normal(size=size)
    np.testing.assert_allclose(factor.colour(z), T @ z, atol=1e-12)


def test_an_indefinite_matrix_has_no_factor():
    with pytest.raises((FactorisationError, RuntimeError)):
        Factor(csr_array([[1.0, 2.0], [2.0, 1.0]]))


def test_merged_records_give_the_posterior_of_the_records_themselves():
    lattice, rng = Lattice.hexagon(1.0, Box((0.0, 0.0), (6.0, 5.0)), 0.2), np.random.default_rng(2)
    X, y = rng.uniform(0.0, 6.0, (150, 2)), rng.uniform(-1.0, 1.0, 150)
    node = lattice.node(X)
    mean, factor = node_statistics(node, y, lattice.size).posterior(lattice, 1.7)
    Sigma, _ = lattice.covariance
    K = Sigma[np.ix_(node, node)] + 1.7**2 * np.eye(150)
    gain = np.linalg.solve(K, Sigma[node]).T
    np.testing.assert_allclose(mean, gain @ y, atol=1e-13)
    np.testing.assert_allclose(factor.solve(np.eye(lattice.size)), Sigma - gain @ Sigma[node], atol=1e-13)


def test_the_order_of_the_factor_does_not_depend_on_the_counts():
    lattice = Lattice.hexagon(1.0, SQUARE, 0.2)
    counts = np.random.default_rng(0).integers(0, 1000, lattice.size)
    more = Factor(csr_array(lattice.precision + diags_array(counts / 4.0)))
    assert more.width == lattice.factor.width


def test_dense_rows_are_summed_exactly():
    size = 400
    Q = np.diag(np.full(size, 1.0))
    Q[0, 1:] = Q[1:, 0] = -0.1
    Q[0, 0] = 0.1 * (size - 1) + 1e-9
    assert Lattice.of_precision(Q).killing[0] >= 0.0
    Q[0, 0] -= 1e-6
    with pytest.raises(NotAPrior, match="negative row sums"):
        Lattice.of_precision(Q)


# --- variances of large graphs


def delaunay(size: int, killing: float, seed: int = 0):
    """killing I + weighted Laplacian of neighbours among random points."""
    rng = np.random.default_rng(seed)
    triangles = Delaunay(rng.random((size, 2))).simplices
    edge = np.unique(
        np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])), axis=0
    )
    weight = rng.uniform(0.1, 1.0, len(edge))
    W = coo_array((weight, edge.T), shape=(size, size)).tocsr()
    W = W + W.T
    return csr_array(diags_array(W.sum(axis=1) + killing) - W)


def exact_diagonal(A: np.ndarray) -> list[Fraction]:
    """The diagonal of the inverse of a matrix of doubles, in fractions."""
    size = len(A)
    rows = [[Fraction(x) for x in row] + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(A)]
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i and rows[j][i]:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [rows[i][size + i] for i in range(size)]


@pytest.mark.parametrize("killing", [1e-2, 0.3, 1e3])
@pytest.mark.parametrize("kind", ["delaunay", "chain", "apart", "star"])
def test_variances_are_above_the_exact_ones(kind, killing):
    if kind == "delaunay":
        Q = delaunay(14, killing).toarray()
    else:
        W = {"chain": np.eye(12, k=1), "apart": np.zeros((12, 12)), "star": np.zeros((12, 12))}[kind]
        W[5, np.arange(12) != 5] = 0.7 if kind == "star" else W[5, np.arange(12) != 5]
        W = np.maximum(W, W.T)
        Q = np.diag(W.sum(axis=1) + killing) - W
    P = raised(csr_array(Q))
    factor = Factor(P)
    q, s = factor_rounding(P, factor, row_sum_bound(P, factor))
    found = factor.variances() / (1.0 - 4.0 * q)
    exact = exact_diagonal(P.toarray())
    assert q * s <= 1 / 200
    assert all(Fraction(bound) >= value for bound, value in zip(found.tolist(), exact, strict=True))
    np.testing.assert_allclose(found, np.array(exact, dtype=float), rtol=1e-12 + 8 * q)


def test_variances_of_a_graph_with_much_fill():
    P = raised(delaunay(800, 0.02))
    np.testing.assert_allclose(Factor(P).variances(), np.linalg.inv(P.toarray()).diagonal(), rtol=1e-9)


@pytest.mark.parametrize("wrong", [[[1.0, 0.5], [0.0, 1.0]], [[1.0, -0.5], [0.0, -1.0]], [[1.0, 0.0], [-0.5, 1.0]]])
def test_what_is_no_factor_of_an_m_matrix_has_no_bound(wrong):
    with pytest.raises(ValueError, match="factor"):
        inverse_diagonal(csr_array(wrong))


def test_a_factor_in_another_form_has_the_same_bounds_or_none():
    doubled = csr_array(([2.0, -1.0, -1.0, 3.0], [0, 1, 1, 1], [0, 3, 4]), shape=(2, 2))
    assert np.all(inverse_diagonal(doubled) >= [5.0 / 6.0, 1.0 / 3.0])
    single = csr_array(np.array([[1.1, -0.3], [0.0, 0.7]], dtype=np.float32))
    assert np.array_equal(inverse_diagonal(single), inverse_diagonal(single.astype(np.float64)))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            inverse_diagonal(csr_array([[1.0, -0.5], [0.0, bad]]))


def test_a_large_graph_needs_no_column_of_its_covariance(monkeypatch):
    Q, columns = delaunay(600, 0.5), np.arange(0, 600, 7)
    expected = precision.largest_variance(raised(Q), columns)
    monkeypatch.setattr(precision, "DENSE", 599)
    assert precision.largest_variance(raised(Q), columns) == pytest.approx(expected, rel=1e-7)
    with monkeypatch.context() as patch:
        patch.setattr(precision, "inverse_columns", None)
        assert Lattice.of_precision(Q).unit >= expected
    near = raised(delaunay(600, 1e-7))  # to a singular one, where the theorem does not hold
    found = precision.largest_variance(near, columns)
    monkeypatch.setattr(precision, "DENSE", 600)
    assert precision.largest_variance(near, columns) == found
