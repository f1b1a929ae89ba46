"""Real records for a study of maps: an earlier or other part declared public, and a part that is released.

London's sales are bundled. Other tables are read from a folder that the user names; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from discretion.datasets import london_sales
from discretion.gp import Box
from discretion.spatial import HexagonLattice, Records, aggregate, read_table

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LONGEST = 60
"""Grid points along the longer side of a domain, as in the paper."""


@dataclass(frozen=True)
class Part:
    """Rows of some tables: those that meet one of ``where``; name of the file."""

    file: str
    where: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class Survey:
    """Where is the response at least ``threshold``? The public part chooses, the private part is mapped.

    Responses are given as (response - threshold) / bound, clipped to [-1, 1]; coordinates in metres. ``hexagon``: width
    of the public hexagons whose medians are the records of posterior paths, or None where each record is a place of its
    own. ``reach``: places further from a public hexagon than so many spacings are not scored, nor drawn.
    """

    name: str
    title: str
    public: Part
    private: Part
    covariates: tuple[str, str]
    response: str
    transform: Literal["none", "log"]
    domain: Box
    threshold: float
    bound: float
    unit: str
    source: str
    hexagon: float | None = None
    reach: float = 1.35

    @property
    def counts(self) -> tuple[int, int]:
        """Shape of the grid: its cells are about square."""
        width, height = np.subtract(self.domain.upper, self.domain.lower)
        longest = max(width, height)
        return round(LONGEST * width / longest), round(LONGEST * height / longest)

    @property
    def places(self) -> Floats:
        """The grid's points, (m, 2), first axis slowest."""
        return self.domain.grid(self.counts)

    @property
    def longest(self) -> float:
        """The longer side of the domain: the unit of length scales."""
        return float(max(np.subtract(self.domain.upper, self.domain.lower)))

    def where(self, folder: Path | None) -> tuple[Path, Path] | None:
        """The tables of the public and the private part: bundled, or anywhere below the folder; None if not there."""
        found = [_located(part.file, folder) for part in (self.public, self.private)]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def node(self, X: Floats) -> NDArray[np.intp]:
        """The nearest place of each point."""
        low, high = np.array(self.domain.lower), np.array(self.domain.upper)
        i, j = np.rint((X - low) / (high - low) * (np.array(self.counts) - 1)).astype(np.intp).T
        return i * self.counts[1] + j

    def near(self, X: Floats) -> Mask:
        """Places no further from a point of X than ``reach`` times their median spacing, (m,)."""
        tree = KDTree(X)
        spacing = float(np.median(tree.query(X, k=2)[0][:, 1]))
        return tree.query(self.places)[0] <= self.reach * spacing


def _located(file: str, folder: Path | None) -> Path | None:
    bundled = london_sales(2018).parent / file
    below = [] if folder is None else sorted(folder.rglob(file))
    return next((path for path in (bundled, *below) if path.is_file()), None)


def _rows(**columns: str) -> tuple[tuple[str, str], ...]:
    return tuple(columns.items())


LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
POUNDS = "Contains HM Land Registry and OS data © Crown copyright and database right (OGL v3.0)"

SURVEYS = {
    survey.name: survey
    for survey in (
        Survey(
            name="homes",
            title="London homes: price of e^13 = £442,413 or more",
            public=Part("london_2017.csv.gz", (_rows(new_build="0"),)),
            private=Part("london_2018.csv.gz", (_rows(new_build="0"),)),
            covariates=("easting_m", "northing_m"),
            response="price_gbp",
            transform="log",
            domain=LONDON,
            threshold=13.0,
            bound=1.0,
            unit="sale",
            source=POUNDS,
            hexagon=585.0,
        ),
        Survey(
            name="flats",
            title="Leasehold flats in 15 London boroughs: price of e^13 = £442,413 or more",
            public=Part("flats_2015_2024.csv.gz", (_rows(year="2017", new_build="0"),)),
            private=Part("flats_2015_2024.csv.gz", (_rows(year="2018", new_build="0"),)),
            covariates=("easting_m", "northing_m"),
            response="price_gbp",
            transform="log",
            domain=LONDON,
            threshold=13.0,
            bound=1.0,
            unit="sale",
            source=POUNDS,
            hexagon=585.0,
        ),
        Survey(
            name="houses",
            title="Lucas County, Ohio, houses: price of e^11.25 = $76,880 or more",
            public=Part("lucas_houses.csv.gz", tuple(_rows(year_sold=str(year)) for year in range(1993, 1997))),
            private=Part("lucas_houses.csv.gz", tuple(_rows(year_sold=str(year)) for year in (1997, 1998))),
            covariates=("easting_m", "northing_m"),
            response="price_usd",
            transform="log",
            domain=Box((484_000.0, 195_000.0), (539_000.0, 230_000.0)),
            threshold=11.25,
            bound=1.25,
            unit="sale",
            source="Data: county auditor's records, R package spData (CC0)",
            hexagon=585.0,
        ),
        Survey(
            name="rainfall",
            title="Swiss rain gauges, 8 May 1986: 20 mm or more",
            public=Part("sic97.csv", (_rows(observed="1"),)),
            private=Part("sic97.csv", (_rows(observed="0"),)),
            covariates=("x_m", "y_m"),
            response="rain_tenth_mm",
            transform="none",
            domain=Box((-180_000.0, -120_000.0), (180_000.0, 120_000.0)),
            threshold=200.0,
            bound=200.0,
            unit="gauge",
            source="Data: Spatial Interpolation Comparison 97, R package gstat",
            reach=2.0,
        ),
    )
}
"""By name. The columns named here are those that a table must have."""


@lru_cache(maxsize=8)
def records(name: str, private: bool, folder: str | None) -> Records:
    """The records of one part of a survey, responses about the threshold in units of the bound."""
    survey = SURVEYS[name]
    found = survey.where(None if folder is None else Path(folder))
    if found is None:
        raise ValueError(f"The tables of the survey {name!r} are not here: name their folder with --data.")
    part = survey.private if private else survey.public
    several = [
        read_table(
            found[private],
            covariates=survey.covariates,
            response=survey.response,
            transform=survey.transform,
            where=dict(rows),
            domain=survey.domain,
            response_range=(survey.threshold - survey.bound, survey.threshold + survey.bound),
        )
        for rows in part.where
    ]
    X, y = (np.concatenate([getattr(each, field) for each in several]) for field in ("covariates", "response"))
    return Records(X, (y - survey.threshold) / survey.bound, survey.covariates, survey.response)


def aggregated(name: str, held: Records, coarse: bool = False) -> Records:
    """One record a public hexagon: the median of what it holds, one record or more. Coarse: hexagons twice as wide."""
    survey = SURVEYS[name]
    if survey.hexagon is None:
        return held
    lattice = HexagonLattice(survey.hexagon * (2.0 if coarse else 1.0), survey.domain)
    return aggregate(held, lattice, minimum_count=1)


def resampled(held: Records, n: int, rng: np.random.Generator) -> Records:
    """n of the records at random, none twice if there are enough: the public part at the size of the private one."""
    chosen = rng.choice(held.n, n, replace=n > held.n)
    return Records(held.covariates[chosen], held.response[chosen], held.covariate_names, held.response_name)
