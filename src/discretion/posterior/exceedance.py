"""Where released paths are at or above a threshold: path by path, and their share with an interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

__all__ = ["Excursions"]

Array = NDArray[np.float64]


class Excursions:
    """What releases of independent sample paths (paths, N) have in common. Post-processing: costs nothing."""

    values: Array

    def excursion(self, threshold: float) -> NDArray[np.bool_]:
        """Places where each path is at least `threshold`, (paths, N)."""
        return self.values >= threshold

    def exceedance(self, threshold: float, confidence: float = 0.95) -> tuple[Array, Array, Array]:
        """Share of paths at or above `threshold` at each place, and an interval (low, high), arrays (N,).

        The paths are independent draws, so the number above is binomial with the exceedance probability of the
        posterior at the released scale; the interval is that of Clopper and Pearson, exact for each place by itself.
        ValueError unless `confidence` lies strictly between 0 and 1.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence!r}.")
        count, above = len(self.values), self.excursion(threshold).sum(axis=0).astype(np.float64)
        tail = 0.5 * (1.0 - confidence)
        low = np.where(above > 0, betaincinv(np.maximum(above, 1.0), count - above + 1.0, tail), 0.0)
        high = np.where(above < count, betaincinv(above + 1.0, np.maximum(count - above, 1.0), 1.0 - tail), 1.0)
        return above / count, low, high
