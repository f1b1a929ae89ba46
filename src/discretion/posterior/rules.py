"""Which rule prices a release of posterior paths.

==============  ======================================================================================================
``published``   Maciazek 2026 as printed: Theorem 3.1 at his own bounds of the mean sensitivity. For comparison.
``renyi``       The smaller of the closed forms of :mod:`~discretion.posterior.account` and the certified Renyi bound
                of :mod:`~discretion.posterior.certified`.
``profile``     The certified privacy profile of :mod:`~discretion.posterior.covering`.
``best``        The smallest of all that are proved: of several paths the profile is numerical, and left out.
==============  ======================================================================================================

Each is an upper bound for every pair of neighbours, so the smallest at one delta is one too. What takes long is kept
on disk (:mod:`~discretion.posterior.cache`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discretion.posterior.account import posterior_loss
from discretion.posterior.assumptions import RKHS, Assumption, RecordAssumption
from discretion.posterior.cache import kept
from discretion.posterior.certified import certified_guarantee, certified_loss
from discretion.posterior.covering import LEAST_DELTA, certified_profile_epsilon
from discretion.posterior.divergence import two_norm_route
from discretion.posterior.sensitivity import Array, checked_count
from discretion.privacy.conversion import renyi_to_epsilon
from discretion.privacy.loss import Guarantee, Neighbours, PrivacyLoss
from discretion.privacy.profiles import BestOf, PrivacyProfile

__all__ = [
    "PROFILE_DELTAS",
    "RELEASE_RULES",
    "RULES",
    "TIME_LIMIT",
    "Price",
    "path_loss",
    "posterior_price",
    "profile_loss",
    "published_epsilon",
]

RULES = ("published", "renyi", "profile", "best")
RELEASE_RULES = ("closed-form", "renyi", "best")
"""What may price a release: proved, and without a time limit, so that it is the same on every machine."""
TIME_LIMIT = 20.0
"""Seconds that a price may take unless stated otherwise."""

PROFILE_DELTAS = (0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
"""Where the profile of a path is certified unless stated otherwise."""

_PUBLISHED = "Maciazek 2026 as published, Renyi to DP (Balle et al. 2020)"
_PROFILE = "certified privacy profile (covering)"
_NUMERICAL = "privacy profile of several paths (covering, by numerical integration)"
_SPARED = 1e-3  # part of delta left to what a release adds to its paths


@dataclass(frozen=True)
class Price:
    """Epsilon of a release at a delta, the rule that gave it, and what the others gave.

    Attributes
    ----------
    guarantee : Guarantee
        The smallest of the rules asked; its ``rule`` says which.
    compared : dict
        Epsilon by rule: "published", "closed form", "renyi", "profile", as far as asked.
    complete : bool
        Whether no time limit cut a search short. The guarantee holds either way.
    seconds : float
    """

    guarantee: Guarantee
    compared: dict[str, float]
    complete: bool
    seconds: float

    @property
    def epsilon(self) -> float:
        """Of the guarantee."""
        return self.guarantee.epsilon


def published_epsilon(
    *,
    n: ArrayLike,
    ridge: ArrayLike,
    scale: ArrayLike,
    delta: ArrayLike,
    assumption: RecordAssumption,
    least_kernel: ArrayLike = 0.0,
    paths: ArrayLike = 1,
) -> tuple[Array, Array]:
    """Epsilon as Maciazek 2026 prints it, and the Renyi order that gave it; arrays broadcast.

    Theorem 3.1 at ``assumption.published``, converted by Balle et al. 2020. Parameters as in
    :func:`~discretion.posterior.account.posterior_epsilon`.
    """
    count, r, sigma, rare, kappa, L = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (n, ridge, scale, delta, least_kernel, paths))
    )
    variance = assumption.variance_bound(count, r, kappa)
    sensitivity, spread = assumption.published(count, r, variance)
    route = two_norm_route(variance, r, sensitivity, sigma, spread)
    epsilon, excess = renyi_to_epsilon(lambda x: L * route.renyi(x), route.supremum, rare)
    return np.asarray(epsilon), 1.0 + np.asarray(excess)


def posterior_price(
    rule: str = "best",
    *,
    n: int,
    ridge: float,
    scale: float,
    delta: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    prior_noise: float = 0.0,
    time_limit: float = TIME_LIMIT,
) -> Price:
    """What ``paths`` posterior sample paths cost at ``delta`` under a rule.

    Parameters
    ----------
    rule : {"published", "renyi", "profile", "best"}
    n, ridge, scale, delta, assumption, least_kernel, paths, prior_noise
        As in :func:`~discretion.posterior.account.posterior_epsilon`, scalars. Prior noise lowers the closed
        forms only; under the other rules it is post-processing.
    time_limit : float
        Seconds after which searches stop with the bounds they have.

    Raises
    ------
    ValueError
        If a parameter is out of range, or for ``profile`` under an assumption without one (RKHS).
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
    start = time.perf_counter()
    delta, account = float(delta), _account(n, ridge, scale, assumption, least_kernel, paths)
    closed = posterior_loss(prior_noise=prior_noise, **account).guarantee(delta)
    if not isinstance(assumption, RecordAssumption):
        # Response-only: exact Gaussian DP, which every rule is.
        return Price(closed, {"closed form": closed.epsilon}, True, time.perf_counter() - start)
    found: dict[str, tuple[Guarantee, bool]] = {}
    if rule in ("published", "best"):
        epsilon, order = published_epsilon(**account, delta=delta)
        found["published"] = Guarantee(float(epsilon), delta, float(order), _PUBLISHED, closed.neighbours), True
    if rule in ("renyi", "best"):
        found["closed form"] = closed, True
        found["renyi"] = _kept("certified-renyi", _renyi, account, delta, time_limit)
    if rule == "profile" or (rule == "best" and paths == 1 and _has_profile(assumption, delta)):
        left = max(time_limit - (time.perf_counter() - start), 0.0)
        found["profile"] = _kept("certified-profile", _profile, account, delta, left)
    return Price(
        min((guarantee for guarantee, _ in found.values()), key=lambda each: each.epsilon),
        {name: guarantee.epsilon for name, (guarantee, _) in found.items()},
        all(complete for _, complete in found.values()),
        time.perf_counter() - start,
    )


@lru_cache(maxsize=64)
def path_loss(
    rule: str = "closed-form",
    *,
    n: int,
    ridge: float,
    scale: float,
    delta: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    paths: int = 1,
    prior_noise: float = 0.0,
) -> PrivacyLoss:
    """The loss of ``paths`` posterior sample paths under a rule of `RELEASE_RULES`, to be reserved and composed.

    ``closed-form`` is :func:`~discretion.posterior.account.posterior_loss`. ``renyi`` is the smaller of it and of the
    certified Renyi bounds. ``best`` also knows, of one path, the certified profile just below ``delta``: the difference
    pays for what a release adds, and further away from ``delta`` the Renyi bounds take over. Searches run to their end
    and are kept on disk. Under ``ResponseOnly`` all three are the same. Other parameters as in :func:`posterior_price`.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """
    if rule not in RELEASE_RULES:
        raise ValueError(f"rule must be one of {', '.join(RELEASE_RULES)}; got {rule!r}.")
    account = _account(n, ridge, scale, assumption, least_kernel, paths)
    bounds = [posterior_loss(prior_noise=prior_noise, **account)]
    if rule == "closed-form" or not isinstance(assumption, RecordAssumption):
        return bounds[0]

    def table() -> dict[str, Any]:
        return certified_loss(**account, delta=delta).to_dict()

    described = kept("certified-loss", _named(account) | {"delta": float(delta)}, table)
    bounds.append(PrivacyLoss.from_dict(described))
    if rule == "best" and paths == 1 and _has_profile(assumption, delta):
        found = _kept("certified-profile", _profile, account, (1.0 - _SPARED) * delta, None)[0]
        bounds.append(PrivacyProfile((found.epsilon,), (found.delta,), neighbours=found.neighbours, rule=found.rule))
    return BestOf(tuple(bounds))


def _has_profile(assumption: Assumption, delta: float) -> bool:
    return not isinstance(assumption, RKHS) and delta >= 2.0 * LEAST_DELTA


def profile_loss(
    *,
    n: int,
    ridge: float,
    scale: float,
    assumption: Assumption,
    least_kernel: float = 0.0,
    deltas: ArrayLike = PROFILE_DELTAS,
    time_limit: float = TIME_LIMIT,
) -> PrivacyProfile:
    """The certified privacy profile of one path as a loss, which composes with every other loss of the relation.

    The certified epsilon at each of ``deltas``; the hull between them is the profile of one dominating pair
    (``docs/proofs/dominating-pair.md``), so several paths are a multiple of it and different releases a sum. More
    deltas make it tighter; each takes seconds, the smallest longest, and is kept on disk. ``time_limit`` is for each.
    Other parameters as in :func:`posterior_price`.

    Raises
    ------
    ValueError
        If a parameter is out of range, or under an assumption without a certified profile.
    """
    account = _account(n, ridge, scale, assumption, least_kernel, 1)
    certified: dict[float, float] = {}
    for delta in sorted(np.ravel(np.asarray(deltas, dtype=np.float64)).tolist(), reverse=True):
        epsilon = _kept("certified-profile", _profile, account, delta, time_limit)[0].epsilon
        certified[epsilon] = delta  # of two deltas at one epsilon the smaller
    epsilons = sorted(certified)
    least = np.minimum.accumulate([certified[epsilon] for epsilon in epsilons])
    return PrivacyProfile(tuple(epsilons), tuple(least.tolist()), neighbours=assumption.neighbours, rule=_PROFILE)


def _account(
    n: int, ridge: float, scale: float, assumption: Assumption, least_kernel: float, paths: int
) -> dict[str, Any]:
    """The parameters of one release as plain numbers, which JSON can write."""
    numbers = {"ridge": float(ridge), "scale": float(scale), "least_kernel": float(least_kernel)}
    return {
        "n": int(checked_count("n", n)),
        "paths": int(checked_count("paths", paths)),
        "assumption": assumption,
        **numbers,
    }


def _renyi(account: dict[str, Any], delta: float, time_limit: float | None) -> tuple[Guarantee, bool]:
    return certified_guarantee(**account, delta=delta, time_limit=time_limit)


def _profile(account: dict[str, Any], delta: float, time_limit: float | None) -> tuple[Guarantee, bool]:
    found = certified_profile_epsilon(**account, delta=delta, time_limit=time_limit)
    rule = _PROFILE if found.route == "quadrature" else _NUMERICAL
    return Guarantee(found.epsilon, delta, None, rule, account["assumption"].neighbours), found.complete


def _kept(
    name: str,
    search: Callable[[dict[str, Any], float, float | None], tuple[Guarantee, bool]],
    account: dict[str, Any],
    delta: float,
    time_limit: float | None,
) -> tuple[Guarantee, bool]:
    """The guarantee of a search, from disk if it was completed before."""

    def compute() -> dict[str, Any]:
        guarantee, complete = search(account, delta, time_limit)
        return asdict(guarantee) | {"complete": complete}

    result = dict(kept(name, _named(account) | {"delta": delta}, compute))
    complete = bool(result.pop("complete"))
    result["neighbours"] = Neighbours(result["neighbours"])
    return Guarantee(**result), complete


def _named(account: dict[str, Any]) -> dict[str, Any]:
    """The parameters with the assumption as JSON can write it."""
    assumption = account["assumption"]
    return account | {"assumption": {"name": assumption.name, **asdict(assumption)}}
