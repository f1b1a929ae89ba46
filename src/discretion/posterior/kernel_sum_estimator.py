"""The estimator users meet: fit, and kernel sums leave; nothing private stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import RegularGridInterpolator
from scipy.spatial import KDTree

from discretion.gp import RBF, Box, Kernel
from discretion.gp.fields import Grid
from discretion.posterior.estimator import PrivateEstimator
from discretion.posterior.kernel_sum import KernelSumMechanism, KernelSumRelease
from discretion.posterior.records import Floats
from discretion.posterior.units import OWNER, owned_records, unit_in_words
from discretion.privacy import Ledger, Neighbours, PrivacyLoss, Randomness
from discretion.privacy.frames import cleared
from discretion.privacy.records import regression_table

__all__ = ["KernelSum"]


class KernelSum(PrivateEstimator):
    """Release kernel sums of responses and of records under differential privacy: the default road for maps.

    Covariates *and* responses are private. All parameters are public and must not be chosen by looking at the records
    given to ``fit``. What is released is not a draw from the posterior of the records; see `PosteriorSampler`.

    Parameters
    ----------
    domain : Box or (low, high)
        Public domain of the covariates. A pair of numbers is a cube with those ends, of whatever dimension X has.
        Records outside are clamped to it.
    response_range : (low, high), or one such pair for each response column
        Public range of the response; responses are clipped to it.
    kernel : Kernel or tuple of Kernel, optional
        Unit-diagonal kernels; ``RBF(0.1)`` by default.
    scale : float, optional
        Noise of the sums, in units of the response. Give either ``scale``, or ``epsilon`` to have the smallest scale
        that costs at most that.
    epsilon, delta : float, optional
        Target of the whole release. Where n is public ``delta`` is ``n ** -1.1`` by default.
    locations : array (m, d), optional
        Public points at which the sums are released.
    grid : int or tuple of int, optional
        Instead of ``locations``: a regular grid over the domain, this many points along each axis. Without either, a
        grid of at most 1,024 points is used.
    coordinates, centres, density, neighbours, contributions, most_records, nugget, unit
        As in `KernelSumMechanism`.
    ledger : Ledger or path, optional
        Where the loss is reserved before a record is read and booked after. Without one nothing is remembered.
    randomness : Randomness, optional
        For tests only; by default the operating system's. A seeded release says TEST ONLY and can't be booked.

    Attributes
    ----------
    release_ : KernelSumRelease
        The released sums and their certificate.
    mechanism_ : KernelSumMechanism
        The public parameters that were run.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    The fitted object, its pickle and its repr hold public values only.
    Source: R. Hall, A. Rinaldo, L. Wasserman, *Differential privacy for functions and functional data*, JMLR 14
    (2013); `docs/proofs/kernel-sum.md`.

    Examples
    --------
    >>> import numpy as np
    >>> from discretion import Box
    >>> from discretion.posterior import KernelSum
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(500, 2)), rng.uniform(-1, 1, size=500)
    >>> model = KernelSum(Box((0, 0), (1, 1)), (-1, 1), epsilon=1.0, grid=(30, 20)).fit(X, y)
    >>> model.release_.value_sums.shape, model.release_.density.shape
    ((1, 1, 600), (1, 600))
    """

    def __init__(
        self,
        domain: Box | tuple[float, float] = (0.0, 1.0),
        response_range: tuple[float, float] | Sequence[tuple[float, float]] = (-1.0, 1.0),
        *,
        kernel: Kernel | tuple[Kernel, ...] | None = None,
        scale: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        locations: ArrayLike | None = None,
        grid: int | tuple[int, ...] | None = None,
        coordinates: str = "unit",
        centres: tuple[float, ...] | float | None = None,
        density: bool = True,
        neighbours: Neighbours | str = "replace",
        contributions: int = 1,
        most_records: int = 10_000_000,
        nugget: float | None = None,
        unit: str = "one record (its covariates and its responses)",
        ledger: Ledger | str | Path | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.domain = domain
        self.response_range = response_range
        self.kernel = kernel
        self.scale = scale
        self.epsilon = epsilon
        self.delta = delta
        self.locations = locations
        self.grid = grid
        self.coordinates = coordinates
        self.centres = centres
        self.density = density
        self.neighbours = neighbours
        self.contributions = contributions
        self.most_records = most_records
        self.nugget = nugget
        self.unit = unit
        self.ledger = ledger
        self.randomness = randomness

    def mechanism(self, n: int | None = None, dimension: int | None = None) -> KernelSumMechanism:
        """The mechanism these parameters describe; reads no record.

        Parameters
        ----------
        n : int, optional
            Number of records, where it is public.
        dimension : int, optional
            Dimension of the covariates; needed only if ``domain`` is a pair of numbers.

        Raises
        ------
        ValueError
            If a parameter is out of range, or missing.
        """
        if (self.scale is None) == (self.epsilon is None):
            raise ValueError("Give either scale, or epsilon to have the scale that just meets it; not both.")
        public = Neighbours(self.neighbours) is Neighbours.REPLACE and self.contributions == 1
        if self.delta is None and not (public and n is not None and n > 1):
            raise ValueError("delta = n ** -1.1 needs a public number of records, 2 or more; give a delta.")
        domain = self._domain(dimension)
        locations, grid = self._places(domain)
        parameters: dict[str, Any] = {
            "kernels": RBF(0.1) if self.kernel is None else self.kernel,
            "domain": domain,
            "response_ranges": self.response_range,
            "delta": float(n or 0) ** -1.1 if self.delta is None else self.delta,
            "locations": locations,
            "grid": grid,
            "centres": self.centres,
            "density": self.density,
            "neighbours": self.neighbours,
            "contributions": self.contributions,
            "most_records": self.most_records,
            "coordinates": self.coordinates,
            "nugget": self.nugget,
            "unit": self.unit,
        }
        if self.scale is not None:
            return KernelSumMechanism(scale=self.scale, **parameters)
        assert self.epsilon is not None
        return KernelSumMechanism.calibrated(epsilon=self.epsilon, n=n, **parameters)

    def privacy_loss(self, n: int | None = None, dimension: int | None = None) -> PrivacyLoss:
        """What fitting n records will cost, before any record is seen."""
        return self.mechanism(n, dimension).privacy_loss(n)

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike, units: ArrayLike | None = None) -> Self:
        """Charge the ledger, release the sums and forget the records.

        Parameters
        ----------
        X : array (n, d)
            Private covariates, in data units.
        y : array (n,), or (n, columns) for several response ranges
            Private responses.
        units : array (n,), optional
            Whose record it is, as text or whole numbers. Of each unit's records ``contributions`` are kept, picked at
            random without looking at them; the guarantee is for all that one unit has.

        Raises
        ------
        ValueError
            On bad shapes or values (named by row, never by value), before anything is charged.
        BudgetExceeded
            If the ledger's budget can't pay; nothing was read.
        """
        X, y = regression_table(self, X, y, multi_output=np.ndim(self.response_range) == 2)
        records = owned_records(X, y, units, self.contributions, self.randomness)
        count = len(records.covariates)
        mechanism = self.mechanism(count, X.shape[1])
        if units is not None:
            unit = OWNER if self.unit == KernelSumMechanism.unit else self.unit
            mechanism = replace(mechanism, unit=unit_in_words(unit, self.contributions))
        release = self._charged(mechanism, records, count if mechanism.n_is_public else self.most_records)
        assert isinstance(release, KernelSumRelease)
        self.release_ = release
        self.mechanism_ = mechanism
        return self

    @property
    def partial_fit(self) -> NoReturn:
        """Not there: each call would publish a release and pay for it."""
        raise AttributeError(
            "KernelSum has no partial_fit: every call would have to release, and pay for, sums of part of the records. "
            "Add partial sums instead, which costs nothing, and release once: mechanism.partial(chunk), "
            "mechanism.release(total, n, randomness), or give the ledger an iterable of chunks."
        )

    def predict(self, X: ArrayLike) -> Floats:
        """Local mean ``c + M h / max(d, 2 s)`` of the first kernel, between released locations by interpolation.

        Shape (len(X),), or (len(X), columns). Post-processing: free. Without the density it is ``c + h``, no mean.
        On a grid multilinear, beyond it the nearest point of its border; otherwise the nearest location.
        """
        points, mechanism = self._points(X), self.mechanism_
        values = self.release_.value_sums[:, 0]
        if self.release_.density is not None:
            floor = np.maximum(self.release_.density[0], 2.0 * mechanism.scale)
            values = mechanism.density_bound * values / floor
        values = (values + np.asarray(mechanism.centres)[:, None]).T
        if mechanism.grid is not None and min(mechanism.grid) > 1:
            axes = Grid.of(self.release_.locations, mechanism.grid).axes
            inside = np.clip(points, [axis[0] for axis in axes], [axis[-1] for axis in axes])
            found = RegularGridInterpolator(axes, values.reshape(*mechanism.grid, -1))(inside)
        else:
            found = values[KDTree(self.release_.locations).query(points)[1]]
        return found if np.ndim(self.response_range) == 2 else found[:, 0]
