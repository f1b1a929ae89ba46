"""Certificates: what is promised reads right, is read back exactly, and is what the numbers say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import discretion.privacy.certificate as module
from discretion.privacy import (
    BestOf,
    BoundedRange,
    Certificate,
    GaussianDP,
    LaplaceDP,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
    Verification,
    verify,
)
from discretion.privacy.certificate import LIMITS, canonical, public_json, read_json
from discretion.privacy.signing import read_certificate
from discretion.privacy.verification import check_parameters


def certificate(**changes) -> Certificate:
    plain = Certificate(
        mechanism="Gaussian sum",
        parameters={"scale": 4.0, "bound": 1},
        n=1234,
        neighbours=Neighbours.REPLACE,
        unit="one sale",
        epsilon=1.00400001,
        delta=1e-5,
        order=None,
        rule="Gaussian DP, exact",
        loss={"type": "gaussian-dp", "mu": 0.5},
        enforced=("Prices are clipped to the declared range.",),
        declared=("No sale is listed twice.",),
        limits=LIMITS,
        bookable=True,
        randomness="SystemRandomness",
        created="2026-03-01T09:30:00Z",
    )
    return replace(plain, **changes)


# --- Certificates as data


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epsilon": math.inf, "order": math.inf, "n": None, "neighbours": Neighbours.ADD_REMOVE},
        {"ledger_entry": "a#3", "order": 1.5, "enforced": (), "declared": (), "limits": ()},
        {
            "parameters": {
                "grid": ((0.0, 1.0), (2, 3)),
                "name": "Gr\u00fcn",
                "top": "inf",
                "none": None,
                "on": True,
            }
        },
        {"epsilon": 0.1 + 0.2, "delta": 5e-324},
    ],
)
def test_json_round_trip_is_exact(changes):
    first = certificate(**changes)
    again = Certificate.from_json(first.to_json())
    assert again == first
    assert hash(again) == hash(first)
    assert again.to_json() == first.to_json()


def test_json_does_not_depend_on_the_order_of_parameters_and_is_strict_json():
    one, other = certificate(parameters={"a": 1, "b": 2}), certificate(parameters={"b": 2, "a": 1})
    assert one.to_json() == other.to_json()
    data = json.loads(certificate(epsilon=math.inf).to_json(), parse_constant=pytest.fail)
    assert data["epsilon"] == "inf"
    assert list(data) == sorted(item.name for item in fields(Certificate))


def test_saved_file_is_the_json(tmp_path):
    certificate(unit="one flat in Z\u00fcrich").save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text(encoding="utf-8")
    assert Certificate.from_json(text) == certificate(unit="one flat in Z\u00fcrich")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": -1e-12}, "epsilon"),
        ({"delta": 1.5}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"order": 0.5}, "order"),
        ({"n": -1}, "n must"),
        ({"n": True}, "n must"),
        ({"parameters": {"scale": math.inf}}, r"parameters\['scale'\]"),
        ({"parameters": {"deep": [{"x": math.nan}]}}, r"parameters\['deep'\]\[0\]\['x'\]"),
        ({"parameters": {"array": np.zeros(3)}}, "tolist"),
        ({"loss": {"mu": math.inf}}, "loss"),
        ({"unit": " "}, "unit"),
        ({"enforced": "a sentence"}, "enforced"),
        ({"created": "yesterday"}, "created"),
        ({"bookable": 1}, "bookable"),
        ({"schema": 2}, "layout 2"),
    ],
)
def test_what_is_not_a_finite_public_fact_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        certificate(**changes)


def test_from_json_refuses_what_is_not_a_certificate():
    good = json.loads(certificate().to_json())
    for text, words in [
        ("{", "no JSON"),
        ("[]", "schema"),
        (json.dumps(good | {"schema": 7}), "layout 7"),
        (json.dumps(good | {"surprise": 1}), "surprise"),
        (json.dumps({k: v for k, v in good.items() if k != "delta"}), "delta"),
        (json.dumps(good | {"epsilon": math.nan}), "NaN"),
        (json.dumps(good | {"epsilon": math.inf}), "inf"),
    ]:
        with pytest.raises(ValueError, match=words):
            Certificate.from_json(text)


def test_public_json_takes_numpy_scalars_and_enumerations_but_no_arrays():
    value = public_json({"a": np.float64(0.5), "b": np.int64(3), "c": Neighbours.REPLACE, "d": (1, None)})
    assert value == {"a": 0.5, "b": 3, "c": "replace", "d": [1, None]}
    assert [type(item) for item in value.values()] == [float, int, str, list]
    with pytest.raises(ValueError, match="not a string"):
        public_json({1: 2})


# --- The page


def test_page_says_what_a_data_protection_officer_asks():
    page = certificate(ledger_entry="b5#3").text()
    for words in (
        "Gaussian sum",
        "1,234 records",
        "one sale",
        "at most 2.73 times",  # e^1.004 = 2.7292
        "replaced by any other, plus a probability of 1e-05",
        "epsilon <= 1.0041 and",
        "Prices are clipped",
        "No sale is listed twice.",
        "Rounding:",
        "booked as b5#3",
    ):
        assert words in " ".join(page.split())
    assert "1.0040" not in page
    assert "TEST ONLY" not in page
    assert page.index("ENFORCED") < page.index("Prices") < page.index("DECLARED") < page.index("No sale")


def test_page_of_a_worthless_guarantee_says_so():
    assert "NOTHING" in certificate(epsilon=math.inf).text()
    assert "protects little" in certificate(epsilon=9.0).text()
    assert "protects little" not in certificate(epsilon=3.0).text()
    assert "odds" in certificate(delta=0.0).text()
    assert "left out" in certificate(neighbours=Neighbours.ADD_REMOVE, n=None).text()


@given(st.floats(0, 500))
def test_printed_epsilon_and_factor_are_never_too_small(epsilon):
    page = " ".join(certificate(epsilon=epsilon, delta=0.0).text().split())
    shown = float(page.split("epsilon <= ")[1].split()[0])
    assert epsilon <= shown <= epsilon + 1e-4 + 1e-12
    factor = page.split("at most ")[1].split(" times")[0].replace(",", "")
    logarithm = float(factor[3:]) * math.log(10) if factor.startswith("10^") else math.log(float(factor))
    assert logarithm >= epsilon - 1e-12


@given(
    st.lists(st.text(max_size=400), max_size=30),
    st.lists(st.text(max_size=400), max_size=30),
    st.text(min_size=1, max_size=2000).filter(str.strip),
    st.booleans(),
)
def test_page_fits_and_admits_what_it_leaves_out(some, others, unit, bookable):
    made = certificate(
        enforced=tuple(some),
        declared=tuple(others),
        unit=unit,
        bookable=bookable,
        parameters={"grid": [1.5] * 500},
    )
    lines = made.text().split("\n")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    assert sum(line.isupper() and not line.startswith(" ") for line in lines) >= 6


def test_page_counts_the_lines_left_out():
    page = certificate(enforced=tuple(f"Assumption {k}." for k in range(50))).text()
    shown = page.count("  - Assumption")
    assert f"({50 - shown} more lines" in page
    assert "No sale is listed twice." in page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": 1, "schema": 1}', "twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": true}', "layout True"),
        ('{"a": 1' + "0" * 5000 + "}", "digits"),
    ],
)
def test_json_that_readers_may_understand_differently_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Certificate.from_json(text)


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(ValueError, match="surrogate"):
        certificate(parameters={"name": "\ud800"})
    assert certificate(parameters={"name": "\U0001f600"}).to_json().encode()


# --- The canonical form


def test_canonical_form_is_as_documented():
    value = {"b": [1, 1.0, 0.1, 1e-5, 1e22, -0.0, True, None], "a\u00fc": 'x"\\\n/', "a": {}}
    assert canonical(value) == '{"a":{},"a\u00fc":"x\\"\\\\\\n/","b":[1,1.0,0.1,1e-05,1e+22,-0.0,true,null]}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_canonical_form_reads_back_to_itself(value):
    try:
        data = public_json(value)
    except ValueError:
        return
    text = canonical(data)
    assert canonical(read_json(text)) == text
    assert canonical(read_json(canonical(data, indent=2))) == text


# --- The schema

SCHEMA = json.loads(Path(module.__file__).with_name("certificate.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
REPLACE = Neighbours.REPLACE
LOSSES = [
    GaussianDP(0.5, neighbours=REPLACE),
    GaussianDP(math.inf, neighbours=REPLACE),
    PureDP(0.5, neighbours=REPLACE),
    BoundedRange(0.5, neighbours=REPLACE),
    LaplaceDP(0.5, neighbours=REPLACE),
    SubsampledGaussian(0.1, 2.0, neighbours=REPLACE),
    PrivacyProfile((0.0, 1.0), (0.2, 0.01), neighbours=REPLACE),
    RenyiCurve(lambda x: (1 + x) / 8 / (1 - x / 4), 4.0, neighbours=REPLACE, rule="pole"),
    RenyiCurve(lambda x: np.minimum((1 + x) / 8, 3.0), neighbours=REPLACE, rule="limit"),
    2 * PureDP(0.5, neighbours=REPLACE) + GaussianDP(0.1, neighbours=REPLACE),
    BestOf((PureDP(0.5, neighbours=REPLACE), GaussianDP(0.5, neighbours=REPLACE))),
]


def test_the_schema_is_one_and_covers_every_certificate_and_loss():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["$defs"]["certificate"]["properties"]) == {item.name for item in fields(Certificate)}
    assert SCHEMA["$defs"]["certificate"]["properties"]["schema"] == {
        "const": module.SCHEMA,
        "description": "Version of this layout.",
    }
    assert set(SCHEMA["$defs"]["neighbours"]["enum"]) == set(Neighbours)
    for loss in LOSSES:
        VALIDATOR.validate(certificate(loss=loss.to_dict()).data())
    VALIDATOR.validate(certificate(epsilon=math.inf, order=math.inf, n=None, loss=LOSSES[0].to_dict()).data())


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1},
        {"epsilon": "1.0"},
        {"delta": 2},
        {"order": 0.5},
        {"n": 1.5},
        {"schema": 2},
        {"neighbours": "replace one"},
        {"created": "2026-03-01"},
        {"loss": {"type": "gaussian-dp", "mu": -1, "neighbours": "replace", "rule": ""}},
        {"loss": {"type": "unheard-of"}},
        {"enforced": "a sentence"},
        {"surprise": 1},
    ],
)
def test_the_schema_refuses_what_is_not_a_certificate(change):
    assert not VALIDATOR.is_valid(certificate(loss=LOSSES[0].to_dict()).data() | change)


# --- Verification


def rebuilt(parameters, n, delta):
    """A made-up mechanism: a bounded mean with Gaussian noise, its cost a Renyi curve and some rounding."""
    mu = 2.0 * parameters["bound"] / (n * parameters["scale"])
    check_parameters(parameters, {"bound": parameters["bound"], "scale": parameters["scale"], "mu": mu})
    curve = RenyiCurve(lambda x: (1 + x) * mu**2 / 2, neighbours=REPLACE, rule="Gaussian curve")
    return curve + PureDP(1e-3, neighbours=REPLACE, rule="rounding")


def mean(**changes) -> Certificate:
    parameters = {"bound": 1.0, "scale": 0.02, "mu": 1.0}
    loss = rebuilt(parameters, 100, 1e-5)
    guarantee = loss.guarantee(1e-5)
    plain = certificate(
        mechanism="mean",
        parameters=parameters,
        n=100,
        epsilon=guarantee.epsilon,
        order=guarantee.order,
        rule=guarantee.rule,
        loss=loss.to_dict(1e-5),
    )
    return replace(plain, **changes)


def checked(made: Certificate) -> Verification:
    return verify(Certificate.from_json(made.to_json()), {"mean": rebuilt})


def test_an_honest_certificate_is_verified_and_says_what_it_rests_on():
    found = checked(mean())
    assert found.verified
    assert not found.differences
    assert found.computed is not None
    assert found.computed.epsilon == mean().epsilon
    page = "\n".join(found.lines())
    assert page.startswith("VERIFIED: mean")
    enforced, declared = page.index("Enforced by the software"), page.index("Declared by somebody")
    assert enforced < page.index("Prices are clipped") < declared < page.index("No sale is listed twice")
    assert "TEST ONLY" in "\n".join(checked(mean(bookable=False)).lines())


def test_understating_is_refused_with_what_and_by_how_much():
    true = mean().epsilon
    found = checked(mean(epsilon=true - 0.25))
    assert not found.verified
    assert any(repr(true) in reason and "too small by 0.25" in reason for reason in found.refused)
    assert found.lines()[0].startswith("REFUSED")
    assert checked(mean(epsilon=true * (1 - 1e-10))).verified  # another processor's last bits
    assert not checked(mean(epsilon=true * (1 - 1e-8))).verified
    more = checked(mean(epsilon=true + 1))
    assert more.verified
    assert "more than the parameters need" in more.differences[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 90}, "parameters\\['mu'\\]"),
        ({"n": None}, "cannot be computed"),
        ({"delta": 1e-6}, "epsilon"),
        ({"order": None}, "order None"),
        ({"order": 3.0}, "order 3.0"),
        ({"rule": "magic"}, "rule 'magic'"),
        ({"neighbours": Neighbours.ADD_REMOVE}, "replace neighbours"),
        ({"parameters": {"bound": 1.0, "scale": 0.01, "mu": 2.0}}, "too small by"),
        ({"parameters": {"bound": 1.0, "scale": 0.01, "mu": 1.0}}, "parameters\\['mu'\\] is 1.0, and 2.0"),
        ({"parameters": {"bound": 2.0}}, "'scale' is missing"),
        ({"parameters": {"bound": "2", "scale": 0.01, "mu": 2.0}}, "cannot be computed"),
        ({"loss": {"type": "unheard-of"}}, "stored loss cannot be read"),
        ({"loss": GaussianDP(0.9, neighbours=REPLACE).to_dict()}, "the stored loss is"),
        ({"loss": PureDP(0.1, neighbours=REPLACE).to_dict()}, "the stored loss gives"),
    ],
)
def test_what_does_not_follow_from_the_parameters_is_refused(changes, words):
    found = checked(mean(**changes))
    assert not found.verified
    assert any(re.search(words, reason) for reason in found.refused), found.refused


def test_what_nothing_here_computes_again_is_not_checked_and_not_refused():
    for changes, words in (
        ({"mechanism": "median"}, "no rule for the mechanism 'median'"),
        (
            {"parameters": {"of a later": "kind"}, "library_version": "9999.1"},
            "version 9999.1 wrote it, later than this one",
        ),
    ):
        found = checked(mean(**changes))
        assert (found.verdict, found.verified, found.refused, found.computed) == ("NOT CHECKED", False, (), None)
        assert found.lines()[0].startswith("NOT CHECKED: ")
        assert any(line.startswith("Not checked: ") and words in line for line in found.lines())
        # What is refuted without the parameters is refused all the same.
        small = checked(mean(**changes, epsilon=0.1))
        assert small.verdict == "REFUSED"
        assert "follows from the stored loss" in small.refused[0]
    # An earlier version, or none, excuses nothing.
    for version in ("0.0.1", "unknown", "9" * 5000 + ".1"):
        assert checked(mean(parameters={"of a later": "kind"}, library_version=version)).verdict == "REFUSED"
    # A later one is refuted as any other by what can be computed.
    assert checked(mean(epsilon=0.1, library_version="9999.1")).verdict == "REFUSED"


def test_every_number_of_the_stored_loss_is_checked():
    data = mean().data()
    table = next(part for part in data["loss"]["parts"] if part["loss"]["type"] == "renyi-table")["loss"]
    looked_at = [at for at, x in enumerate(table["excess"]) if x > 1e-3][::12]
    assert len(looked_at) > 20
    for at in looked_at:
        kept = table["renyi"][at]
        table["renyi"][at] = 0.5 * (kept + table["renyi"][at - 1])
        assert not checked(Certificate.from_data(data)).verified, at
        table["renyi"][at] = kept
    assert checked(Certificate.from_data(data)).verified
    table["limit"] = table["renyi"][-1]
    assert not checked(Certificate.from_data(data)).verified
    table["limit"] = None
    pure = next(part for part in data["loss"]["parts"] if part["loss"]["type"] == "pure-dp")
    pure["loss"]["epsilon"] = 0.0005
    assert not checked(Certificate.from_data(data)).verified


def test_another_version_may_know_better_routes():
    other = {"library_version": "0.0.1"}
    found = checked(mean(rule="an older rule", order=2.0, epsilon=mean().epsilon + 0.5, **other))
    assert found.verified
    assert len(found.differences) == 3
    assert not checked(mean(epsilon=mean().epsilon - 0.5, **other)).verified


def test_infinite_epsilon_states_nothing_and_is_safe():
    found = checked(mean(epsilon=math.inf))
    assert found.verified
    assert "more than" in found.differences[0]


def test_parameters_are_compared_within_rounding():
    check_parameters({"a": [0.1 + 0.2, "x"], "b": {"c": None}}, {"a": [0.3, "x"], "b": {"c": None}})
    for other in ({"a": [0.3001, "x"], "b": {"c": None}}, {"a": [0.3, "x", 1], "b": {"c": None}}, {"a": [0.3, "x"]}):
        with pytest.raises(ValueError, match="follows from the other"):
            check_parameters({"a": [0.3, "x"], "b": {"c": 1}}, other)


def test_stored_loss_reads_back_as_the_loss():
    for loss in LOSSES:
        again = PrivacyLoss.from_dict(certificate(loss=loss.to_dict(1e-5)).loss)
        assert again.epsilon(1e-5) >= loss.epsilon(1e-5) * (1 - 1e-12)


@pytest.mark.parametrize("words", ["\x1b[1G\x1b[2KVERIFIED", "\nVERIFIED: all is well", "a\u202eb", "a\u2028b"])
@pytest.mark.parametrize("field", ["mechanism", "unit", "enforced"])
def test_a_certificate_cannot_write_over_what_is_said_of_it(words, field):
    data = json.loads(certificate().to_json())
    data[field] = [words] if field == "enforced" else words
    with pytest.raises(ValueError, match="control characters"):
        read_certificate(json.dumps(data))
