"""The exact posterior of Matern 3/2 and 5/2 on the line in linear time, in whole numbers: rounding is negligible.

Filters of these kernels subtract covariances that are nearly equal, and in double precision nobody has bounded, for
every data set, what that does. Here they run in fixed-point arithmetic with as many bits as the sizes ask for, 128 to
224 in common cases. The result is exact to far beyond double precision, and rounded once
(``docs/proofs/matern-line.md``).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from discretion.gp.dense import UNIT_ROUNDOFF, FactorisationError
from discretion.gp.domain import Array
from discretion.gp.fixed import PLACE_BITS, real, times, transitions, whole
from discretion.gp.kernels import Kernel
from discretion.gp.line import LinePaths, LinePosterior
from discretion.gp.markov import chain

Vector = tuple[int, int, int]
Row = tuple[int, Vector, int, Vector]
_NOTHING: Vector = (0, 0, 0)
LEAST_NOISE, MOST_NOISE = 1e-60, 1e100


def matern_on_the_line(kernel: Kernel, dimension: int) -> bool:
    """Whether kernel and dimension are those of this module: Matern 3/2 or 5/2 on the line."""
    return dimension == 1 and chain(kernel) is not None


def matern_mean_rounding(n: int, m: int, ridge: float, response_bound: float) -> float:
    """Bound on the Euclidean norm over m points of the rounding of the mean, for |y_i| <= `response_bound`.

    Proof: ``docs/proofs/matern-line.md``, Theorem 2.
    """
    return math.sqrt(m) * UNIT_ROUNDOFF * (math.sqrt(n) / ridge * response_bound)


def matern_nugget_floor(m: int, ridge: float = 1.0) -> float:
    """What `nugget_floor` is for the dense engine, for m points in all, in any number of requests.

    inf where ridge^2 is not between 1e-60 and 1e100: such a posterior is refused.

    A nugget of 8 times it is not lost in the last bits of the released values; the covariance itself is exact to
    2^-80. Proof: ``docs/proofs/matern-line.md``, Theorem 1.
    """
    return 64.0 * m * UNIT_ROUNDOFF if LEAST_NOISE <= ridge**2 <= MOST_NOISE else math.inf


def bits_for(count: int, least: float, most: float) -> int:
    """Bits that suffice for `count` places with noise variances from `least` > 0 to `most`: 96 + 3 l + 2 w or more.

    2^l > count and 2^w >= (1 + most) / min(least, 1). Proof: ``docs/proofs/matern-line.md``.
    """
    size = max(0, 1 - math.frexp(least)[1]) + math.frexp(1.0 + most)[1]
    return -(-(96 + 3 * count.bit_length() + 2 * size) // 32) * 32


class Factor:
    """The triangular L with L L^T = K + diag(noise) at N sorted places, by a filter along them.

    Parameters: `order`, 2 or 3, of the kernel's chain; `places` (N,), ascending multiples of 2^-120, in length scales;
    `noise` (N,), positive variances. Everything is in whole numbers of 2^-bits.

    The state (f, D f, D^2 f), D = d/dt + 1, moves over a gap u by A(u), upper triangular with a(u) = (e^-u, u e^-u,
    u^2 e^-u / 2) along its rows; its covariance with f at the same place is pi = (1, 1, 2/3) for Matern 5/2, (1, 1, 0)
    for Matern 3/2, so that k(u) = a(u)^T pi. With S the part of the state's covariance that the places before explain:

        c = pi - S e,  R = sqrt(noise + c_0),  g = c / R,  S <- A (S + g g^T) A^T,  L_jk = e^T A(t_j - t_k) g_k.
    """

    def __init__(self, order: int, places: Array, noise: Array) -> None:
        self.places, self.noise, self.order = places, noise, order
        self.bits = bits_for(len(places), float(noise.min(initial=1.0)), float(noise.max(initial=0.0)))
        one = 1 << self.bits
        self._prior: Vector = (one, one, 2 * one // 3 if order == 3 else 0)
        self._times = times(places, order)
        gaps = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        self._steps: list[tuple[int, ...]] = []  # a(gap to the next place), g, R, 1 / R
        self._explained: list[tuple[int, ...]] = []  # S + g g^T, upper triangle
        self._filter(transitions(gaps, self.bits) + [_NOTHING] * (len(places) > 0))

    def _filter(self, moves: list[Vector]) -> None:
        B, (p0, p1, p2), two = self.bits, self._prior, 1 << 2 * self.bits
        steps, explained = self._steps, self._explained
        s00 = s01 = s02 = s11 = s12 = s22 = 0
        for (a0, a1, a2), noise in zip(moves, whole(self.noise, B), strict=True):
            c0 = p0 - s00
            R = math.isqrt((noise + c0) << B)
            inverse = two // R
            g0, g1, g2 = c0 * inverse >> B, (p1 - s01) * inverse >> B, (p2 - s02) * inverse >> B
            s00, s01, s02 = s00 + (g0 * g0 >> B), s01 + (g0 * g1 >> B), s02 + (g0 * g2 >> B)
            s11, s12, s22 = s11 + (g1 * g1 >> B), s12 + (g1 * g2 >> B), s22 + (g2 * g2 >> B)
            steps.append((a0, a1, a2, g0, g1, g2, R, inverse))
            explained.append((s00, s01, s02, s11, s12, s22))
            # first two columns of S A^T, then A times these
            z0, z1 = (a0 * s00 + a1 * s01 + a2 * s02) >> B, (a0 * s01 + a1 * s11 + a2 * s12) >> B
            z2 = (a0 * s02 + a1 * s12 + a2 * s22) >> B
            y1, y2 = (a0 * s11 + a1 * s12) >> B, (a0 * s12 + a1 * s22) >> B
            s00, s01, s02 = (a0 * z0 + a1 * z1 + a2 * z2) >> B, (a0 * z1 + a1 * z2) >> B, a0 * z2 >> B
            s11, s12, s22 = (a0 * y1 + a1 * y2) >> B, a0 * y2 >> B, a0 * (a0 * s22 >> B) >> B

    def draw(self, normals: Array) -> list[int]:
        """L times `normals` (N,): values with noise, of mean 0."""
        B, values = self.bits, []
        s0 = s1 = s2 = 0
        for (a0, a1, a2, g0, g1, g2, R, _), w in zip(self._steps, whole(normals, B), strict=True):
            values.append(s0 + (R * w >> B))
            s0, s1, s2 = s0 + (g0 * w >> B), s1 + (g1 * w >> B), s2 + (g2 * w >> B)
            s0, s1, s2 = (a0 * s0 + a1 * s1 + a2 * s2) >> B, (a0 * s1 + a1 * s2) >> B, a0 * s2 >> B
        return values

    def smooth(self, values: list[int]) -> tuple[list[Vector], list[Vector]]:
        """What `at` needs to predict from noisy values at the places.

        The filter's states after each place; and for each place k, with v = (L L^T)^-1 values, the sum over j >= k of
        A(t_j - t_k)^T e v_j. Both lists end in zeros, for what lies beyond the ends.
        """
        B, forward, shares = self.bits, [], []
        s0 = s1 = s2 = 0
        for (a0, a1, a2, g0, g1, g2, _, inverse), y in zip(self._steps, values, strict=True):
            b = (y - s0) * inverse >> B
            s0, s1, s2 = s0 + (g0 * b >> B), s1 + (g1 * b >> B), s2 + (g2 * b >> B)
            shares.append(b)
            forward.append((s0, s1, s2))
            s0, s1, s2 = (a0 * s0 + a1 * s1 + a2 * s2) >> B, (a0 * s1 + a1 * s2) >> B, a0 * s2 >> B
        back = [_NOTHING]
        x0 = x1 = x2 = 0
        for (a0, a1, a2, g0, g1, g2, _, inverse), b in zip(reversed(self._steps), reversed(shares), strict=True):
            x0, x1, x2 = a0 * x0 >> B, (a1 * x0 + a0 * x1) >> B, (a2 * x0 + a1 * x1 + a0 * x2) >> B
            x0 += (b - ((g0 * x0 + g1 * x1 + g2 * x2) >> B)) * inverse >> B
            back.append((x0, x1, x2))
        back.reverse()
        forward.append(_NOTHING)
        return forward, back

    def rows(self, T: Array) -> list[Row]:
        """For each of the places T (m,): the place i on its left (-1: none) and a weight for the state there, the
        place j on its right (N: none) and a weight for what comes back from there."""
        B, N, (p0, p1, p2) = self.bits, len(self.places), self._prior
        right = np.searchsorted(self.places, T, side="right").tolist()
        asked, known, beyond = times(T, self.order), self._times, B << PLACE_BITS  # a(u) = 0 there
        after = transitions([t - known[j - 1] if j else beyond for t, j in zip(asked, right, strict=True)], B)
        before = transitions([known[j] - t if j < N else beyond for t, j in zip(asked, right, strict=True)], B)
        found = []
        for j, (a0, a1, a2), (b0, b1, b2) in zip(right, after, before, strict=True):
            s00, s01, s02, s11, s12, s22 = self._explained[j - 1] if j else (0,) * 6
            z0, z1 = (s00 * a0 + s01 * a1 + s02 * a2) >> B, (s01 * a0 + s11 * a1 + s12 * a2) >> B
            z2 = (s02 * a0 + s12 * a1 + s22 * a2) >> B
            c0 = p0 - ((a0 * z0 + a1 * z1 + a2 * z2) >> B)
            c1, c2 = p1 - ((a0 * z1 + a1 * z2) >> B), p2 - (a0 * z2 >> B)
            back = (b0 * c0 + b1 * c1 + b2 * c2) >> B, (b0 * c1 + b1 * c2) >> B, b0 * c2 >> B
            found.append((j - 1, (a0, a1, a2), j, back))
        return found

    def at(self, rows: list[Row], smoothed: tuple[list[Vector], list[Vector]]) -> list[int]:
        """K_TX (L L^T)^-1 values at the places of `rows`: (m,)."""
        B, (forward, back) = self.bits, smoothed
        found = []
        for i, (a0, a1, a2), j, (q0, q1, q2) in rows:
            (s0, s1, s2), (x0, x1, x2) = forward[i], back[j]
            found.append((a0 * s0 + a1 * s1 + a2 * s2 + q0 * x0 + q1 * x1 + q2 * x2) >> B)
        return found


class MaternLinePosterior(LinePosterior):
    """`DensePosterior` on the line for Matern 3/2 and 5/2 in linear time, exact but for one rounding of each result.

    Parameters: `kernel`, with one length scale; `ridge` > 0; X (n, 1); y (n,); `jitter` >= 0, added to ridge^2.
    n = 0 is the prior. Repeated rows of X are ordinary data; places are told apart down to 2^-120 length scales.

    Raises ValueError for other kernels, for X that is not one column, when X or y are not finite, and when ridge^2 +
    jitter is not from 1e-60 to 1e100; FactorisationError when a result is not finite.

    Cost: O(n), in whole numbers: some 10 microseconds and 3 kB a record. `MarkovPosterior` takes a fraction of that,
    and has no proved rounding.
    """

    def __init__(
        self, kernel: Kernel, ridge: float, X: npt.ArrayLike, y: npt.ArrayLike, *, jitter: float = 0.0
    ) -> None:
        found = chain(kernel)
        if found is None:
            raise ValueError(f"{kernel!r} has no states here; use matern32 or matern52, or DensePosterior.")
        noise = float(ridge) ** 2 + float(jitter) if ridge > 0 and jitter >= 0 else math.nan
        if not LEAST_NOISE <= noise <= MOST_NOISE:
            raise ValueError(
                f"ridge must be positive, jitter 0 or more, and ridge^2 + jitter from {LEAST_NOISE:g} to "
                f"{MOST_NOISE:g}; got {ridge!r} and {jitter!r}."
            )
        self.chain = found
        super().__init__(kernel, ridge, jitter, X, y)

    def _settle(self, places: Array) -> None:
        self._order = np.argsort(places, kind="stable")
        noise = np.full(self.n, self.ridge**2 + self.jitter)
        self.factor = Factor(self.chain.order, places[self._order], noise)

    def _respond(self, responses: Array) -> None:
        """Smooth the responses, in units of a power of two that no response exceeds."""
        self._unit = int(np.frexp(np.abs(responses).max(initial=0.0))[1])
        values = whole(np.ldexp(responses[self._order], -self._unit), self.factor.bits)
        self._smoothed = self.factor.smooth(values)

    def mean_at(self, places: Array) -> Array:
        """Posterior mean at places (m,): shape (m,)."""
        return self.mean_of(self.factor.rows(places))

    def mean_of(self, rows: list[Row]) -> Array:
        """Posterior mean at the places of `rows`, which are the factor's: shape (m,)."""
        found = real(self.factor.at(rows, self._smoothed), self.factor.bits)
        with np.errstate(over="ignore"):
            means = np.ldexp(found, self._unit)
        if not np.isfinite(means).all():
            raise FactorisationError("The posterior is not finite in double precision; nothing was returned.")
        return means


class MaternLinePaths(LinePaths[MaternLinePosterior]):
    """`DrawnPaths` of a `MaternLinePosterior`, with a nugget of at least 8 `matern_nugget_floor(m)` for m distinct
    points in all.

    A point keeps its value, nugget included. Any request for new points takes O(n + m), m all points so far: values
    with noise are drawn from the prior at records, known and new points together, and the new ones moved by what the
    others predict there of the difference between what was drawn for them and what they are: 0 for records, the known
    deviation for known points (Matheron's rule).
    """

    def _floor(self, size: int, requests: int) -> float:
        return matern_nugget_floor(size)

    def _begun(self) -> tuple[Factor, list[list[int]]]:
        """The factor of records and known points, and what each path deviates from the mean there: 0 at records."""
        return self.posterior.factor, [[0] * self.posterior.n for _ in range(self.paths)]

    def _draw(self, new: Array) -> tuple[Array, tuple[Factor, list[list[int]]]]:
        old = self._kept[0]
        count = len(old.places)
        normals = self._normals(count + len(new))
        order = np.argsort(np.concatenate([old.places, new]), kind="stable")
        noise = np.concatenate([old.noise, np.full(len(new), self.nugget)])
        joint = Factor(old.order, np.concatenate([old.places, new])[order], noise[order])
        where = np.argsort(order).tolist()
        rows = self.posterior.factor.rows(new)
        drawn_from = rows if old is self.posterior.factor else old.rows(new)
        drawn = self._drawn(joint, drawn_from, where[:count], where[count:], normals)
        noise = np.stack([real([each[k] for k in where[count:]], joint.bits) for each in drawn], axis=1)
        return self.posterior.mean_of(rows)[:, None] + self.scale * noise, (joint, drawn)

    def _drawn(
        self, joint: Factor, rows: list[Row], known: list[int], new: list[int], normals: Array
    ) -> list[list[int]]:
        """Deviations from the posterior mean at the places of `joint`, of each path, in its fixed point."""
        old, before = self._kept
        finer, found = joint.bits - old.bits, []
        for deviations, w in zip(before, normals, strict=True):
            values = joint.draw(w)
            off = [(values[k] >> finer) - each for k, each in zip(known, deviations, strict=True)]
            for k, each in zip(new, old.at(rows, old.smooth(off)), strict=True):
                values[k] -= each << finer
            for k, each in zip(known, deviations, strict=True):
                values[k] = each << finer
            found.append(values)
        return found
