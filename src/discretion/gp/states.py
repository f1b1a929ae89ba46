"""Stationary Markov processes on the line with few components: their law, and the recursions along sorted places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy.special import gammainc

from discretion.gp.domain import Array

LAPACK: Any = linalg.lapack


@dataclass(frozen=True)
class MaternChain:
    """The state (f, f', ..., f^(p-1)) of the Matern process of smoothness p - 1/2, `order` p = 2 or 3.

    In the time u = sqrt(2p - 1) x / length_scale, f solves (d/du + 1)^p f = white noise of intensity q. A state at u
    later is A(u) times the state plus Gaussian noise of covariance Q(u), with F the companion matrix, N = F + I:

        A(u) = e^-u sum_{j<p} (u N)^j / j!,     Q(u) = q int_0^u a(s) a(s)^T ds,     a(s) = last column of A(s).

    Entries of Q are sums of incomplete gamma functions, accurate however small u is. (The usual Pinf - A Pinf A^T
    cancels, and its Cholesky factor is NaN where places lie close.)

    Source: Sarkka and Solin 2019, *Applied Stochastic Differential Equations*, Section 12.3.
    """

    order: int

    @property
    def rate(self) -> float:
        """Time per scaled distance."""
        return math.sqrt(2 * self.order - 1)

    @cached_property
    def stationary(self) -> Array:
        """Pinf, the covariance of the state at one place: (p, p); its first entry is 1."""
        smooth = np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]])
        return smooth if self.order == 3 else np.eye(2)

    def transition(self, u: npt.ArrayLike) -> Array:
        """A(u), shape (..., p, p), u >= 0; 0 at infinity."""
        u = np.asarray(u, dtype=np.float64)
        return self._polynomial(np.exp(-u), np.where(np.isfinite(u), u, 0.0))

    def inverse_transition(self, u: npt.ArrayLike) -> Array:
        """A(u)^-1 = A(-u), shape (..., p, p); meant for u of at most a few units."""
        u = np.asarray(u, dtype=np.float64)
        return self._polynomial(np.exp(u), -u)

    def noise(self, u: npt.ArrayLike) -> Array:
        """Q(u), shape (..., p, p), u >= 0; Pinf at infinity."""
        u = np.asarray(u, dtype=np.float64)
        k = np.arange(2 * self.order - 1)
        weights = [math.factorial(j) / 2.0 ** (j + 1) for j in k]
        moments = gammainc(k + 1.0, 2.0 * u[..., None]) * weights  # int_0^u s^k e^-2s ds
        intensity = 16.0 / 3.0 if self.order == 3 else 4.0
        return intensity * np.einsum("ijk,...k->...ij", self._squares, moments)

    @cached_property
    def reversal(self) -> Array:
        """Signs of the derivatives when time runs backwards, (p,)."""
        return (-1.0) ** np.arange(self.order, dtype=np.float64)

    @cached_property
    def _powers(self) -> Array:
        """N^j / j!, shape (p, p, p)."""
        p = self.order
        nilpotent = np.eye(p) + np.eye(p, k=1)
        nilpotent[-1] -= [math.comb(p, k) for k in range(p)]
        return np.array([np.linalg.matrix_power(nilpotent, j) / math.factorial(j) for j in range(p)])

    @cached_property
    def _squares(self) -> Array:
        """Coefficients of e^2s a(s) a(s)^T in powers of s, shape (p, p, 2p - 1)."""
        a = self._powers[:, :, -1].T
        return np.array([[np.convolve(one, other) for other in a] for one in a])

    def _polynomial(self, decay: Array, u: Array) -> Array:
        result = decay[..., None, None] * self._powers[0]
        for power in self._powers[1:]:
            decay = decay * u
            result = result + decay[..., None, None] * power
        return result


def product(A: Array, B: Array) -> Array:
    """A B for stacks of small matrices."""
    return np.einsum("...ij,...jk->...ik", A, B)


def congruence(A: Array, M: Array) -> Array:
    """A M A^T for stacks of small matrices, exactly symmetric."""
    result = np.einsum("...ij,...kj->...ik", product(A, M), A)
    return 0.5 * (result + np.swapaxes(result, -1, -2))


def root(M: Array) -> Array:
    """Lower triangular L with L L^T = M for a stack of positive semidefinite M; pivots lost to rounding are 0."""
    L = np.zeros_like(M)
    for j in range(M.shape[-1]):
        row = L[..., j, :j]
        pivot = np.sqrt(np.maximum(M[..., j, j] - np.einsum("...k,...k->...", row, row), 0.0))
        L[..., j, j] = pivot
        below = M[..., j + 1 :, j] - np.einsum("...ik,...k->...i", L[..., j + 1 :, :j], row)
        L[..., j + 1 :, j] = np.divide(below, pivot[..., None], out=np.zeros_like(below), where=pivot[..., None] > 0)
    return L


def solve_right(B: Array, M: Array) -> Array:
    """B M^-1 for stacks of small matrices, M positive definite; M is scaled to unit diagonal first."""
    scale = 1.0 / np.sqrt(np.einsum("...ii->...i", M))[..., None, :]
    L = root(M * scale * np.swapaxes(scale, -1, -2))
    X = B * scale
    for j in range(M.shape[-1]):
        X[..., j] -= np.einsum("...ik,...k->...i", X[..., :j], L[..., j, :j])
        X[..., j] /= L[..., j, j, None]
    for j in reversed(range(M.shape[-1])):
        X[..., j] -= np.einsum("...ik,...k->...i", X[..., j + 1 :], L[..., j + 1 :, j])
        X[..., j] /= L[..., j, j, None]
    return X * scale


def recurrence(T: Array, b: Array) -> Array:
    """x_0 = b_0, x_i = T_i x_{i-1} + b_i, shape (N, p, k), for T (N, p, p), whose first entry plays no part, and b.

    It is one triangular system with 2p - 1 bands, solved by LAPACK.
    """
    N, p, k = b.shape
    if N == 0:
        return b.copy()
    band = np.zeros((2 * p, N * p), order="F")
    for i in range(p):
        for j in range(p):
            band[p + i - j, j : (N - 1) * p : p] = -T[1:, i, j]  # row (n, i), column (n - 1, j)
    x, _ = LAPACK.dtbtrs(band, np.asfortranarray(b.reshape(N * p, k)), uplo="L", diag="U")  # unit diagonal: info is 0
    return x.reshape(N, p, k)


def observed(V: Array, J: Array | float) -> Array:
    """(V^-1 + J e e^T)^-1: the covariance V of a state after its first component was seen with precision J >= 0."""
    seen = 1.0 + np.asarray(J) * V[..., 0, 0]
    P = V - (J / seen)[..., None, None] * V[..., :, 0, None] * V[..., 0, None, :]
    P[..., 0, :] = P[..., :, 0] = V[..., 0, :] / seen[..., None]  # without cancellation
    return P


def predicted(start: Array, A: Array, Q: Array, J: Array) -> Array:
    """Covariances of the states before each is observed: V_{i+1} = A_i (V_i^-1 + J_i e e^T)^-1 A_i^T + Q_i.

    V_0 = `start` (p, p); A, Q (N - 1, p, p); J (N,). Returns (N, p, p).

    Each step is a map V -> C + B (V^-1 + H)^-1 B^T, and such maps compose. The steps are cut into about sqrt(N) pieces,
    all pieces composed at once, followed one after another, and then all their steps taken at once: 3 sqrt(N) passes
    over arrays of sqrt(N) small matrices.

    Source: Sarkka and Garcia-Fernandez 2021, *Temporal Parallelization of Bayesian Smoothers*, Lemma 8, in the form of
    one rank-one observation a step.
    """
    N, p = len(J), start.shape[-1]
    length = max(1, math.isqrt(N))
    pieces = -(-N // length)

    def cut(M: Array, neutral: Array) -> Array:
        """(length, pieces, ...): entry [l, c] is step c length + l."""
        padded = np.empty((pieces * length, *neutral.shape))
        padded[: len(M)], padded[len(M) :] = M, neutral
        return np.ascontiguousarray(np.swapaxes(padded.reshape(pieces, length, *neutral.shape), 0, 1))

    A, Q, J = cut(A, np.eye(p)), cut(Q, np.zeros((p, p))), cut(J, np.zeros(()))
    B, C, H = np.tile(np.eye(p), (pieces, 1, 1)), np.zeros((pieces, p, p)), np.zeros((pieces, p, p))
    for a, q, j in zip(A, Q, J, strict=True):
        seen = 1.0 + j * C[:, 0, 0]
        first = B[:, 0, :]
        H = H + (j / seen)[:, None, None] * first[:, :, None] * first[:, None, :]
        passed = B - (j / seen)[:, None, None] * C[:, :, 0, None] * first[:, None, :]
        passed[:, 0, :] = first / seen[:, None]
        B, C = product(a, passed), congruence(a, observed(C, j)) + q

    V = np.empty((length, pieces, p, p))
    for c in range(pieces):
        V[0, c] = start
        L = root(start)
        inner = np.asarray(np.linalg.inv(np.eye(p) + congruence(L.T, H[c])), dtype=np.float64)
        start = C[c] + congruence(B[c] @ L, inner)
    for l in range(length - 1):
        V[l + 1] = congruence(A[l], observed(V[l], J[l])) + Q[l]
    return np.swapaxes(V, 0, 1).reshape(-1, p, p)[:N]
