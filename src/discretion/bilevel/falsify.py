"""A search for records that break declared constants: on synthetic records only. A pass is not a proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.domains import Grid
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.sensitivity import hypergradient_sensitivity, inner_shift, range_bound, value_change
from discretion.gp import Box
from discretion.privacy import Neighbours

__all__ = ["Falsification", "falsify"]

Floats = NDArray[np.float64]
T = TypeVar("T")

_ACCURACY = 1e-9
_SLACK = 1e-6
_ROUNDING = 1e-13  # of an average, relative
_SHARES = (1.0, 0.5, 0.1)  # of the records that there may be


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
        untried = f"NOT TRIED: {', '.join(self.untried)}. " if self.untried else ""
        if self.violated:
            verdict = f"FALSE: {', '.join(self.violated)}. Nothing that rests on these constants is private."
        else:
            verdict = (
                f"No violation of the {len(self.ratios)} {'others' if self.untried else 'listed'} in {self.trials:,} "
                "pairs of synthetic data sets. That is not a proof: the constants must hold for every record that "
                "could be held."
            )
        return "\n".join([*lines, untried + verdict])

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
    is found at random outer points, at inner solutions and between them, with what is declared there: the constants at
    the point, which the noise of a descent rests on, and the suprema, which the range of a choice rests on. Differences
    between two records are those of the two data sets. A third of the data sets repeat one record, where averages are
    as large as records; under add/remove some have a half or a tenth of the records, where the regulariser is left.

    Args:
        problem: with its public counts.
        synthetic: makes a data set, as the problem takes it, out of a generator: arrays, or tuples, dictionaries or
            dataclasses of arrays, one row for each record. Make extreme ones too.
        constants: suprema over the domain, to be tried everywhere; by default the problem's own, at each point and over
            the domain.
        trials: pairs of neighbours.
        seed: of the search.

    Raises:
        MissingConstant: the problem has no constants at all.
    """
    search = _Search(problem, constants, np.random.default_rng(seed))
    for trial in range(trials):
        data = synthetic(search.rng)
        other = synthetic(search.rng)
        if trial % 3 == 0:
            data = _rows(data, lambda each, _: np.repeat(each[:1], len(each), axis=0), other)
        parts = ("training", "validation") if isinstance(data, SplitRecords) else (None,)
        part, change = parts[trial % len(parts)], _with_first_of
        if problem.neighbours is Neighbours.ADD_REMOVE:
            change = _without_first
            for thinned in parts:
                data = _changed(data, other, thinned, _some(_SHARES[search.rng.integers(len(_SHARES))]))
        search.compare(problem.ingest(data), problem.ingest(_changed(data, other, part, change)))
    return Falsification(dict(search.found), trials, search.untried())


class _Search:
    """Largest ratios found so far."""

    def __init__(self, problem: BilevelProblem, given: Constants | None, rng: np.random.Generator) -> None:
        self.problem, self.given, self.rng = problem, given, rng
        self.suprema = _known(problem.constants) if given is None else given
        self.found: dict[str, float] = {}
        self.declared: dict[str, None] = dict.fromkeys(self.suprema.known() if self.suprema else ())

    def untried(self) -> tuple[str, ...]:
        """What is declared and was not tried, and the range if nothing says what it is at most."""
        # those of single terms are tried as difference constants under add/remove, and not used under replace
        left = [name for name in self.declared if name not in self.found and not name.startswith("one_")]
        return (*left, *([] if "range" in self.found else ["range (give declared=, the suprema)"]))

    def _note(self, name: str, found: float, declared: float | None) -> None:
        if declared is None or math.isnan(found):
            return
        ratio = 0.0 if found <= 1e-8 * max(declared, 1e-4) else (math.inf if declared == 0 else found / declared)
        self.found[name] = max(self.found.get(name, 0.0), ratio)

    def compare(self, one: Any, other: Any) -> None:
        """Two neighbouring data sets."""
        problem, differences, last = self.problem, [], None
        for x in _points(problem, self.rng, 3):
            c = problem.constants(x) if self.given is None else self.given
            self.declared |= dict.fromkeys(c.known())
            tolerance = max(_ACCURACY, problem.least_tolerance(x))
            y, z = (problem.certified(x, each, tolerance) for each in (one, other))
            differences.append(problem.outer_value(x, y, one) - problem.outer_value(x, z, other))
            moved = None
            if _known(lambda c=c: hypergradient_sensitivity(c, problem.counts)) is not None:
                moved = problem.hypergradient(x, y, one)[0] - problem.hypergradient(x, z, other)[0]
            for bounds in (c, self.suprema):
                if bounds is not None:
                    self._bounds(bounds, y - z, differences[-1], moved)
            self._differences(c, x, y, one, other)
            self._derivatives(c, x, y, z + self.rng.uniform() * (y - z), one)
            if last is not None:
                self._derivatives(c, x, y, last[1], one)
                self._along(x, y, *last, one)
            last = x, y
        if self.suprema is not None:
            most = _known(lambda: range_bound(self.suprema, problem.counts, problem.x_domain.diameter()).value)  # pyright: ignore[reportArgumentType]
            self._note("range", float(np.ptp(differences)), most)

    def _bounds(self, c: Constants, shift: Floats, change: float, moved: Floats | None) -> None:
        """What mechanisms rest on, made of constants: of two data sets at one point."""
        counts, norm = self.problem.counts, np.linalg.norm
        self._note("inner shift", float(norm(shift)), _known(lambda: inner_shift(c, counts)))
        self._note("S_f", abs(change), c.S_f)
        self._note("change of the value", abs(change), _known(lambda: value_change(c, counts).value))
        if moved is not None:
            most = _known(lambda: hypergradient_sensitivity(c, counts).value)
            self._note("hypergradient", float(norm(moved)), most)

    def _differences(self, c: Constants, x: Floats, y: Floats, one: Any, other: Any) -> None:
        """Constants of two records at (x, y): n times the difference of averages, less what rounding makes of them."""
        problem, v = self.problem, self._direction(len(y))
        outer = [(problem.outer_value(x, y, each), *problem.outer_gradients(x, y, each)) for each in (one, other)]
        inner = [
            (
                problem.inner_gradient(x, y, each),
                problem.inner_cross(x, y, v, each),
                problem.inner_hvp(x, y, v, each),
            )
            for each in (one, other)
        ]
        self._note("L_gy", float(np.linalg.norm(inner[1][0])), _known(lambda: c.get("L_gy")))
        for names, (first, second), n in (
            (("B_f", "D_fx", "D_fy"), outer, problem.counts.outer),
            (("D_g", "D_gxy", "D_gyy"), inner, problem.counts.training),
        ):
            for name, a, b in zip(names, first, second, strict=True):
                rounding = _ROUNDING * float(np.linalg.norm(a))
                apart = n * max(float(np.linalg.norm(np.subtract(a, b))) - rounding, 0.0)
                self._note(name, apart, _known(lambda name=name: c.get(name)))

    def _direction(self, size: int) -> Floats:
        v = self.rng.normal(size=size)
        return v / np.linalg.norm(v)

    def _derivatives(self, c: Constants, x: Floats, y: Floats, z: Floats, records: Any) -> None:
        """Constants of averages, at inner solutions y and z: they lie in Y."""
        problem, norm = self.problem, np.linalg.norm

        def declared(name: str) -> float | None:
            return _known(lambda: c.get(name))

        fx, fy = problem.outer_gradients(x, y, records)
        self._note("L_fx", float(norm(fx)), declared("L_fx"))
        self._note("L_fy", float(norm(fy)), declared("L_fy"))
        v = self._direction(len(y))
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

    def _along(self, x: Floats, y: Floats, x0: Floats, y0: Floats, records: Any) -> None:
        """Lipschitz constants in x, over the domain."""
        problem, norm, apart = self.problem, np.linalg.norm, float(np.linalg.norm(x - x0))
        if self.suprema is None or apart < 1e-5:
            return
        v = self._direction(len(y))
        for name, change in (
            ("b_fxx", problem.outer_gradients(x, y, records)[0] - problem.outer_gradients(x0, y, records)[0]),
            ("r_xy_x", problem.inner_cross(x, y, v, records) - problem.inner_cross(x0, y, v, records)),
            ("r_yy_x", problem.inner_hvp(x, y, v, records) - problem.inner_hvp(x0, y, v, records)),
        ):
            self._note(name, float(norm(change)) / apart, _known(lambda name=name: self.suprema.get(name)))  # pyright: ignore[reportOptionalMemberAccess]
        self._note("D_y", float(norm(y - y0)), _known(lambda: self.suprema.get("D_y")))  # pyright: ignore[reportOptionalMemberAccess]


def _known(bound: Callable[[], T]) -> T | None:
    """A bound, if its constants are known and it holds."""
    try:
        return bound()
    except (MissingConstant, Refused):
        return None


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


def _some(share: float) -> Callable[[Floats, Floats], Floats]:
    """The first of the records, at least one."""
    return lambda each, _: each[: max(round(share * len(each)), 1)]


def _without_first(each: Floats, mate: Floats) -> Floats:
    return each[1:]
