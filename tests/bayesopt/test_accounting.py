"""Prices of runs, filters, training sets."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from discretion.bayesopt import (
    BudgetSpent,
    GaussianFilter,
    gradient_loss,
    gradient_noise,
    mu_of_pure,
    mu_within,
    training_mu_per_run,
    training_mu_total,
)
from discretion.privacy import GaussianDP, Neighbours


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 1.993), (1.0, 4.377), (2.0, 9.997)])
def test_conversions(mu, epsilon):
    assert GaussianDP(mu, neighbours=Neighbours.REPLACE).epsilon(1e-5) == pytest.approx(epsilon, abs=1e-3)
    assert mu_within(epsilon, 1e-5) == pytest.approx(mu, rel=1e-3)
    assert GaussianDP(mu_within(epsilon, 1e-5), neighbours=Neighbours.REPLACE).epsilon(1e-5) <= epsilon


def test_noise_and_its_price_are_inverse():
    assert gradient_noise(mu=2.0, clip=5.0, n=1000, steps=40) == pytest.approx(0.0316, rel=1e-3)
    for steps in (1, 3, 40, 10_000):
        noise = gradient_noise(mu=0.7, clip=0.3, n=517, steps=steps)
        assert gradient_loss(noise=noise, clip=0.3, n=517, steps=steps).mu == pytest.approx(0.7, rel=1e-12)


def test_composition_of_steps():
    step = gradient_loss(noise=1.0, clip=1.0, n=10, steps=1)
    assert (50 * step).epsilon(1e-5) == pytest.approx(gradient_loss(noise=1.0, clip=1.0, n=10, steps=50).epsilon(1e-5))


def test_filter_never_exceeds_its_budget():
    spent, rng = GaussianFilter(1.0), np.random.default_rng(0)
    for each in rng.uniform(0, 0.4, 100):
        try:
            spent.charge(float(each))
        except BudgetSpent:
            continue
    assert math.fsum(mu * mu for mu in spent.parts) <= 1.0 + 1e-15
    with pytest.raises(BudgetSpent):
        spent.charge(spent.left * (1 + 1e-6) + 1e-9)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            spent.charge(wrong)
    exact = GaussianFilter(0.5)
    for _ in range(25):
        exact.charge(0.1)
    with pytest.raises(BudgetSpent):
        exact.charge(1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
def test_mu_of_a_pure_guarantee_is_the_least(epsilon):
    """Randomised response, the worst mechanism, is mu-GDP for that mu and for no smaller one."""
    mu = mu_of_pure(epsilon)
    alpha = np.linspace(0, 1, 100_001)
    worst = np.maximum.reduce([np.zeros_like(alpha), 1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha)])
    assert (worst - norm.cdf(norm.isf(alpha) - mu)).min() >= -1e-12
    assert (worst - norm.cdf(norm.isf(alpha) - mu * (1 - 1e-3))).min() < 0


def test_training_runs():
    each = training_mu_per_run(1.0, 23 * 30)
    assert training_mu_total(each, 23 * 30) == pytest.approx(1.0, rel=1e-12)
    assert each == pytest.approx(1 / math.sqrt(690))
    assert each > 1 / (23 * math.sqrt(30))  # what is asked for elsewhere is more than is needed
    assert training_mu_total(each, 690, 0.5) == pytest.approx(math.hypot(1.0, 0.5))


@pytest.mark.parametrize("wrong", [{"mu": 0.0}, {"steps": 0}, {"n": 0}, {"clip": -1.0}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match=r"\w"):
        gradient_noise(**({"mu": 1.0, "clip": 1.0, "n": 10, "steps": 3} | wrong))
