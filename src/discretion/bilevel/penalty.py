"""A baseline: the first-order penalty method, after Kornowski (2026), with constants of our own.

    y_p(x) = argmin F + p G,    q = grad_x F(x, y_p) + p (grad_x G(x, y_p) - grad_x G(x, y(x)))

q is within `sensitivity.penalty_bias` of grad Phi. y and y_p come from noisy gradient descent, so that q is a mean at
public points, clipped record by record: no Hessian, no constants, and noise that grows with d_y. Proof of privacy:
`docs/proofs/bilevel-clipped.md`, Theorem 1; of the bias: `docs/proofs/bilevel-sensitivity.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.budget import RULE, gaussian_budget
from discretion.bilevel.clipping import CLIPPED, OWN, not_covered, suprema
from discretion.bilevel.constants import MissingConstant, Refused
from discretion.bilevel.counts import Layout, SplitRecords, in_blocks
from discretion.bilevel.domains import Grid
from discretion.bilevel.losses import Problem
from discretion.bilevel.mechanism import ProblemMechanism
from discretion.bilevel.outputs import Output, check_output, public_output
from discretion.bilevel.report import ClippedPart, ClippedReport
from discretion.bilevel.sensitivity import penalty_bias
from discretion.gp import Ball
from discretion.privacy import GaussianDP, Neighbours, PublicError, Randomness, Release
from discretion.privacy.clipping import clipped_sum
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["PenaltyDescent", "PenaltyRelease"]

Floats = NDArray[np.float64]

_RELEASED = "All iterates (x, y and the penalised y) and all noisy gradients of the penalty method, run"


@dataclass(frozen=True, eq=False, repr=False)
class PenaltyRelease(Release):
    """The path x_0, ..., x_T of the penalty method, the chosen x, the gradients as released, the last y, y_p, and the
    public facts that it rests on."""

    x: Floats
    path: Floats
    gradients: Floats
    y: Floats
    y_penalty: Floats
    facts: ClippedReport

    def report(self) -> ClippedReport:
        """Break-down of noise and cost, bias, and whether the run could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class PenaltyDescent(ProblemMechanism):
    """The penalty method by noisy clipped gradients: mu-GDP, whatever the losses are.

    Parameters
    ----------
    problem : Problem
        Given by two losses, joint or split, on a Box or Ball.
    weight : float
        p: the larger, the smaller the bias, and the larger the noise.
    clip : float
        c of q_i; about L_fx + l L_fy is natural.
    inner_clip : float
        c_y of the gradients in y, of g and of g + f/p.
    steps, inner_steps : int
        T outer steps, each after N inner ones for y and N for y_p, which go on from the last.
    rate, inner_rate : float
    outer_share : float
        Share of mu^2 for the outer gradients.
    mu, epsilon : float
        One of the two: what the run costs, ``epsilon`` at ``delta``.
    output, delta, unit

    Raises
    ------
    ValueError
        A parameter out of range.
    """

    problem: Problem  # pyright: ignore[reportIncompatibleVariableOverride]
    weight: float
    clip: float
    inner_clip: float
    steps: int
    inner_steps: int
    rate: float
    inner_rate: float
    outer_share: float = 0.5
    mu: float | None = None
    epsilon: float | None = None
    output: Output = "tail"
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-penalty-descent"

    def __post_init__(self) -> None:
        if isinstance(self.problem.x_domain, Grid) or self.problem.layout is Layout.SEPARABLE:
            raise ValueError("The penalty method needs a Box or Ball, and the joint or split layout.")
        for label in ("weight", "clip", "inner_clip", "rate", "inner_rate"):
            if not 1e-50 < getattr(self, label) < 1e50:
                raise ValueError(f"{label} must be a positive number of ordinary size.")
        if min(self.steps, self.inner_steps) < 1 or not 0 < self.outer_share < 1:
            raise ValueError("steps and inner_steps must be at least 1, outer_share strictly between 0 and 1.")
        check_output(self.output)
        _ = self.price

    @cached_property
    def price(self) -> float:
        """mu of the run."""
        return gaussian_budget(self.mu, self.epsilon, self.delta)

    @property
    def _change(self) -> float:
        """Most that one record moves a mean of vectors clipped to length 1."""
        counts, twice = self.problem.counts, 1.0 if self.neighbours is Neighbours.ADD_REMOVE else 2.0
        return twice / min(counts.training, counts.outer)

    @property
    def noise(self) -> tuple[float, float]:
        """Standard deviations of the outer and the inner gradients: mu^2 = T ((D/s_x)^2 + 2 N (D_y/s_y)^2)."""
        change = self._change * (1.0 + 1e-12)
        outer = change * self.clip * math.sqrt(self.steps / self.outer_share) / self.price
        queries = 2.0 * self.inner_steps * self.steps
        return outer, change * self.inner_clip * math.sqrt(queries / (1.0 - self.outer_share)) / self.price

    @property
    def loss(self) -> GaussianDP:
        """mu-GDP for the whole run."""
        return GaussianDP(self.price, neighbours=self.neighbours, rule=RULE)

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        names = ("weight", "clip", "inner_clip", "steps", "inner_steps", "rate", "inner_rate", "outer_share", "output")
        stated = {
            "released": _RELEASED,
            "problem": self.problem.parameters(),
            "mu": self.price,
            "noise": list(self.noise),
        }
        return stated | {name: getattr(self, name) for name in names}

    def report(self) -> ClippedReport:
        """What the run rests on, before any record is read."""
        d_x, d_y = self.problem.x_domain.dimension, len(self.problem.y_init)
        (outer, inner), change, bias, unknown = self.noise, self._change, None, None
        try:
            bias = penalty_bias(self.problem.constants(), self.weight)
        except (MissingConstant, Refused) as error:
            unknown = str(error)

        def part(name: str, d: int, releases: int, clip: float, noise: float) -> ClippedPart:
            return ClippedPart(name, d, releases, clip, clip * change, noise)

        queries = self.steps * self.inner_steps
        return ClippedReport(
            steps=self.steps,
            mu=self.price,
            epsilon=self.loss.epsilon(self.delta),
            delta=self.delta,
            parts=(
                part("hypergradients", d_x, self.steps, self.clip, outer),
                part("inner gradients", d_y, queries, self.inner_clip, inner),
                part("penalised inner gradients", d_y, queries, self.inner_clip, inner),
            ),
            constants=suprema(self.problem),
            bias=bias,
            unknown=unknown,
        )

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=(CLIPPED,),
            declared=(OWN, *self.problem.partition),
            limits=("All iterates, inner ones too, are public.", *not_covered(self.neighbours)),
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> PenaltyRelease:
        """The run. Called by the ledger after the loss is reserved."""
        problem, p = self.problem, self.weight
        held, domain = problem.ingest(records), problem.x_domain
        assert not isinstance(domain, Grid)
        derivatives: Any = problem.derivatives
        x = np.array(domain.center) if isinstance(domain, Ball) else 0.5 * np.add(domain.lower, domain.upper)
        d_x, y = len(x), problem.y_init
        z = y
        outer_noise, inner_noise = self.noise

        def noisy(vector: Floats, sigma: float) -> Floats:
            return to_lattice(vector + sigma * randomness.standard_normal(vector.shape), lattice_spacing(sigma))

        def slope(at: Floats, share: float) -> Floats:
            """Noisy grad_y of G + share F."""
            mean = self._mean(
                len(y),
                held,
                lambda Z: derivatives.inner_first(x, at, Z)[:, d_x:],
                lambda Z: share * derivatives.outer_first(x, at, Z)[:, d_x:] if share else 0.0,
                self.inner_clip,
            )
            return noisy(mean, inner_noise) + derivatives.regulariser_first(x, at)[d_x:]

        path, released = [x], []
        for _ in range(self.steps):
            for _ in range(self.inner_steps):
                y = y - self.inner_rate * slope(y, 0.0)
                z = z - self.inner_rate * slope(z, 1.0 / p)
            if not (np.isfinite(y).all() and np.isfinite(z).all()):
                raise PublicError("The released inner iterates grew without bound: lower inner_rate.")

            def difference(Z: Any, x: Floats = x, y: Floats = y, z: Floats = z) -> Floats:
                return p * (derivatives.inner_first(x, z, Z) - derivatives.inner_first(x, y, Z))[:, :d_x]

            def own(Z: Any, x: Floats = x, z: Floats = z) -> Floats:
                return derivatives.outer_first(x, z, Z)[:, :d_x]

            q = noisy(self._mean(d_x, held, difference, own, self.clip), outer_noise)
            q = q + p * (derivatives.regulariser_first(x, z) - derivatives.regulariser_first(x, y))[:d_x]
            released.append(q)
            x = domain.clamp((x - self.rate * q)[None])[0]
            path.append(x)
        certificate = self.certificate(randomness)
        out = public_output(self.output, np.array(path), np.array(released), randomness)
        return PenaltyRelease(certificate, out, np.array(path), np.array(released), y, z, self.report())

    def _mean(self, d: int, held: Any, inner: Any, outer: Any, clip: float) -> Floats:
        """PRIVATE. Mean (d,) of clipped rows: of inner + outer, or in the split layout of each over its own records."""
        counts = self.problem.counts
        to: Any = self.problem.backend
        if isinstance(held, SplitRecords):
            parts = ((held.training, counts.training, inner), (held.validation, counts.outer, outer))
        else:
            parts = ((held, counts.training, lambda Z: inner(Z) + outer(Z)),)
        total = np.zeros(d)
        for part, n, rows_of in parts:
            for some, real in in_blocks(to, part, n):
                rows = rows_of(some)
                if np.ndim(rows) == 2:
                    total = total + clipped_sum(rows[:real], clip, n) / n
        assert total.shape == (d,)  # each coordinate has noise of its own
        return total
