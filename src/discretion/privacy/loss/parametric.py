"""Losses of one number: Gaussian DP, pure DP, bounded range. Their conversions to (epsilon, delta) are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.special import zeta

from discretion.privacy.conversion import gauss_legendre, gaussian_delta, gaussian_epsilon
from discretion.privacy.loss.base import (
    LEAST_POSITIVE,
    READERS,
    UNIT,
    Array,
    Guarantee,
    Neighbours,
    PrivacyLoss,
    checked_delta,
    checked_epsilon,
    json_number,
    labels,
    read_labels,
    set_neighbours,
    set_parameter,
    shown,
)


@dataclass(frozen=True, repr=False)
class GaussianDP(PrivacyLoss):
    """mu-Gaussian DP: no easier to tell apart than N(0, 1) and N(mu, 1) (Dong, Roth and Su 2022).

    Renyi divergence of order alpha: `alpha mu^2 / 2`. The conversion to (epsilon, delta) is exact, and sums
    of Gaussian parts are Gaussian: mu adds in squares, also under adaptive composition with every mu fixed
    beforehand. Proof: `docs/proofs/gaussian-dp.md`.
    """

    _exact_profile = True

    mu: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="Gaussian DP, exact (Dong, Roth and Su 2022)", kw_only=True)

    def __post_init__(self) -> None:
        set_neighbours(self)
        set_parameter(self, "mu")

    def __repr__(self) -> str:
        return shown(self, self.mu)

    def _renyi(self, excess: Array) -> Array:
        if self.mu == 0:
            return np.zeros(excess.shape)
        return (1 + excess) * max(self.mu * (self.mu / 2), LEAST_POSITIVE)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon at `delta`, rounded up."""
        return Guarantee(gaussian_epsilon(self.mu, delta), float(delta), None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta at `epsilon`, rounded up."""
        return gaussian_delta(self.mu, epsilon)

    def _profile(self, epsilon: Array) -> Array:
        return gaussian_delta(self.mu, epsilon)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": "gaussian-dp", "mu": json_number(self.mu), **labels(self)}


@dataclass(frozen=True, repr=False)
class PureLoss(PrivacyLoss):
    """What pure DP and bounded range share: one epsilon, which holds at delta = 0."""

    _exact_profile = True
    _numerical = True
    _type: ClassVar[str]

    epsilon_value: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(kw_only=True)

    def __post_init__(self) -> None:
        set_neighbours(self)
        set_parameter(self, "epsilon_value")

    def __repr__(self) -> str:
        return shown(self, self.epsilon_value)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": self._type, "epsilon": json_number(self.epsilon_value), **labels(self)}


@dataclass(frozen=True, repr=False)
class PureDP(PureLoss):
    """Pure DP: every event is at most `e^epsilon_value` times as likely under a neighbour.

    Randomised response is the worst such mechanism (Kairouz, Oh and Viswanath 2015; Bun and Steinke 2016,
    Proposition 3.3; Mironov 2017): with e = epsilon_value

        (alpha - 1) D_alpha = log( (sinh(alpha e) - sinh((alpha - 1) e)) / sinh(e) )
                            = log( cosh((alpha - 1/2) e) / cosh(e / 2) )
        delta(epsilon) = (e^e - e^epsilon) / (1 + e^e),      0 <= epsilon <= e

    Proof: `docs/proofs/pure-dp.md`.
    """

    _type = "pure-dp"

    rule: str = field(default="pure DP", kw_only=True)

    def _renyi(self, excess: Array) -> Array:
        e, x = self.epsilon_value, excess
        if e in (0.0, math.inf):
            return np.full(x.shape, e)
        z = x * e
        # With z = x e the ratio is cosh z + tanh(e/2) sinh z: nothing cancels for small z. For large z its
        # logarithm is taken relative to e^z.
        small = np.minimum(z, 1.0)
        near = np.log1p(2 * np.sinh(small / 2) ** 2 + math.tanh(e / 2) * np.sinh(small)) / x
        far = e + np.log1p(np.expm1(-2 * z) * (math.exp(-e) / (1 + math.exp(-e)))) / x
        values = np.where(x == 0, e * math.tanh(e / 2), np.where(z < 1, near, far)) * (1 + 4 * UNIT)
        return np.clip(np.where(np.isinf(x), e, values), LEAST_POSITIVE, e)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon of the worst mechanism at `delta`, rounded up; `epsilon_value` at delta = 0."""
        e, delta = self.epsilon_value, checked_delta(delta)
        mass = delta * (1 + math.exp(-e))
        # e^(epsilon - e) = 1 - delta (1 + e^-e), in the form that does not cancel.
        ratio = (1 - delta) - delta * math.exp(-e)
        log_ratio = math.log1p(-mass) if mass < 0.5 else math.log(max(ratio, LEAST_POSITIVE))
        epsilon = e + log_ratio + 8 * UNIT * e
        return Guarantee(min(max(epsilon, 0.0), e), delta, None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta of the worst mechanism at `epsilon`, rounded up."""
        e, epsilon = self.epsilon_value, checked_epsilon(epsilon)
        if epsilon >= e:
            return 0.0
        return min(-math.expm1(epsilon - e) / (1 + math.exp(-e)) * (1 + 4 * UNIT), 1.0)

    def _profile(self, epsilon: Array) -> Array:
        e = self.epsilon_value
        return -np.expm1(np.minimum(epsilon - e, 0.0)) / (1 + math.exp(-e)) * (1 + 4 * UNIT)


@dataclass(frozen=True, repr=False)
class BoundedRange(PureLoss):
    """Bounded range: the log likelihood ratio of two neighbours varies by at most `epsilon_value`.

    The exponential mechanism has it, and it implies pure DP with the same epsilon (Dong, Durfee and Rogers
    2020). Put eta = epsilon_value. The worst loss takes two values, t and t - eta; with x = alpha - 1 and
    `S(z) = log( sinh(z/2) / (z/2) )` the worst t gives

        x D_alpha = (1 + x) S((1 + x) eta) - x S(x eta) - S(eta)
        delta(epsilon) = (1 - e^((epsilon - eta)/2))^2 / (1 - e^(-eta)),      0 <= epsilon <= eta

    and D_alpha is at most `alpha eta^2 / 8` and at most eta. The profile, a supremum over t, is that of one pair that
    is at least as easy to tell apart as any of these, so that it composes also where t is chosen adaptively. Proof:
    `docs/proofs/bounded-range.md`.
    """

    _type = "bounded-range"

    rule: str = field(default="bounded range", kw_only=True)

    def _renyi(self, excess: Array) -> Array:
        eta, x = self.epsilon_value, np.minimum(excess, 1e300)
        if eta in (0.0, math.inf):
            return np.full(x.shape, eta)
        # With H(y) = y S(y eta): x D = H(1+x) - H(x) - H(1). For x < 1 and for x eta < 1 the differences are
        # integrals of H' over unit intervals, which do not cancel; beyond, the growing terms are taken out by
        # hand.
        s = _NODES.reshape(-1, 1)
        few, some, many = np.minimum(x, 1.0), np.clip(x, 1.0, max(1.0, 1.0 / eta)), np.maximum(x, 1.0)
        near = _WEIGHTS @ _slope(eta * (1 + few * s)) - _log_sinhc(eta * few)
        middle = _WEIGHTS @ (_slope(eta * (some + s)) - _slope(eta * s)) / some
        odds = np.log1p(-math.expm1(-eta) / np.expm1(np.maximum(many * eta, 1.0)))
        rest = np.log1p(-np.exp(-(1 + many) * eta)) - np.log((1 + many) * -math.expm1(-eta))
        far = eta + odds - np.log1p(1 / many) + rest / many
        values = np.where(x < 1, near, np.where(x * eta < 1, middle, far)) * (1 + 64 * UNIT)
        values = np.minimum(values, (1 + x) * (eta * (eta / 8)) * (1 + 4 * UNIT))
        return np.clip(np.where(np.isinf(excess), eta, values), LEAST_POSITIVE, eta)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon of the worst mechanism at `delta`, rounded up; `epsilon_value` at delta = 0."""
        eta, delta = self.epsilon_value, checked_delta(delta)
        root = math.sqrt(delta * -math.expm1(-eta))
        # e^((epsilon - eta)/2) = 1 - root, where 1 - root^2 = rest, in the form that does not cancel.
        rest = (1 - delta) + delta * math.exp(-eta)
        log_ratio = math.log1p(-root) if root < 0.5 else math.log(rest / (1 + root))
        epsilon = eta + 2 * log_ratio + 8 * UNIT * eta
        return Guarantee(min(max(epsilon, 0.0), eta), delta, None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta of the worst mechanism at `epsilon`, rounded up."""
        eta, epsilon = self.epsilon_value, checked_epsilon(epsilon)
        if epsilon >= eta:
            return 0.0
        value = math.expm1((epsilon - eta) / 2) ** 2 / -math.expm1(-eta) * (1 + 8 * UNIT)
        return min(max(value, LEAST_POSITIVE), 1.0)

    def _profile(self, epsilon: Array) -> Array:
        eta = self.epsilon_value
        return np.expm1(np.minimum(epsilon - eta, 0.0) / 2) ** 2 / -math.expm1(-eta) * (1 + 8 * UNIT)


_NODES, _WEIGHTS = gauss_legendre(20)
# S(z) = sum over n >= 1 of (-1)^(n+1) zeta(2n)/n (z/(2 pi))^(2n), from the product formula of sinh.
_POWERS = 2 * np.arange(1, 13)
_SERIES = -((-1.0) ** (_POWERS // 2)) * 2 * zeta(_POWERS) / (_POWERS * (2 * math.pi) ** _POWERS)


def _log_sinhc(z: Array) -> Array:
    """S(z) = log(sinh(z/2) / (z/2))."""
    small = np.minimum(z, 1.0)[..., None] ** _POWERS @ _SERIES
    large = np.maximum(z, 1.0)
    return np.where(z < 1.0, small, large / 2 + np.log1p(-np.exp(-large)) - np.log(large))


def _slope(z: Array) -> Array:
    """S(z) + z S'(z), the derivative of H(y) = y S(y eta) where y eta = z."""
    small = np.minimum(z, 1.0)[..., None] ** _POWERS @ (_SERIES * (_POWERS + 1))
    large = np.maximum(z, 1.0)
    big = large + large / np.expm1(large) - 1 + np.log1p(-np.exp(-large)) - np.log(large)
    return np.where(z < 1.0, small, big)


READERS["gaussian-dp"] = lambda d: GaussianDP(float(d["mu"]), **read_labels(d))
READERS["pure-dp"] = lambda d: PureDP(float(d["epsilon"]), **read_labels(d))
READERS["bounded-range"] = lambda d: BoundedRange(float(d["epsilon"]), **read_labels(d))
