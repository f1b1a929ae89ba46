"""Posterior sample paths on a public graph as a mechanism.

    f_D ~ N(mu_D, scale^2 C_D),   C_D = (P + diag(m) / ridge^2)^{-1},   mu_D = C_D t / ridge^2

with counts m and sums t of the records of each node. The posterior's own randomness is the noise; there is no nugget:
the computed covariance is that of the posterior to a public relative error in every direction
(``docs/proofs/lattice-floor.md``), or the mechanism is refused. What rounding adds to the mean is in the account.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discretion.gp.lattice import Lattice
from discretion.gp.precision import factor_rounding
from discretion.gp.sparse import Statistics, node_statistics
from discretion.posterior.calibration import least_on_grid
from discretion.posterior.lattice_account import LatticeAccount, LatticeAddRemove
from discretion.posterior.lattice_release import LatticeRelease
from discretion.posterior.mechanism import PUBLIC_NUMBER, PUBLIC_SHARE
from discretion.posterior.records import PrivateRecords, checked_records
from discretion.posterior.sensitivity import checked
from discretion.posterior.units import check_owners, unit_assumptions
from discretion.privacy import (
    Certificate,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    group_loss,
    round_up_significant,
)
from discretion.privacy.calibration import Unreachable, smallest
from discretion.privacy.frames import cleared
from discretion.privacy.group import MOST_IN_A_GROUP
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import quiet

__all__ = ["LatticeMechanism"]

Array = NDArray[np.float64]

MOST_RECORDS = 2**23
"""Sums of so many responses, rounded to 2^-30, are exact."""

RULES = ("renyi", "closed-form")

_STEPS = 2.0**30
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class LatticeMechanism:
    """Release ``paths`` posterior sample paths at every node of a public graph.

    Every field is public and is fixed before a record is read.

    Parameters
    ----------
    lattice : Lattice
        The graph and its prior. A record belongs to one node, by the lattice's rule; points outside go to the nearest.
    response_range : (low, high)
        Public range of the response. Responses are clipped to it, one by one.
    ridge : float
        r > 0: the noise variance of a record is ``ridge^2 scale^2``, where the prior variance of a node is at most
        ``scale^2``. About the square root of the number of records within one length of the field serves maps of
        values.
    scale : float
        Posterior scale sigma > 0, in units of the response.
    delta : float
        At which the certificate states epsilon.
    paths : int
        Number of independent paths from the same records.
    centre : float, optional
        Public prior mean; the middle of ``response_range`` by default.
    neighbours : {"replace", "add-remove"}
        One record replaced by another, n public; or one more or fewer, n private.
    most_records : int
        Public bound of the number of records where n is private, at most 2^23: larger sets are refused.
    rule : {"renyi", "closed-form"}
        What prices the paths where n is public: certified in seconds, or a closed form at once.
    contributions : int
        Records of one unit of privacy that may be among the records (`discretion.privacy.group_loss`).
    unit : str, optional
        The unit of privacy in words.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    lattice: Lattice
    response_range: tuple[float, float]
    ridge: float
    scale: float
    delta: float
    paths: int = 1
    centre: float | None = None
    neighbours: Neighbours = Neighbours.REPLACE
    most_records: int = 1_000_000
    rule: str = "renyi"
    contributions: int = 1
    unit: str | None = None

    name = "lattice-posterior-paths"

    def __post_init__(self) -> None:
        low, high = (float(end) for end in self.response_range)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
        for label, value in (("ridge", self.ridge), ("scale", self.scale)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{label} must be a positive finite number; got {value!r}.")
        for label, count, most in (
            ("paths", self.paths, 10**6),
            ("most_records", self.most_records, MOST_RECORDS),
            ("contributions", self.contributions, MOST_IN_A_GROUP),
        ):
            if isinstance(count, bool) or int(count) != count or not 1 <= count <= most:
                raise ValueError(f"{label} must be a whole number from 1 to {most:,}; got {count!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        centre = 0.5 * (low + high) if self.centre is None else float(self.centre)
        if not low <= centre <= high:
            raise ValueError(f"centre must lie in response_range [{low}, {high}]; got {centre!r}.")
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}; got {self.rule!r}.")
        relation = Neighbours(self.neighbours)
        if relation not in (Neighbours.REPLACE, Neighbours.ADD_REMOVE):
            raise ValueError(f"Lattice paths have no account under {relation.value!r} neighbours.")
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit.strip()):
            raise ValueError("unit must say in words what one record is, or be left out.")
        object.__setattr__(self, "response_range", (low, high))
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "neighbours", relation)

    @classmethod
    def calibrated(cls, *, n: int | None = None, epsilon: float, delta: float, **parameters: Any) -> Self:
        """The mechanism with the smallest ``scale`` (to 0.1 per cent) whose whole loss is at most ``(epsilon, delta)``.

        ``n`` is the public number of records; not used where it is private. ``parameters`` are the other fields.

        Raises
        ------
        ValueError
            If no scale meets the target (the covariance alone costs more); the message says what to change.
        """
        trial = cls(scale=1.0, delta=delta, **parameters)
        # A billionth below the target, so that the loss as a ledger stores it, rounded up, meets it too.
        target = float(checked("epsilon", epsilon)) * (1.0 - 1e-9)

        def price(scale: float) -> float:
            loss = replace(trial, scale=scale).privacy_loss(n)
            return max(loss.epsilon(delta), PrivacyLoss.from_dict(loss.to_dict(delta)).epsilon(delta))

        unit = trial.response_bound
        if trial.n_is_public and trial.rule == "renyi" and trial.contributions == 1:
            account = trial._account(trial._count(n))
            assert isinstance(account, LatticeAccount)
            start = account.calibrate(target, delta, int(trial.paths))
        else:

            def cost(scale: float) -> float:
                return replace(trial, scale=scale).privacy_loss(n).epsilon(delta)

            try:
                start = smallest(lambda scale: cost(scale) <= target, 1e-6 * unit, 1e6 * unit, relative_tolerance=1e-2)
            except Unreachable:
                raise Unreachable(
                    f"epsilon {float(epsilon):g} at delta {delta:g} cannot be reached by any scale: at ridge "
                    f"{trial.ridge:g} the covariance alone costs more. Raise the ridge, or release fewer paths."
                ) from None
        return replace(trial, scale=least_on_grid(price, target, start))

    # --- what it costs, from public parameters alone ---

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public: everywhere but under add/remove."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    @property
    def response_bound(self) -> float:
        """Largest distance M of the range's ends from the centre."""
        low, high = self.response_range
        return max(high - self._centre, self._centre - low)

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What one run on n records costs; reads no record. ``n`` is not used where it is private."""
        count, paths = self._count(n), int(self.paths)
        account, rounding = self._account(count), self.rounding(count)
        if isinstance(account, LatticeAddRemove):
            one = account.loss(self.scale, rounding)
        elif self.rule == "renyi":
            one = account.loss(self.scale, self.delta, paths, rounding)
        else:
            one = account.closed_form(self.scale, rounding)
        return group_loss(paths * one, int(self.contributions))

    @cached_property
    def factor_error(self) -> float:
        r"""q, the size of the rounding in a factor of ``A = P + diag(m) / r^2``, the same for all counts m.

        `discretion.gp.precision.factor_rounding`; the computed noise has covariance ``sigma^2 / A~`` exactly.

        Raises
        ------
        ValueError
            If the condition is not met: nothing is known of what double precision leaves of the noise.
        """
        lattice = self.lattice
        q, s = factor_rounding(lattice.precision, lattice.factor, lattice.row_sums)
        if not q * s <= 1.0 / 200.0:
            raise ValueError(
                f"This prior is too near to a singular one for double precision (condition {s:.3g} on "
                f"{lattice.size:,} nodes): noise could drown in rounding. Raise its killing, or lower share."
            )
        return q

    def rounding(self, n: int) -> float:
        r"""How far the computed mean may be from the exact one, in standard deviations of the path's own noise.

        .. math::

            \lVert C_D^{-1/2} (\hat\mu - \mu) \rVert / \sigma \le \frac M\sigma \frac{\sqrt n}{r} (5 q + 2u)

        Proof in ``docs/proofs/lattice-floor.md``.
        """
        most = 5.0 * self.factor_error + 2.0 * _UNIT
        return 1.01 * most * math.sqrt(n) / self.ridge * self.response_bound / self.scale

    def spacing(self, n: int) -> float:
        """Released values are multiples of this power of two: at most 1/64 of the least noise of any combination."""
        largest = float(abs(self.lattice.precision).sum(axis=1).max()) + n / self.ridge**2
        return lattice_spacing(self.scale / math.sqrt(largest))

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON-able values."""
        return {
            **self.lattice.words,
            "unit_of_variance": self.lattice.unit,
            "response_range": list(self.response_range),
            "centre": self._centre,
            "response_bound": self.response_bound,
            "ridge": float(self.ridge),
            "scale": float(self.scale),
            "paths": int(self.paths),
            "neighbours": self.neighbours.value,
            "most_records": None if self.n_is_public else int(self.most_records),
            "rule": self.rule,
            "contributions": int(self.contributions),
        }

    def certificate(self, n: int | None, randomness: Randomness, *, limited: bool = False) -> Certificate:
        """The certificate of one run; it names n only where n is public. ``limited``: contributions were checked."""
        low, high = self.response_range
        unit = self.unit_in_words
        checked, declared = unit_assumptions(unit, int(self.contributions), limited=limited)
        public = (PUBLIC_NUMBER,) if self.n_is_public else ()
        public += (PUBLIC_SHARE,) if self.n_is_public and self.contributions > 1 else ()
        cap = () if self.n_is_public else (f"There are at most {self.most_records:,} records.",)
        return Certificate.issue(
            self,
            n=n if self.n_is_public else None,
            delta=self.delta,
            unit=unit,
            randomness=randomness,
            loss=self.privacy_loss(n),
            enforced=(
                f"Responses are clipped to [{low:g}, {high:g}] and rounded to 2^-30 of it, record by record.",
                "Each record belongs to one node of the public graph, by a public rule.",
                "The precision of the prior is an M-matrix with non-negative row sums and killing in every component.",
                "Released values are rounded to the multiples of a public power of two.",
                *cap,
                *checked,
            ),
            declared=(
                "Graph, precision, range, ridge, scale and delta were not chosen by looking at these records.",
                *declared,
            ),
            limits=(
                *public,
                "Floating point: the proof is for exact Gaussians. Every direction keeps its noise to a relative "
                f"{round_up_significant(4.0 * self.factor_error, 2)}, and a lattice of values hides last bits; epsilon "
                "counts the rounding of the mean, not that of the covariance.",
            ),
        )

    @cleared
    @quiet()
    def check(self, records: PrivateRecords) -> int | None:
        """How many records there are, None where that is private. Spends nothing.

        Raises
        ------
        PublicError
            For wrong shapes, values that are not finite, more records than declared; names shapes and rows only.
        """
        found = len(self._checked(records)[0])
        return found if self.n_is_public else None

    def _checked(self, records: PrivateRecords) -> tuple[NDArray[np.int64], Array]:
        """The node of each record, and its response."""
        X, Y = checked_records(records, self.lattice.dimension)
        most = MOST_RECORDS if self.n_is_public else self.most_records
        if len(X) > most:
            raise PublicError(f"There are more than {most:,} records; declare more, up to {MOST_RECORDS:,}.")
        check_owners(getattr(records, "units", None), len(X), self.contributions)
        return self.lattice.node(X), Y[:, 0]

    # --- the release ---

    @cleared
    def statistics(self, records: PrivateRecords) -> Statistics:
        """PRIVATE. Counts and sums of the nodes; responses count from the centre, in units of the response bound."""
        node, y = self._checked(records)
        response = (np.clip(y, *self.response_range) - self._centre) / self.response_bound
        return node_statistics(node, np.rint(response * _STEPS) / _STEPS, self.lattice.size)

    @cleared
    @quiet()
    def run(self, records: PrivateRecords, randomness: Randomness) -> LatticeRelease:
        """Draw the paths. Called by the ledger after the loss is reserved."""
        held = self.statistics(records)
        n = int(held.counts.sum())
        mean, factor = held.posterior(self.lattice, self.ridge)
        noise = factor.colour(randomness.standard_normal((self.lattice.size, int(self.paths))))
        values = self._centre + (self.response_bound * mean[:, None] + self.scale * noise).T
        limited = getattr(records, "units", None) is not None
        pairs, conductances = self.lattice.links
        return LatticeRelease(
            certificate=self.certificate(n, randomness, limited=limited),
            values=to_lattice(values, self.spacing(self._count(n))),
            centre=self._centre,
            locations=self.lattice.locations,
            pairs=pairs,
            conductances=conductances,
        )

    # --- helpers ---

    @property
    def _centre(self) -> float:
        assert self.centre is not None
        return self.centre

    def _count(self, n: int | None) -> int:
        """The number of records that constants are made for: n where it is public, else the most there may be."""
        if not self.n_is_public:
            return int(self.most_records)
        if n is None:
            raise ValueError("The number of records is public here: give it as n.")
        return int(n)

    def _account(self, n: int) -> LatticeAccount | LatticeAddRemove:
        """Keeps what the graph and the ridge give, for one n."""
        one = LatticeAccount if self.n_is_public else LatticeAddRemove
        return one(self.lattice, n, float(self.ridge), self.response_bound)

    @property
    def unit_in_words(self) -> str:
        """The unit of privacy, as certificates and ledgers have it."""
        if self.unit:
            return self.unit
        one = self.contributions == 1
        return "one record (its place and its response)" if one else f"any {self.contributions:,} records"
