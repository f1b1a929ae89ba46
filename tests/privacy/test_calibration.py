import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.privacy.calibration import Unreachable, largest, largest_integer, smallest


@given(edge=st.floats(1e-12, 1e12))
def test_smallest_finds_the_edge_from_the_safe_side(edge):
    found = smallest(lambda x: x >= edge, 0.0, 1e13)
    assert edge <= found <= edge * (1 + 1e-11)


@given(edge=st.floats(1e-12, 1e12))
def test_largest_finds_the_edge_from_the_safe_side(edge):
    found = largest(lambda x: x <= edge, 0.0, 1e13)
    assert edge * (1 - 1e-11) <= found <= edge


@given(edge=st.floats(-1e6, 1e6))
def test_brackets_across_zero(edge):
    assert smallest(lambda x: x >= edge, -1e7, 1e7, relative_tolerance=0.0) == pytest.approx(edge, abs=1e-300)
    assert largest(lambda x: x <= edge, -1e7, 1e7, relative_tolerance=0.0) == pytest.approx(edge, abs=1e-300)


def test_every_answer_was_checked_and_few_questions_were_asked():
    asked = []

    def meets(x):
        asked.append(x)
        return math.sin(1 / x) > 0.5 or x > 10  # not monotone

    found = smallest(meets, 1e-9, 1e9)
    assert found in asked
    assert meets(found)
    assert len(asked) < 70


def test_ends_of_the_bracket():
    assert smallest(lambda x: True, 2.0, 3.0) == 2.0
    assert largest(lambda x: True, 2.0, 3.0) == 3.0
    assert smallest(lambda x: x >= 3.0, 2.0, 3.0) == 3.0
    assert largest(lambda x: x <= 2.0, 2.0, 3.0) == 2.0
    assert smallest(lambda x: True, 2.0, 2.0) == 2.0


def test_unreachable_targets_and_bad_brackets_are_refused():
    with pytest.raises(Unreachable, match="misses"):
        smallest(lambda x: False, 0.0, 1.0)
    with pytest.raises(Unreachable, match="misses"):
        largest(lambda x: x > math.nan, 0.0, 1.0)
    with pytest.raises(Unreachable):
        largest_integer(lambda n: False, 0, 5)
    for lower, upper in [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)]:
        with pytest.raises(ValueError, match="bracket"):
            smallest(lambda x: True, lower, upper)
    with pytest.raises(ValueError, match="empty"):
        largest_integer(lambda n: True, 2, 1)


@given(edge=st.integers(-5, 10**9), upper=st.integers(0, 10**9))
def test_largest_integer(edge, upper):
    asked = []

    def meets(n):
        asked.append(n)
        return n <= edge

    lower = min(-5, upper)
    assert largest_integer(meets, lower, upper) == min(edge, upper)
    assert all(lower <= n <= upper for n in asked)
    assert len(asked) < 75
