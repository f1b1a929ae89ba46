"""Figures stated about excursion sets of kernel sums, decoders and posterior paths on simulated worlds."""

from __future__ import annotations

from functools import cache

from threadpoolctl import threadpool_limits

from benchmarks.harness import Measured, claim
from studies.excursions import LADDER, SETTINGS, WORLDS, ExcursionRow, excursion_rows

LEAST = {9.0: 0.87, 3.0: 0.84, 1.0: 0.76}
_PLANE, _PLANE_N, (_EQUAL, *_) = SETTINGS[1]


@cache
def rows() -> list[ExcursionRow]:
    """The whole table of the study, minutes."""
    with threadpool_limits(1):
        return excursion_rows()


@claim(
    "map",
    f"IoU of the decoded excursion set, median of {WORLDS[_PLANE]} simulated worlds of 2-D, n = {_PLANE_N}, "
    "noise-to-signal 1; epsilon 9, 3, 1",
    ">= .87, .84, .76",
    slow=True,
)
def excursion_decoder() -> Measured:
    found = {row.epsilon: row.summary() for row in rows() if (row.dimension, row.noise) == (_PLANE, _EQUAL)}
    text = ", ".join(f"{found[epsilon]['decoder']:.3f}" for epsilon in LEAST)
    plain = ", ".join(f"{found[epsilon]['kernel_sum']:.3f}" for epsilon in LEAST)
    return Measured(
        f"{text} (kernel sum without decoder {plain}; all places {found[1.0]['trivial']:.3f})",
        all(found[epsilon]["decoder"] >= least for epsilon, least in LEAST.items()),
    )


@claim(
    "map",
    "Excursion sets at equal epsilon, IoU on the same simulated worlds: posterior path (as published) < posterior path "
    "(certified) < kernel sum < decoder in 9 settings (1-D; 2-D at noise-to-signal 1 and .43; epsilon 9, 3, 1)",
    "27 paired differences > 2 standard errors",
    slow=True,
)
def excursion_order() -> Measured:
    steps = {"/".join(row.setting): row.steps() for row in rows()}
    clear = sum(step.clear for found in steps.values() for step in found)
    count = sum(map(len, steps.values()))
    least = ", ".join(
        f"{better.replace('_', ' ')} {min((found[i] for found in steps.values()), key=lambda g: g.mean / g.error)}"
        for i, better in enumerate(LADDER[1:])
    )
    return Measured(f"{clear} of {count}; least clear gain (standard error): {least}", clear == count == 27)
