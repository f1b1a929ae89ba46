"""Gaussian-process Thompson sampling as a mechanism: what is public, what a run costs, what it releases.

Round t draws a path from the posterior given the records told so far and plays the action where it is highest. What
leaves is the actions. `docs/proofs/thompson.md`; Maciazek 2026, Proposition 6 and Appendix B.4.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box, Exponential, Kernel, mean_rounding, nugget_floor, ridge_floor
from discretion.gp.candidates import MARGIN, candidate_rounding
from discretion.gp.climb import Climb
from discretion.posterior.assumptions import Bounded, Exponential1D, RecordAssumption
from discretion.posterior.thompson_account import (
    RULES,
    ChowdhuryGopalan,
    Draws,
    greedy_information_gain,
    record_loss,
    response_loss,
    smallest_scale,
)
from discretion.posterior.thompson_release import ThompsonRelease
from discretion.privacy import Certificate, Neighbours, PrivacyLoss, PublicError, Randomness
from discretion.privacy.delta import UNSTATED
from discretion.privacy.frames import cleared
from discretion.privacy.units import each_row

__all__ = ["Responses", "ThompsonMechanism"]

Floats = NDArray[np.float64]

_NUGGET = 1e-6
_REACH = 8.0  # length scales around the actions

WHAT = (
    "What leaves is the actions alone: no path, no posterior mean, no response, no best value.",
    "Without a ledger: that a run is taken up from an older copy of its files.",
    "Floating point: the proof is for exact Gaussians. Epsilon counts the rounding of the means; that of the noise "
    "after it is drawn is not counted.",
    "Other runs on the same records, such as those that chose kernel, ridge or schedule: each costs as much again.",
)
_CLAMPED = "Covariates are clamped to 8 length scales around the actions, record by record."
_COVARIANCE = (
    "Under private covariates rounding of the covariance depends on them; the nugget covers it, epsilon does not."
)


@dataclass(frozen=True, eq=False)
class Responses:
    """PRIVATE. What `ThompsonMechanism.run` runs on.

    Args:
        respond: called with the actions of a round, (batch, d); returns their responses (batch,), or where covariates
            are private a pair of covariates (batch, d) and responses.
        n: the public number of records, `mechanism.records`.
        history: covariates and responses told before the first round, if there are any.
    """

    respond: Callable[[Floats], Any]
    n: int
    history: tuple[Floats, Floats] | None = None

    def __repr__(self) -> str:
        return "Responses(PRIVATE)"


@dataclass(frozen=True, eq=False, repr=False)
class ThompsonMechanism:
    """The public parameters of a run of Gaussian-process Thompson sampling. All are fixed before a record is read.

    Parameters
    ----------
    kernel : Kernel
        Unit diagonal.
    actions : Box or array (m, d)
        What may be played. The kernel sees candidates as they are, and a box scaled to the unit cube.
    response_range : (low, high)
        Responses are clipped to it, one by one.
    rounds : int
        T, fixed in advance: it is never extended.
    schedule : float, callable or ChowdhuryGopalan
        Posterior scales sigma_t: a constant, a function of the round t = 1, ..., T, or the schedule with a regret
        bound. The noise variance of a response is ``ridge^2 sigma_t^2``.
    delta : float
        The delta at which the certificate states epsilon; by default that of the ledger that pays, else 1e-5.
    ridge : float, optional
        r, the same in all rounds; ``sqrt(1 + 2/T)`` by default (Chowdhury and Gopalan 2017).
    batch : int
        Actions a round, each from a path of its own.
    history : int
        Records told before the first round; public. Without, the first round reads nothing and is free.
    private : {"responses", "records"}
        Whether a record's covariate is its action, which is public, or private as well: measured elsewhere than asked.
    centre : float, optional
        Public prior mean; the middle of the range by default.
    nugget : float, optional
        Public variance, in units of ``sigma_t^2``; 1e-6 by default, or more where sizes require it.
    climb : Climb
        How a path over a box is searched. Privacy needs no highest point: it holds for whatever point is played.
    rule : {"closed-form", "renyi"}
        What prices whole records.
    seed : int
        Of the public starts of searches.
    unit : str, optional
        The unit of privacy in words.

    Raises
    ------
    ValueError
        If a parameter is out of range; the message says which and how to mend it.
    """

    kernel: Kernel
    actions: Box | Floats
    response_range: tuple[float, float]
    rounds: int
    schedule: float | Callable[[int], float] | ChowdhuryGopalan
    delta: float = UNSTATED
    ridge: float | None = None
    batch: int = 1
    history: int = 0
    private: str = "responses"
    centre: float | None = None
    nugget: float | None = None
    climb: Climb = field(default_factory=Climb)
    rule: str = "closed-form"
    seed: int = 0
    unit: str | None = None

    name = "gaussian-process-thompson-sampling"
    n_is_public = True

    def __post_init__(self) -> None:
        low, high = self.response_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
        for label, count, least in (
            ("rounds", self.rounds, 1),
            ("batch", self.batch, 1),
            ("history", self.history, 0),
            ("seed", self.seed, 0),
        ):
            if isinstance(count, bool) or int(count) != count or count < least:
                raise ValueError(f"{label} must be a whole number of at least {least}; got {count!r}.")
        ridge = math.sqrt(1.0 + 2.0 / self.rounds) if self.ridge is None else float(self.ridge)
        centre = 0.5 * (low + high) if self.centre is None else float(self.centre)
        if not (math.isfinite(ridge) and ridge > 0 and ridge**2 >= ridge_floor(self.records)):
            raise ValueError(f"ridge must be positive, finite and fit for {self.records} records; got {ridge!r}.")
        if not low <= centre <= high:
            raise ValueError(f"centre must lie in response_range [{low}, {high}]; got {centre!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if self.private not in ("responses", "records"):
            raise ValueError(f"private must be 'responses' or 'records'; got {self.private!r}.")
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}; got {self.rule!r}.")
        if not isinstance(self.actions, Box):
            points = np.array(self.actions, dtype=np.float64)
            if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
                raise ValueError("actions must be a Box, or candidates of shape (m, d), finite.")
            if len(np.unique(points + 0.0, axis=0)) != len(points):
                raise ValueError("Candidates must be different from one another.")
            points += 0.0
            points.flags.writeable = False
            object.__setattr__(self, "actions", points)
        one = self.kernel(np.zeros((1, self.dimension)))  # length scales that do not fit are refused
        if not (one == 1.0).all() or self.kernel.profile(0.0) != 1.0:
            raise ValueError("kernel must have k(x, x) = 1: the price is for that. Divide the responses instead.")
        object.__setattr__(self, "ridge", ridge)
        object.__setattr__(self, "centre", centre)
        _ = self.scales, self.effective_nugget
        if not np.isfinite(self.covariate_range).all():
            raise ValueError("actions and length scale must be of ordinary size; change the unit.")

    def __repr__(self) -> str:
        """The parameters, candidates by their shape."""
        words = {each.name: repr(getattr(self, each.name)) for each in fields(self)}
        if self.candidates is not None:
            words["actions"] = f"<candidates of shape {self.candidates.shape}>"
        return f"{type(self).__name__}({', '.join(f'{name}={word}' for name, word in words.items())})"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or what was pickled: its arrays are as read-only as those it was made from."""
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        vars(self).update(state)

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, **parameters: Any) -> Self:
        """The run with the smallest constant scale that costs at most (epsilon, delta); `parameters` are the others.

        Raises
        ------
        ValueError
            If no scale does; the message says what to change.
        """
        target = epsilon * (1.0 - 1e-9)  # so that the loss as a ledger stores it, rounded up, meets it too
        found = smallest_scale(lambda scale: cls(schedule=scale, delta=delta, **parameters).loss, target, delta)
        return cls(schedule=found, delta=delta, **parameters)

    # --- public facts

    @property
    def candidates(self) -> Floats | None:
        """The candidates (m, d); None for a box."""
        return None if isinstance(self.actions, Box) else self.actions

    @property
    def dimension(self) -> int:
        """Number of coordinates of an action."""
        return self.actions.dimension if isinstance(self.actions, Box) else self.actions.shape[1]

    @property
    def records(self) -> int:
        """The number of records of the whole run, history included: public."""
        return int(self.history + self.rounds * self.batch)

    @property
    def neighbours(self) -> Neighbours:
        """One response replaced, or one whole record."""
        return Neighbours.REPLACE_RESPONSE if self.private == "responses" else Neighbours.REPLACE

    @property
    def response_bound(self) -> float:
        """M: largest distance of the range's ends from the centre."""
        low, high = self.response_range
        return max(high - self._centre, self._centre - low)

    @cached_property
    def covariate_range(self) -> Floats:
        """Where private covariates count as they are; others are clamped to it, coordinate by coordinate, (2, d).

        The box, or the smallest one around the candidates, and 8 length scales around it: beyond, a record tells a
        path next to nothing, and numbers without bound would not fit into a computer's.
        """
        points = np.array([self.actions.lower, self.actions.upper]) if isinstance(self.actions, Box) else self.actions
        low, high = points.min(axis=0), points.max(axis=0)
        length = np.asarray(getattr(self.kernel, "length_scale", 1.0), dtype=np.float64)
        with np.errstate(over="ignore"):
            reach = _REACH * length * (high - low if isinstance(self.actions, Box) else 1.0)
            found = np.array([low - reach, high + reach])
        found.flags.writeable = False
        return found

    @property
    def shares_factor(self) -> bool:
        """Whether one public factorisation serves all rounds: candidates, at which all records are measured."""
        return self.candidates is not None and self.private == "responses"

    @cached_property
    def scales(self) -> Floats:
        """sigma_1, ..., sigma_T: computed once, so that what is priced is what is drawn.

        ValueError unless the schedule gives a positive finite number for each round.
        """
        if isinstance(self.schedule, ChowdhuryGopalan):
            before = self.history + self.batch * np.arange(self.rounds)
            gains = None
            if self.schedule.information_gain is None and self.candidates is not None:
                most = int(before[-1])
                gains = greedy_information_gain(self.kernel, self.candidates, self._ridge, most)[before]
            scales = self.schedule.scales(before, gains)
        elif callable(self.schedule):
            scales = np.array([float(self.schedule(t)) for t in range(1, self.rounds + 1)])
        elif np.ndim(self.schedule) == 0:
            scales = np.full(self.rounds, float(self.schedule))
        else:
            raise ValueError("schedule must be a number, a function of the round or ChowdhuryGopalan.")
        if scales.shape != (self.rounds,) or not ((scales > 0) & np.isfinite(scales)).all():
            raise ValueError(f"The schedule must give a positive finite scale for each round 1, ..., {self.rounds}.")
        scales.flags.writeable = False
        return scales

    @property
    def scale(self) -> float:
        """sigma, where it is the same in all rounds; ValueError where it is not, see `scales`."""
        if np.ptp(self.scales):
            raise ValueError("The schedule gives each round a scale of its own: see scales, one a round.")
        return float(self.scales[0])

    @property
    def points(self) -> int:
        """The most points at which a path is looked at."""
        return self.climb.points(self.dimension) if self.candidates is None else len(self.candidates)

    @property
    def effective_nugget(self) -> float:
        """The nugget used: the declared one, or 1e-6 raised to 16 times the rounding bound.

        ValueError where the declared one is below that, or the bound is 1 or more.
        """
        before = 0 if self.shares_factor else self.records - self.batch
        least = MARGIN * nugget_floor(before, self.points, self._ridge)
        if not least < 1.0:
            raise ValueError(
                f"In double precision ridge {self._ridge:g} is too small for {self.records} records and {self.points} "
                "points; raise the ridge, or take fewer points."
            )
        if self.nugget is None:
            return max(_NUGGET, least)
        if not least <= self.nugget < 1.0:
            raise ValueError(f"nugget must be at least {least:.3g} here and below 1; got {self.nugget!r}.")
        return float(self.nugget)

    @cached_property
    def assumption(self) -> RecordAssumption:
        """What is assumed of whole records: responses within the range, and the kernel's own bound on a line."""
        if isinstance(self.kernel, Exponential) and self.dimension == 1:
            return Exponential1D(self.response_bound)
        return Bounded(self.response_bound)

    # --- what it costs, from public parameters alone

    @cached_property
    def draws(self) -> Draws:
        """The draws that read records."""
        before = self.history + self.batch * np.arange(self.rounds)
        reading = before > 0
        scales, r, nugget = self.scales[reading], self._ridge, self.effective_nugget
        most, bound = self.records - self.batch, self.response_bound
        if self.shares_factor:
            apart = candidate_rounding(most, self.points, r, nugget, bound) / math.sqrt(nugget)
        else:
            apart = 2.0 * mean_rounding(most, self.points, r, bound) / math.sqrt(0.5 * nugget)
        shifts = tuple((apart / scales).tolist())
        return Draws(tuple(before[reading].tolist()), tuple(scales.tolist()), int(self.batch), r, bound, shifts)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """What the whole run costs, however records react to actions."""
        if self.private == "responses":
            return response_loss(self.draws)
        return record_loss(self.draws, self.assumption, self.rule)

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What the whole run costs; n, if given, must be `records`, or it is a ValueError."""
        if n not in (None, self.records):
            raise ValueError(f"This run has {self.records} records: history + rounds * batch. Give n = {self.records}.")
        return self.loss

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data; candidates by number and digest."""
        box = self.actions if isinstance(self.actions, Box) else None
        candidates = self.candidates
        length = getattr(self.kernel, "length_scale", None)
        return {
            "kernel": self.kernel.name,
            "kernel_parameters": {k: v for k, v in vars(self.kernel).items() if k != "length_scale"},
            "length_scale": list(length) if isinstance(length, tuple) else length,
            "dimension": self.dimension,
            "box": None if box is None else {"lower": list(box.lower), "upper": list(box.upper)},
            "climb": None if box is None else vars(self.climb).copy(),
            "candidates": None if candidates is None else len(candidates),
            "candidates_digest": None if candidates is None else hashlib.sha256(candidates.tobytes()).hexdigest(),
            "response_range": [float(each) for each in self.response_range],
            "centre": self._centre,
            "rounds": int(self.rounds),
            "batch": int(self.batch),
            "history": int(self.history),
            "private": self.private,
            "ridge": self._ridge,
            "scale": self.scales.tolist() if np.ptp(self.scales) else float(self.scales[0]),
            "nugget": self.effective_nugget,
            "rule": self.rule if self.private == "records" else None,
            "seed": int(self.seed),
        }

    @property
    def unit_in_words(self) -> str:
        """The unit of privacy, as certificates and ledgers have it."""
        if self.unit:
            return self.unit
        if self.private == "responses":
            return "the response of one record"
        return "one record (where it was measured and its response)"

    def certificate(self, randomness: Randomness) -> Certificate:
        """The certificate of a run, finished or not: it states the loss of the whole run."""
        low, high = self.response_range
        responses_only = self.private == "responses"
        public = "The actions are public, and each record was measured at its action."
        return Certificate.issue(
            self,
            n=self.records,
            delta=self.delta,
            unit=self.unit_in_words,
            randomness=randomness,
            loss=self.loss,
            enforced=(
                f"Responses are clipped to [{low:g}, {high:g}], record by record.",
                *(() if responses_only else (_CLAMPED,)),
                f"There are {self.rounds} rounds of {self.batch} draw(s), never more; one response for each action.",
                "A round is written down before its path is drawn; no file and no process draws it twice.",
            ),
            declared=(
                "A record reacts to the past through the actions alone, and on no other record.",
                "Kernel, range, ridge, schedule and actions were not chosen by looking at these records.",
                *((public,) if responses_only else ()),
                each_row(self.unit_in_words),
            ),
            limits=(*WHAT, *(() if responses_only else (_COVARIANCE,))),
        )

    # --- as a mechanism

    @cleared
    def check(self, records: Any) -> int:
        """The number of records of `Responses`; PublicError for anything else."""
        if not isinstance(records, Responses):
            raise PublicError("Thompson sampling runs on Responses(respond, n).")
        return records.n

    @cleared
    def run(self, records: Responses, randomness: Randomness) -> ThompsonRelease:
        """The whole run in memory. Called by a ledger after the loss has been reserved."""
        from discretion.posterior.thompson import ThompsonSampler

        sampler = ThompsonSampler(self, randomness=randomness)
        if records.history is not None:
            sampler.start(*records.history)
        while not sampler.done:
            told = records.respond(sampler.ask())
            sampler.tell(*reversed(told)) if self.private == "records" else sampler.tell(told)
        return sampler.result()

    @property
    def _ridge(self) -> float:
        assert self.ridge is not None
        return self.ridge

    @property
    def _centre(self) -> float:
        assert self.centre is not None
        return self.centre
