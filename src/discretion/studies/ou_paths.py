"""Posteriors under the exponential kernel on the line, many data sets at once.

Grid and records of every data set are sorted together; a filter walks along them and a smoother back, one vector
operation over all data sets a step. Everything is exact: A = exp(-gap / l) is the whole law of the chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Merged:
    """Sorted places (T, W) of W data sets with the grid: whether each is a record, and which grid node it is."""

    places: Floats
    record: NDArray[np.bool_]
    response: Floats  # 0 at the grid
    node: NDArray[np.intp]  # rank (m, W) of each grid node

    @classmethod
    def of(cls, grid: Floats, x: Floats, y: Floats) -> Merged:
        """Grid (m,), covariates and responses (W, n)."""
        W, m = len(x), len(grid)
        everything = np.concatenate([np.broadcast_to(grid, (W, m)), x], axis=1)
        order = np.argsort(everything, axis=1, kind="stable")
        responses = np.concatenate([np.zeros((W, m)), y], axis=1)
        ranks = np.argsort(order, axis=1)[:, :m]
        return cls(
            np.ascontiguousarray(np.take_along_axis(everything, order, 1).T),
            np.ascontiguousarray((order >= m).T),
            np.ascontiguousarray(np.take_along_axis(responses, order, 1).T),
            np.ascontiguousarray(ranks.T),
        )


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The posteriors of `Merged` data sets: way back ``x_t = gain x_{t+1} + rest``, at all places (T, W).

    With P the filtered variance, V = 1 - A^2 (1 - P) that of the next place predicted from it: gain = P A / V, and the
    variance of what is left is P (1 - A^2) / V.
    """

    merged: Merged
    gain: Floats  # (T - 1, W)
    left: Floats  # standard deviation (T, W)
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, merged: Merged, length_scale: float, ridge: float) -> Smoothed:
        J, (T, W) = ridge**-2.0, merged.places.shape
        A = np.exp(np.diff(merged.places, axis=0) / -length_scale)
        weight = np.where(merged.record, J, 0.0)
        mean, P, V = np.zeros((T, W)), np.empty((T, W)), np.ones(W)
        predicted, m = np.empty((T - 1, W)), np.zeros(W)
        for t in range(T):
            P[t] = V / (1.0 + weight[t] * V)
            mean[t] = m + P[t] * weight[t] * (merged.response[t] - m)
            if t < T - 1:
                m = A[t] * mean[t]
                V = 1.0 - A[t] * A[t] * (1.0 - P[t])
                predicted[t] = V
        gain = P[:-1] * A / predicted
        left = np.empty((T, W))
        left[:-1] = P[:-1] * (1.0 - A * A) / predicted
        left[-1] = P[-1]
        variance = P
        for t in range(T - 2, -1, -1):
            mean[t] += gain[t] * (mean[t + 1] - A[t] * mean[t])
            variance[t] = left[t] + gain[t] ** 2 * variance[t + 1]
        return cls(merged, gain, np.sqrt(np.maximum(left, 0.0)), mean, variance)

    def at_nodes(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (T, W, ...) at the grid's nodes (m, W, ...)."""
        return np.take_along_axis(
            values, self.merged.node.reshape(*self.merged.node.shape, *[1] * (values.ndim - 2)), 0
        )

    def effective_dimension(self, ridge: float) -> Floats:
        """tr K (K + r^2)^{-1} of each data set (W,): the posterior variances at its records over r^2."""
        return np.where(self.merged.record, self.variance, 0.0).sum(axis=0) / ridge**2

    def centred(self, paths: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Posterior paths less their mean at the nodes, (m, W, paths), in single precision."""
        T, W = self.merged.places.shape
        drawn = rng.standard_normal((T, W, paths), dtype=np.float32)
        drawn *= self.left.astype(np.float32)[:, :, None]
        gain = self.gain.astype(np.float32)[:, :, None]
        for t in range(T - 2, -1, -1):
            drawn[t] += gain[t] * drawn[t + 1]
        return self.at_nodes(drawn)
