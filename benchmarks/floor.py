"""The floor of an exact posterior path: what LAPACK alone takes, measured beside whatever is compared with it.

A dense exact path at m points given n records cannot do with less than

    potrf(n)      A = L L^T                       n^3/3 flops
    trsm(n, m)    W = L^{-1} K_XT                 n^2 m
    syrk(m, n)    S = K_TT - W^T W                n m^2
    potrf(m)      C C^T = S                       m^3/3

The floor is the cpu time of these four calls, in place, on arrays that are there already. Evaluating the kernel, the
right-hand sides, the draw and every copy count as overhead. One thread is the caller's affair (OMP_NUM_THREADS=1);
`one_thread` holds BLAS to it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

BLAS: Any = linalg.blas
LAPACK: Any = linalg.lapack


class Floor(NamedTuple):
    """Cpu seconds of each call, medians over the repetitions."""

    potrf_n: float
    trsm: float
    syrk: float
    potrf_m: float

    @property
    def seconds(self) -> float:
        """All four together."""
        return sum(self)


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS takes one thread within: cpu seconds are then those of one core."""
    with threadpool_limits(1):
        yield


def cpu(call: Callable[[], object]) -> float:
    """Cpu seconds of a call, all threads of the process together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def floor(n: int, m: int, repetitions: int = 3) -> Floor:
    """The floor at n records and m points."""
    return beside(n, m, (), repetitions)[0]


def beside(
    n: int, m: int, others: tuple[Callable[[], object], ...], repetitions: int = 3
) -> tuple[Floor, tuple[float, ...]]:
    """The floor, and the median cpu seconds of other calls taken in turns with it: one run, one load of the machine."""
    rounds: list[list[float]] = []
    with one_thread():
        for _ in range(repetitions):
            rounds.append([*_calls(n, m), *(cpu(other) for other in others)])
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return Floor(*medians[:4]), tuple(medians[4:])


def _calls(n: int, m: int) -> tuple[float, ...]:
    A, W, S = (np.full(shape, 0.01, order="F") for shape in ((n, n), (m, n), (m, m)))
    # conditions of a ridge regression: nothing breaks down, nothing is denormal
    np.einsum("ii->i", A)[...] += n
    np.einsum("ii->i", S)[...] += m
    return (
        cpu(lambda: LAPACK.dpotrf(A, lower=1, clean=0, overwrite_a=1)),
        cpu(lambda: BLAS.dtrsm(1.0, A, W, side=1, lower=1, trans_a=1, overwrite_b=1)),
        cpu(lambda: BLAS.dsyrk(-1.0, W, beta=1.0, c=S, lower=1, overwrite_c=1)),
        cpu(lambda: LAPACK.dpotrf(S, lower=1, clean=0, overwrite_a=1)),
    )
