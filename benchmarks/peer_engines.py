"""One exact posterior path by each library, as its documentation has it: from arrays of records to an array of values.

Hyperparameters are fixed, in double precision. A peer is set up with the data (models defined, jax programs compiled)
and then called as often as wanted; each call starts from the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peer_work import COLUMNS, LENGTH_SCALE, NUGGET, Array, Data, Setting


class Drawn(NamedTuple):
    """One path, and what it takes to judge it.

    Attributes:
        path: values, (m,).
        moments: computes the posterior mean (m,) and some first columns of the covariance, (m, k), without nugget.
        normals: what the path was made of, where it is a mean plus a Cholesky factor times normals.
        nugget: what was added to the variances.
        extend: draws the same path at the later points; None where the library has no such thing.
    """

    path: Array
    moments: Callable[[], tuple[Array, Array]]
    normals: Array | None = None
    nugget: float = 0.0
    extend: Callable[[], object] | None = None


Draw = Callable[[], Drawn]


def dense(setting: Setting, given: Data) -> Draw:
    """`DensePosterior` and `SamplePaths`."""
    from discretion.gp import DensePosterior, SamplePaths

    X, y, T, later = given
    kernel = _kernel(setting)

    def draw() -> Drawn:
        used: list[Array] = []
        posterior = DensePosterior(kernel, setting.ridge, X, y)
        paths = SamplePaths(posterior, 1.0, NUGGET, _recorded(used))
        path = paths.evaluate(T)[0]
        return Drawn(
            path,
            lambda: (posterior.mean(T), posterior.covariance(T)),
            used[0][0],
            NUGGET,
            lambda: paths.evaluate(later),
        )

    return draw


def linear(setting: Setting, given: Data) -> Draw:
    """`ExponentialPosterior` or `MarkovPosterior`, and their paths: the line in linear time."""
    from discretion.gp import ExponentialPaths, ExponentialPosterior, MarkovPaths, MarkovPosterior

    X, y, T, later = given
    kernel = _kernel(setting)
    exponential = setting.kernel == "exponential"
    engine: Any = ExponentialPosterior if exponential else MarkovPosterior

    def draw() -> Drawn:
        posterior = engine(kernel, setting.ridge, X, y)
        paths: Any = (ExponentialPaths if exponential else MarkovPaths)(posterior, 1.0, NUGGET, _recorded([]))
        path = paths.evaluate(T)[0]

        def moments() -> tuple[Array, Array]:
            # k(t, s) - k_X(t) A^-1 k_X(s): the second term is the posterior mean at t of the responses k_X(s)
            columns = [kernel(T, s[None])[:, 0] - engine(kernel, setting.ridge, X, kernel(X, s[None])[:, 0]).mean(T)
                       for s in T[:COLUMNS]]  # fmt: skip
            return posterior.mean(T), np.stack(columns, axis=1)

        return Drawn(path, moments, None, NUGGET, lambda: paths.evaluate(later))

    return draw


def _library(name: str) -> Any:
    """A peer, which need not be there when the file is read."""
    return import_module(name)


def _kernel(setting: Setting) -> Any:
    from discretion.gp import kernel

    return kernel(setting.kernel, LENGTH_SCALE)


def _recorded(used: list[Array]) -> Callable[[tuple[int, int]], Array]:
    """Seeded normals that are kept in `used`: a benchmark is no release."""
    rng = np.random.default_rng(1)

    def normal(shape: tuple[int, int]) -> Array:
        used.append(rng.standard_normal(shape))
        return used[-1]

    return normal


def sklearn(setting: Setting, given: Data) -> Draw:
    """`GaussianProcessRegressor.fit` and `sample_y`, which takes the singular values of the covariance."""
    library = _library("sklearn.gaussian_process")
    X, y, T, _ = given
    kernel = library.kernels.Matern(LENGTH_SCALE, "fixed", nu=0.5 if setting.kernel == "exponential" else 2.5)

    def draw() -> Drawn:
        model = library.GaussianProcessRegressor(kernel, alpha=setting.ridge**2, optimizer=None).fit(X, y)
        path = model.sample_y(T, random_state=1)[:, 0]
        return Drawn(path, lambda: model.predict(T, return_cov=True))

    return draw


def gpytorch(setting: Setting, given: Data) -> Draw:
    """`ExactGP` with Cholesky factors at every size, and the nugget as jitter."""
    library, torch = _library("gpytorch"), _library("torch")
    X, y, T = (torch.as_tensor(each) for each in given[:3])
    noise = torch.full((setting.n,), setting.ridge**2, dtype=torch.float64)

    class Model(library.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = library.means.ZeroMean()
            self.covar_module = _torch_kernel(setting)

        def forward(self, x: Any) -> Any:
            return library.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def draw() -> Drawn:
        z = torch.as_tensor(np.random.default_rng(1).standard_normal(setting.m))
        with torch.no_grad(), library.settings.max_cholesky_size(10**9), library.settings.fast_computations(
            covar_root_decomposition=False, log_prob=False, solves=False
        ):  # fmt: skip
            model = Model(library.likelihoods.FixedNoiseGaussianLikelihood(noise))
            model.eval()
            posterior = model(T)
            path = posterior.add_jitter(NUGGET).rsample(base_samples=z[None])[0]
        return Drawn(path.numpy(), partial(_torch_moments, posterior), z.numpy(), NUGGET)

    return draw


def botorch(setting: Setting, given: Data) -> Draw:
    """`SingleTaskGP` and `rsample`, with the settings that the library makes and no nugget of ours."""
    torch, library, mean = _library("torch"), _library("botorch.models"), _library("gpytorch.means").ZeroMean()
    X, y, T = (torch.as_tensor(each) for each in given[:3])
    noise = torch.full((setting.n, 1), setting.ridge**2, dtype=torch.float64)

    def draw() -> Drawn:
        z = torch.as_tensor(np.random.default_rng(1).standard_normal(setting.m))
        kernel = _torch_kernel(setting)
        model = library.SingleTaskGP(
            X, y[:, None], noise, covar_module=kernel, mean_module=mean, outcome_transform=None
        )
        with torch.no_grad():
            posterior = model.posterior(T)
            path = posterior.rsample_from_base_samples(torch.Size([1]), z[None])[0, :, 0]
        return Drawn(path.numpy(), partial(_torch_moments, posterior.distribution), z.numpy())

    return draw


def _torch_kernel(setting: Setting) -> Any:
    torch, kernels = _library("torch"), _library("gpytorch.kernels")
    kernel = kernels.MaternKernel(nu=0.5 if setting.kernel == "exponential" else 2.5).double()
    kernel.lengthscale = torch.tensor(LENGTH_SCALE, dtype=torch.float64)  # a float would become one of 32 bits
    return kernel


def _torch_moments(posterior: Any) -> tuple[Array, Array]:
    with _library("torch").no_grad():
        return posterior.mean.numpy(), posterior.covariance_matrix.numpy()


def tinygp(setting: Setting, given: Data, *, quasiseparable: bool = False, by_hand: bool = False) -> Draw:
    """`GaussianProcess.condition` and `sample`, compiled beforehand.

    The quasi-separable solver wants sorted records, and its `condition` adds no diagonal at other points; `by_hand`
    adds the nugget to its covariance and takes the Cholesky factor.
    """
    jax, jnp, library = _library("jax"), _library("jax.numpy"), _library("tinygp")
    kernels = library.kernels
    jax.config.update("jax_enable_x64", True)
    X, y, T, _ = given
    exponential = setting.kernel == "exponential"
    if quasiseparable:
        family = kernels.quasisep
        kernel = (family.Exp if exponential else family.Matern52)(scale=LENGTH_SCALE)
        X, T = X[:, 0], T[:, 0]
    else:
        distance = kernels.distance.L2Distance()
        kernel = (kernels.Exp if exponential else kernels.Matern52)(LENGTH_SCALE, distance)
    options = {"assume_sorted": True} if quasiseparable else {}

    def posterior(X: Any, y: Any, T: Any) -> Any:
        return library.GaussianProcess(kernel, X, diag=setting.ridge**2, **options).condition(y, T, diag=NUGGET).gp

    def path(X: Any, y: Any, T: Any, key: Any) -> Any:
        found = posterior(X, y, T)
        if not by_hand:
            return found.sample(key)
        C = jnp.linalg.cholesky(found.covariance + NUGGET * jnp.eye(setting.m))
        return found.loc + C @ jax.random.normal(key, (setting.m,))

    def moments(X: Any, y: Any, T: Any) -> Any:
        found = posterior(X, y, T)
        return found.loc, found.covariance - included * jnp.eye(setting.m)

    judged = jax.jit(moments)

    key = jax.random.PRNGKey(1)
    compiled = jax.jit(path).lower(X, y, T, key).compile()
    nugget = NUGGET if by_hand or not quasiseparable else 0.0
    included = 0.0 if quasiseparable else NUGGET  # in the covariance that the library returns

    def draw() -> Drawn:
        order = np.argsort(X) if quasiseparable else slice(None)
        values = np.asarray(compiled(X[order], y[order], T, key))
        normals = np.asarray(jax.random.normal(key, (setting.m,)))
        return Drawn(values, lambda: judged(X[order], y[order], T), normals, nugget)

    return draw


def celerite2(setting: Setting, given: Data) -> Draw:
    """`GaussianProcess.condition` and `sample`, which takes the singular values of the covariance."""
    library = _library("celerite2")
    X, y, T, _ = given

    def draw() -> Drawn:
        order, asked = np.argsort(X[:, 0]), np.argsort(T[:, 0])
        process = library.GaussianProcess(library.terms.RealTerm(a=1.0, c=1.0 / LENGTH_SCALE))
        process.compute(X[order, 0], diag=np.full(setting.n, setting.ridge**2))
        posterior = process.condition(y[order], T[asked, 0])
        path = np.empty(setting.m)
        path[asked] = posterior.sample(regularize=NUGGET)

        def moments() -> tuple[Array, Array]:
            mean, C = np.empty(setting.m), np.empty((setting.m, setting.m))
            mean[asked], C[np.ix_(asked, asked)] = posterior.mean, posterior.covariance
            return mean, C

        return Drawn(path, moments, None, NUGGET)

    return draw


@dataclass(frozen=True)
class Peer:
    """A library and how it draws.

    Attributes:
        package: what has to be installed.
        line: works on the line only.
        memory: whether it holds an n x n matrix ("dense"), an n x m one ("cross"), or neither ("linear").
        lacks: kernels that it does not have.
    """

    package: str
    setup: Callable[[Setting, Data], Draw]
    line: bool = False
    memory: str = "dense"
    lacks: tuple[str, ...] = ()

    def bytes(self, setting: Setting) -> int:
        """What it can't do without."""
        n, m = setting.n, setting.m
        return 8 * {"dense": n * n + n * m + m * m, "cross": n * m + m * m, "linear": n + m}[self.memory]


PEERS: dict[str, Peer] = {
    "discretion, linear": Peer("discretion", linear, line=True, memory="linear"),
    "discretion, dense": Peer("discretion", dense),
    "scikit-learn": Peer("scikit-learn", sklearn),
    "GPyTorch": Peer("gpytorch", gpytorch),
    "BoTorch": Peer("botorch", botorch),
    "tinygp, dense": Peer("tinygp", tinygp),
    "tinygp, quasi-separable": Peer("tinygp", partial(tinygp, quasiseparable=True), line=True, memory="cross"),
    "tinygp, quasi-separable, nugget by hand": Peer(
        "tinygp", partial(tinygp, quasiseparable=True, by_hand=True), line=True, memory="cross"
    ),
    "celerite2": Peer("celerite2", celerite2, line=True, memory="cross", lacks=("matern52",)),
}
