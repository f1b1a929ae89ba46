"""Losses spent on the same records, as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from discretion.privacy.composition import Profile, numerical_delta, numerical_epsilon
from discretion.privacy.loss.base import READERS, Array, Guarantee, NeighbourMismatch, Neighbours, PrivacyLoss
from discretion.privacy.loss.parametric import GaussianDP, PureDP, PureLoss
from discretion.privacy.sums import root_sum_of_squares, sum_up


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
                its privacy profile. By default at most 256 different ones are composed, and of more those that are pure
                or of bounded range are rounded up until there are so few (`_fewer`). The parts that are Renyi curves
                enter as one, with the profile that the sum of the curves implies. Proof:
                `docs/proofs/connect-the-dots.md`.
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
            epsilon = numerical_epsilon(self._profiled(numerical), delta)
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
            routes.append(numerical_delta(self._profiled(numerical), epsilon))
        return min(routes)

    def _composes(self, numerical: bool | None) -> bool:
        """Whether distributions are composed: some part is known by more than its Renyi curve, and it is wanted."""
        known = [loss for loss, _ in self.parts if loss._exact_profile]
        if numerical is None:
            few = len(self.parts) <= _MOST_PARTS or _fewer(self.parts, _MOST_PARTS) is not None
            numerical = few and any(loss._numerical for loss in known)
        return bool(known) and numerical

    def _profiled(self, numerical: bool | None = True) -> list[tuple[Profile, int]]:
        """The profiles to be composed; rounded up to few where nobody asked for all (`numerical` is None)."""
        parts = self.parts
        if numerical is None and len(parts) > _MOST_PARTS:
            parts = _fewer(parts, _MOST_PARTS) or parts
        known = [(loss._profiles, count) for loss, count in parts if loss._exact_profile]
        curves = [(loss, count) for loss, count in parts if not loss._exact_profile]
        return [*known, (compose(curves)._profiles, 1)] if curves else known

    def _described(self, excess: tuple[float, ...]) -> dict[str, Any]:
        parts = [{"count": count, "loss": loss._described(excess)} for loss, count in self.parts]
        return {"type": "composition", "parts": parts}

    @property
    def _only(self) -> PrivacyLoss | None:
        """The part itself where it is the only one and spent once."""
        return self.parts[0][0] if len(self.parts) == 1 and self.parts[0][1] == 1 else None

    def _split(self) -> tuple[float, PrivacyLoss | None]:
        """Sum of the epsilons of the pure and bounded-range parts, rounded up; the loss of the others."""
        pure = [(count, loss.epsilon_value) for loss, count in self.parts if isinstance(loss, PureLoss)]
        rest = [(loss, count) for loss, count in self.parts if not isinstance(loss, PureLoss)]
        return sum_up(pure), compose(rest) if rest else None

    def _basic(self, pure: float) -> PureDP:
        return PureDP(pure, neighbours=self.neighbours, rule="pure DP, basic composition")


Parts = tuple[tuple[PrivacyLoss, int], ...]
# Different losses that are composed numerically unasked: each is a distribution of its own, in time and memory.
_MOST_PARTS = 256


def _fewer(parts: Parts, most: int) -> Parts | None:
    """At most so many different losses, each at least the one it stands for; None where there are too many others.

    Of one kind, those that are pure or of bounded range, Laplace noise among them, are put together wherever their
    epsilons are within one ratio, which is the least that makes them few enough: at the largest of each group. A
    mechanism with the smaller epsilon has the larger one too, so that the composition is bounded as before.
    """
    others = [part for part in parts if not isinstance(part[0], PureLoss)]
    kinds: dict[type, list[tuple[Any, int]]] = {}
    for loss, count in parts:
        if isinstance(loss, PureLoss):
            kinds.setdefault(type(loss), []).append((loss, count))
    sorted_down = [sorted(each, key=lambda part: -part[0].epsilon_value) for each in kinds.values()]
    if len(others) + len(sorted_down) > most:
        return None

    def rounded(ratio: float) -> list[tuple[PrivacyLoss, int]]:
        found: list[tuple[PrivacyLoss, int]] = []
        for each in sorted_down:
            top, total = each[0][0], 0
            for loss, count in each:
                if loss.epsilon_value * ratio < top.epsilon_value:
                    found.append((top, total))
                    top, total = loss, 0
                total += count
            found.append((top, total))
        return found

    allowed = most - len(others)
    # of ever larger ratios; the last one puts all of a kind together
    low, high = 0.0, 1.0
    while len(rounded(math.exp(high))) > allowed and high < 700.0:
        low, high = high, 2.0 * high
    if len(rounded(math.exp(high))) > allowed:
        return None
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if len(rounded(math.exp(middle))) <= allowed else (middle, high)
    return (*others, *rounded(math.exp(high)))


def compose(parts: Iterable[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
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
            elif times * count > 0 and not (isinstance(part, PureLoss) and part.epsilon_value == 0):
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


def _read_composition(description: Mapping[str, Any]) -> Composition:
    parts = description["parts"]
    return Composition(tuple((PrivacyLoss.from_dict(part["loss"]), part["count"]) for part in parts))


READERS["composition"] = _read_composition
