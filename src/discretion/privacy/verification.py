"""Is what a certificate states what its parameters cost? Every number is computed again, from the certificate alone.

How a mechanism's loss follows from its parameters is the mechanism's own business: `verify` is given a function for
each name (`discretion.posterior.LOSSES` has those of this library). What cannot be computed again here is neither
verified nor refused: it is not checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discretion.privacy.certificate import TEST_ONLY, Certificate, library_version, public_json
from discretion.privacy.conversion import round_up, round_up_significant
from discretion.privacy.loss import Guarantee, PrivacyLoss

__all__ = ["LossOf", "NotRecomputable", "SentencesOf", "Verification", "check_parameters", "verify"]

LossOf = Callable[[Mapping[str, Any], int | None, float], PrivacyLoss]
"""The privacy loss of a mechanism from its public parameters, as its certificate has them, from n and from delta.

It raises ValueError where they are not the parameters of such a mechanism, and `NotRecomputable` where what its price
rests on is not in the certificate.
"""

SentencesOf = Callable[[Certificate], tuple[tuple[str, ...], tuple[str, ...]]]
"""What a mechanism with a certificate's parameters says that it enforces, and what it says that somebody declared.

It raises ValueError where it can't tell.
"""


class NotRecomputable(ValueError):
    """This version can't compute the loss again from the certificate, which says nothing against it."""


ROUNDING = 1e-9
"""How far, relatively, a figure may lie below the computed one: another processor, another order of summation."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_ORDERS = np.append(np.geomspace(1e-3, 1e6, 91), np.inf)
_DELTAS = (1e-3, 1e-6, 1e-9)
_EPSILONS = (0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class Verification:
    """What came of computing a certificate's numbers again.

    Attributes:
        certificate: what was verified.
        computed: the guarantee at the certificate's delta, from the parameters; None where it could not be computed.
        refused: what in it was found to be untrue.
        differences: where it states more than is needed, or something that another version would write differently.
        unchecked: why its price could not be computed again here, where that says nothing against it.
    """

    certificate: Certificate
    computed: Guarantee | None
    refused: tuple[str, ...]
    differences: tuple[str, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether every number follows from the parameters and none is too small."""
        return not self.refused and not self.unchecked

    @property
    def verdict(self) -> str:
        """VERIFIED; REFUSED, a claim of it is refuted; or NOT CHECKED, this version has no recomputation for it."""
        return "REFUSED" if self.refused else "NOT CHECKED" if self.unchecked else "VERIFIED"

    @property
    def _name(self) -> str:
        """The mechanism; of one that is not known all letters can be told from like ones."""
        return f"claims to be {self.certificate.mechanism!a}" if self.unchecked else self.certificate.mechanism

    def lines(self, signed: str = "") -> list[str]:
        """For a person: the result, what was computed, and which assumptions it rests on.

        Args:
            signed: what came of looking at its signature, in two words, beside the result.
        """
        made, computed = self.certificate, self.computed
        lines = [
            f"{self.verdict}{signed and f', {signed}'}: {self._name}, epsilon <= {round_up(made.epsilon, 4)} "
            f"at delta = {round_up_significant(made.delta)} ({made.neighbours.value} neighbours)."
        ]
        if not made.bookable:
            lines += [f"{TEST_ONLY}: the noise came from a known seed. This must not be published."]
        if computed is not None:
            lines += [f"Computed from its parameters: epsilon <= {round_up(computed.epsilon, 4)}, by {computed.rule}."]
        lines += [f"Refused: {reason}" for reason in self.refused]
        lines += [f"Not checked: {reason}" for reason in self.unchecked]
        lines += [f"Differs: {difference}" for difference in self.differences]
        lines += [f"Unit of privacy: {made.protects()}"]
        for title, texts in (
            ("Enforced by the software that made it:", made.enforced),
            ("Declared by somebody, and not checked by anything:", made.declared),
            ("Not covered:", made.limits),
        ):
            lines += [title, *(f"  - {text}" for text in texts or ("nothing was stated",))]
        return lines


def verify(
    certificate: Certificate, losses: Mapping[str, LossOf], sentences: Mapping[str, SentencesOf] | None = None
) -> Verification:
    """Compute every number of `certificate` again from its parameters, and compare its sentences where they follow.

    The loss is rebuilt from mechanism, parameters and n. Refused are an epsilon below that of the rebuilt or of the
    stored loss at the certificate's delta; a stored loss that is below the rebuilt one at any of its orders, in its
    limit or at other deltas (a ledger composes it); another neighbour relation; and, where the same version of this
    library wrote it, another order or rule. Not checked is what this version has no recomputation for: a mechanism that
    `losses` does not name, one whose price rests on something that is not in the certificate, and parameters that a
    later version wrote and this one can't read.

    Args:
        certificate: what is to be verified.
        losses: a `LossOf` for each mechanism's name.
        sentences: a `SentencesOf` for mechanisms whose assumptions follow from their parameters. A certificate of this
            version with other sentences is refused; of another version they are told as differences.
    """
    refused: list[str] = []
    differences: list[str] = []
    unchecked: list[str] = []
    computed: Guarantee | None = None
    later = _later(certificate.library_version)
    where = unchecked if later else refused
    before = f"It says that version {certificate.library_version} wrote it, later than this one. " if later else ""
    try:
        rebuilt = _attempt(lambda: _rebuilt(certificate, losses), f"{before}The loss cannot be computed again: ", where)
    except NotRecomputable as error:
        rebuilt = None
        unchecked += [f"This version has no recomputation for it: {error}"]
    stored = _attempt(lambda: PrivacyLoss.from_dict(certificate.loss), "The stored loss cannot be read: ", refused)
    if stored is not None:
        refused += _too_small(certificate, stored.epsilon(certificate.delta), "the stored loss")
    if rebuilt is not None:
        computed = rebuilt.guarantee(certificate.delta)
        refused += _too_small(certificate, computed.epsilon, "the parameters")
        if certificate.epsilon > computed.epsilon * (1.0 + 1e-6):
            differences += [f"epsilon {certificate.epsilon!r} is more than the parameters need, {computed.epsilon!r}."]
        same = certificate.library_version == library_version()
        (refused if same else differences).extend(_other_route(certificate, computed))
        (refused if same else differences).extend(_other_words(certificate, sentences or {}))
    for loss in (stored, rebuilt):
        if loss is not None and loss.neighbours is not certificate.neighbours:
            refused += [f"The loss is for {loss.neighbours.value} neighbours, the certificate says otherwise."]
    if stored is not None and rebuilt is not None and stored.neighbours is rebuilt.neighbours:
        refused += _below(stored, rebuilt, certificate)
    return Verification(certificate, computed, tuple(dict.fromkeys(refused)), tuple(differences), tuple(unchecked))


def check_parameters(given: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
    """Return if both say the same, numbers within rounding; for a `LossOf` that rebuilds its mechanism.

    Raises:
        ValueError: they differ; the message names the first place and both values.
    """
    for where, one, other in _pairs("parameters", public_json(given), public_json(computed)):
        if not _same(one, other):
            raise ValueError(f"{where} is {one!r}, and {other!r} follows from the other parameters.")


def _rebuilt(certificate: Certificate, losses: Mapping[str, LossOf]) -> PrivacyLoss:
    if certificate.mechanism not in losses:
        known = ", ".join(map(repr, losses)) or "none"
        raise NotRecomputable(f"no rule for the mechanism {certificate.mechanism!r} is at hand (there are: {known}).")
    return losses[certificate.mechanism](certificate.parameters, certificate.n, certificate.delta)


def _later(version: str) -> bool:
    """Whether that is a later version than this one; of words that are none, no."""
    this, that = (
        [int(each or 0) for each in found.groups()] if (found := _VERSION.match(each)) else None
        for each in (library_version(), version)
    )
    return this is not None and that is not None and that > this


def _attempt(call: Callable[[], PrivacyLoss], before: str, refused: list[str]) -> PrivacyLoss | None:
    """The loss, or a reason more in `refused`. Whatever stands in a certificate is an answer, not an accident."""
    try:
        return call()
    except NotRecomputable:
        raise
    except KeyError as error:
        refused.append(f"{before}{error} is missing.")
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        refused.append(f"{before}{error}")
    return None


def _too_small(certificate: Certificate, needed: float, whence: str) -> list[str]:
    """The reason to refuse an epsilon below the one that is needed."""
    stated = certificate.epsilon
    if stated >= needed * (1.0 - ROUNDING):
        return []
    short = "" if math.isinf(needed) else f", too small by {needed - stated:.6g}"
    return [f"epsilon {stated!r} is stated and {needed!r} follows from {whence} at delta {certificate.delta!r}{short}."]


def _other_route(certificate: Certificate, computed: Guarantee) -> Iterator[str]:
    """Where order or rule are not those that give the computed epsilon; orders to 1 in 1,000: the minimum is flat."""
    one, other = certificate.order, computed.order
    agree = one == other or (one is not None and other is not None and math.isclose(one - 1, other - 1, rel_tol=1e-3))
    if not agree:
        yield f"order {one!r} is stated, and the order that gives this epsilon is {other!r}."
    if certificate.rule != computed.rule:
        yield f"the rule {certificate.rule!r} is stated, and the one that gives this epsilon is {computed.rule!r}."


def _other_words(certificate: Certificate, sentences: Mapping[str, SentencesOf]) -> Iterator[str]:
    """Where the assumptions are not those that the mechanism states, in the order of the certificate."""
    if certificate.mechanism not in sentences:
        return
    try:
        wanted = sentences[certificate.mechanism](certificate)
    except (ValueError, TypeError, LookupError):
        return
    for kind, stated, follows in zip(
        ("enforced", "declared"), (certificate.enforced, certificate.declared), wanted, strict=True
    ):
        for text in stated:
            if text not in follows:
                yield f"{text!r} is stated as {kind}, which does not follow from the parameters."
        for text in follows:
            if text not in stated:
                yield f"{text!r} is not stated as {kind}, which follows from the parameters."


def _below(stored: PrivacyLoss, rebuilt: PrivacyLoss, certificate: Certificate) -> Iterator[str]:
    """Where the stored loss says less than the rebuilt one, or than that one as it is stored; one place is enough.

    The table of a curve is a bound at every order, and between its own orders it may be the smaller one.
    """
    description = rebuilt.to_dict(certificate.delta or None)
    again = PrivacyLoss.from_dict(description)
    orders = np.unique(np.concatenate([_ORDERS, list(_tabulated(certificate.loss))]))
    orders = orders[orders > 0]
    stated = stored.renyi_excess(orders)
    needed = np.minimum(rebuilt.renyi_excess(orders), again.renyi_excess(orders))
    # Near order 1 a computed divergence is off by a rounding error over the excess order.
    with np.errstate(invalid="ignore"):
        low = stated < needed * (1.0 - ROUNDING) - 2.0**-48 / orders
    if low.any():
        at = int(np.argmax(low))
        yield (
            f"the stored loss is {float(stated[at])!r} at the Renyi order {1.0 + float(orders[at])!r}, and "
            f"{float(needed[at])!r} follows from the parameters."
        )
    for epsilon in _EPSILONS:
        one, other = stored.delta(epsilon), min(rebuilt.delta(epsilon), again.delta(epsilon))
        if not one >= other * (1.0 - ROUNDING) - 1e-15:
            yield f"the stored loss gives delta {one!r} at epsilon {epsilon!r}, and the parameters give {other!r}."
            return
    for delta in (certificate.delta, *_DELTAS):
        one, other = stored.epsilon(delta), min(rebuilt.epsilon(delta), again.epsilon(delta))
        if not one >= other * (1.0 - ROUNDING):
            yield f"the stored loss gives epsilon {one!r} at delta {delta!r}, and the parameters give {other!r}."
            return
    # Between the places looked at only a loss of the same kind is known to be no smaller.
    kinds, wanted = _kinds(certificate.loss), _kinds(description)
    if kinds != wanted:
        yield f"the stored loss is of the kind {kinds}, and that of the parameters is {wanted}."


def _kinds(description: Any) -> str:
    """The kinds of loss of which a stored loss is made."""
    if not isinstance(description, dict):
        return "none"
    parts = [part.get("loss", part) if isinstance(part, dict) else part for part in description.get("parts", ())]
    return str(description.get("type")) + (f" of ({', '.join(map(_kinds, parts))})" if parts else "")


def _tabulated(description: Any) -> Iterator[float]:
    """All excess orders at which a stored loss has a table."""
    if isinstance(description, dict):
        for key, value in description.items():
            if key == "excess" and isinstance(value, list):
                yield from (float(x) for x in value)
            else:
                yield from _tabulated(value)
    elif isinstance(description, list):
        for value in description:
            yield from _tabulated(value)


def _pairs(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Both values at every place that either has."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _pairs(f"{where}[{key!r}]", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _pairs(f"{where}[{index}]", a, b)
    else:
        yield where, one, other


def _same(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-300) if numbers else one == other
