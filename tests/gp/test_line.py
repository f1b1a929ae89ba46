"""The engines on the line, each against the dense one, and what all of them refuse."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.gp.line_makers import law, made, map_of

from discretion.gp import (
    RBF,
    DensePosterior,
    Exponential,
    ExponentialL1,
    ExponentialPaths,
    ExponentialPosterior,
    FactorisationError,
    Matern32,
    Matern52,
    MaternLinePaths,
    MaternLinePosterior,
    NuggetTooSmall,
    engine,
)
from discretion.gp.exponential import line_nugget_floor, on_the_line
from discretion.gp.markov import MarkovPaths, MarkovPosterior
from discretion.gp.matern_line import matern_nugget_floor, matern_on_the_line


@dataclass(frozen=True)
class Engine:
    """One engine, a kernel of it, and how close it comes to the dense engine on awkward data."""

    posterior: type
    paths: type
    kernel: type
    close: tuple[float, float]  # of means, of covariances
    floor: Callable[[int, int, int], float] | None = None  # of n records, m points, so many requests

    def of(self, X, y, ridge=0.3, length_scale=0.2, **options):
        return self.posterior(self.kernel(length_scale), ridge, X, y, **options)

    def dense(self, X, y, ridge=0.3, length_scale=0.2, **options):
        return DensePosterior(self.kernel(length_scale), ridge, X, y, **options)


def matern_floor(n, m, requests):
    return matern_nugget_floor(m)


ENGINES = {
    "exponential": Engine(ExponentialPosterior, ExponentialPaths, Exponential, (1e-8, 1e-8), line_nugget_floor),
    "exponential-l1": Engine(ExponentialPosterior, ExponentialPaths, ExponentialL1, (1e-8, 1e-8), line_nugget_floor),
    "matern32": Engine(MaternLinePosterior, MaternLinePaths, Matern32, (1e-10, 1e-12), matern_floor),
    "matern52": Engine(MaternLinePosterior, MaternLinePaths, Matern52, (1e-10, 1e-12), matern_floor),
    "markov32": Engine(MarkovPosterior, MarkovPaths, Matern32, (1e-10, 1e-10)),
    "markov52": Engine(MarkovPosterior, MarkovPaths, Matern52, (1e-10, 1e-10)),
}
each = pytest.mark.parametrize("line", ENGINES.values(), ids=ENGINES)
one_of_each = pytest.mark.parametrize(
    "line", [ENGINES[name] for name in ("exponential", "matern32", "markov32")], ids=["exponential", "matern", "markov"]
)


@each
@pytest.mark.parametrize(
    ("n", "length_scale", "ridge"),
    [(0, 1.0, 1.0), (1, 0.2, 1e-3), (2, 3.0, 20.0), (40, 0.2, 0.3), (40, 3.0, 1e-2), (40, 0.01, 20.0)],
)
def test_the_law_is_that_of_the_dense_posterior(line, n, length_scale, ridge):
    X, y = made(n)
    rng = np.random.default_rng(1)
    requests = [rng.uniform(-0.5, 1.5, (8, 1)), X[: n // 2], rng.uniform(0.4, 0.6, (3, 1)), np.array([[50.0], [-3.0]])]
    requests += [X[:3], np.array([[2000.0]])]
    T = np.concatenate(requests)
    dense, posterior = line.dense(X, y, ridge, length_scale), line.of(X, y, ridge, length_scale)
    mean, C = law(line.paths, posterior, requests)
    of_means, of_covariances = line.close
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=of_means)
    np.testing.assert_allclose(posterior.mean(T), mean, rtol=0, atol=1e-13)
    same = (np.abs(T - T.T) < 1e-40).astype(float)  # 0 and 1e-300 are one place
    np.testing.assert_allclose(C @ C.T, 0.49 * (dense.covariance(T) + 1e-3 * same), rtol=0, atol=of_covariances)


@one_of_each
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 14), max_size=8),
    st.lists(st.lists(st.integers(0, 14), max_size=4), min_size=1, max_size=5),
)
def test_any_history_of_requests_is_one_path(line, sites, history):
    grid = np.cumsum(10.0 ** -(np.arange(15.0) % 5.0))[:, None] - 1.0
    X, y = grid[sites], np.arange(len(sites), dtype=float)
    found = map_of(
        line.paths, line.of(X, y, 0.4, 0.5), [grid[request].reshape(-1, 1) for request in history], scale=1.0
    )
    seen = {}
    for request, (mean, C) in zip(history, found, strict=True):
        for i, value, row in zip(request, mean, C, strict=True):
            first = seen.setdefault(i, (value, row))
            assert value == first[0]
            np.testing.assert_array_equal(row, first[1])
    if seen:
        points, dense = grid[list(seen)], line.dense(X, y, 0.4, 0.5)
        mean, C = (np.stack(part) for part in zip(*seen.values(), strict=True))
        np.testing.assert_allclose(mean, dense.mean(points), rtol=0, atol=1e-12)
        np.testing.assert_allclose(C @ C.T, dense.covariance(points) + 1e-3 * np.eye(len(seen)), rtol=0, atol=1e-12)


@one_of_each
def test_paths_have_the_posterior_law(line):
    X, y = made(30)
    T = np.random.default_rng(2).uniform(-0.2, 1.2, (20, 1))
    paths = line.paths(line.of(X, y), 0.8, 1e-2, np.random.default_rng(3).standard_normal, paths=2000)
    values = np.concatenate([paths.evaluate(T[:10]), paths.evaluate(T[10:])], axis=1)
    dense = line.dense(X, y)
    L = np.linalg.cholesky(dense.covariance(T) + 1e-2 * np.eye(20))
    white = np.linalg.solve(0.8 * L, (values - dense.mean(T)).T)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(white @ white.T / 2000, np.eye(20), atol=0.12)


@one_of_each
def test_a_point_keeps_its_value_whatever_is_asked_between(line):
    X, y = made(30)
    rng = np.random.default_rng(0)
    paths = line.paths(line.of(X, y), 1.0, 1e-2, rng.standard_normal, paths=2)
    T = np.concatenate([X[:5], [[0.31], [0.77], [9.0]]])
    first = paths.evaluate(T)
    later = paths.evaluate(np.concatenate([rng.uniform(0, 1, (50, 1)), T, -0.0 * T[:1], T[:2]]))
    np.testing.assert_array_equal(later[:, 50:58], first)
    np.testing.assert_array_equal(later[:, 59:], first[:, :2])
    assert paths.size == len(np.unique(T)) + 50


@one_of_each
def test_after_an_error_the_paths_are_as_they_were(line):
    X, y = made(10)
    rng, broken = np.random.default_rng(0), False

    def normal(shape):
        return np.full(shape, math.nan) if broken else rng.standard_normal(shape)

    paths = line.paths(line.of(X, y), 1.0, 1e-2, normal)
    first = paths.evaluate([[0.1], [0.2], [0.1], [-0.0], [0.0]])
    assert paths.size == 3
    np.testing.assert_array_equal(first[:, [2, 4]], first[:, [0, 3]])
    broken = True
    with pytest.raises(ValueError, match="finite"):
        paths.evaluate([[0.3]])
    with pytest.raises(ValueError, match="coordinate"):
        paths.evaluate([[0.3, 0.4]])
    assert paths.size == 3
    np.testing.assert_array_equal(paths.evaluate([[0.1], [0.2]]), first[:, :2])
    assert paths.evaluate(np.empty((0, 1))).shape == (1, 0)


@pytest.mark.parametrize(
    "line", [each for each in ENGINES.values() if each.floor], ids=lambda each: each.kernel.__name__
)
def test_too_many_points_or_requests_for_the_nugget_are_refused_and_change_nothing(line):
    X, y = made(30)
    nugget = 8.0 * line.floor(30, 4, 2)
    paths = line.paths(line.of(X, y, 1.0), 1.0, nugget, np.random.default_rng(0).standard_normal)
    first = paths.evaluate([[0.1], [0.2]])
    with pytest.raises(NuggetTooSmall):
        paths.evaluate([[0.5], [0.6], [0.7]])
    paths.evaluate([[0.3], [0.4]])
    paths.evaluate([[0.3], [0.4]])  # nothing new
    with pytest.raises(NuggetTooSmall):
        paths.evaluate([[0.5]])
    np.testing.assert_array_equal(paths.evaluate([[0.1], [0.2]]), first)


@one_of_each
def test_other_responses_share_what_depends_on_the_points(line):
    X, y = made(40)
    one = line.of(X, y)
    tiny, huge = (1e-100, 1e100) if line.posterior is MarkovPosterior else (1e-300, 1e290)
    for size in (-2.0, tiny, huge, 0.0):
        other = one.with_responses(size * y)
        np.testing.assert_allclose(other.mean(X), size * one.mean(X), rtol=1e-10)
        shared = "factor" if line.posterior is MaternLinePosterior else "sites"
        assert getattr(other, shared) is getattr(one, shared)
    with pytest.raises(ValueError, match="shape"):
        one.with_responses(y[1:])


@pytest.mark.parametrize("name", ["exponential", "markov32", "markov52"])
def test_the_log_likelihood_is_that_of_the_normal_density(name):
    line = ENGINES[name]
    X, y = made(50)
    expected = stats.multivariate_normal.logpdf(y, cov=line.kernel(0.2)(X) + (0.25 + 0.01) * np.eye(50))
    assert line.of(X, y, 0.5, jitter=0.01).log_likelihood() == pytest.approx(expected, rel=1e-11)
    assert line.of(np.empty((0, 1)), []).log_likelihood() == 0.0


def test_the_engine_is_told_by_kernel_and_dimension():
    assert engine(Exponential(0.1), 1).name == engine(ExponentialL1((0.1,)), 1).name == "line"
    assert engine(Matern32(0.1), 1).name == engine(Matern52((0.1,)), 1).name == "matern-line"
    for kernel, dimension in ((Exponential(0.1), 2), (Matern32(0.1), 2), (RBF(0.1), 1), (ExponentialL1(1.0), 3)):
        assert engine(kernel, dimension).name == "dense"
        assert not on_the_line(kernel, dimension)
        assert not matern_on_the_line(kernel, dimension)
    assert not on_the_line(Matern32(0.1), 1)
    assert not matern_on_the_line(Exponential(0.1), 1)


@one_of_each
def test_other_kernels_are_refused_by_name(line):
    others = {Exponential, Matern32, RBF} - {line.kernel}
    for kernel in others - {Matern32} if line.posterior is not ExponentialPosterior else others:
        with pytest.raises(ValueError, match=r"use .*(Dense|Exponential)Posterior"):
            line.posterior(kernel(1.0), 1.0, [[0.0]], [0.0])


@one_of_each
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ridge": 0.0}, "ridge"),
        ({"jitter": -1.0}, "jitter"),
        ({"X": [[math.nan]]}, "NaN"),
        ({"X": [[0.0, 1.0]]}, "coordinate"),
        ({"y": [math.inf]}, "NaN or infinite"),
        ({"y": [1.0, 2.0]}, "shape"),
        ({"X": [[1e200]]}, "change the unit"),
    ],
)
def test_bad_input_is_refused_without_a_value(line, change, message):
    arguments = {"kernel": line.kernel(1.0), "ridge": 1.0, "X": [[0.123456]], "y": [0.654321]} | change
    with pytest.raises(ValueError, match=message) as error:
        line.posterior(**arguments)
    assert "0.123456" not in str(error.value)
    assert "0.654321" not in str(error.value)


@pytest.mark.parametrize("name", ["exponential", "matern52"])
def test_a_ridge_whose_rounding_nobody_has_bounded_is_refused(name):
    with pytest.raises(ValueError, match="1e-60"):
        ENGINES[name].of([[0.0]], [0.0], 1e-31)


@one_of_each
def test_what_is_not_finite_is_never_returned(line):
    posterior = line.of([[0.0]], [1.0], 1.0, 1.0)
    paths = line.paths(posterior, 1e308, 1e-6, lambda shape: np.full(shape, 1e10))
    with pytest.raises(FactorisationError, match="not finite"):
        paths.evaluate([[0.0]])
    for bad in ({"scale": 0.0}, {"nugget": math.inf}, {"paths": 1.5}):
        arguments = {"scale": 1.0, "nugget": 1e-6, "normal": np.zeros, "paths": 1} | bad
        with pytest.raises(ValueError, match=next(iter(bad))):
            line.paths(posterior, **arguments)


@pytest.mark.parametrize(
    ("name", "n", "times", "most"),
    [("exponential", 10_000, 16, 60), ("matern52", 2000, 8, 24), ("markov32", 4000, 16, 60)],
)
def test_time_is_linear(name, n, times, most):
    # a wrong complexity, not a slow machine: `times` the data may take `most` as long, never times^2
    line, rng = ENGINES[name], np.random.default_rng(0)

    def seconds(n):
        X, y = rng.uniform(0, 1, (n, 1)), rng.normal(size=n)
        start = time.process_time()
        line.paths(line.of(X, y, 1.0, 0.3), 1.0, 1e-6, rng.standard_normal).evaluate(X[:100])
        return time.process_time() - start

    small = min(seconds(n) for _ in range(3))
    assert min(seconds(times * n) for _ in range(2)) <= most * small
