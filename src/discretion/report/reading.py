"""How the values on a map are read, and the map in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.report.scene import Layer, View

__all__ = ["Contrast", "amount", "asks", "contrast", "in_words", "path_layer", "read_as", "shares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Contrast:
    """Values as differences from the public `centre`, in standard deviations `spread` of the path's own noise."""

    centre: float
    spread: float

    def __call__(self, values: ArrayLike) -> Floats:
        """The same values in noise sd."""
        return (np.asarray(values, dtype=np.float64) - self.centre) / self.spread

    def units(self, response: str, centre: str) -> str:
        """Words beside a scale, from the name of the response and the centre in words."""
        return f"{response}: above (+) or below (-) {centre}, in noise sd"


def contrast(parameters: Mapping[str, Any], n: int | None) -> Contrast | None:
    """How paths with these public parameters have to be read; None where as the response itself.

    A ridge beyond sqrt(n) shrinks the mean towards the centre by more than half: what is left tells the side of the
    centre, not the size of the response. `n` is the public number of records; without one the bound `most_records`
    stands for it.
    """
    if parameters["ridge"] ** 2 <= (n or parameters.get("most_records") or 0):
        return None
    return Contrast(parameters["centre"], math.hypot(parameters["scale"], parameters.get("prior_noise", 0.0)))


def read_as(values: Floats, read: Contrast | None) -> Floats:
    """Values of paths as they can be read."""
    return values if read is None else read(values)


def path_layer(name: str, values: Floats, view: View, ends: tuple[float, float] | None, read: Contrast | None) -> Layer:
    """The surface of a path; `ends` are those of the values as they are read."""
    if read is None:
        return Layer(name, values, view.units, view.logarithm, ends)
    return Layer(name, read(values), read.units(view.units, amount(read.centre, view)), False, ends)


# --- in words


def in_words(
    name: str,
    values: Floats,
    threshold: float | None,
    below: bool,
    view: View,
    answers: tuple[float, float, float] | None = None,
    read: Contrast | None = None,
) -> str:
    """The map in words: the estimate as an estimate, and beside it what the noise leaves sure.

    `values` are as they are read.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "No place has records enough near for a value to be shown."
    low, high = float(finite.min()), float(finite.max())
    if read is None:
        text = f"{name}: from {amount(low, view)} to {amount(high, view)}."
    else:
        text = (
            f"{name}: from {low:.3g} to {high:.3g} standard deviations of the noise above {amount(read.centre, view)}."
        )
    if threshold is not None:
        cut = threshold if read is None else float(read(threshold))
        yes = np.count_nonzero(finite <= cut if below else finite >= cut) / finite.size
        side = "at most" if below else "at least"
        text += f" The estimate is {side} {amount(threshold, view)} at {_percent(yes)} of the places shown"
        if answers is not None:
            sure, open_, not_ = map(_percent, answers)
            text += f"; surely so at {sure}, undecided at {open_}, surely not at {not_}. Sure is meant against the "
            text += "noise of privacy, not against chance in the records"
        text += "."
    return text


def asks(threshold: float, below: bool, view: View) -> str:
    """The question that confidence sets answer."""
    return f"Is the clipped local mean {'at most' if below else 'at least'} {amount(threshold, view)}?"


def shares(yes: NDArray[np.bool_], maybe: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Shares of surely so, undecided and surely not, from the inner and the outer set at the places shown."""
    count = max(yes.size, 1)
    sure, no = np.count_nonzero(yes) / count, np.count_nonzero(~(yes | maybe)) / count
    return sure, np.count_nonzero(maybe & ~yes) / count, no


def _percent(share: float) -> str:
    """A share in whole percent, where 0 % is nowhere and 100 % everywhere."""
    if 0.0 < share < 0.005:
        return "under 1\xa0%"
    return "over 99\xa0%" if 0.995 <= share < 1.0 else f"{100 * share:.0f}\xa0%"


def amount(value: float, view: View) -> str:
    """A value in words; of a logarithm also the number it is of."""
    if not view.logarithm or abs(value) > 300:
        return f"{value:.4g}"
    return f"{value:.4g} ({float(f'{math.exp(value):.3g}'):,.6g})"
