"""What the best of K runs costs at least, by a selection that attains it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from discretion.privacy import Composition, PrivacyLoss
from discretion.privacy.profiles import BestOf
from discretion.selection.repetitions import Repetitions
from discretion.selection.trade_off import TradeOff, pairs_of

__all__ = ["attained_delta", "selection_lower_bound"]

Array = NDArray[np.float64]

_ROUNDING = 1e-11


def attained_delta(law: Repetitions, trade_off: TradeOff, epsilon: float) -> float:
    """delta at `epsilon` of one order on the outputs of a run with this trade-off curve.

    On top are the outputs most likely under the neighbour, of mass s_0, beneath them the least likely, of mass s_1; the
    event is that the best comes from the second block:

        delta >= f(1 - s_0) - f(1 - s_0 - s_1) - e^epsilon (f(1 - t_0) - f(1 - t_0 - t_1)),
        t_0 = t(s_0),    t_1 = 1 - t(1 - s_1)

    and the largest over s_0, s_1. Proof: `docs/proofs/selection-lower-bound.md`.
    """
    weight, best = math.exp(epsilon), 0.0
    centre, width = np.array([-3.0, 0.0]), np.array([9.0, 9.0])
    side = np.linspace(-1.0, 1.0, 41)
    for _ in range(9):
        w0, w1 = (centre[i] + width[i] * side for i in (0, 1))
        w0 = np.append(-np.inf, w0)
        s0, t0 = ndtr(w0)[:, None], trade_off(w0)[:, None]
        s1, t1 = ndtr(w1)[None, :], 1 - trade_off(-w1)[None, :]
        inside = (s0 + s1 <= 1) & (t0 + t1 <= 1)
        first = law.success(np.minimum(s0 + s1, 1.0)) - law.success(s0)
        second = law.success(np.minimum(t0 + t1, 1.0)) - law.success(t0)
        found = np.where(inside, first - weight * second, -1.0)
        row, column = np.unravel_index(int(np.argmax(found)), found.shape)
        best = max(best, float(found[row, column]))
        centre = np.array([w0[max(row, 1)], w1[column]])
        width = width / 4
    return max(best - _ROUNDING * best - 8 * 2.0**-52 * weight, 0.0)


def selection_lower_bound(base: PrivacyLoss, law: Repetitions, delta: float) -> float:
    """An epsilon that no account of the best of K runs can undercut at `delta`, if one run is what `base` allows.

    Args:
        base: a loss that is the exact profile of some run: Gaussian, pure, Laplace, a table, ...
        law: of K.
        delta: in (0, 1).

    Raises:
        ValueError: a base that is only bounded from above (a Renyi curve, a sum, several bounds); delta out of range.
    """
    if not base._exact_profile or isinstance(base, Composition | BestOf):
        raise ValueError(
            f"A lower bound needs a run whose privacy profile is known exactly; {type(base).__name__} only bounds it."
        )
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), not {delta!r}.")
    curves = [pair.trade_off for pair in pairs_of(base)]

    def reaches(epsilon: float) -> bool:
        return any(attained_delta(law, curve, epsilon) > delta for curve in curves)

    if not reaches(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while reaches(high):
        low, high = high, 2 * high
        if high > 500.0:
            return low
    for _ in range(36):
        middle = (low + high) / 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low
