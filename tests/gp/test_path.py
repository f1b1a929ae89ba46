import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.gp.dense import DensePosterior, FactorisationError
from discretion.gp.domain import Box
from discretion.gp.kernels import RBF, Diagonal, Exponential, Matern32, Matern52
from discretion.gp.path import MARGIN, NuggetTooSmall, SamplePaths, mean_rounding, nugget_floor


class UnitVectors:
    """Stands in for the normals: path l gets the l-th unit vector, paths beyond the points get zeros."""

    def __init__(self):
        self.used = 0

    def __call__(self, shape):
        z = np.zeros(shape)
        here = np.arange(shape[1])
        z[self.used + here, here] = 1.0
        self.used += shape[1]
        return z


def factor_and_mean(posterior, requests, scale, nugget):
    """C (square root of the covariance, columns = paths) and mean over all points of the requests."""
    m = sum(map(len, requests))
    paths = SamplePaths(posterior, scale, nugget, UnitVectors(), paths=m + 1)
    values = np.hstack([paths.evaluate(T) for T in requests])
    return (values[:m] - values[m]).T, values[m]


def problem(n=30, m=20, seed=0, d=2):
    rng = np.random.default_rng(seed)
    return rng.random((n, d)), rng.uniform(-1, 1, n), rng.random((m, d))


def longdouble_posterior(kernel_matrix, ridge, X, T, y):
    """Mean and covariance in 64-bit-mantissa arithmetic; `kernel_matrix` works on that type."""
    wide = np.longdouble
    n = len(X)
    joint = kernel_matrix(np.vstack([X, T]).astype(wide))
    joint[:n, :n] += wide(ridge) ** 2 * np.eye(n, dtype=wide)
    right = np.concatenate([y.astype(wide), np.zeros(len(T), wide)])
    for i in range(n):  # Gaussian elimination of the records leaves the Schur complement
        multiplier = joint[i + 1 :, i] / joint[i, i]
        joint[i + 1 :, i + 1 :] -= multiplier[:, None] * joint[i, i + 1 :]
        right[i + 1 :] -= multiplier * right[i]
    return -right[n:], joint[n:, n:]


def wide_rbf(P):
    return np.exp(-((P[:, None, :] - P[None, :, :]) ** 2).sum(-1) / 2)


@pytest.mark.parametrize("k", [Exponential(0.4), Matern52((0.3, 0.8)), RBF(0.4), Diagonal()])
@pytest.mark.parametrize("split", [(20,), (7, 13), (1, 1, 18), (12, 5, 2, 1), (1,) * 20])
def test_law_of_one_request_and_of_many(k, split):
    X, y, T = problem()
    T[3], T[15] = X[4], X[4] + 1e-9  # at a record, and next to it
    posterior = DensePosterior(k, 0.7, X, y)
    scale, nugget = 0.3, 1e-6
    requests = np.split(T, np.cumsum(split)[:-1])
    C, mean = factor_and_mean(posterior, requests, scale, nugget)
    np.testing.assert_allclose(mean, posterior.mean(T), atol=1e-13)
    expected = scale**2 * (posterior.covariance(T) + nugget * np.eye(len(T)))
    np.testing.assert_allclose(C @ C.T, expected, rtol=0, atol=1e-14)


def test_prior_paths_without_records():
    _, _, T = problem()
    posterior = DensePosterior(Matern32(0.4), 1.0, np.empty((0, 2)), [])
    C, mean = factor_and_mean(posterior, [T[:6], T[6:]], 2.0, 1e-6)
    assert (mean == 0).all()
    np.testing.assert_allclose(C @ C.T, 4 * (Matern32(0.4)(T) + 1e-6 * np.eye(len(T))), atol=1e-13)


@pytest.mark.parametrize("batches", [1, 2, 20])
def test_distribution_of_sampled_paths(batches):
    X, y, T = problem(n=15, m=20, seed=5)
    T[1], T[2] = X[0], X[1]
    posterior = DensePosterior(RBF(0.5), 0.5, X, y)
    count, scale, nugget = 4000, 0.8, 1e-4
    normal = np.random.default_rng(100 + batches).standard_normal
    paths = SamplePaths(posterior, scale, nugget, normal, paths=count)
    parts = np.array_split(T, batches)
    asked = [np.vstack([part, part[:1]]) for part in parts]  # each with a repeated point
    f = np.hstack([paths.evaluate(part)[:, :-1] for part in asked])
    S = scale**2 * (posterior.covariance(T) + nugget * np.eye(len(T)))
    variance = np.diag(S)
    assert (abs(f.mean(0) - posterior.mean(T)) <= 5 * np.sqrt(variance / count)).all()
    centred = f - posterior.mean(T)
    error = np.sqrt((np.outer(variance, variance) + S**2) / count)
    assert (abs(centred.T @ centred / count - S) <= 5 * error).all()
    # rows are independent of one another
    first, second = centred[::2], centred[1::2]
    cross = np.sqrt(np.outer(variance, variance) / len(first))
    assert (abs(first.T @ second / len(first)) <= 5 * cross).all()


def test_three_records_at_one_point():
    posterior = DensePosterior(RBF(0.3), 1.0, [[0.0]] * 3, [0.0, 1.0, 2.0])
    normal = np.random.default_rng(6).standard_normal
    f = SamplePaths(posterior, 1.0, 1e-8, normal, paths=20000).evaluate([[0.0]])[:, 0]
    assert f.mean() == pytest.approx(0.75, abs=5 * math.sqrt(0.25 / 20000))
    assert f.var() == pytest.approx(0.25, rel=5 * math.sqrt(2 / 20000))


def test_a_point_keeps_its_value():
    X, y, T = problem()
    posterior = DensePosterior(RBF(0.4), 1.0, X, y)
    paths = SamplePaths(posterior, 1.0, 1e-6, np.random.default_rng(7).standard_normal, paths=3)
    T = np.vstack([T, X, T[:2], [[0.0, 0.5], [-0.0, 0.5]]])
    f = paths.evaluate(T)
    assert f.shape == (3, len(T))
    assert np.isfinite(f).all()
    assert np.array_equal(f[:, 50:52], f[:, :2])
    assert np.array_equal(f[:, 52], f[:, 53])
    assert paths.size == 51
    more = paths.evaluate(np.vstack([T[::-1], [[0.3, 0.3], [0.31, 0.3], [0.3, 0.3]]]))
    assert np.array_equal(more[:, : len(T)], f[:, ::-1])
    assert np.array_equal(more[:, -1], more[:, -3])
    assert np.array_equal(paths.evaluate(T[5:9]), f[:, 5:9])
    assert paths.size == 53
    assert paths.evaluate(np.empty((0, 2))).shape == (3, 0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 11), max_size=6), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_any_history_of_requests_is_one_path(history, seed):
    X, y, _ = problem(n=10, d=1)
    T = np.linspace(-1, 1, 12)[:, None]
    posterior = DensePosterior(Matern52(0.5), 0.5, X, y)
    order = list(dict.fromkeys(i for request in history for i in request))
    paths = SamplePaths(posterior, 1.0, 1e-6, UnitVectors(), paths=13)
    seen = {}
    for request in history:
        values = paths.evaluate(T[request].reshape(-1, 1))
        for place, i in enumerate(request):
            assert np.array_equal(values[:, place], seen.setdefault(i, values[:, place]))
    if order:
        F = np.stack([seen[i] for i in order])
        C = F - F[:, -1:]
        expected = posterior.covariance(T[order]) + 1e-6 * np.eye(len(order))
        np.testing.assert_allclose(C @ C.T, expected, rtol=0, atol=1e-13)


def test_many_small_requests_are_merged_into_few_blocks():
    X, y, _ = problem()
    posterior = DensePosterior(Exponential(0.4), 1.0, X, y)
    paths = SamplePaths(posterior, 1.0, 1e-6, np.random.default_rng(8).standard_normal, paths=2)
    T = np.random.default_rng(9).random((600, 2))
    f = np.hstack([paths.evaluate(t[None]) for t in T])
    assert len(paths._batches) <= 10
    assert np.array_equal(paths.evaluate(T), f)


NASTY = {
    "grid": (np.linspace(0, 1, 14)[:, None], np.linspace(0, 1, 17)[:, None]),
    "same": (np.zeros((14, 1)), np.linspace(-1e-9, 1e-9, 17)[:, None]),
    "at records": (np.repeat(np.linspace(0, 1, 7), 2)[:, None], np.repeat(np.linspace(0, 1, 7), 2)[:, None]),
    "far cluster": (1e3 + 1e-4 * np.arange(14.0)[:, None], 1e3 + 1e-4 * np.arange(17.0)[:, None] / 1.7),
}


@pytest.mark.parametrize("ridge", [1e-4, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize("case", NASTY)
def test_nugget_floor_and_mean_rounding_bound_the_errors_seen_with_fifty_digits(case, ridge):
    X, T = NASTY[case]
    y = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    T = np.unique(T, axis=0)
    n, m = len(X), len(T)
    nugget = max(1e-6, MARGIN * nugget_floor(n, m, ridge))
    with mpmath.workdps(50):
        P = [mpmath.mpf(float(x)) for x in np.concatenate([X[:, 0], T[:, 0]])]
        K = mpmath.matrix(n + m)
        for i in range(n + m):
            for j in range(n + m):
                K[i, j] = mpmath.exp(-((P[i] - P[j]) ** 2) / 2)
        A = K[:n, :n] + mpmath.mpf(ridge) ** 2 * mpmath.eye(n)
        L = mpmath.cholesky(A)
        W = L**-1 * K[:n, n:]
        b = L**-1 * mpmath.matrix(y)
        mean = W.T * b
        S = K[n:, n:] + mpmath.mpf(nugget) * mpmath.eye(m) - W.T * W
        posterior = DensePosterior(RBF(1.0), ridge, X, y)
        for requests in ([T], np.array_split(T, 3)):
            # means and factors apart: subtracting them in floating point would add its own rounding
            centred = DensePosterior(RBF(1.0), ridge, X, np.zeros(n))
            C, zero = factor_and_mean(centred, requests, 1.0, nugget)
            assert (zero == 0).all()
            C = mpmath.matrix(C.tolist())
            error = np.array((C * C.T - S).tolist(), float)
            assert np.linalg.norm(error, 2) <= nugget_floor(n, m, ridge)
            _, computed = factor_and_mean(posterior, requests, 1.0, nugget)
            difference = [float(mpmath.mpf(float(c)) - mean[i]) for i, c in enumerate(computed)]
            assert np.linalg.norm(difference) <= mean_rounding(n, m, ridge, 1.0)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision on this machine")
@pytest.mark.parametrize("ridge", [1e-3, 0.1, 1.0, 10.0])
def test_nugget_floor_and_mean_rounding_in_extended_precision(ridge):
    n, m = 150, 120
    X, T = np.linspace(0, 3, n)[:, None], np.linspace(-0.5, 3.5, m)[:, None]
    y = np.where(np.arange(n) % 3, 1.0, -1.0)
    nugget = max(1e-7, MARGIN * nugget_floor(n, m, ridge))
    mean, S = longdouble_posterior(wide_rbf, ridge, X, T, y)
    S = S + np.longdouble(nugget) * np.eye(m)
    C, _ = factor_and_mean(DensePosterior(RBF(1.0), ridge, X, 0 * y), [T[:50], T[50:]], 1.0, nugget)
    C = C.astype(np.longdouble)
    error = np.linalg.norm((C @ C.T - S).astype(float), 2)
    floor = nugget_floor(n, m, ridge)
    assert error <= floor
    _, computed = factor_and_mean(DensePosterior(RBF(1.0), ridge, X, y), [T], 1.0, nugget)
    difference = float(np.linalg.norm((computed - mean).astype(float)))
    assert difference <= mean_rounding(n, m, ridge, 1.0)


def test_the_bounds_grow_with_the_sizes_and_shrink_with_the_ridge():
    base = nugget_floor(500, 400, 2.0), mean_rounding(500, 400, 2.0, 1.0)
    for n, m, ridge in [(600, 400, 2.0), (500, 500, 2.0), (500, 400, 1.5)]:
        assert nugget_floor(n, m, ridge) > base[0]
        assert mean_rounding(n, m, ridge, 1.0) > base[1]
    assert mean_rounding(500, 400, 2.0, 3.0) == pytest.approx(3 * base[1])
    assert mean_rounding(0, 400, 2.0, 1.0) == 0
    assert 0 < nugget_floor(0, 400, 2.0) < base[0]
    assert nugget_floor(4000, 3600, 8.0) * MARGIN < 1e-6
    assert nugget_floor(10**6, 1, 1e-6) == math.inf
    assert mean_rounding(10**6, 1, 1e-6, 1.0) == math.inf
    assert nugget_floor(10**14, 10**14, 1e3) == math.inf
    assert nugget_floor(30000, 30000, 0.003) == math.inf
    for bad in [(-1, 1, 1.0), (1, -1, 1.0), (1, 1, 0.0), (1, 1, math.nan)]:
        with pytest.raises(ValueError, match="ridge positive"):
            nugget_floor(*bad)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="response_bound"):
            mean_rounding(1, 1, 1.0, bad)


def test_too_small_a_nugget_is_refused_with_the_smallest_allowed():
    X, y, T = problem()
    posterior = DensePosterior(RBF(0.4), 1.0, X, y)
    smallest = MARGIN * nugget_floor(30, 20, 1.0)
    calls = []

    def normal(shape):
        calls.append(shape)
        return np.zeros(shape)

    paths = SamplePaths(posterior, 1.0, smallest * 0.999, normal)
    with pytest.raises(NuggetTooSmall, match="give at least") as error:
        paths.evaluate(T)
    assert error.value.smallest == smallest
    assert isinstance(error.value, ValueError)
    printed = float(str(error.value).split("give at least ")[1].split(",")[0])
    assert smallest <= printed <= smallest * 1.0001
    assert (calls, paths.size) == ([], 0)
    assert SamplePaths(posterior, 1.0, printed, normal).evaluate(T).shape == (1, 20)
    # the number of points of all requests counts; the refused request leaves the path as it was
    paths = SamplePaths(posterior, 1.0, smallest, normal)
    first = paths.evaluate(T)
    with pytest.raises(NuggetTooSmall):
        paths.evaluate([[5.0, 5.0]])
    assert np.array_equal(paths.evaluate(T), first)
    assert paths.size == 20


def test_jitter_counts_as_ridge_for_the_nugget():
    X, y, T = problem()
    nugget = MARGIN * nugget_floor(30, 20, 1.0)
    ridge = math.sqrt(0.5)
    with pytest.raises(NuggetTooSmall):
        SamplePaths(DensePosterior(RBF(0.4), ridge, X, y), 1.0, nugget, np.zeros).evaluate(T)
    jittered = DensePosterior(RBF(0.4), ridge, X, y, jitter=0.5 + 1e-9)
    assert SamplePaths(jittered, 1.0, nugget, np.zeros).evaluate(T).shape == (1, 20)


@pytest.mark.parametrize(
    "normal",
    [
        lambda shape: np.zeros(shape).T,
        lambda shape: np.full(shape, math.nan),
        lambda shape: np.full(shape, math.inf),
    ],
)
def test_bad_normals_are_refused_and_leave_the_paths_as_they_were(normal):
    X, y, T = problem()
    paths = SamplePaths(DensePosterior(RBF(0.4), 1.0, X, y), 1.0, 1e-6, normal, paths=2)
    with pytest.raises(ValueError, match="normal"):
        paths.evaluate(T)
    assert paths.size == 0


def test_a_value_that_is_not_finite_is_never_returned():
    X, y, T = problem()
    posterior = DensePosterior(RBF(0.4), 1.0, X, y)
    with np.errstate(over="ignore"):
        paths = SamplePaths(posterior, 1e308, 1e-6, lambda shape: np.full(shape, 1e10))
        with pytest.raises(FactorisationError, match="not finite"):
            paths.evaluate(T)


def test_bad_arguments_are_refused():
    X, y, T = problem()
    posterior = DensePosterior(RBF(0.4), 1.0, X, y)
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale"):
            SamplePaths(posterior, scale, 1e-6, np.zeros)
        with pytest.raises(ValueError, match="nugget"):
            SamplePaths(posterior, 1.0, scale, np.zeros)
    for paths in (0, -1, 1.5):
        with pytest.raises(ValueError, match="paths"):
            SamplePaths(posterior, 1.0, 1e-6, np.zeros, paths=paths)
    with pytest.raises(ValueError, match="64 coordinates"):
        SamplePaths(DensePosterior(RBF(0.4), 1.0, np.zeros((2, 65)), [0, 0]), 1.0, 1e-6, np.zeros)
    for T in ([[math.nan, 0.0]], [[0.0]], [0.0, 1.0]):
        with pytest.raises(ValueError, match="T "):
            SamplePaths(posterior, 1.0, 1e-6, np.zeros).evaluate(T)


def test_the_nugget_covers_the_directions_that_rounding_removes():
    # two sets of responses that differ in one record; means and noise as computed
    rng = np.random.default_rng(10)
    n, ridge = 100, 1.0
    X, y = rng.random((n, 2)), rng.uniform(-1, 1, n)
    T = Box((0, 0), (1, 1)).grid((24, 20))
    other = y.copy()
    y[0], other[0] = 1.0, -1.0
    k = RBF(0.3)
    one, two = DensePosterior(k, ridge, X, y), DensePosterior(k, ridge, X, other)
    influence = 1 - ridge**2 * np.linalg.inv(k(X) + ridge**2 * np.eye(n))[0, 0]
    exact = abs(y[0] - other[0]) * math.sqrt(influence) / ridge  # distance of the whole paths

    # without a nugget: directions of computed variance zero or less still tell the two apart
    eigenvalues, vectors = np.linalg.eigh(one.covariance(T))
    null = vectors[:, eigenvalues <= 0]
    root = vectors * np.sqrt(eigenvalues.clip(min=0))
    means = one.mean(T), two.mean(T)
    direction = null @ (null.T @ (means[0] - means[1]))
    scores = [
        (mean[:, None] + root @ rng.standard_normal((len(T), 200))).T @ direction / np.linalg.norm(direction)
        for mean in means
    ]
    separation = abs(scores[0].mean() - scores[1].mean()) / max(scores[0].std(), scores[1].std())
    assert separation > 3 * exact

    # with it: as far apart as the exact paths, at most
    nugget = 1e-6
    for requests in ([T], np.array_split(T, 3)):
        C, mean_one = factor_and_mean(one, requests, 1.0, nugget)
        _, mean_two = factor_and_mean(two, requests, 1.0, nugget)
        distance = np.linalg.norm(np.linalg.solve(C, mean_one - mean_two))
        slack = 2 * mean_rounding(n, len(T), ridge, 1.0) / math.sqrt(nugget)
        assert distance <= exact * (1 + 1e-6) + slack


def test_memory_stays_near_the_arrays_that_are_needed():
    n, m = 1500, 1200
    X, y, T = problem(n, m)
    normal = np.random.default_rng(11).standard_normal
    tracemalloc.start()
    posterior = DensePosterior(Matern52(0.3), 2.0, X, y)
    posterior.mean(T)
    covariance = posterior.covariance(T)
    del covariance
    SamplePaths(posterior, 0.1, 1e-6, normal).evaluate(T)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * 8 * (n * n + n * m + m * m)
