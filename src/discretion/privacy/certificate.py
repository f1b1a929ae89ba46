"""The certificate of a release: what was released, from what, what it cost and what is promised.

As data (a frozen value, read and written as JSON), as canonical bytes (what is signed) and as a page of text. The
layout is in `certificate.schema.json`, beside this file; `docs/certificates.md` explains it.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from discretion.privacy.conversion import round_up, round_up_significant
from discretion.privacy.loss import Neighbours, PrivacyLoss
from discretion.privacy.units import protected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from discretion.privacy.mechanism import Mechanism
    from discretion.privacy.noise import Randomness
    from discretion.privacy.signing import SignedCertificate

SCHEMA = 1
"""Version of the certificate's layout, written into every certificate."""

LIMITS = (
    "Rounding: the proofs speak of real numbers, the computer keeps about 16 digits.",
    "How long the computation took and how much memory it used.",
    "Other releases from the same records: they add up, and only a ledger they share holds the sum.",
)
"""What no release of this library defends against; a mechanism adds its own."""

TEST_ONLY = "TEST ONLY"
"""How the page and the repr of a release begin whose noise can be replayed."""

LINES, WIDTH = 40, 100
"""Size of the page."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def public_json(value: Any, where: str = "value") -> Any:
    """`value` as plain JSON data: dictionaries with string keys, lists, strings, numbers, booleans and None.

    Args:
        value: what to convert; tuples become lists, NumPy scalars numbers, enumeration members their values.
        where: how the message of an error names it.

    Raises:
        ValueError: NaN, a float infinity (write the string "inf"), or anything that JSON does not have, NumPy
            arrays included. The message names the place, not the value.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds half of a surrogate pair, which is no text; mend it.") from None
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f'{where} is not a finite number; where infinity is meant write the string "inf".')
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where} has a key that is not a string; use strings as keys.")
        return {str(key): public_json(item, f"{where}[{str(key)!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ValueError(
        f"{where} is of type {type(value).__name__}, which JSON cannot hold; "
        "give numbers, strings, lists or dictionaries (an array that is public: its .tolist())."
    )


def canonical(value: Any, indent: int | None = None) -> str:
    """JSON text of what `public_json` returned; equal values have equal texts.

    The canonical form: keys sorted by code point; no blanks; whole numbers in digits, floats as the shortest decimal
    that reads back as the same double (Python's `repr`: 0.1, 1e-05), so that 1 and 1.0 differ; every character as
    itself but quotation mark, backslash and control characters, which JSON escapes. In UTF-8 it is what is signed. With
    `indent` the same for people, in lines.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def utc_now() -> str:
    """The time in UTC to the second, such as "2026-03-01T09:30:00Z". Informative: nothing depends on it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_LEFT_OUT = "Left out by rule: "


def left_out(rules: Iterable[str], n: int | None) -> str:
    """The limit of a certificate whose rows passed public rules first: `rules` say which rows did not."""
    return f"{_LEFT_OUT}{', '.join(rules)}{_kept(n)}"


def says_left_out(text: str, n: int | None) -> bool:
    """Whether a sentence is one of `left_out`, which follows from the reading of a table and from no parameter."""
    return text.startswith(_LEFT_OUT) and text.endswith(_kept(n))


def _kept(n: int | None) -> str:
    return f". The guarantee protects the records kept{'' if n is None else ', given how many were kept'}."


@cache
def library_version() -> str:
    """The installed version of this library, or "unknown" where it runs without being installed; looked up once."""
    try:
        return version("discretion")
    except PackageNotFoundError:
        return "unknown"


def is_later(version: str) -> bool:
    """Whether that is a later version of this library than this one; of words that are none, no."""
    this, that = (
        [int(each or 0) for each in found.groups()] if (found := _VERSION.match(each)) else None
        for each in (library_version(), version)
    )
    return this is not None and that is not None and that > this


@dataclass(frozen=True)
class Certificate:
    """What was released, from what, and what is promised: public parameters, nothing computed from a record.

    Attributes:
        mechanism: its name.
        parameters: its public parameters, as JSON data.
        n: the number of records where that is public, otherwise None.
        neighbours: the relation between data sets that differ in one unit.
        unit: the unit of privacy in words, such as "one sale".
        epsilon, delta, order, rule: the guarantee, as in `Guarantee`; epsilon may be infinite.
        loss: the whole privacy loss, as `PrivacyLoss.to_dict` writes it.
        enforced: assumptions of the proof that the software made true (clipping, clamping, refusing).
        declared: assumptions of the proof that the user vouched for.
        limits: what the promise does not cover.
        bookable: whether the noise came from a source that nobody can replay.
        randomness: that source.
        created: time in UTC, such as "2026-03-01T09:30:00Z".
        library, library_version: the software that made the release.
        ledger_entry: where it was booked, as "<ledger>#<entry>", or None.
        schema: version of this layout.

    Raises:
        ValueError: a field of the wrong kind, a number that is NaN or out of range.
    """

    mechanism: str
    parameters: dict[str, Any] = field(hash=False)
    n: int | None
    neighbours: Neighbours
    unit: str
    epsilon: float
    delta: float
    order: float | None
    rule: str
    loss: dict[str, Any] = field(hash=False)
    enforced: tuple[str, ...]
    declared: tuple[str, ...]
    limits: tuple[str, ...]
    bookable: bool
    randomness: str
    created: str = field(default_factory=utc_now)
    library: str = "discretion"
    library_version: str = field(default_factory=library_version)
    ledger_entry: str | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for name in ("mechanism", "unit", "rule", "randomness", "library", "library_version"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ValueError(f"A certificate's {name} must be a text that is not empty.")
        put("parameters", public_json(self.parameters, "parameters"))
        put("loss", public_json(self.loss, "loss"))
        if not isinstance(self.parameters, dict) or not isinstance(self.loss, dict):
            raise ValueError("A certificate's parameters and loss must be dictionaries.")
        whole = isinstance(self.n, int | np.integer) and not isinstance(self.n, bool) and self.n >= 0
        if self.n is not None and not whole:
            raise ValueError("A certificate's n must be a whole number, at least 0, or None if not public.")
        put("n", None if self.n is None else int(self.n))
        put("neighbours", Neighbours(self.neighbours))
        put("epsilon", _number("epsilon", self.epsilon, 0.0, math.inf))
        put("delta", _number("delta", self.delta, 0.0, 1.0))
        put("order", None if self.order is None else _number("order", self.order, 1.0, math.inf))
        for name in ("enforced", "declared", "limits"):
            texts = getattr(self, name)
            if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"A certificate's {name} must be a tuple of sentences.")
            put(name, tuple(texts))
        if not isinstance(self.bookable, bool):
            raise ValueError("A certificate's bookable must be True or False.")
        if not isinstance(self.created, str) or not _TIME.fullmatch(self.created):
            raise ValueError('A certificate\'s created must be a time in UTC such as "2026-03-01T09:30:00Z".')
        if self.ledger_entry is not None and not isinstance(self.ledger_entry, str):
            raise ValueError("A certificate's ledger_entry must be a text or None.")
        _check_schema(self.schema)

    @classmethod
    def issue(
        cls,
        mechanism: Mechanism,
        *,
        n: int | None,
        delta: float,
        unit: str,
        randomness: Randomness,
        loss: PrivacyLoss | None = None,
        enforced: tuple[str, ...] = (),
        declared: tuple[str, ...] = (),
        limits: tuple[str, ...] = (),
        created: str | None = None,
    ) -> Self:
        """The certificate of one run of `mechanism`, with its guarantee at `delta`.

        Args:
            mechanism: what ran.
            n: the number of records, or None where it is not public; `loss` is then required.
            delta: in [0, 1).
            unit: the unit of privacy in words, such as "one sale".
            randomness: what the run drew from.
            loss: `mechanism.privacy_loss(n)`, if it is at hand.
            enforced, declared: the assumptions of the proof, in sentences.
            limits: added to those that every release has (`LIMITS`).
            created: time in UTC; by default now.

        Raises:
            ValueError: neither n nor loss, or delta out of range.
        """
        if loss is None:
            if n is None:
                raise ValueError("Give n, or the loss itself where n is not public.")
            loss = mechanism.privacy_loss(n)
        guarantee = loss.guarantee(delta)
        return cls(
            mechanism=mechanism.name,
            parameters=dict(mechanism.parameters()),
            n=n,
            neighbours=loss.neighbours,
            unit=unit,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            order=guarantee.order,
            rule=guarantee.rule,
            loss=loss.to_dict(delta or None),
            enforced=enforced,
            declared=declared,
            limits=LIMITS + limits,
            bookable=randomness.bookable is True,
            randomness=type(randomness).__name__,
            created=created or utc_now(),
        )

    def data(self) -> dict[str, Any]:
        """The certificate as plain JSON data. Infinity is "inf"."""
        data = asdict(self)
        for name in ("epsilon", "order"):
            if data[name] == math.inf:
                data[name] = "inf"
        return public_json(data, "certificate")

    def to_json(self) -> str:
        """The certificate as JSON, keys sorted: equal certificates have equal texts."""
        return canonical(self.data(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The certificate that `to_json` wrote.

        Raises:
            ValueError: not a certificate, or one of another layout.
        """
        return cls.from_data(read_json(text))

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """The certificate of what `data` returned.

        Raises:
            ValueError: not a certificate, or one of another layout.
        """
        if not isinstance(data, dict) or "schema" not in data:
            raise ValueError("This is not a certificate: it has no field 'schema'.")
        _check_schema(data["schema"])
        wrong = data.keys() ^ {item.name for item in fields(cls)}
        if wrong:
            raise ValueError(f"This is not a certificate: fields missing or unknown: {', '.join(sorted(wrong))}.")
        data = {name: math.inf if name in ("epsilon", "order") and data[name] == "inf" else data[name] for name in data}
        return cls(**data)

    def sign(self, key: Ed25519PrivateKey) -> SignedCertificate:
        """This certificate with an Ed25519 signature of its canonical form.

        Raises:
            ValueError: the key is of another kind.
            ImportError: `cryptography` is not installed.
        """
        from discretion.privacy.signing import SignedCertificate

        return SignedCertificate.of(self, key)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to the file `path`."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @property
    def of_records(self) -> str:
        """ " of 4,000 private records", or " of private records" where their number is private."""
        return f" of {'' if self.n is None else f'{self.n:,} '}private records"

    def text(self) -> str:
        """The page for whoever answers for the data: plain words, at most 40 lines, epsilon rounded up."""
        lines = ["PRIVACY CERTIFICATE"]
        if not self.bookable and self.epsilon == math.inf:
            lines += [f"*** {TEST_ONLY}: nothing is promised ({self.rule}). This must not be published. ***"]
        elif not self.bookable:
            lines += [
                f"*** {TEST_ONLY}: the noise came from a known seed ({self.randomness}). ***",
                "*** Whoever knows the seed can remove it. This must not be published. ***",
            ]
        booked = f"booked as {self.ledger_entry}" if self.ledger_entry else "not booked in a ledger"
        lines += [f"Made {self.created} with {self.library} {self.library_version}; {booked}."]
        source = "records whose number is not public" if self.n is None else f"{self.n:,} records"
        # What fits on the page first: plain values, then structures; nothing that is absent.
        plain = sorted(self.parameters.items(), key=lambda item: (isinstance(item[1], list | dict), item[0]))
        plain = [(key, value) for key, value in plain if key != "released" and value not in (None, {}, [])]
        settings = ", ".join(f"{key} = {_plain(value)}" for key, value in plain)
        what = self.parameters.get("released", f"The output of {self.mechanism!r}, run")
        released = f"{what} on {source}. Settings: {settings or 'none'}."
        lines += ["", "WHAT WAS RELEASED", *_wrap(released, most=5)]
        lines += ["WHO IS PROTECTED", *_wrap(f"The unit of privacy: {self.protects()}.", most=6)]
        lines += ["WHAT IS PROMISED", *_wrap(self.promise, most=8)]
        lists = {
            "ASSUMPTIONS THE SOFTWARE ENFORCED": self.enforced or ("None.",),
            "ASSUMPTIONS SOMEBODY DECLARED, AND ANSWERS FOR": self.declared or ("None.",),
            "WHAT IS NOT COVERED": self.limits or ("Nothing was stated.",),
        }
        left = LINES - len(lines) - len(lists)
        bullets = {title: [line for text in texts for line in _bullet(text)] for title, texts in lists.items()}
        shares = _shares([len(each) for each in bullets.values()], left)
        for (title, each), share in zip(bullets.items(), shares, strict=True):
            lines += [title, *_cut(each, share)]
        return "\n".join(lines)

    def protects(self, *, short: bool = False) -> str:
        """Who is protected: `unit` where ids of owners were counted, else the row that is declared to be one."""
        most = self.parameters.get("contributions")
        return protected(self.unit, self.enforced, most if isinstance(most, int) else 1, short=short)

    @property
    def promise(self) -> str:
        """P(S | D) <= e^epsilon P(S | D') + delta, for every event S and neighbours D, D', in words."""
        if self.epsilon == math.inf:
            return "NOTHING: at this delta there is no bound on what the release tells about one unit."
        most = self.parameters.get("contributions") or 1
        records = "record" if most == 1 else f"records (at most {most})"
        change = {
            Neighbours.REPLACE: f"had the {records} of one unit been replaced by any other",
            Neighbours.REPLACE_RESPONSE: "had the response of one unit been any other (its covariates are public)",
            Neighbours.ADD_REMOVE: "had one unit been left out, or one more been added",
        }[self.neighbours]
        chance = f", plus a probability of {round_up_significant(self.delta)}" if self.delta else ""
        factor = _factor(self.epsilon)
        words = [
            "The chance of any finding drawn from this release is at most "
            f"{factor} times what it would be {change}{chance}."
        ]
        if not self.delta:
            words += ["Whatever is known beforehand, the odds on a guess about one unit rise by no larger factor."]
        if self.epsilon > math.log(1000.0):
            words += ["A factor above 1,000 protects little in the worst case."]
        if self.n and self.delta * self.n >= 1.0:
            words += ["At a delta of 1/n or more a release could publish whole records and keep this promise."]
        words += [
            f"In the field's terms: differential privacy with epsilon <= {round_up(self.epsilon, 4)} and "
            f"delta <= {round_up_significant(self.delta)} ({self.neighbours.value} neighbours), by this rule: "
            f"{self.rule}."
        ]
        return " ".join(words)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from discretion.privacy import html

        return html.in_notebook(html.summary(self) + html.certificate_card(self))

    def __repr__(self) -> str:
        mark = "" if self.bookable else f"{TEST_ONLY}, "
        booked = f", booked as {self.ledger_entry}" if self.ledger_entry else ""
        return (
            f"<Certificate: {mark}{self.mechanism}, epsilon <= {round_up(self.epsilon, 4)} "
            f"at delta {round_up_significant(self.delta)}, {self.neighbours.value}{booked}>"
        )


def read_json(text: str) -> Any:
    """The data of a certificate's JSON text.

    Raises:
        ValueError: not JSON, or JSON that readers may understand in different ways: NaN, or one key twice.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise ValueError(f"This is not a certificate: no JSON at line {error.lineno}.") from None
    except RecursionError:
        raise ValueError("This is not a certificate: its JSON is nested too deeply.") from None


def _refuse_constant(_: str) -> float:
    raise ValueError('A certificate holds no NaN, and writes infinity as the string "inf".')


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("This is not a certificate: a key stands twice in one object.")
    return found


def _check_schema(schema: Any) -> None:
    if isinstance(schema, bool) or schema != SCHEMA:
        raise ValueError(
            f"This certificate has layout {schema!r}, and this version of discretion reads layout {SCHEMA}. "
            "Read it with the version that wrote it, or upgrade."
        )


def _number(name: str, value: Any, least: float, most: float) -> float:
    """`value` as a float in [least, most]; NaN fails the comparison and is refused with the rest."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"A certificate's {name} must be a number.")
    # A whole number may be too large for a double; infinity is written in words.
    if not least <= value <= most or (isinstance(value, int) and value > sys.float_info.max):
        raise ValueError(f"A certificate's {name} must lie in [{least:g}, {most:g}].")
    return float(value)


def _factor(epsilon: float) -> str:
    """e^epsilon, rounded up: two decimals below 100, whole below a million, then the next power of ten."""
    if epsilon > math.log(1e6):
        return f"10^{math.ceil(epsilon / math.log(10.0))}"
    factor = math.exp(epsilon) * (1.0 + 1e-15)
    return round_up(factor, 2) if factor < 100.0 else f"{math.ceil(factor):,}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def _wrap(text: str, most: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        max_lines=most,
        placeholder=" ... (more in the JSON)",
    )


def _bullet(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _cut(lines: list[str], most: int) -> list[str]:
    """At most `most` lines, the last of which says so where some were left out."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  ... ({len(lines) - most + 1} more lines in the certificate's JSON)"]


def _shares(needs: Sequence[int], total: int) -> list[int]:
    """Share `total` lines: whoever needs less than an even share leaves the rest to the others."""
    shares = [0] * len(needs)
    for rank, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        shares[index] = min(needs[index], total // (len(needs) - rank))
        total -= shares[index]
    return shares
