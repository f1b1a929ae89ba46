"""Bilevel optimisation without any assumption on the losses: inner variable, linear system and outer variable descend
together, along sums of vectors that are clipped record by record (Dagreou et al. 2022, made private).

Per record, at public x, y, v:

    A_i = grad_y g_i,    B_i = (grad^2_yy g_i) v - grad_y f_i,    Q_i = grad_x f_i - (grad^2_xy g_i) v
    y <- y - e_y (A + grad_y R),    v <- v - e_v (B + (grad^2_yy R) v),    x <- Proj(x - e_x (Q - (grad^2_xy R) v))

A, B, Q are noisy means of (A_i/c_y, B_i/c_v, Q_i/c_x), clipped to length 1 together, so that a step is one Gaussian
release. There is noise in 2 d_y + d_x dimensions, and clipping biases: that is what the assumptions of `descent.py`
would buy. Convergence is not claimed. Proof of privacy: `docs/proofs/bilevel-clipped.md`, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.clipping import OWN, ClippedSteps, not_covered, suprema
from discretion.bilevel.counts import Layout, SplitRecords, in_blocks
from discretion.bilevel.domains import Grid
from discretion.bilevel.losses import Problem
from discretion.bilevel.mechanism import ProblemMechanism
from discretion.bilevel.outputs import Output, check_output, public_output
from discretion.bilevel.report import ClippedPart, ClippedReport
from discretion.gp import Ball
from discretion.privacy import PrivacyLoss, PublicError, Randomness, Release
from discretion.privacy.clipping import clipped_sum
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["ClippedBilevel", "ClippedRelease"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ClippedRelease(Release):
    """The path of a private descent, and the point to use; the last y (d_y,) and v are public too.

    Attributes:
        certificate: what it cost.
        x: the chosen point. y: the last inner variable. v: the last solution of the linear system.
        path: x_0, ..., x_T. gradients: released Q - (grad^2_xy R) v, (T, d_x).
        noise: standard deviations of A, B and Q in each coordinate.
        facts: what it rests on.
    """

    x: Floats
    y: Floats
    v: Floats
    path: Floats
    gradients: Floats
    noise: tuple[float, float, float]
    facts: ClippedReport

    def report(self) -> ClippedReport:
        """Break-down of noise and cost, and whether the run could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class ClippedBilevel(ProblemMechanism):
    """The single-loop method above.

    Parameters
    ----------
    problem : Problem
        Given by two losses, joint or split, on a Box or Ball. Its constants are not used.
    clips, rates : (float, float, float)
        c_y, c_v, c_x and e_y, e_v, e_x.
    steps : int
    mu, epsilon : float
        One of the two: what the run costs, ``epsilon`` at ``delta``; mu is before sampling.
    sample_rate : float, optional
        q: in each step a record takes part with this probability, in secret.
    inner_radius : float
        y and v are kept in balls of this radius around 0: free, as they are public.
    output : {"tail", "window", "uniform"}
    delta, unit

    Raises
    ------
    ValueError
        A parameter out of range.
    """

    problem: Problem  # pyright: ignore[reportIncompatibleVariableOverride]
    clips: tuple[float, float, float]
    rates: tuple[float, float, float]
    steps: int
    mu: float | None = None
    epsilon: float | None = None
    sample_rate: float | None = None
    inner_radius: float = math.inf
    output: Output = "tail"
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-clipped-bilevel"

    def __post_init__(self) -> None:
        if isinstance(self.problem.x_domain, Grid) or self.problem.layout is Layout.SEPARABLE:
            raise ValueError("The clipped mode needs a Box or Ball, and the joint or split layout.")
        numbers = (*self.clips, *self.rates)
        if len(self.clips) != 3 or len(self.rates) != 3 or not all(1e-50 < each < 1e50 for each in numbers):
            raise ValueError("clips and rates are three positive numbers of ordinary size each: of y, v and x.")
        check_output(self.output)
        if not self.inner_radius > 0:
            raise ValueError("inner_radius must be positive.")
        _ = self.account

    # --- public

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

    @property
    def loss(self) -> PrivacyLoss:
        """Of the whole run, whatever the losses are."""
        return self.account.loss

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {
            "released": "All iterates (x, the inner variable y and v) of clipped noisy steps, run",
            "problem": self.problem.parameters(),
            "clips": list(self.clips),
            "rates": list(self.rates),
            "steps": int(self.steps),
            "noise_multiplier": self.account.multiplier,
            "sample_rate": self.account.sample_rate,
            "inner_radius": None if math.isinf(self.inner_radius) else self.inner_radius,
            "output": self.output,
        }

    @property
    def _least(self) -> int:
        """The smaller number of records of the two types."""
        return min(self.problem.counts.training, self.problem.counts.outer)

    def report(self) -> ClippedReport:
        """What the run rests on, before any record is read."""
        d_y, d_x, n = len(self.problem.y_init), self.problem.x_domain.dimension, self._least
        sizes = zip(("inner gradients", "linear system", "hypergradients"), (d_y, d_y, d_x), self.clips, strict=True)
        change, noise = self.account.change(n), self.account.noise(n)
        parts = tuple(ClippedPart(name, d, self.steps, c, c * change, c * noise) for name, d, c in sizes)
        return self.account.report(parts, self.delta, constants=suprema(self.problem))

    # --- with records

    def mean(self, x: Floats, y: Floats, v: Floats, held: Any, randomness: Randomness) -> Floats:
        """PRIVATE. The mean of the clipped (A_i/c_y, B_i/c_v, Q_i/c_x), without noise: (2 d_y + d_x,).

        One record moves it by at most 2/m (replace) or 1/m, m the smaller number of records of the two types, before
        sampling; the sum is divided by q m.
        """
        problem, counts = self.problem, self.problem.counts
        d_y, scale = len(y), 1.0 / np.repeat(self.clips, (len(y), len(y), len(x)))
        to: Any = problem.backend
        derivatives: Any = problem.derivatives
        least = self._least
        split = isinstance(held, SplitRecords)
        total = np.zeros(len(scale))
        for part, n, inner, outer in (
            ((held.training, counts.training, True, False), (held.validation, counts.outer, False, True))
            if split
            else ((held, counts.training, True, True),)
        ):
            takes_part, at = self.account.sample(to.count(part), randomness), 0
            for some, real in in_blocks(to, part, n):
                rows = np.zeros((to.count(some), len(scale)))
                if inner:
                    rows += derivatives.inner_rows(x, y, v, some)
                    rows[:, 2 * d_y :] *= -1.0
                if outer:
                    first = derivatives.outer_first(x, y, some)
                    rows[:, d_y : 2 * d_y] -= first[:, len(x) :]
                    rows[:, 2 * d_y :] += first[:, : len(x)]
                total += (least / n) * clipped_sum(rows[:real] * scale, 1.0, n, takes_part[at : at + real])
                at += real
        return total / (least * (self.account.sample_rate or 1.0))

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=self.account.enforced,
            declared=(OWN, *self.problem.partition),
            limits=("x, y and v of every step are public.", *not_covered(self.neighbours)),
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> ClippedRelease:
        """The run. Called by the ledger after the loss is reserved."""
        problem, account = self.problem, self.account
        held = problem.ingest(records)
        domain = problem.x_domain
        assert not isinstance(domain, Grid)
        x = np.array(domain.center) if isinstance(domain, Ball) else 0.5 * np.add(domain.lower, domain.upper)
        y, v, d_y = problem.y_init, np.zeros_like(problem.y_init), len(problem.y_init)
        sigma = account.noise(self._least)
        derivatives: Any = problem.derivatives
        c_y, c_v, c_x = self.clips
        scale = np.repeat(self.clips, (d_y, d_y, len(x)))
        path, released = [x], []
        for _ in range(account.steps):
            mean = self.mean(x, y, v, held, randomness)
            noisy = to_lattice(mean + sigma * randomness.standard_normal(mean.shape), lattice_spacing(sigma)) * scale
            reg = derivatives.regulariser(x, y, v)
            noisy[: 2 * d_y] += reg[: 2 * d_y]
            noisy[2 * d_y :] -= reg[2 * d_y :]
            y = _shortened(y - self.rates[0] * noisy[:d_y], self.inner_radius)
            v = _shortened(v - self.rates[1] * noisy[d_y : 2 * d_y], self.inner_radius)
            released.append(noisy[2 * d_y :])
            x = domain.clamp((x - self.rates[2] * released[-1])[None])[0]
            path.append(x)
            if not (np.isfinite(y).all() and np.isfinite(v).all() and np.isfinite(x).all()):
                raise PublicError("The released iterates grew without bound: lower the rates, or give inner_radius.")
        certificate = self.certificate(randomness)
        out = public_output(self.output, np.array(path), np.array(released), randomness)
        noise = (sigma * c_y, sigma * c_v, sigma * c_x)
        return ClippedRelease(certificate, out, y, v, np.array(path), np.array(released), noise, self.report())


def _shortened(vector: Floats, most: float) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)
