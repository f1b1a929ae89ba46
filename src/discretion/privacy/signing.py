"""Signed certificates: Ed25519 (RFC 8032) over the canonical form, by the `cryptography` library.

The signature stands beside the certificate, in an envelope:

    {"certificate": {...}, "schema": 1,
     "signature": {"algorithm": "Ed25519", "public_key": "<base64>", "value": "<base64>"}}

What is signed is the line `discretion certificate 1`, a line feed and the canonical form of the certificate, in UTF-8.
The public key in the envelope helps to find the right one; it proves nothing, because anybody can sign with some key.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from discretion.privacy.certificate import SCHEMA, Certificate, canonical, read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "ALGORITHM",
    "BadSignature",
    "SignedCertificate",
    "fingerprint",
    "generate_key",
    "read_certificate",
    "read_private_key",
    "read_public_key",
    "signed_bytes",
]

ALGORITHM = "Ed25519"


class BadSignature(ValueError):
    """The signature is not this key's signature of this certificate."""


def signed_bytes(certificate: Certificate) -> bytes:
    """What is signed of a `certificate`: a line that names the purpose, then the canonical form."""
    return f"discretion certificate {SCHEMA}\n{canonical(certificate.data())}".encode()


def fingerprint(public_key: bytes) -> str:
    """The first 128 bits of SHA-256 of a raw `public_key`, hexadecimal in groups of four: to be compared by eye."""
    digest = hashlib.sha256(public_key).hexdigest()[:32]
    return " ".join(digest[i : i + 4] for i in range(0, 32, 4))


@dataclass(frozen=True)
class SignedCertificate:
    """A certificate in an envelope with its signature.

    Attributes:
        certificate: what was signed.
        public_key: the 32 bytes of the signer's public key, as the signer gave them.
        signature: 64 bytes.

    Raises:
        ValueError: a field of the wrong kind or length.
    """

    certificate: Certificate
    public_key: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.certificate, Certificate):
            raise ValueError("A signed certificate needs a Certificate as its field 'certificate'.")
        for name, length in (("public_key", 32), ("signature", 64)):
            value = getattr(self, name)
            if not isinstance(value, bytes) or len(value) != length:
                raise ValueError(f"An Ed25519 {name.replace('_', ' ')} has {length} bytes.")

    @classmethod
    def of(cls, certificate: Certificate, key: Ed25519PrivateKey) -> Self:
        """`certificate`, signed with `key`.

        Raises:
            ValueError: the key is of another kind.
            ImportError: `cryptography` is not installed.
        """
        if not isinstance(key, _ed25519().Ed25519PrivateKey):
            raise ValueError("Certificates are signed with an Ed25519 private key; read_private_key reads one.")
        return cls(certificate, _raw(key.public_key()), key.sign(signed_bytes(certificate)))

    def verify_signature(self, public_key: Ed25519PublicKey | None = None) -> None:
        """Return if the signature is this key's.

        Args:
            public_key: the signer's, from a source that you trust. Without it the envelope's own is used, which shows
                that nothing was changed since somebody signed, not who did.

        Raises:
            BadSignature: it is not.
            ImportError: `cryptography` is not installed.
        """
        ed25519 = _ed25519()
        from cryptography.exceptions import InvalidSignature

        if public_key is not None and _raw(public_key) != self.public_key:
            raise BadSignature(
                f"This certificate was signed with another key: {fingerprint(self.public_key)} instead of "
                f"{fingerprint(_raw(public_key))}."
            )
        try:
            key = ed25519.Ed25519PublicKey.from_public_bytes(self.public_key)
            key.verify(self.signature, signed_bytes(self.certificate))
        except (InvalidSignature, ValueError):
            raise BadSignature(
                "The signature does not fit: certificate or signature were changed after signing."
            ) from None

    def to_json(self) -> str:
        """The envelope as JSON, keys sorted."""
        signature = {"algorithm": ALGORITHM, "public_key": _text(self.public_key), "value": _text(self.signature)}
        data = {"schema": SCHEMA, "certificate": self.certificate.data(), "signature": signature}
        return canonical(data, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The envelope that `to_json` wrote.

        Raises:
            ValueError: not a signed certificate.
        """
        return cls._from_data(read_json(text))

    @classmethod
    def _from_data(cls, data: Any) -> Self:
        signature = data.get("signature") if isinstance(data, dict) else None
        keys = {"algorithm", "public_key", "value"}
        if not isinstance(signature, dict) or signature.keys() != keys or data.keys() != _ENVELOPE:
            raise ValueError(f"This is not a signed certificate: it has the fields {', '.join(sorted(_ENVELOPE))}.")
        if data["schema"] != SCHEMA or isinstance(data["schema"], bool) or signature["algorithm"] != ALGORITHM:
            raise ValueError(f"This certificate is not signed by {ALGORITHM} in layout {SCHEMA}; upgrade discretion.")
        return cls(
            Certificate.from_data(data["certificate"]),
            _bytes(signature["public_key"]),
            _bytes(signature["value"]),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to the file `path`."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")


_ENVELOPE = {"schema", "certificate", "signature"}


def read_certificate(text: str) -> Certificate | SignedCertificate:
    """The certificate, or the signed certificate, of this JSON text.

    Raises:
        ValueError: neither, or its words hold control characters: a terminal would show other words than are there.
    """
    data = read_json(text)
    if isinstance(data, dict) and "signature" in data:
        found = SignedCertificate._from_data(data)
        made = found.certificate
    else:
        found = made = Certificate.from_data(data)
    names = (made.mechanism, made.unit, made.rule, made.randomness, made.library, made.library_version)
    for words in (*names, made.ledger_entry or "", *made.enforced, *made.declared, *made.limits):
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in words):
            raise ValueError(f"A certificate holds plain words, without control characters; this has {words!r}.")
    return found


# --- Keys -------------------------------------------------------------------------------------------


def generate_key(path: str | os.PathLike[str]) -> Ed25519PublicKey:
    """Write a new private key to `path` (PKCS #8, PEM, mode 0600) and its public key to `path`.pub.

    Raises:
        FileExistsError: either is there; a key is never overwritten.
        ImportError: `cryptography` is not installed.
    """
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ed25519.Ed25519PrivateKey.generate()
    public = Path(f"{os.fspath(path)}.pub")
    if public.exists():
        raise FileExistsError(17, "File exists", str(public))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # O_EXCL: nothing is overwritten and no link followed; the mode holds from the first byte on.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return key.public_key()


def read_private_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """The private key in the PEM file at `path`.

    Raises:
        ValueError: no Ed25519 private key without a passphrase, or (on POSIX) others may read the file.
        ImportError: `cryptography` is not installed.
    """
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if os.name == "posix" and stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise ValueError(f"{path}: others may read or change this private key; chmod 600 it, or make a new one.")
    key = _loaded(lambda data: load_pem_private_key(data, None), path)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{path} is not an Ed25519 private key in PEM; discretion certificate keygen makes one.")
    return key


def read_public_key(path: str | os.PathLike[str]) -> Ed25519PublicKey:
    """The public key in the PEM file at `path`.

    Raises:
        ValueError: no Ed25519 public key.
        ImportError: `cryptography` is not installed.
    """
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(load_pem_public_key, path)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ValueError(f"{path} is not an Ed25519 public key in PEM; it is the file that ends in .pub.")
    return key


def _loaded(load: Any, path: str | os.PathLike[str]) -> Any:
    """What `load` makes of the file, None if it cannot."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(Path(path).read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ImportError('Signing needs cryptography: pip install "discretion[signing]".') from None
    return ed25519


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes_raw()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: Any) -> bytes:
    try:
        found = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if not found or _text(found) != text:
        raise ValueError("This is not a signed certificate: its key and signature are texts in base64.")
    return found
