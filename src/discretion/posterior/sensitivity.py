r"""How far one record can move a Gaussian-process posterior: bounds of its variance and of its mean.

Notation, the same in every module of this package. ``n`` records, a kernel with unit diagonal, ridge ``r``;
the core is the ``n - 1`` records that two neighbouring data sets share, ``C`` its posterior kernel and
``v = C(x, x)``. Every function is vectorised: its array arguments broadcast. ``M`` bounds the absolute value
of a response. The mean sensitivity ``Delta`` is the supremum over neighbours of the distance of the two
posterior means in the Hilbert space of ``C``; every bound of it does not decrease in the variance bound
``V``, so any upper bound of the largest ``v`` may be used as ``V``.

Amplitude. The kernels of this library have unit diagonal. A kernel ``s^2 k0`` with ``k0(z, z) = 1`` must be
normalised before any formula is used: posterior sampling with ``(s^2 k0, r, sigma)`` is the same mechanism
as with ``(k0, r / s, s sigma)``, and an RKHS norm ``B`` becomes ``s B``. Skipping this is unsound
for ``s > 1``.

Source: T. Maciazek, *Differential Privacy of Gaussian Process Posterior Sampling* (2026); proofs in
``docs/proofs``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discretion.gp.kernels import RBF, Diagonal, Exponential, Kernel, Matern32, Matern52, RationalQuadratic

Array = NDArray[np.float64]

ROUND_UP = 1.0 + 1e-12
"""Factor that covers the rounding error of a sum or of a maximisation."""

_LOG_CONCAVE = (Exponential, Matern32, Matern52, RBF)


def checked(name: str, value: ArrayLike, *, least: float = 0.0, strict: bool = True, finite: bool = True) -> Array:
    """``value`` as float64, refused unless every entry is a number > ``least`` (>= if not ``strict``)."""
    array = np.asarray(value, dtype=np.float64)
    inside = array > least if strict else array >= least
    if finite:
        inside &= np.isfinite(array)
    if not np.all(inside):
        wanted = f"{'a finite number' if finite else 'a number'} {'>' if strict else '>='} {least:g}"
        raise ValueError(f"{name} must be {wanted}; got {array[~inside].flat[0]!s}.")
    return array


def checked_count(name: str, value: ArrayLike) -> Array:
    """``value`` as float64, refused unless every entry is a whole number of at least 1."""
    array = checked(name, value, least=1.0, strict=False)
    if np.any(array != np.floor(array)):
        raise ValueError(f"{name} must be a whole number; got {array[array != np.floor(array)].flat[0]!s}.")
    return array


def checked_ridge(ridge: ArrayLike) -> tuple[Array, Array]:
    """The ridge and its square, refused where its powers would leave the range of float64."""
    r = checked("ridge", ridge)
    if np.any((r < 1e-75) | (r > 1e75)):
        raise ValueError(
            "ridge must lie between 1e-75 and 1e75: beyond, its powers leave the range of double precision."
        )
    return r, r * r


# --- posterior variance ---------------------------------------------------------------------------


def posterior_variance_bound(n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike = 0.0) -> Array:
    r"""Largest posterior variance ``V`` that ``n - 1`` records can leave at a point of the domain, (3).

    .. math:: \bar V = \frac{(1-\kappa)(1+\kappa)(n-1) + r^2}{n-1+r^2}

    Parameters
    ----------
    n : array, whole numbers >= 1
        Number of records (public).
    ridge : array, > 0
        r.
    least_kernel : array, <= 1
        A lower bound kappa of the kernel over pairs of points of the domain. Any lower bound is sound, an
        overestimate is not. Negative values count as 0.

    Returns
    -------
    array in (0, 1]

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Proof in ``docs/proofs/posterior-variance.md``; Maciazek 2026, Section 3.
    """
    m = checked_count("n", n) - 1.0
    _, q = checked_ridge(ridge)
    kappa = np.asarray(least_kernel, dtype=np.float64)
    if not np.all(kappa <= 1.0):
        raise ValueError("least_kernel must be at most 1, the value of the kernel at distance 0.")
    kappa = np.maximum(kappa, 0.0)
    return np.minimum(1.0, ((1.0 - kappa) * (1.0 + kappa) * m + q) / (m + q))


def phi(variance: ArrayLike, ridge: ArrayLike) -> Array:
    r"""Square of the largest pull of one record on the mean, per unit of residual, (3a).

    .. math:: \Phi(V, r) = \sup_{0 \le u \le V} \frac{u}{(u+r^2)^2}

    which is ``1 / (4 r^2)`` if ``V >= r^2`` (the maximiser is ``u = r^2``) and ``V / (V + r^2)^2`` otherwise.
    Maciazek 2026, Section 3.
    """
    return np.square(_root_phi(variance, ridge))


def _root_phi(variance: ArrayLike, ridge: ArrayLike) -> Array:
    """Square root of :func:`phi`."""
    _, q = checked_ridge(ridge)
    u = np.minimum(checked("variance", variance), q)
    return np.sqrt(u) / (u + q)


# --- mean sensitivity: bounded responses ----------------------------------------------------------


def mean_sensitivity_lower(variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0) -> Array:
    r"""No bound of the mean sensitivity can be smaller than this, (4.0): ``2 M sqrt(V) / (r^2 + V)``.

    Attained by ``x = x'`` with ``y = M``, ``y' = -M`` at a point of variance ``V``. Maciazek 2026, Lemma B.3.
    """
    v = checked("variance", variance)
    _, q = checked_ridge(ridge)
    return 2.0 * checked("response_bound", response_bound, strict=False) * np.sqrt(v) / (q + v)


def mean_sensitivity_simple(
    n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0
) -> Array:
    r"""Simplest generic bound, (4.1): ``2 M (1 + sqrt(n-1) / (2r)) sqrt(Phi)``.

    With any ``variance >= ridge^2`` it is the form ``(M/r) (1 + sqrt(n-1) / (2r))``. Never better than
    (4.2); kept for comparison with published figures. Maciazek 2026, Lemma B.1.
    """
    r, _ = checked_ridge(ridge)
    m = checked_count("n", n) - 1.0
    bound = checked("response_bound", response_bound, strict=False)
    return 2.0 * bound * (1.0 + np.sqrt(m) / (2.0 * r)) * _root_phi(variance, ridge)


def mean_sensitivity_operator(
    n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0
) -> Array:
    r"""Operator bound for responses in ``[-M, M]``, (4.2).

    .. math:: \Delta \le \frac{M\sqrt{n-1}}{r}\,\frac{V}{r^2+V} + 2M\sqrt{\Phi(V, r)}

    Proof in ``docs/proofs/mean-sensitivity-operator.md``; Maciazek 2026, Appendix D.3.
    """
    r, q = checked_ridge(ridge)
    v = checked("variance", variance)
    m = checked_count("n", n) - 1.0
    bound = checked("response_bound", response_bound, strict=False)
    return bound * (np.sqrt(m) / r * (v / (q + v)) + 2.0 * _root_phi(v, r))


def mean_sensitivity_coupled(
    n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0
) -> Array:
    r"""Coupled bound for responses in ``[-M, M]``, (4.3).

    .. math::

        \Delta \le 2M \sup_{0 \le u \le V} \frac{\sqrt u + c\,u\sqrt{1-u}}{r^2+u}, \qquad c = \sqrt{n-1}/r

    The numerator N is concave on [0, 1], so the ratio has one peak, between the peaks of its two summands;
    it is found by bisection on the sign of ``N'(u)(r^2+u) - N(u)``. The value returned is the supremum of
    the ratio with N replaced by its tangent at the point found: an upper bound wherever the bisection
    stops, rounded up by 1e-12.

    Proof in ``docs/proofs/mean-sensitivity-coupled.md``.
    """
    r, q = checked_ridge(ridge)
    m = checked_count("n", n) - 1.0
    v = np.minimum(checked("variance", variance), 1.0)
    bound = checked("response_bound", response_bound, strict=False)
    c, q, v = np.broadcast_arrays(np.sqrt(m) / r, q, v)

    def numerator(u: Array) -> tuple[Array, Array]:
        """N(u) and N'(u)."""
        rest = np.maximum(1.0 - u, 1e-32)
        root, root_rest = np.sqrt(u), np.sqrt(rest)
        return root + c * u * root_rest, 0.5 / root + c * (1.0 - 1.5 * u) / root_rest

    second_peak = 4.0 * q / (np.sqrt(q * (9.0 * q + 8.0)) + 3.0 * q)
    low = np.minimum(np.minimum(q, second_peak), v)
    high = np.minimum(np.maximum(q, second_peak), v)
    for _ in range(48):
        middle = 0.5 * (low + high)
        value, slope = numerator(middle)
        rising = slope * (q + middle) >= value
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)

    def tangent_supremum(u: Array) -> Array:
        """Supremum over [0, V] of (N(u) + N'(u)(z - u)) / (q + z): monotone in z, so it sits at an end."""
        value, slope = numerator(u)
        return np.maximum((value - slope * u) / q, (value + slope * (v - u)) / (q + v))

    supremum = np.minimum(tangent_supremum(low), tangent_supremum(high))
    return 2.0 * bound * ROUND_UP * supremum


def mean_bound(n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0) -> Array:
    r"""Bound ``b`` of the posterior mean of ``n`` records with responses in ``[-M, M]``, everywhere.

    ``b = (M sqrt(n) / r) sqrt(u (1 - u))`` with ``u = min(V, 1/2)``; ``M sqrt(n) / (2 r)`` when ``V >= 1/2``.
    Proof in ``docs/proofs/mean-sensitivity-bounded-mean.md``.
    """
    r, _ = checked_ridge(ridge)
    u = np.minimum(checked("variance", variance), 0.5)
    bound = checked("response_bound", response_bound, strict=False)
    return bound * np.sqrt(checked_count("n", n)) / r * np.sqrt(u * (1.0 - u))


def mean_sensitivity_bounded_mean(ridge: ArrayLike, response_bound: ArrayLike, mean_bound: ArrayLike) -> Array:
    r"""Bounded-mean bound, (4.4): ``(M + b) / (sqrt(2) r)`` where ``b`` bounds the absolute posterior mean.

    ``b`` must hold at both records for every admissible data set of ``n`` records, for instance
    :func:`mean_bound`. Proof in ``docs/proofs/mean-sensitivity-bounded-mean.md``.
    """
    r, _ = checked_ridge(ridge)
    bound = checked("response_bound", response_bound, strict=False)
    return (bound + checked("mean_bound", mean_bound, strict=False)) / (np.sqrt(2.0) * r)


def mean_sensitivity_generic(
    n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0
) -> Array:
    """The smallest of (4.2), (4.3) and (4.4), each valid for all responses in ``[-M, M]``, (4.5)."""
    half = mean_sensitivity_bounded_mean(ridge, response_bound, mean_bound(n, variance, ridge, response_bound))
    operator = mean_sensitivity_operator(n, variance, ridge, response_bound)
    return np.minimum(np.minimum(operator, mean_sensitivity_coupled(n, variance, ridge, response_bound)), half)


# --- mean sensitivity: further assumptions --------------------------------------------------------


def mean_sensitivity_rkhs(
    n: ArrayLike, variance: ArrayLike, ridge: ArrayLike, norm: ArrayLike, noise: ArrayLike = 0.0
) -> Array:
    r"""Responses on the graph of a function of RKHS norm at most ``B``, plus bounded noise, (4.6).

    .. math:: \Delta \le B\,\frac{V}{r^2+V} + \Delta_{\mathrm{gen}}(M_\xi)

    where the second term is (4.5) at the noise level and 0 without noise. Proof in
    ``docs/proofs/mean-sensitivity-rkhs.md``; Maciazek 2026, Lemma B.6.
    """
    v = checked("variance", variance)
    _, q = checked_ridge(ridge)
    graph = checked("norm", norm, strict=False) * (v / (q + v))
    return graph + mean_sensitivity_generic(n, v, ridge, checked("noise", noise, strict=False))


def mean_sensitivity_separated(
    packing: ArrayLike, variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0
) -> Array:
    r"""Covariates of every data set pairwise apart, (4.7): ``2 M (1 + R / (1 + r^2 - R)) sqrt(Phi)``.

    ``R = packing`` bounds, at every record, the sum of the absolute kernel to the other records
    (:func:`packing_sum`). Infinite where ``R >= 1 + r^2``: the bound is void there. Proof in
    ``docs/proofs/mean-sensitivity-separated.md``; Maciazek 2026, Proposition 4.
    """
    _, q = checked_ridge(ridge)
    total = checked("packing", packing, strict=False, finite=False)
    bound = checked("response_bound", response_bound, strict=False)
    return 2.0 * bound * (1.0 + total * _inverse_gap(total, q)) * _root_phi(variance, ridge)


def separated_mean_bound(packing: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0) -> Array:
    r"""Bound ``b = M (1 + R) / (1 + r^2 - R)`` of the mean at the two records; infinite if void.

    Proof in ``docs/proofs/mean-sensitivity-separated.md``.
    """
    _, q = checked_ridge(ridge)
    total = checked("packing", packing, strict=False, finite=False)
    return checked("response_bound", response_bound, strict=False) * (1.0 + total) * _inverse_gap(total, q)


def _inverse_gap(total: Array, q: Array) -> Array:
    """``1 / (1 + r^2 - R)``, bound of the max-norm of ``(K + r^2 I)^-1``; infinite where void."""
    gap = 1.0 + q - total
    return np.where(gap > 0.0, 1.0 / np.where(gap > 0.0, gap, 1.0), np.inf)


def mean_sensitivity_exponential_1d(variance: ArrayLike, ridge: ArrayLike, response_bound: ArrayLike = 1.0) -> Array:
    r"""Exponential kernel on the line, responses in ``[-M, M]``, (4.8): ``2 sqrt(2) M sqrt(Phi)``.

    Does not grow with ``n``. The constant is the best possible. Proof in
    ``docs/proofs/mean-sensitivity-exponential-1d.md``; the maximum principle is Maciazek 2026, Lemma B.7.
    """
    bound = checked("response_bound", response_bound, strict=False)
    return 2.0 * np.sqrt(2.0) * bound * _root_phi(variance, ridge)


def mean_sensitivity_diagonal(ridge: ArrayLike, response_bound: ArrayLike = 1.0) -> Array:
    r"""Diagonal kernel ``1{x = x'}``, responses in ``[-M, M]``, (4.9): ``2 sqrt(2) M sqrt(Phi(1, r))``.

    Proof in ``docs/proofs/mean-sensitivity-diagonal.md``; Maciazek 2026, Lemma B.5.
    """
    return mean_sensitivity_exponential_1d(1.0, ridge, response_bound)


def packing_sum(
    kernel: Kernel,
    separation: float,
    dimension: int,
    *,
    counts: Literal["cumulative", "shell"] = "cumulative",
) -> float:
    r"""Largest sum of a kernel from one record to the others when all are ``separation`` apart, rounded up.

    .. math:: R_d(q) = \sum_{m \ge 1} N_m\, \varphi(m q)

    for a non-increasing profile. Balls of radius ``q/2`` about the points are disjoint, so at most
    ``(2m+3)^d - 1`` other points lie within ``(m+1) q``. ``counts="cumulative"`` fills the shells with
    these, nearest first: ``N_1 = 5^d - 1``, ``N_m = (2m+3)^d - (2m+1)^d``. ``counts="shell"`` packs each
    shell on its own, ``N_m = (2m+3)^d - (2m-1)^d``, which is larger (the published form). In one dimension
    ``N_m = 2``, exactly.

    Parameters
    ----------
    kernel : Kernel
        One of the library's kernels. Per-axis length scales are replaced by the largest, which is safe.
    separation : float > 0
        Least Euclidean distance q of two records of one data set, in the units of the kernel's length scale.
    dimension : int >= 1
        Number of covariates d.

    Returns
    -------
    float
        Infinite if the sum diverges, or if more than ten million shells would be needed.

    Raises
    ------
    ValueError
        If an argument is out of range or the tail of the kernel's profile is not known to the library.

    Notes
    -----
    Proof in ``docs/proofs/mean-sensitivity-separated.md``; Maciazek 2026, Proposition 4.
    """
    step = float(checked("separation", separation)) / float(np.max(kernel.length_scale))
    d = int(checked_count("dimension", dimension))
    if isinstance(kernel, Diagonal):
        return 0.0
    if not isinstance(kernel, (*_LOG_CONCAVE, RationalQuadratic)):
        raise ValueError(
            f"No packing sum is known for the kernel {kernel.name!r}: its tail has no certified "
            "bound. Give the sum R yourself: Separated(response_bound, separation, dimension, packing=R)."
        )
    total, start, block = 0.0, 1, 4096
    while start <= 10_000_000:
        m = np.arange(start, start + block, dtype=np.float64)
        terms = _shell_counts(m, d, counts) * np.asarray(kernel.profile(m * step), dtype=np.float64)
        total += float(np.sum(terms))
        if terms[-1] == 0.0 and not isinstance(kernel, RationalQuadratic):
            return total * ROUND_UP + 1e-300  # the profile underflowed: what is left is below 1e-300
        tail = _packing_tail(kernel, step, d, m, terms)
        if tail <= 1e-13 * total or (start > 1_000_000 and tail <= 1e-3 * total):
            return (total + tail) * ROUND_UP
        start, block = start + block, min(2 * block, 1 << 20)
    return float("inf")


def _shell_counts(m: Array, d: int, counts: str) -> Array:
    """How many points the m-th shell may hold."""
    if d == 1:
        return np.full_like(m, 2.0)
    if counts == "shell":
        return (2.0 * m + 3.0) ** d - (2.0 * m - 1.0) ** d
    return (2.0 * m + 3.0) ** d - np.where(m == 1.0, 1.0, (2.0 * m + 1.0) ** d)


def _packing_tail(kernel: Kernel, step: float, d: int, m: Array, terms: Array) -> float:
    """Upper bound of the sum of the terms after those given.

    A log-concave profile times a log-concave count has non-increasing ratios of successive terms, so the
    tail is at most geometric. The rational quadratic's ``(2a / s^2)^a`` decays like a power and is compared
    with an integral; a shell holds at most ``(2m+3)^d - (2m-1)^d <= 4d (2m+3)^(d-1) <= 4d (2 + 3/m0)^(d-1)
    m^(d-1)`` points for ``m >= m0``.
    """
    if isinstance(kernel, RationalQuadratic):
        a, last = float(kernel.alpha), float(m[-1])
        if 2.0 * a <= d:
            return float("inf")
        log_tail = (
            np.log(4.0 * d)
            + (d - 1) * np.log(2.0 + 3.0 / last)
            + a * np.log(2.0 * a / step**2)
            + (d - 2.0 * a) * np.log(last)
            - np.log(2.0 * a - d)
        )
        return float(np.exp(log_tail)) if log_tail < 700.0 else float("inf")
    ratio = float(terms[-1] / terms[-2])
    return float(terms[-1]) * ratio / (1.0 - ratio) if ratio < 1.0 else float("inf")
