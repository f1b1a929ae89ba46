"""What every privacy loss is: a bound with a neighbour relation and a rule, and how it is described."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from discretion.privacy.composition import renyi_envelope
from discretion.privacy.conversion import renyi_to_delta, renyi_to_epsilon, round_up

Array = NDArray[np.float64]

UNIT = 2.0**-52
LEAST_POSITIVE = math.ulp(0.0)
CONVERSION = "Renyi to DP (Balle et al. 2020)"


class Neighbours(StrEnum):
    """Which data sets count as neighbours."""

    REPLACE = "replace"
    """The same number n of records, which is public; one whole record differs."""
    REPLACE_RESPONSE = "replace-response"
    """The same n records at the same public covariates; one response differs. It protects less than `REPLACE`."""
    ADD_REMOVE = "add-remove"
    """One record more or fewer; n is private."""


class NeighbourMismatch(ValueError):
    """Losses under different neighbour relations were put together."""


class UnknownLoss(ValueError):
    """A description of a loss of a kind that this version does not know: a newer one may."""


@dataclass(frozen=True)
class Guarantee:
    """One (epsilon, delta) statement, with the rule that gave it.

    Attributes:
        epsilon: at least 0, possibly infinite.
        delta: in `[0, 1)`.
        order: the Renyi order alpha that gave epsilon; None where no order was used.
        rule: the rule in words.
        neighbours: the neighbour relation the statement is about.
    """

    epsilon: float
    delta: float
    order: float | None
    rule: str
    neighbours: Neighbours

    def __str__(self) -> str:
        statement = f"epsilon <= {round_up(self.epsilon, 4)} at delta = {self.delta!r}"
        return f"{statement} ({self.neighbours} neighbours; {self.rule})"


class PrivacyLoss(ABC):
    """An upper bound on what a release reveals, for every pair of neighbours and in both directions.

    Attributes:
        neighbours: the neighbour relation.
        rule: where the bound comes from, in words.
        supremum: least upper bound of the *excess* orders `alpha - 1` at which the loss is finite, possibly
            inf.
    """

    neighbours: Neighbours
    rule: Any
    supremum: float = math.inf

    _exact_profile: ClassVar[bool] = False
    """Whether `_profile` says more than the Renyi curve implies."""
    _numerical: ClassVar[bool] = False
    """Whether compositions with this loss are composed numerically without being asked to."""

    # --- Renyi divergences

    @property
    def order_range(self) -> tuple[float, float]:
        """Open interval of the orders alpha at which the loss is finite; its end is inf where unbounded."""
        return 1.0, 1.0 + self.supremum

    @abstractmethod
    def _renyi(self, excess: Array) -> Array:
        """Bound at a 1-D array of excess orders, each at least 0 and below `supremum` (or infinite)."""

    @overload
    def renyi(self, order: float) -> float: ...
    @overload
    def renyi(self, order: Array) -> Array: ...
    def renyi(self, order: Any) -> Any:
        """Upper bound of the Renyi divergence of the given order(s), in nats, both ways of every pair.

        Order 1 means the Kullback-Leibler divergence. Orders at or above the end of `order_range` give inf.

        Raises:
            ValueError: an order below 1, or NaN.
        """
        orders = np.asarray(order, dtype=np.float64)
        if not np.all(orders >= 1):
            raise ValueError(
                "Renyi orders must be at least 1 (1 is the Kullback-Leibler divergence): this loss is given "
                f"on the orders {self.order_range}."
            )
        return self.renyi_excess(orders - 1)

    @overload
    def renyi_excess(self, excess: float) -> float: ...
    @overload
    def renyi_excess(self, excess: Array) -> Array: ...
    def renyi_excess(self, excess: Any) -> Any:
        """As `renyi`, with the excess order `alpha - 1` as the variable: full precision near order 1.

        Raises:
            ValueError: an excess below 0, or NaN.
        """
        x = np.asarray(excess, dtype=np.float64)
        if not np.all(x >= 0):
            raise ValueError(
                "Excess orders (alpha - 1) must be at least 0: this loss is given on the excess orders "
                f"(0, {self.supremum!r})."
            )
        inside = (x < self.supremum) | (self.supremum == math.inf)
        values = np.full(x.shape, np.inf)
        if np.any(inside):
            with np.errstate(all="ignore"):
                found = self._renyi(x[inside])
            values[inside] = np.where(np.isnan(found), np.inf, np.maximum(found, 0.0))
        return float(values) if values.ndim == 0 else values

    # --- (epsilon, delta)

    def guarantee(self, delta: float) -> Guarantee:
        """The best proved (epsilon, delta) statement at this delta.

        Raises:
            ValueError: delta outside `[0, 1)`.
        """
        return self._renyi_guarantee(delta)

    def epsilon(self, delta: float) -> float:
        """Epsilon of `guarantee(delta)`: at least 0, possibly inf, rounded up."""
        return self.guarantee(delta).epsilon

    def delta(self, epsilon: float) -> float:
        """Best proved delta at a finite `epsilon >= 0`: in `[0, 1]`, rounded up.

        Raises:
            ValueError: epsilon negative, infinite or NaN.
        """
        return float(renyi_to_delta(self.renyi_excess, self.supremum, epsilon)[0])

    def _renyi_guarantee(self, delta: float) -> Guarantee:
        epsilon, excess = renyi_to_epsilon(self.renyi_excess, self.supremum, delta)
        x = float(excess)
        order = 1.0 + x if math.isfinite(epsilon) else None
        rule = f"{self._renyi_rule(x)}, {CONVERSION}"
        return Guarantee(float(epsilon), float(delta), order, rule, self.neighbours)

    def _renyi_rule(self, excess: float) -> str:
        """The rule behind the Renyi bound at one excess order."""
        return str(self.rule)

    def _profile(self, epsilon: Array) -> Array:
        """Upper bounds of delta at a 1-D array of epsilons, each at least 0."""
        return renyi_envelope(self.renyi_excess, self.supremum)(epsilon)[0]

    def _profiles(self, epsilon: Array) -> tuple[Array, Array]:
        """The same for neighbours in one order and in the other (present, absent), where they differ."""
        bounds = self._profile(epsilon)
        return bounds, bounds

    # --- Arithmetic

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        return _sum([(self, 1), (other, 1)]) if isinstance(other, PrivacyLoss) else NotImplemented

    def __radd__(self, other: Any) -> PrivacyLoss:
        # sum() of losses starts from the integer 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def __mul__(self, count: int) -> PrivacyLoss:
        return _sum([(self, count)])

    __rmul__ = __mul__

    # --- Notebooks

    def _repr_html_(self) -> str:
        from discretion.privacy import html

        return html.in_notebook(html.loss_card(self))

    # --- Storage

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """JSON-able description: exact for parametric losses, a certified table for Renyi curves.

        Args:
            delta: if given, tables hold the order that is optimal for this whole loss at this delta, so that its
                epsilon there loses nothing.
        """
        order = None if delta is None else self.guarantee(delta).order
        return self._described(() if order is None else (order - 1.0,))

    @abstractmethod
    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        """The description, tabulated at these excess orders too."""

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> PrivacyLoss:
        """The loss that `to_dict` described; for a Renyi curve, a bound of its divergences at every order.

        Raises:
            UnknownLoss: of a kind that this version does not know.
            ValueError: not such a description.
        """
        try:
            kind = description["type"]
            if isinstance(kind, str) and kind not in READERS:
                raise UnknownLoss(
                    f"Losses of the kind {kind[:40]!r} are not known to this version, which knows "
                    f"{', '.join(READERS)}. If a newer version of discretion wrote it, upgrade."
                )
            return READERS[kind](description)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(
                "This is not a description of a privacy loss as `to_dict` writes it "
                f"({type(error).__name__}: {error}); the known types are {', '.join(READERS)}."
            ) from error


def _sum(parts: list[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    from discretion.privacy.loss.composition import compose  # which knows the kinds of losses, and they this module

    return compose(parts)


READERS: dict[str, Callable[[Mapping[str, Any]], PrivacyLoss]] = {}
"""What reads a description, by its type. The module of a loss enters its own."""


def set_neighbours(loss: Any) -> None:
    try:
        neighbours = Neighbours(loss.neighbours)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Neighbours)
        raise ValueError(f"neighbours must be {known}, not {loss.neighbours!r}.") from None
    object.__setattr__(loss, "neighbours", neighbours)


def set_parameter(loss: Any, name: str) -> None:
    value = float(getattr(loss, name))
    if not value >= 0:
        raise ValueError(f"{type(loss).__name__} needs {name} to be a number of at least 0, not {value!r}.")
    object.__setattr__(loss, name, value)


def shown(loss: PrivacyLoss, parameter: float) -> str:
    return f"{type(loss).__name__}({parameter!r}, neighbours='{loss.neighbours}')"


def checked_delta(delta: float) -> float:
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), not {delta!r}: at delta = 1 nothing is promised.")
    return float(delta)


def checked_epsilon(epsilon: float) -> float:
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and at least 0, not {epsilon!r}.")
    return float(epsilon)


def json_number(x: float) -> float | str:
    """JSON has no infinity: it is written as a string, which `float` reads."""
    return x if math.isfinite(x) else "inf"


def labels(loss: PrivacyLoss) -> dict[str, str]:
    return {"neighbours": str(loss.neighbours), "rule": str(loss.rule)}


def read_labels(description: Mapping[str, Any]) -> dict[str, Any]:
    return {"neighbours": description["neighbours"], "rule": str(description["rule"])}
