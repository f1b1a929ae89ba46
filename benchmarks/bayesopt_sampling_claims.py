"""Figures stated about a private search that samples its records."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Measured, claim
from discretion.bayesopt import Linear, LocalSearch
from discretion.bayesopt.sampling import sampled_loss


@claim(
    "bayesopt",
    "Noise with sample_rate over that with all records, at epsilon = 2, delta = 1e-6, 40 steps; q = 0.1, 0.01",
    "1.003, 2.74 (1 %)",
)
def sampled_noise() -> Measured:
    def noise(**rate: float) -> float:
        space = {"x": Linear(0.0, 1.0)}
        return LocalSearch.calibrated(space, epsilon=2.0, delta=1e-6, steps=40, clip=1.0, **rate).noise(1000)

    ratios = [noise(sample_rate=q) / noise() for q in (0.1, 0.01)]
    return Measured(", ".join(f"{each:.3f}" for each in ratios), bool(np.allclose(ratios, (1.003, 2.74), rtol=0.01)))


@claim(
    "bayesopt",
    "delta of 10 sampled steps under replacement, q = 0.2, mu_t = 1, in 4 million simulated runs, over the account's",
    "<= 1 + 4 standard errors, and >= 0.98 (at delta = 0.01)",
)
def sampled_delta() -> Measured:
    q, mu, steps, delta, runs = 0.2, 1.0, 10, 1e-2, 4_000_000
    epsilon = sampled_loss([mu] * steps, q).epsilon(delta)
    rng, u = np.random.default_rng(0), mu / 2
    # log of ((1 - q) N(0) + q N(u)) / ((1 - q) N(0) + q N(-u)) at points of the first
    loss = np.zeros(runs)
    for _ in range(steps):
        z = rng.standard_normal(runs) + u * (rng.random(runs) < q)
        loss += np.log1p(q * np.expm1(u * z - u * u / 2)) - np.log1p(q * np.expm1(-u * z - u * u / 2))
    events = np.maximum(-np.expm1(epsilon - loss), 0.0)
    ratio, error = float(events.mean()) / delta, float(events.std()) / np.sqrt(runs) / delta
    return Measured(f"{ratio:.4f} +- {error:.4f}", bool(0.98 <= ratio <= 1.0 + 4.0 * error))
