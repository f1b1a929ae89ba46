import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.brute_force import draw
from benchmarks.profile_claims import WITNESSES, largest_delta, pair_of
from discretion.gp.kernels import Exponential, Matern32
from discretion.posterior import RKHS, Bounded, Diagonal, Exponential1D, ResponseOnly
from discretion.posterior.certified import certified_epsilon, search_space
from discretion.posterior.covering import (
    ProfileProblem,
    certified_profile_epsilon,
    certify_profile,
    polygon,
    profile_problem,
)
from discretion.posterior.pair import gram, pair_from_gram
from discretion.posterior.profile import WhitenedPair, accepted_profile, profile_range
from discretion.posterior.response_sets import BoxSet, Cells, LineSet, PolygonSet, Space

LINE = math.exp(-2.0)
SETS = [BoxSet(2.0), LineSet(1.3, 30), PolygonSet(0.8, 30, 0.0), PolygonSet(1.0, 30, 0.2)]


def line(**changes):
    public = {"n": 100, "ridge": 3.0, "scale": 0.2179477291, "delta": 1e-3, "least_kernel": LINE}
    return public | {"assumption": Exponential1D(1.0)} | changes


def problem(responses, paths=1, ridge=1.7, scale=0.6):
    return ProfileProblem(Space(ridge, 0.98, 0.08, 0.0, responses.ordered), responses, scale, paths)


def random_cells(rng, count, ordered):
    """Cells (3, N) with an admissible point in each (3, N)."""
    v, v_other = rng.uniform(0.08, 0.98, (2, count))
    v_other = np.where(rng.uniform(size=count) < 0.3, v, v_other)
    ratio = np.sqrt(np.minimum(v, v_other) / np.maximum(v, v_other))
    rho = rng.uniform(size=count) * (ratio if ordered else 1.0)
    rho = np.where((v == v_other) & (rng.uniform(size=count) < 0.5), 1.0, rho)
    point = np.stack([v, v_other, np.arccos(rho)])
    size = 10.0 ** rng.uniform(-3.0, -0.3, (3, count))
    share = np.where(
        rng.uniform(size=(3, count)) < 0.3, np.round(rng.uniform(size=(3, count))), rng.uniform(size=(3, count))
    )
    low, high = np.array([0.08, 0.08, 0.0])[:, None], np.array([0.98, 0.98, math.pi / 2])[:, None]
    return np.clip(point - share * size, low, high), np.clip(point + (1.0 - share) * size, low, high), point


def exact(point, s, s_other, p):
    v, v_other, theta = point
    return pair_of((v, v_other, np.cos(theta) * np.sqrt(v * v_other), s, s_other, p.space.ridge, p.scale))


@pytest.mark.parametrize("responses", SETS)
@pytest.mark.parametrize("paths", [1, 4])
def test_covers_bound_their_cells(responses, paths):
    rng = np.random.default_rng(0)
    p = problem(responses, paths)
    count = 250
    low, high, point = random_cells(rng, count, responses.ordered)
    cover = p.cover(low, high)
    at = Cells(p.space.ridge, *(np.stack([point[0], point[1], np.cos(point[2])]),) * 2, np.zeros(count))
    vertices = np.stack(polygon(responses, at))
    # residuals: vertices and points between them
    weights = rng.dirichlet(np.full(vertices.shape[1], 0.3), count).T * rng.choice(
        [-1.0, 1.0], (vertices.shape[1], count)
    )
    inside = np.sum(weights * vertices, axis=1)
    for s in (*np.swapaxes(vertices, 0, 1), inside):
        pair = exact(point, *s, p)
        for epsilon in (0.2, 1.5):
            if paths == 1:
                value = profile_range(pair, epsilon, 100).low
            else:
                value = accepted_profile(pair, epsilon, paths)
                value = np.where(value < 1.0, value * (1 - 3e-3), 0.0)
            flat = WhitenedPair(cover.pair.shift.reshape(2, -1), cover.pair.excess.reshape(2, -1))
            targets = np.tile(epsilon - cover.lowered, cover.pair.shift.shape[1])
            z = np.minimum(1.0, 0.5 * flat.pole)
            bound = p.bound(flat, targets, z).reshape(-1, count).max(axis=0) * np.exp(cover.raised)
            assert np.all(value <= np.minimum(bound, 1.0) * (1 + 1e-9))


@pytest.mark.parametrize("responses", SETS)
def test_the_cover_of_a_point_is_its_pair(responses):
    rng = np.random.default_rng(1)
    p = problem(responses)
    _, _, point = random_cells(rng, 60, responses.ordered)
    cover = p.cover(point, point)
    assert np.all(cover.raised == 0.0)
    assert np.all(cover.lowered == 0.0)
    at = Cells(p.space.ridge, *(np.stack([point[0], point[1], np.cos(point[2])]),) * 2, np.zeros(60))
    for index, s in enumerate(np.swapaxes(np.stack(polygon(responses, at)), 0, 1)):
        wanted = profile_range(exact(point, *s, p), 0.4, 200)
        found = profile_range(cover.pair.take(index), 0.4, 200)
        assert np.allclose(found.low, wanted.low, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("responses", SETS)
def test_polygons_contain_the_sets_of_their_cells(responses):
    """Support functions of shrunk vertices at points against those of the cell's polygon."""
    rng = np.random.default_rng(2)
    low, high, point = random_cells(rng, 400, responses.ordered)

    def corners(lower, upper):
        ends = np.stack([lower[0], lower[1], np.cos(upper[2])]), np.stack([upper[0], upper[1], np.cos(lower[2])])
        return np.stack(polygon(responses, Cells(1.7, *ends, np.zeros(400))))

    cell, own = corners(low, high), corners(point, point)
    for angle in np.linspace(0.0, math.pi, 41):
        h = np.array([math.cos(angle), math.sin(angle)])[:, None, None]
        for shrink in ((1.0, 1.0), (0.3, 1.0), (1.0, 0.2), (0.0, 0.7)):
            reach = np.abs(np.sum(h * np.array(shrink)[:, None, None] * own, axis=0)).max(axis=0)
            assert np.all(reach <= np.abs(np.sum(h * cell, axis=0)).max(axis=0) * (1 + 1e-6) + 1e-12)


def test_line_polygon_by_its_constraints():
    rng = np.random.default_rng(3)
    _, _, point = random_cells(rng, 300, True)
    v, v_other, theta = point
    rho, M, n, r = np.cos(theta), 1.3, 30, 1.7
    cells = Cells(r, *(np.stack([v, v_other, rho]),) * 2, np.zeros(300))
    s, s_other = polygon(LineSet(M, n), cells)
    S, S_other = (M * (1 + np.minimum(np.sqrt(1 - x * x), np.sqrt((n - 1) * x * (1 - x)) / r)) for x in (v, v_other))
    beta, gamma = rho * np.sqrt(v / v_other), rho * np.sqrt(v_other / v)
    sides = np.stack(
        [
            np.abs(s) / S,
            np.abs(s_other) / S_other,
            np.abs(s - beta * s_other) / (2 * M),
            np.abs(s_other - gamma * s) / (2 * M),
        ]
    )
    assert np.all(sides <= 1 + 1e-6)
    assert np.all((sides >= 1 - 1e-6).any(axis=0))  # every vertex on the border


# --- certified figures


@pytest.mark.parametrize(
    ("ridge", "scale", "lower", "known"), [(3.0, 0.2179477291, 2.984093, 3.678), (6.0, 0.05287656382, 3.253998, 3.899)]
)
def test_line_figures(ridge, scale, lower, known):
    found = certified_profile_epsilon(**line(ridge=ridge, scale=scale, tolerance=1e-2))
    assert found.complete
    assert found.certified
    assert found.route == "quadrature"
    assert lower <= found.found <= found.epsilon <= known
    assert found.epsilon == pytest.approx(1.01 * found.found)


def test_covariance_alone():
    found = certified_profile_epsilon(**line(ridge=1.0, scale=1e5))
    assert 4.4011 <= found.epsilon <= 4.445
    assert found.complete
    same = certified_profile_epsilon(**line(ridge=1.0, scale=math.inf))
    assert same.epsilon == pytest.approx(found.epsilon, rel=1e-3)


@pytest.mark.parametrize(("scale", "known"), [(0.2179477291, 7.257), (0.604712297, 2.020)])
def test_box_figures(scale, known):
    space = search_space(Exponential1D(1.0), 100, 3.0, LINE)
    free = Space(3.0, space.variance, space.least_variance, 0.0, False)
    found = ProfileProblem(free, BoxSet(2.0), scale).search(1e-3, tolerance=1e-2)
    assert found.epsilon == pytest.approx(known, rel=5e-4)
    assert found.complete


def test_several_paths():
    found = certified_profile_epsilon(**line(ridge=6.0, scale=1.0, paths=3, tolerance=1e-2))
    assert found.complete
    assert found.route == "contour"
    assert 0.245 <= found.epsilon <= 0.2520
    one = certified_profile_epsilon(**line(ridge=6.0, scale=1.0, tolerance=1e-2))
    assert one.epsilon < found.epsilon < 3 * one.epsilon


def test_generic_kernels_below_the_renyi_bound():
    public = {"n": 400, "ridge": 8.0, "scale": 0.1360777894, "delta": 1e-3, "least_kernel": math.exp(-math.sqrt(2.0))}
    found = certified_profile_epsilon(**public, assumption=Bounded(1.0), tolerance=2e-2)
    assert found.complete
    assert 0.502 < found.epsilon < 0.9 * certified_epsilon(**public, assumption=Bounded(1.0))


def test_refuses_what_data_sets_refute():
    for *_, ridge, scale, epsilon in WITNESSES:
        public = line(ridge=ridge, scale=scale)
        assert not certify_profile(**public, epsilon=epsilon * (1 - 1e-6))
    assert not certify_profile(**line(), epsilon=2.95)
    assert certify_profile(**line(), epsilon=3.70)
    assert not certify_profile(**line(), epsilon=3.70, time_limit=0.0)


def test_stopped_early_it_is_an_upper_bound():
    whole = certified_profile_epsilon(**line(tolerance=2e-2))
    stopped = certified_profile_epsilon(**line(tolerance=2e-2, time_limit=0.0))
    assert not stopped.complete
    assert stopped.certified
    assert whole.epsilon <= stopped.epsilon < math.inf
    bounds = []
    again = certified_profile_epsilon(**line(tolerance=2e-2), progress=lambda *state: bounds.append(state))
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)  # deterministic
    epsilons, counts, _ = zip(*bounds, strict=True)
    assert all(after <= before for before, after in pairwise(epsilons))
    assert epsilons[-1] == whole.epsilon
    assert counts[-1] == 0


def test_corners_of_the_parameters():
    for n in (1, 2):
        found = certified_profile_epsilon(
            n=n, ridge=1.0, scale=1.0, delta=1e-3, assumption=Diagonal(1.0), tolerance=0.02
        )
        assert found.complete
        assert 5.0 < found.epsilon < certified_epsilon(n=n, ridge=1.0, scale=1.0, delta=1e-3, assumption=Diagonal(1.0))
    assert certified_profile_epsilon(**line(scale=1e3, delta=0.5)).epsilon <= 1e-5
    silent = certified_profile_epsilon(**line(ridge=20.0, assumption=Exponential1D(0.0)))
    assert silent.complete
    assert silent.epsilon < 0.01


def test_beyond_what_is_worth_a_search():
    hopeless = certified_profile_epsilon(n=50, ridge=0.05, scale=1.0, delta=1e-5, assumption=Diagonal(1.0))
    assert not hopeless.complete
    assert hopeless.epsilon > 500.0


def test_refusals():
    for assumption in (RKHS(1.0), ResponseOnly(1.0)):
        with pytest.raises(ValueError, match=r"certified_epsilon|posterior_loss"):
            certified_profile_epsilon(**line(assumption=assumption))
    for change in ({"delta": 1e-12}, {"delta": 1.0}, {"tolerance": 0.0}, {"scale": -1.0}, {"n": 0}):
        with pytest.raises(ValueError, match=r"delta|tolerance|scale|n "):
            certified_profile_epsilon(**line(**change))
    with pytest.raises(ValueError, match="epsilon"):
        certify_profile(**line(), epsilon=0.0)


# --- data sets


@pytest.mark.parametrize(
    ("kernel", "assumption", "least_share"),
    [(Exponential(0.5), Exponential1D(1.0), 0.05), (Matern32(0.6), Bounded(1.0), 0.005)],
)
def test_random_data_sets_never_exceed_the_certified_delta(kernel, assumption, least_share):
    rng = np.random.default_rng(8)
    dimension = 1 if isinstance(assumption, Exponential1D) else 2
    n, ridge, scale, delta = 8, 0.9, 0.8, 1e-2
    least = float(kernel(np.zeros((1, dimension)), np.ones((1, dimension)))[0, 0]) * (1 - 1e-14)
    found = certified_profile_epsilon(
        n=n, ridge=ridge, scale=scale, delta=delta, assumption=assumption, least_kernel=least, tolerance=1e-2
    )
    batch = draw(rng, 3000, n, dimension)
    y = np.where(np.abs(batch.y) > 1.0, np.sign(batch.y), batch.y)
    X = np.clip(batch.X, 0.0, 1.0)
    pair = pair_from_gram(gram(kernel, X), y[:, :-2], y[:, -2], y[:, -1], np.full(3000, ridge))
    laws = pair_of((pair.v, pair.v_other, pair.w, pair.residual, pair.residual_other, ridge, scale))
    assert np.all(profile_range(laws, found.epsilon, 100).low <= delta)
    setting = (n, ridge, scale, found.epsilon)
    driven = largest_delta(kernel, dimension, setting, rng, random=500, driven=10, rounds=12)
    assert least_share * delta < driven <= delta


@pytest.mark.slow
def test_optimised_data_sets_come_near():
    found = certified_profile_epsilon(**line(ridge=1.5, scale=14.9304, tolerance=1e-2))
    rng = np.random.default_rng(0)
    setting = (100, 1.5, 14.9304, found.epsilon)
    reached = largest_delta(Exponential(0.5), 1, setting, rng, random=2000, driven=30, rounds=40)
    assert 0.8e-3 < reached <= 1e-3


def test_problem_of_an_assumption():
    public = {key: value for key, value in line().items() if key != "delta"}
    assert isinstance(profile_problem(**public).responses, LineSet)
    assert isinstance(profile_problem(**(public | {"assumption": Bounded(1.0)})).responses, PolygonSet)
