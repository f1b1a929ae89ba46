"""Neighbouring data sets on public graphs, random and hill-climbed, against every bound of the lattice account.

A ratio is an exact value over its bound: above 1 is a violation. Data sets are node counts and sums, so their posterior
is a small dense inverse; the divergence is that of the exact pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box
from discretion.gp.lattice import Lattice
from discretion.posterior.lattice_account import LatticeAccount, LatticeAddRemove
from discretion.posterior.mean_cap import MeanCap, node_tangents
from discretion.posterior.pair import Pair
from discretion.posterior.sensitivity import phi

Array = NDArray[np.float64]
GRAPHS = ("hexagon", "square", "tree", "random")
TOLERANCE = 1e-9


@dataclass
class Sets:
    """Data sets, arrays (B, ...): core counts and mean responses of the nodes, two places and two responses."""

    counts: Array
    response: Array
    place: NDArray[np.int64]
    ends: Array

    def take(self, index: Any) -> Sets:
        return Sets(self.counts[index], self.response[index], self.place[index], self.ends[index])

    def merged(self, other: Sets, chosen: NDArray[np.bool_]) -> Sets:
        """Rows of ``other`` where chosen."""
        row = chosen[:, None]
        return Sets(
            np.where(row, other.counts, self.counts),
            np.where(row, other.response, self.response),
            np.where(row, other.place, self.place),
            np.where(row, other.ends, self.ends),
        )


def graph(kind: str, rng: np.random.Generator) -> Lattice:
    """A small graph: a part of a tiling, or Neumann borders, a tree or a random graph with random killing."""
    if kind in ("hexagon", "square") and rng.uniform() < 0.5:
        make = Lattice.hexagon if kind == "hexagon" else Lattice.square
        side = float(rng.integers(1, 4))
        return make(1.0, Box((0.0, 0.0), (side, side)), float(10.0 ** rng.uniform(-2.0, 0.3)))
    if kind in ("hexagon", "square"):
        side = int(rng.integers(2, 5))
        at = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
        step = at[:, None] - at[None]
        W = (np.abs(step).sum(axis=-1) == 1) | ((kind == "hexagon") & (step.prod(axis=-1) == -1))
        W = W.astype(np.float64)
    else:
        size = int(rng.integers(2, 15))
        W = np.zeros((size, size))
        for node in range(1, size):
            parent = rng.integers(node)
            W[node, parent] = W[parent, node] = 10.0 ** rng.uniform(-1.0, 1.0)
        if kind == "random":
            extra = np.triu(rng.uniform(size=(size, size)) < 0.3, 1) * 10.0 ** rng.uniform(-1.0, 1.0, (size, size))
            W = np.maximum(W, extra + extra.T)
    size = len(W)
    killing = 10.0 ** rng.uniform(-2.0, 0.5) * np.where(rng.uniform(size=size) < 0.3, rng.uniform(size=size), 1.0)
    admissible = rng.uniform(size=size) < 0.85
    admissible[rng.integers(size)] = True
    return Lattice.of_precision(np.diag(W.sum(axis=1) + killing) - W, admissible=admissible)


def drawn(lattice: Lattice, n: int, rng: np.random.Generator, count: int) -> Sets:
    """Random data sets of n records: few or many occupied nodes, responses at the ends or anywhere."""
    allowed = np.flatnonzero(lattice.admissible)
    share = rng.gamma(10.0 ** rng.uniform(-1.5, 1.0, (count, 1)), size=(count, allowed.size)) + 1e-12
    counts = np.zeros((count, lattice.size))
    counts[:, allowed] = rng.multinomial(n - 1, share / share.sum(axis=1, keepdims=True))
    response = np.where(
        rng.uniform(size=(count, 1)) < 0.5,
        rng.choice([-1.0, 1.0], (count, 1)),
        rng.choice([-1.0, 1.0, 0.5], (count, lattice.size)),
    )
    return Sets(counts, response, rng.choice(allowed, (count, 2)), rng.choice([-1.0, 1.0, 0.3], (count, 2)))


def moved(sets: Sets, lattice: Lattice, rng: np.random.Generator) -> Sets:
    """Each data set with one thing changed."""
    allowed, rows = np.flatnonzero(lattice.admissible), np.arange(len(sets.counts))
    new = Sets(*(part.copy() for part in vars(sets).values()))
    kind = rng.integers(5, size=rows.size)
    source, target = rng.choice(allowed, (2, rows.size))
    part = np.floor(new.counts[rows, source] * rng.choice([0.1, 0.5, 1.0], rows.size) + rng.uniform(size=rows.size))
    part = np.where(kind == 0, np.minimum(part, new.counts[rows, source]), 0.0)
    new.counts[rows, source] -= part
    new.counts[rows, target] += part
    new.response[rows, source] *= np.where(kind == 1, -1.0, 1.0)
    new.response[rows, source] = np.where(kind == 2, rng.choice([-1.0, 1.0], rows.size), new.response[rows, source])
    end = rng.integers(2, size=rows.size)
    new.place[rows, end] = np.where(kind == 3, target, new.place[rows, end])
    new.ends[rows, end] = np.where(kind == 4, rng.choice([-1.0, 1.0], rows.size), new.ends[rows, end])
    return new


@dataclass
class Case:
    """One graph and one setting, with the bounds that do not depend on the data set."""

    lattice: Lattice
    n: int
    ridge: float
    scale: float
    excess: float

    def __post_init__(self) -> None:
        self.account = LatticeAccount(self.lattice, self.n, self.ridge)
        self.removal = LatticeAddRemove(self.lattice, self.n, self.ridge)
        self.P = self.lattice.precision.toarray()

    @cached_property
    def caps(self) -> list[MeanCap]:
        """The mean cap of each node."""
        return [MeanCap.of(node_tangents(self.lattice, x)) for x in range(self.lattice.size)]

    @classmethod
    def drawn(cls, kind: str, rng: np.random.Generator) -> Case:
        lattice = graph(kind, rng)
        n = int(rng.choice([1, 2, 3, 10, 100, 1000]))
        ridge, scale = 10.0 ** rng.uniform(-0.5, 0.9), 10.0 ** rng.uniform(-1.5, 0.7)
        top = ridge**2 / 1.0
        return cls(lattice, n, float(ridge), float(scale), float(top * 10.0 ** rng.uniform(-2.0, -0.15)))

    def pairs(self, sets: Sets) -> tuple[Pair, Array, Array]:
        """The pairs, the core's mean (B, N) and covariance (B, N, N)."""
        q, rows = self.ridge**2, np.arange(len(sets.counts))
        A = self.P + np.eye(len(self.P)) * (sets.counts / q)[:, None, :]
        C = np.linalg.inv(A)
        mean = np.einsum("bij,bj->bi", C, sets.counts * sets.response / q)
        x, y = sets.place.T
        residual = sets.ends - mean[rows[:, None], sets.place]
        v, v_other, w = C[rows, x, x], C[rows, y, y], C[rows, x, y]
        return Pair(v, v_other, w, residual[:, 0], residual[:, 1], np.full(rows.size, self.ridge)), mean, C

    def divergence(self, sets: Sets) -> Array:
        """Exact Renyi divergence of each pair of neighbours at the order of the case."""
        return self.pairs(sets)[0].divergence(self.excess, self.scale)

    def ratios(self, sets: Sets, certified: float | None = None) -> dict[str, float]:
        """The largest ratio of each bound."""
        pair, mean, C = self.pairs(sets)
        rows, (x, y), space = np.arange(len(mean)), sets.place.T, self.account.space
        k, at = self.lattice.killing, mean[rows[:, None], sets.place]
        own = np.array([self.caps[node](v) for node, v in zip(x.tolist(), pair.v, strict=True)])
        shared = self.account.responses.cap(np.minimum(pair.v, 1.0))
        difference = np.abs(at[:, 0] - at[:, 1])
        d, d_other = pair.v - pair.w, pair.v_other - pair.w
        apart = (x != y) & (pair.v * pair.v_other - pair.w**2 > 1e-9)
        gap = np.where(apart, pair.v * pair.v_other - pair.w**2, 1.0)
        two = np.where(apart, 2.0 * d * d_other / gap - k[x] * d - k[y] * d_other, 2.0)
        sensitivity = np.sqrt(8.0 * float(phi(space.variance, self.ridge)))
        diagonal = np.einsum("bii->bi", C)[:, self.lattice.admissible]
        one = 0.5 * self.excess
        a = pair.v / (self.ridge**2 + pair.v)
        shift = pair.residual**2 * a / (self.ridge**2 + pair.v) / self.scale**2
        removed = (1.0 + one) * shift / (2.0 * (1.0 - (1.0 + one) * a)) - (
            np.log1p(-(1.0 + one) * a) - (1.0 + one) * np.log1p(-a)
        ) / (2.0 * one)
        found = {
            "mean cap of the node": np.abs(at[:, 0]) / (1.0 - own + 1e-12),
            "mean cap of the graph": np.abs(at[:, 0]) / (1.0 - shared + 1e-12),
            "covariance": pair.w / np.minimum(pair.v, pair.v_other),
            "difference of means": np.where(apart, difference / (two + 1e-9), 0.0),
            "largest variance": diagonal.max(axis=1) / space.variance,
            "least variance": space.least_variance / diagonal.min(axis=1),
            "mean sensitivity": pair.mean_distance / sensitivity,
            "closed form": self.divergence(sets)
            / float(self.account.closed_form(self.scale).renyi_excess(self.excess)),
            "add/remove": removed / float(self.removal.loss(self.scale).renyi_excess(one)),
        }
        if certified is not None:
            found["certified"] = self.divergence(sets) / certified
        return {name: float(np.max(value)) for name, value in found.items()}


def search(cases: int, random: int, climbs: int, steps: int, seed: int = 0) -> tuple[dict[str, float], int, int]:
    """The largest ratios over all, and how many data sets were drawn and climbed."""
    rng, most = np.random.default_rng(seed), dict[str, float]()
    for number in range(cases):
        case = Case.drawn(GRAPHS[number % len(GRAPHS)], rng)
        found = case.account.renyi(case.scale, case.excess, tolerance=1e-2, time_limit=10.0)
        certified = float(found.bound[0])
        sets = drawn(case.lattice, case.n, rng, random)
        start = sets.take(np.argsort(-case.divergence(sets), kind="stable")[:climbs])
        value = case.divergence(start)
        for _ in range(steps):
            tried = moved(start, case.lattice, rng)
            new = case.divergence(tried)
            start, value = start.merged(tried, new > value), np.maximum(new, value)
        for held in (sets, start):
            for name, ratio in case.ratios(held, certified).items():
                most[name] = max(most.get(name, 0.0), ratio)
    return most, cases * random, cases * climbs


if __name__ == "__main__":
    print(search(116, 440, 5, 200))
