"""Losses given by any function of the Renyi order, or by a table of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from discretion.privacy.conversion import GREATEST_EXCESS, LEAST_EXCESS, NEGATIVE_TOLERANCE
from discretion.privacy.loss.base import (
    CONVERSION,
    READERS,
    UNIT,
    Array,
    Neighbours,
    PrivacyLoss,
    read_labels,
    set_neighbours,
)


@dataclass(frozen=True, repr=False)
class RenyiCurve(PrivacyLoss):
    """A bound of the Renyi divergences given by any function of the order.

    Renyi divergences are non-negative and do not decrease with the order, and so must the values be; a bound
    with a pole at order 1 has to be replaced by the least of its values at this and all larger orders first.

    Args:
        function: maps a 1-D float array of excess orders `x = alpha - 1`, inside `(0, supremum)`, to bounds
            of D_alpha in both directions. Where `supremum` is infinite it is also asked at `x = inf`: a
            finite value there is a bound of the max-divergence; an exception, NaN or inf means there is none.
            NaN anywhere counts as infinite.
        supremum: least upper bound of the admissible *excess* orders; positive, possibly inf.
        neighbours: the neighbour relation.
        rule: in words, or a function from one excess order to words.

    Raises:
        ValueError: supremum not positive; on evaluation, a value below -1e-9 or a decreasing curve. Negative
            values above -1e-9 are rounding and become 0.
    """

    function: Callable[[Array], Any]
    supremum: float = math.inf
    neighbours: Neighbours = field(kw_only=True)
    rule: str | Callable[[float], str] = field(kw_only=True)

    def __post_init__(self) -> None:
        set_neighbours(self)
        supremum = float(self.supremum)
        if not supremum > 0:
            raise ValueError(
                f"The supremum of the excess orders (alpha - 1) must be positive, not {supremum!r}: with no "
                "order above 1 there is no bound."
            )
        object.__setattr__(self, "supremum", supremum)

    def __repr__(self) -> str:
        rule = "..." if callable(self.rule) else repr(self.rule)
        return f"RenyiCurve(orders={self.order_range}, neighbours='{self.neighbours}', rule={rule})"

    def _renyi(self, excess: Array) -> Array:
        # Order 1 from above: D_1 <= D_alpha for every alpha > 1.
        x = np.maximum(excess, LEAST_EXCESS * min(1.0, self.supremum))
        finite = np.isfinite(x)
        values = np.full(x.shape, np.inf)
        if np.any(finite):
            values[finite] = self._values(x[finite])
        if not np.all(finite):
            try:
                values[~finite] = self._values(np.array([np.inf]))[0]
            except (ArithmeticError, ValueError, TypeError):
                values[~finite] = np.inf
        self._check_increasing(x, values)
        return values

    def _values(self, x: Array) -> Array:
        values = np.asarray(self.function(x), dtype=np.float64)
        if values.shape != x.shape:
            raise ValueError(
                f"The Renyi function was given {x.size} excess orders and returned an array of shape "
                f"{values.shape}: it must return one bound for each."
            )
        values = np.where(np.isnan(values), np.inf, values)
        if np.any(values < -NEGATIVE_TOLERANCE):
            at = int(np.argmin(values))
            raise ValueError(
                f"The Renyi function is {float(values[at])!r} at excess order {float(x[at])!r}: a Renyi "
                "divergence is never negative. Check the formula, near order 1 above all."
            )
        return np.maximum(values, 0.0)

    @staticmethod
    def _check_increasing(x: Array, values: Array) -> None:
        order = np.argsort(x, kind="stable")
        x, values = x[order], values[order]
        # A cumulant computed to rounding error and divided by x is off by that error over x.
        tolerance = NEGATIVE_TOLERANCE * (1 + values[1:]) + 16 * UNIT / x[:-1]
        falls = ~(values[:-1] <= values[1:] + tolerance)
        if np.any(falls):
            at = int(np.argmax(falls))
            raise ValueError(
                f"The Renyi function falls from {float(values[at])!r} at excess order {float(x[at])!r} to "
                f"{float(values[at + 1])!r} at {float(x[at + 1])!r}: a Renyi divergence never decreases with "
                "the order. Check the formula, or give the least of the values at this and all larger orders."
            )

    def _renyi_rule(self, excess: float) -> str:
        return str(self.rule(excess)) if callable(self.rule) else self.rule

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        """A table of the curve from which `from_dict` makes an upper bound of the divergence at every order.

        Orders: a geometric grid, refined geometrically towards a finite supremum, the orders that are
        optimal at delta = 1e-2, ..., 1e-12, and those asked for. Proof: `docs/proofs/renyi-table.md`.
        """
        if isinstance(self.function, RenyiTable):
            table, rule = self.function, self._renyi_rule(1.0)
        else:
            table, rule = self._tabulated(excess)
        return {
            "type": "renyi-table",
            "neighbours": str(self.neighbours),
            "rule": rule,
            "excess": list(table.excess),
            "renyi": list(table.values),
            "limit": table.limit,
        }

    def _tabulated(self, further: tuple[float, ...]) -> tuple[RenyiTable, str]:
        best = [self._renyi_guarantee(10.0**-k) for k in range(2, 13)]
        best = [guarantee for guarantee in best if guarantee.order is not None]
        excess = np.unique(np.concatenate([self._grid(), [(g.order or 1.0) - 1 for g in best], further]))
        excess = excess[(excess > 0) & (excess < self.supremum)]
        # A bound at one order is a bound at every smaller one, so lifting dips of rounding keeps it a bound.
        values = np.maximum.accumulate(self.renyi_excess(excess)) * (1 + 1e-12)
        kept = np.isfinite(values)
        limit = self.renyi_excess(math.inf) * (1 + 1e-12)
        table = RenyiTable(
            tuple(excess[kept].tolist()),
            tuple(values[kept].tolist()),
            limit if math.isfinite(limit) else None,
        )
        rules = dict.fromkeys(guarantee.rule.removesuffix(f", {CONVERSION}") for guarantee in best)
        return table, " / ".join(rules) or "infinite"

    def _grid(self) -> Array:
        if math.isinf(self.supremum):
            return np.geomspace(LEAST_EXCESS, GREATEST_EXCESS, 416)
        low = math.log(LEAST_EXCESS) - max(math.log(self.supremum), 0.0)
        high = -math.log(LEAST_EXCESS)
        return self.supremum / (1 + np.exp(-np.linspace(low, high, math.ceil((high - low) / 0.1))))


@dataclass(frozen=True)
class RenyiTable:
    """An upper bound at every order from upper bounds at some.

    With `x = alpha - 1`, `x D(x)` is convex, so it lies below the chords of upper bounds; `D` does not
    decrease, so it lies below the first value before the first node, and below the limit (a bound of the
    max-divergence; inf without one) after the last. Proof: `docs/proofs/renyi-table.md`.
    """

    excess: tuple[float, ...]
    values: tuple[float, ...]
    limit: float | None

    def __post_init__(self) -> None:
        x, d = np.asarray(self.excess, dtype=np.float64), np.asarray(self.values, dtype=np.float64)
        orders = x.shape == d.shape and np.all(np.isfinite(x)) and np.all(x > 0) and np.all(np.diff(x) > 0)
        if not (orders and np.all(np.isfinite(d)) and np.all(d >= 0) and np.all(np.diff(d) >= 0)):
            raise ValueError(
                "This is not the table of a Renyi curve: it needs one bound for each excess order, orders "
                "positive and increasing, bounds finite, at least 0 and not decreasing."
            )
        if self.limit is not None and not self.limit >= max(self.values, default=0.0):
            raise ValueError(f"The limit of a Renyi table bounds all its values, or is null; {self.limit!r} does not.")

    @property
    def supremum(self) -> float:
        if self.limit is not None or not self.excess:
            return math.inf
        return math.nextafter(self.excess[-1], math.inf)

    def __call__(self, x: Array) -> Array:
        last = math.inf if self.limit is None else self.limit
        if not self.excess:
            return np.full(x.shape, last)
        nodes, values = np.asarray(self.excess), np.asarray(self.values)
        chord = np.interp(x, nodes, nodes * values) / x * (1 + 4 * UNIT)
        inside = np.where(x <= nodes[0], values[0], chord)
        return np.minimum(np.where(x > nodes[-1], np.inf, inside), last)


def _read_table(description: Mapping[str, Any]) -> RenyiCurve:
    limit = description["limit"]
    table = RenyiTable(
        tuple(float(x) for x in description["excess"]),
        tuple(float(value) for value in description["renyi"]),
        None if limit is None else float(limit),
    )
    return RenyiCurve(table, table.supremum, **read_labels(description))


READERS["renyi-table"] = _read_table
