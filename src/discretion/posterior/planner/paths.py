"""Posterior paths of simulated worlds: one factorisation of a world's records serves every ridge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from discretion.gp import Kernel
from discretion.posterior.planner.priors import Model, NodeWorlds
from discretion.posterior.worlds import square_root

__all__ = ["PathWorlds"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Singles = NDArray[np.float32]

_STREAM = 5  # of the random numbers of paths, among those of a plan
_ROUNDING = 1e-8


@dataclass(frozen=True, eq=False)
class PathWorlds:
    """Simulated worlds as posterior paths see them: every record is moved to the nearest of m places.

    Attributes
    ----------
    points : array (m, d)
        The places, in the kernel's coordinates.
    counts, sums : arrays (W, m)
        Records at each place, and the sum of their clipped responses less the centre of paths.
    fields : array (W, m)
        The true fields.
    mask : boolean array (m,)
        Places that are scored.
    numbers : array (W,)
        Number of each world: with the seed it names the random numbers of its paths, whatever the kernel.
    seed : int
    """

    points: Floats
    counts: Floats
    sums: Floats
    fields: Floats
    mask: Mask
    numbers: NDArray[np.int64]
    seed: int

    @classmethod
    def of(
        cls, model: Model, worlds: NodeWorlds, numbers: NDArray[np.int64], kept: NDArray[np.int64], seed: int
    ) -> PathWorlds:
        """These of the worlds of a model, at some places of its setting."""
        points, m = model.setting.places.points[kept], len(kept)
        sides = np.subtract(model.setting.box.upper, model.setting.box.lower)
        nearest = KDTree(points / sides).query(model.nodes / sides)[1]
        counts, sums = (
            np.stack([np.bincount(nearest, each[world], m).astype(np.float64) for world in numbers])
            for each in (worlds.counts, worlds.sums)
        )
        sums += (model.setting.centre - model.setting.of_paths.centre) * counts
        return cls(points, counts, sums, worlds.fields[np.ix_(numbers, kept)], model.mask[kept], numbers, seed)

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, which: slice) -> PathWorlds:
        """Some of the worlds."""
        own = (self.counts[which], self.sums[which], self.fields[which])
        return PathWorlds(self.points, *own, self.mask, self.numbers[which], self.seed)

    def posteriors(self, kernel: Kernel, ridges: Sequence[float], draws: int) -> Iterator[tuple[Floats, Singles]]:
        """World by world the posterior means (R, m) less the centre, and paths at scale 1 about them (R, draws, m).

        Paths are in single precision.

        Of q records at one place only their mean counts, with ridge r / sqrt(q). With K = F F^T, S = diag(sqrt(q)) on
        the places that have records, S F_X = P diag(sqrt(l)) V^T and z ~ N(0, I):

            mean  = F V (l + r^2)^-1 V^T F_X^T S^2 ybar,
            noise = F z - F V (1 - r (l + r^2)^(-1/2)) V^T z  ~  N(0, k_D).
        """
        features = square_root(kernel(self.points), _ROUNDING)
        single, r = features.T.astype(np.float32), np.asarray(ridges, dtype=np.float64)[:, None]
        for world, number in enumerate(self.numbers):
            rng = np.random.default_rng([self.seed, _STREAM, int(number)])
            z = rng.standard_normal((draws, len(self.points)))[:, : features.shape[1]]
            used = np.flatnonzero(self.counts[world])
            seen = np.sqrt(self.counts[world, used])[:, None] * features[used]
            values, vectors = _spectrum(seen)
            shown = (features @ vectors).T
            sums = vectors.T @ (features[used].T @ self.sums[world, used])
            lost = (1.0 - r / np.sqrt(values + r * r))[:, None, :] * (z @ vectors)
            noises = z.astype(np.float32) @ single - lost.astype(np.float32) @ shown.astype(np.float32)
            yield (sums / (values + r * r)) @ shown, np.asarray(noises, dtype=np.float32)


def _spectrum(A: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues l and eigenvectors V of A^T A as far as they are not nought, from the smaller of A^T A and A A^T."""
    if A.shape[1] <= A.shape[0]:
        values, vectors = np.linalg.eigh(A.T @ A)
        return np.maximum(values, 0.0), vectors
    values, left = np.linalg.eigh(A @ A.T)
    kept = values > _ROUNDING * values[-1]
    return values[kept], A.T @ left[:, kept] / np.sqrt(values[kept])
