"""The public state of a search in one form, from a study or from its release: what tables, plots and exports show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.journal import StudyError
from discretion.bayesopt.kernels import GradientKernel, gradient_kernel
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.released import ReleasedGradients
from discretion.bayesopt.space import Space
from discretion.bayesopt.study import Study
from discretion.gp import RBF

__all__ = ["PublicPath", "public_path"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PublicPath:
    """What a search released, step by step.

    Attributes:
        space: of the parameters.
        thetas: where each step's gradient was taken, scaled, (steps, d).
        last: the iterate after the last step, (d,).
        gradients: as released, (steps, d); NaN for a step that was lost.
        spread: the standard deviations of their noise, (steps, d).
        evaluations: b_t, (steps,).
        traces: of the gradient's covariance, as fractions of the prior, (steps,).
        kernel: of the search, or None where only its release is at hand.
    """

    space: Space
    thetas: Floats
    last: Floats
    gradients: Floats
    spread: Floats
    evaluations: NDArray[np.int64]
    traces: Floats
    kernel: GradientKernel | None = None

    def __len__(self) -> int:
        return len(self.thetas)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which steps were not lost, (steps,)."""
        return np.isfinite(self.gradients.sum(axis=1))

    @property
    def norms(self) -> Floats:
        """Of the released gradients, (steps,); noise alone would give `noise_norms`, about."""
        return np.linalg.norm(self.gradients, axis=1)

    @property
    def noise_norms(self) -> Floats:
        """The root mean square norm of the noise, (steps,)."""
        return np.linalg.norm(self.spread, axis=1)

    def trials(self) -> list[dict[str, Any]]:
        """A table of the steps, one dictionary a row. No value of the objective: none was released."""
        return [
            {"step": step, "lost": not bool(self.known[step])}
            | self.space.parameters(self.thetas[step])
            | {
                "gradient_norm": float(self.norms[step]),
                "noise_norm": float(self.noise_norms[step]),
                "trace": float(self.traces[step]),
                "evaluations": int(self.evaluations[step]),
            }
            for step in range(len(self))
        ]

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the squared gradient along the path, noise taken out; shares add up to 1.

            sum_t (s_tj^2 - tau_tj^2), 0 where negative,

        per scaled unit (by default: over the width of the range). All NaN where nothing rises above the noise.
        """
        squares = (self.gradients[self.known] ** 2 - self.spread[self.known] ** 2).sum(axis=0)
        signal = np.maximum(squares, 0.0)
        total = float(signal.sum())
        shares = signal / total if total > 0 else np.full(self.space.size, np.nan)
        return dict(zip(self.space.names, shares.tolist(), strict=True))

    def surrogate(self, kernel: Any = None) -> ReleasedGradients:
        """A Gaussian process fitted to the released gradients: free.

        Args:
            kernel: by default that of the search, or RBF(0.2) of a release; its length scales are fitted.

        Raises:
            StudyError: nothing has been released.
        """
        if not self.known.any():
            raise StudyError("No gradient has been released yet.")
        chosen = (self.kernel or gradient_kernel(RBF(0.2))) if kernel is None else gradient_kernel(kernel)
        some = self.known
        return ReleasedGradients(self.thetas[some], self.gradients[some], self.spread[some], chosen).fitted()


def public_path(source: Study | LocalSearchRelease | PublicPath) -> PublicPath:
    """The public state of a `source`: a study, finished or not, or a release.

    Raises:
        TypeError: the source is neither.
    """
    if isinstance(source, PublicPath):
        return source
    if isinstance(source, Study):
        kernel, release = source.search.gradient_kernel, source.result()
    elif isinstance(source, LocalSearchRelease):
        kernel, release = None, source
    else:
        raise TypeError(f"Give a Study or a LocalSearchRelease, not {type(source).__name__}.")
    settings = release.certificate.parameters
    space = Space.described(settings["space"])
    metric = settings.get("metric") or {}
    weights = np.sqrt([float(metric.get(name, 1.0)) for name in space.names])
    return PublicPath(
        space=space,
        thetas=release.thetas[:-1],
        last=release.thetas[-1],
        gradients=release.gradients,
        spread=release.noise[:, None] / weights,
        evaluations=release.evaluations,
        traces=release.traces,
        kernel=kernel,
    )
