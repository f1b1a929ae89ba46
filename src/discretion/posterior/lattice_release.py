"""What leaves of a posterior on a public graph, and what can be made of it at no further cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from discretion.posterior.exceedance import Excursions
from discretion.privacy import Release

__all__ = ["LatticeRelease"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class LatticeRelease(Excursions, Release):
    """Released sample paths on a public graph, and their certificate. What is computed from it costs nothing.

    Attributes
    ----------
    certificate : Certificate
    values : array (paths, N)
        The paths at the nodes, in units of the response.
    centre : float
        The public prior mean.
    locations : array (N, d), optional
        Places of the nodes.
    pairs, conductances : arrays (E, 2), (E,)
        The public graph.
    """

    values: Array
    centre: float
    locations: Array | None
    pairs: NDArray[np.int64]
    conductances: Array

    def rescaled(self, factor: float) -> Array:
        """Deviations from the centre times a public constant, chosen on public data: a map of values, (paths, N).

        A path is shrunk towards the centre by the prior; where the ridge is large a constant undoes much of it.
        """
        return self.centre + float(factor) * (self.values - self.centre)

    def smoothed(self, rounds: int = 1) -> Array:
        """The paths after `rounds` means of each node with its neighbours, weighted by conductance, (paths, N)."""
        size, ends = self.values.shape[1], np.concatenate([self.pairs, self.pairs[:, ::-1]]).T
        W: Any = csr_array((np.tile(self.conductances, 2), tuple(ends)), shape=(size, size))
        links, degree = W.sum(axis=1), np.maximum(np.diff(W.indptr), 1)
        # the node itself weighs as much as one of its neighbours
        own = np.where(links > 0.0, links / degree, 1.0)[:, None]
        values = self.values.T
        for _ in range(rounds):
            values = (W @ values + own * values) / (links[:, None] + own)
        return values.T
