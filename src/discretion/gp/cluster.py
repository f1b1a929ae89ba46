"""Exact posteriors and sample paths on a dask cluster, for data whose Gram matrix no one machine holds.

The joint factor [[L, 0], [W^T, C]] of `discretion.gp.path` is cut into square blocks, which live on the workers; rows
of blocks are appended to it as in memory. The caller keeps the points, the responses, the normals and the values, and
no array of n m numbers. What a cluster must be like, and who is trusted: ``docs/clusters.md``.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from discretion.gp import worker
from discretion.gp.dense import checked_responses, ridge_floor
from discretion.gp.domain import Array, finite_points
from discretion.gp.engine import DenseEngine
from discretion.gp.factor import FactorisationError, mirror
from discretion.gp.kernels import Kernel
from discretion.gp.path import SamplePaths, _Batch, nugget_floor

__all__ = ["ClusterError", "ClusterPaths", "ClusterPosterior", "Dask", "connected"]

_PATIENCE = 60.0  # seconds without a single worker that works before a run is given up
_POLL = 2.0
_SENT = 1 << 19  # numbers sent with one task, 4 MB
_PAUSED = (
    "All workers have paused, as dask has them do when their memory is nearly full. Nothing was released. Add workers "
    "or memory, free what the workers hold, or, where dask is wrong about their memory, start them with "
    "distributed.worker.memory.pause set to False."
)


class ClusterError(RuntimeError):
    """The cluster can't do the work, or was lost while it did. Nothing was returned; the message is public."""


@dataclass(frozen=True)
class Dask(DenseEngine):
    """The engine of a posterior too large for one machine: the dask cluster of the current ``distributed.Client``.

    Parameters: `spill`, whether workers may write blocks of the factor, which are PRIVATE, to their local disks when
    memory runs short; refused unless asked for. `block`, rows of a square block; by default a sixteenth of n, at least
    256 and at most 2,048; ValueError outside 1 to 16,384. It names no cluster and holds none, so it can be copied,
    compared and pickled.
    """

    spill: bool = False
    block: int | None = None

    name: ClassVar[str] = "dask"

    def __post_init__(self) -> None:
        if self.block is not None and not 1 <= self.block <= 2**14:
            raise ValueError("block must be a whole number from 1 to 16,384.")

    def rows(self, n: int) -> int:
        """Rows of a block for n data points."""
        return self.block or min(2048, max(256, -(-n // 16)))

    def posterior(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> ClusterPosterior:
        """The posterior, whose factor is computed and stays on the cluster."""
        return ClusterPosterior(kernel, ridge, X, y, jitter=jitter, cluster=self)

    def paths(
        self, posterior: Any, scale: float, nugget: float, normal: Callable[[tuple[int, int]], Array], paths: int
    ) -> ClusterPaths:
        """Sample paths of such a posterior."""
        return ClusterPaths(posterior, scale, nugget, normal, paths)

    def memory(self, n: int, m: int, paths: int) -> int:
        """Bytes of the blocks, all workers together, without copies in transit."""
        total = n + m
        return 4 * total * (total + self.rows(n)) + 8 * m * paths

    def check(self, n: int, m: int, paths: int) -> None:
        """Raise `ClusterError` where the cluster is not there, not fit, or too small; looks at no data."""
        workers = Blocks(self)
        workers.fit(self.memory(n, m, paths))
        if "running" not in workers.states():
            raise ClusterError(_PAUSED)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """The cluster of the scheduler at an address such as tls://scheduler:8786 is the current one; without one, nothing.

    ConnectionError where no scheduler answers, with dask's reason: no record has been seen yet.
    """
    if address is None:
        yield
        return
    try:
        client = _clients()(address)
    except (OSError, ValueError, TypeError) as error:
        raise ConnectionError(f"No connection to a dask scheduler at {address}: {error}.") from None
    with client:
        yield


def _clients() -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("The dask engine needs: pip install 'discretion[dask]'.") from None
    return Client


class Blocks:
    """Blocks on the workers of the current client: tasks with random names, errors without a value."""

    def __init__(self, cluster: Dask) -> None:
        try:
            self.client: Any = _clients().current()
        except ValueError:
            raise ClusterError("There is no dask cluster: run this within `with distributed.Client(...):`.") from None
        if self.client.asynchronous:
            raise ClusterError("The current dask client is asynchronous; use one that is not.")
        told = _trying(
            lambda: list(self.client.run(worker.told).values()),
            "The workers could not be asked ({}). Each needs the same version of discretion as this process.",
        )
        if not told:
            raise ClusterError("The dask cluster has no workers.")
        if any(spills for spills, _ in told) and not cluster.spill:
            raise ClusterError(
                "The workers write to disk what does not fit in memory, and blocks of the factor are private. Start "
                "them with distributed.worker.memory.target and .spill set to False, or allow it: Dask(spill=True)."
            )
        limits = [limit for _, limit in told]
        self.memory = sum(limits) if all(limits) else 0
        self._spill = cluster.spill
        self._count = 0
        self._signatures: dict[int, bytes] = {}

    def states(self) -> list[str]:
        """What each worker is doing in dask's words: "running", also if idle, "paused", "closing" and so on."""
        # asked of the scheduler itself: what the client keeps may have been overwritten by a shorter answer
        known = _trying(lambda: self.client.sync(self.client.scheduler.identity))
        return [each["status"] for each in known["workers"].values()]

    def fit(self, needed: int) -> None:
        """Refuse what is larger than all workers' memory, as far as they use it without a pause."""
        if self.memory and needed > self.memory:
            # how much is needed would tell the number of records, which may be private
            raise ClusterError(
                f"The blocks do not fit in what the workers hold before dask pauses them, {self.memory / 2**30:.3g} "
                "GiB in all; add workers or memory."
            )

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future block of a task. Its name is random: dask's own names are digests of the arguments."""
        self._count += 1
        key = f"discretion-{secrets.token_hex(16)}"
        # first come, first served: rows of blocks are finished in their order
        return _trying(
            lambda: self.client.submit(
                worker.guarded, self._spill, task, *arguments, key=key, pure=False, priority=-self._count
            )
        )

    def hold(self, array: Array) -> Any:
        """A small array, sent with its task: it is sent anew to whoever needs it after a worker is lost."""
        return self.submit(worker.held, worker.Sealed(array))

    def finish(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a block that is not changed any more: it has a number and will be signed."""
        return self.submit(task, self._count, *arguments)

    def gather(self, futures: Iterable[Any]) -> list[Array]:
        """The arrays of blocks, once all are there and no signature contradicts another."""
        futures = list(futures)
        self._wait(futures)
        found = _trying(lambda: self.client.gather(futures))
        for each in found:
            if isinstance(each, worker.Failed):
                raise _error(each.kind)
            for number, signature in each.told.items():
                if self._signatures.setdefault(number, signature) != signature:
                    raise ClusterError(
                        "A worker was lost, and a block that was computed again has other last bits. Nothing was "
                        "released. Use workers of one kind, with the same libraries and one BLAS thread each."
                    )
        return [each.array for each in found]

    def seal(self, finished: Iterable[Any]) -> None:
        """Wait for finished blocks, and check that each was made from the others as they are."""
        self.gather(self.submit(worker.seal_of, block) for block in finished)

    def total(self, shape: tuple[int, int], products: Iterable[tuple[Any, Any]]) -> Array:
        """The sum of products of blocks and vectors."""
        return sum(self.gather(self.submit(worker.times, *pair) for pair in products), start=np.zeros(shape))

    def _wait(self, futures: Sequence[Any]) -> None:
        from distributed import wait

        last_going = time.monotonic()
        while True:
            try:
                _trying(lambda: wait(list(futures), timeout=_POLL), passing=TimeoutError)
                return
            except TimeoutError:
                pass
            states = self.states()
            if "running" in states:
                last_going = time.monotonic()
            elif time.monotonic() - last_going > _PATIENCE:
                raise ClusterError(_PAUSED if states else "All workers of the cluster were lost. Nothing was released.")


def _trying(
    call: Callable[[], Any],
    message: str = "The cluster failed ({}). Nothing was released; see the logs of its scheduler.",
    passing: type[BaseException] | tuple[()] = (),
) -> Any:
    """The result of a call to dask, whose errors may name tasks and quote arguments: the type is all that is kept."""
    try:
        return call()
    except passing:
        raise
    except (Exception, asyncio.CancelledError) as error:
        kind = type(error).__name__
    raise ClusterError(message.format(kind))  # here the original is not chained to it


def _error(kind: str) -> Exception:
    if kind == FactorisationError.__name__:
        return FactorisationError("A Cholesky factorisation broke down; nothing was returned.")
    if kind == worker.SPILLS:
        return ClusterError("A worker joined that writes to disk what does not fit in memory. Nothing was released.")
    return ClusterError(f"A block failed with {kind} on a worker. Nothing was released.")


@dataclass(frozen=True, eq=False, repr=False)
class _Row:
    """A row of blocks of the joint factor: its points, and the blocks up to the one on the diagonal."""

    size: int
    points: Any
    blocks: list[Any]

    @property
    def own(self) -> Any:
        """The triangle on the diagonal."""
        return self.blocks[-1]


class _Factor:
    """The joint factor of [[A, K_XT], [K_TX, K_TT + nugget I]], row of blocks after row of blocks."""

    def __init__(self, cluster: Blocks, kernel: Kernel, size: int, rows: Iterable[_Row] = ()) -> None:
        self.cluster, self.kernel, self.size = cluster, kernel, size
        self.rows = list(rows)

    def cut(self, array: Array) -> Iterator[Array]:
        """Rows of an array, as many at a time as a block has."""
        return (array[start : start + self.size] for start in range(0, len(array), self.size))

    def append(self, points: Array, diagonal: float) -> _Row:
        """One more row, of at most `size` points."""
        place = self.cluster.hold(points)
        left = self.across(place)
        own = self.cluster.finish(worker.factored, self.remainder(place, place, left, left, diagonal))
        self.rows.append(_Row(len(points), place, [*left, own]))
        return self.rows[-1]

    def across(self, place: Any) -> list[Any]:
        """k(points at `place`, points of all rows) times the inverse transpose of the factor."""
        left: list[Any] = []
        for row in self.rows:
            block = self.remainder(place, row.points, left, row.blocks)
            left.append(self.cluster.finish(worker.solved, block, row.own))
        return left

    def whitened(self, y: Array) -> list[Any]:
        """y^T times the inverse transpose of the factor, as rows (1, size)."""
        left: list[Any] = []
        for row, part in zip(self.rows, self.cut(y), strict=True):
            block = self.cluster.submit(worker.begun, worker.Sealed(part[None, :]))
            for known, other in zip(left, row.blocks, strict=False):
                block = self.cluster.submit(worker.reduced, block, known, other)
            left.append(self.cluster.finish(worker.solved, block, row.own))
        return left

    def remainder(self, here: Any, there: Any, left: list[Any], right: list[Any], diagonal: float = 0.0) -> Any:
        """k(here, there) + diagonal I - left right^T."""
        # a block begins when its first product can be taken, so that few wait half done
        pairs = list(zip(left, right, strict=False))
        block = self.cluster.submit(worker.filled, self.kernel, diagonal, here, there, *(pairs[0] if pairs else ()))
        for pair in pairs[1:]:
            block = self.cluster.submit(worker.reduced, block, *pair)
        return block


class ClusterPosterior:
    """`DensePosterior` whose factor lives on the workers of a dask cluster, in square blocks of its lower triangle.

    Parameters: `kernel`; `ridge` > 0; X (n, d); y (n,); `jitter` >= 0, added to ridge^2; `cluster`.

    Raises ValueError as `DensePosterior` does; ClusterError where the cluster is not there, not fit or lost;
    FactorisationError when LAPACK fails.

    Cost: n^3/3 flops and 4 n^2 bytes over all workers. `mean` and `covariance` take n^2 m flops, as paths do.
    """

    def __init__(
        self,
        kernel: Kernel,
        ridge: float,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        jitter: float = 0.0,
        cluster: Dask | None = None,
    ) -> None:
        if not (0 < ridge < 1e100 and 0 <= jitter < 1e100):
            raise ValueError("ridge must be positive, jitter 0 or more, both finite (below 1e100).")
        points = finite_points(X)
        n, diagonal = len(points), float(ridge) ** 2 + float(jitter)
        if diagonal < ridge_floor(n):
            raise ValueError(f"ridge^2 + jitter = {diagonal:.3g} is too small: give at least {ridge_floor(n):.3g}.")
        responses = checked_responses(y, n)
        self.kernel, self.cluster = kernel, cluster or Dask()
        self.n, self.dimension = points.shape
        self.ridge, self.jitter = float(ridge), float(jitter)
        self.effective_ridge = math.sqrt(diagonal)

        workers = Blocks(self.cluster)
        workers.fit(self.cluster.memory(n, 0, 0))
        self.factor = _Factor(workers, kernel, self.cluster.rows(n))
        for part in self.factor.cut(points):
            self.factor.append(part, diagonal)
        self._respond(responses)

    def _respond(self, responses: Array) -> None:
        """L^{-1} y, here and on the cluster."""
        parts = self.factor.cluster.gather(self.factor.whitened(responses))
        self.factor.cluster.seal(block for row in self.factor.rows for block in row.blocks)
        self.whitened: Array = np.concatenate([np.empty(0), *(each[0] for each in parts)])
        if not np.isfinite(self.whitened).all():
            raise FactorisationError("The responses are too large for double precision; nothing was computed.")
        self.columns = [self.factor.cluster.hold(part[:, None]) for part in self.factor.cut(self.whitened)]

    def with_responses(self, y: npt.ArrayLike) -> Self:
        """The posterior given other responses y (n,) at the same points; the factor is shared."""
        other = copy(self)
        other._respond(checked_responses(y, self.n))
        return other

    def __repr__(self) -> str:
        return f"ClusterPosterior({self.kernel!r}, ridge={self.ridge!r}, jitter={self.jitter!r}, n={self.n})"

    def mean(self, T: npt.ArrayLike) -> Array:
        """Posterior mean at the rows of T (m, d): shape (m,)."""
        points = finite_points(T, self.dimension, "T")
        parts = [np.empty(0)]
        for part in self.factor.cut(points):
            row = self.factor.across(self.factor.cluster.hold(part))
            parts.append(self.mean_of(len(part), row))
            self.factor.cluster.seal(row)
        return _finite(np.concatenate(parts))

    def mean_of(self, size: int, row: Sequence[Any]) -> Array:
        """The mean at `size` points, from their row of blocks k(T, X) L^{-T}."""
        return self.factor.cluster.total((size, 1), zip(row, self.columns, strict=False))[:, 0]

    def covariance(self, T: npt.ArrayLike) -> Array:
        """Posterior covariance matrix at the rows of T (m, d): shape (m, m), symmetric, without nugget."""
        points = finite_points(T, self.dimension, "T")
        places = [self.factor.cluster.hold(part) for part in self.factor.cut(points)]
        rows = [self.factor.across(place) for place in places]
        covariance, stop = np.zeros((len(points), len(points))), 0
        for i, place in enumerate(places):
            parts = [self.factor.remainder(place, places[j], rows[i], rows[j]) for j in range(i + 1)]
            line = np.concatenate(self.factor.cluster.gather(parts), axis=1)
            start, stop = stop, stop + len(line)
            covariance[start:stop, :stop] = line
        self.factor.cluster.seal(block for row in rows for block in row)
        return _finite(mirror(covariance))


class ClusterPaths(SamplePaths):
    """`SamplePaths` of a `ClusterPosterior`: the same paths, given the same normals, to rounding.

    The normals are drawn once, by the caller, and sent with the tasks that need them: a task that is done again after a
    worker is lost has the same ones.
    """

    def __init__(
        self,
        posterior: ClusterPosterior,
        scale: float,
        nugget: float,
        normal: Callable[[tuple[int, int]], Array],
        paths: int = 1,
    ) -> None:
        super().__init__(posterior, scale, nugget, normal, paths)  # pyright: ignore[reportArgumentType]
        self._rows, self._columns = list(posterior.factor.rows), []  # the columns: normals of each row of points

    def _append(self, batch: _Batch) -> None:
        self._batches.append(batch)

    def _draw(self, points: Array) -> _Batch:
        posterior: Any = self.posterior
        n, m = posterior.n, len(points)
        self._check_nugget(nugget_floor(n, self.size + m, posterior.effective_ridge), self.size + m)
        normals = self._normals(m)

        factor = _Factor(posterior.factor.cluster, posterior.kernel, posterior.factor.size, self._rows)
        new = [factor.append(part, self.nugget) for part in factor.cut(points)]
        columns = [*self._columns, *(self._held(factor, part) for part in factor.cut(normals.T))]
        values = np.concatenate([self._values(row, columns) for row in new]).T
        factor.cluster.seal(block for row in new for block in row.blocks)
        if not np.isfinite(values).all():
            raise FactorisationError("A sample path is not finite in double precision; nothing was returned.")
        self._rows, self._columns = factor.rows, columns
        return _Batch(points, np.empty((m, 0)), normals, values)

    def _held(self, factor: _Factor, normals: Array) -> list[Any]:
        """Normals of one row of points, (size, paths), a few paths in a task."""
        few = max(1, _SENT // factor.size)
        return [factor.cluster.hold(normals[:, start : start + few]) for start in range(0, self.paths, few)]

    def _values(self, row: _Row, columns: list[list[Any]]) -> Array:
        """Values of the paths at a row of points, (size, paths): W^T b + scale C z."""
        posterior: Any = self.posterior
        cluster, known = posterior.factor.cluster, len(posterior.factor.rows)
        before = row.blocks[known:-1]
        noise = []
        for vectors in zip(*columns[: len(before) + 1], strict=True):
            own = cluster.gather([cluster.submit(worker.lower_times, row.own, vectors[-1])])[0]
            noise.append(own + cluster.total(own.shape, zip(before, vectors, strict=False)))
        return posterior.mean_of(row.size, row.blocks[:known])[:, None] + self.scale * np.concatenate(noise, axis=1)


def _finite(result: Array) -> Array:
    if not np.isfinite(result).all():
        raise FactorisationError("The posterior is not finite in double precision; nothing was returned.")
    return result
