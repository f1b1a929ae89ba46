"""Private paths in BoTorch: every draw is charged, nothing but draws is to be had, and Thompson sampling works."""

import copy
import pickle

import numpy as np
import pytest

from discretion.gp import RBF, Ball, Box, Lattice, Matern52
from discretion.posterior import PosteriorSampler, ResponseOnly
from discretion.privacy import BudgetExceeded, Ledger, NotBookable, SeededRandomness

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.acquisition import PosteriorMean, qSimpleRegret  # noqa: E402
from botorch.generation.sampling import MaxPosteriorSampling  # noqa: E402
from botorch.models import ModelList  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.sampling.normal import IIDNormalSampler  # noqa: E402
from botorch.sampling.stochastic_samplers import StochasticSampler  # noqa: E402

from discretion.posterior.botorch import PathFunctions, PathModel  # noqa: E402

N = 60
RNG = np.random.default_rng(6)
X = RNG.uniform(0, 4, (N, 2))
Y = np.exp(-((X - [3.0, 1.0]) ** 2).sum(axis=1)) * 2 - 1
DOMAIN = Box((0.0, 0.0), (4.0, 4.0))
GRID = torch.tensor(DOMAIN.grid((9, 9)))


def ledger(tmp_path, epsilon=50.0):
    return Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=epsilon, delta=1e-3, neighbours="replace")


def sampler(ledger, **changes):
    fields = {"kernel": RBF(0.25), "ridge": 20.0, "scale": 3.0, "delta": 1e-3, "ledger": ledger}
    return PosteriorSampler(DOMAIN, (-1.0, 1.0), **(fields | changes))


@pytest.fixture
def model(tmp_path):
    return PathModel(sampler(ledger(tmp_path)), X, Y)


# --- every draw is a release


def test_a_draw_is_charged_and_a_posterior_is_not(model):
    book = model._settings["ledger"]
    posterior = model.posterior(GRID)
    assert list(book.entries()) == []
    assert posterior.rsample().shape == (1, 81, 1)
    assert posterior.sample(torch.Size([2, 3])).shape == (2, 3, 81, 1)
    first, second = book.entries()
    assert first.loss.epsilon(1e-3) == pytest.approx(
        sampler(None, locations=GRID.numpy()).privacy_loss(N).epsilon(1e-3)
    )
    assert second.loss.epsilon(1e-3) > first.loss.epsilon(1e-3)  # six paths
    assert [len(release.values) for release in model.releases] == [1, 6]
    assert model.releases[1].certificate.ledger_entry == f"{book.id}#2"


def test_values_are_what_was_released_in_the_order_asked(model):
    points = GRID[:12].reshape(2, 3, 2, 2)
    values = model.posterior(points).rsample(torch.Size([2, 2]))
    assert values.shape == (2, 2, 2, 3, 2, 1)
    (release,) = model.releases
    np.testing.assert_array_equal(values.numpy().reshape(4, 12), release.values)
    np.testing.assert_array_equal(release.locations, GRID[:12].numpy())
    single = model.posterior(points.float()).rsample(torch.Size())
    assert single.dtype == torch.float32
    assert single.shape == (2, 3, 2, 1)


def test_draws_have_the_law_of_the_posterior(tmp_path):
    # mean k A^-1 y with the responses as they are: the middle of the range is 0
    model = PathModel(sampler(ledger(tmp_path, epsilon=1e12), ridge=0.5, scale=0.3, kernel=RBF(0.3)), X, Y)
    points = GRID[[0, 40, 70]]
    values = model.posterior(points).rsample(torch.Size([3000])).numpy()[..., 0]
    kernel = RBF(0.3)
    A = kernel(X / 4, X / 4) + 0.25 * np.eye(N)
    k = kernel(points.numpy() / 4, X / 4)
    mean = k @ np.linalg.solve(A, Y)
    covariance = 0.09 * (kernel(points.numpy() / 4, points.numpy() / 4) - k @ np.linalg.solve(A, k.T))
    np.testing.assert_allclose(values.mean(axis=0), mean, atol=4 * np.sqrt(np.diag(covariance).max() / 3000))
    np.testing.assert_allclose(np.cov(values.T), covariance, atol=5 * covariance.max() / np.sqrt(3000))


def test_the_budget_is_the_end(tmp_path):
    book = ledger(tmp_path, epsilon=0.3)
    model = PathModel(sampler(book, scale=None, epsilon=0.25), X, Y)
    model.posterior(GRID).rsample(torch.Size([3]))  # calibrated: three paths for 0.25 in all
    with pytest.raises(BudgetExceeded):
        model.posterior(GRID).rsample()
    assert len(model.releases) == 1


def test_a_seed_of_torch_is_not_the_noise(model):
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        draws.append(model.posterior(GRID).rsample())
    assert not torch.equal(*draws)


def test_units_are_handed_on(tmp_path):
    units = np.arange(N) // 3
    model = PathModel(sampler(ledger(tmp_path, epsilon=1e3), contributions=2, ridge=30.0), X, Y, units)
    model.posterior(GRID).rsample()
    (release,) = model.releases
    assert release.certificate.n == 40
    assert release.certificate.parameters["contributions"] == 2


# --- and nothing else


def test_there_are_no_moments(model):
    posterior = model.posterior(GRID)
    for name in ("mean", "variance", "mvn", "distribution"):
        with pytest.raises(NotImplementedError, match="only whole sample paths are released"):
            getattr(posterior, name)
    for function in (posterior.quantile, posterior.density):
        with pytest.raises(NotImplementedError, match="only whole sample paths"):
            function(torch.tensor(0.5))
    assert list(model._settings["ledger"].entries()) == []


@pytest.mark.parametrize(("points", "paths"), [(torch.rand(0, 2), 1), (torch.rand(3, 2), 0)])
def test_nothing_costs_nothing(tmp_path, points, paths):
    book = ledger(tmp_path)
    with pytest.raises(ValueError, match="Nothing was spent"):
        PathModel(sampler(book), X, Y).posterior(points).rsample(torch.Size([paths]))
    assert not book.entries()


def test_nobody_chooses_the_noise(model):
    posterior = model.posterior(GRID)
    with pytest.raises(NotImplementedError, match="base samples"):
        posterior.rsample_from_base_samples(torch.Size([1]), torch.zeros(1, 81, 1))
    with pytest.raises(NotImplementedError, match="base samples"):
        IIDNormalSampler(torch.Size([2]))(posterior)
    with pytest.raises(NotImplementedError, match="how many paths"):
        qSimpleRegret(model)(GRID[:2])
    assert list(model._settings["ledger"].entries()) == []


def test_what_would_need_a_mean_is_refused(model):
    for changes in ({"observation_noise": True}, {"posterior_transform": lambda p: p}, {"output_indices": [1]}):
        with pytest.raises(NotImplementedError, match="one output"):
            model.posterior(GRID, **changes)
    for refused in (model.condition_on_observations, model.fantasize):
        with pytest.raises(NotImplementedError, match="new PathModel"):
            refused(GRID, GRID)
    with pytest.raises(NotImplementedError):
        PosteriorMean(model)(GRID[:1])
    with pytest.raises(ValueError, match="derivative"):
        model.posterior(GRID.clone().requires_grad_()).rsample()
    assert model.subset_output([0]) is model
    assert list(model._settings["ledger"].entries()) == []


def test_records_stay_inside(model):
    assert model.state_dict() == {}
    assert list(model.parameters()) == []
    assert "PRIVATE" in repr(model)
    assert "PRIVATE" in repr(model.posterior(GRID))
    for each in (model, model.posterior(GRID)):
        for take in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="private"):
                take(each)
    with pytest.raises(ValueError, match="ledger"):
        PathModel(sampler(None), X, Y)
    with pytest.raises(ValueError, match="lattice"):
        PathModel(sampler(model._settings["ledger"], prior=Lattice.square(1.0, DOMAIN, killing=0.3)), X, Y)


def test_noise_that_can_be_replayed_is_refused(tmp_path):
    model = PathModel(sampler(ledger(tmp_path), randomness=SeededRandomness(1)), X, Y)
    with pytest.raises(NotBookable):
        model.posterior(GRID).rsample()


# --- consumers


def test_thompson_sampling_by_max_posterior_sampling(tmp_path):
    book = ledger(tmp_path, epsilon=1e12)
    # quiet enough for the best candidate to show; tensors as records
    model = PathModel(sampler(book, ridge=0.3, scale=0.1), torch.tensor(X), torch.tensor(Y))
    chosen = MaxPosteriorSampling(model)(GRID, num_samples=4)
    assert chosen.shape == (4, 2)
    (release,) = model.releases
    assert release.values.shape == (4, 81)
    torch.testing.assert_close(chosen, GRID[release.values.argmax(axis=1)])
    assert (chosen - torch.tensor([3.0, 1.0])).norm(dim=1).max() < 1.2
    assert len(MaxPosteriorSampling(model, replacement=False)(GRID, num_samples=5).unique(dim=0)) == 5
    batches = MaxPosteriorSampling(model)(GRID[:80].reshape(2, 40, 2), num_samples=3)
    assert batches.shape == (2, 3, 2)
    assert len(list(book.entries())) == 3


def test_a_loop_of_thompson_sampling_with_public_covariates(tmp_path):
    # each record is one evaluation, whose response is private; the ledger is charged for every round
    book = Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=60, delta=1e-3, neighbours="replace-response")

    def truth(x):
        return np.exp(-((x - [3.0, 1.0]) ** 2).sum(axis=1)) * 2 - 1

    covariates, responses = X[:6], truth(X[:6])
    paths = sampler(book, ridge=2.0, scale=0.5, assumption=ResponseOnly(1.0), neighbours="replace-response")
    for _ in range(8):
        model = PathModel(paths, covariates, responses)
        chosen = MaxPosteriorSampling(model)(GRID, num_samples=2).numpy()
        covariates, responses = np.vstack([covariates, chosen]), np.append(responses, truth(chosen))
    assert len(list(book.entries())) == 8
    assert book.spent().epsilon <= 60
    assert responses.shape == (22,)


def test_an_acquisition_function_that_is_told_how_many_paths(model):
    acquisition = qSimpleRegret(model, sampler=StochasticSampler(torch.Size([5])))
    value = acquisition(GRID[:3])
    (release,) = model.releases
    assert release.values.shape == (5, 3)
    assert float(value) == pytest.approx(release.values.max(axis=1).mean())


def test_a_list_of_models_draws_from_each(model):
    both = ModelList(model, model)
    samples = both.posterior(GRID[:4]).rsample(torch.Size([2]))
    assert samples.shape == (2, 4, 2)
    assert len(model.releases) == 2


# --- released paths as functions


@pytest.mark.parametrize("domain", [DOMAIN, Ball((2.0, 2.0), 3.0)])
@pytest.mark.parametrize("coordinates", ["unit", "data"])
def test_path_functions_are_the_interpolated_release(domain, coordinates):
    paths = PosteriorSampler(
        domain, (-1.0, 3.0), kernel=Matern52(0.4), scale=1.0, delta=1e-3, paths=3, grid=6, coordinates=coordinates
    )
    release = paths.fit(X, Y).release_
    functions = PathFunctions(release)
    points = torch.tensor(RNG.uniform(0.5, 3.5, (2, 4, 2)), requires_grad=True)
    values = functions(points)
    assert values.shape == (2, 4, 3)
    flat = points.detach().numpy().reshape(-1, 2)
    np.testing.assert_allclose(values.detach().numpy().reshape(-1, 3), release.interpolate(flat).T, rtol=1e-9)
    assert torch.autograd.gradcheck(functions, (points,), eps=1e-5, atol=1e-4)
    some = functions.subset_output([2, 0])
    torch.testing.assert_close(some(points), values[..., [2, 0]])
    assert some.num_outputs == 2


def test_a_released_path_is_optimised_for_nothing(tmp_path):
    book = ledger(tmp_path)
    release = sampler(book, ridge=3.0, scale=0.3, grid=9, kernel=RBF(0.25)).fit(X, Y).release_
    acquisition = PosteriorMean(PathFunctions(release))
    bounds = torch.tensor([[0.0, 0.0], [4.0, 4.0]], dtype=torch.float64)
    found, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=16, raw_samples=512)
    grid = release.interpolate(DOMAIN.grid((60, 60)))[0]
    assert float(value) >= grid.max() - 1e-3
    assert found.shape == (1, 2)
    assert len(list(book.entries())) == 1
