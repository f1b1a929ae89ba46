r"""Exact divergence of one neighbouring pair of releases: the oracle the bounds are tested against.

These functions read records. They are for tests, for audits on simulated data and for studies; nothing they
return may be published about private data.

Everything about a pair lives in the span of two functions: with the core's posterior kernel C, ``c = C(x,
.)`` and ``c' = C(x', .)``. The divergence over all finite sets of test points at once is a closed form in
five numbers, attained by any set that contains x and x'. All functions take batches: leading axes
broadcast.

Proof in ``docs/proofs/renyi-covariance-and-mean.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from discretion.gp.kernels import Kernel
from discretion.posterior.divergence import log1p_less
from discretion.posterior.sensitivity import Array


@dataclass(frozen=True)
class Pair:
    """Two records seen from the core they are added to; arrays of one batch shape.

    ``v = C(x, x)``, ``v_other = C(x', x')``, ``w = C(x, x')``; ``residual = y - m(x)`` and ``residual_other
    = y' - m(x')`` with m the core's posterior mean; ``ridge`` is r.
    """

    v: Array
    v_other: Array
    w: Array
    residual: Array
    residual_other: Array
    ridge: Array

    @property
    def _factor(self) -> tuple[Array, Array, Array]:
        """Rows ``f = (f0, 0)`` and ``f' = (g0, g1)`` with ``f f = v``, ``f f' = w``, ``f' f' = v'``."""
        f0 = np.sqrt(self.v)
        g0 = self.w / f0
        return f0, g0, np.sqrt(np.maximum(self.v_other - g0 * g0, 0.0))

    @property
    def _shift(self) -> tuple[Array, Array]:
        """Coordinates of the difference of the means, ``a c - a' c'``, in the same basis."""
        q = np.square(self.ridge)
        a, a_other = self.residual / (q + self.v), self.residual_other / (q + self.v_other)
        f0, g0, g1 = self._factor
        return a * f0 - a_other * g0, -a_other * g1

    @property
    def mean_distance(self) -> Array:
        """Distance of the two posterior means in the Hilbert space of C; the mean sensitivity bounds it."""
        return np.hypot(*self._shift)

    def covariance_divergence(self, excess: ArrayLike) -> Array:
        """Part of the divergence due to the covariances; infinite beyond the pair's pole."""
        e = np.asarray(excess, dtype=np.float64)
        alpha, q = 1.0 + e, np.square(self.ridge)
        p, p_other = self.v / (q + self.v), self.v_other / (q + self.v_other)
        cross = np.square(self.w) / ((q + self.v) * (q + self.v_other))
        determinant = self._determinant(e)
        below = alpha * p_other < 1.0
        left = np.where(below, 1.0 - alpha * p_other, 1.0)
        # the logarithms less their linear parts, which cancel
        near = (
            log1p_less(e * p)
            + e * log1p_less(-p)
            + log1p_less(np.where(below, -alpha * p_other, 0.0))
            - alpha * log1p_less(-p_other)
            + np.log1p(alpha * e * cross / ((1.0 + e * p) * left))
        )
        inside = determinant > 0.0
        far = np.log(np.where(inside, determinant, 1.0)) + e * np.log1p(-p) - alpha * np.log1p(-p_other)
        return np.where(inside, -np.where(below, near, far) / (2.0 * e), np.inf)

    def mean_divergence(self, excess: ArrayLike, scale: ArrayLike) -> Array:
        """Part of the divergence due to the means; infinite beyond the pair's pole."""
        e = np.asarray(excess, dtype=np.float64)
        alpha, q = 1.0 + e, np.square(self.ridge)
        f0, g0, g1 = self._factor
        up, down = e / (q + self.v), alpha / (q + self.v_other)
        b00, b01, b11 = 1.0 + up * f0 * f0 - down * g0 * g0, -down * g0 * g1, 1.0 - down * g1 * g1
        d0, d1 = self._shift
        determinant = self._determinant(e)
        inside = determinant > 0.0
        quadratic = d0 * d0 * b11 - 2.0 * d0 * d1 * b01 + d1 * d1 * b00
        value = alpha / (2.0 * np.square(scale)) * quadratic / np.where(inside, determinant, 1.0)
        return np.where(inside, np.maximum(value, 0.0), np.inf)

    def divergence(self, excess: ArrayLike, scale: ArrayLike) -> Array:
        """Renyi divergence of order ``1 + excess`` of the first release from the second, whole path."""
        return self.covariance_divergence(excess) + self.mean_divergence(excess, scale)

    def _determinant(self, e: Array) -> Array:
        """Determinant of B; the divergence is finite where it is positive."""
        alpha, q = 1.0 + e, np.square(self.ridge)
        p, p_other = self.v / (q + self.v), self.v_other / (q + self.v_other)
        cross = np.square(self.w) / ((q + self.v) * (q + self.v_other))
        return (1.0 + e * p) * (1.0 - alpha * p_other) + alpha * e * cross


def gram(kernel: Kernel, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
    """Kernel matrices ``(..., n, m)`` of ``X (..., n, d)`` and ``Z (..., m, d)``; Z = X if omitted."""
    X = np.asarray(X, dtype=np.float64)
    Z = X if Z is None else np.asarray(Z, dtype=np.float64)
    difference = X[..., :, None, :] - Z[..., None, :, :]
    # Kernels here are stationary, and not all of them a function of the Euclidean distance.
    d = X.shape[-1]
    return kernel(difference.reshape(-1, d), np.zeros((1, d))).reshape(difference.shape[:-1])


def pair_from_gram(
    matrix: ArrayLike, core_y: ArrayLike, response: ArrayLike, other_response: ArrayLike, ridge: ArrayLike
) -> Pair:
    """The pair from the kernel matrix ``(..., n+1, n+1)`` of the core points, x and x', in this order.

    ``core_y (..., n-1)``; ``response``, ``other_response``, ``ridge`` of the batch shape.
    """
    K, r = np.asarray(matrix, dtype=np.float64), np.asarray(ridge, dtype=np.float64)
    m = K.shape[-1] - 2
    A = K[..., :m, :m] + np.square(r)[..., None, None] * np.eye(m)
    cross = K[..., :m, m:]
    weights = np.linalg.solve(A, cross)
    C = K[..., m:, m:] - np.swapaxes(cross, -1, -2) @ weights
    mean = np.sum(weights * np.asarray(core_y, dtype=np.float64)[..., :, None], axis=-2)
    return Pair(
        v=C[..., 0, 0],
        v_other=C[..., 1, 1],
        w=C[..., 0, 1],
        residual=np.asarray(response) - mean[..., 0],
        residual_other=np.asarray(other_response) - mean[..., 1],
        ridge=r,
    )


def exact_divergence(
    kernel: Kernel,
    core_X: ArrayLike,
    core_y: ArrayLike,
    record: tuple[ArrayLike, ArrayLike],
    other: tuple[ArrayLike, ArrayLike],
    *,
    ridge: float,
    scale: float,
    order: float,
) -> float:
    """Exact Renyi divergence between the releases of two neighbouring data sets, over the whole path.

    Parameters
    ----------
    core_X, core_y : arrays (n-1, d) and (n-1,)
        The records both data sets share; may be empty.
    record, other : (x (d,), y)
        The record of the first data set and its replacement in the second.
    ridge, scale : float > 0
    order : float > 1

    Returns
    -------
    float
        Infinite beyond the pair's pole.

    Raises
    ------
    ValueError
        If ``order <= 1`` or a parameter is not positive.
    """
    if not (order > 1.0 and ridge > 0.0 and scale > 0.0):
        raise ValueError(f"order must exceed 1, ridge and scale must be positive; got {order}, {ridge}, {scale}.")
    x, x_other = np.atleast_1d(np.asarray(record[0])), np.atleast_1d(np.asarray(other[0]))
    points = np.vstack([np.asarray(core_X, dtype=np.float64).reshape(-1, x.size), x, x_other])
    pair = pair_from_gram(gram(kernel, points), core_y, np.asarray(record[1]), np.asarray(other[1]), ridge)
    return float(pair.divergence(order - 1.0, scale))


def release_law(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    test: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: ArrayLike,
    prior_noise: ArrayLike = 0.0,
) -> tuple[Array, Array]:
    """Mean ``(..., t)`` and covariance ``(..., t, t)`` of the path at the test points ``(..., t, d)``."""
    K = gram(kernel, X)
    cross = gram(kernel, X, test)
    prior = gram(kernel, test)
    q = np.square(np.asarray(ridge, dtype=np.float64))[..., None, None]
    weights = np.linalg.solve(K + q * np.eye(K.shape[-1]), cross)
    mean = np.sum(weights * np.asarray(y, dtype=np.float64)[..., :, None], axis=-2)
    posterior = prior - np.swapaxes(cross, -1, -2) @ weights
    variance, noise = (np.square(np.asarray(s, dtype=np.float64))[..., None, None] for s in (scale, prior_noise))
    return mean, variance * posterior + noise * prior


def gaussian_renyi(
    mean: Array, covariance: Array, mean_other: Array, covariance_other: Array, excess: ArrayLike
) -> Array:
    r"""Renyi divergence of order ``alpha = 1 + excess`` between two Gaussians, the textbook formula.

    .. math:: \tfrac\alpha2\,\delta^\top S_\alpha^{-1}\delta
              - \frac{\log\bigl(|S_\alpha|\,/\,(|S_1|^{1-\alpha}|S_2|^{\alpha})\bigr)}{2(\alpha-1)},
              \qquad S_\alpha = \alpha S_2 + (1-\alpha) S_1

    Infinite where ``S_alpha`` is not positive definite. Batches: ``mean (..., t)``, ``covariance (..., t,
    t)``, excess of the batch shape. Source: Gil, Alajaji and Linder 2013.
    """
    e = np.asarray(excess, dtype=np.float64)
    alpha = 1.0 + e
    # whiten by S_2: only the spectrum of S_2^{-1/2} S_1 S_2^{-T/2} matters
    factor = np.linalg.cholesky(covariance_other)
    half = np.linalg.solve(factor, covariance)
    white = np.linalg.solve(factor, np.swapaxes(half, -1, -2))
    ratios, vectors = np.linalg.eigh(0.5 * (white + np.swapaxes(white, -1, -2)))
    shift = np.linalg.solve(factor, (mean - mean_other)[..., None])
    along = np.sum(np.swapaxes(vectors, -1, -2) @ shift, axis=-1)
    mixed = alpha[..., None] - e[..., None] * ratios
    inside = np.all((mixed > 0.0) & (ratios > 0.0), axis=-1)
    mixed = np.where(inside[..., None], mixed, 1.0)
    logs = np.log(mixed) + e[..., None] * np.log(np.where(ratios > 0.0, ratios, 1.0))
    value = 0.5 * alpha * np.sum(along**2 / mixed, axis=-1) - np.sum(logs, axis=-1) / (2.0 * e)
    return np.where(inside, value, np.inf)
