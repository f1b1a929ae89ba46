"""Figures stated about the certified account of posterior sampling, and the search that tries to refute it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from benchmarks import brute_force
from benchmarks.brute_force import _linear_map, _weights, _worst_graph, _worst_signs
from benchmarks.harness import Measured, claim
from discretion.gp.kernels import RBF, Exponential, Kernel, Matern32, RationalQuadratic
from discretion.posterior import RKHS, Bounded, Exponential1D
from discretion.posterior.account import path_routes
from discretion.posterior.assumptions import RecordAssumption
from discretion.posterior.certified import CertifiedTable, certified_epsilon, certified_loss, certified_renyi
from discretion.posterior.pair import Pair, gram, pair_from_gram

Array = np.ndarray

LINE = math.exp(-2.0)
PLANE = math.exp(-math.sqrt(2.0))

# n, r, delta, sigma, certified Renyi epsilon known before, exact epsilon of an explicit pair (0: none known)
LINE_ROWS = (
    (100, 1.5, 1e-3, 1.061180203, 4.797, 3.114),
    (100, 3.0, 1e-3, 2.533656095, 0.655, 0.379),
    (100, 3.0, 1e-3, 0.604712297, 1.483, 0.974),
    (100, 3.0, 1e-3, 0.2179477291, 4.179, 2.985),
    (100, 6.0, 1e-3, 0.3604683472, 0.488, 0.0),
    (100, 6.0, 1e-3, 0.1315098433, 1.477, 1.079),
    (100, 6.0, 1e-3, 0.05287656382, 4.346, 3.254),
    (100, 3.0, 1e-5, 0.9756338544, 1.723, 0.0),
    (100, 3.0, 1e-5, 0.2815426581, 4.408, 0.0),
    (100, 6.0, 1e-5, 0.5760179352, 0.530, 0.0),
    (100, 6.0, 1e-5, 0.1785665575, 1.524, 0.0),
    (100, 6.0, 1e-5, 0.06525046357, 4.527, 0.0),
    (100, 1.0, 1e-3, 1e5, 7.007, 0.0),
    (100, 6.0, 1e-3, 1e5, 0.0976, 0.0),
)
_DELTA = 4390.0**-1.1
PLANE_ROWS = (
    (100, 5.0, 1e-3, 1.426580028, 0.289, 0.0),
    (100, 5.0, 1e-3, 0.501733923, 0.721, 0.0),
    (100, 5.0, 1e-3, 0.1992010907, 1.988, 0.937),
    (400, 3.0, 1e-3, 8.755420438, 0.611, 0.0),
    (400, 3.0, 1e-3, 2.168056999, 1.196, 0.0),
    (400, 3.0, 1e-3, 0.7868492458, 3.072, 0.817),
    (400, 8.0, 1e-3, 0.8797967196, 0.151, 0.0),
    (400, 8.0, 1e-3, 0.3336353915, 0.421, 0.0),
    (400, 8.0, 1e-3, 0.1360777894, 1.167, 0.502),
    (4390, 10.0, _DELTA, 1.619742376, 0.132, 0.0),
    (4390, 10.0, _DELTA, 0.5904677672, 0.344, 0.0),
    (4390, 10.0, _DELTA, 0.2315925716, 0.943, 0.0),
    (4390, 40.0, _DELTA, 0.1611634433, 0.0267, 0.0),
    (4390, 40.0, _DELTA, 0.06089145358, 0.080, 0.0),
    (4390, 40.0, _DELTA, 0.0242064874, 0.225, 0.0),
)


# --- data sets against the certified tables -------------------------------------------------------


@dataclass(frozen=True)
class Clusters:
    """Neighbouring data sets of n records in clusters; the clusters, x and x' in this order along axis 1.

    ``share`` (B, c) are weights from which the counts of the clusters follow; ``close`` in (0, 1) places the order
    between 1 and the end of the table, ``scale`` is sigma.
    """

    X: Array
    y: Array
    share: Array
    close: Array
    scale: Array

    def take(self, index: Array) -> Clusters:
        return Clusters(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def counts(self, n: int) -> Array:
        """Records in each cluster, n - 1 in all: rounded down, the rest in the largest."""
        weights = self.share / self.share.sum(axis=1, keepdims=True)
        counts = np.floor((n - 1) * weights)
        counts[np.arange(len(counts)), np.argmax(weights, axis=1)] += n - 1 - counts.sum(axis=1)
        return counts


def draw_clusters(rng: np.random.Generator, count: int, clusters: int, d: int, scale: float) -> Clusters:
    """Random batch in the unit cube; scales within a factor of 100 about ``scale``."""
    X = rng.uniform(size=(count, clusters + 2, d))
    X = np.where(rng.uniform(size=(count, 1, 1)) < 0.3, np.round(X), X)
    near = rng.uniform(size=count) < 0.3
    X[near, -2] = np.clip(X[near, 0] + 0.05 * rng.normal(size=(near.sum(), d)), 0.0, 1.0)
    y = rng.choice([-1.0, 1.0], (count, clusters + 2))
    y[:, -2:] = [1.0, -1.0]
    return Clusters(
        X=X,
        y=y,
        share=rng.dirichlet(np.ones(clusters), count) + 1e-9,
        close=rng.uniform(1e-3, 0.999, count),
        scale=scale * 10.0 ** rng.uniform(-1.0, 1.0, count),
    )


def clustered_ratio(table: CertifiedTable, kernel: Kernel, batch: Clusters) -> Array:
    """Exact divergence over the certified bound, responses moved to their worst ends or their worst function."""
    counts = batch.counts(table.n)
    K = gram(kernel, batch.X)
    r = table.ridge
    # m records at one point are one record with noise r^2 / m
    m = K.shape[-1] - 2
    noise = np.where(counts > 0, r * r / np.maximum(counts, 1.0), 1e12)
    A = K[:, :m, :m] + noise[:, :, None] * np.eye(m)
    weights = np.linalg.solve(A, K[:, :m, m:])
    C = K[:, m:, m:] - np.swapaxes(K[:, :m, m:], 1, 2) @ weights

    def pair(y: Array) -> Pair:
        mean = np.einsum("bij,bi->bj", weights, y[:, :-2])
        residuals = y[:, -2:] - mean
        ridge = np.full(len(y), r)
        return Pair(C[:, 0, 0], C[:, 1, 1], C[:, 0, 1], residuals[:, 0], residuals[:, 1], ridge)

    L = _linear_map(pair(batch.y), weights)
    excess = np.exp(np.log(0.01) + batch.close * (np.log(table.excess[-1]) - np.log(0.01)))
    bound = table.renyi(excess, batch.scale)
    best = np.zeros(len(batch.scale))
    for y in _worst_responses(table.assumption, L, K, batch.y):
        best = np.maximum(best, pair(y).divergence(excess, batch.scale) / bound)
    return best


def _worst_responses(assumption: object, L: Array, K: Array, y: Array) -> list[Array]:
    if isinstance(assumption, RKHS):
        f, _ = _worst_graph(L, K)
        noise = _worst_signs(L, np.where(f >= 0.0, 1.0, -1.0))
        return [assumption.norm * f + assumption.noise * noise]
    return [y, _worst_signs(L, y)]


def _mutated(rng: np.random.Generator, batch: Clusters) -> Clusters:
    count, points, _ = batch.X.shape
    step = 10.0 ** rng.uniform(-3.0, -0.5, (count, 1, 1))
    chosen = rng.uniform(size=(count, points, 1)) < 0.5
    close = batch.close + 10.0 ** rng.uniform(-3.0, -0.5, count) * rng.normal(size=count)
    return Clusters(
        X=np.clip(batch.X + step * chosen * rng.normal(size=batch.X.shape), 0.0, 1.0),
        y=np.where(rng.uniform(size=batch.y.shape) < 0.05, -batch.y, batch.y),
        share=batch.share * np.exp(step[:, 0] * 5.0 * rng.normal(size=batch.share.shape)),
        close=np.clip(close, 1e-3, 0.999),
        scale=batch.scale * np.exp(10.0 ** rng.uniform(-2.5, 0.0, count) * rng.normal(size=count)),
    )


def driven_ratio(
    table: CertifiedTable, kernel: Kernel, d: int, rng: np.random.Generator, *, random: int, driven: int, rounds: int
) -> float:
    """Largest ratio of exact divergence to certified bound over random data sets and the best of them, evolved."""
    batch = draw_clusters(rng, random, min(5, max(table.n - 1, 1)), d, float(table.energy[13]) ** -0.5)
    ratio = clustered_ratio(table, kernel, batch)
    top = np.argsort(ratio)[-driven:]
    parents, score = batch.take(top), ratio[top]
    children = 8
    for _ in range(rounds):
        offspring = _mutated(rng, parents.take(np.repeat(np.arange(driven), children)))
        found = clustered_ratio(table, kernel, offspring).reshape(driven, children)
        champion = np.argmax(found, axis=1)
        better = found[np.arange(driven), champion] > score
        winners = offspring.take(np.arange(driven) * children + champion)
        parents = Clusters(
            **{
                f.name: np.where(
                    better.reshape(-1, *[1] * (getattr(parents, f.name).ndim - 1)),
                    getattr(winners, f.name),
                    getattr(parents, f.name),
                )
                for f in fields(Clusters)
            }
        )
        score = np.where(better, found[np.arange(driven), champion], score)
    return float(max(ratio.max(), score.max()))


def drawn_ratio(table: CertifiedTable, kernel: Kernel, d: int, rng: np.random.Generator, count: int) -> float:
    """As :func:`driven_ratio` over the data sets that the search against the published bounds draws, n at most 14."""
    batch = brute_force.draw(rng, count, table.n, d)
    r = np.full(count, table.ridge)
    K = gram(kernel, batch.X)
    y = batch.y
    for _ in range(2):
        pair = pair_from_gram(K, y[:, :-2], y[:, -2], y[:, -1], r)
        L = _linear_map(pair, _weights(K, r))
        y = _worst_responses(table.assumption, L, K, y)[-1]
    pair = pair_from_gram(K, y[:, :-2], y[:, -2], y[:, -1], r)
    excess = np.maximum(batch.closeness * table.excess[-1], 1e-3)
    return float(np.max(pair.divergence(excess, batch.scale) / table.renyi(excess, batch.scale)))


def settings(assumption: RecordAssumption) -> list[tuple[Kernel, int]]:
    """Kernels and dimensions to try against an assumption."""
    if isinstance(assumption, Exponential1D):
        return [(Exponential(length), 1) for length in (0.5, 0.05)]
    kernels: tuple[Kernel, ...] = (Exponential(1.0), RBF(0.3), Matern32(0.3), RationalQuadratic(0.2, alpha=1.5))
    return [(kernel, d) for kernel in kernels for d in (1, 2)]


def largest_ratio(
    assumption: RecordAssumption, *, random: int = 4000, driven: int = 40, rounds: int = 60, seed: int = 0
) -> float:
    """Largest ratio of exact divergence to certified bound found under an assumption, over many tables."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    for n, ridge in ((1, 0.8), (2, 1.0), (5, 1.5), (14, 0.7), (14, 4.0), (100, 1.5), (100, 6.0), (4000, 10.0)):
        anywhere = CertifiedTable(n, ridge, assumption)
        for index, (kernel, d) in enumerate(settings(assumption)):
            # odd settings: the table of this very kernel on the unit cube
            least = float(kernel(np.zeros((1, d)), np.ones((1, d)))[0, 0]) * (1.0 - 1e-14)
            table = CertifiedTable(n, ridge, assumption, least) if index % 2 else anywhere
            worst = max(worst, driven_ratio(table, kernel, d, rng, random=random, driven=driven, rounds=rounds))
            if n <= 14:
                worst = max(worst, drawn_ratio(table, kernel, d, rng, random))
    return worst


# --- claims ---------------------------------------------------------------------------------------


def certified_rows(
    assumption: RecordAssumption, least_kernel: float, rows: tuple
) -> tuple[list[float], list[float], bool]:
    """Certified epsilon and seconds of each row; whether none exceeds what was known nor undercuts an explicit pair."""
    found, seconds, sound = [], [], True
    for n, ridge, delta, scale, known, lower in rows:
        start = time.process_time()
        epsilon = certified_epsilon(
            n=n, ridge=ridge, scale=scale, delta=delta, assumption=assumption, least_kernel=least_kernel
        )
        seconds.append(time.process_time() - start)
        found.append(epsilon)
        sound &= lower <= epsilon <= known * 1.002
    return found, seconds, sound


@claim(
    "tight",
    "Certified Renyi epsilon of one path, exponential kernel on a line, n = 100, kappa = e^-2, 14 settings",
    "each at most the figure known before, none below an explicit pair of data sets; <= 3 s each",
)
def certified_line() -> Measured:
    found, seconds, sound = certified_rows(Exponential1D(1.0), LINE, LINE_ROWS)
    text = f"r = 3, sigma = 0.2179, delta = 1e-3: {found[3]:.4f} (9 published); slowest {max(seconds):.2f} s"
    return Measured(text, sound and max(seconds) <= 3.0)


@claim(
    "tight",
    "Certified Renyi epsilon of one path, bounded responses, any kernel, kappa = e^-sqrt2, 15 settings",
    "as on the line",
)
def certified_plane() -> Measured:
    found, seconds, sound = certified_rows(Bounded(1.0), PLANE, PLANE_ROWS)
    text = (
        f"n = 400, r = 8, sigma = 0.136: {found[8]:.4f} (9 published); n = 4390, r = 10, sigma = 0.232: "
        f"{found[11]:.4f}; slowest {max(seconds):.2f} s"
    )
    return Measured(text, sound and max(seconds) <= 3.0)


@claim(
    "tight", "Certified epsilon of L = 1, 3, 10, 100 paths (r = 6, sigma = 1, delta = 1e-3, line)", "<= known before"
)
def certified_paths() -> Measured:
    known = {1: 0.1943, 3: 0.3186, 10: 0.5923, 100: 2.1773}
    found = {
        paths: certified_epsilon(
            n=100, ridge=6.0, scale=1.0, delta=1e-3, assumption=Exponential1D(1.0), least_kernel=LINE, paths=paths
        )
        for paths in known
    }
    text = ", ".join(f"{paths}: {epsilon:.4f}" for paths, epsilon in found.items())
    return Measured(text, all(found[paths] <= 1.001 * known[paths] for paths in known))


@claim("tight", "Published Renyi bounds over certified ones at 5 orders of 29 settings: smallest ratio", ">= 1")
def published_over_certified() -> Measured:
    smallest = math.inf
    for assumption, least, rows in ((Exponential1D(1.0), LINE, LINE_ROWS), (Bounded(1.0), PLANE, PLANE_ROWS)):
        for n, ridge, _, scale, _, _ in rows:
            excess = ridge**2 * np.array([0.02, 0.1, 0.3, 0.7, 0.95])
            found = certified_renyi(
                n=n, ridge=ridge, scale=scale, assumption=assumption, least_kernel=least, excess=excess
            )
            columns = [np.full(excess.shape, float(value)) for value in (n, ridge, scale, least, 0.0)]
            published = np.min([named.route.renyi(excess) for named in path_routes(assumption, *columns)], axis=0)
            smallest = min(smallest, float(np.min(published / found.bound)))
    return Measured(f"{smallest:.4f}", smallest >= 1.0 - 3e-3)


@claim(
    "tight",
    "A certified loss, good for every delta: seconds, and its epsilon over that of the best order",
    "<= 5 s, <= 1 %",
)
def certified_loss_time() -> Measured:
    worst, slowest = 0.0, 0.0
    for assumption, least, row in (
        (Exponential1D(1.0), LINE, LINE_ROWS[3]),
        (Exponential1D(1.0), LINE, LINE_ROWS[6]),
        (Bounded(1.0), PLANE, PLANE_ROWS[8]),
        (Bounded(1.0), PLANE, PLANE_ROWS[11]),
    ):
        n, ridge, delta, scale = row[:4]
        start = time.process_time()
        loss = certified_loss(n=n, ridge=ridge, scale=scale, assumption=assumption, least_kernel=least)
        slowest = max(slowest, time.process_time() - start)
        best = certified_epsilon(n=n, ridge=ridge, scale=scale, delta=delta, assumption=assumption, least_kernel=least)
        worst = max(worst, loss.epsilon(delta) / best - 1.0)
    return Measured(f"{slowest:.1f} s, {100 * worst:.2f} %", slowest <= 5.0 and worst <= 0.01)


@claim(
    "tight",
    "Certified epsilons of a 400-point grid (20 ridges, 5 scales, 4 length scales) from one table a ridge, line; "
    "loss against single searches",
    "<= 15 s; <= 2 %",
)
def certified_grid() -> Measured:
    ridges, scales = np.geomspace(1.0, 25.0, 20), np.geomspace(0.1, 10.0, 5)
    start = time.process_time()
    # one table serves all length scales
    found = [CertifiedTable(100, float(ridge), Exponential1D(1.0)).epsilon(scales / ridge, 1e-3) for ridge in ridges]
    seconds = time.process_time() - start
    worst = max(
        float(found[i][j])
        / certified_epsilon(
            n=100, ridge=ridges[i], scale=scales[j] / ridges[i], delta=1e-3, assumption=Exponential1D(1.0)
        )
        for i in range(0, 20, 3)
        for j in range(5)
    )
    return Measured(f"{seconds:.1f} s; {100 * (worst - 1):.2f} %", seconds <= 15.0 and worst <= 1.02)


def _search(assumption: RecordAssumption) -> Callable[[], Measured]:
    def measure() -> Measured:
        ratio = largest_ratio(assumption)
        return Measured(f"{ratio:.4f}", 0.98 < ratio <= 1.0 + brute_force.TOLERANCE)

    measure.__name__ = f"certified_search_{assumption.name.replace('-', '_')}"
    return measure


for _assumption in (Exponential1D(1.0), Bounded(1.0), RKHS(1.0, 0.2)):
    claim(
        "tight",
        f"Random and optimised neighbouring data sets ({_assumption.name}), n from 1 to 4000: largest exact divergence "
        "over the certified bound at tolerance 1 %",
        "<= 1 + 1e-6, and attained: > 0.98",
        slow=True,
    )(_search(_assumption))
