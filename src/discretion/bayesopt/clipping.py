"""The one step in which privacy lies: clip record by record, then add up; and what one record can change.

`docs/proofs/gradient-sensitivity.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.losses import as_table
from discretion.privacy import Neighbours
from discretion.privacy.clipping import clipped_sum, lengths
from discretion.privacy.quiet import quiet

__all__ = [
    "ClippedSum",
    "aggregate_sensitivity",
    "clamped_mean",
    "clipped_mean_sensitivity",
    "per_record_sensitivity",
]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_ENUMERATED = 20  # columns up to which all signs are tried


@dataclass(eq=False)
class ClippedSum:
    """PRIVATE. The sum of clipped estimates of records that come in chunks, without noise.

    Args:
        map: A, (d, m): estimates are A times a record's losses.
        bound: B, the clipping norm, in units of the gradient.
        n: how many records there are in all; public.
        centre: subtract each record's mean over the m locations first; A removes constants anyway, this keeps digits.
    """

    map: Floats
    bound: float
    n: int
    centre: bool = True

    def __post_init__(self) -> None:
        self.sum = np.zeros(len(self.map))
        self.seen = 0
        self.unclipped = 0

    @quiet()
    def add(self, losses: Floats) -> None:
        """Add the records of a chunk, losses (chunk, m).

        A record whose losses are not all finite counts as the zero vector.
        """
        if self.centre and losses.shape[1]:
            losses = losses - losses.mean(axis=1, keepdims=True)
        U = losses @ self.map.T
        # A product with a NaN is not always one for every row alone: rows are judged by their own losses.
        U[~np.isfinite(losses).all(axis=1)] = np.nan
        self.unclipped += int(np.count_nonzero(lengths(U) <= self.bound))
        self.sum += clipped_sum(U, self.bound, self.n)
        self.seen += len(losses)

    def __repr__(self) -> str:
        return "ClippedSum(PRIVATE)"


def per_record_sensitivity(bound: float, n: int, neighbours: Neighbours = Neighbours.REPLACE) -> float:
    """How far one record can move the mean of n clipped estimates: 2B/n, and B/n if a record is added or removed.

    Under add/remove n is a public normaliser, not the number of records. Attained. It needs no assumption on losses,
    kernel or bound. Proof: `docs/proofs/gradient-sensitivity.md`, Theorem 1.

    Raises:
        ValueError: a bound or n that is not positive, or other neighbours.
    """
    if not 1e-100 < bound < 1e100:  # so that squares of what matters neither overflow nor vanish
        raise ValueError(f"The clipping norm must be a positive number of ordinary size; got {bound!r}.")
    if isinstance(n, bool) or int(n) != n or n < 1:
        raise ValueError(f"n must be a whole number of at least 1; got {n!r}.")
    if neighbours is Neighbours.REPLACE:
        return 2.0 * bound / n
    if neighbours is Neighbours.ADD_REMOVE:
        return bound / n
    raise ValueError(f"Gradients are accounted under 'replace' or 'add-remove' neighbours, not {neighbours!s}.")


def clipped_mean_sensitivity(bound: float) -> float:
    """How far one record can move the clipped estimate of a mean of losses: 2B, without 1/n. Attained.

    Proof: `docs/proofs/gradient-sensitivity.md`, Theorem 2.
    """
    return 2.0 * bound


def aggregate_sensitivity(
    A: Floats, largest_loss: float, n: int, bound: float, neighbours: Neighbours = Neighbours.REPLACE
) -> float:
    """How far one record can move the clipped estimate of a mean of losses that lie in [0, Lambda].

        min(2B, (Lambda / n) max ||A e||),    e over {-1, 1}^m (replace) or {0, 1}^m (add or remove)

    Attained up to the cap where m <= 20; beyond, the maximum is bounded by min(sum_j ||A_j||, sqrt(m) ||A||_2). A is
    the map that is applied, centring included. The rounding of A times the means, and of means that are exact to 2^-53
    Lambda as `clamped_mean` gives them, is added. Proof: `docs/proofs/gradient-sensitivity.md`, Theorem 3.
    """
    per_record_sensitivity(bound, n, neighbours)
    if not (math.isfinite(largest_loss) and largest_loss > 0):
        raise ValueError(f"The largest loss must be positive and finite; got {largest_loss!r}.")
    values = (-1.0, 1.0) if neighbours is Neighbours.REPLACE else (0.0, 1.0)
    d, m = A.shape
    if m == 0:
        return 0.0
    columns = float(np.linalg.norm(A, axis=0).sum())
    exact = _largest_image(A, values) if m <= _ENUMERATED else min(columns, math.sqrt(m) * float(np.linalg.norm(A, 2)))
    rounding = 4.0 * (m + 3) * _UNIT * math.sqrt(d) * columns
    change = largest_loss * (exact * (1.0 + 1e-14) / n + rounding) + 4.0 * (d + 8) * _UNIT * bound
    return min(2.0 * bound, change)


def _largest_image(A: Floats, values: tuple[float, float]) -> float:
    """max ||A e|| over e with entries in `values`: |x + y|^2 over the images x, y of the two halves of e."""
    half = A.shape[1] // 2
    x, y = (part @ _corners(part.shape[1], values) for part in (A[:, :half], A[:, half:]))
    squares = (x * x).sum(axis=0)[:, None] + (y * y).sum(axis=0) + 2.0 * x.T @ y
    return math.sqrt(max(float(squares.max()), 0.0))


def _corners(m: int, values: tuple[float, float]) -> Floats:
    """All vectors of m entries out of two values, as columns."""
    bits = (np.arange(2**m)[None, :] >> np.arange(m)[:, None]) & 1
    return np.asarray(values)[bits]


@quiet()
def clamped_mean(losses: Floats | Iterable[Floats], largest_loss: float) -> Floats:
    """PRIVATE. The mean over records of losses clamped to [0, Lambda], as an aggregate-only evaluator must return it.

    A loss that is not a number counts as Lambda, record by record. Losses are rounded down to a grid on which they add
    up exactly.

    Args:
        losses: (n, b), or chunks of such rows; fewer than 2^20 records keep 32 bits of each loss. Of one location also
            (n,).
        largest_loss: Lambda, positive and public.

    Returns:
        (b,); of losses (n,) one number.
    """
    losses = as_table(losses)
    chunks = [losses] if isinstance(losses, np.ndarray) else losses
    spacing = math.ldexp(1.0, math.frexp(largest_loss)[1] - 32)
    total, seen = np.zeros(()), 0
    for each in chunks:
        clamped = np.clip(np.where(np.isnan(each), largest_loss, each), 0.0, largest_loss)
        total, seen = total + np.floor(clamped / spacing).sum(axis=0), seen + len(each)
    return np.asarray(total / max(seen, 1) * spacing)
