"""What a private local search releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import Certificate, Release

if TYPE_CHECKING:
    from discretion.bayesopt.mechanism import LocalSearch
    from discretion.bayesopt.steps import Step

__all__ = ["NO_BEST", "LocalSearchRelease", "release_of"]

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


def release_of(
    search: LocalSearch, certificate: Certificate, thetas: Sequence[Floats], steps: Sequence[Step]
) -> LocalSearchRelease:
    """The release of a path, (steps + 1) iterates, and its steps, all public."""
    space, lost = search.space, np.full(search.space.size, np.nan)
    return LocalSearchRelease(
        certificate=certificate,
        parameters=space.parameters(search.update.output(thetas[1:] or thetas)),
        last=space.parameters(thetas[-1]),
        thetas=np.array(thetas),
        gradients=np.array([lost if s.gradient is None else s.gradient for s in steps]).reshape(-1, space.size),
        noise=np.array([step.noise for step in steps]),
        evaluations=np.array([step.evaluations for step in steps], dtype=np.int64),
        traces=np.array([step.trace / step.prior for step in steps]),
    )
