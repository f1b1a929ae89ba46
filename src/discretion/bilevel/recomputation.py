"""The privacy losses of this package's certificates from their parameters, for `discretion.privacy.verify`.

The mechanism is built anew from what its certificate says; every other parameter must then follow. What was made with
points or constants of somebody's own is not in the certificate, and can't be verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from discretion.bilevel.clipped import ClippedBilevel
from discretion.bilevel.clipping import ClippedSteps
from discretion.bilevel.descent import Descent
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.tuned import TunedModel
from discretion.privacy import Neighbours, PrivacyLoss
from discretion.privacy.verification import LossOf, check_parameters

__all__ = ["LOSSES"]

_FAMILIES: dict[str, Any] = {
    "ridge penalty": RidgePenalty,
    "logistic penalty": LogisticPenalty,
    "Huber penalty": HuberPenalty,
    "quadratic mean": QuadraticMean,
}


def _problem(described: Any) -> BilevelProblem:
    """The verified family that `parameters` described."""
    name = described.get("problem") if isinstance(described, Mapping) else None
    if name not in _FAMILIES:
        raise ValueError(f"the constants of the problem {name!r} are not in the certificate.")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in described.items()}
    del given["problem"]
    return _FAMILIES[name](**given)


def _choice(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    offsets = parameters["offsets"]
    mechanism = ExponentialMechanism(
        problem=_problem(parameters["problem"]),
        epsilon=parameters["epsilon"],
        score=parameters["score"],
        failure=parameters["failure"],
        value_share=parameters["value_share"],
        offsets=None if offsets is None else np.array(offsets),
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism.privacy_loss(mechanism.problem.counts.total if n is None else n)


def _tuned(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    if n is None:
        raise ValueError("the number of records is missing.")
    given: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in parameters.items()}
    mechanism = TunedModel(records=n, delta=delta, **given)
    check_parameters(parameters, mechanism.parameters())
    return mechanism.privacy_loss(n)


def _inner(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    mechanism = InnerRelease(
        problem=_problem(parameters["problem"]), x=np.array(parameters["x"]), mu=parameters["mu"], delta=delta
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism.privacy_loss(mechanism.problem.counts.total if n is None else n)


def _descent(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    if parameters["inner_domain"] is not None:
        raise ValueError("the inner domain is not in the certificate as numbers.")
    names = ("mu", "steps", "rate", "linear", "accuracy", "contraction", "output")
    mechanism = Descent(
        problem=_problem(parameters["problem"]),
        start=np.array(parameters["start"]),
        solver=None if parameters["solver"] == "own" else parameters["solver"],
        delta=delta,
        **{name: parameters[name] for name in names},
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism.privacy_loss(mechanism.problem.counts.total if n is None else n)


def _clipped(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    """Clipped steps cost what their number, noise and sampling say, whatever the losses are."""
    relation = parameters.get("neighbours") or parameters["problem"]["neighbours"]
    steps, multiplier, rate = (parameters[name] for name in ("steps", "noise_multiplier", "sample_rate"))
    return ClippedSteps(int(steps), float(multiplier), Neighbours(relation), rate).loss


LOSSES: dict[str, LossOf] = {
    ExponentialMechanism.name: _choice,
    TunedModel.name: _tuned,
    InnerRelease.name: _inner,
    Descent.name: _descent,
    ClippedBilevel.name: _clipped,
    SeparableDescent.name: _clipped,
}
"""A `LossOf` for each mechanism whose certificate says all that its loss follows from."""
