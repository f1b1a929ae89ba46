"""The parameter that just meets a target.

Both solvers bisect over the floating-point numbers themselves (the ordinals of the doubles), so a bracket
such as `[0, 1e12]` costs about fifty evaluations whatever its scale, and neither needs a starting guess. They
never extrapolate: the parameter they return is one for which `meets` was called and said yes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

__all__ = ["Unreachable", "largest", "largest_integer", "smallest"]


class Unreachable(ValueError):
    """No parameter of the bracket meets the target."""


def smallest(meets: Callable[[float], bool], lower: float, upper: float, *, relative_tolerance: float = 1e-12) -> float:
    """Smallest parameter in `[lower, upper]` that meets a target which, once met, stays met further up.

    Returns a parameter `x` for which `meets(x)` was true, at most `relative_tolerance * abs(x)` above one for
    which it was false (or `lower`). If `meets` is not monotone the answer still meets the target but need not
    be the smallest.

    Raises:
        Unreachable: `meets(upper)` is false.
        ValueError: the bracket is empty or not finite.
    """
    _check_bracket(lower, upper)
    if meets(lower):
        return lower
    return _bisect(meets, good=upper, bad=lower, tolerance=relative_tolerance)


def largest(meets: Callable[[float], bool], lower: float, upper: float, *, relative_tolerance: float = 1e-12) -> float:
    """Largest parameter in `[lower, upper]` that meets a target which, once met, stays met further down.

    The mirror image of `smallest`, with the same promise: the returned parameter was itself checked.
    `relative_tolerance` bounds the gap to the true end of the interval.

    Raises:
        Unreachable: `meets(lower)` is false.
        ValueError: the bracket is empty or not finite.
    """
    _check_bracket(lower, upper)
    if meets(upper):
        return upper
    return _bisect(meets, good=lower, bad=upper, tolerance=relative_tolerance)


def largest_integer(meets: Callable[[int], bool], lower: int, upper: int) -> int:
    """Largest integer in `[lower, upper]` that meets a target which, once met, stays met further down.

    For counts, such as the number of releases a budget pays for. The returned integer was itself checked.

    Raises:
        Unreachable: `meets(lower)` is false.
        ValueError: the bracket is empty.
    """
    if lower > upper:
        raise ValueError(f"The bracket [{lower}, {upper}] is empty: give lower <= upper.")
    if not meets(lower):
        raise Unreachable(f"Even {lower}, the least integer of [{lower}, {upper}], misses the target.")
    good, step = lower, 1
    while good < upper and meets(candidate := min(good + step, upper)):
        good, step = candidate, 2 * step
    bad = min(good + step, upper + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return good


def _bisect(meets: Callable[[float], bool], good: float, bad: float, tolerance: float) -> float:
    if not meets(good):
        raise Unreachable(
            f"No parameter between {min(good, bad)!r} and {max(good, bad)!r} meets the target: even {good!r} "
            "misses it. Widen the bracket or relax the target."
        )
    while abs(good - bad) > tolerance * abs(good):
        middle = _from_ordinal((_ordinal(good) + _ordinal(bad)) // 2)
        if middle in (good, bad):
            break
        if meets(middle):
            good = middle
        else:
            bad = middle
    return good


def _check_bracket(lower: float, upper: float) -> None:
    if not (math.isfinite(lower) and math.isfinite(upper) and lower <= upper):
        raise ValueError(f"The bracket [{lower!r}, {upper!r}] must be finite with lower <= upper.")


def _ordinal(x: float) -> int:
    """Rank of a double among the doubles: 0 for 0.0, 1 for the least positive, odd in its argument."""
    bits = struct.unpack("<q", struct.pack("<d", abs(x)))[0]
    return bits if x >= 0 else -bits


def _from_ordinal(rank: int) -> float:
    value = struct.unpack("<d", struct.pack("<q", abs(rank)))[0]
    return value if rank >= 0 else -value
