"""Figures stated about posterior maps on public lattices: sales in London."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.ndimage import binary_fill_holes
from scipy.sparse import csr_array, diags_array

from benchmarks.harness import Measured, claim
from discretion.datasets import london_sales
from discretion.gp import RBF, Box, Exponential
from discretion.gp.lattice import Lattice
from discretion.gp.sparse import Statistics, node_statistics
from discretion.gp.tiling import Tiling
from discretion.posterior import KernelSumMechanism
from discretion.posterior.excursion import intersection_over_union
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.records import Records
from discretion.privacy import SystemRandomness, gaussian_mu
from discretion.spatial import read_table

Array = NDArray[np.float64]

DOMAIN = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
SPACING = 585.0
SMOOTH, LABELS, ROUGH = (3_000.0, 2.0), (900.0, 2.0), (3_000.0, 1.0)
"""Length scale and ridge of non-private exponential-kernel surfaces, which differ in what 2017 chose them by.

The first has the least error a sale on held-out hexagons; the second the length that predicts their labels (median at
least e^13 or not) best, 600 to 900 m; the third the least error on held-out sales."""

SETTINGS = {
    SMOOTH: {9.0: (1.0, 8.0, 0), 3.0: (1.0, 8.0, 1), 1.0: (1.0, 12.0, 3)},
    LABELS: {9.0: (1.0, 6.0, 0), 3.0: (1.0, 12.0, 0), 1.0: (1.0, 12.0, 2)},
    ROUGH: {9.0: (1.0, 6.0, 0), 3.0: (1.0, 12.0, 0), 1.0: (1.0, 12.0, 3)},
}
"""Killing, ridge and rounds of smoothing by epsilon, chosen by the IoU of paths on the 2017 sales."""


@cache
def sales(year: int) -> Any:
    """Established homes, log price clipped to [12, 14]."""
    return read_table(
        london_sales(year),
        covariates=("easting_m", "northing_m"),
        response="price_gbp",
        transform="log",
        where={"new_build": "0"},
        domain=DOMAIN,
        response_range=(12.0, 14.0),
    )


@cache
def london_lattice(killing: float) -> Lattice:
    """Hexagons of 585 m with a sale in 2017, the year that is public, and the holes between them."""
    found = np.unique(Tiling("hexagon", 1.0).cell((sales(2017).covariates - np.array(DOMAIN.lower)) / SPACING), axis=0)
    low = found.min(axis=0) - 1
    table = np.zeros(found.max(axis=0) - low + 2, dtype=bool)
    table[tuple((found - low).T)] = True
    links = np.array([[0, 1, 1], [1, 1, 1], [1, 1, 0]], dtype=bool)
    filled = np.asarray(binary_fill_holes(table, structure=links))
    return Lattice.hexagon(SPACING, DOMAIN, killing, cells=np.argwhere(filled) + low)


def surface(held: Statistics, lattice: Lattice, reference: tuple[float, float] = SMOOTH) -> Array:
    """The non-private surface at the nodes, less 13."""
    length, ridge = reference
    taken, places = held.counts > 0, lattice.locations
    assert places is not None
    K = Exponential(length)(places, places[taken])
    A = K[taken] + np.diag(ridge**2 / held.counts[taken])
    return K @ cho_solve(cho_factor(A, lower=True), held.sums[taken] / held.counts[taken])


@cache
def truth(year: int, reference: tuple[float, float] = SMOOTH) -> Array:
    """The surface of all sales of a year."""
    lattice, held = london_lattice(0.3), sales(year)
    return surface(
        node_statistics(lattice.node(held.covariates), held.response - 13.0, lattice.size), lattice, reference
    )


def london_mechanism(epsilon: float, killing: float, ridge: float, n: int) -> LatticeMechanism:
    """The mechanism at a budget for n records, delta = n^-1.1."""
    return LatticeMechanism.calibrated(
        n=n,
        epsilon=epsilon,
        delta=n**-1.1,
        lattice=london_lattice(killing),
        response_range=(12.0, 14.0),
        ridge=ridge,
        unit="one sale",
    )


def overlap(values: Array, surface: Array) -> float:
    """IoU of {values >= 13} with the non-private set."""
    return float(intersection_over_union(values >= 13.0, surface >= 0.0))


def london_paths(mechanism: LatticeMechanism, count: int, year: int = 2018) -> Array:
    """Independent single paths of a year's sales, (count, N)."""
    held = sales(year)
    mean, factor = mechanism.statistics(held).posterior(mechanism.lattice, mechanism.ridge)
    noise = factor.colour(SystemRandomness().standard_normal((mechanism.lattice.size, count)))
    return 13.0 + (mean[:, None] + mechanism.scale * noise).T


def means_with_neighbours(values: Array, rounds: int) -> Array:
    """As `LatticeRelease.smoothed`, (count, N)."""
    W, own = neighbours()
    for _ in range(rounds):
        values = ((W @ values.T + values.T) / own[:, None]).T
    return values


@cache
def neighbours() -> tuple[Any, Array]:
    """Adjacency of the London hexagons, and one more than the number of neighbours."""
    Q = london_lattice(0.3).precision / london_lattice(0.3).unit
    W = csr_array(diags_array(Q.diagonal()) - Q)
    return W, np.asarray(W.sum(axis=1)) + 1.0


@claim(
    "lattice",
    "London 2018, 92,153 sales on hexagons of 585 m: IoU of one path's {price >= e^13} with a non-private set, mean of "
    "40, epsilon 9 / 3 / 1; references of 3 km and ridge 2, 900 m and ridge 2, 3 km and ridge 1",
    "first >= 0.83 / 0.76 / 0.69; the others as measured",
    slow=True,
)
def lattice_london_iou() -> Measured:
    n, rows = sales(2018).n, []
    for reference, settings in SETTINGS.items():
        found = []
        for epsilon, (killing, ridge, rounds) in settings.items():
            paths = means_with_neighbours(london_paths(london_mechanism(epsilon, killing, ridge, n), 40), rounds)
            found.append(float(np.mean([overlap(path, truth(2018, reference)) for path in paths])))
        rows.append(found)
    holds = all(value >= least for value, least in zip(rows[0], (0.83, 0.76, 0.69), strict=True))
    return Measured("; ".join(" / ".join(f"{value:.3f}" for value in each) for each in rows), holds)


def error(values: Array, surface: Array) -> float:
    """Root mean square over the nodes."""
    return float(np.sqrt(np.mean(np.square(values - 13.0 - surface))))


VALUES = {LABELS: (0.3, 4.5, 1.16), SMOOTH: (0.1, 4.5, 1.11)}
"""Killing, ridge and public constant of a path as a map of values, chosen on 2017 for each reference."""


def value_errors(reference: tuple[float, float], ways: list[tuple[float, float]]) -> tuple[float, float]:
    """At epsilon 9: of one path times its constant, and of noisy sums over noisy counts in the best of some ways."""
    killing, ridge, constant = VALUES[reference]
    n, target = sales(2018).n, truth(2018, reference)
    paths = london_paths(london_mechanism(9.0, killing, ridge, n), 10)
    mine = float(np.mean([error(13.0 + constant * (path - 13.0), target) for path in paths]))
    best = min(ways, key=lambda way: noisy_cells(2017, *way, reference))
    return mine, noisy_cells(2018, *best, reference)


def noise_of_sums(n: int) -> float:
    """Standard deviation of sums and counts together at epsilon 9, delta = n^-1.1, sensitivity 2."""
    return 2.0 / float(gaussian_mu(9.0, n**-1.1))


def noisy_cells(year: int, width: float, floor: float, reference: tuple[float, float]) -> float:
    """Error of noisy sums over noisy counts, both smoothed over so many cells.

    Counts are at least ``floor`` times the noise that is left of them; with floor 0 at least 1.
    """
    held, lattice, places = sales(year), london_lattice(0.3), london_lattice(0.3).locations
    assert places is not None
    stats, scale = (
        node_statistics(lattice.node(held.covariates), held.response - 13.0, lattice.size),
        noise_of_sums(held.n),
    )
    K = RBF(width * SPACING)(places) if width else np.eye(lattice.size)
    left = scale * np.sqrt(np.square(K).sum(axis=1))
    found = []
    for _ in range(3):
        noise = SystemRandomness().standard_normal((lattice.size, 2)) * scale
        sums, counts = (K @ (np.stack([stats.sums, stats.counts], axis=1) + noise)).T
        values = sums / np.maximum(counts, floor * left if floor else 1.0)
        found.append(error(13.0 + np.clip(values, -1.0, 1.0), truth(year, reference)))
    return float(np.mean(found))


@claim(
    "lattice",
    "London 2018 at epsilon 9, map of values, RMSE of one path times a constant; of noisy sums over noisy counts, both "
    "smoothed over 0, 1, 2 or 3.5 cells, counts at least 1; to the surfaces of 900 m and of 3 km",
    "first path >= 10 % below sums; second below",
    slow=True,
)
def lattice_london_values() -> Measured:
    ways = [(width, 0.0) for width in (0.0, 1.0, 2.0, 3.5)]
    found = [value_errors(reference, ways) for reference in (LABELS, SMOOTH)]
    text = "; ".join(f"{mine:.3f}, {theirs:.3f} ({1.0 - mine / theirs:.0%} below)" for mine, theirs in found)
    return Measured(text, found[0][0] <= 0.9 * found[0][1] and found[1][0] < found[1][1])


@claim(
    "lattice",
    "The same against sums that are tuned: widths 0.7 and 1 too, counts at least 1 to 8 times their noise; then kernel "
    "sums with density (RBF 350 m and 500 m, density at least 12 times its noise); surfaces of 900 m and of 3 km",
    "negative result: the path is not 5 % below tuned cells, and kernel sums are not above it by 5 %",
    slow=True,
)
def lattice_london_values_tuned() -> Measured:
    ways = [(width, floor) for width in (0.7, 1.0, 2.0) for floor in (0.0, 1.0, 2.0, 4.0, 8.0)]
    text, holds = [], True
    for reference, length in ((LABELS, 350.0), (SMOOTH, 500.0)):
        mine, cells = value_errors(reference, ways)
        sums = kernel_sum_error(length, 12.0, reference)
        text.append(f"{mine:.3f}, {cells:.3f}, {sums:.3f}")
        holds &= cells <= 1.05 * mine and sums <= 1.05 * mine
    return Measured("; ".join(text), holds)


def kernel_sum_error(length: float, floor: float, reference: tuple[float, float]) -> float:
    """Error of the local means of a kernel sum, its density at least ``floor`` times its noise."""
    held = sales(2018)
    sums = KernelSumMechanism.calibrated(
        epsilon=9.0,
        n=held.n,
        delta=held.n**-1.1,
        kernels=RBF(length),
        domain=DOMAIN,
        response_ranges=(12.0, 14.0),
        locations=london_lattice(0.3).locations,
        coordinates="data",
        unit="one sale",
    )
    found = []
    for _ in range(3):
        release = sums.run(held, SystemRandomness())
        assert release.density is not None
        density = np.maximum(release.density[0], floor * sums.scale)
        found.append(error(13.0 + sums.density_bound * release.value_sums[0, 0] / density, truth(2018, reference)))
    return float(np.mean(found))


@claim(
    "lattice",
    "London 2018 at epsilon 9, map of values, best linear estimate under a public prior (3 km) and public counts, both "
    "of 2017: from one path (r = 6), from noisy sums and counts of the same hexagons; surfaces of 3 km, of 900 m",
    "path >= 10 % below the kernel sums of the row before (0.073, 0.095); negative result: sums are below the path",
    slow=True,
)
def lattice_london_decoded() -> Measured:
    targets, lattice = [truth(2018, each) for each in (SMOOTH, LABELS)], london_lattice(0.3)
    expected = np.maximum(means_with_neighbours(counts_of(2017)[None], 1)[0], 0.3)
    prior = FIELD_VARIANCE * Exponential(3_000.0)(lattice.locations)  # pyright: ignore[reportArgumentType]
    run = london_mechanism(9.0, 0.3, 6.0, sales(2018).n)
    R = expected / run.ridge**2
    # the path is A^{-1} R (f + e) + scale A^{-1/2} z, A = P + R
    A = lattice.precision.toarray() + np.diag(R)
    paths = A @ (london_paths(run, 8) - 13.0).T
    of_paths = decoded(prior, R, SALE_VARIANCE * R * R / expected, run.scale**2 * A, paths)

    scale, held = noise_of_sums(sales(2018).n), sales(2018)
    stats = node_statistics(lattice.node(held.covariates), held.response - 13.0, lattice.size)
    noise = scale * SystemRandomness().standard_normal((2, lattice.size))
    spread = expected + 0.25 * expected**2  # of this year's counts about last year's
    counts = ((stats.counts + noise[1]) / scale**2 + expected / spread) / (1.0 / scale**2 + 1.0 / spread)
    counts = np.maximum(counts, 0.3)
    noisy = (stats.sums + noise[0])[:, None]
    of_sums = decoded(prior, counts, SALE_VARIANCE * counts, scale**2 * np.eye(lattice.size), noisy)
    found = [
        [float(np.mean([error(13.0 + one, each) for one in values.T])) for values in (of_paths, of_sums)]
        for each in targets
    ]
    text = "; ".join(f"{path:.3f}, {sums:.3f}" for path, sums in found)
    holds = all(sums < path <= 0.9 * best for (path, sums), best in zip(found, (0.073, 0.095), strict=True))
    return Measured(text, holds)


FIELD_VARIANCE, SALE_VARIANCE = 0.11, 0.11
"""Of the log price about 13: of the field, and of a sale about it; both from 2017."""


def counts_of(year: int) -> Array:
    """Sales of a year at each hexagon."""
    lattice = london_lattice(0.3)
    return np.bincount(lattice.node(sales(year).covariates), minlength=lattice.size).astype(np.float64)


def decoded(prior: Array, gain: Array, own: Array, noise: Array, seen: Array) -> Array:
    """The best linear estimates of f from columns ``gain f + N(0, diag(own) + noise)``, f ~ N(0, prior)."""
    covariance = gain[:, None] * prior * gain + noise
    covariance[np.diag_indices_from(covariance)] += own
    return prior @ (gain[:, None] * cho_solve(cho_factor(covariance, lower=True, overwrite_a=True), seen))


@claim(
    "lattice",
    "London 2018, medians of hexagons (one record a node) at epsilon 9: IoU of one lattice path (r = 64), of a kernel "
    "sum (RBF 900 m)",
    "negative result: the lattice gains less than 0.03",
    slow=True,
)
def lattice_london_medians() -> Measured:
    held, lattice = sales(2018), london_lattice(0.3)
    node = lattice.node(held.covariates)
    occupied = np.unique(node)
    response = np.array([np.median(held.response[node == each]) for each in occupied])
    assert lattice.locations is not None
    records = Records(lattice.locations[occupied], response)
    n = occupied.size
    reference = surface(node_statistics(occupied, response - 13.0, lattice.size), lattice)
    run = london_mechanism(9.0, 0.3, 64.0, n)
    mine = np.mean([overlap(run.run(records, SystemRandomness()).smoothed(2)[0], reference) for _ in range(10)])
    sums = KernelSumMechanism.calibrated(
        epsilon=9.0,
        n=n,
        delta=n**-1.1,
        kernels=RBF(900.0),
        domain=DOMAIN,
        response_ranges=(12.0, 14.0),
        locations=lattice.locations,
        coordinates="data",
        density=False,
        unit="one hexagon's record",
    )
    theirs = np.mean(
        [overlap(13.0 + sums.run(records, SystemRandomness()).value_sums[0, 0], reference) for _ in range(10)]
    )
    return Measured(f"n = {n:,}: {mine:.3f}, {theirs:.3f}", bool(mine - theirs < 0.03))
