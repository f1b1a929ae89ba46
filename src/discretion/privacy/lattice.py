"""Released numbers on a public lattice, the whole multiples of a power of two. `docs/proofs/lattice-rounding.md`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["is_power_of_two", "lattice_spacing", "to_lattice", "to_steps"]

Array = NDArray[np.float64]

_FINENESS = 6  # the noise is at least 2^6 spacings: rounding adds 2e-5 of its variance

_ON_IT = 2.0**52
_LEAST_EXPONENT = -1074


def is_power_of_two(spacing: float) -> bool:
    """Whether `spacing` is 2^e, e a whole number: only then is rounding to its multiples exact in floating point."""
    return math.isfinite(spacing) and spacing > 0 and math.frexp(spacing)[0] == 0.5


def lattice_spacing(noise: float) -> float:
    """The largest power of two that is at most ``noise / 64``.

    Args:
        noise: standard deviation of the smallest independent noise in each number, a public parameter; positive and
            finite.

    Raises:
        ValueError: not such a number.
    """
    if not (math.isfinite(noise) and noise > 0):
        raise ValueError("The standard deviation of the noise must be positive and finite.")
    return math.ldexp(1.0, max(math.frexp(noise)[1] - 1 - _FINENESS, _LEAST_EXPONENT))


def to_steps(values: ArrayLike, spacing: float) -> Array:
    """``floor(values / spacing + 1/2)`` without a rounding error: whole numbers, as float64.

    Halves are rounded up, so that moving a value by whole spacings moves the result by as many
    (``docs/proofs/lattice-rounding.md``, Lemma 1). Infinite or NaN where the quotient is.

    Raises:
        ValueError: the spacing is not a power of two.
    """
    if not is_power_of_two(spacing):
        raise ValueError(f"The spacing of a lattice must be a power of two, such as 1, 0.5 or 0.25; got {spacing!r}.")
    with np.errstate(all="ignore"):
        steps = np.asarray(values, dtype=np.float64) / spacing
        whole = np.floor(steps)
        return np.where(np.abs(steps) < _ON_IT, whole + (steps - whole >= 0.5), steps)


def to_lattice(values: ArrayLike, spacing: float) -> Array:
    """The nearest multiples of `spacing`, float64, halves rounded up; there is no negative zero among them.

    Post-processing of noisy values that are spaced more finely: it costs nothing. Values beyond 2^52 spacings are
    multiples as they stand; NaN stays NaN.

    Raises:
        ValueError: the spacing is not a power of two.
    """
    values = np.asarray(values, dtype=np.float64)
    steps = to_steps(values, spacing)
    with np.errstate(all="ignore"):
        return np.where(np.abs(steps) <= _ON_IT, steps * spacing, values) + 0.0
