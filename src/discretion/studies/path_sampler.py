"""Posterior paths at the same nodes for many data sets: one factorisation of the nodes serves them all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

from discretion.gp import Kernel

Floats = NDArray[np.float64]


class PathSampler:
    """Exact posterior paths at fixed nodes T by conditioning joint prior draws (Matheron's rule).

    With g ~ N(0, k + nugget) at T and X jointly and e ~ N(0, (r^2 - nugget) I), g_X + e has covariance
    A = K + r^2 I and

        mu_T = k_X(T)^T A^{-1} y,        g_T - k_X(T)^T A^{-1} (g_X + e)  ~  N(0, k_D(T, T) + nugget I),

    so that mu_T plus ``scale`` times the latter is a path with the constant nugget. The nodes are factorised once; one
    draw of g serves all ridges.
    """

    def __init__(self, kernel: Kernel, nodes: Floats, nugget: float) -> None:
        self.kernel, self.nodes, self.nugget = kernel, nodes, nugget
        self.root = _root(kernel(nodes), nugget)

    def paths(
        self, X: Floats, Y: Floats, ridges: tuple[float, ...], count: int, rng: np.random.Generator
    ) -> Iterator[tuple[Floats, Floats]]:
        """For each ridge the means (q, m) of responses Y (n, q) and ``count`` centred paths (count, m)."""
        cross, gram = self.kernel(self.nodes, X), self.kernel(X)
        weights = solve_triangular(self.root, cross, lower=True)
        z = rng.standard_normal((len(self.nodes), count))
        at_nodes = self.root @ z
        at_records = weights.T @ z
        at_records += _root(gram - weights.T @ weights, self.nugget) @ rng.standard_normal((len(X), count))
        e = rng.standard_normal((len(X), count))
        for r in ridges:
            noisy = at_records + np.sqrt(r * r - self.nugget) * e
            solved = cross @ cho_solve((_root(gram, r * r), True), np.hstack([Y, noisy]))
            yield solved[:, : Y.shape[1]].T, (at_nodes - solved[:, Y.shape[1] :]).T


def _root(gram: Floats, diagonal: float) -> Floats:
    return cholesky(gram + diagonal * np.eye(len(gram)), lower=True, overwrite_a=True, check_finite=False)
