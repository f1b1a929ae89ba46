import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from discretion.audit.rates import area_under_curve, clopper_pearson, curve, epsilon_lower_bound, rate_at


def test_clopper_pearson_covers():
    rng = np.random.default_rng(0)
    for p, trials in ((0.0, 20), (0.01, 50), (0.4, 30), (1.0, 9)):
        hits = rng.binomial(trials, p, 2000)
        inside = [low <= p <= high for low, high in (clopper_pearson(int(h), trials, 0.9) for h in hits)]
        assert np.mean(inside) >= 0.88
    assert clopper_pearson(0, 10, 0.95) == (0.0, pytest.approx(1.0 - 0.025**0.1))
    with pytest.raises(ValueError, match="hits"):
        clopper_pearson(11, 10, 0.95)


def test_the_area_is_that_under_the_curve_with_ties_counted_half():
    rng = np.random.default_rng(0)
    members, others = rng.integers(0, 6, 300).astype(float), rng.integers(0, 5, 200).astype(float)
    pairs = (members[:, None] > others).mean() + 0.5 * (members[:, None] == others).mean()
    assert area_under_curve(members, others) == pytest.approx(pairs, rel=1e-12)
    assert trapezoid(*curve(members, others)[::-1]) == pytest.approx(pairs, rel=1e-12)
    assert area_under_curve(np.ones(5), np.ones(7)) == 0.5


def test_rates_of_two_gaussians():
    rng = np.random.default_rng(0)
    rate = rate_at(1.0 + rng.standard_normal(100_000), rng.standard_normal(100_000), 0.1)
    exact = norm.sf(norm.isf(0.1) - 1.0)
    assert rate.true_positive == pytest.approx(exact, abs=0.01)
    assert rate.true_positive_interval[0] < exact < rate.true_positive_interval[1]
    assert rate_at(np.zeros(9), np.ones(9), 0.1).excess == 0.0


def test_scores_that_mean_nothing_show_nothing():
    # 200 audits of nothing: at least 95 % must say 0
    rng = np.random.default_rng(0)
    found = [epsilon_lower_bound(*rng.standard_normal((2, 500)), delta=1e-5) for _ in range(200)]
    assert np.mean(np.equal(found, 0.0)) >= 0.95


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_leak_is_found_in_either_direction_and_never_above_the_truth(sign):
    # Gaussians mu = 1 apart: epsilon(1e-3) = 3.5 or so; an attack that calls members others leaks as much
    from discretion.privacy import GaussianDP, Neighbours

    truth = GaussianDP(1.0, neighbours=Neighbours.REPLACE).epsilon(1e-3)
    found = []
    for seed in range(40):
        members, others = np.random.default_rng(seed).standard_normal((2, 4000))
        members += sign
        found.append(epsilon_lower_bound(members, others, 1e-3))
    assert np.mean(np.greater(found, truth)) <= 0.05
    assert np.median(found) > 1.0


def test_the_bound_covers_randomised_response():
    # epsilon 1 exactly: P(score 1 | member) = e/(1+e); both ends of the test are attained, so errors would show
    truth, rng = math.exp(1.0) / (1.0 + math.exp(1.0)), np.random.default_rng(1)
    above = 0
    for _ in range(200):
        members, others = rng.binomial(1, truth, 400), rng.binomial(1, 1.0 - truth, 400)
        above += epsilon_lower_bound(members, others, 0.0, thresholds=4) > 1.0
    assert above <= 10


def test_what_cannot_be_audited_is_refused():
    for members, others, delta in (
        (np.zeros(3), np.zeros(9), 0.0),
        ([np.nan] * 9, np.zeros(9), 0.0),
        (np.zeros(9), np.zeros(9), 1.0),
    ):
        with pytest.raises(ValueError, match=r"[Ss]cores|delta"):
            epsilon_lower_bound(members, others, delta)
    with pytest.raises(ValueError, match="positive rate"):
        rate_at(np.zeros(9), np.zeros(9), 1.0)
