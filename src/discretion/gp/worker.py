"""What a worker of a cluster does: one block of a joint Cholesky factor at a time, and no word of what it holds.

A worker logs the arguments of a task that fails, and hands its error on. So no task here fails: it returns `Failed`,
and what needs its result returns the same. Private arrays travel in objects whose repr says nothing.

A block that is lost with its worker is computed again, when others have used it already. So a finished block is signed
with a digest of its bits, and each block tells the signatures of those it was made from. Why:
`docs/proofs/floor-of-noise.md`, "Blocks on a cluster".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from discretion.gp.domain import Array
from discretion.gp.factor import BLAS, cholesky, solve_right, subtract_gram, subtract_product
from discretion.gp.kernels import Kernel

SPILLS = "spilling to disk"


@dataclass(frozen=True)
class Failed:
    """In place of a block that could not be computed: the type of the error, all that is kept of it, or the reason."""

    kind: str


@dataclass(frozen=True, eq=False, repr=False)
class Sealed:
    """PRIVATE. An array on its way to a worker."""

    array: Array


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """PRIVATE. A block; its number and signature once it is finished; the signatures of the blocks it is made from."""

    array: Array
    used: dict[int, bytes] = field(default_factory=dict)
    number: int = -1
    signature: bytes = b""

    @property
    def told(self) -> dict[int, bytes]:
        """All signatures it knows of."""
        return self.used if self.number < 0 else self.used | {self.number: self.signature}

    def __sizeof__(self) -> int:
        return self.array.nbytes + 128 * len(self.used) + 256


def signed(array: Array, number: int, *made_from: Block) -> Block:
    """A finished block."""
    signature = hashlib.blake2b(np.ascontiguousarray(array.T).data, digest_size=16).digest()
    return Block(array, _signatures(*made_from), number, signature)


def _signatures(*blocks: Block) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for block in blocks:
        found |= block.used if block.number < 0 else {block.number: block.signature}
    return found


def told(dask_worker: Any) -> tuple[bool, int]:
    """Run on every worker before the start: whether it spills, and the bytes at which it pauses or, where it does not,
    the most it may have; 0 for no limit.
    """
    limits = dask_worker.memory_manager
    return spills(dask_worker), int((limits.memory_limit or 0) * (limits.memory_pause_fraction or 1.0))


def spills(dask_worker: Any) -> bool:
    """Whether a worker keeps its blocks anywhere but in a plain dictionary, such as one that writes to disk."""
    return type(dask_worker.data) is not dict


def guarded(spill: bool, task: Callable[..., Any], *arguments: Any) -> Any:
    """What the task returns, or `Failed`: also on a worker that spills and may not."""
    for each in arguments:
        if isinstance(each, Failed):
            return each
    try:
        from distributed import get_worker

        if not spill and spills(get_worker()):
            return Failed(SPILLS)
        with np.errstate(all="ignore"):
            return task(*arguments)
    except Exception as error:
        return Failed(type(error).__name__)


def held(sealed: Sealed) -> Array:
    """An array, kept by a worker for the tasks that need it."""
    return sealed.array


def begun(sealed: Sealed) -> Block:
    """An array as a block from which products are to be taken."""
    return Block(np.asfortranarray(sealed.array))


def filled(kernel: Kernel, diagonal: float, here: Array, there: Array, *pair: Block) -> Block:
    """k(here, there) + diagonal I, less the product of a pair of blocks if there is one."""
    array = np.empty((len(here), len(there)), order="F")
    kernel.fill(array.T, there, here)
    if diagonal:
        np.einsum("ii->i", array)[...] += diagonal
    return _less(array, Block(array), *pair) if pair else Block(array)


def reduced(block: Block, left: Block, right: Block) -> Block:
    """block - left right^T."""
    return _less(np.array(block.array, order="F"), block, left, right)


def _less(array: Array, block: Block, left: Block, right: Block) -> Block:
    if left is right:  # on the diagonal, where the lower triangle is all that is read
        subtract_gram(array, left.array)
    else:
        subtract_product(array, left.array, right.array)
    return Block(array, _signatures(block, left, right))


def factored(number: int, block: Block) -> Block:
    """The lower Cholesky factor; what is above the diagonal is never read."""
    factor = np.array(block.array, order="F")
    cholesky(factor)
    return signed(factor, number, block)


def solved(number: int, block: Block, pivot: Block) -> Block:
    """block pivot^{-T}."""
    solution = np.array(block.array, order="F")
    solve_right(solution, pivot.array)
    return signed(solution, number, block, pivot)


def seal_of(block: Block) -> Block:
    """A block without its array."""
    return Block(np.empty((0, 0)), block.used, block.number, block.signature)


def times(block: Block, vectors: Array) -> Block:
    """block @ vectors."""
    return Block(block.array @ vectors, _signatures(block))


def lower_times(block: Block, vectors: Array) -> Block:
    """The lower triangle of the block times vectors."""
    return Block(BLAS.dtrmm(1.0, block.array, vectors, lower=1), _signatures(block))
