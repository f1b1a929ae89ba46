"""Damaged inputs: that they are refused in plain words, and that the trial would notice what must not happen."""

import json
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.studies import workers

from benchmarks import planted
from discretion import Box
from discretion.cli import options
from discretion.posterior.decoder import Decoder
from discretion.posterior.recomputation import LOSSES
from discretion.privacy import Certificate, LedgerError, PrivacyLoss, PureDP
from discretion.privacy.chain import read_export
from discretion.privacy.verification import verify
from discretion.spatial.districts import Districts
from discretion.spatial.reading import BadTable, read_table
from discretion.spatial.region import Region
from studies import fuzz, fuzz_targets
from studies.damage import Charge, Quote, damaged, damaged_json

UNHURRIED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISCRETION_CACHE", str(tmp_path / "cache"))
    return fuzz_targets.Site(tmp_path)


# --- damage, and what is noticed


def test_damage_is_the_same_for_the_same_seed():
    data = [b"a,b\n1,2\n", b'{"a": 1}']
    some = [damaged(random.Random(k), data[0], data) for k in range(200)]
    assert some == [damaged(random.Random(k), data[0], data) for k in range(200)]
    assert len(set(some)) > 150
    value = {"a": [1.0, {"b": None}], "c": "x"}
    changed = [damaged_json(random.Random(k), value) for k in range(200)]
    assert sum(each != value for each in changed) > 180
    assert value == {"a": [1.0, {"b": None}], "c": "x"}


def failing(error):
    def attempt(site, rng):
        if error is not None:
            raise error
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        return True

    return fuzz_targets.Target("made up", 1.0, attempt)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KeyError("x"), "traceback"), (Quote("x"), "quote"), (Charge("x"), "charge"), (None, "hang")],
)
def test_what_must_not_happen_is_noticed(error, kind, monkeypatch):
    monkeypatch.setattr(fuzz_targets, "TARGETS", (failing(error),))
    monkeypatch.setattr(fuzz, "HANG", 0.05)
    _, _, _, found = fuzz._one(0, 0, None, None)
    assert [each.kind for each in found] == [kind]


def test_a_process_that_dies_or_is_stuck_is_noticed(monkeypatch):
    monkeypatch.setattr(fuzz, "_work", workers.dying)
    monkeypatch.setattr(fuzz, "STUCK", 1.25)  # one input is stuck for good, the others take no time
    tried = fuzz.fuzz(9, workers=1)
    assert [(each.index, each.kind) for each in tried.findings] == [(3, "traceback"), (6, "hang")]
    assert tried.inputs == {"made up": 7, "killed": 2}


def test_words_of_a_record_and_unnamed_errors_are_noticed(site):
    def quoting():
        raise ValueError(f"could not convert {planted.EASTING}")

    with pytest.raises(Quote):
        fuzz_targets.refused(quoting)
    for unnamed in (UnicodeDecodeError("utf-8", b"x", 0, 1, "x"), KeyError("x"), OverflowError()):

        def failing(error=unnamed):
            raise error

        with pytest.raises(type(unnamed)):
            fuzz_targets.refused(failing)
    assert fuzz_targets.refused(lambda: Certificate.from_json("{}"))


def test_undamaged_inputs_are_taken(site):
    for name in ("certificate_texts", "exports", "ledgers", "decoders", "losses", "maps", "parquet"):
        assert getattr(site, name), name
    fuzz_targets.command(["ledger", "verify", "book.ledger"])
    where = fuzz_targets.COLUMNS | {"domain": fuzz_targets.BOX, "response_range": (0.0, 1e6)}
    assert read_table(site.table, **where).n == 31
    Decoder.load(site.file(".npz", site.decoders[0]))
    for words in (fuzz_targets.SUMS, fuzz_targets.PATHS):
        assert fuzz_targets.unpaid(site, [*words.split(), "--outside", "drop"]) == 0


# --- structured inputs


CELLS = st.one_of(st.text(max_size=8), st.floats().map(repr), st.integers().map(str), st.sampled_from(["NA", '"', ""]))


@UNHURRIED
@given(rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6), mark=st.sampled_from([",", ";", "\t"]))
def test_any_rows_are_read_or_refused(rows, mark, tmp_path):
    path = tmp_path / "x.csv"
    lines = [mark.join(("x", "y", "z")), *(mark.join(row) for row in rows)]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    try:
        found = read_table(
            path, covariates=["x", "y"], response="z", domain=Box((0, 0), (9, 9)), response_range=(0, 1), outside="drop"
        )
    except BadTable:
        return
    assert found.n >= 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([10**400, "inf"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@UNHURRIED
@given(changes=st.dictionaries(st.sampled_from(sorted(Certificate.__dataclass_fields__)), JSON, max_size=3))
def test_any_certificate_is_verified_or_refused(changes, certificate_data):
    try:
        made = Certificate.from_data(certificate_data | changes)
    except ValueError as error:
        assert type(error) is ValueError  # noqa: PT017
        return
    assert verify(made, LOSSES).lines()


@pytest.fixture(scope="module")
def certificate_data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("certificates")
        patch.chdir(home)
        patch.setenv("DISCRETION_CACHE", str(home))
        return fuzz_targets.Site(home).certificates[1].data()


# --- what the trial found, and is mended


def test_codecs_that_quote_the_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(f"x-,\xff\n{planted.EASTING},1\n".encode("latin-1"))
    where = {"covariates": ["x"], "response": "y", "domain": Box((0,), (1,)), "response_range": (0, 1)}
    for encoding in ("punycode", "idna", "utf-7", "utf-32", "unicode_escape"):
        with pytest.raises(BadTable) as caught:
            read_table(path, encoding=encoding, **where)
        assert not planted.traces(str(caught.value).encode())


def test_a_field_longer_than_any(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("x" * 200_000 + ",y\n1,2\n")
    with pytest.raises(BadTable, match="too long a field"):
        read_table(path, covariates=["x"], response="y", domain=Box((0,), (1,)), response_range=(0, 1))


def test_whole_numbers_beyond_doubles(certificate_data):
    huge = 10**400
    for name in ("epsilon", "order"):
        with pytest.raises(ValueError, match="must lie in"):
            Certificate.from_data(certificate_data | {name: huge})
    for loss in ({"type": "gaussian-dp", "mu": huge}, {"type": "pure-dp", "epsilon": huge}):
        with pytest.raises(ValueError, match="not a description of a privacy loss"):
            PrivacyLoss.from_dict(loss | {"neighbours": "replace", "rule": "x"})
    with pytest.raises(ValueError, match="2\\^63"):
        2**62 * (4 * PureDP(0.1, neighbours="replace"))


def test_an_export_with_half_a_surrogate_pair(site):
    lines = site.exports[0].decode().splitlines()
    with pytest.raises(LedgerError, match="surrogate"):
        read_export([lines[0].replace('"sales"', '"\\ud800"'), *lines[1:]])


@pytest.mark.parametrize("change", [lambda d: d[:-30], lambda d: d[:60] + b"\0" * 9 + d[69:], lambda d: b"PK" + d])
def test_a_decoder_that_is_none(site, change):
    with pytest.raises(ValueError, match="not a decoder"):
        Decoder.load(site.file(".npz", change(site.decoders[0])))


@pytest.mark.parametrize(
    "text", ['{"features": [1]}', '{"features": [{}]}', '{"features": [{"geometry": {"type": "x"}}]}', "[" * 100_000]
)
def test_maps_that_are_none(tmp_path, text):
    path = tmp_path / "x.geojson"
    path.write_text(text)
    with pytest.raises(ValueError, match="not GeoJSON"):
        Districts.read(path)
    with pytest.raises(ValueError, match="The region"):
        Region.read(path)
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [10**400, 1], [1, 1], [0, 0]]]}))
    with pytest.raises(ValueError, match="rings"):
        Region.read(path)


def test_a_configuration_nested_too_deeply(site):
    path = site.file(".toml", b"grid = " + b"[" * 100_000)
    assert fuzz_targets.command(["release", "sales.csv", "--out", "out", "--config", str(path)]) == 2


def test_a_grid_too_large_to_keep():
    with pytest.raises(ValueError, match="10,000,000,000 points"):
        options.counts("100000", 2)


# --- the trial itself


@pytest.mark.slow
def test_a_thousand_damaged_inputs():
    tried = fuzz.fuzz(3_000, seed=1, workers=2)
    assert tried.inputs.total() == 3_000
    assert {each.name for each in fuzz_targets.TARGETS} <= set(tried.inputs)
    assert 0.5 < tried.refused.total() / 3_000 < 1.0
    assert tried.findings == []
