"""Where the randomness of a release comes from.

A release that counts draws from the operating system's cryptographic generator and takes no seed: whoever
knows the seed knows the noise. A seeded source exists for tests and simulation, and says that it cannot be
booked.

The numbers of `standard_normal` are floats and have gaps between them. What that leaves open, and what the
source itself defends and does not, is in `docs/threat-model.md`; noise without gaps is in `discrete.py`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["Randomness", "RepeatedNoise", "SeededRandomness", "SystemRandomness", "noise_id", "source_of"]

Array = NDArray[np.float64]
Words = NDArray[np.uint64]
Shape = int | tuple[int, ...]

_REMEMBERED = 1 << 16  # noise ids that a process keeps in mind
_seen: OrderedDict[str, object] = OrderedDict()


class RepeatedNoise(RuntimeError):
    """A source of noise gave the same bits twice, so two releases would share their noise. Nothing is released.

    The difference of two such releases is a difference of exact results.
    """


def noise_id(randomness: Randomness) -> str:
    """A public name for the noise of one release, drawn from its source before the noise: `Randomness.fresh_id`.

    A source that may be booked gives no id twice within a process, of the last 65,536; a ledger compares with every id
    it has booked. What that catches, and what not, is in `docs/threat-model.md`.

    Raises:
        RepeatedNoise: the id was given before.
    """
    name, mine = randomness.fresh_id(), object()
    if randomness.bookable and _seen.setdefault(name, mine) is not mine:  # one step: of two threads one fails
        raise RepeatedNoise(
            f"{type(randomness).__name__} gave the same random bits twice. Nothing was released with them. Use "
            "SystemRandomness() as it is, in a process and machine started afresh."
        )
    if len(_seen) > _REMEMBERED:
        _seen.popitem(last=False)
    return name


@runtime_checkable
class Randomness(Protocol):
    """A source of random numbers for a release."""

    @property
    def bookable(self) -> bool:
        """Whether a release made with it may enter a ledger: true for cryptographic sources only."""
        ...

    def words(self, count: int) -> Words:
        """Independent words of 64 random bits, a uint64 array of shape (count,)."""
        ...

    def standard_normal(self, shape: Shape = ()) -> Array:
        """Independent standard normal numbers, a float64 array of the given shape."""
        ...

    def uniform(self, shape: Shape = ()) -> Array:
        """Independent uniform numbers of the open interval (0, 1), a float64 array of the given shape."""
        ...

    def fresh_id(self) -> str:
        """A public name for the noise drawn next: 128 bits of the same source, 32 hexadecimal digits.

        Two releases with one id came from one state of the source. The bits are independent of the noise, so the
        id says nothing about it; a fingerprint of the noise itself would let guesses of it be checked.
        """
        ...


class _Bits:
    """Numbers made of 64 random bits each."""

    __slots__ = ()

    def words(self, count: int) -> Words:
        """Independent words of 64 random bits, a uint64 array of shape (count,)."""
        raise NotImplementedError

    def standard_normal(self, shape: Shape = ()) -> Array:
        """Independent standard normal numbers, a float64 array of the given shape.

        Inverse of the distribution function: one bit is the sign, 63 bits are a tail probability p in (0,
        1/2], so that the tails are resolved to p = 2^-65, beyond 9 standard deviations.
        """
        bits = self.words(_size(shape))
        tail = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        normal = ndtri(tail)
        return np.where(bits & np.uint64(1), -normal, normal).reshape(shape)

    def uniform(self, shape: Shape = ()) -> Array:
        """Independent uniform numbers of the open interval (0, 1), a float64 array of the given shape.

        The midpoints of 2^52 equal cells; 0 and 1 do not occur.
        """
        bits = self.words(_size(shape))
        return (((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


class SystemRandomness(_Bits):
    """The operating system's cryptographic generator (`os.urandom`; on Linux, ChaCha20 in the kernel).

    It holds no state and takes no seed: forks, copies and pickles of it each draw fresh numbers.
    """

    __slots__ = ()

    @property
    def bookable(self) -> bool:
        """True: a release made with it may enter a ledger."""
        return True

    def words(self, count: int) -> Words:
        """Independent words of 64 random bits, a uint64 array of shape (count,)."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def fresh_id(self) -> str:
        """A public name for the noise drawn next: 128 bits of the same source, 32 hexadecimal digits."""
        return self.words(2).tobytes().hex()

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

    __slots__ = ("_generator", "_names", "_seed")

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool | np.bool_) or not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"The seed must be an integer of at least 0, not {seed!r}.")
        self._seed = int(seed)
        self._generator = np.random.Generator(np.random.PCG64(self._seed))
        # Far ahead on the same stream, so that asking for ids does not move the numbers.
        self._names = np.random.Generator(np.random.PCG64(self._seed).jumped())

    @property
    def bookable(self) -> bool:
        """False: a release made with a seed must not enter a ledger."""
        return False

    def words(self, count: int) -> Words:
        """Pseudorandom words of 64 bits, a uint64 array of shape (count,)."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)

    def fresh_id(self) -> str:
        """32 hexadecimal digits that repeat with the seed, as is meant here."""
        return self._names.bytes(16).hex()

    def __repr__(self) -> str:
        return f"SeededRandomness(seed={self._seed}, for tests only)"


def source_of(randomness: Randomness | None) -> Randomness:
    """The source itself; the operating system's where none is given.

    Raises:
        TypeError: it is none, such as the bare seed that other libraries take.
    """
    if randomness is None:
        return SystemRandomness()
    if not isinstance(randomness, Randomness) or isinstance(randomness, type):
        raise TypeError(
            f"randomness must be a source of noise, not {type(randomness).__name__}. Leave it out for the operating "
            "system's, which takes no seed; for tests alone give SeededRandomness(3), which no ledger books."
        )
    return randomness


def _size(shape: Any) -> int:
    return int(np.prod(shape, dtype=np.int64))
