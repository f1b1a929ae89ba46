"""Every sampler against the law that it claims to draw from."""

import math

import numpy as np
import pytest
from scipy.integrate import cumulative_simpson
from scipy.stats import chisquare, kstest

from discretion.bilevel.samplers import (
    LARGEST_SCORE,
    ConvexDensity,
    EnvelopeViolated,
    Weights,
    choose,
    linear_on_ball,
    probabilities,
)
from discretion.gp import Ball, Box
from discretion.privacy import PublicError, SeededRandomness, SystemRandomness


def test_choose_has_the_softmax_law():
    scores = np.array([3.0, 0.0, 1.0, 0.5, 2.0])
    law = Weights(scores)
    randomness = SeededRandomness(1)
    counts = np.bincount([law.draw(randomness) for _ in range(40_000)], minlength=5)
    expected = np.exp(-scores) / np.exp(-scores).sum()
    assert np.allclose(probabilities(scores), expected, rtol=1e-14)
    assert chisquare(counts, 40_000 * expected).pvalue > 1e-4
    assert choose(np.array([0.0, 900.0]), SystemRandomness()) == 0


def test_no_chance_is_zero_and_the_cut_never_widens_the_range():
    rng = np.random.default_rng(2)
    for _ in range(300):
        scores = rng.exponential(400.0, 12)
        other = scores + rng.uniform(0.0, 1.0, 12)
        ratio = np.log(probabilities(scores) / probabilities(other))
        assert np.ptp(ratio) <= 1.0 + 1e-9
    assert probabilities(np.array([0.0, 1e9])).min() >= 0.99 * math.exp(-LARGEST_SCORE)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    with pytest.raises(PublicError):
        choose(np.array([0.0, bad]), SystemRandomness())


@pytest.mark.parametrize(("d", "kappa"), [(1, 3.0), (2, 0.0), (3, 8.0), (16, 40.0)])
def test_linear_on_ball(d, kappa):
    randomness = SeededRandomness(3)
    slope = np.zeros(d)
    slope[-1] = kappa
    draws = np.array([linear_on_ball(slope, randomness) for _ in range(8000)])
    assert np.all(np.linalg.norm(draws, axis=1) <= 1)
    t = np.linspace(-1, 1, 20_001)
    density = np.exp(kappa * (t - 1)) * (1 - t * t) ** ((d - 1) / 2)
    law = cumulative_simpson(density, x=t, initial=0.0)
    assert kstest(draws[:, -1], lambda x: np.interp(x, t, law / law[-1])).pvalue > 1e-3
    if d > 1:  # no direction across is preferred
        assert abs(draws[:, 0].mean()) < 5 * draws[:, 0].std() / math.sqrt(len(draws))


def quadratic(A, b):
    """x'Ax/2 + b'x + log cosh of the sum, for many points and for one, with its gradient."""

    def many(X):
        s = np.abs(X.sum(axis=-1))
        return 0.5 * np.sum((X @ A) * X, axis=-1) + X @ b + s + np.log1p(np.exp(-2 * s))

    def value(x):
        return float(many(x))

    def tangent(x):
        return value(x), A @ x + b + np.tanh(x.sum())

    return many, value, tangent


def drawn(d, count, k=6.0, slack=0.0, ball=False):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d))
    many, value, tangent = quadratic(root @ root.T * 0.5, rng.normal(size=d))
    box = Box((-1.0,) * d, (1.5,) * d) if not ball else Box((-1.0,) * d, (1.0,) * d)
    nearest = (lambda x: Ball((0.0,) * d, 1.0).clamp(x[None])[0]) if ball else None
    density = ConvexDensity(tangent, value, box, k, lambda _: slack + 1e-12, nearest=nearest, cells=64)
    randomness = SeededRandomness(4)
    return many, box, np.array([density.draw(randomness) for _ in range(count)])


def grid_law(many, box, k, direction, ball=False, side=800):
    """Distribution function of <direction, x> by the midpoints of a fine grid."""
    steps = (np.arange(side) + 0.5) / side
    axes = [a + (b - a) * steps for a, b in zip(box.lower, box.upper, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    if ball:
        points = points[np.linalg.norm(points, axis=1) <= 1]
    along, place = np.unique(np.round(points @ direction, 9), return_inverse=True)
    mass = np.bincount(place, np.exp(-k * many(points)))
    total = np.cumsum(mass)
    law = np.concatenate([[0.0], (total - 0.5 * mass) / total[-1], [1.0]])
    half = 0.5 * (along[1] - along[0])
    return lambda x: np.interp(x, np.concatenate([[along[0] - half], along, [along[-1] + half]]), law)


@pytest.mark.parametrize("count", [5000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_cells_in_one_dimension(count):
    many, box, draws = drawn(1, count)
    assert kstest(draws[:, 0], grid_law(many, box, 6.0, np.array([1.0]))).pvalue > 1e-3


@pytest.mark.parametrize("ball", [False, True])
@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_cells_in_two_dimensions(count, ball):
    many, box, draws = drawn(2, count, ball=ball)
    for direction in (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0])):
        assert kstest(draws @ direction, grid_law(many, box, 6.0, direction, ball)).pvalue > 1e-3


def test_lowering_the_planes_changes_no_law():
    many, box, draws = drawn(1, 3000, slack=0.1)
    assert kstest(draws[:, 0], grid_law(many, box, 6.0, np.array([1.0]))).pvalue > 1e-3


def test_sharp_densities_are_drawn_too():
    """k large: the mass lies in a corner, cells are cut by the hundreds of powers of e."""
    density = ConvexDensity(
        lambda x: (float(x.sum()), np.ones(2)),
        lambda x: float(x.sum()),
        Box((0.0, 0.0), (1.0, 1.0)),
        5e3,
        lambda _: 1e-9,
    )
    randomness = SeededRandomness(5)
    draws = np.array([density.draw(randomness) for _ in range(3000)])
    assert kstest(5e3 * draws[:, 0], "expon").pvalue > 1e-3


def test_violated_envelope_is_noticed():
    """A concave bump under a tangent: convexity was claimed and does not hold."""
    density = ConvexDensity(
        lambda x: (-float(x @ x), -2 * x), lambda x: -float(x @ x), Box((-1.0,), (1.0,)), 4.0, lambda _: 0.0, cells=4
    )

    def draw():
        for _ in range(50):
            density.draw(SystemRandomness())

    with pytest.raises(EnvelopeViolated) as caught:
        draw()
    assert not any(character.isdigit() for character in str(caught.value))
