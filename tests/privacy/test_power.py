"""Bounds of an attack's power, against the best tests of the worst pairs."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from discretion.privacy import BoundedRange, GaussianDP, Neighbours, PureDP, RenyiCurve
from discretion.privacy.power import attack_power, guessing

REPLACE = {"neighbours": Neighbours.REPLACE}
RATES = (0.0, 1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 1.0)


def randomised_response(epsilon: float, a: float) -> float:
    """Power of the best test of (p, 1-p) against (1-p, p), p = e^epsilon / (1 + e^epsilon), by Neyman and Pearson."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return a * p / (1 - p) if a <= 1 - p else p + (a - (1 - p)) * (1 - p) / p


@pytest.mark.parametrize("a", RATES)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_randomised_response_is_met(a, epsilon):
    bound = attack_power(PureDP(epsilon, **REPLACE), a)
    exact = randomised_response(epsilon, a)
    assert bound >= exact * (1 - 1e-12)
    assert bound <= exact + 0.01


@pytest.mark.parametrize("a", RATES[1:-1])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_two_normals_are_met_exactly_and_bounded_by_their_profile(a, mu):
    exact = norm.cdf(norm.ppf(a) + mu)
    loss = GaussianDP(mu, **REPLACE)
    assert attack_power(loss, a) == pytest.approx(exact, rel=1e-12)
    curve = RenyiCurve(lambda x: 0.5 * mu**2 * (1 + x), **REPLACE, rule="Gaussian as a curve")
    assert exact <= attack_power(curve, a) <= 1.0
    profile = attack_power(loss + PureDP(1e-9, **REPLACE), a)
    assert profile >= exact * (1 - 1e-9)


def test_guessing_is_total_variation():
    assert guessing(GaussianDP(1.0, **REPLACE)) == pytest.approx(norm.cdf(0.5), rel=1e-9)
    assert guessing(PureDP(1.0, **REPLACE)) == pytest.approx(math.e / (1 + math.e), rel=1e-9)
    assert guessing(GaussianDP(0.0, **REPLACE)) == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(
    "loss", [PureDP(math.inf, **REPLACE), BoundedRange(2.0, **REPLACE), GaussianDP(0.0, **REPLACE)]
)
def test_it_fails_closed_and_grows_with_false_alarms(loss):
    powers = [attack_power(loss, a) for a in RATES]
    assert all(a <= p <= 1 for a, p in zip(RATES, powers, strict=True))
    assert np.all(np.diff(powers) >= 0)
    if loss == PureDP(math.inf, **REPLACE):
        assert powers[1] == 1.0


@pytest.mark.parametrize("a", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_probability(a):
    with pytest.raises(ValueError, match="false positive rate"):
        attack_power(GaussianDP(1.0, **REPLACE), a)
