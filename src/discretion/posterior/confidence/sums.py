"""A released pair as it is read: a value sum and its density, the local mean and the field of a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.layout import Floats, NoiseField, SumLayout

Mask = NDArray[np.bool_]


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
        return density_of(self) / self.response_bound

    def ratio(self, threshold: float) -> float:
        """a = (c - t) / M: the weight of the density in the field of threshold t; ValueError unless it is finite."""
        if not math.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
        return (self.centre - threshold) / self.response_bound


def density_of(sums: ReleasedSums) -> Floats:
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
    field = sums.values if a == 0.0 else sums.values + a * density_of(sums)
    return field.reshape(sums.shape).copy(), sums.scale * math.hypot(1.0, a)


# --- simulated suprema ------------------------------------------------------------------------------------------------
