"""Figures stated about the certified privacy profile of posterior sampling, and the search that tries to refute it."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.harness import Measured, claim
from benchmarks.tight_claims import LINE, LINE_ROWS, PLANE, PLANE_ROWS, Clusters, _mutated, draw_clusters
from discretion.gp.kernels import RBF, Exponential, Kernel, RationalQuadratic
from discretion.posterior import Bounded, Exponential1D
from discretion.posterior.account import calibrate_posterior
from discretion.posterior.assumptions import RecordAssumption
from discretion.posterior.calibration import calibrated
from discretion.posterior.certified import certified_epsilon, search_space
from discretion.posterior.covering import (
    CertifiedProfile,
    ProfileProblem,
    certified_profile_epsilon,
    certify_profile,
)
from discretion.posterior.exact_pair import ExactPair
from discretion.posterior.pair import Pair, gram, pair_from_gram
from discretion.posterior.profile import WhitenedPair, accepted_profile, profile_contour, profile_range
from discretion.posterior.response_sets import BoxSet, Space
from discretion.posterior.rules import path_loss, posterior_price, profile_loss

Array = np.ndarray

# (v, v', w, s, s', r, sigma), and delta_L(eps) at (L, eps) = (1, 0.5), (1, 2), (3, 1), (10, 4)
TUPLES = {
    "A": (0.8, 0.6, 0.3, 1.5, -1.2, 2.0, 0.7),
    "B": (0.5, 0.9, -0.2, 0.4, 1.1, 1.0, 1.0),
    "E": (0.95, 0.95, 0.95, 2.0, -2.0, 3.0, 1.0),
    "Z": (0.25, 0.75, 0.0, 0.0, 0.0, 1.5, 2.0),
}
PROFILES = {
    "A": (0.08749644658, 0.0006276635168, 0.1536531539, 0.07776972633),
    "B": (0.2163390069, 0.06696842677, 0.3790967537, 0.4838485993),
    "E": (0.02844852064, 1.268267862e-07, 0.04111924061, 0.002382375855),
    "Z": (0.01143785148, 8.241981535e-05, 0.01009233725, 0.000112372394),
}

# epsilon known before for the rows of LINE_ROWS, at one per cent above a numerical supremum over a larger set
LINE_PROFILES = (3.691, 0.414, 1.204, 3.678, 0.404, 1.293, 3.899, 1.443, 4.011, 0.458, 1.395, 4.218, 4.445, 0.0473)
# r, delta, sigma, epsilon of independent residuals |s| <= 2
BOX_ROWS = (
    (1.5, 1e-3, 1.061180203, 5.394),
    (3.0, 1e-3, 2.533656095, 0.523),
    (3.0, 1e-3, 0.604712297, 2.020),
    (3.0, 1e-3, 0.2179477291, 7.257),
    (6.0, 1e-3, 0.3604683472, 0.749),
    (6.0, 1e-3, 0.1315098433, 2.513),
    (6.0, 1e-3, 0.05287656382, 7.957),
    (3.0, 1e-5, 0.9756338544, 1.912),
    (3.0, 1e-5, 0.2815426581, 7.044),
    (6.0, 1e-5, 0.5760179352, 0.689),
    (6.0, 1e-5, 0.1785665575, 2.515),
    (6.0, 1e-5, 0.06525046357, 8.095),
    (1.0, 1e-3, 1e5, 4.490),
    (2.0, 1e-3, 1e5, 0.887),
    (6.0, 1e-3, 1e5, 0.0478),
)
# L: epsilon known before at r = 6, sigma = 1, delta = 1e-3: line, independent residuals
PATH_ROWS = {1: (0.1383, 0.2212), 3: (0.2520, 0.4274), 10: (0.4984, 0.8750), 100: (1.9449, 3.5578)}
# place of 99 records with response -1, places and responses of the two records, r, sigma, epsilon at 1e-3
WITNESSES = (
    (1.0, (0.0, 0.0), (1.0, -1.0), 3.0, 0.2179477291, 2.984093),
    (1.0, (0.0, 0.0), (1.0, -1.0), 6.0, 0.05287656382, 3.253998),
    (0.25, (0.0, 1.0), (1.0, 1.0), 1.5, 1.0612, 3.101972),
)


# --- pairs ----------------------------------------------------------------------------------------


def pair_of(numbers: tuple) -> WhitenedPair:
    """The whitened pair of (v, v', w, s, s', r, sigma), arrays or numbers."""
    *rest, scale = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=float)) for x in numbers))
    return WhitenedPair.of(ExactPair.of(Pair(*rest), scale))


def witness(core: float, x: tuple, y: tuple, ridge: float, scale: float) -> WhitenedPair:
    """99 records at ``core`` with response -1, exponential kernel of length scale 0.5, and the two records."""
    points = np.concatenate([np.full(99, core), x])[:, None]
    pair = pair_from_gram(gram(Exponential(0.5), points), np.full(99, -1.0), np.float64(y[0]), np.float64(y[1]), ridge)
    return pair_of((pair.v, pair.v_other, pair.w, pair.residual, pair.residual_other, ridge, scale))


def random_pairs(rng: np.random.Generator, count: int) -> tuple[WhitenedPair, Array]:
    """Random pairs and epsilons; a third nearly equal in v, a third nearly collinear, a fifth without residuals."""
    v, v_other = 10.0 ** rng.uniform(-2.0, 0.0, (2, count))
    near = rng.uniform(size=count) < 0.3
    v_other = np.where(near, v * (1.0 - 10.0 ** rng.uniform(-8.0, -1.0, count)), v_other)
    aligned = rng.uniform(size=count) < 0.3
    rho = np.where(aligned, 1.0 - 10.0 ** rng.uniform(-9.0, -1.0, count), rng.uniform(-1.0, 1.0, count))
    s = np.where(rng.uniform(size=count) < 0.2, 0.0, rng.uniform(-2.0, 2.0, (2, count)))
    ridge, scale = 10.0 ** rng.uniform(-0.5, 1.0, count), 10.0 ** rng.uniform(-1.5, 1.0, count)
    return pair_of((v, v_other, rho * np.sqrt(v * v_other), *s, ridge, scale)), 10.0 ** rng.uniform(-2.0, 1.0, count)


# --- data sets against a certified (epsilon, delta) ------------------------------------------------


def clustered_deltas(kernel: Kernel, batch: Clusters, n: int, ridge: float, scale: float, epsilon: float) -> Array:
    """Exact delta(epsilon) of neighbouring data sets in clusters, the larger of both directions, rounded down."""
    counts, K = batch.counts(n), gram(kernel, batch.X)
    m = K.shape[-1] - 2
    # m records at one point are one record with noise r^2 / m
    noise = np.where(counts > 0, ridge**2 / np.maximum(counts, 1.0), 1e12)
    weights = np.linalg.solve(K[:, :m, :m] + noise[:, :, None] * np.eye(m), K[:, :m, m:])
    C = K[:, m:, m:] - np.swapaxes(K[:, :m, m:], 1, 2) @ weights
    s = batch.y[:, -2:] - np.einsum("bij,bi->bj", weights, batch.y[:, :-2])
    v, v_other, w = C[:, 0, 0], C[:, 1, 1], C[:, 0, 1]
    both = ((v, v_other, w, s[:, 0], s[:, 1]), (v_other, v, w, s[:, 1], s[:, 0]))
    return np.maximum(*(profile_range(pair_of((*one, ridge, scale)), epsilon, 200).low for one in both))


def largest_delta(
    kernel: Kernel,
    d: int,
    setting: tuple[int, float, float, float],
    rng: np.random.Generator,
    *,
    random: int = 4000,
    driven: int = 40,
    rounds: int = 60,
) -> float:
    """Largest delta(epsilon) over random data sets and the best of them, evolved; setting is n, r, sigma, epsilon."""
    n, ridge, scale, epsilon = setting
    batch = draw_clusters(rng, random, min(4, max(n - 1, 1)), d, scale)
    score = clustered_deltas(kernel, batch, n, ridge, scale, epsilon)
    top = np.argsort(score)[-driven:]
    parents, score, children = batch.take(top), score[top], 8
    for _ in range(rounds):
        offspring = _mutated(rng, parents.take(np.repeat(np.arange(driven), children)))
        pool = [np.concatenate([a, b]) for a, b in zip(vars(parents).values(), vars(offspring).values(), strict=True)]
        together = Clusters(*pool)
        fresh = clustered_deltas(kernel, offspring, n, ridge, scale, epsilon)
        score = np.concatenate([score, fresh])
        # the best of each family
        family = np.concatenate([np.arange(driven), np.repeat(np.arange(driven), children)])
        best = np.array([np.flatnonzero(family == k)[np.argmax(score[family == k])] for k in range(driven)])
        parents, score = together.take(best), score[best]
    return float(score.max())


# --- claims ---------------------------------------------------------------------------------------


@claim("tight", "delta_L(eps) of four reference pairs at (L, eps) = (1, .5), (1, 2), (3, 1), (10, 4)", "printed digits")
def profile_reference() -> Measured:
    worst = max(
        abs(float(profile_contour(pair_of(TUPLES[name]), epsilon, paths)[0]) / wanted - 1.0)
        for name in TUPLES
        for (paths, epsilon), wanted in zip(((1, 0.5), (1, 2.0), (3, 1.0), (10, 4.0)), PROFILES[name], strict=True)
    )
    return Measured(f"largest relative error {worst:.1e}", worst <= 5e-10)


@claim(
    "tight",
    "Two routes to the profile of 20,000 random pairs, one path: accepted contours below the proved bracket by at most",
    "1e-4 relative, where delta > 1e-6",
    slow=True,
)
def profile_routes() -> Measured:
    pair, epsilon = random_pairs(np.random.default_rng(5), 20_000)
    low, high = profile_range(pair, epsilon, 1000)
    value = accepted_profile(pair, epsilon)
    kept = (value < 1.0) & (low > 1e-6)
    below = float(np.max(1.0 - value[kept] / low[kept]))
    gap = float(np.quantile(high[kept] / low[kept] - 1.0, 0.99))
    return Measured(f"{max(below, 0.0):.1e} of {kept.sum()}; bracket (99 %) {gap:.1e}", below <= 1e-4)


def _line(n: int, ridge: float, delta: float, scale: float, paths: int = 1) -> CertifiedProfile:
    return certified_profile_epsilon(
        n=n,
        ridge=ridge,
        scale=scale,
        delta=delta,
        assumption=Exponential1D(1.0),
        least_kernel=LINE,
        paths=paths,
        tolerance=1e-2 if paths > 1 else 5e-3,
    )


@claim(
    "tight",
    "Certified profile epsilon of one path, exponential kernel on a line, n = 100, kappa = e^-2, 14 settings",
    "each at most the figure known before, none below an explicit pair of data sets; <= 3.70 at (3, 0.2179), "
    "<= 3.92 at (6, 0.0529); <= 15 s each",
)
def profile_line() -> Measured:
    found = [_line(*row[:4]) for row in LINE_ROWS]
    epsilon, slowest = [each.epsilon for each in found], max(each.seconds for each in found)
    sound = all(row[5] <= value for row, value in zip(LINE_ROWS, epsilon, strict=True))
    known = all(value <= before for value, before in zip(epsilon, LINE_PROFILES, strict=True))
    text = f"{epsilon[0]:.3f}, {epsilon[3]:.3f}, {epsilon[6]:.3f}, {epsilon[12]:.3f} (r = 1.5, 3, 6 and r = 1 without "
    text += f"means; 9, 9, 9 and 7.07 published); slowest {slowest:.1f} s"
    complete = all(each.complete for each in found)
    return Measured(
        text, sound and known and complete and epsilon[3] <= 3.70 and epsilon[6] <= 3.92 and slowest <= 15.0
    )


@claim("tight", "Certified profile of independent residuals |s| <= 2, 15 settings", "known figures to 0.1 %")
def profile_box() -> Measured:
    ratios = []
    for ridge, delta, scale, known in BOX_ROWS:
        space = search_space(Exponential1D(1.0), 100, ridge, LINE)
        free = Space(ridge, space.variance, space.least_variance, 0.0, False)
        found = ProfileProblem(free, BoxSet(2.0), scale).search(delta, tolerance=1e-2)
        ratios.append(found.epsilon / known)
    return Measured(f"ratios {min(ratios):.4f} to {max(ratios):.4f}", 0.98 <= min(ratios) <= max(ratios) <= 1.0015)


@claim(
    "tight",
    "Certified profile of L = 1, 3, 10, 100 paths (r = 6, sigma = 1, delta = 1e-3, line)",
    "<= known before",
    slow=True,
)
def profile_paths() -> Measured:
    found = {paths: _line(100, 6.0, 1e-3, 1.0, paths) for paths in PATH_ROWS}
    space = search_space(Exponential1D(1.0), 100, 6.0, LINE)
    free = Space(6.0, space.variance, space.least_variance, 0.0, False)
    boxes = {paths: ProfileProblem(free, BoxSet(2.0), 1.0, paths).search(1e-3, tolerance=1e-2) for paths in PATH_ROWS}
    text = ", ".join(f"{paths}: {one.epsilon:.4f} ({one.seconds:.0f} s)" for paths, one in found.items())
    text += "; independent residuals " + ", ".join(f"{one.epsilon:.4f}" for one in boxes.values())
    holds = all(
        found[paths].epsilon <= line and boxes[paths].epsilon <= box * 1.001 for paths, (line, box) in PATH_ROWS.items()
    )
    return Measured(text, holds)


@claim(
    "tight", "certify refuses epsilons just below three explicit pairs of data sets, and 2.95 at (3, 0.2179)", "refused"
)
def profile_refuses() -> Measured:
    start = time.process_time()
    asked = [(ridge, scale, epsilon * (1.0 - 1e-6)) for *_, ridge, scale, epsilon in WITNESSES]
    asked.append((3.0, 0.2179477291, 2.95))
    granted = [
        certify_profile(
            n=100, ridge=r, scale=s, epsilon=e, delta=1e-3, assumption=Exponential1D(1.0), least_kernel=LINE
        )
        for r, s, e in asked
    ]
    seconds = time.process_time() - start
    return Measured(f"{len(asked) - sum(granted)} of {len(asked)} refused in {seconds:.1f} s", not any(granted))


@claim(
    "tight",
    "Certified profile over certified Renyi epsilon, bounded responses, any kernel, kappa = e^-sqrt2, 15 settings",
    "< 1 each, none below an explicit pair; <= 15 s each",
)
def profile_plane() -> Measured:
    ratios, seconds, sound = [], [], True
    for n, ridge, delta, scale, _, lower in PLANE_ROWS:
        public = {"n": n, "ridge": ridge, "scale": scale, "delta": delta, "least_kernel": PLANE}
        found = certified_profile_epsilon(**public, assumption=Bounded(1.0), tolerance=1e-2)
        ratios.append(found.epsilon / certified_epsilon(**public, assumption=Bounded(1.0)))
        seconds.append(found.seconds)
        sound &= lower <= found.epsilon and found.complete
    text = f"ratios {min(ratios):.3f} to {max(ratios):.3f}; slowest {max(seconds):.1f} s"
    return Measured(text, sound and max(ratios) < 1.0 and max(seconds) <= 15.0)


def refuting_ratio(*, random: int = 4000, driven: int = 40, rounds: int = 60) -> float:
    """Largest exact delta at a certified epsilon over the delta certified, over many settings and kernels."""
    rng, worst = np.random.default_rng(0), 0.0
    tried: list[tuple[RecordAssumption, Kernel, int]] = [
        (Exponential1D(1.0), Exponential(0.5), 1),
        (Bounded(1.0), RBF(0.4), 1),
        (Bounded(1.0), Exponential(1.0), 2),
        (Bounded(1.0), RationalQuadratic(0.2, alpha=1.5), 2),
    ]
    for n, ridge, scale, delta in (
        (2, 1.0, 1.0, 1e-2),
        (8, 0.7, 2.0, 1e-3),
        (14, 4.0, 0.3, 1e-5),
        (100, 1.5, 14.9304, 1e-3),
        (100, 3.0, 0.2179477291, 1e-3),
        (100, 6.0, 0.1315098433, 1e-3),
        (4000, 10.0, 0.1, 1e-4),
    ):
        for assumption, kernel, d in tried:
            least = float(kernel(np.zeros((1, d)), np.ones((1, d)))[0, 0]) * (1.0 - 1e-14)
            found = certified_profile_epsilon(
                n=n, ridge=ridge, scale=scale, delta=delta, assumption=assumption, least_kernel=least, tolerance=1e-2
            )
            setting = (n, ridge, scale, found.epsilon)
            reached = largest_delta(kernel, d, setting, rng, random=random, driven=driven, rounds=rounds)
            worst = max(worst, reached / delta)
    return worst


@claim(
    "tight",
    "Random and optimised neighbouring data sets, n from 2 to 4000, four kernels: largest exact delta at the certified "
    "epsilon (tolerance 1 %) over the certified delta",
    "<= 1, and not far below: > 0.7",
    slow=True,
)
def profile_search() -> Measured:
    ratio = refuting_ratio()
    return Measured(f"{ratio:.4f}", 0.7 < ratio <= 1.0)


@claim(
    "tight",
    "The best proved price, n = 100, r = 3 and 6 on a line and n = 4390, r = 10 for any kernel: epsilon; seconds anew; "
    "milliseconds from what was kept on disk",
    "<= 3.70, 3.92, 0.95; <= 15 s; <= 50 ms",
)
def best_prices() -> Measured:
    line: dict[str, Any] = {"n": 100, "delta": 1e-3, "assumption": Exponential1D(1.0), "least_kernel": LINE}
    plane: dict[str, Any] = {"n": 4390, "delta": 4390.0**-1.1, "assumption": Bounded(1.0), "least_kernel": PLANE}
    rows: tuple[tuple[dict[str, Any], float], ...] = (
        (line | {"ridge": 3.0, "scale": 0.2179477291}, 3.70),
        (line | {"ridge": 6.0, "scale": 0.05287656382}, 3.92),
        (plane | {"ridge": 10.0, "scale": 0.2315925716}, 0.95),
    )
    found, anew, again = [], [], []
    before = os.environ.get("DISCRETION_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISCRETION_CACHE"] = folder
        try:
            for account, _ in rows:
                first, second = posterior_price(**account), posterior_price(**account)
                found.append(first.epsilon)
                anew.append(first.seconds)
                again.append(second.seconds if second.guarantee == first.guarantee else np.inf)
        finally:
            os.environ.pop("DISCRETION_CACHE")
            if before is not None:
                os.environ["DISCRETION_CACHE"] = before
    text = f"{', '.join(f'{epsilon:.4f}' for epsilon in found)}; {max(anew):.1f} s; {1000 * max(again):.0f} ms"
    small = all(epsilon <= most for epsilon, (_, most) in zip(found, rows, strict=True))
    return Measured(text, small and max(anew) <= 15.0 and max(again) <= 0.05)


@claim(
    "tight",
    "10 and 100 paths (r = 6, sigma = 1, delta = 1e-3, line) as multiples of one certified profile of 12 deltas, "
    "against the certified Renyi bound",
    "below it, and above 0.395, an explicit pair of data sets for 10",
    slow=True,
)
def composed_profile() -> Measured:
    account: dict[str, Any] = {
        "n": 100,
        "ridge": 6.0,
        "scale": 1.0,
        "assumption": Exponential1D(1.0),
        "least_kernel": LINE,
    }
    loss = profile_loss(**account, time_limit=120.0)
    found = {L: (L * loss).epsilon(1e-3) for L in (10, 100)}
    renyi = {L: certified_epsilon(**account, delta=1e-3, paths=L) for L in found}
    text = ", ".join(f"L = {L}: {found[L]:.4f} against {renyi[L]:.4f}" for L in found)
    return Measured(text, 0.395 < found[10] < renyi[10] and found[100] < renyi[100])


@claim(
    "tight",
    "Smallest scale for epsilon 3 at delta n^-1.1, bounded responses: by closed forms, certified Renyi, best; "
    "(n, ridge) = (4000, 200), (4390, 10)",
    "decreasing; the loss reserved for a release at the last <= 3.01",
)
def calibrated_scales() -> Measured:
    texts, holds = [], True
    for n, ridge, least in ((4000, 200.0, 0.0), (4390, 10.0, PLANE)):
        public = {"n": n, "ridge": ridge, "assumption": Bounded(1.0), "least_kernel": least}
        target = {"epsilon": 3.0, "delta": n**-1.1}
        scales = [calibrate_posterior("scale", **target, **public)]
        scales += [calibrated("scale", rule, time_limit=120.0, **target, **public)[0] for rule in ("renyi", "best")]
        released = path_loss("best", scale=scales[-1], delta=target["delta"], **public).epsilon(target["delta"])
        holds &= scales[0] > scales[1] > scales[2] and released <= 3.01
        texts.append(" / ".join(f"{scale:.4g}" for scale in scales) + f" (reserved {released:.4f})")
    return Measured("; ".join(texts), holds)
