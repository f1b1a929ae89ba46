"""Numerical composition of privacy profiles, by discretised privacy-loss distributions.

A privacy profile gives, for each epsilon, the largest delta = P(S) - e^epsilon Q(S) over all events S and all
ordered pairs of neighbours; here only upper bounds of it are known. From them follow the profile of one pair that
is at least as easy to tell apart (`dominating_pair`), that pair as finitely many privacy losses
(`connect_the_dots`), and the losses of a composition as sums of independent ones, by Fourier transform (`compose`).
Every step errs upwards, rounding included: what comes out bounds the composition's delta.

Everything here is a pure function of numbers and arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.integrate import trapezoid
from scipy.signal import lfilter
from scipy.special import expit

__all__ = [
    "Hull",
    "LossDistribution",
    "Pairs",
    "Profile",
    "compose",
    "connect_the_dots",
    "discretise",
    "dominating_pair",
    "numerical_delta",
    "numerical_epsilon",
    "renyi_envelope",
]

Array = NDArray[np.float64]
Profile = Callable[[Array], tuple[Array, Array]]
"""Upper bounds of delta at a 1-D array of epsilons, each at least 0, for neighbours in one order and in the other.

The order is the same in all parts of a composition: record present against absent, say. The same array twice where one
bound serves both.
"""

_UNIT = 2.0**-52
_LOG_LARGEST = 700.0
# Losses beyond the point where a profile falls to this are one infinite loss.
_TAIL = 1e-60
# Nodes up to this number are consecutive, further ones spread geometrically.
_DENSE, _SPREAD = 4096, 8192
# A step is this part of the root mean square loss, unless the transform would grow beyond the largest length.
_PART, _LONGEST = 100, 2**22
# Tilted probability outside the window of a transform.
_LOG_OUTSIDE = -40.0


# --- One pair from upper bounds ---------------------------------------------------------------------


class Hull(NamedTuple):
    """A privacy profile at epsilon >= 0: linear in e^epsilon between its nodes, the first 0, then constant."""

    nodes: Array
    values: Array

    def __call__(self, epsilon: Array) -> Array:
        """The profile at any epsilons of at least 0, rounded up."""
        e, d = np.append(self.nodes, np.inf), np.append(self.values, self.values[-1])
        cell = np.searchsorted(self.nodes, epsilon, side="right") - 1
        with np.errstate(over="ignore", invalid="ignore"):
            part = np.expm1(epsilon - e[cell]) / np.expm1(e[cell + 1] - e[cell])
        # where a cell is wider than the range of exp, its left end bounds it
        part = np.where(np.isnan(part), 0.0, np.clip(part, 0.0, 1.0))
        value = d[cell] + (d[cell + 1] - d[cell]) * part
        # near the right end the two terms cancel: the error is that of the larger
        return np.minimum(value * (1 + 8 * _UNIT) + 4 * _UNIT * d[cell], 1.0)

    def bends(self) -> Array:
        """e^node times the change of slope in e^epsilon at each node but the first."""
        rise, gap = np.diff(self.values), np.diff(self.nodes)
        with np.errstate(over="ignore"):
            right = np.append(rise[1:] / np.expm1(gap[1:]), 0.0)
        return right + rise / np.expm1(-gap) if rise.size else rise

    def slope(self) -> float:
        """Slope in e^epsilon of the first cell."""
        if self.nodes.size == 1:
            return 0.0
        return float(self.values[1] - self.values[0]) / math.expm1(min(float(self.nodes[1]), _LOG_LARGEST))


def dominating_pair(epsilons: Array, forward: Array, backward: Array) -> tuple[Hull, Hull]:
    """Upper bounds of a privacy profile, lowered to the profile of a pair of distributions.

    In the variable g = e^epsilon the true profile Delta is convex and not increasing with Delta(0) = 1, and the same
    pairs of neighbours in the other order have `Delta'(g) = 1 - g + g Delta(1/g)`. So Delta lies below the running
    minimum of its bounds, capped at 1, and below the lower convex hull in g of these, of the reflected bounds of
    Delta', and of the point (0, 1); and a function with those properties is the profile of a pair of distributions
    (Zhu, Dong and Wang 2022). Proof: `docs/proofs/dominating-pair.md`.

    Args:
        epsilons: increasing, at least 0, finite; shape (n,).
        forward: upper bounds of Delta there; NaN counts as 1.
        backward: upper bounds of Delta' there; the same array where one bound serves both orders.

    Returns:
        The hull for the one order and for the other.

    Raises:
        ValueError: not such arrays.
    """
    e = np.asarray(epsilons, dtype=np.float64)
    if e.ndim != 1 or e.size == 0 or not (e[0] >= 0 and math.isfinite(e[-1]) and np.all(np.diff(e) > 0)):
        raise ValueError("The epsilons of a privacy profile must be finite, at least 0 and increasing.")
    bounds = [np.asarray(each, dtype=np.float64) for each in (forward, backward)]
    if any(each.shape != e.shape or np.any(each < 0) for each in bounds):
        raise ValueError("A privacy profile needs one delta of at least 0 for each epsilon.")
    bounds = [np.minimum.accumulate(np.minimum(np.where(np.isnan(each), 1.0, each), 1.0)) for each in bounds]
    if e[0] > 0:
        e, bounds = np.append(0.0, e), [np.append(1.0, each) for each in bounds]
    start = min(float(each[0]) for each in bounds)
    while True:
        there = _hull(e, np.append(start, np.minimum(bounds[0][1:], start)))
        back = there if forward is backward else _hull(e, np.append(start, np.minimum(bounds[1][1:], start)))
        if there.nodes.size == 1 or back.nodes.size == 1 or _middle(there, back) >= 0:
            return there, back
        # the value at 0 lies above the chord over it: lower it to that
        right, left = float(there.nodes[1]), float(back.nodes[1])
        weight = -math.expm1(-left) / (math.exp(min(right, _LOG_LARGEST)) - math.exp(-left))
        reflected = -math.expm1(-left) + math.exp(-left) * float(back.values[1])
        chord = reflected + weight * (float(there.values[1]) - reflected)
        if not chord < start * (1 - 4 * _UNIT):
            return there, back
        start = chord * (1 + 2 * _UNIT)


def _middle(there: Hull, back: Hull) -> float:
    """Change of slope at epsilon = 0."""
    return there.slope() + back.slope() + 1.0 - float(there.values[0])


def _hull(epsilons: Array, bounds: Array) -> Hull:
    """Lower convex hull in e^epsilon, from the first node on."""
    nodes, values = [0.0], [float(bounds[0])]
    for e, d in zip(epsilons[1:].tolist(), bounds[1:].tolist(), strict=True):
        while len(nodes) > 1:
            right = (d - values[-1]) / math.expm1(min(e - nodes[-1], _LOG_LARGEST))
            left = (values[-1] - values[-2]) / -math.expm1(nodes[-2] - nodes[-1])
            if right > left:
                break
            nodes.pop()
            values.pop()
        nodes.append(e)
        values.append(d)
    return Hull(np.array(nodes), np.array(values))


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Finitely many privacy losses log dP/dQ of a pair, with their masses under P.

    Attributes:
        step: distance of the lattice that the losses lie on, positive.
        atoms: losses over step, integers, increasing; shape (m,).
        mass: positive masses of those losses, shape (m,). Their sum may exceed 1 by rounding.
        infinity: mass of an infinite loss.
    """

    step: float
    atoms: NDArray[np.int64]
    mass: Array
    infinity: float

    def log_moment(self, order: Array) -> Array:
        """log of the sum of mass e^(order loss) over the finite losses, for an array of orders; shape (k,)."""
        exponent = np.multiply.outer(order, self.atoms * self.step) + np.log(self.mass)
        largest = exponent.max(axis=-1)
        return largest + np.log(np.exp(exponent - largest[..., None]).sum(axis=-1))

    @property
    def total(self) -> float:
        """Mass of all losses; at least 1."""
        return float(self.mass.sum()) + self.infinity


def connect_the_dots(step: float, there: Hull, back: Hull) -> LossDistribution:
    """The pair on the lattice `step * integers` that has these profiles in the two orders.

    With the losses l > 0 at the nodes of U, the first hull, and m > 0 at those of V, the second, and g = e^l

        p(l) = g (U'(g + 0) - U'(g - 0)),      p(-m) = e^(-m) (mass of m in the pair of V),
        p(0) = change of slope at 0,      p(infinity) = U at its last node

    (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022). All masses are then enlarged by one factor so that the
    profile summed up from them in floating point is nowhere below. Proof: `docs/proofs/connect-the-dots.md`.

    Args:
        step: distance of the lattice, positive.
        there, back: hulls of upper bounds, as `dominating_pair` returns them, with nodes on the lattice.
    """
    masses = [np.maximum(hull.bends(), 0.0) for hull in (there, back)]
    mirrored = [mass * np.exp(-hull.nodes[1:]) for mass, hull in zip(masses, (there, back), strict=True)]
    infinity = float(there.values[-1])
    rest = math.fsum([*masses[0].tolist(), *mirrored[1].tolist(), infinity])
    middle = max(1.0 - rest, 0.0)

    # Where the profiles of these masses, infinite losses aside, fall short in floating point.
    found = [_profile(hull.nodes, mass) for hull, mass in zip((there, back), masses, strict=True)]
    positive = there.values > infinity
    ratio = float(np.max((there.values[positive] - infinity) / found[0][positive], initial=1.0))
    beneath = math.fsum([*mirrored[0].tolist(), *masses[1].tolist(), middle])
    behind = float(np.max(beneath - 1.0 + (back.values - found[1])))
    start = float(there.values[0])
    short = 0.0 if start == 0 else (max(behind, 0.0) + 16 * _UNIT) / start
    enlarged = max(ratio, 1.0 + 2.0 * short) * (1 + 16 * _UNIT * (there.nodes.size + back.nodes.size + 8))

    index = [np.rint(hull.nodes[1:] / step).astype(np.int64) for hull in (there, back)]
    atoms = np.concatenate([-index[1][::-1], [0], index[0]])
    mass = np.concatenate([mirrored[1][::-1], [middle], masses[0]]) * enlarged
    return LossDistribution(step, atoms[mass > 0], mass[mass > 0], infinity * enlarged)


def _profile(nodes: Array, mass: Array) -> Array:
    """Delta at the nodes of finite losses with these masses at all nodes but the first."""
    gap = np.diff(nodes)
    # mass beyond each node under Q, relative to the next node
    beyond, found = 0.0, []
    for m, decay in zip(mass[::-1].tolist(), np.exp(-np.append(gap[1:], np.inf))[::-1].tolist(), strict=True):
        beyond = m + decay * beyond
        found.append(beyond)
    steps = -np.expm1(-gap) * np.array(found[::-1])
    return np.append(np.cumsum(steps[::-1])[::-1], 0.0)


class Pairs(NamedTuple):
    """The pair of one loss in the two orders, and how often it is spent."""

    there: LossDistribution
    back: LossDistribution
    times: int


def discretise(profiles: Sequence[tuple[Profile, int]]) -> list[Pairs]:
    """Each profile as a pair on one common lattice, in both orders, with how often it is spent.

    The step is a hundredth of the root mean square loss, by `E[loss^2] ~ 4 * integral of the profile`: it costs
    about 2e-5 of the variance of the sum and no validity.
    """
    coarse = np.concatenate([[0.0], np.geomspace(1e-12, 1e8, 401)])
    squares, reach, ends = [], [], []
    for profile, times in profiles:
        bounds = np.maximum(*_bounds(profile, coarse))
        last = int(np.argmax(bounds <= max(_TAIL, float(bounds[-1]) * (1 + 1e-9))))
        reach.append(float(coarse[last]))
        squares.append(times * 4.0 * float(trapezoid(bounds[: last + 1] - bounds[last], coarse[: last + 1])))
        ends.append(_end(profile, coarse[last - 1 : last + 1]) if last > 0 and bounds[last] == bounds[-1] else math.nan)
    count, square = sum(times for _, times in profiles), math.fsum(squares)
    step = max(math.sqrt(square / count) / _PART, 20.0 * math.sqrt(square) / (_LONGEST / 8), 1e-12)
    # the end of the profile that weighs most, if it has one, becomes a node
    if math.isfinite(end := ends[int(np.argmax(squares))]):
        step = end / math.ceil(end / step)
    found = []
    for (profile, times), end in zip(profiles, reach, strict=True):
        nodes: Array = step * _lattice(math.ceil(end / step) + 1).astype(np.float64)
        # rounding of the nodes is made up for by asking a little to the left
        there, back = dominating_pair(nodes, *_bounds(profile, nodes * (1 - 2 * _UNIT)))
        pair = connect_the_dots(step, there, back)
        found.append(Pairs(pair, pair if there is back else connect_the_dots(step, back, there), times))
    return found


def _lattice(last: int) -> NDArray[np.int64]:
    """Integers from 0 to `last`: all at first, then ever further apart."""
    if last <= _DENSE:
        return np.arange(last + 1)
    spread = np.rint(np.geomspace(_DENSE, last, _SPREAD)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(_DENSE), spread]))


def _end(profile: Profile, bracket: Array) -> float:
    """The epsilon in the bracket from which on the profile is constant."""
    for _ in range(5):
        inner = np.linspace(bracket[0], bracket[1], 65)
        bounds = np.maximum(*_bounds(profile, inner))
        first = max(int(np.argmax(bounds <= bounds[-1])), 1)
        bracket = inner[first - 1 : first + 1]
    return float(bracket[1])


def _bounds(profile: Profile, epsilon: Array) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        forward, backward = profile(epsilon)
    bounds = [np.where(np.isnan(each), 1.0, np.clip(each, 0.0, 1.0)) for each in (forward, backward)]
    return bounds[0], bounds[0] if forward is backward else bounds[1]


# --- Composition ------------------------------------------------------------------------------------


class _Sum(NamedTuple):
    """Profile of a composition at the nodes `step * (bottom + i)`: an upper bound, linear in e^epsilon between."""

    step: float
    bottom: int
    profile: Array

    def delta(self, epsilon: float) -> float:
        at = epsilon / self.step - self.bottom
        cell = math.floor(at)
        if cell < 0:
            return 1.0
        if cell >= self.profile.size - 1:
            return min(float(self.profile[-1]), 1.0)
        left, right = self.profile[cell : cell + 2].tolist()
        part = math.expm1((at - cell) * self.step) / math.expm1(self.step) - 1e-8
        return min((left + (right - left) * max(part, 0.0)) * (1 + 8 * _UNIT), 1.0)

    def epsilon(self, delta: float) -> float:
        if not self.profile[-1] <= delta:
            return math.inf
        right = int(np.argmax(self.profile <= delta))
        if right == 0:
            return max(self.step * self.bottom, 0.0)
        above, below = self.profile[right - 1 : right + 1].tolist()
        part = (above - delta) / (above - below) + 1e-8
        within = math.log1p(min(part, 1.0) * math.expm1(self.step))
        return max((self.step * (self.bottom + right - 1) + within) * (1 + 4 * _UNIT), 0.0)


def compose(parts: Sequence[tuple[LossDistribution, int]], tilt: float, epsilon: float) -> _Sum:
    """Upper bound of the profile of a composition near `epsilon`.

    The losses of the product of the pairs are sums of independent losses. Their masses, times `e^(tilt loss)` and
    normalised, are convolved by a Fourier transform on a window outside of which they weigh next to nothing; what
    lies beyond its upper end (Chernoff), what wraps around, and the rounding of the transform are added to the
    masses before the tilt is taken out again, so that relative precision is kept in the far tail. Proof:
    `docs/proofs/connect-the-dots.md`.

    Args:
        parts: pairs on one lattice, and how often each is spent.
        tilt: at least 0; the Chernoff order of `epsilon` is best. Any tilt is valid.
        epsilon: not below the window, whatever the tilt.
    """
    step = parts[0][0].step
    logs = [float(pair.log_moment(np.array([tilt]))[0]) for pair, _ in parts]
    total = math.fsum(count * log for (_, count), log in zip(parts, logs, strict=True))
    tilted, slack, variance = [], 0.0, 0.0
    for (pair, count), log in zip(parts, logs, strict=True):
        exponent = tilt * step * pair.atoms + np.log(pair.mass) - log
        weight = np.exp(exponent)
        mean = weight @ pair.atoms
        variance += count * step**2 * float(weight @ (pair.atoms - mean) ** 2)
        slack += count * _UNIT * (4.0 * float(np.max(tilt * step * np.abs(pair.atoms) - np.log(pair.mass))) + 64)
        slack += count * _UNIT * 8.0 * abs(log)
        tilted.append(weight)

    low, high, cut = _window(parts, tilt, total, math.sqrt(max(variance, step**2)))
    low = min(low, math.floor(min(epsilon / step, high)))
    if high - low + 2 > _LONGEST or not math.isfinite(total):
        return _Sum(step, low, np.ones(2))
    length = int(next_fast_len(high - low + 2, real=True) or 0)

    # Spectrum of the sum, and a bound of its error: each transform is off by at most `error` at each frequency.
    error = 8 * _UNIT * (math.log2(length) + 2)
    spectrum = np.zeros(length // 2 + 1, dtype=np.complex128)
    larger, relative = np.zeros(spectrum.size), np.full(spectrum.size, 16 * _UNIT)
    for (pair, count), weight in zip(parts, tilted, strict=True):
        transform = np.asarray(rfft(np.bincount(pair.atoms % length, weight, length)))
        size = np.abs(transform)
        log = np.log(np.maximum(size, 1e-300))
        spectrum += count * (log + 1j * np.angle(transform))
        larger += count * np.log(size + error)
        # of the transform, and of the logarithm, the sum and the exponential
        relative += count * (error / (size + error) + 16 * _UNIT * (np.abs(log) + math.pi))
    size = np.exp(larger)
    folded = np.maximum(np.asarray(irfft(np.exp(spectrum), length)), 0.0)
    rounding = 2.0 * (float(size @ relative) + error * float(size.sum())) / length
    bounds = np.roll(folded, -(low % length)) + rounding

    losses = step * (low + np.arange(length))
    with np.errstate(over="ignore"):
        masses = np.minimum(np.exp(total - tilt * losses) * bounds, 2.0)
    slack += 8 * _UNIT * (abs(total) + tilt * float(np.max(np.abs(losses))) + length)
    enlarged = math.exp(slack)
    for pair, count in parts:
        enlarged *= pair.total**count
    infinity = math.fsum(count * pair.infinity for pair, count in parts)
    if cut:
        infinity += math.exp(min(total - tilt * step * (low + length) + _LOG_OUTSIDE, 0.0))
    # delta at a node: (1 - e^(-step)) times the sum over the nodes from there on of the mass beyond under Q
    beyond = np.asarray(lfilter([1.0], [1.0, -math.exp(-step)], np.append(masses[1:], 0.0)[::-1]))
    profile = infinity - math.expm1(-step) * np.cumsum(beyond)[::-1]
    return _Sum(step, low, np.where(np.isfinite(profile), profile * enlarged, 1.0))


def _window(
    parts: Sequence[tuple[LossDistribution, int]], tilt: float, total: float, deviation: float
) -> tuple[int, int, bool]:
    """Lattice points between which the tilted sum lies but for e^-40 on each side; whether anything lies above."""
    step = parts[0][0].step
    t = math.sqrt(-2 * _LOG_OUTSIDE) / deviation * np.array([0.1, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0])
    above = (_log_moment(parts, tilt + t) - total - _LOG_OUTSIDE) / t
    below = (_log_moment(parts, tilt - t) - total - _LOG_OUTSIDE) / -t
    most = sum(count * int(pair.atoms[-1]) for pair, count in parts)
    least = sum(count * int(pair.atoms[0]) for pair, count in parts)
    high = math.ceil(float(np.min(above)) / step) + 1
    low = math.floor(float(np.max(below)) / step) - 1
    return max(low, least), min(high, most), high < most


def _log_moment(parts: Sequence[tuple[LossDistribution, int]], order: Array) -> Array:
    return sum((count * pair.log_moment(order) for pair, count in parts), np.zeros(order.shape))


def numerical_epsilon(profiles: Sequence[tuple[Profile, int]], delta: float) -> float:
    """Least epsilon that the numerical composition of profiles gives at `delta`; inf where it gives none.

    Args:
        profiles: upper bounds of each privacy profile, and how often it is spent (at least once).
        delta: in `(0, 1)`; below about 1e-58, the mass at which tails are cut, the answer is inf.
    """

    def one_way(parts: list[tuple[LossDistribution, int]]) -> float:
        left = delta - math.fsum(count * pair.infinity for pair, count in parts)
        if not left > 0:
            return math.inf

        def cost(order: Array, moment: Array) -> Array:
            return (moment - math.log(left) - np.log1p(order)) / order - np.log1p(1 / order)

        tilt, epsilon = _chernoff(parts, cost)
        return compose(parts, tilt, max(epsilon, 0.0)).epsilon(delta)

    return _largest(profiles, one_way, math.inf)


def numerical_delta(profiles: Sequence[tuple[Profile, int]], epsilon: float) -> float:
    """Least delta that the numerical composition of profiles gives at a finite `epsilon >= 0`; at most 1."""

    def cost(order: Array, moment: Array) -> Array:
        return moment - order * (epsilon + np.log1p(1 / order)) - np.log1p(order)

    def one_way(parts: list[tuple[LossDistribution, int]]) -> float:
        if not math.fsum(count * pair.infinity for pair, count in parts) < 1:
            return 1.0
        return compose(parts, _chernoff(parts, cost)[0], epsilon).delta(epsilon)

    return _largest(profiles, one_way, 1.0)


def _largest(
    profiles: Sequence[tuple[Profile, int]],
    one_way: Callable[[list[tuple[LossDistribution, int]]], float],
    nothing: float,
) -> float:
    """The larger of both orders; `nothing` where numbers leave double precision, as with 10^18 losses."""
    try:
        with np.errstate(all="ignore"):
            found = [one_way(parts) for parts in _ways(profiles)]
    except OverflowError:
        return nothing
    return max(found) if all(0.0 <= each <= nothing for each in found) else nothing


def _ways(profiles: Sequence[tuple[Profile, int]]) -> list[list[tuple[LossDistribution, int]]]:
    """The parts in the one order and, where it differs, in the other."""
    parts = discretise(profiles)
    there = [(part.there, part.times) for part in parts]
    if all(part.there is part.back for part in parts):
        return [there]
    return [there, [(part.back, part.times) for part in parts]]


def _chernoff(
    parts: Sequence[tuple[LossDistribution, int]], cost: Callable[[Array, Array], Array]
) -> tuple[float, float]:
    """The order with the least Renyi conversion, coarsely, and that conversion."""
    count = sum(times for _, times in parts)
    unit = 1.0 / (_PART * parts[0][0].step * math.sqrt(count))
    orders = unit * np.geomspace(1e-3, 1e4, 24)
    for width in (0.8, 0.2):
        values = cost(orders, _log_moment(parts, orders))
        best = float(orders[np.argmin(values)])
        orders = best * np.exp(width * np.linspace(-1.0, 1.0, 9))
    values = cost(orders, _log_moment(parts, orders))
    return float(orders[np.argmin(values)]), float(np.min(values))


# --- From Renyi curves ------------------------------------------------------------------------------


def renyi_envelope(renyi: Callable[[Array], Array], supremum: float) -> Profile:
    """The privacy profile that bounds of Renyi divergences imply, as a function of epsilon.

        delta <= min over x of  e^(x (R(x) - epsilon)) x^x / (1 + x)^(1 + x)

    over about a thousand excess orders x; 0 from R(inf) on, where that is finite. Proof:
    `docs/proofs/renyi-to-dp.md`.
    """
    if math.isfinite(supremum):
        low = math.log(1e-8) - max(math.log(supremum), 0.0)
        x = supremum * expit(np.linspace(low, -math.log(1e-8), 1024))
    else:
        x = np.geomspace(1e-5, 1e7, 1024)
    r = renyi(x)
    kept = np.isfinite(r)
    x, r = x[kept], r[kept]
    log_order, log_ratio = np.log1p(x), np.log1p(1 / x)
    offset = x * (r - log_ratio) - log_order + 8 * _UNIT * (x * (r + log_ratio) + log_order)
    limit = float(renyi(np.array([np.inf]))[0]) if supremum == math.inf else math.inf

    def profile(epsilon: Array) -> tuple[Array, Array]:
        bounds = np.ones(epsilon.shape)
        if x.size:
            for start in range(0, epsilon.size, 1024):
                e = epsilon[start : start + 1024]
                exponent = np.min(offset - np.multiply.outer(e, x * (1 - 4 * _UNIT)), axis=1)
                bounds[start : start + 1024] = np.exp(np.minimum(exponent, 0.0)) * (1 + 4 * _UNIT)
        bounds = np.where(epsilon >= limit, 0.0, bounds)
        return bounds, bounds

    return profile
