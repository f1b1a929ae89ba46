"""Where the randomness of a release comes from.

A release that counts draws from the operating system's cryptographic generator and takes no seed: whoever
knows the seed knows the noise. A seeded source exists for tests and simulation, and says that it cannot be
booked.

What this does not defend: double-precision Gaussian noise has gaps between its values, so the guarantees of
this library are those of the exact distributions.
"""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["Randomness", "SeededRandomness", "SystemRandomness"]

Array = NDArray[np.float64]
Shape = int | tuple[int, ...]


@runtime_checkable
class Randomness(Protocol):
    """A source of random numbers for a release."""

    @property
    def bookable(self) -> bool:
        """Whether a release made with it may enter a ledger: true for cryptographic sources only."""
        ...

    def standard_normal(self, shape: Shape = ()) -> Array:
        """Independent standard normal numbers, a float64 array of the given shape."""
        ...

    def uniform(self, shape: Shape = ()) -> Array:
        """Independent uniform numbers of the open interval (0, 1), a float64 array of the given shape."""
        ...


class _Bits:
    """Numbers made of 64 random bits each."""

    __slots__ = ()

    def _bits(self, count: int) -> NDArray[np.uint64]:
        raise NotImplementedError

    def standard_normal(self, shape: Shape = ()) -> Array:
        """Independent standard normal numbers, a float64 array of the given shape.

        Inverse of the distribution function: one bit is the sign, 63 bits are a tail probability p in (0,
        1/2], so that the tails are resolved to p = 2^-65, beyond 9 standard deviations.
        """
        bits = self._bits(_size(shape))
        tail = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        normal = ndtri(tail)
        return np.where(bits & np.uint64(1), -normal, normal).reshape(shape)

    def uniform(self, shape: Shape = ()) -> Array:
        """Independent uniform numbers of the open interval (0, 1), a float64 array of the given shape.

        The midpoints of 2^52 equal cells; 0 and 1 do not occur.
        """
        bits = self._bits(_size(shape))
        return (((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


class SystemRandomness(_Bits):
    """The operating system's cryptographic generator (`os.urandom`).

    It holds no state and takes no seed, so copies and pickles of it are harmless: each draws fresh numbers.
    """

    __slots__ = ()

    @property
    def bookable(self) -> bool:
        """True: a release made with it may enter a ledger."""
        return True

    def _bits(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "SystemRandomness()"

    def __eq__(self, other: object) -> bool:
        return type(other) is SystemRandomness

    def __hash__(self) -> int:
        return hash(SystemRandomness)


class SeededRandomness(_Bits):
    """A repeatable source (numpy's PCG64), for tests and simulation only.

    The noise of a release made with a known seed can be subtracted, so such a release protects nobody and
    cannot be booked.

    Args:
        seed: an integer, at least 0; the same seed gives the same numbers in the same order.

    Raises:
        ValueError: no seed, or one that is not such an integer.
    """

    __slots__ = ("_generator", "_seed")

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool | np.bool_) or not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"The seed must be an integer of at least 0, not {seed!r}.")
        self._seed = int(seed)
        self._generator = np.random.Generator(np.random.PCG64(self._seed))

    @property
    def bookable(self) -> bool:
        """False: a release made with a seed must not enter a ledger."""
        return False

    def _bits(self, count: int) -> NDArray[np.uint64]:
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)

    def __repr__(self) -> str:
        return f"SeededRandomness(seed={self._seed}, for tests only)"


def _size(shape: Any) -> int:
    return int(np.prod(shape, dtype=np.int64))
