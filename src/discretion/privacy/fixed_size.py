"""Gaussian noise on a query of a secret subset of fixed size: amplification by sampling without replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from .conversion import LEAST_EXCESS
from .loss import Neighbours
from .loss.base import READERS, read_labels
from .profiles import SubsampledGaussian, amplified

__all__ = ["FixedSizeGaussian"]

Array = NDArray[np.float64]

_UNIT = 2.0**-52


@dataclass(frozen=True, repr=False)
class FixedSizeGaussian(SubsampledGaussian):
    """A query of m of n records, one of all such subsets, plus Gaussian noise; replace neighbours only.

    `probability` is q = m/n. The query moves by at most 1 if one of its m records is replaced, and the noise has
    standard deviation `noise_multiplier` s. With u = 1/s, delta_u the profile of u-Gaussian DP and
    c = log(1 + (e^epsilon - 1)/q), in both orders of two neighbours

        delta(epsilon) <= q delta_u(c)

    which is attained (Balle, Barthe and Gaboardi 2018, Theorem 9). Steps compose as *one* pair with that profile in
    both orders: neither the pair of add/remove, which has it in one order alone, nor that of a Poisson sample under
    replacement, whose contributions are up to 2 apart, says this. The Renyi divergence is that of the pair, and at most
    that without sampling:

        D_alpha <= log(1 + E (w^alpha - 1)(1 - w^(1 - alpha)); w > 1) / (alpha - 1),    D_alpha <= alpha u^2 / 2

    with w = 1 + q (e^(u s - u^2/2) - 1), s standard normal. Proof: `docs/proofs/fixed-size-sample.md`.

    Raises:
        ValueError: a parameter out of range, or other neighbours: where the number of records is private, so is q.
    """

    rule: str = field(default="Gaussian noise on a subset of fixed size", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is not Neighbours.REPLACE:
            raise ValueError("A subset of fixed size has an account under 'replace' neighbours only.")

    def __repr__(self) -> str:
        return f"FixedSizeGaussian({self.probability!r}, {self.noise_multiplier!r}, neighbours='{self.neighbours}')"

    @property
    def _u(self) -> float:
        return math.nextafter(1 / self.noise_multiplier, math.inf)

    @property
    def _distance(self) -> float:
        return 1.0

    def _profile(self, epsilon: Array) -> Array:
        return amplified(self.probability, self._u, epsilon)

    def _renyi(self, excess: Array) -> Array:
        # order 1 from above
        x = np.maximum(excess, LEAST_EXCESS)
        plain = (1 + x) * (self._u * (self._u / 2) * (1 + 4 * _UNIT))
        if self.probability == 1:
            return plain
        few = [_log_moment(part, self.probability, self._u) / part for part in np.split(x, range(64, x.size, 64))]
        return np.fmin(plain, np.concatenate(few) * (1 + 4 * _UNIT))

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return super()._described(excess) | {"type": "fixed-size-gaussian"}


_PLACES = np.linspace(0.0, 1.0, 1024)


def _log_moment(x: Array, q: float, u: float) -> Array:
    """Upper bound of `log(1 + E F(w); w > 1)`, `F(w) = (w^alpha - 1)(1 - w^(1 - alpha))`, alpha = 1 + x.

    F is convex where w > 1, so that it lies below its chords between the nodes t of s = u/2 + t; the masses and means
    of w on the cells are those of normal laws. The tail, `F <= w^alpha`, and the rounding are added.
    """
    x = x[:, None]
    a, log_q, log_rest = 1 + x, math.log(q), math.log1p(-q)
    ends = np.sqrt(2 * ((a + 1) * -log_q + 60.0))
    t = (a * u + ends) * _PLACES
    with np.errstate(all="ignore"):
        y = u * t
        log_w = np.where(y < 30.0, np.log1p(q * np.expm1(np.minimum(y, 30.0))), np.logaddexp(log_rest, log_q + y))
        log_f = a * log_w + np.log(-np.expm1(-a * log_w)) + np.log(-np.expm1(-x * log_w))
        # of each cell: log of its mass, and of the mass under the law moved by u
        mass, moved = (_log_cells(log_ndtr(upper)) for upper in (-u / 2 - t, u / 2 - t))
        width = np.expm1(np.diff(y))
        rounding = 16 * _UNIT * (1 + np.abs(mass) + np.abs(moved) + y[:, 1:])
        right = np.clip((np.expm1(moved - y[:, :-1] - mass) + rounding) / width, 0.0, 1.0)
        right = np.where(np.isnan(right), 1.0, right)
        cells = mass + np.logaddexp(log_f[:, 1:] + np.log(right), log_f[:, :-1] + np.log1p(-right))
        inside = np.logaddexp.reduce(np.where(mass > -np.inf, cells, -np.inf), axis=1)
        beyond = log_ndtr(-u / 2 - t[:, -1:])
        tail = np.logaddexp(log_rest + beyond, log_q + a * x * u * u / 2 + log_ndtr(-u / 2 - ends))
        largest = a * (log_w[:, -1:] + y[:, -1:]) - beyond
        slack = 32 * _UNIT * (_PLACES.size + largest[:, 0])
        return np.logaddexp(0.0, np.logaddexp(inside, tail[:, 0]) + slack)


def _log_cells(tails: Array) -> Array:
    """Logs of the differences of neighbouring tails, from their logs."""
    return tails[:, :-1] + np.log(-np.expm1(np.diff(tails)))


READERS["fixed-size-gaussian"] = lambda d: FixedSizeGaussian(
    float(d["probability"]), float(d["noise_multiplier"]), **read_labels(d)
)
