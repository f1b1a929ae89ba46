"""Private records as mechanisms read them: checked without a word of what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.privacy import PublicError
from discretion.privacy.records import check_labelled, numbers

__all__ = ["PrivateRecords", "Records", "checked_points", "checked_records", "numbers"]

Floats = NDArray[np.float64]


class PrivateRecords(Protocol):
    """Anything with ``covariates`` (n, d) and ``response`` (n,), or (n, columns), float64."""

    @property
    def covariates(self) -> Floats: ...
    @property
    def response(self) -> Floats: ...


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """PRIVATE. Records in memory.

    ``covariates`` (n, d) and ``response`` (n,) or (n, columns), float64; ``units`` (n,) says whose each record is.
    """

    covariates: Floats
    response: Floats
    units: NDArray[Any] | None = None


def checked_points(X: ArrayLike, dimension: int) -> Floats:
    """X as finite float64 of shape (m, dimension)."""
    points = numbers(X, "Points")
    if points.ndim == 1 and dimension == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != dimension:
        raise ValueError(f"Points must have shape (m, {dimension}); got {points.shape}.")
    if not np.isfinite(points).all():
        raise ValueError("Points must be finite.")
    return points


def checked_records(records: PrivateRecords, dimension: int, columns: int = 1) -> tuple[Floats, Floats]:
    """Covariates (n, dimension) and responses (n, columns), finite; one column may also come as (n,).

    Raises
    ------
    PublicError
        Names shapes and rows, never values.
    """
    check_labelled(records)
    X, Y = numbers(records.covariates, "covariates"), numbers(records.response, "response")
    columned = Y[:, None] if Y.ndim == 1 else Y
    if X.ndim != 2 or X.shape[1] != dimension or columned.shape != (len(X), columns):
        unequal = " and they differ in number" if X.shape[:1] != Y.shape[:1] else ""
        raise PublicError(
            f"Records must have covariates of shape (n, {dimension}) and response of shape "
            f"{'(n,)' if columns == 1 else f'(n, {columns})'}, one for one; got {_shape(X)} and {_shape(Y)}{unequal}."
        )
    rows = np.flatnonzero(~(np.isfinite(X).all(axis=1) & np.isfinite(columned).all(axis=1)))
    if rows.size:
        listed = ", ".join(map(str, rows[:10])) + (f" and {rows.size - 10} more" if rows.size > 10 else "")
        raise PublicError(f"Records are not finite at rows {listed} (from 0); mend or remove them by a public rule.")
    return X, columned


def _shape(array: Floats) -> str:
    """The shape of records in words; their number may be private."""
    sizes = ["n", *map(str, array.shape[1:])][: array.ndim]
    return f"({sizes[0]},)" if array.ndim == 1 else f"({', '.join(sizes)})"
