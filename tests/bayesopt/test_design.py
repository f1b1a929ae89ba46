"""Where losses are evaluated: derivative of the criterion, closed forms, known optima, the box, the adaptive number."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from discretion.bayesopt import Polynomial
from discretion.bayesopt.design import (
    Criterion,
    adaptive_design,
    aggregate_design,
    design,
    optimal_stencil,
    stencil,
    stencil_variance,
)
from discretion.bayesopt.kernels import gradient_kernel
from discretion.gp import RBF, Matern52

RNG = np.random.default_rng(2)
KERNELS = [gradient_kernel(RBF((0.8, 1.2, 1.5))), gradient_kernel(Matern52(1.1)), Polynomial(2), Polynomial(3)]
UNIT = gradient_kernel(RBF(1.0))


def empty(d):
    return np.empty((0, d))


def box(d, half=3.0):
    return -half * np.ones(d), half * np.ones(d)


@pytest.mark.parametrize("trend", [True, False])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_derivative_of_the_criterion(kernel, trend):
    criterion = Criterion(kernel, RNG.normal(size=3), RNG.normal(size=(4, 3)), 1e-3, trend)
    Z = RNG.normal(size=(3, 3))
    found, slow = criterion(Z)[1], np.empty((3, 3))
    for j in range(3):
        for a in range(3):
            e = np.zeros((3, 3))
            e[j, a] = 1e-4
            near, far = criterion(Z + e)[0] - criterion(Z - e)[0], criterion(Z + 2 * e)[0] - criterion(Z - 2 * e)[0]
            slow[j, a] = (8 * near - far) / 12e-4
    np.testing.assert_allclose(found, slow, rtol=1e-6, atol=1e-6 * np.abs(slow).max())


def test_stencil_of_one_dimension():
    h, variance = optimal_stencil(5e-6)
    assert h == pytest.approx(0.140, rel=0.02)
    assert variance == pytest.approx(1.94e-4, rel=0.02)
    assert optimal_stencil(1e-4) == pytest.approx((0.230, 1.46e-3), rel=0.02)
    assert h == pytest.approx((1.5 * 5e-6) ** (1 / 6), rel=0.02)
    criterion = Criterion(UNIT, np.zeros(1), empty(1), 5e-6, False)
    assert criterion(np.array([[h], [-h]]))[0] == pytest.approx(stencil_variance(h, 5e-6), rel=1e-8)
    found = design(criterion, 2, box(1), RNG)
    assert found.trace == pytest.approx(variance, rel=0.02)
    np.testing.assert_allclose(np.abs(found.locations), h, rtol=0.02)


def test_the_best_single_point_lies_a_length_scale_away():
    criterion = Criterion(UNIT, np.zeros(1), empty(1), 1e-12, False)
    found = minimize_scalar(lambda x: criterion(np.array([[x]]))[0], bounds=(0.1, 3.0), method="bounded")
    assert found.x == pytest.approx(1.0, rel=1e-3)
    assert 1.0 - found.fun == pytest.approx(math.exp(-1.0), rel=1e-6)


@pytest.mark.parametrize(
    ("d", "few", "simplex", "both"), [(2, 1.00, 0.0037, 3.9e-4), (5, 1.01, 0.0129, 9.7e-4), (10, 1.03, 0.0286, 1.94e-3)]
)
@pytest.mark.parametrize("trend", [True, False])
def test_joint_optima(d, few, simplex, both, trend):
    criterion = Criterion(UNIT, np.zeros(d), empty(d), 5e-6, trend)
    found = {b: design(criterion, b, box(d), np.random.default_rng(0)).trace for b in (d, d + 1, 2 * d)}
    assert found[d] == pytest.approx(few, rel=0.02)
    assert found[d + 1] == pytest.approx(simplex, rel=0.02)
    assert found[2 * d] == pytest.approx(both, rel=0.02)
    assert found[2 * d] == pytest.approx(d * optimal_stencil(5e-6)[1], rel=1e-3)


@pytest.mark.parametrize("where", [0.0, 1.0])
@pytest.mark.parametrize("b", [3, 5, 8])
def test_walls(where, b):
    """In a corner all locations are inside, and the gradient is nearly as well known."""
    d, bounds = 4, box(4, 1.0)
    theta = where * bounds[1]
    criterion = Criterion(gradient_kernel(RBF(0.6)), theta, empty(4))
    found = design(criterion, b, bounds, np.random.default_rng(1))
    assert (found.locations >= bounds[0]).all()
    assert (found.locations <= bounds[1]).all()
    if b > d:
        assert found.fraction < 0.05


def test_old_locations_are_used():
    d = 3
    old = design(Criterion(UNIT, np.zeros(d), empty(d)), 4, box(d), np.random.default_rng(0)).locations
    criterion = Criterion(UNIT, np.full(d, 0.02), old)
    alone = Criterion(UNIT, np.full(d, 0.02), empty(d))
    with_old, without = (design(c, 1, box(d), np.random.default_rng(0)) for c in (criterion, alone))
    assert with_old.trace < 0.01 < 2.0 < without.trace


def test_adaptive_number_is_the_smallest():
    d, tolerance = 4, 0.3
    old = RNG.normal(size=(2, d)) * 0.3
    criterion = Criterion(UNIT, np.zeros(d), old)
    found = adaptive_design(criterion, tolerance, box(d), np.random.default_rng(5))
    turn = np.random.default_rng(5).integers(2**32)
    each = [design(criterion, b, box(d), np.random.default_rng(turn)).fraction for b in range(d + 2)]
    assert len(found.locations) == next(b for b, fraction in enumerate(each) if fraction <= tolerance)
    assert found.fraction <= tolerance
    assert len(adaptive_design(criterion, 1.0, box(d), RNG).locations) == 0
    assert len(adaptive_design(criterion, 1e-9, box(d), RNG).locations) == d + 1


@pytest.mark.parametrize(("d", "b"), [(1, 1), (1, 2), (3, 2), (3, 4), (3, 5), (3, 9)])
def test_stencils_are_unit_vectors(d, b):
    found = stencil(d, b, np.random.default_rng(0))
    assert found.shape == (b, d)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    if b == d + 1 and d > 1:
        np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(found @ found.T + 1 / d - (1 + 1 / d) * np.eye(b), 0.0, atol=1e-12)


def test_the_aggregate_stencil_weighs_noise_against_bias():
    criterion = Criterion(UNIT, np.zeros(2), empty(2))
    radius = []
    for weight in (1e-6, 1e-2):
        found = aggregate_design(
            criterion, 3, box(2), np.random.default_rng(0), lambda Z, w=weight: criterion(Z)[0] + w / np.ptp(Z) ** 2
        )
        radius.append(np.linalg.norm(found.locations, axis=1).max())
    assert radius[1] > 1.5 * radius[0]
