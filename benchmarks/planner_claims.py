"""Forecasts of the planner against what releases of data it has not seen then get."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import Measured, claim
from discretion.gp import Box
from discretion.gp import kernel as make_kernel
from discretion.posterior import KernelSumMechanism
from discretion.posterior.excursion import frequency_set, intersection_over_union
from discretion.posterior.planner import GaussianPrior, MapPlan, PosteriorPlan, PublicTable, plan_map, plan_posterior
from discretion.privacy import SystemRandomness
from discretion.spatial import Records, read_table

SHARED = Path(__file__).parents[2] / "shared" / "data"
RELEASES = 60
ABSENT = Measured("skipped: the data set is not here", True)


@dataclass(frozen=True)
class Compared:
    """A forecast and what came of it."""

    plan: MapPlan
    agreement: float
    spread: float

    @property
    def gap(self) -> float:
        """Forecast less outcome."""
        return self.plan.forecast.agreement.mean - self.agreement

    def __str__(self) -> str:
        p, r = self.plan, self.plan.recommended
        way = f"{r.mechanism}{' with decoder' if r.decoder else ''}, {r.kernel.name} {r.kernel.length_scale:.3g}"
        return (
            f"epsilon {r.epsilon:g}: forecast {p.forecast.agreement.mean:.3f}, released {self.agreement:.3f} "
            f"(sd {self.spread:.3f}; {way})"
        )


def compared(plan: MapPlan, private: Records, releases: int = RELEASES) -> Compared:
    """IoU of fresh releases of the private records, as recommended, with the same map without privacy."""
    setting, (_, mask) = plan.setting, plan.scored
    run = plan.mechanism(grid=setting.counts, locations=setting.domain.grid(setting.counts))
    assert isinstance(run, KernelSumMechanism)
    partial = run.partial(private)
    sums = partial.sums[:, 0] + partial.carry[:, 0]
    if plan.recommended.decoder:
        decoder = plan.decoder(run)
        assert decoder.cut is not None
        clear = decoder.decode((sums[0], sums[1])).ravel() >= decoder.cut
        shown = [
            decoder.excursion_set(run.release(partial, private.n, SystemRandomness())).ravel() for _ in range(releases)
        ]
    else:
        ratio = (setting.centre - setting.threshold) / setting.bound
        clear = sums[0] + ratio * sums[1] >= 0.0
        shown = []
        for _ in range(releases):
            release = run.release(partial, private.n, SystemRandomness())
            assert release.density is not None
            shown.append(release.value_sums[0, 0] + ratio * release.density[0] >= 0.0)
    found = [intersection_over_union(each, clear, ~mask) for each in shown]
    return Compared(plan, float(np.mean(found)), float(np.std(found)))


# --- three data sets: an earlier part is public, a later one private --------------------------------------------------

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
LUCAS = Box((484_000.0, 195_000.0), (539_000.0, 230_000.0))
SWITZERLAND = Box((-180_000.0, -120_000.0), (180_000.0, 120_000.0))


def parts(path: Path, public: list[dict[str, str]], private: list[dict[str, str]], **rules: Any) -> list[Records]:
    """The rows of a table that meet any of these conditions, as two sets of records."""
    return [_joined([read_table(path, where=where, **rules) for where in group]) for group in (public, private)]


def _joined(several: list[Records]) -> Records:
    first = several[0]
    X, y = (np.concatenate([getattr(each, name) for each in several]) for name in ("covariates", "response"))
    return Records(X, y, first.covariate_names, first.response_name)


@cache
def lucas(epsilon: float) -> Compared:
    """Lucas County houses: sales of 1993-1996 are public, those of 1997 and 1998 private; price >= e^11.25."""
    rules: dict[str, Any] = {"transform": "log", "response_range": (10.0, 12.5)}
    public, private = parts(
        SHARED / "lucas_county_houses/lucas_houses.csv.gz",
        [{"year_sold": year} for year in ("1993", "1994", "1995", "1996")],
        [{"year_sold": year} for year in ("1997", "1998")],
        covariates=("easting_m", "northing_m"),
        response="price_usd",
        domain=LUCAS,
        **rules,
    )
    return _compared(public, private, LUCAS, rules["response_range"], (60, 40), epsilon)


@cache
def flats(epsilon: float) -> Compared:
    """London flats of 15 boroughs: sales of 2022 are public, those of 2023 private; price >= e^13.

    The planner's constants were chosen on London sales of 2017 and 2018.
    """
    rules: dict[str, Any] = {"transform": "log", "response_range": (12.0, 14.0)}
    public, private = parts(
        SHARED / "london_flats_15_boroughs/flats_2015_2024.csv.gz",
        [{"year": "2022"}],
        [{"year": "2023"}],
        covariates=("easting_m", "northing_m"),
        response="price_gbp",
        domain=LONDON,
        **rules,
    )
    return _compared(public, private, LONDON, rules["response_range"], (60, 48), epsilon)


@cache
def rainfall(epsilon: float) -> Compared:
    """Swiss rainfall: the 100 stations of the competition are public, the other 367 private; rain >= 20 mm."""
    public, private = parts(
        SHARED / "swiss_rainfall/sic97.csv",
        [{"observed": "1"}],
        [{"observed": "0"}],
        covariates=("x_m", "y_m"),
        response="rain_tenth_mm",
        domain=SWITZERLAND,
        response_range=(0.0, 400.0),
    )
    return _compared(public, private, SWITZERLAND, (0.0, 400.0), (60, 40), epsilon)


def _compared(
    public: Records,
    private: Records,
    domain: Box,
    response_range: tuple[float, float],
    grid: tuple[int, ...],
    epsilon: float,
) -> Compared:
    with threadpool_limits(1):
        plan = plan_map(
            n=private.n,
            domain=domain,
            response_range=response_range,
            grid=grid,
            epsilon=epsilon,
            epsilons=(epsilon,),
            prior=PublicTable(public.covariates, public.response),
            posterior=False,
        )
        return compared(plan, private)


def _row(compare: Any, folder: str) -> Measured:
    if not (SHARED / folder).is_dir():
        return ABSENT
    found = [compare(epsilon) for epsilon in (3.0, 1.0)]
    return Measured("; ".join(map(str, found)), all(abs(each.gap) <= 0.05 for each in found))


@claim(
    "map",
    "Planner, Lucas County houses (9,410 private sales, earlier years public), epsilon 3 and 1: forecast of the IoU "
    "with the map without privacy, against fresh releases",
    "within .05",
    slow=True,
)
def planner_lucas() -> Measured:
    return _row(lucas, "lucas_county_houses")


@claim(
    "map",
    "Planner, London flats (13,262 private sales of 2023, 2022 public): the same",
    "within .05",
    slow=True,
)
def planner_flats() -> Measured:
    return _row(flats, "london_flats_15_boroughs")


@claim(
    "map",
    "Planner, Swiss rainfall (367 private stations, 100 public): the same, and that nothing is useful there",
    "within .05, useless",
    slow=True,
)
def planner_rainfall() -> Measured:
    row = _row(rainfall, "swiss_rainfall")
    if row is ABSENT:
        return row
    plan = rainfall(3.0).plan
    return Measured(f"{row.text}. {plan.verdict}", row.holds and not plan.useful)


@claim(
    "map",
    "Planner, a flood plain with 155 soil samples and the default prior, epsilon 1: it says below what nothing is "
    "useful",
    "not useful below X > 1",
    slow=True,
)
def planner_small_survey() -> Measured:
    with threadpool_limits(1):
        plan = plan_map(
            n=155,
            domain=Box((178_000.0, 329_000.0), (182_000.0, 334_000.0)),
            response_range=(4.5, 7.5),
            grid=(60, 60),
            epsilon=1.0,
        )
    X = plan.not_useful_below
    return Measured(plan.verdict, not plan.useful and X is not None and X > 1.0)


@claim("map", "Planner, n = 4,000, 60 x 40 grid, four epsilons, all mechanisms, one thread", "< 60 s of cpu", slow=True)
def planner_seconds() -> Measured:
    with threadpool_limits(1):
        start = time.process_time()
        plan = plan_map(
            n=4_000,
            domain=Box((0.0, 0.0), (60.0, 40.0)),
            response_range=(12.0, 14.0),
            grid=(60, 40),
            epsilon=1.0,
        )
        spent = time.process_time() - start
    return Measured(f"{spent:.0f} s; {len(plan.candidates)} releases at the target", spent < 60.0)


@claim(
    "map",
    "Planner, threshold 5.5 in a range of 3 to 7, n = 1,200, epsilon 9: forecast IoU of posterior paths (on a lattice) "
    "as planned, centred at the threshold, against paths centred in the middle of the range",
    "better by .1",
    slow=True,
)
def planner_path_centre() -> Measured:
    found: list[dict[str, float]] = []
    for centre in (None, 5.0):
        with threadpool_limits(1):
            plan = plan_map(
                n=1_200,
                domain=Box((400_000.0, 300_000.0), (420_000.0, 310_000.0)),
                response_range=(3.0, 7.0),
                grid=(60, 30),
                epsilon=9.0,
                epsilons=(9.0,),
                threshold=5.5,
                centre=centre,
                coordinates="data",
                worlds=60,
            )
        found.append({each.label: each.iou.mean for each in plan.frontier})
    names = ("posterior path, published account", "posterior path on a lattice")
    paths, lattice = ([each[name] for each in found] for name in names)
    text = f"{paths[0]:.3f} against {paths[1]:.3f} ({lattice[0]:.3f} against {lattice[1]:.3f})"
    return Measured(text, paths[0] >= paths[1] + 0.1)


# --- posterior paths --------------------------------------------------------------------------------------------------

PRIOR = GaussianPrior(0.3, 0.4, 0.3, 0.0)
PATHS: dict[str, dict[str, Any]] = {
    "line": {"n": 200, "domain": Box((0.0,), (1.0,)), "grid": (200,), "threshold": 0.1},
    "square": {"n": 400, "domain": Box((0.0, 0.0), (1.0, 1.0)), "grid": (21, 21), "threshold": 0.1},
    "line, no threshold": {"n": 200, "domain": Box((0.0,), (1.0,)), "grid": (200,)},
}


@cache
def planned_paths(name: str, worlds: int = 200) -> PosteriorPlan:
    """Three paths at epsilon 9 from records of a declared Gaussian process with a Matern 3/2 kernel."""
    common: dict[str, Any] = {"response_range": (-1.0, 1.0), "epsilon": 9.0, "paths": 3, "prior": PRIOR}
    with threadpool_limits(1):
        return plan_posterior(**common, **PATHS[name], worlds=worlds)


def released_paths(plan: PosteriorPlan, worlds: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Scores of real releases on fresh worlds, records anywhere in the domain: one path, and all together."""
    setting, mechanism = plan.setting, plan.mechanism()
    nodes = setting.domain.grid(setting.grid)
    kernel = make_kernel(PRIOR.kernel, PRIOR.length_scale)
    found = np.empty((2, worlds))
    for world in range(worlds):
        X = rng.uniform(size=(setting.n, setting.domain.dimension))
        everywhere = np.concatenate([nodes, X])
        root = np.linalg.cholesky(kernel(everywhere) + 1e-8 * np.eye(len(everywhere)))
        f = (PRIOR.amplitude or 0.0) * root @ rng.standard_normal(len(everywhere))
        field, y = f[: len(nodes)], f[len(nodes) :] + (PRIOR.noise_sd or 0.0) * rng.standard_normal(setting.n)
        paths = mechanism.run(Records(X, y, ("x",) * X.shape[1], "y"), SystemRandomness()).values
        if plan.threshold is None:
            shown = [float(np.corrcoef(each, field)[0, 1]) for each in (*paths, paths.mean(axis=0))]
        else:
            truth = field >= plan.threshold
            sets = (*(paths >= plan.threshold), frequency_set(paths, plan.threshold, 0.5))
            shown = [intersection_over_union(each, truth) for each in sets]
        found[:, world] = np.mean(shown[:-1]), shown[-1]
    return dict(zip(("one", "together"), found, strict=True))


@claim(
    "map",
    "Plan of three posterior paths at epsilon 9 (200 records on a line, 400 on a square, 200 on a line without a "
    "threshold): forecast mean score of one path and of all together, against 120 releases of fresh worlds",
    "within .05",
    slow=True,
)
def plan_posterior_forecast() -> Measured:
    texts, worst = [], 0.0
    for name in PATHS:
        plan = planned_paths(name)
        with threadpool_limits(1):
            outcome = released_paths(plan, 120, np.random.default_rng(7))
        quality = plan.recommended.quality
        pairs = [(getattr(quality, part).mean, float(values.mean())) for part, values in outcome.items()]
        worst = max(worst, *(abs(a - b) for a, b in pairs))
        told = ", ".join(f"{forecast:.3f} / {released:.3f}" for forecast, released in pairs)
        free = plan.without_privacy.quality.together.mean
        texts.append(f"{name}, {quality.measure}: {told}; without privacy {free:.3f}")
    return Measured("; ".join(texts), worst <= 0.05)


@claim(
    "map",
    "Plan of a posterior path, n = 1,000, 60 x 60 grid, one kernel, 120 worlds, closed form, one thread",
    "< 60 s of cpu",
    slow=True,
)
def plan_posterior_seconds() -> Measured:
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"DISCRETION_CACHE": folder}):
        start = time.process_time()
        plan = plan_posterior(
            n=1_000,
            domain=Box((0.0, 0.0), (60.0, 40.0)),
            response_range=(12.0, 14.0),
            grid=(60, 60),
            epsilon=3.0,
            threshold=13.0,
        )
        spent = time.process_time() - start
    return Measured(f"{spent:.0f} s; {plan.verdict}", spent < 60.0)
