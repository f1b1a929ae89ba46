"""The attack along directions that rounding empties, on sampled posterior paths.

The attacker knows every record but one, and of that one the place; the question is whether its response was M or -M.
Both answers give the same posterior covariance, so a released path differs in mean only. Along eigenvectors of the
computed covariance whose eigenvalue is lost in rounding, a sampler that clips eigenvalues at 0 adds no noise, while the
computed means still differ: projecting the release there tells the two answers apart. A public nugget ends it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata

from discretion.gp import RBF, Box, DensePosterior, SamplePaths, nugget_floor

SCALE = 1.0


@dataclass(frozen=True)
class Outcome:
    """Areas under the curve of the attack, and effective distances between the two answers.

    ``without`` and ``with_nugget``: the attack along emptied directions. ``best``: the most any attack may reach at
    the distance ``claimed`` (in standard deviations); ``distance``: what the nugget leaves in all directions together.
    """

    without: float
    with_nugget: float
    best: float
    distance: float
    claimed: float


def smallest_eigenvectors(n: int, *, side: int = 30, ridge: float = 1.0, draws: int = 400, seed: int = 0) -> Outcome:
    """Run the attack on n records and a ``side`` x ``side`` grid, RBF kernel of length scale 0.3."""
    rng = np.random.default_rng(seed)
    kernel, T = RBF(0.3), Box((0.0, 0.0), (1.0, 1.0)).grid((side, side))
    X = rng.uniform(size=(n, 2))
    y = rng.uniform(-1.0, 1.0, size=n)
    posteriors = [DensePosterior(kernel, ridge, X, np.append(y[:-1], answer)) for answer in (1.0, -1.0)]
    means = np.stack([posterior.mean(T) for posterior in posteriors])
    covariance = posteriors[0].covariance(T)
    values, vectors = np.linalg.eigh(covariance)
    emptied = vectors[:, values <= 0.0]
    difference = means[0] - means[1]
    signal = emptied.T @ difference

    def auc(paths: list[np.ndarray]) -> float:
        scores = [(path - means.mean(axis=0)) @ emptied @ signal for path in paths]
        ranks = rankdata(np.concatenate(scores))[:draws]
        return float((ranks.sum() - draws * (draws + 1) / 2) / draws**2)

    nugget = max(1e-6, 16 * nugget_floor(n, len(T), ridge))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    clipped = [mean + SCALE * rng.standard_normal((draws, len(T))) @ root.T for mean in means]
    kept = [
        SamplePaths(posterior, SCALE, nugget, rng.standard_normal, paths=draws).evaluate(T) for posterior in posteriors
    ]
    v = DensePosterior(kernel, ridge, X[:-1], y[:-1]).covariance(X[-1:])[0, 0]
    claimed = 2.0 * np.sqrt(v / (ridge**2 * (ridge**2 + v))) / SCALE
    noisy = covariance + nugget * np.eye(len(T))
    distance = float(np.sqrt(difference @ np.linalg.solve(noisy, difference))) / SCALE
    return Outcome(auc(clipped), auc(kept), float(ndtr(claimed / np.sqrt(2.0))), distance, float(claimed))
