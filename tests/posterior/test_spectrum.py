import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from discretion.gp import RBF, Box, Exponential, Matern32
from discretion.posterior.decoder import best_linear_decoder
from discretion.posterior.layout import SumLayout
from discretion.posterior.spectrum import SpectralPrior, choose_kernel, water_filling
from discretion.posterior.worlds import GaussianProcessWorlds

LINE, SQUARE = Box((0.0,), (1.0,)), Box((0.0, 0.0), (1.0, 1.0))


def rng(seed=0):
    return np.random.default_rng(seed)


def gain(w, g, b, noise):
    return np.sum(g**2 * w / (b * w + noise))


positive = st.floats(1e-3, 1e3)


@settings(max_examples=150, deadline=None)
@given(
    npst.arrays(float, st.integers(1, 12), elements=st.one_of(st.just(0.0), positive)),
    st.data(),
    positive,
)
def test_water_filling_meets_the_optimality_conditions(g, data, noise):
    b = data.draw(npst.arrays(float, g.shape, elements=positive))
    if not g.any():
        with pytest.raises(ValueError, match="gains"):
            water_filling(g, b, noise)
        return
    w = water_filling(g, b, noise)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    # one multiplier: slopes are equal where w > 0 and not larger where w = 0 (sufficient, the gain is concave)
    slope = g**2 * noise / (b * w + noise) ** 2
    multiplier = slope[w > 1e-9].min()
    assert (slope <= multiplier * (1 + 1e-6)).all()


def test_water_filling_beats_random_spectra():
    source = rng(1)
    for _ in range(20):
        g, b, noise = source.exponential(size=8) ** 2, source.exponential(size=8), source.exponential()
        best = gain(water_filling(g, b, noise), g, b, noise)
        others = source.dirichlet(np.full(8, 0.5), size=500)
        assert max(gain(w, g, b, noise) for w in others) <= best * (1 + 1e-12)


def test_water_filling_by_hand():
    # b = 1, s = 1: w = (theta g - 1)+ with theta (2 + 1) - 2 = 1 if the third stays dry, theta = 1
    np.testing.assert_allclose(water_filling(np.array([2.0, 1.0, 0.9]), np.ones(3), 1.0), [1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(water_filling(np.array([3.0, 2.0, 0.1]), np.ones(3), 1.0), [0.8, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(water_filling(np.ones((2, 2)), np.ones((2, 2)), 5.0), np.full((2, 2), 0.25))
    for wrong in ((np.array([-1.0]), 1.0, 1.0), (np.array([1.0]), 0.0, 1.0), (np.array([1.0]), 1.0, 0.0)):
        with pytest.raises(ValueError, match="must be"):
            water_filling(wrong[0], np.array([wrong[1]]), wrong[2])


def test_a_kernel_has_its_spectrum():
    prior = SpectralPrior(RBF(0.1), LINE, 10, 0.1, modes=128, padding=1.0)
    weights = prior.spectrum(RBF(0.1))
    (omega,) = prior.frequencies()
    density = 0.1 * math.sqrt(2 * math.pi) * np.exp(-0.5 * (0.1 * omega) ** 2)
    np.testing.assert_allclose(weights, density / 2.0, atol=1e-12)  # the torus has length 2
    np.testing.assert_allclose(prior.profile(weights)[:64], RBF(0.1).profile(np.arange(64) / 64 / 0.1), atol=1e-12)
    square = SpectralPrior(RBF(0.1), SQUARE, 10, 0.1, modes=32)
    np.testing.assert_allclose(
        square.profile(square.spectrum(Exponential(0.05)))[:16],
        Exponential(0.05).profile(np.arange(16) / 16 / 0.05),
        atol=1e-8,
    )


def test_the_error_is_that_of_simulated_sums_on_the_torus():
    """Fourier coefficients of h and f by simulation: their second moments give the error of the linear decoder."""
    prior = SpectralPrior(RBF(0.3), LINE, 12, 0.4, amplitude=0.8, modes=16)
    weights, scale = prior.spectrum(Matern32(0.2)), 1.5
    (omega,) = prior.frequencies()
    p = 0.64 * prior.spectrum(prior.kernel)
    source, count, N = rng(2), 30_000, int(prior.records)
    twin = -np.arange(16) % 16
    a, b = source.standard_normal((2, count, 16)) * np.sqrt(p)  # f(x) = sum_q a_q cos(w_q x) + b_q sin(w_q x)
    target = 0.5 * ((a + a[:, twin]) - 1j * (b - b[:, twin]))  # f(x) = sum_q target_q exp(i w_q x)
    x = source.uniform(0, 2, (count, N))
    y = sum(a[:, [q]] * np.cos(omega[q] * x) + b[:, [q]] * np.sin(omega[q] * x) for q in range(16))
    assert y.var() == pytest.approx(0.64, rel=0.05)
    y = y + math.sqrt(0.4) * source.standard_normal(y.shape)
    for w, s in ((weights, scale), (prior.best(scale), scale)):
        explained = np.zeros(16)
        for q in np.flatnonzero(w > 1e-9):
            noise = np.sqrt(w[q] / 2) * (source.standard_normal(count) + 1j * source.standard_normal(count))
            h = w[q] * (y * np.exp(-1j * omega[q] * x)).sum(axis=1) + s * noise
            explained[q] = abs(np.mean(np.conj(h) * target[:, q])) ** 2 / np.mean(np.abs(h) ** 2)
        assert prior.error(w, s) == pytest.approx(1 - explained.sum() / p.sum(), abs=0.01)


def test_the_best_spectrum_beats_every_kernel():
    prior = SpectralPrior(Matern32(0.3), SQUARE, 400, 0.1, amplitude=0.6, modes=32)
    for scale in (0.9, 2.0, 5.0):
        least = prior.error(prior.best(scale), scale)
        for kernel in (RBF(0.05), RBF(0.15), RBF(0.4), Exponential(0.2), Matern32(0.3)):
            assert least <= prior.error(prior.spectrum(kernel), scale) + 1e-12
        assert 0 < least < 1


def test_the_choice_is_near_the_best_and_says_how_near():
    prior = SpectralPrior(RBF(0.25), SQUARE, 400, 0.1, amplitude=0.6)
    choice = choose_kernel(prior, 2.0)
    assert choice.least_error <= choice.error <= 1.06 * choice.least_error
    assert choice.error == pytest.approx(prior.error(prior.spectrum(choice.kernel), 2.0), rel=1e-9)
    assert set(choice.compared) == {"rbf", "matern52", "matern32", "exponential", "exponential-l1"}
    for length in np.geomspace(0.05, 1.0, 25):
        assert choice.error <= prior.error(prior.spectrum(RBF(length)), 2.0) * (1 + 1e-4)
    # more noise asks for a wider kernel
    lengths = [choose_kernel(prior, s, families=(RBF,)).kernel.length_scale for s in (0.5, 2.0, 8.0)]
    assert (np.diff(lengths) > 0).all()


def test_the_choice_is_good_for_the_decoder_on_the_domain_itself():
    """The torus leaves out the edges of the domain; the length scale it picks is still about the best one."""
    model = GaussianProcessWorlds(RBF(0.25), SQUARE, (16, 16), 400, math.sqrt(0.1), amplitude=0.6)
    prior = SpectralPrior(RBF(0.25), SQUARE, 400, 0.1, amplitude=0.6)
    chosen = choose_kernel(prior, 2.0, families=(RBF,)).kernel

    def explained(kernel):
        return best_linear_decoder(SumLayout.on_grid(kernel, SQUARE, (24, 24), 2.0), model).facts["explained"]

    best = max(explained(RBF(length)) for length in (0.08, 0.12, 0.16, 0.2, 0.25, 0.35))
    assert 1 - explained(chosen) <= 1.05 * (1 - best)


@pytest.mark.parametrize(
    "change", [{"n": 0}, {"modes": 1}, {"noise_variance": -1.0}, {"amplitude": 0.0}, {"padding": math.inf}]
)
def test_wrong_priors_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        SpectralPrior(**({"kernel": RBF(0.1), "domain": LINE, "n": 10, "noise_variance": 0.1} | change))
    with pytest.raises(ValueError, match="scale"):
        SpectralPrior(RBF(0.1), LINE, 10, 0.1).error(np.ones(64) / 64, 0.0)
