import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from discretion.gp import RBF, Box, Exponential, ExponentialL1, Matern32
from discretion.gp.fields import Grid, kernel_sums
from discretion.posterior.decoder import (
    Decoder,
    FieldPosterior,
    KernelBasis,
    best_linear_decoder,
    simulated_decoder,
    tuned_cut,
    world_features,
)
from discretion.posterior.kernel_sum import KernelSumMechanism
from discretion.posterior.layout import NoiseField, SumLayout
from discretion.posterior.worlds import BlobWorlds, GaussianProcessWorlds, Worlds
from discretion.privacy import SeededRandomness

BOX = Box((0.0, 0.0), (2.0, 1.0))
UNIT = Box((0.0, 0.0), (1.0, 1.0))


def rng(seed=0):
    return np.random.default_rng(seed)


def prior(n=15, grid=(6, 5), **options):
    nodes = BOX.grid(grid)
    given = {"noise_sd": 0.3, "amplitude": 0.5, "mean": 0.2 + 0.3 * nodes[:, 1], "density": 1 + nodes[:, 0] ** 2}
    return GaussianProcessWorlds(Matern32(0.7), BOX, grid, n, **(given | options))


def layout(scale=1.3, kernel=None, counts=(7, 6), **options):
    given = {"response_bound": 6.0, "centre": 0.1, "nugget": 1e-4}
    return SumLayout.on_grid(kernel or RBF(0.3), BOX, counts, scale, **(given | options))


# --- features -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "places"),
    [
        (RBF((0.2, 0.5)), Grid((np.linspace(0, 1, 9), np.linspace(0, 1, 7)))),
        (ExponentialL1(0.4), Grid((np.linspace(0, 1, 5), np.linspace(0, 1, 4), np.linspace(0, 1, 3)))),
        (Matern32(0.4), Grid((np.linspace(0, 1, 6), np.linspace(0, 1, 5)))),
        (Exponential(0.3), Grid((np.linspace(0, 1, 12),))),
        (Matern32(0.4), np.random.default_rng(0).uniform(size=(20, 2))),
    ],
)
def test_features_of_sums_are_the_whitened_sums(kernel, places):
    nugget = 1e-4
    basis = KernelBasis.of(kernel, places, nugget, features=30)
    d = len(places.axes) if isinstance(places, Grid) else places.shape[1]
    X, w = rng(1).uniform(size=(3, 40, d)), rng(2).standard_normal((3, 40))
    exact = np.concatenate([kernel_sums(kernel, places, x, y[:, None]) for x, y in zip(X, w, strict=True)])
    np.testing.assert_allclose(basis.sums(X, [w])[0], basis.whiten(exact), atol=1e-9)
    np.testing.assert_allclose(basis.points(X[0]).T @ w[0], basis.whiten(exact[0]), atol=1e-9)
    # the noise has unit covariance
    noise = NoiseField(kernel, places, nugget)
    projection = basis.whiten(np.eye(noise.size))
    np.testing.assert_allclose(noise.covariance(projection.T), np.eye(basis.size), atol=1e-8)
    assert basis.size <= 30


def test_features_drop_what_is_mostly_nugget():
    places = Grid((np.linspace(0, 1, 40),))
    basis = KernelBasis.of(RBF(0.3), places, 1e-4, features=40)
    eigenvalues = np.linalg.eigvalsh(RBF(0.3)(places.axes[0][:, None]))
    assert basis.size == np.sum(eigenvalues > 1e-3) < 40
    with pytest.raises(ValueError, match="features"):
        KernelBasis.of(RBF(0.3), places, 1e-4, features=0)
    with pytest.raises(ValueError, match="4096 places"):
        KernelBasis.of(Matern32(0.3), Grid((np.linspace(0, 1, 70),) * 2), 1e-4)


# --- closed form --------------------------------------------------------------------------------------------------


def dense_decoder(release, model, where, second):
    """The textbook formula on the whole arrays (h, d), with explicit sums over pairs of records."""
    nodes, p, n = model.domain.grid(model.grid), model.density, model.n
    to_kernel = release.kernel_coordinates
    K = release.kernels[0](to_kernel(nodes), release.kernel_places.points)
    gram = release.kernels[0](release.kernel_places.points) + release.nugget * np.eye(release.size)
    mu = model.mean - release.centre
    C = model.amplitude**2 * model.kernel(nodes)
    M, s = release.response_bound, release.scale
    hh = np.zeros((release.size, release.size))
    hd, dd = hh.copy(), hh.copy()
    for j in range(len(nodes)):
        for l in range(len(nodes)):  # two different records at z_j and z_l
            pair = second * p[j] * p[l] * np.outer(K[j], K[l])
            hh += pair * (C[j, l] + mu[j] * mu[l])
            hd += pair * mu[j]
            dd += pair
        own = n * p[j] * np.outer(K[j], K[j])
        hh += own * (C[j, j] + mu[j] ** 2 + model.noise_sd**2)
        hd += own * mu[j]
        dd += own
    a, b = n * (p * mu) @ K, n * p @ K
    hh, hd, dd = hh - np.outer(a, a), hd - np.outer(a, b), dd - np.outer(b, b)
    covariance = np.block([[hh + s**2 * gram, M * hd], [M * hd.T, M**2 * dd + s**2 * gram]])
    cross = np.hstack([n * (C * p) @ K, np.zeros((len(nodes), release.size))])
    weights = np.linalg.solve(covariance, cross.T)
    estimate = model.mean + (where - np.concatenate([a, M * b])) @ weights
    return estimate, C - cross @ weights


@pytest.mark.parametrize("poisson", [False, True])
def test_the_closed_form_is_the_dense_formula(poisson):
    model, release = prior(), layout(kernel=Exponential(0.4), nugget=1e-5)
    decoder = best_linear_decoder(release, model, poisson=poisson)
    assert decoder.mean.shape == (2 * 42,)  # all features are kept
    h, d = 3 * rng(3).standard_normal((2, 42))
    second = model.n**2 if poisson else model.n * (model.n - 1)
    estimate, covariance = dense_decoder(release, model, np.concatenate([h, d]), second)
    np.testing.assert_allclose(decoder.decode((h, d)).ravel(), estimate, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(decoder.posterior((h, d)).covariance(), covariance, atol=1e-9)
    assert decoder.facts["explained"] == pytest.approx(1 - np.trace(covariance) / (30 * 0.25), abs=1e-8)


def draw(model, release, bases, count, poisson, source):
    """Targets and noisy features of simulated worlds, the number of records fixed or Poisson."""
    worlds = model.simulate(count, source)
    X = release.kernel_coordinates(worlds.covariates.reshape(-1, 2)).reshape(worlds.covariates.shape)
    keep = np.ones(worlds.responses.shape)
    if poisson:
        keep = np.arange(keep.shape[1]) < source.poisson(15, count)[:, None]
    weights = [(worlds.responses - release.centre) * keep, release.response_bound * keep]
    parts = [basis.sums(X, weights) for basis in bases]
    features = np.concatenate([part[i] for i in range(2) for part in parts], axis=1)
    return worlds.targets, features + release.scale * source.standard_normal(features.shape)


@pytest.mark.parametrize("poisson", [False, True])
def test_the_closed_form_agrees_with_simulation(poisson):
    model = prior()
    release = replace(layout(), kernels=(RBF(0.3), Matern32(0.5)))
    decoder = best_linear_decoder(release, model, poisson=poisson, features=12)
    count = 60_000
    targets, features = draw(prior(n=45 if poisson else 15), release, decoder.bases, count, poisson, rng(4))
    assert features.shape[1] == 48
    z = (features.mean(axis=0) - decoder.mean) / (features.std(axis=0) / math.sqrt(count))
    assert np.abs(z).max() < 5
    error = targets - decoder._estimate(features)
    stated = decoder.error.T @ decoder.error
    assert np.abs(error.T @ error / count - stated).max() < 6 * stated.max() * math.sqrt(2 / count)
    # the error of the best linear estimate is uncorrelated with what it is computed from
    products = error[:, :, None] * (features - decoder.mean)[:, None, :]
    z = products.mean(axis=0) / (products.std(axis=0) / math.sqrt(count))
    assert np.abs(z).max() < 5.5


def test_the_density_explains_some_of_the_sampling_when_the_mean_is_off_centre():
    model = prior(mean=1.5)
    with_density = best_linear_decoder(layout(0.3, response_bound=2.0), model).facts["explained"]
    without = best_linear_decoder(layout(0.3, density=False), model).facts["explained"]
    assert with_density > without + 0.05
    model = prior(mean=0.1)  # the mean is the centre: the density is of no use to a linear estimate
    equal = [best_linear_decoder(layout(0.3, density=on), model).facts["explained"] for on in (True, False)]
    assert equal[0] == pytest.approx(equal[1], abs=1e-10)


def test_more_noise_explains_less():
    explained = [best_linear_decoder(layout(s), prior(n=200)).facts["explained"] for s in (0.1, 1.0, 10.0, 1e4)]
    assert (np.diff(explained) < 0).all()
    assert 0 <= explained[-1] < 1e-4


def test_the_closed_form_refuses_what_it_does_not_cover():
    with pytest.raises(ValueError, match="normalisation"):
        best_linear_decoder(layout(), prior(normalise=True))
    elsewhere = GaussianProcessWorlds(RBF(0.3), UNIT, (4, 4), 10, 0.1)
    with pytest.raises(ValueError, match="own domain"):
        best_linear_decoder(layout(), elsewhere)


# --- from simulated worlds ----------------------------------------------------------------------------------------


def test_the_simulated_decoder_approaches_the_closed_form():
    model, release = prior(n=60), layout(1.0)
    exact = best_linear_decoder(release, model)
    worlds = model.simulate(6000, rng(5))
    made = simulated_decoder(release, worlds, model.grid, rng(6))
    fresh = model.simulate(3000, rng(7))
    loss = [np.mean((d.simulate(fresh, rng(8))[0] - fresh.targets) ** 2) for d in (exact, made)]
    assert loss[0] <= loss[1] <= 1.05 * loss[0]
    # what it says of itself is about what it then gets
    assert made.facts["explained"] == pytest.approx(1 - loss[1] / 0.25, abs=0.02)
    sd = made.posterior((np.zeros(42), np.zeros(42))).sd()
    np.testing.assert_allclose(sd.mean(), exact.posterior((np.zeros(42), np.zeros(42))).sd().mean(), rtol=0.05)


def test_the_fit_minimises_the_expected_error_under_noise():
    model, release = prior(n=30), layout(2.0)
    worlds = model.simulate(400, rng(9))
    made = simulated_decoder(release, worlds, model.grid, rng(10), penalties=(0.5,))
    features = world_features(release, made.bases, worlds)

    def loss(weights, offset):
        residual = worlds.targets - offset - features @ weights
        return np.sum(residual**2) + 400 * 4.0 * 1.5 * np.sum(weights**2)

    offset = made.target_mean - made.mean @ made.weights
    best = loss(made.weights, offset)
    source = rng(11)
    for _ in range(20):
        step = 1e-3 * source.standard_normal(made.weights.shape)
        assert loss(made.weights + step, offset) > best
        assert loss(made.weights, offset + 1e-3 * source.standard_normal(offset.shape)) > best


def test_cross_fitting_prefers_a_penalty_when_worlds_are_few():
    model, release = prior(n=30), layout(0.05)
    few = simulated_decoder(release, model.simulate(40, rng(12)), model.grid, rng(13))
    many = simulated_decoder(release, model.simulate(4000, rng(12)), model.grid, rng(13))
    assert few.facts["penalty"] > many.facts["penalty"]
    with pytest.raises(ValueError, match="folds"):
        simulated_decoder(release, model.simulate(9, rng(12)), model.grid, rng(13))
    with pytest.raises(ValueError, match="target shape"):
        simulated_decoder(release, model.simulate(20, rng(12)), (3, 3), rng(13))


def test_responses_and_covariates_are_clipped_as_the_mechanism_clips_them():
    release = layout(1.0, response_bound=0.5)
    X, y = rng(14).uniform(-0.5, 2.5, (1, 30, 2)), rng(15).uniform(-3, 3, (1, 30))
    mechanism = KernelSumMechanism(
        RBF(0.3), BOX, (-0.4, 0.6), scale=1.0, delta=1e-3, grid=(7, 6), nugget=1e-4, density=True
    )
    sums = mechanism.partial(SimpleNamespace(covariates=X[0], response=y[0])).sums[:, 0]
    decoder = best_linear_decoder(release, prior())
    features = world_features(release, decoder.bases, Worlds(X, y, np.zeros((1, 1))))[0]
    np.testing.assert_allclose(features, np.concatenate([decoder.bases[0].whiten(part) for part in sums]), atol=1e-9)


# --- cuts ---------------------------------------------------------------------------------------------------------


def test_the_cut_maximises_the_mean_iou():
    truth = rng(16).standard_normal((300, 40)) > 0.3
    estimates = np.where(truth, 1.0, -1.0) + 0.8 * rng(17).standard_normal((300, 40)) + 0.5
    cut, score = tuned_cut(estimates, truth, around=0.0)

    def mean_iou(c):
        inside = estimates >= c
        return np.mean((inside & truth).sum(axis=1) / (inside | truth).sum(axis=1))

    assert score == pytest.approx(mean_iou(cut), abs=1e-12)
    assert score >= max(mean_iou(c) for c in np.linspace(-1.5, 2, 60)) - 0.004
    assert score > mean_iou(0.0) + 0.02
    perfect = tuned_cut(np.where(truth, 1.0, -1.0), truth)
    assert perfect == (0.0, 1.0)  # the threshold itself, where it is as good as any other


def test_a_tuned_decoder_beats_the_threshold_itself_and_the_trivial_set():
    worlds = BlobWorlds(n=150, noise=0.5, grid=(16, 16), reference=40)
    release = SumLayout.on_grid(RBF(0.2), UNIT, (16, 16), 4.0)
    public = worlds.simulate(1200, rng(18))
    decoder = simulated_decoder(release, public, (16, 16), rng(19), threshold=0.0, posterior=False)
    fresh = worlds.simulate(300, rng(20))
    truth = fresh.targets >= 0
    estimates = decoder.simulate(fresh, rng(21))[0]

    def mean_iou(cut):
        inside = estimates >= cut
        union = (inside | truth).sum(axis=1)
        return np.mean((inside & truth).sum(axis=1) / np.maximum(union, 1))

    assert mean_iou(decoder.cut) > mean_iou(0.0) + 0.003
    assert mean_iou(decoder.cut) > truth.mean() + 0.2
    assert decoder.facts["cut_iou"] == pytest.approx(mean_iou(decoder.cut), abs=0.02)
    again = decoder.tuned(fresh, 0.0, rng(22))
    assert again.cut == pytest.approx(decoder.cut, abs=0.1)
    with pytest.raises(ValueError, match="error covariance"):
        decoder.posterior((np.zeros(256), np.zeros(256)))


# --- releases -----------------------------------------------------------------------------------------------------


def mechanism(**options):
    given = {"scale": 1.3, "delta": 1e-3, "grid": (7, 6), "centres": (0.1,), "nugget": 1e-4}
    return KernelSumMechanism(RBF(0.3), BOX, (-5.9, 6.1), **(given | options))


def records(n=15, seed=23):
    worlds = prior(n=n).simulate(1, rng(seed))
    return SimpleNamespace(covariates=worlds.covariates[0], response=worlds.responses[0]), worlds.targets[0]


def test_a_release_is_decoded_as_its_arrays_are():
    made = mechanism().run(records()[0], SeededRandomness(1))
    decoder = best_linear_decoder(SumLayout.of(made), prior())
    field = decoder.decode(made)
    assert field.shape == (6, 5)
    np.testing.assert_array_equal(field, decoder.decode((made.value_sums[0], made.density)))
    assert SumLayout.of(mechanism(), n=15).to_dict() == SumLayout.of(made).to_dict()
    tuned = decoder.tuned(prior().simulate(300, rng(24)), 0.4, rng(25))
    np.testing.assert_array_equal(tuned.excursion_set(made), tuned.decode(made) >= tuned.cut)
    with pytest.raises(ValueError, match="no cut"):
        decoder.excursion_set(made)


def test_a_release_of_another_layout_is_refused():
    decoder = best_linear_decoder(layout(), prior())
    for other, word in (({"scale": 1.4}, "scale"), ({"centres": (0.2,)}, "centre"), ({"grid": (6, 7)}, "grid")):
        with pytest.raises(ValueError, match=word):
            decoder.decode(mechanism(**other).run(records()[0], SeededRandomness(2)))
    with pytest.raises(ValueError, match="densities"):
        decoder.decode((np.zeros(42), None))
    with pytest.raises(ValueError, match="finite arrays"):
        decoder.decode((np.zeros(41), np.zeros(41)))
    with pytest.raises(ValueError, match="finite arrays"):
        decoder.decode((np.full(42, np.nan), np.zeros(42)))


def test_posteriors_given_releases_are_calibrated():
    model = prior(n=80)
    inside, coverage = [], []
    decoder = best_linear_decoder(layout(), model)
    for seed in range(60):
        data, truth = records(80, seed)
        made = mechanism().run(data, SeededRandomness(seed))
        law = decoder.posterior(made)
        inside.append(np.abs(truth - law.mean) < 1.645 * law.sd())
        chosen = law.probability(0.4)
        coverage.append((chosen - (truth >= 0.4)) ** 2 - chosen * (1 - chosen))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)
    assert np.mean(coverage) == pytest.approx(0.0, abs=0.03)


def test_draws_follow_the_posterior():
    law = FieldPosterior(np.array([1.0, -2.0, 0.0]), np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0]]))
    draws = law.draws(40_000, rng(26))
    np.testing.assert_allclose(draws.mean(axis=0), law.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), law.covariance(), atol=0.1)
    np.testing.assert_allclose((draws >= 0.0).mean(axis=0), law.probability(0.0), atol=0.01)
    np.testing.assert_array_equal(law.probability(0.0)[2], 1.0)
    assert law.draws(2, SeededRandomness(3)).shape == (2, 3)
    assert not np.array_equal(law.draws(1), law.draws(1))


# --- storage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", [True, False])
def test_a_saved_decoder_says_the_same(tmp_path, posterior):
    worlds = prior().simulate(60, rng(27))
    made = simulated_decoder(layout(), worlds, (6, 5), rng(28), threshold=0.3, posterior=posterior)
    file = tmp_path / "decoder.npz"
    made.save(file)
    again = Decoder.load(file)
    h, d = rng(29).standard_normal((2, 42))
    np.testing.assert_array_equal(again.decode((h, d)), made.decode((h, d)))
    np.testing.assert_array_equal(again.excursion_set((h, d)), made.excursion_set((h, d)))
    assert (again.cut, again.threshold, again.facts) == (made.cut, made.threshold, made.facts)
    assert again.layout.to_dict() == made.layout.to_dict()
    if posterior:
        np.testing.assert_array_equal(again.error, made.error)
    with np.load(file, allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes().decode())
    assert header["schema"] == 1
    assert header["facts"]["worlds"] == 60


def test_files_that_are_no_decoders_are_refused(tmp_path):
    made = best_linear_decoder(layout(), prior())
    file = tmp_path / "decoder.npz"
    made.save(file)
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())

    def stored(arrays, header=None):
        if header is not None:
            arrays = arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        np.savez(file, **arrays)
        return file

    with pytest.raises(ValueError, match="schema 2"):
        Decoder.load(stored(arrays, header | {"schema": 2}))
    with pytest.raises(ValueError, match="not a decoder"):
        Decoder.load(stored({k: v for k, v in arrays.items() if k != "weights"}))
    with pytest.raises(ValueError, match="not a decoder"):
        Decoder.load(stored({"x": np.zeros(3)}))
    with pytest.raises(ValueError, match="weights"):
        Decoder.load(stored(arrays | {"weights": arrays["weights"][:-1]}))
    with pytest.raises(ValueError, match="not a decoder"):
        Decoder.load(stored(arrays | {"mean": np.array([None, {}], dtype=object)}))
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not a decoder"):
        Decoder.load(file)


# --- the published excursion settings -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "decoded", "plain"), [(9.0, 0.87, 0.80), (3.0, 0.84, 0.73), (1.0, 0.76, 0.60)])
def test_the_decoder_column_of_the_excursion_study(epsilon, decoded, plain):
    from studies.excursions import decoder_row

    row = decoder_row(2, 400, 0.5, epsilon)
    found = row.summary()
    assert found["decoder"] >= decoded
    assert found["kernel_sum"] >= plain
    assert found["trivial"] == pytest.approx(0.36, abs=0.02)
    gain = row.decoder - row.kernel_sum
    assert gain.mean() > 3 * gain.std(ddof=1) / math.sqrt(len(gain))
