"""Two data sets that posterior mechanisms have most trouble telling apart, as far as is known.

Independent parts of one run stand for many runs: a run of a million paths, cut up, is a million runs of one path.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from discretion.audit.pair import Cluster, Record, Witness, audit_pair
from discretion.audit.release_game import ReleaseGame, once, runs_of
from discretion.gp import Ball, Box
from discretion.gp.domain import Array
from discretion.posterior import (
    RKHS,
    KernelSumMechanism,
    LatticeMechanism,
    PosteriorMechanism,
    ResponseOnly,
    Separated,
)
from discretion.posterior.records import Records
from discretion.posterior.thompson_mechanism import Responses, ThompsonMechanism
from discretion.privacy import Neighbours, SeededRandomness

__all__ = ["kernel_sum_game", "lattice_game", "path_game", "thompson_game"]

MOST_RECORDS = 4_000
"""Of a posterior that is run; with n private, at most `FEW`."""
FEW = 300
_BLOCK = 1 << 22  # numbers drawn at once
_COPIES = 1_000  # of each kernel: so many releases of kernel sums in one


# --- posterior paths ----------------------------------------------------------------------------------------------


def path_game(mechanism: PosteriorMechanism, n: int | None, seconds: float, seed: int) -> ReleaseGame:
    count = min(FEW, mechanism.most_records) if n is None else n
    if count > MOST_RECORDS:
        raise ValueError(
            f"Posteriors of more than {MOST_RECORDS:,} records are not run; `audit pair` has the exact epsilon."
        )
    witness = _witness(mechanism, count, seconds, seed)
    places = np.unique(np.array([each.place for each in (witness.record, witness.other or witness.record)]), axis=0)
    # n, nugget and coordinates as certified; closed forms price each of these runs, which nobody pays for
    own = replace(
        mechanism,
        locations=_data(mechanism, places),
        grid=None,
        nugget=mechanism.effective_nugget(n),
        rule="closed-form",
    )
    paths = int(mechanism.paths)

    def runs(records: Records, count: int, seed: int) -> Array:
        many = replace(own, paths=count * paths)
        return many.run(records, SeededRandomness(seed)).values.reshape(count, paths * len(places))

    def records(changed: Record | None) -> Records:
        return _records(witness, changed, mechanism)

    return ReleaseGame(records(witness.record), records(witness.other), runs, paths, str(witness))


def _witness(mechanism: PosteriorMechanism, n: int, seconds: float, seed: int) -> Witness:
    """Neighbouring data sets in the coordinates of the kernel; responses count from the centre."""
    assumption, bound = mechanism.assumption, mechanism.response_bound
    if isinstance(assumption, RKHS | Separated):
        raise ValueError(
            f"No worst-case data sets are known under the assumption {assumption.name!r}; an attack with others would "
            "say nothing about the claim."
        )
    box = _box(mechanism.domain if mechanism.coordinates == "data" else mechanism.domain.unit_domain)
    if isinstance(assumption, ResponseOnly):
        core = (Cluster(n - 1, box.upper, bound),) if n > 1 else ()
        return Witness(core, Record(box.lower, bound), Record(box.lower, -bound))
    return audit_pair(
        mechanism.kernel,
        box,
        n=n,
        ridge=mechanism.effective_ridge,
        scale=mechanism.scale,
        delta=max(mechanism.delta, 1e-9),
        response_bound=bound,
        neighbours=mechanism.neighbours,
        paths=1,
        clusters=2,
        rounds=150,
        seed=seed,
        time_limit=seconds,
    ).witness


def _box(domain: Box | Ball) -> Box:
    """The domain, or the cube inside a ball."""
    if isinstance(domain, Box):
        return domain
    half = domain.radius / math.sqrt(domain.dimension) * (1.0 - 1e-9)
    return Box(tuple(c - half for c in domain.center), tuple(c + half for c in domain.center))


def _records(witness: Witness, changed: Record | None, mechanism: PosteriorMechanism) -> Records:
    rows = [(cluster.place, cluster.response) for cluster in witness.core for _ in range(cluster.count)]
    rows += [] if changed is None else [(changed.place, changed.response)]
    X = np.array([place for place, _ in rows]).reshape(len(rows), mechanism.domain.dimension)
    assert mechanism.centre is not None
    y = np.array([response for _, response in rows]) + mechanism.centre
    return Records(_data(mechanism, X), y)


def _data(mechanism: PosteriorMechanism, places: Array) -> Array:
    """Places in the coordinates of the kernel, in those of the data."""
    domain = mechanism.domain
    if mechanism.coordinates == "data":
        return places
    return (
        domain.from_unit(places)
        if isinstance(domain, Box)
        else np.asarray(domain.center) + 2.0 * domain.radius * (places - 0.5)
    )


# --- kernel sums --------------------------------------------------------------------------------------------------


def kernel_sum_game(mechanism: KernelSumMechanism) -> ReleaseGame:
    ranges, centres = np.array(mechanism.response_ranges), np.array(mechanism.centres)
    far = np.where(ranges[:, 1] - centres >= centres - ranges[:, 0], ranges[:, 1], ranges[:, 0])
    place, rest = mechanism.domain.grid((1,) * mechanism.domain.dimension), np.array([mechanism.domain.lower])
    kernels = mechanism.kernels
    assert isinstance(kernels, tuple)
    many = replace(mechanism, kernels=kernels * _COPIES, locations=place, grid=None)
    replaced = mechanism.neighbours is Neighbours.REPLACE

    def records(responses: Array | None) -> Records:
        """The unit's records, and one at rest."""
        copies = 0 if responses is None else mechanism.contributions
        X = np.concatenate([rest, np.repeat(place, copies, axis=0)])
        y = np.concatenate([centres[None], np.tile(far if responses is None else responses, (copies, 1))])
        return Records(X, y)

    def runs(records: Records, count: int, seed: int) -> Array:
        randomness, seen = SeededRandomness(seed), []
        for _ in range(0, count, _COPIES):
            released = many.run(records, randomness)
            sums = [released.value_sums] if released.density is None else [released.value_sums, released.density[None]]
            flat = np.concatenate(sums)[:, :, 0]  # (arrays, copies kernels)
            seen.append(flat.reshape(len(flat), _COPIES, len(kernels)).swapaxes(0, 1).reshape(_COPIES, -1))
        return np.concatenate(seen)[:count]

    change = "responses go from one end of the range to the other" if replaced else "left out"
    several = "one record" if mechanism.contributions == 1 else f"the {mechanism.contributions} records of one unit"
    other = np.clip(2.0 * centres - far, *ranges.T) if replaced else None
    words = f"one record with responses at the centre; {several} at the middle: {change}"
    return ReleaseGame(records(far), records(other), runs, 1, words)


# --- lattices -----------------------------------------------------------------------------------------------------


def lattice_game(mechanism: LatticeMechanism, n: int | None) -> ReleaseGame:
    lattice = mechanism.lattice
    count = min(1_000, mechanism.most_records) if n is None else n
    nodes = np.flatnonzero(lattice.admissible)
    points = nodes[:, None].astype(np.float64) if lattice.locations is None else lattice.locations[nodes]
    middle = int(np.argmin(((points - points.mean(axis=0)) ** 2).sum(axis=1)))
    away = int(np.argmax(((points - points[middle]) ** 2).sum(axis=1)))
    node = int(lattice.node(points[[middle]])[0])
    low, high = mechanism.response_range
    paths = int(mechanism.paths)

    def records(response: float | None) -> Records:
        others = count - 1
        X, y = np.repeat(points[[away]], others, axis=0), np.full(others, high)
        if response is not None:
            X, y = np.concatenate([X, points[[middle]]]), np.append(y, response)
        return Records(X, y)

    def runs(records: Records, count: int, seed: int) -> Array:
        randomness, seen = SeededRandomness(seed), []
        block = max(1, _BLOCK // lattice.size)
        for start in range(0, count * paths, block):
            many = replace(mechanism, paths=min(block, count * paths - start), rule="closed-form")
            seen.append(many.run(records, randomness).values[:, node])
        return np.concatenate(seen).reshape(count, paths)

    other = low if mechanism.n_is_public else None
    words = "becomes the lowest" if mechanism.n_is_public else "is left out"
    return ReleaseGame(
        records(high), records(other), runs, paths, f"{count - 1} records far away; one record, the highest, {words}"
    )


# --- Thompson sampling --------------------------------------------------------------------------------------------


def thompson_game(mechanism: ThompsonMechanism) -> ReleaseGame:
    """One response goes from one end of the range to the other; the attacker sees how often its action is played.

    Told before the first round where there is a history: all other records of it lie at the candidate farthest away,
    with responses at the centre. Otherwise it answers the first action.
    """
    low, high = mechanism.response_range
    centre = mechanism.centre
    assert centre is not None
    if mechanism.candidates is None:
        assert isinstance(mechanism.actions, Box)
        ends = np.array([mechanism.actions.lower, mechanism.actions.upper])
    else:
        points = mechanism.candidates
        ends = points[[0, int(np.argmax(((points - points[0]) ** 2).sum(axis=1)))]]
    place, away = ends
    told = mechanism.history > 0

    def records(response: float) -> Any:
        def made() -> Responses:
            history, first = None, [not told]
            if told:
                X, y = np.tile(away, (mechanism.history, 1)), np.full(mechanism.history, centre)
                X[0], y[0] = place, response
                history = X, y

            def respond(actions: Array) -> Any:
                answers = np.full(len(actions), centre)
                if first[0]:
                    answers[0], first[0] = response, False
                return (actions, answers) if mechanism.private == "records" else answers

            return Responses(respond, mechanism.records, history)

        return made

    def feature(release: Any) -> list[float]:
        actions = release.actions
        own = place if told else actions[0, 0]
        later = actions[0 if told else 1 :]
        if not later.size:
            raise ValueError("This run reads one round of records and plays no action after it: nothing is to be seen.")
        scaled = own[None], later.reshape(-1, later.shape[-1])
        if isinstance(mechanism.actions, Box):
            scaled = tuple(mechanism.actions.unit(each) for each in scaled)
        near = mechanism.kernel(*scaled)[0].reshape(later.shape[:2]).sum(axis=1)
        return [float(near @ mechanism.scales[-len(near) :] ** -2.0)]

    where = "of the history" if told else "to the first action"
    words = f"the response {where} is {high:g} or {low:g}, all others are {centre:g}; how near to it later actions are"
    return ReleaseGame(records(high), records(low), runs_of(once(mechanism, "certificate"), feature), 1, words)
