"""``discretion certificate``: sign what was released, and check what others released."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from discretion.bayesopt import recomputation as of_searches
from discretion.bilevel import recomputation as of_bilevel
from discretion.cli import options
from discretion.cli import prior as priors
from discretion.cli.console import NOT_CHECKED, REFUSED, note, plain_errors, show
from discretion.posterior import LatticeMechanism
from discretion.posterior import recomputation as of_posteriors
from discretion.privacy import Certificate, Ledger, State
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
        losses, sentences = LOSSES, SENTENCES
        if prior is not None:
            if made.mechanism != LatticeMechanism.name:
                raise ValueError(f"--prior: a release by {made.mechanism} has no graph.")
            graph = priors.graph_of(prior, made.parameters)
            losses = losses | {LatticeMechanism.name: partial(of_posteriors.lattice_loss_of, prior=graph)}
            sentences = sentences | {LatticeMechanism.name: of_posteriors.lattice_sentences(graph)}
        losses, sentences = losses | selection_losses(losses), sentences | selection_sentences(losses, sentences)
        checked = verify(made, losses, sentences)
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


def _not_booked(made: Certificate, book: Ledger) -> list[str]:
    """Why the certificate is not that of its ledger entry; nothing if it is."""
    name, _, number = (made.ledger_entry or "").partition("#")
    if made.ledger_entry is None:
        return ["It names no ledger entry."]
    entries = {str(entry.id): entry for entry in book.entries()}
    if name != str(book.id) or number not in entries:
        return [f"This ledger has no entry {made.ledger_entry}."]
    entry = entries[number]
    if entry.state is not State.BOOKED:
        return [f"Entry {number} of the ledger is {entry.state}, not booked."]
    about = entry.description
    # What the ledger was told beforehand may leave open (null) what the certificate then says, such as a nugget.
    told = about.get("parameters", {})
    other = [key for key, value in told.items() if value is not None and made.parameters.get(key, value) != value]
    names = {"mechanism": made.mechanism, "n": made.n, "unit": made.unit}
    other += [key for key, value in names.items() if key in about and about[key] not in (value, None)]
    reasons = [f"The ledger's entry {number} has another {key}." for key in other]
    booked = entry.loss.epsilon(made.delta)
    if made.epsilon < booked * (1.0 - ROUNDING):
        reasons += [f"epsilon {made.epsilon!r} is stated, and {booked!r} was booked at delta {made.delta!r}."]
    return reasons
