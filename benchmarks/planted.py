"""Plant one record, make a release of it in every way a user can, and search whatever is left for its values."""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

from discretion import Box, Ledger, PosteriorSampler
from discretion.posterior import KernelSum

EASTING, NORTHING, PRICE = 530123.4567, 180765.4321, 765432.198


def patterns() -> list[bytes]:
    """Byte patterns of the planted values: text, and doubles of both byte orders, in raw and derived units."""
    domain = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
    unit = domain.unit(np.array([[EASTING, NORTHING]]))[0]
    values = [EASTING, NORTHING, PRICE, *unit, np.log(PRICE), np.log(PRICE) - 13.0]
    found: list[bytes] = []
    for value in values:
        digits = f"{value:.10f}".lstrip("0").lstrip(".")
        found += [digits[:9].encode(), digits[:9].replace(".", ",").encode(), f"{value:,.4f}"[:11].encode()]
        found += [np.array(value, dtype=order + "f8").tobytes() for order in "<>"]
    return sorted(set(found))


def table(path: Path, rows: int = 400, *, broken: bool = False) -> None:
    """A table with the planted record among made-up ones; ``broken``: with an infinite value beside it."""
    rng = np.random.default_rng(0)
    lines = ["easting_m,northing_m,price_gbp"]
    for e, n, p in zip(
        rng.uniform(505_000, 560_000, rows),
        rng.uniform(157_000, 199_000, rows),
        rng.lognormal(13, 0.5, rows),
        strict=True,
    ):
        lines.append(f"{e:.1f},{n:.1f},{p:.0f}")
    lines.insert(rows // 2, f"{EASTING},{NORTHING},{PRICE}")
    if broken:
        lines.insert(rows // 3, f"{EASTING},{NORTHING},inf")
        lines.insert(rows // 4, f"{PRICE},{EASTING},{PRICE}x")
    path.write_text("\n".join(lines) + "\n")


def leaks() -> tuple[list[str], list[str]]:
    """Names of the places searched, and of those where a pattern was found."""
    places: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        out, book, sales = home / "out", home / "ledger.sqlite", home / "sales.csv"
        table(sales)
        table(home / "broken.csv", broken=True)
        Ledger.create(book, dataset="planted", epsilon=7.0, delta=3e-3)
        release = [
            *(sys.executable, "-m", "discretion", "release"),
            *("--covariates", "easting_m,northing_m", "--response", "price_gbp", "--transform", "log"),
            *(
                "--domain",
                "503000:562000,155000:201000",
                "--response-range",
                "12:14",
                "--length-scale",
                "0.1",
            ),
            *("--epsilon", "3", "--delta", "1e-3", "--grid", "12", "--threshold", "13", "--ledger", str(book)),
        ]
        paths = [*release, "--mechanism", "posterior"]
        runs = {
            "release": [*paths, str(sales), "--paths", "2", "--out", str(out)],
            "release of sums": [*release, str(sales), "--out", str(home / "sums")],
            "over budget": [*release, str(sales), "--epsilon", "9", "--out", str(home / "again")],
            "broken table": [*paths, str(home / "broken.csv"), "--out", str(home / "other")],
            "broken table of sums": [*release, str(home / "broken.csv"), "--out", str(home / "another")],
        }
        for name, command in runs.items():
            ran = subprocess.run(command, capture_output=True, check=False)
            places[f"stdout of {name}"], places[f"stderr of {name}"] = ran.stdout, ran.stderr
            if (ran.returncode == 0) != name.startswith("release"):
                raise RuntimeError(f"{name} ended with exit code {ran.returncode}.")
        for path in sorted(home.rglob("*")):
            if (path.is_file() and path.suffix != ".csv") or path.name in ("paths.csv", "sums.csv"):
                places[str(path.relative_to(home))] = path.read_bytes()

        X = np.array([[EASTING, NORTHING], [510_000.0, 160_000.0], [550_000.0, 190_000.0]])
        y = np.log([PRICE, 4e5, 5e5])
        domain = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
        for estimator in (
            PosteriorSampler(domain, (12, 14), ridge=5.0, scale=0.1, delta=1e-3, grid=4),
            KernelSum(domain, (12, 14), scale=1.0, delta=1e-3, grid=4),
        ):
            kind, fitted = type(estimator).__name__, estimator.fit(X, y)
            places[f"pickle of {kind}"] = pickle.dumps(fitted)
            places[f"pickle of the release of {kind}"] = pickle.dumps(fitted.release_)
            public = [fitted, fitted.release_, fitted.mechanism_, vars(fitted)]
            places[f"representations of {kind}"] = repr(public).encode()
            for name, bad in (("NaN", np.nan), ("infinity", np.inf), ("text", f"{PRICE}x")):
                try:
                    fitted.fit(X, np.append(y[:2].astype(object), bad))
                except ValueError:
                    places[f"error of {kind} on {name}"] = traceback.format_exc().encode()
                else:
                    raise RuntimeError(f"{kind} took {name} for a response.")
    for name in [name for name in places if name.endswith(".gz")]:
        places[name] = gzip.decompress(places[name])
    marks = patterns()
    return list(places), [name for name, data in places.items() if any(mark in data for mark in marks)]
