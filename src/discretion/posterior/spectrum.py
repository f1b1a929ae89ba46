"""Which kernel to release a sum with, given a public prior: water-filling over frequencies.

For a stationary prior and uniformly distributed records the Fourier coefficients of a kernel sum are uncorrelated, so
the error of its best linear decoder is a sum over frequencies, convex in the spectrum of the kernel. Privacy fixes the
noise s and k(0) = 1, that is, the sum of the spectrum: a budget to be spent on frequencies, and the best way to spend
it has a closed form up to one number. It is the matrix mechanism in function space.

All of it concerns a torus around the domain and is public; statements and proofs: ``docs/proofs/kernel-spectrum.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import minimize_scalar

from discretion.gp import RBF, Box, Exponential, ExponentialL1, Kernel, Matern32, Matern52
from discretion.gp.fields import Grid

__all__ = ["KernelChoice", "SpectralPrior", "choose_kernel", "water_filling"]

Floats = NDArray[np.float64]

_MOST_MODES = 1 << 22
FAMILIES: tuple[Callable[[float], Kernel], ...] = (RBF, Matern52, Matern32, Exponential, ExponentialL1)
"""Kernel families that `choose_kernel` compares."""


def water_filling(gains: Floats, loads: Floats, noise: float) -> Floats:
    """The weights w >= 0 with sum 1 that maximise sum_q g_q^2 w_q / (b_q w_q + noise), shape of ``gains``.

        w_q = max(0, sqrt(noise) (theta g_q - sqrt(noise)) / b_q),     theta such that they sum to 1.

    Parameters
    ----------
    gains : array
        g_q >= 0, not all zero.
    loads : array
        b_q > 0.
    noise : float
        s^2 > 0.

    Raises
    ------
    ValueError
        For numbers out of range.

    Notes
    -----
    Proof: ``docs/proofs/kernel-spectrum.md``, Theorem 2. With the g_q in decreasing order the first r are filled for
    one r, found by a cumulative sum, so theta is exact.
    """
    g, b = np.broadcast_arrays(np.asarray(gains, dtype=np.float64), np.asarray(loads, dtype=np.float64))
    if not (np.isfinite(g).all() and (g >= 0).all() and (g > 0).any()):
        raise ValueError("gains must be finite, none negative and not all zero.")
    if not (np.isfinite(b).all() and (b > 0).all() and math.isfinite(noise) and noise > 0):
        raise ValueError("loads and noise must be positive and finite, every one.")
    s = math.sqrt(noise)
    order = np.argsort(-g, axis=None)
    first, inverse = g.ravel()[order], 1.0 / b.ravel()[order]
    # with the first r filled: s (theta sum g / b - s sum 1 / b) = 1
    theta = (1.0 / s + s * np.cumsum(inverse)) / np.maximum(np.cumsum(first * inverse), np.finfo(float).tiny)
    filled = np.flatnonzero((theta * first > s) & (first > 0))
    level = theta[filled[-1]]
    w = np.maximum(0.0, s * (level * g - s) / b)
    return w / w.sum()


@dataclass(frozen=True, eq=False)
class SpectralPrior:
    """A stationary public prior and design, as seen frequency by frequency on a torus around the domain.

        f ~ GP(centre, amplitude^2 prior),   records uniform on the domain,   y_i = f(x_i) + e_i,  e_i of variance v.

    The torus has sides (1 + padding) times those of the domain and the same number of records to the unit of volume,
    N = n times the ratio of the volumes.

    Parameters
    ----------
    kernel : Kernel
        The prior's kernel, in the kernel's coordinates.
    domain : Box
        In the kernel's coordinates; the unit cube for ``coordinates="unit"``.
    n : int
        Records on the domain.
    noise_variance : float
        v >= 0.
    amplitude : float
        Prior standard deviation of f.
    modes : int
        Frequencies along each axis.
    padding : float
        At least the range of the correlation over the side of the domain; 1 by default.

    Raises
    ------
    ValueError
        For a parameter out of range.
    """

    kernel: Kernel
    domain: Box
    n: int
    noise_variance: float
    amplitude: float = 1.0
    modes: int = 64
    padding: float = 1.0

    def __post_init__(self) -> None:
        if self.n < 1 or self.modes < 2 or self.modes**self.domain.dimension > _MOST_MODES:
            raise ValueError(f"n must be at least 1, and there must be 2 modes to an axis and at most {_MOST_MODES}.")
        numbers = (self.noise_variance, self.amplitude, self.padding)
        if not all(math.isfinite(v) and v >= 0 for v in numbers) or self.amplitude == 0:
            raise ValueError("noise_variance and padding must be 0 or more and the amplitude positive, all finite.")

    @property
    def records(self) -> float:
        """N, the number of records on the torus."""
        return self.n * (1.0 + self.padding) ** self.domain.dimension

    def spectrum(self, kernel: Kernel) -> Floats:
        """Weights w_q >= 0 of a unit-diagonal kernel on the torus, sum 1, shape (modes,) * d in the order of the FFT.

        Fourier coefficients of k at wrapped lags; what is negative there (a torus too small) is set to 0.
        """
        lags = []
        for low, high in zip(self.domain.lower, self.domain.upper, strict=True):
            step = (high - low) * (1.0 + self.padding) / self.modes
            lags.append(np.minimum(np.arange(self.modes), self.modes - np.arange(self.modes)) * step)
        values = kernel(Grid(tuple(lags)).points, np.zeros((1, len(lags)))).reshape([self.modes] * len(lags))
        weights = np.maximum(np.real(np.asarray(fft.fftn(values))), 0.0)
        return weights / weights.sum()

    def frequencies(self) -> tuple[Floats, ...]:
        """Angular frequencies along each axis, in the order of the FFT."""
        sides = np.subtract(self.domain.upper, self.domain.lower) * (1.0 + self.padding)
        return tuple(2.0 * math.pi * np.fft.fftfreq(self.modes, side / self.modes) for side in sides)

    def error(self, weights: Floats, scale: float) -> float:
        """Mean squared error of the decoded map over the prior variance, in (0, 1], for a kernel with these weights.

            1 - sum_q N^2 p_q^2 w_q / (b_q w_q + s^2) / sum_q p_q,     b_q = N (amplitude^2 + v) + N (N - 1) p_q,

        p_q the variances of the Fourier coefficients of f. Proof: ``docs/proofs/kernel-spectrum.md``, Theorem 1.
        """
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be positive and finite; got {scale!r}.")
        p, b, N = *self._law(), self.records
        return 1.0 - float(np.sum((N * p) ** 2 * weights / (b * weights + scale**2)) / p.sum())

    def best(self, scale: float) -> Floats:
        """The weights with the least error over all stationary kernels with k(0) = 1, in the order of the FFT."""
        p, b = self._law()
        return water_filling(self.records * p, b, scale**2)

    def profile(self, weights: Floats) -> Floats:
        """The kernel with these weights at the lags 0, h, 2 h, ... along the first axis, h = side / modes."""
        along = weights.sum(axis=tuple(range(1, weights.ndim)))
        return np.real(np.asarray(fft.fft(along)))

    def _law(self) -> tuple[Floats, Floats]:
        p = self.amplitude**2 * self.spectrum(self.kernel)
        N = self.records
        return p, N * (self.amplitude**2 + self.noise_variance) + N * (N - 1.0) * p


@dataclass(frozen=True, eq=False)
class KernelChoice:
    """The kernel to release with, and how near it comes to the best of all stationary kernels.

    Attributes
    ----------
    kernel : Kernel
    error : float
        Mean squared error of the decoded map over the prior variance, with this kernel.
    least_error : float
        The same for the water-filling spectrum: no stationary kernel does better.
    compared : dict
        Best length scale and error of each family.
    """

    kernel: Kernel
    error: float
    least_error: float
    compared: dict[str, Any]


def choose_kernel(
    prior: SpectralPrior, scale: float, families: Sequence[Callable[[float], Kernel]] = FAMILIES
) -> KernelChoice:
    """The kernel, of the given families and any length scale, with the least error of the decoded map.

    Computed from public numbers alone, in milliseconds: a planner's first choice.

    Parameters
    ----------
    prior : SpectralPrior
    scale : float
        Noise scale s.
    families : sequence of callables
        Each makes a kernel from its length scale.
    """
    sides = np.subtract(prior.domain.upper, prior.domain.lower)
    low, high = math.log(2.0 * float(sides.min()) / prior.modes), math.log(2.0 * float(sides.max()))
    found: list[tuple[float, Kernel]] = []
    for family in families:

        def error(log_length: float, family: Callable[[float], Kernel] = family) -> float:
            return prior.error(prior.spectrum(family(math.exp(log_length))), scale)

        grid = np.linspace(low, high, 17)
        start = int(np.argmin([error(x) for x in grid]))
        ends = grid[max(0, start - 1)], grid[min(len(grid) - 1, start + 1)]
        result: Any = minimize_scalar(error, bounds=ends, method="bounded", options={"xatol": 1e-3})
        found.append((float(result.fun), family(math.exp(float(result.x)))))
    least, kernel = min(found, key=lambda pair: pair[0])
    compared = {k.name: {"length_scale": k.length_scale, "error": value} for value, k in found}
    return KernelChoice(kernel, least, prior.error(prior.best(scale), scale), compared)
