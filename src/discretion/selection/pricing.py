"""The price of a search from the losses of its candidates: what the runner reserves and what a verifier computes again.

A candidate's loss is either one that follows from its public parameters, or one that its author declares. A declared
loss stands in the certificate, and the price is that of the loss as it stands there (a table, for a curve), so that
whoever reads the certificate arrives at the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from discretion.privacy import PrivacyLoss
from discretion.selection.adapters import Declared
from discretion.selection.bounds import Rule, heterogeneous, selection_loss
from discretion.selection.extensions import SharedRate, Threshold, threshold_loss
from discretion.selection.proposals import DensityBox
from discretion.selection.repetitions import Repetitions

__all__ = ["Law", "Stated", "follows", "price"]

Law = Repetitions | SharedRate | Threshold
"""How the runs are drawn: how many, or in what other way."""

_OWN = ("RidgeMechanism", "LogisticMechanism", "PosteriorMechanism", "KernelSumMechanism")
_ESTIMATORS = ("PrivateRidge", "PrivateLogisticRegression")


def follows(candidate: Any) -> bool:
    """Whether a candidate's loss follows from the parameters it states, by a rule of this library."""
    estimator = getattr(candidate, "estimator", None)
    kind, names = (type(candidate), _OWN) if estimator is None else (type(estimator), _ESTIMATORS)
    return kind.__module__.startswith("discretion.") and kind.__name__ in names


def declared(candidate: Any) -> bool:
    """Whether somebody outside of this library answers for what a run of a candidate costs."""
    inner = getattr(candidate, "estimator", candidate)
    return isinstance(inner, Declared) or not type(inner).__module__.startswith("discretion.")


@dataclass(frozen=True)
class Stated:
    """The loss of one training of a candidate, and what a certificate says of it.

    Attributes:
        loss: what the price is computed from.
        text: its description; None where it follows from the candidate's parameters.
    """

    loss: PrivacyLoss
    text: dict[str, Any] | None

    @classmethod
    def of(cls, candidate: Any, loss: PrivacyLoss) -> Stated:
        """The loss of a candidate as a certificate states it.

        Raises:
            ValueError: it is no privacy loss.
        """
        if not isinstance(loss, PrivacyLoss):
            raise ValueError(
                f"{candidate.name}.privacy_loss must return a PrivacyLoss, such as GaussianDP(0.3, "
                f"neighbours='replace'); got {type(loss).__name__}."
            )
        if follows(candidate):
            return cls(loss, None)
        text = loss.to_dict()
        return cls(PrivacyLoss.from_dict(text), text)


def price(
    losses: Sequence[PrivacyLoss], weights: Sequence[float], law: Law, rule: Rule, box: DensityBox
) -> tuple[PrivacyLoss, PrivacyLoss]:
    """What one run costs, averaged by the weights of its candidates, and what the whole search costs.

    Args:
        losses: of one run of each candidate, score included.
        weights: their chances; equal where each runs in every round.
        law: how the runs are drawn.
        rule: of the account, as in `selection_loss`.
        box: of proposals that learn from earlier runs.
    """
    merged: list[tuple[PrivacyLoss, float]] = []
    for loss, weight in zip(losses, weights, strict=True):
        same = next((i for i, (known, _) in enumerate(merged) if known == loss), None)
        if same is None:
            merged.append((loss, weight))
        else:
            merged[same] = (loss, merged[same][1] + weight)
    distinct, shares = zip(*merged, strict=True)
    one = distinct[0] if len(distinct) == 1 else heterogeneous(distinct, shares)
    match law:
        case SharedRate():
            return one, law.price(losses)
        case Threshold():
            return one, threshold_loss(one, law.stop, rule=rule)
    return one, selection_loss(one, law, rule=rule, box=box)
