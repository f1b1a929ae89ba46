"""Released paths and sums lie on a public lattice, whichever way they are asked for. NumPy is not heard."""

import contextlib
import warnings

import numpy as np
import pytest

from discretion.gp import RBF, Box, Matern32
from discretion.posterior import KernelSum, KernelSumMechanism, PosteriorMechanism, PosteriorSampler
from discretion.posterior.records import Records
from discretion.privacy import Ledger, Neighbours, SeededRandomness, SystemRandomness
from discretion.privacy.lattice import is_power_of_two, lattice_spacing

SQUARE = Box((0.0, 0.0), (1.0, 1.0))
RNG = np.random.default_rng(20)
RECORDS = Records(RNG.uniform(size=(60, 2)), RNG.uniform(-1.0, 1.0, 60))


def paths(**changes):
    fields = {
        "kernel": Matern32(0.3),
        "domain": SQUARE,
        "response_range": (-1.0, 1.3),
        "ridge": 1.0,
        "scale": 0.7,
        "locations": SQUARE.grid((6, 5)),
        "delta": 1e-3,
        "paths": 3,
    }
    return PosteriorMechanism(**(fields | changes))


def sums(**changes):
    fields = {
        "kernels": (RBF(0.2), RBF(0.5)),
        "domain": SQUARE,
        "response_ranges": ((-1.0, 1.0), (0.0, 300.0)),
        "scale": 3.0,
        "delta": 1e-3,
        "grid": (7, 9),
        "neighbours": Neighbours.ADD_REMOVE,
    }
    return KernelSumMechanism(**(fields | changes))


def on(values, spacing):
    assert is_power_of_two(spacing)
    return bool(np.all(values / spacing == np.floor(values / spacing)))


@pytest.mark.parametrize("changes", [{}, {"prior_noise": 0.5}, {"nugget": 1e-4}, {"neighbours": "add-remove"}], ids=str)
def test_paths_are_multiples_of_the_spacing_in_their_certificate(changes):
    mechanism = paths(**changes)
    release = mechanism.run(RECORDS, SystemRandomness())
    parameters = release.certificate.parameters
    assert parameters["lattice"] == lattice_spacing(0.7 * parameters["nugget"] ** 0.5)
    assert on(release.values, parameters["lattice"])
    assert not on(release.values, 2 * parameters["lattice"])
    assert any("power of two" in line for line in release.certificate.enforced)
    # and the page claims no more than that
    assert any("the proof is for exact Gaussians" in line for line in release.certificate.limits)


@pytest.mark.parametrize("prior_noise", [0.0, 0.5])
def test_a_path_asked_again_later_gives_the_same_multiples(prior_noise):
    mechanism = paths(prior_noise=prior_noise)
    release, custodian = mechanism.run_for_custodian(RECORDS, SeededRandomness(1))
    spacing = release.certificate.parameters["lattice"]
    more = np.concatenate([mechanism.locations[3:9], RNG.uniform(size=(10, 2))])
    first, second = custodian.extend(more), custodian.extend(more[::-1])[:, ::-1]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[:, :6], release.values[:, 3:9])
    assert on(first, spacing)
    np.testing.assert_array_equal(release.values, mechanism.run(RECORDS, SeededRandomness(1)).values)


def test_the_spacing_is_fixed_by_public_parameters():
    other = Records(RECORDS.covariates**2, -np.abs(RECORDS.response))
    found = [paths().run(each, SystemRandomness()).certificate.parameters["lattice"] for each in (RECORDS, other)]
    assert found[0] == found[1]
    assert paths().parameters()["lattice"] is None
    assert paths(nugget=1e-4).parameters()["lattice"] == lattice_spacing(0.7 * 1e-2)


def test_each_sum_is_on_the_lattice_of_its_own_noise():
    mechanism = sums()
    release = mechanism.run(Records(RECORDS.covariates, np.column_stack([RECORDS.response] * 2)), SystemRandomness())
    parameters = release.certificate.parameters
    expected = [lattice_spacing(s * parameters["nugget"] ** 0.5) for s in (*mechanism.scales, mechanism.scale)]
    assert parameters["lattice"] == expected
    assert len(set(expected)) > 1
    assert release.density is not None
    for values, spacing in zip((*release.value_sums, release.density), expected, strict=True):
        assert on(values, spacing)
        assert not on(values, 2 * spacing)
    assert len(sums(density=False, nugget=1e-5).parameters()["lattice"]) == 2


def test_rounding_is_small_beside_the_nugget_alone():
    mechanism = paths(locations=SQUARE.grid((12, 12)), paths=20)
    spacing = lattice_spacing(0.7 * mechanism.effective_nugget(60) ** 0.5)
    assert spacing**2 / 12 < 2.1e-5 * 0.7**2 * mechanism.effective_nugget(60)


# --- Sources of noise that go on, and silence


class _Stateful(SystemRandomness):
    """A bookable source of one's own, with a state that a copy would repeat."""

    __slots__ = ("generator",)

    def __init__(self):
        self.generator = np.random.default_rng(3)

    def words(self, count):
        return self.generator.integers(0, 2**64, size=count, dtype=np.uint64)


def test_an_estimator_fitted_twice_does_not_rewind_a_source_of_ones_own():
    sampler = PosteriorSampler(
        domain=SQUARE, response_range=(-1.0, 1.0), ridge=1.0, scale=1.0, grid=3, randomness=_Stateful()
    )
    first = sampler.fit(RECORDS.covariates, RECORDS.response).release_.values
    second = sampler.fit(RECORDS.covariates, RECORDS.response).release_.values
    assert not np.any(first == second)
    sampler.set_params(randomness=SeededRandomness(4))
    first = sampler.fit(RECORDS.covariates, RECORDS.response).release_.values
    np.testing.assert_array_equal(first, sampler.fit(RECORDS.covariates, RECORDS.response).release_.values)


HUGE = np.array([1.5e308, -1.5e308, 1.2e308, -1.1e308])
LONG = np.array([1, 2, 3, 4], dtype=np.longdouble) * np.longdouble("1e4000")
PLACES = np.array([[0.1], [0.5], [0.9], [0.3]])
LINE = Box((0.0,), (1.0,))
WIDE = (-1.7e308, 1.7e308)


def attempts(tmp_path):
    """Ways by which values that overflow meet NumPy."""
    sampler = PosteriorSampler(domain=LINE, response_range=(-1.0, 1.0), ridge=1.0, scale=1.0, grid=4)
    kernel_sum = KernelSum(domain=LINE, response_range=(-1.0, 1.0), scale=1.0, delta=1e-3, grid=4)
    for estimator in (sampler, kernel_sum):
        for X, y in ((PLACES, HUGE), (PLACES, LONG), (PLACES * 1e308, HUGE), (LONG[:, None], HUGE)):
            yield lambda estimator=estimator, X=X, y=y: estimator.fit(X, y)
    # the sums themselves overflow
    wide = KernelSumMechanism(
        kernels=RBF(0.3), domain=LINE, response_ranges=(0.0, 1.7e308), centres=(0.0,), scale=1.0, delta=1e-3, grid=(4,)
    )
    records = Records(np.full((4, 1), 0.5), np.full(4, 1.7e308))
    yield lambda: wide.run(records, SystemRandomness())
    yield lambda: wide.partial(records) + wide.partial(records)
    mechanism = PosteriorMechanism(
        kernel=Matern32(0.3), domain=LINE, response_range=(-1.0, 1.0), ridge=1.0, scale=1.0,
        locations=LINE.grid((4,)), delta=1e-3,
    )  # fmt: skip
    yield lambda: mechanism.check(Records(LONG[:, None], HUGE))
    yield lambda: mechanism.run(Records(LONG[:, None], HUGE), SystemRandomness())
    book = Ledger.create(tmp_path / "book.ledger", dataset="made up", epsilon=1e6, delta=1e-3)
    yield lambda: book.run(mechanism, Records(LONG[:, None], HUGE), n=4)
    yield lambda: book.run(mechanism, Records(PLACES, HUGE), n=4)


def test_nothing_that_numpy_remarks_on_private_values_is_shown(tmp_path, capfd):
    for attempt in attempts(tmp_path):
        with warnings.catch_warnings(), contextlib.suppress(ValueError, FloatingPointError):
            warnings.simplefilter("always")
            attempt()
        assert capfd.readouterr() == ("", "")
