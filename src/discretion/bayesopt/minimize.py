"""A whole private search in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from discretion.bayesopt.check import check_signature
from discretion.bayesopt.losses import losses_at
from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.steps import Step
from discretion.bayesopt.study import Study
from discretion.privacy import Ledger, MechanismFailed, PublicError, Randomness
from discretion.privacy.delta import UNSTATED, Unstated, delta_of
from discretion.privacy.failure import Failure, attempt
from discretion.privacy.frames import cleared
from discretion.privacy.once import RunError
from discretion.privacy.paid import ledger_at

__all__ = ["minimize"]

T = TypeVar("T")

_END = object()


@cleared
def minimize(
    per_record_loss: Callable[..., Any],
    space: Any,
    *,
    n: int,
    steps: int,
    clip: float,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float = UNSTATED,
    chunks: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
    path: str | os.PathLike[str] | None = None,
    private: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    randomness: Randomness | None = None,
    n_jobs: int | None = None,
    stop: Callable[[Sequence[Step]], bool] | None = None,
    unsafe_diagnostics: bool = False,
    **parameters: Any,
) -> LocalSearchRelease:
    """Minimise the mean over n private records of a loss known by its values alone.

    Args:
        per_record_loss: called with the parameters as keywords; returns the n losses, shape (n,) or (n, 1), always in
            the same order of records. With `chunks` its first argument is a chunk, and it returns the losses of its
            records. In aggregate mode (`largest_loss`) it returns one mean, see `clamped_mean`. With `sample_rate` its
            first argument is an array of the places, 0 to n - 1, of the records that take part, PRIVATE, and it returns
            their losses. None says that it failed for a public reason.
            A loss that cannot be computed for a record is NaN for that record: an exception ends the run. Try it on
            made-up records first, with `check_loss`.
        space: a `Space`, or a dictionary of `Linear`, `Log`, `Logit` and `Integer`.
        n: the public number of records.
        steps, clip: T and B, see `LocalSearch`, which takes the other `parameters`.
        mu: what the run costs, or epsilon (with delta; by default the ledger's, or 1e-5 without one).
        chunks: the records in parts, an iterable that can be read anew in each step, or a function that gives one.
        path, private, ledger, randomness: see `Study`.
        n_jobs: evaluations of a step at once, as joblib's.
        stop: called with the finished steps, all public, after each; True ends the run, as `Flat` does.
        unsafe_diagnostics: see `Study`.

    Raises:
        ValueError: not exactly one of mu and epsilon; a parameter out of range; a loss that does not take the names of
            the space; chunks that can be read once only. Nothing was spent.
        TypeError: `randomness` is no source of noise. Nothing was spent.
        MechanismFailed: an evaluation raised an exception; nothing of its message is kept, as it may quote a record.
        PublicError: losses of another shape, number or precision. This and the last say how the run stands: with
            `path` the same call goes on from there; without it, a `ledger` keeps the whole run as spent.
    """
    if (mu is None) == (epsilon is None):
        raise ValueError("Give mu, or epsilon with delta; one of the two.")
    book = ledger_at(ledger)
    if isinstance(delta, Unstated):
        delta = delta_of(book)
    if epsilon is not None:
        search = LocalSearch.calibrated(space, epsilon=epsilon, delta=delta, steps=steps, clip=clip, **parameters)
    else:
        assert mu is not None
        search = LocalSearch(space, mu=mu, delta=delta, steps=steps, clip=clip, **parameters)
    if chunks is not None and search.sample_rate is not None:
        raise ValueError("Give chunks or sample_rate, not both.")
    _check_chunks(chunks)
    check_signature(
        per_record_loss,
        search.space.names,
        "chunk" if chunks is not None else "rows" if search.sample_rate is not None else None,
    )
    files: dict[str, Any] = {"path": path, "private": private}
    with Study(
        search, n=n, **files, ledger=book, randomness=randomness, unsafe_diagnostics=unsafe_diagnostics
    ) as study:
        failure = None
        while failure is None and not study.done:
            try:
                _step(study, per_record_loss, chunks, n_jobs)
            except RunError:
                raise  # it is the study that cannot go on
            except (PublicError, MechanismFailed) as error:
                # Of these words none is private. They are raised below, outside the `except`, with what they mean.
                failure = MechanismFailed if isinstance(error, MechanismFailed) else PublicError, str(error)
            if failure is None and stop is not None and not study.done and stop(study.steps):
                study.stop()
        if failure is not None:
            kind, words = failure
            raise kind(f"{words} {study._failed(f'{kind.__name__}: {words}')}".rstrip())
        return study.result()


def _check_chunks(chunks: Any) -> None:
    """Refuse what cannot be read in every step, without reading it."""
    if isinstance(chunks, Iterator):
        raise ValueError(
            "chunks are read anew in each step, and an iterator can be read once only: give a list, or a function that "
            "makes a new iterator, such as chunks=lambda: read(file). Nothing was spent."
        )
    if not (chunks is None or callable(chunks) or hasattr(chunks, "__iter__") or hasattr(chunks, "__getitem__")):
        raise ValueError(
            f"chunks must be the records in parts, or a function that gives them, not {type(chunks).__name__}. Nothing "
            "was spent."
        )


def _step(study: Study, loss: Callable[..., Any], chunks: Any, n_jobs: int | None) -> None:
    """Evaluate the losses where the study asks, and tell them."""
    points, search = study.ask(), study.search
    if chunks is not None:
        study.tell(_tables(chunks, loss, points, n_jobs))
        return
    rows = study.sample()
    # Of no records there is nothing to compute, and a function that fails then would tell that.
    empty = search.sample_rate is not None and not len(rows)
    who = () if search.sample_rate is None else (rows,)
    columns = [np.empty(0)] * len(points) if empty else _evaluated(loss, points, n_jobs, *who)
    failed = [j for j, column in enumerate(columns) if column is None]
    if failed:
        study.drop(failed)
    columns = [column for column in columns if column is not None]
    if search.aggregate:
        study.tell_mean(_attempted(lambda: np.array([_mean(column) for column in columns])))
    else:
        study.tell(_attempted(lambda: losses_at(columns, len(rows))))


def _mean(value: Any) -> float:
    """The one number, in an array or by itself, that an aggregate evaluation gave."""
    if np.size(value) != 1:
        raise PublicError("With largest_loss per_record_loss returns one mean, as clamped_mean of its losses is.")
    return float(np.reshape(value, ()))


def _tables(chunks: Any, loss: Callable[..., Any], points: list[dict[str, Any]], n_jobs: int | None) -> Iterator[Any]:
    """The losses of each chunk. Whoever reads chunks reads records."""
    source: Any = _attempted(lambda: iter(chunks() if callable(chunks) else chunks))  # pyright: ignore[reportCallIssue, reportArgumentType]
    while True:
        chunk: Any = _attempted(lambda: next(source, _END))
        if chunk is _END:
            return
        columns = _evaluated(loss, points, n_jobs, chunk)
        yield _attempted(lambda chunk=chunk, columns=columns: losses_at(columns, len(chunk)))


def _evaluated(loss: Callable[..., Any], points: list[dict[str, Any]], n_jobs: int | None, *first: Any) -> list[Any]:
    """The losses at the points, by processes that get records through pipes: `max_nbytes` would have them in files."""
    calls = (delayed(loss)(*first, **point) for point in points)
    return list(_attempted(lambda: Parallel(n_jobs=n_jobs, max_nbytes=None)(calls)))


def _attempted(call: Callable[[], T]) -> T:
    """The result of a call that sees records; no exception of it leaves as it is."""
    found = attempt(call)
    if isinstance(found, Failure):
        error = found.error("while losses were evaluated")
        if isinstance(error, MechanismFailed):
            raise MechanismFailed(
                f"{error} A record whose loss cannot be computed must get NaN instead. check_loss shows errors on "
                "made-up records whole, and costs nothing."
            )
        raise error
    return found
