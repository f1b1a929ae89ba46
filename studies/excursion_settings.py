"""The published excursion settings of Maciazek 2026: worlds, delta, score and filter, the same for every release.

Everything that a release may choose is chosen on :func:`public_worlds`; it is scored on :func:`test_worlds`. Nothing
here reads real data.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from discretion.gp import RBF
from discretion.posterior.worlds import BlobWorlds, GaussianProcessWorlds, OUExcursionWorlds, Worlds

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

EPSILONS = (9.0, 3.0, 1.0)
LENGTHS = {1: (0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.4), 2: (0.06, 0.1, 0.14, 0.18, 0.24, 0.32)}
"""Length scales tried for raw maps, by dimension."""
WIDTHS = {1: (0.0, 8.0, 20.0), 2: (0.0, 2.0)}
"""Standard deviations of the filters tried on raw maps, in nodes; 0 is no filter."""
TRAINING = 3_000
NUGGET = 1e-6


def simulator(dimension: int, n: int, noise: float) -> OUExcursionWorlds | BlobWorlds:
    """The worlds of the setting: paths on [0, 1] on 800 nodes, or bumps on the unit square on 40 x 40.

    Worlds simulated with one seed have the same covariates and fields at every ``noise``; only responses differ.
    """
    if dimension == 1:
        return OUExcursionWorlds(n, noise)
    if dimension == 2:
        return BlobWorlds(n, noise)
    raise ValueError(f"the published settings have one or two dimensions, not {dimension!r}")


def default_worlds(dimension: int) -> int:
    """Worlds that are scored unless a number is given: 60 in one dimension, 30 in two."""
    return 60 if dimension == 1 else 30


def published_delta(dimension: int, n: int) -> float:
    """1e-3 in one dimension and n^-1.1 in two."""
    return 1e-3 if dimension == 1 else float(n) ** -1.1


@cache
def public_worlds(dimension: int, n: int, noise: float, count: int, seed: int) -> Worlds:
    """Training worlds; the same for all epsilons of a setting."""
    return simulator(dimension, n, noise).simulate(count, np.random.default_rng([seed, 1]))


@cache
def generic_worlds(n: int, noise: float, count: int, seed: int) -> Worlds:
    """Training worlds that know nothing of the bumps: random fields of a length scale of 0.25 with the same noise."""
    blobs = BlobWorlds(n, noise)
    rng = np.random.default_rng([seed, 2])
    prior = GaussianProcessWorlds(RBF(0.25), blobs.domain, blobs.grid, n, 0.0, normalise=True)
    worlds = prior.simulate(count, rng)
    y = (1.0 - noise) * worlds.responses + rng.uniform(-noise, noise, worlds.responses.shape)
    return Worlds(worlds.covariates, y, worlds.targets)


def test_worlds(dimension: int, n: int, noise: float, count: int, seed: int) -> Worlds:
    """Worlds that only the score sees; the same for every release and epsilon."""
    return simulator(dimension, n, noise).simulate(count, np.random.default_rng([seed, 4]))


def scores(estimates: Floats, cut: float, truth: Mask) -> Floats:
    """IoU of {estimate >= cut} with the truth, for estimates (..., worlds, m) and truth (worlds, m)."""
    inside = estimates >= cut
    union = np.count_nonzero(inside | truth, axis=-1)
    return np.where(union == 0, 1.0, np.count_nonzero(inside & truth, axis=-1) / np.maximum(union, 1))


def filtered(values: Floats, grid: tuple[int, ...], width: float) -> Floats:
    """Gaussian filter over the map, nearest boundary, truncated at 3 standard deviations (in nodes)."""
    if width == 0.0:
        return values
    maps = values.reshape(-1, *grid)
    sigma = (0.0,) + (width,) * len(grid)
    return gaussian_filter(maps, sigma, mode="nearest", truncate=3.0).reshape(values.shape)
