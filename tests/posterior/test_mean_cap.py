import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csc_array, diags_array

from benchmarks.lattice_brute_force import GRAPHS, graph
from discretion.gp import Box
from discretion.gp.lattice import Lattice
from discretion.gp.sparse import Statistics
from discretion.gp.tiling import Tiling
from discretion.posterior.mean_cap import (
    MeanCap,
    Tangents,
    _Disc,
    _odometer,
    _repaired,
    mean_cap,
    node_tangents,
    tiling_tangents,
)

NOWHERE = Box((0.0, 0.0), (1.0, 1.0))


def neumann_square() -> Lattice:
    at = np.stack(np.meshgrid(np.arange(3), np.arange(3)), axis=-1).reshape(-1, 2)
    W = (np.abs(at[:, None] - at[None]).sum(axis=-1) == 1).astype(float)
    return Lattice.of_precision(np.diag(W.sum(axis=1) + 0.5) - W)


def program(lattice: Lattice, node: int, v: float) -> float:
    """g_x(v) by a linear-program solver: feasible to 1e-7 or so."""
    charge = np.zeros(lattice.size)
    charge[node] = 1.0
    found = linprog(
        lattice.killing, A_ub=lattice.precision.toarray(), b_ub=charge, A_eq=charge[None], b_eq=[v], method="highs"
    )
    return float(found.fun) if found.success else math.nan


@pytest.mark.parametrize(
    ("node", "v", "g"),
    [
        (0, [0.3, 0.6, 0.8, 0.95], [0.0926251526, 0.1852503053, 0.3645014245, 0.7348912077]),
        (4, [0.202874, 0.405747, 0.540997, 0.642433], [0.0626374507, 0.1890102597, 0.5250015009, 0.8812484898]),
    ],
)
def test_reference_values_at_a_corner_and_at_the_centre(node, v, g):
    found = MeanCap.of(node_tangents(neumann_square(), node, ratio=1.0))(np.array(v))
    np.testing.assert_allclose(found, g, atol=6e-9)  # the unit is rounded up by 1e-9


def test_the_hexagonal_lattice_is_below_its_reference_and_above_a_finite_program():
    # the reference was made of finitely many tangents: the exact 1 - g lies up to 1e-4 below it, never above
    cap = MeanCap.of(tiling_tangents(Tiling("hexagon", 0.03)), Tiling("hexagon", 0.03).green())
    v = np.array([0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99])
    reference = np.array([0.99679, 0.99242, 0.96744, 0.92613, 0.81823, 0.68542, 0.40007])
    assert (1.0 - cap(v) <= reference + 1e-5).all()
    np.testing.assert_allclose(1.0 - cap(v), reference, atol=1e-4)
    cells = np.array([(q, r) for q in range(-6, 7) for r in range(-6, 7) if abs(q + r) <= 6])
    lattice = Lattice.hexagon(1.0, NOWHERE, 0.03, cells=cells)
    centre = int(lattice.node(np.zeros((1, 2)))[0])
    for x in (0.3, 0.6):
        assert float(cap(np.array([x]))[0]) <= program(lattice, centre, x) + 1e-9


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(GRAPHS))
def test_tangents_are_never_above_the_linear_program_and_reach_it(seed, kind):
    rng = np.random.default_rng(seed)
    lattice = graph(kind, rng)
    node = int(rng.integers(lattice.size))
    exact = MeanCap.of(node_tangents(lattice, node, ratio=1.0))
    variance = lattice.covariance[0][node, node]
    for v in rng.uniform(0.0, 1.0, 4) * min(variance, 1.0):
        g, found = program(lattice, node, float(v)), float(exact(np.array([v]))[0])
        assert found <= g + 1e-7
        assert found >= min(g, 1.0) - 3e-3


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_disturbed_odometer_is_repaired_to_a_valid_tangent(seed):
    rng = np.random.default_rng(seed)
    lattice = neumann_square()
    Q, theta = csc_array(lattice.precision), float(10.0 ** rng.uniform(-0.3, 2.0))
    values, _ = _odometer(Q, lattice.killing, 0, theta, np.zeros(9, dtype=bool))
    rough = np.maximum(values + 1e-6 * rng.normal(size=9), 0.0)
    intercept = _repaired(Q, lattice.killing, 0, theta, rough, float(lattice.row_sums[0]), 4)
    for v in (0.2, 0.6, 0.9, 0.99):
        assert theta * v - intercept <= program(lattice, 0, v) + 1e-9


def test_the_obstacle_of_a_disc_is_the_killing_at_its_rim_too():
    tiling = Tiling("hexagon", 0.03)
    theta = 300.0 * tiling.killing
    disc = _Disc(tiling, 6)
    size = len(disc.cells)
    small, _ = _odometer(disc.matrix, disc.matrix @ np.ones(size), 0, theta, np.zeros(size, dtype=bool))
    large = _Disc(tiling, 30)
    killing = np.full(len(large.cells), tiling.killing)
    true, _ = _odometer(large.matrix, killing, 0, theta, np.zeros(len(large.cells), dtype=bool))
    # the disc's own row sums give too small an intercept, so too large a g
    assert small[0] == pytest.approx(2.650, abs=2e-3)
    assert true[0] >= 2.701
    assert tiling_tangents(tiling, radius=6).theta.max() < theta  # support on the rim: discarded


def test_the_tangents_of_a_tiling_are_feasible_on_the_infinite_lattice():
    tiling = Tiling("square", 0.2)
    cells = np.stack(np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)), axis=-1).reshape(-1, 2)
    whole = Lattice.square(1.0, NOWHERE, 0.2, cells=cells)
    part = cells[np.random.default_rng(0).uniform(size=len(cells)) < 0.6]
    part = np.unique(np.vstack([part, [[0, 0]]]), axis=0)
    cap = MeanCap.of(tiling_tangents(tiling), tiling.green())
    for lattice in (whole, Lattice.square(1.0, NOWHERE, 0.2, cells=part)):
        node = int(lattice.node(np.zeros((1, 2)))[0])
        for v in (0.3, 0.6, 0.8):
            g = program(lattice, node, v)
            assert math.isnan(g) or float(cap(np.array([v]))[0]) <= g + 1e-8


def test_a_chain_reproduces_the_cap_of_the_line():
    a = math.exp(-0.05)  # exponential kernel, spacing 0.05 of a length
    size = 161
    Q = diags_array(
        [
            np.full(size, (1 + a * a) / (1 - a * a)),
            np.full(size - 1, -a / (1 - a * a)),
            np.full(size - 1, -a / (1 - a * a)),
        ],
        offsets=[0, 1, -1],
    ).toarray()
    Q[0, 0] = Q[-1, -1] = 1.0 / (1 - a * a)
    lattice = Lattice.of_precision(Q)
    cap = MeanCap.of(node_tangents(lattice, size // 2))
    v = np.array([0.2, 0.5, 0.8, 0.9])
    np.testing.assert_allclose(1.0 - cap(v), np.sqrt(1.0 - v * v), atol=2e-3)


def test_the_cap_of_the_line_is_false_in_the_plane():
    row, column = np.divmod(np.arange(169), 13)
    cells = np.stack([column - row // 2, row], axis=1)
    lattice = Lattice.hexagon(1.0, NOWHERE, 0.03, cells=cells)
    at = cells[6 * 13 + 6] @ Tiling("hexagon", 0.03).frame
    centre = int(np.argmin(np.linalg.norm(lattice.locations - at, axis=1)))
    around = [node for node in lattice.precision[[centre]].indices.tolist() if node != centre]
    counts = np.zeros(169)
    counts[around] = 100.0
    mean, factor = Statistics(counts, -counts).posterior(lattice, 1.0)
    v = float(factor.solve(np.eye(169)[centre])[centre])
    assert v == pytest.approx(0.46643911893, rel=1e-8)
    assert abs(mean[centre]) == pytest.approx(0.99135280433, rel=1e-8)
    assert abs(mean[centre]) > math.sqrt(1.0 - v * v) + 0.1
    assert abs(mean[centre]) <= 1.0 - float(mean_cap(lattice)(np.array([v]))[0])


def test_the_cap_of_a_graph_holds_at_every_node_and_unswept_graphs_get_the_killing(monkeypatch):
    lattice = neumann_square()
    cap, v = mean_cap(lattice), np.linspace(0.05, 0.6, 7)
    for node in range(9):
        assert (cap(v) <= MeanCap.of(node_tangents(lattice, node, ratio=1.0))(v) + 1e-12).all()
    monkeypatch.setattr("discretion.posterior.mean_cap.MOST_NODES", 3)
    monkeypatch.setattr("discretion.posterior.mean_cap.kept", lambda name, named, compute: compute())
    np.testing.assert_allclose(mean_cap(lattice)(v), lattice.killing.min() * v, rtol=1e-12)


def test_lines_below_others_are_left_out():
    cap = MeanCap.of(Tangents(np.array([1.0, 2.0, 3.0]), np.array([0.2, 1.1, 1.3])))
    assert len(cap.slope) == 3  # 0, 1 and 3
    np.testing.assert_allclose(cap(np.array([0.0, 0.1, 0.4, 0.6, 0.7])), [0.0, 0.0, 0.2, 0.5, 0.8], atol=1e-12)
