"""Claims on posteriors computed on a dask cluster: here two worker processes of one thread each."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Measured, claim
from discretion import Box, Ledger, PosteriorSampler
from discretion.gp import DensePosterior, Exponential, ExponentialPosterior, Matern52, SamplePaths
from discretion.gp.cluster import ClusterPaths, ClusterPosterior, Dask
from discretion.gp.path import MARGIN, nugget_floor
from discretion.privacy import SeededRandomness
from discretion.privacy.chain import State

GIB = 2.0**30


@contextmanager
def workers(count: int = 2, memory: str = "6GiB") -> Iterator[Any]:
    """The client of a local cluster that keeps its blocks in memory."""
    from dask import config
    from distributed import Client, LocalCluster

    kept: Any = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
    # on a busy machine a process that was killed takes longer to start again than dask waits before it gives it up
    kept["distributed.deploy.lost-worker-timeout"] = "10 minutes"
    size: Any = {"n_workers": count, "threads_per_worker": 1, "memory_limit": memory, "dashboard_address": None}
    with config.set(kept), LocalCluster(**size) as cluster, Client(cluster) as client:
        yield client


def peaks(client: Any) -> list[float]:
    """The largest resident memory each worker had, in GiB."""
    told = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return [kilobytes * 1024 / GIB for kilobytes in told.values()]


@claim(
    "speed",
    "Three paths of a Matern 5/2 posterior in the plane, n = 2,000, 600 points in two requests: dask run less "
    "in-memory run on the same normals; mean and covariance likewise",
    "<= 1e-9",
)
def cluster_equals_memory() -> Measured:
    rng = np.random.default_rng(0)
    X, y, T = rng.random((2000, 2)), rng.uniform(-1.0, 1.0, 2000), rng.random((600, 2))
    inside = DensePosterior(Matern52(0.3), 2.0, X, y)

    def drawn(kind: Any, posterior: Any) -> Any:
        paths = kind(posterior, 0.5, 1e-6, SeededRandomness(1).standard_normal, paths=3)
        return np.hstack([paths.evaluate(T[:300]), paths.evaluate(T)])

    with workers():
        outside = ClusterPosterior(Matern52(0.3), 2.0, X, y)
        gaps = {
            "paths": np.abs(drawn(ClusterPaths, outside) - drawn(SamplePaths, inside)).max(),
            "mean": np.abs(outside.mean(T) - inside.mean(T)).max(),
            "covariance": np.abs(outside.covariance(T) - inside.covariance(T)).max(),
        }
    return Measured(", ".join(f"{name} {gap:.1e}" for name, gap in gaps.items()), bool(max(gaps.values()) <= 1e-9))


class UnitVectors:
    """In place of normals: path l gets the l-th unit vector, one more path zeros; so paths less mean are C."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self, shape: tuple[int, int]) -> np.ndarray:
        normals = np.zeros(shape)
        normals[self.used + np.arange(shape[1]), np.arange(shape[1])] = 1.0
        self.used += shape[1]
        return normals


@claim(
    "speed",
    "n = 30,000 and 200 points on two workers of one thread: largest memory of a worker; mean and covariance of the "
    "paths against the linear-time posterior of the exponential kernel on the line",
    "<= 6 GiB; 1e-9",
    slow=True,
)
def cluster_thirty_thousand() -> Measured:
    n, m, ridge = 30_000, 200, 10.0
    rng = np.random.default_rng(0)
    X, y, T = rng.random((n, 1)), rng.uniform(-1.0, 1.0, n), rng.random((m, 1))
    kernel, nugget = Exponential(0.2), 2.0 * MARGIN * nugget_floor(n, m, ridge)
    start = time.perf_counter()
    with workers() as client:
        paths = ClusterPaths(ClusterPosterior(kernel, ridge, X, y), 1.0, nugget, UnitVectors(), paths=m + 1)
        values = paths.evaluate(T)
        minutes, most = (time.perf_counter() - start) / 60.0, max(peaks(client))
    mean, C = values[m], (values[:m] - values[m]).T
    gap = np.abs(mean - ExponentialPosterior(kernel, ridge, X, y).mean(T)).max()
    for t in range(0, m, 40):
        # k_D(., t) = k(., t) - the mean given responses k(X, t)
        there, here = kernel(X, T[t : t + 1])[:, 0], kernel(T, T[t : t + 1])[:, 0]
        column = here - ExponentialPosterior(kernel, ridge, X, there).mean(T)
        column[t] += nugget
        gap = max(gap, np.abs(C @ C[t] - column).max())
    text = f"{most:.2f} GiB a worker, {minutes:.0f} minutes; largest difference {gap:.1e}"
    return Measured(text, bool(most <= 6.0 and gap <= 1e-9))


def struck(client: Any, blocks: int) -> threading.Thread:
    """Kill a worker once there are so many blocks more."""
    victim, known = next(iter(client.run(os.getpid).values())), set(client.who_has())

    def strike() -> None:
        while len(set(client.who_has()) - known) < blocks:
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    return thread


@claim(
    "speed",
    "A worker killed during the factorisation, n = 2,000: paths less those of memory on the same normals; then another "
    "during a release that a ledger pays for",
    "<= 1e-9; one entry, booked",
    slow=True,
)
def cluster_kill_drill() -> Measured:
    rng = np.random.default_rng(0)
    X, y, T = rng.random((2000, 2)), rng.uniform(-1.0, 1.0, 2000), rng.random((300, 2))

    def drawn(kind: Any, posterior: Any) -> Any:
        return kind(posterior, 0.5, 1e-6, SeededRandomness(1).standard_normal, paths=3).evaluate(T)

    here = drawn(SamplePaths, DensePosterior(Matern52(0.3), 2.0, X, y))
    with workers() as client, tempfile.TemporaryDirectory() as folder:
        thread = struck(client, 20)
        gap = np.abs(drawn(ClusterPaths, ClusterPosterior(Matern52(0.3), 2.0, X, y)) - here).max()
        thread.join()
        client.wait_for_workers(2)
        book = Ledger.create(Path(folder) / "book", dataset="made up", epsilon=1.0, delta=1e-3)
        private = PosteriorSampler(
            Box((0, 0), (1, 1)), (-1, 1), ridge=20.0, epsilon=0.9, delta=1e-3, grid=12, engine=Dask(), ledger=book
        )
        thread = struck(client, 20)
        private.fit(X, y)
        thread.join()
        states = [entry.state for entry in book.entries()]
    text = f"{gap:.1e}; entries: {', '.join(states)}"
    return Measured(text, bool(gap <= 1e-9 and states == [State.BOOKED]))
