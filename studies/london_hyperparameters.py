"""Choose the demo's kernel, length scale, ridge and smoothing on the 2017 sales, the year declared public.

``python -m studies.london_hyperparameters`` prints, for each choice, the mean IoU of one released path's excursion set
with the non-private one, at the demo's epsilon for its number of paths. Nothing here reads the 2018 sales.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.map_claims import CONFIG, DOMAIN, SIDE, hexagons, mechanism, without_privacy
from discretion.datasets import london_region
from discretion.gp import kernel
from discretion.posterior.excursion import intersection_over_union, smooth
from discretion.privacy import SystemRandomness
from discretion.spatial import Region

YEAR = 2017
KERNELS = ("exponential", "matern32", "rbf")
METRES = (1_000.0, 1_500.0, 2_000.0, 3_000.0)
RIDGES = (30.0, 100.0, 200.0, 500.0)
SMOOTHING = (0.0, 0.7, 1.4)
RELEASES = 3


def trial(name: str, metres: float, ridge: float) -> tuple[float, ...]:
    """Mean IoU of one path, for each width of smoothing."""
    with threadpool_limits(1):
        records = hexagons(YEAR)
        truth = without_privacy(records)
        outside = ~Region.read(london_region()).contains(DOMAIN.grid((SIDE, SIDE))).reshape(SIDE, SIDE).T
        run = mechanism(records.n, kernel=kernel(name, metres), ridge=ridge)
        paths = [run.run(records, SystemRandomness()).on_grid().transpose(0, 2, 1) for _ in range(RELEASES)]
        fields = np.concatenate(paths)
        return tuple(
            float(np.mean([intersection_over_union(field >= 13.0, truth, outside) for field in smooth(fields, width)]))
            for width in SMOOTHING
        )


def main() -> None:
    """Try every choice, best first."""
    choices = list(itertools.product(KERNELS, METRES, RIDGES))
    found: Any = Parallel(n_jobs=-1, return_as="generator")(delayed(trial)(*choice) for choice in choices)
    err = Console(stderr=True)
    rows = [
        (value, *choice, width)
        for choice, values in zip(choices, track(found, "Trying", len(choices), console=err), strict=True)
        for width, value in zip(SMOOTHING, values, strict=True)
    ]
    table = Table("IoU", "kernel", "length scale, m", "ridge", "smoothing, cells")
    for value, name, metres, ridge, width in sorted(rows, reverse=True)[:20]:
        table.add_row(f"{value:.3f}", name, f"{metres:g}", f"{ridge:g}", f"{width:g}")
    print(f"{YEAR}, epsilon {CONFIG['epsilon']:g} for {CONFIG['paths']} paths, mean of {RELEASES} releases")
    Console().print(table)


if __name__ == "__main__":
    main()
