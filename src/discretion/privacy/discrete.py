"""Gaussian and Laplace noise on a lattice: exact samplers, and mechanisms for numbers and vectors.

    P(k) ~ exp(-k^2 / (2 s^2))   discrete Gaussian,      P(k) ~ exp(-|k| / s)   discrete Laplace,     k whole

with s a whole number of spacings. Every decision of the samplers compares integers made of random bits, so the
laws are exact and have no gaps (`docs/proofs/discrete-gaussian.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.privacy.lattice import is_power_of_two, to_steps
from discretion.privacy.loss import Neighbours, PureDP, RenyiCurve
from discretion.privacy.noise import Randomness
from discretion.privacy.profiles import PrivacyProfile

__all__ = ["LatticeGaussian", "LatticeLaplace", "discrete_gaussian", "discrete_laplace"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Words = NDArray[np.uint64]

MOST_STEPS = 1 << 40
"""Largest scale of the samplers."""

_MOST_TABULATED = 1 << 16  # scale up to which the exact profile is summed
_ENTRIES = 2048
_REACH = 38.7  # e^(-z^2/2) is below the least float beyond
_BATCH = 1 << 16
_LARGEST = 2.0**52
_ONE = np.uint64(1)


# --- Samplers ---------------------------------------------------------------------------------------------


def discrete_gaussian(scale: int, shape: int | tuple[int, ...], randomness: Randomness) -> Whole:
    """Independent k with ``P(k) ~ exp(-k^2 / (2 scale^2))``, exactly; int64 of the given shape.

    Karney's form of the rejection sampler: k = q scale + j with q ~ exp(-q^2/2) and j uniform below scale, kept with
    probability ``exp(-j/scale)^q exp(-j^2 / (2 scale^2))``, which is 0.71 on average.

    Args:
        scale: whole, from 1 to 2^40.
        shape: of the result.
        randomness: its `words` are all that is drawn.

    Raises:
        ValueError: the scale is not such a number.

    Source: Karney 2016, Algorithm D; Canonne, Kamath and Steinke 2020, Algorithm 1.
    Proof: `docs/proofs/discrete-gaussian.md`, Theorem 1.
    """
    return _sampled(_gaussian_proposals, scale, shape, randomness)


def discrete_laplace(scale: int, shape: int | tuple[int, ...], randomness: Randomness) -> Whole:
    """Independent k with ``P(k) ~ exp(-|k| / scale)``, exactly; int64 of the given shape.

    Arguments and errors as for `discrete_gaussian`.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 2. Proof: `docs/proofs/discrete-gaussian.md`, Theorem 1.
    """
    return _sampled(_laplace_proposals, scale, shape, randomness)


def _sampled(
    proposals: Callable[[int, int, Randomness], Whole], scale: int, shape: int | tuple[int, ...], randomness: Randomness
) -> Whole:
    if isinstance(scale, bool) or int(scale) != scale or not 1 <= scale <= MOST_STEPS:
        raise ValueError(f"The scale of lattice noise must be a whole number from 1 to 2^40; got {scale!r}.")
    count = int(np.prod(shape, dtype=np.int64))
    parts, missing = [np.empty(0, dtype=np.int64)], count
    while missing > 0:
        parts.append(proposals(int(scale), min(_BATCH, missing + missing // 2 + 16), randomness))
        missing -= parts[-1].size
    return np.concatenate(parts)[:count].reshape(shape)


def _gaussian_proposals(scale: int, count: int, randomness: Randomness) -> Whole:
    """Those of `count` proposals that are kept."""
    q, j = _half_normal(count, randomness), _below(scale, count, randomness)
    kept = _coin(j, (scale, 2 * scale), randomness)
    kept &= _all_heads(q, partial(_coin, divisors=(scale,)), j, randomness)
    return _signed(q, j, scale, kept, randomness)


def _laplace_proposals(scale: int, count: int, randomness: Randomness) -> Whole:
    q, j = _heads(1, count, randomness), _below(scale, count, randomness)
    return _signed(q, j, scale, _coin(j, (scale,), randomness), randomness)


def _signed(q: Words, j: Words, scale: int, kept: NDArray[np.bool_], randomness: Randomness) -> Whole:
    """+-(q scale + j) where kept, of the two zeros only one."""
    size = (q * np.uint64(scale) + j).astype(np.int64)
    minus = (randomness.words(len(size)) & _ONE).astype(bool)
    return np.where(minus, -size, size)[kept & ~(minus & (size == 0))]


def _half_normal(count: int, randomness: Randomness) -> Words:
    """q >= 0 with P(q) ~ exp(-q^2/2): of q ~ exp(-q/2) those that win q (q - 1) coins of chance exp(-1/2)."""
    found, missing = [], count
    while missing > 0:
        q = _heads(2, missing + missing // 2 + 16, randomness)
        coins = q * np.where(q > 0, q - _ONE, q)
        found.append(q[_all_heads(coins, partial(_coin, divisors=(2,)), np.ones_like(q), randomness)])
        missing -= found[-1].size
    return np.concatenate(found)[:count]


def _heads(divisor: int, count: int, randomness: Randomness) -> Words:
    """How often a coin of chance exp(-1/divisor) comes up before it fails: P(q) ~ exp(-q/divisor)."""
    heads, going = np.zeros(count, dtype=np.uint64), np.arange(count)
    while going.size:
        going = going[_coin(np.ones(going.size, dtype=np.uint64), (divisor,), randomness)]
        heads[going] += _ONE
    return heads


def _all_heads(
    coins: Words, coin: Callable[..., NDArray[np.bool_]], j: Words, randomness: Randomness
) -> NDArray[np.bool_]:
    """Whether `coins` throws of each one's coin all come up."""
    won, going, left = np.ones(coins.size, dtype=bool), np.flatnonzero(coins), coins[coins > 0]
    while going.size:
        heads = coin(j[going], randomness=randomness)
        won[going[~heads]] = False
        still = heads & (left > _ONE)
        going, left = going[still], left[still] - _ONE
    return won


def _coin(j: Words, divisors: tuple[int, ...], randomness: Randomness) -> NDArray[np.bool_]:
    """Coins of chance exp(-x), x = product of j / d over the divisors d, each at least j.

    The m-th round goes on with chance x/m, by one comparison of integers for each divisor; the chance that the first
    round to fail is odd is 1 - x + x^2/2 - ... (Forsythe; Canonne, Kamath and Steinke 2020, Algorithm 1).
    """
    heads, going, m = np.zeros(j.size, dtype=bool), np.arange(j.size), 1
    while going.size:
        on = going
        for divisor in (*divisors[:-1], divisors[-1] * m):
            on = on[_below(divisor, on.size, randomness) < j[on]]
        heads[going] = m % 2 == 1
        going, m = on, m + 1
    return heads


def _below(bound: int, count: int, randomness: Randomness) -> Words:
    """Uniform whole numbers from 0 to bound - 1, bound <= 2^63: words at or above the largest multiple are redrawn."""
    if bound > 1 << 63:
        raise OverflowError("A sampler went on for longer than is possible; nothing was drawn.")
    words, top = randomness.words(count), (1 << 64) // bound * bound
    if top < 1 << 64:
        again = np.flatnonzero(words >= np.uint64(top))
        words = words.copy() if again.size else words
        while again.size:
            words[again] = randomness.words(again.size)
            again = again[words[again] >= np.uint64(top)]
    return words % np.uint64(bound)


# --- Mechanisms -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LatticeNoise:
    spacing: float
    scale: float
    whole: bool = False

    def __post_init__(self) -> None:
        if not is_power_of_two(self.spacing):
            raise ValueError(f"spacing must be a power of two, such as 1, 0.5 or 0.25; got {self.spacing!r}.")
        if not (0 < self.scale <= MOST_STEPS * self.spacing):
            raise ValueError(f"scale must be positive and at most 2^40 spacings; got {self.scale!r}.")

    @property
    def steps(self) -> int:
        """The scale in spacings, rounded up to a whole number: what is used and accounted."""
        return max(1, math.ceil(self.scale / self.spacing))

    def _draw(self, shape: tuple[int, ...], randomness: Randomness) -> Whole:
        raise NotImplementedError

    def add(self, values: ArrayLike, randomness: Randomness) -> Array:
        """PRIVATE values in, PUBLIC values out: rounded to the lattice, plus noise; float64 of the same shape.

        Values beyond 2^52 spacings become that, by rule.

        Raises:
            FloatingPointError: a value is NaN or, where `whole` is set, not a multiple of the spacing. The message
                names no value; that there was one is an output.
        """
        exact = np.asarray(values, dtype=np.float64)
        if np.isnan(exact).any():
            raise FloatingPointError("A value is not a number; nothing was released.")
        rounded = np.clip(to_steps(exact, self.spacing), -_LARGEST, _LARGEST)
        if self.whole and not np.array_equal(rounded * self.spacing, exact):
            raise FloatingPointError("A value is not a multiple of the spacing; nothing was released.")
        noisy = rounded.astype(np.int64) + self._draw(exact.shape, randomness)
        return np.clip(noisy, -(1 << 53), 1 << 53).astype(np.float64) * self.spacing


@dataclass(frozen=True)
class LatticeGaussian(_LatticeNoise):
    """Values rounded to a public lattice, plus discrete Gaussian noise on it.

    Args:
        spacing: of the lattice, a power of two, in units of the values.
        scale: sigma of the noise, in units of the values; rounded up to whole spacings. The spacing is best a
            hundredth of it or less, or 1 for counts.
        whole: the values are multiples of the spacing whatever the records are, as counts are; `add` checks it. Then
            rounding costs nothing.

    Raises:
        ValueError: a parameter out of range.

    Source: Canonne, Kamath and Steinke, *The discrete Gaussian for differential privacy* (2020).
    """

    def _draw(self, shape: tuple[int, ...], randomness: Randomness) -> Whole:
        return discrete_gaussian(self.steps, shape, randomness)

    def square_steps(self, sensitivity: float, dimension: int = 1) -> int:
        """Largest squared L2 distance, in spacings, of the rounded values of neighbours.

        `sensitivity`: that of the values in L2 norm, in their units; `dimension`: how many values there are.
        With t = sensitivity / spacing: ``ceil(t)^2`` for one value, ``floor((t + sqrt(dimension))^2)`` for more, and
        ``floor(t^2)`` where `whole` is set. `docs/proofs/lattice-rounding.md`, Lemma 2.
        """
        t = _ratio(sensitivity, self.spacing, dimension)
        if self.whole:
            return math.floor(t * t)
        if dimension == 1:
            return math.ceil(t) ** 2
        # (t + sqrt(d))^2 = t^2 + d + sqrt(4 t^2 d); the whole part of a root is exact
        return math.floor(t * t + dimension + _root_up(4 * t * t * dimension))

    def privacy_loss(
        self, sensitivity: float, *, dimension: int = 1, neighbours: Neighbours = Neighbours.REPLACE
    ) -> RenyiCurve:
        """Renyi curve ``alpha D / (2 s^2)``, D = `square_steps`, s = `steps`: that of continuous Gaussian noise.

        ``sensitivity`` is the L2 norm of what neighbours may change, in the unit of the spacing, in ``dimension``
        values. Holds for any number of values together. Canonne, Kamath and Steinke 2020, Theorem 4;
        `docs/proofs/discrete-gaussian.md`, Theorem 2.
        """
        rho = _up(Fraction(self.square_steps(sensitivity, dimension), 2 * self.steps**2))
        return RenyiCurve(
            lambda excess: (1.0 + excess) * (rho * (1.0 + 4.0 * 2.0**-52)),
            neighbours=neighbours,
            rule=f"discrete Gaussian noise, {rho:.6g}-zCDP",
        )

    def exact_loss(self, sensitivity: float, *, neighbours: Neighbours = Neighbours.REPLACE) -> PrivacyProfile:
        """The privacy profile of one value: smaller than what the Renyi curve implies, and not that of a Gaussian.

            delta(epsilon) = P[k <= m] - e^epsilon P[k <= m - D],    epsilon = D (D - 2 m) / (2 s^2)

        at all or 2,048 of the m at which it has kinks; up to 2^16 spacings to the scale. ``sensitivity`` is in the unit
        of the spacing. Canonne, Kamath and Steinke 2020, Theorem 7; `docs/proofs/discrete-gaussian.md`, Theorem 3.

        Raises:
            ValueError: the scale has more spacings.
        """
        shift = math.isqrt(self.square_steps(sensitivity))
        epsilons, deltas = _profile(self.steps, shift)
        return PrivacyProfile(epsilons, deltas, neighbours=neighbours, rule="discrete Gaussian noise, exact profile")


@dataclass(frozen=True)
class LatticeLaplace(_LatticeNoise):
    """Values rounded to a public lattice, plus discrete Laplace noise on it (the geometric mechanism).

    Arguments and errors as for `LatticeGaussian`; `scale` is that of the noise, ``P(k) ~ exp(-|k| spacing / scale)``.

    Source: Ghosh, Roughgarden and Sundararajan 2009.
    """

    def _draw(self, shape: tuple[int, ...], randomness: Randomness) -> Whole:
        return discrete_laplace(self.steps, shape, randomness)

    def sum_steps(self, sensitivity: float, dimension: int = 1) -> int:
        """Largest L1 distance, in spacings, of the rounded values of neighbours; t = sensitivity / spacing.

        ``ceil(t)`` for one value, ``floor(t) + dimension`` at most for more, ``floor(t)`` where `whole` is set.
        `docs/proofs/lattice-rounding.md`, Lemma 2.
        """
        t = _ratio(sensitivity, self.spacing, dimension)
        if self.whole:
            return math.floor(t)
        return math.ceil(t) if dimension == 1 else math.floor(t) + dimension

    def privacy_loss(
        self, sensitivity: float, *, dimension: int = 1, neighbours: Neighbours = Neighbours.REPLACE
    ) -> PureDP:
        """Pure DP at `sum_steps` over `steps`, for a `sensitivity` in L1 norm."""
        epsilon = _up(Fraction(self.sum_steps(sensitivity, dimension), self.steps))
        return PureDP(epsilon, neighbours=neighbours, rule="discrete Laplace noise")


def _ratio(sensitivity: float, spacing: float, dimension: int) -> Fraction:
    if not (math.isfinite(sensitivity) and sensitivity >= 0):
        raise ValueError(f"The sensitivity must be finite and not negative; got {sensitivity!r}.")
    if isinstance(dimension, bool) or int(dimension) != dimension or dimension < 1:
        raise ValueError(f"The number of values must be a whole number of at least 1; got {dimension!r}.")
    return Fraction(float(sensitivity)) / Fraction(spacing)


def _root_up(square: Fraction) -> Fraction:
    """sqrt(square), at most 2^-32 too large."""
    return Fraction(math.isqrt(math.ceil(square * 2**64)) + 1, 2**32)


def _up(x: Fraction) -> float:
    """x as a float that is no smaller."""
    value = float(x)
    return value if Fraction(value) >= x else math.nextafter(value, math.inf)


def _profile(scale: int, shift: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes of the profile of noise of this scale against the same moved by `shift`, deltas rounded up."""
    if scale > _MOST_TABULATED:
        raise ValueError(
            f"The exact profile is tabulated for scales of up to {_MOST_TABULATED} spacings, not {scale}; use "
            "privacy_loss, or a coarser lattice."
        )
    if shift == 0:
        return (0.0,), (0.0,)
    reach = math.ceil(_REACH * scale) + 1
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    # sums of positive numbers, the small ones first
    below = np.cumsum(np.exp(-((k / scale) ** 2) / 2))
    total = below[-1]
    error = (4.0 * reach + 4000.0) * 2.0**-52  # of a sum, relative: additions, and exponents of up to 750

    # kinks: the losses D (D - 2m) / (2 s^2) >= 0, from m = floor(D/2) downwards
    first, last = shift // 2, max(-reach, shift // 2 - math.ceil(20.0 * scale) - shift)
    m = np.unique(np.linspace(last, first, min(first - last + 1, _ENTRIES)).astype(np.int64))[::-1]
    epsilon = shift * (shift - 2.0 * m) / (2.0 * scale * scale)
    if epsilon[0] > 0:
        m, epsilon = np.append(first, m), np.append(0.0, epsilon)

    def cumulated(m: Whole) -> Array:
        return np.where(m < -reach, 0.0, below[np.clip(m + reach, 0, 2 * reach)]) / total

    with np.errstate(over="ignore"):
        here, there = cumulated(m), np.exp(np.minimum(epsilon, 700.0)) * cumulated(m - shift)
    there = np.where(epsilon > 700.0, 0.0, there)
    delta = np.clip(here * (1.0 + 2 * error) - there * (1.0 - 2 * error) + 1e-300, 0.0, 1.0)
    epsilon *= 1.0 + 4.0 * 2.0**-52
    return tuple(epsilon.tolist()), tuple(np.minimum.accumulate(delta).tolist())
