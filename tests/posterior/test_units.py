"""Units of privacy: who takes part is a fair pick, and several records of one unit are paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from discretion import RBF, Box, Neighbours, PosteriorMechanism, PosteriorSampler
from discretion.gp import DensePosterior
from discretion.posterior import KernelSum, ResponseOnly, Separated
from discretion.posterior.records import Records
from discretion.posterior.units import (
    ONE_ROW,
    bounded_contributions,
    checked_ids,
    each_row,
    owned_records,
    same_unit,
    unit_assumptions,
    unit_in_words,
)
from discretion.privacy import GaussianDP, PublicError, SeededRandomness

UNIT = Box((0.0,), (1.0,))
ADD_REMOVE = Neighbours.ADD_REMOVE


# --- The pick


def test_at_most_so_many_of_each_unit_are_kept_and_all_of_those_with_fewer():
    ids = np.repeat(["a", "b", "c"], [1, 3, 8])
    for most in (1, 3, 5, 20):
        kept = bounded_contributions(ids, most)
        assert [kept[ids == unit].sum() for unit in "abc"] == [min(most, size) for size in (1, 3, 8)]


def test_the_pick_is_uniform_over_subsets_and_independent_of_other_units():
    ids = np.array([7, 3, 7, 7, 3, 7])
    randomness = SeededRandomness(11)
    draws = np.array([bounded_contributions(ids, 2, randomness) for _ in range(6000)])
    subsets = draws[:, ids == 7] @ (1 << np.arange(4))
    counts = np.unique(subsets, return_counts=True)[1]
    assert len(counts) == 6
    assert chisquare(counts).pvalue > 1e-4
    singles = np.array([bounded_contributions(ids, 1, randomness) for _ in range(6000)])
    pairs = singles[:, ids == 7].argmax(axis=1) * 2 + singles[:, ids == 3].argmax(axis=1)
    assert chisquare(np.bincount(pairs, minlength=8)).pvalue > 1e-4


def test_the_pick_takes_no_values_and_system_randomness_by_default():
    ids = np.zeros(40, dtype=int)
    picks = {bounded_contributions(ids, 1).argmax() for _ in range(60)}
    assert len(picks) > 5


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_how_many_is_a_whole_number(most):
    with pytest.raises(ValueError, match="whole number"):
        bounded_contributions([1, 2], most)


def test_ids_are_compared_as_text_and_whole_numbers():
    codes = checked_ids([7, "7", 7.0, " 7 ", "007", np.int64(7), "b"])
    assert len(set(codes[[0, 1, 2, 3, 5]])) == 1
    assert len(set(codes)) == 3
    large = np.array([2**60, 2**60 + 1])
    assert len(set(checked_ids(large))) == 2
    assert len(set(checked_ids(np.array(["x", "y", "x"])))) == 2


@pytest.mark.parametrize("missing", [None, math.nan, "", "  "])
def test_missing_ids_are_refused_by_row(missing):
    with pytest.raises(PublicError, match=r"missing at rows 1 \(from 0\)"):
        checked_ids(["secret", missing, "x"])
    with pytest.raises(PublicError, match="missing") as caught:
        bounded_contributions(["secret", missing], 1)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("odd", [1.5, True, b"x", (1,), math.inf])
def test_ids_that_are_none_are_refused(odd):
    ids = np.empty(2, dtype=object)
    ids[:] = ["secret", odd]
    with pytest.raises(PublicError, match="neither text nor a whole number at rows 1") as caught:
        checked_ids(ids)
    assert "secret" not in str(caught.value)
    with pytest.raises(PublicError, match="one dimension"):
        checked_ids([["a", "b"]])


# --- The account of posterior paths


def gaussian_renyi(mean, cov, other_mean, other_cov, order):
    """D_order of N(mean, cov) from N(other_mean, other_cov)."""
    mixed = order * other_cov + (1.0 - order) * cov
    if np.linalg.eigvalsh(mixed).min() <= 0.0:
        return math.inf
    shift = other_mean - mean
    logs = [np.linalg.slogdet(each)[1] for each in (mixed, cov, other_cov)]
    return 0.5 * order * shift @ np.linalg.solve(mixed, shift) - 0.5 / (order - 1.0) * (
        logs[0] - (1.0 - order) * logs[1] - order * logs[2]
    )


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize("size", [2, 3])
def test_several_records_replaced_or_left_out_cost_no_more_than_the_group(relation, size):
    rng = np.random.default_rng(3)
    places = np.linspace(0.0, 1.0, 5)[:, None]
    mechanism = PosteriorMechanism(
        kernel=RBF(0.4),
        domain=UNIT,
        response_range=(-1, 1),
        ridge=3.0,
        scale=0.8,
        locations=places,
        delta=1e-3,
        neighbours=Neighbours(relation),
        most_records=9,
        contributions=size,
    )
    loss = mechanism.privacy_loss(9)
    worst = np.zeros(3)
    orders = np.array([1.3, 2.0, 3.0])

    def law(X, y):
        posterior = DensePosterior(RBF(0.4), 3.0, X, y)
        return posterior.mean(places), 0.64 * (posterior.covariance(places) + 1e-6 * np.eye(len(places)))

    for trial in range(60):
        X, y = rng.uniform(size=(9, 1)), np.sign(rng.uniform(-1, 1, 9))
        if trial % 2:
            X[:size], y[:size] = 0.5, 1.0  # the worst: together, and all of one sign
        if relation == "replace":
            other, response = X.copy(), y.copy()
            other[:size], response[:size] = (0.5 if trial % 2 else rng.uniform(size=(size, 1))), -y[:size]
        else:
            other, response = X[size:], y[size:]
        for one, two in ((law(X, y), law(other, response)), (law(other, response), law(X, y))):
            worst = np.maximum(worst, [gaussian_renyi(*one, *two, order) for order in orders])
    single = PosteriorMechanism(
        **{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__} | {"contributions": 1}
    ).privacy_loss(9)
    assert (worst <= loss.renyi(orders)).all()
    # ... and the price of one record would have been too low
    assert (worst > single.renyi(orders)).any()


def posterior(**changes) -> PosteriorMechanism:
    plain = {"kernel": RBF(0.3), "domain": UNIT, "response_range": (-1, 1), "ridge": 20.0, "scale": 1.0}
    return PosteriorMechanism(**plain | {"locations": [[0.5]], "delta": 1e-4} | changes)


def test_calibration_and_composition_know_of_the_group():
    # Case 71: 300 readings of 30 sensors, at most 10 of each.
    parameters = {key: getattr(posterior(), key) for key in ("kernel", "domain", "response_range", "ridge")}
    parameters |= {"locations": [[0.5]], "n": 300, "epsilon": 2.0, "delta": 1e-4}
    one = PosteriorMechanism.calibrated(**parameters)
    ten = PosteriorMechanism.calibrated(contributions=10, **parameters)
    assert 1.9 < ten.privacy_loss(300).epsilon(1e-4) <= 2.0
    assert ten.scale > 5 * one.scale
    many, single = posterior(contributions=10).privacy_loss(300), posterior().privacy_loss(300)
    assert many.epsilon(1e-4) > 10 * single.epsilon(1e-4)


def test_responses_alone_are_exact():
    loss = posterior(assumption=ResponseOnly(1.0), contributions=4).privacy_loss(50)
    single = posterior(assumption=ResponseOnly(1.0)).privacy_loss(50)
    assert isinstance(loss, GaussianDP)
    assert isinstance(single, GaussianDP)
    assert loss.mu == pytest.approx(4 * single.mu)


def test_what_has_no_account_is_refused():
    apart = Separated.for_kernel(RBF(0.3), 1.0, 0.5, 1)
    with pytest.raises(ValueError, match="separated"):
        posterior(assumption=apart, contributions=2)
    assert posterior(assumption=apart, contributions=2, neighbours=ADD_REMOVE).privacy_loss().epsilon(1e-4) < math.inf
    for contributions in (0, 1.5, True, 20_000):
        with pytest.raises(ValueError, match="contributions must be a whole number"):
            posterior(contributions=contributions)


def test_a_mechanism_refuses_more_than_it_pays_for():
    X, y = np.full((4, 1), 0.5), np.zeros(4)
    records = Records(X, y, np.array(["a", "a", "a", "b"]))
    with pytest.raises(PublicError, match="more than 2 records"):
        posterior(contributions=2).check(records)
    assert posterior(contributions=3).check(records) == 4
    with pytest.raises(PublicError, match="one for one"):
        posterior(contributions=3).check(Records(X, y, np.array(["a"])))


# --- The estimators and what the certificate says


def test_case_71_sensors_not_readings():
    rng = np.random.default_rng(0)
    X, y, sensor = rng.uniform(size=(300, 1)), rng.uniform(-1, 1, 300), np.repeat(np.arange(30), 10)
    one = PosteriorSampler(UNIT, (-1, 1), ridge=20.0, scale=1.0, grid=5, unit="one sensor").fit(X, y, units=sensor)
    certificate = one.release_.certificate
    assert certificate.n == 30
    assert certificate.unit == unit_in_words("one sensor", 1)
    assert "picked at random without looking" in certificate.unit
    assert any("At most 1 record of one unit of privacy is among" in text for text in certificate.enforced)

    few = PosteriorSampler(UNIT, (-1, 1), ridge=20.0, scale=1.0, grid=5, delta=1e-4, contributions=4)
    found = few.fit(X, y, units=sensor).release_.certificate
    assert found.n == 120
    assert "at most 4 of its records take part" in found.unit
    assert any("How many records one unit has" in text for text in found.limits)
    assert found.epsilon > 4 * PosteriorSampler(UNIT, (-1, 1), ridge=20.0, scale=1.0, grid=5, delta=1e-4).privacy_loss(
        120, 1
    ).epsilon(1e-4)
    declared = few.fit(X, y).release_.certificate
    assert any("At most 4 records of one unit" in text for text in declared.declared)

    nobody = PosteriorSampler(UNIT, (-1, 1), ridge=20.0, scale=1.0, grid=5).fit(X, y).release_.certificate
    assert nobody.unit == "one record (its covariates and its response)"


@pytest.mark.parametrize("model", [PosteriorSampler, KernelSum])
def test_without_owners_the_certificate_declares_what_a_row_is(model):
    rng = np.random.default_rng(0)
    X, y, patient = rng.uniform(size=(30, 1)), rng.uniform(-1, 1, 30), np.repeat(np.arange(10), 3)
    plain = {"scale": 1.0, "grid": 5, "delta": 1e-4}
    said = (
        "Each row of the table is one patient; nothing checked this, and several rows of one are not covered together."
    )
    rows = model(UNIT, (-1, 1), unit="One patient", **plain).fit(X, y).release_.certificate
    assert said in rows.declared
    owned = model(UNIT, (-1, 1), unit="One patient", **plain).fit(X, y, units=patient).release_.certificate
    assert said not in owned.declared
    assert "One value of the column of ids is one unit: whoever has two values counts as two." in owned.declared
    nobody = model(UNIT, (-1, 1), **plain).fit(X, y).release_.certificate
    assert any("nothing checked whose it is" in text for text in nobody.declared)
    assert said in " ".join(rows.text().split())


def test_sentences_about_units():
    assert each_row("NHS patient; as registered").startswith("Each row of the table is NHS patient; nothing")
    assert "several rows of one person" in each_row(ONE_ROW)
    assert unit_assumptions("one sale", 1, limited=True)[0] == (
        "At most 1 record of one unit of privacy is among the records.",
    )
    assert unit_assumptions("one sale", 2, limited=False) == (
        (),
        ("At most 2 records of one unit of privacy are among the records.",),
    )
    assert same_unit(unit_in_words("One patient.", 1), unit_in_words("one patient", 1_000))
    assert not same_unit(unit_in_words("one patient", 1), "one patient")
    assert not same_unit("one visit", "one patient")


def test_kernel_sums_pick_at_random_and_keep_the_number_of_rows_private():
    rng = np.random.default_rng(0)
    X, y, sensor = rng.uniform(size=(60, 1)), np.arange(60) / 60, np.repeat(np.arange(6), 10)
    model = KernelSum(UNIT, (-1, 1), scale=1.0, grid=5, delta=1e-4, contributions=2, unit="one sensor")
    found = model.fit(X, y, sensor).release_.certificate
    assert found.n is None
    assert found.unit == unit_in_words("one sensor", 2)
    assert any("At most 2 records" in text for text in found.enforced)
    assert KernelSum(UNIT, (-1, 1), scale=1.0, grid=5, delta=1e-4).fit(X, y, sensor).release_.certificate.n == 6


def test_the_pick_of_an_estimator_is_not_always_the_same():
    X, y = np.linspace(0, 1, 40)[:, None], np.linspace(-1, 1, 40)
    picks = {float(owned_records(X, y, np.zeros(40, dtype=int), 1).response[0]) for _ in range(40)}
    assert len(picks) > 5
    seeded = {float(owned_records(X, y, np.zeros(40, dtype=int), 1, SeededRandomness(1)).response[0]) for _ in range(3)}
    assert len(seeded) == 1
