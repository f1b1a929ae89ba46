"""The exact posterior on the line in linear time, for kernels whose processes are Markov: Matern 3/2 and 5/2.

Given the state at a place (the value and its derivatives), what lies left and right of it is independent. A filter
along the sorted sites and a pass back give the posterior. Once the states at the sites are drawn, the path between two
neighbouring states is a bridge that needs nothing else, whatever is asked and whenever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import FactorisationError
from discretion.gp.domain import Array, finite_points
from discretion.gp.kernels import Kernel, Matern32, Matern52
from discretion.gp.line import LinePosterior
from discretion.gp.path import DrawnPaths, drawn_normals
from discretion.gp.states import MaternChain, observed, predicted, product, recurrence, root, solve_right

Normal = Callable[[tuple[int, int]], Array]
_NEAR = 0.5  # up to this time the way back inverts the transition, beyond it the covariance


def chain(kernel: Kernel) -> MaternChain | None:
    """The process of value and derivatives on the line with covariance `kernel`; None where this module has none."""
    orders: dict[type[Kernel], int] = {Matern32: 2, Matern52: 3}
    order = orders.get(type(kernel))
    return None if order is None or np.size(kernel.length_scale) != 1 else MaternChain(order)


class MarkovPosterior(LinePosterior):
    """`DensePosterior` on the line in O(n log n), for Matern 3/2 and Matern 5/2 kernels.

    Its rounding is small, and tested, but not bounded for every data set; private releases use `MaternLinePosterior`.
    The exponential kernel has `ExponentialPosterior`.

    Parameters: `kernel`, with one length scale; `ridge` > 0; X (n, 1); y (n,); `jitter` >= 0, added to ridge^2.
    n = 0 is the prior. Repeated rows of X are ordinary data; places are told apart down to 2^-120 length scales.

    Raises ValueError for other kernels, for X that is not one column, and when X or y are not finite;
    FactorisationError when a result is not finite.

    With precision J_i = (number of responses) / (ridge^2 + jitter) at site i, and their mean ybar_i:

        filter    V_{i+1} = A_i P_i A_i^T + Q_i,   P_i = (V_i^-1 + J_i e e^T)^-1,   K_i = P_i e J_i,
                  m_i = (I - K_i e^T) A_{i-1} m_{i-1} + K_i ybar_i
        way back  G_i = P_i A_i^T V_{i+1}^-1 = A_i^-1 (I - Q_i V_{i+1}^-1), and given state_{i+1} the state i has
                  mean (I - G_i A_i) m_i + G_i state_{i+1}, covariance (I - G_i A_i) P_i (.)^T + G_i Q_i G_i^T

    The first form of G_i is used for far sites, the second for near ones: so neither cancels.
    Source: Sarkka and Solin 2019, Algorithms 10.18 and 10.19 (Kalman filter, Rauch-Tung-Striebel smoother).
    """

    def __init__(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> None:
        found = chain(kernel)
        if found is None:
            raise ValueError(f"{kernel!r} has no states here; use matern32 or matern52, or ExponentialPosterior")
        if not (0 < ridge < 1e100 and 0 <= jitter < 1e100):
            raise ValueError("ridge must be positive, jitter 0 or more, both finite (below 1e100).")
        self.chain = found
        super().__init__(kernel, ridge, jitter, X, y)

    def places(self, x: Array) -> Array:
        """Coordinates as times of the chain: those in length scales, on a lattice of 2^-120, times its rate."""
        return self.chain.rate * super().places(x)

    def _settle(self, places: Array) -> None:
        self.sites, self._which, self._counts = np.unique(places, return_inverse=True, return_counts=True)
        self._precision = self._counts / (self.ridge**2 + self.jitter)

    def _respond(self, responses: Array) -> None:
        which = self._which
        self._level = np.bincount(which, responses, len(self.sites)) / np.maximum(self._counts, 1)
        self._within = float(np.sum((responses - self._level[which]) ** 2))
        self._filter()

    def _filter(self) -> None:
        p, J = self.chain.order, self._precision
        gap = np.diff(self.sites)
        A, Q = self.chain.transition(gap), self.chain.noise(gap)
        V = predicted(self.chain.stationary, A, Q, J)
        P = observed(V, J)
        K = P[:, :, 0] * J[:, None]
        T = np.zeros_like(V)
        T[1:] = A - K[1:, :, None] * A[:, None, 0, :]
        T[1:, 0, :] = A[:, 0, :] / (1.0 + J[1:] * V[1:, 0, 0])[:, None]
        filtered = recurrence(T, (K * self._level[:, None])[:, :, None])

        near = (gap <= _NEAR)[:, None, None]
        back = self.chain.inverse_transition(np.minimum(gap, _NEAR))
        lost = product(back, solve_right(Q, V[1:]))  # A^-1 Q V^-1
        far = solve_right(product(P[:-1], np.swapaxes(A, -1, -2)), V[1:])
        self._gain = np.where(near, back - lost, far)
        self._rest = np.where(near, product(lost, A), np.eye(p) - product(far, A))
        self._variance, self._noise, self._predicted = P, Q, V
        self._transition, self._filtered = A, filtered
        means = filtered.copy()
        means[:-1] = product(self._rest, filtered[:-1])
        self.means = self._way_back(means)  # (sites, p, 1): the posterior mean of the states
        if not np.isfinite(self.means).all():
            raise FactorisationError("the posterior is not finite in double precision; nothing was returned")

    def _way_back(self, b: Array) -> Array:
        """x_i = G_i x_{i+1} + b_i from the last site to the first."""
        T = np.zeros((len(b), *self.chain.stationary.shape))
        T[1:] = self._gain[::-1]
        return recurrence(T, b[::-1])[::-1]

    def deviations(self, normal: Normal, paths: int) -> Array:
        """Draws of (state - posterior mean) at the sites, shape (sites, p, paths)."""
        N, p = len(self.sites), self.chain.order
        if N == 0:
            return np.empty((0, p, paths))
        normals = _normals(normal, paths, 2 * N - 1, p)
        noise = product(root(self._variance), normals[:N])
        noise[:-1] = product(self._rest, noise[:-1])
        noise[:-1] += product(self._gain, product(root(self._noise), normals[N:]))
        return self._way_back(noise)

    def mean_at(self, places: Array) -> Array:
        """Posterior mean at places (m,), times of the chain: shape (m,)."""
        places, where = np.unique(np.concatenate([self.sites, places]), return_inverse=True)
        states = _filled(self.chain, places, where[: len(self.sites)], self.means, None, 0)
        return states[where[len(self.sites) :], 0, 0]

    def log_likelihood(self) -> float:
        """log density of y under N(0, A): the sum over the sites of the filter's one-step predictions."""
        noise, J = self.effective_ridge**2, self._precision
        ahead = np.zeros(len(self.sites))
        ahead[1:] = product(self._transition, self._filtered[:-1])[:, 0, 0]
        seen = 1.0 + J * self._predicted[:, 0, 0]
        squares = self._within / noise + np.sum(J * (self._level - ahead) ** 2 / seen)
        return -0.5 * float(self.n * math.log(2.0 * math.pi * noise) + np.sum(np.log(seen)) + squares)


class MarkovPaths(DrawnPaths[MarkovPosterior]):
    """`DrawnPaths` of a `MarkovPosterior`.

    The states at the sites are drawn once, in O(n). m new points among q known ones take O((q + m) log(q + m)): a point
    is drawn from the bridge between its two neighbours, which is exact, by halving the points that lie between two
    sites. A point keeps its value, nugget included.
    """

    def __init__(self, posterior: MarkovPosterior, scale: float, nugget: float, normal: Normal, paths: int = 1) -> None:
        super().__init__(posterior, scale, nugget, normal, paths)
        self._places = posterior.sites
        # column 0 the mean, then the deviations
        self._states = np.concatenate([posterior.means, posterior.deviations(normal, self.paths)], axis=2)
        self._own = np.full((len(self._places), self.paths), math.nan)  # normals of the nugget; NaN: not asked yet

    @property
    def size(self) -> int:
        """Number of distinct points drawn so far."""
        return int(np.isfinite(self._own[:, 0]).sum())

    def evaluate(self, T: npt.ArrayLike) -> Array:
        """Values of the paths at the rows of T (m, 1): shape (paths, m).

        Raises ValueError when T is not finite or not one column; FactorisationError when a value is not finite.
        After an error the paths are as they were.
        """
        asked = self.posterior.places(finite_points(T, 1, "T")[:, 0])
        known = len(self._places)
        places, where = np.unique(np.concatenate([self._places, asked]), return_inverse=True)
        states = _filled(self.posterior.chain, places, where[:known], self._states, self._normal, self.paths)
        own = np.full((len(places), self.paths), math.nan)
        own[where[:known]] = self._own
        wanted = where[known:]
        new = np.unique(wanted[np.isnan(own[wanted, 0])])
        own[new] = _normals(self._normal, self.paths, len(new), 1)[:, 0]
        noise = states[wanted, 0, 1:] + math.sqrt(self.nugget) * own[wanted]
        with np.errstate(over="ignore"):
            values = (states[wanted, 0, :1] + self.scale * noise).T
        if not np.isfinite(values).all():
            raise FactorisationError("a sample path is not finite in double precision; nothing was returned")
        self._places, self._states, self._own = places, states, own
        return values


def _normals(normal: Normal, paths: int, count: int, p: int) -> Array:
    """`count` independent standard normal vectors with p components for each path: (count, p, paths)."""
    return drawn_normals(normal, (paths, count * p)).T.reshape(count, p, paths)


def _halving(known: npt.NDArray[np.intp], count: int) -> Iterator[tuple[Any, Any, Any]]:
    """(middle, left, right): all places, each once, between two that came before; -1 and `count` are the ends."""
    left, right = np.concatenate([[-1], known]), np.concatenate([known, [count]])
    while True:
        open_ = right - left > 1
        left, right = left[open_], right[open_]
        if not len(left):
            return
        middle = (left + right) // 2
        yield middle, left, right
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])


def _filled(
    chain: MaternChain, places: Array, known: npt.NDArray[np.intp], states: Array, normal: Normal | None, paths: int
) -> Array:
    """States at all sorted `places`, (count, p, k), given those at `known`; noise in the last `paths` of k columns.

    Between states s at distance u to the left and t at distance v to the right, w = u + v, the state has mean
    A(u) s + G (t - A(w) s), G = Q(u) A(v)^T Q(w)^-1, and noise (I - G A(v)) Q(u)^(1/2) z + G Q(v)^(1/2) z'.
    Beyond the last place G = 0; before the first, time runs backwards from t.
    """
    count, p = len(places), chain.order
    full = np.zeros((count + 2, p, states.shape[2]))  # the last two rows stand for the ends
    full[known] = states
    position = np.concatenate([places, [math.inf, -math.inf]])
    flip = chain.reversal[:, None]
    for middle, left, right in _halving(known, count):
        u, v = position[middle] - position[left], position[right] - position[middle]
        from_left, inside = np.isfinite(u)[:, None, None], (np.isfinite(u) & np.isfinite(v))[:, None, None]
        span = np.where(inside[:, 0, 0], u + v, 1.0)
        Av, Qu = chain.transition(v), chain.noise(u)
        G = np.where(inside, solve_right(product(Qu, np.swapaxes(Av, -1, -2)), chain.noise(span)), 0.0)
        s, t = full[left], full[right]
        ahead = product(chain.transition(u), s) + product(G, t - product(chain.transition(span), s))
        state = np.where(from_left, ahead, flip * product(Av, flip * t))
        if normal is not None:
            normals = _normals(normal, paths, 2 * len(middle), p)
            near, far = product(root(Qu), normals[: len(middle)]), product(root(chain.noise(v)), normals[len(middle) :])
            noise = near - product(G, product(Av, near)) + product(G, far)
            state[:, :, states.shape[2] - paths :] += np.where(from_left, noise, flip * far)
        full[middle] = state
    return full[:count]
