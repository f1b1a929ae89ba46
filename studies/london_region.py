"""Draw the outline of built-up Greater London around the 2017 sales, the year declared public.

``python -m studies.london_region`` writes ``src/discretion/datasets/london/region.geojson``.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import binary_fill_holes, gaussian_filter

from discretion.datasets import london_region, london_sales
from discretion.gp import Box
from discretion.posterior.excursion import excursion_polygons, polygon_area
from discretion.spatial.geojson import multipolygon, write_geojson
from discretion.spatial.reading import read_table

DOMAIN = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
CELL = 500.0
SMALLEST = 4e6
"""Square metres below which an island is left out."""


def main() -> None:
    """Count sales on a 500 m grid, smooth, fill, outline."""
    records = read_table(
        london_sales(2017),
        covariates=("easting_m", "northing_m"),
        response="price_gbp",
        domain=DOMAIN,
        response_range=(0.0, 1e9),
    )
    x, y = (np.arange(low, high + CELL, CELL) for low, high in zip(DOMAIN.lower, DOMAIN.upper, strict=True))
    edges = [np.append(axis, axis[-1] + CELL) - CELL / 2 for axis in (x, y)]
    counts = np.histogram2d(*records.covariates.T, bins=edges)[0].T
    built = gaussian_filter((counts > 0).astype(float), 1.5)
    built = np.maximum(built, np.asarray(binary_fill_holes(built > 0.3), dtype=float))
    polygons = [
        [np.round(ring) for ring in rings if abs(polygon_area([ring])) > SMALLEST]
        for rings in excursion_polygons(gaussian_filter(built, 1.0), x, y, 0.3)
        if polygon_area(rings) > SMALLEST
    ]
    path = write_geojson(london_region(), [multipolygon(polygons)])
    print(f"{path}: {len(polygons)} polygons, {sum(map(polygon_area, polygons)) / 1e6:.0f} square kilometres")


if __name__ == "__main__":
    main()
