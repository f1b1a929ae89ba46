"""Fingerprints: the same for the same records only, and worth nothing without the key."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

import numpy as np
import pytest

from discretion.privacy import Ledger, LedgerError, PublicError, fingerprint

KEY = bytes(range(32))


@dataclass
class Table:
    covariates: np.ndarray
    response: np.ndarray
    units: None = None


X = np.array([[0.125, 2.0], [3.0, 4.0]])
Y = np.array([1.0, 0.7312498650219173])


def test_the_same_records_have_the_same_fingerprint_however_they_lie_in_memory():
    one = fingerprint(Table(X, Y), KEY)
    assert len(one) == 64
    assert one == fingerprint(Table(np.asfortranarray(X), Y[::-1][::-1]), KEY)
    assert one == fingerprint(Table(X.astype(">f8"), Y), KEY)
    assert fingerprint((X, Y), KEY) == fingerprint([X, Y], KEY)
    assert fingerprint({"a": X, "b": Y}, KEY) == fingerprint({"b": Y, "a": X}, KEY)


def test_other_records_another_key_and_another_structure_have_others():
    seen = [
        fingerprint(records, KEY)
        for records in (
            (X, Y),
            (X, Y[::-1]),
            (X[::-1], Y),
            (X, np.nextafter(Y, 2)),
            (X.ravel(), Y),
            (X.T, Y),
            (X.astype("f4"), Y),
            (Y, X),
            ((X,), Y),
            {"x": X, "y": Y},
            Table(X, Y),
            (X, Y, None),
            np.array(["a", "bc"]),
            np.array(["ab", "c"]),
        )
    ]
    seen.append(fingerprint((X, Y), KEY[::-1]))
    assert len(set(seen)) == len(seen)


def test_a_file_counts_by_its_bytes(tmp_path):
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_bytes(b"x,y\n1,2\n" * 300_000)
    other.write_bytes(path.read_bytes())
    assert fingerprint(path, KEY) == fingerprint(other, KEY)
    expected = hmac.new(KEY, b"discretion fingerprint 1file 2400000:" + path.read_bytes(), "sha256").hexdigest()
    assert fingerprint(path, KEY) == expected
    other.write_bytes(path.read_bytes() + b"\n")
    assert fingerprint(path, KEY) != fingerprint(other, KEY)


@pytest.mark.parametrize("key", [b"", b"short", "x" * 32, None])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(ValueError, match="at least 16 random bytes"):
        fingerprint(X, key)


def test_records_of_another_kind_are_refused_without_quoting_them():
    for records in (object(), np.array([0.7312498650219173, "x", None], dtype=object), np.array([1j])):
        with pytest.raises(ValueError, match="A fingerprint is of arrays") as caught:
            fingerprint(records, KEY)
        assert "0.73" not in str(caught.value)


def test_a_ledger_knows_its_records_and_writes_none_of_them_down(place):
    ledger = Ledger.create(place(), dataset="d", epsilon=1.0, delta=0.0, fingerprint=fingerprint((X, Y), KEY))
    ledger.check_fingerprint((X, Y), KEY)
    for records, key in (((X, Y[::-1]), KEY), ((X, Y), KEY[::-1])):
        with pytest.raises(PublicError, match="not the records that the ledger was created for"):
            ledger.check_fingerprint(records, key)
    assert "0.7312498650219173" not in "".join(ledger.export())
    bare = Ledger.create(place(), dataset="d", epsilon=1.0, delta=0.0)
    with pytest.raises(LedgerError, match="without a fingerprint"):
        bare.check_fingerprint((X, Y), KEY)
