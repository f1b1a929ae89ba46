import numpy as np
import pytest

from discretion.gp import RBF, Box, Exponential, Matern32
from discretion.posterior.worlds import (
    BlobWorlds,
    GaussianProcessWorlds,
    OUExcursionWorlds,
    Worlds,
    design_probabilities,
    square_root,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_ou_paths_and_records_have_the_exact_joint_law():
    worlds = OUExcursionWorlds(n=12, nodes=15, reject=False)
    count = 40_000
    source = rng()
    paths = worlds._paths(count, source)
    x = np.sort(np.r_[source.uniform(size=10), 0.5, 0.5])  # two records at one place
    values = worlds._bridge(paths, np.tile(x, (count, 1)), source)
    together = np.hstack([paths, values])
    places = np.r_[np.linspace(0, 1, 15), x]
    expected = np.exp(-np.abs(places[:, None] - places))
    assert np.abs(together.T @ together / count - expected).max() < 6 * np.sqrt(2 / count)
    twice = np.flatnonzero(x == 0.5)
    np.testing.assert_allclose(values[:, twice[0]], values[:, twice[1]], atol=1e-12)


def test_ou_worlds_keep_the_published_rule_and_scale():
    found = OUExcursionWorlds(n=50, noise=0.3).simulate(400, rng())
    assert found.covariates.shape == (400, 50, 1)
    assert found.targets.shape == (400, 800)
    assert np.abs(found.responses).max() <= 1.0
    assert np.abs(found.targets).max() <= 1.0
    weights = np.full(800, 1 / 799)
    weights[[0, -1]] /= 2
    inside = found.targets >= 0
    volume = inside @ weights
    starts = np.diff(inside.astype(int), axis=1, prepend=0) == 1
    components = starts.sum(axis=1)
    assert ((volume >= 0.1 - 1e-12) & (volume <= 0.9 + 1e-12)).all()
    assert (components <= 13).all()
    assert (volume / components >= 0.05 - 1e-12).all()
    # the rule on the mean width favours large sets: all places score 0.61, not 0.5
    assert volume.mean() == pytest.approx(0.612, abs=4 * 0.22 / 20)
    free = OUExcursionWorlds(n=5, nodes=60, reject=False).simulate(4000, rng(1))
    assert (free.targets >= 0).mean() == pytest.approx(0.5, abs=0.03)


def test_ou_responses_are_the_path_plus_uniform_noise():
    exact = OUExcursionWorlds(n=30, noise=0.0, nodes=2000, reject=False).simulate(20, rng(2))
    between = np.stack(
        [np.interp(x[:, 0], np.linspace(0, 1, 2000), f) for x, f in zip(exact.covariates, exact.targets, strict=True)]
    )
    assert np.std(exact.responses - between) < 0.02  # the path moves by about sqrt(1/2000) between nodes


def test_ou_rule_that_nothing_passes_is_refused():
    with pytest.raises(ValueError, match="rejection rule"):
        OUExcursionWorlds(n=1, nodes=400, length_scale=1e-4).simulate(1, rng())


def test_blob_worlds_agree_with_a_direct_evaluation():
    source = rng(3)
    worlds = BlobWorlds(n=60, noise=0.0, grid=(7, 9), reference=80)
    found = worlds.simulate(5, source)
    # the same draws by hand
    again = rng(3)
    amplitude, centre = again.uniform(0.7, 1.3, (5, 2)), again.uniform(0.15, 0.85, (5, 2, 2))
    w1 = again.uniform(0.2, 0.35, (5, 2))
    w2 = np.minimum(w1 * again.uniform(1, 1.4, (5, 2)), 0.35)
    phi = again.uniform(0, np.pi, (5, 2))
    for i in range(5):

        def h(points, i=i):
            total = 0.0
            for j in range(2):
                turn = np.array([[np.cos(phi[i, j]), -np.sin(phi[i, j])], [np.sin(phi[i, j]), np.cos(phi[i, j])]])
                inverse = turn @ np.diag([w1[i, j] ** -2, w2[i, j] ** -2]) @ turn.T
                gap = points - centre[i, j]
                total = total + amplitude[i, j] * np.exp(-0.5 * np.einsum("na,ab,nb->n", gap, inverse, gap))
            return total

        reference = h(worlds.domain.grid((80, 80)))
        q = np.quantile(reference, 0.65)

        def g(points, q=q, h=h):
            return 1 / (1 + np.exp(-5 * (h(points) - q)))

        low, high = 1 / (1 + np.exp(-5 * (reference.min() - q))), 1 / (1 + np.exp(-5 * (reference.max() - q)))
        for points, values in (
            (worlds.domain.grid((7, 9)), found.targets[i]),
            (found.covariates[i], found.responses[i]),
        ):
            expected = 2 * np.clip((g(points) - low) / (high - low), 0, 1) - 1
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def test_blob_worlds_trivial_score_and_bounds():
    found = BlobWorlds(n=20, noise=0.5, grid=(30, 30), reference=60).simulate(300, rng(4))
    assert np.abs(found.responses).max() <= 1.0
    assert (found.targets >= 0).mean() == pytest.approx(0.36, abs=0.01)


def test_a_gaussian_process_world_has_the_declared_moments():
    domain, grid = Box((0.0,), (2.0,)), (9,)
    nodes = domain.grid(grid)[:, 0]
    density, mean = 1.0 + nodes, 0.3 * nodes
    prior = GaussianProcessWorlds(
        Matern32(0.5), domain, grid, n=6, noise_sd=0.2, amplitude=0.7, mean=mean, density=density
    )
    found = prior.simulate(40_000, rng(5))
    np.testing.assert_allclose(found.targets.mean(axis=0), mean, atol=0.02)
    expected = 0.49 * Matern32(0.5)(nodes[:, None])
    np.testing.assert_allclose(np.cov(found.targets.T), expected, atol=0.02)
    share = [(found.covariates == node).mean() for node in nodes]
    np.testing.assert_allclose(share, density / density.sum(), atol=0.005)
    where = np.argmin(np.abs(found.covariates - nodes), axis=2)
    noise = found.responses - np.take_along_axis(found.targets, where, axis=1)
    assert noise.std() == pytest.approx(0.2, rel=0.01)
    assert abs(noise.mean()) < 0.005


def test_gaussian_process_worlds_clip_and_normalise():
    domain = Box((0.0, 0.0), (1.0, 1.0))
    prior = GaussianProcessWorlds(RBF(0.3), domain, (8, 8), 30, 1.0, amplitude=0.5, response_bound=0.8, normalise=True)
    found = prior.simulate(50, rng(6))
    assert np.abs(found.responses).max() == 0.8
    np.testing.assert_allclose(np.abs(found.targets).max(axis=1), 0.5)


def test_worlds_are_repeatable_and_can_be_sliced():
    first, second = (BlobWorlds(n=9, grid=(4, 4), reference=20).simulate(6, rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first.responses, second.responses)
    part = first[2:5]
    assert len(part) == 3
    np.testing.assert_array_equal(part.targets, first.targets[2:5])
    with pytest.raises(ValueError, match="agree"):
        Worlds(first.covariates, first.responses[:3], first.targets)


def test_square_root_stops_at_the_tolerance():
    points = Box((0.0, 0.0), (1.0, 1.0)).grid((12, 12))
    smooth, rough = RBF(0.5)(points), Exponential(0.1)(points)
    root = square_root(smooth, 1e-10)
    assert root.shape[1] < 100
    np.testing.assert_allclose(root @ root.T, smooth, atol=1e-9)
    assert square_root(rough, 1e-10).shape[1] == 144


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OUExcursionWorlds(n=0), "n must"),
        (lambda: OUExcursionWorlds(noise=1.0), "noise"),
        (lambda: OUExcursionWorlds(length_scale=0.0), "length_scale"),
        (lambda: BlobWorlds(grid=(1, 5)), "grid"),
        (lambda: BlobWorlds(blobs=0), "blob"),
        (lambda: GaussianProcessWorlds(RBF(0.1), Box((0.0,), (1.0,)), (5, 5), 3, 0.1), "axes"),
        (lambda: GaussianProcessWorlds(RBF(0.1), Box((0.0,), (1.0,)), (5000,), 3, 0.1), "nodes"),
        (lambda: GaussianProcessWorlds(RBF(0.1), Box((0.0,), (1.0,)), (5,), 3, -0.1), "noise_sd"),
        (lambda: design_probabilities(np.array([1.0, -1.0]), 2), "density"),
        (lambda: design_probabilities(np.zeros(2), 2), "density"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
