"""Several bounds of one mechanism: the smallest answers, alone and in sums, and never below the truth."""

import numpy as np
import pytest

from discretion.privacy import (
    BestOf,
    GaussianDP,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
)

REPLACE = Neighbours.REPLACE


def gaussian_bounds(mu: float, epsilons: tuple[float, ...]) -> BestOf:
    """Gaussian noise as if it were known only by its Renyi curve and by some of its profile."""
    exact = GaussianDP(mu, neighbours=REPLACE)
    curve = RenyiCurve(lambda x: (1.0 + x) * mu**2 / 2.0, neighbours=REPLACE, rule="curve")
    table = PrivacyProfile(epsilons, tuple(exact.delta(e) for e in epsilons), neighbours=REPLACE, rule="table")
    return BestOf((curve, table))


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_alone_the_smallest_answers(mu):
    exact = GaussianDP(mu, neighbours=REPLACE)
    loss = gaussian_bounds(mu, (0.5 * mu, 2.0 * mu, 4.0 * mu))
    curve, table = loss.parts
    for delta in (0.1, exact.delta(2.0 * mu), 1e-9):
        found = loss.guarantee(delta)
        assert found.epsilon == min(curve.epsilon(delta), table.epsilon(delta)) >= exact.epsilon(delta) * (1 - 1e-12)
    assert loss.guarantee(exact.delta(2.0 * mu) * 1.001).rule == "table"
    assert loss.guarantee(1e-9).rule.startswith("curve")
    for epsilon in (0.0, mu, 2.0 * mu, 7.0 * mu):
        assert exact.delta(epsilon) <= loss.delta(epsilon) == min(curve.delta(epsilon), table.delta(epsilon))
    x = np.array([0.0, 0.1, 1.0, 30.0])
    np.testing.assert_array_equal(loss.renyi_excess(x), curve.renyi_excess(x))


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_sums_are_at_least_the_truth_and_at_most_each_part_alone(count):
    mu = 0.7
    loss = gaussian_bounds(mu, tuple(np.linspace(0.02, 5.0, 60)))
    other = GaussianDP(0.4, neighbours=REPLACE)
    exact = GaussianDP((count * mu**2 + 0.4**2) ** 0.5, neighbours=REPLACE)
    for delta in (1e-2, 1e-4, 1e-6):
        found = (count * loss + other).epsilon(delta)
        assert exact.epsilon(delta) <= found
        assert found <= min((count * part + other).epsilon(delta) for part in loss.parts) * (1.0 + 1e-4)


def test_it_is_stored_and_read_back():
    loss = gaussian_bounds(1.0, (1.0, 2.0)) + PureDP(0.1, neighbours=REPLACE)
    stored = PrivacyLoss.from_dict(loss.to_dict(1e-3))
    assert loss.epsilon(1e-3) <= stored.epsilon(1e-3) <= 1.001 * loss.epsilon(1e-3)  # a curve is stored as a table
    assert "best-of" in str(loss.to_dict())


def test_bounds_of_different_relations_do_not_compare():
    with pytest.raises(NeighbourMismatch):
        BestOf((GaussianDP(1.0, neighbours=REPLACE), GaussianDP(1.0, neighbours=Neighbours.ADD_REMOVE)))
    with pytest.raises(ValueError, match="at least one"):
        BestOf(())
