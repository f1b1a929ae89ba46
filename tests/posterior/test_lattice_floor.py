"""No direction of a lattice release loses its noise to rounding: the theorem, and the attack that would use one."""

import mpmath
import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array
from scipy.special import ndtr
from scipy.stats import rankdata

from discretion.gp import RBF, Box, DensePosterior, Lattice
from discretion.gp.sparse import Factor
from discretion.posterior import LatticeMechanism

LATTICE = Lattice.hexagon(1.0, Box((0.0, 0.0), (5.0, 5.0)), 0.02)


def mechanism(lattice: Lattice = LATTICE, **changes) -> LatticeMechanism:
    plain = {"response_range": (-1.0, 1.0), "ridge": 1.0, "scale": 1.0, "delta": 1e-4, "rule": "closed-form"}
    return LatticeMechanism(lattice, **(plain | changes))


@pytest.mark.parametrize("seed", range(4))
def test_the_computed_noise_has_the_covariance_of_the_posterior_in_every_direction(seed):
    # counts over eight decades: eigenvalues of the covariance do too
    rng = np.random.default_rng(seed)
    counts = np.rint(10.0 ** rng.uniform(0.0, 8.0, LATTICE.size)) * (rng.random(LATTICE.size) < 0.7)
    A = csr_array(LATTICE.precision + diags_array(counts))
    T = Factor(A).colour(np.eye(LATTICE.size))
    mpmath.mp.dps = 40
    exact = mpmath.matrix(A.toarray().tolist())
    root = np.array(mpmath.cholesky(exact).tolist())  # exact = root root^T
    whitened = np.array((root.T @ np.array(mpmath.matrix(T.tolist()).tolist())).tolist(), dtype=np.float64)
    values = np.linalg.eigvalsh(whitened @ whitened.T)
    assert np.abs(values - 1.0).max() <= 4.0 * mechanism().factor_error <= 1e-6
    assert np.linalg.cond(A.toarray()) > 1e6


def test_the_attack_on_emptied_directions_fails_here_and_wins_with_a_smooth_kernel():
    rng, ridge, draws = np.random.default_rng(1), 1.0, 400
    lattice = Lattice.hexagon(1.0, Box((0.0, 0.0), (17.0, 17.0)), 0.02)
    T, n = lattice.locations, 300
    assert T is not None
    X, y = rng.uniform(0.0, 17.0, (n, 2)), rng.uniform(-1.0, 1.0, n)
    node, answers = lattice.node(X), [np.append(y[:-1], each) for each in (1.0, -1.0)]

    def auc(difference, releases, directions) -> float:
        signal = directions.T @ difference
        scores = [(each - 0.5 * (releases[0][1] + releases[1][1])) @ directions @ signal for each, _ in releases]
        ranks = rankdata(np.concatenate(scores))[:draws]
        return float((ranks.sum() - draws * (draws + 1) / 2) / draws**2)

    # the lattice, as it is released; the attacker takes the directions with the least noise
    run, held = mechanism(lattice, paths=draws, ridge=ridge), []
    for answer in answers:
        counts = np.bincount(node, minlength=lattice.size).astype(np.float64)
        sums = np.bincount(node, answer, lattice.size)
        factor = Factor(csr_array(lattice.precision + diags_array(counts / ridge**2)))
        mean = factor.solve(sums / ridge**2)
        held.append((mean + factor.colour(rng.standard_normal((lattice.size, draws))).T, mean))
    covariance = factor.solve(np.eye(lattice.size))
    values, vectors = np.linalg.eigh(covariance)
    assert values[0] > 1e-2  # none is emptied
    least = auc(held[0][1] - held[1][1], held, vectors[:, :30])
    v = 1.0 / (1.0 / covariance[node[-1], node[-1]] - 1.0 / ridge**2)
    best = float(ndtr(2.0 * np.sqrt(v / (ridge**2 * (ridge**2 + v))) / np.sqrt(2.0)))
    assert least <= best + 0.05
    assert run.rounding(n) < 1e-6

    # an RBF kernel on the same nodes, sampled without a nugget
    kernel = RBF(6.0)
    posteriors = [DensePosterior(kernel, ridge, X, answer) for answer in answers]
    means, S = [each.mean(T) for each in posteriors], posteriors[0].covariance(T)
    values, vectors = np.linalg.eigh(S)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    released = [(mean + rng.standard_normal((draws, len(T))) @ root.T, mean) for mean in means]
    emptied = vectors[:, values <= 0.0]
    assert emptied.shape[1] > 30
    assert auc(means[0] - means[1], released, emptied) > 0.95


def test_a_prior_too_near_to_a_singular_one_is_refused_before_any_record_is_read():
    lattice = Lattice.square(1.0, Box((0.0, 0.0), (60.0, 60.0)), 2e-5)
    with pytest.raises(ValueError, match="too near to a singular one"):
        mechanism(lattice).privacy_loss(100)
