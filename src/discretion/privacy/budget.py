"""The arithmetic of a budget: what many losses cost together, and whether one more fits."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from discretion.privacy.calibration import largest
from discretion.privacy.chain import LedgerError
from discretion.privacy.conversion import gaussian_mu, round_up
from discretion.privacy.loss import (
    BoundedRange,
    Composition,
    GaussianDP,
    Guarantee,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PureDP,
)

__all__ = ["OVERDRAWN", "Budget", "BudgetExceeded", "Composing", "round_down"]

Parts = Sequence[tuple[PrivacyLoss, int]]
"""Losses, and how often each was spent."""


class Composing(StrEnum):
    """The rule by which a ledger composes losses; chosen when it is created, and kept."""

    RENYI = "renyi"
    """The least of the Renyi, Gaussian, pure and, where some loss is known by its profile, numerical routes, each exact
    where it can be (`Composition.guarantee`)."""
    NUMERICAL = "numerical"
    """As `RENYI`, and privacy-loss distributions composed numerically beside Renyi curves where Gaussian losses are all
    that is known better, too."""
    RENYI_FILTER = "renyi-filter"
    """One Renyi order, fixed beforehand: proved also for losses that were chosen after seeing earlier releases."""


OVERDRAWN = (
    "The budget is overdrawn, by what was recorded afterwards: no release fits any more, and all together are as "
    "private as the epsilon spent says, not as the budget does."
)


class BudgetExceeded(LedgerError):
    """The loss asked for does not fit into what is left of the budget. Nothing was written.

    All epsilons are at the ledger's delta: `budget`, `spent` (so far), `asked` (the loss by itself) and
    `together` (spent and asked composed, which is what must not exceed the budget; composition is not
    addition). `mend` is what to do, in words.
    """

    def __init__(
        self, budget: float, spent: float, asked: float, together: float, delta: float, mend: str | None = None
    ) -> None:
        self.budget, self.spent, self.asked, self.together, self.delta = budget, spent, asked, together, delta
        if mend is None:
            mend = OVERDRAWN if spent > budget else "Ask for less, by more noise or fewer releases."
        self.mend = mend
        self.remaining = _difference(budget, spent)
        super().__init__(
            f"The privacy budget does not allow this: budget epsilon {budget!r}, spent {round_up(spent, 4)}, "
            f"remaining {round_down(self.remaining, 4)}, asked {round_up(asked, 4)}, "
            f"together {round_up(together, 4)} (at delta {delta!r}). Nothing was spent. {mend}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.budget, self.spent, self.asked, self.together, self.delta, self.mend)


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) for everything that is ever released from one data set, and how losses are composed.

    Attributes:
        epsilon: finite, at least 0.
        delta: in [0, 1).
        neighbours: the relation under which losses are counted.
        composition: the rule.
        order: the Renyi order of `Composing.RENYI_FILTER`, above 1; None under the other rules.

    Raises:
        ValueError: a number out of range, an order where the rule has none, or none where it needs one.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours = Neighbours.REPLACE
    composition: Composing = Composing.RENYI
    order: float | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("neighbours", Neighbours(self.neighbours))
        put("composition", Composing(self.composition))
        put("epsilon", float(self.epsilon))
        put("delta", float(self.delta))
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise ValueError("A budget's epsilon must be finite and not negative.")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError("A budget's delta must lie in [0, 1).")
        if (self.composition is Composing.RENYI_FILTER) != (self.order is not None):
            raise ValueError("A budget needs an order just where its composition is 'renyi-filter'.")
        if self.order is not None:
            put("order", float(self.order))
            if not (1.0 < self.order < math.inf and self.delta > 0.0):
                raise ValueError("A budget under 'renyi-filter' needs a finite order above 1 and a delta above 0.")

    def describe(self, loss: PrivacyLoss) -> dict[str, Any]:
        """What is kept of a loss. A tabulated curve holds the order that matters for this budget.

        Raises:
            NeighbourMismatch: the loss is for other neighbours than the budget.
        """
        if loss.neighbours is not self.neighbours:
            raise NeighbourMismatch(
                f"This budget is for {self.neighbours.value} neighbours and the loss for "
                f"{loss.neighbours.value} neighbours; they do not add. Use a mechanism for the former, or a ledger of "
                f'the latter: neighbours="{loss.neighbours.value}" (--neighbours {loss.neighbours.value}).'
            )
        return loss.to_dict(self.delta or None) if self.order is None else loss._described((self.order - 1.0,))

    def spent(self, parts: Parts) -> Guarantee:
        """What the losses guarantee together at the budget's delta."""
        return self._compose(parts)[0]

    def left(self, spent: float) -> float:
        """The budget's epsilon less the one spent, as decimals, rounded down; at least 0."""
        return _difference(self.epsilon, spent)

    def room(self, spent: Parts) -> float:
        """The largest epsilon, at the budget's delta, of one Gaussian release more that `allows` accepts; 0 if none.

        Found by bisection to one part in 1,000, rounded down. Without a delta no Gaussian release fits: then of a pure
        one. Losses of other kinds compose otherwise, and may fit in at another epsilon.
        """
        if not self.delta:
            return self.left(self.spent(spent).epsilon)
        if not self.epsilon:
            return 0.0

        def fits(epsilon: float) -> bool:
            asked = GaussianDP(float(gaussian_mu(epsilon, self.delta)), neighbours=self.neighbours)
            return self.allows([*spent, (asked, 1)])

        least = 1e-3 * self.epsilon
        return largest(fits, least, self.epsilon, relative_tolerance=1e-3) if fits(least) else 0.0

    def check(self, spent: Parts, asked: PrivacyLoss, together: Parts, *, mend: str | None = None) -> None:
        """Whether one more loss fits beside those spent; `together` is all of them.

        Raises:
            BudgetExceeded: it does not; `mend` is then what it says to do.
        """
        if not self.allows(together):
            before, alone, after = (self.spent(parts).epsilon for parts in (spent, [(asked, 1)], together))
            raise BudgetExceeded(self.epsilon, before, alone, after, self.delta, mend)

    def allows(self, parts: Parts) -> bool:
        """Whether the losses together cost at most the budget: as exact decimals where all are pure."""

        def fits(value: Fraction | float) -> bool:
            return value <= (_exact(self.epsilon) if isinstance(value, Fraction) else self.epsilon)

        # Distributions take time, and are asked only where the quick rules say no.
        return fits(self._compose(parts, numerical=False)[1]) or fits(self._compose(parts)[1])

    def _compose(self, parts: Parts, numerical: bool | None = None) -> tuple[Guarantee, Fraction | float]:
        """The guarantee of the parts, and its epsilon once more as the number to be judged."""
        if not parts:
            return Guarantee(0.0, self.delta, None, "nothing spent", self.neighbours), Fraction(0)
        composed = Composition(tuple(parts))
        if self.order is not None:
            guarantee = self._filtered(composed, self.order)
            return guarantee, guarantee.epsilon
        if numerical is None and self.composition is Composing.NUMERICAL:
            numerical = True
        guarantee = composed.guarantee(self.delta, numerical=numerical)
        if not guarantee.epsilon >= 0.0:
            raise LedgerError("The losses of this ledger do not add up to a number; nothing more may be spent.")
        pure = _pure_sum(parts)
        # Within rounding of the plain sum the composed value is that sum; below it, another rule did better.
        if pure is None or guarantee.epsilon < pure * (1 - Fraction(1, 10**12)):
            return guarantee, guarantee.epsilon
        rule = "sum of pure epsilons"
        return Guarantee(_float(pure, up=True), self.delta, None, rule, self.neighbours), pure

    def _filtered(self, composed: Composition, order: float) -> Guarantee:
        """Renyi filter at one fixed order (Feldman and Zrnic 2021, Theorem 4.3): the sum of the divergences there.

        Proof: `docs/proofs/renyi-filter.md`.
        """
        excess = order - 1.0
        # Rounded up: the error of a sum of so many terms is below their number times half a unit.
        total = composed.renyi_excess(excess) * (1.0 + 2.0**-52 * (len(composed.parts) + 2))
        if not math.isfinite(total):
            rule = f"Renyi filter at order {order!r}: some loss has no finite divergence there"
            return Guarantee(math.inf, self.delta, None, rule, self.neighbours)
        bound = {
            "type": "renyi-table",
            "neighbours": self.neighbours.value,
            "rule": f"Renyi filter at order {order!r} (Feldman and Zrnic 2021)",
            "excess": [excess],
            "renyi": [total],
            "limit": None,
        }
        return PrivacyLoss.from_dict(bound).guarantee(self.delta)


def _exact(x: float) -> Fraction:
    """The decimal that a person sees for x: 0.1 is one tenth, so that ten of them are one."""
    return Fraction(Decimal(repr(float(x))))


def _pure_sum(parts: Iterable[tuple[PrivacyLoss, int]]) -> Fraction | None:
    """The exact sum of the epsilons if all parts are pure or of bounded range (eta is eta-DP), else None."""
    total = Fraction(0)
    for loss, count in parts:
        if isinstance(loss, Composition):
            value = _pure_sum(loss.parts)
        elif isinstance(loss, PureDP | BoundedRange) and math.isfinite(epsilon := loss.epsilon(0.0)):
            value = _exact(epsilon)
        else:
            return None
        if value is None:
            return None
        total += count * value
    return total


def _float(x: Fraction, *, up: bool) -> float:
    """The float nearest to x, which is not negative, whose decimal is on the side asked for."""
    try:
        y = float(x)
    except OverflowError:
        return math.inf if up else sys.float_info.max
    if up and _exact(y) < x:
        return math.nextafter(y, math.inf)
    if not up and _exact(y) > x:
        return math.nextafter(y, -math.inf)
    return y


def _difference(budget: float, spent: float) -> float:
    """budget - spent in decimals, rounded down, at least 0."""
    if not spent < budget:
        return 0.0
    return _float(_exact(budget) - _exact(spent), up=False)


def round_down(x: float, digits: int) -> str:
    """x, finite, with so many decimals, rounded down."""
    return f"{Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR, Context(prec=400)):f}"
