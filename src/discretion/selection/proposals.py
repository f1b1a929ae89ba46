"""Proposals that learn from earlier runs, within bounds.

The next candidate may depend on all past scores, as long as its chance stays between two public multiples of its public
weight (the idea of DP-HyPO by Wang, Gao, Zhang, Su and Shen). The price: `docs/proofs/selection-adaptive.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.selection.beforehand import check_call

__all__ = ["FIXED", "DensityBox", "Proposals"]

Array = NDArray[np.float64]
History = Sequence[tuple[int, float]]
"""Of the runs so far: the candidate, and its score (NaN where it failed or had none)."""

_UNITS = 1 << 52
_MIXED = 1e-9
_MOST_SPREAD = 1e4


@dataclass(frozen=True)
class DensityBox:
    """Chances of candidates of at least `low` and at most `high` times their public weights.

    Args:
        low: c, in (0, 1].
        high: C, at least 1. The price grows with high / low: by 2 log(high / low) for pure DP and the logarithmic law.

    Raises:
        ValueError: not 0 < low <= 1 <= high, or high / low above 10,000.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = float(self.low), float(self.high)
        if not (0 < low <= 1 <= high < math.inf) or high / low > _MOST_SPREAD:
            raise ValueError(
                f"A box of densities needs 0 < low <= 1 <= high, and high / low at most {_MOST_SPREAD:,.0f}; got "
                f"{low!r} and {high!r}."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def fixed(self) -> bool:
        """Whether only the public weights themselves lie in it."""
        return self.low == 1 or self.high == 1

    def project(self, wanted: ArrayLike, weights: Sequence[float]) -> tuple[float, ...]:
        """Weights in the box, in the proportions wanted as far as it allows.

            clip(scale (wanted + a little weights), low weights, high weights),    of sum 1

        The sum grows with the scale, which is found by bisection. What is returned is rounded to multiples of 2^-52 and
        lies in the box exactly, as a comparison of integers, not up to rounding.

        Args:
            wanted: not negative, shape (m,), of any sum. Where they are not such numbers, the weights are returned: a
                proposal that fails is one that depends on the history, like any other.
            weights: public, multiples of 2^-52 of sum 1.
        """
        base = np.array([int(weight * _UNITS) for weight in weights])
        try:
            raw = np.asarray(wanted, dtype=np.float64)
        except (TypeError, ValueError):
            return tuple(weights)
        if raw.shape != base.shape or not (np.isfinite(raw).all() and (raw >= 0).all() and raw.max() > 0):
            return tuple(weights)
        low, high = Fraction(self.low), min(Fraction(self.high), Fraction(_UNITS))
        lower = np.array([math.ceil(low * each) for each in base.tolist()])
        upper = np.array([min(math.floor(high * each), _UNITS) for each in base.tolist()])
        raw = np.where(base > 0, raw / raw.max(), 0.0)
        raw = raw / max(raw.sum(), 1e-300) + _MIXED * base / _UNITS
        below, above = -60.0, 60.0 - math.log(_MIXED)
        for _ in range(100):
            middle = (below + above) / 2
            total = np.clip(math.exp(middle) * raw * _UNITS, lower, upper).sum()
            below, above = (middle, above) if total < _UNITS else (below, middle)
        found = np.clip(np.minimum(math.exp(above) * raw * _UNITS, float(_UNITS)).astype(np.int64), lower, upper)
        # what rounding left over or short goes to the first that have room
        missing = _UNITS - int(found.sum())
        room = np.minimum(upper - found if missing > 0 else found - lower, abs(missing))
        share = np.clip(abs(missing) - (np.cumsum(room) - room), 0, room)
        found = found + (share if missing > 0 else -share)
        return tuple((found * 2.0**-52).tolist())


FIXED = DensityBox(1.0, 1.0)
"""No adaptation: every run's candidate is drawn by the public weights."""


@dataclass(frozen=True, eq=False)
class Proposals:
    """How a search proposes its next candidate.

    Args:
        box: how far chances may move from the public weights; it sets the price.
        propose: from the history of a search to the chances it would like, shape (m,); see `DensityBox.project` for
            what becomes of them. It may use public data besides, and never the records; it has to be a function of the
            history alone, or a search that was interrupted can't be taken up.
        name: what it does, in words, for the certificate.
    """

    box: DensityBox
    propose: Callable[[History], ArrayLike]
    name: str

    def __post_init__(self) -> None:
        check_call(self.propose, ("history",), "The function of proposals")

    def weights(self, history: History, weights: Sequence[float]) -> tuple[float, ...]:
        """Chances of the candidates of the next run."""
        try:
            wanted = self.propose(history)
        except Exception:
            wanted = ()
        return self.box.project(wanted, weights)
