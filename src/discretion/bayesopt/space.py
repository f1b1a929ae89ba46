"""The search space: parameters as people write them, and the scaled real vector theta that the optimiser moves.

theta_j = (T(x_j) - middle of the transformed range) / unit, with T the identity, log or logit. The middle of the box is
the origin, and with the default unit, the width of the transformed range, the box is [-1/2, 1/2]^d.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Categorical", "CoarseInteger", "Dimension", "Integer", "Linear", "Log", "Logit", "Space"]

Floats = NDArray[np.float64]


_WHOLE = 5.0  # whole numbers in a length scale, at least


class CoarseInteger(UserWarning):
    """Whole numbers lie so far apart that to the kernel the losses at two of them have little to do with each other."""


@dataclass(frozen=True)
class Dimension(ABC):
    """One parameter of a public range.

    Args:
        low, high: the range, low < high.
        unit: the change of the transformed parameter that counts as 1; by default the width of the range. The clipping
            norm and length scales are in these units.

    Raises:
        ValueError: no such range or unit.
    """

    low: float
    high: float
    unit: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"A range needs finite low < high; got {self.low!r} and {self.high!r}.")
        self._check()
        if self.unit is not None and not (math.isfinite(self.unit) and self.unit > 0):
            raise ValueError(f"unit must be positive and finite, or None for the width; got {self.unit!r}.")

    @abstractmethod
    def _check(self) -> None:
        """Refuse a range outside the domain of the transform."""

    @abstractmethod
    def forward(self, x: float) -> float:
        """T(x)."""

    @abstractmethod
    def inverse(self, t: float) -> float:
        """The parameter at t = T(x)."""

    @property
    def ends(self) -> tuple[float, float]:
        """The transformed range."""
        return self.forward(self.low), self.forward(self.high)

    @property
    def middle(self) -> float:
        return 0.5 * (self.ends[0] + self.ends[1])

    @property
    def step(self) -> float:
        """The unit, in transformed parameters."""
        return self.ends[1] - self.ends[0] if self.unit is None else self.unit

    @property
    def half(self) -> float:
        """Half of the scaled width: theta lies in [-half, half]."""
        return 0.5 * (self.ends[1] - self.ends[0]) / self.step

    def scaled(self, x: float) -> float:
        """theta_j of a parameter; ValueError outside the range."""
        if not self.low <= x <= self.high:
            raise ValueError(f"{x!r} lies outside the range from {self.low!r} to {self.high!r}.")
        return (self.forward(float(x)) - self.middle) / self.step

    def parameter(self, theta: float) -> Any:
        """The parameter at theta_j, inside the range."""
        return min(max(self.inverse(self.middle + theta * self.step), self.low), self.high)


@dataclass(frozen=True)
class Linear(Dimension):
    """A real parameter as it is."""

    def _check(self) -> None:
        pass

    def forward(self, x: float) -> float:
        return x

    def inverse(self, t: float) -> float:
        return t


@dataclass(frozen=True)
class Log(Dimension):
    """A positive parameter whose ratios matter, such as a learning rate."""

    def _check(self) -> None:
        if self.low <= 0:
            raise ValueError(f"A log range must be positive; got low = {self.low!r}.")

    def forward(self, x: float) -> float:
        return math.log(x)

    def inverse(self, t: float) -> float:
        return math.exp(t)


@dataclass(frozen=True)
class Logit(Dimension):
    """A parameter between 0 and 1, such as a dropout rate."""

    def _check(self) -> None:
        if self.low <= 0 or self.high >= 1:
            raise ValueError(f"A logit range must lie strictly between 0 and 1; got {self.low!r} to {self.high!r}.")

    def forward(self, x: float) -> float:
        return math.log(x) - math.log1p(-x)

    def inverse(self, t: float) -> float:
        return 1.0 / (1.0 + math.exp(-t)) if t >= 0 else math.exp(t) / (1.0 + math.exp(t))


@dataclass(frozen=True)
class Integer(Dimension):
    """A whole number, relaxed to a real one and rounded where it is evaluated; `log` for one whose ratios matter."""

    log: bool = False

    def _check(self) -> None:
        if self.low != int(self.low) or self.high != int(self.high):
            raise ValueError(f"An integer range needs whole ends; got {self.low!r} and {self.high!r}.")
        if self.log and self.low <= 0:
            raise ValueError(f"A log range must be positive; got low = {self.low!r}.")

    def forward(self, x: float) -> float:
        return math.log(x) if self.log else x

    def inverse(self, t: float) -> float:
        return math.exp(t) if self.log else t

    def parameter(self, theta: float) -> int:
        return round(super().parameter(theta))

    def smallest_step(self) -> float:
        """The scaled distance between the two neighbouring whole numbers that lie farthest apart."""
        first = self.forward(self.low + 1) - self.forward(self.low)
        return first / self.step


class Categorical:
    """Refused: a choice among names has no gradient.

    Raises:
        ValueError: always; it says what to do instead.
    """

    def __init__(self, *choices: Any) -> None:
        raise ValueError(
            "A categorical parameter has no gradient. Run one search for each choice with a share of the budget "
            "(mu / sqrt(k) each for k choices) and pay for the choice among them with select_candidate."
        )


def _range(value: Any) -> tuple[float, float] | None:
    """The ends of a range as other libraries take them, if it is one."""
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
        return value[0], value[1]
    return None


@dataclass(frozen=True)
class Space:
    """Named parameters, all public; theta is in the order of the names.

    Args:
        dimensions: name -> `Linear`, `Log`, `Logit` or `Integer`.

    Raises:
        ValueError: no parameters, or one that is none of these. Conditional spaces have no gradient either.
    """

    dimensions: Mapping[str, Dimension]

    def __post_init__(self) -> None:
        if not isinstance(self.dimensions, Mapping) or not self.dimensions:
            raise ValueError('Give a dictionary of parameters, such as {"rate": Log(1e-4, 1.0)}.')
        for name, each in self.dimensions.items():
            if (ends := _range(each)) is not None:
                raise ValueError(f"Parameter {name!r} is a pair of numbers: write Linear({ends[0]!r}, {ends[1]!r}).")
            if not isinstance(name, str) or not isinstance(each, Dimension):
                raise ValueError(
                    f"Parameter {name!r} must be Linear, Log, Logit or Integer. Categorical and conditional parameters "
                    "have no gradient: search each choice with a share of the budget, and pay for the choice among "
                    "them with select_candidate."
                )
        object.__setattr__(self, "dimensions", dict(self.dimensions))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters, in the order of the coordinates."""
        return tuple(self.dimensions)

    @property
    def size(self) -> int:
        """d, the number of parameters."""
        return len(self.dimensions)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper corner of the scaled box."""
        half = np.array([each.half for each in self.dimensions.values()])
        return -half, half

    def clip(self, theta: Floats) -> Floats:
        """The nearest point of the box."""
        return np.clip(theta, *self.bounds)

    def parameters(self, theta: Floats) -> dict[str, Any]:
        """Named parameters at theta, whole numbers rounded."""
        return {name: each.parameter(float(t)) for (name, each), t in zip(self.dimensions.items(), theta, strict=True)}

    def theta(self, parameters: Mapping[str, Any]) -> Floats:
        """theta of named parameters.

        Raises:
            ValueError: names that are missing or unknown, or a value outside its range.
        """
        if set(parameters) != set(self.dimensions):
            raise ValueError(f"Give a value for each of {', '.join(self.names)}, and nothing else.")
        return np.array([each.scaled(parameters[name]) for name, each in self.dimensions.items()])

    def evaluated(self, locations: Floats, theta: Floats) -> Floats:
        """Where losses are evaluated to learn of theta (d,): the scaled locations (b, d), at whole numbers where
        parameters are.

        Locations as close as is good for real parameters may all be rounded to one whole number, which would hide its
        gradient: then one of them, another for each such parameter, is moved to the next.
        """
        places, moved = np.array(locations), set()
        for j, each in enumerate(self.dimensions.values()):
            if not isinstance(each, Integer):
                continue
            offsets = places[:, j] - theta[j]
            whole = np.array([each.parameter(float(t)) for t in places[:, j]])
            if len(whole) > 1 and np.ptp(whole) == 0:
                by_distance = np.argsort(-np.abs(offsets), kind="stable").tolist()
                row = next((row for row in by_distance if row not in moved), by_distance[0])
                up = (theta[j] - each.scaled(whole[0]) or offsets[row]) >= 0
                whole[row] += 1 if whole[0] == each.low or (up and whole[0] < each.high) else -1
                moved.add(row)
            places[:, j] = [each.scaled(k) for k in whole]
        return places

    @property
    def steps(self) -> Floats:
        """The scaled distance of neighbouring whole numbers, (d,); 0 for a real parameter."""
        found = [each.smallest_step() if isinstance(each, Integer) else 0.0 for each in self.dimensions.values()]
        return np.array(found)

    def length_scale(self, usual: float) -> float | tuple[float, ...]:
        """The usual length scale, and along whole numbers at least five of them."""
        found = np.maximum(usual, _WHOLE * self.steps)
        return usual if (found == usual).all() else tuple(found.tolist())

    def warn_of_coarse_integers(self, scales: Floats) -> None:
        """Warn of whole numbers that lie farther apart than the length scale along them, (d,)."""
        coarse = [name for name, far in zip(self.dimensions, self.steps > scales, strict=True) if far]
        if coarse:
            fit = ", ".join(f"{scale:.3g}" for scale in np.maximum(scales, _WHOLE * self.steps))
            warnings.warn(
                f"Whole numbers of {', '.join(coarse)} lie farther apart than the length scale of the kernel, so that "
                "the loss at one tells next to nothing of the next. Leave out kernel, or give it "
                f"length_scale=({fit}{',' * (len(scales) == 1)}).",
                CoarseInteger,
                stacklevel=4,  # who called ask, beyond ask and what it is wrapped in
            )

    def describe(self) -> dict[str, Any]:
        """The space as JSON data."""
        return {
            name: {"type": type(each).__name__.lower(), "low": each.low, "high": each.high, "unit": each.step}
            | ({"log": each.log} if isinstance(each, Integer) else {})
            for name, each in self.dimensions.items()
        }

    @classmethod
    def described(cls, description: Mapping[str, Mapping[str, Any]]) -> Self:
        """The space that `describe` wrote, as in a certificate's parameters."""
        kinds: dict[str, type[Dimension]] = {kind.__name__.lower(): kind for kind in (Linear, Log, Logit, Integer)}
        return cls(
            {
                name: kinds[each["type"]](**{key: value for key, value in each.items() if key != "type"})
                for name, each in description.items()
            }
        )
