import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import tight_claims
from benchmarks.brute_force import draw
from discretion.gp.kernels import Exponential, Matern52
from discretion.posterior import RKHS, Bounded, Diagonal, Exponential1D, ResponseOnly, Separated, posterior_epsilon
from discretion.posterior.account import path_routes
from discretion.posterior.certified import (
    CertifiedTable,
    Problem,
    certified_epsilon,
    certified_loss,
    certified_orders,
    certified_renyi,
    search_space,
)
from discretion.posterior.exact_pair import ExactPair
from discretion.posterior.pair import Pair, gaussian_renyi, gram, pair_from_gram
from discretion.posterior.response_sets import BoxSet, Cells, GraphSet, LineSet, PolygonSet, Space
from discretion.privacy import PrivacyLoss

LINE, PLANE = math.exp(-2.0), math.exp(-math.sqrt(2.0))


def pair_of(v, v_other, w, s, s_other, ridge):
    return Pair(*(np.float64(x) for x in (v, v_other, w, s, s_other, ridge)))


# --- the exact pair


REFERENCE = {
    "A": ((0.8, 0.6, 0.3, 1.5, -1.2, 2, 0.7), 8.5617669283, (0.292636795069, 0.388470087606, 0.595309994822)),
    "B": ((0.5, 0.9, -0.2, 0.4, 1.1, 1, 1), 2.1649364121, (1.203128562588, 5.402123759821, math.inf)),
    "E": ((0.95, 0.95, 0.95, 2, -2, 3, 1), math.inf, (0.127303182580, 0.169737576773, 0.254606365159)),
    "Z": ((0.25, 0.75, 0, 0, 0, 1.5, 2), 4.0, (0.042370614228, 0.063916685755, 0.137911904572)),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_exact_pair_reference(name):
    (*numbers, scale), supremum, values = REFERENCE[name]
    pair = pair_of(*numbers)
    exact = ExactPair.of(pair, scale)
    assert 1.0 + exact.poles[1] == pytest.approx(supremum, rel=1e-10)
    z = np.array([0.5, 1.0, 2.0])
    assert pair.divergence(z, scale) == pytest.approx(values, rel=2e-11)
    assert exact.cumulant(z) / z == pytest.approx(values, rel=2e-11)


def test_five_numbers_of_a_witness():
    """99 records at 0.25 with response -1; 0 moves to 1; r = 1.5, sigma = 1.0612."""
    X = np.concatenate([np.full(99, 0.25), [0.0, 1.0]])[:, None]
    y = np.full(99, -1.0)
    pair = pair_from_gram(gram(Exponential(0.5), X), y, np.float64(1.0), np.float64(1.0), np.float64(1.5))
    found = ExactPair.of(pair, 1.0612)
    wanted = (0.2215329272, 0.2971647682, 0.0009886963, 0.8830018843, 0.6415740238)
    assert (found.a, found.a_other, found.c, found.b, found.b_other) == pytest.approx(wanted, abs=6e-11)


def test_coincident_points():
    X = np.zeros((4, 1))
    pair = pair_from_gram(
        gram(Exponential(1.0), X), np.array([-1.0, 0.5]), np.float64(1.0), np.float64(-1.0), np.float64(0.3)
    )
    assert (pair.v, pair.v_other, pair.w) == pytest.approx((0.0430622010,) * 3, rel=1e-8)
    exact = ExactPair.of(pair, 1.8)
    assert exact.poles[1] > 1e6
    assert exact.cumulant(1.0) == pytest.approx(float(pair.divergence(1.0, 1.8)), rel=1e-9)


@pytest.mark.parametrize("name", "ABZ")
def test_cumulant_against_quadrature(name):
    """E_P exp(z log dP/dQ) for complex z, on the plane of the whitened pair."""
    (*numbers, scale), *_ = REFERENCE[name]
    e = ExactPair.of(pair_of(*numbers), scale)
    rho = e.c / math.sqrt(e.a * e.a_other)
    u, u_other = np.array([1.0, 0.0]), np.array([rho, math.sqrt(1.0 - rho**2)])
    axis = np.linspace(-11.0, 11.0, 1201)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)

    def log_density(b, a, direction):
        covariance = np.eye(2) - a * np.outer(direction, direction)
        t = points - b * math.sqrt(a) * direction
        exponent = np.einsum("...i,ij,...j->...", t, np.linalg.inv(covariance), t)
        return -0.5 * exponent - 0.5 * np.log(np.linalg.det(covariance)) - math.log(2 * math.pi)

    p, q = log_density(e.b, e.a, u), log_density(e.b_other, e.a_other, u_other)
    for z in (0.4, -0.5, 0.3 + 2.0j, 5.0j):
        integral = np.sum(np.exp(p + z * (p - q))) * (axis[1] - axis[0]) ** 2
        assert np.exp(e.cumulant(z)) == pytest.approx(integral, rel=1e-9, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.02, 1.0),
    st.floats(0.02, 1.0),
    st.floats(-1.0, 1.0),
    st.floats(-2.0, 2.0),
    st.floats(-2.0, 2.0),
    st.floats(0.3, 8.0),
    st.floats(0.02, 0.98),
)
def test_cumulant_is_convex_and_agrees_with_the_divergence(v, v_other, rho, s, s_other, ridge, share):
    pair = pair_of(v, v_other, rho * math.sqrt(v * v_other), s, s_other, ridge)
    exact = ExactPair.of(pair, 0.8)
    low, high = (float(np.clip(x, -1e3, 1e3)) for x in exact.poles)
    assert low < 0.0 < high
    z = share * high
    divergence = float(pair.divergence(z, 0.8))
    assert float(exact.cumulant(z)) == pytest.approx(z * divergence, rel=1e-7, abs=1e-10)
    grid = np.linspace(0.9 * low, 0.9 * high, 41)
    assert np.all(np.diff(exact.cumulant(grid), 2) >= -1e-8 * (1.0 + np.abs(exact.cumulant(grid)).max()))
    assert exact.cumulant(np.float64(-1.0)) == pytest.approx(0.0, abs=1e-9) or low > -1.0
    # the fold (w, s') -> (-w, -s')
    folded = pair_of(v, v_other, -rho * math.sqrt(v * v_other), s, -s_other, ridge)
    assert float(folded.divergence(z, 0.8)) == pytest.approx(divergence, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("kernel", [Exponential(0.5), Matern52(0.4)])
def test_exact_pair_is_the_whole_divergence(kernel):
    """The textbook divergence at x, x' and more points equals that of the whitened plane."""
    rng = np.random.default_rng(2)
    for n in (1, 4, 9):
        X, y, r, sigma = rng.uniform(size=(n + 1, 2)), rng.uniform(-1, 1, n + 1), 1.3, 0.6
        pair = pair_from_gram(gram(kernel, X), y[:-2], y[-2], y[-1], np.float64(r))
        e = ExactPair.of(pair, sigma)
        rho = float(e.c / np.sqrt(e.a * e.a_other))
        u, u_other = np.array([1.0, 0.0]), np.array([rho, math.sqrt(1.0 - rho**2)])
        law = [
            (b * math.sqrt(a) * d, np.eye(2) - a * np.outer(d, d))
            for a, b, d in ((e.a, e.b, u), (e.a_other, e.b_other, u_other))
        ]
        found = gaussian_renyi(*law[0], *law[1], np.float64(0.7))
        assert found == pytest.approx(float(pair.divergence(0.7, sigma)), rel=1e-9)


# --- response sets


def random_points(rng, count, *, ordered):
    v, v_other = rng.uniform(0.05, 1.0, (2, count))
    most = np.sqrt(np.minimum(v, v_other) / np.maximum(v, v_other)) if ordered else 1.0
    return np.stack([v, v_other, rng.uniform(size=count) * most])


def exact_values(points, s, s_other, ridge, excess, scale=1.0):
    """Mean term at residuals (s, s') times 2 sigma^2 / alpha: N / d."""
    v, v_other, rho = points
    pair = Pair(v, v_other, rho * np.sqrt(v * v_other), s, s_other, np.full(v.shape, ridge))
    return pair.mean_divergence(excess, scale) * 2.0 * scale**2 / (1.0 + excess)


def polygon_vertices(sides):
    """Vertices of {h x + k y <= c} by brute force."""
    found = []
    for (h, k, c), (h2, k2, c2) in itertools.combinations(sides, 2):
        det = h * k2 - h2 * k
        if abs(det) > 1e-9:
            x, y = (c * k2 - c2 * k) / det, (h * c2 - h2 * c) / det
            if all(a * x + b * y <= d + 1e-7 for a, b, d in sides):
                found.append((x, y))
    return found


def test_line_set_equals_its_polygon():
    rng = np.random.default_rng(0)
    ridge, n, M, excess = 1.7, 9, 1.5, 0.8
    points = random_points(rng, 60, ordered=True)
    found = LineSet(M, n).mean(Cells(ridge, points, points, np.full(60, excess)))
    for i, (v, v_other, rho) in enumerate(points.T):
        S, S_other = (M + M * min(math.sqrt(1 - x * x), math.sqrt((n - 1) * x * (1 - x)) / ridge) for x in (v, v_other))
        w = rho * math.sqrt(v * v_other)
        sides = [(1, 0, S), (0, 1, S_other), (1, -w / v_other, 2 * M), (-w / v, 1, 2 * M)]
        corners = np.array(polygon_vertices(sides + [(-h, -k, c) for h, k, c in sides]))
        assert np.all(np.abs(corners[:, 0] - corners[:, 1]) <= 4 * M / (1 + rho) + 1e-9)
        one = np.repeat(points[:, i : i + 1], len(corners), axis=1)
        wanted = exact_values(one, corners[:, 0], corners[:, 1], ridge, excess).max()
        assert found[i] == pytest.approx(wanted, rel=1e-9)


def test_the_graph_set_equals_its_definition():
    rng = np.random.default_rng(1)
    ridge, n, excess, M, B = 1.4, 30, 0.6, 0.7, 1.3
    points = random_points(rng, 40, ordered=False)
    cells = Cells(ridge, points, points, np.full(40, excess))
    graph, noise = GraphSet(B, 0.0, n).mean(cells), PolygonSet(M, n, 0.2).mean(cells)
    noisy = GraphSet(B, M, n, 0.2).mean(cells)
    for i, (v, v_other, rho) in enumerate(points.T):
        # the form A from its values
        tried = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
        first, second, both = exact_values(np.repeat(points[:, i : i + 1], 3, axis=1), *tried, ridge, excess)
        cross = (both - first - second) / 2.0
        A = np.array([[first, cross], [cross, second]])
        w = rho * math.sqrt(v * v_other)
        function = B**2 * max(np.linalg.eigvals(np.array([[v, w], [w, v_other]]) @ A).real)
        assert graph[i] == pytest.approx(function, rel=1e-6)
        assert noisy[i] == pytest.approx((math.sqrt(function) + math.sqrt(noise[i])) ** 2, rel=1e-6)


@pytest.mark.parametrize(
    "responses",
    [
        BoxSet(2.0),
        LineSet(1.0, 50),
        PolygonSet(1.0, 50),
        PolygonSet(1.0, 50, 0.4),
        GraphSet(1.0, 0.0, 50),
        GraphSet(1.0, 0.3, 50),
    ],
)
def test_bounds_of_boxes_hold_at_their_points(responses):
    rng = np.random.default_rng(4)
    count = 4000
    for ridge in (0.4, 1.5, 9.0):
        corner = random_points(rng, count, ordered=False)
        size = 10.0 ** rng.uniform(-3, 0, (3, count))
        low, high = corner * (1 - size * rng.uniform(size=size.shape)), np.minimum(corner * (1 + size), 1.0)
        excess = rng.uniform(0.01, 0.99, count) * ridge**2
        box = Cells(ridge, low, high, excess)
        covariance, mean = box.covariance(), responses.mean(box)
        for _ in range(8):
            inside = low + (high - low) * np.where(
                rng.uniform(size=low.shape) < 0.3, np.round(rng.uniform(size=low.shape)), rng.uniform(size=low.shape)
            )
            if responses.ordered:
                ratio = np.minimum(inside[0], inside[1]) / np.maximum(inside[0], inside[1])
                keep = inside[2] ** 2 <= ratio
            else:
                keep = np.ones(count, dtype=bool)
            point = Cells(ridge, inside[:, keep], inside[:, keep], excess[keep])
            assert np.all(point.covariance() <= covariance[keep] * (1 + 1e-9) + 1e-12)
            assert np.all(responses.mean(point) <= mean[keep] * (1 + 1e-9) + 1e-12)


def test_covariance_of_a_point_is_the_exact_one():
    rng = np.random.default_rng(5)
    points = random_points(rng, 200, ordered=False)
    excess = rng.uniform(0.05, 0.95, 200) * 1.44
    v, v_other, rho = points
    pair = Pair(v, v_other, rho * np.sqrt(v * v_other), v, v, np.full(200, 1.2))
    found = Cells(1.2, points, points, excess).covariance()
    assert found == pytest.approx(pair.covariance_divergence(excess), rel=1e-9, abs=1e-14)


def test_a_box_with_an_admissible_point_is_kept():
    rng = np.random.default_rng(6)
    for ordered in (False, True):
        space = Space(2.0, 0.98, 0.05, 0.3, ordered)
        v, v_other = rng.uniform(0.05, 0.98, (2, 3000))
        v_other[:500] = v[:500]
        rho = space.correlations(v, v_other)
        share = np.where(rng.uniform(size=3000) < 0.5, np.round(rng.uniform(size=3000)), rng.uniform(size=3000))
        some = rho.low <= rho.high
        point = np.stack([v, v_other, rho.low + share * (rho.high - rho.low)])[:, some]
        size = 10.0 ** rng.uniform(-13, 0, point.shape)
        assert np.all(space.admits(np.maximum(point - size, 1e-3), np.minimum(point + size, 1.0)))
    assert not space.admits(np.array([[0.9], [0.1], [0.9]]), np.array([[0.95], [0.2], [1.0]])).any()


@pytest.mark.parametrize("kernel", [Exponential(1.0), Matern52(1.0)])
def test_data_sets_obey_the_constraints(kernel):
    """Lemmas 5 to 8 on random data: every admissible pair lies in the space, its core weights in the sets."""
    rng = np.random.default_rng(7)
    line = isinstance(kernel, Exponential)
    for n in (2, 4, 9):
        batch = draw(rng, 1500, n, 1 if line else 2)
        K = gram(kernel, batch.X / batch.length[:, None, None])
        m, r = n - 1, batch.ridge
        weights = np.linalg.solve(K[:, :m, :m] + r[:, None, None] ** 2 * np.eye(m), K[:, :m, m:])
        C = K[:, m:, m:] - np.swapaxes(K[:, :m, m:], 1, 2) @ weights
        v, w, v_other = C[:, 0, 0], C[:, 0, 1], C[:, 1, 1]
        kappa = K.min(axis=(1, 2))
        far = np.sqrt(np.prod(np.einsum("bij,bij->bj", K[:, :m, m:], weights), axis=1))  # sqrt((1-v)(1-v'))
        assert np.all(w >= kappa - far - 1e-12)
        G = np.swapaxes(weights, 1, 2) @ weights
        W = C - C @ C / (1 + np.abs(w) + far)[:, None, None]
        assert np.all(np.linalg.eigvalsh(W - r[:, None, None] ** 2 * G)[:, 0] >= -1e-14)
        if line:
            assert np.all(w <= np.minimum(v, v_other) + 1e-12)
            assert np.all(w >= -1e-12)
            assert np.all(np.abs(weights[:, :, 0]).sum(axis=1) <= np.sqrt(np.maximum(1 - v**2, 0.0)) + 1e-7)
            beta = (w / v_other)[:, None]
            apart = np.abs(weights[:, :, 0] - beta * weights[:, :, 1]).sum(axis=1)
            assert np.all(apart <= 1 - beta[:, 0] + 1e-7)


# --- the certified bound


@pytest.mark.parametrize(
    ("ridge", "V", "S", "scale", "alpha", "wanted"),
    [
        (3, 1, 2, 1, 1.9, 0.1688888889),
        (3, 1, 2, 1, 6.4, 0.6176909478),
        (1.5, 1, 2, 1, 1.675, 1.8336321303),
        (1, 1, 2, 3, 1.3, 0.7096850118),
        (6, 0.98, 2, 0.1, 5, 2.9445345833),
    ],
)
def test_box_model(ridge, V, S, scale, alpha, wanted):
    problem = Problem(
        Space(float(ridge), V, 1e-9, 0.0, False), BoxSet(float(S)), np.array([alpha - 1.0]), np.array([scale**-2.0])
    )
    bound, found, complete, _ = problem.solve(1e-4, math.inf)
    assert complete
    assert found[0, 0] == pytest.approx(wanted, rel=2e-5)
    assert wanted <= bound[0, 0] * (1 + 1e-9) <= wanted * (1 + 1.1e-4)


@pytest.mark.parametrize(
    ("ridge", "scale", "alpha", "larger_set", "lowest"),
    [
        (3, 1, 1.9, 0.0619097559, 0.99),
        (3, 1, 4, 0.1415396844, 0.99),
        (6, 0.3, 3, 0.0657008030, 0.999),
        (1.5, 1, 1.5, 0.6195892661, 0.99),
    ],
)
def test_line_model(ridge, scale, alpha, larger_set, lowest):
    """At most the supremum over the larger set |s - s'| <= 4M/(1 + rho), and not far below it at these ridges."""
    found = certified_renyi(
        n=100,
        ridge=ridge,
        scale=scale,
        assumption=Exponential1D(1.0),
        least_kernel=LINE,
        excess=alpha - 1.0,
        tolerance=1e-3,
    )
    assert found.certified
    assert found.complete
    assert lowest * larger_set <= found.bound[0] <= 1.001 * larger_set * (1 + 2e-6)
    assert search_space(Exponential1D(1.0), 100, 3.0, LINE).variance == pytest.approx(0.9832106644, abs=1e-10)


def test_plane_model():
    found = certified_renyi(
        n=400,
        ridge=8.0,
        scale=0.5,
        assumption=Bounded(1.0),
        least_kernel=PLANE,
        excess=[1.0, 9.0],
        tolerance=1e-3,
    )
    ellipse = np.array([0.01127, 0.05715])  # suprema over the larger set of Lemma 6 alone
    assert np.all(found.bound >= found.found)
    assert np.all(found.bound <= 0.85 * ellipse)
    assert np.all(found.bound >= 0.5 * ellipse)


def test_known_epsilons():
    plane = (tight_claims.PLANE_ROWS[2], tight_claims.PLANE_ROWS[8], tight_claims.PLANE_ROWS[11])
    for assumption, least, rows, near, far in (
        (Exponential1D(1.0), LINE, tight_claims.LINE_ROWS[2:5], 0.95, 1.001),
        (Bounded(1.0), PLANE, plane, 0.74, 0.83),  # the polygon of core-mean.md against the ellipse of Lemma 6
    ):
        found, seconds, sound = tight_claims.certified_rows(assumption, least, rows)
        assert sound, found
        assert max(seconds) < 3.0
        for row, epsilon in zip(rows, found, strict=True):
            assert near * row[4] < epsilon < far * row[4]


def test_rkhs_is_near_the_published_bound():
    for ridge, scale in ((4.0, 0.2419), (2.0, 0.13)):
        excess = ridge**2 * np.array([0.05, 0.3, 0.8])
        found = certified_renyi(
            n=100, ridge=ridge, scale=scale, assumption=RKHS(1.0), least_kernel=0.0, excess=excess, tolerance=1e-3
        )
        columns = [np.full(3, float(x)) for x in (100, ridge, scale, 0.0, 0.0)]
        published = np.min([named.route.renyi(excess) for named in path_routes(RKHS(1.0), *columns)], axis=0)
        assert np.all(found.bound <= published * 1.0011)
        assert np.all(found.bound >= 0.97 * published)


def test_never_below_explicit_data_sets():
    """99 records at 1, all -1; a record at 0 flips from 1 to -1."""
    X = np.concatenate([np.ones(99), [0.0, 0.0]])[:, None]
    for ridge, scale in ((3.0, 0.2179477291), (6.0, 0.05287656382)):
        pair = pair_from_gram(
            gram(Exponential(0.5), X), np.full(99, -1.0), np.float64(1.0), np.float64(-1.0), np.float64(ridge)
        )
        excess = np.array([0.3, 1.0, 3.0, 6.0])
        exact = pair.divergence(excess, scale)
        found = certified_renyi(
            n=100, ridge=ridge, scale=scale, assumption=Exponential1D(1.0), least_kernel=LINE, excess=excess
        )
        assert np.all(found.bound >= exact)
        assert np.all(found.bound <= 2.0 * exact)


@pytest.mark.parametrize("assumption", [Exponential1D(1.0), Bounded(1.0), RKHS(1.0), RKHS(1.0, 0.2)], ids=str)
def test_no_data_set_exceeds_the_certified_bound(assumption):
    rng = np.random.default_rng(3)
    worst = 0.0
    for n, ridge in ((1, 0.8), (5, 1.5), (14, 4.0), (200, 6.0)):
        for index, (kernel, d) in enumerate(tight_claims.settings(assumption)[:4]):
            least = 0.0
            if index % 2:
                least = float(kernel(np.zeros((1, d)), np.ones((1, d)))[0, 0]) * (1 - 1e-14)
            table = CertifiedTable(n, ridge, assumption, least, tolerance=2e-2)
            found = tight_claims.driven_ratio(table, kernel, d, rng, random=500, driven=12, rounds=12)
            worst = max(worst, found)
            if n <= 14:
                worst = max(worst, tight_claims.drawn_ratio(table, kernel, d, rng, 300))
    assert 0.96 < worst <= 1.0 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("assumption", [Exponential1D(1.0), Bounded(1.0), RKHS(1.0, 0.2)], ids=str)
def test_no_data_set_exceeds_the_certified_bound_in_the_full_search(assumption):
    assert 0.98 < tight_claims.largest_ratio(assumption) <= 1.0 + 1e-6


def test_the_search_notices_a_set_that_is_too_small(monkeypatch):
    true = LineSet.mean
    monkeypatch.setattr(LineSet, "mean", lambda self, cells: 0.9 * true(self, cells))
    table = CertifiedTable(2, 3.0, Exponential1D(1.0))
    rng = np.random.default_rng(0)
    ratio = tight_claims.driven_ratio(table, Exponential(0.05), 1, rng, random=1000, driven=16, rounds=20)
    assert ratio > 1.0 + 1e-6


def test_stopping_early_is_sound():
    given_ = {"n": 100, "ridge": 1.0, "scale": 0.7, "assumption": Bounded(1.0), "excess": [0.1, 0.5]}
    full = certified_renyi(**given_, tolerance=1e-3)
    for limit in (0.0, 0.01, 0.03):
        early = certified_renyi(**given_, tolerance=1e-3, time_limit=limit)
        assert np.all(early.bound >= full.bound * (1 - 2e-3))
        assert np.all(early.bound >= full.found)
    nothing = certified_renyi(**given_, tolerance=1e-3, time_limit=0.0)
    assert not nothing.complete
    assert np.all(np.isfinite(nothing.bound))


def test_results_are_the_same_in_every_run():
    given_ = {"n": 100, "ridge": 3.0, "scale": 0.3, "assumption": Exponential1D(1.0), "excess": [0.5, 2.0]}
    first, second = certified_renyi(**given_), certified_renyi(**given_)
    assert np.array_equal(first.bound, second.bound)
    assert first.cells == second.cells


def test_orders_out_of_range_cost_infinity():
    found = certified_renyi(
        n=10, ridge=1.0, scale=1.0, assumption=Bounded(1.0), excess=[1e-4, 0.5, 0.99999, 5.0], tolerance=1e-2
    )
    assert np.array_equal(np.isinf(found.bound), [True, False, True, True])
    assert not found.complete


def test_infinite_scale_leaves_the_covariance():
    for assumption in (Exponential1D(1.0), Bounded(3.0), RKHS(1.0, 0.5)):
        found = certified_renyi(n=100, ridge=3.0, scale=math.inf, assumption=assumption, excess=[1.0], tolerance=1e-4)
        pair = pair_of(1.0, 1.0, 0.0, 0.0, 0.0, 3.0)
        assert found.bound[0] == pytest.approx(float(pair.covariance_divergence(1.0)), rel=2e-4)
        assert found.bound[0] >= float(pair.covariance_divergence(1.0))


def test_amplitude_scales_with_the_responses():
    one = certified_renyi(n=50, ridge=2.0, scale=0.5, assumption=Bounded(1.0), excess=[0.5])
    three = certified_renyi(n=50, ridge=2.0, scale=1.5, assumption=Bounded(3.0), excess=[0.5])
    assert one.bound == pytest.approx(three.bound, rel=1e-6)
    free = certified_renyi(n=50, ridge=2.0, scale=1e-3, assumption=Bounded(0.0), excess=[0.5])
    assert free.bound[0] < one.bound[0]


def test_one_record():
    """n = 1: v = v' = 1; correlation alone is free."""
    found = certified_renyi(
        n=1, ridge=1.0, scale=1.0, assumption=Bounded(1.0), least_kernel=0.4, excess=[0.3], tolerance=1e-4
    )
    rho = np.linspace(0.4, 1.0, 2001)
    pair = Pair(np.ones(2001), np.ones(2001), rho, np.ones(2001), -np.ones(2001), np.ones(2001))
    assert found.bound[0] == pytest.approx(pair.divergence(0.3, 1.0).max(), rel=3e-4)


# --- losses and tables


def test_loss_is_a_table_that_composes_and_stores():
    given_ = {"n": 100, "ridge": 3.0, "scale": 0.5, "assumption": Exponential1D(1.0), "least_kernel": LINE}
    loss = certified_loss(**given_, tolerance=1e-2)
    again = PrivacyLoss.from_dict(loss.to_dict())
    assert again.epsilon(1e-3) == pytest.approx(loss.epsilon(1e-3), rel=1e-9)
    assert loss.neighbours == "replace"
    assert "certified" in loss.guarantee(1e-3).rule
    three = certified_loss(**given_, paths=3, delta=1e-5, tolerance=1e-2)
    best = certified_epsilon(**given_, paths=3, delta=1e-5)
    assert best * (1 - 1e-3) <= three.epsilon(1e-5) <= best * 1.012
    assert (3 * loss).epsilon(1e-5) >= best * (1 - 1e-3)
    assert (3 * loss).epsilon(1e-5) <= best * 1.03
    published = posterior_epsilon(**given_, delta=1e-3).epsilon
    assert loss.epsilon(1e-3) < 0.8 * published


def test_loss_between_its_orders():
    given_ = {"n": 30, "ridge": 2.0, "scale": 0.4, "assumption": Bounded(1.0)}
    loss = certified_loss(**given_, tolerance=1e-2)
    excess = np.array([0.05, 0.333, 1.234, 3.3])
    direct = certified_renyi(**given_, excess=excess, tolerance=1e-3)
    found = loss.renyi_excess(excess)
    assert np.all(found >= direct.found)
    assert np.all(found <= direct.bound * 1.05)


@pytest.mark.parametrize("assumption", [Exponential1D(1.0), Bounded(2.0), RKHS(1.0, 0.2)], ids=str)
def test_table_serves_every_scale(assumption):
    table = CertifiedTable(100, 4.0, assumption)
    assert table.complete
    assert np.all(np.diff(table.bound, axis=0) >= 0)
    assert np.all(np.diff(table.bound, axis=1) >= 0)
    scale = np.array([1e-3, 0.02, 0.1, 0.7, 30.0, np.inf])
    excess = np.array([0.05, 0.4, 2.0, 14.0])
    for s in scale:
        direct = certified_renyi(n=100, ridge=4.0, scale=s, assumption=assumption, excess=excess, tolerance=1e-3)
        found = table.renyi(excess, s)
        assert np.all(found >= direct.found)
        assert np.all(found <= 1.06 * direct.bound)
    epsilon = table.epsilon(scale[:, None], [1e-3, 1e-8], paths=[2, 7])
    assert epsilon.shape == (6, 2)
    assert np.all(np.diff(epsilon[:, 0]) <= 0)
    best = certified_epsilon(n=100, ridge=4.0, scale=0.1, delta=1e-8, paths=7, assumption=assumption)
    assert best * (1 - 1e-3) <= epsilon[2, 1] <= 1.025 * best
    assert table.loss(0.1, paths=7).epsilon(1e-8) == pytest.approx(epsilon[2, 1], rel=1e-6)
    assert math.isinf(table.renyi(17.0, 0.1))


def test_one_table_serves_every_length_scale():
    table = CertifiedTable(100, 3.0, Exponential1D(1.0))
    for least in (0.0, LINE, 0.9):
        best = certified_epsilon(
            n=100, ridge=3.0, scale=0.3, delta=1e-3, assumption=Exponential1D(1.0), least_kernel=least, tolerance=1e-2
        )
        assert table.epsilon(0.3, 1e-3) >= best * (1 - 1e-2)


def test_order_grid_reaches_small_orders_at_large_ridges():
    orders = certified_orders(n=100, ridge=25.0, assumption=Exponential1D(1.0))
    assert orders[0] <= 0.05
    assert np.all(orders[1:] / orders[:-1] <= 1.2501)
    table = CertifiedTable(100, 25.0, Exponential1D(1.0), tolerance=2e-2)
    direct = certified_epsilon(n=100, ridge=25.0, scale=0.006, delta=1e-3, assumption=Exponential1D(1.0))
    assert float(table.epsilon(0.006, 1e-3)) == pytest.approx(direct, rel=0.02)


def test_other_assumptions():
    given_ = {"n": 20, "ridge": 2.0, "scale": 0.6, "delta": 1e-3}
    bounded = certified_epsilon(**given_, assumption=Bounded(1.0))
    assert certified_epsilon(**given_, assumption=Separated(1.0, 1.0, 1, 0.3)) == bounded
    diagonal = certified_epsilon(**given_, assumption=Diagonal(1.0), least_kernel=0.9)
    assert diagonal == certified_epsilon(**given_, assumption=Exponential1D(1.0))
    assert diagonal < bounded


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"assumption": ResponseOnly(1.0)}, "exact"),
        ({"ridge": 0.01}, "Raise the ridge"),
        ({"n": 0}, "n must be"),
        ({"scale": 0.0}, "scale"),
        ({"scale": 1e-160}, "scale is too small"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"paths": 1.5}, "paths"),
        ({"assumption": "bounded"}, "no certified account"),
    ],
)
def test_refusals(change, message):
    given_ = {"n": 10, "ridge": 1.0, "scale": 1.0, "delta": 1e-3, "assumption": Bounded(1.0)} | change
    with pytest.raises(ValueError, match=message):
        certified_epsilon(**given_)
