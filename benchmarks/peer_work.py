"""The work that peers are compared on, and what its results should be.

Records and points are uniform in the unit cube, responses uniform in [-1, 1]. The reference of a posterior mean and
covariance is computed apart from all engines: with 50 digits where the setting says so, on the line for the exponential
kernel with 50 digits at any size (a filter and a pass back), and else by SciPy's Cholesky factor in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]

LENGTH_SCALE, NUGGET, DIGITS = 0.2, 1e-4, 50
COLUMNS = 20
"""Covariances with so many points are compared where a whole matrix would be too large or too slow."""


@dataclass(frozen=True)
class Setting:
    """One piece of work: a posterior given n records, and one path at m points.

    Attributes:
        kernel: "exponential" or "matern52", length scale 0.2.
        ridge: standard deviation of the noise of a response.
        repetitions: timed calls, at most.
        digits: whether the dense reference has 50 digits.
        further: points asked for later, of those who can extend a path.
    """

    title: str
    n: int
    m: int
    dimension: int
    kernel: str
    ridge: float
    repetitions: int
    digits: bool = False
    further: int = 0

    @property
    def floor(self) -> bool:
        """Whether the dense floor says something: not on the line for the exponential kernel."""
        return not self.digits and self.n < 50_000


SETTINGS: dict[str, Setting] = {
    "plane-1000": Setting("Matern 5/2 in the plane", 1000, 1000, 2, "matern52", 3.0, 9),
    "plane-4390": Setting("Matern 5/2 in the plane", 4390, 3600, 2, "matern52", 3.0, 3, further=1000),
    "plane-10000": Setting("Matern 5/2 in the plane", 10_000, 2000, 2, "matern52", 3.0, 3),
    "line-100000": Setting("Exponential on the line", 100_000, 1000, 1, "exponential", 1.0, 5),
    "line-1000000": Setting("Exponential on the line", 1_000_000, 10_000, 1, "exponential", 1.0, 5, further=1000),
    "matern-4390": Setting("Matern 5/2 on the line", 4390, 3600, 1, "matern52", 1.0, 3, further=1000),
    "digits-plane": Setting("Matern 5/2 in the plane, ridge 0.01", 200, 60, 2, "matern52", 0.01, 9, digits=True),
    "digits-line": Setting("Exponential on the line, ridge 0.01", 200, 60, 1, "exponential", 0.01, 9, digits=True),
    "digits-matern": Setting("Matern 5/2 on the line, ridge 0.01", 200, 60, 1, "matern52", 0.01, 9, digits=True),
}


class Data(NamedTuple):
    """X (n, d), y (n,), T (m, d), and points asked for later."""

    X: Array
    y: Array
    T: Array
    later: Array


def data(setting: Setting, seed: int = 0) -> Data:
    """The records and points of a setting."""
    rng = np.random.default_rng(seed)
    X, y = rng.random((setting.n, setting.dimension)), rng.uniform(-1.0, 1.0, setting.n)
    T = rng.random((setting.m + setting.further, setting.dimension))
    return Data(X, y, T[: setting.m], T[setting.m :])


def reference(setting: Setting) -> tuple[Array, Array]:
    """The posterior mean (m,) and covariance (m, m), or (m, 20) where m is 10,000 or more, without nugget."""
    if setting.digits:
        return _digits(setting)
    return _line(setting) if setting.kernel == "exponential" else _dense(setting)


def _dense(setting: Setting) -> tuple[Array, Array]:
    X, y, T, _ = data(setting)

    def kernel(A: Array, B: Array) -> Array:
        s = cdist(A, B)
        s *= np.sqrt(5.0) / LENGTH_SCALE
        return (1.0 + s + s * s / 3.0) * np.exp(-s)

    A = kernel(X, X)
    A.flat[:: len(X) + 1] += setting.ridge**2
    L = linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    W = linalg.solve_triangular(L, kernel(X, T), lower=True, check_finite=False)
    b = linalg.solve_triangular(L, y, lower=True, check_finite=False)
    return W.T @ b, kernel(T, T) - W.T @ W


def _digits(setting: Setting) -> tuple[Array, Array]:
    """The textbook's formulas on arrays of decimals."""
    exact: Any = np.frompyfunc(Decimal, 1, 1)
    root: Any = np.frompyfunc(Decimal.sqrt, 1, 1)
    exp: Any = np.frompyfunc(Decimal.exp, 1, 1)
    X, y, T = (exact(each) for each in data(setting)[:3])

    def kernel(A: Any, B: Any) -> Any:
        s = root(((A[:, None] - B[None]) ** 2).sum(axis=2)) / Decimal(LENGTH_SCALE)
        if setting.kernel == "exponential":
            return exp(-s)
        s = s * Decimal(5).sqrt()
        return (1 + s + s * s / 3) * exp(-s)

    with localcontext() as context:
        context.prec = DIGITS
        A, W, b = kernel(X, X), kernel(X, T), y.copy()
        for i in range(len(X)):
            A[i, i] += Decimal(setting.ridge) ** 2
        for i in range(len(X)):  # a row of L, of W = L^-1 K and of b = L^-1 y at a time
            A[i:, i] = (A[i:, i] - A[i:, :i] @ A[i, :i]) / (A[i, i] - A[i, :i] @ A[i, :i]).sqrt()
            W[i] = (W[i] - A[i, :i] @ W[:i]) / A[i, i]
            b[i] = (b[i] - A[i, :i] @ b[:i]) / A[i, i]
        return (W.T @ b).astype(float), (kernel(T, T) - W.T @ W).astype(float)


def _line(setting: Setting) -> tuple[Array, Array]:
    """A Kalman filter along sorted places and a pass back (Rauch, Tung and Striebel 1965), in 50 digits.

    With G_i the gains back, cov(x_i, x_j) = G_i ... G_(j-1) var(x_j) for i < j.
    """
    X, y, T, _ = data(setting)
    places = np.concatenate([X[:, 0], T[:, 0]])
    order = np.argsort(places, kind="stable")
    seen = order < setting.n
    means, variances, products = np.empty(len(order)), np.empty(len(order)), []
    with localcontext() as context:
        context.prec = DIGITS
        noise, scale, one = Decimal(setting.ridge) ** 2, -1 / Decimal(LENGTH_SCALE), Decimal(1)
        previous, m, P = Decimal(float(places[order[0]])), Decimal(0), one
        filtered: list[tuple[Decimal, Decimal, Decimal, Decimal]] = []  # m, P, and of the step here: A, V
        for place, is_seen in zip(order, seen, strict=True):
            at = Decimal(float(places[place]))
            A = (scale * (at - previous)).exp()
            V = A * A * P + (one - A * A)
            m, P, previous = A * m, V, at
            if is_seen:
                gain = V / (V + noise)
                m, P = m + gain * (Decimal(float(y[place])) - m), V - gain * V
            filtered.append((m, P, A, V))
        A, V, ahead, spread, link = one, one, m, P, one  # link: product of gains from here to the next point
        for i in range(len(order) - 1, -1, -1):
            m, P, A_here, V_here = filtered.pop()
            if i < len(order) - 1:
                G = P * A / V
                ahead, spread = m + G * (ahead - A * m), P + G * G * (spread - V)
                link *= G
            means[i], variances[i] = float(ahead), float(spread)
            if not seen[i]:
                products.append(float(link))
                link = one
            A, V = A_here, V_here

    asked = np.flatnonzero(~seen)
    gains = np.array(products[:0:-1])  # from one point to the next
    variance = variances[asked]
    which = order[asked] - setting.n
    m = setting.m
    columns = m if m < 10_000 else COLUMNS
    rank = np.empty(m, dtype=int)
    rank[which] = np.arange(m)
    C = np.empty((m, columns))
    for column in range(columns):
        p = rank[column]
        up = np.concatenate([[1.0], np.cumprod(gains[p:])]) * variance[p:]
        down = np.cumprod(gains[:p][::-1])[::-1] * variance[p]
        C[which, column] = np.concatenate([down, up])
    mean = np.empty(m)
    mean[which] = means[asked]
    return mean, C
