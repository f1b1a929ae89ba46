"""What a private local search releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import Release

__all__ = ["NO_BEST", "LocalSearchRelease"]

Floats = NDArray[np.float64]

NO_BEST = (
    "There is no best trial: which one it is would be read off private losses. Use `parameters`, the average of the "
    "last half of the path or the end of it; or pay for a choice among candidates with select_candidate."
)


@dataclass(frozen=True, eq=False, repr=False)
class LocalSearchRelease(Release):
    """What a local search releases: parameters, and the public path that led there.

    Attributes:
        parameters: what to use, by name: the mean of the last half of the path, or a trust region's last iterate.
        last: the last iterate.
        thetas: scaled path, (steps + 1, d).
        gradients: the noisy gradients, (steps, d); NaN for a step that was lost.
        noise: their standard deviations, (steps,); with a metric m, coordinate j has this over sqrt(m_j).
        evaluations: b_t, (steps,).
        traces: of the gradient's covariance, as fractions of the prior, (steps,).
    """

    parameters: dict[str, Any]
    last: dict[str, Any]
    thetas: Floats
    gradients: Floats
    noise: Floats
    evaluations: NDArray[np.int64]
    traces: Floats

    @property
    def best_parameters(self) -> dict[str, Any]:
        """Refused: the best of the evaluated points is known from losses, which are private."""
        raise AttributeError(NO_BEST)
