"""Release of the inner solution at an outer point that is public: output perturbation.

    y(x) + N(0, s^2 I),    s = (D_g / (mu_g n) + 2 alpha) / mu,    alpha the error of the computed solution

mu-Gaussian DP, from `inner_shift`; it needs neither smoothness nor an unconstrained inner problem. Proof:
`docs/proofs/bilevel-sensitivity.md`, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Refused
from discretion.bilevel.domains import farthest
from discretion.bilevel.linear import LinearFamily
from discretion.bilevel.mechanism import ProblemMechanism
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.sensitivity import inner_shift
from discretion.gp import Ball, Box
from discretion.privacy import GaussianDP, PublicError, Randomness, Release
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["InnerRelease", "ReleasedSolution", "inner_noise", "perturbed"]

Floats = NDArray[np.float64]

_SHARE = 0.0025  # error of the solution, as a share of its sensitivity
_MOST_RATIO = 2.0**40  # of solution and noise: the rounding of their sum is then at most 2^-12 of the noise


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedSolution(Release):
    """A noisy inner solution y (d_y,), with the standard deviation of its noise."""

    y: Floats
    noise: float


def inner_noise(problem: BilevelProblem, x: Floats, mu: float) -> tuple[float, float]:
    """Standard deviation of the noise, and the gradient norm to solve to: public.

    Raises:
        Refused: no record can move the solution, or there is no bound; double precision does not reach that norm.
    """
    c = problem.constants(x)
    shift = inner_shift(c, problem.counts)
    if not 0.0 < shift < math.inf:
        raise Refused("D_g is 0 or not finite: no noise follows from it. Without influence, solve on public records.")
    alpha = _SHARE * shift
    noise, tolerance = (shift + 2.0 * alpha) / mu, c.get("mu_g") * alpha
    if tolerance < problem.least_tolerance(x):
        raise Refused("Double precision does not reach the accuracy that this release needs; raise the penalty.")
    if not _longest(problem, x) < _MOST_RATIO * noise < math.inf:
        raise Refused(f"mu = {mu:g} asks for noise that double precision would absorb, or cannot hold.")
    return noise, tolerance


def _longest(problem: BilevelProblem, x: Floats) -> float:
    """Public bound of |y(x)|, 0 where none is known."""
    if isinstance(problem, LinearFamily):
        return problem.reach(x)
    within = problem.inner_domain
    return farthest(within) if isinstance(within, Box | Ball) else 0.0


def perturbed(problem: BilevelProblem, x: Floats, ingested: Any, mu: float, randomness: Randomness) -> Floats:
    """PRIVATE records in, PUBLIC solution out."""
    noise, tolerance = inner_noise(problem, x, mu)
    y = problem.certified(x, ingested, tolerance)
    if not np.linalg.norm(y) < _MOST_RATIO * noise:
        raise PublicError(
            "The solution is so long that double precision would absorb its noise. Nothing is released; that this "
            "happened is an output that no guarantee covers."
        )
    return to_lattice(y + noise * randomness.standard_normal(y.shape), lattice_spacing(noise))


@dataclass(frozen=True, eq=False, kw_only=True)
class InnerRelease(ProblemMechanism):
    """The inner solution at a public x with Gaussian noise: mu-GDP.

    Parameters
    ----------
    problem : BilevelProblem
        The records of its inner loss are the ones protected; validation records do not matter to it.
    x : array (d_x,)
        Public, such as a `Choice` that was paid for.
    mu : float
    delta : float
        At which the certificate states epsilon.
    unit : str

    Raises
    ------
    ValueError
        mu is not positive and finite, or x lies outside the domain.
    Refused
        No finite noise follows from the constants.
    """

    problem: BilevelProblem
    x: Floats
    mu: float
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-inner-solution"

    def __post_init__(self) -> None:
        self.problem.need_inner_domain()
        object.__setattr__(self, "x", np.atleast_1d(np.asarray(self.x, dtype=np.float64)))
        if not 0 < self.mu < math.inf:
            raise ValueError(f"mu must be a positive finite number; got {self.mu!r}.")
        if not self.problem.x_domain.contains(self.x[None])[0]:
            raise ValueError("x lies outside the domain, where the constants need not hold.")
        _ = self.noise

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in each coordinate."""
        return inner_noise(self.problem, self.x, self.mu)[0]

    @property
    def loss(self) -> GaussianDP:
        """mu-GDP."""
        return GaussianDP(self.mu, neighbours=self.neighbours, rule=self.given("Gaussian noise on the inner solution"))

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {
            "released": "A noisy inner solution, computed",
            "problem": self.problem.parameters(),
            "x": self.x.tolist(),
            "mu": self.mu,
            "noise": self.noise,
            "constants": self.stated(self.problem.constants(self.x)),
        }

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        return Sentences(
            enforced=(
                *self.problem.enforcements,
                "The inner solution has the gradient norm that its error bound needs.",
            ),
            declared=("x is public, or a release that was paid for.", *self.problem.declarations),
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> ReleasedSolution:
        """The noisy solution. Called by the ledger after the loss is reserved."""
        y = perturbed(self.problem, self.x, self.problem.ingest(records), self.mu, randomness)
        certificate = self.certificate(randomness)
        return ReleasedSolution(certificate, y, self.noise)
