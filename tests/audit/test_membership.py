import json
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from discretion.audit import ExactScorer, GaussianScorer, MechanismGame, OfflineScorer, PathGame, attack
from discretion.audit.densities import LatentMixture, LogMixture, _negative_likelihood
from discretion.gp import Exponential
from discretion.gp.dense import DensePosterior


def test_densities_integrate_to_one_and_fit():
    rng = np.random.default_rng(0)
    side = np.where(rng.random(20_000) < 0.7, 1.0, -1.0)
    values = np.tanh(1.2 * side + 0.4 * rng.standard_normal(20_000)) + 0.3 * rng.standard_normal(20_000)
    fitted = LatentMixture.fit(values)
    assert quad(lambda f: math.exp(fitted.log_density(np.array([f]))[0]), -4, 4)[0] == pytest.approx(1.0, abs=1e-6)
    edges = np.quantile(values, [0.1, 0.3, 0.6, 0.9])
    for edge, share in zip(edges, (0.1, 0.3, 0.6, 0.9), strict=True):
        mass = quad(lambda f: math.exp(fitted.log_density(np.array([f]))[0]), -5, edge, limit=200)[0]
        assert mass == pytest.approx(share, abs=0.015)
    positive = np.exp(np.where(side > 0, -1.0, 0.5) + 0.3 * rng.standard_normal(20_000))
    logs = LogMixture.fit(positive)
    assert quad(lambda v: math.exp(logs.log_density(np.array([v]))[0]), 0, 20, limit=200)[0] == pytest.approx(
        1.0, abs=1e-5
    )
    np.testing.assert_allclose(np.sort(logs.means), [-1.0, 0.5], atol=0.03)


def test_the_gradient_of_the_likelihood_is_its_derivative():
    rng = np.random.default_rng(0)
    x, theta = rng.uniform(-1, 1, 50), np.array([0.3, -1.0, 2.0, 0.4, -0.5, -1.0])
    value, gradient = _negative_likelihood(theta, x)
    for k in range(6):
        step = np.zeros(6)
        step[k] = 1e-6
        slope = (_negative_likelihood(theta + step, x)[0] - _negative_likelihood(theta - step, x)[0]) / 2e-6
        assert gradient[k] == pytest.approx(slope, abs=1e-7)
    assert math.isfinite(value)


def test_a_world_is_what_it_says():
    game, rng = PathGame(0.3, 0.5, paths=40, n=7), np.random.default_rng(0)
    mean, variance = game.posteriors(True, 5, rng)
    rng = np.random.default_rng(0)
    x = 0.5 * rng.random((5, 7)) + np.repeat([0.0, 0.5], [3, 4])
    x[:, -1] = 0.5
    for b in range(5):
        dense = DensePosterior(Exponential(), 0.3, x[b][:, None], np.repeat([-1.0, 1.0], [3, 4]))
        assert mean[b] == pytest.approx(dense.mean([[0.5]])[0], abs=1e-12)
        assert variance[b] == pytest.approx(dense.covariance([[0.5]])[0, 0], rel=1e-10)
    seen = PathGame(0.3, 0.5, paths=4000, n=7).features(True, 5, np.random.default_rng(0))
    np.testing.assert_allclose(seen[:, 0], mean, atol=0.05)
    np.testing.assert_allclose(seen[:, 1], variance, rtol=0.2)


def test_the_attack_comes_close_to_the_best_one_and_neither_beats_the_claim():
    game = PathGame(0.5, 0.5)
    learned = attack(game, shadows=4000, trials=4000)
    best = attack(game, lambda *_: ExactScorer.of(game, np.random.default_rng(1)), shadows=500, trials=4000)
    assert learned.auc == pytest.approx(0.804, abs=0.02)  # published: excess .29 at 10 %
    assert learned.rates[2].excess == pytest.approx(0.29, abs=0.05)
    assert best.auc > learned.auc - 0.01
    assert 0.5 < attack(game, OfflineScorer.fit, shadows=2000, trials=2000).auc < best.auc


def test_without_the_candidate_in_either_world_there_is_nothing_to_find():
    class Null(PathGame):
        def posteriors(self, member, count, rng):
            return super().posteriors(False, count, rng)

    found = attack(Null(0.3, 0.5), shadows=1000, trials=1000)
    assert found.epsilon_lower == 0.0
    assert abs(found.auc - 0.5) < 0.05


def test_one_path_and_the_noise_alone_can_be_attacked():
    assert attack(PathGame(0.2, 0.5, paths=1), shadows=1000, trials=1000).auc > 0.7
    assert attack(PathGame(0.1, math.inf), shadows=2000, trials=2000).auc > 0.8


class Noisy:
    """Releases the sum of its records under Gaussian noise."""

    def __init__(self, noise: float) -> None:
        self.noise = noise

    def run(self, records, randomness):
        return sum(records) + self.noise * randomness.standard_normal()


@pytest.mark.parametrize(("noise", "caught"), [(1.0, False), (0.5, True)])
def test_any_mechanism_can_be_attacked_and_half_the_noise_is_caught(noise, caught):
    claimed = 3.0  # of noise 1; exactly 4.38 at delta 1e-5, 2.1 at 0.1
    game = MechanismGame(Noisy(noise), (1.0, 0.0), (0.0, 0.0), lambda release: release, np.random.default_rng)
    found = attack(game, GaussianScorer.fit, shadows=2000, trials=20_000, delta=0.01, claimed=claimed)
    assert found.auc == pytest.approx(norm.cdf(1.0 / noise / math.sqrt(2.0)), abs=0.02)
    assert found.refuted is caught
    assert json.loads(json.dumps(found.to_dict()))["refuted"] is caught
    assert ("refuted" in str(found)) is caught


def test_features_that_are_not_numbers_and_small_counts_are_refused():
    game = MechanismGame(Noisy(math.nan), (1.0,), (0.0,), lambda release: release, np.random.default_rng)
    with pytest.raises(ValueError, match="finite"):
        attack(game, shadows=10, trials=10)
    with pytest.raises(ValueError, match="8 or more"):
        attack(PathGame(0.3, 0.5), shadows=3)
    with pytest.raises(ValueError, match="ridge"):
        PathGame(0.0, 1.0)
