r"""What a run of Gaussian-process Thompson sampling costs, and the public schedules of its scales.

Round t draws ``batch`` independent paths

.. math:: f \sim \mathrm{GP}(\mu_{t}, \sigma_t^2 k_{t})

of the posterior given the :math:`n_t` records told before it, and plays where each is highest. Rounds with
:math:`n_t = 0` read nothing. Given the actions so far, a round is a release from two data sets that differ in one
record, at a price fixed in advance; so the prices add up, however records react to actions.

* Only responses are private (the covariates are the public actions): each path is exactly :math:`\mu_t`-GDP,
  :math:`\mu_t^2 = 4M^2 / ((1+r^2) r^2 \sigma_t^2)`, and squares add.
* Whole records are private (they may have been measured elsewhere than asked): Renyi bounds of Theorem 3.1 for
  :math:`n_t` records, or the certified ones, add order by order.

Every bound here is at ``V = 1``, hence free of the domain, and does not decrease in n: a round that was lost and left
no record never makes the run cost more. ``docs/proofs/thompson.md``; Maciazek 2026, Proposition 6 and Appendix B.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from discretion.gp import Kernel
from discretion.posterior.account import path_routes
from discretion.posterior.assumptions import RecordAssumption
from discretion.posterior.certified import CertifiedTable
from discretion.posterior.divergence import chowdhury_gopalan_scale, thompson_mu
from discretion.posterior.sensitivity import Array
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss, RenyiCurve, Unreachable, smallest

__all__ = ["ChowdhuryGopalan", "Draws", "greedy_information_gain", "record_loss", "response_loss", "smallest_scale"]

RULES = ("closed-form", "renyi")
_GAUSSIAN = "(7.2) adaptive response-only draws, exact Gaussian DP"
_CLOSED = "Theorem 3.1 and refinements, added over adaptive draws"
_CERTIFIED = "certified worst case over all neighbours, added over adaptive draws"
_ROUNDING = "rounding of the means under the nugget"


@dataclass(frozen=True)
class ChowdhuryGopalan:
    """The schedule of GP-TS with a regret guarantee (Chowdhury and Gopalan 2017), a public function of the round:

        sigma_t = norm + noise sqrt(2 (gamma_n + 1 + log(2 / confidence))),   n records before round t.

    Args:
        norm: bound B of the objective's norm in the kernel's space, measured from the centre.
        noise: sub-Gaussian constant R of a response's noise.
        confidence: probability with which the regret bound may fail; nothing to do with the delta of privacy.
        information_gain: a public upper bound of gamma_n, the largest (1/2) log det(I + K / ridge^2) of n actions, as
            a function of n; for candidates by default `greedy_information_gain`.
    """

    norm: float
    noise: float
    confidence: float = 0.1
    information_gain: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        chowdhury_gopalan_scale(self.norm, self.noise, 0.0, self.confidence)

    def scales(self, records: npt.NDArray[np.int64], gains: npt.ArrayLike | None) -> Array:
        """sigma_t for the numbers of records before each round; `gains` where no function was given.

        ValueError without either.
        """
        if self.information_gain is not None:
            gains = [float(self.information_gain(int(n))) for n in records]
        if gains is None:
            raise ValueError("In a box give ChowdhuryGopalan an information_gain, a public bound of gamma_n.")
        return chowdhury_gopalan_scale(self.norm, self.noise, gains, self.confidence)


def greedy_information_gain(kernel: Kernel, candidates: npt.ArrayLike, ridge: float, most: int) -> Array:
    """Upper bounds of gamma_0, ..., gamma_most among candidates: what greedy choice gains, divided by 1 - 1/e.

    The gain of a set of measurements is monotone and submodular, so greedy choice is within that factor of the best
    (Nemhauser, Wolsey and Fisher 1978); gamma_n <= (n/2) log(1 + 1/ridge^2) as well. Cost: m most^2 flops.
    """
    points = np.asarray(candidates, dtype=np.float64)
    variance, rows = np.ones(len(points)), np.empty((most, len(points)))
    gains = np.zeros(most + 1)
    for n in range(most):
        best = int(np.argmax(variance))
        row = kernel(points[best : best + 1], points)[0] - rows[:n, best] @ rows[:n]
        rows[n] = row / math.sqrt(variance[best] + ridge**2)
        gains[n + 1] = gains[n] + 0.5 * math.log1p(variance[best] / ridge**2)
        variance = np.maximum(variance - rows[n] ** 2, 0.0)
    trivial = 0.5 * np.arange(most + 1) * math.log1p(1.0 / ridge**2)
    return np.minimum(gains / (1.0 - math.exp(-1.0)), trivial)


@dataclass(frozen=True)
class Draws:
    """The draws of a run that read records: public, fixed before the first.

    Attributes:
        records: how many records there are at most at each of these rounds, at least 1, (rounds,).
        scales: sigma_t, (rounds,).
        batch: paths a round. ridge: r. response_bound: M.
        shifts: bound, for each round, of how far rounding moves two neighbouring means apart in units of the noise.
    """

    records: tuple[int, ...]
    scales: tuple[float, ...]
    batch: int
    ridge: float
    response_bound: float
    shifts: tuple[float, ...]

    @classmethod
    def constant(
        cls,
        rounds: int,
        scale: float,
        *,
        ridge: float,
        response_bound: float = 1.0,
        batch: int = 1,
        history: int = 0,
    ) -> Self:
        """Of `rounds` rounds at one scale after `history` records, without rounding."""
        before = history + batch * np.arange(rounds)
        reading = before[before > 0].tolist()
        count = len(reading)
        return cls(tuple(reading), (float(scale),) * count, batch, ridge, response_bound, (0.0,) * count)

    @property
    def rounding(self) -> float:
        """Square of mu of all shifts together."""
        return self.batch * float(np.sum(np.square(self.shifts)))


def response_loss(draws: Draws) -> GaussianDP:
    """Loss of a run in which only responses are private: mu^2 = batch sum 4 M^2/((1+r^2) r^2 sigma_t^2) + rounding.

    Exact but for the rounding. `docs/proofs/thompson.md`, Theorem 2.
    """
    # `thompson_mu` leaves out a first round, which reads no record
    one = thompson_mu([1.0, *draws.scales], draws.ridge, draws.response_bound)
    mu = math.hypot(math.sqrt(draws.batch) * one, math.sqrt(draws.rounding)) * (1.0 + 2.0**-40)
    return GaussianDP(mu, neighbours=Neighbours.REPLACE_RESPONSE, rule=_GAUSSIAN)


def record_loss(draws: Draws, assumption: RecordAssumption, rule: str = "closed-form") -> PrivacyLoss:
    """Loss of a run in which whole records are private: Renyi bounds of the paths, added over rounds, and rounding.

    Args:
        draws: the draws.
        assumption: what is assumed of the records.
        rule: "closed-form", or "renyi": at each order and round the smaller of that and of one certified table for the
            largest number of records, which holds for fewer; it takes seconds.

    Raises:
        ValueError: another rule; for "renyi", a ridge too small for certified orders.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
    neighbours = assumption.neighbours
    rounding = GaussianDP(math.sqrt(draws.rounding), neighbours=neighbours, rule=_ROUNDING)
    if not draws.scales:
        return rounding
    table = _table(max(draws.records), draws.ridge, assumption) if rule == "renyi" else None
    n, scale = np.array(draws.records, dtype=np.float64), np.array(draws.scales)
    zero = np.zeros_like(n)
    routes = [each.route for each in path_routes(assumption, n, zero + draws.ridge, scale, zero, zero)]

    def curve(excess: Array) -> Array:
        x = np.asarray(excess, dtype=np.float64)[:, None]
        bounds = [route.renyi(x) for route in routes]
        if table is not None:
            bounds.append(table.renyi(np.maximum(x, 1e-9), scale[None]))
        return draws.batch * np.minimum.reduce(bounds).sum(axis=1)

    supremum = min(float(np.min(route.supremum)) for route in routes)
    words = _CLOSED if table is None else _CERTIFIED
    return RenyiCurve(curve, supremum, neighbours=neighbours, rule=words) + rounding


@lru_cache(maxsize=8)
def _table(n: int, ridge: float, assumption: RecordAssumption) -> CertifiedTable:
    return CertifiedTable(n, ridge, assumption)


def smallest_scale(loss: Callable[[float], PrivacyLoss], epsilon: float, delta: float) -> float:
    """The smallest constant scale whose whole run, of this loss, costs at most (epsilon, delta).

    Raises:
        ValueError: epsilon not positive and finite.
        Unreachable: no scale does, since private covariates cost something by themselves; the message says what to do.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite; got {epsilon!r}.")
    top = 1.0
    while loss(top).epsilon(delta) > epsilon:
        top *= 10.0
        if top > 1e12:
            raise Unreachable(
                f"No scale costs at most epsilon = {epsilon:g}: where covariates are private they cost more than that "
                "whatever the scale. Raise the ridge, or play fewer rounds."
            )
    low = top / 10.0
    while low > 1e-12 and loss(low).epsilon(delta) <= epsilon:
        top, low = low, low / 10.0
    return smallest(lambda scale: loss(scale).epsilon(delta) <= epsilon, low, top, relative_tolerance=1e-9)
