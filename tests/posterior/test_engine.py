"""Which engine computes a release, and what it may not change."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from discretion.gp import RBF, Box, DensePosterior, Exponential, ExponentialL1, Matern32, Matern52
from discretion.gp.engine import DenseEngine, LineEngine, MaternLineEngine
from discretion.gp.memory import BUDGET
from discretion.posterior import PosteriorMechanism, PosteriorSampler
from discretion.posterior.recomputation import LOSSES
from discretion.posterior.records import Records
from discretion.privacy import Ledger, Neighbours, PublicError, SeededRandomness, SystemRandomness
from discretion.privacy.verification import verify

LINE = Box((0.0,), (1.0,))


def mechanism(**changes):
    return PosteriorMechanism(
        **{
            "kernel": Exponential(0.3),
            "domain": LINE,
            "response_range": (-1.0, 1.0),
            "ridge": 3.0,
            "scale": 0.5,
            "locations": np.linspace(0.0, 1.0, 25)[:, None],
            "delta": 1e-4,
        }
        | changes
    )


def records(n=60, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    X[1 : n // 4] = X[:1]
    return Records(X, rng.uniform(-1.0, 1.0, size=n))


def test_the_engine_is_chosen_by_kernel_and_dimension():
    assert mechanism()._engine.name == "line"
    assert mechanism(kernel=ExponentialL1(0.2))._engine.name == "line"
    assert mechanism(kernel=Matern52(0.2))._engine.name == mechanism(kernel=Matern32(0.2))._engine.name == "matern-line"
    assert replace(mechanism(), kernel=RBF(0.2), assumption=None)._engine.name == "dense"
    square = {"domain": Box((0.0, 0.0), (1.0, 1.0)), "locations": [[0.5, 0.5]]}
    assert mechanism(**square)._engine.name == "dense"
    assert mechanism(engine=DenseEngine())._engine.name == "dense"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kernel": Matern52(0.3)}, "matern52 in dimension 1"),
        ({"domain": Box((0.0, 0.0), (1.0, 1.0)), "locations": [[0.5, 0.5]]}, "exponential in dimension 2"),
    ],
)
def test_an_engine_that_lacks_the_kernel_is_refused_beforehand(changes, why):
    with pytest.raises(ValueError, match=f"The line engine does not compute the kernel {why}; leave engine out"):
        mechanism(engine=LineEngine(), **changes)
    assert mechanism(engine=LineEngine())._engine.name == "line"
    with pytest.raises(ValueError, match="The matern-line engine does not compute the kernel exponential"):
        mechanism(engine=MaternLineEngine())


def test_nothing_is_spent_on_an_engine_that_lacks_the_kernel(tmp_path):
    book = Ledger.create(tmp_path / "ledger", dataset="test", epsilon=100.0, delta=1e-3)
    private = PosteriorSampler((0, 1), (-1, 1), kernel=RBF(0.3), scale=0.5, grid=5, engine=LineEngine(), ledger=book)
    data = records()
    with pytest.raises(ValueError, match="does not compute the kernel rbf"):
        private.fit(data.covariates, data.response)
    assert not book.entries()


@pytest.mark.parametrize(
    ("kernel", "engine"),
    [(Exponential(0.3), None), (Exponential(0.3), DenseEngine()), (Matern52(0.3), None)],
)
@pytest.mark.parametrize("prior_noise", [0.0, 0.4])
def test_releases_have_the_posterior_law_whatever_the_engine(kernel, engine, prior_noise):
    data, count = records(), 2000
    run = mechanism(kernel=kernel, engine=engine, paths=count, prior_noise=prior_noise, nugget=1e-2, centre=0.25)
    values = run.run(data, SeededRandomness(7)).values
    posterior = DensePosterior(kernel, 3.0, data.covariates, data.response - 0.25)
    T, eye = run.locations, np.eye(25)
    covariance = 0.25 * (posterior.covariance(T) + 1e-2 * eye)
    if prior_noise:
        covariance += 0.16 * (kernel(T) + 1e-2 * eye)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (values - 0.25 - posterior.mean(T)).T)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(white @ white.T / count, eye, atol=0.12)
    assert (abs(white.mean(axis=1)) <= 4.5 / math.sqrt(count)).all()


def test_the_account_counts_the_rounding_of_the_engine_that_runs():
    line, dense = mechanism(), mechanism(engine=DenseEngine())
    assert line._engine.mean_rounding(10**4, 25, 3.0, 1.0) < 0.1 * dense._engine.mean_rounding(10**4, 25, 3.0, 1.0)
    costs = [run.privacy_loss(4000).epsilon(1e-4) for run in (line, dense)]
    assert costs[0] <= costs[1] <= 1.001 * costs[0]
    # where there is little nugget and little noise it shows
    tiny = mechanism(nugget=1e-8, scale=0.02, locations=np.linspace(0, 1, 1000)[:, None])
    without = replace(tiny, nugget=1e-2)
    assert tiny.privacy_loss(10**6).epsilon(1e-4) > without.privacy_loss(10**6).epsilon(1e-4)
    with pytest.raises(ValueError, match="nugget"):
        mechanism(nugget=1e-12, locations=np.linspace(0, 1, 1000)[:, None]).privacy_loss(10**6)


@pytest.mark.parametrize(("kernel", "n"), [(Exponential(0.3), 50_000), (Matern52(0.3), 10_000)])
def test_large_sets_of_records_are_released_on_the_line(kernel, n):
    data = records(n)
    fitted = PosteriorSampler((0, 1), (-1, 1), kernel=kernel, ridge=10.0, epsilon=1.0, grid=200)
    values = fitted.fit(data.covariates, data.response).sample()
    assert values.shape == (1, 200)
    assert fitted.release_.certificate.epsilon <= 1.0
    assert np.isfinite(fitted.predict([[0.123], [2.0]])).all()


@pytest.mark.parametrize("kernel", [Exponential(0.3), Matern32(0.3)])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_few_records_or_none(n, kernel):
    run = mechanism(kernel=kernel, neighbours="add-remove", most_records=50, prior_noise=0.1)
    release, custodian = run.run_for_custodian(records(n), SystemRandomness())
    assert release.values.shape == (1, 25)
    assert release.certificate.n is None
    np.testing.assert_array_equal(custodian.extend(run.locations), release.values)
    assert custodian.extend([[0.01], [0.33]]).shape == (1, 2)


@pytest.mark.parametrize("kernel", [Exponential(0.3), Matern52(0.3)])
def test_no_locations_are_a_release_of_nothing(kernel):
    run = mechanism(kernel=kernel, locations=np.empty((0, 1)))
    assert run.run(records(), SystemRandomness()).values.shape == (1, 0)


@pytest.mark.parametrize("kernel", [Exponential(0.3), Matern32(0.3), Matern52(0.3)])
def test_the_custodian_extends_paths_on_the_line(kernel):
    fitted = PosteriorSampler((0, 1), (-1, 1), kernel=kernel, ridge=5.0, scale=0.5, grid=50, paths=3)
    data = records()
    custodian = fitted.fit_custodian(data.covariates, data.response)
    np.testing.assert_array_equal(custodian.extend(fitted.release_.locations), fitted.release_.values)
    more = np.random.default_rng(0).uniform(size=(200, 1))
    first = np.concatenate([custodian.extend(part) for part in np.array_split(more, 20)], axis=1)
    np.testing.assert_array_equal(custodian.extend(more[::-1]), first[:, ::-1])


def test_certificates_are_verified_as_before():
    private = {"neighbours": "add-remove", "most_records": 100}
    matern = {"kernel": Matern52(0.3)}
    for changes, rounding in (
        ({}, "line"),
        (private, "line"),
        (matern, "matern-line"),
        (matern | {"engine": DenseEngine()}, "dense"),
        ({"engine": DenseEngine()}, "dense"),
    ):
        release = mechanism(**changes).run(records(), SystemRandomness())
        assert verify(release.certificate, LOSSES).verified
        assert json.loads(release.certificate.to_json())["parameters"]["rounding"] == rounding


def test_the_rounding_of_matern_kernels_on_the_line_costs_next_to_nothing():
    line = mechanism(kernel=Matern52(0.3), scale=2.0, ridge=10.0, locations=np.linspace(0, 1, 1000)[:, None])
    dense = replace(line, engine=DenseEngine())
    assert line.effective_nugget(10**5) == 1e-6 < dense.effective_nugget(10**5)
    without = replace(line, nugget=1e12)
    assert line.privacy_loss(10**5).epsilon(1e-4) <= (1.0 + 1e-9) * without.privacy_loss(10**5).epsilon(1e-4)
    certificate = line.certificate(10**5, SystemRandomness())
    assert verify(certificate, LOSSES).verified


@pytest.mark.parametrize("changes", [{}, {"kernel": Matern52(0.3)}])
def test_too_little_memory_is_told_before_anything_is_spent(changes, tmp_path, monkeypatch):
    book = Ledger.create(tmp_path / "ledger", dataset="test", epsilon=100.0, delta=1e-3)
    run, data = mechanism(**changes), records(400)
    monkeypatch.setenv(BUDGET, "100k")
    with pytest.raises(PublicError, match=f"25 points given 400 records need .* set {BUDGET}="):
        book.run(run, data, n=400)
    assert not book.entries()
    monkeypatch.setenv(BUDGET, "1GiB")
    book.run(run, data, n=400)
    assert len(book.entries()) == 1


def test_a_private_number_of_records_does_not_decide_whether_memory_will_do(monkeypatch):
    monkeypatch.setenv(BUDGET, "1GiB")
    run = mechanism(
        kernel=Matern52(0.3), neighbours=Neighbours.ADD_REMOVE, most_records=20_000, ridge=30.0, engine=DenseEngine()
    )
    texts = []
    for n in (0, 5, 300):
        with pytest.raises(PublicError, match="given 20,000 records") as error:
            run.check(records(n))
        texts.append(str(error.value))
    assert len(set(texts)) == 1


@pytest.mark.parametrize("changes", [{"kernel": Exponential(1e-151)}, {"response_range": (-1e305, 1e305)}])
def test_what_would_overflow_on_some_records_is_refused_beforehand(changes):
    with pytest.raises(ValueError, match="must not exceed 1e"):
        mechanism(**changes)
