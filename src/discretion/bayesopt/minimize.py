"""A whole private search in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.study import Study
from discretion.privacy import Ledger, MechanismFailed, PublicError, Randomness
from discretion.privacy.failure import Failure, attempt
from discretion.privacy.frames import cleared

__all__ = ["minimize"]


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
    ledger: Ledger | None = None,
    randomness: Randomness | None = None,
    n_jobs: int | None = None,
    **parameters: Any,
) -> LocalSearchRelease:
    """Minimise the mean over n private records of a loss known by its values alone.

    Args:
        per_record_loss: called with the parameters as keywords; returns the n losses, shape (n,), always in the same
            order of records. With `chunks` its first argument is a chunk, and it returns the losses of its records. In
            aggregate mode (`largest_loss`) it returns one mean. None says that it failed for a public reason.
            A loss that cannot be computed for a record is NaN for that record: an exception ends the run.
        space: a `Space`, or a dictionary of `Linear`, `Log`, `Logit` and `Integer`.
        n: the public number of records.
        steps, clip: T and B, see `LocalSearch`, which takes the other `parameters`.
        mu: what the run costs, or epsilon (with delta).
        chunks: the records in parts, an iterable that can be read anew in each step, or a function that gives one.
        path, private, ledger, randomness: see `Study`.
        n_jobs: evaluations of a step at once, as joblib's.

    Raises:
        ValueError: not exactly one of mu and epsilon; a parameter out of range.
        MechanismFailed: an evaluation raised an exception; nothing of its message is kept, as it may quote a record.
    """
    if (mu is None) == (epsilon is None):
        raise ValueError("Give mu, or epsilon with delta; one of the two.")
    if epsilon is not None:
        search = LocalSearch.calibrated(space, epsilon=epsilon, delta=delta, steps=steps, clip=clip, **parameters)
    else:
        assert mu is not None
        search = LocalSearch(space, mu=mu, delta=delta, steps=steps, clip=clip, **parameters)
    with Study(search, n=n, path=path, private=private, ledger=ledger, randomness=randomness) as study:
        while not study.done:
            points = study.ask()
            if chunks is None:
                columns = _evaluated(per_record_loss, points, n_jobs)
                failed = [j for j, column in enumerate(columns) if column is None]
                if failed:
                    study.drop(failed)
                columns = [column for column in columns if column is not None]
                _told(study, columns)
            else:
                source = chunks() if callable(chunks) else chunks
                study.tell(_table(_evaluated(per_record_loss, points, n_jobs, chunk), len(chunk)) for chunk in source)
        return study.result()


def _told(study: Study, columns: list[Any]) -> None:
    if study.search.aggregate:
        study.tell_mean(np.array([float(column) for column in columns]))
    else:
        if any(np.shape(column) != (study.n,) for column in columns):
            raise PublicError(f"per_record_loss must return {study.n} losses, shape (n,), one a record.")
        study.tell(_table(columns, study.n))


def _table(columns: list[Any], rows: int) -> Any:
    """Losses as columns; also where there are none."""
    return np.column_stack(columns) if columns else np.empty((rows, 0))


def _evaluated(loss: Callable[..., Any], points: list[dict[str, Any]], n_jobs: int | None, *first: Any) -> list[Any]:
    """The losses at the points; no exception of an evaluation leaves as it is."""
    found = attempt(lambda: Parallel(n_jobs=n_jobs)(delayed(loss)(*first, **point) for point in points))
    if isinstance(found, Failure):
        error = found.error("while losses were evaluated")
        if isinstance(error, MechanismFailed):
            raise MechanismFailed(f"{error} A record whose loss cannot be computed must get NaN instead.")
        raise error
    return list(found)
