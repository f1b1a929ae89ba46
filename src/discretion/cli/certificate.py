"""``discretion certificate``: sign what was released, and check what others released."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from discretion.bayesopt import recomputation as of_searches
from discretion.bilevel import recomputation as of_bilevel
from discretion.cli import options
from discretion.cli import prior as priors
from discretion.cli.console import NOT_CHECKED, REFUSED, note, plain_errors, show
from discretion.posterior import LatticeMechanism
from discretion.posterior import recomputation as of_posteriors
from discretion.privacy import Certificate, Entry, Ledger, PrivacyLoss, State, Verification
from discretion.privacy.signing import (
    BadSignature,
    SignedCertificate,
    fingerprint,
    generate_key,
    read_certificate,
    read_private_key,
    read_public_key,
)
from discretion.privacy.verification import ROUNDING, verify
from discretion.selection.recomputation import selection_losses, selection_sentences

certificate = typer.Typer(no_args_is_help=True, help="Sign certificates, and verify them.")

File = Annotated[
    Path, typer.Argument(metavar="CERT", help="Folder of a release, or its certificate.json, signed or not.")
]
MOST_BYTES = 1 << 26
DIGEST = "certificate_sha256"
LOSSES = of_posteriors.LOSSES | of_searches.LOSSES | of_bilevel.LOSSES
SENTENCES = of_posteriors.SENTENCES | of_searches.SENTENCES | of_bilevel.SENTENCES


@certificate.command()
def keygen(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; the public key goes to FILE.pub.")],
) -> None:
    """Make an Ed25519 key pair. An existing file is never overwritten; the private key is for its owner alone."""
    with plain_errors():
        key = generate_key(file)
        show(
            {},
            as_json=False,
            lines=[
                f"{file}: private key, keep it secret. {file}.pub: public key, give it to those who verify.",
                f"Fingerprint: {fingerprint(key.public_bytes_raw())}",
            ],
        )


@certificate.command()
def sign(
    file: File,
    key: Annotated[Path, typer.Option(help="Private key, made by keygen.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the signed certificate goes; by default CERT with .signed.json.")
    ] = None,
) -> None:
    """Sign a certificate: whoever has the public key can tell that nothing in it was changed since."""
    with plain_errors():
        file = file_of(file)
        made = read(file)
        if isinstance(made, SignedCertificate):
            raise ValueError(f"{file} is signed already; sign the certificate itself.")
        target = file.with_suffix(".signed.json") if out is None else out
        if target.exists():
            raise ValueError(f"{target} is there already; choose another --out.")
        if not made.bookable:
            note("TEST ONLY: the noise came from a known seed, signed or not. This must not be published.")
        signed = made.sign(read_private_key(key))
        signed.save(target)
        show({}, as_json=False, lines=[f"{target}: signed with the key {fingerprint(signed.public_key)}."])


@certificate.command("verify")
def verify_(
    file: File,
    public_key: Annotated[
        Path | None, typer.Option(help="The signer's public key, from a source that you trust (FILE.pub).")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger, a file or a postgresql:// URL, that is to have booked the release.")
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="Public file that the graph was made from: the districts, or the precision (SciPy's .npz). Hexagons "
            "and squares need none."
        ),
    ] = None,
    json_: options.Json = False,
) -> None:
    """Compute every number of a certificate again from its parameters, and check its signature and its ledger entry.

    Exit code 4: it states less than the release costs, or was changed after signing, or is not what was booked. Exit
    code 6: nothing of it is refuted, and this version has no recomputation for it, so its price was not checked.
    """
    with plain_errors():
        found = read(file)
        made = found.certificate if isinstance(found, SignedCertificate) else found
        key = None if public_key is None else read_public_key(public_key)
        signature, fits, refused = "none", True, []
        if isinstance(found, SignedCertificate):
            signature = fingerprint(found.public_key)
            try:
                found.verify_signature(key)
            except BadSignature as error:
                fits, refused = False, [*refused, str(error)]
        elif key is not None:
            refused += ["It is not signed."]
        checked = examined(made, prior)
        refused += checked.refused
        if ledger is not None:
            refused += _not_booked(made, Ledger.open(ledger))
        checked = replace(checked, refused=tuple(refused))
        show(
            {
                "verdict": checked.verdict.lower(),
                "verified": checked.verified,
                "refused": refused,
                "not_checked": list(checked.unchecked),
                "differences": list(checked.differences),
                "epsilon": made.epsilon,
                "computed_epsilon": None if checked.computed is None else checked.computed.epsilon,
                "delta": made.delta,
                "bookable": made.bookable,
                "protects": made.protects(),
                "enforced": list(made.enforced),
                "declared": list(made.declared),
                "signed_by": None if signature == "none" else signature,
                "signer_known": key is not None,
            },
            as_json=json_,
            lines=[
                *checked.lines(_in_short(signature, key is not None, fits)),
                _who_signed(signature, key is not None, fits),
            ],
        )
        if not checked.verified:
            raise typer.Exit(REFUSED if refused else NOT_CHECKED)


def examined(made: Certificate, prior: Path | None = None) -> Verification:
    """What `verify` finds, with all rules that are at hand; that of a release by public districts needs their file."""
    losses, sentences = LOSSES, SENTENCES
    if prior is not None:
        if made.mechanism != LatticeMechanism.name:
            raise ValueError(f"--prior: a release by {made.mechanism} has no graph.")
        graph = priors.graph_of(prior, made.parameters)
        losses = losses | {LatticeMechanism.name: partial(of_posteriors.lattice_loss_of, prior=graph)}
        sentences = sentences | {LatticeMechanism.name: of_posteriors.lattice_sentences(graph)}
    losses, sentences = losses | selection_losses(losses), sentences | selection_sentences(losses, sentences)
    return verify(made, losses, sentences)


def file_of(place: Path) -> Path:
    """The certificate's file: of a release's folder the one in it."""
    return place / "certificate.json" if place.is_dir() else place


def read(place: Path) -> Certificate | SignedCertificate:
    """The certificate in a file, or in the folder of a release."""
    file = file_of(place)
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{file}: no certificate is as large as this file.")
    try:
        return read_certificate(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a certificate: no text in UTF-8.") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _in_short(signature: str, known: bool, fits: bool) -> str:
    """What is said of the signature beside the verdict."""
    if signature == "none":
        return "not signed"
    return "signature does not match" if not fits else "signed" if known else "signed by a key not checked"


def _who_signed(signature: str, known: bool, fits: bool) -> str:
    if signature == "none":
        return "Not signed: nothing shows who made this certificate, or that its words were not changed."
    if not fits:
        whose = "the public key given" if known else f"the key {signature}"
        return f"Signature does NOT match {whose}: nothing shows who made this certificate."
    if known:
        return f"Signature checked with the public key given: {signature}."
    return f"Signed with the key {signature}; whose it is, only --public-key from a source you trust can tell."


def digest_of(made: Certificate) -> str:
    """What an entry that was recorded afterwards keeps of its release's certificate."""
    return hashlib.sha256(made.to_json().encode()).hexdigest()


def recorded(made: Certificate, book: Ledger) -> Entry | None:
    """The entry by which `record-past` wrote down the release of a certificate, if it did."""
    digest = digest_of(made)
    return next((entry for entry in book.entries() if entry.past and entry.description.get(DIGEST) == digest), None)


def _not_booked(made: Certificate, book: Ledger) -> list[str]:
    """Why the certificate is not that of its ledger entry; nothing if it is."""
    name, _, number = (made.ledger_entry or "").partition("#")
    entry = recorded(made, book)
    if entry is None:
        if made.ledger_entry is None:
            return ["It names no ledger entry."]
        entries = {str(entry.id): entry for entry in book.entries()}
        if name != str(book.id) or number not in entries:
            return [f"This ledger has no entry {made.ledger_entry}."]
        entry = entries[number]
    if entry.state is not State.BOOKED:
        return [f"Entry {entry.id} of the ledger is {entry.state}, not booked."]
    about = entry.description
    # What the ledger was told beforehand may leave open (null) what the certificate then says, such as a nugget.
    told = about.get("parameters", {})
    other = [key for key, value in told.items() if value is not None and made.parameters.get(key, value) != value]
    names = {"mechanism": made.mechanism, "n": made.n, "unit": made.unit}
    other += [key for key, value in names.items() if key in about and about[key] not in (value, None)]
    reasons = [f"The ledger's entry {entry.id} has another {key}." for key in other]
    try:
        stated = PrivacyLoss.from_dict(made.loss)
    except ValueError as error:
        return [*reasons, f"Its loss can't be compared with what was booked: {error}"]
    return reasons + _less(stated, made, entry, book)


def _less(stated: PrivacyLoss, made: Certificate, entry: Entry, book: Ledger) -> list[str]:
    """Where the loss of a certificate is less than what was booked.

    Certificate and ledger keep a curve as a table, each with the order that matters for its own delta, so between
    its orders either may be the higher bound. At the orders of all tables of the ledger's it has the curve itself.
    """
    described = entry.loss.to_dict(book.budget.delta or None)
    orders = np.array(sorted(_shared_orders(described) or ()))
    booked = entry.loss.renyi_excess(orders) if orders.size else np.array([])
    if np.isfinite(booked).any():
        found = stated.renyi_excess(orders)
        low = found < booked * (1.0 - ROUNDING) - 2.0**-48 / orders  # near order 1 rounding is divided by the excess
        if not low.any():
            return []
        k = int(np.argmax(low))
        return [
            f"At the Renyi order {float(1.0 + orders[k])!r} a divergence of {float(found[k])!r} is stated, and "
            f"{float(booked[k])!r} was booked."
        ]
    for delta in dict.fromkeys((made.delta, book.budget.delta)):
        one, other = stated.epsilon(delta), entry.loss.epsilon(delta)
        if one < other * (1.0 - ROUNDING):
            return [f"epsilon {one!r} is stated, and {other!r} was booked at delta {delta!r}."]
    return []


def _shared_orders(description: Any) -> set[float] | None:
    """The excess orders that all tables of a stored loss have; None if it has no table."""
    if isinstance(description, dict):
        if isinstance(description.get("excess"), list):
            return set(description["excess"])
        description = list(description.values())
    found = [_shared_orders(each) for each in description] if isinstance(description, list) else []
    return set.intersection(*tables) if (tables := [each for each in found if each is not None]) else None
