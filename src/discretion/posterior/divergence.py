r"""What one released sample path costs: bounds of the Renyi divergence between two neighbouring releases.

The release is a path of ``GP(mu_D, sigma^2 k_D)``. ``V`` bounds the posterior variance that ``n - 1``
records leave (:func:`~discretion.posterior.sensitivity.posterior_variance_bound`), ``Delta`` the mean
sensitivity and ``tau = V / r^2``. A bound holds in both directions of a pair, for every finite set of test
points at once, hence for the whole path and all that is computed from it; its orders are
``1 < alpha < 1 + 1/tau``.

Every function takes ``excess = alpha - 1`` as the primary variable (it can be 1e-10 when tau is large), is
vectorised over broadcasting arrays, gives the Kullback-Leibler limit at ``excess = 0``, infinity outside
the range of orders and wherever arithmetic overflows, and raises ValueError for a negative excess.

All bounds of one path share one shape, :func:`path_divergence`; :class:`Route` holds its three parameters.

Source: T. Maciazek, *Differential Privacy of Gaussian Process Posterior Sampling* (2026), Theorem 3.1 and
Corollary 1; proofs and refinements in ``docs/proofs``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from discretion.posterior.sensitivity import Array, checked, checked_count, checked_ridge

_POLE = 1e-13
"""Orders with ``1 - (alpha-1) tau`` below this count as outside the range: rounding could hide the pole."""

_ROUNDING = 2.0**-46


def _excess(excess: ArrayLike) -> Array:
    e = np.asarray(excess, dtype=np.float64)
    if not np.all(e >= 0.0):
        raise ValueError("excess (order - 1) must be at least 0: the bounds hold for orders of 1 and above.")
    return e


def _squared_ratio(value: Array, scale: Array) -> Array:
    """``(value / scale)^2``; infinite, not NaN, for an infinite value under an infinite scale."""
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.square(value / scale)
    return np.where(np.isnan(ratio), np.inf, ratio)


def path_divergence(excess: ArrayLike, tau: ArrayLike, direct: Array | float, coupled: Array | float) -> Array:
    r"""The common shape of every bound of one path.

    .. math:: -\frac{\log\bigl(1-\frac{\alpha(\alpha-1)\tau^2}{1+\tau}\bigr)}{2(\alpha-1)}
              + \frac{\alpha}{2}\Bigl[\text{direct} + \frac{\alpha\,\text{coupled}}{1-(\alpha-1)\tau}\Bigr]

    With ``direct = D`` and ``coupled = tau D`` the bracket is ``D (1+tau) / (1-(alpha-1)tau)``. Rounded up,
    by a relative ``2^-46 / (1-(alpha-1)tau)``, which covers the rounding of the parameters too.
    """
    e = _excess(excess)
    order = 1.0 + e
    t = np.asarray(tau, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        pull = e * t
        gap = 1.0 - pull
        inside = gap > _POLE
        gap = np.where(inside, gap, 1.0)
        share = t / (1.0 + t)
        x = np.where(inside, np.maximum(order * pull * share, 1e-300), 1e-300)
        covariance = order * (0.5 * t * share) * (-np.log1p(-x) / x)
        value = covariance + 0.5 * order * (direct + order * (coupled / gap))
        value += _ROUNDING * value / gap
    return np.where(inside & ~np.isnan(value), value, np.inf)


@dataclass(frozen=True)
class Route:
    """One valid bound of the cost of a path: the parameters of :func:`path_divergence`, arrays.

    ``tau`` sets the covariance term and the pole ``alpha - 1 = 1/tau``; ``direct`` and ``coupled`` are the
    squared mean shift in units of the noise. A covariance term belongs with the mean term of the same
    route.
    """

    tau: Array
    direct: Array
    coupled: Array

    def renyi(self, excess: ArrayLike) -> Array:
        """The bound at order ``1 + excess``."""
        return path_divergence(excess, self.tau, self.direct, self.coupled)

    @property
    def supremum(self) -> Array:
        """Least upper bound of ``alpha - 1``: ``1 / tau``."""
        with np.errstate(divide="ignore"):
            return 1.0 / self.tau


# --- routes ---------------------------------------------------------------------------------------


def two_norm_route(
    variance: ArrayLike,
    ridge: ArrayLike,
    sensitivity: ArrayLike,
    scale: ArrayLike,
    spread: ArrayLike = np.inf,
) -> Route:
    r"""Covariance term of (5.1) with the mean term of (5.2).

    .. math::

        \frac{\alpha}{2\sigma^2}\Bigl[\Delta^2 + \frac{\alpha\min(V\Delta^2, S^2)}{r^2-(\alpha-1)V}\Bigr]

    ``spread`` is ``S``, any bound of ``sup |mu_D - mu_D'|``; with ``S`` infinite this is the mean term of
    (5.1), ``(alpha/2) (1+tau)/(1-(alpha-1)tau) (Delta/sigma)^2``. ``scale`` may be infinite: the centred
    path alone.

    Proofs in ``docs/proofs/renyi-covariance-and-mean.md`` and ``docs/proofs/two-norm-mean-term.md``;
    Maciazek 2026, Theorem 3.1 and Corollary 1.
    """
    r, q = checked_ridge(ridge)
    tau = checked("variance", variance) / q
    sigma = checked("scale", scale, finite=False)
    direct = _squared_ratio(checked("sensitivity", sensitivity, strict=False, finite=False), sigma)
    capped = _squared_ratio(checked("spread", spread, strict=False, finite=False) / r, sigma)
    with np.errstate(over="ignore"):
        return Route(tau, direct, np.minimum(tau * direct, capped))


def joint_route(
    variance: ArrayLike,
    ridge: ArrayLike,
    response_bound: ArrayLike,
    mean_bound: ArrayLike,
    scale: ArrayLike,
    spread: ArrayLike = np.inf,
) -> Route:
    r"""Covariance term of (5.1) with the joint mean term (5.2a), for a posterior mean bounded by ``b``.

    .. math::

        \frac{\alpha N^2}{2\sigma^2}\Bigl[\frac{1+4s-4s^2}{4r^2} + \frac{\alpha s^2}{r^2-(\alpha-1)V}\Bigr],
        \quad N = M+b,\; s = \min\Bigl(\frac SN, \frac{1+\sqrt{2+r^2/V}}{2(1+r^2/V)}\Bigr)

    ``spread`` is ``S <= 2b``, a bound of ``sup |mu_D - mu_D'|``; 2b unless a smaller one is given.
    Proof in ``docs/proofs/joint-mean-term.md``.
    """
    r, q = checked_ridge(ridge)
    v = checked("variance", variance)
    sigma = checked("scale", scale, finite=False)
    bound = checked("response_bound", response_bound, strict=False)
    b = checked("mean_bound", mean_bound, strict=False, finite=False)
    reach = bound + b
    wide = np.minimum(checked("spread", spread, strict=False, finite=False), 2.0 * b)
    ratio = q / v
    cap = (1.0 + np.sqrt(2.0 + ratio)) / (2.0 * (1.0 + ratio))
    with np.errstate(invalid="ignore", divide="ignore"):
        # reach 0 means M = b = 0 (no mean to leak), an infinite reach a void b: the cap covers both
        s = np.fmin(wide / reach, cap)
        direct = np.maximum(1.0 + 4.0 * s * (1.0 - s), 0.0) * _squared_ratio(reach / (2.0 * r), sigma)
        coupled = np.square(s) * _squared_ratio(reach / r, sigma)
    return Route(v / q, direct, coupled)


def prior_noise_route(
    variance: ArrayLike, ridge: ArrayLike, sensitivity: ArrayLike, scale: ArrayLike, prior_noise: ArrayLike
) -> Route:
    r"""Release of ``f_D + g`` with ``g ~ GP(0, eta^2 k)`` drawn afresh for every path, (5.4).

    (5.1) with ``tau`` replaced by :math:`\tilde\tau = \sigma^2V / (\sigma^2r^2 + \eta^2(V+r^2))` and
    ``sigma^2`` by ``sigma^2 + eta^2``. At ``eta = 0`` it is (5.1). Since g is independent of the records,
    every bound for ``eta = 0`` holds as well, by post-processing.

    Proof in ``docs/proofs/prior-noise.md``; Maciazek 2026, Appendix A.1.
    """
    _, q = checked_ridge(ridge)
    v = checked("variance", variance)
    sigma = checked("scale", scale, finite=False)
    eta = checked("prior_noise", prior_noise, strict=False)
    tau = v / (q + _squared_ratio(eta, sigma) * (v + q))
    delta = checked("sensitivity", sensitivity, strict=False, finite=False)
    direct = _squared_ratio(delta, np.hypot(sigma, eta))
    with np.errstate(over="ignore", invalid="ignore"):
        coupled = tau * direct
    return Route(tau, direct, np.where(np.isnan(coupled), np.inf, coupled))


# --- the terms one by one -------------------------------------------------------------------------


def covariance_term(excess: ArrayLike, variance: ArrayLike, ridge: ArrayLike) -> Array:
    r"""Covariance part of (5.1): ``-log(1 - alpha(alpha-1)tau^2/(1+tau)) / (2(alpha-1))``.

    All that remains at an infinite scale. Attained by two uncorrelated records of variance V. Tends to
    ``tau^2 / (2(1+tau))`` as the order tends to 1. Proof in ``docs/proofs/renyi-covariance-and-mean.md``.
    """
    return two_norm_route(variance, ridge, 0.0, np.inf).renyi(excess)


def mean_term(
    excess: ArrayLike, variance: ArrayLike, ridge: ArrayLike, sensitivity: ArrayLike, scale: ArrayLike
) -> Array:
    r"""Mean part of (5.1): ``(alpha/2) (1+tau)/(1-(alpha-1)tau) (Delta/sigma)^2``."""
    return mean_part(excess, two_norm_route(variance, ridge, sensitivity, scale))


def two_norm_mean_term(
    excess: ArrayLike,
    variance: ArrayLike,
    ridge: ArrayLike,
    sensitivity: ArrayLike,
    spread: ArrayLike,
    scale: ArrayLike,
) -> Array:
    """Mean part of (5.2), never above that of (5.1); see :func:`two_norm_route`."""
    return mean_part(excess, two_norm_route(variance, ridge, sensitivity, scale, spread))


def joint_mean_term(
    excess: ArrayLike,
    variance: ArrayLike,
    ridge: ArrayLike,
    response_bound: ArrayLike,
    mean_bound: ArrayLike,
    scale: ArrayLike,
) -> Array:
    """Mean part of (5.2a); see :func:`joint_route`."""
    return mean_part(excess, joint_route(variance, ridge, response_bound, mean_bound, scale))


def mean_part(excess: ArrayLike, route: Route) -> Array:
    """The route's bound without its covariance term."""
    order = 1.0 + _excess(excess)
    gap = 1.0 - (order - 1.0) * route.tau
    inside = gap > _POLE
    with np.errstate(over="ignore", invalid="ignore"):
        value = 0.5 * order * (route.direct + order * (route.coupled / np.where(inside, gap, 1.0)))
    return np.where(inside & ~np.isnan(value), value, np.inf)


# --- lower bound ----------------------------------------------------------------------------------


def variance_ratio(n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike = 0.0) -> Array:
    r"""Ratio of the two posterior variances in the worst pair known, for two points with kernel value kappa.

    .. math::

        \Lambda_n = 1 + \frac{q}{r^2} + \frac{q(n-1)\kappa^2}{(r^2+n)(r^2+(n-1)q)}, \qquad q = 1-\kappa^2

    All records of one data set sit at one point; in the other, one has moved to the second point.
    Proof in ``docs/proofs/covariance-lower-bound.md``; Maciazek 2026, Appendix B.3.
    """
    count = checked_count("n", n)
    _, r2 = checked_ridge(ridge)
    kappa = np.asarray(least_kernel, dtype=np.float64)
    if not np.all((kappa >= 0.0) & (kappa <= 1.0)):
        raise ValueError("least_kernel must lie in [0, 1]: it is the kernel of two points of the domain.")
    q = (1.0 - kappa) * (1.0 + kappa)
    m = count - 1.0
    return 1.0 + q / r2 + q * m * np.square(kappa) / ((r2 + count) * (r2 + m * q))


def variance_pair_divergence(excess: ArrayLike, ratio: ArrayLike) -> Array:
    r"""Renyi divergence of ``N(0, x s^2)`` from ``N(0, s^2)`` at order ``1 + excess``, (6).

    .. math:: \varphi_\alpha(x) = -\tfrac12\log x - \frac{\log(\alpha-(\alpha-1)x)}{2(\alpha-1)}

    with x the ratio of the variances. Infinite for ``x >= alpha / (alpha-1)``.
    """
    e = checked("excess", excess, strict=False)
    more = checked("ratio", ratio) - 1.0
    pull = e * more
    inside = pull < 1.0
    pull = np.where(inside, pull, 0.0)
    # both logarithms less their linear parts, l/2 and -l/2, which cancel
    tail = np.where(pull == 0.0, -0.5 * e * np.square(more), log1p_less(-pull) / np.where(pull == 0.0, 1.0, e))
    return np.where(inside, -0.5 * (log1p_less(more) + tail), np.inf)


def log1p_less(x: Array) -> Array:
    """``log(1 + x) - x``, by its series where the difference would cancel."""
    small = np.abs(x) < 0.05
    z = np.where(small, x, 0.0)
    series = np.zeros_like(z)
    for k in range(13, 1, -1):
        series = series * z + (-1.0) ** (k + 1) / k
    return np.where(small, series * z * z, np.log1p(np.where(small, 0.0, x)) - x)


def covariance_lower_bound(excess: ArrayLike, n: ArrayLike, ridge: ArrayLike, least_kernel: ArrayLike = 0.0) -> Array:
    r"""No valid bound of one path can be below this, whatever the scale: ``phi_alpha(Lambda_n)``, (6).

    ``least_kernel`` must here be the kernel of two points of the domain (an attained value, not a lower
    bound). Infinite for ``alpha >= Lambda/(Lambda-1)``: no Renyi bound exists there. Proof in
    ``docs/proofs/covariance-lower-bound.md``.
    """
    return variance_pair_divergence(excess, variance_ratio(n, ridge, least_kernel))


# --- public covariates ----------------------------------------------------------------------------


def leverage_bound(variance: ArrayLike, ridge: ArrayLike) -> Array:
    """Largest leverage ``h = v / (r^2 + v)`` of a record whose leave-one-out variance is ``variance``."""
    v = checked("variance", variance)
    return v / (checked_ridge(ridge)[1] + v)


def response_only_mu(
    variance: ArrayLike,
    ridge: ArrayLike,
    scale: ArrayLike,
    response_bound: ArrayLike = 1.0,
    prior_noise: ArrayLike = 0.0,
) -> Array:
    r"""Gaussian-DP parameter of one path when only one response changes and the covariates are public, (7).

    .. math:: \mu = \frac{2M\sqrt{h}}{r\sqrt{\sigma^2+\eta^2}}, \qquad h = \frac{V}{r^2+V}

    Exact for the worst pair. ``L`` paths: ``mu sqrt(L)``. Proof in ``docs/proofs/response-only.md``;
    Maciazek 2026, Proposition 6 and Lemma B.10.
    """
    r, _ = checked_ridge(ridge)
    noise = np.hypot(checked("scale", scale, finite=False), checked("prior_noise", prior_noise, strict=False))
    bound = checked("response_bound", response_bound, strict=False)
    with np.errstate(over="ignore"):
        return 2.0 * bound * np.sqrt(leverage_bound(variance, r)) / r / noise


def thompson_rho(scales: ArrayLike, ridge: float, response_bound: float, leverage: float | None = None) -> float:
    r"""Zero-concentrated DP of a whole run of Gaussian-process Thompson sampling, (7.2).

    .. math:: \rho_T \le \frac{2M^2H}{r^2}\sum_{t=2}^{T}\sigma_t^{-2}

    Parameters
    ----------
    scales : array (T,)
        Posterior scales ``sigma_1, ..., sigma_T``, a public schedule or public lower bounds of it. Round 1
        uses no record and is free.
    ridge : float > 0
    response_bound : float
        M, for responses clipped to ``[-M, M]``.
    leverage : float, optional
        H; ``1 / (1 + r^2)`` for a unit-diagonal kernel unless given.

    Notes
    -----
    Neighbours differ in one record's response function; the covariates are the public actions. A
    response may react to the past only through the released paths and actions. Proof in
    ``docs/proofs/response-only.md``; Maciazek 2026, Appendix B.4.
    """
    with np.errstate(over="ignore"):  # inf: no guarantee
        return float(0.5 * np.square(thompson_mu(scales, ridge, response_bound, leverage)))


def thompson_mu(scales: ArrayLike, ridge: float, response_bound: float, leverage: float | None = None) -> float:
    """Gaussian-DP parameter of the same run, ``sqrt(2 rho_T)``, (7.3); it converts without loss."""
    _, q = checked_ridge(ridge)
    sigma = np.atleast_1d(checked("scales", scales, finite=False))
    if sigma.ndim != 1 or sigma.size == 0:
        raise ValueError("scales must be one-dimensional, one scale for each round.")
    h = 1.0 / (1.0 + q) if leverage is None else checked("leverage", leverage, strict=False)
    with np.errstate(over="ignore"):  # inf: no guarantee
        ratios = checked("response_bound", response_bound, strict=False) / sigma[1:]
    # the norm of ratios to the largest, since the squares of M, of sigma_t and of M/sigma_t need not be doubles
    largest = ratios.max(initial=0.0)
    if not 0.0 < largest < np.inf:
        return float(largest)
    with np.errstate(over="ignore", under="ignore"):
        return float(2.0 * np.sqrt(h / q) * np.linalg.norm(ratios / largest) * largest)


def concentrated_epsilon(rho: ArrayLike, delta: ArrayLike) -> tuple[Array, Array]:
    r"""Classical conversion of rho-zCDP: ``epsilon = rho + 2 sqrt(rho log(1/delta))`` and its order, (7.3).

    The order is ``1 + sqrt(log(1/delta) / rho)``, infinite at ``rho = 0``. Looser than the Gaussian-DP
    conversion; kept for comparison with published figures.
    """
    cost = checked("rho", rho, strict=False)
    rare = checked("delta", delta)
    if np.any(rare >= 1.0):
        raise ValueError("delta must lie strictly between 0 and 1.")
    with np.errstate(divide="ignore"):
        order = 1.0 + np.sqrt(-np.log(rare) / cost)
    return cost + 2.0 * np.sqrt(cost * -np.log(rare)), order


def chowdhury_gopalan_scale(
    norm: ArrayLike, noise: ArrayLike, information_gain: ArrayLike, confidence: ArrayLike
) -> Array:
    r"""Posterior scale of GP Thompson sampling with a regret guarantee.

    .. math:: \sigma_t = B + R\sqrt{2(\gamma_{t-1} + 1 + \log(2/\delta_{reg}))}

    Parameters
    ----------
    norm : array
        RKHS norm B of the objective.
    noise : array
        Sub-Gaussian constant R of the noise.
    information_gain : array
        A public upper bound of ``gamma_{t-1}``, the largest ``(1/2) log det(I + K/r^2)`` of t - 1 points; 0
        at t = 1.
    confidence : array in (0, 1)
        Failure probability of the regret bound; nothing to do with the delta of differential privacy.

    Notes
    -----
    Source: Chowdhury and Gopalan 2017, GP-TS, with ridge ``r^2 = 1 + 2/T``.
    """
    gain = checked("information_gain", information_gain, strict=False)
    chance = checked("confidence", confidence)
    if np.any(chance >= 1.0):
        raise ValueError("confidence must lie strictly between 0 and 1.")
    return checked("norm", norm, strict=False) + checked("noise", noise, strict=False) * np.sqrt(
        2.0 * (gain + 1.0 + np.log(2.0 / chance))
    )
