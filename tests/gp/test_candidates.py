"""Paths on candidates: their law, that responses may arrive in any portions, and a bound of rounding."""

import math

import mpmath
import numpy as np
import pytest

from discretion.gp import RBF, Exponential, Matern52, NuggetTooSmall
from discretion.gp.candidates import CandidatePaths, candidate_rounding

RIDGE, NUGGET = 0.7, 1e-3
C = np.random.default_rng(0).uniform(size=(9, 2))
PLACES = np.array([0, 3, 3, 7, 0, 0])
Y = np.array([0.5, -1.0, 0.3, 1.0, 0.9, -0.2])


def paths(kernel=None, nugget=NUGGET, portions=(6,)):
    found, start = CandidatePaths(kernel or Matern52(0.4), C, RIDGE, nugget, 10), 0
    for count in portions:
        found.append(PLACES[start : start + count], Y[start : start + count])
        start += count
    return found


def exact(kernel, places=PLACES, nugget=NUGGET):
    """Mean and covariance by the formulas, with numpy's solver."""
    K = (kernel(C) + nugget * np.eye(len(C))) / (1.0 + nugget)
    A = K[np.ix_(places, places)] + RIDGE**2 * np.eye(len(places))
    weights = np.linalg.solve(A, K[places])
    return weights.T @ Y[: len(places)], K - K[places].T @ weights


@pytest.mark.parametrize("kernel", [Matern52(0.4), Exponential(0.2), RBF(0.5)])
def test_draws_have_the_exact_law(kernel):
    found, rng, scale, count = paths(kernel), np.random.default_rng(1), 1.7, 40_000
    values = found.draw(scale, rng.standard_normal, count)
    mean, covariance = exact(kernel)
    covariance = scale**2 * (covariance + NUGGET * np.eye(len(C)))
    variance = np.diag(covariance)
    assert np.abs((values.mean(axis=0) - mean) / np.sqrt(variance / count)).max() < 4.5
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    centred = values - mean
    assert np.abs((centred.T @ centred / count - covariance) / spread).max() < 4.5


@pytest.mark.parametrize("portions", [(6,), (1,) * 6, (2, 4), (3, 0, 3)])
def test_responses_may_come_in_portions(portions):
    np.testing.assert_allclose(paths(portions=portions).mean(), exact(Matern52(0.4))[0], rtol=1e-12, atol=1e-13)


def test_without_responses_it_is_the_prior():
    values = CandidatePaths(Matern52(0.4), C, RIDGE, NUGGET, 3).draw(
        1.0, np.random.default_rng(0).standard_normal, 20_000
    )
    K = (Matern52(0.4)(C) + NUGGET * np.eye(9)) / (1 + NUGGET) + NUGGET * np.eye(9)
    assert np.abs(np.cov(values.T) - K).max() < 0.05


def test_any_weights_give_at_least_the_posterior_covariance():
    rng = np.random.default_rng(2)
    K = exact(Matern52(0.4), PLACES[:0])[1]
    S = np.eye(9)[PLACES]
    posterior = exact(Matern52(0.4))[1]
    for size in (0.0, 1e-3, 1.0):
        V = np.linalg.solve(S @ K @ S.T + RIDGE**2 * np.eye(6), S @ K) + size * rng.normal(size=(6, 9))
        J = np.eye(9) - V.T @ S
        excess = J @ K @ J.T + RIDGE**2 * V.T @ V - posterior
        assert np.linalg.eigvalsh(excess).min() > -1e-12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"candidates": np.zeros((2, 1))}, "different from one another"),
        ({"candidates": [[np.nan]]}, "NaN"),
        ({"ridge": 0.0}, "ridge"),
        ({"ridge": 1e-9}, "ridge"),
    ],
)
def test_refusals(change, words):
    given = {"kernel": RBF(1.0), "candidates": C, "ridge": 1.0, "nugget": 1e-6, "most": 5} | change
    with pytest.raises(ValueError, match=words):
        CandidatePaths(**given)


def test_a_nugget_below_rounding_is_refused():
    with pytest.raises(NuggetTooSmall) as error:
        CandidatePaths(RBF(1.0), C, 1.0, 1e-16, 5)
    CandidatePaths(RBF(1.0), C, 1.0, error.value.smallest, 5)


def test_more_responses_than_declared_are_refused_and_change_nothing():
    found = CandidatePaths(RBF(1.0), C, 1.0, 1e-6, 2)
    found.append([1], [0.5])
    for places, y in (([1, 2], [0.1, 0.2]), ([9], [0.0]), ([0], [np.nan]), ([0], [0.0, 1.0]), ([0.5], [0.0])):
        with pytest.raises(ValueError, match=r"places|finite|responses"):
            found.append(places, y)
    np.testing.assert_allclose(found.mean()[1], 0.25, rtol=1e-6)
    with pytest.raises(ValueError, match="scale"):
        found.draw(0.0, np.random.default_rng(0).standard_normal)


@pytest.mark.parametrize("kernel", [RBF(0.8), Matern52(1.0)])
def test_rounding_moves_means_apart_by_no_more_than_its_bound(kernel):
    """Against 50 digits, with the factor as computed."""
    rng, nugget, ridge = np.random.default_rng(3), 1e-6, 0.05
    points, places = rng.uniform(size=(12, 1)), rng.integers(0, 12, 7)
    y = rng.uniform(-1, 1, 7)
    other = np.where(np.arange(7) == 2, -y, y)
    means = []
    for responses in (y, other):
        found = CandidatePaths(kernel, points, ridge, nugget, 7)
        found.append(places, responses)
        means.append(found.mean())
    with mpmath.workdps(50):
        L = mpmath.matrix(np.tril(found._prior).tolist())
        K = L * L.T
        A = mpmath.matrix([[K[int(i), int(j)] for j in places] for i in places]) + mpmath.mpf(ridge) ** 2 * mpmath.eye(
            7
        )
        weights = mpmath.lu_solve(A, mpmath.matrix((y - other).tolist()))
        shift = [sum(K[int(i), c] * weights[k] for k, i in enumerate(places)) for c in range(12)]
        moved = float(mpmath.norm([mpmath.mpf(float(a - b)) - s for a, b, s in zip(*means, shift, strict=True)]))
    bound = candidate_rounding(7, 12, ridge, nugget, 1.0)
    assert 0.0 < moved <= bound
    assert bound < 1e-8


def test_rounding_beyond_double_precision_is_infinite():
    assert math.isinf(candidate_rounding(10, 10**15, 1.0, 1e-3, 1.0))
    assert candidate_rounding(1000, 10_000, 1.0, 1e-6, 1.0) < 1e-6
