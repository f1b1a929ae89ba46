"""Losses as they are told, looked at for their public form before a step is charged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import PublicError
from discretion.privacy.quiet import quiet

__all__ = ["as_table", "check_losses", "check_means", "in_chunks", "in_parts", "losses_at"]

Floats = NDArray[np.float64]

ROWS = 2048
"""Of losses that are looked at together."""

_END = object()


def as_table(losses: Any) -> Any:
    """One array of what is one: rows in lists, a data frame, a tensor. Chunks are left as they are.

    Chunks are an iterator, or a list whose every part is an array of two dimensions: in any other list the parts are
    rows.

    Raises:
        PublicError: rows that are not of equally many numbers.
    """
    if isinstance(losses, np.ndarray):
        return losses
    rows = isinstance(losses, Sequence)
    if rows and losses and all(isinstance(each, np.ndarray) and each.ndim == 2 for each in losses):
        return losses
    if not (rows or hasattr(losses, "__array__")):
        return losses
    table = _array(losses)
    if table is None or table.dtype.kind not in "iuf":
        # Outside of the handler, so that the original, which may quote a loss, does not hang on as __context__.
        raise PublicError("Losses are rows of equally many numbers, one row a record; these are not.")
    return table.astype(np.float64) if table.dtype.kind in "iu" else table


@quiet()
def _array(losses: Any) -> NDArray[Any] | None:
    try:
        return np.asarray(losses)
    except Exception:
        return None


def losses_at(columns: list[Any], rows: int) -> NDArray[Any]:
    """What evaluations at some settings gave, a column each: (rows, b). Counts and truth values become numbers.

    Raises:
        PublicError: one that is not a loss a record, shape (rows,) or (rows, 1).
    """
    if not all(np.shape(column) in ((rows,), (rows, 1)) for column in columns):
        raise PublicError(
            "per_record_loss must return losses, one a record: shape (n,), or (rows,) of a chunk or sample of so many. "
            "For one that returns a mean declare the range of the losses in it, largest_loss=, which needs more noise."
        )
    table = np.column_stack(columns) if columns else np.empty((rows, 0))
    return table.astype(np.float64) if table.dtype.kind in "iub" else table


def check_losses(losses: Any, b: int) -> None:
    """Refuse losses for their public form alone."""
    if not isinstance(losses, np.ndarray) or losses.ndim != 2 or losses.shape[1] != b:
        raise PublicError(f"Losses must be an array of shape (records, {b}), one column a location.")
    if losses.dtype != np.float64:
        raise PublicError("Losses must be float64: differences of nearby evaluations need all digits.")


def in_chunks(losses: Any, b: int, n: int) -> Iterable[Floats]:
    """The chunks of `losses`, as `as_table` gives them: all of them checked, or of an iterator the first.

    Raises:
        PublicError: losses of another form, or of another number of records. The step was not charged.
    """
    if not isinstance(losses, np.ndarray | Sequence):
        source = iter(losses)
        first: Any = next(source, _END)
        if first is _END:
            raise PublicError(f"Losses are of {n} records, as n says; these are none. The step was not charged.")
        check_losses(first, b)
        return chain([first], source)
    chunks = [losses] if isinstance(losses, np.ndarray) else list(losses)
    for each in chunks:
        check_losses(each, b)
    if sum(map(len, chunks)) != n:
        raise PublicError(f"Losses are of {n} records, as n says; these are not. The step was not charged.")
    return chunks


def in_parts(chunks: Iterable[Any], b: int) -> Iterator[Floats]:
    """The chunks, checked, in parts that fit into a processor's cache."""
    for chunk in chunks:
        check_losses(chunk, b)
        for start in range(0, len(chunk), ROWS):
            yield chunk[start : start + ROWS]


def check_means(means: Any, b: int, largest_loss: float) -> Floats:
    """Refuse what cannot be means of losses clamped to [0, Lambda]: the noise is for those."""
    values = np.asarray(means, dtype=np.float64)
    if values.shape != (b,):
        raise PublicError(f"Means must be {b} numbers, one a location. The step was not charged.")
    slack = 1e-9 * largest_loss  # for means that were added up with rounding
    if not ((values >= -slack) & (values <= largest_loss + slack)).all():
        raise PublicError(
            f"Means must be of losses clamped to [0, {largest_loss:g}] record by record, as clamped_mean makes them; "
            "these are not. The step was not charged."
        )
    return values
