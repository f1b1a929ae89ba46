"""Contributions of records, shortened one by one before they are added up: what bounds the sensitivity of a sum.

Sums are of multiples of a public power of two and so exact in double precision, in any order and in any chunks; the
sensitivities are therefore those of the numbers computed, not of ideal ones. `docs/proofs/gradient-sensitivity.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.noise import Randomness

__all__ = ["AdaptiveClip", "clip", "clipped_sum", "grid", "lengths"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53


def clip(rows: Floats, bound: float) -> Floats:
    """Each row (n, d) shortened to length `bound` where it is longer; all zeros where it is not finite.

    Rows come out no longer than `bound` in exact arithmetic: the computed length of d numbers is off by a factor of
    (1 + 2^-53)^(d + 4) at most, and longer rows are shortened by a little more than that. Nothing overflows: a row is
    taken apart into its largest entry and a direction.
    """
    allowed = bound * (1.0 - (rows.shape[1] + 8) * _UNIT)
    largest, directions, sizes = _taken_apart(rows)
    with np.errstate(all="ignore"):
        short = largest * sizes <= allowed
        shortened = directions * (allowed / np.maximum(sizes, 1.0))[:, None]
        return np.where(np.isfinite(largest)[:, None], np.where(short[:, None], rows, shortened), 0.0)


def lengths(rows: Floats) -> Floats:
    """Of each row, (n,); inf where it exceeds the largest double, NaN where a row is not finite."""
    largest, _, sizes = _taken_apart(rows)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(largest), largest * sizes, np.nan)


def _taken_apart(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Largest entry (n,) of each row, the row over that, and the length of this, between 1 and sqrt(d), or 0."""
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(rows), axis=1, initial=0.0)
        directions = rows / np.where(largest > 0, largest, 1.0)[:, None]
        return largest, directions, np.sqrt(np.einsum("ij,ij->i", directions, directions))


def grid(bound: float, n: int) -> float:
    """The spacing of sums: a power of two at which n numbers of at most `bound` add up exactly."""
    return math.ldexp(1.0, math.frexp(bound)[1] + int(n).bit_length() - 52)


def clipped_sum(rows: Floats, bound: float, n: int, part: NDArray[np.bool_] | None = None) -> Floats:
    """PRIVATE. Sum (d,) of the clipped rows (k, d), or of those that take `part` (k,), exact in any order.

    Rows are cut towards zero to the `grid` on which n of them add up without rounding.
    """
    spacing = grid(bound, n)
    cut = np.trunc(clip(rows, bound) / spacing) * spacing
    return (cut if part is None else cut * part[:, None]).sum(axis=0)


@dataclass(frozen=True)
class AdaptiveClip:
    """Move the clipping norm towards a quantile of the records' gradient norms, for a share of the budget.

    With each gradient the noisy number of records that were not clipped is released, which one record moves by 1, and
    then B <- B exp(-rate (fraction - quantile)). `docs/proofs/gradient-descent.md`, Theorem 2.

    Args:
        quantile: target fraction, in (0, 1).
        rate: positive.
        share: of mu_t^2, in (0, 1).

    Raises:
        ValueError: a number out of its range.

    Source: Andrew, Thakkar, McMahan and Ramaswamy 2021.
    """

    quantile: float = 0.7
    rate: float = 0.3
    share: float = 0.01

    def __post_init__(self) -> None:
        if not (0 < self.quantile < 1 and 0 < self.share < 1 and 0 < self.rate < math.inf):
            raise ValueError("AdaptiveClip needs quantile and share strictly between 0 and 1, and a positive rate.")

    @staticmethod
    def fraction(unclipped: int, n: int, noise: float, randomness: Randomness) -> float:
        """PRIVATE number of unclipped records in, PUBLIC fraction of n out, on a lattice.

        `noise` is the standard deviation of what is added to the number.
        """
        noisy = unclipped + noise * float(randomness.standard_normal(()))
        return float(to_lattice(noisy, lattice_spacing(noise))) / n

    def moved(self, bound: float, fraction: float) -> float:
        """The next clipping norm, from the released fraction."""
        moved = bound * math.exp(-self.rate * (min(max(fraction, 0.0), 1.0) - self.quantile))
        return min(max(moved, 1e-50), 1e50)
