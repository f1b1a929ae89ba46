"""A whole private search in one call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.steps import Step
from discretion.bayesopt.study import Study
from discretion.privacy import Ledger, MechanismFailed, PublicError, Randomness
from discretion.privacy.failure import Failure, attempt
from discretion.privacy.frames import cleared

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
    delta: float = 1e-5,
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
            A loss that cannot be computed for a record is NaN for that record: an exception ends the run.
        space: a `Space`, or a dictionary of `Linear`, `Log`, `Logit` and `Integer`.
        n: the public number of records.
        steps, clip: T and B, see `LocalSearch`, which takes the other `parameters`.
        mu: what the run costs, or epsilon (with delta).
        chunks: the records in parts, an iterable that can be read anew in each step, or a function that gives one.
        path, private, ledger, randomness: see `Study`.
        n_jobs: evaluations of a step at once, as joblib's.
        stop: called with the finished steps, all public, after each; True ends the run, as `Flat` does.
        unsafe_diagnostics: see `Study`.

    Raises:
        ValueError: not exactly one of mu and epsilon; a parameter out of range; a loss that does not take the names of
            the space. Nothing was spent.
        MechanismFailed: an evaluation raised an exception; nothing of its message is kept, as it may quote a record.
    """
    if (mu is None) == (epsilon is None):
        raise ValueError("Give mu, or epsilon with delta; one of the two.")
    if epsilon is not None:
        search = LocalSearch.calibrated(space, epsilon=epsilon, delta=delta, steps=steps, clip=clip, **parameters)
    else:
        assert mu is not None
        search = LocalSearch(space, mu=mu, delta=delta, steps=steps, clip=clip, **parameters)
    if chunks is not None and search.sample_rate is not None:
        raise ValueError("Give chunks or sample_rate, not both.")
    _check_signature(
        per_record_loss,
        search.space.names,
        "chunk" if chunks is not None else "rows" if search.sample_rate is not None else None,
    )
    files: dict[str, Any] = {"path": path, "private": private}
    with Study(
        search, n=n, **files, ledger=ledger, randomness=randomness, unsafe_diagnostics=unsafe_diagnostics
    ) as study:
        while not study.done:
            points = study.ask()
            if chunks is None:
                rows = study.sample()
                who = () if search.sample_rate is None else (rows,)
                # Of no records there is nothing to compute, and a function that fails then would tell that.
                empty = search.sample_rate is not None and not len(rows)
                none = [np.empty(0)] * len(points)
                columns = none if empty else _evaluated(per_record_loss, points, n_jobs, *who)
                failed = [j for j, column in enumerate(columns) if column is None]
                if failed:
                    study.drop(failed)
                _told(study, [column for column in columns if column is not None], len(rows))
            else:
                study.tell(_tables(chunks, per_record_loss, points, n_jobs))
            if stop is not None and not study.done and stop(study.steps):
                study.stop()
        return study.result()


def _check_signature(loss: Callable[..., Any], names: Sequence[str], first: str | None) -> None:
    """Refuse a loss that cannot be called with the parameters by name. Its signature is public; its errors are not."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return  # one that has none to look at, such as some functions written in C
    try:
        signature.bind(*([] if first is None else [None]), **dict.fromkeys(names))
    except TypeError as error:
        call = ", ".join([*([] if first is None else [first]), *(f"{name}=..." for name in names)])
        has = ", ".join(signature.parameters)  # names alone: the default of one may be the records
        raise ValueError(
            f"per_record_loss({has}) cannot be called as per_record_loss({call}): {error}. Nothing was spent."
        ) from None


def _told(study: Study, columns: list[Any], rows: int) -> None:
    if study.search.aggregate:
        study.tell_mean(_attempted(lambda: np.array([_mean(column) for column in columns])))
        return
    if not _attempted(lambda: all(np.shape(column) in ((rows,), (rows, 1)) for column in columns)):
        wanted = f"{study.n} losses, shape (n,)" if study.search.sample_rate is None else "losses"
        raise PublicError(
            f"per_record_loss must return {wanted}, one a record. For one that returns a mean declare the range of the "
            "losses in it, largest_loss=, which needs more noise."
        )
    study.tell(_attempted(lambda: _table(columns, rows)))


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
        yield _attempted(lambda chunk=chunk, columns=columns: _table(columns, len(chunk)))


def _table(columns: list[Any], rows: int) -> Any:
    """Losses as columns; also where there are none."""
    return np.column_stack(columns) if columns else np.empty((rows, 0))


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
            raise MechanismFailed(f"{error} A record whose loss cannot be computed must get NaN instead.")
        raise error
    return found
