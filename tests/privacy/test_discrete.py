"""The samplers against the laws and by complete enumeration; the losses by brute force."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from discretion.privacy import GaussianDP, NeighbourMismatch, Neighbours, discrete
from discretion.privacy.discrete import LatticeGaussian, LatticeLaplace, discrete_gaussian, discrete_laplace
from discretion.privacy.noise import SeededRandomness, SystemRandomness

SOURCES = {"seeded": lambda: (SeededRandomness(20260202), 1e-4), "system": lambda: (SystemRandomness(), 1e-6)}


def law(sampler, scale):
    """The support, wide enough for everything below, and the probabilities."""
    k = np.arange(-(42 * scale), 42 * scale + 1)
    weights = np.exp(-((k / scale) ** 2) / 2) if sampler is discrete_gaussian else np.exp(-np.abs(k) / scale)
    return k, weights / weights.sum()


@pytest.fixture(params=SOURCES, ids=str)
def source(request):
    return SOURCES[request.param]()


# --- The samplers


@pytest.mark.parametrize("scale", [1, 2, 3, 11, 64])
@pytest.mark.parametrize("sampler", [discrete_gaussian, discrete_laplace])
def test_every_number_is_as_frequent_as_it_should_be(sampler, scale, source):
    randomness, least = source
    count = 150_000
    found = sampler(scale, count, randomness)
    k, p = law(sampler, scale)
    rare = count * p < 10
    seen = np.bincount(found - k[0], minlength=k.size)
    assert seen.size == k.size
    seen, p = np.append(seen[~rare], seen[rare].sum()), np.append(p[~rare], p[rare].sum())
    assert stats.chisquare(seen, count * p / p.sum()).pvalue > least


@pytest.mark.parametrize("scale", [1000, 10**9, 2**40])
def test_with_a_fine_lattice_the_laws_are_the_continuous_ones(scale, source):
    randomness, least = source
    for sampler, name in ((discrete_gaussian, "norm"), (discrete_laplace, "laplace")):
        found = sampler(scale, 50_000, randomness)
        smooth = found / scale + (randomness.uniform(50_000) - 0.5) / scale
        assert stats.kstest(smooth, name).pvalue > least
        # the low bits are as good as uniform
        if scale > 10**6:
            assert stats.chisquare(np.bincount(found & 255, minlength=256)).pvalue > least


@pytest.mark.slow
def test_as_many_numbers_lie_at_five_sigma_and_beyond_as_should(source):
    randomness, least = source
    k, p = law(discrete_gaussian, 1)
    count = sum(int(np.count_nonzero(np.abs(discrete_gaussian(1, 10**6, randomness)) >= 5)) for _ in range(6))
    assert stats.binomtest(count, 6 * 10**6, float(p[np.abs(k) >= 5].sum())).pvalue > least


class _Script:
    """Words from a list, each below any bound that is asked for."""

    bookable = False

    def __init__(self, words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        if len(taken) < count:
            raise _Exhausted
        return np.array(taken, dtype=np.uint64)


class _Exhausted(Exception):
    pass


@pytest.mark.parametrize(("j", "divisors"), [(1, (2,)), (1, (1,)), (2, (3,)), (1, (1, 2)), (1, (2, 4)), (0, (1,))])
def test_a_coin_has_exactly_the_chance_of_its_series(j, divisors):
    # All words of four rounds: what has come up heads by then has chance x - ... exactly.
    rounds, x = 4, math.prod(Fraction(j, d) for d in divisors)
    bounds = [d for m in range(1, rounds + 1) for d in (*divisors[:-1], divisors[-1] * m)]
    chance = {True: Fraction(0), False: Fraction(0)}

    def follow(taken, weight):
        try:
            chance[bool(discrete._coin(np.array([j], dtype=np.uint64), divisors, _Script(taken))[0])] += weight
        except _Exhausted:
            if len(taken) < len(bounds):
                for word in range(bounds[len(taken)]):
                    follow([*taken, word], weight / bounds[len(taken)])

    follow([], Fraction(1))
    stops = [x**m / math.factorial(m) * (1 - x / (m + 1)) for m in range(rounds)]
    assert chance[True] == sum(stops[::2])
    assert chance[False] == sum(stops[1::2])


def test_a_uniform_number_redraws_words_past_the_last_multiple():
    top = 2**64 // 3 * 3
    found = discrete._below(3, 3, _Script([top, top - 1, 4, top, 5]))
    assert found.tolist() == [2, 2, 1]
    assert discrete._below(8, 2, _Script([2**64 - 1, 8])).tolist() == [7, 0]
    with pytest.raises(OverflowError):
        discrete._below(2**63 + 1, 1, _Script([1]))


def test_shapes_and_scales():
    randomness = SeededRandomness(3)
    for sampler in (discrete_gaussian, discrete_laplace):
        assert sampler(3, (2, 5), randomness).shape == (2, 5)
        assert sampler(3, (), randomness).shape == ()
        assert sampler(3, (0, 2), randomness).shape == (0, 2)
        assert sampler(3, 4, randomness).dtype == np.int64
        np.testing.assert_array_equal(sampler(3, 9, SeededRandomness(4)), sampler(3, 9, SeededRandomness(4)))
        for scale in (0, -1, 1.5, 2**40 + 1, True):
            with pytest.raises(ValueError, match="whole number"):
                sampler(scale, 3, randomness)


# --- What they cost


def divergence(sampler, scale, shift, epsilon):
    """max(0, P - e^epsilon Q) summed, P noise and Q the same moved: 30 digits."""
    if sampler is discrete_gaussian:
        weight, reach = lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * scale**2)), 14 * scale
    else:
        weight, reach = lambda k: mpmath.exp(-mpmath.mpf(abs(k)) / scale), 90 * scale
    with mpmath.workdps(30):
        p = {k: weight(k) for k in range(-reach - shift, reach + shift + 1)}
        total, factor = mpmath.fsum(p.values()), mpmath.exp(epsilon)
        parts = (p[k] - factor * p[k - shift] for k in range(-reach, reach + 1))
        return float(mpmath.fsum(part for part in parts if part > 0) / total)


@pytest.mark.parametrize(("scale", "shift"), [(1, 1), (2, 1), (2, 3), (5, 2), (9, 40), (150, 130)])
def test_the_exact_profile_is_exact(scale, shift):
    loss = LatticeGaussian(1.0, scale, whole=True).exact_loss(shift)
    dominated = shift * shift / (2.0 * scale * scale)
    for epsilon in (0.0, 1e-3, 0.1, 0.7 * dominated, dominated, 2 * dominated + 0.3, dominated + 4 * shift / scale):
        true = divergence(discrete_gaussian, scale, shift, epsilon)
        # beyond 2,048 kinks the table leaves some out
        assert true * (1 - 1e-12) <= loss.delta(epsilon) <= true * (1 + (1e-9 if scale < 100 else 1e-4)) + 1e-290


def test_the_profile_of_smaller_shifts_is_smaller():
    for shift in range(1, 6):
        fewer, more = (LatticeGaussian(1.0, 3.0, whole=True).exact_loss(s) for s in (shift, shift + 1))
        assert all(fewer.delta(e) <= more.delta(e) for e in np.linspace(0, 5, 40))


@pytest.mark.parametrize("shifts", [(1,), (3,), (1, 2), (2, 2, 1)])
@pytest.mark.parametrize("scale", [1, 2, 5])
def test_the_renyi_curve_bounds_sums_over_coordinates_and_is_nearly_attained(scale, shifts):
    norm = math.sqrt(sum(s * s for s in shifts))
    curve = LatticeGaussian(1.0, scale, whole=True).privacy_loss(norm * (1 + 1e-15), dimension=len(shifts))
    k = np.arange(-60.0 * scale, 60.0 * scale + 1)
    log_p = -((k / scale) ** 2) / 2
    log_total = np.logaddexp.reduce(log_p)
    for order in (1.5, 2.0, 4.0, 7.5):
        parts = ((order * log_p[s:] + (1 - order) * log_p[:-s]) for s in shifts)
        total = sum((np.logaddexp.reduce(logs) - log_total) / (order - 1) for logs in parts)
        assert total <= curve.renyi(order) * (1 + 1e-12)
        # whole moves (1 - order) s lose nothing
        if scale > 1 or order in (2.0, 4.0):
            assert total >= curve.renyi(order) * (1 - 1e-4)


def test_the_exact_profile_is_below_what_the_curve_implies_and_need_not_be_that_of_a_gaussian():
    mechanism = LatticeGaussian(1.0, 4.0)
    exact, curve, smooth = (
        mechanism.exact_loss(1.0),
        mechanism.privacy_loss(1.0),
        GaussianDP(0.25, neighbours="replace"),
    )
    for delta in (1e-3, 1e-6, 1e-9):
        assert exact.epsilon(delta) < curve.epsilon(delta)
    assert exact.epsilon(1e-5) > smooth.epsilon(1e-5)
    fine = LatticeGaussian(2.0**-12, 4.0).exact_loss(1.0)
    assert fine.epsilon(1e-6) == pytest.approx(smooth.epsilon(1e-6), rel=2e-4)


@pytest.mark.parametrize(("scale", "shift"), [(1, 1), (3, 2), (4, 9)])
def test_discrete_laplace_noise_is_pure_and_worse_than_continuous(scale, shift):
    loss = LatticeLaplace(1.0, scale, whole=True).privacy_loss(shift)
    assert loss.epsilon(0.0) == pytest.approx(shift / scale, rel=1e-15)
    assert divergence(discrete_laplace, scale, shift, shift / scale + 1e-12) < 1e-15
    # attained at every epsilon below
    assert divergence(discrete_laplace, scale, shift, 0.9 * shift / scale) > 1e-3


def test_losses_compose_and_keep_the_relation():
    mechanism = LatticeGaussian(0.5, 20.0)
    curve = mechanism.privacy_loss(1.0, dimension=3, neighbours=Neighbours.ADD_REMOVE)
    exact = mechanism.exact_loss(1.0, neighbours=Neighbours.ADD_REMOVE)
    assert (4 * curve).renyi(3.0) == pytest.approx(4 * curve.renyi(3.0), rel=1e-12)
    assert exact.epsilon(1e-6) < (exact + exact).epsilon(1e-6) < 2 * exact.epsilon(1e-6)
    with pytest.raises(NeighbourMismatch):
        curve + mechanism.privacy_loss(1.0)


# --- Rounding to the lattice


@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(-3, 3)), min_size=1, max_size=6),
    st.sampled_from([1.0, 0.25, 4.0]),
)
def test_rounded_values_are_no_further_apart_than_accounted(pairs, spacing):
    a = np.array([first for first, _ in pairs])
    b = np.array([first + move for first, move in pairs])
    exact = [Fraction(x) - Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    two = math.sqrt(sum(float(d) ** 2 for d in exact)) * (1 + 1e-12)
    one = float(sum(map(abs, exact))) * (1 + 1e-12)
    gaussian, laplace = LatticeGaussian(spacing, 8.0), LatticeLaplace(spacing, 8.0)
    steps = (discrete.to_steps(a, spacing) - discrete.to_steps(b, spacing)).astype(int)
    assert int((steps**2).sum()) <= gaussian.square_steps(two, len(pairs))
    assert int(np.abs(steps).sum()) <= laplace.sum_steps(one, len(pairs))


def test_how_far_rounding_moves_is_attained_and_costs_nothing_where_values_are_whole():
    assert LatticeGaussian(1.0, 5.0).square_steps(1.0) == 1
    assert LatticeGaussian(1.0, 5.0).square_steps(1.25) == 4
    assert (discrete.to_steps([0.4999, 1.75 - 1e-4], 1.0)).tolist() == [0.0, 2.0]
    assert LatticeGaussian(1.0, 5.0).square_steps(1.0, 4) == 9
    assert LatticeGaussian(1.0, 5.0, whole=True).square_steps(2.0, 4) == 4
    assert LatticeGaussian(2.0**-10, 5.0).square_steps(1.0, 100) == (1024 + 10) ** 2
    assert LatticeLaplace(1.0, 5.0).sum_steps(2.5) == 3
    assert LatticeLaplace(1.0, 5.0).sum_steps(2.5, 4) == 6
    assert LatticeLaplace(1.0, 5.0, whole=True).sum_steps(2.5, 4) == 2


@pytest.mark.parametrize("kind", [LatticeGaussian, LatticeLaplace])
def test_what_comes_out_is_on_the_lattice(kind):
    mechanism = kind(2.0**-5, 1.01)
    assert mechanism.steps == 33
    values = np.linspace(-7.3, 9.1, 60).reshape(3, 20)
    found = mechanism.add(values, SeededRandomness(8))
    assert found.shape == (3, 20)
    np.testing.assert_array_equal(found * 32, np.round(found * 32))
    assert (
        stats.kstest(((found - values) / (33 / 32)).ravel(), "norm" if kind is LatticeGaussian else "laplace").pvalue
        > 1e-4
    )
    assert mechanism.add(3.0, SystemRandomness()).shape == ()


def test_what_cannot_be_rounded_is_by_rule_or_an_error_that_names_no_value():
    mechanism = LatticeGaussian(1.0, 2.0)
    huge = mechanism.add([math.inf, -math.inf, 1e300], SystemRandomness())
    assert np.all(np.abs(np.abs(huge) - 2.0**52) < 100)
    with pytest.raises(FloatingPointError, match="not a number"):
        mechanism.add([1.0, math.nan], SystemRandomness())
    with pytest.raises(FloatingPointError) as caught:
        LatticeGaussian(1.0, 2.0, whole=True).add([1234.5], SystemRandomness())
    assert "1234" not in str(caught.value)


def test_parameters_out_of_range():
    for spacing, scale in (
        (0.3, 1.0),
        (0.0, 1.0),
        (1.0, 0.0),
        (1.0, -1.0),
        (1.0, math.nan),
        (1.0, math.inf),
        (1.0, 2.0**41),
    ):
        with pytest.raises(ValueError, match="spacing"):
            LatticeGaussian(spacing, scale)
    mechanism = LatticeGaussian(1.0, 2.0**20)
    with pytest.raises(ValueError, match="coarser"):
        mechanism.exact_loss(1.0)
    for sensitivity in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="sensitivity"):
            mechanism.privacy_loss(sensitivity)
    with pytest.raises(ValueError, match="number of values"):
        mechanism.privacy_loss(1.0, dimension=0)
    assert mechanism.privacy_loss(0.0).epsilon(1e-9) == 0.0
    assert LatticeGaussian(1.0, 3.0).exact_loss(0.0).epsilon(0.0) == 0.0
