"""The posterior on a dask cluster: the same paths as in memory, and no word of the records anywhere."""

import gc
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
from distributed import Client, LocalCluster

from discretion import Box, PosteriorSampler
from discretion.gp import RBF, DensePosterior, Exponential, FactorisationError, Matern52, NuggetTooSmall, SamplePaths
from discretion.gp import cluster as module
from discretion.gp import worker as tasks
from discretion.gp.cluster import ClusterError, ClusterPaths, ClusterPosterior, Dask
from discretion.privacy import BudgetExceeded, Ledger, PublicError, SeededRandomness
from discretion.privacy.chain import State

IN_MEMORY = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
SMALL = Dask(block=64)


def local(workers=2, **options):
    """A cluster in this process, or with processes=True in two others."""
    options = {"processes": False, "memory_limit": "8GiB", "dashboard_address": None} | options
    return LocalCluster(n_workers=workers, threads_per_worker=1, **options)


@pytest.fixture(scope="module")
def client():
    with dask.config.set(IN_MEMORY), local() as cluster, Client(cluster) as client:
        yield client


def data(n, m, dimension=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, dimension)), rng.uniform(-1.0, 1.0, n), rng.random((m, dimension))


def drawn(kind, posterior, requests, paths=3, nugget=1e-6):
    made = kind(posterior, 0.5, nugget, SeededRandomness(1).standard_normal, paths=paths)
    return np.hstack([made.evaluate(T) for T in requests])


@pytest.mark.parametrize(
    ("kernel", "n", "m", "block"),
    [
        (Matern52(0.3), 200, 90, 64),
        (Exponential((0.2, 0.5)), 128, 130, 64),
        (RBF(0.5), 40, 20, 64),
        (RBF(0.5), 0, 70, 64),
    ],
)
def test_it_is_what_memory_gives(client, kernel, n, m, block):
    X, y, T = data(n, m)
    inside, outside = (
        DensePosterior(kernel, 1.5, X, y),
        ClusterPosterior(kernel, 1.5, X, y, cluster=Dask(block=block)),
    )
    np.testing.assert_allclose(outside.mean(T), inside.mean(T), rtol=0, atol=1e-11)
    np.testing.assert_allclose(outside.covariance(T), inside.covariance(T), rtol=0, atol=1e-13)
    requests = [T[: m // 2], T, T[::-1]]  # asked again, a path has the values it had
    np.testing.assert_allclose(outside.with_responses(2.0 * y).mean(T), 2.0 * inside.mean(T), rtol=0, atol=1e-11)
    there = drawn(ClusterPaths, outside, requests)
    np.testing.assert_allclose(there, drawn(SamplePaths, inside, requests), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(there[:, -m:], there[:, m // 2 : m // 2 + m][:, ::-1])


def test_many_paths_go_in_parts(client, monkeypatch):
    monkeypatch.setattr(module, "_SENT", 64 * 3)
    X, y, T = data(100, 70)
    inside, outside = DensePosterior(RBF(0.5), 1.0, X, y), ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    there, here = (drawn(kind, each, [T], paths=8) for kind, each in ((ClusterPaths, outside), (SamplePaths, inside)))
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-10)


def test_names_are_random_and_blocks_leave_with_their_owner(client):
    X, y, T = data(200, 70)
    posterior = ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    paths = ClusterPaths(posterior, 1.0, 1e-6, SeededRandomness(0).standard_normal)
    paths.evaluate(T)
    names = {str(key) for key in client.who_has()}
    assert len(names) > 10
    assert all(re.fullmatch("discretion-[0-9a-f]{32}", name) for name in names)
    again = ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    assert not names & (set(map(str, client.who_has())) - names)
    assert len(set(map(str, client.who_has()))) > len(names)
    del posterior, paths, again
    gc.collect()
    deadline = time.monotonic() + 120.0
    while client.who_has() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not client.who_has()


SECRET = 0.8675309421


class Telling(RBF):
    """A kernel that fails on the records, and quotes them."""

    def fill(self, out, X, Z):
        raise OverflowError(f"cannot take {X!r}")


def test_errors_and_logs_say_nothing(client, caplog, capfd):
    X, y, T = data(100, 5)
    X[:, 0] = y[:] = SECRET
    with caplog.at_level(logging.DEBUG), pytest.raises(ClusterError) as raised:
        ClusterPosterior(Telling(0.5), 1.0, X, y, cluster=SMALL)
    assert str(raised.value) == "A block failed with OverflowError on a worker. Nothing was released."
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    with caplog.at_level(logging.DEBUG):
        ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL).mean(T)
    assert "8675309" not in caplog.text + "".join(capfd.readouterr())
    assert "8675309" not in repr(tasks.Sealed(X)) + repr(tasks.Block(X))


def test_a_factorisation_that_breaks_down(client, monkeypatch):
    def broken(number, block):
        raise FactorisationError(str(block))

    monkeypatch.setattr(tasks, "factored", broken)
    with pytest.raises(FactorisationError, match="broke down; nothing was returned"):
        ClusterPosterior(RBF(0.5), 1.0, *data(100, 1)[:2], cluster=SMALL)


def test_a_block_that_comes_out_different_is_noticed(client, monkeypatch):
    X, y, T = data(200, 70)
    posterior = ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    paths = ClusterPaths(posterior, 1.0, 1e-6, SeededRandomness(0).standard_normal)
    before = paths.evaluate(T[:5])
    # As if the worker had been lost, and the block computed again with other roundings in its place.
    row = posterior.factor.rows[1]
    block = client.gather(row.own)
    other = tasks.signed(np.nextafter(block.array, 2.0), block.number, tasks.Block(block.array, block.used))
    row.blocks[-1] = client.submit(lambda: other)
    for ask in (posterior.mean, posterior.covariance, paths.evaluate):
        with pytest.raises(ClusterError, match="has other last bits"):
            ask(T)
    row.blocks[-1] = client.submit(lambda: block)
    np.testing.assert_array_equal(paths.evaluate(T)[:, :5], before)


def test_a_worker_that_joins_and_spills_computes_nothing(client, monkeypatch):
    X, y, T = data(100, 5)
    posterior = ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    monkeypatch.setattr(tasks, "spills", lambda dask_worker: True)
    with pytest.raises(ClusterError, match="A worker joined that writes to disk"):
        posterior.mean(T)


def test_spilling_and_small_clusters_are_refused_beforehand(client):
    SMALL.check(1000, 1000, 1)
    with pytest.raises(ClusterError, match=r"hold before dask pauses them, [\d.]+ GiB in all"):
        SMALL.check(100_000, 1000, 1)
    as_dask_starts_them = {"distributed.worker.memory.target": 0.6, "distributed.worker.memory.spill": 0.7}
    with dask.config.set(as_dask_starts_them), local(workers=1) as cluster, Client(cluster):
        with pytest.raises(ClusterError, match=r"write to disk.*spill=True"):
            SMALL.check(10, 10, 1)
        Dask(spill=True).check(10, 10, 1)


def test_what_memory_refuses_is_refused(client):
    X, y, T = data(50, 5)
    for wrong in (
        {"ridge": 0.0},
        {"ridge": 1e-9},
        {"X": X[:-1]},
        {"X": X * np.nan},
        {"y": y * np.inf},
        {"jitter": -1.0},
    ):
        with pytest.raises(ValueError, match=r"ridge|shape|NaN|jitter"):
            ClusterPosterior(**({"kernel": RBF(0.5), "ridge": 1.0, "X": X, "y": y, "cluster": SMALL} | wrong))
    with pytest.raises(ValueError, match="block"):
        Dask(block=0)
    posterior = ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
    with pytest.raises(NuggetTooSmall):
        drawn(ClusterPaths, posterior, [T], nugget=1e-15)
    paths = ClusterPaths(posterior, 1.0, 1e-6, lambda shape: np.full(shape, np.nan))
    with pytest.raises(ValueError, match="normal"):
        paths.evaluate(T)
    assert paths.size == 0


def test_without_a_cluster():
    code = (
        "import sys, discretion, discretion.gp.cluster as c; assert not {'dask', 'distributed'} & set(sys.modules)\n"
        "try: c.Dask().check(1, 1, 1)\nexcept c.ClusterError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("There is no dask cluster")


def struck(client, after, blow):
    """Do something to the cluster once its workers hold some blocks."""

    def strike():
        while len(client.who_has()) < after:
            time.sleep(0.02)
        blow()

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    return thread


def sampler(place):
    book = Ledger.create(place, dataset="made up", epsilon=3.0, delta=1e-3)
    box, engine = Box((0, 0), (1, 1)), Dask(block=64)
    return book, PosteriorSampler(box, (-1, 1), ridge=5.0, epsilon=2.5, grid=6, delta=1e-3, engine=engine, ledger=book)


def test_a_release_is_booked(client, tmp_path):
    X, y, T = data(150, 20)
    book, private = sampler(tmp_path / "book")
    custodian = private.fit_custodian(X, y)
    assert private.release_.certificate.ledger_entry
    np.testing.assert_array_equal(custodian.extend(private.release_.locations), private.release_.values)
    assert custodian.extend(T).shape == (1, 20)
    assert private.release_.interpolate(T).shape == (1, 20)
    assert pickle.loads(pickle.dumps(private)).engine == Dask(block=64)
    assert [entry.state for entry in book.entries()] == [State.BOOKED]


def test_nothing_is_spent_without_a_cluster(client, tmp_path, monkeypatch):
    X, y, _ = data(150, 1)
    book, private = sampler(tmp_path / "book")
    monkeypatch.setattr(Dask, "memory", lambda *_: 2**40)
    with pytest.raises(PublicError, match="do not fit"):
        private.fit(X, y)
    assert book.entries() == []


def limited(client, limit, state):
    """Set the limit of memory of all workers, and wait until they are in a state."""
    client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_limit", limit))
    deadline = time.monotonic() + 120.0
    while {each["status"] for each in client.scheduler_info()["workers"].values()} != {state}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_workers_that_pause_are_not_waited_for_for_ever(tmp_path, monkeypatch):
    X, y, _ = data(150, 1)
    book, private = sampler(tmp_path / "book")
    monkeypatch.setattr(module, "_POLL", 0.1)
    with dask.config.set(IN_MEMORY), local() as cluster, Client(cluster) as client:
        limited(client, 2**20, "paused")
        with pytest.raises(PublicError, match=r"All workers have paused.*Add workers or memory"):
            private.fit(X, y)
        assert book.entries() == []
        # Had they paused a moment later, the loss would have been reserved.
        monkeypatch.setattr(Dask, "check", lambda *_: None)
        thread = threading.Timer(0.3, limited, (client, 2**33, "running"))
        thread.start()
        ClusterPosterior(RBF(0.5), 1.0, X, y, cluster=SMALL)
        thread.join()
        limited(client, 2**20, "paused")
        monkeypatch.setattr(module, "_PATIENCE", 0.3)
        with pytest.raises(PublicError, match=r"All workers have paused"):
            private.fit(X, y)
    (entry,) = book.entries()
    assert entry.state is State.FAILED


def test_a_failure_is_spent_once_and_says_so(client, tmp_path, monkeypatch):
    X, y, _ = data(150, 1)
    book, private = sampler(tmp_path / "book")

    def broken(number, block):
        raise MemoryError(str(block))

    monkeypatch.setattr(tasks, "factored", broken)
    with pytest.raises(PublicError, match="A block failed with MemoryError on a worker"):
        private.fit(X, y)
    (entry,) = book.entries()
    assert entry.state is State.FAILED
    monkeypatch.undo()
    with pytest.raises(BudgetExceeded):
        private.fit(X, y)


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(monkeypatch):
    X, y, T = data(1000, 200)
    inside = DensePosterior(Matern52(0.3), 1.5, X, y)
    with dask.config.set(IN_MEMORY), local(processes=True) as cluster, Client(cluster) as client:
        victim = next(iter(client.run(os.getpid).values()))
        thread = struck(client, 12, lambda: os.kill(victim, signal.SIGKILL))
        outside = ClusterPosterior(Matern52(0.3), 1.5, X, y, cluster=Dask(block=128))
        there = drawn(ClusterPaths, outside, [T])
        thread.join()
        assert victim not in client.run(os.getpid).values()
    np.testing.assert_allclose(there, drawn(SamplePaths, inside, [T]), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_the_budget_outlives_all_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 2.0)
    X, y, _ = data(1000, 1)
    book, private = sampler(tmp_path / "book")
    with dask.config.set(IN_MEMORY), local() as cluster, Client(cluster) as client:
        thread = struck(client, 12, lambda: cluster.scale(0))
        with pytest.raises(PublicError, match="All workers of the cluster were lost"):
            private.fit(X, y)
        thread.join()
    (entry,) = book.entries()
    assert entry.state is State.FAILED
    assert book.spent().epsilon >= 2.4
