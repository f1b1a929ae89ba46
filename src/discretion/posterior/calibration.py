"""The scale, ridge, prior noise or number of paths that just meets a target under a rule of `rules`.

Each value returned was itself priced; nothing is assumed of how a certified price depends on the parameter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from discretion.posterior.account import MOST_PATHS, calibrate_posterior
from discretion.posterior.assumptions import ResponseOnly
from discretion.posterior.rules import TIME_LIMIT, Price, posterior_price
from discretion.privacy.calibration import Unreachable, largest_integer

__all__ = ["calibrated", "least_on_grid"]

STEP = 1e-3
"""Of the logarithm of a calibrated parameter. Whole steps, so that the same question asks for the same prices again."""

_PARAMETERS: dict[str, Any] = {
    "scale": "scale",
    "ridge": "ridge",
    "eta": "prior_noise",
    "prior_noise": "prior_noise",
    "paths": "paths",
}
_FAR = 14_000  # steps above a start beyond which nothing is looked for: a factor of a million


def calibrated(
    solve: str,
    rule: str = "best",
    *,
    epsilon: float,
    delta: float,
    time_limit: float = TIME_LIMIT,
    **account: Any,
) -> tuple[float, Price]:
    """The parameter that just meets ``(epsilon, delta)`` under a rule, and its price.

    Parameters
    ----------
    solve : {"scale", "ridge", "prior_noise" (or "eta"), "paths"}
        ``scale`` and ``ridge``: the smallest, to a thousandth if the time suffices. ``prior_noise``: by the closed
        forms, or 0 where the rule needs none. ``paths``: the largest number.
    rule : {"published", "renyi", "profile", "best"}
    epsilon, delta : float
        The target.
    time_limit : float
        Seconds for all prices together. What was found when they are over was itself priced and meets the target.
    **account
        The other parameters of :func:`~discretion.posterior.rules.posterior_price`.

    Raises
    ------
    ValueError
        If a parameter is missing or out of range, or nothing meets the target (`Unreachable`).
    """
    name = _PARAMETERS.get(solve)
    if name is None:
        raise ValueError(f"solve must be {', '.join(_PARAMETERS)}; got {solve!r}.")
    end = time.perf_counter() + time_limit
    prices: dict[tuple[str, float], Price] = {}

    def price(value: float, under: str) -> Price:
        if (under, value) not in prices:
            left = max(0.4 * (end - time.perf_counter()), 0.0)
            parameters = {**account, name: value}
            prices[under, value] = posterior_price(under, delta=delta, time_limit=left, **parameters)
        return prices[under, value]

    others = {key: value for key, value in account.items() if key != name}

    def meets(value: float) -> bool:
        return price(value, rule).epsilon <= epsilon

    if name == "paths":
        start = int(_closed("paths", epsilon, delta, others))
        most = largest_integer(meets, start if meets(start) else 1, MOST_PATHS)
        return most, price(most, rule)
    if name == "prior_noise" and meets(0.0):
        return 0.0, price(0.0, rule)
    if name == "prior_noise" or isinstance(account.get("assumption"), ResponseOnly):
        value = calibrate_posterior(name, epsilon=epsilon, delta=delta, **others)
        return value, price(value, rule)
    start = _closed(name, epsilon, delta, others)
    if rule in ("profile", "best"):
        # The certified Renyi bound takes a tenth of a second, the profile seconds: it tells where to look.
        with suppress(Unreachable):
            start = least_on_grid(lambda value: price(value, "renyi").epsilon, epsilon, start, end)
    value = least_on_grid(lambda value: price(value, rule).epsilon, epsilon, start, end)
    return value, price(value, rule)


def least_on_grid(price: Callable[[float], float], target: float, start: float, end: float = math.inf) -> float:
    """The smallest ``exp(STEP * k)``, k whole, whose price is at most ``target``, looked for by secants from ``start``.

    The price is taken to fall as the parameter grows: where it does not, the value returned still meets the target.
    After the time ``end`` (of ``time.perf_counter``) the best so far is returned.

    Raises
    ------
    Unreachable
        If nothing above ``start`` meets the target.
    """

    def excess(k: int) -> float:
        found = price(math.exp(STEP * k))
        return math.log(found / target) if found > 0.0 else -math.inf

    first = k = math.ceil(math.log(start) / STEP - 1e-9)
    good: tuple[int, float] | None = None
    bad: tuple[int, float] | None = None
    for tries in range(60):
        value = excess(k)
        if value <= 0.0:
            good = (k, value)
        else:
            bad = (k, value)
        found = good is not None and (time.perf_counter() >= end or (bad is not None and good[0] - bad[0] <= 1))
        if found or (good is None and k - first > _FAR):
            break
        k = _next(good, bad, tries)
    if good is None:
        raise Unreachable(
            f"No value above {start:g} meets epsilon {target:g}. Raise the ridge, or release fewer paths."
        )
    return math.exp(STEP * good[0])


def _next(good: tuple[int, float] | None, bad: tuple[int, float] | None, tries: int) -> int:
    """Where to look next: on the chord of the bracket, or as if the price were inverse to the parameter."""
    if good and bad:
        low, high = bad[0] + 1, good[0] - 1
        if not (math.isfinite(good[1]) and math.isfinite(bad[1])) or tries > 12:
            return (low + high) // 2
        root = bad[0] + bad[1] / (bad[1] - good[1]) * (good[0] - bad[0])
        return min(max(math.ceil(root), low), high)
    k, value = good or bad or (0, 0.0)
    step = math.ceil(1.1 * max(abs(value) / STEP if math.isfinite(value) else 1.0, 2.0 ** min(tries, 12)))
    return k - step if good else k + step


def _closed(name: Any, epsilon: float, delta: float, others: dict[str, Any]) -> float:
    """Where the closed forms meet the target: a start. Where they can't, 1, as the rule may still."""
    try:
        return float(calibrate_posterior(name, epsilon=epsilon, delta=delta, **others))
    except Unreachable:
        return 1.0
