"""How well a released map agrees with records that it was not made from: what a map is tuned by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.confidence import local_mean, threshold_field
from discretion.posterior.excursion import agreed, smooth_paths
from discretion.posterior.kernel_sum import KernelSumRelease
from discretion.posterior.mechanism import PathRelease
from discretion.posterior.records import PrivateRecords, checked_records

__all__ = ["Agreement", "MeanAgreement"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """A bounded number for each record: does the map say of its place what the record says?

        with a threshold      1 if the record and the map are on the same side of it, else 0
        without               -((response - value) / (high - low))^2, both clipped to [low, high]

    The map is read at the grid point nearest to the record. It is the map that is drawn: of sample paths the set on
    which a `fraction` of the smoothed paths agree, of kernel sums the estimated set; without a threshold the mean of
    the smoothed paths, or the local mean (the centre where no record is near).

    A large ridge makes paths a contrast that has lost the size of the response, so without a threshold it scores low.

    Parameters
    ----------
    response_range : (low, high)
        Public range of the response.
    threshold : float, optional
    below : bool
        Whether the set asked for is where the response is at most the threshold.
    fraction, smoothing : float
        As `agreed` and `smooth_paths` take them.
    """

    response_range: tuple[float, float]
    threshold: float | None = None
    below: bool = False
    fraction: float = 0.5
    smoothing: float = 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest value."""
        return (-1.0, 0.0) if self.threshold is None else (0.0, 1.0)

    @property
    def name(self) -> str:
        """What it is, in words."""
        if self.threshold is None:
            return "minus the mean squared error of the map, as a share of the squared range"
        return f"share of records on the map's side of {self.threshold:g}"

    def __call__(self, release: PathRelease | KernelSumRelease, records: PrivateRecords) -> Floats:
        """The values, shape (n,), within `bounds`; each depends on its own record and the release alone."""
        mechanism: Any = release.mechanism
        box, grid = mechanism.domain, mechanism.grid
        X, Y = checked_records(records, box.dimension)
        lower, steps = np.asarray(box.lower), np.asarray(grid) - 1
        cells = np.rint((box.clamp(X) - lower) / (np.asarray(box.upper) - lower) * steps).astype(np.intp)
        there = self.field(release)[tuple(np.clip(cells, 0, steps).T)]
        low, high = self.response_range
        y = Y[:, 0]
        if self.threshold is None:
            return -(((np.clip(y, low, high) - there) / (high - low)) ** 2)
        side = y <= self.threshold if self.below else y >= self.threshold
        return (side == there).astype(np.float64)

    def field(self, release: PathRelease | KernelSumRelease) -> Any:
        """The map on its grid: True where the set is, or values clipped to the range."""
        low, high = self.response_range
        if isinstance(release, KernelSumRelease):
            if self.threshold is not None:
                field = threshold_field(release, self.threshold)[0]
                return field <= 0.0 if self.below else field >= 0.0
            mean = local_mean(release, 0.0).values
            return np.clip(np.where(np.isnan(mean), release.mechanism._centres[0], mean), low, high)
        paths = release.on_grid()
        paths = smooth_paths(paths, self.smoothing) if paths.ndim <= 3 else paths
        if self.threshold is None:
            return np.clip(paths.mean(axis=0), low, high)
        together = agreed(paths, self.fraction, above=not self.below)
        return together <= self.threshold if self.below else together >= self.threshold


@dataclass(frozen=True)
class MeanAgreement:
    """The mean `Agreement` with records that are PUBLIC: an earlier table, say."""

    agreement: Agreement
    records: PrivateRecords

    def __call__(self, release: PathRelease | KernelSumRelease) -> float:
        return float(np.mean(self.agreement(release, self.records)))
