"""Do sampled paths have the exact posterior law, however they are asked for?"""

from __future__ import annotations

import numpy as np

from discretion.gp import DensePosterior, Matern52, SamplePaths


def largest_deviation(paths: int = 4_000, seed: int = 0) -> float:
    """Largest deviation of empirical means and covariances from the exact ones, in standard errors.

    Twenty requests in two batches: new points, points equal to training points, and points asked for twice.
    """
    rng = np.random.default_rng(seed)
    kernel, ridge, scale, nugget = Matern52(0.4), 0.7, 1.3, 1e-6
    X, y = rng.uniform(size=(12, 2)), rng.uniform(-1, 1, size=12)
    posterior = DensePosterior(kernel, ridge, X, y)
    first = np.concatenate([rng.uniform(size=(7, 2)), X[:2]])
    second = np.concatenate([rng.uniform(size=(6, 2)), X[2:3], first[[0, 0, 8]], X[2:3]])
    sampler = SamplePaths(posterior, scale, nugget, rng.standard_normal, paths=paths)
    values = np.concatenate([sampler.evaluate(first), sampler.evaluate(second)], axis=1)
    points = np.concatenate([first, second])

    K, C = kernel(X), kernel(points, X)
    A = K + ridge**2 * np.eye(len(X))
    same = (points[:, None] == points[None]).all(axis=2)
    mean = C @ np.linalg.solve(A, y)
    covariance = scale**2 * (kernel(points) - C @ np.linalg.solve(A, C.T) + nugget * same)
    if not np.array_equal(values[:, same[0]], np.repeat(values[:, :1], same[0].sum(), axis=1)):
        return np.inf
    variance = np.diag(covariance)
    errors = (values.mean(axis=0) - mean) / np.sqrt(variance / paths)
    centred = values - mean
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / paths)
    return float(max(np.abs(errors).max(), np.abs((centred.T @ centred / paths - covariance) / spread).max()))
