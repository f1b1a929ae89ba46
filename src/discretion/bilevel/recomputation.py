"""The privacy losses of this package's certificates from their parameters, for `discretion.privacy.verify`.

The mechanism is built anew from what its certificate says; every other parameter must then follow. Verified families
are facts. Of a problem of somebody's own the certificate has the declared constants, and the price follows from them:
its rule then ends in "given the declared constants", and whether they hold is as open as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from discretion.bilevel.clipped import ClippedBilevel
from discretion.bilevel.clipping import ClippedSteps, mu_of
from discretion.bilevel.constants import Constants
from discretion.bilevel.continuous import ConvexExponential
from discretion.bilevel.counts import Counts, Layout
from discretion.bilevel.descent import Descent
from discretion.bilevel.domains import domain_of
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import BiasedRidge, HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.losses import Problem
from discretion.bilevel.mechanism import BilevelMechanism
from discretion.bilevel.penalty import PenaltyDescent
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.regularised import RegularisedExponential
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.tuned import TunedModel
from discretion.bilevel.warm_start import WarmStart
from discretion.privacy import BoundedRange, Certificate, GaussianDP, Neighbours, PrivacyLoss, SystemRandomness
from discretion.privacy.clipping import AdaptiveClip
from discretion.privacy.verification import LossOf, NotRecomputable, Sentences, SentencesOf, check_parameters

__all__ = ["LOSSES", "MECHANISMS", "SENTENCES", "mechanism_of"]

_FAMILIES: dict[str, Any] = {
    "biased ridge": BiasedRidge,
    "ridge penalty": RidgePenalty,
    "logistic penalty": LogisticPenalty,
    "Huber penalty": HuberPenalty,
    "quadratic mean": QuadraticMean,
}


class _Unknown:
    """In place of a back end: a certificate has no losses, and nothing here has records."""

    def __init__(self, name: str) -> None:
        self.name = name


def _problem(described: Any, at: Mapping[str, Any] | None = None) -> Any:
    """The verified family that `parameters` described, or the declared problem, with its constants at one point."""
    name = described.get("problem") if isinstance(described, Mapping) else None
    if name == "declared":
        return _declared(described, at)
    if name not in _FAMILIES:
        raise NotRecomputable(f"the constants of the problem {name!r} are not in the certificate.")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in described.items()}
    if "domain" in given:
        given["domain"] = domain_of(given["domain"])
    del given["problem"]
    return _FAMILIES[name](**given)


def _declared(described: Mapping[str, Any], at: Mapping[str, Any] | None) -> BilevelProblem:
    everywhere, here = described["constants"], None
    if described["constants_at"]:
        if at is None:
            raise NotRecomputable("the constants are a function of x, which is not in the certificate.")
        here = Constants.of(at)
    unknown: Any = _Unknown(described["backend"])
    return Problem(
        outer=_none,
        inner=_none,
        backend=unknown,
        x_domain=domain_of(described["domain"]),
        counts=Counts(described["training"], described["validation"]),
        y_init=np.zeros(described["inner_dimension"]),
        layout=Layout(described["layout"]),
        neighbours=Neighbours(described["neighbours"]),
        inner_domain=domain_of(described["inner_domain"]),
        declared=None if everywhere is None else Constants.of(everywhere),
        declared_at=None if here is None else lambda x: here,
    )


def _none(*_: Any) -> Any:
    raise ValueError("a certificate has no losses.")


def _choice(parameters: Mapping[str, Any], problem: BilevelProblem) -> ExponentialMechanism:
    offsets = parameters["offsets"]
    return ExponentialMechanism(
        problem=problem,
        epsilon=parameters["epsilon"],
        grid=domain_of(parameters["grid"]),
        score=parameters["score"],
        head_start=parameters["head_start"],
        value_share=parameters["value_share"],
        offsets=None if offsets is None else np.array(offsets),
    )


def _descent(parameters: Mapping[str, Any], problem: BilevelProblem, delta: float) -> Descent:
    start, batch, solver = parameters["start"], parameters["batch"], parameters["solver"]
    names = ("mu", "steps", "rate", "linear", "accuracy", "contraction", "output")
    return Descent(
        problem=problem,
        start=None if start == "the choice" else np.array(start),
        solver={"own": None, "user": _none}.get(solver, solver),
        batch=None if batch is None else Counts(*batch),
        delta=delta,
        **{name: parameters[name] for name in names},
    )


def _choices(parameters: Mapping[str, Any], n: int | None, delta: float) -> ExponentialMechanism:
    return _choice(parameters, _problem(parameters["problem"]))


def _descents(parameters: Mapping[str, Any], n: int | None, delta: float) -> Descent:
    return _descent(parameters, _problem(parameters["problem"], parameters["constants"]), delta)


def _warm_starts(parameters: Mapping[str, Any], n: int | None, delta: float) -> WarmStart:
    choice, descent = parameters["choice"], parameters["descent"]
    problem = _problem(choice["problem"])
    return WarmStart(choice=_choice(choice, problem), descent=_descent(descent, problem, delta), delta=delta)


def _inner(parameters: Mapping[str, Any], n: int | None, delta: float) -> InnerRelease:
    problem = _problem(parameters["problem"], parameters["constants"])
    return InnerRelease(problem=problem, x=np.array(parameters["x"]), mu=parameters["mu"], delta=delta)


def _convex(parameters: Mapping[str, Any], n: int | None, delta: float) -> ConvexExponential:
    given = {name: parameters[name] for name in ("epsilon", "value_share", "cells")}
    return ConvexExponential(problem=_problem(parameters["problem"]), convex=True, delta=delta, **given)


def _regularised(parameters: Mapping[str, Any], n: int | None, delta: float) -> RegularisedExponential:
    given = {name: parameters[name] for name in ("mu", "m", "value_share", "cells")}
    return RegularisedExponential(problem=_problem(parameters["problem"]), convex=True, delta=delta, **given)


def _tuned(parameters: Mapping[str, Any], n: int | None, delta: float) -> TunedModel:
    if n is None:
        raise ValueError("the number of records is missing.")
    given: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in parameters.items()}
    del given["released"]
    return TunedModel(records=n, delta=delta, **given)


def _penalty(parameters: Mapping[str, Any], n: int | None, delta: float) -> PenaltyDescent:
    given = {name: value for name, value in parameters.items() if name not in ("released", "problem", "noise")}
    return PenaltyDescent(problem=_problem(parameters["problem"], {}), delta=delta, **given)


def _clipped(parameters: Mapping[str, Any], n: int | None, delta: float) -> ClippedBilevel:
    names = ("steps", "sample_rate", "output")
    radius, problem = parameters["inner_radius"], _problem(parameters["problem"], {})
    return ClippedBilevel(
        problem=problem,
        clips=tuple(parameters["clips"]),
        rates=tuple(parameters["rates"]),
        inner_radius=math.inf if radius is None else radius,
        mu=mu_of(parameters["steps"], parameters["noise_multiplier"], problem.neighbours),
        delta=delta,
        **{name: parameters[name] for name in names},
    )


def _separable(parameters: Mapping[str, Any], n: int | None, delta: float) -> SeparableDescent:
    names, adaptive = ("records", "steps", "clip", "rate", "sample_rate", "output"), parameters["adaptive_clip"]
    neighbours = Neighbours(parameters["neighbours"])
    return SeparableDescent(
        gradients=_none,
        domain=domain_of(parameters["domain"]),
        start=np.array(parameters["start"]),
        adaptive_clip=None if adaptive is None else AdaptiveClip(**adaptive),
        mu=mu_of(parameters["steps"], parameters["noise_multiplier"], neighbours),
        neighbours=neighbours,
        delta=delta,
        **{name: parameters[name] for name in names},
    )


MECHANISMS: dict[str, Callable[[Mapping[str, Any], int | None, float], BilevelMechanism]] = {
    ExponentialMechanism.name: _choices,
    ConvexExponential.name: _convex,
    RegularisedExponential.name: _regularised,
    TunedModel.name: _tuned,
    InnerRelease.name: _inner,
    Descent.name: _descents,
    WarmStart.name: _warm_starts,
    PenaltyDescent.name: _penalty,
    ClippedBilevel.name: _clipped,
    SeparableDescent.name: _separable,
}
"""From parameters, n and delta to the mechanism, for each whose certificate says all that its loss follows from.

Losses, gradients and solvers of somebody's own are not in a certificate: such a mechanism has a price, and is not run.
"""


def _loss_of(name: str) -> LossOf:
    """By the mechanism itself, if all of its parameters are those of the certificate."""

    def loss(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
        try:
            mechanism = mechanism_of(name, parameters, n, delta)
        except NotRecomputable as error:
            raise NotRecomputable(str(error), partial(_least, name, parameters)) from None
        return mechanism.privacy_loss(mechanism.total if n is None else n)

    return loss


def _least(name: str, parameters: Mapping[str, Any], neighbours: Neighbours) -> PrivacyLoss:
    """What such a mechanism costs whatever its problem is: by the price that its own parameters name."""

    def gaussian(mu: float) -> PrivacyLoss:
        return GaussianDP(float(mu), neighbours=neighbours)

    described = parameters.get("problem")
    if isinstance(described, Mapping) and "neighbours" in described:
        neighbours = Neighbours(described["neighbours"])
    match name:
        case ExponentialMechanism.name | ConvexExponential.name:
            return BoundedRange(float(parameters["epsilon"]), neighbours=neighbours)
        case InnerRelease.name | RegularisedExponential.name | PenaltyDescent.name:
            return gaussian(parameters["mu"])
        case Descent.name:
            # With a batch mu is that before sampling, which takes the numbers of records to be known.
            return gaussian(0.0 if parameters["batch"] is not None else parameters["mu"])
        case WarmStart.name:
            choice, descent = parameters["choice"], parameters["descent"]
            first = _least(ExponentialMechanism.name, choice, neighbours)
            return first + _least(Descent.name, descent, first.neighbours)
        case ClippedBilevel.name:
            numbers = parameters["steps"], float(parameters["noise_multiplier"])
            return ClippedSteps(*numbers, neighbours, parameters["sample_rate"]).loss
    return gaussian(0.0)


def mechanism_of(name: str, parameters: Mapping[str, Any], n: int | None, delta: float) -> BilevelMechanism:
    """The mechanism of `MECHANISMS` with these parameters, all of which it writes again.

    Raises:
        ValueError, KeyError, TypeError: they are not the parameters of such a mechanism, or contradict each other.
    """
    mechanism = MECHANISMS[name](parameters, n, delta)
    check_parameters(parameters, mechanism.parameters())
    return mechanism


LOSSES: dict[str, LossOf] = {name: _loss_of(name) for name in MECHANISMS}
"""A `LossOf` for each mechanism whose certificate says all that its loss follows from."""


def _sentences(made: Certificate) -> Sentences:
    mechanism: Any = mechanism_of(made.mechanism, made.parameters, made.n, made.delta)
    return Sentences.of(replace(mechanism, unit=made.unit).certificate(SystemRandomness()))


SENTENCES: dict[str, SentencesOf] = dict.fromkeys(MECHANISMS, _sentences)
"""What `verify` compares the sentences of these mechanisms with."""
