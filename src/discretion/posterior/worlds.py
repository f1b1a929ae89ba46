"""Simulated public worlds: data sets drawn from a declared prior, with the target each of them hides.

Nothing here reads a record. Decoders are trained on such worlds, planners forecast with them, and studies score
releases on them. A world is n records (covariates and responses) and the target field on a public grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs
from scipy.signal import lfilter
from scipy.special import expit

from discretion.gp import Box, Kernel

__all__ = ["BlobWorlds", "GaussianProcessWorlds", "OUExcursionWorlds", "WorldSimulator", "Worlds"]

Floats = NDArray[np.float64]

_ATTEMPTS = 10_000  # per accepted path, as in the published experiment
MOST_NODES = 4_096
_BLOCK = 1 << 23  # float64 entries of one temporary array, 64 MB


@dataclass(frozen=True, eq=False)
class Worlds:
    """A batch of N simulated data sets of n records each.

    Attributes
    ----------
    covariates : array (N, n, d)
    responses : array (N, n)
    targets : array (N, m)
        The noise-free field on the simulator's grid, first coordinate slowest.
    """

    covariates: Floats
    responses: Floats
    targets: Floats

    def __post_init__(self) -> None:
        shapes = self.covariates.shape, self.responses.shape, self.targets.shape
        if tuple(map(len, shapes)) != (3, 2, 2) or shapes[0][:2] != shapes[1] or shapes[2][0] != shapes[1][0]:
            raise ValueError(f"Worlds need arrays (N, n, d), (N, n) and (N, m) that agree; got {shapes}.")

    def __len__(self) -> int:
        return len(self.responses)

    def __getitem__(self, index: slice | NDArray[np.integer]) -> Worlds:
        """The worlds selected by a slice or an array of indices."""
        return Worlds(self.covariates[index], self.responses[index], self.targets[index])


class WorldSimulator(Protocol):
    """A public prior over data sets that can be simulated."""

    @property
    def domain(self) -> Box:
        """Box of the covariates."""
        ...

    @property
    def grid(self) -> tuple[int, ...]:
        """Nodes along each coordinate of the target's grid, edges included (`Box.grid`)."""
        ...

    def simulate(self, count: int, rng: np.random.Generator) -> Worlds:
        """``count`` independent worlds."""
        ...


def _check(n: int, noise: float, grid: tuple[int, ...]) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n!r}.")
    if not 0 <= noise < 1:
        raise ValueError(f"noise is the half width M_xi of the uniform noise, in [0, 1); got {noise!r}.")
    if not grid or min(grid) < 2:
        raise ValueError(f"The grid needs at least 2 nodes along each coordinate; got {grid!r}.")


def _with_noise(signal: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """y = (1 - M_xi) f + Unif[-M_xi, M_xi], which lies in [-1, 1] as f does."""
    return (1.0 - noise) * signal + rng.uniform(-noise, noise, signal.shape)


@dataclass(frozen=True)
class OUExcursionWorlds:
    """One-dimensional excursion worlds of Maciazek 2026, Section 5: Ornstein-Uhlenbeck paths on [0, 1].

    The path has covariance exp(-|x - z| / length_scale) at the grid's nodes and at the n uniform covariates jointly
    (exactly, no interpolation). With f its values and F its largest absolute value on all those points,

        y_i = (1 - noise) f(x_i) / F + Unif[-noise, noise],          target = f / F,          |y_i| <= 1.

    Parameters
    ----------
    n : int
        Records per world.
    noise : float
        M_xi in [0, 1); the noise-to-signal ratio is M_xi / (1 - M_xi).
    nodes : int
        Nodes of the grid on [0, 1].
    length_scale : float
    reject : bool
        Keep only paths whose set {f >= 0} has a volume in [0.1, 0.9] (trapezoid weights), at most 13 components and a
        mean component width of at least 0.05. About one path in four passes; the rule favours large sets (mean volume
        0.61).

    Raises
    ------
    ValueError
        For a parameter out of range, and when fewer than one path in 10,000 passes the rejection rule.
    """

    n: int = 100
    noise: float = 0.5
    nodes: int = 800
    length_scale: float = 1.0
    reject: bool = True

    def __post_init__(self) -> None:
        _check(self.n, self.noise, self.grid)
        if not (math.isfinite(self.length_scale) and self.length_scale > 0):
            raise ValueError("length_scale must be positive and finite.")

    @property
    def domain(self) -> Box:
        """[0, 1]."""
        return Box((0.0,), (1.0,))

    @property
    def grid(self) -> tuple[int, ...]:
        """(nodes,)."""
        return (self.nodes,)

    def simulate(self, count: int, rng: np.random.Generator) -> Worlds:
        """``count`` independent worlds."""
        paths = self._accepted(count, rng)
        x = np.sort(rng.uniform(size=(count, self.n)), axis=1)
        f = self._bridge(paths, x, rng)
        largest = np.maximum(np.abs(paths).max(axis=1), np.abs(f).max(axis=1))[:, None]
        return Worlds(x[..., None], _with_noise(f / largest, self.noise, rng), paths / largest)

    def _accepted(self, count: int, rng: np.random.Generator) -> Floats:
        found: list[Floats] = []
        tried = have = 0
        while have < count:
            if tried > _ATTEMPTS * (have + 1):
                raise ValueError(
                    "The rejection rule passes less than one path in 10,000: change length_scale or nodes."
                )
            batch = min(4 * (count - have) + 16, max(16, _BLOCK // self.nodes))
            paths = self._paths(batch, rng)
            paths = paths[self._passes(paths)] if self.reject else paths
            found.append(paths)
            tried, have = tried + batch, have + len(paths)
        return np.concatenate(found)[:count]

    def _paths(self, count: int, rng: np.random.Generator) -> Floats:
        """f_1 ~ N(0, 1), f_{i+1} = rho f_i + sqrt(1 - rho^2) e: the exact recursion on equidistant nodes."""
        rho = math.exp(-1.0 / ((self.nodes - 1) * self.length_scale))
        shocks = rng.standard_normal((count, self.nodes))
        shocks[:, 1:] *= math.sqrt(-math.expm1(2.0 * math.log(rho)))
        return np.asarray(lfilter([1.0], [1.0, -rho], shocks, axis=1))

    def _passes(self, paths: Floats) -> NDArray[np.bool_]:
        inside = paths >= 0
        volume = (inside.sum(axis=1) - 0.5 * inside[:, 0] - 0.5 * inside[:, -1]) / (self.nodes - 1)
        components = inside[:, 0] + np.count_nonzero(inside[:, 1:] & ~inside[:, :-1], axis=1)
        return (volume >= 0.1) & (volume <= 0.9) & (components <= 13) & (volume >= 0.05 * components)

    def _bridge(self, paths: Floats, x: Floats, rng: np.random.Generator) -> Floats:
        """The same paths at the sorted points x, given their values at the nodes: a Markov bridge, point by point.

        Between values f_l at distance a on the left and f_r at distance b on the right, with A = exp(-a / l) and
        B = exp(-b / l): mean (A (1 - B^2) f_l + B (1 - A^2) f_r) / (1 - A^2 B^2), variance
        (1 - A^2)(1 - B^2) / (1 - A^2 B^2).
        """
        world = np.arange(len(paths))
        node = np.minimum((x * (self.nodes - 1)).astype(np.int64), self.nodes - 2)
        left = node / (self.nodes - 1)
        values = np.empty_like(x)
        normals = rng.standard_normal(x.shape)
        for i in range(x.shape[1]):
            # the nearest value on the left: the node, or the point before if it lies in the same gap
            same = node[:, i] == node[:, i - 1] if i else np.zeros(len(x), dtype=bool)
            f_left = np.where(same, values[:, i - 1], paths[world, node[:, i]])
            a = x[:, i] - np.where(same, x[:, i - 1], left[:, i])
            b = np.maximum((node[:, i] + 1) / (self.nodes - 1) - x[:, i], 0.0)
            f_right = paths[world, node[:, i] + 1]
            A, B = np.exp(-a / self.length_scale), np.exp(-b / self.length_scale)
            one_a, one_b = -np.expm1(-2.0 * a / self.length_scale), -np.expm1(-2.0 * b / self.length_scale)
            whole = -np.expm1(-2.0 * (a + b) / self.length_scale)
            mean = (A * one_b * f_left + B * one_a * f_right) / whole
            values[:, i] = mean + np.sqrt(one_a * one_b / whole) * normals[:, i]
        return values


@dataclass(frozen=True)
class BlobWorlds:
    """Two-dimensional excursion worlds after Maciazek 2026, Appendix D.1: sums of Gaussian bumps on the unit square.

        h(x) = sum_j a_j exp(-(x - c_j)^T S_j^{-1} (x - c_j) / 2),   S_j = R_j diag(w_1^2, w_2^2) R_j^T,
        g    = expit(5 (h - q)), q the 0.65-quantile of h, rescaled to [0, 1],      target f = 2 g - 1,
        y_i  = (1 - noise) f(x_i) + Unif[-noise, noise],                            x_i uniform on the square,

    R_j the rotation by phi_j.

    Quantile and rescaling come from a reference grid; f is clipped to [-1, 1] between its nodes. The paper's laws of
    amplitude, centre, angle and widths are not public. Here a ~ U[0.7, 1.3], c ~ U[0.15, 0.85]^2, w_1 ~ U[0.2, 0.35],
    w_2 = w_1 U[1, 1.4] clipped to at most 0.35, phi ~ U[0, pi).

    Parameters
    ----------
    n : int
        Records per world.
    noise : float
        M_xi in [0, 1).
    grid : (int, int)
        Nodes of the target's grid.
    blobs : int
        Bumps per field.
    reference : int
        Nodes along each side of the reference grid (180 in the paper; 90 changes f by at most 0.03).
    """

    n: int = 400
    noise: float = 0.5
    grid: tuple[int, int] = (40, 40)
    blobs: int = 2
    reference: int = 180

    def __post_init__(self) -> None:
        _check(self.n, self.noise, self.grid)
        if len(self.grid) != 2 or self.blobs < 1 or self.reference < 2:
            raise ValueError(
                "A blob world has a grid of two axes, at least one blob and a reference grid of 2 or more."
            )

    @property
    def domain(self) -> Box:
        """The unit square."""
        return Box((0.0, 0.0), (1.0, 1.0))

    def simulate(self, count: int, rng: np.random.Generator) -> Worlds:
        """``count`` independent worlds."""
        shape = (count, self.blobs)
        amplitude = rng.uniform(0.7, 1.3, shape)
        centre = rng.uniform(0.15, 0.85, (*shape, 2))
        w1 = rng.uniform(0.2, 0.35, shape)
        w2 = np.minimum(w1 * rng.uniform(1.0, 1.4, shape), 0.35)
        form = _log_bumps(amplitude, centre, w1, w2, rng.uniform(0.0, math.pi, shape))
        q, low, high = self._reference(form)

        def field(h: Floats) -> Floats:
            return 2.0 * np.clip((expit(5.0 * (h - q)) - low) / (high - low), 0.0, 1.0) - 1.0

        x = rng.uniform(size=(count, self.n, 2))
        targets = field(_bumps(form, self.domain.grid(self.grid)))
        return Worlds(x, _with_noise(field(_bumps(form, x)), self.noise, rng), targets)

    def _reference(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        """The 0.65-quantile of h and the least and largest expit(5 (h - q)) on the reference grid, (worlds, 1) each."""
        points = self.domain.grid((self.reference, self.reference))
        rows = max(1, _BLOCK // (self.blobs * len(points)))
        parts = []
        for start in range(0, len(form), rows):
            h = _bumps(form[start : start + rows], points)
            parts.append((np.quantile(h, 0.65, axis=1), h.min(axis=1), h.max(axis=1)))
        q, least, most = np.concatenate([np.stack(part, axis=1) for part in parts]).T[:, :, None]
        return q, expit(5.0 * (least - q)), expit(5.0 * (most - q))


def _log_bumps(amplitude: Floats, centre: Floats, w1: Floats, w2: Floats, phi: Floats) -> Floats:
    """Coefficients, shape (..., 6), of the logarithm of each bump in 1, x, y, x^2, x y, y^2."""
    cos, sin, p, q = np.cos(phi), np.sin(phi), w1**-2.0, w2**-2.0
    a, b, c = p * cos**2 + q * sin**2, (p - q) * cos * sin, p * sin**2 + q * cos**2  # S^{-1} = [[a, b], [b, c]]
    u, v = centre[..., 0], centre[..., 1]
    constant = np.log(amplitude) - 0.5 * (a * u**2 + 2.0 * b * u * v + c * v**2)
    return np.stack((constant, a * u + b * v, b * u + c * v, -0.5 * a, -b, -0.5 * c), axis=-1)


def _bumps(form: Floats, points: Floats) -> Floats:
    """Sum of the bumps at points (m, 2), the same for all worlds, or (worlds, m, 2): shape (worlds, m)."""
    x, y = points[..., 0], points[..., 1]
    monomials = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), axis=-2)
    logs = form @ monomials
    return np.exp(logs, out=logs).sum(axis=1)


@dataclass(frozen=True, eq=False)
class GaussianProcessWorlds:
    """Worlds of a Gaussian-process prior whose records lie at the nodes of a public grid.

        f ~ GP(mean, amplitude^2 kernel) at the nodes,   x_i drawn from the nodes with probabilities `density`,
        y_i = clip(f(x_i) + noise_sd e_i, -response_bound, response_bound),  e_i independent N(0, 1).

    Exactly the model of the closed-form decoder, except for the clipping (``docs/proofs/best-linear-decoder.md``).

    Parameters
    ----------
    kernel : Kernel
        Prior kernel, in the unit of the domain.
    domain : Box
    grid : tuple of int
        Nodes along each axis, at most 4,096 in all.
    n : int
        Records per world.
    noise_sd : float
        Standard deviation of the response noise, at least 0.
    amplitude : float
        Prior standard deviation of the field.
    mean : float or array (m,)
        Prior mean at the nodes.
    density : array (m,), optional
        Public design probabilities of the nodes, any positive multiple; uniform by default.
    response_bound : float
        Clipping level; infinity for none.
    normalise : bool
        Scale each field, before the mean is added, so that its largest absolute value is ``amplitude``.

    Raises
    ------
    ValueError
        For a parameter out of range.
    """

    kernel: Kernel
    domain: Box
    grid: tuple[int, ...]
    n: int
    noise_sd: float
    amplitude: float = 1.0
    mean: float | Floats = 0.0
    density: Floats | None = None
    response_bound: float = math.inf
    normalise: bool = False

    def __post_init__(self) -> None:
        _check(self.n, 0.0, self.grid)
        if len(self.grid) != self.domain.dimension or math.prod(self.grid) > MOST_NODES:
            raise ValueError(
                f"The grid {self.grid} must have one count for each of {self.domain.dimension} axes and at most "
                f"{MOST_NODES} nodes in all."
            )
        if not (math.isfinite(self.noise_sd) and self.noise_sd >= 0 and math.isfinite(self.amplitude)):
            raise ValueError("noise_sd must be 0 or more, and it and the amplitude finite.")
        if not (self.amplitude > 0 and self.response_bound > 0):
            raise ValueError("amplitude and response_bound must be positive.")
        object.__setattr__(self, "density", design_probabilities(self.density, math.prod(self.grid)))

    @cached_property
    def root(self) -> Floats:
        """R of shape (m, q) with amplitude^2 kernel(nodes, nodes) = R R^T, to 1e-10 amplitude^2 in each entry."""
        return self.amplitude * square_root(self.kernel(self.domain.grid(self.grid)), 1e-10)

    def simulate(self, count: int, rng: np.random.Generator) -> Worlds:
        """``count`` independent worlds."""
        nodes = self.domain.grid(self.grid)
        assert self.density is not None
        field = rng.standard_normal((count, self.root.shape[1])) @ self.root.T
        if self.normalise:
            field *= self.amplitude / np.abs(field).max(axis=1, keepdims=True)
        field += self.mean
        chosen = rng.choice(len(nodes), size=(count, self.n), p=self.density)
        signal = np.take_along_axis(field, chosen, axis=1)
        y = signal + self.noise_sd * rng.standard_normal(signal.shape)
        return Worlds(nodes[chosen], np.clip(y, -self.response_bound, self.response_bound), field)


def design_probabilities(density: NDArray[np.floating] | None, nodes: int) -> Floats:
    """Probabilities of the nodes, shape (nodes,), from any positive multiple of them; uniform for None."""
    if density is None:
        return np.full(nodes, 1.0 / nodes)
    p = np.asarray(density, dtype=np.float64).ravel()
    if p.size != nodes or not np.isfinite(p).all() or (p < 0).any() or not p.sum() > 0:
        raise ValueError(f"The design density needs {nodes} finite numbers, none negative and not all zero.")
    return p / p.sum()


def square_root(matrix: Floats, tolerance: float) -> Floats:
    """R of shape (m, q), q the numerical rank, with `matrix` = R R^T for a positive semidefinite matrix.

    Pivoted Cholesky, stopped when no diagonal entry of the remainder exceeds ``tolerance``: the remainder is
    positive semidefinite, so that bounds every entry.
    """
    pivoted_cholesky: Any = get_lapack_funcs("pstrf", dtype=np.float64)
    factor, pivots, rank, _ = pivoted_cholesky(matrix, tol=tolerance, lower=1)
    root = np.empty((len(matrix), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root
