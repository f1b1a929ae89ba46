"""Losses known by their privacy profile: a table, Laplace noise, Poisson-subsampled Gaussian noise, several bounds.

Compositions with one of these are composed numerically (`composition.py`) without being asked to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from .composition import Hull, LossDistribution, discretise, dominating_pair
from .conversion import LEAST_EXCESS, gaussian_delta, gaussian_epsilon
from .loss import Guarantee, NeighbourMismatch, Neighbours, PrivacyLoss, PureDP
from .loss.base import READERS, checked_delta, checked_epsilon, labels, read_labels, set_neighbours

__all__ = ["BestOf", "LaplaceDP", "PrivacyProfile", "SubsampledGaussian"]

Array = NDArray[np.float64]

_UNIT = 2.0**-52
_MOST_RATIO = 1e150
_LEAST_ORDER = 1e-6


# --- A table ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class PrivacyProfile(PrivacyLoss):
    """A table of (epsilon, delta) statements that all hold at once.

    Between its entries the hull of the table holds, which is the profile of a pair of distributions at least as easy
    to tell apart as any two neighbours. One entry is plain (epsilon, delta)-DP. Renyi divergences are infinite unless
    the last delta is 0. Proof: `docs/proofs/dominating-pair.md`.

    Args:
        epsilons: increasing, finite, at least 0.
        deltas: proved upper bounds of delta there, each in `[0, 1]`.
        neighbours: the neighbour relation.
        rule: where the table comes from, in words.

    Raises:
        ValueError: not such a table.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="table of (epsilon, delta) guarantees", kw_only=True)

    _exact_profile = True
    _numerical = True

    def __post_init__(self) -> None:
        set_neighbours(self)
        for name in ("epsilons", "deltas"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        if not all(0 <= delta <= 1 for delta in self.deltas):
            raise ValueError("The deltas of a privacy profile must lie in [0, 1].")
        _ = self._hull  # refuses a table of the wrong shape

    def __repr__(self) -> str:
        return f"PrivacyProfile({len(self.epsilons)} entries, neighbours='{self.neighbours}')"

    def _profile(self, epsilon: Array) -> Array:
        return self._hull(epsilon)

    def delta(self, epsilon: float) -> float:
        """Delta of the hull at `epsilon`, rounded up."""
        return float(self._profile(np.array([checked_epsilon(epsilon)]))[0])

    def guarantee(self, delta: float) -> Guarantee:
        """The least epsilon at which the hull has at most `delta`, rounded up; inf where it has none."""
        delta = checked_delta(delta)
        nodes, values = self._hull
        met = values <= delta
        epsilon = math.inf
        if np.any(met):
            high = float(nodes[np.argmax(met)])
            low = 0.0
            # bisection keeps a point that was checked
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
            epsilon = 0.0 if self.delta(0.0) <= delta else high
        return Guarantee(epsilon, delta, None, self.rule, self.neighbours)

    def _renyi(self, excess: Array) -> Array:
        last = self.epsilons[-1]
        if self._pair.infinity > 0:
            return np.full(excess.shape, np.inf)
        x = np.clip(excess, self._lowest, self._highest)
        return np.where(excess > x, last, np.minimum(self._bound(x), last))

    def _bound(self, x: Array) -> Array:
        return self._pair.log_moment(x) / x + 64 * _UNIT * (1 + self.epsilons[-1] + 1 / x)

    @property
    def _highest(self) -> float:
        return 1e6 / max(self.epsilons[-1], 1e-6)

    @cached_property
    def _lowest(self) -> float:
        """The order of the least bound, which holds at all smaller ones: there what rounding adds grows as 1 / x."""
        x = np.geomspace(min(_LEAST_ORDER, self._highest), min(100.0, self._highest), 160)
        return float(x[np.argmin(self._bound(x))])

    @cached_property
    def _hull(self) -> Hull:
        deltas = np.array(self.deltas)
        return dominating_pair(np.array(self.epsilons), deltas, deltas)[0]

    @cached_property
    def _pair(self) -> LossDistribution:
        return discretise([(self._profiles, 1)])[0].there

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {
            "type": "privacy-profile",
            "epsilons": list(self.epsilons),
            "deltas": list(self.deltas),
            **labels(self),
        }


# --- Several bounds of one mechanism ----------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class BestOf(PrivacyLoss):
    """Several losses of one and the same mechanism, each of which holds: at every question the smallest answers.

    A curve of Renyi divergences beside a privacy profile, say: alone the profile is smaller, in long compositions the
    curve. In one order of the neighbours the least of the profiles is an upper bound, and so is its hull
    (``docs/proofs/dominating-pair.md``).

    Args:
        parts: losses under one neighbour relation, at least one.

    Raises:
        NeighbourMismatch: losses under different relations.
        ValueError: none at all.
    """

    parts: tuple[PrivacyLoss, ...]
    supremum: float = field(init=False)
    neighbours: Neighbours = field(init=False)
    rule: str = field(init=False)

    _exact_profile = True
    _numerical = True

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("The best of no losses is none: give at least one.")
        if len({loss.neighbours for loss in self.parts}) > 1:
            raise NeighbourMismatch("Bounds of one mechanism under different neighbour relations do not compare.")
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "supremum", max(loss.supremum for loss in self.parts))
        object.__setattr__(self, "neighbours", self.parts[0].neighbours)
        object.__setattr__(self, "rule", " or ".join(dict.fromkeys(loss._renyi_rule(1.0) for loss in self.parts)))

    def __repr__(self) -> str:
        return f"BestOf({', '.join(map(repr, self.parts))})"

    def guarantee(self, delta: float) -> Guarantee:
        """The smallest of the parts' guarantees at `delta`."""
        return min((loss.guarantee(delta) for loss in self.parts), key=lambda each: each.epsilon)

    def delta(self, epsilon: float) -> float:
        """The smallest of the parts' deltas at `epsilon`."""
        return min(loss.delta(epsilon) for loss in self.parts)

    def _renyi(self, excess: Array) -> Array:
        return np.min([loss.renyi_excess(excess) for loss in self.parts], axis=0)

    def _renyi_rule(self, excess: float) -> str:
        return min(self.parts, key=lambda loss: loss.renyi_excess(excess))._renyi_rule(excess)

    def _profile(self, epsilon: Array) -> Array:
        return np.maximum(*self._profiles(epsilon))

    def _profiles(self, epsilon: Array) -> tuple[Array, Array]:
        there, back = zip(*(loss._profiles(epsilon) for loss in self.parts), strict=True)
        return np.min(there, axis=0), np.min(back, axis=0)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": "best-of", "parts": [loss._described(excess) for loss in self.parts]}


# --- Laplace noise ----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class LaplaceDP(PureDP):
    """Laplace noise on a query whose L1 sensitivity over its scale is `epsilon_value`; it is pure DP too.

    With e = epsilon_value and x = alpha - 1 (Mironov 2017; Balle, Barthe and Gaboardi 2018)

        x D_alpha = x e + log(1 - x (1 - e^(-(1 + 2x) e)) / (1 + 2x))
        delta(epsilon) = 1 - e^((epsilon - e) / 2),      0 <= epsilon <= e

    Proof: `docs/proofs/laplace.md`.
    """

    _type = "laplace"

    rule: str = field(default="Laplace noise", kw_only=True)

    def _renyi(self, excess: Array) -> Array:
        pure = super()._renyi(excess)
        # order 1 from above; beyond 1e15 the pure bound
        e, x = self.epsilon_value, np.maximum(np.minimum(excess, 1e15), LEAST_EXCESS)
        if e == math.inf:
            return pure
        value = e + np.log1p(x * np.expm1(-(1 + 2 * x) * e) / (1 + 2 * x)) / x
        return np.where(excess > 1e15, pure, np.minimum(value + 8 * _UNIT * e, pure))

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon at `delta`, rounded up; `epsilon_value` at delta = 0."""
        e, delta = self.epsilon_value, checked_delta(delta)
        epsilon = e + 2 * math.log1p(-delta) + 8 * _UNIT * e
        return Guarantee(min(max(epsilon, 0.0), e), delta, None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta at `epsilon`, rounded up."""
        return float(self._profile(np.array([checked_epsilon(epsilon)]))[0])

    def _profile(self, epsilon: Array) -> Array:
        return np.minimum(-np.expm1(np.minimum(epsilon - self.epsilon_value, 0.0) / 2) * (1 + 4 * _UNIT), 1.0)


# --- Poisson-subsampled Gaussian noise --------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class SubsampledGaussian(PrivacyLoss):
    """A sum over a Poisson sample plus Gaussian noise: one step of DP-SGD.

    Each record is in the sample with `probability` q, independently; each contribution has norm at most 1; the noise
    has standard deviation `noise_multiplier` s. With u = 1/s, N(m) short for N(m, 1) and delta_u the profile
    of u-Gaussian DP, the two laws are no easier to tell apart than

        add-remove:  (1 - q) N(0) + q N(u)  and  N(0)
        replace:     (1 - q) N(0) + q N(u)  and  (1 - q) N(0) + q N(-u)

    so that, with c = log(1 + (e^epsilon - 1)/q), a record's presence against its absence has delta = q delta_u(c), the
    other order has less, and a replacement has q sup over t of Phi(u - t) - a Phi(-t) - e^epsilon Phi(-u - t),
    a = (1 - q)(e^epsilon - 1)/q. The Renyi divergence under add-remove is that of the pair, at any real order
    (Mironov, Talwar and Zhang 2019); under replace only alpha (2u)^2 / 2, as without sampling. Balle, Barthe and
    Gaboardi 2018; Zhu, Dong and Wang 2022. Proof: `docs/proofs/subsampled-gaussian.md`.

    Args:
        probability: in `(0, 1]`.
        noise_multiplier: positive, finite.
        neighbours: the neighbour relation.
        rule: in words.

    Raises:
        ValueError: a parameter out of range.
    """

    probability: float
    noise_multiplier: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="Poisson-subsampled Gaussian noise", kw_only=True)

    _exact_profile = True
    _numerical = True

    def __post_init__(self) -> None:
        set_neighbours(self)
        q, s = float(self.probability), float(self.noise_multiplier)
        if not (0 < q <= 1 and 0 < s < math.inf):
            raise ValueError(
                "A subsampled Gaussian needs a probability in (0, 1] and a positive, finite noise multiplier, not "
                f"{q!r} and {s!r}."
            )
        object.__setattr__(self, "probability", q)
        object.__setattr__(self, "noise_multiplier", s)

    def __repr__(self) -> str:
        q, s = self.probability, self.noise_multiplier
        return f"SubsampledGaussian({q!r}, {s!r}, neighbours='{self.neighbours}')"

    @property
    def _removes(self) -> bool:
        return self.neighbours is Neighbours.ADD_REMOVE

    @property
    def _distance(self) -> float:
        """Of a contribution from the one in its place, in units of the longest."""
        return 1.0 if self._removes else 2.0

    def _profile(self, epsilon: Array) -> Array:
        q, u = self.probability, math.nextafter(1 / self.noise_multiplier, math.inf)
        if self._removes:
            return amplified(q, u, epsilon)
        e = np.minimum(epsilon, 700.0)
        if u > _MOST_RATIO:
            return np.full(e.shape, q)  # no pair is further apart, and the square of u may overflow
        # e^(u t - u^2/2) = a + e^(epsilon - u t - u^2/2) at the best t; an error there is of second order
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            a = (1 - q) * np.expm1(e) / q
            log_a = np.log(a)
            root = np.logaddexp(2 * log_a, math.log(4) + e - u * u) / 2
            t = u / 2 + (np.logaddexp(log_a, root) - math.log(2)) / u
            value = ndtr(u - t) * (1 + 64 * _UNIT) - a * ndtr(-t) - np.exp(e) * ndtr(-u - t)
        return np.clip(np.where(np.isnan(value), 1.0, q * value), 0.0, q)

    def _profiles(self, epsilon: Array) -> tuple[Array, Array]:
        bounds = self._profile(epsilon)
        if not self._removes:
            return bounds, bounds
        q, u = self.probability, math.nextafter(1 / self.noise_multiplier, math.inf)
        # the errors of the share and of e^-k, at most a few units, are made up for
        small = np.minimum(epsilon, 700.0)
        share = q - (1 - q) * np.expm1(small) + 8 * _UNIT * np.exp(small)
        e_minus_k = np.clip(1 + np.expm1(-small) / q + 8 * _UNIT, 0.0, 1.0)
        inside = (share > 0) & (e_minus_k > 8 * _UNIT) & (epsilon < 700)
        k = -np.log(np.where(inside, e_minus_k, 1.0))
        absent = np.where(inside, share * gaussian_delta(u, np.maximum(k, 0.0)) * (1 + 4 * _UNIT), 0.0)
        return bounds, np.minimum(absent, bounds)

    def delta(self, epsilon: float) -> float:
        """Delta of the formula at `epsilon`, rounded up."""
        return float(self._profile(np.array([checked_epsilon(epsilon)]))[0])

    def guarantee(self, delta: float) -> Guarantee:
        """The least epsilon whose delta, by the formula, does not exceed `delta`; rounded up."""
        delta = checked_delta(delta)
        # no worse than without sampling
        high = float(gaussian_epsilon(self._distance / self.noise_multiplier * (1 + 2 * _UNIT), delta))
        if math.isfinite(high):
            low, high = 0.0, high * (1 + 1e-12)
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
            high = 0.0 if self.delta(0.0) <= delta else high
        return Guarantee(high, delta, None, self.rule, self.neighbours)

    def _renyi(self, excess: Array) -> Array:
        # near order 1 from above: there rounding, over x, would exceed the divergence
        x = np.maximum(excess, 1e-4)
        u = math.nextafter(1 / self.noise_multiplier, math.inf)
        if not self._removes:
            return (1 + x) * (2 * u * u * (1 + 4 * _UNIT))
        plain = (1 + x) * (u * u / 2 * (1 + 4 * _UNIT))
        finite = np.minimum(x, 1e12)
        return np.minimum(plain, _sampled_log_moment(1 + finite, self.probability, u) / finite * (1 + 4 * _UNIT))

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {
            "type": "subsampled-gaussian",
            "probability": self.probability,
            "noise_multiplier": self.noise_multiplier,
            **labels(self),
        }


def amplified(q: float, u: float, epsilon: Array) -> Array:
    """q delta_u(log(1 + (e^epsilon - 1)/q)), rounded up: what is left of u-Gaussian DP if it acts with chance q."""
    e = np.minimum(epsilon, 700.0)
    small = np.log1p(np.expm1(np.minimum(e, 1.0)) / q)
    c = np.where(e < 1, small, e + np.log1p(-(1 - q) * np.exp(-e)) - math.log(q))
    # the error of c, a few units, is made up for by moving it down
    return np.minimum(q * gaussian_delta(u, np.maximum(c * (1 - 16 * _UNIT), 0.0)) * (1 + 4 * _UNIT), 1.0)


_PLACES = np.linspace(0.0, 1.0, 2048)
_LOG_FORGOTTEN = -60.0


def _sampled_log_moment(order: Array, q: float, u: float) -> Array:
    """Upper bound of `log E w^order`, `w = 1 + q (e^(u s - u^2/2) - 1)`, s standard normal, by the trapezoidal rule.

    Since E w = 1 it is `log(1 + E (w^order - 1 - order (w - 1)))`, whose integrand is positive. The rule's error, at
    most e^-60 times a small factor, the tails and the rounding are added; inf where the nodes are too few.
    """
    a, log_q, log_rest = order[:, None], math.log(q), math.log1p(-q) if q < 1 else -math.inf
    ends = np.sqrt(2 * ((a + 1) * -log_q + 60.0))
    spacing = (a * u + 2 * ends) / (_PLACES.size - 1)
    s = -ends + (a * u + 2 * ends) * _PLACES
    with np.errstate(over="ignore"):
        y = u * s - u * u / 2
        v = q * np.expm1(y)
        log_w = np.where(y < 30.0, np.log1p(np.minimum(v, 1e300)), np.logaddexp(log_rest, log_q + y))
        t = a * log_w
        top = np.maximum(np.max(t - s * s / 2, axis=1, keepdims=True), 0.0)
        near = np.exp(-s * s / 2 - top) * (np.expm1(np.minimum(t, 1.0)) - a * np.where(t < 1, v, 0.0))
        linear = np.exp(-s * s / 2 - top) + a * q * (np.exp(-((s - u) ** 2) / 2 - top) - np.exp(-s * s / 2 - top))
        far = np.exp(t - s * s / 2 - top) - linear
        total = np.maximum(np.where(t < 1, near, far), 0.0).sum(axis=1) * spacing[:, 0] / math.sqrt(2 * math.pi)
    a, ends, top = a[:, 0], ends[:, 0], top[:, 0]
    with np.errstate(divide="ignore"):
        # rounding of the exponents
        log_sum = np.log(total * (1 + 1e-11)) + top + 8 * _UNIT * (np.abs(t).max(axis=1) + 2 * (a * u + ends) ** 2)
        rounding = math.log(64 * _UNIT * q) + np.log(a)
        tails = np.logaddexp(np.log1p(a), log_q + a * (a - 1) * u * u / 2) + log_ndtr(-ends)
        rule = _LOG_FORGOTTEN + np.logaddexp(log_sum, np.log(2 + 3 * a))
    bound = np.logaddexp(0.0, np.logaddexp.reduce([log_sum, rounding, tails, rule]))
    return np.where(spacing[:, 0] <= min(0.2, 0.25 / u), bound, np.inf)


READERS["privacy-profile"] = lambda d: PrivacyProfile(tuple(d["epsilons"]), tuple(d["deltas"]), **read_labels(d))
READERS["best-of"] = lambda d: BestOf(tuple(PrivacyLoss.from_dict(part) for part in d["parts"]))
READERS["laplace"] = lambda d: LaplaceDP(float(d["epsilon"]), **read_labels(d))
READERS["subsampled-gaussian"] = lambda d: SubsampledGaussian(
    float(d["probability"]), float(d["noise_multiplier"]), **read_labels(d)
)
