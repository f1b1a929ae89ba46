"""Figures stated about private bilevel optimisation: sensitivities, exponential mechanisms, choices of penalties."""

from __future__ import annotations

import math
import time

import numpy as np
from sklearn.metrics import r2_score

from benchmarks.harness import Measured, claim
from discretion.bilevel import (
    Constants,
    Counts,
    ExponentialMechanism,
    Grid,
    HuberRidgeCV,
    QuadraticMean,
    RidgeCV,
    RidgePenalty,
    Table,
)
from discretion.bilevel.constants import Refused
from discretion.bilevel.families import HuberPenalty
from discretion.bilevel.inner import perturbed
from discretion.bilevel.samplers import probabilities
from discretion.bilevel.sensitivity import hypergradient_sensitivity, inner_shift
from discretion.privacy import SeededRandomness, gaussian_delta
from discretion.selection import PrivateRidge, dp_sgd_loss
from studies import bilevel_audit, bilevel_lower_bound, bilevel_penalties, bilevel_scores


def _curvature(largest: float) -> Constants:
    """f = y, g = h y^2/2 - m x y with h in [1, largest], |m| <= 1, |x| <= 3, every record with the same f."""
    return Constants(
        L_fx=0.0, L_fy=1.0, b_fxy=0.0, b_fyy=0.0, mu_g=1.0, b_gxy=1.0, b_gyy=largest, r_xy=0.0, r_yy=0.0, D_fx=0.0,
        D_fy=0.0, D_g=3.0 * (largest - 1.0) + 6.0,
    )  # fmt: skip


@claim(
    "bilevel",
    "f = y, g = h y^2/2 - m x y, 1,000 records (1, 1), one replaced by (100, 1): change of the hypergradient over the "
    "printed bound 2/n and over 2K/n; delta(1) of the regularised mechanism with the printed constant, m = 0.5, on "
    "[-3, 3], where it claims 0.5-GDP; with ours",
    "over the printed bound by more than 40, within ours; delta(1) = 1.000 against 6.8e-3; ours below",
)
def bilevel_curvature() -> Measured:
    n, mu, m = 1000, 0.5, 0.5
    slopes = np.array([1.0, 1.0 / (1.0 + 99.0 / n)])
    change, ours = float(slopes[0] - slopes[1]), hypergradient_sensitivity(_curvature(100.0), Counts(n)).value
    x = np.linspace(-3.0, 3.0, 120_001)
    found = []
    for constant in (2.0 / n, ours):
        k = mu**2 * m / constant**2
        logs = -k * (slopes[:, None] * x + 0.5 * m * x * x)
        laws = np.exp(logs - logs.max(axis=1, keepdims=True))
        laws /= laws.sum(axis=1, keepdims=True)
        found.append(max(float(np.maximum(p - math.e * q, 0).sum()) for p, q in (laws, laws[::-1])))
    promised = gaussian_delta(mu, 1.0)
    text = f"{change / (2.0 / n):.1f}, {change / ours:.3f}; {found[0]:.4f} against {promised:.2e}; ours {found[1]:.1e}"
    holds = change > 40 * 2.0 / n and change <= ours and found[0] > 0.9995 and found[1] <= promised
    return Measured(text, bool(holds))


@claim(
    "bilevel",
    "Bounds that are reached: shift of the inner solution (two quadratics), 2K/n (signs and curvature of one record in "
    "1,000), range of the exponential mechanism with inexact values; hypergradients of a Huber loss",
    ">= 0.999, >= 0.95, >= 0.99 and never above 1; refused",
)
def bilevel_attained() -> Measured:
    n = 1000
    shift = (2.0 / n) / inner_shift(Constants(mu_g=1.0, D_g=2.0), Counts(n))
    c = Constants(L_fx=0.0, L_fy=1.0, b_fxy=0.0, b_fyy=0.0, mu_g=1.0, b_gxy=1.0, b_gyy=2.0, r_xy=0.0, r_yy=0.0, D_g=3.0)
    # f = q y: all (q, h, m) = (1, 1, 1), one replaced by (-1, 2, -1)
    moved = (1 - (1 - 2 / n) ** 2 / (1 + 1 / n)) / hypergradient_sensitivity(c, Counts(n)).value
    share, ends = 0.3, Grid.of([-1.0, 1.0])
    mechanism = ExponentialMechanism(
        problem=QuadraticMean(records=10, dimension=1), epsilon=1.0, grid=ends, value_share=share, score="plain"
    )
    error = share * mechanism.plan.range.value * np.array([1.0, -1.0])
    one, other = np.array([1.0, -1.0]), np.array([0.8, -0.8])  # all ones, one replaced by its opposite
    ratio = np.log(probabilities(mechanism.scores(one + error)) / probabilities(mechanism.scores(other - error)))
    spread = float(np.ptp(ratio))
    try:
        huber = HuberPenalty(training=5, validation=5, dimension=1)
        hypergradient_sensitivity(huber.constants(), huber.counts)
        refused = False
    except Refused:
        refused = True
    holds = 0.999 <= shift <= 1 + 1e-12 and 0.95 <= moved <= 1 + 1e-12 and 0.99 <= spread <= 1 + 1e-12 and refused
    return Measured(f"{shift:.4f}, {moved:.4f}, {spread:.4f}; {'refused' if refused else 'given'}", holds)


@claim(
    "bilevel",
    "Penalties of which one record moves the loss by 0.002/lambda: expected excess with one sensitivity for all and "
    "with each candidate's own, epsilon = 0.5 and 2",
    "0.079 to 0.010 and 0.076 to 0.003, within 20 %",
)
def bilevel_candidate_score() -> Measured:
    found = [bilevel_scores.excess(epsilon) for epsilon in (0.5, 2.0)]
    wanted = [(0.079, 0.010), (0.076, 0.003)]
    holds = all(
        abs(a / b - 1) <= 0.2 for one, two in zip(found, wanted, strict=True) for a, b in zip(one, two, strict=True)
    )
    return Measured("; ".join(f"{one:.4f} to {two:.4f}" for one, two in found), holds)


@claim(
    "bilevel",
    "Instance of the lower bound, exact: slopes of the expected excess in n (pure, approximate) and d; beside them "
    "those of |mean| (1 + E t), the excess of the mirrored point, and n = 1000, d = 16",
    "-1, -1; 1, 1/2; all within 0.05; mirrored 1.03, 0.53 within 0.05; 0.0126 and 0.0104 below 0.064 and 0.0478, "
    "mirrored 0.0195 and 0.0193",
)
def bilevel_rates() -> Measured:
    found, one = bilevel_lower_bound.measure(), bilevel_lower_bound.excess(1000, 16)
    rates = all(abs(a - b) <= 0.05 for a, b in zip(found.slopes, (-1.0, -1.0, 1.0, 0.5), strict=True))
    mirrored = all(abs(a - b) <= 0.05 for a, b in zip(found.mirrored, (1.03, 0.53), strict=True))
    values = one.pure, one.approximate, *one.mirrored
    close = np.allclose(values, (0.0126, 0.0104, 0.0195, 0.0193), rtol=0.01)
    slopes = ", ".join(f"{each:.2f}" for each in found.slopes)
    text = (
        f"{slopes}; mirrored {found.mirrored[0]:.2f}, {found.mirrored[1]:.2f}; {one.pure:.4f} (bound "
        f"{one.pure_bound:.3f}), {one.approximate:.4f} (bound {one.approximate_bound:.4f}), mirrored "
        f"{one.mirrored[0]:.4f}, {one.mirrored[1]:.4f}"
    )
    return Measured(text, bool(rates and mirrored and close))


@claim(
    "bilevel",
    "Audit of the exponential mechanism at epsilon = 2: largest exact log-ratio (balanced, skewed neighbours), and the "
    "lower bound of 80,000 samples; the same with a quarter of the sensitivity",
    "<= 2 (1 balanced, near 2 skewed); the control above 2, at least 3.5 by samples",
)
def bilevel_audits() -> Measured:
    found = bilevel_audit.measure()
    proved = [each for each in found if each.strength == 1]
    control = [each for each in found if each.strength != 1]
    by_name = {each.name: each for each in proved}
    largest = max(max(each.largest, each.range, each.sampled) for each in proved)
    seen = max(each.sampled for each in control)
    text = (
        f"{by_name['balanced'].largest:.3f}, {by_name['skewed'].largest:.3f}, by samples "
        f"{max(each.sampled for each in proved):.3f}; control {max(each.largest for each in control):.2f}, by samples "
        f"{seen:.2f}"
    )
    holds = largest <= 2 and by_name["skewed"].largest > 1.9 and seen >= 3.5
    return Measured(text, holds and abs(by_name["balanced"].largest - 1.0) < 0.05)


@claim(
    "bilevel",
    "Synthetic ridge, 200,000 records, 21 penalties in [0.1, 10]: expected excess of the validation loss at epsilon = "
    "0.5 and 2 (worst of three data sets), of a uniform choice, and processor time, the grid included",
    "<= 0.004; <= 0.001; over 0.04; < 60 s",
)
def bilevel_synthetic_ridge() -> Measured:
    worst, uniform, slowest = np.zeros(2), math.inf, 0.0
    for seed in range(3):
        A, b = bilevel_penalties.synthetic(200_000, seed)
        held = np.arange(len(A)) % 2 == 1
        records = Table.split(A, b, ~held)
        problem = RidgePenalty(
            training=100_000, validation=100_000, dimension=A.shape[1], penalties=(0.1, 10.0), candidates=21
        )
        for at, epsilon in enumerate((0.5, 2.0)):
            start = time.process_time()
            mechanism = ExponentialMechanism(problem=problem, epsilon=epsilon)
            values = problem.values(mechanism.points, problem.ingest(records), mechanism.plan.tolerances)
            chances = probabilities(mechanism.scores(values))
            slowest = max(slowest, time.process_time() - start)
            over = values - values.min()
            worst[at] = max(worst[at], float(over @ chances))
            uniform = min(uniform, float(over.mean()))
    holds = worst[0] <= 0.004 and worst[1] <= 0.001 and uniform > 0.04 and slowest < 60
    return Measured(f"{worst[0]:.4f}; {worst[1]:.5f}; {uniform:.3f}; {slowest:.2f} s", bool(holds))


@claim(
    "bilevel",
    "Penalties of diabetes (ridge), breast cancer and digits (logistic): Delta over the spread of the loss, expected "
    "excess over that of a uniform choice at epsilon = 8, and from which epsilon on the report says informative",
    "diabetes: Delta = 1.2 > 20 spreads, > 0.9, never; breast cancer <= 0.26, never; digits <= 0.1, 8",
)
def bilevel_real_tables() -> Measured:
    diabetes, cancer, digits = bilevel_penalties.real()
    words, firsts, shares = [], [], []
    for row in (diabetes, cancer, digits):
        told = bilevel_penalties.EPSILONS[np.array(row.informative)]
        firsts.append(float(told[0]) if len(told) else math.inf)
        shares.append(float(row.chosen[-1] / row.uniform))
        words.append(f"{row.name}: {row.range / row.spread:.1f} spreads, {shares[-1]:.2f} of uniform, {firsts[-1]:g}")
    holds = abs(diabetes.range - 1.2) < 0.05 and diabetes.range > 20 * diabetes.spread and shares[0] > 0.9
    holds &= shares[1] <= 0.26 and shares[2] <= 0.1 and firsts == [math.inf, math.inf, 8.0]
    return Measured(f"Delta = {diabetes.range:.2f}; {'; '.join(words)}", bool(holds))


_SHARES = np.array(
    [
        [1.00, 0.99, 0.99, 0.97, 0.95],
        [0.95, 0.90, 0.78, 0.56, 0.25],
        [0.94, 0.86, 0.69, 0.35, 0.09],
        [0.99, 0.98, 0.95, 0.90, 0.80],
        [0.87, 0.73, 0.47, 0.19, 0.07],
        [0.05, 0.01, 0.00, 0.00, 0.00],
    ]
)


@claim(
    "bilevel",
    "Expected excess over that of a uniform choice with the default score, three real tables and three synthetic ones "
    "(1,000, 10,000, 200,000) at epsilon = 0.5, 1, 2, 4, 8, and what reports say beforehand: the largest; where they "
    "say informative, and the least elsewhere; the largest over the forecast",
    "the table of docs/bilevel.md within 0.006, never above 1; <= 0.2 in 8 of 30, >= 0.24 elsewhere, for diabetes not "
    "once; <= 1.02",
)
def bilevel_verdicts() -> Measured:
    rows = [*bilevel_penalties.real(), *bilevel_penalties.made_up((1_000, 10_000, 200_000))]
    shares = np.array([row.chosen / row.uniform for row in rows])
    bright = float((shares / np.array([row.forecast for row in rows])).max())
    told = np.array([row.informative for row in rows])
    text = (
        f"{shares.max():.3f}; {shares[told].max():.2f} in {told.sum()} of {told.size}, {shares[~told].min():.2f}; "
        f"{bright:.2f}"
    )
    holds = np.abs(shares - _SHARES).max() <= 0.006 and shares.max() <= 1.0 and not told[0].any() and bright <= 1.02
    holds &= shares[told].max() <= 0.2 and shares[~told].min() >= 0.24 and told.sum() == 8
    return Measured(text, bool(holds))


@claim(
    "bilevel",
    "DP-SGD, noise 1, sample rate 0.01, 1,000 steps, delta 1e-5: epsilon under replacement and under add-remove",
    "2.84, 1.83",
)
def bilevel_beside_training() -> Measured:
    found = [
        dp_sgd_loss(noise_multiplier=1.0, sample_rate=0.01, steps=1000, neighbours=each).epsilon(1e-5)
        for each in ("replace", "add-remove")
    ]
    return Measured(f"{found[0]:.2f}, {found[1]:.2f}", [round(each, 2) for each in found] == [2.84, 1.83])


@claim(
    "bilevel",
    "20,000 rows on the sphere in 4 dimensions, responses in [-1, 1] with noise 0.1, a tenth of them replaced by 1, "
    "epsilon = 2, penalties from 0.01, ten seeds: mean R^2 on the others of HuberRidgeCV (corner 0.2) and of RidgeCV",
    "above 0.9; below 0.6",
)
def bilevel_huber() -> Measured:
    rng, n = np.random.default_rng(0), 20_000
    X = rng.normal(size=(n, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.clip(X @ np.linspace(0.8, -0.8, 4) + 0.1 * rng.normal(size=n), -1.0, 1.0)
    wrong, good = np.where(np.arange(n) < n // 10, 1.0, y), slice(n // 10, None)

    def score(model: HuberRidgeCV | RidgeCV) -> float:
        fits = (model.set_params(randomness=SeededRandomness(k)).fit(X, wrong) for k in range(10))
        return float(np.mean([fit.score(X[good], y[good]) for fit in fits]))

    huber, ridge = score(HuberRidgeCV(corner=0.2, epsilon=2.0)), score(RidgeCV(epsilon=2.0))
    return Measured(f"{huber:.2f}; {ridge:.2f}", huber > 0.9 and ridge < 0.6)


def _gaussian(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 10 covariates and responses of which they explain four fifths."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(n, 10)), rng.normal(size=10)
    return X, 50.0 + X @ (10.0 * w / np.linalg.norm(w)) + 5.0 * rng.normal(size=n)


def _tuned(model: RidgeCV, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chance of each penalty, exactly, and R^2 of the model released with it."""
    mechanism = model.mechanism(*X.shape)
    split, joined = mechanism._parts(Table(X, y))
    chances, held = probabilities(mechanism.choice._scored(split)), mechanism.whole.ingest(joined)
    found = []
    for place, x in enumerate(mechanism.choice.points):
        assert mechanism.mu is not None
        noisy = perturbed(mechanism.whole, x, held, mechanism.mu, SeededRandomness(place))
        beta, intercept = mechanism._unscaled(noisy)
        found.append(float(r2_score(y, X @ beta + intercept)))
    return chances, np.array(found)


@claim(
    "bilevel",
    "The same rows, 6,000, 20,000 and 200,000, epsilon = 2, wide range (0.001, 10): least penalty that noise leaves, "
    "over (n mu)^(-2/3), whether the report says informative; expected R^2, and with penalties from 2 to 6 times it",
    "2.3 to 3.3, never; 0.18, 0.24, 0.33 within 0.02; 0.42, 0.58, 0.73 within 0.02",
)
def bilevel_ranges() -> Measured:
    words, holds = [], True
    for n, wide, narrow in ((6_000, 0.18, 0.42), (20_000, 0.24, 0.58), (200_000, 0.33, 0.73)):
        X, y = _gaussian(n)
        model = RidgeCV(4.0, (0.0, 100.0), epsilon=2.0, delta=1e-6, penalties=(0.001, 10.0))
        report, found = model.report(n), [float(np.dot(*_tuned(model, X, y)))]
        least, mu = report.penalties[0], report.mu
        assert mu is not None
        model.set_params(penalties=(2 * least, 6 * least))
        found.append(float(np.dot(*_tuned(model, X, y))))
        ratio = least * (n * mu) ** (2 / 3)
        words.append(f"{ratio:.2f}, {report.informative}, {found[0]:.2f} to {found[1]:.2f}")
        holds &= 2.3 <= ratio <= 3.3 and not report.informative
        holds &= abs(found[0] - wide) <= 0.02 and abs(found[1] - narrow) <= 0.02
    return Measured("; ".join(words), bool(holds))


@claim(
    "bilevel",
    "RidgeCV on 200,000 Gaussian rows of 10 covariates (R^2 0.80 without privacy), feature_bound 4, response_range (0, "
    "100), penalties (0.01, 10), epsilon = 2: verdict of its report; expected R^2, that of a uniform choice of the "
    "penalty and of the least one; R^2 of PrivateRidge at the same price",
    "not informative; within 0.05 of each other; above 0.7; above 0.79",
)
def bilevel_ridge_beside_sums() -> Measured:
    n = 200_000
    X, y = _gaussian(n)
    model = RidgeCV(4.0, (0.0, 100.0), epsilon=2.0, delta=1e-6, penalties=(0.01, 10.0))
    chances, found = _tuned(model, X, y)
    expected, uniform, least = float(chances @ found), float(np.mean(found)), float(found[0])
    sums = (
        PrivateRidge(4.0, (0.0, 100.0), epsilon=2.0, delta=1e-6, randomness=SeededRandomness(0)).fit(X, y).score(X, y)
    )
    informative = model.report(n).informative
    words = "informative" if informative else "not informative"
    holds = not informative and abs(expected - uniform) < 0.05 and least > 0.7 and sums > 0.79
    return Measured(f"{words}; {expected:.2f}, {uniform:.2f}; {least:.2f}; {sums:.3f}", bool(holds))
