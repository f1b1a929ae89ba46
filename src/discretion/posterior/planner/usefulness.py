"""When a release is worth publishing, and how that is said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from discretion.privacy import round_up_significant

__all__ = ["LEAST_CORRELATION", "LEAST_GAIN", "LEAST_OVERLAP", "SEARCHED", "trivial_cause", "useful_set", "verdict"]

LEAST_OVERLAP = 0.6
LEAST_GAIN = 0.1
"""A map is useful if its IoU is at least 0.6 and exceeds the best trivial one by 0.1 and by 2 standard errors."""
LEAST_CORRELATION = 0.6
"""A field without a threshold is useful from this correlation with the true one."""
SEARCHED = (1e-3, 1e3)
"""Epsilons between which the smallest useful one is looked for."""

RULE_OF_SETS = (
    f"useful: IoU >= {LEAST_OVERLAP:g} and better than the best trivial answer by {LEAST_GAIN:g} and by 2 standard "
    "errors"
)
RULE_OF_FIELDS = f"useful: correlation with the true field >= {LEAST_CORRELATION:g}"


def useful_set(overlap: float, gain: float, se: float) -> bool:
    """Whether a mean IoU is useful that exceeds the best trivial one by ``gain`` with this standard error."""
    return overlap >= LEAST_OVERLAP and gain >= max(LEAST_GAIN, 2.0 * se)


def verdict(epsilon: float, useful: bool, not_useful_below: float | None) -> str:
    """Whether anything useful can be published, in one sentence.

    ``not_useful_below`` is infinite if nothing is useful up to 1,000, None if something still is at 0.001.
    """
    if not_useful_below is None:
        limit = f" It still is at epsilon {SEARCHED[0]:g}."
    elif math.isinf(not_useful_below):
        limit = f" Nothing useful at any epsilon up to {SEARCHED[1]:g}."
    else:
        limit = f" Not useful below epsilon {round_up_significant(not_useful_below, 2)}."
    if useful:
        return f"Useful at epsilon {epsilon:g}.{limit}"
    return f"NOTHING USEFUL can be published at epsilon {epsilon:g}.{limit}"


def trivial_cause(trivial: Mapping[str, Any]) -> str:
    """Why no epsilon helps where an answer without data is nearly right; empty where none is.

    ``trivial``: scores with a ``mean``; of "all places" and "no places" it is the IoU.
    """
    sets = {name: float(trivial[name].mean) for name in ("all places", "no places") if name in trivial}
    answer, overlap = max(sets.items(), key=lambda each: each[1], default=("", 0.0))
    if overlap <= 1.0 - LEAST_GAIN:
        return ""
    return (
        f"That is the prior's doing, not the noise's: its mean is so far from the threshold that {answer!r} already "
        f"has IoU {overlap:.2f}, which nothing exceeds by {LEAST_GAIN:g}. Say what is known of the mean "
        "(--prior-mean, or --public-table), or ask about another threshold."
    )
