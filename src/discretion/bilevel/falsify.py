"""A search for records that break declared constants: on synthetic records only. A pass is not a proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.problem import BilevelProblem, Grid, SplitRecords
from discretion.bilevel.sensitivity import hypergradient_sensitivity, inner_shift, range_bound, value_change
from discretion.gp import Box
from discretion.privacy import Neighbours

__all__ = ["Falsification", "falsify"]

Floats = NDArray[np.float64]

_ACCURACY = 1e-9
_SLACK = 1e-6


@dataclass(frozen=True)
class Falsification:
    """What the search found.

    Attributes:
        ratios: for each constant or bound that could be tried, the largest value found over what is declared.
        trials: pairs of neighbouring data sets.
        untried: constants that are declared, or needed, and were not tried.
    """

    ratios: dict[str, float]
    trials: int
    untried: tuple[str, ...]

    @property
    def violated(self) -> tuple[str, ...]:
        """Names of those exceeded."""
        return tuple(name for name, ratio in self.ratios.items() if not ratio <= 1.0 + _SLACK)

    def text(self) -> str:
        """For a person."""
        worst = sorted(self.ratios.items(), key=lambda item: -item[1])
        lines = [f"{name:24s} {ratio:8.4f} of what is declared" for name, ratio in worst]
        if self.violated:
            lines += [f"FALSE: {', '.join(self.violated)}. Nothing that rests on these constants is private."]
        else:
            lines += [
                f"No violation in {self.trials:,} pairs of synthetic data sets. That is not a proof: the constants "
                "must hold for every record that could be held."
            ]
        return "\n".join(lines + ([f"Not tried: {', '.join(self.untried)}."] if self.untried else []))

    __str__ = text


def falsify(
    problem: BilevelProblem,
    synthetic: Callable[[np.random.Generator], Any],
    *,
    constants: Constants | None = None,
    trials: int = 1000,
    seed: int = 0,
) -> Falsification:
    """Search for a violation of the constants of a problem. Never give it held records: its verdict would be a release.

    Every trial draws a data set, puts another record in the place of one (add/remove: takes one out), and compares what
    is found at random outer points, at inner solutions and between them, with what is declared. A third of the data
    sets repeat one record, where averages are as large as records.

    Args:
        problem: with its public counts.
        synthetic: makes a data set, as the problem takes it, out of a generator: arrays, or tuples, dictionaries or
            dataclasses of arrays, one row for each record. Make extreme ones too.
        constants: suprema over the domain, to be tried everywhere; by default the problem's own, at each point.
        trials: pairs of neighbours.
        seed: of the search.
    """
    c = problem.constants() if constants is None else constants
    search = _Search(problem, c, np.random.default_rng(seed), everywhere=constants is not None)
    for trial in range(trials):
        data = synthetic(search.rng)
        other = synthetic(search.rng)
        if trial % 3 == 0:
            data = _rows(data, lambda each, _: np.repeat(each[:1], len(each), axis=0), other)
        part = ("training", "validation")[trial % 2] if isinstance(data, SplitRecords) else None
        change = _without_first if problem.neighbours is Neighbours.ADD_REMOVE else _with_first_of
        search.compare(problem.ingest(data), problem.ingest(_changed(data, other, part, change)))
    tried = set(search.found)
    return Falsification(dict(search.found), trials, tuple(name for name in c.known() if name not in tried))


class _Search:
    """Largest ratios found so far."""

    def __init__(self, problem: BilevelProblem, c: Constants, rng: np.random.Generator, *, everywhere: bool) -> None:
        self.problem, self.c, self.rng, self.everywhere = problem, c, rng, everywhere
        self.found: dict[str, float] = {}
        self.bounds = {
            "inner shift": self._known(lambda: inner_shift(c, problem.counts)),
            "change of the value": self._known(lambda: value_change(c, problem.counts).value),
            "hypergradient": self._known(lambda: hypergradient_sensitivity(c, problem.counts).value),
            "range": self._known(lambda: range_bound(c, problem.counts, problem.x_domain.diameter()).value),
        }

    @staticmethod
    def _known(bound: Callable[[], float]) -> float | None:
        try:
            return bound()
        except (MissingConstant, Refused):
            return None

    def _note(self, name: str, found: float, declared: float | None) -> None:
        if declared is None or math.isnan(found):
            return
        ratio = 0.0 if found <= 1e-8 * max(declared, 1e-4) else (math.inf if declared == 0 else found / declared)
        self.found[name] = max(self.found.get(name, 0.0), ratio)

    def compare(self, one: Any, other: Any) -> None:
        """Two neighbouring data sets."""
        problem, differences, last = self.problem, [], None
        for x in _points(problem, self.rng, 3):
            tolerance = max(_ACCURACY, problem.least_tolerance(x))
            y, z = (problem.certified(x, each, tolerance) for each in (one, other))
            self._note("inner shift", float(np.linalg.norm(y - z)), self.bounds["inner shift"])
            change = problem.outer_value(x, y, one) - problem.outer_value(x, z, other)
            self._note("change of the value", abs(change), self.bounds["change of the value"])
            differences.append(change)
            if self.bounds["hypergradient"] is not None:
                moved = problem.hypergradient(x, y, one)[0] - problem.hypergradient(x, z, other)[0]
                self._note("hypergradient", float(np.linalg.norm(moved)), self.bounds["hypergradient"])
            self._derivatives(x, y, z + self.rng.uniform() * (y - z), one)
            if last is not None:
                self._derivatives(x, y, last, one)
            last = y
        self._note("range", float(np.ptp(differences)), self.bounds["range"])

    def _derivatives(self, x: Floats, y: Floats, z: Floats, records: Any) -> None:
        """Constants of averages, at inner solutions y and z: they lie in Y."""
        problem, norm = self.problem, np.linalg.norm
        c = self.c if self.everywhere else problem.constants(x)

        def declared(name: str) -> float | None:
            return self._known(lambda: c.get(name))

        fx, fy = problem.outer_gradients(x, y, records)
        self._note("L_fx", float(norm(fx)), declared("L_fx"))
        self._note("L_fy", float(norm(fy)), declared("L_fy"))
        v = self.rng.normal(size=len(y))
        v /= norm(v)
        Hv, Mv = problem.inner_hvp(x, y, v, records), problem.inner_cross(x, y, v, records)
        self._note("b_gyy", float(norm(Hv)), declared("b_gyy"))
        self._note("b_gxy", float(norm(Mv)), declared("b_gxy"))
        curvature = float(v @ Hv)
        self._note("mu_g", c.get("mu_g") / curvature if curvature > 0 else math.inf, 1.0)
        apart = float(norm(y - z))
        if apart > 1e-5:
            gx, gy = problem.outer_gradients(x, z, records)
            self._note("b_fxy", float(norm(fx - gx)) / apart, declared("b_fxy"))
            self._note("b_fyy", float(norm(fy - gy)) / apart, declared("b_fyy"))
            turned = problem.inner_hvp(x, z, v, records) - Hv
            self._note("r_yy", float(norm(turned)) / apart, declared("r_yy"))
            turned = problem.inner_cross(x, z, v, records) - Mv
            self._note("r_xy", float(norm(turned)) / apart, declared("r_xy"))


def _points(problem: BilevelProblem, rng: np.random.Generator, count: int) -> Floats:
    """Random points of the domain, its corners among them."""
    domain = problem.x_domain
    if isinstance(domain, Grid):
        return domain.array[rng.integers(0, len(domain.points), count)]
    if isinstance(domain, Box):
        low, high = np.array(domain.lower), np.array(domain.upper)
        u = rng.uniform(size=(count, domain.dimension))
        return low + np.where(rng.uniform(size=(count, 1)) < 0.3, np.round(u), u) * (high - low)
    directions = rng.normal(size=(count, domain.dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radii = np.where(rng.uniform(size=count) < 0.3, 1.0, rng.uniform(size=count) ** (1.0 / domain.dimension))
    return domain.clamp(np.array(domain.center) + domain.radius * radii[:, None] * directions)


def _rows(data: Any, change: Callable[[Floats, Floats], Floats], other: Any) -> Any:
    """`change` applied to every array of records, beside the same array of another data set."""
    if isinstance(data, np.ndarray):
        return change(data, other)
    if isinstance(data, Mapping):
        return {name: _rows(each, change, other[name]) for name, each in data.items()}
    if isinstance(data, tuple | list):
        return type(data)(_rows(each, change, mate) for each, mate in zip(data, other, strict=True))
    if is_dataclass(data) and not isinstance(data, type):
        named = {item.name: getattr(data, item.name) for item in fields(data)}
        return replace(data, **{name: _rows(each, change, getattr(other, name)) for name, each in named.items()})
    raise ValueError("Synthetic records must be arrays, or tuples, dictionaries or dataclasses of arrays.")


def _changed(data: Any, other: Any, part: str | None, change: Callable[[Floats, Floats], Floats]) -> Any:
    """`change` applied to all records, or to those of one part."""
    if part is None:
        return _rows(data, change, other)
    return replace(data, **{part: _rows(getattr(data, part), change, getattr(other, part))})


def _with_first_of(each: Floats, mate: Floats) -> Floats:
    changed = each.copy()
    changed[0] = mate[0]
    return changed


def _without_first(each: Floats, mate: Floats) -> Floats:
    return each[1:]
