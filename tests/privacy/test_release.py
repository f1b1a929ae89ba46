"""Certificates and releases: what is promised reads right, and nothing private travels along."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from discretion.privacy.loss import GaussianDP, Neighbours, PrivacyLoss, PureDP
from discretion.privacy.noise import SeededRandomness, SystemRandomness
from discretion.privacy.release import LIMITS, Certificate, NotBookable, Release

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


def test_issued_certificate_states_the_guarantee_of_the_loss():
    made = GaussianSum().run(np.zeros(7), SystemRandomness()).certificate
    guarantee = GaussianDP(0.5, neighbours=Neighbours.REPLACE).guarantee(1e-5)
    assert (made.epsilon, made.delta, made.order) == (guarantee.epsilon, 1e-5, None)
    assert (made.n, made.bookable, made.parameters) == (7, True, {"bound": 1.0, "scale": 4.0})
    assert PrivacyLoss.from_dict(made.loss).epsilon(1e-5) == guarantee.epsilon
    with pytest.raises(ValueError, match="Give n"):
        Certificate.issue(GaussianSum(), n=None, delta=1e-5, unit="one", randomness=SystemRandomness())


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
