"""Matern 3/2 and 5/2 on the line in whole numbers, against dense results, 120 digits and the bounds of the proof."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gp.line_makers import UnitNormals, normals_for

from discretion.gp import (
    Box,
    Matern32,
    Matern52,
    MaternLinePaths,
    MaternLinePosterior,
)
from discretion.gp.dense import UNIT_ROUNDOFF
from discretion.gp.fixed import PLACE_BITS, real, times, transitions, whole
from discretion.gp.matern_line import Factor, bits_for, matern_mean_rounding, matern_nugget_floor

NASTY = {
    "grid": (np.linspace(0, 1, 14), np.linspace(0, 1, 9)),
    "one place": (np.zeros(14), np.linspace(-1e-9, 1e-9, 9)),
    "1e-12 apart": (1e-12 * np.arange(14.0), 1e-12 * np.arange(-4.0, 5.0) / 3.0),
    "at records": (np.repeat(np.linspace(0, 1, 7), 2), np.linspace(0, 1, 7)),
    "clusters": (np.repeat([0.0, 1.0], 7) + 1e-7 * np.arange(14.0), np.array([-0.1, 1e-8, 0.5, 1.0 + 1e-8, 3.0])),
    "ever closer": (2.0 ** -np.arange(0.0, 112.0, 8.0), 2.0 ** -np.arange(1.0, 113.0, 16.0)),
    "far away": (1e3 + 1e-4 * np.arange(14.0), np.concatenate([1e3 + 1e-4 * np.arange(9.0) / 1.7, [0.0, 1e5]])),
}


def kernel_matrix(order, places):
    """The kernel, in 120 digits, from its formula and the times of the places."""

    def value(c):
        return mpmath.exp(-c) * (1 + c + (c * c / 3 if order == 3 else 0))

    exact = [exactly(each, PLACE_BITS) for each in times(places, order)]
    return mpmath.matrix([[value(abs(a - b)) for b in exact] for a in exact])


def exactly(number, bits):
    return mpmath.ldexp(mpmath.mpf(number), -bits)


@pytest.mark.parametrize("ridge", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("case", NASTY)
@pytest.mark.parametrize("order", [2, 3])
def test_the_bounds_hold_against_a_hundred_and_twenty_digits(order, case, ridge):
    kernel = {2: Matern32, 3: Matern52}[order](1.0)
    X, T = NASTY[case]
    T, n = np.unique(T), len(X)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    posterior = MaternLinePosterior(kernel, ridge, X[:, None], y)
    factor, B = posterior.factor, posterior.factor.bits
    where, T = factor.places, posterior.places(T)
    with mpmath.workdps(120):
        K = kernel_matrix(order, np.concatenate([where, T]))
        A = K[:n, :n] + mpmath.mpf(ridge**2) * mpmath.eye(n)
        weights = mpmath.lu_solve(A, mpmath.matrix(y[np.argsort(X, kind="stable")].tolist()))
        mean = K[n:, :n] * weights

        # Lemma 2 and, in a draw, Theorem 1
        L = mpmath.matrix([[exactly(each, B) for each in factor.draw(unit)] for unit in np.eye(n)]).T
        l, w = n.bit_length(), max(0, 1 - math.frexp(ridge**2)[1]) + math.frexp(1.0 + ridge**2)[1]
        assert 96 + 3 * l + 2 * w <= B
        off = float(mpmath.mnorm(L * L.T - A, "f"))
        drawn = 2.0 * math.sqrt(n * (n + ridge**2)) * (2.0 ** (l + 7) + 2.0 ** (w / 2 + 1)) * math.sqrt(n)
        assert off <= (2.0 ** (2 * l + 11 + w / 2) + drawn) * 2.0**-B

        # Lemma 3
        found = factor.at(factor.rows(T), posterior._smoothed)
        unit = 2.0**posterior._unit
        assert unit == 2.0
        most = 2.0 ** (2 * l + 13 + 1.5 * w - B) * math.sqrt(n)
        assert max(abs(unit * exactly(each, B) - mean[i]) for i, each in enumerate(found)) <= unit * most
        assert unit * most <= 2.0**-28 * UNIT_ROUNDOFF * math.sqrt(n) / ridge

        # Theorem 2
        difference = [
            float(mpmath.mpf(float(each)) - mean[i]) for i, each in enumerate(posterior.mean_of(factor.rows(T)))
        ]
        assert np.linalg.norm(difference) <= matern_mean_rounding(n, len(T), ridge, 1.0)
        assert np.abs(difference).max() <= UNIT_ROUNDOFF * math.sqrt(n) / ridge


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("case", ["1e-12 apart", "at records", "ever closer"])
def test_the_covariance_of_paths_against_a_hundred_and_twenty_digits(order, case):
    # in whole numbers, before values are rounded to doubles
    kernel = {2: Matern32, 3: Matern52}[order](1.0)
    X, T = NASTY[case]
    T, n, ridge, nugget = np.unique(T)[:6], len(X), 0.1, 1e-9
    m = len(T)
    posterior = MaternLinePosterior(kernel, ridge, X[:, None], np.zeros(n))
    total = normals_for(MaternLinePaths, posterior, [T[3:, None], T[:3, None]])
    paths = MaternLinePaths(posterior, 1.0, nugget, UnitNormals(total), paths=total)
    paths.evaluate(T[3:, None])
    paths.evaluate(T[:3, None])
    factor, deviations = paths._kept
    points = [k for k, each in enumerate(factor.noise) if each == nugget]
    assert len(points) == m
    with mpmath.workdps(120):
        C = mpmath.matrix([[exactly(each[k], factor.bits) for each in deviations] for k in points])
        K = kernel_matrix(order, np.concatenate([posterior.factor.places, posterior.places(T)]))
        A = K[:n, :n] + mpmath.mpf(ridge**2) * mpmath.eye(n)
        S = K[n:, n:] - K[n:, :n] * A**-1 * K[:n, n:] + mpmath.mpf(nugget) * mpmath.eye(m)
        whiten = mpmath.cholesky(S) ** -1
        white = whiten * C * C.T * whiten.T
        # 2^-85 and what is rounded within 2^-80 in each of `total` columns, seen from the nugget
        assert mpmath.mnorm(white - mpmath.eye(m), "f") <= 2.0**-79 * total / math.sqrt(nugget)


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e4])
def test_many_records_stay_within_the_bound_of_so_many(ridge, monkeypatch):
    # the same in 160 more bits takes the place of exact results
    rng = np.random.default_rng(5)
    n = 3000
    x = np.concatenate(
        [rng.uniform(0, 1, n // 3), 1e-9 * rng.normal(size=n // 3), np.repeat(rng.normal(size=n // 6), 2)]
    )
    y, T = np.sign(rng.normal(size=n)), rng.uniform(-0.1, 1.1, 50)
    posterior = MaternLinePosterior(Matern52(0.7), ridge, x[:, None], y)
    B, places = posterior.factor.bits, posterior.places(T)
    monkeypatch.setattr("discretion.gp.matern_line.bits_for", lambda *sizes: bits_for(*sizes) + 160)
    finer = MaternLinePosterior(Matern52(0.7), ridge, x[:, None], y)
    assert finer.factor.bits == B + 160
    found, exact = (each.factor.at(each.factor.rows(places), each._smoothed) for each in (posterior, finer))
    off = max(abs((a << 160) - b) for a, b in zip(found, exact, strict=True)) * 2.0**-160
    l, w = n.bit_length(), max(0, 1 - math.frexp(ridge**2)[1]) + math.frexp(1.0 + ridge**2)[1]
    assert 0 < off <= 2.0 ** (2 * l + 13 + 1.5 * w) * math.sqrt(n)
    assert np.abs(posterior.mean(T[:, None]) - finer.mean(T[:, None])).max() <= UNIT_ROUNDOFF * math.sqrt(n) / ridge


@pytest.mark.parametrize("bits", [99, 160, 224, 2048])
def test_transitions_are_as_exact_as_the_proof_says(bits):
    rng = np.random.default_rng(4)
    gaps = [0, 1, 2**60, 2**121, bits << PLACE_BITS, (bits << PLACE_BITS) - 1, 2**700]
    gaps += whole(10.0 ** rng.uniform(-30, 2.5, 60), PLACE_BITS)
    with mpmath.workdps(700):
        for gap, found in zip(gaps, transitions(gaps, bits), strict=True):
            u = exactly(gap, PLACE_BITS)
            decay = mpmath.exp(-u) if u < 10**6 else mpmath.mpf(0)
            for each, exact in zip(found, (decay, u * decay, u * u * decay / 2), strict=True):
                assert abs(mpmath.ldexp(exact, bits) - each) <= 1 + 2.0**-20


@pytest.mark.parametrize("order", [2, 3])
def test_times_are_within_two_units_of_the_last_place(order):
    places = np.array([0.0, 1.0, -1.0, 1 / 3, -1e-30, 2.0**-120, 1e9 + 1e-7, -9.9e149])
    with mpmath.workdps(400):
        for place, found in zip(places, times(places, order), strict=True):
            exact = mpmath.sqrt(2 * order - 1) * mpmath.mpf(float(place)) * mpmath.mpf(2) ** PLACE_BITS
            assert -0.001 <= exact - found <= 1.001 * (1 if place == np.rint(place * 2.0**120) / 2.0**120 else 4)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([Matern32, Matern52]),
    st.floats(-9, 20),
    st.floats(-17, 3),
    st.floats(-3, 3),
    st.sampled_from([-1.0, 1.0]),
)
def test_no_value_falls_below_the_least_that_the_account_assumes(kernel, far, side, length, sign):
    """In a box far from 0, too, where neighbouring floats are a good part of its side."""
    lower = sign * 10.0**far
    upper = max(lower + abs(lower) * 10.0**side, math.nextafter(lower, math.inf))
    shape = kernel((upper - lower) * 10.0**length)
    posterior = MaternLinePosterior(shape, 1.0, [[lower]], [1.0])
    with mpmath.workdps(60):
        value = kernel_matrix(posterior.chain.order, posterior.places(np.array([lower, upper])))[0, 1]
        assert shape.least_value(Box((lower,), (upper,))) <= value


def test_whole_numbers_and_back():
    x = np.array([0.0, 1.0, -1.0, 0.1, -1e-30, 2.0**-100, 1e300, 5e-324])
    assert real(whole(x, 1200), 1200).tolist() == x.tolist()
    assert whole(np.array([0.75, -0.75, -1e-300]), 1) == [1, -2, -1]
    assert real([3, -1], 1).tolist() == [1.5, -0.5]


def test_bits_follow_the_proof():
    assert bits_for(0, 1.0, 0.0) == 128
    for count, least, most in ((10**5, 100.0, 100.0), (10**6, 1e-6, 100.0), (2**40 - 1, 1e-60, 1e200)):
        w = max(0.0, -math.log2(least)) + math.log2(1.0 + most)
        bits = bits_for(count, least, most)
        assert 96 + 3 * math.log2(count) + 2 * w <= bits <= 96 + 3 * (math.log2(count) + 1) + 2 * (w + 2) + 32 <= 2048


def test_bounds_are_public():
    assert matern_mean_rounding(10**6, 10**4, 10.0, 1.0) == pytest.approx(1.1e-12, rel=0.02)
    assert matern_mean_rounding(0, 9, 1.0, 1.0) == matern_mean_rounding(9, 0, 1.0, 1.0) == matern_nugget_floor(0) == 0.0
    assert matern_nugget_floor(10**4) == 64e4 * UNIT_ROUNDOFF


@pytest.mark.parametrize("ridge", [1e-30, 1e49])
def test_the_ends_of_the_range_of_ridges(ridge):
    posterior = MaternLinePosterior(Matern52(1.0), ridge, [[0.0], [0.0], [1e149], [-1e149]], [1.0, 1.0, 0.5, -0.5])
    expected = [1.0, 0.5] if ridge < 1 else [2.0 / ridge / ridge, 0.5 / ridge / ridge]
    np.testing.assert_allclose(posterior.mean([[0.0], [1e149]]), expected, rtol=1e-12, atol=0)
    values = MaternLinePaths(posterior, 1.0, 1e-6, lambda shape: np.full(shape, 0.5)).evaluate([[0.0], [3e149]])
    assert np.isfinite(values).all()


def test_factors_of_nothing_predict_nothing():
    factor = Factor(3, np.empty(0), np.empty(0))
    assert factor.draw(np.empty(0)) == []
    assert factor.at(factor.rows(np.array([0.0, 1.0])), factor.smooth([])) == [0, 0]
