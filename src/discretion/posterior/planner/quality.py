"""How well posterior paths show a field, and what counts as useful."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Quality", "Spread", "compared", "measured"]

Floats = NDArray[np.float64]
Values = NDArray[np.floating]
Mask = NDArray[np.bool_]

IOU, CORRELATION = "IoU", "correlation"


@dataclass(frozen=True)
class Spread:
    """A score over simulated releases: median and quartiles, mean and its standard error by world."""

    median: float
    lower: float
    upper: float
    mean: float
    se: float

    @classmethod
    def of(cls, values: Values) -> Spread:
        """Of values (W,) or (W, k), of k releases of each world."""
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        by_world = values.reshape(len(values), -1).mean(axis=1)
        se = by_world.std(ddof=1) / math.sqrt(len(values))
        return cls(float(middle), float(low), float(high), float(by_world.mean()), float(se))

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.lower:.3f}, {self.upper:.3f}]"


@dataclass(frozen=True)
class Quality:
    """Scores of a release over worlds that did not choose it.

    Attributes
    ----------
    measure : {"IoU", "correlation"}
        With a threshold the overlap with the true set {f >= threshold}; without one the correlation, over the places,
        with the true field: how much of the contrast is there, whatever a large ridge does to its size.
    one : Spread
        Of a single path.
    together : Spread
        Of all paths: of the set where at least half of them are at or above the threshold, or of their mean.
    rmse : Spread
        Of a single path against the true field.
    """

    measure: str
    one: Spread
    together: Spread
    rmse: Spread

    @classmethod
    def of(cls, measure: str, scores: dict[str, Values]) -> Quality:
        """From scores (W, k) of `measured`."""
        return cls(measure, *(Spread.of(scores[each.name]) for each in fields(cls)[1:]))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {"measure": self.measure, **{each.name: vars(getattr(self, each.name)) for each in fields(self)[1:]}}


def measured(releases: Values, field: Values, threshold: float | None) -> dict[str, Values]:
    """Scores of releases (E, k, L, m), of L paths each, against a true field (m,).

    "together" (E, k); "one" and "rmse" (E, k L), path by path.
    """
    count = releases.shape[:2]
    rmse = np.sqrt(np.mean((releases - field) ** 2, axis=-1)).reshape(count[0], -1)
    one, together = compared(releases, field, threshold)
    return {"one": one.reshape(rmse.shape), "together": together, "rmse": rmse}


def compared(releases: Values, field: Values, threshold: float | None) -> tuple[Values, Values]:
    """IoU, or correlation without a threshold, of single paths (E, k, L) and of those of a release together (E, k)."""
    if threshold is None:
        return _correlation(releases, field), _correlation(releases.mean(axis=2), field)
    inside, truth = releases >= threshold, field >= threshold
    one = _iou(inside, truth)
    if releases.shape[2] == 1:
        return one, one[:, :, 0]
    # as `excursion.frequency_set` at one half
    return one, _iou(2 * np.count_nonzero(inside, axis=2) >= releases.shape[2], truth)


def _iou(found: Mask, truth: Mask) -> Values:
    """Intersection over union along the last axis; an empty union has 1. Counts are exact in single precision."""
    both, size = np.moveaxis(
        found.astype(np.float32) @ np.stack((truth, truth | True), axis=1, dtype=np.float32), -1, 0
    )
    union = size + np.count_nonzero(truth) - both
    return np.where(union == 0, 1.0, both / np.maximum(union, 1.0))


def _correlation(values: Values, field: Values) -> Values:
    """Along the last axis; 0 where either is constant."""
    a, b = values - values.mean(axis=-1, keepdims=True), field - field.mean()
    size = np.sqrt(np.sum(a * a, axis=-1) * np.sum(b * b))
    return np.divide(a @ b, size, out=np.zeros_like(size), where=size > 0)
