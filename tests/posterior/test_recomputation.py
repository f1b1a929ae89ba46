"""Certificates of this library's mechanisms are verified, and every number that is lowered is found."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest

from discretion import RBF, Ball, Box, Certificate, Matern32, Neighbours, PosteriorMechanism, RationalQuadratic
from discretion.gp import Exponential, ExponentialL1, Kernel, Lattice
from discretion.posterior import LOSSES, RKHS, KernelSumMechanism, LatticeMechanism, ResponseOnly, Separated
from discretion.posterior.recomputation import lattice_loss_of
from discretion.privacy import SystemRandomness, verify

UNIT = Box((0.0, 0.0), (1.0, 1.0))
SCATTERED = np.random.default_rng(5).uniform(size=(7, 2))
ADD_REMOVE = Neighbours.ADD_REMOVE


def posterior(**changes) -> PosteriorMechanism:
    plain = {"kernel": Matern32(0.1), "domain": UNIT, "response_range": (-1, 1), "ridge": 20.0, "scale": 0.3}
    return PosteriorMechanism(**plain | {"locations": SCATTERED, "delta": 1e-3} | changes)


def kernel_sum(**changes) -> KernelSumMechanism:
    plain = {"kernels": RBF(0.2), "domain": UNIT, "response_ranges": (-1, 1), "scale": 5.0, "delta": 1e-3}
    return KernelSumMechanism(**plain | {"grid": (5, 6)} | changes)


MECHANISMS = {
    "grid": posterior(locations=UNIT.grid((4, 5)), grid=(4, 5), paths=3, jitter=0.5, prior_noise=0.1, centre=0.2),
    "ball": posterior(domain=Ball((0.0, 0.0), 1.0), kernel=Matern32((0.1, 0.2)), coordinates="data"),
    "add-remove": posterior(neighbours=ADD_REMOVE, most_records=100),
    "rkhs": posterior(kernel=RationalQuadratic(0.3, 2.0), assumption=RKHS(1.5, 0.2), response_range=(-1.7, 1.7)),
    "separated": posterior(
        kernel=RBF(0.1),
        assumption=Separated.for_kernel(RBF(0.1), 1.0, 0.5, 2),
    ),
    "line": posterior(kernel=Exponential(0.3), domain=Box((0.0,), (2.0,)), locations=[[0.5], [1.0]]),
    "response-only": posterior(assumption=ResponseOnly(1.0)),
    "nugget": posterior(nugget=1e-3),
    "sums": kernel_sum(kernels=(RBF(0.1), Matern32(0.3))),
    "sums of columns": kernel_sum(response_ranges=((-1, 1), (0, 5)), contributions=3, density=False),
    "sums anywhere": kernel_sum(grid=None, locations=SCATTERED, kernels=ExponentialL1((0.2, 0.5))),
    "sums on a grid of their own": kernel_sum(locations=Box((0.1, 0.2), (0.7, 0.9)).grid((5, 6))),
    "sums, add-remove": kernel_sum(neighbours=ADD_REMOVE, most_records=5000, nugget=1e-4),
}


def issued(mechanism) -> Certificate:
    n = 50 if mechanism.n_is_public else mechanism.most_records
    return mechanism.certificate(n, SystemRandomness())


@pytest.mark.parametrize("name", MECHANISMS)
def test_certificates_are_verified_from_their_text_alone(name):
    made = issued(MECHANISMS[name])
    found = verify(Certificate.from_json(made.to_json()), LOSSES)
    assert found.refused == ()
    assert found.differences == ()
    assert found.computed is not None
    assert math.isclose(found.computed.epsilon, made.epsilon, rel_tol=1e-12)


def numbers(value, path=()):
    if isinstance(value, dict):
        for key in value:
            yield from numbers(value[key], (*path, key))
    elif isinstance(value, list):
        # tables of the stored loss are long; test_certificate.py looks at them closely
        for index in range(0, len(value), max(1, len(value) // 5)):
            yield from numbers(value[index], (*path, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


@pytest.mark.parametrize("name", ["grid", "separated", "sums", "sums, add-remove"])
def test_any_number_changed_is_refused_or_leaves_the_statement_true(name):
    """Each number, up and down by a fifth: refused, or else the epsilon stated still covers what follows."""
    made = issued(MECHANISMS[name])
    data = made.data()
    for path, value in numbers(data):
        outcomes = []
        for factor in (0.8, 1.25):
            copy = json.loads(json.dumps(data))
            at = copy
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = type(value)(math.floor(value * factor) if isinstance(value, int) else value * factor)
            if at[path[-1]] == value:
                continue
            try:
                found = verify(Certificate.from_data(copy), LOSSES)
            except ValueError:
                outcomes.append("refused")
                continue
            if found.verified:
                assert found.computed is not None
                assert found.computed.epsilon <= found.certificate.epsilon * (1 + 1e-9), path
            outcomes.append("refused" if not found.verified else "differs" if found.differences else "accepted")
        # the mu of a posterior path's rounding is far below the last digit of its loss
        mu = path[-1] == "mu" and name.startswith("sums")
        if path[0] in ("epsilon", "order") or path[:2] == ("parameters", "scale") or mu:
            assert "refused" in outcomes, path
        if path[:2] in [("parameters", name) for name in ("least_kernel", "response_bound", "response_bounds")]:
            assert "accepted" not in outcomes, path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"locations": 2**60}, "locations"),
        ({"grid": [2**30, 2**30]}, "grid"),
        ({"kernel": "unheard-of"}, "Unknown kernel"),
        ({"assumption": "hope"}, "'hope'"),
        ({"nugget": 1e-30}, "follows from"),
        ({"ridge": -1.0}, "ridge"),
        ({"domain": {"lower": [0.0], "upper": [1.0]}}, "follows from"),
        ({"most_records": 3}, "most_records"),
        ({"domain": 3}, "computed"),
    ],
)
def test_parameters_that_are_none_are_refused_in_words(changes, words):
    made = issued(MECHANISMS["grid"]).data()
    made["parameters"] |= changes
    found = verify(Certificate.from_data(made), LOSSES)
    assert not found.verified
    assert any(words in reason for reason in found.refused), found.refused


def test_a_kernel_of_ones_own_cannot_be_computed_again():
    class Mine(RBF):
        name = "mine"

    assert issubclass(Mine, Kernel)
    found = verify(issued(kernel_sum(kernels=Mine(0.2))), LOSSES)
    assert not found.verified
    assert "Unknown kernel 'mine'" in found.refused[0]


LATTICE = Lattice.hexagon(0.2, UNIT, 0.3)


def on_lattice(lattice: Lattice = LATTICE, **changes) -> LatticeMechanism:
    plain = {"response_range": (0.0, 1.0), "ridge": 4.0, "scale": 0.5, "delta": 1e-3, "rule": "closed-form"}
    return LatticeMechanism(lattice, **plain | changes)


@pytest.mark.parametrize(
    "mechanism",
    [
        on_lattice(),
        on_lattice(paths=3, centre=0.2, contributions=2),
        on_lattice(rule="renyi"),
        on_lattice(neighbours=ADD_REMOVE, most_records=200),
        on_lattice(Lattice.square(0.25, UNIT, 0.5)),
        on_lattice(Lattice.hexagon(0.1, UNIT, 0.3, cells=[[1, 1], [1, 2], [5, 4]])),
    ],
)
def test_the_graph_of_a_lattice_follows_from_its_certificate(mechanism):
    made = mechanism.certificate(None if mechanism.neighbours is ADD_REMOVE else 50, SystemRandomness())
    found = verify(Certificate.from_json(made.to_json()), LOSSES)
    assert found.refused == ()


def test_other_graphs_have_to_be_supplied_and_are_known_by_their_digest():
    lattice, other = (Lattice.of_precision(np.eye(3) * (2 + more) - np.ones((3, 3)) / 3) for more in (0.0, 0.1))
    made = on_lattice(lattice).certificate(50, SystemRandomness())
    assert "supply" in verify(made, LOSSES).unchecked[0]
    assert verify(made, LOSSES).verdict == "NOT CHECKED"
    name = LatticeMechanism.name
    assert verify(made, {name: partial(lattice_loss_of, prior=lattice)}).verified
    assert "digest" in verify(made, {name: partial(lattice_loss_of, prior=other)}).refused[0]


@pytest.mark.parametrize("key", ["killing", "spacing", "ridge", "scale", "response_bound", "unit_of_variance", "nodes"])
def test_a_changed_parameter_of_a_lattice_is_found(key):
    made = json.loads(on_lattice().certificate(50, SystemRandomness()).to_json())
    made["parameters"][key] *= 0.9 if key in ("scale", "ridge", "response_bound") else 2
    assert not verify(Certificate.from_json(json.dumps(made)), LOSSES).verified
