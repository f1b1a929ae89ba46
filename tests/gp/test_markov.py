import math
import time

import numpy as np
import pytest
from scipy import stats

from discretion.gp import RBF, DensePosterior, Exponential, Matern32, Matern52
from discretion.gp.dense import FactorisationError
from discretion.gp.markov import MarkovPaths, MarkovPosterior, chain
from discretion.gp.states import MaternChain, predicted, recurrence, root, solve_right

KERNELS = (Matern32, Matern52)


def made(n: int, seed: int = 0, noise: float = 0.3):
    """Sites with a repeated one, one at 1e-12 and one at 1e-300 from it, and far ones."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, n)
    if n > 6:
        x[1:4] = x[0], x[0] + 1e-12, 40.0
        x[4:6] = 0.0, 1e-300
    return x[:, None], np.sin(7.0 * x) + noise * rng.normal(size=n)


class UnitNormals:
    """Instead of normals, the columns of an identity: the paths are the linear map from normals to values."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0

    def __call__(self, shape: tuple[int, int]):
        block = np.zeros(shape)
        count = shape[1]
        block[self.used : self.used + count] = np.eye(count)
        self.used += count
        assert self.used <= self.total
        return block


def law(posterior: MarkovPosterior, requests, nugget: float = 1e-3, scale: float = 0.7):
    """Mean and covariance of the values of all requests, exactly."""
    p = posterior.chain.order
    points = sum(len(T) for T in requests)
    total = 2 * p * (len(posterior.sites) + points) + points
    normals = UnitNormals(total)
    paths = MarkovPaths(posterior, scale, nugget, normals, paths=total)
    values = np.concatenate([paths.evaluate(T) for T in requests], axis=1)
    mean = np.concatenate([posterior.mean(T) for T in requests])
    return mean, (values - mean).T @ (values - mean)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("n", "ridge", "length_scale"), [(0, 1, 1), (1, 0.5, 0.2), (60, 0.3, 0.2), (60, 20, 3)])
def test_mean_and_covariance_are_those_of_the_dense_posterior(kernel, n, ridge, length_scale):
    X, y = made(n)
    rng = np.random.default_rng(1)
    requests = [rng.uniform(-0.5, 1.5, (25, 1)), X[: n // 2], rng.uniform(0.4, 0.6, (9, 1)), np.array([[50.0], [-3.0]])]
    T = np.concatenate(requests)
    dense = DensePosterior(kernel(length_scale), ridge, X, y)
    mean, covariance = law(MarkovPosterior(kernel(length_scale), ridge, X, y), requests)
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=1e-11)
    same = (np.abs(T - T.T) < 1e-40).astype(float)  # 0 and 1e-300 are one place
    np.testing.assert_allclose(covariance, 0.49 * (dense.covariance(T) + 1e-3 * same), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_close_sites_keep_their_accuracy(kernel, ridge):
    # 300 sites, 1e-12 to 1e-4 apart: the stationary form of Q has no Cholesky factor here
    x = np.cumsum(10.0 ** np.random.default_rng(0).uniform(-12, -4, 300))[:, None]
    y, T = np.cos(40.0 * x[:, 0]), np.linspace(-0.01, 0.02, 20)[:, None]
    dense = DensePosterior(kernel(0.3), ridge, x, y)
    mean, covariance = law(MarkovPosterior(kernel(0.3), ridge, x, y), [T])
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=1e-8)
    np.testing.assert_allclose(covariance, 0.49 * (dense.covariance(T) + 1e-3 * np.eye(20)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_log_likelihood_is_that_of_the_normal_density(kernel):
    X, y = made(50)
    cov = kernel(0.2)(X) + (0.25 + 0.01) * np.eye(50)
    expected = stats.multivariate_normal.logpdf(y, cov=cov)
    assert MarkovPosterior(kernel(0.2), 0.5, X, y, jitter=0.01).log_likelihood() == pytest.approx(expected, rel=1e-11)


def test_no_data_has_likelihood_one():
    assert MarkovPosterior(Matern52(1.0), 1.0, np.empty((0, 1)), np.empty(0)).log_likelihood() == 0.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_paths_have_the_posterior_law(kernel):
    X, y = made(80)
    T = np.random.default_rng(2).uniform(-0.2, 1.2, (30, 1))
    rng = np.random.default_rng(3)
    paths = MarkovPaths(MarkovPosterior(kernel(0.2), 0.3, X, y), 0.8, 1e-2, rng.standard_normal, paths=3000)
    values = np.concatenate([paths.evaluate(T[:10]), paths.evaluate(T[10:])], axis=1)
    dense = DensePosterior(kernel(0.2), 0.3, X, y)
    L = np.linalg.cholesky(dense.covariance(T) + 1e-2 * np.eye(30))
    white = np.linalg.solve(0.8 * L, (values - dense.mean(T)).T)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(white @ white.T / 3000, np.eye(30), atol=0.1)


def test_a_point_keeps_its_value_whatever_is_asked_between():
    X, y = made(30)
    rng = np.random.default_rng(0)
    paths = MarkovPaths(MarkovPosterior(Matern32(0.2), 0.3, X, y), 1.0, 1e-2, rng.standard_normal, paths=2)
    T = np.concatenate([X[:5], [[0.31], [0.77], [9.0]]])
    first = paths.evaluate(T)
    later = paths.evaluate(np.concatenate([rng.uniform(0, 1, (50, 1)), T, -0.0 * T[:1], T[:2]]))
    np.testing.assert_array_equal(later[:, 50:58], first)
    np.testing.assert_array_equal(later[:, 59:], first[:, :2])
    assert paths.size == len(np.unique(T)) + 50


def test_after_an_error_the_paths_are_as_they_were():
    X, y = made(10)
    rng = np.random.default_rng(0)
    broken = False

    def normal(shape):
        return np.full(shape, math.nan) if broken else rng.standard_normal(shape)

    paths = MarkovPaths(MarkovPosterior(Matern32(0.2), 0.3, X, y), 1.0, 1e-2, normal)
    first = paths.evaluate([[0.1], [0.2]])
    broken = True
    with pytest.raises(ValueError, match="finite"):
        paths.evaluate([[0.3]])
    with pytest.raises(ValueError, match="coordinate"):
        paths.evaluate([[0.3, 0.4]])
    assert paths.size == 2
    np.testing.assert_array_equal(paths.evaluate([[0.1], [0.2]]), first)


def test_kernels_without_a_chain_are_refused_by_name():
    assert chain(RBF(1.0)) is None
    assert chain(Matern32((1.0, 2.0))) is None
    assert chain(Matern52(2.0)) == MaternChain(3)
    for kernel in (RBF(1.0), Exponential(1.0)):
        with pytest.raises(ValueError, match="use matern32 or matern52, or ExponentialPosterior"):
            MarkovPosterior(kernel, 1.0, [[0.0]], [0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ridge": 0.0}, "ridge"),
        ({"X": [[math.nan]]}, "NaN"),
        ({"X": [[0.0, 1.0]]}, "coordinate"),
        ({"y": [math.inf]}, "NaN or infinite"),
        ({"y": [1.0, 2.0]}, "shape"),
        ({"X": [[1e200]]}, "change the unit"),
    ],
)
def test_bad_input_is_refused_without_a_value(change, message):
    arguments = {"kernel": Matern32(1.0), "ridge": 1.0, "X": [[0.123456]], "y": [0.654321]} | change
    with pytest.raises(ValueError, match=message) as error:
        MarkovPosterior(**arguments)
    assert "0.123456" not in str(error.value)
    assert "0.654321" not in str(error.value)


def test_responses_too_large_for_double_precision_are_an_error():
    with pytest.raises((FactorisationError, RuntimeWarning)), np.errstate(all="ignore"):
        MarkovPosterior(Matern32(1.0), 1.0, [[0.0], [0.0]], [1.7e308, 1.7e308])


@pytest.mark.parametrize("order", [2, 3])
def test_the_chain_is_stationary_and_its_steps_compose(order):
    one = MaternChain(order)
    u, v = np.array([1e-9, 0.01, 0.4, 3.0, 60.0]), np.array([2e-9, 1.0, 1e-4, 2.0, 0.5])
    A, B = one.transition(u), one.transition(v)
    np.testing.assert_allclose(B @ A, one.transition(u + v), rtol=1e-12, atol=1e-300)
    joined = B @ one.noise(u) @ B.swapaxes(1, 2) + one.noise(v)
    scale = np.sqrt(np.einsum("nii->ni", one.noise(u + v)))
    scale = scale[:, :, None] * scale[:, None, :]  # entries of order u^5 to their own relative accuracy
    np.testing.assert_allclose(joined / scale, one.noise(u + v) / scale, rtol=0, atol=1e-13)
    kept = A @ one.stationary @ A.swapaxes(1, 2) + one.noise(u)
    np.testing.assert_allclose(kept, np.broadcast_to(one.stationary, kept.shape), atol=1e-14)
    back = one.inverse_transition(u[:3]) @ A[:3]
    np.testing.assert_allclose(back, np.broadcast_to(np.eye(order), back.shape), atol=1e-14)
    kernel = KERNELS[order - 2](1.0)
    np.testing.assert_allclose((A @ one.stationary)[:, 0, 0], kernel.profile(u / one.rate), rtol=1e-12, atol=1e-30)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("N", [1, 2, 3, 10, 101])
def test_pieces_give_what_one_step_after_another_gives(order, N):
    rng = np.random.default_rng(N)
    one = MaternChain(order)
    u, J = rng.exponential(0.1, N - 1), rng.exponential(30.0, N)
    A, Q = one.transition(u), one.noise(u)
    V = [one.stationary]
    for i in range(N - 1):
        e = np.zeros((order, order))
        e[0, 0] = J[i]
        V.append(A[i] @ np.linalg.inv(np.linalg.inv(V[-1]) + e) @ A[i].T + Q[i])
    np.testing.assert_allclose(predicted(one.stationary, A, Q, J), V, rtol=1e-9, atol=1e-12)


def test_small_linear_algebra():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(20, 3, 3))
    M = M @ M.swapaxes(1, 2)
    np.testing.assert_allclose(root(M) @ root(M).swapaxes(1, 2), M, rtol=1e-9, atol=1e-12)
    B = rng.normal(size=(20, 2, 3))
    np.testing.assert_allclose(solve_right(B, M) @ M, B, atol=1e-8)
    T, b = rng.normal(size=(7, 3, 3)), rng.normal(size=(7, 3, 2))
    x = [b[0]]
    for i in range(1, 7):
        x.append(T[i] @ x[-1] + b[i])
    np.testing.assert_allclose(recurrence(T, b), x)


def test_time_is_linear():
    # a wrong complexity, not a slow machine: 16 times the data may take 60 times as long, never 256
    rng = np.random.default_rng(0)

    def seconds(n: int) -> float:
        X, y = rng.uniform(0, 1, (n, 1)), rng.normal(size=n)
        start = time.process_time()
        MarkovPaths(MarkovPosterior(Matern32(0.3), 1.0, X, y), 1.0, 1e-6, rng.standard_normal).evaluate(X[:1000])
        return time.process_time() - start

    small = min(seconds(4_000) for _ in range(3))
    assert min(seconds(64_000) for _ in range(2)) <= 60 * small
