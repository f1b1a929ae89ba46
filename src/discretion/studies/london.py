"""London in full (Maciazek 2026, Appendix D.2), and three other surveys: what account and mechanism buy.

Everything is chosen on the public part of a survey (London: sales of 2017) and released from the private part (2018).
A posterior path is released from medians of public hexagons at epsilon 9, delta = n^-1.1, with the scale that each
account allows; kernel sums from the same medians, and from individual records at epsilon 9, 3 and 1. All are compared
with the map without privacy, made as in the paper: an exponential kernel, chosen by cross-entropy on one half of the
public hexagons, fitted to the other; then refitted to all private hexagons and cut at a probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.special import ndtr

from discretion.gp import RBF, DensePosterior, Exponential, Kernel, kernel
from discretion.posterior import Bounded, KernelSumMechanism
from discretion.posterior.calibration import calibrated
from discretion.posterior.excursion import smooth
from discretion.privacy.noise import SeededRandomness
from discretion.spatial import Records
from discretion.studies.excursions_2d import cross_entropy, iou
from discretion.studies.london_report import london_report
from discretion.studies.published import TablesOnTheSquare
from discretion.studies.running import Report, Run
from discretion.studies.surveys import SURVEYS, Survey, aggregated, records, resampled

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# The map without privacy: grids, clip and cuts of the paper. Length scales here and below are in units of the longer
# side of the domain.
FREE_LENGTHS = (0.03, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.6)
FREE_RIDGES = (0.1, 0.18, 0.27, 0.4, 0.6, 0.9)
FREE_SCALES = (0.03, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.6, 0.9)
CLIP, CUTS = 1e-12, np.linspace(0.05, 0.95, 181)

EPSILON, EPSILONS = 9.0, (9.0, 3.0, 1.0)
RULES = ("published", "coupled", "renyi", "best")
"""Accounts of a path: Theorem 3.1 with Lemma B.1, as printed; with the coupled bound; certified; best."""
KERNELS = ("exponential", "rbf")
LENGTHS = (0.015, 0.025, 0.04, 0.06, 0.1, 0.16)
RIDGES = (3.0, 6.0, 12.0, 30.0, 100.0)
WIDTHS = (0.0, 1.0, 2.0)
"""Of the filter over a released path, in cells; 1 in the paper."""
SUM_LENGTHS = (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.09, 0.13, 0.2)
LEVELS = (-0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1)
"""What a local mean is compared with, about the threshold in units of the bound: a mean is not a median."""
NUGGET = 1e-6


@dataclass(frozen=True)
class World:
    """Records of a survey and what their map shows without privacy: where a place of the grid is inside, (m,)."""

    survey: Survey
    records: Records
    hexagons: Records
    inside: Mask
    near: Mask

    def overlap(self, fields: Floats) -> Floats:
        """IoU of {field >= 0} with the map without privacy, for each field (..., m)."""
        return iou((fields >= 0.0)[..., self.near], self.inside[self.near])

    def labels(self, fields: Floats) -> Floats:
        """IoU of {field >= 0} with {median >= threshold} over the private hexagons, for each field (..., m)."""
        return iou((fields >= 0.0)[..., self.survey.node(self.hexagons.covariates)], self.hexagons.response >= 0.0)


def marginals(posterior: DensePosterior, T: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation of the posterior at the rows of T."""
    whitened = posterior.whiten(np.empty((len(T), posterior.n), order="F"), T)
    return posterior.mean(T), np.sqrt(np.maximum(1.0 - np.einsum("ij,ij->i", whitened, whitened), 1e-12))


def without_budget(hexagons: Records, longest: float, rng: np.random.Generator) -> dict[str, float]:
    """Length scale, ridge, scale and cut of the map without privacy, by cross-entropy on half of the hexagons."""
    order = rng.permutation(hexagons.n)
    fit, held = order[: hexagons.n // 2], order[hexagons.n // 2 :]
    X, y = hexagons.covariates, hexagons.response
    inside, best = y[held] >= 0.0, (math.inf, np.empty(0), {})
    for length in FREE_LENGTHS:
        for ridge in FREE_RIDGES:
            mean, deviation = marginals(DensePosterior(Exponential(length * longest), ridge, X[fit], y[fit]), X[held])
            for scale in FREE_SCALES:
                bce = cross_entropy(mean, deviation, inside, scale, CLIP)
                if bce < best[0]:
                    found = {"length": length, "ridge": ridge, "scale": scale, "bce": bce}
                    best = bce, ndtr(mean / (scale * deviation)), found
    cut = float(CUTS[np.argmax([iou(best[1] >= c, inside) for c in CUTS])])
    return best[2] | {"cut": cut}


def chosen_map(survey: str, *, folder: str | None, coarse: bool, seed: int) -> dict[str, Any]:
    """What the public part says of the map without privacy, and the numbers of private records and hexagons."""
    public = aggregated(survey, records(survey, False, folder), coarse)
    private = records(survey, True, folder)
    return {
        "free": without_budget(public, SURVEYS[survey].longest, np.random.default_rng([seed, 0])),
        "records": private.n,
        "hexagons": aggregated(survey, private, coarse).n,
    }


@lru_cache(maxsize=4)
def world(
    survey: str, part: str, folder: str | None, coarse: bool, seed: int, n: int, free: tuple[float, ...]
) -> World:
    """The "public" part, the "private" one, or the "stand-in" that choices are made on: public, but with n records."""
    held = records(survey, part == "private", folder)
    if part == "stand-in":
        held = resampled(held, n, np.random.default_rng([seed, 1]))
    hexagons, own = aggregated(survey, held, coarse), SURVEYS[survey]
    length, ridge, scale, cut = free
    posterior = DensePosterior(Exponential(length * own.longest), ridge, hexagons.covariates, hexagons.response)
    mean, deviation = marginals(posterior, own.places)
    public = aggregated(survey, records(survey, False, folder), coarse)
    return World(own, held, hexagons, ndtr(mean / (scale * deviation)) >= cut, own.near(public.covariates))


def allowed(n: int, ridge: float, rule: str) -> float:
    """The smallest scale of one path that an account allows at epsilon 9, delta = n^-1.1, for responses in [-1, 1].

    No kernel is assumed (least value 0): on domains of several length scales it makes no difference.
    """
    coupled = rule == "coupled"
    account = {"n": n, "ridge": ridge, "assumption": (TablesOnTheSquare if coupled else Bounded)(1.0), "delta": n**-1.1}
    rule = "published" if coupled else rule
    return calibrated("scale", rule, epsilon=EPSILON, time_limit=math.inf, **account)[0]


def path_law(k: Kernel, ridge: float, held: Records, places: Floats) -> tuple[Floats, Floats]:
    """Mean of a path at the places, and the root of its covariance at scale 1, with the nugget of a release."""
    posterior = DensePosterior(k, ridge, held.covariates, held.response)
    return posterior.mean(places), cholesky(posterior.covariance(places) + NUGGET * np.eye(len(places)), lower=True)


def tried_paths(
    name: str, length: float, *, ridges: list[float], scales: dict[str, list[float]], draws: int, **where: Any
) -> list[dict[str, Any]]:
    """Mean IoU of one path of the stand-in, for each ridge, account and width of the filter."""
    held, rng = world(part="stand-in", **where), np.random.default_rng([where["seed"], 2])
    survey, found = held.survey, []
    z = rng.standard_normal((len(held.near), draws))
    for index, ridge in enumerate(ridges):
        mean, root = path_law(kernel(name, length * survey.longest), ridge, held.hexagons, survey.places)
        noise = (root @ z).T
        for rule, column in scales.items():
            fields = (mean + column[index] * noise).reshape(draws, *survey.counts)
            for width in WIDTHS:
                overlap = held.overlap(smooth(fields, width).reshape(draws, -1)).mean()
                choice = {"kernel": name, "length": length, "ridge": ridge, "scale": column[index], "width": width}
                found.append({"rule": rule, "iou": float(overlap), "choice": choice})
    return found


def sums(survey: Survey, epsilon: float, n: int, length: float) -> KernelSumMechanism:
    """Value sum about the threshold and density, n records, at a budget."""
    return KernelSumMechanism.calibrated(
        epsilon=epsilon,
        delta=n**-1.1,
        n=n,
        kernels=RBF(length * survey.longest),
        domain=survey.domain,
        response_ranges=(-1.0, 1.0),
        grid=survey.counts,
        coordinates="data",
    )


def tried_sums(
    of: str, epsilon: float, *, total: int, lengths: list[float], levels: list[float], draws: int, **where: Any
) -> list[dict[str, Any]]:
    """Mean IoU of {local mean >= level} in kernel sums of the stand-in's records or hexagons; noise as for `total`."""
    held, found = world(part="stand-in", **where), []
    for length in lengths:
        run = sums(held.survey, epsilon, total, length)
        values, density = drawn_sums(run, getattr(held, of), draws, where["seed"])
        for level in levels:
            overlap = held.overlap(values - level * density).mean()
            found.append({"iou": float(overlap), "choice": {"length": length, "level": level, "scale": run.scale}})
    return found


def drawn_sums(run: KernelSumMechanism, held: Records, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Fresh releases: value sums and densities, each (draws, m)."""
    partial, randomness = run.partial(held), SeededRandomness(seed)
    drawn = [run.release(partial, held.n, randomness) for _ in range(draws)]
    density = [each.density for each in drawn if each.density is not None]
    return np.concatenate([each.value_sums[0] for each in drawn]), np.concatenate(density)


def released_path(choice: dict[str, Any], *, draws: int, **where: Any) -> dict[str, Any]:
    """Fresh single paths of the private hexagons."""
    held, rng = world(part="private", **where), np.random.default_rng([where["seed"], 3])
    survey = held.survey
    law = kernel(choice["kernel"], choice["length"] * survey.longest), choice["ridge"], held.hexagons, survey.places
    mean, root = path_law(*law)
    fields = mean + choice["scale"] * (root @ rng.standard_normal((len(mean), draws))).T
    return _compared(held, smooth(fields.reshape(draws, *survey.counts), choice["width"]).reshape(draws, -1))


def released_sums(choice: dict[str, Any], of: str, epsilon: float, *, draws: int, **where: Any) -> dict[str, Any]:
    """Fresh kernel sums of the private records or hexagons."""
    held = world(part="private", **where)
    mine = getattr(held, of)
    run = sums(held.survey, epsilon, mine.n, choice["length"])
    values, density = drawn_sums(run, mine, draws, where["seed"] + 1)
    return _compared(held, values - choice["level"] * density)


def _compared(held: World, fields: Floats) -> dict[str, Any]:
    overlap = held.overlap(fields)
    typical = int(np.argmin(np.abs(overlap - np.median(overlap))))
    return {"iou": overlap, "labels": held.labels(fields), "typical": packed(fields[typical] >= 0.0)}


def without_release(**where: Any) -> dict[str, Any]:
    """The map without privacy, what it shares with the labels, and the two answers that cost nothing."""
    private, public = world(part="private", **where), world(part="public", **where)
    sure = {"nothing": np.where(private.inside, 1.0, -1.0), "all": np.ones(len(private.near))}
    sure["earlier"] = np.where(public.inside, 1.0, -1.0)
    found = {name: [float(private.overlap(field)), float(private.labels(field))] for name, field in sure.items()}
    return found | {"inside": packed(private.inside), "near": packed(private.near)}


def packed(mask: Mask) -> str:
    """A set of places as text."""
    return np.packbits(mask).tobytes().hex()


def mapped(run: Run, survey: Survey) -> dict[str, Any]:
    """One survey: choose on its public part, release from its private part.

    What is given to ``choices`` of the private part are its numbers of records and hexagons, which are public.
    """
    start = {
        "survey": survey.name,
        "folder": None if run.data is None else str(run.data),
        "coarse": run.scale == "quick",
        "seed": run.seed,
    }
    (numbers,) = run.each("london-map", chosen_map, [start])
    free = tuple(numbers["free"][name] for name in ("length", "ridge", "scale", "cut"))
    where = {**start, "n": numbers["records"], "free": free}
    draws = run.pick(40, 200)
    scales = allowed_scales(run, numbers["hexagons"])
    found = choices(run, survey, numbers, scales, where)
    wanted = [{"choice": found[rule], "draws": draws, **where} for rule in RULES]
    paths = run.each("london-released-paths", released_path, wanted)
    wanted = [
        {"choice": found[of, epsilon], "of": of, "epsilon": epsilon, "draws": draws, **where}
        for of, epsilon in kinds(survey)
    ]
    summed = run.each("london-released-sums", released_sums, wanted)
    (without,) = run.each("london-without", without_release, [where])
    return {
        "numbers": numbers,
        "scales": scales,
        "without": without,
        "paths": [each | {"choice": found[rule]} for rule, each in zip(RULES, paths, strict=True)],
        "sums": [
            each | {"choice": found[of, epsilon], "of": of, "epsilon": epsilon}
            for (of, epsilon), each in zip(kinds(survey), summed, strict=True)
        ],
    }


def kinds(survey: Survey) -> list[tuple[str, float]]:
    """What is summed at which epsilon."""
    return [("hexagons", EPSILON)] * (survey.hexagon is not None) + [("records", epsilon) for epsilon in EPSILONS]


def allowed_scales(run: Run, n: int) -> list[tuple[float, list[float]]]:
    """Each ridge with the scales that the accounts allow there, in their order."""
    ridges = run.pick(RIDGES[3:], RIDGES)
    found = run.each("london-scales", allowed, [{"n": n, "ridge": r, "rule": rule} for rule in RULES for r in ridges])
    return list(zip(ridges, np.reshape(found, (len(RULES), len(ridges))).T.tolist(), strict=True))


def choices(
    run: Run, survey: Survey, numbers: dict[str, Any], scales: list[tuple[float, list[float]]], where: dict[str, Any]
) -> dict[Any, dict[str, Any]]:
    """By account, or by what is summed and epsilon: the choice with the largest mean IoU on the stand-in."""
    lengths, draws = run.pick(LENGTHS[1:4], LENGTHS), run.pick(4, 8)
    ridges = [ridge for ridge, _ in scales]
    by_rule = {rule: [each[index] for _, each in scales] for index, rule in enumerate(RULES)}
    wanted = [
        {"name": name, "length": length, "ridges": ridges, "scales": by_rule, "draws": draws, **where}
        for name in KERNELS
        for length in lengths
    ]
    rows = [row for part in run.each("london-paths", tried_paths, wanted) for row in part]
    tried = {"lengths": run.pick(SUM_LENGTHS[1::2], SUM_LENGTHS), "levels": LEVELS}
    found: dict[Any, list[dict[str, Any]]] = {rule: [row for row in rows if row["rule"] == rule] for rule in RULES}
    wanted = [
        {"of": of, "epsilon": epsilon, "total": numbers[of], "draws": draws, **tried, **where}
        for of, epsilon in kinds(survey)
    ]
    found |= dict(zip(kinds(survey), run.each("london-sums", tried_sums, wanted), strict=True))
    return {key: max(rows, key=lambda row: row["iou"])["choice"] for key, rows in found.items()}


def reports(run: Run) -> list[Report]:
    """A table and a picture for each survey whose tables are here."""
    present = [survey for survey in SURVEYS.values() if survey.where(run.data)]
    absent = [survey.name for survey in SURVEYS.values() if survey not in present]
    return [london_report(survey, mapped(run, survey), absent) for survey in present]
