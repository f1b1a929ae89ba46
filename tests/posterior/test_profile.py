import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.profile_claims import PROFILES, TUPLES, pair_of, random_pairs, witness
from discretion.posterior.profile import (
    WhitenedPair,
    accepted_profile,
    envelope,
    hockey_stick,
    profile_bound,
    profile_contour,
    profile_range,
    saddle,
)
from discretion.privacy.conversion import gaussian_delta


@pytest.mark.parametrize("name", TUPLES)
def test_reference_profiles(name):
    pair = pair_of(TUPLES[name])
    for (paths, epsilon), wanted in zip(((1, 0.5), (1, 2.0), (3, 1.0), (10, 4.0)), PROFILES[name], strict=True):
        assert profile_contour(pair, epsilon, paths)[0] == pytest.approx(wanted, rel=5e-10)
        assert accepted_profile(pair, epsilon, paths)[0] == pytest.approx(wanted, rel=1e-6)
        if paths == 1:
            low, high = profile_range(pair, epsilon, 2000)
            assert low[0] * (1 - 1e-9) <= wanted <= high[0] * (1 + 1e-9)
            assert high[0] - low[0] <= 2e-5 * wanted + 1e-13


def test_a_slope_of_least_mass_can_diverge():
    trap = pair_of((0.63, 0.28, 0.27, -0.54, 1.9, 1.1, 0.08))
    assert profile_contour(trap, 0.16, 3)[0] == pytest.approx(1.0, abs=1e-11)
    assert accepted_profile(trap, 0.16, 3)[0] == pytest.approx(1.0, abs=1e-11)
    bent = pair_of((0.208, 0.571, -0.0022, 0.5315, 0.2278, 2.267, 0.4343))
    assert profile_contour(bent, 0.0803)[0] == pytest.approx(0.026728371331, rel=1e-9)
    low, high = profile_range(bent, 0.0803, 4000)
    assert low[0] <= 0.026728371331 * (1 + 1e-9) <= high[0] * (1 + 2e-9)


def test_coincident_points():
    v = 0.0430622010
    s = np.array([1.0, -1.0]) - (-1.0 + 0.5) / (2.0 + 0.3**2)
    pair = pair_of((v, v, v, *s, 0.3, 1.8))
    assert profile_contour(pair, 3.0)[0] == pytest.approx(0.222619112, rel=1e-7)
    low, high = profile_range(pair, 3.0, 8)
    assert high[0] - low[0] < 1e-8  # the loss has one axis: both sums are exact
    assert low[0] == pytest.approx(0.222619112, rel=1e-7)


@pytest.mark.parametrize(
    ("core", "x", "y", "ridge", "scale", "epsilon"),
    [
        (1.0, (0.0, 0.0), (1.0, -1.0), 3.0, 0.2179477291, 2.984093),
        (1.0, (0.0, 0.0), (1.0, -1.0), 6.0, 0.05287656382, 3.253998),
        (0.25, (0.0, 1.0), (1.0, 1.0), 1.5, 1.0612, 3.101972),
    ],
)
def test_witnesses(core, x, y, ridge, scale, epsilon):
    pair = witness(core, x, y, ridge, scale)
    low, high = profile_range(pair, epsilon, 4000)
    assert low[0] == pytest.approx(1e-3, rel=2e-5)
    assert high[0] == pytest.approx(1e-3, rel=2e-5)
    assert profile_contour(pair, epsilon)[0] == pytest.approx(1e-3, rel=5e-6)


def test_equal_variances_are_gaussian_dp():
    for mu, epsilon in ((0.3, 0.0), (1.0, 1.0), (0.5, 1.352276244802), (2.0, 5.0)):
        pair = WhitenedPair(np.array([[mu], [0.0]]), np.zeros((2, 1)))
        wanted = gaussian_delta(mu, epsilon)
        assert profile_range(pair, epsilon, 4).high[0] == pytest.approx(wanted, rel=1e-7)
        assert profile_contour(pair, epsilon)[0] == pytest.approx(wanted, rel=1e-7)
        many = WhitenedPair(np.array([[mu / 4.0], [0.0]]), np.zeros((2, 1)))
        assert profile_contour(many, epsilon, 16)[0] == pytest.approx(wanted, rel=1e-7)


def test_bracket_against_the_integral_on_a_grid():
    rng = np.random.default_rng(0)
    axis = np.linspace(-9.0, 9.0, 2001)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    for epsilon in (-1.0, 0.0, 0.7):
        d, m = rng.normal(size=2), np.array([rng.uniform(0.0, 2.0), -rng.uniform(0.0, 0.7)])
        p = np.exp(-0.5 * (x * x + y * y))
        l = 1.0 + m
        q = np.exp(-0.5 * ((x - d[0]) ** 2 / l[0] + (y - d[1]) ** 2 / l[1])) / math.sqrt(l[0] * l[1])
        wanted = np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)) * (axis[1] - axis[0]) ** 2 / (2 * math.pi)
        pair = WhitenedPair(d[:, None], m[:, None])
        low, high = profile_range(pair, epsilon, 3000)
        assert low[0] * (1 - 1e-4) <= wanted <= high[0] * (1 + 1e-4)
        assert high[0] <= low[0] * (1 + 1e-5) + 1e-12


def test_few_nodes_still_bound():
    rng = np.random.default_rng(1)
    pair, epsilon = random_pairs(rng, 1500)
    fine = profile_range(pair, epsilon, 1500)
    assert np.all(fine.low <= fine.high)
    for nodes in (2, 7, 30):
        coarse = profile_range(pair, epsilon, nodes)
        assert np.all(coarse.low <= fine.low * (1 + 3e-9) + 3e-14)
        assert np.all(coarse.high >= fine.high * (1 - 3e-9) - 3e-14)
        assert np.array_equal(profile_bound(pair, epsilon, nodes), coarse.high)
        anywhere = profile_bound(pair, epsilon, nodes, 0.5 * np.minimum(pair.pole, 3.0))
        assert np.all(anywhere >= fine.low)


def test_accepted_contours_agree_with_the_bracket():
    rng = np.random.default_rng(2)
    pair, epsilon = random_pairs(rng, 1500)
    low, high = profile_range(pair, epsilon, 1500)
    value = accepted_profile(pair, epsilon)
    accepted = (value < 1.0) & (low > 1e-6)
    assert accepted.sum() > 600
    assert np.all(value[accepted] >= low[accepted] * (1 - 1e-4))
    assert np.all(value[accepted] <= high[accepted] * (1 + 4e-3))
    z = saddle(pair, epsilon)
    bound = envelope(pair.cumulant(z) - z * epsilon, z)
    some = low > 0.0
    assert np.all(np.log(low[some]) <= bound[some] + 1e-9)


def test_saddle_is_the_minimum():
    rng = np.random.default_rng(3)
    pair, epsilon = random_pairs(rng, 500)
    z = saddle(pair, epsilon, 2.0)
    assert np.all((z > 0.0) & (z < pair.pole))

    def f(z):
        return 2.0 * pair.cumulant(z) - z * epsilon - np.log(z) - np.log1p(z)

    inside = z < 9e5
    top = np.minimum(pair.pole * (1 - 1e-7), 1e6)
    for other in (z * (1 - 1e-3), z + 1e-3 * (top - z)):
        assert np.all((f(other) >= f(z) - 1e-7 * (1 + np.abs(f(z))))[inside])


@settings(max_examples=40, deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-3.0, 3.0), st.floats(-0.9, 3.0), st.floats(-0.9, 3.0), st.floats(-2.0, 4.0))
def test_reversed_pair(d, d_other, m, m_other, epsilon):
    """H_{e^-eps}(P||Q) = 1 - e^-eps + e^-eps H_{e^eps}(Q||P)."""
    shift, excess = np.array([[d], [d_other]]), np.array([[m], [m_other]])
    there = profile_range(WhitenedPair(shift, excess), -epsilon, 300)
    back = profile_range(WhitenedPair(shift / np.sqrt(1 + excess), -excess / (1 + excess)), epsilon, 300)
    for one, other in ((there.low, back.high), (there.high, back.low)):
        gap = one[0] - (1 - math.exp(-epsilon) + math.exp(-epsilon) * other[0])
        assert gap <= 1e-11 if one is there.low else gap >= -1e-11


def composed(pair, epsilon, paths):
    """Upper and lower delta by discretised losses, convolved: an independent road to several paths."""
    step, half = 0.005, 2048
    grid = step * np.arange(-half, half + 1)
    size = grid.size
    repeated = WhitenedPair(np.repeat(pair.shift, size, axis=1), np.repeat(pair.excess, size, axis=1))
    h = profile_range(repeated, grid, 200)
    delta = 0.5 * (h.low + h.high)
    # survival of the loss under P: delta - d delta / d eps
    survival = delta - np.gradient(delta, step)
    mass = np.clip(-np.diff(survival), 0.0, None)
    middle = grid[:-1] + 0.5 * step
    total = np.zeros(paths * (size - 2) + 1)
    spectrum = np.fft.rfft(mass, 2 * total.size) ** paths
    total = np.fft.irfft(spectrum, 2 * total.size)[: total.size]
    losses = paths * middle[0] + step * np.arange(total.size)
    return float(np.sum(total * np.maximum(1.0 - np.exp(np.minimum(epsilon - losses, 0.0)), 0.0)))


@pytest.mark.parametrize("paths", [2, 5, 20])
def test_several_paths_against_convolution(paths):
    rng = np.random.default_rng(paths)
    for _ in range(2):
        shift, excess = rng.uniform(-0.6, 0.6, (2, 1)), np.array([[rng.uniform(0, 0.5)], [-rng.uniform(0, 0.35)]])
        pair = WhitenedPair(shift, excess)
        for epsilon in (0.5, 2.0):
            wanted = composed(pair, epsilon, paths)
            assert accepted_profile(pair, epsilon, paths)[0] == pytest.approx(wanted, rel=2e-3, abs=2e-6)


def test_even_and_quasi_convex_in_the_residuals():
    rng = np.random.default_rng(4)
    v, v_other, rho = rng.uniform(0.1, 0.9, (3, 300))
    s, t = rng.uniform(-2, 2, (2, 2, 300))
    weight = rng.uniform(size=300)

    def profile(r):
        return profile_range(pair_of((v, v_other, rho * np.sqrt(v * v_other), *r, 1.5, 0.6)), 0.8, 300)

    first, second, between, opposite = (profile(r) for r in (s, t, weight * s + (1 - weight) * t, -s))
    assert np.all(between.low <= np.maximum(first.high, second.high))
    assert np.allclose(first.high, opposite.high, rtol=1e-9, atol=1e-13)


def test_hockey_stick_of_lines():
    assert hockey_stick(np.float64(0.0), np.float64(0.0), np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])) == pytest.approx(
        [1.0, 1.0 - math.exp(-1.0), 0.0, 0.0, 0.0]
    )
    # wider, narrower and equal variances join
    values = [float(hockey_stick(np.float64(0.7), np.float64(m), np.float64(0.4))) for m in (-1e-7, 0.0, 1e-7)]
    assert values == pytest.approx([gaussian_delta(0.7, 0.4)] * 3, rel=1e-5)
    assert float(hockey_stick(np.float64(40.0), np.float64(0.0), np.float64(790.0))) > 0.4


def test_huge_exponents_stay_bounds():
    pair = WhitenedPair(np.array([[60.0], [0.0]]), np.zeros((2, 1)))
    low, high = profile_range(pair, 1700.0)
    assert low[0] <= gaussian_delta(60.0, 1700.0) <= high[0]
