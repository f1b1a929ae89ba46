"""The strongest attack on a whole run: it finds mu, and refutes two builds that are wrong on purpose."""

import math

import numpy as np
import pytest

from discretion.bayesopt import SGD, Linear, LocalSearch, Study
from discretion.bayesopt.kernels import gradient_kernel
from discretion.bayesopt.surrogate import GradientPosterior
from discretion.gp import RBF
from discretion.privacy import SeededRandomness
from discretion.privacy.clipping import clip

N, STEPS, MU, CLIP = 20, 10, 1.0, 1.0


class Remembered(LocalSearch):
    """The product; theta stands still, so that a step is planned once for all runs."""

    plans = {}  # noqa: RUF012

    def plan(self, n, step, theta, old, clip_norm, **changes):
        key = (n, step, theta.round(9).tobytes(), old.round(9).tobytes(), clip_norm)
        if key not in self.plans:
            self.plans[key] = super().plan(n, step, theta, old, clip_norm, **changes)
        return self.plans[key]


SEARCH = Remembered(
    {"x": Linear(-1, 1, unit=1.0), "y": Linear(-1, 1, unit=1.0)},
    mu=MU,
    steps=STEPS,
    clip=CLIP,
    update=SGD(1e-300),
    kernel=RBF(0.5),
)


def losses(Z, sign, size=5.0, n=N):
    """One record with a steep linear loss, up or down; quadratic losses of the others."""
    centres = np.random.default_rng(7).normal(size=(n, 2)) * 0.3
    values = ((Z[None] - centres[:, None]) ** 2).sum(axis=-1)
    values[0] = sign * size * Z[:, 0]
    return values


def audited(run, runs):
    """(mu found, its standard error) from the sum over steps of the first coordinate, which is the best statistic."""
    found = [np.array([run(sign, 2 * i + (sign > 0)) for i in range(runs)]) for sign in (1.0, -1.0)]
    spread = math.sqrt(0.5 * (found[0].var(ddof=1) + found[1].var(ddof=1)))
    mu = abs(found[0].mean() - found[1].mean()) / spread
    return mu, math.sqrt(2.0 / runs + mu * mu / (4.0 * runs))


def product(sign, seed):
    study = Study(SEARCH, n=N, randomness=SeededRandomness(seed))
    while not study.done:
        study.tell(losses(study.asked, sign))
    return sum(step.gradient[0] for step in study.steps)


@pytest.mark.slow
def test_the_product_costs_what_it_says():
    mu, error = audited(product, 2000)
    assert abs(mu - MU) < 3 * error


def clipped_mean(sign, seed):
    """WRONG: the mean is clipped, with noise for clipped records."""
    randomness, total = SeededRandomness(seed), 0.0
    for step in range(STEPS):
        plan = SEARCH.plan(N, step, np.zeros(2), np.empty((0, 2)), CLIP)
        exact = clip((plan.estimate.map @ losses(plan.new, sign, size=1e6).mean(axis=0))[None], CLIP)[0]
        total += (exact + plan.noise * randomness.standard_normal(2))[0]
    return total


def test_a_clipped_mean_is_refuted():
    mu, error = audited(clipped_mean, 100)
    assert mu - 3 * error > 10 * MU
    assert mu == pytest.approx(N * MU, rel=0.15)


def fitted_length_scale(sign, seed):
    """WRONG: the length scale is fitted to the evaluations, by marginal likelihood."""
    n, randomness, total = 100, SeededRandomness(seed), 0.0
    Z = np.array([[-0.3], [0.0], [0.3]])
    values = 2.0 * Z[:, 0] * np.ones((n, 1))
    values[0] = [1e3, -2e3, 1e3] if sign > 0 else 2.0 * Z[:, 0]

    def posterior(l):
        return GradientPosterior(gradient_kernel(RBF(l)), 1, nugget=1e-6, offset="none").append(Z)

    def likelihood(l):
        y = values.mean(axis=0)
        K = RBF(l)(Z) + 1e-6 * np.eye(3)
        return -1.5 * np.log(y @ np.linalg.solve(K, y)) - 0.5 * np.linalg.slogdet(K)[1]

    fitted = max((0.05, 0.2, 0.5, 1.0, 2.0), key=likelihood)
    A = posterior(fitted).at(np.zeros(1)).map
    noise = 2 * CLIP * math.sqrt(STEPS) / (n * MU)
    for _ in range(STEPS):
        total += clip(values @ A.T, CLIP).mean() + noise * float(randomness.standard_normal(()))
    return total


def test_a_kernel_fitted_to_private_values_is_refuted():
    mu, error = audited(fitted_length_scale, 100)
    assert mu - 3 * error > 10 * MU
