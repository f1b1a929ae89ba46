"""Figures stated about the engine of Matern kernels on the line, which releases use: time, memory, rounding.

Cpu seconds on one BLAS thread, medians.
"""

from __future__ import annotations

import statistics
import tracemalloc
from dataclasses import replace

import numpy as np

from benchmarks.engine_claims import NUGGET, normals, problem
from benchmarks.floor import cpu, one_thread
from benchmarks.harness import Measured, claim
from discretion.gp import Box, DensePosterior, Matern52, MaternLinePaths, MaternLinePosterior, SamplePaths
from discretion.gp.engine import MaternLineEngine
from discretion.posterior import PosteriorMechanism

KERNEL = Matern52(0.2)


def _drawn(n: int, m: int, paths: int = 1) -> None:
    X, y, T = problem(n, m, 1)
    MaternLinePaths(MaternLinePosterior(KERNEL, 3.0, X, y), 1.0, NUGGET, normals(), paths).evaluate(T)


@claim(
    "speed",
    "Matern 5/2 on the line in whole numbers, as releases compute it, at (4,390, 3,600): times as fast as dense",
    ">= 20",
    slow=True,
)
def matern_line_beside_dense() -> Measured:
    X, y, T = problem(4390, 3600, 1)
    with one_thread():
        line = statistics.median(cpu(lambda: _drawn(4390, 3600)) for _ in range(5))
        dense = cpu(lambda: SamplePaths(DensePosterior(KERNEL, 3.0, X, y), 1.0, NUGGET, normals()).evaluate(T))
    return Measured(f"{dense / line:.0f} x, {line:.2f} s", dense >= 20.0 * line)


@claim("speed", "The same at (100,000, 1,000), s", "<= 4", slow=True)
def matern_line_hundred_thousand() -> Measured:
    seconds = cpu(lambda: _drawn(100_000, 1000))
    return Measured(f"{seconds:.1f}", seconds <= 4.0)


@claim("speed", "The same at (1,000, 1,000): what one more path takes, over posterior and first path", "<= 1/4")
def matern_line_one_more_path() -> Measured:
    first = statistics.median(cpu(lambda: _drawn(1000, 1000)) for _ in range(5))
    share = (statistics.median(cpu(lambda: _drawn(1000, 1000, 11)) for _ in range(3)) / first - 1.0) / 10.0
    return Measured(f"{share:.2f}", share <= 0.25)


@claim("speed", "The same at (20,000, 1,000): peak memory for each record or location, bytes", "<= 4,096")
def matern_line_memory() -> Measured:
    tracemalloc.start()
    try:
        _drawn(20_000, 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Measured(
        f"{peak / 21_000:.0f}", peak <= MaternLineEngine().memory(20_000, 1000, 1) and peak <= 4096 * 21_000
    )


@claim(
    "speed",
    "The same at (2,000, 50), repeated and 1e-12 close places among them: largest difference of means and of "
    "covariances from dense ones",
    "<= 1e-8",
    slow=True,
)
def matern_line_agrees() -> Measured:
    X, y, T = problem(2000, 50, 1)
    X[:200] = X[0]
    X[200:400] = X[0] + 1e-12 * np.arange(200.0)[:, None]
    line, dense = MaternLinePosterior(KERNEL, 0.3, X, y), DensePosterior(KERNEL, 0.3, X, y)
    # one path for each unit vector of normals, and one of zeros: the linear map from normals to values
    values = MaternLinePaths(line, 1.0, NUGGET, lambda shape: np.eye(*shape), paths=2051).evaluate(T)
    C = values[:-1] - values[-1]
    off = C.T @ C - dense.covariance(T) - NUGGET * np.eye(50)
    worst = max(float(np.abs(values[-1] - dense.mean(T)).max()), float(np.abs(off).max()))
    return Measured(f"{worst:.1e}", worst <= 1e-8)


@claim(
    "speed",
    "Release, Matern 5/2 on the line at (100,000, 1,000), ridge 10, epsilon 1, nugget 1e-6: the rounding of the mean "
    "as a share of epsilon",
    "<= 1e-9",
)
def matern_line_rounding() -> Measured:
    n = 10**5
    run = PosteriorMechanism.calibrated(
        n=n,
        epsilon=1.0,
        delta=1e-6,
        kernel=KERNEL,
        domain=Box((0.0,), (1.0,)),
        response_range=(-1.0, 1.0),
        ridge=10.0,
        locations=np.linspace(0.0, 1.0, 1000)[:, None],
    )
    # under an enormous nugget rounding costs nothing, and the paths what they cost
    with_it, without = (each.privacy_loss(n).epsilon(1e-6) for each in (run, replace(run, nugget=1e12)))
    share = with_it / without - 1.0
    return Measured(f"{share:.1e}", 0.0 <= share <= 1e-9 and run.effective_nugget(n) == 1e-6)
