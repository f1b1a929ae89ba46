import numpy as np
import pytest
from tests.gp.line_makers import law

from discretion.gp import RBF, DensePosterior, Exponential, Matern32, Matern52
from discretion.gp.dense import FactorisationError
from discretion.gp.markov import MarkovPaths, MarkovPosterior, chain
from discretion.gp.states import MaternChain, predicted, recurrence, root, solve_right

KERNELS = (Matern32, Matern52)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_close_sites_keep_their_accuracy(kernel, ridge):
    # 300 sites, 1e-12 to 1e-4 apart: the stationary form of Q has no Cholesky factor here
    x = np.cumsum(10.0 ** np.random.default_rng(0).uniform(-12, -4, 300))[:, None]
    y, T = np.cos(40.0 * x[:, 0]), np.linspace(-0.01, 0.02, 20)[:, None]
    dense = DensePosterior(kernel(0.3), ridge, x, y)
    mean, C = law(MarkovPaths, MarkovPosterior(kernel(0.3), ridge, x, y), [T])
    np.testing.assert_allclose(mean, dense.mean(T), rtol=0, atol=1e-8)
    np.testing.assert_allclose(C @ C.T, 0.49 * (dense.covariance(T) + 1e-3 * np.eye(20)), rtol=0, atol=1e-9)


def test_kernels_without_a_chain_are_refused_by_name():
    assert chain(RBF(1.0)) is None
    assert chain(Matern32((1.0, 2.0))) is None
    assert chain(Matern52(2.0)) == MaternChain(3)
    for kernel in (RBF(1.0), Exponential(1.0)):
        with pytest.raises(ValueError, match="use matern32 or matern52, or ExponentialPosterior"):
            MarkovPosterior(kernel, 1.0, [[0.0]], [0.0])


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
