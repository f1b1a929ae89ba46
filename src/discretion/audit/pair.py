r"""Lower bounds on epsilon of posterior sample paths, from explicit neighbouring data sets.

Any two neighbouring data sets bound epsilon from below: no accountant may claim less than their exact
``eps(delta)``. Data sets here consist of a few clusters, each of many records at one place with one response, and of
the record that differs. m records at one place act as one record of their mean response with noise variance
``r^2 / m``, so n may be large. The pair of releases is reduced to the plane (replace, see
:mod:`discretion.posterior.exact_pair`) or to the line (add/remove, see :mod:`discretion.posterior.add_remove`), which
loses nothing; the largest ``delta(eps)`` is sought by differential evolution.

All data sets are made up: nothing here reads a record.

For one path the epsilon is where the lower end of :func:`~discretion.posterior.profile.profile_range` meets delta: a
lower bound for any number of nodes, only rounding is not tracked. For several paths it comes from a contour integral
less its estimated error: numerical. Proofs in ``docs/proofs/two-dimensional-reduction.md``,
``docs/proofs/add-remove.md`` and ``docs/proofs/privacy-profile.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from discretion.gp.domain import Box, scales_per_axis
from discretion.gp.kernels import Kernel
from discretion.posterior.exact_pair import ExactPair
from discretion.posterior.pair import Pair
from discretion.posterior.profile import (
    WhitenedPair,
    envelope,
    profile_contour,
    profile_range,
    saddle,
)
from discretion.posterior.sensitivity import Array, checked, checked_count
from discretion.privacy.conversion import round_up
from discretion.privacy.loss import Neighbours

DIRECTIONS = ("D against D'", "D' against D")

_MOST = 512.0
"""Epsilons above are not sought: the profile caps exponents at 690."""
_LEAST_DELTA = 1e-12
_HALVINGS = 46
_NODES = 4096
_CONTOUR = 400
_AGREE = 1e-3
_SEARCH_NODES = 16

_ISLANDS = 6
_PEOPLE = 32
_SHARED = 25
_STEP = 1e-4
_EMPTY = 0.1


# --- data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One record: its place, one number for each coordinate, and its response."""

    place: tuple[float, ...]
    response: float

    def __str__(self) -> str:
        return f"{self.response:+g} at {_place(self.place)}"


@dataclass(frozen=True)
class Cluster:
    """``count`` equal records at ``place`` (one number a covariate) with this ``response``."""

    count: int
    place: tuple[float, ...]
    response: float

    def __str__(self) -> str:
        return f"{self.count} records {self.response:+g} at {_place(self.place)}"


@dataclass(frozen=True)
class Witness:
    """Two neighbouring data sets: D is ``core`` and ``record``; D' is ``core`` and ``other``, or ``core`` alone."""

    core: tuple[Cluster, ...]
    record: Record
    other: Record | None

    def __str__(self) -> str:
        core = ", ".join(map(str, self.core)) or "no other records"
        change = "is left out" if self.other is None else f"becomes {self.other}"
        return f"{core}; one record {self.record} {change}"

    @property
    def neighbours(self) -> Neighbours:
        """The relation of D and D'."""
        return Neighbours.ADD_REMOVE if self.other is None else Neighbours.REPLACE

    @property
    def size(self) -> int:
        """Number of records of D."""
        return 1 + sum(cluster.count for cluster in self.core)


def _place(place: tuple[float, ...]) -> str:
    return f"{place[0]:.8g}" if len(place) == 1 else "(" + ", ".join(f"{x:.8g}" for x in place) + ")"


@dataclass(frozen=True)
class _DataSets:
    """A batch of witnesses: places (B, m + 2, d) of m clusters, x and x'; counts (B, m); responses (B, m + 2)."""

    places: Array
    counts: Array
    responses: Array

    @classmethod
    def of(cls, witness: Witness) -> _DataSets:
        other = witness.record if witness.other is None else witness.other
        everyone = [*witness.core, witness.record, other]
        return cls(
            np.array([[each.place for each in everyone]], dtype=np.float64),
            np.array([[cluster.count for cluster in witness.core]], dtype=np.float64),
            np.array([[each.response for each in everyone]], dtype=np.float64),
        )

    def witness(self, index: int, neighbours: Neighbours) -> Witness:
        places = [tuple(map(float, place)) for place in self.places[index]]
        responses = list(map(float, self.responses[index]))
        merged: dict[tuple[tuple[float, ...], float], int] = {}
        for key, count in zip(zip(places[:-2], responses[:-2], strict=True), self.counts[index], strict=True):
            merged[key] = merged.get(key, 0) + int(count)
        core = tuple(Cluster(count, *key) for key, count in sorted(merged.items()) if count)
        x, other = (Record(*each) for each in zip(places[-2:], responses[-2:], strict=True))
        return Witness(core, x, other if neighbours is Neighbours.REPLACE else None)

    def pair(self, kernel: Kernel, ridge: float) -> Pair:
        r"""Both records seen from the core.

        With S the diagonal of ``sqrt(count)``, the weights of the clusters are
        :math:`S(SKS + r^2 I)^{-1}S k`; a cluster without records has none.
        """
        K = _gram(kernel, self.places)
        m = K.shape[-1] - 2
        root = np.sqrt(self.counts)[:, :, None]
        cross = root * K[:, :m, m:]
        weights = np.linalg.solve(root * K[:, :m, :m] * np.swapaxes(root, 1, 2) + ridge**2 * np.eye(m), cross)
        C = K[:, m:, m:] - np.swapaxes(cross, 1, 2) @ weights
        residual = self.responses[:, m:] - np.einsum("bij,bi->bj", root * weights, self.responses[:, :m])
        least = ridge**2 / (self.counts.sum(axis=1) + ridge**2)
        v, other, w = np.maximum(C[:, 0, 0], least), np.maximum(C[:, 1, 1], least), C[:, 0, 1]
        # at one place the three are one number: no rounding may tell them apart
        same = np.all(self.places[:, m] == self.places[:, m + 1], axis=1)
        other, w = np.where(same, v, other), np.where(same, v, w)
        residual[:, 1] = np.where(
            same, residual[:, 0] + (self.responses[:, m + 1] - self.responses[:, m]), residual[:, 1]
        )
        return Pair(v, other, w, residual[:, 0], residual[:, 1], np.full_like(v, ridge))

    def laws(self, kernel: Kernel, ridge: float, scale: float, neighbours: Neighbours) -> WhitenedPair:
        r"""The law of D against that of D' for every data set, then that of D' against that of D: batch 2B.

        One record present or absent is a pair on a line, ``N(0, 1)`` without and ``N(delta, 1 - a)`` with it, where
        ``a = v / (r^2 + v)`` and :math:`\delta = s\sqrt v / (\sigma(r^2 + v))`.
        """
        pair = self.pair(kernel, ridge)
        if neighbours is Neighbours.REPLACE:
            swapped = Pair(pair.v_other, pair.v, pair.w, pair.residual_other, pair.residual, pair.ridge)
            both = [WhitenedPair.of(ExactPair.of(each, scale)) for each in (pair, swapped)]
            return WhitenedPair(
                *(np.hstack(arrays) for arrays in zip(*((p.shift, p.excess) for p in both), strict=True))
            )
        total = ridge**2 + pair.v
        shift, tau = pair.residual * np.sqrt(pair.v) / (scale * total), pair.v / ridge**2
        line = np.concatenate([-shift * np.sqrt(1.0 + tau), shift]), np.concatenate([tau, -pair.v / total])
        return WhitenedPair(*(np.stack([axis, np.zeros_like(axis)]) for axis in line))


def _gram(kernel: Kernel, places: Array) -> Array:
    """Kernel matrices (B, p, p) of places (B, p, d): a stationary kernel needs the differences only."""
    difference = places[:, :, None, :] - places[:, None, :, :]
    origin = np.zeros((1, places.shape[-1]))
    return kernel(difference.reshape(-1, places.shape[-1]), origin).reshape(difference.shape[:-1])


# --- epsilon of given pairs -----------------------------------------------------------------------


def _lower_profile(laws: WhitenedPair, epsilon: Array, paths: int) -> Array:
    """A value that ``delta_L(eps)`` is not below: rigorous for one path; 0 where a contour is not accepted."""
    if paths == 1:
        return profile_range(laws, epsilon, nodes=_NODES).low
    first, second = (profile_contour(laws, epsilon, paths, nodes) for nodes in (_CONTOUR, 2 * _CONTOUR))
    with np.errstate(all="ignore"):
        low, high, gap = np.minimum(first, second), np.maximum(first, second), np.abs(first - second)
        fine = (low >= 0.0) & (high <= np.minimum(1.0, _cap(laws, epsilon, paths))) & (gap <= _AGREE * high)
        return np.where(fine, np.maximum(low - 2.0 * gap, 0.0), 0.0)


def _search_profile(laws: WhitenedPair, epsilon: Array, paths: int) -> Array:
    """``delta_L(eps)`` nearly: good enough to rank data sets. Several paths: the leading term at the saddle point."""
    if paths == 1:
        # a chord errs upwards about twice as much as the value in the middle errs downwards
        low, high = profile_range(laws, epsilon, nodes=_SEARCH_NODES)
        return (2.0 * low + high) / 3.0
    z = saddle(laws, epsilon, paths)
    bend = paths * laws.curvature(z) + 1.0 / z**2 + 1.0 / (1.0 + z) ** 2
    exponent = paths * laws.cumulant(z) - z * epsilon
    return np.exp(np.minimum(exponent, 0.0)) / (z * (1.0 + z) * np.sqrt(2.0 * math.pi * bend))


def _cap(laws: WhitenedPair, epsilon: Array, paths: int) -> Array:
    """The envelope, a bound of ``delta_L(eps)``."""
    z = saddle(laws, epsilon, paths)
    return np.exp(np.minimum(envelope(paths * laws.cumulant(z) - z * epsilon, z), 0.0)) * (1.0 + 1e-9)


def _epsilon(profile: Callable[[Array], Array], delta: float, size: int) -> Array:
    """The largest epsilon found at which ``profile`` exceeds ``delta``, at most ``_MOST``; 0 where it is below at 0."""
    low, high = np.zeros(size), np.ones(size)
    for _ in range(10):
        above = (profile(high) > delta) & (high < _MOST)
        if not above.any():
            break
        low, high = np.where(above, high, low), np.where(above, np.minimum(2.0 * high, _MOST), high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = profile(middle) > delta
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where((low > 0.0) & (profile(low) > delta), low, 0.0)


def witness_epsilon(
    witness: Witness, kernel: Kernel, *, ridge: float, scale: float, delta: float, paths: int = 1
) -> tuple[float, str]:
    """Lower bound of ``eps(delta)`` of one pair of neighbouring data sets, and the direction that gave it.

    Parameters
    ----------
    witness : Witness
        Its places have the dimension that the kernel takes.
    kernel : Kernel
    ridge, scale : float > 0
        r and sigma of the release.
    delta : float in [1e-12, 1)
    paths : int >= 1
        Independent paths from the same records.

    Returns
    -------
    (float, str)
        Within about 1e-7 of the exact epsilon of the pair, the larger of both directions; at most 512. "D against D'"
        says that D is the data set whose release betrays itself.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    ``eps(delta)`` exceeds every epsilon at which ``delta(eps)`` exceeds delta. Sources as in the module.
    """
    r, sigma, rare, count = _checked(ridge, scale, delta, paths)
    laws = _DataSets.of(witness).laws(kernel, r, sigma, witness.neighbours)
    found = _epsilon(lambda epsilon: _lower_profile(laws, epsilon, count), rare, 2)
    return float(found.max()), DIRECTIONS[int(np.argmax(found))]


def _checked(ridge: float, scale: float, delta: float, paths: int) -> tuple[float, float, float, int]:
    if not _LEAST_DELTA <= delta < 1.0:
        raise ValueError(f"delta must lie in [{_LEAST_DELTA:g}, 1) for an audit; got {delta!r}.")
    return (
        float(checked("ridge", ridge)),
        float(checked("scale", scale, finite=False)),
        float(delta),
        int(checked_count("paths", paths)),
    )


# --- the search -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairAudit:
    """What an audit found.

    Attributes
    ----------
    epsilon_lower : float
        No guarantee at ``delta`` can be below it.
    witness : Witness
        The data sets that prove it.
    direction : str
        "D against D'" or "D' against D".
    claimed : float or None
        The upper bound it was set against.
    delta : float
    rigorous : bool
        True for one path. For more the profile of the witness is numerical.
    complete : bool
        Whether the search ran to its end; if not, a time limit stopped it.
    """

    epsilon_lower: float
    witness: Witness
    direction: str
    claimed: float | None
    delta: float
    rigorous: bool
    complete: bool

    @property
    def refuted(self) -> bool:
        """Whether the claim is false."""
        return self.claimed is not None and not self.claimed >= self.epsilon_lower

    def __str__(self) -> str:
        below = "cannot be below" if self.rigorous else "cannot (numerically) be below"
        lower = f"{math.floor(self.epsilon_lower * 1e4) / 1e4:.4f}"
        if self.claimed is None:
            return f"epsilon {below} {lower} at delta = {self.delta:g}"
        verdict = ": the claim is REFUTED" if self.refuted else ""
        return f"claimed {round_up(self.claimed, 4)}, {below} {lower} at delta = {self.delta:g}{verdict}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"neighbours": str(self.witness.neighbours), "refuted": self.refuted}


def audit_pair(
    kernel: Kernel,
    domain: Box,
    *,
    n: int,
    ridge: float,
    scale: float,
    delta: float,
    response_bound: float = 1.0,
    neighbours: Neighbours = Neighbours.REPLACE,
    paths: int = 1,
    claimed: float | None = None,
    clusters: int = 4,
    rounds: int = 400,
    seed: int = 0,
    time_limit: float | None = None,
) -> PairAudit:
    """Search for the neighbouring data sets that leak most, and report their exact epsilon as a lower bound.

    Parameters
    ----------
    kernel : Kernel
    domain : Box
        Where records may lie.
    n : int >= 1
        Number of records; under add/remove neighbours the largest number.
    ridge, scale : float > 0
        r, with the jitter of the Gram matrix in it, and sigma (infinite: the centred path).
    delta : float in [1e-12, 1)
    response_bound : float >= 0
        M: responses are M or -M.
    neighbours : Neighbours
    paths : int >= 1
    claimed : float, optional
        The upper bound to hold against what is found.
    clusters : int >= 1
        Most places at which the records that both data sets share may lie.
    rounds : int >= 0
        Generations of the search.
    seed : int
        The search is the same in every run with one seed, unless the time limit stops it.
    time_limit : float, optional
        Seconds after which the search stops with what it has.

    Returns
    -------
    PairAudit

    Raises
    ------
    ValueError
        If a parameter is out of range, or the kernel does not take the coordinates of the domain.

    Notes
    -----
    Differential evolution (Storn and Price 1997, "current to one of the best") on ``log delta(eps)``, eps the best
    epsilon so far. Places lie on a grid of at most 1e-4 of the shorter of side and length scale; counts are whole
    throughout. The profile is quasi-convex in the responses: the worst are at the ends (``docs/proofs/vertices.md``).
    A longer search may find more: the lower bound is proved, that it is the largest is not.
    """
    r, sigma, rare, L = _checked(ridge, scale, delta, paths)
    if neighbours not in (Neighbours.REPLACE, Neighbours.ADD_REMOVE):
        raise ValueError(f"An audit knows the neighbours replace and add-remove; got {str(neighbours)!r}.")
    family = _Family(
        kernel,
        domain,
        int(checked_count("n", n)) - 1,
        float(checked("response_bound", response_bound, strict=False)),
        Neighbours(neighbours),
        int(checked_count("clusters", clusters)),
    )
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit

    def profiles(genes: Array, epsilon: Array | float) -> Array:
        """The larger profile of both directions, (B,)."""
        laws = family.decode(genes).laws(kernel, r, sigma, family.neighbours)
        both = _search_profile(laws, np.broadcast_to(np.asarray(epsilon), laws.shift.shape[1:]), L)
        return both.reshape(2, -1).max(axis=0)

    crowd, level, complete = _evolved(profiles, family, rare, int(rounds), np.random.default_rng(seed), deadline)
    found = family.decode(family.plain(crowd))
    laws = found.laws(kernel, r, sigma, family.neighbours)
    value = _lower_profile(laws, np.full(laws.shift.shape[1:], level), L).reshape(2, -1).max(axis=0)
    witness = found.witness(int(np.argmax(value >= (1.0 - 1e-9) * value.max())), family.neighbours)
    epsilon, direction = witness_epsilon(witness, kernel, ridge=r, scale=sigma, delta=rare, paths=L)
    return PairAudit(epsilon, witness, direction, claimed, rare, L == 1, complete)


@dataclass(frozen=True)
class _Family:
    """Data sets of ``shared`` records in at most ``clusters`` clusters, and their genes in the unit cube.

    Genes: places of clusters, x and x'; for each cluster a number whose distance from 1/2 is its weight and whose side
    is the sign of its response; the weight of the records left out (add/remove); the sign of y' (that of y is free).
    """

    kernel: Kernel
    domain: Box
    shared: int
    bound: float
    neighbours: Neighbours
    clusters: int

    @property
    def size(self) -> int:
        return (self.clusters + 2) * self.domain.dimension + self.clusters + 2

    def decode(self, genes: Array) -> _DataSets:
        m, d = self.clusters, self.domain.dimension
        split = (m + 2) * d
        lower, upper = np.array(self.domain.lower), np.array(self.domain.upper)
        sides = upper - lower
        shorter = np.minimum(sides, scales_per_axis(self.kernel.length_scale, d))
        steps = 10.0 ** np.ceil(np.log10(sides / (_STEP * shorter)) - 1e-9)
        unit = np.round(genes[:, :split].reshape(-1, m + 2, d) * steps) / steps
        signed = 2.0 * genes[:, split : split + m] - 1.0
        weight = np.maximum(np.abs(signed) - _EMPTY, 0.0)
        spare = np.maximum(np.abs(2.0 * genes[:, -2] - 1.0) - 0.5, 0.0)
        if self.neighbours is Neighbours.REPLACE:
            spare = np.zeros_like(spare)
        total = np.maximum(weight.sum(axis=1) + spare, 1e-12)
        counts = np.floor(self.shared * weight / total[:, None])
        left = np.round(self.shared * (1.0 - spare / total)) - counts.sum(axis=1)
        counts[np.arange(len(counts)), np.argmax(weight, axis=1)] += left
        sign = np.where(signed < 0.0, -1.0, 1.0)
        other = np.where(genes[:, -1] < 0.5, -1.0, 1.0)
        responses = self.bound * np.column_stack([sign, np.ones(len(genes)), other])
        return _DataSets(lower * (1.0 - unit) + upper * unit, counts, responses)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Random genes; of half of them most coordinates are those of corners."""
        genes = rng.uniform(size=(count, self.size))
        places = self.places(genes)
        corner = (rng.uniform(size=(count, 1, 1)) < 0.5) & (rng.uniform(size=places.shape) < 0.8)
        places[...] = np.where(corner, np.round(places), places)
        return self.neatened(rng, genes, 0.5)

    def neatened(self, rng: np.random.Generator, genes: Array, chance: float) -> Array:
        """The genes, with one place moved onto another, and one onto a side of the box, each with this chance."""
        places = self.places(genes)
        rows = np.flatnonzero(rng.uniform(size=len(genes)) < chance)
        source, target = rng.integers(0, places.shape[1], (2, rows.size))
        places[rows, target] = places[rows, source]
        rows = np.flatnonzero(rng.uniform(size=len(genes)) < chance)
        target, axis = rng.integers(0, places.shape[1], rows.size), rng.integers(0, places.shape[2], rows.size)
        places[rows, target, axis] = np.round(places[rows, target, axis])
        return genes

    def plain(self, genes: Array) -> Array:
        """The genes and plainer ones, the plainest first: x' at x; one response in all clusters."""
        joined, part = genes.copy(), slice(-self.clusters - 2, -2)
        places = self.places(joined)
        places[:, -1] = places[:, -2]
        both = np.concatenate([joined, genes])
        low, high = both.copy(), both.copy()
        low[:, part] = 0.5 - np.abs(both[:, part] - 0.5)
        high[:, part] = 0.5 + np.abs(both[:, part] - 0.5)
        return np.concatenate([low, high, both])

    def places(self, genes: Array) -> Array:
        """A view of the places, (B, m + 2, d)."""
        d = self.domain.dimension
        return genes[:, : (self.clusters + 2) * d].reshape(len(genes), self.clusters + 2, d)


def _evolved(
    profiles: Callable[[Array, Any], Array],
    family: _Family,
    delta: float,
    rounds: int,
    rng: np.random.Generator,
    deadline: float,
) -> tuple[Array, float, bool]:
    """The best genes of each island, an epsilon near theirs, and whether every round was run.

    Islands keep apart, so that one may succeed where another is stuck.
    """
    shape = (_ISLANDS, _PEOPLE)
    count = _ISLANDS * _PEOPLE
    crowd = family.draw(rng, count)
    island = np.arange(_ISLANDS)[:, None]
    epsilon = float(_epsilon(lambda eps: profiles(crowd, np.tile(eps, 2)), delta, count).max())
    score = profiles(crowd, epsilon)
    done = 0
    while done < rounds and time.perf_counter() < deadline:
        done += 1
        if done % _SHARED == 0:
            # aim at the epsilon of the best, where all are compared anew
            top = crowd[np.argmax(score)][None]
            epsilon = float(_epsilon(lambda eps, top=top: profiles(top, np.tile(eps, 2)), delta, 1)[0])
            score = profiles(crowd, epsilon)
        ranked = np.argsort(-score.reshape(shape), axis=1)
        leader = ranked[island, rng.integers(0, max(2, _PEOPLE // 8), shape)]
        one, two = rng.integers(0, _PEOPLE, (2, *shape))
        people = crowd.reshape(*shape, -1)
        step = rng.uniform(0.3, 0.9, (*shape, 1))
        trial = people + step * (people[island, leader] - people) + step * (people[island, one] - people[island, two])
        rate = np.where(rng.uniform(size=(*shape, 1)) < 0.5, 0.9, 0.25)
        crossed = rng.uniform(size=trial.shape) < rate
        crossed[island, np.arange(_PEOPLE), rng.integers(0, trial.shape[-1], shape)] = True
        trial = np.clip(np.where(crossed, trial, people), 0.0, 1.0).reshape(count, -1)
        trial = family.neatened(rng, trial, 0.1)
        fresh = profiles(trial, epsilon)
        better = fresh >= score
        crowd, score = np.where(better[:, None], trial, crowd), np.where(better, fresh, score)
    best = crowd.reshape(*shape, -1)[np.arange(_ISLANDS), np.argmax(score.reshape(shape), axis=1)]
    return best, epsilon, done == rounds
