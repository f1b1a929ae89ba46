import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from discretion.gp import dense, factor
from discretion.gp.dense import DensePosterior, FactorisationError, cholesky, ridge_floor
from discretion.gp.factor import Block, appended, storage
from discretion.gp.kernels import RBF, Diagonal, Exponential, Matern32, Matern52, RationalQuadratic

PLANTED = 0.7231859


def problem(n=60, m=25, seed=0, d=2):
    rng = np.random.default_rng(seed)
    return rng.random((n, d)), rng.uniform(-1, 1, n), rng.random((m, d))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Exponential(0.4), sk.Matern(0.4, nu=0.5)),
        (Matern32(0.4), sk.Matern(0.4, nu=1.5)),
        (Matern52((0.4, 0.9)), sk.Matern((0.4, 0.9), nu=2.5)),
        (RBF(0.4), sk.RBF(0.4)),
        (RationalQuadratic(0.4, 1.5), sk.RationalQuadratic(0.4, 1.5)),
    ],
)
def test_agrees_with_scikit_learn(ours, theirs):
    X, y, T = problem()
    ridge = 0.6
    posterior = DensePosterior(ours, ridge, X, y)
    peer = GaussianProcessRegressor(theirs, alpha=ridge**2, optimizer=None).fit(X, y)
    mean, covariance = peer.predict(T, return_cov=True)
    np.testing.assert_allclose(posterior.mean(T), mean, atol=1e-9)
    np.testing.assert_allclose(posterior.covariance(T), covariance, atol=1e-9)


def test_three_records_at_one_point():
    posterior = DensePosterior(RBF(0.3), 1.0, [[0.0]] * 3, [0.0, 1.0, 2.0])
    assert posterior.mean([[0.0]])[0] == pytest.approx(0.75, rel=1e-14)
    assert posterior.covariance([[0.0]])[0, 0] == pytest.approx(0.25, rel=1e-14)


def test_no_records_is_the_prior():
    posterior = DensePosterior(Matern52(0.5), 1.0, np.empty((0, 2)), [])
    T = problem()[2]
    assert (posterior.mean(T) == 0).all()
    np.testing.assert_array_equal(posterior.covariance(T), Matern52(0.5)(T))


def test_no_test_points():
    X, y, _ = problem()
    posterior = DensePosterior(RBF(0.5), 1.0, X, y)
    assert posterior.mean(np.empty((0, 2))).shape == (0,)
    assert posterior.covariance(np.empty((0, 2))).shape == (0, 0)


def test_covariance_is_symmetric_and_tiles_of_the_mean_fit_together(monkeypatch):
    X, y, _ = problem()
    T = np.random.default_rng(1).random((600, 2))  # more than one tile of the mirror
    posterior = DensePosterior(Exponential(0.5), 0.5, X, y)
    covariance = posterior.covariance(T)
    assert np.array_equal(covariance, covariance.T)
    K = Exponential(0.5)
    A = K(X) + 0.25 * np.eye(len(X))
    np.testing.assert_allclose(covariance, K(T) - K(T, X) @ np.linalg.solve(A, K(X, T)), atol=1e-12)
    whole = posterior.mean(T)
    np.testing.assert_allclose(whole, K(T, X) @ np.linalg.solve(A, y), atol=1e-12)
    monkeypatch.setattr(dense, "_TILE", 7 * len(X))
    np.testing.assert_allclose(posterior.mean(T), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rows", [1, 7, 60, 64])
def test_blocks_of_any_size_are_one_factor(rows, monkeypatch):
    X, y, T = problem()
    whole = DensePosterior(Matern32(0.4), 0.3, X, y)
    monkeypatch.setattr(factor, "BLOCK", rows)
    cut = DensePosterior(Matern32(0.4), 0.3, X, y)
    assert len(cut.blocks) == -(-60 // rows)
    assert sum(block.rows.size for block in cut.blocks) == storage(60)
    for name in ("whitened", "weights"):
        np.testing.assert_allclose(getattr(cut, name), getattr(whole, name), rtol=0, atol=1e-12)
    np.testing.assert_allclose(cut.mean(T), whole.mean(T), rtol=0, atol=1e-13)
    np.testing.assert_allclose(cut.covariance(T), whole.covariance(T), rtol=0, atol=1e-14)


def test_many_small_blocks_are_merged_into_few():
    L = np.tril(np.random.default_rng(0).random((40, 40)))
    blocks = ()
    for row in range(40):
        blocks = appended(blocks, Block(np.asfortranarray(L[row : row + 1, : row + 1])))
    assert len(blocks) <= 6
    rebuilt = np.zeros((40, 40))
    for block in blocks:
        rebuilt[block.start : block.stop, : block.stop] = block.rows
    np.testing.assert_array_equal(np.tril(rebuilt), L)


def test_other_responses_share_the_factor():
    X, y, T = problem()
    one = DensePosterior(RBF(0.4), 0.5, X, y)
    before = one.mean(T)
    other = one.with_responses(3.0 * y)
    assert other.blocks is one.blocks
    np.testing.assert_allclose(other.mean(T), 3.0 * before, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(one.mean(T), before)
    for bad in (y[1:], np.full(len(y), math.nan)):
        with pytest.raises(ValueError, match="y "):
            one.with_responses(bad)


def test_jitter_is_part_of_the_ridge():
    X, y, T = problem()
    with_jitter = DensePosterior(RBF(0.4), 0.3, X, y, jitter=0.07)
    plain = DensePosterior(RBF(0.4), 0.4, X, y)
    np.testing.assert_allclose(with_jitter.mean(T), plain.mean(T), rtol=0, atol=1e-12)
    np.testing.assert_allclose(with_jitter.covariance(T), plain.covariance(T), rtol=0, atol=1e-13)
    assert with_jitter.effective_ridge == pytest.approx(0.4, rel=1e-15)


def test_permuting_the_records_changes_nothing_but_rounding():
    X, y, T = problem()
    order = np.random.default_rng(4).permutation(len(X))
    a = DensePosterior(Matern32(0.4), 0.5, X, y)
    b = DensePosterior(Matern32(0.4), 0.5, X[order], y[order])
    np.testing.assert_allclose(a.mean(T), b.mean(T), atol=1e-13)
    np.testing.assert_allclose(a.covariance(T), b.covariance(T), atol=1e-13)


def test_too_small_a_ridge_is_refused_before_the_points_are_looked_at():
    n = 50
    smallest = math.sqrt(ridge_floor(n))
    unseen = np.full((n, 1), math.nan)
    with pytest.raises(ValueError, match="is too small for 50 points") as error:
        DensePosterior(RBF(0.3), smallest * 0.99, unseen, np.zeros(n))
    assert f"{ridge_floor(n):.3g}" in str(error.value)
    with pytest.raises(ValueError, match="NaN"):
        DensePosterior(RBF(0.3), smallest * 1.01, unseen, np.zeros(n))
    with pytest.raises(ValueError, match="NaN"):
        DensePosterior(RBF(0.3), smallest * 0.1, unseen, np.zeros(n), jitter=ridge_floor(n))


@pytest.mark.parametrize("n", [1, 2, 7, 40, 150, 400])
@pytest.mark.parametrize("k", [RBF(10.0), Matern52(100.0), Exponential(1e8), RationalQuadratic(50.0, 2.0)])
def test_at_the_smallest_ridge_the_factorisation_succeeds_for_nasty_points(n, k):
    ridge = math.sqrt(ridge_floor(n)) * (1 + 1e-12)
    rng = np.random.default_rng(n)
    for X in (np.zeros((n, 1)), np.linspace(0, 1, n)[:, None], rng.integers(0, 3, (n, 1)) * 1e-9):
        posterior = DensePosterior(k, ridge, X, np.ones(n))
        assert np.isfinite(posterior.mean(X)).all()


def test_a_failed_factorisation_is_an_error_and_not_repeated():
    A = np.asfortranarray([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(FactorisationError, match="broke down"):
        cholesky(A)
    with pytest.raises(FactorisationError, match="broke down"):
        cholesky(np.asfortranarray([[math.nan]]))
    assert issubclass(FactorisationError, FloatingPointError)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[PLANTED], [math.nan]], [0.0, 1.0]),
        ([[PLANTED], [math.inf]], [0.0, 1.0]),
        ([[0.0], [1.0]], [PLANTED, math.nan]),
        ([[0.0], [1.0]], [PLANTED, math.inf]),
        ([[0.0], [1.0]], [PLANTED]),
        ([[0.0], [1.0]], [[PLANTED], [1.0]]),
        ([[0.0], [1.0]], [str(PLANTED), "x"]),
        ([0.0, PLANTED], [0.0, 1.0]),
    ],
)
def test_bad_records_are_refused_without_being_shown(X, y):
    with pytest.raises(ValueError, match=r"X|y") as error:
        DensePosterior(RBF(0.3), 1.0, X, y)
    assert "7231" not in str(error.value)


@pytest.mark.parametrize("ridge", [0.0, -1.0, math.nan, math.inf])
def test_bad_ridges_and_jitters_are_refused(ridge):
    with pytest.raises(ValueError, match="ridge"):
        DensePosterior(RBF(0.3), ridge, [[0.0]], [0.0])
    with pytest.raises(ValueError, match="jitter"):
        DensePosterior(RBF(0.3), 1.0, [[0.0]], [0.0], jitter=ridge if ridge else -1e-300)


def test_bad_test_points_are_refused():
    posterior = DensePosterior(RBF(0.3), 1.0, [[0.0]], [0.0])
    for T in ([[math.nan]], [[0.0, 1.0]], [0.0]):
        with pytest.raises(ValueError, match="T "):
            posterior.mean(T)
        with pytest.raises(ValueError, match="T "):
            posterior.covariance(T)


def test_single_precision_input_is_computed_in_double():
    X, y, T = problem()
    X, y, T = X.astype(np.float32), y.astype(np.float32), T.astype(np.float32)
    a = DensePosterior(RBF(0.3), 0.5, X, y)
    b = DensePosterior(RBF(0.3), 0.5, X.astype(float), y.astype(float))
    assert a.mean(T).dtype == a.covariance(T).dtype == np.float64
    np.testing.assert_array_equal(a.mean(T), b.mean(T.astype(float)))


def test_later_changes_of_the_callers_arrays_do_not_matter():
    X, y, T = problem()
    posterior = DensePosterior(RBF(0.3), 0.5, X, y)
    before = posterior.mean(T)
    X[:], y[:] = 0, 0
    np.testing.assert_array_equal(posterior.mean(T), before)


def test_shown_as_text_it_holds_constants_only():
    text = repr(DensePosterior(RBF(0.3), 0.5, [[PLANTED]], [PLANTED]))
    assert text == "DensePosterior(RBF(length_scale=0.3), ridge=0.5, jitter=0.0, n=1)"


def test_mean_and_covariance_against_fifty_digits():
    # dense grid, duplicates: kernel matrices of rank far below their size
    X = np.array([[0.0], [0.0], [0.1], [0.125], [0.125], [0.9], [1.0]])
    y = np.array([1.0, -1.0, 0.5, 1.0, 1.0, -1.0, 0.25])
    T = np.array([[0.0], [0.11], [0.125], [0.5]])
    with mpmath.workdps(50):
        half = mpmath.mpf(1) / 2

        def exact(P, Q):
            return mpmath.matrix([[mpmath.exp(-((mpmath.mpf(p) - mpmath.mpf(q)) ** 2) * half) for q in Q] for p in P])

        A = exact(X[:, 0], X[:, 0]) + mpmath.mpf(0.01) ** 2 * mpmath.eye(7)
        cross = exact(X[:, 0], T[:, 0])
        mean = cross.T * mpmath.lu_solve(A, mpmath.matrix(y))
        solved = A**-1 * cross
        covariance = exact(T[:, 0], T[:, 0]) - cross.T * solved
        mean = np.array(mean.tolist(), float)[:, 0]
        covariance = np.array(covariance.tolist(), float)
    posterior = DensePosterior(RBF(1.0), 0.01, X, y)
    np.testing.assert_allclose(posterior.mean(T), mean, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance(T), covariance, rtol=0, atol=1e-12)


def test_diagonal_kernel_shrinks_averages():
    posterior = DensePosterior(Diagonal(), 1.0, [[0.0], [0.0], [1.0]], [1.0, 1.0, -1.0])
    np.testing.assert_allclose(posterior.mean([[0.0], [1.0], [2.0]]), [2 / 3, -1 / 2, 0], rtol=1e-14)
    np.testing.assert_allclose(posterior.covariance([[0.0], [1.0], [2.0]]), np.diag([1 / 3, 1 / 2, 1]), atol=1e-15)


def test_memory_stays_near_the_arrays_that_are_needed():
    n, m = 1500, 1200
    X, y, T = problem(n, m)
    tracemalloc.start()
    posterior = DensePosterior(Matern52(0.3), 2.0, X, y)
    posterior.mean(T)
    posterior.covariance(T)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * 8 * (n * n + n * m + m * m)
    assert peak <= 1.05 * 8 * (storage(n) + n * m + m * m) + 10 * 2**20
