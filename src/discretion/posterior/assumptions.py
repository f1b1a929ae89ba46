"""What is assumed of the records, and which bounds of the mean sensitivity it opens.

An assumption is a frozen value holding public numbers. It says in plain sentences which part of it the
release pipeline enforces (clipping, the domain) and which part is only declared by the user and void if
false. Covariates and responses are private under every assumption but :class:`ResponseOnly`.

For whole-record privacy an assumption lists named bounds of the mean sensitivity and one bound of the
posterior mean; the account takes the smallest of all the resulting costs at every order. All of them are
proved; the proof notes are named in :mod:`discretion.posterior.sensitivity`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from discretion.gp.domain import EPS
from discretion.gp.kernels import Diagonal as DiagonalKernel
from discretion.gp.kernels import Exponential, Kernel
from discretion.posterior import sensitivity
from discretion.posterior.sensitivity import Array, checked, checked_count, posterior_variance_bound
from discretion.privacy.loss import Neighbours


class Assumption(ABC):
    """What is assumed of the records.

    ``name`` is its short name in certificates, ``neighbours`` the relation its account is for, ``survives_clamping``
    whether it still holds after places outside the domain are moved to its border.
    """

    name: ClassVar[str]
    neighbours: ClassVar[Neighbours] = Neighbours.REPLACE
    survives_clamping: ClassVar[bool] = True

    @property
    @abstractmethod
    def enforced(self) -> tuple[str, ...]:
        """Sentences: what the pipeline makes true, record by record."""

    @property
    @abstractmethod
    def declared(self) -> tuple[str, ...]:
        """Sentences: what is taken on trust."""

    def variance_bound(self, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike) -> Array:
        """Bound V of the posterior variance that ``n - 1`` records leave, (3)."""
        return posterior_variance_bound(n, ridge, least_kernel)

    def check(self, kernel: Kernel, dimension: int) -> None:
        """Raise ValueError if the assumption does not fit this kernel on this many covariates."""
        del kernel, dimension  # by default every kernel fits


class RecordAssumption(Assumption):
    """An assumption under which a whole record (covariates and response) is private."""

    @property
    @abstractmethod
    def largest_response(self) -> float:
        """M: no response is larger in absolute value, measured from the public centre."""

    def sensitivities(self, n: Array, ridge: Array, variance: Array) -> dict[str, Array]:
        """Valid bounds of the mean sensitivity by name; ``variance`` is the bound V."""
        bound = self.largest_response
        half = sensitivity.mean_sensitivity_bounded_mean(ridge, bound, self.mean_bound(n, ridge, variance))
        return {
            "(4.2) operator": sensitivity.mean_sensitivity_operator(n, variance, ridge, bound),
            "(4.3) coupled": sensitivity.mean_sensitivity_coupled(n, variance, ridge, bound),
            "(4.4) bounded mean": half,
        }

    def mean_bound(self, n: Array, ridge: Array, variance: Array) -> Array:
        """Bound b of the absolute posterior mean of n records at the two records that differ."""
        return sensitivity.mean_bound(n, variance, ridge, self.largest_response)

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        """The mean sensitivity as Maciazek 2026 has it, and his bound of ``sup |mu_D - mu_D'|``; for comparison.

        Lemma B.1, ``(M/r) (1 + sqrt(n-1) / (2r))``, unless an assumption has a corollary of its own.
        """
        del variance
        return sensitivity.mean_sensitivity_simple(n, np.square(ridge), ridge, self.largest_response), math.inf


_KERNEL_PUBLIC = "Domain, range, kernel, ridge, scale and locations were not chosen by looking at these records."


@dataclass(frozen=True)
class Bounded(RecordAssumption):
    """Responses in ``[-M, M]`` about a public centre; ``response_bound`` is M, finite and at least 0."""

    response_bound: float
    name: ClassVar[str] = "bounded"

    def __post_init__(self) -> None:
        _store(self, response_bound=self.response_bound)

    @property
    def largest_response(self) -> float:
        return self.response_bound

    @property
    def enforced(self) -> tuple[str, ...]:
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        return (_KERNEL_PUBLIC,)


@dataclass(frozen=True)
class RKHS(RecordAssumption):
    """Responses are one fixed function of RKHS norm at most ``norm``, plus noise in ``[-noise, noise]``.

    A record off the graph of that function gets no guarantee, and clipping cannot enforce membership: the
    assumption is for users who know why it holds. Since the kernel is 1 on the diagonal, ``norm + noise``
    bounds the responses and the generic bounds apply as well.
    """

    norm: float
    noise: float = 0.0
    name: ClassVar[str] = "rkhs"
    survives_clamping: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _store(self, norm=self.norm, noise=self.noise)

    @property
    def largest_response(self) -> float:
        return self.norm + self.noise

    def sensitivities(self, n: Array, ridge: Array, variance: Array) -> dict[str, Array]:
        graph = sensitivity.mean_sensitivity_rkhs(n, variance, ridge, self.norm, self.noise)
        return {"(4.6) RKHS": graph, **super().sensitivities(n, ridge, variance)}

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        noise = sensitivity.mean_sensitivity_simple(n, np.square(ridge), ridge, self.noise)
        return self.norm * variance / (np.square(ridge) + variance) + noise, math.inf

    @property
    def enforced(self) -> tuple[str, ...]:
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        noise = f" plus noise of at most {self.noise:g}" if self.noise else ""
        return (
            _KERNEL_PUBLIC,
            "The responses of all records, before and after a change of one, are values of one fixed "
            f"function of RKHS norm at most {self.norm:g}{noise}. A record for which this is false gets no "
            "guarantee.",
            f"Clipping changed no response: the range reaches {self.largest_response:g} from its centre.",
        )


@dataclass(frozen=True)
class Separated(RecordAssumption):
    """Responses in ``[-M, M]``; in every data set two covariates are at least ``separation`` apart.

    ``response_bound`` is M > 0, ``dimension`` the number of covariates, ``separation`` > 0 in their unit. ``packing``
    is R, a bound of the sum of the absolute kernel from one record to all others; use :meth:`for_kernel` to have it
    computed. Where ``R >= 1 + ridge^2`` only the generic bounds remain.
    """

    response_bound: float
    separation: float
    dimension: int
    packing: float
    name: ClassVar[str] = "separated"
    survives_clamping: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _store(self, response_bound=self.response_bound)
        object.__setattr__(self, "separation", float(checked("separation", self.separation)))
        object.__setattr__(self, "dimension", int(checked_count("dimension", self.dimension)))
        object.__setattr__(self, "packing", float(checked("packing", self.packing, strict=False, finite=False)))

    @classmethod
    def for_kernel(cls, kernel: Kernel, response_bound: float, separation: float, dimension: int) -> Self:
        """The assumption with ``packing`` computed from the kernel (:func:`~.sensitivity.packing_sum`)."""
        packing = sensitivity.packing_sum(kernel, separation, dimension)
        return cls(response_bound, separation, dimension, packing)

    def rounded(self, kernel: Kernel, farthest: float) -> Self:
        """The assumption for coordinates as they are computed, up to ``farthest`` length scales from 0.

        Divided coordinates are rounded, so that records may come nearer than ``separation`` by a few units in the last
        place of the farthest one; ``packing`` allows for that.

        Raises
        ------
        ValueError
            If that is half of the separation or more.
        """
        longest = float(np.max(kernel.length_scale))
        nearer = self.separation - 4.0 * EPS * math.sqrt(self.dimension) * farthest * longest
        if nearer <= 0.5 * self.separation:
            raise ValueError(
                f"A separation of {self.separation:g} is not much more than the rounding of coordinates so far from 0; "
                "subtract a public origin from them."
            )
        packing = sensitivity.packing_sum(kernel, nearer, self.dimension)
        return replace(self, packing=max(self.packing, packing))

    @property
    def largest_response(self) -> float:
        return self.response_bound

    def sensitivities(self, n: Array, ridge: Array, variance: Array) -> dict[str, Array]:
        apart = sensitivity.mean_sensitivity_separated(self.packing, variance, ridge, self.response_bound)
        return {"(4.7) separated": apart, **super().sensitivities(n, ridge, variance)}

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        return sensitivity.mean_sensitivity_separated(self.packing, variance, ridge, self.response_bound), math.inf

    def mean_bound(self, n: Array, ridge: Array, variance: Array) -> Array:
        apart = sensitivity.separated_mean_bound(self.packing, ridge, self.response_bound)
        return np.minimum(apart, super().mean_bound(n, ridge, variance))

    def check(self, kernel: Kernel, dimension: int) -> None:
        if dimension != self.dimension:
            raise ValueError(f"Separated was declared for {self.dimension} covariate(s), not {dimension}.")
        needed = sensitivity.packing_sum(kernel, self.separation, dimension)
        if self.packing < needed * (1.0 - 1e-9):
            raise ValueError(
                f"packing {self.packing:g} is below the {needed:g} that this kernel can reach at separation "
                f"{self.separation:g}; use Separated.for_kernel."
            )

    @property
    def enforced(self) -> tuple[str, ...]:
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        return (
            _KERNEL_PUBLIC,
            f"No two records are closer than {self.separation:g} in kernel units, before and after a change of one.",
        )


@dataclass(frozen=True)
class Exponential1D(RecordAssumption):
    """Responses in ``[-M, M]``, one covariate, exponential kernel: the mean stays in ``[-M, M]``.

    ``response_bound`` is M, a positive finite number in the unit of the response; ValueError otherwise.
    """

    response_bound: float
    name: ClassVar[str] = "exponential-1d"

    def __post_init__(self) -> None:
        _store(self, response_bound=self.response_bound)

    @property
    def largest_response(self) -> float:
        return self.response_bound

    def sensitivities(self, n: Array, ridge: Array, variance: Array) -> dict[str, Array]:
        line = sensitivity.mean_sensitivity_exponential_1d(variance, ridge, self.response_bound)
        return {"(4.8) exponential on a line": line, **super().sensitivities(n, ridge, variance)}

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        bound = self.response_bound
        return 4.0 * bound * np.sqrt(sensitivity.phi(variance, ridge)), 2.0 * bound

    def mean_bound(self, n: Array, ridge: Array, variance: Array) -> Array:
        return np.minimum(self.response_bound, super().mean_bound(n, ridge, variance))

    def check(self, kernel: Kernel, dimension: int) -> None:
        if not isinstance(kernel, Exponential) or dimension != 1:
            raise ValueError(
                "Exponential1D needs the exponential kernel on one covariate; got the "
                f"{kernel.name} kernel on {dimension}. Use Bounded(response_bound) instead."
            )

    @property
    def enforced(self) -> tuple[str, ...]:
        return ("The kernel is the exponential kernel on one covariate.",)

    @property
    def declared(self) -> tuple[str, ...]:
        return (_KERNEL_PUBLIC,)


@dataclass(frozen=True)
class Diagonal(RecordAssumption):
    """Responses in ``[-M, M]``, diagonal kernel: records share nothing unless their covariates agree.

    ``response_bound`` is M, a positive finite number in the unit of the response; ValueError otherwise.
    """

    response_bound: float
    name: ClassVar[str] = "diagonal"

    def __post_init__(self) -> None:
        _store(self, response_bound=self.response_bound)

    @property
    def largest_response(self) -> float:
        return self.response_bound

    def variance_bound(self, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike) -> Array:
        """1: an unoccupied point keeps its prior variance, whatever the declared least kernel."""
        return posterior_variance_bound(n, ridge, np.zeros_like(np.asarray(least_kernel, dtype=np.float64)))

    def sensitivities(self, n: Array, ridge: Array, variance: Array) -> dict[str, Array]:
        apart = sensitivity.mean_sensitivity_diagonal(ridge, self.response_bound)
        return {"(4.9) diagonal": apart, **super().sensitivities(n, ridge, variance)}

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        return sensitivity.mean_sensitivity_diagonal(ridge, self.response_bound), math.inf

    def mean_bound(self, n: Array, ridge: Array, variance: Array) -> Array:
        return self.response_bound * n / (n + np.square(ridge))

    def check(self, kernel: Kernel, dimension: int) -> None:
        if not isinstance(kernel, DiagonalKernel):
            raise ValueError(
                f"Diagonal needs the diagonal kernel; got the {kernel.name} kernel. "
                "Use Bounded(response_bound) instead."
            )

    @property
    def enforced(self) -> tuple[str, ...]:
        return ("The kernel is the diagonal kernel.",)

    @property
    def declared(self) -> tuple[str, ...]:
        return (_KERNEL_PUBLIC,)


@dataclass(frozen=True)
class ResponseOnly(Assumption):
    """Responses in ``[-M, M]`` are private; the covariates of all records are public. Exact Gaussian DP.

    ``response_bound`` is M, a positive finite number in the unit of the response; ValueError otherwise.
    """

    response_bound: float
    name: ClassVar[str] = "response-only"
    neighbours: ClassVar[Neighbours] = Neighbours.REPLACE_RESPONSE

    def __post_init__(self) -> None:
        _store(self, response_bound=self.response_bound)

    @property
    def enforced(self) -> tuple[str, ...]:
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        return (_KERNEL_PUBLIC, "The covariates of all records are public: only responses are protected.")


def _store(assumption: Assumption, **bounds: float) -> None:
    """Store checked non-negative finite numbers in a frozen assumption."""
    for label, value in bounds.items():
        number = float(checked(label, value, strict=False))
        assert math.isfinite(number)
        object.__setattr__(assumption, label, number)
