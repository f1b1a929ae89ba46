"""Privacy losses: what a release costs, as values that add, convert and say which rule gave the number.

A loss knows nothing of records. It carries its neighbour relation, and losses of different relations do not
add. It fails closed: NaN, overflow or an order out of range is infinite or an error, never 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import zeta

from .composition import Profile, numerical_delta, numerical_epsilon, renyi_envelope
from .conversion import (
    GREATEST_EXCESS,
    LEAST_EXCESS,
    NEGATIVE_TOLERANCE,
    gauss_legendre,
    gaussian_delta,
    gaussian_epsilon,
    renyi_to_delta,
    renyi_to_epsilon,
    round_up,
)
from .sums import root_sum_of_squares, sum_up

__all__ = [
    "BoundedRange",
    "Composition",
    "GaussianDP",
    "Guarantee",
    "NeighbourMismatch",
    "Neighbours",
    "PrivacyLoss",
    "PureDP",
    "RenyiCurve",
]

Array = NDArray[np.float64]

_UNIT = 2.0**-52
_LEAST_POSITIVE = math.ulp(0.0)
_CONVERSION = "Renyi to DP (Balle et al. 2020)"


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
        rule = f"{self._renyi_rule(x)}, {_CONVERSION}"
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
        return _compose([(self, 1), (other, 1)]) if isinstance(other, PrivacyLoss) else NotImplemented

    def __radd__(self, other: Any) -> PrivacyLoss:
        # sum() of losses starts from the integer 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def __mul__(self, count: int) -> PrivacyLoss:
        return _compose([(self, count)])

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
            ValueError: not such a description.
        """
        try:
            return _READERS[description["type"]](description)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(
                "This is not a description of a privacy loss as `to_dict` writes it "
                f"({type(error).__name__}: {error}); the known types are {', '.join(_READERS)}."
            ) from error


# --- A curve of one's own ---------------------------------------------------------------------------


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
        _set_neighbours(self)
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
        tolerance = NEGATIVE_TOLERANCE * (1 + values[1:]) + 16 * _UNIT / x[:-1]
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
        if isinstance(self.function, _Table):
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

    def _tabulated(self, further: tuple[float, ...]) -> tuple[_Table, str]:
        best = [self._renyi_guarantee(10.0**-k) for k in range(2, 13)]
        best = [guarantee for guarantee in best if guarantee.order is not None]
        excess = np.unique(np.concatenate([self._grid(), [(g.order or 1.0) - 1 for g in best], further]))
        excess = excess[(excess > 0) & (excess < self.supremum)]
        # A bound at one order is a bound at every smaller one, so lifting dips of rounding keeps it a bound.
        values = np.maximum.accumulate(self.renyi_excess(excess)) * (1 + 1e-12)
        kept = np.isfinite(values)
        limit = self.renyi_excess(math.inf) * (1 + 1e-12)
        table = _Table(
            tuple(excess[kept].tolist()),
            tuple(values[kept].tolist()),
            limit if math.isfinite(limit) else None,
        )
        rules = dict.fromkeys(guarantee.rule.removesuffix(f", {_CONVERSION}") for guarantee in best)
        return table, " / ".join(rules) or "infinite"

    def _grid(self) -> Array:
        if math.isinf(self.supremum):
            return np.geomspace(LEAST_EXCESS, GREATEST_EXCESS, 416)
        low = math.log(LEAST_EXCESS) - max(math.log(self.supremum), 0.0)
        high = -math.log(LEAST_EXCESS)
        return self.supremum / (1 + np.exp(-np.linspace(low, high, math.ceil((high - low) / 0.1))))


@dataclass(frozen=True)
class _Table:
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
        chord = np.interp(x, nodes, nodes * values) / x * (1 + 4 * _UNIT)
        inside = np.where(x <= nodes[0], values[0], chord)
        return np.minimum(np.where(x > nodes[-1], np.inf, inside), last)


# --- Parametric losses ------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class GaussianDP(PrivacyLoss):
    """mu-Gaussian DP: no easier to tell apart than N(0, 1) and N(mu, 1) (Dong, Roth and Su 2022).

    Renyi divergence of order alpha: `alpha mu^2 / 2`. The conversion to (epsilon, delta) is exact, and sums
    of Gaussian parts are Gaussian: mu adds in squares, also under adaptive composition with every mu fixed
    beforehand. Proof: `docs/proofs/gaussian-dp.md`.
    """

    _exact_profile = True

    mu: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="Gaussian DP, exact (Dong, Roth and Su 2022)", kw_only=True)

    def __post_init__(self) -> None:
        _set_neighbours(self)
        _set_parameter(self, "mu")

    def __repr__(self) -> str:
        return _show(self, self.mu)

    def _renyi(self, excess: Array) -> Array:
        if self.mu == 0:
            return np.zeros(excess.shape)
        return (1 + excess) * max(self.mu * (self.mu / 2), _LEAST_POSITIVE)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon at `delta`, rounded up."""
        return Guarantee(gaussian_epsilon(self.mu, delta), float(delta), None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta at `epsilon`, rounded up."""
        return gaussian_delta(self.mu, epsilon)

    def _profile(self, epsilon: Array) -> Array:
        return gaussian_delta(self.mu, epsilon)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": "gaussian-dp", "mu": _number(self.mu), **_labels(self)}


@dataclass(frozen=True, repr=False)
class PureDP(PrivacyLoss):
    """Pure DP: every event is at most `e^epsilon_value` times as likely under a neighbour.

    Randomised response is the worst such mechanism (Kairouz, Oh and Viswanath 2015; Bun and Steinke 2016,
    Proposition 3.3; Mironov 2017): with e = epsilon_value

        (alpha - 1) D_alpha = log( (sinh(alpha e) - sinh((alpha - 1) e)) / sinh(e) )
                            = log( cosh((alpha - 1/2) e) / cosh(e / 2) )
        delta(epsilon) = (e^e - e^epsilon) / (1 + e^e),      0 <= epsilon <= e

    Proof: `docs/proofs/pure-dp.md`.
    """

    _exact_profile = True
    _numerical = True

    epsilon_value: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="pure DP", kw_only=True)

    def __post_init__(self) -> None:
        _set_neighbours(self)
        _set_parameter(self, "epsilon_value")

    def __repr__(self) -> str:
        return _show(self, self.epsilon_value)

    def _renyi(self, excess: Array) -> Array:
        e, x = self.epsilon_value, excess
        if e in (0.0, math.inf):
            return np.full(x.shape, e)
        z = x * e
        # With z = x e the ratio is cosh z + tanh(e/2) sinh z: nothing cancels for small z. For large z its
        # logarithm is taken relative to e^z.
        small = np.minimum(z, 1.0)
        near = np.log1p(2 * np.sinh(small / 2) ** 2 + math.tanh(e / 2) * np.sinh(small)) / x
        far = e + np.log1p(np.expm1(-2 * z) * (math.exp(-e) / (1 + math.exp(-e)))) / x
        values = np.where(x == 0, e * math.tanh(e / 2), np.where(z < 1, near, far)) * (1 + 4 * _UNIT)
        return np.clip(np.where(np.isinf(x), e, values), _LEAST_POSITIVE, e)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon of the worst mechanism at `delta`, rounded up; `epsilon_value` at delta = 0."""
        e, delta = self.epsilon_value, _probability(delta)
        mass = delta * (1 + math.exp(-e))
        # e^(epsilon - e) = 1 - delta (1 + e^-e), in the form that does not cancel.
        ratio = (1 - delta) - delta * math.exp(-e)
        log_ratio = math.log1p(-mass) if mass < 0.5 else math.log(max(ratio, _LEAST_POSITIVE))
        epsilon = e + log_ratio + 8 * _UNIT * e
        return Guarantee(min(max(epsilon, 0.0), e), delta, None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta of the worst mechanism at `epsilon`, rounded up."""
        e, epsilon = self.epsilon_value, _finite(epsilon)
        if epsilon >= e:
            return 0.0
        return min(-math.expm1(epsilon - e) / (1 + math.exp(-e)) * (1 + 4 * _UNIT), 1.0)

    def _profile(self, epsilon: Array) -> Array:
        e = self.epsilon_value
        return -np.expm1(np.minimum(epsilon - e, 0.0)) / (1 + math.exp(-e)) * (1 + 4 * _UNIT)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": "pure-dp", "epsilon": _number(self.epsilon_value), **_labels(self)}


@dataclass(frozen=True, repr=False)
class BoundedRange(PrivacyLoss):
    """Bounded range: the log likelihood ratio of two neighbours varies by at most `epsilon_value`.

    The exponential mechanism has it, and it implies pure DP with the same epsilon (Dong, Durfee and Rogers
    2020). Put eta = epsilon_value. The worst loss takes two values, t and t - eta; with x = alpha - 1 and
    `S(z) = log( sinh(z/2) / (z/2) )` the worst t gives

        x D_alpha = (1 + x) S((1 + x) eta) - x S(x eta) - S(eta)
        delta(epsilon) = (1 - e^((epsilon - eta)/2))^2 / (1 - e^(-eta)),      0 <= epsilon <= eta

    and D_alpha is at most `alpha eta^2 / 8` and at most eta. The profile, a supremum over t, is that of one pair that
    is at least as easy to tell apart as any of these, so that it composes also where t is chosen adaptively. Proof:
    `docs/proofs/bounded-range.md`.
    """

    _exact_profile = True
    _numerical = True

    epsilon_value: float
    neighbours: Neighbours = field(kw_only=True)
    rule: str = field(default="bounded range", kw_only=True)

    def __post_init__(self) -> None:
        _set_neighbours(self)
        _set_parameter(self, "epsilon_value")

    def __repr__(self) -> str:
        return _show(self, self.epsilon_value)

    def _renyi(self, excess: Array) -> Array:
        eta, x = self.epsilon_value, np.minimum(excess, 1e300)
        if eta in (0.0, math.inf):
            return np.full(x.shape, eta)
        # With H(y) = y S(y eta): x D = H(1+x) - H(x) - H(1). For x < 1 and for x eta < 1 the differences are
        # integrals of H' over unit intervals, which do not cancel; beyond, the growing terms are taken out by
        # hand.
        s = _NODES.reshape(-1, 1)
        few, some, many = np.minimum(x, 1.0), np.clip(x, 1.0, max(1.0, 1.0 / eta)), np.maximum(x, 1.0)
        near = _WEIGHTS @ _slope(eta * (1 + few * s)) - _log_sinhc(eta * few)
        middle = _WEIGHTS @ (_slope(eta * (some + s)) - _slope(eta * s)) / some
        odds = np.log1p(-math.expm1(-eta) / np.expm1(np.maximum(many * eta, 1.0)))
        rest = np.log1p(-np.exp(-(1 + many) * eta)) - np.log((1 + many) * -math.expm1(-eta))
        far = eta + odds - np.log1p(1 / many) + rest / many
        values = np.where(x < 1, near, np.where(x * eta < 1, middle, far)) * (1 + 64 * _UNIT)
        values = np.minimum(values, (1 + x) * (eta * (eta / 8)) * (1 + 4 * _UNIT))
        return np.clip(np.where(np.isinf(excess), eta, values), _LEAST_POSITIVE, eta)

    def guarantee(self, delta: float) -> Guarantee:
        """Exact epsilon of the worst mechanism at `delta`, rounded up; `epsilon_value` at delta = 0."""
        eta, delta = self.epsilon_value, _probability(delta)
        root = math.sqrt(delta * -math.expm1(-eta))
        # e^((epsilon - eta)/2) = 1 - root, where 1 - root^2 = rest, in the form that does not cancel.
        rest = (1 - delta) + delta * math.exp(-eta)
        log_ratio = math.log1p(-root) if root < 0.5 else math.log(rest / (1 + root))
        epsilon = eta + 2 * log_ratio + 8 * _UNIT * eta
        return Guarantee(min(max(epsilon, 0.0), eta), delta, None, self.rule, self.neighbours)

    def delta(self, epsilon: float) -> float:
        """Exact delta of the worst mechanism at `epsilon`, rounded up."""
        eta, epsilon = self.epsilon_value, _finite(epsilon)
        if epsilon >= eta:
            return 0.0
        value = math.expm1((epsilon - eta) / 2) ** 2 / -math.expm1(-eta) * (1 + 8 * _UNIT)
        return min(max(value, _LEAST_POSITIVE), 1.0)

    def _profile(self, epsilon: Array) -> Array:
        eta = self.epsilon_value
        return np.expm1(np.minimum(epsilon - eta, 0.0) / 2) ** 2 / -math.expm1(-eta) * (1 + 8 * _UNIT)

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        return {"type": "bounded-range", "epsilon": _number(self.epsilon_value), **_labels(self)}


_NODES, _WEIGHTS = gauss_legendre(20)
# S(z) = sum over n >= 1 of (-1)^(n+1) zeta(2n)/n (z/(2 pi))^(2n), from the product formula of sinh.
_POWERS = 2 * np.arange(1, 13)
_SERIES = -((-1.0) ** (_POWERS // 2)) * 2 * zeta(_POWERS) / (_POWERS * (2 * math.pi) ** _POWERS)


def _log_sinhc(z: Array) -> Array:
    """S(z) = log(sinh(z/2) / (z/2))."""
    small = np.minimum(z, 1.0)[..., None] ** _POWERS @ _SERIES
    large = np.maximum(z, 1.0)
    return np.where(z < 1.0, small, large / 2 + np.log1p(-np.exp(-large)) - np.log(large))


def _slope(z: Array) -> Array:
    """S(z) + z S'(z), the derivative of H(y) = y S(y eta) where y eta = z."""
    small = np.minimum(z, 1.0)[..., None] ** _POWERS @ (_SERIES * (_POWERS + 1))
    large = np.maximum(z, 1.0)
    big = large + large / np.expm1(large) - 1 + np.log1p(-np.exp(-large)) - np.log(large)
    return np.where(z < 1.0, small, big)


# --- Composition ------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Composition(PrivacyLoss):
    """Several losses spent on the same records, in any order and adaptively.

    The guarantee is the least over the valid routes: the Renyi conversion of the sum of the curves; the exact
    curve where all parts are Gaussian; pure DP at the sum of the epsilons where all parts are pure or of
    bounded range; the sum of the epsilons of those parts added to the guarantee of the others; and, on request or
    where a part is pure, of bounded range or known by its profile (`profiles.py`), numerical composition. Its rule says
    which one won. Two compositions are equal where they have the same parts, in whatever order.

    Args:
        parts: pairs of a loss and how often it was spent. Nested compositions are opened, equal parts counted
            together, Gaussian parts added into one (mu in squares), and parts that cost nothing dropped.

    Raises:
        NeighbourMismatch: parts with different neighbour relations.
        ValueError: no parts, or a count that is not an integer of at least 0.
    """

    parts: tuple[tuple[PrivacyLoss, int], ...]
    supremum: float = field(init=False)
    neighbours: Neighbours = field(init=False)
    rule: str = field(init=False)

    def __post_init__(self) -> None:
        parts = _merged(self.parts)
        rules = _counted((loss.rule if isinstance(loss.rule, str) else loss._renyi_rule(1.0), n) for loss, n in parts)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "supremum", min(loss.supremum for loss, _ in parts))
        object.__setattr__(self, "neighbours", parts[0][0].neighbours)
        object.__setattr__(self, "rule", "; ".join(rules))

    def __repr__(self) -> str:
        return "Composition(" + " + ".join(_times(count, repr(loss)) for loss, count in self.parts) + ")"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composition) and dict(self.parts) == dict(other.parts)

    def __hash__(self) -> int:
        return hash(frozenset(self.parts))

    def _renyi(self, excess: Array) -> Array:
        total = np.zeros(excess.shape)
        for loss, count in self.parts:
            total += count * loss.renyi_excess(excess)
        return total

    def _renyi_rule(self, excess: float) -> str:
        names = _counted((loss._renyi_rule(excess), count) for loss, count in self.parts)
        return names[0] if len(names) == 1 else f"sum of Renyi curves ({'; '.join(names)})"

    def guarantee(self, delta: float, *, numerical: bool | None = None) -> Guarantee:
        """The least epsilon over the valid routes at `delta`.

        Args:
            delta: in `[0, 1)`.
            numerical: whether privacy-loss distributions are composed too, which takes some hundredths of a second,
                and a thousandth more for each part; by default only where a part is pure, of bounded range or known by
                its privacy profile, and there are at most 256 different ones. The parts that are Renyi curves enter as
                one, with the profile that the sum of the curves implies. Proof: `docs/proofs/connect-the-dots.md`.
        """
        if (only := self._only) is not None:
            return only.guarantee(delta)
        routes = [self._renyi_guarantee(delta)]
        pure, rest = self._split()
        if rest is None:
            routes.append(self._basic(pure).guarantee(delta))
        elif pure > 0:
            other = rest.guarantee(delta)
            epsilon = math.nextafter(pure + other.epsilon, math.inf)
            rule = f"pure parts added by basic composition to: {other.rule}"
            routes.append(Guarantee(epsilon, other.delta, other.order, rule, self.neighbours))
        if delta > 0 and self._composes(numerical):
            epsilon = numerical_epsilon(self._profiled(), delta)
            rule = f"privacy-loss distributions composed numerically ({self.rule})"
            routes.append(Guarantee(epsilon, float(delta), None, rule, self.neighbours))
        return min(routes, key=lambda route: route.epsilon)

    def delta(self, epsilon: float, *, numerical: bool | None = None) -> float:
        """The least delta over the valid routes at `epsilon`; `numerical` as for `guarantee`."""
        if (only := self._only) is not None:
            return only.delta(epsilon)
        routes = [super().delta(epsilon)]
        pure, rest = self._split()
        if rest is None:
            routes.append(self._basic(pure).delta(epsilon))
        elif 0 < pure <= epsilon:
            routes.append(rest.delta(max(math.nextafter(epsilon - pure, 0.0), 0.0)))
        if self._composes(numerical):
            routes.append(numerical_delta(self._profiled(), epsilon))
        return min(routes)

    def _composes(self, numerical: bool | None) -> bool:
        """Whether distributions are composed: some part is known by more than its Renyi curve, and it is wanted."""
        known = [loss for loss, _ in self.parts if loss._exact_profile]
        if numerical is None:
            numerical = len(self.parts) <= _MOST_PARTS and any(loss._numerical for loss in known)
        return bool(known) and numerical

    def _profiled(self) -> list[tuple[Profile, int]]:
        known = [(loss._profiles, count) for loss, count in self.parts if loss._exact_profile]
        curves = [(loss, count) for loss, count in self.parts if not loss._exact_profile]
        return [*known, (_compose(curves)._profiles, 1)] if curves else known

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        parts = [{"count": count, "loss": loss._described(excess)} for loss, count in self.parts]
        return {"type": "composition", "parts": parts}

    @property
    def _only(self) -> PrivacyLoss | None:
        """The part itself where it is the only one and spent once."""
        return self.parts[0][0] if len(self.parts) == 1 and self.parts[0][1] == 1 else None

    def _split(self) -> tuple[float, PrivacyLoss | None]:
        """Sum of the epsilons of the pure and bounded-range parts, rounded up; the loss of the others."""
        pure = [(count, loss.epsilon_value) for loss, count in self.parts if isinstance(loss, _PURE)]
        rest = [(loss, count) for loss, count in self.parts if not isinstance(loss, _PURE)]
        return sum_up(pure), _compose(rest) if rest else None

    def _basic(self, pure: float) -> PureDP:
        return PureDP(pure, neighbours=self.neighbours, rule="pure DP, basic composition")


_PURE = (PureDP, BoundedRange)
# Different losses that are composed numerically unasked: each is a distribution of its own, in time and memory.
_MOST_PARTS = 256


def _compose(parts: Iterable[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    """The simplest loss that is the sum of the parts."""
    composition = Composition(tuple(parts))
    return composition._only or composition


def _merged(parts: Iterable[tuple[PrivacyLoss, int]]) -> tuple[tuple[PrivacyLoss, int], ...]:
    """Nested compositions opened, equal parts counted, Gaussian parts added, free parts dropped."""
    others: dict[PrivacyLoss, int] = {}
    gaussian: list[tuple[GaussianDP, int]] = []
    relations: set[Neighbours] = set()
    for loss, count in parts:
        if not isinstance(loss, PrivacyLoss):
            raise ValueError(f"The parts of a composition are privacy losses, not {type(loss).__name__}.")
        relations.add(loss.neighbours)
        count = _count(count)
        for part, times in loss.parts if isinstance(loss, Composition) else ((loss, 1),):
            if isinstance(part, GaussianDP):
                gaussian.append((part, times * count))
            elif times * count > 0 and not (isinstance(part, _PURE) and part.epsilon_value == 0):
                others[part] = _count(others.get(part, 0) + times * count)
    if not relations:
        raise ValueError("A composition needs at least one part; the loss of doing nothing is GaussianDP(0).")
    if len(relations) > 1:
        raise NeighbourMismatch(
            f"These losses are about different neighbour relations ({', '.join(sorted(relations))}) and do "
            "not add. Account for all of them under one relation."
        )
    gaussian = [(loss, count) for loss, count in gaussian if loss.mu > 0 and count > 0]
    if gaussian or not others:
        return ((_gaussian_sum(gaussian, *relations), 1), *others.items())
    return tuple(others.items())


def _gaussian_sum(parts: list[tuple[GaussianDP, int]], neighbours: Neighbours) -> GaussianDP:
    if not parts:
        return GaussianDP(0.0, neighbours=neighbours)
    rules = sorted({rule for loss, _ in parts for rule in loss.rule.split(" + ")})
    mu = root_sum_of_squares((count, loss.mu) for loss, count in parts)
    return GaussianDP(mu, neighbours=neighbours, rule=" + ".join(rules))


def _count(count: Any) -> int:
    if isinstance(count, bool | np.bool_) or not isinstance(count, Integral):
        raise ValueError(f"A loss is multiplied by how often it is spent, an integer, not by {count!r}.")
    if count < 0:
        raise ValueError(f"A loss cannot be spent {int(count)} times: nothing gives privacy back.")
    if int(count) >= 2**63:
        raise ValueError("A loss is spent less than 2^63 times.")
    return int(count)


def _counted(names: Iterable[tuple[str, int]]) -> list[str]:
    """Each name once, with how often it occurs."""
    counts: dict[str, int] = {}
    for name, count in names:
        counts[name] = counts.get(name, 0) + count
    return [_times(count, name) for name, count in counts.items()]


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} x {name}"


# --- Checks and storage -----------------------------------------------------------------------------


def _set_neighbours(loss: Any) -> None:
    try:
        neighbours = Neighbours(loss.neighbours)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Neighbours)
        raise ValueError(f"neighbours must be {known}, not {loss.neighbours!r}.") from None
    object.__setattr__(loss, "neighbours", neighbours)


def _set_parameter(loss: Any, name: str) -> None:
    value = float(getattr(loss, name))
    if not value >= 0:
        raise ValueError(f"{type(loss).__name__} needs {name} to be a number of at least 0, not {value!r}.")
    object.__setattr__(loss, name, value)


def _show(loss: PrivacyLoss, parameter: float) -> str:
    return f"{type(loss).__name__}({parameter!r}, neighbours='{loss.neighbours}')"


def _probability(delta: float) -> float:
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), not {delta!r}: at delta = 1 nothing is promised.")
    return float(delta)


def _finite(epsilon: float) -> float:
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and at least 0, not {epsilon!r}.")
    return float(epsilon)


def _number(x: float) -> float | str:
    """JSON has no infinity: it is written as a string, which `float` reads."""
    return x if math.isfinite(x) else "inf"


def _labels(loss: PrivacyLoss) -> dict[str, str]:
    return {"neighbours": str(loss.neighbours), "rule": str(loss.rule)}


def _read_labels(description: Mapping[str, Any]) -> dict[str, Any]:
    return {"neighbours": description["neighbours"], "rule": str(description["rule"])}


def _read_table(description: Mapping[str, Any]) -> RenyiCurve:
    limit = description["limit"]
    table = _Table(
        tuple(float(x) for x in description["excess"]),
        tuple(float(value) for value in description["renyi"]),
        None if limit is None else float(limit),
    )
    return RenyiCurve(table, table.supremum, **_read_labels(description))


def _read_composition(description: Mapping[str, Any]) -> Composition:
    parts = description["parts"]
    return Composition(tuple((PrivacyLoss.from_dict(part["loss"]), part["count"]) for part in parts))


_READERS: dict[str, Callable[[Mapping[str, Any]], PrivacyLoss]] = {
    "gaussian-dp": lambda d: GaussianDP(float(d["mu"]), **_read_labels(d)),
    "pure-dp": lambda d: PureDP(float(d["epsilon"]), **_read_labels(d)),
    "bounded-range": lambda d: BoundedRange(float(d["epsilon"]), **_read_labels(d)),
    "renyi-table": _read_table,
    "composition": _read_composition,
}
