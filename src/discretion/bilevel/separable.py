"""Problems that every record has for itself (a user, a task): private meta-learning.

    Phi(x) = mean of phi_i(x),  phi_i(x) = f(x, y_i(x), z_i),  y_i(x) = argmin g(x, y, z_i)

The gradient of phi_i depends on record i alone. It is clipped to norm c, summed and released with noise: sensitivity
2c/n (replace) or c/N (add/remove), whatever f and g are and however well the inner problems are solved. No constant is
needed, inner problems need not be convex. Proof: `docs/proofs/bilevel-clipped.md`, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.clipping import ClippedSteps, clipped_sum
from discretion.bilevel.outputs import Output, public_output
from discretion.bilevel.problem import check_count
from discretion.gp import Ball, Box
from discretion.privacy import Certificate, Neighbours, PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent

__all__ = ["AdaptiveClip", "SeparableDescent", "SeparableRelease"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AdaptiveClip:
    """Move the clipping norm towards a quantile of the records' gradient norms, for a share of the budget.

    With each gradient the noisy fraction of records that were not clipped is released, of sensitivity 1/n, and then
    c <- c exp(-rate (fraction - quantile)). `docs/proofs/bilevel-clipped.md`, Theorem 2. Source: Andrew, Thakkar,
    McMahan and Ramaswamy (2021).

    Args:
        quantile, share: in (0, 1); share is that of mu_t^2.
        rate: positive.
    """

    quantile: float = 0.7
    rate: float = 0.3
    share: float = 0.02

    def __post_init__(self) -> None:
        if not (0 < self.quantile < 1 and 0 < self.share < 1 and 0 < self.rate < math.inf):
            raise ValueError("AdaptiveClip needs quantile and share strictly between 0 and 1, and a positive rate.")

    def moved(self, clip: float, fraction: float) -> float:
        """The next clipping norm, from the released fraction."""
        return min(max(clip * math.exp(-self.rate * (min(max(fraction, 0.0), 1.0) - self.quantile)), 1e-50), 1e50)


@dataclass(frozen=True, eq=False, repr=False)
class SeparableRelease(Release):
    """The path of a private descent, and the point to use.

    Attributes:
        certificate: what it cost.
        x: the chosen point, (d,).
        path: x_0, ..., x_T. gradients: as released, (T, d).
        noise: their standard deviation, (T,). clips: clipping norms, (T,).
    """

    x: Floats
    path: Floats
    gradients: Floats
    noise: Floats
    clips: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class SeparableDescent:
    """Descent along noisy means of per-record hypergradients.

    Parameters
    ----------
    gradients : callable
        (x, records) to rows (n, d), row i the hypergradient of record i and of nothing else: no state passes from one
        record to another (no warm start, no batch statistics). `backends.separable_gradients` makes one of two losses.
    domain : Box or Ball
        Of x, public.
    records : int
        n; under add/remove a public bound of it, which is the denominator.
    mu, epsilon : float
        One of the two: what the run costs, ``epsilon`` at ``delta``; mu is before sampling.
    steps : int
    clip : float
        c. Privacy holds whatever it is.
    rate : float
        Step size.
    start : array (d,), optional
        Public; the middle of the domain by default.
    adaptive_clip : AdaptiveClip, optional
    sample_rate : float, optional
        q: in each step a record takes part with this probability, in secret. Not with adaptive_clip.
    neighbours : Neighbours
    count : callable
        How many records there are: ``len`` by default.
    output : {"tail", "window", "uniform"}
    delta, unit

    Raises
    ------
    ValueError
        A parameter out of range.
    """

    gradients: Callable[[Floats, Any], Floats]
    domain: Box | Ball
    records: int
    steps: int
    clip: float
    rate: float
    mu: float | None = None
    epsilon: float | None = None
    start: Floats | None = None
    adaptive_clip: AdaptiveClip | None = None
    sample_rate: float | None = None
    neighbours: Neighbours = Neighbours.REPLACE
    count: Callable[[Any], int] = len
    output: Output = "tail"
    delta: float = 1e-6
    unit: str = "one task"

    name = "private-separable-descent"

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        if self.records < 1 or not (1e-50 < self.clip < 1e50 and 0 < self.rate < math.inf):
            raise ValueError("records must be at least 1, clip and rate positive numbers of ordinary size.")
        if self.adaptive_clip is not None and self.sample_rate is not None:
            raise ValueError("sample_rate and adaptive_clip have no common account here: leave one of them out.")
        if not self.domain.contains(self.first[None])[0]:
            raise ValueError("start must be a point of the domain.")
        _ = self.account

    # --- public

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    @cached_property
    def account(self) -> ClippedSteps:
        """Noise and cost of the steps."""
        return ClippedSteps.within(
            steps=self.steps,
            mu=self.mu,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            sample_rate=self.sample_rate,
        )

    @cached_property
    def first(self) -> Floats:
        """x_0."""
        if self.start is not None:
            return np.atleast_1d(np.asarray(self.start, dtype=np.float64))
        if isinstance(self.domain, Ball):
            return np.array(self.domain.center, dtype=np.float64)
        return 0.5 * (np.array(self.domain.lower) + np.array(self.domain.upper))

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """Of the whole run, whatever the losses are."""
        if self.n_is_public and n != self.records:
            raise ValueError(f"The descent is for {self.records:,} records; give that number as n.")
        return self.account.loss

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {
            "domain": repr(self.domain),
            "records": int(self.records),
            "steps": int(self.steps),
            "clip": self.clip,
            "rate": self.rate,
            "noise_multiplier": self.account.multiplier,
            "sample_rate": self.account.sample_rate,
            "neighbours": self.neighbours.value,
            "start": self.first.tolist(),
            "adaptive_clip": None if self.adaptive_clip is None else vars(self.adaptive_clip).copy(),
            "output": self.output,
        }

    # --- with records

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse another number of records before anything is spent."""
        check_count(self.count(records), self.records, self.neighbours)
        return self.records if self.n_is_public else None

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> SeparableRelease:
        """The run. Called by the ledger after the loss is reserved."""
        n, account, adaptive = self.count(records), self.account, self.adaptive_clip
        check_count(n, self.records, self.neighbours)
        share = 0.0 if adaptive is None else adaptive.share
        s, s_fraction = account.multiplier / math.sqrt(1.0 - share), 0.0
        if adaptive is not None:
            # the fraction's sum moves by 1 where that of the contributions moves by 2 (replace) or 1
            s_fraction = (
                account.multiplier / math.sqrt(share) * (1.0 if self.neighbours is Neighbours.ADD_REMOVE else 0.5)
            )
        x, clip, expected = self.first, self.clip, self.records * (account.sample_rate or 1.0)
        path, released, noise, clips = [x], [], [], []
        for _ in range(account.steps):
            rows = np.asarray(self.gradients(x, records), dtype=np.float64)
            if rows.shape != (n, len(x)):
                raise PublicError(f"gradients must return one row of {len(x)} numbers for each record.")
            total = clipped_sum(rows, clip, account.sample(n, randomness), self.records)
            sigma = s * clip / expected
            noisy = total / expected + sigma * randomness.standard_normal(x.shape)
            released.append(to_lattice(noisy, lattice_spacing(sigma)))
            noise.append(sigma)
            clips.append(clip)
            if adaptive is not None:
                inside = float(np.count_nonzero(np.linalg.norm(rows, axis=1) <= clip))
                clip = adaptive.moved(clip, (inside + s_fraction * float(randomness.standard_normal())) / self.records)
            x = self.domain.clamp((x - self.rate * released[-1])[None])[0]
            path.append(x)
        certificate = Certificate.issue(
            self,
            n=self.records if self.n_is_public else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=account.loss,
            enforced=(
                "The hypergradient of each record is clipped before records are added; one that is not finite is 0.",
                *(("Who takes part in a step is drawn anew, in secret.",) if account.sample_rate else ()),
            ),
            declared=(
                "The hypergradient of a record depends on that record, the point and public material alone.",
                "The public parameters were not chosen by looking at these records.",
            ),
            limits=("Every iterate and every noisy gradient is public; no inner solution is released.",),
        )
        x = public_output(self.output, np.array(path), np.array(released), randomness)
        return SeparableRelease(certificate, x, np.array(path), np.array(released), np.array(noise), np.array(clips))
