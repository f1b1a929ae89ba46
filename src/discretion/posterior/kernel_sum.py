"""Kernel sums: what posterior sampling tends to as the ridge grows, with an exact account (Hall et al. 2013).

    h_j = sum_i (y_ij - c_j) k(x_i, .) + s_j g_j           value sum of column j, g_j ~ GP(0, k)
    d   = M sum_i k(x_i, .)            + s g'              density

for every kernel k, with |y_ij - c_j| <= M_j by clipping, M = M_1, s = `scale` and s_j = s M_j / M: each column, and
the density, has the same ratio of noise to bound. One path of noise is added to each sum, with the sum's own kernel
and a public nugget. The account does not depend on n, kernel, domain or dimension (`docs/proofs/kernel-sum.md`),
apart from the rounding of the sums (`docs/proofs/kernel-sum-rounding.md`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discretion.gp import KERNELS, Box, Kernel
from discretion.gp.fields import Field, Grid, Places, kernel_sums, rows_at_once, size, stationary_field, sum_rounding
from discretion.gp.path import MARGIN
from discretion.posterior.records import PrivateRecords, checked_points, checked_records
from discretion.posterior.units import limit_contributions, unit_assumptions
from discretion.privacy import (
    Certificate,
    GaussianDP,
    Neighbours,
    PublicError,
    Randomness,
    Release,
    gaussian_mu,
    smallest,
)
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import quiet
from discretion.privacy.records import check_labelled

__all__ = ["KernelSumMechanism", "KernelSumRelease", "PartialSums", "sensitivity"]

Floats = NDArray[np.float64]

_NUGGET = 1e-6
_ROUNDING_SHARE = 0.01  # of mu, at most
_KEPT = 7.0 / 8.0  # of the nugget, where the factor's error takes no more than an eighth

LIMITS = (
    "Floating point: the proof is for exact Gaussians; the nugget keeps noise where rounding leaves none, and the "
    "lattice hides the last bits of samples, which is not a proof.",
)
WHAT = (
    "What is released at a place is a sum over all records: how far each clipped response lies from a public centre, "
    "counted by how near the record is; and how many records are near, if that is released. Each has noise that "
    "varies from place to place as smoothly as the sum. It is not a draw from the posterior of the private records. "
    "Both together estimate a local mean of clipped responses, not a median."
)


def sensitivity(
    neighbours: Neighbours,
    *,
    columns: int = 1,
    density: bool = True,
    negative: float = 0.0,
    contributions: int = 1,
) -> float:
    """Largest change of the sums of one kernel in the norm of its RKHS, each sum in units of its own bound.

    With J columns, K contributions and k >= -negative on the domain:

        replace      values 2 sqrt(J),  with density sqrt(max(4 J, 2 (J + 1) (1 + negative)))      times K
        add/remove   values sqrt(J),    with density sqrt(J + 1)                                    times K

    Non-negative kernels give the density for nothing under replacement. Attained.

    Source: Hall, Rinaldo and Wasserman 2013 for the value sum. Proof: `docs/proofs/kernel-sum.md`.
    """
    _check_relation(neighbours)
    if neighbours is Neighbours.ADD_REMOVE:
        square = float(columns + density)
    else:
        square = max(4.0 * columns, 2.0 * (columns + 1) * (1.0 + negative) if density else 0.0)
    return contributions * math.sqrt(square)


def _check_relation(neighbours: Neighbours) -> None:
    if neighbours not in (Neighbours.REPLACE, Neighbours.ADD_REMOVE):
        raise ValueError(f"Kernel sums are accounted under 'replace' or 'add-remove' neighbours, not {neighbours!s}.")


@dataclass(frozen=True, repr=False, eq=False)
class PartialSums:
    """PRIVATE. Exact sums over some of the records, without noise; those of all parts are added with ``+``.

    Never publish, print or log what it holds. It may be pickled on its way to whoever adds the noise.

    Attributes
    ----------
    sums, carry : array (columns + density, kernels, m)
        The sums, and what rounding took from them (compensated summation).
    n : int
        Number of records, private under add/remove.
    made_by : str
        Digest of the public parameters that matter.
    """

    sums: Floats
    carry: Floats
    n: int
    made_by: str

    @quiet()
    def __add__(self, other: PartialSums) -> PartialSums:
        if not isinstance(other, PartialSums):
            return NotImplemented
        if self.made_by != other.made_by:
            raise PublicError("These partial sums were made with different public parameters, so they don't add.")
        sums, carry = self.sums.copy(), self.carry + other.carry
        _accumulate(sums, carry, other.sums)
        return PartialSums(sums, carry, self.n + other.n, self.made_by)

    def __radd__(self, other: Any) -> PartialSums:
        return self if type(other) is int and other == 0 else NotImplemented  # sum() starts from 0

    def __repr__(self) -> str:
        return "PartialSums(PRIVATE)"


def _accumulate(total: Floats, carry: Floats, more: Floats) -> None:
    """total <- total + more and carry <- carry + its rounding error, which is exact (Knuth's TwoSum)."""
    new = total + more
    part = new - total
    carry += (total - (new - part)) + (more - part)
    total[...] = new


@dataclass(frozen=True, eq=False)
class KernelSumMechanism:
    """Release value sums and density of private records at public locations.

    Every field is public and is fixed before a record is read.

    Parameters
    ----------
    kernels : Kernel or tuple of Kernel
        Unit-diagonal kernels, such as one for each of several length scales.
    domain : Box
        Public domain of the covariates, in data units. Records outside are clamped to it, one by one.
    response_ranges : (low, high) or tuple of such pairs
        Public range of each response column. Responses are clipped to it, one by one.
    scale : float
        Noise s of the first value sum and of the density, in units of the first response; that of another column is
        in proportion to its bound (`scales`).
    delta : float
        The delta at which the certificate states epsilon, 0 < delta < 1.
    locations : array (m, d), optional
        Public points at which the sums are released, in data units; by default the regular grid ``domain.grid(grid)``.
    grid : tuple of int, optional
        Shape of the grid that ``locations`` span, first axis slowest. Product kernels are fastest on a grid.
    centres : tuple of float, optional
        Public centre c of each column; the middle of its range by default.
    density : bool
        Whether the density is released. It costs nothing under replace neighbours.
    neighbours : Neighbours
        ``"replace"``: n is public. ``"add-remove"``: n is neither used nor published.
    contributions : int
        Records that one unit of privacy may own. If more than 1, n is neither used nor published.
    most_records : int
        Public bound on the number of records where n is not public; it decides about the rounding of the sums alone.
    coordinates : {"unit", "data"}
        ``"unit"``: length scales are fractions of the domain's sides. ``"data"``: they are in data units.
    nugget : float, optional
        Public variance, in units of ``scale^2``, added to every released value; by default 1e-6, or more where the
        rounding of so many records and locations requires it.
    unit : str
        The unit of privacy in words.

    Raises
    ------
    ValueError
        If a parameter is out of range; the message says which and how to mend it.

    Notes
    -----
    Source: R. Hall, A. Rinaldo, L. Wasserman, *Differential privacy for functions and functional data*, JMLR 14
    (2013); `docs/proofs/kernel-sum.md`.
    """

    kernels: tuple[Kernel, ...] | Kernel
    domain: Box
    response_ranges: tuple[tuple[float, float], ...] | tuple[float, float]
    scale: float
    delta: float
    locations: Floats | None = None
    grid: tuple[int, ...] | None = None
    centres: tuple[float, ...] | None = None
    density: bool = True
    neighbours: Neighbours = Neighbours.REPLACE
    contributions: int = 1
    most_records: int = 10_000_000
    coordinates: str = "unit"
    nugget: float | None = None
    unit: str = "one record (its covariates and its responses)"

    name = "kernel-sum"

    def __post_init__(self) -> None:
        def put(field: str, value: Any) -> None:
            object.__setattr__(self, field, value)

        put("kernels", (self.kernels,) if isinstance(self.kernels, Kernel) else tuple(self.kernels))
        ranges = np.array(self.response_ranges, dtype=np.float64, ndmin=2)
        if ranges.shape[1:] != (2,) or not (np.isfinite(ranges).all() and (ranges[:, 0] < ranges[:, 1]).all()):
            raise ValueError("response_ranges must be pairs of finite numbers (low, high), low < high, one a column.")
        put("response_ranges", tuple((float(low), float(high)) for low, high in ranges))
        centres = ranges.mean(axis=1) if self.centres is None else np.atleast_1d(np.asarray(self.centres, np.float64))
        if centres.shape != ranges.shape[:1] or not ((ranges[:, 0] <= centres) & (centres <= ranges[:, 1])).all():
            raise ValueError("centres must hold one number for each response column, inside its range.")
        put("centres", tuple(map(float, centres)))
        if not self._kernels or not all(isinstance(each, Kernel) for each in self._kernels):
            raise ValueError("kernels must be a kernel or a tuple of at least one.")
        if not isinstance(self.domain, Box):
            raise ValueError(f"domain must be a Box; got {type(self.domain).__name__}.")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a positive finite number; got {self.scale!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if self.nugget is not None and not (math.isfinite(self.nugget) and self.nugget > 0):
            raise ValueError(f"nugget must be a positive finite number, or None for the rule; got {self.nugget!r}.")
        for label, count in (("contributions", self.contributions), ("most_records", self.most_records)):
            if isinstance(count, bool) or int(count) != count or not 1 <= count <= 10**9:
                raise ValueError(f"{label} must be a whole number from 1 to 1e9; got {count!r}.")
        if self.coordinates not in ("unit", "data"):
            raise ValueError(f"coordinates must be 'unit' or 'data'; got {self.coordinates!r}.")
        put("neighbours", Neighbours(self.neighbours))
        _check_relation(self.neighbours)
        if self.locations is None and self.grid is None:
            raise ValueError("Give the grid or the locations at which to release the sums.")
        if self.grid is not None:
            put("grid", tuple(map(int, self.grid)))
        given = self.domain.grid(self.grid or ()) if self.locations is None else self.locations
        locations = checked_points(np.array(given, dtype=np.float64), self.domain.dimension)
        locations.flags.writeable = False
        put("locations", locations)
        _ = self._places

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, n: int | None = None, **parameters: Any) -> Self:
        """The mechanism with the smallest ``scale`` whose whole loss is at most ``(epsilon, delta)``.

        ``n`` is the public number of records; not used where it is not public. ``parameters`` are the fields of the
        class other than ``scale`` and ``delta``. ValueError for an epsilon that is not positive and finite.
        """
        trial = cls(scale=1.0, delta=delta, **parameters)
        unit = trial._unit_mu(n)
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise ValueError(f"epsilon must be a positive finite number; got {epsilon!r}.")

        def meets(scale: float) -> bool:
            # A hair below the target, so that the loss as a ledger composes it, rounded up, meets it too.
            loss = GaussianDP(unit / scale, neighbours=trial.neighbours)
            return loss.epsilon(delta) <= epsilon * (1.0 - 1e-13)

        start = unit / float(gaussian_mu(epsilon, delta))
        return replace(trial, scale=smallest(meets, start * (1.0 - 1e-12), 2.0 * start))

    # --- what it costs, from public parameters alone ---------------------------------------------------------------

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public: replacement of one record a unit."""
        return self.neighbours is Neighbours.REPLACE and self.contributions == 1

    @property
    def response_bounds(self) -> tuple[float, ...]:
        """M_j: the largest distance of the ends of each column's range from its centre."""
        pairs = zip(self._ranges, self._centres, strict=True)
        return tuple(max(high - centre, centre - low) for (low, high), centre in pairs)

    @property
    def density_bound(self) -> float:
        """M, the factor of the density: the bound of the first column."""
        return self.response_bounds[0]

    @property
    def scales(self) -> tuple[float, ...]:
        """s_j = scale M_j / M, the noise of each column's value sum."""
        return tuple(self.scale * bound / self.density_bound for bound in self.response_bounds)

    @property
    def arrays(self) -> int:
        """Number of sums for each kernel: the columns, and the density if it is released."""
        return len(self._ranges) + self.density

    def effective_nugget(self, n: int | None = None) -> float:
        """The nugget used with n records: the declared one, or 1e-6 raised to what rounding requires.

        It covers the rounding of the noise 8 times, and that of the sums so far that it adds 1 percent to mu at most.
        ValueError where the declared one does not, or none can.
        """
        least = max(MARGIN * field.rounding for field in self._noise)
        exact = self._exact_mu()
        least = max(least, (self._sum_rounding(n) / (_ROUNDING_SHARE * exact)) ** 2 / _KEPT)
        if not math.isfinite(least):
            raise ValueError("So many locations and records are beyond double precision; use fewer locations.")
        if self.nugget is None:
            return max(_NUGGET, least)
        if self.nugget < least:
            raise ValueError(
                f"nugget {self.nugget:g} is below the rounding of this computation; give at least {1.001 * least:.3g}, "
                "or leave it out."
            )
        return self.nugget

    def privacy_loss(self, n: int | None = None) -> GaussianDP:
        """What one run costs; reads no record. ``n`` enters the rounding term alone, and only where it is public.

        The exact mu of the sums (Cameron and Martin; `sensitivity`), plus the rounding of the computed sums under the
        nugget (``docs/proofs/kernel-sum-rounding.md``).
        """
        return GaussianDP(
            self._unit_mu(n) / self.scale,
            neighbours=self.neighbours,
            rule="kernel sum, exact Gaussian DP (Hall et al. 2013), with the rounding of the sums",
        )

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON-able values."""
        return self._sum_parameters() | {
            "scale": self.scale,
            "scales": list(self.scales),
            "nugget": self.nugget,
            "lattice": None if self.nugget is None else list(self._lattice(self.nugget)),
            "neighbours": self.neighbours.value,
            "contributions": int(self.contributions),
            "most_records": None if self.n_is_public else int(self.most_records),
            "least_kernel": [0.0 - self._negative(each) for each in self._kernels],
        }

    def certificate(self, n: int | None, randomness: Randomness, *, limited: bool = False) -> Certificate:
        """The certificate of one run with this source of randomness; it names n only where n is public.

        ``limited``: `contributions` was enforced, not declared.
        """
        clipped = ", ".join(f"[{low:g}, {high:g}]" for low, high in self._ranges)
        enforced = (
            f"Responses are clipped to {clipped}, record by record.",
            "Covariates outside the public domain are clamped to it, record by record.",
            "Released sums are rounded to the multiples of a public power of two.",
        )
        declared = ("Domain, ranges, kernels, scale and locations were not chosen by looking at these records.",)
        if not self.n_is_public:
            declared += (f"There are at most {self.most_records:,} records.",)
        checked, vouched = unit_assumptions(self.unit, int(self.contributions), limited=limited)
        n = n if self.n_is_public else None
        public = ("The number of records, which is treated as public.",) if self.n_is_public else ()
        return Certificate.issue(
            replace(self, nugget=self.effective_nugget(n)),
            n=n,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.privacy_loss(n),
            enforced=enforced + checked,
            declared=declared + vouched,
            limits=(WHAT, *public, *LIMITS),
        )

    @cleared
    def check(self, records: Any) -> int | None:
        """How many records there are; None where that is not public, or where they come in chunks. Spends nothing.

        Raises
        ------
        PublicError
            Names shapes and rows, never values.
        """
        if isinstance(records, PartialSums):
            found = self._own(records).n
        elif _are_records(records):
            found = len(self._checked(records)[0])
        else:
            chunked = isinstance(records, Iterable) and not isinstance(records, np.ndarray | Mapping | str)
            # Chunks in memory can be looked at, and others only once.
            for each in records if isinstance(records, tuple | list) else () if chunked else (records,):
                check_labelled(each)
            return None
        if self.n_is_public:
            return found
        self._check_number(found)
        return None

    # --- the release -------------------------------------------------------------------------------------------------

    @cleared
    @quiet()
    def partial(self, records: PrivateRecords) -> PartialSums:
        """PRIVATE. The sums over these records, without noise, to be added to those of other records.

        Records with an attribute ``units`` (n,) are first cut to `contributions` for each unit: those with the smallest
        covariates and responses. That holds for all records only if those of a unit come together.

        Raises
        ------
        PublicError
            Names shapes and rows, never values.
        """
        X, Y = self._checked(records)
        X = self._kernel_coordinates(self.domain.clamp(X))
        low, high = np.asarray(self._ranges).T
        weights = np.clip(Y, low, high) - np.asarray(self._centres)
        if self.density:
            weights = np.column_stack([weights, np.full(len(X), self.density_bound)])
        sums = np.zeros((self.arrays, len(self._kernels), size(self._places)))
        carry = np.zeros_like(sums)
        for index, kernel in enumerate(self._kernels):
            rows = rows_at_once(kernel, self._places)
            for start in range(0, len(X), rows):
                part = slice(start, start + rows)
                more = kernel_sums(kernel, self._places, X[part], weights[part])
                _accumulate(sums[:, index], carry[:, index], more)
        return PartialSums(sums, carry, len(X), self._digest)

    @cleared
    def release(self, partial: PartialSums, n: int | None, randomness: Randomness) -> KernelSumRelease:
        """Add the noise, once, to the sums of all records.

        Parameters
        ----------
        partial : PartialSums
            The sums over all records.
        n : int or None
            Their public number; ignored where it is not public.
        randomness : Randomness

        Raises
        ------
        PublicError
            If the sums were made with other parameters, or their number is not n (more than ``most_records``).
        """
        return self._release(partial, n, randomness, limited=False)

    @cleared
    def run(self, records: Any, randomness: Randomness) -> KernelSumRelease:
        """Sum and add the noise. Called by the ledger after the loss is reserved.

        ``records`` are PrivateRecords, PartialSums, or an iterable of chunks of records.
        """
        if isinstance(records, PartialSums):
            partial = records
        elif _are_records(records):
            partial = self.partial(records)
        else:
            partial = sum(map(self.partial, records), self._nothing())
        limited = getattr(records, "units", None) is not None
        return self._release(partial, partial.n if self.n_is_public else None, randomness, limited=limited)

    @quiet()
    def _release(
        self, partial: PartialSums, n: int | None, randomness: Randomness, *, limited: bool
    ) -> KernelSumRelease:
        if self._own(partial).n != n and self.n_is_public:
            raise PublicError("The partial sums do not hold n records; give their number as n.")
        if not self.n_is_public:
            self._check_number(partial.n)
        certificate = self.certificate(n, randomness, limited=limited)
        nugget = self.effective_nugget(n)
        scales = np.array(self._noise_scales)
        values = partial.sums + partial.carry
        for index, field in enumerate(self._noise):
            values[:, index] += scales[:, None] * field.draw(randomness.standard_normal, nugget, self.arrays)
        if not np.isfinite(values).all():
            raise FloatingPointError("A sum is not finite in double precision; nothing was released.")
        for sums, spacing in zip(values, self._lattice(nugget), strict=True):
            sums[...] = to_lattice(sums, spacing)
        return KernelSumRelease(
            certificate=certificate,
            mechanism=self,
            value_sums=values[: len(self._ranges)],
            density=values[-1] if self.density else None,
        )

    # --- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        assert isinstance(self.kernels, tuple)
        return self.kernels

    @property
    def _ranges(self) -> tuple[tuple[float, float], ...]:
        return self.response_ranges  # pyright: ignore[reportReturnType]

    @property
    def _centres(self) -> tuple[float, ...]:
        assert self.centres is not None
        return self.centres

    @cached_property
    def _places(self) -> Places:
        """The locations as the kernels see them."""
        assert self.locations is not None
        points = self._kernel_coordinates(self.locations)
        return points if self.grid is None else Grid.of(points, self.grid)

    @cached_property
    def _noise(self) -> tuple[Field, ...]:
        """The field of each kernel; its factor is public and kept for the next release."""
        return tuple(stationary_field(each, self._places) for each in self._kernels)

    @property
    def _noise_scales(self) -> tuple[float, ...]:
        """The noise of each array: the columns, and the density if it is released."""
        return (*self.scales, self.scale)[: self.arrays]

    def _lattice(self, nugget: float) -> tuple[float, ...]:
        """Spacing of the public lattice of each array: at most 1/64 of the standard deviation of its nugget.

        Rounding to it is post-processing (``docs/proofs/lattice-rounding.md``).
        """
        return tuple(lattice_spacing(scale * math.sqrt(nugget)) for scale in self._noise_scales)

    @cached_property
    def _rounding_of_one(self) -> float:
        """What each record adds to the rounding of two data sets' sums, in units of the noise."""
        errors = (sum_rounding(each, self._places, 1, self.density_bound) for each in self._kernels)
        return 2.0 * math.sqrt(self.arrays) * math.hypot(*errors)

    @cached_property
    def _digest(self) -> str:
        assert self.locations is not None
        text = json.dumps(self._sum_parameters(), sort_keys=True)
        return hashlib.sha256(text.encode() + self.locations.tobytes()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__}  # without the factors

    def _unit_mu(self, n: int | None) -> float:
        """mu at scale 1: that of the exact sums, and what rounding adds."""
        rounding = self._sum_rounding(n) / math.sqrt(_KEPT * self.effective_nugget(n))
        return (self._exact_mu() + rounding) * (1.0 + 1e-14)

    def _exact_mu(self) -> float:
        """mu of the exact sums at scale 1; the kernels compose, mu in squares."""
        return self.density_bound * math.hypot(
            *(
                sensitivity(
                    self.neighbours,
                    columns=len(self._ranges),
                    density=self.density,
                    negative=self._negative(each),
                    contributions=self.contributions,
                )
                for each in self._kernels
            )
        )

    def _negative(self, kernel: Kernel) -> float:
        """t with k >= -t on the domain; 1, which always holds, for a kernel that brings no bound of its own."""
        proved = type(kernel) in KERNELS.values() or type(kernel).least_value is not Kernel.least_value
        return max(0.0, -kernel.least_value(self._kernel_domain())) if proved else 1.0

    def _sum_rounding(self, n: int | None) -> float:
        """How far two data sets' computed sums may lie further apart than the exact ones, in units of the noise."""
        if self.n_is_public and (n is None or n < 0 or int(n) != n):
            raise ValueError(f"The number of records is public here: give it as n, a whole number; got {n!r}.")
        return (int(n) if self.n_is_public and n is not None else self.most_records) * self._rounding_of_one

    def _sum_parameters(self) -> dict[str, Any]:
        """The public parameters on which the sums without noise depend."""
        return {
            "kernels": [{"name": each.name} | vars(each) for each in self._kernels],
            "coordinates": self.coordinates,
            "domain": {"lower": list(self.domain.lower), "upper": list(self.domain.upper)},
            "response_ranges": [list(each) for each in self._ranges],
            "centres": list(self._centres),
            "response_bounds": list(self.response_bounds),
            "density": bool(self.density),
            "locations": size(self._places),
            "grid": None if self.grid is None else list(self.grid),
            "axes": self._own_axes(),
        }

    def _own_axes(self) -> list[list[float]] | None:
        """The axes of a grid other than the domain's own of that shape."""
        assert self.locations is not None
        if self.grid is None or np.array_equal(self.locations, self.domain.grid(self.grid)):
            return None
        return [axis.tolist() for axis in Grid.of(self.locations, self.grid).axes]

    def _kernel_domain(self) -> Box:
        return self.domain if self.coordinates == "data" else self.domain.unit_domain

    def _kernel_coordinates(self, X: Floats) -> Floats:
        return X if self.coordinates == "data" else self.domain.unit(X)

    def _nothing(self) -> PartialSums:
        shape = (self.arrays, len(self._kernels), size(self._places))
        return PartialSums(np.zeros(shape), np.zeros(shape), 0, self._digest)

    def _own(self, partial: PartialSums) -> PartialSums:
        if partial.made_by != self._digest:
            raise PublicError("These partial sums were made with other public parameters; make them anew.")
        return partial

    def _check_number(self, n: int) -> None:
        """The domain is the data sets of at most `most_records` records."""
        if n > self.most_records:
            raise PublicError(f"There are more than the declared {self.most_records:,} records; declare more.")

    def _checked(self, records: Any) -> tuple[Floats, Floats]:
        """Covariates (n, d) and responses (n, columns), finite and cut to `contributions`; errors name no value."""
        X, Y = checked_records(records, self.domain.dimension, len(self._ranges))
        units = getattr(records, "units", None)
        if units is None:
            return X, Y
        if np.shape(units) != (len(X),):
            raise PublicError("units must name the owner of each record: one for one, in one dimension.")
        kept = limit_contributions(units, self.contributions, np.column_stack([X, Y]))
        return X[kept], Y[kept]


def _are_records(records: Any) -> bool:
    return hasattr(records, "covariates") and hasattr(records, "response")


@dataclass(frozen=True, eq=False, repr=False)
class KernelSumRelease(Release):
    """Released kernel sums: public values at public locations, and their certificate.

    Attributes
    ----------
    certificate : Certificate
    mechanism : KernelSumMechanism
        The public parameters.
    value_sums : array (columns, kernels, m)
        h = sum_i (y_i - c) k(x_i, .) plus noise of standard deviation ``mechanism.scales``.
    density : array (kernels, m) or None
        d = M sum_i k(x_i, .) plus noise of standard deviation ``mechanism.scale``, M = ``mechanism.density_bound``.
    """

    mechanism: KernelSumMechanism
    value_sums: Floats
    density: Floats | None

    @property
    def locations(self) -> Floats:
        """The public locations, shape (m, d), in data units."""
        assert self.mechanism.locations is not None
        return self.mechanism.locations

    def on_grid(self) -> tuple[Floats, Floats | None]:
        """Value sums (columns, kernels, *grid) and density (kernels, *grid) on the mechanism's grid.

        ValueError where they were released at scattered locations.
        """
        grid = self.mechanism.grid
        if grid is None:
            raise ValueError("These sums were released at scattered locations; give the mechanism a grid.")
        density = None if self.density is None else self.density.reshape(-1, *grid)
        return self.value_sums.reshape(*self.value_sums.shape[:2], *grid), density

    def noise_variance(self, threshold: float | None = None, column: int = 0) -> float:
        """Variance of the noise in ``h + (c - threshold) d / M``, the sum of the responses less the threshold.

            s_j^2 + s^2 ((c_j - threshold) / M)^2,      s_j^2 without a threshold

        Its covariance is this times ``k + nugget``.

        Raises
        ------
        ValueError
            For a threshold other than the centre where the density was not released.
        """
        mechanism = self.mechanism
        shift = 0.0 if threshold is None else mechanism._centres[column] - float(threshold)
        if shift and self.density is None:
            raise ValueError("Another threshold than the centre needs the density, which was not released.")
        return mechanism.scales[column] ** 2 + (mechanism.scale * shift / mechanism.density_bound) ** 2
