"""The public file of a study: what its lines say, and the steps that they tell of.

A step is a line before its noise is drawn, `charged`, and one before anybody sees its gradient, `released`. Nothing in
them depends on a record but through a released gradient, so that others may read the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.planning import Plan
from discretion.bayesopt.steps import Step, facts_of
from discretion.privacy.once import RunError

__all__ = ["SCHEMA", "StudyError", "charged", "released", "told"]

Floats = NDArray[np.float64]

SCHEMA = 2

StudyError = RunError
"""The study cannot go on like this; the message says why and holds nothing private."""

_ARRAYS = ("theta", "spread")


def charged(plan: Plan, number: int, noise: str) -> dict[str, Any]:
    """The line of a step that is spent; `noise` is the name of its noise."""
    facts = facts_of(plan, number)
    lists = {name: facts[name].tolist() for name in _ARRAYS}
    return {"event": "charged", "noise_id": noise, "locations": plan.new.tolist()} | facts | lists


def released(number: int, gradient: Floats, fraction: float | None) -> dict[str, Any]:
    """The line of a step that is done."""
    return {"event": "released", "step": number, "gradient": gradient.tolist(), "fraction": fraction}


def told(lines: list[dict[str, Any]]) -> Iterator[Step | Floats | None]:
    """What happened, in order: a finished or lost step; where a study was moved to; None where it was stopped."""
    for place, line in enumerate(lines):
        if line["event"] == "moved":
            yield np.array(line["theta"])
        elif line["event"] == "stopped":
            yield None
        elif line["event"] == "charged":
            facts = {name: value for name, value in line.items() if name not in ("event", "noise_id", "locations")}
            facts |= {name: np.array(facts[name]) for name in _ARRAYS}
            after = lines[place + 1] if place + 1 < len(lines) else {}
            done = after.get("event") == "released"
            gradient = np.array(after["gradient"]) if done else None
            yield Step(gradient=gradient, fraction=after.get("fraction") if done else None, **facts)
