"""The mean of the shared records: bounds against brute force over data sets, and what they do to the account."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from discretion.gp.domain import Box
from discretion.gp.kernels import RBF, Exponential, Matern32, Matern52, RationalQuadratic
from discretion.posterior.certified import Problem
from discretion.posterior.core_mean import core_difference_bound, core_mean_bound
from discretion.posterior.response_sets import Cells, PolygonSet, Space
from discretion.posterior.sensitivity import posterior_variance_bound

BOX = Box((0.0, 0.0), (1.0, 1.0))
KERNELS = [
    Exponential(1.0), Exponential(0.3), Matern32(1.0), Matern52((0.8, 1.5)), RBF(0.4), RBF(1.0), RBF(2.5),
    RationalQuadratic(1.0, 0.7),
]  # fmt: skip


def core(gram: Any, cross: Any, ridge: float, count: Any) -> tuple[Any, Any]:
    """Weights (m, 2), summed over ``count`` records at each place, and what the core leaves of the cross moments."""
    weights = np.linalg.solve(gram + np.diag(ridge**2 / count), cross)
    return weights, cross.T @ weights


def designs(rng: Any, total: int) -> Any:
    """Random designs of a few clusters, often near each other: two points, core places, records at each."""
    for _ in range(total):
        places = rng.integers(1, 8)
        X = rng.random((places + 2, 2))
        if rng.random() < 0.6:
            X[2:] = np.clip(rng.random(2) + rng.choice([0.01, 0.1, 0.3]) * rng.normal(size=(places, 2)), 0, 1)
        if rng.random() < 0.3:
            X[:2] = np.clip(rng.integers(0, 2, 2) + 0.1 * rng.normal(size=(2, 2)), 0, 1)
        yield X[:2], X[2:], rng.integers(1, rng.choice([2, 30, 900]) + 1, places).astype(float)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_bounds_hold_on_random_data_sets(kernel: Any) -> None:
    rng, kappa, worst = np.random.default_rng(7), kernel.least_value(BOX), 0.0
    for pair, places, count in designs(rng, 500):
        n, r = 1 + int(count.sum()), float(rng.choice([0.3, 1.0, 4.0, 10.0]))
        weights, removed = core(kernel(places), kernel(places, pair), r, count)
        C = kernel(pair) - removed
        v = np.diag(C)
        mean = np.abs(weights).sum(axis=0) / core_mean_bound(v, n, r, kappa)
        spread = max(v[0] + v[1] - 2.0 * C[0, 1], 1e-12)
        apart = np.abs(weights[:, 0] - weights[:, 1]).sum() / core_difference_bound(spread, n, r, kappa)
        worst = max(worst, float(mean.max()), float(apart))
        assert worst <= 1.0 + 1e-9
    assert worst > 0.7


def weights_of(points: Any, ridge: float, n: int, kernel: Any, places: int) -> tuple[float, float]:
    """Sum of absolute weights and variance at the first point; n - 1 records in real-valued clusters."""
    X = 1.0 / (1.0 + np.exp(-points[: 2 * places + 2].reshape(-1, 2)))
    share = np.exp(points[2 * places + 2 :] - points[2 * places + 2 :].max())
    weights, removed = core(kernel(X[1:]), kernel(X[1:], X[:1]), ridge, (n - 1) * share / share.sum())
    return float(np.abs(weights).sum()), 1.0 - float(removed[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "least"), [(RBF(1.0), 0.85), (Exponential(1.0), 0.35), (RBF(2.5), 0.85)], ids=repr)
def test_bound_of_the_mean_holds_on_driven_data_sets(kernel: Any, least: float) -> None:
    n, r, places, kappa = 4390, 10.0, 3, kernel.least_value(BOX)
    rng, worst = np.random.default_rng(1), 0.0

    def ratio(points: Any) -> float:
        total, v = weights_of(points, r, n, kernel, places)
        return total / float(core_mean_bound(v, n, r, kappa))

    for _ in range(12):
        start = np.concatenate([rng.normal(0, 1.5, 2 * places + 2), rng.normal(0, 0.5, places)])
        found = minimize(lambda z: -ratio(z), start, method="L-BFGS-B", bounds=[(-8, 8)] * start.size)
        worst = max(worst, -float(found.fun))
        assert worst <= 1.0 + 1e-9
    assert worst > least


@pytest.mark.parametrize(("kappa", "least"), [(0.243, 0.89), (0.368, 0.85), (0.6, 0.77)])
def test_nearly_attained_by_some_kernel_with_values_from_kappa_to_1(kappa: float, least: float) -> None:
    n, r = 4390, 10.0
    best = 0.0
    for angle in np.geomspace(0.05, 1.0, 60):
        features = np.array([[1.0, 0.0], [0.0, 1.0], [math.sin(angle), math.cos(angle)]])
        gram = kappa + (1.0 - kappa) * features @ features.T
        weights, removed = core(gram[1:, 1:], gram[1:, :1], r, np.full(2, (n - 1) / 2))
        total, v = float(np.abs(weights).sum()), 1.0 - float(removed[0, 0])
        bound = float(core_mean_bound(v, n, r, kappa))
        assert total <= bound * (1.0 + 1e-9)
        best = max(best, total / bound)
    assert best > least


def test_attained_by_equal_records_of_a_constant_kernel() -> None:
    n, r = 50, 3.0
    v = r**2 / (n - 1 + r**2)
    assert core_mean_bound(v, n, r, 1.0) == pytest.approx((n - 1) / (n - 1 + r**2), rel=1e-12)


def test_without_a_least_kernel_it_is_cauchy_schwarz_and_it_falls_with_kappa() -> None:
    v = np.linspace(0.01, 1.0, 200)
    np.testing.assert_allclose(core_mean_bound(v, 400, 8.0), np.sqrt(399 * v * (1 - v)) / 8.0, rtol=1e-12, atol=2e-7)
    np.testing.assert_array_equal(core_mean_bound(v, 400, 8.0, -0.2), core_mean_bound(v, 400, 8.0))
    table = core_mean_bound(v, 400, 8.0, np.linspace(0, 1, 101)[:, None])
    assert np.all(np.diff(table, axis=0) <= 1e-12)
    table = core_difference_bound(v, 400, 8.0, np.linspace(0, 1, 101)[:, None])
    assert np.all(np.diff(table, axis=0) <= 1e-12)


@pytest.mark.parametrize(
    ("kernel", "slope"),
    [(RBF(1.0), math.exp(-0.5)), (Matern32(1.0), math.exp(-1.0)), (Matern52(1.0), 0.4849)],
    ids=repr,
)
def test_two_clusters_reach_the_order_of_cauchy_schwarz_for_differentiable_kernels(kernel: Any, slope: float) -> None:
    r, limit = 1.0, []
    for n in (10**3 + 1, 10**7 + 1):
        curvature = {"rbf": 1.0, "matern32": 3.0, "matern52": 5.0 / 3.0}[kernel.name]
        step, best = 2.0 / math.sqrt(curvature * (n - 1)), 0.0
        for far in np.linspace(0.3, 1.2, 200):
            X = np.array([[far - step / 2], [far + step / 2]])
            weights, _ = core(kernel(X), kernel(X, [[0.0]]), r, np.full(2, (n - 1) / 2))
            best = max(best, float(np.abs(weights).sum()))
        limit.append(best / (math.sqrt(n - 1) / (2 * r)))
    assert limit[0] > slope - 0.03
    assert limit[1] == pytest.approx(slope, rel=2e-3)


# --- the polygon ----------------------------------------------------------------------------------


def exact_mean(B: Any, s: Any, r: float, order: float) -> float:
    """N / d of the pair with covariances B and residuals s, from the matrices."""
    c = [B[:, i] / (r**2 + B[i, i]) for i in (0, 1)]
    S = [B - np.outer(c[i], B[:, i]) for i in (0, 1)]
    delta = s[0] * c[0] - s[1] * c[1]
    return float(delta @ np.linalg.solve(order * S[1] + (1.0 - order) * S[0], delta))


def points(v: Any, v_other: Any, rho: Any, r: float, excess: float) -> Cells:
    at = np.array([v, v_other, rho], dtype=float).reshape(3, -1)
    return Cells(r, at, at, np.full(at.shape[1], excess))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_polygon_contains_what_data_sets_do(kernel: Any) -> None:
    rng, kappa, negative, worst = np.random.default_rng(3), kernel.least_value(BOX), 0, 0.0
    for pair, places, count in designs(rng, 400):
        n, r = 1 + int(count.sum()), float(rng.choice([0.5, 1.0, 4.0, 10.0]))
        order = 1.0 + 0.9 * r**2 * float(rng.random()) + 1e-3
        weights, removed = core(kernel(places), kernel(places, pair), r, count)
        B = kernel(pair) - removed
        v, w = np.diag(B), B[0, 1]
        if np.linalg.eigvalsh(B)[0] < 1e-9:
            continue
        rho = w / math.sqrt(v[0] * v[1])
        negative += w < 0
        bound = float(PolygonSet(1.0, n, kappa).mean(points(v[0], v[1], abs(rho), r, order - 1.0))[0])
        directions = [weights[:, 0], weights[:, 1], weights[:, 0] - weights[:, 1], weights[:, 0] + weights[:, 1]]
        for direction in directions:
            y = np.where(direction >= 0, 1.0, -1.0)
            for own in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                value = exact_mean(B, np.array(own) - y @ weights, r, order)
                worst = max(worst, value / bound)
                assert value <= bound * (1.0 + 1e-7)
    assert worst > 0.4
    assert negative or kernel.name in ("exponential", "rational-quadratic")


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "r", "n"), [(RBF(0.6), 3.0, 100), (Exponential(1.0), 8.0, 400)], ids=repr)
def test_polygon_contains_driven_pairs(kernel: Any, r: float, n: int) -> None:
    rng, kappa, places, order = np.random.default_rng(2), kernel.least_value(BOX), 3, 1.0 + 0.6 * r**2

    def ratio(z: Any) -> float:
        X = 1.0 / (1.0 + np.exp(-z[: 2 * places + 4].reshape(-1, 2)))
        share = np.exp(z[2 * places + 4 :])
        weights, removed = core(kernel(X[2:]), kernel(X[2:], X[:2]), r, (n - 1) * share / share.sum())
        B = kernel(X[:2]) - removed
        v, rho = np.diag(B), B[0, 1] / math.sqrt(B[0, 0] * B[1, 1])
        if np.linalg.eigvalsh(B)[0] < 1e-9:
            return 0.0
        bound = float(PolygonSet(1.0, n, kappa).mean(points(v[0], v[1], abs(rho), r, order - 1.0))[0])
        signs = [
            np.where(d >= 0, 1.0, -1.0) for d in (weights[:, 0], weights[:, 0] - weights[:, 1], weights.sum(axis=1))
        ]
        residuals = [np.array(own) - y @ weights for y in signs for own in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
        return max(exact_mean(B, s, r, order) for s in residuals) / bound

    worst = 0.0
    for sign in (1, 1, 1, -1, -1):
        start = np.concatenate([rng.normal(0, 1.5, 2 * places + 4), rng.normal(0, 0.5, places)])
        if sign < 0:
            start[:4] = [-1.0, 0.0, 1.0, 0.0]
            start[4 : 2 * places + 4] *= 0.2
        found = minimize(
            lambda z: -ratio(z), start, method="L-BFGS-B", bounds=[(-6, 6)] * start.size, options={"maxiter": 40}
        )
        worst = max(worst, -float(found.fun))
    assert 0.6 < worst <= 1.0 + 1e-7


def test_polygon_without_a_least_kernel_holds_for_kernels_of_either_sign() -> None:
    rng, negative, worst = np.random.default_rng(9), 0, 0.0
    for _ in range(3000):
        places, size = int(rng.integers(1, 5)), int(rng.integers(2, 4))
        features = rng.normal(size=(places + 2, size))
        if rng.random() < 0.5:
            features[1] = features[0] * rng.choice([-1, 1]) + 0.4 * rng.normal(size=size)
        features /= np.linalg.norm(features, axis=1)[:, None]
        gram, count = features @ features.T, rng.integers(1, 60, places).astype(float)
        n, r = 1 + int(count.sum()), float(rng.choice([1.0, 3.0]))
        weights, removed = core(gram[2:, 2:], gram[2:, :2], r, count)
        B = gram[:2, :2] - removed
        v, w = np.diag(B), B[0, 1]
        assert np.all(np.abs(weights).sum(axis=0) <= core_mean_bound(v, n, r) * (1 + 1e-9))
        apart = np.abs(weights[:, 0] - weights[:, 1]).sum()
        assert apart <= core_difference_bound(v[0] + v[1] - 2 * w, n, r, gram[0, 1]) * (1 + 1e-6)
        if np.linalg.eigvalsh(B)[0] < 1e-9:
            continue
        negative += w < 0
        order, rho = 1.0 + 0.8 * r**2, w / math.sqrt(v[0] * v[1])
        bound = float(PolygonSet(1.0, n).mean(points(v[0], v[1], abs(rho), r, order - 1.0))[0])
        for direction in (weights[:, 0], weights[:, 0] - weights[:, 1], weights.sum(axis=1)):
            y = np.where(direction >= 0, 1.0, -1.0)
            for own in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                worst = max(worst, exact_mean(B, np.array(own) - y @ weights, r, order) / bound)
    assert negative > 300
    assert 0.9 < worst <= 1.0 + 1e-7


def test_polygon_bounds_boxes_and_equals_its_value_at_points() -> None:
    rng, r = np.random.default_rng(5), 3.0
    for kappa in (0.0, 0.25, 0.7):
        responses = PolygonSet(1.3, 80, kappa)
        low = rng.uniform([[0.05], [0.05], [0.0]], [[0.9], [0.9], [0.95]], (3, 400))
        high = np.minimum(low + rng.uniform(0, 0.3, (3, 400)), 1.0)
        excess = rng.uniform(0.01, 7.0, 400)
        most = responses.mean(Cells(r, low, high, excess))
        for _ in range(40):
            at = low + (high - low) * rng.random((3, 400))
            assert np.all(responses.mean(Cells(r, at, at, excess)) <= most * (1 + 1e-9))


def test_polygon_at_a_point_is_its_best_vertex() -> None:
    r, order, n, kappa = 3.0, 4.0, 80, 0.3
    v, v_other, rho = 0.7, 0.8, 0.5
    w = rho * math.sqrt(v * v_other)
    B = np.array([[v, w], [w, v_other]])
    S, S_other = 1 + core_mean_bound([v, v_other], n, r, kappa)
    least = max(kappa, w - math.sqrt((1 - v) * (1 - v_other)))
    T = 2 + float(core_difference_bound(v + v_other - 2 * w, n, r, least))
    grid = [
        exact_mean(B, np.array([s, t]), r, order)
        for s in np.linspace(-S, S, 161)
        for t in np.linspace(-S_other, S_other, 161)
        if abs(s - t) <= T
    ]
    value = float(PolygonSet(1.0, n, kappa).mean(points(v, v_other, rho, r, order - 1))[0])
    assert max(grid) <= value * (1 + 1e-9)
    assert max(grid) >= 0.98 * value


def epsilon(responses: Any, n: int, r: float, sigma: float, delta: float, kappa: float) -> float:
    V = float(posterior_variance_bound(n, r, kappa))
    space = Space(r, V, r**2 / (n - 1 + r**2), kappa, False)
    excess = np.geomspace(0.05, 0.9, 12) * r**2 / V
    bound = Problem(space, responses, excess, np.array([sigma**-2])).solve(5e-3, math.inf)[0][:, 0]
    order = 1.0 + excess
    return float(np.min(bound + np.log(excess / order) - (math.log(delta) + np.log(order)) / excess))


@pytest.mark.parametrize(
    ("n", "r", "sigma", "delta", "most"),
    [
        (4390, 10.0, 0.2315925716, 4390**-1.1, 0.715),
        (400, 8.0, 0.1360777894, 1e-3, 0.94),
        (400, 3.0, 0.7868492458, 1e-3, 2.35),
    ],
)
def test_account_is_smaller_and_above_what_data_sets_prove(
    n: int, r: float, sigma: float, delta: float, most: float
) -> None:
    kappa = math.exp(-math.sqrt(2.0))
    value = epsilon(PolygonSet(1.0, n, kappa), n, r, sigma, delta, kappa)
    audit = {(400, 8.0): 0.502, (400, 3.0): 0.817}.get((n, r), 0.0)
    assert audit < value < most


def test_errors() -> None:
    with pytest.raises(ValueError, match="variance must be at most 1"):
        core_mean_bound(1.2, 10, 1.0)
    with pytest.raises(ValueError, match="least_kernel"):
        core_mean_bound(0.5, 10, 1.0, 1.5)
    with pytest.raises(ValueError, match="least_kernel"):
        core_difference_bound(0.5, 10, 1.0, math.nan)
    with pytest.raises(ValueError, match="ridge"):
        core_difference_bound(0.5, 10, 0.0)
    assert core_mean_bound(1.0, 1, 2.0, 0.5) == 0.0
