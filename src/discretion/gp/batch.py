"""Exact posteriors at one point for many small data sets at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from discretion.gp.domain import Array
from discretion.gp.kernels import Exponential, Kernel

_BLOCK = 1 << 21  # entries of the Gram matrices held at once, 16 MB


def posteriors_at(
    kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, point: npt.ArrayLike
) -> tuple[Array, Array]:
    """Posterior mean and variance at one point for each of B data sets of n records: two arrays of shape (B,).

    Parameters: `kernel`; `ridge` > 0, in units of the prior standard deviation; X (B, n, d), or (B, n) on the line;
    y (B, n); `point` (d,) or a number.  Raises ValueError when shapes do not fit or entries are not finite.

    On the line the exponential kernel is filtered from both sides, about 10 n vector operations of length B; other
    kernels take a batched Cholesky factorisation, B n^3 / 3 flops.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    at = np.atleast_1d(np.asarray(point, dtype=np.float64))
    if X.ndim == 2:
        X = X[:, :, None]
    if X.ndim != 3 or y.shape != X.shape[:2] or at.shape != X.shape[2:]:
        raise ValueError("X must have shape (data sets, n, coordinates), y (data sets, n), point (coordinates,).")
    if not (0 < ridge < 1e100 and np.isfinite(X).all() and np.isfinite(y).all() and np.isfinite(at).all()):
        raise ValueError("ridge must be positive and finite; X, y and point must hold no NaN and nothing infinite.")
    if type(kernel) is Exponential and X.shape[2] == 1 and np.size(kernel.length_scale) == 1:
        scale = float(np.ravel(kernel.length_scale)[0])
        return _filtered(ridge, (X[:, :, 0] - at[0]) / scale, y)
    return _factored(kernel, ridge, X, y, at)


def _filtered(ridge: float, signed: Array, y: Array) -> tuple[Array, Array]:
    """Exponential kernel; `signed` are the scaled places relative to the point.

    From each side a filter walks towards the point: seen from there the value has mean m and variance V, first 0 and 1.
    A record of precision J = ridge^-2 gives P = V / (1 + J V), m + P J (y - m); a gap u gives V = 1 - e^-2u (1 - P).
    The two sides are independent given the value, so their precisions add, less the prior's that both contain:
    1/v = 1/V + 1/W - 1, mean = v (m/V + l/W).
    """
    order = np.argsort(signed, axis=1)
    places, responses = np.take_along_axis(signed, order, 1).T.copy(), np.take_along_axis(y, order, 1).T.copy()
    left = _side(ridge, places, responses, places <= 0.0)
    right = _side(ridge, -places[::-1], responses[::-1], places[::-1] > 0.0)
    variance = 1.0 / (1.0 / left[1] + 1.0 / right[1] - 1.0)
    return variance * (left[0] / left[1] + right[0] / right[1]), variance


def _side(ridge: float, places: Array, responses: Array, here: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """Mean and variance at 0 given the records marked `here`, the first ones of places (n, B) in ascending order."""
    J, count = ridge**-2.0, places.shape[1]
    m, V = np.zeros(count), np.ones(count)
    ends = np.minimum(np.concatenate([places[1:], np.zeros((1, count))]), 0.0)
    counts = here.sum(axis=0)
    some, last = int(counts.min(initial=len(places))), int(counts.max(initial=0))  # below `some` all have a record
    for i in range(last):
        weight = J * V
        if i >= some:
            weight *= here[i]
        gain = weight / (1.0 + weight)
        decay = np.exp(np.minimum(places[i], 0.0) - ends[i])
        m = decay * (m + gain * (responses[i] - m))
        V = 1.0 - decay * decay * (1.0 - V * (1.0 - gain))
    return m, V


def _factored(kernel: Kernel, ridge: float, X: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """Batched Cholesky factorisations, a block of data sets at a time."""
    count, n, dimension = X.shape
    means, variances = np.empty(count), np.empty(count)
    block = max(1, _BLOCK // max(1, n * n))
    scales = np.broadcast_to(np.asarray(kernel.length_scale, dtype=np.float64), (dimension,))
    for start in range(0, count, block):
        here, there = X[start : start + block] / scales, at / scales
        gram = kernel.profile(np.sqrt(((here[:, :, None, :] - here[:, None, :, :]) ** 2).sum(-1)))
        np.einsum("bii->bi", gram)[...] += ridge**2
        cross = kernel.profile(np.sqrt(((here - there) ** 2).sum(-1)))
        both = np.stack([y[start : start + block], cross], axis=2)
        white = np.linalg.solve(np.linalg.cholesky(gram), both)
        means[start : start + block] = np.einsum("bi,bi->b", white[:, :, 0], white[:, :, 1])
        variances[start : start + block] = 1.0 - np.einsum("bi,bi->b", white[:, :, 1], white[:, :, 1])
    return means, variances
