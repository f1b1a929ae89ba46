"""The figures as published, kept as data, and the accounts of the paper's tables.

Nothing is fitted to the figures; they are printed beside what is measured. The paper does not say how its tables were
accounted; the accounts here are those whose epsilon comes out at the published effective dimensions without privacy
(``python -m benchmarks.claims study_table_accounts``).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from discretion.posterior import sensitivity
from discretion.posterior.assumptions import Bounded, Exponential1D
from discretion.posterior.sensitivity import Array


@dataclass(frozen=True)
class TablesOnTheLine(Exponential1D):
    """Corollary 1 with the mean sensitivity of the author's code, 2 sqrt(2) M sqrt(Phi): printed is 4 M sqrt(Phi)."""

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        printed, spread = super().published(n, ridge, variance)
        return printed / math.sqrt(2.0), spread


@dataclass(frozen=True)
class TablesOnTheSquare(Bounded):
    """Theorem 3.1 with the coupled bound of the mean sensitivity, as in the author's code; printed is Lemma B.1."""

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        return sensitivity.mean_sensitivity_coupled(n, variance, ridge, self.response_bound), math.inf


@cache
def published() -> dict[str, Any]:
    """All of `published.json`: medians, then lower and upper quartile where they were given."""
    return json.loads(files("discretion.studies").joinpath("published.json").read_text(encoding="utf-8"))


def beside(study: str, row: str, column: str) -> tuple[float, ...] | None:
    """One published entry, (median,) or (median, lower quartile, upper quartile); None where there is none."""
    table = published()[study]
    if row not in table or column not in table["columns"]:
        return None
    found = table[row][table["columns"].index(column)]
    return None if found is None else tuple(map(float, found))
