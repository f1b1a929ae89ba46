"""Exponential mechanisms on a continuous domain, for outer objectives that are convex for every data set.

    plain          density ~ exp(-k Phi),                        bounded range epsilon, k = epsilon / (Delta + 4a)
    regularised    density ~ exp(-k (Phi + (m/2) |x - c|^2)),    Gaussian DP with mu = (2K/n) sqrt(k/m)

c the centre of the domain. The second is by Gopi, Lee and Liu (2022), Theorem 4. Both are drawn exactly, by rejection
from tangent planes. Proof: `docs/proofs/bilevel-regularised.md`. The Lipschitz constant that Lowy and Liu (2025) print
for the second leaves out the inner curvature and is false; 2K/n takes its place.
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
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.problem import BilevelProblem, Grid, Layout
from discretion.bilevel.report import ContinuousReport
from discretion.bilevel.samplers import ConvexDensity, linear_on_ball
from discretion.bilevel.sensitivity import Bound, hypergradient_error, hypergradient_sensitivity, range_bound
from discretion.gp import Ball, Box
from discretion.privacy import (
    BestOf,
    BoundedRange,
    Certificate,
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    Randomness,
    Release,
    RenyiCurve,
    gaussian_delta,
    gaussian_mu,
    largest,
)
from discretion.privacy.frames import cleared
from discretion.privacy.quiet import silent

__all__ = ["ContinuousChoice", "ConvexExponential", "RegularisedExponential", "inexact_gaussian", "tie_dimension"]

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
class _Convex:
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

    name = ""

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
        self.constants.need_differentiable("A tangent plane")
        _ = self.privacy_loss(self.problem.counts.total)
        if self.tolerance < self.problem.least_tolerance(self._farthest):
            raise Refused(
                "Double precision does not reach the accuracy of the inner solutions that these numbers of records "
                "need. Raise the strong convexity or value_share."
            )

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the problem."""
        return self.problem.neighbours

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.neighbours is not Neighbours.ADD_REMOVE

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

    @abstractmethod
    def privacy_loss(self, n: int) -> PrivacyLoss:
        """What one run costs."""

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
        epsilon = self.privacy_loss(self.problem.counts.total).epsilon(self.delta)
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

    @cleared
    def check(self, records: Any) -> int | None:
        """Refuse records of the wrong shape or number before anything is spent."""
        self.problem.ingest(records)
        return self.problem.counts.total if self.n_is_public else None

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> ContinuousChoice:
        """The choice. Called by the ledger after the loss is reserved.

        Raises:
            InnerNotCertified: an inner solution is not as accurate as the guarantee needs.
            EnvelopeViolated: the objective is not convex after all.
        """
        total = self.problem.counts.total
        x = self._draw(self.problem.ingest(records), randomness)
        clipped = ("Records are shortened or clipped one by one to the declared domain.",)
        fact = self.problem.convex
        certificate = Certificate.issue(
            self,
            n=total if self.n_is_public else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.privacy_loss(total),
            enforced=(
                *(clipped if self.problem.verified else ()),
                "Every inner solution has the gradient norm that its error bound needs.",
                "Draws are exact, by rejection; every value was at least its lower bound.",
            ),
            declared=(
                *(() if fact else ("The outer objective is convex for every data set that could be held.",)),
                *self.problem.declarations,
            ),
        )
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

        def tangent(x: Floats) -> tuple[float, Floats]:
            y = problem.certified(x, records, self.tolerance)
            gradient, residual = problem.hypergradient(x, y, records)
            off = max(residual - tau, 0.0) * self.constants.l
            far = x - centre
            # an inexact linear solve lowers the plane as much as it can tilt it within the domain
            value = problem.outer_value(x, y, records) - off * 2.0 * self.radius
            return value + 0.5 * m * float(far @ far), gradient + m * far

        def value(x: Floats) -> float:
            y = problem.certified(x, records, self.tolerance)
            return problem.outer_value(x, y, records) + 0.5 * m * float((x - centre) @ (x - centre))

        def slack(distance: float) -> float:
            return 2.0 * a + wrong * distance + 1e-12 / k

        return ConvexDensity(tangent, value, box, k, slack, nearest=nearest, cells=self.cells)


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvexExponential(_Convex):
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

    def privacy_loss(self, n: int) -> BoundedRange:
        """Bounded range epsilon."""
        if not (1e-9 < self.epsilon < math.inf and 0.0 < self.range.value < math.inf):
            raise ValueError("epsilon must be above 1e-9 and finite, and so must the range of differences.")
        return BoundedRange(self.epsilon, neighbours=self.neighbours, rule="exponential mechanism, bounded range")


@dataclass(frozen=True, eq=False, kw_only=True)
class RegularisedExponential(_Convex):
    """Density ~ exp(-k (Phi + (m/2) |x - c|^2)): Gaussian DP with mu = (2K/n) sqrt(k/m), and a little for errors.

    m = sqrt(2 d) (2K/n) / (mu R) is the best for its bound, E Phi(x) - min Phi <= sqrt(2 d) (2K/n) R / mu.

    Parameters
    ----------
    mu : float, optional
        Of the exact mechanism; or ``epsilon``, with which mu meets (epsilon, delta).
    m : float, optional
    """

    mu: float | None = None
    epsilon: float | None = None
    m: float | None = None
    value_share: float = 1e-5

    name = "private-bilevel-regularised-choice"

    def __post_init__(self) -> None:
        if (self.mu is None) == (self.epsilon is None):
            raise ValueError("Give either mu, or epsilon to have the mu that meets it at delta.")
        for label in ("mu", "epsilon", "m"):
            value = getattr(self, label)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{label} must be a positive finite number; got {value!r}.")
        super().__post_init__()

    @cached_property
    def price(self) -> float:
        """mu of the exact mechanism."""
        if self.mu is not None:
            return float(self.mu)
        assert self.epsilon is not None
        epsilon, most = self.epsilon, gaussian_mu(self.epsilon, self.delta)
        if self._exact:
            return most
        return largest(
            lambda mu: self._loss(mu).epsilon(self.delta) <= epsilon, 0.5 * most, most, relative_tolerance=1e-5
        )

    @property
    def _exact(self) -> bool:
        return isinstance(self.problem, QuadraticMean)

    def _loss(self, mu: float) -> PrivacyLoss:
        if self._exact:
            return GaussianDP(mu, neighbours=self.neighbours, rule="regularised exponential mechanism")
        return inexact_gaussian(mu, self._k(mu) * self.value_error, self.neighbours)

    @cached_property
    def lipschitz(self) -> Bound:
        """2K/n: of Phi_Z - Phi_Z'."""
        return hypergradient_sensitivity(self.constants, self.problem.counts)

    @property
    def sensitivity(self) -> Bound:
        return self.lipschitz

    def _modulus(self, mu: float) -> float:
        if self.m is not None:
            return self.m
        return math.sqrt(2.0 * self.problem.x_domain.dimension) * self.lipschitz.value / (mu * self.radius)

    def _k(self, mu: float) -> float:
        return mu**2 * self._modulus(mu) / self.lipschitz.value**2

    @property
    def modulus(self) -> float:
        return self._modulus(self.price)

    @property
    def k(self) -> float:
        return self._k(self.price)

    @property
    def value_error(self) -> float:
        return self.value_share * self.lipschitz.value * self.radius

    @property
    def expected_excess(self) -> float:
        """Bound of E Phi(x) - min Phi, public: d/k + m R^2/2."""
        d = self.problem.x_domain.dimension
        return d / self.k + 0.5 * self.modulus * self.radius**2 + 2.0 * self.value_error

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """Gaussian DP, and what inexact values add: exact draws of exp(-k Phi~), |Phi~ - Phi| <= a."""
        if not 0.0 < self.lipschitz.value < math.inf:
            raise Refused("2K/n must be positive and finite for this mechanism.")
        return self._loss(self.price)


def inexact_gaussian(mu: float, zeta: float, neighbours: Neighbours) -> PrivacyLoss:
    """mu-GDP of ideal laws, where the output laws are within exp(+-2 zeta) of them at every point.

    D_alpha <= alpha mu^2/2 + 2 zeta (2 alpha - 1)/(alpha - 1),     at least 1 + 2 sqrt(zeta)/mu in alpha
    delta(e) = exp(2 zeta) delta_mu(e - 4 zeta)
    """
    turn = 2.0 * math.sqrt(zeta) / mu
    rule = "regularised exponential mechanism with inexact values"

    def renyi(excess: Floats) -> Floats:
        x = np.maximum(excess, turn)
        return (1.0 + x) * (0.5 * mu * mu) + 2.0 * zeta * (2.0 + 1.0 / x)

    e = np.linspace(0.0, 0.5 * mu * mu + 9.0 * mu, 400)
    exact = [gaussian_delta(mu, float(each)) for each in e]
    # at -4 zeta by the mirror image of the profile
    first = -math.expm1(-4.0 * zeta) + math.exp(-4.0 * zeta) * gaussian_delta(mu, 4.0 * zeta)
    epsilons, deltas = np.append(0.0, e + 4.0 * zeta), np.append(first, exact)
    deltas = np.minimum(np.exp(2.0 * zeta) * deltas * (1.0 + 1e-12), 1.0)
    profile = PrivacyProfile(tuple(epsilons), tuple(deltas), neighbours=neighbours, rule=rule)
    return BestOf((RenyiCurve(renyi, neighbours=neighbours, rule=rule), profile))


def tie_dimension(epsilon: float, delta: float) -> float:
    """Dimension up to which, for one release at (epsilon, delta), the plain mechanism has the better bound.

    eta^2 / (2 mu^2): eta the bounded range and mu the Gaussian DP that (epsilon, delta) pays for.
    """

    def meets(eta: float) -> bool:
        return BoundedRange(eta, neighbours=Neighbours.REPLACE).epsilon(delta) <= epsilon

    return largest(meets, epsilon, epsilon + 50.0) ** 2 / (2.0 * gaussian_mu(epsilon, delta) ** 2)
