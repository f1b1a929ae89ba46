"""From Renyi curves and Gaussian DP to (epsilon, delta), and back.

Everything here is a pure function of numbers and arrays. Results are rounded towards safety: an epsilon or a
delta is never below the value that exact arithmetic would give for the same formula, and what cannot be
computed is infinite (or a delta of 1), never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, expit, ndtr

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "renyi_to_delta",
    "renyi_to_epsilon",
    "round_up",
    "round_up_significant",
]

Array = NDArray[np.float64]
RenyiFunction = Callable[[Array], Any]

# Excess orders looked at: [LEAST * min(1, supremum), (1 - LEAST) * supremum], or up to GREATEST where
# unbounded.
LEAST_EXCESS = 1e-8
GREATEST_EXCESS = 1e10
NEGATIVE_TOLERANCE = 1e-9

_UNIT = 2.0**-52
_LEAST_POSITIVE = math.ulp(0.0)
_COARSE = np.linspace(0.0, 1.0, 64)
_QUARTERS = np.array([-0.75, -0.5, -0.25, 0.25, 0.5, 0.75])
_MOST_ROUNDS = 24


# --- Renyi curves ---------------------------------------------------------------------------------


def renyi_to_epsilon(
    renyi: RenyiFunction,
    supremum: ArrayLike,
    delta: ArrayLike,
    *,
    formula: Literal["balle2020", "mironov2017"] = "balle2020",
) -> tuple[Array, Array]:
    """Least epsilon that Renyi bounds give at `delta`, over continuous orders.

    With excess `x = alpha - 1` and `R(x)` a bound of the Renyi divergence of order `alpha` in both
    directions,

        epsilon = min over x of  R(x) - log(1 + 1/x) - (log delta + log(1 + x)) / x,      at least 0

    (Balle, Barthe, Gaboardi, Hsu and Sato 2020, Theorem 21; Canonne, Kamath and Steinke 2020, Proposition
    12). With `formula="mironov2017"` the looser classical form `R(x) - log(delta) / x` (Mironov 2017,
    Proposition 3). Every order looked at gives a valid epsilon, so the search can cost tightness but never
    validity. Where `supremum` is infinite and `R(inf)` is finite, `R(inf)` bounds the max-divergence and is
    one of the candidates; it is the only one at `delta = 0`. Proof: `docs/proofs/renyi-to-dp.md`.

    Args:
        renyi: takes excess orders of shape `(k, *batch)` and returns bounds of the same shape. NaN counts as
            infinite.
        supremum: least upper bound of the admissible excess orders, positive, possibly infinite; broadcasts
            to `batch`.
        delta: in `[0, 1)`; broadcasts to `batch`.

    Returns:
        `(epsilon, excess)`, arrays of shape `batch`; `excess` is the order that gave `epsilon`.

    Raises:
        ValueError: delta or supremum out of range, a bound below -1e-9, or a result of `renyi` of the wrong
            shape.
    """
    if formula not in ("balle2020", "mironov2017"):
        raise ValueError(f"The formula is 'balle2020' or 'mironov2017', not {formula!r}.")
    bound, delta = np.broadcast_arrays(_check_supremum(supremum), _check_delta(delta))
    with np.errstate(divide="ignore"):
        log_inverse_delta = -np.log(delta)

    def balle(x: Array, r: Array) -> Array:
        log_ratio, log_order = np.log1p(1.0 / x), np.log1p(x)
        epsilon = r - log_ratio + (log_inverse_delta - log_order) / x
        return epsilon + 8 * _UNIT * (r + log_ratio + (log_inverse_delta + log_order) / x)

    def mironov(x: Array, r: Array) -> Array:
        return (r + log_inverse_delta / x) * (1 + 8 * _UNIT)

    epsilon, excess = _minimise(
        renyi, bound, balle if formula == "balle2020" else mironov, lambda r: r * (1 + 8 * _UNIT)
    )
    return np.maximum(epsilon, 0.0), excess


def renyi_to_delta(renyi: RenyiFunction, supremum: ArrayLike, epsilon: ArrayLike) -> tuple[Array, Array]:
    """Least delta that Renyi bounds give at `epsilon`, over continuous orders; inverts `renyi_to_epsilon`.

        log delta = min over x of  x (R(x) - epsilon - log(1 + 1/x)) - log(1 + x),      at most 0

    (Balle et al. 2020; Canonne, Kamath and Steinke 2020). Where `supremum` is infinite and `R(inf) <=
    epsilon` the delta is exactly 0; otherwise it is positive, even where it underflows. Proof:
    `docs/proofs/renyi-to-dp.md`.

    Args:
        renyi, supremum: as for `renyi_to_epsilon`.
        epsilon: finite, at least 0; broadcasts to `batch`.

    Returns:
        `(delta, excess)`, arrays of shape `batch`.

    Raises:
        ValueError: epsilon or supremum out of range, a bound below -1e-9, or a result of `renyi` of the wrong
            shape.
    """
    bound, epsilon = np.broadcast_arrays(_check_supremum(supremum), _check_epsilon(epsilon))

    def log_delta(x: Array, r: Array) -> Array:
        log_ratio, log_order = np.log1p(1.0 / x), np.log1p(x)
        value = x * (r - epsilon - log_ratio) - log_order
        return value + 8 * _UNIT * (x * (r + epsilon + log_ratio) + log_order)

    exponent, excess = _minimise(renyi, bound, log_delta, lambda r: np.where(r <= epsilon, -np.inf, np.inf))
    return _delta_from_log(exponent), excess


def _minimise(
    renyi: RenyiFunction,
    supremum: Array,
    cost: Callable[[Array, Array], Array],
    cost_at_infinity: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """Minimum of `cost(x, renyi(x))` over excess orders `x`, for a batch of problems at once.

    The search coordinate is t with `x = supremum * expit(t)`, or `x = exp(t)` where unbounded: geometric near
    0 and, where there is a pole, near the pole. A coarse grid, a finer one around its two best local minima,
    then a bracket around the best point that shrinks by halves and by parabolas.
    """
    bounded = np.isfinite(supremum)
    finite = np.where(bounded, supremum, 1.0)
    low: Array = math.log(LEAST_EXCESS) - np.where(bounded, np.maximum(np.log(finite), 0.0), 0.0)
    high: Array = np.where(bounded, -math.log(LEAST_EXCESS), math.log(GREATEST_EXCESS))

    def excess(t: Array) -> Array:
        if bounded.all():
            return finite * expit(t)
        if not bounded.any():
            return np.exp(t)
        return np.where(bounded, finite * expit(t), np.exp(np.minimum(t, high)))

    def evaluate(t: Array) -> Array:
        x = excess(t)
        return _no_nan(cost(x, _bounds(renyi, x)))

    with np.errstate(all="ignore"):
        span: Array = high - low
        t: Array = low + span * _COARSE.reshape(-1, *[1] * supremum.ndim)
        x = excess(t)
        if bounded.all():
            values = _no_nan(cost(x, _bounds(renyi, x)))
            at_infinity = np.full(supremum.shape, np.inf)
        else:
            last = np.where(bounded, x[-1], np.inf)
            r = _bounds(renyi, np.concatenate([x, last[None]]))
            values = _no_nan(cost(x, r[:-1]))
            at_infinity = _no_nan(np.where(bounded, np.inf, cost_at_infinity(r[-1])))

        # Two best local minima of the coarse grid, each looked at again on quarter steps.
        padded = np.concatenate([values[:1] + 1, values, values[-1:] + 1])
        is_local = (values <= padded[:-2]) & (values <= padded[2:])
        best = np.argpartition(np.where(is_local, values, np.inf), 1, axis=0)[:2]
        step: Array = span / (len(_COARSE) - 1)
        centres = np.take_along_axis(t, best, axis=0)
        offsets: Array = _QUARTERS.reshape(-1, 1, *[1] * supremum.ndim) * step
        around = np.clip(centres + offsets, low, high)
        near = evaluate(around.reshape(-1, *supremum.shape))
        points: Array = np.concatenate([centres, around.reshape(near.shape)])
        found: Array = np.concatenate([np.take_along_axis(values, best, axis=0), near])
        middle, least = _pick(points, found, np.argmin(found, axis=0))
        left: Array = np.maximum(middle - step / 4, low)
        right: Array = np.minimum(middle + step / 4, high)
        at_left: Array
        at_right: Array
        at_left, at_right = evaluate(np.stack([left, right]))

        for _ in range(_MOST_ROUNDS):
            flat = np.maximum(at_left, at_right) - least <= 1e-13 * np.abs(least)
            if np.all(flat | (right - left <= 1e-12) | ~np.isfinite(least)):
                break
            vertex: Array = _vertex(left, middle, right, at_left, least, at_right)
            near_vertex: Array = (right - left) / 16
            new: Array = np.stack(
                [
                    (left + middle) / 2,
                    (middle + right) / 2,
                    np.clip(vertex - near_vertex, left, right),
                    vertex,
                    np.clip(vertex + near_vertex, left, right),
                ]
            )
            points = np.concatenate([np.stack([left, middle, right]), new])
            found = np.concatenate([np.stack([at_left, least, at_right]), evaluate(new)])
            order = np.argsort(points, axis=0, kind="stable")
            points = np.take_along_axis(points, order, axis=0)
            found = np.take_along_axis(found, order, axis=0)
            index = np.argmin(found, axis=0)
            middle, least = _pick(points, found, index)
            left, at_left = _pick(points, found, np.maximum(index - 1, 0))
            right, at_right = _pick(points, found, np.minimum(index + 1, len(points) - 1))

        pure = at_infinity <= least
        return np.where(pure, at_infinity, least), np.where(pure & ~bounded, np.inf, excess(middle))


def _bounds(renyi: RenyiFunction, x: Array) -> Array:
    r = np.asarray(renyi(x), dtype=np.float64)
    if r.shape != x.shape:
        raise ValueError(
            f"A Renyi function was given excess orders of shape {x.shape} and returned shape {r.shape}: it "
            "must return one bound for each order."
        )
    if np.any(r < -NEGATIVE_TOLERANCE):
        raise ValueError(
            f"A Renyi function returned {float(np.nanmin(r))!r}: a Renyi divergence is never negative, so "
            "this is not a bound of one. Check the formula at the orders alpha close to 1."
        )
    return np.where(np.isnan(r), np.inf, np.maximum(r, 0.0))


def _no_nan(values: Array) -> Array:
    return np.where(np.isnan(values), np.inf, values)


def _pick(points: Array, values: Array, index: Any) -> tuple[Array, Array]:
    at = np.asarray(index)[None]
    return np.take_along_axis(points, at, axis=0)[0], np.take_along_axis(values, at, axis=0)[0]


def _vertex(a: Array, m: Array, b: Array, fa: Array, fm: Array, fb: Array) -> Array:
    """Lowest point of the parabola through three points; where none is inside, middle of the wider side."""
    p, q = (m - a) * (fm - fb), (m - b) * (fm - fa)
    vertex = m - 0.5 * ((m - a) * p - (m - b) * q) / (p - q)
    wider = np.where(b - m > m - a, (m + b) / 2, (a + m) / 2)
    return np.where((vertex > a) & (vertex < b), vertex, wider)


# --- Gaussian DP ----------------------------------------------------------------------------------


def gaussian_delta(mu: ArrayLike, epsilon: ArrayLike) -> Any:
    """Exact privacy profile of mu-Gaussian DP: the delta of N(0, 1) against N(mu, 1) at `epsilon`.

        delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)
              = phi(z1) (m(z1) - m(z2)),      z1, z2 = epsilon/mu -+ mu/2,   m(z) = Phi(-z) / phi(z)

    (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13). The second form has no overflow
    and, written as the integral of `1 - z m(z)` over `[z1, z2]` for small mu, no cancellation. Rounded up;
    positive unless mu is 0. Proof: `docs/proofs/gaussian-dp.md`.

    Args:
        mu: at least 0, possibly infinite (delta is then 1). Broadcasts with epsilon.
        epsilon: finite, at least 0.

    Returns:
        float, or an array of the broadcast shape.

    Raises:
        ValueError: an argument out of range or NaN.
    """
    mu, epsilon = np.broadcast_arrays(_check_mu(mu), _check_epsilon(epsilon))
    return _plain(np.where(mu == 0, 0.0, _delta_from_log(_gaussian_log_delta(mu, epsilon)[0])))


def gaussian_epsilon(mu: ArrayLike, delta: ArrayLike) -> Any:
    """Least epsilon at which mu-Gaussian DP has at most `delta`, rounded up.

    The epsilon returned was checked: the exact delta at it, rounded up, does not exceed `delta`. Sources as
    `gaussian_delta`.

    Args:
        mu: at least 0, possibly infinite (epsilon is then infinite). Broadcasts with delta.
        delta: in `[0, 1)`; at 0 the epsilon is infinite unless mu is 0.

    Returns:
        float, or an array of the broadcast shape.

    Raises:
        ValueError: an argument out of range or NaN.
    """
    mu, delta = np.broadcast_arrays(_check_mu(mu), _check_delta(delta))
    with np.errstate(all="ignore"):
        target = np.log(delta)
        # Phi(-z) <= exp(-z^2/2), so z1 = sqrt(2 log 1/delta) is enough.
        enough = mu * (mu / 2 + np.sqrt(-2 * target)) * (1 + 1e-9)

        def miss(epsilon: Array) -> tuple[Array, Array]:
            exponent, slope, _ = _gaussian_log_delta(mu, epsilon)
            return _miss(exponent, target), slope

        at_zero = miss(np.zeros(mu.shape))[0] <= 0
        solved = _last_safe(miss, good=enough, bad=np.zeros(mu.shape))
        epsilon = np.where((mu == 0) | at_zero, 0.0, np.where(np.isfinite(enough), solved, np.inf))
    return _plain(epsilon)


def gaussian_mu(epsilon: ArrayLike, delta: ArrayLike) -> Any:
    """Largest mu for which mu-Gaussian DP implies (epsilon, delta)-DP, rounded down.

    The inverse of `gaussian_epsilon`: the exact delta at the mu returned was checked not to exceed `delta`.

    Args:
        epsilon: finite, at least 0. Broadcasts with delta.
        delta: in `[0, 1)`; at 0 the answer is 0.

    Returns:
        float, or an array of the broadcast shape.

    Raises:
        ValueError: an argument out of range or NaN.
    """
    epsilon, delta = np.broadcast_arrays(_check_epsilon(epsilon), _check_delta(delta))
    with np.errstate(all="ignore"):
        target = np.log(delta)

        def miss(mu: Array) -> tuple[Array, Array]:
            exponent, _, slope = _gaussian_log_delta(mu, epsilon)
            return _miss(exponent, target), slope

        root: Array = np.sqrt(-2 * target)
        good: Array = 2 * epsilon / (root + np.sqrt(root**2 + 2 * epsilon)) * (1 - 1e-9)
        good = np.where(miss(good)[0] <= 0, good, 0.0)
        bad: Array = np.maximum(2 * good, np.maximum(delta, _LEAST_POSITIVE))
        while np.any(meets := (miss(bad)[0] <= 0) & (delta > 0)):
            good, bad = np.where(meets, bad, good), np.where(meets, 2 * bad, bad)
        mu = np.where(delta > 0, _last_safe(miss, good=good, bad=bad), 0.0)
    return _plain(mu)


def _gaussian_log_delta(mu: Array, epsilon: Array) -> tuple[Array, Array, Array]:
    """Log of the exact delta, rounded up, and its derivatives in epsilon and in mu (slopes, not rounded).

    d delta / d epsilon = -phi(z1) m(z2)   and   d delta / d mu = phi(z1).
    """
    with np.errstate(all="ignore"):
        z1, z2 = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        m2 = _mills(z2)
        # Small mu: integral of -m'(z) = 1 - z m(z) from z1 to z2 = z1 + mu.
        nodes = z1[..., None] + np.minimum(mu, 1.0)[..., None] * _NODES
        integral = mu * (_mills_slope(nodes) @ _WEIGHTS)
        # Large mu: below z1 = 0 the ratio m(z1) may overflow, so that part is kept as a probability.
        difference = np.where(mu < 1, integral, _mills(np.maximum(z1, 0.0)) - m2)
        log_density = -0.5 * z1**2 - 0.5 * math.log(2 * math.pi)
        tail = ndtr(-z1) - np.exp(log_density) * m2
        exponent = np.where((mu >= 1) & (z1 < 0), np.log(tail), log_density + np.log(difference))
        ratio = np.where((mu >= 1) & (z1 < 0), np.exp(log_density) / tail, 1.0 / difference)
        # First-order rounding error of z1, z2, of 1 - z m(z) and of the difference, with room to spare.
        rounding = 8 * _UNIT * ((np.abs(z1) + 2) * (z2 + np.abs(z1)) + 2 * z2 + 20)
        exponent = np.minimum(exponent + rounding, 0.0)
        exponent = np.where(np.isinf(mu), 0.0, np.where(z1 > 1e150, -np.finfo(np.float64).max, exponent))
        exponent = np.where(np.isnan(exponent), 0.0, exponent)
        return np.where(mu == 0, -np.inf, exponent), -m2 * ratio, ratio


def _mills(z: Array) -> Array:
    """Mills' ratio Phi(-z) / phi(z)."""
    return math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2))


def _mills_slope(z: Array) -> Array:
    """1 - z m(z), the negative derivative of Mills' ratio; a series beyond 50, where it would cancel."""
    w = 1.0 / np.maximum(z, 50.0) ** 2
    series = w * (1 - w * (3 - w * (15 - w * (105 - w * (945 - w * 10395)))))
    return np.where(z > 50.0, series, 1.0 - z * _mills(np.minimum(z, 50.0)))


def gauss_legendre(count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


_NODES, _WEIGHTS = gauss_legendre(14)


def _miss(exponent: Array, target: Array) -> Array:
    """How far a log delta is above its target, with an allowance for the rounding of the logarithm."""
    miss = exponent - target + 2 * _UNIT * np.abs(target)
    return np.where(np.isnan(miss), np.inf, miss)


def _last_safe(miss: Callable[[Array], tuple[Array, Array]], good: Array, bad: Array) -> Array:
    """The point nearest to `bad` that still meets a target, by Newton steps kept inside the bracket.

    `miss(x)` returns a value that is at most 0 where x meets the target, and its derivative. Only checked
    points, or the `good` given, are returned.
    """
    x: Array = (good + bad) / 2
    for _ in range(200):
        value, slope = miss(x)
        meets = value <= 0
        good, bad = np.where(meets, x, good), np.where(meets, bad, x)
        if np.all(~(np.abs(good - bad) > 8 * _UNIT * np.abs(good))):
            break
        # Step a little beyond the root, to its other side, so that the bracket closes from both ends.
        newton: Array = x - value / slope
        other_side = np.where(meets, np.sign(bad - good), np.sign(good - bad))
        newton = newton + 3 * _UNIT * np.abs(newton) * other_side
        inside = (newton - good) * (newton - bad) < 0
        x = np.where(inside, newton, (good + bad) / 2)
    return good


# --- Checks and rounding --------------------------------------------------------------------------


def round_up(x: float, digits: int) -> str:
    """Decimal string of `x` with `digits` decimals that is never below `x`: `round_up(1.004, 2)` is `"1.01"`.

    `x` is read as its shortest decimal representation, so that 0.1 prints as "0.10"; `float` of the string is
    never below `x`. Infinity is `"inf"`.

    Raises:
        ValueError: NaN, or negative `digits`.
    """
    if math.isnan(x):
        raise ValueError("NaN cannot be rounded: the number to print was not computed.")
    if digits < 0:
        raise ValueError(f"digits is {digits}: the number of decimals is at least 0.")
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    unit = Decimal(1).scaleb(-digits)
    return f"{Decimal(repr(float(x))).quantize(unit, ROUND_CEILING, Context(prec=400 + digits)):f}"


def round_up_significant(x: float, digits: int = 3) -> str:
    """String of `x > 0` with so many significant digits that is never below `x`: 0.00011181 reads 0.000112."""
    return repr(float(Decimal(repr(float(x))).normalize(Context(prec=digits, rounding=ROUND_CEILING))))


def _check_supremum(supremum: ArrayLike) -> Array:
    array = np.asarray(supremum, dtype=np.float64)
    if not np.all(array > 0):
        raise ValueError(
            "The supremum of the excess orders (alpha - 1) must be positive: with no order above 1 there is no bound."
        )
    return array


def _check_delta(delta: ArrayLike) -> Array:
    array = np.asarray(delta, dtype=np.float64)
    if not np.all((array >= 0) & (array < 1)):
        raise ValueError(f"delta must lie in [0, 1), not {_show(array)}: at delta = 1 nothing is promised.")
    return array


def _check_epsilon(epsilon: ArrayLike) -> Array:
    array = np.asarray(epsilon, dtype=np.float64)
    if not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(f"epsilon must be finite and at least 0, not {_show(array)}.")
    return array


def _check_mu(mu: ArrayLike) -> Array:
    array = np.asarray(mu, dtype=np.float64)
    if not np.all(array >= 0):
        raise ValueError(f"mu must be at least 0, not {_show(array)}.")
    return array


def _show(array: Array) -> str:
    return repr(float(array)) if array.ndim == 0 else f"an array of shape {array.shape}"


def _delta_from_log(exponent: Array) -> Array:
    """Exponential, rounded up: at most 1, and positive unless the exponent is minus infinity."""
    delta = np.exp(np.minimum(exponent, 0.0)) * (1 + 2 * _UNIT)
    return np.clip(delta, np.where(exponent == -np.inf, 0.0, _LEAST_POSITIVE), 1.0)


def _plain(array: Array) -> Any:
    return float(array) if np.ndim(array) == 0 else array
