import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from discretion.privacy.lattice import is_power_of_two, lattice_spacing, to_lattice, to_steps
from discretion.privacy.noise import SeededRandomness

finite = st.floats(allow_nan=False, allow_infinity=False)
spacings = st.integers(-1074, 1000).map(lambda e: math.ldexp(1.0, e))


@given(st.floats(1e-300, 1e300))
def test_the_spacing_is_the_largest_power_of_two_that_fits_64_times(noise):
    spacing = lattice_spacing(noise)
    assert is_power_of_two(spacing)
    assert Fraction(spacing) * 64 <= Fraction(noise) < Fraction(spacing) * 128


def test_spacings_at_the_ends_of_the_floats():
    assert lattice_spacing(64.0) == 1.0
    assert lattice_spacing(np.nextafter(64.0, 0.0)) == 0.5
    assert lattice_spacing(5e-324) == 5e-324
    for noise in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            lattice_spacing(noise)
    for spacing in (0.0, -1.0, 0.3, 3.0, math.inf, math.nan):
        assert not is_power_of_two(spacing)
        with pytest.raises(ValueError, match="power of two"):
            to_lattice([1.0], spacing)


@given(finite, spacings)
@example(0.49999999999999994, 1.0)  # x + 0.5 rounds to 1
@example(-0.5, 1.0)
@example(2.0**52 - 0.5, 1.0)
@example(-1e-20, 1.0)
@example(1.7e308, 5e-324)
@example(-1.797e308, 2.0**974)
@example(sys.float_info.max, 2.0**973)
def test_rounding_is_exact_and_halves_go_up(value, spacing):
    (found,) = to_lattice([value], spacing)
    exact = Fraction(value) / Fraction(spacing)
    nearest = math.floor(exact + Fraction(1, 2))
    if math.isinf(found):  # rounded beyond the last float, and so refused where it would leave
        assert abs(nearest) * Fraction(spacing) > Fraction(sys.float_info.max)
        return
    quotient = Fraction(found) / Fraction(spacing)
    assert quotient == nearest
    if abs(exact) < 2**52:
        assert to_steps([value], spacing)[0] == quotient
    assert not (found == 0 and math.copysign(1.0, found) < 0)


@given(st.floats(-1e6, 1e6), st.integers(-(2**20), 2**20), st.sampled_from([1.0, 0.5, 2.0**-10]))
def test_moving_by_whole_spacings_moves_the_result_by_as_many(value, count, spacing):
    start = to_steps([value], 2.0**-20)[0] * 2.0**-20  # the sum below is exact
    moved = to_steps([start + count * spacing], spacing)[0]
    assert moved - to_steps([start], spacing)[0] == count


def test_not_a_number_stays_so_and_nothing_warns():
    found = to_lattice([math.nan, math.inf, -math.inf], 0.25)
    assert math.isnan(found[0])
    assert found[1] == math.inf
    assert found[2] == -math.inf
    assert to_lattice(np.zeros((2, 0, 3)), 1.0).shape == (2, 0, 3)


def test_without_the_lattice_the_last_bits_of_one_output_settle_what_the_noise_was_added_to():
    # 1 + z has a last place of 2^-53 at the least near 0, z has a finer one: Mironov 2012.
    noise = SeededRandomness(11).standard_normal((2, 20_000))
    released = np.array([0.0, 1.0])[:, None] + noise

    def betrayed(values):
        """Share of the values in (-1/4, 1/4) that cannot be 1 + noise."""
        near = values[np.abs(values) < 0.25]
        return np.mean(near * 2.0**53 != np.floor(near * 2.0**53))

    assert betrayed(released[0]) > 0.8
    assert betrayed(released[1]) == 0.0
    rounded = to_lattice(released, lattice_spacing(1.0))
    assert betrayed(rounded[0]) == betrayed(rounded[1]) == 0.0
    # all multiples in reach occur under both
    seen = [set(values[np.abs(values) < 0.25].tolist()) for values in rounded]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 31


@pytest.mark.parametrize("error", [1e-5, 1e-4])
def test_values_close_to_each_other_are_rounded_alike_with_the_chance_stated(error):
    spacing, tau, count = 2.0**-6, 1.0, 400_000
    source = SeededRandomness(12)
    exact = tau * source.standard_normal(count)
    computed = exact + error * np.sign(source.uniform(count) - 0.5)
    differ = np.count_nonzero(to_lattice(exact, spacing) != to_lattice(computed, spacing))
    # one side of each boundary: half of the bound
    bound = count * (2 * error / spacing) * (1 + spacing / (tau * math.sqrt(2 * math.pi)))
    assert 0.4 * bound < differ < 0.5 * bound + 5 * math.sqrt(bound)
