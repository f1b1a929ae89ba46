import itertools
import math
import time

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discretion.gp import (
    RBF,
    DensePosterior,
    Exponential,
    ExponentialL1,
    ExponentialPaths,
    ExponentialPosterior,
    FactorisationError,
    Matern32,
    NuggetTooSmall,
    engine,
)
from discretion.gp.dense import UNIT_ROUNDOFF
from discretion.gp.exponential import (
    _eliminated,
    _network,
    _rounds,
    line_mean_rounding,
    line_nugget_floor,
    on_the_line,
)


class UnitNormals:
    """Instead of normals, the columns of an identity: the paths are the linear map from normals to values."""

    def __init__(self, total):
        self.total, self.used = total, 0

    def __call__(self, shape):
        block = np.zeros(shape)
        block[self.used : self.used + shape[1]] = np.eye(shape[1])
        self.used += shape[1]
        assert self.used <= self.total
        return block


def made(n, seed=0):
    """Sites with a repeated one, one at 1e-12 and one at 1e-300 from it, and far ones."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, n)
    if n > 6:
        x[1:4] = x[0], x[0] + 1e-12, 40.0
        x[4:6] = 0.0, 1e-300
    return x[:, None], np.sin(7.0 * x) + 0.3 * rng.normal(size=n)


def law(posterior, requests, nugget=1e-3, scale=0.7):
    """Mean, and the matrix from normals to noise, of the values of all requests."""
    total = 2 * sum(map(len, requests))
    paths = ExponentialPaths(posterior, scale, nugget, UnitNormals(total), paths=total + 1)
    values = np.concatenate([paths.evaluate(T) for T in requests], axis=1)
    return values[-1], (values[:-1] - values[-1]).T


def requests_of(X):
    rng = np.random.default_rng(1)
    return [
        rng.uniform(-0.5, 1.5, (25, 1)),
        X[: len(X) // 2],
        rng.uniform(0.4, 0.6, (9, 1)),
        np.array([[50.0], [-3.0], [2000.0]]),
        X[:3],
        rng.uniform(0.0, 1.0, (1, 1)),
    ]


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize(("n", "length_scale"), [(0, 1.0), (1, 0.2), (2, 0.2), (60, 0.2), (60, 3.0), (300, 0.01)])
def test_the_law_is_that_of_the_dense_posterior(n, ridge, length_scale):
    X, y = made(n)
    requests = requests_of(X)
    T = np.concatenate(requests)
    dense = DensePosterior(Exponential(length_scale), ridge, X, y)
    line = ExponentialPosterior(ExponentialL1(length_scale), ridge, X, y)
    mean, C = law(line, requests)
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=1e-8)
    np.testing.assert_allclose(line.mean(T), mean, rtol=0, atol=1e-15)
    same = (np.abs(T - T.T) < 1e-40).astype(float)  # 0 and 1e-300 are one place
    np.testing.assert_allclose(C @ C.T, 0.49 * (dense.covariance(T) + 1e-3 * same), rtol=0, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 14), max_size=12),
    st.lists(st.lists(st.integers(0, 14), max_size=5), min_size=1, max_size=6),
)
def test_any_history_of_requests_is_one_path(sites, history):
    grid = np.cumsum(10.0 ** -(np.arange(15.0) % 5.0))[:, None] - 1.0
    X, y = grid[sites], np.arange(len(sites), dtype=float)
    posterior = ExponentialPosterior(Exponential(0.5), 0.4, X, y)
    order = list(dict.fromkeys(i for request in history for i in request))
    total = 2 * len(order)
    paths = ExponentialPaths(posterior, 1.0, 1e-3, UnitNormals(total), paths=total + 1)
    seen = {}
    for request in history:
        values = paths.evaluate(grid[request].reshape(-1, 1))
        for place, i in enumerate(request):
            np.testing.assert_array_equal(values[:, place], seen.setdefault(i, values[:, place]))
    assert paths.size == len(order)
    if order:
        F = np.stack([seen[i] for i in order])
        C = F[:, :-1] - F[:, -1:]
        dense = DensePosterior(Exponential(0.5), 0.4, X, y)
        expected = dense.covariance(grid[order]) + 1e-3 * np.eye(len(order))
        np.testing.assert_allclose(C @ C.T, expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(F[:, -1], dense.mean(grid[order]), rtol=0, atol=1e-12)


def test_paths_have_the_posterior_law():
    X, y = made(80)
    T = np.random.default_rng(2).uniform(-0.2, 1.2, (30, 1))
    posterior = ExponentialPosterior(Exponential(0.2), 0.3, X, y)
    paths = ExponentialPaths(posterior, 0.8, 1e-2, np.random.default_rng(3).standard_normal, paths=3000)
    values = np.concatenate([paths.evaluate(T[:10]), paths.evaluate(T[10:])], axis=1)
    dense = DensePosterior(Exponential(0.2), 0.3, X, y)
    L = np.linalg.cholesky(dense.covariance(T) + 1e-2 * np.eye(30))
    white = np.linalg.solve(0.8 * L, (values - dense.mean(T)).T)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(white @ white.T / 3000, np.eye(30), atol=0.1)


NASTY = {
    "grid": (np.linspace(0, 1, 14), np.linspace(0, 1, 17)),
    "one place": (np.zeros(14), np.linspace(-1e-9, 1e-9, 17)),
    "at records": (np.repeat(np.linspace(0, 1, 7), 2), np.linspace(0, 1, 7)),
    "ever closer": (2.0 ** -np.arange(0.0, 112.0, 8.0), 2.0 ** -np.arange(1.0, 113.0, 8.0)),
    "far away": (1e3 + 1e-4 * np.arange(14.0), np.concatenate([1e3 + 1e-4 * np.arange(9.0) / 1.7, [0.0, 1e5]])),
}


def exact(X, y, T, ridge):
    """Mean and covariance with 120 digits."""
    P = [mpmath.mpf(float(x)) for x in np.concatenate([X, T])]
    n = len(X)
    K = mpmath.matrix([[mpmath.exp(-abs(a - b)) for b in P] for a in P])
    L = mpmath.cholesky(K[:n, :n] + mpmath.mpf(ridge) ** 2 * mpmath.eye(n))
    W = L**-1 * K[:n, n:]
    return W.T * (L**-1 * mpmath.matrix(y)), K[n:, n:] - W.T * W


@pytest.mark.parametrize("ridge", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize("case", NASTY)
def test_the_bounds_hold_against_a_hundred_and_twenty_digits(case, ridge):
    X, T = NASTY[case]
    T = np.unique(T)
    y, n, m = np.where(np.arange(len(X)) % 2, 1.0, -1.0), len(X), len(T)
    nugget = 1e-6
    with mpmath.workdps(120):
        mean, S = exact(X, y, T, ridge)
        posterior = ExponentialPosterior(Exponential(1.0), ridge, X[:, None], y)
        centred = posterior.with_responses(np.zeros(n))
        for requests in ([T], np.array_split(T, 3), np.array_split(T, m)):
            requests = [part[:, None] for part in requests]
            zero, C = law(centred, requests, nugget, 1.0)
            assert (zero == 0).all()
            C = mpmath.matrix(C.tolist())
            off = C * C.T - S - mpmath.mpf(nugget) * mpmath.eye(m)
            error = np.linalg.norm(np.array(off.tolist(), float), 2)
            rounds, R = _rounds(n, m), len(requests)
            moved = math.sqrt(m) * 10.0 * R * rounds * UNIT_ROUNDOFF
            law_moved = 2.2 * R * (28.0 + 6.0 * rounds) * UNIT_ROUNDOFF  # relative, in the sense of forms
            largest = float(mpmath.mnorm(S, "f"))
            assert error <= 2.0 * moved + moved**2 + law_moved * largest + 4e-16 * nugget
            computed, _ = law(posterior, requests, nugget, 1.0)
            difference = [float(mpmath.mpf(float(c)) - mean[i]) for i, c in enumerate(computed)]
            assert np.linalg.norm(difference) <= line_mean_rounding(n, m, ridge, 1.0)


def form(network):
    """The matrix of a network's quadratic form."""
    a, k = network.conductance, network.killing
    total = k + np.concatenate([a, [0.0]]) + np.concatenate([[0.0], a])
    return np.diag(total) - np.diag(a, 1) - np.diag(a, -1)


def test_the_network_is_the_precision_of_the_process():
    places = np.array([0.0, 0.1, 0.1 + 1e-3, 2.0, 7.0])
    network = _network(np.concatenate([[-math.inf], places, [math.inf]]), np.zeros(7))
    inverse = np.linalg.inv(form(network)[1:-1, 1:-1])
    np.testing.assert_allclose(inverse, Exponential(1.0)(places[:, None]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_elimination_is_the_schur_complement_and_its_rounds_the_factor(share):
    rng = np.random.default_rng(3)
    places = np.concatenate([[-math.inf], np.sort(rng.uniform(0, 3, 60)), [math.inf]])
    network = _network(places, rng.uniform(0.0, 2.0, 62))
    network.current[:] = rng.normal(size=62)
    gone = rng.random(62) < share
    gone[[0, -1]] = False
    rounds, left = _eliminated(network, gone)
    assert len(rounds) <= int(gone.sum()).bit_length()
    A, e, stay = form(network), np.flatnonzero(gone), np.flatnonzero(~gone)
    solved = np.linalg.solve(A[np.ix_(e, e)], np.column_stack([A[np.ix_(e, stay)], network.current[e]]))
    schur = A[np.ix_(stay, stay)] - A[np.ix_(stay, e)] @ solved[:, :-1]
    np.testing.assert_allclose(form(left), schur, rtol=0, atol=1e-12 * abs(A).max())
    current = network.current[stay] - A[np.ix_(stay, e)] @ solved[:, -1]
    np.testing.assert_allclose(left.current, current, rtol=0, atol=1e-10)
    log_determinant = sum(np.log(each.total).sum() for each in rounds)
    assert log_determinant == pytest.approx(np.linalg.slogdet(A[np.ix_(e, e)])[1], rel=1e-12)
    x = rng.normal(size=62)
    drawn = sum(
        (each.total * (x[each.node] - each.to_left * x[each.left] - each.to_right * x[each.right]) ** 2).sum()
        for each in rounds
    )
    np.testing.assert_allclose(drawn + x[stay] @ form(left) @ x[stay], x @ A @ x, rtol=1e-12)


def test_a_reduced_network_keeps_its_relative_accuracy_however_close_the_sites_are():
    # 4,000 sites 2^-100 to 2^-4 apart, between two points: the exact conductance in 120 digits
    rng = np.random.default_rng(0)
    gaps = 2.0 ** -rng.integers(4, 100, 4001).astype(float)
    with mpmath.workdps(120):
        a, k = mpmath.mpf(1) / (2 * mpmath.sinh(mpmath.mpf(gaps[0]))), mpmath.mpf(0)
        for left, right in itertools.pairwise(gaps):
            k = k + (mpmath.tanh(mpmath.mpf(left) / 2) + mpmath.tanh(mpmath.mpf(right) / 2)) / 2 + mpmath.mpf(0.01)
            b = 1 / (2 * mpmath.sinh(mpmath.mpf(right)))
            total = a + b + k
            a, k = a * b / total, b * k / total
    # the gaps themselves, as sums of them would round
    conductance, killing = 1.0 / (2.0 * np.sinh(gaps)), np.tanh(gaps / 2.0) / 2.0
    network = _network(np.arange(4002.0), np.full(4002, 0.0))
    network.conductance[:] = conductance
    network.killing[1:-1] = killing[:-1] + killing[1:] + 0.01
    gone = np.ones(4002, dtype=bool)
    gone[[0, -1]] = False
    rounds, left = _eliminated(network, gone)
    assert len(rounds) == 12
    assert left.conductance[0] == pytest.approx(float(a), rel=100 * UNIT_ROUNDOFF)
    assert left.killing[-1] - network.killing[-1] == pytest.approx(float(k), rel=100 * UNIT_ROUNDOFF)


def test_bounds_are_public_and_stop_where_double_precision_does():
    assert line_mean_rounding(10**6, 10**4, 10.0, 1.0) == pytest.approx(6.3e-10, rel=0.1)
    assert 64 * 10**4 * UNIT_ROUNDOFF < line_nugget_floor(10**6, 10**4) < 1e-10
    assert line_nugget_floor(10**6, 10, 10**6) > 2 * line_nugget_floor(10**6, 10, 1)
    assert line_mean_rounding(100, 9, 3.0, 2.0) == pytest.approx(2.0 * line_mean_rounding(100, 9, 3.0, 1.0))
    assert line_mean_rounding(100, 9, 2.0, 1.0) > line_mean_rounding(100, 9, 3.0, 1.0)
    assert line_nugget_floor(10**6, 5, 10**12) == math.inf
    assert line_nugget_floor(10, 0) == line_mean_rounding(10, 0, 1.0, 1.0) == line_mean_rounding(0, 9, 1.0, 1.0) == 0.0


def test_too_many_requests_for_the_nugget_are_refused_and_change_nothing():
    X, y = made(30)
    posterior = ExponentialPosterior(Exponential(0.2), 1.0, X, y)
    nugget = 8.0 * line_nugget_floor(30, 4, 2)  # of four points
    paths = ExponentialPaths(posterior, 1.0, nugget, np.random.default_rng(0).standard_normal)
    first = paths.evaluate([[0.1], [0.2]])
    paths.evaluate([[0.3], [0.4]])
    paths.evaluate([[0.3], [0.4]])  # nothing new
    with pytest.raises(NuggetTooSmall):
        paths.evaluate([[0.5]])
    np.testing.assert_array_equal(paths.evaluate([[0.1], [0.2]]), first)


def test_after_an_error_the_paths_are_as_they_were():
    X, y = made(10)
    rng, broken = np.random.default_rng(0), False

    def normal(shape):
        return np.full(shape, math.nan) if broken else rng.standard_normal(shape)

    paths = ExponentialPaths(ExponentialPosterior(Exponential(0.2), 0.3, X, y), 1.0, 1e-2, normal)
    first = paths.evaluate([[0.1], [0.2], [0.1], [-0.0], [0.0]])
    assert paths.size == 3
    np.testing.assert_array_equal(first[:, [2, 4]], first[:, [0, 3]])
    broken = True
    with pytest.raises(ValueError, match="finite"):
        paths.evaluate([[0.3]])
    with pytest.raises(ValueError, match="coordinate"):
        paths.evaluate([[0.3, 0.4]])
    np.testing.assert_array_equal(paths.evaluate([[0.1], [0.2]]), first[:, :2])
    assert paths.evaluate(np.empty((0, 1))).shape == (1, 0)


def test_other_responses_share_what_depends_on_the_points():
    X, y = made(40)
    one = ExponentialPosterior(Exponential(0.2), 0.3, X, y)
    other = one.with_responses(-2.0 * y)
    np.testing.assert_allclose(other.means, -2.0 * one.means, rtol=1e-12, atol=1e-15)
    assert other.sites is one.sites
    with pytest.raises(ValueError, match="shape"):
        one.with_responses(y[1:])


def test_the_log_likelihood_is_that_of_the_normal_density():
    X, y = made(50)
    covariance = Exponential(0.2)(X) + (0.25 + 0.01) * np.eye(50)
    expected = stats.multivariate_normal.logpdf(y, cov=covariance)
    line = ExponentialPosterior(Exponential(0.2), 0.5, X, y, jitter=0.01)
    assert line.log_likelihood() == pytest.approx(expected, rel=1e-11)
    assert ExponentialPosterior(Exponential(0.2), 0.5, np.empty((0, 1)), []).log_likelihood() == 0.0


def test_other_kernels_and_dimensions_are_dense():
    assert engine(Exponential(0.1), 1).name == engine(ExponentialL1((0.1,)), 1).name == "line"
    for kernel, dimension in ((Exponential(0.1), 2), (Matern32(0.1), 2), (RBF(0.1), 1), (ExponentialL1(1.0), 3)):
        assert engine(kernel, dimension).name == "dense"
        assert not on_the_line(kernel, dimension)
    with pytest.raises(ValueError, match="exponential kernel"):
        ExponentialPosterior(RBF(1.0), 1.0, [[0.0]], [0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ridge": 0.0}, "ridge"),
        ({"ridge": 1e-31}, "1e-60"),
        ({"jitter": -1.0}, "jitter"),
        ({"X": [[math.nan]]}, "NaN"),
        ({"X": [[0.0, 1.0]]}, "coordinate"),
        ({"y": [math.inf]}, "NaN or infinite"),
        ({"y": [1.0, 2.0]}, "shape"),
        ({"X": [[1e200]]}, "change the unit"),
    ],
)
def test_bad_input_is_refused_without_a_value(change, message):
    arguments = {"kernel": Exponential(1.0), "ridge": 1.0, "X": [[0.123456]], "y": [0.654321]} | change
    with pytest.raises(ValueError, match=message) as error:
        ExponentialPosterior(**arguments)
    assert "0.123456" not in str(error.value)
    assert "0.654321" not in str(error.value)


def test_what_is_not_finite_is_never_returned():
    posterior = ExponentialPosterior(Exponential(1.0), 1.0, [[0.0]], [1.0])
    with np.errstate(over="ignore"):
        paths = ExponentialPaths(posterior, 1e308, 1e-6, lambda shape: np.full(shape, 1e10))
        with pytest.raises(FactorisationError, match="not finite"):
            paths.evaluate([[0.0]])
    for bad in ({"scale": 0.0}, {"nugget": math.inf}, {"paths": 1.5}):
        arguments = {"scale": 1.0, "nugget": 1e-6, "normal": np.zeros, "paths": 1} | bad
        with pytest.raises(ValueError, match=r"scale|paths"):
            ExponentialPaths(posterior, **arguments)


def test_time_is_linear():
    # a wrong complexity, not a slow machine: 16 times the data may take 60 times as long, never 256
    rng = np.random.default_rng(0)

    def seconds(n):
        X, y = rng.uniform(0, 1, (n, 1)), rng.normal(size=n)
        start = time.process_time()
        ExponentialPaths(ExponentialPosterior(Exponential(0.3), 1.0, X, y), 1.0, 1e-6, rng.standard_normal).evaluate(
            X[:1000]
        )
        return time.process_time() - start

    small = min(seconds(10_000) for _ in range(3))
    assert min(seconds(160_000) for _ in range(2)) <= 60 * small
