"""A Gaussian process fitted to what was released: gradients with known noise. It costs nothing, and learns the kernel.

The released s_t = grad f(theta_t) + bias + sigma_t g_t are public, so every function of them is. With the block matrix
K = v [grad_x grad_z' k(theta_s, theta_t)] + diag(sigma_t^2 I),

    log likelihood   -(s' K^-1 s + log det K)/2,
    mean gradient at x    v [grad_x grad_z' k(x, theta_t)] K^-1 s,
    mean of f(x), up to a constant    v [grad_z' k(x, theta_t)] K^-1 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from discretion.bayesopt.design import Bounds
from discretion.bayesopt.kernels import GradientKernel, Polynomial, Stationary

__all__ = ["ReleasedGradients"]

Floats = NDArray[np.float64]

_FITTED = 300  # of the latest released numbers, to which a kernel is fitted
_SPREAD = math.log(20.0)  # how far length scales may move, either way


@dataclass(frozen=True, eq=False)
class ReleasedGradients:
    """A Gaussian process that saw noisy gradients, all of them public.

    Args:
        thetas: where, (T, d).
        gradients: as released, (T, d).
        noise: their standard deviations, (T,), or (T, d) where coordinates differ.
        kernel: with derivatives.
        variance: v, the signal variance, in squared units of the loss.
    """

    thetas: Floats
    gradients: Floats
    noise: Floats
    kernel: GradientKernel
    variance: float = 1.0

    def _covariance(self, X: Floats) -> Floats:
        """v grad_x grad_z' k(x_i, theta_t), shape (n d, T d)."""
        blocks = self.variance * self.kernel.cross(X, self.thetas)
        n, T, d, _ = blocks.shape
        return blocks.transpose(0, 2, 1, 3).reshape(n * d, T * d)

    @cached_property
    def _solved(self) -> tuple[Floats, float]:
        """K^-1 s and the log likelihood, but for its constant."""
        K = self._covariance(self.thetas)
        least = 1e-10 * float(np.trace(K)) / len(K)
        noise = self.noise if self.noise.ndim == 2 else self.noise[:, None]
        K[np.diag_indices(len(K))] += np.broadcast_to(noise**2, self.thetas.shape).ravel() + least
        s = self.gradients.ravel()
        factor = cho_factor(K, lower=True)
        solved = cho_solve(factor, s)
        return solved, -0.5 * float(s @ solved) - float(np.log(np.diag(factor[0])).sum())

    @property
    def log_likelihood(self) -> float:
        """Of the released gradients, up to a constant."""
        return self._solved[1]

    def gradient(self, x: Floats) -> Floats:
        """The mean of the gradient at x, shape (d,), given all releases: smoother than the release at x alone."""
        return self._covariance(x[None]) @ self._solved[0]

    def value(self, x: Floats) -> float:
        """The mean of f at x, up to a constant."""
        slopes = self.kernel.gradient_sum(self.thetas, x[None], np.ones((len(self.thetas), 1)))
        return self.variance * float(slopes.ravel() @ self._solved[0])

    def scaled(self, factor: float, variance: float) -> Self:
        """The same with all length scales multiplied, and another variance."""
        kernel = self.kernel
        if isinstance(kernel, Stationary):
            l = kernel.kernel.length_scale
            longer = tuple(factor * each for each in l) if isinstance(l, tuple) else factor * l
            kernel = replace(kernel, kernel=replace(kernel.kernel, length_scale=longer))
        elif isinstance(kernel, Polynomial):
            l = kernel.length_scale
            longer = tuple(factor * each for each in l) if isinstance(l, tuple) else factor * l
            kernel = replace(kernel, length_scale=longer)
        return replace(self, kernel=kernel, variance=variance)

    def matched(self) -> Self:
        """The same with the variance at which gradients are as large as the releases less their noise."""
        squares = float(np.mean(self.gradients**2))
        signal = max(squares - float(np.mean(self.noise**2)), 0.01 * squares, 1e-300)
        prior = float(np.trace(self.kernel.prior(self.thetas[-1]))) / self.thetas.shape[1]
        return replace(self, variance=signal / max(prior, 1e-300))

    def fitted(self) -> Self:
        """Length scales (one common factor) and variance of the largest marginal likelihood of the latest gradients.

        Deterministic, so that a run that is taken up again finds the same.
        """
        latest = slice(-max(2, _FITTED // self.thetas.shape[1]), None)
        some = replace(self, thetas=self.thetas[latest], gradients=self.gradients[latest], noise=self.noise[latest])
        start = self.matched().variance

        def loss(x: Floats) -> float:
            factor, scale = np.clip(x, -_SPREAD, _SPREAD)
            beyond = float(np.abs(x - np.clip(x, -_SPREAD, _SPREAD)).sum())
            try:
                trial = some.scaled(math.exp(factor), start * math.exp(2.0 * factor + scale))
                return beyond - trial.log_likelihood
            except LinAlgError:
                return math.inf

        first = min(((f, 0.0) for f in (-1.0, 0.0, 1.0)), key=lambda x: loss(np.array(x)))
        found = minimize(
            loss, np.array(first), method="Nelder-Mead", options={"maxiter": 60, "xatol": 0.02, "fatol": 1e-3}
        )
        factor, scale = np.clip(found.x, -_SPREAD, _SPREAD)
        return self.scaled(math.exp(factor), start * math.exp(2.0 * factor + scale))

    def minimum(self, bounds: Bounds, start: Floats | None = None) -> Floats:
        """A minimiser of the mean of f in the box, by L-BFGS-B from the visited points: where to jump, for nothing.

        With a `start`, shape (d,), the local one below it.
        """

        def descend(start: Floats) -> tuple[float, Floats]:
            found = minimize(
                lambda x: (self.value(x), self.gradient(x)),
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack(bounds, axis=1),
            )
            x = np.clip(found.x, *bounds)
            return self.value(x), x

        if start is not None:
            return descend(np.clip(start, *bounds))[1]
        lowest = sorted(range(len(self.thetas)), key=lambda t: self.value(self.thetas[t]))[:3]
        return min((descend(np.clip(self.thetas[t], *bounds)) for t in lowest), key=lambda pair: pair[0])[1]
