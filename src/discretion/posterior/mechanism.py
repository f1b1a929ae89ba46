"""Posterior sampling as a mechanism: public parameters in, released paths out (Maciazek 2026, Section 2).

    f_D ~ GP(mu_D, scale^2 k_D),   A = K + ridge^2 I,
    mu_D(z) = k_X(z)^T A^{-1} y,   k_D(z, z') = k(z, z') - k_X(z)^T A^{-1} k_X(z').

The posterior's own randomness is the noise. What is added to it is the public nugget of
``docs/proofs/floor-of-noise.md`` and, if asked for, independent prior noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp import Ball, Box, Diagonal, Engine, Exponential, Kernel, NotEnoughMemory, engine
from discretion.gp.cluster import ClusterError
from discretion.gp.engine import Paths
from discretion.gp.path import MARGIN
from discretion.posterior.account import calibrate_posterior
from discretion.posterior.add_remove import add_remove_loss, calibrate_add_remove
from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Bounded,
    Exponential1D,
    RecordAssumption,
    ResponseOnly,
    Separated,
)
from discretion.posterior.assumptions import Diagonal as DiagonalKernel
from discretion.posterior.calibration import calibrated, least_on_grid
from discretion.posterior.exceedance import Excursions
from discretion.posterior.records import PrivateRecords, checked_points, checked_records
from discretion.posterior.rules import RELEASE_RULES, path_loss
from discretion.posterior.units import check_owners, unit_assumptions
from discretion.privacy import (
    Certificate,
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    Release,
    group_loss,
    smallest,
)
from discretion.privacy.frames import cleared
from discretion.privacy.group import MOST_IN_A_GROUP
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import quiet

__all__ = ["Custodian", "PathRelease", "PosteriorMechanism"]

_NUGGET = 1e-6
_LARGEST = 1e100

MOST_DIMENSIONS = 64

LIMITS = (
    "Floating point: the proof is for exact Gaussians. The nugget keeps noise where rounding leaves none, and the "
    "lattice hides last bits; epsilon counts the rounding of the mean, not that of the covariance.",
)
PUBLIC_NUMBER = "The number of records, which is treated as public."
PUBLIC_SHARE = "How many records one unit has, which is treated as public: they are replaced by as many others."


@contextmanager
def _in_public() -> Iterator[None]:
    """What an engine refuses in words of sizes and machines, as an error that a ledger passes on."""
    try:
        yield
    except (NotEnoughMemory, ClusterError) as error:
        raise PublicError(str(error)) from None


@dataclass(frozen=True, eq=False)
class PosteriorMechanism:
    """Release ``paths`` Gaussian-process posterior sample paths at public locations.

    Every field is public and is fixed before a record is read.

    Parameters
    ----------
    kernel : Kernel
        Unit-diagonal kernel. A kernel with amplitude ``s^2 k0`` is ``(k0, ridge / s, s * scale)``.
    domain : Box or Ball
        Public domain of the covariates, in data units. Records outside are clamped to it, one by one.
    response_range : (low, high)
        Public range of the response. Responses are clipped to it, one by one.
    ridge : float
        Square root of the ridge, r > 0 (observation noise variance is ``ridge^2 scale^2``).
    scale : float
        Posterior scale, sigma > 0.
    locations : array (m, d)
        Public points at which the paths are released, in data units.
    delta : float
        The delta at which the certificate states epsilon, 0 < delta < 1.
    paths : int
        Number of independent paths from the same records.
    grid : tuple of int, optional
        Shape of the regular grid that ``locations`` spans, first axis slowest. For maps.
    coordinates : {"unit", "data"}
        ``"unit"``: the kernel sees the domain's box scaled to the unit cube, so length scales are fractions of its
        sides. ``"data"``: length scales are in data units.
    centre : float, optional
        Public prior mean; the middle of ``response_range`` by default.
    jitter : float
        Public constant added to the diagonal of the Gram matrix; accounted as ridge ``sqrt(ridge^2 + jitter)``.
    nugget : float, optional
        Public variance (in units of ``scale^2``) added to every released value; by default 1e-6, or more where n, m and
        the ridge require it.
    prior_noise : float
        Scale eta of independent prior noise ``GP(0, eta^2 k)`` added to each path.
    assumption : Assumption, optional
        What is assumed of the responses; bounded by ``response_range`` unless stated.
    neighbours : Neighbours
        ``"replace"``: n is public; under `ResponseOnly` one response is replaced. ``"add-remove"``: n is neither used
        nor published.
    most_records : int
        Public bound of the number of records where n is not public: larger sets of records are refused. Account,
        nugget and rounding are those of so many. With bounded responses under a general kernel the cost grows with
        it, so declare what is needed.
    rule : {"closed-form", "renyi", "best"}
        What prices the paths where n is public: closed forms at once; ``renyi`` certified in seconds; ``best`` also
        knows, of one path, the certified privacy profile, in up to half a minute (`posterior.rules.path_loss`).
    contributions : int
        Records of one unit of privacy that may be among the records. If more than 1 the loss is that of a group, by a
        chain of single changes (`discretion.privacy.group_loss`). Under replacement a unit's records are replaced by
        as many others: how many it has is then treated as public, and so is n.
    unit : str, optional
        The unit of privacy in words.
    engine : Engine, optional
        What computes the paths; by default linear time for exponential and Matern kernels on the line, dense linear
        algebra else (`discretion.gp.engine`). The law and its account are the same, but for the rounding, which each
        bounds.

    Raises
    ------
    ValueError
        If a parameter is out of range; the message says which and how to mend it.

    Notes
    -----
    Source: T. Maciazek, *Differential Privacy of Gaussian Process Posterior Sampling* (2026).
    """

    kernel: Kernel
    domain: Box | Ball
    response_range: tuple[float, float]
    ridge: float
    scale: float
    locations: NDArray[np.float64]
    delta: float
    paths: int = 1
    grid: tuple[int, ...] | None = None
    coordinates: str = "unit"
    centre: float | None = None
    jitter: float = 0.0
    nugget: float | None = None
    prior_noise: float = 0.0
    assumption: Assumption | None = None
    neighbours: Neighbours = Neighbours.REPLACE
    most_records: int = 10_000
    rule: str = "closed-form"
    contributions: int = 1
    unit: str | None = None
    engine: Engine | None = None

    name = "gaussian-process-posterior-paths"

    def __post_init__(self) -> None:
        low, high = self.response_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
        for label, value in (("ridge", self.ridge), ("scale", self.scale)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{label} must be a positive finite number; got {value!r}.")
        for label, value in (("jitter", self.jitter), ("prior_noise", self.prior_noise)):
            if not 0 <= value < _LARGEST:
                raise ValueError(f"{label} must be a number from 0 to below {_LARGEST:g}; got {value!r}.")
        if self.nugget is not None and not 0 < self.nugget < _LARGEST:
            raise ValueError(
                f"nugget must be a positive number below {_LARGEST:g}, or None for the rule; got {self.nugget!r}."
            )
        if isinstance(self.paths, bool) or int(self.paths) != self.paths or self.paths < 1:
            raise ValueError(f"paths must be a whole number >= 1; got {self.paths!r}.")
        for label, count, most in (
            ("most_records", self.most_records, 10**9),
            ("contributions", self.contributions, MOST_IN_A_GROUP),
        ):
            if isinstance(count, bool) or int(count) != count or not 1 <= count <= most:
                raise ValueError(f"{label} must be a whole number from 1 to {most:,}; got {count!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if self.rule not in RELEASE_RULES:
            raise ValueError(f"rule must be one of {', '.join(RELEASE_RULES)}; got {self.rule!r}.")
        if self.coordinates not in ("unit", "data"):
            raise ValueError(f"coordinates must be 'unit' or 'data'; got {self.coordinates!r}.")
        centre = 0.5 * (low + high) if self.centre is None else float(self.centre)
        if not low <= centre <= high:
            raise ValueError(f"centre must lie in response_range [{low}, {high}]; got {centre!r}.")
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit.strip()):
            raise ValueError("unit must say in words what one record is, or be left out.")
        if self.domain.dimension > MOST_DIMENSIONS:
            raise ValueError(
                f"The domain has {self.domain.dimension} dimensions; at most {MOST_DIMENSIONS} are supported."
            )
        if self.engine is not None and not self.engine.supports(self.kernel, self.domain.dimension):
            raise ValueError(
                f"The {self.engine.name} engine does not compute the kernel {self.kernel.name} in dimension "
                f"{self.domain.dimension}; leave engine out, and one that does is chosen."
            )
        locations = np.array(self.locations, dtype=np.float64, ndmin=2)
        if locations.ndim != 2 or locations.shape[1] != self.domain.dimension or not np.isfinite(locations).all():
            raise ValueError(
                f"locations must be finite and of shape (m, {self.domain.dimension}); got {locations.shape}."
            )
        if self.grid is not None and math.prod(self.grid) != len(locations):
            raise ValueError(f"grid {self.grid} does not have as many points as locations ({len(locations)}).")
        if max(abs(low), abs(high)) > _LARGEST or self._farthest(locations) > _LARGEST:
            raise ValueError(
                f"response_range and coordinates over the length scale must not exceed {_LARGEST:g}: change the "
                "unit. What would overflow on some records and not on others would tell them apart."
            )
        locations.flags.writeable = False
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "locations", locations)
        if self.assumption is None:
            object.__setattr__(self, "assumption", self._default_assumption())
        object.__setattr__(self, "neighbours", self._relation())
        if self.rule != RELEASE_RULES[0] and not self.n_is_public:
            raise ValueError("Where the number of records is private one account prices a release: leave rule out.")
        self._assumption.check(self.kernel, self.domain.dimension)
        if isinstance(self._assumption, Separated):
            object.__setattr__(self, "assumption", self._assumption.rounded(self.kernel, self._farthest(locations)))
        self._check_clipping()
        if self.contributions > 1 and self.n_is_public and isinstance(self._assumption, Separated):
            # Half-way between the two data sets an old and a new record may lie at one place.
            raise ValueError(
                "Replacing several separated records one after the other passes through records that are not "
                "separated, so there is no account: cut to one record a unit, or use neighbours='add-remove'."
            )

    @classmethod
    def calibrated(cls, *, n: int | None = None, epsilon: float, delta: float, **parameters: Any) -> Self:
        """The mechanism with the smallest ``scale`` whose whole loss is at most ``(epsilon, delta)``.

        ``n`` is the public number of records; not used where it is not public. ``parameters`` are the fields of the
        class other than ``scale`` and ``delta``.

        Raises
        ------
        ValueError
            If no scale meets the target (the covariance alone costs more); the message says what to change.
        """
        trial = cls(scale=1.0, delta=delta, **parameters)
        # A billionth below the target, so that the loss as a ledger stores it, rounded up, meets it too.
        target = epsilon * (1.0 - 1e-9)

        def price(scale: float) -> float:
            return replace(trial, scale=scale).privacy_loss(n).epsilon(delta)

        def stored_price(scale: float) -> float:
            loss = replace(trial, scale=scale).privacy_loss(n)
            return max(loss.epsilon(delta), PrivacyLoss.from_dict(loss.to_dict(delta)).epsilon(delta))

        if not trial.n_is_public:
            start = calibrate_add_remove(epsilon=epsilon, delta=delta, **trial._private_account())
        else:
            account = trial._account(trial._count(n))
            if trial.rule != RELEASE_RULES[0] and not isinstance(trial.assumption, ResponseOnly):
                start = calibrated("scale", "renyi", epsilon=epsilon, delta=delta, time_limit=math.inf, **account)[0]
                return replace(trial, scale=least_on_grid(stored_price, target, start))
            start = calibrate_posterior("scale", epsilon=epsilon, delta=delta, **account)
        if trial.contributions > 1:  # the loss of a group takes a tenth of a second
            return replace(trial, scale=least_on_grid(price, target, start))
        return replace(trial, scale=smallest(lambda scale: price(scale) <= target, start, 1e6 * start))

    # --- what it costs, from public parameters alone ---------------------------------------------------------------

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public: everywhere but under add/remove."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    @property
    def response_bound(self) -> float:
        """Largest distance M of the range's ends from the centre."""
        low, high = self.response_range
        return max(high - self._centre, self._centre - low)

    @property
    def effective_ridge(self) -> float:
        """``sqrt(ridge^2 + jitter)``: the ridge that is both used and accounted."""
        return math.sqrt(self.ridge**2 + self.jitter)

    def least_kernel(self) -> float:
        """Public lower bound of the kernel on the domain."""
        return self.kernel.least_value(self._kernel_domain())

    def effective_nugget(self, n: int | None = None) -> float:
        """The nugget used with n records: the declared one, or 1e-6 raised to 16 times the rounding bound.

        Where n is not public, that of `most_records`. ValueError where the declared one is below the bound, or none
        is above it.
        """
        n = self._count(n)
        least = 16.0 * self._engine.nugget_floor(n, len(self.locations), self.effective_ridge)
        if not math.isfinite(least):
            raise ValueError(
                f"In double precision ridge {self.effective_ridge:g} is too small for n = {n} and "
                f"{len(self.locations)} locations; raise the ridge."
            )
        if self.nugget is None:
            return max(_NUGGET, least)
        if self.nugget < least:
            raise ValueError(
                f"nugget {self.nugget:g} is below the rounding of this computation (n = {n}, {len(self.locations)} "
                f"locations, ridge {self.effective_ridge:g}); use at least {least:.3g}, or leave it out."
            )
        return self.nugget

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What one run on n records costs; reads no record. ``n`` is not used where it is not public.

        The loss of the exact paths (Theorem 3.1 and its refinements; ``docs/proofs/add-remove.md``) plus that of the
        rounding of the computed mean under half of the nugget (``docs/proofs/floor-of-noise.md``; on the line
        ``docs/proofs/exponential-line.md`` and ``docs/proofs/matern-line.md``). For several `contributions` both are
        those of a group (``docs/proofs/group-privacy.md``).
        """
        n = self._count(n)
        bound = self._engine.mean_rounding(n, len(self.locations), self.effective_ridge, self.response_bound)
        mu = 2.0 * bound / (self.scale * math.sqrt(0.5 * self.effective_nugget(n)))
        rounding = GaussianDP(
            mu * math.sqrt(self.paths),
            neighbours=self.neighbours,
            rule="rounding of the mean under the nugget",
        )
        paths = (
            path_loss(self.rule, scale=self.scale, delta=self.delta, **self._account(n))
            if self.n_is_public
            else add_remove_loss(scale=self.scale, **self._private_account())
        )
        return group_loss(paths + rounding, int(self.contributions))

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON-able values."""
        low, high = self.response_range
        length_scale = getattr(self.kernel, "length_scale", None)
        return {
            "kernel": self.kernel.name,
            "kernel_parameters": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in vars(self.kernel).items()
                if key != "length_scale"
            },
            "length_scale": list(length_scale) if isinstance(length_scale, tuple) else length_scale,
            "coordinates": self.coordinates,
            "domain": {key: list(np.atleast_1d(value)) for key, value in vars(self.domain).items()},
            "least_kernel": self.least_kernel(),
            "response_range": [low, high],
            "centre": self._centre,
            "response_bound": self.response_bound,
            "ridge": self.ridge,
            "jitter": self.jitter,
            "rounding": self._engine.rounding,
            "scale": self.scale,
            "prior_noise": self.prior_noise,
            "nugget": self.nugget,
            "lattice": None if self.nugget is None else lattice_spacing(self.scale * math.sqrt(self.nugget)),
            "paths": int(self.paths),
            "locations": len(self.locations),
            "grid": None if self.grid is None else list(self.grid),
            "assumption": self._assumption.name,
            "assumption_parameters": dict(vars(self._assumption)),
            "neighbours": self.neighbours.value,
            "most_records": None if self.n_is_public else int(self.most_records),
            "rule": self.rule,
            "contributions": int(self.contributions),
        }

    def certificate(self, n: int | None, randomness: Randomness, *, limited: bool = False) -> Certificate:
        """The certificate of one run with this source of randomness; it names n only where n is public.

        ``limited``: that a unit has at most `contributions` records was checked, not declared.
        """
        low, high = self.response_range
        places = (
            "Covariates outside the public domain are clamped to it, record by record."
            if self._assumption.survives_clamping
            else "Records with covariates outside the public domain are refused, all together."
        )
        cap = () if self.n_is_public else (f"There are at most {self.most_records:,} records.",)
        unit = self.unit_in_words
        checked, declared = unit_assumptions(unit, int(self.contributions), limited=limited)
        public = (PUBLIC_NUMBER,) if self.n_is_public else ()
        public += (PUBLIC_SHARE,) if self.n_is_public and self.contributions > 1 else ()
        return Certificate.issue(
            replace(self, nugget=self.effective_nugget(n)),
            n=n if self.n_is_public else None,
            delta=self.delta,
            unit=unit,
            randomness=randomness,
            loss=self.privacy_loss(n),
            enforced=(
                f"Responses are clipped to [{low:g}, {high:g}], record by record.",
                places,
                *self._assumption.enforced,
                "Released values are rounded to the multiples of a public power of two.",
                *checked,
            ),
            declared=self._assumption.declared + cap + declared,
            limits=(*public, *LIMITS),
        )

    @cleared
    @quiet()
    def check(self, records: PrivateRecords) -> int | None:
        """How many records there are, None where that is not public; refuses what lies outside the domain.

        Wrong shapes, values that are not finite, sizes that do not fit in memory and, where the number is not public,
        more than `most_records`, for which memory must do. Spends nothing.

        Raises
        ------
        PublicError
            Names shapes and rows, never values.
        """
        found = len(self._checked(records)[0])
        return found if self.n_is_public else None

    def _checked(self, records: PrivateRecords) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        X, Y = checked_records(records, self.domain.dimension)
        if not self.n_is_public and len(X) > self.most_records:
            raise PublicError(f"There are more than the declared {self.most_records:,} records; declare more.")
        with _in_public():
            self._engine.check(self._count(len(X)), len(self.locations), int(self.paths))
        if not self._assumption.survives_clamping and not self.domain.contains(X).all():
            # Clamping could move a record off the declared function, or two records onto one place.
            raise PublicError(
                f"Records lie outside the domain, where the assumption {self._assumption.name!r} says nothing; "
                "widen the domain, or leave the assumption out."
            )
        check_owners(getattr(records, "units", None), len(X), self.contributions)
        return X, Y[:, 0]

    # --- the release -------------------------------------------------------------------------------------------------

    @cleared
    @quiet()
    @_in_public()
    def run(self, records: PrivateRecords, randomness: Randomness) -> PathRelease:
        """Draw the paths. Called by the ledger after the loss is reserved."""
        certificate, layers = self._prepared(records, randomness)
        # One layer at a time: each holds a factor as large as the locations squared.
        values = (layer().evaluate(self._kernel_coordinates(self.locations)) for layer in layers)
        released = self._rounded(values, certificate.parameters["lattice"])
        return PathRelease(certificate=certificate, mechanism=self, values=released)

    @cleared
    @quiet()
    @_in_public()
    def run_for_custodian(self, records: PrivateRecords, randomness: Randomness) -> tuple[PathRelease, Custodian]:
        """Draw the paths and keep what is needed to extend them; the second value is private."""
        certificate, layers = self._prepared(records, randomness)
        custodian = Custodian(self, [layer() for layer in layers], certificate.parameters["lattice"])
        values = custodian.extend(self.locations)
        return PathRelease(certificate=certificate, mechanism=self, values=values), custodian

    def _prepared(
        self, records: PrivateRecords, randomness: Randomness
    ) -> tuple[Certificate, list[Callable[[], Paths]]]:
        """The certificate, and makers of the independent layers whose sum is released: posterior, prior noise."""
        X, y = self._checked(records)
        nugget = self.effective_nugget(len(X))
        low, high = self.response_range

        def layer(X: NDArray[np.float64], y: NDArray[np.float64], scale: float) -> Callable[[], Paths]:
            def make() -> Paths:
                posterior = self._engine.posterior(self.kernel, self.ridge, X, y, jitter=self.jitter)
                return self._engine.paths(posterior, scale, nugget, randomness.standard_normal, int(self.paths))

            return make

        here, there = self._kernel_coordinates(self.domain.clamp(X)), np.clip(y, low, high) - self._centre
        layers = [layer(here, there, self.scale)]
        if self.prior_noise > 0:
            layers.append(layer(np.empty((0, X.shape[1])), np.empty(0), self.prior_noise))
        limited = getattr(records, "units", None) is not None
        return self.certificate(len(X), randomness, limited=limited), layers

    def _rounded(self, layers: Iterable[NDArray[np.float64]], spacing: float) -> NDArray[np.float64]:
        """Centre and layers, summed in this order and rounded to the public lattice.

        Post-processing (``docs/proofs/lattice-rounding.md``): the spacing is at most 1/64 of the standard deviation of
        the nugget. The same values are rounded alike whenever they are asked for.
        """
        return to_lattice(sum(layers, start=self._centre), spacing)

    # --- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _centre(self) -> float:
        assert self.centre is not None
        return self.centre

    @property
    def _engine(self) -> Engine:
        return engine(self.kernel, self.domain.dimension) if self.engine is None else self.engine

    @property
    def _assumption(self) -> Assumption:
        assert self.assumption is not None
        return self.assumption

    @property
    def unit_in_words(self) -> str:
        """The unit of privacy, as certificates and ledgers have it."""
        if self.unit:
            return self.unit
        one = self.contributions == 1
        if self.neighbours is Neighbours.REPLACE_RESPONSE:
            return "the response of one record" if one else f"the responses of {self.contributions:,} records"
        return "one record (its covariates and its response)" if one else f"any {self.contributions:,} records"

    def _default_assumption(self) -> Assumption:
        bound = self.response_bound
        if isinstance(self.kernel, Diagonal):
            return DiagonalKernel(bound)
        if isinstance(self.kernel, Exponential) and self.domain.dimension == 1:
            return Exponential1D(bound)
        return Bounded(bound)

    def _check_clipping(self) -> None:
        """The clipping level must be the assumption's own: no more, and for an RKHS bound no less."""
        assumption, bound = self._assumption, self.response_bound
        if isinstance(assumption, RKHS):
            if bound < assumption.largest_response:
                raise ValueError(
                    f"Clipping {bound:g} either side of the centre would break the declared RKHS bound, as responses "
                    f"reach {assumption.largest_response:g}; widen response_range."
                )
        elif assumption.response_bound < bound:  # pyright: ignore[reportAttributeAccessIssue]
            raise ValueError(
                f"The assumption bounds responses by {assumption.response_bound:g}, but response_range lets them lie "  # pyright: ignore[reportAttributeAccessIssue]
                f"{bound:g} from the centre; make the two agree."
            )

    def _relation(self) -> Neighbours:
        """The relation of the account: the assumption's own, or add/remove where a whole record is private."""
        asked, own = Neighbours(self.neighbours), self._assumption.neighbours
        if asked in (own, Neighbours.REPLACE):
            return own
        if asked is Neighbours.ADD_REMOVE and isinstance(self._assumption, RecordAssumption):
            return asked
        raise ValueError(f"The assumption {self._assumption.name!r} has no account under {asked.value!r} neighbours.")

    def _count(self, n: int | None) -> int:
        """The number of records that constants are made for: n where it is public, else the most there may be."""
        if not self.n_is_public:
            return int(self.most_records)
        if n is None:
            raise ValueError("The number of records is public here: give it as n.")
        return n

    def _account(self, n: int) -> dict[str, Any]:
        """What the account needs besides the scale, where n is public."""
        return {
            "n": n,
            "ridge": self.effective_ridge,
            "assumption": self._assumption,
            "least_kernel": self.least_kernel(),
            "paths": int(self.paths),
            "prior_noise": self.prior_noise,
        }

    def _private_account(self) -> dict[str, Any]:
        """The same where n is not public. Prior noise is post-processing there."""
        return {
            "ridge": self.effective_ridge,
            "assumption": self._assumption,
            "most_records": int(self.most_records),
            "paths": int(self.paths),
        }

    def _check_extension(self, points: int, requests: int) -> None:
        """Refuse more points or requests than the nugget covers, by the public bound of the number of records."""
        if self.n_is_public:
            return
        nugget = self.effective_nugget()
        if nugget < MARGIN * self._engine.nugget_floor(self.most_records, points, self.effective_ridge, requests):
            raise ValueError(f"nugget {nugget:.3g} does not cover {points} points; release with a larger one.")

    def _farthest(self, locations: NDArray[np.float64]) -> float:
        """Most that a coordinate of a record or a location is, in length scales of the kernel; inf on overflow."""
        domain = self._kernel_domain()
        ends = (
            (domain.lower, domain.upper)
            if isinstance(domain, Box)
            else (np.add(domain.center, domain.radius), np.subtract(domain.center, domain.radius))
        )
        shortest = float(np.min(getattr(self.kernel, "length_scale", 1.0)))
        with np.errstate(all="ignore"):
            most = max(float(np.abs(each).max(initial=0.0)) for each in (*ends, self._kernel_coordinates(locations)))
            return float(np.nan_to_num(np.divide(most, shortest), nan=np.inf))

    def _kernel_domain(self) -> Box | Ball:
        return self.domain if self.coordinates == "data" else self.domain.unit_domain

    def _kernel_coordinates(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return X if self.coordinates == "data" else self.domain.unit(X)


@dataclass(frozen=True, eq=False, repr=False)
class PathRelease(Excursions, Release):
    """Released sample paths: public values at public locations, and their certificate.

    Attributes
    ----------
    certificate : Certificate
    mechanism : PosteriorMechanism
        The public parameters.
    values : array (paths, m)
        The paths at ``mechanism.locations``, in units of the response: multiples of the parameter ``lattice`` in the
        certificate.
    """

    mechanism: PosteriorMechanism
    values: NDArray[np.float64]

    @property
    def locations(self) -> NDArray[np.float64]:
        """The public locations, shape (m, d), in data units."""
        return self.mechanism.locations

    def on_grid(self) -> NDArray[np.float64]:
        """The paths on the mechanism's grid, shape (paths, *grid); ValueError where it has none."""
        if self.mechanism.grid is None:
            raise ValueError("These paths were released at scattered locations; give the mechanism a grid.")
        return self.values.reshape(len(self.values), *self.mechanism.grid)

    def sample(self, X: ArrayLike) -> NDArray[np.float64]:
        """Released values at X, shape (paths, len(X)), exactly as released.

        Raises
        ------
        ValueError
            If a row of X is not one of the released locations.
        """
        X = checked_points(X, self.mechanism.domain.dimension)
        index = {row.tobytes(): i for i, row in enumerate(self.locations + 0.0)}
        found = [index.get(row.tobytes(), -1) for row in np.ascontiguousarray(X) + 0.0]
        missing = found.count(-1)
        if missing:
            raise ValueError(
                f"{missing} of {len(X)} points are not among the {len(self.locations)} released locations. Release "
                "paths there (locations=...), interpolate what was released (predict), or fit with fit_custodian."
            )
        return self.values[:, found]

    def interpolate(self, X: ArrayLike) -> NDArray[np.float64]:
        """Prior conditional mean of each path at X given its released values, shape (paths, len(X)).

        Post-processing: costs nothing. It is smoother than the path itself between released locations.
        """
        mechanism = self.mechanism
        X = mechanism._kernel_coordinates(checked_points(X, mechanism.domain.dimension))
        nugget = math.sqrt(mechanism.effective_nugget(self.certificate.n))
        here = mechanism._kernel_coordinates(self.locations)
        here_alone = engine(mechanism.kernel, mechanism.domain.dimension)  # whatever computed the release
        prior = here_alone.posterior(mechanism.kernel, nugget, here, np.zeros(len(here)))
        means = [prior.with_responses(path).mean(X) for path in self.values - mechanism._centre]
        return np.stack(means) + mechanism._centre


class Custodian:
    """PRIVATE. What is needed to ask released paths for more points; it holds the records' posterior.

    Keep it where the records are kept. It can't be pickled, printed or compared; delete it when done.

    Made by a fit of the ``mechanism``: ``layers`` are the independent paths whose sum is released, rounded to a lattice
    of ``spacing``.
    """

    __slots__ = ("_asked", "_layers", "_mechanism", "_requests", "_spacing")

    def __init__(self, mechanism: PosteriorMechanism, layers: list[Paths], spacing: float) -> None:
        self._mechanism = mechanism
        self._layers = layers
        self._spacing = spacing
        self._asked: set[bytes] = set()
        self._requests = 0

    @cleared
    @quiet()
    def extend(self, X: ArrayLike) -> NDArray[np.float64]:
        """Values of the same paths at X, shape (paths, len(X)). The whole path was paid for at release.

        What the account adds for rounding of the mean is for the released locations and grows with the square root
        of the number of points, so keep extensions to a few times their number (``docs/proofs/floor-of-noise.md``).
        Points asked before, here or at release, get the values they got then.
        """
        mechanism = self._mechanism
        X = mechanism._kernel_coordinates(checked_points(X, mechanism.domain.dimension))
        asked = self._asked | {row.tobytes() for row in X + 0.0}
        mechanism._check_extension(len(asked), self._requests + 1)
        values = mechanism._rounded((layer.evaluate(X) for layer in self._layers), self._spacing)
        self._asked, self._requests = asked, self._requests + 1
        return values

    def __repr__(self) -> str:
        return "Custodian(PRIVATE)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Custodian is private and is never pickled; extend the paths where the records are.")
