"""The price of a run: reference figures, brute force over small worlds, and that nothing of it depends on actions."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.thompson_truth import FUNCTIONS, RIDGE, SCALE, transcripts, worst_record, worst_response
from discretion.gp import RBF, Matern52
from discretion.posterior import Bounded, Exponential1D, ResponseOnly, posterior_loss
from discretion.posterior.thompson_account import (
    ChowdhuryGopalan,
    Draws,
    greedy_information_gain,
    record_loss,
    response_loss,
    smallest_scale,
)
from discretion.privacy import Neighbours, PrivacyLoss, Unreachable

# (r, sigma, draws that read records) -> mu, delta, exact epsilon
FIGURES = [
    (1, 5, 10, 0.894427, 1e-3, 2.735408),
    (1, 5, 100, 2.828427, 1e-3, 12.069668),
    (1, 5, 1000, 8.944272, 1e-3, 66.782780),
    (1, 20, 10, 0.223607, 1e-5, 0.819728),
    (1, 20, 100, 0.707107, 1e-5, 2.943225),
    (1, 20, 1000, 2.236068, 1e-5, 11.480023),
    (3, 10, 10, 0.066667, 1e-3, 0.120270),
    (3, 10, 1000, 0.666667, 1e-3, 1.911911),
]


@pytest.mark.parametrize(("ridge", "scale", "rounds", "mu", "delta", "epsilon"), FIGURES)
def test_reference_figures(ridge, scale, rounds, mu, delta, epsilon):
    for draws in (
        Draws.constant(rounds, scale, ridge=ridge, history=1),
        Draws.constant(rounds + 1, scale, ridge=ridge),  # the first round reads nothing
    ):
        loss = response_loss(draws)
        assert loss.neighbours is Neighbours.REPLACE_RESPONSE
        assert loss.mu == pytest.approx(mu, abs=5e-7)
        assert loss.epsilon(delta) == pytest.approx(epsilon, abs=5.1e-7)


def test_batches_bounds_and_schedules():
    one = response_loss(Draws.constant(11, 5.0, ridge=1.0)).mu
    assert response_loss(Draws.constant(11, 5.0, ridge=1.0, batch=4)).mu == pytest.approx(2 * one)
    assert response_loss(Draws.constant(11, 5.0, ridge=1.0, response_bound=3.0)).mu == pytest.approx(3 * one)
    mixed = Draws((1, 2, 3), (1.0, 2.0, 4.0), 1, 2.0, 1.0, (0.0,) * 3)
    assert response_loss(mixed).mu ** 2 == pytest.approx(4 / (5 * 4) * (1 + 1 / 4 + 1 / 16))
    assert response_loss(Draws.constant(1, 5.0, ridge=1.0)).epsilon(1e-5) == 0.0
    rounded = Draws((1,), (1.0,), 2, 1.0, 1.0, (0.3,))
    assert response_loss(rounded).mu ** 2 == pytest.approx(2 * (2.0 + 0.09))


@pytest.mark.parametrize("assumption", [Bounded(1.0), Exponential1D(2.0)])
def test_whole_records_add_up_order_by_order(assumption):
    draws = Draws((2, 4, 6), (1.0, 0.5, 0.2), 2, 3.0, assumption.response_bound, (0.0,) * 3)
    loss = record_loss(draws, assumption)
    parts = [
        posterior_loss(n=n, ridge=3.0, scale=scale, assumption=assumption, paths=2)
        for n, scale in zip(draws.records, draws.scales, strict=True)
    ]
    for order in (1.01, 1.5, 3.0, 8.0, 9.9):
        assert loss.renyi(order) == pytest.approx(sum(part.renyi(order) for part in parts), rel=1e-12)
    assert math.isinf(loss.renyi(10.1))
    stored = PrivacyLoss.from_dict(loss.to_dict(1e-5))
    assert loss.epsilon(1e-5) <= stored.epsilon(1e-5) * (1 + 1e-12)
    assert record_loss(Draws.constant(1, 1.0, ridge=3.0), assumption).epsilon(1e-5) == 0.0


@pytest.mark.parametrize("assumption", [Bounded(1.0), Exponential1D(1.0)])
def test_fewer_records_never_cost_more(assumption):
    """What lost rounds and one certified table for all rounds rest on."""
    for ridge, scale in ((0.8, 1.0), (3.0, 0.1), (10.0, 5.0)):
        losses = [posterior_loss(n=n, ridge=ridge, scale=scale, assumption=assumption) for n in (1, 2, 3, 7, 40, 1000)]
        for order in 1.0 + ridge**2 * np.array([0.01, 0.3, 0.9]):
            assert np.all(np.diff([loss.renyi(order) for loss in losses]) >= -1e-13)


@pytest.mark.slow
def test_the_certified_rule_is_no_looser_and_above_its_own_rounds():
    draws = Draws((1, 5, 20), (0.5, 0.5, 0.3), 1, 4.0, 1.0, (0.0,) * 3)
    closed, certified = (record_loss(draws, Bounded(1.0), rule) for rule in ("closed-form", "renyi"))
    assert certified.epsilon(1e-5) < closed.epsilon(1e-5)
    for order in (1.5, 4.0, 10.0):
        assert certified.renyi(order) <= closed.renyi(order)
    with pytest.raises(ValueError, match="rule"):
        record_loss(draws, Bounded(1.0), "best")


# --- brute force over small worlds ----------------------------------------------------------------


def test_no_pair_of_response_functions_exceeds_the_price():
    assert 0.2 < worst_response() <= 1.0


def test_no_pair_of_whole_records_exceeds_the_price():
    assert 0.02 < worst_record() <= 1.0


def test_laws_of_actions_are_laws():
    law = transcripts(FUNCTIONS, 4)
    assert law.shape == (16,)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert law[:8].sum() == pytest.approx(0.5, abs=1e-12)  # the first round knows nothing


def test_one_draw_of_the_whole_path_attains_the_price():
    """A record far from all others, opposite responses: the pair of path laws is N(0, 1) against N(mu, 1)."""
    X = np.array([[0.0], [50.0]])
    K = RBF(0.5)(X)
    shift = np.linalg.solve(K + RIDGE**2 * np.eye(2), K)[0] * 2.0
    posterior = K - K @ np.linalg.solve(K + RIDGE**2 * np.eye(2), K)
    mu = math.sqrt(shift @ np.linalg.solve(SCALE**2 * posterior, shift))
    draws = Draws.constant(1, SCALE, ridge=RIDGE, history=2)
    assert response_loss(draws).mu == pytest.approx(mu, rel=1e-9)
    alone = posterior_loss(n=2, ridge=RIDGE, scale=SCALE, assumption=ResponseOnly(1.0))
    assert response_loss(draws).epsilon(1e-4) == pytest.approx(alone.epsilon(1e-4), rel=1e-9)


# --- schedules ------------------------------------------------------------------------------------


def test_chowdhury_gopalan():
    schedule = ChowdhuryGopalan(1.0, 0.5, 0.1, information_gain=lambda n: 3.0 * (n > 0))
    scales = schedule.scales(np.array([0, 1, 2]), None)
    assert scales[1] == pytest.approx(2.870258307501131, rel=1e-14)
    assert scales[0] == pytest.approx(1 + 0.5 * math.sqrt(2 * (1 + math.log(20))))
    with pytest.raises(ValueError, match="information_gain"):
        ChowdhuryGopalan(1.0, 0.5).scales(np.array([0]), None)
    with pytest.raises(ValueError, match="confidence"):
        ChowdhuryGopalan(1.0, 0.5, 1.0)


def test_greedy_gain_bounds_the_largest_gain():
    candidates, kernel, ridge = np.linspace(0, 1, 5)[:, None], Matern52(0.4), 0.6
    found = greedy_information_gain(kernel, candidates, ridge, 4)
    for n in range(5):
        best = max(
            0.5 * np.linalg.slogdet(np.eye(n) + kernel(candidates[list(c)]) / ridge**2)[1] if n else 0.0
            for c in itertools.combinations_with_replacement(range(5), n)
        )
        assert best <= found[n] * (1 + 1e-12) <= best / (1 - 1 / math.e) * (1 + 1e-9) + 1e-12


def test_smallest_scale():
    def loss(scale):
        return response_loss(Draws.constant(50, scale, ridge=1.0))

    found = smallest_scale(loss, 2.0, 1e-5)
    assert loss(found).epsilon(1e-5) <= 2.0 < loss(found * (1 - 1e-6)).epsilon(1e-5)
    with pytest.raises(Unreachable, match="ridge"):
        smallest_scale(lambda s: record_loss(Draws.constant(50, s, ridge=1.0), Bounded(1.0)), 2.0, 1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        smallest_scale(loss, 0.0, 1e-5)
