import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from discretion.audit import MechanismGame, attack, certificate_game, mechanism_game, repeated, witness_epsilon
from discretion.audit.releases import IndependentScorer
from discretion.audit.repeated import allowed, draw_attack
from discretion.gp import RBF, Ball, Box, Exponential, Lattice
from discretion.posterior import (
    RKHS,
    KernelSumMechanism,
    LatticeMechanism,
    PosteriorMechanism,
    ResponseOnly,
)
from discretion.posterior.rules import posterior_price
from discretion.privacy import Neighbours, SeededRandomness

LINE = Box((0.0,), (2.0,))
AT = np.array([[0.3], [1.0]])


def paths(**changes):
    settings = {
        "kernel": Exponential(0.5),
        "domain": LINE,
        "response_range": (1.0, 5.0),
        "ridge": 3.0,
        "scale": 2.0 * 0.2179,
        "locations": AT,
        "delta": 1e-3,
    }
    return PosteriorMechanism(**settings | changes)


def sums(**changes):
    settings = {"kernels": (RBF(0.2), RBF(0.1)), "domain": LINE, "response_ranges": (0.0, 4.0), "scale": 2.0}
    return KernelSumMechanism(**settings | {"delta": 0.01, "grid": (5,)} | changes)


def lattice(**changes):
    graph = Lattice.hexagon(0.2, Box((0.0, 0.0), (1.0, 1.0)), 0.3)
    settings = {"ridge": 2.0, "scale": 0.8, "delta": 0.01, "rule": "closed-form"}
    return LatticeMechanism(graph, (-1.0, 1.0), **settings | changes)


class HalfTheNoise(PosteriorMechanism):
    """A deliberate mistake: half the noise that is paid for."""

    def run(self, records, randomness):
        honest = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return PosteriorMechanism(**honest | {"scale": 0.5 * self.scale}).run(records, randomness)


def test_half_the_noise_is_caught_and_the_whole_is_not():
    account = {"n": 60, "ridge": 3.0, "scale": 0.2179, "assumption": paths().assumption.__class__(1.0)}
    claimed = posterior_price(delta=1e-3, **account, least_kernel=math.exp(-2.0)).epsilon
    effort = {"shadows": 4_000, "trials": 20_000, "delta": 1e-3, "claimed": claimed}
    for kind, caught in ((PosteriorMechanism, False), (HalfTheNoise, True)):
        made = paths()
        made = kind(**{name: getattr(made, name) for name in made.__dataclass_fields__})
        game = mechanism_game(made, 60)
        found = repeated(game, game.trainer, **effort)
        assert found.refuted is caught
        assert ("REFUTED" in " ".join(found.lines())) is caught
        assert json.loads(json.dumps(found.to_dict()))["refuted"] is caught
    assert found.epsilon_lower > 0.5 * witness_epsilon_of_half()


def witness_epsilon_of_half():
    from discretion.audit import Cluster, Record, Witness

    pair = Witness((Cluster(59, (1.0,), -1.0),), Record((0.0,), 1.0), Record((0.0,), -1.0))
    return witness_epsilon(pair, Exponential(0.5), ridge=3.0, scale=0.5 * 0.2179, delta=1e-3)[0]


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("make", [paths, sums, lattice])
def test_the_game_is_the_release_and_its_claim_holds(make, neighbours):
    mechanism = make(neighbours=Neighbours(neighbours))
    n = 20 if neighbours == "replace" else None
    claimed = mechanism.privacy_loss(n).epsilon(mechanism.delta)
    game = mechanism_game(mechanism, n, seconds=2.0)
    sizes = len(game.included.response), len(game.excluded.response)
    assert sizes[0] - sizes[1] == (0 if n else 1)
    found = repeated(game, game.trainer, shadows=1_000, trials=3_000, delta=mechanism.delta, claimed=claimed)
    assert 0.0 < found.epsilon_lower < claimed
    # one run as the ledger makes it, again and again, has the moments of the parts of one large run
    differing = np.unique(np.concatenate([game.included.covariates[-1:], game.excluded.covariates[-1:]]), axis=0)
    if not n:
        differing = game.included.covariates[-1:]
    by_hand = np.array([one_run(mechanism, game.included, differing, seed) for seed in range(40)])
    at_once = game.runs(game.included, 2_000, 7)
    spread = by_hand.std(axis=0)
    np.testing.assert_allclose(at_once.std(axis=0)[: spread.size], spread, rtol=0.5)
    error = np.abs(at_once.mean(axis=0)[: spread.size] - by_hand.mean(axis=0)) / spread * math.sqrt(40)
    assert error.max() < 5.0


def one_run(mechanism, records, differing, seed):
    """What the game's attacker sees, of an ordinary run of the mechanism."""
    if isinstance(mechanism, PosteriorMechanism):
        return replace(mechanism, locations=differing).run(records, SeededRandomness(seed)).values.ravel()
    if isinstance(mechanism, KernelSumMechanism):
        released = replace(mechanism, locations=[[1.0]], grid=None).run(records, SeededRandomness(seed))
        return np.concatenate([released.value_sums, released.density[None]])[:, :, 0].ravel()
    node = mechanism.lattice.node(records.covariates[-1:])
    return mechanism.run(records, SeededRandomness(seed)).values[:, node].ravel()


def test_kernel_sums_are_as_far_apart_as_their_account_says():
    mechanism = sums()
    game = mechanism_game(mechanism, 10)
    found = attack(game, game.trainer, shadows=1_000, trials=3_000, delta=0.01)
    mu = mechanism.privacy_loss(10).mu
    assert found.auc == pytest.approx(norm.cdf(mu / math.sqrt(2.0)), abs=0.025)


def test_a_unit_with_several_records_leaves_with_all_of_them():
    mechanism = sums(contributions=3, scale=6.0)
    game = mechanism_game(mechanism, None)
    found = attack(game, game.trainer, shadows=1_000, trials=3_000, delta=0.01)
    assert found.auc == pytest.approx(norm.cdf(mechanism.privacy_loss().mu / math.sqrt(2.0)), abs=0.025)


def test_from_a_certificate():
    for mechanism, n in ((paths(paths=2), 30), (sums(), 30), (lattice(), 30)):
        made = mechanism.certificate(n, SeededRandomness(0))
        game = certificate_game(made, seconds=2.0)
        seen = game.features(True, 50, np.random.default_rng(0))
        assert len(seen) == 50
        assert seen.shape[1] % game.parts == 0
        assert np.isfinite(seen).all()
    assert game.words.endswith("becomes the lowest")


def test_response_only_a_ball_and_what_can_not_be_attacked():
    game = mechanism_game(paths(assumption=ResponseOnly(2.0)), 15)
    np.testing.assert_array_equal(game.included.covariates, game.excluded.covariates)
    ball = paths(kernel=RBF(0.4), domain=Ball((0.0, 1.0), 2.0), locations=np.zeros((1, 2)))
    game = mechanism_game(ball, 15, seconds=2.0)
    assert ball.domain.contains(game.included.covariates).all()
    with pytest.raises(ValueError, match="No worst-case"):
        mechanism_game(paths(assumption=RKHS(2.0)), 15)
    with pytest.raises(ValueError, match="audit pair"):
        mechanism_game(paths(), 100_000)
    made = replace(paths().certificate(10, SeededRandomness(0)), mechanism="Laplace")
    with pytest.raises(ValueError, match="MechanismGame"):
        certificate_game(made)


def test_parts_add_up():
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.3, 1.0, (500, 6)), rng.normal(0.0, 1.0, (500, 6))
    scorer = IndependentScorer.fit(members, others, 3)
    total = sum(scorer.one(members[:, 2 * i : 2 * i + 2]) for i in range(3))
    np.testing.assert_allclose(scorer(members), total, rtol=1e-12)


def test_what_a_claim_allows_is_the_curve_of_randomised_response():
    false = np.linspace(0.0, 1.0, 101)
    most = allowed(false, 1.0, 0.01)
    assert most[0] == pytest.approx(0.01)
    assert most[-1] == 1.0
    assert np.all(np.diff(most) >= 0)
    # symmetric: the largest power at a level is the same test read backwards
    inside = most < 1.0
    np.testing.assert_allclose(allowed(1.0 - most, 1.0, 0.01)[inside], 1.0 - false[inside], atol=1e-12)
    assert np.all(allowed(false, math.inf, 0.0)[1:] == 1.0)


class Noisy:
    def run(self, records, randomness):
        return sum(records) + randomness.standard_normal()


def test_repetitions_share_the_confidence_and_are_drawn(tmp_path):
    game = MechanismGame(Noisy(), (1.0, 0.0), (0.0, 0.0), lambda release: release, np.random.default_rng)
    found = repeated(game, shadows=100, trials=200, repetitions=4, delta=0.01, claimed=9.0)
    assert all(each.confidence == pytest.approx(1.0 - 0.05 / 4) for each in found.attacks)
    assert len({each.auc for each in found.attacks}) == 4
    assert found.epsilon_lower == max(each.epsilon_lower for each in found.attacks)
    draw_attack(found, tmp_path / "attack.png", "four")
    assert (tmp_path / "attack.png").stat().st_size > 5_000
    with pytest.raises(ValueError, match="one of online"):
        repeated(game, "oracle")
    with pytest.raises(ValueError, match="use online"):
        repeated(game, "exact")
