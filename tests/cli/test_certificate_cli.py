"""``discretion certificate``, run as a user runs it."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion import RBF, Box, Certificate, Ledger
from discretion.cli import app
from discretion.cli.console import BAD_INPUT, NOT_CHECKED, REFUSED
from discretion.posterior import KernelSumMechanism, PosteriorSampler
from discretion.posterior.records import Records
from discretion.privacy import SeededRandomness
from discretion.selection import PublicScore, geometric, select


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["certificate", *map(str, words)])
        assert result.exit_code == code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stderr if code == BAD_INPUT else result.stdout

    return call


MECHANISM = KernelSumMechanism.calibrated(
    n=20,
    epsilon=1.0,
    delta=1e-3,
    kernels=RBF(0.3),
    domain=Box((0.0, 0.0), (1.0, 1.0)),
    response_ranges=(-1, 1),
    grid=(4, 4),
    unit="one sale",
)


@pytest.fixture
def booked(tmp_path) -> tuple[Path, Path]:
    """A certificate, and the ledger in which its release was booked."""
    rng = np.random.default_rng(0)
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=9, delta=1e-3)
    records = Records(rng.uniform(size=(20, 2)), rng.uniform(size=20))
    release = book.run(MECHANISM, records, n=20)
    path = tmp_path / "certificate.json"
    release.certificate.save(path)
    return path, tmp_path / "book"


def change(path: Path, **changes: object) -> Path:
    data = json.loads(path.read_text())
    data.get("certificate", data).update(changes)
    path.write_text(json.dumps(data))
    return path


def test_key_sign_verify(run, booked, tmp_path):
    certificate, book = booked
    key = tmp_path / "key.pem"
    said = run("keygen", key)
    assert "keep it secret" in said
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "xists" in run("keygen", key, code=BAD_INPUT)
    run("sign", certificate, "--key", key)
    signed = tmp_path / "certificate.signed.json"
    assert "already" in run("sign", certificate, "--key", key, code=BAD_INPUT)
    assert "signed already" in run("sign", signed, "--key", key, code=BAD_INPUT)
    said = run("verify", signed, "--public-key", f"{key}.pub", "--ledger", book)
    assert said.startswith("VERIFIED, signed: kernel-sum, epsilon <= 1.0000 at delta = 0.001 (replace neighbours).")
    assert "Enforced by the software" in said
    assert "Declared by somebody, and not checked" in said
    assert "Signature checked" in said
    assert "one sale" in said
    unknown = run("verify", signed)
    assert "whose it is" in unknown
    assert unknown.startswith("VERIFIED, signed by a key not checked:")
    bare = run("verify", certificate, "--ledger", book)
    assert bare.startswith("VERIFIED, not signed: kernel-sum")
    assert "Not signed" in bare
    assert "not signed" in run("verify", certificate, "--public-key", f"{key}.pub", code=REFUSED)
    other = tmp_path / "other.pem"
    run("keygen", other)
    refused = run("verify", signed, "--public-key", f"{other}.pub", code=REFUSED)
    assert "another key" in refused
    assert "Signature does NOT match the public key given" in refused
    assert "Signature checked" not in refused
    change(signed, unit="one hexagon")
    assert "changed after signing" in run("verify", signed, "--public-key", f"{key}.pub", code=REFUSED)
    refused = run("verify", signed, code=REFUSED)
    assert "changed after signing" in refused
    assert "Signature does NOT match the key" in refused


def test_a_certificate_that_understates_is_refused_with_what_and_by_how_much(run, booked):
    certificate, _ = booked
    change(certificate, epsilon=0.75)
    said = run("verify", certificate, code=REFUSED)
    assert said.startswith("REFUSED")
    assert "epsilon 0.75 is stated" in said
    assert "too small by 0.25" in said
    result = json.loads(run("verify", certificate, "--json", code=REFUSED))
    assert result["verified"] is False
    assert result["epsilon"] == 0.75
    assert 0.99 < result["computed_epsilon"] <= 1.0
    assert result["declared"]


def test_what_this_version_cannot_compute_is_told_apart_from_what_it_refutes(run, booked):
    certificate, book = booked
    change(certificate, mechanism="a method of ours")
    said = run("verify", certificate, code=NOT_CHECKED)
    assert said.startswith("NOT CHECKED, not signed: claims to be 'a method of ours'")
    assert "This version has no recomputation for it" in said
    told = json.loads(run("verify", certificate, "--json", code=NOT_CHECKED))
    assert (told["verdict"], told["verified"], told["refused"]) == ("not checked", False, [])
    assert "no recomputation" in told["not_checked"][0]
    # Its entry in the ledger is of another mechanism, and that is a refutation.
    assert run("verify", certificate, "--ledger", book, code=REFUSED).startswith("REFUSED")
    change(certificate, epsilon=0.75)
    assert json.loads(run("verify", certificate, "--json", code=REFUSED))["verdict"] == "refused"


def test_the_ledger_has_the_last_word(run, booked, tmp_path):
    certificate, book = booked
    text = certificate.read_text()
    assert json.loads(run("verify", certificate, "--ledger", book, "--json"))["verified"]
    entry = json.loads(text)["ledger_entry"]
    for changes, words in (
        ({"ledger_entry": None}, "no ledger entry"),
        ({"ledger_entry": entry + "7"}, "has no entry"),
        ({"ledger_entry": "elsewhere#1"}, "has no entry"),
        ({"n": 21}, "another n"),
        ({"unit": "one street"}, "another unit"),
    ):
        certificate.write_text(text)
        change(certificate, **changes)
        assert words in run("verify", certificate, "--ledger", book, code=REFUSED)
    # A consistent certificate of a noisier release than was booked: only ledger and signature know.
    noisier = KernelSumMechanism(
        **{name: getattr(MECHANISM, name) for name in MECHANISM.__dataclass_fields__} | {"scale": 2 * MECHANISM.scale}
    )
    honest = Certificate.from_json(text)
    other = json.loads(noisier.certificate(20, SeededRandomness(1)).to_json())
    certificate.write_text(json.dumps(other | {"ledger_entry": honest.ledger_entry, "bookable": True}))
    run("verify", certificate)
    said = run("verify", certificate, "--ledger", book, code=REFUSED)
    assert "was booked" in said
    assert "another scale" in said


@pytest.mark.parametrize("delta", [1e-3, 1e-4, 1e-6])
def test_paths_booked_at_another_delta_are_verified(run, tmp_path, delta):
    """The ledger keeps their curve at the orders that matter for its own delta, where bounds are a little higher."""
    rng = np.random.default_rng(0)
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=20.0, delta=delta)
    paths = PosteriorSampler((0.0, 1.0), (0.0, 1.0), ridge=20.0, epsilon=3.0, delta=1e-5, paths=3, grid=4, ledger=book)
    paths.fit(rng.uniform(size=(200, 1)), rng.uniform(size=200))
    saved = tmp_path / "certificate.json"
    paths.release_.certificate.save(saved)
    run("verify", saved, "--ledger", tmp_path / "book")


def test_the_folder_of_a_release_will_do(run, booked):
    certificate, book = booked
    assert run("verify", certificate.parent, "--ledger", book) == run("verify", certificate, "--ledger", book)


def test_a_test_only_certificate_says_so(run, tmp_path):
    MECHANISM.certificate(20, SeededRandomness(1)).save(tmp_path / "c.json")
    assert "TEST ONLY" in run("verify", tmp_path / "c.json")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"schema": 1, "signature": 3}', b"[" * 99999])
def test_what_is_no_certificate_is_bad_input(run, tmp_path, content):
    (tmp_path / "c.json").write_bytes(content)
    assert "certificate" in run("verify", tmp_path / "c.json", code=BAD_INPUT)
    assert "no such file" in run("verify", tmp_path / "none.json", code=BAD_INPUT)


def test_a_search_is_verified_with_its_candidates(run, tmp_path):
    rng = np.random.default_rng(0)
    records = Records(rng.uniform(size=(20, 2)), rng.uniform(size=20))
    candidates = [MECHANISM, replace(MECHANISM, kernels=(RBF(0.6),))]
    release = select(candidates, PublicScore(lambda release: 0.0, "none"), geometric(2), records, 20)
    path = tmp_path / "certificate.json"
    release.certificate.save(path)
    assert "VERIFIED, not signed: private-selection" in run("verify", path)
    data = json.loads(path.read_text())
    change(path, parameters=data["parameters"] | {"law": {"law": "negative-binomial", "shape": 1.0, "gamma": 0.1}})
    assert "parameters['mean_runs'] is 2.0" in run("verify", path, code=REFUSED)
    change(path, parameters=data["parameters"] | {"rule": "renyi"})
    assert "is stated" in run("verify", path, code=REFUSED)
