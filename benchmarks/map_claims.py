"""Figures stated about releasing a map of London."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from threadpoolctl import threadpool_limits

from benchmarks.harness import Measured, claim
from discretion.datasets import london_region, london_sales
from discretion.gp import RBF, Box, DensePosterior, Matern32
from discretion.posterior import PosteriorMechanism
from discretion.posterior.excursion import intersection_over_union, smooth
from discretion.privacy import SystemRandomness, round_up_significant
from discretion.spatial import HexagonLattice, Records, Region, aggregate, read_table

ROOT = Path(__file__).parents[1]
CONFIG = tomllib.loads((ROOT / "examples/london_paths.toml").read_text(encoding="utf-8"))
DOMAIN = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
SIDE = 60


@cache
def hexagons(year: int) -> Records:
    """The hexagon records of a year, made as the demo makes them."""
    return aggregate(_sales(year), HexagonLattice(600.0, DOMAIN))


@cache
def _sales(year: int) -> Records:
    return read_table(
        london_sales(year),
        covariates=("easting_m", "northing_m"),
        response="price_gbp",
        transform="log",
        where={"new_build": "0"},
        domain=DOMAIN,
        response_range=(12.0, 14.0),
    )


def mechanism(n: int, **changes: object) -> PosteriorMechanism:
    """The demo's mechanism for n hexagons."""
    parameters = {
        "kernel": RBF(float(CONFIG["length-scale"])),
        "coordinates": "data",
        "domain": DOMAIN,
        "response_range": (12.0, 14.0),
        "ridge": float(CONFIG["ridge"]),
        "locations": DOMAIN.grid((SIDE, SIDE)),
        "grid": (SIDE, SIDE),
        "paths": int(CONFIG["paths"]),
    } | changes
    return PosteriorMechanism.calibrated(n=n, epsilon=float(CONFIG["epsilon"]), delta=n**-1.1, **parameters)


@claim("map", "Table of hexagon widths in docs/spatial.md (all in the box, occupied in 2018)", "as measured")
def hexagon_widths() -> Measured:
    sales = _sales(2018)
    page = (ROOT / "docs/spatial.md").read_text(encoding="utf-8")
    lattices = [HexagonLattice(width, DOMAIN) for width in (500.0, 550.0, 600.0, 650.0, 700.0, 800.0)]
    rows = [f"| {each.size:g} m | {each.count():,} | {aggregate(sales, each).n:,} |" for each in lattices]
    wrong = [row for row in rows if row not in page]
    return Measured(f"{len(rows)} rows, {len(wrong)} differ {wrong or ''}".strip(), not wrong)


def without_privacy(records: Records) -> np.ndarray:
    """The non-private map: posterior mean of a Matern 3/2 process of 5 km with ridge 1, on the demo's grid."""
    posterior = DensePosterior(Matern32(5_000.0), 1.0, records.covariates, records.response - 13.0)
    return posterior.mean(DOMAIN.grid((SIDE, SIDE))).reshape(SIDE, SIDE).T >= 0.0


def overlaps(year: int, releases: int) -> np.ndarray:
    """IoU of the one-path excursion sets with the non-private one, inside the public outline; (releases, paths)."""
    records = hexagons(year)
    truth = without_privacy(records)
    outside = ~Region.read(london_region()).contains(DOMAIN.grid((SIDE, SIDE))).reshape(SIDE, SIDE).T
    run = mechanism(records.n)
    rows = []
    for _ in range(releases):
        fields = smooth(run.run(records, SystemRandomness()).on_grid().transpose(0, 2, 1), float(CONFIG["smooth"]))
        rows.append([intersection_over_union(field >= 13.0, truth, outside) for field in fields])
    return np.array(rows)


@claim("map", "Occupied hexagons of 600 m in the 2018 sales", "3,000 to 4,500")
def hexagon_count() -> Measured:
    n = hexagons(2018).n
    return Measured(f"{n:,}", 3_000 <= n <= 4_500)


@claim(
    "map",
    "IoU of one released path's {price >= e^13} with the non-private set, 2018, epsilon 9 for 3 paths",
    ">= 0.6",
)
def one_path_iou() -> Measured:
    found = overlaps(2018, releases=5)
    return Measured(f"smallest {found.min():.3f}, mean {found.mean():.3f} of {found.size}", found.min() >= 0.6)


@claim("map", "Epsilon of the demo's certificate, at delta = n^-1.1", "<= 9")
def demo_epsilon() -> Measured:
    n = hexagons(2018).n
    guarantee = mechanism(n).privacy_loss(n).guarantee(n**-1.1)
    return Measured(f"{guarantee.epsilon:.6f} by {guarantee.rule}", guarantee.epsilon <= 9.0)


@claim("map", "What the README says of the demo's records, grid, deltas, and factors on the odds", "as measured")
def readme_figures() -> Measured:
    n, sales = hexagons(2018).n, _sales(2018).n
    grid = tomllib.loads((ROOT / "examples/london.toml").read_text(encoding="utf-8"))["grid"]
    stated = (
        f"{n:,} records, epsilon 9",
        f"{math.prod(map(int, grid.split(','))):,} grid points from {sales:,} single sales, epsilon 1, "
        f"delta {round_up_significant(sales**-1.1)}",
        f"a factor of up to {math.ceil(math.exp(9)):,}; at epsilon 1 by {math.ceil(100 * math.exp(1)) / 100}",
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    wrong = [words for words in stated if words not in readme]
    return Measured("; ".join(stated) + (f"; not in README: {wrong}" if wrong else ""), not wrong)


@claim("map", "Release of the demo's size over the bare LAPACK calls, one BLAS thread", "<= 1.5 x + 2 s")
def lapack_floor() -> Measured:
    records = hexagons(2018)
    n, m = records.n, SIDE * SIDE
    with threadpool_limits(1):
        floor = min(_bare_lapack(n, m) for _ in range(2))
        run = mechanism(n)
        start = time.process_time()
        run.run(records, SystemRandomness())
        spent = time.process_time() - start
    return Measured(
        f"{spent:.2f} s against {floor:.2f} s ({spent / floor:.2f} x), n = {n:,}, m = {m:,}",
        spent <= 1.5 * floor + 2.0,
    )


def _bare_lapack(n: int, m: int) -> float:
    rng = np.random.default_rng(0)
    A, D = (np.asfortranarray(np.eye(size) * size + rng.uniform(size=(size, size))) for size in (n, m))
    B = np.asfortranarray(rng.uniform(size=(n, m)))
    (potrf,), (trsm, syrk) = get_lapack_funcs(("potrf",), (A,)), get_blas_funcs(("trsm", "syrk"), (A,))
    start = time.process_time()
    L, _ = potrf(A, lower=1, overwrite_a=1, clean=0)
    W = trsm(1.0, L, B, lower=1, overwrite_b=1)
    S = syrk(-1e-12, W, beta=1.0, c=D, trans=1, lower=1, overwrite_c=1)
    potrf(S, lower=1, overwrite_a=1, clean=0)
    return time.process_time() - start


@claim(
    "map",
    "The demo's kernel-sum release reopened by rasterio and geopandas: numbers of GeoTIFF, GeoParquet and GeoJSON that "
    "differ from sums.csv; systems; points in longitude and latitude; outlines valid; their areas against the grid",
    "0; EPSG:27700, EPSG:27700, EPSG:4326; 1e-7 degrees; all; within a cell of their length",
)
def files_reopened() -> Measured:
    import geopandas
    import rasterio
    import shapely
    from rasterio.transform import rowcol

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        words = ["release", "--config", "examples/london.toml", "--out", folder, "--formats", "geotiff,geoparquet"]
        subprocess.run([sys.executable, "-m", "discretion", *words], cwd=ROOT, check=True, capture_output=True)
        x, y, *sums = np.genfromtxt(out / "sums.csv", delimiter=",", skip_header=1).T
        with rasterio.open(out / "sums.tif") as file:
            rows, columns = map(np.asarray, rowcol(file.transform, x, y))
            pixels, systems = file.read()[:, rows, columns], [str(file.crs)]
        table: Any = geopandas.read_parquet(out / "sums.parquet")
        points: Any = geopandas.read_file(out / "sums.geojson")
        sets: Any = geopandas.read_file(out / "excursion.geojson")
    columns = ["value_sum", "density", "local_mean", "inner", "outer"]
    named = [frame[columns].to_numpy(dtype=np.float64).T for frame in (table, points)]
    differ = sum(int((~np.isclose(found, sums, 0.0, 0.0, equal_nan=True)).sum()) for found in (pixels, *named))
    differ += int((table.get_coordinates().to_numpy() != np.column_stack([x, y])).sum())
    systems += [f"EPSG:{each.to_epsg()}" for each in (table.crs, sets.crs)]
    apart = np.abs(np.subtract(points.get_coordinates(), table.to_crs(4326).get_coordinates())).max(axis=None)
    valid = bool(sets.is_valid.all())
    cell = 59_000.0 / 235 * 46_000.0 / 183
    gaps = [
        abs(shape.area - cell * shapely.contains_xy(shape, x, y).sum()) / shape.length
        for shape in sets.to_crs(27700).geometry
    ]
    return Measured(
        f"{differ}; {', '.join(systems)}; {apart:.0e}; {'all' if valid else 'not all'} valid; "
        f"{max(gaps):.0f} m on a side of {math.sqrt(cell):.0f} m",
        differ == 0
        and systems == ["EPSG:27700", "EPSG:27700", "EPSG:4326"]
        and apart <= 1e-7
        and valid
        and max(gaps) <= math.sqrt(cell),
    )


@claim("map", "Peak memory of the demo's release commands", "< 1 GiB")
def peak_memory() -> Measured:
    for name in ("london", "london_paths"):
        with tempfile.TemporaryDirectory() as folder:
            words = ["release", "--config", f"examples/{name}.toml", "--out", folder]
            subprocess.run([sys.executable, "-m", "discretion", *words], cwd=ROOT, check=True, capture_output=True)
    kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Measured(f"{kib / 2**20:.2f} GiB", kib < 2**20)


@claim(
    "map",
    "`make demo` on a fresh clone: cpu time with installation, and its files",
    "<= 180 s of cpu",
    slow=True,
)
def fresh_clone_demo() -> Measured:
    both = ("map.png", "excursion.geojson", "certificate.json", "report.html")
    wanted = [f"london/{name}" for name in ("sums.csv", "sums.geojson", *both)]
    wanted += [f"london_paths/{name}" for name in ("paths.csv", "paths.geojson", *both)]
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "discretion"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        # Python without this virtual environment, as on a new machine.
        outside = Path(sys.base_prefix) / "bin" / "python3"
        environment = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
        before = os.times()
        subprocess.run(
            [shutil.which("make") or "make", "demo", f"PYTHON={outside}"],
            cwd=clone,
            check=True,
            capture_output=True,
            env=environment,
        )
        after = os.times()
        there = [name for name in wanted if (clone / "demo" / name).stat().st_size]
        epsilons = [
            json.loads((clone / "demo" / name / "certificate.json").read_text())["epsilon"]
            for name in ("london", "london_paths")
        ]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured(
        f"{cpu:.0f} s of cpu; {', '.join(there)}; epsilon {', '.join(f'{each:.4f}' for each in epsilons)}",
        cpu <= 180 and len(there) == len(wanted),
    )
