"""A loss tried on made-up records, before budget is reserved for the real ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from discretion.bayesopt.losses import check_losses, check_means, losses_at
from discretion.bayesopt.space import Space

__all__ = ["check_loss", "check_signature"]


def check_loss(
    per_record_loss: Callable[..., Any], space: Any, *made_up: Any, n: int, largest_loss: float | None = None
) -> None:
    """Try a loss on MADE-UP records as `minimize` would call it; free, as no record is in it.

    Called in the middle of the space and at two opposite corners. An exception of the loss comes out as it is, so never
    give it private records: what it says of them nobody pays for.

    Args:
        per_record_loss: as for `minimize`, of made-up records.
        space: as for `minimize`.
        made_up: what the loss is called with first: a made-up chunk where `chunks` will be given; `np.arange(n)` where
            `sample_rate` is.
        n: how many made-up records there are.
        largest_loss: of a loss that returns a mean.

    Raises:
        ValueError: it does not take the names of the space, or returns another shape or precision than `minimize`
            takes, or at some setting no finite loss: those count as 0, and all of them together tell nothing.
    """
    space = space if isinstance(space, Space) else Space(space)
    check_signature(per_record_loss, space.names, "made_up" if made_up else None)
    low, high = space.bounds
    for theta in (0.5 * (low + high), low, high):
        point = space.parameters(theta)
        value = per_record_loss(*made_up, **point)
        if value is None:
            continue
        try:
            if largest_loss is not None:
                check_means(np.atleast_1d(value), 1, largest_loss)
                continue
            losses = losses_at([value], n)
            check_losses(losses, 1)
        except ValueError as error:
            raise ValueError(f"At {point}: {error}") from None
        if n and not np.isfinite(losses).any():
            raise ValueError(
                f"At {point} no loss is finite. Such losses count as 0: of all of them nothing is learned."
            )


def check_signature(loss: Callable[..., Any], names: Sequence[str], first: str | None) -> None:
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
