"""The randomness of a search: one secret key, and from it one independent stream for every purpose and run.

The number of runs, the candidates drawn and the noise of each run are functions of the key. Whoever keeps the key can
repeat a search that was interrupted, to the last bit and in any order; whoever knows it can take the noise away.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import Randomness, certificate
from discretion.privacy.noise import _Bits

__all__ = ["KEY_BYTES", "KeyedRandomness", "SearchKey"]

KEY_BYTES = 32
_BLOCK = 1 << 16


class KeyedRandomness(_Bits):
    """PRIVATE. Random numbers from a secret key: block j is SHAKE256(key || purpose || j), 64 KiB long.

    SHAKE256 with the key in front is a pseudorandom function (FIPS 202; the sponge has no length extension), so the
    streams of different purposes are independent of each other and indistinguishable from coin flips without the key.
    It pickles, because workers need it; nothing released may hold it.
    """

    __slots__ = ("_block", "_bookable", "_left", "_prefix")

    def __init__(self, key: bytes, purpose: str, *, bookable: bool) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"A key has {KEY_BYTES} bytes.")
        self._prefix = key + len(purpose.encode()).to_bytes(4, "big") + purpose.encode()
        self._bookable = bookable
        self._block = 0
        self._left = b""

    @property
    def bookable(self) -> bool:
        """Whether the key came from a source that nobody can replay."""
        return self._bookable

    def bytes(self, count: int) -> bytes:
        """The next random bytes of the stream."""
        parts, missing = [self._left[:count]], count - len(self._left)
        self._left = self._left[count:]
        while missing > 0:
            # a short first block keeps a run that needs few numbers cheap
            size = 512 if self._block == 0 else _BLOCK
            block = hashlib.shake_256(self._prefix + self._block.to_bytes(8, "big")).digest(size)
            self._block += 1
            parts.append(block[:missing])
            self._left = block[missing:]
            missing -= size
        return b"".join(parts)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next words of 64 random bits, a uint64 array of shape (count,)."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def fresh_id(self) -> str:
        """A name of 32 hexadecimal digits, new each time: a search that is taken up again draws the same noise anew.

        No more than one release of a search ever leaves; the ledger knows the search by `SearchKey.commitment`.
        """
        return os.urandom(16).hex()

    def __repr__(self) -> str:
        return "KeyedRandomness(PRIVATE)"


@dataclass(frozen=True, eq=False, repr=False)
class SearchKey:
    """PRIVATE. The key of one search; everything random in it follows from these 32 bytes.

    Attributes:
        key: the bytes.
        bookable: whether they came from a source that nobody can replay.
        drawn: when, in UTC: the one time that a search tells, whatever its runs take.
    """

    key: bytes = field(repr=False)
    bookable: bool
    drawn: str = field(default_factory=lambda: certificate.utc_now())

    @classmethod
    def draw(cls, randomness: Randomness) -> SearchKey:
        """A key from 416 random bits of `randomness`."""
        return cls(hashlib.sha3_256(randomness.uniform(8).tobytes()).digest(), randomness.bookable is True)

    @property
    def commitment(self) -> str:
        """SHA-256 of the key, 64 hexadecimal digits: public. It names this key and no other, and does not tell it."""
        return hashlib.sha256(b"discretion search key 1" + self.key).hexdigest()

    def stream(self, purpose: str) -> KeyedRandomness:
        """The stream for a purpose, from its beginning."""
        return KeyedRandomness(self.key, purpose, bookable=self.bookable)

    def __repr__(self) -> str:
        return "SearchKey(PRIVATE)"
