"""The loss of a mechanism from the parameters in its certificate, for `discretion.privacy.verification.verify`.

Each function rebuilds its mechanism, has it write its parameters again, derived ones included, and asks it for its
loss. Scattered locations enter a loss through their number only; other points stand for them. Hexagons and squares are
made again from the certificate; districts and other graphs have to be supplied, and are known by their digest.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from discretion.gp import Ball, Box, Climb, Kernel, Lattice, kernel
from discretion.gp.domain import Array, Domain
from discretion.gp.engine import DenseEngine
from discretion.gp.fields import Grid
from discretion.gp.tiling import TILINGS
from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Bounded,
    Diagonal,
    Exponential1D,
    ResponseOnly,
    Separated,
)
from discretion.posterior.kernel_sum import KernelSumMechanism
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.mechanism import PosteriorMechanism
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import Certificate, PrivacyLoss, SystemRandomness
from discretion.privacy.units import counted_by_ids
from discretion.privacy.verification import LossOf, NotRecomputable, Sentences, SentencesOf, check_parameters

__all__ = [
    "LOSSES",
    "SENTENCES",
    "kernel_sum_loss_of",
    "kernel_sum_of",
    "lattice_loss_of",
    "lattice_of",
    "lattice_sentences",
    "posterior_loss_of",
    "posterior_of",
    "thompson_loss_of",
    "thompson_of",
]

MOST_NUMBERS = 1 << 25
"""Coordinates of the locations that a certificate may name for its loss to be computed again: 256 MB."""

ASSUMPTIONS: dict[str, type[Assumption]] = {
    each.name: each for each in (Bounded, RKHS, Separated, Exponential1D, Diagonal, ResponseOnly)
}


def posterior_of(parameters: Mapping[str, Any], delta: float) -> PosteriorMechanism:
    """The `PosteriorMechanism` with these parameters and this delta; stand-ins are its scattered locations.

    Raises
    ------
    ValueError, KeyError, TypeError
        If they are not the parameters of such a mechanism, or contradict each other.
    """
    domain = _domain(parameters["domain"])
    kept = ("ridge", "scale", "paths", "coordinates", "centre", "jitter", "nugget", "prior_noise", "neighbours")
    mechanism = PosteriorMechanism(
        kernel=_kernel(parameters["kernel"], parameters["length_scale"], parameters["kernel_parameters"]),
        domain=domain,
        response_range=tuple(parameters["response_range"]),
        locations=_stand_in(domain, parameters["locations"]),
        grid=_tuple(parameters["grid"]),
        delta=delta,
        assumption=ASSUMPTIONS[parameters["assumption"]](**parameters["assumption_parameters"]),
        engine=DenseEngine() if parameters.get("rounding") == "dense" else None,
        **_given(PosteriorMechanism, parameters, (*kept, "most_records", "rule", "contributions")),
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism


def posterior_loss_of(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    """The loss of `posterior_of`; raises what it raises."""
    return posterior_of(parameters, delta).privacy_loss(n)


def kernel_sum_of(parameters: Mapping[str, Any], delta: float) -> KernelSumMechanism:
    """The `KernelSumMechanism` with these parameters and this delta; stand-ins are its scattered locations.

    Raises
    ------
    ValueError, KeyError, TypeError
        If they are not the parameters of such a mechanism, or contradict each other.
    """
    domain, grid, axes = _domain(parameters["domain"]), _tuple(parameters["grid"]), parameters["axes"]
    stand_in = _stand_in(domain, parameters["locations"])
    shape = grid if axes is None else tuple(map(len, axes))
    if shape is not None and math.prod(shape) != len(stand_in):
        raise ValueError(f"A grid {shape} does not have {len(stand_in)} points.")
    if axes is not None:
        stand_in = Grid(tuple(np.asarray(axis, dtype=np.float64) for axis in axes)).points
    kept = ("scale", "density", "neighbours", "contributions", "coordinates", "nugget", "most_records")
    mechanism = KernelSumMechanism(
        kernels=tuple(
            _kernel(each["name"], each["length_scale"], {k: v for k, v in each.items() if k not in _OWN})
            for each in parameters["kernels"]
        ),
        domain=domain,  # pyright: ignore[reportArgumentType]
        response_ranges=tuple((low, high) for low, high in parameters["response_ranges"]),
        centres=tuple(parameters["centres"]),
        locations=stand_in if grid is None or axes is not None else None,
        grid=grid,
        delta=delta,
        **_given(KernelSumMechanism, parameters, kept),
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism


def kernel_sum_loss_of(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    """The loss of `kernel_sum_of`; raises what it raises."""
    return kernel_sum_of(parameters, delta).privacy_loss(n)


def lattice_of(parameters: Mapping[str, Any], delta: float, *, prior: Lattice | None = None) -> LatticeMechanism:
    """The `LatticeMechanism` with these parameters and this delta; its graph is ``prior`` where given.

    Raises
    ------
    NotRecomputable
        If they name a graph that has to be supplied and was not.
    ValueError, KeyError, TypeError
        If they are not the parameters of such a mechanism, contradict each other, or name another graph than the one
        supplied.
    """
    if prior is None and parameters["graph"] not in TILINGS:
        raise NotRecomputable(
            f"The graph ({parameters['graph']}, {parameters['nodes']} nodes) is not in the certificate, its digest is: "
            "supply the public file it was made from (--prior FILE)."
        )
    lattice = Lattice.of_words(parameters) if prior is None else prior
    if lattice.words["digest"] != parameters["digest"]:
        raise ValueError(
            f"This graph is not the certificate's: its digest is {lattice.words['digest']}, not {parameters['digest']}."
        )
    kept = ("ridge", "scale", "paths", "centre", "neighbours", "most_records", "rule", "contributions")
    mechanism = LatticeMechanism(
        lattice=lattice,
        response_range=tuple(parameters["response_range"]),
        delta=delta,
        **_given(LatticeMechanism, parameters, kept),
    )
    check_parameters(parameters, mechanism.parameters())
    return mechanism


def lattice_loss_of(
    parameters: Mapping[str, Any], n: int | None, delta: float, *, prior: Lattice | None = None
) -> PrivacyLoss:
    """The loss of `lattice_of`; raises what it raises."""
    return lattice_of(parameters, delta, prior=prior).privacy_loss(n)


def thompson_of(parameters: Mapping[str, Any], delta: float) -> ThompsonMechanism:
    """The `ThompsonMechanism` with these parameters and this delta; stand-ins are its candidates, far from each other.

    Raises
    ------
    ValueError, KeyError, TypeError
        If they are not the parameters of such a mechanism, or contradict each other.
    """
    box, count, dimension, scale = (parameters[name] for name in ("box", "candidates", "dimension", "scale"))
    if box is None:
        _stand_in(Box((0.0,) * dimension, (1.0,) * dimension), count)  # refuses numbers that are too large
        places = np.arange(count * dimension, dtype=np.float64).reshape(count, dimension)
    kept = ("rounds", "batch", "history", "private", "ridge", "centre", "nugget", "rule", "seed")
    mechanism = ThompsonMechanism(
        kernel=_kernel(parameters["kernel"], parameters["length_scale"], parameters["kernel_parameters"]),
        actions=places if box is None else _domain(box),  # pyright: ignore[reportPossiblyUnboundVariable, reportArgumentType]
        response_range=tuple(parameters["response_range"]),
        schedule=scale if not isinstance(scale, list) else lambda t: scale[t - 1],
        delta=delta,
        **({} if box is None else {"climb": Climb(**parameters["climb"])}),
        **_given(ThompsonMechanism, parameters, kept),
    )
    check_parameters(parameters, mechanism.parameters() | {"candidates_digest": parameters["candidates_digest"]})
    return mechanism


def thompson_loss_of(parameters: Mapping[str, Any], n: int | None, delta: float) -> PrivacyLoss:
    """The loss of `thompson_of`, which candidates enter by their number; raises what it raises."""
    return thompson_of(parameters, delta).privacy_loss(n)


LOSSES: dict[str, LossOf] = {
    PosteriorMechanism.name: posterior_loss_of,
    KernelSumMechanism.name: kernel_sum_loss_of,
    LatticeMechanism.name: lattice_loss_of,
    ThompsonMechanism.name: thompson_loss_of,
}
"""What `verify` needs, for the mechanisms of this library; add one of your own with ``LOSSES | {name: ...}``."""


def _sentences(of: Callable[..., Any]) -> SentencesOf:
    """What the mechanism that ``of`` makes states; whether owners had ids is known from the sentences alone."""

    def sentences(made: Certificate) -> Sentences:
        mechanism = replace(of(made.parameters, made.delta), unit=made.unit)
        limited = counted_by_ids(made.enforced)
        if isinstance(mechanism, ThompsonMechanism):
            again = mechanism.certificate(SystemRandomness())
        else:
            again = mechanism.certificate(made.n, SystemRandomness(), limited=limited)
        return Sentences.of(again)

    return sentences


SENTENCES: dict[str, SentencesOf] = {
    PosteriorMechanism.name: _sentences(posterior_of),
    KernelSumMechanism.name: _sentences(kernel_sum_of),
    LatticeMechanism.name: _sentences(lattice_of),
    ThompsonMechanism.name: _sentences(thompson_of),
}
"""What `verify` compares the sentences of these mechanisms with."""


def lattice_sentences(prior: Lattice) -> SentencesOf:
    """For a release on a graph that has to be supplied, such as districts; instead of the entry in `SENTENCES`."""
    return _sentences(partial(lattice_of, prior=prior))


_OWN = ("name", "length_scale")


def _given(mechanism: type, parameters: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names; one that says nothing keeps its default, as does one of a later version."""
    fields = inspect.signature(mechanism).parameters
    return {name: parameters[name] for name in names if name in fields and parameters.get(name) is not None}


def _kernel(name: str, length_scale: Any, options: Mapping[str, Any]) -> Kernel:
    scale = 1.0 if length_scale is None else _tuple(length_scale) if isinstance(length_scale, list) else length_scale
    return kernel(name, scale, **{key: _tuple(v) if isinstance(v, list) else v for key, v in options.items()})


def _domain(parameters: Mapping[str, Any]) -> Domain:
    if "radius" in parameters:
        return Ball(tuple(parameters["center"]), *parameters["radius"])
    return Box(tuple(parameters["lower"]), tuple(parameters["upper"]))


def _tuple(values: Any) -> Any:
    return None if values is None else tuple(values)


def _stand_in(domain: Domain, count: Any) -> Array:
    """So many points of the domain."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count * domain.dimension <= MOST_NUMBERS:
        raise ValueError(f"locations is {count!r}; at most {MOST_NUMBERS:,} coordinates can be computed with.")
    centre = domain.center if isinstance(domain, Ball) else domain.grid((1,) * domain.dimension)[0]
    return np.tile(np.asarray(centre, dtype=np.float64), (count, 1))
