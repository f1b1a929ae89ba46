"""What a released kernel sum says for certain: local means, excursion sets with confidence, sums over regions.

A kernel-sum release is a pair of arrays at m public places,

    h = sum_i (y_i - c) k(x_i, .) + s g_1,          d = M sum_i k(x_i, .) + s g_2,

with |y_i - c| <= M, kernel k, g_1 and g_2 independent fields N(0, K + tau I). Everything but the sums is public, the
law of the noise included, so what the non-private sums are can be stated with a known confidence. All of it is
post-processing and costs no privacy.

**What is covered.** The statements are about the *non-private smoothed map* (the same sums without noise, responses
clipped) at the released places, not between them. They quantify the noise of privacy, not the sampling error of the
records. Proofs: ``docs/proofs/confidence-sets.md``. The sets and their names follow Bolin and Lindgren 2015 (R package
``excursions``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.special import ndtri

from discretion.gp import Box, Kernel
from discretion.gp import kernel as make_kernel
from discretion.gp.fields import Field, Grid, Places, stationary_field

__all__ = [
    "Bands",
    "ExcursionSets",
    "LocalMean",
    "NoiseField",
    "RegionMeans",
    "RegionSums",
    "ReleasedSums",
    "SumLayout",
    "argmax_set",
    "excursion_function",
    "excursion_sets",
    "local_mean",
    "mean_bands",
    "region_mean",
    "region_sum",
    "released_sums",
    "simulated_suprema",
    "supremum_quantile",
    "threshold_field",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Kind = Literal[">", "<", "=", "!="]

KINDS: tuple[Kind, ...] = (">", "<", "=", "!=")
_BLOCK = 1 << 22  # float64 entries of one block of simulated fields, 32 MB
_TILE = 1 << 22


class Normals(Protocol):
    """Anything with ``standard_normal(shape)``: a `Randomness` or a NumPy generator."""

    def standard_normal(self, shape: Any = ..., /) -> Any: ...


def _normals(randomness: Normals | None) -> Normals:
    # no secret hangs on these numbers, they only have to be fresh: a fast generator seeded by the system will do
    return np.random.default_rng() if randomness is None else randomness


# --- the public law ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NoiseField:
    """The public law N(0, K + nugget I) of the noise at the released places, in units of the scale s.

    Parameters
    ----------
    kernel : Kernel
    places : Grid or array (m, d)
        In the kernel's coordinates.
    nugget : float
    """

    kernel: Kernel
    places: Places
    nugget: float

    @cached_property
    def field(self) -> Field:
        """How it is drawn."""
        return stationary_field(self.kernel, self.places)

    @property
    def size(self) -> int:
        """Number of places m."""
        return math.prod(self.places.shape) if isinstance(self.places, Grid) else len(self.places)

    @property
    def sd(self) -> float:
        """Standard deviation at one place: sqrt(1 + nugget)."""
        return math.sqrt(1.0 + self.nugget)

    def draw(self, count: int, randomness: Normals) -> Floats:
        """Independent draws, shape (count, m)."""
        return self.field.draw(randomness.standard_normal, self.nugget, count)

    def covariance(self, weights: Floats) -> Floats:
        """Covariance of the sums weights @ g, shape (k, k), for weights (k, m): w_i^T (K + nugget I) w_j.

        On an evenly spaced grid K w is a convolution, computed by zero-padded Fourier transforms; otherwise in tiles.
        """
        return weights @ self._smeared(weights).T + self.nugget * weights @ weights.T

    def _smeared(self, weights: Floats) -> Floats:
        """K w for each row w of weights."""
        if not isinstance(self.places, Grid):
            return self._tiled(self.places, weights)
        axes = self.places.axes
        if (kernels := self.kernel.factors(len(axes))) is not None:
            values = weights.reshape(-1, *self.places.shape)
            for axis, (k, nodes) in enumerate(zip(kernels, axes, strict=True), 1):
                values = np.moveaxis(np.tensordot(values, k(nodes[:, None]), (axis, 0)), -1, axis)
            return values.reshape(weights.shape)
        if not all(_even(nodes) for nodes in axes):
            return self._tiled(self.places.points, weights)
        shape = self.places.shape
        padded = [fft.next_fast_len(2 * g - 1, real=True) or 2 * g - 1 for g in shape]
        lags = tuple(
            np.where(np.arange(p) < g, np.arange(p), np.arange(p) - p) * _step(nodes)
            for g, p, nodes in zip(shape, padded, axes, strict=True)
        )
        # lags that no two nodes have meet only the zeros of the padding
        base = self.kernel(Grid(lags).points, np.zeros((1, len(axes)))).reshape(padded)
        over = tuple(range(1, 1 + len(axes)))
        spectrum = np.asarray(fft.rfftn(weights.reshape(-1, *shape), padded, axes=over)) * np.asarray(fft.rfftn(base))
        values = np.asarray(fft.irfftn(spectrum, padded, axes=over))
        return values[(slice(None), *map(slice, shape))].reshape(weights.shape)

    def _tiled(self, points: Floats, weights: Floats) -> Floats:
        rows = max(1, _TILE // len(points))
        parts = [weights @ self.kernel(points, points[i : i + rows]) for i in range(0, len(points), rows)]
        return np.concatenate(parts, axis=1)


def _step(nodes: Floats) -> float:
    return float(nodes[-1] - nodes[0]) / max(1, len(nodes) - 1)


def _even(nodes: Floats) -> bool:
    straight = np.linspace(nodes[0], nodes[-1], len(nodes))
    return bool(np.abs(nodes - straight).max() <= 1e-9 * max(abs(_step(nodes)), np.finfo(float).tiny))


@dataclass(frozen=True, eq=False)
class SumLayout:
    """The public parameters of one released pair (h, d): what is known of it before it is made.

    Attributes
    ----------
    kernels : tuple of Kernel
        One value sum (and one density) for each.
    domain : Box
        Domain of the covariates, in data units.
    places : Grid or array (m, d)
        Where the sums are released, in data units.
    scale : float
        Noise scale s > 0.
    response_bound : float
        M > 0: responses are clipped to [centre - M, centre + M], and the density is multiplied by it.
    centre : float
    nugget : float
        tau >= 0, in units of s^2.
    coordinates : {"unit", "data"}
        Whether the kernel sees the domain scaled to the unit cube.
    density : bool
        Whether densities are released.

    Raises
    ------
    ValueError
        For a parameter out of range.
    """

    kernels: tuple[Kernel, ...]
    domain: Box
    places: Places
    scale: float
    response_bound: float = 1.0
    centre: float = 0.0
    nugget: float = 1e-6
    coordinates: str = "unit"
    density: bool = True

    def __post_init__(self) -> None:
        if not self.kernels or not all(isinstance(k, Kernel) for k in self.kernels):
            raise ValueError("A layout needs at least one kernel.")
        if not all(math.isfinite(v) and v > 0 for v in (self.scale, self.response_bound)):
            raise ValueError("scale and response_bound must be positive and finite.")
        if not (math.isfinite(self.centre) and math.isfinite(self.nugget) and self.nugget >= 0):
            raise ValueError("centre and nugget must be finite, the nugget not negative.")
        if self.coordinates not in ("unit", "data"):
            raise ValueError(f"coordinates must be 'unit' or 'data'; got {self.coordinates!r}.")

    @classmethod
    def on_grid(cls, kernel: Kernel, domain: Box, counts: Sequence[int], scale: float, **options: Any) -> Self:
        """The layout of one kernel on the regular grid that spans the box with its edges (`Box.grid`)."""
        return cls((kernel,), domain, Grid.of(domain.grid(tuple(counts)), tuple(counts)), scale, **options)

    @classmethod
    def of(cls, source: Any, column: int = 0, n: int | None = None) -> Self:
        """The layout of a kernel-sum release, or of a mechanism before it runs (on n records, where n is public).

        A density with another column's bound M is rescaled: d M_j / M has bound M_j and noise s_j (`released_sums`).
        """
        mechanism = getattr(source, "mechanism", source)
        n = source.certificate.n if hasattr(source, "mechanism") else n
        counts = mechanism.grid
        return cls(
            kernels=tuple(mechanism.kernels),
            domain=mechanism.domain,
            places=mechanism.locations if counts is None else Grid.of(mechanism.locations, counts),
            scale=mechanism.scales[column],
            response_bound=mechanism.response_bounds[column],
            centre=mechanism.centres[column],
            nugget=mechanism.effective_nugget(n),
            coordinates=mechanism.coordinates,
            density=mechanism.density,
        )

    @property
    def size(self) -> int:
        """Number of places m."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one map: that of the grid, or (m,)."""
        return self.places.shape if isinstance(self.places, Grid) else (len(self.places),)

    def kernel_coordinates(self, X: Floats) -> Floats:
        """Points (n, d) in data units as the kernel sees them."""
        return X if self.coordinates == "data" else self.domain.unit(X)

    @cached_property
    def kernel_places(self) -> Places:
        """The places in the kernel's coordinates."""
        if not isinstance(self.places, Grid):
            return self.kernel_coordinates(self.places)
        return Grid.of(self.kernel_coordinates(self.places.points), self.places.shape)

    def noise(self, kernel: int = 0) -> NoiseField:
        """The law of the noise of one of the kernels."""
        return NoiseField(self.kernels[kernel], self.kernel_places, self.nugget)

    def check(self, other: SumLayout) -> None:
        """Raise ValueError unless the other layout is the same, the scale up to rounding."""
        mine, theirs = self.to_dict(), other.to_dict()
        near = math.isclose(mine.pop("scale"), theirs.pop("scale"), rel_tol=1e-9)
        differ = [name for name in mine if mine[name] != theirs[name]] + ([] if near else ["scale"])
        if differ:
            raise ValueError(f"The release has another layout: {', '.join(differ)} differ; make a decoder for it.")

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON data."""
        if isinstance(self.places, Grid):
            places = {"grid": [axis.tolist() for axis in self.places.axes]}
        else:
            places = {"points": self.places.tolist()}
        return places | {
            "kernels": [{"name": k.name} | _plain(vars(k)) for k in self.kernels],
            "domain": _plain(vars(self.domain)),
            "scale": self.scale,
            "response_bound": self.response_bound,
            "centre": self.centre,
            "nugget": self.nugget,
            "coordinates": self.coordinates,
            "density": self.density,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The layout that `to_dict` wrote; KeyError or TypeError for anything else."""
        data = dict(data)
        kernels = tuple(_kernel(**_hashable(item)) for item in data.pop("kernels"))
        domain = Box(**_hashable(data.pop("domain")))
        if "grid" in data:
            return cls(kernels, domain, Grid(tuple(np.array(axis, np.float64) for axis in data.pop("grid"))), **data)
        return cls(kernels, domain, np.array(data.pop("points"), np.float64), **data)


def _kernel(name: str, **options: Any) -> Kernel:
    return make_kernel(name, **options)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _hashable(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


@dataclass(frozen=True, eq=False)
class ReleasedSums:
    """One released pair: a value sum h, its density d, and the public law of their noise.

    Attributes
    ----------
    values : array (m,)
        h = sum_i (y_i - centre) k(x_i, .) + scale g_1.
    density : array (m,) or None
        d = response_bound sum_i k(x_i, .) + scale g_2; needed for local means and thresholds other than the centre.
    scale : float
        s > 0.
    response_bound : float
        M > 0.
    centre : float
        c.
    noise : NoiseField
        Law of g_1 and of g_2.
    shape : tuple of int, optional
        Shape in which maps are returned; (m,) by default.

    Raises
    ------
    ValueError
        If shapes disagree or a number is not finite.
    """

    values: Floats
    density: Floats | None
    scale: float
    response_bound: float
    centre: float
    noise: NoiseField
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("values", "density"):
            given = getattr(self, name)
            if given is None and name == "density":
                continue
            array = np.asarray(given, dtype=np.float64).ravel()
            if array.size != self.noise.size or not np.isfinite(array).all():
                raise ValueError(
                    f"{name} must hold {self.noise.size} finite numbers, one a place; it has {array.size}."
                )
            object.__setattr__(self, name, array)
        if not all(math.isfinite(v) and v > 0 for v in (self.scale, self.response_bound)):
            raise ValueError("scale and response_bound must be positive and finite.")
        if not math.isfinite(self.centre):
            raise ValueError("centre must be finite.")
        shape = self.shape or (self.noise.size,)
        if math.prod(shape) != self.noise.size:
            raise ValueError(f"shape must have {self.noise.size} places; {shape} does not.")
        object.__setattr__(self, "shape", shape)

    @property
    def records(self) -> Floats:
        """d / M: the noisy number of records near each place, kernel-weighted, shape (m,)."""
        return _density(self) / self.response_bound

    def ratio(self, threshold: float) -> float:
        """a = (c - t) / M: the weight of the density in the field of threshold t; ValueError unless it is finite."""
        if not math.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
        return (self.centre - threshold) / self.response_bound


def _density(sums: ReleasedSums) -> Floats:
    if sums.density is None:
        raise ValueError("This needs a released density; without one only the centre's own threshold can be asked for.")
    return sums.density


def released_sums(release: Any, column: int = 0, kernel: int = 0) -> ReleasedSums:
    """One pair of a `KernelSumRelease`: that of a response column and a kernel. A `ReleasedSums` is returned as it is.

    With several columns the density is multiplied by the bound M of the first; for column j it is rescaled to
    d M_j / M, which has bound M_j and the noise s_j = s M_j / M of that column's value sum.

    ``release`` is one of the two; ``column`` and ``kernel`` count from 0, and a ValueError says how many there are.
    """
    if isinstance(release, ReleasedSums):
        return release
    columns, kernels, _ = release.value_sums.shape
    if not (0 <= column < columns and 0 <= kernel < kernels):
        raise ValueError(f"The release has {columns} column(s) and {kernels} kernel(s), counted from 0.")
    layout = SumLayout.of(release, column)
    density = None
    if release.density is not None:
        density = release.density[kernel] * (layout.response_bound / release.mechanism.density_bound)
    values, noise = release.value_sums[column, kernel], layout.noise(kernel)
    return ReleasedSums(values, density, layout.scale, layout.response_bound, layout.centre, noise, layout.shape)


# --- local means ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LocalMean:
    """Local means of the clipped response where there are records enough for them to mean something.

    Attributes
    ----------
    values : array
        c + M h / d, clipped to [c - M, c + M]; NaN outside of the support.
    support : boolean array
        {d / M >= floor + 2 s / M}.
    """

    values: Floats
    support: Mask


def local_mean(release: Any, floor: float, *, column: int = 0, kernel: int = 0) -> LocalMean:
    """The local mean map c + M h / d: the Nadaraya-Watson estimate of the mean (clipped) response.

    Where d / M >= floor + 2 s / M the non-private number of records near the place is at least ``floor`` unless the
    noise there exceeds two standard deviations.

    Parameters
    ----------
    release : KernelSumRelease or ReleasedSums
    floor : float
        Least number of records (kernel-weighted) near a place, public, at least 0.
    column, kernel : int
        Which response and which kernel of the release.

    Raises
    ------
    ValueError
        If no density was released, or the floor is negative.
    """
    sums = released_sums(release, column, kernel)
    if not (math.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor is a number of records, at least 0; got {floor!r}.")
    support = sums.records >= floor + 2.0 * sums.scale / sums.response_bound
    share = np.divide(sums.values, sums.records, out=np.full(sums.values.shape, np.nan), where=support)
    bound = sums.response_bound
    values = sums.centre + np.clip(share, -bound, bound)
    return LocalMean(values.reshape(sums.shape), support.reshape(sums.shape))


def threshold_field(release: Any, threshold: float, *, column: int = 0, kernel: int = 0) -> tuple[Floats, float]:
    """The field h + (c - t) d / M = sum_i (y_i - t) k(x_i, .) + noise, and its noise scale s sqrt(1 + ((c - t) / M)^2).

    Positive where the local mean is above the threshold t. The noise is that scale times a field N(0, K + tau I), so
    any number of thresholds can be asked of one release. Without a density only t = c can be; another is a ValueError.
    ``column`` and ``kernel`` as in `released_sums`.
    """
    sums = released_sums(release, column, kernel)
    a = sums.ratio(threshold)
    field = sums.values if a == 0.0 else sums.values + a * _density(sums)
    return field.reshape(sums.shape).copy(), sums.scale * math.hypot(1.0, a)


# --- simulated suprema ------------------------------------------------------------------------------------------------


def simulated_suprema(
    noise: NoiseField,
    simulations: int,
    randomness: Normals | None = None,
    *,
    ratios: Sequence[float] | None = (0.0,),
    region: Mask | None = None,
) -> Floats:
    """Independent draws of the largest standardised noise over the places, shape (simulations,).

        max over places and a in ratios of |g_1 + a g_2| / sqrt(1 + a^2),

    g_1, g_2 independent fields with the nugget. With ``ratios=None``, over all real a: max sqrt(g_1^2 + g_2^2).
    ``region`` restricts the places; it must be public and chosen before the release is seen. ``randomness`` as in
    `excursion_sets`. ValueError for a region of another shape or without a place, or no simulation.
    """
    source = _normals(randomness)
    use = np.ones(noise.size, dtype=bool) if region is None else np.asarray(region).ravel()
    if use.dtype != bool or use.size != noise.size or not use.any():
        raise ValueError(f"region must be a boolean array of {noise.size} places, not all False.")
    if simulations < 1:
        raise ValueError(f"simulations must be at least 1; got {simulations!r}.")
    single = ratios is not None and len(ratios) == 1
    found = np.empty(simulations)
    for start, stop in _blocks(simulations, max(1, _BLOCK // noise.size)):
        first = noise.draw(stop - start, source)[:, use]
        if single:  # (g_1 + a g_2) / sqrt(1 + a^2) has the law of g_1
            found[start:stop] = np.abs(first).max(axis=1)
            continue
        second = noise.draw(stop - start, source)[:, use]
        if ratios is None:
            found[start:stop] = np.hypot(first, second).max(axis=1)
            continue
        sup = [np.abs(first + float(a) * second).max(axis=1) / math.hypot(1.0, float(a)) for a in ratios]
        found[start:stop] = np.max(sup, axis=0)
    return found


def _blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)


def supremum_quantile(suprema: Floats, level: float) -> float:
    """The ceil(level (B + 1))-th smallest of B simulated suprema.

    A further draw of the same law is at most this with probability ceil(level (B + 1)) / (B + 1) >= level, whatever B
    (exchangeability; ``docs/proofs/confidence-sets.md``, Lemma 1).

    Raises
    ------
    ValueError
        If B is too small for the level: it takes B >= level / (1 - level).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    rank = math.ceil(level * (len(suprema) + 1) * (1.0 - 1e-15))
    if rank > len(suprema):
        least = math.ceil(level / (1.0 - level))
        raise ValueError(f"{len(suprema)} simulations are too few for level {level}: use {least} or more.")
    return float(np.partition(suprema, rank - 1)[rank - 1])


# --- excursion sets ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExcursionSets:
    """Two sets with the non-private one between them: inner within it, outer around it, with the stated confidence.

    Attributes
    ----------
    inner, outer : boolean arrays
        In the shape of the map.
    kind : str
        One of ">", "<", "=", "!="; see `excursion_sets`.
    threshold : float
    level : float
        Confidence that both statements hold, at all places together (or at each place, if not ``simultaneous``).
    quantile : float
        q, in units of ``scale``.
    scale : float
        Noise scale of the field: s sqrt(1 + ((c - t) / M)^2).
    simultaneous : bool
    """

    inner: Mask
    outer: Mask
    kind: Kind
    threshold: float
    level: float
    quantile: float
    scale: float
    simultaneous: bool

    @property
    def undecided(self) -> Mask:
        """Places in the outer and not in the inner set."""
        return self.outer & ~self.inner


def excursion_sets(
    release: Any,
    threshold: float | Sequence[float],
    kind: Kind = ">",
    level: float = 0.95,
    *,
    simultaneous: bool = True,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Any:
    """Inner and outer sets of the non-private smoothed map F_t = sum_i (y_i - t) k(x_i, .), with known confidence.

    With H the released field of `threshold_field`, sigma its noise scale and q the quantile of the largest standardised
    noise, the kinds are those of R's ``excursions``:

    * ``">"``  positive excursions {F_t >= 0}: inner {H >= q sigma}, outer {H >= -q sigma};
    * ``"<"``  negative excursions {F_t <= 0}: inner {H <= -q sigma}, outer {H <= q sigma};
    * ``"!="`` contour avoiding set, where F_t has a certain sign: inner {|H| >= q sigma}; nothing can be left out of
      {F_t != 0}, so outer is everything;
    * ``"="``  contour credible set: outer {|H| < q sigma}, outside of which F_t is not 0; no place is certainly on the
      contour, so inner is empty.

    Where there are records nearby, F_t >= 0 says that the local mean of the clipped response is at least t. All four
    statements hold together when the standardised noise stays within q everywhere: with probability at least ``level``
    at all places at once (``simultaneous``), or at each place on its own (q the normal quantile, no simulation).
    Given several thresholds, one q covers all of them together, and a tuple of `ExcursionSets` is returned.
    Proof: ``docs/proofs/confidence-sets.md``, Theorem 1.

    Parameters
    ----------
    release : KernelSumRelease or ReleasedSums
    threshold : float or sequence of float
        In units of the response.
    kind : {">", "<", "=", "!="}
    level : float
    simultaneous : bool
    simulations : int
        Number B of simulated fields. The level is exact for every B; more of them make q vary less.
    randomness : Randomness or numpy Generator, optional
        Fresh numbers for the simulation; by default seeded by the system.
    region : boolean array, optional
        Public part of the map, chosen before the release is seen, to which the statements are confined. Outside, inner
        is False and outer is True.
    column, kernel : int
        Which response and which kernel of the release.

    Raises
    ------
    ValueError
        For an unknown kind, a level out of range, too few simulations, or a threshold other than the centre when no
        density was released.
    """
    sums = released_sums(release, column, kernel)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    several = np.ndim(threshold) > 0
    thresholds = [float(t) for t in np.atleast_1d(np.asarray(threshold, dtype=np.float64))]
    if not thresholds:
        raise ValueError("Give at least one threshold.")
    if simultaneous:
        ratios = [sums.ratio(t) for t in thresholds]
        suprema = simulated_suprema(sums.noise, simulations, randomness, ratios=ratios, region=region)
        q = supremum_quantile(suprema, level)
    else:
        q = _pointwise(sums.noise, level)
    sets = []
    for t in thresholds:
        field, sigma = threshold_field(sums, t)
        inner, outer = _between(field / sigma, kind, q)
        if region is not None:
            inside = np.asarray(region).reshape(sums.shape)
            inner, outer = inner & inside, outer | ~inside
        sets.append(ExcursionSets(inner, outer, kind, t, float(level), q, sigma, simultaneous))
    return tuple(sets) if several else sets[0]


def _pointwise(noise: NoiseField, level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    return noise.sd * float(ndtri(0.5 * (1.0 + level)))


def _between(standard: Floats, kind: Kind, q: float) -> tuple[Mask, Mask]:
    if kind == ">":
        return standard >= q, standard >= -q
    if kind == "<":
        return standard <= -q, standard <= q
    sure = np.abs(standard) >= q
    if kind == "!=":
        return sure, np.ones_like(sure)
    return np.zeros_like(sure), ~sure


def excursion_function(
    release: Any,
    threshold: float,
    kind: Kind = ">",
    *,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Floats:
    """The largest simultaneous level at which each place lies in the inner set (for "=", outside of the outer set).

    The excursion function of Bolin and Lindgren 2015: {excursion_function >= level} is the inner set at that level, for
    every level at once from the same simulations. With B suprema S_b it is #{S_b <= x} / (B + 1), x the standardised
    field in the direction of the kind. Values lie in [0, B / (B + 1)], 0 outside of the region.

    Parameters as in `excursion_sets`, with one threshold.

    Raises
    ------
    ValueError
        As there.
    """
    sums = released_sums(release, column, kernel)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    field, sigma = threshold_field(sums, threshold)
    standard = field / sigma
    standard = {">": standard, "<": -standard}.get(kind, np.abs(standard))
    suprema = np.sort(simulated_suprema(sums.noise, simulations, randomness, region=region))
    levels = np.searchsorted(suprema, standard, side="right") / (simulations + 1)
    return levels if region is None else np.where(np.asarray(region).reshape(sums.shape), levels, 0.0)


# --- bands of the local mean ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bands:
    """Lower and upper bounds of the non-private local mean (clipped response), with the stated confidence.

    Where the density is too small for the noise the band is the whole range [c - M, c + M].

    Attributes
    ----------
    lower, upper : arrays of the map's shape
        In the unit of the response.
    level : float
    quantile : float
        q: the width of the noise that was allowed for, in its standard deviations.
    simultaneous : bool
        Whether the level is that of all places together.
    """

    lower: Floats
    upper: Floats
    level: float
    quantile: float
    simultaneous: bool


def mean_bands(
    release: Any,
    level: float = 0.95,
    *,
    simultaneous: bool = True,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Bands:
    """Confidence bands for the non-private local mean, from the sets of all thresholds at once (Fieller 1954).

    A place's band is {t : |h + (c - t) d / M| <= q s sqrt(1 + ((c - t) / M)^2)}, an interval where |d| > q s; q is the
    quantile of the largest sqrt(g_1^2 + g_2^2), so that the bands hold at all places together, or pointwise the normal
    quantile. With simultaneous bands, {lower >= t} and {upper >= t} are inner and outer sets for *every* threshold t
    together. Proof: ``docs/proofs/confidence-sets.md``, Theorem 2.

    Parameters as in `excursion_sets`. Outside of the region the band is the whole range.

    Raises
    ------
    ValueError
        For a level out of range, too few simulations, or no released density.
    """
    sums = released_sums(release, column, kernel)
    density = _density(sums)
    if simultaneous:
        suprema = simulated_suprema(sums.noise, simulations, randomness, ratios=None, region=region)
        q = supremum_quantile(suprema, level)
    else:
        q = _pointwise(sums.noise, level)
    lower, upper = _fieller(sums.values, density, q * sums.scale)
    M, c = sums.response_bound, sums.centre
    if region is not None:
        outside = ~np.asarray(region).ravel()
        lower[outside], upper[outside] = -1.0, 1.0
    lower, upper = (c + M * part.reshape(sums.shape) for part in (lower, upper))
    return Bands(lower, upper, float(level), q, simultaneous)


def _fieller(h: Floats, d: Floats, r: float | Floats) -> tuple[Floats, Floats]:
    """Ends of {u in [-1, 1] : |h - u d| <= r sqrt(1 + u^2)}, the range of u = (t - c) / M; [-1, 1] unless d > r.

    The roots of (d^2 - r^2) u^2 - 2 h d u + h^2 - r^2 are (h d -+ r sqrt(h^2 + d^2 - r^2)) / (d^2 - r^2).
    """
    lower, upper = np.full(h.shape, -1.0), np.full(h.shape, 1.0)
    r = np.broadcast_to(np.asarray(r, dtype=np.float64), h.shape)
    ok = d > r
    h, d, r = h[ok], d[ok], r[ok]
    half = r * np.sqrt(h * h + (d - r) * (d + r))
    lead = (d - r) * (d + r)
    lower[ok] = np.clip((h * d - half) / lead, -1.0, 1.0)
    upper[ok] = np.clip((h * d + half) / lead, -1.0, 1.0)
    return lower, upper


# --- regions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RegionSums:
    """Weighted sums of the threshold field over regions, with the exact covariance of their noise.

    Attributes
    ----------
    values : array (regions,)
    covariance : array (regions, regions)
        s^2 (1 + ((c - t) / M)^2) W (K + tau I) W^T.
    """

    values: Floats
    covariance: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviation of the noise in each sum, shape (regions,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of the interval that covers each non-private sum with this confidence, in (0, 1) or a ValueError."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
        half = float(ndtri(0.5 * (1.0 + level))) * self.sd
        return self.values - half, self.values + half


def region_sum(
    release: Any, regions: ArrayLike, threshold: float | None = None, *, column: int = 0, kernel: int = 0
) -> RegionSums:
    """Sums of the released field over public regions, and the law of their noise.

    Parameters
    ----------
    release : KernelSumRelease or ReleasedSums
    regions : boolean or float array
        Masks or weights over the places, shape (regions, *map) or that of one map.
    threshold : float, optional
        The field is sum_i (y_i - t) k(x_i, .); the centre by default, that is the value sum h itself.
    column, kernel : int
        Which response and which kernel of the release.

    Raises
    ------
    ValueError
        For regions of another shape or not finite, or a threshold other than the centre when no density was released.

    Notes
    -----
    The noise is s sqrt(1 + ((c - t) / M)^2) w^T g with variance w^T (K + tau I) w known exactly from public numbers.
    """
    sums = released_sums(release, column, kernel)
    W = _weights(regions, sums)
    field, sigma = threshold_field(sums, sums.centre if threshold is None else threshold)
    return RegionSums(W @ field.ravel(), sigma**2 * sums.noise.covariance(W))


@dataclass(frozen=True, eq=False)
class RegionMeans:
    """Means of the clipped response over regions, with intervals for what they are without noise.

    Attributes
    ----------
    values, lower, upper : arrays (regions,)
        NaN for a value whose density sum is not positive; the interval is then the whole range.
    level : float
        Confidence of each interval on its own.
    """

    values: Floats
    lower: Floats
    upper: Floats
    level: float


def region_mean(
    release: Any, regions: ArrayLike, level: float = 0.95, *, column: int = 0, kernel: int = 0
) -> RegionMeans:
    """The kernel-weighted mean response of each region, c + M (w^T h) / (w^T d), with its exact interval (Fieller).

    w^T h and w^T d carry independent noise of the same known variance s^2 w^T (K + tau I) w, so that each threshold t
    is rejected at an exact level and the thresholds not rejected form the interval (``docs/proofs/confidence-sets.md``,
    Theorem 2). Weights must not be negative. ``release``, ``regions``, ``column`` and ``kernel`` as in `region_sum`.

    Raises
    ------
    ValueError
        For a negative weight, a level out of range, or no released density.
    """
    sums = released_sums(release, column, kernel)
    W = _weights(regions, sums)
    if (W < 0).any():
        raise ValueError("The weights of a mean must not be negative.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    h, d = W @ sums.values, W @ _density(sums)
    sd = sums.scale * np.sqrt(np.diagonal(sums.noise.covariance(W)))
    lower, upper = _fieller(h, d, float(ndtri(0.5 * (1.0 + level))) * sd)
    share = np.divide(h, d, out=np.full(h.shape, np.nan), where=d > 0)
    c, M = sums.centre, sums.response_bound
    return RegionMeans(c + M * np.clip(share, -1.0, 1.0), c + M * lower, c + M * upper, float(level))


def _weights(regions: ArrayLike, sums: ReleasedSums) -> Floats:
    W = np.asarray(regions, dtype=np.float64)
    if W.shape == sums.shape:
        W = W[None]
    if W.shape[1:] not in (sums.shape, (sums.noise.size,)) or not np.isfinite(W).all():
        raise ValueError(f"regions must be finite and of shape (regions, *{sums.shape}); got {W.shape}.")
    return W.reshape(len(W), -1)


# --- where the largest value is ---------------------------------------------------------------------------------------


def argmax_set(
    release: Any,
    threshold: float | None = None,
    level: float = 0.95,
    *,
    of: Literal["sum", "mean"] = "sum",
    floor: float = 0.0,
    simulations: int = 999,
    randomness: Normals | None = None,
    region: Mask | None = None,
    column: int = 0,
    kernel: int = 0,
) -> Mask:
    """Places among which the maximum of the non-private map lies, with the stated confidence.

    ``of="sum"``: the maximum of F_t (t the centre by default). With R = max g - min g and r its simulated quantile, the
    set is {H >= max H - r sigma}.
    ``of="mean"``: the maximum of the local mean over the places of the support (`local_mean` with this floor); the set
    is that of the places whose simultaneous band reaches the largest lower end.
    Proof: ``docs/proofs/confidence-sets.md``, Theorem 3. Other parameters as in `excursion_sets`.

    Raises
    ------
    ValueError
        For a level out of range, too few simulations, or an empty support.
    """
    sums = released_sums(release, column, kernel)
    use = np.ones(sums.shape, dtype=bool) if region is None else np.asarray(region).reshape(sums.shape)
    if of == "mean":
        bands = mean_bands(sums, level, simulations=simulations, randomness=randomness, region=region)
        use = use & local_mean(sums, floor).support
        if not use.any():
            raise ValueError("No place has the density asked for: lower the floor, or use a wider kernel.")
        return use & (bands.upper >= bands.lower[use].max())
    if of != "sum":
        raise ValueError(f"of must be 'sum' or 'mean'; got {of!r}.")
    field, sigma = threshold_field(sums, sums.centre if threshold is None else threshold)
    source, ranges = _normals(randomness), np.empty(simulations)
    for start, stop in _blocks(simulations, max(1, _BLOCK // sums.noise.size)):
        ranges[start:stop] = np.ptp(sums.noise.draw(stop - start, source)[:, use.ravel()], axis=1)
    return use & (field >= field[use].max() - supremum_quantile(ranges, level) * sigma)
