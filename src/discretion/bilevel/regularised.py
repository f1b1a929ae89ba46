"""The regularised exponential mechanism (Gopi, Lee and Liu 2022), for objectives convex for every data set.

    density ~ exp(-k (Phi + (m/2) |x - c|^2)),    Gaussian DP with mu = (2K/n) sqrt(k/m), c the centre of the domain

The Lipschitz constant that Lowy and Liu (2025) print for it leaves out the inner curvature and is false; 2K/n takes its
place. Proof: `docs/proofs/bilevel-regularised.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Refused
from discretion.bilevel.continuous import ContinuousMechanism
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.sensitivity import Bound, hypergradient_sensitivity
from discretion.privacy import (
    BestOf,
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    RenyiCurve,
    gaussian_delta,
    gaussian_mu,
    largest,
)

__all__ = ["RegularisedExponential", "inexact_gaussian"]

Floats = NDArray[np.float64]

RULE = "regularised exponential mechanism"
INEXACT = f"{RULE} with inexact values"


@dataclass(frozen=True, eq=False, kw_only=True)
class RegularisedExponential(ContinuousMechanism):
    """Density ~ exp(-k (Phi + (m/2) |x - c|^2)): Gaussian DP with mu = (2K/n) sqrt(k/m), and a little for errors.

    m = sqrt(2 d) (2K/n) / (mu R) is the best for its bound, E Phi(x) - min Phi <= sqrt(2 d) (2K/n) R / mu.

    Parameters
    ----------
    mu : float, optional
        Of the exact mechanism; or ``epsilon``, with which mu meets (epsilon, delta).
    m : float, optional

    Raises
    ------
    ValueError
        Unless one of mu and epsilon is given, positive and finite.
    Refused
        2K/n is not positive and finite.
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
            return GaussianDP(mu, neighbours=self.neighbours, rule=self.given(RULE))
        zeta = self._k(mu) * self.value_error
        return inexact_gaussian(mu, zeta, self.neighbours, self.given(INEXACT))

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"mu": self.price}

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

    @property
    def loss(self) -> PrivacyLoss:
        """Gaussian DP, and what inexact values add: exact draws of exp(-k Phi~), |Phi~ - Phi| <= a."""
        if not 0.0 < self.lipschitz.value < math.inf:
            raise Refused("2K/n must be positive and finite for this mechanism.")
        return self._loss(self.price)


def inexact_gaussian(mu: float, zeta: float, neighbours: Neighbours, rule: str = INEXACT) -> PrivacyLoss:
    """mu-GDP of ideal laws, where the output laws are within exp(+-2 zeta) of them at every point.

    D_alpha <= alpha mu^2/2 + 2 zeta (2 alpha - 1)/(alpha - 1),     at least 1 + 2 sqrt(zeta)/mu in alpha
    delta(e) = exp(2 zeta) delta_mu(e - 4 zeta)
    """
    turn = 2.0 * math.sqrt(zeta) / mu

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
