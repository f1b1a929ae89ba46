"""Certificates and releases: what is promised reads right, and nothing private travels along."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.privacy.loss import GaussianDP, Neighbours, PrivacyLoss, PureDP
from discretion.privacy.noise import SeededRandomness, SystemRandomness
from discretion.privacy.release import LIMITS, Certificate, NotBookable, Release, public_json

PLANTED = 0.7312498650219173


@dataclass(frozen=True)
class SumRelease(Release):
    values: np.ndarray


@dataclass(frozen=True)
class GaussianSum:
    bound: float = 1.0
    scale: float = 4.0
    name: str = "Gaussian sum"
    neighbours: Neighbours = Neighbours.REPLACE

    def privacy_loss(self, n: int) -> PrivacyLoss:
        return GaussianDP(2 * self.bound / self.scale, neighbours=self.neighbours)

    def parameters(self) -> dict[str, float]:
        return {"bound": self.bound, "scale": self.scale}

    def run(self, records, randomness) -> Release:
        clipped = np.clip(records, -self.bound, self.bound)
        total = clipped.sum(axis=0, keepdims=True) + self.scale * randomness.standard_normal((1,))
        certificate = Certificate.issue(
            self,
            n=len(records),
            delta=1e-5,
            unit="one reading",
            randomness=randomness,
            enforced=("Readings are clipped to [-1, 1].",),
            declared=("Nobody has two readings.",),
        )
        return SumRelease(certificate, total)


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


def test_issued_certificate_states_the_guarantee_of_the_loss():
    made = GaussianSum().run(np.zeros(7), SystemRandomness()).certificate
    guarantee = GaussianDP(0.5, neighbours=Neighbours.REPLACE).guarantee(1e-5)
    assert (made.epsilon, made.delta, made.order) == (guarantee.epsilon, 1e-5, None)
    assert (made.n, made.bookable, made.parameters) == (7, True, {"bound": 1.0, "scale": 4.0})
    assert PrivacyLoss.from_dict(made.loss).epsilon(1e-5) == guarantee.epsilon
    with pytest.raises(ValueError, match="Give n"):
        Certificate.issue(GaussianSum(), n=None, delta=1e-5, unit="one", randomness=SystemRandomness())


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


# --- Releases


def test_test_only_is_said_everywhere_and_cannot_be_booked():
    release = GaussianSum().run(np.zeros(3), SeededRandomness(1))
    assert release.text().split("\n")[1].startswith("*** TEST ONLY")
    assert "TEST ONLY" in repr(release)  # the generated repr of a subclass
    assert "TEST ONLY" in repr(Release(release.certificate))
    with pytest.raises(NotBookable, match="known seed"):
        release.booked("a#1")
    good = GaussianSum().run(np.zeros(3), SystemRandomness())
    assert "TEST ONLY" not in good.text() + repr(good)
    assert good.booked("a#1").certificate == replace(good.certificate, ledger_entry="a#1")
    assert good.booked("a#1").values == good.values
    assert good.certificate.ledger_entry is None


def test_no_private_value_travels_in_a_pickle_or_behind_a_view():
    records = np.array([0.1, PLANTED, -0.2])
    release = GaussianSum().run(records, SystemRandomness())
    object.__setattr__(release, "gram", records)
    object.__setattr__(release.certificate, "mean", records)
    for again in (pickle.loads(pickle.dumps(release)), copy.deepcopy(release), release.booked("a#1")):
        assert vars(again).keys() == {"certificate", "values"}
        assert "mean" not in vars(again.certificate)
        np.testing.assert_array_equal(again.values, release.values)
        assert not again.values.flags.writeable
    for text in (pickle.dumps(release.booked("a#1")), pickle.dumps(release.booked("a#1").certificate)):
        assert np.float64(PLANTED).tobytes() not in text
        assert repr(PLANTED).encode() not in text
        assert np.float64(PLANTED).tobytes()[::-1] not in text

    whole = np.append(records, 5.0)
    view = SumRelease(release.certificate, whole[3:])
    assert view.values.base is None
    with pytest.raises(ValueError, match="read-only"):
        view.values[0] = 1.0
    whole[3] = 6.0
    assert view.values == 5.0


def test_release_takes_public_kinds_of_values_only():
    @dataclass(frozen=True)
    class Grid:
        nodes: np.ndarray
        names: tuple[str, ...] = ("x", "y")

    @dataclass
    class Mutable:
        value: float = PLANTED

    @dataclass(frozen=True)
    class Holder:
        inner: object = field(default_factory=Mutable)

    class Model:
        alpha_ = PLANTED

    @dataclass(frozen=True)
    class Anything(Release):
        value: object

    base = np.arange(4.0)
    grid = Grid(base[:2])
    object.__setattr__(grid, "secret", PLANTED)
    for value in (
        1,
        2.5,
        None,
        "map",
        {"a": [np.int64(3), (np.array(["x"]),)]},
        Neighbours.REPLACE,
        np.ones(2, "M8[s]"),
    ):
        Anything(certificate(), value)
    kept = Anything(certificate(), (grid,)).value[0]
    assert kept.nodes.base is None
    assert vars(kept).keys() == {"nodes", "names"}
    for value in (
        lambda: PLANTED,
        Model(),
        Mutable(),
        Holder(),
        [Model()],
        {"a": Model()},
        np.array([Model()], dtype=object),
        (value for value in [PLANTED]),
        Model,
    ):
        with pytest.raises(ValueError, match="value") as caught:
            Anything(certificate(), value)
        assert str(PLANTED) not in str(caught.value)
    with pytest.raises(ValueError, match="Certificate"):
        Anything({"epsilon": 0.0}, 1.0)


def test_pure_loss_is_carried_in_words():
    loss = PureDP(math.log(3), neighbours=Neighbours.ADD_REMOVE)
    made = Certificate.issue(GaussianSum(), n=None, delta=0.0, unit="one", randomness=SystemRandomness(), loss=loss)
    assert "at most 3.01 times" in made.text() or "at most 3.00 times" in made.text()
    assert "not public" in made.text()
