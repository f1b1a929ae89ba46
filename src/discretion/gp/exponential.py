"""The exact posterior of the exponential kernel on the line in linear time, by arithmetic on positive numbers alone.

The process is Markov, and its precision is that of a network of conductors: places are nodes, neighbours are joined,
and each node leaks to the ground (its *killing*). Every other node is eliminated, then every other of those left, by
sums, products and ratios of positive numbers. Each of the log2(n) rounds moves a conductance by a few units of the last
place, whatever the records are, also where they lie 1e-12 apart or at one place (``docs/proofs/exponential-line.md``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import UNIT_ROUNDOFF, FactorisationError
from discretion.gp.domain import Array
from discretion.gp.kernels import Exponential, ExponentialL1, Kernel
from discretion.gp.line import LinePaths, LinePosterior

Mask = npt.NDArray[np.bool_]

_TOUCHING = 2.0**-400  # the distance of two nodes at one place


def on_the_line(kernel: Kernel, dimension: int) -> bool:
    """Whether kernel and dimension are those of this module: the exponential kernel on the line."""
    return dimension == 1 and type(kernel) in (Exponential, ExponentialL1) and np.size(kernel.length_scale) == 1


def _rounds(n: int, m: int) -> int:
    """Rounds of elimination, at most, of n sites and then of m points."""
    return n.bit_length() + m.bit_length() + 2


def line_mean_rounding(n: int, m: int, ridge: float, response_bound: float) -> float:
    """Bound on the Euclidean norm over m points of the rounding of the mean, for |y_i| <= `response_bound`.

    Proof: ``docs/proofs/exponential-line.md``, Theorem 2.
    """
    rounds = _rounds(n, m)
    one = (40.0 + 14.0 * rounds) * math.sqrt(n) / ridge + 40.0 + 10.0 * rounds
    return math.sqrt(m) * one * UNIT_ROUNDOFF * response_bound if n else 0.0


def line_nugget_floor(n: int, m: int, requests: int = 1) -> float:
    """What `nugget_floor` is for the dense engine, for m points in all, asked in so many requests.

    A nugget of 8 times it keeps the covariance of the computed noise within 1/8 of the exact one, nugget included.
    inf where double precision does not bear so many requests.
    Proof: ``docs/proofs/exponential-line.md``, Theorem 1.
    """
    rounds = _rounds(n, m)
    if requests * (80.0 + 20.0 * rounds) * UNIT_ROUNDOFF > 1e-3:
        return math.inf
    return m * (64.0 * UNIT_ROUNDOFF + 40.0 * (requests * 10.0 * rounds * UNIT_ROUNDOFF) ** 2)


class ExponentialPosterior(LinePosterior):
    """`DensePosterior` on the line for the exponential kernel, in O(n log n).

    Parameters: `kernel`, exponential with one length scale; `ridge` > 0; X (n, 1); y (n,); `jitter` >= 0, added to
    ridge^2. n = 0 is the prior. Repeated rows of X are ordinary data; places are told apart down to 2^-120 length
    scales.

    Raises ValueError for other kernels, for X that is not one column, when X or y are not finite, and when ridge^2 +
    jitter is below 1e-60; FactorisationError when a result is not finite.

    Precision of the process at sorted places with gaps c, between two ends at infinity: conductances 1 / (2 sinh c)
    between neighbours, killings tanh(c / 2) / 2 at both ends of each gap; each response adds a killing J and a current
    J y, J = 1 / (ridge^2 + jitter). The potentials are the posterior mean.
    """

    def __init__(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> None:
        if not on_the_line(kernel, 1):
            raise ValueError(f"{kernel!r} is not the exponential kernel with one length scale; use DensePosterior.")
        if not (0 < ridge < 1e100 and 0 <= jitter < 1e100):
            raise ValueError("ridge must be positive, jitter 0 or more, both finite (below 1e100).")
        noise = float(ridge) ** 2 + float(jitter)
        if noise < 1e-60:
            raise ValueError(f"ridge^2 + jitter must be at least 1e-60; got {noise:.3g}.")
        self.precision = 1.0 / noise
        super().__init__(kernel, ridge, jitter, X, y)

    def _settle(self, places: Array) -> None:
        self._order = np.argsort(places)
        self.sites = places[self._order]

    def _respond(self, responses: Array) -> None:
        """The posterior mean at the sites."""
        self._responses = responses[self._order]
        places = np.concatenate([[-math.inf], self.sites, [math.inf]])
        inside = np.isfinite(places)
        network = _network(places, np.where(inside, self.precision, 0.0))
        network.current[1:-1] = self.precision * self._responses
        rounds, _ = _eliminated(network, inside)
        means = np.zeros(len(places))
        for each in reversed(rounds):
            means[each.node] = each.to_left * means[each.left] + each.to_right * means[each.right]
            means[each.node] += each.current / each.total
        self.means = means[1:-1]
        if not np.isfinite(means).all():
            raise FactorisationError("The posterior is not finite in double precision; nothing was returned.")

    def mean_at(self, places: Array) -> Array:
        """Posterior mean at places: (sinh(v) left + sinh(u) right) / sinh(u + v) at distances u, v from two sites."""
        ends = np.concatenate([[-math.inf], self.sites, [math.inf]])
        means = np.concatenate([[0.0], self.means, [0.0]])
        right = np.searchsorted(ends, places, side="right")
        u, v = places - ends[right - 1], ends[right] - places
        whole = -np.expm1(-2.0 * np.where(np.isfinite(u) & np.isfinite(v), ends[right] - ends[right - 1], math.inf))
        from_left = np.exp(-u) * -np.expm1(-2.0 * v) / whole
        from_right = np.exp(-v) * -np.expm1(-2.0 * u) / whole
        return from_left * means[right - 1] + from_right * means[right]

    def log_likelihood(self) -> float:
        """log density of y under N(0, A): y^T A^{-1} y = sum J (y - mean)^2 + mean^T K^{-1} mean, in positive terms."""
        J, places = self.precision, np.concatenate([[-math.inf], self.sites, [math.inf]])
        inside = np.isfinite(places)
        prior = _network(places, np.zeros(len(places)))
        form = np.sum(prior.killing[1:-1] * self.means**2) + J * np.sum((self._responses - self.means) ** 2)
        form += np.sum(prior.conductance[1:-1] * np.diff(self.means) ** 2)
        # det A / det K = det(K^{-1} + J I) / J^n, and K^{-1} is the prior's network
        totals = (_totals(_eliminated(_network(places, np.where(inside, v, 0.0)), inside)[0]) for v in (J, 0.0))
        posterior_total, prior_total = totals
        determinant = posterior_total - prior_total - self.n * math.log(J)
        return -0.5 * float(self.n * math.log(2.0 * math.pi) + determinant + form)


class ExponentialPaths(LinePaths[ExponentialPosterior]):
    """`DrawnPaths` of an `ExponentialPosterior`, with a nugget of at least 8 `line_nugget_floor(n, m, requests)` for m
    distinct points in all.

    A point keeps its value, nugget included. m new points take O(n' + m) once, n' the number of sites that no known
    point separates from them, and O(m) a path: values are drawn where they are asked for, and nowhere else.

    The sites are eliminated, which leaves a network of points. Then the new points are, each with conductances a and b
    to its neighbours and a killing k, and drawn in the reverse order: x = (a left + b right) / D + z / sqrt(D),
    D = a + b + k.
    """

    def _floor(self, size: int, requests: int) -> float:
        return line_nugget_floor(self.posterior.n, size, requests)

    def _begun(self) -> Array:
        """Deviations from the posterior mean at known places, (points, paths)."""
        return np.empty((0, self.paths))

    def _draw(self, new: Array) -> tuple[Array, Array]:
        normals = self._normals(2 * len(new)).T
        deviations = self._drawn(new, np.ascontiguousarray(normals[: len(new)]))
        values = self.scale * (deviations + math.sqrt(self.nugget) * normals[len(new) :])
        values += self.posterior.mean_at(new)[:, None]
        return values, np.insert(self._kept, np.searchsorted(self._known, new), deviations, axis=0)

    def _drawn(self, new: Array, normals: Array) -> Array:
        """Deviations from the posterior mean at new places, (m, paths), given those at the known ones."""
        sites, edges = self._between(new)
        ends = self._known[edges], np.array([-math.inf, math.inf])
        places = np.concatenate([sites, new, *ends])
        order = np.argsort(places, kind="stable")
        role = np.repeat([0, 1, 2, 3], [len(sites), len(new), len(edges), 2])[order]
        _, left = _eliminated(_network(places[order], np.where(role == 0, self.posterior.precision, 0.0)), role == 0)
        role = role[role > 0]
        rounds, _ = _eliminated(left, role == 1)
        x = np.zeros((len(role), self.paths))
        x[role == 2] = self._kept[edges]
        x[role == 1] = normals
        for each in reversed(rounds):
            drawn = x[each.node] / np.sqrt(each.total)[:, None]
            x[each.node] = each.to_left[:, None] * x[each.left] + each.to_right[:, None] * x[each.right] + drawn
        return x[role == 1]

    def _between(self, new: Array) -> tuple[Array, npt.NDArray[np.intp]]:
        """The sites in those stretches between known places that have a new one, and the known ends of these."""
        sites, known = self.posterior.sites, self._known
        cuts = np.concatenate([[0], np.searchsorted(sites, known, side="right"), [len(sites)]])
        stretch = np.unique(np.searchsorted(known, new))
        touched = np.zeros(len(known) + 1, dtype=bool)
        touched[stretch] = True
        inside = np.repeat(touched, np.diff(cuts))
        edges = np.unique(np.concatenate([stretch - 1, stretch]))
        return sites[inside], edges[(edges >= 0) & (edges < len(known))]


class _Network(NamedTuple):
    """N nodes in a row: conductances (N - 1) between neighbours, killing and current of each (N)."""

    conductance: Array
    killing: Array
    current: Array


class _Round(NamedTuple):
    """Nodes eliminated at once, no two of them neighbours: their own and their neighbours' numbers, and the shares
    of their currents that go left and right; the rest is killed."""

    node: npt.NDArray[np.intp]
    left: npt.NDArray[np.intp]
    right: npt.NDArray[np.intp]
    to_left: Array
    to_right: Array
    total: Array
    current: Array


def _gaps(places: Array) -> tuple[Array, Array]:
    """1 / (2 sinh c) and tanh(c / 2) / 2 of the gaps c between sorted places."""
    c = np.maximum(np.diff(places), _TOUCHING)
    A, E = np.exp(-c), -np.expm1(-c)
    return A / (E * (1.0 + A)), 0.5 * E / (1.0 + A)


def _network(places: Array, J: Array) -> _Network:
    """The process at sorted places, the first and last at infinity, with precision J of what was seen at each."""
    conductance, killing = _gaps(places)
    total = J.copy()
    total[1:] += killing
    total[:-1] += killing
    return _Network(conductance, total, np.zeros(len(places)))


def _eliminated(network: _Network, gone: Mask) -> tuple[list[_Round], _Network]:
    """The rounds in which the nodes `gone` are eliminated, and the network of the others; the ends are never gone.

    A node with conductances a, b to its neighbours and a killing k sends the share a / (a + b + k) of its current, and
    of its killing, left and b / (a + b + k) right; the neighbours are joined by a b / (a + b + k).
    """
    (a, k, i), number = (each.copy() for each in network), np.arange(len(gone))
    rounds: list[_Round] = []
    while gone.any():
        place = np.arange(len(gone))
        now = gone & ((place - np.maximum.accumulate(np.where(gone, 0, place))) % 2 == 1)  # odd ones of each run
        node = np.flatnonzero(now)
        left, right = a[node - 1], a[node]
        total = k[node] + left + right
        to_left, to_right = left / total, right / total
        rounds.append(_Round(number[node], number[node - 1], number[node + 1], to_left, to_right, total, i[node]))
        for held in (k, i):
            held[node - 1] += to_left * held[node]
            held[node + 1] += to_right * held[node]
        a[node - 1] = left * to_right
        stay = ~now
        a, k, i, number, gone = np.delete(a, node), k[stay], i[stay], number[stay], gone[stay]
    return rounds, _Network(a, k, i)


def _totals(rounds: list[_Round]) -> float:
    """Logarithm of the determinant."""
    return sum(float(np.log(each.total).sum()) for each in rounds)
