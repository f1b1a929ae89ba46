"""Tasks through joblib, in whatever context ``joblib.parallel_config`` has set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

__all__ = ["as_they_come"]


def as_they_come(
    compute: Callable[..., Any], settings: Sequence[dict[str, Any]], jobs: int | None
) -> Iterator[tuple[int, Any]]:
    """Numbers and results of ``compute(**setting)`` one by one as they are finished, one BLAS thread each.

    A backend that can't hand results over one by one (ray's) hands over all at the end.
    """
    # with a number of jobs of one's own joblib leaves the backend of the context in place
    active: Any = get_active_backend()[0]
    way = "generator_unordered" if active.supports_return_generator else "list"
    tasks = (delayed(_numbered)(number, compute, setting) for number, setting in enumerate(settings))
    found: Any = Parallel(n_jobs=jobs, return_as=way)(tasks)
    yield from found


def _numbered(number: int, compute: Callable[..., Any], setting: dict[str, Any]) -> tuple[int, Any]:
    with threadpool_limits(1):
        return number, compute(**setting)
