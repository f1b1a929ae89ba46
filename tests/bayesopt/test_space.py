"""Parameters and scaled vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.bayesopt import Categorical, Integer, Linear, Log, Logit, Space

SPACE = Space(
    {
        "a": Linear(-2, 6),
        "b": Log(1e-4, 1e2),
        "c": Logit(0.01, 0.9),
        "d": Integer(1, 64, log=True),
        "e": Linear(-5, 5, unit=1.0),
        "f": Log(0.1, 10, unit=1.0),
    }
)


def test_the_box():
    low, high = SPACE.bounds
    np.testing.assert_allclose(high, [0.5, 0.5, 0.5, 0.5, 5.0, np.log(10)])
    np.testing.assert_array_equal(low, -high)
    assert SPACE.parameters(low) == pytest.approx({"a": -2, "b": 1e-4, "c": 0.01, "d": 1, "e": -5, "f": 0.1})
    assert SPACE.parameters(high) == pytest.approx({"a": 6, "b": 1e2, "c": 0.9, "d": 64, "e": 5, "f": 10})
    assert SPACE.parameters(np.zeros(6)) == pytest.approx(
        {"a": 2, "b": 0.1, "c": SPACE.parameters(np.zeros(6))["c"], "d": 8, "e": 0, "f": 1}
    )
    assert SPACE.size == 6


@given(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=6))
def test_there_and_back(theta):
    parameters = SPACE.parameters(np.array(theta))
    assert isinstance(parameters["d"], int)
    for (name, each), t in zip(SPACE.dimensions.items(), theta, strict=True):
        assert each.low <= parameters[name] <= each.high
        if name != "d":
            assert each.scaled(parameters[name]) == pytest.approx(t, abs=1e-9)
    assert SPACE.parameters(SPACE.theta(parameters)) == pytest.approx(parameters)


def test_outside_is_the_nearest_inside():
    np.testing.assert_array_equal(SPACE.clip(np.full(6, 9.0)), SPACE.bounds[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(1, 1),
        lambda: Linear(0, np.inf),
        lambda: Log(0, 1),
        lambda: Logit(0, 0.5),
        lambda: Logit(0.5, 1),
        lambda: Integer(0.5, 3),
        lambda: Integer(0, 3, log=True),
        lambda: Linear(0, 1, unit=0),
        lambda: Space({}),
        lambda: Space({"a": 3}),
        lambda: SPACE.theta({"a": 1}),
        lambda: SPACE.theta(SPACE.parameters(np.zeros(6)) | {"a": 7.0}),
    ],
)
def test_refusals(make):
    with pytest.raises(ValueError, match=r"\w"):
        make()


@pytest.mark.parametrize("pair", [(0, 10), [0, 10]])
def test_a_pair_of_numbers_is_told_how_to_be_a_range(pair):
    with pytest.raises(ValueError, match=r"'dose' is a pair of numbers: write Linear\(0, 10\)"):
        Space({"dose": pair})


def test_categorical_parameters_are_refused_with_the_alternative():
    with pytest.raises(ValueError, match="select_candidate"):
        Categorical("adam", "sgd")
    with pytest.raises(ValueError, match="select_candidate"):
        Space({"optimiser": ["adam", "sgd"]})
