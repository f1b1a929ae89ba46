"""Gaussian noise on a query of a secret subset of fixed size: amplification by sampling without replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .loss import _READERS, Neighbours, _read_labels
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

        delta(epsilon) <= q delta_u(c),    D_alpha <= alpha u^2 / 2,

    the first attained (Balle, Barthe and Gaboardi 2018, Theorem 9). Steps compose as *one* pair with that profile in
    both orders: neither the pair of add/remove, which has it in one order alone, nor that of a Poisson sample under
    replacement, whose contributions are up to 2 apart, says this. Proof: `docs/proofs/fixed-size-sample.md`.

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
        return (1 + np.maximum(excess, 1e-4)) * (self._u**2 / 2 * (1 + 4 * _UNIT))

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return super()._described(excess) | {"type": "fixed-size-gaussian"}


_READERS["fixed-size-gaussian"] = lambda d: FixedSizeGaussian(
    float(d["probability"]), float(d["noise_multiplier"]), **_read_labels(d)
)
