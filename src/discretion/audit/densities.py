"""Densities of what an attacker sees, fitted to shadow releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log1p, logit, logsumexp

from discretion.gp.domain import Array

_FLOOR = 1e-3  # smallest standard deviation of a component
_POINTS = 256  # equally likely points that stand for the sample while the latent mixture is fitted


@dataclass(frozen=True)
class LogMixture:
    """Density of a positive number whose logarithm is a mixture of two Gaussians; values below 1e-8 count as 1e-8."""

    weights: Array
    means: Array
    deviations: Array

    @classmethod
    def fit(cls, values: Array) -> LogMixture:
        """Expectation maximisation from the halves of the sample: 200 rounds at most, variances at least 1e-6."""
        x = np.log(np.maximum(values, 1e-8), dtype=np.float64)
        weights, means, variances = _halves(x, 1e-6)
        last = -math.inf
        for _ in range(200):
            logs = np.log(weights) + _log_normal(x[:, None], means, variances)
            totals = np.asarray(logsumexp(logs, axis=1))
            shares = np.exp(logs - totals[:, None])
            sizes = np.maximum(shares.sum(axis=0), 1e-12)
            weights, means = sizes / sizes.sum(), x @ shares / sizes
            variances = np.maximum((shares * (x[:, None] - means) ** 2).sum(axis=0) / sizes, 1e-6)
            level = float(totals.mean())
            if abs(level - last) < 1e-6:
                break
            last = level
        return cls(weights, means, np.sqrt(variances))

    def log_density(self, values: Array) -> Array:
        """log p(v) = log p(log v) - log v."""
        x = np.log(np.maximum(values, 1e-8))
        logs = np.log(self.weights) + _log_normal(x[:, None], self.means, self.deviations**2)
        return np.asarray(logsumexp(logs, axis=1)) - x


@dataclass(frozen=True)
class LatentMixture:
    """Density of f = c tanh(phi / 2) + psi: phi a mixture of two Gaussians, psi Gaussian noise, c a fixed scale.

    A posterior mean learned from labels -1 and 1 lies between them, crowded at the ends; the noise of the path comes on
    top. The latent variable t = tanh(phi / 2) is integrated out on 40 Gauss-Legendre nodes whose weights are made to
    sum to 1, so that this is a density whatever the parameters.

    Source: Maciazek 2026, Appendix C.
    """

    scale: float
    shares: Array  # of the nodes, sum 1
    noise: float

    @classmethod
    def fit(cls, values: Array) -> LatentMixture:
        """Maximum likelihood over weight, two means, two deviations and the noise, by L-BFGS from three starts.

        The sample is represented by 256 equally likely points of its empirical distribution.
        """
        points = np.quantile(values, (np.arange(_POINTS) + 0.5) / _POINTS)
        scale = max(1.0, float(np.quantile(np.abs(values), 0.995)))
        x = points / scale
        latent = 2.0 * np.arctanh(np.clip(x, -1.0 + 1e-6, 1.0 - 1e-6))
        spread = float(np.std(x))
        starts = []
        for share in (0.05, 0.3, 0.9):  # of the variance that is noise
            weights, means, variances = _halves(latent, 1e-2)
            noise = max(math.sqrt(share) * spread, 2.0 * _FLOOR)
            deviations = np.sqrt(np.maximum(variances * (1.0 - share), 4e-2))
            starts.append([logit(weights[0]), *means, *_inverse_softplus(deviations), *_inverse_softplus([noise])])
        bounds = [(-8, 8), (-15, 15), (-15, 15), (-9, 12), (-9, 12), (-9, 5)]
        fits = [
            minimize(_negative_likelihood, start, (x,), "L-BFGS-B", True, bounds=bounds, options={"maxiter": 150})
            for start in starts
        ]
        best = min(fits, key=lambda fit: fit.fun).x
        shares, _, noise = _mixture(best)
        return cls(scale, shares, noise)

    def log_density(self, values: Array) -> Array:
        """log p(f), shape of `values`."""
        x = values / self.scale
        logs = _log_normal(x[:, None], _NODES, self.noise**2)
        top = logs.max(axis=1)
        return np.log(np.exp(logs - top[:, None]) @ self.shares + 1e-300) + top - math.log(self.scale)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_LATENT = 2.0 * np.arctanh(_NODES)
_LOG_WEIGHTS = np.log(_WEIGHTS * 2.0) - log1p(-(_NODES**2))  # dphi = 2 dt / (1 - t^2)


def _mixture(theta: Array) -> tuple[Array, Array, float]:
    """Shares of the nodes, shape (40,); their derivatives in the first five parameters, (5, 40); the noise."""
    weight, noise = expit(theta[0]), float(np.logaddexp(0.0, theta[5]) + _FLOOR)
    deviations = np.logaddexp(0.0, theta[3:5]) + _FLOOR
    away = (_LATENT - theta[1:3, None]) / deviations[:, None]
    logs = _LOG_WEIGHTS - 0.5 * away**2 - np.log(deviations)[:, None] + np.log([[weight], [1.0 - weight]])
    parts = np.exp(logs - logs.max())
    total = parts.sum()
    parts /= total
    slopes = np.stack(
        [
            parts[0] * (1.0 - weight) - parts[1] * weight,
            *(parts * away / deviations[:, None]),
            *(parts * (away**2 - 1.0) / deviations[:, None] * expit(theta[3:5])[:, None]),
        ]
    )
    shares = parts.sum(axis=0)
    return shares, slopes - slopes.sum(axis=1)[:, None] * shares, noise


def _negative_likelihood(theta: Array, x: Array) -> tuple[float, Array]:
    """Mean negative log-likelihood and its gradient."""
    shares, slopes, noise = _mixture(theta)
    squares = ((x[:, None] - _NODES) / noise) ** 2
    near = np.exp(-0.5 * squares) / noise
    density = near @ shares + 1e-300
    pull = near / density[:, None]
    gradient = np.empty(6)
    gradient[:5] = slopes @ pull.mean(axis=0)
    gradient[5] = float(((pull * (squares - 1.0)) @ shares).mean()) / noise * expit(theta[5])
    return -float(np.log(density).mean()), -gradient


def _halves(x: Array, floor: float) -> tuple[Array, Array, Array]:
    """Weights, means and variances of the lower and the upper half."""
    low, high = np.array_split(np.sort(x), 2)
    return (
        np.array([0.5, 0.5]),
        np.array([low.mean(), high.mean()]),
        np.maximum([low.var(), high.var()], floor),
    )


def _log_normal(x: Array, mean: Array | float, variance: Array | float) -> Array:
    return -0.5 * ((x - mean) ** 2 / variance + np.log(2.0 * math.pi * np.asarray(variance)))


def _inverse_softplus(deviations: object) -> Array:
    return np.log(np.expm1(np.maximum(np.asarray(deviations, dtype=np.float64) - _FLOOR, 1e-4)))
