"""What an attack on one record can reach at most, in the words of statistics: a bound of its power."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from discretion.privacy.loss import GaussianDP, PrivacyLoss

__all__ = ["attack_power", "guessing"]

_STEPS = 400
_RARE = 1e-9


def attack_power(loss: PrivacyLoss, false_positive: float = 0.05) -> float:
    """The largest true positive rate of any test of D against a neighbour D' with this false positive rate.

        min over e >= 0 of  min( exp(e) a + delta(e),  1 - exp(-e) (1 - delta(e) - a) ),       a = false_positive

    Whoever tests may know everything but which of the two it is. Exact for Gaussian DP, else an upper bound; proof:
    `docs/proofs/attack-power.md` (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015, Theorem 2.1).

    Args:
        loss: of the release.
        false_positive: in [0, 1].

    Returns:
        A probability, at least `false_positive`.

    Raises:
        ValueError: false_positive outside [0, 1].
    """
    a = float(false_positive)
    if not 0.0 <= a <= 1.0:
        raise ValueError(f"A false positive rate lies in [0, 1]; got {false_positive!r}.")
    if isinstance(loss, GaussianDP):
        exact = float(ndtr(ndtri(a) + loss.mu)) if 0.0 < a < 1.0 else a
        return min(max(exact * (1.0 + 1e-14), a), 1.0)
    epsilon, delta = _profile(loss)
    with np.errstate(over="ignore"):
        bounds = np.minimum(np.exp(epsilon) * a + delta, 1.0 - np.exp(-epsilon) * (1.0 - delta - a))
    least = float(np.min(np.where(np.isnan(bounds), 1.0, bounds)))
    return min(max(least * (1.0 + 1e-12), a), 1.0)


def guessing(loss: PrivacyLoss) -> float:
    """The largest chance to guess right which of two equally likely neighbours it was: (1 + delta(0)) / 2, in [1/2, 1].

    The total variation distance of the two outputs is at most delta(0) of the `loss`. Proof:
    `docs/proofs/attack-power.md`.
    """
    return min(0.5 + 0.5 * loss.delta(0.0), 1.0)


def _profile(loss: PrivacyLoss) -> tuple[np.ndarray, np.ndarray]:
    """Epsilons from 0 to where delta is negligible, and bounds of delta there."""
    top = loss.epsilon(_RARE)
    top = top if math.isfinite(top) else 50.0
    epsilon = np.linspace(0.0, max(top, 1e-6), _STEPS)
    delta = np.asarray(loss._profile(epsilon), dtype=np.float64)
    return epsilon, np.where(np.isnan(delta), 1.0, np.clip(delta, 0.0, 1.0))
