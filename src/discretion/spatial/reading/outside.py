"""Records outside the domain, sorted by what most likely happened to them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp.domain import Box
from discretion.spatial.reading.problems import Problem
from discretion.spatial.reading.table import Table

__all__ = ["outside_problems"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def outside_problems(table: Table, X: Floats, out: Mask, domain: Box, names: tuple[str, ...]) -> list[Problem]:
    """Rows outside the domain, sorted by what most likely happened to them; each row is listed once."""
    rest = out.copy()
    problems: list[Problem] = []

    def report(mask: Any, why: str, mend: str, share: float = 0.0) -> None:
        mask = np.asarray(mask) & rest
        if mask.any() and np.count_nonzero(mask) >= share * np.count_nonzero(rest):
            rest[mask] = False
            problems.append(table.problem(f"outside the domain{why}", mend, names, mask))

    lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
    beyond = np.less(X, lower) | np.greater(X, upper)
    rule = 'or state a rule: outside="drop" or outside="clamp"'
    report(
        (beyond & (X == 0)).any(axis=1),
        ", at 0, which is often how 'unknown' is written",
        f"Find the right place, {rule}",
    )
    nines = np.isin(np.abs(X), 10.0 ** np.arange(2, 16) - 1)
    report(
        (beyond & nines).any(axis=1),
        ", at a number all of nines, often a filler",
        f"Find the right place, {rule}",
    )
    for i, j in combinations(range(X.shape[1]), 2):
        swapped = X.copy()
        swapped[:, [i, j]] = X[:, [j, i]]
        report(
            domain.contains(swapped),
            f", but inside with {names[i]!r} and {names[j]!r} swapped",
            "Name the columns in the other order, or swap them in these rows",
            share=0.5,
        )
    if X.shape[1] == 2:
        size = np.sort(np.abs(X), axis=1)
        degrees = (size[:, 0] <= 90) & (size[:, 1] <= 180)
        if max(np.abs(lower).max(), np.abs(upper).max()) > 1000:
            report(
                degrees,
                ", and like degrees where the domain is in metres: two coordinate systems",
                "Convert these rows to the coordinate system of the domain",
            )
        elif np.abs(lower).max() <= 360 and np.abs(upper).max() <= 360:
            report(
                size[:, 1] > 1000,
                ", and like metres where the domain is in degrees: two coordinate systems",
                "Convert these rows to the coordinate system of the domain",
            )
    with np.errstate(over="ignore"):
        thousandfold = domain.contains(X / 1000) | domain.contains(X * 1000)
    scaled = ", and inside when scaled by 1000: another unit of length, or too small a domain"
    report(thousandfold, scaled, f"Convert these rows, {rule}")
    report(rest, "", f"Correct these rows, {rule}")
    return problems
