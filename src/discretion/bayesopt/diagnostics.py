"""UNSAFE. What a private search hides, shown: true losses, clip fractions, gradients without noise. For synthetic data.

A study is made with `unsafe_diagnostics=True` or without, for good: its file says so, its certificate promises nothing,
and no ledger books it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.bayesopt.mechanism import LocalSearch
from discretion.bayesopt.planning import Plan
from discretion.bayesopt.release import LocalSearchRelease
from discretion.privacy import Certificate, NotBookable, PureDP
from discretion.privacy.clipping import clip
from discretion.privacy.quiet import quiet

__all__ = ["Diagnostics", "NotPrivate", "UnsafeRelease"]

Floats = NDArray[np.float64]

UNSAFE = "UNSAFE DIAGNOSTICS: losses and gradients without noise left with this result. It protects nobody."


class NotPrivate(UserWarning):
    """A study shows what the guarantee rests on hiding."""


@dataclass(frozen=True, eq=False, repr=False)
class UnsafeRelease(LocalSearchRelease):
    """NOT PRIVATE. The result of a study with unsafe diagnostics; a step that is not known is NaN or empty.

    Attributes:
        locations: where losses were evaluated, scaled, (b_t, d) for each step.
        losses: the mean over the records of their losses there, (b_t,) for each step; NaN losses are left out.
        clip_fractions: of records (with `sample_rate`: of those who took part) whose estimate was longer than the
            clipping norm, or not finite, (steps,).
        unclipped: the mean of the records' gradient estimates, (steps, d).
        exact: what the noise was added to, the mean of the clipped ones, (steps, d).
    """

    locations: tuple[Floats, ...]
    losses: tuple[Floats, ...]
    clip_fractions: Floats
    unclipped: Floats
    exact: Floats

    @property
    def clipping_bias(self) -> Floats:
        """How far clipping moved the mean gradient, (steps,)."""
        return np.linalg.norm(self.exact - self.unclipped, axis=1)

    def biases(self, gradients: ArrayLike) -> Floats:
        """How far each step's gradient is from the true one before noise, (steps,).

        Args:
            gradients: of the mean loss at `thetas[:-1]`, in scaled parameters, (steps, d).
        """
        return np.linalg.norm(self.exact - np.asarray(gradients, dtype=np.float64), axis=1)

    def booked(self, ledger_entry: str) -> NoReturn:
        """Refused: NotBookable, always."""
        raise NotBookable(f"{UNSAFE} So it cannot be booked.")

    def text(self) -> str:
        """The certificate, which promises nothing."""
        return f"*** {UNSAFE} ***\n{super().text()}"


class Diagnostics:
    """NOT PRIVATE. What a study collects for an `UnsafeRelease`."""

    def __init__(self, search: LocalSearch) -> None:
        self._search = search
        self._seen: dict[int, tuple[Any, ...]] = {}

    @classmethod
    def begun(cls, search: LocalSearch, ledger: Any) -> Self:
        """For a study of this search; refuses a ledger, and warns.

        Raises:
            NotBookable: a ledger was given.
            ValueError: an aggregate search, in which no record's loss is seen.
        """
        if ledger is not None:
            raise NotBookable("unsafe_diagnostics protect nobody, so no ledger books the study. Nothing was spent.")
        if search.aggregate:
            raise ValueError("unsafe_diagnostics need the losses of each record; the aggregate mode sees means.")
        warnings.warn(
            "unsafe_diagnostics show true losses and gradients: for synthetic data only. Nothing here is private.",
            NotPrivate,
            stacklevel=3,
        )
        return cls(search)

    @quiet()
    def add(self, step: int, plan: Plan, losses: Floats, n: int) -> None:
        """What the losses of those who take part say, at old and new locations, (records, c + b)."""
        expected = n * (self._search.sample_rate or 1.0)
        centred = losses
        if self._search.offset != "none" and losses.shape[1]:
            centred = losses - losses.mean(axis=1, keepdims=True)
        estimates = centred @ plan.map.T
        estimates[~np.isfinite(losses).all(axis=1)] = np.nan
        new = losses[:, len(plan.old) :]
        # written so that a NaN counts as clipped
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of no records, or none that is finite
            clipped = 1.0 - np.mean(np.linalg.norm(estimates, axis=1) <= plan.clip)
            losses, unclipped = np.nanmean(new, axis=0), np.nanmean(estimates, axis=0)
        exact = clip(estimates, plan.clip).sum(axis=0) / expected
        self._seen[step] = plan.new, losses, clipped, unclipped / plan.weights, exact / plan.weights

    def marked(self, release: LocalSearchRelease) -> UnsafeRelease:
        """The release, marked as not private, with what was seen."""
        steps, d = release.gradients.shape
        nothing = (np.empty((0, d)), np.empty(0), math.nan, np.full(d, math.nan), np.full(d, math.nan))
        rows = [self._seen.get(step, nothing) for step in range(steps)]
        locations, losses, clipped, unclipped, exact = zip(*rows, strict=True) if rows else ((),) * 5
        public: dict[str, Any] = {item.name: getattr(release, item.name) for item in fields(release)}
        public["certificate"] = _void(release.certificate)
        return UnsafeRelease(
            **public,
            locations=locations,
            losses=losses,
            clip_fractions=np.array(clipped, dtype=np.float64),
            unclipped=np.array(unclipped).reshape(-1, d),
            exact=np.array(exact).reshape(-1, d),
        )


def _void(certificate: Certificate) -> Certificate:
    """The same certificate, promising nothing."""
    loss = PureDP(math.inf, neighbours=certificate.neighbours, rule="none: unsafe diagnostics")
    guarantee = loss.guarantee(certificate.delta)
    return replace(
        certificate,
        epsilon=math.inf,
        order=None,
        rule=guarantee.rule,
        loss=loss.to_dict(certificate.delta),
        enforced=(),
        limits=(UNSAFE,),
        bookable=False,
    )
