"""Signed certificates: whatever is changed after signing is found, and keys stay with their owner."""

from __future__ import annotations

import base64
import builtins
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

import discretion.privacy.certificate as module
from discretion.privacy import BadSignature, Certificate, GaussianDP, Neighbours, SignedCertificate
from discretion.privacy.certificate import canonical
from discretion.privacy.signing import (
    fingerprint,
    generate_key,
    read_certificate,
    read_private_key,
    read_public_key,
    signed_bytes,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LOSS = 2 * GaussianDP(0.5, neighbours=Neighbours.REPLACE)
CERTIFICATE = Certificate(
    mechanism="Gaussian sum",
    parameters={"scale": 4.0, "grid": [3, 4], "deep": {"x": 1e-5, "none": None, "on": True}},
    n=1234,
    neighbours=Neighbours.REPLACE,
    unit="one flat in Z\u00fcrich",
    epsilon=1.5,
    delta=1e-5,
    order=2.5,
    rule="made up",
    loss=LOSS.to_dict() | {"table": [0.1, 0.2]},
    enforced=("Clipped to [0, 1].",),
    declared=("No flat twice.",),
    limits=("Rounding.",),
    bookable=True,
    randomness="SystemRandomness",
    created="2026-03-01T09:30:00Z",
    library_version="0.1.0",
    ledger_entry="a#3",
)


def leaves(value, path=()):
    """Every place of a JSON value that is not a container."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def altered(data, path):
    """A copy of `data` with the leaf at `path` changed as little as its kind allows."""
    copy = json.loads(json.dumps(data))
    at = copy
    for step in path[:-1]:
        at = at[step]
    old = at[path[-1]]
    if isinstance(old, bool):
        new: object = not old
    elif isinstance(old, int):
        new = old + 1
    elif isinstance(old, float):
        new = old * (1 + 2**-51)
    elif isinstance(old, str):
        new = {"replace": "add-remove", CERTIFICATE.created: "2026-03-01T09:30:01Z"}.get(old, old + " ")
    else:
        new = "something"
    assert new != old
    at[path[-1]] = new
    return copy


def test_a_signature_is_over_the_canonical_form_and_is_deterministic():
    signed = CERTIFICATE.sign(KEY)
    assert signed_bytes(CERTIFICATE).startswith(b"discretion certificate 1\n{")
    assert signed_bytes(CERTIFICATE).split(b"\n", 1)[1].decode() == canonical(CERTIFICATE.data())
    KEY.public_key().verify(signed.signature, signed_bytes(CERTIFICATE))
    assert signed == CERTIFICATE.sign(KEY)
    signed.verify_signature()
    signed.verify_signature(KEY.public_key())


def test_envelope_reads_back_and_fits_the_schema(tmp_path):
    signed = CERTIFICATE.sign(KEY)
    assert SignedCertificate.from_json(signed.to_json()) == signed
    assert read_certificate(signed.to_json()) == signed
    assert read_certificate(CERTIFICATE.to_json()) == CERTIFICATE
    signed.save(tmp_path / "c.json")
    assert read_certificate((tmp_path / "c.json").read_text(encoding="utf-8")) == signed
    schema = json.loads(Path(module.__file__).with_name("certificate.schema.json").read_text(encoding="utf-8"))
    known = replace(CERTIFICATE, loss=LOSS.to_dict()).sign(KEY)
    jsonschema.Draft202012Validator(schema).validate(json.loads(known.to_json()))
    # the text may be laid out anew, as long as the values are the same
    SignedCertificate.from_json(json.dumps(json.loads(signed.to_json()), indent=7)).verify_signature(KEY.public_key())


@pytest.mark.parametrize("path", leaves(CERTIFICATE.data()), ids=lambda path: ".".join(map(str, path)))
def test_a_change_of_any_field_is_found(path):
    data = json.loads(CERTIFICATE.sign(KEY).to_json())
    data["certificate"] = altered(data["certificate"], path)
    if path == ("schema",):
        with pytest.raises(ValueError, match="layout 2"):
            SignedCertificate.from_json(json.dumps(data))
        return
    with pytest.raises(BadSignature, match="changed after signing"):
        SignedCertificate.from_json(json.dumps(data)).verify_signature(KEY.public_key())


def test_removing_or_adding_a_parameter_is_found():
    signed = CERTIFICATE.sign(KEY)
    for parameters in ({}, CERTIFICATE.parameters | {"more": None}):
        changed = replace(signed, certificate=replace(CERTIFICATE, parameters=parameters))
        with pytest.raises(BadSignature):
            changed.verify_signature()


def test_a_signature_by_somebody_else_is_found():
    other = Ed25519PrivateKey.generate()
    forged = CERTIFICATE.sign(other)
    forged.verify_signature()  # nothing was changed since somebody signed
    with pytest.raises(BadSignature, match="another key"):
        forged.verify_signature(KEY.public_key())
    disguised = replace(forged, public_key=KEY.public_key().public_bytes_raw())
    for key in (None, KEY.public_key()):
        with pytest.raises(BadSignature):
            disguised.verify_signature(key)
    with pytest.raises(ValueError, match="Ed25519 private key"):
        CERTIFICATE.sign(X25519PrivateKey.generate())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 2),
        (("schema",), True),
        (("signature",), None),
        (("signature", "algorithm"), "none"),
        (("signature", "value"), ""),
        (("signature", "value"), "A" * 88),
        (("signature", "value"), 7),
        (("signature", "public_key"), base64.b64encode(b"x" * 31).decode()),
        (("signature", "extra"), 1),
        (("extra",), 1),
        (("certificate",), None),
    ],
)
def test_what_is_not_an_envelope_is_refused(path, value):
    data = json.loads(CERTIFICATE.sign(KEY).to_json())
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ValueError, match=r"certificate|Ed25519"):
        SignedCertificate.from_json(json.dumps(data))


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_keys_are_written_for_their_owner_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "k.pem"
    key = generate_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_private_key(path).public_key() == key == read_public_key(f"{path}.pub")
    assert len(fingerprint(key.public_bytes_raw()).split()) == 8
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        generate_key(path)
    assert path.read_bytes() == before
    (tmp_path / "l.pem.pub").write_text("mine")
    with pytest.raises(FileExistsError):
        generate_key(tmp_path / "l.pem")
    assert not (tmp_path / "l.pem").exists()
    path.chmod(0o640)
    with pytest.raises(ValueError, match="others may read"):
        read_private_key(path)


def test_files_that_are_no_keys_are_refused_in_plain_words(tmp_path):
    path = tmp_path / "k.pem"
    generate_key(path)
    with pytest.raises(ValueError, match=r"ends in \.pub"):
        read_public_key(path)
    other = X25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "x.pub").write_bytes(other)
    assert load_pem_public_key(other)
    with pytest.raises(ValueError, match="Ed25519 public key"):
        read_public_key(tmp_path / "x.pub")
    (tmp_path / "junk").write_text("no key")
    (tmp_path / "junk").chmod(0o600)
    with pytest.raises(ValueError, match="keygen"):
        read_private_key(tmp_path / "junk")


def test_without_cryptography_the_error_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest, **named)

    signed = CERTIFICATE.sign(KEY)
    monkeypatch.setattr(builtins, "__import__", without)
    for call in (
        lambda: CERTIFICATE.sign(KEY),
        signed.verify_signature,
        lambda: generate_key(tmp_path / "k"),
        lambda: read_public_key(tmp_path / "k.pub"),
    ):
        with pytest.raises(ImportError, match=r"discretion\[signing\]"):
            call()
    assert not (tmp_path / "k").exists()
    assert SignedCertificate.from_json(signed.to_json()).certificate == CERTIFICATE
