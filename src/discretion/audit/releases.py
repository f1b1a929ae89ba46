"""Attacks on a release of one's own: its mechanism, run on two data sets that it has most trouble telling apart.

The mechanism is made again from the public parameters in its certificate and run on made-up neighbouring data sets. No
record is read, and what was released is not looked at: the attack tests the mechanism and the claim, not one draw.

Independent parts of one run stand for many runs: a run of a million paths, cut up, is a million runs of one path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from discretion.audit.membership import GaussianScorer, Trainer
from discretion.audit.pair import Cluster, Record, Witness, audit_pair
from discretion.gp import Ball, Box
from discretion.gp.domain import Array
from discretion.posterior import RKHS, KernelSumMechanism, LatticeMechanism, PosteriorMechanism, ResponseOnly, Separated
from discretion.posterior.recomputation import kernel_sum_of, lattice_of, posterior_of
from discretion.posterior.records import Records
from discretion.privacy import Certificate, Neighbours, SeededRandomness

__all__ = ["IndependentScorer", "ReleaseGame", "certificate_game", "mechanism_game"]

MOST_RECORDS = 4_000
"""Of a posterior that is run; with n private, at most `FEW`."""
FEW = 300
_BLOCK = 1 << 22  # numbers drawn at once
_COPIES = 1_000  # of each kernel: so many releases of kernel sums in one


@dataclass(frozen=True)
class ReleaseGame:
    """Releases of a mechanism on two neighbouring data sets, `included` and `excluded`.

    `runs(records, count, seed)` gives what the attacker sees of `count` independent releases, (count, k), with test
    randomness; `parts` is the number of independent parts of equal law in the k numbers, `words` the two data sets.
    """

    included: Records
    excluded: Records
    runs: Callable[[Records, int, int], Array]
    parts: int
    words: str

    def features(self, member: bool, count: int, rng: np.random.Generator) -> Array:
        """What the attacker sees of `count` runs on `included` for a member, else on `excluded`, (count, k)."""
        return self.runs(self.included if member else self.excluded, count, int(rng.integers(2**63 - 1)))

    @property
    def trainer(self) -> Trainer:
        """The attack: the likelihood ratio of Gaussians fitted to a part, summed over parts."""
        return lambda members, others: IndependentScorer.fit(members, others, self.parts)


@dataclass(frozen=True)
class IndependentScorer:
    """The log-likelihood ratio of `GaussianScorer` for one part of a release, summed over its independent parts."""

    one: GaussianScorer
    parts: int

    @classmethod
    def fit(cls, members: Array, others: Array, parts: int) -> IndependentScorer:
        """Features (count, parts k): all parts of all releases teach one scorer."""
        width = members.shape[1] // parts
        return cls(GaussianScorer.fit(members.reshape(-1, width), others.reshape(-1, width)), parts)

    def __call__(self, features: Array) -> Array:
        each = self.one(features.reshape(len(features) * self.parts, -1))
        return each.reshape(len(features), self.parts).sum(axis=1)


def certificate_game(certificate: Certificate, *, seconds: float = 10.0, seed: int = 0) -> ReleaseGame:
    """The game of the mechanism that a certificate describes; `seconds` and `seed` as in `mechanism_game`.

    ValueError where the mechanism can't be made again from the certificate, or no pair of data sets is known.
    """
    parameters, delta = certificate.parameters, certificate.delta
    try:
        if certificate.mechanism == PosteriorMechanism.name:
            mechanism = posterior_of(parameters, delta)
        elif certificate.mechanism == KernelSumMechanism.name:
            mechanism = kernel_sum_of(parameters, delta)
        elif certificate.mechanism == LatticeMechanism.name:
            mechanism = lattice_of(parameters, delta)
        else:
            raise ValueError(
                f"No neighbouring data sets are known for {certificate.mechanism!r}; "
                "play discretion.audit.MechanismGame with two of your own."
            )
    except (KeyError, TypeError) as error:
        raise ValueError(f"The certificate's parameters are not those of its mechanism: {error}.") from None
    return mechanism_game(mechanism, certificate.n, seconds=seconds, seed=seed)


def mechanism_game(
    mechanism: PosteriorMechanism | KernelSumMechanism | LatticeMechanism,
    n: int | None,
    *,
    seconds: float = 10.0,
    seed: int = 0,
) -> ReleaseGame:
    """A mechanism between neighbouring data sets of n records (None where n is private).

    Posterior paths: the pair that `audit_pair` finds in `seconds` from `seed`, seen at the two places of the record
    that differs, which loses nothing. Kernel sums: one unit of privacy changes or is left out, seen at its place, which
    is the worst case of the value sums. Lattices: one record changes its response, all others far away.

    ValueError where the mechanism's assumption excludes such data sets, or n is too large to run.
    """
    if isinstance(mechanism, KernelSumMechanism):
        return _kernel_sum_game(mechanism)
    if isinstance(mechanism, LatticeMechanism):
        return _lattice_game(mechanism, n)
    return _path_game(mechanism, n, seconds, seed)


# --- posterior paths ----------------------------------------------------------------------------------------------


def _path_game(mechanism: PosteriorMechanism, n: int | None, seconds: float, seed: int) -> ReleaseGame:
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


def _kernel_sum_game(mechanism: KernelSumMechanism) -> ReleaseGame:
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


def _lattice_game(mechanism: LatticeMechanism, n: int | None) -> ReleaseGame:
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
