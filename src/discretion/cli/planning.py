"""The public problem and what is known of it: options that plans share; and the release that a plan asks for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from discretion.cli import options, tables
from discretion.gp import Box
from discretion.posterior.planner import GaussianPrior, MapPlan, PosteriorPlan, Prior, PublicTable
from discretion.posterior.planner.lattices import Graph, Hexagons
from discretion.spatial.projection import Projection
from discretion.spatial.region import Region

__all__ = ["Grid", "Knowledge", "Problem", "Release", "prior_lines"]

PUBLIC, PRIVACY, MAP, PRIOR, OF_TABLES, OUTPUT = (
    "The problem",
    "Privacy",
    "The map",
    "Prior: a Gaussian process",
    "Prior: an earlier PUBLIC table",
    "Output",
)
OF_THE_PRIOR = (
    "prior_kernel",
    "prior_length_scale",
    "prior_length_unit",
    "prior_amplitude",
    "prior_noise_sd",
    "prior_mean",
)
OF_THE_TABLE = tuple(each.name for each in fields(tables.Reading))
COLUMNS = ("covariates", "response")
FLOOR = 20.0
"""Rows near a place, unless stated otherwise, as of a release."""


@dataclass(frozen=True)
class Problem:
    """What is to be released."""

    n: Annotated[int, typer.Option("--n", help="Expected number of records.", rich_help_panel=PUBLIC)]
    domain: Annotated[
        str, typer.Option(help="Public range of each covariate, low:high with commas.", rich_help_panel=PUBLIC)
    ]
    response_range: Annotated[
        str, typer.Option(help="Public range of the response after --transform.", rich_help_panel=PUBLIC)
    ]
    centre: Annotated[
        float | None,
        typer.Option(
            help="Centre of the sums, the middle of the range; of paths, the threshold if there is one.",
            rich_help_panel=PUBLIC,
        ),
    ] = None
    delta: options.Delta = "n^-1.1"
    crs: Annotated[
        str | None,
        typer.Option(
            help="Projected coordinate system of --domain, such as EPSG:27700: checked, and named in the command for "
            "the release. --districts may then be in degrees.",
            rich_help_panel=PUBLIC,
        ),
    ] = None

    @cached_property
    def projection(self) -> Projection | None:
        """The coordinate system, if one was named."""
        return None if self.crs is None else Projection(self.crs, self.box)

    @cached_property
    def box(self) -> Box:
        """The public domain."""
        return options.box(self.domain)

    @cached_property
    def range(self) -> tuple[float, float]:
        """The public range of the response."""
        return options.interval(self.response_range, "--response-range")

    def parameters(self) -> dict[str, Any]:
        """For a planner."""
        _ = self.projection  # refuses a system that does not fit the domain
        return {
            "n": self.n,
            "domain": self.box,
            "response_range": self.range,
            "centre": self.centre,
            "delta": options.delta_of(self.delta, self.n),
        }


@dataclass(frozen=True)
class Grid:
    """Where it is released."""

    grid: options.GridPoints = "60"
    length_unit: Annotated[
        str, typer.Option(help="domain or data: what the recommended length scale is in.", rich_help_panel=MAP)
    ] = "domain"
    region: Annotated[
        Path | None, typer.Option(help="Public GeoJSON outline; the map is scored inside.", rich_help_panel=MAP)
    ] = None

    def parameters(self, box: Box) -> dict[str, Any]:
        """For a planner."""
        if self.length_unit not in ("domain", "data"):
            raise ValueError(f"--length-unit is domain or data; got {self.length_unit!r}.")
        if self.region is not None and box.dimension != 2:
            raise ValueError("--region needs two covariates.")
        return {
            "grid": options.counts(self.grid, box.dimension),
            "coordinates": "unit" if self.length_unit == "domain" else "data",
            "region": None if self.region is None else Region.read(self.region).contains,
        }


@dataclass(frozen=True)
class Knowledge:
    """What is publicly known of the records."""

    prior_kernel: Annotated[
        str, typer.Option(help="exponential, matern32, matern52 or rbf.", rich_help_panel=PRIOR)
    ] = "matern32"
    prior_length_scale: Annotated[
        str,
        typer.Option(
            help="As a share of each side of the domain; with --length-unit data, of its shortest side. Or one for "
            "each covariate, with commas.",
            rich_help_panel=PRIOR,
        ),
    ] = "0.2"
    prior_length_unit: Annotated[
        str,
        typer.Option(
            help="data: --prior-length-scale is in the covariates' own units, such as 3000 for 3 km of metres; one is "
            "the same length in every direction. domain: a share of the sides.",
            rich_help_panel=PRIOR,
        ),
    ] = "domain"
    prior_amplitude: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the field; a sixth of the response range.", rich_help_panel=PRIOR),
    ] = None
    prior_noise_sd: Annotated[
        float | None,
        typer.Option(help="Standard deviation of responses about it; that of the field.", rich_help_panel=PRIOR),
    ] = None
    prior_mean: Annotated[
        float | None, typer.Option(help="Mean of the field; the middle of the range.", rich_help_panel=PRIOR)
    ] = None
    public_table: Annotated[
        Path | None,
        typer.Option(
            help="An earlier table that YOU DECLARE to be public: it is read, and the plan shows what it shows.",
            rich_help_panel=OF_TABLES,
        ),
    ] = None
    covariates: Annotated[
        str, typer.Option(help="Its columns that say where, separated by a comma.", rich_help_panel=OF_TABLES)
    ] = ""
    response: Annotated[str, typer.Option(help="Its column that says what.", rich_help_panel=OF_TABLES)] = ""

    def prior(
        self, context: typer.Context, problem: Problem, reading: tables.Reading, unused: tuple[str, ...] = COLUMNS
    ) -> Prior:
        """The prior; ``unused`` are options that need a table. ValueError for options without effect."""
        if self.public_table is None:
            options.refuse_given(context, (*OF_THE_TABLE, *unused), "only --public-table has it")
            if self.prior_length_unit not in ("domain", "data"):
                raise ValueError(f"--prior-length-unit is domain or data; got {self.prior_length_unit!r}.")
            lengths = options.per_axis(self.prior_length_scale, "--prior-length-scale")
            own = (lengths, self.prior_amplitude, self.prior_noise_sd, self.prior_mean)
            return GaussianPrior(*own, self.prior_kernel, self.prior_length_unit)
        options.refuse_given(context, OF_THE_PRIOR, "--public-table takes its place")
        if not self.covariates or not self.response:
            raise ValueError("--public-table needs --covariates and --response.")
        names = tables.names_of(self.covariates, problem.box)
        records = reading.rules(names, self.response, problem.box, problem.range).read(self.public_table)
        return PublicTable(records.covariates, records.response, self.public_table.name)


def prior_lines(prior: dict[str, Any]) -> list[str]:
    """What a plan rests on."""
    law = prior.get("fitted", prior)
    each = [f"{length:.4g}" for length in law["length_scale_in_data_units"]]
    length = each[0] if len(set(each)) == 1 else " by ".join(each)
    what = f"length scale {length} in data units, amplitude {law['amplitude']:.3g}, noise sd {law['noise_sd']:.3g}"
    return [
        f"Prior: {prior['kind']}" + (f", {prior['name']}, {prior['rows']:,} rows" if "rows" in prior else ""),
        f"  {law['kernel']}, {what}, mean {law['mean']:.4g}",
    ]


@dataclass(frozen=True)
class Release:
    """``discretion release`` as a plan recommends it, with a place for the table and, if unnamed, for its columns."""

    problem: Problem
    grid: Grid
    known: Knowledge
    reading: tables.Reading
    threshold: float | None

    def of_paths(self, plan: PosteriorPlan) -> str:
        """The posterior paths of a plan."""
        choice = plan.recommended.choice
        own: dict[str, Any] = {"mechanism": "posterior"} | self._kernel(choice.kernel)
        own |= {"ridge": repr(choice.ridge), "paths": plan.paths}
        own |= {} if plan.release_rule == "closed-form" else {"rule": plan.release_rule}
        # a release prices itself: the published account, which is larger, needs its own scale
        price = {"scale": repr(choice.scale)} if plan.rule == "published" else {"epsilon": repr(plan.epsilon)}
        return self._told(own | price | self._centre(plan.setting.centre) | self._grid())

    def of_map(self, plan: MapPlan, floor: float, districts: Path | None, gap: float) -> str:
        """The map of a plan; a decoder comes with ``--mechanism auto``, where that plans with the same prior."""
        found = plan.recommended
        own: dict[str, Any] = {"epsilon": repr(found.epsilon)}
        if isinstance(found.kernel, Hexagons | Graph):
            graph = f"districts:{districts}" if isinstance(found.kernel, Graph) else f"lattice:{found.kernel.spacing!r}"
            own |= {"prior": graph, "killing": repr(found.kernel.killing), "ridge": repr(found.ridge)}
            own |= {"gap": repr(gap)} if isinstance(found.kernel, Graph) and gap else {}
            own |= {"region": self.grid.region, "paths": found.paths}
            return self._told(own | self._centre(found.centre))
        own |= {} if floor == FLOOR else {"floor": repr(floor)}
        if found.decoder and self.automatic:
            unit = {} if self.grid.length_unit == "domain" else {"length-unit": self.grid.length_unit}
            own |= {"mechanism": "auto", "public-table": self.known.public_table} | unit
            own |= {"centre": None if self.problem.centre is None else repr(self.problem.centre)}
            return self._told(own | self._grid())
        own |= {"mechanism": found.mechanism} | self._kernel(found.kernel) | self._centre(found.centre)
        if found.mechanism == "posterior":
            own |= {"ridge": repr(found.ridge), "paths": found.paths}
        return self._told(own | self._grid())

    @property
    def automatic(self) -> bool:
        """Whether ``--mechanism auto`` plans with this prior: the public table, or the process by default."""
        own = (getattr(self.known, name) == getattr(Knowledge, name) for name in OF_THE_PRIOR)
        return self.known.public_table is not None or all(own)

    def _kernel(self, kernel: Any) -> dict[str, Any]:
        length = {} if self.grid.length_unit == "domain" else {"length-unit": self.grid.length_unit}
        return {"kernel": kernel.name, "length-scale": repr(kernel.length_scale)} | length

    def _grid(self) -> dict[str, Any]:
        return {"grid": self.grid.grid, "region": self.grid.region}

    def _centre(self, centre: float) -> dict[str, Any]:
        return {} if centre == 0.5 * sum(self.problem.range) else {"centre": repr(centre)}

    def _told(self, own: dict[str, Any]) -> str:
        """The command: what was said of the problem, then what was found."""
        problem, known = self.problem, self.known
        places = ",".join(f"x{axis + 1}" for axis in range(problem.box.dimension))
        words: dict[str, Any] = {
            "covariates": known.covariates or places,
            "response": known.response or "y",
            "domain": problem.domain,
            "response-range": problem.response_range,
            "crs": problem.crs,
        }
        for name in OF_THE_TABLE:
            value = getattr(self.reading, name)
            words |= {} if value == getattr(tables.Reading, name) else {name: value}
        asked = {"threshold": self.threshold} if problem.box.dimension <= 2 else {}
        words |= {"delta": problem.delta} | asked | own | {"out": "release"}
        # low:high may begin with a minus sign
        told = [
            f"--{name}={shlex.quote(str(each))}"
            for name, value in words.items()
            if value is not None
            for each in (value if isinstance(value, list) else [value])
        ]
        return " \\\n    ".join(["discretion release TABLE.csv", *told])
