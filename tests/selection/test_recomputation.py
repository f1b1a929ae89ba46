"""A search's certificate against its own parameters: verified as it was written, refused where anything is changed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.selection.makers import MeanMechanism

from discretion import RBF, Box, PosteriorSampler
from discretion.posterior import LOSSES, KernelSumMechanism
from discretion.posterior.records import Records
from discretion.privacy import Certificate, GaussianDP, Neighbours, PureDP, RenyiCurve, SeededRandomness
from discretion.privacy.verification import verify
from discretion.selection import (
    Capped,
    Declared,
    DensityBox,
    DisjointTuning,
    NegativeBinomial,
    NoisyScore,
    Poisson,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    Proposals,
    PublicScore,
    RunLimit,
    SelectionMechanism,
    SharedRate,
    Threshold,
    geometric,
    select,
    selection_losses,
)

ALL = LOSSES | selection_losses(LOSSES)
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
RECORDS = np.random.default_rng(5).uniform(size=40)
VALUE = PublicScore(lambda release: release.value, "value")
HELD_OUT = NoisyScore(lambda release, records: np.abs(records - release.value), 0.0, 1.0, 0.3, 0.25)


class Curved(MeanMechanism):
    """Its loss is a curve."""

    def privacy_loss(self, n):
        return RenyiCurve(lambda x: self.mu**2 * (1 + x) / 2, neighbours=self.neighbours, rule="curve")


class Pure(MeanMechanism):
    def privacy_loss(self, n):
        return PureDP(self.mu, neighbours=self.neighbours)


def two(kind=MeanMechanism, **options):
    return tuple(kind(mu=mu, **options) for mu in (0.3, 0.5))


SEARCHES = {
    "geometric": SelectionMechanism(two(), VALUE, geometric(4), 1e-6),
    "same price": SelectionMechanism((MeanMechanism(), MeanMechanism(shift=1.0)), VALUE, Poisson(3), 1e-6),
    "weights": SelectionMechanism(two(), VALUE, Poisson(3), 1e-6, weights=(1, 2)),
    "renyi": SelectionMechanism(two(), VALUE, geometric(4), 1e-6, rule="renyi"),
    "pure": SelectionMechanism(two(Pure), VALUE, NegativeBinomial.of_mean(2.0, 3.0), 1e-6),
    "curves, Poisson": SelectionMechanism(two(Curved)[:1], VALUE, Poisson(10), 1e-6),
    "curves": SelectionMechanism(two(Curved), VALUE, geometric(4), 1e-6),
    "held out": SelectionMechanism(two(), HELD_OUT, geometric(4), 1e-6),
    "same records": SelectionMechanism(two(), replace(HELD_OUT, fraction=None), geometric(4), 1e-6),
    "coins": SelectionMechanism(two(neighbours=ADD, exact=True), HELD_OUT, geometric(4), 1e-6),
    "padded": SelectionMechanism(two(), VALUE, Capped(Poisson(2), 4), 1e-6, limit=RunLimit(0.001, "public"), pad=True),
    "box": SelectionMechanism(
        two(), VALUE, geometric(4), 1e-6, proposals=Proposals(DensityBox(0.5, 2.0), lambda history: [1, 1], "none")
    ),
    "shared rate": SelectionMechanism(two(Pure), VALUE, SharedRate(2, 5, 0.5), 1e-6),
    "shared rate, Gaussian": SelectionMechanism(two(), VALUE, SharedRate(2, 5, 0.5), 1e-6),
    "threshold": SelectionMechanism(two(), VALUE, Threshold(0.5, 0.2), 1e-6),
    "disjoint": DisjointTuning(two(neighbours=ADD, exact=True), VALUE, geometric(4), 1e-6, share=0.3),
}


def made(search: SelectionMechanism) -> Certificate:
    found = search.run(RECORDS, SeededRandomness(3)).certificate
    return Certificate.from_json(found.to_json())


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_verified_from_its_certificate(name):
    certificate = made(SEARCHES[name])
    checked = verify(certificate, ALL)
    assert checked.refused == ()
    assert checked.differences == ()
    assert checked.computed is not None
    assert checked.computed.epsilon == pytest.approx(certificate.epsilon, rel=1e-12)


def changed(certificate: Certificate, path: tuple, value) -> Certificate:
    data = json.loads(certificate.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] != value
    place[path[-1]] = value
    return Certificate.from_data(data)


def of(*path):
    return ("parameters", *path)


CHANGES = [
    ("geometric", of("law", "gamma"), 0.9),
    ("geometric", of("law", "shape"), 2.0),
    ("geometric", of("mean_runs"), 3.0),
    ("geometric", of("weights"), [1.0, 0.0]),
    ("geometric", of("weights"), [0.5]),
    ("geometric", of("rule"), "renyi"),
    ("geometric", of("run_losses", "losses", 1, "mu"), 0.9),
    ("geometric", of("run_losses", "of"), [0, 0]),
    ("geometric", of("run_losses", "of"), [0, None]),
    ("geometric", of("run_losses", "of"), [0, 7]),
    ("geometric", of("run_losses", "losses"), []),
    ("geometric", of("candidates"), []),
    ("geometric", of("padded"), True),
    ("geometric", of("score"), {"score": "mine", "name": "value"}),
    ("geometric", ("delta",), 1e-9),
    ("geometric", ("epsilon",), 1.0),
    ("geometric", ("neighbours",), "add-remove"),
    ("same price", of("law"), {"law": "poisson", "mean": 2.0}),
    ("weights", of("weights"), [0.2, 0.8]),
    ("pure", of("run_losses", "losses", 0, "epsilon"), 0.01),
    ("curves", of("run_losses", "losses", 0, "limit"), 0.001),
    ("held out", of("score", "mu"), 0.9),
    ("held out", ("n",), 1),
    ("held out", of("order"), None),
    ("same records", of("score", "fraction"), 0.25),
    ("padded", of("law", "most"), 3),
    ("box", of("box"), [0.9, 1.1]),
    ("box", of("box"), [1.0, 1.0]),
    ("shared rate", of("law", "exponent"), 0.1),
    ("shared rate", of("law", "candidates"), 1),
    ("shared rate, Gaussian", of("law", "rounds"), 1),
    ("threshold", of("law", "stop"), 0.9),
    ("threshold", of("law"), {"law": "poisson", "mean": 0.1}),
    ("disjoint", of("tuned_on"), 0.9),
]


@pytest.mark.parametrize(
    ("name", "path", "value"), CHANGES, ids=[f"{n}: {'/'.join(map(str, p))}" for n, p, _ in CHANGES]
)
def test_a_changed_parameter_is_found(name, path, value):
    checked = verify(changed(made(SEARCHES[name]), path, value), ALL)
    # To be by a mechanism or a score that this library does not know is no contradiction, and not verified either.
    unknown = path[-1] == "score" or value == [0, None]
    assert checked.verdict == ("NOT CHECKED" if unknown else "REFUSED")


@pytest.mark.parametrize("key", ["run_losses", "law", "score", "weights", "candidates", "common", "rule", "padded"])
def test_nothing_that_is_needed_may_be_missing(key):
    data = json.loads(made(SEARCHES["geometric"]).to_json())
    del data["parameters"][key]
    checked = verify(Certificate.from_data(data), ALL)
    assert any("cannot be computed again" in each for each in checked.refused)


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [[1]], {"losses": 1, "of": 2}, "inf", {"law": []}])
@pytest.mark.parametrize("key", ["run_losses", "law", "weights", "candidates", "common", "seconds_per_run", "box"])
def test_junk_is_an_answer_and_no_accident(key, junk):
    data = json.loads(made(SEARCHES["geometric"]).to_json())
    data["parameters"][key] = junk
    found = verify(Certificate.from_data(data), ALL)
    # what costs nothing, or is as good as not there
    assert bool(found.refused) is (
        (key, junk) not in (("seconds_per_run", None), ("seconds_per_run", 3), ("box", None))
    )


def test_what_a_run_costs_is_declared_where_no_rule_gives_it():
    for name in ("geometric", "curves"):
        assert "What one run costs is as declared: mean." in made(SEARCHES[name]).declared
    told = made(SEARCHES["same price"]).parameters["run_losses"]
    assert told == {"losses": [GaussianDP(0.5, neighbours=REPLACE).to_dict()], "of": [0, 0]}


# --- Mechanisms of this library: their losses follow from their parameters


def maps():
    square = Box((0.0, 0.0), (1.0, 1.0))
    paths = [
        PosteriorSampler(
            square, (-1, 1), kernel=RBF(each), ridge=20.0, scale=1.0, grid=4, delta=1e-3, unit="one sale"
        ).mechanism(40)
        for each in (0.2, 0.4)
    ]
    sums = [
        KernelSumMechanism.calibrated(
            n=40,
            epsilon=1.0,
            delta=1e-3,
            kernels=RBF(scale),
            domain=square,
            response_ranges=(-1, 1),
            grid=(4, 4),
            unit="one sale",
        )
        for scale in (0.2, 0.4)
    ]
    return {"paths": paths, "sums": sums, "both": [*paths, *sums]}


def test_a_search_over_units_that_differ_says_which_one_it_is_for():
    one, other = maps()["paths"]
    candidates = [one, replace(other, unit="one visit")]
    records = Records(np.full((40, 2), 0.5), np.zeros(40))
    score = PublicScore(lambda release: 0.0, "none")
    with pytest.raises(ValueError, match="different units"):
        select(candidates, score, geometric(3), records, 40, delta=1e-3, randomness=SeededRandomness(1))
    found = select(
        candidates, score, geometric(3), records, 40, delta=1e-3, unit="one sale", randomness=SeededRandomness(1)
    )
    assert found.certificate.unit == "one sale"


@pytest.mark.parametrize("kind", ["paths", "sums", "both"])
def test_maps_are_verified_from_their_own_parameters(kind, tmp_path):
    rng = np.random.default_rng(0)
    records = Records(rng.uniform(size=(40, 2)), rng.uniform(-1, 1, size=40))
    score = PublicScore(lambda release: 0.0, "none")
    release = select(
        maps()[kind],
        score,
        geometric(3),
        records,
        40,
        delta=1e-3,
        journal=tmp_path / "j",
        randomness=SeededRandomness(1),
    )
    certificate = Certificate.from_json(release.certificate.to_json())
    assert certificate.parameters["run_losses"]["losses"] == []
    assert not any("as declared" in each for each in certificate.declared)
    checked = verify(certificate, ALL)
    assert (checked.refused, checked.differences) == ((), ())
    where = ("common",) if kind != "both" else ("candidates", 0)
    assert verify(changed(certificate, of(*where, "mechanism"), "mine"), ALL).verdict == "NOT CHECKED"
    if kind != "both":
        key, value = ("ridge", 5.0) if kind == "paths" else ("response_ranges", [[-2.0, 2.0]])
        assert verify(changed(certificate, of("common", key), value), ALL).refused
    # without the rules for its candidates it is not verified
    assert verify(certificate, selection_losses({})).verdict == "NOT CHECKED"


def test_a_stated_loss_must_be_the_one_that_follows():
    search = SelectionMechanism(tuple(maps()["sums"][:1] * 2), PublicScore(lambda release: 0.0), geometric(3), 1e-3)
    rng = np.random.default_rng(0)
    records = Records(rng.uniform(size=(40, 2)), rng.uniform(-1, 1, size=40))
    certificate = search.run(records, SeededRandomness(0)).certificate
    mu = search.candidates[0].privacy_loss(40)
    for loss, fine in ((mu, True), (GaussianDP(0.01, neighbours=REPLACE), False)):
        data = json.loads(certificate.to_json())
        data["parameters"]["run_losses"] = {"losses": [loss.to_dict()], "of": [0, 0]}
        assert (not verify(Certificate.from_data(data), ALL).refused) is fine


ESTIMATORS = {
    "ridge": (PrivateRidge(2.0, mu=0.5), {"alpha": [1.0, 10.0]}, 0),
    "ridge, epsilon": (PrivateRidge(2.0, epsilon=0.5), {"feature_bound": [1.0, 2.0]}, 0),
    "logistic": (PrivateLogisticRegression([0, 1], 2.0, noise=2.0), {"alpha": [1.0, 10.0]}, 0),
    "add-remove": (
        PrivateLogisticRegression(np.array([0, 1]), 2.0, noise=2.0, neighbours="add-remove", most_records=500),
        {"alpha": [1.0]},
        0,
    ),
    "sampler": (
        PosteriorSampler(Box((-1.0, -1.0), (1.0, 1.0)), (0.0, 1.0), scale=1.0, delta=1e-3),
        {"ridge": [10.0, 20.0]},
        2,
    ),
    "declared": (
        Declared(PrivateRidge(2.0, mu=0.5), GaussianDP(0.5, neighbours=REPLACE)),
        {"estimator__alpha": [1.0]},
        1,
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_are_verified(name):
    estimator, space, stated = ESTIMATORS[name]
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(60, 2)), rng.integers(0, 2, 60).astype(float)
    search = PrivateSearchCV(
        estimator, space, geometric(2), validation=(X[:5], y[:5]), scoring=zero, randomness=SeededRandomness(0)
    )
    certificate = Certificate.from_json(search.fit(X, y).release_.certificate.to_json())
    assert len(certificate.parameters["run_losses"]["losses"]) == stated
    checked = verify(certificate, ALL)
    assert (checked.refused, checked.differences) == ((), ())
    assert any("as declared: Declared" in each for each in certificate.declared) is (name == "declared")
    if name == "logistic":
        lower = changed(certificate, of("common", "noise"), 10.0)
        assert verify(lower, ALL).differences  # more than is needed
        assert verify(changed(certificate, of("common", "noise"), 1.0), ALL).refused


def zero(model, X, y):
    return 0.0


def test_linear_models_are_verified_alone():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(60, 2)), rng.integers(0, 2, 60).astype(float)
    for model in (PrivateRidge(2.0, mu=0.5), PrivateLogisticRegression([0, 1], 2.0, noise=2.0)):
        certificate = model.set_params(randomness=SeededRandomness(0)).fit(X, y).release_.certificate
        assert verify(certificate, ALL).verified
        strength = "mu" if isinstance(model, PrivateRidge) else "noise"
        assert not verify(changed(certificate, of(strength), 1.0), ALL).verified
        assert not verify(certificate, LOSSES).verified
