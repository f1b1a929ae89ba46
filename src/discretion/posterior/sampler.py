"""The estimator users meet: fit, and posterior sample paths leave; nothing private stays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from discretion.gp import Ball, Box, Engine, Kernel, Lattice, Matern32
from discretion.posterior.assumptions import Assumption
from discretion.posterior.estimator import PrivateEstimator
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.lattice_release import LatticeRelease
from discretion.posterior.mechanism import Custodian, PathRelease, PosteriorMechanism
from discretion.posterior.units import OWNER, owned_records, unit_in_words
from discretion.privacy import Ledger, Mechanism, Neighbours, PrivacyLoss, Randomness
from discretion.privacy.frames import cleared
from discretion.privacy.records import regression_table

__all__ = ["PosteriorSampler"]

_OF_KERNELS = (
    "domain",
    "kernel",
    "locations",
    "grid",
    "coordinates",
    "jitter",
    "nugget",
    "prior_noise",
    "assumption",
    "engine",
)


@dataclass(eq=False)
class _KeepingCustodian:
    """The mechanism, with its custodian kept: what the ledger runs when the user asked for one."""

    mechanism: PosteriorMechanism
    custodian: Custodian | None = None

    @property
    def name(self) -> str:
        return self.mechanism.name

    @property
    def neighbours(self) -> Any:
        return self.mechanism.neighbours

    @property
    def unit(self) -> str | None:
        return self.mechanism.unit

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        return self.mechanism.privacy_loss(n)

    def parameters(self) -> dict[str, Any]:
        return self.mechanism.parameters()

    def check(self, records: Any) -> int | None:
        return self.mechanism.check(records)

    def run(self, records: Any, randomness: Randomness) -> PathRelease:
        release, self.custodian = self.mechanism.run_for_custodian(records, randomness)
        return release


class PosteriorSampler(PrivateEstimator):
    """Release Gaussian-process posterior sample paths under differential privacy.

    The prior is a kernel on a box, or with ``prior=`` a Gaussian Markov random field on a public lattice or a map of
    districts. Covariates *and* responses are private. Neighbours differ in one whole record, replaced by another (n is
    public) or, with ``neighbours="add-remove"``, left out (n is private). All parameters are public and must not be
    chosen by looking at the records given to ``fit``. No noise is added beyond the posterior's own, except a public
    nugget of a millionth of the prior variance (a lattice needs none: ``docs/proofs/lattice-floor.md``).

    Parameters
    ----------
    domain : Box, Ball or (low, high)
        Public domain of the covariates. A pair of numbers is a cube with those ends, of whatever dimension X has.
        Records outside are clamped to it.
    response_range : (low, high)
        Public range of the response; responses are clipped to it.
    kernel : Kernel, optional
        Unit-diagonal kernel; ``Matern32(0.1)`` by default.
    prior : Lattice, optional
        Public graph and prior, instead of domain, kernel and locations: `Lattice.hexagon`, `Lattice.square`,
        `Lattice.car`, `Lattice.of_precision`, or districts from a file (`discretion.spatial.districts`). A path is
        released at every node.
    ridge : float
        Square root of the ridge: the observation noise variance is ``ridge^2 scale^2``. Large ridges are cheap.
    scale : float, optional
        Posterior scale. Give either ``scale``, or ``epsilon`` to have the smallest scale that costs at most that.
    epsilon, delta : float, optional
        Target of the whole release. Where n is public ``delta`` is ``n ** -1.1`` by default.
    paths : int
        Number of independent paths.
    locations : array (m, d), optional
        Public points at which the paths are released.
    grid : int or tuple of int, optional
        Instead of ``locations``: a regular grid over the domain's box, this many points along each axis. Without
        either, a grid of at most 1,024 points is used.
    coordinates : {"unit", "data"}
        Whether length scales are fractions of the domain's sides or in data units.
    centre, jitter, nugget, prior_noise, assumption, neighbours, most_records, contributions, unit
        As in `PosteriorMechanism` and `LatticeMechanism`.
    engine : Engine, optional
        What computes the paths of a kernel, as in `PosteriorMechanism`: ``discretion.gp.cluster.Dask()`` for a dask
        cluster.
    rule : str, optional
        What prices the paths, as there: by default "closed-form" for kernels and "renyi" for a lattice.
    ledger : Ledger or path, optional
        Where the loss is reserved before a record is read and booked after. Without one nothing is remembered.
    randomness : Randomness, optional
        For tests only; by default the operating system's. A seeded release says TEST ONLY and can't be booked.

    Attributes
    ----------
    release_ : PathRelease or LatticeRelease
        The released values and their certificate.
    mechanism_ : PosteriorMechanism or LatticeMechanism
        The public parameters that were run.
    n_features_in_, feature_names_in_ : int, array of str
        Number of covariates, and their names, if X had any that are not numbers.

    Notes
    -----
    The fitted object, its pickle and its repr hold public values only: no records, no Gram matrix, no posterior mean.
    Source: T. Maciazek, *Differential Privacy of Gaussian Process Posterior Sampling* (2026).

    Examples
    --------
    >>> import numpy as np
    >>> from discretion import Box, PosteriorSampler
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(200, 2)), rng.uniform(-1, 1, size=200)
    >>> sampler = PosteriorSampler(Box((0, 0), (1, 1)), (-1, 1), ridge=20.0, epsilon=3.0, grid=12)
    >>> sampler.privacy_loss(200).epsilon(1e-3) <= 3.1
    True
    >>> sampler.fit(X, y).release_.values.shape
    (1, 144)

    On 27 public hexagons:

    >>> from discretion.gp import Lattice
    >>> lattice = Lattice.hexagon(0.25, Box((0, 0), (1, 1)), killing=0.3)
    >>> sampler = PosteriorSampler(prior=lattice, ridge=6.0, epsilon=3.0, rule="closed-form").fit(X, y)
    >>> sampler.release_.values.shape == (1, lattice.size)
    True
    """

    def __init__(
        self,
        domain: Box | Ball | tuple[float, float] = (0.0, 1.0),
        response_range: tuple[float, float] = (-1.0, 1.0),
        *,
        kernel: Kernel | None = None,
        prior: Lattice | None = None,
        ridge: float = 10.0,
        scale: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        paths: int = 1,
        locations: ArrayLike | None = None,
        grid: int | tuple[int, ...] | None = None,
        coordinates: str = "unit",
        centre: float | None = None,
        jitter: float = 0.0,
        nugget: float | None = None,
        prior_noise: float = 0.0,
        assumption: Assumption | None = None,
        neighbours: Neighbours | str = "replace",
        most_records: int = 10_000,
        rule: str | None = None,
        contributions: int = 1,
        unit: str | None = None,
        engine: Engine | None = None,
        ledger: Ledger | str | Path | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.domain = domain
        self.response_range = response_range
        self.kernel = kernel
        self.prior = prior
        self.ridge = ridge
        self.scale = scale
        self.epsilon = epsilon
        self.delta = delta
        self.paths = paths
        self.locations = locations
        self.grid = grid
        self.coordinates = coordinates
        self.centre = centre
        self.jitter = jitter
        self.nugget = nugget
        self.prior_noise = prior_noise
        self.assumption = assumption
        self.neighbours = neighbours
        self.most_records = most_records
        self.rule = rule
        self.contributions = contributions
        self.unit = unit
        self.engine = engine
        self.ledger = ledger
        self.randomness = randomness

    def mechanism(self, n: int | None = None, dimension: int | None = None) -> PosteriorMechanism | LatticeMechanism:
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
            If a parameter is out of range or missing, or no scale meets the target.
        """
        if not self._n_is_public:
            n = None
        elif n is None or n < 1 or int(n) != n:
            raise ValueError(f"n must be a whole number >= 1; got {n!r}.")
        if (self.scale is None) == (self.epsilon is None):
            raise ValueError("Give either scale, or epsilon to have the scale that just meets it; not both.")
        if self.delta is None and n is None:
            raise ValueError("delta = n ** -1.1 needs a public number of records; give a delta.")
        if self.delta is None and n == 1:
            raise ValueError("With one record delta = n ** -1.1 would be 1, which promises nothing; give a delta.")
        shared: dict[str, Any] = {
            "response_range": tuple(self.response_range),
            "ridge": self.ridge,
            "delta": float(n or 0) ** -1.1 if self.delta is None else self.delta,
            "paths": self.paths,
            "centre": self.centre,
            "neighbours": self.neighbours,
            "most_records": self.most_records,
            "contributions": self.contributions,
            "unit": self.unit,
        } | ({} if self.rule is None else {"rule": self.rule})
        kind, own = self._of_kernel(dimension) if self.prior is None else self._of_prior(dimension)
        if self.scale is not None:
            return kind(scale=self.scale, **shared, **own)
        return kind.calibrated(n=n, epsilon=self.epsilon, **shared, **own)

    def _of_kernel(self, dimension: int | None) -> tuple[Any, dict[str, Any]]:
        """The mechanism of a kernel, and the parameters that it alone has."""
        domain = self._domain(dimension)
        locations, grid = self._places(domain)
        return PosteriorMechanism, {
            "kernel": Matern32(0.1) if self.kernel is None else self.kernel,
            "domain": domain,
            "locations": locations,
            "grid": grid,
            "coordinates": self.coordinates,
            "jitter": self.jitter,
            "nugget": self.nugget,
            "prior_noise": self.prior_noise,
            "assumption": self.assumption,
            "engine": self.engine,
        }

    def _of_prior(self, dimension: int | None) -> tuple[Any, dict[str, Any]]:
        """The mechanism of a lattice; what only kernels have must not have been given."""
        if not isinstance(self.prior, Lattice):
            raise ValueError("prior must be a Lattice, such as Lattice.hexagon(spacing, domain, killing).")
        defaults = inspect.signature(type(self)).parameters
        given = [name for name in _OF_KERNELS if getattr(self, name) is not defaults[name].default]
        given = [name for name in given if getattr(self, name) != defaults[name].default]
        if given:
            raise ValueError(f"With prior=... the lattice says it all: leave out {', '.join(given)}.")
        if dimension is not None and dimension != self.prior.dimension:
            raise ValueError(f"The records have {dimension} covariates, the lattice {self.prior.dimension}.")
        return LatticeMechanism, {"lattice": self.prior}

    def privacy_loss(self, n: int | None = None, dimension: int | None = None) -> PrivacyLoss:
        """What fitting n records will cost, before any record is seen; where n is not public, any number of them."""
        return self.mechanism(n, dimension).privacy_loss(n)

    @cleared
    def fit(self, X: ArrayLike, y: ArrayLike, units: ArrayLike | None = None) -> Self:
        """Charge the ledger, draw the paths and forget the records.

        Parameters
        ----------
        X : array (n, d)
            Private covariates, in data units.
        y : array (n,)
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
        self._release(X, y, units, lambda mechanism: mechanism)
        return self

    @cleared
    def fit_custodian(self, X: ArrayLike, y: ArrayLike, units: ArrayLike | None = None) -> Custodian:
        """Like `fit`, and return the custodian: a PRIVATE object that can extend the same paths to new points.

        The paths were paid for as whole functions. Keep the custodian where the records are. ValueError on a lattice,
        where the whole path is released.
        """
        if self.prior is not None:
            raise ValueError("On a lattice the whole path is released: there is nothing to extend. Use fit.")
        kept: list[_KeepingCustodian] = []

        def keeping(mechanism: PosteriorMechanism | LatticeMechanism) -> _KeepingCustodian:
            assert isinstance(mechanism, PosteriorMechanism)
            kept.append(_KeepingCustodian(mechanism))
            return kept[0]

        self._release(X, y, units, keeping)
        assert kept[0].custodian is not None
        return kept[0].custodian

    def _release(
        self,
        X: ArrayLike,
        y: ArrayLike,
        units: ArrayLike | None,
        runner: Callable[[PosteriorMechanism | LatticeMechanism], Mechanism],
    ) -> None:
        X, y = regression_table(self, X, y)
        records = owned_records(X, y, units, self.contributions, self.randomness)
        mechanism = self.mechanism(len(records.covariates), X.shape[1])
        if units is not None:
            mechanism = replace(mechanism, unit=unit_in_words(self.unit or OWNER, self.contributions))
        told = len(records.covariates) if mechanism.n_is_public else mechanism.most_records
        release = self._charged(runner(mechanism), records, told)
        assert isinstance(release, PathRelease | LatticeRelease)
        self.release_ = release
        self.mechanism_ = mechanism

    @property
    def _n_is_public(self) -> bool:
        return Neighbours(self.neighbours) is not Neighbours.ADD_REMOVE

    def sample(self, X: ArrayLike | None = None) -> NDArray[np.float64]:
        """Values of the released paths, shape (paths, m), exactly as released.

        Parameters
        ----------
        X : array (m, d), optional
            Released locations; all of them by default. For other points interpolate (`predict`), or extend the paths
            where the records are (`fit_custodian`). On a lattice any point: it has the value of its node.

        Raises
        ------
        ValueError
            If a point was not released.
        """
        check_is_fitted(self)
        if X is None:
            return self.release_.values.copy()
        if isinstance(self.release_, PathRelease):
            return self.release_.sample(X)
        assert isinstance(self.mechanism_, LatticeMechanism)
        return self.release_.values[:, self.mechanism_.lattice.node(self._points(X))]

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Mean over the released paths, interpolated to X with the prior; shape (len(X),). Post-processing: free.

        On a lattice that of the node of each point.
        """
        points = self._points(X)
        return (self.release_.interpolate if isinstance(self.release_, PathRelease) else self.sample)(points).mean(
            axis=0
        )
