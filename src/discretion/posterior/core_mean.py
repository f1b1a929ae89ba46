r"""How far from 0 the posterior mean of the records that two neighbours share can be, given their posterior variances.

The core's mean at x is ``m(x) = w_x^T y``. Cauchy-Schwarz gives ``|m(x)| <= M sqrt(n-1) sqrt(v (1-v)) / r``, which is
not small where the posterior variance ``v`` is near its bound. With a kernel of at least ``kappa`` on the domain it
is: either all weights have one sign, and their sum is limited, or some weight has the other sign, and then the core's
covariance with x falls from ``v`` to 0 between two points that correlate by ``kappa`` or more, which costs norm.
Proofs, and how much a bound for one particular kernel could still gain: ``docs/proofs/core-mean.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from discretion.posterior.sensitivity import Array, checked, checked_count, checked_ridge


class Range(NamedTuple):
    """Least and largest value over each box; arrays (N,)."""

    low: Array
    high: Array


_WIDER = 1.0 + 2.0**-48
"""Covers the rounding of ``1 - x / width`` where it cancels."""


def core_mean_bound(variance: ArrayLike, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike = 0.0) -> Array:
    r"""Bound of ``|m(x)| / M``, which is a bound of the sum of the absolute core weights at x.

    .. math::

        L^2 = \max\Big\{ \frac{n-1}{r^2} \Big(v - \frac{v^2}{1-\kappa^2}\Big)_+,\;
              \min\Big( \frac{n-1}{r^2}\, v (1-v),\; \frac{(n-1)(1-v)}{(n-1)\kappa + 1 - \kappa + r^2} \Big) \Big\}

    Parameters
    ----------
    variance : array in (0, 1]
        The posterior variance ``v`` that the core leaves at x.
    n : array >= 1
        Number of records; the core has ``n - 1``.
    ridge : array > 0
        r.
    least_kernel : array, at most 1
        Lower bound ``kappa`` of the kernel on the domain; a negative one counts as 0, where L is that of
        Cauchy-Schwarz.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Proof in ``docs/proofs/core-mean.md``, Theorem 1.
    """
    v, count, r, kappa = _checked("variance", variance, 1.0, n, ridge, least_kernel)
    return largest_mean(Range(v, v), count, r, np.maximum(kappa, 0.0))


def core_difference_bound(spread: ArrayLike, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike = 0.0) -> Array:
    r"""Bound of ``|m(x) - m(x')| / M``: ``sqrt((n-1) (D - D^2 / (2 (1-kappa)))_+) / r``.

    ``spread`` is ``D = v + v' - 2 C(x, x')``, at least 0 and at most 4: the variance of ``f(x) - f(x')`` that the core
    leaves. ``least_kernel`` bounds ``k(x, x')`` from below; here a negative one counts as it is. Other parameters and
    errors as in :func:`core_mean_bound`. Proof in ``docs/proofs/core-mean.md``, Theorem 2.
    """
    D, count, r, kappa = _checked("spread", spread, 4.0, n, ridge, least_kernel)
    return np.sqrt((count - 1.0) * parabola(Range(D, D), 2.0 * (1.0 - kappa))) / r


def _checked(
    name: str, value: ArrayLike, most: float, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    x, kappa = checked(name, value, strict=False), np.asarray(least_kernel, dtype=np.float64)
    if np.any(x > most):
        raise ValueError(f"{name} must be at most {most:g}.")
    if not np.all(kappa <= 1.0):
        raise ValueError("least_kernel must be at most 1: kernels here have unit diagonal.")
    return x, checked_count("n", n), checked_ridge(ridge)[0], kappa


def parabola(x: Range, width: ArrayLike) -> Array:
    """Largest ``x (1 - x / width)``, or 0, over each range; increases with the width."""
    wide = np.asarray(width) * _WIDER
    top = np.clip(0.5 * wide, x.low, x.high)
    return np.divide(top * (wide - top), wide, out=np.zeros(np.broadcast(top, wide).shape), where=top < wide)


def largest_mean(v: Range, n: ArrayLike, ridge: ArrayLike, kappa: ArrayLike) -> Array:
    """Largest L over each range of variances."""
    core, q, k = np.asarray(n) - 1.0, np.square(ridge), np.asarray(kappa)
    mixed = core * parabola(v, (1.0 - k) * (1.0 + k)) / q
    alike = np.minimum(core * parabola(v, 1.0) / q, core * (1.0 - v.low) / (core * k + (1.0 - k) + q))
    return np.sqrt(np.maximum(mixed, alike))
