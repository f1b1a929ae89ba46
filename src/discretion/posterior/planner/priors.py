"""What a planner knows of the records: a public prior, as worlds of records and the true field they hide.

Two kinds: a declared Gaussian process with a uniform design, or an earlier table whose owner says that it is public.
Either becomes a `Model`, which simulates worlds without ever seeing a private record.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.ndimage import gaussian_filter
from scipy.spatial import KDTree
from scipy.special import ndtr

from discretion.gp import Kernel, Matern32
from discretion.gp import kernel as make_kernel
from discretion.posterior.planner.setting import PLACES, Setting
from discretion.posterior.worlds import GaussianProcessWorlds, square_root

__all__ = ["GaussianPrior", "Model", "NodeWorlds", "Prior", "PublicTable", "model_of", "prior_notes"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_DRAWN = 20_000_000
"""Records drawn one by one in a batch of worlds; beyond, their sums at each node are drawn by the normal law."""

_SITES = 2_500  # rows of a public table that stand at their own places; more are moved to the grid
_FITTED = 600  # rows of a public table to which the Gaussian process is fitted
_DENSE = 0.25  # of the average density: places of a public table with less are not scored
_SHARE = 0.05  # of the decoder's design that is uniform, for places the public table misses


@dataclass(frozen=True, eq=False)
class NodeWorlds:
    """N simulated data sets, as far as sums over records need them.

    Attributes
    ----------
    counts, sums : arrays (N, q)
        Records at each node, and the sum of their clipped responses less the centre.
    fields : array (N, m)
        The true field at the places of the setting.
    """

    counts: Floats
    sums: Floats
    fields: Floats


class Model(ABC):
    """A public prior on a setting.

    Attributes
    ----------
    setting : Setting
    nodes : array (q, d)
        Where records may stand, in the kernel's coordinates.
    gaussian : GaussianProcessWorlds
        The Gaussian law of the field at the places: exact for a `GaussianPrior`, fitted for a `PublicTable`.
    mask : boolean array (m,)
        Places that are scored: those of the region where the public design puts at least a quarter of the average
        number of records.
    """

    setting: Setting
    gaussian: GaussianProcessWorlds
    nodes: Floats
    mask: Mask

    @abstractmethod
    def simulate(self, count: int, rng: np.random.Generator) -> NodeWorlds:
        """``count`` worlds of n records."""

    @cached_property
    def coarse(self) -> GaussianProcessWorlds:
        """`gaussian` at every second place: the law that decoders are made from while planning."""
        assert self.gaussian.density is not None
        shape, kept = self.setting.half
        density = gaussian_filter(self.gaussian.density.reshape(self.setting.counts), 0.7, mode="nearest").ravel()
        return replace(self.gaussian, grid=shape, density=density[kept])

    def decoder_worlds(self, count: int, rng: np.random.Generator) -> NodeWorlds:
        """Worlds of `gaussian`, with nodes at the places: a decoder's cut is tuned on them."""
        return _worlds(self.gaussian, self.gaussian.root, self.setting, count, rng)


def _worlds(
    law: GaussianProcessWorlds, root: Floats, setting: Setting, count: int, rng: np.random.Generator
) -> NodeWorlds:
    """Records at the places: fields N(mean, root root^T), and the design and the noise of the law."""
    fields = rng.standard_normal((count, root.shape[1])) @ root.T + law.mean
    assert law.density is not None
    counts = rng.multinomial(setting.n, law.density, size=count)
    if setting.n * count <= MOST_DRAWN:
        y = np.repeat(fields.ravel(), counts.ravel())
        y += law.noise_sd * rng.standard_normal(y.size)
        owner = np.repeat(np.arange(counts.size), counts.ravel())
        sums = np.bincount(owner, setting.clipped(y), counts.size).astype(np.float64).reshape(counts.shape)
    else:
        mean, variance = clipped_moments(fields, law.noise_sd, *setting.response_range)
        sums = counts * (mean - setting.centre)
        sums += np.sqrt(counts * variance) * rng.standard_normal(counts.shape)
    return NodeWorlds(counts.astype(np.float64), sums, fields)


def clipped_moments(mean: Floats, sd: float, low: float, high: float) -> tuple[Floats, Floats]:
    """Mean and variance of N(mean, sd^2) clipped to [low, high].

    For z = clip(N(0, 1), a, b), a = (low - mean) / sd, b = (high - mean) / sd:

        E z   = a Phi(a) + phi(a) + b Phi(-b) - phi(b),
        E z^2 = a^2 Phi(a) + b^2 Phi(-b) + Phi(b) - Phi(a) + a phi(a) - b phi(b).
    """
    if sd == 0:
        return np.clip(mean, low, high), np.zeros_like(mean)
    a, b = (low - mean) / sd, (high - mean) / sd
    below, above = ndtr(a), ndtr(-b)
    at_a, at_b = (np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) for z in (a, b))
    first = a * below + at_a + b * above - at_b
    inside = np.maximum(0.0, 1.0 - below - above + a * at_a - b * at_b)
    second = a * a * below + b * b * above + inside
    return mean + sd * first, sd * sd * np.maximum(0.0, second - first * first)


# --- a declared Gaussian process --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianPrior:
    """f ~ GP(mean, amplitude^2 k), y = f(x) + N(0, noise_sd^2), records uniform on the domain (or on the region).

    Parameters
    ----------
    length_scale : float, or one for each covariate
        One number is a share of the shortest side of the domain as the kernels see it. In data coordinates the field is
        as rough in every direction; in unit coordinates, where covariates may be of different kinds, it is a share of
        each side. Several are shares of the side of each.
    amplitude : float, optional
        Standard deviation of the field; a third of half the response range by default.
    noise_sd : float, optional
        Standard deviation of the response about the field; that of the field by default.
    mean : float, optional
        Of the field; the middle of the response range by default.
    kernel : str
        matern32 by default.
    length_unit : {"domain", "data"}
        data: the length scale is in the covariates' own units, whatever coordinates the kernels have. One number is
        the same length in every direction, also on a long domain.
    """

    length_scale: float | tuple[float, ...] = 0.2
    amplitude: float | None = None
    noise_sd: float | None = None
    mean: float | None = None
    kernel: str = "matern32"
    length_unit: Literal["domain", "data"] = "domain"

    def on(self, setting: Setting, rng: np.random.Generator) -> Model:
        """The model on a setting; ValueError for a number out of range."""
        low, high = setting.response_range
        amplitude = (high - low) / 6.0 if self.amplitude is None else self.amplitude
        law = GaussianProcessWorlds(
            make_kernel(self.kernel, self._lengths(setting)),
            setting.box,
            setting.counts,
            setting.n,
            amplitude if self.noise_sd is None else self.noise_sd,
            amplitude,
            0.5 * (low + high) if self.mean is None else self.mean,
            setting.inside.astype(np.float64),
        )
        return _GaussianModel(setting, law, setting.places.points, setting.inside)

    def _lengths(self, setting: Setting) -> float | tuple[float, ...]:
        """As the kernels see them; one number if they are all the same."""
        if self.length_unit not in ("domain", "data"):
            raise ValueError(f"length_unit must be 'domain' or 'data'; got {self.length_unit!r}.")
        given = np.atleast_1d(np.asarray(self.length_scale, dtype=np.float64))
        if given.shape not in ((1,), (setting.box.dimension,)):
            raise ValueError(
                f"Give one length scale of the prior, or one for each of {setting.box.dimension} covariates; got "
                f"{given.size}."
            )
        sides, in_data = (np.subtract(box.upper, box.lower) for box in (setting.box, setting.domain))
        lengths = given * (sides / in_data if self.length_unit == "data" else sides if given.size > 1 else setting.side)
        found = tuple(float(each) for each in lengths)
        return found[0] if len(set(found)) == 1 else found

    def describe(self, model: Model) -> dict[str, Any]:
        """What it is, JSON-able, every default filled in."""
        return {"kind": "Gaussian process, declared; records uniform"} | _law(model)


@dataclass(frozen=True, eq=False)
class _GaussianModel(Model):
    setting: Setting
    gaussian: GaussianProcessWorlds
    nodes: Floats
    mask: Mask

    def simulate(self, count: int, rng: np.random.Generator) -> NodeWorlds:
        return _worlds(self.gaussian, self.gaussian.root, self.setting, count, rng)


def _law(model: Model) -> dict[str, Any]:
    law, setting = model.gaussian, model.setting
    sides = [np.subtract(box.upper, box.lower) for box in (setting.domain, setting.box)]
    return {
        "kernel": law.kernel.name,
        "length_scale": law.kernel.length_scale,
        "length_scale_in_data_units": (np.asarray(law.kernel.length_scale) * sides[0] / sides[1]).tolist(),
        "amplitude": law.amplitude,
        "noise_sd": law.noise_sd,
        "mean": float(np.mean(law.mean)),
    }


# --- an earlier public table ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PublicTable:
    """An earlier data set that its user DECLARES to be public: the forecast assumes that the private ones are like it.

    A Gaussian process is fitted to it by maximum likelihood. With at least n rows, worlds are resamples of n of them,
    with replacement, and the true field is the posterior mean given the whole table. With fewer, resamples would repeat
    rows and look rougher than n records do: then the true field is a posterior draw, different in each world, records
    lie by the table's smoothed design and responses have the fitted noise.

    Parameters
    ----------
    covariates : array (N, d)
        In data units.
    response : array (N,)
        After the transform.
    name : str
        What it is, for the printed plan.
    """

    covariates: ArrayLike
    response: ArrayLike
    name: str = "no name given"

    def on(self, setting: Setting, rng: np.random.Generator) -> Model:
        """The model on a setting; ValueError for a table that does not fit it."""
        X = np.asarray(self.covariates, dtype=np.float64)
        y = np.asarray(self.response, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != setting.box.dimension or y.shape != X.shape[:1] or len(y) < 10:
            raise ValueError(
                f"The public table needs at least 10 rows of {setting.box.dimension} covariates and one response."
            )
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise ValueError("The public table holds a value that is not finite.")
        return _TableModel.fitted(setting, setting.coordinates_of(X), setting.clipped(y), rng)

    def describe(self, model: Model) -> dict[str, Any]:
        """What it is, JSON-able, with the Gaussian process fitted to it."""
        return {
            "kind": "earlier table, declared public by its user",
            "name": self.name,
            "rows": len(np.asarray(self.response)),
            "fitted": _law(model),
        }


Prior = GaussianPrior | PublicTable


def model_of(prior: Prior | None, setting: Setting, seed: int) -> tuple[Prior, Model]:
    """What is publicly known, ``GaussianPrior()`` unless given, and the worlds it makes."""
    public = GaussianPrior() if prior is None else prior
    return public, public.on(setting, np.random.default_rng([seed, 0]))


def prior_notes(setting: Setting, prior: Prior, worlds: int) -> tuple[str, ...]:
    """What a forecast on simulated worlds rests on, in words."""
    notes = ["They are as good as the prior: where the private records differ from it, so will the scores."]
    if setting.counts != setting.grid:
        notes.append(
            f"Simulated on a grid of {' x '.join(map(str, setting.counts))} (about {PLACES[0]} to {PLACES[1]} "
            "places); the noise there has its exact law."
        )
    if isinstance(prior, GaussianPrior):
        notes.append("Records stand at the places of the simulated grid; no kernel narrower than its cell is tried.")
    else:
        notes.append(
            "The public table is declared public by its user; nothing else is known of it. What it shows already needs "
            "no release: the plan is for what may have changed."
        )
    if setting.n * worlds > MOST_DRAWN:
        notes.append(
            "So many records are not drawn one by one: their sums at each node come from the normal law with the exact "
            "mean and variance."
        )
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class _TableModel(Model):
    """`site[i]` is the node of row i and `values[i]` its clipped response less the centre."""

    setting: Setting
    nodes: Floats
    site: NDArray[np.int64]
    values: Floats
    gaussian: GaussianProcessWorlds
    truth: Floats
    mask: Mask
    root: Floats | None

    @classmethod
    def fitted(cls, setting: Setting, X: Floats, values: Floats, rng: np.random.Generator) -> _TableModel:
        points, m = setting.places.points, len(setting.places.points)
        nearest = np.asarray(KDTree(points / _steps(setting)).query(X / _steps(setting))[1], dtype=np.int64)
        density = _smoothed(setting, X, nearest)
        kernel, amplitude, noise, mean = _maximum_likelihood(X, values, setting, rng)
        law = GaussianProcessWorlds(
            kernel,
            setting.box,
            setting.counts,
            setting.n,
            noise,
            amplitude,
            mean + setting.centre,
            (1.0 - _SHARE) * density + _SHARE / m,
        )
        truth, root = _posterior(points, law, nearest, values - mean, spread=len(X) < setting.n)
        nodes, site = (points, nearest) if root is not None or len(X) > _SITES else (X, np.arange(len(X)))
        return cls(setting, nodes, site, values, law, truth + law.mean, (density >= _DENSE / m) & setting.inside, root)

    def simulate(self, count: int, rng: np.random.Generator) -> NodeWorlds:
        if self.root is not None:
            return _worlds(replace(self.gaussian, mean=self.truth), self.root, self.setting, count, rng)
        n, rows, q = self.setting.n, len(self.values), len(self.nodes)
        counts, sums = np.empty((count, q)), np.empty((count, q))
        if n * count <= MOST_DRAWN:
            for w in range(count):
                row = rng.integers(rows, size=n)
                counts[w] = np.bincount(self.site[row], minlength=q)
                sums[w] = np.bincount(self.site[row], self.values[row], q)
        else:
            number = np.bincount(self.site, minlength=q)
            safe = np.maximum(number, 1)
            mean = np.bincount(self.site, self.values, q) / safe
            spread = np.maximum(np.bincount(self.site, self.values**2, q) / safe - mean**2, 0.0)
            counts[:] = rng.multinomial(n, number / rows, size=count)
            sums[:] = counts * mean + np.sqrt(counts * spread) * rng.standard_normal((count, q))
        return NodeWorlds(counts, sums, np.broadcast_to(self.truth, (count, len(self.truth))))


def _steps(setting: Setting) -> Floats:
    """Distance of neighbouring places along each axis."""
    return np.subtract(setting.box.upper, setting.box.lower) / (np.asarray(setting.counts) - 1.0)


def _smoothed(setting: Setting, X: Floats, nearest: NDArray[np.int64]) -> Floats:
    """Public design probabilities of the places: a Gaussian smoother of half of Scott's width (1992).

    Scott's is for normal data and too wide for settlements.
    """
    m, d = len(setting.places.points), X.shape[1]
    width = 0.5 * X.std(axis=0) * len(X) ** (-1.0 / (d + 4.0)) / _steps(setting)
    table = np.bincount(nearest, minlength=m).reshape(setting.counts).astype(np.float64)
    smooth = gaussian_filter(table, np.maximum(width, 0.5), mode="constant").ravel()
    return smooth / smooth.sum()


def _maximum_likelihood(
    X: Floats, values: Floats, setting: Setting, rng: np.random.Generator
) -> tuple[Kernel, float, float, float]:
    """Matern 3/2 kernel, amplitude, noise sd and mean of greatest likelihood, for at most 600 rows.

    With K = U diag(l) U^T and noise-to-signal variance g the amplitude is known, a^2 = mean_i (U^T y)_i^2 / (l_i + g),
    and the log likelihood is -N/2 log a^2 - 1/2 sum_i log(l_i + g), up to a constant.
    """
    rows = rng.choice(len(X), min(len(X), _FITTED), replace=False)
    mean = float(values.mean())
    X, y = X[rows], values[rows] - mean
    ratios = np.geomspace(0.01, 100.0, 25)
    best: tuple[float, Kernel, float, float] = (-math.inf, Matern32(setting.side), 0.0, 0.0)
    for length in setting.side * np.geomspace(0.02, 1.0, 12):
        kernel = Matern32(float(length))
        eigenvalues, vectors = np.linalg.eigh(kernel(X))
        ridge = np.maximum(eigenvalues, 0.0)[:, None] + ratios
        square = np.mean((vectors.T @ y)[:, None] ** 2 / ridge, axis=0)
        with np.errstate(divide="ignore"):
            likelihood = -0.5 * len(y) * np.log(square) - 0.5 * np.log(ridge).sum(axis=0)
        top = int(np.argmax(likelihood))
        if likelihood[top] > best[0]:
            best = float(likelihood[top]), kernel, math.sqrt(square[top]), math.sqrt(square[top] * ratios[top])
    if not best[2] > 0:
        raise ValueError("The responses of the public table are all the same inside the response range.")
    return best[1], best[2], best[3], mean


def _posterior(
    points: Floats, law: GaussianProcessWorlds, nearest: NDArray[np.int64], values: Floats, *, spread: bool
) -> tuple[Floats, Floats | None]:
    """Posterior mean at the places given all rows, each moved to its nearest place, and a root of the covariance."""
    m = len(points)
    number = np.bincount(nearest, minlength=m)
    used = np.flatnonzero(number)
    average = np.bincount(nearest, values, m)[used] / number[used]
    gram = law.kernel(points[used])
    gram[np.diag_indices_from(gram)] += (law.noise_sd / law.amplitude) ** 2 / number[used]
    factor = cholesky(gram, lower=True)
    cross, y = (solve_triangular(factor, each, lower=True) for each in (law.kernel(points[used], points), average))
    if not spread:
        return cross.T @ y, None
    return cross.T @ y, law.amplitude * square_root(law.kernel(points) - cross.T @ cross, 1e-8)
