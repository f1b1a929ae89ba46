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

from discretion.bilevel.clipping import ClippedSteps, not_covered
from discretion.bilevel.counts import Counts, check_count
from discretion.bilevel.domains import described
from discretion.bilevel.mechanism import BilevelMechanism
from discretion.bilevel.outputs import Output, check_output, public_output
from discretion.bilevel.report import ClippedPart, ClippedReport
from discretion.gp import Ball, Box
from discretion.privacy import Neighbours, PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.clipping import AdaptiveClip, clipped_sum, lengths
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["SeparableDescent", "SeparableRelease"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SeparableRelease(Release):
    """The path of a private descent, and the point to use.

    Attributes:
        certificate: what it cost.
        x: the chosen point, (d,).
        path: x_0, ..., x_T. gradients: as released, (T, d).
        noise: their standard deviation, (T,). clips: clipping norms, (T,).
        facts: what it rests on.
    """

    x: Floats
    path: Floats
    gradients: Floats
    noise: Floats
    clips: Floats
    facts: ClippedReport

    def report(self) -> ClippedReport:
        """Break-down of noise and cost, and whether the run could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class SeparableDescent(BilevelMechanism):
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
    neighbours: Neighbours = Neighbours.REPLACE  # pyright: ignore[reportIncompatibleMethodOverride]
    count: Callable[[Any], int] = len
    output: Output = "tail"
    delta: float = 1e-6
    unit: str = "one task"

    name = "private-separable-descent"

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        _ = Counts(self.records)
        if not (1e-50 < self.clip < 1e50 and 0 < self.rate < math.inf):
            raise ValueError("clip and rate must be positive numbers of ordinary size.")
        if self.adaptive_clip is not None and self.sample_rate is not None:
            raise ValueError("sample_rate and adaptive_clip have no common account here: leave one of them out.")
        check_output(self.output)
        if not self.domain.contains(self.first[None])[0]:
            raise ValueError("start must be a point of the domain.")
        _ = self.account

    # --- public

    @property
    def total(self) -> int:
        """Number of records."""
        return self.records

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

    @property
    def loss(self) -> PrivacyLoss:
        """Of the whole run, whatever the losses are."""
        return self.account.loss

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        norms = "" if self.adaptive_clip is None else ", all clipping norms"
        return {
            "released": f"All iterates{norms} and all noisy means of clipped hypergradients, run",
            "domain": described(self.domain),
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

    @property
    def _multipliers(self) -> tuple[float, float]:
        """Noise of the hypergradients over the clipping norm, and of the number of tasks within it, 0 for none."""
        s, adaptive = self.account.multiplier, self.adaptive_clip
        if adaptive is None:
            return s, 0.0
        # the fraction's sum moves by 1 where that of the contributions moves by 2 (replace) or 1
        half = 1.0 if self.neighbours is Neighbours.ADD_REMOVE else 0.5
        return s / math.sqrt(1.0 - adaptive.share), s / math.sqrt(adaptive.share) * half

    def report(self) -> ClippedReport:
        """What the run rests on, before any record is read; of an adaptive clipping norm the first."""
        (s, s_fraction), n = self._multipliers, self.records * (self.account.sample_rate or 1.0)
        d, c, change = len(self.first), self.clip, self.account.change(self.records)
        parts = [ClippedPart("hypergradients", d, self.steps, c, c * change, c * s / n)]
        if s_fraction:
            parts += [ClippedPart("tasks within the clipping norm", 1, self.steps, 1.0, 1.0 / n, s_fraction / n)]
        return self.account.report(tuple(parts), self.delta)

    # --- with records

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse another number of records before anything is spent."""
        check_count(self.count(records), self.records, self.neighbours)
        return self.records if self.n_is_public else None

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=self.account.enforced,
            declared=(
                "The hypergradient of a record depends on that record, the point and public material alone: no state "
                "passes from one record to another.",
            ),
            limits=("No inner solution is released.", *not_covered(self.neighbours)),
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> SeparableRelease:
        """The run. Called by the ledger after the loss is reserved."""
        n, account, adaptive = self.count(records), self.account, self.adaptive_clip
        check_count(n, self.records, self.neighbours)
        s, s_fraction = self._multipliers
        x, clip, expected = self.first, self.clip, self.records * (account.sample_rate or 1.0)
        path, released, noise, clips = [x], [], [], []
        for _ in range(account.steps):
            rows = np.asarray(self.gradients(x, records), dtype=np.float64)
            if rows.shape != (n, len(x)):
                raise PublicError(f"gradients must return one row of {len(x)} numbers for each record.")
            total = clipped_sum(rows, clip, self.records, account.sample(n, randomness))
            sigma = s * clip / expected
            noisy = total / expected + sigma * randomness.standard_normal(x.shape)
            released.append(to_lattice(noisy, lattice_spacing(sigma)))
            noise.append(sigma)
            clips.append(clip)
            if adaptive is not None:
                inside = int(np.count_nonzero(lengths(rows) <= clip))
                clip = adaptive.moved(clip, adaptive.fraction(inside, self.records, s_fraction, randomness))
            x = self.domain.clamp((x - self.rate * released[-1])[None])[0]
            path.append(x)
        certificate = self.certificate(randomness)
        x = public_output(self.output, np.array(path), np.array(released), randomness)
        path, gradients = np.array(path), np.array(released)
        return SeparableRelease(certificate, x, path, gradients, np.array(noise), np.array(clips), self.report())
