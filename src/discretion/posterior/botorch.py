"""Released sample paths where BoTorch expects a model: every draw is a release, charged to the ledger.

`PathModel` holds the records. Its posterior can be sampled and nothing else: a mean or a variance would be a second,
unpaid answer about them. `PathFunctions` is a released path as a deterministic model, differentiable and free. For
consumers that sample, such as `MaxPosteriorSampling` (Thompson sampling), and for those that optimise a function.

Needs BoTorch: `pip install discretion[botorch]`.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp import Ball, DensePosterior
from discretion.posterior.mechanism import PathRelease
from discretion.posterior.sampler import PosteriorSampler
from discretion.privacy.frames import cleared

try:
    import torch  # pyright: ignore[reportMissingImports]
    from botorch.models.deterministic import DeterministicModel  # pyright: ignore[reportMissingImports]
    from botorch.models.model import Model  # pyright: ignore[reportMissingImports]
    from botorch.posteriors import Posterior  # pyright: ignore[reportMissingImports]
    from botorch.sampling.get_sampler import GetSampler  # pyright: ignore[reportMissingImports]
    from torch import Tensor  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError("discretion.posterior.botorch needs BoTorch: pip install discretion[botorch].") from error

__all__ = ["PathFunctions", "PathModel", "PathPosterior"]

Floats = NDArray[np.float64]

_NO_MOMENTS = (
    "A private posterior has no {name}: only whole sample paths are released, and each is paid for. Draw paths with "
    "rsample, and compute what you need from those."
)
_NO_NOISE = (
    "A private posterior takes no base samples: its randomness is the protection, so a caller must not choose or see "
    "it. Use botorch.sampling.stochastic_samplers.StochasticSampler, which draws with rsample."
)
_HOW_MANY = (
    "Say how many paths an evaluation may buy: sampler=StochasticSampler(torch.Size([k])), from "
    "botorch.sampling.stochastic_samplers. BoTorch's default would be {count}."
)


class PathPosterior(Posterior):
    """PRIVATE. Sample paths at points, none of which is drawn before it is paid for.

    No mean, variance, quantile or density, and no base samples: each of these raises NotImplementedError. Made by
    `PathModel.posterior`: paths of its `model` at `X`, batch_shape x q x d.
    """

    def __init__(self, model: PathModel, X: Tensor) -> None:
        self._model, self._X = model, X

    @cleared
    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Release paths at the points and charge the ledger for them; asked again, it draws and charges anew.

        All points of all batches lie on the same paths. The values are numbers, without derivatives.

        Args:
            sample_shape: as many paths as its product, released together.

        Returns:
            Values, sample_shape x batch_shape x q x 1.

        Raises:
            BudgetExceeded: the ledger does not allow it; nothing was drawn.
            ValueError: points with a gradient, not finite, or none.
        """
        shape = torch.Size([1]) if sample_shape is None else torch.Size(sample_shape)
        values = self._model._released(self._X, math.prod(shape))
        return torch.tensor(values, dtype=self.dtype, device=self.device).reshape(self._extended_shape(shape))

    @property
    def device(self) -> torch.device:
        return self._X.device

    @property
    def dtype(self) -> torch.dtype:
        return self._X.dtype

    @property
    def event_shape(self) -> torch.Size:
        """batch_shape x q x 1."""
        return torch.Size([*self._X.shape[:-1], 1])

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return torch.Size([*sample_shape, *self.event_shape])

    @property
    def batch_range(self) -> tuple[int, int]:
        return (0, -2)

    @property
    def mean(self) -> NoReturn:
        """Refused: it was not paid for."""
        raise NotImplementedError(_NO_MOMENTS.format(name="mean"))

    @property
    def variance(self) -> NoReturn:
        """Refused: it was not paid for."""
        raise NotImplementedError(_NO_MOMENTS.format(name="variance"))

    @property
    def mvn(self) -> NoReturn:
        """Refused: it was not paid for."""
        raise NotImplementedError(_NO_MOMENTS.format(name="mean or covariance"))

    distribution = mvn

    def quantile(self, value: Tensor) -> NoReturn:
        """Refused: it was not paid for."""
        raise NotImplementedError(_NO_MOMENTS.format(name="quantiles"))

    def density(self, value: Tensor) -> NoReturn:
        """Refused: it was not paid for."""
        raise NotImplementedError(_NO_MOMENTS.format(name="density"))

    @property
    def base_sample_shape(self) -> NoReturn:
        raise NotImplementedError(_NO_NOISE)

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> NoReturn:
        raise NotImplementedError(_NO_NOISE)

    def __repr__(self) -> str:
        return "PathPosterior(PRIVATE)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A PathPosterior leads to private records and is never pickled.")


@GetSampler.register(PathPosterior)
def _no_default_sampler(posterior: PathPosterior, sample_shape: torch.Size, **_: Any) -> NoReturn:
    """What BoTorch asks where an acquisition function was given no sampler."""
    raise NotImplementedError(_HOW_MANY.format(count=math.prod(sample_shape)))


class PathModel(Model):
    """PRIVATE. Records as a BoTorch model whose posterior can be sampled, at a price, and nothing else.

    ```python
    model = PathModel(PosteriorSampler(domain, (-1, 1), ridge=20.0, scale=2.0, delta=1e-5, ledger=ledger), X, y)
    chosen = MaxPosteriorSampling(model)(candidates, num_samples=4)  # four paths, one release
    model.releases[-1].certificate
    ```

    BoTorch maximises; give responses of which more is better. Candidates are public and in data units. Each `rsample`,
    and so each evaluation of an acquisition function, is one release of as many paths as samples: choose among finitely
    many candidates in one call, or optimise over `PathFunctions` of a release.

    Args:
        sampler: the public parameters, with a ledger; its locations, grid and number of paths are not used. With
            `epsilon` each release costs at most that.
        X, y: PRIVATE. The records, as in `PosteriorSampler.fit`.
        units: PRIVATE. Whose record it is, as there.

    Raises:
        ValueError: no ledger, or a sampler on a lattice.
    """

    def __init__(self, sampler: PosteriorSampler, X: ArrayLike, y: ArrayLike, units: ArrayLike | None = None) -> None:
        super().__init__()
        if sampler.ledger is None:
            raise ValueError(
                "Give the sampler a ledger: each draw of a PathModel is charged, and something must count."
            )
        if sampler.prior is not None:
            raise ValueError("Paths on a lattice are released at its nodes, not where BoTorch asks; leave out prior.")
        self._settings = sampler.get_params(deep=False)
        # Not tensors, so that no state_dict and no parameter list holds them.
        self._records = (_array(X), _array(y), units)
        self._releases: list[PathRelease] = []

    @property
    def releases(self) -> tuple[PathRelease, ...]:
        """What was released so far, public, with certificates."""
        return tuple(self._releases)

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size([])

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> PathPosterior:
        """The posterior at public points, batch_shape x q x d, from which paths can be drawn. Costs nothing by itself.

        Raises:
            NotImplementedError: observation noise or a transform, which would need a mean; another output.
        """
        if posterior_transform is not None or observation_noise is not False or output_indices not in (None, [0]):
            raise NotImplementedError(
                "A private posterior has one output, no observation noise and no transform, as these need a mean; use "
                "an objective of samples."
            )
        return PathPosterior(self, X)

    def subset_output(self, idcs: list[int]) -> PathModel:
        """Itself: there is one output."""
        if idcs != [0]:
            raise NotImplementedError("A private posterior has one output, number 0.")
        return self

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> NoReturn:
        """Refused: new records are a new data set, and a new model."""
        raise NotImplementedError(
            "A private model is not conditioned in place: new records make a new data set. Make a new PathModel, whose "
            "ledger is that of all records in it."
        )

    fantasize = condition_on_observations

    def _released(self, X: Tensor, paths: int) -> Floats:
        if X.requires_grad:
            raise ValueError(
                "Released values have no derivative in the points. Choose among candidates, or optimise over "
                "PathFunctions of a release. Nothing was spent."
            )
        if not (X.numel() and paths):
            raise ValueError("No points or no paths: there is nothing to release. Nothing was spent.")
        here = {"locations": _array(X).reshape(-1, X.shape[-1]), "grid": None, "paths": paths}
        fitted = PosteriorSampler(**self._settings | here).fit(*self._records)
        release = fitted.release_
        assert isinstance(release, PathRelease)
        self._releases.append(release)
        return release.values

    def __repr__(self) -> str:
        return f"PathModel(PRIVATE, {len(self._releases)} releases)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A PathModel holds private records and is never pickled or copied.")


class PathFunctions(DeterministicModel):
    """Released paths as functions of any point, with derivatives: post-processing of a release, free of charge.

    Output j is path j, interpolated by the conditional mean of the prior given its released values, as
    `PathRelease.interpolate`. Its posterior is the function itself: for acquisition functions of one path,
    `subset_output([j])`, and `optimize_acqf`.

    Args:
        release: public.
    """

    def __init__(self, release: PathRelease) -> None:
        super().__init__()
        self._mechanism = release.mechanism
        self._here = self._mechanism._kernel_coordinates(release.locations)
        nugget = math.sqrt(self._mechanism.effective_nugget(release.certificate.n))
        columns = (
            DensePosterior(self._mechanism.kernel, nugget, self._here, path).weights
            for path in release.values - self._mechanism._centre
        )
        self._weights = np.stack(list(columns), axis=1)

    @property
    def num_outputs(self) -> int:
        return self._weights.shape[1]

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size([])

    def subset_output(self, idcs: list[int]) -> PathFunctions:
        """Some of the paths, by their number."""
        some = object.__new__(PathFunctions)
        DeterministicModel.__init__(some)
        some._mechanism, some._here, some._weights = self._mechanism, self._here, self._weights[:, idcs]
        return some

    def forward(self, X: Tensor) -> Tensor:
        """Values of the paths at X, batch_shape x n x d; batch_shape x n x paths."""
        values: Any = _Interpolated.apply(X.reshape(-1, X.shape[-1]), self)
        return values.reshape(*X.shape[:-1], self.num_outputs)

    def _values(self, points: Floats) -> Floats:
        """c + k(x, Z) w, for points in data units."""
        mechanism = self._mechanism
        return mechanism.kernel(mechanism._kernel_coordinates(points), self._here) @ self._weights + mechanism._centre

    def _slopes(self, points: Floats, cotangent: Floats) -> Floats:
        """sum_j cotangent_j d/dx of path j, in data units."""
        mechanism, domain = self._mechanism, self._mechanism.domain
        slopes = mechanism.kernel.input_gradient(mechanism._kernel_coordinates(points), self._here)
        inner = np.einsum("nmd,nm->nd", slopes, cotangent @ self._weights.T)
        if mechanism.coordinates == "data":
            return inner
        sides = 2.0 * domain.radius if isinstance(domain, Ball) else np.subtract(domain.upper, domain.lower)
        return inner / sides


class _Interpolated(torch.autograd.Function):
    """`PathFunctions` at points, (n, d), with the derivative that NumPy computes."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, functions: PathFunctions) -> Tensor:
        ctx.points, ctx.functions = _array(points), functions
        return torch.as_tensor(functions._values(ctx.points)).to(points)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (cotangent,) = grad_outputs
        return torch.as_tensor(ctx.functions._slopes(ctx.points, _array(cotangent))).to(cotangent), None


def _array(value: Any) -> Any:
    """Tensors as float64 arrays; anything else as it is."""
    return value.detach().to("cpu", torch.float64).numpy() if isinstance(value, Tensor) else value
