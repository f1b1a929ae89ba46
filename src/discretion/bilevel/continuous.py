"""The exponential mechanism on a continuous domain, for outer objectives that are convex for every data set.

    density ~ exp(-k Phi),    bounded range epsilon, k = epsilon / (Delta + 4a)

It is drawn exactly, by rejection from tangent planes; so is the regularised one of `regularised.py`, which shares all
but the price. Proof: `docs/proofs/bilevel-regularised.md`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, Refused
from discretion.bilevel.counts import Layout
from discretion.bilevel.domains import Grid
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.mechanism import ProblemMechanism
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.report import ContinuousReport
from discretion.bilevel.samplers import ConvexDensity, linear_on_ball
from discretion.bilevel.sensitivity import Bound, hypergradient_error, range_bound
from discretion.gp import Ball, Box
from discretion.privacy import (
    BoundedRange,
    Neighbours,
    Randomness,
    Release,
    gaussian_mu,
    largest,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = ["ContinuousChoice", "ContinuousMechanism", "ConvexExponential", "tie_dimension"]

Floats = NDArray[np.float64]

_MOST_DIMENSIONS = 4


@dataclass(frozen=True, eq=False, repr=False)
class ContinuousChoice(Release):
    """The chosen outer point x (d,), and the public facts that the choice rests on."""

    x: Floats
    facts: ContinuousReport

    def report(self) -> ContinuousReport:
        """Sensitivity, k, m, break-down, bound of the excess, constants."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class ContinuousMechanism(ProblemMechanism):
    """What both share.

    Parameters
    ----------
    problem : BilevelProblem
        On a Box or Ball in at most four dimensions (`QuadraticMean` without regulariser: any).
    convex : bool
        True: your assertion that Phi is convex for EVERY data set, not only the one held. Problems that say so of
        themselves (`problem.convex`) need none. No test on the records at hand can show it.
    value_share : float
        Error allowed in a value, as a share of the sensitivity.
    cells : int
        How many tangents bound the objective from below: time alone.
    delta : float
        At which the certificate states epsilon.
    unit : str
        The unit of privacy in words.
    """

    problem: BilevelProblem
    convex: bool = False
    value_share: float = 0.0025
    cells: int = 256
    delta: float = 1e-6
    unit: str = "one record"

    def __post_init__(self) -> None:
        if not (self.convex or self.problem.convex):
            raise Refused(
                "These mechanisms hold where Phi is convex for every data set that could be held. If that is proved, "
                "say convex=True; otherwise choose on a grid, which needs no convexity."
            )
        if self.problem.layout is Layout.SEPARABLE:
            raise Refused("Every record has an inner problem of its own here: clip its hypergradient and add noise.")
        if isinstance(self.problem.x_domain, Grid):
            raise ValueError("The domain is a finite list: use ExponentialMechanism.")
        closed = isinstance(self.problem, QuadraticMean) and isinstance(self, ConvexExponential)
        if self.problem.x_domain.dimension > _MOST_DIMENSIONS and not closed:
            raise Refused(
                f"There is no certified sampler in more than {_MOST_DIMENSIONS} dimensions: use noisy hypergradient "
                "descent."
            )
        if not 0 < self.value_share < 1 or self.cells < 1 or not 0 < self.delta < 1:
            raise ValueError("value_share and delta must lie strictly between 0 and 1, cells be at least 1.")
        self.problem.need_inner_domain()
        self.constants.need_differentiable("A tangent plane")
        _ = self.loss
        if self.tolerance < self.problem.least_tolerance(self._farthest):
            raise Refused(
                "Double precision does not reach the accuracy of the inner solutions that these numbers of records "
                "need. Raise the strong convexity or value_share."
            )

    @cached_property
    def constants(self) -> Constants:
        """Suprema over the domain."""
        return self.problem.constants()

    @property
    @abstractmethod
    def k(self) -> float:
        """Inverse temperature."""

    @property
    @abstractmethod
    def value_error(self) -> float:
        """a: public bound of the error of a computed value."""

    @property
    def modulus(self) -> float:
        """m."""
        return 0.0

    @property
    def alpha(self) -> float:
        """Distance of a computed inner solution from the exact one: a / (2 L_fy). The rest of a is for rounding."""
        slope = self.constants.get("L_fy")
        return 0.5 * self.value_error / slope if slope > 0 else 1.0

    @property
    def tolerance(self) -> float:
        """Gradient norm of inner solutions."""
        return self.constants.get("mu_g") * self.alpha

    @property
    def _box(self) -> tuple[Box, Any, Floats]:
        """A box around the domain, the nearest point of the domain if that is a ball, its centre."""
        domain = self.problem.x_domain
        if isinstance(domain, Box):
            return domain, None, 0.5 * (np.array(domain.lower) + np.array(domain.upper))
        assert isinstance(domain, Ball)
        centre = np.array(domain.center)
        box = Box(tuple(centre - domain.radius), tuple(centre + domain.radius))
        return box, lambda x: domain.clamp(x[None])[0], centre

    @property
    def _farthest(self) -> Floats:
        """The longest point of the domain, where rounding is worst."""
        domain = self.problem.x_domain
        if isinstance(domain, Box):
            low, high = np.array(domain.lower), np.array(domain.upper)
            return np.where(-low > high, low, high)
        assert isinstance(domain, Ball)
        centre = np.array(domain.center)
        length = float(np.linalg.norm(centre))
        direction = centre / length if length > 0 else np.eye(len(centre))[0]
        return centre + domain.radius * direction

    @property
    def radius(self) -> float:
        """R_x: circumradius of the domain."""
        return 0.5 * self.problem.x_domain.diameter()

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        return {
            "released": "One point of a continuous domain, chosen",
            "problem": self.problem.parameters(),
            "k": self.k,
            "m": self.modulus,
            "value_share": self.value_share,
            "cells": int(self.cells),
        }

    @property
    @abstractmethod
    def sensitivity(self) -> Bound:
        """What the mechanism pays for."""

    @property
    @abstractmethod
    def expected_excess(self) -> float:
        """Bound of E Phi(x) - min Phi, public."""

    def report(self) -> ContinuousReport:
        """What the choice rests on, before any record is read."""
        epsilon = self.loss.epsilon(self.delta)
        return ContinuousReport(
            mechanism="plain" if self.modulus == 0.0 else "regularised",
            sensitivity=self.sensitivity,
            k=self.k,
            m=self.modulus,
            expected_excess=self.expected_excess,
            value_error=self.value_error,
            plain_up_to=tie_dimension(epsilon, self.delta),
            dimension=self.problem.x_domain.dimension,
            verified=self.problem.verified,
            convex=self.problem.convex,
            certified=True,
            constants=self.constants,
        )

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        convex = "The outer objective is convex for every data set that could be held."
        return Sentences(
            enforced=(
                *self.problem.enforcements,
                "Every inner solution has the gradient norm that its error bound needs.",
                "The draw is exact, by rejection; every value was at least its lower bound.",
            ),
            declared=(*(() if self.problem.convex else (convex,)), *self.problem.declarations),
            limits=("Double precision: last bits, and points of a chance below 2^-53, which are never drawn.",),
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> ContinuousChoice:
        """The choice. Called by the ledger after the loss is reserved.

        Raises:
            InnerNotCertified: an inner solution is not as accurate as the guarantee needs.
            EnvelopeViolated: the objective is not convex after all.
        """
        x = self._draw(self.problem.ingest(records), randomness)
        certificate = self.certificate(randomness)
        return ContinuousChoice(certificate, x, self.report())

    def _draw(self, records: Any, randomness: Randomness) -> Floats:
        problem, m = self.problem, self.modulus
        if isinstance(problem, QuadraticMean) and m == 0.0:
            return linear_on_ball(self.k * problem.mean(records), randomness)
        return self.density(records).draw(randomness)

    def density(self, records: Any) -> ConvexDensity:
        """PRIVATE. The density for ingested records."""
        problem, m, k, alpha, a = self.problem, self.modulus, self.k, self.alpha, self.value_error
        box, nearest, centre = self._box
        tau = 1e-3 * alpha * self.constants.get("mu_g")  # of the linear solves, checked below
        wrong = hypergradient_error(self.constants, alpha, tau)

        def loss(x: Floats, y: Floats) -> float:
            found = problem.outer_value(x, y, records)
            problem.check_rounding(found, a)
            return found

        def tangent(x: Floats) -> tuple[float, Floats]:
            y = problem.certified(x, records, self.tolerance)
            gradient, residual = problem.hypergradient(x, y, records)
            off = max(residual - tau, 0.0) * self.constants.l
            far = x - centre
            # an inexact linear solve lowers the plane as much as it can tilt it within the domain
            value = loss(x, y) - off * 2.0 * self.radius
            return value + 0.5 * m * float(far @ far), gradient + m * far

        def value(x: Floats) -> float:
            y = problem.certified(x, records, self.tolerance)
            return loss(x, y) + 0.5 * m * float((x - centre) @ (x - centre))

        def slack(distance: float) -> float:
            return 2.0 * a + wrong * distance + 1e-12 / k

        return ConvexDensity(tangent, value, box, k, slack, nearest=nearest, cells=self.cells)


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvexExponential(ContinuousMechanism):
    """Density ~ exp(-(epsilon / (Delta + 4a)) Phi) on a box or ball: bounded range epsilon, so pure epsilon-DP.

    E Phi(x) - min Phi <= d Delta / epsilon, where Phi is convex (de Klerk and Laurent 2018).
    """

    epsilon: float = 1.0

    name = "private-bilevel-continuous-choice"

    @cached_property
    def range(self) -> Bound:
        """Delta."""
        return range_bound(self.constants, self.problem.counts, self.problem.x_domain.diameter())

    @property
    def sensitivity(self) -> Bound:
        return self.range

    @property
    def value_error(self) -> float:
        return self.value_share * self.range.value

    @property
    def k(self) -> float:
        return self.epsilon / (self.range.value + 4.0 * self.value_error)

    @property
    def expected_excess(self) -> float:
        """Bound of E Phi(x) - min Phi, public."""
        return self.problem.x_domain.dimension / self.k + 2.0 * self.value_error

    @property
    def loss(self) -> BoundedRange:
        """Bounded range epsilon; ValueError where it or the range of differences is 0 or not finite."""
        if not (1e-9 < self.epsilon < math.inf and 0.0 < self.range.value < math.inf):
            raise ValueError("epsilon must be above 1e-9 and finite, and so must the range of differences.")
        return BoundedRange(
            self.epsilon, neighbours=self.neighbours, rule=self.given("exponential mechanism, bounded range")
        )

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"epsilon": self.epsilon}


def tie_dimension(epsilon: float, delta: float) -> float:
    """Dimension up to which, for one release at (epsilon, delta), the plain mechanism has the better bound.

    eta^2 / (2 mu^2): eta the bounded range and mu the Gaussian DP that (epsilon, delta) pays for.
    """

    def meets(eta: float) -> bool:
        return BoundedRange(eta, neighbours=Neighbours.REPLACE).epsilon(delta) <= epsilon

    return largest(meets, epsilon, epsilon + 50.0) ** 2 / (2.0 * gaussian_mu(epsilon, delta) ** 2)
