"""Mechanisms on a continuous domain: their laws by quadrature, their prices, their refusals."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from discretion.bilevel.constants import Constants, Refused
from discretion.bilevel.continuous import ConvexExponential, tie_dimension
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.families import BiasedRidge, LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.regularised import RegularisedExponential, inexact_gaussian
from discretion.bilevel.sensitivity import hypergradient_sensitivity
from discretion.gp import Ball, Box
from discretion.privacy import (
    BoundedRange,
    GaussianDP,
    Ledger,
    Mechanism,
    Neighbours,
    PrivacyLoss,
    SeededRandomness,
    gaussian_delta,
    gaussian_mu,
)

BIASED = BiasedRidge(training=40, validation=30, dimension=1, domain=Box((-1.0,), (1.0,)), strength=0.5)


def table(rng, n, d=1):
    A = rng.normal(size=(n, d))
    return Table(A / np.linalg.norm(A, axis=1, keepdims=True), rng.uniform(-1, 1, n))


def test_continuous_choice_has_its_law():
    mechanism = ConvexExponential(problem=BIASED, epsilon=4.0, cells=32)
    rng = np.random.default_rng(1)
    records = BIASED.ingest(SplitRecords(table(rng, 40), table(rng, 30)))
    density = mechanism.density(records)
    randomness = SeededRandomness(2)
    draws = np.array([density.draw(randomness)[0] for _ in range(1500)])
    x = np.linspace(-1, 1, 2001)
    values = BIASED.values(x[:, None], records, np.full(len(x), 1e-9))
    weights = np.exp(-mechanism.k * (values - values.min()))
    law = np.append(0.0, np.cumsum(0.5 * (weights[1:] + weights[:-1])))
    assert kstest(draws, lambda t: np.interp(t, x, law / law[-1])).pvalue > 1e-3


def delta_of(p, q, epsilon):
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_regularised_law_is_dominated_by_its_gaussian(mu):
    """By quadrature on the line, over adversarial neighbours; exact values."""
    n = 5
    problem = QuadraticMean(records=n, dimension=1)
    mechanism = RegularisedExponential(problem=problem, mu=mu)
    x = np.linspace(-1, 1, 20_001)

    def law(z):
        w = np.exp(-mechanism.k * (-x * z.mean() + 0.5 * mechanism.modulus * x * x))
        return w / w.sum()

    closest = 0.0
    for base in (np.ones(n), np.zeros(n), np.linspace(-1, 1, n)):
        for first in (-1.0, 1.0):
            other = base.copy()
            other[0] = first
            for p, q in ((law(base), law(other)), (law(other), law(base))):
                for epsilon in (0.0, 0.2, 1.0):
                    exact, bound = delta_of(p, q, epsilon), gaussian_delta(mu, epsilon)
                    assert exact <= bound + 1e-9
                    closest = max(closest, exact / bound)
    assert closest > 0.2


def test_printed_constant_of_the_regularised_mechanism_is_false():
    """f = y, g = h y^2/2 - m x y: the printed Lipschitz constant 2/n leaves out the curvature, and the laws part."""
    n, X, mu, m = 1000, 3.0, 0.5, 0.5
    x = np.linspace(-X, X, 60_001)
    slopes = 1.0, 1.0 / (1.0 + 99.0 / n)  # of Phi: all (h, m) = (1, 1), and one of them (100, 1)

    def laws(lipschitz):
        k = mu**2 * m / lipschitz**2
        for slope in slopes:
            logs = -k * (slope * x + 0.5 * m * x * x)
            w = np.exp(logs - logs.max())
            yield w / w.sum()

    one, other = laws(2.0 / n)
    assert delta_of(one, other, 1.0) > 0.9999
    assert gaussian_delta(mu, 1.0) == pytest.approx(6.8e-3, rel=0.01)
    c = Constants(
        L_fx=0.0, L_fy=1.0, b_fxy=0.0, b_fyy=0.0, mu_g=1.0, b_gxy=1.0, b_gyy=100.0, r_xy=0.0, r_yy=0.0, D_fx=0.0,
        D_fy=0.0, D_g=297.0, D_gxy=0.0,
    )  # fmt: skip
    one, other = laws(hypergradient_sensitivity(c, Counts(n)).value)
    for p, q in ((one, other), (other, one)):
        for epsilon in (0.0, 0.5, 1.0):
            assert delta_of(p, q, epsilon) <= gaussian_delta(mu, epsilon) + 1e-9


def test_inexact_gaussian_covers_worst_errors():
    """Ideal N(0,1), N(mu,1), each density moved by up to exp(2 zeta) where that hurts most."""
    mu, zeta = 0.8, 0.05
    loss = inexact_gaussian(mu, zeta, Neighbours.REPLACE)
    x = np.linspace(-9, 10, 40_001)
    p, q = np.exp(-0.5 * (x - mu) ** 2), np.exp(-0.5 * x**2)
    for cut in (-1.0, 0.4, 1.5):
        up, down = p * np.exp(zeta * np.sign(x - cut)), q * np.exp(-zeta * np.sign(x - cut))
        up, down = up / up.sum(), down / down.sum()
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            assert delta_of(up, down, epsilon) <= loss.delta(epsilon) + 1e-9
        for order in (1.5, 3.0, 10.0):
            renyi = math.log(np.sum(down * (up / down) ** order)) / (order - 1)
            assert renyi <= loss.renyi(order)
    assert loss.epsilon(1e-6) > GaussianDP(mu, neighbours=Neighbours.REPLACE).epsilon(1e-6)
    small = inexact_gaussian(mu, 1e-9, Neighbours.REPLACE)
    assert small.epsilon(1e-6) == pytest.approx(GaussianDP(mu, neighbours=Neighbours.REPLACE).epsilon(1e-6), rel=2e-3)
    assert PrivacyLoss.from_dict(loss.to_dict()).epsilon(1e-6) == pytest.approx(loss.epsilon(1e-6), rel=1e-9)


def test_regularised_meets_its_target():
    mechanism = RegularisedExponential(problem=BIASED, epsilon=1.0, delta=1e-6)
    loss = mechanism.privacy_loss(70)
    assert 0.99 < loss.epsilon(1e-6) <= 1.0
    assert mechanism.price <= gaussian_mu(1.0, 1e-6)
    exact = RegularisedExponential(problem=QuadraticMean(records=100, dimension=2), epsilon=1.0, delta=1e-6)
    assert exact.privacy_loss(100) == GaussianDP(
        gaussian_mu(1.0, 1e-6), neighbours=Neighbours.REPLACE, rule="regularised exponential mechanism"
    )
    assert exact.expected_excess == pytest.approx(
        math.sqrt(4) * 0.02 * exact.radius / exact.price + 2 * exact.value_error, rel=1e-9
    )


def test_runs_in_a_ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=3.0, delta=1e-6)
    rng = np.random.default_rng(4)
    records = SplitRecords(table(rng, 40), table(rng, 30))
    plain = ConvexExponential(problem=BIASED, epsilon=1.0, cells=32)
    assert isinstance(plain, Mechanism)
    assert isinstance(plain.privacy_loss(70), BoundedRange)
    for mechanism in (plain, RegularisedExponential(problem=BIASED, epsilon=1.0, cells=32)):
        release = ledger.run(mechanism, records, n=70)
        assert -1 <= release.x[0] <= 1
        report = release.report()
        assert report == mechanism.report()
        assert "Convexity is a fact" in report.text()
        assert "plain mechanism has the better bound" in report.text()
    ball = QuadraticMean(records=30, dimension=20)
    far = ConvexExponential(problem=ball, epsilon=1.0).run(rng.normal(size=(30, 20)), SeededRandomness(1))
    assert np.linalg.norm(far.x) <= 1


def test_refusals():
    with pytest.raises(Refused, match="convex"):
        ConvexExponential(problem=LogisticPenalty(training=5, validation=5, dimension=1, candidates=None), epsilon=1.0)
    with pytest.raises(ValueError, match="finite list"):
        ConvexExponential(problem=RidgePenalty(training=5, validation=5, dimension=1), epsilon=1.0, convex=True)
    with pytest.raises(Refused, match="4 dimensions"):
        RegularisedExponential(problem=QuadraticMean(records=5, dimension=9), mu=1.0)
    with pytest.raises(ValueError, match="either mu"):
        RegularisedExponential(problem=BIASED)

    many = BiasedRidge(training=10**9, validation=10**9, dimension=1, domain=Box((-1.0,), (1.0,)), strength=1e-9)
    with pytest.raises(Refused, match="Double precision"):
        ConvexExponential(problem=many, epsilon=1.0)

    class Walled(QuadraticMean):
        def constants(self, x=None):
            known = super().constants(x).known()
            return Constants(**known, inner_unconstrained=False)

    for kind, option in ((ConvexExponential, {"epsilon": 1.0}), (RegularisedExponential, {"mu": 1.0})):
        with pytest.raises(Refused, match="constrained"):
            kind(problem=Walled(records=5, dimension=1), **option)


def test_ball_domain():
    problem = BiasedRidge(training=40, validation=30, dimension=2, domain=Ball((0.5, 0.0), 1.0), strength=0.5)
    rng = np.random.default_rng(5)
    records = SplitRecords(table(rng, 40, 2), table(rng, 30, 2))
    x = ConvexExponential(problem=problem, epsilon=1.0, cells=64).run(records, SeededRandomness(3)).x
    assert problem.domain.contains(x[None])[0]


@pytest.mark.parametrize(
    ("epsilon", "delta", "dimension"), [(0.5, 1e-6, 8.2), (1.0, 1e-5, 7.0), (1.0, 1e-6, 9.0), (4.0, 1e-6, 11.4)]
)
def test_dimension_of_the_tie(epsilon, delta, dimension):
    assert tie_dimension(epsilon, delta) == pytest.approx(dimension, abs=0.06)
