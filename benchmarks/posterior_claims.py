"""Figures stated about the account of posterior sampling, its sampler and its estimator."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
from sklearn.utils.estimator_checks import check_estimator

from benchmarks import brute_force
from benchmarks.attack import smallest_eigenvectors
from benchmarks.harness import Measured, claim
from benchmarks.reference.posterior import ROWS
from benchmarks.sampler_law import largest_deviation
from discretion.posterior import Bounded, PosteriorSampler, posterior_epsilon
from discretion.privacy import SeededRandomness


@claim(
    "posterior",
    "Reference figures of the account: largest relative deviation",
    "<= 1e-9, or the digits given",
)
def reference_figures() -> Measured:
    deviations = np.array([abs(float(row["compute"]()) / row["expected"] - 1.0) for row in ROWS])
    allowed = np.array([row["rtol"] for row in ROWS])
    full = allowed <= 1e-9
    text = f"{len(ROWS)} figures; {deviations[full].max():.1e} over the {full.sum()} given to 1e-9"
    return Measured(text, bool((deviations <= allowed).all()))


@cache
def _search() -> dict[str, float]:
    return brute_force.search()


@claim(
    "posterior",
    "20,000 random and 200 optimised neighbouring data sets: largest exact divergence over any bound offered",
    "<= 1 + 1e-6",
    slow=True,
)
def brute_force_sound() -> Measured:
    name, ratio = max(_search().items(), key=lambda item: item[1])
    return Measured(f"{ratio:.9f} ({name}; {len(_search())} bounds)", ratio <= 1.0 + brute_force.TOLERANCE)


@claim(
    "posterior",
    "Bounds that are attained come within 2 %, so that 0.98 times a bound is refuted",
    "> 0.98 each",
    slow=True,
)
def brute_force_attained() -> Measured:
    name, ratio = min(((each, _search()[each]) for each in brute_force.ATTAINED), key=lambda item: item[1])
    return Measured(f"smallest {ratio:.4f} ({name}; {len(brute_force.ATTAINED)} bounds)", ratio > 0.98)


@claim("posterior", "Epsilon of bounded responses (all routes, best order) per cpu second", ">= 10,000")
def epsilons_per_second() -> Measured:
    rng = np.random.default_rng(0)
    size = 20_000
    ridge, scale = 10 ** rng.uniform(-1, 2.5, size), 10 ** rng.uniform(-3, 1, size)
    start = time.process_time()
    posterior_epsilon(n=400, ridge=ridge, scale=scale, delta=1e-3, assumption=Bounded(1.0), least_kernel=0.1)
    rate = size / (time.process_time() - start)
    return Measured(f"{rate:,.0f}", rate >= 10_000)


@claim(
    "posterior",
    "4,000 paths at 20 points (two batches, duplicates, training points): mean and covariance",
    "<= 5 s.e.",
)
def sampler_law() -> Measured:
    deviation = largest_deviation(paths=4_000)
    return Measured(f"{deviation:.2f} s.e. at most", deviation <= 5.0)


@claim(
    "posterior",
    "Attack along directions that rounding empties (RBF 0.3, 900 points): AUC without the nugget",
    ">= 0.95",
)
def attack_without_nugget() -> Measured:
    found = {n: smallest_eigenvectors(n).without for n in (100, 2_000)}
    return Measured(", ".join(f"n = {n:,}: {auc:.3f}" for n, auc in found.items()), min(found.values()) >= 0.95)


@claim(
    "posterior",
    "The same attack with the nugget: AUC, and distance of the two answers over the claimed one",
    "chance; <= 1",
)
def attack_with_nugget() -> Measured:
    found = {n: smallest_eigenvectors(n) for n in (100, 2_000)}
    # 400 against 400 paths: the standard error of an AUC of one half is 0.0204.
    holds = all(abs(each.with_nugget - 0.5) <= 4 * 0.0204 and each.distance <= each.claimed for each in found.values())
    text = "; ".join(
        f"n = {n:,}: {each.with_nugget:.3f}, {each.distance / each.claimed:.6f}" for n, each in found.items()
    )
    return Measured(text, holds)


@claim(
    "posterior",
    "scikit-learn's check_estimator on PosteriorSampler with a test seed",
    "all pass, none excepted",
)
def estimator_checks() -> Measured:
    estimator = PosteriorSampler(
        (-10, 10), (-10, 10), ridge=10.0, epsilon=5.0, delta=1e-3, randomness=SeededRandomness(0)
    )
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    passed = sum(result["status"] == "passed" for result in results)
    failed = sum(result["status"] == "failed" for result in results)
    return Measured(f"{passed} passed, {failed} failed, {len(results) - passed - failed} not applicable", failed == 0)
