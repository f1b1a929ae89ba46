"""Lower triangular Cholesky factors kept by block rows: half the memory of a square, and rows can be added in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import linalg

from discretion.gp.domain import Array

BLAS: Any = linalg.blas  # in place on F-contiguous arrays, hence the layout below
LAPACK: Any = linalg.lapack
BLOCK = 1024  # rows of one block: level-3 BLAS runs at full rate on them
MERGED = 512  # rows of a block up to which small ones are merged


class FactorisationError(FloatingPointError):
    """A Cholesky factorisation broke down, or a result is not finite; nothing was returned.

    It is never repeated with other constants: those belong to the caller and are fixed beforehand.
    """


class Block:
    """Consecutive rows of a lower triangular L: a part `before` their triangle, and `own`, whose upper part is unused.

    `rows` is F-contiguous, and so is every range of its columns.
    """

    __slots__ = ("rows", "start", "stop")

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.stop = rows.shape[1]
        self.start = self.stop - len(rows)

    @property
    def before(self) -> Array:
        return self.rows[:, : self.start]

    @property
    def own(self) -> Array:
        return self.rows[:, self.start :]

    def joined(self, later: Block) -> Block:
        """This block and the one directly after it as one."""
        rows = np.zeros((len(self.rows) + len(later.rows), later.stop), order="F")
        rows[: len(self.rows), : self.stop], rows[len(self.rows) :] = self.rows, later.rows
        return Block(rows)


def appended(blocks: tuple[Block, ...], block: Block) -> tuple[Block, ...]:
    """The blocks and one more. Small ones of like size are merged: many additions of one row make few blocks."""
    while blocks and len(blocks[-1].rows) <= len(block.rows) and len(blocks[-1].rows) + len(block.rows) <= MERGED:
        block, blocks = blocks[-1].joined(block), blocks[:-1]
    return (*blocks, block)


def storage(n: int) -> int:
    """Numbers in a factor of n rows."""
    return sum((stop - start) * stop for start, stop in tiles(n))


def tiles(n: int) -> Iterable[tuple[int, int]]:
    """Ranges of at most `BLOCK` rows."""
    return ((start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def eliminate(rows: Array, blocks: Iterable[Block]) -> None:
    """Leading columns of rows <- rows L^{-T}, in place, for the factor L of these blocks."""
    for block in blocks:
        part = rows[:, block.start : block.stop]
        subtract_product(part, rows[:, : block.start], block.before)
        solve_right(part, block.own)


def factored(rows: Array, blocks: Iterable[Block]) -> Block:
    """The block of L that rows [A_new,old, A_new,new] become, in place, after the others. FactorisationError."""
    eliminate(rows, blocks)
    block = Block(rows)
    subtract_gram(block.own, block.before)
    cholesky(block.own)
    return block


def solve(blocks: Iterable[Block], y: Array) -> Array:
    """L^{-1} y."""
    x = y.copy()
    for block in blocks:
        x[block.start : block.stop] -= block.before @ x[: block.start]
        x[block.start : block.stop] = BLAS.dtrsv(block.own, x[block.start : block.stop], lower=1)
    return x


def solve_transposed(blocks: tuple[Block, ...], y: Array) -> Array:
    """L^{-T} y."""
    x = y.copy()
    for block in reversed(blocks):
        own = BLAS.dtrsv(block.own, x[block.start : block.stop], lower=1, trans=1)
        x[block.start : block.stop] = own
        x[: block.start] -= own @ block.before
    return x


def _written(target: Array, result: Array) -> None:
    # f2py hands back the array itself unless it had to copy
    if result is not target:
        target[...] = result


def cholesky(A: Array) -> None:
    """Overwrite the lower triangle of the F-contiguous A by its Cholesky factor; the upper stays as it is."""
    if len(A):
        factor, info = LAPACK.dpotrf(A, lower=1, clean=0, overwrite_a=1)
        if info != 0 or not np.isfinite(np.einsum("ii->i", factor)).all():
            raise FactorisationError("A Cholesky factorisation broke down; nothing was returned.")
        _written(A, factor)


def solve_right(B: Array, L: Array) -> None:
    """B <- B L^{-T} for a lower triangular L, both F-contiguous, in place."""
    if B.size:
        _written(B, BLAS.dtrsm(1.0, L, B, side=1, lower=1, trans_a=1, overwrite_b=1))


def subtract_gram(S: Array, B: Array) -> None:
    """Lower triangle of S <- S - B B^T, both F-contiguous, in place."""
    if B.size:
        _written(S, BLAS.dsyrk(-1.0, B, beta=1.0, c=S, lower=1, overwrite_c=1))


def subtract_product(C: Array, A: Array, B: Array) -> None:
    """C <- C - A B^T, all F-contiguous, in place."""
    if C.size and A.size:
        _written(C, BLAS.dgemm(-1.0, A, B, beta=1.0, c=C, trans_b=1, overwrite_c=1))


def mirror(S: Array, tile: int = 256) -> Array:
    """Copy the lower triangle of S onto the upper one, in place, and return S."""
    for start in range(0, len(S), tile):
        stop = start + tile
        S[:start, start:stop] = S[start:stop, :start].T
        corner = S[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return S
