"""Which account the published Tables 1 and 4 agree with, told by their effective dimensions.

The hyperparameters behind the tables are not published, their effective dimensions are. Along the curve of settings
with that dimension the BCE of the non-private set is flat, and epsilon of the settings on it tells the accounts apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from threadpoolctl import threadpool_limits

from benchmarks.harness import Measured, claim
from discretion.gp import Exponential
from discretion.posterior import Bounded, posterior_epsilon
from discretion.posterior.rules import published_epsilon
from discretion.posterior.sensitivity import Array, mean_sensitivity_simple
from discretion.posterior.worlds import OUExcursionWorlds, Worlds
from discretion.studies.excursions_1d import (
    BUDGET,
    NODES,
    PRINTED,
    TABLES,
    Choice,
    Search,
    compared,
    epsilons,
)
from discretion.studies.published import TablesOnTheSquare as Coupled
from discretion.studies.published import beside

ROWS = {"noise 0.1": (100, 0.1), "noise 0.3": (100, 0.3), "noise 0.5": (100, 0.5), "noise 0.6": (100, 0.6)}
ROWS |= {f"n {n}": (n, 0.5) for n in (50, 200, 400)}
"""n and M_xi; n = 100 of Table 4 is noise 0.5 of Table 1."""
LENGTHS = (0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 0.75, 1.0)
SCALES = np.geomspace(0.003, 1.2, 100).round(9)
FLAT = 0.01
"""Settings whose BCE is within this part of the least are as good as the best: the search cannot tell them apart."""
WORLDS = 200


def told(key: str, column: str) -> float:
    """The published median."""
    found = beside("excursions-1d", key, column)
    assert found is not None
    return found[0]


def ridge_at(worlds: Worlds, length_scale: float, dimension: float) -> float | None:
    """The ridge at which the mean of tr K (K + r^2)^-1 over 20 data sets is `dimension`; None where none is."""
    spectra = np.stack([np.linalg.eigvalsh(Exponential(length_scale)(X)) for X in worlds.covariates[:20]])

    def excess(log_ridge: float) -> float:
        return float((spectra / (spectra + exp(2.0 * log_ridge))).sum(axis=1).mean()) - dimension

    root: Any = brentq(excess, -4.0, 4.0) if excess(-4.0) > 0.0 else None
    return None if root is None else exp(root)


def along(search: Search, worlds: Worlds, dimension: float, budget: float = np.inf) -> Iterator[Choice]:
    """For each length scale the scale of least BCE at the ridge of the dimension, epsilon at most the budget."""
    for length_scale in LENGTHS:
        ridge = ridge_at(worlds, length_scale, dimension)
        if ridge is None:
            continue
        tried = {(length_scale, ridge, float(scale)) for scale in SCALES}
        search.evaluate(tried)
        met = [search.rows[key] for key in tried if search.rows[key].epsilon < budget]
        if met:
            yield min(met, key=lambda row: row.bce)


@cache
def public(key: str) -> tuple[Search, Worlds]:
    """Worlds of a row, and the search on them."""
    n, noise = ROWS[key]
    worlds = OUExcursionWorlds(n, noise, nodes=NODES).simulate(WORLDS, np.random.default_rng([0, n, 0]))
    return Search(worlds, n, TABLES), worlds


@cache
def without(key: str) -> list[Choice]:
    """Non-private settings of the published dimension that the BCE does not tell apart, the best first."""
    found = sorted(along(*public(key), told(key, "d_eff unconstrained")), key=lambda row: row.bce)
    return [row for row in found if row.bce <= (1.0 + FLAT) * found[0].bce]


def beyond(value: float, low: float, high: float) -> float:
    """By what part the value lies outside the range."""
    return max(low / value, value / high, 1.0) - 1.0


@claim(
    "map",
    "Tables 1 and 4: epsilon without privacy of settings that have the published effective dimension and a BCE within "
    "1 percent of the least such; how far the published epsilon lies outside their range, by row: Corollary 1 with "
    "2 sqrt(2) M sqrt(Phi), the account of the author's code; with 4 M sqrt(Phi), as printed",
    "the first by at most 5 percent in all 7 rows, the second by 30 percent or more in at least 5",
    slow=True,
)
def study_table_accounts() -> Measured:
    off: dict[str, dict[str, float]] = {TABLES: {}, PRINTED: {}}
    texts = []
    with threadpool_limits(1):
        for key, (n, _) in ROWS.items():
            settings = np.array([(row.length_scale, row.ridge, row.scale) for row in without(key)]).T
            published = told(key, "epsilon unconstrained")
            words = []
            for account, found in off.items():
                range_ = epsilons(account, n, *settings)
                found[key] = beyond(published, float(range_.min()), float(range_.max()))
                words.append(f"{range_.min():.3g} to {range_.max():.3g}")
            texts.append(f"{key}: {published:g} in {words[0]}; printed {words[1]}")
    ours, printed = (np.array(list(found.values())) for found in off.values())
    text = f"; off by at most {ours.max():.0%}, printed " + ", ".join(f"{value:.0%}" for value in printed)
    return Measured(". ".join(texts) + text, bool((ours <= 0.05).all() and (printed >= 0.3).sum() >= 5))


@claim(
    "map",
    "Tables 1 and 4: settings of the published effective dimensions, with and without privacy, of least BCE; median "
    "gap of one path at epsilon < 9 less the published one in points, and median IoU less the published one, 500 pairs",
    "within 3 points and .03 in all 7 rows",
    slow=True,
)
def study_table_dimensions() -> Measured:
    texts, gaps, ious = [], [], []
    with threadpool_limits(1):
        for key, (n, noise) in ROWS.items():
            row = at_published_dimensions(key, n, noise)
            gaps.append(row["IoU gap %"][0] - told(key, "IoU gap %"))
            ious.append(row["IoU of one path"][0] - told(key, "IoU of one path"))
            increase = row["BCE increase %"][0], told(key, "BCE increase %")
            texts.append(
                f"{key}: gap {gaps[-1]:+.1f}, IoU {ious[-1]:+.3f}, BCE {increase[0]:+.0f} % ({increase[1]:+.0f})"
            )
    return Measured("; ".join(texts), max(map(abs, gaps)) <= 3.0 and max(map(abs, ious)) <= 0.03)


def at_published_dimensions(key: str, n: int, noise: float) -> dict[str, Any]:
    """The row of the table at the best settings of its published dimensions."""
    private = min(along(*public(key), told(key, "d_eff private"), BUDGET), key=lambda row: row.bce)
    simulator = OUExcursionWorlds(n, noise, nodes=NODES)
    held, test = (simulator.simulate(count, np.random.default_rng([0, n, k])) for k, count in ((1, 200), (2, 500)))
    return compared(without(key)[0], private, held, test, 25, np.random.default_rng(9))


@claim(
    "tight",
    "Epsilon of one path, bounded responses, delta n^-1.1, least kernel 0: Lemma B.1 as printed / its step before, "
    "with Phi / the coupled bound of the author's code / closed forms here; the table in docs/published-formulas.md",
    "as in the table, to three digits",
)
def published_by_form() -> Measured:
    lines = (Path(__file__).parents[1] / "docs/published-formulas.md").read_text(encoding="utf-8").splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("| n, ridge, scale |"))
    texts, holds = [], True
    for line in lines[head + 2 : head + 5]:
        setting, *told = (cell.strip() for cell in line.split("|")[1:-1])
        n, ridge, scale = (float(each) for each in setting.split(","))
        account: dict[str, Any] = {"n": n, "ridge": ridge, "scale": scale, "delta": n**-1.1}
        found = [float(published_epsilon(assumption=kind(1.0), **account)[0]) for kind in (Bounded, WithPhi, Coupled)]
        found.append(float(posterior_epsilon(assumption=Bounded(1.0), **account).epsilon))
        texts.append(f"{setting}: " + " / ".join(f"{value:.4g}" for value in found))
        holds &= all(f"{value:.3g}" == f"{float(word):.3g}" for value, word in zip(found, told, strict=True))
    return Measured("; ".join(texts), bool(holds))


class WithPhi(Bounded):
    """Lemma B.1 before it replaces Phi by its largest value over all variances."""

    def published(self, n: Array, ridge: Array, variance: Array) -> tuple[Array, float]:
        return mean_sensitivity_simple(n, variance, ridge, self.response_bound), inf
