"""Is what a certificate states what its parameters cost? Every number is computed again, from the certificate alone.

How a mechanism's loss follows from its parameters is the mechanism's own business: `verify` is given a function for
each name (`discretion.posterior.LOSSES` has those of this library). What cannot be computed again here is neither
verified nor refused: it is not checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discretion.privacy.certificate import TEST_ONLY, Certificate, is_later, library_version, public_json, says_left_out
from discretion.privacy.conversion import round_up, round_up_significant
from discretion.privacy.loss import Guarantee, Neighbours, PrivacyLoss, UnknownLoss

__all__ = ["LossOf", "NotRecomputable", "Sentences", "SentencesOf", "Verification", "check_parameters", "verify"]

LossOf = Callable[[Mapping[str, Any], int | None, float], PrivacyLoss]
"""The privacy loss of a mechanism from its public parameters, as its certificate has them, from n and from delta.

It raises ValueError where they are not the parameters of such a mechanism, and `NotRecomputable` where what its price
rests on is not in the certificate.
"""


@dataclass(frozen=True)
class Sentences:
    """What a mechanism states in words.

    Attributes:
        enforced, declared, limits: as in a certificate.
        complete: whether these are all; else they must be there, and others may stand beside them.
    """

    enforced: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    complete: bool = True

    @classmethod
    def of(cls, certificate: Certificate) -> Sentences:
        """Those of a certificate."""
        return cls(certificate.enforced, certificate.declared, certificate.limits)


SentencesOf = Callable[[Certificate], Sentences]
"""What a mechanism with a certificate's parameters states in words. It raises ValueError where it can't tell."""


class NotRecomputable(ValueError):
    """This version can't compute the loss again from the certificate, which says nothing against it.

    Attributes:
        least: from the certificate's neighbour relation, a loss that is at most what the parameters cost: by what of
            them can be read. A claim below it is refuted. None where nothing is known.
    """

    def __init__(self, message: str, least: Callable[[Neighbours], PrivacyLoss] | None = None) -> None:
        super().__init__(message)
        self.least = least


ROUNDING = 1e-9
"""How far, relatively, a figure may lie below the computed one: another processor, another order of summation."""

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
    library wrote it, another order or rule. One that claims more than it needs, in epsilon or in its stored loss, is
    true, and this is said (`differences`). Not checked is what this version has no recomputation for: a mechanism that
    `losses` does not name, one whose price rests on something that is not in the certificate, and parameters that a
    later version wrote and this one can't read; what of them can be read may still refute the claim.

    Args:
        certificate: what is to be verified.
        losses: a `LossOf` for each mechanism's name.
        sentences: a `SentencesOf` for mechanisms whose assumptions and limits follow from their parameters. A
            certificate of this version with other sentences is refused; of another version they are told as
            differences.
    """
    refused: list[str] = []
    differences: list[str] = []
    unchecked: list[str] = []
    computed: Guarantee | None = None
    later = is_later(certificate.library_version)
    where = unchecked if later else refused
    before = f"It says that version {certificate.library_version} wrote it, later than this one. " if later else ""
    least = None
    try:
        rebuilt = _attempt(lambda: _rebuilt(certificate, losses), f"{before}The loss cannot be computed again: ", where)
    except NotRecomputable as error:
        rebuilt, of_rest = None, error.least
        unchecked += [f"This version has no recomputation for it: {error}"]
        if of_rest is not None:
            least = _attempt(lambda: of_rest(certificate.neighbours), "What its parameters cost at least: ", where)
    stored = _attempt(
        lambda: PrivacyLoss.from_dict(certificate.loss),
        f"{before}The stored loss cannot be read: ",
        unchecked if later and not _kinds_known(certificate.loss) else refused,
    )
    if stored is not None:
        refused += _too_small(certificate, stored.epsilon(certificate.delta), "the stored loss")
    if least is not None:
        refused += _too_small(certificate, least.epsilon(certificate.delta), "what of the parameters can be read")
    if rebuilt is not None:
        computed = rebuilt.guarantee(certificate.delta)
        refused += _too_small(certificate, computed.epsilon, "the parameters")
        if certificate.epsilon > computed.epsilon * (1.0 + 1e-6):
            differences += [
                f"epsilon {certificate.epsilon!r} is more than the parameters need, {computed.epsilon!r}: what is "
                "promised is true, and less than could be."
            ]
        same = certificate.library_version == library_version()
        (refused if same else differences).extend(_other_route(certificate, computed))
        (refused if same else differences).extend(_other_words(certificate, sentences or {}))
    for loss in (stored, rebuilt, least):
        if loss is not None and loss.neighbours is not certificate.neighbours:
            refused += [f"The loss is for {loss.neighbours.value} neighbours, the certificate says otherwise."]
    bound = least if rebuilt is None else rebuilt
    as_it_would_be = rebuilt is not None and rebuilt.to_dict(certificate.delta or None) == certificate.loss
    if stored is not None and bound is not None and stored.neighbours is bound.neighbours and not as_it_would_be:
        low, high = _apart(stored, bound, certificate)
        refused += low
        if rebuilt is not None:
            differences += high
            refused += _of_other_kinds(rebuilt, certificate)
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
    """Where the sentences are not those that the mechanism states, or not in their order."""
    if certificate.mechanism not in sentences:
        return
    try:
        wanted = sentences[certificate.mechanism](certificate)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        yield f"Its sentences can't be written again, and were not compared: {error}"
        return
    for kind, where in (("enforced", "as enforced"), ("declared", "as declared"), ("limits", "as a limit")):
        stated, follows = getattr(certificate, kind), getattr(wanted, kind)
        for text in () if not wanted.complete else stated:
            if text not in follows and not (kind == "limits" and says_left_out(text, certificate.n)):
                yield f"{text!r} is stated {where}, which does not follow from the parameters."
        for text in follows:
            if text not in stated:
                yield f"{text!r} is not stated {where}, which follows from the parameters."


def _apart(stored: PrivacyLoss, needed: PrivacyLoss, certificate: Certificate) -> tuple[list[str], list[str]]:
    """Where the stored loss says less than the one that is needed, and where more; of each the first place.

    Of a curve a certificate stores a table, which is a bound at every order, and between its own orders it may be the
    smaller one. So the stored loss is less if it lies below both the needed loss and that one as it would be stored,
    and more if above both.
    """
    again = PrivacyLoss.from_dict(needed.to_dict(certificate.delta or None))
    orders = np.unique(np.concatenate([_ORDERS, list(_tabulated(certificate.loss))]))
    orders = orders[orders > 0]
    losses = (stored, needed, again)
    of_orders = zip(orders.tolist(), *(loss.renyi_excess(orders).tolist() for loss in losses), strict=True)

    def looks() -> Iterator[tuple[str, float, float, float, float]]:
        # Near order 1 a computed divergence is off by a rounding error over the excess order.
        for x, one, *others in of_orders:
            yield f"at the Renyi order {1.0 + x!r}", one, *_ends(others), 2.0**-48 / x
        for e in _EPSILONS:
            one, *others = (loss.delta(e) for loss in losses)
            yield f"as delta at epsilon {e!r}", one, *_ends(others), 1e-15
        for d in dict.fromkeys((certificate.delta, *_DELTAS)):
            one, *others = (loss.epsilon(d) for loss in losses)
            yield f"as epsilon at delta {d!r}", one, *_ends(others), 0.0

    more: list[str] = []
    for at, one, least, most, slack in looks():
        if not one >= least * (1.0 - ROUNDING) - slack:
            return [f"the stored loss gives {one!r} {at}, and {least!r} follows from the parameters."], []
        if not more and not one <= most * (1.0 + 1e-6) + slack:
            more = [
                f"the stored loss gives {one!r} {at}, more than the parameters need, {most!r}: a ledger that takes it "
                "counts more than it has to."
            ]
    return [], more


def _ends(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _of_other_kinds(rebuilt: PrivacyLoss, certificate: Certificate) -> Iterator[str]:
    """Between the places looked at only a loss of the same kind is known to be no smaller."""
    kinds, wanted = _kinds(certificate.loss), _kinds(rebuilt.to_dict(certificate.delta or None))
    if kinds != wanted:
        yield f"the stored loss is of the kind {kinds}, and that of the parameters is {wanted}."


def _kinds(description: Any) -> str:
    """The kinds of loss of which a stored loss is made."""
    if not isinstance(description, dict):
        return "none"
    parts = [part.get("loss", part) if isinstance(part, dict) else part for part in description.get("parts", ())]
    return str(description.get("type")) + (f" of ({', '.join(map(_kinds, parts))})" if parts else "")


def _kinds_known(description: Any) -> bool:
    """Whether the stored loss can't be read for another reason than that this version does not know its kind."""
    try:
        PrivacyLoss.from_dict(description)
    except UnknownLoss:
        return False
    except (ValueError, ArithmeticError, AttributeError):
        pass
    return True


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
